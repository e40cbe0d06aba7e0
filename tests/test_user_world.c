/* SPDX-License-Identifier: MIT */
/* What a kernel of a shared object does to the process that judges it, and what it keeps between calls, is no way to pass
 * (tests/user/world.c). */
#include <cJSON.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "core/status.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define SEAT "--op hc_inject='" PLUMB_USER_DIR "/world.so' "
#define CHECK "check " PLUMB_GOLDEN_DIR "/tiny/tiny.h5 --checkpoint " PLUMB_GOLDEN_DIR "/tiny/checkpoint --timeout 5 " SEAT

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
	unsetenv("WORLD_FAULT");
}

static cJSON *report(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(scratch_path(path, dir, name), &size);
	cJSON *json = cJSON_Parse(text);
	ck_assert_msg(json != NULL, "no JSON: %s", text);
	free(text);
	return json;
}

static void expect_failure(const char *name)
{
	cJSON *json = report(name);
	ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(json, "pass")));
	cJSON_Delete(json);
}

static const struct {
	const char *fault, *check, *test; /* what either says; NULL: passes, and rightly so */
} faults[] = {
	{NULL, NULL, NULL},
	{"print", NULL, NULL},
	{"daemon", NULL, NULL},
	{"round", "left another floating-point mode behind", "left another floating-point mode behind"},
#if defined(__SSE__)
	{"flush", "left another floating-point mode behind", "left another floating-point mode behind"},
	{"fast", NULL, "class=subnormal"}, /* no subnormal number in the golden file */
#endif
	{"kept", "FAIL", "residual_out"},
	{"folder", "left another working directory behind", "left another working directory behind"},
	{"close", "closed descriptor", "closed descriptor"},
	{"stdout", "closed descriptor 1", "closed descriptor 1"},
	{"stderr", "closed descriptor 2", "closed descriptor 2"},
	{"fork", "forked, and both processes returned", "forked, and both processes returned"},
	{"pipe", "crashed (SIGPIPE)", "crashed (SIGPIPE)"},
	{"bytes", "not ?? UTF-8 (returned 1)", "not ?? UTF-8 (returned 1)"},
};
enum { FAULTS = sizeof faults / sizeof faults[0] };

START_TEST(check_sees_it)
{
	struct program_result r;

	if (faults[_i].fault)
		ck_assert_int_eq(setenv("WORLD_FAULT", faults[_i].fault, 1), 0);
	program(&r, dir, CHECK "--json '%s/report' --view local", dir);
	program_expect(&r, faults[_i].check ? 1 : 0);
	ck_assert_msg(!faults[_i].check || strstr(r.out, faults[_i].check) || strstr(r.err, faults[_i].check), "%s%s",
		r.out, r.err);
	if (faults[_i].check)
		expect_failure("report");
}
END_TEST

/* Whether a process runs with this assignment in its environment, but for this one. */
static bool runs_with(const char *assignment)
{
	char command[SCRATCH_PATH];
	snprintf(command, sizeof command,
		"for p in /proc/[0-9]*; do [ $p = /proc/%d ] || [ $p = /proc/$$ ] || tr '\\0' '\\n' <$p/environ; done "
		"2>/dev/null | grep -qx '%s'",
		(int)getpid(), assignment);
	return system(command) == 0;
}

/* What a kernel forks and leaves behind does not outlive the command. */
START_TEST(nothing_is_left_behind)
{
	static const char *const command[] = {CHECK "--view local", "test " SEAT "--cases 8 --jobs 2"};
	struct program_result r;
	char mark[64];

	snprintf(mark, sizeof mark, "WORLD_MARK=%d", (int)getpid());
	ck_assert(!runs_with(mark));
	program_with(&r, dir, mark, "%s", command[_i]);
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("WORLD_FAULT", "daemon", 1), 0);
	program_with(&r, dir, mark, "%s", command[_i]);
	program_expect(&r, 0);
	ck_assert_msg(!runs_with(mark), "a process is left");
}
END_TEST

START_TEST(test_sees_it)
{
	struct program_result r;
	time_t start = time(NULL);

	if (faults[_i].fault)
		ck_assert_int_eq(setenv("WORLD_FAULT", faults[_i].fault, 1), 0);
	program(&r, dir, "test " SEAT "--jobs 2 --timeout 5 --json '%s/report'", dir);
	if (faults[_i].test && strcmp(faults[_i].fault, "fork") == 0)
		ck_assert_int_ne(r.status, 0);
	else
		program_expect(&r, faults[_i].test ? 1 : 0);
	ck_assert_msg(
		!faults[_i].test || strstr(r.out, faults[_i].test) || strstr(r.err, faults[_i].test), "%s%s", r.out, r.err);
	if (r.status == 1)
		expect_failure("report");
	ck_assert_msg(time(NULL) - start < 15, "waits for what a kernel has left behind");
}
END_TEST

