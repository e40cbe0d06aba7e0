/* SPDX-License-Identifier: MIT */
/* Every op of the table against every implementation, with random configs and data. What a failing line begins with replays
 * it: PLUMB_OP_CASE=moe_down:17 test_ops. PLUMB_OP_SEEDS sets how many seeds an op gets. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "ref/twin/twin.h"
#include "tests/support/op_case.h"

enum { SEEDS = 16, DEVICES = 2, SCHEDULES = 3 };

/* Natural order for the first device; the others change with the case. */
static struct plumb_device *device[1 + SCHEDULES];

static void open_devices(void)
{
	struct plumb_error error;
	for (int i = 0; i < 1 + SCHEDULES; i++) {
		struct plumb_device_options options = {.seed = (uint64_t)i * 1001, .poison = PLUMB_POISON_NAN};
		ck_assert_msg(plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device[i], &error) == PLUMB_OK, "%s", error.text);
	}
}

static void close_devices(void)
{
	for (int i = 0; i < 1 + SCHEDULES; i++)
		plumb_device_close(device[i]);
}

/* One line for a failure. */
static bool passes(enum plumb_op op, uint64_t seed, double *worst)
{
	char text[OP_CASE_TEXT], name[64];
	struct op_case *c = op_case_new(op, seed, NULL);
	struct plumb_device *const chosen[DEVICES] = {device[0], device[1 + seed % SCHEDULES]};
	bool ok = op_case_check(c, NULL, chosen, DEVICES, text);

	if (!ok)
		printf("%s: %s\n", op_case_name(c, name), text);
	*worst = c->worst > *worst ? c->worst : *worst;
	op_case_free(c);
	return ok;
}

START_TEST(random_cases)
{
	const char *one = getenv("PLUMB_OP_CASE"), *count = getenv("PLUMB_OP_SEEDS");
	uint64_t seeds = count ? strtoull(count, NULL, 10) : SEEDS, first = 0;
	double worst = 0.0;
	int failed = 0;

	if (one) {
		const char *colon = strchr(one, ':');
		if (!colon || strncmp(one, plumb_ops[_i].name, (size_t)(colon - one)) != 0 ||
			plumb_ops[_i].name[colon - one] != '\0')
			return;
		first = strtoull(colon + 1, NULL, 10);
		seeds = 1;
	}
	for (uint64_t seed = first; seed < first + seeds; seed++)
		failed += !passes((enum plumb_op)_i, seed, &worst);
	printf("%-16s %3llu cases, largest error %.3f of the bound\n", plumb_ops[_i].name, (unsigned long long)seeds, worst);
	ck_assert_msg(failed == 0, "%s: %d of %llu cases fail", plumb_ops[_i].name, failed, (unsigned long long)seeds);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ops");
	TCase *cases = tcase_create("random");
	tcase_add_unchecked_fixture(cases, open_devices, close_devices);
	tcase_set_timeout(cases, 300);
	tcase_add_loop_test(cases, random_cases, 0, PLUMB_OP_COUNT);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_NOFORK);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
