/* SPDX-License-Identifier: MIT */
/* hc_inject with the right values; leaves OpenMP's threads, which it shares with its judge, in another rounding mode.
 * POOL_FAULT=race: a variable that every thread writes before it reads it is one for all of them, which a single
 * thread never notices. */
#include <fenv.h>
#include <omp.h>
#include <stdlib.h>

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
	if (getenv("POOL_FAULT")) {
		int shared = 0, lost = 0;
#pragma omp parallel
		{
			const int own = omp_get_thread_num();
#pragma omp critical
			shared = own;
#pragma omp barrier
			if (shared != own) {
#pragma omp atomic
				lost++;
			}
		}
		out[0] += (float)lost;
	}
	fegetenv(&mine);
#pragma omp parallel num_threads(2)
	fesetround(FE_UPWARD);
	fesetenv(&mine);
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "hc_inject", .run = inject}};
PLUMB_KERNELS("pool", "1.0", kernels)
