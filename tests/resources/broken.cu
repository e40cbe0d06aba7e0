/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: does not compile. */
__global__ void broken_kernel(float *x)
{
	x[0] = nothing_of_that_name;
}
