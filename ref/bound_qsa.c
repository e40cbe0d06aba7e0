/* SPDX-License-Identifier: MIT */
/* Bounds of the QSA indexer. Contracts: core/ops/qsa.h. qsa_select chooses: no bound. */
#include "core/ops/qsa.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"

/* norm, rne, rope of one head in place; y as it is stored. */
static void head(const struct plumb_env *env, struct plumb_ball *x, const float *w, const float *rope, struct plumb_ball *y)
{
	int64_t Di = env->cfg->index_dim;
	bound_norm(env, x, w, Di, PLUMB_HEAD_LANES, x);
	for (int64_t i = 0; i < Di; i++)
		x[i] = ball_rne(env, x[i]);
	bound_rope(env, x, rope, Di, NULL, y); /* index caches follow the policy */
}

/* The key of block b. Raw keys of this call are balls (T, N), the last Di of each row and not yet rounded; older ones
 * are in the cache. key, row: scratch (Di). */
static void block_key(const struct plumb_env *env, const struct plumb_qsa_project *a, const struct plumb_ball *y, int64_t b,
	const float *w, struct plumb_ball *key, float *row, struct plumb_ball *out)
{
	int64_t B = env->cfg->block_tokens, Di = env->cfg->index_dim, N = (env->cfg->index_heads + 1) * Di;

	for (int64_t j = 0; j < B; j++) {
		int64_t t = b * B + j - *a->position;
		if (t < 0)
			plumb_cache_get(a->raw_keys, b * B + j, row);
		for (int64_t i = 0; i < Di; i++) {
			struct plumb_ball x = t < 0 ? ball_exact((double)row[i]) : ball_rne(env, y[t * N + N - Di + i]);
			key[i] = j == 0 ? x : ball_add(key[i], x); /* nothing is lost on +0 */
		}
	}
	for (int64_t i = 0; i < Di; i++)
		key[i] = ball_rne(env, ball_div(key[i], ball_exact((double)B)));
	head(env, key, w, a->rope + b * B * env->cfg->rotary_dim, out);
}

int qsa_project_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_qsa_project *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, B = env->cfg->block_tokens, N = (Hi + 1) * Di;
	int64_t first = *a->position / B;
	struct plumb_ball *query = plumb_bound_of(set, "query"), *raw = plumb_bound_of(set, "raw_keys");
	struct plumb_ball *blocks = plumb_bound_of(set, "block_keys");
	float *q_norm = bound_matrix(env, a->q_norm), *k_norm = bound_matrix(env, a->k_norm);
	struct plumb_ball *y = bound_scratch(env, a->T * N), *tmp = bound_scratch(env, Di);
	float *row = scratch_ref(env, Di, sizeof *row);
	int status = q_norm && k_norm && y && tmp && row ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	if (status == PLUMB_OK)
		status = bound_linear_of(env, a->w, a->x, a->T, N, y);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t p = *a->position + t;
		for (int64_t h = 0; h < Hi; h++) {
			for (int64_t i = 0; i < Di; i++)
				tmp[i] = ball_rne(env, y[t * N + h * Di + i]);
			head(env, tmp, q_norm, a->rope + p * env->cfg->rotary_dim, query + (t * Hi + h) * Di);
		}
		for (int64_t i = 0; i < Di; i++)
			raw[t * Di + i] = ball_out(env, y[t * N + Hi * Di + i]);
		if ((p + 1) % B == 0)
			block_key(env, a, y, p / B, k_norm, tmp, row, blocks + (p / B - first) * Di);
	}
	free(q_norm);
	free(k_norm);
	free(y);
	free(tmp);
	free(row);
	return status;
}

/* x > 0 ? x : 0 moves no two numbers apart; below zero only what reaches above it counts. */
static struct plumb_ball relu(struct plumb_ball x)
{
	if (isnan(x.value) || x.value > 0.0)
		return x;
	double reach = greater(0.0, x.value + x.error);
	return (struct plumb_ball){0.0, reach, reach, 0.0};
}

int qsa_score_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_qsa_score *a = args;
	int64_t Hi = env->cfg->index_heads, Di = env->cfg->index_dim, NB = a->block_keys->rows;
	int depth = plumb_strided_depth(Di, PLUMB_HEAD_LANES);
	struct plumb_ball *score = plumb_bound_of(set, "score"), root = ball_exact((double)(float)sqrt((double)Di));
	struct plumb_ball *query = bound_balls(env, a->query, a->T * Hi * Di), *key = bound_scratch(env, Di);
	float *row = scratch_ref(env, Di, sizeof *row);
	int status = query && key && row ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	plumb_bound_wide(set, "score");
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t nb = (*a->position + t + 1) / env->cfg->block_tokens;
		for (int64_t b = 0; b < nb; b++) {
			struct plumb_ball sum = ball_exact(0.0);
			plumb_cache_get(a->block_keys, b, row);
			bound_exact_copy(row, Di, key);
			for (int64_t h = 0; h < Hi; h++) {
				struct plumb_ball dot = relu(bound_dot(query + (t * Hi + h) * Di, key, Di, depth));
				sum = h == 0 ? dot : ball_add(sum, dot);
			}
			score[t * NB + b] = ball_div(sum, root);
		}
		for (int64_t b = nb; b < NB; b++)
			score[t * NB + b] = ball_exact(-HUGE_VAL);
	}
	free(query);
	free(key);
	free(row);
	return status;
}

int qsa_select_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	(void)env;
	(void)before;
	(void)args;
	(void)set;
	return PLUMB_OK;
}
