/* SPDX-License-Identifier: MIT */
/* attn_gate in plain C: out = rne(o * rne(sigmoid(gate))). 'plumb list attn_gate' shows the operands. */
#include <math.h>
#include <plumb/kernel.h>

static int attn_gate(const struct plumb_kernel_call *call)
{
	const float *o = plumb_f32(call, "o");   /* (T, Hq, Dh) */
	const float *qg = plumb_f32(call, "qg"); /* (T, Hq, 2, Dh): query and gate of each head */
	float *out = plumb_f32(call, "out");     /* (T, Hq*Dh) */
	const int64_t heads = call->T * plumb_dim(call, "Hq"), Dh = plumb_dim(call, "Dh");
#ifdef WRONG
	const int64_t half = 0; /* the query instead of the gate */
#else
	const int64_t half = 1;
#endif

	for (int64_t h = 0; h < heads; h++)
		for (int64_t i = 0; i < Dh; i++) {
			/* expf would overflow at -89, where the gate is not 0 yet */
			float gate = (float)(1.0 / (1.0 + exp(-(double)qg[(2 * h + half) * Dh + i])));
			out[h * Dh + i] = plumb_rne(call->bf16, o[h * Dh + i] * plumb_rne(call->bf16, gate));
		}
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "attn_gate", .run = attn_gate}};
PLUMB_KERNELS("gate in C", "1.0", kernels)
