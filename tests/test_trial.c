/* SPDX-License-Identifier: MIT */
/* Trials (tools/trial*.h) and plumb test: a line is a case, whoever runs it; classes say something; what is wrong is caught,
 * with the line that shows it again. */
#include <cJSON.h>
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/math32.h"
#include "core/numeric.h"
#include "core/ops/embed.h"
#include "core/ops/lm_head.h"
#include "core/ops/qsa.h"
#include "core/order.h"
#include "kernels/matrix.h"
#include "opt/device.h"
#include "ref/ref.h"
#include "ref/round.h"
#include "ref/twin/twin.h"
#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tools/trial_judge.h"

static char dir[SCRATCH_PATH];

static void setup(void)
{
	scratch_make(dir);
}
static void teardown(void)
{
	scratch_remove(dir);
}

static struct trial_spec parsed(const char *line)
{
	struct trial_spec spec;
	struct plumb_error err = {""};
	ck_assert_msg(trial_spec_parse(line, &spec, &err) == PLUMB_OK, "%s: %s", line, err.text);
	return spec;
}

static struct trial *made(const struct trial_spec *spec, bool inert)
{
	struct trial *c;
	struct plumb_error err = {""};
	char line[TRIAL_LINE];
	ck_assert_msg(trial_spec_make(spec, inert, &c, &err) == PLUMB_OK, "%s: %s", trial_spec_show(spec, line), err.text);
	return c;
}

static uint64_t inputs_of(const struct trial_spec *spec, bool inert)
{
	struct trial *c = made(spec, inert);
	uint64_t h = trial_inputs(c);
	trial_free(c);
	return h;
}

/* ---- lines ---- */

static const char *const lines[] = {
	"moe_router T=3 D=64 E=512 A=8 policy=bf16 format=nvfp4 renorm=0 class=ties seed=17 device=simt",
	"embed seed=0 device=simt",
	"attn_decode T=2 P=64 Hq=4 Hkv=2 Dh=16 B=4 N=3 position=41 policy=f32 kv=fp8 class=padding "
	"seed=18446744073709551615 "
	"device=cuda",
	"gdn_recurrence Hk=2 Hv=4 Dk=33 Dv=17 state=f16 class=decay seed=3 device=simt",
	"gdn_norm_gate gate=silu class=gates seed=4 device=simt",
	"ple_embed V=2147483647 G=5 Hg=8 De=64 class=ngram seed=5 device=simt",
	"hc_norm_down traces=0 seed=6 device=simt",
};

START_TEST(a_line_is_printed_as_it_was_read)
{
	char text[TRIAL_LINE];
	struct trial_spec spec = parsed(lines[_i]);
	ck_assert_str_eq(trial_spec_show(&spec, text), lines[_i]);
	if (spec.device == PLUMB_DEVICE_SIMT)
		trial_free(made(&spec, false));
}
END_TEST

START_TEST(the_order_of_words_does_not_matter)
{
	struct trial_spec a = parsed("moe_router E=40 A=3 seed=9 class=ties policy=f32");
	struct trial_spec b = parsed("  moe_router class=ties policy=f32\tA=3 seed=9 E=40 ");
	struct trial_spec other = parsed("moe_router E=40 A=3 seed=10 class=ties policy=f32");
	ck_assert_uint_eq(inputs_of(&a, false), inputs_of(&b, false));
	ck_assert_uint_eq(inputs_of(&a, false), inputs_of(&a, false));
	ck_assert_uint_ne(inputs_of(&a, false), inputs_of(&other, false));
}
END_TEST

/* What is said is what is made; what is not said gives way. */
START_TEST(sizes_are_as_said)
{
	struct trial_spec spec = parsed("attn_decode T=2 Hkv=3 Dh=20 B=3 N=5 P=33 position=30 kv=bf16 policy=f32 seed=1");
	struct trial *c = made(&spec, false);
	ck_assert_int_eq(c->T, 2);
	ck_assert_int_eq(c->cfg.kv_heads, 3);
	ck_assert_int_eq(c->cfg.q_heads % 3, 0);
	ck_assert_int_eq(c->cfg.head_dim, 20);
	ck_assert_int_eq(c->env.capacity, 33);
	ck_assert_int_eq(c->position, 30);
	ck_assert_int_eq(trial_operand(c, "keys")->cache.format, PLUMB_BF16);
	trial_free(c);
	for (int seed = 0; seed < 20; seed++) { /* of any seed */
		char line[TRIAL_LINE];
		snprintf(line, sizeof line, "qsa_project Di=64 Dr=64 position=100 seed=%d", seed);
		spec = parsed(line);
		c = made(&spec, false);
		ck_assert_int_eq(c->cfg.rotary_dim, 64);
		ck_assert_int_ge(c->env.capacity, 100 + c->T);
		trial_free(c);
	}
}
END_TEST

