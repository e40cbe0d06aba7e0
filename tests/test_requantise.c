/* SPDX-License-Identifier: MIT */
/* A model held as a profile asks, and the scan of all weights: values and bytes against the quantiser and decoder
 * applied to whole matrices, what may not change, mixed experts, and every number that no format can hold. */
#include <check.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint.h"
#include "core/numeric.h"
#include "core/quantise.h"
#include "core/requantise.h"
#include "core/scan.h"
#include "tests/support/byte_decoder.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define TINY_NVFP4 PLUMB_GOLDEN_DIR "/tiny-nvfp4/checkpoint"
#define TINY_FP8 PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint"

static struct plumb_error err;
static struct plumb_checkpoint *checkpoint;
static struct plumb_requantised *result;

static struct plumb_model *opened(const char *dir)
{
	ck_assert_msg(plumb_checkpoint_open(dir, &checkpoint, &err) == PLUMB_OK, "%s", err.text);
	return (struct plumb_model *)(uintptr_t)plumb_checkpoint_model(checkpoint); /* tests put other weights into it */
}

static void closed(void)
{
	plumb_requantised_free(result);
	result = NULL;
	plumb_checkpoint_close(checkpoint);
	checkpoint = NULL;
}

static struct plumb_profile profile_of(const char *groups)
{
	struct plumb_profile p;
	char text[512];
	int n = snprintf(text, sizeof text, "{\"version\": 1, \"groups\": {%s}}", groups);
	ck_assert_msg(plumb_profile_parse(text, (size_t)n, "test.json", &p, &err) == PLUMB_OK, "%s", err.text);
	return p;
}

static struct plumb_profile shipped(const char *name)
{
	struct plumb_profile p;
	ck_assert_msg(plumb_profile_open(name, &p, &err) == PLUMB_OK, "%s", err.text);
	return p;
}

static const struct plumb_model *apply(const struct plumb_model *m, const struct plumb_profile *p)
{
	plumb_requantised_free(result);
	result = NULL;
	ck_assert_msg(plumb_profile_apply(m, p, NULL, &result, &err) == PLUMB_OK, "%s", err.text);
	return plumb_requantised_model(result);
}

