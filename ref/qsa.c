/* SPDX-License-Identifier: MIT */
/* QSA indexer: which blocks of the past a token attends to. Model-spec 2.8. Contracts: core/ops/qsa.h. */
#include "core/ops/qsa.h"

#include <math.h>
#include <stdlib.h>

#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/rotate.h"
#include "ref/round.h"
#include "ref/selected.h"
#include "ref/topk.h"

/* The key of block b from its raw keys; w (Di); row, key: scratch (Di). */
static void block_key(
	const struct plumb_env *env, const struct plumb_qsa_project *a, int64_t b, const double *w, double *key, float *row)
{
	int64_t B = env->cfg->block_tokens, Di = env->cfg->index_dim;

	for (int64_t i = 0; i < Di; i++)
		key[i] = 0.0;
	for (int64_t j = 0; j < B; j++) {
		plumb_cache_get(a->raw_keys, b * B + j, row);
		for (int64_t i = 0; i < Di; i++)
			key[i] += (double)row[i];
	}
	for (int64_t i = 0; i < Di; i++)
		key[i] = rne(env, key[i] / (double)B);
	head_norm_ref(env, key, w, Di, key);
	rope_ref(env, key, a->rope + b * B * env->cfg->rotary_dim); /* at the position of the block's first token */
	for (int64_t i = 0; i < Di; i++)
		row[i] = store(env, key[i]);
	plumb_cache_put(a->block_keys, b, row);
}

int qsa_project_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_project *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, B = env->cfg->block_tokens, N = (Hi + 1) * Di;
	double *q_norm = scratch_ref(env, Di, sizeof *q_norm);
	double *k_norm = scratch_ref(env, Di, sizeof *k_norm);
	double *sum = scratch_ref(env, a->T * N, sizeof *sum); /* (T, Hi + 1, Di) */
	float *row = scratch_ref(env, Di, sizeof *row);
	int status = q_norm && k_norm && sum && row ? vector_ref(env, a->q_norm, q_norm) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = vector_ref(env, a->k_norm, k_norm);
	if (status == PLUMB_OK)
		status = linear_sum_ref(env, a->w, a->x, a->T, 0, N, sum);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t p = *a->position + t;
		double *q = sum + t * N, *k = q + Hi * Di;
		for (int64_t h = 0; h < Hi; h++, q += Di) {
			for (int64_t i = 0; i < Di; i++)
				q[i] = rne(env, q[i]);
			head_norm_ref(env, q, q_norm, Di, q);
			rope_ref(env, q, a->rope + p * env->cfg->rotary_dim);
			for (int64_t i = 0; i < Di; i++)
				a->query[(t * Hi + h) * Di + i] = store(env, q[i]);
		}
		for (int64_t i = 0; i < Di; i++)
			row[i] = store(env, k[i]);
		plumb_cache_put(a->raw_keys, p, row);
		if ((p + 1) % B == 0)
			block_key(env, a, p / B, k_norm, k, row);
	}
	free(q_norm);
	free(k_norm);
	free(sum);
	free(row);
	return status;
}

int qsa_score_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_score *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, NB = a->block_keys->rows;
	double root = (double)(float)sqrt((double)Di);
	float *key = scratch_ref(env, Di, sizeof *key);

	if (!key)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T; t++) {
		int64_t nb = (*a->position + t + 1) / env->cfg->block_tokens;
		for (int64_t b = 0; b < nb; b++) {
			double sum = 0.0;
			plumb_cache_get(a->block_keys, b, key);
			for (int64_t h = 0; h < Hi; h++) {
				const float *q = a->query + (t * Hi + h) * Di;
				double dot = 0.0;
				for (int64_t i = 0; i < Di; i++)
					dot += (double)q[i] * (double)key[i];
				sum += dot > 0.0 || isnan(dot) ? dot : 0.0; /* relu */
			}
			a->score[t * NB + b] = (float)(sum / root); /* binary32 under both policies */
		}
		for (int64_t b = nb; b < NB; b++)
			a->score[t * NB + b] = -INFINITY;
	}
	free(key);
	return PLUMB_OK;
}

int qsa_select_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_select *a = args;
	int64_t B = env->cfg->block_tokens, N = env->cfg->block_budget, NB = env->capacity / B;
	struct topk_item *item = scratch_ref(env, NB, sizeof *item);

	if (!item)
		return PLUMB_BAD_INPUT;
	for (int64_t t = 0; t < a->T; t++) {
		int64_t nb = (*a->position + t + 1) / B, k = nb < N ? nb : N;
		int32_t *block = a->block + t * N;
		topk_ref(env->ties, a->score + t * NB, (int32_t)nb, (int32_t)k, item, block);
		selected_sort(block, k);
		for (int64_t i = k; i < N; i++)
			block[i] = -1;
		a->count[t] = (int32_t)k;
	}
	free(item);
	return PLUMB_OK;
}
