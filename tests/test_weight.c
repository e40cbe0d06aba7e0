/* SPDX-License-Identifier: MIT */
/* Stored values and paged rows. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/numeric.h"
#include "core/weight.h"
#include "tests/support/suite.h"

START_TEST(formats)
{
	ck_assert_str_eq(plumb_format_name(PLUMB_F32), "f32");
	ck_assert_str_eq(plumb_format_name(PLUMB_F16), "f16");
	ck_assert_str_eq(plumb_format_name(PLUMB_BF16), "bf16");
	ck_assert_str_eq(plumb_format_name(PLUMB_FORMAT_COUNT), "unknown");
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_F32, 7), 28);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_BF16, 7), 14);
	ck_assert_str_eq(plumb_format_name(PLUMB_FP8_ROW), "fp8_row");
	ck_assert_str_eq(plumb_format_name(PLUMB_FP8_BLOCK), "fp8_block");
	ck_assert_str_eq(plumb_format_name(PLUMB_FP8_TABLE), "fp8_table");
	ck_assert_str_eq(plumb_format_name(PLUMB_NVFP4), "nvfp4");
	for (int format = PLUMB_FP8_ROW; format <= PLUMB_FP8_TABLE; format++)
		ck_assert_uint_eq(plumb_format_row_bytes((enum plumb_format)format, 7), 7);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_NVFP4, 0), 0);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_NVFP4, 1), 1);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_NVFP4, 7), 4);
	ck_assert_uint_eq(plumb_format_row_bytes(PLUMB_NVFP4, 8), 4);
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

/* The bytes of data and scales, by hand. */
START_TEST(sizes)
{
	static const struct {
		struct plumb_weight w;
		size_t data, scale;
	} cases[] = {
		{{.format = PLUMB_BF16, .rows = 3, .cols = 5}, 30, 0},
		{{.format = PLUMB_FP8_ROW, .rows = 3, .cols = 5, .scale_format = PLUMB_F32}, 15, 12},
		{{.format = PLUMB_FP8_ROW, .rows = 3, .cols = 5, .scale_format = PLUMB_BF16}, 15, 6},
		{{.format = PLUMB_FP8_BLOCK, .rows = 640, .cols = 2560, .scale_format = PLUMB_BF16}, 1638400, 200},
		{{.format = PLUMB_FP8_BLOCK, .rows = 129, .cols = 128, .scale_format = PLUMB_F32}, 16512, 8},
		{{.format = PLUMB_FP8_TABLE, .rows = 2500012, .cols = 160}, 400001920, 0},
		{{.format = PLUMB_NVFP4, .rows = 640, .cols = 2560}, 819200, 102400},
		{{.format = PLUMB_NVFP4, .rows = 3, .cols = 17}, 27, 6},
		{{.format = PLUMB_NVFP4, .rows = 248320, .cols = 163840}, 20342374400, 2542796800}, /* past 32 bits */
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		ck_assert_uint_eq(plumb_weight_data_bytes(&cases[i].w), cases[i].data);
		ck_assert_uint_eq(plumb_weight_scale_bytes(&cases[i].w), cases[i].scale);
		ck_assert_uint_eq(plumb_weight_bytes(&cases[i].w), cases[i].data + cases[i].scale);
	}
}
END_TEST

/* --- quantised formats, against a decoder that reads bytes and computes in binary64 ------------------------------- */

static double e4m3(unsigned code)
{
	int exponent = (int)(code >> 3 & 15), mantissa = (int)(code & 7);
	double v = exponent ? ldexp(8 + mantissa, exponent - 10) : ldexp(mantissa, -9);
	if ((code & 0x7F) == 0x7F)
		v = (double)NAN;
	return code & 0x80 ? -v : v;
}

static double e2m1(unsigned code)
{
	static const double value[16] = {0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6};
	return value[code & 15];
}

