/* SPDX-License-Identifier: MIT */
/* Contracts of the head. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding. */
#ifndef PLUMB_CORE_OPS_LM_HEAD_H
#define PLUMB_CORE_OPS_LM_HEAD_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     logits = rne(w . x).
 * Shapes       x (T, D), w (V, D), logits (T, V).
 * Layout       row-major.
 * Units        none.
 * Numerics     binary32; rows split(pieces, 256) with rows V. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.2 step 3, 2.10. */
struct plumb_lm_head {
	int64_t T;
	const float *x;               /* in  (T, D) */
	const struct plumb_weight *w; /* w   (V, D) */
	float *logits;                /* out (T, V) */
};

/* Computes     token[t] = index of the largest logit of row t.
 * Shapes       logits (T, V), token (T).
 * Layout       row-major.
 * Units        token ids.
 * Numerics     the lowest index among equals; -0 equals +0; NaN ranks below every number. A row without any number (all
 *              NaN) gives -1, never a token.
 * Determinism  bit-exact on every device.
 * Errors       -1 is for the caller to report.
 * Source       model-spec 2.12. */
struct plumb_argmax {
	int64_t T;
	const float *logits; /* in  (T, V) */
	int32_t *token;      /* out (T) */
};

#endif
