/* SPDX-License-Identifier: MIT */
/* The comparator itself: every way in which others were seen to lie must fail here, at every tolerance that ships.
 * Then the classes of special values, vacuous comparisons, each bound exactly at its threshold and one step beyond,
 * independence of how the elements were handed over, and random vectors against a plain long double evaluation. */
#include <check.h>
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "core/compare.h"
#include "core/numeric.h"
#include "core/status.h"
#include "core/tolerance.h"
#include "tests/support/suite.h"

enum { N = 2560 }; /* hidden size of the release, and the size of the measurements behind the table */

static uint64_t state;

static uint64_t next_u64(void) /* splitmix64 */
{
	uint64_t z = state += 0x9E3779B97F4A7C15u;

	z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
	z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
	return z ^ (z >> 31);
}

static double uniform(void) /* (0, 1) */
{
	return ((double)(next_u64() >> 12) + 0.5) * 0x1p-52;
}

static float normal(void)
{
	return (float)(sqrt(-2.0 * log(uniform())) * cos(6.283185307179586 * uniform()));
}

static float any_f32(void) /* any bit pattern, special values often */
{
	static const float special[] = {0.0f, -0.0f, FLT_MAX, -FLT_MAX, FLT_MIN, 0x1p-149f, INFINITY, -INFINITY, NAN, 1.0f};

	if (next_u64() % 4 == 0)
		return special[next_u64() % 10];
	return plumb_bits_f32((uint32_t)next_u64());
}

/* The element whose magnitude is the median: zeroing it must not be a matter of luck. */
static int typical_element(const float *r)
{
	for (int i = 0; i < N; i++) {
		int below = 0, up_to = 0;
		for (int j = 0; j < N; j++) {
			below += fabsf(r[j]) < fabsf(r[i]);
			up_to += fabsf(r[j]) <= fabsf(r[i]);
		}
		if (below <= N / 2 && N / 2 < up_to)
			return i;
	}
	ck_abort_msg("no median");
	return 0;
}

/* Candidates. r may be changed as well. */
static void same(float *c, float *r)
{
	memcpy(c, r, N * sizeof *c);
}

static void one_nan(float *c, float *r)
{
	same(c, r);
	c[1234] = NAN;
}

static void all_nan(float *c, float *r)
{
	(void)r;
	for (int i = 0; i < N; i++)
		c[i] = NAN;
}

static void error_then_nan(float *c, float *r)
{
	same(c, r);
	c[7] += 1e6f;
	c[8] = NAN;
}

static void negate(float *c, const float *r)
{
	for (int i = 0; i < N; i++)
		c[i] = -r[i];
}

static void matching_inf_rest_negated(float *c, float *r)
{
	negate(c, r);
	r[3] = INFINITY;
	c[3] = INFINITY;
}

static void matching_1e20_rest_negated(float *c, float *r)
{
	negate(c, r);
	r[3] = plumb_round_bf16(1e20f);
	c[3] = r[3];
}

static void max_where_inf(float *c, float *r)
{
	same(c, r);
	r[100] = INFINITY;
	c[100] = FLT_MAX;
}

static void number_where_nan(float *c, float *r)
{
	same(c, r);
	r[100] = NAN;
	c[100] = 123.0f;
}

static void twice(float *c, float *r)
{
	for (int i = 0; i < N; i++)
		c[i] = 2.0f * r[i];
}

static void one_zeroed(float *c, float *r)
{
	same(c, r);
	c[typical_element(r)] = 0.0f;
}

static void one_flipped(float *c, float *r)
{
	int i = typical_element(r);

	same(c, r);
	c[i] = -r[i];
}

static void three_percent(float *c, float *r)
{
	for (int i = 0; i < N; i++)
		c[i] = r[i] * (next_u64() & 1 ? 1.03f : 0.97f);
}

static void both_zero(float *c, float *r)
{
	memset(c, 0, N * sizeof *c);
	memset(r, 0, N * sizeof *r);
}

/* Beyond the table. */
static void both_constant(float *c, float *r)
{
	for (int i = 0; i < N; i++)
		c[i] = r[i] = 0.5f;
}

static void inf_where_max(float *c, float *r)
{
	same(c, r);
	r[100] = FLT_MAX;
	c[100] = INFINITY;
}

static void other_inf(float *c, float *r)
{
	same(c, r);
	r[100] = INFINITY;
	c[100] = -INFINITY;
}

static void both_nan(float *c, float *r)
{
	r[100] = NAN;
	same(c, r);
}

static void shifted_by_one(float *c, float *r)
{
	for (int i = 0; i < N; i++)
		c[i] = r[(i + 1) % N];
}

static void zeros(float *c, float *r)
{
	(void)r;
	memset(c, 0, N * sizeof *c);
}

static const struct {
	const char *name;
	void (*make)(float *c, float *r);
} broken[] = {
	{"one NaN in c", one_nan},
	{"c all NaN", all_nan},
	{"1e6 error, then a NaN", error_then_nan},
	{"one matching Inf, all else negated", matching_inf_rest_negated},
	{"one matching 1e20, all else negated", matching_1e20_rest_negated},
	{"FLT_MAX where r has Inf", max_where_inf},
	{"r NaN, c = 123", number_where_nan},
	{"c = 2r", twice},
	{"one typical element zeroed", one_zeroed},
	{"one typical element sign-flipped", one_flipped},
	{"every element +-3 %", three_percent},
	{"both all zero", both_zero},
	{"both one constant", both_constant},
	{"Inf where r has FLT_MAX", inf_where_max},
	{"-Inf where r has Inf", other_inf},
	{"NaN on both sides", both_nan},
	{"shifted by one element", shifted_by_one},
	{"c all zero", zeros},
};
enum { BROKEN = sizeof broken / sizeof broken[0] };

