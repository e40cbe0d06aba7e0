/* SPDX-License-Identifier: MIT */
/* Norm and rope of one head by one warp, for attention and the QSA indexer (model-spec 2.1, 2.5). Device code only. */
#ifndef PLUMB_KERNELS_ROTATE_H
#define PLUMB_KERNELS_ROTATE_H

#include "core/math32.h"
#include "kernels/paged.h"

/* What is the same for every head of a launch. */
struct plumb_rotation {
	const float *rope; /* (2, Dr/2): row of the position */
	int64_t n;         /* head dim */
	int64_t half;      /* Dr/2 */
	float eps;
	int bf16; /* policy */
};

/* rne((x*r) * (1 + w)). */
static __device__ __forceinline__ float plumb_head_normed(
	int bf16, float x, float r, int format, const void *norm, int64_t i)
{
	return plumb_rne(bf16, (x * r) * (1.0f + plumb_stored_value(format, norm, i)));
}

/* out = rope(Norm(x; norm)), rounded to its format; x (n) is not out. normed (n): trace or NULL.
 * An element is normed again where its partner needs it: two multiplications against a buffer as long as the head. */
static __device__ __forceinline__ void plumb_rotate_head(const struct plumb_rotation &a, const float *x, int norm_format,
	const void *norm, float *normed, const struct plumb_sink &out)
{
	const float mean = plumb_divf(plumb_warp_dot<PLUMB_HEAD_LANES / 32>(x, x, a.n), static_cast<float>(a.n));
	const float r = plumb_rsqrtf(mean + a.eps);

	for (int64_t i = threadIdx.x % 32; i < a.n; i += 32) {
		const float u = plumb_head_normed(a.bf16, x[i], r, norm_format, norm, i);
		if (normed)
			normed[i] = u;
		if (i >= 2 * a.half) {
			plumb_sink_put(out, i, u);
		} else if (i < a.half) {
			const float v = plumb_head_normed(a.bf16, x[i + a.half], r, norm_format, norm, i + a.half);
			const float c = a.rope[i], s = a.rope[a.half + i];
			plumb_sink_put(out, i, plumb_rne(a.bf16, plumb_rne(a.bf16, u * c) + plumb_rne(a.bf16, -v * s)));
			plumb_sink_put(
				out, i + a.half, plumb_rne(a.bf16, plumb_rne(a.bf16, v * c) + plumb_rne(a.bf16, u * s)));
		}
	}
}

/* Heads of up to 256 by one warp, with everything asked for before anything is used. Element 128*s + 4*lane + j is value
 * 4*s + j of a lane while squares are summed, element 32*k + lane is value k afterwards; shared memory lies between. */
enum { PLUMB_NEAR_HEAD = 256, PLUMB_NEAR = PLUMB_NEAR_HEAD / 32 };

static __device__ __forceinline__ int plumb_near_element(int i)
{
	return i / 4 * PLUMB_HEAD_LANES + static_cast<int>(threadIdx.x) % 32 * 4 + i % 4;
}

/* What the host alone writes: the norm's weights, the cosines and sines of the position. */
struct plumb_near_constants {
	float norm[PLUMB_NEAR], cosine[PLUMB_NEAR], sine[PLUMB_NEAR];
};

static __device__ __forceinline__ struct plumb_near_constants plumb_near_constants_of(
	const struct plumb_rotation &a, int norm_format, const void *norm)
{
	const int n = static_cast<int>(a.n), half = static_cast<int>(a.half), lane = static_cast<int>(threadIdx.x) % 32;
	struct plumb_near_constants c;
	float low[4], high[4];

	plumb_stored_values<4>(norm_format, norm, plumb_near_element(0), n - plumb_near_element(0), low);
	plumb_stored_values<4>(norm_format, norm, plumb_near_element(4), n - plumb_near_element(4), high);
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k++)
		c.norm[k] = k < 4 ? low[k] : high[k - 4];
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k++) {
		const int i = 32 * k + lane;
		c.cosine[k] = i < 2 * half ? a.rope[i < half ? i : i - half] : 0.0f;
		c.sine[k] = i < 2 * half ? a.rope[i < half ? i + half : i] : 0.0f;
	}
	return c;
}

/* The lane's part of a head in memory. */
static __device__ __forceinline__ void plumb_near_load(const float *x, int n, float (&part)[PLUMB_NEAR])
{
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k += 4) {
		const int e = plumb_near_element(k);
		if (n % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0) {
			const float4 v = e < n ? *PLUMB_AS(const float4, x + e) : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
			part[k] = v.x, part[k + 1] = v.y, part[k + 2] = v.z, part[k + 3] = v.w;
		} else {
			PLUMB_UNROLL
			for (int j = 0; j < 4; j++)
				part[k + j] = e + j < n ? x[e + j] : 0.0f;
		}
	}
}

/* plumb_rotate_head of x, the lane's part. turn: the warp's own (256). */
static __device__ __forceinline__ void plumb_near_rotate(const struct plumb_rotation &a,
	const struct plumb_near_constants &c, const float (&x)[PLUMB_NEAR], PLUMB_SHARED_PTR(float) turn, float *normed,
	const struct plumb_sink &out)
{
	const int n = static_cast<int>(a.n), half = static_cast<int>(a.half), lane = static_cast<int>(threadIdx.x) % 32;
	float acc[4] = {}, u[PLUMB_NEAR];
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k++)
		acc[k % 4] = plumb_near_element(k) < n ? fmaf(x[k], x[k], acc[k % 4]) : acc[k % 4];
	const float mean = plumb_divf(plumb_warp_tree<4>(acc), static_cast<float>(a.n));
	const float r = plumb_rsqrtf(mean + a.eps);
	__syncwarp();
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k += 4) {
		PLUMB_UNROLL
		for (int j = k; j < k + 4; j++)
			u[j] = plumb_rne(a.bf16, (x[j] * r) * (1.0f + c.norm[j]));
		PLUMB_AS(float4, turn + plumb_near_element(k))[0] = make_float4(u[k], u[k + 1], u[k + 2], u[k + 3]);
	}
	__syncwarp();
	PLUMB_UNROLL
	for (int k = 0; k < PLUMB_NEAR; k++) {
		const int i = 32 * k + lane;
		if (i >= n)
			continue;
		float y = turn[i];
		if (normed)
			normed[i] = y;
		if (i < 2 * half) {
			const float other = turn[i < half ? i + half : i - half];
			y = plumb_rne(a.bf16, plumb_rne(a.bf16, y * c.cosine[k]) +
						      plumb_rne(a.bf16, (i < half ? -other : other) * c.sine[k]));
		}
		plumb_sink_put(out, i, y);
	}
}

#endif