static const struct {
	const char *line, *named, *why;
} bad[] = {
	{"", "empty", "an op"},
	{"gelu seed=1", "gelu", "plumb list ops"},
	{"moe_router seed", "seed", "key=value"},
	{"moe_router seed=1 seed=2", "seed", "twice"},
	{"moe_router seed=-1", "seed", "2^64"},
	{"moe_router seed=18446744073709551616", "seed", "2^64"},
	{"moe_router E=0", "E", "1 to"},
	{"moe_router E=x", "E", "1 to"},
	{"moe_router E=4 A=5", "A is beyond E", "5 and 4"},
	{"moe_router Dk=4", "moe_router", "no size Dk"},
	{"moe_router colour=red", "colour", "no key"},
	{"moe_router policy=fp8", "policy", "f32, bf16"},
	{"moe_router format=int4", "format", "nvfp4"},
	{"moe_router class=nothing", "nothing", "plumb list classes"},
	{"moe_router class=decay", "decay", "moe_router"},
	{"moe_router kv=fp8", "moe_router", "no kv"},
	{"moe_router device=tpu", "device", "simt, cuda"},
	{"gdn_conv C=12", "size C", "follows"},
	{"attn_decode Hq=7 Hkv=2", "Hq", "7 and 2"},
	{"attn_decode P=16 position=16", "position + T", "16"},
	{"attn_decode P=15 B=4", "P is no multiple of B", "15 and 4"},
	{"attn_qk_rope Dh=8 Dr=10", "Dr", "8"},
	{"ple_embed G=3 Hg=3", "Hg", "3 and 2"},
	{"lm_head V=100000000 D=100000", "lm_head", "GiB"},
};

START_TEST(bad_lines_are_refused_by_name)
{
	struct trial_spec spec;
	struct trial *c;
	struct plumb_error err = {""};
	int status = trial_spec_parse(bad[_i].line, &spec, &err);
	if (status == PLUMB_OK)
		status = trial_spec_make(&spec, false, &c, &err);
	ck_assert_msg(status == PLUMB_BAD_INPUT, "'%s' is taken", bad[_i].line);
	ck_assert_msg(strstr(err.text, bad[_i].named) && strstr(err.text, bad[_i].why),
		"'%s': '%s' does not say '%s' and '%s'", bad[_i].line, err.text, bad[_i].named, bad[_i].why);
}
END_TEST

/* ---- classes ---- */

/* Every class says something about some op, and in each of them it changes what is read, for some seed. */
START_TEST(a_class_changes_inputs)
{
	const struct trial_class *class = trial_class(_i);
	int ops = 0;

	ck_assert_ptr_nonnull(class);
	ck_assert_ptr_eq(trial_class_find(class->name), class);
	ck_assert_msg(class->aim[0] && class->faults[0] == 'F', "%s has no aim", class->name);
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		bool changes = class == trial_class(0);
		if (!trial_class_applies(class, (enum plumb_op)op))
			continue;
		ops++;
		for (uint64_t seed = 0; seed < 20 && !changes; seed++) {
			struct trial_spec spec = trial_spec_of((enum plumb_op)op);
			spec.class = class;
			spec.seed = seed;
			changes = inputs_of(&spec, false) != inputs_of(&spec, true);
		}
		ck_assert_msg(changes, "%s changes nothing of %s", class->name, plumb_ops[op].name);
	}
	ck_assert_msg(ops > 0, "%s is for no op", class->name);
}
END_TEST

/* Whether a kernel can load every matrix of the operand 8 columns at a time, in a format that has an arm for it. */
static bool is_wide(struct trial *c, const char *name, enum plumb_format format)
{
	const struct trial_operand *o = trial_operand(c, name);
	bool wide = format != PLUMB_F32 && format != PLUMB_F16 && format != PLUMB_FP8_TABLE;

	for (int64_t i = 0; i < o->matrices; i++)
		wide = wide && o->weight[i].format == format &&
		       plumb_matrix_wide((int)format, o->weight[i].data, o->weight[i].cols);
	return wide;
}

/* moe_gate_up takes two units a warp and eight a block, where the rows are wide and of one piece: in class ragged always, and never
 * are the last of them full. */
