/* SPDX-License-Identifier: MIT */
/* Neighbours as one launch: what a fused launch leaves behind is what the twin's ops leave, one after the other, every bit,
 * under every schedule and, in a race device, without a race; what passes between the ops is not written; and whatever comes
 * in between, other ops or other buffers, undoes a fusion without a trace. */
#include "core/ops/attention.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/moe.h"
#include "opt/fuse.h"
#include "opt/opt.h"
#include "opt/timing.h"
#include "ref/twin/twin.h"
#include "tests/support/stage_test.h"
#include "tests/support/suite.h"

#ifdef __SANITIZE_ADDRESS__
enum { ROUNDS = 8 };
#else
enum { ROUNDS = 40 };
#endif
enum { MOST_OUTPUTS = 7, WATCHED_RUNS = ST_SEEDS + 1 };

static struct plumb_error error;
static struct plumb_config config;
static struct plumb_device *race;

#define PICK(random, list) ((list)[st_below(random, (int64_t)(sizeof(list) / sizeof *(list)))])

/* Schedule run of WATCHED_RUNS; the last is the race device, NULL where there is none. Memory that it has seen has another use
 * now. */
static struct plumb_device *device_of(int run)
{
	struct plumb_device *d = run < ST_SEEDS ? st_device(run) : race;
	if (d)
		ck_assert_int_eq(plumb_device_sync(d, &error), PLUMB_OK);
	return d;
}

/* Numbers of all sizes, zeros of both signs, and with `wild` NaN and Inf. */
static struct st_buffer values(uint64_t *random, int64_t count, bool wild)
{
	static const float odd[] = {0.0f, -0.0f, 1e-41f, -1e-41f, 1e15f, -3e15f, INFINITY, -INFINITY, NAN};
	struct st_buffer b = st_floats_new(count);

	for (int64_t i = 0; i < count; i++) {
		const int64_t kind = st_below(random, 200);
		st_floats(b)[i] = kind < (wild ? 9 : 4) ? odd[kind] : st_full(random, 1.0);
	}
	return b;
}

static struct st_buffer copy(struct st_buffer from)
{
	struct st_buffer b = st_buffer_new(from.bytes);
	memcpy(st_at(b), st_at(from), from.bytes);
	return b;
}

/* What a chain of ops writes, f32 unless it is a state. passing: between two ops; a fused launch leaves it as it is. */
struct output {
	const char *name;
	enum plumb_format format;
	struct st_buffer twin, opt, before;
	bool passing;
};

static void outputs_begin(struct output *o, int count, int run)
{
	for (int i = 0; i < count; i++)
		memcpy(st_at(o[i].opt), st_at(o[i].before), o[i].before.bytes);
	for (int i = 0; i < count; i++)
		if (o[i].passing)
			st_buffer_poison(o[i].opt, run);
}

static bool same_values(const struct output *o)
{
	const int64_t n = (int64_t)(o->opt.bytes / plumb_format_row_bytes(o->format, 1));
	struct st_buffer a = st_floats_new(n), b = st_floats_new(n);
	plumb_decode(o->format, st_at(o->opt), n, st_floats(a));
	plumb_decode(o->format, st_at(o->twin), n, st_floats(b));
	const bool same = st_difference(st_floats(a), st_floats(b), n) < 0;
	st_buffer_free(a);
	st_buffer_free(b);
	return same;
}

static void outputs_check(const struct output *o, int count, int run, bool fused)
{
	for (int i = 0; i < count; i++) {
		st_buffer_check(o[i].opt, o[i].name);
		if (o[i].passing && fused) {
			struct st_buffer poisoned = st_buffer_new(o[i].opt.bytes);
			st_buffer_poison(poisoned, run);
			ck_assert_msg(memcmp(st_at(poisoned), st_at(o[i].opt), poisoned.bytes) == 0,
				"run %d: %s is written, which only passes between the ops", run, o[i].name);
			st_buffer_free(poisoned);
			continue;
		}
		ck_assert_msg(same_values(&o[i]), "run %d: %s differs from the twin's", run, o[i].name);
	}
}

static struct output output_of(const char *name, struct st_buffer before, bool passing)
{
	return (struct output){name, PLUMB_F32, copy(before), copy(before), before, passing};
}

