/* SPDX-License-Identifier: MIT */
/* Hyper-connection: three launches a site, hc_norm_down, hc_up_mix, hc_inject; or four, where rows cannot be loaded 8
 * columns at a time: then norm and down are two. A recorded token has two: hc_inject goes along with the next site's
 * hc_norm_down. */
#include "kernels/hc.h"

#include "core/math32.h"
#include "kernels/gemv.h"

enum {
	NORM_THREADS = PLUMB_ROW_LANES, /* thread i holds accumulator i of strided(256) */
	NORM_WARPS = NORM_THREADS / 32,
	DOWN_WARPS = PLUMB_SPLIT_MAX, /* one row of the most pieces, or several rows */
	DOWN_WIDE_ROWS = 3,           /* of a warp: 108 blocks at the released size; registers allow one on an SM */
	DOWN_WIDE_STREAMS = 16,
	UP_WARPS = 4,  /* columns of a block: 640 blocks at the released size */
	UP_GROUP = 4,  /* streams whose rows a warp has in flight together */
	UP_BLOCKS = 5, /* on one SM, at least: 640 blocks on 132 SMs at once */
	INJECT_THREADS = 256,
};

static __device__ __forceinline__ float injected(int bf16, float residual, float branch, float injection)
{
	return plumb_rne(bf16, residual + plumb_rne(bf16, branch * injection));
}

/* A block norms 256 columns of one stream. Each block sums the squares of its whole stream: 10 KiB from L2 cost less
 * than waiting for a block that has the sum. */
static __global__ void __launch_bounds__(NORM_THREADS) hc_norm_kernel(struct plumb_hc_norm a)
{
	PLUMB_SHARED(float, warp_sum, NORM_WARPS);
	const int64_t start = blockIdx.y * a.hidden; /* of the stream */
	const int64_t c = blockIdx.x * static_cast<int64_t>(NORM_THREADS) + threadIdx.x;
	const float *x = a.residual + start;
	float acc = 0.0f;

	for (int64_t k = threadIdx.x; k < a.hidden; k += NORM_THREADS)
		acc = fmaf(x[k], x[k], acc);
	const float mean = plumb_block_tree(acc, warp_sum) / static_cast<float>(a.hidden);
	const float r = plumb_rsqrtf(mean + a.eps);
	if (c < a.hidden) {
		const float w = plumb_stored_value(a.format, a.norm, start + c);
		a.normed[start + c] = plumb_rne(a.bf16, (x[c] * r) * (1.0f + w));
	}
}

/* The rows of down and, behind them, of inject. A warp takes one piece of one row; a row's pieces are in one block. */
static __global__ void __launch_bounds__(32 * DOWN_WARPS) hc_down_kernel(struct plumb_hc_down a)
{
	PLUMB_SHARED(float, partial, DOWN_WARPS);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int rows_per_block = DOWN_WARPS / a.pieces;
	const int piece = warp % a.pieces;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * rows_per_block + warp / a.pieces;
	const int64_t rows = a.low_rank + (a.inject.data ? a.streams : 0);
	const bool is_down = row < a.low_rank;
	const int64_t n = is_down ? row : row - a.low_rank;

	if (row < rows) {
		struct plumb_matrix m; /* by member: a choice between the structs would put both in local memory */
		m.data = is_down ? a.down.data : a.inject.data;
		m.scale = is_down ? a.down.scale : a.inject.scale;
		m.global = is_down ? a.down.global : a.inject.global;
		m.format = is_down ? a.down.format : a.inject.format;
		m.scale_format = is_down ? a.down.scale_format : a.inject.scale_format;
		const float sum = plumb_row_piece(m, n, a.cols, a.normed, piece, a.pieces);
		if (lane == 0)
			partial[warp] = sum;
	}
	__syncthreads();
	if (row < rows && piece == 0 && lane == 0) {
		float sum = partial[warp];
		for (int s = 1; s < a.pieces; s++)
			sum = sum + partial[warp + s];
		const float mean = plumb_rne(a.bf16, plumb_rne(a.bf16, sum) / static_cast<float>(a.streams));
		if (is_down)
			a.low[n] = plumb_rne(a.bf16, plumb_siluf(mean));
		else
			a.inject_logits[n] = mean;
	}
}

