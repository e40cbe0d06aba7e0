/* SPDX-License-Identifier: MIT */
/* Quantisers: against a search for the nearest code among all codes, at the edges where writers go wrong (fault F23),
 * and back through plumb_weight_row. */
#include <check.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/quantise.h"
#include "tests/support/suite.h"

/* --- a quantiser of another make ---------------------------------------------------------------------------------- */

/* The code nearest to q; of two the one with an even significand, which is the even code. NaN codes and the other sign
 * are left out. codes: 0..most, ascending; value(code) is exact in binary64. */
static unsigned nearest(double q, double (*value)(unsigned), unsigned most)
{
	unsigned best = 0;
	for (unsigned c = 1; c <= most; c++) {
		double now = fabs(fabs(q) - value(c)), before = fabs(fabs(q) - value(best));
		if (now < before || (now == before && c % 2 == 0))
			best = c;
	}
	return best;
}

static double e4m3(unsigned c)
{
	return c >> 3 ? ldexp(8 + (int)(c & 7), (int)(c >> 3) - 10) : ldexp((int)c, -9);
}

static double e2m1(unsigned c)
{
	return (const double[]){0, 0.5, 1, 1.5, 2, 3, 4, 6}[c];
}

static unsigned nearest_e4m3(float q)
{
	return nearest(isinf(q) ? 1e9 : (double)q, e4m3, 0x7E) | (signbit(q) ? 0x80u : 0);
}

static unsigned nearest_e2m1(float q)
{
	return nearest(isinf(q) ? 1e9 : (double)q, e2m1, 7) | (signbit(q) ? 8u : 0);
}

/* A quotient of binary32 numbers in binary64, rounded once more, is the binary32 quotient: 53 >= 2 * 24 + 2 bits (for
 * normal results; subnormal ones are not fed to it here). */
static float quotient(float a, float b)
{
	return (float)((double)a / (double)b);
}

static float top(const float *x, const struct plumb_weight *w, int64_t n0, int64_t n1, int64_t k0, int64_t k1)
{
	float most = 0;
	for (int64_t n = n0; n < n1 && n < w->rows; n++)
		for (int64_t k = k0; k < k1 && k < w->cols; k++)
			most = fmaxf(most, fabsf(x[n * w->cols + k]));
	return most;
}

/* The scale that element (n, k) of fp8 row or block has. */
static float fp8_scale(const float *x, const struct plumb_weight *w, int64_t n, int64_t k)
{
	float amax = w->format == PLUMB_FP8_ROW ? top(x, w, n, n + 1, 0, w->cols)
	                                        : top(x, w, n & ~127, (n & ~127) + 128, k & ~127, (k & ~127) + 128);
	float scale = amax > 0 ? quotient(amax, 448) : 1;
	return w->scale_format == PLUMB_BF16 ? plumb_round_bf16(scale) : scale;
}

static unsigned code_at(const struct plumb_weight *w, int64_t n, int64_t k)
{
	const unsigned char *data = w->data;
	if (w->format != PLUMB_NVFP4)
		return data[n * w->cols + k];
	return data[n * ((w->cols + 1) / 2) + k / 2] >> 4 * (k % 2) & 15;
}

