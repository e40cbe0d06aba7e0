/* SPDX-License-Identifier: MIT */
/* hc_inject with the right values; leaves OpenMP's threads, which it shares with its judge, in another rounding mode. */
#include <fenv.h>

#include "core/plumb_kernel.h"

static int inject(const struct plumb_kernel_call *call)
{
	const float *residual = plumb_f32(call, "residual"), *branch = plumb_f32(call, "branch");
	const float *injection = plumb_f32(call, "injection");
	float *out = plumb_f32(call, "residual_out");
	const int64_t S = plumb_dim(call, "S"), D = plumb_dim(call, "D");
	fenv_t mine;

	for (int64_t i = 0; i < call->T * S * D; i++) {
		int64_t t = i / (S * D), s = i / D % S;
		float product = plumb_rne(call->bf16, branch[t * D + i % D] * injection[t * S + s]);
		out[i] = plumb_rne(call->bf16, residual[i] + product);
	}
	fegetenv(&mine);
#pragma omp parallel num_threads(2)
	fesetround(FE_UPWARD);
	fesetenv(&mine);
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "hc_inject", .run = inject}};
PLUMB_KERNELS("pool", "1.0", kernels)
