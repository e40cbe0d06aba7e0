/* SPDX-License-Identifier: MIT */
/* Several stored matrix rows times one vector, strided(256): what every projection at a served shape is made of. Device
 * code only.
 *
 * A lane owns the columns k0 + 256*s + 8*lane .. + 7 of every step s of its piece. The loads of all rows in flight are under
 * way before the first product, and the part of the vector that meets them serves all of them: it lies in registers, or,
 * where a piece is so long that it would take too many, in shared memory. Needs rows and vector that can be loaded 8 columns
 * at a time (kernels/gemv_shape.h); kernels/row.h takes any other and gives the same bits.
 *
 * Columns past the end of the piece: the vector is -0, the codes are those of +0. Their product is -0, and adding -0 leaves
 * every accumulator as it is. */
#ifndef PLUMB_KERNELS_GEMV_H
#define PLUMB_KERNELS_GEMV_H

#include "kernels/gemv_shape.h"
#include "kernels/row.h"

enum { PLUMB_LINE = 128 }; /* bytes of a cache line */

/* A lane's part of the vector. */
template <int Steps> struct plumb_vector {
	float x[Steps][PLUMB_COLUMNS];
};
template <> struct plumb_vector<PLUMB_GEMV_LONG> {
	PLUMB_SHARED_PTR(float) staged;
	int cols, first, left; /* left: columns of the piece from the lane's first on */
};

static __device__ __forceinline__ void plumb_unpack(const float4 &lo, const float4 &hi, float (&x)[PLUMB_COLUMNS])
{
	x[0] = lo.x, x[1] = lo.y, x[2] = lo.z, x[3] = lo.w;
	x[4] = hi.x, x[5] = hi.y, x[6] = hi.z, x[7] = hi.w;
}

/* The lane's first column of a piece. */
static __device__ __forceinline__ int plumb_first_column(int k0)
{
	return k0 + static_cast<int>(threadIdx.x) % 32 * PLUMB_COLUMNS;
}

/* Columns k0 <= k < k1 of x into registers. */
template <int Steps>
static __device__ __forceinline__ void plumb_registers_take(const float *x, int k0, int k1, struct plumb_vector<Steps> &v)
{
	const int first = plumb_first_column(k0);
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		float4 lo = make_float4(-0.0f, -0.0f, -0.0f, -0.0f), hi = lo;
		if (first + s * PLUMB_ROW_LANES < k1) {
			lo = *PLUMB_AS(const float4, x + first + s * PLUMB_ROW_LANES);
			hi = *PLUMB_AS(const float4, x + first + s * PLUMB_ROW_LANES + 4);
		}
		plumb_unpack(lo, hi, v.x[s]);
	}
}

/* Columns k0 <= k < k1 of x. staged: plumb_staged_floats(cols) of shared memory, which a short piece does not use. All threads
 * of the block call it, and nobody else has used staged. */
template <int Steps>
static __device__ __forceinline__ void plumb_vector_take(
	const float *x, int cols, int k0, int k1, PLUMB_SHARED_PTR(float) staged, struct plumb_vector<Steps> &v)
{
	(void)cols;
	(void)staged;
	plumb_registers_take<Steps>(x, k0, k1, v);
}

/* Where a column of a staged vector lies; its group of four lies together. Of each 8 columns the first four go to one half of
 * the memory and the others to the other, so that the lanes of a warp read without bank conflicts; and the halves are not a
 * multiple of all banks apart, so that they write without. */
static __device__ __forceinline__ int plumb_staged_index(int cols, int column)
{
	return (column / 4 & 1) * (cols / 2 + PLUMB_STAGED_GAP) + column / 8 * 4 + column % 4;
}

/* Columns 4*i .. 4*i + 3. */
static __device__ __forceinline__ PLUMB_SHARED_PTR(float4)
	plumb_staged_place(PLUMB_SHARED_PTR(float) staged, int cols, int i)
{
	return PLUMB_AS(float4, staged + plumb_staged_index(cols, 4 * i));
}

/* Columns k0 <= k < k1 of a staged vector, all of which is there after a barrier. */
static __device__ __forceinline__ void plumb_staged_view(
	PLUMB_SHARED_PTR(float) staged, int cols, int k0, int k1, struct plumb_vector<PLUMB_GEMV_LONG> &v)
{
	v.staged = staged;
	v.cols = cols;
	v.first = plumb_first_column(k0);
	v.left = k1 - v.first;
}

static __device__ __forceinline__ void plumb_vector_take(
	const float *x, int cols, int k0, int k1, PLUMB_SHARED_PTR(float) staged, struct plumb_vector<PLUMB_GEMV_LONG> &v)
{
	for (int i = static_cast<int>(threadIdx.x); i < cols / 4; i += static_cast<int>(blockDim.x))
		*plumb_staged_place(staged, cols, i) = *PLUMB_AS(const float4, x + 4 * i);
	__syncthreads();
	plumb_staged_view(staged, cols, k0, k1, v);
}

