/* SPDX-License-Identifier: MIT */
/* Reduction orders: the words the op contracts use, and the sizes they take. An order depends on shapes alone, never on
 * the number of processors or on who arrives first.
 *
 *   strided(W)   element k joins accumulator k mod W by fmaf, in ascending k; accumulators start at +0; then the W
 *                accumulators are summed by a neighbour-first pairwise tree: a[i] = a[i] + a[i+1] for even i, then
 *                a[i] + a[i+2], and so on; W is a power of two.
 *   split(S, W)  S contiguous pieces of plumb_split_length() elements, each strided(W), summed left to right.
 *   serial       one accumulator, ascending index, from +0.
 *
 * "sum" instead of fmaf: where an order adds values that are no products, each joins by a plain addition.
 * Depth d of an order is the number of roundings an element's product can pass through; the error bound is
 * gamma_d = d*u / (1 - d*u), u = 2^-24. */
#ifndef PLUMB_CORE_ORDER_H
#define PLUMB_CORE_ORDER_H

#include <stdint.h>

#include "core/numeric.h"

enum {
	PLUMB_ROW_LANES = 256,   /* W of matrix rows and hidden-size sums: 32 lanes of 8 values (16 bytes of bf16) */
	PLUMB_HEAD_LANES = 128,  /* W of head-sized sums: 32 lanes of 4 values (16 bytes of binary32) */
	PLUMB_SPLIT_ROWS = 8192, /* split rows until this many pieces of work exist: fills the largest GPU in use */
	PLUMB_SPLIT_MIN = 512,   /* but no piece shorter than this: two passes of a warp */
	PLUMB_SPLIT_MAX = 16,
	PLUMB_ATTN_TILE = 32,  /* selected tokens whose exponentials are relative to their own maximum */
	PLUMB_ATTN_CHUNK = 64, /* selected tokens whose weighted values are summed serially before chunks are summed */
};

/* Pieces S of a matrix-vector product of rows output rows (all rows of the call) and cols columns. */
PLUMB_FN int plumb_split_count(int64_t rows, int64_t cols)
{
	int s = 1;
	while (s < PLUMB_SPLIT_MAX && rows * s < PLUMB_SPLIT_ROWS && cols / (2 * (int64_t)s) >= PLUMB_SPLIT_MIN)
		s *= 2;
	return s;
}

/* Elements of each piece but the last: a multiple of PLUMB_ROW_LANES. */
PLUMB_FN int64_t plumb_split_length(int64_t cols, int pieces)
{
	int64_t piece = (cols + pieces - 1) / pieces;
	return (piece + PLUMB_ROW_LANES - 1) / PLUMB_ROW_LANES * PLUMB_ROW_LANES;
}

/* Depth of strided(width) over n elements, and of split(pieces, PLUMB_ROW_LANES) over n. */
PLUMB_FN int plumb_strided_depth(int64_t n, int width)
{
	int depth = (int)((n + width - 1) / width);
	for (int w = width; w > 1; w /= 2)
		depth++;
	return depth;
}
PLUMB_FN int plumb_split_depth(int64_t n, int pieces)
{
	return plumb_strided_depth(plumb_split_length(n, pieces), PLUMB_ROW_LANES) + pieces - 1;
}

#endif
