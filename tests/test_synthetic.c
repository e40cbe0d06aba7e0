/* SPDX-License-Identifier: MIT */
/* The generator of synthetic weights: its words, what it makes of them in every format, in any part and order, and the
 * same bytes from a device. Built with PLUMB_TEST_GPU the device is a GPU, and without one it ends with 77. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/numeric.h"
#include "opt/device_private.h"
#include "opt/stored.h"
#include "tests/support/made_tensor.h"
#include "tests/support/suite.h"

static struct plumb_error err;

#ifndef PLUMB_TEST_GPU
START_TEST(words_are_what_they_were)
{
	/* by tools/synthetic.py: a change of the generator changes every golden file */
	uint64_t key = plumb_synthetic_key("lm_head", 0);
	ck_assert_uint_eq(key, UINT64_C(0xAFC4AD00377E9681));
	ck_assert_uint_eq(plumb_synthetic_word(key, 0), 0x19F4392Cu);
	ck_assert_uint_eq(plumb_synthetic_word(key, UINT64_C(0xFFFFFFFF)), 0xBDF6B694u);
	ck_assert_uint_eq(plumb_synthetic_word(key, UINT64_C(0x100000000)), 0x55A779FEu);
	ck_assert_uint_eq(plumb_synthetic_word(key, PLUMB_SYNTHETIC_GLOBAL), 0x851A28BAu);
	ck_assert_uint_ne(plumb_synthetic_key("lm_head", 1), key);
}
END_TEST

/* Every bit of the words is set half of the time, and neighbours share half of their bits. */
START_TEST(words_are_even)
{
	enum { N = 1 << 16 };
	int set[32] = {0}, changed[32] = {0};
	uint64_t key = plumb_synthetic_key("layers.0.mlp.gate", 5);
	uint32_t before = 0;

	for (uint64_t j = 0; j < N; j++) {
		uint32_t w = plumb_synthetic_word(key, j);
		for (int b = 0; b < 32; b++) {
			set[b] += (int)(w >> b & 1);
			changed[b] += (int)((w ^ before) >> b & 1);
		}
		before = w;
	}
	for (int b = 0; b < 32; b++) { /* six standard deviations of a fair coin: 3 * sqrt(N) */
		ck_assert_int_lt(abs(set[b] - N / 2), 3 * 256);
		ck_assert_int_lt(abs(changed[b] - N / 2), 3 * 256);
	}
}
END_TEST

START_TEST(values_have_the_declared_rms)
{
	const struct made_case *c = &made_cases[_i];
	struct made_tensor m;
	int64_t rows = 600, cols = 512;
	double sum = 0, wanted, centre;
	float *row = malloc((size_t)cols * sizeof *row);

	made_create(&m, "layers.0.mlp.experts.3.up_proj", c->format, c->scale_format, rows, cols, 0, 11);
	plumb_synthetic_fill(&m.w, 0, rows);
	plumb_synthetic_scaling("layers.0.mlp.experts.3.up_proj", cols, &wanted, &centre);
	for (int64_t n = 0; n < rows; n++) {
		plumb_weight_row(&m.w, n, 0, cols, row);
		for (int64_t k = 0; k < cols; k++) {
			ck_assert_msg(isfinite(row[k]), "element %lld,%lld of %s", (long long)n, (long long)k,
				plumb_format_name(c->format));
			sum += (double)row[k] * (double)row[k];
		}
	}
	double ratio = sqrt(sum / (double)(rows * cols)) / wanted;
	/* one global scale stands for a matrix: 0.75 to 1.25 of the wanted; 20 blocks leave about a tenth of chance */
	bool global = c->format == PLUMB_NVFP4 || c->format == PLUMB_FP8_TABLE;
	double slack = global ? 0.28 : c->format == PLUMB_FP8_BLOCK ? 0.15 : 0.03;
	ck_assert_msg(fabs(ratio - 1) < slack, "%s: %g of the declared rms", plumb_format_name(c->format), ratio);
	free(row);
	made_free(&m);
}
END_TEST

