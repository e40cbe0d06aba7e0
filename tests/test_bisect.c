/* SPDX-License-Identifier: MIT */
/* plumb bisect and plumb replay: faults planted in kernels of a shared object (tests/user/planted.c) are named exactly,
 * and the case that is written fails with the kernel at fault and passes with the right one. */
#include <cJSON.h>
#include <check.h>
#include <dirent.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT "--checkpoint " PLUMB_GOLDEN_DIR "/tiny/checkpoint "
#define PLANTED "'" PLUMB_USER_DIR "/planted.so'"
#define ROUTER "'" PLUMB_USER_DIR "/router.so'"
#define SCORE "'" PLUMB_USER_DIR "/score.so'"
#define FUSED "'" PLUMB_USER_DIR "/fused.so'"

struct result {
	int status;
	char *out, *err;
	cJSON *json; /* of --json, or NULL */
	double cpu;  /* seconds */
};

static char dir[SCRATCH_PATH];

static void set_up(void)
{
	scratch_make(dir);
}
static void tear_down(void)
{
	scratch_remove(dir);
}

static char *slurp(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	return scratch_read(scratch_path(path, dir, name), &size);
}

static double children_cpu(void)
{
	struct rusage u;
	getrusage(RUSAGE_CHILDREN, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + 1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Run the program with a fault planted ("": none). The report goes to json in the folder. */
__attribute__((format(printf, 3, 4))) static void plumb(struct result *r, const char *planted, const char *format, ...)
{
	static char args[32768], line[65536];
	va_list ap;
	double before = children_cpu();

	va_start(ap, format);
	vsnprintf(args, sizeof args, format, ap);
	va_end(ap);
	snprintf(line, sizeof line, "cd '%s' && rm -f json && PLANTED='%s' '%s' %s >out 2>err </dev/null", dir, planted,
		PLUMB_PROGRAM, args);
	int status = system(line);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	*r = (struct result){
		.status = WEXITSTATUS(status), .out = slurp("out"), .err = slurp("err"), .cpu = children_cpu() - before};
	char path[SCRATCH_PATH];
	FILE *f = fopen(scratch_path(path, dir, "json"), "r");
	if (f) {
		char *text;
		fclose(f);
		text = slurp("json");
		r->json = cJSON_Parse(text);
		ck_assert_ptr_nonnull(r->json);
		free(text);
	}
}

static void done(struct result *r)
{
	free(r->out);
	free(r->err);
	cJSON_Delete(r->json);
}

static void expect(const struct result *r, int status)
{
	ck_assert_msg(r->status == status, "exit status %d, expected %d\nstdout: %.1500s\nstderr: %.900s", r->status,
		status, r->out, r->err);
}

static const char *text_of(const cJSON *o, const char *key)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, key));
	return text ? text : "";
}

static double number_of(const cJSON *o, const char *key)
{
	const cJSON *item = cJSON_GetObjectItem(o, key);
	return cJSON_IsNumber(item) ? item->valuedouble : -1e9;
}

/* "gdn_out_proj@1 hc_inject@1", sorted, of a minimal set. */
static int by_text(const void *a, const void *b)
{
	return strcmp(a, b);
}
static const char *set_text(const cJSON *set, char text[512])
{
	char part[16][80];
	int n = 0;
	const cJSON *choice;

	cJSON_ArrayForEach (choice, set) {
		const cJSON *op;
		char ops[64] = "";
		cJSON_ArrayForEach (op, cJSON_GetObjectItem(choice, "ops")) {
			strncat(ops, ops[0] ? "+" : "", sizeof ops - strlen(ops) - 1);
			strncat(ops, op->valuestring, sizeof ops - strlen(ops) - 1);
		}
		snprintf(part[n++], sizeof part[0], "%s@%d", ops, (int)number_of(choice, "layer"));
	}
	qsort(part, (size_t)n, sizeof part[0], by_text);
	text[0] = '\0';
	for (int i = 0; i < n; i++) {
		strcat(text, i ? " " : "");
		strcat(text, part[i]);
	}
	return text;
}

