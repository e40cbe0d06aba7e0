/* SPDX-License-Identifier: MIT */
/* Comparison: what was measured (struct plumb_compare), what was demanded (struct plumb_tolerance), and one function
 * that decides (plumb_verdict). Nothing else in the project decides whether two tensors agree.
 *
 * Rules, each against a comparator that was seen to lie:
 *   a condition is written as it must hold (err <= bound), so a NaN fails it;
 *   NaN and Inf are compared by class before anything is subtracted, and never enter a sum;
 *   a comparison of nothing, of part of what was announced, or against a reference of zeros or of one constant fails
 *   (the tolerance may say that such a reference is legitimate);
 *   cosine and norm ratio are reported and decide nothing;
 *   the text of a verdict is made from the verdict.
 *
 * No function here allocates, and none has state of its own. */
#ifndef PLUMB_CORE_COMPARE_H
#define PLUMB_CORE_COMPARE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum {
	PLUMB_ULP_BUCKETS = 35,     /* 0: equal; 1..33: 2^(i-1) <= ulp < 2^i; 34: apart (Inf or NaN at one side) */
	PLUMB_DISTINCT_SLOTS = 128, /* hash slots behind the count of distinct reference values */
	PLUMB_DISTINCT_MAX = 64,    /* the count stops here: "at least 64" */
	PLUMB_COMPARE_RANK = 8,
	PLUMB_BF16_STEPS = 8, /* bounds in bf16 steps that allow for noise beyond them are below this */
};

/* An element worth showing. index is -1 when there is none. */
struct plumb_at {
	int64_t index;
	float candidate;
	double reference;
};

/* How often special values occur on one side. */
struct plumb_classes {
	int64_t nan, inf, zero;
};

/* Measurements over pairs (candidate, reference), in order of index. Fields are read freely; only functions write. */
struct plumb_compare {
	int64_t expected; /* elements announced at the start */
	int64_t count;    /* elements seen */

	/* every element is in exactly one of these seven */
	int64_t equal;                  /* the same bits, NaN excluded; Inf of the same sign included */
	int64_t zero_sign;              /* -0 against +0: equal as numbers */
	int64_t differ;                 /* two finite numbers that differ */
	int64_t nan_both;               /* NaN on both sides, any payload */
	int64_t nan_one;                /* NaN on one side */
	int64_t inf_sign;               /* Inf against Inf of the other sign */
	int64_t inf_one;                /* Inf against a finite number */
	struct plumb_at class_mismatch; /* first of nan_one, inf_sign, inf_one */
	struct plumb_at first_nan;      /* first element with NaN on either side */
	struct plumb_at first_differ;   /* first element that is neither equal nor zero_sign */

	double max_abs; /* largest |candidate - reference| of two finite values */
	struct plumb_at max_abs_at;
	int64_t max_ulp; /* in steps of binary32; PLUMB_ULP_APART after a class mismatch */
	struct plumb_at max_ulp_at;
	int64_t max_bf16_ulp; /* in steps of bf16, parts counted as a whole */
	struct plumb_at max_bf16_ulp_at;
	double beyond[PLUMB_BF16_STEPS]; /* [k]: largest |candidate - reference| more than k bf16 steps apart */
	struct plumb_at beyond_at[PLUMB_BF16_STEPS];
	int64_t ulp_bucket[PLUMB_ULP_BUCKETS];

	/* sums over pairs of finite values; a binary32 squared fits binary64 with room for 2^700 of them, and the
	 * smallest subnormal squared is 2^-298, so none of these overflows or vanishes */
	int64_t finite;
	double error2, reference2, candidate2, dot, error_sum;

	struct plumb_classes in_candidate, in_reference;
	int distinct; /* distinct reference values, -0 and +0 one, NaN one; stops at PLUMB_DISTINCT_MAX */
	uint32_t distinct_slot[PLUMB_DISTINCT_SLOTS];

	bool shape_differs; /* said by plumb_compare_shape */
	int rank, reference_rank;
	int64_t dim[PLUMB_COMPARE_RANK], reference_dim[PLUMB_COMPARE_RANK];
};

