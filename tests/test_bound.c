/* SPDX-License-Identifier: MIT */
/* The error bounds: that right implementations keep them, and that wrong ones do not. Faults of known size are planted
 * at twice and at half the bound; a reduction in another order, a term left out, another eps, truncation in the place
 * of rounding must show. PLUMB_BOUND_SEEDS sets how many random cases an op gets. */
#include <check.h>
#include <fenv.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/attention.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/qsa.h"
#include "ref/bound.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial.h"

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 10 }; /* the sanitizers cost a factor of ten */
#else
enum { SEEDS = 300 };
#endif

static const struct trial_options any = {.policy = -1, .format = -1, .traces = -1};

static void must_run(struct trial *c, const char *what, plumb_op_fn *fn)
{
	char text[TRIAL_TEXT];
	struct trial_result result;
	ck_assert_msg(trial_run(c, what, fn, NULL, PLUMB_POISON_NAN, &result, text), "%s", text);
	trial_result_free(&result);
}

/* ---- right implementations ---- */

START_TEST(random_cases)
{
	enum plumb_op op = (enum plumb_op)_i;
	const char *count = getenv("PLUMB_BOUND_SEEDS");
	uint64_t seeds = count ? strtoull(count, NULL, 10) : SEEDS;
	struct plumb_bound_result twin, oracle;
	char text[TRIAL_TEXT], name[64];

	plumb_bound_begin(&twin, op);
	plumb_bound_begin(&oracle, op);
	for (uint64_t seed = 0; seed < seeds; seed++) {
		struct trial *c = trial_new(op, seed, NULL);
		trial_name(c, name);
		must_run(c, "oracle", plumb_ref_oracle.op[op]);
		ck_assert_msg(trial_bounded(c, "oracle", &oracle, text), "%s: %s", name, text);
		must_run(c, "twin", plumb_ref_twin.op[op]);
		ck_assert_msg(trial_bounded(c, "twin", &twin, text), "%s: %s", name, text);
		trial_free(c);
	}
	ck_assert_msg(plumb_bound_passes(&twin, text, sizeof text), "%s: %s", plumb_ops[op].name, text);
	for (int i = 0; i < plumb_ops[op].operands; i++) {
		const struct plumb_bound_stat *s = &twin.operand[i];
		if (s->values)
			printf("%-16s %-13s %8lld values, ratio %.4f, rms %.3f, bias z %.2f\n", plumb_ops[op].name,
				plumb_ops[op].operand[i].name, (long long)s->values, s->max_ratio, plumb_bound_rms(s),
				plumb_bound_bias(s));
	}
}
END_TEST

/* Every op over golden/tiny, cached decode and the greedy continuation included, through the program. */
START_TEST(golden_tiny)
{
	static const char *const how[] = {"--policy f32", "--policy f32 --mode twin", "--policy bf16",
		"--policy bf16 --mode twin", "--policy f32 --set opt --view local", "--policy bf16 --set opt --view local",
		"--policy f32 --op hc_norm_down@1-2=opt"}; /* the oracle in the other layers */
	char command[2048];
	snprintf(command, sizeof command,
		"'%s' check '%s/tiny/tiny.h5' --checkpoint '%s/tiny/checkpoint' --bounds --quiet %s", PLUMB_PROGRAM,
		PLUMB_GOLDEN_DIR, PLUMB_GOLDEN_DIR, how[_i]);
	ck_assert_msg(system(command) == 0, "%s", command);
}
END_TEST

/* gamma is positive and small where there is a bound, and no bound where d*u reaches 1: bf16 accumulation, u = 2^-8,
 * would be there at n = 256 and the formula negative. */
