/* SPDX-License-Identifier: MIT */
/* Device code that an engine ships as a file: compiled to cubin.fatbin, loaded by tests/user/cubin.c. */
#include "core/plumb_kernel.h"

extern "C" __global__ void engine_gate(const float *o, const float *qg, float *out, int64_t n, int64_t Dh, int32_t bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = plumb_rne(
			bf16, o[i] * plumb_rne(bf16, 1.0f / (1.0f + expf(-qg[(2 * (i / Dh) + 1) * Dh + i % Dh]))));
}
