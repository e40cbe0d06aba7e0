/* SPDX-License-Identifier: MIT */
/* moe_router as an outsider writes it: sums in 16 lanes, selection by search. ROUTER_FAULT plants what has been seen:
 *   tail   the terms behind the last whole 16 are left out: right wherever D is a multiple of 16, as in every model here
 *   ties   of experts of one probability the last is taken
 *   row    the shared gate reads the first row for every token: right in decode, wrong in a prompt. Only shared_weight is
 *          wrong, which no golden file records */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

enum { LANES = 16 };

static int has(const char *fault)
{
	const char *is = getenv("ROUTER_FAULT");
	return is && strcmp(is, fault) == 0;
}

static float dot(const struct plumb_kernel_matrix *w, int64_t row, const float *x)
{
	int64_t whole = w->cols / LANES * LANES;
	float lane[LANES] = {0}, sum = 0;

	for (int64_t k = 0; k < (has("tail") ? whole : w->cols); k++)
		lane[k % LANES] += plumb_value(w, row, k) * x[k];
	for (int i = 0; i < LANES; i++)
		sum += lane[i];
	return sum;
}

static void choose(const float *prob, int64_t E, int64_t A, int32_t *expert)
{
	const int last = has("ties");

	for (int64_t a = 0; a < A; a++) {
		int64_t best = -1;
		for (int64_t e = 0; e < E; e++) {
			int taken = 0;
			for (int64_t i = 0; i < a; i++)
				taken |= expert[i] == e;
			if (!taken && (best < 0 || prob[e] > prob[best] || (last && prob[e] == prob[best])))
				best = e;
		}
		expert[a] = (int32_t)best;
	}
}

static int router(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *gate = plumb_weight_of(call, "gate"),
					 *shared = plumb_weight_of(call, "shared_gate");
	const int64_t D = plumb_dim(call, "D"), E = plumb_dim(call, "E"), A = plumb_dim(call, "A");
	float *prob = malloc((size_t)E * sizeof *prob);

	if (!prob)
		return plumb_say(call, "out of memory");
	for (int64_t t = 0; t < call->T; t++) {
		const float *x = plumb_f32(call, "x") + t * D, *shared_x = has("row") ? plumb_f32(call, "x") : x;
		float *logits = plumb_f32(call, "logits") + t * E, *weight = plumb_f32(call, "weight") + t * A;
		int32_t *expert = plumb_i32(call, "expert") + t * A;
		float most = -INFINITY, sum = 0, chosen = 0;
		for (int64_t e = 0; e < E; e++) {
			logits[e] = plumb_rne(call->bf16, dot(gate, e, x));
			most = logits[e] > most ? logits[e] : most;
		}
		for (int64_t e = 0; e < E; e++)
			sum += prob[e] = (float)exp((double)logits[e] - (double)most);
		for (int64_t e = 0; e < E; e++)
			prob[e] /= sum;
		choose(prob, E, A, expert);
		for (int64_t a = 0; a < A; a++)
			chosen += prob[expert[a]];
		for (int64_t a = 0; a < A; a++)
			weight[a] = plumb_rne(call->bf16, call->norm_topk ? prob[expert[a]] / chosen : prob[expert[a]]);
		float s = plumb_rne(call->bf16, dot(shared, 0, shared_x));
		plumb_f32(call, "shared_weight")[t] = plumb_rne(call->bf16, (float)(1.0 / (1.0 + exp(-(double)s))));
	}
	free(prob);
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "moe_router", .run = router}};
PLUMB_KERNELS("router", "1.0", kernels)
