/* SPDX-License-Identifier: MIT */
/* plumb test, the program: a part of a run has the cases of the whole, filters are as said, and what is wrong is
 * caught, with the line that shows it again. What its cases are made of: tests/test_trial.c. */
#include <cJSON.h>
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/device.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

/* Cases and their inputs, as a JSON report has them. */
static cJSON *report(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(scratch_path(path, dir, name), &size);
	cJSON *json = cJSON_Parse(text);
	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

static const cJSON *find_case(const cJSON *json, const char *line)
{
	const cJSON *o;
	cJSON_ArrayForEach (o, cJSON_GetObjectItem(json, "cases"))
		if (strcmp(cJSON_GetObjectItem(o, "case")->valuestring, line) == 0)
			return o;
	return NULL;
}

static const char *word(const cJSON *o, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
	ck_assert_msg(text != NULL, "no %s", name);
	return text;
}

/* A part of a run, by shard, class, op or alone, has the cases of the whole, with the same inputs. */
START_TEST(a_part_replays_alike)
{
	static const char *const parts[] = {"embed attn_gate argmax hc_inject --shard 2/3 --cases 80 --jobs 1",
		"argmax --class ties --class bin --jobs 3", "attn_gate"};
	struct program_result r;
	int found = 0;

	program(&r, dir, "test embed attn_gate argmax hc_inject --cases 80 --jobs 2 --json '%s/all'", dir);
	program_expect(&r, 0);
	cJSON *all = report("all");
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(all, "cases")), 80);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		program(&r, dir, "test %s --json '%s/part'", parts[i], dir);
		program_expect(&r, 0);
		cJSON *part = report("part");
		const cJSON *o, *whole;
		cJSON_ArrayForEach (o, cJSON_GetObjectItem(part, "cases")) {
			whole = find_case(all, word(o, "case"));
			ck_assert_msg(whole != NULL, "%s is no case of the whole", word(o, "case"));
			ck_assert_str_eq(word(o, "inputs"), word(whole, "inputs"));
			found++;
		}
		cJSON_Delete(part);
	}
	ck_assert_int_gt(found, 30);
	const char *line = word(cJSON_GetArrayItem(cJSON_GetObjectItem(all, "cases"), 40), "case");
	program(&r, dir, "test --case '%s' --json '%s/one'", line, dir);
	program_expect(&r, 0);
	cJSON *one = report("one");
	ck_assert_str_eq(word(cJSON_GetArrayItem(cJSON_GetObjectItem(one, "cases"), 0), "inputs"),
		word(find_case(all, line), "inputs"));
	cJSON_Delete(one);
	cJSON_Delete(all);
}
END_TEST

/* Experts whose probabilities are in one order in binary64 and equal in binary32: two logits an ulp apart, 68 below the largest;
 * and logits more than 104 below it, whose exponentials are 0. */
START_TEST(ties_of_binary32_only)
{
	static const char *const found[] = {"gates seed=20261130000017", "coordinates seed=20261130000028"};
	struct program_result r;

	program(&r, dir, "test --case 'moe_router class=%s device=simt'", found[_i]);
	program_expect(&r, 0);
}
END_TEST

#define PLANTED "--op hc_inject='" PLUMB_USER_DIR "/planted.so'"
#define ARGMAX "--op argmax='" PLUMB_USER_DIR "/argmax.so'"
#define ROUTER "--op moe_router='" PLUMB_USER_DIR "/router.so'"
#define GATE "--op attn_gate='" PLUMB_USER_DIR "/gate.so'"

enum { LINE = 2048 };

/* The first line to replay that a run has printed, as arguments of plumb. */
static void replay_line(const struct program_result *r, char line[LINE])
{
	const char *at = strstr(r->out, "replay  plumb test ");

	ck_assert_msg(at != NULL, "no line to replay: %s", r->out);
	at += strlen("replay  plumb ");
	snprintf(line, LINE, "%.*s", (int)strcspn(at, "\n"), at);
}