static void make_reference(float *r, enum plumb_policy policy, uint64_t seed)
{
	state = seed;
	for (int i = 0; i < N; i++)
		r[i] = policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(normal()) : normal();
}

static struct plumb_verdict judge(const float *c, const float *r, int64_t n, const struct plumb_tolerance *tolerance)
{
	struct plumb_compare cmp;
	struct plumb_verdict verdict;
	int status;

	plumb_compare_f32(&cmp, c, r, n);
	status = plumb_verdict(&cmp, tolerance, &verdict);
	ck_assert_int_eq(status, verdict.pass ? PLUMB_OK : PLUMB_MISMATCH);
	ck_assert_int_eq(strncmp(verdict.text, verdict.pass ? "pass: " : "FAIL: ", 6), 0);
	ck_assert_ptr_null(strchr(verdict.text, '\n'));
	return verdict;
}

START_TEST(test_every_broken_row_fails)
{
	static float c[N], r[N];
	static const struct plumb_tolerance strict[] = {
		{.set = PLUMB_BOUND_EXACT},
		{.set = PLUMB_BOUND_BITS},
		{.set = PLUMB_BOUND_ULP, .max_ulp = 1},
	};
	struct plumb_tolerances *file;
	struct plumb_error err;
	const struct plumb_tolerance_rule *rule;
	int rules;

	ck_assert_msg(plumb_tolerances_read(NULL, &file, &err) == PLUMB_OK, "%s", err.text);
	rule = plumb_tolerances_rules(file, &rules);
	ck_assert_int_ge(rules, 4);
	for (int i = 0; i < rules + 3; i++) {
		const struct plumb_tolerance *tolerance = i < rules ? &rule[i].tolerance : &strict[i - rules];
		enum plumb_policy policy = i < rules ? rule[i].policy : PLUMB_POLICY_F32;
		const char *view = i < rules ? plumb_view_name(rule[i].view) : "strict";
		const char *suffix = i < rules ? rule[i].suffix : "";

		for (uint64_t seed = 1; seed <= 5; seed++) {
			struct plumb_verdict verdict;
			make_reference(r, policy, seed);
			same(c, r);
			verdict = judge(c, r, N, tolerance);
			ck_assert_msg(verdict.pass, "%s %s %s: equal tensors: %s", view, plumb_policy_name(policy), suffix,
				verdict.text);
			ck_assert_msg(!judge(c, r, _i >= 0 ? 0 : N, tolerance).pass, "nothing compared");
		}
		for (uint64_t seed = 1; seed <= 5; seed++) {
			struct plumb_verdict verdict;
			make_reference(r, policy, seed);
			broken[_i].make(c, r);
			for (int k = 0; policy == PLUMB_POLICY_BF16 && k < N; k++)
				if (isfinite(c[k]) && fabsf(c[k]) < FLT_MAX)
					c[k] = plumb_round_bf16(c[k]);
			verdict = judge(c, r, N, tolerance);
			ck_assert_msg(!verdict.pass, "%s %s %s lets through: %s: %s", view, plumb_policy_name(policy),
				suffix, broken[_i].name, verdict.text);
		}
	}
	plumb_tolerances_free(file);
}
END_TEST

/* The same table decides whether a tolerance is worth anything: what others loosened theirs to passes. */
START_TEST(test_table_has_power)
{
	static float c[N], r[N];
	static const struct plumb_tolerance loose = {.set = PLUMB_BOUND_REL_L2, .max_rel_l2 = 0.05};
	int passed = 0;

	for (int row = 0; row < BROKEN; row++) {
		make_reference(r, PLUMB_POLICY_F32, 1);
		broken[row].make(c, r);
		passed += judge(c, r, N, &loose).pass;
	}
	ck_assert_int_eq(passed, 4); /* 1e20, zeroed, flipped, +-3 %: what a norm alone lets through */
}
END_TEST

enum outcome { EQUAL, ZERO_SIGN, DIFFER, NAN_BOTH, NAN_ONE, INF_SIGN, INF_ONE };

static enum outcome outcome_of(const struct plumb_compare *cmp)
{
	const int64_t count[] = {
		cmp->equal, cmp->zero_sign, cmp->differ, cmp->nan_both, cmp->nan_one, cmp->inf_sign, cmp->inf_one};
	int found = -1;

	for (int i = 0; i < 7; i++) {
		if (count[i] == 0)
			continue;
		ck_assert_int_eq(found, -1); /* exactly one */
		found = i;
	}
	return (enum outcome)found;
}

static const struct {
	float c, r;
	enum outcome outcome;
	bool exact, bits, exact_nan; /* whether it passes: exact, bits, exact with allow_nan */
} class_pair[] = {
	{NAN, NAN, NAN_BOTH, false, false, true},
	{NAN, INFINITY, NAN_ONE, false, false, false},
	{NAN, 0.0f, NAN_ONE, false, false, false},
	{NAN, FLT_MAX, NAN_ONE, false, false, false},
	{INFINITY, NAN, NAN_ONE, false, false, false},
	{INFINITY, INFINITY, EQUAL, true, true, true},
	{INFINITY, 0.0f, INF_ONE, false, false, false},
	{INFINITY, FLT_MAX, INF_ONE, false, false, false},
	{-0.0f, NAN, NAN_ONE, false, false, false},
	{-0.0f, INFINITY, INF_ONE, false, false, false},
	{-0.0f, 0.0f, ZERO_SIGN, true, false, true},
	{-0.0f, FLT_MAX, DIFFER, false, false, false},
	{FLT_MAX, NAN, NAN_ONE, false, false, false},
	{FLT_MAX, INFINITY, INF_ONE, false, false, false},
	{FLT_MAX, 0.0f, DIFFER, false, false, false},
	{FLT_MAX, FLT_MAX, EQUAL, true, true, true},
	/* signs */
	{-INFINITY, INFINITY, INF_SIGN, false, false, false},
	{-INFINITY, -INFINITY, EQUAL, true, true, true},
	{-FLT_MAX, FLT_MAX, DIFFER, false, false, false},
	{-0.0f, -0.0f, EQUAL, true, true, true},
	{-NAN, NAN, NAN_BOTH, false, false, true},
	{0x1p-149f, 0.0f, DIFFER, false, false, false},
};
enum { CLASS_PAIRS = sizeof class_pair / sizeof class_pair[0] };

