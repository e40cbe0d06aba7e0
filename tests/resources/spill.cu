/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: 96 values are alive at once where 1024 threads leave a thread 64 registers. */
__global__ void __launch_bounds__(1024) spill_kernel(float *x, int n)
{
	float v[96];
#pragma unroll
	for (int i = 0; i < 96; i++)
		v[i] = x[i * 1024 + threadIdx.x];
	for (int k = 0; k < n; k++) {
#pragma unroll
		for (int i = 0; i < 96; i++)
			v[i] = v[i] * v[(i + 1) % 96] + x[k];
	}
#pragma unroll
	for (int i = 0; i < 96; i++)
		x[i * 1024 + threadIdx.x] = v[i];
}
