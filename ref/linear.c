/* SPDX-License-Identifier: MIT */
#include "ref/linear.h"

#include <cblas.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "ref/round.h"

/* Rows decoded at a time for OpenBLAS: a panel of 32 rows of 2560 columns is 640 KiB, inside a core's L2. */
enum { PANEL = 32, LANES = 8 };

/* Plain: rows at a time, whose sums hide one another's latency, and columns of them, decoded into the first cache:
 * measured, docs/performance.md. COLUMNS is a multiple of LANES. The rows are 1/ROWS of all apart: memory is read in
 * ROWS streams that do not break off at the end of a row. */
enum { ROWS = 4, COLUMNS = 256 };

enum { BLAS_BUFFER = 132 << 20 }; /* bytes that OpenBLAS takes for a thread that multiplies, 128 MiB and a page, measured */

static enum linear_method chosen = LINEAR_AUTO;

void linear_method_set(enum linear_method method)
{
	chosen = method;
}

void *scratch_ref(const struct plumb_env *env, int64_t count, size_t size)
{
	void *m = malloc((size_t)(count > 0 ? count : 1) * size);
	if (!m)
		plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for %lld values of scratch", (long long)count);
	return m;
}

/* The sum of LANES accumulators, which it overwrites. */
static double pairwise(double *acc)
{
	for (int width = LANES / 2; width > 0; width /= 2)
		for (int j = 0; j < width; j++)
			acc[j] += acc[j + width];
	return acc[0];
}

static double dot(const double *w, const double *x, int64_t n)
{
	double acc[LANES] = {0};
	int64_t k = 0;
	for (; k + LANES <= n; k += LANES)
		for (int j = 0; j < LANES; j++)
			acc[j] += w[k + j] * x[k + j];
	for (int j = 0; k < n; k++, j++)
		acc[j] += w[k] * x[k];
	return pairwise(acc);
}

static void decode_row(const struct plumb_weight *w, int64_t n, float *narrow, double *wide)
{
	plumb_weight_row(w, n, 0, w->cols, narrow);
	for (int64_t k = 0; k < w->cols; k++)
		wide[k] = (double)narrow[k];
}

/* Whether OpenBLAS can have a buffer for each of that many threads. It does not ask: without one it tries for ever. */
static bool blas_has_room(int threads)
{
	static int had; /* largest number so far: they are kept */
	const size_t bytes = (size_t)threads * BLAS_BUFFER;
	bool room = true;

#pragma omp critical(plumb_blas)
	if (threads > had) {
		void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
		room = m != MAP_FAILED;
		if (room) {
			munmap(m, bytes);
			had = threads;
		}
	}
	return room;
}

/* acc[i, k mod LANES] += w[i, k] * x[k] for ROWS rows that are COLUMNS apart, k < n. The products are exact. */
static void join(const float *restrict w, const double *restrict x, int64_t n, double (*restrict acc)[LANES])
{
	double sum[ROWS][LANES];
	int64_t k = 0;

	memcpy(sum, acc, sizeof sum); /* an array of its own stays in registers */
	for (; k + LANES <= n; k += LANES)
		for (int i = 0; i < ROWS; i++)
			for (int j = 0; j < LANES; j++)
				sum[i][j] += (double)w[(int64_t)i * COLUMNS + k + j] * x[k + j];
	for (int j = 0; k < n; k++, j++)
		for (int i = 0; i < ROWS; i++)
			sum[i][j] += (double)w[(int64_t)i * COLUMNS + k] * x[k];
	memcpy(acc, sum, sizeof sum);
}

/* sum[t, n] = sum_k w[n0 + n, k] * x[t, k] for n = first, first + apart, ... below count: ROWS of them at most.
 * part: scratch (ROWS, COLUMNS), acc: scratch (T, ROWS, LANES). */
static void plain_rows(const struct plumb_weight *w, int64_t n0, int64_t first, int64_t apart, int64_t count,
	const double *x, int64_t T, float *part, double (*acc)[LANES], double *sum)
{
	const int64_t K = w->cols;
	const int64_t rows = (count - first + apart - 1) / apart; /* at most ROWS; the sums of others are dropped */

	memset(acc, 0, (size_t)T * ROWS * sizeof *acc);
	for (int64_t k = 0; k < K; k += COLUMNS) {
		const int64_t columns = K - k < COLUMNS ? K - k : COLUMNS;
		for (int64_t i = 0; i < rows; i++)
			plumb_weight_row(w, n0 + first + i * apart, k, columns, part + i * COLUMNS);
		for (int64_t t = 0; t < T; t++)
			join(part, x + t * K + k, columns, acc + t * ROWS);
	}
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < rows; i++)
			sum[t * count + first + i * apart] = pairwise(acc[t * ROWS + i]);
}

/* y[t, i] = sum_k x[t, k] * panel[i, k], rows of y count apart. */
static void product(
	bool blas, const double *x, const double *panel, int64_t T, int64_t rows, int64_t K, double *y, int64_t count)
{
	if (blas) {
		cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, (int)T, (int)rows, (int)K, 1.0, x, (int)K, panel,
			(int)K, 0.0, y, (int)count);
		return;
	}
	for (int64_t t = 0; t < T; t++)
		for (int64_t i = 0; i < rows; i++)
			y[t * count + i] = dot(panel + i * K, x + t * K, K);
}