START_TEST(test_class_pairs)
{
	const struct plumb_tolerance exact = {.set = PLUMB_BOUND_EXACT}, bits = {.set = PLUMB_BOUND_BITS};
	const struct plumb_tolerance exact_nan = {.set = PLUMB_BOUND_EXACT, .allow_nan = true};
	struct plumb_compare cmp;
	float c[3] = {1.0f, class_pair[_i].c, -2.0f}, r[3] = {1.0f, class_pair[_i].r, -2.0f};

	plumb_compare_f32(&cmp, &class_pair[_i].c, &class_pair[_i].r, 1);
	ck_assert_int_eq(outcome_of(&cmp), class_pair[_i].outcome);
	ck_assert_int_eq(judge(c, r, 3, &exact).pass, class_pair[_i].exact);
	ck_assert_int_eq(judge(c, r, 3, &bits).pass, class_pair[_i].bits);
	ck_assert_int_eq(judge(c, r, 3, &exact_nan).pass, class_pair[_i].exact_nan);

	plumb_compare_f32(&cmp, c, r, 3);
	ck_assert_int_eq(cmp.first_differ.index, class_pair[_i].outcome <= ZERO_SIGN ? -1 : 1);
	ck_assert_int_eq(cmp.class_mismatch.index, class_pair[_i].outcome >= NAN_ONE ? 1 : -1);
	ck_assert_int_eq(cmp.in_candidate.nan, isnan(c[1]) != 0);
	ck_assert_int_eq(cmp.in_reference.nan, isnan(r[1]) != 0);
	ck_assert_int_eq(cmp.in_candidate.inf, isinf(c[1]) != 0);
	ck_assert_int_eq(cmp.in_reference.inf, isinf(r[1]) != 0);
	ck_assert_int_eq(cmp.in_candidate.zero, c[1] == 0.0f);
	ck_assert_int_eq(cmp.in_reference.zero, r[1] == 0.0f);
	/* no special value reaches a sum, and no figure is NaN */
	ck_assert(isfinite(cmp.error2) && isfinite(cmp.reference2) && isfinite(cmp.candidate2) && isfinite(cmp.dot));
	ck_assert(!isnan(plumb_compare_rel_l2(&cmp)) && !isnan(plumb_compare_cosine(&cmp)));
}
END_TEST

START_TEST(test_nothing_compared_fails)
{
	const struct plumb_tolerance exact = {.set = PLUMB_BOUND_EXACT, .allow_zero = true, .allow_constant = true};
	const float one[2] = {1.0f, 2.0f};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;

	plumb_compare_begin(&cmp, 0);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	plumb_compare_begin(&cmp, 3); /* part of what was announced */
	plumb_compare_add(&cmp, one, one, 2);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	ck_assert_ptr_nonnull(strstr(verdict.text, "compared 2 elements, expected 3"));
	plumb_compare_begin(&cmp, 1); /* more than announced */
	plumb_compare_add(&cmp, one, one, 2);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	plumb_compare_begin(&cmp, 2);
	plumb_compare_add(&cmp, one, one, 2);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_OK);
}
END_TEST

START_TEST(test_no_bound_fails)
{
	const struct plumb_tolerance none = {0};
	const float one[2] = {1.0f, 2.0f};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;

	plumb_compare_f32(&cmp, one, one, 2);
	ck_assert_int_eq(plumb_verdict(&cmp, &none, &verdict), PLUMB_MISMATCH);
	ck_assert_str_eq(verdict.text, "FAIL: the tolerance sets no bound");
}
END_TEST

START_TEST(test_vacuous_references)
{
	const float zero[4] = {0.0f, -0.0f, 0.0f, 0.0f}, half[4] = {0.5f, 0.5f, 0.5f, 0.5f}, two[4] = {1, 1, 1, 2};
	const float nan[4] = {NAN, NAN, NAN, NAN};
	struct plumb_tolerance t = {.set = PLUMB_BOUND_EXACT};

	ck_assert(!judge(zero, zero, 4, &t).pass);
	ck_assert(!judge(half, half, 4, &t).pass);
	ck_assert(judge(two, two, 4, &t).pass);
	ck_assert(judge(half, half, 1, &t).pass); /* one element is no constant tensor */
	ck_assert(!judge(zero, zero, 1, &t).pass);
	t.allow_constant = true;
	ck_assert(judge(half, half, 4, &t).pass);
	ck_assert(!judge(zero, zero, 4, &t).pass);
	t.allow_constant = false;
	t.allow_zero = true;
	ck_assert(judge(zero, zero, 4, &t).pass);
	ck_assert(!judge(half, half, 4, &t).pass);
	ck_assert(!judge(two, zero, 4, &t).pass); /* a legitimate reference still has to be met */
	t = (struct plumb_tolerance){.set = PLUMB_BOUND_REL_L2, .max_rel_l2 = 0.5, .allow_zero = true};
	ck_assert(judge(zero, zero, 4, &t).pass);
	ck_assert(!judge(two, zero, 4, &t).pass);
	t = (struct plumb_tolerance){.set = PLUMB_BOUND_REL_L2, .max_rel_l2 = 0.5, .allow_nan = true};
	ck_assert(!judge(nan, nan, 4, &t).pass);
}
END_TEST

