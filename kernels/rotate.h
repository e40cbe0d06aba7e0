/* SPDX-License-Identifier: MIT */
/* Norm and rope of one head by one warp, for attention and the QSA indexer (model-spec 2.1, 2.5). Device code only. */
#ifndef PLUMB_KERNELS_ROTATE_H
#define PLUMB_KERNELS_ROTATE_H

#include "core/math32.h"
#include "kernels/paged.h"

/* What is the same for every head of a launch. */
struct plumb_rotation {
	const float *rope; /* (2, Dr/2): row of the position */
	int64_t n;	   /* head dim */
	int64_t half;	   /* Dr/2 */
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
static __device__ __forceinline__ void plumb_rotate_head(const struct plumb_rotation &a, const float *x,
	int norm_format, const void *norm, float *normed, const struct plumb_sink &out)
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
			plumb_sink_put(out, i,
				plumb_rne(a.bf16, plumb_rne(a.bf16, u * c) + plumb_rne(a.bf16, -v * s)));
			plumb_sink_put(out, i + a.half,
				plumb_rne(a.bf16, plumb_rne(a.bf16, v * c) + plumb_rne(a.bf16, u * s)));
		}
	}
}

#endif
