/* SPDX-License-Identifier: MIT */
/* The optimised set: the host side of the kernels. One function an op, the same argument structs as the reference.
 *
 * A function here sees arguments whose every data pointer is valid on the device: on simt that is host memory as it is;
 * on cuda opt/mirror.c has replaced each pointer by its device copy (struct plumb_weight and struct plumb_cache stay
 * host structs whose data, scale and page members point to the device). It launches on the device's stream, one token of the T after the
 * other, and does not wait. */
#ifndef PLUMB_OPT_OPT_H
#define PLUMB_OPT_OPT_H

#include "core/op.h"
#include "core/ops/ple.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The set. */
extern const struct plumb_set plumb_opt_set;

plumb_op_fn embed_opt;
plumb_op_fn ple_embed_opt, ple_gate_opt, ple_conv_opt;
plumb_op_fn hc_norm_down_opt, hc_up_mix_opt, hc_inject_opt;
plumb_op_fn gdn_in_proj_opt, gdn_conv_opt, gdn_recurrence_opt, gdn_norm_gate_opt, gdn_out_proj_opt;
plumb_op_fn attn_in_proj_opt, attn_qk_rope_opt, attn_decode_opt, attn_gate_opt, attn_out_proj_opt;
plumb_op_fn qsa_project_opt, qsa_score_opt, qsa_select_opt;
plumb_op_fn moe_router_opt, moe_gate_up_opt, moe_down_opt;
plumb_op_fn lm_head_opt, argmax_opt;

#ifdef __cplusplus
}
#endif
#endif
