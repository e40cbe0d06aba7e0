/* SPDX-License-Identifier: MIT */
/* The embedding row of a token, widened and repeated over the streams. One element a thread: the row is 5 KiB, so what
 * counts is that all of it is under way at once. */
#include "kernels/embed.h"

#include "kernels/value.h"

enum { EMBED_THREADS = 256 };

static __global__ void __launch_bounds__(EMBED_THREADS)
	embed_kernel(const int32_t *token, struct plumb_matrix table, int streams, int64_t hidden, float *residual)
{
	const int64_t c = blockIdx.x * static_cast<int64_t>(EMBED_THREADS) + threadIdx.x;

	if (c < hidden) {
		const float value = plumb_matrix_value(table, *token, c, hidden);
		for (int s = 0; s < streams; s++)
			residual[s * hidden + c] = value;
	}
}

extern "C" int PLUMB_LAUNCHER(embed)(
	const int32_t *token, const struct plumb_matrix *table, int streams, int64_t hidden, float *residual, void *stream)
{
	const unsigned blocks = static_cast<unsigned>((hidden + EMBED_THREADS - 1) / EMBED_THREADS);
	return PLUMB_LAUNCH(embed_kernel, blocks, EMBED_THREADS, 0, stream, token, *table, streams, hidden, residual);
}