/* The sets that were found, joined by " | ". */
static void expect_sets(const struct result *r, const char *expected)
{
	char all[1024] = "", text[512];
	const cJSON *set;

	ck_assert_msg(r->json != NULL, "no report: %s", r->err);
	cJSON_ArrayForEach (set, cJSON_GetObjectItem(r->json, "sets")) {
		strcat(all, all[0] ? " | " : "");
		strcat(all, set_text(set, text));
	}
	ck_assert_msg(strcmp(all, expected) == 0, "found '%s', planted '%s'\n%s", all, expected, r->out);
}

static const cJSON *first_finding(const struct result *r)
{
	const cJSON *f = cJSON_GetArrayItem(cJSON_GetObjectItem(r->json, "findings"), 0);
	ck_assert_msg(f != NULL, "no finding: %s", r->out);
	return f;
}

/* The case fails with the kernel at fault, passes with the same library in order, and passes with the reference. */
static void expect_case(const char *planted, const char *op)
{
	struct result r;

	plumb(&r, planted, "replay case.h5 --op %s=" PLANTED " --json json", op);
	expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL") != NULL, "%s", r.out);
	done(&r);
	plumb(&r, "", "replay case.h5 --op %s=" PLANTED " --json json", op);
	expect(&r, 0);
	done(&r);
	plumb(&r, "", "replay case.h5");
	expect(&r, 0);
	done(&r);
}

/* The report of a replay counts what is beyond its bound. alone: one element of the row is. */
static void expect_counted(const char *planted, const char *op, bool alone)
{
	struct result r;

	plumb(&r, planted, "replay case.h5 --op %s=" PLANTED " --json json", op);
	const cJSON *it = cJSON_GetArrayItem(cJSON_GetObjectItem(r.json, "cases"), 0);
	const cJSON *y = cJSON_GetArrayItem(cJSON_GetObjectItem(it, "operands"), 0);
	const int n = (int)number_of(y, "differ"), first = (int)number_of(y, "first"), worst = (int)number_of(y, "worst");
	ck_assert_msg(
		alone ? n == 1 && first == worst : n > 1 && first <= worst, "%d, first %d, worst %d", n, first, worst);
	done(&r);
}

START_TEST(nothing_planted)
{
	struct result r;

	plumb(&r, "", "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --json json --case case.h5");
	expect(&r, 0);
	ck_assert_str_eq(text_of(r.json, "verdict"), "pass");
	ck_assert_int_eq((int)number_of(r.json, "choices"), 8);
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(r.json, "findings")), 0);
	ck_assert_ptr_null(strstr(r.out, "case "));
	done(&r);
}
END_TEST

START_TEST(one_op_one_layer)
{
	static const struct {
		const char *planted, *op, *set, *pattern, *where;
	} faults[] = {
		{"gdn_out_proj@1=factor", "gdn_out_proj", "gdn_out_proj@1", "factor", "only column 63"},
		{"gdn_out_proj@0=tail", "gdn_out_proj", "gdn_out_proj@0", "dropped", "every element"},
		{"attn_out_proj@3=lane", "attn_out_proj", "attn_out_proj@3", "dropped", "every element"},
		{"hc_inject@2=shift", "hc_inject", "hc_inject@2", "shifted", ""},
	};
	struct result r;

	plumb(&r, faults[_i].planted, "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json");
	expect(&r, 1);
	expect_sets(&r, faults[_i].set);
	const cJSON *f = first_finding(&r);
	ck_assert_str_eq(text_of(f, "op"), faults[_i].op);
	ck_assert_str_eq(text_of(f, "kind"), "wrong");
	ck_assert_msg(strcmp(text_of(f, "pattern"), faults[_i].pattern) == 0, "%s", text_of(f, "inside"));
	ck_assert_msg(strstr(text_of(f, "where"), faults[_i].where) != NULL, "%s", text_of(f, "where"));
	ck_assert_msg(strstr(r.out, "minimal sets:") && strstr(r.out, "replay  plumb replay case.h5 --op"), "%s", r.out);
	if (strcmp(faults[_i].pattern, "factor") == 0)
		ck_assert(fabs(number_of(f, "factor") - 1.01) < 1e-6);
	if (strstr(faults[_i].planted, "tail"))
		ck_assert_msg(strstr(text_of(f, "inside"), "the last 8 of 96 terms") != NULL, "%s", text_of(f, "inside"));
	if (strstr(faults[_i].planted, "lane"))
		ck_assert_msg(strstr(text_of(f, "inside"), "3 mod 16") != NULL, "%s", text_of(f, "inside"));
	ck_assert_msg(r.cpu < 30.0, "%.1f seconds of CPU", r.cpu);
	done(&r);
	expect_case(faults[_i].planted, faults[_i].op);
	expect_counted(faults[_i].planted, faults[_i].op, strcmp(faults[_i].pattern, "factor") == 0);
}
END_TEST

