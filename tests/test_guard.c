/* SPDX-License-Identifier: MIT */
/* Guards: every way in which an op can mishandle memory is planted in a small op and must be named with its place; ops
 * that do nothing of the kind pass and give the bits of a bare run. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "core/ops/hc.h"
#include "core/ops/qsa.h"
#include "opt/device.h"
#include "opt/guard.h"
#include "ref/ref.h"
#include "tests/support/decode.h"
#include "tests/support/suite.h"

enum { T = 2, S = 3, D = 4, NB = 8, N = 5, DI = 6, B = 4, CAPACITY = 32, COUNT = T * S * D };

/* What the op under test does wrong. */
enum fault {
	RIGHT,
	SKIPS, /* leaves one element */
	BEFORE,
	AFTER,
	FAR_AFTER,
	CHANGES_INPUT,
	READS_BEYOND,
	RANDOM,
	FAILS,
	SCRATCH_AFTER,
	SCRATCH_DIRTY,
	SCRATCH_CLEAN,
	COUNTER,
	CHANGES_CONSTANT,
	OTHER_ROW,
	LATER_ROW,
	READS_LATER_ROW,
	SKIPS_BLOCK,
};
static enum fault fault;
static int calls;

/* residual_out = residual + branch, near enough. */
static int fake_inject(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_inject *a = args;
	float *residual, *y = a->residual_out;

	memcpy(&residual, &a->residual, sizeof residual);
	calls++;
	for (int i = 0; i < COUNT; i++)
		if (fault != SKIPS || i != 17)
			y[i] = a->residual[i] + a->branch[i % D];
	switch (fault) {
	case BEFORE:
		y[-1] = 1.0f;
		break;
	case AFTER:
		y[COUNT] = 1.0f;
		break;
	case FAR_AFTER:
		y[COUNT + 500] = 1.0f;
		break;
	case CHANGES_INPUT:
		residual[5] += 1.0f;
		break;
	case READS_BEYOND:
		y[9] = a->branch[T * D];
		break;
	case RANDOM:
		y[11] = (float)calls;
		break;
	case FAILS:
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "planted");
	case SCRATCH_AFTER: {
		float *scratch = plumb_device_scratch(env, 2, 40);
		scratch[10] = 1.0f;
		break;
	}
	case SCRATCH_DIRTY: {
		float *scratch = plumb_device_scratch(env, 2, 40);
		y[4] = scratch[3];
		break;
	}
	case SCRATCH_CLEAN: {
		float *scratch = plumb_device_scratch(env, 2, 40);
		scratch[9] = y[4];
		y[4] = ((float *)plumb_device_scratch(env, 2, 40))[9];
		break;
	}
	case COUNTER:
		plumb_device_counters(env, 4)[3]++;
		break;
	default:
		break;
	}
	return PLUMB_OK;
}

/* Accumulates into its output instead of storing. */
static int fake_accumulate(const struct plumb_env *env, const void *args)
{
	const struct plumb_hc_inject *a = args;

	(void)env;
	for (int i = 0; i < COUNT; i++)
		a->residual_out[i] = (i == 13 ? a->residual_out[i] : 0.0f) + a->residual[i];
	return PLUMB_OK;
}

/* Block 0, then the filler -1. */
static int fake_select(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_select *a = args;

	(void)env;
	for (int t = 0; t < T; t++) {
		a->count[t] = 1;
		for (int i = 0; i < N; i++)
			if (fault != SKIPS || t != 1 || i != 4)
				a->block[t * N + i] = i ? -1 : 0;
	}
	return PLUMB_OK;
}

static int fake_score(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_score *a = args;
	float row[DI];

	(void)env;
	for (int t = 0; t < T; t++)
		for (int b = 0; b < NB; b++) {
			int complete = (*a->position + t + 1) / B;
			a->score[t * NB + b] = -INFINITY;
			if (b < complete + (fault == READS_LATER_ROW)) {
				plumb_cache_get(a->block_keys, b, row);
				a->score[t * NB + b] = row[2];
			}
		}
	return PLUMB_OK;
}