START_TEST(test_shapes)
{
	const struct plumb_tolerance exact = {.set = PLUMB_BOUND_EXACT};
	const float x[6] = {1, 2, 3, 4, 5, 6};
	const int64_t a[2] = {2, 3}, b[2] = {3, 2}, flat[1] = {6}, many[9] = {1, 1, 1, 1, 1, 1, 1, 2, 3};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;

	plumb_compare_f32(&cmp, x, x, 6);
	plumb_compare_shape(&cmp, 2, a, 2, a);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_OK);
	plumb_compare_shape(&cmp, 2, a, 2, b);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	ck_assert_ptr_nonnull(strstr(verdict.text, "shape [2, 3], expected [3, 2]"));
	plumb_compare_f32(&cmp, x, x, 6);
	plumb_compare_shape(&cmp, 1, flat, 2, a);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	plumb_compare_f32(&cmp, x, x, 6);
	plumb_compare_shape(&cmp, 1, flat, 2, (int64_t[]){6, 0}); /* the same but for the rank */
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	plumb_compare_f32(&cmp, x, x, 6);
	plumb_compare_shape(&cmp, 9, many, 9, many); /* beyond what is kept: not known to agree */
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
}
END_TEST

/* ---- each bound at its threshold and one step beyond ---- */

START_TEST(test_threshold_rel_l2)
{
	const float c[2] = {3.0f, 4.5f}, r[2] = {3.0f, 4.0f}; /* 0.5 / 5 */
	struct plumb_tolerance t = {.set = PLUMB_BOUND_REL_L2, .max_rel_l2 = 0.5 / 5.0};

	ck_assert(judge(c, r, 2, &t).pass);
	t.max_rel_l2 = nextafter(t.max_rel_l2, 0.0);
	ck_assert(!judge(c, r, 2, &t).pass);
}
END_TEST

START_TEST(test_threshold_error_and_peak)
{
	const float c[2] = {3.0f, 4.5f}, r[2] = {3.0f, 4.0f};
	struct plumb_tolerance t = {.set = PLUMB_BOUND_ABS, .max_abs = 0.5};
	struct plumb_verdict verdict;

	ck_assert(judge(c, r, 2, &t).pass);
	t.max_abs = nextafter(0.5, 0.0);
	verdict = judge(c, r, 2, &t);
	ck_assert(!verdict.pass);
	ck_assert_ptr_nonnull(strstr(verdict.text, "at element 1 (4.5, expected 4)"));
	t = (struct plumb_tolerance){.set = PLUMB_BOUND_PEAK, .max_peak = 0.5 / sqrt(12.5)};
	ck_assert(judge(c, r, 2, &t).pass);
	t.max_peak = nextafter(t.max_peak, 0.0);
	ck_assert(!judge(c, r, 2, &t).pass);
}
END_TEST

START_TEST(test_threshold_ulp)
{
	float r[3] = {1.0f, -2.0f, 3.0f}, c[3] = {1.0f, -2.0f, 3.0f};
	struct plumb_tolerance t = {.set = PLUMB_BOUND_ULP, .max_ulp = 5};

	for (int i = 0; i < 5; i++)
		c[1] = nextafterf(c[1], -3.0f);
	ck_assert(judge(c, r, 3, &t).pass);
	c[1] = nextafterf(c[1], -3.0f);
	ck_assert(!judge(c, r, 3, &t).pass);
	t = (struct plumb_tolerance){.set = PLUMB_BOUND_BF16_ULP, .max_bf16_ulp = 1};
	c[1] = plumb_bits_f32(plumb_f32_bits(r[1]) + 0x10000u);
	ck_assert(judge(c, r, 3, &t).pass);
	c[1] = nextafterf(c[1], -3.0f); /* one bf16 step and a bit */
	ck_assert(!judge(c, r, 3, &t).pass);
	t.max_bf16_ulp = 0;
	c[1] = nextafterf(r[1], -3.0f); /* no bf16 value: a rounding point left out */
	ck_assert(!judge(c, r, 3, &t).pass);
}
END_TEST

