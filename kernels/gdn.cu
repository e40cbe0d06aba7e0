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
	CONV_NEAR = 4,        /* taps under way at a time */
	RECURRENCE_WARPS = 4, /* with 4 rows a warp 384 blocks at 48 heads of 128 rows: near 3 a processor */
	RECURRENCE_ROWS = 4,
	STEP_WARPS = 16, /* all of a value head in one block: 16 warps of 8 rows are the 128 that it may have */
	STEP_ROWS = 8,
	PER_LANE = PLUMB_HEAD_LANES / 32,
};

/* Where a token stands in the ring of a convolution. Known before the launch before has ended. */
struct conv_place {
	int first; /* taps before it reach before position 0 */
	int slot;  /* of tap 0 */
	int own;   /* of the token */
};

static __device__ __forceinline__ struct conv_place conv_place_of(const struct plumb_gdn_conv_launch &a)
{
	const int p = *a.position + a.row; /* 32 bits hold every position; a 64-bit modulo is a function call */
	return {p < a.taps - 1 ? a.taps - 1 - p : 0, (p + 1) % a.taps, p % a.taps};
}

/* The first CONV_NEAR taps of a channel: all are asked for before any is used. */
static __device__ __forceinline__ void conv_near(const struct plumb_gdn_conv_launch &a, const struct conv_place &at,
	int64_t ch, float newest, float (&row)[CONV_NEAR])
{
	int slot = at.slot;
	PLUMB_UNROLL
	for (int j = 0; j < CONV_NEAR; j++) {
		row[j] = j >= at.first && j < a.taps - 1 ? a.window[slot * a.channels + ch] : newest;
		slot = slot + 1 == a.taps ? 0 : slot + 1;
	}
}

static __device__ __forceinline__ float conv_sum(const struct plumb_gdn_conv_launch &a, const struct conv_place &at,
	const float (&weight)[CONV_NEAR], const float (&row)[CONV_NEAR])
{
	float sum = 0.0f;
	PLUMB_UNROLL
	for (int j = 0; j < CONV_NEAR; j++)
		sum = j >= at.first && j < a.taps ? fmaf(weight[j], row[j], sum) : sum;
	return sum;
}

/* The newest row takes the place of one that no tap of this token reads: no thread of any block can come too late. */
static __device__ __forceinline__ void conv_keep(
	const struct plumb_gdn_conv_launch &a, const struct conv_place &at, int64_t ch, float newest)
{
	a.window[at.own * a.channels + ch] = newest;
}

static __device__ __forceinline__ float conv_value(const struct plumb_gdn_conv_launch &a, float sum)
{
	return plumb_rne(a.bf16, plumb_siluf(plumb_rne(a.bf16, sum)));
}

/* A channel a thread. */
static __global__ void __launch_bounds__(CONV_THREADS) gdn_conv_kernel(struct plumb_gdn_conv_launch a)
{
	const int64_t ch = static_cast<int64_t>(blockIdx.x) * CONV_THREADS + threadIdx.x;
	const struct conv_place at = conv_place_of(a);
	const bool live = ch < a.channels;
	float weight[CONV_NEAR], row[CONV_NEAR];

	plumb_stored_values<CONV_NEAR>(a.format, a.conv, ch * a.taps, live ? a.taps : 0, weight);
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (!live)
		return;
	const float newest = a.qkv[ch];
	conv_near(a, at, ch, newest, row);
	float sum = conv_sum(a, at, weight, row);
	int slot = (at.slot + CONV_NEAR) % a.taps;
	for (int j = CONV_NEAR; j < a.taps; j++) {
		const float x = j < a.taps - 1 ? a.window[slot * a.channels + ch] : newest;
		if (j >= at.first)
			sum = fmaf(plumb_stored_value(a.format, a.conv, ch * a.taps + j), x, sum);
		slot = slot + 1 == a.taps ? 0 : slot + 1;
	}
	conv_keep(a, at, ch, newest);
	a.y[ch] = conv_value(a, sum);
}

