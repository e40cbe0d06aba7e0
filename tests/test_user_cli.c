/* SPDX-License-Identifier: MIT */
/* plumb check and run with kernels of shared objects: a right one passes, and whatever else one does is reported as its
 * doing, with exit status 1 and in the JSON and JUnit files too. The kernels are in tests/user/. */
#include <cJSON.h>
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include "tests/support/scratch.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define CHECK "check " TINY " --checkpoint " CHECKPOINT " "
#define LIBRARY(name) "'" PLUMB_USER_DIR "/" name ".so'"

struct result {
	int status;
	char *out, *err;
	double seconds;
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

static char *slurp(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	return scratch_read(scratch_path(path, dir, name), &size);
}

/* Run the program; environment: assignments in front of it, or "". */
__attribute__((format(printf, 3, 4))) static void plumb(struct result *r, const char *environment, const char *format, ...)
{
	char args[2048], line[4096];
	struct timespec a, b;
	va_list ap;

	va_start(ap, format);
	vsnprintf(args, sizeof args, format, ap);
	va_end(ap);
	snprintf(line, sizeof line, "%s '%s' %s >'%s/out' 2>'%s/err' </dev/null", environment, PLUMB_PROGRAM, args, dir,
		dir);
	clock_gettime(CLOCK_MONOTONIC, &a);
	int status = system(line);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_msg(WIFEXITED(status), "killed: %s", args);
	*r = (struct result){WEXITSTATUS(status), slurp("out"), slurp("err"),
		(double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec)};
}

static void done(struct result *r)
{
	free(r->out);
	free(r->err);
}

static void expect(const struct result *r, int status)
{
	ck_assert_msg(r->status == status, "exit status %d, expected %d\nstdout: %.900s\nstderr: %.900s", r->status, status,
		r->out, r->err);
}

/* One line on standard error with all of the words, and this exit status. */
static void expect_line(const struct result *r, int status, const char *first, const char *second)
{
	expect(r, status);
	const char *end = strchr(r->err, '\n');
	ck_assert_msg(end && end[1] == '\0', "not one line: '%s'", r->err);
	ck_assert_msg(
		strstr(r->err, first) && strstr(r->err, second), "'%s' does not name '%s' and '%s'", r->err, first, second);
}

/* ---- kernels that are right ---- */

/* --bounds holds a kernel to the error of the declared arithmetic; expf of the C library is another one, so there the
 * kernels that have it are left out. */
START_TEST(right_kernels_pass)
{
	static const struct {
		const char *op;
		const char *options;
		int hidden; /* tensors of the local view that the kernel does not give */
	} right[] = {
		{"attn_gate=" LIBRARY("gate"), "", 0},
		{"attn_gate@3=" LIBRARY("gate"), "--view local --guard", 0},
		{"hc_inject@1-2=" LIBRARY("inject"), "--bounds --guard --view local", 0},
		{"hc_inject=" LIBRARY("inject"), "--once", 0},
		{"all=" LIBRARY("fused"), "--page-seed 2", 11},
		{"all=" LIBRARY("fused"), "--once --bounds", 11},
		{"hc_up_mix=" LIBRARY("fused"), "--view local --guard", 0},
		{"gdn_in_proj+gdn_conv@0=" LIBRARY("fused"), "--view local", 1},
		{"all=" LIBRARY("device"), "--page-seed 2", 0},
		{"all=" LIBRARY("device"), "--once", 0},
		{"all=" LIBRARY("device"), "--guard --view local", 0},
		{"gdn_recurrence=" LIBRARY("engine"), "--page-seed 2", 0},
		{"qsa_select=" LIBRARY("indexer"), "--page-seed 2", 0},
		{"qsa_select=" LIBRARY("indexer"), "--once --guard --page-seed 2", 0},
	};
	struct result r;

	for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
		plumb(&r, "", CHECK "--op %s --policy %s %s", right[i].op, _i ? "bf16" : "f32", right[i].options);
		expect(&r, 0);
		char hidden[80];
		snprintf(hidden, sizeof hidden, "so not compared: %d tensors", right[i].hidden);
		ck_assert_msg(!strstr(r.out, "so not compared") == !right[i].hidden &&
				      (!right[i].hidden || strstr(r.out, hidden)),
			"%s", r.out);
		done(&r);
	}
}
END_TEST

