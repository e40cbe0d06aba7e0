/* SPDX-License-Identifier: MIT */
/* The score as a tree: of faults that were judged, of shards, and from an earlier run. */
#include "tools/faults_score.h"

#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/json.h"

enum { SHOWN_CHANGE = 1000 };

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

/* ---- a fault ---- */

/* Lines begin..end of text, without the indentation of the first. To be freed. */
static char *lines_of(const char *text, size_t begin, size_t end)
{
	size_t indent = strspn(text + begin, " \t");
	char *out = faults_zero(end - begin + 1, 1), *to = out;

	while (begin < end) {
		size_t skip = strspn(text + begin, " \t");
		begin += skip < indent ? skip : indent;
		size_t n = strcspn(text + begin, "\n");
		n = begin + n < end ? n + 1 : end - begin;
		memcpy(to, text + begin, n);
		to += n;
		begin += n;
	}
	if (to > out && to[-1] == '\n')
		to[-1] = '\0';
	return out;
}

/* The lines that the fault changes, before and after. */
static void add_change(cJSON *o, const char *source, const struct fault *f)
{
	struct plumb_error err;
	size_t size, begin = f->at;
	struct fault none = *f;

	none.length = 0;
	none.replacement = (char[]){""};
	char *before = faults_applied(source, &none, &size, &err), *after = faults_applied(source, f, &size, &err);
	if (before && after) {
		size_t end = f->at + f->length, to = f->at + strlen(f->replacement);
		while (begin > 0 && before[begin - 1] != '\n')
			begin--;
		end += strcspn(before + end, "\n");
		to += strcspn(after + to, "\n");
		char *old = lines_of(before, begin, end), *now = lines_of(after, begin, to);
		if (strlen(old) > SHOWN_CHANGE)
			memcpy(old + SHOWN_CHANGE - 4, " ...", sizeof " ...");
		if (strlen(now) > SHOWN_CHANGE)
			memcpy(now + SHOWN_CHANGE - 4, " ...", sizeof " ...");
		cJSON_AddStringToObject(o, "before", old);
		cJSON_AddStringToObject(o, "after", now);
		free(old);
		free(now);
	}
	free(before);
	free(after);
}

