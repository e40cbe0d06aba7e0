/* SPDX-License-Identifier: MIT */
/* Checkpoint folders: every tensor in its role, and every way to cut the same model into files. */
#include <check.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/checkpoint.h"
#include "core/safetensors.h"
#include "core/shards.h"
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

/* --- every weight of a model as one list, in an order of its own ------------------------------------------------- */

struct list {
	const struct plumb_weight *weight[4096];
	char name[4096][96]; /* as in a file of golden/tiny, without the prefix; "" where no tensor is that weight alone */
	int count;
};

__attribute__((format(printf, 3, 4))) static void item(
	struct list *l, const struct plumb_weight *w, const char *format, ...)
{
	va_list ap;
	ck_assert_int_lt(l->count, 4096);
	l->weight[l->count] = w;
	va_start(ap, format);
	vsnprintf(l->name[l->count++], sizeof l->name[0], format, ap);
	va_end(ap);
}

static void list_hc(struct list *l, const struct plumb_hc_weights *w, const char *site, int layer)
{
	char at[64] = "";
	if (layer >= 0)
		snprintf(at, sizeof at, "layers.%d.", layer);
	item(l, &w->norm, "%s%s.hc_norm.weight", at, site);
	item(l, &w->down, "%s%s.input_mix_weight_down.weight", at, site);
	item(l, &w->up, "%s%s.input_mix_weight_up.weight", at, site);
	if (layer >= 0)
		item(l, &w->inject, "%s%s.block_inject_weight.weight", at, site);
	else
		ck_assert_ptr_null(w->inject.data);
}

/* Without the tables, whose cut differs. */
static void list_model(struct list *l, const struct plumb_model *m)
{
	l->count = 0;
	item(l, &m->embed, "embed_tokens.weight");
	item(l, &m->lm_head, "lm_head.weight");
	list_hc(l, &m->mixer, "hyper_connection_mixer", -1);
	for (int i = 0; i < m->cfg.layers; i++) {
		const struct plumb_layer_weights *w = &m->layer[i];
		list_hc(l, &w->attn_hc, "attn_hyper_connection", i);
		list_hc(l, &w->mlp_hc, "mlp_hyper_connection", i);
		if (m->cfg.kind[i] == PLUMB_LAYER_GDN) {
			item(l, &w->gdn.qkv, "layers.%d.linear_attn.in_proj_qkv.weight", i);
			item(l, &w->gdn.z, "layers.%d.linear_attn.in_proj_z.weight", i);
			item(l, &w->gdn.b, "layers.%d.linear_attn.in_proj_b.weight", i);
			item(l, &w->gdn.a, "layers.%d.linear_attn.in_proj_a.weight", i);
			item(l, &w->gdn.conv, "layers.%d.linear_attn.conv1d.weight", i);
			item(l, &w->gdn.a_log, "layers.%d.linear_attn.A_log", i);
			item(l, &w->gdn.dt_bias, "layers.%d.linear_attn.dt_bias", i);
			item(l, &w->gdn.norm, "layers.%d.linear_attn.norm.weight", i);
			item(l, &w->gdn.out, "layers.%d.linear_attn.out_proj.weight", i);
		} else {
			item(l, &w->attention.q, "layers.%d.self_attn.q_proj.weight", i);
			item(l, &w->attention.k, "layers.%d.self_attn.k_proj.weight", i);
			item(l, &w->attention.v, "layers.%d.self_attn.v_proj.weight", i);
			item(l, &w->attention.q_norm, "layers.%d.self_attn.q_norm.weight", i);
			item(l, &w->attention.k_norm, "layers.%d.self_attn.k_norm.weight", i);
			item(l, &w->attention.out, "layers.%d.self_attn.o_proj.weight", i);
			item(l, &w->attention.index_qk, "layers.%d.self_attn.indexer.index_qk_proj.weight", i);
			item(l, &w->attention.index_q_norm, "layers.%d.self_attn.indexer.q_layernorm.weight", i);
			item(l, &w->attention.index_k_norm, "layers.%d.self_attn.indexer.k_layernorm.weight", i);
		}
		item(l, &w->moe.router, "layers.%d.mlp.gate.weight", i);
		item(l, &w->moe.shared_router, "layers.%d.mlp.shared_expert_gate.weight", i);
		item(l, &w->moe.shared_gate, "layers.%d.mlp.shared_expert.gate_proj.weight", i);
		item(l, &w->moe.shared_up, "layers.%d.mlp.shared_expert.up_proj.weight", i);
		item(l, &w->moe.shared_down, "layers.%d.mlp.shared_expert.down_proj.weight", i);
		for (int e = 0; e < m->cfg.experts; e++) {
			item(l, &w->moe.gate[e], "layers.%d.mlp.experts.%d.gate_proj.weight", i, e);
			item(l, &w->moe.up[e], "layers.%d.mlp.experts.%d.up_proj.weight", i, e);
			item(l, &w->moe.down[e], "layers.%d.mlp.experts.%d.down_proj.weight", i, e);
		}
		ck_assert_int_eq(w->ple != NULL, plumb_ple_of_layer(&m->cfg, i) >= 0);
		if (w->ple) {
			item(l, &w->ple->key_proj, "layers.%d.ple.key_proj.weight", i);
			item(l, &w->ple->value_proj, "layers.%d.ple.value_proj.weight", i);
			item(l, &w->ple->norm_key, "layers.%d.ple.norm_key.weight", i);
			item(l, &w->ple->norm_query, "layers.%d.ple.norm_query.weight", i);
			item(l, &w->ple->norm_conv, "layers.%d.ple.norm_conv.weight", i);
			item(l, &w->ple->conv, "layers.%d.ple.conv1d.weight", i);
		}
	}
}

