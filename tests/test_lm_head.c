/* SPDX-License-Identifier: MIT */
/* lm_head and argmax: oracle against a witness, twin against the oracle, kernels on simt against the twin. */
#include <cblas.h>
#include <stdio.h>

#include "core/ops/lm_head.h"
#include "core/order.h"
#include "opt/opt.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/stage_test.h"
#include "tests/support/suite.h"

static struct plumb_config config;
static struct plumb_error error;

static struct plumb_env env_of(enum plumb_policy policy)
{
	struct plumb_env env = {.cfg = &config, .policy = policy, .err = &error};
	return env;
}

/* ---- lm_head ---- */

static const struct {
	int64_t T, D, V;
} head_shapes[] = {
	{1, 1, 1},
	{3, 7, 5},
	{1, 8, 16},
	{2, 33, 17},
	{1, 255, 31},
	{1, 256, 33},
	{2, 257, 100},
	{1, 1000, 15},
	{1, 1024, 40},
	{2, 1031, 9},
	{1, 2048, 64},
	{1, 2560, 21},
	{1, 4100, 3},
	{1, 64, 8193},
	{1, 16, 9000},
	{1, 8200, 2},
};
enum { HEAD_SHAPES = sizeof head_shapes / sizeof *head_shapes };

static double head_worst; /* largest |twin - oracle| / bound */

/* The logits in another order of the same products: rows counted differently, so other pieces. */
static void wrong_pieces(const struct plumb_weight *w, const float *x, int64_t T, float *y)
{
	float *row = malloc((size_t)w->cols * sizeof *row);
	int pieces = plumb_split_count(w->rows, w->cols);
	for (int64_t n = 0; n < w->rows; n++) {
		plumb_weight_row(w, n, 0, w->cols, row);
		for (int64_t t = 0; t < T; t++)
			y[t * w->rows + n] = twin_split_dot(row, x + t * w->cols, w->cols, pieces == 1 ? 2 : 1);
	}
	free(row);
}

START_TEST(head_rows)
{
	int64_t T = head_shapes[_i].T, D = head_shapes[_i].D, V = head_shapes[_i].V;
	int pieces = plumb_split_count(V, D), depth = plumb_split_depth(D, pieces);
	struct st_buffer oracle = st_floats_new(T * V), twin = st_floats_new(T * V);
	struct st_buffer opt = st_floats_new(T * V);
	float *x = malloc((size_t)(T * D) * sizeof *x);

	config.hidden = D, config.vocab = V;
	for (int variant = 0; variant < 2 * PLUMB_PLAIN_FORMATS; variant++) {
		uint64_t random = (uint64_t)(100 * _i + variant);
		enum plumb_format format = (enum plumb_format)(variant % PLUMB_PLAIN_FORMATS);
		struct plumb_env env = env_of(variant % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32);
		struct st_weight w = st_weight_new(&random, V, D, 1.0, format, variant / PLUMB_PLAIN_FORMATS);
		struct plumb_lm_head a = {T, x, &w.w, st_floats(oracle)};
		double *wide = st_decoded(&w.w), *size = st_decoded(&w.w);
		double *xd = malloc((size_t)D * sizeof *xd), *sum = malloc((size_t)V * sizeof *sum);
		double *mass = malloc((size_t)V * sizeof *mass);

		for (int64_t i = 0; i < T * D; i++)
			x[i] = env.policy == PLUMB_POLICY_F32 ? st_full(&random, 1.0) : st_normal(&random, 1.0);
		for (int64_t i = 0; i < V * D; i++)
			size[i] = fabs(size[i]);
		st_call(lm_head_ref, &env, &a);
		a.logits = st_floats(twin);
		st_buffer_poison(twin, 0);
		st_call(lm_head_twin, &env, &a);
		for (int64_t t = 0; t < T; t++) {
			for (int64_t k = 0; k < D; k++)
				xd[k] = (double)x[t * D + k];
			cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)V, (int)D, 1.0, wide, (int)D, xd, 1, 0.0, sum, 1);
			for (int64_t k = 0; k < D; k++)
				xd[k] = fabs(xd[k]);
			cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)V, (int)D, 1.0, size, (int)D, xd, 1, 0.0, mass, 1);
			for (int64_t n = 0; n < V; n++) {
				struct st_range exact = st_around(sum[n], 0x1p-40 * mass[n]);
				struct st_range near = st_around(sum[n], st_gamma(depth) * mass[n] + 0x1p-140);
				float o = st_floats(oracle)[t * V + n], y = st_floats(twin)[t * V + n];
				ck_assert_msg(st_inside(o, st_rounded(env.policy, st_widened(exact, 0x1p-24))),
					"oracle: row %lld gives %a, the witness %a", (long long)n, (double)o, sum[n]);
				ck_assert_msg(st_inside(y, st_rounded(env.policy, near)), "row %lld: twin %a, oracle %a",
					(long long)n, (double)y, (double)o);
				if (env.policy == PLUMB_POLICY_F32 && mass[n] > 0)
					head_worst =
						fmax(head_worst, fabs((double)y - sum[n]) / (st_gamma(depth) * mass[n]));
			}
		}
		a.logits = st_floats(opt);
		for (int i = 0; i < ST_SEEDS; i++) {
			if (V > 1000 && i > 1)
				break; /* as many schedules as the time allows */
			env.device = st_device(i);
			st_buffer_poison(opt, i + variant);
			st_call(lm_head_opt, &env, &a);
			ck_assert_msg(st_difference(st_floats(twin), st_floats(opt), T * V) == -1,
				"%lld x %lld, %s, seed %llu: element %lld differs from the twin", (long long)V,
				(long long)D, plumb_format_name(format), (unsigned long long)st_seeds[i],
				(long long)st_difference(st_floats(twin), st_floats(opt), T * V));
			st_buffer_check(opt, "logits");
		}
		if (env.policy == PLUMB_POLICY_F32 && D > 1000 && T * V > 8) { /* sensitivity */
			wrong_pieces(&w.w, x, T, st_floats(twin));
			ck_assert_int_ne(st_difference(st_floats(twin), st_floats(opt), T * V), -1);
		}
		free(wide);
		free(size);
		free(xd);
		free(sum);
		free(mass);
		st_weight_free(w);
	}
	free(x);
	st_buffer_free(oracle);
	st_buffer_free(twin);
	st_buffer_free(opt);
}
END_TEST

