/* SPDX-License-Identifier: MIT */
/* The two sets as wholes. One digest of everything a decode wrote is the same for the twin and for the kernels, in any
 * mixture, schedule, page order and number of threads; and it is not the same when one bit differs.
 *
 * PLUMB_TEST_DEVICE=cuda runs the kernels on a GPU instead of simt; without one the program then ends with status 77. */
#include <check.h>
#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "core/checkpoint.h"
#include "core/digest.h"
#include "opt/device.h"
#include "opt/guard.h"
#include "ref/twin/twin.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

enum { PROMPT = 9, STEPS = 5, TOKENS = PROMPT + STEPS };

static enum plumb_device_kind kind = PLUMB_DEVICE_SIMT;

static struct plumb_device *open_device(uint64_t seed, enum plumb_poison poison)
{
	struct plumb_device_options o = {.seed = seed, .poison = poison};
	struct plumb_device *d = NULL;
	struct plumb_error err = {""};
	ck_assert_msg(plumb_device_open(kind, &o, &d, &err) == PLUMB_OK, "%s", err.text);
	return d;
}

static int digest_call(void *self, const struct plumb_call *call)
{
	plumb_digest_call(self, call);
	return PLUMB_OK;
}

/* Prompt at once, then single tokens. */
static struct plumb_digest run(const struct plumb_model *model, const struct plumb_plan *plan,
	const struct plumb_decoder_options *options, const struct plumb_runner *runner,
	const struct plumb_observer *observer)
{
	struct plumb_digest digest = {{0}, 0};
	const struct plumb_observer digesting = {NULL, digest_call, &digest};
	struct plumb_error err = {""};
	struct plumb_decoder *d = NULL;
	int32_t token[TOKENS];

	for (int t = 0; t < TOKENS; t++)
		token[t] = (int32_t)((t * t * 13 + t * 5 + 2) % model->cfg.vocab);
	token[4] = (int32_t)model->cfg.eos;
	ck_assert_msg(plumb_decoder_create(model, plan, options, &d, &err) == PLUMB_OK, "%s", err.text);
	plumb_decoder_observe(d, observer ? observer : &digesting);
	plumb_decoder_run_through(d, runner);
	ck_assert_msg(plumb_decoder_step(d, token, PROMPT, &err) == PLUMB_OK, "%s", err.text);
	for (int t = PROMPT; t < TOKENS; t++)
		ck_assert_msg(plumb_decoder_step(d, token + t, 1, &err) == PLUMB_OK, "%s", err.text);
	plumb_digest_state(&digest, d);
	plumb_decoder_destroy(d);
	return digest;
}

static struct plumb_plan plan_of(const struct plumb_model *model, struct plumb_binding all)
{
	struct plumb_plan plan;
	struct plumb_error err = {""};
	ck_assert_int_eq(plumb_plan_create(&model->cfg, all, &plan, &err), PLUMB_OK);
	return plan;
}

static const struct plumb_binding twin = {.set = &plumb_ref_twin};

static struct plumb_binding opt(struct plumb_device *device)
{
	return (struct plumb_binding){.set = plumb_device_set(device), .device = device};
}

static void assert_same(const struct plumb_digest *a, const struct plumb_digest *b, const char *what)
{
	char x[33], y[33];
	ck_assert_msg(a->sum[0] == b->sum[0] && a->sum[1] == b->sum[1] && a->values == b->values,
		"%s: digest %s, expected %s", what, plumb_digest_show(b, y), plumb_digest_show(a, x));
}

/* ---- random models ---- */

static int below(uint64_t *x, int n)
{
	*x = *x * 6364136223846793005u + 1442695040888963407u;
	return (int)((*x >> 33) % (uint64_t)n);
}

/* Odd sizes everywhere; every mechanism switched both ways over the seeds. */
static struct plumb_config random_config(uint64_t seed)
{
	struct plumb_config c = random_checkpoint_smallest();
	uint64_t x = seed * 0x9E3779B97F4A7C15u + 1;
	int group;

	c.nested = below(&x, 2);
	c.hidden = 20 + below(&x, 60);
	c.vocab = 60 + below(&x, 90);
	c.streams = 2 + below(&x, 4);
	c.low_rank = 3 + below(&x, 20);
	c.layers = 2 + below(&x, 2);
	for (int l = 0; l < c.layers; l++)
		c.kind[l] = (l + (int)seed) % 2 ? PLUMB_LAYER_ATTENTION : PLUMB_LAYER_GDN;
	group = 1 + below(&x, 3);
	c.kv_heads = 1 + below(&x, 3);
	c.q_heads = c.kv_heads * group;
	c.head_dim = 4 * (1 + below(&x, 9));
	c.index_heads = 1 + below(&x, 4);
	c.index_dim = 2 * (2 + below(&x, 9));
	c.rotary_dim = 2 * (1 + below(&x, (int)(c.head_dim < c.index_dim ? c.head_dim : c.index_dim) / 2));
	c.block_tokens = 1 + below(&x, 4);
	c.block_budget = 1 + below(&x, 3);
	c.gdn_key_heads = 1 + below(&x, 3);
	c.gdn_value_heads = c.gdn_key_heads * (1 + below(&x, 3));
	c.gdn_key_dim = 3 + below(&x, 30);
	c.gdn_value_dim = 2 + below(&x, 20);
	c.gdn_conv_taps = 2 + below(&x, 4);
	c.gdn_gate = below(&x, 2) ? PLUMB_GATE_SILU : PLUMB_GATE_SIGMOID;
	c.experts = 3 + below(&x, 20);
	c.experts_per_token = 1 + below(&x, (int)(c.experts < 8 ? c.experts : 8));
	c.expert_inner = 5 + below(&x, 30);
	c.shared_inner = 4 + below(&x, 30);
	c.norm_topk = below(&x, 2);
	return c;
}