static double number(enum plumb_format format, const unsigned char *at)
{
	uint32_t bits = format == PLUMB_BF16 ? (uint32_t)(at[0] << 16) | (uint32_t)at[1] << 24
	                                     : (uint32_t)(at[0] | at[1] << 8 | at[2] << 16) | (uint32_t)at[3] << 24;
	float x;
	memcpy(&x, &bits, 4);
	return (double)x;
}

/* What a wrong reader does. */
enum wrong { RIGHT, SWAPPED_NIBBLES, SWAPPED_AXES, FLOORED_GROUPS, ONE_ROUNDING, NO_GLOBAL, WRONGS };

/* Element (n, k). Every product here is exact in binary64 before it is rounded: 4 bits times 24. */
static float expected(const struct plumb_weight *w, int64_t n, int64_t k, enum wrong wrong)
{
	const unsigned char *data = w->data, *scale = w->scale;
	int64_t size = w->format == PLUMB_NVFP4 ? 16 : 128;
	int64_t down = w->format == PLUMB_NVFP4 ? w->rows : (w->rows + 127) / 128;
	int64_t across = wrong == FLOORED_GROUPS && w->cols >= size ? w->cols / size : (w->cols + size - 1) / size;
	int64_t group = (w->format == PLUMB_NVFP4 ? n : n / 128) * across + k / size;
	size_t unit = w->scale_format == PLUMB_BF16 ? 2 : 4;
	if (wrong == SWAPPED_AXES)
		group = k / size * down + (w->format == PLUMB_NVFP4 ? n : n / 128);
	switch (w->format) {
	case PLUMB_FP8_ROW:
		return (float)(e4m3(data[n * w->cols + k]) * number(w->scale_format, scale + (size_t)n * unit));
	case PLUMB_FP8_BLOCK:
		return (float)(e4m3(data[n * w->cols + k]) * number(w->scale_format, scale + (size_t)group * unit));
	case PLUMB_FP8_TABLE:
		return plumb_round_bf16((float)(e4m3(data[n * w->cols + k]) * (double)w->global));
	case PLUMB_NVFP4: {
		unsigned byte = data[n * ((w->cols + 1) / 2) + k / 2];
		double code = e2m1((k % 2 == 1) != (wrong == SWAPPED_NIBBLES) ? byte >> 4 : byte);
		double product = e4m3(scale[group]) * (wrong == NO_GLOBAL ? 1 : (double)w->global);
		return wrong == ONE_ROUNDING ? (float)(code * product) : (float)(code * (double)(float)product);
	}
	default:
		return 0;
	}
}

static bool same(float a, float b)
{
	return plumb_f32_bits(a) == plumb_f32_bits(b) || (isnan(a) && isnan(b));
}

/* Every code under scales of every kind: common ones, the largest, and ones that lead into subnormals. */
START_TEST(all_quantised_codes)
{
	static const float scales[] = {1, 0x1.234568p-13f, 0x1.9p-13f, 0x1p-133f, 0x1.8p-149f, 0x1.FFFFFEp127f, 7};
	unsigned char code[256], group[256];
	for (int i = 0; i < 256; i++) {
		code[i] = (unsigned char)i;
		group[i] = (unsigned char)i;
	}
	for (size_t s = 0; s < sizeof scales / sizeof scales[0]; s++) {
		float out[512];
		struct plumb_weight row = {
			.format = PLUMB_FP8_ROW, .rows = 1, .cols = 256, .data = code, .scale = &scales[s]};
		struct plumb_weight table = {
			.format = PLUMB_FP8_TABLE, .rows = 1, .cols = 256, .data = code, .global = scales[s]};
		plumb_weight_row(&row, 0, 0, 256, out);
		plumb_weight_row(&table, 0, 0, 256, out + 256);
		for (int i = 0; i < 256; i++) {
			ck_assert_msg(same(out[i], expected(&row, 0, i, RIGHT)), "row %x * %a", i, (double)scales[s]);
			ck_assert_msg(
				same(out[256 + i], expected(&table, 0, i, RIGHT)), "table %x * %a", i, (double)scales[s]);
			ck_assert_int_eq(isnan(out[i]), i == 0x7F || i == 0xFF);
		}
		/* one group a row: row n has scale code n, and its 16 columns are the 16 codes */
		static unsigned char nibbles[256 * 8];
		for (int i = 0; i < 256 * 8; i++)
			nibbles[i] = (unsigned char)(2 * (i % 8) | (2 * (i % 8) + 1) << 4);
		struct plumb_weight fp4 = {.format = PLUMB_NVFP4,
			.rows = 256,
			.cols = 16,
			.data = nibbles,
			.scale = group,
			.global = scales[s]};
		for (int n = 0; n < 256; n++) {
			plumb_weight_row(&fp4, n, 0, 16, out);
			for (int k = 0; k < 16; k++)
				ck_assert_msg(
					same(out[k], expected(&fp4, n, k, RIGHT)), "%x * %x * %a", k, n, (double)scales[s]);
		}
	}
}
END_TEST

