/* SPDX-License-Identifier: MIT */
/* GDN: oracle against independent formulations, twin against oracle within derived bounds, kernels against twin bit for
 * bit. */
#include <cblas.h>
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/math32.h"
#include "core/order.h"
#include "opt/opt.h"
#include "ref/chunk.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/op_call.h"
#include "tests/support/suite.h"

static const double u = 0x1p-24; /* unit roundoff of binary32 */
static const enum plumb_op ops[] = {
	PLUMB_GDN_IN_PROJ,
	PLUMB_GDN_CONV,
	PLUMB_GDN_RECURRENCE,
	PLUMB_GDN_NORM_GATE,
	PLUMB_GDN_OUT_PROJ,
};
static const enum plumb_format formats[] = {PLUMB_F32, PLUMB_F16, PLUMB_BF16};

static enum plumb_format state_format; /* of the calls below */

/* A random call. Head sizes around every edge of the kernels: the lane group of 4, the warp step of 128, the last size
 * held in registers (256), the two-pass kernel above it, blocks of 32 rows (16 for 128 < Dk <= 256). */
static struct call call_of(enum plumb_op op, enum plumb_policy policy, enum input input)
{
	static const int64_t key_dims[] = {1, 3, 4, 31, 32, 64, 127, 128, 129, 132, 200, 255, 256, 257, 300};
	static const int64_t value_dims[] = {1, 5, 16, 17, 31, 32, 33, 70, 128, 133};
	static const int64_t hidden[] = {1, 7, 8, 64, 200, 256, 260, 1100};
	static const int taps[] = {1, 2, 3, 4, 6};
	struct call c = {.op = op, .policy = policy, .input = input, .format = PICK(formats)};
	bool projection = op == PLUMB_GDN_IN_PROJ || op == PLUMB_GDN_OUT_PROJ;

	c.cfg.block_tokens = 1; /* shapes divide by it */
	c.cfg.rms_norm_eps = below(2) ? 1e-6f : 1e-5f;
	c.cfg.hidden = PICK(hidden);
	c.cfg.gdn_key_heads = 1 + (int)below(3);
	c.cfg.gdn_value_heads = c.cfg.gdn_key_heads * (1 + (int)below(3));
	c.cfg.gdn_key_dim = projection ? 1 + below(9) : PICK(key_dims);
	c.cfg.gdn_value_dim = projection ? 1 + below(20) : PICK(value_dims);
	c.cfg.gdn_conv_taps = PICK(taps);
	c.cfg.gdn_gate = below(2) ? PLUMB_GATE_SILU : PLUMB_GATE_SIGMOID;
	c.offset = (int)(below(2) * below(8));
	c.position = (int32_t)(below(2) ? below(8) : 100 + below(100));
	c.arguments.T = 1 + below(3);
	if (op == PLUMB_GDN_RECURRENCE)
		c.arguments.gdn_recurrence.state_format = state_format;
	fill(&c);
	return c;
}

/* ---- kernels = twin, every bit ---- */

START_TEST(kernels_equal_twin)
{
	for (int i = 0; i < 8; i++)
		for (size_t o = 0; o < 5; o++) {
			op_call_seed = (uint64_t)(_i * 1000 + i * 10) + o;
			struct call c = call_of(ops[o], (enum plumb_policy)(i % 2), (enum input)_i);
			agree(&c);
			release();
		}
}
END_TEST

/* Every key dimension up to past the second lane step, small otherwise. */
START_TEST(every_key_dim)
{
	for (int64_t dim = 1; dim <= 262; dim += dim > 8 && dim % 64 > 3 && dim % 64 < 60 ? 7 : 1) {
		op_call_seed = (uint64_t)dim;
		struct call c = call_of(PLUMB_GDN_RECURRENCE, PLUMB_POLICY_BF16, ORDINARY);
		c.cfg.gdn_key_heads = 1, c.cfg.gdn_value_heads = 2, c.cfg.gdn_key_dim = dim, c.cfg.gdn_value_dim = 5;
		c.arguments.T = 2;
		fill(&c);
		agree(&c);
		release();
	}
}
END_TEST

