/* SPDX-License-Identifier: MIT */
/* Mixture of experts: core/ops/moe.h.
 *
 * Router: one launch. A warp takes one piece of one row of logits; the block that arrives last, told by an integer
 * counter, does the softmax and ranks the probabilities: 2560 x 513 weights are read in a few microseconds, a second
 * launch would add as much again.
 *
 * gate_up: a warp takes one piece of a gate row and of the matching up row and so can write their product; the rows of
 * the shared expert are further units of the same launch.
 *
 * down: a block takes two outputs, its warps the slots (the shared expert is the last), so that all products of an
 * output meet in one thread, which adds them in slot order; the partial sums never leave the chip. */
#include "kernels/moe.h"

#include "core/math32.h"
#include "kernels/gemv.h"

enum {
	ROUTER_WARPS = PLUMB_SPLIT_MAX, /* one row of the most pieces, or several; ranks 512 experts in one go */
	ROUTER_THREADS = 32 * ROUTER_WARPS,
	GATE_UP_WARPS = 8,      /* more when one row has more pieces: small blocks, so that registers allow several an SM */
	DOWN_WARPS = 12,        /* at most: 10 experts and the shared one take 11 */
	DOWN_ROWS = 2,          /* outputs of a block: 1280 blocks at full size; 4 need registers for one block an SM */
	GATE_UP_WIDE_WARPS = 4, /* small blocks: as one ends, the next begins */
	GATE_UP_UNITS = 2,      /* of a warp: 880 blocks at full size; of 4 the last ones waited for few */
	DOWN_WIDE_WARPS = 16,   /* at most: a slot a warp, and the shared expert */
	DOWN_WIDE_FLIGHT = 2,   /* rows of a warp in flight together, */
	DOWN_WIDE_PASSES = 5,   /* so often: 256 blocks at full size, which is one wave where two fit on an SM */
	DOWN_WIDE_ROWS = DOWN_WIDE_FLIGHT * DOWN_WIDE_PASSES, /* outputs of a block */
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
				acc[r][j] = fmaf(plumb_row_value<Format>(row[r], k + j, scale), x[k + j], acc[r][j]);
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
#define PLUMB_CASE(format)                                                                                                 \
	case format:                                                                                                       \
		rows_piece_of<format, Rows>(m, n, cols, x, k0, k1, acc);                                                   \
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

/* warp_key: (ROUTER_WARPS), not used again by the block without a barrier between. */
static __device__ __forceinline__ float block_max(float v, PLUMB_SHARED_PTR(unsigned) warp_key)
{
	const int lane = static_cast<int>(threadIdx.x) % 32;
	const unsigned key = __reduce_max_sync(PLUMB_FULL_WARP, plumb_order_key(v));

	if (lane == 0)
		warp_key[threadIdx.x / 32] = key;
	__syncthreads();
	return plumb_key_value(__reduce_max_sync(PLUMB_FULL_WARP, lane < ROUTER_WARPS ? warp_key[lane] : 0u));
}

/* strided(256) sum of exp(logit - max): thread j of the first 256 is accumulator j. */
static __device__ __forceinline__ float block_exp_sum(const float *logits, int n, float max, PLUMB_SHARED_PTR(float) part)
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
static __device__ __forceinline__ void choose(const struct plumb_moe_router_launch &a, Ranks rank,
	PLUMB_SHARED_PTR(float) part, PLUMB_SHARED_PTR(unsigned) warp_key)
{
	const int size = power_of_two(a.experts);
	float max = -INFINITY;

	for (int e = threadIdx.x; e < a.experts; e += ROUTER_THREADS)
		max = plumb_larger(max, __ldcg(a.logits + e));
	max = block_max(max, warp_key);
	const float sum = block_exp_sum(a.logits, a.experts, max, part);
	for (int e = threadIdx.x; e < a.experts; e += ROUTER_THREADS)
		rank[e] = rank_of(plumb_divf(plumb_expf(__ldcg(a.logits + e) - max), sum), e);
	for (int e = a.experts + threadIdx.x; e < size; e += ROUTER_THREADS)
		rank[e] = 0;
	sort_ranks(rank, size);
	if (threadIdx.x == 0) {
		float chosen = 0.0f;
		for (int k = 0; k < a.chosen; k++)
			chosen = chosen + rank_prob(rank[k]);
		part[PLUMB_ROW_LANES / 32] = chosen;
	}
	__syncthreads();
	for (int k = threadIdx.x; k < a.chosen; k += ROUTER_THREADS) {
		const float prob = rank_prob(rank[k]);
		a.expert[k] = static_cast<int32_t>(~static_cast<unsigned>(rank[k]));
		a.weight[k] = plumb_rne(a.bf16, a.norm_topk ? plumb_divf(prob, part[PLUMB_ROW_LANES / 32]) : prob);
	}
}

/* At least `wanted` experts reach this bound with the upper half of their rank: of the best of every warp it is the
 * wanted-th; where there are fewer warps than that, 0, which all reach. */
static __device__ __forceinline__ unsigned rank_bound(PLUMB_SHARED_PTR(unsigned) warp_key, int wanted)
{
	const int lane = static_cast<int>(threadIdx.x) % 32;
	const unsigned mine = lane < ROUTER_WARPS ? warp_key[lane] : 0u;
	int above = 0;

	PLUMB_UNROLL
	for (int w = 0; w < ROUTER_WARPS; w++)
		above += warp_key[w] > mine;
	const bool best = lane < ROUTER_WARPS && above < wanted;
	const unsigned bound = __reduce_min_sync(PLUMB_FULL_WARP, best ? mine : 0xffffffffu);
	return wanted > ROUTER_WARPS ? 0u : bound;
}

/* The same for up to ROUTER_THREADS experts, one a thread, without a sort. The probabilities that reach rank_bound, some
 * fifteen of 512, are candidates, in any order; a candidate's slot is the number of better ones. */
static __device__ __forceinline__ void choose_few(const struct plumb_moe_router_launch &a,
	PLUMB_SHARED_PTR(unsigned long long) rank, PLUMB_SHARED_PTR(float) part, PLUMB_SHARED_PTR(unsigned) warp_key,
	PLUMB_SHARED_PTR(float) value, PLUMB_SHARED_PTR(int) candidates)
{
	const int e = static_cast<int>(threadIdx.x), lane = e % 32, warp = e / 32;
	const bool live = e < a.experts;
	const float logit = live ? __ldcg(a.logits + e) : -INFINITY;
	const float max = block_max(logit, warp_key);
	const float power = plumb_expf(logit - max);

	value[e] = power;
	if (e == 0)
		candidates[0] = 0;
	__syncthreads();
	if (e < PLUMB_ROW_LANES) { /* strided(256): thread j is accumulator j */
		float sum = 0.0f;
		for (int i = e; i < a.experts; i += PLUMB_ROW_LANES)
			sum = sum + value[i];
		sum = plumb_warp_sum(sum);
		if (lane == 0)
			part[warp] = sum;
	}
	__syncthreads();
	const float prob = plumb_divf(power, plumb_warps_tree(part));
	const unsigned long long mine = live ? rank_of(prob, e) : 0;
	const unsigned high = static_cast<unsigned>(mine >> 32), best = __reduce_max_sync(PLUMB_FULL_WARP, high);
	if (lane == 0)
		warp_key[warp] = best;
	__syncthreads();
	const unsigned bound = rank_bound(warp_key, a.chosen);
	if (live && high >= bound)
		rank[atomicAdd(&candidates[0], 1)] = mine;
	__syncthreads();
	if (e < candidates[0]) {
		const unsigned long long key = rank[e];
		const int count = candidates[0];
		int slot = 0;
		PLUMB_UNROLL_8
		for (int i = 0; i < count; i++)
			slot += rank[i] > key;
		if (slot < a.chosen) {
			a.expert[slot] = static_cast<int32_t>(~static_cast<unsigned>(key));
			value[slot] = rank_prob(key);
		}
	}
	__syncthreads();
	if (e < a.chosen) {
		float chosen = 0.0f;
		PLUMB_UNROLL_8
		for (int k = 0; k < a.chosen; k++)
			chosen = chosen + value[k];
		a.weight[e] = plumb_rne(a.bf16, a.norm_topk ? plumb_divf(value[e], chosen) : value[e]);
	}
}

/* One piece of a row; wide: kernels/gemv.h takes it. */
template <int Format>
static __device__ __forceinline__ float router_piece(const struct plumb_moe_router_launch &a, const struct plumb_matrix &m,
	int64_t n, int piece, PLUMB_SHARED_PTR(float) none)
{
	enum { STEPS = 3 };
	const int cols = static_cast<int>(a.cols), length = plumb_gemv_piece(cols, __ffs(a.pieces) - 1);
	const int k0 = piece * length, k1 = min(k0 + length, cols);
	const struct plumb_row row[1] = {plumb_row_of<Format>(m, n, cols)};
	struct plumb_lane_row<Format, STEPS> stored[1];
	struct plumb_vector<STEPS> v = {
	};
	float sum[1];

	plumb_rows_fetch<Format, STEPS, 1, false>(row, k0, k1, stored);
	plumb_grid_dependency_wait();
	plumb_vector_take(a.x, cols, k0, k1, none, v);
	plumb_rows_sums<Format, STEPS, 1, false>(stored, v, sum);
	return sum[0];
}

/* Wide: bf16 rows in pieces of up to three steps, the released router. */
template <bool Wide>
static __global__ void __launch_bounds__(ROUTER_THREADS, 1) moe_router_kernel(struct plumb_moe_router_launch a)
{
	PLUMB_SHARED(float, part, ROUTER_WARPS);
	PLUMB_SHARED(unsigned, warp_key, ROUTER_WARPS);
	PLUMB_SHARED(float, value, ROUTER_THREADS);
	PLUMB_SHARED(int, last, 1);
	PLUMB_SHARED(int, candidates, 1);
	PLUMB_DYNAMIC_SHARED(unsigned long long, rank);
	const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
	const int piece = warp % a.pieces;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * (ROUTER_WARPS / a.pieces) + warp / a.pieces;
	const bool live = row <= a.experts;

	if (live) {
		const struct plumb_matrix m[1] = {row < a.experts ? a.gate : a.shared_gate};
		const int64_t n[1] = {row < a.experts ? row : 0};
		float sum[1];
		if (Wide) {
			sum[0] = router_piece<PLUMB_BF16>(a, m[0], n[0], piece, value);
		} else {
			plumb_grid_dependency_wait();
			rows_piece<1>(m, n, a.cols, a.x, piece, a.pieces, sum);
		}
		if (lane == 0)
			part[warp] = sum[0];
	} else {
		plumb_grid_dependency_wait();
	}
	plumb_grid_launch_dependents();
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
		__threadfence();
	}
	__syncthreads();
	if (!last[0])
		return;
	if (a.rank)
		choose(a, reinterpret_cast<unsigned long long *>(a.rank), part, warp_key);
	else if (a.experts <= ROUTER_THREADS)
		choose_few(a, rank, part, warp_key, value, candidates);
	else
		choose(a, rank, part, warp_key);
}

