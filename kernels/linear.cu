/* SPDX-License-Identifier: MIT */
/* Projections. A warp takes one piece of several rows; the warps of a block that share rows add their pieces through
 * shared memory, left to right.
 *
 * Three kernels of the same bits. The wide one, for parts of one format, keeps its part of the input vector in registers
 * (kernels/gemv.h); the staged one is faster with FP8 and NVFP4 (kernels/staged.h); the third takes any format, any address
 * and any length. */
#include "kernels/linear.h"

#include "kernels/gemv.h"
#include "kernels/staged.h"

enum {
	WARPS = PLUMB_SPLIT_MAX, /* of a block that takes anything: one row of the most pieces, or several rows */
	WIDE_WARPS = 4,          /* small blocks: as one ends, the next begins */
	WIDE_ROWS = 8,           /* of a warp, at most: what it does once a block is shared by them */
	WIDE_FLIGHT = 2,         /* of them in flight together */
	WIDE_BLOCKS = 512,       /* fewer rows a warp before fewer blocks */
	WIDE_SHORT = 3,          /* steps of a piece that leave registers for a block of 16 warps */
};

static __global__ void __launch_bounds__(32 * WARPS) linear_kernel(struct plumb_linear a)
{
	PLUMB_SHARED(float, partial, WARPS);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int rows_per_block = WARPS / a.pieces;
	const int piece = warp % a.pieces;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * rows_per_block + warp / a.pieces;
	int64_t n = row;
	int p = 0;

	while (p < a.parts - 1 && n >= a.part[p].rows)
		n -= a.part[p++].rows;
	if (row < a.rows) {
		const float sum = plumb_row_piece(a.part[p].w, n, a.cols, a.x, piece, a.pieces);
		if (lane == 0)
			partial[warp] = sum;
	}
	__syncthreads();
	if (row < a.rows && piece == 0 && lane == 0) {
		float sum = partial[warp];
		for (int s = 1; s < a.pieces; s++)
			sum = sum + partial[warp + s];
		a.part[p].y[n] = plumb_rne(a.bf16, sum);
	}
}

/* Part of the call that a row belongs to; *n: in, the row of the call; out, of the part. */
static __device__ __forceinline__ int part_of(const struct plumb_linear &a, int64_t *n)
{
	int p = 0;
	while (p < a.parts - 1 && *n >= a.part[p].rows)
		*n -= a.part[p++].rows;
	return p;
}

/* Rows first .. first + rows - 1 of the call, a piece of each: sums go to sum (rows). Called by all threads of the block. */
template <int Format, int Steps, bool Full>
static __device__ __forceinline__ void wide_sums(const struct plumb_linear &a, int64_t first, int rows, int k0, int k1,
	PLUMB_SHARED_PTR(float) staged, PLUMB_SHARED_PTR(float) out)
{
	struct plumb_vector<Steps> v = {
	};

	PLUMB_NO_UNROLL
	for (int r0 = 0; r0 < rows; r0 += WIDE_FLIGHT) {
		struct plumb_row row[WIDE_FLIGHT];
		struct plumb_lane_row<Format, Steps> stored[WIDE_FLIGHT];
		float sum[WIDE_FLIGHT];
		PLUMB_UNROLL
		for (int r = 0; r < WIDE_FLIGHT; r++) { /* past the end the last row again, for nobody */
			int64_t n = first + r0 + r < a.rows ? first + r0 + r : a.rows - 1;
			const int p = part_of(a, &n);
			row[r] = plumb_row_of<Format>(a.part[p].w, n, a.cols);
		}
		plumb_rows_fetch<Format, Steps, WIDE_FLIGHT, Full>(row, k0, k1, stored);
		if (r0 == 0) { /* weights are nobody's output: only now is what the launch before wrote needed */
			plumb_grid_dependency_wait();
			plumb_vector_take(a.x, static_cast<int>(a.cols), k0, k1, staged, v);
		}
		plumb_rows_sums<Format, Steps, WIDE_FLIGHT, Full>(stored, v, sum);
		if (threadIdx.x % 32 == 0)
			PLUMB_UNROLL
		for (int r = 0; r < WIDE_FLIGHT; r++)
			out[r0 + r] = sum[r];
	}
}

