/* SPDX-License-Identifier: MIT */
/* One row times a vector in every weight format, made by hand, against an independent decoder:
 *
 *   counting     ones times ones, with alternating scales, over a grid of lengths and addresses
 *   codes        every code of E4M3 and E2M1, and every E4M3 scale, at every place of a lane's 8 columns
 *   neighbours   NaN in the rows, groups, blocks and bytes around a row must not reach it */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/lm_head.h"
#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tests/support/byte_decoder.h"
#include "tests/support/devices.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

enum { ZONE = 64 };

/* A matrix between zones of NaN bytes, its data offset bytes behind a 16-byte boundary. */
struct made {
	struct plumb_weight w;
	unsigned char *block, *data, *scale;
};

static struct made made_new(enum plumb_format format, int64_t rows, int64_t cols, size_t offset)
{
	struct made m = {.w = {.format = format, .rows = rows, .cols = cols, .scale_format = PLUMB_F32, .global = 1.0f}};
	size_t data = plumb_weight_data_bytes(&m.w), scale = plumb_weight_scale_bytes(&m.w);
	size_t scale_at = (ZONE + offset + data + ZONE + 15) / 16 * 16;

	m.block = aligned_alloc(16, (scale_at + scale + ZONE + 15) / 16 * 16);
	ck_assert_ptr_nonnull(m.block);
	memset(m.block, 0xff, scale_at + scale + ZONE);
	m.w.data = m.data = m.block + ZONE + offset;
	m.w.scale = scale ? m.block + scale_at : NULL;
	m.scale = m.block + scale_at;
	memset(m.data, 0, data);
	return m;
}

static void scale_set(struct made *m, int64_t i, float v)
{
	if (m->w.format == PLUMB_NVFP4)
		m->scale[i] = plumb_f32_to_e4m3(v);
	else
		memcpy(m->scale + 4 * i, &v, sizeof v);
}

static int64_t scale_count(const struct made *m)
{
	return (int64_t)plumb_weight_scale_bytes(&m->w) / (m->w.format == PLUMB_NVFP4 ? 1 : 4);
}

/* code is of nvfp4 or fp8; the other columns of its byte stay as they are. */
static void code_set(struct made *m, int64_t n, int64_t k, unsigned code)
{
	unsigned char *row = m->data + n * (int64_t)plumb_format_row_bytes(m->w.format, m->w.cols);
	if (m->w.format != PLUMB_NVFP4)
		row[k] = (unsigned char)code;
	else if (k % 2)
		row[k / 2] = (unsigned char)((row[k / 2] & 15) | code << 4);
	else
		row[k / 2] = (unsigned char)((row[k / 2] & 0xf0) | code);
}

static void one_set(struct made *m, int64_t n, int64_t k)
{
	float one = 1.0f;
	size_t at = (size_t)n * plumb_format_row_bytes(m->w.format, m->w.cols);
	if (m->w.format >= (enum plumb_format)PLUMB_PLAIN_FORMATS)
		code_set(m, n, k, m->w.format == PLUMB_NVFP4 ? 2 : 0x38);
	else
		plumb_encode(m->w.format, &one, 1, m->data + at + plumb_format_row_bytes(m->w.format, k));
}

