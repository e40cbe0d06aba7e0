/* SPDX-License-Identifier: MIT */
#include "tools/merge.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"

static const struct plumb_json_limits limits = {(size_t)256 << 20, 64, 8 << 20};

/* ---- one file ---- */

static int bad_field(
	const struct merge_part *p, const char *field, const cJSON *is, const char *expected, struct plumb_error *err)
{
	char text[64];
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: shard.%s is %s, expected %s", p->path, field,
		is ? plumb_json_show(is, text) : "not there", expected);
}

static bool is_verdict(const cJSON *x)
{
	return cJSON_IsString(x) && (strcmp(x->valuestring, "pass") == 0 || strcmp(x->valuestring, "fail") == 0 ||
					    strcmp(x->valuestring, "skip") == 0);
}

/* A list of verdicts; failed: how many of them are. */
static int check_list(const struct merge_part *p, const cJSON *list, const char *field, bool numbered, int *failed,
	struct plumb_error *err)
{
	int64_t unit;

	if (!cJSON_IsArray(list))
		return bad_field(p, field, list, "an array", err);
	for (const cJSON *u = list->child; u; u = u->next) {
		const cJSON *verdict = cJSON_GetObjectItemCaseSensitive(u, "verdict");
		const cJSON *number = cJSON_GetObjectItemCaseSensitive(u, "unit");
		if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(u, "name")))
			return bad_field(p, field, u, "objects with a name", err);
		if (!is_verdict(verdict))
			return bad_field(p, field, verdict, "verdicts pass, fail or skip", err);
		if (numbered && !plumb_json_item_int(number, 0, p->total - 1, &unit))
			return bad_field(p, field, number, "units from 0 to below shard.total", err);
		*failed += verdict->valuestring[0] == 'f';
	}
	return PLUMB_OK;
}

static int check_inputs(const struct merge_part *p, struct plumb_error *err)
{
	const cJSON *inputs = cJSON_GetObjectItemCaseSensitive(p->shard, "inputs");

	if (!cJSON_IsObject(inputs))
		return bad_field(p, "inputs", inputs, "an object", err);
	for (const cJSON *x = inputs->child; x; x = x->next)
		if (!cJSON_IsString(x))
			return bad_field(p, "inputs", x, "texts", err);
	return PLUMB_OK;
}

static int read_part(const char *path, struct merge_part *p, struct plumb_error *err)
{
	int status, failed = 0;

	p->path = path;
	status = plumb_json_read(path, &limits, &p->root, err);
	if (status != PLUMB_OK)
		return status;
	p->shard = cJSON_GetObjectItemCaseSensitive(p->root, "shard");
	if (!cJSON_IsObject(p->shard))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: no field \"shard\", expected a file that --json of a command with --shard wrote", path);
	struct plumb_json_object o = {.object = p->shard, .file = path, .path = "shard.", .err = err};
	const char *format = plumb_json_string(&o, "format", NULL);
	p->command = plumb_json_string(&o, "command", NULL);
	p->of = plumb_json_int(&o, "of", 1, SHARDS_MOST, NULL);
	p->index = plumb_json_int(&o, "index", 1, o.status == PLUMB_OK ? p->of : SHARDS_MOST, NULL);
	p->total = plumb_json_int(&o, "total", 0, INT32_MAX, NULL);
	p->status = (int)plumb_json_int(&o, "status", PLUMB_OK, PLUMB_MISMATCH, NULL);
	p->failure = plumb_json_string(&o, "failure", "");
	if (o.status != PLUMB_OK)
		return o.status;
	p->failure = *p->failure ? p->failure : NULL;
	if (strcmp(format, "plumb shard 1") != 0)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: shard.format is '%.40s', expected 'plumb shard 1'", path, format);
	status = check_inputs(p, err);
	if (status == PLUMB_OK)
		status = check_list(p, cJSON_GetObjectItemCaseSensitive(p->shard, "units"), "units", true, &failed, err);
	const cJSON *also = cJSON_GetObjectItemCaseSensitive(p->shard, "also");
	if (status == PLUMB_OK && also)
		status = check_list(p, also, "also", false, &failed, err);
	failed += p->failure != NULL;
	if (status == PLUMB_OK && (failed > 0) != (p->status != PLUMB_OK))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: shard.status is %d, but %d of its verdicts failed", path,
			p->status, failed);
	return status;
}

