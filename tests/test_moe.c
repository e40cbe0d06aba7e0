/* SPDX-License-Identifier: MIT */
/* Mixture of experts: hard cases of each op. Random configs are in test_ops. */
#include <cblas.h>
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/moe.h"
#include "core/order.h"
#include "kernels/moe.h"
#include "opt/opt.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

#ifdef PLUMB_RACE
enum { RACE = 1 };
#else
enum { RACE = 0 };
#endif
enum { SCHEDULES = 3, DEVICES = SCHEDULES + RACE };

/* simt, in natural order and in two others; the race check, where the build has it. */
static struct plumb_device *device[DEVICES];

static void open_devices(void)
{
	for (int i = 0; i < DEVICES; i++) {
		struct plumb_device_options options = {
			.seed = (uint64_t)i * 71,
			.race = i == SCHEDULES,
			.poison = PLUMB_POISON_NAN,
		};
		struct plumb_error error;
		ck_assert_msg(
			plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device[i], &error) == PLUMB_OK, "%s", error.text);
	}
}

static void close_devices(void)
{
	for (int i = 0; i < DEVICES; i++)
		plumb_device_close(device[i]);
}

struct shape {
	int64_t D, E;
	int A;
	int64_t F, Fs;
};

static struct trial *make(enum plumb_op op, struct shape s, enum plumb_policy policy, int64_t T, int format)
{
	struct trial_random r = {1};
	struct plumb_config cfg;

	trial_config_random(&r, op, &cfg);
	cfg.hidden = s.D;
	cfg.experts = s.E;
	cfg.experts_per_token = s.A;
	cfg.expert_inner = s.F;
	cfg.shared_inner = s.Fs;
	cfg.norm_topk = true;
	struct trial_options options = {.cfg = &cfg, .policy = (int)policy, .T = T, .format = format, .traces = 1};
	return trial_new(op, (uint64_t)(s.D + 7 * s.E + s.A), &options);
}

static float *floats(struct trial *c, const char *name)
{
	return trial_data(c, name);
}

/* Overwrite a matrix with function values that its format holds exactly. */
static void set_weight(struct trial *c, const char *name, int64_t matrix, int64_t n, int64_t k, float v)
{
	const struct trial_operand *o = trial_operand(c, name);
	const struct plumb_weight *w = &o->weight[matrix];
	size_t at = (size_t)((const unsigned char *)w->data - o->memory.data);
	plumb_encode(w->format, &v, 1, o->memory.data + at + plumb_format_row_bytes(w->format, n * w->cols + k));
}

static void check(struct trial *c)
{
	char text[TRIAL_TEXT];
	trial_seal(c);
	ck_assert_msg(trial_check(c, NULL, device, SCHEDULES, text), "%s", text);
}

/* The same under one schedule, for large cases. */
static void check_once(struct trial *c)
{
	char text[TRIAL_TEXT];
	trial_seal(c);
	ck_assert_msg(trial_check(c, NULL, device + 1, 1, text), "%s", text);
}

/* What the last call wrote; after check() that is opt's. */
static const int32_t *ids(struct trial *c)
{
	return trial_data(c, "expert");
}

/* --- router: a hidden size of one and x = 1 make the gate's only column the logits --- */

enum pattern { EQUAL, RISING, FALLING, TWO_LEVELS, LEVELS, STEEP, ONE_NAN, ALL_NAN, ONE_INF, SOME_LOW, ALL_LOW, PATTERNS };

static float logit(enum pattern pattern, int64_t e, int64_t E, struct trial_random *r)
{
	switch (pattern) {
	case RISING:
		return (float)(e % 256) * 0x1p-5f;
	case FALLING:
		return (float)(255 - e % 256) * 0x1p-5f;
	case TWO_LEVELS: /* the cut runs through the ties of one level, across lanes, warps and rounds */
		return e % 3 == 1 ? 1.0f : 0.5f;
	case LEVELS:
		return (float)trial_random_below(r, 5) - 2.0f;
	case STEEP: /* below 104 under the maximum every probability is zero: ties again, by index */
		return (float)trial_random_below(r, 3) * -130.0f;
	case ONE_NAN: /* first, in the middle, last, by E */
		return e == (E % 3 == 0 ? 0 : E % 3 == 1 ? E / 2 : E - 1) ? NAN : 1.0f;
	case ALL_NAN:
		return NAN;
	case ONE_INF:
		return e == E - 1 ? INFINITY : 0.0f;
	case SOME_LOW:
		return e % 2 ? -INFINITY : (float)(e % 7);
	case ALL_LOW:
		return -INFINITY;
	default:
		return 0.25f;
	}
}

