/* SPDX-License-Identifier: MIT */
/* plumb bench, as a user meets it: every op once, bytes as counted by hand, what is asked for and nothing else, comparison,
 * bad input. Nothing here looks at how long anything took. */
#include <cJSON.h>
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/op.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

/* Preset small: D 203, S 4, V 1003, Hq 6, Hkv 2, Dh 44, Hi 3, Di 28, blocks of 4, budget of 8 blocks, 8 layers of which 2
 * attend, bf16 weights, f32 activations and caches. */
#define SIMT "bench --synthetic small --device simt --repeat 1 --quick "

static char dir[SCRATCH_PATH];
static struct program_result r;

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

/* The JSON file of a run that ended well. */
static cJSON *figures(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(scratch_path(path, dir, name), &size);
	cJSON *tree = cJSON_Parse(text);

	ck_assert_msg(tree != NULL, "no JSON: %.300s", text);
	free(text);
	return tree;
}

static double number(const cJSON *object, const char *key)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, key);
	ck_assert_msg(cJSON_IsNumber(item), "no number '%s'", key);
	return item->valuedouble;
}

static const cJSON *context_of(const cJSON *tree, int index)
{
	return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(tree, "contexts"), index);
}

/* The op's entry, of which there has to be one. */
static const cJSON *op_of(const cJSON *context, const char *name)
{
	const cJSON *item, *found = NULL;
	int times = 0;

	cJSON_ArrayForEach (item, cJSON_GetObjectItemCaseSensitive(context, "ops")) {
		if (strcmp(cJSON_GetObjectItemCaseSensitive(item, "name")->valuestring, name) != 0)
			continue;
		found = item;
		times++;
	}
	ck_assert_msg(times == 1, "%s is listed %d times", name, times);
	return found;
}

/* How often a word begins a line. */
static int lines(const char *text, const char *word)
{
	int n = 0;
	for (const char *p = text; (p = strstr(p, word)); p += strlen(word))
		n += (p == text || p[-1] == '\n') && p[strlen(word)] == ' ';
	return n;
}

START_TEST(every_op_once_with_its_bytes)
{
	program(&r, dir, SIMT "--context 1000 --project gb10 --date 2026-01-31 --json '%s/a.json'", dir);
	program_expect(&r, 0);
	cJSON *tree = figures("a.json");
	const cJSON *at = context_of(tree, 0), *token = cJSON_GetObjectItemCaseSensitive(at, "token");
	double bytes = 0.0, launches = 0.0;

	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const cJSON *op = op_of(at, plumb_ops[i].name);
		ck_assert_msg(lines(r.out, plumb_ops[i].name) == 1, "%s is not one line of\n%s", plumb_ops[i].name, r.out);
		ck_assert_msg(number(op, "bytes") > 0 && number(op, "calls") >= 1 &&
				      number(op, "launches") >= number(op, "calls") && number(op, "us_per_call") > 0,
			"%s", plumb_ops[i].name);
		ck_assert(cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(op, "exact")));
		bytes += number(op, "bytes");
		launches += number(op, "launches");
	}
	ck_assert_double_eq(bytes, number(token, "bytes"));
	ck_assert_double_eq(launches, number(token, "launches"));
	ck_assert_double_eq_tol(number(token, "projected_gb10_us"), bytes / 230e3 + launches * 2.2, 1e-6);
	ck_assert_ptr_nonnull(strstr(r.out, "a projection, not a measurement"));
	ck_assert_ptr_nonnull(strstr(r.out, "25 of 25 ops bit-exact"));
	ck_assert_str_eq(cJSON_GetObjectItemCaseSensitive(tree, "date")->valuestring, "2026-01-31");

	/* two residuals of 4 x 203, a branch of 203, 4 weights; 8 layers inject twice */
	ck_assert_double_eq(number(op_of(at, "hc_inject"), "bytes"), 16 * (4 * (2 * 4 * 203 + 203 + 4)));
	/* the matrix in bf16, the input, the logits */
	ck_assert_double_eq(number(op_of(at, "lm_head"), "bytes"), 2 * 1003 * 203 + 4 * 203 + 4 * 1003);
	/* at position 1000 the tail is 1 token; keys and values of 8 blocks and it, query, output, 8 ids, count, position */
	ck_assert_double_eq(number(op_of(at, "attn_decode"), "bytes"),
		2 * ((8 * 4 + 1) * 2 * (2 * 44) * 4 + 2 * (6 * 44) * 4 + 8 * 4 + 4 + 4));
	/* 250 complete blocks, the query, scores of all 256 blocks of 1024 positions (whole pages of 64), the position */
	ck_assert_double_eq(number(op_of(at, "qsa_score"), "bytes"), 2 * (250 * 28 * 4 + 3 * 28 * 4 + 256 * 4 + 4));
	/* experts that are not chosen are not read: 5 of 37, and the shared one of 131 rows; gate and up */
	ck_assert_double_eq(number(op_of(at, "moe_gate_up"), "weight_bytes"), 8 * 2 * (5 * 75 + 131) * 203 * 2);
	cJSON_Delete(tree);
}
END_TEST

