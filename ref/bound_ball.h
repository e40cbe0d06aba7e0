/* SPDX-License-Identifier: MIT */
/* Running error analysis: a value with what a binary32 implementation may be away from it.
 *
 * value   what exact arithmetic gives, with the roundings to bf16 that the policy demands; binary64.
 * error   no implementation that keeps the declared order is further away.
 * spread  the same with the roundings added as squares, not as sizes: each rounding is taken for an independent error
 * of mean 0, uniform within its bound b, variance b^2/3; then the variance of the whole is at most spread^2/3. Where
 * errors share a source (every element of a norm shares its root) they are added as sizes all the same.
 *
 * drift   the part of the error that is no accident: eps added to a mean of squares in [2, 4) is 4.19 ulp, and rounds
 * to 4 every time, so every right implementation is 0.19 ulp low there. Carried to first order.
 *
 * Inf and NaN have no distance to anything: a ball around one has no radius, and an implementation must have the same
 * (it is compared by class). A number beyond binary32 may be an Inf there: no bound.
 *
 * Every rounding is bounded by half an ulp of binary32 at the largest value the implementation can have there, which
 * holds for subnormals too (an ulp is never below 2^-149). Terms of second order are kept. Binary64's own noise, 2^-53
 * an operation, is allowed for once, where a candidate is judged (ref/bound.c). */
#ifndef PLUMB_REF_BOUND_BALL_H
#define PLUMB_REF_BOUND_BALL_H

#include <math.h>
#include <string.h>

#include "core/numeric.h"
#include "core/op.h"
#include "ref/bound.h"
#include "ref/round.h"

/* Largest errors of core/math32.h in ulp of the true value: column binary32 of its table, and the largest of column
 * subnormal for results below 2^-126. */
#define ULP_EXP 0.5987
#define ULP_SIGMOID 0.5971
#define ULP_SILU 0.6135
#define ULP_SOFTPLUS 0.8881
#define ULP_RSQRT 1.4904
#define ULP_SUBNORMAL 0.7803

/* The power of two at or below |x|; at least the smallest normal number of binary32 (and of bf16). */
static inline double binade(double x)
{
	uint64_t bits;
	double p;
	memcpy(&bits, &x, sizeof bits);
	bits &= UINT64_C(0x7FF0000000000000);
	memcpy(&p, &bits, sizeof p);
	return p > 0x1p-126 ? p : 0x1p-126;
}

/* Half an ulp at |x|: of binary32 (23 bits of fraction), of bf16 (7 bits). */
static inline double half_ulp(double x)
{
	return binade(x) * 0x1p-24;
}
static inline double half_ulp_bf16(double x)
{
	return binade(x) * 0x1p-8;
}

static inline double root_of_squares(double a, double b)
{
	return sqrt(a * a + b * b);
}

static inline double greater(double a, double b)
{
	return a > b ? a : b;
}

static inline struct plumb_ball ball_exact(double x)
{
	return (struct plumb_ball){x, 0.0, 0.0, 0.0};
}

/* What holds for every result: see above. */
static inline struct plumb_ball ball_classed(struct plumb_ball x)
{
	if (!isfinite(x.value))
		return ball_exact(x.value);
	if (fabs(x.value) + x.error >= 0x1p128)
		x.error = x.spread = HUGE_VAL;
	return x;
}

/* One rounding to binary32 of something in the ball. */
static inline struct plumb_ball ball_fl(struct plumb_ball x)
{
	if (!isfinite(x.value))
		return ball_exact(x.value);
	x.error += half_ulp(fabs(x.value) + x.error);
	x.spread = root_of_squares(x.spread, half_ulp(x.value));
	return ball_classed(x);
}

/* An inner rounding point of the policy. The implementation rounds something in [value - error, value + error];
 * rounding is monotone, so the two ends tell how far apart the results can be: nothing, unless a boundary lies
 * within. */
static inline struct plumb_ball ball_rne(const struct plumb_env *env, struct plumb_ball x)
{
	if (env->policy != PLUMB_POLICY_BF16)
		return x;
	double r = rne(env, x.value);
	double error = greater(rne(env, x.value + x.error) - r, r - rne(env, x.value - x.error));
	return (struct plumb_ball){r, error, error, 0.0};
}

/* The last rounding of an output, around the value before it. */
static inline struct plumb_ball ball_out(const struct plumb_env *env, struct plumb_ball x)
{
	if (env->policy == PLUMB_POLICY_BF16) {
		x.error += half_ulp_bf16(fabs(x.value) + x.error);
		x.spread = root_of_squares(x.spread, half_ulp_bf16(x.value));
	}
	return x;
}

static inline struct plumb_ball ball_add(struct plumb_ball a, struct plumb_ball b)
{
	return ball_fl((struct plumb_ball){
		a.value + b.value, a.error + b.error, root_of_squares(a.spread, b.spread), a.drift + b.drift});
}

/* x + eps, where x is on the grid of the sum, so that the rounding is that of eps alone, always the same. */
static inline struct plumb_ball ball_add_eps(struct plumb_ball x, double eps)
{
	struct plumb_ball y = ball_add(x, ball_exact(eps));
	double grid = 2.0 * half_ulp(y.value);
	if (binade(x.value) == binade(y.value))
		y.drift += rint(eps / grid) * grid - eps;
	return y;
}

