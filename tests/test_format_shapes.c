/* SPDX-License-Identifier: MIT */
/* Every weight format in every projection shape of the released model, from its config, and in odd shapes around them:
 * the kernels write what the twin writes, and that lies within the derived bounds.
 *
 *   release_*     columns (K) as in the release. On simt the rows (N) are few, since the same code runs for each of
 * them; on a GPU (test_format_shapes_cuda) the rows are those of the release too odd_*         columns and rows around
 * every size at which code changes its way coordinates   codes and scales that name their place, at the K of the
 * release, against an independent decoder faults        readers that misread nibbles, scales, axes and tails: the cases
 * above must tell each of them */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/lm_head.h"
#include "core/profile_bytes.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/byte_decoder.h"
#include "tests/support/devices.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

/* Twin twice, oracle's bounds, and the candidate (NULL: the kernels) on every device. */
static bool holds(struct trial *c, plumb_op_fn *candidate, char text[TRIAL_TEXT])
{
	bool good = trial_check(c, candidate, device, DEVICES, text);
	for (int d = 0; d < DEVICES; d++)
		ck_assert_msg(plumb_device_forget(device[d], &err) == PLUMB_OK, "%s", err.text);
	return good;
}

static void expect_holds(struct trial *c, const char *format)
{
	char text[TRIAL_TEXT], name[64];
	bool good = holds(c, NULL, text);
	ck_assert_msg(good, "%s in %s, hidden %lld: %s", trial_name(c, name), format, (long long)c->cfg.hidden, text);
	trial_free(c);
}

/* ---- the shapes of the release ---- */

/* A row for each op that reads a matrix: which sizes of the config give rows and no columns, and how few of them simt
 * takes. What both sets do with a row does not depend on these, except the number of pieces it is cut into. */
struct shape {
	enum plumb_op op;
	void (*fewer_rows)(struct plumb_config *c);
};

static void few_tokens(struct plumb_config *c)
{
	c->vocab = 150;
	c->eos = 3;
}
static void few_hidden(struct plumb_config *c)
{
	c->hidden = 44;
}
static void small_table(struct plumb_config *c)
{
	few_tokens(c);
	c->ngram_vocab_base = 90;
}
static void small_gdn_heads(struct plumb_config *c)
{
	c->gdn_key_heads = 2;
	c->gdn_value_heads = 6;
	c->gdn_key_dim = c->gdn_value_dim = 16;
}
static void small_heads(struct plumb_config *c)
{
	c->q_heads = 4;
	c->head_dim = 24;
	c->rotary_dim = 6;
}
static void small_index(struct plumb_config *c)
{
	c->index_heads = 2;
	c->index_dim = 24;
	c->rotary_dim = 6;
}
static void few_experts(struct plumb_config *c)
{
	c->experts = 35;
	c->experts_per_token = 10;
}
static void small_experts(struct plumb_config *c)
{
	c->experts = 4;
	c->experts_per_token = 3;
	c->expert_inner = 20;
	c->shared_inner = 27;
}
static void small_output(struct plumb_config *c)
{
	c->experts = 4;
	c->experts_per_token = 3;
	c->hidden = 44;
}
static void low_rank_rows(struct plumb_config *c)
{
	c->low_rank = 20;
}

static const struct shape shapes[] = {
	{PLUMB_EMBED, few_tokens},            /* V x 2560, looked up */
	{PLUMB_PLE_EMBED, small_table},       /* 320001536 x 160, looked up */
	{PLUMB_PLE_GATE, few_hidden},         /* 10240 x 2560, 2560 x 2560 */
	{PLUMB_HC_NORM_DOWN, low_rank_rows},  /* 320 x 10240, 4 x 10240 */
	{PLUMB_HC_UP_MIX, few_hidden},        /* 10240 x 320 */
	{PLUMB_GDN_IN_PROJ, small_gdn_heads}, /* 10240, 6144, 48, 48 x 2560 */
	{PLUMB_GDN_OUT_PROJ, few_hidden},     /* 2560 x 6144 */
	{PLUMB_ATTN_IN_PROJ, small_heads},    /* 12288, 512, 512 x 2560 */
	{PLUMB_ATTN_OUT_PROJ, few_hidden},    /* 2560 x 6144 */
	{PLUMB_QSA_PROJECT, small_index},     /* 640 x 2560 */
	{PLUMB_MOE_ROUTER, few_experts},      /* 512, 1 x 2560 */
	{PLUMB_MOE_GATE_UP, small_experts},   /* 640 x 2560, routed and shared */
	{PLUMB_MOE_DOWN, small_output},       /* 2560 x 640, routed and shared */
	{PLUMB_LM_HEAD, few_tokens},          /* 248320 x 2560 */
};
enum { SHAPES = sizeof shapes / sizeof shapes[0], MIXTURES = 6 };