/* T tokens at once, or cut anywhere into calls: the same outputs and the same state. */
static void partition(enum plumb_op op, plumb_op_fn *fn, struct plumb_device *device, const char *state, const char *out)
{
	struct call whole = call_of(op, PLUMB_POLICY_BF16, ORDINARY), part;
	whole.arguments.T = 7;
	fill(&whole);
	struct result all = run(&whole, fn, PLUMB_POISON_NAN, device);
	int64_t C = plumb_gdn_channels(&whole.cfg), Hv = whole.cfg.gdn_value_heads, Dv = whole.cfg.gdn_value_dim;
	int64_t width = op == PLUMB_GDN_CONV ? C : Hv * Dv;

	part = whole;
	for (int64_t t = 0, count; t < 7; t += count) {
		count = 1 + below(3);
		count = t + count > 7 ? 7 - t : count;
		part.arguments.T = count;
		if (op == PLUMB_GDN_CONV) {
			int32_t *position = take(sizeof *position);
			*position = whole.position + (int32_t)t;
			part.arguments.gdn_conv.position = position;
			part.arguments.gdn_conv.qkv = whole.arguments.gdn_conv.qkv + t * C;
		} else {
			part.arguments.gdn_recurrence.y = whole.arguments.gdn_recurrence.y + t * C;
			part.arguments.gdn_recurrence.b = whole.arguments.gdn_recurrence.b + t * Hv;
			part.arguments.gdn_recurrence.a = whole.arguments.gdn_recurrence.a + t * Hv;
		}
		struct result r = run(&part, fn, PLUMB_POISON_LARGE, device);
		ck_assert_mem_eq(
			floats(&part, &r, out), floats(&whole, &all, out) + t * width, (size_t)(count * width) * 4);
		if (op == PLUMB_GDN_CONV)
			part.arguments.gdn_conv.window = floats(&part, &r, state);
		else
			part.arguments.gdn_recurrence.state = floats(&part, &r, state);
	}
	size_t bytes = op == PLUMB_GDN_CONV ? (size_t)(whole.cfg.gdn_conv_taps * C) * 4
	                                    : plumb_format_row_bytes(whole.arguments.gdn_recurrence.state_format,
						      Hv * Dv * whole.cfg.gdn_key_dim);
	ck_assert_mem_eq(op == PLUMB_GDN_CONV ? part.arguments.gdn_conv.window : part.arguments.gdn_recurrence.state,
		floats(&whole, &all, state), bytes);
	release();
}

START_TEST(any_partition)
{
	for (int i = 0; i < 6; i++) {
		op_call_seed = (uint64_t)i;
		partition(PLUMB_GDN_CONV, gdn_conv_twin, NULL, "window", "y");
		partition(PLUMB_GDN_CONV, gdn_conv_opt, any_device(), "window", "y");
		partition(PLUMB_GDN_RECURRENCE, gdn_recurrence_twin, NULL, "state", "o");
		partition(PLUMB_GDN_RECURRENCE, gdn_recurrence_opt, any_device(), "state", "o");
	}
}
END_TEST

/* ---- twin within the bound of its order ---- */

/* The oracle with its last rounding left out, so that a bound need not straddle it. */
static int unrounded(plumb_op_fn *fn, const struct plumb_env *env, const void *args)
{
	struct plumb_env wide = *env;
	wide.unrounded = true;
	return fn(&wide, args);
}

