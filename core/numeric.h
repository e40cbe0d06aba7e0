/* SPDX-License-Identifier: MIT */
/*
 * Number formats: binary32, bfloat16, binary16, FP8 E4M3 and FP4 E2M1, in integer code that C11, C++17 and nvcc (host
 * and device) turn into the same bits.
 *
 * Why not the compilers' or the hardware's own conversions: they disagree where it hurts. F16C keeps NaN payloads and
 * the device instructions do not, E4M3 saturation is a flag on one and a separate call on another, and a host library
 * that sets flush-to-zero would lose subnormal codes. Nothing below depends on the rounding mode or on flush-to-zero:
 * every rounding is done on integers, and the only floating-point operations are exact ones with normal or zero
 * operands. Nor is there a table: device code cannot reach a host array, and two copies would be two truths.
 *
 * Decoders accept every code. Encoders round to nearest, ties to the even code.
 *
 * format   codes    largest     smallest normal   step of subnormals   Inf   NaN
 * bf16     65536    0x1.fep127  2^-126            2^-133               yes   yes
 * f16      65536    65504       2^-14             2^-24                yes   yes
 * e4m3     256      448         2^-6              2^-9                 no    0x7F, 0xFF   (the OCP "E4M3FN" encoding)
 * e2m1     16       6           1                 0.5                  no    no
 */
#ifndef PLUMB_CORE_NUMERIC_H
#define PLUMB_CORE_NUMERIC_H

#include <stdint.h>
#include <string.h>

#ifndef PLUMB_FN
#ifdef __CUDACC__
#define PLUMB_FN static __host__ __device__ __forceinline__
#else
#define PLUMB_FN static inline
#endif
#endif

/* The 32 bits of x, NaN payload included. */
PLUMB_FN uint32_t plumb_f32_bits(float x)
{
#ifdef __CUDA_ARCH__
	return __float_as_uint(x);
#else
	uint32_t u;

	memcpy(&u, &x, sizeof u);
	return u;
#endif
}

/* The binary32 value with these bits. */
PLUMB_FN float plumb_bits_f32(uint32_t u)
{
#ifdef __CUDA_ARCH__
	return __uint_as_float(u);
#else
	float x;

	memcpy(&x, &u, sizeof x);
	return x;
#endif
}

/* m / 2^shift rounded to nearest, ties to even; 1 <= shift <= 31 and m < 2^31, so the sum stays below 2^32. */
PLUMB_FN uint32_t plumb_shift_rne(uint32_t m, uint32_t shift)
{
	return (m + ((1u << (shift - 1)) - 1u) + ((m >> shift) & 1u)) >> shift;
}

/*
 * |x| as a whole number of steps of 2^step_log2, to nearest, ties to even, where abs holds the bits of |x| and |x| is
 * below 2^23 steps. This is how a value that is subnormal in a narrow format is rounded: its code is that whole number.
 * A binary32 subnormal has no implicit bit, but every step used here is so much larger that it rounds to 0 either way.
 */
PLUMB_FN uint32_t plumb_steps_rne(uint32_t abs, int step_log2)
{
	int exponent = (int)(abs >> 23);
	uint32_t significand = (abs & 0x7FFFFFu) | 0x800000u; /* |x| = significand * 2^(exponent - 150) */
	int shift = 150 + step_log2 - exponent;

	/* From 26 on |x| is below a quarter step and rounds to 0. The cap keeps the shift defined. */
	return plumb_shift_rne(significand, (uint32_t)(shift > 26 ? 26 : shift));
}

/* bf16: the upper half of a binary32. Exact, NaN payloads included. */
PLUMB_FN float plumb_bf16_to_f32(uint16_t code)
{
	return plumb_bits_f32((uint32_t)code << 16);
}

/*
 * Above 0x1.FEFFFFp127 (the last binary32 that rounds down to the largest bf16) the carry runs into the exponent and
 * gives Inf, as round to nearest demands. A NaN keeps its sign and upper payload and is made quiet: rounding it like a
 * number would turn 0x7FFFFFFF into -0 and 0x7F800001 into Inf.
 */
