/* SPDX-License-Identifier: MIT */
/* The order of ops (model-spec 2.2), and nothing else: buffers are made in core/buffers.c. */
#include "core/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/buffers.h"
#include "core/ops/attention.h"
#include "core/ops/embed.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"

struct plumb_decoder {
	const struct plumb_model *model;
	struct plumb_plan plan;
	struct plumb_decoder_options options;
	struct plumb_env env;
	struct plumb_observer observer;
	struct plumb_runner runner;
	struct plumb_state state;
	struct plumb_activations act;
	int64_t rows;   /* of logits, after a pass */
	int64_t passed; /* rows of the running pass before those that the running call has */
};

int plumb_plan_create(
	const struct plumb_config *cfg, struct plumb_binding all, struct plumb_plan *out, struct plumb_error *err)
{
	size_t n = (size_t)(cfg->layers + 1) * PLUMB_OP_COUNT;
	struct plumb_binding *binding = malloc(n * sizeof *binding);
	if (!binding)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a plan of %d layers", cfg->layers);
	for (size_t i = 0; i < n; i++)
		binding[i] = all;
	out->layers = cfg->layers;
	out->binding = binding;
	return PLUMB_OK;
}

void plumb_plan_free(struct plumb_plan *plan)
{
	free(plan->binding);
	plan->binding = NULL;
}

void plumb_plan_bind(struct plumb_plan *plan, enum plumb_op op, int first, int last, struct plumb_binding binding)
{
	for (int l = first; l <= last && l <= plan->layers; l++)
		plan->binding[(size_t)l * PLUMB_OP_COUNT + op] = binding;
}

int plumb_decoder_create(const struct plumb_model *model, const struct plumb_plan *plan,
	const struct plumb_decoder_options *options, struct plumb_decoder **out, struct plumb_error *err)
{
	const struct plumb_config *cfg = &model->cfg;
	struct plumb_decoder *d = calloc(1, sizeof *d);
	struct plumb_binding none = {0};
	int status;

	if (!d)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a decoder");
	d->model = model;
	if (options)
		d->options = *options;
	status = plumb_options_complete(cfg, &d->options, err);
	if (status == PLUMB_OK)
		status = plumb_plan_create(cfg, none, &d->plan, err);
	if (status == PLUMB_OK)
		memcpy(d->plan.binding, plan->binding, (size_t)(cfg->layers + 1) * PLUMB_OP_COUNT * sizeof *plan->binding);
	if (status == PLUMB_OK)
		status = plumb_state_create(cfg, &d->options, &d->state, err);
	if (status == PLUMB_OK)
		status = plumb_activations_create(cfg, &d->options, &d->act, err);
	if (status != PLUMB_OK) {
		plumb_decoder_destroy(d);
		return status;
	}
	d->env.cfg = cfg;
	d->env.policy = d->options.policy;
	d->env.ties = d->options.ties;
	d->env.capacity = d->options.capacity;
	plumb_decoder_reset(d);
	*out = d;
	return PLUMB_OK;
}

void plumb_decoder_destroy(struct plumb_decoder *d)
{
	if (!d)
		return;
	plumb_activations_free(&d->act);
	plumb_state_free(&d->state);
	plumb_plan_free(&d->plan);
	free(d);
}

void plumb_decoder_reset(struct plumb_decoder *d)
{
	plumb_state_reset(&d->model->cfg, &d->options, &d->state);
	d->rows = 0;
}

void plumb_decoder_observe(struct plumb_decoder *d, const struct plumb_observer *observer)
{
	memset(&d->observer, 0, sizeof d->observer);
	if (observer)
		d->observer = *observer;
}

void plumb_decoder_run_through(struct plumb_decoder *d, const struct plumb_runner *runner)
{
	memset(&d->runner, 0, sizeof d->runner);
	if (runner)
		d->runner = *runner;
}