static void outputs_free(struct output *o, int count)
{
	for (int i = 0; i < count; i++) {
		st_buffer_free(o[i].twin);
		st_buffer_free(o[i].opt);
		st_buffer_free(o[i].before);
	}
}

/* ---- gdn_step ---- */

struct gdn {
	int32_t position;
	struct st_buffer qkv, b, a, z;
	struct st_weight conv, a_log, dt_bias, norm;
	enum plumb_format state_format;
	struct output out[MOST_OUTPUTS]; /* window, y, state, o, out */
};
enum { WINDOW, Y, STATE, O, OUT };

static struct gdn gdn_new(uint64_t *random, bool taken, bool wild)
{
	static const int64_t dims[] = {1, 3, 4, 31, 32, 64, 100, 127, 128}, long_dims[] = {129, 200, 260};
	static const enum plumb_format formats[] = {PLUMB_F32, PLUMB_F16, PLUMB_BF16};
	struct gdn g = {.position = (int32_t)st_below(random, 9), .state_format = PICK(random, formats)};

	config.rms_norm_eps = 1e-6f;
	config.gdn_key_heads = 1 + (int)st_below(random, 3);
	config.gdn_value_heads = config.gdn_key_heads * (1 + (int)st_below(random, 3));
	config.gdn_key_dim = PICK(random, dims);
	config.gdn_value_dim = PICK(random, dims);
	config.gdn_conv_taps = 1 + (int)st_below(random, 4);
	config.gdn_gate = st_below(random, 2) ? PLUMB_GATE_SILU : PLUMB_GATE_SIGMOID;
	if (!taken)
		switch (st_below(random, 3)) {
		case 0:
			config.gdn_key_dim = PICK(random, long_dims);
			break;
		case 1:
			config.gdn_value_dim = PICK(random, long_dims);
			break;
		default:
			config.gdn_conv_taps = 5 + (int)st_below(random, 2);
		}
	const int64_t C = plumb_gdn_channels(&config), Hv = config.gdn_value_heads, Dv = config.gdn_value_dim;
	const int64_t states = Hv * Dv * config.gdn_key_dim;
	const enum plumb_format format = PICK(random, formats);
	const int shift = (int)st_below(random, 2);
	g.qkv = values(random, C, wild);
	g.b = values(random, Hv, wild);
	g.a = values(random, Hv, wild);
	g.z = values(random, Hv * Dv, wild);
	g.conv = st_weight_new(random, C, config.gdn_conv_taps, 0.5, format, shift);
	g.a_log = st_weight_new(random, 1, Hv, 1.0, format, shift);
	g.dt_bias = st_weight_new(random, 1, Hv, 1.0, PICK(random, formats), shift);
	g.norm = st_weight_new(random, 1, Dv, 1.0, PICK(random, formats), shift);
	g.out[WINDOW] = output_of("window", values(random, config.gdn_conv_taps * C, wild), false);
	g.out[Y] = output_of("y", values(random, C, false), true);
	struct st_buffer wide = values(random, states, false);
	struct st_buffer state = st_buffer_new(plumb_format_row_bytes(g.state_format, states));
	plumb_encode(g.state_format, st_floats(wide), states, st_at(state));
	st_buffer_free(wide);
	g.out[STATE] = output_of("state", state, false);
	g.out[STATE].format = g.state_format;
	g.out[O] = output_of("o", values(random, Hv * Dv, false), true);
	g.out[OUT] = output_of("out", values(random, Hv * Dv, false), false);
	return g;
}

static void gdn_free(struct gdn *g)
{
	st_buffer_free(g->qkv);
	st_buffer_free(g->b);
	st_buffer_free(g->a);
	st_buffer_free(g->z);
	st_weight_free(g->conv);
	st_weight_free(g->a_log);
	st_weight_free(g->dt_bias);
	st_weight_free(g->norm);
	outputs_free(g->out, 5);
}

