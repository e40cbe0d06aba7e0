/* SPDX-License-Identifier: MIT */
/* Mixture of experts in the declared orders: core/ops/moe.h. */
#include "core/ops/moe.h"

#include <math.h>
#include <stdlib.h>

#include "core/math32.h"
#include "ref/linear.h"
#include "ref/route.h"
#include "ref/twin/rank.h"
#include "ref/twin/twin.h"

/* Choice and weights of one token. item, e: scratch (E). */
static void route(const struct plumb_env *env, const float *logits, struct twin_ranked *item, float *e, int32_t *expert,
	float *weight)
{
	int64_t E = env->cfg->experts;
	int A = env->cfg->experts_per_token;
	float max = -INFINITY, sum, chosen = 0.0f;

	for (int64_t i = 0; i < E; i++)
		if (logits[i] > max || isnan(logits[i]))
			max = logits[i]; /* once NaN it stays: no number is larger */
	for (int64_t i = 0; i < E; i++)
		e[i] = plumb_expf(logits[i] - max);
	sum = twin_sum(e, E, PLUMB_ROW_LANES);
	for (int64_t i = 0; i < E; i++)
		item[i] = (struct twin_ranked){plumb_divf(e[i], sum), (int32_t)i};
	twin_rank(item, E);
	for (int k = 0; k < A; k++)
		chosen = chosen + item[k].value;
	for (int k = 0; k < A; k++) {
		expert[k] = item[k].index;
		weight[k] = twin_rne(env, env->cfg->norm_topk ? plumb_divf(item[k].value, chosen) : item[k].value);
	}
}

int moe_router_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_router *a = args;
	int64_t E = env->cfg->experts, T = a->T;
	int A = env->cfg->experts_per_token;
	struct twin_ranked *item = scratch_ref(env, E, sizeof *item);
	float *e = twin_scratch(env, E);
	int status = item && e ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = twin_linear(env, a->gate, a->x, T, E + 1, a->logits);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->shared_gate, a->x, T, E + 1, a->shared_weight);
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		route(env, a->logits + t * E, item, e, a->expert + t * A, a->weight + t * A);
		a->shared_weight[t] = twin_rne(env, plumb_sigmoidf(a->shared_weight[t]));
	}
	free(item);
	free(e);
	return status;
}

static void fill_nan(float *y, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = plumb_nanf();
}

/* hidden of one expert and one token. up_sum: scratch of as many values. */
static int expert_hidden(const struct plumb_env *env, const struct plumb_weight *gate, const struct plumb_weight *up,
	const float *x, float *up_sum, float *hidden)
{
	const struct plumb_config *c = env->cfg;
	int64_t rows = 2 * (c->experts_per_token * c->expert_inner + c->shared_inner);
	int status = twin_linear(env, gate, x, 1, rows, hidden);

	if (status == PLUMB_OK)
		status = twin_linear(env, up, x, 1, rows, up_sum);
	for (int64_t f = 0; f < gate->rows && status == PLUMB_OK; f++) {
		float gated = twin_rne(env, plumb_siluf(hidden[f]));
		hidden[f] = twin_rne(env, gated * up_sum[f]);
	}
	return status;
}

int moe_gate_up_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_gate_up *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	float *up_sum = twin_scratch(env, F > Fs ? F : Fs);
	int status = up_sum ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		const float *x = a->x + t * D;
		for (int64_t i = t * A; i < (t + 1) * A && status == PLUMB_OK; i++) {
			int32_t e = a->expert[i];
			if (route_is_expert(env, e))
				status = expert_hidden(env, &a->gate[e], &a->up[e], x, up_sum, a->hidden + i * F);
			else
				fill_nan(a->hidden + i * F, F);
		}
		if (status == PLUMB_OK)
			status = expert_hidden(env, a->shared_gate, a->shared_up, x, up_sum, a->shared_hidden + t * Fs);
	}
	free(up_sum);
	return status;
}

int moe_down_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	float *down = twin_scratch(env, D), *routed = twin_scratch(env, D);
	int status = down && routed ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		for (int64_t c = 0; c < D; c++)
			routed[c] = 0.0f;
		for (int64_t i = t * A; i < (t + 1) * A && status == PLUMB_OK; i++) { /* slot order */
			int32_t e = a->expert[i];
			if (route_is_expert(env, e))
				status = twin_linear(env, &a->down[e], a->hidden + i * F, 1, D * (A + 1), down);
			else
				fill_nan(down, D);
			for (int64_t c = 0; c < D && status == PLUMB_OK; c++)
				routed[c] = routed[c] + twin_rne(env, down[c] * a->weight[i]);
		}
		if (status == PLUMB_OK)
			status = twin_linear(env, a->shared_down, a->shared_hidden + t * Fs, 1, D * (A + 1), down);
		for (int64_t c = 0; c < D && status == PLUMB_OK; c++) {
			float sum = twin_rne(env, routed[c]), gated = twin_rne(env, a->shared_weight[t] * down[c]);
			a->y[t * D + c] = twin_rne(env, sum + gated);
			if (a->routed)
				a->routed[t * D + c] = sum;
			if (a->shared)
				a->shared[t * D + c] = down[c];
		}
	}
	free(down);
	free(routed);
	return status;
}
