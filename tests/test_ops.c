/* SPDX-License-Identifier: MIT */
/* Every op of the table in every implementation, a few cases of each class and of each format: what `plumb test` runs, and
 * with its lines. A failure prints the command that replays it. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/gdn.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial_judge.h"

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 4, FORMAT_SEEDS = 1 }; /* the sanitizers cost a factor of ten */
#else
enum { SEEDS = 32, FORMAT_SEEDS = 6 };
#endif
#ifdef PLUMB_TEST_GPU
#define KIND PLUMB_DEVICE_CUDA
#else
#define KIND PLUMB_DEVICE_SIMT
#endif

static struct trial_devices devices;
static struct plumb_device *device[1]; /* of the planted faults */

static int open_devices(void)
{
	struct plumb_device_options options = {.poison = PLUMB_POISON_NAN};
	struct plumb_error error;
	int status = plumb_device_open(KIND, &options, &device[0], &error);
	if (status != PLUMB_OK)
		printf("%s%s\n", status == PLUMB_NO_DEVICE ? "SKIP test_ops_cuda: " : "test_ops: ", error.text);
	return status;
}

static bool passes(const struct trial_spec *spec, struct plumb_bound_result *bounds, double *worst)
{
	static struct trial_report report;
	struct plumb_user_mark mark = {0};
	const struct trial_candidate opt = {.mark = &mark};
	char line[TRIAL_LINE];

	memset(&report, 0, sizeof report);
	trial_judge(spec, &opt, &devices, spec->class == trial_class(0) ? bounds : NULL, &report);
	*worst = report.ratio > *worst ? report.ratio : *worst;
	if (report.status != PLUMB_OK)
		printf("%s\n  plumb test --case \"%s\"\n", report.text, trial_spec_show(spec, line));
	return report.status == PLUMB_OK;
}

/* The classes take turns; every second case is plain. */
static const struct trial_class *class_of(enum plumb_op op, int turn)
{
	int applying = 0, k;

	for (k = 1; trial_class(k); k++) /* pages that far apart are no memory to copy to a GPU */
		applying += trial_class_applies(trial_class(k), op) && trial_class(k)->shape != trial_shape_offsets;
	turn = turn % 2 ? turn / 2 % applying : -1;
	for (k = 0; turn >= 0;
		turn -= trial_class_applies(trial_class(k), op) && trial_class(k)->shape != trial_shape_offsets)
		k++;
	return trial_class(k);
}

START_TEST(random_cases)
{
	struct plumb_bound_result bounds;
	char text[256];
	double worst = 0.0;
	int failed = 0;

	plumb_bound_begin(&bounds, (enum plumb_op)_i);
	for (int i = 0; i < SEEDS; i++) {
		struct trial_spec spec = trial_spec_of((enum plumb_op)_i);
		spec.class = class_of((enum plumb_op)_i, i);
		spec.seed = (uint64_t)i;
		spec.device = KIND;
		failed += !passes(&spec, &bounds, &worst);
	}
	printf("%-16s %3d cases, largest error of the twin %.4f of the bound\n", plumb_ops[_i].name, SEEDS, worst);
	ck_assert_msg(plumb_bound_passes(&bounds, text, sizeof text), "%s: %s", plumb_ops[_i].name, text);
	ck_assert_msg(failed == 0, "%s: %d of %d cases fail", plumb_ops[_i].name, failed, SEEDS);
}
END_TEST

