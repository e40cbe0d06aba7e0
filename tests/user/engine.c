/* SPDX-License-Identifier: MIT */
/* An engine with habits of its own in the seat of gdn_recurrence (docs/engines.md): its value heads are dealt over the
 * key heads in turn (head e belongs to key head e mod Hk, as in GGUF files), its state is (head, key, value), its gates
 * are exponentiated when weights are loaded. The engine's function knows nothing of Plumb; the rest is the adapter.
 * ENGINE_FAULT=order: the adapter forgets the order of heads. */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

/* ---- the engine ---- */

struct engine_gdn {
	int64_t Hk, Hv, Dk, Dv;
	float *decay;   /* (Hv) -exp(A_log), in the engine's order */
	float *dt_bias; /* (Hv) */
};

/* One token. q, k: (Hk, Dk); v: (Hv, Dv); beta, a: (Hv); state: (Hv, Dk, Dv); o: (Hv, Dv). */
static void engine_gdn_step(const struct engine_gdn *g, const float *q, const float *k, const float *v, const float *beta,
	const float *a, float *state, float *o)
{
	for (int64_t e = 0; e < g->Hv; e++) {
		const float *qh = q + e % g->Hk * g->Dk, *kh = k + e % g->Hk * g->Dk;
		float *s = state + e * g->Dk * g->Dv, qq = 0.0f, kk = 0.0f, x = a[e] + g->dt_bias[e];
		float keep = expf(g->decay[e] * (x > 20.0f ? x : log1pf(expf(x))));
		for (int64_t i = 0; i < g->Dk; i++) {
			qq += qh[i] * qh[i];
			kk += kh[i] * kh[i];
		}
		qq = sqrtf(qq + 1e-6f) * sqrtf((float)g->Dk);
		kk = sqrtf(kk + 1e-6f);
		for (int64_t j = 0; j < g->Dv; j++) {
			float seen = 0.0f, out = 0.0f;
			for (int64_t i = 0; i < g->Dk; i++) {
				s[i * g->Dv + j] *= keep;
				seen += s[i * g->Dv + j] * (kh[i] / kk);
			}
			float delta = (v[e * g->Dv + j] - seen) * beta[e];
			for (int64_t i = 0; i < g->Dk; i++) {
				s[i * g->Dv + j] += kh[i] / kk * delta;
				out += s[i * g->Dv + j] * (qh[i] / qq);
			}
			o[e * g->Dv + j] = out;
		}
	}
}

/* ---- the adapter ---- */

/* The checkpoint's head of the engine's head e: there, head h belongs to key head h / (Hv/Hk). */
static int64_t head_of(const struct engine_gdn *g, int64_t e)
{
	const char *fault = getenv("ENGINE_FAULT");
	if (fault && strcmp(fault, "order") == 0)
		return e;
	return e % g->Hk * (g->Hv / g->Hk) + e / g->Hk;
}

/* Once a layer: weights as the engine wants them. */
static int prepare(const struct plumb_kernel_call *call, void **prepared)
{
	const struct plumb_kernel_matrix *a_log = plumb_weight_of(call, "a_log"),
					 *dt_bias = plumb_weight_of(call, "dt_bias");
	const int64_t Hv = plumb_dim(call, "Hv");
	struct engine_gdn *g = malloc(sizeof *g + 2 * (size_t)Hv * sizeof(float));

	if (!g)
		return plumb_say(call, "out of memory");
	g->Hk = plumb_dim(call, "Hk");
	g->Hv = Hv;
	g->Dk = plumb_dim(call, "Dk");
	g->Dv = plumb_dim(call, "Dv");
	g->decay = (float *)(g + 1);
	g->dt_bias = g->decay + Hv;
	for (int64_t e = 0; e < Hv; e++) {
		g->decay[e] = -expf(plumb_value(a_log, 0, head_of(g, e)));
		g->dt_bias[e] = plumb_value(dt_bias, 0, head_of(g, e));
	}
	*prepared = g;
	return 0;
}

/* Room for one token in the engine's order: v, o, beta, a, and the state. */
static size_t workspace(const struct plumb_kernel_call *call)
{
	const int64_t Hv = plumb_dim(call, "Hv"), Dk = plumb_dim(call, "Dk"), Dv = plumb_dim(call, "Dv");
	return (size_t)(Hv * (2 * Dv + 2 + Dk * Dv)) * sizeof(float);
}

static int recurrence(const struct plumb_kernel_call *call)
{
	const struct engine_gdn *g = (const struct engine_gdn *)call->prepared;
	const int64_t Hk = g->Hk, Hv = g->Hv, Dk = g->Dk, Dv = g->Dv, C = plumb_dim(call, "C");
	float *v = (float *)call->workspace, *o = v + Hv * Dv, *beta = o + Hv * Dv, *a = beta + Hv, *state = a + Hv;
	float *ours = plumb_f32(call, "state"); /* (Hv, Dv, Dk) */

	if (!ours)
		return plumb_say(call, "the state is of format %d, and this engine has f32 only",
			plumb_operand(call, "state")->format);

	for (int64_t e = 0; e < Hv; e++)
		for (int64_t i = 0; i < Dk; i++)
			for (int64_t j = 0; j < Dv; j++)
				state[(e * Dk + i) * Dv + j] = ours[(head_of(g, e) * Dv + j) * Dk + i];
	for (int64_t t = 0; t < call->T; t++) {
		const float *y = plumb_f32(call, "y") + t * C; /* q | k | v */
		for (int64_t e = 0; e < Hv; e++) {
			const int64_t h = head_of(g, e);
			memcpy(v + e * Dv, y + 2 * Hk * Dk + h * Dv, (size_t)Dv * sizeof *v);
			beta[e] = plumb_rne(call->bf16, 1.0f / (1.0f + expf(-plumb_f32(call, "b")[t * Hv + h])));
			a[e] = plumb_f32(call, "a")[t * Hv + h];
		}
		engine_gdn_step(g, y, y + Hk * Dk, v, beta, a, state, o);
		for (int64_t e = 0; e < Hv; e++)
			for (int64_t j = 0; j < Dv; j++)
				plumb_f32(call, "o")[(t * Hv + head_of(g, e)) * Dv + j] =
					plumb_rne(call->bf16, o[e * Dv + j]);
	}
	for (int64_t e = 0; e < Hv; e++)
		for (int64_t i = 0; i < Dk; i++)
			for (int64_t j = 0; j < Dv; j++)
				ours[(head_of(g, e) * Dv + j) * Dk + i] = state[(e * Dk + i) * Dv + j];
	return 0;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "gdn_recurrence", .run = recurrence, .workspace = workspace, .prepare = prepare, .release = free},
};
PLUMB_KERNELS("engine", "1.0", kernels)