/* Before the rounding: of a product that an fmaf takes, or for ball_mul. */
static inline struct plumb_ball ball_product(struct plumb_ball a, struct plumb_ball b)
{
	double x = fabs(a.value), y = fabs(b.value);
	return ball_classed((struct plumb_ball){a.value * b.value, x * b.error + y * a.error + a.error * b.error,
		root_of_squares(x * b.spread, y * a.spread), a.value * b.drift + b.value * a.drift});
}

static inline struct plumb_ball ball_mul(struct plumb_ball a, struct plumb_ball b)
{
	return ball_fl(ball_product(a, b));
}

/* a * b + c, rounded once. */
static inline struct plumb_ball ball_fmaf(struct plumb_ball a, struct plumb_ball b, struct plumb_ball c)
{
	struct plumb_ball p = ball_product(a, b);
	return ball_fl((struct plumb_ball){
		p.value + c.value, p.error + c.error, root_of_squares(p.spread, c.spread), p.drift + c.drift});
}

static inline struct plumb_ball ball_div(struct plumb_ball a, struct plumb_ball b)
{
	double y = fabs(b.value), q = a.value / b.value, least = y - b.error;
	if (!(least > 0.0) && b.error > 0.0)
		return (struct plumb_ball){q, HUGE_VAL, HUGE_VAL, 0.0};
	return ball_fl((struct plumb_ball){q, (a.error + fabs(q) * b.error) / (b.error > 0.0 ? least : y),
		root_of_squares(a.spread, q * b.spread) / y, (a.drift - q * b.drift) / b.value});
}

static inline struct plumb_ball ball_negate(struct plumb_ball a)
{
	a.value = -a.value;
	a.drift = -a.drift;
	return a;
}

/* A function of core/math32.h that is off by ulp: value at the centre, carried: the largest change within the ball. */
static inline struct plumb_ball ball_function(double value, double carried, double spread, double drift, double ulp)
{
	double most = fabs(value) + carried;
	double b = 2.0 * half_ulp(most) * (most < 0x1p-126 ? ULP_SUBNORMAL : ulp);
	return ball_classed((struct plumb_ball){value, carried + b, root_of_squares(spread, b), drift});
}

/* A monotone function at the centre and the two ends. */
static inline struct plumb_ball ball_monotone(struct plumb_ball x, double low, double value, double high, double ulp)
{
	double carried = x.error == 0.0 ? 0.0 : greater(fabs(high - value), fabs(value - low));
	double slope = x.error == 0.0 ? 0.0 : carried / x.error;
	return ball_function(value, carried, x.spread * slope, high < low ? -x.drift * slope : x.drift * slope, ulp);
}

static inline struct plumb_ball ball_exp(struct plumb_ball x)
{
	double y = exp(x.value), carried = x.error == 0.0 ? 0.0 : y * expm1(x.error);
	return ball_function(y, carried, y * x.spread, y * x.drift, ULP_EXP);
}

static inline struct plumb_ball ball_sigmoid(struct plumb_ball x)
{
	return ball_monotone(x, sigmoid(x.value - x.error), sigmoid(x.value), sigmoid(x.value + x.error), ULP_SIGMOID);
}

/* silu falls to its minimum at -1.27846 and rises from there; with the minimum inside the ball, Taylor with |silu''| <=
 * 1/2 at 0, its largest. */
static inline struct plumb_ball ball_silu(struct plumb_ball x)
{
	const double minimum = -1.2784645427610738;
	double y = silu(x.value), s = sigmoid(x.value);
	if (x.value - x.error > minimum || x.value + x.error < minimum)
		return ball_monotone(x, silu(x.value - x.error), y, silu(x.value + x.error), ULP_SILU);
	double slope = s * (1.0 + x.value * (1.0 - s)), carried = x.error * fabs(slope) + 0.25 * x.error * x.error;
	double steepest = x.error == 0.0 ? 0.0 : carried / x.error;
	return ball_function(y, carried, x.spread * steepest, x.drift * slope, ULP_SILU);
}

/* At the threshold the identity is 2.1e-9 below log1p(exp(x)): a ball across it may see that step. */
static inline struct plumb_ball ball_softplus(struct plumb_ball x)
{
	struct plumb_ball y =
		ball_monotone(x, softplus(x.value - x.error), softplus(x.value), softplus(x.value + x.error), ULP_SOFTPLUS);
	if (x.value - x.error <= 20.0 && x.value + x.error > 20.0)
		y.error += 2.1e-9;
	return y;
}

static inline struct plumb_ball ball_sqrt(struct plumb_ball x) /* exactly rounded: half an ulp */
{
	double low = x.value - x.error;
	return ball_monotone(x, sqrt(low > 0.0 ? low : 0.0), sqrt(x.value), sqrt(x.value + x.error), 0.5);
}

static inline struct plumb_ball ball_rsqrt(struct plumb_ball x)
{
	double low = x.value - x.error;
	return ball_monotone(
		x, low > 0.0 ? 1.0 / sqrt(low) : HUGE_VAL, 1.0 / sqrt(x.value), 1.0 / sqrt(x.value + x.error), ULP_RSQRT);
}

#endif