extern "C" int PLUMB_LAUNCHER(gdn_conv)(const struct plumb_gdn_conv_launch *launch, void *stream)
{
	const int64_t blocks = (launch->channels + CONV_THREADS - 1) / CONV_THREADS;
	return PLUMB_LAUNCH_DEPENDENT(gdn_conv_kernel, static_cast<unsigned>(blocks), CONV_THREADS, 0, stream, *launch);
}

/* Where a value head finds its vectors. */
struct head {
	const float *q, *k; /* (Dk) */
	const float *v;     /* (Dv) */
};

static __device__ __forceinline__ struct head head_of(const struct plumb_gdn_recurrence_launch &a, int64_t h)
{
	/* 32 bits: a 64-bit division is a function call */
	const int64_t hk = static_cast<int>(h) / (static_cast<int>(a.value_heads) / static_cast<int>(a.key_heads));
	return {a.y + hk * a.key_dim, a.y + (a.key_heads + hk) * a.key_dim,
		a.y + 2 * a.key_heads * a.key_dim + h * a.value_dim};
}

/* A lane's part of a row of n values: value 4*s + j is element 128*s + 4*lane + j. The last lanes may have fewer. */
template <int Steps> struct lane_part {
	int live[Steps]; /* 0..4 */
};

template <int Steps> static __device__ __forceinline__ struct lane_part<Steps> part_of(int64_t n) {
	struct lane_part<Steps> part;
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++) {
		const int64_t left = n - s * PLUMB_HEAD_LANES - threadIdx.x % 32 * PER_LANE;
		part.live[s] = left < 0 ? 0 : left < PER_LANE ? static_cast<int>(left) : PER_LANE;
	}
	return part;
}