/* The chain; other: an op without launches of its own comes before op number `other`. */
static void gdn_run(const struct gdn *g, const struct plumb_env *env, bool twin, int other)
{
	void *at[MOST_OUTPUTS];

	for (int i = 0; i < 5; i++)
		at[i] = st_at(twin ? g->out[i].twin : g->out[i].opt);
	struct plumb_gdn_conv conv = {1, &g->position, st_floats(g->qkv), &g->conv.w, at[WINDOW], at[Y]};
	struct plumb_gdn_recurrence step = {
		1, at[Y], st_floats(g->b), st_floats(g->a), &g->a_log.w, &g->dt_bias.w, at[STATE], g->state_format, at[O]};
	struct plumb_gdn_norm_gate gate = {1, at[O], st_floats(g->z), &g->norm.w, at[OUT]};
	const struct {
		plumb_op_fn *twin, *opt;
		enum plumb_op op;
		const void *args;
	} call[] = {{gdn_conv_twin, gdn_conv_opt, PLUMB_GDN_CONV, &conv},
		{gdn_recurrence_twin, gdn_recurrence_opt, PLUMB_GDN_RECURRENCE, &step},
		{gdn_norm_gate_twin, gdn_norm_gate_opt, PLUMB_GDN_NORM_GATE, &gate}};
	for (int i = 0; i < 3; i++) {
		if (!twin && i == other)
			ck_assert_int_eq(plumb_fuse_before(env, &plumb_ops[PLUMB_EMBED]), PLUMB_OK);
		if (!twin)
			ck_assert_int_eq(plumb_fuse_before(env, &plumb_ops[call[i].op]), PLUMB_OK);
		st_call(twin ? call[i].twin : call[i].opt, env, call[i].args);
	}
}

START_TEST(gdn_step_equals_twin)
{
	uint64_t random = (uint64_t)_i + 1;

	for (int round = 0; round < ROUNDS; round++) {
		const bool taken = round % 4 != 3, wild = round % 5 == 4;
		struct gdn g = gdn_new(&random, taken, wild);
		struct plumb_env env = {.cfg = &config, .policy = (enum plumb_policy)(round % 2), .err = &error};
		gdn_run(&g, &env, true, -1);
		for (int run = 0; run < WATCHED_RUNS; run++) {
			const int other = round % 3 == 2 ? run % 4 : -1; /* 3: behind the last */
			const bool fused = taken && (other < 1 || other > 2);
			if (!(env.device = device_of(run)))
				continue;
			outputs_begin(g.out, 5, run);
			const int64_t before = plumb_device_launches(env.device);
			plumb_fuse_begin(env.device, PLUMB_FUSE_GDN_STEP);
			gdn_run(&g, &env, false, other);
			ck_assert_msg(plumb_fuse_end(&env, PLUMB_OK) == PLUMB_OK, "%s", error.text);
			ck_assert_int_eq(plumb_device_launches(env.device) - before, fused ? 1 : 3);
			outputs_check(g.out, 5, run, fused);
		}
		gdn_free(&g);
	}
}
END_TEST

/* ---- hc_inject ---- */