/* Every one of them is within its bound on the truth's inputs. */
START_TEST(only_together)
{
	static const char *const faults[][2] = {
		{"gdn_out_proj@1=mark,hc_inject@1=read", "gdn_out_proj@1 hc_inject@1"},
		{"gdn_out_proj@1=mark,hc_inject@1=relay,hc_inject@2=reread", "gdn_out_proj@1 hc_inject@1 hc_inject@2"},
	};
	struct result r;

	plumb(&r, faults[_i][0], "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json");
	expect(&r, 1);
	expect_sets(&r, faults[_i][1]);
	const cJSON *f = first_finding(&r);
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(f, "in_context")));
	ck_assert_str_eq(text_of(f, "op"), "hc_inject");
	ck_assert_msg(strstr(r.out, "fail only together") != NULL, "%s", r.out);
	ck_assert_msg(r.cpu < 30.0, "%.1f seconds of CPU", r.cpu);
	done(&r);
	expect_case(faults[_i][0], "hc_inject");
}
END_TEST

/* Two faults that have nothing to do with each other are two sets. */
START_TEST(two_alone)
{
	const char *planted = "gdn_out_proj@0=factor,attn_out_proj@3=tail";
	struct result r;

	plumb(&r, planted, "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json");
	expect(&r, 1);
	expect_sets(&r, "gdn_out_proj@0 | attn_out_proj@3");
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(r.json, "findings")), 2);
	done(&r);
	expect_case(planted, "gdn_out_proj");
}
END_TEST

/* From position 2052 on: the prompt before 2048 is the truth's, once. */
START_TEST(past_2051)
{
	const char *planted = "gdn_out_proj@2=late";
	static char tokens[16384];
	struct result r;
	size_t n = 0;

	for (int i = 0; i < 2058; i++)
		n += (size_t)snprintf(tokens + n, sizeof tokens - n, "%s%d", i ? "," : "", (i * 37 + 11) % 317 + 3);
	plumb(&r, planted,
		"bisect --tokens %s --from 2048 --steps 4 " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json",
		tokens);
	expect(&r, 1);
	expect_sets(&r, "gdn_out_proj@2");
	const cJSON *f = first_finding(&r);
	ck_assert_int_eq((int)number_of(f, "token"), 2052);
	ck_assert_int_eq((int)number_of(cJSON_GetObjectItem(r.json, "whole"), "token"), 2052);
	ck_assert_msg(strstr(text_of(f, "where"), "tokens from 2052 on") != NULL, "%s", text_of(f, "where"));
	done(&r);
	expect_case(planted, "gdn_out_proj");
	plumb(&r, "", "replay case.h5 --json json");
	ck_assert_int_eq((int)number_of(cJSON_GetArrayItem(cJSON_GetObjectItem(r.json, "cases"), 0), "position"), 2052);
	done(&r);
	/* before it, nothing is wrong */
	plumb(&r, planted, "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --json json");
	expect(&r, 0);
	done(&r);
}
END_TEST

