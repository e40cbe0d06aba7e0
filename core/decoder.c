/* SPDX-License-Identifier: MIT */
/* A decoder's life and its walk through the ops. Their order is core/flow.c's, what each is handed core/decoder_ops.c's,
 * the buffers core/buffers.c's. */
#include "core/decoder.h"

#include <stdlib.h>
#include <string.h>

#include "core/decoder_private.h"

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

int plumb_decoder_run(struct plumb_decoder *d, enum plumb_op op, const struct plumb_place *at, const void *args)
{
	const struct plumb_binding *b = plumb_decoder_binding(d, at->layer, op);
	struct plumb_env env = d->env;
	env.device = b->device;
	struct plumb_call call = {
		.op = op,
		.layer = at->layer,
		.site = at->site,
		.position = d->state.position + d->passed,
		.T = at->T,
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

/* The ops of a layer from step `first` on, over T tokens. */
static int run_steps(struct plumb_decoder *d, int layer, int first, int64_t T)
{
	struct plumb_step step[PLUMB_FLOW_MAX];
	int n = plumb_flow_order(&d->model->cfg, layer, step), status = PLUMB_OK;

	for (int i = first; i < n && status == PLUMB_OK; i++)
		status = plumb_decoder_op[step[i].op](
			d, &(struct plumb_place){.layer = layer, .site = step[i].site, .T = T});
	return status;
}

/* One pass over T <= max_rows tokens; last: the last pass of its step. */
static int pass(struct plumb_decoder *d, const int32_t *token, int64_t T, bool last)
{
	const struct plumb_config *cfg = &d->model->cfg;
	struct plumb_activations *a = &d->act;
	const int outside = cfg->layers;

	d->passed = 0;
	memcpy(a->token, token, (size_t)T * sizeof *token);
	int status = plumb_decoder_op[PLUMB_EMBED](d, &(struct plumb_place){.layer = outside, .T = T});
	for (int l = 0; l < cfg->layers && status == PLUMB_OK; l++)
		status = run_steps(d, l, 0, T);

	d->rows = d->options.all_logits ? T : last ? 1 : 0;
	if (status == PLUMB_OK && d->rows > 0) {
		/* without all_logits only the last row goes on: its residual moves to the front */
		d->passed = T - d->rows;
		if (d->rows < T) {
			size_t row = (size_t)cfg->streams * (size_t)cfg->hidden;
			memmove(a->residual, a->residual + (size_t)(T - 1) * row, row * sizeof *a->residual);
		}
		status = run_steps(d, outside, 1, d->rows); /* embed, their first, was before the layers */
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