#define UNROUNDED(op)                                                                                                      \
	static int op##_exact(const struct plumb_env *env, const void *args)                                               \
	{                                                                                                                  \
		return unrounded(op##_ref, env, args);                                                                     \
	}
UNROUNDED(gdn_in_proj)
UNROUNDED(gdn_conv)
UNROUNDED(gdn_recurrence)
UNROUNDED(gdn_out_proj)

/* Rounding of a stored value: half an ulp of the policy (bf16: 2^-8), and what binary32 storage of the oracle loses. */
static double stored(const struct call *c, double value, double bound)
{
	double unit = c->policy == PLUMB_POLICY_BF16 ? 0x1p-8 : u;
	return bound + unit * (fabs(value) + bound) + u * fabs(value) + 0x1p-133;
}

static void projection_bound(double *ratio, const struct call *c, const char *name, const struct plumb_weight *w,
	const float *x, int64_t call_rows, const struct result *twin, const struct result *exact)
{
	const float *y = floats(c, twin, name), *expected = floats(c, exact, name);
	double *m = dense(w), g = gamma_of(plumb_split_depth(w->cols, plumb_split_count(call_rows, w->cols)));

	for (int64_t i = 0; i < c->arguments.T * w->rows; i++) {
		double sum = 0.0;
		for (int64_t k = 0; k < w->cols; k++)
			sum += fabs(m[i % w->rows * w->cols + k] * (double)x[i / w->rows * w->cols + k]);
		bounded(ratio, name, i, (double)y[i] - (double)expected[i], stored(c, (double)expected[i], g * sum));
	}
}

START_TEST(projections_within_bound)
{
	double ratio[2] = {0.0, 0.0};
	for (int i = 0; i < 40; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_IN_PROJ, (enum plumb_policy)(i % 2), ORDINARY);
		const struct plumb_gdn_in_proj *a = &c.arguments.gdn_in_proj;
		struct result twin = run(&c, gdn_in_proj_twin, PLUMB_POISON_NAN, NULL);
		struct result exact = run(&c, gdn_in_proj_exact, PLUMB_POISON_NAN, NULL);
		int64_t rows = a->w_qkv->rows + a->w_z->rows + a->w_b->rows + a->w_a->rows;
		projection_bound(&ratio[c.policy], &c, "qkv", a->w_qkv, a->x, rows, &twin, &exact);
		projection_bound(&ratio[c.policy], &c, "z", a->w_z, a->x, rows, &twin, &exact);
		projection_bound(&ratio[c.policy], &c, "b", a->w_b, a->x, rows, &twin, &exact);
		projection_bound(&ratio[c.policy], &c, "a", a->w_a, a->x, rows, &twin, &exact);
		release();

		c = call_of(PLUMB_GDN_OUT_PROJ, (enum plumb_policy)(i % 2), ORDINARY);
		const struct plumb_weight *w = c.arguments.gdn_out_proj.w;
		twin = run(&c, gdn_out_proj_twin, PLUMB_POISON_NAN, NULL);
		exact = run(&c, gdn_out_proj_exact, PLUMB_POISON_NAN, NULL);
		projection_bound(&ratio[c.policy], &c, "y", w, c.arguments.gdn_out_proj.x, w->rows, &twin, &exact);
		release();
	}
	printf("gdn projections: max ratio %.3f (f32), %.3f (bf16)\n", ratio[0], ratio[1]);
}
END_TEST

/* |silu'| <= 1.1 carries the error of the sum; under bf16 the sum may also round to the neighbour. */
START_TEST(conv_within_bound)
{
	double ratio[2] = {0.0, 0.0};
	for (int i = 0; i < 40; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_CONV, (enum plumb_policy)(i % 2), ORDINARY);
		c.arguments.T = 1;
		const struct plumb_gdn_conv *a = &c.arguments.gdn_conv;
		struct result twin = run(&c, gdn_conv_twin, PLUMB_POISON_NAN, NULL);
		struct result exact = run(&c, gdn_conv_exact, PLUMB_POISON_NAN, NULL);
		const float *y = floats(&c, &twin, "y"), *expected = floats(&c, &exact, "y"),
			    *window = floats(&c, &exact, "window");
		int64_t C = plumb_gdn_channels(&c.cfg), Kc = c.cfg.gdn_conv_taps;
		double *w = dense(a->conv);
		for (int64_t ch = 0; ch < C; ch++) {
			double size = 0.0, sum = 0.0;
			for (int64_t j = 0; j < Kc; j++) {
				int64_t back = c.position - (Kc - 1 - j);
				double product = back < 0 ? 0.0 : w[ch * Kc + j] * (double)window[back % Kc * C + ch];
				size += fabs(product);
				sum += product;
			}
			double bound = gamma_of((double)Kc) * size,
			       flip = c.policy == PLUMB_POLICY_BF16 ? 0x1p-7 * fabs(sum) : 0.0;
			bound = 1.1 * (bound + flip) + 2.0 * u * fabs((double)expected[ch]);
			bounded(&ratio[c.policy], "conv", ch, (double)y[ch] - (double)expected[ch],
				stored(&c, (double)expected[ch], bound));
		}
		release();
	}
	printf("gdn_conv: max ratio %.3f (f32), %.3f (bf16)\n", ratio[0], ratio[1]);
}
END_TEST

static double length_of(const float *x, int64_t n)
{
	double sum = 0.0;
	for (int64_t i = 0; i < n; i++)
		sum += (double)x[i] * (double)x[i];
	return sqrt(sum + 1e-6);
}

static float vector_at(const struct plumb_weight *w, int64_t i)
{
	float x;
	plumb_weight_row(w, 0, i, 1, &x);
	return x;
}

/* First-order error analysis of one token of one head, carried through every operation of the contract (factor 1.01 for
 * the second order). Relative errors: key and query (d/2 of the sum, +1e-6, root, division; query one more division and
 * the rounded sqrt(Dk)), decay, beta; absolute ones: memory, delta, state, output. */