struct item {
	float key;
	int32_t index;
};

static int larger_first(const void *x, const void *y)
{
	const struct item *a = x, *b = y;
	return a->key != b->key ? (a->key > b->key ? -1 : 1) : (a->index > b->index) - (a->index < b->index);
}

/* The choice by a full sort of the logits. What is so low that its probability is zero ties with its like; once a logit
 * is NaN or +Inf, or all are -Inf, so is every probability NaN. */
static void expect_choice(const float *l, int64_t E, const int32_t *chosen, int A)
{
	struct item *item = malloc((size_t)E * sizeof *item);
	float max = -INFINITY;
	bool number = true;

	ck_assert_ptr_nonnull(item);
	for (int64_t e = 0; e < E; e++) {
		number = number && l[e] < INFINITY;
		max = l[e] > max ? l[e] : max;
	}
	number = number && max > -INFINITY;
	for (int32_t e = 0; e < E; e++)
		item[e] = (struct item){!number ? 0.0f : l[e] - max < -104.0f ? -104.0f : l[e] - max, e};
	qsort(item, (size_t)E, sizeof *item, larger_first);
	for (int k = 0; k < A; k++)
		ck_assert_msg(chosen[k] == item[k].index, "slot %d is %d, expected %d", k, chosen[k], item[k].index);
	free(item);
}

static const int64_t expert_counts[] = {1, 2, 3, 31, 32, 33, 64, 65, 129, 255, 256, 257, 512, 513, 1000};

START_TEST(router_ties_and_classes)
{
	int64_t E = expert_counts[_i];
	int chosen[] = {1, E > 10 ? 10 : (int)E, (int)(E + 1) / 2, (int)E};

	for (int pattern = 0; pattern < PATTERNS; pattern++) {
		struct trial_random r = {(uint64_t)(E * PATTERNS + pattern)};
		int A = chosen[(pattern + _i) % 4];
		enum plumb_policy policy = pattern % 2 ? PLUMB_POLICY_F32 : PLUMB_POLICY_BF16;
		struct trial *c = make(
			PLUMB_MOE_ROUTER, (struct shape){1, E, A, 1, 1}, policy, 1, (_i + pattern) % PLUMB_PLAIN_FORMATS);
		floats(c, "x")[0] = 1.0f;
		for (int64_t e = 0; e < E; e++)
			set_weight(c, "gate", 0, e, 0, logit((enum pattern)pattern, e, E, &r));
		if (E < 100)
			check(c);
		else
			check_once(c);
		expect_choice(floats(c, "logits"), E, ids(c), A);
		bool number = pattern != ONE_NAN && pattern != ALL_NAN && pattern != ONE_INF && pattern != ALL_LOW;
		for (int k = 0; k < A; k++)
			ck_assert_msg(isnan(floats(c, "weight")[k]) == !number, "E %d, pattern %d, weight %d is %g", (int)E,
				pattern, k, (double)floats(c, "weight")[k]);
		trial_free(c);
	}
}
END_TEST

/* Sizes past one round of every thread, the limit of shared memory, and beyond it. */
START_TEST(router_of_many_experts)
{
	static const struct shape shapes[] = {{1, 4096, 4096, 1, 1}, {1, PLUMB_MOE_SHARED_EXPERTS, 11, 1, 1},
		{1, PLUMB_MOE_SHARED_EXPERTS + 1, 100, 1, 1}};
	struct trial *c = make(PLUMB_MOE_ROUTER, shapes[_i], PLUMB_POLICY_BF16, 1, PLUMB_BF16);
	struct trial_random r = {9};

	floats(c, "x")[0] = 1.0f;
	for (int64_t e = 0; e < shapes[_i].E; e++)
		set_weight(c, "gate", 0, e, 0, (float)trial_random_below(&r, 100) * 0x1p-4f);
	set_weight(c, "gate", 0, shapes[_i].E - 1, 0, 100.0f); /* the winner is the last */
	check_once(c);
	ck_assert_int_eq(ids(c)[0], (int32_t)shapes[_i].E - 1);
	expect_choice(floats(c, "logits"), shapes[_i].E, ids(c), shapes[_i].A);
	trial_free(c);
}
END_TEST

/* --- derived bounds: twin against oracle, policy f32, weights that are no round numbers --- */

static const double u = 0x1p-24;

static double gamma_of(int64_t n, int64_t rows)
{
	double d = plumb_split_depth(n, plumb_split_count(rows, n));
	return d * u / (1.0 - d * u);
}

