/* SPDX-License-Identifier: MIT */
/* Contracts of the attention stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding. */
#ifndef PLUMB_CORE_OPS_ATTENTION_H
#define PLUMB_CORE_OPS_ATTENTION_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     qg = rne(w_q . x), k = rne(w_k . x), v = rne(w_v . x).
 * Shapes       x (T, D), w_q (Hq*2*Dh, D), w_k, w_v (Hkv*Dh, D), qg (T, Hq, 2, Dh), k, v (T, Hkv, Dh).
 * Layout       row-major; head h of qg: Dh of query, then Dh of gate.
 * Units        none.
 * Numerics     binary32; rows split(pieces, 256) with rows Hq*2*Dh + 2*Hkv*Dh. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.7. */
struct plumb_attn_in_proj {
	int64_t T;
	const float *x;                 /* in  (T, D) */
	const struct plumb_weight *w_q; /* w   (Hq*2*Dh, D) */
	const struct plumb_weight *w_k; /* w   (Hkv*Dh, D) */
	const struct plumb_weight *w_v; /* w   (Hkv*Dh, D) */
	float *qg;                      /* out (T, Hq, 2, Dh) */
	float *k;                       /* out (T, Hkv, Dh) */
	float *v;                       /* out (T, Hkv, Dh) */
};

/* Computes     q_normed = Norm(q half of qg; q_norm), k_normed = Norm(k; k_norm), per head; q = rope(q_normed),
 *              key cache row p = rope(k_normed), value cache row p = v, p = position + t.
 *              rope of a head x at p, i < Dr/2: out[i] = rne(rne(x[i]*cos) + rne(-x[i+Dr/2]*sin)),
 *              out[i+Dr/2] = rne(rne(x[i+Dr/2]*cos) + rne(x[i]*sin)); dims >= Dr pass unchanged.
 * Shapes       qg (T, Hq, 2, Dh), k, v (T, Hkv, Dh), rope (P, 2, Dr/2), q_norm, k_norm (Dh), q (T, Hq, Dh),
 *              key, value caches (P, Hkv*Dh), traces q_normed (T, Hq, Dh), k_normed (T, Hkv, Dh).
 * Layout       rope row p: Dr/2 cosines, then Dr/2 sines, already rounded by the policy. Caches are paged.
 * Units        angle = fp32(p * inv_freq_i); eps is rms_norm_eps; Norm is (x*r)*(1+w).
 * Numerics     mean of squares strided(128) over Dh, divided by Dh; r = 1/sqrtf(mean + eps); norm and rope elementwise
 *              as written. NaN carried. Cache rows are rounded once to the cache's format (core/cache.h; fp8 saturates),
 *              after the policy's rounding; keys and values may have other formats and scales than each other.
 * Determinism  bit-exact on every device. No other cache row changes.
 * Errors       none; position + T <= P is the decoder's to keep. Traces may be NULL.
 * Source       model-spec 2.1, 2.5, 2.7. */
struct plumb_attn_qk_rope {
	int64_t T;
	const int32_t *position;           /* in    (1) */
	const float *qg;                   /* in    (T, Hq, 2, Dh) */
	const float *k;                    /* in    (T, Hkv, Dh) */
	const float *v;                    /* in    (T, Hkv, Dh) */
	const float *rope;                 /* const (P, 2, Dr/2) */
	const struct plumb_weight *q_norm; /* w     (1, Dh) */
	const struct plumb_weight *k_norm; /* w     (1, Dh) */
	float *q;                          /* out   (T, Hq, Dh) */
	struct plumb_cache *keys;          /* state (P, Hkv*Dh) */
	struct plumb_cache *values;        /* state (P, Hkv*Dh) */
	float *q_normed;                   /* trace (T, Hq, Dh) or NULL */
	float *k_normed;                   /* trace (T, Hkv, Dh) or NULL */
};

/* Computes     A(p) = the tokens of the selected blocks, and the tail B*floor((p+1)/B)..p; s_j = rne(rne(q.k_j) * scale),
 *              scale = fp32(Dh^-0.5); P = rne(softmax over A(p)); o = rne(sum_j P_j v_j).
 *              Query head h reads kv head h / (Hq/Hkv).
 * Shapes       q (T, Hq, Dh), caches (P, Hkv*Dh), block (T, N), count (T), position (1), o (T, Hq, Dh).
 * Layout       block: ascending block indices, count[t] of them, the rest -1. Caches are paged.
 * Units        positions and blocks, 0-based.
 * Numerics     j runs over A(p) ascending, index i in that list. q.k strided(256) over Dh. The softmax sum is taken in
 *              tiles of 32 (PLUMB_ATTN_TILE) list entries: m_t = the tile's maximum (exact, in any order); S_t =
 *              strided(32) sum of exp(s_i - m_t), where +0 stands for an m_t of -Inf; max = the largest m_t; L =
 *              strided(32) over t of S_t * exp(m_t - max). P_i = rne(exp(s_i - max) / L). o: chunks of 64
 *              (PLUMB_ATTN_CHUNK) list entries, each serial by fmaf from +0; to the first chunk's sum the others are
 *              added left to right; one rne. k_j and v_j are what the caches hold, widened to binary32 (fp8: code
 *              times scale, rounded once). NaN carried (a NaN score makes the whole head NaN).
 * Determinism  bit-exact on every device; cache rows outside A(p) are not read.
 * Errors       none. A(p) is never empty: p is in the tail, or its own block is complete and N >= 1 blocks are taken.
 * Source       model-spec 2.7, 2.8 (A(p)). */
struct plumb_attn_decode {
	int64_t T;
	const int32_t *position;          /* in  (1) */
	const float *q;                   /* in  (T, Hq, Dh) */
	const struct plumb_cache *keys;   /* in  (P, Hkv*Dh) */
	const struct plumb_cache *values; /* in  (P, Hkv*Dh) */
	const int32_t *block;             /* in  (T, N) */
	const int32_t *count;             /* in  (T) */
	float *o;                         /* out (T, Hq, Dh) */
};

/* Computes     out = rne(o * rne(sigmoid(gate))).
 * Shapes       o (T, Hq, Dh), qg (T, Hq, 2, Dh), out (T, Hq*Dh).
 * Layout       row-major; the gate is the second half of each head of qg.
 * Units        none.
 * Numerics     elementwise. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.7. */
struct plumb_attn_gate {
	int64_t T;
	const float *o;  /* in  (T, Hq, Dh) */
	const float *qg; /* in  (T, Hq, 2, Dh) */
	float *out;      /* out (T, Hq*Dh) */
};

/* Computes     y = rne(w . x).
 * Shapes       x (T, Hq*Dh), w (D, Hq*Dh), y (T, D).
 * Layout       row-major.
 * Units        none.
 * Numerics     binary32; rows split(pieces, 256) with rows D. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.7. */
struct plumb_attn_out_proj {
	int64_t T;
	const float *x;               /* in  (T, Hq*Dh) */
	const struct plumb_weight *w; /* w   (D, Hq*Dh) */
	float *y;                     /* out (T, D) */
};

#endif