/* Of 128*Steps values: known to the compiler. */
template <int Steps>
static __device__ __forceinline__ struct lane_part<Steps> whole_part(void) {
	struct lane_part<Steps> part;
	PLUMB_UNROLL
	for (int s = 0; s < Steps; s++)
		part.live[s] = PER_LANE;
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
	if (Format == PLUMB_F32)
		load_part<Steps>(static_cast<const float *>(row), part, vector, x);
	PLUMB_UNROLL
	for (int s = 0; s < Steps && Format != PLUMB_F32; s++) {
		const uint16_t *p = static_cast<const uint16_t *>(row) + s * PLUMB_HEAD_LANES + threadIdx.x % 32 * PER_LANE;
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

static __device__ __forceinline__ void store_part(
	float *row, const struct lane_part<1> &part, bool vector, const float (&x)[PER_LANE])
{
	float *const p = row + threadIdx.x % 32 * PER_LANE;
	if (vector) {
		if (part.live[0])
			*PLUMB_AS(float4, p) = make_float4(x[0], x[1], x[2], x[3]);
		return;
	}
	PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		if (j < part.live[0])
			p[j] = x[j];
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

/* plumb_warp_tree of several rows at once: a lane gets the sum of row plumb_sum_of_lane<Rows>(). */
template <int Rows> static __device__ __forceinline__ float warp_trees(const float (&acc)[Rows][PER_LANE])
{
	float sum[Rows];
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		sum[r] = (acc[r][0] + acc[r][1]) + (acc[r][2] + acc[r][3]);
	return plumb_warp_sums<Rows>(sum);
}

/* The first lane that gets the sum of row r of Rows from plumb_warp_sums. */
template <int Rows> static __device__ __forceinline__ int lane_of_row(int r)
{
	int lane = 0;
	PLUMB_UNROLL
	for (int level = 0; level < 5; level++)
		if (Rows >> (level + 1))
			lane |= (r & Rows >> (level + 1) ? 1 : 0) << level;
	return lane;
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

/* Ask for a warp's rows of the state. A load under a condition is waited for before the next one goes out: whole rows are
 * asked for without. A row that is not there is zeros and is not stored. */
template <int Format, int Steps, int Rows>
static __device__ __forceinline__ void state_rows(const unsigned char *state, int64_t row_bytes, int rows,
	bool state_vector, const struct lane_part<Steps> &part, int64_t key_dim, float (&s)[Rows][PER_LANE * Steps])
{
	const bool whole = state_vector && rows == Rows && key_dim == PLUMB_HEAD_LANES * Steps;
	if (whole)
		PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		load_state<Format, Steps>(state + r * row_bytes, whole_part<Steps>(), true, s[r]);
	else PLUMB_UNROLL
	for (int r = 0; r < Rows; r++)
		load_state<Format, Steps>(state + r * row_bytes, r < rows ? part : part_of<Steps>(0), state_vector, s[r]);
}

/* One token's step of a warp's rows, which s holds: decay, delta, update, store. v: lane r has that of row r. A lane gets the
 * output of row plumb_sum_of_lane<Rows>(), not rounded. */
template <int Format, int Steps, int Rows>
static __device__ __forceinline__ float state_step(unsigned char *state, int64_t row_bytes, int rows, bool state_vector,
	const struct lane_part<Steps> &part, float decay, float beta, float v, const float (&k)[PER_LANE * Steps],
	const float (&q)[PER_LANE * Steps], float (&s)[Rows][PER_LANE * Steps])
{
	float acc[Rows][PER_LANE];

	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) {
		PLUMB_UNROLL
		for (int i = 0; i < PER_LANE * Steps; i++)
			s[r][i] = s[r][i] * decay;
		part_products<Steps>(part, s[r], k, acc[r]);
	}
	const float held = warp_trees<Rows>(acc);
	PLUMB_UNROLL
	for (int r = 0; r < Rows; r++) {
		const float sum = __shfl_sync(PLUMB_FULL_WARP, held, lane_of_row<Rows>(r));
		const float delta = (__shfl_sync(PLUMB_FULL_WARP, v, r) - sum) * beta;
		PLUMB_UNROLL
		for (int i = 0; i < PER_LANE * Steps; i++)
			s[r][i] = fmaf(k[i], delta, s[r][i]);
		if (r < rows)
			store_state<Format, Steps>(state + r * row_bytes, part, state_vector, s[r]);
		part_products<Steps>(part, s[r], q, acc[r]);
	}
	return warp_trees<Rows>(acc);
}

/* Dk <= 128*Steps. Rows state rows a warp, all in registers. Format: of the state. While the state is on its way each of
 * the block's warps prepares one thing for all: the normed key, the normed query, the decay, beta. */
template <int Format, int Steps, int Rows>
static __global__ void __launch_bounds__(32 * RECURRENCE_WARPS) gdn_recurrence_kernel(struct plumb_gdn_recurrence_launch a)
{
	PLUMB_SHARED_2D(float4, normed, 2, 32 * Steps); /* key, query: a lane's part */
	PLUMB_SHARED(float, gate, 2);                   /* decay, beta */
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int rows_per_block = RECURRENCE_WARPS * Rows, value_dim = static_cast<int>(a.value_dim);
	const int blocks_per_head = (value_dim + rows_per_block - 1) / rows_per_block;
	const int64_t h = static_cast<int>(blockIdx.x) / blocks_per_head;
	const int i0 = (static_cast<int>(blockIdx.x) % blocks_per_head * RECURRENCE_WARPS + warp) * Rows;
	const int rows = max(0, min(value_dim - i0, Rows));
	const int64_t row_bytes = a.key_dim * (Format == PLUMB_F32 ? 4 : 2);
	unsigned char *const state = static_cast<unsigned char *>(a.state) + (h * a.value_dim + i0) * row_bytes;
	const bool vector = a.key_dim % 4 == 0 && reinterpret_cast<uintptr_t>(a.y) % 16 == 0;
	const bool state_vector =
		a.key_dim % 4 == 0 && reinterpret_cast<uintptr_t>(a.state) % (Format == PLUMB_F32 ? 16 : 8) == 0;
	const struct lane_part<Steps> part = part_of<Steps>(a.key_dim);
	float s[Rows][PER_LANE * Steps], q[PER_LANE * Steps], k[PER_LANE * Steps];

	for (int64_t at = lane * 128; at < rows * row_bytes; at += 32 * 128)
		plumb_prefetch(state + at);
	const float rate = warp == 2 ? plumb_expf(plumb_stored_value(a.a_log_format, a.a_log, h)) : 0.0f;
	const float bias = warp == 2 ? plumb_stored_value(a.dt_bias_format, a.dt_bias, h) : 0.0f;
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	state_rows<Format, Steps, Rows>(state, row_bytes, rows, state_vector, part, a.key_dim, s);
	const struct head head = head_of(a, h);
	const int mine = static_cast<int>(lane) % Rows;
	const float v = mine < rows ? head.v[i0 + mine] : 0.0f;
	if (warp < 2) {
		load_part<Steps>(warp ? head.q : head.k, part, vector, q);
		norm_part<Steps>(part, q);
		PLUMB_UNROLL
		for (int i = 0; i < PER_LANE * Steps; i++)
			q[i] = warp ? q[i] / a.root : q[i];
		PLUMB_UNROLL
		for (int i = 0; i < Steps; i++)
			normed[warp][i * 32 + lane] = make_float4(q[4 * i], q[4 * i + 1], q[4 * i + 2], q[4 * i + 3]);
	} else if (warp == 2) {
		const float decay = plumb_expf(-(rate * plumb_softplusf(a.a[h] + bias)));
		if (lane == 0)
			gate[0] = decay;
	} else {
		const float beta = plumb_rne(a.bf16, plumb_sigmoidf(a.b[h]));
		if (lane == 0)
			gate[1] = beta;
	}
	__syncthreads();
	if (rows == 0)
		return; /* a whole warp; there is no barrier below */
	const float decay = gate[0], beta = gate[1];
	PLUMB_UNROLL
	for (int i = 0; i < Steps; i++) {
		const float4 key = normed[0][i * 32 + lane], query = normed[1][i * 32 + lane];
		k[4 * i] = key.x, k[4 * i + 1] = key.y, k[4 * i + 2] = key.z, k[4 * i + 3] = key.w;
		q[4 * i] = query.x, q[4 * i + 1] = query.y, q[4 * i + 2] = query.z, q[4 * i + 3] = query.w;
	}
	const float sum =
		state_step<Format, Steps, Rows>(state, row_bytes, rows, state_vector, part, decay, beta, v, k, q, s);
	const int r = plumb_sum_of_lane<Rows>();
	if (lane < Rows && r < rows)
		a.o[h * a.value_dim + i0 + r] = plumb_rne(a.bf16, sum);
}

/* Any Dk: a row a warp, two passes over it. The second pass repeats the first one's decay product, to the same bits. */
template <int Format>
static __global__ void __launch_bounds__(32 * RECURRENCE_WARPS)
	gdn_recurrence_long_kernel(struct plumb_gdn_recurrence_launch a)
{
	const int lane = threadIdx.x % 32;
	const int64_t row = static_cast<int64_t>(blockIdx.x) * RECURRENCE_WARPS + threadIdx.x / 32;
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (row >= a.value_heads * a.value_dim)
		return;
	/* 32 bits, which count the blocks too: a 64-bit division is a function call */
	const int64_t h = static_cast<uint32_t>(row) / static_cast<uint32_t>(a.value_dim);
	const struct head head = head_of(a, h);
	const float step = a.a[h] + plumb_stored_value(a.dt_bias_format, a.dt_bias, h);
	const float rate = plumb_expf(plumb_stored_value(a.a_log_format, a.a_log, h));
	const float decay = plumb_expf(-(rate * plumb_softplusf(step)));
	const float beta = plumb_rne(a.bf16, plumb_sigmoidf(a.b[h]));
	const float q_length = sqrtf(plumb_warp_dot<PER_LANE>(head.q, head.q, a.key_dim) + 1e-6f);
	const float k_length = sqrtf(plumb_warp_dot<PER_LANE>(head.k, head.k, a.key_dim) + 1e-6f);
	unsigned char *const s = static_cast<unsigned char *>(a.state) + row * a.key_dim * (Format == PLUMB_F32 ? 4 : 2);
	float acc[PER_LANE] = {};

	for (int64_t i = lane * PER_LANE; i < a.key_dim; i += PLUMB_HEAD_LANES)
		PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		if (i + j < a.key_dim)
			acc[j] = fmaf(state_get<Format>(s, i + j) * decay, head.k[i + j] / k_length, acc[j]);
	const float delta = (head.v[row - h * a.value_dim] - plumb_warp_tree<PER_LANE>(acc)) * beta;
	PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		acc[j] = 0.0f;
	for (int64_t i = lane * PER_LANE; i < a.key_dim; i += PLUMB_HEAD_LANES)
		PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		if (i + j < a.key_dim) {
			const float decayed = state_get<Format>(s, i + j) * decay;
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
		return PLUMB_LAUNCH_DEPENDENT((gdn_recurrence_kernel<Format, 1, RECURRENCE_ROWS>),
			recurrence_blocks(launch, RECURRENCE_ROWS), threads, 0, stream, *launch);
	if (launch->key_dim <= 2 * PLUMB_HEAD_LANES)
		return PLUMB_LAUNCH_DEPENDENT((gdn_recurrence_kernel<Format, 2, RECURRENCE_ROWS>),
			recurrence_blocks(launch, RECURRENCE_ROWS), threads, 0, stream, *launch);
	return PLUMB_LAUNCH_DEPENDENT(
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

static __device__ __forceinline__ float norm_gate(
	const struct plumb_gdn_norm_gate_launch &a, float o, float r, float norm, float z)
{
	const float n = plumb_rne(a.bf16, o * r);
	const float t = plumb_rne(a.bf16, norm * n);
	return plumb_rne(a.bf16, t * (a.silu ? plumb_siluf(z) : plumb_sigmoidf(z)));
}

/* Heads of up to 128, a warp each: a lane holds the four neighbours whose squares it sums, and asks for all at once. */
static __global__ void __launch_bounds__(32) gdn_norm_gate_kernel(struct plumb_gdn_norm_gate_launch a)
{
	const int64_t h = blockIdx.x, first = threadIdx.x * PER_LANE;
	const struct lane_part<1> part = part_of<1>(a.head_dim);
	const uintptr_t addresses =
		reinterpret_cast<uintptr_t>(a.o) | reinterpret_cast<uintptr_t>(a.z) | reinterpret_cast<uintptr_t>(a.out);
	const bool vector = a.head_dim % PER_LANE == 0 && addresses % 16 == 0;
	float o[PER_LANE], z[PER_LANE], norm[PER_LANE], gate[PER_LANE], acc[PER_LANE];

	plumb_stored_values<PER_LANE>(a.format, a.norm, first, part.live[0], norm);
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	load_part<1>(a.o + h * a.head_dim, part, vector, o);
	load_part<1>(a.z + h * a.head_dim, part, vector, z);
	part_products<1>(part, o, o, acc);
	const float sum = plumb_warp_tree<PER_LANE>(acc);
	const float r = plumb_rsqrtf(sum / static_cast<float>(a.head_dim) + a.eps);
	PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		gate[j] = norm_gate(a, o[j], r, norm[j], z[j]);
	store_part(a.out + h * a.head_dim, part, vector, gate);
}

/* Heads of any size. */
static __global__ void __launch_bounds__(32) gdn_norm_gate_long_kernel(struct plumb_gdn_norm_gate_launch a)
{
	const int64_t h = blockIdx.x;
	const float *const o = a.o + h * a.head_dim, *const z = a.z + h * a.head_dim;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	const float sum = plumb_warp_dot<PER_LANE>(o, o, a.head_dim);
	const float r = plumb_rsqrtf(sum / static_cast<float>(a.head_dim) + a.eps);
	for (int64_t i = threadIdx.x; i < a.head_dim; i += 32)
		a.out[h * a.head_dim + i] = norm_gate(a, o[i], r, plumb_stored_value(a.format, a.norm, i), z[i]);
}

extern "C" int PLUMB_LAUNCHER(gdn_norm_gate)(const struct plumb_gdn_norm_gate_launch *launch, void *stream)
{
	if (launch->head_dim <= PLUMB_HEAD_LANES)
		return PLUMB_LAUNCH_DEPENDENT(
			gdn_norm_gate_kernel, static_cast<unsigned>(launch->heads), 32, 0, stream, *launch);
	return PLUMB_LAUNCH_DEPENDENT(
		gdn_norm_gate_long_kernel, static_cast<unsigned>(launch->heads), 32, 0, stream, *launch);
}

/* The thread's channel of the convolution: the first threads have the query's, the next 128 the key's, the next the value's,
 * each of them up to 128; the last 128 none. -1: none. */
static __device__ __forceinline__ int step_channel(const struct plumb_gdn_recurrence_launch &a, int h, int hk)
{
	const int kind = static_cast<int>(threadIdx.x) / PLUMB_HEAD_LANES,
		  i = static_cast<int>(threadIdx.x) % PLUMB_HEAD_LANES;
	const int key_dim = static_cast<int>(a.key_dim), value_dim = static_cast<int>(a.value_dim);
	const int keys = static_cast<int>(a.key_heads) * key_dim;

	if (kind < 2)
		return i < key_dim ? kind * keys + hk * key_dim + i : -1;
	return kind == 2 && i < value_dim ? 2 * keys + h * value_dim + i : -1;
}

/* Conv, recurrence and gated norm of one value head in a block. Value heads that share a key head make its query and key
 * each for themselves, and the first of them keeps the window. The last 128 threads finish an element of the output each. */
template <int Format>
static __global__ void __launch_bounds__(32 * STEP_WARPS, 1) gdn_step_kernel(struct plumb_gdn_step_launch a)
{
	PLUMB_SHARED_2D(float, y, 3, PLUMB_HEAD_LANES); /* query, key, value */
	PLUMB_SHARED_2D(float4, normed, 2, 32);         /* key, query: a lane's part */
	PLUMB_SHARED(float, gate, 2);                   /* decay, beta */
	PLUMB_SHARED(float, o, PLUMB_HEAD_LANES);
	const struct plumb_gdn_recurrence_launch &step = a.recurrence;
	const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, warp = thread / 32;
	const int kind = thread / PLUMB_HEAD_LANES, i = thread % PLUMB_HEAD_LANES;
	const int h = static_cast<int>(blockIdx.x), value_dim = static_cast<int>(step.value_dim);
	const int sharing = static_cast<int>(step.value_heads) / static_cast<int>(step.key_heads);
	const int ch = step_channel(step, h, h / sharing), i0 = warp * STEP_ROWS;
	const int rows = max(0, min(value_dim - i0, STEP_ROWS));
	const bool finishes = kind == 3 && i < value_dim;
	const int64_t row_bytes = step.key_dim * (Format == PLUMB_F32 ? 4 : 2);
	unsigned char *const head = static_cast<unsigned char *>(step.state) + h * value_dim * row_bytes;
	unsigned char *const state = head + i0 * row_bytes;
	const bool state_vector =
		step.key_dim % 4 == 0 && reinterpret_cast<uintptr_t>(step.state) % (Format == PLUMB_F32 ? 16 : 8) == 0;
	const struct lane_part<1> part = part_of<1>(step.key_dim);
	const struct conv_place at = conv_place_of(a.conv);
	float weight[CONV_NEAR], row[CONV_NEAR], s[STEP_ROWS][PER_LANE], q[PER_LANE], k[PER_LANE], acc[PER_LANE];

	if (thread * 128 < value_dim * row_bytes) /* 64 KiB at most: a line a thread */
		plumb_prefetch(head + thread * 128);
	plumb_stored_values<CONV_NEAR>(a.conv.format, a.conv.conv, static_cast<int64_t>(max(ch, 0)) * a.conv.taps,
		ch < 0 ? 0 : a.conv.taps, weight);
	const float rate = warp == 12 ? plumb_expf(plumb_stored_value(step.a_log_format, step.a_log, h)) : 0.0f;
	const float bias = warp == 12 ? plumb_stored_value(step.dt_bias_format, step.dt_bias, h) : 0.0f;
	const float norm = finishes ? plumb_stored_value(a.gate.format, a.gate.norm, i) : 0.0f;
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	const float newest = ch < 0 ? 0.0f : a.conv.qkv[ch];
	if (ch >= 0)
		conv_near(a.conv, at, ch, newest, row);
	const float z = finishes ? a.gate.z[h * value_dim + i] : 0.0f;
	const float raw = warp == 12 ? step.a[h] : warp == 13 ? step.b[h] : 0.0f;
	state_rows<Format, 1, STEP_ROWS>(state, row_bytes, rows, state_vector, part, step.key_dim, s);
	if (ch >= 0 && (kind == 2 || h % sharing == 0))
		conv_keep(a.conv, at, ch, newest);
	if (kind < 3) {
		y[kind][i] = ch < 0 ? 0.0f : conv_value(a.conv, conv_sum(a.conv, at, weight, row));
	} else if (warp == 12) {
		const float decay = plumb_expf(-(rate * plumb_softplusf(raw + bias)));
		if (lane == 0)
			gate[0] = decay;
	} else if (warp == 13) {
		const float beta = plumb_rne(step.bf16, plumb_sigmoidf(raw));
		if (lane == 0)
			gate[1] = beta;
	}
	__syncthreads();
	if (warp < 2) {
		PLUMB_UNROLL
		for (int j = 0; j < PER_LANE; j++)
			q[j] = y[1 - warp][lane * PER_LANE + j];
		norm_part<1>(part, q);
		PLUMB_UNROLL
		for (int j = 0; j < PER_LANE; j++)
			q[j] = warp ? q[j] / step.root : q[j];
		normed[warp][lane] = make_float4(q[0], q[1], q[2], q[3]);
	}
	__syncthreads();
	const float4 key = normed[0][lane], query = normed[1][lane];
	k[0] = key.x, k[1] = key.y, k[2] = key.z, k[3] = key.w;
	q[0] = query.x, q[1] = query.y, q[2] = query.z, q[3] = query.w;
	const float sum = state_step<Format, 1, STEP_ROWS>(
		state, row_bytes, rows, state_vector, part, gate[0], gate[1], y[2][i0 + lane % STEP_ROWS], k, q, s);
	const int r = plumb_sum_of_lane<STEP_ROWS>();
	if (lane < STEP_ROWS && r < rows)
		o[i0 + r] = plumb_rne(step.bf16, sum);
	__syncthreads();
	if (kind < 3)
		return;
	const struct lane_part<1> of_norm = part_of<1>(value_dim);
	float x[PER_LANE];
	PLUMB_UNROLL
	for (int j = 0; j < PER_LANE; j++)
		x[j] = o[lane * PER_LANE + j];
	part_products<1>(of_norm, x, x, acc);
	const float mean = plumb_warp_tree<PER_LANE>(acc) / static_cast<float>(value_dim);
	const float scale = plumb_rsqrtf(mean + a.gate.eps);
	if (finishes)
		a.gate.out[h * value_dim + i] = norm_gate(a.gate, o[i], scale, norm, z);
}

extern "C" int PLUMB_LAUNCHER(gdn_step)(const struct plumb_gdn_step_launch *launch, void *stream)
{
	const unsigned blocks = static_cast<unsigned>(launch->recurrence.value_heads);

	switch (launch->recurrence.state_format) {
	case PLUMB_F32:
		return PLUMB_LAUNCH_DEPENDENT(gdn_step_kernel<PLUMB_F32>, blocks, 32 * STEP_WARPS, 0, stream, *launch);
	case PLUMB_F16:
		return PLUMB_LAUNCH_DEPENDENT(gdn_step_kernel<PLUMB_F16>, blocks, 32 * STEP_WARPS, 0, stream, *launch);
	default: /* the host refuses others than bf16 */
		return PLUMB_LAUNCH_DEPENDENT(gdn_step_kernel<PLUMB_BF16>, blocks, 32 * STEP_WARPS, 0, stream, *launch);
	}
}