static void expect_refused(const struct plumb_model *m, const struct plumb_profile *p, const char *name, const char *what)
{
	struct plumb_requantised *r = NULL;
	ck_assert_int_eq(plumb_profile_apply(m, p, NULL, &r, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_null(r);
	ck_assert_msg(strstr(err.text, name) == err.text && strstr(err.text, what), "'%s' does not name '%s' and '%s'",
		err.text, name, what);
}

/* ---- matrices side by side ---- */

struct flat {
	struct plumb_weight w[2048];
	enum plumb_group group[2048];
	char name[2048][96];
	int count;
};

static int flatten(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct flat *f = self;
	ck_assert_int_lt(f->count, 2048);
	f->w[f->count] = *w;
	f->group[f->count] = group;
	snprintf(f->name[f->count++], 96, "%s", name);
	return PLUMB_OK;
}

static struct flat *flat_of(const struct plumb_model *m, bool vectors)
{
	struct flat *f = calloc(1, sizeof *f);
	struct plumb_model copy = *m;
	ck_assert_ptr_nonnull(f);
	ck_assert_int_eq(vectors ? plumb_vectors_walk(&copy, flatten, f) : plumb_groups_walk(&copy, flatten, f), PLUMB_OK);
	return f;
}

static float *values_of(const struct plumb_weight *w)
{
	float *v = malloc((size_t)(w->rows * w->cols) * sizeof *v);
	ck_assert_ptr_nonnull(v);
	for (int64_t n = 0; n < w->rows; n++)
		plumb_weight_row(w, n, 0, w->cols, v + n * w->cols);
	return v;
}

/* The changed matrix holds, byte for byte, what the quantiser makes of the source's values as one piece. global: 0, or
 * the scale of a table that the matrix is a part of. */
static void expect_quantised(const char *name, const struct plumb_weight *from, const struct plumb_weight *to, float global)
{
	struct plumb_weight want = {.format = to->format,
		.rows = from->rows,
		.cols = from->cols,
		.scale_format = plumb_profile_scale_format(to->format),
		.global = global};
	float *v = values_of(from);
	unsigned char *data = malloc(plumb_weight_data_bytes(&want)), *scale = malloc(plumb_weight_scale_bytes(&want) + 1);
	ck_assert_int_eq(plumb_quantise(v, &want, data, scale, &err), PLUMB_OK);
	ck_assert_int_eq(to->rows, from->rows);
	ck_assert_int_eq(to->cols, from->cols);
	ck_assert_msg(memcmp(&to->global, &want.global, sizeof want.global) == 0, "%s: global %g, expected %g", name,
		(double)to->global, (double)want.global);
	ck_assert_msg(memcmp(to->data, data, plumb_weight_data_bytes(&want)) == 0, "%s: other codes", name);
	ck_assert_msg(plumb_weight_scale_bytes(&want) == 0 || to->scale_format == want.scale_format, "%s", name);
	ck_assert_msg(
		plumb_weight_scale_bytes(&want) == 0 || memcmp(to->scale, scale, plumb_weight_scale_bytes(&want)) == 0,
		"%s: other scales", name);
	free(v);
	free(data);
	free(scale);
}

static bool same_place(const struct plumb_weight *a, const struct plumb_weight *b)
{
	return a->data == b->data && a->scale == b->scale && a->format == b->format && a->global == b->global &&
	       a->scale_format == b->scale_format && a->rows == b->rows && a->cols == b->cols;
}

static float table_global(const struct flat *f)
{
	float most = 0;
	for (int i = 0; i < f->count; i++) {
		if (f->group[i] != PLUMB_GROUP_NGRAM_TABLE)
			continue;
		float *v = values_of(&f->w[i]);
		for (int64_t j = 0; j < f->w[i].rows * f->w[i].cols; j++)
			most = fmaxf(most, fabsf(v[j]));
		free(v);
	}
	return most / 448.0f;
}

/* Every matrix of the result: held as asked with the right bytes, or the source's own. Vectors are the source's. */
static void expect_profile(const struct plumb_model *m, const struct plumb_profile *p)
{
	struct flat *from = flat_of(m, false), *vectors = flat_of(m, true);
	const struct plumb_model *made = apply(m, p);
	struct flat *to = flat_of(made, false), *same = flat_of(made, true);
	const struct plumb_requantised_group *sum = plumb_requantised_groups(result);
	struct plumb_requantised_group want[PLUMB_GROUP_COUNT] = {{0}};

	for (int i = 0; i < from->count; i++) {
		enum plumb_group g = from->group[i];
		bool changed = !p->keep[g] && from->w[i].format != p->format[g];
		want[g].matrices++;
		if (!changed) {
			ck_assert_msg(same_place(&from->w[i], &to->w[i]), "%s was touched", from->name[i]);
			continue;
		}
		ck_assert_int_eq(to->w[i].format, p->format[g]);
		ck_assert_uint_eq((uintptr_t)to->w[i].data % 16, 0);
		expect_quantised(from->name[i], &from->w[i], &to->w[i],
			g == PLUMB_GROUP_NGRAM_TABLE && p->format[g] == PLUMB_FP8_TABLE ? table_global(from) : 0.0f);
		want[g].changed++;
		want[g].before += (int64_t)plumb_weight_bytes(&from->w[i]);
		want[g].after += (int64_t)plumb_weight_bytes(&to->w[i]);
	}
	ck_assert_int_eq(vectors->count, same->count);
	for (int i = 0; i < vectors->count; i++)
		ck_assert(same_place(&vectors->w[i], &same->w[i]));
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		ck_assert_int_eq(sum[g].matrices, want[g].matrices);
		ck_assert_int_eq(sum[g].changed, want[g].changed);
		ck_assert_int_eq(sum[g].before, want[g].before);
		ck_assert_int_eq(sum[g].after, want[g].after);
	}
	free(from);
	free(to);
	free(vectors);
	free(same);
}

/* Every profile that ships, from each of the golden checkpoints, which hold bf16, nvfp4, fp8 blocks and an fp8 table.
 */
START_TEST(profiles_of_checkpoints)
{
	static const char *const dirs[] = {TINY, TINY_NVFP4, TINY_FP8};
	const char *text, *name = plumb_profile_shipped(_i / 3, &text, &(size_t){0});
	struct plumb_profile p = shipped(name);
	expect_profile(opened(dirs[_i % 3]), &p);
}
END_TEST

/* Every format that a group can take, from every format that tiny has. */
START_TEST(formats_of_groups)
{
	struct plumb_model *m = opened(_i / PLUMB_FORMAT_COUNT ? TINY_NVFP4 : TINY);
	struct plumb_profile p = shipped("release-bf16");
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		enum plumb_format f = (enum plumb_format)(_i % PLUMB_FORMAT_COUNT);
		p.keep[g] = !plumb_group_takes((enum plumb_group)g, f);
		p.format[g] = f;
	}
	expect_profile(m, &p);
}
END_TEST

