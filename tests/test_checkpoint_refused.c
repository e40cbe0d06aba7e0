/* SPDX-License-Identifier: MIT */
/* Checkpoint folders that are refused: each tensor wrong in each way, configs and indexes that say something else, and
 * folders that are none. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checkpoint.h"
#include "core/safetensors.h"
#include "tests/support/random_checkpoint.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tests/support/write_safetensors.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/checkpoint"

static char dir[SCRATCH_PATH];

static void make_dir(void)
{
	scratch_make(dir);
}

static void remove_dir(void)
{
	scratch_remove(dir);
}

static void empty_dir(void)
{
	scratch_remove(dir);
	ck_assert_int_eq(mkdir(dir, 0700), 0);
}

static struct plumb_checkpoint *opened(const char *folder)
{
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	int status = plumb_checkpoint_open(folder, &ck, &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	return ck;
}

/* The folder is refused with one line that begins with a path in it and contains both strings. */
static void refused(const char *contains, const char *also, const char *what)
{
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	int status = plumb_checkpoint_open(dir, &ck, &err);
	ck_assert_msg(status == PLUMB_BAD_INPUT, "%s: status %d, expected it refused", what, status);
	ck_assert_msg(ck == NULL, "%s: result set", what);
	ck_assert_msg(strncmp(err.text, dir, strlen(dir)) == 0, "%s: \"%s\" does not name the file", what, err.text);
	ck_assert_msg(strstr(err.text, contains) && strstr(err.text, also), "%s: \"%s\" does not name \"%s\" and \"%s\"",
		what, err.text, contains, also);
	ck_assert_msg(strchr(err.text, '\n') == NULL, "%s: more than a line", what);
}

/* A changed copy of the tensors in dir/model.safetensors. Tensor `at` gets the fields of `with` that are set. */
struct change {
	const char *name;  /* NULL: keep */
	const char *dtype; /* NULL: keep */
	int lead;          /* put a dimension of 1 in front */
	int trail;         /* put one behind */
	int more;          /* add to the first dimension (with zeros as data) */
	int flip;          /* add one to the I64 value of this index, from 1 */
	bool twice;        /* leave it and add a copy under name */
	bool drop;         /* leave it out */
};

static void rewrite(const char *source, size_t at, const struct change *with)
{
	char path[SCRATCH_PATH];
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	ck_assert_msg(plumb_safetensors_open(source, &file, &err) == PLUMB_OK, "%s", err.text);
	struct safetensors_writer *w = safetensors_begin(scratch_path(path, dir, "model.safetensors"));
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		int64_t dims[PLUMB_TENSOR_RANK + 1] = {1};
		if (i != at || with->twice)
			safetensors_add(w, t->name, plumb_dtype_name(t->dtype), t->rank, t->dim, t->data, t->bytes);
		if (i != at || with->drop)
			continue;
		memcpy(dims + with->lead, t->dim, (size_t)t->rank * sizeof *dims);
		if (with->trail)
			dims[t->rank] = 1;
		dims[with->lead] += with->more;
		size_t bytes = t->bytes / (size_t)t->dim[0] * (size_t)(t->dim[0] + with->more);
		unsigned char *data = calloc(1, bytes + 8);
		memcpy(data, t->data, bytes < t->bytes ? bytes : t->bytes);
		if (with->flip)
			data[8 * (with->flip - 1)]++;
		safetensors_add(w, with->name ? with->name : t->name,
			with->dtype ? with->dtype : plumb_dtype_name(t->dtype), t->rank + with->lead + with->trail, dims,
			data, bytes);
		free(data);
	}
	safetensors_finish(w, 0);
	plumb_safetensors_close(file);
}

