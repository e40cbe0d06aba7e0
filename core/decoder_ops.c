/* SPDX-License-Identifier: MIT */
/* What the decoder hands each op: weights of the layer, the buffers between ops, and state. One function an op, in the
 * order of core/flow.c. */
#include "core/decoder_private.h"
#include "core/ops/attention.h"
#include "core/ops/embed.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"

/* Exchange the two residual buffers after an op has written the second. */
static void advance_residual(struct plumb_activations *a)
{
	float *t = a->residual;
	a->residual = a->residual_next;
	a->residual_next = t;
}

static int run_embed(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_activations *a = &d->act;
	struct plumb_embed args = {.T = at->T, .token = a->token, .table = &d->model->embed, .residual = a->residual};
	return plumb_decoder_run(d, PLUMB_EMBED, at, &args);
}

static int run_ple_embed(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_ple_weights *w = d->model->layer[at->layer].ple;
	struct plumb_ple_state *s = &d->state.layer[at->layer].ple;
	struct plumb_activations *a = &d->act;
	struct plumb_ple_embed args = {
		.T = at->T,
		.token = a->token,
		.history = s->history,
		.ngram = &w->ngram,
		.table = w->table,
		.shards = w->shards,
		.shard_rows = w->shard_rows,
		.row = a->ple_row,
		.embedding = a->ple_embedding,
	};
	return plumb_decoder_run(d, PLUMB_PLE_EMBED, at, &args);
}

static int run_ple_gate(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_ple_weights *w = d->model->layer[at->layer].ple;
	struct plumb_activations *a = &d->act;
	struct plumb_ple_gate args = {
		.T = at->T,
		.embedding = a->ple_embedding,
		.residual = a->residual,
		.key_proj = &w->key_proj,
		.value_proj = &w->value_proj,
		.norm_key = &w->norm_key,
		.norm_query = &w->norm_query,
		.norm_conv = &w->norm_conv,
		.gated = a->ple_gated,
		.conv_in = a->ple_conv_in,
	};
	return plumb_decoder_run(d, PLUMB_PLE_GATE, at, &args);
}

static int run_ple_conv(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_ple_weights *w = d->model->layer[at->layer].ple;
	struct plumb_ple_state *s = &d->state.layer[at->layer].ple;
	struct plumb_activations *a = &d->act;
	struct plumb_ple_conv args = {
		.T = at->T,
		.position = &d->state.position,
		.gated = a->ple_gated,
		.conv_in = a->ple_conv_in,
		.residual = a->residual,
		.conv = &w->conv,
		.window = s->window,
		.output = a->ple_output,
		.residual_out = a->residual_next,
	};
	int status = plumb_decoder_run(d, PLUMB_PLE_CONV, at, &args);
	advance_residual(a);
	return status;
}

static const struct plumb_hc_weights *hc_weights(const struct plumb_decoder *d, const struct plumb_place *at)
{
	if (at->site == PLUMB_SITE_FINAL)
		return &d->model->mixer;
	return at->site == PLUMB_SITE_ATTN ? &d->model->layer[at->layer].attn_hc : &d->model->layer[at->layer].mlp_hc;
}

static int run_hc_norm_down(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_hc_weights *w = hc_weights(d, at);
	struct plumb_activations *a = &d->act;
	const bool injects = at->site != PLUMB_SITE_FINAL;
	struct plumb_hc_norm_down args = {
		.T = at->T,
		.residual = a->residual,
		.norm = &w->norm,
		.down = &w->down,
		.inject = injects ? &w->inject : NULL,
		.normed = a->normed,
		.low = a->low,
		.inject_logits = injects ? a->inject_logits : NULL,
	};
	return plumb_decoder_run(d, PLUMB_HC_NORM_DOWN, at, &args);
}

static int run_hc_up_mix(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_hc_weights *w = hc_weights(d, at);
	struct plumb_activations *a = &d->act;
	const bool injects = at->site != PLUMB_SITE_FINAL;
	struct plumb_hc_up_mix args = {
		.T = at->T,
		.normed = a->normed,
		.low = a->low,
		.inject_logits = injects ? a->inject_logits : NULL,
		.up = &w->up,
		.mixed = a->mixed,
		.injection = injects ? a->injection : NULL,
	};
	return plumb_decoder_run(d, PLUMB_HC_UP_MIX, at, &args);
}

