/* SPDX-License-Identifier: MIT */
/*
 * Number formats against an independent formulation: decoding by the definition (sign, exponent and mantissa fields,
 * ldexp in binary64), encoding by looking for the nearest code. Every code of every format, every midpoint between
 * neighbouring codes and its two binary32 neighbours, the edges, a stride through all of binary32; then encoders that
 * are known to be wrong, which the same checks must refuse.
 */
#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/numeric.h"
#include "tests/support/suite.h"

enum overflow { TO_INF, SATURATE };

struct format {
	const char *name;
	int exponent_bits, mantissa_bits, bias;
	enum overflow overflow;
	uint32_t largest;     /* code of the largest finite value */
	uint32_t nan_of_plus; /* what a positive NaN without payload is encoded as */
	uint32_t nan_of_minus;
	float (*decode)(uint32_t code);
	uint32_t (*encode)(float x);
};

static float decode_bf16(uint32_t code)
{
	return plumb_bf16_to_f32((uint16_t)code);
}

static uint32_t encode_bf16(float x)
{
	return plumb_f32_to_bf16(x);
}

static float decode_f16(uint32_t code)
{
	return plumb_f16_to_f32((uint16_t)code);
}

static uint32_t encode_f16(float x)
{
	return plumb_f32_to_f16(x);
}

static float decode_e4m3(uint32_t code)
{
	return plumb_e4m3_to_f32((uint8_t)code);
}

static uint32_t encode_e4m3(float x)
{
	return plumb_f32_to_e4m3(x);
}

static float decode_e2m1(uint32_t code)
{
	return plumb_e2m1_to_f32((uint8_t)code);
}

static uint32_t encode_e2m1(float x)
{
	return plumb_f32_to_e2m1(x);
}

static const struct format formats[] = {
	{"bf16", 8, 7, 127, TO_INF, 0x7F7F, 0x7FC0, 0xFFC0, decode_bf16, encode_bf16},
	{"f16", 5, 10, 15, TO_INF, 0x7BFF, 0x7E00, 0xFE00, decode_f16, encode_f16},
	{"e4m3", 4, 3, 7, SATURATE, 0x7E, 0x7F, 0xFF, decode_e4m3, encode_e4m3},
	{"e2m1", 2, 1, 1, SATURATE, 0x7, 0x7, 0x7, decode_e2m1, encode_e2m1},
};
enum { FORMATS = sizeof formats / sizeof formats[0] };

static uint32_t format_sign(const struct format *f)
{
	return 1u << (f->exponent_bits + f->mantissa_bits);
}

/* The value of a magnitude code by the fields' definition. Also defined one past the largest: the next power of two. */
static double magnitude_value(const struct format *f, uint32_t code)
{
	uint32_t mantissa = code & ((1u << f->mantissa_bits) - 1u);
	int exponent = (int)(code >> f->mantissa_bits);

	if (exponent == 0)
		return ldexp((double)mantissa, 1 - f->bias - f->mantissa_bits);
	return ldexp((double)(mantissa + (1u << f->mantissa_bits)), exponent - f->bias - f->mantissa_bits);
}

/*
 * The nearest code of a number (not NaN). Magnitudes rise with their codes (test_codes checks it), so a search by
 * halving finds the two neighbours, and the distances to both decide; both are exact in binary64 where they could be
 * equal.
 */
static uint32_t encode_by_search(const struct format *f, float x)
{
	double magnitude = fabs((double)x), below, above;
	uint32_t low = 0, high = f->largest + 1, code;

	if (magnitude >= magnitude_value(f, high)) {
		low = high;
	} else {
		while (high - low > 1) {
			uint32_t middle = (low + high) / 2;

			if (magnitude_value(f, middle) <= magnitude)
				low = middle;
			else
				high = middle;
		}
	}
	below = magnitude - magnitude_value(f, low);
	above = magnitude_value(f, low + 1) - magnitude;
	code = below < above || (below == above && low % 2 == 0) ? low : low + 1;
	if (code > f->largest)
		code = f->overflow == SATURATE ? f->largest : f->largest + 1;
	return signbit(x) ? code | format_sign(f) : code;
}

/* What a check found: how many inputs went wrong, and the first of them. */
struct verdict {
	long tried, wrong;
	float first;
	uint32_t got, want;
};