/* Thread i finishes row i of the block; partial (warps, rows), groups of a.pieces warps. */
static __device__ __forceinline__ void add_pieces(
	const struct plumb_linear &a, PLUMB_SHARED_PTR(float) partial, int rows, int groups, int64_t block_row)
{
	const int i = static_cast<int>(threadIdx.x);

	if (i >= groups * rows || block_row + i >= a.rows)
		return;
	const int at = i / rows * a.pieces * rows + i % rows;
	float sum = partial[at];
	for (int s = 1; s < a.pieces; s++)
		sum = sum + partial[at + s * rows];
	int64_t n = block_row + i;
	const int p = part_of(a, &n);
	a.part[p].y[n] = plumb_rne(a.bf16, sum);
}

/* Warps: the most a block has. rows: of a warp, a multiple of WIDE_FLIGHT. */
template <int Format, int Steps, int Warps>
static __global__ void __launch_bounds__(32 * Warps, Warps > WIDE_WARPS      ? 1
						     : Format == PLUMB_NVFP4 ? 3
									     : PLUMB_GEMV_BLOCKS)
	linear_wide_kernel(struct plumb_linear a, int rows)
{
	PLUMB_SHARED(float, partial, Warps *WIDE_ROWS); /* (warps, rows) */
	PLUMB_DYNAMIC_SHARED(float, staged);
	const int warp = static_cast<int>(threadIdx.x / 32), shift = __ffs(a.pieces) - 1; /* a power of two */
	const int piece = warp & (a.pieces - 1), groups = static_cast<int>(blockDim.x / 32) >> shift;
	const int cols = static_cast<int>(a.cols), length = plumb_gemv_piece(cols, shift);
	const int k0 = piece * length, k1 = min(k0 + length, cols);
	const int64_t block_row = static_cast<int64_t>(blockIdx.x) * (groups * rows);
	const int64_t first = block_row + (warp >> shift) * rows;

	plumb_grid_launch_dependents();
	/* in a block either all pieces are full or each is tested: they meet at a barrier */
	if (cols == Steps * PLUMB_ROW_LANES << shift)
		wide_sums<Format, Steps, true>(a, first, rows, k0, k1, staged, partial + warp * rows);
	else
		wide_sums<Format, Steps, false>(a, first, rows, k0, k1, staged, partial + warp * rows);
	__syncthreads();
	add_pieces(a, partial, rows, groups, block_row);
}