static void recurrence_bound(
	double *ratio, const struct call *c, const struct result *twin, const struct result *exact, int64_t h)
{
	const struct plumb_gdn_recurrence *a = &c->arguments.gdn_recurrence;
	int64_t Hk = c->cfg.gdn_key_heads, Hv = c->cfg.gdn_value_heads, Dk = c->cfg.gdn_key_dim, Dv = c->cfg.gdn_value_dim;
	int64_t hk = h / (Hv / Hk);
	const float *q = a->y + hk * Dk, *k = q + Hk * Dk, *v = a->y + 2 * Hk * Dk + h * Dv;
	double d = plumb_strided_depth(Dk, PLUMB_HEAD_LANES), ek = (d / 2.0 + 2.5) * u, eq = ek + 2.0 * u;
	double q_length = length_of(q, Dk) * sqrt((double)Dk), k_length = length_of(k, Dk);
	double rate = exp((double)vector_at(a->a_log, h)), step = (double)a->a[h] + (double)vector_at(a->dt_bias, h);
	double g = rate * log1p(exp(step)), decay = exp(-g);
	double edecay = (g * 4.0 + rate * fabs(step) + 2.2) * u; /* with the product that applies it */
	double sigmoid = 1.0 / (1.0 + exp(-(double)a->b[h])), beta = sigmoid, ebeta = 1.2 * u;
	if (c->policy == PLUMB_POLICY_BF16) { /* equal, unless the two lie on both sides of a rounding boundary */
		beta = (double)plumb_round_bf16((float)sigmoid);
		ebeta = beta == (double)plumb_round_bf16(plumb_sigmoidf(a->b[h])) ? 0.0 : 0x1p-7;
	}
	for (int64_t i = 0; i < Dv; i++) {
		const float *old = (const float *)a->state + (h * Dv + i) * Dk;
		int64_t at = (h * Dv + i) * Dk;
		double memory = 0.0, size = 0.0, out_size = 0.0, out_error = 0.0;
		for (int64_t j = 0; j < Dk; j++) {
			double product = (double)old[j] * decay * (double)k[j] / k_length;
			memory += product;
			size += fabs(product);
		}
		double ememory = size * (gamma_of(d) + edecay + ek), delta = ((double)v[i] - memory) * beta;
		double edelta = (ememory + u * fabs((double)v[i] - memory)) * beta + fabs(delta) * (ebeta + u);
		for (int64_t j = 0; j < Dk; j++) {
			double kn = (double)k[j] / k_length, decayed = (double)old[j] * decay, next = decayed + kn * delta;
			double bound = fabs(decayed) * edecay + fabs(kn) * edelta + fabs(kn * delta) * ek + u * fabs(next);
			double qn = (double)q[j] / q_length;
			out_error += bound * fabs(qn) + fabs(next * qn) * eq;
			out_size += fabs(next * qn);
			bounded(ratio, "state", at + j,
				(double)floats(c, twin, "state")[at + j] - (double)floats(c, exact, "state")[at + j],
				1.01 * bound + u * fabs(next));
		}
		double expected = (double)floats(c, exact, "o")[h * Dv + i];
		bounded(ratio, "o", h * Dv + i, (double)floats(c, twin, "o")[h * Dv + i] - expected,
			stored(c, expected, 1.01 * (out_error + gamma_of(d) * out_size)));
	}
}

START_TEST(recurrence_within_bound)
{
	double ratio[2] = {0.0, 0.0};
	for (int i = 0; i < 40; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_RECURRENCE, (enum plumb_policy)(i % 2), ORDINARY);
		c.arguments.T = 1;
		struct result twin = run(&c, gdn_recurrence_twin, PLUMB_POISON_NAN, NULL);
		struct result exact = run(&c, gdn_recurrence_exact, PLUMB_POISON_NAN, NULL);
		for (int64_t h = 0; h < c.cfg.gdn_value_heads; h++)
			recurrence_bound(&ratio[c.policy], &c, &twin, &exact, h);
		release();
	}
	printf("gdn_recurrence: max ratio %.3f (f32), %.3f (bf16)\n", ratio[0], ratio[1]);
}
END_TEST

/* f32: a chain of relative errors: half the depth of the sum (it is positive), 4 for mean, eps, root and quotient, 5
 * for the products and the gate. bf16: each of three roundings may fall to the neighbour, which is rare. */
