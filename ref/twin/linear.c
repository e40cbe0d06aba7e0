/* SPDX-License-Identifier: MIT */
/* The declared orders of core/order.h in plain C. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/math32.h"
#include "ref/linear.h"
#include "ref/twin/twin.h"

/* Rows of a matrix at a time, measured: docs/performance.md. They are 1/ROWS of all rows apart, so that memory is read
 * in ROWS streams that do not break off at the end of a row. */
enum { ROWS = 4 };

/* Neighbour-first pairwise tree over width accumulators, in place. Each level is packed into the front of the array: a sum
 * is written no earlier than its two terms are read, so a level is a vector loop. */
static float tree(float *acc, int width)
{
	for (int sums = width / 2; sums >= 1; sums /= 2) {
#pragma omp simd
		for (int64_t i = 0; i < sums; i++)
			acc[i] = acc[2 * i] + acc[2 * i + 1];
	}
	return acc[0];
}

/* A full round of the accumulators is a plain vector loop: the compiler takes 8 or 16 of them at a time. */
static void accumulate(const float *a, const float *b, int64_t n, int width, float *acc)
{
	int64_t k = 0;
	for (; k + width <= n; k += width)
		for (int j = 0; j < width; j++)
			acc[j] = fmaf(a[k + j], b[k + j], acc[j]);
	for (int j = 0; k + j < n; j++)
		acc[j] = fmaf(a[k + j], b[k + j], acc[j]);
}

float twin_dot(const float *a, const float *b, int64_t n, int width)
{
	float acc[PLUMB_ROW_LANES] = {0};
	accumulate(a, b, n, width, acc);
	return tree(acc, width);
}

float twin_sum(const float *a, int64_t n, int width)
{
	float acc[PLUMB_ROW_LANES] = {0};
	for (int64_t k = 0; k < n; k++)
		acc[k % width] = acc[k % width] + a[k];
	return tree(acc, width);
}

float twin_split_dot(const float *a, const float *b, int64_t n, int pieces)
{
	int64_t length = plumb_split_length(n, pieces);
	float sum = 0.0f;
	for (int s = 0; s < pieces; s++) {
		int64_t k0 = s * length, count = n - k0 < length ? n - k0 : length;
		float part = twin_dot(
			a + (count > 0 ? k0 : 0), b + (count > 0 ? k0 : 0), count > 0 ? count : 0, PLUMB_ROW_LANES);
		sum = s == 0 ? part : sum + part;
	}
	return sum;
}

float twin_inverse_rms(const struct plumb_env *env, const float *x, int64_t n, int width)
{
	return plumb_rsqrtf(plumb_divf(twin_dot(x, x, n, width), (float)n) + env->cfg->rms_norm_eps);
}

float *twin_scratch(const struct plumb_env *env, int64_t count)
{
	return scratch_ref(env, count, sizeof(float));
}

/* acc[i, j] = fma(a[i, j], b[j], acc[i, j]) for ROWS rows of PLUMB_ROW_LANES, j < n: a row's accumulators never leave the
 * first cache, and b is loaded once for all rows. */
static void join(const float *restrict a, const float *restrict b, int64_t n, float *restrict acc)
{
	const int64_t W = PLUMB_ROW_LANES;
#pragma omp simd
	for (int64_t j = 0; j < n; j++) {
		acc[j] = fmaf(a[j], b[j], acc[j]);
		acc[W + j] = fmaf(a[W + j], b[j], acc[W + j]);
		acc[2 * W + j] = fmaf(a[2 * W + j], b[j], acc[2 * W + j]);
		acc[3 * W + j] = fmaf(a[3 * W + j], b[j], acc[3 * W + j]);
	}
}

/* twin_split_dot of rows first, first + apart, ... with x: ROWS of them at most, decoded one round of the accumulators
 * at a time. a: scratch (ROWS, PLUMB_ROW_LANES), whose rows beyond are what they were: their sums go nowhere. */
static void split_rows(
	const struct plumb_weight *w, int64_t first, int64_t apart, const float *x, int pieces, float *a, float *sum)
{
	enum { W = PLUMB_ROW_LANES };
	const int64_t length = plumb_split_length(w->cols, pieces), rows = (w->rows - first + apart - 1) / apart;

	for (int s = 0; s < pieces; s++) {
		const int64_t end = (s + 1) * length < w->cols ? (s + 1) * length : w->cols;
		float acc[ROWS * W] = {0};
		for (int64_t k = s * length; k < end; k += W) {
			const int64_t count = end - k < W ? end - k : W;
			for (int64_t i = 0; i < rows; i++)
				plumb_weight_row(w, first + i * apart, k, count, a + i * W);
			join(a, x + k, count, acc);
		}
		for (int64_t i = 0; i < rows; i++) {
			const float part = tree(acc + i * W, W);
			const int64_t n = first + i * apart;
			sum[n] = s == 0 ? part : sum[n] + part;
		}
	}
}

/* One vector: what is decoded is used once, so it need not go further than the first cache. */
static void sum_of_one(const struct plumb_weight *w, const float *x, int pieces, float *sum)
{
	const int64_t apart = (w->rows + ROWS - 1) / ROWS;
#pragma omp parallel for schedule(static) if (w->rows * w->cols > 65536)
	for (int64_t n = 0; n < apart; n++) {
		float a[ROWS * PLUMB_ROW_LANES] = {0};
		split_rows(w, n, apart, x, pieces, a, sum);
	}
}

int twin_linear_sum(
	const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows, float *sum)
{
	int64_t N = w->rows, K = w->cols;
	int pieces = plumb_split_count(call_rows, K), failed = 0;

	if (T == 1) {
		sum_of_one(w, x, pieces, sum);
		return PLUMB_OK;
	}
#pragma omp parallel if (N * K > 65536)
	{
		float *row = malloc((size_t)K * sizeof *row);
		if (!row) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp for schedule(static)
		for (int64_t n = 0; n < N; n++) {
			if (!row)
				continue;
			plumb_weight_row(w, n, 0, K, row);
			for (int64_t t = 0; t < T; t++)
				sum[t * N + n] = twin_split_dot(row, x + t * K, K, pieces);
		}
		free(row);
	}
	if (failed)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a row of %lld values", (long long)K);
	return PLUMB_OK;
}

int twin_linear(
	const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t call_rows, float *y)
{
	int status = twin_linear_sum(env, w, x, T, call_rows, y);
	for (int64_t i = 0; i < T * w->rows && status == PLUMB_OK; i++)
		y[i] = twin_rne(env, y[i]);
	return status;
}

float *twin_matrix(const struct plumb_env *env, const struct plumb_weight *w)
{
	float *m = twin_scratch(env, w->rows * w->cols);
	for (int64_t n = 0; m && n < w->rows; n++)
		plumb_weight_row(w, n, 0, w->cols, m + n * w->cols);
	return m;
}
