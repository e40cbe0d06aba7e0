/* SPDX-License-Identifier: MIT */
/* Values of a stored matrix, as core/weight.h defines them: one, or a lane's 8 neighbouring columns with one load.
 * Device code only.
 *
 * 8 columns from a multiple of 8 on lie in one group of 16 and in one block of 128, so they share one scale: it is
 * looked up, and for nvfp4 multiplied by the matrix's, once for the 8. Every weight is still a product of its own,
 * rounded to binary32: what the reference decodes. */
#ifndef PLUMB_KERNELS_VALUE_H
#define PLUMB_KERNELS_VALUE_H

#include "core/math32.h"
#include "core/weight.h"
#include "kernels/matrix.h"
#include "kernels/reduce.h"

enum { PLUMB_COLUMNS = 8 }; /* of a load */

/* X(format) for every format: the cases of a switch that makes a format known to the compiler. */
#define PLUMB_FORMATS(X)                                                                                                   \
	X(PLUMB_F32)                                                                                                       \
	X(PLUMB_F16)                                                                                                       \
	X(PLUMB_BF16)                                                                                                      \
	X(PLUMB_FP8_ROW)                                                                                                   \
	X(PLUMB_FP8_BLOCK)                                                                                                 \
	X(PLUMB_FP8_TABLE)                                                                                                 \
	X(PLUMB_NVFP4)

/* ---- where things are ---- */

/* Bytes of 8 columns. */
static __device__ __forceinline__ int plumb_columns_bytes(int format)
{
	if (format == PLUMB_F32)
		return 32;
	if (format == PLUMB_F16 || format == PLUMB_BF16)
		return 16;
	return format == PLUMB_NVFP4 ? 4 : 8;
}

/* Row n of a matrix. Members that a format does not use cost nothing: Format is known at compile time. */
struct plumb_row {
	const unsigned char *data;
	const void *scale; /* fp8 block, nvfp4: of this row's blocks or groups */
	float factor;      /* fp8 row: the row's scale; fp8 table, nvfp4: the matrix's */
	int scale_format;
};

/* Scale i of fp8 row or fp8 block. The arms of the choice load and do no more, so that nothing waits in them. */
static __device__ __forceinline__ float plumb_stored_scale(int format, const void *scale, int64_t i)
{
	const bool whole = format == PLUMB_F32;
	const uint32_t bits = whole ? static_cast<const uint32_t *>(scale)[i] : static_cast<const uint16_t *>(scale)[i];
	return __uint_as_float(bits << (whole ? 0 : 16));
}

template <int Format>
static __device__ __forceinline__ struct plumb_row plumb_row_of(const struct plumb_matrix &m, int64_t n, int64_t cols)
{
	struct plumb_row row;

	row.data = static_cast<const unsigned char *>(m.data) +
	           n * ((cols * plumb_columns_bytes(Format) + 7) / PLUMB_COLUMNS); /* of nvfp4: rounded up */
	row.scale = m.scale;
	row.factor = m.global;
	row.scale_format = m.scale_format;
	if (Format == PLUMB_FP8_ROW)
		row.factor = plumb_stored_scale(m.scale_format, m.scale, n);
	if (Format == PLUMB_FP8_BLOCK) {
		const unsigned across = static_cast<unsigned>(cols + PLUMB_FP8_BLOCK_SIZE - 1) / PLUMB_FP8_BLOCK_SIZE;
		row.scale = static_cast<const unsigned char *>(m.scale) +
		            n / PLUMB_FP8_BLOCK_SIZE * across * (m.scale_format == PLUMB_F32 ? 4 : 2);
	}
	if (Format == PLUMB_NVFP4)
		row.scale = static_cast<const unsigned char *>(m.scale) +
		            n * ((cols + PLUMB_NVFP4_GROUP - 1) / PLUMB_NVFP4_GROUP);
	return row;
}

/* Whether 8 columns of the row from a multiple of 8 on can be loaded at once. */
template <int Format> static __device__ __forceinline__ bool plumb_row_aligned(const struct plumb_row &row)
{
	const unsigned bytes = static_cast<unsigned>(plumb_columns_bytes(Format));
	return reinterpret_cast<uintptr_t>(row.data) % (bytes < 16 ? bytes : 16) == 0;
}