struct made {
	char dir[SCRATCH_PATH];
	struct plumb_checkpoint *checkpoint;
	const struct plumb_model *model;
};

static void make(struct made *m, const struct plumb_config *cfg, uint64_t seed)
{
	const struct random_checkpoint o = {
		.seed = seed,
		.format = seed % 3 == 0   ? PLUMB_F32
	                  : seed % 3 == 1 ? PLUMB_BF16
	                                  : PLUMB_F16,
		.stacked_experts = seed % 2,
		.ple_shards = 1 + (int)(seed % 3),
		.shift = seed % 4 == 3,
	};
	struct plumb_error err = {""};
	scratch_make(m->dir);
	random_checkpoint_write(m->dir, cfg, &o);
	ck_assert_msg(plumb_checkpoint_open(m->dir, &m->checkpoint, &err) == PLUMB_OK, "%s", err.text);
	m->model = plumb_checkpoint_model(m->checkpoint);
}

static void unmake(struct made *m)
{
	plumb_checkpoint_close(m->checkpoint);
	scratch_remove(m->dir);
}

#ifdef __SANITIZE_ADDRESS__
enum { MODELS = 3, HALVES = 4, SCHEDULES = 2, BITS_APART = 5 };
#else
enum { MODELS = 12, HALVES = 12, SCHEDULES = 4, BITS_APART = 1 };
#endif

START_TEST(random_models)
{
	uint64_t seed = (uint64_t)_i;
	struct plumb_config cfg = random_config(seed);
	struct made m;
	char what[80];

	make(&m, &cfg, seed);
	struct plumb_device *device = open_device(seed, PLUMB_POISON_OFF);
	struct plumb_plan ref = plan_of(m.model, twin), kernels = plan_of(m.model, opt(device));
	for (int policy = 0; policy < 2; policy++) {
		struct plumb_decoder_options o = {
			.policy = policy ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32,
			.capacity = TOKENS,
			.page_tokens = cfg.block_tokens * (1 + (int)(seed % 3)),
			.all_logits = seed % 2,
			.traces = seed % 2 == 0,
		};
		struct plumb_digest a = run(m.model, &ref, &o, NULL, NULL);
		o.page_seed = seed + 1;
		struct plumb_digest b = run(m.model, &kernels, &o, NULL, NULL);
		snprintf(what, sizeof what, "model %d, policy %d", _i, policy);
		ck_assert_int_gt(a.values, 1000);
		assert_same(&a, &b, what);
	}
	plumb_plan_free(&ref);
	plumb_plan_free(&kernels);
	plumb_device_close(device);
	unmake(&m);
}
END_TEST

/* ---- mixtures ---- */

static struct made shared;
static struct plumb_device *shared_device;
static const struct plumb_decoder_options shared_options = {.capacity = TOKENS, .traces = true};
static struct plumb_digest shared_digest;

static void mixture_setup(void)
{
	struct plumb_config cfg = random_checkpoint_smallest();
	make(&shared, &cfg, 5);
	shared_device = open_device(0, PLUMB_POISON_OFF);
	struct plumb_plan plan = plan_of(shared.model, twin);
	shared_digest = run(shared.model, &plan, &shared_options, NULL, NULL);
	plumb_plan_free(&plan);
}

static void mixture_teardown(void)
{
	plumb_device_close(shared_device);
	unmake(&shared);
}

/* One op, in one set or the other, everywhere or in one layer. */
START_TEST(single_op)
{
	int L = shared.model->cfg.layers;
	for (int from = 0; from < 2; from++) {
#ifdef __SANITIZE_ADDRESS__
		if (from != _i % 2)
			continue; /* the halves have every op in both sets */
#endif
		struct plumb_plan plan = plan_of(shared.model, from ? opt(shared_device) : twin);
		int layer = _i % (L + 1);
		plumb_plan_bind(
			&plan, (enum plumb_op)_i, from ? layer : 0, from ? layer : L, from ? twin : opt(shared_device));
		struct plumb_digest d = run(shared.model, &plan, &shared_options, NULL, NULL);
		assert_same(&shared_digest, &d, plumb_ops[_i].name);
		plumb_plan_free(&plan);
	}
}
END_TEST