START_TEST(gamma_stays_positive)
{
	double last = 0.0;
	for (int64_t d = 1; d < 1 << 24; d += d < 1000 ? 1 : d / 7) {
		double g = plumb_gamma(d);
		ck_assert(g > last && g >= (double)d * 0x1p-24 && isfinite(g));
		last = g;
	}
	ck_assert(plumb_gamma(0) == 0.0);
	ck_assert(isinf(plumb_gamma(1 << 24)) && plumb_gamma(1 << 24) > 0.0);
	ck_assert(isinf(plumb_gamma(INT64_C(1) << 40)) && plumb_gamma(INT64_C(1) << 40) > 0.0);
	/* the deepest reductions of the released model */
	ck_assert(plumb_gamma(plumb_split_depth(10240, plumb_split_count(324, 10240))) < 4e-6);
	ck_assert(plumb_gamma(plumb_strided_depth(4099, PLUMB_ROW_LANES)) < 2e-6);
}
END_TEST

/* Through 60 tokens of the recurrence an elementwise carry would grow by up to 1 + beta each; the 2-norm forgets. */
START_TEST(recurrence_forgets)
{
	struct plumb_config cfg;
	struct trial_options with = any;
	struct trial_random r = {5};
	struct plumb_bound_result result;
	char text[TRIAL_TEXT];

	trial_config_random(&r, PLUMB_GDN_RECURRENCE, &cfg);
	cfg.gdn_key_heads = 1;
	cfg.gdn_value_heads = 2;
	cfg.gdn_key_dim = 128;
	cfg.gdn_value_dim = 16;
	with.cfg = &cfg;
	with.policy = PLUMB_POLICY_F32;
	with.T = 60;
	struct trial *c = trial_new(PLUMB_GDN_RECURRENCE, 3, &with);
	must_run(c, "twin", gdn_recurrence_twin);
	plumb_bound_begin(&result, c->op);
	ck_assert_msg(trial_bounded(c, "twin", &result, text), "%s", text);
	for (int i = 0; i < c->operands; i++)
		if (result.operand[i].values)
			ck_assert_msg(result.operand[i].ball.error < 1e-4, "bound %g", result.operand[i].ball.error);
	trial_free(c);
}
END_TEST

/* ---- faults of known size ---- */

/* What the planted fault writes after the twin has run. */
static struct {
	int operand;
	int64_t index;
	float value;
} fault;

static float *element_of(const struct trial *c, const void *args, int operand, int64_t index)
{
	const struct plumb_operand *o = &plumb_ops[c->op].operand[operand];
	void *p;
	memcpy(&p, (const char *)args + o->offset, sizeof p);
	if (o->kind != PLUMB_KIND_CACHE)
		return (float *)p + index;
	const struct plumb_cache *cache = p;
	return (float *)plumb_cache_row(cache, index / cache->width) + index % cache->width;
}

static struct trial *running;

static int planted(const struct plumb_env *env, const void *args)
{
	int status = plumb_ref_twin.op[running->op](env, args);
	*element_of(running, args, fault.operand, fault.index) = fault.value;
	return status;
}

/* The float next to value + part * error, on the far side of it (away from value) or on the near side. */
static float off_by(struct plumb_ball b, double part, bool far)
{
	double wanted = b.value + part * b.error;
	float f = (float)wanted;
	if (far && (double)f < wanted)
		f = nextafterf(f, INFINITY);
	if (!far && (double)f > wanted)
		f = nextafterf(f, -INFINITY);
	return f;
}

/* The element of an operand with the largest ratio, as the twin left it: where a bound is tightest. */
static bool tightest(struct trial *c, int operand, struct plumb_bound_stat *out)
{
	struct plumb_bound_result result;
	char text[TRIAL_TEXT];
	must_run(c, "twin", plumb_ref_twin.op[c->op]);
	plumb_bound_begin(&result, c->op);
	ck_assert_msg(trial_bounded(c, "twin", &result, text), "%s", text);
	*out = result.operand[operand];
	return out->index >= 0;
}

static bool survives(struct trial *c, float value)
{
	char text[TRIAL_TEXT];
	fault.value = value;
	running = c;
	must_run(c, "planted", planted);
	return trial_bounded(c, "planted", NULL, text);
}