/* A planted fault is caught, and the line that is printed shows it in another process. */
START_TEST(a_wrong_kernel_is_caught_and_replayed)
{
	struct program_result r;
	char line[LINE];

	program(&r, dir, "test " PLANTED " --exact --jobs 2");
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("PLANTED", "hc_inject@-1=factor", 1), 0);
	program(&r, dir, "test " PLANTED " --jobs 2 --json '%s/wrong'", dir);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "1.01") && strstr(r.out, "times the bound") == NULL, "%s", r.out);
	replay_line(&r, line);
	program(&r, dir, "%s", line);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL") && strstr(r.out, "residual_out"), "%s", r.out);
	ck_assert_int_eq(unsetenv("PLANTED"), 0);
	program(&r, dir, "%s", line);
	program_expect(&r, 0);
	cJSON *json = report("wrong");
	ck_assert_msg(cJSON_IsFalse(cJSON_GetObjectItem(json, "pass")), "the report says pass");
	cJSON_Delete(json);
}
END_TEST

/* Whatever the seed, a run has rows of -Inf alone; what failed says which value, what was expected and how to see it again. */
START_TEST(a_start_value_is_caught_at_every_seed)
{
	struct program_result r;

	program(&r, dir, "test " ARGMAX " --seed %d", _i);
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("ARGMAX_FAULT", "start", 1), 0);
	program(&r, dir, "test " ARGMAX " --seed %d --jobs 2", _i);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "class=unranked"));
	ck_assert_ptr_nonnull(strstr(r.out, "] is -1, expected "));
	program(&r, dir, "test " ARGMAX " --case 'argmax class=unranked seed=%d' --json '%s/start'", _i, dir);
	program_expect(&r, 1);
	ck_assert_int_eq(unsetenv("ARGMAX_FAULT"), 0);
	cJSON *json = report("start");
	const cJSON *one = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "cases"), 0);
	ck_assert_ptr_null(cJSON_GetObjectItem(json, "again")); /* neither plumb check nor plumb bisect takes these words */
	ck_assert_ptr_nonnull(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(one, "replay")), "plumb test --case \""));
	cJSON_Delete(json);
}
END_TEST

/* The bound explains another choice among scores that it cannot tell apart, but not one among logits that came out equal. */
START_TEST(the_order_of_ties_is_judged)
{
	struct program_result r;
	char line[LINE];

	program(&r, dir, "test " ROUTER " --class ties --cases 40");
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("ROUTER_FAULT", "ties", 1), 0);
	program(&r, dir, "test " ROUTER " --class ties --class integers --cases 80 --json '%s/ties'", dir);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "of the same score"));
	ck_assert_ptr_nonnull(strstr(r.out, "another choice among equal scores: the tie goes to the lower index"));
	replay_line(&r, line);
	cJSON *json = report("ties");
	ck_assert_double_ge(cJSON_GetNumberValue(cJSON_GetObjectItem(json, "failed")), 30.0);
	cJSON_Delete(json);
	program(&r, dir, "%s", line);
	program_expect(&r, 1);
	/* and where only kinds of floats are compared, it is the choice that is described, not bits of logits */
	program(&r, dir, "test " ROUTER " --case 'moe_router class=vanishing seed=1000000 device=simt'");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, " values of expert are wrong: "));
	ck_assert_int_eq(unsetenv("ROUTER_FAULT"), 0);
	program(&r, dir, "%s", line);
	program_expect(&r, 0);
}
END_TEST

