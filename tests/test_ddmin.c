/* SPDX-License-Identifier: MIT */
/* The search for a minimal set: every planted set of one, two and three choices of 120 comes out exactly, in how many
 * tests. */
#include <check.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/suite.h"
#include "tools/ddmin.h"

enum { N = 120, LAYERS = 6 };

static struct plumb_error err;

/* Fails when all members of one of the sets are on; noise: choices that do nothing. */
struct planted {
	int sets, size[3], member[3][3];
	int healer; /* one that heals everything while another is off; 0: none */
	int asked;
};

static int test(void *self, const bool *on, bool *fails)
{
	struct planted *p = self;
	p->asked++;
	*fails = false;
	for (int s = 0; s < p->sets; s++) {
		bool all = true;
		for (int i = 0; i < p->size[s]; i++)
			all = all && on[p->member[s][i]];
		*fails = *fails || all;
	}
	if (p->healer && on[p->healer] && !on[p->healer + 1])
		*fails = false;
	return PLUMB_OK;
}

static struct ddmin *start(struct planted *p)
{
	static int group[N];
	struct ddmin *d;
	for (int i = 0; i < N; i++)
		group[i] = i / LAYERS;
	ck_assert_int_eq(ddmin_create(N, group, test, p, &d, &err), PLUMB_OK);
	return d;
}

static unsigned random_state = 7;
static int below(int n)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (int)((random_state >> 8) % (unsigned)n);
}

START_TEST(planted_sets)
{
	static const int most[4] = {0, 10, 19, 29};
	int size = _i, worst = 0;

	for (int round = 0; round < 200; round++) {
		struct planted p = {.sets = 1, .size = {size}};
		bool set[N];
		for (int i = 0; i < size; i++) {
			p.member[0][i] = below(N);
			for (int k = 0; k < i; k++)
				if (p.member[0][k] == p.member[0][i])
					i--;
		}
		struct ddmin *d = start(&p);
		memset(set, 1, sizeof set);
		ck_assert_int_eq(ddmin_reduce(d, set, NULL), PLUMB_OK);
		int on = 0;
		for (int i = 0; i < N; i++)
			on += set[i];
		ck_assert_int_eq(on, size);
		for (int i = 0; i < size; i++)
			ck_assert(set[p.member[0][i]]);
		ck_assert_int_eq(p.asked, ddmin_tests(d));
		worst = p.asked > worst ? p.asked : worst;
		ddmin_free(d);
	}
	printf("%d together: at most %d tests of %d choices\n", size, worst, N);
	ck_assert_int_le(worst, most[size]);
}
END_TEST

/* Two faults that have nothing to do with each other: one after the other. */
START_TEST(two_sets)
{
	struct planted p = {.sets = 2, .size = {1, 2}, .member = {{100}, {3, 77}}};
	struct ddmin *d = start(&p);
	bool all[N], set[N], fails;
	int found[2] = {0};

	memset(all, 1, sizeof all);
	for (int s = 0; s < 2; s++) {
		memcpy(set, all, sizeof set);
		ck_assert_int_eq(ddmin_reduce(d, set, NULL), PLUMB_OK);
		for (int i = 0; i < N; i++) {
			found[s] += set[i];
			all[i] = all[i] && !set[i];
		}
	}
	ck_assert_int_eq(found[0] + found[1], 3);
	ck_assert_int_eq(ddmin_ask(d, all, &fails), PLUMB_OK);
	ck_assert(!fails);
	ddmin_free(d);
}
END_TEST

/* A right suspicion makes it one test and the proof of its members; a wrong one costs one test. */
START_TEST(suspicion)
{
	struct planted p = {.sets = 1, .size = {2}, .member = {{5, 60}}};
	struct ddmin *d = start(&p);
	bool set[N], first[N] = {false};

	first[5] = first[60] = true;
	memset(set, 1, sizeof set);
	ck_assert_int_eq(ddmin_reduce(d, set, first), PLUMB_OK);
	ck_assert(set[5] && set[60]);
	ck_assert_int_le(p.asked, 5);
	ddmin_free(d);
	p.asked = 0;
	d = start(&p);
	memset(set, 1, sizeof set);
	first[5] = false;
	ck_assert_int_eq(ddmin_reduce(d, set, first), PLUMB_OK);
	ck_assert(set[5] && set[60]);
	ddmin_free(d);
}
END_TEST

/* More can heal: prefixes mislead, and the set found is minimal all the same. */
START_TEST(healed)
{
	struct planted p = {.sets = 1, .size = {2}, .member = {{90, 110}}, .healer = 30};
	struct ddmin *d = start(&p);
	bool set[N], fails;

	memset(set, 1, sizeof set);
	ck_assert_int_eq(ddmin_reduce(d, set, NULL), PLUMB_OK);
	ck_assert_int_eq(ddmin_ask(d, set, &fails), PLUMB_OK);
	ck_assert(fails && set[90] && set[110]);
	for (int i = 0; i < N; i++) {
		if (!set[i])
			continue;
		set[i] = false;
		ck_assert_int_eq(ddmin_ask(d, set, &fails), PLUMB_OK);
		ck_assert(!fails);
		set[i] = true;
	}
	ddmin_free(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ddmin");
	TCase *tc = suite_part(suite, "ddmin", 60);

	tcase_add_loop_test(tc, planted_sets, 1, 4);
	tcase_add_test(tc, two_sets);
	tcase_add_test(tc, suspicion);
	tcase_add_test(tc, healed);
	return suite_run(suite);
}
