/* SPDX-License-Identifier: MIT */
/* tests/faults: planted faults, what judges which file, and mutants that are known to change nothing. */
#include <cJSON.h>
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tools/faults.h"
#include "tools/faults_mutate.h"

enum { FILE_BYTES = 1 << 22, FILES = 256 };

static const struct plumb_json_limits limits = {1 << 22, 16, 1 << 16};

struct fault *faults_add(struct fault_list *list)
{
	if (list->count == list->room) {
		size_t room = list->room ? 2 * list->room : 256;
		struct fault *grown = faults_zero(room, sizeof *grown);
		if (list->count)
			memcpy(grown, list->fault, list->count * sizeof *grown);
		free(list->fault);
		list->fault = grown;
		list->room = room;
	}
	list->fault[list->count].op = PLUMB_OP_COUNT;
	return &list->fault[list->count++];
}

void faults_free(struct fault_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		struct fault *f = &list->fault[i];
		free(f->id);
		free(f->fault_class);
		free(f->kind);
		free(f->why);
		free(f->equivalent);
		free(f->lane_why);
		free(f->file);
		free(f->replacement);
	}
	free(list->fault);
	*list = (struct fault_list){NULL, 0, 0};
}

static char *copy(const char *text)
{
	return text ? faults_format("%s", text) : NULL;
}

static int read_source(const char *source, const char *file, char **text, size_t *size, struct plumb_error *err)
{
	char *path = faults_format("%s/%s", source, file);
	int status = plumb_file_read(path, FILE_BYTES, text, size, err);

	free(path);
	return status;
}

char *faults_applied(const char *source, const struct fault *fault, size_t *size, struct plumb_error *err)
{
	char *text = NULL, *out = NULL;
	size_t n = 0, by = strlen(fault->replacement);

	if (read_source(source, fault->file, &text, &n, err) != PLUMB_OK)
		return NULL;
	if (fault->at > n || fault->length > n - fault->at) {
		plumb_fail(err, PLUMB_BAD_INPUT, "%s: byte %zu of %s, which has %zu", fault->id, fault->at, fault->file, n);
	} else {
		out = faults_zero(n - fault->length + by + 1, 1);
		memcpy(out, text, fault->at);
		memcpy(out + fault->at, fault->replacement, by);
		memcpy(out + fault->at + by, text + fault->at + fault->length, n - fault->at - fault->length);
		*size = n - fault->length + by;
	}
	free(text);
	return out;
}

/* ---- what judges a file ---- */

static int read_words(const cJSON *words, bool ops, const char *path, struct fault_target *t, struct plumb_error *err)
{
	const cJSON *word;

	cJSON_ArrayForEach (word, words) {
		const char *name = cJSON_GetStringValue(word);
		enum plumb_op op = name && ops ? plumb_op_find(name) : PLUMB_OP_COUNT;
		if (!name || (ops && op == PLUMB_OP_COUNT))
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %.200s names '%.60s', expected %s", path, t->file,
				name ? name : "no text", ops ? "an op" : "a test");
		if (ops)
			t->ops |= (uint64_t)1 << op;
		else
			t->test[t->tests++] = copy(name);
	}
	return PLUMB_OK;
}

/* One entry: {"file": "kernels/moe.cu", "ops": [...]}, {"file": "core/compare.c", "tests": [...]}, or both of a kernel file that
 * has launches besides those of its ops. */
static int read_target(const cJSON *item, const char *path, struct fault_target *t, struct plumb_error *err)
{
	struct plumb_json_object o = {.object = item, .file = path, .path = "targets[].", .err = err};
	const char *file = plumb_json_string(&o, "file", NULL);
	const cJSON *ops = plumb_json_array(&o, "ops", false), *tests = plumb_json_array(&o, "tests", false);

	if (o.status != PLUMB_OK)
		return o.status;
	t->file = copy(file);
	const size_t length = strlen(file);
	if (!ops && !tests && strncmp(file, "kernels/", 8) == 0 && length > 2 && strcmp(file + length - 2, ".h") == 0)
		return PLUMB_OK; /* judged in every kernel file that includes it */
	if (!ops && !tests)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %.200s has neither, expected 'ops' or 'tests'", path, file);
	t->test = tests ? faults_zero((size_t)cJSON_GetArraySize(tests), sizeof *t->test) : NULL;
	int status = read_words(ops, true, path, t, err);
	if (status == PLUMB_OK)
		status = read_words(tests, false, path, t, err);
	if (status != PLUMB_OK)
		return status;
	if (ops && strlen(faults_base(file)) > 3 && strcmp(file + strlen(file) - 3, ".cu") == 0)
		t->unit = faults_format("%.*s", (int)strlen(faults_base(file)) - 3, faults_base(file));
	if ((ops && !t->unit) || (tests && !t->tests))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %.200s has %s", path, file,
			ops && !t->unit ? "ops, which only a .cu file has" : "no tests");
	return PLUMB_OK;
}