START_TEST(faults_at_twice_and_half_the_bound)
{
	int planted_faults = 0, wanted = 0;

	for (int i = 0; i < plumb_ops[_i].operands; i++) {
		const struct plumb_operand *o = &plumb_ops[_i].operand[i];
		bool values = plumb_operand_is_real(o) || o->kind == PLUMB_KIND_CACHE;
		int here = 0;
		if (!values || (o->role != PLUMB_OUT && o->role != PLUMB_STATE))
			continue;
		wanted++;
		for (uint64_t seed = 0; seed < 12; seed++) {
			struct trial_options with = any;
			struct plumb_bound_stat at;
			with.policy = o->kind == PLUMB_KIND_CACHE ? PLUMB_POLICY_F32 : (int)(seed % 2);
			with.traces = 1;
			with.plain = true;
			struct trial *c = trial_new((enum plumb_op)_i, seed, &with);
			if (tightest(c, i, &at) && isfinite(at.ball.value)) {
				fault.operand = i;
				fault.index = at.index;
				float two = off_by(at.ball, 2.0, true), half = off_by(at.ball, 0.5, false);
				if (at.ball.error == 0.0) /* a copy: one step is too much */
					two = nextafterf(two, INFINITY);
				ck_assert_msg(!survives(c, two), "%s: %.9g for %.12g +- %.3g was not noticed", o->name,
					(double)two, at.ball.value, at.ball.error);
				if (fabs((double)half - at.ball.value) <= at.ball.error)
					ck_assert_msg(survives(c, half), "%s: %.9g for %.12g +- %.3g was refused", o->name,
						(double)half, at.ball.value, at.ball.error);
				ck_assert(!survives(c, NAN));
				ck_assert(!survives(c, INFINITY));
				here++;
			}
			trial_free(c);
		}
		planted_faults += here > 0;
	}
	ck_assert_int_eq(planted_faults, wanted);
}
END_TEST

/* Every real output of every op 1 % too large. */
static int scaled(const struct plumb_env *env, const void *args)
{
	int status = plumb_ref_twin.op[running->op](env, args);
	const struct trial_operand *o = &running->operand[fault.operand];

	if (o->info->kind == PLUMB_KIND_CACHE) { /* of the rows that it wrote, the element where the bound is tightest */
		*element_of(running, args, fault.operand, fault.index) *= 1.01f;
		return status;
	}
	for (int64_t i = 0; i < trial_count(o); i++)
		*element_of(running, args, fault.operand, i) *= 1.01f;
	return status;
}

START_TEST(one_percent_shows)
{
	for (int i = 0; i < plumb_ops[_i].operands; i++) {
		const struct plumb_operand *o = &plumb_ops[_i].operand[i];
		bool values = plumb_operand_is_real(o) || o->kind == PLUMB_KIND_CACHE;
		int found = 0;

		if (!values || (o->role != PLUMB_OUT && o->role != PLUMB_STATE))
			continue;
		for (uint64_t seed = 0; seed < 4; seed++) {
			struct trial_options with = any;
			struct plumb_bound_stat at;
			char text[TRIAL_TEXT];

			with.policy = o->kind == PLUMB_KIND_CACHE ? PLUMB_POLICY_F32 : (int)(seed % 2);
			with.traces = 1;
			with.plain = true;
			struct trial *c = trial_new((enum plumb_op)_i, seed, &with);
			if (tightest(c, i, &at) && isfinite(at.ball.value) && at.ball.value != 0.0) {
				fault.operand = i;
				fault.index = at.index;
				running = c;
				must_run(c, "1 % too large", scaled);
				ck_assert_msg(!trial_bounded(c, "1 % too large", NULL, text), "%s, seed %llu: not noticed",
					o->name, (unsigned long long)seed);
				found++;
			}
			trial_free(c);
		}
		ck_assert_msg(found > 0, "%s: no case with a value", o->name);
	}
}
END_TEST