/* With an injection: pairs of columns that a thread has under way, and whether it asks for norm weights early. The compiler for
 * sm_121 needs more registers for the rest. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 1200
enum { INJECT_FLIGHT = 5, INJECT_EARLY = 0 };
#else
enum { INJECT_FLIGHT = 10, INJECT_EARLY = 1 };
#endif

/* The sum of squares of every stream, strided(256), to squares (streams, 8). A thread owns accumulators 2i and 2i + 1 of one
 * stream, i = thread % 128, so that 512 threads have four streams on their way at once. Called by all threads of a block, a
 * barrier follows; x is 16-byte aligned, hidden a multiple of 8. Inject: of the streams as hc_inject leaves them, which go to
 * staged (plumb_staged_floats(streams * hidden)). */
template <bool Inject>
static __device__ __forceinline__ void stream_squares(const float *x, const struct plumb_hc_inject_launch &inject,
	int streams, int hidden, PLUMB_SHARED_PTR(float) staged, PLUMB_SHARED_PTR(float) squares)
{
	enum { PAIRS = NORM_THREADS / 2, FLIGHT = Inject ? INJECT_FLIGHT : 10 }; /* 10: all of a stream of 2560 */
	const int thread = static_cast<int>(threadIdx.x), i = thread % PAIRS;

	for (int s = thread / PAIRS; s < streams; s += 32 * DOWN_WARPS / PAIRS) {
		const float injection = Inject ? inject.injection[s] : 0.0f;
		PLUMB_SHARED_PTR(float) to = staged + plumb_staged_index(streams * hidden, s * hidden + 2 * i);
		float even = 0.0f, odd = 0.0f;
		for (int k0 = 2 * i; k0 < hidden; k0 += FLIGHT * NORM_THREADS) {
			float2 v[FLIGHT], branch[FLIGHT];
			PLUMB_UNROLL
			for (int f = 0; f < FLIGHT; f++) {
				const int k = min(k0 + f * NORM_THREADS, hidden - 2); /* no load is conditional */
				v[f] = *PLUMB_AS(const float2, x + s * hidden + k);
				if (Inject)
					branch[f] = *PLUMB_AS(const float2, inject.branch + k);
			}
			PLUMB_UNROLL
			for (int f = 0; f < FLIGHT; f++) {
				const bool live = k0 + f * NORM_THREADS < hidden;
				if (Inject) {
					v[f].x = injected(inject.bf16, v[f].x, branch[f].x, injection);
					v[f].y = injected(inject.bf16, v[f].y, branch[f].y, injection);
				}
				if (Inject && live) /* NORM_THREADS columns on, as many halves of them on */
					*PLUMB_AS(float2, to + (k0 - 2 * i + f * NORM_THREADS) / 2) = v[f];
				even = live ? fmaf(v[f].x, v[f].x, even) : even;
				odd = live ? fmaf(v[f].y, v[f].y, odd) : odd;
			}
		}
		float sum = even + odd;
		PLUMB_UNROLL
		for (int offset = 1; offset < 16; offset *= 2)
			sum = sum + __shfl_xor_sync(PLUMB_FULL_WARP, sum, offset);
		if (thread % 16 == 0)
			squares[s * NORM_WARPS + i / 16] = sum;
	}
}

/* Norm weights k .. k + 7 as they are stored, asked for early. Only 16-bit formats at a 16-byte boundary are; the others are
 * read when they are needed. */
static __device__ __forceinline__ bool norm_early(const struct plumb_hc_norm &norm)
{
	return norm.format != PLUMB_F32 && reinterpret_cast<uintptr_t>(norm.norm) % 16 == 0;
}