/* NaN and Inf in x or in a row reach the logits they belong to, and no other. */
START_TEST(head_not_finite)
{
	enum { D = 300, V = 9 };
	static const int64_t places[] = {0, 150, D - 1};
	uint64_t random = 3;
	struct plumb_env env = env_of(PLUMB_POLICY_BF16);
	struct st_weight w = st_weight_new(&random, V, D, 1.0, PLUMB_F32, 0);
	float *data = st_floats(w.memory), x[D], twin[V], opt[V];
	struct plumb_lm_head a = {1, x, &w.w, twin};

	config.hidden = D, config.vocab = V;
	env.device = st_device(4);
	for (int i = 0; i < 3; i++) {
		for (int k = 0; k < D; k++)
			x[k] = st_normal(&random, 1.0);
		float kept = data[4 * D + places[i]], inf = data[5 * D + places[i]];
		data[4 * D + places[i]] = NAN;
		data[5 * D + places[i]] = INFINITY;
		a.logits = twin;
		st_call(lm_head_twin, &env, &a);
		a.logits = opt;
		st_call(lm_head_opt, &env, &a);
		for (int n = 0; n < V; n++)
			ck_assert(n == 4   ? isnan(twin[n]) != 0
				  : n == 5 ? isnan(twin[n]) || isinf(twin[n])
					   : isfinite(twin[n]) != 0);
		ck_assert_int_eq(st_difference(twin, opt, V), -1);
		data[4 * D + places[i]] = kept;
		data[5 * D + places[i]] = inf;
	}
	st_weight_free(w);
}
END_TEST

/* ---- argmax ---- */

struct candidate {
	float logit;
	int32_t index;
};

static int better(const void *pa, const void *pb)
{
	const struct candidate *a = pa, *b = pb;
	int nan_a = a->logit != a->logit, nan_b = b->logit != b->logit;

	if (nan_a != nan_b)
		return nan_a - nan_b;
	if (!nan_a && a->logit != b->logit)
		return a->logit > b->logit ? -1 : 1;
	return a->index < b->index ? -1 : 1;
}

/* The contract by a full sort. */
static int32_t sorted_first(const float *logits, int64_t V)
{
	struct candidate *all = malloc((size_t)V * sizeof *all);
	int32_t first;

	for (int64_t i = 0; i < V; i++)
		all[i] = (struct candidate){logits[i], (int32_t)i};
	qsort(all, (size_t)V, sizeof *all, better);
	first = all[0].logit != all[0].logit ? -1 : all[0].index;
	free(all);
	return first;
}

