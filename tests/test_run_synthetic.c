/* SPDX-License-Identifier: MIT */
/* plumb run on synthetic models, as a user meets it: the digests that ship, a digit of them changed, and bad input. */
#include <cJSON.h>
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define SMALL PLUMB_GOLDEN_DIR "/synthetic/small-f32.json"
#define RUN_TINY "run --synthetic tiny --profile served --tokens 5,17,3,3 --steps 3 "

struct result {
	int status;
	char *out, *err;
};

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

/* Run the program with a formatted command line; what it said is there until the next call. */
__attribute__((format(printf, 1, 2))) static const struct result *plumb(const char *format, ...)
{
	static struct result r;
	char args[2048], line[4096], path[SCRATCH_PATH];
	va_list ap;

	va_start(ap, format);
	vsnprintf(args, sizeof args, format, ap);
	va_end(ap);
	free(r.out);
	free(r.err);
	snprintf(line, sizeof line, "'%s' %s >'%s/out' 2>'%s/err' </dev/null", PLUMB_PROGRAM, args, dir, dir);
	int status = system(line);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	r.status = WEXITSTATUS(status);
	size_t size;
	r.out = scratch_read(scratch_path(path, dir, "out"), &size);
	r.err = scratch_read(scratch_path(path, dir, "err"), &size);
	return &r;
}

static void expect(const struct result *r, int status, const char *out, const char *err)
{
	ck_assert_msg(r->status == status && strstr(r->out, out) && strstr(r->err, err),
		"exit status %d, expected %d, '%s' and '%s'\nstdout: %.600s\nstderr: %s", r->status, status, out, err,
		r->out, r->err);
}

/* Exit status 2 and one line with these words. */
static void expect_bad(const struct result *r, const char *first, const char *second)
{
	expect(r, 2, "", first);
	expect(r, 2, "", second);
	const char *end = strchr(r->err, '\n');
	ck_assert_msg(end && end[1] == '\0', "not one line: '%s'", r->err);
}

START_TEST(shipped_digests_hold)
{
	static const char *const runs[] = {"small-f32.json --mode twin", "small-bf16.json --mode twin",
		"small-f32.json --set opt --device simt --seed 7", "small-bf16.json --set opt --page-seed 3"};

	expect(plumb("run --expect " PLUMB_GOLDEN_DIR "/synthetic/%s", runs[_i]), 0, "as expected", "");
}
END_TEST

/* A changed file, in the scratch folder. Returns its path. */
static const char *changed(const char *from, const char *find, const char *put)
{
	static char path[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(from, &size), *at = strstr(text, find);

	ck_assert_msg(at != NULL, "'%s' is not in %s", find, from);
	ck_assert_uint_ge(strlen(find), strlen(put));
	memset(at, ' ', strlen(find));
	memcpy(at, put, strlen(put));
	scratch_write(dir, "changed.json", text, size);
	free(text);
	return scratch_path(path, dir, "changed.json");
}

START_TEST(a_difference_is_named)
{
	char path[SCRATCH_PATH], word[16];
	size_t size;

	expect(plumb(RUN_TINY "--mode twin --digests '%s'", scratch_path(path, dir, "tiny.json")), 0, "", "");
	expect(plumb("run --expect '%s' --mode twin", path), 0, "as expected: 6 tokens, 2 layers", "");
	/* the third line of digests, its second word: token 2, layer 1 */
	char *text = scratch_read(path, &size), *at = strstr(text, "\"digests\"");
	for (int line = 0; line < 3; line++)
		at = strchr(at, '\n') + 1;
	at = strchr(at, ' ') ? strstr(at, "\"") + 1 + 9 : NULL;
	ck_assert_ptr_nonnull(at);
	at[7] = at[7] == '0' ? '1' : '0';
	scratch_write(dir, "tiny.json", text, size);
	snprintf(word, sizeof word, "%.8s", at);
	expect(plumb("run --expect '%s' --mode twin", path), 1, "", "token 2 (of the prompt), layer 1: digest");
	expect(plumb("run --expect '%s' --set opt", path), 1, "", word);
	free(text);
	/* another seed is another model: every digest differs, and the file says which model it is of */
	expect_bad(plumb(RUN_TINY "--mode twin --weight-seed 1 --expect " SMALL), "model", "synthetic tiny");
}
END_TEST

START_TEST(totals_and_tokens_count)
{
	const char *path = changed(SMALL, "\"total\": \"", "\"total\": \"");
	size_t size;
	char *text = scratch_read(path, &size), *at = strstr(text, "\"total\": \"") + strlen("\"total\": \"");

	at[31] = at[31] == '0' ? '1' : '0';
	scratch_write(dir, "changed.json", text, size);
	expect(plumb("run --expect '%s' --mode twin", path), 1, "", "total");
	free(text);
}
END_TEST

START_TEST(files_are_the_same_each_time)
{
	char path[SCRATCH_PATH];
	size_t first, second;

	expect(plumb(RUN_TINY "--mode twin --digests '%s'", scratch_path(path, dir, "a.json")), 0, "", "");
	char *a = scratch_read(path, &first);
	expect(plumb(RUN_TINY "--set opt --threads 3 --page-seed 9 --digests '%s'", scratch_path(path, dir, "b.json")), 0,
		"", "");
	char *b = scratch_read(path, &second);
	ck_assert_uint_eq(first, second);
	ck_assert_mem_eq(a, b, first);
	free(a);
	free(b);
}
END_TEST

START_TEST(report_says_times_and_memory)
{
	char path[SCRATCH_PATH];
	size_t size;

	expect(plumb(RUN_TINY "--mode twin --digest --context 100 --memory 1 --json '%s'",
		       scratch_path(path, dir, "run.json")),
		0, "digest total", "");
	char *text = scratch_read(path, &size);
	cJSON *tree = cJSON_Parse(text);
	ck_assert_ptr_nonnull(tree);
	ck_assert(cJSON_GetObjectItem(tree, "peak_memory_bytes")->valuedouble > 1e6);
	ck_assert(cJSON_GetObjectItem(tree, "processor_seconds")->valuedouble > 0);
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(tree, "tokens")), 3);
	ck_assert_uint_eq(strlen(cJSON_GetObjectItem(tree, "digest")->valuestring), 32);
	ck_assert(cJSON_GetObjectItem(cJSON_GetObjectItem(tree, "weights"), "made_bytes")->valuedouble > 0);
	cJSON_Delete(tree);
	free(text);
}
END_TEST

