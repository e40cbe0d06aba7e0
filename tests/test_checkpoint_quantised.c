/* SPDX-License-Identifier: MIT */
/* Quantised checkpoints: every layout decodes to the same bits as the F32 values it stands for, scales are found by
 * what the dtype of a weight needs, and what is missing, mislabelled, misshapen or no scale is refused by name. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <sys/stat.h>

#include "core/checkpoint.h"
#include "core/numeric.h"
#include "core/safetensors.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tests/support/decode.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tests/support/write_safetensors.h"

static char dir[SCRATCH_PATH], source_dir[SCRATCH_PATH];

static void make_dirs(void)
{
	scratch_make(dir);
	scratch_make(source_dir);
}

static void remove_dirs(void)
{
	scratch_remove(dir);
	scratch_remove(source_dir);
}

static void empty(const char *folder)
{
	scratch_remove(folder);
	ck_assert_int_eq(mkdir(folder, 0700), 0);
}

static struct plumb_checkpoint *opened(const char *folder, const char *what)
{
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	int status = plumb_checkpoint_open(folder, &ck, &err);
	ck_assert_msg(status == PLUMB_OK, "%s: %s", what, err.text);
	return ck;
}

/* --- the released files in small ---------------------------------------------------------------------------------- */

static const struct plumb_tensor *tensor_of(const struct plumb_safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->tensors; i++)
		if (strcmp(file->tensor[i].name, name) == 0)
			return &file->tensor[i];
	ck_abort_msg("no %s", name);
	return NULL;
}

static struct plumb_safetensors *file_of(const char *path)
{
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	ck_assert_msg(plumb_safetensors_open(path, &file, &err) == PLUMB_OK, "%s", err.text);
	return file;
}

/* Expert 10 stands before expert 2 in its file, and gate, up and down have scales of their own. */
START_TEST(golden_nvfp4)
{
	static const char *const names[3] = {"gate", "up", "down"};
	struct plumb_checkpoint *ck = opened(PLUMB_GOLDEN_DIR "/tiny-nvfp4/checkpoint", "tiny-nvfp4");
	const struct plumb_model *m = plumb_checkpoint_model(ck);
	for (int l = 0; l < 4; l++) {
		char path[256], name[160];
		snprintf(path, sizeof path,
			PLUMB_GOLDEN_DIR "/tiny-nvfp4/checkpoint/layer-%05d-experts-0000-0011.safetensors", l);
		struct plumb_safetensors *file = file_of(path);
		for (int i = 0; i < 3 * 12; i++) {
			const struct plumb_moe_weights *moe = &m->layer[l].moe;
			const struct plumb_weight *w = (i % 3 == 0 ? moe->gate : i % 3 == 1 ? moe->up : moe->down) + i / 3;
			float global;
			int n = snprintf(name, sizeof name, "model.language_model.layers.%d.mlp.experts.%d.%s_proj.weight",
				l, i / 3, names[i % 3]);
			ck_assert_int_eq(w->format, PLUMB_NVFP4);
			ck_assert_int_eq(w->rows, i % 3 < 2 ? 48 : 64);
			ck_assert_int_eq(w->cols, i % 3 < 2 ? 64 : 48);
			ck_assert(memcmp(w->data, tensor_of(file, name)->data, plumb_weight_data_bytes(w)) == 0);
			snprintf(name + n, sizeof name - (size_t)n, "_scale");
			ck_assert_uint_eq(tensor_of(file, name)->bytes, plumb_weight_scale_bytes(w));
			ck_assert(memcmp(w->scale, tensor_of(file, name)->data, plumb_weight_scale_bytes(w)) == 0);
			snprintf(name + n, sizeof name - (size_t)n, "_scale_2");
			memcpy(&global, tensor_of(file, name)->data, 4);
			ck_assert(w->global == global && global > 0);
		}
		plumb_safetensors_close(file);
	}
	const struct plumb_ple_weights *ple = m->layer[1].ple;
	ck_assert_int_eq(ple->shards, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_int_eq(ple->table[i].format, PLUMB_FP8_TABLE);
		ck_assert(ple->table[i].global == ple->table[0].global && ple->table[0].global > 0);
		ck_assert(plumb_round_bf16(ple->table[i].global) == ple->table[i].global);
	}
	ck_assert_int_eq(m->layer[1].moe.shared_gate.format, PLUMB_BF16);
	plumb_checkpoint_close(ck);
}
END_TEST

