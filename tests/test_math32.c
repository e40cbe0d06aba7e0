/* SPDX-License-Identifier: MIT */
/*
 * The scalar functions of core/math32.h against libm in binary64, whose own error is below 1e-8 of a binary32 ulp.
 * Prints the figures that the header states and fails where one is exceeded:
 *
 *   all 65,536 bf16 inputs;
 *   a stride through the binary32 inputs for which the function is not trivial (every 63rd bit pattern, every 511th
 *   under sanitizers), where results must also rise or fall with x as claimed.
 *
 * The header's binary32 figures are those of stride 1, about a minute:
 *
 *   PLUMB_MATH32_STRIDE=1 test_math32
 *
 * Then special values, identities, a hash that pins every result bit, and functions known to be wrong, which must fail.
 */
#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/math32.h"
#include "tests/support/suite.h"

#define NAN_BITS 0x7FC00000u
#define INF_BITS 0x7F800000u

#if defined(__SANITIZE_ADDRESS__)
#define DEFAULT_STRIDE 511
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define DEFAULT_STRIDE 511
#endif
#endif
#ifndef DEFAULT_STRIDE
#define DEFAULT_STRIDE 63
#endif

static double exact_sigmoid(double x)
{
	return x < 0 ? exp(x) / (1 + exp(x)) : 1 / (1 + exp(-x));
}

static double exact_silu(double x)
{
	return x * exact_sigmoid(x);
}

static double exact_softplus(double x)
{
	return x > 20 ? x : log1p(exp(x));
}

static double exact_rsqrt(double x)
{
	return 1 / sqrt(x);
}

struct range {
	float from, to; /* magnitudes: bit patterns from, from + stride, ... up to and with to */
};

struct function {
	const char *name;
	float (*f)(float x);
	double (*exact)(double x);
	struct range plus, minus; /* where to sweep; outside, results are constant, x itself, or scale exactly */
	int direction;            /* 1: never falls as x rises, -1: never rises, 0: not claimed */
	double bf16_bound;        /* ulp, normal results, all bf16 inputs */
	double bound;             /* ulp, normal results, all binary32 inputs */
	double subnormal_bound;   /* the same for results below 2^-126, in steps of 2^-149 */
	uint64_t bf16_hash;       /* FNV-1a over the result bits of all bf16 inputs */
};

/* Inline functions have no address that a C++ or device build would share; these give the table one. */
#define ADDRESSABLE(name)                                                                                                  \
	static float addressable_##name(float x)                                                                           \
	{                                                                                                                  \
		return plumb_##name(x);                                                                                    \
	}
ADDRESSABLE(expf)
ADDRESSABLE(sigmoidf)
ADDRESSABLE(siluf)
ADDRESSABLE(log1pf)
ADDRESSABLE(softplusf)
ADDRESSABLE(rsqrtf)

static const struct function functions[] = {
	{"exp", addressable_expf, exp, {0x1p-26f, 89.0f}, {0x1p-26f, 105.0f}, 1, 0.5660, 0.5987, 0.7579,
		UINT64_C(0x57C7CD6A1384B490)},
	{"sigmoid", addressable_sigmoidf, exact_sigmoid, {0x1p-26f, 20.0f}, {0x1p-26f, 105.0f}, 1, 0.5390, 0.5971, 0.7579,
		UINT64_C(0x04A8EB911A342D4F)},
	{"silu", addressable_siluf, exact_silu, {0x1p-26f, 40.0f}, {0x1p-26f, 112.0f}, 0, 0.5324, 0.6135, 0.7803,
		UINT64_C(0x546D9B4E4B8BAD85)},
	{"log1p", addressable_log1pf, log1p, {0x1p-26f, FLT_MAX}, {0x1p-26f, 0x1.fffffep-1f}, 1, 0.7614, 0.8649, 0.0,
		UINT64_C(0xBA980F6425BA4751)},
	{"softplus", addressable_softplusf, exact_softplus, {0x1p-26f, 21.0f}, {0x1p-26f, 105.0f}, 1, 0.6807, 0.8881,
		0.7579, UINT64_C(0x21CA705544F04E44)},
	{"rsqrt", addressable_rsqrtf, exact_rsqrt, {1.0f, 0x1.fffffep1f}, {0, 0}, -1, 1.2782, 1.4904, 0.0,
		UINT64_C(0xC493CC12F2076A56)},
};
enum { FUNCTIONS = sizeof functions / sizeof functions[0] };

