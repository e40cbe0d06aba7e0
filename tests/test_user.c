/* SPDX-License-Identifier: MIT */
/* Kernels from shared objects, in this process: the table of what feeds what is the decoder's, the header's numbers are
 * the core's, a kernel bound to some layers runs there and nowhere else, and a binding that cannot work is refused.
 * What goes wrong while they run is tests/test_user_cli.c. */
#include <check.h>
#include <math.h>
#include <string.h>

#include "core/flow.h"
#include "core/numeric.h"
#include "core/plumb_kernel.h"
#include "core/profile_bytes.h"
#include "core/weight.h"
#include "opt/user.h"
#include "ref/twin/twin.h"
#include "tests/support/decode.h"
#include "tests/support/suite.h"

#define LIBRARY(name) PLUMB_USER_DIR "/" name ".so"

/* ---- the flow ---- */

enum { TRACE_CALLS = 256 };

/* Who wrote a buffer last. */
struct writer {
	const void *data;
	enum plumb_op op;
	const char *output;
};

struct flow_trace {
	struct writer writer[512];
	int writers;
	enum plumb_op order[TRACE_CALLS];
	int layer[TRACE_CALLS], calls;
	bool seen[PLUMB_OP_COUNT][16][PLUMB_OP_COUNT][16]; /* output k of an op was input i of another */
};

static const void *pointer_at(const struct plumb_call *call, const struct plumb_operand *o)
{
	const void *p;
	memcpy(&p, (const char *)call->args + o->offset, sizeof p);
	return p;
}

static int flow_before(void *self, const struct plumb_call *call)
{
	struct flow_trace *t = self;
	const struct plumb_op_info *info = &plumb_ops[call->op];

	if (t->calls < TRACE_CALLS) {
		t->layer[t->calls] = call->layer;
		t->order[t->calls++] = call->op;
	}
	for (int i = 0; i < info->operands; i++) {
		const struct writer *w = NULL;
		for (int k = 0; k < t->writers; k++)
			if (t->writer[k].data == pointer_at(call, &info->operand[i]))
				w = &t->writer[k];
		if (info->operand[i].role != PLUMB_IN || !w)
			continue;
		ck_assert_msg(plumb_flow_feeds(w->op, w->output, call->op, info->operand[i].name),
			"%s.%s feeds %s.%s, the table does not say so", plumb_ops[w->op].name, w->output, info->name,
			info->operand[i].name);
		for (int k = 0; k < plumb_ops[w->op].operands; k++)
			if (strcmp(plumb_ops[w->op].operand[k].name, w->output) == 0)
				t->seen[w->op][k][call->op][i] = true;
	}
	return PLUMB_OK;
}

static int flow_after(void *self, const struct plumb_call *call)
{
	struct flow_trace *t = self;
	const struct plumb_op_info *info = &plumb_ops[call->op];

	for (int i = 0; i < info->operands; i++) {
		const void *data = pointer_at(call, &info->operand[i]);
		int k = 0;
		if (info->operand[i].role != PLUMB_OUT || !data)
			continue;
		while (k < t->writers && t->writer[k].data != data)
			k++;
		ck_assert_int_lt(k, 512);
		t->writer[k] = (struct writer){data, call->op, info->operand[i].name};
		t->writers = k == t->writers ? k + 1 : t->writers;
	}
	return PLUMB_OK;
}

