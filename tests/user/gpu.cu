/* SPDX-License-Identifier: MIT */
/* Kernels with the pointers of a GPU, and what one can do wrong there. GPU_FAULT: address (a sticky error), hang,
 * launch (a launch that the kernel does not look at), unwritten, outside, changed (an input), workspace. gdn_out_proj
 * repacks its weight once; moe_gate_up chooses experts on the GPU. */
#include <stdlib.h>

#include "core/plumb_kernel.h"

static int is_fault(const char *name)
{
	const char *fault = getenv("GPU_FAULT");
	return fault && strcmp(fault, name) == 0;
}

static int launched(const struct plumb_kernel_call *call)
{
	cudaError_t error = cudaGetLastError();
	return error == cudaSuccess ? 0 : plumb_say(call, "launch: %s", cudaGetErrorString(error));
}

static __device__ float sigmoid(float x)
{
	return 1.0f / (1.0f + expf(-x));
}

/* ---- attn_gate ---- */

static __global__ void gate_kernel(const float *o, const float *qg, float *out, int64_t n, int64_t Dh, int32_t bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		out[i] = plumb_rne(bf16, o[i] * plumb_rne(bf16, sigmoid(qg[(2 * (i / Dh) + 1) * Dh + i % Dh])));
}

static __global__ void poke_kernel(float *at)
{
	*at = 1.0f;
}

static __global__ void hang_kernel(volatile float *at)
{
	while (*at != 12345.0f)
		*at = 1.0f;
}

static int gate(const struct plumb_kernel_call *call)
{
	const int64_t Dh = plumb_dim(call, "Dh"), n = call->T * plumb_dim(call, "Hq") * Dh;
	cudaStream_t stream = (cudaStream_t)call->stream;
	float *out = plumb_f32(call, "out"), *qg = plumb_f32(call, "qg");

	if (is_fault("launch")) {
		gate_kernel<<<1, 4096, 0, stream>>>(plumb_f32(call, "o"), qg, out, n, Dh, call->bf16);
		(void)cudaGetLastError();
		return 0;
	}
	gate_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(
		plumb_f32(call, "o"), qg, out, n - (is_fault("unwritten") ? 1 : 0), Dh, call->bf16);
	if (is_fault("address"))
		poke_kernel<<<1, 1, 0, stream>>>((float *)(uintptr_t)64);
	if (is_fault("outside"))
		poke_kernel<<<1, 1, 0, stream>>>(out + n);
	if (is_fault("changed"))
		poke_kernel<<<1, 1, 0, stream>>>(qg + 1);
	if (is_fault("hang"))
		hang_kernel<<<1, 1, 0, stream>>>(out);
	return launched(call);
}

/* ---- gdn_out_proj: the transpose in memory of its own ---- */

static __global__ void pack_kernel(struct plumb_kernel_matrix w, float *value)
{
	for (int64_t k = threadIdx.x; k < w.cols; k += blockDim.x)
		value[k * w.rows + blockIdx.x] = plumb_value(&w, blockIdx.x, k);
}

static int pack(const struct plumb_kernel_call *call, void **prepared)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	void *value;

	if (cudaMalloc(&value, (size_t)(w->rows * w->cols) * sizeof(float)) != cudaSuccess)
		return plumb_say(call, "no memory for a transpose");
	*prepared = value;
	pack_kernel<<<(unsigned)w->rows, 256, 0, (cudaStream_t)call->stream>>>(*w, (float *)value);
	return launched(call);
}

static void unpack(void *prepared)
{
	(void)cudaFree(prepared);
}

static size_t workspace(const struct plumb_kernel_call *call)
{
	return (size_t)(call->T * plumb_dim(call, "D")) * sizeof(float);
}

static __global__ void sum_kernel(const float *value, const float *x, float *sum, int64_t N, int64_t K)
{
	int64_t n = (int64_t)blockIdx.x * blockDim.x + threadIdx.x, t = blockIdx.y;
	float s = 0.0f;
	for (int64_t k = 0; k < K && n < N; k++)
		s = fmaf(value[k * N + n], x[t * K + k], s);
	if (n < N)
		sum[t * N + n] = s;
}

static __global__ void round_kernel(const float *sum, float *y, int64_t n, int32_t bf16)
{
	int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i < n)
		y[i] = plumb_rne(bf16, sum[i]);
}

static int out_proj(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	cudaStream_t stream = (cudaStream_t)call->stream;
	float *sum = (float *)call->workspace;
	const int64_t n = call->T * w->rows;

	sum_kernel<<<dim3((unsigned)((w->rows + 127) / 128), (unsigned)call->T), 128, 0, stream>>>(
		(const float *)call->prepared, plumb_f32(call, "x"), sum, w->rows, w->cols);
	round_kernel<<<(unsigned)((n + 255) / 256), 256, 0, stream>>>(sum, plumb_f32(call, "y"), n, call->bf16);
	if (is_fault("workspace"))
		poke_kernel<<<1, 1, 0, stream>>>((float *)((char *)call->workspace + call->workspace_bytes));
	return launched(call);
}

/* ---- moe_gate_up: a block for a row of a slot; the last slot is the shared expert ---- */

static __global__ void up_kernel(const float *x, const int32_t *expert, const struct plumb_kernel_matrix *gate,
	const struct plumb_kernel_matrix *up, struct plumb_kernel_matrix shared_gate, struct plumb_kernel_matrix shared_up,
	float *hidden, float *shared_hidden, int64_t A, int32_t bf16)
{
	const int64_t n = blockIdx.x, slot = blockIdx.y, t = blockIdx.z;
	const struct plumb_kernel_matrix *g = slot < A ? &gate[expert[t * A + slot]] : &shared_gate;
	const struct plumb_kernel_matrix *u = slot < A ? &up[expert[t * A + slot]] : &shared_up;
	float a = 0.0f, b = 0.0f;

	if (threadIdx.x || n >= g->rows)
		return;
	for (int64_t k = 0; k < g->cols; k++) {
		a = fmaf(plumb_value(g, n, k), x[t * g->cols + k], a);
		b = fmaf(plumb_value(u, n, k), x[t * g->cols + k], b);
	}
	a = plumb_rne(bf16, a);
	(slot < A ? hidden + (t * A + slot) * g->rows : shared_hidden + t * g->rows)[n] =
		plumb_rne(bf16, plumb_rne(bf16, a * sigmoid(a)) * plumb_rne(bf16, b));
}

static int gate_up(const struct plumb_kernel_call *call)
{
	const int64_t F = plumb_dim(call, "F"), Fs = plumb_dim(call, "Fs"), A = plumb_dim(call, "A");

	up_kernel<<<dim3((unsigned)(F > Fs ? F : Fs), (unsigned)A + 1, (unsigned)call->T), 32, 0,
		(cudaStream_t)call->stream>>>(plumb_f32(call, "x"), plumb_i32(call, "expert"),
		plumb_operand(call, "gate")->device_matrix, plumb_operand(call, "up")->device_matrix,
		*plumb_weight_of(call, "shared_gate"), *plumb_weight_of(call, "shared_up"), plumb_f32(call, "hidden"),
		plumb_f32(call, "shared_hidden"), A, call->bf16);
	return launched(call);
}

static const struct plumb_kernel kernels[] = {
	{"attn_gate", gate, PLUMB_KERNEL_CUDA},
	{"gdn_out_proj", out_proj, PLUMB_KERNEL_CUDA, 0, workspace, pack, unpack},
	{"moe_gate_up", gate_up, PLUMB_KERNEL_CUDA},
};
PLUMB_KERNELS("gpu", "1.0", kernels)