START_TEST(contexts_and_formats_change_the_bytes)
{
	program(&r, dir, SIMT "--context 40,1000 --kv-format fp8 --op attn_decode --json '%s/b.json'", dir);
	program_expect(&r, 0);
	cJSON *tree = figures("b.json");
	const cJSON *ops = cJSON_GetObjectItemCaseSensitive(context_of(tree, 0), "ops");

	ck_assert_int_eq(cJSON_GetArraySize(ops), 1); /* --op: this one and no other */
	ck_assert_int_eq(lines(r.out, "attn_gate"), 0);
	ck_assert_int_eq(lines(r.out, "sum of these"), 2);
	/* one byte a value; at position 40 there are 10 blocks, of which 8 are read, and a tail of 1 */
	for (int i = 0; i < 2; i++)
		ck_assert_double_eq(number(op_of(context_of(tree, i), "attn_decode"), "bytes"),
			2 * ((8 * 4 + 1) * 2 * (2 * 44) + 2 * (6 * 44) * 4 + 8 * 4 + 4 + 4));
	cJSON_Delete(tree);
}
END_TEST

START_TEST(compares_with_an_older_file)
{
	char path[SCRATCH_PATH];
	size_t size;

	program(&r, dir, SIMT "--context 40 --op hc_inject --op argmax --json '%s/a.json'", dir);
	program_expect(&r, 0);
	program(&r, dir, SIMT "--context 40 --op hc_inject --op argmax --compare '%s/a.json'", dir);
	program_expect(&r, 0);
	ck_assert_int_eq(lines(r.out, "hc_inject"), 2);
	ck_assert_int_eq(lines(r.out, "argmax"), 2);
	ck_assert_int_eq(lines(r.out, "whole token"), 2);
	ck_assert_int_eq(lines(r.out, "slower"), 1);
	ck_assert_ptr_null(strstr(r.out, "another model"));

	/* an older file in which argmax was a thousand times as quick: told, and exit status 0 */
	char *text = scratch_read(scratch_path(path, dir, "a.json"), &size), *at = strstr(text, "\"argmax\"");
	at = strstr(at, "\"us_per_call\":") + strlen("\"us_per_call\":");
	while (*at != ',')
		*at++ = ' ';
	memcpy(at - 4, "1e-3", 4);
	scratch_write(dir, "a.json", text, size);
	free(text);
	program(&r, dir, SIMT "--context 40 --op argmax --compare '%s/a.json'", dir);
	program_expect(&r, 0);
	const char *told = strstr(r.out, "slower       by more than 5 %:");
	ck_assert_msg(told && strstr(told, "argmax@40"), "%s", r.out);
	program(&r, dir, SIMT "--context 41 --op argmax --compare '%s/a.json'", dir);
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "nothing in common"), "%s", r.out);
}
END_TEST

START_TEST(the_reference_is_timed_too)
{
	program(&r, dir, "bench --synthetic tiny --set ref --mode %s --context 100 --repeat 2 --json '%s/c.json'",
		_i ? "oracle" : "twin", dir);
	program_expect(&r, 0);
	cJSON *tree = figures("c.json");

	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const cJSON *op = op_of(context_of(tree, 0), plumb_ops[i].name);
		ck_assert(number(op, "us_per_call") > 0);
		ck_assert_ptr_null(cJSON_GetObjectItemCaseSensitive(op, "launches"));
	}
	cJSON_Delete(tree);
}
END_TEST

/* Experts are there before the clock starts: what is made while it runs are rows of tables, of the vocabulary (203 values)
 * and at two layers of 2 x 4 n-gram heads (19 each), in bf16. One expert's matrix would be 30450 bytes. */