START_TEST(flow_is_the_decoders)
{
	static struct flow_trace t;
	struct plumb_checkpoint *checkpoint = decode_tiny();
	const struct plumb_model *model = plumb_checkpoint_model(checkpoint);
	struct plumb_decoder *d = decode_create(model, &plumb_ref_twin, NULL, NULL);
	const struct plumb_observer observer = {flow_before, flow_after, &t};
	const int32_t token = 5;

	plumb_decoder_observe(d, &observer);
	decode_step(d, &token, 1);
	for (int l = 0; l <= model->cfg.layers; l++) {
		struct plumb_step step[PLUMB_FLOW_MAX];
		int n = plumb_flow_order(&model->cfg, l, step), k = 0;
		for (int i = 0; i < t.calls; i++)
			if (t.layer[i] == l) {
				ck_assert_int_lt(k, n);
				ck_assert_str_eq(plumb_ops[step[k++].op].name, plumb_ops[t.order[i]].name);
			}
		ck_assert_int_eq(k, n);
	}
	/* and nothing in the table that does not happen: residuals, which go everywhere, apart */
	for (int from = 0; from < PLUMB_OP_COUNT; from++)
		for (int k = 0; k < plumb_ops[from].operands; k++)
			for (int to = 0; to < PLUMB_OP_COUNT; to++)
				for (int i = 0; i < plumb_ops[to].operands; i++) {
					const struct plumb_operand *out = &plumb_ops[from].operand[k],
								   *in = &plumb_ops[to].operand[i];
					if (out->role != PLUMB_OUT || in->role != PLUMB_IN ||
						strncmp(out->name, "residual", 8) == 0)
						continue;
					ck_assert_msg(plumb_flow_feeds((enum plumb_op)from, out->name, (enum plumb_op)to,
							      in->name) == t.seen[from][k][to][i],
						"%s.%s to %s.%s", plumb_ops[from].name, out->name, plumb_ops[to].name,
						in->name);
				}
	plumb_decoder_destroy(d);
	plumb_checkpoint_close(checkpoint);
}
END_TEST

START_TEST(flow_leaves_what_others_read)
{
	const enum plumb_op hc[] = {PLUMB_HC_NORM_DOWN, PLUMB_HC_UP_MIX}, attn[] = {PLUMB_ATTN_IN_PROJ, PLUMB_ATTN_QK_ROPE};
	ck_assert(!plumb_flow_leaves(PLUMB_HC_NORM_DOWN, "low", hc, 2));
	ck_assert(plumb_flow_leaves(PLUMB_HC_UP_MIX, "injection", hc, 2));
	ck_assert(plumb_flow_leaves(PLUMB_ATTN_IN_PROJ, "qg", attn, 2)); /* the gate reads it */
	ck_assert(!plumb_flow_leaves(PLUMB_ATTN_IN_PROJ, "k", attn, 2));
	ck_assert(plumb_flow_leaves(PLUMB_ATTN_IN_PROJ, "k", attn, 1));
}
END_TEST

/* ---- numbers of the header ---- */

static bool same(float a, float b)
{
	return plumb_f32_bits(a) == plumb_f32_bits(b) || (isnan(a) && isnan(b));
}

/* Which ops can be one kernel, of the release. */
static const struct {
	enum plumb_op op[4];
	int ops;
	const char *why; /* NULL: they can */
} joins[] = {
	{{PLUMB_ATTN_GATE}, 1, NULL},
	{{PLUMB_HC_NORM_DOWN, PLUMB_HC_UP_MIX}, 2, NULL},
	{{PLUMB_HC_NORM_DOWN, PLUMB_HC_UP_MIX, PLUMB_LM_HEAD, PLUMB_ARGMAX}, 4, NULL},
	{{PLUMB_MOE_ROUTER, PLUMB_MOE_GATE_UP, PLUMB_MOE_DOWN}, 3, NULL},
	{{PLUMB_ARGMAX, PLUMB_EMBED}, 2,
		"no layer runs embed right after argmax: after argmax comes nothing, before embed nothing"},
	{{PLUMB_HC_UP_MIX, PLUMB_HC_NORM_DOWN}, 2,
		"after hc_up_mix comes gdn_in_proj, attn_in_proj, moe_router or lm_head, before hc_norm_down ple_conv or "
		"hc_inject"},
	{{PLUMB_EMBED, PLUMB_HC_NORM_DOWN}, 2, "after embed comes nothing"}, /* the layers lie between */
	{{PLUMB_MOE_DOWN, PLUMB_HC_INJECT}, 2,
		"layer 0 runs hc_inject without the others too, between gdn_out_proj and hc_norm_down"},
	{{PLUMB_HC_INJECT, PLUMB_HC_NORM_DOWN}, 2, "without the others too, between the layer before and hc_up_mix"},
};

START_TEST(ops_that_can_be_one_kernel)
{
	struct plumb_config release;
	char text[700];

	plumb_release_config(&release);
	ck_assert_int_eq(plumb_flow_joins(&release, joins[_i].op, joins[_i].ops, text, sizeof text), joins[_i].why == NULL);
	ck_assert_msg(!joins[_i].why || strstr(text, joins[_i].why), "%s", text);
}
END_TEST