/* Quantised weights, by plumb_value. */
START_TEST(right_kernels_of_quantised_weights)
{
	static const char *const kernel[] = {LIBRARY("fused"), LIBRARY("device"), LIBRARY("indexer")};
	const char *golden = _i ? "tiny-fp8" : "tiny-nvfp4";
	struct result r;

	for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++) {
		plumb(&r, "",
			"check " PLUMB_GOLDEN_DIR "/%s/%s.h5 --checkpoint " PLUMB_GOLDEN_DIR
			"/%s/checkpoint --view local --op all=%s",
			golden, golden, golden, kernel[i]);
		expect(&r, 0);
		done(&r);
	}
}
END_TEST

/* A run whose every bit the twin has; and the same run without the kernel. */
START_TEST(bits_of_a_right_kernel)
{
	struct result with, without;

	plumb(&with, "", CHECK "--mode twin --digest --op hc_inject=" LIBRARY("inject"));
	plumb(&without, "", CHECK "--mode twin --digest");
	expect(&with, 0);
	expect(&without, 0);
	const char *a = strstr(with.out, "digest"), *b = strstr(without.out, "digest");
	ck_assert(a && b && strncmp(a, b, 40) == 0);
	done(&with);
	done(&without);
	plumb(&with, "",
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 5 --mode twin --op hc_inject=" LIBRARY("inject"));
	plumb(&without, "", "run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 5 --mode twin");
	expect(&with, 0);
	ck_assert_str_eq(with.out, without.out);
	done(&with);
	done(&without);
}
END_TEST

/* ---- kernels that are not ---- */

START_TEST(wrong_values_are_named)
{
	struct result r;

	plumb(&r, "GATE_FAULT=wrong",
		CHECK "--view local --json '%s/r.json' --junit '%s/r.xml' --op attn_gate=" LIBRARY("gate"), dir, dir);
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer03/attention/gated (attn_gate of "));
	ck_assert_ptr_nonnull(strstr(r.out, "1 failed"));
	char *json = slurp("r.json"), *junit = slurp("r.xml");
	ck_assert_ptr_nonnull(strstr(json, "\"kernel\":\t\"attn_gate\""));
	ck_assert_ptr_nonnull(strstr(junit, "(attn_gate of "));
	free(json);
	free(junit);
	done(&r);
	/* what a log has of it: one tensor a view, or some, and what comes next */
	plumb(&r, "ROUTER_FAULT=row", CHECK "--quiet --op moe_router=" LIBRARY("router"));
	expect(&r, 1);
	const char *first = strstr(r.out, "layer00/moe/output (moe_router of ");
	ck_assert_msg(first && strstr(first + 1, "layer00/moe/output (moe_router of "), "%s", r.out);
	ck_assert_ptr_null(strstr(r.out, "layer01/"));
	done(&r);
	plumb(&r, "ROUTER_FAULT=row", CHECK "--bounds --op moe_router=" LIBRARY("router"));
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, " more tensors fail (--verbose shows them)\n"));
	ck_assert_ptr_nonnull(strstr(r.out, "\nnext        plumb bisect "));
	ck_assert_ptr_nonnull(strstr(r.out, " 1 failed: moe_router; "));
	ck_assert_ptr_null(strstr(r.out, "layer03/moe/shared/output (moe_router")); /* of the propagated view, far behind */
	done(&r);
	plumb(&r, "ROUTER_FAULT=row", CHECK "--verbose --op moe_router=" LIBRARY("router"));
	expect(&r, 1);
	ck_assert_ptr_null(strstr(r.out, "more tensors fail"));
	ck_assert_ptr_nonnull(strstr(r.out, "layer03/moe/shared/output (moe_router"));
	done(&r);
	/* only where the layer is bound, and only from the position on */
	plumb(&r, "GATE_FAULT=wrong GATE_FROM=57", CHECK "--view local --op attn_gate=" LIBRARY("gate"));
	expect(&r, 0);
	done(&r);
	plumb(&r, "GATE_FAULT=wrong GATE_FROM=57", CHECK "--op attn_gate=" LIBRARY("gate"));
	expect(&r, 0); /* the 57th token and later ones are the greedy ones, which differ by nothing here */
	done(&r);
	plumb(&r, "FUSED_FAULT=window", CHECK "--view local --op all=" LIBRARY("fused"));
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer00/state/conv_states0 (gdn_in_proj+gdn_conv of "));
	done(&r);
	plumb(&r, "ENGINE_FAULT=order", CHECK "--view local --op gdn_recurrence@1=" LIBRARY("engine"));
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer01/gdn/recurrence (gdn_recurrence of "));
	ck_assert_ptr_null(strstr(r.out, "layer00/gdn/recurrence (gdn_recurrence of "));
	done(&r);
	plumb(&r, "FUSED_FAULT=injection", CHECK "--view local --op all=" LIBRARY("fused"));
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer00/attn_hc/injection (hc_norm_down+hc_up_mix of "));
	done(&r);
}
END_TEST

static const struct {
	const char *fault, *said;
} contained[] = {
	{"crash", "crashed (SIGSEGV at address 0x10): a null pointer"},
	{"divide", "crashed (SIGFPE)"},
	{"abort", "crashed (SIGABRT)"},
	{"stack", "crashed (SIGSEGV at address 0x"},
	{"exit", "called exit("},
	{"hang", "hangs: no result after 1 seconds (--timeout)"},
	{"says", "failed: no kernel for 12 heads (returned 1)"},
	{"outside", "wrote after out: element 21504 of 21504"},
	{"before", "wrote before out: element -2 of 21504"},
	{"input", "changed its input qg[0, 0, 0, 1]"},
	{"unwritten", "did not write out[55, 383]"},
	{"random", "is not deterministic (run-to-run change)"},
};
enum { CONTAINED = sizeof contained / sizeof contained[0] };

START_TEST(faults_are_contained)
{
	struct result r;
	char environment[64];

	snprintf(environment, sizeof environment, "GATE_FAULT=%s", contained[_i].fault);
	plumb(&r, environment, CHECK "--op attn_gate=" LIBRARY("gate") " --timeout 1 --json '%s/r.json' --junit '%s/r.xml'",
		dir, dir);
	expect_line(&r, 1, "op attn_gate layer 3 position 0: ", contained[_i].said);
	ck_assert_msg(strstr(r.err, "gate.so"), "%s", r.err);
	ck_assert_double_lt(r.seconds, 60.0);
	char *json = slurp("r.json"), *junit = slurp("r.xml");
	cJSON *root = cJSON_Parse(json);
	ck_assert_msg(root != NULL, "%s", json);
	ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(root, "pass")));
	ck_assert_ptr_nonnull(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(root, "failure")), contained[_i].said));
	ck_assert(strstr(junit, "failures=\"1\"") && strstr(junit, "</testsuites>"));
	cJSON_Delete(root);
	free(json);
	free(junit);
	done(&r);
}
END_TEST

