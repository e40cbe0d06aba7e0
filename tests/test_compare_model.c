/* SPDX-License-Identifier: MIT */
/* The comparators against a second formulation of core/compare.h, written from its comments: every count, figure, verdict and
 * choice on random tensors that are full of NaN, Inf, zeros, neighbours and ties, with tolerances that lie at what was
 * measured and next to it. What test_compare shows by example is shown here for everything else. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core/compare.h"
#include "core/numeric.h"
#include "core/status.h"
#include "tests/support/suite.h"

enum { ROUNDS = 4000, MOST = 24 };
#define INF64 ((double)INFINITY)

static uint64_t state;

static uint64_t next(void)
{
	state += 0x9e3779b97f4a7c15u;
	uint64_t x = state;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

static int below(int n)
{
	return (int)(next() % (uint64_t)n);
}

/* `ordinary` in 8 are plain numbers, the rest is special. */
static float draw(int ordinary)
{
	static const float special[] = {
		0.0f, -0.0f, 1.0f, -1.0f, FLT_MAX, -FLT_MAX, FLT_MIN, 1e-45f, -1e-45f, INFINITY, -INFINITY, NAN};
	if (below(8) >= ordinary)
		return special[below((int)(sizeof special / sizeof special[0]))];
	return (float)(below(2000) - 1000) * 0x1p-7f;
}

static float steps_away(float x, int steps)
{
	for (int i = 0; i < abs(steps) && isfinite(x); i++)
		x = nextafterf(x, steps > 0 ? INFINITY : -INFINITY);
	return x;
}

/* ---- the model ---- */

struct model {
	int64_t equal, zero_sign, differ, nan_both, nan_one, inf_sign, inf_one;
	int64_t first_mismatch, first_nan, first_differ; /* -1: none */
	int64_t max_ulp, max_ulp_at, max_bf16, max_bf16_at, max_abs_at;
	double max_abs, error2, reference2, candidate2, dot, error_sum;
	int64_t finite, near[64], beyond_at[PLUMB_BF16_STEPS];
	double beyond[PLUMB_BF16_STEPS];
	int distinct;
	bool all_zero;
};

static bool same_number(float a, float b)
{
	return a == b || (isnan(a) && isnan(b));
}

/* Steps from a to b over the numbers in order, by halving: no bits. */
static int64_t steps_between(float a, float b)
{
	if (isnan(a) || isnan(b) || (a != b && (isinf(a) || isinf(b))))
		return PLUMB_ULP_APART;
	if (a == b)
		return 0;
	int64_t count = 0;
	float low = fminf(a, b), high = fmaxf(a, b);
	if (low < 0.0f && high > 0.0f)
		return steps_between(low, 0.0f) + steps_between(0.0f, high);
	double x = fabs((double)low), y = fabs((double)high), from = fmin(x, y), to = fmax(x, y);
	while (from < to) { /* binade by binade: within one the step is constant */
		int e;
		(void)frexp(from, &e);
		double top = from == 0.0 || e < -125 ? 0x1p-125 : ldexp(1.0, e),
		       step = from == 0.0 || e < -125 ? 0x1p-149 : ldexp(1.0, e - 24);
		double end = fmin(top, to);
		count += (int64_t)((end - from) / step);
		from = end;
	}
	return count;
}

static void keep(double value, int64_t i, double *most, int64_t *at)
{
	if (*at < 0 || value > *most) {
		*most = value;
		*at = i;
	}
}