/* One step up everywhere: bits show it at once; bounds only in the sums over 64 tokens. */
START_TEST(one_ulp)
{
	struct result r;

	plumb(&r, "hc_inject@2=ulp",
		"bisect " TINY " " CHECKPOINT "--op hc_inject=" PLANTED " --exact --case case.h5 --json json");
	expect(&r, 1);
	expect_sets(&r, "hc_inject@2");
	ck_assert_str_eq(text_of(first_finding(&r), "pattern"), "bias");
	done(&r);
	expect_case("hc_inject@2=ulp", "hc_inject");

	plumb(&r, "gdn_out_proj@1=ulp", "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json");
	expect(&r, 1);
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(r.json, "findings")), 1);
	const cJSON *f = first_finding(&r);
	ck_assert_str_eq(text_of(f, "op"), "gdn_out_proj");
	ck_assert_int_eq((int)number_of(f, "layer"), 1);
	ck_assert_str_eq(text_of(f, "kind"), "biased");
	done(&r);
	expect_case("gdn_out_proj@1=ulp", "gdn_out_proj");
}
END_TEST

/* Logits rounded to bf16 come out equal: which expert is taken is not what a bound may explain. */
START_TEST(order_of_ties)
{
	struct result r;

	for (int wrong = 1; wrong >= 0; wrong--) {
		ck_assert_int_eq(setenv("ROUTER_FAULT", wrong ? "ties" : "", 1), 0);
		plumb(&r, "",
			"bisect " TINY " " CHECKPOINT "--policy bf16 --op moe_router=" ROUTER
			" --case case.h5 --json json");
		expect(&r, wrong);
		if (wrong)
			ck_assert_str_eq(text_of(first_finding(&r), "kind"), "wrong");
		ck_assert_int_eq(strstr(r.out, "the tie goes to the lower index") != NULL, wrong);
		done(&r);
		plumb(&r, "", "replay case.h5 --op moe_router=" ROUTER);
		expect(&r, wrong);
		done(&r);
	}
	ck_assert_int_eq(unsetenv("ROUTER_FAULT"), 0);
}
END_TEST

/* What lies behind the rows that are written: zeros in a fresh cache, which a kernel must not count on. */
START_TEST(rows_that_nobody_wrote)
{
	struct result r;

	for (int wrong = 1; wrong >= 0; wrong--) {
		if (wrong)
			ck_assert_int_eq(setenv("SCORE_FAULT", "later", 1), 0);
		plumb(&r, "", "bisect " TINY " " CHECKPOINT "--op qsa_score=" SCORE " --case case.h5 --json json");
		expect(&r, wrong);
		ck_assert_int_eq(strstr(r.out, "follows what memory held before") != NULL, wrong);
		done(&r);
		plumb(&r, "", "replay case.h5 --op qsa_score=" SCORE);
		expect(&r, wrong);
		done(&r);
		ck_assert_int_eq(unsetenv("SCORE_FAULT"), 0);
	}
}
END_TEST

START_TEST(not_repeatable)
{
	struct result r;

	plumb(&r, "hc_inject@2=random", "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --json json");
	expect(&r, 1);
	expect_sets(&r, "hc_inject@2");
	ck_assert_str_eq(text_of(first_finding(&r), "kind"), "changes");
	ck_assert(cJSON_IsTrue(cJSON_GetObjectItem(r.json, "flaky")));
	ck_assert_msg(strstr(r.out, "The same inputs gave two results") != NULL, "%s", r.out);
	done(&r);
	plumb(&r, "hc_inject@2=random", "replay case.h5 --op hc_inject=" PLANTED " --repeat 5");
	expect(&r, 1);
	ck_assert_msg(strstr(r.out, "not repeatable") != NULL, "%s", r.out);
	done(&r);
	plumb(&r, "", "replay case.h5 --op hc_inject=" PLANTED " --repeat 5");
	expect(&r, 0);
	done(&r);
}
END_TEST

