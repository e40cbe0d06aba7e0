/* SPDX-License-Identifier: MIT */
/* What came out: tables, survivors, JSON, exit status. All from one count. */
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/faults.h"
#include "tools/output.h"

enum { MAX_ROWS = 256 };

/* A row of a table. */
struct tally {
	const char *name;
	int count[FAULT_ERROR + 1];
};

struct table {
	struct tally row[MAX_ROWS];
	int rows;
};

const char *faults_outcome_name(enum fault_outcome outcome)
{
	static const char *const name[] = {"waiting", "killed", "survived", "equivalent", "identical", "stillborn",
		"elsewhere", "not equivalent", "error"};
	return name[outcome];
}

static void count(struct table *t, const char *name, enum fault_outcome outcome)
{
	int i = 0;
	while (i < t->rows && strcmp(t->row[i].name, name) != 0)
		i++;
	if (i == MAX_ROWS)
		return;
	if (i == t->rows)
		t->row[t->rows++].name = name;
	t->row[i].count[outcome]++;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct tally *)a)->name, ((const struct tally *)b)->name);
}

/* Those that count: a kill was possible. */
static int total(const struct tally *t)
{
	return t->count[FAULT_KILLED] + t->count[FAULT_SURVIVED] + t->count[FAULT_NOT_EQUIVALENT];
}

static void print_table(const char *title, struct table *t)
{
	if (!t->rows)
		return;
	qsort(t->row, (size_t)t->rows, sizeof t->row[0], by_name);
	printf("\n%-28s %7s %7s %9s %11s %10s %9s %7s\n", title, "killed", "of", "survived", "equivalent", "identical",
		"no build", "errors");
	for (int i = 0; i < t->rows; i++) {
		const struct tally *r = &t->row[i];
		printf("%-28s %7d %7d %9d %11d %10d %9d %7d", r->name, r->count[FAULT_KILLED], total(r),
			r->count[FAULT_SURVIVED], r->count[FAULT_EQUIVALENT], r->count[FAULT_IDENTICAL],
			r->count[FAULT_STILLBORN], r->count[FAULT_ERROR] + r->count[FAULT_NOT_EQUIVALENT]);
		if (r->count[FAULT_ELSEWHERE])
			printf("   (%d only on the GPU)", r->count[FAULT_ELSEWHERE]);
		printf("\n");
	}
}

/* The stage of a fault: of its op, or what its file belongs to. */
static const char *stage_of(const struct fault *f)
{
	static const struct {
		const char *part, *stage;
	} files[] = {
		{"attention", "attention"},
		{"gdn", "gdn"},
		{"moe", "moe"},
		{"ple", "ple"},
		{"qsa", "qsa"},
		{"hc", "hyper_connection"},
		{"lm_head", "lm_head"},
		{"embed", "embed"},
		{"linear", "projections"},
		{"gemv", "projections"},
	};
	if (strncmp(f->file, "kernels/", 8) != 0 && f->op == PLUMB_OP_COUNT)
		return strncmp(f->file, "ref/bound", 9) == 0 ? "(bound)"
		       : strstr(f->file, "numeric") || strstr(f->file, "quantise") || strstr(f->file, "weight") ||
		                       strstr(f->file, "value")
		               ? "(number formats)"
		               : "(comparison)";
	if (f->op != PLUMB_OP_COUNT)
		return plumb_ops[f->op].stage;
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		if (strstr(f->file, files[i].part))
			return files[i].stage;
	return "(shared by kernels)";
}

/* The source line with the mutant in it. */
static void print_change(const char *source, const struct fault *f)
{
	struct plumb_error err;
	size_t size;
	struct fault none = *f;
	none.length = 0;
	none.replacement = (char[]){""};
	char *before = faults_applied(source, &none, &size, &err), *after = faults_applied(source, f, &size, &err);
	size_t begin = f->at;

	if (before && after) {
		while (begin > 0 && before[begin - 1] != '\n')
			begin--;
		begin += strspn(before + begin, " \t");
		printf("    - %.*s\n    + %.*s\n", (int)strcspn(before + begin, "\n"), before + begin,
			(int)strcspn(after + begin, "\n"), after + begin);
	}
	free(before);
	free(after);
}

static void list_of(
	const char *title, const char *source, struct fault *const *chosen, size_t n, enum fault_outcome outcome)
{
	int shown = 0;
	for (size_t i = 0; i < n; i++) {
		const struct fault *f = chosen[i];
		if (f->outcome != outcome)
			continue;
		if (!shown++)
			printf("\n%s\n", title);
		printf("  %s%s%s  %s:%d  %s%s%s\n", output_bad(), f->id, output_plain(), f->file, f->line, f->why,
			f->text[0] ? ": " : "", f->text);
		if (outcome == FAULT_SURVIVED)
			print_change(source, f);
	}
}

static void add_table(cJSON *top, const char *name, const struct table *t)
{
	cJSON *o = cJSON_AddObjectToObject(top, name);
	for (int i = 0; i < t->rows; i++) {
		cJSON *row = cJSON_AddObjectToObject(o, t->row[i].name);
		cJSON_AddNumberToObject(row, "killed", t->row[i].count[FAULT_KILLED]);
		cJSON_AddNumberToObject(row, "total", total(&t->row[i]));
		for (int k = FAULT_SURVIVED; k <= FAULT_ERROR; k++)
			cJSON_AddNumberToObject(row, faults_outcome_name((enum fault_outcome)k), t->row[i].count[k]);
	}
}

