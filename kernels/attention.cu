/* SPDX-License-Identifier: MIT */
/* Attention. The selected tokens are never gathered: a list entry is turned into a cache row where it is read, and a
 * row read serves all query heads of its kv head. Grids follow the capacity and the budget; blocks past the live
 * entries of *position and *count leave at once, so a captured launch is right at every position. */
#include "kernels/attention.h"

#include "kernels/heads.h"

enum {
	SCORE_WARPS = PLUMB_ATTN_TILE / PLUMB_KEYS, /* a block is a tile: four entries a warp */
	SCORE_HEADS = 4,                            /* query heads whose sums share shuffles */
	SCORE_PASS = 16,                            /* query heads staged at a time */
	SCORE_COLUMNS = 32 * PLUMB_KEY_COLUMNS,     /* largest head of the kernel that stages */
	WEIGHTED_WARPS = 8,
	WEIGHTED_SLICE = 128, /* dims of a block: 64 a warp, two a lane */
	WEIGHTED_STRIPS = WEIGHTED_SLICE / 64,
	WEIGHTED_HEADS = 3, /* query heads of a warp at a time */
	WEIGHTED_PASS = WEIGHTED_WARPS / WEIGHTED_STRIPS * WEIGHTED_HEADS,
	WEIGHTED_STRIDE = WEIGHTED_PASS / WEIGHTED_HEADS * 4, /* weights of an entry, a warp's 16-byte aligned */
	WEIGHTED_SUMS = (WEIGHTED_PASS + WEIGHTED_WARPS - 1) / WEIGHTED_WARPS, /* heads whose softmax a warp finds */
	WEIGHTED_TILES = 3,   /* tiles a lane has under way: 96 of a head */
	COMBINE_THREADS = 64, /* 96 blocks at 24 heads of 256 */
	COMBINE_CHUNKS = 33,  /* loads a thread has under way: 2051 tokens */
	ELEMENT_THREADS = 64,
};

/* --- attn_qk_rope --- */

/* A head a block. */
static __global__ void __launch_bounds__(32) attn_heads_kernel(struct plumb_attn_heads a)
{
	PLUMB_SHARED(float, turn, PLUMB_NEAR_HEAD);
	attn_head(a, blockIdx.x, turn);
}

extern "C" int PLUMB_LAUNCHER(attn_heads)(const struct plumb_attn_heads *a, void *stream)
{
	return PLUMB_LAUNCH_DEPENDENT(
		attn_heads_kernel, static_cast<unsigned>(a->q_heads + 2 * a->kv_heads), 32, 0, stream, *a);
}

/* --- attn_decode --- */

/* The list A(p): entries 0 .. listed-1 are the tokens of the selected blocks, the rest up to n is the tail. */
struct attn_list {
	int32_t n, listed, tail;
};

static __device__ __forceinline__ struct attn_list attn_list_of(const struct plumb_attn_token &a)
{
	const int32_t visible = static_cast<int32_t>(*a.position + a.token) + 1;
	const int32_t tail = visible % a.block_tokens, listed = *a.count * a.block_tokens;
	return {min(listed + tail, a.most), listed, visible - tail};
}

/* What a list may name as entry i's block, asked for before it is known whether the entry lies in a block: any of the N
 * places can be read. */
static __device__ __forceinline__ int32_t attn_entry_block(const struct plumb_attn_token &a, int32_t i)
{
	return a.block[min(i / a.block_tokens, a.budget - 1)];
}

/* Token of entry i; block: from attn_entry_block. */
static __device__ __forceinline__ int32_t attn_entry_token(
	const struct plumb_attn_token &a, const struct attn_list &list, int32_t i, int32_t block)
{
	return i >= list.listed ? list.tail + (i - list.listed) : block * a.block_tokens + i % a.block_tokens;
}

/* The end of the score kernels: score holds a pass of heads from head0 on, for the tile of the block. A warp a head, a lane an
 * entry. */