int64_t plumb_decoder_rows(const struct plumb_decoder *d)
{
	return d->rows;
}
const float *plumb_decoder_logits(const struct plumb_decoder *d)
{
	return d->act.logits;
}
const int32_t *plumb_decoder_tokens(const struct plumb_decoder *d)
{
	return d->act.next;
}
int64_t plumb_decoder_position(const struct plumb_decoder *d)
{
	return d->state.position;
}
struct plumb_layer_state *plumb_decoder_state(struct plumb_decoder *d, int layer)
{
	return &d->state.layer[layer];
}
const struct plumb_env *plumb_decoder_env(const struct plumb_decoder *d)
{
	return &d->env;
}
const float *plumb_decoder_rope(const struct plumb_decoder *d)
{
	return d->state.rope;
}

const struct plumb_binding *plumb_decoder_binding(const struct plumb_decoder *d, int layer, enum plumb_op op)
{
	return &d->plan.binding[(size_t)layer * PLUMB_OP_COUNT + op];
}
bool plumb_decoder_is_watched(const struct plumb_decoder *d)
{
	return d->observer.before || d->observer.after || d->runner.run;
}
const int32_t *plumb_decoder_token_cell(const struct plumb_decoder *d)
{
	return d->act.token;
}
const int32_t *plumb_decoder_position_cell(const struct plumb_decoder *d)
{
	return &d->state.position;
}

/* Run one op through its binding, with the observer around it. */
static int run(struct plumb_decoder *d, enum plumb_op op, int layer, enum plumb_site site, int64_t T, const void *args)
{
	const struct plumb_binding *b = &d->plan.binding[(size_t)layer * PLUMB_OP_COUNT + op];
	struct plumb_env env = d->env;
	env.device = b->device;
	struct plumb_call call = {
		.op = op,
		.layer = layer,
		.site = site,
		.position = d->state.position + d->passed,
		.T = T,
		.env = &env,
		.binding = b,
		.args = args,
	};
	const struct plumb_maker *maker = &d->model->maker;
	int status = PLUMB_OK;

	env.call = &call;
	if (maker->make && !b->set->makes_weights)
		status = maker->make(maker->self, &env, op, args);
	if (status == PLUMB_OK && d->observer.before)
		status = d->observer.before(d->observer.self, &call);
	if (status == PLUMB_OK)
		status = d->runner.run ? d->runner.run(d->runner.self, &call) : b->set->op[op](&env, args);
	if (status == PLUMB_OK && d->observer.after)
		status = d->observer.after(d->observer.self, &call);
	return status;
}

/* Exchange the two residual buffers after an op has written the second. */
static void advance_residual(struct plumb_activations *a)
{
	float *t = a->residual;
	a->residual = a->residual_next;
	a->residual_next = t;
}

/* Read the residual streams: mixed input and, if inject is there, injection weights. */
static int hc_read(struct plumb_decoder *d, int layer, enum plumb_site site, const struct plumb_hc_weights *w, int64_t T)
{
	struct plumb_activations *a = &d->act;
	bool injects = site != PLUMB_SITE_FINAL;
	struct plumb_hc_norm_down down = {
		.T = T,
		.residual = a->residual,
		.norm = &w->norm,
		.down = &w->down,
		.inject = injects ? &w->inject : NULL,
		.normed = a->normed,
		.low = a->low,
		.inject_logits = injects ? a->inject_logits : NULL,
	};
	struct plumb_hc_up_mix mix = {
		.T = T,
		.normed = a->normed,
		.low = a->low,
		.inject_logits = down.inject_logits,
		.up = &w->up,
		.mixed = a->mixed,
		.injection = injects ? a->injection : NULL,
	};
	int status = run(d, PLUMB_HC_NORM_DOWN, layer, site, T, &down);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_HC_UP_MIX, layer, site, T, &mix);
	return status;
}

/* Write a branch output back into the residual streams. */
static int hc_write(struct plumb_decoder *d, int layer, enum plumb_site site, int64_t T)
{
	struct plumb_activations *a = &d->act;
	struct plumb_hc_inject inject = {
		.T = T,
		.residual = a->residual,
		.branch = a->branch,
		.injection = a->injection,
		.residual_out = a->residual_next,
	};
	int status = run(d, PLUMB_HC_INJECT, layer, site, T, &inject);
	advance_residual(a);
	return status;
}

