/* SPDX-License-Identifier: MIT */
/* Counting and printing a score. All figures come from the list "faults" of the tree. */
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/faults_score.h"
#include "tools/output.h"

enum { ROWS_MOST = 4096, LINE = 600 };

const char faults_gate_name[] = "mutants/enough of all together are killed";

static const struct {
	const char *key, *title, *of; /* of: the member of a fault that names its row */
} tables[FAULT_TABLES] = {
	{"kinds", "kind", "kind"},
	{"classes", "class", "class"},
	{"stages", "stage", "stage"},
	{"lanes", "lane", "lane"},
	{"checks", "killed by", "killed_by"},
	{"files", "file", "file"},
};

static const char *const outcome_name[] = {
	"waiting", "killed", "survived", "equivalent", "identical", "stillborn", "elsewhere", "not equivalent", "error"};

const char *faults_outcome_name(enum fault_outcome outcome)
{
	return outcome_name[outcome];
}

enum fault_outcome faults_outcome_find(const char *name)
{
	for (int i = FAULT_KILLED; i <= FAULT_ERROR; i++)
		if (strcmp(outcome_name[i], name) == 0)
			return (enum fault_outcome)i;
	return FAULT_WAITING;
}

enum shard_verdict faults_verdict(enum fault_outcome outcome, bool mutant, int64_t least)
{
	switch (outcome) {
	case FAULT_KILLED:
	case FAULT_EQUIVALENT:
	case FAULT_IDENTICAL:
		return SHARD_PASS;
	case FAULT_STILLBORN:
	case FAULT_ELSEWHERE:
		return SHARD_SKIP;
	case FAULT_SURVIVED:
		return mutant && least < 100 ? SHARD_SKIP : SHARD_FAIL;
	default:
		return SHARD_FAIL;
	}
}

/* ---- reading ---- */

static const char *text_of(const cJSON *o, const char *name)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
	return cJSON_IsString(x) ? x->valuestring : "";
}

static int number_of(const cJSON *o, const char *name)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, name);
	return cJSON_IsNumber(x) ? x->valueint : 0;
}

/* A text for a terminal: a file may hold anything. One of a few buffers in turn. */
static const char *shown(const char *text)
{
	static struct plumb_error buffer[8];
	static int next;
	struct plumb_error *e = &buffer[next++ % 8];

	plumb_fail(e, PLUMB_OK, "%.500s", text);
	return e->text;
}

/* ---- counting ---- */

static void raise_by_one(cJSON *row, const char *name)
{
	cJSON *x = cJSON_GetObjectItemCaseSensitive(row, name);
	if (x)
		cJSON_SetNumberValue(x, x->valuedouble + 1.0);
	else
		cJSON_AddNumberToObject(row, name, 1.0);
}

static int by_name(const void *a, const void *b)
{
	return strcmp((*(cJSON *const *)a)->string, (*(cJSON *const *)b)->string);
}

static void sort_rows(cJSON *table)
{
	int n = cJSON_GetArraySize(table), i = 0;
	cJSON **row = faults_zero((size_t)n, sizeof(void *));

	while (table->child)
		row[i++] = cJSON_DetachItemViaPointer(table, table->child);
	qsort(row, (size_t)n, sizeof(void *), by_name);
	for (i = 0; i < n; i++) {
		char *name = faults_format("%s", row[i]->string);
		cJSON_AddItemToObject(table, name, row[i]);
		free(name);
	}
	free(row);
}

static cJSON *row_of(cJSON *table, const char *name)
{
	cJSON *row = cJSON_GetObjectItemCaseSensitive(table, name);

	if (row || cJSON_GetArraySize(table) >= ROWS_MOST)
		return row;
	row = cJSON_AddObjectToObject(table, name);
	cJSON_AddNumberToObject(row, "killed", 0.0);
	cJSON_AddNumberToObject(row, "total", 0.0);
	for (int k = FAULT_SURVIVED; k <= FAULT_ERROR; k++)
		cJSON_AddNumberToObject(row, outcome_name[k], 0.0);
	cJSON_AddObjectToObject(row, "by");
	return row;
}

