/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: an array read by a computed index lives in memory, not in registers. */
__global__ void frame_kernel(float *x, const int *index)
{
	float v[32];
	for (int i = 0; i < 32; i++)
		v[i] = x[i];
	for (int i = 0; i < 32; i++)
		v[index[i]] += 1.0f;
	for (int i = 0; i < 32; i++)
		x[i] = v[index[i + 32]];
}