/* The run of this fault alone. */
static void add_again(cJSON *o, const struct fault *f, const struct fault_score_options *options)
{
	const bool quoted =
		strspn(f->id, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:") != strlen(f->id);
	const char *quote = quoted ? "'" : "";
	char *text = faults_format("plumb faults%s%s%s%s --id %s%s%s%s --keep", options->library ? " --library " : "",
		options->library ? options->library : "", f->mutant ? " --mutate " : "", f->mutant ? f->file : "", quote,
		f->id, quote, strcmp(options->lane, "cuda") == 0 ? " --lane cuda" : "");
	cJSON_AddStringToObject(o, "again", text);
	free(text);
}

static cJSON *tree_of(const struct fault *f, int64_t unit, const struct fault_score_options *options)
{
	cJSON *o = cJSON_CreateObject();

	cJSON_AddNumberToObject(o, "unit", (double)unit);
	cJSON_AddStringToObject(o, "id", f->id);
	cJSON_AddStringToObject(o, "class", f->fault_class);
	cJSON_AddStringToObject(o, "kind", f->kind);
	cJSON_AddStringToObject(o, "stage", stage_of(f));
	cJSON_AddStringToObject(o, "lane", f->outcome == FAULT_ELSEWHERE ? "cuda" : options->lane);
	if (f->op != PLUMB_OP_COUNT)
		cJSON_AddStringToObject(o, "op", plumb_ops[f->op].name);
	cJSON_AddStringToObject(o, "file", f->file);
	cJSON_AddNumberToObject(o, "line", f->line);
	cJSON_AddStringToObject(o, "why", f->why ? f->why : "");
	cJSON_AddStringToObject(o, "outcome", faults_outcome_name(f->outcome));
	if (f->check[0])
		cJSON_AddStringToObject(o, "killed_by", f->check);
	if (f->text[0])
		cJSON_AddStringToObject(o, "text", f->text);
	if (f->equivalent)
		cJSON_AddStringToObject(o, "reason", f->equivalent);
	if (f->outcome == FAULT_SURVIVED || f->outcome >= FAULT_NOT_EQUIVALENT) {
		add_change(o, options->source, f);
		add_again(o, f, options);
	}
	cJSON_AddNumberToObject(o, "checks", f->checks);
	cJSON_AddNumberToObject(o, "seconds", f->seconds);
	return o;
}

/* ---- the tree ---- */

/* "F02/moe-router-tie", "mutant of core/compare.c/33:12:relation>=": JUnit takes what is before the last slash for a class. */
static void unit_name(const cJSON *f, char name[512])
{
	const char *id = cJSON_GetObjectItemCaseSensitive(f, "id")->valuestring, *after = id;
	const char *file = cJSON_GetObjectItemCaseSensitive(f, "file")->valuestring;
	bool mutant = strcmp(cJSON_GetObjectItemCaseSensitive(f, "kind")->valuestring, "mutant") == 0;

	if (mutant && strncmp(id, file, strlen(file)) == 0 && id[strlen(file)] == ':')
		after = id + strlen(file) + 1;
	snprintf(name, 512, "%.200s/%.200s", mutant ? file : cJSON_GetObjectItemCaseSensitive(f, "class")->valuestring,
		after);
	for (char *p = name + strlen(name) - strlen(after); *p; p++)
		if (*p == '/')
			*p = '|'; /* the operator of division */
}

static void add_unit(cJSON *shard, const cJSON *f, int64_t unit, int64_t least)
{
	const enum fault_outcome outcome = faults_outcome_find(cJSON_GetObjectItemCaseSensitive(f, "outcome")->valuestring);
	const bool mutant = strcmp(cJSON_GetObjectItemCaseSensitive(f, "kind")->valuestring, "mutant") == 0;
	const cJSON *said = cJSON_GetObjectItemCaseSensitive(f, "text");
	const enum shard_verdict verdict = faults_verdict(outcome, mutant, least);
	char name[512], text[700];

	unit_name(f, name);
	snprintf(text, sizeof text, "%s: %.150s:%d: %.400s", faults_outcome_name(outcome),
		cJSON_GetObjectItemCaseSensitive(f, "file")->valuestring,
		cJSON_GetObjectItemCaseSensitive(f, "line")->valueint,
		cJSON_IsString(said) ? said->valuestring : cJSON_GetObjectItemCaseSensitive(f, "why")->valuestring);
	shard_json_unit(shard, unit, name, verdict, verdict == SHARD_PASS ? NULL : text);
}

static void add_number(cJSON *shard, const char *name, int64_t value)
{
	char text[32];
	snprintf(text, sizeof text, "%" PRId64, value);
	shard_json_input(shard, name, text);
}

static cJSON *begin_shard(cJSON *top, const struct fault_score_options *options)
{
	cJSON *shard = shard_json(top, "faults", &options->part, options->total);

	shard_json_input(shard, "producer", "plumb " PLUMB_VERSION);
	shard_json_input(shard, "faults", options->digest);
	shard_json_input(shard, "lane", options->lane);
	add_number(shard, "seed", options->seed);
	add_number(shard, "cases", options->cases);
	add_number(shard, "least", options->least);
	return shard;
}

cJSON *faults_score(struct fault *const *fault, size_t count, const struct fault_score_options *options, int *status)
{
	const bool part = options->part.of > 1;
	cJSON *top = cJSON_CreateObject(), *list, *shard;
	char text[160];
	bool passes;

	cJSON_AddStringToObject(top, "format", "plumb faults score 1");
	origin_add(top, options->origin);
	cJSON_AddStringToObject(top, "lane", options->lane);
	cJSON_AddNumberToObject(top, "seed", (double)options->seed);
	cJSON_AddNumberToObject(top, "cases", (double)options->cases);
	cJSON_AddNumberToObject(top, "seconds", options->seconds);
	list = cJSON_AddArrayToObject(top, "faults");
	shard = begin_shard(top, options);
	for (size_t i = 0; i < count; i++) {
		const int64_t unit = options->part.index - 1 + (int64_t)i * options->part.of;
		if (fault[i]->outcome == FAULT_WAITING)
			continue;
		cJSON *o = tree_of(fault[i], unit, options);
		cJSON_AddItemToArray(list, o);
		add_unit(shard, o, unit, options->least);
	}
	*status = faults_count(top, options->least, part);
	if (faults_gate(top, text, sizeof text, &passes))
		shard_json_also(shard, faults_gate_name, passes ? SHARD_PASS : SHARD_FAIL, text);
	if (options->stopped) {
		shard_json_failure(shard, options->stopped);
		cJSON_ReplaceItemInObjectCaseSensitive(top, "pass", cJSON_CreateFalse());
		*status = *status == PLUMB_OK ? PLUMB_MISMATCH : *status;
	}
	shard_json_status(shard, *status == PLUMB_OK ? PLUMB_OK : PLUMB_MISMATCH);
	return top;
}

/* ---- results of others ---- */

static const char *const required[] = {"id", "class", "kind", "stage", "lane", "file", "why", "outcome"};

/* Whether an item of "faults" has what is needed, and is this unit with that verdict (NULL: any). */
static int check_fault(const char *path, const cJSON *f, const cJSON *unit, int64_t least, struct plumb_error *err)
{
	static const char *const word[] = {"pass", "fail", "skip"};
	int64_t at = -1, of = -1, line;

	for (size_t i = 0; i < sizeof required / sizeof required[0]; i++)
		if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(f, required[i])))
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: faults: one has no text '%s'", path, required[i]);
	const char *id = cJSON_GetObjectItemCaseSensitive(f, "id")->valuestring;
	const char *name = cJSON_GetObjectItemCaseSensitive(f, "outcome")->valuestring;
	const enum fault_outcome outcome = faults_outcome_find(name);
	if (outcome == FAULT_WAITING)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: faults: %.150s: outcome is '%.40s', expected killed, survived, ...", path, id, name);
	if (!plumb_json_item_int(cJSON_GetObjectItemCaseSensitive(f, "line"), 0, INT32_MAX, &line) ||
		!plumb_json_item_int(cJSON_GetObjectItemCaseSensitive(f, "unit"), 0, INT32_MAX, &at))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: faults: %.150s: line or unit is no number from 0 on", path, id);
	if (outcome == FAULT_KILLED && !cJSON_IsString(cJSON_GetObjectItemCaseSensitive(f, "killed_by")))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: faults: %.150s is killed, but has no text 'killed_by'", path, id);
	if (!unit)
		return PLUMB_OK;
	const bool mutant = strcmp(cJSON_GetObjectItemCaseSensitive(f, "kind")->valuestring, "mutant") == 0;
	const char *verdict = cJSON_GetObjectItemCaseSensitive(unit, "verdict")->valuestring;
	const char *expected = word[faults_verdict(outcome, mutant, least)];
	plumb_json_item_int(cJSON_GetObjectItemCaseSensitive(unit, "unit"), 0, INT32_MAX, &of);
	if (at != of || strcmp(verdict, expected) != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: faults: %.150s is unit %lld and '%.20s' (%s), but the shard has unit %lld, %s", path, id,
			(long long)at, name, expected, (long long)of, verdict);
	return PLUMB_OK;
}