/* ---- codes ---- */

/* Four e4m3 codes. Their values are binary16 values, so the GPU's own conversion is exact, and it makes NaN of both NaN
 * codes: tests/test_formats.c compares all 256. */
static __device__ __forceinline__ void plumb_e4m3_values(uint32_t codes, float *w)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
	PLUMB_UNROLL
	for (int j = 0; j < 4; j += 2) {
		uint32_t halves;
		asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(halves) : "h"(static_cast<uint16_t>(codes >> 8 * j)));
		asm("{.reg .f16 a, b;\n\tmov.b32 {a, b}, %2;\n\tcvt.f32.f16 %0, a;\n\tcvt.f32.f16 %1, b;}"
			: "=f"(w[j]), "=f"(w[j + 1])
			: "r"(halves));
	}
#else
	for (int j = 0; j < 4; j++)
		w[j] = plumb_e4m3_to_f32(static_cast<uint8_t>(codes >> 8 * j));
#endif
}

static __device__ __forceinline__ float plumb_e4m3_value(uint8_t code)
{
	float w[4];
	plumb_e4m3_values(code, w);
	return w[0];
}

/* binary16 values: the GPU's conversions are exact, and round to nearest even with subnormals and Inf as core/numeric.h has
 * them; only what they make of a NaN is another NaN. */
static __device__ __forceinline__ float plumb_f16_value(uint16_t code)
{
#ifdef __CUDA_ARCH__
	float x;
	asm("{.reg .f16 h;\n\tmov.b16 h, %1;\n\tcvt.f32.f16 %0, h;}" : "=f"(x) : "h"(code));
	return x;
#else
	return plumb_f16_to_f32(code);
#endif
}

/* Two of them, the first in the lower half. */
static __device__ __forceinline__ void plumb_f16_pair(uint32_t codes, float &first, float &second)
{
	first = plumb_f16_value(static_cast<uint16_t>(codes));
	second = plumb_f16_value(static_cast<uint16_t>(codes >> 16));
}

static __device__ __forceinline__ uint16_t plumb_f16_code(float x)
{
#ifdef __CUDA_ARCH__
	uint16_t code;
	asm("{.reg .f16 h;\n\tcvt.rn.f16.f32 h, %1;\n\tmov.b16 %0, h;}" : "=h"(code) : "f"(x));
	return code;
#else
	return plumb_f32_to_f16(x);
#endif
}

/* A constant that stays in a register: an instruction has room for one constant, and the compiler would else move the
 * second one into place for every use. Blocks have one row of threads, which it does not know. */
static __device__ __forceinline__ uint32_t plumb_register(uint32_t constant)
{
	return constant + threadIdx.y;
}

/* Eight e2m1 codes, the first in the lowest bits. As binary16 the magnitudes 0 0.5 1 1.5 2 3 4 6 have a lower byte of zero,
 * and a byte permutation is a table of eight entries that takes four codes at once. (By way of bf16, whose values widen by a
 * shift, the lower bytes took a second table: more of what runs at half the rate than of all else.) */
static __device__ __forceinline__ void plumb_e2m1_values(uint32_t codes, float (&w)[PLUMB_COLUMNS])
{
	const uint32_t index = codes & 0x77777777u, table = plumb_register(0x3e3c3800u);
	const uint32_t first = __byte_perm(table, 0x46444240u, index), last = __byte_perm(table, 0x46444240u, index >> 16);
	/* even codes have their signs in bits 3, 11, 19, 27, odd ones at the tops of the bytes */
	const uint32_t even = __byte_perm(first, last, 0x6420) | (codes << 4 & 0x80808080u);
	const uint32_t odd = __byte_perm(first, last, 0x7531) | (codes & 0x80808080u);

	plumb_f16_pair(__byte_perm(even, 0, 0x1404), w[0], w[2]);
	plumb_f16_pair(__byte_perm(odd, 0, 0x1404), w[1], w[3]);
	plumb_f16_pair(__byte_perm(even, 0, 0x3424), w[4], w[6]);
	plumb_f16_pair(__byte_perm(odd, 0, 0x3424), w[5], w[7]);
}

