/* SPDX-License-Identifier: MIT */
/* Kernels that use everything kernels/device.h offers, right and wrong. Built by the C++ compiler and by nvcc. */
#include "kernels/device.h"
#include "tests/simt_kernels.h"

#define FULL 0xffffffffu

static __device__ float as_float(const uint32_t *in, int i)
{
	return __uint_as_float(in[i]);
}

static __device__ float warp_add(float v)
{
	for (int offset = 16; offset; offset /= 2)
		v += __shfl_xor_sync(FULL, v, offset);
	return v;
}

static __device__ int thread_in_block(void)
{
	return static_cast<int>((threadIdx.z * blockDim.y + threadIdx.y) * blockDim.x + threadIdx.x);
}

static __device__ int thread_in_grid(void)
{
	const int block = static_cast<int>((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x);

	return block * static_cast<int>(blockDim.x * blockDim.y * blockDim.z) + thread_in_block();
}

#define LAUNCH(name, kernel, grid, block, shared_bytes)                                                                    \
	extern "C" int PLUMB_LAUNCHER(test_##name)(SIMT_ARGUMENTS)                                                         \
	{                                                                                                                  \
		return PLUMB_LAUNCH(kernel, grid, block, shared_bytes, stream, in, out, scratch);                          \
	}
#define LAUNCH_COOPERATIVE(name, kernel, grid, block)                                                                      \
	extern "C" int PLUMB_LAUNCHER(test_##name)(SIMT_ARGUMENTS)                                                         \
	{                                                                                                                  \
		return PLUMB_LAUNCH_COOPERATIVE(kernel, grid, block, 0, stream, in, out, scratch);                         \
	}
#define KERNEL_ARGUMENTS const uint32_t *__restrict__ in, uint32_t *__restrict__ out, uint32_t *__restrict__ scratch
#define UNUSED(x) (void)(x)

/* ---- right, and the wrong variants next to them ---- */

static __global__ void warp_sum_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid();
	float down = as_float(in, i);
	const float all = warp_add(down);

	for (int offset = 16; offset; offset /= 2)
		down += __shfl_down_sync(FULL, down, offset);
	out[2 * i] = __float_as_uint(all);
	out[2 * i + 1] = threadIdx.x % 32 == 0 ? __float_as_uint(down) : 0;
}
LAUNCH(warp_sum, warp_sum_kernel, 16, 128, 0)

template <bool Barrier> static __global__ void __launch_bounds__(256) block_sum_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(float, part, 8);
	const float v = warp_add(as_float(in, thread_in_grid()));

	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = v;
	if (Barrier)
		__syncthreads();
	if (threadIdx.x == 0) {
		float sum = 0.0f;

		for (int w = 0; w < 8; w++)
			sum += part[w];
		out[blockIdx.x] = __float_as_uint(sum);
	}
}
LAUNCH(block_sum, block_sum_kernel<true>, 32, 256, 0)
LAUNCH(block_sum_no_barrier, block_sum_kernel<false>, 32, 256, 0)

/* Inclusive scan of 200 values a block: six warps and a quarter. */
template <bool Barrier> static __global__ void scan_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, sums, 200);
	const int t = static_cast<int>(threadIdx.x);

	sums[t] = in[thread_in_grid()];
	__syncthreads();
	for (int step = 1; step < 200; step *= 2) {
		const uint32_t left = t >= step ? sums[t - step] : 0;

		if (Barrier)
			__syncthreads();
		sums[t] += left;
		__syncthreads();
	}
	out[thread_in_grid()] = sums[t];
}
LAUNCH(scan, scan_kernel<true>, 8, 200, 0)
LAUNCH(scan_no_barrier, scan_kernel<false>, 8, 200, 0)

static __global__ void votes_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid();
	const uint32_t v = in[i];
	uint32_t *mine = out + 10 * i;

	mine[0] = __ballot_sync(FULL, v & 1);
	mine[1] = static_cast<uint32_t>(__any_sync(FULL, (v & 31) == 0));
	mine[2] = static_cast<uint32_t>(__all_sync(FULL, (v & 31) != 0));
	mine[3] = static_cast<uint32_t>(__syncthreads_count(v & 2));
	mine[4] = static_cast<uint32_t>(__syncthreads_or((v & 255) == 0));
	mine[5] = static_cast<uint32_t>(__syncthreads_and((v & 255) != 0));
	mine[6] = static_cast<uint32_t>(__popc(mine[0] & ((1u << threadIdx.x % 32) - 1))); /* rank among the voters */
	mine[7] = static_cast<uint32_t>(__syncthreads_count(1));
	mine[8] = __reduce_max_sync(FULL, v);
	mine[9] = 0;
	if (threadIdx.x % 2 == 0) /* of half the lanes */
		mine[9] = __reduce_min_sync(0x55555555u, v);
}
LAUNCH(votes, votes_kernel, 10, 96, 0)

enum arrival { ARRIVE_RIGHT, ARRIVE_EARLY, ARRIVE_NO_BARRIER, ARRIVE_UNCHECKED, ARRIVE_PLAIN_COUNTER, ARRIVE_NO_FENCE };

