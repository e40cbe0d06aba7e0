/* SPDX-License-Identifier: MIT */
/* PLE: oracle against independent formulations, twin against oracle within derived bounds, kernels against twin bit for
 * bit. */
#include <cblas.h>
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/order.h"
#include "opt/opt.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/op_call.h"
#include "tests/support/suite.h"

static const double u = 0x1p-24; /* unit roundoff of binary32 */
static const enum plumb_op ops[] = {PLUMB_PLE_EMBED, PLUMB_PLE_GATE, PLUMB_PLE_CONV};
static const enum plumb_format formats[] = {PLUMB_F32, PLUMB_F16, PLUMB_BF16};

/* A table of rows cut into shards of shard_rows, the last one shorter. */
static void fill_table(struct call *c, int64_t rows, int64_t width)
{
	struct plumb_ple_embed *a = &c->arguments.ple_embed;
	int64_t cut = 1 + below(5);
	a->shard_rows = (rows + cut - 1) / cut;
	a->shards = (rows + a->shard_rows - 1) / a->shard_rows;
	struct plumb_weight *table = take((size_t)a->shards * sizeof *table);
	for (int64_t i = 0; i < a->shards; i++) {
		int64_t left = rows - i * a->shard_rows;
		table[i] = *matrix(c->format, left < a->shard_rows ? left : a->shard_rows, width, (int)below(8));
	}
	a->table = table;
}

/* Tokens and history of a small vocabulary in which every third id or so is EOS. */
static void fill_embed(struct call *c)
{
	struct plumb_ple_embed *a = &c->arguments.ple_embed;
	struct plumb_ngram *g = take(sizeof *g);
	struct plumb_error err = {""};
	int32_t *token = take((size_t)a->T * sizeof *token);
	int64_t *history = take((size_t)(c->cfg.ngram - 1) * sizeof *history);

	ck_assert_msg(plumb_ngram_constants(&c->cfg, (int)below(2), g, &err) == PLUMB_OK, "%s", err.text);
	for (int64_t t = 0; t < a->T; t++)
		token[t] = (int32_t)(below(3) ? below(c->cfg.vocab) : c->cfg.eos);
	for (int j = 0; j < c->cfg.ngram - 1; j++)
		history[j] = below(3) ? below(c->cfg.vocab) : c->cfg.eos;
	a->token = token;
	a->history = history;
	a->ngram = g;
	fill_table(c, g->rows, c->cfg.ple_dim / plumb_ngram_heads(&c->cfg));
}

static struct call call_of(enum plumb_op op, enum plumb_policy policy, enum input input)
{
	static const int64_t hidden[] = {1, 2, 7, 8, 31, 100, 255, 256, 257, 520};
	static const int64_t embedding[] = {1, 8, 64, 260, 1100};
	static const int64_t widths[] = {1, 5, 32, 33, 160};
	static const int taps[] = {1, 2, 3, 4, 6};
	static const int64_t vocabularies[] = {3, 500, 248320, INT32_MAX};
	struct call c = {.op = op, .policy = policy, .input = input, .format = PICK(formats)};

	c.cfg.block_tokens = 1; /* shapes divide by it */
	c.cfg.rms_norm_eps = below(2) ? 1e-6f : 1e-5f;
	c.cfg.hidden = PICK(hidden);
	c.cfg.streams = 2 + (int)below(3);
	c.cfg.ple_conv_taps = PICK(taps);
	c.cfg.ngram = 2 + (int)below(below(3) ? 3 : PLUMB_MAX_NGRAM - 1);
	c.cfg.heads_per_ngram = 1 + (int)below(below(4) ? 3 : PLUMB_MAX_NGRAM_HEADS / (c.cfg.ngram - 1));
	c.cfg.vocab = PICK(vocabularies);
	c.cfg.eos = below(c.cfg.vocab);
	c.cfg.ngram_vocab_base = 1 + below(100);
	c.cfg.ngram_row_multiple = 1 + below(128);
	c.cfg.seed = 1234;
	c.cfg.ple_dim = op == PLUMB_PLE_EMBED ? plumb_ngram_heads(&c.cfg) * PICK(widths) : PICK(embedding);
	if (op == PLUMB_PLE_GATE && c.cfg.ple_dim > 1000 && c.cfg.hidden > 100)
		c.cfg.hidden = 37; /* keeps the test fast */
	c.offset = (int)(below(2) * below(8));
	c.position = (int32_t)(below(2) ? below(20) : 100 + below(100));
	c.arguments.T = 1 + below(3);
	if (op == PLUMB_PLE_EMBED)
		fill_embed(&c);
	else
		fill(&c);
	return c;
}