/* Every tensor of a checkpoint in turn: absent, renamed, of a wrong shape, of a wrong dtype. */
static void every_tensor(const struct random_checkpoint *options)
{
	char first[SCRATCH_PATH], source[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	random_checkpoint_write(scratch_make(first), &cfg, options);
	random_checkpoint_write(dir, &cfg, options);
	ck_assert_int_eq(plumb_safetensors_open(scratch_path(source, first, "model.safetensors"), &file, &err), PLUMB_OK);
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		bool constant = t->dtype == PLUMB_DTYPE_I64;
		bool shard = strstr(t->name, "ngram_embedding");
		char name[160], shape[192];
		plumb_tensor_shape(t, shape);

		if (!constant) {
			rewrite(source, i, &(struct change){.drop = true});
			refused(shard ? "ngram_embedding" : t->name, shard ? "rows" : "is missing", t->name);
		}
		snprintf(name, sizeof name, "%s_", t->name);
		rewrite(source, i, &(struct change){.name = name});
		refused(shard ? "ngram_embedding" : t->name, constant ? "is unknown" : shard ? "rows" : "is missing", name);
		rewrite(source, i, &(struct change){.lead = 1});
		refused(t->name, shard ? "expected" : shape, "a dimension more in front");
		rewrite(source, i, &(struct change){.trail = 1});
		refused(t->name, shape, "a dimension more behind");
		rewrite(source, i, &(struct change){.more = 1});
		refused(shard ? "ngram_embedding" : t->name, "expected", "a row more");
		if (t->dim[0] > 1) {
			rewrite(source, i, &(struct change){.more = -1});
			refused(shard ? "ngram_embedding" : t->name, "expected", "a row less");
		}
		rewrite(source, i, &(struct change){.dtype = constant ? "U64" : "I16"});
		refused(t->name, constant ? "expected I64" : "dtype I16, expected BF16, F16 or F32", "dtype");
		for (int64_t k = 1; constant && k <= t->dim[0]; k++) {
			char element[200];
			snprintf(element, sizeof element, "%s[%lld] is ", t->name, (long long)k - 1);
			rewrite(source, i, &(struct change){.flip = (int)k});
			refused(element, "expected", "a constant off by one");
		}
	}
	printf("%zu tensors: each one absent, renamed, reshaped, retyped\n", file->tensors);
	plumb_safetensors_close(file);
	scratch_remove(first);
}

START_TEST(refused_tensors)
{
	every_tensor(&(struct random_checkpoint){.seed = 7, .format = PLUMB_BF16, .ple_shards = 4});
}
END_TEST

START_TEST(refused_tensors_stacked)
{
	every_tensor(
		&(struct random_checkpoint){.seed = 7, .format = PLUMB_BF16, .ple_shards = 0, .stacked_experts = true});
}
END_TEST

static void write_smallest(const struct random_checkpoint *options)
{
	struct plumb_config cfg = random_checkpoint_smallest();
	empty_dir();
	random_checkpoint_write(dir, &cfg, options);
}

START_TEST(refused_extras)
{
	static const char *const names[] = {"model.norm.weight", "model.layers.2.mlp.gate.weight",
		"model.layers.0.mlp.gate.bias", "model.layers.0.self_attn.q_proj.weight", "lm_head.bias", "mtpx.weight",
		"visualx.weight", "model.mtp", "x", "model.language_model.layers.0.mlp.gate.weight",
		"model.layers.1.mlp.experts.4.up_proj.weight", "model.layers.1.mlp.experts.00.up_proj.weight",
		"model.layers.1.ple.key_proj.weight", "model.layers.0.ple.ple_embedding.ngram_embedding.shard_04.weight",
		"model.layers.0.ple.ple_embedding.ngram_embedding.weight_scale",
		"model.layers.1.mlp.experts.0.up_proj.weight_scale_inv"};
	char first[SCRATCH_PATH], source[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct random_checkpoint options = {.seed = 7, .format = PLUMB_BF16, .ple_shards = 4};
	random_checkpoint_write(scratch_make(first), &cfg, &options);
	random_checkpoint_write(dir, &cfg, &options);
	scratch_path(source, first, "model.safetensors");
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		rewrite(source, 0, &(struct change){.name = names[i], .twice = true});
		refused(names[i], "is unknown", names[i]);
	}
	/* a shard too many, of the right width and height: the table no longer has the rows the hash needs */
	struct plumb_safetensors *file = NULL;
	ck_assert_int_eq(plumb_safetensors_open(source, &file, NULL), PLUMB_OK);
	for (size_t i = 0; i < file->tensors; i++)
		if (strstr(file->tensor[i].name, "shard_2.weight"))
			rewrite(source, i,
				&(struct change){.name = "model.layers.0.ple.ple_embedding.ngram_embedding.shard_4.weight",
					.twice = true});
	refused("ngram_embedding.* have", "in 5 parts", "a shard too many");
	plumb_safetensors_close(file);
	scratch_remove(first);
}
END_TEST