static int run_hc_inject(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_activations *a = &d->act;
	struct plumb_hc_inject args = {
		.T = at->T,
		.residual = a->residual,
		.branch = a->branch,
		.injection = a->injection,
		.residual_out = a->residual_next,
	};
	int status = plumb_decoder_run(d, PLUMB_HC_INJECT, at, &args);
	advance_residual(a);
	return status;
}

static int run_gdn_in_proj(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_gdn_weights *w = &d->model->layer[at->layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_in_proj args = {
		.T = at->T,
		.x = a->mixed,
		.w_qkv = &w->qkv,
		.w_z = &w->z,
		.w_b = &w->b,
		.w_a = &w->a,
		.qkv = a->gdn_qkv,
		.z = a->gdn_z,
		.b = a->gdn_b,
		.a = a->gdn_a,
	};
	return plumb_decoder_run(d, PLUMB_GDN_IN_PROJ, at, &args);
}

static int run_gdn_conv(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_gdn_weights *w = &d->model->layer[at->layer].gdn;
	struct plumb_gdn_state *s = &d->state.layer[at->layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_conv args = {
		.T = at->T,
		.position = &d->state.position,
		.qkv = a->gdn_qkv,
		.conv = &w->conv,
		.window = s->window,
		.y = a->gdn_y,
	};
	return plumb_decoder_run(d, PLUMB_GDN_CONV, at, &args);
}

static int run_gdn_recurrence(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_gdn_weights *w = &d->model->layer[at->layer].gdn;
	struct plumb_gdn_state *s = &d->state.layer[at->layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_recurrence args = {
		.T = at->T,
		.y = a->gdn_y,
		.b = a->gdn_b,
		.a = a->gdn_a,
		.a_log = &w->a_log,
		.dt_bias = &w->dt_bias,
		.state = s->s,
		.state_format = s->format,
		.o = a->gdn_o,
	};
	return plumb_decoder_run(d, PLUMB_GDN_RECURRENCE, at, &args);
}

static int run_gdn_norm_gate(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_gdn_weights *w = &d->model->layer[at->layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_norm_gate args = {.T = at->T, .o = a->gdn_o, .z = a->gdn_z, .norm = &w->norm, .out = a->gdn_gated};
	return plumb_decoder_run(d, PLUMB_GDN_NORM_GATE, at, &args);
}

static int run_gdn_out_proj(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_gdn_weights *w = &d->model->layer[at->layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_out_proj args = {.T = at->T, .x = a->gdn_gated, .w = &w->out, .y = a->branch};
	return plumb_decoder_run(d, PLUMB_GDN_OUT_PROJ, at, &args);
}

static int run_attn_in_proj(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_attention_weights *w = &d->model->layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_attn_in_proj args = {
		.T = at->T,
		.x = a->mixed,
		.w_q = &w->q,
		.w_k = &w->k,
		.w_v = &w->v,
		.qg = a->attn_qg,
		.k = a->attn_k,
		.v = a->attn_v,
	};
	return plumb_decoder_run(d, PLUMB_ATTN_IN_PROJ, at, &args);
}

static int run_attn_qk_rope(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_attention_weights *w = &d->model->layer[at->layer].attention;
	struct plumb_attention_state *s = &d->state.layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_attn_qk_rope args = {
		.T = at->T,
		.position = &d->state.position,
		.qg = a->attn_qg,
		.k = a->attn_k,
		.v = a->attn_v,
		.rope = d->state.rope,
		.q_norm = &w->q_norm,
		.k_norm = &w->k_norm,
		.q = a->attn_q,
		.keys = &s->keys,
		.values = &s->values,
		.q_normed = a->attn_q_normed,
		.k_normed = a->attn_k_normed,
	};
	return plumb_decoder_run(d, PLUMB_ATTN_QK_ROPE, at, &args);
}

static int run_qsa_project(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_attention_weights *w = &d->model->layer[at->layer].attention;
	struct plumb_attention_state *s = &d->state.layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_qsa_project args = {
		.T = at->T,
		.position = &d->state.position,
		.x = a->mixed,
		.rope = d->state.rope,
		.w = &w->index_qk,
		.q_norm = &w->index_q_norm,
		.k_norm = &w->index_k_norm,
		.query = a->index_query,
		.raw_keys = &s->raw_keys,
		.block_keys = &s->block_keys,
	};
	return plumb_decoder_run(d, PLUMB_QSA_PROJECT, at, &args);
}

static int run_qsa_score(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_attention_state *s = &d->state.layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_qsa_score args = {
		.T = at->T,
		.position = &d->state.position,
		.query = a->index_query,
		.block_keys = &s->block_keys,
		.score = a->score,
	};
	return plumb_decoder_run(d, PLUMB_QSA_SCORE, at, &args);
}

static int run_qsa_select(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_activations *a = &d->act;
	struct plumb_qsa_select args = {
		.T = at->T,
		.position = &d->state.position,
		.score = a->score,
		.block = a->block,
		.count = a->block_count,
	};
	return plumb_decoder_run(d, PLUMB_QSA_SELECT, at, &args);
}

static int run_attn_decode(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_attention_state *s = &d->state.layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_attn_decode args = {
		.T = at->T,
		.position = &d->state.position,
		.q = a->attn_q,
		.keys = &s->keys,
		.values = &s->values,
		.block = a->block,
		.count = a->block_count,
		.o = a->attn_o,
	};
	return plumb_decoder_run(d, PLUMB_ATTN_DECODE, at, &args);
}

static int run_attn_gate(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_activations *a = &d->act;
	struct plumb_attn_gate args = {.T = at->T, .o = a->attn_o, .qg = a->attn_qg, .out = a->attn_gated};
	return plumb_decoder_run(d, PLUMB_ATTN_GATE, at, &args);
}

static int run_attn_out_proj(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_attention_weights *w = &d->model->layer[at->layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_attn_out_proj args = {.T = at->T, .x = a->attn_gated, .w = &w->out, .y = a->branch};
	return plumb_decoder_run(d, PLUMB_ATTN_OUT_PROJ, at, &args);
}

static int run_moe_router(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_moe_weights *w = &d->model->layer[at->layer].moe;
	struct plumb_activations *a = &d->act;
	struct plumb_moe_router args = {
		.T = at->T,
		.x = a->mixed,
		.gate = &w->router,
		.shared_gate = &w->shared_router,
		.logits = a->router_logits,
		.expert = a->expert,
		.weight = a->expert_weight,
		.shared_weight = a->shared_weight,
	};
	return plumb_decoder_run(d, PLUMB_MOE_ROUTER, at, &args);
}

static int run_moe_gate_up(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_moe_weights *w = &d->model->layer[at->layer].moe;
	struct plumb_activations *a = &d->act;
	struct plumb_moe_gate_up args = {
		.T = at->T,
		.x = a->mixed,
		.expert = a->expert,
		.gate = w->gate,
		.up = w->up,
		.shared_gate = &w->shared_gate,
		.shared_up = &w->shared_up,
		.hidden = a->expert_hidden,
		.shared_hidden = a->shared_hidden,
	};
	return plumb_decoder_run(d, PLUMB_MOE_GATE_UP, at, &args);
}

static int run_moe_down(struct plumb_decoder *d, const struct plumb_place *at)
{
	const struct plumb_moe_weights *w = &d->model->layer[at->layer].moe;
	struct plumb_activations *a = &d->act;
	struct plumb_moe_down args = {
		.T = at->T,
		.hidden = a->expert_hidden,
		.shared_hidden = a->shared_hidden,
		.expert = a->expert,
		.weight = a->expert_weight,
		.shared_weight = a->shared_weight,
		.down = w->down,
		.shared_down = &w->shared_down,
		.y = a->branch,
		.routed = a->moe_routed,
		.shared = a->moe_shared,
	};
	return plumb_decoder_run(d, PLUMB_MOE_DOWN, at, &args);
}

static int run_lm_head(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_lm_head args = {.T = at->T, .x = d->act.mixed, .w = &d->model->lm_head, .logits = d->act.logits};
	return plumb_decoder_run(d, PLUMB_LM_HEAD, at, &args);
}

static int run_argmax(struct plumb_decoder *d, const struct plumb_place *at)
{
	struct plumb_argmax args = {.T = at->T, .logits = d->act.logits, .token = d->act.next};
	return plumb_decoder_run(d, PLUMB_ARGMAX, at, &args);
}

#define ENTRY(id, name) [PLUMB_##id] = run_##name,
plumb_decoder_op_fn *const plumb_decoder_op[PLUMB_OP_COUNT] = {PLUMB_EACH_OP(ENTRY)};