/* Rows one by one, backwards, in pieces that begin anywhere: the same bytes, and none beside them. */
START_TEST(parts_are_the_whole)
{
	const struct made_case *c = &made_cases[_i];
	struct made_tensor whole, part;
	int64_t first = _i % 2 ? (INT64_C(1) << 32) - 3 : 0; /* the upper half of the index changes in the middle */

	made_create(&whole, "layers.2.mlp.gate", c->format, c->scale_format, c->rows, c->cols, first, 3);
	made_create(&part, "layers.2.mlp.gate", c->format, c->scale_format, c->rows, c->cols, first, 3);
	plumb_synthetic_fill(&whole.w, 0, c->rows);
	for (int64_t row = c->rows; row > 0;) {
		int64_t rows = row % 3 + 1 < row ? row % 3 + 1 : row;
		row -= rows;
		plumb_synthetic_fill(&part.w, row, rows);
	}
	ck_assert_mem_eq(whole.data, part.data, whole.data_bytes);
	ck_assert_mem_eq(whole.scale, part.scale, whole.scale_bytes);
	made_check_zones(&whole);
	made_check_zones(&part);
	made_free(&whole);
	made_free(&part);
}
END_TEST

/* The vector loops against the functions of one element that the header has for everyone. */
START_TEST(loops_are_the_formula)
{
	const struct made_case *c = &made_cases[_i];
	struct made_tensor m;
	int64_t first = (INT64_C(1) << 32) - 50;

	made_create(&m, "layers.2.mlp.gate", c->format, c->scale_format, c->rows, c->cols, first, 3);
	plumb_synthetic_fill(&m.w, 0, c->rows);
	for (int64_t i = 0; i < (int64_t)m.data_bytes && c->format >= PLUMB_FP8_ROW; i++) {
		uint32_t word = plumb_synthetic_bytes(m.tensor.key, 0, (uint64_t)(first + i));
		ck_assert_uint_eq(m.data[i], (c->format == PLUMB_NVFP4 ? word : plumb_synthetic_fp8(word)) & 0xFF);
	}
	for (int64_t i = 0; i < c->rows * c->cols && c->format < PLUMB_FP8_ROW; i++) {
		unsigned char one[4];
		float v = plumb_synthetic_plain(
			plumb_synthetic_word(m.tensor.key, (uint64_t)(first + i)), m.tensor.step, m.tensor.centre);
		plumb_encode(c->format, &v, 1, one);
		size_t bytes = plumb_format_row_bytes(c->format, 1);
		ck_assert_mem_eq(m.data + (size_t)i * bytes, one, bytes);
	}
	made_free(&m);
}
END_TEST

START_TEST(codes_are_never_nan_and_all_others_occur)
{
	struct made_tensor m;
	int seen[256] = {0}, scales[256] = {0};

	made_create(&m, "layers.0.self_attn.q_proj", PLUMB_FP8_ROW, PLUMB_F32, 128, 512, 0, 0);
	plumb_synthetic_fill(&m.w, 0, 128);
	for (size_t i = 0; i < m.data_bytes; i++)
		seen[m.data[i]]++;
	for (int code = 0; code < 256; code++)
		ck_assert_msg((seen[code] > 0) == ((code & 0x7F) != 0x7F), "code %02x occurs %d times", (unsigned)code,
			seen[code]);
	for (int n = 1; n < 128; n++) /* of 256 factors: neighbours may be equal now and then */
		scales[((float *)m.scale)[n] == ((float *)m.scale)[n - 1]]++;
	ck_assert_int_lt(scales[1], 5);
	made_free(&m);
	made_create(&m, "layers.0.self_attn.q_proj", PLUMB_NVFP4, PLUMB_F32, 128, 512, 0, 0);
	plumb_synthetic_fill(&m.w, 0, 128);
	memset(seen, 0, sizeof seen);
	for (size_t i = 0; i < m.scale_bytes; i++)
		seen[m.scale[i]]++;
	for (int code = 0; code < 256; code++)
		ck_assert_int_eq(seen[code] > 0, code >= 0x28 && code < 0x48);
	made_free(&m);
}
END_TEST
#endif

/* ---- the device ---- */

static struct plumb_device *device;

static void expect_device_bytes(const struct made_tensor *m, const struct plumb_weight *there)
{
	unsigned char *data = malloc(m->data_bytes + 1), *scale = malloc(m->scale_bytes + 1);

	ck_assert_int_eq(device->backend->download(device, data, there->data, m->data_bytes, &err), PLUMB_OK);
	ck_assert_mem_eq(data, m->data, m->data_bytes);
	if (m->scale_bytes) {
		ck_assert_int_eq(device->backend->download(device, scale, there->scale, m->scale_bytes, &err), PLUMB_OK);
		ck_assert_mem_eq(scale, m->scale, m->scale_bytes);
	}
	free(data);
	free(scale);
}