START_TEST(numbers_are_the_cores)
{
	uint64_t seed = 1;

	for (uint32_t code = 0; code < 65536; code++) {
		uint16_t half = (uint16_t)code;
		float f16, bf16;
		plumb_decode(PLUMB_F16, &half, 1, &f16);
		plumb_decode(PLUMB_BF16, &half, 1, &bf16);
		ck_assert_msg(same(plumb_of_f16(half), f16), "f16 0x%x: %a, core %a", code, (double)plumb_of_f16(half),
			(double)f16);
		ck_assert_msg(same(plumb_of_bf16(half), bf16), "bf16 0x%x", code);
	}
	for (int i = 0; i < 200000; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		float f = plumb_bits_f32(i < 65536 ? (uint32_t)i << 16 | 0x8000u : (uint32_t)(seed >> 32));
		ck_assert_msg(same(plumb_rne(1, f), plumb_round_bf16(f)), "%a rounds to %a, core %a", (double)f,
			(double)plumb_rne(1, f), (double)plumb_round_bf16(f));
		ck_assert(same(plumb_rne(0, f), f));
	}
}
END_TEST

/* Weights of odd sizes in every format, of any bytes. */
START_TEST(values_are_the_cores)
{
	enum { ROWS = 131, COLS = 277 };
	static unsigned char data[ROWS * COLS * 4 + 1], scale[ROWS * COLS * 4 + 1];
	static float row[COLS];
	uint64_t seed = (uint64_t)_i + 7;

	for (size_t i = 0; i < sizeof data; i++) {
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		data[i] = (unsigned char)(seed >> 56);
		scale[i] = (unsigned char)(seed >> 48);
	}
	for (int bf16 = 0; bf16 < 2; bf16++) {
		const struct plumb_weight w = {.format = (enum plumb_format)_i,
			.rows = ROWS,
			.cols = COLS,
			.data = data + 1,
			.scale = scale + 1,
			.scale_format = bf16 ? PLUMB_BF16 : PLUMB_F32,
			.global = 0.37f};
		const struct plumb_kernel_matrix m = {.format = _i + 1,
			.scale_format = (int32_t)w.scale_format + 1,
			.rows = ROWS,
			.cols = COLS,
			.data = w.data,
			.scale = w.scale,
			.global = w.global};
		for (int64_t n = 0; n < ROWS; n++) {
			plumb_weight_row(&w, n, 0, COLS, row);
			for (int64_t k = 0; k < COLS; k++)
				ck_assert_msg(same(plumb_value(&m, n, k), row[k]), "%s [%lld, %lld]: %a, core %a",
					plumb_format_name(w.format), (long long)n, (long long)k,
					(double)plumb_value(&m, n, k), (double)row[k]);
		}
	}
}
END_TEST

/* ---- binding ---- */

struct rig {
	struct plumb_checkpoint *checkpoint;
	const struct plumb_model *model;
	struct plumb_plan plan;
	struct plumb_user *user;
	struct plumb_user_mark mark;
	struct plumb_error err;
};

static void rig_open(struct rig *r)
{
	memset(r, 0, sizeof *r);
	r->checkpoint = decode_tiny();
	r->model = plumb_checkpoint_model(r->checkpoint);
	ck_assert_int_eq(
		plumb_plan_create(&r->model->cfg, (struct plumb_binding){.set = &plumb_ref_twin}, &r->plan, &r->err),
		PLUMB_OK);
	ck_assert_int_eq(plumb_user_create(&r->mark, &r->user, &r->err), PLUMB_OK);
}

static void rig_close(struct rig *r)
{
	plumb_user_destroy(r->user);
	plumb_plan_free(&r->plan);
	plumb_checkpoint_close(r->checkpoint);
}

static int bind(struct rig *r, const char *library, const char *ops, int first, int last)
{
	return plumb_user_bind(r->user, &r->plan, &r->model->cfg, library, ops, first, last, NULL, &r->err);
}