/* Every block writes 64 partials; the last one to arrive adds those of all blocks, in block order. */
template <int How> static __global__ void last_arriver_kernel(KERNEL_ARGUMENTS)
{
	PLUMB_SHARED(unsigned, last, 1);
	unsigned *const counter = scratch;
	uint32_t *const partial = scratch + 64;
	const int t = static_cast<int>(threadIdx.x);
	const int blocks = static_cast<int>(gridDim.x);

	if (How == ARRIVE_EARLY && t == 0)
		last[0] = atomicAdd(counter, 1u) == gridDim.x - 1;
	partial[thread_in_grid()] = __float_as_uint(as_float(in, thread_in_grid()) * 3.0f);
	if (How != ARRIVE_NO_BARRIER)
		__syncthreads();
	if (How != ARRIVE_EARLY && t == 0) {
		if (How != ARRIVE_NO_FENCE)
			__threadfence();
		if (How == ARRIVE_PLAIN_COUNTER) {
			const unsigned before = *counter;

			*counter = before + 1;
			last[0] = before == gridDim.x - 1;
		} else {
			last[0] = atomicAdd(counter, 1u) == gridDim.x - 1;
		}
		if (How != ARRIVE_NO_FENCE)
			__threadfence();
	}
	__syncthreads();
	if (How == ARRIVE_UNCHECKED ? blockIdx.x == gridDim.x - 1 : last[0]) {
		float sum = 0.0f;

		for (int b = 0; b < blocks; b++)
			sum += __uint_as_float(__ldcg(&partial[b * static_cast<int>(blockDim.x) + t]));
		out[t] = __float_as_uint(sum);
	}
}
LAUNCH(last_arriver, last_arriver_kernel<ARRIVE_RIGHT>, 24, 64, 0)
LAUNCH(arrive_early, last_arriver_kernel<ARRIVE_EARLY>, 24, 64, 0)
LAUNCH(arrive_no_barrier, last_arriver_kernel<ARRIVE_NO_BARRIER>, 24, 64, 0)
LAUNCH(arrive_unchecked, last_arriver_kernel<ARRIVE_UNCHECKED>, 24, 64, 0)
LAUNCH(arrive_plain_counter, last_arriver_kernel<ARRIVE_PLAIN_COUNTER>, 24, 64, 0)
LAUNCH(arrive_no_fence, last_arriver_kernel<ARRIVE_NO_FENCE>, 24, 64, 0)

static __device__ float quad_sum(PLUMB_SHARED_PTR(float) values, int quad)
{
	const float4 v = PLUMB_AS(float4, values)[quad];

	return (v.x + v.y) + (v.z + v.w);
}

static __global__ void dynamic_shared_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_DYNAMIC_SHARED(float, values);
	PLUMB_SHARED(float, fixed, 32); /* must not overlap the dynamic part */
	const int t = static_cast<int>(threadIdx.x);

	if (t < 32)
		fixed[t] = static_cast<float>(t);
	for (int k = 0; k < 4; k++)
		values[k * 128 + t] = as_float(in, static_cast<int>(blockIdx.x) * 512 + k * 128 + t);
	__syncthreads();
	out[thread_in_grid()] = __float_as_uint(quad_sum(values, 127 - t) + quad_sum(values + 4 * t, 0) + fixed[t % 32]);
}
LAUNCH(dynamic_shared, dynamic_shared_kernel, 12, 128, 512 * sizeof(float))

static __global__ void grid_3d_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	UNUSED(scratch);
	out[thread_in_grid()] = threadIdx.x | threadIdx.y << 4 | threadIdx.z << 8 | blockIdx.x << 12 | blockIdx.y << 16 |
	                        blockIdx.z << 20 | __ballot_sync(FULL, threadIdx.y & 1) << 24;
}
LAUNCH(grid_3d, grid_3d_kernel, dim3(3, 4, 5), dim3(4, 8, 2), 0)

static __global__ void widths_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int lane = static_cast<int>(threadIdx.x) % 32;
	const int v = static_cast<int>(in[thread_in_grid()]);
	uint32_t hash = 0;

	for (int width = 1; width <= 32; width *= 2) {
		for (int by = 0; by < 32; by += 3) {
			hash = hash * 31u + static_cast<uint32_t>(__shfl_sync(FULL, v, by + lane, width));
			hash = hash * 31u +
			       static_cast<uint32_t>(__shfl_up_sync(FULL, v, static_cast<unsigned>(by), width));
			hash = hash * 31u +
			       static_cast<uint32_t>(__shfl_down_sync(FULL, v, static_cast<unsigned>(by), width));
			hash = hash * 31u + static_cast<uint32_t>(__shfl_xor_sync(FULL, v, by, width));
		}
	}
	out[thread_in_grid()] = hash;
}
LAUNCH(widths, widths_kernel, 4, 64, 0)

/* Three interleaved groups of lanes, each with a mask of its own and a number of steps of its own. */
static __global__ void odd_masks_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int lane = static_cast<int>(threadIdx.x) % 32, group = lane % 3;
	const unsigned mask = group == 2 ? 0x24924924u : group == 1 ? 0x92492492u : 0x49249249u;
	uint32_t v = in[thread_in_grid()];

	for (int step = 0; step < 3 + 2 * group; step++) {
		const int first = __ffs(static_cast<int>(mask)) - 1, last = 31 - __clz(static_cast<int>(mask));
		const int from = lane + 3 <= last ? lane + 3 : first;

		v = v * 5u + __shfl_sync(mask, v, from);
		v ^= __ballot_sync(mask, v & 4);
	}
	__syncwarp();
	out[thread_in_grid()] = v + __shfl_xor_sync(FULL, v, 1);
}
LAUNCH(odd_masks, odd_masks_kernel, 6, 96, 0)

