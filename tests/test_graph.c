/* SPDX-License-Identifier: MIT */
/* State that stays on the device, and the captured graph: the same bits as the twin in host memory,
 * whatever is changed in place between two replays. On simt (graphs run eagerly there, with and without memory of its
 * own) and, built with PLUMB_TEST_GPU, on cuda; without a GPU that one says so and ends with 77. */
#include <check.h>
#include <string.h>

#include "opt/device.h"
#include "opt/graph.h"
#include "opt/guard.h"
#include "opt/timing.h"
#include "ref/twin/twin.h"
#include "tests/support/decode.h"
#include "tests/support/suite.h"

/* Past the QSA budget of golden/tiny (16 tokens), so that blocks are chosen. */
enum { TOKENS = 21, CAPACITY = 32 };

static struct plumb_error err;

#ifdef PLUMB_TEST_GPU
enum { DEVICES = 1, RECORDED = 1 };
#else
enum { DEVICES = 2, RECORDED = 0 };
#endif

static struct plumb_device *open_device(int i)
{
	struct plumb_device_options options = {.own_memory = i == 1};
	struct plumb_device *d = NULL;
	enum plumb_device_kind kind = RECORDED ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;

	ck_assert_msg(plumb_device_open(kind, &options, &d, &err) == PLUMB_OK, "%s", err.text);
	return d;
}

/* What a test works with: a decoder on the device with a graph, and the twin, which says what is right. */
struct pair {
	struct plumb_checkpoint *checkpoint;
	const struct plumb_model *model;
	struct plumb_decoder_options options;
	struct plumb_device *device, *host;
	struct plumb_decoder *decoder, *truth;
	struct plumb_graph *graph;
};

/* narrow: keys and values in FP8, GDN state in f16. */
static struct pair pair_make(int device, enum plumb_policy policy, bool narrow)
{
	struct pair p = {.checkpoint = decode_tiny(),
		.options = {.capacity = CAPACITY, .page_tokens = 8, .page_seed = 9, .policy = policy}};

	if (narrow) {
		p.options.own_caches = true;
		p.options.caches = PLUMB_CACHE_FP8;
		p.options.key_scale = 0.0625f;
		p.options.state = PLUMB_F16;
	}

	p.model = plumb_checkpoint_model(p.checkpoint);
	p.device = open_device(device);
	ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, NULL, &p.host, &err), PLUMB_OK);
	p.decoder = decode_create(p.model, plumb_device_set(p.device), p.device, &p.options);
	p.truth = decode_create(p.model, &plumb_ref_twin, NULL, &p.options);
	ck_assert_msg(plumb_graph_create(p.decoder, p.device, &p.graph, &err) == PLUMB_OK, "%s", err.text);
	return p;
}

static void pair_free(struct pair *p)
{
	plumb_graph_destroy(p->graph);
	plumb_decoder_destroy(p->decoder);
	plumb_decoder_destroy(p->truth);
	plumb_device_close(p->device);
	plumb_device_close(p->host);
	plumb_checkpoint_close(p->checkpoint);
}

