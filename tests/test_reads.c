/* SPDX-License-Identifier: MIT */
/* What core/reads says a call reads: once each, in order, nothing out of range, the rows that the hash gives; and that it
 * is enough: with NaN in every byte that it does not name, no op of a decode writes another bit. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "core/digest.h"
#include "core/ops/embed.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/reads.h"
#include "core/synthetic.h"
#include "opt/device.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"

static struct plumb_error err;

/* ---- lists of parts ---- */

enum { PARTS = 4096 };
struct parts {
	struct plumb_read part[PARTS];
	int count;
};

static int collect(void *self, const struct plumb_read *read)
{
	struct parts *p = self;
	ck_assert_int_lt(p->count, PARTS);
	p->part[p->count++] = *read;
	return PLUMB_OK;
}

static struct plumb_config *small_config(void)
{
	struct plumb_config *cfg = malloc(sizeof *cfg);
	ck_assert_msg(plumb_preset_config("small", cfg, &err) == PLUMB_OK, "%s", err.text);
	return cfg;
}

START_TEST(rows_once_and_in_order)
{
	struct plumb_config *cfg = small_config();
	struct plumb_env env = {.cfg = cfg, .err = &err};
	struct plumb_weight table = {.format = PLUMB_BF16, .rows = cfg->vocab, .cols = cfg->hidden};
	int32_t token[] = {7, 3, 7, -1, (int32_t)cfg->vocab, 1002, 0, 3};
	struct plumb_embed a = {.T = 8, .token = token, .table = &table};
	static const int64_t wanted[] = {0, 3, 7, 1002};
	static struct parts p;

	p.count = 0;
	ck_assert_int_eq(plumb_reads(&env, PLUMB_EMBED, &a, collect, &p), PLUMB_OK);
	ck_assert_int_eq(p.count, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(p.part[i].row, wanted[i]);
		ck_assert_int_eq(p.part[i].rows, 1);
		ck_assert_int_eq(p.part[i].matrix, 0);
		ck_assert_ptr_eq(p.part[i].weight, &table);
		ck_assert_str_eq(p.part[i].operand->name, "table");
		ck_assert_uint_eq(plumb_read_bytes(&p.part[i]), 2 * (size_t)cfg->hidden);
	}
	a.T = 0; /* nothing to do, nothing read */
	p.count = 0;
	ck_assert_int_eq(plumb_reads(&env, PLUMB_EMBED, &a, collect, &p), PLUMB_OK);
	ck_assert_int_eq(p.count, 0);
	free(cfg);
}
END_TEST

START_TEST(experts_once_and_in_order)
{
	struct plumb_config *cfg = small_config();
	struct plumb_env env = {.cfg = cfg, .err = &err};
	struct plumb_weight gate[37], up[37], shared = {.rows = 131, .cols = 203};
	int32_t expert[] = {36, 2, 5, 2, -1, 37, 5, 0, 36, 36};
	struct plumb_moe_gate_up a = {
		.T = 2, .expert = expert, .gate = gate, .up = up, .shared_gate = &shared, .shared_up = &shared};
	static const int64_t wanted[] = {0, 2, 5, 36};
	static struct parts p;

	for (int e = 0; e < 37; e++)
		gate[e] = up[e] = (struct plumb_weight){.format = PLUMB_NVFP4, .rows = 75, .cols = 203};
	p.count = 0;
	ck_assert_int_eq(plumb_reads(&env, PLUMB_MOE_GATE_UP, &a, collect, &p), PLUMB_OK);
	ck_assert_int_eq(p.count, 10);
	for (int i = 0; i < 10; i++) {
		const struct plumb_weight *bank = i < 4 ? gate : up;
		if (i >= 8) {
			ck_assert_ptr_eq(p.part[i].weight, &shared);
			ck_assert_int_eq(p.part[i].rows, 131);
			continue;
		}
		ck_assert_int_eq(p.part[i].matrix, wanted[i % 4]);
		ck_assert_ptr_eq(p.part[i].weight, &bank[wanted[i % 4]]);
		ck_assert_int_eq(p.part[i].row, 0);
		ck_assert_int_eq(p.part[i].rows, 75);
		ck_assert_uint_eq(plumb_read_bytes(&p.part[i]), 75 * (102 + 13));
	}
	free(cfg);
}
END_TEST