/* ---- kernels = twin, every bit ---- */

START_TEST(kernels_equal_twin)
{
	for (int i = 0; i < 7; i++)
		for (size_t o = 0; o < 3; o++) {
			op_call_seed = (uint64_t)(_i * 1000 + i * 10) + o;
			struct call c = call_of(ops[o], (enum plumb_policy)(i % 2), (enum input)_i);
			agree(&c);
			release();
		}
}
END_TEST

/* A gate of exactly zero, of both signs: sign(0) = 0, so the weight is 0.5. One whose sum lies under the clamp, and the
 * largest number of streams. */
START_TEST(gate_at_zero)
{
	static const float scales[] = {0.0f, -0.0f, 1e-12f, -1e-12f};
	for (int i = 0; i < 8; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_PLE_GATE, (enum plumb_policy)(i % 2), ORDINARY);
		c.cfg.streams = i < 4 ? PLUMB_MAX_STREAMS : 2, c.cfg.hidden = 19, c.cfg.ple_dim = 8;
		fill(&c);
		float *residual = values(c.arguments.T * c.cfg.streams * c.cfg.hidden, ORDINARY, PLUMB_POLICY_F32);
		for (int64_t j = 0; j < c.arguments.T * c.cfg.streams * c.cfg.hidden; j++)
			residual[j] *= scales[i / 2];
		c.arguments.ple_gate.residual = residual;
		struct result r = agree(&c);
		if (i < 4) { /* w = 0.5: half the value, the same in every stream */
			const float *gated = floats(&c, &r, "gated");
			double *v = dense(c.arguments.ple_gate.value_proj), *e = take(8 * sizeof *e);
			for (int j = 0; j < 8; j++)
				e[j] = (double)c.arguments.ple_gate.embedding[j];
			for (int64_t j = 0; j < c.cfg.streams * 19; j++) {
				double value = cblas_ddot(8, v + j % 19 * 8, 1, e, 1);
				ck_assert_double_eq_tol((double)gated[j], 0.5 * value, 0x1p-7 * fabs(value) + 1e-5);
			}
		}
		release();
	}
}
END_TEST

/* T tokens at once, or cut anywhere into calls: the same outputs and the same state. */
static void embed_partition(plumb_op_fn *fn, struct plumb_device *device)
{
	struct call whole = call_of(PLUMB_PLE_EMBED, PLUMB_POLICY_BF16, ORDINARY), part;
	whole.arguments.T = 9;
	fill_embed(&whole);
	struct result all = run(&whole, fn, PLUMB_POISON_NAN, device);
	int64_t Hg = plumb_ngram_heads(&whole.cfg), De = whole.cfg.ple_dim;

	part = whole;
	for (int64_t t = 0, count; t < 9; t += count) {
		count = 1 + below(3);
		count = t + count > 9 ? 9 - t : count;
		part.arguments.T = count;
		part.arguments.ple_embed.token = whole.arguments.ple_embed.token + t;
		struct result r = run(&part, fn, PLUMB_POISON_LARGE, device);
		ck_assert_mem_eq(floats(&part, &r, "embedding"), floats(&whole, &all, "embedding") + t * De,
			(size_t)(count * De) * 4);
		ck_assert_mem_eq(floats(&part, &r, "row"), (char *)floats(&whole, &all, "row") + t * Hg * 8,
			(size_t)(count * Hg) * 8);
		part.arguments.ple_embed.history = (int64_t *)(void *)floats(&part, &r, "history");
	}
	ck_assert_mem_eq(
		part.arguments.ple_embed.history, floats(&whole, &all, "history"), (size_t)(whole.cfg.ngram - 1) * 8);
	release();
}