template <int Warps>
static __device__ __forceinline__ void attn_tile_sums(
	const struct plumb_attn_token &a, int32_t n, int32_t tile, int64_t head0, int heads, PLUMB_SHARED_PTR(float) score)
{
	const int lane = static_cast<int>(threadIdx.x % 32);
	const int64_t tiles = (a.most + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	const int32_t i = tile * PLUMB_ATTN_TILE + lane;

	const int warp = static_cast<int>(threadIdx.x / 32);
	float s[SCORE_PASS / Warps], largest[SCORE_PASS / Warps], sum[SCORE_PASS / Warps];
	PLUMB_UNROLL
	for (int k = 0; k < SCORE_PASS / Warps; k++) {
		const int h = warp + k * Warps;
		s[k] = i < n && h < heads ? score[h * PLUMB_ATTN_TILE + lane] : -INFINITY;
		/* which zero is the largest does not show: x - 0 and x - -0 have the same exponential */
		largest[k] = s[k];
	}
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		PLUMB_UNROLL
	for (int k = 0; k < SCORE_PASS / Warps; k++)
		largest[k] = plumb_larger(largest[k], __shfl_xor_sync(PLUMB_FULL_WARP, largest[k], offset));
	PLUMB_UNROLL
	for (int k = 0; k < SCORE_PASS / Warps; k++) {
		const float e = plumb_expf(s[k] - (largest[k] == -INFINITY ? 0.0f : largest[k]));
		sum[k] = plumb_warp_sum(i < n ? e : 0.0f);
	}
	PLUMB_UNROLL
	for (int k = 0; k < SCORE_PASS / Warps; k++) {
		const int h = warp + k * Warps;
		if (h < heads && i < n)
			a.weight[(head0 + h) * a.most + i] = s[k];
		if (h < heads && lane == 0)
			PLUMB_AS(float2, a.tile)[(head0 + h) * tiles + tile] = make_float2(largest[k], sum[k]);
	}
}

/* weight[h, i] = s_i, tile[h, t] = (m_t, S_t), for the entries of a tile and one kv head. Heads of up to 256 columns whose
 * rows are aligned. Everything a block reads is asked for before anything is computed: the queries of the kv head, which
 * go to shared memory with the two halves of a lane's 8 columns apart (no bank is asked twice), and the keys. */
template <int Format>
static __global__ void __launch_bounds__(32 * SCORE_WARPS) attn_score_kernel(struct plumb_attn_token a)
{
	enum { THREADS = 32 * SCORE_WARPS, UNITS = SCORE_COLUMNS / 4, LOADS = SCORE_PASS * UNITS / THREADS };
	PLUMB_SHARED(float4, query, SCORE_PASS * UNITS);
	PLUMB_SHARED(float, score, SCORE_PASS *PLUMB_ATTN_TILE);
	const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
	const int32_t kv = static_cast<int32_t>(blockIdx.x) % static_cast<int32_t>(a.kv_heads);
	const int32_t tile = static_cast<int32_t>(blockIdx.x) / static_cast<int32_t>(a.kv_heads);
	const int group = static_cast<int>(a.q_heads) / static_cast<int>(a.kv_heads);
	const int dim = static_cast<int>(a.head_dim);
	const int32_t mine = tile * PLUMB_ATTN_TILE + warp * PLUMB_KEYS + lane % PLUMB_KEYS;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	const int32_t block = attn_entry_block(a, mine);
	const struct attn_list list = attn_list_of(a);
	if (tile * PLUMB_ATTN_TILE >= list.n)
		return;
	/* A lane finds the row of one of the warp's entries. Past the end of the list the last entry stands in, past the end
	 * of a row its first column: a load under a condition is waited for before the next one goes out. */
	const unsigned char *const row = plumb_paged_row(a.keys,
		attn_entry_token(a, list, min(mine, list.n - 1), mine < list.n ? block : attn_entry_block(a, list.n - 1)),
		static_cast<int64_t>(kv) * dim);
	const int column = lane * PLUMB_KEY_COLUMNS;
	struct plumb_raw raw[PLUMB_KEYS];
	PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++) {
		const unsigned long long address =
			__shfl_sync(PLUMB_FULL_WARP, static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(row)), r);
		raw[r] = plumb_raw_load<Format>(
			reinterpret_cast<const void *>(static_cast<uintptr_t>(address)), column < dim ? column : 0);
	}
	for (int h0 = 0; h0 < group; h0 += SCORE_PASS) {
		const int heads = min(group - h0, static_cast<int>(SCORE_PASS));
		const float *const q = a.q + (static_cast<int64_t>(kv) * group + h0) * dim;
		float4 staged[LOADS];
		PLUMB_UNROLL
		for (int l = 0; l < LOADS; l++) {
			const int h = (thread + l * THREADS) / UNITS, unit = (thread + l * THREADS) % UNITS;
			staged[l] = *PLUMB_AS(const float4, q + min(h, heads - 1) * dim + (unit * 4 < dim ? unit * 4 : 0));
		}
		PLUMB_UNROLL
		for (int l = 0; l < LOADS; l++) {
			const int h = (thread + l * THREADS) / UNITS, unit = (thread + l * THREADS) % UNITS;
			query[h * UNITS + unit % 2 * (UNITS / 2) + unit / 2] = staged[l];
		}
		__syncthreads();
		float w[PLUMB_KEYS][PLUMB_KEY_COLUMNS];
		PLUMB_UNROLL
		for (int r = 0; r < PLUMB_KEYS; r++)
			plumb_raw_values<Format>(raw[r], a.keys.scale, w[r]);
		if (dim < SCORE_COLUMNS)
			PLUMB_UNROLL
		for (int r = 0; r < PLUMB_KEYS; r++)
			PLUMB_UNROLL
		for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
			w[r][j] = column < dim ? w[r][j] : 0.0f;
		PLUMB_NO_UNROLL
		for (int h = 0; h < heads; h += SCORE_HEADS) {
			float sum[SCORE_HEADS * PLUMB_KEYS];
			PLUMB_UNROLL
			for (int i = 0; i < SCORE_HEADS; i++) {
				const float4 lo = query[(h + i) * UNITS + lane],
					     hi = query[(h + i) * UNITS + UNITS / 2 + lane];
				float x[PLUMB_KEY_COLUMNS] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
				if (dim < SCORE_COLUMNS)
					PLUMB_UNROLL
				for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
					x[j] = column < dim ? x[j] : 0.0f;
				PLUMB_UNROLL
				for (int r = 0; r < PLUMB_KEYS; r++) {
					float p[PLUMB_KEY_COLUMNS];
					PLUMB_UNROLL
					for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
						p[j] = fmaf(w[r][j], x[j], 0.0f);
					sum[i * PLUMB_KEYS + r] =
						((p[0] + p[1]) + (p[2] + p[3])) + ((p[4] + p[5]) + (p[6] + p[7]));
				}
			}
			const float dot = plumb_warp_sums<SCORE_HEADS * PLUMB_KEYS>(sum);
			const int which = plumb_sum_of_lane<SCORE_HEADS * PLUMB_KEYS>();
			if (lane < SCORE_HEADS * PLUMB_KEYS && h + which / PLUMB_KEYS < heads)
				score[(h + which / PLUMB_KEYS) * PLUMB_ATTN_TILE + warp * PLUMB_KEYS + which % PLUMB_KEYS] =
					plumb_rne(a.bf16, plumb_rne(a.bf16, dot) * a.scale);
		}
		__syncthreads();
		attn_tile_sums<SCORE_WARPS>(a, list.n, tile, static_cast<int64_t>(kv) * group + h0, heads, score);
		if (h0 + SCORE_PASS < group)
			__syncthreads();
	}
}

