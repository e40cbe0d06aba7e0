/* SPDX-License-Identifier: MIT */
/* Devices: what opening says, what stage code gets from them, and that memory of its own changes no bit. */
#include <check.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "core/ops/lm_head.h"
#include "opt/device.h"
#include "opt/mirror.h"
#include "opt/opt.h"
#include "opt/trap.h"
#include "tests/support/decode.h"
#include "tests/support/suite.h"

static struct plumb_error err;

static struct plumb_device *open_simt(struct plumb_device_options options)
{
	struct plumb_device *d = NULL;
	ck_assert_msg(plumb_device_open(PLUMB_DEVICE_SIMT, &options, &d, &err) == PLUMB_OK, "%s", err.text);
	return d;
}

START_TEST(opening_says_what_it_is)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){.seed = 17});

	ck_assert_str_eq(plumb_device_name(d), "simt");
	ck_assert_str_eq(plumb_device_description(d), "simt, seed 17");
	ck_assert(!plumb_device_is_cuda(d));
	ck_assert_ptr_nonnull(plumb_device_stream(d));
	ck_assert_ptr_eq(plumb_device_set(d), &plumb_opt_set);
	plumb_device_close(d);
	d = open_simt((struct plumb_device_options){.own_memory = true});
	ck_assert_str_eq(plumb_device_description(d), "simt, seed 0, own memory");
	ck_assert_ptr_eq(plumb_device_set(d), &plumb_opt_mirrored_set);
	plumb_device_close(d);
	plumb_device_close(NULL);
	d = NULL;
#ifdef PLUMB_RACE
	d = open_simt((struct plumb_device_options){.race = true});
	ck_assert_str_eq(plumb_device_description(d), "simt, seed 0, race check");
	ck_assert(plumb_device_is_race(d));
#else
	struct plumb_device_options race = {.race = true};
	ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, &race, &d, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "no race check") != NULL, "%s", err.text);
#endif
	plumb_device_close(d);
}
END_TEST

/* The status is the program's exit status 3, and the message says whether the build or the machine lacks it. */
START_TEST(no_such_gpu)
{
	struct plumb_device_options options = {.ordinal = 1000};
	struct plumb_device *d = NULL;

	ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_CUDA, &options, &d, &err), PLUMB_NO_DEVICE);
	ck_assert_int_eq(PLUMB_NO_DEVICE, 3);
	ck_assert_ptr_null(d);
#ifdef PLUMB_HAVE_CUDA
	ck_assert_msg(strstr(err.text, "no usable GPU") || strstr(err.text, "GPU 1000 was asked"), "%s", err.text);
#else
	ck_assert_msg(strstr(err.text, "built without cuda") != NULL, "%s", err.text);
#endif
	options.ordinal = 0;
	int status = plumb_device_open(PLUMB_DEVICE_CUDA, &options, &d, &err);
	ck_assert_msg(status == PLUMB_OK || status == PLUMB_NO_DEVICE, "%s", err.text);
	plumb_device_close(d);
}
END_TEST

START_TEST(scratch_stays)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){.own_memory = _i == 1});
	struct plumb_env env = {.err = &err, .device = d};
	unsigned char *first[8], *again;

	for (int slot = 0; slot < 8; slot++) {
		first[slot] = plumb_device_scratch(&env, slot, 1000);
		ck_assert_ptr_nonnull(first[slot]);
		ck_assert_uint_eq((uintptr_t)first[slot] % 256, 0);
		memset(first[slot], slot, 1000);
	}
	for (int slot = 0; slot < 8; slot++) {
		ck_assert_ptr_eq(plumb_device_scratch(&env, slot, 10), first[slot]);
		for (int i = 0; i < 1000; i++)
			ck_assert_int_eq(first[slot][i], slot);
	}
	/* grown: what a graph recorded with the old address still may touch it */
	again = plumb_device_scratch(&env, 3, 1 << 20);
	ck_assert_ptr_ne(again, first[3]);
	memset(again, 1, 1 << 20);
	memset(first[3], 2, 1000);
	ck_assert_ptr_eq(plumb_device_scratch(&env, 3, 1000), again);
	ck_assert_ptr_null(plumb_device_scratch(&env, 8, 1));
	ck_assert_msg(strstr(err.text, "slot 8, expected 0..7") != NULL, "%s", err.text);
	plumb_device_close(d);
}
END_TEST