static int write_json(struct fault *const *chosen, size_t n, const struct fault_score_options *options,
	const struct table *tables, const char *const *names, int count_of_tables, int status, struct plumb_error *err)
{
	cJSON *top = cJSON_CreateObject(), *list, *o;
	char *text;

	cJSON_AddStringToObject(top, "format", "plumb faults score 1");
	cJSON_AddStringToObject(top, "lane", options->lane);
	cJSON_AddNumberToObject(top, "seed", (double)options->seed);
	cJSON_AddNumberToObject(top, "seconds", options->seconds);
	cJSON_AddBoolToObject(top, "pass", status == PLUMB_OK);
	for (int i = 0; i < count_of_tables; i++)
		add_table(top, names[i], &tables[i]);
	list = cJSON_AddArrayToObject(top, "faults");
	for (size_t i = 0; i < n; i++) {
		const struct fault *f = chosen[i];
		o = cJSON_CreateObject();
		cJSON_AddItemToArray(list, o);
		cJSON_AddStringToObject(o, "id", f->id);
		cJSON_AddStringToObject(o, "class", f->fault_class);
		cJSON_AddStringToObject(o, "kind", f->kind);
		cJSON_AddStringToObject(o, "stage", stage_of(f));
		if (f->op != PLUMB_OP_COUNT)
			cJSON_AddStringToObject(o, "op", plumb_ops[f->op].name);
		cJSON_AddStringToObject(o, "file", f->file);
		cJSON_AddNumberToObject(o, "line", f->line);
		cJSON_AddStringToObject(o, "outcome", faults_outcome_name(f->outcome));
		if (f->check[0])
			cJSON_AddStringToObject(o, "killed_by", f->check);
		if (f->text[0])
			cJSON_AddStringToObject(o, "text", f->text);
		if (f->equivalent)
			cJSON_AddStringToObject(o, "reason", f->equivalent);
		cJSON_AddNumberToObject(o, "checks", f->checks);
		cJSON_AddNumberToObject(o, "seconds", f->seconds);
	}
	text = cJSON_Print(top);
	status = text ? output_file(options->json, text, strlen(text), err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", options->json);
	cJSON_free(text);
	cJSON_Delete(top);
	return status;
}

int faults_score(struct fault *const *chosen, size_t n, const struct fault_score_options *options, struct plumb_error *err)
{
	enum { BY_KIND, BY_CLASS, BY_STAGE, BY_CHECK, BY_FILE, TABLES };
	static struct table table[TABLES];
	static const char *const title[TABLES] = {"kind", "class", "stage", "killed by", "file"};
	static const char *const key[TABLES] = {"kinds", "classes", "stages", "checks", "files"};
	struct tally all = {.name = "all"}, mutants = {.name = "mutant"};
	double spent = 0.0;
	int status = PLUMB_OK;

	memset(table, 0, sizeof table);
	for (size_t i = 0; i < n; i++) {
		const struct fault *f = chosen[i];
		all.count[f->outcome]++;
		if (strcmp(f->kind, mutants.name) == 0)
			mutants.count[f->outcome]++;
		spent += f->seconds;
		count(&table[BY_KIND], f->kind, f->outcome);
		count(&table[BY_CLASS], f->fault_class, f->outcome);
		count(&table[BY_STAGE], stage_of(f), f->outcome);
		count(&table[BY_FILE], f->file, f->outcome);
		if (f->outcome == FAULT_KILLED)
			count(&table[BY_CHECK], f->check, f->outcome);
	}
	for (int i = 0; i < TABLES; i++)
		if (i != BY_FILE || table[BY_FILE].rows > 1)
			print_table(title[i], &table[i]);
	list_of("survivors:", options->source, chosen, n, FAULT_SURVIVED);
	list_of("recorded as equivalent, but killed (the record is wrong):", options->source, chosen, n,
		FAULT_NOT_EQUIVALENT);
	list_of("errors (nothing is known of these):", options->source, chosen, n, FAULT_ERROR);
	list_of("only on the GPU:", options->source, chosen, n, FAULT_ELSEWHERE);
	if (all.count[FAULT_ERROR] || all.count[FAULT_WAITING])
		status = PLUMB_BAD_INPUT;
	else if (all.count[FAULT_SURVIVED] > mutants.count[FAULT_SURVIVED] || all.count[FAULT_NOT_EQUIVALENT] ||
		 100 * (int64_t)mutants.count[FAULT_KILLED] < options->least * total(&mutants))
		status = PLUMB_MISMATCH;
	else if (total(&all) == 0 &&
		 all.count[FAULT_EQUIVALENT] + all.count[FAULT_ELSEWHERE] + all.count[FAULT_IDENTICAL] == 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "nothing was scored");
	printf("\n%s%s%s  lane %s: %d of %d killed", status == PLUMB_OK ? output_good() : output_bad(),
		status == PLUMB_OK ? "pass" : "FAIL", output_plain(), options->lane, all.count[FAULT_KILLED], total(&all));
	if (total(&all))
		printf(" (%.1f %%)", 100.0 * all.count[FAULT_KILLED] / total(&all));
	printf("; %d equivalent, %d identical, %d do not compile, %d only on the GPU, %d errors; %.0f s, %.0f s of "
	       "checks\n",
		all.count[FAULT_EQUIVALENT], all.count[FAULT_IDENTICAL], all.count[FAULT_STILLBORN],
		all.count[FAULT_ELSEWHERE], all.count[FAULT_ERROR] + all.count[FAULT_WAITING], options->seconds, spent);
	if (options->json) {
		int written = write_json(chosen, n, options, table, key, TABLES, status, err);
		status = written != PLUMB_OK ? written : status;
	}
	return status;
}
