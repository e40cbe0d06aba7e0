/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: everything in registers. */
__global__ void clean_kernel(float *x)
{
	x[threadIdx.x] += 1.0f;
}
