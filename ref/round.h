/* SPDX-License-Identifier: MIT */
/* The scalar pieces the oracle is written with. Names as in model-spec.md. */
#ifndef PLUMB_REF_ROUND_H
#define PLUMB_REF_ROUND_H

#include <math.h>

#include "core/numeric.h"
#include "core/op.h"
#include "ref/nudge.h"

/* rne inside an op: torch computes in binary32 and then rounds to bf16, so the value passes through binary32. */
static inline double rne(const struct plumb_env *env, double x)
{
	return env->policy == PLUMB_POLICY_BF16 ? (double)plumb_round_bf16((float)nudge_value(env, x)) : x;
}

/* x as binary32, and where that is not exact as one of its odd neighbours: what lies half way between two bf16 numbers
 * is even, so a value there is one that was there exactly. */
static inline float round_to_odd(double x)
{
	float f = (float)x;
	uint32_t bits = plumb_f32_bits(f);
	if ((double)f == x || !isfinite(f) || (bits & 1))
		return f;
	return plumb_bits_f32(fabs(x) > fabs((double)f) ? bits + 1 : bits - 1);
}

/* rne of a value that is stored as an output. */
static inline float store(const struct plumb_env *env, double x)
{
	float f = (float)nudge_value(env, x);
	if (env->policy != PLUMB_POLICY_BF16)
		return f;
	return env->unrounded ? round_to_odd(x) : plumb_round_bf16(f);
}

static inline double sigmoid(double x)
{
	return 1.0 / (1.0 + exp(-x));
}

/* The limit at -Inf, as core/math32.h has it (torch divides Inf by Inf there). */
static inline double silu(double x)
{
	return x == -HUGE_VAL ? -0.0 : x / (1.0 + exp(-x));
}

/* torch: the identity above 20 */
static inline double softplus(double x)
{
	return x > 20.0 ? x : log1p(exp(x));
}

#endif