static void try_encode(const struct format *f, uint32_t (*encode)(float), float x, struct verdict *v)
{
	uint32_t got = encode(x), want;

	if (isnan(x))
		want = signbit(x) ? f->nan_of_minus : f->nan_of_plus;
	else
		want = encode_by_search(f, x);
	v->tried++;
	if (got == want)
		return;
	if (v->wrong++ == 0) {
		v->first = x;
		v->got = got;
		v->want = want;
	}
}

static void try_around(const struct format *f, uint32_t (*encode)(float), double magnitude, struct verdict *v)
{
	float x = (float)magnitude;

	for (int sign = 0; sign < 2; sign++, x = -x) {
		try_encode(f, encode, nextafterf(x, -INFINITY), v);
		try_encode(f, encode, x, v);
		try_encode(f, encode, nextafterf(x, INFINITY), v);
	}
}

/* Every code and every midpoint with their binary32 neighbours; the edges. Exact: no format here needs more than 24
 * bits. */
static struct verdict try_edges(const struct format *f, uint32_t (*encode)(float))
{
	/* 2688 = 448 * 6 is the largest product an NVFP4 block can hold: what absmax / 6 meets when a scale is missing.
	 */
	static const float edges[] = {0.0f, 0x1p-149f, 0x1p-133f, 0x1p-126f, FLT_MIN, 0x1p-25f, 0x1p-24f, 0x1p-10f, 0x1p-9f,
		0.25f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 6.0f, 7.0f, 8.0f, 240.0f, 447.0f, 448.0f, 463.0f, 464.0f,
		465.0f, 479.0f, 480.0f, 512.0f, 2687.0f, 2688.0f, 2689.0f, 65504.0f, 65519.0f, 65520.0f, 65536.0f,
		0x1.FEp127f, 0x1.FEFFFEp127f, 0x1.FFp127f, FLT_MAX, INFINITY};
	struct verdict v = {0};

	for (uint32_t code = 0; code <= f->largest; code++) {
		double value = magnitude_value(f, code), next = magnitude_value(f, code + 1);

		try_around(f, encode, value, &v);
		if ((value + next) / 2 <= (double)FLT_MAX)
			try_around(f, encode, (value + next) / 2, &v);
	}
	for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
		try_around(f, encode, (double)edges[i], &v);
	try_encode(f, encode, plumb_bits_f32(0x7FC00000u), &v);
	try_encode(f, encode, plumb_bits_f32(0xFFC00000u), &v);
	return v;
}

static void require_clean(const struct format *f, const char *what, struct verdict v)
{
	printf("%s %s: %ld inputs, %ld wrong\n", f->name, what, v.tried, v.wrong);
	if (v.wrong != 0)
		ck_abort_msg("%s %s: %ld of %ld wrong, first %a (%08" PRIx32 "): 0x%" PRIx32 ", expected 0x%" PRIx32,
			f->name, what, v.wrong, v.tried, (double)v.first, plumb_f32_bits(v.first), v.got, v.want);
}

START_TEST(test_codes)
{
	const struct format *f = &formats[_i];
	uint32_t sign = format_sign(f);
	double previous = -1;

	for (uint32_t code = 0; code <= f->largest; code++) {
		double value = magnitude_value(f, code);

		ck_assert_msg(value > previous, "%s: code %" PRIx32 " is not above its predecessor", f->name, code);
		previous = value;
		for (uint32_t signed_code = code; signed_code <= (code | sign); signed_code += sign) {
			float got = f->decode(signed_code);
			bool minus = signed_code != code;

			if ((double)got != (minus ? -value : value) || (signbit(got) != 0) != minus)
				ck_abort_msg("%s: code 0x%" PRIx32 " decodes to %a", f->name, signed_code, (double)got);
			if (f->encode(got) != signed_code)
				ck_abort_msg("%s: 0x%" PRIx32 " does not survive a round trip", f->name, signed_code);
		}
	}
}
END_TEST

