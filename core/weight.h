/* SPDX-License-Identifier: MIT */
/* A weight matrix as it is stored: number format, shape, and where its bytes are. */
#ifndef PLUMB_CORE_WEIGHT_H
#define PLUMB_CORE_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_format {
	PLUMB_F32,
	PLUMB_F16,
	PLUMB_BF16,
	PLUMB_FORMAT_COUNT,
};

struct plumb_weight {
	enum plumb_format format;
	int64_t rows, cols; /* (N, K); a vector is (1, n) */
	const void *data;   /* row-major, no padding, little-endian; aligned to one value, no more: rows may start anywhere */
};

/* Name as in a config or report, e.g. "bf16". */
const char *plumb_format_name(enum plumb_format format);

/* Bytes of one row of cols values. */
size_t plumb_format_row_bytes(enum plumb_format format, int64_t cols);

/* Bytes of the whole matrix. */
size_t plumb_weight_bytes(const struct plumb_weight *w);

/* Decode row n, columns [k0, k0 + count), to binary32 (exact for every format here).
 * out: (count) f32. The caller keeps 0 <= n < rows and k0 + count <= cols. */
void plumb_weight_row(const struct plumb_weight *w, int64_t n, int64_t k0, int64_t count, float *out);

/* Decode an array of count stored values to binary32 and back (round to nearest even). */
void plumb_decode(enum plumb_format format, const void *in, int64_t count, float *out);
void plumb_encode(enum plumb_format format, const float *in, int64_t count, void *out);

#ifdef __cplusplus
}
#endif
#endif
