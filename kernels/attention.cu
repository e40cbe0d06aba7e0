/* SPDX-License-Identifier: MIT */
/* Attention. The selected tokens are never gathered: a list entry is turned into a cache row where it is read, and a
 * row read serves all query heads of its kv head. Grids follow the capacity and the budget; blocks past the live
 * entries of *position and *count leave at once, so a captured launch is right at every position. */
#include "kernels/attention.h"

#include "kernels/paged.h"
#include "kernels/rotate.h"

enum {
	HEAD_WARPS = 4,
	SCORE_WARPS = 8,
	SCORE_TILE = SCORE_WARPS * PLUMB_KEYS, /* list entries of a block */
	SOFTMAX_THREADS = PLUMB_ROW_LANES,     /* a thread an accumulator of the strided sum */
	WEIGHTED_WARPS = 4,
	WEIGHTED_SLICE = 64, /* dims of a block: two a lane */
	WEIGHTED_HEADS = 4,  /* query heads of a warp at a time */
	WEIGHTED_PASS = WEIGHTED_WARPS * WEIGHTED_HEADS,
	ELEMENT_THREADS = 256,
};

/* --- attn_qk_rope --- */

/* A warp a head: Hq queries, Hkv keys, Hkv values. */
static __global__ void __launch_bounds__(32 * HEAD_WARPS) attn_heads_kernel(struct plumb_attn_heads a)
{
	const int32_t p = static_cast<int32_t>(*a.position + a.token);
	const struct plumb_rotation rotation = {a.rope + p * (2 * a.half), a.head_dim, a.half, a.eps, a.bf16};
	int64_t h = static_cast<int64_t>(blockIdx.x) * HEAD_WARPS + threadIdx.x / 32;

	if (h < a.q_heads) {
		plumb_rotate_head(rotation, a.qg + h * 2 * a.head_dim, a.q_norm_format, a.q_norm,
			a.q_normed ? a.q_normed + h * a.head_dim : nullptr, {PLUMB_F32, 1.0f, a.q + h * a.head_dim});
		return;
	}
	h -= a.q_heads;
	if (h < a.kv_heads) {
		plumb_rotate_head(rotation, a.k + h * a.head_dim, a.k_norm_format, a.k_norm,
			a.k_normed ? a.k_normed + h * a.head_dim : nullptr,
			plumb_paged_sink(a.keys, p, h * a.head_dim));
		return;
	}
	h -= a.kv_heads;
	if (h < a.kv_heads) {
		const struct plumb_sink row = plumb_paged_sink(a.values, p, h * a.head_dim);
		for (int64_t i = threadIdx.x % 32; i < a.head_dim; i += 32)
			plumb_sink_put(row, i, a.v[h * a.head_dim + i]);
	}
}