START_TEST(norm_gate_within_bound)
{
	double ratio = 0.0;
	int64_t equal = 0, count = 0;
	for (int i = 0; i < 40; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_NORM_GATE, (enum plumb_policy)(i % 2), ORDINARY);
		struct result twin = run(&c, gdn_norm_gate_twin, PLUMB_POISON_NAN, NULL);
		struct result oracle = run(&c, gdn_norm_gate_ref, PLUMB_POISON_NAN, NULL);
		const float *y = floats(&c, &twin, "out"), *expected = floats(&c, &oracle, "out");
		int64_t n = c.arguments.T * c.cfg.gdn_value_heads * c.cfg.gdn_value_dim;
		double d = plumb_strided_depth(c.cfg.gdn_value_dim, PLUMB_HEAD_LANES);
		for (int64_t j = 0; j < n; j++) {
			if (c.policy == PLUMB_POLICY_F32) {
				bounded(&ratio, "norm_gate", j, (double)y[j] - (double)expected[j],
					(d / 2.0 + 10.0) * u * fabs((double)expected[j]));
				continue;
			}
			ck_assert_int_le(plumb_bf16_ulp_distance(y[j], expected[j]), 3);
			equal += y[j] == expected[j];
			count++;
		}
		release();
	}
	ck_assert_msg((double)equal >= 0.98 * (double)count, "%lld of %lld equal", (long long)equal, (long long)count);
	printf("gdn_norm_gate: max ratio %.3f (f32), %.4f equal (bf16)\n", ratio, (double)equal / (double)count);
}
END_TEST

/* ---- the oracle against other formulations ---- */

static void close_to(const char *what, const float *y, const double *expected, int64_t n, double tolerance)
{
	double error = 0.0, size = 0.0;
	for (int64_t i = 0; i < n; i++) {
		error += ((double)y[i] - expected[i]) * ((double)y[i] - expected[i]);
		size += expected[i] * expected[i];
	}
	ck_assert_msg(sqrt(error) <= tolerance * sqrt(size), "%s: relative L2 error %g", what, sqrt(error / size));
}

static double *wide(const float *x, int64_t n)
{
	double *y = take((size_t)n * sizeof *y);
	for (int64_t i = 0; i < n; i++)
		y[i] = (double)x[i];
	return y;
}

START_TEST(oracle_projections_are_matrix_products)
{
	for (int i = 0; i < 10; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_IN_PROJ, PLUMB_POLICY_F32, ORDINARY);
		const struct plumb_gdn_in_proj *a = &c.arguments.gdn_in_proj;
		struct result r = run(&c, gdn_in_proj_ref, PLUMB_POISON_NAN, NULL);
		const struct plumb_weight *w[] = {a->w_qkv, a->w_z, a->w_b, a->w_a};
		static const char *const names[] = {"qkv", "z", "b", "a"};
		int T = (int)a->T, D = (int)c.cfg.hidden;
		for (int p = 0; p < 4; p++) {
			double *y = take((size_t)(T * w[p]->rows) * sizeof *y);
			cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, T, (int)w[p]->rows, D, 1.0, wide(a->x, T * D),
				D, dense(w[p]), D, 0.0, y, (int)w[p]->rows);
			close_to(names[p], floats(&c, &r, names[p]), y, T * w[p]->rows, 1e-7);
		}
		release();
	}
}
END_TEST

/* The conv of a whole sequence kept in one array, without a ring: cut into calls of one token it must give the same. */
START_TEST(oracle_conv_is_a_convolution)
{
	for (int i = 0; i < 10; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_CONV, PLUMB_POLICY_F32, ORDINARY);
		struct plumb_gdn_conv *a = &c.arguments.gdn_conv;
		int64_t C = plumb_gdn_channels(&c.cfg), Kc = c.cfg.gdn_conv_taps, T = 11;
		double *w = dense(a->conv), *y = take((size_t)C * sizeof *y);
		float *x = values(T * C, ORDINARY, PLUMB_POLICY_F32);

		for (int64_t t = 0; t < T; t++) { /* what the window holds before position 0 must not matter */
			int32_t position = (int32_t)t;
			c.arguments.T = 1;
			a->position = &position;
			a->qkv = x + t * C;
			struct result r = run(&c, gdn_conv_ref, PLUMB_POISON_NAN, NULL);
			a->window = floats(&c, &r, "window");
			for (int64_t ch = 0; ch < C; ch++) {
				double sum = 0.0;
				for (int64_t age = 0; age < Kc && age <= t; age++)
					sum += w[ch * Kc + Kc - 1 - age] * (double)x[(t - age) * C + ch];
				y[ch] = sum / (1.0 + exp(-sum));
			}
			close_to("conv", floats(&c, &r, "y"), y, C, 1e-7);
		}
		release();
	}
}
END_TEST