/* ---- values ---- */

/* 8 values of f32, f16 or bf16 from a 16-byte aligned address. */
static __device__ __forceinline__ void plumb_load8(int format, const void *row, int64_t k, float (&w)[PLUMB_COLUMNS])
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

/* The scale of the 8 columns from a multiple of 8 on, k among them; nothing for formats without. */
template <int Format> static __device__ __forceinline__ float plumb_row_scale(const struct plumb_row &row, int64_t k)
{
	if (Format == PLUMB_FP8_BLOCK)
		return plumb_stored_scale(row.scale_format, row.scale, k / PLUMB_FP8_BLOCK_SIZE);
	if (Format == PLUMB_NVFP4)
		return plumb_e4m3_value(static_cast<const uint8_t *>(row.scale)[k / PLUMB_NVFP4_GROUP]) * row.factor;
	return row.factor;
}

template <int Format> static __device__ __forceinline__ float plumb_scaled(float code, float scale)
{
	return Format == PLUMB_FP8_TABLE ? plumb_round_bf16(code * scale) : code * scale;
}

/* Column k, any address; scale: plumb_row_scale of k. */
template <int Format>
static __device__ __forceinline__ float plumb_row_value(const struct plumb_row &row, int64_t k, float scale)
{
	if (Format == PLUMB_F32 || Format == PLUMB_F16 || Format == PLUMB_BF16)
		return plumb_stored_value(Format, row.data, k);
	if (Format == PLUMB_NVFP4)
		return plumb_e2m1_to_f32(static_cast<uint8_t>(row.data[k / 2] >> k % 2 * 4)) * scale;
	return plumb_scaled<Format>(plumb_e4m3_value(row.data[k]), scale);
}

/* Columns k .. k + 7 of a row for which plumb_row_aligned holds; k is a multiple of 8. */
template <int Format>
static __device__ __forceinline__ void plumb_row_load8(const struct plumb_row &row, int64_t k, float (&w)[PLUMB_COLUMNS])
{
	if (Format == PLUMB_F32 || Format == PLUMB_F16 || Format == PLUMB_BF16) {
		plumb_load8(Format, row.data, k, w);
		return;
	}
	if (Format == PLUMB_NVFP4) {
		plumb_e2m1_values(plumb_load_stream(PLUMB_AS(const uint32_t, row.data + k / 2)), w);
	} else {
		const uint2 codes = plumb_load_stream(PLUMB_AS(const uint2, row.data + k));
		plumb_e4m3_values(codes.x, w);
		plumb_e4m3_values(codes.y, w + 4);
	}
	const float scale = plumb_row_scale<Format>(row, k);
	PLUMB_UNROLL
	for (int j = 0; j < PLUMB_COLUMNS; j++)
		w[j] = plumb_scaled<Format>(w[j], scale);
}

template <int Format>
static __device__ __forceinline__ float plumb_matrix_value_of(
	const struct plumb_matrix &m, int64_t n, int64_t k, int64_t cols)
{
	const struct plumb_row row = plumb_row_of<Format>(m, n, cols);
	return plumb_row_value<Format>(row, k, plumb_row_scale<Format>(row, k));
}

/* Element (n, k) of a matrix of any format. */
static __device__ __forceinline__ float plumb_matrix_value(const struct plumb_matrix &m, int64_t n, int64_t k, int64_t cols)
{
	switch (m.format) {
#define PLUMB_CASE(format)                                                                                                 \
	case format:                                                                                                       \
		return plumb_matrix_value_of<format>(m, n, k, cols);
		PLUMB_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default: /* refused by the host */
		return plumb_nanf();
	}
}

/* Matrix i of a bank. */
static __device__ __forceinline__ struct plumb_matrix plumb_bank_matrix(const struct plumb_matrix_bank &b, int64_t i)
{
	struct plumb_matrix m;

	m.data = b.data[i];
	m.scale = b.scale ? b.scale[i] : nullptr;
	m.global = b.global[i];
	m.format = b.format;
	m.scale_format = b.scale_format;
	return m;
}

#endif
