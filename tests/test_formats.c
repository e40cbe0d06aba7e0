/* SPDX-License-Identifier: MIT */
/* Weight formats through every op that reads a matrix, against an independent decoder: codes and scales that name their
 * place, and one-hot inputs that ask for one element each. Then what no kernel reads and must be refused, and that
 * codes and scales which change in place reach a device with memory of its own. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/math32.h"
#include "core/numeric.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/byte_decoder.h"
#include "tests/support/devices.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

/* ---- coordinates ---- */

static unsigned char *bytes_of(const struct trial_memory *m, const void *at)
{
	return m->data + ((const unsigned char *)at - m->data);
}

/* Codes and scales of matrix i that follow from n, k, block and group, all of them below 16 in magnitude. */
static void name_places(struct trial_operand *o, int64_t i)
{
	struct plumb_weight *w = &o->weight[i];
	unsigned char *data = bytes_of(&o->memory, w->data), *scale = w->scale ? bytes_of(&o->scale, w->scale) : NULL;
	size_t row_bytes = plumb_format_row_bytes(w->format, w->cols), scales = plumb_weight_scale_bytes(w);

	memset(data, 0, plumb_weight_data_bytes(w));
	for (int64_t n = 0; n < w->rows; n++)
		for (int64_t k = 0; k < w->cols; k++) {
			unsigned char *at = data + (size_t)n * row_bytes;
			float v = (float)((5 * k + 11 * n + 29 * i) % 2039 - 1019) * 0x1p-8f;
			if (w->format == PLUMB_NVFP4)
				at[k / 2] |= (unsigned char)((k + 3 * n + 7 * i) % 16 << k % 2 * 4);
			else if (w->format >= PLUMB_FP8_ROW)
				at[k] = (unsigned char)((8 + (5 * k + 11 * n + 29 * i) % 100) | ((n + k) % 3 ? 0 : 0x80));
			else
				plumb_encode(w->format, &v, 1, at + plumb_format_row_bytes(w->format, k));
		}
	w->global = w->format == PLUMB_NVFP4 ? 0.5f + 0.0625f * (float)i : 0x1p-6f + 0x1p-9f * (float)i;
	if (w->format == PLUMB_NVFP4) {
		for (size_t g = 0; g < scales; g++)
			scale[g] = (unsigned char)(8 + (13 * g + 3 * (size_t)i) % 56);
	} else if (scale) {
		size_t unit = plumb_format_row_bytes(w->scale_format, 1);
		for (size_t b = 0; b < scales / unit; b++) {
			float v = 0x1p-6f + 0x1p-10f * (float)((7 * b + 3 * (size_t)i) % 16);
			plumb_encode(w->scale_format, &v, 1, scale + b * unit);
		}
	}
}

static struct trial *case_new(
	enum plumb_op op, enum plumb_format format, const struct plumb_config *cfg, int64_t T, uint64_t seed)
{
	struct trial_options options = {.cfg = cfg, .policy = PLUMB_POLICY_F32, .T = T, .format = (int)format, .traces = 1};
	struct trial *c = trial_new(op, seed, &options);
	for (int i = 0; i < c->operands; i++)
		for (int64_t m = 0; m < c->operand[i].matrices && !trial_is_vector(c->operand[i].info); m++)
			name_places(&c->operand[i], m);
	return c;
}

static float *values(struct trial *c, const char *name)
{
	return trial_data(c, name);
}

static void zero(struct trial *c, const char *name)
{
	memset(trial_data(c, name), 0, trial_operand(c, name)->memory.bytes);
}

/* The column that row t of a call asks for: the first and the last, and those around which a byte, a lane's load, a
 * group of 16, a lane's second load of nvfp4 or a block of 128 ends. */
enum { ASKED = 20 };
static int64_t column(int64_t t, int64_t width)
{
	static const int64_t columns[ASKED] = {0, 1, 2, 5, 7, 8, 9, 14, 15, 16, 17, 31, 32, 63, 64, 127, 128, 129, -2, -1};
	int64_t k = columns[t % ASKED];
	return k < 0 ? (width + k % width) % width : k % width;
}

