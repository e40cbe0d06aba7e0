/* SPDX-License-Identifier: MIT */
/* Reading, and only that. A thread has eight 16-byte loads in flight, as the fastest of the GEMV kernels do. */
#include "kernels/stream.h"

#include "kernels/reduce.h"

enum { THREADS = 256, WARPS = THREADS / 32, LOADS = 8, ROUNDS = PLUMB_STREAM_TILE / (THREADS * LOADS * 16) };

static __global__ void __launch_bounds__(THREADS) stream_read_kernel(const uint4 *data, uint32_t *sum)
{
	PLUMB_SHARED(uint32_t, of_warp, WARPS);
	const uint4 *tile = data + blockIdx.x * static_cast<int64_t>(PLUMB_STREAM_TILE / 16) + threadIdx.x;
	uint32_t x = 0;

	for (int round = 0; round < ROUNDS; round++) {
		uint4 v[LOADS];
		PLUMB_UNROLL
		for (int i = 0; i < LOADS; i++)
			v[i] = plumb_load_stream(tile + (round * LOADS + i) * THREADS);
		PLUMB_UNROLL
		for (int i = 0; i < LOADS; i++)
			x ^= v[i].x ^ v[i].y ^ v[i].z ^ v[i].w;
	}
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		x ^= __shfl_xor_sync(PLUMB_FULL_WARP, x, offset);
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = x;
	__syncthreads();
	if (threadIdx.x == 0) {
		for (int w = 1; w < WARPS; w++)
			x ^= of_warp[w];
		sum[blockIdx.x] = x;
	}
}

extern "C" int PLUMB_LAUNCHER(stream_read)(const void *data, int64_t tiles, uint32_t *sum, void *stream)
{
	return PLUMB_LAUNCH(stream_read_kernel, static_cast<unsigned>(tiles), THREADS, 0, stream,
		static_cast<const uint4 *>(data), sum);
}
