/* SPDX-License-Identifier: MIT */
/* plumb faults itself: what is killed, what survives, what is equivalent, what is an error of the library, each told
 * rightly and with its exit status. The faults are in the smallest kernel (argmax) and in the comparison of
 * selections. */
#include <cJSON.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

static char dir[SCRATCH_PATH];
static struct program_result r;

static void setup(void)
{
	static const char *const copied[] = {"targets.json", "equivalent.json"};
	scratch_make(dir);
	for (int i = 0; i < 2; i++) {
		char path[SCRATCH_PATH];
		size_t size;
		char *text = scratch_read(scratch_path(path, PLUMB_FAULTS_DIR, copied[i]), &size);
		scratch_write(dir, copied[i], text, size);
		free(text);
	}
}

static void teardown(void)
{
	scratch_remove(dir);
}

/* A library of these faults, run. */
static void run_faults(const char *faults, const char *options)
{
	static char text[1 << 14];
	snprintf(text, sizeof text, "{\"format\": \"plumb faults 1\", \"faults\": [%s]}", faults);
	scratch_write(dir, "library.json", text, (size_t)-1);
	program(&r, dir, "faults --library '%s' --jobs 1 --cases 20 %s", dir, options);
}

#define ARGMAX(id, class, find, replace, more)                                                                             \
	"{\"id\": \"" id                                                                                                   \
	"\", \"class\": \"" class "\", \"op\": \"argmax\", \"kind\": \"fault\", \"file\": \"kernels/lm_head.cu\","         \
				  " \"find\": \"" find "\", \"replace\": \"" replace "\", \"why\": \"planted\"" more "}"
#define TIE(more)                                                                                                          \
	ARGMAX("tie", "F02", "<< 32 | ~static_cast<uint32_t>(index);", "<< 32 | static_cast<uint32_t>(index);", more)
#define COMPARE(id, find, replace)                                                                                         \
	"{\"id\": \"" id "\", \"class\": \"F02\", \"kind\": \"fault\", \"file\": \"core/compare.c\", \"find\": \"" find    \
	"\", \"replace\": \"" replace "\", \"why\": \"planted\"}"

static const cJSON *fault_of(const cJSON *top, const char *id)
{
	const cJSON *item, *list = cJSON_GetObjectItem(top, "faults");
	cJSON_ArrayForEach (item, list)
		if (strcmp(cJSON_GetStringValue(cJSON_GetObjectItem(item, "id")), id) == 0)
			return item;
	ck_abort_msg("no fault '%s' in the report", id);
	return NULL;
}

static const char *text_of(const cJSON *o, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, key));
	return text ? text : "";
}

/* Killed by a wrong result, by a crash and by a hang; the same counts in text and JSON. */
START_TEST(killed_and_counted)
{
	char path[SCRATCH_PATH], options[SCRATCH_PATH + 16];
	size_t size;

	snprintf(options, sizeof options, "--json '%s'", scratch_path(path, dir, "score.json"));
	run_faults(TIE("") "," ARGMAX("crash", "F08", "*token = best ?", "*reinterpret_cast<int32_t *>(16) = best ?",
			   "") "," ARGMAX("hang", "F25", "w < ARGMAX_WARPS; w++", "w < ARGMAX_WARPS; w += 0", ""),
		options);
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "3 of 3 killed (100.0 %)"));
	char *text = scratch_read(path, &size);
	cJSON *top = cJSON_ParseWithLength(text, size);
	ck_assert_ptr_nonnull(top);
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(top, "pass")));
	ck_assert_str_eq(text_of(top, "lane"), "simt");
	ck_assert_str_eq(text_of(fault_of(top, "tie"), "outcome"), "killed");
	ck_assert_ptr_nonnull(strstr(text_of(fault_of(top, "tie"), "killed_by"), "test"));
	ck_assert_ptr_nonnull(
		strstr(text_of(fault_of(top, "tie"), "text"), "argmax class=")); /* the case that replays it */
	ck_assert_str_eq(text_of(fault_of(top, "crash"), "outcome"), "killed");
	ck_assert_str_eq(text_of(fault_of(top, "hang"), "outcome"), "killed");
	const cJSON *f02 = cJSON_GetObjectItem(cJSON_GetObjectItem(top, "classes"), "F02");
	ck_assert_int_eq((int)cJSON_GetNumberValue(cJSON_GetObjectItem(f02, "killed")), 1);
	ck_assert_int_eq((int)cJSON_GetNumberValue(cJSON_GetObjectItem(f02, "total")), 1);
	cJSON_Delete(top);
	free(text);
}
END_TEST

