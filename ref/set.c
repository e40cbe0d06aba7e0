/* SPDX-License-Identifier: MIT */
#include "ref/ref.h"

const struct plumb_set plumb_ref_oracle = {
	.name = "ref",
	.op =
		{
			[PLUMB_EMBED] = embed_ref,
			[PLUMB_PLE_EMBED] = ple_embed_ref,
			[PLUMB_PLE_GATE] = ple_gate_ref,
			[PLUMB_PLE_CONV] = ple_conv_ref,
			[PLUMB_HC_NORM_DOWN] = hc_norm_down_ref,
			[PLUMB_HC_UP_MIX] = hc_up_mix_ref,
			[PLUMB_HC_INJECT] = hc_inject_ref,
			[PLUMB_GDN_IN_PROJ] = gdn_in_proj_ref,
			[PLUMB_GDN_CONV] = gdn_conv_ref,
			[PLUMB_GDN_RECURRENCE] = gdn_recurrence_ref,
			[PLUMB_GDN_NORM_GATE] = gdn_norm_gate_ref,
			[PLUMB_GDN_OUT_PROJ] = gdn_out_proj_ref,
			[PLUMB_ATTN_IN_PROJ] = attn_in_proj_ref,
			[PLUMB_ATTN_QK_ROPE] = attn_qk_rope_ref,
			[PLUMB_QSA_PROJECT] = qsa_project_ref,
			[PLUMB_QSA_SCORE] = qsa_score_ref,
			[PLUMB_QSA_SELECT] = qsa_select_ref,
			[PLUMB_ATTN_DECODE] = attn_decode_ref,
			[PLUMB_ATTN_GATE] = attn_gate_ref,
			[PLUMB_ATTN_OUT_PROJ] = attn_out_proj_ref,
			[PLUMB_MOE_ROUTER] = moe_router_ref,
			[PLUMB_MOE_GATE_UP] = moe_gate_up_ref,
			[PLUMB_MOE_DOWN] = moe_down_ref,
			[PLUMB_LM_HEAD] = lm_head_ref,
			[PLUMB_ARGMAX] = argmax_ref,
		},
};