/* Matrices of many panels: the same bytes as in one piece, and for any number of threads. */
START_TEST(panels)
{
	struct plumb_config cfg = random_checkpoint_smallest();
	const struct random_checkpoint o = {.seed = 5, .format = PLUMB_BF16, .ple_shards = 3};
	char dir[SCRATCH_PATH];
	cfg.vocab = 4500;
	cfg.hidden = 301;
	random_checkpoint_write(scratch_make(dir), &cfg, &o);
	struct plumb_model *m = opened(dir);
	static const char *const heads[] = {"nvfp4", "fp8_block", "fp8_row", "f16", "f32"};
	char groups[128];
	snprintf(groups, sizeof groups, "\"embed\": \"fp8_table\", \"lm_head\": \"%s\", \"ngram_table\": \"fp8_table\"",
		heads[_i]);
	struct plumb_profile p = profile_of(groups);
	ck_assert_int_gt(cfg.vocab * cfg.hidden, 1 << 20); /* more than a panel */
	for (int threads = 1; threads <= 5; threads += 2) {
		omp_set_num_threads(threads);
		expect_profile(m, &p);
	}
	scratch_remove(dir);
}
END_TEST

/* From quantised to plain: the values of core/weight.h, by a decoder that shares no line with it, rounded to bf16. */
START_TEST(back_to_bf16)
{
	struct plumb_model *m = opened(_i ? TINY_FP8 : TINY_NVFP4);
	struct plumb_profile p = shipped("release-bf16");
	const struct plumb_model *made = apply(m, &p);
	const struct plumb_weight *from = &m->layer[2].moe.up[7], *to = &made->layer[2].moe.up[7];
	ck_assert_int_eq(from->format, _i ? PLUMB_FP8_BLOCK : PLUMB_NVFP4);
	ck_assert_int_eq(to->format, PLUMB_BF16);
	for (int64_t n = 0; n < from->rows; n++)
		for (int64_t k = 0; k < from->cols; k++)
			ck_assert(byte_decoder_element(to, n, k) == plumb_round_bf16(byte_decoder_element(from, n, k)));
}
END_TEST

/* ---- experts held in several ways ---- */