/* The culprit is named at once, its case is whole, and the right kernel passes it. */
START_TEST(crash)
{
	struct result r;

	plumb(&r, "hc_inject@1=crash", "bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5");
	expect(&r, 1);
	ck_assert_msg(strstr(r.out, "hc_inject, layer 1") && strstr(r.out, "SIGSEGV") && strstr(r.out, "case    case.h5"),
		"%s", r.out);
	done(&r);
	expect_case("hc_inject@1=crash", "hc_inject");
}
END_TEST

/* Ops of a fused entry are one choice. */
START_TEST(fused)
{
	struct result r;

	plumb(&r, "", "bisect " TINY " " CHECKPOINT "--op all=" FUSED " --json json --steps 2");
	expect(&r, 0);
	done(&r);
}
END_TEST

/* The opt set is held to the twin's bits. --truth golden lets the file decide. */
START_TEST(opt)
{
	struct result r;

	plumb(&r, "",
		"bisect " TINY " " CHECKPOINT
		"--op gdn_recurrence=opt --op moe_down@3=opt --json json --steps 1 --truth golden");
	expect(&r, 0);
	ck_assert_str_eq(text_of(r.json, "criterion"), "bits");
	ck_assert_int_eq((int)number_of(r.json, "choices"), 4);
	done(&r);
	plumb(&r, "gdn_out_proj@1=tail",
		"bisect " TINY " " CHECKPOINT "--op gdn_out_proj=" PLANTED " --json json --truth golden");
	expect(&r, 1);
	expect_sets(&r, "gdn_out_proj@1");
	ck_assert_msg(strstr(r.out, "whole run: fails at layer01/gdn/output") != NULL, "%s", r.out);
	done(&r);
}
END_TEST

START_TEST(same_case_twice)
{
	size_t size[2];
	char *data[2], path[SCRATCH_PATH];
	struct result r;

	for (int i = 0; i < 2; i++) {
		plumb(&r, "gdn_out_proj@1=factor",
			"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case case.h5 --no-search");
		expect(&r, 1);
		done(&r);
		data[i] = scratch_read(scratch_path(path, dir, "case.h5"), &size[i]);
	}
	ck_assert(size[0] == size[1] && memcmp(data[0], data[1], size[0]) == 0);
	ck_assert_msg(size[0] < 32768, "%zu bytes", size[0]);
	free(data[0]);
	free(data[1]);
}
END_TEST

/* The call that is meant, though one before it is wrong. */
START_TEST(call_that_is_meant)
{
	struct result r;

	plumb(&r, "hc_inject@2=factor",
		"bisect " TINY " " CHECKPOINT "--op hc_inject=" PLANTED " --call hc_inject@3:57 --case case.h5 -q");
	expect(&r, 0);
	done(&r);
	plumb(&r, "", "replay case.h5 --op hc_inject=" PLANTED);
	expect(&r, 0);
	ck_assert_msg(strstr(r.out, "position 57, 1 row") != NULL, "%s", r.out);
	done(&r);
}
END_TEST