/* The codes above the largest finite one: Inf and NaN of bf16 and f16 keep sign and payload, E4M3 has just the NaN. */
START_TEST(test_codes_not_finite)
{
	const struct format *f = &formats[_i];
	uint32_t sign = format_sign(f), quiet = 1u << (f->mantissa_bits - 1);
	int payload_shift = 23 - f->mantissa_bits;

	for (uint32_t code = f->largest + 1; code < sign; code++) {
		for (uint32_t signed_code = code; signed_code <= (code | sign); signed_code += sign) {
			uint32_t got = plumb_f32_bits(f->decode(signed_code));
			uint32_t top = signed_code == code ? 0 : 0x80000000u;
			uint32_t payload = code & ((1u << f->mantissa_bits) - 1u);

			if (f->overflow == SATURATE) {
				ck_assert_uint_eq(got, top | 0x7FC00000u);
				ck_assert_uint_eq(f->encode(plumb_bits_f32(got)), signed_code);
				continue;
			}
			if (got != (top | 0x7F800000u | payload << payload_shift))
				ck_abort_msg(
					"%s: code 0x%" PRIx32 " decodes to bits %08" PRIx32, f->name, signed_code, got);
			if (f->encode(plumb_bits_f32(got)) != (payload == 0 ? signed_code : signed_code | quiet))
				ck_abort_msg("%s: 0x%" PRIx32 " does not stay the Inf or NaN it is", f->name, signed_code);
		}
	}
}
END_TEST

/* No NaN, whatever its payload, may come out as a number (E2M1 excepted, which has none: +6 by contract). */
START_TEST(test_nan_stays_nan)
{
	const struct format *f = &formats[_i];

	for (uint32_t i = 0; i < 46; i++) {
		uint32_t payload = i % 2 == 0 ? 1u << i / 2 : (2u << i / 2) - 1; /* one bit; that bit and all below it */
		float plus = plumb_bits_f32(0x7F800000u | payload), minus = plumb_bits_f32(0xFF800000u | payload);

		if (f->largest == 0x7) {
			ck_assert_uint_eq(f->encode(plus), 0x7);
			ck_assert_uint_eq(f->encode(minus), 0x7);
			continue;
		}
		ck_assert(isnan(f->decode(f->encode(plus))) && (f->encode(plus) & format_sign(f)) == 0);
		ck_assert(isnan(f->decode(f->encode(minus))) && (f->encode(minus) & format_sign(f)) != 0);
	}
	ck_assert_uint_eq(plumb_f32_to_bf16(plumb_bits_f32(0x7F800001u)), 0x7FC0); /* only low payload: not Inf */
	ck_assert_uint_eq(plumb_f32_to_bf16(plumb_bits_f32(0x7FFFFFFFu)), 0x7FFF); /* no carry into the sign */
	ck_assert_uint_eq(plumb_f32_to_f16(plumb_bits_f32(0x7F800001u)), 0x7E00);
}
END_TEST

START_TEST(test_midpoints_and_edges)
{
	require_clean(&formats[_i], "codes, midpoints, edges", try_edges(&formats[_i], formats[_i].encode));
}
END_TEST

/* A stride through all binary32 patterns of both signs; odd, so that every low bit pattern comes up. */
START_TEST(test_encode_sweep)
{
	const struct format *f = &formats[_i];
	struct verdict v = {0};

	for (uint64_t u = 0; u < 0x100000000u; u += 8191) {
		float x = plumb_bits_f32((uint32_t)u);

		if (!isnan(x))
			try_encode(f, f->encode, x, &v);
	}
	require_clean(f, "sweep", v);
}
END_TEST

/*
 * bf16 rounding once more, by another formulation and much denser: rint in units of the last place. It needs the
 * default rounding mode, which nothing here changes.
 */
START_TEST(test_round_bf16_dense)
{
	for (uint64_t u = 0; u < 0x7F800000u; u += 509) {
		float x = plumb_bits_f32((uint32_t)u);
		int exponent;
		double step, want;

		frexp((double)x, &exponent);
		step = ldexp(1.0, (exponent < -125 ? -125 : exponent) - 8);
		want = rint((double)x / step) * step;
		if (want > 0x1.FEp127)
			want = HUGE_VAL;
		if ((double)plumb_round_bf16(x) != want || (double)plumb_round_bf16(-x) != -want)
			ck_abort_msg("round_bf16(%a) = %a, expected %a", (double)x, (double)plumb_round_bf16(x), want);
	}
	ck_assert(signbit(plumb_round_bf16(-0.0f)) && !signbit(plumb_round_bf16(0.0f)));
	ck_assert(isnan(plumb_round_bf16(NAN)));
}
END_TEST