static void conv_partition(plumb_op_fn *fn, struct plumb_device *device)
{
	struct call whole = call_of(PLUMB_PLE_CONV, PLUMB_POLICY_BF16, ORDINARY), part;
	whole.arguments.T = 9;
	fill(&whole);
	struct result all = run(&whole, fn, PLUMB_POISON_NAN, device);
	int64_t SD = whole.cfg.streams * whole.cfg.hidden;

	part = whole;
	for (int64_t t = 0, count; t < 9; t += count) {
		int32_t position = whole.position + (int32_t)t;
		count = 1 + below(3);
		count = t + count > 9 ? 9 - t : count;
		part.arguments.T = count;
		part.arguments.ple_conv.position = &position;
		part.arguments.ple_conv.gated = whole.arguments.ple_conv.gated + t * SD;
		part.arguments.ple_conv.conv_in = whole.arguments.ple_conv.conv_in + t * SD;
		part.arguments.ple_conv.residual = whole.arguments.ple_conv.residual + t * SD;
		struct result r = run(&part, fn, PLUMB_POISON_LARGE, device);
		ck_assert_mem_eq(
			floats(&part, &r, "output"), floats(&whole, &all, "output") + t * SD, (size_t)(count * SD) * 4);
		ck_assert_mem_eq(floats(&part, &r, "residual_out"), floats(&whole, &all, "residual_out") + t * SD,
			(size_t)(count * SD) * 4);
		part.arguments.ple_conv.window = floats(&part, &r, "window");
	}
	int64_t words = plumb_ple_history(&whole.cfg) * SD;
	if (words > 0)
		ck_assert_mem_eq(part.arguments.ple_conv.window, floats(&whole, &all, "window"), (size_t)words * 4);
	release();
}

START_TEST(any_partition)
{
	for (int i = 0; i < 8; i++) {
		op_call_seed = (uint64_t)i;
		embed_partition(ple_embed_twin, NULL);
		embed_partition(ple_embed_opt, any_device());
		conv_partition(ple_conv_twin, NULL);
		conv_partition(ple_conv_opt, any_device());
	}
}
END_TEST

/* ---- the hash ---- */

/* Rows of heads 0, 1, 7, 8, 15 of model-spec 2.4. The table is one shard's worth of memory seen 128 times. */
START_TEST(hash_of_the_release)
{
	static const int32_t ids[9] = {11, 42, 7, 248044, 300, 5, 248044, 248044, 9};
	static const int heads[5] = {0, 1, 7, 8, 15};
	static const int64_t rows[9][5] = {
		{13555483, 24877159, 157274238, 173487882, 312653920},
		{3435145, 28245246, 157241980, 176668936, 301570007},
		{5399879, 35172535, 147569051, 176378916, 315071866},
		{10204458, 27984170, 158727320, 173462142, 316209228},
		{4401500, 35569074, 157487094, 164417016, 310576508},
		{693105, 23747596, 148054133, 164895014, 301388764},
		{18392917, 34857659, 142048315, 160502964, 317686492},
		{9663979, 26558231, 151022725, 170054832, 300986548},
		{18043673, 37626835, 144330141, 176817901, 307951937},
	};
	enum { SHARD = 2500012, SHARDS = 128 };
	struct call c = {.op = PLUMB_PLE_EMBED, .policy = PLUMB_POLICY_BF16, .format = PLUMB_BF16};
	struct plumb_ngram g;
	struct plumb_error err = {""};
	int64_t history[2] = {248044, 248044};
	uint16_t *data = take(SHARD * sizeof *data);
	struct plumb_weight *table = take(SHARDS * sizeof *table);
	plumb_op_fn *const fns[] = {ple_embed_ref, ple_embed_twin, ple_embed_opt};

	c.cfg = (struct plumb_config){.block_tokens = 1,
		.vocab = 248320,
		.eos = 248044,
		.ngram = 3,
		.heads_per_ngram = 8,
		.ngram_vocab_base = 20000000,
		.ngram_row_multiple = 128,
		.seed = 1234,
		.ple_dim = 16};
	ck_assert_int_eq(plumb_ngram_constants(&c.cfg, 0, &g, &err), PLUMB_OK);
	ck_assert_int_eq(g.rows, (int64_t)SHARD * SHARDS);
	for (int64_t i = 0; i < SHARD; i++)
		data[i] = plumb_f32_to_bf16((float)(i % 251));
	for (int i = 0; i < SHARDS; i++)
		table[i] = (struct plumb_weight){.format = PLUMB_BF16, .rows = SHARD, .cols = 1, .data = data};
	c.arguments.ple_embed = (struct plumb_ple_embed){.T = 9,
		.token = ids,
		.history = history,
		.ngram = &g,
		.table = table,
		.shards = SHARDS,
		.shard_rows = SHARD};
	for (int f = 0; f < 3; f++) {
		struct result r = run(&c, fns[f], PLUMB_POISON_NAN, f == 2 ? any_device() : NULL);
		const int64_t *row = (const int64_t *)(const void *)floats(&c, &r, "row");
		for (int t = 0; t < 9; t++)
			for (int h = 0; h < 5; h++) {
				ck_assert_int_eq(row[t * 16 + heads[h]], rows[t][h]);
				ck_assert(floats(&c, &r, "embedding")[t * 16 + heads[h]] ==
					  (float)(rows[t][h] % SHARD % 251));
			}
		const int64_t *last = (const int64_t *)(const void *)floats(&c, &r, "history");
		ck_assert_int_eq(last[0], 248044);
		ck_assert_int_eq(last[1], 9);
	}
	release();
}
END_TEST

