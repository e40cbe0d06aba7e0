/* SPDX-License-Identifier: MIT */
/* The decoder with the reference in it: any way of cutting a sequence, any number of threads, any page order gives the
 * same bits; products by OpenBLAS agree with the plain loops; other models than tiny work; limits are refused. */
#include <check.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/checkpoint.h"
#include "core/decoder.h"
#include "ref/linear.h"
#include "ref/ref.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

enum { TOKENS = 40 };

/* One run over TOKENS tokens: every row of logits, and a digest of the state left behind. */
struct trace {
	float *logits; /* (TOKENS, V) */
	int64_t vocab;
	uint64_t state;
};

static uint64_t mix(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;
	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * 0x100000001B3u;
	return h;
}

static uint64_t mix_cache(uint64_t h, const struct plumb_cache *c, int64_t rows)
{
	for (int64_t r = 0; r < rows; r++)
		h = mix(h, plumb_cache_row(c, r), plumb_format_row_bytes(c->format, c->width));
	return h;
}

static uint64_t state_digest(const struct plumb_config *cfg, struct plumb_decoder *d)
{
	uint64_t h = 0xCBF29CE484222325u;
	int64_t p = plumb_decoder_position(d);
	for (int l = 0; l < cfg->layers; l++) {
		const struct plumb_layer_state *s = plumb_decoder_state(d, l);
		if (cfg->kind[l] == PLUMB_LAYER_GDN) {
			h = mix(h, s->gdn.window, (size_t)(cfg->gdn_conv_taps * plumb_gdn_channels(cfg)) * sizeof(float));
			h = mix(h, s->gdn.s,
				plumb_format_row_bytes(
					s->gdn.format, cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim));
		} else {
			h = mix_cache(h, &s->attention.keys, p);
			h = mix_cache(h, &s->attention.values, p);
			h = mix_cache(h, &s->attention.raw_keys, p);
			h = mix_cache(h, &s->attention.block_keys, p / cfg->block_tokens);
		}
		if (plumb_ple_of_layer(cfg, l) >= 0) {
			h = mix(h, s->ple.window,
				(size_t)(plumb_ple_history(cfg) * cfg->streams * cfg->hidden) * sizeof(float));
			h = mix(h, s->ple.history, (size_t)(cfg->ngram - 1) * sizeof(int64_t));
		}
	}
	return h;
}

static void make_tokens(const struct plumb_config *cfg, int32_t *token)
{
	for (int t = 0; t < TOKENS; t++)
		token[t] = (int32_t)((t * 7919 + t * t * 31 + 5) % cfg->vocab);
	token[11] = token[12] = (int32_t)cfg->eos; /* EOS cuts the n-gram context */
}

/* Run the tokens in pieces of the given lengths (0 ends the list; the last length repeats). */
static struct trace run(const struct plumb_model *model, struct plumb_decoder_options o, const int *length)
{
	const struct plumb_config *cfg = &model->cfg;
	struct plumb_error err = {""};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;
	int32_t token[TOKENS];
	struct trace trace = {.vocab = cfg->vocab};
	int t = 0;

	o.all_logits = true;
	o.capacity = TOKENS;
	make_tokens(cfg, token);
	trace.logits = malloc((size_t)(TOKENS * cfg->vocab) * sizeof *trace.logits);
	ck_assert_int_eq(plumb_plan_create(cfg, (struct plumb_binding){.set = &plumb_ref_oracle}, &plan, &err), PLUMB_OK);
	ck_assert_msg(plumb_decoder_create(model, &plan, &o, &d, &err) == PLUMB_OK, "%s", err.text);
	plumb_plan_free(&plan);
	while (t < TOKENS) {
		int n = *length < TOKENS - t ? *length : TOKENS - t;
		ck_assert_msg(plumb_decoder_step(d, token + t, n, &err) == PLUMB_OK, "%s", err.text);
		/* the last pass's rows are kept; pieces here are no longer than a pass unless max_rows says so */
		int64_t rows = plumb_decoder_rows(d);
		memcpy(trace.logits + (t + n - rows) * cfg->vocab, plumb_decoder_logits(d),
			(size_t)(rows * cfg->vocab) * sizeof(float));
		t += n;
		if (length[1])
			length++;
	}
	trace.state = state_digest(cfg, d);
	plumb_decoder_destroy(d);
	return trace;
}

static void assert_same(const struct trace *a, const struct trace *b, const char *what)
{
	for (int64_t i = 0; i < TOKENS * a->vocab; i++)
		ck_assert_msg(memcmp(&a->logits[i], &b->logits[i], sizeof(float)) == 0,
			"%s: logit %lld of token %lld is %a, expected %a", what, (long long)(i % a->vocab),
			(long long)(i / a->vocab), (double)b->logits[i], (double)a->logits[i]);
	ck_assert_msg(a->state == b->state, "%s: the state differs", what);
}

