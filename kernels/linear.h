/* SPDX-License-Identifier: MIT */
/* Launcher of the projections that end in a store: up to four matrices that share one input vector: one launch, or one
 * for each stretch of parts that share a format. */
#ifndef PLUMB_KERNELS_LINEAR_H
#define PLUMB_KERNELS_LINEAR_H

#include <stdint.h>

#include "kernels/launcher.h"
#include "kernels/matrix.h"

enum { PLUMB_LINEAR_PARTS = 4 };

struct plumb_linear_part {
	struct plumb_matrix w; /* (rows, cols) */
	int64_t rows;
	float *y; /* (rows) */
};

struct plumb_linear {
	const float *x; /* (cols) */
	int64_t cols;
	int64_t rows; /* of all parts together */
	int pieces;   /* plumb_split_count(rows, cols) */
	int bf16;     /* policy bf16: round what is stored */
	int parts;
	struct plumb_linear_part part[PLUMB_LINEAR_PARTS];
};

/* y = rne(w . x) of every part, rows split(pieces, 256). */
PLUMB_DECLARE_LAUNCHER(linear, const struct plumb_linear *linear, void *stream);

#endif
