/* SPDX-License-Identifier: MIT */
/* GDN: conv window, recurrence, gated head norm. The projections are kernels/linear.cu.
 *
 * The recurrence is what costs: 3 MiB of state read and written a layer. A warp owns whole rows of Dk keys, so both dot
 * products stay inside it, there is no shared memory and no barrier, and the state moves once: all rows of a warp are
 * asked for before anything is computed. Query and key norms and the gates are computed again by every warp: some
 * hundred operations, hidden behind the loads of the state. */
#include "kernels/gdn.h"

#include "core/math32.h"
#include "kernels/value.h"

enum {
	CONV_THREADS = 64,    /* 160 blocks at 10240 channels */
	RECURRENCE_WARPS = 4, /* with 8 rows a warp 192 blocks at 48 heads of 128 rows */
	PER_LANE = PLUMB_HEAD_LANES / 32,
};

static __global__ void __launch_bounds__(CONV_THREADS) gdn_conv_kernel(struct plumb_gdn_conv_launch a)
{
	const int64_t ch = static_cast<int64_t>(blockIdx.x) * CONV_THREADS + threadIdx.x;
	if (ch >= a.channels)
		return;
	const int p = *a.position + a.row; /* 32 bits hold every position; a 64-bit modulo is a function call */
	const int first = p < a.taps - 1 ? a.taps - 1 - p : 0; /* taps before it reach before position 0 */
	int slot = (p - (a.taps - 1 - first)) % a.taps;
	const float newest = a.qkv[ch];
	float sum = 0.0f;

	for (int j = first; j < a.taps - 1; j++) {
		const float w = plumb_stored_value(a.format, a.conv, ch * a.taps + j);
		sum = fmaf(w, a.window[slot * a.channels + ch], sum);
		slot = slot + 1 == a.taps ? 0 : slot + 1;
	}
	sum = fmaf(plumb_stored_value(a.format, a.conv, ch * a.taps + a.taps - 1), newest, sum);
	a.window[p % a.taps * a.channels + ch] = newest;
	a.y[ch] = plumb_rne(a.bf16, plumb_siluf(plumb_rne(a.bf16, sum)));
}

extern "C" int PLUMB_LAUNCHER(gdn_conv)(const struct plumb_gdn_conv_launch *launch, void *stream)
{
	const int64_t blocks = (launch->channels + CONV_THREADS - 1) / CONV_THREADS;
	return PLUMB_LAUNCH(gdn_conv_kernel, static_cast<unsigned>(blocks), CONV_THREADS, 0, stream, *launch);
}

/* What a value head needs besides its state. */
struct head {
	const float *q, *k; /* (Dk) */
	const float *v;     /* (Dv) */
	float decay, beta;
};

static __device__ __forceinline__ struct head head_of(const struct plumb_gdn_recurrence_launch &a, int64_t h)
{
	const int64_t hk = h / (a.value_heads / a.key_heads);
	const float step = a.a[h] + plumb_stored_value(a.dt_bias_format, a.dt_bias, h);
	const float rate = plumb_expf(plumb_stored_value(a.a_log_format, a.a_log, h));
	struct head head;

	head.q = a.y + hk * a.key_dim;
	head.k = a.y + (a.key_heads + hk) * a.key_dim;
	head.v = a.y + 2 * a.key_heads * a.key_dim + h * a.value_dim;
	head.decay = plumb_expf(-(rate * plumb_softplusf(step)));
	head.beta = plumb_rne(a.bf16, plumb_sigmoidf(a.b[h]));
	return head;
}

/* A lane's part of a row of n values: value 4*s + j is element 128*s + 4*lane + j. The last lanes may have fewer. */
template <int Steps> struct lane_part {
	int live[Steps]; /* 0..4 */
};

template <int Steps> static __device__ __forceinline__ struct lane_part<Steps> part_of(int64_t n)
{
	struct lane_part<Steps> part;
PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const int64_t left = n - s * PLUMB_HEAD_LANES - threadIdx.x % 32 * PER_LANE;
		part.live[s] = left < 0 ? 0 : left < PER_LANE ? static_cast<int>(left) : PER_LANE;
	}
	return part;
}

/* vector: rows are 16-byte aligned and n is a multiple of 4, so that live is 0 or 4. */
template <int Steps>
static __device__ __forceinline__ void load_part(
	const float *row, const struct lane_part<Steps> &part, bool vector, float (&x)[PER_LANE * Steps])
{
PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const float *p = row + s * PLUMB_HEAD_LANES + threadIdx.x % 32 * PER_LANE;
		float4 v = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
		if (vector) {
			if (part.live[s])
				v = __ldcs(PLUMB_AS(const float4, p));
		} else {
			v.x = 0 < part.live[s] ? p[0] : 0.0f;
			v.y = 1 < part.live[s] ? p[1] : 0.0f;
			v.z = 2 < part.live[s] ? p[2] : 0.0f;
			v.w = 3 < part.live[s] ? p[3] : 0.0f;
		}
		x[4 * s] = v.x, x[4 * s + 1] = v.y, x[4 * s + 2] = v.z, x[4 * s + 3] = v.w;
	}
}

