/* SPDX-License-Identifier: MIT */
/* hc_inject in the order of its contract: one product, one sum, two roundings, so that its bits are the twin's. */
#include "core/plumb_kernel.h"

static int inject(const struct plumb_kernel_call *call)
{
	const float *residual = plumb_f32(call, "residual"), *branch = plumb_f32(call, "branch");
	const float *injection = plumb_f32(call, "injection");
	float *out = plumb_f32(call, "residual_out");
	const int64_t S = plumb_dim(call, "S"), D = plumb_dim(call, "D");

	for (int64_t t = 0; t < call->T; t++)
		for (int64_t s = 0; s < S; s++)
			for (int64_t i = 0; i < D; i++) {
				int64_t at = (t * S + s) * D + i;
				float product = plumb_rne(call->bf16, branch[t * D + i] * injection[t * S + s]);
				out[at] = plumb_rne(call->bf16, residual[at] + product);
			}
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "hc_inject", .run = inject}};
PLUMB_KERNELS("inject", "1.0", kernels)