static void one_hot(struct trial *c, const char *name, int64_t width)
{
	zero(c, name);
	for (int64_t t = 0; t < trial_operand(c, name)->count / width; t++)
		values(c, name)[t * width + column(t, width)] = 1.0f;
}

static void expect(const struct trial *c, const char *what, int64_t n, int64_t k, float got, float want)
{
	ck_assert_msg(byte_decoder_same(got, want), "%s, %s: element (%lld, %lld) arrives as %.9g, expected %.9g",
		plumb_ops[c->op].name, what, (long long)n, (long long)k, (double)got, (double)want);
}

typedef void check_fn(struct trial *c, const char *what);

/* The twin and the kernels on every device, each seen by check. */
static void everywhere(struct trial *c, check_fn *check)
{
	char text[TRIAL_TEXT];
	struct trial_result result;

	trial_seal(c);
	for (int d = -1; d < DEVICES; d++) {
		const char *what = d < 0 ? "twin" : plumb_device_description(device[d]);
		plumb_op_fn *fn = d < 0 ? plumb_ref_twin.op[c->op] : plumb_device_set(device[d])->op[c->op];
		ck_assert_msg(
			trial_run(c, what, fn, d < 0 ? NULL : device[d], PLUMB_POISON_NAN, &result, text), "%s", text);
		check(c, what);
		trial_result_free(&result);
		if (d >= 0)
			ck_assert_msg(plumb_device_forget(device[d], &err) == PLUMB_OK, "%s", err.text);
	}
	trial_free(c);
}

/* Odd and even rows of codes, partial groups and blocks of 128, rows in two blocks. */
static struct plumb_config sizes(enum plumb_op op, bool odd)
{
	struct trial_random r = {3};
	struct plumb_config cfg;

	trial_config_random(&r, op, &cfg);
	cfg.hidden = odd ? 149 : 152;
	cfg.vocab = 137;
	cfg.streams = 2;
	cfg.low_rank = odd ? 131 : 136;
	cfg.gdn_key_heads = 1;
	cfg.gdn_value_heads = 2;
	cfg.gdn_key_dim = 20;
	cfg.gdn_value_dim = odd ? 67 : 68;
	cfg.q_heads = 2;
	cfg.kv_heads = 1;
	cfg.head_dim = odd ? 67 : 68;
	cfg.rotary_dim = 2;
	cfg.experts = 3;
	cfg.experts_per_token = 2;
	cfg.expert_inner = odd ? 133 : 136;
	cfg.shared_inner = odd ? 21 : 24;
	return cfg;
}

/* Projections: every weight has its output, in order; x is one-hot, so a row of outputs is a column of weights. */
static void check_projection(struct trial *c, const char *what)
{
	int out = 0;
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		if (o->info->role != PLUMB_WEIGHT)
			continue;
		while (c->operand[out].info->role != PLUMB_OUT)
			out++;
		const float *y = (const float *)(const void *)c->operand[out++].memory.data;
		for (int64_t t = 0; t < c->T; t++) {
			int64_t k = column(t, o->dim[1]);
			for (int64_t n = 0; n < o->dim[0]; n++)
				expect(c, what, n, k, y[t * o->dim[0] + n], byte_decoder_element(o->weight, n, k));
		}
	}
}

static void projection(enum plumb_op op, enum plumb_format format, bool odd)
{
	struct plumb_config cfg = sizes(op, odd);
	int64_t K = op == PLUMB_GDN_OUT_PROJ ? cfg.gdn_value_heads * cfg.gdn_value_dim : cfg.hidden;
	struct trial *c = case_new(op, format, &cfg, ASKED, 11 + odd);
	one_hot(c, "x", K);
	everywhere(c, check_projection);
}