START_TEST(weights_are_there_before_the_clock)
{
	enum { RUNS = 4 };
	program(&r, dir, "bench --synthetic small --set ref --mode twin --context 100 --repeat %d --json '%s/d.json'", RUNS,
		dir);
	program_expect(&r, 0);
	cJSON *tree = figures("d.json");
	const cJSON *at = context_of(tree, 0), *token = cJSON_GetObjectItemCaseSensitive(at, "token");
	double sum = 0.0;

	ck_assert_double_le(number(token, "made_bytes"), RUNS * 2 * (203 + 2 * 8 * 19));
	ck_assert_double_gt(number(token, "made_bytes"), 0);
	ck_assert_double_gt(number(tree, "ceiling_gb_per_second"), 0);
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		const cJSON *op = op_of(at, plumb_ops[i].name);
		ck_assert_double_le(number(op, "least_us_per_call"), number(op, "us_per_call"));
		sum += number(op, "least_us_per_call") * number(op, "calls");
	}
	ck_assert_double_le(sum, number(token, "least_us")); /* the ops are timed inside the token */
	cJSON_Delete(tree);
}
END_TEST

#ifndef __SANITIZE_ADDRESS__
START_TEST(shipped_runs_are_held_to)
{
	program(&r, dir, "bench --synthetic small --profile served --device simt --repeat 1 --context 40 --op argmax");
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "2 shipped runs of this model: every digest as expected"), "%s", r.out);
}
END_TEST
#endif

static const struct {
	const char *line, *first, *second;
} bad[] = {
	{"bench --op softmax", "softmax", "plumb list ops"},
	{"bench --context 4,,5", "--context", "4,,5"},
	{"bench --context 4,", "--context", "4,"},
	{"bench --context -4", "--context", "-4"},
	{"bench --context 99999999999", "--context", "99999999999"},
	{"bench --project h100", "h100", "gb10"},
	{"bench --set ref --project gb10", "--project", "launches"},
	{"bench --set new", "--set", "new"},
	{"bench --device simt --synthetic tiny --context 5000 --quick", "5000", "max_position_embeddings"},
	{"bench --device simt --synthetic none", "none", "tiny"},
	{"bench --repeat 100001", "--repeat", "100001"},
	{"bench --repeat 0", "--repeat is 0", "expected 1..100000"},
	{"bench --compare " PLUMB_GOLDEN_DIR "/tolerances.json --json " PLUMB_GOLDEN_DIR "/tolerances.json", "--json",
		"tolerances.json"},
};

START_TEST(bad_input_is_one_line)
{
	program(&r, dir, "%s", bad[_i].line);
	program_expect_bad(&r, bad[_i].first, bad[_i].second);
}
END_TEST

static const struct {
	const char *text, *word;
} files[] = {
	{"[]", "object"},
	{"{\"format\": \"plumb bench 2\", \"model\": \"\", \"profile\": \"\", \"runs_on\": \"\", \"contexts\": []}",
		"plumb bench 2"},
	{"{\"format\": \"plumb bench 1\", \"model\": \"\", \"profile\": \"\", \"runs_on\": \"\", \"contexts\": [3]}",
		"contexts"},
	{"{\"format\": \"plumb bench 1\", \"model\": \"\", \"profile\": \"\", \"runs_on\": \"\","
	 " \"contexts\": [{\"context\": 40, \"ops\": [4], \"token\": {\"us\": 1}}]}",
		"ops"},
	{"{\"format\": \"plumb bench 1\", \"model\": \"\", \"profile\": \"\", \"runs_on\": \"\","
	 " \"contexts\": [{\"context\": 40, \"ops\": [{\"name\": \"argmax\", \"us_per_call\": -1}], \"token\": {\"us\": "
	 "1}}]}",
		"us_per_call"},
	{"{\"format\"", "old.json"},
};

START_TEST(bad_files_are_refused_before_the_work)
{
	scratch_write(dir, "old.json", files[_i].text, strlen(files[_i].text));
	program(&r, dir, "bench --synthetic small --device simt --context 40 --compare '%s/old.json'", dir);
	program_expect_bad(&r, "old.json", files[_i].word);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench");
	TCase *t = suite_part(s, "bench", 600);

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, every_op_once_with_its_bytes);
	tcase_add_test(t, contexts_and_formats_change_the_bytes);
	tcase_add_test(t, compares_with_an_older_file);
	tcase_add_loop_test(t, the_reference_is_timed_too, 0, 2);
	tcase_add_test(t, weights_are_there_before_the_clock);
#ifndef __SANITIZE_ADDRESS__ /* a minute there; test_bench_check has all of it but the command line */
	tcase_add_test(t, shipped_runs_are_held_to);
#endif
	tcase_add_loop_test(t, bad_input_is_one_line, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_loop_test(t, bad_files_are_refused_before_the_work, 0, (int)(sizeof files / sizeof files[0]));
	return suite_run(s);
}