static struct plumb_config release(const struct shape *shape, bool all_rows)
{
	struct plumb_config c;
	plumb_release_config(&c);
	c.max_positions = 1 << 12;
	if (!all_rows)
		shape->fewer_rows(&c);
	return c;
}

/* Every op with a matrix is in the table, and fewer rows are no fewer columns: of each matrix operand. */
START_TEST(the_table_is_whole)
{
	const struct plumb_extent one = {.T = 1, .capacity = 64};
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		const struct shape *shape = NULL;
		int matrices = 0;
		for (int i = 0; i < SHAPES; i++)
			shape = shapes[i].op == (enum plumb_op)op ? &shapes[i] : shape;
		struct plumb_config all = release(shape ? shape : shapes, true),
				    few = release(shape ? shape : shapes, false);
		for (int i = 0; i < plumb_ops[op].operands; i++) {
			const struct plumb_operand *o = &plumb_ops[op].operand[i];
			int64_t a[8], b[8];
			if (o->role != PLUMB_WEIGHT || trial_is_vector(o))
				continue;
			matrices++;
			ck_assert_msg(shape != NULL, "no shape for %s", plumb_ops[op].name);
			int rank = plumb_shape_eval(o->shape, &all, &one, a);
			plumb_shape_eval(o->shape, &few, &one, b);
			ck_assert_msg(a[rank - 1] == b[rank - 1], "%s: %s has %lld columns, of the release %lld",
				plumb_ops[op].name, o->name, (long long)b[rank - 1], (long long)a[rank - 1]);
			ck_assert_int_le(b[rank - 2], a[rank - 2]);
		}
		ck_assert(!shape == (matrices == 0));
	}
}
END_TEST

#ifndef PLUMB_TEST_GPU
START_TEST(release_columns_with_fewer_rows)
{
	const struct shape *shape = &shapes[_i / PLUMB_FORMAT_COUNT];
	struct plumb_config cfg = release(shape, false);
	enum plumb_format format = (enum plumb_format)(_i % PLUMB_FORMAT_COUNT);
	/* one token or two; each op in both policies, as decoding does not depend on them */
	struct trial_options o = {.cfg = &cfg,
		.policy = (_i / PLUMB_FORMAT_COUNT + _i) % 2,
		.T = 1 + _i / 2 % 2,
		.format = (int)format,
		.traces = 1};
	expect_holds(trial_new(shape->op, (uint64_t)(100 + _i), &o), plumb_format_name(format));
}
END_TEST