static void check_embed(struct trial *c, const char *what)
{
	int64_t S = c->cfg.streams, D = c->cfg.hidden;
	const float *y = values(c, "residual");
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t i = 0; i < S * D; i++)
			expect(c, what, t, i % D, y[t * S * D + i],
				byte_decoder_element(trial_operand(c, "table")->weight, t, i % D));
}

static void check_ple_embed(struct trial *c, const char *what)
{
	const struct plumb_ple_embed *a = c->args;
	int64_t Hg = plumb_ngram_heads(&c->cfg), width = c->cfg.ple_dim / Hg;
	for (int64_t i = 0; i < c->T * Hg * width; i++) {
		int64_t r = a->row[i / width];
		expect(c, what, r, i % width, a->embedding[i],
			byte_decoder_element(&a->table[r / a->shard_rows], r % a->shard_rows, i % width));
	}
}

static void check_router(struct trial *c, const char *what)
{
	const struct plumb_moe_router *a = c->args;
	int64_t E = c->cfg.experts;
	for (int64_t t = 0; t < c->T; t++) {
		int64_t k = column(t, c->cfg.hidden);
		for (int64_t e = 0; e < E; e++)
			expect(c, what, e, k, a->logits[t * E + e], byte_decoder_element(a->gate, e, k));
		expect(c, what, 0, k, a->shared_weight[t], plumb_sigmoidf(byte_decoder_element(a->shared_gate, 0, k)));
	}
}

static float gated(const struct plumb_weight *gate, const struct plumb_weight *up, int64_t n, int64_t k)
{
	return plumb_siluf(byte_decoder_element(gate, n, k)) * byte_decoder_element(up, n, k);
}

static void check_gate_up(struct trial *c, const char *what)
{
	const struct plumb_moe_gate_up *a = c->args;
	int64_t A = c->cfg.experts_per_token, F = c->cfg.expert_inner, Fs = c->cfg.shared_inner;
	for (int64_t t = 0; t < c->T; t++) {
		int64_t k = column(t, c->cfg.hidden);
		for (int64_t i = 0; i < A * F; i++) {
			int32_t e = a->expert[t * A + i / F];
			expect(c, what, i % F, k, a->hidden[t * A * F + i], gated(&a->gate[e], &a->up[e], i % F, k));
		}
		for (int64_t n = 0; n < Fs; n++)
			expect(c, what, n, k, a->shared_hidden[t * Fs + n], gated(a->shared_gate, a->shared_up, n, k));
	}
}

static void check_down(struct trial *c, const char *what)
{
	const struct plumb_moe_down *a = c->args;
	int64_t A = c->cfg.experts_per_token, D = c->cfg.hidden;
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t n = 0; n < D; n++) {
			const struct plumb_weight *w = &a->down[a->expert[t * A + t % A]];
			int64_t k = column(t, c->cfg.expert_inner);
			expect(c, what, n, k, a->y[t * D + n], byte_decoder_element(w, n, k));
		}
}

static void check_shared_down(struct trial *c, const char *what)
{
	const struct plumb_moe_down *a = c->args;
	int64_t D = c->cfg.hidden;
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t n = 0; n < D; n++) {
			int64_t k = column(t, c->cfg.shared_inner);
			expect(c, what, n, k, a->y[t * D + n], byte_decoder_element(a->shared_down, n, k));
		}
}

/* The norm is not one-hot's friend: its output says by what a column is multiplied. */
static void check_hc_down(struct trial *c, const char *what)
{
	const struct plumb_hc_norm_down *a = c->args;
	int64_t S = c->cfg.streams, K = S * c->cfg.hidden, R = c->cfg.low_rank;
	for (int64_t t = 0; t < c->T; t++) {
		int64_t k = column(t, K);
		float x = a->normed[t * K + k];
		for (int64_t n = 0; n < R; n++)
			expect(c, what, n, k, a->low[t * R + n],
				plumb_siluf(byte_decoder_element(a->down, n, k) * x / (float)S));
		for (int64_t n = 0; n < S; n++)
			expect(c, what, n, k, a->inject_logits[t * S + n],
				byte_decoder_element(a->inject, n, k) * x / (float)S);
	}
}