/* Beyond the steps: an error that is noise for the tensor, and not a bit more. */
START_TEST(test_threshold_bf16_noise)
{
	/* rms 1; the last element is 2^-20, and 16 of its bf16 steps are 2^-23 */
	const float r[4] = {1.0f, -1.0f, 0x1.6a09e6p+0f, 0x1p-20f}, c[4] = {1.0f, -1.0f, 0x1.6a09e6p+0f, 0x1.2p-20f};
	struct plumb_tolerance t = {.set = PLUMB_BOUND_BF16_ULP, .max_bf16_ulp = 1};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;
	double rms;

	plumb_compare_f32(&cmp, c, r, 4);
	ck_assert_int_eq(cmp.max_bf16_ulp, 16);
	ck_assert_double_eq(cmp.beyond[1], 0x1p-23);
	ck_assert_double_eq(cmp.beyond[7], 0x1p-23);
	ck_assert_int_eq(cmp.beyond_at[0].index, 3);
	rms = sqrt(cmp.reference2 / 4);
	ck_assert(!judge(c, r, 4, &t).pass);
	t.bf16_noise = nextafter(0x1p-23 / rms, 1.0);
	ck_assert(judge(c, r, 4, &t).pass);
	t.bf16_noise = nextafter(nextafter(0x1p-23 / rms, 0.0), 0.0);
	verdict = judge(c, r, 4, &t);
	ck_assert(!verdict.pass);
	ck_assert_ptr_nonnull(strstr(verdict.text, "error beyond the bound in bf16 ulp"));
	ck_assert_ptr_nonnull(strstr(verdict.text, "at element 3"));
	/* an element within the bound needs no allowance, and of two beyond it the larger error counts */
	{
		const float r2[3] = {1.0f, 0x1p-20f, 0x1p-20f}, c2[3] = {1.0078125f, 0x1.2p-20f, 0x1.1p-20f};
		plumb_compare_f32(&cmp, c2, r2, 3);
		ck_assert_double_eq(cmp.beyond[0], 0x1p-7);
		ck_assert_double_eq(cmp.beyond[1], 0x1p-23);
		ck_assert_int_eq(cmp.beyond_at[1].index, 1);
		t.bf16_noise = 1e-5;
		ck_assert(judge(c2, r2, 3, &t).pass);
	}
	/* allowances that are none */
	for (int i = 0; i < 4; i++) {
		t.bf16_noise = (double[]){(double)NAN, (double)INFINITY, -1.0, 0.0}[i];
		ck_assert(!judge(c, r, 4, &t).pass);
	}
	t.bf16_noise = 1.0;
	t.max_bf16_ulp = PLUMB_BF16_STEPS; /* not kept */
	ck_assert(!judge(c, r, 4, &t).pass);
	t.max_bf16_ulp = -1;
	ck_assert(!judge(c, r, 4, &t).pass);
}
END_TEST

/* The noise allowance is no hiding place: a thousandth of the tensor's size gone must fail the local view. */
START_TEST(test_small_element_zeroed)
{
	static float c[N], r[N];
	struct plumb_tolerances *file;
	struct plumb_error err;

	ck_assert_msg(plumb_tolerances_read(NULL, &file, &err) == PLUMB_OK, "%s", err.text);
	for (int policy = 0; policy < 2; policy++) {
		make_reference(r, (enum plumb_policy)policy, 3);
		r[9] = 0x1p-10f;
		same(c, r);
		c[9] = 0.0f;
		ck_assert(!judge(c, r, N,
			&plumb_tolerances_find(file, PLUMB_VIEW_LOCAL, (enum plumb_policy)policy, "fp32/layer00/gdn/output")
				 ->tolerance)
				   .pass);
	}
	plumb_tolerances_free(file);
}
END_TEST

START_TEST(test_threshold_fractions)
{
	float c[100], r[100];
	struct plumb_tolerance t = {.set = PLUMB_BOUND_EQUAL, .min_equal = 0.99};

	for (int i = 0; i < 100; i++)
		c[i] = r[i] = (float)i - 50.5f;
	ck_assert(judge(c, r, 100, &t).pass);
	c[10] = nextafterf(c[10], 0.0f);
	ck_assert(judge(c, r, 100, &t).pass); /* 99 of 100 */
	c[90] = nextafterf(c[90], 0.0f);
	ck_assert(!judge(c, r, 100, &t).pass);
	t = (struct plumb_tolerance){.set = PLUMB_BOUND_NEAR, .near_ulp_log2 = 3, .min_near = 0.99};
	ck_assert(judge(c, r, 100, &t).pass);
	c[10] = plumb_bits_f32(plumb_f32_bits(r[10]) + 7u);
	c[90] = plumb_bits_f32(plumb_f32_bits(r[90]) + 8u);
	ck_assert(judge(c, r, 100, &t).pass);
	c[10] = plumb_bits_f32(plumb_f32_bits(r[10]) + 8u); /* no longer below 2^3 */
	ck_assert(!judge(c, r, 100, &t).pass);
}
END_TEST

START_TEST(test_thresholds_that_are_no_bounds)
{
	const float x[2] = {1.0f, 2.0f};
	const double bad[] = {(double)NAN, (double)INFINITY, -1.0, -(double)INFINITY};

	for (int i = 0; i < 4; i++) {
		struct plumb_tolerance t = {.set = PLUMB_BOUND_REL_L2, .max_rel_l2 = bad[i]};
		ck_assert(!judge(x, x, 2, &t).pass);
		t = (struct plumb_tolerance){.set = PLUMB_BOUND_ABS, .max_abs = bad[i]};
		ck_assert(!judge(x, x, 2, &t).pass);
		t = (struct plumb_tolerance){.set = PLUMB_BOUND_PEAK, .max_peak = bad[i]};
		ck_assert(!judge(x, x, 2, &t).pass);
		t = (struct plumb_tolerance){.set = PLUMB_BOUND_EQUAL, .min_equal = bad[i]};
		ck_assert(!judge(x, x, 2, &t).pass);
		t = (struct plumb_tolerance){.set = PLUMB_BOUND_NEAR, .near_ulp_log2 = 4, .min_near = bad[i]};
		ck_assert(!judge(x, x, 2, &t).pass);
	}
	for (int i = 0; i < 2; i++) {
		struct plumb_tolerance t = {.set = PLUMB_BOUND_ULP, .max_ulp = i ? INT64_MAX : -1};
		ck_assert(!judge(x, x, 2, &t).pass);
		t = (struct plumb_tolerance){.set = PLUMB_BOUND_BF16_ULP, .max_bf16_ulp = i ? INT64_MAX : -1};
		ck_assert(!judge(x, x, 2, &t).pass);
	}
}
END_TEST

/* ---- measurements ---- */

