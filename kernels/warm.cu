/* SPDX-License-Identifier: MIT */
/* Weights are brought near while kernels run that leave the memory idle. A lane asks for a whole chunk with one instruction
 * and waits for nothing, so a few blocks of one warp, which fit beside anything, keep the memory busy. */
#include "kernels/warm.h"

#include "kernels/device.h"

enum { WARM_THREADS = 32 };

static __global__ void __launch_bounds__(WARM_THREADS) warm_kernel(struct plumb_warm_launch a)
{
	const int64_t first = blockIdx.x * static_cast<int64_t>(WARM_THREADS) + threadIdx.x;
	const int64_t stride = gridDim.x * static_cast<int64_t>(WARM_THREADS);

	for (int r = 0; r < a.ranges; r++) {
		const struct plumb_warm_range range = a.range[r];
		for (int64_t at = first * range.period; at < range.bytes; at += stride * range.period) {
			const int64_t left = range.bytes - at;
			plumb_prefetch_bytes(static_cast<const unsigned char *>(range.data) + at,
				static_cast<uint32_t>(left < range.chunk ? left : range.chunk));
		}
	}
}

extern "C" int PLUMB_LAUNCHER(warm)(const struct plumb_warm_launch *launch, void *stream)
{
	return PLUMB_LAUNCH(warm_kernel, static_cast<unsigned>(launch->blocks), WARM_THREADS, 0, stream, *launch);
}
