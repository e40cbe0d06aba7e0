/* SPDX-License-Identifier: MIT */
/* Projections. A warp takes one piece of one row; the warps of a block that share a row add their pieces through shared
 * memory, left to right. Nothing is staged: the input vector (10 to 40 KiB) is read through L1 and L2. */
#include "kernels/linear.h"

#include "kernels/row.h"

/* Warps of a block: one row of the most pieces, or several rows. */
enum { WARPS = PLUMB_SPLIT_MAX };

static __global__ void __launch_bounds__(32 * WARPS) linear_kernel(struct plumb_linear a)
{
	PLUMB_SHARED(float, partial, WARPS);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int rows_per_block = WARPS / a.pieces;
	const int piece = warp % a.pieces;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * rows_per_block + warp / a.pieces;
	int64_t n = row;
	int p = 0;

	while (p < a.parts - 1 && n >= a.part[p].rows)
		n -= a.part[p++].rows;
	if (row < a.rows) {
		const float sum = plumb_row_piece(a.part[p].w, n, a.cols, a.x, piece, a.pieces);
		if (lane == 0)
			partial[warp] = sum;
	}
	__syncthreads();
	if (row < a.rows && piece == 0 && lane == 0) {
		float sum = partial[warp];
		for (int s = 1; s < a.pieces; s++)
			sum = sum + partial[warp + s];
		a.part[p].y[n] = plumb_rne(a.bf16, sum);
	}
}

extern "C" int PLUMB_LAUNCHER(linear)(const struct plumb_linear *linear, void *stream)
{
	const int64_t rows_per_block = WARPS / linear->pieces;
	const int64_t blocks = (linear->rows + rows_per_block - 1) / rows_per_block;
	return PLUMB_LAUNCH(linear_kernel, static_cast<unsigned>(blocks), 32 * WARPS, 0, stream, *linear);
}