static __device__ __forceinline__ void norm_weights(
	const struct plumb_hc_norm &norm, bool early, const uint4 &code, int k, float (&w)[PLUMB_COLUMNS])
{
	const uint32_t pair[4] = {code.x, code.y, code.z, code.w};

	if (!early) {
		plumb_stored_values<PLUMB_COLUMNS>(norm.format, norm.norm, k, PLUMB_COLUMNS, w);
		return;
	}
	PLUMB_UNROLL
	for (int j = 0; j < 4; j++) {
		if (norm.format == PLUMB_BF16) {
			w[2 * j] = __uint_as_float(pair[j] << 16);
			w[2 * j + 1] = __uint_as_float(pair[j] & 0xffff0000u);
		} else {
			plumb_f16_pair(pair[j], w[2 * j], w[2 * j + 1]);
		}
	}
}

/* Norm and down in one launch, wide. The scales of all streams are needed before the first product, and every block sums
 * the squares for itself: 40 KiB from L2, while its rows of down, asked for first, come from memory. A lane norms the columns
 * of its own piece; normed, an output besides, is written by all blocks, a slice each. Whatever does not depend on the scales
 * is asked for before they are known. Inject: the streams are not there yet, only what hc_inject makes them of: each block
 * makes them, in shared memory, and writes a slice for those who come later. */
template <int Format, int Steps, bool Inject>
static __global__ void __launch_bounds__(32 * DOWN_WARPS, 1)
	hc_norm_down_kernel(struct plumb_hc_inject_launch inject, struct plumb_hc_norm norm, struct plumb_hc_down a)
{
	PLUMB_SHARED(float, partial, DOWN_WARPS *DOWN_WIDE_ROWS);
	PLUMB_SHARED(float, squares, DOWN_WIDE_STREAMS *NORM_WARPS);
	PLUMB_SHARED(float, scale, DOWN_WIDE_STREAMS);
	PLUMB_DYNAMIC_SHARED(float, staged); /* Inject: the streams (streams * D) */
	const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, shift = __ffs(a.pieces) - 1;
	const int cols = static_cast<int>(a.cols), hidden = static_cast<int>(norm.hidden);
	const int piece = warp & (a.pieces - 1), groups = DOWN_WARPS >> shift, length = plumb_gemv_piece(cols, shift);
	const int k0 = piece * length, k1 = min(k0 + length, cols), first_column = plumb_first_column(k0);
	const int low_rank = static_cast<int>(a.low_rank), rows = low_rank + (a.inject.data ? a.streams : 0);
	const int block_row = static_cast<int>(blockIdx.x) * groups * DOWN_WIDE_ROWS;
	const int first = block_row + (warp >> shift) * DOWN_WIDE_ROWS;
	const bool early = (!Inject || INJECT_EARLY) && norm_early(norm);
	struct plumb_row row[DOWN_WIDE_ROWS];
	struct plumb_lane_row<Format, Steps> stored[DOWN_WIDE_ROWS];
	struct plumb_vector<PLUMB_GEMV_LONG> raw;
	struct plumb_vector<Steps> v;
	uint4 code[Steps];
	int stream[Steps];
	float sum[DOWN_WIDE_ROWS], x_out = 0.0f, w_out = 0.0f;
	const int first_out = static_cast<int>(blockIdx.x * blockDim.x) + thread;

	plumb_grid_launch_dependents();
	PLUMB_UNROLL
	for (int r = 0; r < DOWN_WIDE_ROWS; r++) { /* past the end the last row again, for nobody */
		const int n = min(first + r, rows - 1);
		row[r] = n < low_rank ? plumb_row_of<Format>(a.down, n, cols)
		                      : plumb_row_of<Format>(a.inject, n - low_rank, cols);
	}
	plumb_rows_fetch<Format, Steps, DOWN_WIDE_ROWS, false>(row, k0, k1, stored);
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const int k = first_column + s * PLUMB_ROW_LANES;
		stream[s] = min(k, cols - 1) / hidden;
		code[s] = make_uint4(0, 0, 0, 0);
		if (early && k < k1)
			code[s] = *PLUMB_AS(const uint4, static_cast<const uint16_t *>(norm.norm) + k);
	}
	if (first_out < cols)
		w_out = plumb_stored_value(norm.format, norm.norm, first_out);
	plumb_grid_dependency_wait();

	if (!Inject)
		plumb_registers_take(norm.residual, k0, k1, v);
	if (!Inject && first_out < cols)
		x_out = norm.residual[first_out];
	stream_squares<Inject>(Inject ? inject.residual : norm.residual, inject, norm.streams, hidden, staged, squares);
	__syncthreads();
	if (Inject)
		plumb_staged_view(staged, cols, k0, k1, raw);
	if (thread < norm.streams) {
		const float mean = plumb_warps_tree(squares + thread * NORM_WARPS) / static_cast<float>(hidden);
		scale[thread] = plumb_rsqrtf(mean + norm.eps);
	}
	__syncthreads();
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const int k = first_column + s * PLUMB_ROW_LANES;
		float w[PLUMB_COLUMNS];
		if (Inject)
			plumb_vector_step<false>(raw, s, v.x[s]);
		if (k >= k1)
			continue; /* -0 */
		const float r = scale[stream[s]];
		norm_weights(norm, early, code[s], k, w);
		PLUMB_UNROLL
		for (int j = 0; j < PLUMB_COLUMNS; j++)
			v.x[s][j] = plumb_rne(a.bf16, (v.x[s][j] * r) * (1.0f + w[j]));
	}
	plumb_rows_sums<Format, Steps, DOWN_WIDE_ROWS, false>(stored, v, sum);
	if (thread % 32 == 0) {
		PLUMB_UNROLL
		for (int r = 0; r < DOWN_WIDE_ROWS; r++)
			partial[warp * DOWN_WIDE_ROWS + r] = sum[r];
	}
	for (int out = first_out; out < cols; out += static_cast<int>(gridDim.x * blockDim.x)) {
		const float w = out == first_out ? w_out : plumb_stored_value(norm.format, norm.norm, out);
		const float x = Inject             ? staged[plumb_staged_index(cols, out)]
		                : out == first_out ? x_out
		                                   : norm.residual[out];
		if (Inject)
			inject.residual_out[out] = x;
		norm.normed[out] = plumb_rne(a.bf16, (x * scale[out / hidden]) * (1.0f + w));
	}
	__syncthreads();
	const int n = block_row + thread;
	if (thread >= groups * DOWN_WIDE_ROWS || n >= rows)
		return;
	const int at = (thread / DOWN_WIDE_ROWS << shift) * DOWN_WIDE_ROWS + thread % DOWN_WIDE_ROWS;
	float total = partial[at];
	for (int s = 1; s < a.pieces; s++)
		total = total + partial[at + s * DOWN_WIDE_ROWS];
	const float mean = plumb_rne(a.bf16, plumb_rne(a.bf16, total) / static_cast<float>(a.streams));
	if (n < low_rank)
		a.low[n] = plumb_rne(a.bf16, plumb_siluf(mean));
	else
		a.inject_logits[n - low_rank] = mean;
}