/* S' = e^g S (I - beta k k^T) + beta v k^T, o = S' q, as matrices, over several tokens. */
START_TEST(oracle_recurrence_is_a_matrix_recurrence)
{
	for (int i = 0; i < 12; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_RECURRENCE, PLUMB_POLICY_F32, ORDINARY);
		c.arguments.T = 4;
		fill(&c);
		const struct plumb_gdn_recurrence *a = &c.arguments.gdn_recurrence;
		int Hk = c.cfg.gdn_key_heads, Hv = c.cfg.gdn_value_heads, Dk = (int)c.cfg.gdn_key_dim,
		    Dv = (int)c.cfg.gdn_value_dim;
		int64_t C = plumb_gdn_channels(&c.cfg);
		struct result r = run(&c, gdn_recurrence_ref, PLUMB_POISON_NAN, NULL);
		double *s = wide(a->state, (int64_t)Hv * Dv * Dk), *next = take((size_t)(Dv * Dk) * sizeof *next);
		double *m = take((size_t)(Dk * Dk) * sizeof *m), *o = take((size_t)Dv * sizeof *o);

		for (int t = 0; t < 4; t++)
			for (int h = 0; h < Hv; h++) {
				const float *y = a->y + t * C;
				double *q = wide(y + h / (Hv / Hk) * Dk, Dk), *k = wide(y + (Hk + h / (Hv / Hk)) * Dk, Dk);
				double *v = wide(y + 2 * Hk * Dk + h * Dv, Dv), *state = s + (int64_t)h * Dv * Dk;
				double beta = 0.5 * (1.0 + tanh(0.5 * (double)a->b[t * Hv + h]));
				double rise = (double)a->a[t * Hv + h] + (double)vector_at(a->dt_bias, h);
				/* exp(-A log(1 + e^x)) = (1 + e^x)^-A */
				double decay = pow(1.0 + exp(rise), -exp((double)vector_at(a->a_log, h)));
				cblas_dscal(Dk, 1.0 / (sqrt(cblas_ddot(Dk, q, 1, q, 1) + 1e-6) * sqrt((double)Dk)), q, 1);
				cblas_dscal(Dk, 1.0 / sqrt(cblas_ddot(Dk, k, 1, k, 1) + 1e-6), k, 1);
				for (int j = 0; j < Dk * Dk; j++)
					m[j] = j / Dk == j % Dk ? decay : 0.0;
				cblas_dger(CblasRowMajor, Dk, Dk, -beta * decay, k, 1, k, 1, m, Dk);
				cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, Dv, Dk, Dk, 1.0, state, Dk, m, Dk,
					0.0, next, Dk);
				cblas_dger(CblasRowMajor, Dv, Dk, beta, v, 1, k, 1, next, Dk);
				memcpy(state, next, (size_t)(Dv * Dk) * sizeof *state);
				cblas_dgemv(CblasRowMajor, CblasNoTrans, Dv, Dk, 1.0, state, Dk, q, 1, 0.0, o, 1);
				close_to("o", floats(&c, &r, "o") + (t * Hv + h) * Dv, o, Dv, 1e-6);
			}
		close_to("state", floats(&c, &r, "state"), s, (int64_t)Hv * Dv * Dk, 3e-7);
		release();
	}
}
END_TEST

/* What memory held before a chunk's first token was put there has no part in that token's memory: here NaN of an older chunk. */
START_TEST(chunk_forgets)
{
	enum { TOKENS = 64 }; /* of a chunk */
	const struct plumb_config cfg = {.gdn_value_heads = 1, .gdn_key_dim = 2, .gdn_value_dim = 1};
	const struct plumb_env env = {.cfg = &cfg, .nudge = 3};
	const double key[2] = {0.6, 0.8};
	const struct sum memory = {.value = 1.0, .squares = 0.5, .terms = 2};
	struct chunk *chunk = chunks_make(&env);

	ck_assert_ptr_nonnull(chunk);
	for (int t = 0; t < TOKENS; t++) {
		chunk_decay(&env, chunk, key, key, -0.1);
		chunk_put(chunk, 0, 1, (double)NAN);
	}
	ck_assert(chunk_memory(&env, chunk, 0, &memory) == memory.value); /* not moved by NaN */
	chunk_decay(&env, chunk, key, key, -0.1);
	ck_assert(chunk_memory(&env, chunk, 0, &memory) != memory.value);
	chunks_free(chunk);
}
END_TEST