static struct plumb_checkpoint *open_tiny(void)
{
	struct plumb_error err = {""};
	struct plumb_checkpoint *c = NULL;
	ck_assert_msg(plumb_checkpoint_open(PLUMB_GOLDEN_DIR "/tiny/checkpoint", &c, &err) == PLUMB_OK, "%s", err.text);
	return c;
}

static const int whole[] = {TOKENS, 0}, single[] = {1, 0};

/* Chunked prefill = token by token, for every split of the sequence in two, and some in many. */
static void all_splits(const struct plumb_model *model, enum plumb_policy policy)
{
	struct plumb_decoder_options o = {.policy = policy};
	struct trace truth = run(model, o, single);
	char what[64];

	for (int cut = 1; cut < TOKENS; cut++) {
		int lengths[] = {cut, TOKENS - cut, 0};
		struct trace t = run(model, o, lengths);
		snprintf(what, sizeof what, "cut at %d", cut);
		assert_same(&truth, &t, what);
		free(t.logits);
	}
	static const int many[][6] = {{TOKENS, 0}, {3, 0}, {4, 0}, {5, 1, 2, 13, 0}, {1, 2, 3, 4, 5, 0}};
	for (size_t i = 0; i < sizeof many / sizeof many[0]; i++) {
		struct trace t = run(model, o, many[i]);
		snprintf(what, sizeof what, "list of cuts %zu", i);
		assert_same(&truth, &t, what);
		free(t.logits);
	}
	free(truth.logits);
}

START_TEST(splits_of_tiny)
{
	struct plumb_checkpoint *c = open_tiny();
	linear_method_set(LINEAR_PLAIN); /* OpenBLAS sums in another order from 16 rows on */
	all_splits(plumb_checkpoint_model(c), _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32);
	linear_method_set(LINEAR_AUTO);
	plumb_checkpoint_close(c);
}
END_TEST

/* Rows of a pass: the decoder cuts a long prompt by itself. Only the state and the last rows are seen then. */
START_TEST(passes_cut_by_the_decoder)
{
	struct plumb_checkpoint *c = open_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct trace truth = run(model, (struct plumb_decoder_options){0}, single);

	linear_method_set(LINEAR_PLAIN);
	for (int rows = 1; rows <= 9; rows++) {
		struct trace t = run(model, (struct plumb_decoder_options){.max_rows = rows}, whole);
		ck_assert_msg(t.state == truth.state, "max_rows %d: the state differs", rows);
		ck_assert_msg(memcmp(t.logits + (TOKENS - 1) * t.vocab, truth.logits + (TOKENS - 1) * t.vocab,
				      (size_t)t.vocab * sizeof(float)) == 0,
			"max_rows %d: the last logits differ", rows);
		free(t.logits);
	}
	linear_method_set(LINEAR_AUTO);
	free(truth.logits);
	plumb_checkpoint_close(c);
}
END_TEST

START_TEST(threads_and_pages_do_not_matter)
{
	struct plumb_checkpoint *c = open_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	int threads = omp_get_max_threads();
	struct trace truth = run(model, (struct plumb_decoder_options){0}, whole);

	for (int n = 1; n <= 5; n++) {
		omp_set_num_threads(n);
		struct trace t = run(model, (struct plumb_decoder_options){0}, whole);
		assert_same(&truth, &t, "threads");
		free(t.logits);
	}
	omp_set_num_threads(threads);
	for (uint64_t seed = 1; seed <= 3; seed++) {
		struct trace t = run(model, (struct plumb_decoder_options){.page_seed = seed, .page_tokens = 4}, whole);
		assert_same(&truth, &t, "pages");
		free(t.logits);
	}
	free(truth.logits);
	plumb_checkpoint_close(c);
}
END_TEST

