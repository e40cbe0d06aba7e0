/* SPDX-License-Identifier: MIT */
/* Fused entries: both ops of a hyper-connection site; projections and conv of a GDN layer, where the conv's state
 * belongs to the second op; the three of the MoE, where no choice of experts is an operand. FUSED_FAULT plants: window,
 * injection, tail (terms behind the last whole 16). */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

static int is_fault(const char *name)
{
	const char *fault = getenv("FUSED_FAULT");
	return fault && strcmp(fault, name) == 0;
}

static float dot(const struct plumb_kernel_matrix *w, int64_t n, const float *x)
{
	const int64_t terms = is_fault("tail") ? w->cols / 16 * 16 : w->cols;
	double sum = 0.0;
	for (int64_t k = 0; k < terms; k++)
		sum += (double)plumb_value(w, n, k) * (double)x[k];
	return (float)sum;
}

static float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

/* ---- hc_norm_down+hc_up_mix ---- */

static size_t hc_workspace(const struct plumb_kernel_call *call)
{
	return (size_t)(plumb_dim(call, "S") * plumb_dim(call, "D") + plumb_dim(call, "R")) * sizeof(float);
}

static int hc(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *norm = plumb_weight_of(call, "norm"), *down = plumb_weight_of(call, "down");
	const struct plumb_kernel_matrix *inject = plumb_weight_of(call, "inject"), *up = plumb_weight_of(call, "up");
	const float *residual = plumb_f32(call, "residual");
	float *mixed = plumb_f32(call, "hc_up_mix.mixed"), *injection = plumb_f32(call, "injection");
	const int64_t S = plumb_dim(call, "S"), D = plumb_dim(call, "D"), R = plumb_dim(call, "R");
	const int32_t b = call->bf16;
	float *normed = (float *)call->workspace, *low = normed + S * D;

	if (plumb_operand(call, "normed") || plumb_operand(call, "low") || plumb_operand(call, "inject_logits"))
		return plumb_say(call, "an inner result is an operand");
	for (int64_t t = 0; t < call->T; t++, residual += S * D) {
		for (int64_t s = 0; s < S; s++) {
			double squares = 0.0;
			for (int64_t i = 0; i < D; i++)
				squares += (double)residual[s * D + i] * (double)residual[s * D + i];
			float r = 1.0f / sqrtf((float)(squares / (double)D) + call->eps);
			for (int64_t i = s * D; i < s * D + D; i++)
				normed[i] = plumb_rne(b, residual[i] * r * (1.0f + plumb_value(norm, 0, i)));
		}
		for (int64_t i = 0; i < R; i++) {
			float v = plumb_rne(b, plumb_rne(b, dot(down, i, normed)) / (float)S);
			low[i] = plumb_rne(b, v * sigmoid(v));
		}
		for (int64_t s = 0; s < S && injection; s++)
			injection[t * S + s] =
				2.0f * plumb_rne(b, sigmoid(plumb_rne(b, plumb_rne(b, dot(inject, s, normed)) / (float)S)));
		for (int64_t i = 0; i < D; i++) {
			float sum = 0.0f;
			for (int64_t s = 0; s < S; s++)
				sum += plumb_rne(b,
					plumb_rne(b, sigmoid(plumb_rne(b, dot(up, s * D + i, low)))) * normed[s * D + i]);
			mixed[t * D + i] = plumb_rne(b, sum / (float)S);
		}
		if (injection && is_fault("injection"))
			injection[t * S] *= 0.5f;
	}
	return 0;
}

/* ---- gdn_in_proj+gdn_conv ---- */

static void project(const struct plumb_kernel_call *call, const struct plumb_kernel_matrix *w, const float *x, float *y)
{
	for (int64_t n = 0; n < w->rows; n++)
		y[n] = plumb_rne(call->bf16, dot(w, n, x));
}