/* All of (T, V) by sort, oracle, twin and kernel; the oracle's answers are left in token. */
static void argmax_check(const float *logits, int64_t T, int64_t V, int seed, int32_t *token)
{
	struct plumb_env env = env_of(PLUMB_POLICY_F32);
	struct st_buffer out = st_buffer_new((size_t)T * 4);
	struct plumb_argmax a = {T, logits, token};

	config.vocab = V;
	st_call(argmax_ref, &env, &a);
	for (int64_t t = 0; t < T; t++)
		ck_assert_int_eq(token[t], sorted_first(logits + t * V, V));
	a.token = st_at(out);
	st_buffer_poison(out, 0);
	st_call(argmax_twin, &env, &a);
	ck_assert_mem_eq(st_at(out), token, (size_t)T * 4);
	env.device = st_device(seed);
	for (int run = 0; run < 3; run++) { /* again on the same device: nothing may be left of the last call */
		st_buffer_poison(out, run);
		st_call(argmax_opt, &env, &a);
		for (int64_t t = 0; t < T; t++)
			ck_assert_msg(((int32_t *)st_at(out))[t] == token[t], "row %lld of %lld, seed %llu: %d, not %d",
				(long long)t, (long long)V, (unsigned long long)st_seeds[seed], ((int32_t *)st_at(out))[t],
				token[t]);
		st_buffer_check(out, "token");
	}
	st_buffer_free(out);
}

static const int64_t vocabularies[] = {1, 2, 31, 32, 33, 255, 256, 257, 1023, 1024, 1025, 2500, 5003};
enum { VOCABULARIES = sizeof vocabularies / sizeof *vocabularies };

/* Few distinct values, so that most rows tie, somewhere. */
START_TEST(argmax_random)
{
	static const float values[] = {0.0f, -0.0f, 1.0f, -1.0f, 0x1p-149f, -0x1p-149f, 0x1p-126f, 3e38f, -3e38f};
	int64_t V = vocabularies[_i], T = 3;
	float *logits = malloc((size_t)(T * V) * sizeof *logits);
	int32_t token[3];

	for (int i = 0; i < ST_SEEDS; i++) {
		uint64_t random = (uint64_t)(1000 * _i + i);
		int64_t top = 1 + st_below(&random, 9);
		for (int64_t k = 0; k < T * V; k++)
			logits[k] = i == 0 ? st_normal(&random, 3.0) : values[st_below(&random, top)];
		for (int64_t k = 0; i % 2 && k < 1 + V / 10; k++)
			logits[st_below(&random, T * V)] = st_below(&random, 2) ? NAN : -INFINITY;
		argmax_check(logits, T, V, i, token);
	}
	free(logits);
}
END_TEST

/* The winner, and its equal further on, at every edge of lane, warp, load and block. */
START_TEST(argmax_places)
{
	static const int64_t edges[] = {0, 1, 30, 31, 32, 33, 63, 64, 254, 255, 256, 257, 511, 512, 767, 768, 1022, 1023,
		1024, 1025, 2047, 2048, 2051};
	enum { EDGES = sizeof edges / sizeof *edges, V = 2052 };
	static float logits[EDGES * V];
	int32_t token[EDGES];

	for (int with_equal = 0; with_equal < 3; with_equal++) {
		for (int t = 0; t < EDGES; t++) {
			float *row = logits + t * V;
			for (int i = 0; i < V; i++)
				row[i] = -5.0f - (float)(i % 7);
			row[edges[t]] = with_equal == 2 ? -0.0f : -1.5f;
			if (with_equal)
				row[edges[(t + 1) % EDGES]] = with_equal == 2 ? 0.0f : -1.5f;
		}
		argmax_check(logits, EDGES, V, with_equal + 1, token);
		for (int t = 0; t < EDGES; t++) {
			int64_t equal = with_equal ? edges[(t + 1) % EDGES] : V;
			ck_assert_int_eq(token[t], equal < edges[t] ? equal : edges[t]);
		}
	}
}
END_TEST