START_TEST(golden_fp8)
{
	struct plumb_checkpoint *ck = opened(PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint", "tiny-fp8");
	const struct plumb_model *m = plumb_checkpoint_model(ck);
	struct plumb_safetensors *file = file_of(PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint/model-00004-of-00004.safetensors");
	const struct plumb_weight *w = &m->layer[3].moe.down[7];
	ck_assert_int_eq(w->format, PLUMB_FP8_BLOCK);
	ck_assert_int_eq(w->scale_format, PLUMB_BF16);
	ck_assert_uint_eq(plumb_weight_scale_bytes(w), 8);
	ck_assert(memcmp(w->scale,
			  tensor_of(file, "model.language_model.layers.3.mlp.experts.7.down_proj.weight_scale_inv")->data,
			  8) == 0);
	ck_assert_int_eq(m->layer[1].ple->table[3].format, PLUMB_FP8_TABLE);
	plumb_safetensors_close(file);
	plumb_checkpoint_close(ck);
}
END_TEST

/* --- every layout against its F32 values -------------------------------------------------------------------------- */

#define RELEASED_FP8                                                                                                       \
	"{\"quant_method\": \"fp8\", \"activation_scheme\": \"dynamic\", \"weight_block_size\": [128, 128], "              \
	"\"modules_to_not_convert\": [\"lm_head\"], \"modules_to_convert\": [\"ple.ple_embedding.ngram_embedding\"]}"
#define RELEASED_NVFP4                                                                                                     \
	"{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"config_groups\": {\"group_0\": {\"targets\": "      \
	"[\"Linear\"], \"weights\": {\"num_bits\": 4, \"type\": \"float\", \"group_size\": 16, \"dynamic\": "              \
	"false}}}, "                                                                                                       \
	"\"ignore\": [\"*.ple.*\", \"lm_head\"]}"
#define MIXED(experts, draft)                                                                                              \
	"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": {"                    \
	"\"model.language_model.layers.0.mlp.experts\": {\"quant_algo\": \"" experts "\", \"group_size\": 16}, "           \
	"\"model.language_model.layers.1.mlp.experts\": {\"quant_algo\": \"" experts "\", \"group_size\": 16}, "           \
	"\"model.language_model.layers.0.ple.ple_embedding.ngram_embedding\": {\"quant_algo\": \"FP8\"}, "                 \
	"\"mtp.layers.0.mlp.experts\": {\"quant_algo\": \"" draft "\", \"group_size\": 128}}}"

static const struct {
	const char *what;
	struct random_checkpoint options;
	bool nested, wide;
} layouts[] = {
	{"block FP8 experts", {.experts = PLUMB_FP8_BLOCK, .scale_format = PLUMB_BF16, .ple_shards = 4}, false, false},
	{"block FP8 experts, wide", {.experts = PLUMB_FP8_BLOCK, .scale_format = PLUMB_BF16, .ple_shards = 4}, false, true},
	{"block FP8 experts, F32 scales", {.experts = PLUMB_FP8_BLOCK, .ple_shards = 4}, false, true},
	{"the FP8 release",
		{.experts = PLUMB_FP8_BLOCK,
			.scale_format = PLUMB_BF16,
			.fp8_table = true,
			.ple_shards = 7,
			.files = 4,
			.index = true,
			.extras = true,
			.quantization_config = RELEASED_FP8},
		true, true},
	{"nvfp4 experts", {.experts = PLUMB_NVFP4, .ple_shards = 4}, false, false},
	{"nvfp4 experts, wide", {.experts = PLUMB_NVFP4, .ple_shards = 4}, false, true},
	{"the RadixArk release",
		{.experts = PLUMB_NVFP4,
			.scale_format = PLUMB_BF16,
			.fp8_table = true,
			.ple_shards = 11,
			.files = 9,
			.index = true,
			.extras = true,
			.quantization_config = RELEASED_NVFP4},
		true, false},
	{"the nvidia release",
		{.experts = PLUMB_NVFP4,
			.scale_format = PLUMB_BF16,
			.fp8_table = true,
			.ple_shards = 4,
			.files = 3,
			.index = true,
			.extras = true,
			.quantization_config = MIXED("NVFP4", "FP8_PB_WO")},
		true, false},
	{"the nvidia release, other spelling",
		{.experts = PLUMB_NVFP4,
			.scale_format = PLUMB_BF16,
			.fp8_table = true,
			.ple_shards = 4,
			.extras = true,
			.quantization_config = MIXED("NVFP4", "FP8_BLOCK_SCALES")},
		true, false},
	{"a table in one tensor, F32 scale", {.fp8_table = true, .format = PLUMB_BF16}, false, false},
	{"FP8 a row", {.experts = PLUMB_FP8_ROW, .matrices = PLUMB_FP8_ROW, .ple_shards = 4}, false, false},
	{"FP8 a row, bf16 columns of scales",
		{.experts = PLUMB_FP8_ROW,
			.matrices = PLUMB_FP8_ROW,
			.scale_format = PLUMB_BF16,
			.column_scales = true,
			.ple_shards = 4},
		false, true},
	{"FP8 a matrix", {.experts = PLUMB_FP8_TABLE, .matrices = PLUMB_FP8_TABLE, .ple_shards = 4}, false, false},
	{"all block FP8",
		{.experts = PLUMB_FP8_BLOCK, .matrices = PLUMB_FP8_BLOCK, .scale_format = PLUMB_BF16, .fp8_table = true},
		false, true},
	{"all nvfp4", {.experts = PLUMB_NVFP4, .matrices = PLUMB_NVFP4, .fp8_table = true}, false, true},
	{"all nvfp4 at an odd byte", {.experts = PLUMB_NVFP4, .matrices = PLUMB_NVFP4, .shift = 1}, false, false},
	{"nvfp4 experts in block FP8, at an odd byte",
		{.experts = PLUMB_NVFP4,
			.matrices = PLUMB_FP8_BLOCK,
			.scale_format = PLUMB_F32,
			.fp8_table = true,
			.shift = 3},
		true, true},
	{"stacked BF16 experts in nvfp4", {.format = PLUMB_BF16, .stacked_experts = true, .matrices = PLUMB_NVFP4}, false,
		false},
};
enum { LAYOUTS = sizeof layouts / sizeof layouts[0] };

static struct plumb_config config_of(int i)
{
	struct plumb_config cfg = random_checkpoint_smallest();
	cfg.nested = layouts[i].nested;
	if (layouts[i].wide) { /* more than one block each way, none whole */
		cfg.hidden = 130;
		cfg.expert_inner = 133;
		cfg.vocab = 140;
	}
	return cfg;
}

static void write_layout(const char *folder, int i, bool dequantised)
{
	struct plumb_config cfg = config_of(i);
	struct random_checkpoint options = layouts[i].options;
	options.seed = 11;
	options.dequantised = dequantised;
	if (!options.format)
		options.format = PLUMB_BF16;
	if (dequantised) /* one file of F32 values and none of what surrounds the other */
		options.quantization_config = NULL, options.files = 0, options.index = false, options.shift = 0;
	random_checkpoint_write(folder, &cfg, &options);
}

enum { TOKENS = 19 };

/* All logits of a short sequence, in two steps. */
static float *logits_of(const struct plumb_model *model, const struct plumb_set *set)
{
	const struct plumb_config *cfg = &model->cfg;
	struct plumb_decoder_options o = {.capacity = TOKENS, .all_logits = true};
	struct plumb_decoder *d = decode_create(model, set, NULL, &o);
	float *logits = malloc((size_t)(TOKENS * cfg->vocab) * sizeof *logits);
	int32_t token[TOKENS];
	for (int t = 0; t < TOKENS; t++)
		token[t] = decode_token(cfg, t);
	for (int t = 0, n = 1; t < TOKENS; t += n, n = TOKENS - 1) {
		decode_step(d, token + t, n);
		ck_assert_int_eq(plumb_decoder_rows(d), n);
		memcpy(logits + t * cfg->vocab, plumb_decoder_logits(d), (size_t)(n * cfg->vocab) * sizeof *logits);
	}
	plumb_decoder_destroy(d);
	return logits;
}

START_TEST(same_bits_as_dequantised)
{
	const struct plumb_set *const sets[] = {&plumb_ref_oracle, &plumb_ref_twin};
	const char *what = layouts[_i].what;
	write_layout(source_dir, _i, false);
	write_layout(dir, _i, true);
	struct plumb_checkpoint *stored = opened(source_dir, what), *plain = opened(dir, what);
	const struct plumb_model *m = plumb_checkpoint_model(stored);
	if (layouts[_i].options.experts) {
		enum plumb_format one = layouts[_i].options.experts;
		ck_assert_int_eq(m->layer[1].moe.up[2].format, one == PLUMB_FP8_TABLE ? PLUMB_FP8_ROW : one);
		ck_assert_int_eq(plumb_checkpoint_model(plain)->layer[1].moe.up[2].format, PLUMB_F32);
	}
	if (layouts[_i].options.fp8_table)
		ck_assert_int_eq(m->layer[0].ple->table[0].format, PLUMB_FP8_TABLE);
	for (int s = 0; s < 2; s++) {
		int64_t count = TOKENS * m->cfg.vocab, wrong = 0;
		float *a = logits_of(m, sets[s]), *b = logits_of(plumb_checkpoint_model(plain), sets[s]);
		double sum = 0;
		for (int64_t i = 0; i < count; i++) {
			wrong += plumb_f32_bits(a[i]) != plumb_f32_bits(b[i]);
			sum += fabs((double)a[i]);
		}
		ck_assert_msg(wrong == 0, "%s: %lld of %lld logits differ", what, (long long)wrong, (long long)count);
		ck_assert_msg(sum > 0 && isfinite(sum), "%s: logits say nothing", what);
		free(a);
		free(b);
	}
	plumb_checkpoint_close(stored);
	plumb_checkpoint_close(plain);
}
END_TEST

/* --- refusals ----------------------------------------------------------------------------------------------------- */

/* The folder is refused with one line that begins with a path in it and contains both strings. */
static void refused(const char *contains, const char *also, const char *what)
{
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	int status = plumb_checkpoint_open(dir, &ck, &err);
	ck_assert_msg(status == PLUMB_BAD_INPUT, "%s %s: status %d, expected it refused", contains, what, status);
	ck_assert_msg(strncmp(err.text, dir, strlen(dir)) == 0, "%s: \"%s\" does not name the file", what, err.text);
	ck_assert_msg(strstr(err.text, contains) && strstr(err.text, also), "%s: \"%s\" does not name \"%s\" and \"%s\"",
		what, err.text, contains, also);
}

/* One tensor changed in a copy of source_dir/model.safetensors. */
struct change {
	const char *name, *dtype; /* NULL: keep */
	int rank;                 /* with dims; -1: keep */
	int64_t dims[3];
	size_t bytes;      /* of data, then too; zeros after those there are */
	const void *value; /* overwrites value_bytes at value_at; NULL: keep */
	size_t value_at, value_bytes;
	bool drop, twice;
};

static void rewrite(const char *name, const struct change *with)
{
	char from[SCRATCH_PATH], to[SCRATCH_PATH];
	bool found = false;
	struct plumb_safetensors *file = file_of(scratch_path(from, source_dir, "model.safetensors"));
	struct safetensors_writer *w = safetensors_begin(scratch_path(to, dir, "model.safetensors"));
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		bool here = strcmp(t->name, name) == 0;
		found |= here;
		if (!here || with->twice)
			safetensors_add(w, t->name, plumb_dtype_name(t->dtype), t->rank, t->dim, t->data, t->bytes);
		if (!here || with->drop)
			continue;
		size_t bytes = with->rank < 0 ? t->bytes : with->bytes;
		unsigned char *data = calloc(1, bytes + 1);
		memcpy(data, t->data, bytes < t->bytes ? bytes : t->bytes);
		if (with->value)
			memcpy(data + with->value_at, with->value, with->value_bytes);
		safetensors_add(w, with->name ? with->name : t->name,
			with->dtype ? with->dtype : plumb_dtype_name(t->dtype), with->rank < 0 ? t->rank : with->rank,
			with->rank < 0 ? t->dim : with->dims, data, bytes);
		free(data);
	}
	ck_assert_msg(found, "no tensor %s", name);
	safetensors_finish(w, 0);
	plumb_safetensors_close(file);
}

static void copy_config(void)
{
	char path[SCRATCH_PATH];
	size_t size;
	char *config = scratch_read(scratch_path(path, source_dir, "config.json"), &size);
	scratch_write(dir, "config.json", config, size);
	free(config);
}

/* Layout i alone in source_dir, and its config in dir. */
static void start(int i)
{
	empty(source_dir);
	empty(dir);
	write_layout(source_dir, i, false);
	copy_config();
}

static int layout_named(const char *what)
{
	for (int i = 0; i < LAYOUTS; i++)
		if (strcmp(layouts[i].what, what) == 0)
			return i;
	ck_abort_msg("no layout %s", what);
	return -1;
}

#define DOWN "model.layers.1.mlp.experts.2.down_proj."
#define TABLE "model.layers.0.ple.ple_embedding.ngram_embedding."

static void refused_change(const char *name, struct change with, const char *contains, const char *also)
{
	rewrite(name, &with);
	refused(contains, also, name);
}

static const float nan32 = (float)NAN, inf32 = (float)INFINITY, minus32 = -1, minus_zero32 = -0.0f, zero32 = 0;
static const uint16_t nan16 = 0x7FC0, inf16 = 0x7F80, minus16 = 0xBF80;

#define KEEP .rank = -1
#define PUT(variable, at) KEEP, .value = &(variable), .value_at = (at), .value_bytes = sizeof(variable)
#define SHAPE(r, size, ...) .rank = (r), .dims = {__VA_ARGS__}, .bytes = (size)

/* down is (12, 9) in the smallest config, (130, 133) in the wide one. */
START_TEST(refused_nvfp4)
{
	start(layout_named("nvfp4 experts"));
	refused_change(DOWN "weight_scale", (struct change){.drop = true, KEEP}, DOWN "weight_scale is missing", "nvfp4");
	refused_change(DOWN "weight_scale_2", (struct change){.drop = true, KEEP}, DOWN "weight_scale_2 is missing", "U8");
	refused_change(DOWN "weight", (struct change){.drop = true, KEEP}, DOWN "weight is missing", "[12, 9]");
	refused_change(
		DOWN "weight", (struct change){SHAPE(2, 108, 12, 9)}, DOWN "weight has shape [12, 9]", "expected [12, 5]");
	refused_change(
		DOWN "weight", (struct change){SHAPE(2, 48, 12, 4)}, DOWN "weight has shape [12, 4]", "expected [12, 5]");
	refused_change(DOWN "weight", (struct change){SHAPE(1, 60, 60)}, DOWN "weight has shape [60]", "expected [12, 5]");
	refused_change(DOWN "weight", (struct change){.dtype = "I8", KEEP}, DOWN "weight has dtype I8", "U8 (nvfp4)");
	refused_change(DOWN "weight", (struct change){.dtype = "F8_E4M3", KEEP}, DOWN "weight has shape [12, 5]",
		"expected [12, 9]");
	refused_change(
		DOWN "weight", (struct change){.dtype = "F8_E5M2", KEEP}, DOWN "weight has dtype F8_E5M2", "F8_E4M3");
	refused_change(DOWN "weight", (struct change){.dtype = "F4", SHAPE(2, 60, 12, 10)}, DOWN "weight has dtype F4",
		"U8 (nvfp4)");
	refused_change(
		DOWN "weight_scale", (struct change){.dtype = "U8", KEEP}, DOWN "weight_scale has dtype U8", "F8_E4M3");
	refused_change(DOWN "weight_scale", (struct change){.dtype = "F8_E8M0", KEEP}, "has dtype F8_E8M0", "F8_E4M3");
	refused_change(
		DOWN "weight_scale", (struct change){SHAPE(2, 12, 1, 12)}, "weight_scale has shape [1, 12]", "[12, 1]");
	refused_change(DOWN "weight_scale", (struct change){SHAPE(1, 12, 12)}, "weight_scale has shape [12]", "[12, 1]");
	refused_change(
		DOWN "weight_scale", (struct change){SHAPE(2, 24, 12, 2)}, "weight_scale has shape [12, 2]", "[12, 1]");
	refused_change(DOWN "weight_scale_2", (struct change){SHAPE(1, 8, 2)}, "weight_scale_2 has shape [2]", "[] or [1]");
	refused_change(DOWN "weight_scale_2", (struct change){.dtype = "BF16", SHAPE(0, 2, 0)},
		"weight_scale_2 has dtype BF16", "F32");
	refused_change(DOWN "weight_scale_2", (struct change){PUT(nan32, 0)}, "weight_scale_2 is nan", "above 0");
	refused_change(DOWN "weight_scale_2", (struct change){PUT(inf32, 0)}, "weight_scale_2 is inf", "above 0");
	refused_change(DOWN "weight_scale_2", (struct change){PUT(minus32, 0)}, "weight_scale_2 is -1", "above 0");
	refused_change(DOWN "weight_scale_2", (struct change){PUT(zero32, 0)}, "weight_scale_2 is 0", "above 0");
	refused_change(DOWN "input_scale", (struct change){SHAPE(1, 8, 2)}, "input_scale has shape [2]", "[] or [1]");
	refused_change(DOWN "input_scale", (struct change){.dtype = "I32", KEEP}, "input_scale has dtype I32", "F32");
	/* one of two names for a scale, and scales of something that has none */
	refused_change(DOWN "weight_scale_2", (struct change){.name = DOWN "weight_scale_inv", .twice = true, KEEP},
		"weight_scale_inv", "is unknown");
	refused_change(DOWN "weight_scale",
		(struct change){.name = "model.layers.0.mlp.gate.weight_scale", .twice = true, KEEP}, "gate.weight_scale",
		"is unknown");
	refused_change(DOWN "input_scale",
		(struct change){.name = "model.layers.0.mlp.gate.input_scale", .twice = true, KEEP}, "gate.input_scale",
		"is unknown");
	/* accepted: no input_scale; a scale_2 of rank 1; an infinite input_scale, which nobody uses */
	rewrite(DOWN "input_scale", &(struct change){.drop = true, KEEP});
	plumb_checkpoint_close(opened(dir, "no input_scale"));
	rewrite(DOWN "weight_scale_2", &(struct change){SHAPE(1, 4, 1)});
	plumb_checkpoint_close(opened(dir, "scale_2 of rank 1"));
	rewrite(DOWN "input_scale", &(struct change){PUT(inf32, 0)});
	plumb_checkpoint_close(opened(dir, "input_scale inf"));
}
END_TEST

START_TEST(refused_fp8)
{
	start(layout_named("block FP8 experts, wide")); /* BF16 scales [2, 2] */
	refused_change(DOWN "weight_scale_inv", (struct change){.drop = true, KEEP}, DOWN "weight_scale is missing",
		"weight_scale_inv");
	refused_change(DOWN "weight_scale_inv", (struct change){SHAPE(2, 4, 2, 1)}, "scale_inv has shape [2, 1]",
		"[2, 2] (a block)");
	refused_change(
		DOWN "weight_scale_inv", (struct change){SHAPE(1, 8, 4)}, "scale_inv has shape [4]", "[2, 2] (a block)");
	refused_change(
		DOWN "weight_scale_inv", (struct change){SHAPE(0, 2, 0)}, "scale_inv has shape []", "[2, 2] (a block)");
	refused_change(DOWN "weight_scale_inv", (struct change){SHAPE(2, 260, 130, 1)}, "scale_inv has shape [130, 1]",
		"[2, 2] (a block)");
	refused_change(DOWN "weight_scale_inv", (struct change){.name = DOWN "weight_scale", SHAPE(2, 12, 2, 3)},
		"weight_scale has shape [2, 3]", "[2, 2] (a block), [130] or [130, 1] (a row), [] or [1]");
	refused_change(
		DOWN "weight_scale_inv", (struct change){.dtype = "F16", KEEP}, "scale_inv has dtype F16", "BF16 or F32");
	refused_change(DOWN "weight_scale_inv", (struct change){.dtype = "F8_E8M0", SHAPE(2, 4, 2, 2)}, "dtype F8_E8M0",
		"BF16 or F32");
	refused_change(DOWN "weight_scale_inv", (struct change){PUT(nan16, 2)}, "weight_scale_inv[0, 1] is nan", "from 0");
	refused_change(DOWN "weight_scale_inv", (struct change){PUT(inf16, 4)}, "weight_scale_inv[1, 0] is inf", "from 0");
	refused_change(DOWN "weight_scale_inv", (struct change){PUT(minus16, 6)}, "weight_scale_inv[1, 1] is -1", "from 0");
	refused_change(
		DOWN "weight", (struct change){SHAPE(2, 17290, 133, 130)}, "weight has shape [133, 130]", "[130, 133]");
	refused_change(DOWN "weight", (struct change){.dtype = "F8_E4M3FNUZ", KEEP}, "dtype F8_E4M3FNUZ", "F8_E4M3");
	refused_change(
		DOWN "weight", (struct change){.dtype = "U8", KEEP}, "weight has shape [130, 133]", "expected [130, 67]");
	/* a BF16 weight beside a scale that was forgotten */
	refused_change(DOWN "weight", (struct change){.dtype = "BF16", SHAPE(2, 34580, 130, 133)}, "weight_scale_inv",
		"is unknown");
	/* accepted: block scales under the other name, a block of zeros */
	rewrite(DOWN "weight_scale_inv", &(struct change){.name = DOWN "weight_scale", KEEP});
	struct plumb_checkpoint *ck = opened(dir, "weight_scale a block");
	ck_assert_int_eq(plumb_checkpoint_model(ck)->layer[1].moe.down[2].format, PLUMB_FP8_BLOCK);
	plumb_checkpoint_close(ck);
	rewrite(DOWN "weight_scale_inv", &(struct change){KEEP, .value = &zero32, .value_at = 2, .value_bytes = 2});
	plumb_checkpoint_close(opened(dir, "a block of zeros"));

	start(layout_named("FP8 a row"));
	refused_change(DOWN "weight_scale", (struct change){PUT(nan32, 44)}, "weight_scale[11] is nan", "from 0");
	refused_change(DOWN "weight_scale", (struct change){PUT(minus_zero32, 4)}, "weight_scale[1] is -0", "from 0");
	refused_change(DOWN "weight_scale", (struct change){SHAPE(2, 48, 1, 12)}, "weight_scale has shape [1, 12]",
		"[12, 1] (a row)");
	refused_change(DOWN "weight_scale", (struct change){SHAPE(1, 36, 9)}, "weight_scale has shape [9]", "[12]");
	start(layout_named("FP8 a matrix"));
	refused_change(DOWN "weight_scale", (struct change){PUT(zero32, 0)}, "weight_scale is 0", "above 0");
	refused_change(DOWN "weight_scale", (struct change){PUT(nan32, 0)}, "weight_scale is nan", "above 0");
	/* only matrices: neither vectors nor convolutions nor stacks */
	start(layout_named("block FP8 experts"));
	refused_change("model.layers.1.self_attn.q_norm.weight", (struct change){.dtype = "F8_E4M3", SHAPE(1, 8, 8)},
		"q_norm.weight has dtype F8_E4M3", "BF16, F16 or F32");
	refused_change("model.layers.0.ple.conv1d.weight", (struct change){.dtype = "U8", SHAPE(3, 48, 24, 1, 2)},
		"conv1d.weight has dtype U8", "BF16, F16 or F32");
	start(layout_named("stacked BF16 experts in nvfp4"));
	refused_change("model.layers.0.mlp.experts.down_proj", (struct change){.dtype = "F8_E4M3", SHAPE(3, 432, 4, 12, 9)},
		"experts.down_proj has dtype F8_E4M3", "BF16, F16 or F32");
}
END_TEST

START_TEST(refused_tables)
{
	start(layout_named("all block FP8"));
	refused_change(TABLE "weight_scale", (struct change){.drop = true, KEEP}, TABLE "weight_scale is missing",
		"the scale of the table");
	refused_change(TABLE "weight_scale", (struct change){SHAPE(1, 4, 2)}, "weight_scale has shape [2]", "[] or [1]");
	refused_change(TABLE "weight_scale", (struct change){.dtype = "F8_E4M3", SHAPE(0, 1, 0)},
		"weight_scale has dtype F8_E4M3", "BF16 or F32");
	refused_change(TABLE "weight_scale", (struct change){PUT(nan16, 0)}, "weight_scale[0] is nan", "above 0");
	refused_change(TABLE "weight_scale", (struct change){PUT(minus16, 0)}, "weight_scale[0] is -1", "above 0");
	refused_change(
		TABLE "weight", (struct change){.dtype = "U8", KEEP}, TABLE "weight has dtype U8", "F8_E4M3 with a scale");
	rewrite(TABLE "weight_scale", &(struct change){SHAPE(0, 2, 0)});
	plumb_checkpoint_close(opened(dir, "a BF16 scale of rank 0"));

	/* shards that disagree: 152 rows of 4 in 4 parts */
	empty(source_dir);
	struct plumb_config cfg = random_checkpoint_smallest();
	random_checkpoint_write(source_dir, &cfg,
		&(struct random_checkpoint){.seed = 3, .format = PLUMB_BF16, .fp8_table = true, .ple_shards = 4});
	copy_config();
	refused_change(TABLE "shard_2.weight", (struct change){.dtype = "BF16", SHAPE(2, 304, 38, 4)},
		"shard_2.weight is stored as bf16", "expected fp8_table");
	refused_change(TABLE "shard_0.weight", (struct change){.dtype = "BF16", SHAPE(2, 304, 38, 4)},
		"shard_1.weight is stored as fp8_table", "expected bf16");
}
END_TEST

/* A config that says something else than the tensors. layout: which tensors are there. */
static const struct {
	const char *layout, *config, *contains, *also;
} contradictions[] = {
	{"block FP8 experts", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 64]}",
		"weight_block_size is [128, 64]", "expected [128, 128]"},
	{"block FP8 experts", "{\"quant_method\": \"fp8\", \"weight_block_size\": [128]}", "weight_block_size",
		"[128, 128]"},
	{"block FP8 experts", "{\"quant_method\": \"fp8\", \"weight_block_size\": 128}", "weight_block_size is 128",
		"array"},
	{"block FP8 experts", "{\"quant_method\": 8}", "quant_method is 8", "string"},
	{"block FP8 experts", "[]", "quantization_config is an array", "object"},
	{"nvfp4 experts", "{\"quant_method\": \"fp8\"}", "quant_method is fp8", "none ending in .weight has dtype F8_E4M3"},
	{"block FP8 experts", RELEASED_NVFP4, "quant_algo is NVFP4", "none ending in .weight has dtype U8"},
	{"nvfp4 experts", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"FP8_PB_WO\"}", "quant_algo is FP8_PB_WO",
		"F8_E4M3"},
	{"nvfp4 experts", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\", \"group_size\": 32}",
		"group_size is 32", "expected 16"},
	{"nvfp4 experts",
		"{\"quant_method\": \"modelopt\", \"config_groups\": {\"g\": {\"weights\": {\"num_bits\": 4, "
		"\"group_size\": 32}}}}",
		"config_groups.g.weights.group_size is 32", "expected 16"},
	{"nvfp4 experts",
		"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": "
		"{\"model.layers.1.mlp.experts\": {\"quant_algo\": \"FP8_PB_WO\", \"group_size\": 128}}}",
		"quantized_layers[\"model.layers.1.mlp.experts\"].quant_algo is FP8_PB_WO",
		"experts.0.down_proj.weight has dtype U8"},
	{"block FP8 experts",
		"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": "
		"{\"model.layers.1.mlp.experts\": {\"quant_algo\": \"FP8_BLOCK_SCALES\", \"group_size\": 64}}}",
		"group_size is 64", "expected 128"},
	{"nvfp4 experts",
		"{\"quant_method\": \"modelopt\", \"quant_algo\": \"MIXED_PRECISION\", \"quantized_layers\": "
		"{\"model.layers.0.ple.ple_embedding.ngram_embedding\": {\"quant_algo\": \"FP8\"}}}",
		"ngram_embedding\"].quant_algo is FP8", "shard_0.weight has dtype BF16"},
	{"nvfp4 experts",
		"{\"quant_method\": \"modelopt\", \"quantized_layers\": {\"model.layers.0.mlp.shared_expert\": "
		"{\"quant_algo\": \"NVFP4\"}}}",
		"shared_expert\"].quant_algo is NVFP4", "has dtype BF16"},
	/* no contradiction */
	{"nvfp4 experts", "{}", NULL, NULL},
	{"nvfp4 experts", "null", NULL, NULL},
	{"nvfp4 experts", "{\"quant_method\": \"gptq\", \"bits\": 3}", NULL, NULL},
	{"nvfp4 experts", "{\"quant_method\": \"modelopt\", \"quant_algo\": \"W5A5\"}", NULL, NULL},
	{"block FP8 experts", "{\"quant_method\": \"fp8\"}", NULL, NULL},
	{"nvfp4 experts",
		"{\"quant_method\": \"modelopt\", \"quantized_layers\": {\"model.layers.9.mlp\": {\"quant_algo\": "
		"\"FP8\"}, "
		"\"model.layers.1\": {\"quant_algo\": \"W5A5\"}, \"model.layers.1.mlp.exp\": {\"quant_algo\": "
		"\"FP8\"}}}",
		NULL, NULL},
};