START_TEST(scratch_is_poisoned_once_an_op)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){.poison = PLUMB_POISON_NAN});
	struct plumb_env env = {.err = &err, .device = d};
	float *x = plumb_device_scratch(&env, 0, 100 * sizeof *x), *y;

	for (int i = 0; i < 100; i++)
		ck_assert(x[i] != x[i]);
	x[7] = 1.0f;
	y = plumb_device_scratch(&env, 0, 100 * sizeof *x);
	ck_assert_ptr_eq(x, y);
	ck_assert(y[7] == 1.0f); /* the same op: its own values */
	ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_OK);
	plumb_device_poison(d, PLUMB_POISON_LARGE, "gdn_conv");
	y = plumb_device_scratch(&env, 0, 100 * sizeof *x);
	for (int i = 0; i < 100; i++)
		ck_assert_msg(y[i] > 7e29f && y[i] < 2e30f, "element %d is %g", i, (double)y[i]);
	y[100] = 0.0f;
	ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_MISMATCH);
	ck_assert_msg(
		strstr(err.text, "gdn_conv wrote outside scratch slot 0 on simt: 1 bytes after its last byte") != NULL,
		"%s", err.text);
	plumb_device_poison(d, PLUMB_POISON_LARGE, "gdn_conv");
	y = plumb_device_scratch(&env, 0, 100 * sizeof *x);
	y[-1] = 0.0f;
	ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_MISMATCH);
	ck_assert_msg(strstr(err.text, "before its first byte") != NULL, "%s", err.text);
	plumb_device_close(d);
}
END_TEST

/* Whether a byte can be read, asked of the kernel, which says no without a signal. */
static bool is_readable(const void *at)
{
	int ends[2];
	ck_assert_int_eq(pipe(ends), 0);
	const bool read = write(ends[1], at, 1) == 1;
	ck_assert(read || errno == EFAULT);
	close(ends[0]);
	close(ends[1]);
	return read;
}

/* Whatever is asked for ends at a page that traps, but for what 16 bytes leave, which is a zone; an op's own requests do not move it. */
START_TEST(scratch_ends_where_memory_traps)
{
	static const size_t sizes[] = {4, 12, 16, 400, 404, 4096, 70000, 8, 5000000, 256, 40};
	struct plumb_device *d =
		open_simt((struct plumb_device_options){.poison = PLUMB_POISON_NAN, .traps = true, .own_memory = _i == 1});
	struct plumb_env env = {.err = &err, .device = d};
	char text[256];
	const unsigned char *end = NULL;

	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		const size_t n = sizes[i] / 4;
		plumb_device_poison(d, i % 2 ? PLUMB_POISON_NAN : PLUMB_POISON_LARGE, "gdn_conv");
		float *x = plumb_device_scratch(&env, 2, sizes[i]);
		ck_assert_ptr_nonnull(x);
		ck_assert_uint_eq((uintptr_t)x % (sizes[i] % 256 == 0 ? 256 : 16), 0);
		ck_assert(i % 2 ? x[n - 1] != x[n - 1] : x[n - 1] > 7e29f);
		x[n - 1] = 1.0f;
		ck_assert_ptr_eq(plumb_device_scratch(&env, 2, 4), x);
		ck_assert(x[n - 1] == 1.0f);
		end = (const unsigned char *)x + (sizes[i] + 15) / 16 * 16;
		ck_assert(is_readable(end - 1) && !is_readable(end));
		ck_assert(plumb_trap_tell(x + n, 0, text, sizeof text));
		ck_assert_str_eq(text, "read after scratch slot 2: 0 bytes after the last");
		ck_assert_msg(plumb_device_check(d, &err) == PLUMB_OK, "%s", err.text);
		if (sizes[i] % 16) { /* what is left before the page */
			x[n] = 0.0f;
			ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_MISMATCH);
			ck_assert_ptr_nonnull(strstr(err.text, "1 bytes after its last byte"));
			plumb_device_poison(d, PLUMB_POISON_LARGE, "gdn_conv");
			x = plumb_device_scratch(&env, 2, sizes[i]);
		}
		x[-1] = 0.0f;
		ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_MISMATCH);
		ck_assert_ptr_nonnull(strstr(err.text, "before its first byte"));
	}
	plumb_device_close(d);
	ck_assert(!plumb_trap_tell(end, 0, text, sizeof text));
}
END_TEST