/* Add columns k0 <= k < k1 of UP_GROUP rows to their accumulators, each strided(256) as in kernels/row.h: the loads of
 * all rows are on their way before the first product, and x is read once for all. */
template <int Format>
static __device__ __forceinline__ void group_products(const struct plumb_row (&row)[UP_GROUP], const float *x, int64_t k0,
	int64_t k1, float (&acc)[UP_GROUP][PLUMB_ROW_PER_LANE])
{
	int64_t k = k0 + (threadIdx.x % 32) * PLUMB_ROW_PER_LANE;
	bool aligned = true;

	PLUMB_UNROLL
	for (int i = 0; i < UP_GROUP; i++)
		aligned = aligned && plumb_row_aligned<Format>(row[i]);
	PLUMB_NO_UNROLL /* R is 320: two steps, and four rows in flight are enough */
		for (; aligned && k + PLUMB_ROW_PER_LANE <= k1; k += PLUMB_ROW_LANES)
	{
		float w[UP_GROUP][PLUMB_ROW_PER_LANE];
		PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++)
			plumb_row_load8<Format>(row[i], k, w[i]);
		PLUMB_UNROLL
		for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
			PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++)
			acc[i][j] = fmaf(w[i][j], x[k + j], acc[i][j]);
	}
	PLUMB_NO_UNROLL
	for (; k < k1; k += PLUMB_ROW_LANES) { /* what is left, or all: the same columns in the same order */
		float scale[UP_GROUP];
		PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++)
			scale[i] = plumb_row_scale<Format>(row[i], k);
		PLUMB_UNROLL
		for (int j = 0; j < PLUMB_ROW_PER_LANE; j++)
			PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++)
			if (k + j < k1)
				acc[i][j] = fmaf(plumb_row_value<Format>(row[i], k + j, scale[i]), x[k + j], acc[i][j]);
	}
}