static void check_hc_up(struct trial *c, const char *what)
{
	const struct plumb_hc_up_mix *a = c->args;
	int64_t S = c->cfg.streams, D = c->cfg.hidden;
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t n = 0; n < D; n++) {
			int64_t k = column(t, c->cfg.low_rank);
			expect(c, what, t % S * D + n, k, a->mixed[t * D + n],
				plumb_sigmoidf(byte_decoder_element(a->up, t % S * D + n, k)) / (float)S);
		}
}

static void set_experts(struct trial *c)
{
	int32_t *e = trial_data(c, "expert");
	int32_t A = c->cfg.experts_per_token, E = (int32_t)c->cfg.experts;
	for (int32_t i = 0; i < c->T * A; i++)
		e[i] = (i / A + i % A) % E;
}

START_TEST(coordinates)
{
	enum plumb_format format = (enum plumb_format)(_i / 2);
	bool odd = _i % 2;
	struct plumb_config cfg = sizes(PLUMB_MOE_DOWN, odd);
	int64_t D = cfg.hidden, S = cfg.streams, F = cfg.expert_inner, Fs = cfg.shared_inner, A = cfg.experts_per_token;
	struct trial *c;

	projection(PLUMB_LM_HEAD, format, odd);
	projection(PLUMB_GDN_IN_PROJ, format, odd);
	projection(PLUMB_GDN_OUT_PROJ, format, odd);
	projection(PLUMB_ATTN_IN_PROJ, format, odd);

	c = case_new(PLUMB_EMBED, format, &cfg, cfg.vocab, 5);
	for (int32_t t = 0; t < c->T; t++)
		((int32_t *)trial_data(c, "token"))[t] = t;
	everywhere(c, check_embed);

	for (uint64_t seed = 0; seed < 4; seed++)
		everywhere(case_new(PLUMB_PLE_EMBED, format, NULL, 20, seed), check_ple_embed);

	c = case_new(PLUMB_MOE_ROUTER, format, &cfg, ASKED, 5);
	one_hot(c, "x", D);
	everywhere(c, check_router);

	c = case_new(PLUMB_MOE_GATE_UP, format, &cfg, ASKED, 5);
	one_hot(c, "x", D);
	set_experts(c);
	everywhere(c, check_gate_up);

	c = case_new(PLUMB_MOE_DOWN, format, &cfg, ASKED, 5);
	set_experts(c);
	zero(c, "hidden");
	zero(c, "weight");
	zero(c, "shared_weight");
	for (int64_t t = 0; t < c->T; t++) { /* every slot holds the column, one has a weight */
		values(c, "weight")[t * A + t % A] = 1.0f;
		for (int64_t i = 0; i < A; i++)
			values(c, "hidden")[(t * A + i) * F + column(t, F)] = 1.0f;
	}
	everywhere(c, check_down);

	c = case_new(PLUMB_MOE_DOWN, format, &cfg, ASKED, 6);
	set_experts(c);
	zero(c, "weight");
	one_hot(c, "shared_hidden", Fs);
	for (int64_t t = 0; t < c->T; t++)
		values(c, "shared_weight")[t] = 1.0f;
	everywhere(c, check_shared_down);

	c = case_new(PLUMB_HC_NORM_DOWN, format, &cfg, ASKED, 5);
	one_hot(c, "residual", S * D);
	everywhere(c, check_hc_down);

	c = case_new(PLUMB_HC_UP_MIX, format, &cfg, ASKED, 5);
	one_hot(c, "low", cfg.low_rank);
	zero(c, "normed");
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t i = 0; i < D; i++)
			values(c, "normed")[(t * S + t % S) * D + i] = 1.0f;
	everywhere(c, check_hc_up);
}
END_TEST