/* What is said of it is about the operand that is beyond its bound, not about bits that may differ. */
START_TEST(the_wrong_operand_is_described)
{
	struct program_result r;

	ck_assert_int_eq(setenv("ROUTER_FAULT", "row", 1), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --cases 22");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "values of shared_weight are wrong: "));
	ck_assert_ptr_nonnull(strstr(r.out, "shared_weight[1] (token "));
	for (const char *at = r.out; (at = strstr(at, " are wrong: ")); at++)
		ck_assert_msg(strncmp(at - strlen("of shared_weight"), "of shared_weight", strlen("of shared_weight")) == 0,
			"%s", r.out);
	ck_assert_int_eq(setenv("ROUTER_FAULT", "tail", 1), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --class integers --cases 8");
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "terms of each sum") && strstr(r.out, "values of logits are wrong: "), "%s", r.out);
	ck_assert_int_eq(unsetenv("ROUTER_FAULT"), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --cases 60");
	program_expect(&r, 0);
}
END_TEST

/* Whatever a kernel does fails its cases and no other, and the run goes on. GATE_FROM: from a position on. */
START_TEST(a_kernel_is_contained)
{
	static const struct {
		const char *fault, *told;
	} all[] = {{"crash", "crashed (SIGSEGV at address 0x10)"}, {"exit", "called exit(0)"},
		{"outside", "wrote after out"}, {"hang", "hangs"}, {"unwritten", "did not write out"},
		{"input", "changed its input qg"}, {"workafter", "wrote after workspace: 0 bytes after the last"},
		{"workbefore", "wrote before its workspace (1 bytes before the first)"}};
	struct program_result r;

	ck_assert_int_eq(setenv("GATE_FAULT", all[_i].fault, 1), 0);
	program(&r, dir,
		"test " GATE " --class integers --class plain --cases 4 --timeout 1 --within 4 --jobs 2 --json '%s/gate'",
		dir);
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, all[_i].told), "%s does not say '%s'", r.out, all[_i].told);
	ck_assert_msg(strstr(r.out, "FAIL  4 of 4 cases"), "%s", r.out);
	cJSON *json = report("gate");
	const cJSON *o;
	cJSON_ArrayForEach (o, cJSON_GetObjectItem(json, "cases")) {
		ck_assert_str_ne(word(o, "inputs"), "0000000000000000");
		ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(o, "pass")));
	}
	cJSON_Delete(json);
}
END_TEST

/* A read outside of which no result follows: trapped, and named with the operand, how far, and the line that replays
 * it. At one end of an operand memory traps, at which is the seed's; so a read on one side fails a part of the cases. */
START_TEST(a_read_outside_is_named)
{
	static const struct {
		const char *fault, *told;
		int least, most; /* of 40 cases */
	} all[] = {{"readafter", "read after qg: element ", 20, 39},
		{"readbefore", "read before qg: element -1 of ", 1, 20}, {"readfar", "read after qg: element ", 20, 39},
		{"readwork", "read after workspace: 0 bytes after the last", 40, 40}};
	struct program_result r;
	char line[LINE];
	long failed;

	ck_assert_int_eq(setenv("GATE_FAULT", all[_i].fault, 1), 0);
	program(&r, dir, "test " GATE " --class plain --cases 40 --within 4 --jobs 2");
	program_expect(&r, 1);
	const char *told = strstr(r.out, "seed 1; ");
	ck_assert_msg(told && strstr(r.out, all[_i].told), "%s", r.out);
	failed = strtol(told + strlen("seed 1; "), NULL, 10);
	ck_assert_msg(failed >= all[_i].least && failed <= all[_i].most, "%ld cases", failed);
	ck_assert_msg(strstr(r.out, _i == 1   ? " 4 bytes before the first"
				    : _i == 2 ? " 2000 bytes after the last"
					      : " 0 bytes after the last"),
		"%s", r.out);
	replay_line(&r, line);
	program(&r, dir, "%s", line);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, all[_i].told), "%s", r.out);
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program(&r, dir, "%s", line);
	program_expect(&r, 0);
}
END_TEST

START_TEST(the_first_failure_ends_it_if_asked)
{
	struct program_result r;
	ck_assert_int_eq(setenv("GATE_FAULT", "wrong", 1), 0);
	program(&r, dir, "test " GATE " --class plain --cases 50 --fail-fast --jobs 1");
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL  1 of 50 cases"), "%s", r.out);
}
END_TEST