/* 152 rows in 12 shards of 12 and one of 8, and the same rows cut where no row number leads: all but the last shard
 * must have the rows of the first. */
START_TEST(refused_cuts)
{
	static const struct {
		int from, to; /* move a row from this shard to that one */
		const char *contains;
	} cases[] = {
		{1, 12, "shard_1.weight has 11 rows, expected 12 as in shard 0"},
		{1, 2, "shard_1.weight has 11 rows"},
		{12, 1, "shard_1.weight has 13 rows"},
		{0, 12, "shard_1.weight has 12 rows, expected 11"},
		{12, 0, "shard_1.weight has 12 rows, expected 13"},
	};
	char first[SCRATCH_PATH], source[SCRATCH_PATH], path[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct random_checkpoint options = {.seed = 7, .format = PLUMB_BF16, .ple_shards = 13};
	random_checkpoint_write(scratch_make(first), &cfg, &options);
	random_checkpoint_write(dir, &cfg, &options);
	struct plumb_safetensors *file = NULL;
	scratch_path(source, first, "model.safetensors");
	ck_assert_int_eq(plumb_safetensors_open(source, &file, NULL), PLUMB_OK);
	for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
		struct safetensors_writer *w = safetensors_begin(scratch_path(path, dir, "model.safetensors"));
		for (size_t i = 0; i < file->tensors; i++) {
			const struct plumb_tensor *t = &file->tensor[i];
			const char *at = strstr(t->name, "ngram_embedding.shard_");
			int shard = at ? atoi(at + strlen("ngram_embedding.shard_")) : -1;
			int more = (at && shard == cases[k].to) - (at && shard == cases[k].from);
			int64_t dims[PLUMB_TENSOR_RANK];
			memcpy(dims, t->dim, sizeof dims);
			dims[0] += more;
			size_t bytes = t->bytes / (size_t)t->dim[0] * (size_t)dims[0];
			unsigned char *data = calloc(1, bytes + 1);
			memcpy(data, t->data, bytes < t->bytes ? bytes : t->bytes);
			safetensors_add(w, t->name, plumb_dtype_name(t->dtype), t->rank, dims, data, bytes);
			free(data);
		}
		safetensors_finish(w, 0);
		refused(cases[k].contains, "expected", cases[k].contains);
	}
	plumb_safetensors_close(file);
	scratch_remove(first);
}
END_TEST

