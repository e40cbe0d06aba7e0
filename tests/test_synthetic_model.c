/* SPDX-License-Identifier: MIT */
/* Synthetic models: presets, weights that come and go, the same bits from every set and device, a context that nobody
 * prefilled, tables past 2^31 elements, and numbers that behave as a trained model's through 48 layers. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/math32.h"
#include "core/ops/embed.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"
#include "core/synthetic.h"
#include "core/synthetic_fill.h"
#include "opt/device.h"
#include "opt/graph.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"

static struct plumb_error err;

static struct plumb_synthetic *open_model(const char *preset, const char *profile, int64_t memory)
{
	static struct plumb_profile p;
	struct plumb_synthetic *s = NULL;

	if (profile)
		ck_assert_msg(plumb_profile_open(profile, &p, &err) == PLUMB_OK, "%s", err.text);
	const struct plumb_synthetic_options options = {.profile = profile ? &p : NULL, .memory = memory};
	ck_assert_msg(plumb_synthetic_open(preset, &options, &s, &err) == PLUMB_OK, "%s", err.text);
	return s;
}

/* ---- presets ---- */

START_TEST(full_is_the_release)
{
	static struct plumb_config c;
	struct plumb_ngram n;

	ck_assert_msg(plumb_preset_config("full", &c, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_int_eq(c.layers, 48);
	ck_assert_int_eq(c.vocab, 248320);
	ck_assert_int_eq(c.hidden, 2560);
	ck_assert_int_eq(c.max_positions, 262144);
	ck_assert_int_eq(c.experts, 512);
	ck_assert_int_eq(c.experts_per_token, 10);
	ck_assert_int_eq(c.expert_inner, 640);
	ck_assert_int_eq(c.shared_inner, 640);
	ck_assert_int_eq(c.streams, 4);
	ck_assert_int_eq(c.low_rank, 320);
	ck_assert_int_eq(c.q_heads, 24);
	ck_assert_int_eq(c.kv_heads, 2);
	ck_assert_int_eq(c.head_dim, 256);
	ck_assert_int_eq(c.rotary_dim, 64);
	ck_assert_int_eq(plumb_gdn_channels(&c), 10240);
	ck_assert_int_eq(c.gdn_value_heads * c.gdn_value_dim, 6144);
	ck_assert_int_eq(c.index_heads, 4);
	ck_assert_int_eq(c.index_dim, 128);
	ck_assert_int_eq(c.block_budget, 512);
	ck_assert_int_eq(c.block_tokens, 4);
	ck_assert_int_eq(c.ple_count, 1);
	ck_assert_int_eq(c.ple_layer[0], 1);
	ck_assert_int_eq(c.ngram_parts, 128);
	ck_assert_int_eq(c.eos, 248044);
	ck_assert(c.norm_topk && c.gdn_gate == PLUMB_GATE_SIGMOID && c.seed == 1234);
	for (int l = 0; l < 48; l++)
		ck_assert_int_eq(c.kind[l] == PLUMB_LAYER_ATTENTION, l % 4 == 3);
	/* model-spec 1.4 */
	ck_assert_int_eq(plumb_ngram_constants(&c, 0, &n, &err), PLUMB_OK);
	ck_assert_int_eq(n.multiplier[0], INT64_C(23703573157769));
	ck_assert_int_eq(n.prime[15], 20000171);
	ck_assert_int_eq(n.offset[15], 300001275);
	ck_assert_int_eq(n.rows, 320001536);
}
END_TEST

START_TEST(presets_are_listed)
{
	static struct plumb_config c;
	int presets = 0;

	ck_assert_int_eq(plumb_preset_config("huge\n", &c, &err), PLUMB_BAD_INPUT);
	for (; plumb_preset_name(presets); presets++) {
		ck_assert_ptr_nonnull(strstr(err.text, plumb_preset_name(presets)));
		ck_assert_ptr_nonnull(plumb_preset_brief(presets));
		struct plumb_error own;
		ck_assert_msg(plumb_preset_config(plumb_preset_name(presets), &c, &own) == PLUMB_OK, "%s", own.text);
	}
	ck_assert_int_ge(presets, 4);
	ck_assert_ptr_null(plumb_preset_name(-1));
}
END_TEST

/* ---- decoding ---- */

struct trial {
	const char *preset, *profile;
	int64_t memory, context;
	enum plumb_policy policy;
	uint64_t page_seed;
};

static int add_call(void *self, const struct plumb_call *call)
{
	plumb_digest_call(self, call);
	return PLUMB_OK;
}

static struct plumb_decoder *new_decoder(
	const struct plumb_model *model, struct plumb_binding binding, const struct trial *t)
{
	struct plumb_decoder_options options = {
		.policy = t->policy, .capacity = t->context + 32, .page_seed = t->page_seed};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;

	ck_assert_int_eq(plumb_plan_create(&model->cfg, binding, &plan, &err), PLUMB_OK);
	ck_assert_msg(plumb_decoder_create(model, &plan, &options, &d, &err) == PLUMB_OK, "%s", err.text);
	plumb_plan_free(&plan);
	if (t->context)
		ck_assert_msg(plumb_synthetic_context(d, t->context, 0, &err) == PLUMB_OK, "%s", err.text);
	return d;
}

static const int32_t prompt[] = {5, 17, 42, 42, 7, 3, 9, 100};
enum { PROMPT = sizeof prompt / sizeof prompt[0], STEPS = 2 };

/* Digest of everything, and of the state at the end. */
static struct plumb_synthetic_usage decode(const struct trial *t, struct plumb_binding binding, char text[33])
{
	struct plumb_synthetic *s = open_model(t->preset, t->profile, t->memory);
	struct plumb_digest digest = {0};
	struct plumb_observer observer = {.after = add_call, .self = &digest};
	struct plumb_decoder *d = new_decoder(plumb_synthetic_model(s), binding, t);

	plumb_decoder_observe(d, &observer);
	int64_t rows = t->context ? 3 : PROMPT; /* the small one costs a second a row on simt with sanitizers */
	ck_assert_msg(plumb_decoder_step(d, prompt, rows, &err) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < STEPS; i++) {
		int32_t next = plumb_decoder_tokens(d)[0];
		ck_assert_int_ge(next, 0);
		ck_assert_msg(plumb_decoder_step(d, &next, 1, &err) == PLUMB_OK, "%s", err.text);
	}
	plumb_digest_state(&digest, d);
	plumb_digest_show(&digest, text);
	struct plumb_synthetic_usage usage = plumb_synthetic_usage(s);
	plumb_decoder_destroy(d);
	if (binding.device)
		ck_assert_int_eq(plumb_device_forget(binding.device, &err), PLUMB_OK);
	plumb_synthetic_close(s);
	return usage;
}

static struct plumb_binding simt(bool own_memory)
{
	struct plumb_device_options options = {.seed = 5, .own_memory = own_memory};
	struct plumb_device *device;

	ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, &options, &device, &err), PLUMB_OK);
	return (struct plumb_binding){.set = plumb_device_set(device), .device = device};
}

