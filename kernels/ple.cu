/* SPDX-License-Identifier: MIT */
/* PLE: hash and gather, gate, dilated conv. The two projections are kernels/linear.cu. */
#include "kernels/ple.h"

#include "core/math32.h"
#include "core/ops/ple.h"
#include "kernels/value.h"

enum {
	EMBED_WARPS = 16, /* the heads of the release: one each */
	GATE_THREADS = PLUMB_ROW_LANES,
	CONV_THREADS = 64, /* 160 blocks at 10240 channels */
};

/* The hash of order n: u_n of the contract. */
static __device__ int64_t ngram_hash(const struct plumb_ple_embed_launch &a, int n)
{
	int64_t u = *a.token * a.ngram->multiplier[0];
	bool cut = false; /* an EOS was met on the way back: everything before it counts as EOS */

	for (int j = 1; j < n; j++) {
		const int64_t id = a.history[a.ngram_size - 1 - j];
		cut = cut || id == a.eos;
		u ^= (cut ? a.eos : id) * a.ngram->multiplier[j];
	}
	return u;
}

/* One block, so that the history is replaced after everybody has read it, without a second launch. A warp takes one head
 * after the other. */
static __global__ void __launch_bounds__(32 * EMBED_WARPS) ple_embed_kernel(struct plumb_ple_embed_launch a)
{
	const int lane = threadIdx.x % 32;
	const int j = static_cast<int>(threadIdx.x);
	int64_t next = 0; /* history[j] after this token */

	if (j < a.ngram_size - 1)
		next = j < a.ngram_size - 2 ? a.history[j + 1] : *a.token;
	for (int h = static_cast<int>(threadIdx.x) / 32; h < a.heads; h += EMBED_WARPS) {
		const int64_t u = ngram_hash(a, 2 + h / a.heads_per_ngram);
		const int64_t r = u % a.ngram->prime[h] + a.ngram->offset[h];
		const struct plumb_matrix shard = plumb_bank_matrix(a.table, r / a.shard_rows);
		const int64_t n = r % a.shard_rows;
		if (lane == 0)
			a.row[h] = r;
		for (int64_t i = lane; i < a.width; i += 32)
			a.embedding[h * a.width + i] = plumb_matrix_value(shard, n, i, a.width);
	}
	__syncthreads();
	if (j < a.ngram_size - 1)
		a.history[j] = next;
}

extern "C" int PLUMB_LAUNCHER(ple_embed)(const struct plumb_ple_embed_launch *launch, void *stream)
{
	return PLUMB_LAUNCH(ple_embed_kernel, 1, 32 * EMBED_WARPS, 0, stream, *launch);
}

/* 1/sqrt(sum/n + eps) */
static __device__ __forceinline__ float inverse_rms(float sum, int64_t n, float eps)
{
	return plumb_rsqrtf(sum / static_cast<float>(n) + eps);
}

/* rne((x*r)*(1 + w)) */
static __device__ __forceinline__ float gnorm(int bf16, float x, float r, const struct plumb_ple_vector &w, int64_t i)
{
	return plumb_rne(bf16, (x * r) * (1.0f + plumb_stored_value(w.format, w.data, i)));
}

/* The signed square root of the gate and its sigmoid. */
static __device__ __forceinline__ float gate_weight(int bf16, float s, float least)
{
	const float size = fabsf(s) < least ? least : fabsf(s); /* a NaN stays, and makes the product NaN */
	const float sign = s > 0.0f ? 1.0f : s < 0.0f ? -1.0f : 0.0f;
	return plumb_rne(bf16, plumb_sigmoidf(plumb_rne(bf16, sqrtf(size)) * sign));
}

