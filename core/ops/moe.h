/* SPDX-License-Identifier: MIT */
/* Contracts of the mixture-of-experts stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's
 * rounding. */
#ifndef PLUMB_CORE_OPS_MOE_H
#define PLUMB_CORE_OPS_MOE_H

#include "core/cache.h"
#include "core/op.h"

/* Computes     logits = rne(gate . x); prob = softmax(logits); expert = top A of prob in rank order;
 *              weight = rne(prob / sum of the A chosen) or, norm_topk_prob false, rne(prob);
 *              shared_weight = rne(sigmoid(rne(shared_gate . x))).
 * Shapes       x (T, D), gate (E, D), shared_gate (1, D), logits (T, E), expert (T, A), weight (T, A),
 *              shared_weight (T).
 * Layout       row-major; slot k of expert and weight is rank k.
 * Units        expert ids.
 * Numerics     rows split(pieces, 256) with rows E + 1, gate and shared gate together; softmax of the stored logits in
 *              binary32 under both policies: max = the largest, NaN when any is; e = exp(l - max); sum of e
 *              strided(256); prob = e / sum; top A by prob: larger first, then lower index, NaN below every number
 *              (--ties torch, oracle only: as torch.topk on the CPU); sum of the chosen serial in slot order.
 * Determinism  bit-exact on every device.
 * Errors       a NaN logit, one of +Inf, or all of -Inf make every prob and so every weight of the token NaN; its
 *              expert ids are then 0..A-1: always distinct and in range.
 * Source       model-spec 2.9, 2.12. */
struct plumb_moe_router {
	int64_t T;
	const float *x;                         /* in  (T, D) */
	const struct plumb_weight *gate;        /* w   (E, D) */
	const struct plumb_weight *shared_gate; /* w   (1, D) */
	float *logits;                          /* out (T, E) */
	int32_t *expert;                        /* out (T, A) */
	float *weight;                          /* out (T, A) */
	float *shared_weight;                   /* out (T) */
};

/* Computes     for each slot k, expert e: hidden[k] = rne(rne(silu(rne(gate_e . x))) * rne(up_e . x));
 *              shared_hidden the same with the shared expert.
 * Shapes       x (T, D), expert (T, A), gate, up: E of (F, D), shared_gate, shared_up (Fs, D), hidden (T, A, F),
 *              shared_hidden (T, Fs).
 * Layout       row-major; slots in the order of expert.
 * Units        none.
 * Numerics     rows split(pieces, 256) with rows 2*(A*F + Fs); a product of two rounded values, no fma. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       an id outside 0..E-1 reads no weight and makes hidden of its slot NaN: no router that keeps its contract
 *              gives one, so it must show.
 * Source       model-spec 2.9. */
struct plumb_moe_gate_up {
	int64_t T;
	const float *x;                         /* in   (T, D) */
	const int32_t *expert;                  /* in   (T, A) */
	const struct plumb_weight *gate;        /* bank (E) of (F, D) */
	const struct plumb_weight *up;          /* bank (E) of (F, D) */
	const struct plumb_weight *shared_gate; /* w    (Fs, D) */
	const struct plumb_weight *shared_up;   /* w    (Fs, D) */
	float *hidden;                          /* out  (T, A, F) */
	float *shared_hidden;                   /* out  (T, Fs) */
};

/* Computes     routed = rne(sum over slots k, in order, of rne(rne(down_e . hidden[k]) * weight[k]));
 *              shared = rne(shared_down . shared_hidden); y = rne(routed + rne(shared_weight * shared)).
 * Shapes       hidden (T, A, F), shared_hidden (T, Fs), expert, weight (T, A), shared_weight (T), down: E of (D, F),
 *              shared_down (D, Fs), y (T, D), traces routed, shared (T, D).
 * Layout       row-major.
 * Units        none.
 * Numerics     rows of every expert and of the shared one split(pieces, 256) with rows D*(A+1), the pieces by the
 *              columns of each: F and Fs; slot sum serial from +0: a product, then a sum, no fma. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       an id outside 0..E-1 reads no weight and makes routed and y of its token NaN. Traces may be NULL.
 * Source       model-spec 2.9. */
struct plumb_moe_down {
	int64_t T;
	const float *hidden;                    /* in    (T, A, F) */
	const float *shared_hidden;             /* in    (T, Fs) */
	const int32_t *expert;                  /* in    (T, A) */
	const float *weight;                    /* in    (T, A) */
	const float *shared_weight;             /* in    (T) */
	const struct plumb_weight *down;        /* bank  (E) of (D, F) */
	const struct plumb_weight *shared_down; /* w     (D, Fs) */
	float *y;                               /* out   (T, D) */
	float *routed;                          /* trace (T, D) or NULL */
	float *shared;                          /* trace (T, D) or NULL */
};

#endif