/* Logits after a prompt and three tokens, in one policy. */
static uint64_t decode(struct rig *r, enum plumb_policy policy, struct plumb_guard *guard)
{
	const struct plumb_decoder_options options = {.policy = policy};
	const int32_t token[] = {5, 9, 2, 44, 17, 3, 3, 8};
	const struct plumb_user_options how = {.guard = guard};
	const struct plumb_runner runner = plumb_user_runner(r->user, &how);
	struct plumb_decoder *d;

	ck_assert_int_eq(plumb_decoder_create(r->model, &r->plan, &options, &d, &r->err), PLUMB_OK);
	plumb_decoder_run_through(d, &runner);
	decode_step(d, token, 5);
	for (int i = 5; i < 8; i++)
		decode_step(d, token + i, 1);
	uint64_t h = decode_logits(d);
	plumb_decoder_destroy(d);
	return h;
}

START_TEST(bound_to_layers)
{
	const enum plumb_policy policy = _i ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	struct plumb_guard *guard;
	struct rig r;

	rig_open(&r);
	uint64_t twin = decode(&r, policy, NULL);
	ck_assert_uint_eq(r.mark.calls, 0);
	ck_assert_int_eq(bind(&r, LIBRARY("inject"), "hc_inject", 1, 2), PLUMB_OK);
	ck_assert_int_eq(plumb_user_whole(r.user, &r.plan, &r.err), PLUMB_OK);
	for (int l = 0; l <= r.model->cfg.layers; l++) {
		const struct plumb_binding *b = &r.plan.binding[(size_t)l * PLUMB_OP_COUNT + PLUMB_HC_INJECT];
		ck_assert_int_eq(plumb_user_is(b), l == 1 || l == 2);
	}
	uint64_t calls = r.mark.calls;
	ck_assert_uint_eq(decode(&r, policy, NULL), twin);
	ck_assert_uint_eq(r.mark.calls - calls, 2 * 2 * 4); /* two sites in two layers, four passes */
	ck_assert_str_eq(r.mark.ops, "hc_inject");
	ck_assert_int_eq(r.mark.layer, 2);
	ck_assert_int_eq((int)r.mark.position, 7);
	ck_assert_int_eq(r.mark.under_way, 0);
	ck_assert_int_eq(plumb_guard_create(&guard, &r.err), PLUMB_OK);
	calls = r.mark.calls;
	ck_assert_uint_eq(decode(&r, policy, guard), twin);
	ck_assert_uint_eq(r.mark.calls - calls, 2 * 2 * 2 * 4);
	plumb_guard_destroy(guard);
	rig_close(&r);
}
END_TEST

START_TEST(refused_bindings)
{
	struct rig r;

	rig_open(&r);
	ck_assert_int_eq(bind(&r, LIBRARY("inject"), "hc_up_mix", 0, 4), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r.err.text, "offers no hc_up_mix; it has hc_inject"), "%s", r.err.text);
	ck_assert_int_eq(bind(&r, LIBRARY("gate"), "attn_gate", 0, 2), PLUMB_BAD_INPUT); /* GDN layers */
	ck_assert_msg(strstr(r.err.text, "no layer of 0..2 runs attn_gate"), "%s", r.err.text);
	ck_assert_int_eq(bind(&r, LIBRARY("device"), "attn_gate", 0, 4), PLUMB_NO_DEVICE);
	ck_assert_msg(strstr(r.err.text, "wants pointers of the simt device"), "%s", r.err.text);
	ck_assert_int_eq(bind(&r, "/nowhere/x.so", "attn_gate", 0, 4), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r.err.text, "cannot load /nowhere/x.so"), "%s", r.err.text);
	ck_assert_int_eq(r.mark.under_way, 0);
	/* one op of a fused entry, then another set for it: by name */
	ck_assert_int_eq(bind(&r, LIBRARY("fused"), "hc_up_mix", 0, 4), PLUMB_OK);
	ck_assert_int_eq(plumb_user_whole(r.user, &r.plan, &r.err), PLUMB_OK);
	for (int l = 0; l <= 4; l++)
		for (int op = PLUMB_HC_NORM_DOWN; op <= PLUMB_HC_UP_MIX; op++)
			ck_assert_str_eq(plumb_user_ops(&r.plan.binding[(size_t)l * PLUMB_OP_COUNT + (size_t)op]),
				"hc_norm_down+hc_up_mix");
	plumb_plan_bind(&r.plan, PLUMB_HC_NORM_DOWN, 2, 2, (struct plumb_binding){.set = &plumb_ref_twin});
	ck_assert_int_eq(plumb_user_whole(r.user, &r.plan, &r.err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(r.err.text, "layer 2: hc_norm_down") && strstr(r.err.text, "as a whole"), "%s", r.err.text);
	rig_close(&r);
}
END_TEST