PLUMB_FN uint16_t plumb_f32_to_bf16(float x)
{
	uint32_t u = plumb_f32_bits(x);

	if ((u & 0x7FFFFFFFu) > 0x7F800000u)
		return (uint16_t)((u >> 16) | 0x0040u);
	return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* x rounded to the nearest bf16 value, as a binary32: a rounding point of policy bf16. */
PLUMB_FN float plumb_round_bf16(float x)
{
	return plumb_bf16_to_f32(plumb_f32_to_bf16(x));
}

/* binary16. Exact; a NaN keeps its payload in the upper bits (a signalling NaN stays one). */
PLUMB_FN float plumb_f16_to_f32(uint16_t code)
{
	uint32_t sign = (uint32_t)(code & 0x8000u) << 16;
	uint32_t abs = code & 0x7FFFu;

	if (abs < 0x0400u) /* zero and subnormals: a whole number of steps of 2^-24 */
		return plumb_bits_f32(plumb_f32_bits((float)abs * 0x1p-24f) | sign);
	if (abs >= 0x7C00u) /* Inf and NaN: all exponent bits set */
		return plumb_bits_f32(sign | 0x7F800000u | ((abs & 0x03FFu) << 13));
	return plumb_bits_f32(sign | ((abs << 13) + (112u << 23))); /* rebias 15 to 127 */
}

/* From 65520, the midpoint of 65504 and the next power of two, on: Inf. NaN: quiet, sign and upper payload kept. */
PLUMB_FN uint16_t plumb_f32_to_f16(float x)
{
	uint32_t u = plumb_f32_bits(x);
	uint32_t sign = (u >> 16) & 0x8000u;
	uint32_t abs = u & 0x7FFFFFFFu;

	if (abs > 0x7F800000u)
		return (uint16_t)(sign | 0x7E00u | ((abs >> 13) & 0x03FFu));
	if (abs >= 0x477FF000u) /* 65520 */
		return (uint16_t)(sign | 0x7C00u);
	if (abs < 0x38800000u) /* below 2^-14; rounding up to it gives code 0x0400, which is 2^-14 */
		return (uint16_t)(sign | plumb_steps_rne(abs, -24));
	return (uint16_t)(sign | plumb_shift_rne(abs - (112u << 23), 13));
}

/* E4M3FN. Exact; 0x7F and 0xFF give a quiet NaN with the code's sign. Masks instead of branches: a loop of it is vector
 * code. */
PLUMB_FN float plumb_e4m3_to_f32(uint8_t code)
{
	uint32_t sign = (uint32_t)(code & 0x80u) << 24;
	uint32_t abs = code & 0x7Fu;
	uint32_t tiny = plumb_f32_bits((float)(int32_t)abs * 0x1p-9f); /* zero and subnormals: whole steps of 2^-9 */
	uint32_t normal = (abs << 20) + (120u << 23);                  /* rebias 7 to 127 */
	uint32_t is_tiny = 0u - (abs < 0x08u), is_nan = 0u - (abs == 0x7Fu);

	return plumb_bits_f32(sign | (tiny & is_tiny) | (normal & ~is_tiny & ~is_nan) | (0x7FC00000u & is_nan));
}

/*
 * Saturating: everything above 448, Inf included, gives +-448 (0x7E, 0xFE), as the weights' writers do. NaN gives 0x7F
 * with the sign of the NaN: a NaN that became 448 would be hidden.
 */
PLUMB_FN uint8_t plumb_f32_to_e4m3(float x)
{
	uint32_t u = plumb_f32_bits(x);
	uint32_t sign = (u >> 24) & 0x80u;
	uint32_t abs = u & 0x7FFFFFFFu;

	if (abs > 0x7F800000u)
		return (uint8_t)(sign | 0x7Fu);
	if (abs >= 0x43E00000u) /* 448 */
		return (uint8_t)(sign | 0x7Eu);
	if (abs < 0x3C800000u) /* below 2^-6; rounding up to it gives code 0x08, which is 2^-6 */
		return (uint8_t)(sign | plumb_steps_rne(abs, -9));
	return (uint8_t)(sign | plumb_shift_rne(abs - (120u << 23), 20));
}

/*
 * E2M1, in the low four bits; the upper four are ignored, so the nibbles of a packed byte decode as byte and byte >> 4.
 * Magnitudes 0 0.5 1 1.5 2 3 4 6: two bits of exponent and one of mantissa moved to their places in a binary32 and
 * rebiased by 126, which is right for all but 0 and the one subnormal, 0.5. Code 8 is -0.
 */
PLUMB_FN float plumb_e2m1_to_f32(uint8_t nibble)
{
	uint32_t sign = (uint32_t)(nibble & 0x8u) << 28;
	uint32_t abs = nibble & 0x7u;
	uint32_t bits = (abs << 22) + (126u << 23) - ((uint32_t)(abs == 1u) << 22);

	return plumb_bits_f32(sign | (bits & (0u - (abs != 0u))));
}

/*
 * Saturating at +-6, Inf included; ties go to the even code (0.25 -> 0, 0.75 -> 1, 1.25 -> 1, 1.75 -> 2, 2.5 -> 2,
 * 3.5 -> 4, 5 -> 4). A negative value that rounds to zero gives 8, which is -0. The format has no NaN: a NaN of either
 * sign gives 7 (+6), as PTX defines cvt.rn.satfinite.e2m1x2.f32.
 * LIMIT: so a NaN does not survive this encoder; whoever packs a block must look for NaN first (its block maximum is one
 * too, if taken with a comparison that lets NaN through).
 */
PLUMB_FN uint8_t plumb_f32_to_e2m1(float x)
{
	uint32_t u = plumb_f32_bits(x);
	uint32_t sign = (u >> 28) & 0x8u;
	uint32_t abs = u & 0x7FFFFFFFu;

	if (abs > 0x7F800000u)
		return 0x7u;
	if (abs >= 0x40C00000u) /* 6 */
		return (uint8_t)(sign | 0x7u);
	if (abs < 0x3F800000u) /* below 1; rounding up to it gives code 2, which is 1 */
		return (uint8_t)(sign | plumb_steps_rne(abs, -1));
	return (uint8_t)(sign | plumb_shift_rne(abs - (126u << 23), 22)); /* rebias 127 to 1 */
}

/* What a ulp distance says of values that are no distance apart at all: Inf against anything else, NaN against
 * anything. */
#define PLUMB_ULP_APART INT64_MAX

/* The place of a number among all binary32 numbers: -0 and +0 at 0, neighbours one apart. */
PLUMB_FN int64_t plumb_f32_ordinal(float x)
{
	uint32_t u = plumb_f32_bits(x);
	int64_t abs = (int64_t)(u & 0x7FFFFFFFu);

	return (u >> 31) != 0 ? -abs : abs;
}

/*
 * How many steps from number to number lead from a to b; symmetric, never negative, below 2^32 for finite values.
 *   -0 and +0 are 0 apart, the smallest subnormals of either sign 2.
 *   Inf is 0 from the Inf of its own sign and PLUMB_ULP_APART from everything else: FLT_MAX to Inf is one step of the
 * bit pattern, and a comparator with a bound of one ulp would take an overflow for a rounding. A NaN is PLUMB_ULP_APART
 * from everything, itself included: two sides that both fail do not agree. Who wants matching NaNs to pass must say so
 * by testing for them before. The pass condition is distance <= bound for a bound below PLUMB_ULP_APART.
 */
PLUMB_FN int64_t plumb_f32_ulp_distance(float a, float b)
{
	uint32_t abs_a = plumb_f32_bits(a) & 0x7FFFFFFFu;
	uint32_t abs_b = plumb_f32_bits(b) & 0x7FFFFFFFu;
	int64_t distance;

	if (abs_a > 0x7F800000u || abs_b > 0x7F800000u)
		return PLUMB_ULP_APART;
	distance = plumb_f32_ordinal(a) - plumb_f32_ordinal(b);
	if (distance != 0 && (abs_a == 0x7F800000u || abs_b == 0x7F800000u))
		return PLUMB_ULP_APART;
	return distance < 0 ? -distance : distance;
}

/*
 * The same in steps of bf16, for values that are bf16 values held in binary32. A value that is not one (a rounding
 * point left out) is never taken for its neighbour: a part of a step counts as a whole step, so the result is 0 only
 * for equal values. NaN and Inf as above.
 */
PLUMB_FN int64_t plumb_bf16_ulp_distance(float a, float b)
{
	int64_t distance = plumb_f32_ulp_distance(a, b);

	return distance == PLUMB_ULP_APART ? distance : (distance + 0xFFFF) >> 16;
}

#endif
