/* SPDX-License-Identifier: MIT */
#include "core/compare.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/numeric.h"
#include "core/status.h"
#include "core/text.h"

#define INFINITE ((double)INFINITY)

static const struct plumb_at nowhere = {.index = -1};

void plumb_compare_begin(struct plumb_compare *cmp, int64_t expected)
{
	memset(cmp, 0, sizeof *cmp);
	cmp->expected = expected;
	cmp->class_mismatch = nowhere;
	cmp->first_nan = nowhere;
	cmp->first_differ = nowhere;
	cmp->max_abs_at = nowhere;
	cmp->max_ulp_at = nowhere;
	cmp->max_bf16_ulp_at = nowhere;
	for (int k = 0; k < PLUMB_BF16_STEPS; k++)
		cmp->beyond_at[k] = nowhere;
}

void plumb_compare_shape(
	struct plumb_compare *cmp, int rank, const int64_t *dim, int reference_rank, const int64_t *reference_dim)
{
	cmp->rank = rank;
	cmp->reference_rank = reference_rank;
	for (int i = 0; i < rank && i < PLUMB_COMPARE_RANK; i++)
		cmp->dim[i] = dim[i];
	for (int i = 0; i < reference_rank && i < PLUMB_COMPARE_RANK; i++)
		cmp->reference_dim[i] = reference_dim[i];
	cmp->shape_differs = rank != reference_rank || rank < 0 || rank > PLUMB_COMPARE_RANK ||
	                     memcmp(cmp->dim, cmp->reference_dim, sizeof cmp->dim) != 0;
}

static bool is_nan(float x)
{
	return (plumb_f32_bits(x) & 0x7FFFFFFFu) > 0x7F800000u;
}

static bool is_inf(float x)
{
	return (plumb_f32_bits(x) & 0x7FFFFFFFu) == 0x7F800000u;
}

static void count_classes(struct plumb_classes *classes, float x)
{
	classes->nan += is_nan(x);
	classes->inf += is_inf(x);
	classes->zero += x == 0.0f;
}

/* A small open-addressed set; slot value 0 means empty, so values are stored plus one (no number has all bits set). */
static void count_distinct(struct plumb_compare *cmp, float r)
{
	uint32_t bits = is_nan(r) ? 0x7FC00000u : r == 0.0f ? 0u : plumb_f32_bits(r);
	uint32_t slot = (bits * 2654435761u) >> 25; /* Knuth's multiplier; top 7 bits: 128 slots */

	if (cmp->distinct >= PLUMB_DISTINCT_MAX)
		return;
	while (cmp->distinct_slot[slot] != 0) {
		if (cmp->distinct_slot[slot] == bits + 1u)
			return;
		slot = (slot + 1u) % PLUMB_DISTINCT_SLOTS;
	}
	cmp->distinct_slot[slot] = bits + 1u;
	cmp->distinct++;
}

static int ulp_bucket(int64_t ulp)
{
	int bucket = 0;

	if (ulp == PLUMB_ULP_APART)
		return PLUMB_ULP_BUCKETS - 1;
	while (ulp != 0) {
		bucket++;
		ulp >>= 1;
	}
	return bucket;
}

static void keep_first(struct plumb_at *at, struct plumb_at here)
{
	if (at->index < 0)
		*at = here;
}

/* A pair of finite numbers. */
static void add_finite(struct plumb_compare *cmp, float c, float r, struct plumb_at here)
{
	const double reference = here.reference, error = (double)c - reference, magnitude = fabs(error);
	const int64_t bf16_ulp = plumb_bf16_ulp_distance(c, r);

	if (plumb_f32_bits(c) == plumb_f32_bits(r)) {
		cmp->equal++;
	} else if (c == r) {
		cmp->zero_sign++;
	} else {
		cmp->differ++;
		keep_first(&cmp->first_differ, here);
	}
	cmp->finite++;
	cmp->error2 += error * error;
	cmp->error_sum += error;
	cmp->reference2 += reference * reference;
	cmp->candidate2 += (double)c * (double)c;
	cmp->dot += (double)c * reference;
	if (cmp->max_abs_at.index < 0 || magnitude > cmp->max_abs) {
		cmp->max_abs = magnitude;
		cmp->max_abs_at = here;
	}
	for (int k = 0; k < PLUMB_BF16_STEPS && k < bf16_ulp; k++) {
		if (cmp->beyond_at[k].index < 0 || magnitude > cmp->beyond[k]) {
			cmp->beyond[k] = magnitude;
			cmp->beyond_at[k] = here;
		}
	}
}

