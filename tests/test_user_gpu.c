/* SPDX-License-Identifier: MIT */
/* plumb check with kernels of a shared object on a GPU (tests/user/gpu.cu): right ones pass, the rest is reported as
 * their doing, sticky errors and endless loops too, and the GPU serves the next process. Without a GPU: says so and
 * ends with 77. */
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "opt/device.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define CHECK "check " PLUMB_GOLDEN_DIR "/tiny/tiny.h5 --checkpoint " PLUMB_GOLDEN_DIR "/tiny/checkpoint --device cuda "
#define LIBRARY "'" PLUMB_USER_DIR "/gpu.so'"

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

/* Run the program with GPU_FAULT set; its exit status, and all that it says. */
__attribute__((format(printf, 3, 4))) static int plumb(const char *fault, char **said, const char *format, ...)
{
	char args[2048], line[4096], path[SCRATCH_PATH];
	size_t size;
	va_list ap;

	va_start(ap, format);
	vsnprintf(args, sizeof args, format, ap);
	va_end(ap);
	snprintf(line, sizeof line, "GPU_FAULT=%s '%s' %s >'%s/said' 2>&1 </dev/null", fault, PLUMB_PROGRAM, args, dir);
	int status = system(line);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	*said = scratch_read(scratch_path(path, dir, "said"), &size);
	return WEXITSTATUS(status);
}

static void expect(const char *fault, int status, const char *what, const char *options)
{
	char *said;
	int is = plumb(fault, &said, CHECK "--op %s", options);
	ck_assert_msg(is == status && strstr(said, what),
		"fault %s, --op %s: exit status %d, expected %d with '%s'\n%.1500s", fault, options, is, status, what,
		said);
	free(said);
}

START_TEST(right_kernels_pass)
{
	static const char *const how[] = {"", "--once", "--guard", "--policy bf16", "--set opt"};
	char options[600];

	snprintf(options, sizeof options, "all=" LIBRARY " %s", how[_i]);
	expect("none", 0, "pass", options);
	snprintf(options, sizeof options, "attn_gate='" PLUMB_USER_DIR "/cubin.so' %s", how[_i]);
	expect("none", 0, "pass", options);
}
END_TEST

static const struct {
	const char *fault, *op, *said;
} wrong[] = {
	{"address", "attn_gate", "op attn_gate layer 3 position 0: "},
	{"address", "attn_gate", "illegal memory access"},
	{"hang", "attn_gate", "hangs: no result after 5 seconds"},
	{"launch", "attn_gate", "did not write out[0, 0]"},
	{"unwritten", "attn_gate", "did not write out[55, 383]"},
	{"outside", "attn_gate", "outside"},
	{"changed", "attn_gate", "changed its input qg"},
	{"workspace", "gdn_out_proj", "outside scratch slot 0"},
};
enum { WRONG = sizeof wrong / sizeof wrong[0] };

START_TEST(faults_are_the_kernels)
{
	char options[600];

	snprintf(options, sizeof options, "%s=" LIBRARY " --timeout 5", wrong[_i].op);
	expect(wrong[_i].fault, 1, wrong[_i].said, options);
	expect("none", 0, "pass", options); /* the GPU is as it was */
}
END_TEST

int main(void)
{
	int status = suite_probe_gpu(); /* this process forks later on: no CUDA in it */
	if (status != PLUMB_OK)
		return suite_without_device(status);
	Suite *suite = suite_create("user_gpu");
	TCase *c = suite_part(suite, "user_gpu", 120);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, right_kernels_pass, 0, 5);
	tcase_add_loop_test(c, faults_are_the_kernels, 0, WRONG);
	return suite_run(suite);
}