/* Matrices of one call in different formats, each of which has a wide arm by itself. */
START_TEST(release_mixtures)
{
	static const struct {
		enum plumb_op op;
		enum plumb_format format[3]; /* as trial_options.formats */
	} mixtures[MIXTURES] = {
		{PLUMB_GDN_IN_PROJ, {PLUMB_NVFP4, PLUMB_BF16, PLUMB_NVFP4}},
		{PLUMB_GDN_IN_PROJ, {PLUMB_FP8_BLOCK, PLUMB_BF16, PLUMB_FP8_ROW}},
		{PLUMB_ATTN_IN_PROJ, {PLUMB_NVFP4, PLUMB_NVFP4, PLUMB_FP8_ROW}},
		{PLUMB_MOE_GATE_UP, {PLUMB_NVFP4, PLUMB_FP8_ROW, PLUMB_NVFP4}},
		{PLUMB_MOE_DOWN, {PLUMB_NVFP4, PLUMB_FP8_ROW, PLUMB_NVFP4}},
		{PLUMB_MOE_GATE_UP, {PLUMB_FP8_BLOCK, PLUMB_BF16, PLUMB_FP8_BLOCK}},
	};
	const struct shape *shape = shapes;
	while (shape->op != mixtures[_i].op)
		shape++;
	struct plumb_config cfg = release(shape, false);
	struct trial_options o = {.cfg = &cfg, .policy = _i % 2, .T = 1, .format = -1, .aligned = true, .traces = 1};
	for (int i = 0; i < 3; i++)
		o.formats[i] = 1 + (int)mixtures[_i].format[i];
	expect_holds(trial_new(shape->op, (uint64_t)(300 + _i), &o), "several formats");
}
END_TEST

/* The rows that the release's own number of them is not cut into pieces for: 8192 and more. */
START_TEST(release_head_in_one_piece)
{
	static const enum plumb_format formats[] = {PLUMB_BF16, PLUMB_FP8_BLOCK, PLUMB_NVFP4};
	struct plumb_config cfg = release(&shapes[SHAPES - 1], false);
	cfg.vocab = 8192;
	struct trial_options o = {.cfg = &cfg, .policy = PLUMB_POLICY_F32, .T = 1, .format = (int)formats[_i], .traces = 1};
	struct trial *c = trial_new(PLUMB_LM_HEAD, 3, &o);
	struct trial_result twin, kernel;
	char text[TRIAL_TEXT];
	ck_assert_msg(
		trial_run(c, "twin", plumb_ref_twin.op[PLUMB_LM_HEAD], NULL, PLUMB_POISON_NAN, &twin, text), "%s", text);
	ck_assert_msg(trial_bounded(c, "twin", NULL, text), "%s", text);
	ck_assert_msg(trial_run(c, "simt", plumb_device_set(device[FIRST])->op[PLUMB_LM_HEAD], device[FIRST],
			      PLUMB_POISON_NAN, &kernel, text),
		"%s", text);
	ck_assert_msg(trial_same(c, &twin, &kernel, "simt", text), "%s", text);
	trial_result_free(&twin);
	trial_result_free(&kernel);
	ck_assert_int_eq(plumb_device_forget(device[FIRST], &err), PLUMB_OK);
	trial_free(c);
}
END_TEST
#else
/* All rows of the release; of the experts a few, each whole, and of the n-gram table, which is looked up, a small one.
 */
START_TEST(release_with_all_rows)
{
	const struct shape *shape = &shapes[_i / PLUMB_FORMAT_COUNT];
	enum plumb_format format = (enum plumb_format)(_i % PLUMB_FORMAT_COUNT);
	struct plumb_config cfg = release(shape, true);
	bool head = shape->op == PLUMB_LM_HEAD || shape->op == PLUMB_EMBED;
	if (shape->op == PLUMB_PLE_EMBED)
		small_table(&cfg);
	if (shape->op == PLUMB_MOE_GATE_UP || shape->op == PLUMB_MOE_DOWN)
		cfg.experts = 14;
	if (head && format != PLUMB_BF16 && format != PLUMB_FP8_ROW && format != PLUMB_NVFP4) {
		cfg.vocab = 16384; /* 635 million random weights take the CPU seconds: whole in the formats of the
		                      profiles */
		cfg.eos = 3;
	}
	struct trial_options o = {.cfg = &cfg, .policy = _i % 2, .T = 1, .format = (int)format, .traces = 1};
	expect_holds(trial_new(shape->op, (uint64_t)(100 + _i), &o), plumb_format_name(format));
}
END_TEST
#endif

/* ---- odd shapes ---- */

static const int64_t odd_columns[] = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 63, 65, 127, 128, 129, 143, 144, 145, 255,
	257, 319, 321, 511, 513, 639, 641, 1023, 1025, 2047, 2559, 2561, 6143, 6145, 10241};
