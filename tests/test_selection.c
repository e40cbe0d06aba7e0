/* SPDX-License-Identifier: MIT */
/* Comparing selections: equal as sets, explained by ties or by a margin, or wrong; malformed lists; NaN and Inf among
 * the scores; slot order; and random choices against sorting. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <string.h>

#include "core/compare.h"
#include "core/status.h"
#include "tests/support/suite.h"

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

static enum plumb_choice choose(const float *score, int64_t n, int64_t k, const int32_t *chosen, const int32_t *golden,
	double bound, struct plumb_selection *out)
{
	int status = plumb_compare_topk(score, n, k, chosen, k, golden, k, bound, out);

	ck_assert_int_eq(status, out->choice == PLUMB_CHOICE_WRONG ? PLUMB_MISMATCH : PLUMB_OK);
	ck_assert_int_gt(strlen(out->text), 0);
	return out->choice;
}

START_TEST(test_topk)
{
	const float score[6] = {5.0f, 4.0f, 3.0f, 3.0f, 2.5f, 1.0f};
	struct plumb_selection s;

	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){2, 0, 1}, (int32_t[]){0, 1, 2}, 0.0, &s), PLUMB_CHOICE_EQUAL);
	ck_assert_int_eq(s.tied, 2); /* the cut runs through the two threes */
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){0, 1, 3}, (int32_t[]){0, 1, 2}, 0.0, &s), PLUMB_CHOICE_TIE);
	ck_assert_int_eq(s.differ, 2);
	ck_assert(s.cut == 3.0f);
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){0, 1, 4}, (int32_t[]){0, 1, 2}, 0.5, &s), PLUMB_CHOICE_MARGIN);
	ck_assert_double_eq(s.margin, 0.5);
	ck_assert_int_eq(s.element, 4);
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){0, 1, 4}, (int32_t[]){0, 1, 2}, nextafter(0.5, 0.0), &s),
		PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(s.element, 4);
	/* the largest margin is kept, whichever comes first */
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){0, 5, 4}, (int32_t[]){0, 1, 2}, 2.0, &s), PLUMB_CHOICE_MARGIN);
	ck_assert_double_eq(s.margin, 2.0);
	ck_assert_int_eq(s.element, 5);
	/* an element far above the cut left out: the one that took its place is at the cut, the missing one is not */
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){1, 2, 3}, (int32_t[]){0, 1, 2}, 0.5, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(s.element, 0);
	ck_assert_int_eq(
		choose(score, 6, 4, (int32_t[]){0, 1, 2, 3}, (int32_t[]){3, 2, 1, 0}, 0.0, &s), PLUMB_CHOICE_EQUAL);
	ck_assert_int_eq(s.tied, 0); /* the cut is behind both threes */
	ck_assert_int_eq(choose(score, 6, 6, (int32_t[]){0, 1, 2, 3, 4, 5}, (int32_t[]){5, 4, 3, 2, 1, 0}, 0.0, &s),
		PLUMB_CHOICE_EQUAL);
	/* bounds that are none */
	ck_assert_int_eq(
		choose(score, 6, 3, (int32_t[]){0, 1, 4}, (int32_t[]){0, 1, 2}, (double)NAN, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(choose(score, 6, 3, (int32_t[]){0, 1, 4}, (int32_t[]){0, 1, 2}, -1.0, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(
		choose(score, 6, 3, (int32_t[]){0, 1, 3}, (int32_t[]){0, 1, 2}, (double)NAN, &s), PLUMB_CHOICE_TIE);
}
END_TEST

START_TEST(test_topk_malformed)
{
	const float score[4] = {4.0f, 3.0f, 2.0f, 1.0f};
	struct plumb_selection s;

	ck_assert_int_eq(choose(score, 4, 2, (int32_t[]){0, 0}, (int32_t[]){0, 1}, 9.0, &s), PLUMB_CHOICE_WRONG);
	ck_assert_str_eq(s.text, "the candidate has element 0 twice");
	ck_assert_int_eq(choose(score, 4, 2, (int32_t[]){0, 4}, (int32_t[]){0, 1}, 9.0, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(s.element, 4);
	ck_assert_int_eq(choose(score, 4, 2, (int32_t[]){-1, 0}, (int32_t[]){0, 1}, 9.0, &s), PLUMB_CHOICE_WRONG);
	ck_assert_str_eq(s.text, "the candidate has element -1 in slot 0, expected 0..3");
	ck_assert_int_eq(choose(score, 4, 2, (int32_t[]){0, 1}, (int32_t[]){1, 1}, 9.0, &s), PLUMB_CHOICE_WRONG);
	ck_assert_str_eq(s.text, "the golden choice has element 1 twice");
	ck_assert_int_eq(plumb_compare_topk(score, 4, 2, (int32_t[]){0}, 1, (int32_t[]){0, 1}, 2, 9.0, &s), PLUMB_MISMATCH);
	ck_assert_str_eq(s.text, "the candidate has 1 elements, expected 2");
	ck_assert_int_eq(
		plumb_compare_topk(score, 4, 2, (int32_t[]){0, 1}, 2, (int32_t[]){0, 1, 2}, 3, 9.0, &s), PLUMB_MISMATCH);
	ck_assert_int_eq(plumb_compare_topk(score, 4, 0, NULL, 0, NULL, 0, 9.0, &s), PLUMB_MISMATCH);
	ck_assert_int_eq(plumb_compare_topk(score, 4, 5, NULL, 5, NULL, 5, 9.0, &s), PLUMB_MISMATCH);
	ck_assert_int_eq(plumb_compare_topk(score, 0, 1, NULL, 1, NULL, 1, 9.0, &s), PLUMB_MISMATCH);
}
END_TEST

START_TEST(test_topk_special_scores)
{
	const float nan_low[4] = {NAN, 1.0f, 2.0f, NAN}, zeros_[4] = {0.0f, -0.0f, 1.0f, -1.0f};
	const float inf[4] = {INFINITY, INFINITY, FLT_MAX, -INFINITY}, nans[3] = {NAN, -NAN, NAN};
	struct plumb_selection s;

	/* NaN ranks below every number */
	ck_assert_int_eq(choose(nan_low, 4, 2, (int32_t[]){0, 2}, (int32_t[]){1, 2}, 1e30, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(s.element, 0);
	ck_assert_int_eq(choose(nan_low, 4, 2, (int32_t[]){1, 2}, (int32_t[]){0, 2}, 1e30, &s), PLUMB_CHOICE_WRONG);
	/* where the cut is among NaN they tie, and a number is above the cut whatever the bound */
	ck_assert_int_eq(choose(nan_low, 4, 3, (int32_t[]){0, 1, 2}, (int32_t[]){1, 2, 3}, 0.0, &s), PLUMB_CHOICE_TIE);
	ck_assert(isnan(s.cut));
	ck_assert_int_eq(choose(nan_low, 4, 3, (int32_t[]){0, 3, 2}, (int32_t[]){1, 2, 3}, 1e30, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(choose(nans, 3, 1, (int32_t[]){0}, (int32_t[]){1}, 0.0, &s), PLUMB_CHOICE_TIE);
	ck_assert_int_eq(choose(zeros_, 4, 2, (int32_t[]){2, 1}, (int32_t[]){2, 0}, 0.0, &s), PLUMB_CHOICE_TIE);
	ck_assert_int_eq(choose(inf, 4, 1, (int32_t[]){1}, (int32_t[]){0}, 0.0, &s), PLUMB_CHOICE_TIE);
	ck_assert_int_eq(choose(inf, 4, 2, (int32_t[]){0, 2}, (int32_t[]){0, 1}, (double)INFINITY, &s), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(
		choose(inf, 4, 3, (int32_t[]){0, 1, 3}, (int32_t[]){0, 1, 2}, (double)INFINITY, &s), PLUMB_CHOICE_WRONG);
}
END_TEST

START_TEST(test_order)
{
	const float score[6] = {3.0f, 5.0f, 3.0f, 4.0f, 3.0f, 1.0f};
	struct plumb_selection s;

#define ORDER(a, b, bound) (plumb_compare_order(score, 6, 4, (int32_t[])a, 4, (int32_t[])b, 4, bound, &s), s.choice)
#define SLOTS(...) {__VA_ARGS__}
	ck_assert_int_eq(ORDER(SLOTS(1, 3, 0, 2), SLOTS(1, 3, 0, 2), 0.0), PLUMB_CHOICE_EQUAL);
	ck_assert_int_eq(ORDER(SLOTS(1, 3, 2, 0), SLOTS(1, 3, 0, 2), 0.0), PLUMB_CHOICE_TIE); /* inside the cut */
	ck_assert_int_eq(s.differ, 2);
	ck_assert_int_eq(ORDER(SLOTS(1, 3, 4, 0), SLOTS(1, 3, 0, 2), 0.0), PLUMB_CHOICE_TIE);   /* across the cut */
	ck_assert_int_eq(s.differ, 2);                                                          /* slots */
	ck_assert_int_eq(ORDER(SLOTS(3, 1, 0, 2), SLOTS(1, 3, 0, 2), 0.5), PLUMB_CHOICE_WRONG); /* the set is right */
	ck_assert_int_eq(s.element, 3);
	ck_assert_int_eq(ORDER(SLOTS(3, 1, 0, 2), SLOTS(1, 3, 0, 2), 1.0), PLUMB_CHOICE_MARGIN);
	ck_assert_double_eq(s.margin, 1.0);
	ck_assert_int_eq(ORDER(SLOTS(1, 3, 0, 5), SLOTS(1, 3, 0, 2), 0.5), PLUMB_CHOICE_WRONG);
	ck_assert_int_eq(ORDER(SLOTS(1, 1, 0, 2), SLOTS(1, 3, 0, 2), 9.0), PLUMB_CHOICE_WRONG);
#undef ORDER
#undef SLOTS
}
END_TEST

/* The rule of ties by the scores of whoever chose; the text names the slot and who should stand there. */
START_TEST(test_ties)
{
	const float score[6] = {3.0f, 5.0f, 3.0f, -0.0f, 3.0f, 0.0f}, nan[3] = {NAN, 1.0f, NAN};
	static const struct {
		int32_t chosen[4];
		const char *why; /* NULL: it keeps the rule */
	} all[] = {
		{{1, 0, 2, 4}, NULL},
		{{0, 1, 2, 4}, NULL}, /* that 5 is larger is not the matter */
		{{3, 5, 1, 0}, NULL},
		{{4, 0, 2, 1},
			"slot 0 has element 4 of score 3; of 2 elements of the same score and a lower index, which come "
			"first, 0 stand before it"},
		{{1, 3, 5, 2}, "slot 3 has element 2 of score 3; of 1 elements"},
		{{1, 2, 0, 4}, "slot 1 has element 2 of score 3; of 1 elements"},
		{{1, 0, 4, 3},
			"slot 2 has element 4 of score 3; of 2 elements of the same score and a lower index, which come "
			"first, 1 stand"},
		{{1, 0, 2, 5}, "slot 3 has element 5 of score 0; of 1 elements"},
	};
	char text[256];

	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		ck_assert_int_eq(plumb_compare_ties(score, all[i].chosen, 4, text, sizeof text), all[i].why == NULL);
		ck_assert_msg(!all[i].why || strncmp(text, all[i].why, strlen(all[i].why)) == 0, "%s", text);
	}
	ck_assert(plumb_compare_ties(nan, (int32_t[]){1, 2, 0}, 3, text, sizeof text)); /* equal to nothing */
}
END_TEST

/* Against sorting: a choice by any tie rule is EQUAL or TIE at bound 0; one with scores disturbed by at most b is never
 * WRONG at 2b; one with an element swapped for a strictly worse one is WRONG at bound 0. */
START_TEST(test_topk_random)
{
	enum { MAX = 40 };
	float score[MAX], noisy[MAX];
	int32_t golden[MAX], chosen[MAX];

	state = 9000 + (uint64_t)_i;
	for (int round = 0; round < 200; round++) {
		int64_t n = 2 + (int64_t)(next_u64() % (MAX - 1)), k = 1 + (int64_t)(next_u64() % (uint64_t)n);
		uint64_t levels = 1 + next_u64() % 20; /* few levels: many ties */
		const float b = 0.25f;
		struct plumb_selection s;
		int32_t order[MAX];

		for (int pass = 0; pass < 2; pass++) { /* golden: lower index first; chosen: from noisy, higher first */
			for (int64_t i = 0; i < n; i++) {
				if (pass == 0)
					score[i] = (float)(next_u64() % levels);
				noisy[i] = score[i] + (pass && round % 2 ? b * (float)(2.0 * uniform() - 1.0) : 0.0f);
				order[i] = (int32_t)i;
			}
			for (int64_t i = 1; i < n; i++) /* insertion sort */
				for (int64_t j = i; j > 0; j--) {
					float here = noisy[order[j]], above = noisy[order[j - 1]];
					int32_t swap = order[j];
					if (!(here > above || (pass && here == above && order[j] > order[j - 1])))
						break;
					order[j] = order[j - 1];
					order[j - 1] = swap;
				}
			memcpy(pass ? chosen : golden, order, (size_t)k * sizeof *order);
		}
		if (round % 2) {
			ck_assert_int_ne(choose(score, n, k, chosen, golden, 2.0 * (double)b, &s), PLUMB_CHOICE_WRONG);
			ck_assert_int_eq(
				plumb_compare_order(score, n, k, chosen, k, golden, k, 2.0 * (double)b, &s), PLUMB_OK);
		} else {
			ck_assert_int_le(choose(score, n, k, chosen, golden, 0.0, &s), PLUMB_CHOICE_TIE);
			ck_assert_int_eq(plumb_compare_order(score, n, k, chosen, k, golden, k, 0.0, &s), PLUMB_OK);
			ck_assert(s.cut == score[golden[k - 1]]);
			if (k < n && score[order[n - 1]] < score[golden[k - 1]]) {
				chosen[next_u64() % (uint64_t)k] = order[n - 1];
				ck_assert_int_eq(choose(score, n, k, chosen, golden, 0.0, &s), PLUMB_CHOICE_WRONG);
			}
		}
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("selection");
	TCase *tcase = suite_part(suite, "choices", 60);

	tcase_add_test(tcase, test_topk);
	tcase_add_test(tcase, test_topk_malformed);
	tcase_add_test(tcase, test_topk_special_scores);
	tcase_add_test(tcase, test_order);
	tcase_add_test(tcase, test_ties);
	tcase_add_loop_test(tcase, test_topk_random, 0, 20);
	return suite_run(suite);
}
