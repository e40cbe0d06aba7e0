/* SPDX-License-Identifier: MIT */
#include "ref/rotate.h"

#include "ref/linear.h"
#include "ref/round.h"

void rope_ref(const struct plumb_env *env, double *x, const float *rope)
{
	int64_t half = env->cfg->rotary_dim / 2;
	for (int64_t i = 0; i < half; i++) { /* dims i and i + Dr/2 turn together; dims >= Dr stay */
		double c = (double)rope[i], s = (double)rope[half + i];
		double a = x[i], b = x[i + half];
		x[i] = rne(env, a * c) + rne(env, -b * s);
		x[i + half] = rne(env, b * c) + rne(env, a * s);
	}
}

void head_norm_ref(const struct plumb_env *env, const double *x, const double *w, int64_t n, double *y)
{
	norm_ref(env, x, w, n, y);
	for (int64_t i = 0; i < n; i++)
		y[i] = rne(env, y[i]);
}
