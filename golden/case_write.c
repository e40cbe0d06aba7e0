/* SPDX-License-Identifier: MIT */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/ple.h"
#include "core/reads.h"
#include "golden/case_parts.h"
#include "golden/h5_write.h"

enum { NAME = 160 };

const char *plumb_site_name(enum plumb_site site)
{
	static const char *const names[] = {"none", "attn", "mlp", "final"};
	return site >= PLUMB_SITE_NONE && site <= PLUMB_SITE_FINAL ? names[site] : "none";
}

void plumb_case_written_rows(const struct plumb_call *call, const struct plumb_operand *o, int64_t *first, int64_t *last)
{
	plumb_operand_written_rows(call->env->cfg, o, INT64_MAX, call->position, call->T, first, last);
}

int64_t case_row_limit(const struct plumb_call *call, const struct plumb_operand *o)
{
	return (call->position + (o->role == PLUMB_STATE ? 0 : call->T)) / plumb_operand_row_tokens(call->env->cfg, o);
}

/* Rows of A(p) for each row of an attn_decode: the chosen blocks and the tail. */
static void mark_attended(const struct plumb_call *call, unsigned char *mark, int64_t limit)
{
	const struct plumb_attn_decode *a = call->args;
	const struct plumb_config *cfg = call->env->cfg;
	int64_t B = cfg->block_tokens, N = cfg->block_budget;

	for (int64_t t = 0; t < call->T; t++) {
		int64_t p = call->position + t;
		for (int64_t i = 0; i < N && i < a->count[t]; i++)
			for (int64_t j = 0; j < B; j++) {
				int64_t r = (int64_t)a->block[t * N + i] * B + j;
				if (r >= 0 && r < limit)
					mark[r] = 1;
			}
		for (int64_t r = (p + 1) / B * B; r <= p && r < limit; r++)
			mark[r] = 1;
	}
}

void case_mark_rows(const struct plumb_call *call, const struct plumb_operand *o, unsigned char *mark, int64_t limit)
{
	int64_t first = 0, B = call->env->cfg->block_tokens;

	if (call->op == PLUMB_ATTN_DECODE) {
		mark_attended(call, mark, limit);
		return;
	}
	if (call->op == PLUMB_ATTN_QK_ROPE) /* appends, and reads nothing */
		return;
	if (call->op == PLUMB_QSA_PROJECT) /* the raw keys of the block under way; block keys are only appended */
		first = plumb_operand_row_tokens(call->env->cfg, o) == 1 ? call->position / B * B : limit;
	if (first < limit)
		memset(mark + first, 1, (size_t)(limit - first));
}

static enum plumb_h5_store store_of(const struct plumb_operand *o)
{
	return o->kind == PLUMB_KIND_I64   ? PLUMB_H5_STORE_I64
	       : o->kind == PLUMB_KIND_I32 ? PLUMB_H5_STORE_I32
	                                   : PLUMB_H5_STORE_F32;
}

/* What is being written. Failures stay in the writer and come out of its commit. */
struct writing {
	struct plumb_h5_writer *file;
	const struct plumb_call *call;
	struct plumb_error *err;
};

static void put_array(struct writing *w, const char *folder, const struct plumb_operand *o, const void *data)
{
	struct plumb_extent extent = {.T = w->call->T, .capacity = w->call->env->capacity};
	int64_t dim[8];
	int rank = plumb_shape_eval(o->shape, w->call->env->cfg, &extent, dim);
	char name[NAME];

	snprintf(name, sizeof name, "%s/%s", folder, o->name);
	if (case_is_bytes(o, w->call->args)) {
		dim[rank] = (int64_t)plumb_operand_element(o, w->call->args);
		plumb_h5_put(w->file, name, PLUMB_H5_STORE_U8, rank + 1, dim, data, PLUMB_H5_PACK, NULL);
	} else {
		plumb_h5_put(w->file, name, store_of(o), rank, dim, data, PLUMB_H5_PACK, NULL);
	}
	if (o->kind == PLUMB_KIND_STORED)
		plumb_h5_put_text(w->file, name, "format", plumb_format_name(plumb_operand_format(o, w->call->args)), NULL);
}

