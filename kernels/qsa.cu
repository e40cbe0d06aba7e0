/* SPDX-License-Identifier: MIT */
/* The QSA indexer. Scoring spreads over the whole device, grid by the capacity. Selection is one block, or one cluster: a
 * radix select on monotone keys whose only memory is histograms, so no input can overflow it, and whose result is a
 * function of the counts, so no schedule can change it. */
#include "kernels/qsa.h"

#include "kernels/heads.h"

enum {
	KEY_EACH = 4, /* values of the raw key a lane has under way */
	KEY_ROWS = 4, /* raw keys under way */
	SCORE_WARPS = 4,
	SCORE_GROUP = 16,                                                      /* lanes of a key: 16 bytes of bf16 each */
	SCORE_SETS = 2,                                                        /* of four keys, of a group */
	SCORE_HEADS = 4,                                                       /* index heads whose sums share shuffles */
	SCORE_TILE = SCORE_WARPS * 32 / SCORE_GROUP * SCORE_SETS * PLUMB_KEYS, /* keys of a block */
	SCORE_ANY_WARPS = 8,
	SCORE_ANY_TILE = SCORE_ANY_WARPS * 32 / SCORE_GROUP * PLUMB_KEYS,
	SELECT_WARPS = 32,   /* of the one block */
	CLUSTER_WARPS = 16,  /* of a block of the cluster */
	SELECT_BATCH = 8192, /* scores of a block at a time, all in registers */
	SELECT_CLUSTER = 8,  /* blocks: 65536 scores at a time */
	DIGIT_BITS = 11,     /* 11 + 11 + 10 bits: three passes over the scores */
	DIGITS = 1 << DIGIT_BITS,
	PASSES = 3,
	GROUP = 64, /* neighbouring digits that are counted together first */
	GROUPS = DIGITS / GROUP,
};

static_assert(GROUPS == 32 && GROUP == 64, "a lane a group, and a lane two digits of one");

/* --- qsa_project --- */

/* A value as the cache gives it back. */
template <int Format> static __device__ __forceinline__ float qsa_cached(float x, float scale)
{
	if (Format == PLUMB_F32)
		return x;
	if (Format == PLUMB_CACHE_FP8)
		return plumb_cache_value(plumb_cache_code(x, scale), scale);
	return Format == PLUMB_F16 ? plumb_f16_to_f32(plumb_f32_to_f16(x)) : plumb_round_bf16(x);
}

template <int Format> static __device__ __forceinline__ float qsa_raw_value(const void *row, int64_t i, float scale)
{
	if (Format == PLUMB_CACHE_FP8)
		return plumb_e4m3_value(static_cast<const uint8_t *>(row)[i]) * scale;
	return plumb_stored_value(Format, row, i);
}

/* One warp: put the raw key in its cache row; if it completes a block, the mean of the block's raw keys as the cache holds
 * them. The rows of the tokens before are read, four at a time and KEY_EACH elements of each, while the key is stored. */
template <int Format>
static __device__ __forceinline__ void qsa_keep_raw(
	const struct plumb_qsa_heads &a, const float *key, int32_t p, int32_t first, PLUMB_SHARED_PTR(float) mean)
{
	const int n = static_cast<int>(a.index_dim), lane = static_cast<int>(threadIdx.x % 32);
	const bool completes = p - first + 1 == a.block_tokens;
	const float scale = a.raw_keys.scale;
	const struct plumb_sink own = {Format, scale, plumb_paged_row(a.raw_keys, p, 0)};

	for (int i0 = lane; i0 < n; i0 += 32 * KEY_EACH) {
		float x[KEY_EACH], sum[KEY_EACH] = {};
		PLUMB_UNROLL
		for (int k = 0; k < KEY_EACH; k++)
			x[k] = i0 + 32 * k < n ? key[i0 + 32 * k] : 0.0f;
		for (int32_t j0 = 0; completes && j0 < a.block_tokens; j0 += KEY_ROWS) {
			float y[KEY_ROWS][KEY_EACH];
			PLUMB_UNROLL
			for (int j = 0; j < KEY_ROWS; j++) {
				const bool earlier = first + j0 + j < p;
				const void *const row = earlier ? plumb_paged_row(a.raw_keys, first + j0 + j, 0) : nullptr;
				PLUMB_UNROLL
				for (int k = 0; k < KEY_EACH; k++)
					y[j][k] = earlier && i0 + 32 * k < n
					                  ? qsa_raw_value<Format>(row, i0 + 32 * k, scale)
					                  : 0.0f;
			}
			PLUMB_UNROLL
			for (int j = 0; j < KEY_ROWS; j++)
				PLUMB_UNROLL
			for (int k = 0; k < KEY_EACH; k++) {
				const float v = first + j0 + j == p ? qsa_cached<Format>(x[k], scale) : y[j][k];
				sum[k] = j0 + j < a.block_tokens ? sum[k] + v : sum[k];
			}
		}
		PLUMB_UNROLL
		for (int k = 0; k < KEY_EACH; k++)
			if (i0 + 32 * k < n) {
				plumb_sink_put(own, i0 + 32 * k, x[k]);
				if (completes)
					mean[i0 + 32 * k] =
						plumb_rne(a.bf16, plumb_divf(sum[k], static_cast<float>(a.block_tokens)));
			}
	}
}