int faults_targets_read(const char *folder, struct fault_targets *out, struct plumb_error *err)
{
	char *path = faults_format("%s/targets.json", folder);
	cJSON *tree = NULL;
	const cJSON *list = NULL, *item;
	int status = plumb_json_read(path, &limits, &tree, err);

	*out = (struct fault_targets){NULL, 0};
	if (status == PLUMB_OK) {
		struct plumb_json_object o = {.object = tree, .file = path, .path = "", .err = err};
		list = plumb_json_array(&o, "targets", true);
		status = o.status;
	}
	if (status == PLUMB_OK)
		out->target = faults_zero((size_t)cJSON_GetArraySize(list), sizeof *out->target);
	cJSON_ArrayForEach (item, list) {
		if (status == PLUMB_OK)
			status = read_target(item, path, &out->target[out->count++], err);
	}
	cJSON_Delete(tree);
	free(path);
	return status;
}

void faults_targets_free(struct fault_targets *t)
{
	for (size_t i = 0; i < t->count; i++) {
		for (int k = 0; k < t->target[i].tests; k++)
			free(t->target[i].test[k]);
		free(t->target[i].test);
		free(t->target[i].file);
		free(t->target[i].unit);
	}
	free(t->target);
}

const struct fault_target *faults_target(const struct fault_targets *t, const char *file)
{
	for (size_t i = 0; i < t->count; i++)
		if (strcmp(t->target[i].file, file) == 0)
			return &t->target[i];
	return NULL;
}

/* ---- planted faults ---- */

static int count_of(const char *text, const char *what, const char **first)
{
	int n = 0;
	*first = NULL;
	for (const char *at = strstr(text, what); at; at = strstr(at + 1, what)) {
		*first = *first ? *first : at;
		n++;
	}
	return n;
}

/* The place of a fault in its file. */
static int place(const char *source, struct fault *f, const char *in, const char *find, struct plumb_error *err)
{
	char *text = NULL;
	size_t size;
	const char *from, *at;
	int status = read_source(source, f->file, &text, &size, err), n;

	if (status != PLUMB_OK)
		return status;
	from = text;
	if (in && (n = count_of(text, in, &from)) != 1)
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: does not apply: 'in' occurs %d times in %s, expected once: %.200s", f->id, n, f->file, in);
	n = status == PLUMB_OK ? count_of(from, find, &at) : 0;
	if (status == PLUMB_OK && (n == 0 || (!in && n != 1)))
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: does not apply: 'find' occurs %d times in %s%s, expected %s: %.200s", f->id, n, f->file,
			in ? " behind 'in'" : "", in ? "one at least" : "once", find);
	if (status == PLUMB_OK && strcmp(find, f->replacement) == 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: 'replace' is 'find'", f->id);
	if (status == PLUMB_OK) {
		f->at = (size_t)(at - text);
		f->length = strlen(find);
		f->line = 1;
		for (const char *p = text; p < at; p++)
			f->line += *p == '\n';
	}
	free(text);
	return status;
}