/* The same for heads of any size and rows at any address. */
static __global__ void __launch_bounds__(32 * SCORE_WARPS) attn_score_any_kernel(struct plumb_attn_token a)
{
	PLUMB_SHARED(float, score, SCORE_PASS *PLUMB_ATTN_TILE);
	const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
	const int kv_heads = static_cast<int>(a.kv_heads), group = static_cast<int>(a.q_heads) / kv_heads;
	const int64_t kv = static_cast<int>(blockIdx.x) % kv_heads;
	const int32_t tile = static_cast<int32_t>(blockIdx.x) / kv_heads;
	const int32_t first = tile * PLUMB_ATTN_TILE + warp * PLUMB_KEYS;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	const struct attn_list list = attn_list_of(a);
	if (tile * PLUMB_ATTN_TILE >= list.n)
		return;
	const bool aligned = plumb_paged_aligned(a.keys, a.head_dim);
	const bool q_aligned = plumb_rows_aligned(PLUMB_F32, a.q, a.head_dim);
	const void *key[PLUMB_KEYS];
	float w[PLUMB_KEYS][PLUMB_KEY_COLUMNS];
	/* past the end of the list the last entry stands in: nothing else may be read */
	PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++) {
		const int32_t i = min(first + r, list.n - 1);
		key[r] = plumb_paged_row(a.keys, attn_entry_token(a, list, i, attn_entry_block(a, i)), kv * a.head_dim);
	}
	plumb_keys_load<32>(a.keys, key, a.head_dim, aligned, w);
	for (int h0 = 0; h0 < group; h0 += SCORE_PASS) {
		const int heads = min(group - h0, static_cast<int>(SCORE_PASS));
		for (int h = 0; h < heads; h++) {
			const float dot = plumb_key_dots<32>(
				a.keys, key, a.head_dim, aligned, w, a.q + (kv * group + h0 + h) * a.head_dim, q_aligned);
			if (lane < PLUMB_KEYS)
				score[h * PLUMB_ATTN_TILE + warp * PLUMB_KEYS + plumb_key_of_lane()] =
					plumb_rne(a.bf16, plumb_rne(a.bf16, dot) * a.scale);
		}
		__syncthreads();
		attn_tile_sums<SCORE_WARPS>(a, list.n, tile, static_cast<int64_t>(kv) * group + h0, heads, score);
		if (h0 + SCORE_PASS < group)
			__syncthreads();
	}
}

