/* SPDX-License-Identifier: MIT */
#include "tests/support/suite.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "opt/device.h"

TCase *suite_part(Suite *suite, const char *name, double seconds)
{
	TCase *part = tcase_create(name);

	tcase_set_timeout(part, seconds);
	suite_add_tcase(suite, part);
	return part;
}

static int run(Suite *suite, enum fork_status how)
{
	SRunner *runner = srunner_create(suite);

	srunner_set_fork_status(runner, how);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner), ran = srunner_ntests_run(runner);
	srunner_free(runner);
	if (ran == 0)
		printf("no test has run\n");
	return failed == 0 && ran > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

int suite_run(Suite *suite)
{
	return run(suite, CK_FORK_GETENV);
}

int suite_run_here(Suite *suite)
{
	return run(suite, CK_NOFORK);
}

int suite_without_device(int status)
{
	return status == PLUMB_NO_DEVICE ? SUITE_SKIPPED : EXIT_FAILURE;
}

int suite_wants_gpu(bool *gpu)
{
	const char *wanted = getenv("PLUMB_TEST_DEVICE");

	if (wanted && strcmp(wanted, "cuda") != 0 && strcmp(wanted, "simt") != 0) {
		printf("PLUMB_TEST_DEVICE is '%s', expected cuda or simt\n", wanted);
		return PLUMB_BAD_INPUT;
	}
	*gpu = wanted && strcmp(wanted, "cuda") == 0;
	return *gpu ? suite_probe_gpu() : PLUMB_OK;
}

int suite_probe_gpu(void)
{
	int how = 0;

	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		struct plumb_device *device = NULL;
		struct plumb_error err = {""};
		int status = plumb_device_open(PLUMB_DEVICE_CUDA, NULL, &device, &err);
		printf("%s%s\n", status == PLUMB_OK ? "" : "SKIP: ",
			status == PLUMB_OK ? plumb_device_description(device) : err.text);
		plumb_device_close(device);
		fflush(stdout);
		_exit(status);
	}
	if (child < 0 || waitpid(child, &how, 0) != child || !WIFEXITED(how))
		return PLUMB_BAD_INPUT;
	return WEXITSTATUS(how);
}
