/* SPDX-License-Identifier: MIT */
/* Bounds of the PLE stage. Contracts: core/ops/ple.h. */
#include "core/ops/ple.h"

#include <stdlib.h>

#include "ref/bound_ball.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"

/* A gather: exact, given the rows. Those are integers, compared as such elsewhere. */
int ple_embed_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_ple_embed *a = args;
	int64_t Hg = plumb_ngram_heads(env->cfg), width = env->cfg->ple_dim / Hg;
	struct plumb_ball *embedding = plumb_bound_of(set, "embedding");
	float *row = scratch_ref(env, width, sizeof *row);

	(void)before;
	for (int64_t i = 0; row && i < a->T * Hg; i++) {
		int64_t r = a->row[i];
		if (r >= 0 && r < a->ngram->rows)
			plumb_weight_row(&a->table[r / a->shard_rows], r % a->shard_rows, 0, width, row);
		for (int64_t c = 0; (r < 0 || r >= a->ngram->rows) && c < width; c++)
			row[c] = NAN;
		bound_exact_copy(row, width, embedding + i * width);
	}
	int status = row ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(row);
	return status;
}

/* One stream of one token: y = rne((x*r)*(1 + w)). y may be x. */
static void gnorm(const struct plumb_env *env, const struct plumb_ball *x, const float *w, struct plumb_ball *y)
{
	int64_t D = env->cfg->hidden;
	bound_norm(env, x, w, D, PLUMB_ROW_LANES, y);
	for (int64_t c = 0; c < D; c++)
		y[c] = ball_rne(env, y[c]);
}

/* sqrt(max(|s|, least)) * sign(s): rises with s everywhere, with jumps of sqrt(least) into and out of 0. */
static double signed_root(double s, double least)
{
	double root = sqrt(fabs(s) < least ? least : fabs(s));
	return s > 0.0 ? root : s < 0.0 ? -root : s; /* 0 or NaN */
}

/* s -> w of model-spec 2.4. */
static struct plumb_ball gate_weight(const struct plumb_env *env, struct plumb_ball s)
{
	double least = env->policy == PLUMB_POLICY_BF16 ? (double)plumb_round_bf16(1e-6f) : (double)1e-6f;
	struct plumb_ball root = ball_monotone(s, signed_root(s.value - s.error, least), signed_root(s.value, least),
		signed_root(s.value + s.error, least), 0.5);
	root.spread = root.error; /* where the sign may turn, errors are not small and independent */
	return ball_rne(env, ball_sigmoid(ball_rne(env, root)));
}

/* One stream: key, query (D) rounded projections and residual; value (D); product: scratch (D). */
static void gate_stream(const struct plumb_env *env, const struct plumb_ball *key, const struct plumb_ball *query,
	const struct plumb_ball *value, const float *norm_conv, struct plumb_ball *product, struct plumb_ball *gated,
	struct plumb_ball *conv_in)
{
	int64_t D = env->cfg->hidden;
	struct plumb_ball root = ball_exact((double)(float)sqrt((double)D));

	for (int64_t c = 0; c < D; c++)
		product[c] = ball_rne(env, ball_mul(key[c], query[c]));
	struct plumb_ball sum = ball_rne(env, bound_sum(product, D, plumb_strided_depth(D, PLUMB_ROW_LANES)));
	struct plumb_ball weight = gate_weight(env, ball_rne(env, ball_div(sum, root)));
	for (int64_t c = 0; c < D; c++) {
		struct plumb_ball u = ball_mul(weight, value[c]);
		gated[c] = ball_out(env, u);
		product[c] = ball_rne(env, u);
	}
	bound_norm(env, product, norm_conv, D, PLUMB_ROW_LANES, product);
	for (int64_t c = 0; c < D; c++)
		conv_in[c] = ball_out(env, product[c]);
}

int ple_gate_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_ple_gate *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, SD = S * D;
	struct plumb_ball *gated = plumb_bound_of(set, "gated"), *conv_in = plumb_bound_of(set, "conv_in");
	float *norm_key = bound_matrix(env, a->norm_key), *norm_query = bound_matrix(env, a->norm_query);
	float *norm_conv = bound_matrix(env, a->norm_conv);
	struct plumb_ball *key = bound_scratch(env, T * SD), *value = bound_scratch(env, T * D);
	struct plumb_ball *query = bound_balls(env, a->residual, T * SD), *product = bound_scratch(env, D);
	int status = norm_key && norm_query && norm_conv && key && value && query && product ? PLUMB_OK : PLUMB_BAD_INPUT;

	(void)before;
	if (status == PLUMB_OK)
		status = bound_linear_of(env, a->key_proj, a->embedding, T, SD + D, key);
	if (status == PLUMB_OK)
		status = bound_linear_of(env, a->value_proj, a->embedding, T, SD + D, value);
	for (int64_t i = 0; i < T * SD && status == PLUMB_OK; i++)
		key[i] = ball_rne(env, key[i]);
	for (int64_t i = 0; i < T * D && status == PLUMB_OK; i++)
		value[i] = ball_rne(env, value[i]);
	for (int64_t i = 0; i < T * S && status == PLUMB_OK; i++) {
		int64_t s = i % S;
		struct plumb_ball *k = key + i * D, *q = query + i * D;
		gnorm(env, k, norm_key + s * D, k);
		gnorm(env, q, norm_query + s * D, q);
		gate_stream(env, k, q, value + i / S * D, norm_conv + s * D, product, gated + i * D, conv_in + i * D);
	}
	free(norm_key);
	free(norm_query);
	free(norm_conv);
	free(key);
	free(value);
	free(query);
	free(product);
	return status;
}

int ple_conv_bound(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set)
{
	const struct plumb_ple_conv *a = args, *old = before;
	const struct plumb_config *cfg = env->cfg;
	int64_t SD = cfg->streams * cfg->hidden, W = plumb_ple_history(cfg), Kp = cfg->ple_conv_taps, G = cfg->ngram;
	struct plumb_ball *window = plumb_bound_of(set, "window"), *output = plumb_bound_of(set, "output");
	struct plumb_ball *residual = plumb_bound_of(set, "residual_out");
	float *w = bound_matrix(env, a->conv); /* (S*D, Kp) */

	if (W > 0)
		bound_exact_copy(old->window, W * SD, window);
	for (int64_t t = 0; w && t < a->T; t++) {
		int64_t p = *a->position + t;
		for (int64_t ch = 0; ch < SD; ch++) {
			int64_t i = t * SD + ch;
			struct plumb_ball sum = ball_exact(0.0), in = ball_exact((double)a->conv_in[i]);
			for (int64_t j = 0; j < Kp - 1; j++) {
				int64_t back = p - (Kp - 1 - j) * G;
				if (back >= 0)
					sum = ball_fmaf(
						ball_exact((double)w[ch * Kp + j]), window[back % W * SD + ch], sum);
			}
			sum = ball_fmaf(ball_exact((double)w[ch * Kp + Kp - 1]), in, sum);
			struct plumb_ball z = ball_rne(env, ball_silu(ball_rne(env, sum)));
			struct plumb_ball both = ball_add(ball_exact((double)a->gated[i]), z);
			output[i] = ball_out(env, both);
			residual[i] = ball_out(env, ball_add(ball_exact((double)old->residual[i]), ball_rne(env, both)));
			if (W > 0)
				window[p % W * SD + ch] = in;
		}
	}
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(w);
	return status;
}