/* The score in a result: itself, or of `plumb merge` its member "whole". */
static int score_in(const char *path, const cJSON *root, const cJSON **score, const cJSON **list, struct plumb_error *err)
{
	const cJSON *whole = cJSON_GetObjectItemCaseSensitive(root, "whole");
	*score = cJSON_IsObject(whole) ? whole : root;
	const cJSON *format = cJSON_GetObjectItemCaseSensitive(*score, "format");

	*list = cJSON_GetObjectItemCaseSensitive(*score, "faults");
	if (!cJSON_IsString(format) || strcmp(format->valuestring, "plumb faults score 1") != 0 || !cJSON_IsArray(*list))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: expected format 'plumb faults score 1' with an array 'faults'", path);
	return PLUMB_OK;
}

static int read_least(const struct merge_part *p, int64_t *least, struct plumb_error *err)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(cJSON_GetObjectItemCaseSensitive(p->shard, "inputs"), "least");
	char *end = NULL;

	*least = cJSON_IsString(x) ? strtol(x->valuestring, &end, 10) : -1;
	if (!end || end == x->valuestring || *end || *least < 0 || *least > 100)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: shard.inputs.least is %s%.20s%s, expected '0' to '100'",
			p->path, cJSON_IsString(x) ? "'" : "", cJSON_IsString(x) ? x->valuestring : "no text",
			cJSON_IsString(x) ? "'" : "");
	return PLUMB_OK;
}