/* The same token through both; the argmax must agree, and, asked for, the logits. */
static void step(struct pair *p, int32_t token, bool look)
{
	int32_t next = -2;
	const float *logits = NULL;

	ck_assert_msg(plumb_graph_step(p->graph, token, &next, &err) == PLUMB_OK, "%s", err.text);
	decode_step(p->truth, &token, 1);
	ck_assert_int_eq(next, plumb_decoder_tokens(p->truth)[0]);
	ck_assert_int_eq(next, plumb_decoder_tokens(p->decoder)[0]);
	ck_assert_int_eq(plumb_decoder_position(p->decoder), plumb_decoder_position(p->truth));
	if (!look)
		return;
	ck_assert_msg(plumb_graph_logits(p->graph, &logits, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_ptr_eq(logits, plumb_decoder_logits(p->decoder));
	ck_assert_msg(decode_logits(p->decoder) == decode_logits(p->truth), "position %lld: the logits differ",
		(long long)plumb_decoder_position(p->truth));
}

static void same_state(struct pair *p)
{
	ck_assert_msg(plumb_graph_download_state(p->graph, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_msg(decode_state(p->decoder) == decode_state(p->truth), "the state differs at position %lld",
		(long long)plumb_decoder_position(p->truth));
}

/* Devices, policies and formats: all together, or (with sanitizers, where a decode takes seconds) so that any two of them
 * meet: with two devices four of the eight. */
START_TEST(graph_equals_eager)
{
	const int bf16 = _i / DEVICES % 2;
#ifdef __SANITIZE_ADDRESS__
	const int device = _i % DEVICES, narrow = device ^ bf16;
#else
	const int device = _i % DEVICES, narrow = _i / DEVICES >= 2;
#endif
	struct pair p = pair_make(device, bf16 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32, narrow);

	for (int t = 0; t < TOKENS; t++)
		step(&p, decode_token(&p.model->cfg, t), t % 3 == 0);
	same_state(&p);
	ck_assert_int_eq(plumb_graph_captures(p.graph), RECORDED);
	ck_assert_int_eq(plumb_graph_replays(p.graph), RECORDED ? TOKENS - 1 : 0);
	pair_free(&p);
}
END_TEST

/* A prompt in copied calls, then the graph; copied calls in between; state looked at in between. */
START_TEST(state_changes_hands)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_F32, false);
	int32_t prompt[9];
	int t = 0;

	for (; t < 9; t++)
		prompt[t] = decode_token(&p.model->cfg, t);
	decode_step(p.decoder, prompt, 9);
	decode_step(p.truth, prompt, 9);
	for (; t < 12; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	for (; t < 14; t++) { /* not downloaded: the copied call takes it back */
		int32_t token = decode_token(&p.model->cfg, t);
		decode_step(p.decoder, &token, 1);
		decode_step(p.truth, &token, 1);
		ck_assert(decode_logits(p.decoder) == decode_logits(p.truth));
	}
	ck_assert(decode_state(p.decoder) == decode_state(p.truth));
	for (; t < 17; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	same_state(&p);
	for (; t < 19; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	/* state changed in place on the host */
	same_state(&p);
	for (int l = 0; l < p.model->cfg.layers; l++)
		if (p.model->cfg.kind[l] == PLUMB_LAYER_GDN) {
			((float *)plumb_decoder_state(p.decoder, l)->gdn.s)[3] += 0.5f;
			((float *)plumb_decoder_state(p.truth, l)->gdn.s)[3] += 0.5f;
		}
	for (; t < TOKENS; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	same_state(&p);
	ck_assert_int_le(plumb_graph_captures(p.graph), 1);
	pair_free(&p);
}
END_TEST

/* A reset forgets, on the device too; other tokens come next, at the same addresses. */
START_TEST(reset_forgets)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_BF16, false);

	for (int round = 0; round < 3; round++) {
		for (int t = 0; t < 4 + round; t++)
			step(&p, decode_token(&p.model->cfg, t + 40 * round), t % 2 == 0);
		if (round == 1)
			same_state(&p);
		plumb_decoder_reset(p.decoder);
		plumb_decoder_reset(p.truth);
		/* a copied call must not bring the old state back */
		int32_t token = decode_token(&p.model->cfg, 70 + round);
		if (round < 2) {
			decode_step(p.decoder, &token, 1);
			decode_step(p.truth, &token, 1);
			ck_assert(decode_state(p.decoder) == decode_state(p.truth));
		}
	}
	ck_assert_int_le(plumb_graph_captures(p.graph), 1);
	pair_free(&p);
}
END_TEST

/* Another decoder works on the device in between, with other shapes: scratch grows and moves, weights are the same. */
START_TEST(others_use_the_device)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_F32, false);
	struct plumb_decoder_options options = {.capacity = 2048, .max_rows = 20, .all_logits = true};
	struct plumb_decoder *other = decode_create(p.model, plumb_device_set(p.device), p.device, &options);
	struct plumb_env env = {.err = &err, .device = p.device};
	int32_t prompt[20];

	for (int t = 0; t < 20; t++)
		prompt[t] = decode_token(&p.model->cfg, 100 + t);
	for (int t = 0; t < 6; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	decode_step(other, prompt, 20);
	for (int slot = 0; slot < 8; slot++)
		ck_assert_ptr_nonnull(plumb_device_scratch(&env, slot, (size_t)1 << 20));
	ck_assert_ptr_nonnull(plumb_device_counters(&env, 100000));
	for (int t = 6; t < 12; t++)
		step(&p, decode_token(&p.model->cfg, t), true);
	ck_assert_int_eq(plumb_graph_captures(p.graph), 2 * RECORDED);
	ck_assert_int_eq(plumb_device_forget(p.device, &err), PLUMB_OK);
	same_state(&p);
	pair_free(&p);
	plumb_decoder_destroy(other);
}
END_TEST

/* Observers and guards look at host memory: steps are copied then, and give the same. */
START_TEST(watched_steps)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_F32, false);
	struct plumb_guard *guard = NULL;

	ck_assert_int_eq(plumb_guard_create(&guard, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_guard_watch(guard, p.device, &err), PLUMB_OK);
	struct plumb_runner runner = plumb_guard_runner(guard);
	for (int t = 0; t < 12; t++) {
		plumb_decoder_run_through(p.decoder, t / 3 % 2 ? &runner : NULL);
		step(&p, decode_token(&p.model->cfg, t), true);
	}
	same_state(&p);
	pair_free(&p);
	plumb_guard_destroy(guard);
}
END_TEST

/* Neighbours as one launch: the same bits, as many launches fewer as there are neighbours, and those that are left overlap as
 * before. */
START_TEST(fused_neighbours)
{
	struct pair p = pair_make(_i, _i ? PLUMB_POLICY_F32 : PLUMB_POLICY_BF16, false);
	const struct plumb_config *cfg = &p.model->cfg;
	int64_t gdn = 0, ple = 0, all = 0, overlaps = 0;

	for (int l = 0; l < cfg->layers; l++) {
		gdn += cfg->kind[l] == PLUMB_LAYER_GDN;
		ple += l > 0 && p.model->layer[l].ple; /* stands between an injection and the next site */
	}
	const int64_t attn = cfg->layers - gdn, inject = 2 * cfg->layers - ple;
	const struct {
		const char *words;
		int64_t fewer;
	} rows[] = {{"off", 0}, {"gdn_step", 2 * gdn}, {"hc_inject", inject}, {"attn_heads", attn}, {"attn_gate", attn},
		{"attn_gate,gdn_step", attn + 2 * gdn}, {"on", 2 * attn + 2 * gdn + inject}};
	for (int r = 0, t = 0; r < 7; r++) {
		int64_t launches = 0, least;
		ck_assert_msg(plumb_graph_fuse(p.graph, rows[r].words, &err) == PLUMB_OK, "%s", err.text);
		for (int i = 0; i < 3; i++, t++) {
			launches = -plumb_device_launches(p.device);
			step(&p, decode_token(cfg, t), i == 2);
			launches += plumb_device_launches(p.device);
		}
		if (RECORDED)
			launches = plumb_graph_launches(p.graph);
		if (r == 0) {
			all = launches;
			overlaps = plumb_graph_overlaps(p.graph);
			ck_assert(!RECORDED || overlaps > 0);
		}
		least = overlaps - rows[r].fewer;
		ck_assert_msg(plumb_graph_overlaps(p.graph) >= least, "%s: %lld launches overlap, at least %lld expected",
			rows[r].words, (long long)plumb_graph_overlaps(p.graph), (long long)least);
		if (_i == 0 && !RECORDED)
			ck_assert_int_eq(launches, all); /* host memory: no step is resident */
		else
			ck_assert_msg(launches == all - rows[r].fewer, "%s: %lld launches, %lld less than %lld expected",
				rows[r].words, (long long)launches, (long long)rows[r].fewer, (long long)all);
	}
	same_state(&p);
	ck_assert_int_eq(plumb_graph_fuse(p.graph, "gdn_step,gdn", &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "'gdn' is no fusion") != NULL, "%s", err.text);
	ck_assert_int_eq(plumb_graph_fuse(p.graph, "", &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_graph_fuse(p.graph, "on,", &err), PLUMB_BAD_INPUT);
	pair_free(&p);
}
END_TEST

START_TEST(refusals)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_F32, false);
	struct plumb_decoder *elsewhere = decode_create(p.model, plumb_device_set(p.host), p.host, &p.options);
	struct plumb_decoder *other = decode_create(p.model, plumb_device_set(p.device), p.device, &p.options);
	struct plumb_graph *graph = NULL;
	const float *logits;
	int32_t next, prompt[CAPACITY];

	ck_assert_int_eq(plumb_graph_create(elsewhere, p.device, &graph, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "embed of row 0 of the plan is not bound to the opt set") != NULL, "%s", err.text);
	ck_assert_int_eq(plumb_graph_logits(p.graph, &logits, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "no step has run") != NULL, "%s", err.text);
	for (int t = 0; t < 3; t++) {
		ck_assert_int_eq(plumb_graph_step(p.graph, -1, &next, &err), PLUMB_BAD_INPUT);
		ck_assert_msg(strstr(err.text, "token 0 is -1") != NULL, "%s", err.text);
		step(&p, decode_token(&p.model->cfg, t), true); /* nothing had run */
	}
	for (int t = 3; t < CAPACITY - 2; t++)
		prompt[t - 3] = decode_token(&p.model->cfg, t);
	decode_step(p.decoder, prompt, CAPACITY - 5);
	decode_step(p.truth, prompt, CAPACITY - 5);
	for (int t = CAPACITY - 2; t < CAPACITY; t++)
		step(&p, decode_token(&p.model->cfg, t), false);
	ck_assert_int_eq(plumb_graph_step(p.graph, 1, &next, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "pass the capacity of 32") != NULL, "%s", err.text);
	same_state(&p);
	if (RECORDED || _i == 1) {
		ck_assert_int_eq(plumb_graph_create(other, p.device, &graph, &err), PLUMB_OK);
		ck_assert_int_eq(plumb_graph_step(graph, 1, &next, &err), PLUMB_BAD_INPUT);
		ck_assert_msg(strstr(err.text, "already holds the state of another decoder") != NULL, "%s", err.text);
		plumb_graph_destroy(graph);
	}
	plumb_decoder_destroy(elsewhere);
	plumb_decoder_destroy(other);
	pair_free(&p);
}
END_TEST

/* Parts of a step can be timed, and a decoder that is reset afterwards is as good as new. */
START_TEST(part_of_a_step_is_timed)
{
	struct pair p = pair_make(_i, PLUMB_POLICY_F32, false);
	double us[4] = {0}, speed = 0.0;
	const bool op[PLUMB_OP_COUNT] = {[PLUMB_HC_INJECT] = true, [PLUMB_GDN_RECURRENCE] = true};
	struct plumb_graph_timing t = {.op = op, .passes = 3, .repeat = 4, .microseconds = us};
	int gdn = 0;

	for (int l = 0; l < p.model->cfg.layers; l++)
		gdn += p.model->cfg.kind[l] == PLUMB_LAYER_GDN;
	ck_assert_int_eq(plumb_graph_time(p.graph, &t, &err), PLUMB_BAD_INPUT); /* no step yet */
	for (int i = 0; i < 3; i++)
		step(&p, decode_token(&p.model->cfg, i), false);
	if (RECORDED) {
		ck_assert_msg(plumb_graph_time(p.graph, &t, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_int_eq(t.calls, 3 * (2 * p.model->cfg.layers + gdn));
		ck_assert_int_ge(t.launches, t.calls);
		const int64_t part = t.launches / 3;
		t.op = NULL;
		t.passes = 1;
		ck_assert_msg(plumb_graph_time(p.graph, &t, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_int_gt(t.launches, part);
		for (int i = 0; i < 4; i++)
			ck_assert(us[i] > 0.0);
	} else {
		ck_assert_int_eq(plumb_graph_time(p.graph, &t, &err), PLUMB_BAD_INPUT);
	}
	ck_assert_int_eq(plumb_decoder_position(p.decoder), 3);
	plumb_decoder_reset(p.decoder);
	plumb_decoder_reset(p.truth);
	for (int i = 0; i < TOKENS; i++)
		step(&p, decode_token(&p.model->cfg, i), true);
	same_state(&p);
	ck_assert_msg(plumb_device_read_speed(p.device, 300000, 2, &speed, &err) == PLUMB_OK, "%s", err.text);
	ck_assert(speed > 0.0);
	pair_free(&p);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("graph");
	TCase *t = suite_part(s, RECORDED ? "cuda" : "simt", 300);

#ifdef PLUMB_TEST_GPU
	int status = suite_probe_gpu();
	if (status != PLUMB_OK)
		return suite_without_device(status);
#endif
#ifdef __SANITIZE_ADDRESS__
	tcase_add_loop_test(t, graph_equals_eager, 0, 2 * DEVICES);
#else
	tcase_add_loop_test(t, graph_equals_eager, 0, 4 * DEVICES);
#endif
	tcase_add_loop_test(t, part_of_a_step_is_timed, 0, DEVICES);
	tcase_add_loop_test(t, state_changes_hands, 0, DEVICES);
	tcase_add_loop_test(t, reset_forgets, 0, DEVICES);
	tcase_add_loop_test(t, others_use_the_device, 0, DEVICES);
	tcase_add_loop_test(t, watched_steps, 0, DEVICES);
	tcase_add_loop_test(t, fused_neighbours, 0, DEVICES);
	tcase_add_loop_test(t, refusals, 0, DEVICES);
	return suite_run(s);
}