static const struct trial trials[] = {
	{.preset = "tiny"},
	{.preset = "tiny", .profile = "served", .policy = PLUMB_POLICY_BF16},
	{.preset = "tiny", .profile = "release-fp8"},
	{.preset = "tiny", .profile = "served", .context = 1},
	{.preset = "tiny", .profile = "release-nvfp4", .context = 61, .policy = PLUMB_POLICY_BF16, .page_seed = 3},
	{.preset = "small", .profile = "least-bytes", .context = 500, .policy = PLUMB_POLICY_BF16},
};
enum { TRIALS = sizeof trials / sizeof trials[0] };

START_TEST(every_set_gives_the_same_bits)
{
	const struct trial *t = &trials[_i];
	char twin[33], other[33];
	struct plumb_synthetic_usage usage;

	usage = decode(t, (struct plumb_binding){.set = &plumb_ref_twin}, twin);
	ck_assert_int_gt(usage.made, 0);
	ck_assert_int_eq(usage.dropped, 0);
	for (int own = 0; own < 2; own++) {
		struct plumb_binding binding = simt(own);
		usage = decode(t, binding, other);
		ck_assert_str_eq(twin, other);
		/* a device with memory of its own leaves the host's alone */
		ck_assert_int_eq(usage.made == 0, own);
		plumb_device_close(binding.device);
	}
}
END_TEST