/* Drift: nothing is run and nothing is scored, and every fault that does not apply is named. */
START_TEST(does_not_apply)
{
	run_faults(TIE("") "," ARGMAX("gone", "F01", "this text is nowhere", "x", "") "," ARGMAX(
			   "often", "F01", "best", "x", ""),
		"");
	program_expect(&r, 2);
	ck_assert_str_eq(r.out, "");
	ck_assert_ptr_nonnull(strstr(r.err, "gone: does not apply: 'find' occurs 0 times in kernels/lm_head.cu"));
	ck_assert_ptr_nonnull(strstr(r.err, "often: does not apply"));
	ck_assert_ptr_nonnull(strstr(r.err, "2 of 3 faults"));
}
END_TEST

/* A tree in which a test has not been built: links to all else of this one, and as far below links to the sources, to
 * which it may hold relative paths. ninja may write its own logs. */
static const char unbuilt[] =
	"B=$(dirname $(dirname '" PLUMB_PROGRAM "')) && mkdir -p '%s/root/build/tree/tests' && cd '%s/root/build/tree' &&"
	" for f in '" PLUMB_SOURCE_DIR "'/*; do [ -e ../../${f##*/} ] || ln -s $f ../..; done && cp $B/.ninja_* . &&"
	" for f in $B/* $B/tests/*; do case $f in $B/tests|$B/tests/test_selection) ;; *) ln -s $f ${f#$B/} ;; esac; done";

/* One line says what is missing and what makes it, before anything is compiled. */
START_TEST(says_what_is_not_built)
{
	char command[2048], expected[2048];

	snprintf(command, sizeof command, unbuilt, dir, dir);
	ck_assert_int_eq(system(command), 0);
	program(&r, dir, "faults --build '%s/root/build/tree' --library '%s' --mutate core/compare.c --mutants 1 --jobs 1",
		dir, dir);
	program_expect(&r, 2);
	snprintf(expected, sizeof expected,
		"tree: not built: test_selection; 'ninja -C %s/root/build/tree test_selection' builds what is missing\n",
		dir);
	ck_assert_msg(strstr(r.err, expected) != NULL && strchr(r.err, '\n')[1] == '\0', "%s", r.err);
}
END_TEST

/* A test program that is older than its sources would judge by old code, or not link at all. */
START_TEST(says_what_is_old)
{
	char command[2048], expected[2048];

	snprintf(command, sizeof command, unbuilt, dir, dir);
	ck_assert_int_eq(system(command), 0);
	snprintf(command, sizeof command,
		"cd '%s/root/build/tree/tests' && touch -d 1990-01-01 test_selection && chmod +x test_selection", dir);
	ck_assert_int_eq(system(command), 0);
	program(&r, dir, "faults --build '%s/root/build/tree' --library '%s' --mutate core/compare.c --mutants 1 --jobs 1",
		dir, dir);
	program_expect(&r, 2);
	snprintf(expected, sizeof expected,
		"tree: older than its sources: 'ninja -C %s/root/build/tree plumb test_compare_model test_selection "
		"test_compare' "
		"has work to do, first Linking CXX executable tests/test_selection\n",
		dir);
	ck_assert_msg(strstr(r.err, expected) != NULL && strchr(r.err, '\n')[1] == '\0', "%s", r.err);
}
END_TEST

/* A build failure is an error, not a kill. */
START_TEST(does_not_compile)
{
	run_faults(ARGMAX("broken", "F01", "int offset = 1;", "int offset = there_is_no_such_thing;", ""), "");
	program_expect(&r, 2);
	ck_assert_ptr_nonnull(strstr(r.out, "broken: does not compile: "));
	ck_assert_ptr_nonnull(strstr(r.out, "0 of 0 killed"));
	ck_assert_ptr_nonnull(strstr(r.out, "1 errors"));
}
END_TEST

/* A record with a reason stands as long as nothing kills it; another loop bound for the same work has other code. */
#define AGAIN(more)                                                                                                        \
	ARGMAX("again", "F24", "for (int w = 1; w < ARGMAX_WARPS; w++)", "for (int w = 0; w < ARGMAX_WARPS; w++)", more)

START_TEST(equivalent)
{
	run_faults(TIE("") "," AGAIN(", \"equivalent\": \"the largest of a value and itself\""), "");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "1 of 1 killed (100.0 %); 1 equivalent"));
}
END_TEST

START_TEST(survives)
{
	run_faults(AGAIN(""), "");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "survivors:\n  again  kernels/lm_head.cu:55"));
	ck_assert_ptr_nonnull(strstr(r.out, "+ for (int w = 0; w < ARGMAX_WARPS; w++)"));
	ck_assert_ptr_nonnull(strstr(r.out, "0 of 1 killed"));
}
END_TEST