/* One pair. reference is the value errors are taken to, r its binary32 rounding (itself for binary32 input). */
static void add(struct plumb_compare *cmp, float c, float r, double reference)
{
	struct plumb_at here = {.index = cmp->count, .candidate = c, .reference = reference};
	bool nan_c = is_nan(c), nan_r = is_nan(r), inf_c = is_inf(c), inf_r = is_inf(r);
	int64_t ulp, bf16_ulp;

	cmp->count++;
	count_classes(&cmp->in_candidate, c);
	count_classes(&cmp->in_reference, r);
	count_distinct(cmp, r);

	if (nan_c || nan_r) {
		keep_first(&cmp->first_nan, here);
		keep_first(&cmp->first_differ, here);
		if (nan_c && nan_r) {
			/* No distance to count: whether this is legitimate is for the tolerance to say. */
			cmp->nan_both++;
			return;
		}
		cmp->nan_one++;
		keep_first(&cmp->class_mismatch, here);
	} else if (inf_c || inf_r) {
		if (c == r) {
			cmp->equal++;
		} else {
			if (inf_c && inf_r)
				cmp->inf_sign++;
			else
				cmp->inf_one++;
			keep_first(&cmp->first_differ, here);
			keep_first(&cmp->class_mismatch, here);
		}
	} else {
		add_finite(cmp, c, r, here);
	}

	ulp = plumb_f32_ulp_distance(c, r);
	bf16_ulp = plumb_bf16_ulp_distance(c, r);
	cmp->ulp_bucket[ulp_bucket(ulp)]++;
	if (cmp->max_ulp_at.index < 0 || ulp > cmp->max_ulp) {
		cmp->max_ulp = ulp;
		cmp->max_ulp_at = here;
	}
	if (cmp->max_bf16_ulp_at.index < 0 || bf16_ulp > cmp->max_bf16_ulp) {
		cmp->max_bf16_ulp = bf16_ulp;
		cmp->max_bf16_ulp_at = here;
	}
}

void plumb_compare_add(struct plumb_compare *cmp, const float *candidate, const float *reference, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		add(cmp, candidate[i], reference[i], (double)reference[i]);
}

void plumb_compare_add_f64(struct plumb_compare *cmp, const float *candidate, const double *reference, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		add(cmp, candidate[i], (float)reference[i], reference[i]);
}

void plumb_compare_f32(struct plumb_compare *cmp, const float *candidate, const float *reference, int64_t n)
{
	plumb_compare_begin(cmp, n);
	plumb_compare_add(cmp, candidate, reference, n);
}

/* a / b where 0 / 0 is `empty` and a / 0 is Inf. */
static double ratio(double a, double b, double empty)
{
	if (b > 0.0)
		return a / b;
	return a == 0.0 ? empty : INFINITE;
}

static double reference_rms(const struct plumb_compare *cmp)
{
	return cmp->finite > 0 ? sqrt(cmp->reference2 / (double)cmp->finite) : 0.0;
}

double plumb_compare_rel_l2(const struct plumb_compare *cmp)
{
	return ratio(sqrt(cmp->error2), sqrt(cmp->reference2), 0.0);
}

double plumb_compare_cosine(const struct plumb_compare *cmp)
{
	double norms = sqrt(cmp->candidate2) * sqrt(cmp->reference2);

	if (norms > 0.0)
		return cmp->dot / norms;
	return cmp->candidate2 == 0.0 && cmp->reference2 == 0.0 ? 1.0 : 0.0;
}

double plumb_compare_norm_ratio(const struct plumb_compare *cmp)
{
	return ratio(sqrt(cmp->candidate2), sqrt(cmp->reference2), 1.0);
}