static __global__ void shuffle_64_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid();
	const unsigned long long v = static_cast<unsigned long long>(in[i]) << 32 | in[i + 1];
	const long long s = __shfl_down_sync(FULL, static_cast<long long>(v), 5);
	const double d = static_cast<double>(as_float(in, i)) * 1.1;
	double sum = d;
	unsigned long long best = v;

	for (int offset = 16; offset; offset /= 2) {
		const unsigned long long other = __shfl_xor_sync(FULL, best, offset);

		best = other > best ? other : best;
		sum += __shfl_xor_sync(FULL, sum, offset);
	}
	const unsigned long long bits =
		static_cast<unsigned long long>(__double_as_longlong(sum)) ^ best ^ static_cast<unsigned long long>(s);

	out[2 * i] = static_cast<uint32_t>(bits);
	out[2 * i + 1] = static_cast<uint32_t>(bits >> 32);
}
LAUNCH(shuffle_64, shuffle_64_kernel, 5, 128, 0)

static __global__ void vector_loads_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(float, rows, 64 * 4);
	const int i = thread_in_grid(), t = static_cast<int>(threadIdx.x);
	const uint4 a = plumb_load_stream(PLUMB_AS(uint4, in) + i);
	const float4 b = __ldg(PLUMB_AS(float4, in) + i);
	const uint2 c = __ldcs(PLUMB_AS(uint2, in) + i);
	const float2 d = plumb_load_stream(PLUMB_AS(float2, in) + i);
	const int4 e = __ldcg(PLUMB_AS(int4, in) + i);
	uint4 r;

	PLUMB_AS(float4, rows)[t] = make_float4(b.w, b.z, b.y, b.x);
	__syncthreads();
	r.x = a.x + c.y + static_cast<uint32_t>(e.z);
	r.y = __float_as_uint(rows[4 * t + 3] * d.x);
	r.z = __float_as_uint(rows[4 * (63 - t)] + d.y);
	r.w = a.w ^ __ldg(in + i);
	__stcs(PLUMB_AS(uint4, out) + i, r);
}
LAUNCH(vector_loads, vector_loads_kernel, 4, 64, 0)

/* 48 threads: the second warp has 16 lanes. */
static __global__ void partial_warp_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid();
	const bool whole = threadIdx.x < 32;
	const unsigned mask = whole ? FULL : 0xffffu;
	float v = as_float(in, i);

	for (int offset = whole ? 16 : 8; offset; offset /= 2)
		v += __shfl_xor_sync(mask, v, offset);
	__syncthreads();
	__syncwarp(); /* legal: the lanes that do not exist are not waited for */
	out[i] = __float_as_uint(v);
}
LAUNCH(partial_warp, partial_warp_kernel, 20, 48, 0)

static __global__ void atomics_kernel(KERNEL_ARGUMENTS)
{
	PLUMB_SHARED(unsigned, bins, 16);
	const int t = static_cast<int>(threadIdx.x);
	const uint32_t v = in[thread_in_grid()];
	unsigned long long *const wide = reinterpret_cast<unsigned long long *>(scratch + 64);

	if (t < 16)
		bins[t] = 0;
	__syncthreads();
	atomicAdd(&bins[static_cast<int>(v % 16)], 1u);
	atomicAdd(scratch, v);
	atomicAdd(reinterpret_cast<int *>(scratch) + 1, static_cast<int>(v));
	atomicMax(scratch + 2, v);
	atomicMax(reinterpret_cast<int *>(scratch) + 3, static_cast<int>(v));
	atomicMin(reinterpret_cast<int *>(scratch) + 4, static_cast<int>(v));
	atomicOr(scratch + 5, 1u << v % 31);
	atomicXor(scratch + 6, v);
	atomicSub(scratch + 7, v);
	atomicInc(scratch + 8, 99u);
	atomicAdd(wide, static_cast<unsigned long long>(v) << 20);
	atomicMax(wide + 1, static_cast<unsigned long long>(v) << 32 | v);
	/* A maximum once more, by compare and swap. */
	unsigned seen = atomicOr(scratch + 9, 0u);

	while (v > seen) {
		const unsigned before = atomicCAS(scratch + 9, seen, v);

		if (before == seen)
			break;
		seen = before;
	}
	__syncthreads();
	if (t < 16)
		atomicAdd(scratch + 16 + t, bins[t]);
	/* The last block shows everything. */
	__syncthreads();
	if (t == 0) {
		__threadfence();
		if (atomicAdd(scratch + 128, 1u) == gridDim.x - 1) {
			__threadfence();
			for (int k = 0; k < 80; k++)
				out[k] = __ldcg(scratch + k);
			out[80] = atomicExch(scratch + 128, 7u);
			out[81] = atomicAnd(scratch + 128, 3u);
			out[82] = atomicAnd(scratch + 128, 3u);
		}
	}
}
LAUNCH(atomics, atomics_kernel, 9, 96, 0)

static __global__ void bits_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid();
	const uint32_t v = in[i] >> i % 33 % 32, w = in[i + 1];
	const unsigned long long x = (static_cast<unsigned long long>(v) << 32 | w) >> i % 64;
	uint32_t *mine = out + 8 * i;

	mine[0] = static_cast<uint32_t>(__popc(v) | __popcll(x) << 8);
	mine[1] = static_cast<uint32_t>(__clz(static_cast<int>(v)) | __clzll(static_cast<long long>(x)) << 8);
	mine[2] = static_cast<uint32_t>(__ffs(static_cast<int>(v)) | __ffsll(static_cast<long long>(x)) << 8);
	mine[3] = __brev(v);
	mine[4] = __byte_perm(v, w, w >> 3);
	mine[5] = static_cast<uint32_t>(__clz(0) | __ffs(0) << 8 | __popc(0) << 16);
	mine[6] = static_cast<uint32_t>(min(static_cast<int>(v), static_cast<int>(w))) ^ max(v, w);
	mine[7] = static_cast<uint32_t>(__float_as_int(__int_as_float(static_cast<int>(w))));
}
LAUNCH(bits, bits_kernel, 8, 64, 0)