static int ascending(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

/* The rows of the table are those that the op reports, repeats taken out; over all shards, with EOS in the text. */
START_TEST(hashed_rows_are_the_ops_rows)
{
	enum { T = 40 };
	struct plumb_synthetic *s;
	static struct parts p;
	struct plumb_env env;
	int32_t token[T];
	int64_t history[2] = {4, 7}, before[2], row[T * 8], unique = 0;
	float *embedding;

	ck_assert_msg(plumb_synthetic_open("small", NULL, &s, &err) == PLUMB_OK, "%s", err.text);
	const struct plumb_model *model = plumb_synthetic_model(s);
	const struct plumb_ple_weights *w = model->layer[1].ple;
	env = (struct plumb_env){.cfg = &model->cfg, .err = &err};
	embedding = malloc((size_t)(T * model->cfg.ple_dim) * sizeof *embedding);
	for (int t = 0; t < T; t++)
		token[t] = t % 9 == 8 ? (int32_t)model->cfg.eos : t * 37 % 11;
	struct plumb_ple_embed a = {.T = T,
		.token = token,
		.history = history,
		.ngram = &w->ngram,
		.table = w->table,
		.shards = w->shards,
		.shard_rows = w->shard_rows,
		.row = row,
		.embedding = embedding};
	memcpy(before, history, sizeof before);
	p.count = 0;
	ck_assert_int_eq(plumb_reads(&env, PLUMB_PLE_EMBED, &a, collect, &p), PLUMB_OK);
	ck_assert_mem_eq(before, history, sizeof before); /* asking changes nothing */
	ck_assert_int_eq(model->maker.make(model->maker.self, &env, PLUMB_PLE_EMBED, &a), PLUMB_OK);
	ck_assert_int_eq(plumb_ref_twin.op[PLUMB_PLE_EMBED](&env, &a), PLUMB_OK);
	qsort(row, T * 8, sizeof *row, ascending);
	for (int i = 0; i < T * 8; i++) {
		if (i > 0 && row[i] == row[i - 1])
			continue;
		ck_assert_int_lt(unique, p.count);
		ck_assert_int_eq(p.part[unique].matrix * w->shard_rows + p.part[unique].row, row[i]);
		ck_assert_ptr_eq(p.part[unique].weight, &w->table[p.part[unique].matrix]);
		unique++;
	}
	ck_assert_int_eq(unique, p.count);
	ck_assert_int_lt(unique, T * 8); /* something repeats */
	free(embedding);
	plumb_synthetic_close(s);
}
END_TEST

/* ---- every op of a decode, with NaN in whatever it should not read ---- */

/* A matrix whose every byte is 0xFF: NaN in each format, or through its scale. */
struct poisoned {
	struct plumb_weight *w;
	unsigned char **memory;
	int64_t count;
};

struct poisoner {
	const struct plumb_call *call;
	struct poisoned operand[16];
	int forget; /* leave out so many parts first, to see that the test would notice */
};

static void fill(struct poisoned *p, const struct plumb_weight *w, int64_t count)
{
	p->count = count;
	p->w = calloc((size_t)count, sizeof *p->w);
	p->memory = calloc((size_t)count, sizeof *p->memory);
	for (int64_t m = 0; m < count; m++) {
		size_t data = plumb_weight_data_bytes(&w[m]), scale = plumb_weight_scale_bytes(&w[m]);
		p->memory[m] = malloc(data + scale + 1);
		memset(p->memory[m], 0xFF, data + scale);
		p->w[m] = w[m];
		p->w[m].made = NULL;
		p->w[m].data = p->memory[m];
		p->w[m].scale = scale ? p->memory[m] + data : NULL;
	}
}

/* Bytes of a part, from the model to the poisoned copy. */
static int restore(void *self, const struct plumb_read *r)
{
	struct poisoner *x = self;
	const struct plumb_weight *from = r->weight;
	struct poisoned *p = &x->operand[r->operand - plumb_ops[x->call->op].operand];
	unsigned char *to = p->memory[r->matrix];
	size_t row = plumb_format_row_bytes(from->format, from->cols), data = plumb_weight_data_bytes(from);
	size_t scales = plumb_weight_scale_bytes(from);

	if (x->forget > 0) {
		x->forget--;
		return PLUMB_OK;
	}
	memcpy(to + (size_t)r->row * row, (const unsigned char *)from->data + (size_t)r->row * row, (size_t)r->rows * row);
	if (scales > 0) {
		ck_assert_int_eq(r->rows, from->rows); /* only tables are read in rows, and tables have no such scales */
		memcpy(to + data, from->scale, scales);
	}
	return PLUMB_OK;
}

static int run_poisoned(void *self, const struct plumb_call *call)
{
	struct poisoner *x = self;
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	void *args = malloc(info->args_size);
	int status;

	memcpy(args, call->args, info->args_size);
	x->call = call;
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const struct plumb_weight *w;
		int64_t dim[8] = {0}, count = 1;
		memcpy(&w, (const char *)call->args + o->offset, sizeof w);
		x->operand[i] = (struct poisoned){0};
		if (o->role != PLUMB_WEIGHT || !w)
			continue;
		plumb_shape_eval(o->shape, call->env->cfg, &extent, dim);
		if (o->kind == PLUMB_KIND_BANK)
			count = dim[0];
		if (o->count)
			memcpy(&count, (const char *)call->args + o->count, sizeof count);
		fill(&x->operand[i], w, count);
		memcpy((char *)args + o->offset, &x->operand[i].w, sizeof w);
	}
	ck_assert_int_eq(plumb_reads(call->env, call->op, call->args, restore, x), PLUMB_OK);
	status = call->binding->set->op[call->op](call->env, args);
	for (int i = 0; i < info->operands; i++) {
		for (int64_t m = 0; m < x->operand[i].count; m++)
			free(x->operand[i].memory[m]);
		free(x->operand[i].memory);
		free(x->operand[i].w);
	}
	free(args);
	return status;
}