START_TEST(ragged_blocks_are_not_full)
{
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct trial_spec spec = parsed("moe_gate_up class=ragged");
		spec.seed = seed;
		struct trial *c = made(&spec, false);
		const enum plumb_format format = trial_operand(c, "gate")->weight[0].format;
		const enum plumb_format shared = trial_operand(c, "shared_gate")->weight[0].format;
		ck_assert(is_wide(c, "gate", format) && is_wide(c, "up", format));
		ck_assert(is_wide(c, "shared_gate", shared) && is_wide(c, "shared_up", shared));
		ck_assert(shared == format || shared == PLUMB_BF16 || (format == PLUMB_NVFP4 && shared == PLUMB_FP8_ROW));
		ck_assert_int_eq(plumb_split_count(1, c->cfg.hidden), 1);
		ck_assert_int_eq(c->cfg.experts_per_token * c->cfg.expert_inner % 2, 1);
		ck_assert_int_eq(c->cfg.shared_inner % 2, 1);
		trial_free(c);
	}
}
END_TEST

/* Ids of experts that there are not come to either arm of the kernels. */
START_TEST(bad_ids_in_both_arms)
{
	int wide = 0, cases = 0;

	for (; cases < 40; cases++) {
		struct trial_spec spec = parsed(_i ? "moe_down class=badids" : "moe_gate_up class=badids");
		spec.seed = (uint64_t)cases;
		struct trial *c = made(&spec, false);
		const struct trial_operand *expert = trial_operand(c, "expert");
		const char *bank = _i ? "down" : "gate";
		int64_t outside = 0;
		for (int64_t i = 0; i < expert->count; i++) {
			const int32_t id = ((const int32_t *)(const void *)expert->memory.data)[i];
			outside += id < 0 || id >= c->cfg.experts;
		}
		ck_assert_int_gt(outside, 0);
		wide += is_wide(c, bank, trial_operand(c, bank)->weight[0].format);
		trial_free(c);
	}
	ck_assert_msg(wide > 10 && wide < 30, "%d of %d cases are wide", wide, cases);
}
END_TEST

/* ---- power ---- */

/* One element of one output, at random, is another: bit for bit it is seen whatever it is, and by the bound when it is
 * wrong by a half. */
START_TEST(one_element_is_noticed)
{
	enum plumb_op op = (enum plumb_op)_i;
	struct trial_random r = {(uint64_t)_i};
	char text[TRIAL_TEXT];

	for (uint64_t seed = 0; seed < 6; seed++) {
		struct trial_spec spec = trial_spec_of(op);
		struct trial_result twin, wrong, oracle;
		spec.class = trial_class(0);
		spec.seed = seed;
		struct trial *c = made(&spec, false);
		ck_assert_msg(
			trial_run(c, "oracle", plumb_ref_oracle.op[op], NULL, PLUMB_POISON_NAN, &oracle, text), "%s", text);
		ck_assert_msg(trial_run(c, "twin", plumb_ref_twin.op[op], NULL, PLUMB_POISON_NAN, &twin, text), "%s", text);
		ck_assert_msg(trial_near(c, &oracle, &twin, "twin", text), "%s", text);
		for (int i = 0; i < c->operands; i++) {
			struct trial_operand *o = &c->operand[i];
			size_t bytes = twin.bytes[i] ? trial_memory_live(&o->memory) : 0;
			if (!bytes)
				continue;
			wrong = twin;
			wrong.bytes[i] = malloc(bytes);
			ck_assert_ptr_nonnull(wrong.bytes[i]);
			memcpy(wrong.bytes[i], twin.bytes[i], bytes);
			wrong.bytes[i][trial_random_below(&r, (int64_t)bytes)] ^=
				(unsigned char)(1 << trial_random_below(&r, 7));
			ck_assert_msg(!trial_same(c, &wrong, &twin, "bit", text) || strstr(o->info->name, "keys") ||
					      strstr(o->info->name, "values"), /* a code of NaN that is another */
				"%s: a bit of %s goes unseen", plumb_ops[op].name, o->info->name);
			memcpy(wrong.bytes[i], twin.bytes[i], bytes);
			if (o->info->role == PLUMB_OUT && o->info->kind == PLUMB_KIND_F32) {
				float *v = (float *)(void *)wrong.bytes[i];
				int64_t at = trial_random_below(&r, o->count);
				if (isfinite(v[at])) {
					v[at] = v[at] * 1.5f + copysignf(1e-3f, v[at]);
					ck_assert_msg(!trial_near(c, &oracle, &wrong, "half", text),
						"%s: %s[%lld] off by a half goes unseen", plumb_ops[op].name, o->info->name,
						(long long)at);
				}
			}
			free(wrong.bytes[i]);
		}
		trial_result_free(&twin);
		trial_result_free(&oracle);
		trial_free(c);
	}
}
END_TEST