/* A warp makes one column of mixed from the rows s*D + c of all streams; its pieces, should a small D have any, one
 * after the other. Block 0 also turns the inject logits into injection weights. */
template <int Format>
static __global__ void __launch_bounds__(32 * UP_WARPS, UP_BLOCKS - 1) hc_up_mix_kernel(struct plumb_hc_up a)
{
	const int lane = threadIdx.x % 32;
	const int64_t c = blockIdx.x * static_cast<int64_t>(UP_WARPS) + threadIdx.x / 32;
	const int64_t length = plumb_split_length(a.low_rank, a.pieces);
	float total = 0.0f; /* over the streams */

	if (blockIdx.x == 0 && a.inject_logits)
		for (int s = threadIdx.x; s < a.streams; s += 32 * UP_WARPS)
			a.injection[s] = 2.0f * plumb_rne(a.bf16, plumb_sigmoidf(a.inject_logits[s]));
	if (c >= a.hidden) /* the whole warp */
		return;
	for (int s0 = 0; s0 < a.streams; s0 += UP_GROUP) {
		const bool mine = lane < UP_GROUP && s0 + lane < a.streams; /* lane i finishes stream s0 + i */
		const float n = mine ? a.normed[(s0 + lane) * a.hidden + c] : 0.0f;
		struct plumb_row row[UP_GROUP];
		float sum = 0.0f;

		PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++) { /* behind the last stream: the last again, unused */
			const int s = min(s0 + i, a.streams - 1);
			row[i] = plumb_row_of<Format>(a.up, s * a.hidden + c, a.low_rank);
		}
		for (int piece = 0; piece < a.pieces; piece++) {
			const int64_t k0 = piece * length, end = k0 + length;
			float acc[UP_GROUP][PLUMB_ROW_PER_LANE] = {};
			float part = 0.0f;

			group_products<Format>(row, a.low, k0, end < a.low_rank ? end : a.low_rank, acc);
			PLUMB_UNROLL
			for (int i = 0; i < UP_GROUP; i++) {
				const float row_sum = plumb_warp_tree<PLUMB_ROW_PER_LANE>(acc[i]);
				part = lane == i ? row_sum : part;
			}
			sum = piece == 0 ? part : sum + part;
		}
		const float g = plumb_rne(a.bf16, plumb_sigmoidf(plumb_rne(a.bf16, sum)));
		const float p = plumb_rne(a.bf16, g * n);
		PLUMB_UNROLL
		for (int i = 0; i < UP_GROUP; i++) {
			const float of_stream = __shfl_sync(PLUMB_FULL_WARP, p, i);
			if (s0 + i < a.streams)
				total = total + of_stream;
		}
	}
	if (lane == 0)
		a.mixed[c] = plumb_rne(a.bf16, total / static_cast<float>(a.streams));
}

/* The same for a low rank of up to 512 columns in one piece, wide: the low vector stays in registers. Streams are at most
 * UP_GROUP. */