int faults_count(cJSON *score, int64_t least, bool part)
{
	cJSON *table[FAULT_TABLES], *mutants;
	const cJSON *f;
	int count[FAULT_ERROR + 1] = {0}, planted_live = 0, mutants_killed = 0, mutants_of = 0, status = PLUMB_OK;

	for (int i = 0; i < FAULT_TABLES; i++) {
		cJSON_DeleteItemFromObjectCaseSensitive(score, tables[i].key);
		table[i] = cJSON_AddObjectToObject(score, tables[i].key);
	}
	cJSON_DeleteItemFromObjectCaseSensitive(score, "pass");
	cJSON_DeleteItemFromObjectCaseSensitive(score, "mutants");
	cJSON_ArrayForEach (f, cJSON_GetObjectItemCaseSensitive(score, "faults")) {
		enum fault_outcome outcome = faults_outcome_find(text_of(f, "outcome"));
		bool mutant = strcmp(text_of(f, "kind"), "mutant") == 0, killed = outcome == FAULT_KILLED;
		bool counts = killed || outcome == FAULT_SURVIVED || outcome == FAULT_NOT_EQUIVALENT;
		count[outcome]++;
		planted_live += !mutant && outcome == FAULT_SURVIVED;
		mutants_killed += mutant && killed;
		mutants_of += mutant && counts;
		for (int i = 0; i < FAULT_TABLES; i++) {
			const char *name = text_of(f, tables[i].of);
			cJSON *row =
				*name && (killed || strcmp(tables[i].of, "killed_by") != 0) ? row_of(table[i], name) : NULL;
			if (!row)
				continue;
			if (counts)
				raise_by_one(row, "total");
			raise_by_one(row, outcome_name[outcome]);
			if (killed)
				raise_by_one(cJSON_GetObjectItemCaseSensitive(row, "by"), text_of(f, "killed_by"));
		}
	}
	for (int i = 0; i < FAULT_TABLES; i++)
		sort_rows(table[i]);
	if (count[FAULT_ERROR] || count[FAULT_WAITING])
		status = PLUMB_BAD_INPUT;
	else if (planted_live || count[FAULT_NOT_EQUIVALENT] ||
		 ((!part || least == 100) && (int64_t)100 * mutants_killed < least * mutants_of))
		status = PLUMB_MISMATCH;
	mutants = cJSON_AddObjectToObject(score, "mutants");
	cJSON_AddNumberToObject(mutants, "killed", mutants_killed);
	cJSON_AddNumberToObject(mutants, "total", mutants_of);
	cJSON_AddNumberToObject(mutants, "least", (double)least);
	cJSON_AddBoolToObject(mutants, "judged", !part || least == 100);
	cJSON_AddBoolToObject(score, "pass", status == PLUMB_OK);
	return status;
}

bool faults_gate(const cJSON *score, char *text, size_t size, bool *passes)
{
	const cJSON *m = cJSON_GetObjectItemCaseSensitive(score, "mutants");
	int killed = number_of(m, "killed"), total = number_of(m, "total"), least = number_of(m, "least");

	*passes = 100 * (int64_t)killed >= (int64_t)least * total;
	snprintf(text, size, "%d of %d mutants are killed, at least %d %% have to be", killed, total, least);
	return least < 100 && cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(m, "judged"));
}

/* ---- printing ---- */

static const struct {
	enum fault_outcome outcome;
	const char *head;
} column[] = {{FAULT_SURVIVED, "survived"}, {FAULT_EQUIVALENT, "equivalent"}, {FAULT_IDENTICAL, "identical"},
	{FAULT_STILLBORN, "no build"}, {FAULT_ELSEWHERE, "elsewhere"}, {FAULT_NOT_EQUIVALENT, "record wrong"},
	{FAULT_ERROR, "errors"}};
enum { COLUMNS = sizeof column / sizeof column[0] };

/* A row a name; columns that are 0 throughout the score are left out. Behind them the checks that killed, the busiest first. */
static void print_table(const char *title, const cJSON *table, const bool *wanted, bool by)
{
	const cJSON *row;

	if (!table->child)
		return;
	printf("\n%-28s %7s %7s", title, "killed", "of");
	for (int c = 0; c < COLUMNS; c++)
		if (wanted[c])
			printf(" %*s", (int)strlen(column[c].head) + 1, column[c].head);
	printf("%s\n", by ? "   by" : "");
	cJSON_ArrayForEach (row, table) {
		const cJSON *counts = cJSON_GetObjectItemCaseSensitive(row, "by"), *one;
		int most = 0;
		printf("%-28s %7d %7d", shown(row->string), number_of(row, "killed"), number_of(row, "total"));
		for (int c = 0; c < COLUMNS; c++)
			if (wanted[c])
				printf(" %*d", (int)strlen(column[c].head) + 1,
					number_of(row, outcome_name[column[c].outcome]));
		cJSON_ArrayForEach (one, counts)
			most = one->valueint > most ? one->valueint : most;
		const char *gap = "   ";
		for (int n = most; by && n > 0; n--)
			cJSON_ArrayForEach (one, counts)
				if (one->valueint == n) {
					printf("%s%s (%d)", gap, shown(one->string), n);
					gap = "; ";
				}
		printf("\n");
	}
}