static void check_element(const float *x, const struct plumb_weight *w, int64_t n, int64_t k)
{
	float v = x[n * w->cols + k];
	unsigned expected, found = code_at(w, n, k);
	if (w->format == PLUMB_NVFP4) {
		float global = quotient(top(x, w, 0, w->rows, 0, w->cols), 2688);
		float amax = top(x, w, n, n + 1, k & ~15, (k & ~15) + 16);
		float ratio = amax > 0 ? quotient(quotient(amax, 6), global) : 1;
		unsigned scale = nearest_e4m3(fmaxf(ratio, 0x1p-9f));
		ck_assert_msg(w->global == global, "scale_2 is %a, expected %a", (double)w->global, (double)global);
		ck_assert_uint_eq(((const unsigned char *)w->scale)[n * ((w->cols + 15) / 16) + k / 16], scale);
		expected = nearest_e2m1(quotient(v, (float)(e4m3(scale) * (double)global)));
	} else if (w->format == PLUMB_FP8_TABLE) {
		ck_assert(w->global == quotient(top(x, w, 0, w->rows, 0, w->cols), 448));
		expected = nearest_e4m3(quotient(v, w->global));
	} else {
		expected = nearest_e4m3(quotient(v, fp8_scale(x, w, n, k)));
	}
	ck_assert_msg(found == expected, "%s (%lld, %lld)[%lld, %lld] = %a: code %x, expected %x",
		plumb_format_name(w->format), (long long)w->rows, (long long)w->cols, (long long)n, (long long)k, (double)v,
		found, expected);
}

/* --- matrices ----------------------------------------------------------------------------------------------------- */

static uint64_t state = 7;

static float uniform(void) /* in [-1, 1) */
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (float)((double)(int64_t)(state >> 11) * 0x1p-52 - 1);
}