/* The spacing of binary32 numbers at |exact|: 2^(e - 23) for 2^e <= |exact| < 2^(e + 1), never below 2^-149. */
static double ulp_at(double exact)
{
	uint64_t u;
	double power;

	memcpy(&u, &exact, sizeof u);
	u &= UINT64_C(0x7FF0000000000000);
	memcpy(&power, &u, sizeof power);
	return power < 0x1p-126 ? 0x1p-149 : power * 0x1p-23;
}

struct error {
	long tried, misrounded, falls;
	int64_t distance; /* from the correctly rounded value, worst */
	double normal, subnormal;
	float normal_at, subnormal_at;
};

/*
 * A NaN is right exactly where the true value is none, and then it is the one quiet NaN; an Inf where the true value
 * rounds to it. Everything else of that kind is an infinite error.
 */
static float try_value(const struct function *f, float (*candidate)(float), float x, struct error *e)
{
	float got = candidate(x), rounded;
	double exact = f->exact((double)x), error;

	e->tried++;
	if (isnan(exact)) {
		if (plumb_f32_bits(got) != NAN_BITS) {
			e->normal = HUGE_VAL;
			e->normal_at = x;
		}
		return got;
	}
	rounded = (float)exact;
	if (got != rounded) {
		int64_t distance = plumb_f32_ulp_distance(got, rounded);

		e->misrounded++;
		e->distance = distance > e->distance ? distance : e->distance;
	}
	if (isinf(got) || isinf(rounded))
		error = got == rounded ? 0 : HUGE_VAL;
	else
		error = fabs((double)got - exact) / ulp_at(exact);
	if (fabs(exact) < 0x1p-126) {
		if (!(error <= e->subnormal)) {
			e->subnormal = error;
			e->subnormal_at = x;
		}
	} else if (!(error <= e->normal)) {
		e->normal = error;
		e->normal_at = x;
	}
	return got;
}

static struct error try_bf16(const struct function *f, float (*candidate)(float))
{
	struct error e = {0};

	for (uint32_t code = 0; code < 0x10000; code++) {
		float x = plumb_bf16_to_f32((uint16_t)code);

		if (isfinite(x)) /* the others are in the table of special values */
			try_value(f, candidate, x, &e);
	}
	return e;
}

static void try_range(const struct function *f, struct range r, bool minus, uint32_t stride, struct error *e)
{
	uint32_t last = plumb_f32_bits(r.to), sign = minus ? 0x80000000u : 0;
	int direction = minus ? -f->direction : f->direction;
	float previous = 0;

	for (uint64_t u = plumb_f32_bits(r.from); u <= last; u += stride) {
		float y = try_value(f, f->f, plumb_bits_f32((uint32_t)u | sign), e);

		if (u != plumb_f32_bits(r.from))
			e->falls += (direction > 0 && !(y >= previous)) || (direction < 0 && !(y <= previous));
		previous = y;
	}
}

static uint64_t hash_bf16(const struct function *f)
{
	uint64_t hash = UINT64_C(0xCBF29CE484222325);

	for (uint32_t code = 0; code < 0x10000; code++) {
		hash ^= plumb_f32_bits(f->f(plumb_bf16_to_f32((uint16_t)code)));
		hash *= UINT64_C(0x100000001B3);
	}
	return hash;
}

static void print_error(const struct function *f, const char *what, struct error e)
{
	printf("%-8s %-16s %10ld inputs  normal %.5f ulp at %a  subnormal %.5f at %a  misrounded %.3f%%, by %" PRId64
	       " at most\n",
		f->name, what, e.tried, e.normal, (double)e.normal_at, e.subnormal, (double)e.subnormal_at,
		100.0 * (double)e.misrounded / (double)e.tried, e.distance);
	fflush(stdout);
}

START_TEST(test_bf16)
{
	const struct function *f = &functions[_i];
	struct error e = try_bf16(f, f->f);

	print_error(f, "bf16", e);
	ck_assert_msg(e.normal <= f->bf16_bound && e.subnormal <= f->subnormal_bound, "%s: %g ulp at %a, %g at %a", f->name,
		e.normal, (double)e.normal_at, e.subnormal, (double)e.subnormal_at);
	ck_assert_int_le(e.distance, 1);
}
END_TEST