/* Every op that has a matrix, all its matrices in one format: each format in turn. */
START_TEST(every_format)
{
	const struct plumb_op_info *info = &plumb_ops[_i];
	bool has_matrix = false;
	struct plumb_bound_result bounds;
	char text[256];
	double worst = 0.0;
	int failed = 0, cases = 0;

	for (int i = 0; i < info->operands; i++)
		has_matrix |= info->operand[i].role == PLUMB_WEIGHT && !trial_is_vector(&info->operand[i]);
	if (!has_matrix)
		return;
	plumb_bound_begin(&bounds, (enum plumb_op)_i);
	for (int format = 0; format < PLUMB_FORMAT_COUNT; format++)
		for (int seed = 0; seed < FORMAT_SEEDS; seed++, cases++) {
			struct trial_spec spec = trial_spec_of((enum plumb_op)_i);
			spec.class = trial_class(0);
			spec.formats[TRIAL_OF_MATRICES] = 1u << format;
			spec.seed = (uint64_t)(1000 + 100 * format + seed);
			spec.device = KIND;
			failed += !passes(&spec, &bounds, &worst);
		}
	ck_assert_msg(plumb_bound_passes(&bounds, text, sizeof text), "%s: %s", info->name, text);
	ck_assert_msg(failed == 0, "%s: %d of %d cases fail", info->name, failed, cases);
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

static int scale_changed(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_down *a = args;
	int status = moe_down_twin(env, args);
	memset((void *)(uintptr_t)a->down[env->cfg->experts - 1].scale, 0x11, 1);
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

/* Readers of stored weights that have each been somebody's bug: the twin, given weights that make up for it. */
enum reader { NIBBLES_SWAPPED, NEXT_SCALE, PREVIOUS_ROW_SCALE, GLOBAL_TWICE, NO_GLOBAL, NO_SCALE, SCALES_TRANSPOSED };

static unsigned char *misread_scales(const struct plumb_weight *w, enum reader reader, size_t row_scales)
{
	size_t bytes = plumb_weight_scale_bytes(w);
	size_t unit = w->format == PLUMB_NVFP4 ? 1 : plumb_format_row_bytes(w->scale_format, 1), n = bytes / unit;
	const unsigned char *from = w->scale;
	unsigned char *scale = malloc(bytes);
	float one = 1.0f;

	ck_assert_ptr_nonnull(scale);
	for (size_t i = 0; i < n; i++) {
		size_t source = i;
		if (reader == NEXT_SCALE)
			source = (i + 1) % n;
		if (reader == PREVIOUS_ROW_SCALE)
			source = (i + n - row_scales) % n;
		if (reader == SCALES_TRANSPOSED)
			source = i % row_scales * (n / row_scales) + i / row_scales;
		memcpy(scale + i * unit, from + source * unit, unit);
		if (reader == NO_SCALE && w->format == PLUMB_NVFP4)
			scale[i] = 0x38; /* 1 */
		else if (reader == NO_SCALE)
			plumb_encode(w->scale_format, &one, 1, scale + i * unit);
	}
	return scale;
}

static int misread(const struct plumb_env *env, const struct plumb_lm_head *a, enum reader reader)
{
	struct plumb_weight w = *a->w;
	struct plumb_lm_head other = *a;
	size_t bytes = plumb_weight_data_bytes(&w);
	size_t columns = w.format == PLUMB_NVFP4       ? PLUMB_NVFP4_GROUP
	                 : w.format == PLUMB_FP8_BLOCK ? PLUMB_FP8_BLOCK_SIZE
	                                               : 0;
	unsigned char *data = malloc(bytes), *scale = NULL;
	int status;

	ck_assert_ptr_nonnull(data);
	memcpy(data, w.data, bytes);
	w.data = data;
	for (size_t i = 0; reader == NIBBLES_SWAPPED && i < bytes; i++)
		data[i] = (unsigned char)(data[i] << 4 | data[i] >> 4);
	w.global = reader == GLOBAL_TWICE ? w.global * w.global : reader == NO_GLOBAL ? 1.0f : w.global;
	if (w.scale)
		w.scale = scale = misread_scales(&w, reader, columns ? ((size_t)w.cols + columns - 1) / columns : 1);
	other.w = &w;
	status = lm_head_twin(env, &other);
	free(data);
	free(scale);
	return status;
}

#define READER(name, reader)                                                                                               \
	static int name(const struct plumb_env *env, const void *args)                                                     \
	{                                                                                                                  \
		return misread(env, args, reader);                                                                         \
	}
READER(nibbles_swapped, NIBBLES_SWAPPED)
READER(next_scale, NEXT_SCALE)
READER(previous_row_scale, PREVIOUS_ROW_SCALE)
READER(global_twice, GLOBAL_TWICE)
READER(no_global, NO_GLOBAL)
READER(no_scale, NO_SCALE)
READER(scales_transposed, SCALES_TRANSPOSED)

/* The data one column or one byte on. */
static int next_code(const struct plumb_env *env, const void *args)
{
	const struct plumb_lm_head *a = args;
	struct plumb_weight w = *a->w;
	struct plumb_lm_head other = *a;
	w.data = (const unsigned char *)w.data + 1; /* what lies behind the last is in the guard zone */
	other.w = &w;
	return lm_head_twin(env, &other);
}

/* One expert's global scale for all. */
static int first_global(const struct plumb_env *env, const void *args)
{
	struct plumb_moe_down other = *(const struct plumb_moe_down *)args;
	int64_t E = env->cfg->experts;
	struct plumb_weight *bank = malloc((size_t)E * sizeof *bank);
	int status;

	ck_assert_ptr_nonnull(bank);
	memcpy(bank, other.down, (size_t)E * sizeof *bank);
	for (int64_t e = 0; e < E; e++)
		bank[e].global = bank[0].global;
	other.down = bank;
	status = moe_down_twin(env, &other);
	free(bank);
	return status;
}

static const struct {
	enum plumb_op op;
	plumb_op_fn *candidate;
	const char *told; /* part of the line */
	int format;       /* of the matrices, or -1: random ones */
} faults[] = {
	{PLUMB_LM_HEAD, nibbles_swapped, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, next_code, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, next_scale, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, previous_row_scale, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, global_twice, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, no_global, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, no_scale, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, scales_transposed, "logits[", PLUMB_NVFP4},
	{PLUMB_LM_HEAD, next_code, "logits[", PLUMB_FP8_ROW},
	{PLUMB_LM_HEAD, next_scale, "logits[", PLUMB_FP8_ROW},
	{PLUMB_LM_HEAD, no_scale, "logits[", PLUMB_FP8_ROW},
	{PLUMB_LM_HEAD, next_scale, "logits[", PLUMB_FP8_BLOCK},
	{PLUMB_LM_HEAD, no_scale, "logits[", PLUMB_FP8_BLOCK},
	{PLUMB_LM_HEAD, scales_transposed, "logits[", PLUMB_FP8_BLOCK},
	{PLUMB_LM_HEAD, global_twice, "logits[", PLUMB_FP8_TABLE},
	{PLUMB_LM_HEAD, no_global, "logits[", PLUMB_FP8_TABLE},
	{PLUMB_MOE_DOWN, first_global, "y[", PLUMB_NVFP4},
	{PLUMB_MOE_DOWN, scale_changed, "down had its scales changed", PLUMB_NVFP4},
	{PLUMB_MOE_DOWN, one_bit, "y[0, 0] is", -1},
	{PLUMB_MOE_DOWN, not_a_number, "is nan, expected", -1},
	{PLUMB_MOE_DOWN, not_written, "y[", -1},
	{PLUMB_MOE_DOWN, past_the_end, "y was written outside", -1},
	{PLUMB_MOE_DOWN, before_the_start, "y was written outside", -1},
	{PLUMB_MOE_DOWN, input_changed, "hidden is an input and was changed", -1},
	{PLUMB_MOE_DOWN, weight_changed, "down is an input and was changed", -1},
	{PLUMB_MOE_DOWN, refused, "failed: no such thing", -1},
	{PLUMB_MOE_ROUTER, other_expert, "expert[0, 0] is", -1},
	{PLUMB_GDN_CONV, window_row, "window[0, 0] is", -1},
	{PLUMB_ATTN_QK_ROPE, far_row, "keys[", -1},
	{PLUMB_ATTN_QK_ROPE, page_swap, "keys had its page table changed", -1},
};

START_TEST(faults_are_told)
{
	char text[TRIAL_TEXT];
	struct trial_options options = {.policy = -1, .format = faults[_i].format, .traces = -1};
	struct plumb_config cfg;
	if (faults[_i].op == PLUMB_LM_HEAD) { /* two blocks of rows, three of columns */
		struct trial_random r = {1};
		trial_config_random(&r, PLUMB_LM_HEAD, &cfg);
		cfg.hidden = 270;
		cfg.vocab = 131;
		options.cfg = &cfg;
	}
	struct trial *c = trial_new(faults[_i].op, 5, &options);

	ck_assert_msg(trial_agree(c, NULL, device, 1, text), "%s", text);
	ck_assert(!trial_agree(c, faults[_i].candidate, device, 1, text));
	ck_assert_msg(strstr(text, faults[_i].told) != NULL, "told: %s, expected: %s", text, faults[_i].told);
	trial_free(c);
}
END_TEST

/* A seed is a case: the same twice. */
START_TEST(a_seed_is_a_case)
{
	struct trial *a = trial_new(PLUMB_ATTN_DECODE, 77, NULL), *b = trial_new(PLUMB_ATTN_DECODE, 77, NULL);

	ck_assert_int_eq(a->T, b->T);
	for (int i = 0; i < a->operands; i++) {
		ck_assert_uint_eq(a->operand[i].memory.bytes, b->operand[i].memory.bytes);
		if (a->operand[i].before)
			ck_assert_mem_eq(a->operand[i].before, b->operand[i].before, a->operand[i].memory.bytes);
	}
	trial_free(a);
	trial_free(b);
}
END_TEST

int main(void)
{
	int status = open_devices();
	if (status != PLUMB_OK)
		return suite_without_device(status);
	Suite *suite = suite_create("ops");
	TCase *cases = suite_part(suite, "cases", 600);
	tcase_add_test(cases, a_seed_is_a_case);
	tcase_add_loop_test(cases, faults_are_told, 0, (int)(sizeof faults / sizeof faults[0]));
	tcase_add_loop_test(cases, random_cases, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(cases, every_format, 0, PLUMB_OP_COUNT);
	int failed = suite_run_here(suite); /* the devices keep their stacks from case to case; CUDA survives no fork */
	plumb_device_close(device[0]);
	trial_devices_close(&devices);
	return failed;
}