/* out = norm * gate * the unit vector along o, scaled to length sqrt(Dv). */
START_TEST(oracle_norm_gate_is_a_scaled_direction)
{
	for (int i = 0; i < 10; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_GDN_NORM_GATE, PLUMB_POLICY_F32, ORDINARY);
		const struct plumb_gdn_norm_gate *a = &c.arguments.gdn_norm_gate;
		struct result r = run(&c, gdn_norm_gate_ref, PLUMB_POISON_NAN, NULL);
		int Dv = (int)c.cfg.gdn_value_dim;
		for (int64_t row = 0; row < a->T * c.cfg.gdn_value_heads; row++) {
			double *o = wide(a->o + row * Dv, Dv), length = cblas_dnrm2(Dv, o, 1);
			for (int j = 0; j < Dv; j++) {
				double z = (double)a->z[row * Dv + j], gate = 0.5 * (1.0 + tanh(0.5 * z));
				gate *= c.cfg.gdn_gate == PLUMB_GATE_SILU ? z : 1.0;
				o[j] *= sqrt((double)Dv) / hypot(length, sqrt(Dv * (double)c.cfg.rms_norm_eps));
				o[j] *= (double)vector_at(a->norm, j) * gate;
			}
			close_to("norm_gate", floats(&c, &r, "out") + row * Dv, o, Dv, 1e-7);
		}
		release();
	}
}
END_TEST

/* ---- sensitivity: wrong ops must be noticed ---- */

/* F27: another order of the same sum. */
static int out_proj_serial(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_out_proj *a = args;
	int64_t N = a->w->rows, K = a->w->cols;
	float *row = take((size_t)K * sizeof *row);
	for (int64_t i = 0; i < a->T * N; i++) {
		float sum = 0.0f;
		plumb_weight_row(a->w, i % N, 0, K, row);
		for (int64_t k = 0; k < K; k++)
			sum = fmaf(row[k], a->x[i / N * K + k], sum);
		a->y[i] = twin_rne(env, sum);
	}
	return PLUMB_OK;
}

/* F15: b and a exchanged. */
static int in_proj_swapped(const struct plumb_env *env, const void *args)
{
	struct plumb_gdn_in_proj a = *(const struct plumb_gdn_in_proj *)args;
	float *b = a.b;
	a.b = a.a, a.a = b;
	return gdn_in_proj_twin(env, &a);
}

/* F18: the window one position late. */
static int conv_late(const struct plumb_env *env, const void *args)
{
	struct plumb_gdn_conv a = *(const struct plumb_gdn_conv *)args;
	int32_t position = *a.position + 1;
	a.position = &position;
	return gdn_conv_twin(env, &a);
}

/* F11: state through bf16. */
static int recurrence_narrow(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_recurrence *a = args;
	float *state = a->state; /* f32 here */
	int status = gdn_recurrence_twin(env, args);
	for (int64_t i = 0; i < env->cfg->gdn_value_heads * env->cfg->gdn_value_dim * env->cfg->gdn_key_dim; i++)
		state[i] = plumb_round_bf16(state[i]);
	return status;
}

/* F15: value heads dealt to key heads in turn. */
static int recurrence_tiled(const struct plumb_env *env, const void *args)
{
	struct plumb_gdn_recurrence a = *(const struct plumb_gdn_recurrence *)args;
	struct plumb_config cfg = *env->cfg;
	struct plumb_env own = *env;
	int64_t Hk = cfg.gdn_key_heads, Hv = cfg.gdn_value_heads, Dk = cfg.gdn_key_dim, HvDv = Hv * cfg.gdn_value_dim;
	float *y = take((size_t)(a.T * (2 * Hv * Dk + HvDv)) * sizeof *y);
	cfg.gdn_key_heads = (int)Hv; /* a key head for each value head, copied from h mod Hk */
	own.cfg = &cfg;
	for (int64_t t = 0; t < a.T; t++) {
		const float *from = a.y + t * (2 * Hk * Dk + HvDv);
		float *to = y + t * (2 * Hv * Dk + HvDv);
		for (int64_t h = 0; h < 2 * Hv; h++)
			memcpy(to + h * Dk, from + (h / Hv * Hk + h % Hv % Hk) * Dk, (size_t)Dk * sizeof *to);
		memcpy(to + 2 * Hv * Dk, from + 2 * Hk * Dk, (size_t)HvDv * sizeof *to);
	}
	a.y = y;
	return gdn_recurrence_twin(&own, &a);
}