START_TEST(refused_configs)
{
	static char text[65536], with[2 * sizeof text];
	for (size_t i = 0; i < sizeof contradictions / sizeof contradictions[0]; i++) {
		int layout = layout_named(contradictions[i].layout);
		struct plumb_config cfg = config_of(layout);
		empty(dir);
		write_layout(dir, layout, false);
		random_checkpoint_config(&cfg, text, sizeof text);
		snprintf(with, sizeof with, "{\"quantization_config\": %s,%s", contradictions[i].config,
			strchr(text, '{') + 1);
		scratch_write(dir, "config.json", with, (size_t)-1);
		if (contradictions[i].contains)
			refused(contradictions[i].contains, contradictions[i].also, contradictions[i].config);
		else
			plumb_checkpoint_close(opened(dir, contradictions[i].config));
	}
}
END_TEST

/* The same in hf_quant_config.json, as ModelOpt writes it. contains NULL: no contradiction. */
#define SIDECAR(inside) "{\"producer\": {\"name\": \"modelopt\"}, \"quantization\": {" inside "}}"
static const struct {
	const char *layout, *text, *contains, *also;
} sidecars[] = {
	{"the RadixArk release",
		SIDECAR("\"quant_algo\": \"NVFP4\", \"kv_cache_quant_algo\": null, \"group_size\": 16, "
			"\"exclude_modules\": [\"*.ple.*\", \"lm_head\"]"),
		NULL, NULL},
	{"the nvidia release",
		SIDECAR("\"quant_algo\": \"MIXED_PRECISION\", \"kv_cache_quant_algo\": \"FP8\", \"quantized_layers\": "
			"{\"model.language_model.layers.1.mlp.experts\": {\"quant_algo\": \"NVFP4\", \"group_size\": 16}, "
			"\"mtp.layers.0.mlp.experts\": {\"quant_algo\": \"FP8_BLOCK_SCALES\", \"group_size\": 128}}"),
		NULL, NULL},
	{"nvfp4 experts", "{}", NULL, NULL},
	{"nvfp4 experts", SIDECAR("\"quant_algo\": \"W5A5\""), NULL, NULL},
	{"block FP8 experts", SIDECAR("\"quant_algo\": \"NVFP4\""), "quantization.quant_algo is NVFP4",
		"none ending in .weight has dtype U8"},
	{"nvfp4 experts", SIDECAR("\"quant_algo\": \"NVFP4\", \"group_size\": 32"), "quantization.group_size is 32",
		"expected 16"},
	{"nvfp4 experts", SIDECAR("\"quant_algo\": 4"), "quantization.quant_algo is 4", "string"},
	{"nvfp4 experts", SIDECAR("\"quantized_layers\": {\"model.layers.1.mlp.experts\": {\"quant_algo\": \"FP8\"}}"),
		"quantization.quantized_layers[\"model.layers.1.mlp.experts\"].quant_algo is FP8",
		"experts.0.down_proj.weight has dtype U8"},
	{"nvfp4 experts", "{\"quantization\": []}", "quantization is an array", "object"},
	{"nvfp4 experts", "{\"quantization\": {}", "hf_quant_config.json", ""},
	{"nvfp4 experts", "", "hf_quant_config.json", ""},
};