extern "C" int PLUMB_LAUNCHER(moe_router)(const struct plumb_moe_router_launch *launch, void *stream)
{
	const int64_t rows_per_block = ROUTER_WARPS / launch->pieces;
	const int64_t blocks = (launch->experts + rows_per_block) / rows_per_block; /* E + 1 rows, rounded up */
	const int ranks = power_of_two(launch->experts < ROUTER_THREADS ? ROUTER_THREADS : launch->experts);
	const size_t shared = launch->rank ? 0 : sizeof(uint64_t) * static_cast<size_t>(ranks);
	const int steps = plumb_gemv_steps(launch->cols, launch->pieces);
	const bool wide = launch->gate.format == PLUMB_BF16 && launch->shared_gate.format == PLUMB_BF16 &&
	                  plumb_gemv_rows_wide(&launch->gate, launch->cols) &&
	                  plumb_gemv_rows_wide(&launch->shared_gate, launch->cols) && plumb_gemv_vector_wide(launch->x) &&
	                  (steps == 1 || steps == 3);
	return PLUMB_LAUNCH_DEPENDENT(wide ? moe_router_kernel<true> : moe_router_kernel<false>,
		static_cast<unsigned>(blocks), ROUTER_THREADS, shared, stream, *launch);
}

/* --- gate and up --- */