/* Sum of w[n, k] * x[k], or of magnitudes. */
static double row_sum(const struct plumb_weight *w, int64_t n, const float *x, bool magnitudes)
{
	float *row = malloc((size_t)w->cols * sizeof *row);
	double sum = 0.0;

	ck_assert_ptr_nonnull(row);
	plumb_weight_row(w, n, 0, w->cols, row);
	for (int64_t k = 0; k < w->cols; k++) {
		double p = (double)row[k] * (double)x[k];
		sum += magnitudes ? fabs(p) : p;
	}
	free(row);
	return sum;
}

/* Largest ratio so far; the condition is the one that must hold. */
static void within(double value, double truth, double bound, double *worst)
{
	ck_assert_msg(fabs(value - truth) <= bound, "%.9g, expected %.9g within %.3g", value, truth, bound);
	if (bound > 0.0 && fabs(value - truth) / bound > *worst)
		*worst = fabs(value - truth) / bound;
}

static void run_pair(struct trial *c, struct trial_result *oracle, struct trial_result *twin)
{
	char text[TRIAL_TEXT];
	ck_assert_msg(trial_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_NAN, oracle, text), "%s", text);
	ck_assert_msg(trial_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_NAN, twin, text), "%s", text);
}

static const float *result_of(struct trial *c, const struct trial_result *r, const char *name)
{
	return (const float *)(const void *)r->bytes[trial_operand(c, name) - c->operand];
}

static const struct shape bound_shapes[] = {{2560, 40, 7, 8, 40}, {1025, 3, 3, 1100, 2049}, {257, 130, 2, 33, 5}};

START_TEST(router_bound)
{
	struct shape s = bound_shapes[_i];
	struct trial *c = make(PLUMB_MOE_ROUTER, s, PLUMB_POLICY_F32, 2, PLUMB_F32);
	struct trial_result oracle, twin;
	double worst = 0.0;

	run_pair(c, &oracle, &twin);
	const float *x = floats(c, "x"), *l = result_of(c, &oracle, "logits"), *m = result_of(c, &twin, "logits");
	for (int64_t i = 0; i < 2 * s.E; i++) {
		double sum = row_sum(trial_operand(c, "gate")->weight, i % s.E, x + i / s.E * s.D, true);
		within((double)m[i], (double)l[i], gamma_of(s.D, s.E + 1) * sum + u * fabs((double)l[i]), &worst);
	}
	printf("router logits, D %d: %.3f of the bound\n", (int)s.D, worst);
	trial_result_free(&oracle);
	trial_result_free(&twin);
	trial_free(c);
}
END_TEST

/* h = silu(g) * v with errors dg, dv of the sums: silu' is below 1.1; silu of math32.h is off by 0.62 ulp, which
 * is 1.24 u; product and store round once each. */
START_TEST(gate_up_bound)
{
	struct shape s = bound_shapes[_i];
	struct trial *c = make(PLUMB_MOE_GATE_UP, s, PLUMB_POLICY_F32, 1, PLUMB_F32);
	struct trial_result oracle, twin;
	double worst = 0.0, gamma = gamma_of(s.D, 2 * (s.A * s.F + s.Fs));

	run_pair(c, &oracle, &twin);
	const float *x = floats(c, "x");
	for (int64_t i = 0; i < s.A * s.F + s.Fs; i++) {
		bool shared = i >= s.A * s.F;
		int64_t n = shared ? i - s.A * s.F : i % s.F, e = shared ? 0 : ids(c)[i / s.F];
		const struct plumb_weight *gate = &trial_operand(c, shared ? "shared_gate" : "gate")->weight[e];
		const struct plumb_weight *up = &trial_operand(c, shared ? "shared_up" : "up")->weight[e];
		const char *out = shared ? "shared_hidden" : "hidden";
		double g = row_sum(gate, n, x, false), v = row_sum(up, n, x, false), silu = g / (1.0 + exp(-g));
		double dg = gamma * row_sum(gate, n, x, true), dv = gamma * row_sum(up, n, x, true);
		double bound = 1.1 * dg * (fabs(v) + dv) + fabs(silu) * dv + 4.3 * u * fabs(silu * v);
		int64_t at = shared ? n : i;
		within((double)result_of(c, &twin, out)[at], (double)result_of(c, &oracle, out)[at], bound, &worst);
	}
	printf("gate_up, D %d: %.3f of the bound\n", (int)s.D, worst);
	trial_result_free(&oracle);
	trial_result_free(&twin);
	trial_free(c);
}
END_TEST

/* A product for each slot, A sums, the shared product and the last sum round once each: every term passes at most A
 * + 3. */
