/* SPDX-License-Identifier: MIT */
/* Golden files that hold a part of the format. In the local view a tensor is judged by the rules of one op on recorded
 * inputs only if what feeds the op is recorded; where it is not, the error of the ops in between is in it too, and the
 * propagated rules are the ones that fit. And choices that nobody recorded: a cut that runs through equal scores may
 * have gone the other way there. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/moe.h"
#include "core/ops/qsa.h"
#include "ref/route.h"
#include "tools/check_internal.h"

/* What must be recorded, of the same layer; '|' between alternatives. "in": the residual that enters the layer;
 * "residual": the same behind the PLE, where there is one. What an op computes and keeps to itself is no input. */
static const struct {
	const char *dataset, *needs;
} feeds[] = {
	{"ple/output", "in,ple/embedding/output"},
	{"attn_hc/mixed", "residual"},
	{"attn_hc/injection", "residual"},
	{"gdn/in_proj_qkv/output", "attn_hc/mixed"},
	{"gdn/in_proj_z/output", "attn_hc/mixed"},
	{"gdn/in_proj_b/output", "attn_hc/mixed"},
	{"gdn/in_proj_a/output", "attn_hc/mixed"},
	{"gdn/recurrence", "gdn/in_proj_qkv/output,gdn/in_proj_b/output,gdn/in_proj_a/output"},
	{"gdn/norm/output", "gdn/recurrence,gdn/in_proj_z/output"},
	{"gdn/output", "gdn/norm/output"},
	{"attention/v_proj/output", "attn_hc/mixed"},
	{"attention/q_norm/output", "attn_hc/mixed"},
	{"attention/k_norm/output", "attn_hc/mixed"},
	{"state/keys", "attn_hc/mixed"},
	{"state/values", "attn_hc/mixed"},
	{"state/indexer_keys", "attn_hc/mixed"},
	{"qsa/selected_mask", "attn_hc/mixed"},
	{"attention/gated", "attn_hc/mixed,attention/q_norm/output,state/keys,state/values,qsa/selected_mask"},
	{"attention/output", "attention/gated"},
	{"mlp_hc/mixed", "residual,attn_hc/injection,gdn/output|attention/output"},
	{"mlp_hc/injection", "residual,attn_hc/injection,gdn/output|attention/output"},
	{"moe/router/logits", "mlp_hc/mixed"},
	{"moe/router/experts", "mlp_hc/mixed"},
	{"moe/router/weights", "mlp_hc/mixed"},
	{"moe/routed/output", "mlp_hc/mixed,moe/router/experts,moe/router/weights"},
	{"moe/shared/output", "mlp_hc/mixed"},
	{"moe/output", "mlp_hc/mixed,moe/router/experts,moe/router/weights"},
	{"output", "residual,attn_hc/injection,gdn/output|attention/output,moe/output,mlp_hc/injection"},
	{"input", "residual,attn_hc/injection,gdn/output|attention/output,moe/output,mlp_hc/injection"},
	{"state/conv_states0", "gdn/in_proj_qkv/output"},
	{"state/recurrent_states0", "gdn/in_proj_qkv/output,gdn/in_proj_b/output,gdn/in_proj_a/output"},
	{"state/conv_states1", "in,ple/embedding/output"},
};

static bool recorded(struct check_run *run, int layer, const char *dataset)
{
	char name[96];
	snprintf(name, sizeof name, "layer%02d/%s", layer, dataset);
	return check_find_name(run, name) != NULL;
}

/* The residual that enters a layer: the embedding's, which is exact, or what the layer before is known to have left. */
static bool residual_in(struct check_run *run, int layer)
{
	return layer == 0 || recorded(run, layer, "input") || recorded(run, layer - 1, "output");
}

bool check_residual_recorded(struct check_run *run, int layer)
{
	return layer + 1 == run->options->model->cfg.layers ? recorded(run, layer, "output") : residual_in(run, layer + 1);
}

