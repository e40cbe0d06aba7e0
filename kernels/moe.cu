/* SPDX-License-Identifier: MIT */
/* Mixture of experts: core/ops/moe.h.
 *
 * Router: one launch. A warp takes one piece of one row of logits; the block that arrives last, told by an integer
 * counter, does the softmax and sorts the probabilities: 2560 x 513 weights are read in a few microseconds, a second
 * launch would add as much again.
 *
 * gate_up: a warp takes one piece of a gate row and of the matching up row and so can write their product; the rows of
 * the shared expert are further units of the same launch.
 *
 * down: a block takes two outputs, its warps the slots (the shared expert is the last), so that all products of an
 * output meet in one thread, which adds them in slot order; the partial sums never leave the chip. */
#include "kernels/moe.h"

#include "core/math32.h"
#include "kernels/row.h"

enum {
	ROUTER_WARPS = PLUMB_SPLIT_MAX, /* one row of the most pieces, or several; ranks 512 experts in one go */
	ROUTER_THREADS = 32 * ROUTER_WARPS,
	GATE_UP_WARPS = 8, /* more when one row has more pieces: small blocks, so that registers allow several an SM */
	DOWN_WARPS = 12,   /* at most: 10 experts and the shared one take 11 */
	DOWN_ROWS = 2,     /* outputs of a block: 1280 blocks at full size; 4 need registers for one block an SM */
	PER_LANE = PLUMB_ROW_PER_LANE,
};

/* Columns k0 <= k < k1 of each row times x. wide: the rows, and x, can be loaded 8 columns at a time. */
template <int Format, int Rows>
static __device__ __forceinline__ void rows_products(const struct plumb_row (&row)[Rows], bool wide, const float *x,
	int64_t k0, int64_t k1, float (&acc)[Rows][PER_LANE])
{
	int64_t k = k0 + threadIdx.x % 32 * PER_LANE;

	for (; wide && k + PER_LANE <= k1; k += PLUMB_ROW_LANES) {
		float w[Rows][PER_LANE];
PLUMB_UNROLL
		for (int r = 0; r < Rows; r++)
			plumb_row_load8<Format>(row[r], k, w[r]);
		const float4 lo = *PLUMB_AS(const float4, x + k), hi = *PLUMB_AS(const float4, x + k + 4);
		const float v[PER_LANE] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
PLUMB_UNROLL
		for (int r = 0; r < Rows; r++)
PLUMB_UNROLL
			for (int j = 0; j < PER_LANE; j++)
				acc[r][j] = fmaf(w[r][j], v[j], acc[r][j]);
	}
PLUMB_NO_UNROLL
	for (; k < k1; k += PLUMB_ROW_LANES) /* what is left, or all: the same columns in the same order */
PLUMB_UNROLL
		for (int r = 0; r < Rows; r++) {
			const float scale = plumb_row_scale<Format>(row[r], k);
PLUMB_UNROLL
			for (int j = 0; j < PER_LANE; j++)
				if (k + j < k1)
					acc[r][j] = fmaf(
						plumb_row_value<Format>(row[r], k + j, scale), x[k + j], acc[r][j]);
		}
}

template <int Format, int Rows>
static __device__ __forceinline__ void rows_piece_of(const struct plumb_matrix (&m)[Rows], const int64_t (&n)[Rows],
	int64_t cols, const float *x, int64_t k0, int64_t k1, float (&acc)[Rows][PER_LANE])
{
	struct plumb_row row[Rows];
	bool wide = reinterpret_cast<uintptr_t>(x) % 16 == 0;

PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) {
		row[r] = plumb_row_of<Format>(m[r], n[r], cols);
		wide = wide && plumb_row_aligned<Format>(row[r]);
	}
	rows_products<Format, Rows>(row, wide, x, k0, k1, acc);
}

/* One piece of split(pieces, 256) of a row n[r] of each matrix, all of one format, times x, by one warp; all lanes get
 * the sums. */