/* The context rule as it is defined over the whole sequence: c_j = EOS if j > p or any of the j ids before p is EOS.
 * Products in 128 bits: none may need more than 63. */
START_TEST(oracle_hash_of_a_sequence)
{
	__extension__ typedef __int128 wide;
	for (int i = 0; i < 30; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_PLE_EMBED, PLUMB_POLICY_F32, ORDINARY);
		struct plumb_ple_embed *a = &c.arguments.ple_embed;
		int Hg = plumb_ngram_heads(&c.cfg), width = (int)(c.cfg.ple_dim / Hg);
		c.arguments.T = 30;
		fill_embed(&c);
		for (int j = 0; j < c.cfg.ngram - 1; j++)
			a->history[j] = c.cfg.eos;
		struct result r = run(&c, ple_embed_ref, PLUMB_POISON_NAN, NULL);
		const int64_t *row = (const int64_t *)(const void *)floats(&c, &r, "row");
		for (int64_t p = 0; p < 30; p++)
			for (int h = 0; h < Hg; h++) {
				int64_t hash = a->token[p] * a->ngram->multiplier[0];
				for (int j = 1; j < 2 + h / c.cfg.heads_per_ngram; j++) {
					bool eos = j > p;
					for (int64_t back = 1; back <= j && back <= p; back++)
						eos = eos || a->token[p - back] == c.cfg.eos;
					wide product = (wide)(eos ? c.cfg.eos : a->token[p - j]) * a->ngram->multiplier[j];
					ck_assert(product <= INT64_MAX);
					hash ^= (int64_t)product;
				}
				int64_t expected =
					(int64_t)((uint64_t)hash % (uint64_t)a->ngram->prime[h]) + a->ngram->offset[h];
				ck_assert_int_eq(row[p * Hg + h], expected);
				ck_assert_int_lt(expected, a->ngram->rows);
				float *values_of_row = take((size_t)width * sizeof *values_of_row);
				plumb_weight_row(&a->table[expected / a->shard_rows], expected % a->shard_rows, 0, width,
					values_of_row);
				ck_assert_mem_eq(floats(&c, &r, "embedding") + (p * Hg + h) * width, values_of_row,
					(size_t)width * 4);
				if (h % 8 == 7)
					break; /* a few heads of each position will do where there are hundreds */
			}
		release();
	}
}
END_TEST

/* ---- twin within the bound of its order; the oracle against other formulations ---- */

static double *wide_values(const float *x, int64_t n)
{
	double *y = take((size_t)n * sizeof *y);
	for (int64_t i = 0; i < n; i++)
		y[i] = (double)x[i];
	return y;
}