/* Bytes (rows, row_bytes). */
static void put_bytes(struct writing *w, const char *name, int64_t rows, size_t row_bytes, const void *data)
{
	int64_t dim[2] = {rows, (int64_t)row_bytes};
	plumb_h5_put(w->file, name, PLUMB_H5_STORE_U8, 2, dim, data, PLUMB_H5_PACK, NULL);
}

static void put_text(struct writing *w, const char *object, const char *name, const char *text)
{
	if (text)
		plumb_h5_put_text(w->file, object, name, text, NULL);
}

/* caches/NAME: page table, and the rows that the call reads. */
static int put_cache(struct writing *w, const struct plumb_operand *o, const struct plumb_cache *cache)
{
	size_t row_bytes = plumb_format_row_bytes(cache->format, cache->width);
	int64_t limit = case_row_limit(w->call, o), n = 0, pages = plumb_cache_pages(cache);
	unsigned char *mark = calloc(1, (size_t)limit + 1), *data = NULL;
	int64_t *row = malloc(((size_t)limit + 1) * sizeof *row);
	char name[NAME];

	snprintf(name, sizeof name, "caches/%s", o->name);
	if (mark && row) {
		case_mark_rows(w->call, o, mark, limit);
		for (int64_t r = 0; r < limit; r++)
			if (mark[r])
				row[n++] = r;
		data = malloc((size_t)n * row_bytes + 1);
	}
	if (!data) {
		free(mark);
		free(row);
		return plumb_fail(w->err, PLUMB_BAD_INPUT, "out of memory for the rows of %s in a case", o->name);
	}
	for (int64_t i = 0; i < n; i++)
		memcpy(data + (size_t)i * row_bytes, plumb_cache_row(cache, row[i]), row_bytes);
	plumb_h5_put_group(w->file, name, NULL);
	put_text(w, name, "format", plumb_format_name(cache->format));
	if (cache->format == PLUMB_CACHE_FP8)
		plumb_h5_put_real(w->file, name, "scale", (double)cache->scale, NULL);
	plumb_h5_put_integer(w->file, name, "page_rows", cache->page_rows, NULL);
	snprintf(name, sizeof name, "caches/%s/page", o->name);
	plumb_h5_put(w->file, name, PLUMB_H5_STORE_I32, 1, &pages, cache->page, PLUMB_H5_PACK, NULL);
	snprintf(name, sizeof name, "caches/%s/row", o->name);
	plumb_h5_put(w->file, name, PLUMB_H5_STORE_I64, 1, &n, row, PLUMB_H5_PACK, NULL);
	snprintf(name, sizeof name, "caches/%s/data", o->name);
	put_bytes(w, name, n, row_bytes, data);
	free(mark);
	free(row);
	free(data);
	return PLUMB_OK;
}

/* What plumb_reads names, kept until a matrix is complete. */
struct parts {
	struct writing *w;
	const struct plumb_operand *operand;
	const struct plumb_weight *weight; /* NULL: none yet */
	int64_t matrix;
	int64_t *row; /* (rows) of it that are read */
	int64_t rows, room;
};

/* Rows of scales that belong to rows of a matrix, each once. Returns how many. */
static int64_t scale_rows_of(const struct plumb_weight *w, const int64_t *row, int64_t rows, int64_t *out)
{
	int64_t n = 0;
	for (int64_t i = 0; i < rows; i++) {
		int64_t r = row[i] / case_scale_unit(w);
		if (n == 0 || out[n - 1] != r)
			out[n++] = r;
	}
	return n;
}