START_TEST(argmax_not_finite)
{
	enum { T = 10, V = 1500 };
	static float logits[T * V];
	int32_t token[T];

	for (int i = 0; i < T * V; i++)
		logits[i] = (float)(i % 100);
	logits[0] = NAN;             /* first, before the best */
	logits[V + 99] = -NAN;       /* the best itself */
	logits[2 * V + V - 1] = NAN; /* last */
	for (int i = 0; i < V; i++) {
		logits[3 * V + i] = i % 2 ? NAN : -NAN; /* nothing but NaN */
		logits[4 * V + i] = i == 1234 ? -INFINITY : NAN;
		logits[5 * V + i] = -INFINITY;
		logits[7 * V + i] = -0.0f;
		logits[8 * V + i] = i == 700 ? 0.0f : -0.0f;
		logits[9 * V + i] = i == 31 ? -0x1p-149f : i == 1100 ? -0.0f : -1.0f;
	}
	logits[6 * V + 777] = INFINITY;
	argmax_check(logits, T, V, _i, token);
	ck_assert_int_eq(token[1], 2 * 100 - 1);
	ck_assert_int_eq(token[3], -1);
	ck_assert_int_eq(token[4], 1234);
	ck_assert_int_eq(token[5], 0);
	ck_assert_int_eq(token[6], 777);
	ck_assert_int_eq(token[7], 0);
	ck_assert_int_eq(token[8], 0);
	ck_assert_int_eq(token[9], 1100);
}
END_TEST

START_TEST(no_races)
{
	enum { D = 1100, V = 2100 };
	uint64_t random = 21;
	struct plumb_env env = env_of(PLUMB_POLICY_BF16);
	struct st_weight table = st_weight_new(&random, 3, D, 1.0, PLUMB_BF16, 0);
	static float x[D], row[3], logits[V];
	int32_t token = -1;
	struct plumb_lm_head head = {1, x, &table.w, row};
	struct plumb_argmax argmax = {1, logits, &token};

	for (int k = 0; k < D; k++)
		x[k] = st_normal(&random, 1.0);
	for (int i = 0; i < V; i++)
		logits[i] = (float)(i % 1050);
	config.hidden = D, config.vocab = V;
	env.device = st_race_device();
	if (env.device) {
		st_call(lm_head_opt, &env, &head);
		st_call(argmax_opt, &env, &argmax);
		ck_assert_int_eq(token, 1049);
		plumb_device_close(env.device);
	}
	st_weight_free(table);
}
END_TEST

/* Sensitivity: rules that others use must not pass the check above. */
START_TEST(argmax_wrong_rules)
{
	static const float last_of_equals[] = {1, 3, 3}, raw_sign[] = {-0.0f, 0.0f}, nan_first[] = {NAN, 1, 2},
			   by_magnitude[] = {-2, -1};
	int32_t seeded_with_first = 0, or_equal = 0, raw = 0, magnitude = 0;

	for (int i = 1; i < 3; i++) {
		or_equal = last_of_equals[i] >= last_of_equals[or_equal] ? i : or_equal;
		seeded_with_first = nan_first[i] > nan_first[seeded_with_first] ? i : seeded_with_first;
	}
	raw = (int32_t)plumb_f32_bits(raw_sign[1]) > (int32_t)plumb_f32_bits(raw_sign[0]);
	magnitude = plumb_f32_bits(by_magnitude[1]) > plumb_f32_bits(by_magnitude[0]);
	ck_assert_int_ne(or_equal, sorted_first(last_of_equals, 3));
	ck_assert_int_ne(seeded_with_first, sorted_first(nan_first, 3));
	ck_assert_int_ne(raw, sorted_first(raw_sign, 2));
	ck_assert_int_ne(magnitude, sorted_first(by_magnitude, 2));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("lm_head");
	TCase *head = suite_part(suite, "lm_head", 60), *argmax = suite_part(suite, "argmax", 60);

	tcase_add_loop_test(head, head_rows, 0, HEAD_SHAPES);
	tcase_add_test(head, head_not_finite);
	tcase_add_loop_test(argmax, argmax_random, 0, VOCABULARIES);
	tcase_add_test(argmax, argmax_places);
	tcase_add_loop_test(argmax, argmax_not_finite, 0, ST_SEEDS);
	tcase_add_test(argmax, argmax_wrong_rules);
	tcase_add_test(argmax, no_races);
	int failed = suite_run_here(suite);
	printf("lm_head: |twin - exact| is at most %.3f of its bound\n", head_worst);
	st_devices_close();
	return failed;
}
