/* SPDX-License-Identifier: MIT */
/* PLE in binary32, in the declared orders. Contracts: core/ops/ple.h. */
#include "core/ops/ple.h"

#include <math.h>
#include <stdlib.h>

#include "core/math32.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"

/* Integers and copies: the oracle's bits are the only ones. */
int ple_embed_twin(const struct plumb_env *env, const void *args)
{
	return ple_embed_ref(env, args);
}

/* One stream of one token: x -> y = rne((x*r)*(1 + w)). y may be x. */
static void gnorm(const struct plumb_env *env, const float *x, const float *w, float *y)
{
	int64_t D = env->cfg->hidden;
	float r = twin_inverse_rms(env, x, D, PLUMB_ROW_LANES);
	for (int64_t c = 0; c < D; c++)
		y[c] = twin_rne(env, (x[c] * r) * (1.0f + w[c]));
}

/* s -> w of model-spec 2.4: the signed square root and its sigmoid. */
static float gate_weight(const struct plumb_env *env, float s)
{
	float least = twin_rne(env, 1e-6f);
	float size = fabsf(s) < least ? least : fabsf(s); /* a NaN stays, and makes the product NaN */
	float sign = s > 0.0f ? 1.0f : s < 0.0f ? -1.0f : 0.0f;
	return twin_rne(env, plumb_sigmoidf(twin_rne(env, plumb_sqrtf(size)) * sign));
}

int ple_gate_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_gate *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, SD = S * D;
	float *norm_key = twin_matrix(env, a->norm_key);
	float *norm_query = twin_matrix(env, a->norm_query);
	float *norm_conv = twin_matrix(env, a->norm_conv);
	float *key = twin_scratch(env, T * SD);  /* (T, S, D) */
	float *value = twin_scratch(env, T * D); /* (T, D) */
	float *query = twin_scratch(env, D);
	float root = (float)sqrt((double)D);
	int status = norm_key && norm_query && norm_conv && key && value && query ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = twin_linear(env, a->key_proj, a->embedding, T, SD + D, key);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->value_proj, a->embedding, T, SD + D, value);

	for (int64_t i = 0; i < T * S && status == PLUMB_OK; i++) {
		int64_t s = i % S;
		float *k = key + i * D, *product = k, *gated = a->gated + i * D;
		const float *v = value + i / S * D;
		gnorm(env, k, norm_key + s * D, k);
		gnorm(env, a->residual + i * D, norm_query + s * D, query);
		for (int64_t c = 0; c < D; c++)
			product[c] = twin_rne(env, k[c] * query[c]);
		float sum = twin_rne(env, twin_sum(product, D, PLUMB_ROW_LANES));
		float weight = gate_weight(env, twin_rne(env, plumb_divf(sum, root)));
		for (int64_t c = 0; c < D; c++)
			gated[c] = twin_rne(env, weight * v[c]);
		gnorm(env, gated, norm_conv + s * D, a->conv_in + i * D);
	}
	free(norm_key);
	free(norm_query);
	free(norm_conv);
	free(key);
	free(value);
	free(query);
	return status;
}

int ple_conv_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_conv *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t SD = cfg->streams * cfg->hidden, W = plumb_ple_history(cfg), Kp = cfg->ple_conv_taps, G = cfg->ngram;
	float *w = twin_matrix(env, a->conv); /* (S*D, Kp) */

	for (int64_t t = 0; w && t < a->T; t++) {
		int64_t p = *a->position + t;
		for (int64_t ch = 0; ch < SD; ch++) {
			int64_t i = t * SD + ch;
			float sum = 0.0f;
			for (int64_t j = 0; j < Kp - 1; j++) {
				int64_t back = p - (Kp - 1 - j) * G;
				if (back >= 0)
					sum = fmaf(w[ch * Kp + j], a->window[back % W * SD + ch], sum);
			}
			sum = fmaf(w[ch * Kp + Kp - 1], a->conv_in[i], sum);
			float z = twin_rne(env, plumb_siluf(twin_rne(env, sum)));
			float output = twin_rne(env, a->gated[i] + z);
			a->output[i] = output;
			a->residual_out[i] = twin_rne(env, a->residual[i] + output);
			if (W > 0)
				a->window[p % W * SD + ch] = a->conv_in[i];
		}
	}
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(w);
	return status;
}
