/* SPDX-License-Identifier: MIT */
#include "ref/twin/rotate.h"

#include "ref/twin/twin.h"

void twin_rotate(const struct plumb_env *env, const float *x, const float *w, const float *rope, int64_t n, float *normed,
	float *out)
{
	int64_t half = env->cfg->rotary_dim / 2;
	float r = twin_inverse_rms(env, x, n, PLUMB_HEAD_LANES);

	for (int64_t i = 0; i < n; i++)
		normed[i] = twin_rne(env, (x[i] * r) * (1.0f + w[i]));
	for (int64_t i = 0; i < half; i++) {
		float a = normed[i], b = normed[i + half], c = rope[i], s = rope[half + i];
		out[i] = twin_rne(env, twin_rne(env, a * c) + twin_rne(env, -b * s));
		out[i + half] = twin_rne(env, twin_rne(env, b * c) + twin_rne(env, a * s));
	}
	for (int64_t i = 2 * half; i < n; i++)
		out[i] = normed[i];
}
