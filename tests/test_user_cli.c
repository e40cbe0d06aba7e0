/* SPDX-License-Identifier: MIT */
/* plumb check and run with kernels of shared objects: a right one passes, and whatever else one does is reported as its
 * doing, with exit status 1 and in the JSON and JUnit files too. The kernels are in tests/user/. */
#include <cJSON.h>
#include <check.h>
#include <elf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define CHECK "check " TINY " --checkpoint " CHECKPOINT " "
#define LIBRARY(name) "'" PLUMB_USER_DIR "/" name ".so'"

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
	struct program_result r;

	for (size_t i = 0; i < sizeof right / sizeof right[0]; i++) {
		program(&r, dir, CHECK "--op %s --policy %s %s", right[i].op, _i ? "bf16" : "f32", right[i].options);
		program_expect(&r, 0);
		char hidden[80];
		snprintf(hidden, sizeof hidden, "so not compared: %d tensors", right[i].hidden);
		ck_assert_msg(!strstr(r.out, "so not compared") == !right[i].hidden &&
				      (!right[i].hidden || strstr(r.out, hidden)),
			"%s", r.out);
	}
}
END_TEST

/* Quantised weights, by plumb_value. */
START_TEST(right_kernels_of_quantised_weights)
{
	static const char *const kernel[] = {LIBRARY("fused"), LIBRARY("device"), LIBRARY("indexer")};
	const char *golden = _i ? "tiny-fp8" : "tiny-nvfp4";
	struct program_result r;

	for (size_t i = 0; i < sizeof kernel / sizeof kernel[0]; i++) {
		program(&r, dir,
			"check " PLUMB_GOLDEN_DIR "/%s/%s.h5 --checkpoint " PLUMB_GOLDEN_DIR
			"/%s/checkpoint --view local --op all=%s",
			golden, golden, golden, kernel[i]);
		program_expect(&r, 0);
	}
}
END_TEST