/* The twin's bits come from OpenMP's threads, too. */
START_TEST(threads_get_their_mode_back)
{
	struct program_result r;

	program(&r, dir,
		"check " PLUMB_GOLDEN_DIR "/tiny/tiny.h5 --checkpoint " PLUMB_GOLDEN_DIR
		"/tiny/checkpoint --threads 2 --mode twin --digest --op hc_inject='" PLUMB_USER_DIR "/pool.so'");
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "68890248028dfcba49bdd3eeb2faa8d4"), "%s", r.out);
}
END_TEST

/* plumb test runs a case a core, and the threads of a kernel all the same. */
START_TEST(threads_of_a_kernel)
{
	struct program_result r;

	program(&r, dir, "test --op hc_inject='" PLUMB_USER_DIR "/pool.so' --class integers");
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("POOL_FAULT", "race", 1), 0);
	program(&r, dir, "test --op hc_inject='" PLUMB_USER_DIR "/pool.so' --class integers");
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL  4 of 4 cases"), "%s", r.out);
	ck_assert_int_eq(setenv("OMP_NUM_THREADS", "1", 1), 0);
	program(&r, dir, "test --op hc_inject='" PLUMB_USER_DIR "/pool.so' --class integers");
	program_expect(&r, 0);
}
END_TEST

/* What a kernel prints is no part of a report on standard output. */
START_TEST(a_report_stands_alone)
{
	static const char *const command[] = {CHECK "--view local --json -", "test " SEAT "--cases 3 --json -"};
	struct program_result r;

	ck_assert_int_eq(setenv("WORLD_FAULT", "print", 1), 0);
	program(&r, dir, "%s", command[_i]);
	program_expect(&r, 0);
	cJSON *json = report("out");
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(json, "pass")));
	cJSON_Delete(json);
	ck_assert_msg(strstr(r.err, "pass\npass\n"), "%s", r.err);
}
END_TEST

/* A suite some of whose processes are gone has not passed. */
START_TEST(cases_without_a_verdict)
{
	struct program_result r;

	ck_assert_int_eq(setenv("WORLD_FAULT", "stop", 1), 0);
	program(&r, dir, "test " SEAT "--jobs 1 --cases 20");
	ck_assert_int_eq(r.status, 2);
	ck_assert_msg(strstr(r.err, "of 20 cases have no verdict"), "%s", r.err);
}
END_TEST

/* The exit status is that of the verdict, whatever is registered for the end of the process. */
START_TEST(the_end_changes_no_verdict)
{
	struct program_result r;

	ck_assert_int_eq(setenv("WORLD_FAULT", "end", 1), 0);
	program(&r, dir, CHECK "--view local");
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL"), "%s", r.out);
}
END_TEST

START_TEST(text_that_is_no_utf8)
{
	static const struct {
		const char *is, *becomes;
	} text[] = {
		{"a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z", "a\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80z"},
		{"\xFF", "?"},
		{"\xC3", "?"},
		{"\xC3(", "?("},
		{"\xE2\x82", "??"},
		{"\xC0\x80\xE0\x80\x80", "?????"},
		{"\xED\xA0\x80\xF4\x90\x80\x80", "???????"},
		{"\x80\xF5\xC1", "???"},
	};
	for (size_t i = 0; i < sizeof text / sizeof text[0]; i++) {
		char copy[32];
		snprintf(copy, sizeof copy, "%s", text[i].is);
		plumb_utf8(copy);
		ck_assert_str_eq(copy, text[i].becomes);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("user_world");
	TCase *t = suite_part(suite, "process", 120);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, check_sees_it, 0, FAULTS);
	tcase_add_loop_test(t, test_sees_it, 0, FAULTS);
	tcase_add_loop_test(t, nothing_is_left_behind, 0, 2);
	tcase_add_test(t, threads_get_their_mode_back);
	tcase_add_test(t, threads_of_a_kernel);
	tcase_add_loop_test(t, a_report_stands_alone, 0, 2);
	tcase_add_test(t, cases_without_a_verdict);
	tcase_add_test(t, the_end_changes_no_verdict);
	tcase_add_test(t, text_that_is_no_utf8);
	return suite_run(suite);
}