/* Rows of a warp, Flight of them multiplied together; Warps of a block, Blocks of them on a processor: STAGED_SHAPES. */
template <int Format, int Pieces, int Steps, int Rows, int Flight, int Warps, int Blocks>
static __global__ void __launch_bounds__(32 * Warps, Blocks) linear_staged_kernel(struct plumb_linear a)
{
	PLUMB_SHARED(float, partial, Warps *Rows); /* (warps, rows) */
	PLUMB_DYNAMIC_SHARED(float, staged);       /* the vector, then the warps' rows */
	const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
	const int piece = warp % Pieces, groups = Warps / Pieces;
	const int cols = static_cast<int>(a.cols), length = Steps * PLUMB_ROW_LANES;
	const int row_bytes = Steps * plumb_staged<Format>::STEP;
	const int loads = (Pieces * length / 4 + 32 * Warps - 1) / (32 * Warps); /* of the vector, a thread */
	const int k0 = piece * length, k1 = min(k0 + length, cols);
	const int64_t block_row = static_cast<int64_t>(blockIdx.x) * (groups * Rows);
	const int64_t first = block_row + warp / Pieces * Rows;
	PLUMB_SHARED_PTR(unsigned char)
	slot = PLUMB_AS(unsigned char, staged + cols + PLUMB_STAGED_GAP) + warp * Rows * row_bytes;
	int64_t n = first + lane < a.rows ? first + lane : a.rows - 1; /* past the end the last row again, for nobody */
	const int p = part_of(a, &n);
	const struct plumb_row mine = plumb_row_of<Format>(a.part[p].w, n, cols); /* row `lane` of the warp's */
	struct plumb_vector<PLUMB_GEMV_LONG> v;
	float block[Rows] = {};

	if (Format == PLUMB_FP8_BLOCK)
		plumb_staged_blocks<Rows>(mine, k0, k1, block);
	PLUMB_NO_UNROLL
	for (int r = 0; r < Rows; r++) {
		plumb_staged_ask<Format, Steps>(mine, r, k0, k1, slot + r * row_bytes);
		if (r == Flight - 1)
			plumb_copy_commit();
	}
	plumb_copy_commit();
	plumb_grid_launch_dependents();
	plumb_grid_dependency_wait(); /* weights are nobody's output: only now is what the launch before wrote needed */
	plumb_staged_vector<loads>(a.x, cols, k0, k1, staged, v);
	PLUMB_NO_UNROLL
	for (int r = 0; r < Rows; r += Flight) {
		float sum[Flight], scale[Flight];
		PLUMB_UNROLL
		for (int i = 0; i < Flight; i++)
			scale[i] = Format == PLUMB_FP8_BLOCK ? block[i] : __shfl_sync(PLUMB_FULL_WARP, mine.factor, r + i);
		if (r == 0)
			plumb_copy_wait<1>();
		else
			plumb_copy_wait<0>();
		__syncwarp();
		if (k1 - k0 == length)
			plumb_staged_sums<Format, Flight, Steps, true>(slot + r * row_bytes, scale, v, sum);
		else
			plumb_staged_sums<Format, Flight, Steps, false>(slot + r * row_bytes, scale, v, sum);
		if (lane == 0)
			PLUMB_UNROLL
		for (int i = 0; i < Flight; i++)
			partial[warp * Rows + r + i] = sum[i];
	}
	__syncthreads();
	add_pieces(a, partial, Rows, groups, block_row);
}

/* Of a call whose parts have one format, or cannot all be wide (is_mixed). */
static bool is_wide(const struct plumb_linear *a)
{
	bool wide = plumb_gemv_vector_wide(a->x);
	for (int p = 0; p < a->parts; p++)
		wide = wide && plumb_gemv_rows_wide(&a->part[p].w, a->cols);
	return wide;
}

template <int Format, int Steps> static int launch_wide(const struct plumb_linear *a, void *stream)
{
	const int warps = a->pieces > WIDE_WARPS ? a->pieces : WIDE_WARPS, groups = warps / a->pieces;
	const size_t shared = plumb_gemv_shared(a->cols, Steps);
	int rows = WIDE_ROWS;

	while (rows > WIDE_FLIGHT && a->rows / (groups * rows) < WIDE_BLOCKS)
		rows /= 2;
	const unsigned blocks = static_cast<unsigned>((a->rows + groups * rows - 1) / (groups * rows));
	const unsigned threads = static_cast<unsigned>(32 * warps);
	if constexpr (Steps <= WIDE_SHORT)
		if (warps > WIDE_WARPS)
			return PLUMB_LAUNCH_DEPENDENT((linear_wide_kernel<Format, Steps, PLUMB_SPLIT_MAX>), blocks, threads,
				shared, stream, *a, rows);
	return PLUMB_LAUNCH_DEPENDENT(
		(linear_wide_kernel<Format, Steps, WIDE_WARPS>), blocks, threads, shared, stream, *a, rows);
}

/* X(format, pieces, steps, rows, flight, warps, blocks): what linear_staged_kernel is built for, rows of 2560 columns in one
 * piece and of 6144 in four; those of nvfp4 as measured on an H200. A block leaves room for a second one there and fits a
 * GB10. */
#define STAGED_SHAPES(X)                                                                                                   \
	X(PLUMB_FP8_ROW, 1, 10, 2, 2, 16, 2)                                                                               \
	X(PLUMB_FP8_ROW, 4, 6, 5, 5, 8, 2)                                                                                 \
	X(PLUMB_FP8_BLOCK, 1, 10, 2, 2, 16, 2)                                                                             \
	X(PLUMB_FP8_BLOCK, 4, 6, 5, 5, 8, 2)                                                                               \
	X(PLUMB_NVFP4, 1, 10, 4, 2, 14, 2)                                                                                 \
	X(PLUMB_NVFP4, 4, 6, 5, 5, 8, 2)