/* y (rows) = w . x on every device in turn; d < 0: the twin. x lies before a zone of NaN. */
static void multiply(int d, const struct made *m, const float *x, float *y)
{
	struct trial_random r = {3};
	struct plumb_config cfg;
	struct plumb_env env = {.cfg = &cfg, .policy = PLUMB_POLICY_F32, .capacity = 1, .err = &err};
	float *mine = malloc(((size_t)m->w.cols + ZONE) * sizeof *mine);
	struct plumb_lm_head a = {.T = 1, .x = mine, .w = &m->w, .logits = y};
	int status;

	ck_assert_ptr_nonnull(mine);
	trial_config_random(&r, PLUMB_LM_HEAD, &cfg);
	cfg.vocab = m->w.rows;
	cfg.hidden = m->w.cols;
	memset(mine, 0xff, ((size_t)m->w.cols + ZONE) * sizeof *mine);
	memcpy(mine, x, (size_t)m->w.cols * sizeof *mine);
	env.device = d < 0 ? NULL : device[d];
	status = (d < 0 ? &plumb_ref_twin : plumb_device_set(device[d]))->op[PLUMB_LM_HEAD](&env, &a);
	if (status == PLUMB_OK && d >= 0)
		status = plumb_device_sync(device[d], &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	if (d >= 0)
		ck_assert_msg(plumb_device_forget(device[d], &err) == PLUMB_OK, "%s", err.text);
	free(mine);
}

static const int64_t lengths[] = {1, 2, 3, 7, 8, 9, 15, 16, 17, 23, 24, 31, 32, 33, 40, 47, 48, 49, 120, 127, 128, 129, 136,
	144, 255, 256, 257, 263, 264, 272, 511, 512, 513, 520, 1023, 1024, 1025, 1040, 2047, 2048, 2049, 2064};

/* Ones count columns; with every second scale 2, they count those twice. Rows of two blocks. */
START_TEST(ones_count)
{
	enum plumb_format format = (enum plumb_format)_i;
	for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++)
		for (size_t offset = 0; offset < 12; offset += 4) {
			int64_t K = lengths[l], N = format == PLUMB_FP8_BLOCK && K < 300 ? 130 : 3;
			struct made m = made_new(format, N, K, format == PLUMB_F32 || offset != 8 ? offset : 2);
			float *x = malloc((size_t)K * sizeof *x), y[130];
			ck_assert_ptr_nonnull(x);
			for (int64_t k = 0; k < K; k++)
				x[k] = 1.0f;
			for (int64_t i = 0; i < scale_count(&m); i++)
				scale_set(&m, i, i % 2 ? 2.0f : 1.0f);
			if (format == PLUMB_FP8_TABLE)
				m.w.global = 2.0f;
			if (format == PLUMB_NVFP4)
				m.w.global = 0.25f;
			for (int64_t n = 0; n < N; n++)
				for (int64_t k = 0; k < K; k++)
					one_set(&m, n, k);
			for (int d = -1; d < DEVICES; d++) {
				multiply(d, &m, x, y);
				for (int64_t n = 0; n < N; n++) {
					double sum = 0.0;
					for (int64_t k = 0; k < K; k++)
						sum += (double)byte_decoder_element(&m.w, n, k);
					ck_assert_msg((double)y[n] == sum,
						"%s, K %lld, offset %zu, device %d: row %lld is %g, not %g",
						plumb_format_name(format), (long long)K, offset, d, (long long)n,
						(double)y[n], sum);
				}
			}
			free(x);
			free(m.block);
		}
}
END_TEST

/* Every code at every place of a lane's 8 columns, aligned or not. Row 8*c + j holds code c in column j, all else is 0.
 */
START_TEST(every_code)
{
	enum plumb_format format = (enum plumb_format)(PLUMB_FP8_ROW + _i / 2);
	int64_t codes = format == PLUMB_NVFP4 ? 16 : 256, N = 8 * codes;
	struct made m = made_new(format, N, 8, _i % 2);
	float *y = malloc((size_t)N * sizeof *y), x[8] = {1, 1, 1, 1, 1, 1, 1, 1};

	ck_assert_ptr_nonnull(y);
	for (int64_t i = 0; i < scale_count(&m); i++)
		scale_set(&m, i, i % 3 ? 1.0f : 0.75f);
	m.w.global = 0x1.8p-4f;
	for (int64_t n = 0; n < N; n++)
		code_set(&m, n, n % 8, (unsigned)(n / 8));
	for (int d = -1; d < DEVICES; d++) {
		multiply(d, &m, x, y);
		for (int64_t n = 0; n < N; n++)
			ck_assert_msg(byte_decoder_same(y[n], byte_decoder_element(&m.w, n, n % 8)),
				"%s, device %d: code %lld in column %lld is %g, not %g", plumb_format_name(format), d,
				(long long)n / 8, (long long)n % 8, (double)y[n],
				(double)byte_decoder_element(&m.w, n, n % 8));
	}
	free(y);
	free(m.block);
}
END_TEST

