/* SPDX-License-Identifier: MIT */
#include "core/traffic.h"

#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/qsa.h"
#include "core/reads.h"

static int add_read(void *self, const struct plumb_read *read)
{
	struct plumb_traffic *sum = self;
	sum->weights += (int64_t)plumb_read_bytes(read);
	return PLUMB_OK;
}

static int64_t row_bytes(const struct plumb_cache *c)
{
	return (int64_t)plumb_format_row_bytes(c->format, c->width);
}

/* Blocks that positions first .. limit - 1 complete. */
static int64_t completed(int64_t first, int64_t limit, int B)
{
	return limit / B - first / B;
}

/* The caches of the four ops that have one. */
static void add_caches(const struct plumb_env *env, enum plumb_op op, const void *args, struct plumb_traffic *sum)
{
	const int B = env->cfg->block_tokens;

	if (op == PLUMB_ATTN_QK_ROPE) {
		const struct plumb_attn_qk_rope *a = args;
		sum->written += a->T * (row_bytes(a->keys) + row_bytes(a->values));
	} else if (op == PLUMB_QSA_PROJECT) {
		/* a block's raw keys but those of this call, which need not come from memory */
		const struct plumb_qsa_project *a = args;
		const int64_t p = *a->position, blocks = completed(p, p + a->T, B);
		sum->read += blocks > 0 ? p % B * row_bytes(a->raw_keys) : 0;
		sum->written += a->T * row_bytes(a->raw_keys) + blocks * row_bytes(a->block_keys);
	} else if (op == PLUMB_QSA_SCORE) {
		const struct plumb_qsa_score *a = args;
		sum->read += (*a->position + a->T) / B * row_bytes(a->block_keys);
	} else if (op == PLUMB_ATTN_DECODE) {
		const struct plumb_attn_decode *a = args;
		for (int64_t t = 0; t < a->T; t++) {
			const int64_t rows = (int64_t)a->count[t] * B + (*a->position + t + 1) % B;
			sum->read += rows * (row_bytes(a->keys) + row_bytes(a->values));
		}
	}
}

/* Rows of a ring that the next position reads; 0: not a ring. */
static int64_t ring_rows(const struct plumb_config *cfg, enum plumb_op op, const struct plumb_operand *o)
{
	if (strcmp(o->name, "window") != 0)
		return 0;
	return op == PLUMB_GDN_CONV ? cfg->gdn_conv_taps - 1 : cfg->ple_conv_taps - 1;
}

static void add_array(const struct plumb_env *env, enum plumb_op op, const struct plumb_operand *o, const void *args,
	struct plumb_traffic *sum)
{
	const struct plumb_extent extent = {.T = plumb_op_rows(args), .capacity = env->capacity};
	const int64_t ring = ring_rows(env->cfg, op, o);
	int64_t dim[8] = {0}, bytes = (int64_t)plumb_operand_element(o, args);
	int rank = plumb_shape_eval(o->shape, env->cfg, &extent, dim);

	if (ring > 0) {
		const int64_t row = bytes * dim[1];
		sum->read += ring * row;
		sum->written += (extent.T < dim[0] ? extent.T : dim[0]) * row;
		return;
	}
	for (int i = 0; i < rank; i++)
		bytes *= i == 0 && strcmp(o->name, "rope") == 0 ? extent.T : dim[i];
	if (strcmp(o->name, "qg") == 0 && o->role == PLUMB_IN)
		bytes /= 2;
	if (o->role != PLUMB_OUT)
		sum->read += bytes;
	if (o->role == PLUMB_OUT || o->role == PLUMB_STATE)
		sum->written += bytes;
}

int plumb_traffic(const struct plumb_env *env, enum plumb_op op, const void *args, struct plumb_traffic *sum)
{
	const struct plumb_op_info *info = &plumb_ops[op];

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		if (plumb_operand_get(args, o) && plumb_operand_is_array(o))
			add_array(env, op, o, args, sum);
	}
	add_caches(env, op, args, sum);
	return plumb_reads(env, op, args, add_read, sum);
}