static void measure(struct model *m, const float *c, const float *r, const double *reference, int64_t n)
{
	double ulp_most = 0, bf16_most = 0;
	float seen[MOST];

	memset(m, 0, sizeof *m);
	m->first_mismatch = m->first_nan = m->first_differ = m->max_ulp_at = m->max_bf16_at = m->max_abs_at = -1;
	for (int k = 0; k < PLUMB_BF16_STEPS; k++)
		m->beyond_at[k] = -1;
	m->all_zero = n > 0;
	for (int64_t i = 0; i < n; i++) {
		bool known = false, mismatch = false;
		for (int k = 0; k < m->distinct; k++)
			known = known || same_number(seen[k], r[i]);
		if (!known)
			seen[m->distinct++] = r[i];
		m->all_zero = m->all_zero && r[i] == 0.0f;
		if ((isnan(c[i]) || isnan(r[i])) && m->first_nan < 0)
			m->first_nan = i;
		bool equal = same_number(c[i], r[i]);
		if ((!equal || isnan(r[i])) && m->first_differ < 0)
			m->first_differ = i;
		if (isnan(c[i]) && isnan(r[i])) {
			m->nan_both++;
			continue;
		}
		if (isnan(c[i]) != isnan(r[i]))
			mismatch = ++m->nan_one > 0;
		else if (isinf(c[i]) && isinf(r[i]) && !equal)
			mismatch = ++m->inf_sign > 0;
		else if (isinf(c[i]) != isinf(r[i]))
			mismatch = ++m->inf_one > 0;
		else if (!equal)
			m->differ++;
		else if (!signbit(c[i]) != !signbit(r[i]))
			m->zero_sign++;
		else
			m->equal++;
		if (mismatch && m->first_mismatch < 0)
			m->first_mismatch = i;
		int64_t ulp = steps_between(c[i], r[i]), bf16 = ulp == PLUMB_ULP_APART ? ulp : (ulp + 65535) / 65536;
		keep((double)ulp, i, &ulp_most, &m->max_ulp_at);
		keep((double)bf16, i, &bf16_most, &m->max_bf16_at);
		for (int k = 0; k < 64; k++)
			m->near[k] += ulp != PLUMB_ULP_APART && (k > 40 || ulp < (int64_t)1 << k);
		m->max_ulp = m->max_ulp_at == i ? ulp : m->max_ulp;
		m->max_bf16 = m->max_bf16_at == i ? bf16 : m->max_bf16;
		if (!isfinite(c[i]) || !isfinite(r[i]))
			continue;
		double error = (double)c[i] - reference[i];
		m->finite++;
		m->error2 += error * error;
		m->error_sum += error;
		m->reference2 += reference[i] * reference[i];
		m->candidate2 += (double)c[i] * (double)c[i];
		m->dot += (double)c[i] * reference[i];
		keep(fabs(error), i, &m->max_abs, &m->max_abs_at);
		for (int k = 0; k < PLUMB_BF16_STEPS; k++)
			if (bf16 > k)
				keep(fabs(error), i, &m->beyond[k], &m->beyond_at[k]);
	}
}

static int tensors(float *c, float *r, double *reference)
{
	const int n = below(MOST + 1), ordinary = below(9), alike = below(4);
	for (int i = 0; i < n; i++) {
		r[i] = draw(ordinary);
		switch (below(8 + 8 * alike)) {
		case 0:
			c[i] = draw(ordinary);
			break;
		case 1:
			c[i] = steps_away(r[i], below(9) - 4);
			break;
		case 2:
			c[i] = -r[i];
			break;
		case 3:
			c[i] = r[i] * (1.0f + (float)(below(64) - 32) * 0x1p-9f);
			break;
		default:
			c[i] = r[i];
		}
		reference[i] = (double)r[i];
	}
	if (n > 1 && below(16) == 0) /* a reference of one value */
		for (int i = 0; i < n; i++)
			reference[i] = (double)(r[i] = r[0]);
	return n;
}

static void same_double(double a, double b)
{
	ck_assert_msg(a == b || (isnan(a) && isnan(b)), "%.17g, expected %.17g", a, b);
}