START_TEST(hc_inject_equals_twin)
{
	static const int64_t hidden[] = {8, 16, 64, 200, 256, 264, 320, 1100, 1288, 4104};
	uint64_t random = (uint64_t)_i + 100;
	int fused = 0;

	for (int round = 0; round < ROUNDS; round++) {
		const bool wild = round % 5 == 4, in_place = round % 7 == 6;
		const int64_t D = PICK(&random, hidden), S = D > 4000 ? 1 : D > 1000 ? 4 : 1 + st_below(&random, 6);
		const int64_t R = 1 + st_below(&random, 40);
		const enum plumb_format format = round % 4 == 1 ? PLUMB_F32 : PLUMB_BF16;
		const bool injects = round % 3 != 1;
		struct plumb_env env = {.cfg = &config, .policy = (enum plumb_policy)(round % 2), .err = &error};
		struct st_buffer residual = values(&random, S * D, wild), branch = values(&random, D, wild);
		struct st_buffer injection = values(&random, S, wild);
		struct st_weight norm =
			st_weight_new(&random, 1, S * D, 0.3, round % 6 ? format : PLUMB_F32, (int)st_below(&random, 2));
		struct st_weight down = st_weight_new(&random, R, S * D, 0.1, format, 0);
		struct st_weight inject = st_weight_new(&random, S, S * D, 0.1, format, 0);
		struct output out[] = {
			output_of("residual", in_place ? copy(residual) : values(&random, S * D, false), false),
			output_of("normed", values(&random, S * D, false), false),
			output_of("low", values(&random, R, false), false),
			output_of("logits", values(&random, S, false), false)};

		config.streams = (int)S, config.hidden = D, config.low_rank = R, config.rms_norm_eps = 1e-6f;
		for (int run = -1; run < WATCHED_RUNS; run++) { /* -1: the twin */
			const bool twin = run < 0;
			void *at[4];
			for (int i = 0; i < 4; i++)
				at[i] = st_at(twin ? out[i].twin : out[i].opt);
			struct plumb_hc_inject first = {
				1, in_place ? at[0] : st_at(residual), st_floats(branch), st_floats(injection), at[0]};
			struct plumb_hc_norm_down second = {1, at[0], &norm.w, &down.w, injects ? &inject.w : NULL, at[1],
				at[2], injects ? at[3] : NULL};
			if (twin) {
				st_call(hc_inject_twin, &env, &first);
				st_call(hc_norm_down_twin, &env, &second);
				continue;
			}
			if (!(env.device = device_of(run)))
				continue;
			const bool other = run % 3 == 2;
			int64_t alone = -plumb_device_launches(env.device);
			st_call(hc_norm_down_opt, &env, &second); /* of what lies there: how many launches it is */
			alone += plumb_device_launches(env.device);
			outputs_begin(out, 4, run);
			int64_t launches = -plumb_device_launches(env.device);
			plumb_fuse_begin(env.device, PLUMB_FUSE_ALL);
			st_call(hc_inject_opt, &env, &first);
			if (other)
				ck_assert_int_eq(plumb_fuse_before(&env, &plumb_ops[PLUMB_PLE_EMBED]), PLUMB_OK);
			st_call(hc_norm_down_opt, &env, &second);
			ck_assert_msg(plumb_fuse_end(&env, PLUMB_OK) == PLUMB_OK, "%s", error.text);
			launches += plumb_device_launches(env.device);
			ck_assert_int_eq(launches, alone == 2 ? 3 : in_place || other ? 2 : 1);
			fused += launches == 1;
			outputs_check(out, 4, run, false);
		}
		st_buffer_free(residual);
		st_buffer_free(branch);
		st_buffer_free(injection);
		st_weight_free(norm);
		st_weight_free(down);
		st_weight_free(inject);
		outputs_free(out, 4);
	}
	ck_assert_int_ge(fused, ROUNDS); /* of so many times WATCHED_RUNS */
}
END_TEST

/* ---- attn_heads ---- */