double plumb_compare_peak(const struct plumb_compare *cmp)
{
	return ratio(cmp->max_abs, reference_rms(cmp), 0.0);
}

double plumb_compare_bias(const struct plumb_compare *cmp)
{
	double mean = cmp->finite > 0 ? cmp->error_sum / (double)cmp->finite : 0.0;
	double magnitude = ratio(fabs(mean), reference_rms(cmp), 0.0);

	return mean < 0.0 ? -magnitude : magnitude;
}

double plumb_compare_equal_fraction(const struct plumb_compare *cmp)
{
	return cmp->count > 0 ? (double)(cmp->equal + cmp->zero_sign) / (double)cmp->count : 0.0;
}

static int64_t count_near(const struct plumb_compare *cmp, int ulp_log2)
{
	int64_t near = 0;

	for (int i = 0; i <= ulp_log2 && i < PLUMB_ULP_BUCKETS - 1; i++)
		near += cmp->ulp_bucket[i];
	return near;
}

double plumb_compare_near_fraction(const struct plumb_compare *cmp, int ulp_log2)
{
	return cmp->count > 0 ? (double)count_near(cmp, ulp_log2) / (double)cmp->count : 0.0;
}

static void say_shape(struct plumb_text *line, int rank, const int64_t *dim)
{
	plumb_text_add(line, "[");
	for (int i = 0; i < rank && i < PLUMB_COMPARE_RANK; i++)
		plumb_text_add(line, "%s%" PRId64, i > 0 ? ", " : "", dim[i]);
	plumb_text_add(line, "]");
}

static void say_at(struct plumb_text *line, const struct plumb_at *at)
{
	if (at->index >= 0)
		plumb_text_add(line, " at element %" PRId64 " (%.9g, expected %.9g)", at->index, (double)at->candidate,
			at->reference);
}

/* Findings are gathered in one pass: what holds goes to `good`, what does not to `bad`; the verdict is that nothing is
 * in `bad` and at least one bound was looked at, and the text is chosen by it. */
struct findings {
	struct plumb_text good, bad;
	int failed, bounds;
	double share; /* largest measured / allowed */
};

/* allowed 0: nothing may be measured. */
static void raise_share(struct findings *f, double measured, double allowed)
{
	double share = measured <= 0.0 ? 0.0 : allowed > 0.0 ? measured / allowed : INFINITE;
	f->share = share > f->share ? share : f->share;
}

static void find_int(struct findings *f, const char *name, int64_t value, int64_t bound, const struct plumb_at *at)
{
	bool holds = value <= bound && bound < PLUMB_ULP_APART;
	struct plumb_text *line = holds ? &f->good : &f->bad;

	f->bounds++;
	f->failed += !holds;
	raise_share(f, value == PLUMB_ULP_APART ? INFINITE : (double)value, (double)bound);
	if (value == PLUMB_ULP_APART)
		plumb_text_add(line, "; %s apart, bound %" PRId64, name, bound);
	else
		plumb_text_add(line, "; %s %" PRId64 ", bound %" PRId64, name, value, bound);
	if (!holds)
		say_at(line, at);
}

static void find_max(struct findings *f, const char *name, double value, double bound, const struct plumb_at *at)
{
	bool holds = value <= bound && bound <= DBL_MAX;
	struct plumb_text *line = holds ? &f->good : &f->bad;

	f->bounds++;
	f->failed += !holds;
	raise_share(f, value, bound);
	plumb_text_add(line, "; %s %.3g, bound %.3g", name, value, bound);
	if (!holds)
		say_at(line, at);
}

/* A bound below zero would hold for everything, so it holds for nothing. */
static void find_min(struct findings *f, const char *name, double value, double bound, const struct plumb_at *at)
{
	bool holds = value >= bound && bound >= 0.0;
	struct plumb_text *line = holds ? &f->good : &f->bad;

	f->bounds++;
	f->failed += !holds;
	raise_share(f, 1.0 - value, 1.0 - bound);
	plumb_text_add(line, "; %s %.6g, at least %.6g", name, value, bound);
	if (!holds)
		say_at(line, at);
}