START_TEST(down_bound)
{
	struct shape s = bound_shapes[_i];
	struct trial *c = make(PLUMB_MOE_DOWN, s, PLUMB_POLICY_F32, 1, PLUMB_F32);
	struct trial_result oracle, twin;
	double worst = 0.0;

	run_pair(c, &oracle, &twin);
	for (int64_t n = 0; n < s.D; n++) {
		double bound = 0.0, terms = 0.0;
		for (int k = 0; k <= s.A; k++) {
			bool shared = k == s.A;
			int64_t cols = shared ? s.Fs : s.F;
			const struct plumb_weight *w =
				&trial_operand(c, shared ? "shared_down" : "down")->weight[shared ? 0 : ids(c)[k]];
			const float *x = shared ? floats(c, "shared_hidden") : floats(c, "hidden") + k * s.F;
			double by = (double)(shared ? floats(c, "shared_weight")[0] : floats(c, "weight")[k]);
			bound += gamma_of(cols, s.D * (s.A + 1)) * row_sum(w, n, x, true) * by;
			terms += fabs(row_sum(w, n, x, false) * by);
		}
		bound = bound * (1.0 + (s.A + 3) * 2.0 * u) + (s.A + 4) * u * terms;
		within((double)result_of(c, &twin, "y")[n], (double)result_of(c, &oracle, "y")[n], bound, &worst);
	}
	printf("down, F %d: %.3f of the bound\n", (int)s.F, worst);
	trial_result_free(&oracle);
	trial_result_free(&twin);
	trial_free(c);
}
END_TEST

/* --- an independent formulation of the oracle: OpenBLAS on whole matrices, exact sums, its own rounding --- */

/* Values that are multiples of 1/4 up to 2: every sum of some hundred products is exact in binary32. */
static void fill_exact(struct trial *c, const char *name, bool weight)
{
	const struct trial_operand *o = trial_operand(c, name);
	for (int64_t i = 0; !weight && i < o->count; i++)
		floats(c, name)[i] = (float)(trial_random_below(&c->random, 17) - 8) * 0.25f;
	for (int64_t m = 0; weight && m < o->matrices; m++)
		for (int64_t k = 0; k < o->weight[m].rows * o->weight[m].cols; k++)
			set_weight(c, name, m, k / o->weight[m].cols, k % o->weight[m].cols,
				(float)(trial_random_below(&c->random, 17) - 8) * 0.25f);
}

static double rounded(enum plumb_policy policy, double x)
{
	return policy == PLUMB_POLICY_BF16 ? (double)plumb_round_bf16((float)x) : x;
}

/* y (rows) = w . x */
static void gemv(const struct plumb_weight *w, const float *x, double *y)
{
	float *narrow = malloc((size_t)(w->rows * w->cols) * sizeof *narrow);
	double *wide = malloc((size_t)((w->rows + 1) * w->cols) * sizeof *wide), *xd = wide + w->rows * w->cols;

	ck_assert(narrow && wide);
	plumb_decode(w->format, w->data, w->rows * w->cols, narrow);
	for (int64_t i = 0; i < w->rows * w->cols; i++)
		wide[i] = (double)narrow[i];
	for (int64_t k = 0; k < w->cols; k++)
		xd[k] = (double)x[k];
	cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)w->rows, (int)w->cols, 1.0, wide, (int)w->cols, xd, 1, 0.0, y, 1);
	free(narrow);
	free(wide);
}

static void witness_equal(double expected, float got, enum plumb_policy policy)
{
	float want = (float)rounded(policy, (double)(float)expected);
	ck_assert_msg(want == got, "%.9g, expected %.9g", (double)got, (double)want);
}

START_TEST(gate_up_witness)
{
	enum plumb_policy policy = _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	struct shape s = {130, 4, 3, 37, 21};
	struct trial *c = make(PLUMB_MOE_GATE_UP, s, policy, 2, PLUMB_BF16);
	static const char *const weights[] = {"gate", "up", "shared_gate", "shared_up"};
	double g[64], v[64];

	fill_exact(c, "x", false);
	for (int i = 0; i < 4; i++)
		fill_exact(c, weights[i], true);
	check(c);
	ck_assert_int_eq(moe_gate_up_ref(&c->env, c->args), PLUMB_OK);
	for (int64_t i = 0; i < 2 * (s.A + 1); i++) {
		int64_t t = i / (s.A + 1), k = i % (s.A + 1), e = k < s.A ? ids(c)[t * s.A + k] : 0;
		gemv(&trial_operand(c, k < s.A ? "gate" : "shared_gate")->weight[e], floats(c, "x") + t * s.D, g);
		gemv(&trial_operand(c, k < s.A ? "up" : "shared_up")->weight[e], floats(c, "x") + t * s.D, v);
		const float *out =
			k < s.A ? floats(c, "hidden") + (t * s.A + k) * s.F : floats(c, "shared_hidden") + t * s.Fs;
		for (int64_t f = 0; f < (k < s.A ? s.F : s.Fs); f++) {
			double gate = rounded(policy, g[f]);
			witness_equal(rounded(policy, gate / (1.0 + exp(-gate))) * rounded(policy, v[f]), out[f], policy);
		}
	}
	trial_free(c);
}
END_TEST