/* Known-wrong candidates, each of a kind that ordinary inputs pass, and the class that is for them. */
static int embed_wrapped(const struct plumb_env *env, const void *args)
{
	struct plumb_embed a = *(const struct plumb_embed *)args;
	int64_t D = env->cfg->hidden;
	for (int64_t t = 0; t < a.T; t++) {
		struct plumb_weight row = *a.table;
		int64_t start = (int64_t)a.token[t] * D;
		start = start > INT32_MAX ? start - INT32_MAX : start; /* near a wrap of 32 bits, inside the table */
		plumb_weight_row(&row, start / D, 0, D, a.residual + t * env->cfg->streams * D);
		for (int64_t s = 1; s < env->cfg->streams; s++)
			memcpy(a.residual + (t * env->cfg->streams + s) * D, a.residual + t * env->cfg->streams * D,
				(size_t)D * sizeof(float));
	}
	return PLUMB_OK;
}

static int select_all(const struct plumb_env *env, const void *args)
{
	struct plumb_qsa_select a = *(const struct plumb_qsa_select *)args;
	int32_t late = (int32_t)(env->capacity - a.T);
	a.position = &late; /* blocks that are not complete */
	return qsa_select_twin(env, &a);
}

static int lowest_is_nan(const struct plumb_env *env, const void *args)
{
	struct plumb_qsa_select a = *(const struct plumb_qsa_select *)args;
	int64_t n = a.T * (env->capacity / env->cfg->block_tokens);
	float *score = malloc((size_t)n * sizeof *score);
	ck_assert_ptr_nonnull(score);
	for (int64_t i = 0; i < n; i++)
		score[i] = a.score[i] == -INFINITY ? NAN : a.score[i];
	a.score = score;
	int status = qsa_select_twin(env, &a);
	free(score);
	return status;
}

static int last_of_equals(const struct plumb_env *env, const void *args)
{
	const struct plumb_argmax *a = args;
	int status = argmax_twin(env, args);
	for (int64_t t = 0; t < a->T; t++)
		for (int64_t i = 0; i < env->cfg->vocab; i++)
			if (a->token[t] >= 0 &&
				a->logits[t * env->cfg->vocab + i] == a->logits[t * env->cfg->vocab + a->token[t]])
				a->token[t] = (int32_t)i;
	return status;
}

static const struct {
	enum plumb_op op;
	const char *class;
	plumb_op_fn *wrong;
} traps[] = {
	{PLUMB_EMBED, "offsets", embed_wrapped},
	{PLUMB_QSA_SELECT, "padding", select_all},
	{PLUMB_ARGMAX, "ties", last_of_equals},
	{PLUMB_ARGMAX, "bin", last_of_equals},
	{PLUMB_QSA_SELECT, "unranked", lowest_is_nan},
};

START_TEST(a_class_finds_its_fault)
{
	char text[TRIAL_TEXT];
	int caught = 0;

	for (uint64_t seed = 0; seed < 8; seed++) {
		struct trial_spec spec = trial_spec_of(traps[_i].op);
		struct trial_result twin, wrong;
		spec.class = trial_class_find(traps[_i].class);
		spec.seed = seed;
		struct trial *c = made(&spec, false);
		ck_assert_msg(
			trial_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_NAN, &twin, text), "%s", text);
		ck_assert_msg(trial_run(c, "wrong", traps[_i].wrong, NULL, PLUMB_POISON_LARGE, &wrong, text), "%s", text);
		caught += !trial_same(c, &wrong, &twin, "wrong", text);
		trial_result_free(&twin);
		trial_result_free(&wrong);
		trial_free(c);
	}
	ck_assert_msg(caught > 0, "%s: class %s does not find it", plumb_ops[traps[_i].op].name, traps[_i].class);
}
END_TEST

static int first_is_minus_one(const struct plumb_env *env, const void *args)
{
	int status = argmax_twin(env, args);
	((const struct plumb_argmax *)args)->token[0] = -1;
	return status;
}