/* F13: 1 + w in a norm whose weight is plain. */
static int norm_gate_offset(const struct plumb_env *env, const void *args)
{
	struct plumb_gdn_norm_gate a = *(const struct plumb_gdn_norm_gate *)args;
	float *w = take((size_t)a.norm->cols * sizeof *w);
	struct plumb_weight norm = {.format = PLUMB_F32, .rows = 1, .cols = a.norm->cols, .data = w};
	for (int64_t i = 0; i < norm.cols; i++)
		w[i] = 1.0f + vector_at(a.norm, i);
	a.norm = &norm;
	return gdn_norm_gate_twin(env, &a);
}

/* F12: the other gate. */
static int norm_gate_other(const struct plumb_env *env, const void *args)
{
	struct plumb_config cfg = *env->cfg;
	struct plumb_env own = *env;
	cfg.gdn_gate = cfg.gdn_gate == PLUMB_GATE_SILU ? PLUMB_GATE_SIGMOID : PLUMB_GATE_SILU;
	own.cfg = &cfg;
	return gdn_norm_gate_twin(&own, args);
}

/* F09: the last element is never written. */
static int norm_gate_short(const struct plumb_env *env, const void *args)
{
	const struct plumb_gdn_norm_gate *a = args;
	float *last = a->out + a->T * env->cfg->gdn_value_heads * env->cfg->gdn_value_dim - 1, before = *last;
	int status = gdn_norm_gate_twin(env, args);
	*last = before;
	return status;
}

START_TEST(wrong_ops_are_noticed)
{
	op_call_seed = 3;
	struct call c = {.policy = PLUMB_POLICY_F32, .format = PLUMB_BF16, .position = 5};
	c.cfg = (struct plumb_config){.block_tokens = 1,
		.hidden = 300,
		.rms_norm_eps = 1e-6f,
		.gdn_key_heads = 3,
		.gdn_value_heads = 6,
		.gdn_key_dim = 132,
		.gdn_value_dim = 40,
		.gdn_conv_taps = 4};
	c.arguments.T = 2;
	for (size_t o = 0; o < 5; o++) {
		c.op = ops[o];
		fill(&c);
		if (c.op == PLUMB_GDN_IN_PROJ)
			caught(&c, in_proj_swapped, "b and a exchanged");
		if (c.op == PLUMB_GDN_CONV)
			caught(&c, conv_late, "a window one position late");
		if (c.op == PLUMB_GDN_RECURRENCE) {
			caught(&c, recurrence_narrow, "a state rounded to bf16");
			caught(&c, recurrence_tiled, "value heads dealt to key heads in turn");
		}
		if (c.op == PLUMB_GDN_NORM_GATE) {
			caught(&c, norm_gate_offset, "1 + w for w");
			caught(&c, norm_gate_other, "the other gate");
			caught(&c, norm_gate_short, "an element that was not written");
		}
		if (c.op == PLUMB_GDN_OUT_PROJ)
			caught(&c, out_proj_serial, "a serial sum");
		release();
		memset(&c.arguments, 0, sizeof c.arguments);
		c.arguments.T = 2;
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gdn");
	TCase *bits = suite_part(suite, "bits", 120), *truth = suite_part(suite, "truth", 120);

	tcase_add_checked_fixture(bits, open_devices, close_devices);
	tcase_add_loop_test(bits, kernels_equal_twin, 0, INPUTS);
	tcase_add_test(bits, every_key_dim);
	tcase_add_test(bits, any_partition);
	tcase_add_test(bits, wrong_ops_are_noticed);
	tcase_add_test(truth, projections_within_bound);
	tcase_add_test(truth, conv_within_bound);
	tcase_add_test(truth, recurrence_within_bound);
	tcase_add_test(truth, norm_gate_within_bound);
	tcase_add_test(truth, oracle_projections_are_matrix_products);
	tcase_add_test(truth, oracle_conv_is_a_convolution);
	tcase_add_test(truth, oracle_recurrence_is_a_matrix_recurrence);
	tcase_add_test(truth, chunk_forgets);
	tcase_add_test(truth, oracle_norm_gate_is_a_scaled_direction);
	return suite_run(suite);
}
