/* SPDX-License-Identifier: MIT */
/* Stored values and paged rows. */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/numeric.h"
#include "core/weight.h"

START_TEST(formats)
{
	ck_assert_str_eq(plumb_format_name(PLUMB_F32), "f32");
	ck_assert_str_eq(plumb_format_name(PLUMB_F16), "f16");
	ck_assert_str_eq(plumb_format_name(PLUMB_BF16), "bf16");
	ck_assert_str_eq(plumb_format_name(PLUMB_FORMAT_COUNT), "unknown");
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_F32, 7), 28);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_BF16, 7), 14);
	struct plumb_weight w = {.format = PLUMB_F16, .rows = 320000000, .cols = 160}; /* past 32 bits */
	ck_assert_uint_eq(plumb_weight_bytes(&w), (size_t)320000000 * 320);
}
END_TEST

/* Every 16-bit code, decoded as an array at each alignment, then encoded again. A signalling NaN comes back quiet. */
START_TEST(all_codes)
{
	enum { N = 65536 };
	float *values = malloc(N * sizeof *values);
	for (int format = PLUMB_F16; format <= PLUMB_BF16; format++) {
		for (size_t shift = 0; shift < 3; shift++) {
			/* exactly sized, so that AddressSanitizer sees a wide load past the end */
			unsigned char *stored = malloc(shift + 2 * N), *again = malloc(shift + 2 * N);
			for (int i = 0; i < N; i++)
				memcpy(stored + shift + 2 * i, &(uint16_t){(uint16_t)i}, 2);
			plumb_decode((enum plumb_format)format, stored + shift, N, values);
			plumb_encode((enum plumb_format)format, values, N, again + shift);
			int wrong = 0; /* an assertion each would take seconds */
			for (int i = 0; i < N; i++) {
				uint16_t code, again_expected = (uint16_t)i;
				float expected = format == PLUMB_F16 ? plumb_f16_to_f32((uint16_t)i)
								     : plumb_bf16_to_f32((uint16_t)i);
				memcpy(&code, again + shift + 2 * i, 2);
				if (isnan(expected))
					again_expected |= format == PLUMB_F16 ? 0x0200 : 0x0040;
				wrong += plumb_f32_bits(values[i]) != plumb_f32_bits(expected);
				wrong += code != again_expected;
			}
			ck_assert_int_eq(wrong, 0);
			free(stored);
			free(again);
		}
	}
	free(values);
}
END_TEST

START_TEST(rows)
{
	enum { ROWS = 5, COLS = 37 };
	float source[ROWS * COLS], out[COLS + 1];
	for (int i = 0; i < ROWS * COLS; i++)
		source[i] = plumb_round_bf16(0.37f * (float)i - 20);
	for (int format = 0; format < PLUMB_PLAIN_FORMATS; format++) {
		size_t bytes = ROWS * plumb_format_row_bytes((enum plumb_format)format, COLS);
		unsigned char *stored = malloc(bytes + 1);
		struct plumb_weight w = {
			.format = (enum plumb_format)format, .rows = ROWS, .cols = COLS, .data = stored + 1};
		ck_assert_uint_eq(plumb_weight_bytes(&w), bytes);
		plumb_encode(w.format, source, ROWS * COLS, stored + 1);
		for (int n = 0; n < ROWS; n++) {
			for (int k0 = 0; k0 <= COLS; k0++) {
				int count = COLS - k0;
				out[count] = 12345;
				plumb_weight_row(&w, n, k0, count, out);
				ck_assert(memcmp(out, source + n * COLS + k0, (size_t)count * sizeof *out) == 0);
				ck_assert(out[count] == 12345);
			}
		}
		free(stored);
	}
}
END_TEST

START_TEST(nothing_to_do)
{
	plumb_decode(PLUMB_F32, NULL, 0, NULL);
	plumb_encode(PLUMB_BF16, NULL, 0, NULL);
}
END_TEST

/* Rows go to the physical page the table names, and nowhere else. */
START_TEST(paged_rows)
{
	enum { PAGES = 4, PAGE_ROWS = 3, WIDTH = 5, ROWS = 11 };
	static const int32_t page[PAGES] = {2, 0, 3, 1};
	for (int format = 0; format < PLUMB_PLAIN_FORMATS; format++) {
		size_t row_bytes = plumb_format_row_bytes((enum plumb_format)format, WIDTH);
		unsigned char *data = calloc(PAGES * PAGE_ROWS, row_bytes);
		struct plumb_cache cache = {(enum plumb_format)format, data, page, PAGE_ROWS, WIDTH, ROWS};
		float in[WIDTH], out[WIDTH];
		for (int r = ROWS - 1; r >= 0; r--) {
			for (int k = 0; k < WIDTH; k++)
				in[k] = (float)(r * 8 + k + 1);
			plumb_cache_put(&cache, r, in);
		}
		for (int r = 0; r < ROWS; r++) {
			size_t physical = (size_t)(page[r / PAGE_ROWS] * PAGE_ROWS + r % PAGE_ROWS);
			ck_assert_ptr_eq(plumb_cache_row(&cache, r), data + physical * row_bytes);
			plumb_cache_get(&cache, r, out);
			for (int k = 0; k < WIDTH; k++)
				ck_assert(out[k] == (float)(r * 8 + k + 1));
		}
		size_t unused = (size_t)(page[3] * PAGE_ROWS + 2); /* row 11 is beyond the capacity */
		for (size_t i = 0; i < row_bytes; i++)
			ck_assert_uint_eq(data[unused * row_bytes + i], 0);
		/* putting rounds to the format */
		in[0] = 1.00390625f; /* 1 + 2^-8: a tie in bf16, to even */
		plumb_cache_put(&cache, 0, in);
		plumb_cache_get(&cache, 0, out);
		ck_assert(out[0] == (format == PLUMB_BF16 ? 1.0f : in[0]));
		free(data);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weight");
	TCase *all = tcase_create("all");
	tcase_add_test(all, formats);
	tcase_add_test(all, all_codes);
	tcase_add_test(all, rows);
	tcase_add_test(all, nothing_to_do);
	tcase_add_test(all, paged_rows);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