/* A run whose every bit the twin has; and the same run without the kernel. */
START_TEST(bits_of_a_right_kernel)
{
	static struct program_result with, without;

	program(&with, dir, CHECK "--mode twin --digest --op hc_inject=" LIBRARY("inject"));
	program(&without, dir, CHECK "--mode twin --digest");
	program_expect(&with, 0);
	program_expect(&without, 0);
	const char *a = strstr(with.out, "digest"), *b = strstr(without.out, "digest");
	ck_assert(a && b && strncmp(a, b, 40) == 0);
	program(&with, dir,
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 5 --mode twin --op hc_inject=" LIBRARY("inject"));
	program(&without, dir, "run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 5 --mode twin");
	program_expect(&with, 0);
	ck_assert_str_eq(with.out, without.out);
}
END_TEST

/* ---- kernels that are not ---- */

START_TEST(wrong_values_are_named)
{
	struct program_result r;

	program_with(&r, dir, "GATE_FAULT=wrong",
		CHECK "--view local --json '%s/r.json' --junit '%s/r.xml' --op attn_gate=" LIBRARY("gate"), dir, dir);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer03/attention/gated (attn_gate of "));
	ck_assert_ptr_nonnull(strstr(r.out, "1 failed"));
	char *json = slurp("r.json"), *junit = slurp("r.xml");
	ck_assert_ptr_nonnull(strstr(json, "\"kernel\":\t\"attn_gate\""));
	ck_assert_ptr_nonnull(strstr(junit, "(attn_gate of "));
	free(json);
	free(junit);
	/* what a log has of it: one tensor a view, or some, and what comes next */
	program_with(&r, dir, "ROUTER_FAULT=row", CHECK "--quiet --op moe_router=" LIBRARY("router"));
	program_expect(&r, 1);
	const char *first = strstr(r.out, "layer00/moe/output (moe_router of ");
	ck_assert_msg(first && strstr(first + 1, "layer00/moe/output (moe_router of "), "%s", r.out);
	ck_assert_ptr_null(strstr(r.out, "layer01/"));
	program_with(&r, dir, "ROUTER_FAULT=row", CHECK "--bounds --op moe_router=" LIBRARY("router"));
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, " more tensors fail (--verbose shows them)\n"));
	ck_assert_ptr_nonnull(strstr(r.out, "\nnext        plumb bisect "));
	ck_assert_ptr_nonnull(strstr(r.out, " 1 failed: moe_router; "));
	ck_assert_ptr_null(strstr(r.out, "layer03/moe/shared/output (moe_router")); /* of the propagated view, far behind */
	program_with(&r, dir, "ROUTER_FAULT=row", CHECK "--verbose --op moe_router=" LIBRARY("router"));
	program_expect(&r, 1);
	ck_assert_ptr_null(strstr(r.out, "more tensors fail"));
	ck_assert_ptr_nonnull(strstr(r.out, "layer03/moe/shared/output (moe_router"));
	/* only where the layer is bound, and only from the position on */
	program_with(&r, dir, "GATE_FAULT=wrong GATE_FROM=57", CHECK "--view local --op attn_gate=" LIBRARY("gate"));
	program_expect(&r, 0);
	program_with(&r, dir, "GATE_FAULT=wrong GATE_FROM=57", CHECK "--op attn_gate=" LIBRARY("gate"));
	program_expect(&r, 0); /* the 57th token and later ones are the greedy ones, which differ by nothing here */
	program_with(&r, dir, "FUSED_FAULT=window", CHECK "--view local --op all=" LIBRARY("fused"));
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer00/state/conv_states0 (gdn_in_proj+gdn_conv of "));
	program_with(&r, dir, "ENGINE_FAULT=order", CHECK "--view local --op gdn_recurrence@1=" LIBRARY("engine"));
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer01/gdn/recurrence (gdn_recurrence of "));
	ck_assert_ptr_null(strstr(r.out, "layer00/gdn/recurrence (gdn_recurrence of "));
	program_with(&r, dir, "FUSED_FAULT=injection", CHECK "--view local --op all=" LIBRARY("fused"));
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer00/attn_hc/injection (hc_norm_down+hc_up_mix of "));
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
	struct program_result r;
	char environment[64];
	time_t start = time(NULL);

	snprintf(environment, sizeof environment, "GATE_FAULT=%s", contained[_i].fault);
	program_with(&r, dir, environment,
		CHECK "--op attn_gate=" LIBRARY("gate") " --timeout 1 --json '%s/r.json' --junit '%s/r.xml'", dir, dir);
	program_expect_failure(&r, 1, "op attn_gate layer 3 position 0: ", contained[_i].said);
	ck_assert_msg(strstr(r.err, "gate.so"), "%s", r.err);
	ck_assert_msg(time(NULL) - start < 60, "hangs longer than --timeout");
	char *json = slurp("r.json"), *junit = slurp("r.xml");
	cJSON *root = cJSON_Parse(json);
	ck_assert_msg(root != NULL, "%s", json);
	ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(root, "pass")));
	ck_assert_ptr_nonnull(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(root, "failure")), contained[_i].said));
	ck_assert(strstr(junit, "failures=\"1\"") && strstr(junit, "</testsuites>"));
	cJSON_Delete(root);
	free(json);
	free(junit);
}
END_TEST

/* A fault that comes late is named with its place. */
START_TEST(faults_that_come_late)
{
	struct program_result r;

	program_with(&r, dir, "GATE_FAULT=crash GATE_FROM=60",
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 80 --op attn_gate=" LIBRARY("gate"));
	program_expect_failure(&r, 1, "plumb run: op attn_gate layer 3 position 60: ", "crashed (SIGSEGV at address 0x10)");
	/* run does not guard: an element that is left is NaN, and shows */
	program_with(&r, dir, "GATE_FAULT=unwritten",
		"run --checkpoint " CHECKPOINT " --tokens 1,2,3 --steps 8 --op attn_gate=" LIBRARY("gate"));
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.err, "is NaN"), "%s", r.err);
	program_with(&r, dir, "GATE_FAULT=unwritten", CHECK "--once --op attn_gate=" LIBRARY("gate"));
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "layer03/attention/gated"), "%s", r.out);
	/* without a second run nobody sees the change of every third call, unless it comes into a comparison */
	program_with(&r, dir, "GATE_FAULT=random", CHECK "--once --view local --op attn_gate=" LIBRARY("gate"));
	program_expect(&r, 0);
}
END_TEST