extern "C" int PLUMB_LAUNCHER(attn_heads)(const struct plumb_attn_heads *a, void *stream)
{
	const int64_t warps = a->q_heads + 2 * a->kv_heads;
	return PLUMB_LAUNCH(attn_heads_kernel, static_cast<unsigned>((warps + HEAD_WARPS - 1) / HEAD_WARPS),
		32 * HEAD_WARPS, 0, stream, *a);
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

static __device__ __forceinline__ int32_t attn_list_token(
	const struct plumb_attn_token &a, const struct attn_list &list, int32_t i)
{
	if (i >= list.listed)
		return list.tail + (i - list.listed);
	const int32_t b = i / a.block_tokens;
	return a.block[b] * a.block_tokens + (i - b * a.block_tokens);
}

/* weight[h, i] = rne(rne(q_h . k_i) * scale) for the 32 entries of a tile and one kv head; four entries a warp. */
static __global__ void __launch_bounds__(32 * SCORE_WARPS) attn_score_kernel(struct plumb_attn_token a)
{
	const struct attn_list list = attn_list_of(a);
	const int64_t kv = blockIdx.x % a.kv_heads, group = a.q_heads / a.kv_heads;
	const int32_t tile = static_cast<int32_t>(blockIdx.x / a.kv_heads);
	const int32_t first = tile * SCORE_TILE + static_cast<int32_t>(threadIdx.x / 32) * PLUMB_KEYS;

	if (first >= list.n)
		return;
	const bool aligned = plumb_paged_aligned(a.keys, a.head_dim);
	const bool q_aligned = plumb_rows_aligned(PLUMB_F32, a.q, a.head_dim);
	const int32_t mine = first + plumb_key_of_lane();
	const void *key[PLUMB_KEYS];
	float w[PLUMB_KEYS][PLUMB_KEY_COLUMNS];
	/* past the end of the list the last entry stands in: nothing else may be read */
PLUMB_UNROLL
	for (int r = 0; r < PLUMB_KEYS; r++)
		key[r] = plumb_paged_row(a.keys, attn_list_token(a, list, min(first + r, list.n - 1)), kv * a.head_dim);
	plumb_keys_load<32>(a.keys, key, a.head_dim, aligned, w);
	for (int64_t h = kv * group; h < (kv + 1) * group; h++) {
		const float dot =
			plumb_key_dots<32>(a.keys, key, a.head_dim, aligned, w, a.q + h * a.head_dim, q_aligned);
		if (threadIdx.x % 32 < PLUMB_KEYS && mine < list.n)
			a.weight[h * a.most + mine] = plumb_rne(a.bf16, plumb_rne(a.bf16, dot) * a.scale);
	}
}

/* weight[h] = rne(softmax(weight[h])), one head a block. Thread j owns the entries of accumulator j: it alone reads and
 * writes them. */
static __global__ void __launch_bounds__(SOFTMAX_THREADS) attn_softmax_kernel(struct plumb_attn_token a)
{
	PLUMB_SHARED(float, warp_max, SOFTMAX_THREADS / 32);
	PLUMB_SHARED(float, warp_sum, SOFTMAX_THREADS / 32);
	const struct attn_list list = attn_list_of(a);
	float *const s = a.weight + blockIdx.x * static_cast<int64_t>(a.most);
	const int first = static_cast<int>(threadIdx.x), warp = first / 32, lane = first % 32;
	/* which zero is the largest does not show: x - 0 and x - -0 have the same exponential */
	float largest = -INFINITY, acc = 0.0f;

	for (int32_t i = first; i < list.n; i += SOFTMAX_THREADS)
		largest = plumb_larger(largest, s[i]);
	largest = plumb_warp_larger(largest);
	if (lane == 0)
		warp_max[warp] = largest;
	__syncthreads();
	for (int v = 0; v < SOFTMAX_THREADS / 32; v++)
		largest = plumb_larger(largest, warp_max[v]);
	for (int32_t i = first; i < list.n; i += SOFTMAX_THREADS) {
		const float e = plumb_expf(s[i] - largest);
		s[i] = e;
		acc = acc + e;
	}
	const float sum = plumb_block_tree(acc, warp_sum);
	for (int32_t i = first; i < list.n; i += SOFTMAX_THREADS)
		s[i] = plumb_rne(a.bf16, plumb_divf(s[i], sum));
}

/* partial[chunk, h, d] = sum over the chunk's entries, serial by fmaf, of weight[h, i] * v_i[d]: one chunk, one kv
 * head, 64 dims a block. The values are staged as binary32, so that all loads are under way at once and every head
 * finds them near; a lane owns dims lane and lane + 32 of up to four heads. */
static __global__ void __launch_bounds__(32 * WEIGHTED_WARPS) attn_weighted_kernel(struct plumb_attn_token a)
{
	enum {
		THREADS = 32 * WEIGHTED_WARPS,
		UNITS = WEIGHTED_SLICE / PLUMB_KEY_COLUMNS, /* 8-column loads of a row */
		LOADS = PLUMB_ATTN_CHUNK * UNITS / THREADS, /* of a thread */
	};
	PLUMB_SHARED_2D(float, value, PLUMB_ATTN_CHUNK, WEIGHTED_SLICE);
	PLUMB_SHARED_2D(float, weight, WEIGHTED_PASS, PLUMB_ATTN_CHUNK);
	const struct attn_list list = attn_list_of(a);
	const int64_t slices = (a.head_dim + WEIGHTED_SLICE - 1) / WEIGHTED_SLICE, group = a.q_heads / a.kv_heads;
	const int64_t d0 = blockIdx.x % slices * WEIGHTED_SLICE, kv = blockIdx.x / slices % a.kv_heads;
	const int32_t chunk = static_cast<int32_t>(blockIdx.x / slices / a.kv_heads);
	const int32_t first = chunk * PLUMB_ATTN_CHUNK;
	const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;

	if (first >= list.n)
		return;
	const int entries = min(list.n - first, static_cast<int32_t>(PLUMB_ATTN_CHUNK));
	const bool aligned = plumb_paged_aligned(a.values, a.head_dim);
	float v[LOADS][PLUMB_KEY_COLUMNS];
PLUMB_UNROLL
	for (int l = 0; l < LOADS; l++) {
		const int e = (thread + l * THREADS) / UNITS;
		const int64_t d = d0 + (thread + l * THREADS) % UNITS * PLUMB_KEY_COLUMNS;
		const int32_t token = attn_list_token(a, list, first + min(e, entries - 1));
		plumb_load_columns(a.values, plumb_paged_row(a.values, token, kv * a.head_dim), d,
			plumb_columns_left(a.head_dim, d), aligned, v[l]);
	}
PLUMB_UNROLL
	for (int l = 0; l < LOADS; l++) {
		const int e = (thread + l * THREADS) / UNITS, c = (thread + l * THREADS) % UNITS * PLUMB_KEY_COLUMNS;
		PLUMB_AS(float4, value[e] + c)[0] = make_float4(v[l][0], v[l][1], v[l][2], v[l][3]);
		PLUMB_AS(float4, value[e] + c)[1] = make_float4(v[l][4], v[l][5], v[l][6], v[l][7]);
	}
	for (int64_t h0 = 0; h0 < group; h0 += WEIGHTED_PASS) {
		for (int i = thread; i < WEIGHTED_PASS * PLUMB_ATTN_CHUNK; i += THREADS) {
			const int64_t h = h0 + i / PLUMB_ATTN_CHUNK;
			const int e = i % PLUMB_ATTN_CHUNK;
			weight[i / PLUMB_ATTN_CHUNK][e] =
				h < group && e < entries ? a.weight[(kv * group + h) * a.most + first + e] : 0.0f;
		}
		__syncthreads();
		float low[WEIGHTED_HEADS] = {}, high[WEIGHTED_HEADS] = {};
		for (int e = 0; e < entries; e++) {
			const float x = value[e][lane], y = value[e][lane + 32];
PLUMB_UNROLL
			for (int i = 0; i < WEIGHTED_HEADS; i++) {
				const float w = weight[warp + i * WEIGHTED_WARPS][e];
				low[i] = fmaf(w, x, low[i]);
				high[i] = fmaf(w, y, high[i]);
			}
		}
PLUMB_UNROLL
		for (int i = 0; i < WEIGHTED_HEADS; i++) {
			const int64_t h = h0 + warp + i * WEIGHTED_WARPS;
			float *const out = a.partial + (chunk * a.q_heads + kv * group + h) * a.head_dim;
			if (h < group && d0 + lane < a.head_dim)
				out[d0 + lane] = low[i];
			if (h < group && d0 + lane + 32 < a.head_dim)
				out[d0 + lane + 32] = high[i];
		}
		__syncthreads();
	}
}

/* o = rne(chunk 0 + chunk 1 + ...), left to right, an element a thread. */
static __global__ void __launch_bounds__(ELEMENT_THREADS) attn_combine_kernel(struct plumb_attn_token a)
{
	const struct attn_list list = attn_list_of(a);
	const int64_t i = static_cast<int64_t>(blockIdx.x) * ELEMENT_THREADS + threadIdx.x, n = a.q_heads * a.head_dim;
	const int32_t chunks = (list.n + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;

	if (i >= n)
		return;
	float sum = a.partial[i];
	for (int32_t c = 1; c < chunks; c++)
		sum = sum + a.partial[c * n + i];
	a.o[i] = plumb_rne(a.bf16, sum);
}

extern "C" int PLUMB_LAUNCHER(attn_score)(const struct plumb_attn_token *a, void *stream)
{
	const int64_t tiles = (a->most + SCORE_TILE - 1) / SCORE_TILE;
	return PLUMB_LAUNCH(
		attn_score_kernel, static_cast<unsigned>(tiles * a->kv_heads), 32 * SCORE_WARPS, 0, stream, *a);
}

extern "C" int PLUMB_LAUNCHER(attn_softmax)(const struct plumb_attn_token *a, void *stream)
{
	return PLUMB_LAUNCH(attn_softmax_kernel, static_cast<unsigned>(a->q_heads), SOFTMAX_THREADS, 0, stream, *a);
}

extern "C" int PLUMB_LAUNCHER(attn_weighted)(const struct plumb_attn_token *a, void *stream)
{
	const int64_t chunks = (a->most + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;
	const int64_t slices = (a->head_dim + WEIGHTED_SLICE - 1) / WEIGHTED_SLICE;
	return PLUMB_LAUNCH(attn_weighted_kernel, static_cast<unsigned>(chunks * a->kv_heads * slices),
		32 * WEIGHTED_WARPS, 0, stream, *a);
}

extern "C" int PLUMB_LAUNCHER(attn_combine)(const struct plumb_attn_token *a, void *stream)
{
	const int64_t blocks = (a->q_heads * a->head_dim + ELEMENT_THREADS - 1) / ELEMENT_THREADS;
	return PLUMB_LAUNCH(attn_combine_kernel, static_cast<unsigned>(blocks), ELEMENT_THREADS, 0, stream, *a);
}

/* --- attn_gate --- */

static __global__ void __launch_bounds__(ELEMENT_THREADS)
	attn_gate_kernel(const float *o, const float *qg, float *out, int64_t heads, int64_t head_dim, int bf16)
{
	const int64_t i = static_cast<int64_t>(blockIdx.x) * ELEMENT_THREADS + threadIdx.x;
	if (i >= heads * head_dim)
		return;
	const float gate = qg[(i / head_dim * 2 + 1) * head_dim + i % head_dim];
	out[i] = plumb_rne(bf16, o[i] * plumb_rne(bf16, plumb_sigmoidf(gate)));
}

extern "C" int PLUMB_LAUNCHER(attn_gate)(
	const float *o, const float *qg, float *out, int64_t heads, int64_t head_dim, int bf16, void *stream)
{
	const int64_t blocks = (heads * head_dim + ELEMENT_THREADS - 1) / ELEMENT_THREADS;
	return PLUMB_LAUNCH(attn_gate_kernel, static_cast<unsigned>(blocks), ELEMENT_THREADS, 0, stream, o, qg, out,
		heads, head_dim, bf16);
}