/* The state's rows: the same, of Format. vector: rows are aligned to 4 values. */
template <int Format> static __device__ __forceinline__ uint32_t state_bits(float x)
{
	return Format == PLUMB_F16 ? plumb_f16_code(x) : plumb_f32_to_bf16(x);
}

template <int Format> static __device__ __forceinline__ float state_value(uint32_t bits)
{
	return Format == PLUMB_F16 ? plumb_f16_value(static_cast<uint16_t>(bits))
				   : plumb_bf16_to_f32(static_cast<uint16_t>(bits));
}

template <int Format> static __device__ __forceinline__ float state_get(const void *row, int64_t i)
{
	return Format == PLUMB_F32 ? static_cast<const float *>(row)[i]
				   : state_value<Format>(static_cast<const uint16_t *>(row)[i]);
}

template <int Format> static __device__ __forceinline__ void state_put(void *row, int64_t i, float x)
{
	if (Format == PLUMB_F32)
		static_cast<float *>(row)[i] = x;
	else
		static_cast<uint16_t *>(row)[i] = static_cast<uint16_t>(state_bits<Format>(x));
}

template <int Format, int Steps>
static __device__ __forceinline__ void load_state(
	const void *row, const struct lane_part<Steps> &part, bool vector, float (&x)[PER_LANE * Steps])
{
	if (Format == PLUMB_F32) {
		load_part<Steps>(static_cast<const float *>(row), part, vector, x);
		return;
	}
PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const uint16_t *p =
			static_cast<const uint16_t *>(row) + s * PLUMB_HEAD_LANES + threadIdx.x % 32 * PER_LANE;
		uint2 v = {0, 0}; /* is +0 in either format */
		if (vector) {
			if (part.live[s])
				v = __ldcs(PLUMB_AS(const uint2, p));
		} else {
			v.x = 0 < part.live[s] ? p[0] : 0u;
			v.x |= 1 < part.live[s] ? static_cast<uint32_t>(p[1]) << 16 : 0u;
			v.y = 2 < part.live[s] ? p[2] : 0u;
			v.y |= 3 < part.live[s] ? static_cast<uint32_t>(p[3]) << 16 : 0u;
		}
		x[4 * s] = state_value<Format>(v.x & 0xffffu), x[4 * s + 1] = state_value<Format>(v.x >> 16);
		x[4 * s + 2] = state_value<Format>(v.y & 0xffffu), x[4 * s + 3] = state_value<Format>(v.y >> 16);
	}
}

template <int Format, int Steps>
static __device__ __forceinline__ void store_state(
	void *row, const struct lane_part<Steps> &part, bool vector, const float (&x)[PER_LANE * Steps])
{
PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const int64_t at = s * PLUMB_HEAD_LANES + static_cast<int64_t>(threadIdx.x) % 32 * PER_LANE;
		if (vector && Format == PLUMB_F32) {
			if (part.live[s])
				__stcs(PLUMB_AS(float4, static_cast<float *>(row) + at),
					make_float4(x[4 * s], x[4 * s + 1], x[4 * s + 2], x[4 * s + 3]));
		} else if (vector) {
			const uint2 v = {state_bits<Format>(x[4 * s]) | state_bits<Format>(x[4 * s + 1]) << 16,
				state_bits<Format>(x[4 * s + 2]) | state_bits<Format>(x[4 * s + 3]) << 16};
			if (part.live[s])
				__stcs(PLUMB_AS(uint2, static_cast<uint16_t *>(row) + at), v);
		} else {
PLUMB_UNROLL
			for (int j = 0; j < PER_LANE; j++)
				if (j < part.live[s])
					state_put<Format>(row, at + j, x[4 * s + j]);
		}
	}
}

/* The lane's accumulators of strided(128). What is not live joins nothing: 0 times a NaN or Inf would. */
template <int Steps>
static __device__ __forceinline__ void part_products(const struct lane_part<Steps> &part,
	const float (&x)[PER_LANE * Steps], const float (&y)[PER_LANE * Steps], float (&acc)[PER_LANE])
{
PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		acc[j] = 0.0f;
PLUMB_UNROLL
	for (int s = 0; s < Steps; s++)
PLUMB_UNROLL
		for (int j = 0; j < PER_LANE; j++)
			acc[j] = j < part.live[s] ? fmaf(x[4 * s + j], y[4 * s + j], acc[j]) : acc[j];
}

