/* SPDX-License-Identifier: MIT */
/* GDN: the gated delta net of model-spec 2.6. Contracts: core/ops/gdn.h. */
#include "core/ops/gdn.h"

#include <math.h>
#include <stdlib.h>

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
	for (int64_t t = 0; t < a->T; t++) {
		int64_t p = *a->position + t;
		for (int64_t ch = 0; ch < C; ch++) {
			double sum = 0.0, squares = 0.0;
			a->window[p % Kc * C + ch] = a->qkv[t * C + ch];
			for (int j = 0; j < Kc; j++) { /* oldest tap first; positions before 0 are zero */
				int64_t back = p - (Kc - 1 - j);
				if (back < 0)
					continue;
				double product = (double)w[ch * Kc + j] * (double)a->window[back % Kc * C + ch];
				sum += product;
				squares += product * product;
			}
			sum = nudge_sum(env, sum, squares, Kc);
			a->y[t * C + ch] = store(env, silu(rne(env, sum)));
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

/* ---- perturbed: as far off as the chunked form of the recurrence may be ----
 *
 * Implementations that take a prompt at once solve for CHUNK tokens together: what the state holds is then written as a sum
 * over the chunk's tokens j, (k . k_j) D_j delta_j, D_j = exp(G - G_j), G the running sum of the log decays g. In binary32
 *   G is rounded at every token, and each decay is off by up to u |G|, variance (u G)^2 / 3: the forms differ most here,
 *   since G of 64 tokens is often far below -50;
 *   the sum has n terms for which ref/nudge.h holds, and each product k . k_j is itself such a sum of Dk terms.
 * Together with what comes from before the chunk, a sum of Dk terms of the state. */
enum { CHUNK = 64 };

struct chunk {
	int tokens;
	double log_decay;                                    /* G */
	double decay[CHUNK], of_key[CHUNK], of_query[CHUNK]; /* D_j; weights of delta_j^2 in the variance / u^2 */
	double *key, *delta;                                 /* (CHUNK, Dk), (CHUNK, Dv) */
};

/* What a product with the key of token j contributes. */
static double chunk_weight(const struct chunk *c, int j, const double *x, int64_t Dk)
{
	double dot = 0.0, squares = 0.0;
	for (int64_t i = 0; i < Dk; i++) {
		double product = x[i] * c->key[j * Dk + i];
		dot += product;
		squares += product * product;
	}
	return c->decay[j] * c->decay[j] *
	       ((double)c->tokens * dot * dot / 18.0 + (double)Dk * (dot * dot / 9.0 + squares / 18.0));
}

/* The next token: its decay, moved. */
static double chunk_next(const struct plumb_env *env, struct chunk *c, const double *q, const double *k, double g)
{
	int64_t Dk = env->cfg->gdn_key_dim;
	double decay;

	if (c->tokens == CHUNK) {
		c->tokens = 0;
		c->log_decay = 0.0;
	}
	g = nudge_value(env, g);
	c->log_decay += g;
	decay = exp(g);
	decay = nudge_by(env, decay, NUDGE_SIGMAS / sqrt(3.0) * 0x1p-24 * fabs(c->log_decay) * decay);
	for (int j = 0; j < c->tokens; j++)
		c->decay[j] *= decay;
	c->decay[c->tokens] = 1.0;
	for (int64_t i = 0; i < Dk; i++)
		c->key[c->tokens * Dk + i] = k[i];
	c->tokens++;
	for (int j = 0; j < c->tokens; j++) {
		c->of_key[j] = j + 1 < c->tokens ? chunk_weight(c, j, k, Dk) : 0.0;
		c->of_query[j] = chunk_weight(c, j, q, Dk);
	}
	return decay;
}

/* A sum over the state of value row i, and over what the chunk has put there. */
static double chunk_sum(
	const struct plumb_env *env, const struct chunk *c, const double *weight, int64_t i, double sum, double squares)
{
	double Dk = (double)env->cfg->gdn_key_dim, terms = (double)c->tokens, Dv = (double)env->cfg->gdn_value_dim;
	double variance = Dk * (sum * sum / 9.0 + squares / 18.0) + terms * sum * sum / 9.0;
	for (int j = 0; j < c->tokens; j++) {
		double delta = c->delta[j * (int64_t)Dv + i];
		variance += weight[j] * delta * delta;
	}
	return nudge_by(env, sum, NUDGE_SIGMAS * 0x1p-24 * sqrt(variance));
}

/* One token of value head h. q, k: (Dk), row: (Dk) scratch, v: (Dv), o: (Dv). chunk: NULL unless perturbed. */
static void delta_rule(const struct plumb_env *env, const struct plumb_gdn_recurrence *a, int64_t h, const double *q,
	const double *k, float *row, const float *v, double decay, double beta, struct chunk *chunk, float *o)
{
	int64_t Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	size_t row_bytes = plumb_format_row_bytes(a->state_format, Dk);

	for (int64_t i = 0; i < Dv; i++) {
		char *stored = (char *)a->state + (size_t)(h * Dv + i) * row_bytes;
		double memory = 0.0, out = 0.0, memory2 = 0.0, out2 = 0.0;
		plumb_decode(a->state_format, stored, Dk, row);
		for (int64_t j = 0; j < Dk; j++) {
			double product = (double)row[j] * decay * k[j];
			memory += product;
			memory2 += product * product;
		}
		if (chunk)
			memory = chunk_sum(env, chunk, chunk->of_key, i, memory, memory2);
		double delta = ((double)v[i] - memory) * beta;
		if (chunk)
			chunk->delta[(chunk->tokens - 1) * Dv + i] = delta;
		for (int64_t j = 0; j < Dk; j++) {
			double updated = (double)row[j] * decay + k[j] * delta;
			if (chunk) /* one more rounded partial sum */
				updated = nudge_by(env, updated, NUDGE_SIGMAS / sqrt(3.0) * 0x1p-24 * fabs(updated));
			row[j] = (float)updated;
			out += updated * q[j];
			out2 += updated * q[j] * (updated * q[j]);
		}
		if (chunk)
			out = chunk_sum(env, chunk, chunk->of_query, i, out, out2);
		o[i] = store(env, out);
		plumb_encode(a->state_format, row, Dk, stored);
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
	double *qk = scratch_ref(env, Hv * 2 * Dk, sizeof *qk); /* (Hv, 2, Dk) normed query and key of each head */
	float *row = scratch_ref(env, Hv * Dk, sizeof *row);    /* (Hv, Dk) */
	struct chunk *chunk = env->nudge ? scratch_ref(env, Hv, sizeof *chunk) : NULL;
	double *kept = env->nudge ? scratch_ref(env, Hv * CHUNK * (Dk + Dv), sizeof *kept) : NULL; /* of the chunks */
	bool there = a_log && dt_bias && qk && row && (!env->nudge || (chunk && kept));
	int status = there ? vector_ref(env, a->a_log, a_log) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = vector_ref(env, a->dt_bias, dt_bias);
	if (status == PLUMB_OK && (unsigned)a->state_format >= PLUMB_PLAIN_FORMATS)
		status = plumb_fail(env->err, PLUMB_BAD_INPUT, "gdn_recurrence: the state is %s, expected f32, f16 or bf16",
			plumb_format_name(a->state_format));
	if (status == PLUMB_OK) {
		/* heads are independent; a head takes its tokens in order */
#pragma omp parallel for schedule(static) if (Hv * Dk * Dv > 65536)
		for (int64_t h = 0; h < Hv; h++) {
			int64_t hk = h / (Hv / Hk); /* consecutive value heads share a key head */
			double *q = qk + h * 2 * Dk, *k = q + Dk;
			if (chunk)
				chunk[h] = (struct chunk){.key = kept + h * CHUNK * (Dk + Dv),
					.delta = kept + h * CHUNK * (Dk + Dv) + CHUNK * Dk};
			for (int64_t t = 0; t < a->T; t++) {
				const float *y = a->y + t * C; /* q (Hk*Dk) | k (Hk*Dk) | v (Hv*Dv) */
				double beta = rne(env, sigmoid((double)a->b[t * Hv + h]));
				double g = -exp(a_log[h]) * softplus((double)a->a[t * Hv + h] + dt_bias[h]);
				l2_norm(env, y + hk * Dk, Dk, q);
				l2_norm(env, y + (Hk + hk) * Dk, Dk, k);
				for (int64_t j = 0; j < Dk; j++)
					q[j] /= sqrt((double)Dk);
				double decay = chunk ? chunk_next(env, &chunk[h], q, k, g) : exp(g);
				delta_rule(env, a, h, q, k, row + h * Dk, y + 2 * Hk * Dk + h * Dv, decay, beta,
					chunk ? &chunk[h] : NULL, a->o + (t * Hv + h) * Dv);
			}
		}
	}
	free(a_log);
	free(dt_bias);
	free(qk);
	free(row);
	free(chunk);
	free(kept);
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
		double sum = 0.0, squares = 0.0;
		for (int64_t j = 0; j < Dv; j++) {
			double square = (double)o[j] * (double)o[j];
			sum += square;
			squares += square * square;
		}
		sum = nudge_sum(env, sum, squares, Dv);
		double r = 1.0 / sqrt(sum / (double)Dv + (double)env->cfg->rms_norm_eps);
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
