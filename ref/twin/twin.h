/* SPDX-License-Identifier: MIT */
/* The reference set in twin mode: every op in binary32, in the order its contract declares, so that it equals the kernels
 * in every bit. What the oracle says about the mathematics is not repeated here: read ref/NAME.c first. */
#ifndef PLUMB_REF_TWIN_TWIN_H
#define PLUMB_REF_TWIN_TWIN_H

#include "core/numeric.h"
#include "core/op.h"
#include "core/order.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const struct plumb_set plumb_ref_twin;

/* embed_twin, ... of every op. */
#define TWIN_FUNCTION(id, name) plumb_op_fn name##_twin;
PLUMB_EACH_OP(TWIN_FUNCTION)

/* rne of the contracts. */
static inline float twin_rne(const struct plumb_env *env, float x)
{
	return env->policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(x) : x;
}

/* strided(width) over n products a[k]*b[k]; width is PLUMB_ROW_LANES or PLUMB_HEAD_LANES. */
float twin_dot(const float *a, const float *b, int64_t n, int width);

/* strided(width) over n values, by plain addition. */
float twin_sum(const float *a, int64_t n, int width);

/* 1/sqrt(mean x^2 + eps) of a norm, eps the config's, the squares strided(width). */
float twin_inverse_rms(const struct plumb_env *env, const float *x, int64_t n, int width);

/* split(pieces, PLUMB_ROW_LANES) over n products. */
float twin_split_dot(const float *a, const float *b, int64_t n, int pieces);

/* sum[t, n] = row n of w . x[t], not rounded, split(pieces, PLUMB_ROW_LANES).
 * x: (T, K), sum: (T, N) f32; call_rows: the rows of the whole call that the contract counts.
 * Errors: PLUMB_BAD_INPUT for memory. */
int twin_linear_sum(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows,
	float *sum);

/* The same, rounded: y = rne(w . x). */
int twin_linear(
	const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows, float *y);

/* A small weight (a norm, conv taps) decoded: malloc'ed (rows, cols), or NULL with env->err set. */
float *twin_matrix(const struct plumb_env *env, const struct plumb_weight *w);

/* malloc of count floats, or NULL with env->err set. */
float *twin_scratch(const struct plumb_env *env, int64_t count);

#ifdef __cplusplus
}
#endif
#endif