/* Integers by index, value and expectation, whichever comparison finds them; beside a NaN no bound is told of. */
START_TEST(differences_are_told_alike)
{
	struct trial_spec spec = parsed("argmax T=3 V=5 class=plain seed=4");
	struct trial_result truth, wrong;
	char text[TRIAL_TEXT];
	struct trial *c = made(&spec, false);

	ck_assert(trial_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_NAN, &truth, text));
	ck_assert(trial_run(c, "wrong", first_is_minus_one, NULL, PLUMB_POISON_NAN, &wrong, text));
	ck_assert(!trial_near(c, &truth, &wrong, "wrong", text));
	ck_assert_msg(
		strstr(text, "wrong: token[0] is -1, expected ") && strstr(text, "(1 of 3 values differ)"), "%s", text);
	trial_result_free(&truth);
	trial_result_free(&wrong);
	trial_free(c);

	spec = parsed("attn_gate class=plain seed=4");
	c = made(&spec, false);
	((float *)trial_data(c, "o"))[0] = NAN;
	trial_seal(c);
	ck_assert(trial_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_NAN, &truth, text));
	for (int i = 0; i < c->operands; i++)
		if (truth.bytes[i])
			((float *)(void *)truth.bytes[i])[0] = 1.0f;
	ck_assert(!trial_near(c, &truth, &truth, "wrong", text));
	ck_assert_msg(strstr(text, " is 1, exact NaN (1 of ") && !strstr(text, "ratio"), "%s", text);
	trial_result_free(&truth);
	trial_free(c);
}
END_TEST

/* Every kind of row in one case, and a line without a class is what it was before there was this one. */
START_TEST(unranked_rows)
{
	struct trial_spec spec = parsed("argmax class=unranked seed=5000000");
	struct trial *c = made(&spec, false);
	int lowest = 0, mixed = 0, nan = 0, last = 0;

	ck_assert_int_eq(c->T, 4);
	for (int64_t t = 0; t < c->T; t++) {
		const float *row = (const float *)trial_data(c, "logits") + t * c->cfg.vocab;
		int64_t nans = 0, infs = 0, V = c->cfg.vocab;
		for (int64_t i = 0; i < V; i++) {
			nans += isnan(row[i]);
			infs += row[i] == -INFINITY;
		}
		lowest += infs == V;
		nan += nans == V;
		mixed += nans > 0 && infs > 0 && nans + infs == V;
		last += infs == V - 1 && isfinite(row[V - 1]);
	}
	ck_assert_msg(lowest == 1 && mixed == 1 && nan == 1 && last == 1, "%d %d %d %d", lowest, mixed, nan, last);
	trial_free(c);
	for (uint64_t seed = 0; seed < 200; seed++) {
		spec = trial_spec_of(PLUMB_ARGMAX);
		spec.seed = seed;
		ck_assert_str_ne(trial_spec_class(&spec)->name, "unranked");
	}
}
END_TEST

/* What class heavy found when it still made Inf in f16: -Inf before a silu was NaN in the oracle, -0 in twin and kernels. */
START_TEST(silu_of_minus_inf)
{
	ck_assert_uint_eq(plumb_f32_bits(plumb_siluf(-INFINITY)), 0x80000000u);
	ck_assert_uint_eq(plumb_f32_bits((float)silu(-HUGE_VAL)), 0x80000000u);
}
END_TEST

/* ---- the program ---- */

/* Cases and their inputs, as a JSON report has them. */
static cJSON *report(const char *name)
{
	char path[SCRATCH_PATH];
	size_t size;
	char *text = scratch_read(scratch_path(path, dir, name), &size);
	cJSON *json = cJSON_Parse(text);
	ck_assert_ptr_nonnull(json);
	free(text);
	return json;
}

static const cJSON *find_case(const cJSON *json, const char *line)
{
	const cJSON *o;
	cJSON_ArrayForEach (o, cJSON_GetObjectItem(json, "cases"))
		if (strcmp(cJSON_GetObjectItem(o, "case")->valuestring, line) == 0)
			return o;
	return NULL;
}

static const char *word(const cJSON *o, const char *name)
{
	const char *text = cJSON_GetStringValue(cJSON_GetObjectItem(o, name));
	ck_assert_msg(text != NULL, "no %s", name);
	return text;
}