/* plumb_warp_tree of several rows, their shuffles next to each other so that they overlap. */
template <int Rows>
static __device__ __forceinline__ void warp_trees(const float (&acc)[Rows][PER_LANE], float (&sum)[Rows])
{
PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = plumb_warp_sum((acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3]));
}

/* x / sqrt(sum x^2 + 1e-6) of the warp's vector, in place. */
template <int Steps>
static __device__ __forceinline__ void norm_part(const struct lane_part<Steps> &part, float (&x)[PER_LANE * Steps])
{
	float acc[PER_LANE];
	part_products<Steps>(part, x, x, acc);
	const float length = sqrtf(plumb_warp_tree<PER_LANE>(acc) + 1e-6f);
PLUMB_UNROLL
	for (int i = 0; i < PER_LANE * Steps; i++)
		x[i] = x[i] / length;
}

/* Dk <= 128*Steps. Rows state rows a warp, all in registers. Format: of the state. */
template <int Format, int Steps, int Rows>
static __global__ void __launch_bounds__(32 * RECURRENCE_WARPS)
	gdn_recurrence_kernel(struct plumb_gdn_recurrence_launch a)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int64_t blocks_per_head = (a.value_dim + RECURRENCE_WARPS * Rows - 1) / (RECURRENCE_WARPS * Rows);
	const int64_t h = blockIdx.x / blocks_per_head;
	const int64_t i0 = (blockIdx.x % blocks_per_head * RECURRENCE_WARPS + warp) * Rows;
	const int64_t left = a.value_dim - i0;
	if (left <= 0)
		return; /* a whole warp; there is no barrier below */
	const int rows = left < Rows ? static_cast<int>(left) : Rows;
	const int64_t row_bytes = a.key_dim * (Format == PLUMB_F32 ? 4 : 2);
	unsigned char *const state = static_cast<unsigned char *>(a.state) + (h * a.value_dim + i0) * row_bytes;
	const bool vector = a.key_dim % 4 == 0 && reinterpret_cast<uintptr_t>(a.y) % 16 == 0;
	const bool state_vector =
		a.key_dim % 4 == 0 && reinterpret_cast<uintptr_t>(a.state) % (Format == PLUMB_F32 ? 16 : 8) == 0;
	const struct lane_part<Steps> part = part_of<Steps>(a.key_dim);
	float s[Rows][PER_LANE * Steps], q[PER_LANE * Steps], k[PER_LANE * Steps], v[Rows];
	float acc[Rows][PER_LANE], sum[Rows];

PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) /* a row that is not there repeats the last one and is not stored */
		load_state<Format, Steps>(state + (r < rows ? r : rows - 1) * row_bytes, part, state_vector, s[r]);
	const struct head head = head_of(a, h);
	load_part<Steps>(head.q, part, vector, q);
	load_part<Steps>(head.k, part, vector, k);
PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		v[r] = head.v[i0 + (r < rows ? r : rows - 1)];
	norm_part<Steps>(part, q);
	norm_part<Steps>(part, k);
PLUMB_UNROLL
	for (int i = 0; i < PER_LANE * Steps; i++)
		q[i] = q[i] / a.root;

PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) {
PLUMB_UNROLL
		for (int i = 0; i < PER_LANE * Steps; i++)
			s[r][i] = s[r][i] * head.decay;
		part_products<Steps>(part, s[r], k, acc[r]);
	}
	warp_trees<Rows>(acc, sum);
PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) {
		const float delta = (v[r] - sum[r]) * head.beta;
PLUMB_UNROLL
		for (int i = 0; i < PER_LANE * Steps; i++)
			s[r][i] = fmaf(k[i], delta, s[r][i]);
		if (r < rows)
			store_state<Format, Steps>(state + r * row_bytes, part, state_vector, s[r]);
		part_products<Steps>(part, s[r], q, acc[r]);
	}
	warp_trees<Rows>(acc, sum);
PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		if (lane == r && r < rows)
			a.o[h * a.value_dim + i0 + r] = plumb_rne(a.bf16, sum[r]);
}