/* Weights of other formats, made from those of a model. */
static unsigned char pool[1 << 16];
static size_t used;
static struct plumb_weight other(const struct plumb_weight *w, enum plumb_format format, enum plumb_format scale_format)
{
	struct plumb_weight made = {.format = format, .rows = w->rows, .cols = w->cols, .scale_format = scale_format};
	unsigned char *data = pool + used, *scale = data + (plumb_weight_data_bytes(&made) + 15) / 16 * 16;
	float *v = values_of(w);
	used = (size_t)(scale - pool) + (plumb_weight_scale_bytes(&made) + 15) / 16 * 16;
	ck_assert_uint_le(used, sizeof pool);
	ck_assert_int_eq(plumb_quantise(v, &made, data, scale, &err), PLUMB_OK);
	free(v);
	return made;
}

static void expect_uniform(const struct plumb_model *m, enum plumb_format format, enum plumb_format scale_format)
{
	for (int l = 0; l < m->cfg.layers; l++)
		for (int64_t e = 0; e < m->cfg.experts; e++) {
			const struct plumb_weight *w[] = {
				&m->layer[l].moe.gate[e], &m->layer[l].moe.up[e], &m->layer[l].moe.down[e]};
			for (int i = 0; i < 3; i++) {
				ck_assert_int_eq(w[i]->format, format);
				ck_assert_int_eq(w[i]->scale_format, scale_format);
			}
		}
}

START_TEST(mixed_experts)
{
	struct plumb_model *m = opened(TINY_FP8);
	struct plumb_profile p = profile_of("\"experts\": \"fp8_block\"");
	enum plumb_format stored = m->layer[0].moe.gate[0].scale_format,
			  unlike = stored == PLUMB_F32 ? PLUMB_BF16 : PLUMB_F32;

	apply(m, &p); /* all alike, whatever the scales: nothing to do */
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++)
		ck_assert_int_eq(plumb_requantised_groups(result)[g].changed, 0);

	/* some in other formats: those change, and so do those whose scales are not like the new ones */
	m->layer[1].moe.gate[3] = other(&m->layer[1].moe.gate[3], PLUMB_BF16, PLUMB_F32);
	m->layer[2].moe.down[0] = other(&m->layer[2].moe.down[0], PLUMB_NVFP4, PLUMB_F32);
	const struct plumb_model *made = apply(m, &p);
	expect_uniform(made, PLUMB_FP8_BLOCK, PLUMB_BF16);
	const struct plumb_requantised_group *sum = &plumb_requantised_groups(result)[PLUMB_GROUP_EXPERTS];
	ck_assert_int_eq(sum->changed, stored == PLUMB_BF16 ? 2 : sum->matrices);
	ck_assert(sum->from[PLUMB_BF16] && sum->from[PLUMB_NVFP4] && sum->from[PLUMB_FP8_BLOCK] == (stored != PLUMB_BF16));
	expect_quantised("gate", &m->layer[1].moe.gate[3], &made->layer[1].moe.gate[3], 0.0f);
	expect_quantised("down", &m->layer[2].moe.down[0], &made->layer[2].moe.down[0], 0.0f);

	/* one format, two kinds of scales */
	closed();
	used = 0;
	m = opened(TINY_FP8);
	m->layer[0].moe.up[5] = other(&m->layer[0].moe.up[5], PLUMB_FP8_BLOCK, unlike);
	made = apply(m, &p);
	expect_uniform(made, PLUMB_FP8_BLOCK, PLUMB_BF16);
	p = profile_of("\"experts\": \"keep\"");
	made = apply(m, &p);
	ck_assert_int_eq(made->layer[0].moe.up[5].scale_format, unlike);
}
END_TEST

/* ---- what no format holds ---- */

static struct plumb_weight poked(const struct plumb_weight *w, int64_t n, int64_t k, float v)
{
	struct plumb_weight made = other(w, PLUMB_F32, PLUMB_F32);
	memcpy((unsigned char *)(uintptr_t)made.data + 4 * (n * w->cols + k), &v, sizeof v);
	return made;
}