static __device__ __forceinline__ bool in_range(int32_t expert, int32_t experts)
{
	return expert >= 0 && expert < experts;
}

/* Formats of routed experts and the shared one that the wide kernels are built for: those of the releases. */
static bool formats_meet(int routed, int shared)
{
	return shared == routed || shared == PLUMB_BF16 || (routed == PLUMB_NVFP4 && shared == PLUMB_FP8_ROW);
}

/* Alike: gate and up have one format, in the routed experts and in the shared one. Then a warp has both rows in flight
 * together; else, which is rare, it takes one after the other. */
template <bool Alike>
static __device__ __forceinline__ void gate_and_up(
	const struct plumb_matrix (&m)[2], int64_t n, const struct plumb_moe_gate_up_launch &a, int piece, float (&sum)[2])
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

/* Gate and up of one unit, both in flight together. */
template <int Format, int Steps>
static __device__ __forceinline__ void unit_sums(const struct plumb_matrix &gate, const struct plumb_matrix &up, int64_t n,
	int cols, const struct plumb_vector<Steps> &v, float (&sum)[2])
{
	const struct plumb_row row[2] = {plumb_row_of<Format>(gate, n, cols), plumb_row_of<Format>(up, n, cols)};
	struct plumb_lane_row<Format, Steps> stored[2];

	if (cols == Steps * PLUMB_ROW_LANES) {
		plumb_rows_fetch<Format, Steps, 2, true>(row, 0, cols, stored);
		plumb_rows_sums<Format, Steps, 2, true>(stored, v, sum);
	} else {
		plumb_rows_fetch<Format, Steps, 2, false>(row, 0, cols, stored);
		plumb_rows_sums<Format, Steps, 2, false>(stored, v, sum);
	}
}