static double stored(const struct call *c, double value, double bound)
{
	double unit = c->policy == PLUMB_POLICY_BF16 ? 0x1p-8 : u;
	return bound + unit * (fabs(value) + bound) + u * fabs(value) + 0x1p-133;
}

/* r of a norm over D values of error dx each: relative error of r, from the values and from the order (d/2 of the sum;
 * mean, eps, root and quotient: 4). */
static double norm_error(const double *x, const double *dx, int64_t D, double eps, double *r)
{
	double squares = 0.0, moved = 0.0;
	for (int64_t c = 0; c < D; c++) {
		squares += x[c] * x[c];
		moved += fabs(x[c]) * dx[c];
	}
	*r = 1.0 / sqrt(squares / (double)D + eps);
	return moved / (squares + (double)D * eps) + (plumb_strided_depth(D, PLUMB_ROW_LANES) / 2.0 + 4.0) * u;
}

/* y = (x*r)*(1 + w) and its error. */
static void normed(const double *x, const double *dx, const double *w, int64_t D, double eps, double *y, double *dy)
{
	double r, er = norm_error(x, dx, D, eps, &r);
	for (int64_t c = 0; c < D; c++) {
		y[c] = x[c] * r * (1.0 + w[c]);
		dy[c] = fabs(r * (1.0 + w[c])) * dx[c] + fabs(y[c]) * (er + 3.0 * u);
	}
}

/* One stream of one token under policy f32, in binary64 from BLAS products, with a first-order error analysis carried
 * along. The oracle must equal the values (1e-6 of their size, storage in binary32 is 6e-8), the twin must lie within
 * the bound. */
static void gate_bound(
	double *ratio, const struct call *c, const struct result *twin, const struct result *oracle, int64_t t, int64_t s)
{
	const struct plumb_ple_gate *a = &c->arguments.ple_gate;
	int64_t S = c->cfg.streams, D = c->cfg.hidden, De = c->cfg.ple_dim, at = (t * S + s) * D;
	double eps = (double)c->cfg.rms_norm_eps, least = (double)1e-6f;
	double g = gamma_of(plumb_split_depth(De, plumb_split_count(S * D + D, De)));
	double *e = wide_values(a->embedding + t * De, De), *key = dense(a->key_proj) + s * D * De,
	       *value = dense(a->value_proj);
	double *x = take((size_t)D * 9 * sizeof *x), *dx = x + D, *k = x + 2 * D, *dk = x + 3 * D, *q = x + 4 * D,
	       *dq = x + 5 * D;
	double *v = x + 6 * D, *dv = x + 7 * D, *none = x + 8 * D, *residual = wide_values(a->residual + at, D);

	cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)D, (int)De, 1.0, key, (int)De, e, 1, 0.0, x, 1);
	cblas_dgemv(CblasRowMajor, CblasNoTrans, (int)D, (int)De, 1.0, value, (int)De, e, 1, 0.0, v, 1);
	for (int64_t i = 0; i < D; i++) {
		none[i] = dx[i] = dv[i] = 0.0;
		for (int64_t j = 0; j < De; j++) {
			dx[i] += g * fabs(key[i * De + j] * e[j]);
			dv[i] += g * fabs(value[i * De + j] * e[j]);
		}
	}
	normed(x, dx, dense(a->norm_key) + s * D, D, eps, k, dk);
	normed(residual, none, dense(a->norm_query) + s * D, D, eps, q, dq);
	double sum = 0.0, dsum = 0.0, root = sqrt((double)D);
	for (int64_t i = 0; i < D; i++) {
		sum += k[i] * q[i];
		dsum += fabs(k[i]) * dq[i] + fabs(q[i]) * dk[i] +
		        fabs(k[i] * q[i]) * (u + gamma_of(plumb_strided_depth(D, PLUMB_ROW_LANES)));
	}
	double gate = sum / root, dgate = 1.02 * dsum / root + 3.0 * u * fabs(gate);
	double size = sqrt(fmax(fabs(gate), least)), dsize;
	if (fabs(gate) > 2.0 * dgate)
		dsize = dgate / (2.0 * sqrt(fmax(fabs(gate) - dgate, least))) + u * size;
	else /* the sign itself is in doubt */
		dsize = 2.0 * sqrt(fmax(fabs(gate) + dgate, least));
	double weight = 1.0 / (1.0 + exp(gate > 0.0 ? -size : size)), dweight = dsize / 4.0 + 1.5 * u * weight;
	bool sure = fabs(gate) > 2.0 * dgate;
	for (int64_t i = 0; i < D; i++) {
		x[i] = weight * v[i];
		dx[i] = fabs(v[i]) * dweight + weight * dv[i] + dweight * dv[i] + u * fabs(x[i]);
	}
	normed(x, dx, dense(a->norm_conv) + s * D, D, eps, k, dk);
	for (int64_t i = 0; i < D; i++) {
		double gated = (double)floats(c, oracle, "gated")[at + i],
		       conv_in = (double)floats(c, oracle, "conv_in")[at + i];
		if (sure) {
			ck_assert_double_eq_tol(gated, x[i], 1e-6 * fabs(x[i]) + 1e-12);
			ck_assert_double_eq_tol(conv_in, k[i], 1e-6 * fabs(k[i]) + 1e-12);
		}
		bounded(ratio, "gated", at + i, (double)floats(c, twin, "gated")[at + i] - gated,
			stored(c, gated, 1.02 * dx[i]));
		bounded(ratio, "conv_in", at + i, (double)floats(c, twin, "conv_in")[at + i] - conv_in,
			stored(c, conv_in, 1.02 * dk[i]));
	}
}

