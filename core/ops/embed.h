/* SPDX-License-Identifier: MIT */
/* Contract of the embed stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding (core/op.h). */
#ifndef PLUMB_CORE_OPS_EMBED_H
#define PLUMB_CORE_OPS_EMBED_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     residual[t, s, :] = table[token[t], :] for every stream s.
 * Shapes       token (T), table (V, D), residual (T, S, D).
 * Layout       row-major; streams contiguous, element s*D + c.
 * Units        none: the row is not scaled.
 * Numerics     exact widening to binary32; no reduction. A stored NaN is carried. Bound: 0.
 * Determinism  bit-exact on every device.
 * Errors       a token outside 0..V-1 is refused by the decoder before the call; kernels may assume it in range.
 * Source       model-spec 2.2 step 1. */
struct plumb_embed {
	int64_t T;
	const int32_t *token;             /* in  (T) */
	const struct plumb_weight *table; /* w   (V, D) */
	float *residual;                  /* out (T, S, D) */
};

#endif
