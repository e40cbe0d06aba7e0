/* SPDX-License-Identifier: MIT */
#include "tools/run_digest.h"

#include <cJSON.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "tools/output.h"

#define FORMAT "plumb run digests 1"

enum { CELL_DIGITS = 8 };

static const struct plumb_json_limits limits = {.bytes = 64 << 20, .depth = 4, .values = 1 << 20};

int run_digests_create(int layers, int64_t first, int64_t positions, struct run_digests *out, struct plumb_error *err)
{
	*out = (struct run_digests){.layers = layers, .first = first, .positions = positions};
	out->cell = calloc((size_t)positions * (size_t)(layers + 1), sizeof *out->cell);
	if (out->cell)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "no memory for digests of %lld tokens", (long long)positions);
}

void run_digests_free(struct run_digests *d)
{
	free(d->cell);
	d->cell = NULL;
}

int run_digests_call(struct run_digests *d, const struct plumb_call *call)
{
	int status = PLUMB_OK;

	for (int64_t t = 0; t < call->T && status == PLUMB_OK; t++) {
		int64_t p = call->position + t;
		struct plumb_digest *cell = &d->cell[(p - d->first) * (d->layers + 1) + call->layer];
		plumb_digest_call_row(cell, call, t);
		status = plumb_digest_call_state(cell, call, t, p == d->last, call->env->err);
	}
	return status;
}

static void add(struct plumb_digest *sum, const struct plumb_digest *d)
{
	sum->sum[0] += d->sum[0];
	sum->sum[1] += d->sum[1];
	sum->values += d->values;
}

struct plumb_digest run_digests_token(const struct run_digests *d, int64_t position)
{
	struct plumb_digest sum = {0};
	for (int l = 0; l <= d->layers; l++)
		add(&sum, &d->cell[(position - d->first) * (d->layers + 1) + l]);
	return sum;
}

struct plumb_digest run_digests_total(const struct run_digests *d)
{
	struct plumb_digest sum = {0};
	for (int64_t i = 0; i < d->positions * (d->layers + 1); i++)
		add(&sum, &d->cell[i]);
	return sum;
}

/* A cell as the file has it: the upper half of the first sum. 32 bits find the place; the total has all 128. */
static void show_cell(const struct plumb_digest *d, char text[CELL_DIGITS + 1])
{
	snprintf(text, CELL_DIGITS + 1, "%08" PRIx32, (uint32_t)(d->sum[0] >> 32));
}

/* ---- the file ---- */

static void write_list(FILE *f, const char *name, const int32_t *id, int64_t count)
{
	fprintf(f, "  \"%s\": [", name);
	for (int64_t i = 0; i < count; i++)
		fprintf(f, "%s%d", i ? ", " : "", id[i]);
	fprintf(f, "],\n");
}

/* A string of the caller's: names may come from a file. */
static int write_string(FILE *f, const char *name, const char *value)
{
	cJSON *item = cJSON_CreateString(value);
	char *text = item ? cJSON_PrintUnformatted(item) : NULL;
	int failed = !text;
	if (text)
		fprintf(f, "  \"%s\": %s,\n", name, text);
	cJSON_free(text);
	cJSON_Delete(item);
	return failed;
}

int run_digests_write(const char *path, const struct run_digests *d, int64_t positions, const struct run_facts *facts,
	struct plumb_error *err)
{
	char *text = NULL, show[33];
	size_t size = 0;
	FILE *f = open_memstream(&text, &size);
	struct plumb_digest total = run_digests_total(d);
	int failed = !f;

	if (f) {
		fprintf(f, "{\n  \"format\": \"" FORMAT "\",\n");
		failed = write_string(f, "model", facts->model) || write_string(f, "profile", facts->profile);
		fprintf(f,
			"  \"weight_seed\": %lld,\n  \"policy\": \"%s\",\n  \"context\": %lld,\n"
			"  \"capacity\": %lld,\n  \"caches\": \"%s\",\n  \"state\": \"%s\",\n",
			(long long)facts->weight_seed, facts->policy, (long long)facts->context, (long long)facts->capacity,
			facts->caches, facts->state);
		write_list(f, "prompt", facts->prompt, facts->prompts);
		write_list(f, "tokens", facts->token, facts->tokens);
		fprintf(f, "  \"layers\": %d,\n  \"digests\": [\n", d->layers);
		for (int64_t p = 0; p < positions; p++) {
			fprintf(f, "    \"");
			for (int l = 0; l <= d->layers; l++) {
				show_cell(&d->cell[p * (d->layers + 1) + l], show);
				fprintf(f, "%s%s", l ? " " : "", show);
			}
			fprintf(f, "\"%s\n", p + 1 < positions ? "," : "");
		}
		fprintf(f, "  ],\n  \"total\": \"%s\"\n}\n", plumb_digest_show(&total, show));
		failed = fclose(f) != 0 || failed;
	}
	int status = failed ? plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for its text", path)
	                    : output_file(path, text, size, err);
	free(text);
	return status;
}