/* Any Dk: a row a warp, two passes over it. The second pass repeats the first one's decay product, to the same bits. */
template <int Format>
static __global__ void __launch_bounds__(32 * RECURRENCE_WARPS)
	gdn_recurrence_long_kernel(struct plumb_gdn_recurrence_launch a)
{
	const int lane = threadIdx.x % 32;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * RECURRENCE_WARPS + threadIdx.x / 32;
	if (row >= a.value_heads * a.value_dim)
		return;
	const struct head head = head_of(a, row / a.value_dim);
	const float q_length = sqrtf(plumb_warp_dot<PER_LANE>(head.q, head.q, a.key_dim) + 1e-6f);
	const float k_length = sqrtf(plumb_warp_dot<PER_LANE>(head.k, head.k, a.key_dim) + 1e-6f);
	unsigned char *const s =
		static_cast<unsigned char *>(a.state) + row * a.key_dim * (Format == PLUMB_F32 ? 4 : 2);
	float acc[PER_LANE] = {};

	for (int64_t i = lane * PER_LANE; i < a.key_dim; i += PLUMB_HEAD_LANES)
PLUMB_UNROLL
		for (int j = 0; j < PER_LANE; j++)
			if (i + j < a.key_dim)
				acc[j] = fmaf(state_get<Format>(s, i + j) * head.decay,
					head.k[i + j] / k_length, acc[j]);
	const float delta = (head.v[row % a.value_dim] - plumb_warp_tree<PER_LANE>(acc)) * head.beta;
PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		acc[j] = 0.0f;
	for (int64_t i = lane * PER_LANE; i < a.key_dim; i += PLUMB_HEAD_LANES)
PLUMB_UNROLL
		for (int j = 0; j < PER_LANE; j++)
			if (i + j < a.key_dim) {
				const float decayed = state_get<Format>(s, i + j) * head.decay;
				const float updated = fmaf(head.k[i + j] / k_length, delta, decayed);
				state_put<Format>(s, i + j, updated);
				acc[j] = fmaf(updated, head.q[i + j] / q_length / a.root, acc[j]);
			}
	const float sum = plumb_warp_tree<PER_LANE>(acc);
	if (lane == 0)
		a.o[row] = plumb_rne(a.bf16, sum);
}

/* Blocks of so many rows a warp. */
static unsigned recurrence_blocks(const struct plumb_gdn_recurrence_launch *a, int rows)
{
	const int64_t rows_per_block = RECURRENCE_WARPS * rows;
	return static_cast<unsigned>(a->value_heads * ((a->value_dim + rows_per_block - 1) / rows_per_block));
}

template <int Format> static int recurrence_launch(const struct plumb_gdn_recurrence_launch *launch, void *stream)
{
	const int threads = 32 * RECURRENCE_WARPS;
	const int64_t blocks = (launch->value_heads * launch->value_dim + RECURRENCE_WARPS - 1) / RECURRENCE_WARPS;

	if (launch->key_dim <= PLUMB_HEAD_LANES)
		return PLUMB_LAUNCH(
			(gdn_recurrence_kernel<Format, 1, 8>), recurrence_blocks(launch, 8), threads, 0, stream, *launch);
	if (launch->key_dim <= 2 * PLUMB_HEAD_LANES)
		return PLUMB_LAUNCH(
			(gdn_recurrence_kernel<Format, 2, 4>), recurrence_blocks(launch, 4), threads, 0, stream, *launch);
	return PLUMB_LAUNCH(
		(gdn_recurrence_long_kernel<Format>), static_cast<unsigned>(blocks), threads, 0, stream, *launch);
}

extern "C" int PLUMB_LAUNCHER(gdn_recurrence)(const struct plumb_gdn_recurrence_launch *launch, void *stream)
{
	switch (launch->state_format) {
	case PLUMB_F32:
		return recurrence_launch<PLUMB_F32>(launch, stream);
	case PLUMB_F16:
		return recurrence_launch<PLUMB_F16>(launch, stream);
	default: /* the host refuses others than bf16 */
		return recurrence_launch<PLUMB_BF16>(launch, stream);
	}
}

/* A warp a head. One warp a block, so that 48 heads are on 48 processors. */
static __global__ void __launch_bounds__(32) gdn_norm_gate_kernel(struct plumb_gdn_norm_gate_launch a)
{
	const int64_t h = blockIdx.x;
	const float *const o = a.o + h * a.head_dim, *const z = a.z + h * a.head_dim;
	const float sum = plumb_warp_dot<PER_LANE>(o, o, a.head_dim);
	const float r = plumb_rsqrtf(sum / static_cast<float>(a.head_dim) + a.eps);

	for (int64_t i = threadIdx.x; i < a.head_dim; i += 32) {
		const float n = plumb_rne(a.bf16, o[i] * r);
		const float t = plumb_rne(a.bf16, plumb_stored_value(a.format, a.norm, i) * n);
		const float gate = a.silu ? plumb_siluf(z[i]) : plumb_sigmoidf(z[i]);
		a.out[h * a.head_dim + i] = plumb_rne(a.bf16, t * gate);
	}
}

extern "C" int PLUMB_LAUNCHER(gdn_norm_gate)(const struct plumb_gdn_norm_gate_launch *launch, void *stream)
{
	return PLUMB_LAUNCH(gdn_norm_gate_kernel, static_cast<unsigned>(launch->heads), 32, 0, stream, *launch);
}
