/* SPDX-License-Identifier: MIT */
/* QSA indexer in the declared order. The mathematics: ref/qsa.c. Contracts: core/ops/qsa.h. */
#include "core/ops/qsa.h"

#include <math.h>
#include <stdlib.h>

#include "core/math32.h"
#include "ref/linear.h"
#include "ref/selected.h"
#include "ref/twin/rank.h"
#include "ref/twin/rotate.h"
#include "ref/twin/twin.h"

/* The key of block b from its raw keys; w (Di); row, mean, normed: scratch (Di). */
static void block_key(const struct plumb_env *env, const struct plumb_qsa_project *a, int64_t b, const float *w, float *row,
	float *mean, float *normed)
{
	int64_t B = env->cfg->block_tokens, Di = env->cfg->index_dim;

	for (int64_t i = 0; i < Di; i++)
		mean[i] = 0.0f;
	for (int64_t j = 0; j < B; j++) {
		plumb_cache_get(a->raw_keys, b * B + j, row);
		for (int64_t i = 0; i < Di; i++)
			mean[i] = mean[i] + row[i];
	}
	for (int64_t i = 0; i < Di; i++)
		mean[i] = twin_rne(env, mean[i] / (float)B);
	twin_rotate(env, mean, w, a->rope + b * B * env->cfg->rotary_dim, Di, normed, row);
	plumb_cache_put(a->block_keys, b, row);
}

int qsa_project_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_project *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, B = env->cfg->block_tokens, N = (Hi + 1) * Di;
	float *q_norm = twin_matrix(env, a->q_norm), *k_norm = twin_matrix(env, a->k_norm);
	float *y = twin_scratch(env, a->T * N); /* (T, Hi + 1, Di) */
	float *scratch = twin_scratch(env, 3 * Di);
	int status = q_norm && k_norm && y && scratch ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = twin_linear(env, a->w, a->x, a->T, N, y);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t p = *a->position + t;
		for (int64_t h = 0; h < Hi; h++)
			twin_rotate(env, y + t * N + h * Di, q_norm, a->rope + p * env->cfg->rotary_dim, Di, scratch,
				a->query + (t * Hi + h) * Di);
		plumb_cache_put(a->raw_keys, p, y + t * N + Hi * Di);
		if ((p + 1) % B == 0)
			block_key(env, a, p / B, k_norm, scratch, scratch + Di, scratch + 2 * Di);
	}
	free(q_norm);
	free(k_norm);
	free(y);
	free(scratch);
	return status;
}

int qsa_score_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_score *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, NB = a->block_keys->rows;
	float root = sqrtf((float)Di), *key = twin_scratch(env, Di);

	if (!key)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T; t++) {
		int64_t nb = (*a->position + t + 1) / env->cfg->block_tokens;
		for (int64_t b = 0; b < nb; b++) {
			float sum = 0.0f;
			plumb_cache_get(a->block_keys, b, key);
			for (int64_t h = 0; h < Hi; h++) {
				float dot = twin_dot(key, a->query + (t * Hi + h) * Di, Di, PLUMB_HEAD_LANES);
				sum = sum + (dot > 0.0f || isnan(dot) ? dot : 0.0f); /* relu */
			}
			a->score[t * NB + b] = sum / root;
		}
		for (int64_t b = nb; b < NB; b++)
			a->score[t * NB + b] = -INFINITY;
	}
	free(key);
	return PLUMB_OK;
}

int qsa_select_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_select *a = args;
	int64_t B = env->cfg->block_tokens, N = env->cfg->block_budget, NB = env->capacity / B;
	struct twin_ranked *item = scratch_ref(env, NB, sizeof *item);

	if (!item)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T; t++) {
		int64_t nb = (*a->position + t + 1) / B, k = nb < N ? nb : N;
		int32_t *block = a->block + t * N;
		for (int64_t b = 0; b < nb; b++)
			item[b] = (struct twin_ranked){a->score[t * NB + b], (int32_t)b};
		twin_rank(item, nb);
		for (int64_t i = 0; i < N; i++)
			block[i] = i < k ? item[i].index : -1;
		selected_sort(block, k);
		a->count[t] = (int32_t)k;
	}
	free(item);
	return PLUMB_OK;
}