static int put_rows(struct parts *p, const char *group)
{
	const struct plumb_weight *w = p->weight;
	size_t bytes = plumb_format_row_bytes(w->format, w->cols), scale_bytes = case_scale_row_bytes(w);
	unsigned char *data = malloc((size_t)p->rows * bytes + 1), *scale = malloc((size_t)p->rows * scale_bytes + 1);
	int64_t *of = malloc(((size_t)p->rows + 1) * sizeof *of), n = 0;
	char name[NAME + 16];

	if (!data || !scale || !of) {
		free(data);
		free(scale);
		free(of);
		return plumb_fail(
			p->w->err, PLUMB_BAD_INPUT, "out of memory for the rows of %s in a case", p->operand->name);
	}
	for (int64_t i = 0; i < p->rows; i++)
		memcpy(data + (size_t)i * bytes, (const char *)w->data + (size_t)p->row[i] * bytes, bytes);
	snprintf(name, sizeof name, "%s/row", group);
	plumb_h5_put(p->w->file, name, PLUMB_H5_STORE_I64, 1, &p->rows, p->row, PLUMB_H5_PACK, NULL);
	snprintf(name, sizeof name, "%s/data", group);
	put_bytes(p->w, name, p->rows, bytes, data);
	if (scale_bytes) {
		n = scale_rows_of(w, p->row, p->rows, of);
		for (int64_t i = 0; i < n; i++)
			memcpy(scale + (size_t)i * scale_bytes, (const char *)w->scale + (size_t)of[i] * scale_bytes,
				scale_bytes);
		snprintf(name, sizeof name, "%s/scale", group);
		put_bytes(p->w, name, n, scale_bytes, scale);
	}
	free(data);
	free(scale);
	free(of);
	return PLUMB_OK;
}

/* weights/NAME/mNNNNN: one matrix, or rows of it. */
static int put_matrix(struct parts *p)
{
	const struct plumb_weight *w = p->weight;
	char group[NAME], name[NAME + 16];
	int status = PLUMB_OK;

	if (!w)
		return PLUMB_OK;
	snprintf(group, sizeof group, "weights/%s/m%05lld", p->operand->name, (long long)p->matrix);
	plumb_h5_put_group(p->w->file, group, NULL);
	put_text(p->w, group, "format", plumb_format_name(w->format));
	if (w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK)
		put_text(p->w, group, "scale_format", plumb_format_name(w->scale_format));
	if (w->format == PLUMB_FP8_TABLE || w->format == PLUMB_NVFP4)
		plumb_h5_put_real(p->w->file, group, "global", (double)w->global, NULL);
	if (p->rows < w->rows) {
		status = put_rows(p, group);
	} else {
		snprintf(name, sizeof name, "%s/data", group);
		put_bytes(p->w, name, w->rows, plumb_format_row_bytes(w->format, w->cols), w->data);
		if (plumb_weight_scale_bytes(w)) {
			snprintf(name, sizeof name, "%s/scale", group);
			put_bytes(p->w, name, case_scale_rows(w), case_scale_row_bytes(w), w->scale);
		}
	}
	p->weight = NULL;
	p->rows = 0;
	return status;
}

static int take_part(void *self, const struct plumb_read *read)
{
	struct parts *p = self;
	int status = PLUMB_OK;

	if (p->weight && (p->operand != read->operand || p->matrix != read->matrix))
		status = put_matrix(p);
	p->operand = read->operand;
	p->weight = read->weight;
	p->matrix = read->matrix;
	if (p->rows + read->rows > p->room && status == PLUMB_OK) {
		int64_t room = 2 * (p->rows + read->rows);
		int64_t *row = realloc(p->row, (size_t)room * sizeof *row);
		if (!row)
			return plumb_fail(p->w->err, PLUMB_BAD_INPUT, "out of memory for the rows of %s in a case",
				read->operand->name);
		p->row = row;
		p->room = room;
	}
	for (int64_t i = 0; i < read->rows && status == PLUMB_OK; i++)
		p->row[p->rows++] = read->row + i;
	return status;
}

static int put_weights(struct writing *w)
{
	struct parts parts = {.w = w};
	struct plumb_env env = *w->call->env;
	int status;

	env.err = w->err;
	status = plumb_reads(&env, w->call->op, w->call->args, take_part, &parts);
	if (status == PLUMB_OK)
		status = put_matrix(&parts);
	free(parts.row);
	return status;
}