static int by_unit(const void *a, const void *b)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(*(cJSON *const *)a, "unit"),
		    *y = cJSON_GetObjectItemCaseSensitive(*(cJSON *const *)b, "unit");
	return (x->valuedouble > y->valuedouble) - (x->valuedouble < y->valuedouble);
}

int faults_score_join(struct merge *m, cJSON **out, struct plumb_error *err)
{
	static const char *const kept[] = {"version", "commit", "lane", "seed", "cases"};
	cJSON *top = cJSON_CreateObject(), *list, **all;
	const cJSON *score = NULL, *faults = NULL;
	int64_t least = 100;
	size_t n = 0;
	double seconds = 0.0;
	bool passes;
	int status = PLUMB_OK;

	*out = top;
	all = faults_zero((size_t)m->total, sizeof(void *));
	cJSON_AddStringToObject(top, "format", "plumb faults score 1");
	for (int i = 0; i < m->parts && status == PLUMB_OK; i++) {
		const struct merge_part *p = &m->part[i];
		if (p->failure && !cJSON_GetObjectItemCaseSensitive(p->root, "faults"))
			continue;
		const cJSON *unit = cJSON_GetObjectItemCaseSensitive(p->shard, "units")->child;
		status = score_in(p->path, p->root, &score, &faults, err);
		if (status == PLUMB_OK)
			status = read_least(p, &least, err);
		for (size_t k = 0; status == PLUMB_OK && !n && k < sizeof kept / sizeof kept[0]; k++)
			if (cJSON_GetObjectItemCaseSensitive(score, kept[k]) &&
				!cJSON_GetObjectItemCaseSensitive(top, kept[k]))
				cJSON_AddItemToObject(top, kept[k],
					cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(score, kept[k]), true));
		const cJSON *spent = cJSON_GetObjectItemCaseSensitive(score, "seconds"), *f = NULL;
		seconds += cJSON_IsNumber(spent) ? spent->valuedouble : 0.0;
		for (f = faults ? faults->child : NULL; f && unit && status == PLUMB_OK; f = f->next, unit = unit->next) {
			status = check_fault(p->path, f, unit, least, err);
			if (status == PLUMB_OK)
				all[n++] = cJSON_Duplicate(f, true);
		}
		if (status == PLUMB_OK && (f || unit))
			status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: faults: there are %s than shard.units", p->path,
				f ? "more" : "fewer");
	}
	cJSON_AddNumberToObject(top, "seconds", seconds);
	qsort(all, n, sizeof(void *), by_unit);
	list = cJSON_AddArrayToObject(top, "faults");
	for (size_t i = 0; i < n; i++)
		cJSON_AddItemToArray(list, all[i]);
	free(all);
	if (status != PLUMB_OK)
		return status;
	int verdict = faults_count(top, least, false);
	if (faults_gate(top, m->gate_text, sizeof m->gate_text, &passes)) {
		m->gate_name = faults_gate_name;
		m->gate = passes ? SHARD_PASS : SHARD_FAIL;
	}
	if (verdict == PLUMB_OK && m->status != PLUMB_OK) /* a shard that stopped, or nothing that passed */
		cJSON_ReplaceItemInObjectCaseSensitive(top, "pass", cJSON_CreateFalse());
	m->status = verdict > m->status ? verdict : m->status;
	return PLUMB_OK;
}