START_TEST(down_witness)
{
	enum plumb_policy policy = _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	struct shape s = {61, 5, 4, 130, 33};
	struct trial *c = make(PLUMB_MOE_DOWN, s, policy, 2, PLUMB_F32);
	double d[64], routed[64];

	fill_exact(c, "hidden", false);
	fill_exact(c, "shared_hidden", false);
	fill_exact(c, "down", true);
	fill_exact(c, "shared_down", true);
	for (int i = 0; i < 2 * s.A; i++)
		floats(c, "weight")[i] = (float)(1 + trial_random_below(&c->random, 8)) * 0.125f;
	floats(c, "shared_weight")[0] = 0.5f;
	floats(c, "shared_weight")[1] = 0.75f;
	check(c);
	ck_assert_int_eq(moe_down_ref(&c->env, c->args), PLUMB_OK);
	for (int64_t t = 0; t < 2; t++) {
		memset(routed, 0, sizeof routed);
		for (int64_t i = t * s.A; i < (t + 1) * s.A; i++) {
			gemv(&trial_operand(c, "down")->weight[ids(c)[i]], floats(c, "hidden") + i * s.F, d);
			for (int64_t n = 0; n < s.D; n++)
				routed[n] += rounded(policy, rounded(policy, d[n]) * (double)floats(c, "weight")[i]);
		}
		gemv(trial_operand(c, "shared_down")->weight, floats(c, "shared_hidden") + t * s.Fs, d);
		for (int64_t n = 0; n < s.D; n++) {
			double shared = rounded(policy, d[n]);
			double gated = rounded(policy, (double)floats(c, "shared_weight")[t] * shared);
			witness_equal(routed[n], floats(c, "routed")[t * s.D + n], policy);
			witness_equal(shared, floats(c, "shared")[t * s.D + n], policy);
			witness_equal(rounded(policy, routed[n]) + gated, floats(c, "y")[t * s.D + n], policy);
		}
	}
	trial_free(c);
}
END_TEST

/* Exact logits; weights from a softmax in long double. */
START_TEST(router_witness)
{
	struct shape s = {130, 50, 6, 1, 1};
	struct trial *c = make(PLUMB_MOE_ROUTER, s, PLUMB_POLICY_F32, 1, PLUMB_F16);
	double l[64], worst = 0.0;
	long double chosen = 0.0L, gate;

	fill_exact(c, "x", false);
	fill_exact(c, "gate", true);
	fill_exact(c, "shared_gate", true);
	for (int64_t k = 0; k < s.D; k++) /* logits of order one */
		floats(c, "x")[k] *= 0x1p-5f;
	check(c);
	ck_assert_int_eq(moe_router_ref(&c->env, c->args), PLUMB_OK);
	gemv(trial_operand(c, "gate")->weight, floats(c, "x"), l);
	for (int64_t e = 0; e < s.E; e++)
		witness_equal(l[e], floats(c, "logits")[e], PLUMB_POLICY_F32);
	expect_choice(floats(c, "logits"), s.E, ids(c), s.A);
	for (int k = 0; k < s.A; k++)
		chosen += expl((long double)l[ids(c)[k]]);
	for (int k = 0; k < s.A; k++) { /* a probability and a weight are rounded to binary32 */
		double want = (double)(expl((long double)l[ids(c)[k]]) / chosen);
		within((double)floats(c, "weight")[k], want, 4.0 * u * want, &worst);
	}
	gemv(trial_operand(c, "shared_gate")->weight, floats(c, "x"), l);
	gate = 1.0L / (1.0L + expl(-(long double)l[0]));
	within((double)floats(c, "shared_weight")[0], (double)gate, 1.01 * u * (double)gate, &worst);
	trial_free(c);
}
END_TEST

/* --- what is not a number, not normal, or not a router's --- */

static void agree(struct trial *c)
{
	char text[TRIAL_TEXT];
	trial_seal(c);
	ck_assert_msg(trial_agree(c, NULL, device, SCHEDULES, text), "%s", text);
}

static const float specials[] = {NAN, INFINITY, -INFINITY};

