/* SPDX-License-Identifier: MIT */
/* Mixture of experts: model-spec 2.9. Contracts: core/ops/moe.h. */
#include "core/ops/moe.h"

#include <math.h>
#include <stdlib.h>

#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/route.h"
#include "ref/round.h"
#include "ref/topk.h"

void route_prob_ref(const float *logits, int64_t E, float *prob)
{
	double max = -(double)INFINITY, sum = 0.0;
	for (int64_t e = 0; e < E; e++)
		if ((double)logits[e] > max || isnan(logits[e]))
			max = (double)logits[e];
	for (int64_t e = 0; e < E; e++)
		sum += exp((double)logits[e] - max);
	for (int64_t e = 0; e < E; e++)
		prob[e] = (float)(exp((double)logits[e] - max) / sum);
}

void route_weight_ref(const struct plumb_env *env, const float *prob, const int32_t *expert, float *weight)
{
	int A = env->cfg->experts_per_token;
	double sum = 0.0;
	for (int k = 0; k < A; k++)
		sum += (double)prob[expert[k]];
	for (int k = 0; k < A; k++) { /* stored in binary32, out of a softmax */
		double p = nudge_chain(env, (double)prob[expert[k]]);
		weight[k] = store(env, env->cfg->norm_topk ? p / sum : p);
	}
}

int moe_router_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_router *a = args;
	int64_t E = env->cfg->experts, T = a->T;
	int A = env->cfg->experts_per_token;
	float *prob = scratch_ref(env, 2 * E, sizeof *prob), *logits = prob ? prob + E : NULL;
	double *shared = scratch_ref(env, T, sizeof *shared);
	struct topk_item *item = scratch_ref(env, E, sizeof *item);
	int status = prob && shared && item ? linear_ref(env, a->gate, a->x, T, a->logits) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = linear_sum_ref(env, a->shared_gate, a->x, T, 0, 1, shared);
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		for (int64_t e = 0; e < E; e++) /* rounded, whatever is left out of outputs */
			logits[e] = env->policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(a->logits[t * E + e])
			                                             : a->logits[t * E + e];
		route_prob_ref(logits, E, prob);
		topk_ref(env->ties, prob, (int32_t)E, A, item, a->expert + t * A);
		route_weight_ref(env, prob, a->expert + t * A, a->weight + t * A);
		a->shared_weight[t] = store(env, sigmoid(rne(env, shared[t])));
	}
	free(prob);
	free(shared);
	free(item);
	return status;
}

/* hidden = rne(rne(silu(rne(gate . x))) * rne(up . x)) of one expert and one token. sum: scratch (2, F). */
static int expert_hidden(const struct plumb_env *env, const struct plumb_weight *gate, const struct plumb_weight *up,
	const float *x, double *sum, float *hidden)
{
	int64_t F = gate->rows;
	int status = linear_sum_ref(env, gate, x, 1, 0, F, sum);
	if (status == PLUMB_OK)
		status = linear_sum_ref(env, up, x, 1, 0, F, sum + F);
	for (int64_t f = 0; f < F && status == PLUMB_OK; f++)
		hidden[f] = store(env, rne(env, silu(rne(env, sum[f]))) * rne(env, sum[F + f]));
	return status;
}

int moe_gate_up_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_gate_up *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	double *sum = scratch_ref(env, 2 * (F > Fs ? F : Fs), sizeof *sum);
	int status = sum ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		const float *x = a->x + t * D;
		for (int k = 0; k < A && status == PLUMB_OK; k++) {
			int32_t e = a->expert[t * A + k];
			float *hidden = a->hidden + (t * A + k) * F;
			if (route_is_expert(env, e))
				status = expert_hidden(env, &a->gate[e], &a->up[e], x, sum, hidden);
			for (int64_t f = 0; f < F && !route_is_expert(env, e); f++)
				hidden[f] = NAN;
		}
		if (status == PLUMB_OK)
			status = expert_hidden(env, a->shared_gate, a->shared_up, x, sum, a->shared_hidden + t * Fs);
	}
	free(sum);
	return status;
}

int moe_down_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	double *down = scratch_ref(env, D, sizeof *down);
	double *routed = scratch_ref(env, A * D, sizeof *routed); /* (A, D) of each expert, times its weight */
	int status = down && routed ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		for (int k = 0; k < A && status == PLUMB_OK; k++) { /* slot order */
			double weight = (double)a->weight[t * A + k];
			int32_t e = a->expert[t * A + k];
			if (route_is_expert(env, e))
				status = linear_sum_ref(env, &a->down[e], a->hidden + (t * A + k) * F, 1, 0, D, down);
			for (int64_t c = 0; c < D && !route_is_expert(env, e); c++)
				down[c] = (double)NAN;
			for (int64_t c = 0; c < D && status == PLUMB_OK; c++)
				routed[k * D + c] = rne(env, rne(env, down[c]) * weight);
		}
		if (status == PLUMB_OK)
			status = linear_sum_ref(env, a->shared_down, a->shared_hidden + t * Fs, 1, 0, D, down);
		for (int64_t c = 0; c < D && status == PLUMB_OK; c++) {
			int64_t i = t * D + c;
			double gated = rne(env, (double)a->shared_weight[t] * rne(env, down[c]));
			double sum = total_of(env, routed + c, D, A);
			if (a->routed)
				a->routed[i] = store(env, sum);
			if (a->shared)
				a->shared[i] = store(env, down[c]);
			a->y[i] = store(env, rne(env, sum) + gated);
		}
	}
	free(down);
	free(routed);
	return status;
}