START_TEST(refused_quantised)
{
	static const char *const dtypes[] = {"F8_E5M2", "F8_E8M0", "I8"}; /* others: test_checkpoint_quantised.c */
	char first[SCRATCH_PATH], source[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct random_checkpoint options = {.seed = 7, .format = PLUMB_BF16, .ple_shards = 4};
	random_checkpoint_write(scratch_make(first), &cfg, &options);
	random_checkpoint_write(dir, &cfg, &options);
	struct plumb_safetensors *file = NULL;
	ck_assert_int_eq(plumb_safetensors_open(scratch_path(source, first, "model.safetensors"), &file, NULL), PLUMB_OK);
	for (size_t i = 0; i < file->tensors; i++) {
		const struct plumb_tensor *t = &file->tensor[i];
		if (!strstr(t->name, "experts.2.down_proj"))
			continue;
		for (int k = 0; k < 3; k++) {
			/* a packed or one-byte format has another size: twice the rows keep the bytes */
			struct safetensors_writer *w = safetensors_begin(scratch_path(source, dir, "model.safetensors"));
			for (size_t n = 0; n < file->tensors; n++) {
				const struct plumb_tensor *u = &file->tensor[n];
				int64_t twice[2] = {2 * u->dim[0], u->dim[1]};
				safetensors_add(w, u->name, n == i ? dtypes[k] : plumb_dtype_name(u->dtype), u->rank,
					n == i ? twice : u->dim, u->data, u->bytes);
			}
			safetensors_finish(w, 0);
			char dtype[32];
			snprintf(dtype, sizeof dtype, "has dtype %s", dtypes[k]);
			refused(t->name, dtype, dtypes[k]);
			refused(t->name, "BF16, F16 or F32", dtypes[k]);
		}
	}
	plumb_safetensors_close(file);
	scratch_remove(first);
}
END_TEST

/* The config says something else than the tensors. */
START_TEST(refused_configs)
{
	static const struct {
		const char *from, *to, *contains;
	} cases[] = {
		{"\"seed\": 1234", "\"seed\": 1235", "layer_multipliers[0]"},
		{"\"vocab_size\": 50", "\"vocab_size\": 51", "embed_tokens.weight has shape [50, 12], expected [51, 12]"},
		{"\"hidden_size\": 12", "\"hidden_size\": 14", "embed_tokens.weight"},
		{"\"num_hidden_layers\": 2", "\"num_hidden_layers\": 1", "layer_types has 2 entries"},
		{"\"hc_count\": 2", "\"hc_count\": 3", "hyper_connection_mixer.hc_norm.weight"},
		{"\"hc_lowrank\": 3", "\"hc_lowrank\": 4", "hyper_connection_mixer.input_mix_weight_down.weight"},
		{"\"linear_attention\", \"full_attention\"", "\"full_attention\", \"linear_attention\"",
			"layers.0.self_attn.q_proj.weight is missing"},
		{"\"num_attention_heads\": 4", "\"num_attention_heads\": 6",
			"q_proj.weight has shape [64, 12], expected [96, 12]"},
		{"\"num_experts\": 4", "\"num_experts\": 3", "mlp.gate.weight has shape [4, 12], expected [3, 12]"},
		{"\"num_experts\": 4", "\"num_experts\": 2147483647", "mlp.gate.weight"}, /* before any memory for them */
		{"\"moe_intermediate_size\": 9", "\"moe_intermediate_size\": 8", "experts.0.gate_proj.weight"},
		{"\"ple_layer_ids\": [1]", "\"ple_layer_ids\": [2]",
			"layers.1.ple.ple_embedding.ngram_embedding.shard_0.weight is missing"},
		{"\"ple_layer_ids\": [1]", "\"ple_layer_ids\": []",
			"layers.0.ple.conv1d.weight (BF16 [24, 1, 2]) is unknown"},
		{"\"ngram_vocab_size_base\": 31", "\"ngram_vocab_size_base\": 37",
			"ngram_heads_vocab_sizes[0] is 31, expected 37"},
		{"\"make_ngram_vocab_size_divisible_by\": 4", "\"make_ngram_vocab_size_divisible_by\": 64",
			"shard_4.weight is missing"},
		{"\"heads_per_ngram\": 2", "\"heads_per_ngram\": 4",
			"ngram_heads_vocab_sizes is I64 [4], expected I64 [8]"},
		{"\"ngram_size\": 3", "\"ngram_size\": 2", "layer_multipliers is I64 [3], expected I64 [2]"},
		{"\"indexer_budget\": 4", "\"indexer_budget\": 5", "config.json: indexer_budget is 5"},
		{"\"model_type\": \"qwen4_exp_text\"", "\"model_type\": \"qwen4_exp\"",
			"config.json: text_config is missing"},
		{"{", "[", "config.json: byte"},
	};
	static char text[65536];
	struct plumb_config cfg = random_checkpoint_smallest();
	write_smallest(&(struct random_checkpoint){.seed = 7, .format = PLUMB_BF16, .ple_shards = 4});
	random_checkpoint_config(&cfg, text, sizeof text);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		static char changed[65536];
		const char *at = strstr(text, cases[i].from);
		ck_assert_msg(at != NULL, "%s", cases[i].from);
		snprintf(changed, sizeof changed, "%.*s%s%s", (int)(at - text), text, cases[i].to,
			at + strlen(cases[i].from));
		scratch_write(dir, "config.json", changed, (size_t)-1);
		refused(cases[i].contains, "", cases[i].to);
	}
}
END_TEST