/* Raw key rows, and the block key of each block that becomes complete. */
static int fake_project(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_project *a = args;
	float row[DI];

	for (int t = 0; t < T; t++) {
		int64_t p = *a->position + t;
		for (int i = 0; i < DI; i++)
			row[i] = a->x[t * D] + (float)i;
		plumb_cache_put(a->raw_keys, p, row);
		if ((p + 1) % B == 0 && fault != SKIPS_BLOCK)
			plumb_cache_put(a->block_keys, p / B, row);
		for (int h = 0; h < DI; h++)
			a->query[t * DI + h] = a->rope[0];
	}
	if (fault == OTHER_ROW) {
		plumb_cache_get(a->raw_keys, 1, row);
		row[3] += 1.0f;
		plumb_cache_put(a->raw_keys, 1, row);
	}
	if (fault == LATER_ROW)
		plumb_cache_put(a->raw_keys, *a->position + T, row);
	if (fault == CHANGES_CONSTANT) {
		float *rope;
		memcpy(&rope, &a->rope, sizeof rope);
		rope[2] += 1.0f;
	}
	(void)env;
	return PLUMB_OK;
}

/* Leaves element 5 of the second raw key as it was. */
static int fake_project_skips(const struct plumb_env *env, const void *args)
{
	const struct plumb_qsa_project *a = args;
	uint16_t *row = plumb_cache_row(a->raw_keys, *a->position + 1), kept = row[5];
	int status = fake_project(env, args);

	row[5] = kept;
	return status;
}

/* ---- the rig ---- */

struct rig {
	struct plumb_config cfg;
	struct plumb_error err;
	struct plumb_set set;
	struct plumb_binding binding;
	struct plumb_env env;
	struct plumb_guard *guard;
	struct plumb_device *device;
	/* data of the ops */
	int32_t position, page[4], block[T * N], count[T];
	float residual[COUNT], branch[T * D], injection[T * S], out[COUNT], query[T * DI], score[T * NB],
		rope[CAPACITY * 2];
	uint16_t raw[CAPACITY * DI], blocks[NB * DI];
	struct plumb_cache raw_keys, block_keys;
	struct plumb_hc_inject inject;
	struct plumb_qsa_select select;
	struct plumb_qsa_score score_args;
	struct plumb_qsa_project project;
};

static struct rig *rig_make(struct plumb_device_options *device)
{
	static struct rig rig;
	struct rig *r = &rig;

	fault = RIGHT;
	calls = 0;
	memset(r, 0, sizeof *r);
	r->cfg.layers = 4;
	r->cfg.streams = S;
	r->cfg.hidden = D;
	r->cfg.index_heads = 1;
	r->cfg.index_dim = DI;
	r->cfg.block_tokens = B;
	r->cfg.block_budget = N;
	r->cfg.rotary_dim = 2;
	r->set.name = "fake";
	r->set.op[PLUMB_HC_INJECT] = fake_inject;
	r->set.op[PLUMB_QSA_SELECT] = fake_select;
	r->set.op[PLUMB_QSA_SCORE] = fake_score;
	r->set.op[PLUMB_QSA_PROJECT] = fake_project;
	ck_assert_int_eq(plumb_guard_create(&r->guard, &r->err), PLUMB_OK);
	if (device) {
		ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, device, &r->device, &r->err), PLUMB_OK);
		ck_assert_int_eq(plumb_guard_watch(r->guard, r->device, &r->err), PLUMB_OK);
	}
	r->binding = (struct plumb_binding){&r->set, r->device};
	r->env = (struct plumb_env){.cfg = &r->cfg, .capacity = CAPACITY, .err = &r->err, .device = r->device};
	for (int i = 0; i < COUNT; i++)
		r->residual[i] = (float)i;
	for (int i = 0; i < T * D; i++)
		r->branch[i] = 100.0f + (float)i;
	for (int i = 0; i < 4; i++)
		r->page[i] = 3 - i; /* shuffled */
	for (int i = 0; i < NB * DI; i++)
		r->blocks[i] = (uint16_t)(0x3f80 + i);
	r->position = 6; /* rows 6 and 7: 7 completes block 1 */
	r->raw_keys = (struct plumb_cache){PLUMB_BF16, r->raw, r->page, 8, DI, CAPACITY, 1.0f};
	r->block_keys = (struct plumb_cache){PLUMB_BF16, r->blocks, r->page, 2, DI, NB, 1.0f};
	r->inject = (struct plumb_hc_inject){T, r->residual, r->branch, r->injection, r->out};
	r->select = (struct plumb_qsa_select){T, &r->position, r->score, r->block, r->count};
	r->score_args = (struct plumb_qsa_score){T, &r->position, r->query, &r->block_keys, r->score};
	static const struct plumb_weight weight;
	r->project = (struct plumb_qsa_project){
		T, &r->position, r->residual, r->rope, &weight, &weight, &weight, r->query, &r->raw_keys, &r->block_keys};
	return r;
}

