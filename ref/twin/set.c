/* SPDX-License-Identifier: MIT */
#include "ref/twin/twin.h"

const struct plumb_set plumb_ref_twin = {
	.name = "ref",
	.op =
		{
			[PLUMB_EMBED] = embed_twin,
			[PLUMB_PLE_EMBED] = ple_embed_twin,
			[PLUMB_PLE_GATE] = ple_gate_twin,
			[PLUMB_PLE_CONV] = ple_conv_twin,
			[PLUMB_HC_NORM_DOWN] = hc_norm_down_twin,
			[PLUMB_HC_UP_MIX] = hc_up_mix_twin,
			[PLUMB_HC_INJECT] = hc_inject_twin,
			[PLUMB_GDN_IN_PROJ] = gdn_in_proj_twin,
			[PLUMB_GDN_CONV] = gdn_conv_twin,
			[PLUMB_GDN_RECURRENCE] = gdn_recurrence_twin,
			[PLUMB_GDN_NORM_GATE] = gdn_norm_gate_twin,
			[PLUMB_GDN_OUT_PROJ] = gdn_out_proj_twin,
			[PLUMB_ATTN_IN_PROJ] = attn_in_proj_twin,
			[PLUMB_ATTN_QK_ROPE] = attn_qk_rope_twin,
			[PLUMB_QSA_PROJECT] = qsa_project_twin,
			[PLUMB_QSA_SCORE] = qsa_score_twin,
			[PLUMB_QSA_SELECT] = qsa_select_twin,
			[PLUMB_ATTN_DECODE] = attn_decode_twin,
			[PLUMB_ATTN_GATE] = attn_gate_twin,
			[PLUMB_ATTN_OUT_PROJ] = attn_out_proj_twin,
			[PLUMB_MOE_ROUTER] = moe_router_twin,
			[PLUMB_MOE_GATE_UP] = moe_gate_up_twin,
			[PLUMB_MOE_DOWN] = moe_down_twin,
			[PLUMB_LM_HEAD] = lm_head_twin,
			[PLUMB_ARGMAX] = argmax_twin,
		},
};