/* Each by itself is held against the twin in test_attention and test_qsa. */
START_TEST(attn_heads_equal_two_launches)
{
	enum { ROWS = 16, WITH = 6 };
	static const int64_t dims[] = {8, 64, 100, 256}, index_dims[] = {8, 64, 256, 260};
	static const int32_t page[ROWS / 4] = {2, 0, 3, 1};
	uint64_t random = (uint64_t)_i + 300;

	for (int round = 0; round < ROUNDS; round++) {
		const int64_t Hq = 1 + st_below(&random, 4), Hkv = 1 + st_below(&random, 2), D = PICK(&random, dims);
		const int64_t Hi = 1 + st_below(&random, 3), Di = PICK(&random, index_dims),
			      half = 1 + st_below(&random, 4);
		const int32_t position = (int32_t)st_below(&random, ROWS), block_tokens = 1 << st_below(&random, 3);
		const bool wild = round % 5 == 4, near = Di <= 256;
		struct st_buffer qg = values(&random, Hq * 2 * D, wild), k = values(&random, Hkv * D, wild);
		struct st_buffer v = values(&random, Hkv * D, wild), rope = values(&random, ROWS * 2 * half, false);
		struct st_buffer projected = values(&random, (Hi + 1) * Di, wild), mean = st_floats_new(Di);
		struct st_weight norm = st_weight_new(&random, 1, D, 0.3, PLUMB_BF16, 0);
		struct st_weight index_norm = st_weight_new(&random, 1, Di, 0.3, PLUMB_F32, 0);
		struct output out[WITH] = {output_of("q", values(&random, Hq * D, false), false),
			output_of("keys", values(&random, ROWS * Hkv * D, false), false),
			output_of("values", values(&random, ROWS * Hkv * D, false), false),
			output_of("query", values(&random, Hi * Di, false), false),
			output_of("raw_keys", values(&random, ROWS * Di, false), false),
			output_of("block_keys", values(&random, ROWS * Di, false), false)};
		for (int run = 0; run < WATCHED_RUNS; run++) {
			struct plumb_env env = {.err = &error, .device = device_of(run)};
			if (!env.device)
				continue;
			outputs_begin(out, WITH, run);
			for (int fused = 0; fused < 2; fused++) {
				struct plumb_cache cache[WITH];
				void *at[WITH];
				for (int i = 0; i < WITH; i++) {
					at[i] = st_at(fused ? out[i].opt : out[i].twin);
					cache[i] = (struct plumb_cache){.data = at[i],
						.page = page,
						.page_rows = 4,
						.rows = ROWS,
						.width = (int32_t)(i < 3 ? Hkv * D : Di)};
					if (!fused)
						memcpy(at[i], st_at(out[i].before), out[i].before.bytes);
				}
				struct plumb_attn_heads heads = {.position = &position,
					.qg = st_floats(qg),
					.k = st_floats(k),
					.v = st_floats(v),
					.rope = st_floats(rope),
					.q_norm = norm.w.data,
					.k_norm = norm.w.data,
					.q_norm_format = PLUMB_BF16,
					.k_norm_format = PLUMB_BF16,
					.q_heads = Hq,
					.kv_heads = Hkv,
					.head_dim = D,
					.half = half,
					.eps = 1e-6f,
					.bf16 = round % 2,
					.q = at[0],
					.keys = cache[1],
					.values = cache[2]};
				struct plumb_qsa_heads index = {.position = &position,
					.projected = st_floats(projected),
					.mean = st_floats(mean),
					.rope = st_floats(rope),
					.q_norm = index_norm.w.data,
					.k_norm = index_norm.w.data,
					.index_heads = Hi,
					.index_dim = Di,
					.half = half,
					.block_tokens = block_tokens,
					.eps = 1e-6f,
					.bf16 = round % 2,
					.query = at[3],
					.raw_keys = cache[4],
					.block_keys = cache[5]};
				const bool other = run % 4 == 3;
				int64_t launches = -plumb_device_launches(env.device);
				plumb_fuse_begin(env.device, fused ? PLUMB_FUSE_ALL : 0);
				ck_assert_int_eq(plumb_fuse_attn_heads(&env, &heads), PLUMB_OK);
				if (other)
					ck_assert_int_eq(plumb_fuse_before(&env, &plumb_ops[PLUMB_QSA_SCORE]), PLUMB_OK);
				ck_assert_msg(plumb_fuse_qsa_heads(&env, &index) == PLUMB_OK, "%s", error.text);
				ck_assert_int_eq(plumb_fuse_end(&env, PLUMB_OK), PLUMB_OK);
				launches += plumb_device_launches(env.device);
				ck_assert_int_eq(launches, fused && near && !other ? 1 : 2);
			}
			outputs_check(out, WITH, run, false);
		}
		st_buffer_free(qg);
		st_buffer_free(k);
		st_buffer_free(v);
		st_buffer_free(rope);
		st_buffer_free(projected);
		st_buffer_free(mean);
		st_weight_free(norm);
		st_weight_free(index_norm);
		outputs_free(out, WITH);
	}
}
END_TEST

/* ---- attn_gate ---- */