START_TEST(no_numbers)
{
	static const char *const groups[] = {"\"experts\": \"nvfp4\"", "\"experts\": \"fp8_row\"",
		"\"experts\": \"fp8_block\"", "\"experts\": \"bf16\"", "\"experts\": \"f16\""};
	static const float values[] = {NAN, INFINITY, -INFINITY};
	struct plumb_model *m = opened(TINY);
	struct plumb_profile p = profile_of(groups[_i / 3]);
	struct plumb_weight *w = &m->layer[2].moe.down[9], stored = *w;

	*w = poked(&stored, 17, 5, values[_i % 3]);
	expect_refused(
		m, &p, "layers.2.mlp.experts.9.down_proj: element [17, 5], stored as f32, is ", _i % 3 ? "inf" : "nan");
	w = &m->layer[1].moe.gate[15]; /* of two, the first in the order of the model, on any number of threads */
	*w = poked(w, 3, 4, NAN);
	for (int threads = 1; threads < 8; threads++) {
		omp_set_num_threads(threads);
		expect_refused(m, &p, "layers.1.mlp.experts.15.gate_proj: element [3, 4]", "expected a finite number");
	}
	p = profile_of("\"experts\": \"keep\", \"shared\": \"nvfp4\""); /* a matrix that is not touched is not looked at */
	apply(m, &p);
}
END_TEST

/* f32 holds every number of the sources, so only NaN and Inf are refused; f16 and bf16 end where they end. */
START_TEST(largest_numbers)
{
	static const struct {
		const char *group;
		float value;
		bool fits;
	} edges[] = {
		{"\"lm_head\": \"f16\"", 65504.0f, true},
		{"\"lm_head\": \"f16\"", 0x1.ffdffep15f, true}, /* the last below the middle to the next binade */
		{"\"lm_head\": \"f16\"", -0x1.ffdffep15f, true},
		{"\"lm_head\": \"f16\"", 65520.0f, false}, /* the middle */
		{"\"lm_head\": \"f16\"", -1e30f, false},
		{"\"lm_head\": \"bf16\"", 0x1.fefffep127f, true},
		{"\"lm_head\": \"bf16\"", 0x1.ffp127f, false}, /* the middle */
		{"\"lm_head\": \"fp8_row\"", 3e38f, true},
		{"\"lm_head\": \"fp8_block\"", -0x1.fffffep127f, true},
		{"\"lm_head\": \"nvfp4\"", 0x1.fffffep127f, true},
	};
	for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++) {
		struct plumb_model *m = opened(TINY);
		struct plumb_profile p = profile_of(edges[i].group);
		float *data = calloc((size_t)(m->lm_head.rows * m->lm_head.cols), sizeof *data);
		m->lm_head.format = PLUMB_F32;
		m->lm_head.data = data;
		data[3 * m->lm_head.cols + 2] = edges[i].value;
		if (edges[i].fits) {
			float back;
			plumb_weight_row(&apply(m, &p)->lm_head, 3, 2, 1, &back);
			ck_assert_msg(isfinite(back) && back * edges[i].value > 0, "%s: %g", edges[i].group, (double)back);
		} else {
			expect_refused(m, &p, "lm_head: element [3, 2] is ", "beyond the largest number");
		}
		free(data);
		closed();
	}
}
END_TEST

/* ---- report ---- */

struct steps {
	int64_t calls, last, total;
};
static void count_steps(void *self, int64_t done, int64_t total)
{
	struct steps *s = self;
	s->calls++;
	ck_assert_int_le(done, total);
	ck_assert_int_gt(total, 0);
	s->last = done;
	s->total = total;
}

