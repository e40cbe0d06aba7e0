/* SPDX-License-Identifier: MIT */
/* Launchers of the attention stage (contracts: core/ops/attention.h). The projections use kernels/linear.h.
 * A launch is one token: row `token` of its call, at position *position + token, which is read on the device. */
#ifndef PLUMB_KERNELS_ATTENTION_H
#define PLUMB_KERNELS_ATTENTION_H

#include <stdint.h>

#include "core/cache.h"
#include "kernels/launcher.h"

struct plumb_attn_heads {
	const int32_t *position; /* (1) */
	int64_t token;
	const float *qg;             /* (Hq, 2, Dh) */
	const float *k, *v;          /* (Hkv, Dh) */
	const float *rope;           /* (P, 2, Dr/2) */
	const void *q_norm, *k_norm; /* (Dh) of format */
	int q_norm_format, k_norm_format;
	int64_t q_heads, kv_heads, head_dim, half; /* Hq, Hkv, Dh, Dr/2 */
	float eps;
	int bf16; /* policy bf16 */
	float *q; /* (Hq, Dh) */
	struct plumb_cache keys, values;
	float *q_normed, *k_normed; /* (Hq, Dh), (Hkv, Dh) or NULL */
};

struct plumb_attn_token {
	const int32_t *position; /* (1) */
	int64_t token;
	const float *q; /* (Hq, Dh) */
	struct plumb_cache keys, values;
	const int32_t *block;                /* (N) */
	const int32_t *count;                /* (1) */
	int64_t q_heads, kv_heads, head_dim; /* Hq, Hkv, Dh */
	int32_t block_tokens, budget;        /* B, N */
	int32_t most;                        /* list entries there can be: sizes grid and scratch */
	float scale;                         /* fp32(Dh^-0.5) */
	int bf16;                            /* policy bf16 */
	float *weight;                       /* scratch (Hq, most): scores s */
	float *tile;    /* scratch (Hq, most / PLUMB_ATTN_TILE rounded up, 2): m_t and S_t; 8-byte aligned */
	float *partial; /* scratch (most / PLUMB_ATTN_CHUNK rounded up, Hq, Dh): sums of chunks */
	float *o;       /* (Hq, Dh) */
};

/* Norms, rope and the cache rows of the token. */
PLUMB_DECLARE_LAUNCHER(attn_heads, const struct plumb_attn_heads *a, void *stream);

/* attn_decode in three steps, in this order with nothing between, since a step starts before the last one ends: scores and
 * tiles; partial = chunks' sums of P * v; o = their sum. */
PLUMB_DECLARE_LAUNCHER(attn_score, const struct plumb_attn_token *a, void *stream);
PLUMB_DECLARE_LAUNCHER(attn_weighted, const struct plumb_attn_token *a, void *stream);
PLUMB_DECLARE_LAUNCHER(attn_combine, const struct plumb_attn_token *a, void *stream);

/* out[h, j] = rne(o[h, j] * rne(sigmoid(qg[h, 1, j]))). */
struct plumb_attn_gate_launch {
	const float *o;          /* (Hq, Dh) */
	const float *qg;         /* (Hq, 2, Dh) */
	float *out;              /* (Hq, Dh) */
	int64_t heads, head_dim; /* Hq, Dh */
	int bf16;
};
PLUMB_DECLARE_LAUNCHER(attn_gate, const struct plumb_attn_gate_launch *a, void *stream);

/* attn_combine and attn_gate of what it makes as one launch, to the same bits: o, which passes between them, is not written. */
PLUMB_DECLARE_LAUNCHER(
	attn_combine_gate, const struct plumb_attn_token *a, const struct plumb_attn_gate_launch *gate, void *stream);

#endif