/* Four rounds in which every thread reads what a thread of another block wrote in the round before. */
static __global__ void grid_barrier_kernel(KERNEL_ARGUMENTS)
{
	const int n = static_cast<int>(gridDim.x * blockDim.x), i = thread_in_grid();
	uint32_t *const ring = scratch + 64;

	__stcs(&ring[i], in[i]);
	for (int round = 0; round < 4; round++) {
		plumb_grid_sync(scratch);
		const uint32_t v = __ldcg(&ring[(i + 65 * (round + 1)) % n]);

		plumb_grid_sync(scratch);
		__stcs(&ring[i], v * 3u + static_cast<uint32_t>(i));
	}
	out[i] = ring[i];
}
LAUNCH_COOPERATIVE(grid_barrier, grid_barrier_kernel, 6, 64)

static __global__ void tile_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED_2D(uint32_t, tile, 16, 17);
	const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
	const int tx = static_cast<int>(blockIdx.x) * 16, ty = static_cast<int>(blockIdx.y) * 16;

	tile[y][x] = in[(ty + y) * 64 + tx + x];
	__syncthreads();
	out[(tx + y) * 64 + ty + x] = tile[x][y];
}
LAUNCH(tile, tile_kernel, dim3(4, 4), dim3(16, 16), 0)

static __global__ void argmax_kernel(KERNEL_ARGUMENTS)
{
	const int i = thread_in_grid();
	unsigned long long *const best = reinterpret_cast<unsigned long long *>(scratch);
	const uint32_t word = in[i] % 100u; /* ties */
	unsigned long long key = static_cast<unsigned long long>(word) << 32 | (0xffffffffu - static_cast<unsigned>(i));

	for (int offset = 16; offset; offset /= 2) {
		const unsigned long long other = __shfl_xor_sync(FULL, key, offset);

		key = max(key, other);
	}
	if (threadIdx.x % 32 == 0)
		atomicMax(best, key);
	__syncthreads();
	if (threadIdx.x == 0) {
		__threadfence();
		if (atomicAdd(scratch + 2, 1u) == gridDim.x - 1) {
			__threadfence();
			out[0] = 0xffffffffu - static_cast<unsigned>(atomicMax(best, 0ull));
		}
	}
}
LAUNCH(argmax, argmax_kernel, 16, 128, 0)

/* Half warps work for different times while the others already wait for the whole warp. */
static __global__ void subgroups_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int lane = static_cast<int>(threadIdx.x) % 32;
	const unsigned mask = lane < 16 ? 0xffffu : 0xffff0000u;
	const int steps = lane < 16 ? 7 : 2;
	uint32_t v = in[thread_in_grid()];

	for (int s = 0; s < steps; s++)
		v = v * 3u + __shfl_xor_sync(mask, v, s % 16);
	v += __shfl_sync(FULL, v, 31 - lane);
	out[thread_in_grid()] = v;
}
LAUNCH(subgroups, subgroups_kernel, 8, 64, 0)

/* Lanes exchange through shared memory, twice. */
template <bool First, bool Second> static __global__ void exchange_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, slots, 64);
	const int t = static_cast<int>(threadIdx.x);
	uint32_t v = in[thread_in_grid()];

	for (int round = 0; round < 2; round++) {
		slots[t] = v;
		if (First)
			__syncwarp();
		v = v * 7u + slots[t ^ 1];
		if (Second)
			__syncwarp();
	}
	out[thread_in_grid()] = v;
}
LAUNCH(exchange, (exchange_kernel<true, true>), 8, 64, 0)
LAUNCH(exchange_no_syncwarp, (exchange_kernel<false, true>), 8, 64, 0)
LAUNCH(exchange_no_second_syncwarp, (exchange_kernel<true, false>), 8, 64, 0)

/* A staging buffer used for several tiles: the second barrier of the loop keeps fast warps from refilling it too early.
 */
template <bool Barrier> static __global__ void reuse_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(float, stage, 128);
	const int t = static_cast<int>(threadIdx.x);
	float sum = 0.0f;

	for (int k = 0; k < 5; k++) {
		stage[t] = as_float(in, static_cast<int>(blockIdx.x) * 640 + k * 128 + t);
		__syncthreads();
		for (int j = 0; j < 128; j += 32)
			sum += stage[(t + j + 1) % 128] * static_cast<float>(j + 1);
		if (Barrier)
			__syncthreads();
	}
	out[thread_in_grid()] = __float_as_uint(sum);
}
LAUNCH(reuse, reuse_kernel<true>, 8, 128, 0)
LAUNCH(reuse_no_barrier, reuse_kernel<false>, 8, 128, 0)

/* Blocks read their right neighbour's values: wrong in place, since the neighbour may have written already. */
template <bool InPlace> static __global__ void copy_shift_kernel(const uint32_t *from, uint32_t *to, uint32_t *out)
{
	const int i = thread_in_grid(), n = static_cast<int>(gridDim.x * blockDim.x);
	const uint32_t v = __ldcg(&from[(i + 64) % n]);

	to[i] = v * 3u;
	out[i] = v * 3u;
}
extern "C" int PLUMB_LAUNCHER(test_copy_shift)(SIMT_ARGUMENTS)
{
	return PLUMB_LAUNCH(copy_shift_kernel<false>, 8, 64, 0, stream, in, scratch, out);
}