template <int Rows>
static __device__ __forceinline__ void rows_piece(const struct plumb_matrix (&m)[Rows], const int64_t (&n)[Rows],
	int64_t cols, const float *x, int piece, int pieces, float (&sum)[Rows])
{
	const int64_t length = plumb_split_length(cols, pieces);
	const int64_t k0 = piece * length, k1 = k0 + length < cols ? k0 + length : cols;
	float acc[Rows][PER_LANE] = {};

	switch (m[0].format) {
#define PLUMB_CASE(format)                                                                                             \
	case format:                                                                                                   \
		rows_piece_of<format, Rows>(m, n, cols, x, k0, k1, acc);                                               \
		break;
		PLUMB_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default: /* refused by the host */
		break;
	}
PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = plumb_warp_tree<PER_LANE>(acc[r]);
}

/* --- router --- */

static __device__ __forceinline__ float block_max(float v, PLUMB_SHARED_PTR(float) part)
{
	v = plumb_warp_larger(v);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = v;
	__syncthreads();
	for (int w = 0; w < ROUTER_WARPS; w++)
		v = plumb_larger(v, part[w]);
	return v;
}

/* strided(256) sum of exp(logit - max): thread j of the first 256 is accumulator j. */
static __device__ __forceinline__ float block_exp_sum(
	const float *logits, int n, float max, PLUMB_SHARED_PTR(float) part)
{
	if (threadIdx.x < PLUMB_ROW_LANES) {
		float sum = 0.0f;
		for (int e = threadIdx.x; e < n; e += PLUMB_ROW_LANES)
			sum = sum + plumb_expf(__ldcg(logits + e) - max);
		sum = plumb_warp_sum(sum);
		if (threadIdx.x % 32 == 0)
			part[threadIdx.x / 32] = sum;
	}
	__syncthreads();
	return plumb_warps_tree(part);
}

/* Rank of expert e: the larger the better. A probability is +0..1 or NaN, so its bits are in its order; adding 1 leaves
 * 0 for NaN. Of equal ones the lower index has the larger complement. No expert has rank 0. */
static __device__ __forceinline__ unsigned long long rank_of(float prob, int e)
{
	const unsigned value = prob == prob ? __float_as_uint(prob) + 1u : 0u;
	return static_cast<unsigned long long>(value) << 32 | ~static_cast<unsigned>(e);
}

static __device__ __forceinline__ float rank_prob(unsigned long long rank)
{
	const unsigned value = static_cast<unsigned>(rank >> 32);
	return value ? __uint_as_float(value - 1u) : plumb_nanf();
}

/* Bitonic sort, best first; size is a power of two. Ranks is a pointer: shared or global. A warp's 32 pairs cover the
 * same 64 ranks at every distance up to 32, so only longer ones, and the first stage behind one, wait for all. */
template <typename Ranks> static __device__ __forceinline__ void sort_ranks(Ranks rank, int size)
{
	__syncthreads();
	for (int width = 2; width <= size; width *= 2)
		for (int apart = width / 2; apart > 0; apart /= 2) {
			if (apart >= 32)
				__syncthreads();
			else
				__syncwarp();
			for (int pair = threadIdx.x; pair < size / 2; pair += ROUTER_THREADS) {
				const int i = 2 * pair - (pair & (apart - 1));
				const unsigned long long a = rank[i], b = rank[i + apart];
				if ((a < b) == ((i & width) == 0)) {
					rank[i] = b;
					rank[i + apart] = a;
				}
			}
		}
	__syncthreads();
}

/* Smallest power of two >= n. */
static __host__ __device__ __forceinline__ int power_of_two(int n)
{
	int p = 1;
	while (p < n)
		p *= 2;
	return p;
}

