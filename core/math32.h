/* SPDX-License-Identifier: MIT */
/*
 * exp, sigmoid, silu, log1p, softplus and 1/sqrt in binary32, with the same bits from C11, C++17, nvcc and the device.
 *
 * Every result is a fixed sequence of IEEE additions, multiplications, divisions, square roots and fused multiply-adds,
 * so it depends on no library and no processor. That holds for code compiled without contraction and with subnormals:
 * -ffp-contract=off, --fmad=false, no -ftz, no fast-math. No libm but fmaf and sqrtf, which are exactly rounded by
 * definition; no binary64. Both sides of each selection are computed, so the loops vectorise and warps do not diverge.
 *
 * A NaN goes in and the quiet NaN 0x7FC00000 comes out: processors differ in the sign and payload they make.
 *
 * The errors below are measured, in ulp of the true value (0.5 is the least any function can promise), by
 * tests/test_math32.c, which also asserts them: over all bf16 inputs, and over all binary32 inputs ("binary32"; the
 * test's default stride is 63, PLUMB_MATH32_STRIDE=1 repeats all). "Subnormal" is the error of results below 2^-126 in
 * steps of 2^-149: scaling rounds those once more. No result is more than one step from the correctly rounded one.
 *
 *            bf16     binary32   subnormal   not correctly rounded, of the binary32 inputs where it is not trivial
 * exp        0.5660   0.5987     0.7579      0.4 %
 * sigmoid    0.5390   0.5971     0.7579      0.2 %
 * silu       0.5324   0.6135     0.7803      0.2 %
 * log1p      0.7614   0.8649     exact       0.3 %
 * softplus   0.6807   0.8881     0.7579      0.6 %
 * 1/sqrt     1.2782   1.4904     none        26 %
 */
#ifndef PLUMB_CORE_MATH32_H
#define PLUMB_CORE_MATH32_H

#include <math.h>

#include "core/numeric.h"

/* The only fused operation: a * b + c, rounded once. On the host one instruction, given -mfma or aarch64. */
PLUMB_FN float plumb_fmaf(float a, float b, float c)
{
#ifdef __CUDA_ARCH__
	return __fmaf_rn(a, b, c);
#else
	return fmaf(a, b, c);
#endif
}

/* IEEE division and square root; on the device whatever -prec-div and -prec-sqrt say. */
PLUMB_FN float plumb_divf(float a, float b)
{
#ifdef __CUDA_ARCH__
	return __fdiv_rn(a, b);
#else
	return a / b;
#endif
}

PLUMB_FN float plumb_sqrtf(float x)
{
#ifdef __CUDA_ARCH__
	return __fsqrt_rn(x);
#else
	return sqrtf(x);
#endif
}

/* The one NaN these functions return. */
PLUMB_FN float plumb_nanf(void)
{
	return plumb_bits_f32(0x7FC00000u);
}

/*
 * x * 2^n for -252 <= n <= 254. In two factors, because 2^n alone leaves binary32 where the product may not: at n = 128
 * under x < 1, and below -126. The first product is exact for what comes here (n < 0 only with x near 1 to 110), so the
 * result is rounded once.
 */
PLUMB_FN float plumb_scale_f32(float x, int32_t n)
{
	int32_t half = n / 2;

	return x * plumb_bits_f32((uint32_t)(half + 127) << 23) * plumb_bits_f32((uint32_t)(n - half + 127) << 23);
}

/* (hi + lo) * 2^exponent, where lo is within an ulp of hi: what one float cannot hold until a function has used it. */
struct plumb_split_f32 {
	float hi;
	float lo;
	int32_t exponent;
};

/*
 * exp(x) for |x| <= 110, unrounded: hi + lo in [0.70, 1.42], relative error about 2^-27.
 *
 * x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) = 1 + r + r^2 q(r). Adding 1.5 * 2^23 rounds x / ln 2 to the integer n
 * and leaves n in the low bits. ln 2 is in two parts, the first with 15 bits so that n times it is exact; what rounding
 * r loses comes back as r_lo, and what rounding 1 + r loses as low. Without these two corrections (five operations) the
 * error is 0.96 ulp. q is a minimax fit of degree 5, its leading coefficients rounded first and the rest refitted; the
 * fit's error is 0.002 ulp, with degree 4 it would be 0.05.
 */