/* One of the alternatives of a need. */
static bool have(struct check_run *run, int layer, const char *need)
{
	if (strcmp(need, "in") == 0)
		return residual_in(run, layer);
	if (strcmp(need, "residual") == 0)
		return plumb_ple_of_layer(&run->options->model->cfg, layer) >= 0 ? recorded(run, layer, "ple/output")
		                                                                 : residual_in(run, layer);
	return recorded(run, layer, need);
}

static bool have_all(struct check_run *run, int layer, const char *needs)
{
	for (const char *at = needs; *at;) {
		size_t n = strcspn(at, ",");
		bool any = false;
		for (const char *one = at; one < at + n;) {
			char need[48];
			size_t m = strcspn(one, "|,");
			snprintf(need, sizeof need, "%.*s", (int)m, one);
			any = any || have(run, layer, need);
			one += m + (one[m] == '|');
			if (one[0] == ',')
				break;
		}
		if (!any)
			return false;
		at += n + (at[n] == ',');
	}
	return true;
}

bool check_fed(struct check_run *run, const struct check_item *item)
{
	const struct plumb_golden_source *s = item->source;
	int L = run->options->model->cfg.layers;

	if (!s || s->op == PLUMB_EMBED)
		return true;
	if (strcmp(s->dataset, "mixer/output") == 0)
		return recorded(run, L - 1, "output");
	if (strcmp(s->dataset, "logits") == 0)
		return check_find_name(run, "mixer/output") != NULL;
	for (size_t i = 0; i < sizeof feeds / sizeof feeds[0]; i++)
		if (strcmp(feeds[i].dataset, s->dataset) == 0)
			return have_all(run, item->layer - (s->scope == PLUMB_GOLDEN_NEXT), feeds[i].needs);
	return true; /* made from the token ids alone */
}

/* ---- choices that nobody recorded ---- */

static void count_tie(struct check_run *run, const struct plumb_call *call, const char *what, const float *score, int64_t n,
	int64_t k, const int32_t *chosen, int64_t row)
{
	struct check_view *v = run->view;
	struct plumb_selection s;

	if (n <= k)
		return;
	plumb_compare_topk(score, n, k, chosen, k, chosen, k, 0.0, &s);
	if (s.choice == PLUMB_CHOICE_WRONG || s.tied == 0)
		return;
	if (v->untold++ == 0)
		snprintf(v->untold_first, sizeof v->untold_first, "layer%02d/%s row %lld", call->layer, what,
			(long long)row);
}

static int count_experts(struct check_run *run, const struct plumb_call *call)
{
	const struct plumb_moe_router *a = call->args;
	int64_t E = call->env->cfg->experts, A = call->env->cfg->experts_per_token;
	float *prob = malloc((size_t)E * sizeof *prob);

	if (!prob)
		return plumb_fail(run->err, PLUMB_BAD_INPUT, "out of memory for a router row");
	for (int64_t t = 0; t < a->T; t++) {
		route_prob_ref(a->logits + t * E, E, prob);
		count_tie(run, call, "moe/router/experts", prob, E, A, a->expert + t * A, call->position + t);
	}
	free(prob);
	return PLUMB_OK;
}

int check_untold(struct check_run *run, const struct plumb_call *call)
{
	if (call->op == PLUMB_MOE_ROUTER && !recorded(run, call->layer, "moe/router/experts"))
		return count_experts(run, call);
	if (call->op == PLUMB_QSA_SELECT && !recorded(run, call->layer, "qsa/selected_mask")) {
		const struct plumb_qsa_select *a = call->args;
		int64_t N = call->env->cfg->block_budget, B = call->env->cfg->block_tokens, NB = call->env->capacity / B;
		for (int64_t t = 0; t < a->T; t++)
			count_tie(run, call, "qsa/selected_mask", run->score + t * NB, (call->position + t + 1) / B, N,
				a->block + t * N, call->position + t);
	}
	return PLUMB_OK;
}