template <typename Ranks>
static __device__ __forceinline__ void choose(
	const struct plumb_moe_router_launch &a, Ranks rank, PLUMB_SHARED_PTR(float) part)
{
	const int size = power_of_two(a.experts);
	float max = -INFINITY;

	for (int e = threadIdx.x; e < a.experts; e += ROUTER_THREADS)
		max = plumb_larger(max, __ldcg(a.logits + e));
	max = block_max(max, part);
	const float sum = block_exp_sum(a.logits, a.experts, max, part + ROUTER_WARPS);
	for (int e = threadIdx.x; e < a.experts; e += ROUTER_THREADS)
		rank[e] = rank_of(plumb_divf(plumb_expf(__ldcg(a.logits + e) - max), sum), e);
	for (int e = a.experts + threadIdx.x; e < size; e += ROUTER_THREADS)
		rank[e] = 0;
	sort_ranks(rank, size);
	if (threadIdx.x == 0) {
		float chosen = 0.0f;
		for (int k = 0; k < a.chosen; k++)
			chosen = chosen + rank_prob(rank[k]);
		part[0] = chosen;
	}
	__syncthreads();
	for (int k = threadIdx.x; k < a.chosen; k += ROUTER_THREADS) {
		const float prob = rank_prob(rank[k]);
		a.expert[k] = static_cast<int32_t>(~static_cast<unsigned>(rank[k]));
		a.weight[k] = plumb_rne(a.bf16, a.norm_topk ? plumb_divf(prob, part[0]) : prob);
	}
}

static __global__ void __launch_bounds__(ROUTER_THREADS, 1) moe_router_kernel(struct plumb_moe_router_launch a)
{
	PLUMB_SHARED(float, part, 2 * ROUTER_WARPS);
	PLUMB_SHARED(int, last, 1);
	PLUMB_DYNAMIC_SHARED(unsigned long long, rank);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int piece = warp % a.pieces;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * (ROUTER_WARPS / a.pieces) + warp / a.pieces;
	const bool live = row <= a.experts;

	if (live) {
		const struct plumb_matrix m[1] = {row < a.experts ? a.gate : a.shared_gate};
		const int64_t n[1] = {row < a.experts ? row : 0};
		float sum[1];
		rows_piece<1>(m, n, a.cols, a.x, piece, a.pieces, sum);
		if (lane == 0)
			part[warp] = sum[0];
	}
	__syncthreads();
	if (live && piece == 0 && lane == 0) {
		float sum = part[warp];
		for (int s = 1; s < a.pieces; s++)
			sum = sum + part[warp + s];
		sum = plumb_rne(a.bf16, sum);
		if (row < a.experts)
			a.logits[row] = sum;
		else
			*a.shared_weight = plumb_rne(a.bf16, plumb_sigmoidf(sum));
	}
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence(); /* covers the block's stores: the barrier came between */
		last[0] = atomicInc(a.arrived, gridDim.x - 1) == gridDim.x - 1; /* the last arrival leaves zero */
	}
	__syncthreads();
	if (!last[0])
		return;
	__threadfence();
	if (a.rank)
		choose(a, reinterpret_cast<unsigned long long *>(a.rank), part);
	else
		choose(a, rank, part);
}

extern "C" int PLUMB_LAUNCHER(moe_router)(const struct plumb_moe_router_launch *launch, void *stream)
{
	const int64_t rows_per_block = ROUTER_WARPS / launch->pieces;
	const int64_t blocks = (launch->experts + rows_per_block) / rows_per_block; /* E + 1 rows, rounded up */
	const size_t shared = launch->rank ? 0 : sizeof(uint64_t) * static_cast<size_t>(power_of_two(launch->experts));
	return PLUMB_LAUNCH(moe_router_kernel, static_cast<unsigned>(blocks), ROUTER_THREADS, shared, stream, *launch);
}

/* --- gate and up --- */

static __device__ __forceinline__ bool in_range(int32_t expert, int32_t experts)
{
	return expert >= 0 && expert < experts;
}