START_TEST(report)
{
	struct plumb_model *m = opened(TINY);
	struct plumb_profile p = shipped("served");
	struct steps steps = {0};
	struct plumb_watch watch = {.step = count_steps, .self = &steps};
	char text[1024];

	omp_set_num_threads(1);
	ck_assert_int_eq(plumb_profile_apply(m, &p, &watch, &result, &err), PLUMB_OK);
	ck_assert_int_gt(steps.calls, 0);
	ck_assert_int_eq(steps.last, steps.total);
	ck_assert_int_eq(watch.done, watch.total);
	ck_assert_str_eq(plumb_requantised_profile(result), "served");
	plumb_requantised_show(result, text, sizeof text);
	ck_assert_msg(
		strstr(text, "served: ngram_table bf16 -> fp8_table, 4 matrices; attention bf16 -> nvfp4, 4 matrices; "
			     "experts bf16 -> nvfp4, 192 matrices; shared bf16 -> nvfp4, 12 matrices; ") == text,
		"%s", text);
	plumb_requantised_show(result, text, 20); /* no more than fits */
	ck_assert_str_eq(text, "served: ngram_table");
	p = shipped("release-bf16");
	apply(m, &p);
	ck_assert_str_eq(plumb_requantised_show(result, text, sizeof text), "release-bf16: all is held so");
}
END_TEST

/* ---- the scan ---- */

static void scan_finds(const struct plumb_model *m, const char *first, const char *count)
{
	int64_t values;
	for (int threads = 1; threads < 5; threads++) {
		omp_set_num_threads(threads);
		ck_assert_int_eq(plumb_model_scan(m, NULL, &values, &err), PLUMB_BAD_INPUT);
		ck_assert_msg(strstr(err.text, first) == err.text && strstr(err.text, count),
			"'%s' does not say '%s', '%s'", err.text, first, count);
		ck_assert_ptr_null(strchr(err.text, '\n'));
	}
}

/* A writable copy of a weight's bytes in its place. */
static unsigned char *own(struct plumb_weight *w, bool scale)
{
	const void **at = scale ? &w->scale : &w->data;
	size_t bytes = scale ? plumb_weight_scale_bytes(w) : plumb_weight_data_bytes(w);
	unsigned char *copy = pool + used;
	used += (bytes + 15) / 16 * 16;
	ck_assert_uint_le(used, sizeof pool);
	memcpy(copy, *at, bytes);
	*at = copy;
	return copy;
}

