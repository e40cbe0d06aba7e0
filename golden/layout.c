/* SPDX-License-Identifier: MIT */
#include "golden/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SOURCE(dataset_, scope_, form_, op_, site_, operand_, shape_, ...)                                                 \
	{                                                                                                                  \
		.dataset = dataset_, .scope = PLUMB_GOLDEN_##scope_, .form = PLUMB_GOLDEN_##form_, .op = PLUMB_##op_,      \
		.site = PLUMB_SITE_##site_, .operand = operand_, .shape = shape_, __VA_ARGS__                              \
	}

const struct plumb_golden_source plumb_golden_sources[] = {
	SOURCE("embed/output", OUTSIDE, FIRST_STREAM, EMBED, NONE, "residual", "T D", ),
	SOURCE("input", FIRST, ROWS, EMBED, NONE, "residual", "T S*D", ),
	SOURCE("ple/embedding/output", EVERY, ROWS, PLE_EMBED, NONE, "embedding", "T De", ),
	SOURCE("ple/output", EVERY, ROWS, PLE_CONV, NONE, "output", "T S*D", ),
	SOURCE("attn_hc/mixed", EVERY, ROWS, HC_UP_MIX, ATTN, "mixed", "T D", ),
	SOURCE("attn_hc/injection", EVERY, ROWS, HC_UP_MIX, ATTN, "injection", "T S", ),
	SOURCE("gdn/in_proj_qkv/output", EVERY, ROWS, GDN_IN_PROJ, NONE, "qkv", "T C", ),
	SOURCE("gdn/in_proj_z/output", EVERY, ROWS, GDN_IN_PROJ, NONE, "z", "T Hv*Dv", ),
	SOURCE("gdn/in_proj_b/output", EVERY, ROWS, GDN_IN_PROJ, NONE, "b", "T Hv", ),
	SOURCE("gdn/in_proj_a/output", EVERY, ROWS, GDN_IN_PROJ, NONE, "a", "T Hv", ),
	SOURCE("gdn/recurrence", EVERY, ROWS, GDN_RECURRENCE, NONE, "o", "T*Hv Dv", ),
	SOURCE("gdn/norm/output", EVERY, ROWS, GDN_NORM_GATE, NONE, "out", "T*Hv Dv", ),
	SOURCE("gdn/output", EVERY, ROWS, GDN_OUT_PROJ, NONE, "y", "T D", ),
	SOURCE("attention/v_proj/output", EVERY, ROWS, ATTN_IN_PROJ, NONE, "v", "T Hkv*Dh", ),
	SOURCE("attention/q_norm/output", EVERY, ROWS, ATTN_QK_ROPE, NONE, "q_normed", "T Hq Dh", .trace = true),
	SOURCE("attention/k_norm/output", EVERY, ROWS, ATTN_QK_ROPE, NONE, "k_normed", "T Hkv Dh", .trace = true),
	SOURCE("state/keys", EVERY, CACHE_HEADS, ATTN_QK_ROPE, NONE, "keys", "Hkv T Dh", ),
	SOURCE("state/values", EVERY, CACHE_HEADS, ATTN_QK_ROPE, NONE, "values", "Hkv T Dh", ),
	SOURCE("state/indexer_keys", EVERY, CACHE_ROWS, QSA_PROJECT, NONE, "raw_keys", "T Di", ),
	SOURCE("qsa/selected_mask", EVERY, MASK, QSA_SELECT, NONE, "block", "1 T T", ),
	SOURCE("attention/gated", EVERY, ROWS, ATTN_GATE, NONE, "out", "T Hq*Dh", ),
	SOURCE("attention/output", EVERY, ROWS, ATTN_OUT_PROJ, NONE, "y", "T D", ),
	SOURCE("mlp_hc/mixed", EVERY, ROWS, HC_UP_MIX, MLP, "mixed", "T D", ),
	SOURCE("mlp_hc/injection", EVERY, ROWS, HC_UP_MIX, MLP, "injection", "T S", ),
	SOURCE("moe/router/logits", EVERY, ROWS, MOE_ROUTER, NONE, "logits", "T E", ),
	SOURCE("moe/router/experts", EVERY, EXPERTS, MOE_ROUTER, NONE, "expert", "T A", .integer = true),
	SOURCE("moe/router/weights", EVERY, ROWS, MOE_ROUTER, NONE, "weight", "T A", ),
	SOURCE("moe/routed/output", EVERY, ROWS, MOE_DOWN, NONE, "routed", "T D", .trace = true),
	SOURCE("moe/shared/output", EVERY, ROWS, MOE_DOWN, NONE, "shared", "T D", .trace = true),
	SOURCE("moe/output", EVERY, ROWS, MOE_DOWN, NONE, "y", "T D", ),
	SOURCE("output", EVERY, ROWS, HC_INJECT, MLP, "residual_out", "T S*D", ),
	SOURCE("input", NEXT, ROWS, HC_INJECT, MLP, "residual_out", "T S*D", ),
	SOURCE("mixer/output", OUTSIDE, ROWS, HC_UP_MIX, FINAL, "mixed", "T D", ),
	SOURCE("logits", OUTSIDE, ROWS, LM_HEAD, NONE, "logits", "T V", ),
	SOURCE("state/conv_states0", EVERY, STATE, GDN_CONV, NONE, NULL, "C Kc", ),
	SOURCE("state/recurrent_states0", EVERY, STATE, GDN_RECURRENCE, NONE, NULL, "Hv Dk Dv", ),
	SOURCE("state/conv_states1", EVERY, STATE, PLE_CONV, NONE, NULL, "S*D W", ),
	SOURCE("state/conv_states2", EVERY, STATE, PLE_EMBED, NONE, NULL, "G-1", .integer = true),
};
const int plumb_golden_source_count = sizeof plumb_golden_sources / sizeof plumb_golden_sources[0];