/* A part of a run, by shard, class, op or alone, has the cases of the whole, with the same inputs. */
START_TEST(a_part_replays_alike)
{
	static const char *const parts[] = {"embed attn_gate argmax hc_inject --shard 2/3 --cases 80 --jobs 1",
		"argmax --class ties --class bin --jobs 3", "attn_gate"};
	struct program_result r;
	int found = 0;

	program(&r, dir, "test embed attn_gate argmax hc_inject --cases 80 --jobs 2 --json '%s/all'", dir);
	program_expect(&r, 0);
	cJSON *all = report("all");
	ck_assert_int_eq(cJSON_GetArraySize(cJSON_GetObjectItem(all, "cases")), 80);
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
		program(&r, dir, "test %s --json '%s/part'", parts[i], dir);
		program_expect(&r, 0);
		cJSON *part = report("part");
		const cJSON *o, *whole;
		cJSON_ArrayForEach (o, cJSON_GetObjectItem(part, "cases")) {
			whole = find_case(all, word(o, "case"));
			ck_assert_msg(whole != NULL, "%s is no case of the whole", word(o, "case"));
			ck_assert_str_eq(word(o, "inputs"), word(whole, "inputs"));
			found++;
		}
		cJSON_Delete(part);
	}
	ck_assert_int_gt(found, 30);
	const char *line = word(cJSON_GetArrayItem(cJSON_GetObjectItem(all, "cases"), 40), "case");
	program(&r, dir, "test --case '%s' --json '%s/one'", line, dir);
	program_expect(&r, 0);
	cJSON *one = report("one");
	ck_assert_str_eq(word(cJSON_GetArrayItem(cJSON_GetObjectItem(one, "cases"), 0), "inputs"),
		word(find_case(all, line), "inputs"));
	cJSON_Delete(one);
	cJSON_Delete(all);
}
END_TEST

/* Experts whose probabilities are in one order in binary64 and equal in binary32: two logits an ulp apart, 68 below the largest;
 * and logits more than 104 below it, whose exponentials are 0. */
START_TEST(ties_of_binary32_only)
{
	static const char *const found[] = {"gates seed=20261130000017", "coordinates seed=20261130000028"};
	struct program_result r;

	program(&r, dir, "test --case 'moe_router class=%s device=simt'", found[_i]);
	program_expect(&r, 0);
}
END_TEST

#define PLANTED "--op hc_inject='" PLUMB_USER_DIR "/planted.so'"
#define ARGMAX "--op argmax='" PLUMB_USER_DIR "/argmax.so'"
#define ROUTER "--op moe_router='" PLUMB_USER_DIR "/router.so'"
#define GATE "--op attn_gate='" PLUMB_USER_DIR "/gate.so'"

enum { LINE = 2048 };

/* The first line to replay that a run has printed, as arguments of plumb. */
static void replay_line(const struct program_result *r, char line[LINE])
{
	const char *at = strstr(r->out, "replay  plumb test ");

	ck_assert_msg(at != NULL, "no line to replay: %s", r->out);
	at += strlen("replay  plumb ");
	snprintf(line, LINE, "%.*s", (int)strcspn(at, "\n"), at);
}

/* A planted fault is caught, and the line that is printed shows it in another process. */
START_TEST(a_wrong_kernel_is_caught_and_replayed)
{
	struct program_result r;
	char line[LINE];

	program(&r, dir, "test " PLANTED " --exact --jobs 2");
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("PLANTED", "hc_inject@-1=factor", 1), 0);
	program(&r, dir, "test " PLANTED " --jobs 2 --json '%s/wrong'", dir);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "1.01") && strstr(r.out, "times the bound") == NULL, "%s", r.out);
	replay_line(&r, line);
	program(&r, dir, "%s", line);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL") && strstr(r.out, "residual_out"), "%s", r.out);
	ck_assert_int_eq(unsetenv("PLANTED"), 0);
	program(&r, dir, "%s", line);
	program_expect(&r, 0);
	cJSON *json = report("wrong");
	ck_assert_msg(cJSON_IsFalse(cJSON_GetObjectItem(json, "pass")), "the report says pass");
	cJSON_Delete(json);
}
END_TEST

/* Whatever the seed, a run has rows of -Inf alone; what failed says which value, what was expected and how to see it again. */
START_TEST(a_start_value_is_caught_at_every_seed)
{
	struct program_result r;

	program(&r, dir, "test " ARGMAX " --seed %d", _i);
	program_expect(&r, 0);
	ck_assert_int_eq(setenv("ARGMAX_FAULT", "start", 1), 0);
	program(&r, dir, "test " ARGMAX " --seed %d --jobs 2", _i);
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "class=unranked"));
	ck_assert_ptr_nonnull(strstr(r.out, "] is -1, expected "));
	program(&r, dir, "test " ARGMAX " --case 'argmax class=unranked seed=%d' --json '%s/start'", _i, dir);
	program_expect(&r, 1);
	ck_assert_int_eq(unsetenv("ARGMAX_FAULT"), 0);
	cJSON *json = report("start");
	const cJSON *one = cJSON_GetArrayItem(cJSON_GetObjectItem(json, "cases"), 0);
	ck_assert_ptr_null(cJSON_GetObjectItem(json, "again")); /* neither plumb check nor plumb bisect takes these words */
	ck_assert_ptr_nonnull(strstr(cJSON_GetStringValue(cJSON_GetObjectItem(one, "replay")), "plumb test --case \""));
	cJSON_Delete(json);
}
END_TEST

