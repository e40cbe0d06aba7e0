/* SPDX-License-Identifier: MIT */
/* The heads of attn_qk_rope, for the launches that they are part of. Device code only. */
#ifndef PLUMB_KERNELS_HEADS_H
#define PLUMB_KERNELS_HEADS_H

#include "kernels/attention.h"
#include "kernels/paged.h"
#include "kernels/rotate.h"

/* Head h of Hq queries, Hkv keys, Hkv values: its norm, its rope, its place. Called by one warp, which waits for the launch
 * before in here. turn: the warp's own (256). */
static __device__ __forceinline__ void attn_head(const struct plumb_attn_heads &a, int64_t h, PLUMB_SHARED_PTR(float) turn)
{
	const int32_t p = static_cast<int32_t>(*a.position + a.token);
	const struct plumb_rotation rotation = {a.rope + p * (2 * a.half), a.head_dim, a.half, a.eps, a.bf16};
	const int lane = static_cast<int>(threadIdx.x % 32);
	const bool is_query = h < a.q_heads, is_key = !is_query && h < a.q_heads + a.kv_heads;
	const int norm_format = is_query ? a.q_norm_format : a.k_norm_format;
	const void *const norm = is_query ? a.q_norm : a.k_norm;
	const bool is_near = a.head_dim <= PLUMB_NEAR_HEAD;
	struct plumb_near_constants constants;

	if (is_near && (is_query || is_key))
		constants = plumb_near_constants_of(rotation, norm_format, norm);
	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	if (is_query || is_key) {
		h -= is_query ? 0 : a.q_heads;
		const float *const x = is_query ? a.qg + h * 2 * a.head_dim : a.k + h * a.head_dim;
		float *const trace = is_query ? a.q_normed : a.k_normed;
		float *const normed = trace ? trace + h * a.head_dim : nullptr;
		struct plumb_sink sink = {PLUMB_F32, 1.0f, a.q + h * a.head_dim};
		if (is_key)
			sink = plumb_paged_sink(a.keys, p, h * a.head_dim);
		if (is_near) {
			float part[PLUMB_NEAR];
			plumb_near_load(x, static_cast<int>(a.head_dim), part);
			plumb_near_rotate(rotation, constants, part, turn, normed, sink);
		} else {
			plumb_rotate_head(rotation, x, norm_format, norm, normed, sink);
		}
		return;
	}
	h -= a.q_heads + a.kv_heads;
	if (h < a.kv_heads) {
		const struct plumb_sink row = plumb_paged_sink(a.values, p, h * a.head_dim);
		const float *const v = a.v + h * a.head_dim;
		for (int64_t i0 = 0; i0 < a.head_dim; i0 += PLUMB_NEAR_HEAD) {
			float x[PLUMB_NEAR];
			PLUMB_UNROLL
			for (int k = 0; k < PLUMB_NEAR; k++)
				x[k] = i0 + 32 * k + lane < a.head_dim ? v[i0 + 32 * k + lane] : 0.0f;
			PLUMB_UNROLL
			for (int k = 0; k < PLUMB_NEAR; k++)
				if (i0 + 32 * k + lane < a.head_dim)
					plumb_sink_put(row, i0 + 32 * k + lane, x[k]);
		}
	}
}

#endif