/* The softmax of Heads heads, h, h + step ..., from their tiles: largest scores and L, in every lane. Their chains of
 * shuffles and exponentials overlap. */
template <int Heads>
static __device__ __forceinline__ void attn_softmax_of(const struct plumb_attn_token &a, int32_t n,
	const int64_t (&head)[Heads], float (&most)[Heads], float (&sum)[Heads])
{
	const int32_t lane = static_cast<int32_t>(threadIdx.x % 32), tiles = (n + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	const int64_t stride = (a.most + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	const float2 *const tile = PLUMB_AS(const float2, a.tile);
	float2 near[Heads][WEIGHTED_TILES];
	float acc[Heads] = {};

	PLUMB_UNROLL
	for (int i = 0; i < Heads; i++)
		PLUMB_UNROLL
	for (int k = 0; k < WEIGHTED_TILES; k++) {
		near[i][k] = tile[head[i] * stride + min(lane + 32 * k, tiles - 1)]; /* one twice: not summed */
	}
	PLUMB_UNROLL
	for (int i = 0; i < Heads; i++) {
		most[i] = plumb_larger(plumb_larger(near[i][0].x, near[i][1].x), near[i][2].x);
		for (int32_t t = lane + 32 * WEIGHTED_TILES; t < tiles; t += 32)
			most[i] = plumb_larger(most[i], tile[head[i] * stride + t].x);
	}
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		PLUMB_UNROLL
	for (int i = 0; i < Heads; i++)
		most[i] = plumb_larger(most[i], __shfl_xor_sync(PLUMB_FULL_WARP, most[i], offset));
	PLUMB_UNROLL
	for (int i = 0; i < Heads; i++) {
		PLUMB_UNROLL
		for (int k = 0; k < WEIGHTED_TILES; k++) {
			const float joined = fmaf(near[i][k].y, plumb_expf(near[i][k].x - most[i]), acc[i]);
			acc[i] = lane + 32 * k < tiles ? joined : acc[i];
		}
		for (int32_t t = lane + 32 * WEIGHTED_TILES; t < tiles; t += 32) {
			const float2 far = tile[head[i] * stride + t];
			acc[i] = fmaf(far.y, plumb_expf(far.x - most[i]), acc[i]);
		}
	}
	PLUMB_UNROLL
	for (int i = 0; i < Heads; i++)
		sum[i] = plumb_warp_sum(acc[i]);
}

/* partial[chunk, h, d] = sum over the chunk's entries, serial by fmaf, of P[h, i] * v_i[d]: one chunk, one kv head, 128 dims
 * a block. The values are staged as binary32 before the scores exist: only the weights wait for them. */
template <int Format>
static __global__ void __launch_bounds__(32 * WEIGHTED_WARPS) attn_weighted_kernel(struct plumb_attn_token a)
{
	enum {
		THREADS = 32 * WEIGHTED_WARPS,
		UNITS = WEIGHTED_SLICE / PLUMB_KEY_COLUMNS, /* 8-column loads of a row */
		LOADS = PLUMB_ATTN_CHUNK * UNITS / THREADS, /* of a thread */
		WEIGHTS = PLUMB_ATTN_CHUNK * WEIGHTED_PASS / THREADS,
	};
	PLUMB_SHARED_2D(float, value, PLUMB_ATTN_CHUNK, WEIGHTED_SLICE);
	PLUMB_SHARED_2D(float, weight, PLUMB_ATTN_CHUNK, WEIGHTED_STRIDE);
	PLUMB_SHARED(unsigned char *, rows, PLUMB_ATTN_CHUNK);
	PLUMB_SHARED(float, head_largest, WEIGHTED_PASS);
	PLUMB_SHARED(float, head_sum, WEIGHTED_PASS);
	/* 32 bits: a 64-bit division is a function call */
	const int kv_heads = static_cast<int>(a.kv_heads), place = static_cast<int>(blockIdx.x);
	const int slices = (static_cast<int>(a.head_dim) + WEIGHTED_SLICE - 1) / WEIGHTED_SLICE;
	const int group = static_cast<int>(a.q_heads) / kv_heads;
	const int64_t d0 = place % slices * WEIGHTED_SLICE, kv = place / slices % kv_heads;
	const int32_t chunk = place / slices / kv_heads;
	const int32_t first = chunk * PLUMB_ATTN_CHUNK;
	const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
	int32_t mine = first + thread % PLUMB_ATTN_CHUNK, block = attn_entry_block(a, mine);
	const struct attn_list list = attn_list_of(a);
	const int entries = min(list.n - first, static_cast<int32_t>(PLUMB_ATTN_CHUNK));

	if (entries <= 0) {
		plumb_grid_dependency_wait();
		return;
	}
	if (mine >= list.n) {
		mine = list.n - 1;
		block = attn_entry_block(a, mine);
	}
	if (thread < PLUMB_ATTN_CHUNK) /* past the end the last entry, here and below: loads are not conditional */
		rows[thread] = plumb_paged_row(a.values, attn_entry_token(a, list, mine, block), kv * a.head_dim);
	__syncthreads();
	/* rows of f32 may be aligned and still end in the middle of 8 columns */
	const bool aligned = plumb_paged_aligned(a.values, a.head_dim) && a.head_dim % PLUMB_KEY_COLUMNS == 0;
	if (aligned) {
		struct plumb_raw raw[LOADS];
		PLUMB_UNROLL
		for (int l = 0; l < LOADS; l++) {
			const int64_t d = d0 + (thread + l * THREADS) % UNITS * PLUMB_KEY_COLUMNS;
			raw[l] = plumb_raw_load<Format>(rows[(thread + l * THREADS) / UNITS], d < a.head_dim ? d : 0);
		}
		PLUMB_UNROLL
		for (int l = 0; l < LOADS; l++) {
			const int e = (thread + l * THREADS) / UNITS,
				  c = (thread + l * THREADS) % UNITS * PLUMB_KEY_COLUMNS;
			float v[PLUMB_KEY_COLUMNS];
			plumb_raw_values<Format>(raw[l], a.values.scale, v);
			if (e >= entries || d0 + c >= a.head_dim)
				PLUMB_UNROLL
			for (int j = 0; j < PLUMB_KEY_COLUMNS; j++)
				v[j] = -0.0f;
			PLUMB_AS(float4, value[e] + c)[0] = make_float4(v[0], v[1], v[2], v[3]);
			PLUMB_AS(float4, value[e] + c)[1] = make_float4(v[4], v[5], v[6], v[7]);
		}
	} else {
		for (int i = thread; i < PLUMB_ATTN_CHUNK * WEIGHTED_SLICE; i += THREADS) {
			const int e = i / WEIGHTED_SLICE, c = i % WEIGHTED_SLICE;
			value[e][c] =
				e < entries && d0 + c < a.head_dim ? plumb_paged_value(a.values, rows[e], d0 + c) : -0.0f;
		}
	}
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	const int strip = warp % WEIGHTED_STRIPS, heads_of = warp / WEIGHTED_STRIPS;
	for (int h0 = 0; h0 < group; h0 += WEIGHTED_PASS) {
		float s[WEIGHTS];
		PLUMB_UNROLL
		for (int l = 0; l < WEIGHTS; l++) {
			const int e = min((thread + l * THREADS) % PLUMB_ATTN_CHUNK, entries - 1);
			const int h = min(h0 + (thread + l * THREADS) / PLUMB_ATTN_CHUNK, group - 1);
			s[l] = a.weight[(kv * group + h) * a.most + first + e];
		}
		/* a head that is not there is the last one again */
		int64_t head[WEIGHTED_SUMS];
		float largest[WEIGHTED_SUMS], sum[WEIGHTED_SUMS];
		PLUMB_UNROLL
		for (int i = 0; i < WEIGHTED_SUMS; i++)
			head[i] = kv * group + min(h0 + warp + i * WEIGHTED_WARPS, group - 1);
		attn_softmax_of<WEIGHTED_SUMS>(a, list.n, head, largest, sum);
		PLUMB_UNROLL
		for (int i = 0; i < WEIGHTED_SUMS; i++)
			if (lane == 0 && warp + i * WEIGHTED_WARPS < WEIGHTED_PASS) {
				head_largest[warp + i * WEIGHTED_WARPS] = largest[i];
				head_sum[warp + i * WEIGHTED_WARPS] = sum[i];
			}
		__syncthreads();
		PLUMB_UNROLL
		for (int l = 0; l < WEIGHTS; l++) {
			const int e = (thread + l * THREADS) % PLUMB_ATTN_CHUNK,
				  h = (thread + l * THREADS) / PLUMB_ATTN_CHUNK;
			const float p = plumb_rne(a.bf16, plumb_divf(plumb_expf(s[l] - head_largest[h]), head_sum[h]));
			/* an entry past the end adds +0 times -0, which changes no sum: products that underflow leave -0 */
			weight[e][h / WEIGHTED_HEADS * 4 + h % WEIGHTED_HEADS] = h0 + h < group && e < entries ? p : 0.0f;
		}
		__syncthreads();
		float low[WEIGHTED_HEADS] = {}, high[WEIGHTED_HEADS] = {};
		PLUMB_UNROLL_8
		for (int e = 0; e < PLUMB_ATTN_CHUNK; e++) {
			const float2 v = PLUMB_AS(const float2, value[e] + (strip * 64 + 2 * lane))[0];
			const float4 four = PLUMB_AS(const float4, weight[e] + heads_of * 4)[0]; /* three are used */
			const float w[WEIGHTED_HEADS] = {four.x, four.y, four.z};
			PLUMB_UNROLL
			for (int i = 0; i < WEIGHTED_HEADS; i++) {
				low[i] = fmaf(w[i], v.x, low[i]);
				high[i] = fmaf(w[i], v.y, high[i]);
			}
		}
		const int64_t d = d0 + strip * 64 + 2 * lane;
		PLUMB_UNROLL
		for (int i = 0; i < WEIGHTED_HEADS; i++) {
			const int64_t h = h0 + heads_of * WEIGHTED_HEADS + i;
			float *const out = a.partial + (chunk * a.q_heads + kv * group + h) * a.head_dim;
			if (h < group && d < a.head_dim)
				out[d] = low[i];
			if (h < group && d + 1 < a.head_dim)
				out[d + 1] = high[i];
		}
		if (h0 + WEIGHTED_PASS < group)
			__syncthreads();
	}
}

/* Element i of o = rne(chunk 0 + chunk 1 + ...), left to right. */
static __device__ __forceinline__ float combined(const struct plumb_attn_token &a, int32_t chunks, int64_t i, int64_t n)
{
	float part[COMBINE_CHUNKS];
	PLUMB_UNROLL
	for (int c = 0; c < COMBINE_CHUNKS; c++)
		part[c] = c < chunks ? a.partial[c * n + i] : 0.0f;
	float sum = part[0];
	PLUMB_UNROLL
	for (int c = 1; c < COMBINE_CHUNKS; c++)
		sum = c < chunks ? sum + part[c] : sum;
	for (int32_t c = COMBINE_CHUNKS; c < chunks; c++)
		sum = sum + a.partial[c * n + i];
	return plumb_rne(a.bf16, sum);
}

/* Gates lie behind the queries of each head. */
static __device__ __forceinline__ float gate_of(const struct plumb_attn_gate_launch &a, int64_t i)
{
	const int64_t h = static_cast<int>(i) / static_cast<int>(a.head_dim);
	return a.qg[(h + 1) * a.head_dim + i];
}

static __device__ __forceinline__ float gated(const struct plumb_attn_gate_launch &a, float o, float gate)
{
	return plumb_rne(a.bf16, o * plumb_rne(a.bf16, plumb_sigmoidf(gate)));
}

/* An element a thread. Gate: goes through attn_gate instead of to o. */
template <bool Gate>
static __global__ void __launch_bounds__(COMBINE_THREADS)
	attn_combine_kernel(struct plumb_attn_token a, struct plumb_attn_gate_launch g)
{
	const struct attn_list list = attn_list_of(a);
	const int64_t i = static_cast<int64_t>(blockIdx.x) * COMBINE_THREADS + threadIdx.x, n = a.q_heads * a.head_dim;
	const int32_t chunks = (list.n + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (i >= n)
		return;
	const float gate = Gate ? gate_of(g, i) : 0.0f;
	const float o = combined(a, chunks, i, n);
	if (Gate)
		g.out[i] = gated(g, o, gate);
	else
		a.o[i] = o;
}

/* Whether keys and queries can be read 8 columns at a time. */
static bool is_vector(const struct plumb_attn_token *a)
{
	const int64_t bytes = a->keys.format == PLUMB_F32 ? 4 : a->keys.format == PLUMB_CACHE_FP8 ? 1 : 2;
	const uintptr_t places = reinterpret_cast<uintptr_t>(a->keys.data) | static_cast<uintptr_t>(a->keys.width * bytes);

	return a->head_dim % PLUMB_KEY_COLUMNS == 0 && reinterpret_cast<uintptr_t>(a->q) % 16 == 0 &&
	       places % (bytes == 1 ? 8 : 16) == 0;
}

extern "C" int PLUMB_LAUNCHER(attn_score)(const struct plumb_attn_token *a, void *stream)
{
	const int64_t tiles = (a->most + PLUMB_ATTN_TILE - 1) / PLUMB_ATTN_TILE;
	const unsigned blocks = static_cast<unsigned>(tiles * a->kv_heads), threads = 32 * SCORE_WARPS;

	if (a->head_dim <= SCORE_COLUMNS && is_vector(a))
		switch (a->keys.format) {
		case PLUMB_F32:
			return PLUMB_LAUNCH_DEPENDENT(attn_score_kernel<PLUMB_F32>, blocks, threads, 0, stream, *a);
		case PLUMB_F16:
			return PLUMB_LAUNCH_DEPENDENT(attn_score_kernel<PLUMB_F16>, blocks, threads, 0, stream, *a);
		case PLUMB_BF16:
			return PLUMB_LAUNCH_DEPENDENT(attn_score_kernel<PLUMB_BF16>, blocks, threads, 0, stream, *a);
		default: /* no other is a cache's */
			return PLUMB_LAUNCH_DEPENDENT(attn_score_kernel<PLUMB_CACHE_FP8>, blocks, threads, 0, stream, *a);
		}
	return PLUMB_LAUNCH_DEPENDENT(attn_score_any_kernel, blocks, threads, 0, stream, *a);
}

extern "C" int PLUMB_LAUNCHER(attn_weighted)(const struct plumb_attn_token *a, void *stream)
{
	const int64_t chunks = (a->most + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;
	const int64_t slices = (a->head_dim + WEIGHTED_SLICE - 1) / WEIGHTED_SLICE;
	const unsigned blocks = static_cast<unsigned>(chunks * a->kv_heads * slices), threads = 32 * WEIGHTED_WARPS;

	switch (a->values.format) {
	case PLUMB_F32:
		return PLUMB_LAUNCH_DEPENDENT(attn_weighted_kernel<PLUMB_F32>, blocks, threads, 0, stream, *a);
	case PLUMB_F16:
		return PLUMB_LAUNCH_DEPENDENT(attn_weighted_kernel<PLUMB_F16>, blocks, threads, 0, stream, *a);
	case PLUMB_BF16:
		return PLUMB_LAUNCH_DEPENDENT(attn_weighted_kernel<PLUMB_BF16>, blocks, threads, 0, stream, *a);
	default:
		return PLUMB_LAUNCH_DEPENDENT(attn_weighted_kernel<PLUMB_CACHE_FP8>, blocks, threads, 0, stream, *a);
	}
}

static unsigned combine_blocks(const struct plumb_attn_token *a)
{
	return static_cast<unsigned>((a->q_heads * a->head_dim + COMBINE_THREADS - 1) / COMBINE_THREADS);
}

extern "C" int PLUMB_LAUNCHER(attn_combine)(const struct plumb_attn_token *a, void *stream)
{
	const struct plumb_attn_gate_launch none = {};
	return PLUMB_LAUNCH_DEPENDENT(attn_combine_kernel<false>, combine_blocks(a), COMBINE_THREADS, 0, stream, *a, none);
}

extern "C" int PLUMB_LAUNCHER(attn_combine_gate)(
	const struct plumb_attn_token *a, const struct plumb_attn_gate_launch *gate, void *stream)
{
	return PLUMB_LAUNCH_DEPENDENT(attn_combine_kernel<true>, combine_blocks(a), COMBINE_THREADS, 0, stream, *a, *gate);
}

/* --- attn_gate --- */

static __global__ void __launch_bounds__(ELEMENT_THREADS) attn_gate_kernel(struct plumb_attn_gate_launch a)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * ELEMENT_THREADS + threadIdx.x;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (i < a.heads * a.head_dim)
		a.out[i] = gated(a, a.o[i], gate_of(a, i));
}

extern "C" int PLUMB_LAUNCHER(attn_gate)(const struct plumb_attn_gate_launch *a, void *stream)
{
	const int64_t blocks = (a->heads * a->head_dim + ELEMENT_THREADS - 1) / ELEMENT_THREADS;
	return PLUMB_LAUNCH_DEPENDENT(attn_gate_kernel, static_cast<unsigned>(blocks), ELEMENT_THREADS, 0, stream, *a);
}
