/* SPDX-License-Identifier: MIT */
/* Bounds of the mixture of experts. Contracts: core/ops/moe.h. */
#include "core/ops/moe.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/route.h"

/* The weights of the experts that were chosen, right or not: that is judged elsewhere. p: exponentials of the logits of
 * one token, sum: theirs. */
static void route(const struct plumb_env *env, const struct plumb_ball *p, struct plumb_ball sum, const int32_t *expert,
	struct plumb_ball *weight)
{
	int A = env->cfg->experts_per_token;
	struct plumb_ball chosen = ball_exact(0.0);

	for (int k = 0; k < A; k++) {
		weight[k] = route_is_expert(env, expert[k]) ? ball_div(p[expert[k]], sum) : ball_exact((double)NAN);
		chosen = k == 0 ? weight[0] : ball_add(chosen, weight[k]);
	}
	for (int k = 0; k < A; k++)
		weight[k] = ball_out(env, env->cfg->norm_topk ? ball_div(weight[k], chosen) : weight[k]);
}

int moe_router_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_moe_router *a = args;
	int64_t E = env->cfg->experts, T = a->T;
	int A = env->cfg->experts_per_token;
	struct plumb_ball *logits = plumb_bound_of(set, "logits"), *weight = plumb_bound_of(set, "weight");
	struct plumb_ball *shared = plumb_bound_of(set, "shared_weight"), *p = bound_scratch(env, E);
	int status = p ? bound_linear_of(env, a->gate, a->x, T, E + 1, logits) : PLUMB_BAD_INPUT;

	(void)before;
	if (status == PLUMB_OK)
		status = bound_linear_of(env, a->shared_gate, a->x, T, E + 1, shared);
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		for (int64_t i = 0; i < E; i++) {
			p[i] = ball_rne(env, logits[t * E + i]);
			logits[t * E + i] = ball_out(env, logits[t * E + i]);
		}
		struct plumb_ball sum = bound_exponentials(p, E);
		route(env, p, sum, a->expert + t * A, weight + t * A);
		shared[t] = ball_out(env, ball_sigmoid(ball_rne(env, shared[t])));
	}
	free(p);
	return status;
}

/* hidden of one expert and one token, x: (D). up_sum: scratch of as many values. */
static int expert_hidden(const struct plumb_env *env, const struct plumb_weight *gate, const struct plumb_weight *up,
	const struct plumb_ball *x, struct plumb_ball *up_sum, struct plumb_ball *hidden)
{
	const struct plumb_config *c = env->cfg;
	int64_t rows = 2 * (c->experts_per_token * c->expert_inner + c->shared_inner);
	int status = bound_linear(env, gate, x, 1, rows, hidden);

	if (status == PLUMB_OK)
		status = bound_linear(env, up, x, 1, rows, up_sum);
	for (int64_t f = 0; f < gate->rows && status == PLUMB_OK; f++) {
		struct plumb_ball gated = ball_rne(env, ball_silu(ball_rne(env, hidden[f])));
		hidden[f] = ball_out(env, ball_mul(gated, ball_rne(env, up_sum[f])));
	}
	return status;
}

int moe_gate_up_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_moe_gate_up *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	struct plumb_ball *hidden = plumb_bound_of(set, "hidden"), *shared = plumb_bound_of(set, "shared_hidden");
	struct plumb_ball *x = bound_balls(env, a->x, a->T * D), *up_sum = bound_scratch(env, F > Fs ? F : Fs);
	int status = x && up_sum ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		for (int64_t i = t * A; i < (t + 1) * A && status == PLUMB_OK; i++) {
			int32_t e = a->expert[i];
			if (route_is_expert(env, e))
				status = expert_hidden(env, &a->gate[e], &a->up[e], x + t * D, up_sum, hidden + i * F);
			for (int64_t f = 0; f < F && !route_is_expert(env, e); f++)
				hidden[i * F + f] = ball_exact((double)NAN);
		}
		if (status == PLUMB_OK)
			status = expert_hidden(env, a->shared_gate, a->shared_up, x + t * D, up_sum, shared + t * Fs);
	}
	free(x);
	free(up_sum);
	return status;
}

int moe_down_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_moe_down *a = args;
	int64_t D = env->cfg->hidden, F = env->cfg->expert_inner, Fs = env->cfg->shared_inner;
	int A = env->cfg->experts_per_token;
	struct plumb_ball *y = plumb_bound_of(set, "y"), *trace_routed = plumb_bound_of(set, "routed");
	struct plumb_ball *trace_shared = plumb_bound_of(set, "shared");
	struct plumb_ball *down = bound_scratch(env, D), *routed = bound_scratch(env, D);
	int status = down && routed ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	for (int64_t t = 0; t < a->T && status == PLUMB_OK; t++) {
		for (int k = 0; k < A && status == PLUMB_OK; k++) { /* slot order */
			int64_t i = t * A + k;
			struct plumb_ball weight = ball_exact((double)a->weight[i]);
			bool known = route_is_expert(env, a->expert[i]);
			if (known)
				status = bound_linear_of(
					env, &a->down[a->expert[i]], a->hidden + i * F, 1, D * (A + 1), down);
			for (int64_t c = 0; c < D && status == PLUMB_OK; c++) {
				struct plumb_ball d = known ? ball_rne(env, down[c]) : ball_exact((double)NAN);
				struct plumb_ball p = ball_rne(env, ball_mul(d, weight));
				routed[c] = k == 0 ? p : ball_add(routed[c], p); /* nothing is lost on +0 */
			}
		}
		if (status == PLUMB_OK)
			status = bound_linear_of(env, a->shared_down, a->shared_hidden + t * Fs, 1, D * (A + 1), down);
		for (int64_t c = 0; c < D && status == PLUMB_OK; c++) {
			struct plumb_ball weight = ball_exact((double)a->shared_weight[t]);
			struct plumb_ball gated = ball_rne(env, ball_mul(weight, ball_rne(env, down[c])));
			if (trace_routed)
				trace_routed[t * D + c] = ball_out(env, routed[c]);
			if (trace_shared)
				trace_shared[t * D + c] = ball_out(env, down[c]);
			y[t * D + c] = ball_out(env, ball_add(ball_rne(env, routed[c]), gated));
		}
	}
	free(down);
	free(routed);
	return status;
}