static int rig_call(struct rig *r, enum plumb_op op, const void *args)
{
	struct plumb_call call = {
		.op = op,
		.layer = 2,
		.position = r->position,
		.T = T,
		.env = &r->env,
		.binding = &r->binding,
		.args = args,
	};
	r->err.text[0] = '\0';
	return plumb_guard_call(r->guard, &call);
}

static void rig_free(struct rig *r)
{
	plumb_guard_destroy(r->guard);
	plumb_device_close(r->device);
}

/* A call in which the fault must be found, at this element of this operand, in words that contain `text`. */
static void expect(struct rig *r, enum plumb_op op, const void *args, enum plumb_guard_fault kind, const char *operand,
	int64_t element, int64_t count, const char *text)
{
	const struct plumb_guard_finding *f = plumb_guard_finding(r->guard);
	int status = rig_call(r, op, args);

	ck_assert_msg(status == PLUMB_MISMATCH, "status %d: %s", status, r->err.text);
	ck_assert_msg(f->fault == kind, "%s: %s", plumb_guard_fault_name(f->fault), r->err.text);
	ck_assert_int_eq(f->op, op);
	ck_assert_int_eq(f->layer, 2);
	if (operand) {
		ck_assert_str_eq(plumb_ops[op].operand[f->operand].name, operand);
		ck_assert_msg(f->element == element, "element %lld: %s", (long long)f->element, r->err.text);
		ck_assert_int_eq(f->count, count);
	}
	ck_assert_msg(strstr(r->err.text, text) != NULL, "'%s' is not in '%s'", text, r->err.text);
}

/* ---- the tests ---- */

START_TEST(a_right_op_passes)
{
	struct rig *r = rig_make(NULL);

	for (int i = 0; i < COUNT; i++)
		r->out[i] = -5.0f;
	ck_assert_msg(rig_call(r, PLUMB_HC_INJECT, &r->inject) == PLUMB_OK, "%s", r->err.text);
	for (int i = 0; i < COUNT; i++)
		ck_assert(r->out[i] == (float)i + 100.0f + (float)(i % D));
	ck_assert_int_eq(calls, 2);
	ck_assert_int_eq(plumb_guard_finding(r->guard)->fault, PLUMB_GUARD_NONE);
	ck_assert_msg(rig_call(r, PLUMB_QSA_SELECT, &r->select) == PLUMB_OK, "%s", r->err.text);
	ck_assert_int_eq(r->block[0], 0);
	ck_assert_int_eq(r->block[N - 1], -1);
	ck_assert_msg(rig_call(r, PLUMB_QSA_SCORE, &r->score_args) == PLUMB_OK, "%s", r->err.text);
	ck_assert(isinf(r->score[NB - 1]));
	rig_free(r);
}
END_TEST

/* What the call wrote goes back, and nothing else. */
START_TEST(caches_pass)
{
	struct rig *r = rig_make(NULL);
	uint16_t raw[CAPACITY * DI], blocks[NB * DI];

	for (int i = 0; i < CAPACITY * DI; i++)
		r->raw[i] = (uint16_t)i;
	ck_assert_msg(rig_call(r, PLUMB_QSA_PROJECT, &r->project) == PLUMB_OK, "%s", r->err.text);
	memcpy(raw, r->raw, sizeof raw);
	memcpy(blocks, r->blocks, sizeof blocks);
	rig_free(r);
	r = rig_make(NULL);
	for (int i = 0; i < CAPACITY * DI; i++)
		r->raw[i] = (uint16_t)i;
	ck_assert_int_eq(fake_project(&r->env, &r->project), PLUMB_OK);
	ck_assert_mem_eq(raw, r->raw, sizeof raw);
	ck_assert_mem_eq(blocks, r->blocks, sizeof blocks);
	rig_free(r);
}
END_TEST

