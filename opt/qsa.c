/* SPDX-License-Identifier: MIT */
/* Host side of the QSA indexer stage. Contracts: core/ops/qsa.h. Kernels: kernels/qsa.cu, linear.cu. */
#include "core/ops/qsa.h"

#include <math.h>

#include "kernels/qsa.h"
#include "opt/fuse.h"
#include "opt/linear.h"
#include "opt/matrix.h"
#include "opt/opt.h"

/* A block's number, and that of the tile after the last, are 32 bits wide in the kernels. */
static int check_blocks(const struct plumb_env *env, const char *op, int64_t blocks)
{
	enum { LIMIT = 1 << 30 };
	if (blocks > LIMIT)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s: %lld blocks of the cache, at most %d expected", op,
			(long long)blocks, LIMIT);
	return PLUMB_OK;
}

int qsa_project_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_project *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hi = cfg->index_heads, Di = cfg->index_dim;
	float *scratch = plumb_device_scratch(env, 0, (size_t)((Hi + 2) * Di) * sizeof *scratch); /* (Hi + 2, Di) */
	const struct linear_part part[] = {{a->w, scratch, "qsa_project: w"}};
	int status = scratch ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "qsa_project: q_norm", a->q_norm);
	if (status == PLUMB_OK)
		status = plumb_vector_check(env, "qsa_project: k_norm", a->k_norm);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		struct plumb_qsa_heads launch = {
			.position = a->position,
			.token = t,
			.projected = scratch,
			.mean = scratch + (Hi + 1) * Di,
			.rope = a->rope,
			.q_norm = a->q_norm->data,
			.q_norm_format = (int)a->q_norm->format,
			.k_norm = a->k_norm->data,
			.k_norm_format = (int)a->k_norm->format,
			.index_heads = Hi,
			.index_dim = Di,
			.half = cfg->rotary_dim / 2,
			.block_tokens = cfg->block_tokens,
			.eps = cfg->rms_norm_eps,
			.bf16 = env->policy == PLUMB_POLICY_BF16,
			.query = a->query + t * Hi * Di,
			.raw_keys = *a->raw_keys,
			.block_keys = *a->block_keys,
		};
		status = linear_opt(env, a->x + t * a->w->cols, 1, part, 1);
		if (status == PLUMB_OK)
			status = plumb_fuse_qsa_heads(env, &launch);
	}
	return status;
}

int qsa_score_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_score *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, NB = a->block_keys->rows;
	int status = check_blocks(env, "qsa_score", NB);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		struct plumb_qsa_blocks launch = {
			.position = a->position,
			.token = t,
			.query = a->query + t * Hi * Di,
			.block_keys = *a->block_keys,
			.index_heads = Hi,
			.index_dim = Di,
			.block_tokens = env->cfg->block_tokens,
			.blocks = (int32_t)NB,
			.root = sqrtf((float)Di),
			.score = a->score + t * NB,
		};
		status = PLUMB_RUN(env, qsa_score, &launch);
	}
	return status;
}

int qsa_select_opt(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_select *a = args;
	int64_t N = env->cfg->block_budget, B = env->cfg->block_tokens, NB = env->capacity / B;
	int status = check_blocks(env, "qsa_select", NB);

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++)
		status = PLUMB_RUN(env, qsa_select, a->position, t, a->score + t * NB, (int32_t)NB, (int32_t)B, (int32_t)N,
			a->block + t * N, a->count + t);
	return status;
}
