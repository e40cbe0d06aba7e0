/* SPDX-License-Identifier: MIT */
/* The declared reduction orders (core/order.h) for a warp. Device code only.
 *
 * strided(W): lane l owns the W/32 neighbouring accumulators l*W/32 .., so that with W = 256 it consumes 8 values in a row
 * (16 bytes of bf16) and with W = 128 four (16 bytes of binary32). The neighbour-first tree is then pairs inside the lane,
 * and xor shuffles by 1, 2, 4, 8, 16; addition commutes, so every lane ends with the same bits. */
#ifndef PLUMB_KERNELS_REDUCE_H
#define PLUMB_KERNELS_REDUCE_H

#include "core/numeric.h"
#include "core/order.h"
#include "core/weight.h"
#include "kernels/device.h"

#define PLUMB_FULL_WARP 0xffffffffu

/* The loop behind it is unrolled, or is not, by nvcc; other compilers decide for themselves. */
#ifdef __CUDACC__
#define PLUMB_UNROLL _Pragma("unroll")
#define PLUMB_UNROLL_8 _Pragma("unroll 8")
#define PLUMB_NO_UNROLL _Pragma("unroll 1")
#else
#define PLUMB_UNROLL
#define PLUMB_UNROLL_8
#define PLUMB_NO_UNROLL
#endif

/* Sum the accumulators of a warp. All 32 lanes call it; all get the sum. */
template <int PerLane> static __device__ __forceinline__ float plumb_warp_tree(const float (&acc)[PerLane])
{
	float t[PerLane];
	PLUMB_UNROLL
	for (int j = 0; j < PerLane; j++)
		t[j] = acc[j];
	PLUMB_UNROLL
	for (int width = 1; width < PerLane; width *= 2)
		PLUMB_UNROLL
	for (int j = 0; j < PerLane; j += 2 * width)
		t[j] = t[j] + t[j + width];
	return plumb_warp_sum(t[0]);
}

/* The sums over groups of Lanes neighbouring lanes of Count values a lane, each added as by plumb_warp_sum: a lane gets that
 * of value plumb_sum_of_lane<Count>(). Both are powers of 2, Count up to Lanes. At distance d a lane keeps half of what it
 * has and hands over the rest, so that Count sums need about Count shuffles, not 5 * Count. v is used up. */
template <int Count, int Lanes> static __device__ __forceinline__ float plumb_group_sums(float (&v)[Count])
{
	PLUMB_UNROLL
	for (int level = 0; level < 5; level++) {
		const int half = Count >> (level + 1), offset = 1 << level;
		const bool upper = threadIdx.x & offset;
		PLUMB_UNROLL
		for (int j = 0; j < Count / 2; j++)
			if (j < half) { /* known to the compiler: v stays in registers */
				const float given = __shfl_xor_sync(PLUMB_FULL_WARP, upper ? v[j] : v[j + half], offset);
				v[j] = (upper ? v[j + half] : v[j]) + given;
			}
	}
	PLUMB_UNROLL
	for (int offset = Count; offset < Lanes; offset *= 2)
		v[0] = v[0] + __shfl_xor_sync(PLUMB_FULL_WARP, v[0], offset);
	return v[0];
}

template <int Count> static __device__ __forceinline__ float plumb_warp_sums(float (&v)[Count])
{
	return plumb_group_sums<Count, 32>(v);
}

template <int Count> static __device__ __forceinline__ int plumb_sum_of_lane(void)
{
	int index = 0;
	PLUMB_UNROLL
	for (int level = 0; level < 5; level++)
		index += threadIdx.x >> level & 1 ? Count >> (level + 1) : 0;
	return index;
}

/* The upper levels of strided(256) when thread i of 256 holds accumulator i: the sums of its 8 warps, in partial. */
static __device__ __forceinline__ float plumb_warps_tree(PLUMB_SHARED_PTR(float) partial)
{
	const float low = (partial[0] + partial[1]) + (partial[2] + partial[3]);
	const float high = (partial[4] + partial[5]) + (partial[6] + partial[7]);
	return low + high;
}

/* Sum of the accumulators of strided(256), one in each thread of a block of 256. Every thread gets it. partial: (8), not
 * used again by the block without a barrier between. */
