/* SPDX-License-Identifier: MIT */
/* The check before plumb bench: an op that is wrong in one bit is found, it alone, whichever op it is; and a shipped digest
 * is held to. The test opens the sessions itself, with one op of the set under test spoilt. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/synthetic.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/bench.h"

#ifdef __SANITIZE_ADDRESS__
enum { STRIDE = 6 }; /* of ops that are spoilt: what finds them is the same code for each, ten times slower here */
#else
enum { STRIDE = 1 };
#endif

static struct plumb_error err;
static enum plumb_op spoilt_op; /* PLUMB_OP_COUNT: none */
static int64_t spoilt_calls;

/* ---- a set with one wrong op ---- */

/* As the twin, then the lowest bit of the last value of its last output, or of its state. */
static int spoil(enum plumb_op op, const struct plumb_env *env, const void *args)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	struct plumb_extent extent = {1, env->capacity};
	int status = plumb_ref_twin.op[op](env, args);
	unsigned char *last = NULL;

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		unsigned char *at;
		memcpy(&at, (const char *)args + o->offset, sizeof at);
		if (at && plumb_operand_is_array(o) && (o->role == PLUMB_OUT || o->role == PLUMB_STATE))
			last = at + (size_t)(plumb_shape_count(o->shape, env->cfg, &extent) - 1) *
			                    plumb_operand_element(o, args);
	}
	ck_assert_ptr_nonnull(last);
	*last ^= 1;
	spoilt_calls++;
	return status;
}
static int spoilt(const struct plumb_env *env, const void *args)
{
	return spoil(spoilt_op, env, args);
}
static struct plumb_set set;

/* ---- sessions ---- */

int session_open(const struct set_options *o, struct session *s, struct plumb_error *e)
{
	const bool opt = strcmp(o->set, "opt") == 0;
	struct plumb_synthetic_options options = {.seed = 0};
	struct plumb_binding binding = {.set = opt ? &set : &plumb_ref_twin};
	int status;

	memset(s, 0, sizeof *s);
	ck_assert_str_eq(o->synthetic, "small");
	ck_assert(opt || strcmp(o->mode, "twin") == 0);
	if (o->profile) {
		ck_assert_int_eq(plumb_profile_open(o->profile, &s->profile, e), PLUMB_OK);
		options.profile = &s->profile;
	}
	status = plumb_synthetic_open(o->synthetic, &options, &s->synthetic, e);
	if (status != PLUMB_OK)
		return status;
	s->model = plumb_synthetic_model(s->synthetic);
	s->all_opt = opt;
	return plumb_plan_create(&s->model->cfg, binding, &s->plan, e);
}

void session_close(struct session *s)
{
	plumb_plan_free(&s->plan);
	plumb_synthetic_close(s->synthetic);
}

static struct bench *check(struct bench_options *o)
{
	struct bench *b = calloc(1, sizeof *b);

	set = plumb_ref_twin;
	if (spoilt_op != PLUMB_OP_COUNT)
		set.op[spoilt_op] = spoilt;
	spoilt_calls = 0;
	o->set.set = "opt";
	b->options = o;
	ck_assert_msg(bench_check_ops(b, &err) == PLUMB_OK, "%s", err.text);
	return b;
}

START_TEST(wrong_op_is_found_and_it_alone)
{
	struct bench_options o = {.decoder.policy = _i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32};

	spoilt_op = (enum plumb_op)(_i * STRIDE);
	struct bench *b = check(&o);
	ck_assert_int_gt(spoilt_calls, 0);
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		ck_assert_msg(b->wrong[i] == (i == (int)spoilt_op), "%s spoilt: %s is %s", plumb_ops[spoilt_op].name,
			plumb_ops[i].name, b->wrong[i] ? "called wrong" : "not found");
	ck_assert_msg(
		strstr(b->checked, "NOT bit-exact") && strstr(b->checked, plumb_ops[spoilt_op].name), "%s", b->checked);
	free(b);
}
END_TEST

START_TEST(right_set_passes)
{
	struct bench_options o = {.set.profile = _i ? "served" : NULL};

	spoilt_op = PLUMB_OP_COUNT;
	struct bench *b = check(&o);
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		ck_assert(!b->wrong[i]);
	ck_assert_msg(strstr(b->checked, "25 of 25 ops bit-exact"), "%s", b->checked);
	free(b);
}
END_TEST

START_TEST(shipped_digests_are_held_to)
{
	struct bench_options o = {.set = {.set = "opt", .synthetic = "small", .profile = "served"}};
	struct bench b = {.options = &o, .model = "synthetic small"};
	struct session s;

	spoilt_op = _i ? PLUMB_MOE_DOWN : PLUMB_OP_COUNT;
	set = plumb_ref_twin;
	if (_i)
		set.op[spoilt_op] = spoilt;
	ck_assert_int_eq(session_open(&o.set, &s, &err), PLUMB_OK);
	const int status = bench_check_digests(&b, &s, &err);
	session_close(&s);
	ck_assert_int_eq(status, _i ? PLUMB_MISMATCH : PLUMB_OK);
	if (_i)
		ck_assert_msg(strstr(err.text, "golden/synthetic/small") && strstr(err.text, "layer 0"), "%s", err.text);
	else
		ck_assert_msg(strstr(b.checked, "2 shipped runs"), "%s", b.checked);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("bench_check");
	TCase *t = suite_part(s, "bench_check", 600);

	tcase_add_loop_test(t, wrong_op_is_found_and_it_alone, 0, (PLUMB_OP_COUNT + STRIDE - 1) / STRIDE);
	tcase_add_loop_test(t, right_set_passes, 0, 2);
	tcase_add_loop_test(t, shipped_digests_are_held_to, 0, 2);
	return suite_run(s);
}