/* sum[t, n] of rows [n0, n0 + count) by plain loops. false: no memory. */
static bool plain_sum(
	const struct plumb_weight *w, const double *x, int64_t T, int64_t n0, int64_t count, int threads, double *sum)
{
	const int64_t apart = (count + ROWS - 1) / ROWS;
	bool failed = false;

#pragma omp parallel if (threads > 1)
	{
		float part[ROWS * COLUMNS] = {0};
		double(*acc)[LANES] = malloc((size_t)T * ROWS * sizeof *acc);
		if (!acc) {
#pragma omp atomic write
			failed = true;
		}
#pragma omp for schedule(static)
		for (int64_t n = 0; n < apart; n++)
			if (acc)
				plain_rows(w, n0, n, apart, count, x, T, part, acc, sum);
		free(acc);
	}
	return !failed;
}

/* The same with the rows decoded to panels, by OpenBLAS or plain, and if asked for the sums of squared terms:
 * squares: (T, count), then (T, K) of squared x. false: no memory. */
static bool panel_sum(bool blas, const struct plumb_weight *w, const double *x, double *squares, int64_t T, int64_t n0,
	int64_t count, int threads, double *sum)
{
	const int64_t K = w->cols;
	bool failed = false;

#pragma omp parallel if (threads > 1)
	{
		double *panel = malloc(PANEL * (size_t)K * sizeof *panel); /* (PANEL, K) */
		float *narrow = malloc((size_t)K * sizeof *narrow);
		if (!panel || !narrow) {
#pragma omp atomic write
			failed = true;
		}
#pragma omp barrier
#pragma omp for schedule(static)
		for (int64_t n = 0; n < count; n += PANEL) {
			int64_t rows = count - n < PANEL ? count - n : PANEL;
			if (failed)
				continue;
			for (int64_t i = 0; i < rows; i++)
				decode_row(w, n0 + n + i, narrow, panel + i * K);
			product(blas, x, panel, T, rows, K, sum + n, count);
			if (!squares)
				continue;
			for (int64_t i = 0; i < rows * K; i++)
				panel[i] *= panel[i];
			product(blas, squares + T * count, panel, T, rows, K, squares + n, count);
		}
		free(panel);
		free(narrow);
	}
	return !failed;
}

int linear_sum_ref(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, int64_t n0,
	int64_t count, double *sum)
{
	int64_t K = w->cols;
	bool blas = chosen == LINEAR_BLAS || (chosen == LINEAR_AUTO && T >= LINEAR_BLAS_ROWS);
	double *xd = scratch_ref(env, T * K, sizeof *xd);                                         /* (T, K) */
	double *squares = env->nudge ? scratch_ref(env, T * (count + K), sizeof *squares) : NULL; /* (T, count), (T, K) */
	bool failed = !xd || (env->nudge && !squares);

	const int threads = count * K > 65536 ? omp_get_max_threads() : 1;
	if (xd && blas && !blas_has_room(threads)) {
		free(squares);
		free(xd);
		return plumb_fail(env->err, PLUMB_BAD_INPUT,
			"out of memory: OpenBLAS takes 128 MiB for each of %d threads (ulimit -v, --threads)", threads);
	}
	for (int64_t i = 0; !failed && i < T * K; i++) {
		xd[i] = (double)x[i];
		if (squares)
			squares[T * count + i] = xd[i] * xd[i];
	}
	if (blas)
		openblas_set_num_threads(1); /* the panels below are the parallelism: same bits with any thread count */

	if (!failed && !blas && !squares)
		failed = !plain_sum(w, xd, T, n0, count, threads, sum);
	else if (!failed)
		failed = !panel_sum(blas, w, xd, squares, T, n0, count, threads, sum);
	for (int64_t i = 0; squares && !failed && i < T * count; i++)
		sum[i] = nudge_sum(env, sum[i], squares[i], K);
	free(squares);
	free(xd);
	if (failed)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a product of %lld x %lld",
			(long long)w->rows, (long long)K);
	return PLUMB_OK;
}

int linear_ref(const struct plumb_env *env, const struct plumb_weight *w, const float *x, int64_t T, float *y)
{
	enum { BLOCK = 8192 }; /* rows a block, so that a vocabulary-sized product needs little scratch */
	int64_t N = w->rows, block = N < BLOCK ? N : BLOCK;
	double *sum = scratch_ref(env, T * block, sizeof *sum);
	int status = sum ? PLUMB_OK : PLUMB_BAD_INPUT;

	for (int64_t n0 = 0; n0 < N && status == PLUMB_OK; n0 += block) {
		int64_t count = N - n0 < block ? N - n0 : block;
		status = linear_sum_ref(env, w, x, T, n0, count, sum);
		for (int64_t t = 0; t < T && status == PLUMB_OK; t++)
			for (int64_t n = 0; n < count; n++)
				y[t * N + n0 + n] = store(env, sum[t * count + n]);
	}
	free(sum);
	return status;
}

double squares_ref(const struct plumb_env *env, const double *x, int64_t n)
{
	double sum = dot(x, x, n), squares = 0.0;
	for (int64_t i = 0; env->nudge && i < n; i++)
		squares += x[i] * x[i] * (x[i] * x[i]);
	return nudge_sum(env, sum, squares, n);
}

void norm_ref(const struct plumb_env *env, const double *x, const double *w, int64_t n, double *y)
{
	double r = 1.0 / sqrt(squares_ref(env, x, n) / (double)n + (double)env->cfg->rms_norm_eps);
	for (int64_t i = 0; i < n; i++)
		y[i] = (x[i] * r) * (1.0 + w[i]);
}

int vector_ref(const struct plumb_env *env, const struct plumb_weight *w, double *out)
{
	float *narrow = scratch_ref(env, w->cols, sizeof *narrow);
	if (!narrow)
		return PLUMB_BAD_INPUT;
	decode_row(w, 0, narrow, out);
	free(narrow);
	return PLUMB_OK;
}