/* The combination by itself is held against the twin in test_attention: here it is one launch against two. */
START_TEST(attn_gate_equals_two_launches)
{
	static const int64_t dims[] = {1, 7, 64, 100, 256};
	uint64_t random = (uint64_t)_i + 200;

	for (int round = 0; round < ROUNDS; round++) {
		const int64_t H = 1 + st_below(&random, 5), D = PICK(&random, dims), n = H * D;
		const int32_t most = 1 + (int32_t)st_below(&random, 700), position = (int32_t)st_below(&random, most),
			      count = 0;
		const int64_t chunks = (most + PLUMB_ATTN_CHUNK - 1) / PLUMB_ATTN_CHUNK;
		const bool wild = round % 5 == 4;
		struct st_buffer partial = values(&random, chunks * n, wild), qg = values(&random, 2 * n, wild);
		struct output out[] = {output_of("o", values(&random, n, false), true),
			output_of("out", values(&random, n, false), false)};
		for (int run = 0; run < WATCHED_RUNS; run++) {
			struct plumb_env env = {.err = &error, .device = device_of(run)};
			if (!env.device)
				continue;
			for (int fused = 0; fused < 2; fused++) {
				struct plumb_attn_token token = {.position = &position,
					.count = &count,
					.q_heads = H,
					.kv_heads = 1,
					.head_dim = D,
					.block_tokens = most + 1,
					.most = most,
					.bf16 = round % 2,
					.partial = st_floats(partial),
					.o = st_at(fused ? out[0].opt : out[0].twin)};
				struct plumb_attn_gate_launch gate = {
					token.o, st_floats(qg), st_at(fused ? out[1].opt : out[1].twin), H, D, round % 2};
				outputs_begin(out, 2, run);
				int64_t launches = -plumb_device_launches(env.device);
				plumb_fuse_begin(env.device, fused ? PLUMB_FUSE_ALL : 0);
				ck_assert_int_eq(plumb_fuse_attn_combine(&env, &token), PLUMB_OK);
				ck_assert_msg(plumb_fuse_attn_gate(&env, &gate) == PLUMB_OK, "%s", error.text);
				ck_assert_int_eq(plumb_fuse_end(&env, PLUMB_OK), PLUMB_OK);
				launches += plumb_device_launches(env.device);
				ck_assert_int_eq(launches, fused ? 1 : 2);
			}
			outputs_check(out, 2, run, true);
		}
		st_buffer_free(partial);
		st_buffer_free(qg);
		outputs_free(out, 2);
	}
}
END_TEST

/* ---- moe_early ---- */

enum { EXPERTS = 6 };

struct moe {
	int64_t D, F, Fs;
	struct st_buffer residual, branch, injection;              /* of what writes x */
	struct st_weight router[2], shared[3], expert[3][EXPERTS]; /* gate, up, down */
	struct plumb_weight bank[3][EXPERTS];
	struct output out[7];            /* logits, weight, shared_weight, hidden, shared_hidden, y, x */
	int32_t chosen[2][EXPERTS], bad; /* 0: none */
};

static struct moe moe_new(uint64_t *random, bool wild)
{
	static const int64_t hidden[] = {8, 64, 200, 264, 800}, inner[] = {8, 16, 24, 264, 7};
	static const enum plumb_format formats[] = {PLUMB_BF16, PLUMB_BF16, PLUMB_F32};
	struct moe m = {.D = PICK(random, hidden), .F = PICK(random, inner), .Fs = PICK(random, inner)};
	const int64_t A = 1 + st_below(random, EXPERTS), rows[] = {m.F, m.F, m.D}, cols[] = {m.D, m.D, m.F};
	const enum plumb_format format = PICK(random, formats);
	const int64_t counts[] = {EXPERTS, A, 1, A * m.F, m.Fs, m.D, m.D};
	static const char *const names[] = {"logits", "weight", "shared_weight", "hidden", "shared_hidden", "y", "x"};

	config.hidden = m.D, config.experts = EXPERTS, config.experts_per_token = (int)A;
	config.expert_inner = m.F, config.shared_inner = m.Fs, config.norm_topk = st_below(random, 2) > 0;
	config.streams = 1;
	m.residual = values(random, m.D, wild);
	m.branch = values(random, m.D, false);
	m.injection = values(random, 1, false);
	m.router[0] = st_weight_new(random, EXPERTS, m.D, 0.2, format, 0);
	m.router[1] = st_weight_new(random, 1, m.D, 0.2, format, 0);
	for (int i = 0; i < 3; i++) {
		m.shared[i] = st_weight_new(random, i < 2 ? m.Fs : m.D, i < 2 ? m.D : m.Fs, 0.2, format, 0);
		for (int e = 0; e < EXPERTS; e++) {
			m.expert[i][e] = st_weight_new(random, rows[i], cols[i], 0.2, format, 0);
			m.bank[i][e] = m.expert[i][e].w;
		}
	}
	for (int i = 0; i < 7; i++)
		m.out[i] = output_of(names[i], values(random, counts[i], false), false);
	return m;
}

