/* SPDX-License-Identifier: MIT */
/* Hyper-connection: the gated residual of model-spec 2.3. Contracts: core/ops/hc.h. */
#include "core/ops/hc.h"

#include <stdlib.h>

#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/round.h"

int hc_norm_down_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_norm_down *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, R = a->down->rows;
	double *w = scratch_ref(env, S * D, sizeof *w);           /* (S, D) */
	double *x = scratch_ref(env, D, sizeof *x);               /* (D) one stream */
	double *sum = scratch_ref(env, T * (R + S), sizeof *sum); /* (T, R), then (T, S) */
	int status = w && x && sum ? vector_ref(env, a->norm, w) : PLUMB_BAD_INPUT;

	/* n = GNorm(R; hc_norm) */
	for (int64_t ts = 0; ts < T * S && status == PLUMB_OK; ts++) {
		const float *stream = a->residual + ts * D;
		for (int64_t c = 0; c < D; c++)
			x[c] = (double)stream[c];
		norm_ref(env, x, w + ts % S * D, D, x);
		for (int64_t c = 0; c < D; c++)
			a->normed[ts * D + c] = store(env, x[c]);
	}
	/* d = rne(lin(down, n) / S), a = rne(silu(d)) */
	if (status == PLUMB_OK)
		status = linear_sum_ref(env, a->down, a->normed, T, 0, R, sum);
	for (int64_t i = 0; i < T * R && status == PLUMB_OK; i++)
		a->low[i] = store(env, silu(rne(env, rne(env, sum[i]) / (double)S)));
	/* the logits of inj */
	if (status == PLUMB_OK && a->inject) {
		double *inject = sum + T * R;
		status = linear_sum_ref(env, a->inject, a->normed, T, 0, S, inject);
		for (int64_t i = 0; i < T * S && status == PLUMB_OK; i++)
			a->inject_logits[i] = store(env, rne(env, inject[i]) / (double)S);
	}
	free(w);
	free(x);
	free(sum);
	return status;
}

int hc_up_mix_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_up_mix *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden;
	double *gate = scratch_ref(env, T * S * D, sizeof *gate); /* (T, S, D) */
	int status = gate ? linear_sum_ref(env, a->up, a->low, T, 0, S * D, gate) : PLUMB_BAD_INPUT;

	/* g = rne(sigmoid(lin(up, a))), p = rne(g * n), x = rne(mean over streams of p) */
	const int64_t rows = status == PLUMB_OK ? T : 0;
#pragma omp parallel for collapse(2) schedule(static) if (rows * D > 1024)
	for (int64_t t = 0; t < rows; t++)
		for (int64_t c = 0; c < D; c++) {
			double sum = 0.0;
			for (int64_t s = 0; s < S; s++) {
				int64_t i = (t * S + s) * D + c;
				double g = rne(env, sigmoid(rne(env, gate[i])));
				sum += rne(env, g * (double)a->normed[i]);
			}
			a->mixed[t * D + c] = store(env, sum / (double)S);
		}
	/* inj = 2 * rne(sigmoid(logits)) */
	if (status == PLUMB_OK && a->injection)
		for (int64_t i = 0; i < T * S; i++)
			a->injection[i] = 2.0f * store(env, sigmoid((double)a->inject_logits[i]));
	free(gate);
	return status;
}

int hc_inject_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_inject *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;

	for (int64_t t = 0; t < a->T; t++)
		for (int64_t s = 0; s < S; s++)
			for (int64_t c = 0; c < D; c++) {
				int64_t i = (t * S + s) * D + c;
				double y = rne(env, (double)a->branch[t * D + c] * (double)a->injection[t * S + s]);
				a->residual_out[i] = store(env, (double)a->residual[i] + y);
			}
	return PLUMB_OK;
}
