/* SPDX-License-Identifier: MIT */
/* Which products kernels/gemv.h takes: for launchers, host code. */
#ifndef PLUMB_KERNELS_GEMV_SHAPE_H
#define PLUMB_KERNELS_GEMV_SHAPE_H

#include "core/order.h"
#include "core/weight.h"
#include "kernels/device.h"
#include "kernels/matrix.h"

/* X(format, steps) for every combination that is built: the formats that are served, and the pieces of the released
 * shapes (2560 in one, 6144 in four, 10240 in sixteen or 640). A piece takes the least that is enough. */
enum { PLUMB_GEMV_LONG = 10 };
#define PLUMB_GEMV_STEPS(X, format) X(format, 1) X(format, 3) X(format, 6) X(format, PLUMB_GEMV_LONG)
#define PLUMB_GEMV_SHAPES(X)                                                                                               \
	PLUMB_GEMV_STEPS(X, PLUMB_BF16)                                                                                    \
	PLUMB_GEMV_STEPS(X, PLUMB_FP8_ROW)                                                                                 \
	PLUMB_GEMV_STEPS(X, PLUMB_FP8_BLOCK)                                                                               \
	PLUMB_GEMV_STEPS(X, PLUMB_NVFP4)
#define PLUMB_GEMV_FORMATS(X) X(PLUMB_BF16) X(PLUMB_FP8_ROW) X(PLUMB_FP8_BLOCK) X(PLUMB_NVFP4)

/* Blocks of four warps on a processor, at least. The compiler for sm_121 needs some registers more. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { PLUMB_GEMV_BLOCKS = 3 };
#else
enum { PLUMB_GEMV_BLOCKS = 4 };
#endif

/* Floats of shared memory for a vector: cols, a multiple of 8, and a gap between its halves (plumb_staged_index). */
enum { PLUMB_STAGED_GAP = 16 };
static __host__ __device__ inline size_t plumb_staged_floats(int64_t cols)
{
	return static_cast<size_t>(cols) + PLUMB_STAGED_GAP;
}

/* Bytes of shared memory for a vector; one longer than 16384 leaves no room for other blocks on a GB10. */
enum { PLUMB_GEMV_COLUMNS = 16384, PLUMB_GEMV_HIDDEN = 1 << 24 }; /* the latter: rows that 32 bits count */
static inline size_t plumb_gemv_shared(int64_t cols, int steps)
{
	return steps == PLUMB_GEMV_LONG ? sizeof(float) * plumb_staged_floats(cols) : 0;
}

/* Least steps that take a piece of a row of cols columns in so many pieces; 0: more than there are. */
static inline int plumb_gemv_steps(int64_t cols, int pieces)
{
	const int64_t length = plumb_split_length(cols, pieces);
	const int64_t needed = ((length < cols ? length : cols) + PLUMB_ROW_LANES - 1) / PLUMB_ROW_LANES;
	if (cols > PLUMB_GEMV_COLUMNS)
		return 0;
	return needed <= 1 ? 1 : needed <= 3 ? 3 : needed <= 6 ? 6 : needed <= PLUMB_GEMV_LONG ? PLUMB_GEMV_LONG : 0;
}

/* plumb_split_length for 1 << shift pieces, without a division. */
static __host__ __device__ __forceinline__ int plumb_gemv_piece(int cols, int shift)
{
	return (((cols + (1 << shift) - 1) >> shift) + PLUMB_ROW_LANES - 1) & ~(PLUMB_ROW_LANES - 1);
}

/* Whether every row of the matrix can be loaded 8 columns at a time. */
static inline bool plumb_gemv_rows_wide(const struct plumb_matrix *m, int64_t cols)
{
	return m->format >= PLUMB_BF16 && m->format != PLUMB_FP8_TABLE && plumb_matrix_wide(m->format, m->data, cols);
}

static inline bool plumb_gemv_vector_wide(const float *x)
{
	return reinterpret_cast<uintptr_t>(x) % 16 == 0;
}

#endif