/* Steps of bf16, and beyond them an error that is small for the tensor. */
static void find_bf16(struct findings *f, const struct plumb_compare *cmp, const struct plumb_tolerance *t)
{
	double noise = t->bf16_noise * reference_rms(cmp);
	int64_t bound = t->max_bf16_ulp;
	bool usable = t->bf16_noise > 0.0 && bound >= 0 && bound < PLUMB_BF16_STEPS && cmp->max_bf16_ulp < PLUMB_ULP_APART;

	if (!usable || cmp->max_bf16_ulp <= bound) {
		find_int(f, "bf16 ulp", cmp->max_bf16_ulp, bound, &cmp->max_bf16_ulp_at);
		return;
	}
	find_max(f, "error beyond the bound in bf16 ulp", cmp->beyond[bound], noise, &cmp->beyond_at[bound]);
}

/* A condition that holds silently. */
static bool demand(struct findings *f, bool holds)
{
	f->failed += !holds;
	return holds;
}

static void demand_structure(struct findings *f, const struct plumb_compare *cmp, const struct plumb_tolerance *t)
{
	int64_t nan_allowed = t->allow_nan ? cmp->nan_both : 0;
	int64_t mismatched = cmp->nan_one + cmp->inf_sign + cmp->inf_one;
	bool zero = cmp->count > 0 && cmp->in_reference.zero == cmp->count;

	if (!demand(f, !cmp->shape_differs)) {
		plumb_text_add(&f->bad, "; shape ");
		say_shape(&f->bad, cmp->rank, cmp->dim);
		plumb_text_add(&f->bad, ", expected ");
		say_shape(&f->bad, cmp->reference_rank, cmp->reference_dim);
	}
	if (!demand(f, cmp->count >= 1 && cmp->count == cmp->expected))
		plumb_text_add(&f->bad, "; compared %" PRId64 " elements, expected %" PRId64 " and at least 1", cmp->count,
			cmp->expected);
	if (!demand(f, mismatched == 0)) {
		plumb_text_add(&f->bad,
			"; %" PRId64 " NaN or Inf on one side only (%" PRId64 " NaN and %" PRId64
			" Inf, reference has %" PRId64 " and %" PRId64 "), first",
			mismatched, cmp->in_candidate.nan, cmp->in_candidate.inf, cmp->in_reference.nan,
			cmp->in_reference.inf);
		say_at(&f->bad, &cmp->class_mismatch);
	}
	if (!demand(f, cmp->nan_both == nan_allowed)) {
		plumb_text_add(&f->bad, "; %" PRId64 " NaN on both sides, first", cmp->nan_both);
		say_at(&f->bad, &cmp->first_nan);
	}
	if (!demand(f, !zero || t->allow_zero))
		plumb_text_add(&f->bad, "; vacuous: the reference is all zero");
	if (!demand(f, cmp->distinct >= 2 || cmp->count <= 1 || t->allow_constant || (zero && t->allow_zero)) && !zero)
		plumb_text_add(&f->bad, "; vacuous: the reference is one constant");
}