static const int64_t odd_rows[] = {1, 2, 3, 5, 7, 8, 9, 15, 17, 31, 33, 127, 128, 129, 131};

/* Each number of columns with each number of rows (fewer where the matrix is long), up to five tokens. */
START_TEST(odd_rows_and_columns)
{
	enum plumb_format format = (enum plumb_format)_i;
	uint64_t seed = 1;
	for (size_t i = 0; i < sizeof odd_columns / sizeof odd_columns[0]; i++)
		for (size_t j = 0; j < sizeof odd_rows / sizeof odd_rows[0]; j++, seed++) {
			struct trial_random r = {seed};
			struct plumb_config cfg;
			if (odd_columns[i] * odd_rows[j] > 12000 && odd_rows[j] > 3)
				continue;
			trial_config_random(&r, PLUMB_LM_HEAD, &cfg);
			cfg.hidden = odd_columns[i];
			cfg.vocab = odd_rows[j];
			cfg.eos = 0;
			struct trial_options o = {.cfg = &cfg,
				.policy = (int)(seed % 2),
				.T = 1 + (int64_t)(seed % 5),
				.format = (int)format,
				.traces = 1};
			expect_holds(trial_new(PLUMB_LM_HEAD, seed, &o), plumb_format_name(format));
		}
}
END_TEST

/* The same in a bank, where the matrices are not at aligned distances: down of experts of odd sizes. */
START_TEST(odd_banks)
{
	enum plumb_format format = (enum plumb_format)_i;
	static const int64_t inner[] = {1, 15, 17, 33, 127, 129, 143, 257, 639, 641};
	for (size_t i = 0; i < sizeof inner / sizeof inner[0]; i++) {
		struct trial_random r = {i};
		struct plumb_config cfg;
		trial_config_random(&r, PLUMB_MOE_DOWN, &cfg);
		cfg.hidden = (i + (size_t)_i) % 3 ? 45 : 131;
		cfg.expert_inner = inner[i];
		cfg.shared_inner = inner[(i + 3) % 10];
		cfg.experts = 5;
		cfg.experts_per_token = 3;
		for (int op = PLUMB_MOE_GATE_UP; op <= PLUMB_MOE_DOWN; op++) {
			struct trial_options o = {
				.cfg = &cfg, .policy = (int)(i % 2), .T = 2, .format = (int)format, .traces = 1};
			expect_holds(trial_new((enum plumb_op)op, i, &o), plumb_format_name(format));
		}
	}
}
END_TEST

/* ---- coordinates ---- */

/* Codes and scales that follow from their place, none of which a neighbour has. */
static void name_places(struct trial_operand *o)
{
	struct plumb_weight *w = o->weight;
	unsigned char *data = o->memory.data + ((const unsigned char *)w->data - o->memory.data), *scale = NULL;
	size_t row_bytes = plumb_format_row_bytes(w->format, w->cols), scales = plumb_weight_scale_bytes(w);
	if (scales)
		scale = o->scale.data + ((const unsigned char *)w->scale - o->scale.data);
	memset(data, 0, plumb_weight_data_bytes(w));
	for (int64_t n = 0; n < w->rows; n++)
		for (int64_t k = 0; k < w->cols; k++) {
			unsigned char *at = data + (size_t)n * row_bytes;
			float v = (float)((7 * k + 13 * n) % 2027 - 1013) * 0x1p-8f;
			if (w->format == PLUMB_NVFP4)
				at[k / 2] |= (unsigned char)((3 * k + 5 * n + k / 16) % 16 << k % 2 * 4);
			else if (w->format >= PLUMB_FP8_ROW)
				at[k] = (unsigned char)((8 + (3 * k + 11 * n) % 103) | ((n + k / 2) % 2 ? 0 : 0x80));
			else
				plumb_encode(w->format, &v, 1, at + plumb_format_row_bytes(w->format, k));
		}
	w->global = w->format == PLUMB_NVFP4 ? 0x1.234568p-3f : 0x1.234568p-6f;
	int64_t groups = (w->cols + PLUMB_NVFP4_GROUP - 1) / PLUMB_NVFP4_GROUP;
	if (w->format == PLUMB_NVFP4) {
		for (int64_t g = 0; g < (int64_t)scales; g++)
			scale[g] = (unsigned char)(8 + (13 * (g % groups) + 29 * (g / groups)) % 101);
	} else {
		size_t unit = plumb_format_row_bytes(w->scale_format, 1);
		for (size_t b = 0; b < scales / unit; b++) {
			float v = 0x1p-5f + 0x1p-11f * (float)(37 * b % 61);
			plumb_encode(w->scale_format, &v, 1, scale + b * unit);
		}
	}
}