/* ---- wrong reductions ---- */

/* y = w . x with one long row, policy f32. */
static struct trial *long_rows(int64_t K)
{
	static struct plumb_config cfg;
	struct trial_options with = any;
	struct trial_random r = {1};

	trial_config_random(&r, PLUMB_ATTN_OUT_PROJ, &cfg);
	cfg.hidden = 3;
	cfg.q_heads = cfg.kv_heads = 1;
	cfg.head_dim = K;
	with.cfg = &cfg;
	with.policy = PLUMB_POLICY_F32;
	with.format = PLUMB_F32;
	with.T = 1;
	return trial_new(PLUMB_ATTN_OUT_PROJ, 1, &with);
}

static int rows_by(const void *args, float (*dot)(const float *, const float *, int64_t))
{
	const struct plumb_attn_out_proj *a = args;
	int64_t K = a->w->cols;
	float *row = malloc((size_t)K * sizeof *row);
	ck_assert_ptr_nonnull(row);
	for (int64_t n = 0; n < a->w->rows; n++) {
		plumb_weight_row(a->w, n, 0, K, row);
		for (int64_t t = 0; t < a->T; t++)
			a->y[t * a->w->rows + n] = dot(row, a->x + t * K, K);
	}
	free(row);
	return PLUMB_OK;
}

static float one_accumulator(const float *w, const float *x, int64_t K)
{
	float sum = 0.0f;
	for (int64_t k = 0; k < K; k++)
		sum = fmaf(w[k], x[k], sum);
	return sum;
}

static float last_left_out(const float *w, const float *x, int64_t K)
{
	return twin_split_dot(w, x, K - 1, plumb_split_count(3, K));
}

static int sequential(const struct plumb_env *env, const void *args)
{
	(void)env;
	return rows_by(args, one_accumulator);
}

static int short_by_one(const struct plumb_env *env, const void *args)
{
	(void)env;
	return rows_by(args, last_left_out);
}

/* One term of 1, then 4095 of 2^-25, each too small to move 1 by itself: one accumulator never sees them (1.2e-4 is
 * missing), the declared tree adds them among themselves. Depth 17 allows 1e-6. */
START_TEST(sequential_sum_shows)
{
	struct trial *c = long_rows(4096);
	char text[TRIAL_TEXT];
	float *x = trial_data(c, "x"), *w = trial_data(c, "w");

	for (int64_t k = 0; k < 4096; k++)
		x[k] = k == 0 ? 1.0f : 0x1p-25f;
	for (int64_t i = 0; i < 3 * 4096; i++)
		w[i] = 1.0f;
	trial_operand(c, "w")->weight->data = w;
	trial_seal(c);
	must_run(c, "twin", attn_out_proj_twin);
	ck_assert_msg(trial_bounded(c, "twin", NULL, text), "%s", text);
	must_run(c, "sequential", sequential);
	ck_assert(!trial_bounded(c, "sequential", NULL, text));
	trial_free(c);
}
END_TEST

START_TEST(a_term_left_out_shows)
{
	struct trial *c = long_rows(2560);
	char text[TRIAL_TEXT];
	must_run(c, "short", short_by_one);
	ck_assert(!trial_bounded(c, "short", NULL, text));
	trial_free(c);
}
END_TEST

/* 1e-5 for 1e-6 in a mean of squares near 1 is 4.5e-6 of the result; the bound is some 5e-7 of it. */
static int other_eps(const struct plumb_env *env, const void *args)
{
	struct plumb_config cfg = *env->cfg;
	struct plumb_env other = *env;
	cfg.rms_norm_eps = 1e-5f;
	other.cfg = &cfg;
	return plumb_ref_twin.op[running->op](&other, args);
}