static void demand_bounds(struct findings *f, const struct plumb_compare *cmp, const struct plumb_tolerance *t)
{
	/* NaN on both sides is left out of every sum; it counts as equal only where the tolerance allows it. */
	int64_t nan_allowed = t->allow_nan ? cmp->nan_both : 0;
	int64_t equal = cmp->equal + cmp->zero_sign + nan_allowed;
	double count = cmp->count > 0 ? (double)cmp->count : 1.0;
	const struct plumb_at *worst = &cmp->max_abs_at;

	if (t->set & PLUMB_BOUND_REL_L2)
		find_max(f, "relative L2", plumb_compare_rel_l2(cmp), t->max_rel_l2, worst);
	if (t->set & PLUMB_BOUND_ABS)
		find_max(f, "max error", cmp->max_abs, t->max_abs, worst);
	if (t->set & PLUMB_BOUND_PEAK)
		find_max(f, "max error / rms", plumb_compare_peak(cmp), t->max_peak, worst);
	if (t->set & PLUMB_BOUND_ULP)
		find_int(f, "ulp", cmp->max_ulp, t->max_ulp, &cmp->max_ulp_at);
	if (t->set & PLUMB_BOUND_BF16_ULP)
		find_bf16(f, cmp, t);
	if (t->set & PLUMB_BOUND_EQUAL)
		find_min(f, "equal part", (double)equal / count, t->min_equal, &cmp->first_differ);
	if (t->set & PLUMB_BOUND_NEAR) {
		char name[48];
		snprintf(name, sizeof name, "part below 2^%d ulp", t->near_ulp_log2);
		find_min(f, name, (double)(count_near(cmp, t->near_ulp_log2) + nan_allowed) / count, t->min_near,
			&cmp->max_ulp_at);
	}
	if (t->set & PLUMB_BOUND_EXACT)
		find_int(f, "elements that differ", cmp->count - equal, 0, &cmp->first_differ);
	if (t->set & PLUMB_BOUND_BITS)
		find_int(f, "elements with other bits", cmp->count - cmp->equal - nan_allowed, 0, &cmp->first_differ);
}

/* Finish: pass is set once, and the text follows from it. */
static int conclude(struct findings *f, const char *good, const char *bad, struct plumb_verdict *out)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};
	const char *detail;

	out->pass = f->failed == 0 && f->bounds >= 1;
	out->share = out->pass || f->share > 1.0 ? f->share : INFINITE;
	detail = out->pass ? good : bad;
	if (f->bounds < 1)
		plumb_text_add(&line, "FAIL: the tolerance sets no bound%s", detail);
	else
		plumb_text_add(&line, "%s%s", out->pass ? "pass: " : "FAIL: ", detail[0] ? detail + 2 : "");
	return out->pass ? PLUMB_OK : PLUMB_MISMATCH;
}

int plumb_verdict(const struct plumb_compare *cmp, const struct plumb_tolerance *tolerance, struct plumb_verdict *out)
{
	char good[sizeof out->text] = "", bad[sizeof out->text] = "";
	struct findings f = {
		.good = {.text = good, .size = sizeof good},
		.bad = {.text = bad, .size = sizeof bad},
	};

	demand_structure(&f, cmp, tolerance);
	demand_bounds(&f, cmp, tolerance);
	return conclude(&f, good, bad, out);
}

void plumb_compare_int_begin(struct plumb_compare_int *cmp, int64_t expected)
{
	memset(cmp, 0, sizeof *cmp);
	cmp->expected = expected;
	cmp->index = -1;
}

void plumb_compare_int_add(struct plumb_compare_int *cmp, const int64_t *candidate, const int64_t *reference, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		if (candidate[i] == reference[i]) {
			cmp->equal++;
		} else if (cmp->index < 0) {
			cmp->index = cmp->count;
			cmp->candidate = candidate[i];
			cmp->reference = reference[i];
		}
		cmp->count++;
	}
}

int plumb_verdict_int(const struct plumb_compare_int *cmp, struct plumb_verdict *out)
{
	char good[sizeof out->text] = "", bad[sizeof out->text] = "";
	struct findings f = {
		.good = {.text = good, .size = sizeof good},
		.bad = {.text = bad, .size = sizeof bad},
		.bounds = 1,
	};

	if (!demand(&f, cmp->count >= 1 && cmp->count == cmp->expected))
		plumb_text_add(&f.bad, "; compared %" PRId64 " integers, expected %" PRId64 " and at least 1", cmp->count,
			cmp->expected);
	if (!demand(&f, cmp->equal == cmp->count))
		plumb_text_add(&f.bad,
			"; %" PRId64 " of %" PRId64 " integers differ, first at element %" PRId64 " (%" PRId64
			", expected %" PRId64 ")",
			cmp->count - cmp->equal, cmp->count, cmp->index, cmp->candidate, cmp->reference);
	plumb_text_add(&f.good, "; %" PRId64 " integers equal", cmp->equal);
	return conclude(&f, good, bad, out);
}

/* Rank of a score: NaN below every number, -0 and +0 alike. */
static int64_t rank_of(float score)
{
	return is_nan(score) ? INT64_MIN : plumb_f32_ordinal(score);
}