template <bool Full, int Steps>
static __device__ __forceinline__ void plumb_vector_step(
	const struct plumb_vector<Steps> &v, int s, float (&x)[PLUMB_COLUMNS])
{
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_COLUMNS; j++)
		x[j] = v.x[s][j];
}

template <bool Full>
static __device__ __forceinline__ void plumb_vector_step(
	const struct plumb_vector<PLUMB_GEMV_LONG> &v, int s, float (&x)[PLUMB_COLUMNS])
{
	float4 lo = make_float4(-0.0f, -0.0f, -0.0f, -0.0f), hi = lo;
	if (Full || s * PLUMB_ROW_LANES < v.left) {
		lo = *PLUMB_AS(const float4, v.staged + v.first / 2 + s * (PLUMB_ROW_LANES / 2));
		hi = *PLUMB_AS(
			const float4, v.staged + (v.cols + v.first) / 2 + PLUMB_STAGED_GAP + s * (PLUMB_ROW_LANES / 2));
	}
	plumb_unpack(lo, hi, x);
}

/* A lane's part of a row as it is stored. Members that a format does not use cost nothing. */
template <int Format, int Steps> struct plumb_lane_row {
	enum { WORDS = Format == PLUMB_NVFP4 ? 1 : Format == PLUMB_BF16 ? 4 : 2 };
	uint32_t code[Steps][WORDS];
	uint8_t group[Steps]; /* nvfp4: its code */
	float factor;         /* fp8 row, nvfp4 */
	float block;          /* fp8 block: plumb_block_fetch */
	int left;             /* columns of the piece from the lane's first on */
};

/* fp8 block: of columns k0 <= k < k1, at most 16 steps, lane l has the scale of step l % 16, of the half that its own columns
 * are in: lane and step then say nothing that the instruction would have to compute. k0 is where a block begins. */
static __device__ __forceinline__ float plumb_block_fetch(const void *scale, int scale_format, int k0, int k1)
{
	const int lane = static_cast<int>(threadIdx.x) % 32, k = k0 + (lane % 16 * 2 + lane / 16) * PLUMB_FP8_BLOCK_SIZE;
	return k < k1 ? plumb_stored_scale(scale_format, scale, k / PLUMB_FP8_BLOCK_SIZE) : 0.0f;
}

/* The scale of the lane's columns of step s; the whole warp. */
static __device__ __forceinline__ float plumb_block_scale(float block, int s)
{
	return __shfl_sync(PLUMB_FULL_WARP, block, s, 16);
}

/* Full: the piece has all its columns, so no load is conditional. */
template <int Format, int Steps, bool Full>
static __device__ __forceinline__ void plumb_row_fetch(
	const struct plumb_row &row, int k0, int k1, struct plumb_lane_row<Format, Steps> &r)
{
	const unsigned first = static_cast<unsigned>(plumb_first_column(k0));
	const int left = k1 - static_cast<int>(first);
	const unsigned char *const data =
		row.data + static_cast<size_t>(first / PLUMB_COLUMNS) * plumb_columns_bytes(Format);
	const uint8_t *const group = static_cast<const uint8_t *>(row.scale) + first / PLUMB_NVFP4_GROUP;

	r.factor = row.factor;
	r.left = Full ? Steps * PLUMB_ROW_LANES : left;
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const unsigned char *const p = data + s * (PLUMB_ROW_LANES / PLUMB_COLUMNS) * plumb_columns_bytes(Format);
		const bool live = Full || s * PLUMB_ROW_LANES < left;
		if (Format == PLUMB_BF16) {
			uint4 v = make_uint4(0, 0, 0, 0);
			if (live)
				v = plumb_load_stream(PLUMB_AS(const uint4, p));
			r.code[s][0] = v.x, r.code[s][1 % r.WORDS] = v.y;
			r.code[s][2 % r.WORDS] = v.z, r.code[s][3 % r.WORDS] = v.w;
		} else if (Format == PLUMB_NVFP4) {
			r.code[s][0] = live ? plumb_load_stream(PLUMB_AS(const uint32_t, p)) : 0u;
		} else {
			uint2 v = make_uint2(0, 0);
			if (live)
				v = plumb_load_stream(PLUMB_AS(const uint2, p));
			r.code[s][0] = v.x, r.code[s][1 % r.WORDS] = v.y;
		}
		if (Format == PLUMB_NVFP4)
			r.group[s] = live ? group[s * (PLUMB_ROW_LANES / PLUMB_NVFP4_GROUP)] : static_cast<uint8_t>(0);
	}
	if (Format == PLUMB_FP8_BLOCK) {
		static_assert(
			Steps <= 16 && PLUMB_ROW_LANES == 2 * PLUMB_FP8_BLOCK_SIZE, "a lane has the scale of one block");
		r.block = plumb_block_fetch(row.scale, row.scale_format, k0, k1);
	}
}