/* The test above sees a place only if its neighbours hold something else. */
START_TEST(coordinates_tell)
{
	struct plumb_config cfg = sizes(PLUMB_MOE_DOWN, _i % 2);
	struct trial *c = case_new(PLUMB_MOE_DOWN, (enum plumb_format)(_i / 2), &cfg, 1, 5);
	const struct trial_operand *o = trial_operand(c, "down");
	static const int step[][2] = {{0, 1}, {0, 2}, {0, 8}, {0, 16}, {0, 128}, {1, 0}, {2, 0}, {128, 0}, {1, 1}};
	int64_t differ[10] = {0}, all[10] = {0};

	for (int64_t n = 0; n < o->weight->rows; n++)
		for (int64_t k = 0; k < o->weight->cols; k++) {
			float v = byte_decoder_element(&o->weight[0], n, k);
			for (int i = 0; i < 9; i++) {
				int64_t m = n + step[i][0], l = k + step[i][1];
				if (m < o->weight->rows && l < o->weight->cols) {
					all[i]++;
					differ[i] += byte_decoder_element(&o->weight[0], m, l) != v;
				}
			}
			all[9]++;
			differ[9] += byte_decoder_element(&o->weight[1], n, k) != v;
		}
	for (int i = 0; i < 10; i++)
		ck_assert_msg(differ[i] * 10 >= all[i] * 8, "%s: %lld of %lld differ at step %d",
			plumb_format_name((enum plumb_format)(_i / 2)), (long long)differ[i], (long long)all[i], i);
	trial_free(c);
}
END_TEST

/* ---- refusals ---- */

/* Every vector of every op, in every format that no kernel reads it in. A device with memory of its own copies before it
 * refuses, so there are scales to copy. */
START_TEST(vectors_refuse)
{
	static const float scales[1 << 14];
	struct plumb_device *on = device[_i];
	char want[256];
	int told = 0;

	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		for (int i = 0; i < plumb_ops[op].operands; i++)
			for (int f = PLUMB_PLAIN_FORMATS;
				trial_is_vector(&plumb_ops[op].operand[i]) && f < PLUMB_FORMAT_COUNT; f++) {
				struct trial *c = trial_new((enum plumb_op)op, 3, NULL);
				struct trial_operand *o = &c->operand[i];
				enum plumb_format before = o->weight->format;

				o->weight->format = (enum plumb_format)f;
				o->weight->scale = scales;
				ck_assert_uint_le(plumb_weight_scale_bytes(o->weight), sizeof scales);
				c->env.device = on;
				int status = plumb_device_set(on)->op[op](&c->env, c->args);
				snprintf(want, sizeof want, "%s: %s is stored as %s, expected f32, f16 or bf16",
					plumb_ops[op].name, o->info->name, plumb_format_name((enum plumb_format)f));
				ck_assert_msg(status == PLUMB_BAD_INPUT, "%s: %d", want, status);
				ck_assert_str_eq(c->error.text, want);
				o->weight->format = before;
				told++;
				ck_assert_int_eq(plumb_device_forget(on, &err), PLUMB_OK);
				trial_free(c);
			}
	ck_assert_int_eq(told, 4 * 13); /* 13 vectors in the table of ops */
}
END_TEST