/* The values people know by heart, spelled out, so that a slip in both formulations at once would still show. */
START_TEST(test_known_values)
{
	static const float e2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};

	for (uint8_t code = 0; code < 8; code++) {
		ck_assert(plumb_e2m1_to_f32(code) == e2m1[code] && plumb_e2m1_to_f32(code | 8u) == -e2m1[code]);
		ck_assert(plumb_e2m1_to_f32((uint8_t)(0xF0u | code)) == e2m1[code]); /* the other nibble is ignored */
	}
	ck_assert_uint_eq(plumb_f32_bits(plumb_e2m1_to_f32(8)), 0x80000000u);
	ck_assert(
		plumb_e4m3_to_f32(0x7E) == 448.0f && plumb_e4m3_to_f32(0x01) == 0x1p-9f && plumb_e4m3_to_f32(0x38) == 1.0f);
	ck_assert(plumb_e4m3_to_f32(0x07) == 0.013671875f && plumb_e4m3_to_f32(0x08) == 0.015625f);
	ck_assert_uint_eq(plumb_f32_to_e4m3(464.0f), 0x7E);
	ck_assert_uint_eq(plumb_f32_to_e4m3(-INFINITY), 0xFE);
	ck_assert_uint_eq(plumb_f32_to_e4m3(2688.0f), 0x7E);
	ck_assert_uint_eq(plumb_f32_to_e4m3(-0.0f), 0x80);
	ck_assert_uint_eq(plumb_f32_to_e4m3(0x1p-10f), 0x00); /* tie between 0 and 2^-9: to the even code */
	ck_assert_uint_eq(plumb_f32_to_e4m3(0x1.8p-9f), 0x02);
	ck_assert_uint_eq(plumb_f32_to_e2m1(-0.25f), 0x8);
	ck_assert_uint_eq(plumb_f32_to_e2m1(5.0f), 0x6);
	ck_assert_uint_eq(plumb_f32_to_e2m1(-INFINITY), 0xF);
	ck_assert_uint_eq(plumb_f32_to_bf16(1.0f), 0x3F80);
	ck_assert_uint_eq(plumb_f32_to_bf16(3.14159274f), 0x4049);
	ck_assert_uint_eq(plumb_f32_to_bf16(FLT_MAX), 0x7F80);
	ck_assert(plumb_f16_to_f32(0x3C00) == 1.0f && plumb_f16_to_f32(0x7BFF) == 65504.0f &&
		  plumb_f16_to_f32(0x0001) == 0x1p-24f);
	ck_assert_uint_eq(plumb_f32_to_f16(65519.996f), 0x7BFF);
	ck_assert_uint_eq(plumb_f32_to_f16(65520.0f), 0x7C00);
	ck_assert_uint_eq(plumb_f32_to_f16(0x1p-25f), 0x0000);
}
END_TEST

/* Encoders with one classic fault each (F23 and the rounding points of policy bf16). */
static uint32_t bf16_truncated(float x)
{
	return plumb_f32_bits(x) >> 16;
}

static uint32_t bf16_ties_up(float x)
{
	return ((plumb_f32_bits(x) + 0x8000u) >> 16) & 0xFFFFu;
}

static uint32_t bf16_nan_rounded_like_a_number(float x)
{
	uint32_t u = plumb_f32_bits(x);

	return isnan(x) ? 0x7F80u | (u >> 16 & 0x8000u) : plumb_f32_to_bf16(x);
}

static uint32_t f16_subnormals_flushed(float x)
{
	return fabsf(x) < 0x1p-14f ? (uint32_t)(signbit(x) ? 0x8000 : 0) : plumb_f32_to_f16(x);
}

static uint32_t f16_saturating(float x)
{
	return plumb_f32_to_f16(fabsf(x) > 65504.0f ? copysignf(65504.0f, x) : x);
}

static uint32_t e4m3_not_clamped(float x)
{
	return fabsf(x) >= 464.0f ? (uint32_t)(signbit(x) ? 0xFF : 0x7F) : plumb_f32_to_e4m3(x);
}

