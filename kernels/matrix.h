/* SPDX-License-Identifier: MIT */
/* Matrices as launchers and kernels take them, by value; for C11 and C++. What the members mean: core/weight.h. All
 * pointers are the device's. How kernels read them: kernels/value.h. */
#ifndef PLUMB_KERNELS_MATRIX_H
#define PLUMB_KERNELS_MATRIX_H

#include <stdint.h>

#include "core/weight.h"

struct plumb_matrix {
	const void *data; /* (rows, cols) of format; NULL: no such matrix */
	const void *scale;
	float global;
	int format; /* enum plumb_format */
	int scale_format;
};

/* Matrices of one format and one number of columns: the experts of a layer, the shards of a table. */
struct plumb_matrix_bank {
	const void *const *data;  /* (count) */
	const void *const *scale; /* (count), or NULL when the format has no scales in memory */
	const float *global;      /* (count): each has its own */
	int format;
	int scale_format;
	int wide; /* every matrix can be loaded 8 columns at a time (plumb_matrix_wide) */
};

/* Whether the rows of a matrix can be loaded 8 columns at a time: cols a multiple of 8, and 8 columns of the format (16
 * bytes at most a load) aligned. */
static inline int plumb_matrix_wide(int format, const void *data, int64_t cols)
{
	const int bytes = format == PLUMB_NVFP4 ? 4 : format >= PLUMB_FP8_ROW ? 8 : 16;
	return cols % 8 == 0 && (uintptr_t)data % (uintptr_t)bytes == 0;
}

#endif
