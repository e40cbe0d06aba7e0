/* SPDX-License-Identifier: MIT */
/* Every op of the table in every implementation, with random configs and data. What a failing line begins with replays
 * it: PLUMB_OP_CASE=moe_down:17 test_ops. PLUMB_OP_SEEDS sets how many seeds an op gets; with PLUMB_OP_RACE set all of
 * them also go through the race check. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/gdn.h"
#include "core/ops/moe.h"
#include "ref/twin/twin.h"
#include "tests/support/op_case.h"

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 6 }; /* the sanitizers cost a factor of ten */
#else
enum { SEEDS = 16 };
#endif
#ifdef PLUMB_TEST_GPU
enum { GPU, DEVICES };
#else
enum { NATURAL, SCHEDULE, SCHEDULES = 3, OWN_MEMORY = SCHEDULE + SCHEDULES, RACE, DEVICES };
enum { RACE_SEEDS = 2 }; /* the race check costs a factor of 10 to 50 */
#endif

/* simt: in natural order; in others; with memory of its own, as a GPU has; with the race check. Or a GPU. */
static struct plumb_device *device[DEVICES];

static int open_devices(void)
{
	struct plumb_error error;
	int status = PLUMB_OK;

	for (int i = 0; i < DEVICES && status == PLUMB_OK; i++) {
		struct plumb_device_options options = {.seed = (uint64_t)i * 1001, .poison = PLUMB_POISON_NAN};
#ifdef PLUMB_TEST_GPU
		status = plumb_device_open(PLUMB_DEVICE_CUDA, &options, &device[i], &error);
#else
		options.own_memory = i == OWN_MEMORY;
		options.race = i == RACE;
#ifndef PLUMB_RACE
		if (i == RACE) /* a build with sanitizers has none */
			continue;
#endif
		status = plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device[i], &error);
#endif
	}
	if (status != PLUMB_OK)
		printf("%s%s\n", status == PLUMB_NO_DEVICE ? "SKIP test_ops_cuda: " : "test_ops: ", error.text);
	return status;
}

/* The devices of a case: each runs it once, under the poisons in turn. */
static int choose(uint64_t seed, struct plumb_device *chosen[DEVICES + 1])
{
	int n = 0;
#ifdef PLUMB_TEST_GPU
	(void)seed;
	chosen[n++] = device[GPU];
	chosen[n++] = device[GPU];
#else
	chosen[n++] = device[NATURAL];
	chosen[n++] = device[SCHEDULE + seed % SCHEDULES];
	chosen[n++] = device[OWN_MEMORY];
	if (device[RACE] && (seed < RACE_SEEDS || getenv("PLUMB_OP_RACE")))
		chosen[n++] = device[RACE];
#endif
	return n;
}

/* One line for a failure. */
static bool passes(enum plumb_op op, uint64_t seed, struct plumb_bound_result *bounds)
{
	char text[OP_CASE_TEXT], name[64];
	struct op_case *c = op_case_new(op, seed, NULL);
	struct plumb_device *chosen[DEVICES + 1];
	struct plumb_error error;
	c->bounds = bounds;
	bool ok = op_case_check(c, NULL, chosen, choose(seed, chosen), text);

	if (!ok)
		printf("%s: %s\n", op_case_name(c, name), text);
	op_case_free(c);
	for (int i = 0; i < DEVICES; i++) /* the next case has other data, perhaps at the same address */
		if (device[i])
			ck_assert_msg(plumb_device_forget(device[i], &error) == PLUMB_OK, "%s", error.text);
	return ok;
}

/* Whether the case that was asked for is one of this op; its seed. */
static bool asked(const char *wanted, enum plumb_op op, uint64_t *seed)
{
	size_t length = strcspn(wanted, ":");

	*seed = wanted[length] ? strtoull(wanted + length + 1, NULL, 10) : 0;
	return strlen(plumb_ops[op].name) == length && strncmp(wanted, plumb_ops[op].name, length) == 0;
}

START_TEST(random_cases)
{
	const char *one = getenv("PLUMB_OP_CASE"), *count = getenv("PLUMB_OP_SEEDS");
	uint64_t seeds = count ? strtoull(count, NULL, 10) : SEEDS, first = 0;
	struct plumb_bound_result bounds;
	char text[256];
	double worst = 0.0;
	int failed = 0;

	if (one) {
		if (!asked(one, (enum plumb_op)_i, &first))
			return;
		seeds = 1;
	}
	plumb_bound_begin(&bounds, (enum plumb_op)_i);
	for (uint64_t seed = first; seed < first + seeds; seed++)
		failed += !passes((enum plumb_op)_i, seed, &bounds);
	for (int i = 0; i < plumb_ops[_i].operands; i++)
		worst = bounds.operand[i].max_ratio > worst ? bounds.operand[i].max_ratio : worst;
	printf("%-16s %3llu cases, largest error of the twin %.4f of the bound\n", plumb_ops[_i].name,
		(unsigned long long)seeds, worst);
	if (!one)
		ck_assert_msg(plumb_bound_passes(&bounds, text, sizeof text), "%s: %s", plumb_ops[_i].name, text);
	ck_assert_msg(failed == 0, "%s: %d of %llu cases fail", plumb_ops[_i].name, failed, (unsigned long long)seeds);
}
END_TEST

/* --- the harness itself: each of these candidates is wrong in one place, and must be told --- */