/* ---- an earlier run ---- */

static void take_over(struct fault *f, const cJSON *o)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(o, "killed_by");

	f->outcome = faults_outcome_find(cJSON_GetObjectItemCaseSensitive(o, "outcome")->valuestring);
	snprintf(f->check, sizeof f->check, "%s", cJSON_IsString(x) ? x->valuestring : "");
	x = cJSON_GetObjectItemCaseSensitive(o, "text");
	snprintf(f->text, sizeof f->text, "%s", cJSON_IsString(x) ? x->valuestring : "");
	x = cJSON_GetObjectItemCaseSensitive(o, "seconds");
	f->seconds = cJSON_IsNumber(x) ? x->valuedouble : 0.0;
	x = cJSON_GetObjectItemCaseSensitive(o, "checks");
	f->checks = cJSON_IsNumber(x) ? x->valueint : 0;
}

/* An earlier result's shard has to be this one's: the same inputs and the same part. */
static int is_same_run(const char *path, const cJSON *was, const cJSON *is, struct plumb_error *err)
{
	static const char *const numbers[] = {"index", "of", "total"};
	const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(was, "inputs"), *x;

	for (size_t i = 0; i < 3; i++) {
		const cJSON *a = cJSON_GetObjectItemCaseSensitive(was, numbers[i]);
		const cJSON *b = cJSON_GetObjectItemCaseSensitive(is, numbers[i]);
		if (!cJSON_IsNumber(a) || a->valuedouble != b->valuedouble)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: shard.%s is not this run's %d: not to be resumed",
				path, numbers[i], b->valueint);
	}
	cJSON_ArrayForEach (x, cJSON_GetObjectItemCaseSensitive(is, "inputs")) {
		const cJSON *a = cJSON_GetObjectItemCaseSensitive(inputs, x->string);
		if (!cJSON_IsString(a) || strcmp(a->valuestring, x->valuestring) != 0)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: shard.inputs.%s is '%.80s', but this run has '%.80s': not to be resumed", path,
				x->string, cJSON_IsString(a) ? a->valuestring : "(nothing)", x->valuestring);
	}
	return PLUMB_OK;
}

int faults_score_resume(const char *path, struct fault *const *fault, size_t count,
	const struct fault_score_options *options, size_t *taken, struct plumb_error *err)
{
	static const struct plumb_json_limits limits = {(size_t)256 << 20, 64, 8 << 20};
	cJSON *root = NULL, *mine = cJSON_CreateObject();
	const cJSON *score, *list, *f;
	int status;

	*taken = 0;
	if (access(path, F_OK) != 0) {
		cJSON_Delete(mine);
		return PLUMB_OK;
	}
	status = plumb_json_read(path, &limits, &root, err);
	if (status == PLUMB_OK)
		status = score_in(path, root, &score, &list, err);
	if (status == PLUMB_OK)
		status =
			is_same_run(path, cJSON_GetObjectItemCaseSensitive(root, "shard"), begin_shard(mine, options), err);
	for (f = status == PLUMB_OK ? list->child : NULL; f && status == PLUMB_OK; f = f->next) {
		status = check_fault(path, f, NULL, options->least, err);
		if (status != PLUMB_OK)
			break;
		const int64_t unit = (int64_t)cJSON_GetObjectItemCaseSensitive(f, "unit")->valuedouble;
		const int64_t at = (unit - options->part.index + 1) / options->part.of;
		const char *id = cJSON_GetObjectItemCaseSensitive(f, "id")->valuestring;
		if (unit < options->part.index - 1 || (unit - options->part.index + 1) % options->part.of ||
			at >= (int64_t)count || strcmp(fault[at]->id, id) != 0) {
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: faults: %.150s is unit %lld, which it is not in this run", path, id, (long long)unit);
		} else if (strcmp(cJSON_GetObjectItemCaseSensitive(f, "outcome")->valuestring, "error") != 0) {
			take_over(fault[at], f);
			++*taken;
		}
	}
	cJSON_Delete(root);
	cJSON_Delete(mine);
	return status;
}
