/* SPDX-License-Identifier: MIT */
/* PLE: the n-gram layer of model-spec 2.4. Contracts: core/ops/ple.h. */
#include "core/ops/ple.h"

#include <math.h>
#include <stdlib.h>

#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/round.h"

int ple_embed_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_embed *a = args;
	const struct plumb_config *cfg = env->cfg;
	int G = cfg->ngram, Hg = plumb_ngram_heads(cfg);
	int64_t width = cfg->ple_dim / Hg;

	for (int64_t t = 0; t < a->T; t++) {
		int64_t id[PLUMB_MAX_NGRAM];
		id[0] = a->token[t];
		for (int j = 1; j < G; j++)
			id[j] = a->history[G - 1 - j];
		plumb_ngram_rows(cfg, a->ngram, id, a->row + t * Hg);
		for (int h = 0; h < Hg; h++) {
			int64_t r = a->row[t * Hg + h];
			plumb_weight_row(&a->table[r / a->shard_rows], r % a->shard_rows, 0, width,
				a->embedding + (t * Hg + h) * width);
		}
		for (int j = 0; j < G - 2; j++)
			a->history[j] = a->history[j + 1];
		a->history[G - 2] = a->token[t];
	}
	return PLUMB_OK;
}

/* GNorm of model-spec 2.1, rounded: x, w, y (S, D). */
static void gnorm(const struct plumb_env *env, const double *x, const double *w, double *y)
{
	int64_t S = env->cfg->streams, D = env->cfg->hidden;
	for (int64_t s = 0; s < S; s++)
		norm_ref(env, x + s * D, w + s * D, D, y + s * D);
	for (int64_t i = 0; i < S * D; i++)
		y[i] = rne(env, y[i]);
}

/* s -> w of model-spec 2.4: the signed square root and its sigmoid. */
static double gate_weight(const struct plumb_env *env, double s)
{
	/* 1e-6 lives in the activation dtype; as bf16 it is 0x3586 */
	double least = env->policy == PLUMB_POLICY_BF16 ? (double)plumb_round_bf16(1e-6f) : (double)1e-6f;
	double sign = s > 0.0 ? 1.0 : s < 0.0 ? -1.0 : 0.0;
	double size = fabs(s) < least ? least : fabs(s); /* a NaN stays */
	if (isnan(s))
		sign = s;
	return rne(env, sigmoid(rne(env, sqrt(size)) * sign));
}

int ple_gate_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_gate *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, SD = S * D;
	double *norm_key = scratch_ref(env, SD, sizeof *norm_key);
	double *norm_query = scratch_ref(env, SD, sizeof *norm_query);
	double *norm_conv = scratch_ref(env, SD, sizeof *norm_conv);
	double *key = scratch_ref(env, T * SD, sizeof *key);    /* (T, S, D) */
	double *value = scratch_ref(env, T * D, sizeof *value); /* (T, D) */
	double *query = scratch_ref(env, SD, sizeof *query);    /* (S, D) */
	double root = (double)(float)sqrt((double)D);           /* one binary32 constant, as torch divides by it */
	int status = norm_key && norm_query && norm_conv && key && value && query ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = vector_ref(env, a->norm_key, norm_key);
	if (status == PLUMB_OK)
		status = vector_ref(env, a->norm_query, norm_query);
	if (status == PLUMB_OK)
		status = vector_ref(env, a->norm_conv, norm_conv);
	if (status == PLUMB_OK)
		status = linear_sum_ref(env, a->key_proj, a->embedding, T, 0, SD, key);
	if (status == PLUMB_OK)
		status = linear_sum_ref(env, a->value_proj, a->embedding, T, 0, D, value);

	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		double *k = key + t * SD, *v = value + t * D;
		for (int64_t i = 0; i < SD; i++) {
			k[i] = rne(env, k[i]);
			query[i] = (double)a->residual[t * SD + i];
		}
		gnorm(env, k, norm_key, k);
		gnorm(env, query, norm_query, query);
		for (int64_t s = 0; s < S; s++) {
			struct sum sum = {0};
			for (int64_t c = 0; c < D; c++)
				add(&sum, rne(env, k[s * D + c] * query[s * D + c]));
			double weight = gate_weight(env, rne(env, rne(env, total(env, &sum)) / root));
			for (int64_t c = 0; c < D; c++) {
				double u = weight * rne(env, v[c]);
				a->gated[t * SD + s * D + c] = store(env, u);
				query[s * D + c] = rne(env, u); /* reused: the input of the conv norm */
			}
		}
		for (int64_t s = 0; s < S; s++)
			norm_ref(env, query + s * D, norm_conv + s * D, D, query + s * D);
		for (int64_t i = 0; i < SD; i++)
			a->conv_in[t * SD + i] = store(env, query[i]);
	}
	free(norm_key);
	free(norm_query);
	free(norm_conv);
	free(key);
	free(value);
	free(query);
	return status;
}

int ple_conv_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_conv *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t SD = cfg->streams * cfg->hidden, W = plumb_ple_history(cfg);
	int Kp = cfg->ple_conv_taps, G = cfg->ngram;
	float *w = scratch_ref(env, SD * Kp, sizeof *w); /* (S*D, Kp) */

	if (!w)
		return PLUMB_BAD_INPUT;
	for (int64_t ch = 0; ch < SD; ch++)
		plumb_weight_row(a->conv, ch, 0, Kp, w + ch * Kp);
	for (int64_t t = 0; t < a->T; t++) {
		int64_t p = *a->position + t;
		for (int64_t ch = 0; ch < SD; ch++) {
			int64_t i = t * SD + ch;
			struct sum sum = {0};
			for (int j = 0; j < Kp - 1; j++) { /* c_{p - (Kp-1-j)*G}; rows before position 0 are zero */
				int64_t back = p - (int64_t)(Kp - 1 - j) * G;
				if (back >= 0)
					add(&sum, (double)w[ch * Kp + j] * (double)a->window[back % W * SD + ch]);
			}
			add(&sum, (double)w[ch * Kp + Kp - 1] * (double)a->conv_in[i]);
			double z = rne(env, silu(rne(env, total(env, &sum))));
			a->output[i] = store(env, (double)a->gated[i] + z);
			a->residual_out[i] = store(env, (double)a->residual[i] + rne(env, (double)a->gated[i] + z));
			if (W > 0)
				a->window[p % W * SD + ch] = a->conv_in[i];
		}
	}
	free(w);
	return PLUMB_OK;
}