static __device__ __forceinline__ void qsa_keep_key(
	const struct plumb_qsa_heads &a, const float *key, int32_t p, int32_t first, PLUMB_SHARED_PTR(float) mean)
{
	switch (a.raw_keys.format) {
	case PLUMB_F32:
		qsa_keep_raw<PLUMB_F32>(a, key, p, first, mean);
		break;
	case PLUMB_F16:
		qsa_keep_raw<PLUMB_F16>(a, key, p, first, mean);
		break;
	case PLUMB_BF16:
		qsa_keep_raw<PLUMB_BF16>(a, key, p, first, mean);
		break;
	default: /* no other is a cache's */
		qsa_keep_raw<PLUMB_CACHE_FP8>(a, key, p, first, mean);
	}
}

/* A warp a query head. */
static __device__ __forceinline__ void qsa_query(const struct plumb_qsa_heads &a, int32_t p, PLUMB_SHARED_PTR(float) turn)
{
	const struct plumb_rotation rotation = {a.rope + p * (2 * a.half), a.index_dim, a.half, a.eps, a.bf16};
	const int64_t h = blockIdx.x;
	const float *const x = a.projected + h * a.index_dim;
	const struct plumb_sink sink = {PLUMB_F32, 1.0f, a.query + h * a.index_dim};

	const struct plumb_near_constants constants = plumb_near_constants_of(rotation, a.q_norm_format, a.q_norm);
	float part[PLUMB_NEAR];
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	plumb_near_load(x, static_cast<int>(a.index_dim), part);
	plumb_near_rotate(rotation, constants, part, turn, nullptr, sink);
}

/* The warp of the key: it keeps the raw key and, if that completes a block, pools, norms, turns and keeps the block's
 * key. */
static __device__ __forceinline__ void qsa_key_head(
	const struct plumb_qsa_heads &a, int32_t p, PLUMB_SHARED_PTR(float) turn)
{
	const int32_t b = p / a.block_tokens, first = b * a.block_tokens;
	const struct plumb_rotation rotation = {a.rope + first * (2 * a.half), a.index_dim, a.half, a.eps, a.bf16};
	const float *const key = a.projected + a.index_heads * a.index_dim;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	qsa_keep_key(a, key, p, first, turn);
	if ((p + 1) % a.block_tokens != 0)
		return;
	__syncwarp();
	const struct plumb_sink sink = plumb_paged_sink(a.block_keys, b, 0);
	const struct plumb_near_constants constants = plumb_near_constants_of(rotation, a.k_norm_format, a.k_norm);
	float part[PLUMB_NEAR];
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k++)
		part[k] = plumb_near_element(k) < a.index_dim ? turn[plumb_near_element(k)] : 0.0f;
	plumb_near_rotate(rotation, constants, part, turn, nullptr, sink);
}

/* Heads of up to 256. */
static __global__ void __launch_bounds__(32) qsa_heads_kernel(struct plumb_qsa_heads a)
{
	PLUMB_SHARED(float, turn, PLUMB_NEAR_HEAD);
	const int32_t p = static_cast<int32_t>(*a.position + a.token);

	if (static_cast<int64_t>(blockIdx.x) < a.index_heads)
		qsa_query(a, p, turn);
	else
		qsa_key_head(a, p, turn);
}