/* Tokens and what goes wrong after them, in one log or on a terminal: two lines, whoever comes to know of it. */
START_TEST(faults_in_a_line_of_tokens)
{
	static const char *const ways[] = {"sh -c \"%s 2>&1\"", "script -qec \"%s\" /dev/null"};
	static const char *const faults[] = {"crash", "exit", "says"};
	const int terminal = system("script --version >/dev/null 2>&1") == 0;
	struct program_result r;
	char run[1024], line[2048];

	for (int f = 0; f < 3; f++)
		for (int way = 0; way <= terminal; way++) {
			snprintf(run, sizeof run,
				"GATE_FAULT=%s GATE_FROM=4 '%s' run --checkpoint '%s' --tokens 5,17,42 --steps 9 --op "
				"'attn_gate=%s'",
				faults[f], PLUMB_PROGRAM, CHECKPOINT, LIBRARY("gate"));
			snprintf(line, sizeof line, ways[way], run);
			program(&r, dir, "--version >/dev/null; %s", line);
			const char *end = strchr(r.out, '\n');
			ck_assert_msg(strncmp(r.out, "241,156", 7) == 0 && end &&
					      strncmp(end + 1, "plumb run: op attn_gate layer 3 position 4: ", 44) == 0 &&
					      strchr(end + 1, '\n')[1] == '\0',
				"%s: %s", line, r.out);
			program(&r, dir, "--version >/dev/null; %s", run); /* apart, the line of tokens ends too */
			program_expect_failure(&r, 1, "plumb run: op attn_gate layer 3 position 4: ", "");
			ck_assert_str_eq(r.out, "241,156\n");
		}
}
END_TEST

/* A fused entry with caches: what the shadow has computed in its place must help nobody. */
START_TEST(faults_of_a_fused_entry)
{
	static const char *const fault[] = {"INDEXER_FAULT=key", "INDEXER_FAULT=row", "INDEXER_FAULT=choice"};
	struct program_result r;

	program_with(&r, dir, fault[0], CHECK "--op qsa_select=" LIBRARY("indexer"));
	program_expect_failure(
		&r, 1, "op qsa_project+qsa_score+qsa_select layer 3 position 0: ", "did not write block_keys[0, 0]");
	program_with(&r, dir, fault[1], CHECK "--op qsa_select=" LIBRARY("indexer"));
	program_expect_failure(
		&r, 1, "op qsa_project+qsa_score+qsa_select layer 3 position 0: ", "did not write raw_keys[55, 0]");
	for (int i = 0; i < 3; i++) {
		program_with(&r, dir, fault[i], CHECK "--once --view local --op qsa_select=" LIBRARY("indexer"));
		program_expect(&r, 1);
		ck_assert_msg(strstr(r.out, "(qsa_project+qsa_score+qsa_select of "), "%s", r.out);
	}
	program_with(&r, dir, fault[2], CHECK "--view local --op qsa_select=" LIBRARY("indexer"));
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "layer03/qsa/selected_mask (qsa_project+qsa_score+qsa_select of "), "%s", r.out);
}
END_TEST

/* Device pointers, by way of the mirror. */
START_TEST(faults_on_a_device)
{
	struct program_result r;

	program_with(&r, dir, "DEVICE_FAULT=workspace", CHECK "--op gdn_out_proj=" LIBRARY("device"));
	program_expect_failure(&r, 1, "op gdn_out_proj layer 0 position 0: ", "wrote outside scratch slot 0");
	program_with(&r, dir, "DEVICE_FAULT=dirty", CHECK "--op gdn_out_proj=" LIBRARY("device"));
	program_expect_failure(&r, 1, "op gdn_out_proj layer 0 position 0: ", "y[0, 0]");
	program_with(&r, dir, "DEVICE_FAULT=stale", CHECK "--view local --op gdn_out_proj=" LIBRARY("device"));
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "layer01/gdn/output (gdn_out_proj of "));
	ck_assert_ptr_null(strstr(r.out, "layer00/gdn/output (gdn_out_proj of "));
	program_with(&r, dir, "DEVICE_FAULT=page", CHECK "--op qsa_score=" LIBRARY("device") " --page-seed 2");
	program_expect_failure(&r, 1, "op qsa_score layer 3 position 0: ", "used memory that nobody wrote");
	program(&r, dir, CHECK "--device cuda --op attn_gate=" LIBRARY("device"));
	program_expect(&r, r.status == 3 ? 3 : 2); /* this build has no GPU device, or the kernel wants the other one */
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
	{"all_layers_between", "embed", 2, "do not always follow each other"},
	{"no_run", "attn_gate", 2, "entry 0 has no run function"},
	{"where", "attn_gate", 2, "memory of kind 7"},
	{"crash", "attn_gate", 2, "refused.so while loading crashed (SIGABRT)"},
	{"", "hc_inject", 2, "offers no hc_inject; it has attn_gate"},
	{"", "attn_gate@0-2", 2, "no layer of 0..2 runs attn_gate"},
	{"", "all@0-2", 2, "no layer of 0..2 runs anything of "},
};