static void moe_free(struct moe *m)
{
	st_buffer_free(m->residual);
	st_buffer_free(m->branch);
	st_buffer_free(m->injection);
	st_weight_free(m->router[0]);
	st_weight_free(m->router[1]);
	for (int i = 0; i < 3; i++) {
		st_weight_free(m->shared[i]);
		for (int e = 0; e < EXPERTS; e++)
			st_weight_free(m->expert[i][e]);
	}
	outputs_free(m->out, 7);
}

/* What runs once more, and is then what the op behind it comes behind. */
enum again { NOTHING, ROUTER_BEFORE_GATE_UP, ROUTER_BEFORE_DOWN, X_BEFORE_GATE_UP, AGAINS };

/* The chain, and before it what writes x; bad: the first expert that is chosen becomes that. */
static void moe_run(struct moe *m, const struct plumb_env *env, bool twin, enum again again)
{
	const int before_op = again == ROUTER_BEFORE_DOWN ? 3
	                      : again                     ? 2
	                                                  : -1,
		  repeated = again == X_BEFORE_GATE_UP ? 0 : 1;
	float *at[7];
	int32_t *chosen = m->chosen[!twin];

	for (int i = 0; i < 7; i++)
		at[i] = st_floats(twin ? m->out[i].twin : m->out[i].opt);
	const struct plumb_hc_inject before = {
		1, st_floats(m->residual), st_floats(m->branch), st_floats(m->injection), at[6]};
	const struct plumb_moe_router router = {1, at[6], &m->router[0].w, &m->router[1].w, at[0], chosen, at[1], at[2]};
	const struct plumb_moe_gate_up gate_up = {
		1, at[6], chosen, m->bank[0], m->bank[1], &m->shared[0].w, &m->shared[1].w, at[3], at[4]};
	const struct plumb_moe_down down = {
		1, at[3], at[4], chosen, at[1], at[2], m->bank[2], &m->shared[2].w, at[5], NULL, NULL};
	const struct {
		plumb_op_fn *twin, *opt;
		enum plumb_op op;
		const void *args;
	} call[] = {{hc_inject_twin, hc_inject_opt, PLUMB_HC_INJECT, &before},
		{moe_router_twin, moe_router_opt, PLUMB_MOE_ROUTER, &router},
		{moe_gate_up_twin, moe_gate_up_opt, PLUMB_MOE_GATE_UP, &gate_up},
		{moe_down_twin, moe_down_opt, PLUMB_MOE_DOWN, &down}};
	for (int i = 0; i < 4; i++) {
		if (!twin && i == before_op) {
			ck_assert_int_eq(plumb_fuse_before(env, &plumb_ops[call[repeated].op]), PLUMB_OK);
			st_call(call[repeated].opt, env, call[repeated].args);
		}
		if (!twin)
			ck_assert_int_eq(plumb_fuse_before(env, &plumb_ops[call[i].op]), PLUMB_OK);
		st_call(twin ? call[i].twin : call[i].opt, env, call[i].args);
		if (i == 1 && m->bad)
			chosen[0] = m->bad;
	}
}

