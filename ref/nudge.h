/* SPDX-License-Identifier: MIT */
/* Perturbed evaluation (Monte Carlo arithmetic): how far a right binary32 implementation may be from the oracle.
 *
 * The policy defines where a value is rounded to bf16, not in which order a sum before it is added. A value next to a
 * rounding boundary may then go either way, and with it everything behind it in the op. With a seed in env->nudge the
 * oracle moves each value that binary32 does not settle, up or down by as much as binary32 may miss it, before it is
 * rounded; a handful of seeds shows what else a right implementation may write. u = 2^-24.
 *
 * Sums. Added one by one in binary32, each partial sum s_k is rounded with an error of variance at most (u s_k)^2 / 3.
 * Without a preferred order of the n terms x, s_k has the mean k/n S and around it the variance k (n - k) / n times
 * that of a term, so that the error's variance is at most u^2/3 * sum_k E[s_k^2] = u^2 n (S^2 / 9 + |x|^2 / 18): the
 * known u sqrt(n / 6) |x| where S^2 = |x|^2, u sqrt(n) / 3 of S where all terms are alike. Orders with more
 * accumulators have less. A sum is moved by up to NUDGE_SIGMAS of these standard deviations: 6 of 100 000 errors are
 * larger, of the worst of orders.
 *
 * Everything else that is rounded comes out of a chain of few operations: by up to NUDGE_STEPS units in the last place. The
 * longest is a norm's, (x * r) * (1 + w), r = 1 / sqrt(m + eps): seven roundings at half a unit (m counts as a sum), each
 * relative to a power of two that is up to twice as near: 3.5; silu and softmax have an exp of 1 and three roundings.
 * What binary32 holds exactly is not moved: a product of two bf16 numbers, a sum of such of like size. There is one
 * answer to how those are rounded, and one product in 256 is an exact tie.
 *
 * Sign and size come from the value and the seed alone: the same with any number of threads. */
#ifndef PLUMB_REF_NUDGE_H
#define PLUMB_REF_NUDGE_H

#include <math.h>

#include "core/numeric.h"
#include "core/op.h"
#include "core/splitmix.h"

#define NUDGE_SIGMAS 4.0
#define NUDGE_STEPS 4.0
#define NUDGE_ROUNDING (NUDGE_SIGMAS / 1.7320508075688772 * 0x1p-24) /* of one rounding, u / sqrt(3) of the value */

/* Of a value, by a seed: half to all of 1, or of -1. Never little, so that one move crosses what is near in half of the
 * passes; and never the same, so that two moves behind each other do not cancel. Of the value as binary32: its last
 * bits in binary64 depend on the machine's BLAS. */
static inline double nudge_share(const struct plumb_env *env, double x)
{
	uint64_t h = ((uint64_t)plumb_f32_bits((float)x) ^ env->nudge << 32) + PLUMB_SPLITMIX_STEP * env->nudge;
	h = plumb_mix64(h);
	double share = 0.5 + 0.5 * 0x1p-32 * (double)(h >> 32);
	return h & 1 ? share : -share;
}

/* A value by a distance. */
static inline double nudge_by(const struct plumb_env *env, double x, double distance)
{
	return env->nudge && isfinite(x) && isfinite(distance) ? x + nudge_share(env, x) * distance : x;
}

/* A sum of n terms, squares: the sum of their squares. */
static inline double nudge_sum(const struct plumb_env *env, double sum, double squares, int64_t n)
{
	if (!env->nudge || n < 2)
		return sum;
	return nudge_by(env, sum, NUDGE_SIGMAS * 0x1p-24 * sqrt((double)n * (sum * sum / 9.0 + squares / 18.0)));
}

/* A sum in the making: add(&s, a * b) for each term, then total(env, &s). */
struct sum {
	double value, squares;
	int64_t terms;
};

static inline void add(struct sum *s, double term)
{
	s->value += term;
	s->squares += term * term;
	s->terms++;
}

static inline double total(const struct plumb_env *env, const struct sum *s)
{
	return nudge_sum(env, s->value, s->squares, s->terms);
}

/* ABREAST sums of n terms at once, x[i, j] * y[i] of sum j, each in the order of i, as add() does: while one waits for
 * its last addition, others go on. x: (n, ABREAST), y: (n). */
enum { ABREAST = 8 };

static inline void add_each(const struct plumb_env *env, const double (*restrict x)[ABREAST], const double *restrict y,
	int64_t n, struct sum sum[ABREAST])
{
	double value[ABREAST] = {0}, squares[ABREAST] = {0}; /* arrays of their own stay in registers */
	for (int64_t i = 0; i < n; i++)
#pragma omp simd
		for (int j = 0; j < ABREAST; j++)
			value[j] += x[i][j] * y[i];
	for (int64_t i = 0; env->nudge && i < n; i++)
#pragma omp simd
		for (int j = 0; j < ABREAST; j++)
			squares[j] += x[i][j] * y[i] * (x[i][j] * y[i]);
	for (int j = 0; j < ABREAST; j++)
		sum[j] = (struct sum){value[j], squares[j], n};
}

/* The sum of n numbers that are `stride` apart, in their order. Numbers that were rounded to bf16 and are of like size:
 * binary32 holds every partial sum, in any order, and there is one answer. */
static inline double total_of(const struct plumb_env *env, const double *x, int64_t stride, int64_t n)
{
	struct sum sum = {0};
	double sizes = 0.0, finest = HUGE_VAL; /* unit in the last place */
	for (int64_t i = 0; i < n; i++)
		add(&sum, x[i * stride]);
	for (int64_t i = 0; env->nudge && i < n; i++) {
		int e;
		frexp(x[i * stride], &e);
		sizes += fabs(x[i * stride]);
		if (x[i * stride] != 0.0)
			finest = fmin(finest, ldexp(1.0, e - 8));
	}
	const bool exact = env->policy == PLUMB_POLICY_BF16 && sizes <= finest * 0x1p24;
	return exact ? sum.value : total(env, &sum);
}

/* A value out of a chain; nudge_value: unless binary32 holds it exactly. */
static inline double nudge_chain(const struct plumb_env *env, double x)
{
	return nudge_by(env, x, NUDGE_STEPS * 0x1p-23 * fabs(x));
}
static inline double nudge_value(const struct plumb_env *env, double x)
{
	return (double)(float)x == x ? x : nudge_chain(env, x);
}

#endif