PLUMB_FN struct plumb_split_f32 plumb_exp_split(float x)
{
	struct plumb_split_f32 e;
	float shifted = plumb_fmaf(x, 0x1.715476p+0f, 0x1.8p+23f);
	float n = shifted - 0x1.8p+23f;
	float rest = plumb_fmaf(n, -0x1.62e4p-1f, x);
	float r = plumb_fmaf(n, -0x1.7f7d1cp-20f, rest);
	float r_lo = plumb_fmaf(n, -0x1.7f7d1cp-20f, rest - r);
	float q, one_r, low;

	q = 0x1.9dbf0ap-13f;
	q = plumb_fmaf(q, r, 0x1.6d484cp-10f);
	q = plumb_fmaf(q, r, 0x1.11132ap-7f);
	q = plumb_fmaf(q, r, 0x1.5554ecp-5f);
	q = plumb_fmaf(q, r, 0x1.555554p-3f);
	q = plumb_fmaf(q, r, 0x1.0p-1f);
	one_r = 1.0f + r;
	low = r - (one_r - 1.0f);
	low = plumb_fmaf(r_lo, one_r, low);
	low = plumb_fmaf(r * r, q, low);
	e.hi = one_r + low;
	e.lo = low - (e.hi - one_r);
	e.exponent = (int32_t)(plumb_f32_bits(shifted) & 0x007FFFFFu) - 0x00400000;
	return e;
}

/*
 * exp(x), any x. Inf from 0x1.62e43p+6 (88.7228) on, 0 from -0x1.9fe36ap+6 (-103.9721) down, subnormal results in
 * between are kept; exp(+-0) = 1, exp(Inf) = Inf, exp(-Inf) = +0. Never falls as x rises (all binary32 inputs checked).
 */
PLUMB_FN float plumb_expf(float x)
{
	float bounded = x > 89.0f ? 89.0f : x < -104.0f ? -104.0f : x;
	struct plumb_split_f32 e = plumb_exp_split(bounded);
	float y = plumb_scale_f32(e.hi, e.exponent);

	return x == x ? y : plumb_nanf();
}

/*
 * 1 / (1 + exp(-x)) for |x| <= 110, unrounded. exp(-|x|) cannot overflow; for negative x it is the numerator too, which
 * keeps full precision where 1 / (1 + exp(-x)) has none left. y is the rounded reciprocal, y_lo its error by one Newton
 * residual, which also takes in what rounding 1 + exp lost.
 */
PLUMB_FN struct plumb_split_f32 plumb_sigmoid_split(float x)
{
	float magnitude = x < 0.0f ? -x : x;
	struct plumb_split_f32 e = plumb_exp_split(-magnitude), s;
	float e_hi = plumb_scale_f32(e.hi, e.exponent);
	float e_lo = plumb_scale_f32(e.lo, e.exponent);
	float d = 1.0f + e_hi;
	float d_lo = (e_hi - (d - 1.0f)) + e_lo;
	float y = plumb_divf(1.0f, d);
	float y_lo = y * plumb_fmaf(-y, d_lo, plumb_fmaf(-y, d, 1.0f));

	if (x < 0.0f) {
		s.hi = e.hi * y;
		s.lo = plumb_fmaf(e.hi, y_lo, plumb_fmaf(e.lo, y, plumb_fmaf(e.hi, y, -s.hi)));
		s.exponent = e.exponent;
	} else {
		s.hi = y;
		s.lo = y_lo;
		s.exponent = 0;
	}
	return s;
}

/*
 * The logistic function, any x. 1/2 at both zeros, 1 from about 17.33 on and at Inf, +0 below -103.9721 and at -Inf;
 * between -87.34 and there subnormal. Never falls as x rises (all binary32 inputs checked).
 */
PLUMB_FN float plumb_sigmoidf(float x)
{
	float bounded = x > 110.0f ? 110.0f : x < -110.0f ? -110.0f : x;
	struct plumb_split_f32 s = plumb_sigmoid_split(bounded);
	float y = plumb_scale_f32(s.hi + s.lo, s.exponent);

	return x == x ? y : plumb_nanf();
}

/*
 * x * sigmoid(x), any x, rounded once instead of twice (x times the rounded sigmoid is off by up to 1.5 ulp, and for x
 * below -87 by dozens, because the sigmoid is subnormal there and the product is not). Zeros keep their sign; x itself
 * above 32, where 1 - sigmoid is below 2^-46; Inf at Inf; -0 below about -108.7 and at -Inf, the limit, not NaN.
 */
PLUMB_FN float plumb_siluf(float x)
{
	float bounded = x > 110.0f ? 110.0f : x < -110.0f ? -110.0f : x;
	struct plumb_split_f32 s = plumb_sigmoid_split(bounded);
	float y = plumb_scale_f32(plumb_fmaf(bounded, s.hi, bounded * s.lo), s.exponent);

	y = x > 32.0f ? x : y;
	return x == x ? y : plumb_nanf();
}

