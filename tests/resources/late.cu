/* SPDX-License-Identifier: MIT */
/* For test_overlap.sh: which weight is asked for, is what the launch before says. */
#include "kernels/device.h"

__global__ void late_kernel(const uint4 *weight, const int *chosen, uint4 *out)
{
	plumb_grid_dependency_wait();
	out[threadIdx.x] = plumb_load_stream(weight + __ldcg(chosen + threadIdx.x));
}