START_TEST(measurements)
{
	float c[MOST], r[MOST];
	double reference[MOST];
	struct plumb_compare cmp;
	struct model m;

	state = 11;
	for (int round = 0; round < ROUNDS; round++) {
		const int n = tensors(c, r, reference), cut = below(n + 1);
		const bool wide = below(2);
		for (int i = 0; wide && i < n; i++) /* a binary64 reference that rounds to r */
			if (isfinite(r[i]) && fabsf(r[i]) > 1e-30f && fabsf(r[i]) < 1e30f)
				reference[i] *= 1.0 + (below(3) - 1) * 0x1p-30;
		measure(&m, c, r, reference, n);
		plumb_compare_begin(&cmp, n);
		if (wide) {
			plumb_compare_add_f64(&cmp, c, reference, cut);
			plumb_compare_add_f64(&cmp, c + cut, reference + cut, n - cut);
		} else {
			plumb_compare_add(&cmp, c, r, cut);
			plumb_compare_add(&cmp, c + cut, r + cut, n - cut);
		}
		ck_assert_int_eq(cmp.count, n);
		ck_assert_int_eq(cmp.equal - m.equal + cmp.zero_sign - m.zero_sign, 0);
		ck_assert_int_eq(cmp.zero_sign, m.zero_sign);
		ck_assert_int_eq(cmp.differ, m.differ);
		ck_assert_int_eq(cmp.nan_both, m.nan_both);
		ck_assert_int_eq(cmp.nan_one, m.nan_one);
		ck_assert_int_eq(cmp.inf_sign, m.inf_sign);
		ck_assert_int_eq(cmp.inf_one, m.inf_one);
		ck_assert_int_eq(cmp.class_mismatch.index, m.first_mismatch);
		ck_assert_int_eq(cmp.first_nan.index, m.first_nan);
		ck_assert_int_eq(cmp.first_differ.index, m.first_differ);
		ck_assert_int_eq(cmp.max_ulp, m.max_ulp);
		ck_assert_int_eq(cmp.max_ulp_at.index, m.max_ulp_at);
		ck_assert_int_eq(cmp.max_bf16_ulp, m.max_bf16);
		ck_assert_int_eq(cmp.max_bf16_ulp_at.index, m.max_bf16_at);
		ck_assert_int_eq(cmp.max_abs_at.index, m.max_abs_at);
		ck_assert_int_eq(cmp.distinct, m.distinct);
		ck_assert_int_eq(cmp.finite, m.finite);
		same_double(cmp.max_abs, m.max_abs);
		same_double(cmp.error2, m.error2);
		same_double(cmp.error_sum, m.error_sum);
		same_double(cmp.reference2, m.reference2);
		same_double(cmp.candidate2, m.candidate2);
		same_double(cmp.dot, m.dot);
		for (int k = 0; k < PLUMB_BF16_STEPS; k++) {
			ck_assert_int_eq(cmp.beyond_at[k].index, m.beyond_at[k]);
			same_double(cmp.beyond[k], m.beyond[k]);
		}
		for (int k = 0; k < PLUMB_ULP_BUCKETS - 1; k++)
			same_double(plumb_compare_near_fraction(&cmp, k), n ? (double)m.near[k] / n : 0.0);
		if (m.max_abs_at >= 0) {
			ck_assert(same_number(cmp.max_abs_at.candidate, c[m.max_abs_at]));
			same_double(cmp.max_abs_at.reference, reference[m.max_abs_at]);
		}
		/* the figures, by their definitions */
		double norm_r = sqrt(m.reference2), rms = m.finite ? sqrt(m.reference2 / (double)m.finite) : 0.0;
		double norm_c = sqrt(m.candidate2), off = sqrt(m.error2),
		       mean = m.finite ? m.error_sum / (double)m.finite : 0.0;
		same_double(plumb_compare_rel_l2(&cmp), norm_r > 0 ? off / norm_r : off == 0 ? 0.0 : INF64);
		same_double(plumb_compare_norm_ratio(&cmp), norm_r > 0 ? norm_c / norm_r : norm_c == 0 ? 1.0 : INF64);
		same_double(plumb_compare_peak(&cmp), rms > 0 ? m.max_abs / rms : m.max_abs == 0 ? 0.0 : INF64);
		same_double(plumb_compare_bias(&cmp), rms > 0 ? mean / rms : mean == 0 ? 0.0 : mean > 0 ? INF64 : -INF64);
		same_double(plumb_compare_cosine(&cmp),
			norm_r > 0 && norm_c > 0 ? m.dot / (norm_c * norm_r) : norm_r == norm_c);
		same_double(plumb_compare_equal_fraction(&cmp), n ? (double)(m.equal + m.zero_sign) / n : 0.0);
	}
}
END_TEST

/* A limit at what was measured, or next to it, or anywhere, or no number. */
static double limit(double measured)
{
	static const double odd[] = {-1.0, INFINITY, NAN, DBL_MAX, 0.0};
	switch (below(6)) {
	case 0:
		return odd[below(5)];
	case 1:
		return nextafter(measured, -INFINITY);
	case 2:
		return 2.0 * measured;
	case 3:
		return nextafter(measured, INFINITY);
	default:
		return measured;
	}
}

/* What is demanded of one bound: whether it holds, and its share. */
struct demanded {
	bool pass;
	int bounds;
	double share;
};

static void at_most(struct demanded *d, double value, double bound)
{
	double share = value <= 0.0 ? 0.0 : bound > 0.0 ? value / bound : INF64;
	d->bounds++;
	d->pass = d->pass && value <= bound && bound <= DBL_MAX;
	d->share = share > d->share ? share : d->share;
}