/*
 * log(1 + z + z_lo) for z > -1, |z_lo| up to an ulp of z; garbage outside, which the callers replace.
 *
 * 1 + z = 2^k (1 + f) with f in [-0.25, 0.5]: cut there, f is exact, since 2^-k z and 2^-k - 1 cancel within a factor
 * of two (from k = 25 on 2^-k - 1 rounds, where the result is above 17 and does not see it). step is
 * k in the exponent's place, so subtracting it scales by 2^-k; 4 * 2^-k is formed because 2^-k is subnormal at k = 127.
 * log(1 + f) = f + f^2 q(f), q a minimax fit of degree 9 with an error of 0.01 ulp. k ln 2 + f is summed without loss
 * (k times the 15 bits of the first part of ln 2 is exact). z_lo / (1 + z) takes 1 - f + f^2 for 1 / (1 + f): at most
 * 13 % off in a term of half an ulp.
 */
PLUMB_FN float plumb_log1p_sum(float z, float z_lo)
{
	uint32_t step = (plumb_f32_bits(1.0f + z) - 0x3F400000u) & 0xFF800000u;
	int32_t octaves = (int32_t)step / 0x00800000; /* exact: step has nothing below */
	float k = (float)octaves;
	float shrink = plumb_bits_f32(0x40800000u - step);
	float f = plumb_bits_f32(plumb_f32_bits(z) - step) + plumb_fmaf(0.25f, shrink, -1.0f);
	float whole = k * 0x1.62e4p-1f;
	float q, sum, low;

	q = 0x1.1ec4acp-5f;
	q = plumb_fmaf(q, f, -0x1.695f3ep-4f);
	q = plumb_fmaf(q, f, 0x1.ddaa04p-4f);
	q = plumb_fmaf(q, f, -0x1.05bbf0p-3f);
	q = plumb_fmaf(q, f, 0x1.24a980p-3f);
	q = plumb_fmaf(q, f, -0x1.550a78p-3f);
	q = plumb_fmaf(q, f, 0x1.99928ep-3f);
	q = plumb_fmaf(q, f, -0x1.000092p-2f);
	q = plumb_fmaf(q, f, 0x1.555566p-2f);
	q = plumb_fmaf(q, f, -0x1.0p-1f);
	sum = whole + f;
	low = f - (sum - whole);
	low = plumb_fmaf(k, 0x1.7f7d1cp-20f, low);
	low = plumb_fmaf(z_lo * 0.25f * shrink, plumb_fmaf(f, f, 1.0f - f), low);
	low = plumb_fmaf(f * f, q, low);
	return sum + low;
}

/*
 * log(1 + x). Softplus needs x >= 0; the domain is nevertheless the whole: zeros and subnormals are themselves, -Inf at
 * -1, NaN below, Inf at Inf. Never falls as x rises (all binary32 inputs checked).
 */
PLUMB_FN float plumb_log1pf(float x)
{
	float y = plumb_log1p_sum(x, 0.0f);

	y = x == 0.0f || x > 0x1.fffffep127f ? x : y;
	y = x == -1.0f ? -plumb_bits_f32(0x7F800000u) : y;
	return x >= -1.0f ? y : plumb_nanf();
}

/*
 * log(1 + exp(x)) up to x = 20, x above, as torch.nn.functional.softplus with its default threshold. There is no step
 * at the threshold: softplus(20) - 20 is 2e-9, a thousandth of an ulp. Inf at Inf, +0 below -103.9721 and at -Inf. The
 * exponential enters unrounded. Never falls as x rises (all binary32 inputs checked).
 */
PLUMB_FN float plumb_softplusf(float x)
{
	float bounded = x > 20.0f ? 20.0f : x < -104.0f ? -104.0f : x;
	struct plumb_split_f32 e = plumb_exp_split(bounded);
	float y = plumb_log1p_sum(plumb_scale_f32(e.hi, e.exponent), plumb_scale_f32(e.lo, e.exponent));

	y = x > 20.0f ? x : y;
	return x == x ? y : plumb_nanf();
}

/*
 * 1 / sqrt(x), two IEEE operations: two roundings, so up to one and a half ulp. The form is part of the contract and an
 * approximate instruction would differ from machine to machine. +-0 gives +-Inf, Inf gives +0, below zero NaN. Never
 * rises with x (all binary32 inputs checked).
 */
PLUMB_FN float plumb_rsqrtf(float x)
{
	return x >= 0.0f ? plumb_divf(1.0f, plumb_sqrtf(x)) : plumb_nanf();
}

#endif