static int ple(struct plumb_decoder *d, int layer, int64_t T)
{
	const struct plumb_ple_weights *w = d->model->layer[layer].ple;
	struct plumb_ple_state *s = &d->state.layer[layer].ple;
	struct plumb_activations *a = &d->act;
	struct plumb_ple_embed embed = {
		.T = T,
		.token = a->token,
		.history = s->history,
		.ngram = &w->ngram,
		.table = w->table,
		.shards = w->shards,
		.shard_rows = w->shard_rows,
		.row = a->ple_row,
		.embedding = a->ple_embedding,
	};
	struct plumb_ple_gate gate = {
		.T = T,
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
	struct plumb_ple_conv conv = {
		.T = T,
		.position = &d->state.position,
		.gated = a->ple_gated,
		.conv_in = a->ple_conv_in,
		.residual = a->residual,
		.conv = &w->conv,
		.window = s->window,
		.output = a->ple_output,
		.residual_out = a->residual_next,
	};
	int status = run(d, PLUMB_PLE_EMBED, layer, PLUMB_SITE_NONE, T, &embed);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_PLE_GATE, layer, PLUMB_SITE_NONE, T, &gate);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_PLE_CONV, layer, PLUMB_SITE_NONE, T, &conv);
	advance_residual(a);
	return status;
}

static int gdn(struct plumb_decoder *d, int layer, int64_t T)
{
	const struct plumb_gdn_weights *w = &d->model->layer[layer].gdn;
	struct plumb_gdn_state *s = &d->state.layer[layer].gdn;
	struct plumb_activations *a = &d->act;
	struct plumb_gdn_in_proj in = {
		.T = T,
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
	struct plumb_gdn_conv conv = {
		.T = T,
		.position = &d->state.position,
		.qkv = a->gdn_qkv,
		.conv = &w->conv,
		.window = s->window,
		.y = a->gdn_y,
	};
	struct plumb_gdn_recurrence recurrence = {
		.T = T,
		.y = a->gdn_y,
		.b = a->gdn_b,
		.a = a->gdn_a,
		.a_log = &w->a_log,
		.dt_bias = &w->dt_bias,
		.state = s->s,
		.state_format = s->format,
		.o = a->gdn_o,
	};
	struct plumb_gdn_norm_gate gate = {.T = T, .o = a->gdn_o, .z = a->gdn_z, .norm = &w->norm, .out = a->gdn_gated};
	struct plumb_gdn_out_proj out = {.T = T, .x = a->gdn_gated, .w = &w->out, .y = a->branch};

	int status = run(d, PLUMB_GDN_IN_PROJ, layer, PLUMB_SITE_NONE, T, &in);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_GDN_CONV, layer, PLUMB_SITE_NONE, T, &conv);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_GDN_RECURRENCE, layer, PLUMB_SITE_NONE, T, &recurrence);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_GDN_NORM_GATE, layer, PLUMB_SITE_NONE, T, &gate);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_GDN_OUT_PROJ, layer, PLUMB_SITE_NONE, T, &out);
	return status;
}

/* The indexer comes before attention: it chooses what attention reads. */
static int qsa(struct plumb_decoder *d, int layer, int64_t T)
{
	const struct plumb_attention_weights *w = &d->model->layer[layer].attention;
	struct plumb_attention_state *s = &d->state.layer[layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_qsa_project project = {
		.T = T,
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
	struct plumb_qsa_score score = {
		.T = T,
		.position = &d->state.position,
		.query = a->index_query,
		.block_keys = &s->block_keys,
		.score = a->score,
	};
	struct plumb_qsa_select select = {
		.T = T,
		.position = &d->state.position,
		.score = a->score,
		.block = a->block,
		.count = a->block_count,
	};
	int status = run(d, PLUMB_QSA_PROJECT, layer, PLUMB_SITE_NONE, T, &project);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_QSA_SCORE, layer, PLUMB_SITE_NONE, T, &score);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_QSA_SELECT, layer, PLUMB_SITE_NONE, T, &select);
	return status;
}

