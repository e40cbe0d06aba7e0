/* SPDX-License-Identifier: MIT */
/* The program with --kv-format and --state-format, and `plumb drift`. */
#include <cJSON.h>
#include <check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5 --checkpoint " PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define NARROW " --kv-format fp8 --state-format f16"

static char out[1 << 17];

/* Run the program; standard error comes along when asked for. Returns the exit status. */
__attribute__((format(printf, 2, 3))) static int plumb(bool errors, const char *format, ...)
{
	char args[1024], line[2048];
	va_list ap;

	va_start(ap, format);
	vsnprintf(args, sizeof args, format, ap);
	va_end(ap);
	snprintf(line, sizeof line, "'%s' %s 2>%s </dev/null", PLUMB_PROGRAM, args, errors ? "&1" : "/dev/null");
	FILE *f = popen(line, "r");
	ck_assert_ptr_nonnull(f);
	out[fread(out, 1, sizeof out - 1, f)] = '\0';
	int status = pclose(f);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	return WEXITSTATUS(status);
}

static void has(const char *text)
{
	ck_assert_msg(strstr(out, text) != NULL, "'%s' is not in: %.1500s", text, out);
}

/* The golden tensors are of other formats, so the comparison fails; every op keeps its bound, and the bits are the same. */
START_TEST(check_with_narrow_formats)
{
	static const char *const ways[] = {"--mode twin", "--set opt", "--mode twin --page-seed 3"};
	char first[64] = "";

#ifdef __SANITIZE_ADDRESS__
	const int count = 2; /* pages are shuffled in test_graph too */
#else
	const int count = 3;
#endif
	for (int i = 0; i < count; i++) {
		int status = plumb(false, "check " TINY NARROW " --view local --bounds --digest %s --policy %s", ways[i],
			_i ? "bf16" : "f32");
		ck_assert_int_eq(status, 1);
		has("keys and values fp8; GDN state f16");
		has("note ");
		has("pass  bounds");
		const char *digest = strstr(out, "digest  ");
		ck_assert_ptr_nonnull(digest);
		if (i == 0)
			snprintf(first, sizeof first, "%.40s", digest);
		ck_assert_msg(strncmp(digest, first, 40) == 0, "%s: %.40s, not %s", ways[i], digest, first);
	}
	/* the policy's own format is no change */
	ck_assert_int_eq(plumb(false, "check " TINY " --view local --policy %s --kv-format %s --state-format f32",
				 _i ? "bf16" : "f32", _i ? "bf16" : "f32"),
		0);
	ck_assert_ptr_null(strstr(out, "note "));
}
END_TEST

START_TEST(run_with_narrow_formats)
{
	char first[256];
	ck_assert_int_eq(plumb(false, "run --checkpoint " PLUMB_GOLDEN_DIR
				      "/tiny/checkpoint --tokens 5,17,42 --steps 6" NARROW " --mode twin"),
		0);
	snprintf(first, sizeof first, "%.255s", out);
	ck_assert_int_eq(plumb(false, "run --checkpoint " PLUMB_GOLDEN_DIR
				      "/tiny/checkpoint --tokens 5,17,42 --steps 6" NARROW " --set opt"),
		0);
	ck_assert_str_eq(out, first);
}
END_TEST

START_TEST(drift_command)
{
	ck_assert_int_eq(plumb(true, "drift --steps 16"), 0);
	has("of bound");
	has("bf16");
	ck_assert_int_eq(plumb(true, "drift --steps 4 --format f16 --set opt --json -"), 0);
	cJSON *root = cJSON_Parse(out);
	ck_assert_msg(root != NULL, "%s", out);
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(root, "pass")));
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(root, "figures")), 8 * 2);
	cJSON_Delete(root);
	ck_assert_int_eq(plumb(true, "drift --help"), 0);
	has("plumb drift --steps 1024 --format f16");
}
END_TEST

START_TEST(bad_words)
{
	static const char *const bad[][2] = {
		{"check " TINY " --kv-format f16", "--kv-format is 'f16', expected f32, bf16 or fp8"},
		{"check " TINY " --state-format bf16", "--state-format is 'bf16', expected f32 or f16"},
		{"run --checkpoint DIR --tokens 1 --kv-format ''", "--kv-format is empty, expected f32|bf16|fp8"},
		{"drift --steps 0", "steps are 0, expected 1..65536"},
		{"drift --steps 65537", "steps are 65537"},
		{"drift --format fp8", "--format is 'fp8', expected f32, f16 or bf16"},
		{"drift --set twin", "--set is 'twin', expected ref or opt"},
		{"drift --device gpu --set opt", "--device is 'gpu', expected simt or cuda"},
		{"drift --device simt", "--device is for --set opt"},
		{"drift --json /nowhere/at/all.json", "/nowhere/at/all.json"},
		{"drift tiny.h5", "unexpected argument 'tiny.h5'"},
	};
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		ck_assert_msg(plumb(true, "%s", bad[i][0]) == 2, "%s: %s", bad[i][0], out);
		has(bad[i][1]);
		ck_assert_msg(strchr(out, '\n') == out + strlen(out) - 1, "not one line: %s", out);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("cli formats");
	TCase *t = suite_part(s, "program", 300);
	tcase_add_loop_test(t, check_with_narrow_formats, 0, 2);
	tcase_add_test(t, run_with_narrow_formats);
	tcase_add_test(t, drift_command);
	tcase_add_test(t, bad_words);
	return suite_run(s);
}
