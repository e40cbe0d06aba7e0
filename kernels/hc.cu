/* SPDX-License-Identifier: MIT */
/* Hyper-connection: four launches a site, hc_norm, hc_down, hc_up_mix, hc_inject.
 *
 * The norm is a launch of its own: every row of down needs the scales of all streams and every value of normed, which is
 * an output besides. In one launch each block (324 at the released size) would sum S*D squares before its first product
 * and keep S*D floats, 40 KiB, in shared memory, and more than 99 KiB would have to be refused. So normed goes through
 * L2. */
#include "kernels/hc.h"

#include "core/math32.h"
#include "kernels/row.h"

enum {
	NORM_THREADS = PLUMB_ROW_LANES, /* thread i holds accumulator i of strided(256) */
	NORM_WARPS = NORM_THREADS / 32,
	DOWN_WARPS = PLUMB_SPLIT_MAX,   /* one row of the most pieces, or several rows */
	UP_WARPS = 4,                   /* columns of a block: 640 blocks at the released size */
	UP_GROUP = 4,                   /* streams whose rows a warp has in flight together */
	UP_BLOCKS = 5,                  /* on one SM, at least: 640 blocks on 132 SMs at once */
	INJECT_THREADS = 256,
};

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

/* Add columns k0 <= k < k1 of UP_GROUP rows to their accumulators, each strided(256) as in kernels/row.h: the loads of
 * all rows are on their way before the first product, and x is read once for all. */
template <int Format>
static __device__ __forceinline__ void group_products(const struct plumb_row (&row)[UP_GROUP], const float *x,
	int64_t k0, int64_t k1, float (&acc)[UP_GROUP][PLUMB_ROW_PER_LANE])
{
	int64_t k = k0 + (threadIdx.x % 32) * PLUMB_ROW_PER_LANE;
	bool aligned = true;

PLUMB_UNROLL
	for (int i = 0; i < UP_GROUP; i++)
		aligned = aligned && plumb_row_aligned<Format>(row[i]);
PLUMB_NO_UNROLL /* R is 320: two steps, and four rows in flight are enough */
	for (; aligned && k + PLUMB_ROW_PER_LANE <= k1; k += PLUMB_ROW_LANES) {
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
					acc[i][j] = fmaf(plumb_row_value<Format>(row[i], k + j, scale[i]), x[k + j],
						acc[i][j]);
	}
}

/* A warp makes one column of mixed from the rows s*D + c of all streams; its pieces, should a small D have any, one
 * after the other. Block 0 also turns the inject logits into injection weights. */
template <int Format>
static __global__ void __launch_bounds__(32 * UP_WARPS, UP_BLOCKS) hc_up_mix_kernel(struct plumb_hc_up a)
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

/* One element a thread, in place or not. */
static __global__ void __launch_bounds__(INJECT_THREADS) hc_inject_kernel(const float *residual, const float *branch,
	const float *injection, int64_t hidden, int bf16, float *residual_out)
{
	const int64_t c = blockIdx.x * static_cast<int64_t>(INJECT_THREADS) + threadIdx.x;
	const int64_t i = blockIdx.y * hidden + c;

	if (c < hidden)
		residual_out[i] =
			plumb_rne(bf16, residual[i] + plumb_rne(bf16, branch[c] * injection[blockIdx.y]));
}

static unsigned blocks_of(int64_t count, int64_t each)
{
	return static_cast<unsigned>((count + each - 1) / each);
}

extern "C" int PLUMB_LAUNCHER(hc_norm)(const struct plumb_hc_norm *norm, void *stream)
{
	const dim3 grid(blocks_of(norm->hidden, NORM_THREADS), static_cast<unsigned>(norm->streams));
	return PLUMB_LAUNCH(hc_norm_kernel, grid, NORM_THREADS, 0, stream, *norm);
}

extern "C" int PLUMB_LAUNCHER(hc_down)(const struct plumb_hc_down *down, void *stream)
{
	const int64_t rows = down->low_rank + (down->inject.data ? down->streams : 0);
	const unsigned blocks = blocks_of(rows, DOWN_WARPS / down->pieces);
	return PLUMB_LAUNCH(hc_down_kernel, blocks, 32 * DOWN_WARPS, 0, stream, *down);
}

extern "C" int PLUMB_LAUNCHER(hc_up_mix)(const struct plumb_hc_up *up, void *stream)
{
	const unsigned blocks = blocks_of(up->hidden, UP_WARPS);
	switch (up->up.format) {
#define PLUMB_CASE(format)                                                                                             \
	case format:                                                                                                   \
		return PLUMB_LAUNCH(hc_up_mix_kernel<format>, blocks, 32 * UP_WARPS, 0, stream, *up);
		PLUMB_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default: /* refused by the host */
		return -1;
	}
}

extern "C" int PLUMB_LAUNCHER(hc_inject)(const float *residual, const float *branch, const float *injection,
	int streams, int64_t hidden, int bf16, float *residual_out, void *stream)
{
	const dim3 grid(blocks_of(hidden, INJECT_THREADS), static_cast<unsigned>(streams));
	return PLUMB_LAUNCH(hc_inject_kernel, grid, INJECT_THREADS, 0, stream, residual, branch, injection, hidden,
		bf16, residual_out);
}