static void range(const struct plumb_weight *w, int64_t n, int64_t k0, int64_t end)
{
	float out[304];
	out[end - k0] = 12345;
	plumb_weight_row(w, n, k0, end - k0, out);
	for (int64_t k = k0; k < end; k++)
		ck_assert_msg(same(out[k - k0], expected(w, n, k, RIGHT)), "%s (%lld, %lld): [%lld, %lld) of [%lld, %lld)",
			plumb_format_name(w->format), (long long)w->rows, (long long)w->cols, (long long)n, (long long)k,
			(long long)k0, (long long)end);
	ck_assert(out[end - k0] == 12345);
}

/* Code times plumb_weight_scale is the value, column by column. */
static void scales_of_row(const struct plumb_weight *w, int64_t n)
{
	const unsigned char *row = (const unsigned char *)w->data + (size_t)n * plumb_format_row_bytes(w->format, w->cols);
	for (int64_t k = 0; k < w->cols; k++) {
		float code = w->format == PLUMB_NVFP4 ? plumb_e2m1_to_f32((uint8_t)(row[k / 2] >> 4 * (k % 2)))
		                                      : plumb_e4m3_to_f32(row[k]);
		float value = code * plumb_weight_scale(w, n, k);
		if (w->format == PLUMB_FP8_TABLE)
			value = plumb_round_bf16(value);
		ck_assert_msg(same(value, expected(w, n, k, RIGHT)), "scale of %s (%lld, %lld) at [%lld, %lld]",
			plumb_format_name(w->format), (long long)w->rows, (long long)w->cols, (long long)n, (long long)k);
	}
}

/* Every start; every end of short rows, else an empty range, one column, a few, and the rest. */
static void ranges(const struct plumb_weight *w, int64_t n)
{
	scales_of_row(w, n);
	for (int64_t k0 = 0; k0 <= w->cols; k0++) {
		for (int64_t end = k0; end <= w->cols && (end < k0 + 2 || w->cols < 20); end++)
			range(w, n, k0, end);
		if (k0 + 18 < w->cols)
			range(w, n, k0, k0 + 18);
		if (k0 % 128 < 2 || k0 % 16 == 15)
			range(w, n, k0, w->cols);
	}
}

/* Codes and scales that tell where they stand: no two neighbours are alike. */
static void fill_coordinates(const struct plumb_weight *w, unsigned char *data, unsigned char *scale)
{
	size_t data_bytes = plumb_weight_data_bytes(w), scale_bytes = plumb_weight_scale_bytes(w);
	for (size_t b = 0; b < data_bytes; b++) {
		data[b] = (unsigned char)(b * 37 + b / 251 + 3);
		if ((data[b] & 0x7F) == 0x7F && w->format != PLUMB_NVFP4)
			data[b] ^= 1; /* a NaN would hide which one it is */
	}
	for (size_t b = 0; w->format == PLUMB_NVFP4 && b < scale_bytes; b++)
		scale[b] = (unsigned char)(b * 29 % 0x7B + 1);
	size_t unit = plumb_format_row_bytes(w->scale_format, 1);
	for (size_t i = 0; w->format != PLUMB_NVFP4 && i < scale_bytes / unit; i++) {
		float value = 1 + (float)(i % 127 + 1) / 128; /* a bf16 value */
		plumb_encode(w->scale_format, &value, 1, scale + i * unit);
	}
}