START_TEST(random_half)
{
	uint64_t x = (uint64_t)_i * 77 + 3;
	struct plumb_plan plan = plan_of(shared.model, twin);
	char what[40];

	for (int l = 0; l <= shared.model->cfg.layers; l++)
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			if (below(&x, 2))
				plumb_plan_bind(&plan, (enum plumb_op)op, l, l, opt(shared_device));
	struct plumb_digest d = run(shared.model, &plan, &shared_options, NULL, NULL);
	snprintf(what, sizeof what, "half %d", _i);
	assert_same(&shared_digest, &d, what);
	plumb_plan_free(&plan);
}
END_TEST

START_TEST(schedules_threads_pages)
{
	int threads = omp_get_max_threads();
	for (uint64_t seed = 1; seed <= SCHEDULES; seed++) {
		struct plumb_device *device = open_device(seed * 31, PLUMB_POISON_OFF);
		struct plumb_plan plan = plan_of(shared.model, opt(device)), ref = plan_of(shared.model, twin);
		struct plumb_decoder_options o = shared_options;
		o.page_seed = seed;
		struct plumb_digest d = run(shared.model, &plan, &o, NULL, NULL);
		assert_same(&shared_digest, &d, "another block order");
		omp_set_num_threads((int)seed);
		d = run(shared.model, &ref, &o, NULL, NULL);
		assert_same(&shared_digest, &d, "another number of threads");
		omp_set_num_threads(threads);
		plumb_plan_free(&plan);
		plumb_plan_free(&ref);
		plumb_device_close(device);
	}
}
END_TEST

/* Between guard zones and with two poisons every op passes, in both sets, and the digest stays. */
START_TEST(guarded)
{
	struct plumb_device *device = open_device(0, PLUMB_POISON_NAN);
	struct plumb_error err = {""};
	struct plumb_guard *guard = NULL;

	ck_assert_int_eq(plumb_guard_create(&guard, &err), PLUMB_OK);
	ck_assert_int_eq(plumb_guard_watch(guard, device, &err), PLUMB_OK);
	struct plumb_runner runner = plumb_guard_runner(guard);
	for (int i = 0; i < 2; i++) {
		struct plumb_plan plan = plan_of(shared.model, i ? opt(device) : twin);
		struct plumb_digest d = run(shared.model, &plan, &shared_options, &runner, NULL);
		assert_same(&shared_digest, &d, i ? "guarded opt" : "guarded twin");
		plumb_plan_free(&plan);
	}
	plumb_guard_destroy(guard);
	plumb_device_close(device);
}
END_TEST

/* One bit in one output of one op must change the digest, or none of the above means anything. */
struct flip {
	struct plumb_digest digest;
	int at, seen;
};

static int flip_bit(void *self, const struct plumb_call *call)
{
	struct flip *f = self;
	const struct plumb_op_info *info = &plumb_ops[call->op];
	if (f->seen++ == f->at)
		for (int i = 0; i < info->operands; i++) {
			uint32_t *data;
			memcpy(&data, (const char *)call->args + info->operand[i].offset, sizeof data);
			if (info->operand[i].role == PLUMB_OUT && data) {
				*data ^= 1;
				break;
			}
		}
	plumb_digest_call(&f->digest, call);
	return PLUMB_OK;
}

START_TEST(one_bit_shows)
{
	struct plumb_plan plan = plan_of(shared.model, twin);
	for (int at = 0; at < 40; at += BITS_APART) {
		struct flip f = {{{0}, 0}, at, 0};
		const struct plumb_observer o = {NULL, flip_bit, &f};
		(void)run(shared.model, &plan, &shared_options, NULL, &o);
		/* without the state, which run() adds to a digest of its own */
		struct flip whole = {{{0}, 0}, -1, 0};
		const struct plumb_observer p = {NULL, flip_bit, &whole};
		if (at == 0)
			(void)run(shared.model, &plan, &shared_options, NULL, &p);
		static struct plumb_digest truth;
		if (at == 0)
			truth = whole.digest;
		ck_assert_msg(f.digest.sum[0] != truth.sum[0] && f.digest.sum[1] != truth.sum[1], "call %d", at);
	}
	plumb_plan_free(&plan);
}
END_TEST

int main(void)
{
	bool gpu;
	int status = suite_wants_gpu(&gpu);
	if (status != PLUMB_OK)
		return suite_without_device(status);
	kind = gpu ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;
	Suite *s = suite_create("sets");
	TCase *c = suite_part(s, "models", 300);
	tcase_add_loop_test(c, random_models, 0, MODELS);
	c = suite_part(s, "mixtures", 300);
	tcase_add_checked_fixture(c, mixture_setup, mixture_teardown);
	tcase_add_loop_test(c, single_op, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(c, random_half, 0, HALVES);
	tcase_add_test(c, schedules_threads_pages);
	tcase_add_test(c, guarded);
	tcase_add_test(c, one_bit_shows);
	return gpu ? suite_run_here(s) : suite_run(s);
}