/* OpenBLAS is the witness of the plain loops: sums in binary64 in another order, stored as binary32. */
START_TEST(openblas_witnesses_plain_loops)
{
	struct plumb_env env = {0};
	enum { N = 77, K = 301, T = 21 };
	float w[N * K], x[T * K];
	double plain[T * N], blas[T * N];
	struct plumb_weight weight = {.format = PLUMB_F32, .rows = N, .cols = K, .data = w};

	srand(7);
	for (int i = 0; i < N * K; i++)
		w[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	for (int i = 0; i < T * K; i++)
		x[i] = (float)rand() / (float)RAND_MAX - 0.5f;
	linear_method_set(LINEAR_PLAIN);
	ck_assert_int_eq(linear_sum_ref(&env, &weight, x, T, 0, N, plain), PLUMB_OK);
	linear_method_set(LINEAR_BLAS);
	ck_assert_int_eq(linear_sum_ref(&env, &weight, x, T, 0, N, blas), PLUMB_OK);
	linear_method_set(LINEAR_AUTO);
	for (int t = 0; t < T; t++)
		for (int n = 0; n < N; n++) {
			double size = 0.0; /* gamma_K * sum |w||x| of binary64, twice */
			for (int k = 0; k < K; k++) {
				double product = (double)w[n * K + k] * (double)x[t * K + k];
				size += product < 0.0 ? -product : product;
			}
			double error = plain[t * N + n] - blas[t * N + n];
			ck_assert_msg((error < 0.0 ? -error : error) <= 2.0 * K * 0x1p-53 * size, "row %d, column %d: %g",
				t, n, error);
		}
	/* and the whole model agrees to binary32 rounding */
	struct plumb_checkpoint *c = open_tiny();
	linear_method_set(LINEAR_PLAIN);
	struct trace a = run(plumb_checkpoint_model(c), (struct plumb_decoder_options){0}, whole);
	linear_method_set(LINEAR_BLAS);
	struct trace b = run(plumb_checkpoint_model(c), (struct plumb_decoder_options){0}, whole);
	linear_method_set(LINEAR_AUTO);
	double error2 = 0.0, size2 = 0.0;
	for (int64_t i = 0; i < TOKENS * a.vocab; i++) {
		double d = (double)a.logits[i] - (double)b.logits[i];
		error2 += d * d;
		size2 += (double)a.logits[i] * (double)a.logits[i];
	}
	ck_assert(error2 <= 1e-14 * size2);
	ck_assert(size2 > 1.0);
	free(a.logits);
	free(b.logits);
	plumb_checkpoint_close(c);
}
END_TEST

/* Models that share no size with tiny or the release. */
static struct plumb_config other_model(int i)
{
	struct plumb_config c = random_checkpoint_smallest();
	switch (i) {
	case 1: /* 2 streams, 7 experts of which all 7, silu gate, weights not normalised */
		c.streams = 2;
		c.experts = c.experts_per_token = 7;
		c.gdn_gate = PLUMB_GATE_SILU;
		c.norm_topk = false;
		break;
	case 2: /* several PLE layers, one on attention; 5 streams; other taps, n-gram size and eps */
		c.layers = 5;
		for (int l = 0; l < 5; l++)
			c.kind[l] = l % 3 == 1 ? PLUMB_LAYER_ATTENTION : PLUMB_LAYER_GDN;
		c.ple_count = 3;
		c.ple_layer[0] = 0;
		c.ple_layer[1] = 1;
		c.ple_layer[2] = 4;
		c.streams = 5;
		c.gdn_conv_taps = 3;
		c.rms_norm_eps = 1e-5f;
		break;
	case 3: /* selection bites at once: one block of three tokens */
		c.block_tokens = 3;
		c.block_budget = 1;
		break;
	default:
		break;
	}
	return c;
}

START_TEST(other_models)
{
	char dir[SCRATCH_PATH];
	struct plumb_error err = {""};
	struct plumb_checkpoint *c = NULL;
	struct plumb_config cfg = other_model(_i / 2);
	struct random_checkpoint options = {
		.seed = (uint64_t)_i + 1,
		.format = _i % 2 ? PLUMB_F32 : PLUMB_BF16,
		.stacked_experts = _i % 2,
		.files = _i % 2 ? 3 : 1,
		.index = _i % 2,
		.ple_shards = 4,
	};

	cfg.nested = _i % 2;
	scratch_make(dir);
	random_checkpoint_write(dir, &cfg, &options);
	ck_assert_msg(plumb_checkpoint_open(dir, &c, &err) == PLUMB_OK, "%s", err.text);
	const struct plumb_model *model = plumb_checkpoint_model(c);
	linear_method_set(LINEAR_PLAIN);
	for (int policy = 0; policy < 2; policy++) {
		struct plumb_decoder_options o = {.policy = policy ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32};
		struct trace a = run(model, o, single), b = run(model, o, whole);
		assert_same(&a, &b, "whole against single");
		double size = 0.0;
		for (int64_t i = 0; i < TOKENS * a.vocab; i++) {
			ck_assert_msg(a.logits[i] == a.logits[i], "NaN among the logits");
			size += (double)a.logits[i] * (double)a.logits[i];
		}
		ck_assert_msg(size > 1e-3 * (double)(TOKENS * a.vocab), "logits vanish: rms^2 %g",
			size / (double)(TOKENS * a.vocab));
		free(a.logits);
		free(b.logits);
	}
	linear_method_set(LINEAR_AUTO);
	plumb_checkpoint_close(c);
	scratch_remove(dir);
}
END_TEST

/* ---- refusals ---- */

static void refused(const struct plumb_decoder_options *o, const char *word)
{
	struct plumb_checkpoint *c = open_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct plumb_error err = {""};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;

	ck_assert_int_eq(
		plumb_plan_create(&model->cfg, (struct plumb_binding){.set = &plumb_ref_oracle}, &plan, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_decoder_create(model, &plan, o, &d, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, word) != NULL, "'%s' does not name %s", err.text, word);
	plumb_plan_free(&plan);
	plumb_checkpoint_close(c);
}

START_TEST(bad_options)
{
	refused(&(struct plumb_decoder_options){.capacity = 5000}, "capacity");
	refused(&(struct plumb_decoder_options){.capacity = -1}, "capacity");
	refused(&(struct plumb_decoder_options){.page_tokens = 6}, "page_tokens");
	refused(&(struct plumb_decoder_options){.max_rows = -2}, "max_rows");
	refused(&(struct plumb_decoder_options){.max_rows = 1 << 20}, "max_rows");
}
END_TEST

START_TEST(bad_tokens)
{
	struct plumb_checkpoint *c = open_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct plumb_error err = {""};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;
	const struct plumb_decoder_options o = {.capacity = 8, .page_tokens = 4};
	int32_t token[9] = {0};

	ck_assert_int_eq(
		plumb_plan_create(&model->cfg, (struct plumb_binding){.set = &plumb_ref_oracle}, &plan, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_decoder_create(model, &plan, &o, &d, &err), PLUMB_OK);
	token[3] = (int32_t)model->cfg.vocab;
	ck_assert_int_eq(plumb_decoder_step(d, token, 4, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "token 3 is 320"));
	token[3] = -1;
	ck_assert_int_eq(plumb_decoder_step(d, token, 4, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_decoder_position(d), 0); /* nothing has run */
	token[3] = 0;
	ck_assert_int_eq(plumb_decoder_step(d, token, 9, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "capacity"));
	ck_assert_int_eq(plumb_decoder_step(d, token, 0, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_decoder_step(d, token, 8, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_decoder_step(d, token, 1, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_decoder_position(d), 8);
	plumb_decoder_destroy(d);
	plumb_plan_free(&plan);
	plumb_checkpoint_close(c);
}
END_TEST

/* An observer sees every op once a layer, in order, and its status ends the step. */
struct census {
	int calls[PLUMB_OP_COUNT];
	int stop_at;
	int total;
};

static int count_call(void *self, const struct plumb_call *call)
{
	struct census *c = self;
	c->calls[call->op]++;
	return ++c->total == c->stop_at ? PLUMB_MISMATCH : PLUMB_OK;
}

START_TEST(observer)
{
	struct plumb_checkpoint *c = open_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(c);
	struct plumb_error err = {""};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;
	struct census census = {.stop_at = -1};
	const struct plumb_observer o = {.after = count_call, .self = &census};
	const int32_t token[2] = {4, 5};

	ck_assert_int_eq(
		plumb_plan_create(&model->cfg, (struct plumb_binding){.set = &plumb_ref_oracle}, &plan, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_decoder_create(model, &plan, NULL, &d, &err), PLUMB_OK);
	plumb_decoder_observe(d, &o);
	ck_assert_int_eq(plumb_decoder_step(d, token, 2, &err), PLUMB_OK);
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		ck_assert_msg(census.calls[i] >= 1, "%s never ran", plumb_ops[i].name);
	ck_assert_int_eq(census.calls[PLUMB_HC_NORM_DOWN], 9); /* two a layer and the final mixer */
	ck_assert_int_eq(census.calls[PLUMB_GDN_RECURRENCE], 3);
	ck_assert_int_eq(census.calls[PLUMB_PLE_EMBED], 1);
	census.total = 0;
	census.stop_at = 7;
	ck_assert_int_eq(plumb_decoder_step(d, token, 1, &err), PLUMB_MISMATCH);
	ck_assert_int_eq(census.total, 7);
	plumb_decoder_destroy(d);
	plumb_plan_free(&plan);
	plumb_checkpoint_close(c);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("decoder");
	TCase *c = suite_part(s, "bits", 300);
	tcase_add_loop_test(c, splits_of_tiny, 0, 2);
	tcase_add_test(c, passes_cut_by_the_decoder);
	tcase_add_test(c, threads_and_pages_do_not_matter);
	tcase_add_test(c, openblas_witnesses_plain_loops);
	tcase_add_loop_test(c, other_models, 0, 8);
	c = suite_part(s, "refusals", 60);
	tcase_add_test(c, bad_options);
	tcase_add_test(c, bad_tokens);
	tcase_add_test(c, observer);
	return suite_run(s);
}