/* Blocks on a processor, at least: two formats in one kernel need more registers. */
static constexpr int gate_up_blocks(int format, int shared_format)
{
	return format == shared_format ? PLUMB_GEMV_BLOCKS : format == PLUMB_FP8_BLOCK ? 2 : 3;
}

/* Whole rows, wide. A warp takes GATE_UP_UNITS neighbouring units; lane u finishes unit u. The shared expert comes first, in
 * blocks of its own, so that a block has one format; early, these multiply while the router is still choosing. */
template <int Format, int SharedFormat, int Steps>
static __global__ void __launch_bounds__(32 * GATE_UP_WIDE_WARPS, gate_up_blocks(Format, SharedFormat))
	moe_gate_up_wide_kernel(struct plumb_moe_gate_up_launch a, int shared_blocks)
{
	PLUMB_DYNAMIC_SHARED(float, staged);
	const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
	const int cols = static_cast<int>(a.cols), inner = static_cast<int>(a.inner);
	const bool shared = static_cast<int>(blockIdx.x) < shared_blocks;
	const int units = shared ? static_cast<int>(a.shared_inner) : a.chosen * inner;
	const int block = static_cast<int>(blockIdx.x) - (shared ? 0 : shared_blocks);
	const int first = (block * GATE_UP_WIDE_WARPS + warp) * GATE_UP_UNITS;
	struct plumb_vector<Steps> v = {
	};
	float gate = 0.0f, up = 0.0f;

	if (!a.early)
		plumb_grid_dependency_wait_plain();
	plumb_vector_take(a.x, cols, 0, cols, staged, v);
	if (!shared)
		plumb_grid_dependency_wait_plain(); /* which experts, is what the launch before says */
	plumb_grid_launch_dependents();
	PLUMB_NO_UNROLL
	for (int u = 0; u < GATE_UP_UNITS; u++) {
		const int unit = first + u;
		float sum[2] = {plumb_nanf(), plumb_nanf()};
		if (unit >= units)
			break;
		if (shared) {
			unit_sums<SharedFormat, Steps>(a.shared_gate, a.shared_up, unit, cols, v, sum);
		} else {
			const int slot = unit / inner;
			const int32_t e = a.expert[slot];
			if (in_range(e, a.experts))
				unit_sums<Format, Steps>(plumb_bank_matrix(a.gate, e), plumb_bank_matrix(a.up, e),
					unit - slot * inner, cols, v, sum);
		}
		gate = lane == u ? sum[0] : gate;
		up = lane == u ? sum[1] : up;
	}
	plumb_grid_dependency_wait_plain(); /* who has waited does not wait again */
	if (lane >= GATE_UP_UNITS || first + lane >= units)
		return;
	const float gated = plumb_rne(a.bf16, plumb_siluf(plumb_rne(a.bf16, gate)));
	(shared ? a.shared_hidden : a.hidden)[first + lane] = plumb_rne(a.bf16, gated * plumb_rne(a.bf16, up));
}

