/* SPDX-License-Identifier: MIT */
/* Attention over the selected tokens: model-spec 2.7. Contracts: core/ops/attention.h. */
#include "core/ops/attention.h"

#include <math.h>
#include <stdlib.h>

#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/rotate.h"
#include "ref/round.h"
#include "ref/selected.h"

int attn_in_proj_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_in_proj *a = args;
	int status = linear_ref(env, a->w_q, a->x, a->T, a->qg);
	if (status == PLUMB_OK)
		status = linear_ref(env, a->w_k, a->x, a->T, a->k);
	if (status == PLUMB_OK)
		status = linear_ref(env, a->w_v, a->x, a->T, a->v);
	return status;
}

/* One head: x (Dh) -> normed (may be NULL) and rotated. */
static void norm_rotate(const struct plumb_env *env, const float *x, const double *w, const float *rope, double *tmp,
	float *normed, float *rotated)
{
	int64_t Dh = env->cfg->head_dim;
	for (int64_t i = 0; i < Dh; i++)
		tmp[i] = (double)x[i];
	norm_ref(env, tmp, w, Dh, tmp);
	for (int64_t i = 0; i < Dh; i++) {
		if (normed)
			normed[i] = store(env, tmp[i]);
		tmp[i] = rne(env, tmp[i]);
	}
	rope_ref(env, tmp, rope);
	for (int64_t i = 0; i < Dh; i++)
		rotated[i] = store(env, tmp[i]);
}

int attn_qk_rope_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_qk_rope *a = args;
	int64_t Hq = env->cfg->q_heads, Hkv = env->cfg->kv_heads, Dh = env->cfg->head_dim;
	double *q_norm = scratch_ref(env, Dh, sizeof *q_norm);
	double *k_norm = scratch_ref(env, Dh, sizeof *k_norm);
	double *tmp = scratch_ref(env, Dh, sizeof *tmp);
	float *key = scratch_ref(env, Hkv * Dh, sizeof *key); /* (Hkv, Dh) */
	int status = q_norm && k_norm && tmp && key ? vector_ref(env, a->q_norm, q_norm) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = vector_ref(env, a->k_norm, k_norm);
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t p = *a->position + t;
		const float *rope = a->rope + p * env->cfg->rotary_dim;
		for (int64_t h = 0; h < Hq; h++) {
			int64_t i = (t * Hq + h) * Dh;
			norm_rotate(env, a->qg + 2 * i, q_norm, rope, tmp, a->q_normed ? a->q_normed + i : NULL, a->q + i);
		}
		for (int64_t h = 0; h < Hkv; h++) {
			int64_t i = (t * Hkv + h) * Dh;
			norm_rotate(env, a->k + i, k_norm, rope, tmp, a->k_normed ? a->k_normed + i : NULL, key + h * Dh);
		}
		plumb_cache_put(a->keys, p, key);
		plumb_cache_put(a->values, p, a->v + t * Hkv * Dh);
	}
	free(q_norm);
	free(k_norm);
	free(tmp);
	free(key);
	return status;
}

/* One query head: q (Dh); kv head hk of every listed row; s, row: scratch; acc: scratch (Dh); o (Dh). */
static void attend(const struct plumb_env *env, const struct plumb_attn_decode *a, const float *q, int64_t hk,
	const int64_t *list, int64_t n, double *s, float *row, struct sum *acc, float *o)
{
	int64_t Dh = env->cfg->head_dim;
	double scale = (double)(float)(1.0 / sqrt((double)Dh));
	double max = -(double)INFINITY;
	struct sum exponentials = {0};

	for (int64_t j = 0; j < n; j++) {
		struct sum dot = {0};
		plumb_cache_get(a->keys, list[j], row);
		for (int64_t i = 0; i < Dh; i++)
			add(&dot, (double)q[i] * (double)row[hk * Dh + i]);
		s[j] = rne(env, rne(env, total(env, &dot)) * scale);
		if (s[j] > max || isnan(s[j]))
			max = s[j];
	}
	for (int64_t j = 0; j < n; j++)
		add(&exponentials, s[j] = exp(s[j] - max));
	const double sum = total(env, &exponentials);
	for (int64_t i = 0; i < Dh; i++)
		acc[i] = (struct sum){0};
	for (int64_t j = 0; j < n; j++) {
		double weight = rne(env, s[j] / sum);
		plumb_cache_get(a->values, list[j], row);
		for (int64_t i = 0; i < Dh; i++)
			add(&acc[i], weight * (double)row[hk * Dh + i]);
	}
	for (int64_t i = 0; i < Dh; i++)
		o[i] = store(env, total(env, &acc[i]));
}

int attn_decode_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_decode *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hq = cfg->q_heads, Hkv = cfg->kv_heads, Dh = cfg->head_dim;
	int64_t most = (cfg->block_budget + 1) * cfg->block_tokens;
	int failed = 0;

#pragma omp parallel if (a->T * Hq > 16)
	{
		int64_t *list = malloc((size_t)most * sizeof *list);
		double *s = malloc((size_t)most * sizeof *s);
		struct sum *acc = malloc((size_t)Dh * sizeof *acc);
		float *row = malloc((size_t)(Hkv * Dh) * sizeof *row);
		if (!list || !s || !acc || !row) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t th = 0; th < a->T * Hq; th++) {
			int64_t t = th / Hq, h = th % Hq;
			if (failed)
				continue;
			int64_t n = selected_tokens(
				cfg->block_tokens, *a->position + t, a->block + t * cfg->block_budget, a->count[t], list);
			attend(env, a, a->q + th * Dh, h / (Hq / Hkv), list, n, s, row, acc, a->o + th * Dh);
		}
		free(list);
		free(s);
		free(acc);
		free(row);
	}
	return failed ? plumb_fail(
				env->err, PLUMB_BAD_INPUT, "out of memory for attention over %lld tokens", (long long)most)
	              : PLUMB_OK;
}

int attn_gate_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_gate *a = args;
	int64_t Dh = env->cfg->head_dim, rows = a->T * env->cfg->q_heads;

	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < Dh; j++) {
			double gate = rne(env, sigmoid((double)a->qg[i * 2 * Dh + Dh + j]));
			a->out[i * Dh + j] = store(env, (double)a->o[i * Dh + j] * gate);
		}
	return PLUMB_OK;
}

int attn_out_proj_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_out_proj *a = args;
	return linear_ref(env, a->w, a->x, a->T, a->y);
}