/* Columns to ask for: both ends, around a byte, a lane's load, a group, a block, the middle, and a spread of others. */
enum { ASKED = 26 };
static int64_t column(int64_t t, int64_t K)
{
	static const int64_t places[] = {
		0, 1, 2, 7, 8, 15, 16, 17, 31, 127, 128, 129, -1, -2, -15, -16, -17, -32, -128, -129};
	int64_t k = t < 20 ? places[t] : K / 2 + (t - 20) * 97 - 120;
	return ((k % K) + K) % K;
}

static struct trial *named(enum plumb_format format, int64_t N, int64_t K, int64_t T)
{
	struct trial_random r = {3};
	struct plumb_config cfg;
	trial_config_random(&r, PLUMB_LM_HEAD, &cfg);
	cfg.vocab = N;
	cfg.hidden = K;
	cfg.eos = 0;
	struct trial_options o = {.cfg = &cfg, .policy = PLUMB_POLICY_F32, .T = T, .format = (int)format, .traces = 1};
	struct trial *c = trial_new(PLUMB_LM_HEAD, 11, &o);
	name_places(trial_operand(c, "w"));
	return c;
}

START_TEST(coordinates_of_the_release)
{
	static const int64_t widths[] = {320, 640, 2560, 6144, 10240, 2561};
	enum plumb_format format = (enum plumb_format)(_i % PLUMB_FORMAT_COUNT);
	int64_t K = widths[_i / PLUMB_FORMAT_COUNT], N = format == PLUMB_FP8_BLOCK ? 131 : 19;
	struct trial *c = named(format, N, K, ASKED);
	const struct plumb_weight *w = trial_operand(c, "w")->weight;
	float *x = trial_data(c, "x");
	char text[TRIAL_TEXT];
	memset(x, 0, (size_t)(ASKED * K) * sizeof *x);
	for (int64_t t = 0; t < ASKED; t++)
		x[t * K + column(t, K)] = 1.0f;
	trial_seal(c);
	for (int d = -1; d < 1; d++) { /* memory of one's own makes no difference here: test_formats */
		struct trial_result result;
		plumb_op_fn *fn = d < 0 ? plumb_ref_twin.op[PLUMB_LM_HEAD] : plumb_device_set(device[d])->op[PLUMB_LM_HEAD];
		ck_assert_msg(trial_run(c, d < 0 ? "twin" : "kernels", fn, d < 0 ? NULL : device[d], PLUMB_POISON_NAN,
				      &result, text),
			"%s", text);
		const float *y = trial_data(c, "logits");
		for (int64_t t = 0; t < ASKED; t++)
			for (int64_t n = 0; n < N; n++)
				ck_assert_msg(byte_decoder_same(y[t * N + n], byte_decoder_element(w, n, column(t, K))),
					"%s, %s, K %lld: element (%lld, %lld) arrives as %.9g, not %.9g",
					d < 0 ? "twin" : "kernels", plumb_format_name(format), (long long)K, (long long)n,
					(long long)column(t, K), (double)y[t * N + n],
					(double)byte_decoder_element(w, n, column(t, K)));
		trial_result_free(&result);
	}
	ck_assert_int_eq(plumb_device_forget(device[FIRST], &err), PLUMB_OK);
	trial_free(c);
}
END_TEST

/* ---- planted faults ---- */