/* The race device reports what is read too early. */
START_TEST(moe_early_equals_twin)
{
	uint64_t random = (uint64_t)_i + 400;

	for (int round = 0; round < ROUNDS; round++) {
		struct moe m = moe_new(&random, round % 5 == 4);
		struct plumb_env env = {.cfg = &config, .policy = (enum plumb_policy)(round % 2), .err = &error};
		m.bad = round % 7 == 6 ? round % 2 ? -1 : EXPERTS : 0;
		moe_run(&m, &env, true, NOTHING);
		for (int run = 0; run < WATCHED_RUNS; run++) {
			const enum again again = !m.bad && round % 3 == 2 ? 1 + (run + round / 3) % (AGAINS - 1) : NOTHING;
			if (!(env.device = device_of(run)))
				continue;
			if (env.device == race)
				moe_run(&m, &env, false, NOTHING); /* makes the banks, for which the host waits */
			outputs_begin(m.out, 7, run);
			memset(m.chosen[1], 0xff, sizeof m.chosen[1]);
			const int64_t before = plumb_device_launches(env.device);
			plumb_fuse_begin(env.device, PLUMB_FUSE_MOE_EARLY);
			moe_run(&m, &env, false, again);
			ck_assert_msg(plumb_fuse_end(&env, PLUMB_OK) == PLUMB_OK, "%s", error.text);
			ck_assert_int_eq(plumb_device_launches(env.device) - before, again ? 5 : 4);
			outputs_check(m.out, 7, run, false);
			ck_assert_mem_eq(m.chosen[0], m.chosen[1], sizeof(int32_t) * (size_t)config.experts_per_token);
		}
		moe_free(&m);
	}
}
END_TEST

/* ---- undone ---- */

/* What was left goes when the step ends; after an error it is dropped; outside of a step nothing is left; and a taker of other
 * buffers lets it go. */
START_TEST(left_over)
{
	uint64_t random = 7;
	struct gdn g = gdn_new(&random, true, false), h = g;
	struct plumb_env env = {.cfg = &config, .err = &error, .device = st_device(0)};
	struct plumb_gdn_conv conv = {
		1, &g.position, st_floats(g.qkv), &g.conv.w, st_at(g.out[WINDOW].opt), st_at(g.out[Y].opt)};

	h.out[Y] = output_of("y", copy(g.out[Y].before), true);
	memcpy(st_at(h.out[Y].opt), st_at(g.out[Y].before), g.out[Y].before.bytes);
	gdn_run(&g, &env, true, -1);
	for (int how = 0; how < 4; how++) {
		int64_t launches = -plumb_device_launches(env.device);
		outputs_begin(g.out, 5, 0);
		if (how > 0)
			plumb_fuse_begin(env.device, how == 3 ? PLUMB_FUSE_HC_INJECT : PLUMB_FUSE_ALL);
		st_call(gdn_conv_opt, &env, &conv);
		if (how > 0)
			ck_assert_int_eq(plumb_fuse_end(&env, how == 2 ? PLUMB_MISMATCH : PLUMB_OK),
				how == 2 ? PLUMB_MISMATCH : PLUMB_OK);
		launches += plumb_device_launches(env.device);
		ck_assert_int_eq(launches, how == 2 ? 0 : 1);
		ck_assert_int_eq(same_values(&g.out[Y]), how != 2);
	}
	/* the recurrence reads another y than the convolution that waits writes */
	struct plumb_gdn_recurrence step = {1, st_at(h.out[Y].opt), st_floats(g.b), st_floats(g.a), &g.a_log.w,
		&g.dt_bias.w, st_at(g.out[STATE].opt), g.state_format, st_at(g.out[O].opt)};
	outputs_begin(g.out, 5, 0);
	int64_t launches = -plumb_device_launches(env.device);
	plumb_fuse_begin(env.device, PLUMB_FUSE_ALL);
	st_call(gdn_conv_opt, &env, &conv);
	st_call(gdn_recurrence_opt, &env, &step);
	launches += plumb_device_launches(env.device);
	ck_assert_int_eq(launches, 2);
	ck_assert(same_values(&g.out[Y]));
	ck_assert_int_eq(plumb_fuse_end(&env, PLUMB_OK), PLUMB_OK);
	outputs_free(&h.out[Y], 1);
	gdn_free(&g);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("fuse");
	TCase *t = suite_part(s, "simt", 300);

	race = st_race_device();
	tcase_add_loop_test(t, gdn_step_equals_twin, 0, 2);
	tcase_add_loop_test(t, hc_inject_equals_twin, 0, 2);
	tcase_add_loop_test(t, attn_heads_equal_two_launches, 0, 2);
	tcase_add_loop_test(t, attn_gate_equals_two_launches, 0, 2);
	tcase_add_loop_test(t, moe_early_equals_twin, 0, 2);
	tcase_add_test(t, left_over);
	int failed = suite_run(s);
	st_devices_close();
	plumb_device_close(race);
	return failed;
}
