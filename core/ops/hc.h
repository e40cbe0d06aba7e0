/* SPDX-License-Identifier: MIT */
/* Contracts of the hyper-connection stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding.
 * A site is one use of the stage: before the mixer of a layer, before its MoE, and once after the last layer (there
 * without injection). */
#ifndef PLUMB_CORE_OPS_HC_H
#define PLUMB_CORE_OPS_HC_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     normed = rne(x * r * (1 + norm)), r = 1/sqrt(mean over the stream of x^2 + eps), each stream alone;
 *              low = rne(silu(rne(rne(down . normed) / S))); inject_logits = rne(rne(inject . normed) / S).
 * Shapes       residual (T, S, D), norm (S*D), down (R, S*D), inject (S, S*D), normed (T, S, D), low (T, R),
 *              inject_logits (T, S).
 * Layout       row-major; streams contiguous, so a row of down runs over all S*D.
 * Units        eps is rms_norm_eps.
 * Numerics     binary32. Mean of squares strided(256) over D, divided by D; r = 1/sqrtf(mean + eps); (x*r)*(1+w) in that
 *              order. Rows split(pieces, 256) with the rows R + S counted, inject or not, so that low does not depend on
 *              it; then a division by S. NaN carried; an Inf gives NaN at its place and zeros in the rest of its stream.
 *              LIMIT: squares that sum beyond binary32 (an rms of 4e17 at D = 2560) give r = 0, the oracle not.
 * Determinism  bit-exact on every device.
 * Errors       none. inject and inject_logits are both NULL or both set.
 * Source       model-spec 2.1 GNorm, 2.3 lines n, d, a, inj. */
struct plumb_hc_norm_down {
	int64_t T;
	const float *residual;             /* in  (T, S, D) */
	const struct plumb_weight *norm;   /* w   (1, S*D) */
	const struct plumb_weight *down;   /* w   (R, S*D) */
	const struct plumb_weight *inject; /* w   (S, S*D) or NULL */
	float *normed;                     /* out (T, S, D) */
	float *low;                        /* out (T, R) */
	float *inject_logits;              /* out (T, S) or NULL */
};

/* Computes     g = rne(sigmoid(rne(up . low))); mixed = rne((sum over s, in order, of rne(g[s]*normed[s])) / S);
 *              injection = 2 * rne(sigmoid(inject_logits)).
 * Shapes       normed (T, S, D), low (T, R), inject_logits (T, S), up (S*D, R), mixed (T, D), injection (T, S).
 * Layout       row-major; row s*D + c of up belongs to element c of stream s.
 * Units        none.
 * Numerics     binary32. Rows split(pieces, 256) with rows S*D; stream sum serial from s = 0, by plain additions, then one
 *              division by S. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none. inject_logits and injection are both NULL or both set.
 * Source       model-spec 2.3 lines g, p, x, inj. */
struct plumb_hc_up_mix {
	int64_t T;
	const float *normed;           /* in  (T, S, D) */
	const float *low;              /* in  (T, R) */
	const float *inject_logits;    /* in  (T, S) or NULL */
	const struct plumb_weight *up; /* w   (S*D, R) */
	float *mixed;                  /* out (T, D) */
	float *injection;              /* out (T, S) or NULL */
};

/* Computes     residual_out[t, s, c] = rne(residual[t, s, c] + rne(branch[t, c] * injection[t, s])).
 * Shapes       residual, residual_out (T, S, D), branch (T, D), injection (T, S).
 * Layout       row-major; streams contiguous. residual_out may be the same buffer as residual.
 * Units        injection carries its factor 2.
 * Numerics     one product, one sum, two roundings; no fma. NaN carried. Depth 2.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.2 step 2. */
struct plumb_hc_inject {
	int64_t T;
	const float *residual;  /* in  (T, S, D) */
	const float *branch;    /* in  (T, D) */
	const float *injection; /* in  (T, S) */
	float *residual_out;    /* out (T, S, D) */
};

#endif
