/* SPDX-License-Identifier: MIT */
/* Bounds of the hyper-connection stage. Contracts: core/ops/hc.h. */
#include "core/ops/hc.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"

int hc_norm_down_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_hc_norm_down *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, R = a->down->rows;
	struct plumb_ball *normed = plumb_bound_of(set, "normed"), *low = plumb_bound_of(set, "low");
	struct plumb_ball *logits = plumb_bound_of(set, "inject_logits"), streams = ball_exact((double)S);
	struct plumb_ball *x = bound_balls(env, a->residual, T * S * D); /* (T, S, D), then normed and rounded */
	float *w = bound_matrix(env, a->norm);                           /* (S, D) */
	int status = x && w ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	for (int64_t ts = 0; ts < T * S && status == PLUMB_OK; ts++)
		bound_norm(env, x + ts * D, w + ts % S * D, D, PLUMB_ROW_LANES, x + ts * D);
	for (int64_t i = 0; i < T * S * D && status == PLUMB_OK; i++) {
		normed[i] = ball_out(env, x[i]);
		x[i] = ball_rne(env, x[i]);
	}
	if (status == PLUMB_OK)
		status = bound_linear(env, a->down, x, T, R + S, low);
	for (int64_t i = 0; i < T * R && status == PLUMB_OK; i++) {
		struct plumb_ball d = ball_rne(env, ball_div(ball_rne(env, low[i]), streams));
		low[i] = ball_out(env, ball_silu(d));
	}
	if (status == PLUMB_OK && logits)
		status = bound_linear(env, a->inject, x, T, R + S, logits);
	for (int64_t i = 0; logits && i < T * S && status == PLUMB_OK; i++)
		logits[i] = ball_out(env, ball_div(ball_rne(env, logits[i]), streams));
	free(x);
	free(w);
	return status;
}

int hc_up_mix_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_hc_up_mix *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden;
	struct plumb_ball *mixed = plumb_bound_of(set, "mixed"), *injection = plumb_bound_of(set, "injection");
	struct plumb_ball *gate = bound_scratch(env, T * S * D); /* (T, S, D) */
	int status = gate ? bound_linear_of(env, a->up, a->low, T, S * D, gate) : PLUMB_BAD_INPUT;

	(void)before;
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++)
		for (int64_t c = 0; c < D; c++) {
			struct plumb_ball sum = ball_exact(0.0);
			for (int64_t s = 0; s < S; s++) {
				int64_t i = (t * S + s) * D + c;
				struct plumb_ball g = ball_rne(env, ball_sigmoid(ball_rne(env, gate[i])));
				struct plumb_ball p = ball_rne(env, ball_mul(g, ball_exact((double)a->normed[i])));
				sum = s == 0 ? p : ball_add(sum, p); /* nothing is lost on +0 */
			}
			mixed[t * D + c] = ball_out(env, ball_div(sum, ball_exact((double)S)));
		}
	for (int64_t i = 0; injection && i < T * S; i++) {
		struct plumb_ball b = ball_out(env, ball_sigmoid(ball_exact((double)a->inject_logits[i])));
		injection[i] = (struct plumb_ball){2.0 * b.value, 2.0 * b.error, 2.0 * b.spread, 2.0 * b.drift};
	}
	free(gate);
	return status;
}

int hc_inject_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_hc_inject *a = args, *old = before;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;
	struct plumb_ball *out = plumb_bound_of(set, "residual_out");

	for (int64_t t = 0; t < a->T; t++)
		for (int64_t s = 0; s < S; s++)
			for (int64_t c = 0; c < D; c++) {
				int64_t i = (t * S + s) * D + c;
				struct plumb_ball y = ball_mul(ball_exact((double)a->branch[t * D + c]),
					ball_exact((double)a->injection[t * S + s]));
				out[i] = ball_out(env, ball_add(ball_exact((double)old->residual[i]), ball_rne(env, y)));
			}
	return PLUMB_OK;
}
