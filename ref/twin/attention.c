/* SPDX-License-Identifier: MIT */
/* Attention in the declared order. The mathematics: ref/attention.c. Contracts: core/ops/attention.h. */
#include "core/ops/attention.h"

#include <math.h>
#include <stdlib.h>

#include "core/math32.h"
#include "ref/selected.h"
#include "ref/twin/rotate.h"
#include "ref/twin/twin.h"

int attn_in_proj_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_in_proj *a = args;
	int64_t rows = a->w_q->rows + a->w_k->rows + a->w_v->rows;
	int status = twin_linear(env, a->w_q, a->x, a->T, rows, a->qg);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->w_k, a->x, a->T, rows, a->k);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->w_v, a->x, a->T, rows, a->v);
	return status;
}

int attn_qk_rope_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_qk_rope *a = args;
	int64_t Hq = env->cfg->q_heads, Hkv = env->cfg->kv_heads, Dh = env->cfg->head_dim;
	float *q_norm = twin_matrix(env, a->q_norm), *k_norm = twin_matrix(env, a->k_norm);
	float *unseen = twin_scratch(env, Dh);    /* stands in for a trace that is not wanted */
	float *key = twin_scratch(env, Hkv * Dh); /* (Hkv, Dh) */
	int status = q_norm && k_norm && unseen && key ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		int64_t p = *a->position + t;
		const float *rope = a->rope + p * env->cfg->rotary_dim;
		for (int64_t h = 0; h < Hq; h++) {
			int64_t i = (t * Hq + h) * Dh;
			twin_rotate(env, a->qg + 2 * i, q_norm, rope, Dh, a->q_normed ? a->q_normed + i : unseen, a->q + i);
		}
		for (int64_t h = 0; h < Hkv; h++) {
			int64_t i = (t * Hkv + h) * Dh;
			twin_rotate(env, a->k + i, k_norm, rope, Dh, a->k_normed ? a->k_normed + i : unseen, key + h * Dh);
		}
		plumb_cache_put(a->keys, p, key);
		plumb_cache_put(a->values, p, a->v + t * Hkv * Dh);
	}
	free(q_norm);
	free(k_norm);
	free(unseen);
	free(key);
	return status;
}

/* Scratch of one thread, for lists of up to `most` tokens. */
struct attend {
	int64_t *list; /* (most) */
	float *s;      /* (most) scores, exponentials, weights */
	float *row;    /* (Hkv*Dh) a cache row */
	float *chunk;  /* (Dh) sum of a chunk */
	float *tile;   /* (2, tiles) sums of the tiles and what they are multiplied by */
};

static int attend_open(const struct plumb_config *cfg, int64_t most, struct attend *w)
{
	w->list = malloc((size_t)most * sizeof *w->list);
	w->s = malloc((size_t)most * sizeof *w->s);
	w->row = malloc((size_t)(cfg->kv_heads * cfg->head_dim) * sizeof *w->row);
	w->chunk = malloc((size_t)cfg->head_dim * sizeof *w->chunk);
	w->tile = malloc((size_t)(most / PLUMB_ATTN_TILE + 1) * 2 * sizeof *w->tile);
	return w->list && w->s && w->row && w->chunk && w->tile;
}

static void attend_close(struct attend *w)
{
	free(w->list);
	free(w->s);
	free(w->row);
	free(w->chunk);
	free(w->tile);
}

/* sum of the contract. s: (n) scores, max the largest; tile: (2, tiles) scratch. */
static float softmax_sum(const float *s, int64_t n, float max, float *tile)
{
	int64_t tiles = (n + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	float *factor = tile + tiles;

	for (int64_t t = 0; t < tiles; t++) {
		float e[PLUMB_ATTN_TILE], m = -INFINITY;
		int64_t i0 = t * PLUMB_ATTN_TILE, count = n - i0 < PLUMB_ATTN_TILE ? n - i0 : PLUMB_ATTN_TILE;
		for (int64_t i = 0; i < count; i++)
			if (s[i0 + i] > m || isnan(s[i0 + i]))
				m = s[i0 + i];
		for (int64_t i = 0; i < count; i++)
			e[i] = plumb_expf(s[i0 + i] - (m == -INFINITY ? 0.0f : m));
		tile[t] = twin_sum(e, count, PLUMB_ATTN_TILE);
		factor[t] = plumb_expf(m - max);
	}
	return twin_dot(tile, factor, tiles, PLUMB_ATTN_TILE);
}

/* One query head: q (Dh), kv head hk of the n listed rows, o (Dh). */
static void attend(const struct plumb_env *env, const struct plumb_attn_decode *a, const float *q, int64_t hk, int64_t n,
	struct attend *w, float *o)
{
	int64_t Dh = env->cfg->head_dim;
	float scale = (float)(1.0 / sqrt((double)Dh)), max = -INFINITY, *s = w->s;

	for (int64_t i = 0; i < n; i++) {
		plumb_cache_get(a->keys, w->list[i], w->row);
		s[i] = twin_rne(env, twin_rne(env, twin_dot(w->row + hk * Dh, q, Dh, PLUMB_ROW_LANES)) * scale);
		if (s[i] > max || isnan(s[i]))
			max = s[i];
	}
	float sum = softmax_sum(s, n, max, w->tile);
	for (int64_t i = 0; i < n; i++)
		s[i] = twin_rne(env, plumb_expf(s[i] - max) / sum);
	for (int64_t i0 = 0; i0 < n; i0 += PLUMB_ATTN_CHUNK) {
		for (int64_t d = 0; d < Dh; d++)
			w->chunk[d] = 0.0f;
		for (int64_t i = i0; i < n && i < i0 + PLUMB_ATTN_CHUNK; i++) {
			plumb_cache_get(a->values, w->list[i], w->row);
			for (int64_t d = 0; d < Dh; d++)
				w->chunk[d] = fmaf(s[i], w->row[hk * Dh + d], w->chunk[d]);
		}
		for (int64_t d = 0; d < Dh; d++)
			o[d] = i0 == 0 ? w->chunk[d] : o[d] + w->chunk[d];
	}
	for (int64_t d = 0; d < Dh; d++)
		o[d] = twin_rne(env, o[d]);
}

int attn_decode_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_decode *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hq = cfg->q_heads, N = cfg->block_budget, B = cfg->block_tokens, Dh = cfg->head_dim, most = (N + 1) * B;
	int failed = 0;

#pragma omp parallel
	{
		struct attend w;
		if (!attend_open(cfg, most, &w)) {
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
			attend(env, a, a->q + th * Dh, h / (Hq / cfg->kv_heads), n, &w, a->o + th * Dh);
		}
		attend_close(&w);
	}
	return failed ? plumb_fail(
				env->err, PLUMB_BAD_INPUT, "out of memory for attention over %lld tokens", (long long)most)
	              : PLUMB_OK;
}

int attn_gate_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_gate *a = args;
	int64_t Dh = env->cfg->head_dim, rows = a->T * env->cfg->q_heads;

	for (int64_t i = 0; i < rows; i++)
		for (int64_t j = 0; j < Dh; j++) {
			float gate = twin_rne(env, plumb_sigmoidf(a->qg[i * 2 * Dh + Dh + j]));
			a->out[i * Dh + j] = twin_rne(env, a->o[i * Dh + j] * gate);
		}
	return PLUMB_OK;
}

int attn_out_proj_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_out_proj *a = args;
	return twin_linear(env, a->w, a->x, a->T, a->w->rows, a->y);
}
