/* SPDX-License-Identifier: MIT */
/* Bounds of the attention stage. Contracts: core/ops/attention.h. */
#include "core/ops/attention.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"
#include "ref/selected.h"

int attn_in_proj_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_attn_in_proj *a = args;
	const struct plumb_weight *w[] = {a->w_q, a->w_k, a->w_v};
	static const char *const name[] = {"qg", "k", "v"};
	int64_t rows = a->w_q->rows + a->w_k->rows + a->w_v->rows;
	int status = PLUMB_OK;

	(void)before;
	for (int m = 0; m < 3 && status == PLUMB_OK; m++)
		status = bound_projection(env, w[m], a->x, a->T, rows, plumb_bound_of(set, name[m]));
	return status;
}

/* One head: x (Dh) -> normed (may be NULL) and rotated, as the cache holds it (NULL: an output). */
static void norm_rotate(const struct plumb_env *env, const float *x, const float *w, const float *rope,
	const struct plumb_cache *cache, struct plumb_ball *tmp, struct plumb_ball *normed, struct plumb_ball *rotated)
{
	int64_t Dh = env->cfg->head_dim;
	bound_exact_copy(x, Dh, tmp);
	bound_norm(env, tmp, w, Dh, PLUMB_HEAD_LANES, tmp);
	for (int64_t i = 0; i < Dh; i++) {
		if (normed)
			normed[i] = ball_out(env, tmp[i]);
		tmp[i] = ball_rne(env, tmp[i]);
	}
	bound_rope(env, tmp, rope, Dh, cache, rotated);
}

int attn_qk_rope_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_attn_qk_rope *a = args;
	int64_t Hq = env->cfg->q_heads, Hkv = env->cfg->kv_heads, Dh = env->cfg->head_dim, width = Hkv * Dh;
	struct plumb_ball *q = plumb_bound_of(set, "q"), *keys = plumb_bound_of(set, "keys");
	struct plumb_ball *values = plumb_bound_of(set, "values");
	struct plumb_ball *q_normed = plumb_bound_of(set, "q_normed"), *k_normed = plumb_bound_of(set, "k_normed");
	float *q_norm = bound_matrix(env, a->q_norm), *k_norm = bound_matrix(env, a->k_norm);
	struct plumb_ball *tmp = bound_scratch(env, Dh);
	int status = q_norm && k_norm && tmp ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	if (!bound_cache_is_policy(env, a->keys))
		plumb_bound_wide(set, "keys");
	if (!bound_cache_is_policy(env, a->values))
		plumb_bound_wide(set, "values");
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		const float *rope = a->rope + (*a->position + t) * env->cfg->rotary_dim;
		for (int64_t h = 0; h < Hq; h++) {
			int64_t i = (t * Hq + h) * Dh;
			norm_rotate(env, a->qg + 2 * i, q_norm, rope, NULL, tmp, q_normed ? q_normed + i : NULL, q + i);
		}
		for (int64_t h = 0; h < Hkv; h++) {
			int64_t i = (t * Hkv + h) * Dh;
			norm_rotate(env, a->k + i, k_norm, rope, a->keys, tmp, k_normed ? k_normed + i : NULL, keys + i);
		}
		for (int64_t i = t * width; i < (t + 1) * width; i++) /* a copy, as the cache can hold it */
			values[i] = ball_exact((double)bound_cached(a->values, a->v[i]));
	}
	free(q_norm);
	free(k_norm);
	free(tmp);
	return status;
}