static int read_fault(const char *source, const cJSON *item, const char *path, struct fault *f, struct plumb_error *err)
{
	struct plumb_json_object o = {.object = item, .file = path, .path = "faults[].", .err = err};
	const bool no = false;
	const char *id = plumb_json_string(&o, "id", NULL), *fault_class = plumb_json_string(&o, "class", NULL);
	const char *op = plumb_json_string(&o, "op", ""), *kind = plumb_json_string(&o, "kind", "fault");
	const char *file = plumb_json_string(&o, "file", NULL), *in = plumb_json_string(&o, "in", ""),
		   *find = plumb_json_string(&o, "find", NULL), *replace = plumb_json_string(&o, "replace", NULL);
	const char *why = plumb_json_string(&o, "why", NULL), *lane = plumb_json_string(&o, "lane", ""),
		   *lane_why = plumb_json_string(&o, "lane_why", ""), *equivalent = plumb_json_string(&o, "equivalent", "");
	bool race = plumb_json_bool(&o, "race", &no), tests = plumb_json_bool(&o, "tests", &no);

	if (o.status != PLUMB_OK)
		return o.status;
	bool ordering = strcmp(kind, "barrier") == 0 || strcmp(kind, "fence") == 0;
	f->id = copy(id);
	f->fault_class = copy(fault_class);
	f->kind = copy(kind);
	f->why = copy(why);
	f->file = copy(file);
	f->replacement = copy(replace);
	f->equivalent = equivalent[0] ? copy(equivalent) : NULL;
	f->lane_why = strcmp(lane, "cuda") == 0 ? copy(lane_why[0] ? lane_why : why) : NULL;
	f->race = race || ordering;
	f->tests = tests;
	f->op = op[0] ? plumb_op_find(op) : PLUMB_OP_COUNT;
	if (op[0] && f->op == PLUMB_OP_COUNT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %.100s: op is '%.60s', which is none", path, id, op);
	if (!ordering && strcmp(kind, "fault") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %.100s: kind is '%.60s', expected fault, barrier or fence",
			path, id, kind);
	if (lane[0] && strcmp(lane, "cuda") != 0 && strcmp(lane, "simt") != 0)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: %.100s: lane is '%.60s', expected simt or cuda", path, id, lane);
	return place(source, f, in[0] ? in : NULL, find, err);
}

static int read_library_file(
	const char *source, const char *path, struct fault_list *list, int *drifted, struct plumb_error *err)
{
	cJSON *tree = NULL;
	const cJSON *item, *faults = NULL;
	int status = plumb_json_read(path, &limits, &tree, err);

	if (status == PLUMB_OK) {
		struct plumb_json_object o = {.object = tree, .file = path, .path = "", .err = err};
		const char *format = plumb_json_string(&o, "format", NULL);
		faults = plumb_json_array(&o, "faults", true);
		status = o.status;
		if (status == PLUMB_OK && strcmp(format, "plumb faults 1") != 0)
			status = plumb_fail(
				err, PLUMB_BAD_INPUT, "%s: format is '%.60s', expected 'plumb faults 1'", path, format);
	}
	cJSON_ArrayForEach (item, faults) {
		if (status != PLUMB_OK)
			break;
		struct fault *f = faults_add(list);
		struct plumb_error why = {""};
		int result = read_fault(source, item, path, f, &why);
		for (size_t i = 0; result == PLUMB_OK && i + 1 < list->count; i++)
			if (strcmp(list->fault[i].id, f->id) == 0)
				result = plumb_fail(
					&why, PLUMB_BAD_INPUT, "%s: two faults have the id '%.100s'", path, f->id);
		if (result != PLUMB_OK) {
			fprintf(stderr, "plumb faults: %s\n", why.text);
			++*drifted;
		}
	}
	cJSON_Delete(tree);
	return status;
}

static int by_name(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

int faults_read(const char *source, const char *folder, struct fault_list *list, struct plumb_error *err)
{
	char *name[FILES];
	int names = 0, status = PLUMB_OK, drifted = 0;
	DIR *d = opendir(folder);
	const struct dirent *e;

	if (!d)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s", folder, strerror(errno));
	while ((e = readdir(d)) && names < FILES) {
		size_t n = strlen(e->d_name);
		if (n > 5 && strcmp(e->d_name + n - 5, ".json") == 0 && e->d_name[0] != '.' &&
			strcmp(e->d_name, "targets.json") != 0 && strcmp(e->d_name, "equivalent.json") != 0)
			name[names++] = faults_format("%s/%s", folder, e->d_name);
	}
	closedir(d);
	qsort(name, (size_t)names, sizeof name[0], by_name);
	for (int i = 0; i < names; i++) {
		if (status == PLUMB_OK)
			status = read_library_file(source, name[i], list, &drifted, err);
		free(name[i]);
	}
	if (status == PLUMB_OK && drifted)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%d of %zu faults of %s do not apply: nothing is scored", drifted,
			list->count, folder);
	return status;
}

/* ---- mutants ---- */

static size_t line_begin(const char *text, size_t at)
{
	while (at > 0 && text[at - 1] != '\n')
		at--;
	return at;
}

static uint64_t hash(uint64_t so_far, const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		so_far = (so_far ^ (unsigned char)text[i]) * 0x100000001b3u; /* FNV-1a */
	return (so_far ^ 0xff) * 0x100000001b3u;
}

/* The same as long as the line is, wherever it stands: a draw changes little when the sources do. */
static uint64_t lot_of(const char *file, const char *text, const struct mutant *m)
{
	size_t begin = line_begin(text, m->at);
	begin += strspn(text + begin, " \t");
	uint64_t lot = hash(0xcbf29ce484222325u, file, strlen(file));
	lot = hash(lot, text + begin, strcspn(text + begin, "\n"));
	lot = hash(lot, m->replacement, strlen(m->replacement));
	return hash(lot + (uint64_t)m->mutation, text + begin, m->at - begin);
}

/* What was said of a mutant: {"file", "line": the text of the line without its indentation, "column" in that text (from 0),
 * "mutation", "replace", "reason"}. `line` that is in no line of the file any more is drift. */
static int known(const cJSON *list, const char *path, const char *file, const char *text, const struct mutants *m,
	char **reason, struct plumb_error *err)
{
	const cJSON *item;
	int status = PLUMB_OK;

	cJSON_ArrayForEach (item, list) {
		struct plumb_json_object o = {.object = item, .file = path, .path = "mutants[].", .err = err};
		const char *of = plumb_json_string(&o, "file", NULL), *line = plumb_json_string(&o, "line", NULL);
		const char *mutation = plumb_json_string(&o, "mutation", NULL),
			   *replace = plumb_json_string(&o, "replace", NULL);
		const char *why = plumb_json_string(&o, "reason", NULL);
		int64_t column = plumb_json_int(&o, "column", 0, 1000, NULL);
		int found = 0;
		if (o.status != PLUMB_OK)
			return o.status;
		if (strcmp(of, file) != 0)
			continue;
		for (size_t i = 0; i < m->count; i++) {
			size_t begin = line_begin(text, m->mutant[i].at);
			begin += strspn(text + begin, " \t");
			if (strcspn(text + begin, "\n") == strlen(line) && strncmp(text + begin, line, strlen(line)) == 0 &&
				m->mutant[i].at == begin + (size_t)column &&
				strcmp(mutation_name(m->mutant[i].mutation), mutation) == 0 &&
				strcmp(m->mutant[i].replacement, replace) == 0) {
				free(reason[i]);
				reason[i] = copy(why);
				found++;
			}
		}
		if (!found) {
			fprintf(stderr, "plumb faults: %s: %s has no mutant '%s' -> '%.60s' in a line '%.200s': drift\n",
				path, file, mutation, replace, line);
			status = PLUMB_BAD_INPUT;
		}
	}
	return status == PLUMB_OK ? status : plumb_fail(err, status, "%s: entries for %s do not apply", path, file);
}

int faults_mutants(
	const char *source, const char *folder, const char *file, struct fault_list *list, struct plumb_error *err)
{
	char *text = NULL, *path = faults_format("%s/equivalent.json", folder), **reason = NULL;
	size_t size;
	struct mutants m = {NULL, 0, 0};
	cJSON *tree = NULL;
	int status = read_source(source, file, &text, &size, err);

	if (status == PLUMB_OK && !mutants_find(text, size, &m))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the mutants of %s", file);
	if (status == PLUMB_OK)
		status = plumb_json_read(path, &limits, &tree, err);
	reason = faults_zero(m.count, sizeof *reason);
	if (status == PLUMB_OK) {
		struct plumb_json_object o = {.object = tree, .file = path, .path = "", .err = err};
		const cJSON *known_ones = plumb_json_array(&o, "mutants", true);
		status = o.status != PLUMB_OK ? o.status : known(known_ones, path, file, text, &m, reason, err);
	}
	for (size_t i = 0; i < m.count && status == PLUMB_OK; i++) {
		struct mutant *from = &m.mutant[i];
		struct fault *f = faults_add(list);
		f->id = faults_format("%s:%d:%d:%s=%.40s", file, from->line, from->column, mutation_name(from->mutation),
			from->replacement);
		f->fault_class = copy(mutation_name(from->mutation));
		f->kind = copy("mutant");
		f->why = copy("mechanical");
		f->file = copy(file);
		f->replacement = copy(from->replacement);
		f->at = from->at;
		f->length = from->length;
		f->line = from->line;
		f->column = from->column;
		f->mutant = true;
		f->lot = lot_of(file, text, from);
		f->race = from->orders;
		f->equivalent = reason[i];
		reason[i] = NULL;
	}
	for (size_t i = 0; i < m.count; i++)
		free(reason[i]);
	free(reason);
	mutants_free(&m);
	cJSON_Delete(tree);
	free(text);
	free(path);
	return status;
}