/* Alike: gate and up have one format, in the routed experts and in the shared one. Then a warp has both rows in flight
 * together; else, which is rare, it takes one after the other. */
template <bool Alike>
static __device__ __forceinline__ void gate_and_up(const struct plumb_matrix (&m)[2], int64_t n,
	const struct plumb_moe_gate_up_launch &a, int piece, float (&sum)[2])
{
	if (Alike) {
		const int64_t row[2] = {n, n};
		rows_piece<2>(m, row, a.cols, a.x, piece, a.pieces, sum);
		return;
	}
	sum[0] = plumb_row_piece(m[0], n, a.cols, a.x, piece, a.pieces);
	sum[1] = plumb_row_piece(m[1], n, a.cols, a.x, piece, a.pieces);
}

template <bool Alike>
static __global__ void __launch_bounds__(32 * PLUMB_SPLIT_MAX, 1) moe_gate_up_kernel(struct plumb_moe_gate_up_launch a)
{
	PLUMB_SHARED(float, gate_part, PLUMB_SPLIT_MAX);
	PLUMB_SHARED(float, up_part, PLUMB_SPLIT_MAX);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int piece = warp % a.pieces;
	const int units_per_block = static_cast<int>(blockDim.x) / 32 / a.pieces;
	const int64_t routed_units = a.chosen * a.inner;
	const int64_t unit = static_cast<int64_t>(blockIdx.x) * units_per_block + warp / a.pieces;
	const bool live = unit < routed_units + a.shared_inner, shared = unit >= routed_units;
	const int64_t n = shared ? unit - routed_units : unit % a.inner;
	const int32_t e = live && !shared ? a.expert[unit / a.inner] : 0;
	const bool known = live && (shared || in_range(e, a.experts));

	if (known) {
		const struct plumb_matrix m[2] = {
			shared ? a.shared_gate : plumb_bank_matrix(a.gate, e),
			shared ? a.shared_up : plumb_bank_matrix(a.up, e),
		};
		float sum[2];
		gate_and_up<Alike>(m, n, a, piece, sum);
		if (lane == 0) {
			gate_part[warp] = sum[0];
			up_part[warp] = sum[1];
		}
	}
	__syncthreads();
	if (live && piece == 0 && lane == 0) {
		float *const out = shared ? a.shared_hidden + n : a.hidden + unit;
		if (!known) {
			*out = plumb_nanf();
			return;
		}
		float gate = gate_part[warp], up = up_part[warp];
		for (int s = 1; s < a.pieces; s++) {
			gate = gate + gate_part[warp + s];
			up = up + up_part[warp + s];
		}
		const float gated = plumb_rne(a.bf16, plumb_siluf(plumb_rne(a.bf16, gate)));
		*out = plumb_rne(a.bf16, gated * plumb_rne(a.bf16, up));
	}
}

extern "C" int PLUMB_LAUNCHER(moe_gate_up)(const struct plumb_moe_gate_up_launch *launch, void *stream)
{
	const int warps = launch->pieces > GATE_UP_WARPS ? launch->pieces : GATE_UP_WARPS;
	const int64_t units = launch->chosen * launch->inner + launch->shared_inner;
	const int64_t units_per_block = warps / launch->pieces;
	const int64_t blocks = (units + units_per_block - 1) / units_per_block;
	const bool alike = launch->gate.format == launch->up.format &&
			   launch->shared_gate.format == launch->shared_up.format;
	return PLUMB_LAUNCH(alike ? moe_gate_up_kernel<true> : moe_gate_up_kernel<false>,
		static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps), 0, stream, *launch);
}

/* --- down and combine --- */

