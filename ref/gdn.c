/* SPDX-License-Identifier: MIT */
/* GDN: the gated delta net of model-spec 2.6. Contracts: core/ops/gdn.h. */
#include "core/ops/gdn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ref/chunk.h"
#include "ref/linear.h"
#include "ref/ref.h"
#include "ref/round.h"

int gdn_in_proj_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_in_proj *a = args;
	int status = linear_ref(env, a->w_qkv, a->x, a->T, a->qkv);
	if (status == PLUMB_OK)
		status = linear_ref(env, a->w_z, a->x, a->T, a->z);
	if (status == PLUMB_OK)
		status = linear_ref(env, a->w_b, a->x, a->T, a->b);
	if (status == PLUMB_OK)
		status = linear_ref(env, a->w_a, a->x, a->T, a->a);
	return status;
}

int gdn_conv_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_conv *a = args;
	int64_t C = plumb_gdn_channels(env->cfg);
	int Kc = env->cfg->gdn_conv_taps;
	float *w = scratch_ref(env, C * Kc, sizeof *w); /* (C, Kc) */

	if (!w)
		return PLUMB_BAD_INPUT;
	for (int64_t ch = 0; ch < C; ch++)
		plumb_weight_row(a->conv, ch, 0, Kc, w + ch * Kc);
#pragma omp parallel if (C > 4096)
	for (int64_t t = 0; t < a->T; t++) {
		int64_t p = *a->position + t;
#pragma omp for schedule(static)
		for (int64_t ch = 0; ch < C; ch++) {
			struct sum sum = {0};
			a->window[p % Kc * C + ch] = a->qkv[t * C + ch];
			for (int j = 0; j < Kc; j++) { /* oldest tap first; positions before 0 are zero */
				int64_t back = p - (Kc - 1 - j);
				if (back >= 0)
					add(&sum, (double)w[ch * Kc + j] * (double)a->window[back % Kc * C + ch]);
			}
			a->y[t * C + ch] = store(env, silu(rne(env, total(env, &sum))));
		}
	}
	free(w);
	return PLUMB_OK;
}

/* x / sqrt(sum x^2 + 1e-6); 1e-6 is fixed in the model, not its rms_norm_eps. */
static void l2_norm(const struct plumb_env *env, const float *x, int64_t n, double *y)
{
	double sum;
	for (int64_t i = 0; i < n; i++)
		y[i] = (double)x[i];
	sum = squares_ref(env, y, n);
	for (int64_t i = 0; i < n; i++)
		y[i] = nudge_value(env, y[i] / sqrt(sum + 1e-6));
}

/* One token of value head h, ABREAST value channels at a time. q, k: (Dk), v: (Dv), o: (Dv). row: (Dk), S: (Dk, ABREAST)
 * scratch. chunk: NULL unless perturbed (ref/chunk.h). */
static void delta_rule(const struct plumb_env *env, const struct plumb_gdn_recurrence *a, int64_t h, const double *q,
	const double *k, float *row, double (*S)[ABREAST], const float *v, double decay, double beta, struct chunk *chunk,
	float *o)
{
	int64_t Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	size_t row_bytes = plumb_format_row_bytes(a->state_format, Dk);

	for (int64_t i0 = 0; i0 < Dv; i0 += ABREAST) {
		const int channels = (int)(Dv - i0 < ABREAST ? Dv - i0 : ABREAST); /* the other columns' sums are dropped */
		char *stored = (char *)a->state + (size_t)(h * Dv + i0) * row_bytes;
		struct sum memory[ABREAST], out[ABREAST];
		double delta[ABREAST] = {0};
		for (int i = 0; i < channels; i++) {
			plumb_decode(a->state_format, stored + (size_t)i * row_bytes, Dk, row);
			for (int64_t j = 0; j < Dk; j++)
				S[j][i] = (double)row[j] * decay;
		}
		add_each(env, S, k, Dk, memory);
		for (int i = 0; i < channels; i++) {
			delta[i] = ((double)v[i0 + i] - chunk_memory(env, chunk, i0 + i, &memory[i])) * beta;
			chunk_put(chunk, i0 + i, Dv, delta[i]);
		}
		for (int64_t j = 0; j < Dk; j++)
#pragma omp simd
			for (int i = 0; i < ABREAST; i++)
				S[j][i] += k[j] * delta[i];
		for (int64_t j = 0; env->nudge && j < Dk; j++)
			for (int i = 0; i < channels; i++)
				S[j][i] = chunk_updated(env, S[j][i]);
		add_each(env, S, q, Dk, out);
		for (int i = 0; i < channels; i++) {
			for (int64_t j = 0; j < Dk; j++)
				row[j] = (float)S[j][i];
			o[i0 + i] = store(env, chunk_output(env, chunk, i0 + i, &out[i]));
			plumb_encode(a->state_format, row, Dk, stored + (size_t)i * row_bytes);
		}
	}
}

