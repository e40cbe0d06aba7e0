/* SPDX-License-Identifier: MIT */
/* One stored matrix row times a binary32 vector, strided(256): the inner loop of every projection. Device code only.
 *
 * A lane takes 8 neighbouring columns a step: one 16-byte load of 16-bit weights or two of binary32. Rows whose address or
 * length does not allow that take the same columns one by one, in the same order, so both paths give the same bits. */
#ifndef PLUMB_KERNELS_ROW_H
#define PLUMB_KERNELS_ROW_H

#include "kernels/reduce.h"

enum { PLUMB_ROW_PER_LANE = PLUMB_ROW_LANES / 32 };

/* 8 weights from a 16-byte aligned address. */
static __device__ __forceinline__ void plumb_load8(int format, const void *row, int64_t k, float (&w)[8])
{
	if (format == PLUMB_F32) {
		const float *p = static_cast<const float *>(row) + k;
		const float4 lo = plumb_load_stream(PLUMB_AS(const float4, p));
		const float4 hi = plumb_load_stream(PLUMB_AS(const float4, p + 4));
		w[0] = lo.x, w[1] = lo.y, w[2] = lo.z, w[3] = lo.w;
		w[4] = hi.x, w[5] = hi.y, w[6] = hi.z, w[7] = hi.w;
		return;
	}
	const uint4 v = plumb_load_stream(PLUMB_AS(const uint4, static_cast<const uint16_t *>(row) + k));
	const uint32_t pair[4] = {v.x, v.y, v.z, v.w};
PLUMB_UNROLL
	for (int j = 0; j < 4; j++) {
		if (format == PLUMB_BF16) {
			w[2 * j] = __uint_as_float(pair[j] << 16);
			w[2 * j + 1] = __uint_as_float(pair[j] & 0xffff0000u);
		} else {
			w[2 * j] = plumb_f16_to_f32(static_cast<uint16_t>(pair[j]));
			w[2 * j + 1] = plumb_f16_to_f32(static_cast<uint16_t>(pair[j] >> 16));
		}
	}
}

/* Whether 16-byte loads of whole 8-column groups are possible for every row. */
static __device__ __forceinline__ bool plumb_rows_aligned(int format, const void *data, int64_t cols)
{
	const int64_t bytes = cols * (format == PLUMB_F32 ? 4 : 2);
	return (reinterpret_cast<uintptr_t>(data) | static_cast<uintptr_t>(bytes)) % 16 == 0;
}

/* Add columns k0 <= k < k1 of the row to the lane's accumulators; k0 is a multiple of 256. X: pointer to float. Only the last
 * group of 8 can be cut; its columns are asked for one by one, by constant index, so that acc stays in registers. */
template <int Format, typename X>
static __device__ __forceinline__ void plumb_row_products(
	const void *row, bool aligned, X x, int64_t k0, int64_t k1, float (&acc)[PLUMB_ROW_PER_LANE])
{
	for (int64_t k = k0 + (threadIdx.x % 32) * PLUMB_ROW_PER_LANE; k < k1; k += PLUMB_ROW_LANES) {
		if (aligned && k + PLUMB_ROW_PER_LANE <= k1) {
			float w[PLUMB_ROW_PER_LANE];
			plumb_load8(Format, row, k, w);
PLUMB_UNROLL
			for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
				acc[j] = fmaf(w[j], x[k + j], acc[j]);
		} else {
PLUMB_UNROLL
			for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
				if (k + j < k1)
					acc[j] = fmaf(plumb_stored_value(Format, row, k + j), x[k + j], acc[j]);
		}
	}
}

/* Address of row n of a matrix. */
static __device__ __forceinline__ const void *plumb_row_address(int format, const void *data, int64_t n, int64_t cols)
{
	return static_cast<const unsigned char *>(data) + n * cols * (format == PLUMB_F32 ? 4 : 2);
}

template <int Format, typename X>
static __device__ __forceinline__ float plumb_row_piece_of(
	const void *data, int64_t n, int64_t cols, X x, int64_t k0, int64_t k1)
{
	float acc[PLUMB_ROW_PER_LANE] = {};
	plumb_row_products<Format>(
		plumb_row_address(Format, data, n, cols), plumb_rows_aligned(Format, data, cols), x, k0, k1, acc);
	return plumb_warp_tree<PLUMB_ROW_PER_LANE>(acc);
}

/* One piece of split(S, 256) of one row, by one warp; all lanes get the sum. */
template <typename X>
static __device__ __forceinline__ float plumb_row_piece(
	int format, const void *data, int64_t n, int64_t cols, X x, int piece, int pieces)
{
	const int64_t length = plumb_split_length(cols, pieces);
	const int64_t k0 = piece * length, end = k0 + length, k1 = end < cols ? end : cols;

	switch (format) {
	case PLUMB_F32:
		return plumb_row_piece_of<PLUMB_F32>(data, n, cols, x, k0, k1);
	case PLUMB_F16:
		return plumb_row_piece_of<PLUMB_F16>(data, n, cols, x, k0, k1);
	default:
		return plumb_row_piece_of<PLUMB_BF16>(data, n, cols, x, k0, k1);
	}
}

#endif