template <int Format, int Steps> static int gate_up_wide(const struct plumb_moe_gate_up_launch *a, void *stream)
{
	enum { UNITS = GATE_UP_WIDE_WARPS * GATE_UP_UNITS }; /* of a block */
	const int shared_blocks = static_cast<int>((a->shared_inner + UNITS - 1) / UNITS);
	const unsigned blocks = static_cast<unsigned>(shared_blocks + (a->chosen * a->inner + UNITS - 1) / UNITS);
	const size_t shared = plumb_gemv_shared(a->cols, Steps);

	if (a->shared_gate.format == Format)
		return PLUMB_LAUNCH_DEPENDENT((moe_gate_up_wide_kernel<Format, Format, Steps>), blocks,
			32 * GATE_UP_WIDE_WARPS, shared, stream, *a, shared_blocks);
	if constexpr (Format == PLUMB_NVFP4)
		if (a->shared_gate.format == PLUMB_FP8_ROW)
			return PLUMB_LAUNCH_DEPENDENT((moe_gate_up_wide_kernel<Format, PLUMB_FP8_ROW, Steps>), blocks,
				32 * GATE_UP_WIDE_WARPS, shared, stream, *a, shared_blocks);
	return PLUMB_LAUNCH_DEPENDENT((moe_gate_up_wide_kernel<Format, PLUMB_BF16, Steps>), blocks, 32 * GATE_UP_WIDE_WARPS,
		shared, stream, *a, shared_blocks);
}

static bool gate_up_is_wide(const struct plumb_moe_gate_up_launch *a)
{
	const int routed = a->gate.format, shared = a->shared_gate.format;
	return a->pieces == 1 && a->gate.wide && a->up.wide && a->up.format == routed && a->shared_up.format == shared &&
	       formats_meet(routed, shared) && a->cols % 8 == 0 && plumb_gemv_rows_wide(&a->shared_gate, a->cols) &&
	       plumb_gemv_rows_wide(&a->shared_up, a->cols) && plumb_gemv_vector_wide(a->x);
}

extern "C" int PLUMB_LAUNCHER(moe_gate_up)(const struct plumb_moe_gate_up_launch *launch, void *stream)
{
	const int warps = launch->pieces > GATE_UP_WARPS ? launch->pieces : GATE_UP_WARPS;
	const int64_t units = launch->chosen * launch->inner + launch->shared_inner;
	const int64_t units_per_block = warps / launch->pieces;
	const int64_t blocks = (units + units_per_block - 1) / units_per_block;
	const bool alike =
		launch->gate.format == launch->up.format && launch->shared_gate.format == launch->shared_up.format;
	const int steps = gate_up_is_wide(launch) ? plumb_gemv_steps(launch->cols, 1) : 0;

	switch (steps ? launch->gate.format * 16 + steps : -1) {
#define PLUMB_CASE(format)                                                                                                 \
	case format * 16 + 1:                                                                                              \
		return gate_up_wide<format, 1>(launch, stream);                                                            \
	case format * 16 + 3:                                                                                              \
		return gate_up_wide<format, 3>(launch, stream);                                                            \
	case format * 16 + PLUMB_GEMV_LONG:                                                                                \
		return gate_up_wide<format, PLUMB_GEMV_LONG>(launch, stream);
		PLUMB_GEMV_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default:
		return PLUMB_LAUNCH(alike ? moe_gate_up_kernel<true> : moe_gate_up_kernel<false>,
			static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps), 0, stream, *launch);
	}
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
	PLUMB_SHARED(float, partial, DOWN_WARPS *DOWN_ROWS);
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