START_TEST(refused_indexes)
{
	static const struct {
		const char *index, *contains;
	} cases[] = {
		{"", "model.safetensors.index.json: byte 0"},
		{"{}", "weight_map is missing"},
		{"[]", "weight_map is missing"},
		{"{\"weight_map\": []}", "weight_map is an array"},
		{"{\"weight_map\": {}}", "weight_map is empty"},
		{"{\"weight_map\": {\"a\": 7}}", "weight_map[\"a\"] is 7"},
		{"{\"weight_map\": {\"a\": null}}", "weight_map[\"a\"] is null"},
		{"{\"weight_map\": {\"a\": \"\"}}", "weight_map[\"a\"] is \"\""},
		{"{\"weight_map\": {\"a\": \"..\"}}", "weight_map[\"a\"] is \"..\""},
		{"{\"weight_map\": {\"a\": \"../x.safetensors\"}}", "weight_map[\"a\"] is \"../x.safetensors\""},
		{"{\"weight_map\": {\"a\": \"/etc/x.safetensors\"}}", "weight_map[\"a\"] is \"/etc/x.safetensors\""},
		{"{\"weight_map\": {\"a\": \"sub/x.safetensors\"}}", "weight_map[\"a\"] is \"sub/x.safetensors\""},
		{"{\"weight_map\": {\"a\": \"sub\\\\x.safetensors\"}}", "weight_map[\"a\"]"},
		{"{\"weight_map\": {\"a\": \"./model.safetensors\"}}", "weight_map[\"a\"]"},
		{"{\"weight_map\": {\"a\": \".hidden.safetensors\"}}", "weight_map[\"a\"]"},
		{"{\"weight_map\": {\"a\": \".safetensors\"}}", "weight_map[\"a\"]"},
		{"{\"weight_map\": {\"a\": \"config.json\"}}", "weight_map[\"a\"] is \"config.json\""},
		{"{\"weight_map\": {\"a\": \"pytorch_model.bin\"}}", "weight_map[\"a\"]"},
		{"{\"weight_map\": {\"a\": \"none.safetensors\"}}", "none.safetensors: cannot open"},
		{"{\"weight_map\": {\"a\": \"folder.safetensors\"}}", "folder.safetensors: is a directory"},
		{"{\"weight_map\": {\"a\": \"pipe.safetensors\"}}", "pipe.safetensors: is a special file"},
		{"{\"weight_map\": {\"a\": \"junk.safetensors\"}}", "junk.safetensors: "},
		{"{\"weight_map\": {\"a\": \"model.safetensors\"}}", "weight_map puts tensor a into model.safetensors"},
		{"{\"weight_map\": {\"lm_head.weight\": \"model.safetensors\", \"lm_head.weight\": "
		 "\"model.safetensors\"}}",
			"field \"lm_head.weight\" stands twice"},
		{"{\"weight_map\": {\"lm_head.weight\": \"model.safetensors\", \"extra\": \"other.safetensors\","
		 " \"model.embed_tokens.weight\": \"other.safetensors\"}}",
			"weight_map puts tensor model.embed_tokens.weight into other.safetensors, expected"},
		{"{\"weight_map\": {\"lm_head.weight\": \"model.safetensors\"", "model.safetensors.index.json: byte"},
		{"{\"weight_map\": {\"extra\": \"other.safetensors\"}}", "embed_tokens.weight is missing"},
	};
	char path[SCRATCH_PATH];
	write_smallest(&(struct random_checkpoint){.seed = 7, .format = PLUMB_BF16, .ple_shards = 4});
	ck_assert_int_eq(mkdir(scratch_path(path, dir, "folder.safetensors"), 0700), 0);
	ck_assert_int_eq(mkfifo(scratch_path(path, dir, "pipe.safetensors"), 0600), 0);
	scratch_write(dir, "junk.safetensors", "junk", (size_t)-1);
	struct safetensors_writer *w = safetensors_begin(scratch_path(path, dir, "other.safetensors"));
	safetensors_add(w, "extra", "U8", 1, (int64_t[]){1}, "x", 1);
	safetensors_finish(w, 0);
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		scratch_write(dir, "model.safetensors.index.json", cases[i].index, (size_t)-1);
		refused(cases[i].contains, "", cases[i].index);
	}
	/* an index that leaves a tensor out is no contradiction: the headers decide */
	scratch_write(dir, "model.safetensors.index.json", "{\"weight_map\": {\"lm_head.weight\": \"model.safetensors\"}}",
		(size_t)-1);
	plumb_checkpoint_close(opened(dir));
	/* a folder in the place of the index */
	ck_assert_int_eq(unlink(scratch_path(path, dir, "model.safetensors.index.json")), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	refused("model.safetensors.index.json: is a directory", "", "index is a folder");
}
END_TEST

