/* SPDX-License-Identifier: MIT */
/* For test_resources.sh: as frame.cu, and written down. LIMIT: stack frame of frame_written_kernel, 128 bytes */
__global__ void frame_written_kernel(float *x, const int *index)
{
	float v[32];
	for (int i = 0; i < 32; i++)
		v[i] = x[i];
	for (int i = 0; i < 32; i++)
		v[index[i]] += 1.0f;
	for (int i = 0; i < 32; i++)
		x[i] = v[index[i + 32]];
}