/* Only the formats asked for, in shards and by another name of the same case too. */
START_TEST(only_these_formats_and_sizes)
{
	struct program_result r;
	const cJSON *o;
	int cases = 0;

	ck_assert_int_eq(setenv("ROUTER_FAULT", "tail", 1), 0); /* what fails says its formats */
	for (int shard = 1; shard <= 2; shard++) {
		program(&r, dir,
			"test " ROUTER " --format nvfp4,fp8_row --class plain --class wide --shard %d/2 --json '%s/%d'",
			shard, dir, shard);
		program_expect(&r, 1);
		char name[8];
		snprintf(name, sizeof name, "%d", shard);
		cJSON *json = report(name);
		cJSON_ArrayForEach (o, cJSON_GetObjectItem(json, "cases")) {
			cases++;
			ck_assert_ptr_nonnull(strstr(word(o, "case"), " format=fp8_row,nvfp4 "));
			if (cJSON_IsTrue(cJSON_GetObjectItem(o, "pass")))
				continue;
			const char *gate = strstr(word(o, "sizes"), ", gate ");
			ck_assert_msg(gate && (strncmp(gate, ", gate fp8_row", 14) == 0 ||
						      strncmp(gate, ", gate nvfp4", 12) == 0),
				"%s", word(o, "sizes"));
			ck_assert_ptr_nonnull(strstr(word(o, "replay"), " format=fp8_row,nvfp4 "));
		}
		cJSON_Delete(json);
	}
	ck_assert_int_eq(unsetenv("ROUTER_FAULT"), 0);
	ck_assert_int_eq(cases, 8);
	program(&r, dir, "merge '%s/1' '%s/2' --json '%s/all'", dir, dir, dir);
	program_expect(&r, 1);
	program(&r, dir, "test " ROUTER " --format nvfp4 --class plain --class wide --shard 2/2 --json '%s/2'", dir);
	program_expect(&r, 0);
	program(&r, dir, "merge '%s/1' '%s/2' --json '%s/all'", dir, dir, dir);
	program_expect_bad(&r, "format", "nvfp4");
	program(&r, dir, "test moe_down argmax --class plain --format nvfp4 --format bf16 --list");
	program_expect(&r, 0);
	ck_assert_str_eq(r.out, "moe_down format=bf16,nvfp4 class=plain seed=1000000 device=simt\n"
				"argmax class=plain seed=1000000 device=simt\n");
	program(&r, dir, "test --kv-format fp8 --state-format f16 attn_decode gdn_recurrence --class plain --list");
	program_expect(&r, 0);
	ck_assert_str_eq(r.out, "gdn_recurrence state=f16 class=plain seed=1000000 device=simt\n"
				"attn_decode kv=fp8 class=plain seed=1000000 device=simt\n");
	program(&r, dir, "test argmax attn_gate --class plain --size Dh=256 --size T=1,V=99 --list");
	program_expect(&r, 0);
	ck_assert_str_eq(r.out, "attn_gate T=1 Dh=256 class=plain seed=1000000 device=simt\n"
				"argmax T=1 V=99 class=plain seed=1000000 device=simt\n");
	program(&r, dir, "test --case 'moe_down format=bf16 class=plain' --format nvfp4");
	program_expect(&r, 0);
	ck_assert_msg(strstr(r.out, "down nvfp4, shared_down nvfp4"), "%s", r.out);
}
END_TEST