template <int Format>
static __global__ void __launch_bounds__(32 * UP_WARPS, UP_BLOCKS) hc_up_mix_wide_kernel(struct plumb_hc_up a)
{
	enum { STEPS = 2 };
	const int lane = static_cast<int>(threadIdx.x % 32), cols = static_cast<int>(a.low_rank);
	const int hidden = static_cast<int>(a.hidden), streams = a.streams;
	const int c = static_cast<int>(blockIdx.x) * UP_WARPS + static_cast<int>(threadIdx.x / 32);
	const bool mine = lane < streams; /* lane s finishes stream s */
	struct plumb_row row[UP_GROUP];
	struct plumb_lane_row<Format, STEPS> stored[UP_GROUP];
	struct plumb_vector<STEPS> v = {
	};
	float sum[UP_GROUP], total = 0.0f, part = 0.0f;

	plumb_grid_launch_dependents();
	PLUMB_UNROLL
	for (int i = 0; i < UP_GROUP; i++) /* behind the last stream or column: the last again, unused */
		row[i] = plumb_row_of<Format>(a.up, min(i, streams - 1) * hidden + min(c, hidden - 1), cols);
	plumb_rows_fetch<Format, STEPS, UP_GROUP, false>(row, 0, cols, stored);
	plumb_grid_dependency_wait();
	if (blockIdx.x == 0 && a.inject_logits && static_cast<int>(threadIdx.x) < streams)
		a.injection[threadIdx.x] = 2.0f * plumb_rne(a.bf16, plumb_sigmoidf(a.inject_logits[threadIdx.x]));
	if (c >= hidden) /* the whole warp; no barrier follows */
		return;
	const float n = mine ? a.normed[lane * hidden + c] : 0.0f;
	plumb_registers_take<STEPS>(a.low, 0, cols, v);
	plumb_rows_sums<Format, STEPS, UP_GROUP, false>(stored, v, sum);
	PLUMB_UNROLL
	for (int i = 0; i < UP_GROUP; i++)
		part = lane == i ? sum[i] : part;
	const float g = plumb_rne(a.bf16, plumb_sigmoidf(plumb_rne(a.bf16, part)));
	const float p = plumb_rne(a.bf16, g * n);
	PLUMB_UNROLL
	for (int i = 0; i < UP_GROUP; i++) {
		const float of_stream = __shfl_sync(PLUMB_FULL_WARP, p, i);
		if (i < streams)
			total = total + of_stream;
	}
	if (lane == 0)
		a.mixed[c] = plumb_rne(a.bf16, total / static_cast<float>(streams));
}

/* One element a thread, in place or not. */
static __global__ void __launch_bounds__(INJECT_THREADS) hc_inject_kernel(struct plumb_hc_inject_launch a)
{
	const int64_t c = blockIdx.x * static_cast<int64_t>(INJECT_THREADS) + threadIdx.x;
	const int64_t i = blockIdx.y * a.hidden + c;

	if (c < a.hidden)
		a.residual_out[i] = injected(a.bf16, a.residual[i], a.branch[c], a.injection[blockIdx.y]);
}

static unsigned blocks_of(int64_t count, int64_t each)
{
	return static_cast<unsigned>((count + each - 1) / each);
}

static int launch_norm(const struct plumb_hc_norm *norm, void *stream)
{
	const dim3 grid(blocks_of(norm->hidden, NORM_THREADS), static_cast<unsigned>(norm->streams));
	return PLUMB_LAUNCH(hc_norm_kernel, grid, NORM_THREADS, 0, stream, *norm);
}

static int launch_down(const struct plumb_hc_down *down, void *stream)
{
	const int64_t rows = down->low_rank + (down->inject.data ? down->streams : 0);
	const unsigned blocks = blocks_of(rows, DOWN_WARPS / down->pieces);
	return PLUMB_LAUNCH(hc_down_kernel, blocks, 32 * DOWN_WARPS, 0, stream, *down);
}

static int launch_inject(const struct plumb_hc_inject_launch *a, void *stream)
{
	const dim3 grid(blocks_of(a->hidden, INJECT_THREADS), static_cast<unsigned>(a->streams));
	return PLUMB_LAUNCH(hc_inject_kernel, grid, INJECT_THREADS, 0, stream, *a);
}

/* Every block of the fused launch reads the old streams while others write the new ones. */
static bool inject_is_wide(const struct plumb_hc_inject_launch *inject)
{
	return plumb_gemv_vector_wide(inject->residual) && plumb_gemv_vector_wide(inject->branch) &&
	       inject->residual != inject->residual_out;
}