/* Depth of the weighted sum of n values: serial in chunks, then the chunks. */
static int value_depth(int64_t n)
{
	int64_t chunks = (n + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;
	return (int)((n < PLUMB_ATTN_CHUNK ? n : PLUMB_ATTN_CHUNK) + (chunks > 0 ? chunks - 1 : 0));
}

/* Scratch of one thread. */
struct attend {
	int64_t *list;              /* (most) */
	float *row;                 /* (Hkv*Dh) */
	struct plumb_ball *s;       /* (most) scores, exponentials, weights */
	struct plumb_ball *term;    /* (most) of their sum */
	struct plumb_ball *q, *key; /* (Dh) */
	double *sum;                /* (4, Dh) value, size, error, spread of the outputs */
};

static bool attend_open(int64_t most, int64_t width, int64_t Dh, struct attend *w)
{
	w->list = malloc((size_t)most * sizeof *w->list);
	w->row = malloc((size_t)width * sizeof *w->row);
	w->s = malloc((size_t)most * sizeof *w->s);
	w->term = malloc((size_t)most * sizeof *w->term);
	w->q = malloc((size_t)Dh * sizeof *w->q);
	w->key = malloc((size_t)Dh * sizeof *w->key);
	w->sum = malloc((size_t)(4 * Dh) * sizeof *w->sum);
	return w->list && w->row && w->s && w->term && w->q && w->key && w->sum;
}

static void attend_close(struct attend *w)
{
	free(w->list);
	free(w->row);
	free(w->s);
	free(w->term);
	free(w->q);
	free(w->key);
	free(w->sum);
}

/* One query head over the n listed rows of kv head hk. */
static void attend(const struct plumb_env *env, const struct plumb_attn_decode *a, const float *q, int64_t hk, int64_t n,
	struct attend *w, struct plumb_ball *o)
{
	int64_t Dh = env->cfg->head_dim;
	struct plumb_ball scale = ball_exact((double)(float)(1.0 / sqrt((double)Dh)));
	double *value = w->sum, *size = value + Dh, *error = size + Dh, *spread = error + Dh;

	bound_exact_copy(q, Dh, w->q);
	for (int64_t j = 0; j < n; j++) {
		plumb_cache_get(a->keys, w->list[j], w->row);
		bound_exact_copy(w->row + hk * Dh, Dh, w->key);
		struct plumb_ball dot = bound_dot(w->q, w->key, Dh, plumb_strided_depth(Dh, PLUMB_ROW_LANES));
		w->s[j] = ball_rne(env, ball_mul(ball_rne(env, dot), scale));
	}
	double highest = -HUGE_VAL, lowest = HUGE_VAL;
	for (int64_t j = 0; j < n; j++) {
		highest = fmax(highest, w->s[j].value + w->s[j].error);
		lowest = fmin(lowest, w->s[j].value - w->s[j].error);
	}
	(void)bound_exponentials(w->s, n);
	/* below -104 an exponential is 0 whatever the rounding was */
	struct plumb_ball sum = bound_tiled_sum(w->s, 0x1p-24 * fmin(highest - lowest, 104.0), n, PLUMB_ATTN_TILE, w->term);
	memset(w->sum, 0, (size_t)(4 * Dh) * sizeof *w->sum);
	for (int64_t j = 0; j < n; j++) {
		struct plumb_ball p = ball_rne(env, ball_div(w->s[j], sum));
		plumb_cache_get(a->values, w->list[j], w->row);
		for (int64_t i = 0; i < Dh; i++) {
			double v = (double)w->row[hk * Dh + i];
			value[i] += p.value * v;
			size[i] += (p.value + p.error) * fabs(v);
			error[i] += p.error * fabs(v);
			spread[i] += p.spread * fabs(v);
		}
	}
	int depth = value_depth(n);
	for (int64_t i = 0; i < Dh; i++)
		o[i] = ball_out(env,
			(struct plumb_ball){value[i], error[i] + plumb_gamma(depth) * size[i] + (double)n * 0x1p-150,
				root_of_squares(spread[i], sqrt((double)depth) * 0x1p-24 * size[i]) + (double)n * 0x1p-150,
				0.0});
}

int attn_decode_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_attn_decode *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hq = cfg->q_heads, Hkv = cfg->kv_heads, Dh = cfg->head_dim, N = cfg->block_budget, B = cfg->block_tokens;
	struct plumb_ball *o = plumb_bound_of(set, "o");
	int failed = 0;

	(void)before;
#pragma omp parallel if (a->T * Hq > 16)
	{
		struct attend w;
		if (!attend_open((N + 1) * B, Hkv * Dh, Dh, &w)) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t th = 0; th < a->T * Hq; th++) {
			int64_t t = th / Hq, h = th % Hq;
			if (failed)
				continue;
			int64_t n = selected_tokens(B, *a->position + t, a->block + t * N, a->count[t], w.list);
			attend(env, a, a->q + th * Dh, h / (Hq / Hkv), n, &w, o + th * Dh);
		}
		attend_close(&w);
	}
	return failed ? plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for the bound of attention") : PLUMB_OK;
}

int attn_gate_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_attn_gate *a = args;
	int64_t Dh = env->cfg->head_dim, rows = a->T * env->cfg->q_heads;
	struct plumb_ball *out = plumb_bound_of(set, "out");

	(void)before;
	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < Dh; j++) {
			struct plumb_ball gate = ball_sigmoid(ball_exact((double)a->qg[i * 2 * Dh + Dh + j]));
			struct plumb_ball o = ball_exact((double)a->o[i * Dh + j]);
			out[i * Dh + j] = ball_out(env, ball_mul(o, ball_rne(env, gate)));
		}
	return PLUMB_OK;
}

int attn_out_proj_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_attn_out_proj *a = args;

	(void)before;
	return bound_projection(env, a->w, a->x, a->T, a->w->rows, plumb_bound_of(set, "y"));
}