/* DOWN_WIDE_ROWS whole rows of one expert by one warp: sums go to out. They lie behind each other and are all brought near
 * while the first pass waits for its own; to hold those of two passes in registers would cost the second block on an SM. */
template <int Format, int Steps>
static __device__ __forceinline__ void down_sums(const struct plumb_matrix &m, int64_t first, int64_t rows, const float *x,
	int cols, bool early, PLUMB_SHARED_PTR(float) none, PLUMB_SHARED_PTR(float) out)
{
	struct plumb_vector<Steps> v = {
	};

	PLUMB_NO_UNROLL
	for (int p = 0; p < DOWN_WIDE_PASSES; p++) {
		struct plumb_row row[DOWN_WIDE_FLIGHT];
		struct plumb_lane_row<Format, Steps> stored[DOWN_WIDE_FLIGHT];
		float sum[DOWN_WIDE_FLIGHT];
		PLUMB_UNROLL
		for (int r = 0; r < DOWN_WIDE_FLIGHT; r++) { /* past the end the last row again, for nobody */
			const int64_t n = first + p * DOWN_WIDE_FLIGHT + r;
			row[r] = plumb_row_of<Format>(m, n < rows ? n : rows - 1, cols);
		}
		plumb_rows_fetch<Format, Steps, DOWN_WIDE_FLIGHT, false>(row, 0, cols, stored);
		if (p == 0) {
			const int64_t last = first + DOWN_WIDE_ROWS < rows ? first + DOWN_WIDE_ROWS : rows;
			plumb_rows_prefetch<Format>(row[0], static_cast<int>(last - first), cols);
			if (early)
				plumb_grid_dependency_wait();
			plumb_vector_take(x, cols, 0, cols, none, v);
		}
		plumb_rows_sums<Format, Steps, DOWN_WIDE_FLIGHT, false>(stored, v, sum);
		if (threadIdx.x % 32 == 0) {
			PLUMB_UNROLL
			for (int r = 0; r < DOWN_WIDE_FLIGHT; r++)
				out[p * DOWN_WIDE_FLIGHT + r] = sum[r];
		}
	}
}

/* Whole rows, wide: warp k takes slot k, the last the shared expert; thread r finishes output r of the block. */
template <int Format, int SharedFormat, int Steps>
static __global__ void __launch_bounds__(32 * DOWN_WIDE_WARPS) moe_down_wide_kernel(struct plumb_moe_down_launch a)
{
	PLUMB_SHARED(float, partial, DOWN_WIDE_WARPS *DOWN_WIDE_ROWS); /* (slots, outputs) */
	PLUMB_SHARED(float, weight, DOWN_WIDE_WARPS);                  /* of the slots */
	const int slot = static_cast<int>(threadIdx.x / 32), thread = static_cast<int>(threadIdx.x);
	const int64_t first = static_cast<int64_t>(blockIdx.x) * DOWN_WIDE_ROWS, n = first + thread;
	PLUMB_SHARED_PTR(float) out = partial + slot * DOWN_WIDE_ROWS;

	plumb_grid_launch_dependents();
	if (!a.early)
		plumb_grid_dependency_wait(); /* which experts, is what a launch before says */
	if (thread % 32 == 0)
		weight[slot] = __ldcg(slot == a.chosen ? a.shared_weight : a.weight + slot);
	if (slot == a.chosen) {
		down_sums<SharedFormat, Steps>(a.shared_down, first, a.rows, a.shared_hidden,
			static_cast<int>(a.shared_inner), a.early, partial, out);
	} else {
		const int32_t e = __ldcg(a.expert + slot);
		if (in_range(e, a.experts)) {
			down_sums<Format, Steps>(plumb_bank_matrix(a.down, e), first, a.rows, a.hidden + slot * a.inner,
				static_cast<int>(a.inner), a.early, partial, out);
		} else {
			if (a.early)
				plumb_grid_dependency_wait();
			if (thread % 32 < DOWN_WIDE_ROWS)
				out[thread % 32] = plumb_nanf();
		}
	}
	__syncthreads();
	if (thread >= DOWN_WIDE_ROWS || n >= a.rows)
		return;
	const float shared = plumb_rne(a.bf16, partial[a.chosen * DOWN_WIDE_ROWS + thread]);
	float routed = 0.0f;
	for (int k = 0; k < a.chosen; k++)
		routed = routed + plumb_rne(a.bf16, plumb_rne(a.bf16, partial[k * DOWN_WIDE_ROWS + thread]) * weight[k]);
	routed = plumb_rne(a.bf16, routed);
	a.y[n] = plumb_rne(a.bf16, routed + plumb_rne(a.bf16, weight[a.chosen] * shared));
	if (a.routed)
		a.routed[n] = routed;
	if (a.shared)
		a.shared[n] = shared;
}