/* --- golden/tiny, against a reading of the file that shares nothing with the one under test ----------------------- */

/* Place of a tensor's data in a safetensors file held in memory, by searching the text of its header. */
static const char *find_by_hand(const char *file, const char *name, size_t *bytes)
{
	uint64_t header;
	char quoted[160];
	unsigned long long begin, end;
	memcpy(&header, file, 8);
	snprintf(quoted, sizeof quoted, "\"%s\":", name);
	char *text = malloc((size_t)header + 1);
	memcpy(text, file + 8, (size_t)header);
	text[header] = 0;
	const char *at = strstr(text, quoted);
	ck_assert_msg(at != NULL, "no %s", name);
	at = strstr(at, "\"data_offsets\":[");
	ck_assert_int_eq(sscanf(at, "\"data_offsets\":[%llu,%llu]", &begin, &end), 2);
	free(text);
	*bytes = (size_t)(end - begin);
	return file + 8 + header + begin;
}

START_TEST(tiny)
{
	static struct list l;
	size_t size, bytes;
	struct plumb_checkpoint *ck = opened(TINY);
	const struct plumb_model *m = plumb_checkpoint_model(ck);
	char *file = scratch_read(TINY "/model.safetensors", &size);
	list_model(&l, m);
	for (int i = 0; i < l.count; i++) {
		char name[128];
		bool head = strcmp(l.name[i], "lm_head.weight") == 0;
		snprintf(name, sizeof name, "%s%s", head ? "" : "model.", l.name[i]);
		const char *data = find_by_hand(file, name, &bytes);
		ck_assert_int_eq(l.weight[i]->format, PLUMB_BF16);
		ck_assert_msg(plumb_weight_bytes(l.weight[i]) == bytes, "%s: size", name);
		ck_assert_msg(memcmp(l.weight[i]->data, data, bytes) == 0, "%s: bytes", name);
	}
	const struct plumb_ple_weights *ple = m->layer[1].ple;
	ck_assert_int_eq(ple->shards, 4);
	ck_assert_int_eq(ple->shard_rows, 532);
	for (int i = 0; i < 4; i++) {
		char name[128];
		snprintf(name, sizeof name, "model.layers.1.ple.ple_embedding.ngram_embedding.shard_%d.weight", i);
		ck_assert(memcmp(ple->table[i].data, find_by_hand(file, name, &bytes), bytes) == 0);
		ck_assert_uint_eq(plumb_weight_bytes(&ple->table[i]), bytes);
		ck_assert_int_eq(ple->table[i].cols, 4);
	}
	/* shapes with letters of their own */
	ck_assert_int_eq(m->layer[0].gdn.conv.rows, 160);
	ck_assert_int_eq(m->layer[0].gdn.conv.cols, 4);
	ck_assert_int_eq(m->layer[0].gdn.a_log.rows, 1);
	ck_assert_int_eq(m->layer[0].gdn.a_log.cols, 6);
	ck_assert_int_eq(m->layer[3].attention.q.rows, 12 * 2 * 32);
	ck_assert_int_eq(m->layer[3].attention.index_qk.rows, 80);
	/* and a value: row 3 of the embedding begins with these four, as numpy reads them */
	float row[4];
	plumb_weight_row(&m->embed, 3, 0, 4, row);
	ck_assert(row[0] == -0.94921875f && row[1] == 0.2470703125f && row[2] == -1.1328125f && row[3] == 0.345703125f);
	free(file);
	plumb_checkpoint_close(ck);
	plumb_checkpoint_close(NULL);
}
END_TEST