static void ck_same_at(const struct plumb_at *a, const struct plumb_at *b)
{
	ck_assert_int_eq(a->index, b->index);
	ck_assert_uint_eq(plumb_f32_bits(a->candidate), plumb_f32_bits(b->candidate));
	ck_assert_mem_eq(&a->reference, &b->reference, sizeof a->reference);
}

static void ck_same(const struct plumb_compare *a, const struct plumb_compare *b)
{
	ck_assert_int_eq(a->count, b->count);
	ck_assert_mem_eq(&a->equal, &b->equal, 7 * sizeof(int64_t)); /* the seven outcomes stand together */
	ck_same_at(&a->class_mismatch, &b->class_mismatch);
	ck_same_at(&a->first_nan, &b->first_nan);
	ck_same_at(&a->first_differ, &b->first_differ);
	ck_same_at(&a->max_abs_at, &b->max_abs_at);
	ck_same_at(&a->max_ulp_at, &b->max_ulp_at);
	ck_same_at(&a->max_bf16_ulp_at, &b->max_bf16_ulp_at);
	ck_assert_int_eq(a->max_ulp, b->max_ulp);
	ck_assert_int_eq(a->max_bf16_ulp, b->max_bf16_ulp);
	ck_assert_mem_eq(a->ulp_bucket, b->ulp_bucket, sizeof a->ulp_bucket);
	ck_assert_mem_eq(&a->max_abs, &b->max_abs, sizeof a->max_abs);
	ck_assert_mem_eq(a->beyond, b->beyond, sizeof a->beyond);
	for (int k = 0; k < PLUMB_BF16_STEPS; k++)
		ck_same_at(&a->beyond_at[k], &b->beyond_at[k]);
	ck_assert_mem_eq(&a->error2, &b->error2, 5 * sizeof(double));
	ck_assert_int_eq(a->finite, b->finite);
	ck_assert_mem_eq(&a->in_candidate, &b->in_candidate, 2 * sizeof a->in_candidate);
	ck_assert_int_eq(a->distinct, b->distinct);
}

START_TEST(test_split_does_not_matter)
{
	static float c[N], r[N];
	static double wide[N];
	struct plumb_compare whole, parts;

	state = 1000 + (uint64_t)_i;
	for (int i = 0; i < N; i++) {
		r[i] = _i % 2 ? any_f32() : normal();
		c[i] = next_u64() % 3 == 0 ? any_f32() : r[i];
		wide[i] = (double)r[i];
	}
	plumb_compare_f32(&whole, c, r, N);
	plumb_compare_begin(&parts, N);
	for (int64_t at = 0, n; at < N; at += n) {
		n = (int64_t)(next_u64() % 300);
		n = n > N - at ? N - at : n;
		if (next_u64() & 1)
			plumb_compare_add(&parts, c + at, r + at, n);
		else
			plumb_compare_add_f64(&parts, c + at, wide + at, n);
	}
	ck_same(&whole, &parts);
}
END_TEST

START_TEST(test_measurements_against_long_double)
{
	static float c[N], r[N];
	struct plumb_compare cmp;
	long double error2 = 0, reference2 = 0, candidate2 = 0, dot = 0;
	float scale = ldexpf(1.0f, (int)(next_u64() % 200) - 100);
	double max = 0;
	int64_t ulp = 0;

	state = 77 + (uint64_t)_i;
	for (int i = 0; i < N; i++) {
		r[i] = scale * normal();
		c[i] = r[i] * (1.0f + 1e-3f * normal());
		const long double candidate = (long double)c[i], reference = (long double)r[i];

		error2 += (candidate - reference) * (candidate - reference);
		reference2 += reference * reference;
		candidate2 += candidate * candidate;
		dot += candidate * reference;
		max = fmax(max, fabs((double)c[i] - (double)r[i]));
		if (plumb_f32_ulp_distance(c[i], r[i]) > ulp)
			ulp = plumb_f32_ulp_distance(c[i], r[i]);
	}
	plumb_compare_f32(&cmp, c, r, N);
	ck_assert_double_eq(cmp.max_abs, max);
	ck_assert_int_eq(cmp.max_ulp, ulp);
	ck_assert_double_eq_tol(plumb_compare_rel_l2(&cmp) / (double)sqrtl(error2 / reference2), 1.0, 1e-12);
	ck_assert_double_eq_tol(plumb_compare_norm_ratio(&cmp) / (double)sqrtl(candidate2 / reference2), 1.0, 1e-12);
	ck_assert_double_eq_tol(plumb_compare_cosine(&cmp), (double)(dot / sqrtl(candidate2 * reference2)), 1e-12);
	ck_assert_double_eq_tol(plumb_compare_peak(&cmp) * (double)sqrtl(reference2 / N) / max, 1.0, 1e-12);
	ck_assert_int_eq(cmp.distinct, PLUMB_DISTINCT_MAX);
}
END_TEST

/* A norm of the largest and of the smallest numbers there are. */
START_TEST(test_extreme_norms)
{
	float r[3] = {FLT_MAX, -FLT_MAX, FLT_MAX / 2}, c[3] = {-FLT_MAX, FLT_MAX, -FLT_MAX / 2};
	float small[3] = {0x1p-149f, 0x1p-148f, -0x1p-149f}, zero[3] = {0};
	struct plumb_compare cmp;

	plumb_compare_f32(&cmp, c, r, 3);
	ck_assert_double_eq(plumb_compare_rel_l2(&cmp), 2.0);
	ck_assert_double_eq_tol(plumb_compare_cosine(&cmp), -1.0, 1e-15);
	ck_assert_double_eq(cmp.max_abs, 2.0 * (double)FLT_MAX);
	plumb_compare_f32(&cmp, zero, small, 3);
	ck_assert_double_eq(plumb_compare_rel_l2(&cmp), 1.0);
	plumb_compare_f32(&cmp, small, small, 3);
	ck_assert_double_eq_tol(plumb_compare_cosine(&cmp), 1.0, 1e-15);
	plumb_compare_f32(&cmp, small, zero, 3);
	ck_assert(isinf(plumb_compare_rel_l2(&cmp)) && isinf(plumb_compare_norm_ratio(&cmp)));
	ck_assert_double_eq(plumb_compare_cosine(&cmp), 0.0);
	plumb_compare_f32(&cmp, zero, zero, 3);
	ck_assert_double_eq(plumb_compare_rel_l2(&cmp), 0.0);
	ck_assert_double_eq(plumb_compare_norm_ratio(&cmp), 1.0);
}
END_TEST