int gdn_recurrence_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_recurrence *a = args;
	const struct plumb_config *cfg = env->cfg;
	int64_t Hk = cfg->gdn_key_heads, Hv = cfg->gdn_value_heads, Dk = cfg->gdn_key_dim, Dv = cfg->gdn_value_dim;
	int64_t C = plumb_gdn_channels(cfg);
	double *a_log = scratch_ref(env, Hv, sizeof *a_log);
	double *dt_bias = scratch_ref(env, Hv, sizeof *dt_bias);
	double *qk = scratch_ref(env, Hv * 2 * Dk, sizeof *qk);     /* (Hv, 2, Dk) normed query and key of each head */
	float *row = scratch_ref(env, Hv * Dk, sizeof *row);        /* (Hv, Dk) */
	double(*S)[ABREAST] = scratch_ref(env, Hv * Dk, sizeof *S); /* (Hv, Dk, ABREAST) */
	struct chunk *chunk = env->nudge ? chunks_make(env) : NULL; /* (Hv) */
	bool there = a_log && dt_bias && qk && row && S && (!env->nudge || chunk);
	int status = there ? vector_ref(env, a->a_log, a_log) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = vector_ref(env, a->dt_bias, dt_bias);
	if (status == PLUMB_OK)
		status = plumb_gdn_recurrence_check(env, a);
	if (status == PLUMB_OK) {
		/* a remainder of Dv leaves columns that only cost time */
		memset(S, 0, (size_t)(Hv * Dk) * sizeof *S);
		/* heads are independent; a head takes its tokens in order */
#pragma omp parallel for schedule(static) if (Hv * Dk * Dv > 65536)
		for (int64_t h = 0; h < Hv; h++) {
			int64_t hk = h / (Hv / Hk); /* consecutive value heads share a key head */
			double *q = qk + h * 2 * Dk, *k = q + Dk;
			for (int64_t t = 0; t < a->T; t++) {
				const float *y = a->y + t * C; /* q (Hk*Dk) | k (Hk*Dk) | v (Hv*Dv) */
				double beta = rne(env, sigmoid((double)a->b[t * Hv + h]));
				double g = -exp(a_log[h]) * softplus((double)a->a[t * Hv + h] + dt_bias[h]);
				l2_norm(env, y + hk * Dk, Dk, q);
				l2_norm(env, y + (Hk + hk) * Dk, Dk, k);
				for (int64_t j = 0; j < Dk; j++)
					q[j] /= sqrt((double)Dk);
				struct chunk *own = chunk_of(chunk, h);
				double decay = chunk_decay(env, own, q, k, g);
				delta_rule(env, a, h, q, k, row + h * Dk, S + h * Dk, y + 2 * Hk * Dk + h * Dv, decay, beta,
					own, a->o + (t * Hv + h) * Dv);
			}
		}
	}
	free(a_log);
	free(dt_bias);
	free(qk);
	free(row);
	free(S);
	chunks_free(chunk);
	return status;
}

int gdn_norm_gate_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_norm_gate *a = args;
	int64_t Dv = env->cfg->gdn_value_dim, rows = a->T * env->cfg->gdn_value_heads;
	double *w = scratch_ref(env, Dv, sizeof *w); /* plain weight, not 1 + w */
	int status = w ? vector_ref(env, a->norm, w) : PLUMB_BAD_INPUT;

	for (int64_t i = 0; i < rows && status == PLUMB_OK; i++) {
		const float *o = a->o + i * Dv, *z = a->z + i * Dv;
		struct sum sum = {0};
		for (int64_t j = 0; j < Dv; j++)
			add(&sum, (double)o[j] * (double)o[j]);
		double r = 1.0 / sqrt(total(env, &sum) / (double)Dv + (double)env->cfg->rms_norm_eps);
		for (int64_t j = 0; j < Dv; j++) {
			double n = rne(env, (double)o[j] * r);
			double t = rne(env, w[j] * n);
			double zj = (double)z[j];
			double gate = env->cfg->gdn_gate == PLUMB_GATE_SILU ? silu(zj) : sigmoid(zj);
			a->out[i * Dv + j] = store(env, t * gate);
		}
	}
	free(w);
	return status;
}

int gdn_out_proj_ref(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_out_proj *a = args;
	return linear_ref(env, a->w, a->x, a->T, a->y);
}
