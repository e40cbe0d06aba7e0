/* SPDX-License-Identifier: MIT */
/* attn_gate on the GPU: the pointers are the device's, launches go to call->stream, and nothing need be waited for. */
#include <plumb/kernel.h>

static __global__ void gate_kernel(const float *o, const float *qg, float *out, int64_t n, int64_t Dh, int32_t bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
#ifdef WRONG
	const int64_t half = 0; /* the query instead of the gate */
#else
	const int64_t half = 1;
#endif

	if (i < n) {
		/* expf would overflow at -89, where the gate is not 0 yet */
		float gate = (float)(1.0 / (1.0 + exp(-(double)qg[(2 * (i / Dh) + half) * Dh + i % Dh])));
		out[i] = plumb_rne(bf16, o[i] * plumb_rne(bf16, gate));
	}
}

static int attn_gate(const struct plumb_kernel_call *call)
{
	const int64_t Dh = plumb_dim(call, "Dh"), n = call->T * plumb_dim(call, "Hq") * Dh;

	gate_kernel<<<(unsigned)((n + 255) / 256), 256, 0, (cudaStream_t)call->stream>>>(
		plumb_f32(call, "o"), plumb_f32(call, "qg"), plumb_f32(call, "out"), n, Dh, call->bf16);
	cudaError_t error = cudaGetLastError();
	return error == cudaSuccess ? 0 : plumb_say(call, "launch: %s", cudaGetErrorString(error));
}

static const struct plumb_kernel kernels[] = {{"attn_gate", attn_gate, PLUMB_KERNEL_CUDA}};
PLUMB_KERNELS("gate in CUDA", "1.0", kernels)