START_TEST(test_reference_f64)
{
	const double r[5] = {1e39, 1.0 + 0x1p-25, -1e-60, 0.1, -1e39}; /* Inf, 1, -0, 0.1f, -Inf in binary32 */
	const float good[5] = {INFINITY, 1.0f, -0.0f, 0.1f, -INFINITY}, bad[5] = {FLT_MAX, 1.0f, 0.0f, 0.1f, -INFINITY};
	const struct plumb_tolerance exact = {.set = PLUMB_BOUND_EXACT};
	struct plumb_compare cmp;
	struct plumb_verdict verdict;

	plumb_compare_begin(&cmp, 5);
	plumb_compare_add_f64(&cmp, good, r, 5);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_OK);
	ck_assert_int_eq(cmp.equal, 5);
	ck_assert_int_eq(cmp.max_ulp, 0);
	ck_assert_double_eq(cmp.max_abs, 0x1p-25); /* to the value, not to its rounding */
	ck_assert_int_eq(cmp.max_abs_at.index, 1);
	plumb_compare_begin(&cmp, 5);
	plumb_compare_add_f64(&cmp, bad, r, 5);
	ck_assert_int_eq(plumb_verdict(&cmp, &exact, &verdict), PLUMB_MISMATCH);
	ck_assert_int_eq(cmp.inf_one, 1);
	ck_assert_int_eq(cmp.zero_sign, 1);
	ck_assert_int_eq(cmp.class_mismatch.index, 0);
}
END_TEST

START_TEST(test_histogram)
{
	float r[70], c[70];
	struct plumb_compare cmp;
	int64_t sum = 0;

	for (int i = 0; i < 24; i++) { /* 2^i and 2^i - 1 steps above 1 */
		r[2 * i] = r[2 * i + 1] = 1.0f;
		c[2 * i] = plumb_bits_f32(0x3F800000u + (1u << i));
		c[2 * i + 1] = plumb_bits_f32(0x3F800000u + (1u << i) - 1u);
	}
	plumb_compare_f32(&cmp, c, r, 48);
	ck_assert_int_eq(cmp.ulp_bucket[0], 1); /* 2^0 - 1 */
	for (int b = 1; b <= 23; b++)
		ck_assert_int_eq(cmp.ulp_bucket[b], 2); /* 2^(b-1) and 2^b - 1 */
	ck_assert_int_eq(cmp.ulp_bucket[24], 1);
	c[0] = -FLT_MAX;
	r[0] = FLT_MAX; /* the widest distance there is */
	c[1] = INFINITY;
	plumb_compare_f32(&cmp, c, r, 48);
	ck_assert_int_eq(cmp.ulp_bucket[PLUMB_ULP_BUCKETS - 1], 1);
	for (int b = 0; b < PLUMB_ULP_BUCKETS; b++)
		sum += cmp.ulp_bucket[b];
	ck_assert_int_eq(sum, 48);
	ck_assert_int_eq(cmp.ulp_bucket[32], 1);
}
END_TEST

/* The worst element is the first of equals, and later smaller errors leave it alone. */
START_TEST(test_worst_element)
{
	const float r[4] = {1.0f, 1.0f, 1.0f, 1.0f};
	float c[4] = {1.0f, plumb_bits_f32(0x3F830000u), plumb_bits_f32(0x3F830000u), plumb_bits_f32(0x3F80000Au)};
	struct plumb_compare cmp;

	plumb_compare_f32(&cmp, c, r, 4);
	ck_assert_int_eq(cmp.max_abs_at.index, 1);
	ck_assert_int_eq(cmp.max_ulp, 0x30000);
	ck_assert_int_eq(cmp.max_ulp_at.index, 1);
	ck_assert_int_eq(cmp.max_bf16_ulp, 3);
	ck_assert_int_eq(cmp.max_bf16_ulp_at.index, 1);
	ck_assert_int_eq(cmp.first_differ.index, 1);
	c[3] = INFINITY; /* never near, however wide "near" is */
	plumb_compare_f32(&cmp, c, r, 4);
	ck_assert_double_eq(plumb_compare_near_fraction(&cmp, 100), 0.75);
	ck_assert_int_eq(cmp.max_ulp, PLUMB_ULP_APART);
	ck_assert_int_eq(cmp.max_bf16_ulp, PLUMB_ULP_APART);
	ck_assert_int_eq(cmp.max_ulp_at.index, 3);
	ck_assert_int_eq(cmp.max_abs_at.index, 1);
}
END_TEST