/* ---- all of them together ---- */

static int by_index(const void *x, const void *y)
{
	const struct merge_part *a = x, *b = y;
	return a->index != b->index ? (a->index > b->index) - (a->index < b->index) : strcmp(a->path, b->path);
}

static int differ(const struct merge_part *a, const struct merge_part *b, const char *field, const char *x, const char *y,
	struct plumb_error *err)
{
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s is '%.90s', but %s has '%.90s': not shards of one run", b->path,
		field, y, a->path, x);
}

static int same_number(const struct merge_part *a, const struct merge_part *b, const char *field, int64_t x, int64_t y,
	struct plumb_error *err)
{
	char one[24], other[24];

	if (x == y)
		return PLUMB_OK;
	snprintf(one, sizeof one, "%lld", (long long)x);
	snprintf(other, sizeof other, "%lld", (long long)y);
	return differ(a, b, field, one, other, err);
}

static int same_inputs(const struct merge_part *a, const struct merge_part *b, struct plumb_error *err)
{
	const cJSON *x = cJSON_GetObjectItemCaseSensitive(a->shard, "inputs");
	const cJSON *y = cJSON_GetObjectItemCaseSensitive(b->shard, "inputs");
	char field[128];

	for (int side = 0; side < 2; side++)
		for (const cJSON *i = side ? y->child : x->child; i; i = i->next) {
			const cJSON *p = cJSON_GetObjectItemCaseSensitive(x, i->string);
			const cJSON *q = cJSON_GetObjectItemCaseSensitive(y, i->string);
			const char *one = p ? p->valuestring : "(nothing)", *other = q ? q->valuestring : "(nothing)";
			snprintf(field, sizeof field, "shard.inputs.%.100s", i->string);
			if (!p || !q || strcmp(one, other) != 0)
				return differ(a, b, field, one, other, err);
		}
	return PLUMB_OK;
}

/* The first part that got to its verdicts, which the others are held against; else the first. */
static const struct merge_part *witness(const struct merge *m)
{
	for (int i = 0; i < m->parts; i++)
		if (!m->part[i].failure)
			return &m->part[i];
	return &m->part[0];
}

static int check_same(const struct merge *m, struct plumb_error *err)
{
	const struct merge_part *a = witness(m);
	int status = PLUMB_OK;

	for (int i = 0; i < m->parts && status == PLUMB_OK; i++) {
		const struct merge_part *b = &m->part[i];
		if (strcmp(a->command, b->command) != 0)
			return differ(a, b, "shard.command", a->command, b->command, err);
		status = same_number(a, b, "shard.of", a->of, b->of, err);
		if (b->failure) /* it did not get to know the rest */
			continue;
		if (status == PLUMB_OK)
			status = same_inputs(a, b, err);
		if (status == PLUMB_OK)
			status = same_number(a, b, "shard.total", a->total, b->total, err);
	}
	return status;
}

/* Each of 1 .. of once; parts are sorted. */
static int check_complete(const struct merge *m, struct plumb_error *err)
{
	char text[200] = "";
	int64_t missing = 0, next = 1;
	size_t n = 0;

	for (int i = 0; i < m->parts; i++) {
		if (i > 0 && m->part[i].index == m->part[i - 1].index)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s and %s are both shard %lld of %lld",
				m->part[i - 1].path, m->part[i].path, (long long)m->part[i].index,
				(long long)m->part[i].of);
		for (; next < m->part[i].index; next++, missing++)
			if (n < sizeof text - 32)
				n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", n ? ", " : "", (long long)next);
		next++;
	}
	for (; next <= m->part[0].of; next++, missing++)
		if (n < sizeof text - 32)
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%lld", n ? ", " : "", (long long)next);
	if (missing)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%lld of %lld shards %s missing: %s", (long long)missing,
			(long long)m->part[0].of, missing == 1 ? "is" : "are", text);
	return PLUMB_OK;
}