START_TEST(gate_within_bound)
{
	double ratio = 0.0;
	for (int i = 0; i < 40; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_PLE_GATE, PLUMB_POLICY_F32, ORDINARY);
		struct result twin = run(&c, ple_gate_twin, PLUMB_POISON_NAN, NULL);
		struct result oracle = run(&c, ple_gate_ref, PLUMB_POISON_NAN, NULL);
		for (int64_t t = 0; t < c.arguments.T; t++)
			for (int64_t s = 0; s < c.cfg.streams; s++)
				gate_bound(&ratio, &c, &twin, &oracle, t, s);
		release();
	}
	printf("ple_gate: max ratio %.3f (f32)\n", ratio);
}
END_TEST

/* Under bf16 a rounding that falls to the neighbour is rare, but one of s moves its whole stream by about a bf16 step;
 * hence most elements equal, and all together near. */
START_TEST(gate_under_bf16)
{
	int64_t equal = 0, count = 0;
	double error = 0.0, size = 0.0;
	for (int i = 0; i < 60; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_PLE_GATE, PLUMB_POLICY_BF16, ORDINARY);
		struct result twin = run(&c, ple_gate_twin, PLUMB_POISON_NAN, NULL);
		struct result oracle = run(&c, ple_gate_ref, PLUMB_POISON_NAN, NULL);
		static const char *const names[] = {"gated", "conv_in"};
		for (int64_t j = 0; j < 2 * c.arguments.T * c.cfg.streams * c.cfg.hidden; j++) {
			double x = (double)floats(&c, &twin, names[j % 2])[j / 2],
			       y = (double)floats(&c, &oracle, names[j % 2])[j / 2];
			equal += x == y;
			count++;
			error += (x - y) * (x - y);
			size += y * y;
		}
		release();
	}
	ck_assert_msg((double)equal >= 0.97 * (double)count, "%lld of %lld equal", (long long)equal, (long long)count);
	ck_assert_msg(sqrt(error / size) <= 2e-3, "relative L2 error %g", sqrt(error / size));
	printf("ple_gate: %.4f equal, relative L2 %.1e (bf16)\n", (double)equal / (double)count, sqrt(error / size));
}
END_TEST

/* The conv of a whole sequence kept in one array, without a ring: the oracle one token a call must give the same, and
 * the twin lie within its bound (|silu'| <= 1.1; two sums behind it). */