/* Part i of the outputs first .. first + DOWN_ROWS - 1: slot after slot piece after piece, the shared expert last. */
static __device__ __forceinline__ void down_part(
	const struct plumb_moe_down_launch &a, int64_t i, int64_t first, float (&sum)[DOWN_ROWS])
{
	const int64_t slot = i / a.pieces;
	const bool shared = slot >= a.chosen;
	const int32_t e = shared ? 0 : a.expert[slot];
	struct plumb_matrix m[DOWN_ROWS];
	int64_t row[DOWN_ROWS];

	if (!shared && !in_range(e, a.experts)) {
PLUMB_UNROLL
		for (int r = 0; r < DOWN_ROWS; r++)
			sum[r] = plumb_nanf();
		return;
	}
	const struct plumb_matrix down = shared ? a.shared_down : plumb_bank_matrix(a.down, e);
	const int64_t cols = shared ? a.shared_inner : a.inner;
PLUMB_UNROLL
	for (int r = 0; r < DOWN_ROWS; r++) { /* past the end the last row again, for nobody */
		m[r] = down;
		row[r] = first + r < a.rows ? first + r : a.rows - 1;
	}
	rows_piece<DOWN_ROWS>(m, row, cols, shared ? a.shared_hidden : a.hidden + slot * cols,
		static_cast<int>(shared ? i - static_cast<int64_t>(a.chosen) * a.pieces : i % a.pieces),
		shared ? a.shared_pieces : a.pieces, sum);
}

static __global__ void __launch_bounds__(32 * DOWN_WARPS) moe_down_kernel(struct plumb_moe_down_launch a)
{
	PLUMB_SHARED(float, partial, DOWN_WARPS * DOWN_ROWS);
	const int warps = static_cast<int>(blockDim.x) / 32, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int64_t first = static_cast<int64_t>(blockIdx.x) * DOWN_ROWS;
	const int64_t routed_parts = static_cast<int64_t>(a.chosen) * a.pieces, parts = routed_parts + a.shared_pieces;
	float sum = 0.0f, routed = 0.0f, shared = 0.0f; /* of the output of each of the first DOWN_ROWS threads */

	for (int64_t base = 0; base < parts; base += warps) {
		if (base + warp < parts) {
			float part[DOWN_ROWS];
			down_part(a, base + warp, first, part);
			if (lane == 0)
PLUMB_UNROLL
				for (int r = 0; r < DOWN_ROWS; r++)
					partial[warp * DOWN_ROWS + r] = part[r];
		}
		__syncthreads();
		for (int w = 0; threadIdx.x < DOWN_ROWS && w < warps && base + w < parts; w++) {
			const int64_t i = base + w, of_shared = i - routed_parts;
			const int64_t piece = of_shared >= 0 ? of_shared : i % a.pieces;
			const float part = partial[w * DOWN_ROWS + threadIdx.x];
			sum = piece == 0 ? part : sum + part;
			if (of_shared >= 0)
				shared = plumb_rne(a.bf16, sum); /* the last piece's stays */
			else if (piece == a.pieces - 1)
				routed = routed + plumb_rne(a.bf16, plumb_rne(a.bf16, sum) * a.weight[i / a.pieces]);
		}
		__syncthreads();
	}
	if (threadIdx.x < DOWN_ROWS && first + threadIdx.x < a.rows) {
		const int64_t n = first + threadIdx.x;
		routed = plumb_rne(a.bf16, routed);
		a.y[n] = plumb_rne(a.bf16, routed + plumb_rne(a.bf16, *a.shared_weight * shared));
		if (a.routed)
			a.routed[n] = routed;
		if (a.shared)
			a.shared[n] = shared;
	}
}

extern "C" int PLUMB_LAUNCHER(moe_down)(const struct plumb_moe_down_launch *launch, void *stream)
{
	const int64_t blocks = (launch->rows + DOWN_ROWS - 1) / DOWN_ROWS;
	const int64_t parts = static_cast<int64_t>(launch->chosen) * launch->pieces + launch->shared_pieces;
	const int warps = parts < DOWN_WARPS ? static_cast<int>(parts) : DOWN_WARPS;
	return PLUMB_LAUNCH(
		moe_down_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps), 0, stream, *launch);
}