static int gdn(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *conv = plumb_weight_of(call, "conv"), *qkv = plumb_weight_of(call, "w_qkv");
	const int64_t D = plumb_dim(call, "D"), C = plumb_dim(call, "C"), Kc = plumb_dim(call, "Kc"),
		      Hv = plumb_dim(call, "Hv");
	const int64_t wide = Hv * plumb_dim(call, "Dv");
	float *window = plumb_f32(call, "window"), *y = plumb_f32(call, "gdn_conv.y");

	if (plumb_operand(call, "gdn_in_proj.qkv") || plumb_operand(call, "gdn_conv.qkv"))
		return plumb_say(call, "an inner result is an operand");
	for (int64_t t = 0; t < call->T; t++) {
		const float *x = plumb_f32(call, "x") + t * D;
		int64_t p = call->position + t;
		project(call, qkv, x, window + p % Kc * C);
		project(call, plumb_weight_of(call, "w_z"), x, plumb_f32(call, "z") + t * wide);
		project(call, plumb_weight_of(call, "w_b"), x, plumb_f32(call, "b") + t * Hv);
		project(call, plumb_weight_of(call, "w_a"), x, plumb_f32(call, "a") + t * Hv);
		for (int64_t c = 0; c < C; c++) {
			float sum = 0.0f;
			for (int64_t j = p >= Kc - 1 ? 0 : Kc - 1 - p; j < Kc; j++)
				sum = fmaf(plumb_value(conv, c, j), window[(p - (Kc - 1 - j)) % Kc * C + c], sum);
			sum = plumb_rne(call->bf16, sum);
			y[t * C + c] = plumb_rne(call->bf16, sum * sigmoid(sum));
		}
	}
	if (is_fault("window"))
		window[0] += 1.0f;
	return 0;
}

/* ---- moe_gate_up+moe_down ---- */

static size_t moe_workspace(const struct plumb_kernel_call *call)
{
	int64_t F = plumb_dim(call, "F"), Fs = plumb_dim(call, "Fs");
	return (size_t)((F > Fs ? F : Fs) + 2 * plumb_dim(call, "D")) * sizeof(float);
}

static void swiglu(const struct plumb_kernel_call *call, const struct plumb_kernel_matrix *gate,
	const struct plumb_kernel_matrix *up, const float *x, float *hidden)
{
	for (int64_t i = 0; i < gate->rows; i++) {
		float g = plumb_rne(call->bf16, dot(gate, i, x));
		hidden[i] =
			plumb_rne(call->bf16, plumb_rne(call->bf16, g * sigmoid(g)) * plumb_rne(call->bf16, dot(up, i, x)));
	}
}

static int moe(const struct plumb_kernel_call *call)
{
	const int64_t D = plumb_dim(call, "D"), A = plumb_dim(call, "A"), F = plumb_dim(call, "F"),
		      Fs = plumb_dim(call, "Fs");
	const int32_t *expert = plumb_i32(call, "expert"), b = call->bf16;
	const float *weight = plumb_f32(call, "weight"), *shared_weight = plumb_f32(call, "shared_weight");
	float *hidden = (float *)call->workspace, *sum = hidden + (F > Fs ? F : Fs);

	if (plumb_operand(call, "hidden") || plumb_operand(call, "routed"))
		return plumb_say(call, "an inner result or a trace is an operand");
	for (int64_t t = 0; t < call->T; t++) {
		const float *x = plumb_f32(call, "x") + t * D;
		float *y = plumb_f32(call, "y") + t * D;
		memset(sum, 0, (size_t)D * sizeof *sum);
		for (int64_t k = 0; k < A; k++) {
			int64_t e = expert[t * A + k];
			swiglu(call, plumb_matrix_of_bank(call, "gate", e), plumb_matrix_of_bank(call, "up", e), x, hidden);
			for (int64_t i = 0; i < D; i++)
				sum[i] += plumb_rne(b, plumb_rne(b, dot(plumb_matrix_of_bank(call, "down", e), i, hidden)) *
							       weight[t * A + k]);
		}
		swiglu(call, plumb_weight_of(call, "shared_gate"), plumb_weight_of(call, "shared_up"), x, hidden);
		for (int64_t i = 0; i < D; i++) {
			float shared = plumb_rne(b, dot(plumb_weight_of(call, "shared_down"), i, hidden));
			y[i] = plumb_rne(b, plumb_rne(b, sum[i]) + plumb_rne(b, shared_weight[t] * shared));
		}
	}
	return 0;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "hc_norm_down+hc_up_mix", .run = hc, .workspace = hc_workspace},
	{.ops = "gdn_in_proj+gdn_conv", .run = gdn},
	{.ops = "moe_gate_up+moe_down", .run = moe, .workspace = moe_workspace},
};
PLUMB_KERNELS("fused", "1.0", kernels)