static int64_t read_ids(struct plumb_json_object *o, const char *key, const int32_t **out)
{
	const cJSON *list = plumb_json_array(o, key, true), *item;
	int32_t *id = o->status ? NULL : calloc((size_t)cJSON_GetArraySize(list) + 1, sizeof *id);
	int64_t n = 0, value;

	if (o->status)
		return 0;
	if (!id) {
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: no memory for %s", o->file, key);
		return 0;
	}
	*out = id;
	cJSON_ArrayForEach (item, list) {
		char shown[64];
		if (!plumb_json_item_int(item, 0, INT32_MAX, &value)) {
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: %s[%lld] is %s, expected a token id", o->file,
				key, (long long)n, plumb_json_show(item, shown));
			return 0;
		}
		id[n++] = (int32_t)value;
	}
	return n;
}

/* Hexadecimal digits, as many as asked for. */
static bool is_hex(const char *text, size_t digits)
{
	return strspn(text, "0123456789abcdef") >= digits;
}

static void read_digests(struct plumb_json_object *o, struct run_expected *e)
{
	const cJSON *list = plumb_json_array(o, "digests", true), *line;
	size_t cells = (size_t)e->layers + 1, length = cells * (CELL_DIGITS + 1) - 1;
	int64_t p = 0;

	if (o->status)
		return;
	e->positions = cJSON_GetArraySize(list);
	e->cell = calloc((size_t)e->positions * cells + 1, sizeof *e->cell);
	if (e->positions != e->facts.prompts + (e->facts.tokens > 0 ? e->facts.tokens - 1 : 0)) {
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
			"%s: digests has %lld lines, expected one for each of %lld tokens "
			"of the prompt and each token decoded but the last of %lld",
			o->file, (long long)e->positions, (long long)e->facts.prompts, (long long)e->facts.tokens);
		return;
	}
	if (!e->cell) {
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: no memory for digests", o->file);
		return;
	}
	cJSON_ArrayForEach (line, list) {
		const char *text = cJSON_IsString(line) ? line->valuestring : "";
		bool good = strlen(text) == length;
		for (size_t c = 0; c < cells && good; c++) {
			const char *at = text + c * (CELL_DIGITS + 1);
			good = is_hex(at, CELL_DIGITS) && (c + 1 == cells || at[CELL_DIGITS] == ' ');
			if (good)
				memcpy(e->cell[(size_t)p * cells + c], at, CELL_DIGITS);
		}
		if (!good) {
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
				"%s: digests[%lld] is not %zu words of %d hexadecimal digits", o->file, (long long)p, cells,
				CELL_DIGITS);
			return;
		}
		p++;
	}
}

static int expected_take(cJSON *tree, const char *path, struct run_expected *e, struct plumb_error *err)
{
	struct plumb_json_object o = {.file = path, .path = "", .err = err};
	const char *total;

	e->memory = tree;
	o.object = tree;
	if (!cJSON_IsObject(tree))
		o.status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: expected an object", path);
	const char *format = plumb_json_string(&o, "format", "");
	if (!o.status && strcmp(format, FORMAT) != 0)
		o.status =
			plumb_fail(err, PLUMB_BAD_INPUT, "%s: format is \"%.60s\", expected \"" FORMAT "\"", path, format);
	e->facts.model = plumb_json_string(&o, "model", NULL);
	e->facts.profile = plumb_json_string(&o, "profile", NULL);
	e->facts.policy = plumb_json_string(&o, "policy", NULL);
	e->facts.caches = plumb_json_string(&o, "caches", NULL);
	e->facts.state = plumb_json_string(&o, "state", NULL);
	e->facts.weight_seed = plumb_json_int(&o, "weight_seed", 0, INT64_C(1) << 53, NULL);
	e->facts.context = plumb_json_int(&o, "context", 0, INT32_MAX, NULL);
	e->facts.capacity = plumb_json_int(&o, "capacity", 1, INT32_MAX, NULL);
	e->layers = (int)plumb_json_int(&o, "layers", 1, PLUMB_MAX_LAYERS, NULL);
	e->facts.prompts = read_ids(&o, "prompt", &e->facts.prompt);
	e->facts.tokens = read_ids(&o, "tokens", &e->facts.token);
	read_digests(&o, e);
	total = plumb_json_string(&o, "total", NULL);
	if (!o.status && (strlen(total) != 32 || !is_hex(total, 32)))
		o.status = plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: total is \"%.60s\", expected 32 hexadecimal digits", path, total);
	if (!o.status)
		memcpy(e->total, total, 32);
	if (o.status)
		run_expected_free(e);
	return o.status;
}

int run_expected_read(const char *path, struct run_expected *e, struct plumb_error *err)
{
	cJSON *tree = NULL;
	int status = plumb_json_read(path, &limits, &tree, err);

	memset(e, 0, sizeof *e);
	return status == PLUMB_OK ? expected_take(tree, path, e, err) : status;
}