static __global__ void fill_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(out);
	scratch[thread_in_grid()] = in[thread_in_grid()];
}
extern "C" int PLUMB_LAUNCHER(test_copy_shift_in_place)(SIMT_ARGUMENTS)
{
	const int status = PLUMB_LAUNCH(fill_kernel, 8, 64, 0, stream, in, out, scratch);

	return status ? status : PLUMB_LAUNCH(copy_shift_kernel<true>, 8, 64, 0, stream, scratch, scratch, out);
}

/* Partials collected in the order of arrival, or in block order; the last block adds them. */
template <bool Arrival> static __global__ void ordered_sum_kernel(KERNEL_ARGUMENTS)
{
	uint32_t *const partial = scratch + 64;

	if (threadIdx.x == 0) {
		const unsigned place = Arrival ? atomicAdd(scratch + 1, 1u) : blockIdx.x;
		float sum = 0.0f;

		for (int k = 0; k < 16; k++)
			sum += as_float(in, static_cast<int>(blockIdx.x) * 16 + k);
		partial[place] = __float_as_uint(sum);
		__threadfence();
		if (atomicAdd(scratch, 1u) == gridDim.x - 1) {
			__threadfence();
			sum = 0.0f;
			for (unsigned b = 0; b < gridDim.x; b++)
				sum += __uint_as_float(__ldcg(partial + b));
			out[0] = __float_as_uint(sum);
		}
	}
}
LAUNCH(ordered_sum, ordered_sum_kernel<false>, 64, 32, 0)
LAUNCH(arrival_order_sum, ordered_sum_kernel<true>, 64, 32, 0)

/* 100 values in a buffer of 128, of which the tail must be cleared. */
template <bool Cleared> static __global__ void initialised_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(float, values, 128);
	const int t = static_cast<int>(threadIdx.x);

	if (t < 100)
		values[t] = as_float(in, static_cast<int>(blockIdx.x) * 100 + t);
	else if (Cleared)
		values[t] = 0.0f;
	__syncthreads();
	/* max(0, v) is what hides a NaN. */
	const float v = values[127 - t];

	out[thread_in_grid()] = __float_as_uint(v > 0.0f ? v : 0.0f);
}
LAUNCH(initialised, initialised_kernel<true>, 4, 128, 0)
LAUNCH(uninitialised, initialised_kernel<false>, 4, 128, 0)

/* Blocks take a ticket and wait for the one before: legal, since a ticket is only given to a block that runs. */
static __global__ void chain_kernel(KERNEL_ARGUMENTS)
{
	if (threadIdx.x == 0) {
		const unsigned ticket = atomicAdd(scratch, 1u);

		while (atomicAdd(scratch + 1, 0u) != ticket)
			__nanosleep(20);
		__threadfence();
		const uint32_t before = __ldcg(scratch + 2);

		scratch[2] = before * 3u + in[ticket];
		out[ticket] = before;
		__threadfence();
		atomicAdd(scratch + 1, 1u);
	}
}
LAUNCH(chain, chain_kernel, 40, 32, 0)

template <int Steps, int Scale>
static __global__ void arithmetic_kernel(const float *x, uint32_t *out, float offset, double wide)
{
	const int i = thread_in_grid();
	float a = x[i], b = x[i + 1] + offset;

	for (int s = 0; s < Steps; s++) {
		const float q = a / (b * b + 1.0f);

		a = fmaf(q, static_cast<float>(Scale), sqrtf(fabsf(b)) * q + a);
		b = __fmaf_rn(a, 0.25f, __fdiv_rn(b, 3.0f)) - __fmul_rn(a, __fsqrt_rn(0.5f)) + __fadd_rn(q, 1.0f);
		a = a * 0.5f + b * 0.25f; /* must not be contracted */
	}
	a += static_cast<float>(wide * static_cast<double>(b));
	out[2 * i] = __float_as_uint(a);
	out[2 * i + 1] = __float_as_uint(b * 0x1p-130f); /* subnormal results are kept */
}
extern "C" int PLUMB_LAUNCHER(test_arithmetic)(SIMT_ARGUMENTS)
{
	(void)scratch;
	/* An int for the float parameter, a float for the double one: converted, as in a call. */
	return PLUMB_LAUNCH(
		(arithmetic_kernel<6, 3>), 32, 128, 0, stream, reinterpret_cast<const float *>(in), out, 2, 0.1f);
}

static __global__ void producer_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(out);
	plumb_grid_launch_dependents();
	scratch[thread_in_grid()] = in[thread_in_grid()] * 5u;
}

static __global__ void consumer_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	plumb_grid_dependency_wait();
	out[thread_in_grid()] = __ldcg(&scratch[255 - thread_in_grid()]) + 1u;
}
extern "C" int PLUMB_LAUNCHER(test_dependent)(SIMT_ARGUMENTS)
{
	const int status = PLUMB_LAUNCH(producer_kernel, 4, 64, 0, stream, in, out, scratch);

	return status ? status : PLUMB_LAUNCH_DEPENDENT(consumer_kernel, 4, 64, 0, stream, in, out, scratch);
}

static __global__ void stream_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	plumb_grid_dependency_wait();
	out[thread_in_grid()] = plumb_load_stream(scratch + (255 - thread_in_grid())) + 1u;
}
extern "C" int PLUMB_LAUNCHER(test_dependent_stream)(SIMT_ARGUMENTS)
{
	const int status = PLUMB_LAUNCH(producer_kernel, 4, 64, 0, stream, in, out, scratch);

	return status ? status : PLUMB_LAUNCH_DEPENDENT(stream_kernel, 4, 64, 0, stream, in, out, scratch);
}

