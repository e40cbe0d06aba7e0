/* SPDX-License-Identifier: MIT */
#include "core/reads.h"

#include <stdlib.h>
#include <string.h>

#include "core/ops/ple.h"

/* Ids of what is read, in any order, with repeats. */
struct ids {
	int64_t *id;
	int64_t count;
};

static int take_ids(const struct plumb_env *env, int64_t count, struct ids *out)
{
	out->count = count;
	out->id = malloc((size_t)(count > 0 ? count : 1) * sizeof *out->id);
	if (!out->id)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for %lld ids", (long long)count);
	return PLUMB_OK;
}

/* The ids of an integer operand. */
static int chosen_ids(const struct plumb_env *env, enum plumb_op op, const void *args, const char *name, struct ids *out)
{
	const struct plumb_operand *by = plumb_operand_find(&plumb_ops[op], name);
	const struct plumb_extent extent = {.T = plumb_op_rows(args), .capacity = env->capacity};
	const int32_t *value = plumb_operand_get(args, by);
	int status = take_ids(env, plumb_shape_count(by->shape, env->cfg, &extent), out);
	for (int64_t i = 0; i < out->count && status == PLUMB_OK; i++)
		out->id[i] = value[i];
	return status;
}

/* The rows of the whole table that the tokens of a ple_embed hash to. */
static int hashed_ids(const struct plumb_env *env, const struct plumb_ple_embed *a, struct ids *out)
{
	int G = env->cfg->ngram, Hg = plumb_ngram_heads(env->cfg);
	int status = take_ids(env, a->T * Hg, out);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t id[PLUMB_MAX_NGRAM];
		for (int j = 0; j < G; j++)
			id[j] = t - j >= 0 ? a->token[t - j] : a->history[G - 1 + t - j];
		plumb_ngram_rows(env->cfg, a->ngram, id, out->id + t * Hg);
	}
	return status;
}

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* Sort, and keep one of each in 0 .. limit - 1. */
static void tidy(struct ids *ids, int64_t limit)
{
	int64_t kept = 0;
	qsort(ids->id, (size_t)ids->count, sizeof *ids->id, ascending);
	for (int64_t i = 0; i < ids->count; i++)
		if (ids->id[i] >= 0 && ids->id[i] < limit && (kept == 0 || ids->id[i] != ids->id[kept - 1]))
			ids->id[kept++] = ids->id[i];
	ids->count = kept;
}

static int walk_all(
	const struct plumb_operand *o, const struct plumb_weight *w, int64_t count, plumb_read_fn *fn, void *self)
{
	int status = PLUMB_OK;
	for (int64_t m = 0; m < count && status == PLUMB_OK; m++) {
		const struct plumb_read read = {.operand = o, .weight = &w[m], .matrix = m, .rows = w[m].rows};
		status = fn(self, &read);
	}
	return status;
}

static int walk_chosen(const struct plumb_env *env, enum plumb_op op, const struct plumb_operand *o, const void *args,
	plumb_read_fn *fn, void *self)
{
	const struct plumb_weight *w = plumb_operand_get(args, o);
	bool bank = o->kind == PLUMB_KIND_BANK;
	int64_t count = plumb_operand_matrices(env->cfg, o, args), part_rows = w->rows;
	struct ids ids = {0};
	int status = PLUMB_OK;

	if (o->part == PLUMB_PART_HASHED) {
		const struct plumb_ple_embed *a = args; /* the only op that hashes */
		part_rows = a->shard_rows;
		status = hashed_ids(env, a, &ids);
		tidy(&ids, (count - 1) * part_rows + w[count - 1].rows);
	} else {
		status = chosen_ids(env, op, args, o->chosen_by, &ids);
		tidy(&ids, o->part == PLUMB_PART_MATRICES ? count : w->rows);
	}
	for (int64_t i = 0; i < ids.count && status == PLUMB_OK; i++) {
		int64_t id = ids.id[i];
		struct plumb_read read = {.operand = o, .rows = 1};
		if (o->part == PLUMB_PART_MATRICES) {
			read.matrix = id;
			read.rows = w[id].rows;
		} else {
			read.matrix = bank ? id / part_rows : 0;
			read.row = bank ? id % part_rows : id;
		}
		read.weight = &w[read.matrix];
		status = fn(self, &read);
	}
	free(ids.id);
	return status;
}

int plumb_reads(const struct plumb_env *env, enum plumb_op op, const void *args, plumb_read_fn *fn, void *self)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	int status = PLUMB_OK;

	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const struct plumb_weight *w = plumb_operand_get(args, o);
		if (o->role != PLUMB_WEIGHT || !w)
			continue;
		if (o->part == PLUMB_PART_ALL)
			status = walk_all(o, w, plumb_operand_matrices(env->cfg, o, args), fn, self);
		else
			status = walk_chosen(env, op, o, args, fn, self);
	}
	return status;
}

size_t plumb_read_bytes(const struct plumb_read *r)
{
	const struct plumb_weight *w = r->weight;
	struct plumb_weight part = *w; /* the rows as a matrix of their own */

	part.rows = r->rows;
	if (w->format == PLUMB_FP8_BLOCK && r->rows > 0) {
		int64_t first = r->row / PLUMB_FP8_BLOCK_SIZE, last = (r->row + r->rows - 1) / PLUMB_FP8_BLOCK_SIZE;
		size_t data = plumb_weight_data_bytes(&part);
		part.rows = (last - first + 1) * PLUMB_FP8_BLOCK_SIZE;
		return data + plumb_weight_scale_bytes(&part);
	}
	return plumb_weight_bytes(&part);
}