START_TEST(conv_within_bound)
{
	double ratio[2] = {0.0, 0.0};
	for (int i = 0; i < 16; i++) {
		op_call_seed = (uint64_t)i;
		struct call c = call_of(PLUMB_PLE_CONV, (enum plumb_policy)(i % 2), ORDINARY);
		struct plumb_ple_conv *a = &c.arguments.ple_conv;
		int64_t SD = c.cfg.streams * c.cfg.hidden, Kp = c.cfg.ple_conv_taps, T = 3 * Kp * c.cfg.ngram / 2 + 2;
		bool bf16 = c.policy == PLUMB_POLICY_BF16;
		double *w = dense(a->conv);
		float *x = values(T * SD, ORDINARY, c.policy);

		c.arguments.T = 1;
		for (int64_t t = 0; t < T; t++) { /* what the window holds before position 0 must not matter */
			int32_t position = (int32_t)t;
			a->position = &position;
			a->conv_in = x + t * SD;
			struct result oracle = run(&c, ple_conv_ref, PLUMB_POISON_NAN, NULL);
			struct result twin = run(&c, ple_conv_twin, PLUMB_POISON_NAN, NULL);
			a->window = floats(&c, &oracle, "window");
			for (int64_t ch = 0; ch < SD; ch++) {
				double sum = 0.0, size = 0.0;
				for (int64_t age = 0; age < Kp && age * c.cfg.ngram <= t; age++) {
					double product =
						w[ch * Kp + Kp - 1 - age] * (double)x[(t - age * c.cfg.ngram) * SD + ch];
					sum += product;
					size += fabs(product);
				}
				double z = sum / (1.0 + exp(-sum)), output = (double)a->gated[ch] + z;
				double all = (double)a->residual[ch] + output, unit = bf16 ? 0x1p-8 : u;
				/* storing: the sum and z under bf16, the output under both */
				double roundings =
					(bf16 ? 1.1 * unit * fabs(sum) + unit * (fabs(z) + fabs(sum) * unit) : 0.0) * 1.01;
				double order =
					1.1 * gamma_of((double)Kp) * size + 2.0 * u * fabs(z) + u * fabs(output) + 0x1p-133;
				double bound = order + roundings + unit * (fabs(output) + roundings + order);
				bounded(&ratio[bf16], "output", ch, (double)floats(&c, &twin, "output")[ch] - output,
					bound);
				bounded(&ratio[bf16], "output", ch, (double)floats(&c, &oracle, "output")[ch] - output,
					bound);
				bound += unit * (fabs(all) + bound) + u * fabs(all);
				bounded(&ratio[bf16], "residual", ch, (double)floats(&c, &twin, "residual_out")[ch] - all,
					bound);
				bounded(&ratio[bf16], "residual", ch, (double)floats(&c, &oracle, "residual_out")[ch] - all,
					bound);
			}
		}
		release();
	}
	printf("ple_conv: max ratio %.3f (f32), %.3f (bf16)\n", ratio[0], ratio[1]);
}
END_TEST

/* ---- sensitivity: wrong ops must be noticed ---- */

/* F19: an EOS that hides itself only, not what lies behind it. */
static int embed_short_eos(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_embed *a = args;
	struct plumb_config cfg = *env->cfg;
	struct plumb_env own = *env;
	cfg.eos = -1; /* cuts nothing; EOS ids then enter as themselves, which is what they count as */
	own.cfg = &cfg;
	return ple_embed_twin(&own, a);
}

/* F18: a history that stands still. */
static int embed_no_history(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_embed *a = args;
	int64_t history[PLUMB_MAX_NGRAM];
	size_t bytes = (size_t)(env->cfg->ngram - 1) * sizeof *history;
	memcpy(history, a->history, bytes);
	int status = ple_embed_twin(env, args);
	memcpy(a->history, history, bytes);
	return status;
}

/* F15: the norms of key and conv exchanged (key and query would commute in exact arithmetic). */
static int gate_norms_exchanged(const struct plumb_env *env, const void *args)
{
	struct plumb_ple_gate a = *(const struct plumb_ple_gate *)args;
	const struct plumb_weight *key = a.norm_key;
	a.norm_key = a.norm_conv;
	a.norm_conv = key;
	return ple_gate_twin(env, &a);
}

/* F13: eps of another size. */
static int gate_other_eps(const struct plumb_env *env, const void *args)
{
	struct plumb_config cfg = *env->cfg;
	struct plumb_env own = *env;
	cfg.rms_norm_eps *= (float)cfg.hidden;
	own.cfg = &cfg;
	return ple_gate_twin(&own, args);
}