enum fault {
	NO_FAULT,
	NIBBLES_SWAPPED,
	GROUP_BEFORE, /* the scale of the group before */
	GROUP_NEXT,
	GROUPS_OF_32,     /* one scale a tile of two groups */
	SCALES_BY_COLUMN, /* the axes of the scales swapped */
	NO_GLOBAL,
	GLOBAL_TWICE,
	GLOBAL_DIVIDES,
	GLOBAL_LAST,        /* (code * scale) * global: another rounding */
	FLOOR_STRIDE,       /* rows of K / 2 bytes, K / 16 scales, K / 128 blocks: rounded down */
	TAIL_LOST,          /* what follows the last whole group or block */
	ROW_BELOW,          /* the scale of the next row */
	ROWS_OF_ONE,        /* row 0's */
	BLOCK_ROWS_SHIFTED, /* rows 127 on have the scale of the next block */
	SUBNORMALS_ZERO,    /* of E4M3 */
	NEGATIVE_ZEROED,    /* the sign of E4M3 read as nothing */
	NOT_ROUNDED,        /* the table's values not rounded to bf16 */
	FAULTS,
};
static enum fault planted;

static float e4m3(unsigned char code)
{
	if (planted == SUBNORMALS_ZERO && (code & 0x78) == 0)
		return 0.0f;
	return plumb_e4m3_to_f32(planted == NEGATIVE_ZEROED ? code & 0x7f : code);
}

static int64_t up(int64_t n, int64_t size)
{
	return planted == FLOOR_STRIDE && n > size ? n / size : (n + size - 1) / size;
}

static float scale_at(const struct plumb_weight *w, int64_t i, int64_t count)
{
	float v;
	i = i < 0 ? 0 : i < count ? i : count - 1;
	if (w->format == PLUMB_NVFP4)
		return plumb_e4m3_to_f32(((const unsigned char *)w->scale)[i]);
	plumb_decode(w->scale_format, (const unsigned char *)w->scale + plumb_format_row_bytes(w->scale_format, i), 1, &v);
	return v;
}

static float nvfp4_with_fault(const struct plumb_weight *w, int64_t n, int64_t k)
{
	int64_t groups = up(w->cols, 16), row_bytes = up(w->cols, 2), g = k / 16, count = w->rows * ((w->cols + 15) / 16);
	unsigned char byte = ((const unsigned char *)w->data)[n * row_bytes + k / 2];
	int high = planted == NIBBLES_SWAPPED ? k % 2 == 0 : k % 2;
	float code = plumb_e2m1_to_f32((uint8_t)(byte >> 4 * high & 15)), scale, global = w->global;

	if (planted == GROUP_BEFORE)
		g = g ? g - 1 : g;
	if (planted == GROUP_NEXT)
		g = g + 1 < groups ? g + 1 : g;
	if (planted == GROUPS_OF_32)
		g -= g % 2;
	int64_t at = planted == SCALES_BY_COLUMN ? g * w->rows + n : (n + (planted == ROW_BELOW)) * groups + g;
	scale = scale_at(w, planted == ROWS_OF_ONE ? g : at, count);
	if (planted == TAIL_LOST && k >= w->cols / 16 * 16)
		return 0.0f;
	if (planted == GLOBAL_LAST)
		return code * scale * global;
	global = planted == NO_GLOBAL        ? 1.0f
	         : planted == GLOBAL_TWICE   ? global * global
	         : planted == GLOBAL_DIVIDES ? 1.0f / global
	                                     : global;
	return code * (scale * global);
}