START_TEST(counters_are_zero_and_must_be_left_so)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){0});
	struct plumb_env env = {.err = &err, .device = d};
	uint32_t *c = plumb_device_counters(&env, 16);

	for (int i = 0; i < 16; i++)
		ck_assert_uint_eq(c[i], 0);
	ck_assert_ptr_eq(plumb_device_counters(&env, 8), c);
	plumb_device_poison(d, PLUMB_POISON_NAN, "moe_down");
	c[5] = 2;
	ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_MISMATCH);
	ck_assert_msg(strstr(err.text, "moe_down left counter 5 at 2") != NULL, "%s", err.text);
	c[5] = 0;
	ck_assert_int_eq(plumb_device_check(d, &err), PLUMB_OK);
	c = plumb_device_counters(&env, 100000);
	for (int i = 0; i < 100000; i++)
		ck_assert_uint_eq(c[i], 0);
	plumb_device_close(d);
}
END_TEST

START_TEST(banks)
{
	static float data[4][12];
	struct plumb_device *d = open_simt((struct plumb_device_options){0});
	struct plumb_env env = {.err = &err, .device = d};
	struct plumb_weight bank[4];
	struct plumb_device_bank a, b;

	for (int i = 0; i < 4; i++)
		bank[i] = (struct plumb_weight){.format = PLUMB_F32, .rows = 3, .cols = 4, .data = data[i]};
	bank[3].rows = 2; /* the last shard may be short */
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &a), PLUMB_OK);
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &b), PLUMB_OK);
	ck_assert_ptr_eq(a.matrices.data, b.matrices.data);
	ck_assert_int_eq(a.matrices.format, PLUMB_F32);
	ck_assert_int_eq(a.rows, 3);
	ck_assert_int_eq(a.cols, 4);
	for (int i = 0; i < 4; i++)
		ck_assert_ptr_eq(a.matrices.data[i], data[i]);
	/* another bank at the same address */
	bank[1].data = data[0];
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &b), PLUMB_OK);
	ck_assert_ptr_eq(b.matrices.data[1], data[0]);
	ck_assert_int_eq(plumb_device_bank(&env, bank, 2, &b), PLUMB_OK);

	bank[2].format = PLUMB_BF16;
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &b), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "matrix 2 of a bank is stored as bf16, matrix 0 as f32") != NULL, "%s", err.text);
	bank[2].format = PLUMB_F32;
	bank[2].cols = 5;
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &b), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "matrix 2 of a bank has 5 columns, matrix 0 has 4") != NULL, "%s", err.text);
	bank[2].cols = 4;
	bank[2].rows = 2;
	ck_assert_int_eq(plumb_device_bank(&env, bank, 4, &b), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "matrix 2 of a bank has 2 rows") != NULL, "%s", err.text);
	ck_assert_int_eq(plumb_device_bank(&env, bank, 0, &b), PLUMB_BAD_INPUT);
	plumb_device_close(d);
}
END_TEST