/* One op from the reference among those of a device: its weights are made on the host, the others there. */
START_TEST(sets_can_be_mixed)
{
	struct plumb_synthetic *s = open_model("tiny", "served", 0);
	const struct plumb_model *m = plumb_synthetic_model(s);
	const struct plumb_binding twin = {.set = &plumb_ref_twin}, own = simt(true);
	struct plumb_digest digest[2] = {{{0}, 0}, {{0}, 0}};

	for (int mixed = 0; mixed < 2; mixed++) {
		struct plumb_decoder_options options = {.capacity = 16};
		struct plumb_observer observer = {.after = add_call, .self = &digest[mixed]};
		struct plumb_plan plan;
		struct plumb_decoder *d;
		ck_assert_int_eq(plumb_plan_create(&m->cfg, mixed ? own : twin, &plan, &err), PLUMB_OK);
		plumb_plan_bind(&plan, PLUMB_PLE_EMBED, 0, m->cfg.layers, twin);
		int64_t before = plumb_synthetic_usage(s).made;
		ck_assert_msg(plumb_decoder_create(m, &plan, &options, &d, &err) == PLUMB_OK, "%s", err.text);
		plumb_decoder_observe(d, &observer);
		ck_assert_msg(plumb_decoder_step(d, prompt, PROMPT, &err) == PLUMB_OK, "%s", err.text);
		if (mixed) /* at most 8 rows of 6 bytes a token */
			ck_assert(plumb_synthetic_usage(s).made > before &&
				  plumb_synthetic_usage(s).made <= before + PROMPT * 48);
		plumb_decoder_destroy(d);
		plumb_plan_free(&plan);
	}
	ck_assert_mem_eq(digest[0].sum, digest[1].sum, sizeof digest[0].sum);
	plumb_device_close(own.device);
	plumb_synthetic_close(s);
}
END_TEST

/* Experts that are dropped come back as they were. */
START_TEST(memory_does_not_change_bits)
{
	struct trial t = {.preset = "small", .profile = "served", .memory = (int64_t)1 << 40};
	const struct plumb_binding twin = {.set = &plumb_ref_twin};
	char much[33], little[33];
	struct plumb_synthetic_usage all = decode(&t, twin, much), some;

	t.memory = 1; /* no more than each call reads */
	some = decode(&t, twin, little);
	ck_assert_str_eq(much, little);
	ck_assert_int_eq(all.dropped, 0);
	ck_assert_int_gt(some.dropped, 100);
	ck_assert_int_lt(some.peak, all.peak);
	t.memory = (all.peak + some.peak) / 2;
	some = decode(&t, twin, little);
	ck_assert_str_eq(much, little);
	ck_assert_int_gt(some.dropped, 0);
	ck_assert_int_le(some.peak, t.memory);
}
END_TEST

START_TEST(seeds_and_names_matter)
{
	struct plumb_synthetic *a = open_model("tiny", NULL, 0), *b = NULL;
	const struct plumb_model *m = plumb_synthetic_model(a);

	ck_assert_int_eq(plumb_synthetic_open("tiny", &(struct plumb_synthetic_options){.seed = 1}, &b, &err), PLUMB_OK);
	ck_assert_uint_ne(m->embed.made->key, plumb_synthetic_model(b)->embed.made->key);
	ck_assert_uint_ne(m->embed.made->key, m->lm_head.made->key);
	ck_assert_uint_ne(m->layer[0].moe.gate[0].made->key, m->layer[1].moe.gate[0].made->key);
	ck_assert_uint_ne(m->layer[0].moe.gate[0].made->key, m->layer[0].moe.gate[1].made->key);
	plumb_synthetic_close(a);
	plumb_synthetic_close(b);
}
END_TEST

