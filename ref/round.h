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

/* rne of a value that is stored as an output. */
static inline float store(const struct plumb_env *env, double x)
{
	float f = (float)nudge_value(env, x);
	return env->policy == PLUMB_POLICY_BF16 && !env->unrounded ? plumb_round_bf16(f) : f;
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
