/* SPDX-License-Identifier: MIT */
/* The QSA indexer. Scoring spreads over the whole device, grid by the capacity. Selection is one block: a radix select
 * on monotone keys whose only memory is a histogram, so no input can overflow it, and whose result is a function of the
 * counts, so no schedule can change it. */
#include "kernels/qsa.h"

#include "kernels/paged.h"
#include "kernels/rotate.h"

enum {
	SCORE_WARPS = 8,
	SCORE_GROUP = 16,					  /* lanes of a key: 16 bytes of bf16 each */
	SCORE_TILE = SCORE_WARPS * 32 / SCORE_GROUP * PLUMB_KEYS, /* keys of a block */
	SELECT_WARPS = 32,
	SELECT_THREADS = 32 * SELECT_WARPS,
	SELECT_BATCH = 8, /* scores a thread has under way */
	DIGIT_BITS = 11,  /* 11 + 11 + 10 bits: three passes over the scores */
	DIGITS = 1 << DIGIT_BITS,
};

static_assert(DIGITS == 2 * SELECT_THREADS, "a thread scans two digits");

/* --- qsa_project --- */

/* One warp: put the raw key in its cache row; if that completes a block, pool, norm, turn and keep the block's key. */
static __device__ __forceinline__ void qsa_keep_key(
	const struct plumb_qsa_heads &a, struct plumb_rotation rotation, int32_t p)
{
	const float *const key = a.projected + a.index_heads * a.index_dim;
	const int lane = static_cast<int>(threadIdx.x % 32);
	const struct plumb_sink row = plumb_paged_sink(a.raw_keys, p, 0);

	for (int64_t i = lane; i < a.index_dim; i += 32)
		plumb_sink_put(row, i, key[i]);
	if ((p + 1) % a.block_tokens != 0)
		return;
	/* a lane reads back only what it wrote itself, as the cache holds it */
	const int32_t b = p / a.block_tokens, first = b * a.block_tokens;
	for (int64_t i = lane; i < a.index_dim; i += 32) {
		float sum = 0.0f;
		for (int32_t j = 0; j < a.block_tokens; j++)
			sum = sum + plumb_paged_value(a.raw_keys, plumb_paged_row(a.raw_keys, first + j, 0), i);
		a.mean[i] = plumb_rne(a.bf16, plumb_divf(sum, static_cast<float>(a.block_tokens)));
	}
	__syncwarp();
	rotation.rope = a.rope + first * (2 * a.half);
	plumb_rotate_head(
		rotation, a.mean, a.k_norm_format, a.k_norm, nullptr, plumb_paged_sink(a.block_keys, b, 0));
}

/* A warp a head, and one for the key. */
static __global__ void __launch_bounds__(32) qsa_heads_kernel(struct plumb_qsa_heads a)
{
	const int32_t p = static_cast<int32_t>(*a.position + a.token);
	const struct plumb_rotation rotation = {a.rope + p * (2 * a.half), a.index_dim, a.half, a.eps, a.bf16};
	const int64_t h = blockIdx.x;

	if (h == a.index_heads)
		qsa_keep_key(a, rotation, p);
	else
		plumb_rotate_head(rotation, a.projected + h * a.index_dim, a.q_norm_format, a.q_norm, nullptr,
			{PLUMB_F32, 1.0f, a.query + h * a.index_dim});
}

extern "C" int PLUMB_LAUNCHER(qsa_heads)(const struct plumb_qsa_heads *a, void *stream)
{
	return PLUMB_LAUNCH(qsa_heads_kernel, static_cast<unsigned>(a->index_heads + 1), 32, 0, stream, *a);
}

/* --- qsa_score --- */

/* relu(x) = x > 0 ? x : +0, NaN carried. */
static __device__ __forceinline__ float qsa_relu(float x)
{
	return x > 0.0f || x != x ? x : 0.0f;
}