static uint32_t e4m3_subnormals_flushed(float x)
{
	return fabsf(x) < 0x1p-6f ? (uint32_t)(signbit(x) ? 0x80 : 0) : plumb_f32_to_e4m3(x);
}

static uint32_t e4m3_nan_saturated(float x)
{
	return isnan(x) ? 0x7E : plumb_f32_to_e4m3(x);
}

static uint32_t e4m3_twice_rounded(float x)
{
	return plumb_f32_to_e4m3(plumb_round_bf16(x));
}

static uint32_t e2m1_ties_away(float x)
{
	return plumb_f32_to_e2m1(nextafterf(x, copysignf(INFINITY, x)));
}

static uint32_t e2m1_minus_zero_dropped(float x)
{
	uint32_t code = plumb_f32_to_e2m1(x);

	return code == 8 ? 0 : code;
}

START_TEST(test_wrong_encoders_are_refused)
{
	static const struct {
		const char *name;
		int format;
		uint32_t (*encode)(float x);
	} wrong[] = {
		{"bf16 truncated", 0, bf16_truncated},
		{"bf16 ties up", 0, bf16_ties_up},
		{"bf16 NaN rounded like a number", 0, bf16_nan_rounded_like_a_number},
		{"f16 subnormals flushed", 1, f16_subnormals_flushed},
		{"f16 saturating", 1, f16_saturating},
		{"e4m3 not clamped", 2, e4m3_not_clamped},
		{"e4m3 subnormals flushed", 2, e4m3_subnormals_flushed},
		{"e4m3 NaN saturated", 2, e4m3_nan_saturated},
		{"e4m3 rounded to bf16 first", 2, e4m3_twice_rounded},
		{"e2m1 ties away", 3, e2m1_ties_away},
		{"e2m1 -0 dropped", 3, e2m1_minus_zero_dropped},
	};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		struct verdict v = try_edges(&formats[wrong[i].format], wrong[i].encode);

		ck_assert_msg(v.wrong > 0, "%s passes", wrong[i].name);
	}
}
END_TEST

