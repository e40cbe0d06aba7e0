/* SPDX-License-Identifier: MIT */
#include "opt/opt.h"

const struct plumb_set plumb_opt_set = {
	.name = "opt",
	.op =
		{
			[PLUMB_EMBED] = embed_opt,
			[PLUMB_PLE_EMBED] = ple_embed_opt,
			[PLUMB_PLE_GATE] = ple_gate_opt,
			[PLUMB_PLE_CONV] = ple_conv_opt,
			[PLUMB_HC_NORM_DOWN] = hc_norm_down_opt,
			[PLUMB_HC_UP_MIX] = hc_up_mix_opt,
			[PLUMB_HC_INJECT] = hc_inject_opt,
			[PLUMB_GDN_IN_PROJ] = gdn_in_proj_opt,
			[PLUMB_GDN_CONV] = gdn_conv_opt,
			[PLUMB_GDN_RECURRENCE] = gdn_recurrence_opt,
			[PLUMB_GDN_NORM_GATE] = gdn_norm_gate_opt,
			[PLUMB_GDN_OUT_PROJ] = gdn_out_proj_opt,
			[PLUMB_ATTN_IN_PROJ] = attn_in_proj_opt,
			[PLUMB_ATTN_QK_ROPE] = attn_qk_rope_opt,
			[PLUMB_QSA_PROJECT] = qsa_project_opt,
			[PLUMB_QSA_SCORE] = qsa_score_opt,
			[PLUMB_QSA_SELECT] = qsa_select_opt,
			[PLUMB_ATTN_DECODE] = attn_decode_opt,
			[PLUMB_ATTN_GATE] = attn_gate_opt,
			[PLUMB_ATTN_OUT_PROJ] = attn_out_proj_opt,
			[PLUMB_MOE_ROUTER] = moe_router_opt,
			[PLUMB_MOE_GATE_UP] = moe_gate_up_opt,
			[PLUMB_MOE_DOWN] = moe_down_opt,
			[PLUMB_LM_HEAD] = lm_head_opt,
			[PLUMB_ARGMAX] = argmax_opt,
		},
};