START_TEST(special_values_are_carried)
{
	struct shape s = {20, 5, 3, 65, 9};
	struct trial *down = make(PLUMB_MOE_DOWN, s, PLUMB_POLICY_BF16, 2, -1);
	struct trial *up = make(PLUMB_MOE_GATE_UP, s, PLUMB_POLICY_F32, 2, -1);
	int64_t places[] = {0, s.F / 2, s.F - 1};

	floats(down, "hidden")[s.F + places[_i / 3]] = specials[_i % 3]; /* slot 1 of token 0 */
	floats(down, "weight")[1] = 0.5f;
	agree(down);
	for (int64_t n = 0; n < s.D; n++) {
		ck_assert(!isfinite(floats(down, "y")[n]));
		ck_assert(isfinite(floats(down, "y")[s.D + n]));
		ck_assert(isfinite(floats(down, "shared")[n]));
	}
	floats(up, "x")[s.D + (places[_i / 3] * s.D / s.F)] = specials[_i % 3]; /* token 1 */
	agree(up);
	for (int64_t i = 0; i < s.A * s.F; i++)
		ck_assert(isfinite(floats(up, "hidden")[i]));
	if (_i % 3 == 0)
		for (int64_t i = 0; i < s.A * s.F; i++)
			ck_assert(isnan(floats(up, "hidden")[s.A * s.F + i]));
	trial_free(down);
	trial_free(up);
}
END_TEST

/* Products and sums that are subnormal, or of zeros of both signs: the same bits, nothing flushed. */
START_TEST(subnormals_are_kept)
{
	struct shape s = {33, 4, 2, 65, 40};
	struct trial *c = make(PLUMB_MOE_DOWN, s, PLUMB_POLICY_F32, 1, PLUMB_F32);
	bool subnormal = false;

	for (int64_t i = 0; i < s.A * s.F; i++)
		floats(c, "hidden")[i] *= 0x1p-130f;
	for (int64_t i = 0; i < s.Fs; i++)
		floats(c, "shared_hidden")[i] = i % 2 ? -0.0f : 0.0f;
	agree(c);
	for (int64_t n = 0; n < s.D; n++)
		subnormal = subnormal || fpclassify(floats(c, "y")[n]) == FP_SUBNORMAL;
	ck_assert(subnormal);
	trial_free(c);
}
END_TEST

/* An id that no router gives: nothing is read, what depends on it is NaN, and nothing else. */
START_TEST(ids_out_of_range_show)
{
	static const int32_t wrong[] = {-1, 5, INT32_MAX, INT32_MIN};
	struct shape s = {70, 5, 3, 30, 9};
	struct trial *up = make(PLUMB_MOE_GATE_UP, s, PLUMB_POLICY_F32, 2, -1);
	struct trial *down = make(PLUMB_MOE_DOWN, s, PLUMB_POLICY_BF16, 2, -1);

	((int32_t *)trial_data(up, "expert"))[1] = wrong[_i];
	agree(up);
	for (int64_t i = 0; i < 2 * s.A * s.F; i++)
		ck_assert(isnan(floats(up, "hidden")[i]) == (i / s.F == 1));
	for (int64_t i = 0; i < 2 * s.Fs; i++)
		ck_assert(!isnan(floats(up, "shared_hidden")[i]));
	ck_assert_int_eq(moe_gate_up_ref(&up->env, up->args), PLUMB_OK); /* the oracle says the same */
	for (int64_t i = 0; i < 2 * s.A * s.F; i++)
		ck_assert(isnan(floats(up, "hidden")[i]) == (i / s.F == 1));
	((int32_t *)trial_data(down, "expert"))[4] = wrong[_i]; /* token 1 */
	agree(down);
	for (int64_t i = 0; i < 2 * s.D; i++) {
		ck_assert(isnan(floats(down, "y")[i]) == (i >= s.D));
		ck_assert(isnan(floats(down, "routed")[i]) == (i >= s.D));
		ck_assert(!isnan(floats(down, "shared")[i]));
	}
	ck_assert_int_eq(moe_down_ref(&down->env, down->args), PLUMB_OK);
	for (int64_t i = 0; i < 2 * s.D; i++)
		ck_assert(isnan(floats(down, "y")[i]) == (i >= s.D));
	trial_free(up);
	trial_free(down);
}
END_TEST

/* --- shapes at the edges of the kernels' ways --- */