static int place_units(struct merge *m, struct plumb_error *err)
{
	bool whole = true; /* every shard got to its verdicts */

	for (int i = 0; i < m->parts; i++) {
		const struct merge_part *p = &m->part[i];
		whole = whole && !p->failure;
		for (const cJSON *u = cJSON_GetObjectItemCaseSensitive(p->shard, "units")->child; u; u = u->next) {
			int64_t k = 0;
			if (!plumb_json_item_int(cJSON_GetObjectItemCaseSensitive(u, "unit"), 0, m->total - 1, &k))
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"%s: shard.units holds one beyond the %lld of the others", p->path,
					(long long)m->total);
			if (m->unit[k])
				return plumb_fail(err, PLUMB_BAD_INPUT, "unit %lld (%.100s) is in %s and in %s",
					(long long)k, cJSON_GetObjectItemCaseSensitive(u, "name")->valuestring,
					m->by[k]->path, p->path);
			m->unit[k] = u;
			m->by[k] = p;
		}
	}
	for (int64_t k = 0; k < m->total; k++) {
		const char *verdict =
			m->unit[k] ? cJSON_GetObjectItemCaseSensitive(m->unit[k], "verdict")->valuestring : "";
		if (!m->unit[k] && whole)
			return plumb_fail(err, PLUMB_BAD_INPUT, "unit %lld of %lld is in no shard", (long long)k,
				(long long)m->total);
		m->missing += !m->unit[k];
		m->passed += verdict[0] == 'p';
		m->failed += verdict[0] == 'f';
		m->skipped += verdict[0] == 's';
	}
	return PLUMB_OK;
}

static int add_digests(struct merge *m, struct plumb_error *err)
{
	m->has_digest = true;
	for (int i = 0; i < m->parts; i++) {
		const cJSON *x = cJSON_GetObjectItemCaseSensitive(m->part[i].shard, "digest");
		m->has_digest = m->has_digest && x;
		if (!x)
			continue;
		if (!cJSON_IsString(x) || strlen(x->valuestring) != 32 || strspn(x->valuestring, "0123456789abcdef") != 32)
			return bad_field(&m->part[i], "digest", x, "32 hexadecimal digits", err);
		for (int half = 0; half < 2; half++) {
			char digits[17];
			snprintf(digits, sizeof digits, "%.16s", x->valuestring + (size_t)16 * (size_t)half);
			m->digest.sum[half] += strtoull(digits, NULL, 16);
		}
	}
	return PLUMB_OK;
}

int merge_make(const char *const *path, int paths, struct merge *m, struct plumb_error *err)
{
	int status = PLUMB_OK;

	memset(m, 0, sizeof *m);
	m->part = calloc((size_t)paths + 1, sizeof *m->part);
	if (!m->part)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %d files", paths);
	for (int i = 0; i < paths && status == PLUMB_OK; i++) {
		m->parts++;
		status = read_part(path[i], &m->part[i], err);
	}
	if (status != PLUMB_OK)
		return status;
	qsort(m->part, (size_t)m->parts, sizeof *m->part, by_index);
	status = check_same(m, err);
	if (status == PLUMB_OK)
		status = check_complete(m, err);
	if (status != PLUMB_OK)
		return status;
	m->total = witness(m)->total;
	m->unit = calloc((size_t)m->total + 1, sizeof *m->unit);
	m->by = calloc((size_t)m->total + 1, sizeof *m->by);
	if (!m->unit || !m->by)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld units", (long long)m->total);
	status = place_units(m, err);
	if (status == PLUMB_OK)
		status = add_digests(m, err);
	m->status = m->passed > 0 ? PLUMB_OK : PLUMB_MISMATCH;
	for (int i = 0; i < m->parts; i++)
		if (m->part[i].status != PLUMB_OK)
			m->status = PLUMB_MISMATCH;
	return status;
}

void merge_free(struct merge *m)
{
	for (int i = 0; i < m->parts; i++)
		cJSON_Delete(m->part[i].root);
	free(m->part);
	free(m->unit);
	free(m->by);
	memset(m, 0, sizeof *m);
}

/* ---- the joined result ---- */

