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

plumb_op_fn embed_twin;
plumb_op_fn ple_embed_twin, ple_gate_twin, ple_conv_twin;
plumb_op_fn hc_norm_down_twin, hc_up_mix_twin, hc_inject_twin;
plumb_op_fn gdn_in_proj_twin, gdn_conv_twin, gdn_recurrence_twin, gdn_norm_gate_twin, gdn_out_proj_twin;
plumb_op_fn attn_in_proj_twin, attn_qk_rope_twin, attn_decode_twin, attn_gate_twin, attn_out_proj_twin;
plumb_op_fn qsa_project_twin, qsa_score_twin, qsa_select_twin;
plumb_op_fn moe_router_twin, moe_gate_up_twin, moe_down_twin;
plumb_op_fn lm_head_twin, argmax_twin;

/* rne of the contracts. */
static inline float twin_rne(const struct plumb_env *env, float x)
{
	return env->policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(x) : x;
}

/* strided(width) over n products a[k]*b[k]; width is PLUMB_ROW_LANES or PLUMB_HEAD_LANES. */
float twin_dot(const float *a, const float *b, int64_t n, int width);

/* strided(width) over n values, by plain addition. */
float twin_sum(const float *a, int64_t n, int width);

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
