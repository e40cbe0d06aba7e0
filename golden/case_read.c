/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/ple.h"
#include "core/rope.h"
#include "golden/case_reading.h"

/* Array of an operand from a folder into memory of the case. */
static int read_array(struct reading *r, const char *folder, const struct plumb_operand *o, void **out)
{
	struct plumb_golden_tensor t = {0};
	bool real = plumb_operand_is_real(o);
	int64_t dim[9], count;
	char name[NAME];
	int rank, status = case_shape(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	snprintf(name, sizeof name, "%s/%s", folder, o->name);
	if (o->kind == PLUMB_KIND_STORED) { /* the first of them, the state before, says how it is stored */
		enum plumb_format format;
		status = case_format(r, name, "format", true, false, &format);
		if (status == PLUMB_OK && o->role == PLUMB_STATE && strcmp(folder, "expected") == 0 &&
			format != plumb_operand_format(o, r->c->args))
			status = REFUSE(r, "%s: %s: format is %s, expected %s", case_path(r), name,
				plumb_format_name(format), plumb_format_name(plumb_operand_format(o, r->c->args)));
		if (status != PLUMB_OK)
			return status;
		memcpy((char *)r->c->args + o->format, &format, sizeof format);
	}
	if (case_is_bytes(o, r->c->args)) {
		dim[rank] = (int64_t)plumb_operand_element(o, r->c->args);
		if (!case_entry(r, name, PLUMB_H5_INT, rank + 1, dim))
			return PLUMB_BAD_INPUT;
		status = plumb_h5_read_u8(r->file, name, &t, r->err);
		*out = status == PLUMB_OK ? case_take(r, name, (size_t)count * (size_t)dim[rank]) : NULL;
		if (*out)
			memcpy(*out, t.u8, (size_t)count * (size_t)dim[rank]);
		plumb_golden_tensor_free(&t);
		return *out ? status : PLUMB_BAD_INPUT;
	}
	if (!case_entry(r, name, real ? PLUMB_H5_FLOAT : PLUMB_H5_INT, rank, dim))
		return PLUMB_BAD_INPUT;
	status = real ? plumb_h5_read_f32(r->file, name, &t, r->err) : plumb_h5_read_i64(r->file, name, &t, r->err);
	*out = status == PLUMB_OK ? case_take(r, name, (size_t)count * plumb_operand_element(o, r->c->args)) : NULL;
	for (int64_t i = 0; *out && o->kind == PLUMB_KIND_I32 && i < count; i++) {
		if (t.i64[i] < INT32_MIN || t.i64[i] > INT32_MAX) {
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected an integer of 32 bits",
				case_path(r), name, i, t.i64[i]);
			break;
		}
		((int32_t *)*out)[i] = (int32_t)t.i64[i];
	}
	if (*out && real && count)
		memcpy(*out, t.f32, (size_t)count * sizeof(float));
	if (*out && o->kind == PLUMB_KIND_I64 && count)
		memcpy(*out, t.i64, (size_t)count * sizeof(int64_t));
	plumb_golden_tensor_free(&t);
	return *out ? status : PLUMB_BAD_INPUT;
}

/* ---- caches ---- */

static int read_page_table(struct reading *r, const struct plumb_operand *o, struct plumb_cache *cache)
{
	int64_t pages = cache->rows / cache->page_rows, count = 0, *page;
	unsigned char *seen = NULL;
	int32_t *table = NULL;
	char name[NAME];
	int status;

	snprintf(name, sizeof name, "caches/%s/page", o->name);
	status = case_list(r, name, pages, 0, pages - 1, &page, &count);
	if (status == PLUMB_OK && count != pages)
		status = REFUSE(r, "%s: %s: %" PRId64 " pages, expected %" PRId64, case_path(r), name, count, pages);
	if (status == PLUMB_OK) {
		table = case_take(r, name, (size_t)pages * sizeof *table);
		seen = calloc(1, (size_t)pages + 1);
		status = table && seen ? PLUMB_OK : REFUSE(r, "%s: %s: out of memory", case_path(r), name);
	}
	for (int64_t i = 0; i < pages && status == PLUMB_OK; i++) {
		if (seen[page[i]]++)
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected each page once", case_path(r),
				name, i, page[i]);
		table[i] = (int32_t)page[i];
	}
	cache->page = table;
	free(seen);
	free(page);
	return status;
}