/* Steps whose state stays on the device: the tokens, and the state at the end, of a decoder on host memory. */
START_TEST(graph_decodes_the_same)
{
	const struct trial *t = &trials[_i];
	struct plumb_synthetic *s = open_model(t->preset, t->profile, 0);
	struct plumb_binding own = simt(true);
	struct plumb_decoder *d = new_decoder(plumb_synthetic_model(s), own, t);
	struct plumb_decoder *truth =
		new_decoder(plumb_synthetic_model(s), (struct plumb_binding){.set = &plumb_ref_twin}, t);
	struct plumb_graph *g;
	struct plumb_digest a = {0}, b = {0};
	int32_t next = 5, wanted = 5;

	ck_assert_msg(plumb_graph_create(d, own.device, &g, &err) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < 5; i++) {
		ck_assert_msg(plumb_decoder_step(truth, &wanted, 1, &err) == PLUMB_OK, "%s", err.text);
		wanted = plumb_decoder_tokens(truth)[0];
		ck_assert_msg(plumb_graph_step(g, next, &next, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_int_eq(next, wanted);
	}
	ck_assert_int_eq(plumb_graph_download_state(g, &err), PLUMB_OK);
	plumb_digest_state(&a, d);
	plumb_digest_state(&b, truth);
	ck_assert_mem_eq(a.sum, b.sum, sizeof a.sum);
	plumb_graph_destroy(g);
	plumb_decoder_destroy(d);
	plumb_decoder_destroy(truth);
	plumb_device_close(own.device);
	plumb_synthetic_close(s);
}
END_TEST

/* ---- a context that was not prefilled ---- */

START_TEST(context_is_where_it_says)
{
	struct plumb_synthetic *s = open_model("small", NULL, 0);
	const struct plumb_model *m = plumb_synthetic_model(s);
	struct trial t = {.context = 600};
	struct plumb_decoder *d = new_decoder(m, (struct plumb_binding){.set = &plumb_ref_twin}, &t);
	float row[256];
	double sum = 0;

	ck_assert_int_eq(plumb_decoder_position(d), 600);
	for (int64_t r = 0; r < 600; r++) {
		plumb_cache_get(&plumb_decoder_state(d, 3)->attention.keys, r, row);
		for (int i = 0; i < 88; i++)
			sum += (double)row[i] * (double)row[i];
	}
	ck_assert_double_eq_tol(sqrt(sum / (600 * 88)), 1.5, 0.02);
	/* one text for both n-gram modules, and ids of the vocabulary */
	const int64_t *first = plumb_decoder_state(d, 1)->ple.history, *second = plumb_decoder_state(d, 4)->ple.history;
	ck_assert_mem_eq(first, second, 2 * sizeof *first);
	ck_assert(first[0] >= 0 && first[0] < m->cfg.vocab && first[0] != first[1]);
	ck_assert_int_eq(plumb_synthetic_context(d, -1, 0, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_synthetic_context(d, 1 << 20, 0, &err), PLUMB_BAD_INPUT);
	ck_assert_ptr_nonnull(strstr(err.text, "capacity"));
	ck_assert_int_eq(plumb_synthetic_context(d, 0, 0, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_decoder_position(d), 0);
	ck_assert(first[0] == m->cfg.eos && ((const float *)plumb_decoder_state(d, 0)->gdn.s)[5] == 0.0f);
	plumb_decoder_destroy(d);
	plumb_synthetic_close(s);
}
END_TEST

/* ---- places past 2^31 elements ---- */

/* A vocabulary of 2^20 rows of 2560 values: 5 GB of address space, of which a page or two is ever touched. */
START_TEST(rows_past_2_31_elements)
{
	struct plumb_config *cfg = malloc(sizeof *cfg);
	struct plumb_synthetic *s;
	struct plumb_synthetic_tensor tensor;
	float *out, *wanted;

	ck_assert_int_eq(plumb_preset_config("tiny", cfg, &err), PLUMB_OK);
	cfg->vocab = 1 << 20;
	cfg->hidden = 2560;
	ck_assert_msg(plumb_synthetic_create(cfg, NULL, &s, &err) == PLUMB_OK, "%s", err.text);
	const struct plumb_model *m = plumb_synthetic_model(s);
	out = malloc((size_t)(3 * cfg->streams * cfg->hidden) * sizeof *out);
	wanted = malloc((size_t)cfg->hidden * sizeof *wanted);
	for (int i = 0; i < 2; i++) {
		int32_t token[3] = {0, (1 << 20) - 1, 838861}; /* 838861 * 2560 is the first row from 2^31 on */
		struct plumb_binding binding = i ? simt(false) : (struct plumb_binding){.set = &plumb_ref_twin};
		struct plumb_env env = {.cfg = &m->cfg, .err = &err, .device = binding.device};
		struct plumb_embed a = {.T = 3, .token = token, .table = &m->embed, .residual = out};
		ck_assert_int_eq(m->maker.make(m->maker.self, &env, PLUMB_EMBED, &a), PLUMB_OK);
		ck_assert_msg(binding.set->op[PLUMB_EMBED](&env, &a) == PLUMB_OK, "%s", err.text);
		for (int t = 0; t < 3; t++) {
			tensor = *m->embed.made;
			plumb_synthetic_fill_plain(&tensor, PLUMB_F32, (int64_t)token[t] * 2560, 2560, wanted);
			for (int k = 0; k < 2560; k++)
				ck_assert(out[(t * 2 + 1) * 2560 + k] == plumb_round_bf16(wanted[k]));
		}
		if (i)
			plumb_device_close(binding.device);
	}
	free(out);
	free(wanted);
	plumb_synthetic_close(s);
	free(cfg);
}
END_TEST

/* The table of the release: 320,001,536 rows, 51 GB as fp8, all addressed and almost none there. */
START_TEST(table_of_the_release)
{
	enum { T = 6 };
	struct plumb_synthetic *s = open_model("full", "served", 0);
	const struct plumb_model *m = plumb_synthetic_model(s);
	const struct plumb_ple_weights *w = m->layer[1].ple;
	int32_t token[T] = {11, 42, 7, 248044, 300, 248319};
	float *embedding[2];
	int64_t row[2][T * 16], last = 0;

	ck_assert_int_eq(w->shards, 128);
	ck_assert_int_eq(w->shard_rows, 2500012);
	for (int i = 0; i < 2; i++) {
		int64_t history[2] = {m->cfg.eos, m->cfg.eos};
		struct plumb_binding binding = i ? simt(false) : (struct plumb_binding){.set = &plumb_ref_twin};
		struct plumb_env env = {.cfg = &m->cfg, .err = &err, .device = binding.device};
		embedding[i] = malloc(T * 2560 * sizeof(float));
		struct plumb_ple_embed a = {.T = T,
			.token = token,
			.history = history,
			.ngram = &w->ngram,
			.table = w->table,
			.shards = w->shards,
			.shard_rows = w->shard_rows,
			.row = row[i],
			.embedding = embedding[i]};
		ck_assert_int_eq(m->maker.make(m->maker.self, &env, PLUMB_PLE_EMBED, &a), PLUMB_OK);
		ck_assert_msg(binding.set->op[PLUMB_PLE_EMBED](&env, &a) == PLUMB_OK, "%s", err.text);
		if (i)
			plumb_device_close(binding.device);
	}
	ck_assert_mem_eq(row[0], row[1], sizeof row[0]);
	ck_assert_mem_eq(embedding[0], embedding[1], T * 2560 * sizeof(float));
	ck_assert_int_eq(row[0][15], 312653920); /* model-spec 2.4 */
	for (int i = 0; i < T * 16; i++) {
		int64_t first = row[0][i] * 160;
		last = first > last ? first : last;
		for (int k = 0; k < 160; k++) {
			uint32_t code =
				plumb_synthetic_fp8(plumb_synthetic_bytes(w->table[0].made->key, 0, (uint64_t)(first + k)));
			ck_assert(embedding[0][i * 160 + k] ==
				  plumb_round_bf16(plumb_e4m3_to_f32((uint8_t)code) * w->table[0].global));
		}
	}
	ck_assert_int_gt(last, INT64_C(1) << 35);
	ck_assert_int_lt(plumb_synthetic_usage(s).made, 1 << 20);
	free(embedding[0]);
	free(embedding[1]);
	plumb_synthetic_close(s);
}
END_TEST

/* ---- statistics ---- */

enum { LAYERS = 48, EXPERTS = 64 };
struct statistics {
	double residual[LAYERS], least_gate, most_gate, top_weight, decay_low, decay_high;
	int64_t residuals[LAYERS], zeros, scores, decays, low, high, routed;
	bool expert[LAYERS][EXPERTS];
	double mixed, logits;
	int64_t mixes, logit_count;
	double branch[LAYERS][2];
	int64_t branches[LAYERS][2];
};

static void squares(const float *x, int64_t n, double *sum, int64_t *count)
{
	for (int64_t i = 0; i < n; i++)
		*sum += (double)x[i] * (double)x[i];
	*count += n;
}

static int look(void *self, const struct plumb_call *call)
{
	struct statistics *s = self;
	const struct plumb_config *c = call->env->cfg;

	switch (call->op) {
	case PLUMB_HC_INJECT: {
		const struct plumb_hc_inject *a = call->args;
		if (call->site == PLUMB_SITE_MLP)
			squares(a->residual_out, call->T * c->streams * c->hidden, &s->residual[call->layer],
				&s->residuals[call->layer]);
		squares(a->branch, call->T * c->hidden, &s->branch[call->layer][call->site == PLUMB_SITE_MLP],
			&s->branches[call->layer][call->site == PLUMB_SITE_MLP]);
		for (int64_t i = 0; i < call->T * c->streams; i++) {
			s->least_gate = fmin(s->least_gate, (double)a->injection[i]);
			s->most_gate = fmax(s->most_gate, (double)a->injection[i]);
		}
		break;
	}
	case PLUMB_HC_UP_MIX: {
		const struct plumb_hc_up_mix *a = call->args;
		squares(a->mixed, call->T * c->hidden, &s->mixed, &s->mixes);
		break;
	}
	case PLUMB_GDN_RECURRENCE: {
		const struct plumb_gdn_recurrence *a = call->args;
		float a_log[64], dt_bias[64];
		plumb_weight_row(a->a_log, 0, 0, c->gdn_value_heads, a_log);
		plumb_weight_row(a->dt_bias, 0, 0, c->gdn_value_heads, dt_bias);
		for (int64_t i = 0; i < call->T * c->gdn_value_heads; i++) {
			int64_t h = i % c->gdn_value_heads;
			float decay = plumb_expf(-(plumb_expf(a_log[h]) * plumb_softplusf(a->a[i] + dt_bias[h])));
			s->decays++;
			s->low += decay < 0.5f;
			s->high += decay > 0.95f;
		}
		break;
	}
	case PLUMB_QSA_SCORE: {
		const struct plumb_qsa_score *a = call->args;
		int64_t blocks = call->env->capacity / c->block_tokens;
		for (int64_t t = 0; t < call->T; t++)
			for (int64_t b = 0; b < (call->position + t + 1) / c->block_tokens; b++) {
				s->scores++;
				s->zeros += a->score[t * blocks + b] == 0.0f;
			}
		break;
	}
	case PLUMB_MOE_ROUTER: {
		const struct plumb_moe_router *a = call->args;
		for (int64_t i = 0; i < call->T * c->experts_per_token; i++) {
			s->expert[call->layer][a->expert[i]] = true;
			s->top_weight = fmax(s->top_weight, (double)a->weight[i]);
			s->routed++;
		}
		break;
	}
	case PLUMB_LM_HEAD: {
		const struct plumb_lm_head *a = call->args;
		squares(a->logits, call->T * c->vocab, &s->logits, &s->logit_count);
		break;
	}
	default:
		break;
	}
	return PLUMB_OK;
}

START_TEST(numbers_stay_of_order_one)
{
	enum { TOKENS = 12 };
	struct plumb_synthetic *s = open_model("deep", "served", 0);
	const struct plumb_model *m = plumb_synthetic_model(s);
	struct trial t = {.context = 2000};
	struct plumb_decoder *d = new_decoder(m, (struct plumb_binding){.set = &plumb_ref_twin}, &t);
	struct statistics *x = calloc(1, sizeof *x);
	struct plumb_observer observer = {.after = look, .self = x};
	int32_t token[TOKENS];
	int distinct = 0, experts = 0;

	x->least_gate = 9;
	plumb_decoder_observe(d, &observer);
	ck_assert_msg(plumb_decoder_step(d, prompt, PROMPT, &err) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < TOKENS; i++) {
		bool seen = false;
		token[i] = plumb_decoder_tokens(d)[0];
		for (int j = 0; j < i; j++)
			seen = seen || token[j] == token[i];
		distinct += !seen;
		ck_assert_msg(plumb_decoder_step(d, &token[i], 1, &err) == PLUMB_OK, "%s", err.text);
	}
	for (int l = 0; l < LAYERS; l++) {
		double rms = sqrt(x->residual[l] / (double)x->residuals[l]);
		double mixer = sqrt(x->branch[l][0] / (double)x->branches[l][0]),
		       moe = sqrt(x->branch[l][1] / (double)x->branches[l][1]);
		int used = 0;
		for (int e = 0; e < EXPERTS; e++)
			used += x->expert[l][e];
		if (l % 8 == 0 || l % 8 == 3 || l == LAYERS - 1)
			printf("layer %2d: residual rms %.3f, mixer %.3f, moe %.3f, experts %d of %d\n", l, rms, mixer, moe,
				used, EXPERTS);
		experts += used;
		ck_assert_msg(rms > 0.5 && rms < 4, "layer %d: residual rms %g", l, rms);
		ck_assert_msg(
			mixer > 0.02 && mixer < 1 && moe > 0.02 && moe < 1, "layer %d: mixer %g, moe %g", l, mixer, moe);
		ck_assert_msg(used > EXPERTS / 2, "layer %d: %d experts", l, used);
	}
	printf("injection %.3f..%.3f, mixed rms %.3f, logits rms %.2f, largest expert weight %.3f, %.1f experts a layer\n",
		x->least_gate, x->most_gate, sqrt(x->mixed / (double)x->mixes), sqrt(x->logits / (double)x->logit_count),
		x->top_weight, (double)experts / LAYERS);
	printf("decays below 0.5: %.3f, above 0.95: %.3f; zero scores %.3f; %d of %d tokens distinct\n",
		(double)x->low / (double)x->decays, (double)x->high / (double)x->decays,
		(double)x->zeros / (double)x->scores, distinct, TOKENS);
	ck_assert(x->least_gate > 0.005 && x->most_gate < 1.995);
	ck_assert(x->low > x->decays / 20 && x->high > x->decays / 10);
	ck_assert(x->zeros < x->scores / 4);
	ck_assert(x->top_weight < 0.95);
	ck_assert_int_ge(distinct, TOKENS - 2);
	free(x);
	plumb_decoder_destroy(d);
	plumb_synthetic_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("synthetic_model");
	TCase *t = suite_part(s, "models", 300);

	tcase_add_test(t, full_is_the_release);
	tcase_add_test(t, presets_are_listed);
	tcase_add_loop_test(t, every_set_gives_the_same_bits, 0, TRIALS);
	tcase_add_test(t, sets_can_be_mixed);
	tcase_add_test(t, memory_does_not_change_bits);
	tcase_add_test(t, seeds_and_names_matter);
	tcase_add_loop_test(t, graph_decodes_the_same, 0, TRIALS);
	tcase_add_test(t, context_is_where_it_says);
	tcase_add_test(t, rows_past_2_31_elements);
	tcase_add_test(t, table_of_the_release);
	tcase_add_test(t, numbers_stay_of_order_one);
	return suite_run(s);
}