/* What is said of it is about the operand that is beyond its bound, not about bits that may differ. */
START_TEST(the_wrong_operand_is_described)
{
	struct program_result r;

	ck_assert_int_eq(setenv("ROUTER_FAULT", "row", 1), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --cases 22");
	program_expect(&r, 1);
	ck_assert_ptr_nonnull(strstr(r.out, "values of shared_weight are wrong: "));
	ck_assert_ptr_nonnull(strstr(r.out, "shared_weight[1] (token "));
	for (const char *at = r.out; (at = strstr(at, " are wrong: ")); at++)
		ck_assert_msg(strncmp(at - strlen("of shared_weight"), "of shared_weight", strlen("of shared_weight")) == 0,
			"%s", r.out);
	ck_assert_int_eq(setenv("ROUTER_FAULT", "tail", 1), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --class integers --cases 8");
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "terms of each sum") && strstr(r.out, "values of logits are wrong: "), "%s", r.out);
	ck_assert_int_eq(unsetenv("ROUTER_FAULT"), 0);
	program(&r, dir, "test " ROUTER " --jobs 2 --cases 60");
	program_expect(&r, 0);
}
END_TEST

/* Whatever a kernel does fails its cases and no other, and the run goes on. GATE_FROM: from a position on. */
START_TEST(a_kernel_is_contained)
{
	static const struct {
		const char *fault, *told;
	} all[] = {{"crash", "crashed (SIGSEGV at address 0x10)"}, {"exit", "called exit(0)"},
		{"outside", "wrote after out"}, {"hang", "hangs"}, {"unwritten", "did not write out"},
		{"input", "changed its input qg"}, {"workafter", "wrote after workspace: 0 bytes after the last"},
		{"workbefore", "wrote before its workspace (1 bytes before the first)"}};
	struct program_result r;

	ck_assert_int_eq(setenv("GATE_FAULT", all[_i].fault, 1), 0);
	program(&r, dir,
		"test " GATE " --class integers --class plain --cases 4 --timeout 1 --within 4 --jobs 2 --json '%s/gate'",
		dir);
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, all[_i].told), "%s does not say '%s'", r.out, all[_i].told);
	ck_assert_msg(strstr(r.out, "FAIL  4 of 4 cases"), "%s", r.out);
	cJSON *json = report("gate");
	const cJSON *o;
	cJSON_ArrayForEach (o, cJSON_GetObjectItem(json, "cases")) {
		ck_assert_str_ne(word(o, "inputs"), "0000000000000000");
		ck_assert(cJSON_IsFalse(cJSON_GetObjectItem(o, "pass")));
	}
	cJSON_Delete(json);
}
END_TEST

/* A read outside of which no result follows: trapped, and named with the operand, how far, and the line that replays it. At one end of
 * an operand memory traps, at which is the seed's; so a read on one side fails a part of the cases. */
START_TEST(a_read_outside_is_named)
{
	static const struct {
		const char *fault, *told;
		int least, most; /* of 40 cases */
	} all[] = {{"readafter", "read after qg: element ", 20, 39},
		{"readbefore", "read before qg: element -1 of ", 1, 20}, {"readfar", "read after qg: element ", 20, 39},
		{"readwork", "read after workspace: 0 bytes after the last", 40, 40}};
	struct program_result r;
	char line[LINE];
	int failed = 0;

	ck_assert_int_eq(setenv("GATE_FAULT", all[_i].fault, 1), 0);
	program(&r, dir, "test " GATE " --class plain --cases 40 --within 4 --jobs 2");
	program_expect(&r, 1);
	const char *told = strstr(r.out, "seed 1; ");
	ck_assert_msg(told && sscanf(told, "seed 1; %d failed", &failed) == 1 && strstr(r.out, all[_i].told), "%s", r.out);
	ck_assert_msg(failed >= all[_i].least && failed <= all[_i].most, "%d cases", failed);
	ck_assert_msg(strstr(r.out, _i == 1   ? " 4 bytes before the first"
				    : _i == 2 ? " 2000 bytes after the last"
					      : " 0 bytes after the last"),
		"%s", r.out);
	replay_line(&r, line);
	program(&r, dir, "%s", line);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, all[_i].told), "%s", r.out);
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program(&r, dir, "%s", line);
	program_expect(&r, 0);
}
END_TEST