static int read_cache(struct reading *r, const struct plumb_operand *o, void **out)
{
	struct plumb_cache *cache = case_take(r, o->name, sizeof *cache);
	int64_t dim[8], count, page_rows, limit = case_row_limit(&r->c->call, o), *row = NULL, rows = 0;
	unsigned char *data = NULL, *mark = NULL;
	char name[NAME];
	size_t bytes;
	int rank, status = case_shape(r, o, dim, &rank, &count);

	if (!cache || status != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	if (rank != 2 || dim[0] < 1 || dim[1] < 1 || dim[1] > INT32_MAX)
		return REFUSE(r, "%s: %s: no rows, expected a cache", case_path(r), o->name);
	snprintf(name, sizeof name, "caches/%s", o->name);
	status = case_format(r, name, "format", true, true, &cache->format);
	if (status == PLUMB_OK && cache->format == PLUMB_CACHE_FP8) {
		const struct plumb_h5_attribute *scale = plumb_h5_attribute(r->file, name, "scale");
		cache->scale = scale && scale->type == PLUMB_H5_REAL ? (float)scale->real : 0.0f;
		if (!(cache->scale > 0.0f && isfinite(448.0f * cache->scale)))
			status = REFUSE(r, "%s: %s: scale is %g, expected above 0 and below 2^119", case_path(r), name,
				(double)cache->scale);
	}
	if (status == PLUMB_OK)
		status = case_integer(r, name, "page_rows", 1, dim[0], &page_rows);
	if (status != PLUMB_OK)
		return status;
	if (dim[0] % page_rows != 0)
		return REFUSE(r, "%s: %s: page_rows is %" PRId64 ", expected a divisor of its %" PRId64 " rows",
			case_path(r), name, page_rows, dim[0]);
	cache->rows = dim[0];
	cache->page_rows = (int32_t)page_rows;
	cache->width = (int32_t)dim[1];
	bytes = plumb_format_row_bytes(cache->format, cache->width);
	cache->data = case_take_space(r, name, (size_t)dim[0] * bytes);
	status = cache->data ? read_page_table(r, o, cache) : PLUMB_BAD_INPUT;
	snprintf(name, sizeof name, "caches/%s/row", o->name);
	if (status == PLUMB_OK)
		status = case_ascending(r, name, limit, &row, &rows);
	snprintf(name, sizeof name, "caches/%s/data", o->name);
	if (status == PLUMB_OK)
		status = case_bytes(r, name, rows, bytes, &data);
	for (int64_t i = 0; i < rows && status == PLUMB_OK; i++)
		memcpy(plumb_cache_row(cache, row[i]), data + (size_t)i * bytes, bytes);
	free(row);
	free(data);
	free(mark);
	*out = cache;
	return status;
}

/* ---- weights ---- */

/* Kernels take norms, convolutions and decay constants in plain formats only. */
static bool is_vector(const struct plumb_operand *o)
{
	return strstr(o->name, "norm") || strcmp(o->name, "conv") == 0 || strcmp(o->name, "a_log") == 0 ||
	       strcmp(o->name, "dt_bias") == 0;
}

/* Rows of scales that belong to the rows of a matrix that are there. */
static int read_scales(struct reading *r, const char *group, struct plumb_weight *w, const int64_t *row, int64_t rows)
{
	size_t bytes = case_scale_row_bytes(w);
	int64_t unit = case_scale_unit(w), all = case_scale_rows(w), n, last = -1, at = -1;
	unsigned char *data = NULL, *scale;
	char name[NAME + 16];
	int status;

	if (!bytes)
		return PLUMB_OK;
	snprintf(name, sizeof name, "%s/scale", group);
	for (int64_t i = n = 0; row && i < rows; i++) {
		n += row[i] / unit != last;
		last = row[i] / unit;
	}
	status = case_bytes(r, name, row ? n : all, bytes, &data);
	scale = status == PLUMB_OK ? case_take_space(r, name, (size_t)all * bytes) : NULL;
	last = -1;
	for (int64_t i = 0; scale && row && i < rows; i++) {
		at += row[i] / unit != last;
		last = row[i] / unit;
		memcpy(scale + (size_t)last * bytes, data + (size_t)at * bytes, bytes);
	}
	if (scale && !row)
		memcpy(scale, data, (size_t)all * bytes);
	w->scale = scale;
	free(data);
	return scale ? status : PLUMB_BAD_INPUT;
}

/* Matrix m of an operand; w: rows and cols are set. */
static int read_matrix(struct reading *r, const struct plumb_operand *o, int64_t m, struct plumb_weight *w)
{
	const struct plumb_h5_attribute *global;
	unsigned char *data = NULL, *all;
	int64_t *row = NULL, rows = w->rows;
	char group[NAME], name[NAME + 16];
	size_t bytes;
	int status;

	snprintf(group, sizeof group, "weights/%s/m%05lld", o->name, (long long)m);
	status = case_format(r, group, "format", is_vector(o), false, &w->format);
	if (status == PLUMB_OK && (w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK)) {
		status = case_format(r, group, "scale_format", true, false, &w->scale_format);
		if (status == PLUMB_OK && w->scale_format == PLUMB_F16)
			status = REFUSE(r, "%s: %s: scale_format is f16, expected f32 or bf16", case_path(r), group);
	}
	if (status == PLUMB_OK && (w->format == PLUMB_FP8_TABLE || w->format == PLUMB_NVFP4)) {
		global = plumb_h5_attribute(r->file, group, "global");
		if (!global || global->type != PLUMB_H5_REAL)
			status = REFUSE(
				r, "%s: %s: no attribute global, expected the scale of the matrix", case_path(r), group);
		else
			w->global = (float)global->real;
	}
	bytes = plumb_format_row_bytes(w->format, w->cols);
	snprintf(name, sizeof name, "%s/row", group);
	if (status == PLUMB_OK && plumb_h5_find(r->file, name))
		status = case_ascending(r, name, w->rows, &row, &rows);
	snprintf(name, sizeof name, "%s/data", group);
	if (status == PLUMB_OK)
		status = case_bytes(r, name, rows, bytes, &data);
	all = status == PLUMB_OK ? case_take_space(r, name, (size_t)w->rows * bytes) : NULL;
	for (int64_t i = 0; all && row && i < rows; i++)
		memcpy(all + (size_t)row[i] * bytes, data + (size_t)i * bytes, bytes);
	if (all && !row)
		memcpy(all, data, (size_t)rows * bytes);
	w->data = all;
	if (all)
		status = read_scales(r, group, w, row, rows);
	free(row);
	free(data);
	return all ? status : PLUMB_BAD_INPUT;
}

/* A matrix that the call does not read: like one that it reads, NaN in every format (and of a table, zeros, for it may
 * be larger than memory). */
static int make_absent(
	struct reading *r, const struct plumb_operand *o, const struct plumb_weight *like, struct plumb_weight *w)
{
	int64_t rows = w->rows;
	*w = *like;
	w->rows = rows;
	size_t data = plumb_weight_data_bytes(w), scale = plumb_weight_scale_bytes(w);
	void *memory = case_take_space(r, o->name, data), *scales = scale ? case_take_space(r, o->name, scale) : NULL;

	if (!memory || (scale && !scales))
		return PLUMB_BAD_INPUT;
	if (o->part == PLUMB_PART_MATRICES) {
		memset(memory, 0xff, data);
		if (scale)
			memset(scales, 0xff, scale);
	}
	w->data = memory;
	w->scale = scales;
	return PLUMB_OK;
}

/* Rows of matrix m of an operand. */
static int64_t rows_of(
	const struct reading *r, const struct plumb_operand *o, int64_t m, const int64_t *dim, int64_t table_rows)
{
	if (!o->count)
		return dim[o->kind == PLUMB_KIND_BANK];
	return m < r->shards - 1 ? r->shard_rows : table_rows - m * r->shard_rows;
}

static int read_weights(struct reading *r, const struct plumb_operand *o, int64_t table_rows, void **out)
{
	bool bank = o->kind == PLUMB_KIND_BANK;
	struct plumb_weight *w, *present = NULL, *absent = NULL;
	int64_t dim[8], count, matrices;
	char name[NAME];
	int rank, status = case_shape(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	matrices = o->count ? r->shards : bank ? dim[0] : 1;
	if (matrices < 1 || matrices > MAX_MATRICES)
		return REFUSE(
			r, "%s: %s: %" PRId64 " matrices, expected 1..%d", case_path(r), o->name, matrices, MAX_MATRICES);
	w = case_take(r, o->name, (size_t)matrices * sizeof *w);
	if (!w)
		return PLUMB_BAD_INPUT;
	for (int64_t m = 0; m < matrices && status == PLUMB_OK; m++) {
		w[m].rows = rows_of(r, o, m, dim, table_rows);
		w[m].cols = dim[rank - 1];
		snprintf(name, sizeof name, "weights/%s/m%05lld/data", o->name, (long long)m);
		if (bank && !plumb_h5_find(r->file, name))
			continue;
		status = read_matrix(r, o, m, &w[m]);
		present = &w[m];
	}
	for (int64_t m = 0; m < matrices && status == PLUMB_OK; m++) {
		struct plumb_weight like = {.format = PLUMB_BF16, .cols = dim[rank - 1]};
		if (w[m].data)
			continue;
		if (absent && absent->rows == w[m].rows) {
			w[m] = *absent; /* they share their memory */
			continue;
		}
		status = make_absent(r, o, present ? present : &like, &w[m]);
		absent = &w[m];
	}
	*out = w;
	return status;
}

/* ---- the whole ---- */

/* That it is a case of this version; its config, and its op. */
static int read_model(struct reading *r)
{
	struct plumb_case *c = r->c;
	const char *format = case_text(r, "", "format", "plumb case"), *config, *op;
	int64_t version;
	int status;

	if (!format)
		return PLUMB_BAD_INPUT;
	if (strcmp(format, "plumb case") != 0)
		return REFUSE(r, "%s: format is '%.40s', expected 'plumb case'", case_path(r), format);
	status = case_integer(r, "", "version", PLUMB_CASE_VERSION, PLUMB_CASE_VERSION, &version);
	config = status == PLUMB_OK ? case_text(r, "", "config", "the text of a config.json") : NULL;
	op = config ? case_text(r, "", "op", "an op") : NULL;
	if (!op)
		return PLUMB_BAD_INPUT;
	status = plumb_config_parse(config, strlen(config), case_path(r), &c->cfg, r->err);
	c->call.op = plumb_op_find(op);
	if (status == PLUMB_OK && c->call.op == PLUMB_OP_COUNT)
		status = REFUSE(r, "%s: op is '%.60s', which is no op; 'plumb list ops' shows them", case_path(r), op);
	return status;
}

/* Where the call stood and how its results are judged. */
static int read_call(struct reading *r)
{
	struct plumb_case *c = r->c;
	int64_t layer = 0;
	int policy = 0, ties = 0, site = 0, criterion = 0;
	int status = case_integer(r, "", "layer", 0, c->cfg.layers, &layer);

	if (status == PLUMB_OK && !plumb_op_runs(&c->cfg, c->call.op, (int)layer))
		status = REFUSE(r, "%s: layer is %" PRId64 ", expected one that runs %s", case_path(r), layer,
			plumb_ops[c->call.op].name);
	if (status == PLUMB_OK)
		status = case_word(r, "", "site", "none|attn|mlp|final", &site);
	if (status == PLUMB_OK)
		status = case_integer(r, "", "rows", 1, MAX_ROWS, &c->call.T);
	if (status == PLUMB_OK)
		status = case_integer(r, "", "capacity", 1, MAX_CAPACITY, &c->env.capacity);
	if (status == PLUMB_OK)
		status = case_integer(r, "", "position", 0, MAX_CAPACITY, &c->call.position);
	if (status == PLUMB_OK && c->call.position > c->env.capacity - c->call.T)
		status = REFUSE(r,
			"%s: %" PRId64 " rows at position %" PRId64 ", expected them within the capacity of %" PRId64,
			case_path(r), c->call.T, c->call.position, c->env.capacity);
	if (status == PLUMB_OK && c->env.capacity % c->cfg.block_tokens != 0)
		status = REFUSE(r, "%s: capacity is %" PRId64 ", expected a multiple of %d (indexer_compress_ratio)",
			case_path(r), c->env.capacity, c->cfg.block_tokens);
	if (status == PLUMB_OK)
		status = case_word(r, "", "policy", "f32|bf16", &policy);
	if (status == PLUMB_OK)
		status = case_word(r, "", "ties", "lower|torch", &ties);
	if (status == PLUMB_OK)
		status = case_word(r, "", "criterion", "bits|bound", &criterion);
	c->call.layer = (int)layer;
	c->call.site = (enum plumb_site)site;
	c->call.env = &c->env;
	c->env.cfg = &c->cfg;
	c->env.policy = (enum plumb_policy)policy;
	c->env.ties = (enum plumb_ties)ties;
	c->criterion = (enum plumb_case_criterion)criterion;
	return status;
}

static int read_origin(struct reading *r)
{
	static const char *const name[] = {"suspect", "truth", "producer", "command", "golden", "date", "finding"};
	struct plumb_case_origin *o = &r->c->origin;
	const char **place[] = {&o->suspect, &o->truth, &o->producer, &o->command, &o->golden, &o->date, &o->finding};

	for (size_t i = 0; i < sizeof name / sizeof name[0]; i++) {
		const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, "", name[i]);
		if (!a || a->type != PLUMB_H5_TEXT)
			continue;
		size_t bytes = strlen(a->text) + 1;
		char *copy = case_take(r, name[i], bytes);
		if (!copy)
			return PLUMB_BAD_INPUT;
		*place[i] = memcpy(copy, a->text, bytes);
	}
	return PLUMB_OK;
}

/* Hyper-connection ops say at which of their sites they are; no other op does. */
static int check_site(struct reading *r)
{
	const struct plumb_call *call = &r->c->call;
	bool hyper = strcmp(plumb_ops[call->op].stage, "hyper_connection") == 0, outside = call->layer == r->c->cfg.layers;

	if ((call->site != PLUMB_SITE_NONE) != hyper || (call->site == PLUMB_SITE_FINAL) != (hyper && outside))
		return REFUSE(r, "%s: site is %s, expected %s", case_path(r), plumb_site_name(call->site),
			!hyper    ? "none"
			: outside ? "final"
				  : "attn or mlp");
	return PLUMB_OK;
}

static int read_table_sizes(struct reading *r, const struct plumb_ngram *ngram)
{
	int status = case_integer(r, "", "shards", 1, MAX_MATRICES, &r->shards);

	if (status == PLUMB_OK)
		status = case_integer(r, "", "shard_rows", 1, MAX_BYTES, &r->shard_rows);
	if (status != PLUMB_OK)
		return status;
	if ((r->shards - 1) * r->shard_rows >= ngram->rows || r->shards * r->shard_rows < ngram->rows)
		return REFUSE(r,
			"%s: %" PRId64 " shards of %" PRId64 " rows, expected that many for %" PRId64 " rows of the table",
			case_path(r), r->shards, r->shard_rows, ngram->rows);
	struct plumb_ple_embed *a = r->c->args;
	a->shards = r->shards;
	a->shard_rows = r->shard_rows;
	return PLUMB_OK;
}

static int derive(struct reading *r, const struct plumb_operand *o, const struct plumb_ngram *ngram, void **out)
{
	int64_t dim[8], count;
	int rank, status = case_shape(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	if (o->kind == PLUMB_KIND_NGRAM) {
		*out = case_take(r, o->name, sizeof *ngram);
		if (*out)
			memcpy(*out, ngram, sizeof *ngram);
		return *out ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	if (count > (INT64_C(1) << 30))
		return REFUSE(r, "%s: a rope table of %" PRId64 " values, expected at most 2^30", case_path(r), count);
	*out = case_take(r, o->name, (size_t)count * sizeof(float));
	if (*out)
		plumb_rope_table(&r->c->cfg, r->c->env.policy, r->c->env.capacity, *out);
	return *out ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* What an output, or a state, must be: the array, or the rows of the cache. */
static int read_expected(struct reading *r, const struct plumb_operand *o, struct plumb_case_expected *out)
{
	char name[NAME];
	int64_t first, last, dim[8], count;
	unsigned char *data, *own;
	int rank, status;

	if (plumb_operand_is_array(o)) {
		void *array = NULL;
		status = read_array(r, "expected", o, &array);
		out->data = array;
		return status;
	}
	snprintf(name, sizeof name, "expected/%s", o->name);
	plumb_case_written_rows(&r->c->call, o, &first, &last);
	status = case_integer(r, name, "first_row", first, first, &out->first);
	if (status == PLUMB_OK)
		status = case_shape(r, o, dim, &rank, &count);
	if (status != PLUMB_OK)
		return status;
	const struct plumb_cache *cache = plumb_operand_get(r->c->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	out->rows = last - first;
	status = case_bytes(r, name, out->rows, bytes, &data);
	own = status == PLUMB_OK ? case_take(r, name, (size_t)out->rows * bytes) : NULL;
	if (own)
		memcpy(own, data, (size_t)out->rows * bytes);
	free(data);
	out->data = own;
	return own ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* Whether the file has the operand: all optional ones that are no traces come and go together, by the site. */
static bool is_there(const struct reading *r, const struct plumb_operand *o)
{
	char name[NAME];

	if (!o->optional)
		return true;
	if (!o->trace)
		return r->c->call.site != PLUMB_SITE_FINAL;
	snprintf(name, sizeof name, "expected/%s", o->name);
	return plumb_h5_find(r->file, name) != NULL;
}

static int read_operand(struct reading *r, const struct plumb_operand *o, const struct plumb_ngram *ngram)
{
	void *data = NULL;
	int64_t dim[8], count;
	int rank, status = PLUMB_OK;

	if (case_is_derived(o))
		status = derive(r, o, ngram, &data);
	else if (o->role == PLUMB_WEIGHT)
		status = read_weights(r, o, ngram->rows, &data);
	else if (o->kind == PLUMB_KIND_CACHE)
		status = read_cache(r, o, &data);
	else if (o->role != PLUMB_OUT)
		status = read_array(r, o->role == PLUMB_STATE ? "state" : "in", o, &data);
	if (status == PLUMB_OK)
		plumb_operand_set(r->c->args, o, data);
	if (status == PLUMB_OK && (o->role == PLUMB_OUT || o->role == PLUMB_STATE))
		status = read_expected(r, o, &r->c->expected[o - plumb_ops[r->c->call.op].operand]);
	if (status == PLUMB_OK && o->role == PLUMB_OUT) {
		status = case_shape(r, o, dim, &rank, &count);
		data = status == PLUMB_OK ? case_take(r, o->name, (size_t)count * plumb_operand_element(o, r->c->args))
		                          : NULL;
		plumb_operand_set(r->c->args, o, data);
		status = data ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	return status;
}

static int read_case(struct reading *r)
{
	const struct plumb_op_info *info;
	struct plumb_ngram *ngram = NULL;
	int status = read_model(r);

	if (status == PLUMB_OK)
		status = read_call(r);
	if (status == PLUMB_OK)
		status = read_origin(r);
	if (status == PLUMB_OK)
		status = check_site(r);
	if (status != PLUMB_OK)
		return status;
	info = &plumb_ops[r->c->call.op];
	r->c->args = case_take(r, info->name, info->args_size);
	ngram = r->c->args ? case_take(r, "ngram", sizeof *ngram) : NULL;
	if (!ngram)
		return PLUMB_BAD_INPUT;
	memcpy(r->c->args, &r->c->call.T, sizeof r->c->call.T);
	r->c->call.args = r->c->args;
	if (r->c->call.op == PLUMB_PLE_EMBED) {
		int q = plumb_ple_of_layer(&r->c->cfg, r->c->call.layer);
		status = plumb_ngram_constants(&r->c->cfg, q, ngram, r->err);
		if (status == PLUMB_OK)
			status = read_table_sizes(r, ngram);
	}
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++)
		if (is_there(r, &info->operand[i]))
			status = read_operand(r, &info->operand[i], ngram);
	return status == PLUMB_OK ? case_check_values(r->c, case_path(r), r->err) : status;
}

int plumb_case_read(const char *path, struct plumb_case **out, struct plumb_error *err)
{
	struct reading r = {.err = err};
	int status = plumb_h5_open(path, &r.file, err);

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	plumb_h5_limit(r.file, MAX_ELEMENTS);
	r.c = calloc(1, sizeof *r.c);
	status = r.c ? read_case(&r) : REFUSE(&r, "%s: out of memory", path);
	if (status == PLUMB_OK)
		*out = r.c;
	else
		plumb_case_free(r.c);
	plumb_h5_close(r.file);
	return status;
}