/* Rows of one shape, in memory of exactly the right size (AddressSanitizer sees a byte too far) at an odd place. Count
 * where each kind of wrong reader would give another value. */
static void one_shape(struct plumb_weight w, size_t shift, int64_t differ[WRONGS])
{
	unsigned char *data = malloc(plumb_weight_data_bytes(&w) + shift);
	unsigned char *scale = malloc(plumb_weight_scale_bytes(&w) + shift + 1);
	fill_coordinates(&w, data + shift, scale + shift + 1);
	w.data = data + shift;
	w.scale = scale + shift + 1;
	for (int64_t n = 0; n < w.rows; n++)
		if (n < 2 || n % 128 == 0 || n % 128 == 127)
			ranges(&w, n);
	for (int wrong = SWAPPED_NIBBLES; wrong < WRONGS; wrong++)
		for (int64_t n = 0; n < w.rows; n += 3)
			for (int64_t k = 0; k < w.cols; k += 5)
				differ[wrong] += !same(expected(&w, n, k, RIGHT), expected(&w, n, k, (enum wrong)wrong));
	free(data);
	free(scale);
}

/* Odd shapes, partial blocks and groups, every alignment. */
START_TEST(quantised_rows)
{
	static const int64_t heights[] = {1, 2, 3, 127, 128, 129, 257};
	static const int64_t widths[] = {1, 2, 15, 16, 17, 31, 33, 127, 128, 129, 257, 300};
	enum { H = sizeof heights / sizeof heights[0], W = sizeof widths / sizeof widths[0] };
	enum plumb_format format = (enum plumb_format)(PLUMB_FP8_ROW + _i / 2);
	int64_t differ[WRONGS] = {0};
	for (size_t i = 0; i < H * W; i++)
		one_shape((struct plumb_weight){.format = format,
				  .rows = heights[i / W],
				  .cols = widths[i % W],
				  .scale_format = _i % 2 ? PLUMB_BF16 : PLUMB_F32,
				  .global = 0x1.89374cp-14f},
			i % 3, differ);
	/* this data would show each mistake that the format allows */
	for (int wrong = SWAPPED_NIBBLES; wrong < WRONGS; wrong++)
		if (format == PLUMB_NVFP4 ||
			(format == PLUMB_FP8_BLOCK && (wrong == SWAPPED_AXES || wrong == FLOORED_GROUPS)))
			ck_assert_msg(
				differ[wrong] > 100, "mistake %d changes %lld values", wrong, (long long)differ[wrong]);
}
END_TEST

/* The formats with scales are not for arrays of single values. */
START_TEST(arrays_of_quantised)
{
	for (int format = PLUMB_FP8_ROW; format <= PLUMB_FORMAT_COUNT; format++) {
		float x = 3, y = 4;
		plumb_encode((enum plumb_format)format, &x, 1, &y);
		plumb_decode((enum plumb_format)format, &x, 1, &y);
		ck_assert(y == 4);
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
		struct plumb_cache cache = {(enum plumb_format)format, data, page, PAGE_ROWS, WIDTH, ROWS, 1.0f};
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
	TCase *all = suite_part(suite, "all", 60);
	tcase_add_test(all, formats);
	tcase_add_test(all, all_codes);
	tcase_add_test(all, rows);
	tcase_add_test(all, sizes);
	tcase_add_test(all, all_quantised_codes);
	tcase_add_loop_test(all, quantised_rows, 0, 8);
	tcase_add_test(all, arrays_of_quantised);
	tcase_add_test(all, nothing_to_do);
	tcase_add_test(all, paged_rows);
	return suite_run(suite);
}