START_TEST(status_in_words)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){0});
	struct plumb_env env = {.err = &err, .device = d};

	ck_assert_int_eq(plumb_device_status(&env, "linear", 0), PLUMB_OK);
	ck_assert_int_eq(plumb_device_status(&env, "linear", 1), PLUMB_BAD_INPUT); /* PLUMB_SIMT_REFUSED */
	ck_assert_msg(strstr(err.text, "linear on simt: ") == err.text, "%s", err.text);
	plumb_device_poison(d, PLUMB_POISON_OFF, "lm_head");
	ck_assert_int_eq(plumb_device_status(&env, "linear", 2), PLUMB_MISMATCH); /* PLUMB_SIMT_FAULT */
	ck_assert_msg(strstr(err.text, "lm_head on simt, launch of linear: ") == err.text, "%s", err.text);
	plumb_device_close(d);
}
END_TEST

START_TEST(the_clock_runs)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){0});
	double us = -1.0;

	ck_assert_int_eq(plumb_device_time_begin(d, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_device_time_end(d, &us, &err), PLUMB_OK);
	ck_assert(us >= 0.0 && us < 1e6);
	plumb_device_close(d);
}
END_TEST

/* Copied calls: one pass of many rows, then single tokens, across blocks, pages and the QSA budget, give the bits that
 * the same kernels give on host memory. */
START_TEST(own_memory_changes_no_bit)
{
	struct plumb_checkpoint *c = decode_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct plumb_decoder_options options = {.capacity = 64,
		.page_tokens = 8,
		.page_seed = 5,
		.traces = true,
		.policy = _i & 1 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32};
	struct plumb_device *host = open_simt((struct plumb_device_options){0});
	struct plumb_device *own = open_simt(
		(struct plumb_device_options){.own_memory = true, .poison = _i & 2 ? PLUMB_POISON_NAN : PLUMB_POISON_OFF});
	struct plumb_decoder *a = decode_create(model, plumb_device_set(host), host, &options);
	struct plumb_decoder *b = decode_create(model, plumb_device_set(own), own, &options);
	int32_t token[21];

	for (int t = 0; t < 21; t++)
		token[t] = decode_token(&model->cfg, t);
	for (int t = 0; t < 21; t += t ? 1 : 18) {
		decode_step(a, token + t, t ? 1 : 18);
		decode_step(b, token + t, t ? 1 : 18);
		ck_assert_msg(decode_logits(a) == decode_logits(b), "token %d: the logits differ", t);
		ck_assert_msg(decode_state(a) == decode_state(b), "token %d: the state differs", t);
	}
	plumb_decoder_destroy(a);
	plumb_decoder_destroy(b);
	plumb_device_close(own);
	plumb_device_close(host);
	plumb_checkpoint_close(c);
}
END_TEST

/* y = x[0] * w[0], whatever the shapes, on memory of the device. */
static int first_product(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	const float *w = a->w->data;

	for (int64_t i = 0; i < a->T * env->cfg->vocab; i++)
		a->logits[i] = a->x[0] * w[0];
	return PLUMB_OK;
}

static int writes_outside(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	int status = first_product(env, args);

	a->logits[a->T * env->cfg->vocab] = 3.0f;
	return status;
}

static int writes_its_input(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	float *x;

	memcpy(&x, &a->x, sizeof x);
	x[0] = 5.0f;
	return first_product(env, args);
}

struct product {
	struct plumb_config cfg;
	float x[4], w[12], logits[3];
	struct plumb_weight weight;
	struct plumb_lm_head args;
	struct plumb_env env;
};

static void product_make(struct product *p, struct plumb_device *device)
{
	memset(p, 0, sizeof *p);
	p->cfg.vocab = 3;
	p->cfg.hidden = 4;
	p->cfg.block_tokens = 1;
	p->x[0] = 2.0f;
	p->w[0] = 3.0f;
	p->weight = (struct plumb_weight){.format = PLUMB_F32, .rows = 3, .cols = 4, .data = p->w};
	p->args = (struct plumb_lm_head){.T = 1, .x = p->x, .w = &p->weight, .logits = p->logits};
	p->env = (struct plumb_env){.cfg = &p->cfg, .capacity = 8, .err = &err, .device = device};
}

