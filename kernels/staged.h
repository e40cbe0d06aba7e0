/* SPDX-License-Identifier: MIT */
/* FP8 and NVFP4 rows times a vector, strided(256), by way of shared memory: what kernels/gemv.h does with registers. Device
 * code only.
 *
 * A warp asks for all its rows at once, by copies that take no registers, and multiplies them as they come: these rows are so
 * short that a warp which holds them in registers waits for memory once for every two of them. The bits are those of
 * kernels/row.h: a lane owns the same 8 columns of every step, in the same order.
 *
 * A row or a piece of one takes Steps * plumb_staged<Format>::STEP bytes of shared memory: the codes of all its steps, then,
 * of nvfp4, their scales. A row's one scale, and those of the blocks of fp8 block, lie in registers of the warp. */
#ifndef PLUMB_KERNELS_STAGED_H
#define PLUMB_KERNELS_STAGED_H

#include "kernels/gemv.h"

enum { PLUMB_STAGED_COLUMNS = 128 }; /* a row has a multiple: whole copies of codes and scales, and whole blocks */

/* Bytes of a step. */
template <int Format> struct plumb_staged {
	enum {
		CODES = Format == PLUMB_NVFP4 ? PLUMB_ROW_LANES / 2 : PLUMB_ROW_LANES,
		SCALES = Format == PLUMB_NVFP4 ? PLUMB_ROW_LANES / PLUMB_NVFP4_GROUP : 0,
		STEP = CODES + SCALES,
	};
};

/* Whether the rows of a matrix of FP8 or NVFP4 can be copied 16 bytes of codes and, of nvfp4, 8 of scales at a time. */
static inline bool plumb_staged_rows(const struct plumb_matrix *m, int64_t cols)
{
	return cols % PLUMB_STAGED_COLUMNS == 0 && reinterpret_cast<uintptr_t>(m->data) % 16 == 0 &&
	       (m->format != PLUMB_NVFP4 || reinterpret_cast<uintptr_t>(m->scale) % 8 == 0);
}

/* The address that lane `from` has. */
static __device__ __forceinline__ const unsigned char *plumb_staged_address(const void *mine, int from)
{
	return reinterpret_cast<const unsigned char *>(
		__shfl_sync(PLUMB_FULL_WARP, reinterpret_cast<unsigned long long>(mine), from));
}

/* Ask for columns k0 <= k < k1 of the row of lane `from`; the whole warp, without a commit. */
template <int Format, int Steps>
static __device__ __forceinline__ void plumb_staged_ask(
	const struct plumb_row &mine, int from, int k0, int k1, PLUMB_SHARED_PTR(unsigned char) slot)
{
	const int lane = static_cast<int>(threadIdx.x) % 32, columns = 16 * PLUMB_ROW_LANES / plumb_staged<Format>::CODES;
	const unsigned char *const codes = plumb_staged_address(mine.data, from) + k0 / columns * 16;

	PLUMB_NO_UNROLL
	for (int i = lane; i < (k1 - k0) / columns; i += 32)
		plumb_copy_async(PLUMB_AS(uint4, slot + 16 * i), PLUMB_AS(const uint4, codes + 16 * i));
	if (Format != PLUMB_NVFP4)
		return;
	const unsigned char *const scales = plumb_staged_address(mine.scale, from) + k0 / PLUMB_NVFP4_GROUP;
	PLUMB_NO_UNROLL
	for (int i = lane; i < (k1 - k0) / PLUMB_STAGED_COLUMNS; i += 32)
		plumb_copy_async(PLUMB_AS(uint2, slot + Steps * plumb_staged<Format>::CODES + 8 * i),
			PLUMB_AS(const uint2, scales + 8 * i));
}

/* fp8 block: plumb_block_fetch of the rows of the first lanes; the whole warp. */
template <int Rows>
static __device__ __forceinline__ void plumb_staged_blocks(
	const struct plumb_row &mine, int k0, int k1, float (&block)[Rows])
{
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		block[r] = plumb_block_fetch(
			plumb_staged_address(mine.scale, r), __shfl_sync(PLUMB_FULL_WARP, mine.scale_format, r), k0, k1);
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
			*plumb_staged_place(staged, cols, i) = part[j];
	}
	__syncthreads();
	plumb_staged_view(staged, cols, k0, k1, v);
}

/* The lane's columns of step s of a row; the whole warp. scale: fp8 row, nvfp4: plumb_row's factor; fp8 block:
 * plumb_block_fetch. live: they are columns of the piece. */
template <int Format, int Steps>
static __device__ __forceinline__ void plumb_staged_decode(
	PLUMB_SHARED_PTR(unsigned char) row, float scale, int s, bool live, float (&w)[PLUMB_COLUMNS])
{
	const int lane = static_cast<int>(threadIdx.x) % 32;
	PLUMB_SHARED_PTR(unsigned char) codes = row + s * plumb_staged<Format>::CODES;
	PLUMB_SHARED_PTR(unsigned char)
	groups = row + Steps * plumb_staged<Format>::CODES + s * plumb_staged<Format>::SCALES;

	if constexpr (Format == PLUMB_NVFP4) {
		const uint32_t code[1] = {live ? *PLUMB_AS(uint32_t, codes + 4 * lane) : 0u};
		const uint8_t group = live ? groups[lane / 2] : static_cast<uint8_t>(0);
		plumb_codes_decode<Format>(code, live ? plumb_e4m3_value(group) * scale : 0.0f, w);
	} else {
		const uint2 v = live ? *PLUMB_AS(uint2, codes + 8 * lane) : make_uint2(0, 0);
		const uint32_t code[2] = {v.x, v.y};
		const float factor = Format == PLUMB_FP8_BLOCK ? plumb_block_scale(scale, s) : scale;
		plumb_codes_decode<Format>(code, live ? factor : 0.0f, w); /* as plumb_row_decode */
	}
}

/* Sums of Rows staged rows, slot after slot, with the vector. All lanes get them. Full: the piece has all its columns. */
template <int Format, int Rows, int Steps, bool Full>
static __device__ __forceinline__ void plumb_staged_sums(PLUMB_SHARED_PTR(unsigned char) slot, const float (&scale)[Rows],
	const struct plumb_vector<PLUMB_GEMV_LONG> &v, float (&sum)[Rows])
{
	float acc[Rows][PLUMB_COLUMNS] = {};

	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const bool live = Full || s * PLUMB_ROW_LANES < v.left;
		float x[PLUMB_COLUMNS];
		plumb_vector_step<Full>(v, s, x);
		PLUMB_UNROLL
		for (int r = 0; r < Rows; r++) {
			float w[PLUMB_COLUMNS];
			plumb_staged_decode<Format, Steps>(
				slot + r * (Steps * plumb_staged<Format>::STEP), scale[r], s, live, w);
			PLUMB_UNROLL
			for (int j = 0; j < PLUMB_COLUMNS; j++)
				acc[r][j] = fmaf(w[j], x[j], acc[r][j]);
		}
	}
	plumb_rows_add<Rows>(acc, sum);
}

#endif