/* Half a warp takes four neighbouring keys and every query head. */
static __global__ void __launch_bounds__(32 * SCORE_WARPS) qsa_score_kernel(struct plumb_qsa_blocks a)
{
	const int32_t live = static_cast<int32_t>((*a.position + a.token + 1) / a.block_tokens);
	const int32_t tile = static_cast<int32_t>(blockIdx.x * SCORE_TILE);
	const int32_t first = tile + static_cast<int32_t>(threadIdx.x / SCORE_GROUP) * PLUMB_KEYS;
	const int32_t warp_first = tile + static_cast<int32_t>(threadIdx.x / 32) * (32 / SCORE_GROUP * PLUMB_KEYS);
	const int32_t mine = first + plumb_key_of_lane();
	const bool writes = threadIdx.x % SCORE_GROUP < PLUMB_KEYS && mine < a.blocks;

	if (warp_first >= live) { /* the whole warp: its shuffles need all lanes */
		if (writes)
			a.score[mine] = -INFINITY;
		return;
	}
	const bool aligned = plumb_paged_aligned(a.block_keys, a.index_dim);
	const bool q_aligned = plumb_rows_aligned(PLUMB_F32, a.query, a.index_dim);
	const void *key[PLUMB_KEYS];
	float w[PLUMB_KEYS][PLUMB_KEY_COLUMNS], sum = 0.0f;
	/* past the end the last complete block stands in */
PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++)
		key[r] = plumb_paged_row(a.block_keys, min(first + r, live - 1), 0);
	plumb_keys_load<SCORE_GROUP>(a.block_keys, key, a.index_dim, aligned, w);
	for (int64_t h = 0; h < a.index_heads; h++)
		sum = sum + qsa_relu(plumb_key_dots<SCORE_GROUP>(a.block_keys, key, a.index_dim, aligned, w,
				    a.query + h * a.index_dim, q_aligned));
	if (writes)
		a.score[mine] = mine < live ? plumb_divf(sum, a.root) : -INFINITY;
}

extern "C" int PLUMB_LAUNCHER(qsa_score)(const struct plumb_qsa_blocks *a, void *stream)
{
	const int64_t tiles = (static_cast<int64_t>(a->blocks) + SCORE_TILE - 1) / SCORE_TILE;
	return tiles ? PLUMB_LAUNCH(qsa_score_kernel, static_cast<unsigned>(tiles), 32 * SCORE_WARPS, 0, stream, *a)
		     : 0;
}

/* --- qsa_select --- */

/* Order as unsigned numbers = order of scores: NaN 0, -inf lowest of the numbers, -0 the same as +0. */
static __device__ __forceinline__ uint32_t qsa_key(float score)
{
	const uint32_t u = __float_as_uint(score == 0.0f ? 0.0f : score);
	if (score != score)
		return 0;
	return u & 0x80000000u ? ~u : u | 0x80000000u;
}

/* Add the digits of the keys that begin with prefix to the histogram. If all of a warp are equal, one lane adds them
 * all: rows of one value (relu zeros) would otherwise queue up at one counter. */
static __device__ __forceinline__ void qsa_count_digits(const float *score, int32_t n, uint32_t prefix,
	uint32_t prefix_mask, int shift, uint32_t digit_mask, PLUMB_SHARED_PTR(int) histogram)
{
	const int lane = static_cast<int>(threadIdx.x % 32);

	for (int64_t base = 0; base < n; base += SELECT_THREADS * SELECT_BATCH) {
		float s[SELECT_BATCH];
PLUMB_UNROLL
		for (int j = 0; j < SELECT_BATCH; j++) {
			const int64_t i = base + j * SELECT_THREADS + threadIdx.x;
			s[j] = i < n ? score[i] : 0.0f;
		}
PLUMB_UNROLL
		for (int j = 0; j < SELECT_BATCH; j++) {
			const int64_t i = base + j * SELECT_THREADS + threadIdx.x;
			if (i - lane >= n) /* the whole warp is past the end */
				break;
			const uint32_t key = qsa_key(s[j]);
			const int digit = static_cast<int>(key >> shift & digit_mask);
			const bool counts = i < n && (key & prefix_mask) == prefix;
			const unsigned voters = __ballot_sync(PLUMB_FULL_WARP, counts);
			if (voters == 0)
				continue;
			const int leader = __ffs(static_cast<int>(voters)) - 1;
			const int common = __shfl_sync(PLUMB_FULL_WARP, digit, leader);
			if (__all_sync(PLUMB_FULL_WARP, !counts || digit == common)) {
				if (lane == leader)
					atomicAdd(&histogram[digit], __popc(voters));
			} else if (counts) {
				atomicAdd(&histogram[digit], 1);
			}
		}
	}
}

/* Find the digit of the wanted-th largest key, counted from the largest, and how many keys lie above it. Thread i looks
 * at digits DIGITS-1-2i and DIGITS-2-2i; exactly one finds itself concerned. */
static __device__ __forceinline__ void qsa_find_digit(
	PLUMB_SHARED_PTR(int) histogram, PLUMB_SHARED_PTR(int) warp_count, PLUMB_SHARED_PTR(int) found, int wanted)
{
	const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
	const int digit = DIGITS - 1 - 2 * static_cast<int>(threadIdx.x);
	const int high = histogram[digit], both = high + histogram[digit - 1];
	int above = both;

	for (int offset = 1; offset < 32; offset *= 2) {
		const int other = __shfl_up_sync(PLUMB_FULL_WARP, above, offset);
		above += lane >= offset ? other : 0;
	}
	if (lane == 31)
		warp_count[warp] = above;
	above -= both;
	__syncthreads();
	for (int v = 0; v < warp; v++)
		above += warp_count[v];
	if (above < wanted && wanted <= above + both) {
		const bool upper = wanted <= above + high;
		found[0] = upper ? digit : digit - 1;
		found[1] = upper ? above : above + high;
	}
	__syncthreads();
}