/* --- the same model, however it is cut ---------------------------------------------------------------------------- */

static void same_values(const struct plumb_weight *a, const struct plumb_weight *b, const char *what)
{
	ck_assert_msg(a->rows == b->rows && a->cols == b->cols, "%s: shape", what);
	float *x = malloc((size_t)a->cols * sizeof *x), *y = malloc((size_t)a->cols * sizeof *y);
	for (int64_t n = 0; n < a->rows; n++) {
		plumb_weight_row(a, n, 0, a->cols, x);
		plumb_weight_row(b, n, 0, a->cols, y);
		ck_assert_msg(memcmp(x, y, (size_t)a->cols * sizeof *x) == 0, "%s: row %lld", what, (long long)n);
	}
	free(x);
	free(y);
}

static void table_row(const struct plumb_ple_weights *p, int64_t r, float *out)
{
	const struct plumb_weight *shard = &p->table[r / p->shard_rows];
	ck_assert_int_lt(r % p->shard_rows, shard->rows);
	plumb_weight_row(shard, r % p->shard_rows, 0, shard->cols, out);
}

static void same_models(const struct plumb_model *a, const struct plumb_model *b, const char *what)
{
	static struct list x, y;
	list_model(&x, a);
	list_model(&y, b);
	ck_assert_int_eq(x.count, y.count);
	for (int i = 0; i < x.count; i++) {
		char both[160];
		snprintf(both, sizeof both, "%s: %s", what, x.name[i]);
		same_values(x.weight[i], y.weight[i], both);
	}
	for (int i = 0; i < a->cfg.layers; i++) {
		const struct plumb_ple_weights *p = a->layer[i].ple, *q = b->layer[i].ple;
		float u[64], v[64];
		for (int64_t r = 0; p && r < p->ngram.rows; r++) {
			table_row(p, r, u);
			table_row(q, r, v);
			ck_assert_msg(memcmp(u, v, (size_t)p->table[0].cols * sizeof *u) == 0, "%s: table row %lld", what,
				(long long)r);
		}
	}
}

static const struct {
	const char *what;
	struct random_checkpoint options;
	bool nested;
} cuts[] = {
	{"one file", {.format = PLUMB_BF16, .ple_shards = 4}, false},
	{"nested", {.format = PLUMB_BF16, .ple_shards = 4}, true},
	{"nested config, plain prefix", {.format = PLUMB_BF16, .ple_shards = 4, .other_prefix = true}, true},
	{"plain config, nested prefix", {.format = PLUMB_BF16, .ple_shards = 4, .other_prefix = true}, false},
	{"stacked experts", {.format = PLUMB_BF16, .ple_shards = 4, .stacked_experts = true}, false},
	{"f32", {.format = PLUMB_F32, .ple_shards = 4}, false},
	{"f32, stacked, at an odd byte", {.format = PLUMB_F32, .ple_shards = 4, .stacked_experts = true, .shift = 3},
		false},
	{"bf16 at an odd byte", {.format = PLUMB_BF16, .ple_shards = 4, .shift = 1}, false},
	{"one file with index", {.format = PLUMB_BF16, .ple_shards = 4, .index = true}, false},
	{"five files with index", {.format = PLUMB_BF16, .ple_shards = 4, .files = 5, .index = true}, true},
	{"five files without index", {.format = PLUMB_BF16, .ple_shards = 4, .files = 5}, false},
	{"a whole table", {.format = PLUMB_BF16, .ple_shards = 0}, false},
	{"one shard", {.format = PLUMB_BF16, .ple_shards = 1}, false},
	{"shards past ten, the last one short", {.format = PLUMB_BF16, .ple_shards = 13, .files = 3, .index = true}, false},
	{"without constants", {.format = PLUMB_BF16, .ple_shards = 4, .no_constants = true}, false},
	{"with tensors to skip", {.format = PLUMB_BF16, .ple_shards = 4, .extras = true, .files = 2, .index = true}, true},
};