/* Three launches. The second lets the third begin, some of its four blocks before their own wait, the others after it; the third
 * reads what the first wrote, before its own wait: allowed where one block of the second waited, since then the first has
 * ended. */
static __global__ void relay_kernel(KERNEL_ARGUMENTS, unsigned early)
{
	UNUSED(in);
	UNUSED(scratch);
	if (blockIdx.x < early)
		plumb_grid_launch_dependents();
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	out[1024 + thread_in_grid()] = 7u;
}

static __global__ void last_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	const unsigned value = __ldcg(&scratch[255 - thread_in_grid()]) + 1u;
	plumb_grid_dependency_wait();
	out[thread_in_grid()] = value;
}

static int dependent_chain(SIMT_ARGUMENTS, unsigned early)
{
	int status = PLUMB_LAUNCH(producer_kernel, 4, 64, 0, stream, in, out, scratch);

	if (!status)
		status = PLUMB_LAUNCH_DEPENDENT(relay_kernel, 4, 64, 0, stream, in, out, scratch, early);
	return status ? status : PLUMB_LAUNCH_DEPENDENT(last_kernel, 4, 64, 0, stream, in, out, scratch);
}

extern "C" int PLUMB_LAUNCHER(test_dependent_chain_some)(SIMT_ARGUMENTS)
{
	return dependent_chain(in, out, scratch, stream, 3);
}

extern "C" int PLUMB_LAUNCHER(test_dependent_chain)(SIMT_ARGUMENTS)
{
	return dependent_chain(in, out, scratch, stream, 0);
}

/* ---- too early: launches do not overlap here, so the bits are right ---- */

extern "C" int PLUMB_LAUNCHER(test_dependent_chain_early)(SIMT_ARGUMENTS)
{
	return dependent_chain(in, out, scratch, stream, 4);
}

extern "C" int PLUMB_LAUNCHER(test_dependent_load_early)(SIMT_ARGUMENTS)
{
	const int status = PLUMB_LAUNCH(producer_kernel, 4, 64, 0, stream, in, out, scratch);

	return status ? status : PLUMB_LAUNCH_DEPENDENT(last_kernel, 4, 64, 0, stream, in, out, scratch);
}

static __global__ void store_early_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	if (threadIdx.x == 5)
		out[thread_in_grid()] = 0;
	plumb_grid_dependency_wait();
	out[thread_in_grid()] = __ldcg(&scratch[255 - thread_in_grid()]) + 1u;
}

extern "C" int PLUMB_LAUNCHER(test_dependent_store_early)(SIMT_ARGUMENTS)
{
	const int status = PLUMB_LAUNCH(producer_kernel, 4, 64, 0, stream, in, out, scratch);

	return status ? status : PLUMB_LAUNCH_DEPENDENT(store_early_kernel, 4, 64, 0, stream, in, out, scratch);
}

/* ---- reported ---- */

static __global__ void dependent_exit_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x == 9)
		return;
	plumb_grid_dependency_wait();
	out[thread_in_grid()] = in[0];
}
extern "C" int PLUMB_LAUNCHER(test_dependent_exit)(SIMT_ARGUMENTS)
{
	return PLUMB_LAUNCH_DEPENDENT(dependent_exit_kernel, 2, 64, 0, stream, in, out, scratch);
}

/* Blocks of a cluster read each other's shared memory. Leaves: block 2 does not wait for its readers. */
static __device__ void read_cluster(KERNEL_ARGUMENTS, bool leaves)
{
	UNUSED(scratch);
	PLUMB_SHARED_2D(unsigned, mine, 2, 64);
	plumb_grid_dependency_wait();
	mine[1][threadIdx.x] = in[thread_in_grid()];
	plumb_cluster_sync();
	if (leaves && blockIdx.x == 2)
		return;
	unsigned sum = 0;
	for (unsigned b = 0; b < gridDim.x; b++)
		sum = sum * 3u + plumb_cluster_shared(mine[1] + 3, b)[static_cast<int>(threadIdx.x) % 61];
	out[thread_in_grid()] = sum;
	plumb_cluster_sync();
}

static __global__ void cluster_kernel(KERNEL_ARGUMENTS)
{
	read_cluster(in, out, scratch, false);
}
extern "C" int PLUMB_LAUNCHER(test_cluster)(SIMT_ARGUMENTS)
{
	return PLUMB_LAUNCH_CLUSTER(cluster_kernel, 4, 64, 0, stream, in, out, scratch);
}

static __global__ void cluster_exit_kernel(KERNEL_ARGUMENTS)
{
	read_cluster(in, out, scratch, true);
}
extern "C" int PLUMB_LAUNCHER(test_cluster_exit)(SIMT_ARGUMENTS)
{
	return PLUMB_LAUNCH_CLUSTER(cluster_exit_kernel, 4, 64, 0, stream, in, out, scratch);
}

static __global__ void cluster_plain_kernel(KERNEL_ARGUMENTS)
{
	read_cluster(in, out, scratch, false);
}
extern "C" int PLUMB_LAUNCHER(test_cluster_plain)(SIMT_ARGUMENTS)
{
	return PLUMB_LAUNCH_COOPERATIVE(cluster_plain_kernel, 4, 64, 0, stream, in, out, scratch);
}

enum copying { COPIES_RIGHT, COPIES_NO_WAIT, COPIES_WEAK_WAIT, COPIES_NO_BARRIER, COPIES_REFILL };

/* Two rounds through two groups of three sizes, read by another thread of the warp. NO_WAIT: before they are waited for;
 * WEAK_WAIT: but for one group. NO_BARRIER: without one behind the wait. REFILL: the second round asks while others read. */
