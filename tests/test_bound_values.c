/* SPDX-License-Identifier: MIT */
/* The error bound itself, as recorded: for every op and seed the sums of the logarithms of all its bounds and spreads, and of its
 * drifts. test_bound shows that right results are within and wrong ones outside; a bound that is a little too narrow or too wide lies
 * between, and shows here. A bound changes only on purpose, with its derivation: `PLUMB_BOUND_WRITE=1 test_bound_values` prints
 * tests/bound_values.h anew. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref/bound.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

enum { SEEDS = 6, SUMS = 4 };

/* Sums of one case: of log(error), log(spread), drift / error, and how many balls have no finite error. Weighted, so that bounds which
 * change places show. */
struct values {
	double sum[SUMS];
	int64_t balls;
};

static const struct {
	const char *op;
	int seed;
	struct values values;
} recorded[] = {
#include "tests/bound_values.h"
};
enum { RECORDED = sizeof recorded / sizeof recorded[0] };

static void measure(enum plumb_op op, int seed, struct values *out)
{
	static const struct trial_options any = {.policy = -1, .format = -1, .traces = -1};
	struct trial *c = trial_new(op, (uint64_t)seed, &any);
	struct trial_result result;
	struct plumb_bound_set set;
	char text[TRIAL_TEXT];
	void *before = malloc(plumb_ops[op].args_size);

	ck_assert_ptr_nonnull(before);
	ck_assert_msg(trial_run(c, "twin", plumb_ref_twin.op[op], NULL, PLUMB_POISON_NAN, &result, text), "%s", text);
	trial_arguments_before(c, before);
	ck_assert_int_eq(plumb_bound_make(&c->env, op, c->position, before, c->args, &set), PLUMB_OK);
	memset(out, 0, sizeof *out);
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		for (int64_t k = 0; set.ball[i] && k < set.count[i]; k++) {
			const struct plumb_ball *b = &set.ball[i][k];
			double weight = 1.0 + (double)((k * 7 + i * 3) % 11) / 16.0;
			out->balls++;
			if (!isfinite(b->error)) {
				out->sum[3] += weight;
				continue;
			}
			out->sum[0] += b->error > 0.0 ? weight * log(b->error) : 0.0;
			out->sum[1] += b->spread > 0.0 && isfinite(b->spread) ? weight * log(b->spread) : 0.0;
			out->sum[2] += b->error > 0.0 && isfinite(b->drift) ? weight * b->drift / b->error : 0.0;
		}
	plumb_bound_free(&set);
	trial_result_free(&result);
	free(before);
	trial_free(c);
}

START_TEST(as_recorded)
{
	const enum plumb_op op = plumb_op_find(recorded[_i].op);
	const struct values *want = &recorded[_i].values;
	struct values got;

	ck_assert_int_ne(op, PLUMB_OP_COUNT);
	measure(op, recorded[_i].seed, &got);
	ck_assert_int_eq(got.balls, want->balls);
	for (int i = 0; i < SUMS;
		i++) /* the functions of binary64 differ by an ulp between libraries: 1e-11 of each ball */
		ck_assert_msg(fabs(got.sum[i] - want->sum[i]) <= 1e-11 * (double)(want->balls + 1),
			"%s, seed %d: sum %d is %.17g, recorded %.17g over %lld balls", recorded[_i].op, recorded[_i].seed,
			i, got.sum[i], want->sum[i], (long long)want->balls);
}
END_TEST

/* Every op that has a bound is in the record. */
START_TEST(every_op)
{
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		int found = 0;
		for (int i = 0; i < RECORDED; i++)
			found += strcmp(recorded[i].op, plumb_ops[op].name) == 0;
		ck_assert_msg(!plumb_bounds[op] || found == SEEDS, "%s: %d of %d", plumb_ops[op].name, found, SEEDS);
	}
}
END_TEST

START_TEST(write_record)
{
	printf("/* SPDX-License-Identifier: MIT */\n/* Made by PLUMB_BOUND_WRITE=1 test_bound_values. */\n/* clang-format "
	       "off */\n");
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		for (int seed = 0; plumb_bounds[op] && seed < SEEDS; seed++) {
			struct values v;
			measure((enum plumb_op)op, seed, &v);
			printf("{\"%s\", %d, {{%.17g, %.17g, %.17g, %.17g}, %lld}},\n", plumb_ops[op].name, seed, v.sum[0],
				v.sum[1], v.sum[2], v.sum[3], (long long)v.balls);
		}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bound_values");
	TCase *values = suite_part(suite, "values", 120);
	if (getenv("PLUMB_BOUND_WRITE")) {
		setenv("CK_VERBOSITY", "silent", 1); /* standard output is the record */
		tcase_add_test(values, write_record);
	} else {
		tcase_add_test(values, every_op);
		tcase_add_loop_test(values, as_recorded, 0, RECORDED);
	}
	return suite_run(suite);
}