START_TEST(refused_sidecars)
{
	char path[SCRATCH_PATH];
	for (size_t i = 0; i < sizeof sidecars / sizeof sidecars[0]; i++) {
		empty(dir);
		write_layout(dir, layout_named(sidecars[i].layout), false);
		scratch_write(dir, "hf_quant_config.json", sidecars[i].text, (size_t)-1);
		if (sidecars[i].contains)
			refused(sidecars[i].contains, sidecars[i].also, sidecars[i].text);
		else
			plumb_checkpoint_close(opened(dir, sidecars[i].text));
	}
	ck_assert_int_eq(unlink(scratch_path(path, dir, "hf_quant_config.json")), 0);
	ck_assert_int_eq(symlink("nowhere.json", path), 0); /* of the hub's cache, half fetched */
	refused("hf_quant_config.json", "", "a link to nothing");
}
END_TEST

/* The LIMIT of core/bind.h: a NaN code is not found when the folder is opened. It is a NaN weight, no number
 * (and plumb_model_scan finds it: test_requantise). */
START_TEST(nan_codes)
{
	static const unsigned char code = 0xFF;
	float row[16];
	struct plumb_checkpoint *ck;
	start(layout_named("block FP8 experts"));
	rewrite(DOWN "weight", &(struct change){PUT(code, 9 + 4)});
	ck = opened(dir, "a NaN code");
	plumb_weight_row(&plumb_checkpoint_model(ck)->layer[1].moe.down[2], 1, 0, 9, row);
	for (int k = 0; k < 9; k++)
		ck_assert_int_eq(isnan(row[k]) != 0, k == 4);
	plumb_checkpoint_close(ck);
	start(layout_named("nvfp4 experts"));
	rewrite(DOWN "weight_scale", &(struct change){PUT(code, 3)});
	ck = opened(dir, "a NaN block scale");
	for (int n = 2; n < 5; n++) {
		plumb_weight_row(&plumb_checkpoint_model(ck)->layer[1].moe.down[2], n, 0, 9, row);
		for (int k = 0; k < 9; k++)
			ck_assert_int_eq(isnan(row[k]) != 0, n == 3);
	}
	plumb_checkpoint_close(ck);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checkpoint_quantised");
	TCase *all = suite_part(suite, "all", 120);
	tcase_add_checked_fixture(all, make_dirs, remove_dirs);
	tcase_add_test(all, golden_nvfp4);
	tcase_add_test(all, golden_fp8);
	tcase_add_loop_test(all, same_bits_as_dequantised, 0, LAYOUTS);
	tcase_add_test(all, refused_nvfp4);
	tcase_add_test(all, refused_fp8);
	tcase_add_test(all, refused_tables);
	tcase_add_test(all, refused_configs);
	tcase_add_test(all, refused_sidecars);
	tcase_add_test(all, nan_codes);
	return suite_run(suite);
}