START_TEST(test_distinct)
{
	float r[200];
	struct plumb_compare cmp;

	for (int i = 0; i < 200; i++)
		r[i] = (float)(i % 60);
	r[60] = -0.0f; /* counted with +0 */
	plumb_compare_f32(&cmp, r, r, 200);
	ck_assert_int_eq(cmp.distinct, 60);
	r[100] = NAN;
	r[101] = -NAN;
	plumb_compare_f32(&cmp, r, r, 200);
	ck_assert_int_eq(cmp.distinct, 61);
	for (int i = 0; i < 200; i++)
		r[i] = (float)i;
	plumb_compare_f32(&cmp, r, r, 200);
	ck_assert_int_eq(cmp.distinct, PLUMB_DISTINCT_MAX);
}
END_TEST

/* Whatever the bits: counts add up, no figure is NaN, a verdict is one line and passes only what really holds; a bound
 * made wider never turns a pass into a failure. */
START_TEST(test_random_bits)
{
	float c[40], r[40];

	state = 5000 + (uint64_t)_i;
	for (int round = 0; round < 200; round++) {
		int64_t n = 1 + (int64_t)(next_u64() % 40), equal = 0;
		uint64_t likeness = next_u64() % 8;
		struct plumb_compare cmp;
		struct plumb_verdict verdict;
		struct plumb_tolerance t = {
			.set = PLUMB_BOUND_EXACT, .allow_nan = true, .allow_zero = true, .allow_constant = true};
		bool before = false;

		for (int64_t i = 0; i < n; i++) {
			r[i] = any_f32();
			c[i] = next_u64() % 8 < likeness || likeness == 7 ? r[i] : any_f32();
			equal += c[i] == r[i] || (isnan(c[i]) && isnan(r[i]));
		}
		plumb_compare_f32(&cmp, c, r, n);
		ck_assert_int_eq(
			cmp.equal + cmp.zero_sign + cmp.differ + cmp.nan_both + cmp.nan_one + cmp.inf_sign + cmp.inf_one,
			n);
		ck_assert(!isnan(plumb_compare_rel_l2(&cmp)) && !isnan(plumb_compare_cosine(&cmp)) &&
			  !isnan(plumb_compare_norm_ratio(&cmp)) && !isnan(plumb_compare_peak(&cmp)) &&
			  !isnan(plumb_compare_bias(&cmp)));
		plumb_verdict(&cmp, &t, &verdict);
		ck_assert_int_eq(verdict.pass, equal == n);
		t.set = PLUMB_BOUND_ULP;
		for (t.max_ulp = 1; t.max_ulp <= (int64_t)1 << 34; t.max_ulp *= 2) {
			bool now = judge(c, r, n, &t).pass;
			ck_assert(now || !before);
			before = now;
		}
	}
}
END_TEST

START_TEST(test_integers)
{
	const int64_t a[3] = {1, INT64_MAX, -5}, b[3] = {1, INT64_MAX - 1, -6};
	struct plumb_compare_int cmp;
	struct plumb_verdict verdict;

	plumb_compare_int_begin(&cmp, 3);
	plumb_compare_int_add(&cmp, a, a, 1);
	plumb_compare_int_add(&cmp, a + 1, a + 1, 2);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_OK);
	ck_assert_str_eq(verdict.text, "pass: 3 integers equal");
	plumb_compare_int_begin(&cmp, 3);
	plumb_compare_int_add(&cmp, a, b, 3);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_MISMATCH);
	ck_assert_int_eq(cmp.index, 1);
	ck_assert_str_eq(verdict.text, "FAIL: 2 of 3 integers differ, first at element 1 (9223372036854775807, expected "
				       "9223372036854775806)");
	plumb_compare_int_begin(&cmp, 1); /* one, and the first of them */
	plumb_compare_int_add(&cmp, a, a, 1);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_OK);
	plumb_compare_int_begin(&cmp, 3);
	plumb_compare_int_add(&cmp, a, (int64_t[]){2, 2, -5}, 3);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_MISMATCH);
	ck_assert_int_eq(cmp.index, 0);
	plumb_compare_int_begin(&cmp, 0);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_MISMATCH);
	plumb_compare_int_begin(&cmp, 4);
	plumb_compare_int_add(&cmp, a, a, 3);
	ck_assert_int_eq(plumb_verdict_int(&cmp, &verdict), PLUMB_MISMATCH);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("compare");
	TCase *lies = suite_part(suite, "lies", 60), *bounds = suite_part(suite, "bounds", 60),
	      *figures = suite_part(suite, "figures", 60);

	tcase_add_loop_test(lies, test_every_broken_row_fails, 0, BROKEN);
	tcase_add_test(lies, test_table_has_power);
	tcase_add_loop_test(lies, test_class_pairs, 0, CLASS_PAIRS);
	tcase_add_test(lies, test_nothing_compared_fails);
	tcase_add_test(lies, test_no_bound_fails);
	tcase_add_test(lies, test_vacuous_references);
	tcase_add_test(lies, test_shapes);
	tcase_add_test(bounds, test_threshold_rel_l2);
	tcase_add_test(bounds, test_threshold_error_and_peak);
	tcase_add_test(bounds, test_threshold_ulp);
	tcase_add_test(bounds, test_threshold_bf16_noise);
	tcase_add_test(bounds, test_small_element_zeroed);
	tcase_add_test(bounds, test_threshold_fractions);
	tcase_add_test(bounds, test_thresholds_that_are_no_bounds);
	tcase_add_loop_test(figures, test_split_does_not_matter, 0, 20);
	tcase_add_loop_test(figures, test_measurements_against_long_double, 0, 20);
	tcase_add_test(figures, test_extreme_norms);
	tcase_add_test(figures, test_reference_f64);
	tcase_add_test(figures, test_histogram);
	tcase_add_test(figures, test_worst_element);
	tcase_add_test(figures, test_distinct);
	tcase_add_loop_test(figures, test_random_bits, 0, 20);
	tcase_add_test(figures, test_integers);
	return suite_run(suite);
}