START_TEST(test_binary32)
{
	const struct function *f = &functions[_i];
	const char *stride_text = getenv("PLUMB_MATH32_STRIDE");
	uint32_t stride = stride_text ? (uint32_t)strtoul(stride_text, NULL, 10) : DEFAULT_STRIDE;
	char what[32];
	struct error e = {0};

	if (stride == 0)
		stride = DEFAULT_STRIDE;
	try_range(f, f->plus, false, stride, &e);
	if (f->minus.to > 0)
		try_range(f, f->minus, true, stride, &e);
	snprintf(what, sizeof what, "every %" PRIu32, stride);
	print_error(f, what, e);
	ck_assert_msg(e.normal <= f->bound && e.subnormal <= f->subnormal_bound, "%s: %g ulp at %a, %g at %a", f->name,
		e.normal, (double)e.normal_at, e.subnormal, (double)e.subnormal_at);
	ck_assert_int_le(e.distance, 1);
	ck_assert_msg(e.falls == 0, "%s: not monotonic in %ld places", f->name, e.falls);
}
END_TEST

/* Any compiler, any level, any processor: these bits. A change of a polynomial changes them, and nothing else may. */
START_TEST(test_hash)
{
	uint64_t hash = hash_bf16(&functions[_i]);

	printf("%-8s hash of all bf16 inputs 0x%016" PRIX64 "\n", functions[_i].name, hash);
	ck_assert_msg(hash == functions[_i].bf16_hash, "%s: 0x%016" PRIX64, functions[_i].name, hash);
}
END_TEST

START_TEST(test_special_values)
{
	static const struct {
		int function; /* as in the table above */
		uint32_t x, y;
	} cases[] = {
		/* exp: limits, 1 at both zeros, the last finite result, the last that is not zero and its neighbour */
		{0, INF_BITS, INF_BITS},
		{0, 0xFF800000u, 0},
		{0, 0, 0x3F800000u},
		{0, 0x80000000u, 0x3F800000u},
		{0, 0x00000001u, 0x3F800000u},
		{0, 0x42B17217u, 0x7F7FFF84u},
		{0, 0x42B17218u, INF_BITS},
		{0, 0x7F7FFFFFu, INF_BITS},
		{0, 0xC2CFF1B4u, 1},
		{0, 0xC2CFF1B5u, 0},
		{0, 0xFF7FFFFFu, 0},
		/* sigmoid: 0 and 1 at the ends, a half at both zeros; exp(-x) overflows at -89 and -200, the result
	           must not */
		{1, INF_BITS, 0x3F800000u},
		{1, 0xFF800000u, 0},
		{1, 0, 0x3F000000u},
		{1, 0x80000000u, 0x3F000000u},
		{1, 0x7F7FFFFFu, 0x3F800000u},
		{1, 0xFF7FFFFFu, 0},
		{1, 0xC3480000u, 0},
		{1, 0x43480000u, 0x3F800000u},
		/* silu: x at the upper end, -0 at the lower, zeros keep their sign */
		{2, INF_BITS, INF_BITS},
		{2, 0xFF800000u, 0x80000000u},
		{2, 0, 0},
		{2, 0x80000000u, 0x80000000u},
		{2, 0x7F7FFFFFu, 0x7F7FFFFFu},
		{2, 0xFF7FFFFFu, 0x80000000u},
		{2, 0xC3480000u, 0x80000000u},
		{2, 0x42B00000u, 0x42B00000u},
		/* log1p: zeros keep their sign, -Inf at -1, NaN below, tiny x is itself */
		{3, INF_BITS, INF_BITS},
		{3, 0, 0},
		{3, 0x80000000u, 0x80000000u},
		{3, 0x00000001u, 0x00000001u},
		{3, 0x80000001u, 0x80000001u},
		{3, 0xBF800000u, 0xFF800000u},
		{3, 0xBF800001u, NAN_BITS},
		{3, 0xFF800000u, NAN_BITS},
		{3, 0x7F7FFFFFu, 0x42B17218u},
		/* softplus: 20 is the last to go through log1p (and rounds to 20), 88 and 89 are where exp overflows */
		{4, INF_BITS, INF_BITS},
		{4, 0xFF800000u, 0},
		{4, 0, 0x3F317218u},
		{4, 0x80000000u, 0x3F317218u},
		{4, 0x41A00000u, 0x41A00000u},
		{4, 0x41A00001u, 0x41A00001u},
		{4, 0x42B00000u, 0x42B00000u},
		{4, 0x42B20000u, 0x42B20000u},
		{4, 0x7F7FFFFFu, 0x7F7FFFFFu},
		{4, 0xC3480000u, 0},
		{4, 0xFF7FFFFFu, 0},
		/* 1/sqrt: IEEE; subnormal x is not flushed */
		{5, INF_BITS, 0},
		{5, 0xFF800000u, NAN_BITS},
		{5, 0, INF_BITS},
		{5, 0x80000000u, 0xFF800000u},
		{5, 0xBF800000u, NAN_BITS},
		{5, 0x80000001u, NAN_BITS},
		{5, 0x3F800000u, 0x3F800000u},
		{5, 0x40800000u, 0x3F000000u},
		{5, 0x00000002u, 0x64800000u},
	};
	static const uint32_t nans[] = {0x7FC00000u, 0xFFC00000u, 0x7F800001u, 0xFF800001u, 0x7FFFFFFFu, 0xFFFFFFFFu};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		const struct function *f = &functions[cases[i].function];
		uint32_t y = plumb_f32_bits(f->f(plumb_bits_f32(cases[i].x)));

		ck_assert_msg(y == cases[i].y, "%s(%08" PRIx32 ") = %08" PRIx32 ", expected %08" PRIx32, f->name,
			cases[i].x, y, cases[i].y);
	}
	for (size_t i = 0; i < FUNCTIONS; i++)
		for (size_t j = 0; j < sizeof nans / sizeof nans[0]; j++)
			ck_assert_uint_eq(plumb_f32_bits(functions[i].f(plumb_bits_f32(nans[j]))), NAN_BITS);
}
END_TEST