/* A format that comes without what it needs: by op and operand. */
START_TEST(matrices_refuse)
{
	struct trial_options options = {.policy = -1, .format = PLUMB_FP8_BLOCK, .traces = -1};
	struct trial *c = trial_new(PLUMB_LM_HEAD, 3, &options);
	struct plumb_weight *w = trial_operand(c, "w")->weight, good = *w;
	plumb_op_fn *fn = plumb_device_set(device[_i])->op[PLUMB_LM_HEAD];

	c->env.device = device[_i];
	w->scale = NULL;
	ck_assert_int_eq(fn(&c->env, c->args), PLUMB_BAD_INPUT);
	ck_assert_str_eq(c->error.text, "lm_head: w is stored as fp8_block but has no scales");
	*w = good;
	w->scale_format = PLUMB_F16;
	ck_assert_int_eq(fn(&c->env, c->args), PLUMB_BAD_INPUT);
	ck_assert_str_eq(c->error.text, "lm_head: w is stored as fp8_block with scales as f16, expected f32 or bf16");
	*w = good;
	trial_free(c);

	options.format = PLUMB_FP8_ROW;
	struct plumb_config cfg = sizes(PLUMB_MOE_DOWN, false);
	options.cfg = &cfg;
	c = trial_new(PLUMB_MOE_DOWN, 3, &options);
	w = trial_operand(c, "down")->weight;
	fn = plumb_device_set(device[_i])->op[PLUMB_MOE_DOWN];
	c->env.device = device[_i];
	good = w[1];
	w[1].scale = NULL;
	ck_assert_int_eq(fn(&c->env, c->args), PLUMB_BAD_INPUT);
	ck_assert_str_eq(c->error.text, "matrix 1 of a bank has no scales, matrix 0 has some");
	w[1] = good;
	w[1].scale_format = good.scale_format == PLUMB_F32 ? PLUMB_BF16 : PLUMB_F32;
	ck_assert_int_eq(fn(&c->env, c->args), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(c->error.text, "matrix 1 of a bank has scales stored as") != NULL, "%s", c->error.text);
	w[1] = good;
	ck_assert_int_eq(plumb_device_forget(device[_i], &err), PLUMB_OK);
	trial_free(c);
}
END_TEST

/* ---- copies ---- */

/* Codes, scales and the global scale that change in place are seen at the next call. */
START_TEST(changes_arrive)
{
	enum plumb_op op = _i % 2 ? PLUMB_MOE_DOWN : PLUMB_LM_HEAD;
	enum plumb_format format = (enum plumb_format)(PLUMB_FP8_ROW + _i / 2);
	struct plumb_config cfg = sizes(op, true);
	struct trial *c = case_new(op, format, &cfg, 2, 5);
	struct trial_operand *o = trial_operand(c, op == PLUMB_MOE_DOWN ? "down" : "w");
	char text[TRIAL_TEXT];

	for (int change = 0; change < 4; change++) {
		struct plumb_weight *w = &o->weight[o->matrices - 1];
		if (change == 1)
			*bytes_of(&o->memory, (const unsigned char *)w->data + plumb_weight_data_bytes(w) / 2) ^= 0x11;
		else if (change == 2 && w->scale) /* the exponent of every second scale */
			for (size_t i = 0; i < plumb_weight_scale_bytes(w); i++)
				bytes_of(&o->scale, w->scale)[i] ^= format != PLUMB_NVFP4 && i % 4 != 3 ? 0 : 8;
		else if (change == 3)
			w->global = -w->global;
		trial_seal(c);
		for (int d = 0; d < DEVICES; d++)
			ck_assert_msg(trial_agree(c, NULL, &device[d], 1, text), "change %d: %s", change, text);
	}
	for (int d = 0; d < DEVICES; d++)
		ck_assert_int_eq(plumb_device_forget(device[d], &err), PLUMB_OK);
	trial_free(c);
}
END_TEST

int main(void)
{
	int status = open_devices("test_formats", PLUMB_POISON_NAN);
	if (status != PLUMB_OK)
		return suite_without_device(status);
	Suite *suite = suite_create("formats");
	TCase *cases = suite_part(suite, "formats", 300);
	tcase_add_loop_test(cases, coordinates, 0, 2 * PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, coordinates_tell, 0, 2 * PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, vectors_refuse, 0, DEVICES);
	tcase_add_loop_test(cases, matrices_refuse, 0, DEVICES);
	tcase_add_loop_test(cases, changes_arrive, 0, 2 * (PLUMB_FORMAT_COUNT - PLUMB_PLAIN_FORMATS));
	int failed = suite_run_here(suite); /* the devices keep their stacks from case to case; CUDA survives no fork */
	for (int i = 0; i < DEVICES; i++)
		plumb_device_close(device[i]);
	return failed;
}