START_TEST(scan_passes)
{
	static const char *const dirs[] = {TINY, TINY_NVFP4, TINY_FP8};
	struct plumb_model *m = opened(dirs[_i]);
	struct flat *f[2] = {flat_of(m, false), flat_of(m, true)};
	struct steps steps = {0};
	struct plumb_watch watch = {.step = count_steps, .self = &steps};
	int64_t values, want = 0;

	omp_set_num_threads(1);
	for (int j = 0; j < 2; j++)
		for (int i = 0; i < f[j]->count; i++)
			want += f[j]->w[i].rows * f[j]->w[i].cols;
	ck_assert_msg(plumb_model_scan(m, &watch, &values, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_int_eq(values, want);
	ck_assert_int_eq(steps.last, want);
	free(f[0]);
	free(f[1]);
}
END_TEST

START_TEST(scan_names)
{
	struct plumb_model *m = opened(TINY_NVFP4);
	struct plumb_weight *w = &m->layer[2].moe.up[11];
	int64_t groups = (w->cols + 15) / 16;

	own(w, true)[5 * groups + 1] = 0x7f;
	scan_finds(m,
		"tensor layers.2.mlp.experts.11.up_proj (nvfp4): row 5, column 16 is no finite number: the scale of "
		"columns 16 on has code 0x7f, which is NaN; 16 such values in 1 tensor, expected none",
		"");
	m->layer[3].moe.down[2].global = 3e38f;
	memset(own(&m->layer[3].moe.down[2], true), 0x7e, 1); /* 448 * 3e38; a code of 0 makes NaN of it, others Inf */
	scan_finds(m, "tensor layers.2.mlp.experts.11.up_proj", "2 tensors");

	w = &m->layer[1].ple->table[2]; /* parts of the table come before the experts of later layers */
	own(w, false)[3 * w->cols + 1] = 0xff;
	scan_finds(m,
		"tensor layers.1.ple.ple_embedding.ngram_embedding.shard_2 (fp8_table): row 3, column 1 is no finite "
		"number: its code is 0xff, which is NaN",
		"3 tensors");

	closed();
	used = 0;
	m = opened(TINY_FP8);
	w = &m->layer[0].moe.gate[0];
	own(w, false)[w->cols + 2] = 0x7f;
	scan_finds(m,
		"tensor layers.0.mlp.experts.0.gate_proj (fp8_block): row 1, column 2 is no finite number: its code is "
		"0x7f",
		"1 such value in 1 tensor");
	own(w, false)[w->cols + 2] = 0x7e;
	float *scales = (float *)(void *)(pool + used);
	used += 256;
	scales[0] = 2e38f; /* alone, and above every other of the block */
	w->scale = scales;
	w->scale_format = PLUMB_F32;
	scan_finds(m, "tensor layers.0.mlp.experts.0.gate_proj (fp8_block): row ", "overflows with scale 2e+38");
}
END_TEST

/* Vectors too, each of them. */
START_TEST(scan_vectors)
{
	struct plumb_model *m = opened(TINY);
	struct flat *f = flat_of(m, true);
	static const uint16_t bad[] = {0x7fc0, 0x7f80, 0xff80, 0xff81};
	int count = f->count;
	struct plumb_weight *every[] = {&m->mixer.norm, &m->layer[0].attn_hc.norm, &m->layer[1].mlp_hc.norm,
		&m->layer[0].gdn.conv, &m->layer[0].gdn.a_log, &m->layer[1].gdn.dt_bias, &m->layer[2].gdn.norm,
		&m->layer[3].attention.q_norm, &m->layer[3].attention.k_norm, &m->layer[3].attention.index_q_norm,
		&m->layer[3].attention.index_k_norm, &m->layer[1].ple->norm_key, &m->layer[1].ple->norm_query,
		&m->layer[1].ple->norm_conv, &m->layer[1].ple->conv};
	ck_assert_int_eq(count, 1 + 8 + 3 * 4 + 4 + 4); /* mixer, hyper-connections, GDN, attention, PLE */
	for (size_t i = 0; i < sizeof every / sizeof every[0]; i++) {
		struct plumb_weight stored = *every[i];
		used = 0;
		ck_assert_int_eq(stored.format, PLUMB_BF16);
		memcpy(own(every[i], false) + plumb_weight_data_bytes(&stored) - 2, &bad[i % 4], 2); /* the last value */
		char what[128];
		snprintf(what, sizeof what, "row %lld, column %lld is no finite number: it is ", (long long)stored.rows - 1,
			(long long)stored.cols - 1);
		scan_finds(m, "tensor ", what);
		for (int j = 0; j < count; j++)
			if (f->w[j].data == stored.data)
				ck_assert_ptr_nonnull(strstr(err.text, f->name[j]));
		*every[i] = stored;
	}
	free(f);
}
END_TEST

int main(void)
{
	const char *text;
	size_t size;
	int profiles = 0;
	while (plumb_profile_shipped(profiles, &text, &size))
		profiles++;
	Suite *suite = suite_create("requantise");
	TCase *tcase = suite_part(suite, "requantise", 120);
	tcase_add_checked_fixture(tcase, NULL, closed);
	tcase_add_loop_test(tcase, profiles_of_checkpoints, 0, 3 * profiles);
	tcase_add_loop_test(tcase, formats_of_groups, 0, 2 * PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(tcase, panels, 0, 5);
	tcase_add_loop_test(tcase, back_to_bf16, 0, 2);
	tcase_add_test(tcase, mixed_experts);
	tcase_add_loop_test(tcase, no_numbers, 0, 15);
	tcase_add_test(tcase, largest_numbers);
	tcase_add_test(tcase, report);
	tcase_add_loop_test(tcase, scan_passes, 0, 3);
	tcase_add_test(tcase, scan_names);
	tcase_add_test(tcase, scan_vectors);
	return suite_run(suite);
}