START_TEST(refused_folders)
{
	char path[SCRATCH_PATH], second[SCRATCH_PATH];
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	refused("config.json: cannot open", "", "an empty folder");
	ck_assert_int_eq(plumb_checkpoint_open(scratch_path(path, dir, "none"), &ck, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_checkpoint_open(TINY "/config.json", &ck, &err), PLUMB_BAD_INPUT);
	ck_assert_int_eq(plumb_checkpoint_open("", &ck, &err), PLUMB_BAD_INPUT);

	write_smallest(&(struct random_checkpoint){.seed = 7, .format = PLUMB_BF16, .ple_shards = 4, .files = 2});
	/* the same tensors twice */
	scratch_path(path, dir, "model-00001-of-00002.safetensors");
	size_t size;
	char *data = scratch_read(path, &size);
	scratch_write(dir, "copy.safetensors", data, size);
	refused("is also in", "copy.safetensors", "duplicate tensors");
	unlink(scratch_path(second, dir, "copy.safetensors"));
	/* a file less, an empty one, a shortened one, a folder that looks like one */
	unlink(path);
	refused("tensor ", "is missing", "a file less");
	scratch_write(dir, "model-00001-of-00002.safetensors", "", 0);
	refused("model-00001-of-00002.safetensors: has 0 bytes", "expected", "an empty file");
	scratch_write(dir, "model-00001-of-00002.safetensors", data, size - 1);
	refused("model-00001-of-00002.safetensors: tensor ", "expected at most", "a shortened file");
	scratch_write(dir, "model-00001-of-00002.safetensors", data, size);
	plumb_checkpoint_close(opened(dir));
	ck_assert_int_eq(mkdir(scratch_path(second, dir, "z.safetensors"), 0700), 0);
	refused("z.safetensors: is a directory", "", "a folder named like a file");
	free(data);
	/* a config without tensors */
	char *config = scratch_read(scratch_path(path, dir, "config.json"), &size);
	empty_dir();
	scratch_write(dir, "config.json", config, size);
	refused("no file ending in .safetensors", "", "no tensors");
	free(config);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checkpoint_refused");
	TCase *all = suite_part(suite, "all", 120);
	tcase_add_checked_fixture(all, make_dir, remove_dir);
	tcase_add_test(all, refused_tensors);
	tcase_add_test(all, refused_tensors_stacked);
	tcase_add_test(all, refused_extras);
	tcase_add_test(all, refused_cuts);
	tcase_add_test(all, refused_quantised);
	tcase_add_test(all, refused_configs);
	tcase_add_test(all, refused_indexes);
	tcase_add_test(all, refused_folders);
	return suite_run(suite);
}