static void steps_at_most(struct demanded *d, int64_t value, int64_t bound)
{
	double measured = value == PLUMB_ULP_APART ? INF64 : (double)value;
	double share = value <= 0 ? 0.0 : bound > 0 ? measured / (double)bound : INF64;
	d->bounds++;
	d->pass = d->pass && value <= bound && bound < PLUMB_ULP_APART;
	d->share = share > d->share ? share : d->share;
}

static void at_least(struct demanded *d, double value, double bound)
{
	double share = 1.0 - value <= 0.0 ? 0.0 : 1.0 - bound > 0.0 ? (1.0 - value) / (1.0 - bound) : INF64;
	d->bounds++;
	d->pass = d->pass && value >= bound && bound >= 0.0;
	d->share = share > d->share ? share : d->share;
}

static struct demanded demand(
	const struct model *m, const struct plumb_compare *cmp, int64_t n, const struct plumb_tolerance *t)
{
	struct demanded d = {.pass = true};
	double rms = m->finite ? sqrt(m->reference2 / (double)m->finite) : 0.0, count = n ? (double)n : 1.0;
	int64_t allowed = t->allow_nan ? m->nan_both : 0, as_numbers = m->equal + m->zero_sign + allowed;
	bool noisy = t->bf16_noise > 0.0 && t->max_bf16_ulp >= 0 && t->max_bf16_ulp < PLUMB_BF16_STEPS;

	d.pass = n >= 1 && n == cmp->expected && !cmp->shape_differs && m->nan_one == 0 && m->inf_sign == 0 &&
	         m->inf_one == 0 && (m->nan_both == 0 || t->allow_nan) && (!m->all_zero || t->allow_zero) &&
	         (m->distinct >= 2 || n == 1 || t->allow_constant || (m->all_zero && t->allow_zero));
	if (t->set & PLUMB_BOUND_REL_L2)
		at_most(&d, plumb_compare_rel_l2(cmp), t->max_rel_l2);
	if (t->set & PLUMB_BOUND_ABS)
		at_most(&d, m->max_abs, t->max_abs);
	if (t->set & PLUMB_BOUND_PEAK)
		at_most(&d, plumb_compare_peak(cmp), t->max_peak);
	if (t->set & PLUMB_BOUND_ULP)
		steps_at_most(&d, m->max_ulp, t->max_ulp);
	if (t->set & PLUMB_BOUND_BF16_ULP && noisy && m->max_bf16 > t->max_bf16_ulp && m->max_bf16 != PLUMB_ULP_APART)
		at_most(&d, m->beyond[t->max_bf16_ulp], t->bf16_noise * rms);
	else if (t->set & PLUMB_BOUND_BF16_ULP)
		steps_at_most(&d, m->max_bf16, t->max_bf16_ulp);
	if (t->set & PLUMB_BOUND_EQUAL)
		at_least(&d, (double)as_numbers / count, t->min_equal);
	if (t->set & PLUMB_BOUND_NEAR)
		at_least(&d, (double)(m->near[t->near_ulp_log2] + allowed) / count, t->min_near);
	if (t->set & PLUMB_BOUND_EXACT)
		steps_at_most(&d, n - as_numbers, 0);
	if (t->set & PLUMB_BOUND_BITS)
		steps_at_most(&d, n - m->equal - allowed, 0);
	d.pass = d.pass && d.bounds > 0;
	if (!d.pass && !(d.share > 1.0))
		d.share = INFINITY;
	return d;
}