/*
 * What the ranges of the sweeps leave out. Below 2^-26 each function is within a quarter ulp of 1, 1/2, x/2, x or ln 2;
 * far out it is constant or x; 1/sqrt scales by 2^-1 when x does by 2^2 (subnormal x included: the result is normal).
 */
START_TEST(test_outside_the_sweeps)
{
	for (uint64_t u = 0; u < 0x7F800000u; u += 4093) {
		float x = plumb_bits_f32((uint32_t)u), half = x / 2; /* rounds in the last subnormal place, as silu must */
		bool right = true;

		if (x < 0x1p-26f)
			right = plumb_expf(x) == 1 && plumb_expf(-x) == 1 && plumb_sigmoidf(x) == 0.5f &&
			        plumb_sigmoidf(-x) == 0.5f && plumb_siluf(x) == half && plumb_siluf(-x) == -half &&
			        plumb_log1pf(x) == x && plumb_log1pf(-x) == -x && plumb_softplusf(x) == 0x1.62e430p-1f &&
			        plumb_softplusf(-x) == 0x1.62e430p-1f;
		if (x > 20)
			right = right && plumb_sigmoidf(x) == 1 && plumb_softplusf(x) == x;
		if (x > 40)
			right = right && plumb_siluf(x) == x;
		if (x > 105)
			right = right && plumb_expf(x) > FLT_MAX && plumb_expf(-x) == 0 && plumb_sigmoidf(-x) == 0 &&
			        plumb_softplusf(-x) == 0;
		if (x > 112)
			right = right && plumb_f32_bits(plumb_siluf(-x)) == 0x80000000u;
		if (x >= 0x1p-147f && x <= 0x1p125f)
			right = right && plumb_rsqrtf(4 * x) == plumb_rsqrtf(x) / 2;
		if (!right)
			ck_abort_msg("at +-%a", (double)x);
	}
}
END_TEST

/* sigmoid(x) + sigmoid(-x) = 1, silu(x) - silu(-x) = x, softplus(x) - softplus(-x) = x, each within its roundings. */
START_TEST(test_identities)
{
	for (uint32_t u = 0; u < 0x42D20000u; u += 16381) {
		float x = plumb_bits_f32(u);
		double sigmoids = (double)plumb_sigmoidf(x) + (double)plumb_sigmoidf(-x);
		double silus = (double)plumb_siluf(x) - (double)plumb_siluf(-x);
		double softpluses = (double)plumb_softplusf(x) - (double)plumb_softplusf(-x);

		if (!(fabs(sigmoids - 1) <= 0x1p-24))
			ck_abort_msg("sigmoid(%a) + sigmoid of the opposite = %a", (double)x, sigmoids);
		if (!(fabs(silus - (double)x) <= 2 * ulp_at((double)x)))
			ck_abort_msg("silu(%a) - silu of the opposite = %a", (double)x, silus);
		if (!(fabs(softpluses - (double)x) <= 2 * ulp_at(fmax((double)x, 0.5))))
			ck_abort_msg("softplus(%a) - softplus of the opposite = %a", (double)x, softpluses);
	}
}
END_TEST