START_TEST(refusals)
{
	static const char *const refused[][2] = {
		{"bisect " TINY " " CHECKPOINT, "nothing is suspected"},
		{"bisect " CHECKPOINT "--op all=" PLANTED, "a golden file, or --tokens"},
		{"bisect " TINY " --op all=" PLANTED, "--checkpoint DIR is needed"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --truth me", "expected twin, oracle or golden"},
		{"bisect --tokens 1,2 " CHECKPOINT "--op all=" PLANTED " --truth golden", "needs a golden file"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --from 56", "--from is 56, expected 0..55"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --rows 0", "--rows is 0"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --steps 9999", "expected at most 4096 positions"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case nowhere/case.h5", "no such folder"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --case " TINY, "would overwrite"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --call nothing --case c.h5", "no op"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --call hc_inject", "needs --case"},
		{"bisect " TINY " " CHECKPOINT "--op all=" PLANTED " --call gdn_conv --case c.h5",
			"--call gdn_conv: no suspect makes that call, expected an op"},
		{"bisect " TINY " " CHECKPOINT "--op hc_inject@2=" PLANTED " --call hc_inject@2:999999 --case c.h5 -q",
			"--call hc_inject@2:999999: no suspect makes that call, expected position 0 or 56..63\n"},
		{"bisect " TINY " " CHECKPOINT "--op hc_inject=" PLANTED
		 " --call hc_inject:33 --rows 16 --case c.h5 --steps 0",
			"expected position 0..48 in steps of 16 (--rows)\n"},
		{"bisect " TINY " " CHECKPOINT "--op hc_inject@1-2=" PLANTED " --call hc_inject@3 --case c.h5",
			"no suspect makes that call, expected hc_inject in layer 1, 2"},
		{"bisect " TINY " " CHECKPOINT "--op hc_inject=" PLANTED " --call hc_inject@4294967298 --case c.h5",
			"no suspect makes that call"},
		{"bisect " TINY " " CHECKPOINT "--op hc_inject=" PLANTED " --call hc_inject@-1 --case c.h5",
			"expected NAME[@LAYER][:POSITION]"},
		{"bisect " TINY " " CHECKPOINT "--op all='" PLUMB_USER_DIR "/fused.so' --call hc_norm_down --case c.h5",
			"part of a fused entry"},
		{"bisect nothing.h5 " CHECKPOINT "--op all=" PLANTED, "nothing.h5"},
		{"bisect --tokens 1,999 " CHECKPOINT "--op all=" PLANTED, "999"},
		{"replay", "no case"},
		{"replay nothing.h5", "nothing.h5"},
		{"replay " TINY, "no text attribute format"},
		{"replay " TINY " --checkpoint x", "needs none"},
		{"replay " TINY " --repeat 0", "--repeat is 0"},
		{"replay " TINY " --policy f32", "has its own"},
		{"replay " TINY " --kv-format f32", "has its own"},
		{"replay " TINY " --profile x", "has its own"},
		{"replay " PLUMB_GOLDEN_DIR "/cases/argmax.h5 --op embed=opt", "nothing of it was run"},
		{"replay " PLUMB_GOLDEN_DIR "/cases/argmax.h5 --op all='" PLUMB_USER_DIR "/gate.so'",
			"nothing of it was run"},
	};
	struct dirent *e;
	struct result r;
	DIR *d;

	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		plumb(&r, "", "%s", refused[i][0]);
		ck_assert_msg(r.status == 2, "%s: exit status %d\n%s%s", refused[i][0], r.status, r.out, r.err);
		ck_assert_msg(strstr(r.err, refused[i][1]) != NULL, "%s: %s", refused[i][0], r.err);
		ck_assert_msg(strchr(r.err, '\n') == r.err + strlen(r.err) - 1, "%s: %s", refused[i][0], r.err);
		done(&r);
	}
	d = opendir(dir);
	while ((e = readdir(d)))
		ck_assert_msg(strstr(e->d_name, ".h5") == NULL, "left behind: %s", e->d_name);
	closedir(d);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("bisect");
	TCase *tc = suite_part(suite, "bisect", 300);

	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_test(tc, nothing_planted);
	tcase_add_loop_test(tc, one_op_one_layer, 0, 4);
	tcase_add_loop_test(tc, only_together, 0, 2);
	tcase_add_test(tc, two_alone);
	tcase_add_test(tc, past_2051);
	tcase_add_test(tc, one_ulp);
	tcase_add_test(tc, order_of_ties);
	tcase_add_test(tc, rows_that_nobody_wrote);
	tcase_add_test(tc, not_repeatable);
	tcase_add_test(tc, crash);
	tcase_add_test(tc, fused);
	tcase_add_test(tc, opt);
	tcase_add_test(tc, same_case_twice);
	tcase_add_test(tc, call_that_is_meant);
	tcase_add_test(tc, refusals);
	return suite_run(suite);
}
