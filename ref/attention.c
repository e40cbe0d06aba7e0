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

/* Scratch of a thread: ABREAST query heads of one kv head are taken together, so that keys and values are decoded once
 * for them. */
struct attend {
	int64_t *list;         /* (most) the tokens, ascending */
	double (*s)[ABREAST];  /* (most, ABREAST) scores, then their exponentials */
	double (*q)[ABREAST];  /* (Dh, ABREAST) */
	float *narrow;         /* (Dh) */
	double *row;           /* (Dh) a key or a value */
	double *sum, *squares; /* (ABREAST, Dh) of weighted values, and of the terms' squares */
};

static bool attend_open(const struct plumb_config *cfg, int64_t most, struct attend *w)
{
	const size_t Dh = (size_t)cfg->head_dim;
	w->list = malloc((size_t)most * sizeof *w->list);
	w->s = malloc((size_t)most * sizeof *w->s);
	w->q = calloc(Dh, sizeof *w->q);
	w->narrow = malloc(Dh * sizeof *w->narrow);
	w->row = malloc(Dh * sizeof *w->row);
	w->sum = malloc(ABREAST * Dh * sizeof *w->sum);
	w->squares = malloc(ABREAST * Dh * sizeof *w->squares);
	return w->list && w->s && w->q && w->narrow && w->row && w->sum && w->squares;
}

static void attend_close(struct attend *w)
{
	free(w->list);
	free(w->s);
	free(w->q);
	free(w->narrow);
	free(w->row);
	free(w->sum);
	free(w->squares);
}

/* w->row: kv head hk of a token. */
static void fetch(const struct plumb_cache *cache, int64_t token, int64_t hk, int64_t Dh, struct attend *w)
{
	const char *stored = plumb_cache_row(cache, token);
	plumb_cache_decode(cache, stored + plumb_format_row_bytes(cache->format, hk * Dh), Dh, w->narrow);
	for (int64_t i = 0; i < Dh; i++)
		w->row[i] = (double)w->narrow[i];
}

/* exp(s - max) of head h in place, and its total. */
static double exponentials(const struct plumb_env *env, int64_t n, int h, double (*s)[ABREAST])
{
	double max = -(double)INFINITY;
	struct sum sum = {0};

	for (int64_t j = 0; j < n; j++)
		if (s[j][h] > max || isnan(s[j][h]))
			max = s[j][h];
	for (int64_t j = 0; j < n; j++)
		add(&sum, s[j][h] = exp(s[j][h] - max));
	return total(env, &sum);
}

/* sum[i] += weight * value[i], and the squares of these terms. */
static void add_weighted(const struct plumb_env *env, double weight, const double *restrict value, int64_t Dh,
	double *restrict sum, double *restrict squares)
{
	for (int64_t i = 0; i < Dh; i++)
		sum[i] += weight * value[i];
	for (int64_t i = 0; env->nudge && i < Dh; i++)
		squares[i] += weight * value[i] * (weight * value[i]);
}

/* `heads` <= ABREAST query heads of kv head hk: q (heads, Dh); the n tokens of w->list; o (heads, Dh). */
static void attend(const struct plumb_env *env, const struct plumb_attn_decode *a, const float *q, int64_t hk, int heads,
	int64_t n, struct attend *w, float *o)
{
	const int64_t Dh = env->cfg->head_dim;
	const double scale = (double)(float)(1.0 / sqrt((double)Dh));
	double sum[ABREAST];

	for (int h = 0; h < heads; h++) /* the other columns' sums are dropped */
		for (int64_t i = 0; i < Dh; i++)
			w->q[i][h] = (double)q[h * Dh + i];
	for (int64_t j = 0; j < n; j++) {
		struct sum dot[ABREAST];
		fetch(a->keys, w->list[j], hk, Dh, w);
		add_each(env, w->q, w->row, Dh, dot);
		for (int h = 0; h < heads; h++)
			w->s[j][h] = rne(env, rne(env, total(env, &dot[h])) * scale);
	}
	for (int h = 0; h < heads; h++)
		sum[h] = exponentials(env, n, h, w->s);
	for (int64_t i = 0; i < heads * Dh; i++)
		w->sum[i] = w->squares[i] = 0.0;
	for (int64_t j = 0; j < n; j++) {
		fetch(a->values, w->list[j], hk, Dh, w);
		for (int h = 0; h < heads; h++)
			add_weighted(env, rne(env, w->s[j][h] / sum[h]), w->row, Dh, w->sum + h * Dh, w->squares + h * Dh);
	}
	for (int64_t i = 0; i < heads * Dh; i++)
		o[i] = store(env, nudge_sum(env, w->sum[i], w->squares[i], n));
}

int attn_decode_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_decode *a = args;
	const struct plumb_config *cfg = env->cfg;
	const int64_t Hkv = cfg->kv_heads, Dh = cfg->head_dim, most = (cfg->block_budget + 1) * cfg->block_tokens;
	const int64_t G = cfg->q_heads / Hkv, parts = (G + ABREAST - 1) / ABREAST; /* of the G heads of a kv head */
	int failed = 0;

#pragma omp parallel if (a->T * Hkv * G > 16)
	{
		struct attend w;
		if (!attend_open(cfg, most, &w)) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t part = 0; part < a->T * Hkv * parts; part++) {
			const int64_t t = part / (Hkv * parts), hk = part / parts % Hkv, h = part % parts * ABREAST;
			const int64_t at = ((t * Hkv + hk) * G + h) * Dh;
			if (failed)
				continue;
			int64_t n = selected_tokens(
				cfg->block_tokens, *a->position + t, a->block + t * cfg->block_budget, a->count[t], w.list);
			attend(env, a, a->q + at, hk, (int)(G - h < ABREAST ? G - h : ABREAST), n, &w, a->o + at);
		}
		attend_close(&w);
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