START_TEST(an_element_left_unwritten)
{
	struct rig *r = rig_make(NULL);

	fault = SKIPS;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_UNWRITTEN, "residual_out", 17, 1,
		"hc_inject in layer 2 did not write residual_out[1, 1, 1] (1 of 24 elements, shape T S D)");
	expect(r, PLUMB_QSA_SELECT, &r->select, PLUMB_GUARD_UNWRITTEN, "block", 9, 1,
		"qsa_select in layer 2 did not write block[1, 4] (1 of 10 elements, shape T N)");
	r->set.op[PLUMB_QSA_PROJECT] = fake_project_skips;
	fault = RIGHT;
	expect(r, PLUMB_QSA_PROJECT, &r->project, PLUMB_GUARD_UNWRITTEN, "raw_keys", 7 * DI + 5, 1, "raw_keys[7, 5]");
	r->set.op[PLUMB_QSA_PROJECT] = fake_project;
	fault = SKIPS_BLOCK;
	expect(r, PLUMB_QSA_PROJECT, &r->project, PLUMB_GUARD_UNWRITTEN, "block_keys", DI, DI, "block_keys[1, 0]");
	rig_free(r);
}
END_TEST

START_TEST(writes_outside)
{
	struct rig *r = rig_make(NULL);

	fault = BEFORE;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_OUTSIDE, "residual_out", -1, 1,
		"wrote before residual_out: element -1 of 24");
	fault = AFTER;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_OUTSIDE, "residual_out", COUNT, 1,
		"wrote after residual_out: element 24 of 24 (0 bytes after the last)");
	fault = FAR_AFTER;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_OUTSIDE, "residual_out", COUNT + 500, 1, "element 524 of 24");
	rig_free(r);
}
END_TEST

START_TEST(inputs_and_rows_that_change)
{
	struct rig *r = rig_make(NULL);
	uint16_t before[CAPACITY * DI];

	fault = CHANGES_INPUT;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_INPUT_CHANGED, "residual", 5, 1,
		"changed its input residual[0, 1, 1]");
	ck_assert(r->residual[5] == 5.0f); /* the real one is safe */
	memcpy(before, r->raw, sizeof before);
	fault = OTHER_ROW;
	expect(r, PLUMB_QSA_PROJECT, &r->project, PLUMB_GUARD_ROW_CHANGED, "raw_keys", DI + 3, 1,
		"changed cache row 1: raw_keys[1, 3]");
	fault = LATER_ROW;
	expect(r, PLUMB_QSA_PROJECT, &r->project, PLUMB_GUARD_ROW_CHANGED, "raw_keys", 8 * DI, 1, "its rows are 6..7");
	ck_assert_mem_eq(before, r->raw, sizeof before);
	fault = CHANGES_CONSTANT;
	expect(r, PLUMB_QSA_PROJECT, &r->project, PLUMB_GUARD_INPUT_CHANGED, NULL, 0, 0, "changed one of its constants");
	rig_free(r);
}
END_TEST

START_TEST(memory_that_nobody_wrote)
{
	struct rig *r = rig_make(NULL);

	r->set.op[PLUMB_HC_INJECT] = fake_accumulate;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_DIRTY_READ, "residual_out", 13, 1,
		"computed with what its output held before instead of storing: residual_out[1, 0, 1]");
	r->set.op[PLUMB_HC_INJECT] = fake_inject;
	fault = READS_BEYOND;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_DIRTY_READ, "residual_out", 9, 1, "beyond an operand");
	fault = READS_LATER_ROW;
	/* row 6 has one complete block and looks at a second, which row 7 has completed: only row 7 goes too far */
	expect(r, PLUMB_QSA_SCORE, &r->score_args, PLUMB_GUARD_DIRTY_READ, "score", NB + 2, 1, "score[1, 2]");
	rig_free(r);
}
END_TEST

START_TEST(other_bits_each_time)
{
	struct rig *r = rig_make(NULL);

	fault = RANDOM;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_NONDETERMINISTIC, "residual_out", 11, 1, "is not deterministic");
	rig_free(r);
}
END_TEST

START_TEST(failures_pass_through)
{
	struct rig *r = rig_make(NULL);

	fault = FAILS;
	ck_assert_int_eq(rig_call(r, PLUMB_HC_INJECT, &r->inject), PLUMB_BAD_INPUT);
	ck_assert_str_eq(r->err.text, "planted");
	fault = RIGHT;
	r->inject.residual_out = NULL;
	ck_assert_int_eq(rig_call(r, PLUMB_HC_INJECT, &r->inject), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r->err.text, "operand residual_out is NULL") != NULL, "%s", r->err.text);
	rig_free(r);
}
END_TEST