START_TEST(bad_input_is_said)
{
	char path[SCRATCH_PATH];

	expect_bad(plumb("run --synthetic huge --tokens 1"), "huge", "tiny, small, deep, widths, layer4, full");
	expect_bad(plumb("run --synthetic tiny --checkpoint x --tokens 1"), "--checkpoint", "--synthetic");
	expect_bad(plumb("run --tokens 1"), "--checkpoint", "needed");
	expect_bad(plumb("run --synthetic tiny"), "--tokens", "needed");
	expect_bad(plumb("run --synthetic tiny --tokens 1 --profile nope"), "nope", "served");
	expect_bad(plumb("run --synthetic tiny --tokens 1 --context 1024"), "--context", "1024");
	expect_bad(plumb("run --synthetic tiny --tokens 1 --context 1000 --steps 24"), "--steps", "1024");
	expect_bad(plumb("run --synthetic tiny --tokens 128"), "token", "127");
	expect_bad(plumb("run --synthetic tiny --tokens 1 --memory 99999999"), "--memory", "99999999");
	expect_bad(plumb("run --expect %s/none.json --mode twin", dir), "none.json", "");
	scratch_write(dir, "bad.json", "{\"format\": \"plumb run digests 1\"", (size_t)-1);
	expect_bad(plumb("run --expect '%s' --mode twin", scratch_path(path, dir, "bad.json")), "bad.json", "");
	scratch_write(dir, "bad.json", "{\"format\": \"other\"}", (size_t)-1);
	expect_bad(plumb("run --expect '%s' --mode twin", path), "bad.json", "format");
	scratch_write(dir, "bad.json", "[]", (size_t)-1);
	expect_bad(plumb("run --expect '%s' --mode twin", path), "bad.json", "object");
	static const char *const edits[][3] = {
		{"\"layers\": 8,", "\"layers\": 9,", "digests"},
		{"\"layers\": 8,", "\"layers\": 0,", "layers"},
		{"\"tokens\": [", "\"tokens\": -", ""},
		{"\"digests\": [", "\"digest\": [", "digests"},
		{"\"total\": \"", "\"total\":\"x", "total"},
		{"\"context\": 0", "\"context\":-1", "context"},
		{"\"policy\": \"f32\"", "\"policy\": \"f33\"", "policy"},
		{"\"profile\": \"served\"", "\"profile\": \"serve\"", "serve"},
		{"\"synthetic small\"", "\"synthetic tiny\"", "127"},
		{"\"capacity\": 20", "\"capacity\": 0 ", "capacity"},
	};
	for (size_t i = 0; i < sizeof edits / sizeof edits[0]; i++)
		expect_bad(
			plumb("run --mode twin --expect '%s'", changed(SMALL, edits[i][0], edits[i][1])), edits[i][2], "");
	/* what the command line says, says the file not */
	expect_bad(plumb("run --mode twin --policy bf16 --expect " SMALL), "policy", "bf16");
	expect_bad(plumb("run --mode twin --context 5 --expect " SMALL), "context", "5");
	expect_bad(plumb("run --mode twin --capacity 64 --expect " SMALL), "capacity", "64");
	expect_bad(plumb("run --mode twin --tokens 1,2 --expect " SMALL), "prompt", "2");
	expect_bad(plumb("run --mode twin --expect " SMALL " --digests " SMALL), "--digests", "small-f32.json");
	expect(plumb("run --mode twin --steps 2 --expect " SMALL), 1, "", "2 tokens decoded, expected");
}
END_TEST

START_TEST(presets_are_listed)
{
	expect(plumb("list presets"), 0, "layer4", "");
	expect(plumb("list presets"), 0, "full", "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("run_synthetic");
	TCase *t = suite_part(s, "run", 300);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, shipped_digests_hold, 0, 4);
	tcase_add_test(t, a_difference_is_named);
	tcase_add_test(t, totals_and_tokens_count);
	tcase_add_test(t, files_are_the_same_each_time);
	tcase_add_test(t, report_says_times_and_memory);
	tcase_add_test(t, bad_input_is_said);
	tcase_add_test(t, presets_are_listed);
	return suite_run(s);
}