bool plumb_golden_dataset_name(
	const struct plumb_golden_source *source, const struct plumb_config *cfg, int layer, char *name, int size)
{
	switch (source->scope) {
	case PLUMB_GOLDEN_OUTSIDE:
		snprintf(name, (size_t)size, "%s", source->dataset);
		return true;
	case PLUMB_GOLDEN_FIRST:
		layer = 0;
		break;
	case PLUMB_GOLDEN_NEXT:
		layer++;
		break;
	case PLUMB_GOLDEN_EVERY:
		break;
	}
	snprintf(name, (size_t)size, "layer%02d/%s", layer, source->dataset);
	return layer < cfg->layers;
}

static bool in_scope(const struct plumb_golden_source *s, const struct plumb_config *cfg, int layer)
{
	switch (s->scope) {
	case PLUMB_GOLDEN_OUTSIDE:
		return false;
	case PLUMB_GOLDEN_FIRST:
		return layer == 0;
	case PLUMB_GOLDEN_NEXT:
		return layer > 0;
	case PLUMB_GOLDEN_EVERY:
		break;
	}
	return plumb_op_runs(cfg, s->op, layer);
}

/* "layer3/input" is not "layer03/input": one tensor has one name. */
static bool canonical(const char *name, int layer)
{
	char prefix[32];
	int n = snprintf(prefix, sizeof prefix, "layer%02d/", layer);
	return strncmp(name, prefix, (size_t)n) == 0;
}

const struct plumb_golden_source *plumb_golden_source_find(const struct plumb_config *cfg, const char *name, int *layer)
{
	const char *rest = name;
	*layer = cfg->layers;
	if (strncmp(name, "layer", 5) == 0 && name[5] >= '0' && name[5] <= '9') {
		char *end;
		long l = strtol(name + 5, &end, 10);
		if (*end != '/' || l < 0 || l >= cfg->layers)
			return NULL;
		*layer = (int)l;
		rest = end + 1;
	}
	for (int i = 0; i < plumb_golden_source_count; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		if (strcmp(s->dataset, rest) != 0)
			continue;
		if (rest == name ? s->scope == PLUMB_GOLDEN_OUTSIDE : in_scope(s, cfg, *layer) && canonical(name, *layer))
			return s;
	}
	return NULL;
}

/* A ring of window rows as [channels, columns], oldest first, last column = last token. */
static void ring_columns(const float *ring, int64_t rows, int64_t channels, int64_t position, float *out)
{
	for (int64_t j = 0; j < rows; j++) {
		int64_t p = position - rows + j;
		for (int64_t c = 0; c < channels; c++)
			out[c * rows + j] = p < 0 ? 0.0f : ring[p % rows * channels + c];
	}
}

void plumb_golden_state(const struct plumb_golden_source *source, const struct plumb_config *cfg,
	const struct plumb_layer_state *state, int64_t position, float *f32, int64_t *i64)
{
	int64_t Hv = cfg->gdn_value_heads, Dk = cfg->gdn_key_dim, Dv = cfg->gdn_value_dim;

	switch (source->op) {
	case PLUMB_GDN_CONV:
		ring_columns(state->gdn.window, cfg->gdn_conv_taps, plumb_gdn_channels(cfg), position, f32);
		break;
	case PLUMB_GDN_RECURRENCE: /* (Hv, Dv, Dk) here, key axis first in the file */
		for (int64_t h = 0; h < Hv; h++)
			for (int64_t v = 0; v < Dv; v++)
				for (int64_t k = 0; k < Dk; k++)
					plumb_decode(state->gdn.format,
						(const char *)state->gdn.s +
							plumb_format_row_bytes(state->gdn.format, (h * Dv + v) * Dk + k),
						1, &f32[(h * Dk + k) * Dv + v]);
		break;
	case PLUMB_PLE_CONV:
		ring_columns(state->ple.window, plumb_ple_history(cfg), cfg->streams * cfg->hidden, position, f32);
		break;
	default: /* PLUMB_PLE_EMBED */
		memcpy(i64, state->ple.history, (size_t)(cfg->ngram - 1) * sizeof *i64);
		break;
	}
}