/* A matrix, and a shard that begins inside a word and passes 2^32; the host's memory is not read: it is not made yet. */
START_TEST(device_makes_the_same)
{
	const struct made_case *c = &made_cases[_i];
	struct plumb_stored stored = {0};

	for (int shard = 0; shard < 2; shard++) {
		int64_t first = shard ? (INT64_C(1) << 34) - 61 : 0; /* in words of four bytes: around 2^32 */
		struct made_tensor m;
		made_create(&m, "layers.1.ple.ple_embedding.ngram_embedding", c->format, c->scale_format, c->rows, c->cols,
			first, 9);
		struct plumb_weight there = m.w, again = m.w;
		ck_assert_msg(plumb_stored_weight(device, &stored, &there, &err) == PLUMB_OK, "%s", err.text);
		plumb_synthetic_fill(&m.w, 0, c->rows);
		expect_device_bytes(&m, &there);
		ck_assert_int_eq(plumb_stored_weight(device, &stored, &again, &err), PLUMB_OK);
		ck_assert_ptr_eq(again.data, there.data);
		/* another tensor at the same address is made anew, in the same place */
		m.tensor.key++;
		again = m.w;
		ck_assert_int_eq(plumb_stored_weight(device, &stored, &again, &err), PLUMB_OK);
		ck_assert_ptr_eq(again.data, there.data);
		plumb_synthetic_fill(&m.w, 0, c->rows);
		expect_device_bytes(&m, &again);
		made_free(&m);
		plumb_stored_clear(device, &stored);
	}
}
END_TEST

START_TEST(device_makes_banks)
{
	enum { BANK = 9 };
	const struct made_case *c = &made_cases[_i];
	struct plumb_stored stored = {0};
	struct made_tensor m[BANK];
	struct plumb_weight bank[BANK];

	for (int e = 0; e < BANK; e++) {
		char name[64];
		snprintf(name, sizeof name, "layers.0.mlp.experts.%d.down_proj", e);
		made_create(&m[e], name, c->format, c->scale_format, c->rows - (e == BANK - 1), c->cols, 0, 4);
		bank[e] = m[e].w;
	}
	const struct plumb_weight *there = plumb_stored_bank(device, &stored, bank, BANK, &err);
	ck_assert_msg(there != NULL, "%s", err.text);
	for (int e = 0; e < BANK; e++) {
		plumb_synthetic_fill(&m[e].w, 0, m[e].w.rows);
		expect_device_bytes(&m[e], &there[e]);
	}
	ck_assert_ptr_eq(plumb_stored_bank(device, &stored, bank, BANK, &err), there);
	m[3].tensor.key ^= 1;
	there = plumb_stored_bank(device, &stored, bank, BANK, &err);
	ck_assert_ptr_nonnull(there);
	plumb_synthetic_fill(&m[3].w, 0, m[3].w.rows);
	expect_device_bytes(&m[3], &there[3]);
	bank[2].made = NULL; /* half of a bank from the host, half not */
	ck_assert_ptr_null(plumb_stored_bank(device, &stored, bank, BANK, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "all or none"));
	for (int e = 0; e < BANK; e++)
		made_free(&m[e]);
	plumb_stored_clear(device, &stored);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("synthetic");
	TCase *t = suite_part(s, "values", 120);

#ifndef PLUMB_TEST_GPU
	tcase_add_test(t, words_are_what_they_were);
	tcase_add_test(t, words_are_even);
	tcase_add_loop_test(t, values_have_the_declared_rms, 0, MADE_CASES);
	tcase_add_loop_test(t, parts_are_the_whole, 0, MADE_CASES);
	tcase_add_loop_test(t, loops_are_the_formula, 0, MADE_CASES);
	tcase_add_test(t, codes_are_never_nan_and_all_others_occur);
#endif
	tcase_add_loop_test(t, device_makes_the_same, 0, MADE_CASES);
	tcase_add_loop_test(t, device_makes_banks, 0, MADE_CASES);
	return s;
}

int main(void)
{
#ifdef PLUMB_TEST_GPU
	int status = plumb_device_open(PLUMB_DEVICE_CUDA, NULL, &device, &err);
#else
	int status =
		plumb_device_open(PLUMB_DEVICE_SIMT, &(struct plumb_device_options){.own_memory = true}, &device, &err);
#endif
	if (status != PLUMB_OK) {
		printf("SKIP test_synthetic: %s\n", err.text);
		return suite_without_device(status);
	}
	int failed = suite_run_here(suite()); /* a GPU does not survive a fork */
	plumb_device_close(device);
	return failed;
}
