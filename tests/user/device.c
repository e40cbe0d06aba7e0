/* SPDX-License-Identifier: MIT */
/* Kernels with the pointers of a device, on simt: gdn_out_proj with a repacked weight and a workspace, attn_gate,
 * qsa_score with the pages of a cache, moe_gate_up with a bank. DEVICE_FAULT plants: page (rows taken as if pages were
 * in order), workspace (written beyond), dirty (read before it is written), stale (the first weight that was prepared,
 * for all). */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

static int is_fault(const char *name)
{
	const char *fault = getenv("DEVICE_FAULT");
	return fault && strcmp(fault, name) == 0;
}

static float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

/* The transpose, as an engine might want it. */
struct packed {
	const void *identity;
	float *value; /* (K, N) */
};

static int pack(const struct plumb_kernel_call *call, void **prepared)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	struct packed *p = calloc(1, sizeof *p);

	if (call->T != 0 || plumb_operand(call, "x") || plumb_operand(call, "y"))
		return plumb_say(call, "activations are there before a run");
	if (!p || !(p->value = malloc((size_t)(w->rows * w->cols) * sizeof *p->value)))
		return plumb_say(call, "out of memory");
	p->identity = w->identity;
	for (int64_t n = 0; n < w->rows; n++)
		for (int64_t k = 0; k < w->cols; k++)
			p->value[k * w->rows + n] = plumb_value(w, n, k);
	*prepared = p;
	return 0;
}

static void unpack(void *prepared)
{
	struct packed *p = prepared;
	free(p->value);
	free(p);
}

static size_t out_proj_workspace(const struct plumb_kernel_call *call)
{
	return (size_t)plumb_dim(call, "D") * sizeof(float);
}

static int out_proj(const struct plumb_kernel_call *call)
{
	static const struct packed *first;
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	const struct packed *p = call->prepared;
	float *sum = call->workspace;

	first = first ? first : p;
	if (p->identity != w->identity)
		return plumb_say(call, "prepared for another weight");
	if (is_fault("stale"))
		p = first;
	for (int64_t t = 0; t < call->T; t++) {
		const float *x = plumb_f32(call, "x") + t * w->cols;
		float *y = plumb_f32(call, "y") + t * w->rows;
		for (int64_t n = 0; n < w->rows && !is_fault("dirty"); n++)
			sum[n] = 0.0f;
		for (int64_t k = 0; k < w->cols; k++)
			for (int64_t n = 0; n < w->rows; n++)
				sum[n] += p->value[k * w->rows + n] * x[k];
		for (int64_t n = 0; n < w->rows; n++)
			y[n] = plumb_rne(call->bf16, sum[n]);
	}
	if (is_fault("workspace"))
		((char *)call->workspace)[call->workspace_bytes] ^= 1;
	return 0;
}

static int gate(const struct plumb_kernel_call *call)
{
	const float *o = plumb_f32(call, "o"), *qg = plumb_f32(call, "qg");
	float *out = plumb_f32(call, "out");
	int64_t heads = call->T * plumb_dim(call, "Hq"), Dh = plumb_dim(call, "Dh");

	for (int64_t h = 0; h < heads; h++)
		for (int64_t i = 0; i < Dh; i++)
			out[h * Dh + i] = plumb_rne(
				call->bf16, o[h * Dh + i] * plumb_rne(call->bf16, sigmoid(qg[(2 * h + 1) * Dh + i])));
	return 0;
}

static int gate_up(const struct plumb_kernel_call *call)
{
	const int64_t D = plumb_dim(call, "D"), A = plumb_dim(call, "A");
	const int32_t *expert = plumb_i32(call, "expert");

	for (int64_t t = 0; t < call->T; t++) {
		const float *x = plumb_f32(call, "x") + t * D;
		for (int64_t k = 0; k <= A; k++) {
			/* ids are on the device, and so are the descriptors that they choose */
			const struct plumb_kernel_matrix *g =
				k < A ? &plumb_operand(call, "gate")->device_matrix[expert[t * A + k]]
				      : plumb_weight_of(call, "shared_gate");
			const struct plumb_kernel_matrix *u =
				k < A ? &plumb_operand(call, "up")->device_matrix[expert[t * A + k]]
				      : plumb_weight_of(call, "shared_up");
			float *to = k < A ? plumb_f32(call, "hidden") + (t * A + k) * g->rows
			                  : plumb_f32(call, "shared_hidden") + t * g->rows;
			for (int64_t n = 0; n < g->rows; n++) {
				double a = 0.0, b = 0.0;
				for (int64_t i = 0; i < D; i++) {
					a += (double)plumb_value(g, n, i) * (double)x[i];
					b += (double)plumb_value(u, n, i) * (double)x[i];
				}
				float v = plumb_rne(call->bf16, (float)a);
				to[n] = plumb_rne(call->bf16,
					plumb_rne(call->bf16, v * sigmoid(v)) * plumb_rne(call->bf16, (float)b));
			}
		}
	}
	return 0;
}

/* -inf behind the complete blocks. */
static int score(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_operand *keys = plumb_operand(call, "block_keys");
	const int64_t NB = plumb_dim(call, "NB"), Hi = plumb_dim(call, "Hi"), Di = plumb_dim(call, "Di"),
		      B = plumb_dim(call, "B");

	for (int64_t t = 0; t < call->T; t++)
		for (int64_t b = 0; b < NB; b++) {
			float *to = plumb_f32(call, "score") + t * NB + b, sum = 0.0f;
			if (b >= (call->position + t + 1) / B) {
				*to = -INFINITY;
				continue;
			}
			int64_t row = is_fault("page")
			                      ? b
			                      : keys->page[b / keys->page_rows] * keys->page_rows + b % keys->page_rows;
			for (int64_t h = 0; h < Hi; h++) {
				const float *query = plumb_f32(call, "query") + (t * Hi + h) * Di;
				double dot = 0.0;
				for (int64_t i = 0; i < Di; i++)
					dot += (double)query[i] *
					       (double)plumb_stored(keys->format, keys->data, row * Di + i);
				sum += dot > 0.0 ? (float)dot : 0.0f;
			}
			*to = sum / sqrtf((float)Di);
		}
	return 0;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "gdn_out_proj",
		.run = out_proj,
		.where = PLUMB_KERNEL_SIMT,
		.workspace = out_proj_workspace,
		.prepare = pack,
		.release = unpack},
	{.ops = "attn_gate", .run = gate, .where = PLUMB_KERNEL_SIMT},
	{.ops = "qsa_score", .run = score, .where = PLUMB_KERNEL_SIMT},
	{.ops = "moe_gate_up", .run = gate_up, .where = PLUMB_KERNEL_SIMT},
};
PLUMB_KERNELS("device", "1.0", kernels)
