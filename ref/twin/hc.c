/* SPDX-License-Identifier: MIT */
/* Hyper-connection in binary32, in the order of core/ops/hc.h. The meaning: ref/hc.c. */
#include "core/ops/hc.h"

#include <stdlib.h>

#include "core/math32.h"
#include "ref/twin/twin.h"

int hc_norm_down_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_norm_down *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden, R = a->down->rows;
	float *w = twin_matrix(env, a->norm); /* (S, D) */
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t ts = 0; ts < T * S && status == PLUMB_OK; ts++) {
		const float *x = a->residual + ts * D, *ws = w + ts % S * D;
		float r = twin_inverse_rms(env, x, D, PLUMB_ROW_LANES);
		for (int64_t c = 0; c < D; c++)
			a->normed[ts * D + c] = twin_rne(env, (x[c] * r) * (1.0f + ws[c]));
	}
	free(w);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->down, a->normed, T, R + S, a->low);
	for (int64_t i = 0; i < T * R && status == PLUMB_OK; i++)
		a->low[i] = twin_rne(env, plumb_siluf(twin_rne(env, a->low[i] / (float)S)));
	if (status == PLUMB_OK && a->inject) {
		status = twin_linear(env, a->inject, a->normed, T, R + S, a->inject_logits);
		for (int64_t i = 0; i < T * S && status == PLUMB_OK; i++)
			a->inject_logits[i] = twin_rne(env, a->inject_logits[i] / (float)S);
	}
	return status;
}

int hc_up_mix_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_up_mix *a = args;
	int64_t T = a->T, S = env->cfg->streams, D = env->cfg->hidden;
	float *gate = twin_scratch(env, T * S * D); /* (T, S, D) */
	int status = gate ? twin_linear(env, a->up, a->low, T, S * D, gate) : PLUMB_BAD_INPUT;

	for (int64_t t = 0; t < T && status == PLUMB_OK; t++)
		for (int64_t c = 0; c < D; c++) {
			float sum = 0.0f;
			for (int64_t s = 0; s < S; s++) {
				int64_t i = (t * S + s) * D + c;
				float g = twin_rne(env, plumb_sigmoidf(gate[i]));
				sum = sum + twin_rne(env, g * a->normed[i]);
			}
			a->mixed[t * D + c] = twin_rne(env, sum / (float)S);
		}
	if (status == PLUMB_OK && a->injection)
		for (int64_t i = 0; i < T * S; i++)
			a->injection[i] = 2.0f * twin_rne(env, plumb_sigmoidf(a->inject_logits[i]));
	free(gate);
	return status;
}

int hc_inject_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_inject *a = args;
	int64_t S = env->cfg->streams, D = env->cfg->hidden;

	for (int64_t t = 0; t < a->T; t++)
		for (int64_t s = 0; s < S; s++)
			for (int64_t c = 0; c < D; c++) {
				int64_t i = (t * S + s) * D + c;
				float y = twin_rne(env, a->branch[t * D + c] * a->injection[t * S + s]);
				a->residual_out[i] = twin_rne(env, a->residual[i] + y);
			}
	return PLUMB_OK;
}
