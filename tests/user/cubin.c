/* SPDX-License-Identifier: MIT */
/* An engine that ships cubins (docs/engines.md): cubin.fatbin, beside this shared object, is loaded once. */
#include <cuda_runtime_api.h>
#include <dlfcn.h>
#include <stdio.h>

#include "core/plumb_kernel.h"

/* The kernel, loaded at the first call; NULL after plumb_say. */
static cudaKernel_t engine_gate(const struct plumb_kernel_call *call)
{
	static cudaKernel_t kernel; /* calls come one after the other */
	static cudaLibrary_t library;
	char path[4096];
	Dl_info here;

	if (kernel)
		return kernel;
	if (!dladdr(&library, &here)) {
		plumb_say(call, "dladdr: this code is in no file");
		return NULL;
	}
	snprintf(path, sizeof path, "%.*scubin.fatbin", (int)(strrchr(here.dli_fname, '/') + 1 - here.dli_fname),
		here.dli_fname);
	cudaError_t error = cudaLibraryLoadFromFile(&library, path, NULL, NULL, 0, NULL, NULL, 0);
	if (error == cudaSuccess)
		error = cudaLibraryGetKernel(&kernel, library, "engine_gate");
	if (error != cudaSuccess) {
		plumb_say(call, "%s: %s", path, cudaGetErrorString(error));
		kernel = NULL;
	}
	return kernel;
}

static int attn_gate(const struct plumb_kernel_call *call)
{
	const float *o = plumb_f32(call, "o"), *qg = plumb_f32(call, "qg");
	float *out = plumb_f32(call, "out");
	int64_t Dh = plumb_dim(call, "Dh"), n = call->T * plumb_dim(call, "Hq") * Dh;
	int32_t bf16 = call->bf16;
	void *args[] = {&o, &qg, &out, &n, &Dh, &bf16};
	const dim3 grid = {(unsigned)((n + 255) / 256), 1, 1}, block = {256, 1, 1};
	cudaKernel_t kernel = engine_gate(call);

	if (!kernel)
		return 1;
	cudaError_t error = cudaLaunchKernel((const void *)kernel, grid, block, args, 0, (cudaStream_t)call->stream);
	return error == cudaSuccess ? 0 : plumb_say(call, "launch: %s", cudaGetErrorString(error));
}

static const struct plumb_kernel kernels[] = {{.ops = "attn_gate", .run = attn_gate, .where = PLUMB_KERNEL_CUDA}};
PLUMB_KERNELS("cubin", "1.0", kernels)