static const enum plumb_op normed[] = {
	PLUMB_GDN_NORM_GATE, PLUMB_HC_NORM_DOWN, PLUMB_ATTN_QK_ROPE, PLUMB_QSA_PROJECT, PLUMB_PLE_GATE};

START_TEST(another_eps_shows)
{
	struct trial_options with = any;
	char text[TRIAL_TEXT];
	int noticed = 0;

	with.policy = PLUMB_POLICY_F32;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct trial *c = trial_new(normed[_i], seed, &with);
		running = c;
		must_run(c, "eps", other_eps);
		noticed += !trial_bounded(c, "eps", NULL, text);
		trial_free(c);
	}
	ck_assert_int_ge(noticed, 10); /* not where values are so large that eps drowns */
}
END_TEST

/* ---- truncation in the place of rounding ---- */

/* Every operation towards zero: no single error need be beyond its bound, but all have one sign. */
static int towards_zero(const struct plumb_env *env, const void *args)
{
	fesetround(FE_TOWARDZERO);
	int status = plumb_ref_twin.op[running->op](env, args);
	fesetround(FE_TONEAREST);
	return status;
}

/* The last rounding to bf16 cuts. */
static int cut(const struct plumb_env *env, const void *args)
{
	const struct plumb_attn_out_proj *a = args;
	struct plumb_env wide = *env;
	wide.policy = PLUMB_POLICY_F32;
	int status = attn_out_proj_twin(&wide, args);
	for (int64_t i = 0; i < a->T * a->w->rows; i++)
		a->y[i] = plumb_bits_f32(plumb_f32_bits(a->y[i]) & 0xFFFF0000u);
	return status;
}

static bool biased(enum plumb_op op, enum plumb_policy policy, plumb_op_fn *fn, struct plumb_bound_result *sum)
{
	struct trial_options with = any;
	char text[TRIAL_TEXT];

	with.policy = policy;
	plumb_bound_begin(sum, op);
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct trial *c = trial_new(op, seed, &with);
		running = c;
		must_run(c, "biased", fn);
		trial_bounded(c, "biased", sum, text);
		trial_free(c);
	}
	return !plumb_bound_passes(sum, text, sizeof text) && strstr(text, "(biased)") != NULL;
}

static const enum plumb_op truncated[] = {PLUMB_ATTN_OUT_PROJ, PLUMB_LM_HEAD, PLUMB_HC_INJECT, PLUMB_GDN_CONV,
	PLUMB_GDN_IN_PROJ, PLUMB_MOE_GATE_UP, PLUMB_ATTN_GATE};

START_TEST(truncation_is_biased)
{
	struct plumb_bound_result sum;
	ck_assert(biased(truncated[_i], PLUMB_POLICY_F32, towards_zero, &sum));
	ck_assert(!biased(truncated[_i], PLUMB_POLICY_F32, plumb_ref_twin.op[truncated[_i]], &sum));
}
END_TEST

/* What the largest ratio alone would let pass: a dot product towards zero. */
START_TEST(truncation_within_the_bound)
{
	struct plumb_bound_result sum;
	ck_assert(biased(PLUMB_LM_HEAD, PLUMB_POLICY_F32, towards_zero, &sum));
	for (int i = 0; i < plumb_ops[PLUMB_LM_HEAD].operands; i++)
		ck_assert(sum.operand[i].max_ratio <= 1.0);
}
END_TEST

START_TEST(cut_outputs_are_biased)
{
	struct plumb_bound_result sum;
	ck_assert(biased(PLUMB_ATTN_OUT_PROJ, PLUMB_POLICY_BF16, cut, &sum));
	bool rms = false;
	for (int i = 0; i < plumb_ops[PLUMB_ATTN_OUT_PROJ].operands; i++)
		rms = rms || plumb_bound_rms(&sum.operand[i]) > PLUMB_BOUND_RMS;
	ck_assert(rms);
}
END_TEST

/* ---- the gates themselves ---- */

