/* SPDX-License-Identifier: MIT */
/* Contracts of the QSA indexer stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding. */
#ifndef PLUMB_CORE_OPS_QSA_H
#define PLUMB_CORE_OPS_QSA_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     iq|ik = rne(w . x): Hi query heads, one raw key; query = rope(Norm(iq; q_norm)) at position p;
 *              raw key cache row p = ik (neither normed nor rotated); for every block b that p completes
 *              ((p+1) % B == 0): block key cache row b = rope(Norm(rne(mean of its B raw keys); k_norm)) at position b*B.
 * Shapes       x (T, D), w ((Hi+1)*Di, D), q_norm, k_norm (Di), rope (P, 2, Dr/2), query (T, Hi, Di),
 *              raw_keys (P, Di), block_keys (NB, Di), position (1).
 * Layout       rows 0..Hi*Di-1 of w are queries, the last Di the key. Caches are paged by the same table; a page of
 *              block keys holds page_rows/B rows.
 * Units        eps is rms_norm_eps; the same Dr dims turn as in attn_qk_rope, of a head of Di.
 * Numerics     rows split(pieces, 256) with rows (Hi+1)*Di; the B raw keys as the cache holds them, summed serially from
 *              +0, divided by B, rounded; norm as in attn_qk_rope, strided(128) over Di. NaN carried. Cache rows are
 *              rounded to the cache's format.
 * Determinism  bit-exact on every device. No other cache row changes.
 * Errors       none; position + T <= P is the decoder's to keep.
 * Source       model-spec 2.5, 2.8. */
struct plumb_qsa_project {
	int64_t T;
	const int32_t *position;           /* in    (1) */
	const float *x;                    /* in    (T, D) */
	const float *rope;                 /* const (P, 2, Dr/2) */
	const struct plumb_weight *w;      /* w     ((Hi+1)*Di, D) */
	const struct plumb_weight *q_norm; /* w     (1, Di) */
	const struct plumb_weight *k_norm; /* w     (1, Di) */
	float *query;                      /* out   (T, Hi, Di) */
	struct plumb_cache *raw_keys;      /* state (P, Di) */
	struct plumb_cache *block_keys;    /* state (NB, Di) */
};

/* Computes     for row t at p = position + t, nb = (p+1)/B complete blocks, b < nb:
 *              score[t, b] = (sum over h, in order, of relu(query_h . block_key_b)) / sqrt(Di).
 * Shapes       query (T, Hi, Di), block_keys (NB, Di), position (1), score (T, NB).
 * Layout       row-major with row length NB; entries b >= nb are written as -inf.
 * Units        none.
 * Numerics     binary32 under both policies, no rne; dot strided(128) over Di; heads serial; relu(x) = x > 0 ? x : +0,
 *              NaN carried; one division by sqrtf(Di).
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.8. */
struct plumb_qsa_score {
	int64_t T;
	const int32_t *position;              /* in  (1) */
	const float *query;                   /* in  (T, Hi, Di) */
	const struct plumb_cache *block_keys; /* in  (NB, Di) */
	float *score;                         /* out (T, NB) */
};

/* Computes     for row t at p = position + t, nb = (p+1)/B complete blocks: the min(N, nb) best blocks by score, as
 *              ascending indices.
 * Shapes       score (T, NB), position (1), block (T, N), count (T).
 * Layout       block[t, 0..count-1] ascending, the rest -1.
 * Units        block indices.
 * Numerics     larger score first, then lower index (--ties lower); -0 equals +0; NaN below every number. Under --ties
 *              torch (reference only) the choice among equals at the cut is that of torch.topk on the CPU.
 * Determinism  bit-exact on every device; the set does not depend on the order of arrival.
 * Errors       none; nb = 0 gives count 0.
 * Source       model-spec 2.8, 2.12. */
struct plumb_qsa_select {
	int64_t T;
	const int32_t *position; /* in  (1) */
	const float *score;      /* in  (T, NB) */
	int32_t *block;          /* out (T, N) */
	int32_t *count;          /* out (T) */
};

#endif