static __device__ __forceinline__ float plumb_block_tree(float acc, PLUMB_SHARED_PTR(float) partial)
{
	const float sum = plumb_warp_sum(acc);
	if (threadIdx.x % 32 == 0)
		partial[threadIdx.x / 32] = sum;
	__syncthreads();
	return plumb_warps_tree(partial);
}

/* The larger of two, or NaN when one is; the same in any order but for the sign of a zero. */
static __device__ __forceinline__ float plumb_larger(float a, float b)
{
	return a != a || a > b ? a : b;
}

/* A key in the order of the values, for __reduce_max_sync: NaN has the largest, -0 one below that of +0. And the value of a
 * key; NaN loses its payload. */
static __device__ __forceinline__ unsigned plumb_order_key(float v)
{
	const unsigned bits = __float_as_uint(v);
	return v != v ? 0xffffffffu : bits >> 31 ? ~bits : bits | 0x80000000u;
}

static __device__ __forceinline__ float plumb_key_value(unsigned key)
{
	return __uint_as_float(key >> 31 ? key ^ 0x80000000u : ~key);
}

/* Add the products a[k]*b[k], k0 <= k < k1, of binary32 vectors to the lane's accumulators; k0 is a multiple of the width.
 * A and B are pointers to float: global, or shared (PLUMB_SHARED_PTR). */
template <int PerLane, typename A, typename B>
static __device__ __forceinline__ void plumb_lane_products(A a, B b, int64_t k0, int64_t k1, float (&acc)[PerLane])
{
	const int lane = threadIdx.x % 32;
	for (int64_t k = k0 + lane * PerLane; k < k1; k += 32 * PerLane)
		PLUMB_UNROLL
	for (int j = 0; j < PerLane; j++)
		if (k + j < k1)
			acc[j] = fmaf(a[k + j], b[k + j], acc[j]);
}

/* strided(32*PerLane) dot product of n values. */
template <int PerLane, typename A, typename B> static __device__ __forceinline__ float plumb_warp_dot(A a, B b, int64_t n)
{
	float acc[PerLane] = {};
	plumb_lane_products<PerLane>(a, b, 0, n, acc);
	return plumb_warp_tree<PerLane>(acc);
}

/* A stored value as binary32. */
static __device__ __forceinline__ float plumb_stored_value(int format, const void *data, int64_t i)
{
	switch (format) {
	case PLUMB_F32:
		return static_cast<const float *>(data)[i];
	case PLUMB_F16:
		return plumb_f16_to_f32(static_cast<const uint16_t *>(data)[i]);
	default:
		return plumb_bf16_to_f32(static_cast<const uint16_t *>(data)[i]);
	}
}

/* Values first .. first + count - 1, at most Count: the format is asked once, so that the loads go out together. The rest
 * is 0. */
template <int Count>
static __device__ __forceinline__ void plumb_stored_values(
	int format, const void *data, int64_t first, int64_t count, float (&x)[Count])
{
	if (format == PLUMB_F32) {
		PLUMB_UNROLL
		for (int j = 0; j < Count; j++)
			x[j] = j < count ? static_cast<const float *>(data)[first + j] : 0.0f;
		return;
	}
	uint16_t code[Count];
	PLUMB_UNROLL
	for (int j = 0; j < Count; j++)
		code[j] = j < count ? static_cast<const uint16_t *>(data)[first + j] : static_cast<uint16_t>(0);
	PLUMB_UNROLL
	for (int j = 0; j < Count; j++) /* code 0 is +0 in both */
		x[j] = format == PLUMB_F16 ? plumb_f16_to_f32(code[j]) : plumb_bf16_to_f32(code[j]);
}

/* rne of the contracts: the policy's rounding. On a GPU it is one instruction, which packs two: x as the upper half, zero as the
 * lower, are the binary32 itself. Of a NaN it keeps no payload. */
static __device__ __forceinline__ float plumb_rne(int bf16, float x)
{
#ifdef __CUDA_ARCH__
	uint32_t bits;
	asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(x), "f"(0.0f));
	return bf16 ? __uint_as_float(bits) : x;
#else
	return bf16 ? plumb_round_bf16(x) : x;
#endif
}

#endif