/* Where a part does not lie as copies need it: the wide kernel. */
static bool is_staged(const struct plumb_linear *a, int format, int pieces, int steps)
{
	bool staged = a->pieces == pieces && plumb_split_length(a->cols, pieces) == steps * PLUMB_ROW_LANES &&
	              plumb_gemv_vector_wide(a->x);
	for (int p = 0; p < a->parts; p++)
		staged = staged && a->part[p].w.format == format && plumb_staged_rows(&a->part[p].w, a->cols);
	return staged;
}

template <int Format, int Pieces, int Steps, int Rows, int Flight, int Warps, int Blocks>
static int launch_staged(const struct plumb_linear *a, void *stream)
{
	const int rows = Warps / Pieces * Rows;
	const size_t shared = sizeof(float) * plumb_staged_floats(a->cols) +
	                      static_cast<size_t>(Warps * Rows * Steps * plumb_staged<Format>::STEP);

	static_assert(Rows % Flight == 0 && Rows / Flight <= 2, "two groups of copies");
	static_assert(Format != PLUMB_FP8_BLOCK || Rows == Flight, "block scales of one group");
	static_assert(Warps % Pieces == 0 && Rows <= 32 && Steps <= PLUMB_GEMV_LONG, "pieces of a row, rows of a warp");
	return PLUMB_LAUNCH_DEPENDENT((linear_staged_kernel<Format, Pieces, Steps, Rows, Flight, Warps, Blocks>),
		static_cast<unsigned>((a->rows + rows - 1) / rows), 32 * Warps, shared, stream, *a);
}

static int launch(const struct plumb_linear *linear, void *stream)
{
	const int enough = is_wide(linear) ? plumb_gemv_steps(linear->cols, linear->pieces) : 0;
	const int steps = linear->pieces > WIDE_WARPS && enough > WIDE_SHORT ? 0 : enough;
	const int64_t rows = WARPS / linear->pieces;

#define PLUMB_CASE(format, pieces, steps, ...)                                                                             \
	if (is_staged(linear, format, pieces, steps))                                                                      \
		return launch_staged<format, pieces, steps, __VA_ARGS__>(linear, stream);
	STAGED_SHAPES(PLUMB_CASE)
#undef PLUMB_CASE
	switch (steps ? linear->part[0].w.format * 16 + steps : -1) {
#define PLUMB_CASE(format, steps)                                                                                          \
	case format * 16 + steps:                                                                                          \
		return launch_wide<format, steps>(linear, stream);
		PLUMB_GEMV_SHAPES(PLUMB_CASE)
#undef PLUMB_CASE
	default:
		return PLUMB_LAUNCH(linear_kernel, static_cast<unsigned>((linear->rows + rows - 1) / rows), 32 * WARPS, 0,
			stream, *linear);
	}
}

/* Whether some parts differ in format and each could be wide by itself. */
static bool is_mixed(const struct plumb_linear *a)
{
	bool wide = plumb_gemv_vector_wide(a->x), alike = true;
	for (int p = 0; p < a->parts; p++) {
		wide = wide && plumb_gemv_rows_wide(&a->part[p].w, a->cols);
		alike = alike && a->part[p].w.format == a->part[0].w.format;
	}
	return wide && !alike;
}

/* A launch has one format, or is slow: neighbouring parts of one format at a time. The pieces stay those of the whole call. */
extern "C" int PLUMB_LAUNCHER(linear)(const struct plumb_linear *linear, void *stream)
{
	if (!is_mixed(linear))
		return launch(linear, stream);
	for (int p = 0; p < linear->parts;) {
		struct plumb_linear run = *linear;
		run.parts = 0;
		run.rows = 0;
		do {
			run.rows += linear->part[p].rows;
			run.part[run.parts++] = linear->part[p++];
		} while (p < linear->parts && linear->part[p].w.format == run.part[0].w.format);
		const int status = launch(&run, stream);
		if (status != 0)
			return status;
	}
	return 0;
}