static float fp8_with_fault(const struct plumb_weight *w, int64_t n, int64_t k)
{
	int64_t across = up(w->cols, 128), down = (w->rows + 127) / 128, b = k / 128, r = n / 128;
	float code = e4m3(((const unsigned char *)w->data)[n * w->cols + k]);

	if (planted == TAIL_LOST && k >= w->cols / 128 * 128)
		return 0.0f;
	if (w->format == PLUMB_FP8_TABLE) {
		float global = planted == NO_GLOBAL        ? 1.0f
		               : planted == GLOBAL_TWICE   ? w->global * w->global
		               : planted == GLOBAL_DIVIDES ? 1.0f / w->global
		                                           : w->global;
		return planted == NOT_ROUNDED ? code * global : plumb_round_bf16(code * global);
	}
	if (w->format == PLUMB_FP8_ROW)
		return code * scale_at(w, planted == ROWS_OF_ONE ? 0 : n + (planted == ROW_BELOW), w->rows);
	if (planted == BLOCK_ROWS_SHIFTED)
		r = (n + 1) / 128;
	if (planted == GROUP_NEXT)
		b++;
	if (planted == GROUP_BEFORE)
		b -= b > 0;
	if (planted == ROWS_OF_ONE)
		r = 0;
	return code *
	       scale_at(w, planted == SCALES_BY_COLUMN ? b * down + r : r * across + b, down * ((w->cols + 127) / 128));
}

/* lm_head of a reader with the planted fault: what it decodes, times x in the declared order. */
static int with_fault(const struct plumb_env *env, const void *args)
{
	struct plumb_lm_head a = *(const struct plumb_lm_head *)args;
	struct plumb_weight w = {.format = PLUMB_F32, .rows = a.w->rows, .cols = a.w->cols};
	float *v = malloc((size_t)(w.rows * w.cols) * sizeof *v);
	struct plumb_env twin = *env;
	if (!v)
		abort();
	for (int64_t n = 0; n < w.rows; n++)
		for (int64_t k = 0; k < w.cols; k++)
			v[n * w.cols + k] =
				a.w->format == PLUMB_NVFP4 ? nvfp4_with_fault(a.w, n, k) : fp8_with_fault(a.w, n, k);
	w.data = v;
	a.w = &w;
	twin.device = NULL;
	int status = plumb_ref_twin.op[PLUMB_LM_HEAD](&twin, &a);
	free(v);
	return status;
}

/* Which faults the formats can have; where: at the release's own columns, at odd ones, or at either. */
enum where { RELEASE = 1, ODD = 2, EITHER = 3 };
static const struct {
	enum plumb_format format;
	enum fault fault;
	enum where where;
	const char *what;
} readers[] = {
	{PLUMB_NVFP4, NO_FAULT, 0, "nothing"},
	{PLUMB_NVFP4, NIBBLES_SWAPPED, EITHER, "nibbles swapped"},
	{PLUMB_NVFP4, GROUP_BEFORE, EITHER, "the scale of the group before"},
	{PLUMB_NVFP4, GROUP_NEXT, EITHER, "the scale of the next group"},
	{PLUMB_NVFP4, GROUPS_OF_32, EITHER, "one scale for 32"},
	{PLUMB_NVFP4, SCALES_BY_COLUMN, EITHER, "axes of the scales swapped"},
	{PLUMB_NVFP4, NO_GLOBAL, EITHER, "global scale left out"},
	{PLUMB_NVFP4, GLOBAL_TWICE, EITHER, "global scale twice"},
	{PLUMB_NVFP4, GLOBAL_DIVIDES, EITHER, "global scale inverted"},
	{PLUMB_NVFP4, GLOBAL_LAST, EITHER, "global scale last"},
	{PLUMB_NVFP4, ROW_BELOW, EITHER, "scales of the row below"},
	{PLUMB_NVFP4, ROWS_OF_ONE, EITHER, "scales of row 0"},
	{PLUMB_NVFP4, FLOOR_STRIDE, ODD, "rows of K/2 bytes and K/16 scales"},
	{PLUMB_NVFP4, TAIL_LOST, ODD, "last partial group lost"},
	{PLUMB_FP8_BLOCK, NO_FAULT, 0, "nothing"},
	{PLUMB_FP8_BLOCK, GROUP_BEFORE, EITHER, "the scale of the block before"},
	{PLUMB_FP8_BLOCK, GROUP_NEXT, EITHER, "the scale of the next block"},
	{PLUMB_FP8_BLOCK, SCALES_BY_COLUMN, EITHER, "axes of the scales swapped"},
	{PLUMB_FP8_BLOCK, BLOCK_ROWS_SHIFTED, EITHER, "a row too early in the next block"},
	{PLUMB_FP8_BLOCK, ROWS_OF_ONE, EITHER, "scales of the first row of blocks"},
	{PLUMB_FP8_BLOCK, FLOOR_STRIDE, ODD, "K/128 blocks a row"},
	{PLUMB_FP8_BLOCK, TAIL_LOST, ODD, "last partial block lost"},
	{PLUMB_FP8_BLOCK, SUBNORMALS_ZERO, EITHER, "subnormal codes flushed"},
	{PLUMB_FP8_BLOCK, NEGATIVE_ZEROED, EITHER, "signs lost"},
	{PLUMB_FP8_ROW, NO_FAULT, 0, "nothing"},
	{PLUMB_FP8_ROW, ROW_BELOW, EITHER, "the scale of the row below"},
	{PLUMB_FP8_ROW, ROWS_OF_ONE, EITHER, "one scale for all rows"},
	{PLUMB_FP8_ROW, SUBNORMALS_ZERO, EITHER, "subnormal codes flushed"},
	{PLUMB_FP8_TABLE, NO_FAULT, 0, "nothing"},
	{PLUMB_FP8_TABLE, NO_GLOBAL, EITHER, "scale left out"},
	{PLUMB_FP8_TABLE, GLOBAL_TWICE, EITHER, "scale twice"},
	{PLUMB_FP8_TABLE, GLOBAL_DIVIDES, EITHER, "scale inverted"},
	{PLUMB_FP8_TABLE, NOT_ROUNDED, EITHER, "not rounded to bf16"},
};
enum { READERS = sizeof readers / sizeof readers[0] };