static enum shard_verdict verdict_of(const cJSON *u)
{
	const char *word = cJSON_GetObjectItemCaseSensitive(u, "verdict")->valuestring;
	return word[0] == 'p' ? SHARD_PASS : word[0] == 'f' ? SHARD_FAIL : SHARD_SKIP;
}

static const char *text_of(const cJSON *u)
{
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(u, "text");
	return cJSON_IsString(text) ? text->valuestring : NULL;
}

static void add_also(const struct merge *m, cJSON *o)
{
	char name[160], text[1024];

	for (int i = 0; i < m->parts; i++) {
		const struct merge_part *p = &m->part[i];
		const cJSON *also = cJSON_GetObjectItemCaseSensitive(p->shard, "also");
		for (const cJSON *u = also ? also->child : NULL; u; u = u->next) {
			if (m->gate_name &&
				strcmp(cJSON_GetObjectItemCaseSensitive(u, "name")->valuestring, m->gate_name) == 0)
				continue; /* judged anew */
			snprintf(name, sizeof name, "%.100s (shard %lld)",
				cJSON_GetObjectItemCaseSensitive(u, "name")->valuestring, (long long)p->index);
			shard_json_also(o, m->parts > 1 ? name : cJSON_GetObjectItemCaseSensitive(u, "name")->valuestring,
				verdict_of(u), text_of(u));
		}
		if (p->failure) {
			snprintf(name, sizeof name, "run (shard %lld)", (long long)p->index);
			snprintf(text, sizeof text, "%s: %.900s", p->path, p->failure);
			shard_json_also(o, name, SHARD_FAIL, text);
		}
	}
}

struct cJSON *merge_json(const struct merge *m)
{
	static const struct shard whole = {1, 1};
	cJSON *root = cJSON_CreateObject(), *list;
	const struct merge_part *first = witness(m);

	cJSON_AddStringToObject(root, "format", "plumb merge 1");
	cJSON_AddBoolToObject(root, "pass", m->status == PLUMB_OK);
	list = cJSON_AddArrayToObject(root, "merged");
	for (int i = 0; i < m->parts; i++) {
		cJSON *o = cJSON_CreateObject();
		cJSON_AddItemToArray(list, o);
		cJSON_AddNumberToObject(o, "shard", (double)m->part[i].index);
		cJSON_AddNumberToObject(
			o, "units", cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(m->part[i].shard, "units")));
		cJSON_AddNumberToObject(o, "status", m->part[i].status);
	}
	/* units of a shard that failed are not there; its failure is, so the whole cannot be taken for complete */
	cJSON *o = shard_json(root, first->command, &whole, m->total);
	cJSON_DeleteItemFromObjectCaseSensitive(
		cJSON_GetObjectItemCaseSensitive(o, "inputs"), "commit"); /* theirs, not ours */
	for (const cJSON *x = cJSON_GetObjectItemCaseSensitive(first->shard, "inputs")->child; x; x = x->next)
		shard_json_input(o, x->string, x->valuestring);
	for (int64_t k = 0; k < m->total; k++)
		if (m->unit[k])
			shard_json_unit(o, k, cJSON_GetObjectItemCaseSensitive(m->unit[k], "name")->valuestring,
				verdict_of(m->unit[k]), text_of(m->unit[k]));
	add_also(m, o);
	if (m->gate_name)
		shard_json_also(o, m->gate_name, m->gate, m->gate_text);
	if (m->missing || m->passed == 0)
		shard_json_failure(
			o, m->missing ? "units are missing: a shard did not get to its verdicts" : "nothing passed");
	if (m->has_digest)
		shard_json_digest(o, &m->digest);
	shard_json_status(o, m->status == PLUMB_OK ? PLUMB_OK : PLUMB_MISMATCH);
	if (m->whole)
		cJSON_AddItemToObject(root, "whole", cJSON_Duplicate(m->whole, true));
	list = cJSON_AddArrayToObject(root, "results");
	for (int i = 0; i < m->parts; i++) {
		cJSON *copy = cJSON_Duplicate(m->part[i].root, true);
		cJSON_DeleteItemFromObjectCaseSensitive(copy, "shard");
		cJSON_AddItemToArray(list, copy);
	}
	return root;
}
