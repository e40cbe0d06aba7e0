/* SPDX-License-Identifier: MIT */
/* The reference set in oracle mode: the specification in plain C.
 *
 * Every op computes in binary64 from its stored inputs and rounds once to binary32 where it stores an output; under
 * policy bf16 it rounds at every point that model-spec.md writes as rne. One file a stage; contracts in core/ops/.
 * Rows of a call are independent (or, for recurrent state, taken in order), so T rows at once give the same bits as T
 * calls of one row, with any number of threads. */
#ifndef PLUMB_REF_REF_H
#define PLUMB_REF_REF_H

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The set. */
extern const struct plumb_set plumb_ref_oracle;

plumb_op_fn embed_ref;
plumb_op_fn ple_embed_ref, ple_gate_ref, ple_conv_ref;
plumb_op_fn hc_norm_down_ref, hc_up_mix_ref, hc_inject_ref;
plumb_op_fn gdn_in_proj_ref, gdn_conv_ref, gdn_recurrence_ref, gdn_norm_gate_ref, gdn_out_proj_ref;
plumb_op_fn attn_in_proj_ref, attn_qk_rope_ref, attn_decode_ref, attn_gate_ref, attn_out_proj_ref;
plumb_op_fn qsa_project_ref, qsa_score_ref, qsa_select_ref;
plumb_op_fn moe_router_ref, moe_gate_up_ref, moe_down_ref;
plumb_op_fn lm_head_ref, argmax_ref;

#ifdef __cplusplus
}
#endif
#endif
