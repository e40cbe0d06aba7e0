/* SPDX-License-Identifier: MIT */
#include "core/flow.h"

#include <string.h>

int plumb_flow_order(const struct plumb_config *cfg, int layer, struct plumb_step out[PLUMB_FLOW_MAX])
{
	static const struct plumb_step order[] = {
		{PLUMB_EMBED, PLUMB_SITE_NONE},
		/* a layer: the PLE, if it has one; its mixer, which is a GDN or attention; the MoE */
		{PLUMB_PLE_EMBED, PLUMB_SITE_NONE},
		{PLUMB_PLE_GATE, PLUMB_SITE_NONE},
		{PLUMB_PLE_CONV, PLUMB_SITE_NONE},
		{PLUMB_HC_NORM_DOWN, PLUMB_SITE_ATTN},
		{PLUMB_HC_UP_MIX, PLUMB_SITE_ATTN},
		{PLUMB_GDN_IN_PROJ, PLUMB_SITE_NONE},
		{PLUMB_GDN_CONV, PLUMB_SITE_NONE},
		{PLUMB_GDN_RECURRENCE, PLUMB_SITE_NONE},
		{PLUMB_GDN_NORM_GATE, PLUMB_SITE_NONE},
		{PLUMB_GDN_OUT_PROJ, PLUMB_SITE_NONE},
		{PLUMB_ATTN_IN_PROJ, PLUMB_SITE_NONE},
		{PLUMB_ATTN_QK_ROPE, PLUMB_SITE_NONE},
		{PLUMB_QSA_PROJECT, PLUMB_SITE_NONE}, /* the indexer chooses what attention reads */
		{PLUMB_QSA_SCORE, PLUMB_SITE_NONE},
		{PLUMB_QSA_SELECT, PLUMB_SITE_NONE},
		{PLUMB_ATTN_DECODE, PLUMB_SITE_NONE},
		{PLUMB_ATTN_GATE, PLUMB_SITE_NONE},
		{PLUMB_ATTN_OUT_PROJ, PLUMB_SITE_NONE},
		{PLUMB_HC_INJECT, PLUMB_SITE_ATTN},
		{PLUMB_HC_NORM_DOWN, PLUMB_SITE_MLP},
		{PLUMB_HC_UP_MIX, PLUMB_SITE_MLP},
		{PLUMB_MOE_ROUTER, PLUMB_SITE_NONE},
		{PLUMB_MOE_GATE_UP, PLUMB_SITE_NONE},
		{PLUMB_MOE_DOWN, PLUMB_SITE_NONE},
		{PLUMB_HC_INJECT, PLUMB_SITE_MLP},
		/* after the layers */
		{PLUMB_HC_NORM_DOWN, PLUMB_SITE_FINAL},
		{PLUMB_HC_UP_MIX, PLUMB_SITE_FINAL},
		{PLUMB_LM_HEAD, PLUMB_SITE_NONE},
		{PLUMB_ARGMAX, PLUMB_SITE_NONE},
	};
	_Static_assert(sizeof order / sizeof order[0] <= PLUMB_FLOW_MAX, "room for every step");
	const bool outside = layer == cfg->layers;
	int n = 0;

	for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
		enum plumb_site site = order[i].site;
		if (plumb_op_runs(cfg, order[i].op, layer) &&
			(site == PLUMB_SITE_NONE || outside == (site == PLUMB_SITE_FINAL)))
			out[n++] = order[i];
	}
	return n;
}