/* The same, and behind them the heads of attn_qk_rope: neither reads what the other writes. */
static __global__ void __launch_bounds__(32)
	attn_qsa_heads_kernel(struct plumb_attn_heads attention, struct plumb_qsa_heads a)
{
	PLUMB_SHARED(float, turn, PLUMB_NEAR_HEAD);
	const int32_t p = static_cast<int32_t>(*a.position + a.token);
	const int64_t h = blockIdx.x;

	if (h < a.index_heads)
		qsa_query(a, p, turn);
	else if (h == a.index_heads)
		qsa_key_head(a, p, turn);
	else
		attn_head(attention, h - a.index_heads - 1, turn);
}

/* Heads of any size. */
static __global__ void __launch_bounds__(32) qsa_heads_any_kernel(struct plumb_qsa_heads a)
{
	const int32_t p = static_cast<int32_t>(*a.position + a.token), b = p / a.block_tokens, first = b * a.block_tokens;
	const int64_t h = blockIdx.x;
	const bool is_key = h == a.index_heads;
	const struct plumb_rotation rotation = {
		a.rope + (is_key ? first : p) * (2 * a.half), a.index_dim, a.half, a.eps, a.bf16};
	const float *const x = a.projected + h * a.index_dim;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (!is_key) {
		plumb_rotate_head(
			rotation, x, a.q_norm_format, a.q_norm, nullptr, {PLUMB_F32, 1.0f, a.query + h * a.index_dim});
		return;
	}
	/* a lane reads back only what it wrote itself, as the cache holds it */
	const struct plumb_sink own = plumb_paged_sink(a.raw_keys, p, 0);
	const bool completes = (p + 1) % a.block_tokens == 0;
	for (int64_t i = threadIdx.x; i < a.index_dim; i += 32) {
		float sum = 0.0f;
		plumb_sink_put(own, i, x[i]);
		for (int32_t j = 0; completes && j < a.block_tokens; j++)
			sum = sum + plumb_paged_value(a.raw_keys, plumb_paged_row(a.raw_keys, first + j, 0), i);
		a.mean[i] = plumb_rne(a.bf16, plumb_divf(sum, static_cast<float>(a.block_tokens)));
	}
	if (!completes)
		return;
	__syncwarp();
	plumb_rotate_head(rotation, a.mean, a.k_norm_format, a.k_norm, nullptr, plumb_paged_sink(a.block_keys, b, 0));
}

extern "C" int PLUMB_LAUNCHER(qsa_heads)(const struct plumb_qsa_heads *a, void *stream)
{
	const unsigned blocks = static_cast<unsigned>(a->index_heads + 1);

	if (a->index_dim <= PLUMB_NEAR_HEAD)
		return PLUMB_LAUNCH_DEPENDENT(qsa_heads_kernel, blocks, 32, 0, stream, *a);
	return PLUMB_LAUNCH_DEPENDENT(qsa_heads_any_kernel, blocks, 32, 0, stream, *a);
}

extern "C" int PLUMB_LAUNCHER(attn_qsa_heads)(
	const struct plumb_attn_heads *attention, const struct plumb_qsa_heads *a, void *stream)
{
	const int64_t blocks = a->index_heads + 1 + attention->q_heads + 2 * attention->kv_heads;
	int status;

	if (a->index_dim <= PLUMB_NEAR_HEAD)
		return PLUMB_LAUNCH_DEPENDENT(
			attn_qsa_heads_kernel, static_cast<unsigned>(blocks), 32, 0, stream, *attention, *a);
	status = PLUMB_LAUNCHER(attn_heads)(attention, stream);
	return status ? status : PLUMB_LAUNCHER(qsa_heads)(a, stream);
}

/* --- qsa_score --- */

/* relu(x) = x > 0 ? x : +0, NaN carried. */
static __device__ __forceinline__ float qsa_relu(float x)
{
	return x > 0.0f || x != x ? x : 0.0f;
}