/* A weight is kept by address; new bytes there must not go unseen. */
START_TEST(changed_weights_are_seen)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){.own_memory = true});
	struct product p;

	product_make(&p, d);
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, first_product, &p.args), PLUMB_OK);
	ck_assert(p.logits[2] == 6.0f);
	p.w[0] = 4.0f;
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, first_product, &p.args), PLUMB_OK);
	ck_assert(p.logits[2] == 8.0f);
	ck_assert_int_eq(plumb_device_forget(d, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, first_product, &p.args), PLUMB_OK);
	ck_assert(p.logits[2] == 8.0f);
	plumb_device_close(d);
}
END_TEST

/* With poison on, the device's own buffers have zones, and inputs there are checked. */
START_TEST(faults_in_device_memory_are_named)
{
	struct plumb_device *d = open_simt(
		(struct plumb_device_options){.own_memory = true, .poison = _i ? PLUMB_POISON_NAN : PLUMB_POISON_LARGE});
	struct product p;

	product_make(&p, d);
	ck_assert_msg(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, first_product, &p.args) == PLUMB_OK, "%s", err.text);
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, writes_outside, &p.args), PLUMB_MISMATCH);
	ck_assert_msg(strstr(err.text, "lm_head wrote outside logits on simt: 1 bytes after its last byte (of 12)") != NULL,
		"%s", err.text);
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, writes_its_input, &p.args), PLUMB_MISMATCH);
	ck_assert_msg(strstr(err.text, "lm_head changed its input x on simt") != NULL, "%s", err.text);
	ck_assert(p.x[0] == 2.0f);
	p.args.x = NULL;
	ck_assert_int_eq(plumb_mirror_run(&p.env, PLUMB_LM_HEAD, first_product, &p.args), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "lm_head: operand x is NULL") != NULL, "%s", err.text);
	plumb_device_close(d);
}
END_TEST

/* Upload once, launch often, for timing. */
START_TEST(prepared_arguments)
{
	struct plumb_device *d = open_simt((struct plumb_device_options){.own_memory = _i == 1});
	struct product p;
	const void *args = NULL;

	product_make(&p, d);
	ck_assert_int_eq(plumb_mirror_prepare(&p.env, PLUMB_LM_HEAD, &p.args, &args), PLUMB_OK);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(first_product(&p.env, args), PLUMB_OK);
	ck_assert(((const struct plumb_lm_head *)args)->logits[1] == 6.0f);
	ck_assert(p.logits[1] == (_i ? 0.0f : 6.0f));
	plumb_device_close(d);
}
END_TEST

/* Limits of opt/mirror.c and opt/guard.c. */
START_TEST(the_table_fits)
{
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		ck_assert_int_le(plumb_ops[op].operands, 16);
		ck_assert_uint_le(plumb_ops[op].args_size, 256);
		ck_assert_ptr_nonnull(plumb_opt_set.op[op]);
		ck_assert_ptr_nonnull(plumb_opt_mirrored_set.op[op]);
	}
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device");
	TCase *t = suite_part(s, "device", 120);

	tcase_add_test(t, opening_says_what_it_is);
	tcase_add_test(t, no_such_gpu);
	tcase_add_loop_test(t, scratch_stays, 0, 2);
	tcase_add_test(t, scratch_is_poisoned_once_an_op);
	tcase_add_loop_test(t, scratch_ends_where_memory_traps, 0, 2);
	tcase_add_test(t, counters_are_zero_and_must_be_left_so);
	tcase_add_test(t, banks);
	tcase_add_test(t, status_in_words);
	tcase_add_test(t, the_clock_runs);
	tcase_add_loop_test(t, own_memory_changes_no_bit, 0, 4);
	tcase_add_test(t, changed_weights_are_seen);
	tcase_add_loop_test(t, faults_in_device_memory_are_named, 0, 2);
	tcase_add_loop_test(t, prepared_arguments, 0, 2);
	tcase_add_test(t, the_table_fits);
	return suite_run(s);
}