/* 8 values from their codes. scale: of formats that have one. */
template <int Format, int Words>
static __device__ __forceinline__ void plumb_codes_decode(
	const uint32_t (&code)[Words], float scale, float (&w)[PLUMB_COLUMNS])
{
	if (Format == PLUMB_BF16) {
		PLUMB_UNROLL
		for (int j = 0; j < 4; j++) {
			w[2 * j] = __uint_as_float(code[j % Words] << 16);
			w[2 * j + 1] = __uint_as_float(code[j % Words] & 0xffff0000u);
		}
		return;
	}
	if (Format == PLUMB_NVFP4) {
		plumb_e2m1_values(code[0], w);
	} else {
		plumb_e4m3_values(code[0], w);
		plumb_e4m3_values(code[1 % Words], w + 4);
	}
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_COLUMNS; j++)
		w[j] = w[j] * scale;
}

/* The values of step s; the whole warp. */
template <int Format, int Steps>
static __device__ __forceinline__ void plumb_row_decode(
	const struct plumb_lane_row<Format, Steps> &r, int s, float (&w)[PLUMB_COLUMNS])
{
	float scale = r.factor;
	if (Format == PLUMB_NVFP4)
		scale = plumb_e4m3_value(r.group[s]) * r.factor;
	if (Format == PLUMB_FP8_BLOCK)
		scale = plumb_block_scale(r.block, s);
	if (s * PLUMB_ROW_LANES >= r.left)
		scale = 0.0f; /* Inf times the code of a column that is not there would not be 0 */
	plumb_codes_decode<Format>(r.code[s], scale, w);
}

/* Bring bytes near (L2), a line a lane. */
static __device__ __forceinline__ void plumb_bytes_prefetch(const void *begin, int bytes)
{
	const int lane = static_cast<int>(threadIdx.x) % 32;

	for (int at = lane * PLUMB_LINE; at < bytes; at += 32 * PLUMB_LINE)
		plumb_prefetch(static_cast<const unsigned char *>(begin) + at);
}

/* Whole rows behind each other near: for those that a warp takes after the ones it has in flight. */
template <int Format>
static __device__ __forceinline__ void plumb_rows_prefetch(const struct plumb_row &first, int rows, int cols)
{
	plumb_bytes_prefetch(first.data, rows * ((cols * plumb_columns_bytes(Format) + 7) / PLUMB_COLUMNS));
	if (Format == PLUMB_NVFP4)
		plumb_bytes_prefetch(first.scale, rows * ((cols + PLUMB_NVFP4_GROUP - 1) / PLUMB_NVFP4_GROUP));
}

/* Ask for columns k0 <= k < k1, at most 256*Steps of them, of each row. Full: k1 - k0 is 256*Steps. */
template <int Format, int Steps, int Rows, bool Full>
static __device__ __forceinline__ void plumb_rows_fetch(
	const struct plumb_row (&row)[Rows], int k0, int k1, struct plumb_lane_row<Format, Steps> (&stored)[Rows])
{
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		plumb_row_fetch<Format, Steps, Full>(row[r], k0, k1, stored[r]);
}

/* The sums of a warp's accumulators; all lanes get them. The shuffles of all rows stand next to each other, so that they
 * overlap. */
template <int Rows>
static __device__ __forceinline__ void plumb_rows_add(const float (&acc)[Rows][PLUMB_COLUMNS], float (&sum)[Rows])
{
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = ((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3])) +
		         ((acc[r][4] + acc[r][5]) + (acc[r][6] + acc[r][7]));
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = plumb_warp_sum(sum[r]);
}

/* Their sums with the vector; all lanes of the warp get them. */
template <int Format, int Steps, int Rows, bool Full>
static __device__ __forceinline__ void plumb_rows_sums(
	const struct plumb_lane_row<Format, Steps> (&stored)[Rows], const struct plumb_vector<Steps> &v, float (&sum)[Rows])
{
	float acc[Rows][PLUMB_COLUMNS] = {};

	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		float x[PLUMB_COLUMNS];
		plumb_vector_step<Full>(v, s, x);
		PLUMB_UNROLL
		for (int r = 0; r < Rows; r++) {
			float w[PLUMB_COLUMNS];
			plumb_row_decode<Format, Steps>(stored[r], s, w);
			PLUMB_UNROLL
			for (int j = 0; j < PLUMB_COLUMNS; j++)
				acc[r][j] = fmaf(w[j], x[j], acc[r][j]);
		}
	}
	plumb_rows_add<Rows>(acc, sum);
}

#endif