START_TEST(refused_libraries)
{
	struct program_result r;
	char environment[64];

	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++) {
		snprintf(environment, sizeof environment, "REFUSED=%s", refused[i].how);
		program_with(&r, dir, environment, CHECK "--op %s=" LIBRARY("refused"), refused[i].op);
		program_expect_failure(&r, refused[i].status, refused[i].how[0] == 'c' ? "crashed" : "", refused[i].said);
	}
	program(&r, dir, CHECK "--op attn_gate=" LIBRARY("nothing"));
	program_expect_line(&r, "nothing.so", "has no symbol plumb_kernels");
	program(&r, dir, CHECK "--op attn_gate='%s/none.so'", dir);
	program_expect_line(&r, "cannot load", "none.so");
	scratch_write(dir, "text.so", "no shared object\n", (size_t)-1);
	program(&r, dir, CHECK "--op attn_gate='%s/text.so'", dir);
	program_expect_line(&r, "cannot load", "text.so");
	scratch_write(dir, "text.so", "", 0);
	program(&r, dir, CHECK "--op attn_gate='%s/text.so'", dir);
	program_expect_line(&r, "cannot load", "text.so: ");
	program(&r, dir, CHECK "--op attn_gate='%s'", dir);
	program_expect_line(&r, "cannot load", "expected a shared object");
	program(&r, dir, CHECK "--op attn_gate=mine");
	program_expect_line(&r, "--op attn_gate is 'mine'", "expected ref or opt, or the path of a shared object");
	program(&r, dir, CHECK "--op all=" LIBRARY("fused") " --op hc_up_mix@1=ref");
	program_expect_line(&r, "layer 1: hc_up_mix runs from ref", "as a whole or not at all");
	program_with(&r, dir, "REFUSED=cuda", CHECK "--op attn_gate=" LIBRARY("refused") " --device simt");
	program_expect_failure(&r, 3, "wants pointers of a GPU", "the device is simt");
}
END_TEST

/* Half of a download, and a file that somebody has scribbled in: it is the linker that dies of either. */
START_TEST(damaged_libraries)
{
	struct program_result r;
	size_t size;
	char path[SCRATCH_PATH];
	char *whole = scratch_read(PLUMB_USER_DIR "/gate.so", &size);
	const size_t cut[] = {1, 64, 100, 1000, 4096, size / 2, size - 1};

	scratch_path(path, dir, "half.so");
	for (size_t i = 0; i < sizeof cut / sizeof cut[0]; i++) {
		scratch_write(dir, "half.so", whole, cut[i]);
		program(&r, dir, CHECK "--op attn_gate='%s'", path);
		program_expect_line(&r, "half.so: ", cut[i] < 64 ? "file too short" : "cut short: it has ");
	}
	Elf64_Ehdr head;
	memcpy(&head, whole, sizeof head);
	for (int i = 0; i < head.e_phnum; i++) {
		Elf64_Phdr part;
		memcpy(&part, whole + head.e_phoff + (size_t)i * sizeof part, sizeof part);
		if (part.p_type == PT_DYNAMIC) /* what remains of it names no table at all */
			memset(whole + part.p_offset, 0, part.p_filesz);
	}
	scratch_write(dir, "half.so", whole, size);
	program(&r, dir, CHECK "--op attn_gate='%s'", path);
	program_expect_line(&r, "half.so while loading crashed (SIG", "");
	free(whole);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("user_cli");
	TCase *c = suite_part(suite, "user_cli", 600);
	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_loop_test(c, right_kernels_pass, 0, 2);
	tcase_add_loop_test(c, right_kernels_of_quantised_weights, 0, 2);
	tcase_add_test(c, bits_of_a_right_kernel);
	tcase_add_test(c, wrong_values_are_named);
	tcase_add_loop_test(c, faults_are_contained, 0, CONTAINED);
	tcase_add_test(c, faults_that_come_late);
	tcase_add_test(c, faults_in_a_line_of_tokens);
	tcase_add_test(c, faults_of_a_fused_entry);
	tcase_add_test(c, faults_on_a_device);
	tcase_add_test(c, refused_libraries);
	tcase_add_test(c, damaged_libraries);
	return suite_run(suite);
}