static struct plumb_weight quantised(
	enum plumb_format format, enum plumb_format scale_format, const float *x, int64_t rows, int64_t cols, float global)
{
	struct plumb_weight w = {
		.format = format, .rows = rows, .cols = cols, .scale_format = scale_format, .global = global};
	struct plumb_error err = {""};
	/* exactly sized, filled with ones: nothing may be left over */
	size_t data_bytes = plumb_weight_data_bytes(&w), scale_bytes = plumb_weight_scale_bytes(&w);
	unsigned char *data = malloc(data_bytes + 1), *scale = malloc(scale_bytes + 1);
	memset(data, 0xFF, data_bytes + 1);
	memset(scale, 0xFF, scale_bytes + 1);
	ck_assert_msg(plumb_quantise(x, &w, data, scale, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_uint_eq(data[data_bytes], 0xFF);
	ck_assert_uint_eq(scale[scale_bytes], 0xFF);
	ck_assert_ptr_eq(w.data, data);
	ck_assert_ptr_eq(w.scale, scale_bytes ? scale : NULL);
	if (!scale_bytes)
		free(scale);
	return w;
}

static void release(struct plumb_weight *w)
{
	free((void *)(uintptr_t)w->data);
	free((void *)(uintptr_t)w->scale);
}

/* Random matrices with rows and columns of very different sizes, of odd shapes. */
START_TEST(nearest_codes)
{
	static const int64_t shapes[][2] = {{1, 1}, {1, 17}, {3, 15}, {5, 16}, {129, 33}, {130, 257}, {256, 128}, {2, 640}};
	for (size_t s = 0; s < sizeof shapes / sizeof shapes[0]; s++) {
		int64_t rows = shapes[s][0], cols = shapes[s][1];
		float *x = malloc((size_t)(rows * cols) * sizeof *x);
		for (int64_t i = 0; i < rows * cols; i++)
			x[i] = ldexpf(uniform(), (int)(i / cols % 5) * 3 - (int)(i % cols / 16 % 4) * 2 - 9);
		struct plumb_weight w = quantised(
			(enum plumb_format)(PLUMB_FP8_ROW + _i / 2), _i % 2 ? PLUMB_BF16 : PLUMB_F32, x, rows, cols, 0);
		for (int64_t n = 0; n<rows; n += n % 128> 3 && n % 128 < 125 ? 9 : 1)
			for (int64_t k = 0; k<cols; k += k % 128> 18 && k % 128 < 110 ? 7 : 1)
				check_element(x, &w, n, k);
		if (w.format == PLUMB_NVFP4 && cols % 2)
			for (int64_t n = 0; n < rows; n++)
				ck_assert_uint_eq(code_at(&w, n, cols), 0);
		release(&w);
		free(x);
	}
}
END_TEST

/* What every code stands for, quantised again with the same scale: the same codes, but for -0 and NaN. */
START_TEST(round_trip)
{
	unsigned char code[256], scale[16];
	float value[256], one = 1;
	int count = 0;
	for (int i = 0; i < 256; i++)
		if ((i & 0x7F) != 0x7F)
			code[count++] = (unsigned char)i;
	struct plumb_weight row = {.format = PLUMB_FP8_ROW, .rows = 1, .cols = count, .data = code, .scale = &one};
	plumb_weight_row(&row, 0, 0, count, value);
	struct plumb_weight w = quantised(PLUMB_FP8_ROW, PLUMB_F32, value, 1, count, 0);
	ck_assert(memcmp(w.data, code, (size_t)count) == 0);
	ck_assert(*(const float *)w.scale == 1);
	release(&w);
	/* 16 groups of the 16 nibbles, under 16 block scales; 448 is among them, so that scale_2 comes out again */
	unsigned char nibble[128];
	for (int i = 0; i < 128; i++)
		nibble[i] = (unsigned char)(2 * (i % 8) | (2 * (i % 8) + 1) << 4);
	for (int i = 0; i < 16; i++)
		scale[i] = (unsigned char)(i < 15 ? 1 + 8 * i : 0x7E);
	struct plumb_weight fp4 = {
		.format = PLUMB_NVFP4, .rows = 1, .cols = 256, .data = nibble, .scale = scale, .global = 0x1p-12f};
	plumb_weight_row(&fp4, 0, 0, 256, value);
	w = quantised(PLUMB_NVFP4, PLUMB_F32, value, 1, 256, 0);
	ck_assert(w.global == 0x1p-12f);
	ck_assert(memcmp(w.scale, scale, 16) == 0);
	ck_assert(memcmp(w.data, nibble, 128) == 0);
	release(&w);
}
END_TEST

/* Each midpoint of two codes, and its neighbours of one ulp: ties to even, both signs. */
START_TEST(midpoints)
{
	for (unsigned c = 0; c + 1 <= 0x7E; c++) {
		float middle = (float)((e4m3(c) + e4m3(c + 1)) / 2);
		float x[7] = {448, middle, nextafterf(middle, 0), nextafterf(middle, 1000), -middle, -nextafterf(middle, 0),
			-nextafterf(middle, 1000)};
		unsigned even = c % 2 ? c + 1 : c;
		unsigned expected[7] = {0x7E, even, c, c + 1, even | 0x80, c | 0x80, (c + 1) | 0x80};
		struct plumb_weight w = quantised(PLUMB_FP8_ROW, PLUMB_F32, x, 1, 7, 0);
		for (int k = 0; k < 7; k++)
			ck_assert_msg(code_at(&w, 0, k) == expected[k], "%a: %x, expected %x", (double)x[k],
				code_at(&w, 0, k), expected[k]);
		release(&w);
	}
	for (unsigned c = 0; c + 1 <= 7; c++) {
		float middle = (float)((e2m1(c) + e2m1(c + 1)) / 2);
		float x[7] = {6 * 448, middle * 448, nextafterf(middle, 0) * 448, nextafterf(middle, 10) * 448,
			-middle * 448, -nextafterf(middle, 0) * 448, -nextafterf(middle, 10) * 448};
		unsigned even = c % 2 ? c + 1 : c;
		unsigned expected[7] = {7, even, c, c + 1, even | 8, c | 8, (c + 1) | 8};
		struct plumb_weight w = quantised(PLUMB_NVFP4, PLUMB_F32, x, 1, 7, 0);
		for (int k = 0; k < 7; k++)
			ck_assert_msg(code_at(&w, 0, k) == expected[k], "%a: %x, expected %x", (double)x[k],
				code_at(&w, 0, k), expected[k]);
		release(&w);
	}
	/* the block scale is rounded to even as well: 17 and 19 halves of the step above 16 */
	float x[48] = {2688};
	x[16] = 17 * 6;
	x[32] = 19 * 6;
	struct plumb_weight w = quantised(PLUMB_NVFP4, PLUMB_F32, x, 1, 48, 0);
	ck_assert_uint_eq(((const unsigned char *)w.scale)[1], 0x58); /* 16 */
	ck_assert_uint_eq(((const unsigned char *)w.scale)[2], 0x5A); /* 20 */
	release(&w);
}
END_TEST

/* Larger than the scales reach: clamped, not NaN (0x7F is one step above 448). */
START_TEST(saturates)
{
	static const float big[] = {449, 464, 480, 1e6f, FLT_MAX, -449, -FLT_MAX, 2688, 2688.5f, 2689, 1e30f};
	for (size_t i = 0; i < sizeof big / sizeof big[0]; i++) {
		unsigned sign = big[i] < 0 ? 1 : 0;
		struct plumb_weight t = quantised(PLUMB_FP8_TABLE, PLUMB_F32, &big[i], 1, 1, 1);
		ck_assert(t.global == 1);
		ck_assert_uint_eq(code_at(&t, 0, 0), 0x7E | sign << 7);
		release(&t);
		float x = big[i] * (fabsf(big[i]) < 1e9f ? 16 : 1);
		struct plumb_weight w = quantised(PLUMB_NVFP4, PLUMB_F32, &x, 1, 1, 1);
		ck_assert(w.global == 1);
		ck_assert_uint_eq(((const unsigned char *)w.scale)[0], 0x7E);
		ck_assert_uint_eq(code_at(&w, 0, 0), 7 | sign << 3);
		release(&w);
		/* with a scale of its own nothing is too large */
		w = quantised(PLUMB_NVFP4, PLUMB_F32, &big[i], 1, 1, 0);
		float back;
		plumb_weight_row(&w, 0, 0, 1, &back);
		ck_assert_msg(fabsf(back / big[i] - 1) < 1e-6f, "%g comes back as %g", (double)big[i], (double)back);
		release(&w);
	}
	/* a bf16 scale below amax / 448 leaves the largest element above 448: bf16(1.00390625) = 1 */
	float x[2] = {448 * 1.00390625f, 1};
	struct plumb_weight w = quantised(PLUMB_FP8_ROW, PLUMB_BF16, x, 1, 2, 0);
	ck_assert_uint_eq(code_at(&w, 0, 0), 0x7E);
	ck_assert_uint_eq(code_at(&w, 0, 1), 0x38);
	release(&w);
}
END_TEST

/* Blocks of zeros, a matrix of zeros, and zeros of both signs. */
START_TEST(zeros)
{
	for (int format = PLUMB_FP8_ROW; format < PLUMB_FORMAT_COUNT; format++) {
		float x[3 * 40] = {0}, out[40];
		x[5] = -0.0f;
		for (int full = 0; full < 2; full++) {
			x[100] = full ? 3 : 0; /* row 2, group 1 */
			struct plumb_weight w = quantised((enum plumb_format)format, PLUMB_F32, x, 3, 40, 0);
			for (int n = 0; n < 3; n++) {
				plumb_weight_row(&w, n, 0, 40, out);
				for (int k = 0; k < 40; k++) {
					bool here = full && n == 2 && k == 20;
					ck_assert_msg(here ? fabsf(out[k] - 3) < 1e-6f : out[k] == 0, "%s [%d, %d] is %g",
						plumb_format_name(w.format), n, k, (double)out[k]);
				}
			}
			plumb_weight_row(&w, 0, 0, 40, out);
			ck_assert(signbit(out[5]) && !signbit(out[6]));
			if (format == PLUMB_FP8_ROW)
				ck_assert(*(const float *)w.scale == 1);
			if (format == PLUMB_NVFP4)
				ck_assert_uint_eq(((const unsigned char *)w.scale)[0], 0x38);
			if (!full && format >= PLUMB_FP8_TABLE)
				ck_assert(w.global == 1);
			release(&w);
		}
	}
}
END_TEST

/* Small blocks beside a large one: the block scale runs through all its subnormals and stops at the smallest. */
START_TEST(small_scales)
{
	for (int e = 0; e <= 30; e++) {
		float x[32] = {2688}, out[32];
		x[16] = ldexpf(6, -e);
		x[17] = -x[16] / 2;
		struct plumb_weight w = quantised(PLUMB_NVFP4, PLUMB_F32, x, 1, 32, 0);
		unsigned code = ((const unsigned char *)w.scale)[1];
		ck_assert(w.global == 1);
		ck_assert_msg(code == (e <= 6         ? (unsigned)(7 - e) << 3
					      : e < 9 ? 8u >> (e - 6)
						      : 1u),
			"2^-%d: scale %x", e, code);
		plumb_weight_row(&w, 0, 0, 32, out);
		/* exact down to 2^-9, then rounded with a step of half of it, then lost */
		if (e <= 9)
			ck_assert(out[16] == x[16] && out[17] == x[17]);
		else
			ck_assert(fabsf(out[16] - x[16]) <= 0x1p-10f && fabsf(out[17] - x[17]) <= 0x1p-10f);
		ck_assert_int_eq(signbit(out[17]) != 0, 1);
		release(&w);
	}
	/* numbers so small that scales of the matrix are subnormal or would be zero */
	for (int e = 100; e <= 149; e++) {
		float x[2] = {ldexpf(1, -e), -ldexpf(1, -e)}, out[2];
		for (int format = PLUMB_FP8_ROW; format < PLUMB_FORMAT_COUNT; format++) {
			for (int sf = 0; sf < 2; sf++) {
				struct plumb_weight w =
					quantised((enum plumb_format)format, sf ? PLUMB_BF16 : PLUMB_F32, x, 1, 2, 0);
				plumb_weight_row(&w, 0, 0, 2, out);
				ck_assert_msg(isfinite(out[0]) && out[0] >= 0 && out[0] <= 2 * x[0] && out[1] == -out[0],
					"%s 2^-%d comes back as %a", plumb_format_name(w.format), e, (double)out[0]);
				/* a bf16 value keeps its size down to where the scale itself runs out of bits */
				if (e <= 120)
					ck_assert(fabsf(out[0] - x[0]) <= x[0] * 0x1p-3f);
				/* the smallest scale instead of none: 2^-149, or 2^-133 and the codes down to 2^-9 */
				if (format <= PLUMB_FP8_BLOCK && (sf ? e >= 141 && e <= 142 : e == 149))
					ck_assert_msg(out[0] == x[0], "2^-%d comes back as %a", e, (double)out[0]);
				if (format == PLUMB_NVFP4 && e == 149) /* 2^-9 * 2^-149 is zero */
					ck_assert_uint_eq(*(const unsigned char *)w.data, 0);
				release(&w);
			}
		}
	}
}
END_TEST

/* x / s is not x * (1 / s): among ties of random scales there are elements that a reciprocal moves to another code, and
 * here they are where the division puts them. */
START_TEST(no_reciprocal)
{
	int moved8 = 0, moved4 = 0, moved_scale = 0;
	for (int i = 0; i < 2000; i++) {
		float s = 1 + fabsf(uniform()), x[16];
		x[0] = 448 * s;
		for (int k = 1; k < 16; k++)
			x[k] = (float)(17 + 2 * k) / 2 * s; /* near ties of two codes in 8..32 */
		struct plumb_weight w = quantised(PLUMB_FP8_TABLE, PLUMB_F32, x, 1, 16, s);
		for (int k = 0; k < 16; k++) {
			ck_assert_uint_eq(code_at(&w, 0, k), nearest_e4m3(quotient(x[k], s)));
			moved8 += code_at(&w, 0, k) != nearest_e4m3(x[k] * (1 / s));
		}
		release(&w);
		for (int k = 0; k < 16; k++)
			x[k] = (k ? 0.25f + (float)(k % 3) : 6) * s * 448;
		w = quantised(PLUMB_NVFP4, PLUMB_F32, x, 1, 16, s);
		float scale = 448 * s;
		for (int k = 0; k < 16; k++) {
			ck_assert_uint_eq(code_at(&w, 0, k), nearest_e2m1(quotient(x[k], scale)));
			moved4 += code_at(&w, 0, k) != nearest_e2m1(x[k] * (1 / scale));
		}
		release(&w);
	}
	/* nor is amax / 6 / s the same as amax / (6 * s): ties of block scales show it */
	for (int i = 0; i < 20000; i++) {
		float s = 1 + fabsf(uniform()), amax = (float)(17 + 2 * (i % 8)) * 6 * s;
		struct plumb_weight w = quantised(PLUMB_NVFP4, PLUMB_F32, &amax, 1, 1, s);
		unsigned scale = *(const unsigned char *)w.scale;
		ck_assert_uint_eq(scale, nearest_e4m3(quotient(quotient(amax, 6), s)));
		moved_scale += scale != nearest_e4m3(quotient(amax, 6 * s));
		release(&w);
	}
	ck_assert_int_gt(moved_scale, 10);
	ck_assert_int_gt(moved8, 10);
	ck_assert_int_gt(moved4, 10);
}
END_TEST

/* NaN and Inf anywhere: refused by name, nothing written. Plain formats have codes for them. */
START_TEST(not_finite)
{
	static const float bad[] = {(float)INFINITY, -(float)INFINITY, (float)NAN};
	for (int format = 0; format < PLUMB_FORMAT_COUNT; format++) {
		for (int i = 0; i < 3; i++) {
			float x[3 * 5] = {1, 2, 3};
			unsigned char data[64], scale[64], before[64];
			struct plumb_weight w = {.format = (enum plumb_format)format, .rows = 3, .cols = 5};
			struct plumb_error err = {""};
			memset(before, 0x55, 64);
			memcpy(data, before, 64);
			memcpy(scale, before, 64);
			x[2 * 5 + 3] = bad[i];
			int status = plumb_quantise(x, &w, data, scale, &err);
			ck_assert_int_eq(status, format < PLUMB_PLAIN_FORMATS ? PLUMB_OK : PLUMB_BAD_INPUT);
			if (status) {
				ck_assert_msg(strstr(err.text, "[2, 3]") != NULL, "%s", err.text);
				ck_assert(memcmp(data, before, 64) == 0 && memcmp(scale, before, 64) == 0);
				ck_assert_ptr_null(w.data);
			}
		}
	}
}
END_TEST

START_TEST(plain)
{
	float x[6] = {1, -2.5f, 3, 0.1f, 1e5f, 7}, out[3];
	for (int format = 0; format < PLUMB_PLAIN_FORMATS; format++) {
		struct plumb_weight w = quantised((enum plumb_format)format, PLUMB_F32, x, 2, 3, 0);
		unsigned char direct[24];
		plumb_encode(w.format, x, 6, direct);
		ck_assert(memcmp(w.data, direct, plumb_weight_bytes(&w)) == 0);
		plumb_weight_row(&w, 1, 0, 3, out);
		ck_assert(out[2] == 7);
		release(&w);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("quantise");
	TCase *all = suite_part(suite, "all", 60);
	tcase_add_loop_test(all, nearest_codes, 0, 8);
	tcase_add_test(all, round_trip);
	tcase_add_test(all, midpoints);
	tcase_add_test(all, saturates);
	tcase_add_test(all, zeros);
	tcase_add_test(all, small_scales);
	tcase_add_test(all, no_reciprocal);
	tcase_add_test(all, not_finite);
	tcase_add_test(all, plain);
	return suite_run(suite);
}