START_TEST(the_first_failure_ends_it_if_asked)
{
	struct program_result r;
	ck_assert_int_eq(setenv("GATE_FAULT", "wrong", 1), 0);
	program(&r, dir, "test " GATE " --class plain --cases 50 --fail-fast --jobs 1");
	ck_assert_int_eq(unsetenv("GATE_FAULT"), 0);
	program_expect(&r, 1);
	ck_assert_msg(strstr(r.out, "FAIL  1 of 50 cases"), "%s", r.out);
}
END_TEST

static const struct {
	const char *args, *named, *why;
} refused[] = {
	{"gelu", "gelu", "plumb list ops"},
	{"atn_gate", "atn_gate", "did you mean 'attn_gate'?"},
	{"--class nothing", "nothing", "plumb list classes"},
	{"embed --class decay", "no case", "classes"}, /* nothing to run is no success */
	{"--cases 0", "--cases", "1 or more"},
	{"embed --cases 2 --shard 3/3", "no case", ""},
	{"--shard 4/3", "--shard", "1 <= I <= N"},
	{"--shard x", "--shard", "1 <= I <= N"},
	{"--device tpu", "--device", "simt or cuda"},
	{"--policy int8", "--policy", "f32 or bf16"},
	{"--op attn_gate", "--op", "NAME=FILE.so"},
	{"--op gelu=x.so", "gelu", "plumb list ops"},
	{"--op attn_gate=/nowhere/x.so", "/nowhere/x.so", "cannot load"},
	{"--op embed='" PLUMB_USER_DIR "/gate.so'", "gate.so", "embed"},
	{"--op hc_norm_down+hc_up_mix=x.so", "plumb check", "single ops"},
	{"--case 'embed E=3'", "embed", "no size E"},
	{"--case 'embed seed=1' --class ties", "--case", "--class"},
	{"embed --case 'embed seed=1'", "--case", "embed"},
	{"embed --json /nowhere/x.json", "--json", "/nowhere"},
	{"--fail-fast --keep-going", "--fail-fast", "one of them"},
};

START_TEST(bad_commands_are_refused_by_name)
{
	struct program_result r;
	program(&r, dir, "test %s", refused[_i].args);
	program_expect_bad(&r, refused[_i].named, refused[_i].why);
}
END_TEST

START_TEST(a_device_that_is_not_there)
{
	struct plumb_device *device = NULL;
	struct plumb_error err;
	struct program_result r;
	int status = plumb_device_open(PLUMB_DEVICE_CUDA, NULL, &device, &err);
	plumb_device_close(device);
	if (status == PLUMB_OK)
		return;
	program(&r, dir, "test embed --device cuda");
	program_expect(&r, 3);
	ck_assert_msg(strlen(r.err) > 0, "nothing is said");
}
END_TEST

int main(void)
{
	int classes = 0;
	while (trial_class(classes))
		classes++;
	Suite *suite = suite_create("trial");
	TCase *all = suite_part(suite, "all", 300);
	tcase_add_checked_fixture(all, setup, teardown);
	tcase_add_loop_test(all, a_line_is_printed_as_it_was_read, 0, (int)(sizeof lines / sizeof lines[0]));
	tcase_add_test(all, the_order_of_words_does_not_matter);
	tcase_add_test(all, sizes_are_as_said);
	tcase_add_loop_test(all, bad_lines_are_refused_by_name, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_loop_test(all, a_class_changes_inputs, 0, classes);
	tcase_add_test(all, ragged_blocks_are_not_full);
	tcase_add_loop_test(all, bad_ids_in_both_arms, 0, 2);
	tcase_add_loop_test(all, one_element_is_noticed, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(all, a_class_finds_its_fault, 0, (int)(sizeof traps / sizeof traps[0]));
	tcase_add_test(all, differences_are_told_alike);
	tcase_add_test(all, unranked_rows);
	tcase_add_test(all, silu_of_minus_inf);
	tcase_add_test(all, a_part_replays_alike);
	tcase_add_loop_test(all, ties_of_binary32_only, 0, 2);
	tcase_add_test(all, a_wrong_kernel_is_caught_and_replayed);
	tcase_add_loop_test(all, a_start_value_is_caught_at_every_seed, 3, 6);
	tcase_add_test(all, the_wrong_operand_is_described);
	tcase_add_loop_test(all, a_read_outside_is_named, 0, 4);
	tcase_add_loop_test(all, a_kernel_is_contained, 0, 8);
	tcase_add_test(all, the_first_failure_ends_it_if_asked);
	tcase_add_loop_test(all, bad_commands_are_refused_by_name, 0, (int)(sizeof refused / sizeof refused[0]));
	tcase_add_test(all, a_device_that_is_not_there);
	return suite_run(suite);
}