/* Cases of named places and random inputs: 131 rows at 2560 columns, or at 2561 + 16, none of which divides. Each bit
 * is compared, so a reader is told when one value is another. */
START_TEST(faults_are_told)
{
	static const int64_t columns[] = {2560, 2577};
	for (int odd = 0; odd < 2; odd++) {
		struct trial *c = named(readers[_i].format, 131, columns[odd], 1);
		char text[TRIAL_TEXT];
		if (readers[_i].fault == SUBNORMALS_ZERO) { /* named places have none */
			struct trial_operand *o = trial_operand(c, "w");
			o->memory.data[(const unsigned char *)o->weight->data - o->memory.data + 5 * columns[odd] + 9] =
				0x03;
		}
		trial_seal(c);
		planted = readers[_i].fault;
		bool told = !trial_agree(c, with_fault, device, 1, text);
		bool must = readers[_i].where & (odd ? ODD : RELEASE);
		planted = NO_FAULT;
		ck_assert_int_eq(plumb_device_forget(device[FIRST], &err), PLUMB_OK);
		trial_free(c);
		ck_assert_msg(told == must, "%s, %s, %lld columns: %s", plumb_format_name(readers[_i].format),
			readers[_i].what, (long long)columns[odd], told ? text : "not told");
	}
}
END_TEST

int main(void)
{
	int status = open_devices("test_format_shapes", PLUMB_POISON_NAN);
	if (status != PLUMB_OK)
		return suite_without_device(status);
	Suite *suite = suite_create("format_shapes");
	TCase *cases = suite_part(suite, "format_shapes", 600);
	tcase_add_test(cases, the_table_is_whole);
#ifdef PLUMB_TEST_GPU
	tcase_add_loop_test(cases, release_with_all_rows, 0, SHAPES * PLUMB_FORMAT_COUNT);
#else
	tcase_add_loop_test(cases, release_columns_with_fewer_rows, 0, SHAPES * PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, release_mixtures, 0, MIXTURES);
	tcase_add_loop_test(cases, release_head_in_one_piece, 0, 3);
#endif
	tcase_add_loop_test(cases, odd_rows_and_columns, 0, PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, odd_banks, 0, PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, coordinates_of_the_release, 0, 6 * PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, faults_are_told, 0, READERS);
	int failed = suite_run_here(suite); /* the devices keep their stacks from case to case; CUDA survives no fork */
	for (int i = 0; i < DEVICES; i++)
		plumb_device_close(device[i]);
	return failed;
}