static void print_lines(const char *mark, const char *text)
{
	while (*text) {
		size_t n = strcspn(text, "\n");
		char line[LINE];
		snprintf(line, sizeof line, "%.*s", (int)n, text);
		printf("    %s %s\n", mark, shown(line));
		text += n + (text[n] == '\n');
	}
}

static void list_of(const char *title, const cJSON *score, enum fault_outcome outcome)
{
	const cJSON *f;
	int listed = 0;

	cJSON_ArrayForEach (f, cJSON_GetObjectItemCaseSensitive(score, "faults")) {
		if (faults_outcome_find(text_of(f, "outcome")) != outcome)
			continue;
		if (!listed++)
			printf("\n%s\n", title);
		printf("  %s%s%s  %s:%d  %s%s%s\n", output_bad(), shown(text_of(f, "id")), output_plain(),
			shown(text_of(f, "file")), number_of(f, "line"), shown(text_of(f, "why")),
			*text_of(f, "text") ? ": " : "", shown(text_of(f, "text")));
		if (outcome == FAULT_ELSEWHERE)
			continue;
		print_lines("-", text_of(f, "before"));
		print_lines("+", text_of(f, "after"));
		if (*text_of(f, "again"))
			printf("    %s%s%s\n", output_dim(), shown(text_of(f, "again")), output_plain());
	}
	if (listed && outcome == FAULT_SURVIVED)
		printf("  Each is to be killed by a better check, or recorded with a reason: docs/faults.md\n");
}

void faults_score_print(const cJSON *score)
{
	const cJSON *f, *m = cJSON_GetObjectItemCaseSensitive(score, "mutants");
	int count[FAULT_ERROR + 1] = {0};
	bool wanted[COLUMNS], pass = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(score, "pass")), passes;
	double spent = 0.0;
	char gate[160];

	cJSON_ArrayForEach (f, cJSON_GetObjectItemCaseSensitive(score, "faults")) {
		const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(f, "seconds");
		count[faults_outcome_find(text_of(f, "outcome"))]++;
		spent += cJSON_IsNumber(seconds) ? seconds->valuedouble : 0.0;
	}
	for (int c = 0; c < COLUMNS; c++)
		wanted[c] = count[column[c].outcome] > 0;
	const int total = count[FAULT_KILLED] + count[FAULT_SURVIVED] + count[FAULT_NOT_EQUIVALENT];
	const bool none[COLUMNS] = {false};
	for (int i = 0; i < FAULT_TABLES && !output_quiet(); i++) {
		const cJSON *table = cJSON_GetObjectItemCaseSensitive(score, tables[i].key);
		bool check = strcmp(tables[i].key, "checks") == 0, file = strcmp(tables[i].key, "files") == 0;
		if (!file || (table->child && table->child->next))
			print_table(tables[i].title, table, check ? none : wanted, !check && !file);
	}
	if (!output_quiet()) {
		list_of("survivors:", score, FAULT_SURVIVED);
		list_of("recorded as equivalent, but killed (the record is wrong):", score, FAULT_NOT_EQUIVALENT);
		list_of("errors (nothing is known of these):", score, FAULT_ERROR);
		list_of("only on the GPU:", score, FAULT_ELSEWHERE);
		printf("\n");
	}
	const cJSON *seconds = cJSON_GetObjectItemCaseSensitive(score, "seconds");
	printf("%s%s%s  lane %s: %d of %d killed", pass ? output_good() : output_bad(), pass ? "pass" : "FAIL",
		output_plain(), shown(text_of(score, "lane")), count[FAULT_KILLED], total);
	if (total)
		printf(" (%.1f %%)", 100.0 * count[FAULT_KILLED] / total);
	printf("; %d equivalent, %d identical, %d do not compile, %d only on the GPU, %d errors; ", count[FAULT_EQUIVALENT],
		count[FAULT_IDENTICAL], count[FAULT_STILLBORN], count[FAULT_ELSEWHERE],
		count[FAULT_ERROR] + count[FAULT_WAITING]);
	if (faults_gate(score, gate, sizeof gate, &passes))
		printf("%s; ", gate);
	else if (number_of(m, "least") < 100)
		printf("%d of %d mutants, of which all shards together tell whether they are enough; ",
			number_of(m, "killed"), number_of(m, "total"));
	printf("%.0f s, %.0f s of checks\n", cJSON_IsNumber(seconds) ? seconds->valuedouble : 0.0, spent);
}
