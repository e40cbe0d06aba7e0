/* SPDX-License-Identifier: MIT */
/* Host side of the attention stage. Contracts: core/ops/attention.h. Kernels: kernels/attention.cu, linear.cu. */
#include "core/ops/attention.h"

#include <math.h>

#include "core/order.h"
#include "kernels/attention.h"
#include "opt/device.h"
#include "opt/fuse.h"
#include "opt/linear.h"
#include "opt/matrix.h"
#include "opt/opt.h"

enum { SCORES, TILES, PARTIAL }; /* scratch slots of attn_decode */

int attn_in_proj_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_in_proj *a = args;
	const struct linear_part part[] = {
		{a->w_q, a->qg, "attn_in_proj: w_q"},
		{a->w_k, a->k, "attn_in_proj: w_k"},
		{a->w_v, a->v, "attn_in_proj: w_v"},
	};
	return linear_opt(env, a->x, a->T, part, 3);
}

int attn_qk_rope_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_qk_rope *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t q_width = cfg->q_heads * cfg->head_dim, kv_width = cfg->kv_heads * cfg->head_dim;
	int status = plumb_vector_check(env, "attn_qk_rope: q_norm", a->q_norm);

	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "attn_qk_rope: k_norm", a->k_norm);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		struct plumb_attn_heads launch = {
			.position = a->position,
			.token = t,
			.qg = a->qg + t * 2 * q_width,
			.k = a->k + t * kv_width,
			.v = a->v + t * kv_width,
			.rope = a->rope,
			.q_norm = a->q_norm->data,
			.q_norm_format = (int)a->q_norm->format,
			.k_norm = a->k_norm->data,
			.k_norm_format = (int)a->k_norm->format,
			.q_heads = cfg->q_heads,
			.kv_heads = cfg->kv_heads,
			.head_dim = cfg->head_dim,
			.half = cfg->rotary_dim / 2,
			.eps = cfg->rms_norm_eps,
			.bf16 = env->policy == PLUMB_POLICY_BF16,
			.q = a->q + t * q_width,
			.keys = *a->keys,
			.values = *a->values,
			.q_normed = a->q_normed ? a->q_normed + t * q_width : NULL,
			.k_normed = a->k_normed ? a->k_normed + t * kv_width : NULL,
		};
		status = plumb_fuse_attn_heads(env, &launch);
	}
	return status;
}

/* The most entries A(p) can have: budget and tail, or every position of the cache. */
static int64_t list_most(const struct plumb_env *env)
{
	int64_t most = env->cfg->block_budget * env->cfg->block_tokens + env->cfg->block_tokens - 1;
	return most < env->capacity ? most : env->capacity;
}

/* A grid is one-dimensional and an entry's number 32 bits wide: up to 2^30 blocks of the finest kernel and entries. */
static int check_size(const struct plumb_env *env, int64_t most)
{
	enum { LIMIT = 1 << 30, DIMS = 64 };
	const struct plumb_config *cfg = env->cfg;
	double blocks = ((double)most / PLUMB_ATTN_CHUNK + 1.0) * cfg->kv_heads * ((double)cfg->head_dim / DIMS + 1.0);

	if (most > LIMIT)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "attn_decode: %lld selected tokens, at most %d expected",
			(long long)most, LIMIT);
	if (blocks > LIMIT)
		return plumb_fail(env->err, PLUMB_BAD_INPUT,
			"attn_decode: %lld tokens, %d kv heads of %lld dims need %.0f blocks, at most %d expected",
			(long long)most, cfg->kv_heads, (long long)cfg->head_dim, blocks, LIMIT);
	return PLUMB_OK;
}

int attn_decode_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_decode *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t width = cfg->q_heads * cfg->head_dim, most = list_most(env);
	int64_t chunks = (most + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;
	int64_t tiles = (most + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	int status = check_size(env, most);

	if (status != PLUMB_OK)
		return status;
	struct plumb_attn_token launch = {
		.position = a->position,
		.keys = *a->keys,
		.values = *a->values,
		.q_heads = cfg->q_heads,
		.kv_heads = cfg->kv_heads,
		.head_dim = cfg->head_dim,
		.block_tokens = cfg->block_tokens,
		.budget = (int32_t)cfg->block_budget,
		.most = (int32_t)most,
		.scale = (float)(1.0 / sqrt((double)cfg->head_dim)),
		.bf16 = env->policy == PLUMB_POLICY_BF16,
		.weight = plumb_device_scratch(env, SCORES, (size_t)(cfg->q_heads * most) * sizeof(float)),
		.tile = plumb_device_scratch(env, TILES, (size_t)(cfg->q_heads * tiles * 2) * sizeof(float)),
		.partial = plumb_device_scratch(env, PARTIAL, (size_t)(chunks * width) * sizeof(float)),
	};
	if (!launch.weight || !launch.tile || !launch.partial)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.token = t;
		launch.q = a->q + t * width;
		launch.block = a->block + t * cfg->block_budget;
		launch.count = a->count + t;
		launch.o = a->o + t * width;
		status = PLUMB_RUN(env, attn_score, &launch);
		if (status == PLUMB_OK)
			status = PLUMB_RUN(env, attn_weighted, &launch);
		if (status == PLUMB_OK)
			status = plumb_fuse_attn_combine(env, &launch);
	}
	return status;
}

int attn_gate_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_gate *a = args;
	int64_t heads = env->cfg->q_heads, dim = env->cfg->head_dim, width = heads * dim;
	struct plumb_attn_gate_launch launch = {
		.heads = heads,
		.head_dim = dim,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
	};
	int status = PLUMB_OK;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		launch.o = a->o + t * width;
		launch.qg = a->qg + t * 2 * width;
		launch.out = a->out + t * width;
		status = plumb_fuse_attn_gate(env, &launch);
	}
	return status;
}

int attn_out_proj_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_out_proj *a = args;
	const struct linear_part part[] = {{a->w, a->y, "attn_out_proj: w"}};
	return linear_opt(env, a->x, a->T, part, 1);
}