/* F14: a gate of the other sign. */
static int gate_negated(const struct plumb_env *env, const void *args)
{
	struct plumb_ple_gate a = *(const struct plumb_ple_gate *)args;
	int64_t n = a.T * env->cfg->streams * env->cfg->hidden;
	float *residual = take((size_t)n * sizeof *residual);
	for (int64_t i = 0; i < n; i++)
		residual[i] = -a.residual[i];
	a.residual = residual;
	return ple_gate_twin(env, &a);
}

/* F18: the window one position late; taps newest first. */
static int conv_late(const struct plumb_env *env, const void *args)
{
	struct plumb_ple_conv a = *(const struct plumb_ple_conv *)args;
	int32_t position = *a.position + 1;
	a.position = &position;
	return ple_conv_twin(env, &a);
}

static int conv_newest_first(const struct plumb_env *env, const void *args)
{
	struct plumb_ple_conv a = *(const struct plumb_ple_conv *)args;
	int64_t rows = a.conv->rows, cols = a.conv->cols;
	float *taps = take((size_t)(rows * cols) * sizeof *taps);
	struct plumb_weight conv = {.format = PLUMB_F32, .rows = rows, .cols = cols, .data = taps};
	for (int64_t i = 0; i < rows * cols; i++)
		plumb_weight_row(a.conv, i / cols, cols - 1 - i % cols, 1, taps + i);
	a.conv = &conv;
	return ple_conv_twin(env, &a);
}

/* F17: the residual added to what already holds it. */
static int conv_residual_twice(const struct plumb_env *env, const void *args)
{
	const struct plumb_ple_conv *a = args;
	int status = ple_conv_twin(env, args);
	for (int64_t i = 0; i < a->T * env->cfg->streams * env->cfg->hidden; i++)
		a->residual_out[i] += a->residual[i];
	return status;
}

START_TEST(wrong_ops_are_noticed)
{
	op_call_seed = 5;
	struct call c = {.policy = PLUMB_POLICY_BF16, .format = PLUMB_BF16, .position = 13};
	c.cfg = (struct plumb_config){.block_tokens = 1,
		.hidden = 300,
		.streams = 3,
		.rms_norm_eps = 1e-4f,
		.ple_conv_taps = 4,
		.ngram = 4,
		.heads_per_ngram = 2,
		.ple_dim = 48,
		.vocab = 100,
		.eos = 3,
		.ngram_vocab_base = 500,
		.ngram_row_multiple = 128,
		.seed = 1234};
	c.arguments.T = 9;
	c.op = PLUMB_PLE_EMBED;
	fill_embed(&c);
	caught(&c, embed_short_eos, "an EOS that hides only itself");
	caught(&c, embed_no_history, "a history that stands still");

	memset(&c.arguments, 0, sizeof c.arguments);
	c.arguments.T = 2;
	c.op = PLUMB_PLE_GATE;
	fill(&c);
	caught(&c, gate_norms_exchanged, "norms exchanged");
	caught(&c, gate_other_eps, "eps times D");
	caught(&c, gate_negated, "a gate of the other sign");

	memset(&c.arguments, 0, sizeof c.arguments);
	c.arguments.T = 2;
	c.op = PLUMB_PLE_CONV;
	fill(&c);
	caught(&c, conv_late, "a window one position late");
	caught(&c, conv_newest_first, "taps newest first");
	caught(&c, conv_residual_twice, "a residual added twice");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("ple");
	TCase *bits = suite_part(suite, "bits", 120), *truth = suite_part(suite, "truth", 120);

	tcase_add_checked_fixture(bits, open_devices, close_devices);
	tcase_add_loop_test(bits, kernels_equal_twin, 0, INPUTS);
	tcase_add_test(bits, gate_at_zero);
	tcase_add_test(bits, any_partition);
	tcase_add_test(bits, hash_of_the_release);
	tcase_add_test(bits, wrong_ops_are_noticed);
	tcase_add_test(truth, oracle_hash_of_a_sequence);
	tcase_add_test(truth, gate_within_bound);
	tcase_add_test(truth, gate_under_bf16);
	tcase_add_test(truth, conv_within_bound);
	return suite_run(suite);
}