START_TEST(verdicts)
{
	float c[MOST], r[MOST];
	double reference[MOST];
	struct plumb_compare cmp;
	struct model m;
	int passed = 0;

	state = 12;
	for (int round = 0; round < 4 * ROUNDS; round++) {
		const int n = tensors(c, r, reference);
		struct plumb_verdict verdict;
		measure(&m, c, r, reference, n);
		plumb_compare_begin(&cmp, n + (below(16) == 0) - (n > 0 && below(16) == 0));
		plumb_compare_add(&cmp, c, r, n);
		if (below(4) == 0) {
			int64_t shape[PLUMB_COMPARE_RANK] = {1, 2, 3, 4, 5, 6, 7, 8},
				other[PLUMB_COMPARE_RANK] = {1, 2, 3, 4, 5, 6, 7, 8};
			int rank = below(PLUMB_COMPARE_RANK + 1),
			    rank_other = below(8) ? rank : below(PLUMB_COMPARE_RANK + 1);
			int at = below(PLUMB_COMPARE_RANK);
			bool differs = rank != rank_other;
			if (below(3) == 0) {
				other[at]++;
				differs |= at < rank;
			}
			plumb_compare_shape(&cmp, rank, shape, rank_other, other);
			ck_assert_int_eq(cmp.shape_differs, differs);
		}
		const int64_t bf16 = m.max_bf16 < 8 ? m.max_bf16 : below(8);
		const double beyond = m.beyond[bf16 < 8 ? bf16 : 7],
			     rms = m.finite ? sqrt(m.reference2 / (double)m.finite) : 0.0;
		const struct plumb_tolerance t = {
			.set = (unsigned)(below(3) == 0 ? below(1 << 9) : 1 << below(9)),
			.max_rel_l2 = limit(plumb_compare_rel_l2(&cmp)),
			.max_abs = limit(m.max_abs),
			.max_peak = limit(plumb_compare_peak(&cmp)),
			.max_ulp =
				m.max_ulp == PLUMB_ULP_APART ? (below(2) ? PLUMB_ULP_APART : 5) : m.max_ulp + below(3) - 1,
			.max_bf16_ulp = below(8) == 0 ? PLUMB_ULP_APART : bf16 + below(3) - 1,
			.bf16_noise = below(2) && rms > 0 ? limit(beyond / rms) : 0.0,
			.min_equal = limit((double)(m.equal + m.zero_sign) / (n ? n : 1)),
			.near_ulp_log2 = below(20),
			.min_near = limit((double)m.near[below(20)] / (n ? n : 1)),
			.allow_zero = below(2),
			.allow_constant = below(2),
			.allow_nan = below(2),
		};
		struct demanded d = demand(&m, &cmp, n, &t);
		int status = plumb_verdict(&cmp, &t, &verdict);
		ck_assert_msg(
			verdict.pass == d.pass, "round %d: %s, expected %s", round, verdict.text, d.pass ? "pass" : "FAIL");
		ck_assert_int_eq(status, d.pass ? PLUMB_OK : PLUMB_MISMATCH);
		same_double(verdict.share, d.share);
		if (n && t.set == PLUMB_BOUND_ULP) /* the words say it: apart, or a number */
			ck_assert_int_eq(strstr(verdict.text, "ulp apart") != NULL, m.max_ulp == PLUMB_ULP_APART);
		passed += d.pass;
	}
	ck_assert_int_ge(passed, ROUNDS / 4); /* both ways are well trodden */
	ck_assert_int_le(passed, 3 * ROUNDS);
}
END_TEST

/* Nothing hides behind something else of its kind: mismatches of two kinds do not cancel. */
START_TEST(kinds_add_up)
{
	static const float pairs[3][2] = {{NAN, 1.0f}, {INFINITY, -INFINITY}, {INFINITY, 2.0f}};
	const struct plumb_tolerance all = {.set = PLUMB_BOUND_ABS, .max_abs = 10.0};

	for (int a = 0; a < 3; a++)
		for (int b = 0; b < 3; b++) {
			const float c[] = {1.0f, 2.0f, pairs[a][0], pairs[b][0]},
				    r[] = {1.0f, 2.0f, pairs[a][1], pairs[b][1]};
			struct plumb_compare cmp;
			struct plumb_verdict verdict;
			plumb_compare_f32(&cmp, c, r, 4);
			ck_assert_int_eq(plumb_verdict(&cmp, &all, &verdict), PLUMB_MISMATCH);
			ck_assert_msg(strstr(verdict.text, "2 NaN or Inf on one side only") != NULL, "%s", verdict.text);
		}
}
END_TEST

/* ---- choices ---- */

static bool before(float a, float b) /* a ranks above b */
{
	return !isnan(a) && (isnan(b) || a > b);
}

static bool is_valid(const int32_t *list, int64_t count, int64_t n, int64_t k)
{
	for (int64_t i = 0; i < count; i++)
		for (int64_t j = 0; j <= i; j++)
			if (list[i] < 0 || list[i] >= n || (j < i && list[i] == list[j]))
				return false;
	return count == k;
}

static bool holds(const int32_t *list, int64_t count, int32_t what)
{
	for (int64_t i = 0; i < count; i++)
		if (list[i] == what)
			return true;
	return false;
}

/* How far two scores are apart: 0: equal in rank. */
static double apart(float a, float b)
{
	if (same_number(a, b))
		return 0.0;
	return isfinite(a) && isfinite(b) ? fabs((double)a - (double)b) : INF64;
}