START_TEST(gates_of_a_stat)
{
	struct plumb_bound_stat none = {.index = -1}, one = {.values = 1, .max_ratio = 1.0};
	struct plumb_bound_result nothing;
	char text[256];

	ck_assert(plumb_bound_stat_passes(&one, text, sizeof text));
	one.max_ratio = nextafter(1.0, 2.0);
	ck_assert(!plumb_bound_stat_passes(&one, text, sizeof text));
	one.max_ratio = (double)NAN;
	ck_assert(!plumb_bound_stat_passes(&one, text, sizeof text));
	one.max_ratio = 0.0;
	one.unbounded = 1;
	ck_assert(!plumb_bound_stat_passes(&one, text, sizeof text));
	one.unbounded = 0;
	one.spread_count = PLUMB_BOUND_ELEMENTS - 1;
	one.square = (double)one.spread_count;
	ck_assert(plumb_bound_stat_passes(&one, text, sizeof text)); /* too few to decide */
	one.spread_count++;
	ck_assert(!plumb_bound_stat_passes(&one, text, sizeof text));
	ck_assert(plumb_bound_stat_passes(&none, text, sizeof text));
	plumb_bound_begin(&nothing, PLUMB_LM_HEAD); /* nothing measured is no pass */
	ck_assert(!plumb_bound_passes(&nothing, text, sizeof text));
	plumb_bound_begin(&nothing, PLUMB_ARGMAX); /* but for what only chooses */
	ck_assert(plumb_bound_passes(&nothing, text, sizeof text));
}
END_TEST

/* `count` tokens of n squares that sum to S. */
static void add_tokens(struct plumb_bound_stat *s, int count, double n, double S)
{
	s->spread_count += count * (int64_t)n;
	s->square += count * S;
	s->square2 += count * S * S;
	s->cross += count * S * n;
	s->count2 += count * n * n;
}

/* A thousand weights that share their divisor are one error; the same in every token is none by chance. */
START_TEST(rms_counts_tokens)
{
	struct plumb_bound_stat shared = {.index = -1}, few = {.index = -1}, alike = {.index = -1};
	char text[256];

	add_tokens(&shared, 1, 1000.0, 1500.0);
	add_tokens(&shared, 40, 100.0, 30.0);
	ck_assert(plumb_bound_has_rms(&shared) && plumb_bound_rms(&shared) > PLUMB_BOUND_RMS);
	ck_assert_double_eq_tol(plumb_bound_rms_error(&shared), sqrt(960.0 * 960.0 + 40.0 * 24.0 * 24.0) / 5000.0, 1e-12);
	ck_assert_msg(plumb_bound_stat_passes(&shared, text, sizeof text), "%s", text);
	add_tokens(&few, PLUMB_BOUND_TOKENS - 1, 100.0, 133.0); /* truncation: 4/3 */
	ck_assert(!plumb_bound_has_rms(&few) && plumb_bound_stat_passes(&few, text, sizeof text));
	add_tokens(&alike, PLUMB_BOUND_TOKENS, 100.0, 133.0);
	ck_assert(plumb_bound_has_rms(&alike) && !plumb_bound_stat_passes(&alike, text, sizeof text));
}
END_TEST

static void add_signs(struct plumb_bound_signs *s, double mean)
{
	s->clusters = PLUMB_BOUND_CLUSTERS;
	for (int i = 0; i < 2; i++) {
		s->sum[i] = PLUMB_BOUND_CLUSTERS * mean;
		s->sum2[i] = PLUMB_BOUND_CLUSTERS;
	}
}

/* Biased is what is so with the drift of the contract and without. */
START_TEST(a_bias_is_one_either_way)
{
	for (int k = 0; k < 4; k++) {
		struct plumb_bound_stat s = {.index = -1, .spread_count = PLUMB_BOUND_ELEMENTS};
		char text[256];
		add_signs(&s.sign[0], k & 1 ? 1.0 : 0.0);
		add_signs(&s.sign[1], k & 2 ? 1.0 : 0.0);
		ck_assert_int_eq(plumb_bound_stat_passes(&s, text, sizeof text), k != 3);
	}
}
END_TEST