START_TEST(not_equivalent)
{
	run_faults(TIE(", \"equivalent\": \"a wrong claim\""), "");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "the record is wrong"));
}
END_TEST

/* The same object code: nothing that a check could see. */
START_TEST(identical)
{
	run_faults(TIE("") "," ARGMAX("same", "F24", "int offset = 1;", "int offset = 2 - 1;", ""), "");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "1 of 1 killed (100.0 %); 0 equivalent, 1 identical"));
}
END_TEST

/* What cannot show on this lane is counted apart. */
START_TEST(other_lane)
{
	run_faults(TIE("") "," AGAIN(", \"lane\": \"cuda\", \"lane_why\": \"needs two processors\""), "");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "1 only on the GPU"));
	ck_assert_ptr_nonnull(strstr(r.out, "needs two processors"));
}
END_TEST

/* Comparators: one that is found by the tests of its file, one that lives. */
START_TEST(comparators)
{
	run_faults(COMPARE("wrong", "at_least >= k", "at_least > k"), "");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "killed     wrong by test_"));
	run_faults(COMPARE("lives", "int64_t middle = low + (high - low + 1) / 2;",
			   "int64_t middle = high - (high - low) / 2;"),
		"");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "survivors:\n  lives  core/compare.c:"));
}
END_TEST

/* Kernels that are wrong before anything is planted: nothing is scored. The folder is this one but for one file. */
START_TEST(control_fails)
{
	char command[8 * SCRATCH_PATH], path[SCRATCH_PATH];
	size_t size;

	snprintf(command, sizeof command,
		"mkdir '%s/source' '%s/source/kernels' && cd '%s' && for f in *; do [ $f = kernels ] || ln -s \"$PWD/$f\" "
		"'%s/source/'; done && "
		"for f in kernels/*; do ln -s \"$PWD/$f\" '%s/source/kernels/'; done && rm '%s/source/kernels/lm_head.cu'",
		dir, dir, PLUMB_SOURCE_DIR, dir, dir, dir);
	ck_assert_int_eq(system(command), 0);
	char *text = scratch_read(scratch_path(path, PLUMB_SOURCE_DIR, "kernels/lm_head.cu"), &size);
	char *place = strstr(text, "| ~static_cast<uint32_t>(index);");
	ck_assert_ptr_nonnull(place);
	place[2] = ' ';
	scratch_write(dir, "source/kernels/lm_head.cu", text, size);
	free(text);
	snprintf(command, sizeof command, "--source '%s/source'", dir);
	run_faults(AGAIN(""), command);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.err, "the unmutated control fails, so nothing is scored"));
	ck_assert_ptr_null(strstr(r.out, "killed"));
}
END_TEST

/* A record of an equivalent mutant whose line is gone is drift too. */
START_TEST(equivalent_mutants)
{
	scratch_write(dir, "equivalent.json",
		"{\"format\": \"plumb equivalent mutants 1\", \"mutants\": [{\"file\": \"kernels/lm_head.cu\", \"line\": "
		"\"no such line\","
		" \"column\": 0, \"mutation\": \"drop\", \"replace\": \";\", \"reason\": \"none\"}]}",
		(size_t)-1);
	run_faults(TIE(""), "--mutate kernels/lm_head.cu --mutants 1");
	program_expect(&r, 2);
	ck_assert_ptr_nonnull(strstr(r.err, "drift"));
}
END_TEST

static const struct {
	const char *options, *first, *second;
} bad[] = {
	{"--class F99", "no fault is chosen", "1 planted"},
	{"--op moe_down", "no fault is chosen", "1 planted"},
	{"--shard 3/2", "--shard", "3/2"},
	{"--shard 1", "--shard", "I/N"},
	{"--resume", "--resume", "--json"},
	{"--json x --html x", "--json", "--html"},
	{"--lane gpu", "--lane", "simt or cuda"},
	{"--build /nowhere", "/nowhere", "build tree"},
	{"--mutate core/nothing.c", "core/nothing.c", ""},
	{"--cases 0", "--cases", "1 or more"},
};

START_TEST(refused)
{
	run_faults(TIE(""), bad[_i].options);
	program_expect_bad(&r, bad[_i].first, bad[_i].second);
}
END_TEST

/* Shards part the library; the sample is the same twice. */
START_TEST(parts_and_lists)
{
	char first[sizeof r.out];

	run_faults(TIE("") "," AGAIN(""), "--list --shard 2/2");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "again"));
	ck_assert_ptr_null(strstr(r.out, "tie "));
	program(&r, dir, "faults --sample --list");
	program_expect(&r, 0);
	memcpy(first, r.out, sizeof first);
	ck_assert_ptr_nonnull(strstr(r.out, "44 faults"));
	program(&r, dir, "faults --sample --list");
	ck_assert_str_eq(first, r.out);
}
END_TEST