/* The k-th largest rank, by halving the range of ranks: no copy, no sort, no order of equal elements to trust.
 * 1 <= k <= n. */
static int64_t cut_rank(const float *score, int64_t n, int64_t k)
{
	int64_t low = -0x7F800001, high = 0x7F800000; /* low: the rank of NaN, moved next to that of -Inf */

	while (low < high) { /* at least k elements have a rank of low or more */
		int64_t middle = low + (high - low + 1) / 2;
		int64_t at_least = 0;

		for (int64_t i = 0; i < n; i++)
			at_least += rank_of(score[i]) >= middle;
		if (at_least >= k)
			low = middle;
		else
			high = middle - 1;
	}
	return low < -0x7F800000 ? INT64_MIN : low;
}

static bool contains(const int32_t *list, int64_t count, int32_t element)
{
	for (int64_t i = 0; i < count; i++)
		if (list[i] == element)
			return true;
	return false;
}

static int wrong(struct plumb_selection *out, int64_t element)
{
	out->choice = PLUMB_CHOICE_WRONG;
	out->element = element;
	return PLUMB_MISMATCH;
}

static int check_list(
	struct plumb_selection *out, const char *side, const int32_t *list, int64_t count, int64_t n, int64_t k)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};

	if (count != k) {
		plumb_text_add(&line, "%s has %" PRId64 " elements, expected %" PRId64, side, count, k);
		return wrong(out, -1);
	}
	for (int64_t i = 0; i < k; i++) {
		if (!(list[i] >= 0 && list[i] < n)) {
			plumb_text_add(&line, "%s has element %" PRId32 " in slot %" PRId64 ", expected 0..%" PRId64, side,
				list[i], i, n - 1);
			return wrong(out, list[i]);
		}
		if (contains(list, i, list[i])) {
			plumb_text_add(&line, "%s has element %" PRId32 " twice", side, list[i]);
			return wrong(out, list[i]);
		}
	}
	return PLUMB_OK;
}

/* Judge the distance between two scores: raises choice and margin, or says WRONG. */
static bool explain(struct plumb_selection *out, float a, float b, double bound, int64_t element)
{
	double distance = INFINITE;

	out->differ++;
	if (rank_of(a) == rank_of(b)) {
		if (out->choice < PLUMB_CHOICE_TIE) {
			out->choice = PLUMB_CHOICE_TIE;
			out->element = element;
		}
		return true;
	}
	if (isfinite(a) && isfinite(b))
		distance = fabs((double)a - (double)b);
	if (distance <= bound && distance <= DBL_MAX) {
		if (out->choice < PLUMB_CHOICE_MARGIN || distance > out->margin) {
			out->choice = PLUMB_CHOICE_MARGIN;
			out->margin = distance;
			out->element = element;
		}
		return true;
	}
	out->choice = PLUMB_CHOICE_WRONG;
	out->margin = distance;
	out->element = element;
	return false;
}

/* Elements of a that b lacks. */
static bool explain_side(struct plumb_selection *out, const char *has, const char *lacks, const float *score,
	const int32_t *a, const int32_t *b, int64_t k, double bound)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};

	for (int64_t i = 0; i < k; i++) {
		if (contains(b, k, a[i]) || explain(out, score[a[i]], out->cut, bound, a[i]))
			continue;
		plumb_text_add(&line,
			"%s has element %" PRId32 " and %s has not; its score %.9g is %.3g from the cut %.9g, bound %.3g",
			has, a[i], lacks, (double)score[a[i]], out->margin, (double)out->cut, bound);
		return false;
	}
	return true;
}