/* Write the indices of the keys above threshold, and of the first `ties` keys equal to it, in ascending order. A warp
 * owns a contiguous range: it counts, learns what the warps before it write, and writes. */
static __device__ __forceinline__ void qsa_write_selected(const float *score, int32_t n, uint32_t threshold, int ties,
	PLUMB_SHARED_PTR(int) warp_above, PLUMB_SHARED_PTR(int) warp_equal, int32_t *block)
{
	const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
	const unsigned before = (1u << lane) - 1u;
	const int64_t range = (static_cast<int64_t>(n) + SELECT_THREADS - 1) / SELECT_THREADS * 32;
	const int64_t begin = warp * range, end = begin + range < n ? begin + range : n;
	int above = 0, equal = 0;

	for (int64_t base = begin; base < end; base += 32) {
		const int64_t i = base + lane;
		const uint32_t key = i < end ? qsa_key(score[i]) : 0;
		above += __popc(__ballot_sync(PLUMB_FULL_WARP, i < end && key > threshold));
		equal += __popc(__ballot_sync(PLUMB_FULL_WARP, i < end && key == threshold));
	}
	if (lane == 0) {
		warp_above[warp] = above;
		warp_equal[warp] = equal;
	}
	__syncthreads();
	above = 0;
	equal = 0;
	for (int v = 0; v < warp; v++) {
		above += warp_above[v];
		equal += warp_equal[v];
	}
	int written = above + min(equal, ties);
	for (int64_t base = begin; base < end; base += 32) {
		const int64_t i = base + lane;
		const uint32_t key = i < end ? qsa_key(score[i]) : 0;
		const unsigned same = __ballot_sync(PLUMB_FULL_WARP, i < end && key == threshold);
		const bool taken =
			i < end && (key > threshold || (key == threshold && equal + __popc(same & before) < ties));
		const unsigned takers = __ballot_sync(PLUMB_FULL_WARP, taken);
		if (taken)
			block[written + __popc(takers & before)] = static_cast<int32_t>(i);
		equal += __popc(same);
		written += __popc(takers);
	}
}

static __global__ void __launch_bounds__(SELECT_THREADS) qsa_select_kernel(const int32_t *position, int64_t token,
	const float *score, int32_t block_tokens, int32_t budget, int32_t *block, int32_t *count)
{
	PLUMB_SHARED(int, histogram, DIGITS);
	PLUMB_SHARED(int, warp_above, SELECT_WARPS);
	PLUMB_SHARED(int, warp_equal, SELECT_WARPS);
	PLUMB_SHARED(int, found, 2); /* digit, keys above it */
	const int32_t n = static_cast<int32_t>((*position + token + 1) / block_tokens);
	const int32_t chosen = min(n, budget);
	const int thread = static_cast<int>(threadIdx.x);

	if (thread == 0)
		*count = chosen;
	for (int64_t i = thread; i < budget; i += SELECT_THREADS)
		if (i >= chosen)
			block[i] = -1;
		else if (n <= budget)
			block[i] = static_cast<int32_t>(i);
	if (n <= budget)
		return;
	uint32_t prefix = 0, prefix_mask = 0;
	int wanted = chosen;
	for (int shift = 32 - DIGIT_BITS;; shift = shift > DIGIT_BITS ? shift - DIGIT_BITS : 0) {
		const uint32_t digit_mask = ~prefix_mask >> shift < DIGITS - 1 ? ~prefix_mask >> shift : DIGITS - 1;
		for (int i = thread; i < DIGITS; i += SELECT_THREADS)
			histogram[i] = 0;
		__syncthreads();
		qsa_count_digits(score, n, prefix, prefix_mask, shift, digit_mask, histogram);
		__syncthreads();
		qsa_find_digit(histogram, warp_above, found, wanted);
		prefix |= static_cast<uint32_t>(found[0]) << shift;
		prefix_mask |= digit_mask << shift;
		wanted -= found[1];
		if (shift == 0)
			break;
	}
	qsa_write_selected(score, n, prefix, wanted, warp_above, warp_equal, block);
}

extern "C" int PLUMB_LAUNCHER(qsa_select)(const int32_t *position, int64_t token, const float *score,
	int32_t block_tokens, int32_t budget, int32_t *block, int32_t *count, void *stream)
{
	return PLUMB_LAUNCH(qsa_select_kernel, 1, SELECT_THREADS, 0, stream, position, token, score, block_tokens,
		budget, block, count);
}