/* A fault in one element of what one token of golden/tiny has: no generated case meets it, and the golden file does. */
START_TEST(golden_alone)
{
	run_faults("{\"id\": \"tiny\", \"class\": \"F08\", \"op\": \"embed\", \"kind\": \"fault\", \"file\": "
		   "\"kernels/embed.cu\", \"find\": \"residual[s * hidden + c] = value;\", \"replace\": \"residual[s * "
		   "hidden + c] = *token == 235 && c == 5 && value == -0x1.2cp-2f ? value + 1.0f : value;\", \"why\": "
		   "\"planted\"}",
		"");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "tiny by golden f32"));
}
END_TEST

/* Every %s is the scratch folder. */
static void run_in_parts(const char *faults, const char *options)
{
	char text[4 * SCRATCH_PATH];
	snprintf(text, sizeof text, options, dir, dir);
	run_faults(faults, text);
}

/* Two shards and what merge makes of them; what a shard has judged is taken over, unless it is of another run; a page. */
START_TEST(shards)
{
	static const char both[] = TIE("") "," AGAIN("");
	char path[SCRATCH_PATH];
	size_t size;

	ck_assert_int_eq(
		mkdir(scratch_path(path, dir, "parts"), 0777), 0); /* a library has no other JSON files beside it */
	run_in_parts(both, "--shard 1/2 --json %s/parts/one.json");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "1 of 1 killed"));
	run_in_parts(both, "--shard 2/2 --json %s/parts/two.json --html %s/parts/two.html");
	program_expect(&r, 1);
	char *page = scratch_read(scratch_path(path, dir, "parts/two.html"), &size);
	ck_assert_ptr_nonnull(strstr(page, "0 of 1 planted faults caught"));
	ck_assert_ptr_nonnull(strstr(page, "+ for (int w = 0; w &lt; ARGMAX_WARPS; w++)"));
	free(page);
	program(&r, dir, "merge %s/parts/one.json %s/parts/two.json --json %s/parts/whole.json --junit %s/parts/whole.xml",
		dir, dir, dir, dir);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "1 of 2 killed (50.0 %)"));
	ck_assert_ptr_nonnull(strstr(r.out, "  again  kernels/lm_head.cu:55"));
	char *junit = scratch_read(scratch_path(path, dir, "parts/whole.xml"), &size);
	ck_assert_ptr_nonnull(strstr(junit, "tests=\"2\" failures=\"1\""));
	free(junit);
	run_in_parts(both, "--shard 2/2 --json %s/parts/two.json --resume");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "1 of 1 faults were judged before"));
	ck_assert_ptr_null(strstr(r.out, "unmutated"));
	ck_assert_ptr_nonnull(strstr(r.out, "0 of 1 killed"));
	run_in_parts(both, "--shard 1/2 --json %s/parts/two.json --resume");
	program_expect_bad(&r, "two.json", "shard.index");
	run_in_parts(TIE("") "," AGAIN(", \"race\": true"), "--shard 2/2 --json %s/parts/two.json --resume");
	program_expect_bad(&r, "two.json", "shard.inputs.faults");
	run_faults(both, "--shard 9/9"); /* nothing of it */
	program_expect(&r, 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("faults");
	TCase *runner_itself = suite_part(suite, "runner", 1200);
	tcase_add_checked_fixture(runner_itself, setup, teardown);
	tcase_add_test(runner_itself, killed_and_counted);
	tcase_add_test(runner_itself, does_not_apply);
	tcase_add_test(runner_itself, says_what_is_not_built);
	tcase_add_test(runner_itself, says_what_is_old);
	tcase_add_test(runner_itself, does_not_compile);
	tcase_add_test(runner_itself, equivalent);
	tcase_add_test(runner_itself, survives);
	tcase_add_test(runner_itself, not_equivalent);
	tcase_add_test(runner_itself, identical);
	tcase_add_test(runner_itself, other_lane);
	tcase_add_test(runner_itself, comparators);
	tcase_add_test(runner_itself, control_fails);
	tcase_add_test(runner_itself, equivalent_mutants);
	tcase_add_loop_test(runner_itself, refused, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_test(runner_itself, parts_and_lists);
	TCase *parts = suite_part(suite, "parts", 1200);
	tcase_add_checked_fixture(parts, setup, teardown);
	tcase_add_test(parts, shards);
	tcase_add_test(parts, golden_alone);
	return suite_run(suite);
}