/* What observers are told of a fused entry. */
static int fused_after(void *self, const struct plumb_call *call)
{
	struct plumb_call wrote[PLUMB_USER_MAX_OPS], full[PLUMB_USER_MAX_OPS];
	int ops = plumb_user_done(call, wrote, full), *seen = self;
	const struct plumb_operand *low = &plumb_ops[PLUMB_HC_NORM_DOWN].operand[5];

	if (call->op == PLUMB_HC_NORM_DOWN) {
		ck_assert_int_eq(ops, 0);
		ck_assert(plumb_user_hides(call->binding, "low") && plumb_user_hides(call->binding, "normed"));
	} else if (call->op == PLUMB_HC_UP_MIX) {
		ck_assert_int_eq(ops, 2);
		ck_assert_int_eq(wrote[0].op, PLUMB_HC_NORM_DOWN);
		ck_assert_int_eq(wrote[1].op, PLUMB_HC_UP_MIX);
		ck_assert_ptr_null(pointer_at(&wrote[0], low));
		ck_assert_ptr_nonnull(pointer_at(&full[0], low));
		ck_assert(!plumb_user_hides(call->binding, "mixed"));
		++*seen;
	} else {
		ck_assert_int_eq(ops, 1);
	}
	return PLUMB_OK;
}

START_TEST(fused_calls_are_done_together)
{
	const struct plumb_user_options how = {0};
	struct plumb_decoder *d;
	const int32_t token = 5;
	int seen = 0;
	struct rig r;

	ck_assert_str_eq(plumb_ops[PLUMB_HC_NORM_DOWN].operand[5].name, "low");
	rig_open(&r);
	ck_assert_int_eq(bind(&r, LIBRARY("fused"), "hc_norm_down+hc_up_mix", 0, 4), PLUMB_OK);
	const struct plumb_runner runner = plumb_user_runner(r.user, &how);
	const struct plumb_observer observer = {NULL, fused_after, &seen};
	ck_assert_int_eq(plumb_decoder_create(r.model, &r.plan, NULL, &d, &r.err), PLUMB_OK);
	plumb_decoder_run_through(d, &runner);
	plumb_decoder_observe(d, &observer);
	decode_step(d, &token, 1);
	ck_assert_int_eq(seen, 2 * r.model->cfg.layers + 1);
	plumb_decoder_destroy(d);
	rig_close(&r);
}
END_TEST

START_TEST(marks_in_words)
{
	struct plumb_user_mark m = {
		.phase = "run", .ops = "attn_gate", .path = "./x.so", .layer = 3, .layers = 4, .position = 12};
	char text[700];
	ck_assert_str_eq(plumb_user_mark_show(&m, text, sizeof text), "op attn_gate layer 3 position 12: ./x.so");
	m.layer = 4;
	m.position = -1;
	strcpy(m.phase, "prepare");
	ck_assert_str_eq(plumb_user_mark_show(&m, text, sizeof text), "op attn_gate outside the layers: ./x.so in prepare");
	m.ops[0] = '\0';
	strcpy(m.phase, "loading");
	ck_assert_str_eq(plumb_user_mark_show(&m, text, sizeof text), "./x.so while loading");
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("user");
	TCase *c = suite_part(suite, "user", 120);
	tcase_add_test(c, flow_is_the_decoders);
	tcase_add_test(c, flow_leaves_what_others_read);
	tcase_add_loop_test(c, ops_that_can_be_one_kernel, 0, (int)(sizeof joins / sizeof joins[0]));
	tcase_add_test(c, numbers_are_the_cores);
	tcase_add_loop_test(c, values_are_the_cores, 0, PLUMB_FORMAT_COUNT);
	tcase_add_loop_test(c, bound_to_layers, 0, 2);
	tcase_add_test(c, refused_bindings);
	tcase_add_test(c, fused_calls_are_done_together);
	tcase_add_test(c, marks_in_words);
	return suite_run(suite);
}