static int attention(struct plumb_decoder *d, int layer, int64_t T)
{
	const struct plumb_attention_weights *w = &d->model->layer[layer].attention;
	struct plumb_attention_state *s = &d->state.layer[layer].attention;
	struct plumb_activations *a = &d->act;
	struct plumb_attn_in_proj in = {
		.T = T,
		.x = a->mixed,
		.w_q = &w->q,
		.w_k = &w->k,
		.w_v = &w->v,
		.qg = a->attn_qg,
		.k = a->attn_k,
		.v = a->attn_v,
	};
	struct plumb_attn_qk_rope rope = {
		.T = T,
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
	struct plumb_attn_decode decode = {
		.T = T,
		.position = &d->state.position,
		.q = a->attn_q,
		.keys = &s->keys,
		.values = &s->values,
		.block = a->block,
		.count = a->block_count,
		.o = a->attn_o,
	};
	struct plumb_attn_gate gate = {.T = T, .o = a->attn_o, .qg = a->attn_qg, .out = a->attn_gated};
	struct plumb_attn_out_proj out = {.T = T, .x = a->attn_gated, .w = &w->out, .y = a->branch};

	int status = run(d, PLUMB_ATTN_IN_PROJ, layer, PLUMB_SITE_NONE, T, &in);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_ATTN_QK_ROPE, layer, PLUMB_SITE_NONE, T, &rope);
	if (status == PLUMB_OK)
		status = qsa(d, layer, T);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_ATTN_DECODE, layer, PLUMB_SITE_NONE, T, &decode);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_ATTN_GATE, layer, PLUMB_SITE_NONE, T, &gate);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_ATTN_OUT_PROJ, layer, PLUMB_SITE_NONE, T, &out);
	return status;
}

static int moe(struct plumb_decoder *d, int layer, int64_t T)
{
	const struct plumb_moe_weights *w = &d->model->layer[layer].moe;
	struct plumb_activations *a = &d->act;
	struct plumb_moe_router router = {
		.T = T,
		.x = a->mixed,
		.gate = &w->router,
		.shared_gate = &w->shared_router,
		.logits = a->router_logits,
		.expert = a->expert,
		.weight = a->expert_weight,
		.shared_weight = a->shared_weight,
	};
	struct plumb_moe_gate_up gate_up = {
		.T = T,
		.x = a->mixed,
		.expert = a->expert,
		.gate = w->gate,
		.up = w->up,
		.shared_gate = &w->shared_gate,
		.shared_up = &w->shared_up,
		.hidden = a->expert_hidden,
		.shared_hidden = a->shared_hidden,
	};
	struct plumb_moe_down down = {
		.T = T,
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
	int status = run(d, PLUMB_MOE_ROUTER, layer, PLUMB_SITE_NONE, T, &router);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_MOE_GATE_UP, layer, PLUMB_SITE_NONE, T, &gate_up);
	if (status == PLUMB_OK)
		status = run(d, PLUMB_MOE_DOWN, layer, PLUMB_SITE_NONE, T, &down);
	return status;
}

static int layer_pass(struct plumb_decoder *d, int l, int64_t T)
{
	const struct plumb_layer_weights *w = &d->model->layer[l];
	int status = PLUMB_OK;

	if (w->ple)
		status = ple(d, l, T);
	if (status == PLUMB_OK)
		status = hc_read(d, l, PLUMB_SITE_ATTN, &w->attn_hc, T);
	if (status == PLUMB_OK)
		status = d->model->cfg.kind[l] == PLUMB_LAYER_GDN ? gdn(d, l, T) : attention(d, l, T);
	if (status == PLUMB_OK)
		status = hc_write(d, l, PLUMB_SITE_ATTN, T);
	if (status == PLUMB_OK)
		status = hc_read(d, l, PLUMB_SITE_MLP, &w->mlp_hc, T);
	if (status == PLUMB_OK)
		status = moe(d, l, T);
	if (status == PLUMB_OK)
		status = hc_write(d, l, PLUMB_SITE_MLP, T);
	return status;
}