static const struct {
	const char *args, *named, *why;
} refused[] = {
	{"gelu", "gelu", "plumb list ops"},
	{"atn_gate", "atn_gate", "did you mean 'attn_gate'?"},
	{"--class nothing", "nothing", "plumb list classes"},
	{"embed --class decay", "no case", "classes"}, /* nothing to run is no success */
	{"--cases 0", "--cases", "1 or more"},
	{"embed --cases 2 --shard 3/3", "no case", ""},
	{"--shard 4/3", "--shard", "1 <= I <= N"},
	{"--shard x", "--shard", "1 <= I <= N"},
	{"--device tpu", "--device", "simt or cuda"},
	{"--policy int8", "--policy", "f32 or bf16"},
	{"--format int4", "--format", "nvfp4"},
	{"argmax attn_qk_rope --format f32,nvfp4", "--format is 'nvfp4'",
		"attn_qk_rope has f32, f16, bf16; argmax has no weights"},
	{"moe --kv-format fp8", "--kv-format", "moe_down has no cache of keys and values"},
	{"attention --state-format f16", "--state-format", "no GDN state"},
	{"argmax --size V", "--size is 'V'", "by their letters"},
	{"argmax --size V=0", "--size", "V is '0', expected 1 to"},
	{"argmax attn_gate --size V=8,D=64", "--size has D", "no op here has"},
	{"argmax --size V=8,V=9", "--size", "V comes twice"},
	{"argmax --size V=8 --size V=9", "--size", "V comes twice"},
	{"--case 'argmax seed=1' --format bf16", "--format", "argmax has no weights"},
	{"embed --class offsets --format nvfp4", "no case", "formats"},
	{"--op attn_gate", "--op", "NAME=FILE.so"},
	{"--op gelu=x.so", "gelu", "plumb list ops"},
	{"--op attn_gate=/nowhere/x.so", "/nowhere/x.so", "cannot load"},
	{"--op embed='" PLUMB_USER_DIR "/gate.so'", "gate.so", "embed"},
	{"--op hc_norm_down+hc_up_mix=x.so", "plumb check", "single ops"},
	{"embed " GATE, "--op attn_gate=", "nothing of it to run"},
	{"--case 'embed seed=1' " GATE, "--op attn_gate=", "nothing of it to run"},
	{GATE " " GATE, "--op attn_gate=", "nothing of it to run"},
	{"--case 'embed E=3'", "embed", "no size E"},
	{"--case 'embed seed=1' --class ties", "--case", "--class"},
	{"embed --case 'embed seed=1'", "--case", "embed"},
	{"embed --json /nowhere/x.json", "--json", "/nowhere"},
	{"--fail-fast --keep-going", "--fail-fast", "one of them"},
};

START_TEST(bad_commands_are_refused_by_name)
{
	struct program_result r;
	program(&r, dir, "test %s", refused[_i].args);
	program_expect_bad(&r, refused[_i].named, refused[_i].why);
}
END_TEST

START_TEST(a_device_that_is_not_there)
{
	struct plumb_device *device = NULL;
	struct plumb_error err;
	struct program_result r;
	int status = plumb_device_open(PLUMB_DEVICE_CUDA, NULL, &device, &err);
	plumb_device_close(device);
	if (status == PLUMB_OK)
		return;
	program(&r, dir, "test embed --device cuda");
	program_expect(&r, 3);
	ck_assert_msg(strlen(r.err) > 0, "nothing is said");
	program(&r, dir, "test --device cuda --cases 2 " GATE);
	program_expect(&r, 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trial_cli");
	TCase *all = suite_part(suite, "all", 300);
	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_test(all, a_part_replays_alike);
	tcase_add_loop_test(all, ties_of_binary32_only, 0, 2);
	tcase_add_test(all, a_wrong_kernel_is_caught_and_replayed);
	tcase_add_loop_test(all, a_start_value_is_caught_at_every_seed, 3, 6);
	tcase_add_test(all, the_order_of_ties_is_judged);
	tcase_add_test(all, the_wrong_operand_is_described);
	tcase_add_loop_test(all, a_read_outside_is_named, 0, 4);
	tcase_add_loop_test(all, a_kernel_is_contained, 0, 8);
	tcase_add_test(all, the_first_failure_ends_it_if_asked);
	tcase_add_test(all, only_these_formats_and_sizes);
	tcase_add_loop_test(all, bad_commands_are_refused_by_name, 0, (int)(sizeof refused / sizeof refused[0]));
	tcase_add_test(all, a_device_that_is_not_there);
	return suite_run(suite);
}