static int one_bit(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int status = moe_down_twin(env, args);
	uint32_t bits;
	memcpy(&bits, &a->y[0], sizeof bits);
	bits ^= 1;
	memcpy(&a->y[0], &bits, sizeof bits);
	return status;
}

static int not_a_number(const struct plumb_env *env, const void *args)
{
	int status = moe_down_twin(env, args);
	((const struct plumb_moe_down *)args)->y[env->cfg->hidden - 1] = NAN;
	return status;
}

static int not_written(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	float *last = &a->y[a->T * env->cfg->hidden - 1], before = *last;
	int status = moe_down_twin(env, args);
	*last = before;
	return status;
}

static int past_the_end(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int status = moe_down_twin(env, args);
	a->y[a->T * env->cfg->hidden] = 0.0f;
	return status;
}

static int before_the_start(const struct plumb_env *env, const void *args)
{
	int status = moe_down_twin(env, args);
	((const struct plumb_moe_down *)args)->y[-1] = 0.0f;
	return status;
}

static int input_changed(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int status = moe_down_twin(env, args);
	memset((void *)(uintptr_t)&a->hidden[0], 0, sizeof(float));
	return status;
}

static int weight_changed(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int status = moe_down_twin(env, args);
	memset((void *)(uintptr_t)a->down[0].data, 0, 1);
	memset((void *)(uintptr_t)a->down[env->cfg->experts - 1].data, 0xff, 2);
	return status;
}

static int refused(const struct plumb_env *env, const void *args)
{
	(void)args;
	return plumb_fail(env->err, PLUMB_BAD_INPUT, "no such thing");
}

static int other_expert(const struct plumb_env *env, const void *args)
{
	int status = moe_router_twin(env, args);
	((const struct plumb_moe_router *)args)->expert[0] ^= 1;
	return status;
}

static int window_row(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_conv *a = args;
	int status = gdn_conv_twin(env, args);
	a->window[0] = a->window[0] == 1.0f ? 2.0f : 1.0f;
	return status;
}

static int far_row(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_qk_rope *a = args;
	int status = attn_qk_rope_twin(env, args);
	unsigned char *row = plumb_cache_row(a->keys, (*a->position + a->T) % a->keys->rows);
	row[0] ^= 1;
	return status;
}

static int page_swap(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_qk_rope *a = args;
	int status = attn_qk_rope_twin(env, args);
	memset((void *)(uintptr_t)a->keys->page, 1, sizeof(int32_t));
	return status;
}

static const struct {
	enum plumb_op op;
	plumb_op_fn *candidate;
	const char *told; /* part of the line */
} faults[] = {
	{PLUMB_MOE_DOWN, one_bit, "y[0, 0] is"},
	{PLUMB_MOE_DOWN, not_a_number, "is nan, expected"},
	{PLUMB_MOE_DOWN, not_written, "y["},
	{PLUMB_MOE_DOWN, past_the_end, "y was written outside"},
	{PLUMB_MOE_DOWN, before_the_start, "y was written outside"},
	{PLUMB_MOE_DOWN, input_changed, "hidden is an input and was changed"},
	{PLUMB_MOE_DOWN, weight_changed, "down is an input and was changed"},
	{PLUMB_MOE_DOWN, refused, "failed: no such thing"},
	{PLUMB_MOE_ROUTER, other_expert, "expert[0, 0] is"},
	{PLUMB_GDN_CONV, window_row, "window[0, 0] is"},
	{PLUMB_ATTN_QK_ROPE, far_row, "keys["},
	{PLUMB_ATTN_QK_ROPE, page_swap, "keys had its page table changed"},
};

START_TEST(faults_are_told)
{
	char text[OP_CASE_TEXT];
	struct op_case *c = op_case_new(faults[_i].op, 5, NULL);

	ck_assert_msg(op_case_agree(c, NULL, device, 1, text), "%s", text);
	ck_assert(!op_case_agree(c, faults[_i].candidate, device, 1, text));
	ck_assert_msg(strstr(text, faults[_i].told) != NULL, "told: %s, expected: %s", text, faults[_i].told);
	op_case_free(c);
}
END_TEST

/* A seed is a case: the same twice. */
START_TEST(a_seed_is_a_case)
{
	struct op_case *a = op_case_new(PLUMB_ATTN_DECODE, 77, NULL), *b = op_case_new(PLUMB_ATTN_DECODE, 77, NULL);

	ck_assert_int_eq(a->T, b->T);
	for (int i = 0; i < a->operands; i++) {
		ck_assert_uint_eq(a->operand[i].memory.bytes, b->operand[i].memory.bytes);
		if (a->operand[i].before)
			ck_assert_mem_eq(a->operand[i].before, b->operand[i].before, a->operand[i].memory.block_bytes);
	}
	op_case_free(a);
	op_case_free(b);
}
END_TEST

int main(void)
{
	int status = open_devices();
	if (status != PLUMB_OK)
		return status == PLUMB_NO_DEVICE ? 77 : EXIT_FAILURE;
	Suite *suite = suite_create("ops");
	TCase *cases = tcase_create("cases");
	tcase_set_timeout(cases, 600);
	tcase_add_test(cases, a_seed_is_a_case);
	tcase_add_loop_test(cases, faults_are_told, 0, (int)(sizeof faults / sizeof faults[0]));
	tcase_add_loop_test(cases, random_cases, 0, PLUMB_OP_COUNT);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(
		runner, CK_NOFORK); /* the devices keep their stacks from case to case; CUDA survives no fork */
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	for (int i = 0; i < DEVICES; i++)
		plumb_device_close(device[i]);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