/* Every E4M3 code as the scale of a group; the scale of the other half of the row is 0. */
START_TEST(every_group_scale)
{
	struct made m = made_new(PLUMB_NVFP4, 512, 32, (size_t)_i);
	float x[32], y[512];

	m.w.global = 0x1.333334p-3f; /* products with it round */
	for (int64_t n = 0; n < 512; n++) {
		m.scale[2 * n + n % 2] = (unsigned char)(n / 2);
		m.scale[2 * n + !(n % 2)] = 0;
		for (int64_t k = 0; k < 32; k++)
			code_set(&m, n, k, k % 16 == 11 ? 5 : 0); /* 3 */
	}
	for (int64_t k = 0; k < 32; k++)
		x[k] = 1.0f;
	for (int d = -1; d < DEVICES; d++) {
		multiply(d, &m, x, y);
		for (int64_t n = 0; n < 512; n++)
			ck_assert_msg(byte_decoder_same(y[n], byte_decoder_element(&m.w, n, n % 2 * 16 + 11)),
				"device %d: scale %lld gives %.9g, not %.9g", d, (long long)n / 2, (double)y[n],
				(double)byte_decoder_element(&m.w, n, n % 2 * 16 + 11));
	}
	free(m.block);
}
END_TEST

/* Rows of NaN above and below, and NaN as the scale of other blocks of rows, do not reach a row between. (E2M1 has no
 * NaN: its scales do.) */
START_TEST(neighbours_stay_out)
{
	enum plumb_format format = (enum plumb_format)(_i / 2);
	for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
		int64_t K = lengths[l], N = format == PLUMB_FP8_BLOCK && K < 300 ? 131 : 3, groups = (K + 15) / 16,
			blocks = (K + 127) / 128;
		struct made m = made_new(format, N, K, _i % 2 ? 4 : 0);
		size_t row_bytes = plumb_format_row_bytes(format, K);
		float *x = malloc((size_t)K * sizeof *x), y[131];

		ck_assert_ptr_nonnull(x);
		for (int64_t i = 0; i < scale_count(&m); i++)
			scale_set(&m, i, 0.5f);
		for (int64_t n = 0; n < N; n++)
			for (int64_t k = 0; k < K; k++)
				one_set(&m, n, k);
		for (int64_t n = 0; n < N; n += 2) { /* the even rows are bad */
			if (format == PLUMB_NVFP4)
				memset(m.scale + n * groups, 0x7f, (size_t)groups);
			else if (format == PLUMB_FP8_ROW)
				scale_set(&m, n, NAN);
			memset(m.data + (size_t)n * row_bytes, 0xff, row_bytes);
		}
		for (int64_t i = 0; format == PLUMB_FP8_BLOCK && N > 128 && i < blocks; i++)
			scale_set(&m, blocks + i, NAN); /* and so are all from 128 on */
		for (int64_t k = 0; k < K; k++)
			x[k] = 1.0f;
		for (int d = -1; d < DEVICES; d++) {
			multiply(d, &m, x, y);
			for (int64_t n = 0; n < N; n++) {
				bool bad = n % 2 == 0 || (format == PLUMB_FP8_BLOCK && n >= 128);
				float want = bad ? NAN : (float)K * byte_decoder_element(&m.w, n, 0);
				ck_assert_msg(byte_decoder_same(y[n], want),
					"%s, K %lld, device %d: row %lld is %g, not %g", plumb_format_name(format),
					(long long)K, d, (long long)n, (double)y[n], (double)want);
			}
		}
		free(x);
		free(m.block);
	}
}
END_TEST

int main(void)
{
	int status = open_devices("test_format_rows", PLUMB_POISON_NAN);
	if (status != PLUMB_OK)
		return suite_without_device(status);
	Suite *suite = suite_create("format_rows");
	TCase *cases = suite_part(suite, "format_rows", 300);
	tcase_add_loop_test(cases, ones_count, 0, PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(cases, every_code, 0, 2 * (PLUMB_FORMAT_COUNT - PLUMB_PLAIN_FORMATS));
	tcase_add_loop_test(cases, every_group_scale, 0, 2);
	tcase_add_loop_test(cases, neighbours_stay_out, 0, 2 * PLUMB_FORMAT_COUNT);
	int failed = suite_run_here(suite); /* the devices keep their stacks from case to case; CUDA survives no fork */
	for (int i = 0; i < DEVICES; i++)
		plumb_device_close(device[i]);
	return failed;
}