/* Start. expected: the number of elements that will be compared; a verdict on fewer or more fails. */
void plumb_compare_begin(struct plumb_compare *cmp, int64_t expected);

/* Record both shapes; a verdict on shapes that differ fails. May be left out where both sides share one shape. */
void plumb_compare_shape(
	struct plumb_compare *cmp, int rank, const int64_t *dim, int reference_rank, const int64_t *reference_dim);

/* Add the next n elements. Any split into calls gives the same measurements, every bit. */
void plumb_compare_add(struct plumb_compare *cmp, const float *candidate, const float *reference, int64_t n);

/* The same against a binary64 reference. Its class is that of its binary32 rounding (1e39 demands an Inf), ulp
 * distances are taken to the rounding, `equal` means equal to the rounding; the error is taken to the value itself. */
void plumb_compare_add_f64(struct plumb_compare *cmp, const float *candidate, const double *reference, int64_t n);

/* begin and add in one. */
void plumb_compare_f32(struct plumb_compare *cmp, const float *candidate, const float *reference, int64_t n);

/* Figures that follow. None of them is ever NaN.
 * rel_l2: ||c - r|| / ||r|| over finite pairs; 0 when both are 0, Inf when only ||r|| is.
 * cosine: 1 when both norms are 0, 0 when one is. norm_ratio ||c|| / ||r||: 1 when both are 0, Inf when only ||r|| is.
 * peak: max_abs / rms of r over finite pairs, with the conventions of rel_l2.
 * bias: mean of (c - r) / rms of r, likewise.
 * equal_fraction: (equal + zero_sign) / count; near_fraction: the part of elements less than 2^ulp_log2 steps of
 * binary32 away; both 0 when nothing was compared. */
double plumb_compare_rel_l2(const struct plumb_compare *cmp);
double plumb_compare_cosine(const struct plumb_compare *cmp);
double plumb_compare_norm_ratio(const struct plumb_compare *cmp);
double plumb_compare_peak(const struct plumb_compare *cmp);
double plumb_compare_bias(const struct plumb_compare *cmp);
double plumb_compare_equal_fraction(const struct plumb_compare *cmp);
double plumb_compare_near_fraction(const struct plumb_compare *cmp, int ulp_log2);

/* Which bounds a tolerance sets. */
enum plumb_bound {
	PLUMB_BOUND_REL_L2 = 1 << 0,
	PLUMB_BOUND_ABS = 1 << 1,
	PLUMB_BOUND_PEAK = 1 << 2,
	PLUMB_BOUND_ULP = 1 << 3,
	PLUMB_BOUND_BF16_ULP = 1 << 4,
	PLUMB_BOUND_EQUAL = 1 << 5,
	PLUMB_BOUND_NEAR = 1 << 6,
	PLUMB_BOUND_EXACT = 1 << 7, /* every element equal, -0 == +0 */
	PLUMB_BOUND_BITS = 1 << 8,  /* every element the same bits */
};

/* What is demanded. A bound that is not in `set` is not looked at; a tolerance that sets none fails everything.
 * (Not called a gate: enum plumb_gate is an activation function.) */
struct plumb_tolerance {
	unsigned set; /* PLUMB_BOUND_* */
	double max_rel_l2;
	double max_abs;
	double max_peak;
	int64_t max_ulp;
	int64_t max_bf16_ulp;
	double bf16_noise; /* elements beyond max_bf16_ulp (then below PLUMB_BF16_STEPS) may be this part of rms(r) off:
	                    * where a sum cancels, float noise is many of its own steps. 0: none may */
	double min_equal;  /* part of the elements, 0..1 */
	int near_ulp_log2; /* with min_near: that part of the elements is less than 2^near_ulp_log2 binary32 ulp away */
	double min_near;
	bool allow_zero;     /* a reference of zeros is legitimate (e.g. a shared expert that is switched off) */
	bool allow_constant; /* a reference of one value is legitimate */
	bool allow_nan;      /* NaN where the reference has NaN is legitimate; it then counts as equal */
};

