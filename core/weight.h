/* SPDX-License-Identifier: MIT */
/* A weight matrix as it is stored: number format, shape, and where its bytes are. */
#ifndef PLUMB_CORE_WEIGHT_H
#define PLUMB_CORE_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_synthetic_tensor; /* core/synthetic_value.h */

enum plumb_format {
	PLUMB_F32,
	PLUMB_F16,
	PLUMB_BF16,
	PLUMB_FP8_ROW,   /* E4M3, one binary32 scale a row */
	PLUMB_FP8_BLOCK, /* E4M3, a scale per 128 x 128 block; the last block row and column may be partial */
	PLUMB_FP8_TABLE, /* E4M3, one scale; the value is rounded to bf16 (the n-gram table) */
	PLUMB_NVFP4,     /* E2M1, two a byte; an E4M3 scale per 16 columns, one binary32 scale of the matrix */
	PLUMB_FORMAT_COUNT,
};

enum {
	PLUMB_PLAIN_FORMATS = PLUMB_FP8_ROW, /* formats below this have no scales: what plumb_encode and caches take */
	PLUMB_FP8_BLOCK_SIZE = 128,          /* rows and columns */
	PLUMB_NVFP4_GROUP = 16,              /* columns; the last group of a row may be partial */
};

/* The value of element (n, k), each product rounded once to binary32 unless it says otherwise:
 *   f32, f16, bf16   the stored value, widened
 *   fp8 row          e4m3(code) * scale[n]
 *   fp8 block        e4m3(code) * scale[n / 128, k / 128]
 *   fp8 table        bf16(e4m3(code) * global)
 *   nvfp4            e2m1(code) * (e4m3(scale[n, k / 16]) * global); column 2j is in the low nibble of byte j
 * Source: model-spec 3.3, 3.6. */
struct plumb_weight {
	enum plumb_format format;
	int64_t rows, cols; /* (N, K); a vector is (1, n) */
	const void *data;   /* row-major, no padding, little-endian; aligned to one value, no more: rows may start anywhere.
	                       A row of nvfp4 is ceil(K/2) bytes */
	const void *scale;  /* fp8 row: (N); fp8 block: (ceil(N/128), ceil(K/128)); nvfp4: (N, ceil(K/16)) E4M3 bytes;
	                       else NULL */
	enum plumb_format scale_format; /* of fp8 row and block scales: f32 or bf16 */
	float global;                   /* fp8 table and nvfp4: the scale of the whole matrix */
	/* NULL: the bytes are there. Else data and scale are address space that a model fills when a call is about to read
	 * it (core/model.h), by core/synthetic_value.h */
	const struct plumb_synthetic_tensor *made;
};

/* Name as in a config or report, e.g. "bf16". */
const char *plumb_format_name(enum plumb_format format);

/* Bytes of one row of cols values. */
size_t plumb_format_row_bytes(enum plumb_format format, int64_t cols);

/* Bytes of what data and scale point to, and of both together. global is part of the struct and not counted. */
size_t plumb_weight_data_bytes(const struct plumb_weight *w);
size_t plumb_weight_scale_bytes(const struct plumb_weight *w);
size_t plumb_weight_bytes(const struct plumb_weight *w);

/* n / size, rounded up: blocks or groups of a row or column. */
static inline int64_t plumb_parts(int64_t n, int64_t size)
{
	return (n + size - 1) / size;
}

/* What the code of element (n, k) is multiplied by, of a format with scales (nvfp4: the rounded product of both);
 * else 1. */
float plumb_weight_scale(const struct plumb_weight *w, int64_t n, int64_t k);

/* Decode row n, columns [k0, k0 + count), to binary32: the values defined above, whatever range they are asked for in.
 * out: (count) f32. The caller keeps 0 <= n < rows, 0 <= k0 and k0 + count <= cols. The two NaN codes of e4m3 give NaN. */
void plumb_weight_row(const struct plumb_weight *w, int64_t n, int64_t k0, int64_t count, float *out);

/* Decode an array of count stored values to binary32 and back (round to nearest even). For f32, f16 and bf16 only: the
 * other formats have scales (plumb_weight_row, core/quantise.h), and out is left as it is. */
void plumb_decode(enum plumb_format format, const void *in, int64_t count, float *out);
void plumb_encode(enum plumb_format format, const float *in, int64_t count, void *out);

#ifdef __cplusplus
}
#endif
#endif
