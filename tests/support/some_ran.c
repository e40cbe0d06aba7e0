/* SPDX-License-Identifier: MIT */
/* Linked into every suite (--wrap): a run in which no test ran, since a filter (CK_RUN_SUITE, CK_RUN_CASE) matches none or
 * none was added, has one failure. */
#include <check.h>
#include <stdio.h>

int __real_srunner_ntests_failed(SRunner *runner);
int __wrap_srunner_ntests_failed(SRunner *runner);

int __wrap_srunner_ntests_failed(SRunner *runner)
{
	int failed = __real_srunner_ntests_failed(runner);

	if (failed == 0 && srunner_ntests_run(runner) == 0) {
		printf("no test has run\n");
		failed = 1;
	}
	return failed;
}