static const struct {
	enum plumb_op op;
	struct shape shape;
} edges[] = {
	{PLUMB_MOE_ROUTER, {1, 1, 1, 1, 1}},
	{PLUMB_MOE_GATE_UP, {1, 1, 1, 1, 1}},
	{PLUMB_MOE_DOWN, {1, 1, 1, 1, 1}},
	{PLUMB_MOE_ROUTER, {8200, 7, 2, 1, 1}}, /* sixteen pieces, the last ones empty */
	{PLUMB_MOE_GATE_UP, {8200, 7, 2, 3, 2}},
	{PLUMB_MOE_DOWN, {3, 3, 3, 4100, 8200}},  /* pieces of slots and of the shared expert differ; an odd last row */
	{PLUMB_MOE_ROUTER, {1032, 30, 30, 1, 1}}, /* wide loads with a cut last group */
	{PLUMB_MOE_GATE_UP, {1032, 6, 2, 9, 20}},
	{PLUMB_MOE_DOWN, {5, 6, 2, 1032, 520}},
	{PLUMB_MOE_DOWN, {16, 13, 12, 16, 16}},  /* one part more than the warps of a block */
	{PLUMB_MOE_GATE_UP, {24, 64, 64, 5, 3}}, /* A = E */
	{PLUMB_MOE_DOWN, {24, 64, 64, 5, 3}},
};

START_TEST(edge_shapes)
{
	for (int format = 0; format < PLUMB_PLAIN_FORMATS; format++) {
		enum plumb_policy policy = format == PLUMB_BF16 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
		struct trial *c = make(edges[_i].op, edges[_i].shape, policy, 1 + format % 2, format);
		check_once(c);
		trial_free(c);
	}
}
END_TEST

/* Every barrier counts: pieces, ranks in shared memory and in scratch, several rounds of parts. Nothing here is large.
 */
static const struct {
	enum plumb_op op;
	struct shape shape;
} race_cases[] = {
	{PLUMB_MOE_ROUTER, {1030, 40, 5, 1, 1}},
	{PLUMB_MOE_ROUTER, {1, 300, 300, 1, 1}},
	{PLUMB_MOE_ROUTER, {1, PLUMB_MOE_SHARED_EXPERTS + 1, 2, 1, 1}},
	{PLUMB_MOE_GATE_UP, {1030, 3, 2, 3, 2}},
	{PLUMB_MOE_DOWN, {5, 7, 7, 1030, 2050}},
};

START_TEST(no_race)
{
	struct trial *c = make(race_cases[_i].op, race_cases[_i].shape, PLUMB_POLICY_BF16, 1, -1);
	char text[TRIAL_TEXT];
	ck_assert_msg(trial_agree(c, NULL, device + SCHEDULES, RACE, text), "%s", text);
	trial_free(c);
}
END_TEST

/* --- refusals --- */

START_TEST(refusals_say_what)
{
	struct shape s = {4, 3, 2, 2, 2};
	struct trial *router = make(PLUMB_MOE_ROUTER, s, PLUMB_POLICY_F32, 1, PLUMB_F32);
	struct trial *up = make(PLUMB_MOE_GATE_UP, s, PLUMB_POLICY_F32, 1, PLUMB_F32);

	router->env.device = device[0];
	router->cfg.experts = PLUMB_MOE_MAX_EXPERTS + INT64_C(1);
	ck_assert_int_eq(moe_router_opt(&router->env, router->args), PLUMB_BAD_INPUT);
	ck_assert_str_eq(router->error.text, "moe_router: num_experts 1073741825, expected at most 1073741824");
	up->env.device = device[0];
	up->cfg.expert_inner = INT32_MAX;
	ck_assert_int_eq(moe_gate_up_opt(&up->env, up->args), PLUMB_BAD_INPUT);
	ck_assert_str_eq(
		up->error.text, "moe_gate_up: inner sizes of all chosen experts 4294967296, expected at most 2147483647");
	router->cfg.experts = up->cfg.expert_inner = 3;
	trial_free(router);
	trial_free(up);
}
END_TEST

/* --- sensitivity: what is wrong must fail the same comparisons --- */

/* The other of two equal logits. */
static int wrong_tie(const struct plumb_env *env, const void *args)
{
	const struct plumb_moe_router *a = args;
	int status = moe_router_twin(env, args);
	int32_t first = a->expert[0];
	a->expert[0] = a->expert[1];
	a->expert[1] = first;
	return status;
}

static int no_renormalisation(const struct plumb_env *env, const void *args)
{
	struct plumb_config cfg = *env->cfg;
	struct plumb_env other = *env;
	cfg.norm_topk = false;
	other.cfg = &cfg;
	return moe_router_twin(&other, args);
}

static int gate_for_up(const struct plumb_env *env, const void *args)
{
	struct plumb_moe_gate_up a = *(const struct plumb_moe_gate_up *)args;
	const struct plumb_weight *gate = a.gate;
	a.gate = a.up;
	a.up = gate;
	return moe_gate_up_twin(env, &a);
}

