/* SPDX-License-Identifier: MIT */
#include "core/flow.h"

#include <stdio.h>
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

/* Whether the op at a place of a layer's order is behind the one before that place. embed begins the token: all layers lie
 * between it and what stands behind it in the last order. */
static bool is_next(const struct plumb_step *order, int i)
{
	return i > 0 && order[i - 1].op != PLUMB_EMBED;
}

int plumb_flow_fits(const struct plumb_config *cfg, int layer, const enum plumb_op *op, int count, int *stray)
{
	struct plumb_step order[PLUMB_FLOW_MAX];
	int n = plumb_flow_order(cfg, layer, order);

	for (int j = 0; j < count; j++)
		if (!plumb_op_runs(cfg, op[j], layer))
			return 0;
	for (int i = 0; i < n; i++) {
		if (!is_among(order[i].op, op, count))
			continue;
		*stray = i;
		for (int j = 0; j < count; j++)
			if (i + j >= n || order[i + j].op != op[j] || (j > 0 && !is_next(order, i + j)))
				return -1;
		i += count - 1;
	}
	return 1;
}

/* The ops that stand behind (step 1) or before (step -1) an op anywhere: "a, b or c"; "nothing". Returns text. */
static const char *neighbours(const struct plumb_config *cfg, enum plumb_op op, int step, char text[256])
{
	bool is_one[PLUMB_OP_COUNT] = {false};
	struct plumb_step order[PLUMB_FLOW_MAX];
	size_t used = 0;
	int left = 0;

	for (int l = 0; l <= cfg->layers; l++)
		for (int i = 0, n = plumb_flow_order(cfg, l, order); i < n; i++)
			if (order[i].op == op && i + step >= 0 && i + step < n && is_next(order, step > 0 ? i + 1 : i))
				is_one[order[i + step].op] = true;
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		left += is_one[i];
	snprintf(text, 256, "nothing");
	for (int i = 0; i < PLUMB_OP_COUNT && used < 256; i++)
		if (is_one[i])
			used += (size_t)snprintf(text + used, 256 - used, "%s%s", plumb_ops[i].name,
				--left > 1  ? ", "
				: left == 1 ? " or "
					    : "");
	return text;
}

static bool is_pair(const struct plumb_config *cfg, enum plumb_op first, enum plumb_op second)
{
	struct plumb_step order[PLUMB_FLOW_MAX];
	bool is = false;

	for (int l = 0; l <= cfg->layers; l++)
		for (int i = 1, n = plumb_flow_order(cfg, l, order); i < n; i++)
			is = is || (order[i - 1].op == first && order[i].op == second && is_next(order, i));
	return is;
}

bool plumb_flow_joins(const struct plumb_config *cfg, const enum plumb_op *op, int count, char *text, size_t size)
{
	char after[256], before[256];
	struct plumb_step order[PLUMB_FLOW_MAX];
	int layers = 0;

	for (int j = 1; j < count; j++)
		if (!is_pair(cfg, op[j - 1], op[j])) {
			snprintf(text, size, "no layer runs %s right after %s: after %s comes %s, before %s %s",
				plumb_ops[op[j]].name, plumb_ops[op[j - 1]].name, plumb_ops[op[j - 1]].name,
				neighbours(cfg, op[j - 1], 1, after), plumb_ops[op[j]].name,
				neighbours(cfg, op[j], -1, before));
			return false;
		}
	for (int l = 0; l <= cfg->layers; l++) {
		int i = 0, fits = plumb_flow_fits(cfg, l, op, count, &i);
		layers += fits > 0;
		if (fits >= 0)
			continue;
		int n = plumb_flow_order(cfg, l, order);
		snprintf(text, size, "layer %d runs %s without the others too, between %s and %s", l,
			plumb_ops[order[i].op].name, i > 0 ? plumb_ops[order[i - 1].op].name : "the layer before",
			i + 1 < n ? plumb_ops[order[i + 1].op].name : "the next layer");
		return false;
	}
	snprintf(text, size, "no layer runs all of them");
	return layers > 0;
}

bool plumb_flow_leaves(enum plumb_op from, const char *output, const enum plumb_op *covered, int count)
{
	bool leaves = is_residual(output); /* the stream goes on */
	for (int i = 0; i < EDGES; i++)
		leaves = leaves || (edges[i].from == from && strcmp(edges[i].output, output) == 0 &&
					   !is_among(edges[i].to, covered, count));
	return leaves;
}