static bool norm_down_is_wide(const struct plumb_hc_norm *norm, const struct plumb_hc_down *down)
{
	const int steps = plumb_gemv_steps(down->cols, down->pieces);
	return (steps == 1 || steps == 3) && norm->streams <= DOWN_WIDE_STREAMS && norm->hidden % 8 == 0 &&
	       plumb_gemv_rows_wide(&down->down, down->cols) && plumb_gemv_vector_wide(norm->residual) &&
	       (!down->inject.data ||
		       (down->inject.format == down->down.format && plumb_gemv_rows_wide(&down->inject, down->cols)));
}

template <bool Inject>
static int launch_norm_down(const struct plumb_hc_inject_launch *inject, const struct plumb_hc_norm *norm,
	const struct plumb_hc_down *down, void *stream)
{
	const int64_t rows = down->low_rank + (down->inject.data ? down->streams : 0);
	const unsigned blocks = blocks_of(rows, DOWN_WARPS / down->pieces * DOWN_WIDE_ROWS);
	const bool wide = norm_down_is_wide(norm, down) && (!Inject || inject_is_wide(inject));
	const int steps = wide ? plumb_gemv_steps(down->cols, down->pieces) : 0;
	const size_t shared = Inject ? plumb_staged_floats(down->cols) * sizeof(float) : 0;
	int status;

	switch (steps ? down->down.format * 16 + steps : -1) {
#define PLUMB_CASE(format)                                                                                                 \
	case format * 16 + 1:                                                                                              \
		return PLUMB_LAUNCH_DEPENDENT((hc_norm_down_kernel<format, 1, Inject>), blocks, 32 * DOWN_WARPS, shared,   \
			stream, *inject, *norm, *down);                                                                    \
	case format * 16 + 3:                                                                                              \
		return PLUMB_LAUNCH_DEPENDENT((hc_norm_down_kernel<format, 3, Inject>), blocks, 32 * DOWN_WARPS, shared,   \
			stream, *inject, *norm, *down);
		PLUMB_GEMV_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default:
		status = Inject ? launch_inject(inject, stream) : 0;
		if (Inject && status == 0)
			return launch_norm_down<false>(inject, norm, down, stream);
		status = status ? status : launch_norm(norm, stream);
		return status ? status : launch_down(down, stream);
	}
}

extern "C" int PLUMB_LAUNCHER(hc_norm_down)(
	const struct plumb_hc_norm *norm, const struct plumb_hc_down *down, void *stream)
{
	const struct plumb_hc_inject_launch none = {};
	return launch_norm_down<false>(&none, norm, down, stream);
}

extern "C" int PLUMB_LAUNCHER(hc_inject_norm_down)(const struct plumb_hc_inject_launch *inject,
	const struct plumb_hc_norm *norm, const struct plumb_hc_down *down, void *stream)
{
	return launch_norm_down<true>(inject, norm, down, stream);
}

extern "C" int PLUMB_LAUNCHER(hc_up_mix)(const struct plumb_hc_up *up, void *stream)
{
	const unsigned blocks = blocks_of(up->hidden, UP_WARPS);
	const bool wide = up->pieces == 1 && up->low_rank <= 2 * PLUMB_ROW_LANES && up->streams <= UP_GROUP &&
	                  up->hidden <= PLUMB_GEMV_HIDDEN && plumb_gemv_rows_wide(&up->up, up->low_rank) &&
	                  plumb_gemv_vector_wide(up->low);

	switch (wide ? up->up.format : -1) {
#define PLUMB_CASE(format)                                                                                                 \
	case format:                                                                                                       \
		return PLUMB_LAUNCH_DEPENDENT(hc_up_mix_wide_kernel<format>, blocks, 32 * UP_WARPS, 0, stream, *up);
		PLUMB_GEMV_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default:
		break;
	}
	switch (up->up.format) {
#define PLUMB_CASE(format)                                                                                                 \
	case format:                                                                                                       \
		return PLUMB_LAUNCH(hc_up_mix_kernel<format>, blocks, 32 * UP_WARPS, 0, stream, *up);
		PLUMB_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default: /* refused by the host */
		return -1;
	}
}

extern "C" int PLUMB_LAUNCHER(hc_inject)(const struct plumb_hc_inject_launch *a, void *stream)
{
	return launch_inject(a, stream);
}