START_TEST(test_ulp_distance_edges)
{
	const float inf = INFINITY;
	static const struct {
		float a, b;
		int64_t f32, bf16;
	} cases[] = {
		{0.0f, 0.0f, 0, 0},
		{-0.0f, 0.0f, 0, 0},
		{0x1p-149f, 0.0f, 1, 1},
		{0x1p-149f, -0x1p-149f, 2, 1},
		{0x1p-133f, -0x1p-133f, 0x20000, 2},
		{0x1p-126f, 0x1.fffffcp-127f, 1, 1},
		{1.0f, 0x1.000002p0f, 1, 1},
		{1.0f, 0x1.fffffep-1f, 1, 1},
		{1.0f, 0x1.02p0f, 0x10000, 1},
		{1.0f, 0x1.03p0f, 0x18000, 2},
		{1.0f, 0x1.fep-1f, 0x10000, 1},
		{1.0f, 2.0f, 0x800000, 0x80},
		{1.0f, -1.0f, 0x7F000000, 0x7F00},
		{FLT_MAX, -FLT_MAX, 2 * (int64_t)0x7F7FFFFF, 0xFF00},
		{0x1.FEp127f, -0x1.FEp127f, 2 * (int64_t)0x7F7F0000, 2 * 0x7F7F},
		{INFINITY, INFINITY, 0, 0},
		{-INFINITY, -INFINITY, 0, 0},
		{INFINITY, -INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{FLT_MAX, INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{-FLT_MAX, -INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{0x1.FEp127f, INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{NAN, NAN, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{NAN, INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{NAN, 0.0f, PLUMB_ULP_APART, PLUMB_ULP_APART},
		{-NAN, -INFINITY, PLUMB_ULP_APART, PLUMB_ULP_APART},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		float a = cases[i].a, b = cases[i].b;

		ck_assert_msg(plumb_f32_ulp_distance(a, b) == cases[i].f32 && plumb_f32_ulp_distance(b, a) == cases[i].f32,
			"f32 distance of %a and %a is %" PRId64, (double)a, (double)b, plumb_f32_ulp_distance(a, b));
		ck_assert_msg(
			plumb_bf16_ulp_distance(a, b) == cases[i].bf16 && plumb_bf16_ulp_distance(b, a) == cases[i].bf16,
			"bf16 distance of %a and %a is %" PRId64, (double)a, (double)b, plumb_bf16_ulp_distance(a, b));
	}
	/* The smallest NaN and the Inf are neighbours as bit patterns. */
	ck_assert(plumb_f32_ulp_distance(plumb_bits_f32(0x7F800001u), inf) == PLUMB_ULP_APART);
}
END_TEST

/* Every finite bf16 value: one step to its neighbour in either measure, and nothing to itself. */
START_TEST(test_ulp_distance_neighbours)
{
	for (uint32_t code = 0; code < 0x7F7F; code++) {
		float a = plumb_bf16_to_f32((uint16_t)code), b = plumb_bf16_to_f32((uint16_t)(code + 1));

		if (plumb_bf16_ulp_distance(a, b) != 1 || plumb_bf16_ulp_distance(-a, -b) != 1 ||
			plumb_f32_ulp_distance(a, b) != 0x10000 || plumb_f32_ulp_distance(a, a) != 0 ||
			plumb_f32_ulp_distance(a, nextafterf(a, INFINITY)) != 1 ||
			plumb_f32_ulp_distance(-a, nextafterf(-a, -INFINITY)) != 1)
			ck_abort_msg("bf16 0x%" PRIx32, code);
	}
}
END_TEST

/* Symmetry, triangle inequality, and equality in it when the middle one lies between; over all classes of numbers. */
START_TEST(test_ulp_distance_is_a_metric)
{
	float values[96];
	int count = 0;

	for (uint32_t u = 0; u < 0x7F000000u; u += 0x7F7FFFFFu / 44) {
		values[count] = plumb_bits_f32(u + (u >> 19)); /* not only round bit patterns */
		values[count + 1] = -plumb_bits_f32(u + (u >> 20));
		count += 2;
	}
	ck_assert_int_le(count, 96);
	for (int i = 0; i < count; i++) {
		for (int j = 0; j < count; j++) {
			int64_t ij = plumb_f32_ulp_distance(values[i], values[j]),
				bf16_ij = plumb_bf16_ulp_distance(values[i], values[j]);

			ck_assert(ij >= 0 && ij < INT64_C(0x100000000) && (ij == 0) == (values[i] == values[j]));
			ck_assert(ij == plumb_f32_ulp_distance(values[j], values[i]));
			for (int k = 0; k < count; k++) {
				int64_t ik = plumb_f32_ulp_distance(values[i], values[k]),
					kj = plumb_f32_ulp_distance(values[k], values[j]);
				int64_t bf16_ik = plumb_bf16_ulp_distance(values[i], values[k]);
				int64_t bf16_kj = plumb_bf16_ulp_distance(values[k], values[j]);

				if (ij > ik + kj || bf16_ij > bf16_ik + bf16_kj)
					ck_abort_msg("triangle %a %a %a", (double)values[i], (double)values[k],
						(double)values[j]);
				if (values[i] <= values[k] && values[k] <= values[j] && ij != ik + kj)
					ck_abort_msg("between %a %a %a", (double)values[i], (double)values[k],
						(double)values[j]);
			}
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("numeric");
	TCase *tcase = suite_part(suite, "formats", 60);

	tcase_add_loop_test(tcase, test_codes, 0, FORMATS);
	tcase_add_loop_test(tcase, test_codes_not_finite, 0, FORMATS);
	tcase_add_loop_test(tcase, test_nan_stays_nan, 0, FORMATS);
	tcase_add_loop_test(tcase, test_midpoints_and_edges, 0, FORMATS);
	tcase_add_loop_test(tcase, test_encode_sweep, 0, FORMATS);
	tcase_add_test(tcase, test_round_bf16_dense);
	tcase_add_test(tcase, test_known_values);
	tcase_add_test(tcase, test_wrong_encoders_are_refused);
	tcase = suite_part(suite, "ulp", 60);
	tcase_add_test(tcase, test_ulp_distance_edges);
	tcase_add_test(tcase, test_ulp_distance_neighbours);
	tcase_add_test(tcase, test_ulp_distance_is_a_metric);
	return suite_run(suite);
}
