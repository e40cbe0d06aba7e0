/* SPDX-License-Identifier: MIT */
/* GDN in binary32, in the declared orders. Contracts: core/ops/gdn.h. */
#include "core/ops/gdn.h"

#include <math.h>
#include <stdlib.h>

#include "core/math32.h"
#include "ref/twin/twin.h"

int gdn_in_proj_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_in_proj *a = args;
	int64_t rows = a->w_qkv->rows + a->w_z->rows + a->w_b->rows + a->w_a->rows;
	int status = twin_linear(env, a->w_qkv, a->x, a->T, rows, a->qkv);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->w_z, a->x, a->T, rows, a->z);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->w_b, a->x, a->T, rows, a->b);
	if (status == PLUMB_OK)
		status = twin_linear(env, a->w_a, a->x, a->T, rows, a->a);
	return status;
}

int gdn_conv_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_conv *a = args;
	int64_t C = plumb_gdn_channels(env->cfg), Kc = env->cfg->gdn_conv_taps;
	float *w = twin_matrix(env, a->conv); /* (C, Kc) */

	for (int64_t t = 0; w && t < a->T; t++) {
		int64_t p = *a->position + t;
		for (int64_t ch = 0; ch < C; ch++) {
			float sum = 0.0f;
			a->window[p % Kc * C + ch] = a->qkv[t * C + ch];
			for (int64_t j = 0; j < Kc; j++) {
				int64_t back = p - (Kc - 1 - j);
				if (back >= 0)
					sum = fmaf(w[ch * Kc + j], a->window[back % Kc * C + ch], sum);
			}
			a->y[t * C + ch] = twin_rne(env, plumb_siluf(twin_rne(env, sum)));
		}
	}
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(w);
	return status;
}

/* y = x / sqrt(sum x^2 + 1e-6) */
static void l2_norm(const float *x, int64_t n, float *y)
{
	float length = plumb_sqrtf(twin_dot(x, x, n, PLUMB_HEAD_LANES) + 1e-6f);
	for (int64_t i = 0; i < n; i++)
		y[i] = plumb_divf(x[i], length);
}

/* One token of value head h. q, k: (Dk), row: (Dk) scratch, v: (Dv), o: (Dv). */
static void delta_rule(const struct plumb_env *env, const struct plumb_gdn_recurrence *a, int64_t h, const float *q,
	const float *k, float *row, const float *v, float decay, float beta, float *o)
{
	int64_t Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	size_t row_bytes = plumb_format_row_bytes(a->state_format, Dk);

	for (int64_t i = 0; i < Dv; i++) {
		char *stored = (char *)a->state + (size_t)(h * Dv + i) * row_bytes;
		plumb_decode(a->state_format, stored, Dk, row);
		for (int64_t j = 0; j < Dk; j++)
			row[j] = row[j] * decay;
		float delta = (v[i] - twin_dot(row, k, Dk, PLUMB_HEAD_LANES)) * beta;
		for (int64_t j = 0; j < Dk; j++)
			row[j] = fmaf(k[j], delta, row[j]);
		o[i] = twin_rne(env, twin_dot(row, q, Dk, PLUMB_HEAD_LANES));
		plumb_encode(a->state_format, row, Dk, stored);
	}
}

int gdn_recurrence_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_recurrence *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hk = cfg->gdn_key_heads, Hv = cfg->gdn_value_heads, Dk = cfg->gdn_key_dim, Dv = cfg->gdn_value_dim;
	int64_t C = plumb_gdn_channels(cfg);
	float root = (float)sqrt((double)Dk);
	float *a_log = twin_matrix(env, a->a_log);
	float *dt_bias = twin_matrix(env, a->dt_bias);
	float *qk = twin_scratch(env, Hv * 3 * Dk); /* (Hv, 3, Dk) normed query and key of each head, a row */
	int status = a_log && dt_bias && qk ? PLUMB_OK : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = plumb_gdn_recurrence_check(env, a);
	if (status == PLUMB_OK) {
		/* heads are independent; a head takes its tokens in order */
#pragma omp parallel for schedule(static) if (Hv * Dk * Dv > 65536)
		for (int64_t h = 0; h < Hv; h++) {
			int64_t hk = h / (Hv / Hk);
			float *q = qk + h * 3 * Dk, *k = q + Dk;
			for (int64_t t = 0; t < a->T; t++) {
				const float *y = a->y + t * C; /* q (Hk*Dk) | k (Hk*Dk) | v (Hv*Dv) */
				float beta = twin_rne(env, plumb_sigmoidf(a->b[t * Hv + h]));
				float g = -(plumb_expf(a_log[h]) * plumb_softplusf(a->a[t * Hv + h] + dt_bias[h]));
				l2_norm(y + hk * Dk, Dk, q);
				l2_norm(y + (Hk + hk) * Dk, Dk, k);
				for (int64_t j = 0; j < Dk; j++)
					q[j] = plumb_divf(q[j], root);
				delta_rule(env, a, h, q, k, k + Dk, y + 2 * Hk * Dk + h * Dv, plumb_expf(g), beta,
					a->o + (t * Hv + h) * Dv);
			}
		}
	}
	free(a_log);
	free(dt_bias);
	free(qk);
	return status;
}

int gdn_norm_gate_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_norm_gate *a = args;
	int64_t Dv = env->cfg->gdn_value_dim, rows = a->T * env->cfg->gdn_value_heads;
	float *w = twin_matrix(env, a->norm);

	for (int64_t i = 0; w && i < rows; i++) {
		const float *o = a->o + i * Dv, *z = a->z + i * Dv;
		float r = twin_inverse_rms(env, o, Dv, PLUMB_HEAD_LANES);
		for (int64_t j = 0; j < Dv; j++) {
			float n = twin_rne(env, o[j] * r);
			float t = twin_rne(env, w[j] * n);
			float gate = env->cfg->gdn_gate == PLUMB_GATE_SILU ? plumb_siluf(z[j]) : plumb_sigmoidf(z[j]);
			a->out[i * Dv + j] = twin_rne(env, t * gate);
		}
	}
	int status = w ? PLUMB_OK : PLUMB_BAD_INPUT;
	free(w);
	return status;
}

int gdn_out_proj_twin(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_out_proj *a = args;
	return twin_linear(env, a->w, a->x, a->T, a->w->rows, a->y);
}