/* Half a warp takes two groups of four neighbouring keys, all asked for at once, and every query head: keys and heads make
 * 16 sums a group, one for each lane. Index heads of up to 128 columns whose rows are aligned. */
template <int Format> static __global__ void __launch_bounds__(32 * SCORE_WARPS) qsa_score_kernel(struct plumb_qsa_blocks a)
{
	const int lane = static_cast<int>(threadIdx.x % 32), place = lane % SCORE_GROUP,
		  dim = static_cast<int>(a.index_dim);
	const int column = place * PLUMB_KEY_COLUMNS;
	const int32_t live = static_cast<int32_t>(*a.position + a.token + 1) / a.block_tokens;
	const int32_t first =
		static_cast<int32_t>(blockIdx.x * SCORE_TILE + threadIdx.x / SCORE_GROUP * (SCORE_SETS * PLUMB_KEYS));
	const int32_t warp_first = first - lane / SCORE_GROUP * (SCORE_SETS * PLUMB_KEYS);
	/* A lane finds the row of one key. Past the end the last complete block stands in, past the end of a row its first
	 * column: a load under a condition is waited for before the next one goes out. */
	const int32_t own = first + place % (SCORE_SETS * PLUMB_KEYS);
	const unsigned char *const row = plumb_paged_row(a.block_keys, max(min(own, live - 1), 0), 0);

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (warp_first >= live) { /* the whole warp: its shuffles need all lanes */
		if (place < SCORE_SETS * PLUMB_KEYS && own < a.blocks)
			a.score[own] = -INFINITY;
		return;
	}
	struct plumb_raw raw[SCORE_SETS][PLUMB_KEYS];
	float sum[SCORE_SETS] = {};
	PLUMB_UNROLL
	for (int r = 0; r < SCORE_SETS * PLUMB_KEYS; r++) {
		const unsigned long long address = __shfl_sync(
			PLUMB_FULL_WARP, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(row)), r, SCORE_GROUP);
		raw[r / PLUMB_KEYS][r % PLUMB_KEYS] = plumb_raw_load<Format>(
			reinterpret_cast<const void *>(static_cast<uintptr_t>(address)), column < dim ? column : 0);
	}
	const int heads = static_cast<int>(a.index_heads);
	for (int h0 = 0; h0 < heads; h0 += SCORE_HEADS) {
		float q[SCORE_HEADS][PLUMB_KEY_COLUMNS];
		PLUMB_UNROLL
		for (int i = 0; i < SCORE_HEADS; i++) {
			const float *const x = a.query + min(h0 + i, heads - 1) * dim + (column < dim ? column : 0);
			const float4 lo = PLUMB_AS(const float4, x)[0], hi = PLUMB_AS(const float4, x)[1];
			q[i][0] = lo.x, q[i][1] = lo.y, q[i][2] = lo.z, q[i][3] = lo.w;
			q[i][4] = hi.x, q[i][5] = hi.y, q[i][6] = hi.z, q[i][7] = hi.w;
		}
		PLUMB_UNROLL
		for (int g = 0; g < SCORE_SETS; g++) {
			float product[SCORE_HEADS * PLUMB_KEYS];
			PLUMB_UNROLL
			for (int r = 0; r < PLUMB_KEYS; r++) {
				float w[PLUMB_KEY_COLUMNS];
				plumb_raw_values<Format>(raw[g][r], a.block_keys.scale, w);
				PLUMB_UNROLL
				for (int i = 0; i < SCORE_HEADS; i++) {
					float p[PLUMB_KEY_COLUMNS];
					PLUMB_UNROLL
					for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
						p[j] = fmaf(w[j], q[i][j], 0.0f);
					const float tree =
						((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
					product[i * PLUMB_KEYS + r] = column < dim ? tree : 0.0f;
				}
			}
			const float mine = qsa_relu(plumb_group_sums<SCORE_HEADS * PLUMB_KEYS, SCORE_GROUP>(product));
			/* sum 4*i + r is where the low lane bits, mirrored, say so */
			PLUMB_UNROLL
			for (int i = 0; i < SCORE_HEADS; i++) {
				const float other = __shfl_sync(
					PLUMB_FULL_WARP, mine, (i & 2) / 2 + (i & 1) * 2 + place % 4 * 4, SCORE_GROUP);
				sum[g] = h0 + i < heads ? sum[g] + other : sum[g];
			}
		}
	}
	/* after the mirrored head bits, place % 4 in bits 2 and 3 of the source lane is key bits 1 and 0 */
	PLUMB_UNROLL
	for (int g = 0; g < SCORE_SETS; g++) {
		const int32_t key = first + g * PLUMB_KEYS + (place & 1) * 2 + (place >> 1 & 1);
		if (place < PLUMB_KEYS && key < a.blocks)
			a.score[key] = key < live ? plumb_divf(sum[g], a.root) : -INFINITY;
	}
}

/* The same for heads of any size and rows at any address: half a warp takes four neighbouring keys. */
static __global__ void __launch_bounds__(32 * SCORE_ANY_WARPS) qsa_score_any_kernel(struct plumb_qsa_blocks a)
{
	const int32_t live = static_cast<int32_t>(*a.position + a.token + 1) / a.block_tokens;
	const int32_t tile = static_cast<int32_t>(blockIdx.x * SCORE_ANY_TILE);
	const int32_t first = tile + static_cast<int32_t>(threadIdx.x / SCORE_GROUP) * PLUMB_KEYS;
	const int32_t warp_first = tile + static_cast<int32_t>(threadIdx.x / 32) * (32 / SCORE_GROUP * PLUMB_KEYS);
	const int32_t mine = first + plumb_key_of_lane();
	const bool writes = threadIdx.x % SCORE_GROUP < PLUMB_KEYS && mine < a.blocks;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
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
		sum = sum + qsa_relu(plumb_key_dots<SCORE_GROUP>(
				    a.block_keys, key, a.index_dim, aligned, w, a.query + h * a.index_dim, q_aligned));
	if (writes)
		a.score[mine] = mine < live ? plumb_divf(sum, a.root) : -INFINITY;
}

/* Whether keys and queries can be read 8 columns at a time. */
static bool is_vector(const struct plumb_qsa_blocks *a)
{
	const int64_t bytes = a->block_keys.format == PLUMB_F32 ? 4 : a->block_keys.format == PLUMB_CACHE_FP8 ? 1 : 2;
	const uintptr_t places =
		reinterpret_cast<uintptr_t>(a->block_keys.data) | static_cast<uintptr_t>(a->block_keys.width * bytes);

	return a->index_dim % PLUMB_KEY_COLUMNS == 0 && reinterpret_cast<uintptr_t>(a->query) % 16 == 0 &&
	       places % (bytes == 1 ? 8 : 16) == 0;
}

extern "C" int PLUMB_LAUNCHER(qsa_score)(const struct plumb_qsa_blocks *a, void *stream)
{
	const bool is_near = a->index_dim <= SCORE_GROUP * PLUMB_KEY_COLUMNS && is_vector(a);
	const int64_t tile = is_near ? SCORE_TILE : SCORE_ANY_TILE, tiles = (a->blocks + tile - 1) / tile;
	const unsigned blocks = static_cast<unsigned>(tiles), threads = 32 * SCORE_WARPS;

	if (!tiles)
		return 0;
	if (!is_near)
		return PLUMB_LAUNCH_DEPENDENT(qsa_score_any_kernel, blocks, 32 * SCORE_ANY_WARPS, 0, stream, *a);
	switch (a->block_keys.format) {
	case PLUMB_F32:
		return PLUMB_LAUNCH_DEPENDENT(qsa_score_kernel<PLUMB_F32>, blocks, threads, 0, stream, *a);
	case PLUMB_F16:
		return PLUMB_LAUNCH_DEPENDENT(qsa_score_kernel<PLUMB_F16>, blocks, threads, 0, stream, *a);
	case PLUMB_BF16:
		return PLUMB_LAUNCH_DEPENDENT(qsa_score_kernel<PLUMB_BF16>, blocks, threads, 0, stream, *a);
	default: /* no other is a cache's */
		return PLUMB_LAUNCH_DEPENDENT(qsa_score_kernel<PLUMB_CACHE_FP8>, blocks, threads, 0, stream, *a);
	}
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

/* Index of a thread's score j of a batch: warps own contiguous runs, so that it grows with warp, j and lane. */
template <int Each> static __device__ __forceinline__ int32_t qsa_batch_index(int32_t base, int j)
{
	const int32_t thread = static_cast<int32_t>(threadIdx.x);
	return base + thread / 32 * (32 * Each) + j * 32 + thread % 32;
}

template <int Each>
static __device__ __forceinline__ void qsa_load_batch(const float *score, int32_t base, int32_t end, uint32_t (&key)[Each])
{
	float s[Each];
	PLUMB_UNROLL
	for (int j = 0; j < Each; j++) {
		const int32_t i = qsa_batch_index<Each>(base, j);
		s[j] = i < end ? score[i] : 0.0f;
	}
	PLUMB_UNROLL
	for (int j = 0; j < Each; j++)
		key[j] = qsa_key(s[j]);
}

/* The sum of v over the lanes below the calling warp's number: what the warps before this one counted. */
static __device__ __forceinline__ int qsa_before_warp(PLUMB_SHARED_PTR(int) of_warp)
{
	const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
	int sum = lane < warp ? of_warp[lane] : 0;
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		sum += __shfl_xor_sync(PLUMB_FULL_WARP, sum, offset);
	return sum;
}

static __device__ __forceinline__ int qsa_warp_total(int v)
{
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		v += __shfl_xor_sync(PLUMB_FULL_WARP, v, offset);
	return v;
}

/* The counts of the groups of GROUP digits in the block's histogram. */
template <int Warps>
static __device__ __forceinline__ void qsa_sum_groups(PLUMB_SHARED_PTR(int) histogram, PLUMB_SHARED_PTR(int) group)
{
	const int lane = static_cast<int>(threadIdx.x % 32);
	PLUMB_UNROLL
	for (int g = static_cast<int>(threadIdx.x / 32); g < GROUPS; g += Warps) {
		const int sum = qsa_warp_total(histogram[g * GROUP + lane] + histogram[g * GROUP + 32 + lane]);
		if (lane == 0)
			group[g] = sum;
	}
}

/* Of 32 counts, a lane each, from the largest keys down: the lane in which the wanted-th lies. above: in, keys above all of
 * them; out, above that lane's. */
static __device__ __forceinline__ int qsa_lane_of(int count, int wanted, int &above)
{
	const int lane = static_cast<int>(threadIdx.x % 32);
	int sum = count;
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2) {
		const int other = __shfl_up_sync(PLUMB_FULL_WARP, sum, offset);
		sum += lane >= offset ? other : 0;
	}
	sum += above - count;
	const int which =
		__ffs(static_cast<int>(__ballot_sync(PLUMB_FULL_WARP, sum < wanted && wanted <= sum + count))) - 1;
	above = __shfl_sync(PLUMB_FULL_WARP, sum, which);
	return which;
}

/* One warp: the digit of the wanted-th largest key, counted from the largest, and how many keys lie above it, in the sum of
 * the histograms of all blocks. First its group, then the digit: so little is read from the other blocks. */
static __device__ __forceinline__ void qsa_find_digit(
	PLUMB_SHARED_PTR(int) histogram, PLUMB_SHARED_PTR(int) group, int blocks, PLUMB_SHARED_PTR(int) found, int wanted)
{
	const int lane = static_cast<int>(threadIdx.x % 32);
	int count = group[GROUPS - 1 - lane], above = 0;

	if (blocks > 1) {
		int other[SELECT_CLUSTER];
		PLUMB_UNROLL
		for (int b = 0; b < SELECT_CLUSTER; b++)
			other[b] = plumb_cluster_shared(group, static_cast<unsigned>(b))[GROUPS - 1 - lane];
		count = 0;
		PLUMB_UNROLL
		for (int b = 0; b < SELECT_CLUSTER; b++)
			count += other[b];
	}
	const int g = GROUPS - 1 - qsa_lane_of(count, wanted, above);
	const int pair = g * (GROUP / 2) + 31 - lane; /* digits 2*pair and above it 2*pair + 1 */
	int2 both = PLUMB_AS(int2, histogram)[pair];
	if (blocks > 1) {
		int2 other[SELECT_CLUSTER];
		PLUMB_UNROLL
		for (int b = 0; b < SELECT_CLUSTER; b++)
			other[b] = PLUMB_AS(int2, plumb_cluster_shared(histogram, static_cast<unsigned>(b)))[pair];
		both.x = both.y = 0;
		PLUMB_UNROLL
		for (int b = 0; b < SELECT_CLUSTER; b++)
			both.x += other[b].x, both.y += other[b].y;
	}
	const int which = qsa_lane_of(both.x + both.y, wanted, above);
	if (lane == which) {
		const bool upper = wanted <= above + both.y;
		found[0] = 2 * pair + (upper ? 1 : 0);
		found[1] = upper ? above : above + both.y;
	}
}

/* How many of a warp's keys of a batch lie above the threshold, and how many equal it. */
template <int Each>
static __device__ __forceinline__ void qsa_count_warp(
	const uint32_t (&key)[Each], int32_t base, int32_t end, uint32_t threshold, int &above, int &equal)
{
	PLUMB_UNROLL
	for (int j = 0; j < Each; j++) {
		const int32_t i = qsa_batch_index<Each>(base, j);
		const bool live = i < end;
		above += __popc(__ballot_sync(PLUMB_FULL_WARP, live && key[j] > threshold));
		equal += __popc(__ballot_sync(PLUMB_FULL_WARP, live && key[j] == threshold));
	}
}

/* One block, or all of a cluster of SELECT_CLUSTER if there are more scores than one block holds at a time; block b of
 * them has the b-th contiguous share. A share longer than a batch is read again for every pass. */
template <int Warps>
static __global__ void __launch_bounds__(32 * Warps) qsa_select_kernel(const int32_t *position, int64_t token,
	const float *score, int32_t block_tokens, int32_t budget, int32_t *block, int32_t *count)
{
	enum { THREADS = 32 * Warps, Each = SELECT_BATCH / THREADS };
	PLUMB_SHARED_2D(int, histogram, PASSES, DIGITS);
	PLUMB_SHARED_2D(int, group, PASSES, GROUPS);
	PLUMB_SHARED_2D(int, found, PASSES, 2); /* digit, keys above it */
	PLUMB_SHARED(int, warp_above, Warps);
	PLUMB_SHARED(int, warp_equal, Warps);
	PLUMB_SHARED(int, share, 2); /* keys above the threshold and equal to it in the block's share */
	const int32_t n = static_cast<int32_t>(*position + token + 1) / block_tokens;
	const int32_t chosen = min(n, budget);
	const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
	const int blocks = n > SELECT_BATCH ? static_cast<int>(gridDim.x) : 1, rank = static_cast<int>(blockIdx.x);

	for (int i = thread; i < PASSES * DIGITS; i += THREADS)
		histogram[i / DIGITS][i % DIGITS] = 0;
	if (thread < 2)
		share[thread] = 0;
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (rank == 0) {
		if (thread == 0)
			*count = chosen;
		for (int64_t i = thread; i < budget; i += THREADS)
			if (i >= chosen)
				block[i] = -1;
			else if (n <= budget)
				block[i] = static_cast<int32_t>(i);
	}
	if (n <= budget || rank >= blocks)
		return;
	const int32_t length = (n + blocks - 1) / blocks;
	const int32_t begin = rank * length, end = min(begin + length, n);
	const bool kept = length <= SELECT_BATCH;
	uint32_t key[Each];
	qsa_load_batch(score, begin, end, key);
	__syncthreads();

	uint32_t prefix = 0, prefix_mask = 0;
	int wanted = chosen;
	PLUMB_UNROLL
	for (int pass = 0; pass < PASSES; pass++) {
		const int shift = pass == 0 ? 32 - DIGIT_BITS : pass == 1 ? 32 - 2 * DIGIT_BITS : 0;
		const uint32_t digit_mask = pass < 2 ? DIGITS - 1 : (1u << (32 - 2 * DIGIT_BITS)) - 1;
		for (int32_t base = begin; base < end; base += SELECT_BATCH) {
			if (!kept)
				qsa_load_batch(score, base, end, key);
			PLUMB_UNROLL
			for (int j = 0; j < Each; j++)
				if (qsa_batch_index<Each>(base, j) < end && (key[j] & prefix_mask) == prefix)
					atomicAdd(&histogram[pass][static_cast<int>(key[j] >> shift & digit_mask)], 1);
		}
		__syncthreads();
		qsa_sum_groups<Warps>(histogram[pass], group[pass]);
		if (blocks > 1)
			plumb_cluster_sync();
		else
			__syncthreads();
		if (warp == 0)
			qsa_find_digit(histogram[pass], group[pass], blocks, found[pass], wanted);
		__syncthreads();
		prefix |= static_cast<uint32_t>(found[pass][0]) << shift;
		prefix_mask |= digit_mask << shift;
		wanted -= found[pass][1];
	}

	/* what the blocks before this one write */
	int written = 0, ties = wanted;
	if (blocks > 1) {
		int above = 0, equal = 0;
		for (int32_t base = begin; base < end; base += SELECT_BATCH) {
			if (!kept)
				qsa_load_batch(score, base, end, key);
			qsa_count_warp(key, base, end, prefix, above, equal);
		}
		if (lane == 0 && above)
			atomicAdd(&share[0], above);
		if (lane == 0 && equal)
			atomicAdd(&share[1], equal);
		plumb_cluster_sync();
		for (int b = 0; b < rank; b++) {
			const int same = min(plumb_cluster_shared(share, static_cast<unsigned>(b))[1], ties);
			written += plumb_cluster_shared(share, static_cast<unsigned>(b))[0] + same;
			ties -= same;
		}
	}
	/* the indices of the keys above the threshold, and of the first `ties` keys equal to it, in ascending order */
	for (int32_t base = begin; base < end; base += SELECT_BATCH) {
		const unsigned before = (1u << lane) - 1u;
		int above = 0, equal = 0;
		if (!kept)
			qsa_load_batch(score, base, end, key);
		qsa_count_warp(key, base, end, prefix, above, equal);
		if (lane == 0) {
			warp_above[warp] = above;
			warp_equal[warp] = equal;
		}
		__syncthreads();
		const int above_before = qsa_before_warp(warp_above), equal_before = qsa_before_warp(warp_equal);
		int at = written + above_before + min(equal_before, ties), left = max(ties - equal_before, 0);
		PLUMB_UNROLL
		for (int j = 0; j < Each; j++) {
			const int32_t i = qsa_batch_index<Each>(base, j);
			const bool is_equal = i < end && key[j] == prefix;
			const unsigned same = __ballot_sync(PLUMB_FULL_WARP, is_equal);
			const bool taken = (i < end && key[j] > prefix) || (is_equal && __popc(same & before) < left);
			const unsigned takers = __ballot_sync(PLUMB_FULL_WARP, taken);
			if (taken)
				block[at + __popc(takers & before)] = i;
			left = max(left - __popc(same), 0);
			at += __popc(takers);
		}
		if (base + SELECT_BATCH < end) { /* uniform: the next batch follows */
			int all_above = lane < Warps ? warp_above[lane] : 0;
			int all_equal = lane < Warps ? warp_equal[lane] : 0;
			PLUMB_UNROLL
			for (int offset = 1; offset < 32; offset *= 2) {
				all_above += __shfl_xor_sync(PLUMB_FULL_WARP, all_above, offset);
				all_equal += __shfl_xor_sync(PLUMB_FULL_WARP, all_equal, offset);
			}
			written += all_above + min(all_equal, ties);
			ties = max(ties - all_equal, 0);
			__syncthreads();
		}
	}
	if (blocks > 1)
		plumb_cluster_sync();
}

extern "C" int PLUMB_LAUNCHER(qsa_select)(const int32_t *position, int64_t token, const float *score, int32_t blocks,
	int32_t block_tokens, int32_t budget, int32_t *block, int32_t *count, void *stream)
{
	if (blocks > SELECT_BATCH)
		return PLUMB_LAUNCH_CLUSTER(qsa_select_kernel<CLUSTER_WARPS>, SELECT_CLUSTER, 32 * CLUSTER_WARPS, 0, stream,
			position, token, score, block_tokens, budget, block, count);
	return PLUMB_LAUNCH_DEPENDENT(qsa_select_kernel<SELECT_WARPS>, 1, 32 * SELECT_WARPS, 0, stream, position, token,
		score, block_tokens, budget, block, count);
}