static int put_operands(struct writing *w)
{
	const struct plumb_op_info *info = &plumb_ops[w->call->op];
	int status = PLUMB_OK;

	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const void *data = plumb_operand_get(w->call->args, o);
		if (!data || o->role == PLUMB_OUT || o->role == PLUMB_WEIGHT || case_is_derived(o))
			continue;
		if (plumb_operand_is_array(o))
			put_array(w, o->role == PLUMB_STATE ? "state" : "in", o, data);
		else if (o->kind == PLUMB_KIND_CACHE)
			status = put_cache(w, o, data);
	}
	return status;
}

static void put_expected(struct writing *w, const struct plumb_case_expected *expected)
{
	const struct plumb_op_info *info = &plumb_ops[w->call->op];
	char name[NAME];

	plumb_h5_put_group(w->file, "expected", NULL);
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		if (!expected[i].data || (o->role != PLUMB_OUT && o->role != PLUMB_STATE))
			continue;
		if (o->kind == PLUMB_KIND_CACHE) {
			const struct plumb_cache *cache = plumb_operand_get(w->call->args, o);
			snprintf(name, sizeof name, "expected/%s", o->name);
			put_bytes(w, name, expected[i].rows, plumb_format_row_bytes(cache->format, cache->width),
				expected[i].data);
			plumb_h5_put_integer(w->file, name, "first_row", expected[i].first, NULL);
		} else {
			put_array(w, "expected", o, expected[i].data);
		}
	}
}

static int put_head(struct writing *w, enum plumb_case_criterion criterion, const struct plumb_case_origin *origin)
{
	const struct plumb_call *call = w->call;
	const struct plumb_env *env = call->env;
	char *config = plumb_config_text(env->cfg);

	if (!config)
		return plumb_fail(w->err, PLUMB_BAD_INPUT, "out of memory for the config of a case");
	put_text(w, "", "format", "plumb case");
	plumb_h5_put_integer(w->file, "", "version", PLUMB_CASE_VERSION, NULL);
	put_text(w, "", "op", plumb_ops[call->op].name);
	plumb_h5_put_integer(w->file, "", "layer", call->layer, NULL);
	put_text(w, "", "site", plumb_site_name(call->site));
	plumb_h5_put_integer(w->file, "", "position", call->position, NULL);
	plumb_h5_put_integer(w->file, "", "rows", call->T, NULL);
	plumb_h5_put_integer(w->file, "", "capacity", env->capacity, NULL);
	put_text(w, "", "policy", env->policy == PLUMB_POLICY_BF16 ? "bf16" : "f32");
	put_text(w, "", "ties", env->ties == PLUMB_TIES_TORCH ? "torch" : "lower");
	put_text(w, "", "criterion", criterion == PLUMB_CASE_BOUND ? "bound" : "bits");
	put_text(w, "", "config", config);
	put_text(w, "", "suspect", origin->suspect);
	put_text(w, "", "truth", origin->truth);
	put_text(w, "", "producer", origin->producer);
	put_text(w, "", "command", origin->command);
	put_text(w, "", "golden", origin->golden);
	put_text(w, "", "date", origin->date);
	put_text(w, "", "finding", origin->finding);
	if (call->op == PLUMB_PLE_EMBED) {
		const struct plumb_ple_embed *a = call->args; /* the one op whose shapes no config fixes */
		plumb_h5_put_integer(w->file, "", "shards", a->shards, NULL);
		plumb_h5_put_integer(w->file, "", "shard_rows", a->shard_rows, NULL);
	}
	free(config);
	return PLUMB_OK;
}

int plumb_case_write(const char *path, const struct plumb_call *call,
	const struct plumb_case_expected expected[PLUMB_CASE_OPERANDS], enum plumb_case_criterion criterion,
	const struct plumb_case_origin *origin, struct plumb_error *err)
{
	struct writing w = {.call = call, .err = err};
	int status = plumb_h5_create(path, &w.file, err);

	if (status != PLUMB_OK)
		return status;
	status = put_head(&w, criterion, origin);
	if (status == PLUMB_OK)
		status = put_operands(&w);
	if (status == PLUMB_OK)
		status = put_weights(&w);
	if (status == PLUMB_OK)
		put_expected(&w, expected);
	if (status == PLUMB_OK)
		return plumb_h5_commit(w.file, err);
	plumb_h5_abort(w.file);
	return status;
}