/* softplus where it changes its formula: one step on either side of 20, and no step between them. */
START_TEST(test_softplus_threshold)
{
	float below = nextafterf(20.0f, 0.0f), above = nextafterf(20.0f, 21.0f);

	ck_assert(plumb_softplusf(below) == below && plumb_softplusf(20.0f) == 20.0f && plumb_softplusf(above) == above);
	ck_assert(plumb_f32_ulp_distance(plumb_softplusf(-20.0f), (float)log1p(exp(-20.0))) <= 1);
	ck_assert(plumb_softplusf(-88.0f) > 0 && plumb_softplusf(-103.0f) > 0 && plumb_softplusf(-104.0f) == 0);
	ck_assert(plumb_f32_bits(plumb_softplusf(-200.0f)) == 0);
}
END_TEST

/* The faults of F12 and the shortcuts that look harmless; each must break a bound of its function over the bf16 inputs.
 */
static float exp_two_roundings(float x)
{
	return powf(2.0f, x * 0x1.715476p+0f); /* exp2(x * log2(e)): the rounded product is up to 64 ulp off */
}

static float exp_subnormals_flushed(float x)
{
	float y = plumb_expf(x);

	return y < FLT_MIN ? 0 : y;
}

static float exp_clamped_at_88(float x)
{
	return plumb_expf(x > 88.0f ? 88.0f : x);
}

static float sigmoid_textbook(float x)
{
	return 1 / (1 + plumb_expf(-x));
}

static float sigmoid_by_tanh(float x)
{
	return 0.5f * tanhf(0.5f * x) + 0.5f;
}

static float silu_as_sigmoid(float x)
{
	return plumb_sigmoidf(x);
}

static float silu_as_product(float x)
{
	return x * plumb_sigmoidf(x);
}

static float silu_mask_arithmetic(float x)
{
	float positive = (float)(x >= 0), e = plumb_expf(x), one_over = 1 / (1 + plumb_expf(-x));

	return x * (positive * one_over + (1 - positive) * (e / (1 + e))); /* 0 * Inf where the other branch overflows */
}

static float log1p_by_log(float x)
{
	return logf(1 + x);
}

static float softplus_without_threshold(float x)
{
	return log1pf(plumb_expf(x));
}

static float softplus_by_log(float x)
{
	return x > 20 ? x : logf(1 + plumb_expf(x));
}

static float rsqrt_twelve_bits(float x)
{
	return plumb_bits_f32(plumb_f32_bits(plumb_rsqrtf(x)) & ~0x7FFu);
}

START_TEST(test_wrong_functions_are_refused)
{
	static const struct {
		const char *name;
		int function;
		float (*f)(float x);
	} wrong[] = {
		{"exp2 of a rounded product", 0, exp_two_roundings},
		{"exp with subnormals flushed", 0, exp_subnormals_flushed},
		{"exp clamped at 88", 0, exp_clamped_at_88},
		{"textbook sigmoid", 1, sigmoid_textbook},
		{"sigmoid by tanh", 1, sigmoid_by_tanh},
		{"silu taken for sigmoid", 1, addressable_siluf},
		{"sigmoid taken for silu", 2, silu_as_sigmoid},
		{"silu as a rounded product", 2, silu_as_product},
		{"silu with mask arithmetic", 2, silu_mask_arithmetic},
		{"log(1 + x)", 3, log1p_by_log},
		{"softplus without its threshold", 4, softplus_without_threshold},
		{"softplus by log(1 + exp)", 4, softplus_by_log},
		{"rsqrt of an approximate instruction", 5, rsqrt_twelve_bits},
	};

	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		const struct function *f = &functions[wrong[i].function];
		struct error e = try_bf16(f, wrong[i].f);

		ck_assert_msg(!(e.normal <= f->bf16_bound && e.subnormal <= f->subnormal_bound), "%s passes: %g, %g ulp",
			wrong[i].name, e.normal, e.subnormal);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("math32");
	TCase *tcase = suite_part(suite, "math32", getenv("PLUMB_MATH32_STRIDE") ? 0 : 60);

	tcase_add_loop_test(tcase, test_bf16, 0, FUNCTIONS);
	tcase_add_loop_test(tcase, test_binary32, 0, FUNCTIONS);
	tcase_add_loop_test(tcase, test_hash, 0, FUNCTIONS);
	tcase_add_test(tcase, test_special_values);
	tcase_add_test(tcase, test_outside_the_sweeps);
	tcase_add_test(tcase, test_identities);
	tcase_add_test(tcase, test_softplus_threshold);
	tcase_add_test(tcase, test_wrong_functions_are_refused);
	return suite_run(suite);
}
