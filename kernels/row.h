/* SPDX-License-Identifier: MIT */
/* One stored matrix row times a binary32 vector, strided(256): the inner loop of every projection. Device code only.
 *
 * A lane takes 8 neighbouring columns a step: one load of 16 bytes of 16-bit weights, 8 of FP8 or 4 of NVFP4, or two of
 * 16 of binary32. A row whose address does not allow that takes the same columns one by one, in the same order, so both
 * paths give the same bits. */
#ifndef PLUMB_KERNELS_ROW_H
#define PLUMB_KERNELS_ROW_H

#include "kernels/value.h"

enum { PLUMB_ROW_PER_LANE = PLUMB_ROW_LANES / 32 }; /* PLUMB_COLUMNS, one load */

/* Whether whole 8-column groups of f32, f16, bf16 or e4m3 codes can be loaded at once in every row of that length: 16
 * bytes at a time, 8 of codes. */
static __device__ __forceinline__ bool plumb_rows_aligned(int format, const void *data, int64_t cols)
{
	const int unit = plumb_columns_bytes(format);
	const int64_t bytes = cols * unit / PLUMB_COLUMNS;
	return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(bytes)) % (unit < 16 ? 8 : 16) == 0;
}

/* Add columns k0 <= k < k1 of the row to the lane's accumulators; k0 is a multiple of 256. X: pointer to float. Only
 * the last group of 8 can be cut; its columns are asked for one by one, by constant index: acc stays in registers. */
template <int Format, typename X>
static __device__ __forceinline__ void plumb_row_products(
	const struct plumb_row &row, X x, int64_t k0, int64_t k1, float (&acc)[PLUMB_ROW_PER_LANE])
{
	const bool aligned = plumb_row_aligned<Format>(row);

	for (int64_t k = k0 + (threadIdx.x % 32) * PLUMB_ROW_PER_LANE; k < k1; k += PLUMB_ROW_LANES) {
		if (aligned && k + PLUMB_ROW_PER_LANE <= k1) {
			float w[PLUMB_ROW_PER_LANE];
			plumb_row_load8<Format>(row, k, w);
			PLUMB_UNROLL
			for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
				acc[j] = fmaf(w[j], x[k + j], acc[j]);
		} else {
			const float scale = plumb_row_scale<Format>(row, k);
			PLUMB_UNROLL
			for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
				if (k + j < k1)
					acc[j] = fmaf(plumb_row_value<Format>(row, k + j, scale), x[k + j], acc[j]);
		}
	}
}

template <int Format, typename X>
static __device__ __forceinline__ float plumb_row_piece_of(
	const struct plumb_matrix &m, int64_t n, int64_t cols, X x, int64_t k0, int64_t k1)
{
	float acc[PLUMB_ROW_PER_LANE] = {};
	plumb_row_products<Format>(plumb_row_of<Format>(m, n, cols), x, k0, k1, acc);
	return plumb_warp_tree<PLUMB_ROW_PER_LANE>(acc);
}

/* One piece of split(pieces, 256) of row n, by one warp; all lanes get the sum. */
template <typename X>
static __device__ __forceinline__ float plumb_row_piece(
	const struct plumb_matrix &m, int64_t n, int64_t cols, X x, int piece, int pieces)
{
	const int64_t length = plumb_split_length(cols, pieces);
	const int64_t k0 = piece * length, end = k0 + length, k1 = end < cols ? end : cols;

	switch (m.format) {
#define PLUMB_CASE(format)                                                                                                 \
	case format:                                                                                                       \
		return plumb_row_piece_of<format>(m, n, cols, x, k0, k1);
		PLUMB_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default: /* refused by the host */
		return plumb_nanf();
	}
}

#endif