START_TEST(every_cut)
{
	char first_dir[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct random_checkpoint options = cuts[0].options;
	options.seed = 7;
	random_checkpoint_write(scratch_make(first_dir), &cfg, &options);
	struct plumb_checkpoint *first = opened(first_dir);
	for (size_t i = 0; i < sizeof cuts / sizeof cuts[0]; i++) {
		options = cuts[i].options;
		options.seed = 7;
		cfg.nested = cuts[i].nested;
		random_checkpoint_write(dir, &cfg, &options);
		struct plumb_checkpoint *other = opened(dir);
		same_models(plumb_checkpoint_model(first), plumb_checkpoint_model(other), cuts[i].what);
		plumb_checkpoint_close(other);
		empty_dir();
	}
	/* f16 keeps what bf16 has but the smallest */
	options.format = PLUMB_F16;
	random_checkpoint_write(dir, &cfg, &options);
	struct plumb_checkpoint *half = opened(dir);
	float a[12], b[12];
	plumb_weight_row(&plumb_checkpoint_model(first)->embed, 5, 0, 12, a);
	plumb_weight_row(&plumb_checkpoint_model(half)->embed, 5, 0, 12, b);
	ck_assert(memcmp(a, b, sizeof a) == 0);
	plumb_checkpoint_close(half);
	plumb_checkpoint_close(first);
	scratch_remove(first_dir);
}
END_TEST

/* Configs that no golden file has. */
START_TEST(other_configs)
{
	for (int k = 0; k < 5; k++) {
		struct plumb_config cfg = random_checkpoint_smallest();
		struct random_checkpoint options = {.seed = (uint64_t)k, .format = PLUMB_BF16, .ple_shards = 3, .files = 2};
		switch (k) {
		case 0: /* PLE on every layer, attention too */
			cfg.ple_count = 2;
			cfg.ple_layer[1] = 1;
			break;
		case 1:
			cfg.ple_count = 0;
			cfg.eos = -1;
			break;
		case 2: /* bigrams to 4-grams, other sizes than the hidden one */
			cfg.ngram = 4;
			cfg.ple_dim = 30;
			cfg.heads_per_ngram = 5;
			cfg.ple_conv_taps = 3;
			break;
		case 3: /* attention first; three streams */
			cfg.kind[0] = PLUMB_LAYER_ATTENTION;
			cfg.streams = 3;
			cfg.rotary_dim = 2;
			cfg.norm_topk = false;
			break;
		case 4: /* one of everything that may be one */
			cfg.layers = 1;
			cfg.kind[1] = PLUMB_LAYER_GDN; /* past the end: as a reader leaves it */
			cfg.q_heads = cfg.kv_heads = 1;
			cfg.gdn_key_heads = cfg.gdn_value_heads = 1;
			cfg.experts = cfg.experts_per_token = 1;
			cfg.block_tokens = 1;
			cfg.block_budget = 1;
			cfg.index_heads = 1;
			cfg.gdn_conv_taps = 1;
			cfg.ple_conv_taps = 1;
			cfg.low_rank = 1;
			break;
		}
		random_checkpoint_write(dir, &cfg, &options);
		struct plumb_checkpoint *ck = opened(dir);
		const struct plumb_config *read = &plumb_checkpoint_model(ck)->cfg;
		ck_assert_msg(memcmp(read, &cfg, sizeof cfg) == 0, "config %d does not survive the file", k);
		plumb_checkpoint_close(ck);
		empty_dir();
	}
}
END_TEST

/* What else lies in a folder: sidecars, hidden files, shards the index does not name, links out of it. */
START_TEST(surroundings)
{
	char blobs[SCRATCH_PATH], from[SCRATCH_PATH], to[SCRATCH_PATH];
	struct plumb_config cfg = random_checkpoint_smallest();
	struct random_checkpoint options = {.seed = 7, .format = PLUMB_BF16, .ple_shards = 4, .files = 2};
	random_checkpoint_write(dir, &cfg, &options);
	scratch_write(dir, "generation_config.json", "no JSON", (size_t)-1);
	scratch_write(dir, "layer-00000-experts.complete.json", "", 0);
	scratch_write(dir, "._model-00001-of-00002.safetensors", "junk", (size_t)-1);
	scratch_write(dir, ".safetensors", "junk", (size_t)-1);
	scratch_write(dir, "tokenizer.json", "{", (size_t)-1);
	plumb_checkpoint_close(opened(dir));
	empty_dir();

	options.index = true;
	random_checkpoint_write(dir, &cfg, &options);
	scratch_write(dir, "consolidated.safetensors", "junk", (size_t)-1);
	plumb_checkpoint_close(opened(dir));
	/* a folder given with a slash */
	scratch_path(from, dir, "");
	plumb_checkpoint_close(opened(from));

	/* the cache of the hub: files are links to blobs elsewhere */
	scratch_make(blobs);
	for (int i = 1; i <= 2; i++) {
		char name[64];
		snprintf(name, sizeof name, "model-%05d-of-00002.safetensors", i);
		ck_assert_int_eq(rename(scratch_path(from, dir, name), scratch_path(to, blobs, name)), 0);
		ck_assert_int_eq(symlink(to, from), 0);
	}
	plumb_checkpoint_close(opened(dir));
	scratch_remove(blobs);
	struct plumb_checkpoint *ck = NULL;
	struct plumb_error err = {""};
	ck_assert_int_eq(plumb_checkpoint_open(dir, &ck, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "model-00001-of-00002.safetensors: cannot open"), "%s", err.text);
}
END_TEST

/* Seeded damage to a whole folder: index, config, headers and data. */
START_TEST(mutated)
{
	static const char *const names[] = {"config.json", "model.safetensors.index.json",
		"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"};
	char path[SCRATCH_PATH];
	uint64_t state = 20260908;
	int good = 0, bad = 0;
	struct plumb_config cfg = random_checkpoint_smallest();
	const struct random_checkpoint options = {.seed = 7,
		.format = PLUMB_BF16,
		.ple_shards = 4,
		.files = 2,
		.index = true,
		.extras = true,
		.stacked_experts = _i == 0,
		.experts = _i == 0   ? PLUMB_F32
	                   : _i == 1 ? PLUMB_NVFP4
	                             : PLUMB_FP8_BLOCK,
		.matrices = _i == 2 ? PLUMB_FP8_ROW : PLUMB_F32,
		.fp8_table = _i > 0,
		.quantization_config = _i == 0   ? NULL
	                               : _i == 1 ? "{\"quant_method\": \"modelopt\", \"quant_algo\": \"NVFP4\"}"
	                                         : "{\"quant_method\": \"fp8\", \"weight_block_size\": [128, 128]}"};
	random_checkpoint_write(dir, &cfg, &options);
	for (int round = 0; round < 1200; round++) {
		const char *name = names[round % 4];
		size_t size;
		char *whole = scratch_read(scratch_path(path, dir, name), &size);
		char *work = malloc(size);
		size_t n = size, text = size;
		memcpy(work, whole, size);
		if (round % 4 >= 2) { /* the header, mostly: the data has nothing to say */
			uint64_t header;
			memcpy(&header, whole, 8);
			text = (size_t)header + 16;
		}
		for (int edits = 1 + round % 3; edits > 0; edits--) {
			state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
			size_t at = (state >> 33) % text;
			unsigned char byte = (unsigned char)(state >> 24);
			if (state >> 60 == 0)
				n = text = at + 1;
			else if (state >> 60 < 8)
				work[at] = "[]{},:\"0123456789-"[byte % 18];
			else
				work[at] = (char)(work[at] ^ (1 << byte % 8));
		}
		scratch_write(dir, name, work, n);
		struct plumb_checkpoint *ck = NULL;
		struct plumb_error err = {""};
		int status = plumb_checkpoint_open(dir, &ck, &err);
		ck_assert(status == PLUMB_OK || status == PLUMB_BAD_INPUT);
		if (status) {
			bad++;
			ck_assert_msg(
				strncmp(err.text, dir, strlen(dir)) == 0 && strstr(err.text, ": "), "\"%s\"", err.text);
		} else {
			static struct list l;
			good++;
			list_model(&l, plumb_checkpoint_model(ck));
			for (int i = 0; i < l.count; i++) { /* the last value of each lies in the file */
				float last;
				plumb_weight_row(l.weight[i], l.weight[i]->rows - 1, l.weight[i]->cols - 1, 1, &last);
			}
		}
		plumb_checkpoint_close(ck);
		scratch_write(dir, name, whole, size);
		free(work);
		free(whole);
	}
	plumb_checkpoint_close(opened(dir));
	printf("mutated folders: %d refused, %d still valid\n", bad, good);
	ck_assert_int_gt(bad, 600);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("checkpoint");
	TCase *all = suite_part(suite, "all", 120);
	tcase_add_checked_fixture(all, make_dir, remove_dir);
	tcase_add_test(all, tiny);
	tcase_add_test(all, every_cut);
	tcase_add_test(all, other_configs);
	tcase_add_test(all, surroundings);
	tcase_add_loop_test(all, mutated, 0, 3);
	return suite_run(suite);
}