/* A block a stream. It walks its stream three times; what it reads stays in L1 and L2. */
static __global__ void __launch_bounds__(GATE_THREADS) ple_gate_kernel(struct plumb_ple_gate_launch a)
{
	PLUMB_SHARED_2D(float, partial, 4, GATE_THREADS / 32);
	const int64_t D = a.hidden, stream = static_cast<int64_t>(blockIdx.x) * D;
	const float *const key = a.key + stream, *const query = a.residual + stream;
	float key_squares = 0.0f, query_squares = 0.0f, products = 0.0f, squares = 0.0f;

	for (int64_t c = threadIdx.x; c < D; c += GATE_THREADS) {
		key_squares = fmaf(key[c], key[c], key_squares);
		query_squares = fmaf(query[c], query[c], query_squares);
	}
	const float key_r = inverse_rms(plumb_block_tree(key_squares, partial[0]), D, a.eps);
	const float query_r = inverse_rms(plumb_block_tree(query_squares, partial[1]), D, a.eps);
	for (int64_t c = threadIdx.x; c < D; c += GATE_THREADS) {
		const float k = gnorm(a.bf16, key[c], key_r, a.norm_key, stream + c);
		const float q = gnorm(a.bf16, query[c], query_r, a.norm_query, stream + c);
		products = products + plumb_rne(a.bf16, k * q);
	}
	const float sum = plumb_rne(a.bf16, plumb_block_tree(products, partial[2]));
	const float weight = gate_weight(a.bf16, plumb_rne(a.bf16, sum / a.root), a.least);
	for (int64_t c = threadIdx.x; c < D; c += GATE_THREADS) {
		const float u = plumb_rne(a.bf16, weight * a.value[c]);
		squares = fmaf(u, u, squares);
	}
	const float r = inverse_rms(plumb_block_tree(squares, partial[3]), D, a.eps);
	for (int64_t c = threadIdx.x; c < D; c += GATE_THREADS) {
		const float u = plumb_rne(a.bf16, weight * a.value[c]);
		a.gated[stream + c] = u;
		a.conv_in[stream + c] = gnorm(a.bf16, u, r, a.norm_conv, stream + c);
	}
}

extern "C" int PLUMB_LAUNCHER(ple_gate)(const struct plumb_ple_gate_launch *launch, void *stream)
{
	return PLUMB_LAUNCH(ple_gate_kernel, static_cast<unsigned>(launch->streams), GATE_THREADS, 0, stream, *launch);
}

/* A thread a channel. The oldest tap lies in the very row that the newest value replaces: read first, by the same
 * thread. */
static __global__ void __launch_bounds__(CONV_THREADS) ple_conv_kernel(struct plumb_ple_conv_launch a)
{
	const int64_t ch = static_cast<int64_t>(blockIdx.x) * CONV_THREADS + threadIdx.x;
	if (ch >= a.channels)
		return;
	/* 32 bits hold every position and W (core/config.h); a 64-bit modulo is a function call */
	const int p = *a.position + a.row, rows = (a.taps - 1) * a.dilation;
	const int reach = p / a.dilation; /* taps behind the newest that do not reach before position 0 */
	const int first = reach < a.taps - 1 ? a.taps - 1 - reach : 0;
	const float newest = a.conv_in[ch], gated = a.gated[ch], residual = a.residual[ch];
	float sum = 0.0f;

	if (rows > 0) { /* one tap has no history */
		int slot = (p - (a.taps - 1 - first) * a.dilation) % rows;
		for (int j = first; j < a.taps - 1; j++) {
			const float w = plumb_stored_value(a.format, a.conv, ch * a.taps + j);
			sum = fmaf(w, a.window[slot * a.channels + ch], sum);
			slot = slot + a.dilation < rows ? slot + a.dilation : slot + a.dilation - rows;
		}
		a.window[p % rows * a.channels + ch] = newest;
	}
	sum = fmaf(plumb_stored_value(a.format, a.conv, ch * a.taps + a.taps - 1), newest, sum);
	const float output = plumb_rne(a.bf16, gated + plumb_rne(a.bf16, plumb_siluf(plumb_rne(a.bf16, sum))));
	a.output[ch] = output;
	a.residual_out[ch] = plumb_rne(a.bf16, residual + output);
}

extern "C" int PLUMB_LAUNCHER(ple_conv)(const struct plumb_ple_conv_launch *launch, void *stream)
{
	const int64_t blocks = (launch->channels + CONV_THREADS - 1) / CONV_THREADS;
	return PLUMB_LAUNCH(ple_conv_kernel, static_cast<unsigned>(blocks), CONV_THREADS, 0, stream, *launch);
}