template <int How> static __global__ void copies_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, words, 64 * 7);
	const int t = static_cast<int>(threadIdx.x), other = t ^ 5;
	uint32_t sum = 0;

	for (int round = 0; round < 2; round++) {
		const uint32_t *const from = in + 1024 * static_cast<int>(blockIdx.x) + 512 * round;

		plumb_copy_async(PLUMB_AS(uint4, words) + t, PLUMB_AS(uint4, from) + t);
		plumb_copy_commit();
		plumb_copy_async(PLUMB_AS(uint2, words + 256) + t, PLUMB_AS(uint2, from + 256) + t);
		plumb_copy_async(words + 384 + t, from + 384 + t);
		plumb_copy_commit();
		if (How != COPIES_NO_WAIT)
			plumb_copy_wait<1>();
		if (How != COPIES_NO_BARRIER)
			__syncwarp();
		sum = sum * 3u + words[4 * other + 3];
		if (How == COPIES_WEAK_WAIT)
			plumb_copy_wait<1>();
		else if (How != COPIES_NO_WAIT)
			plumb_copy_wait<0>();
		if (How != COPIES_NO_BARRIER)
			__syncwarp();
		sum = sum * 3u + words[256 + 2 * other] + words[384 + other];
		plumb_copy_wait<0>();
		if (How != COPIES_REFILL)
			__syncwarp();
	}
	out[thread_in_grid()] = sum;
}
LAUNCH(copies, copies_kernel<COPIES_RIGHT>, 8, 64, 0)
LAUNCH(copies_no_wait, copies_kernel<COPIES_NO_WAIT>, 8, 64, 0)
LAUNCH(copies_weak_wait, copies_kernel<COPIES_WEAK_WAIT>, 8, 64, 0)
LAUNCH(copies_no_barrier, copies_kernel<COPIES_NO_BARRIER>, 8, 64, 0)
LAUNCH(copies_refill, copies_kernel<COPIES_REFILL>, 8, 64, 0)

static __global__ void copies_exit_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, words, 64);
	const int t = static_cast<int>(threadIdx.x);

	plumb_copy_async(words + t, in + t);
	plumb_copy_wait<0>(); /* of no group */
	out[t] = t;
}
LAUNCH(copies_exit, copies_exit_kernel, 1, 64, 0)

static __global__ void copies_range_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, words, 62);
	const int t = static_cast<int>(threadIdx.x);

	if (t < 16) /* the last is cut off */
		plumb_copy_async(PLUMB_AS(uint4, words) + t, PLUMB_AS(uint4, in) + t);
	plumb_copy_commit();
	plumb_copy_wait<0>();
	out[t] = words[t % 60];
}
LAUNCH(copies_range, copies_range_kernel, 1, 64, 0)

static __global__ void copies_misaligned_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, words, 256);
	const int t = static_cast<int>(threadIdx.x);

	plumb_copy_async(PLUMB_AS(uint2, words + 1) + t, PLUMB_AS(uint2, in) + t);
	plumb_copy_commit();
	plumb_copy_wait<0>();
	out[t] = words[t];
}
LAUNCH(copies_misaligned, copies_misaligned_kernel, 1, 64, 0)

static __global__ void barrier_exit_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (blockIdx.x == 1 && threadIdx.x == 37)
		return;
	__syncthreads();
	out[thread_in_grid()] = in[0];
}
LAUNCH(barrier_exit, barrier_exit_kernel, 2, 64, 0)

static __global__ void barrier_branch_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x < 32)
		__syncthreads();
	else
		__syncthreads();
	out[thread_in_grid()] = in[0];
}
LAUNCH(barrier_branch, barrier_branch_kernel, 1, 64, 0)

static __global__ void barrier_kind_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x == 5)
		__syncthreads_or(1);
	else
		__syncthreads();
	out[thread_in_grid()] = in[0];
}
LAUNCH(barrier_kind, barrier_kind_kernel, 1, 64, 0)

static __global__ void mask_wrong_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	/* Lane 9 leaves one bit out that all others name. */
	const unsigned mask = threadIdx.x == 9 ? 0xfffffffeu : FULL;

	out[thread_in_grid()] = __shfl_xor_sync(mask, in[thread_in_grid()], 2);
}
LAUNCH(mask_wrong, mask_wrong_kernel, 1, 32, 0)

static __global__ void mask_exited_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x == 20)
		return;
	out[thread_in_grid()] = __ballot_sync(FULL, in[thread_in_grid()] & 1);
}
LAUNCH(mask_exited, mask_exited_kernel, 1, 32, 0)

static __global__ void mask_without_self_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	out[thread_in_grid()] = __ballot_sync(0xffffu, in[thread_in_grid()] & 1);
}
LAUNCH(mask_without_self, mask_without_self_kernel, 1, 32, 0)

static __global__ void mask_at_barrier_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x % 32 == 3)
		__syncthreads();
	else
		__syncwarp();
	out[thread_in_grid()] = in[0];
}
LAUNCH(mask_at_barrier, mask_at_barrier_kernel, 1, 64, 0)

static __global__ void shuffle_unnamed_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x < 16)
		out[threadIdx.x] = __shfl_sync(0xffffu, in[threadIdx.x], 16);
}
LAUNCH(shuffle_unnamed, shuffle_unnamed_kernel, 1, 32, 0)

static __global__ void shuffle_missing_lane_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	out[thread_in_grid()] = __shfl_xor_sync(FULL, in[thread_in_grid()], 16);
}
LAUNCH(shuffle_missing_lane, shuffle_missing_lane_kernel, 1, 40, 0)