/* The contract allows hc_inject to work in place. */
START_TEST(in_place)
{
	struct rig *r = rig_make(NULL);

	r->inject.residual_out = r->residual;
	ck_assert_msg(rig_call(r, PLUMB_HC_INJECT, &r->inject) == PLUMB_OK, "%s", r->err.text);
	for (int i = 0; i < COUNT; i++)
		ck_assert(r->residual[i] == (float)i + 100.0f + (float)(i % D));
	rig_free(r);
}
END_TEST

START_TEST(scratch_and_counters)
{
	struct rig *r = rig_make(&(struct plumb_device_options){0});

	ck_assert_int_eq(plumb_device_poisoned(r->device), PLUMB_POISON_OFF);
	fault = SCRATCH_CLEAN;
	ck_assert_msg(rig_call(r, PLUMB_HC_INJECT, &r->inject) == PLUMB_OK, "%s", r->err.text);
	fault = SCRATCH_DIRTY;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_DIRTY_READ, "residual_out", 4, 1, "scratch");
	fault = SCRATCH_AFTER;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_DEVICE, NULL, 0, 0, "wrote outside scratch slot 2");
	fault = COUNTER;
	expect(r, PLUMB_HC_INJECT, &r->inject, PLUMB_GUARD_DEVICE, NULL, 0, 0, "left counter 3 at 1");
	ck_assert_int_eq(plumb_device_poisoned(r->device), PLUMB_POISON_OFF);
	rig_free(r);
}
END_TEST

/* Whole decodes: 0 the reference, 1 kernels on host memory, 2 kernels on memory of their own; and again with the other
 * policy, but with sanitizers. */
#ifdef __SANITIZE_ADDRESS__
enum { DECODES = 3 };
#else
enum { DECODES = 6 };
#endif

START_TEST(real_sets_pass_and_keep_their_bits)
{
	const int which = _i % 3;
	struct plumb_checkpoint *c = decode_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct plumb_decoder_options options = {.capacity = 64,
		.page_tokens = 8,
		.page_seed = 3,
		.traces = true,
		.policy = _i & 1 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32};
	struct plumb_device_options device_options = {.own_memory = which == 2, .seed = 11};
	struct plumb_device *device = NULL;
	const struct plumb_set *set = &plumb_ref_oracle;
	struct plumb_guard *guard = NULL;
	struct plumb_error err = {""};
	int32_t token[19];

	if (which) {
		ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, &device_options, &device, &err), PLUMB_OK);
		set = plumb_device_set(device);
	}
	ck_assert_int_eq(plumb_guard_create(&guard, &err), PLUMB_OK);
	if (device)
		ck_assert_int_eq(plumb_guard_watch(guard, device, &err), PLUMB_OK);
	struct plumb_decoder *a = decode_create(model, set, device, &options);
	struct plumb_decoder *b = decode_create(model, set, device, &options);
	struct plumb_runner runner = plumb_guard_runner(guard);
	plumb_decoder_run_through(b, &runner);
	for (int t = 0; t < 19; t++)
		token[t] = decode_token(&model->cfg, t);
	for (int t = 0; t < 19; t += t ? 1 : 17) {
		decode_step(a, token + t, t ? 1 : 17);
		decode_step(b, token + t, t ? 1 : 17);
		ck_assert_msg(decode_logits(a) == decode_logits(b), "token %d: the logits differ", t);
		ck_assert_msg(decode_state(a) == decode_state(b), "token %d: the state differs", t);
	}
	plumb_decoder_destroy(a);
	plumb_decoder_destroy(b);
	plumb_guard_destroy(guard);
	plumb_device_close(device);
	plumb_checkpoint_close(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("guard");
	TCase *t = suite_part(s, "planted", 60);

	tcase_add_test(t, a_right_op_passes);
	tcase_add_test(t, caches_pass);
	tcase_add_test(t, an_element_left_unwritten);
	tcase_add_test(t, writes_outside);
	tcase_add_test(t, inputs_and_rows_that_change);
	tcase_add_test(t, memory_that_nobody_wrote);
	tcase_add_test(t, other_bits_each_time);
	tcase_add_test(t, failures_pass_through);
	tcase_add_test(t, in_place);
	tcase_add_test(t, scratch_and_counters);
	t = suite_part(s, "decodes", 300);
	tcase_add_loop_test(t, real_sets_pass_and_keep_their_bits, 0, DECODES);
	return suite_run(s);
}