/* One pass over T <= max_rows tokens; last: the last pass of its step. */
static int pass(struct plumb_decoder *d, const int32_t *token, int64_t T, bool last)
{
	const struct plumb_config *cfg = &d->model->cfg;
	struct plumb_activations *a = &d->act;
	int outside = cfg->layers;

	d->passed = 0;
	memcpy(a->token, token, (size_t)T * sizeof *token);
	struct plumb_embed embed = {.T = T, .token = a->token, .table = &d->model->embed, .residual = a->residual};
	int status = run(d, PLUMB_EMBED, outside, PLUMB_SITE_NONE, T, &embed);
	for (int l = 0; l < cfg->layers && status == PLUMB_OK; l++)
		status = layer_pass(d, l, T);

	d->rows = d->options.all_logits ? T : last ? 1 : 0;
	if (status == PLUMB_OK && d->rows > 0) {
		/* without all_logits only the last row goes on: its residual moves to the front */
		d->passed = T - d->rows;
		if (d->rows < T) {
			size_t row = (size_t)cfg->streams * (size_t)cfg->hidden;
			memmove(a->residual, a->residual + (size_t)(T - 1) * row, row * sizeof *a->residual);
		}
		struct plumb_lm_head head = {.T = d->rows, .x = a->mixed, .w = &d->model->lm_head, .logits = a->logits};
		struct plumb_argmax argmax = {.T = d->rows, .logits = a->logits, .token = a->next};
		status = hc_read(d, outside, PLUMB_SITE_FINAL, &d->model->mixer, d->rows);
		if (status == PLUMB_OK)
			status = run(d, PLUMB_LM_HEAD, outside, PLUMB_SITE_NONE, d->rows, &head);
		if (status == PLUMB_OK)
			status = run(d, PLUMB_ARGMAX, outside, PLUMB_SITE_NONE, d->rows, &argmax);
	}
	d->state.position += (int32_t)T;
	d->passed = 0;
	return status;
}

/* Whether T tokens can run from here. */
static int admit(const struct plumb_decoder *d, const int32_t *token, int64_t T, struct plumb_error *err)
{
	if (T < 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "a step needs at least one token");
	for (int64_t t = 0; t < T; t++)
		if (token[t] < 0 || token[t] >= d->model->cfg.vocab)
			return plumb_fail(err, PLUMB_BAD_INPUT, "token %lld is %d, expected 0..%lld (vocab_size)",
				(long long)t, token[t], (long long)d->model->cfg.vocab - 1);
	if (T > d->options.capacity - d->state.position)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%lld tokens from position %d pass the capacity of %lld positions",
			(long long)T, d->state.position, (long long)d->options.capacity);
	return PLUMB_OK;
}

int plumb_decoder_step(struct plumb_decoder *d, const int32_t *token, int64_t T, struct plumb_error *err)
{
	int status = admit(d, token, T, err);

	d->env.err = err;
	for (int64_t t = 0; t < T && status == PLUMB_OK; t += d->options.max_rows) {
		int64_t rows = T - t < d->options.max_rows ? T - t : d->options.max_rows;
		status = pass(d, token + t, rows, t + rows == T);
	}
	d->env.err = NULL;
	return status;
}

int plumb_decoder_resume(struct plumb_decoder *d, int64_t position, struct plumb_error *err)
{
	if (position < 0 || position > d->options.capacity)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"a decoder cannot go on from position %lld, expected 0..%lld (its capacity)", (long long)position,
			(long long)d->options.capacity);
	d->state.position = (int32_t)position;
	d->rows = 0;
	return PLUMB_OK;
}

int plumb_decoder_advance(struct plumb_decoder *d, int32_t token, struct plumb_error *err)
{
	int status = admit(d, &token, 1, err);

	if (status != PLUMB_OK)
		return status;
	d->act.token[0] = token;
	d->rows = 1;
	d->state.position++;
	return PLUMB_OK;
}