START_TEST(a_set_and_a_result_begin)
{
	struct plumb_bound_set set = {.op = PLUMB_MOE_ROUTER};
	struct {
		struct plumb_bound_result result;
		unsigned char after[sizeof(struct plumb_bound_stat)];
	} begun;

	plumb_bound_wide(&set, "weight");
	for (int i = 0; i < plumb_ops[set.op].operands; i++)
		ck_assert_int_eq(set.wide[i], strcmp(plumb_ops[set.op].operand[i].name, "weight") == 0);
	memset(&begun, 0x5a, sizeof begun);
	plumb_bound_begin(&begun.result, set.op);
	for (size_t i = 0; i < sizeof begun.after; i++)
		ck_assert_uint_eq(begun.after[i], 0x5a);
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		ck_assert(begun.result.operand[i].index == -1 && begun.result.operand[i].values == 0);
}
END_TEST

/* The larger ratio stays, whichever was measured first. */
START_TEST(the_worst_of_two_stays)
{
	const struct plumb_bound_stat small = {.max_ratio = 0.5, .index = 3, .call = 1, .calls = 4, .candidate = 3.0f};
	const struct plumb_bound_stat large = {.max_ratio = 2.0, .index = 7, .call = 2, .calls = 5, .candidate = 7.0f};
	const struct plumb_bound_stat none = {.index = -1, .calls = 6};
	struct plumb_bound_stat a = small, b = large, c = none, d = large;

	plumb_bound_merge(&a, &large);
	ck_assert(a.max_ratio == 2.0 && a.index == 7 && a.call == 6 && a.calls == 9 && a.candidate == 7.0f);
	plumb_bound_merge(&b, &small);
	ck_assert(b.max_ratio == 2.0 && b.index == 7 && b.call == 2 && b.calls == 9 && b.candidate == 7.0f);
	plumb_bound_merge(&c, &small);
	ck_assert(c.max_ratio == 0.5 && c.index == 3 && c.call == 7 && c.calls == 10);
	plumb_bound_merge(&d, &none);
	ck_assert(d.max_ratio == 2.0 && d.index == 7 && d.call == 2 && d.calls == 11);
}
END_TEST

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

int main(void)
{
	Suite *suite = suite_create("bound");
	TCase *right = suite_part(suite, "right", 600), *wrong = suite_part(suite, "wrong", 600),
	      *golden = suite_part(suite, "golden", 600);

	tcase_add_test(right, gamma_stays_positive);
	tcase_add_test(right, recurrence_forgets);
	tcase_add_loop_test(right, random_cases, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(
		golden, golden_tiny, 0, 7); /* of its own: plumb faults runs the others, in which the bound is linked */
	tcase_add_test(wrong, gates_of_a_stat);
	tcase_add_test(wrong, rms_counts_tokens);
	tcase_add_test(wrong, the_worst_of_two_stays);
	tcase_add_test(wrong, a_bias_is_one_either_way);
	tcase_add_test(wrong, a_set_and_a_result_begin);
	tcase_add_loop_test(wrong, faults_at_twice_and_half_the_bound, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(wrong, one_percent_shows, 0, PLUMB_OP_COUNT);
	tcase_add_test(wrong, sequential_sum_shows);
	tcase_add_test(wrong, a_term_left_out_shows);
	tcase_add_loop_test(wrong, another_eps_shows, 0, COUNT(normed));
	tcase_add_loop_test(wrong, truncation_is_biased, 0, COUNT(truncated));
	tcase_add_test(wrong, truncation_within_the_bound);
	tcase_add_test(wrong, cut_outputs_are_biased);
	return suite_run_here(suite); /* OpenMP's threads survive no fork */
}