struct plumb_verdict {
	bool pass;
	double share;   /* largest of (measured / allowed): <= 1 when it passes; above, or Inf, when not */
	char text[512]; /* "pass: ..." or "FAIL: ..." with each condition that failed, first the worst element */
};

/* Decide. Returns PLUMB_OK or PLUMB_MISMATCH, as out->pass says.
 * Always demanded, whatever the tolerance: shapes agree, count == expected >= 1, no class mismatch, no NaN (unless
 * allow_nan and on both sides), a reference that is neither all zero nor (with two elements or more) constant, unless
 * allowed; thresholds that are numbers. */
int plumb_verdict(const struct plumb_compare *cmp, const struct plumb_tolerance *tolerance, struct plumb_verdict *out);

/* Integers: equal or not. */
struct plumb_compare_int {
	int64_t expected, count, equal;
	int64_t index; /* first difference, -1: none */
	int64_t candidate, reference;
};

void plumb_compare_int_begin(struct plumb_compare_int *cmp, int64_t expected);
void plumb_compare_int_add(struct plumb_compare_int *cmp, const int64_t *candidate, const int64_t *reference, int64_t n);
int plumb_verdict_int(const struct plumb_compare_int *cmp, struct plumb_verdict *out);

/* Selections: which k of n a top-k took. */
enum plumb_choice {
	PLUMB_CHOICE_EQUAL,  /* the same set (or order) */
	PLUMB_CHOICE_TIE,    /* differs only in elements whose score equals the cut */
	PLUMB_CHOICE_MARGIN, /* differs in elements whose score is within the bound of the cut */
	PLUMB_CHOICE_WRONG,
};

struct plumb_selection {
	enum plumb_choice choice;
	int64_t differ;  /* elements (or slots) in which the two differ */
	int64_t tied;    /* elements of all n whose score equals the cut, when the cut runs through them; else 0 */
	float cut;       /* k-th largest score */
	double margin;   /* largest distance of a differing element from the cut (or between two scores of a slot) */
	int64_t element; /* of the largest margin; the element at fault when WRONG; -1: none */
	char text[256];
};

/* Compare two choices of k out of n by the scores they were made from.
 * score: (n) f32, the reference's; chosen, golden: index lists in any order.
 * bound: the largest distance from the cut that rounding explains; with an error bound b of a single score that is 2*b
 * (the cut moves by up to b as well). 0 allows exact ties only.
 * EQUAL when equal as sets. Otherwise every element that is in one of them only must have a score equal to the cut
 * (TIE) or at most bound away from it (MARGIN).
 * WRONG too: a count other than k, an index outside 0..n-1, an index twice, on either side; the text says which.
 * NaN: ranks below every number, all NaN are equal, and no margin joins a NaN and a number. -0 == +0. An Inf is within
 * the bound of nothing but itself.
 * Costs O(32*n + k*k); allocates nothing. Returns PLUMB_OK or PLUMB_MISMATCH (WRONG). */
int plumb_compare_topk(const float *score, int64_t n, int64_t k, const int32_t *chosen, int64_t chosen_count,
	const int32_t *golden, int64_t golden_count, double bound, struct plumb_selection *out);

/* The same where the slots matter (router: rank order is slot order): beyond the set, the two elements of each slot
 * must have equal scores, or scores at most bound apart. */
int plumb_compare_order(const float *score, int64_t n, int64_t k, const int32_t *chosen, int64_t chosen_count,
	const int32_t *golden, int64_t golden_count, double bound, struct plumb_selection *out);

/* Whether a ranked choice keeps the rule of ties among the scores of whoever chose: an element stands behind those of
 * equal score and lower index, whatever rounding made of the scores. For a choice that plumb_compare_order takes.
 * False: text says which element. -0 == +0; NaN is equal to nothing. Costs O(k*n). */
bool plumb_compare_ties(const float *score, const int32_t *chosen, int64_t k, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