static enum plumb_choice worse(enum plumb_choice so_far, double distance, double bound)
{
	enum plumb_choice here = distance == 0.0     ? PLUMB_CHOICE_TIE
	                         : distance <= bound ? PLUMB_CHOICE_MARGIN
	                                             : PLUMB_CHOICE_WRONG;
	return here > so_far ? here : so_far;
}

START_TEST(choices)
{
	enum { LARGEST = 9 };
	int seen[4] = {0};

	state = 13;
	for (int round = 0; round < 4 * ROUNDS; round++) {
		const int n = 1 + below(LARGEST), k = 1 + below(n), ordinary = below(2) ? 8 : 6;
		float score[LARGEST], sorted[LARGEST];
		int32_t order[LARGEST], list[2][LARGEST + 1];
		int64_t count[2];
		const double bound = below(3) * 0.5;
		struct plumb_selection s, by_order;
		for (int i = 0; i < n; i++) {
			score[i] = below(3) ? (float)below(5) * 0.5f : draw(ordinary);
			order[i] = i;
		}
		for (int i = 0; i < n; i++) /* larger first, then the lower index */
			for (int j = i + 1; j < n; j++)
				if (before(score[order[j]], score[order[i]]) ||
					(same_number(score[order[j]], score[order[i]]) && order[j] < order[i])) {
					int32_t t = order[i];
					order[i] = order[j];
					order[j] = t;
				}
		for (int i = 0; i < n; i++)
			sorted[i] = score[order[i]];
		for (int side = 0; side < 2; side++) {
			count[side] = k + (below(24) == 0) - (below(24) == 0);
			for (int i = 0; i < count[side]; i++)
				list[side][i] = i < n ? order[i] : 0;
			for (int swaps = below(3); swaps > 0 && count[side] > 0;
				swaps--) { /* others, other slots, none at all */
				int at = below((int)count[side]), with = below(n);
				int32_t old = list[side][at];
				for (int i = 0; i < count[side]; i++)
					if (list[side][i] == with)
						list[side][i] = old;
				list[side][at] = below(32) ? with : with - n * (below(2) ? 1 : -1);
			}
		}
		enum plumb_choice choice = PLUMB_CHOICE_EQUAL, slots;
		const float cut = sorted[k - 1];
		int above = 0, level = 0;
		for (int i = 0; i < n; i++) {
			above += before(score[i], cut);
			level += same_number(score[i], cut);
		}
		if (is_valid(list[0], count[0], n, k) && is_valid(list[1], count[1], n, k)) {
			for (int32_t e = 0; e < n; e++)
				if (holds(list[0], k, e) != holds(list[1], k, e))
					choice = worse(choice, apart(score[e], cut), bound);
			slots = choice;
			for (int i = 0; i < k; i++)
				if (list[0][i] != list[1][i])
					slots = worse(slots, apart(score[list[0][i]], score[list[1][i]]), bound);
		} else {
			choice = slots = PLUMB_CHOICE_WRONG;
		}
		int status = plumb_compare_topk(score, n, k, list[0], count[0], list[1], count[1], bound, &s);
		ck_assert_msg(s.choice == choice, "round %d: choice %d, expected %d: %s", round, s.choice, choice, s.text);
		ck_assert_int_eq(status, choice == PLUMB_CHOICE_WRONG ? PLUMB_MISMATCH : PLUMB_OK);
		if (choice != PLUMB_CHOICE_WRONG) {
			ck_assert(same_number(s.cut, cut));
			ck_assert_int_eq(s.tied, above + level > k ? level : 0);
		}
		status = plumb_compare_order(score, n, k, list[0], count[0], list[1], count[1], bound, &by_order);
		ck_assert_msg(by_order.choice == slots, "round %d: by order: choice %d, expected %d: %s", round,
			by_order.choice, slots, by_order.text);
		ck_assert_int_eq(status, slots == PLUMB_CHOICE_WRONG ? PLUMB_MISMATCH : PLUMB_OK);
		seen[slots]++;
	}
	for (int i = 0; i < 4; i++)
		ck_assert_int_ge(seen[i], ROUNDS / 50);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("compare_model");
	TCase *model = suite_part(suite, "model", 300);
	tcase_add_test(model, measurements);
	tcase_add_test(model, verdicts);
	tcase_add_test(model, kinds_add_up);
	tcase_add_test(model, choices);
	return suite_run(suite);
}
