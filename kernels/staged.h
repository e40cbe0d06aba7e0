/* SPDX-License-Identifier: MIT */
/* NVFP4 rows times a vector, strided(256), by way of shared memory: what kernels/gemv.h does with registers. Device code only.
 *
 * A warp asks for all its rows at once, by copies that take no registers, and multiplies them as they come: an NVFP4 row is so
 * short that a warp which holds its rows in registers waits for memory once for every two of them. The bits are those of
 * kernels/row.h: a lane owns the same 8 columns of every step, in the same order.
 *
 * A row or a piece of one takes plumb_staged_bytes of shared memory: the codes of all its steps, then their scales. */
#ifndef PLUMB_KERNELS_STAGED_H
#define PLUMB_KERNELS_STAGED_H

#include "kernels/gemv.h"

enum {
	PLUMB_STAGED_CODES = PLUMB_ROW_LANES / 2, /* bytes of a step */
	PLUMB_STAGED_SCALES = PLUMB_ROW_LANES / PLUMB_NVFP4_GROUP,
	PLUMB_STAGED_COLUMNS = 128, /* a row has a multiple: 8 bytes of scales */
};

static __host__ __device__ __forceinline__ int plumb_staged_bytes(int steps)
{
	return steps * (PLUMB_STAGED_CODES + PLUMB_STAGED_SCALES);
}

/* Whether the rows of the matrix can be copied 16 bytes of codes and 8 of scales at a time. */
static inline bool plumb_staged_rows(const struct plumb_matrix *m, int64_t cols)
{
	return m->format == PLUMB_NVFP4 && cols % PLUMB_STAGED_COLUMNS == 0 &&
	       reinterpret_cast<uintptr_t>(m->data) % 16 == 0 && reinterpret_cast<uintptr_t>(m->scale) % 8 == 0;
}

/* Ask for columns k0 <= k < k1 of a row; the whole warp, without a commit. */
static __device__ __forceinline__ void plumb_staged_ask(
	const struct plumb_row &row, int k0, int k1, int steps, PLUMB_SHARED_PTR(unsigned char) slot)
{
	const int lane = static_cast<int>(threadIdx.x) % 32;
	const unsigned char *const codes = row.data + k0 / 2;
	const unsigned char *const scales = static_cast<const unsigned char *>(row.scale) + k0 / PLUMB_NVFP4_GROUP;

	PLUMB_NO_UNROLL
	for (int i = lane; i < (k1 - k0) / 32; i += 32)
		plumb_copy_async(PLUMB_AS(uint4, slot + 16 * i), PLUMB_AS(const uint4, codes + 16 * i));
	PLUMB_NO_UNROLL
	for (int i = lane; i < (k1 - k0) / PLUMB_STAGED_COLUMNS; i += 32)
		plumb_copy_async(
			PLUMB_AS(uint2, slot + steps * PLUMB_STAGED_CODES + 8 * i), PLUMB_AS(const uint2, scales + 8 * i));
}

/* The vector, as plumb_vector_take leaves it, by way of Count registers of four columns a thread: all of its loads are under
 * way together. Not by copies: those of all blocks at once for the same few lines take longer than the product. */
template <int Count>
static __device__ __forceinline__ void plumb_staged_vector(
	const float *x, int cols, int k0, int k1, PLUMB_SHARED_PTR(float) staged, struct plumb_vector<PLUMB_GEMV_LONG> &v)
{
	const int first = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
	float4 part[Count];

	PLUMB_UNROLL
	for (int j = 0; j < Count; j++)
		if (first + j * threads < cols / 4)
			part[j] = *PLUMB_AS(const float4, x + 4 * (first + j * threads));
	PLUMB_UNROLL
	for (int j = 0; j < Count; j++) {
		const int i = first + j * threads;
		if (i < cols / 4)
			*PLUMB_AS(float4, staged + ((i & 1) * (cols / 8) + i / 2) * 4) = part[j];
	}
	__syncthreads();
	v.staged = staged;
	v.cols = cols;
	v.first = plumb_first_column(k0);
	v.left = k1 - v.first;
}

/* Sums of Rows staged rows, slot after slot, with the vector. All lanes get them. Full: the piece has all its columns. */
template <int Rows, int Steps, bool Full>
static __device__ __forceinline__ void plumb_staged_sums(PLUMB_SHARED_PTR(unsigned char) slot, const float (&factor)[Rows],
	const struct plumb_vector<PLUMB_GEMV_LONG> &v, float (&sum)[Rows])
{
	const int lane = static_cast<int>(threadIdx.x) % 32;
	float acc[Rows][PLUMB_COLUMNS] = {};

	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const bool live = Full || s * PLUMB_ROW_LANES < v.left;
		float x[PLUMB_COLUMNS];
		plumb_vector_step<Full>(v, s, x);
		PLUMB_UNROLL
		for (int r = 0; r < Rows; r++) {
			PLUMB_SHARED_PTR(unsigned char)
			codes = slot + r * plumb_staged_bytes(Steps) + s * PLUMB_STAGED_CODES;
			PLUMB_SHARED_PTR(unsigned char)
			scales =
				slot + r * plumb_staged_bytes(Steps) + Steps * PLUMB_STAGED_CODES + s * PLUMB_STAGED_SCALES;
			struct plumb_lane_row<PLUMB_NVFP4, 1> stored;
			float w[PLUMB_COLUMNS];
			stored.factor = factor[r];
			stored.code[0][0] = live ? *PLUMB_AS(uint32_t, codes + 4 * lane) : 0u;
			stored.group[0] = live ? scales[lane / 2] : static_cast<uint8_t>(0);
			plumb_row_decode<PLUMB_NVFP4, 1>(stored, 0, w);
			PLUMB_UNROLL
			for (int j = 0; j < PLUMB_COLUMNS; j++)
				acc[r][j] = fmaf(w[j], x[j], acc[r][j]);
		}
	}
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = ((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3])) +
		         ((acc[r][4] + acc[r][5]) + (acc[r][6] + acc[r][7]));
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = plumb_warp_sum(sum[r]);
}

#endif