template <int Format, int Steps> static int down_wide(const struct plumb_moe_down_launch *a, void *stream)
{
	const unsigned blocks = static_cast<unsigned>((a->rows + DOWN_WIDE_ROWS - 1) / DOWN_WIDE_ROWS);
	const unsigned threads = static_cast<unsigned>(32 * (a->chosen + 1));

	if (a->shared_down.format == Format)
		return PLUMB_LAUNCH_DEPENDENT(
			(moe_down_wide_kernel<Format, Format, Steps>), blocks, threads, 0, stream, *a);
	if constexpr (Format == PLUMB_NVFP4)
		if (a->shared_down.format == PLUMB_FP8_ROW)
			return PLUMB_LAUNCH_DEPENDENT(
				(moe_down_wide_kernel<Format, PLUMB_FP8_ROW, Steps>), blocks, threads, 0, stream, *a);
	return PLUMB_LAUNCH_DEPENDENT((moe_down_wide_kernel<Format, PLUMB_BF16, Steps>), blocks, threads, 0, stream, *a);
}

/* Steps that take the rows of both, up to three; 0: not wide. */
static int down_steps(const struct plumb_moe_down_launch *a)
{
	const int64_t longer = a->inner > a->shared_inner ? a->inner : a->shared_inner;
	const int shared = a->shared_down.format, steps = plumb_gemv_steps(longer, 1);

	if (a->pieces != 1 || a->shared_pieces != 1 || a->chosen + 1 > DOWN_WIDE_WARPS || !a->down.wide || steps > 3 ||
		a->inner % 8 != 0 || !formats_meet(a->down.format, shared) ||
		!plumb_gemv_rows_wide(&a->shared_down, a->shared_inner) || !plumb_gemv_vector_wide(a->hidden) ||
		!plumb_gemv_vector_wide(a->shared_hidden))
		return 0;
	return steps;
}

extern "C" int PLUMB_LAUNCHER(moe_down)(const struct plumb_moe_down_launch *launch, void *stream)
{
	const int64_t blocks = (launch->rows + DOWN_ROWS - 1) / DOWN_ROWS;
	const int64_t parts = static_cast<int64_t>(launch->chosen) * launch->pieces + launch->shared_pieces;
	const int warps = parts < DOWN_WARPS ? static_cast<int>(parts) : DOWN_WARPS;
	const int steps = down_steps(launch);

	switch (steps ? launch->down.format * 16 + steps : -1) {
#define PLUMB_CASE(format)                                                                                                 \
	case format * 16 + 1:                                                                                              \
		return down_wide<format, 1>(launch, stream);                                                               \
	case format * 16 + 3:                                                                                              \
		return down_wide<format, 3>(launch, stream);
		PLUMB_GEMV_FORMATS(PLUMB_CASE)
#undef PLUMB_CASE
	default:
		return PLUMB_LAUNCH(moe_down_kernel, static_cast<unsigned>(blocks), static_cast<unsigned>(32 * warps), 0,
			stream, *launch);
	}
}