static int conclude_selection(struct plumb_selection *out, const char *what)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};

	switch (out->choice) {
	case PLUMB_CHOICE_EQUAL:
		plumb_text_add(&line, "equal");
		break;
	case PLUMB_CHOICE_TIE:
		plumb_text_add(&line, "%" PRId64 " %s differ, all by exact ties (element %" PRId64 ", cut %.9g)",
			out->differ, what, out->element, (double)out->cut);
		break;
	case PLUMB_CHOICE_MARGIN:
		plumb_text_add(&line, "%" PRId64 " %s differ within the bound, margin %.3g (element %" PRId64 ", cut %.9g)",
			out->differ, what, out->margin, out->element, (double)out->cut);
		break;
	case PLUMB_CHOICE_WRONG:
		break; /* the text is there already */
	}
	return out->choice == PLUMB_CHOICE_WRONG ? PLUMB_MISMATCH : PLUMB_OK;
}

static int compare_sets(const float *score, int64_t n, int64_t k, const int32_t *chosen, int64_t chosen_count,
	const int32_t *golden, int64_t golden_count, double bound, struct plumb_selection *out)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};
	int64_t cut, above = 0, at = 0;

	memset(out, 0, sizeof *out);
	out->element = -1;
	if (!(k >= 1 && k <= n)) {
		plumb_text_add(&line, "asked for %" PRId64 " of %" PRId64 " elements, expected 1..%" PRId64, k, n, n);
		return wrong(out, -1);
	}
	if (check_list(out, "the candidate", chosen, chosen_count, n, k) != PLUMB_OK ||
		check_list(out, "the golden choice", golden, golden_count, n, k) != PLUMB_OK)
		return PLUMB_MISMATCH;

	cut = cut_rank(score, n, k);
	for (int64_t i = 0; i < n; i++) {
		above += rank_of(score[i]) > cut;
		if (rank_of(score[i]) == cut) {
			at++;
			out->cut = score[i];
		}
	}
	out->tied = above + at > k ? at : 0;

	if (!explain_side(out, "the candidate", "the golden choice", score, chosen, golden, k, bound) ||
		!explain_side(out, "the golden choice", "the candidate", score, golden, chosen, k, bound))
		return PLUMB_MISMATCH;
	return PLUMB_OK;
}

int plumb_compare_topk(const float *score, int64_t n, int64_t k, const int32_t *chosen, int64_t chosen_count,
	const int32_t *golden, int64_t golden_count, double bound, struct plumb_selection *out)
{
	if (compare_sets(score, n, k, chosen, chosen_count, golden, golden_count, bound, out) != PLUMB_OK)
		return PLUMB_MISMATCH;
	return conclude_selection(out, "elements");
}

int plumb_compare_order(const float *score, int64_t n, int64_t k, const int32_t *chosen, int64_t chosen_count,
	const int32_t *golden, int64_t golden_count, double bound, struct plumb_selection *out)
{
	struct plumb_text line = {.text = out->text, .size = sizeof out->text};

	if (compare_sets(score, n, k, chosen, chosen_count, golden, golden_count, bound, out) != PLUMB_OK)
		return PLUMB_MISMATCH;
	out->differ = 0; /* slots from here on: each element that differs stands in one */
	for (int64_t i = 0; i < k; i++) {
		float a = score[chosen[i]], b = score[golden[i]];

		if (chosen[i] == golden[i] || explain(out, a, b, bound, chosen[i]))
			continue;
		plumb_text_add(&line,
			"slot %" PRId64 " has element %" PRId32 " of score %.9g, expected %" PRId32
			" of score %.9g, bound %.3g",
			i, chosen[i], (double)a, golden[i], (double)b, bound);
		return PLUMB_MISMATCH;
	}
	return conclude_selection(out, "slots");
}

bool plumb_compare_ties(const float *score, const int32_t *chosen, int64_t k, char *text, size_t size)
{
	for (int64_t a = 0; a < k; a++) {
		const int32_t element = chosen[a];
		int64_t before = 0, lower = 0;
		for (int64_t i = 0; i < a; i++)
			before += score[chosen[i]] == score[element];
		for (int32_t i = 0; i < element; i++)
			lower += score[i] == score[element];
		if (before == lower)
			continue;
		snprintf(text, size,
			"slot %" PRId64 " has element %" PRId32 " of score %.9g; of %" PRId64
			" elements of the same score and a lower index, which come first, %" PRId64 " stand before it",
			a, element, (double)score[element], lower, before);
		return false;
	}
	return true;
}