static int add_call(void *self, const struct plumb_call *call)
{
	plumb_digest_call(self, call);
	return PLUMB_OK;
}

/* Digest of a prompt and two more tokens. */
static void decode(const struct plumb_model *model, struct plumb_binding binding, enum plumb_policy policy,
	const struct plumb_runner *runner, char text[33])
{
	static const int32_t prompt[] = {5, 17, 42, 42, 3, 3, 9, 100};
	struct plumb_digest digest = {0};
	struct plumb_observer observer = {.after = add_call, .self = &digest};
	struct plumb_decoder_options options = {.policy = policy, .capacity = 16, .traces = true};
	struct plumb_plan plan;
	struct plumb_decoder *d;

	ck_assert_int_eq(plumb_plan_create(&model->cfg, binding, &plan, &err), PLUMB_OK);
	ck_assert_msg(plumb_decoder_create(model, &plan, &options, &d, &err) == PLUMB_OK, "%s", err.text);
	plumb_decoder_observe(d, &observer);
	plumb_decoder_run_through(d, runner);
	ck_assert_msg(plumb_decoder_step(d, prompt, 8, &err) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < 2; i++) {
		int32_t next = plumb_decoder_tokens(d)[0];
		if (next < 0) /* nothing but NaN */
			next = 0;
		ck_assert_msg(plumb_decoder_step(d, &next, 1, &err) == PLUMB_OK, "%s", err.text);
	}
	plumb_digest_state(&digest, d);
	plumb_digest_show(&digest, text);
	plumb_decoder_destroy(d);
	plumb_plan_free(&plan);
}

static const char *const profiles[] = {"release-bf16", "release-fp8", "release-nvfp4", "least-bytes"};
enum { PROFILES = sizeof profiles / sizeof profiles[0], SETS = 3 };

START_TEST(unread_bytes_do_not_matter)
{
	struct plumb_profile profile;
	struct plumb_synthetic *s;
	struct plumb_device *device;
	struct poisoner x = {0};
	struct plumb_runner runner = {run_poisoned, &x};
	char plain[33], poisoned[33];

	ck_assert_msg(plumb_profile_open(profiles[_i / SETS], &profile, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_msg(
		plumb_synthetic_open("tiny", &(struct plumb_synthetic_options){.profile = &profile}, &s, &err) == PLUMB_OK,
		"%s", err.text);
	ck_assert_int_eq(plumb_device_open(PLUMB_DEVICE_SIMT, NULL, &device, &err), PLUMB_OK);
	const struct plumb_binding sets[SETS] = {
		{.set = &plumb_ref_oracle}, {.set = &plumb_ref_twin}, {.set = plumb_device_set(device), .device = device}};
	enum plumb_policy policy = _i % 2 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	decode(plumb_synthetic_model(s), sets[_i % SETS], policy, NULL, plain);
	decode(plumb_synthetic_model(s), sets[_i % SETS], policy, &runner, poisoned);
	ck_assert_str_eq(plain, poisoned);
	x.forget = 1; /* the first row of the embedding */
	decode(plumb_synthetic_model(s), sets[_i % SETS], policy, &runner, poisoned);
	ck_assert_str_ne(plain, poisoned);
	plumb_device_close(device);
	plumb_synthetic_close(s);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("reads");
	TCase *t = suite_part(s, "reads", 120);

	tcase_add_test(t, rows_once_and_in_order);
	tcase_add_test(t, experts_once_and_in_order);
	tcase_add_test(t, hashed_rows_are_the_ops_rows);
	tcase_add_loop_test(t, unread_bytes_do_not_matter, 0, PROFILES * SETS);
	return suite_run(s);
}
