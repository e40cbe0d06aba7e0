/* SPDX-License-Identifier: MIT */
/* Trials (tools/trial*.h): a line is a case, whoever runs it; classes say something, and find the faults they are
 * for. The program: tests/test_trial_cli.c. */
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
#include "ref/ref.h"
#include "ref/round.h"
#include "ref/twin/twin.h"
#include "tests/support/suite.h"
#include "tools/trial_spec.h"

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
	"moe_down format=fp8_row,nvfp4 class=wide seed=7 device=simt",
	"attn_decode kv=bf16,fp8 class=tiles seed=8 device=simt",
	"gdn_recurrence state=f32,f16 class=midpoints seed=9 device=simt",
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

/* Whatever a class does with sizes, one that is said stays; the others give way, and a case can be made. */
START_TEST(sizes_are_as_said_in_every_class)
{
	const enum plumb_op op = (enum plumb_op)_i;
	char line[TRIAL_LINE], full[TRIAL_LINE], word[32];

	for (int letter = 0; letter < TRIAL_LETTERS; letter++) {
		const char *name = trial_spec_letter(letter);
		/* hash heads divide De, and how many there are is another letter */
		if (!trial_spec_has_size(op, letter) || strcmp(name, "De") == 0)
			continue;
		snprintf(word, sizeof word, "%s=%d ", name, strcmp(name, "T") == 0 ? 3 : 12);
		for (int class = 0; trial_class(class); class ++) {
			struct trial_spec spec = trial_spec_of(op);
			struct plumb_error err;
			spec.class = trial_class(class);
			spec.seed = (uint64_t) class;
			if (!trial_class_applies(spec.class, op))
				continue;
			snprintf(line, sizeof line, "%.*s", (int)strlen(word) - 1, word);
			ck_assert_int_eq(trial_spec_parse_sizes("x", line, spec.size, &err), PLUMB_OK);
			struct trial *c = made(&spec, false);
			snprintf(line, sizeof line, " %s", trial_spec_full(c, full));
			trial_free(c);
			snprintf(full, sizeof full, " %s", word);
			ck_assert_msg(strstr(line, full) != NULL, "%s, class %s: %s, expected %s", plumb_ops[op].name,
				spec.class->name, line, word);
		}
	}
}
END_TEST

/* Every matrix, cache and state of every class has a format that was said; of several each comes up. */
START_TEST(formats_are_as_said)
{
	static const char *const said[] = {"nvfp4", "bf16", "f32,fp8_block", "fp8_row,nvfp4", "f16,bf16,fp8_table"};
	static const char *const caches[] = {"fp8", "bf16", "bf16,fp8", "f32", "f32,bf16"};
	static const char *const states[] = {"f16", "f32", "f16,bf16", "f32,bf16", "bf16"};
	const enum plumb_op op = (enum plumb_op)_i;
	char line[TRIAL_LINE];

	for (size_t k = 0; k < sizeof said / sizeof said[0]; k++) {
		const char *const words[TRIAL_FORMATS] = {said[k], caches[k], states[k]};
		unsigned set[TRIAL_FORMATS] = {0}, seen[TRIAL_FORMATS] = {0};
		struct plumb_error err;
		for (int w = 0; w < TRIAL_FORMATS; w++)
			ck_assert_int_eq(
				trial_spec_parse_formats("x", (enum trial_formats)w, words[w], &set[w], &err), PLUMB_OK);
		for (int class = 0; trial_class(class); class ++)
			for (uint64_t seed = 0; seed < 3; seed++) {
				struct trial_spec spec = trial_spec_of(op);
				spec.class = trial_class(class);
				spec.seed = seed;
				for (int w = 0; w < TRIAL_FORMATS; w++)
					spec.formats[w] = set[w] & trial_spec_formats(op, (enum trial_formats)w);
				if (!trial_class_applies(spec.class, op) ||
					!trial_class_takes(spec.class, op, spec.formats[TRIAL_OF_MATRICES]))
					continue;
				struct trial *c = made(&spec, false);
				for (int i = 0; i < c->operands; i++) {
					const struct trial_operand *o = &c->operand[i];
					const bool own =
						strcmp(o->info->name, "keys") == 0 || strcmp(o->info->name, "values") == 0;
					const bool stored = o->info->kind == PLUMB_KIND_STORED,
						   vector = trial_is_vector(o->info);
					if (o->absent || !(o->weight || own || stored))
						continue;
					const int w = o->weight ? TRIAL_OF_MATRICES : own ? TRIAL_OF_KV : TRIAL_OF_STATE;
					const enum plumb_format format = o->weight ? o->weight[0].format
					                                 : own     ? o->cache.format
					                                           : o->format;
					const unsigned may =
						vector && !(set[w] & 7) ? 7 : set[w]; /* nobody quantises vectors */
					ck_assert_msg(may >> format & 1, "%s: %s is %s", trial_spec_show(&spec, line),
						o->info->name, plumb_format_name(format));
					seen[w] |= 1u << format;
				}
				trial_free(c);
			}
		for (int w = 0; w < TRIAL_FORMATS; w++)
			ck_assert_msg(!seen[w] || !(set[w] & trial_spec_formats(op, (enum trial_formats)w) & ~seen[w]),
				"%s: of %s not all came up", plumb_ops[op].name, words[w]);
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
	{"moe_router format=nvfp4,", "format", "nvfp4"},
	{"moe_router format=nvfp4 format=bf16", "format", "twice"},
	{"attn_decode kv=fp8_row", "kv", "f32, bf16, fp8,"},
	{"gdn_recurrence state=f16,fp8", "state", "f32, f16, bf16,"},
	{"embed class=offsets format=nvfp4,fp8_row", "offsets", "no matrices of fp8_row, nvfp4"},
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

/* moe_gate_up takes two units a warp and eight a block, where the rows are wide and of one piece: in class ragged
 * always, and never are the last of them full. */
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

int main(void)
{
	int classes = 0;
	while (trial_class(classes))
		classes++;
	Suite *suite = suite_create("trial");
	TCase *all = suite_part(suite, "all", 300);
	tcase_add_loop_test(all, a_line_is_printed_as_it_was_read, 0, (int)(sizeof lines / sizeof lines[0]));
	tcase_add_test(all, the_order_of_words_does_not_matter);
	tcase_add_test(all, sizes_are_as_said);
	tcase_add_loop_test(all, sizes_are_as_said_in_every_class, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(all, formats_are_as_said, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(all, bad_lines_are_refused_by_name, 0, (int)(sizeof bad / sizeof bad[0]));
	tcase_add_loop_test(all, a_class_changes_inputs, 0, classes);
	tcase_add_test(all, ragged_blocks_are_not_full);
	tcase_add_loop_test(all, bad_ids_in_both_arms, 0, 2);
	tcase_add_loop_test(all, one_element_is_noticed, 0, PLUMB_OP_COUNT);
	tcase_add_loop_test(all, a_class_finds_its_fault, 0, (int)(sizeof traps / sizeof traps[0]));
	tcase_add_test(all, differences_are_told_alike);
	tcase_add_test(all, unranked_rows);
	tcase_add_test(all, silu_of_minus_inf);
	return suite_run(suite);
}