int run_expected_parse(const char *text, size_t size, const char *name, struct run_expected *e, struct plumb_error *err)
{
	cJSON *tree = NULL;
	int status = plumb_json_parse(text, size, name, &limits, &tree, err);

	memset(e, 0, sizeof *e);
	return status == PLUMB_OK ? expected_take(tree, name, e, err) : status;
}

void run_expected_free(struct run_expected *e)
{
	void *prompt, *token;
	memcpy(&prompt, &e->facts.prompt, sizeof prompt);
	memcpy(&token, &e->facts.token, sizeof token);
	free(prompt);
	free(token);
	free(e->cell);
	cJSON_Delete(e->memory);
	memset(e, 0, sizeof *e);
}

/* ---- the comparison ---- */

static int same_string(
	const char *path, const char *field, const char *expected, const char *actual, struct plumb_error *err)
{
	if (strcmp(expected, actual) == 0)
		return PLUMB_OK;
	return plumb_fail(
		err, PLUMB_BAD_INPUT, "%s: %s is \"%.100s\", this run has \"%.100s\"", path, field, expected, actual);
}

static int same_number(const char *path, const char *field, int64_t expected, int64_t actual, struct plumb_error *err)
{
	if (expected == actual)
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s is %lld, this run has %lld", path, field, (long long)expected,
		(long long)actual);
}

static int same_run(
	const struct run_expected *e, const char *path, int layers, const struct run_facts *f, struct plumb_error *err)
{
	int status = same_string(path, "model", e->facts.model, f->model, err);
	if (status == PLUMB_OK)
		status = same_string(path, "profile", e->facts.profile, f->profile, err);
	if (status == PLUMB_OK)
		status = same_string(path, "policy", e->facts.policy, f->policy, err);
	if (status == PLUMB_OK)
		status = same_string(path, "caches", e->facts.caches, f->caches, err);
	if (status == PLUMB_OK)
		status = same_string(path, "state", e->facts.state, f->state, err);
	if (status == PLUMB_OK)
		status = same_number(path, "weight_seed", e->facts.weight_seed, f->weight_seed, err);
	if (status == PLUMB_OK)
		status = same_number(path, "context", e->facts.context, f->context, err);
	if (status == PLUMB_OK)
		status = same_number(path, "layers", e->layers, layers, err);
	if (status == PLUMB_OK)
		status = same_number(path, "capacity", e->facts.capacity, f->capacity, err);
	if (status == PLUMB_OK)
		status = same_number(path, "length of the prompt", e->facts.prompts, f->prompts, err);
	for (int64_t i = 0; i < f->prompts && status == PLUMB_OK; i++)
		status = same_number(path, "a token of the prompt", e->facts.prompt[i], f->prompt[i], err);
	return status;
}

int run_expected_compare(const struct run_expected *e, const char *path, const struct run_digests *d, int64_t positions,
	const struct run_facts *f, struct plumb_error *err)
{
	int status = same_run(e, path, d->layers, f, err);
	size_t cells = (size_t)d->layers + 1;
	int64_t both = positions < e->positions ? positions : e->positions;
	char shown[33];

	if (status != PLUMB_OK)
		return status;
	for (int64_t p = 0; p < both; p++)
		for (size_t c = 0; c < cells; c++) {
			show_cell(&d->cell[(size_t)p * cells + c], shown);
			if (strcmp(shown, e->cell[(size_t)p * cells + c]) == 0)
				continue;
			char layer[32];
			snprintf(layer, sizeof layer, c < cells - 1 ? "layer %d" : "embedding or head", (int)c);
			return plumb_fail(err, PLUMB_MISMATCH, "%s: token %lld (%s), %s: digest %s, expected %s", path,
				(long long)p, p < f->prompts ? "of the prompt" : "decoded", layer, shown,
				e->cell[(size_t)p * cells + c]);
		}
	for (int64_t i = 0; i < f->tokens && i < e->facts.tokens; i++)
		if (f->token[i] != e->facts.token[i])
			return plumb_fail(err, PLUMB_MISMATCH, "%s: decoded token %lld is %d, expected %d", path,
				(long long)i, f->token[i], e->facts.token[i]);
	if (f->tokens != e->facts.tokens)
		return plumb_fail(err, PLUMB_MISMATCH, "%s: %lld tokens decoded, expected %lld (the first %lld are equal)",
			path, (long long)f->tokens, (long long)e->facts.tokens,
			(long long)(f->tokens < e->facts.tokens ? f->tokens : e->facts.tokens));
	struct plumb_digest total = run_digests_total(d);
	if (strcmp(plumb_digest_show(&total, shown), e->total) != 0)
		return plumb_fail(err, PLUMB_MISMATCH,
			"%s: total %s, expected %s, though every token and layer has the "
			"expected digest",
			path, shown, e->total);
	return PLUMB_OK;
}