/* An output and an input that reads it. Residuals go to every op that has one. */
static const struct edge {
	enum plumb_op from;
	const char *output;
	enum plumb_op to; /* PLUMB_OP_COUNT: whoever runs the decoder */
	const char *input;
} edges[] = {
	{PLUMB_PLE_EMBED, "embedding", PLUMB_PLE_GATE, "embedding"},
	{PLUMB_PLE_GATE, "gated", PLUMB_PLE_CONV, "gated"},
	{PLUMB_PLE_GATE, "conv_in", PLUMB_PLE_CONV, "conv_in"},
	{PLUMB_HC_NORM_DOWN, "normed", PLUMB_HC_UP_MIX, "normed"},
	{PLUMB_HC_NORM_DOWN, "low", PLUMB_HC_UP_MIX, "low"},
	{PLUMB_HC_NORM_DOWN, "inject_logits", PLUMB_HC_UP_MIX, "inject_logits"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_GDN_IN_PROJ, "x"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_ATTN_IN_PROJ, "x"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_QSA_PROJECT, "x"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_MOE_ROUTER, "x"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_MOE_GATE_UP, "x"},
	{PLUMB_HC_UP_MIX, "mixed", PLUMB_LM_HEAD, "x"},
	{PLUMB_HC_UP_MIX, "injection", PLUMB_HC_INJECT, "injection"},
	{PLUMB_GDN_IN_PROJ, "qkv", PLUMB_GDN_CONV, "qkv"},
	{PLUMB_GDN_IN_PROJ, "z", PLUMB_GDN_NORM_GATE, "z"},
	{PLUMB_GDN_IN_PROJ, "b", PLUMB_GDN_RECURRENCE, "b"},
	{PLUMB_GDN_IN_PROJ, "a", PLUMB_GDN_RECURRENCE, "a"},
	{PLUMB_GDN_CONV, "y", PLUMB_GDN_RECURRENCE, "y"},
	{PLUMB_GDN_RECURRENCE, "o", PLUMB_GDN_NORM_GATE, "o"},
	{PLUMB_GDN_NORM_GATE, "out", PLUMB_GDN_OUT_PROJ, "x"},
	{PLUMB_GDN_OUT_PROJ, "y", PLUMB_HC_INJECT, "branch"},
	{PLUMB_ATTN_IN_PROJ, "qg", PLUMB_ATTN_QK_ROPE, "qg"},
	{PLUMB_ATTN_IN_PROJ, "qg", PLUMB_ATTN_GATE, "qg"},
	{PLUMB_ATTN_IN_PROJ, "k", PLUMB_ATTN_QK_ROPE, "k"},
	{PLUMB_ATTN_IN_PROJ, "v", PLUMB_ATTN_QK_ROPE, "v"},
	{PLUMB_ATTN_QK_ROPE, "q", PLUMB_ATTN_DECODE, "q"},
	{PLUMB_QSA_PROJECT, "query", PLUMB_QSA_SCORE, "query"},
	{PLUMB_QSA_SCORE, "score", PLUMB_QSA_SELECT, "score"},
	{PLUMB_QSA_SELECT, "block", PLUMB_ATTN_DECODE, "block"},
	{PLUMB_QSA_SELECT, "count", PLUMB_ATTN_DECODE, "count"},
	{PLUMB_ATTN_DECODE, "o", PLUMB_ATTN_GATE, "o"},
	{PLUMB_ATTN_GATE, "out", PLUMB_ATTN_OUT_PROJ, "x"},
	{PLUMB_ATTN_OUT_PROJ, "y", PLUMB_HC_INJECT, "branch"},
	{PLUMB_MOE_ROUTER, "expert", PLUMB_MOE_GATE_UP, "expert"},
	{PLUMB_MOE_ROUTER, "expert", PLUMB_MOE_DOWN, "expert"},
	{PLUMB_MOE_ROUTER, "weight", PLUMB_MOE_DOWN, "weight"},
	{PLUMB_MOE_ROUTER, "shared_weight", PLUMB_MOE_DOWN, "shared_weight"},
	{PLUMB_MOE_GATE_UP, "hidden", PLUMB_MOE_DOWN, "hidden"},
	{PLUMB_MOE_GATE_UP, "shared_hidden", PLUMB_MOE_DOWN, "shared_hidden"},
	{PLUMB_MOE_DOWN, "y", PLUMB_HC_INJECT, "branch"},
	{PLUMB_LM_HEAD, "logits", PLUMB_ARGMAX, "logits"},
	{PLUMB_LM_HEAD, "logits", PLUMB_OP_COUNT, ""},
	{PLUMB_ARGMAX, "token", PLUMB_OP_COUNT, ""},
};
enum { EDGES = sizeof edges / sizeof edges[0] };

static bool is_residual(const char *output)
{
	return strcmp(output, "residual") == 0 || strcmp(output, "residual_out") == 0;
}

bool plumb_flow_feeds(enum plumb_op from, const char *output, enum plumb_op to, const char *input)
{
	bool feeds = is_residual(output) && strcmp(input, "residual") == 0;
	for (int i = 0; i < EDGES; i++)
		feeds = feeds || (edges[i].from == from && edges[i].to == to && strcmp(edges[i].output, output) == 0 &&
					 strcmp(edges[i].input, input) == 0);
	return feeds;
}

static bool is_among(enum plumb_op op, const enum plumb_op *covered, int count)
{
	bool among = false;
	for (int i = 0; i < count; i++)
		among = among || covered[i] == op;
	return among;
}

bool plumb_flow_leaves(enum plumb_op from, const char *output, const enum plumb_op *covered, int count)
{
	bool leaves = is_residual(output); /* the stream goes on */
	for (int i = 0; i < EDGES; i++)
		leaves = leaves || (edges[i].from == from && strcmp(edges[i].output, output) == 0 &&
					   !is_among(edges[i].to, covered, count));
	return leaves;
}