static __global__ void shuffle_width_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	out[thread_in_grid()] = __shfl_xor_sync(FULL, in[thread_in_grid()], 1, 12);
}
LAUNCH(shuffle_width, shuffle_width_kernel, 1, 32, 0)

static __global__ void shuffle_mixed_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	if (threadIdx.x & 1)
		out[threadIdx.x] = __shfl_xor_sync(FULL, in[threadIdx.x], 1);
	else
		out[threadIdx.x] =
			static_cast<uint32_t>(__shfl_xor_sync(FULL, static_cast<unsigned long long>(in[threadIdx.x]), 1));
}
LAUNCH(shuffle_mixed, shuffle_mixed_kernel, 1, 32, 0)

static __global__ void mask_cycle_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	/* 0 waits for 1, 1 for 2, 2 for 0. */
	const unsigned masks[3] = {3u, 6u, 5u};

	if (threadIdx.x < 3)
		__syncwarp(masks[threadIdx.x]);
	out[threadIdx.x] = in[0];
}
LAUNCH(mask_cycle, mask_cycle_kernel, 1, 32, 0)

static __global__ void shared_range_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(uint32_t, small, 63);
	const int t = static_cast<int>(threadIdx.x);

	small[t] = in[t];
	__syncthreads();
	out[t] = small[62 - t % 63];
}
LAUNCH(shared_range, shared_range_kernel, dim3(1, 2), 64, 0)

static __global__ void shared_negative_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_DYNAMIC_SHARED(uint32_t, values);
	const int t = static_cast<int>(threadIdx.x);

	values[t] = in[t];
	__syncthreads();
	out[t] = (values + t)[-1];
}
LAUNCH(shared_negative, shared_negative_kernel, 1, 64, 64 * 4)

static __global__ void shared_view_range_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_SHARED(float, values, 30);
	const int t = static_cast<int>(threadIdx.x);

	if (t < 30)
		values[t] = as_float(in, t);
	__syncthreads();
	if (t < 8)
		out[t] = __float_as_uint(PLUMB_AS(float4, values)[t].x); /* the eighth quad is cut off */
}
LAUNCH(shared_view_range, shared_view_range_kernel, 1, 32, 0)

static __global__ void shared_too_large_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	PLUMB_DYNAMIC_SHARED(uint32_t, big);
	PLUMB_SHARED(uint32_t, more, 1024);
	const int t = static_cast<int>(threadIdx.x);

	big[t] = in[t];
	more[t] = big[t];
	out[t] = more[t];
}
LAUNCH(shared_too_large, shared_too_large_kernel, 1, 32, 98 * 1024)

static __global__ void misaligned_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const uint4 v = __ldg(PLUMB_AS(uint4, in + threadIdx.x));

	out[threadIdx.x] = v.x;
}
LAUNCH(misaligned, misaligned_kernel, 1, 32, 0)

static __global__ void spin_forever_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	if (threadIdx.x == 33)
		while (atomicAdd(scratch, 0u) == 0)
			;
	__syncthreads();
	out[threadIdx.x] = 1;
}
LAUNCH(spin_forever, spin_forever_kernel, 1, 64, 0)

static __global__ void grid_barrier_exit_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	if (blockIdx.x == 2)
		return;
	plumb_grid_sync(scratch);
	out[thread_in_grid()] = 1;
}
LAUNCH_COOPERATIVE(grid_barrier_exit, grid_barrier_exit_kernel, 4, 32)

static __global__ void grid_barrier_plain_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	plumb_grid_sync(scratch);
	out[thread_in_grid()] = 1;
}
LAUNCH(grid_barrier_plain, grid_barrier_plain_kernel, 4, 32, 0)

static __global__ void grid_barrier_mixed_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	if (threadIdx.x < 32)
		plumb_grid_sync(scratch);
	else
		__syncthreads();
	out[thread_in_grid()] = 1;
}
LAUNCH_COOPERATIVE(grid_barrier_mixed, grid_barrier_mixed_kernel, 2, 64)

/* Never runs: no device has blocks of this size. */
LAUNCH(block_too_large, warp_sum_kernel, 1, 1056, 0)

/* ---- measured ---- */

static __global__ void yields_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(in);
	UNUSED(scratch);
	for (int k = 0; k < 2000; k++)
		__syncwarp();
	out[thread_in_grid()] = 1;
}
LAUNCH(yields, yields_kernel, 16, 128, 0)

static __global__ void no_yields_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	const int i = thread_in_grid() % SIMT_WORDS;

	out[i] = in[i] * 3u;
}
LAUNCH(no_yields, no_yields_kernel, 4096, 128, 0)

static __global__ void five_shuffles_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	out[thread_in_grid()] = __float_as_uint(warp_add(as_float(in, thread_in_grid())));
}
LAUNCH(five_shuffles, five_shuffles_kernel, 32, 128, 0)

/* Uses one KiB of stack a level, 4096 levels: more than any default stack. */
static __device__ uint32_t deep(const uint32_t *in, uint32_t level)
{
	volatile uint32_t frame[256];

	for (int i = 0; i < 256; i++)
		frame[i] = in[i] + level;
	return level == 0 ? frame[in[1] % 256] : deep(in, level - 1) + frame[in[level % 7] % 256];
}

static __global__ void deep_stack_kernel(KERNEL_ARGUMENTS)
{
	UNUSED(scratch);
	out[threadIdx.x] = deep(in, 4096);
}
LAUNCH(deep_stack, deep_stack_kernel, 1, 32, 0)