static int next_expert(const struct plumb_env *env, const void *args)
{
	struct plumb_moe_gate_up a = *(const struct plumb_moe_gate_up *)args;
	int32_t expert[8] = {0};
	for (int i = 0; i < env->cfg->experts_per_token; i++)
		expert[i] = (int32_t)((a.expert[i] + 1) % env->cfg->experts);
	a.expert = expert;
	return moe_gate_up_twin(env, &a);
}

static int shared_ungated(const struct plumb_env *env, const void *args)
{
	static const float one = 1.0f;
	struct plumb_moe_down a = *(const struct plumb_moe_down *)args;
	a.shared_weight = &one;
	return moe_down_twin(env, &a);
}

/* Right but for the order of the sum: only the bits differ. */
static int slots_reversed(const struct plumb_env *env, const void *args)
{
	struct plumb_moe_down a = *(const struct plumb_moe_down *)args;
	int A = env->cfg->experts_per_token;
	int64_t F = env->cfg->expert_inner;
	float weight[8], hidden[8 * 64];
	int32_t expert[8];
	for (int k = 0; k < A; k++) {
		weight[k] = a.weight[A - 1 - k];
		expert[k] = a.expert[A - 1 - k];
		memcpy(hidden + k * F, a.hidden + (A - 1 - k) * F, (size_t)F * sizeof *hidden);
	}
	a.weight = weight;
	a.expert = expert;
	a.hidden = hidden;
	return moe_down_twin(env, &a);
}

static const struct {
	enum plumb_op op;
	plumb_op_fn *candidate;
	bool near; /* fails the comparison with the oracle too */
} wrong[] = {
	{PLUMB_MOE_ROUTER, wrong_tie, true}, /* logits that it made equal: their order is judged */
	{PLUMB_MOE_ROUTER, no_renormalisation, true},
	{PLUMB_MOE_GATE_UP, gate_for_up, true},
	{PLUMB_MOE_GATE_UP, next_expert, true},
	{PLUMB_MOE_DOWN, shared_ungated, true},
	{PLUMB_MOE_DOWN, slots_reversed, false},
};

START_TEST(wrong_variants_fail)
{
	struct shape s = {100, 6, 5, 40, 30};
	struct trial *c = make(wrong[_i].op, s, PLUMB_POLICY_F32, 1, PLUMB_BF16);
	struct trial_result oracle, twin, other;
	char text[TRIAL_TEXT];

	if (wrong[_i].op == PLUMB_MOE_ROUTER)
		for (int64_t e = 0; e < s.E; e++)
			for (int64_t k = 0; k < s.D; k++)
				set_weight(c, "gate", 0, e, k, e > 1 ? 0.0f : floats(c, "x")[k]); /* 0 and 1 tie and win */
	trial_seal(c);
	run_pair(c, &oracle, &twin);
	ck_assert_msg(trial_near(c, &oracle, &twin, "twin", text), "%s", text);
	ck_assert_msg(trial_run(c, "wrong", wrong[_i].candidate, NULL, PLUMB_POISON_NAN, &other, text), "%s", text);
	ck_assert(!trial_same(c, &other, &twin, "wrong", text));
	ck_assert_int_eq(trial_near(c, &oracle, &other, "wrong", text), !wrong[_i].near);
	trial_result_free(&oracle);
	trial_result_free(&twin);
	trial_result_free(&other);
	trial_free(c);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	Suite *suite = suite_create("moe");
	TCase *cases = suite_part(suite, "moe", 120);
	tcase_add_unchecked_fixture(cases, open_devices, close_devices);
	tcase_add_loop_test(cases, router_ties_and_classes, 0, COUNT(expert_counts));
	tcase_add_loop_test(cases, router_of_many_experts, 0, 3);
	tcase_add_loop_test(cases, router_bound, 0, COUNT(bound_shapes));
	tcase_add_loop_test(cases, gate_up_bound, 0, COUNT(bound_shapes));
	tcase_add_loop_test(cases, down_bound, 0, COUNT(bound_shapes));
	tcase_add_test(cases, router_witness);
	tcase_add_loop_test(cases, gate_up_witness, 0, 2);
	tcase_add_loop_test(cases, down_witness, 0, 2);
	tcase_add_loop_test(cases, special_values_are_carried, 0, 9);
	tcase_add_test(cases, subnormals_are_kept);
	tcase_add_loop_test(cases, ids_out_of_range_show, 0, 4);
	tcase_add_loop_test(cases, edge_shapes, 0, COUNT(edges));
	tcase_add_loop_test(cases, no_race, 0, COUNT(race_cases));
	tcase_add_test(cases, refusals_say_what);
	tcase_add_loop_test(cases, wrong_variants_fail, 0, COUNT(wrong));
	return suite_run_here(suite); /* the devices keep their stacks from case to case */
}