/* A fault that comes late is named with its place. */
START_TEST(faults_that_come_late)
{
	struct result r;

	plumb(&r, "GATE_FAULT=crash GATE_FROM=60",
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 80 --op attn_gate=" LIBRARY("gate"));
	expect_line(&r, 1, "plumb run: op attn_gate layer 3 position 60: ", "crashed (SIGSEGV at address 0x10)");
	done(&r);
	/* run does not guard: an element that is left is NaN, and shows */
	plumb(&r, "GATE_FAULT=unwritten",
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 8 --op attn_gate=" LIBRARY("gate"));
	expect(&r, 1);
	ck_assert_msg(strstr(r.err, "is NaN"), "%s", r.err);
	done(&r);
	plumb(&r, "GATE_FAULT=unwritten", CHECK "--once --op attn_gate=" LIBRARY("gate"));
	expect(&r, 1);
	ck_assert_msg(strstr(r.out, "layer03/attention/gated"), "%s", r.out);
	done(&r);
	/* without a second run nobody sees the change of every third call, unless it comes into a comparison */
	plumb(&r, "GATE_FAULT=random", CHECK "--once --view local --op attn_gate=" LIBRARY("gate"));
	expect(&r, 0);
	done(&r);
}
END_TEST

/* A fused entry with caches: what the shadow has computed in its place must help nobody. */
START_TEST(faults_of_a_fused_entry)
{
	static const char *const fault[] = {"INDEXER_FAULT=key", "INDEXER_FAULT=row", "INDEXER_FAULT=choice"};
	struct result r;

	plumb(&r, fault[0], CHECK "--op qsa_select=" LIBRARY("indexer"));
	expect_line(&r, 1, "op qsa_project+qsa_score+qsa_select layer 3 position 0: ", "did not write block_keys[0, 0]");
	done(&r);
	plumb(&r, fault[1], CHECK "--op qsa_select=" LIBRARY("indexer"));
	expect_line(&r, 1, "op qsa_project+qsa_score+qsa_select layer 3 position 0: ", "did not write raw_keys[55, 0]");
	done(&r);
	for (int i = 0; i < 3; i++) {
		plumb(&r, fault[i], CHECK "--once --view local --op qsa_select=" LIBRARY("indexer"));
		expect(&r, 1);
		ck_assert_msg(strstr(r.out, "(qsa_project+qsa_score+qsa_select of "), "%s", r.out);
		done(&r);
	}
	plumb(&r, fault[2], CHECK "--view local --op qsa_select=" LIBRARY("indexer"));
	expect(&r, 1);
	ck_assert_msg(strstr(r.out, "layer03/qsa/selected_mask (qsa_project+qsa_score+qsa_select of "), "%s", r.out);
	done(&r);
}
END_TEST

/* Device pointers, by way of the mirror. */
START_TEST(faults_on_a_device)
{
	struct result r;

	plumb(&r, "DEVICE_FAULT=workspace", CHECK "--op gdn_out_proj=" LIBRARY("device"));
	expect_line(&r, 1, "op gdn_out_proj layer 0 position 0: ", "wrote outside scratch slot 0");
	done(&r);
	plumb(&r, "DEVICE_FAULT=dirty", CHECK "--op gdn_out_proj=" LIBRARY("device"));
	expect_line(&r, 1, "op gdn_out_proj layer 0 position 0: ", "y[0, 0]");
	done(&r);
	plumb(&r, "DEVICE_FAULT=stale", CHECK "--view local --op gdn_out_proj=" LIBRARY("device"));
	expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer01/gdn/output (gdn_out_proj of "));
	ck_assert_ptr_null(strstr(r.out, "layer00/gdn/output (gdn_out_proj of "));
	done(&r);
	plumb(&r, "DEVICE_FAULT=page", CHECK "--op qsa_score=" LIBRARY("device") " --page-seed 2");
	expect_line(&r, 1, "op qsa_score layer 3 position 0: ", "used memory that nobody wrote");
	done(&r);
	plumb(&r, "", CHECK "--device cuda --op attn_gate=" LIBRARY("device"));
	expect(&r, r.status == 3 ? 3 : 2); /* this build has no GPU device, or the kernel wants the other one */
	done(&r);
}
END_TEST

/* ---- libraries and bindings that are refused ---- */

static const struct {
	const char *how, *op;
	int status;
	const char *said;
} refused[] = {
	{"null", "attn_gate", 2, "does not serve kernel ABI 1"},
	{"abi", "attn_gate", 2, "is of kernel ABI 2, expected 1"},
	{"empty", "attn_gate", 2, "offers 0 kernels, expected 1..4096"},
	{"small", "attn_gate", 2, "its structs have 40 and 4 bytes"},
	{"old", "attn_gate", 1, "failed: never called (returned 1)"},
	{"new", "attn_gate", 1, "failed: never called (returned 1)"},
	{"new", "hc_inject", 1, "op hc_inject layer 0 position 0: "},
	{"unknown", "attn_gate", 2, "offers 'attn_gates', which is no op"},
	{"twice", "attn_gate", 2, "offers attn_gate twice"},
	{"strangers", "gdn_conv", 2, "do not always follow each other"},
	{"both_sites", "hc_up_mix", 2, "do not always follow each other"},
	{"no_run", "attn_gate", 2, "entry 0 has no run function"},
	{"where", "attn_gate", 2, "memory of kind 7"},
	{"crash", "attn_gate", 1, "refused.so while loading crashed (SIGABRT)"},
	{"", "hc_inject", 2, "offers no hc_inject; it has attn_gate"},
	{"", "attn_gate@0-2", 2, "no layer of 0..2 runs attn_gate"},
};

START_TEST(refused_libraries)
{
	struct result r;
	char environment[64];

	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		snprintf(environment, sizeof environment, "REFUSED=%s", refused[i].how);
		plumb(&r, environment, CHECK "--op %s=" LIBRARY("refused"), refused[i].op);
		expect_line(&r, refused[i].status, refused[i].how[0] == 'c' ? "crashed" : "", refused[i].said);
		done(&r);
	}
	plumb(&r, "", CHECK "--op attn_gate=" LIBRARY("nothing"));
	expect_line(&r, 2, "nothing.so", "has no symbol plumb_kernels");
	done(&r);
	plumb(&r, "", CHECK "--op attn_gate='%s/none.so'", dir);
	expect_line(&r, 2, "cannot load", "none.so");
	done(&r);
	scratch_write(dir, "text.so", "no shared object\n", (size_t)-1);
	plumb(&r, "", CHECK "--op attn_gate='%s/text.so'", dir);
	expect_line(&r, 2, "cannot load", "text.so");
	done(&r);
	plumb(&r, "", CHECK "--op attn_gate=mine");
	expect_line(&r, 2, "--op attn_gate is 'mine'", "expected ref or opt, or the path of a shared object");
	done(&r);
	plumb(&r, "", CHECK "--op all=" LIBRARY("fused") " --op hc_up_mix@1=ref");
	expect_line(&r, 2, "layer 1: hc_up_mix runs from ref", "as a whole or not at all");
	done(&r);
	plumb(&r, "REFUSED=cuda", CHECK "--op attn_gate=" LIBRARY("refused") " --device simt");
	expect_line(&r, 3, "wants pointers of a GPU", "the device is simt");
	done(&r);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("user_cli");
	TCase *c = tcase_create("user_cli");
	suite_add_tcase(suite, c);
	tcase_set_timeout(c, 600);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, right_kernels_pass, 0, 2);
	tcase_add_loop_test(c, right_kernels_of_quantised_weights, 0, 2);
	tcase_add_test(c, bits_of_a_right_kernel);
	tcase_add_test(c, wrong_values_are_named);
	tcase_add_loop_test(c, faults_are_contained, 0, CONTAINED);
	tcase_add_test(c, faults_that_come_late);
	tcase_add_test(c, faults_of_a_fused_entry);
	tcase_add_test(c, faults_on_a_device);
	tcase_add_test(c, refused_libraries);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
