/* SPDX-License-Identifier: MIT */
/* From a table of tensors to the weights of a model: which tensor plays which role, and whether it has the shape the
 * config gives it. */
#include "core/checkpoint.h"

#include <errno.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/bind.h"
#include "core/quant_config.h"
#include "core/shards.h"

struct plumb_checkpoint {
	struct plumb_shards *shards;
	struct plumb_model model;
	struct plumb_config_defaults defaults;
	void **copy; /* (copies) memory of weights that do not lie in the files as they are needed */
	size_t copies;
};

struct binder {
	struct plumb_binder base;
	const struct plumb_config *cfg;
	const char *prefix; /* of every tensor but lm_head.weight */
};

static struct plumb_shape vector(int64_t n)
{
	return (struct plumb_shape){1, {n}};
}

static struct plumb_shape matrix(int64_t rows, int64_t cols)
{
	return (struct plumb_shape){2, {rows, cols}};
}

/* A depthwise conv has one input channel a group. */
static struct plumb_shape conv(int64_t channels, int64_t taps)
{
	return (struct plumb_shape){3, {channels, 1, taps}};
}

static struct plumb_shape stack(int64_t count, int64_t rows, int64_t cols)
{
	return (struct plumb_shape){3, {count, rows, cols}};
}

/* Bind w to tensor PREFIX SITE.format. site: "" or what stands between, e.g. "layers.3.mlp.". */
__attribute__((format(printf, 5, 6))) static void bind(
	struct binder *b, struct plumb_weight *w, struct plumb_shape shape, const char *site, const char *format, ...)
{
	char name[PLUMB_BIND_NAME];
	va_list ap;
	int n = snprintf(name, sizeof name, "%s%s", b->prefix, site);
	va_start(ap, format);
	vsnprintf(name + n, sizeof name - (size_t)n, format, ap);
	va_end(ap);
	plumb_bind_weight(&b->base, w, &shape, name);
}

static bool exists(const struct binder *b, const char *site, const char *name)
{
	char full[PLUMB_BIND_NAME];
	snprintf(full, sizeof full, "%s%s%s", b->prefix, site, name);
	return plumb_shards_find(b->base.shards, full, NULL) != NULL;
}

static struct plumb_weight *new_bank(struct binder *b, int64_t count)
{
	struct plumb_weight *bank = b->base.status ? NULL : calloc((size_t)count, sizeof *bank);
	if (!bank && !b->base.status)
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT, "%s: no memory for %lld matrices",
			b->base.shards->dir, (long long)count);
	return bank;
}

static void bind_hc(struct binder *b, struct plumb_hc_weights *w, const char *site, bool injects)
{
	const struct plumb_config *c = b->cfg;
	int64_t wide = c->streams * c->hidden;
	bind(b, &w->norm, vector(wide), site, "hc_norm.weight");
	bind(b, &w->down, matrix(c->low_rank, wide), site, "input_mix_weight_down.weight");
	bind(b, &w->up, matrix(wide, c->low_rank), site, "input_mix_weight_up.weight");
	if (injects)
		bind(b, &w->inject, matrix(c->streams, wide), site, "block_inject_weight.weight");
}

static void bind_gdn(struct binder *b, struct plumb_gdn_weights *w, const char *site)
{
	const struct plumb_config *c = b->cfg;
	int64_t values = c->gdn_value_heads * c->gdn_value_dim;
	bind(b, &w->qkv, matrix(plumb_gdn_channels(c), c->hidden), site, "in_proj_qkv.weight");
	bind(b, &w->z, matrix(values, c->hidden), site, "in_proj_z.weight");
	bind(b, &w->b, matrix(c->gdn_value_heads, c->hidden), site, "in_proj_b.weight");
	bind(b, &w->a, matrix(c->gdn_value_heads, c->hidden), site, "in_proj_a.weight");
	bind(b, &w->conv, conv(plumb_gdn_channels(c), c->gdn_conv_taps), site, "conv1d.weight");
	bind(b, &w->a_log, vector(c->gdn_value_heads), site, "A_log");
	bind(b, &w->dt_bias, vector(c->gdn_value_heads), site, "dt_bias");
	bind(b, &w->norm, vector(c->gdn_value_dim), site, "norm.weight");
	bind(b, &w->out, matrix(c->hidden, values), site, "out_proj.weight");
}

static void bind_attention(struct binder *b, struct plumb_attention_weights *w, const char *site)
{
	const struct plumb_config *c = b->cfg;
	int64_t queries = c->q_heads * c->head_dim, keys = c->kv_heads * c->head_dim;
	bind(b, &w->q, matrix(2 * queries, c->hidden), site, "q_proj.weight");
	bind(b, &w->k, matrix(keys, c->hidden), site, "k_proj.weight");
	bind(b, &w->v, matrix(keys, c->hidden), site, "v_proj.weight");
	bind(b, &w->q_norm, vector(c->head_dim), site, "q_norm.weight");
	bind(b, &w->k_norm, vector(c->head_dim), site, "k_norm.weight");
	bind(b, &w->out, matrix(c->hidden, queries), site, "o_proj.weight");
	bind(b, &w->index_qk, matrix((c->index_heads + 1) * c->index_dim, c->hidden), site, "indexer.index_qk_proj.weight");
	bind(b, &w->index_q_norm, vector(c->index_dim), site, "indexer.q_layernorm.weight");
	bind(b, &w->index_k_norm, vector(c->index_dim), site, "indexer.k_layernorm.weight");
}

/* Rows [first, first + rows) of a stack, counted through all its matrices. */
static struct plumb_weight slice(const struct plumb_weight *stacked, int64_t first, int64_t rows)
{
	struct plumb_weight part = *stacked;
	part.rows = rows;
	part.data = (const unsigned char *)stacked->data +
	            (size_t)first * plumb_format_row_bytes(stacked->format, stacked->cols);
	return part;
}

/* All experts in two tensors (no .weight at the end), the rows of gate before those of up. */
static void bind_stacked_experts(struct binder *b, struct plumb_moe_weights *w, const char *site)
{
	const struct plumb_config *c = b->cfg;
	int64_t inner = c->expert_inner;
	struct plumb_weight gate_up = {0}, down = {0};
	bind(b, &gate_up, stack(c->experts, 2 * inner, c->hidden), site, "experts.gate_up_proj");
	bind(b, &down, stack(c->experts, c->hidden, inner), site, "experts.down_proj");
	for (int64_t e = 0; e < c->experts && !b->base.status; e++) {
		w->gate[e] = slice(&gate_up, e * 2 * inner, inner);
		w->up[e] = slice(&gate_up, e * 2 * inner + inner, inner);
		w->down[e] = slice(&down, e * c->hidden, c->hidden);
	}
}

static void bind_moe(struct binder *b, struct plumb_moe_weights *w, const char *site)
{
	const struct plumb_config *c = b->cfg;
	/* The router first: once it is there with E rows, E is no number that only the config claims. */
	bind(b, &w->router, matrix(c->experts, c->hidden), site, "gate.weight");
	bind(b, &w->shared_router, matrix(1, c->hidden), site, "shared_expert_gate.weight");
	bind(b, &w->shared_gate, matrix(c->shared_inner, c->hidden), site, "shared_expert.gate_proj.weight");
	bind(b, &w->shared_up, matrix(c->shared_inner, c->hidden), site, "shared_expert.up_proj.weight");
	bind(b, &w->shared_down, matrix(c->hidden, c->shared_inner), site, "shared_expert.down_proj.weight");
	w->gate = new_bank(b, c->experts);
	w->up = new_bank(b, c->experts);
	w->down = new_bank(b, c->experts);
	if (b->base.status)
		return;
	if (exists(b, site, "experts.gate_up_proj") || exists(b, site, "experts.down_proj")) {
		bind_stacked_experts(b, w, site);
		return;
	}
	for (int64_t e = 0; e < c->experts && !b->base.status; e++) {
		bind(b, &w->gate[e], matrix(c->expert_inner, c->hidden), site, "experts.%lld.gate_proj.weight",
			(long long)e);
		bind(b, &w->up[e], matrix(c->expert_inner, c->hidden), site, "experts.%lld.up_proj.weight", (long long)e);
		bind(b, &w->down[e], matrix(c->hidden, c->expert_inner), site, "experts.%lld.down_proj.weight",
			(long long)e);
	}
}

/* Compare a stored I64 constant with the computed one. Stored ones are optional: they say how the table was hashed, and
 * a config that leads to others would look up other rows than the ones that were trained. */
static void check_constant(struct binder *b, const char *site, const char *name, const int64_t *expected, int count)
{
	char full[PLUMB_BIND_NAME], shape[192], expected_shape[192];
	struct plumb_shape wanted = vector(count);
	snprintf(full, sizeof full, "%s%sple_embedding.%s", b->prefix, site, name);
	const struct plumb_tensor *t = b->base.status ? NULL : plumb_bind_look_up(&b->base, full);
	if (!t)
		return;
	if (t->dtype != PLUMB_DTYPE_I64 || !plumb_shape_equal(t, &wanted)) {
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT, "%s: tensor %s is %s %s, expected I64 %s",
			t->file, full, plumb_dtype_name(t->dtype), plumb_tensor_shape(t, shape),
			plumb_shape_show(&wanted, expected_shape));
		return;
	}
	for (int i = 0; i < count && !b->base.status; i++) {
		int64_t stored;
		memcpy(&stored, t->data + (size_t)i * sizeof stored, sizeof stored);
		if (stored != expected[i])
			b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
				"%s: tensor %s[%d] is %lld, expected %lld from seed, vocab_size and the n-gram fields "
				"of config.json",
				t->file, full, i, (long long)stored, (long long)expected[i]);
	}
}

#define TABLE "ple_embedding.ngram_embedding."

/* "shard_3.weight" of a table in shards, "weight" of one in one piece. */
static const char *part_name(bool whole, int64_t i, char name[48])
{
	if (whole)
		snprintf(name, 48, "weight");
	else
		snprintf(name, 48, "shard_%lld.weight", (long long)i);
	return name;
}

/* Rows of a table tensor: any number, so that its shape can be asked for with it. -1: it is not there. */
static int64_t table_rows(const struct binder *b, const char *site, const char *name)
{
	char full[PLUMB_BIND_NAME];
	snprintf(full, sizeof full, "%s%s" TABLE "%s", b->prefix, site, name);
	const struct plumb_tensor *t = plumb_shards_find(b->base.shards, full, NULL);
	return !t ? -1 : t->rank > 0 ? t->dim[0] : 0;
}

/* Bind part i of the table. Row r of the table is row r % shard_rows of part r / shard_rows, so only the last may be
 * shorter. */
static void bind_part(struct binder *b, struct plumb_ple_weights *w, const char *site, const char *name, int64_t i)
{
	const char *dir = b->base.shards->dir;
	const bool last = i == w->shards - 1;
	struct plumb_shape shape = matrix(table_rows(b, site, name), b->cfg->ple_dim / plumb_ngram_heads(b->cfg));
	int64_t rows = shape.dim[0];
	char part[PLUMB_BIND_NAME], scale[PLUMB_BIND_NAME];

	if (i == 0)
		w->shard_rows = rows;
	if (rows < 1 || rows > w->shard_rows || (!last && rows != w->shard_rows))
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
			"%s: tensor %s%s" TABLE "%s has %lld rows, expected %lld as in shard 0%s", dir, b->prefix, site,
			name, (long long)rows, (long long)w->shard_rows, last ? " or fewer, at least 1" : "");
	snprintf(part, sizeof part, "%s%s" TABLE "%s", b->prefix, site, name);
	snprintf(scale, sizeof scale, "%s%s" TABLE "weight_scale", b->prefix, site);
	plumb_bind_table_part(&b->base, &w->table[i], &shape, part, scale);
	if (!b->base.status && w->table[i].format != w->table[0].format)
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
			"%s: tensor %s%s" TABLE "%s is stored as %s, expected %s as shard 0", dir, b->prefix, site, name,
			plumb_format_name(w->table[i].format), plumb_format_name(w->table[0].format));
}

/* The parts have `rows` rows in all: refuse another number than the hash wants. */
static void check_table(struct binder *b, const struct plumb_ple_weights *w, const char *site, bool whole, int64_t rows)
{
	const char *dir = b->base.shards->dir;
	const long long parts = w->shards, expected = w->ngram.rows;

	if (b->base.status || rows == w->ngram.rows)
		return;
	if (rows < w->ngram.rows && !whole)
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
			"%s: tensor %s%s" TABLE "shard_%lld.weight is missing: the shards before it have %lld rows, "
			"expected %lld in all",
			dir, b->prefix, site, parts, (long long)rows, expected);
	else
		b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
			"%s: tensors %s%s" TABLE "* have %lld rows in %lld parts, expected %lld", dir, b->prefix, site,
			(long long)rows, parts, expected);
}

/* The n-gram table: ngram_embedding.weight, or shard_0, shard_1, ... cut from it by rows; how many shards there are is
 * what the files say (split_ngram_parts is what the last save was asked for). */
static void bind_table(struct binder *b, struct plumb_ple_weights *w, const char *site)
{
	int64_t rows = 0;
	char name[48];
	const bool whole = table_rows(b, site, part_name(true, 0, name)) >= 0;

	if (b->base.status)
		return;
	w->shards = whole;
	while (!whole && table_rows(b, site, part_name(false, w->shards, name)) >= 0)
		w->shards++;
	w->table = new_bank(b, w->shards + 1);
	for (int64_t i = 0; i < w->shards && !b->base.status; i++) {
		part_name(whole, i, name);
		bind_part(b, w, site, name, i);
		rows += table_rows(b, site, name);
	}
	check_table(b, w, site, whole, rows);
}

static void bind_ple(struct binder *b, struct plumb_ple_weights *w, const char *site, int q)
{
	const struct plumb_config *c = b->cfg;
	int64_t wide = c->streams * c->hidden;
	if (!b->base.status)
		b->base.status = plumb_ngram_constants(c, q, &w->ngram, b->base.err);
	check_constant(b, site, "layer_multipliers", w->ngram.multiplier, c->ngram);
	check_constant(b, site, "ngram_heads_vocab_sizes", w->ngram.prime, plumb_ngram_heads(c));
	check_constant(b, site, "ngram_heads_offsets", w->ngram.offset, plumb_ngram_heads(c));
	bind_table(b, w, site);
	bind(b, &w->key_proj, matrix(wide, c->ple_dim), site, "key_proj.weight");
	bind(b, &w->value_proj, matrix(c->hidden, c->ple_dim), site, "value_proj.weight");
	bind(b, &w->norm_key, vector(wide), site, "norm_key.weight");
	bind(b, &w->norm_query, vector(wide), site, "norm_query.weight");
	bind(b, &w->norm_conv, vector(wide), site, "norm_conv.weight");
	bind(b, &w->conv, conv(wide, c->ple_conv_taps), site, "conv1d.weight");
}

static void bind_layer(struct binder *b, struct plumb_layer_weights *w, int layer)
{
	char site[64];
	snprintf(site, sizeof site, "layers.%d.attn_hyper_connection.", layer);
	bind_hc(b, &w->attn_hc, site, true);
	snprintf(site, sizeof site, "layers.%d.mlp_hyper_connection.", layer);
	bind_hc(b, &w->mlp_hc, site, true);
	if (b->cfg->kind[layer] == PLUMB_LAYER_GDN) {
		snprintf(site, sizeof site, "layers.%d.linear_attn.", layer);
		bind_gdn(b, &w->gdn, site);
	} else {
		snprintf(site, sizeof site, "layers.%d.self_attn.", layer);
		bind_attention(b, &w->attention, site);
	}
	snprintf(site, sizeof site, "layers.%d.mlp.", layer);
	bind_moe(b, &w->moe, site);

	int q = plumb_ple_of_layer(b->cfg, layer);
	if (q < 0 || b->base.status)
		return;
	if (!(w->ple = calloc(1, sizeof *w->ple))) {
		b->base.status =
			plumb_fail(b->base.err, PLUMB_BAD_INPUT, "%s: no memory for PLE weights", b->base.shards->dir);
		return;
	}
	snprintf(site, sizeof site, "layers.%d.ple.", layer);
	bind_ple(b, w->ple, site, q);
}

/* Parts of the released checkpoints that a text decoder does not use: the draft model and the vision tower. */
static bool is_skipped(const char *name)
{
	static const char *const prefixes[] = {"mtp.", "model.mtp.", "model.language_model.mtp.", "visual.",
		"model.visual.", "vision_tower.", "model.vision_tower."};
	for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
		if (strncmp(name, prefixes[i], strlen(prefixes[i])) == 0)
			return true;
	return false;
}

/* A tensor without a role means that this is not the model the config describes: say so instead of computing
 * another. */
static void check_all_bound(struct binder *b)
{
	for (size_t i = 0; i < b->base.shards->tensors && !b->base.status; i++) {
		const struct plumb_tensor *t = b->base.shards->tensor[i];
		char shape[192];
		if (!b->base.bound[i] && !is_skipped(t->name))
			b->base.status = plumb_fail(b->base.err, PLUMB_BAD_INPUT,
				"%s: tensor %.200s (%s %s) is unknown, expected only tensors that config.json asks for",
				t->file, t->name, plumb_dtype_name(t->dtype), plumb_tensor_shape(t, shape));
	}
}

/* Which of the two prefixes the files use. The config's model_type says which one to expect; either is taken, since an
 * export may keep the one and change the other. */
static const char *find_prefix(const struct plumb_shards *shards, bool nested)
{
	static const char *const prefixes[] = {"model.", "model.language_model."};
	for (int i = 0; i < 2; i++) {
		char name[PLUMB_BIND_NAME];
		const char *prefix = prefixes[nested ? 1 - i : i];
		snprintf(name, sizeof name, "%sembed_tokens.weight", prefix);
		if (plumb_shards_find(shards, name, NULL))
			return prefix;
	}
	return prefixes[nested];
}

static int bind_model(struct plumb_checkpoint *ck, struct plumb_error *err)
{
	struct plumb_model *m = &ck->model;
	const struct plumb_config *c = &m->cfg;
	struct binder b = {
		.base = {.shards = ck->shards, .bound = calloc(ck->shards->tensors + 1, sizeof(bool)), .err = err},
		.cfg = c,
		.prefix = find_prefix(ck->shards, c->nested),
	};
	m->layer = calloc((size_t)c->layers, sizeof *m->layer);
	if (!b.base.bound || !m->layer) {
		b.base.status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for %d layers", ck->shards->dir, c->layers);
		goto done;
	}
	bind(&b, &m->embed, matrix(c->vocab, c->hidden), "", "embed_tokens.weight");
	plumb_bind_weight(&b.base, &m->lm_head, &(struct plumb_shape){2, {c->vocab, c->hidden}}, "lm_head.weight");
	bind_hc(&b, &m->mixer, "hyper_connection_mixer.", false);
	for (int i = 0; i < c->layers; i++)
		bind_layer(&b, &m->layer[i], i);
	check_all_bound(&b);
done:
	ck->copy = b.base.copy;
	ck->copies = b.base.copies;
	free(b.base.bound);
	return b.base.status;
}

/* config.json could not be read, and *err says why. Without one the folder is another: the one meant may be the folder
 * `checkpoint` in it, as golden/NAME has one. */
static void explain_folder(const char *dir, const char *config_path, struct plumb_error *err)
{
	char *inner = NULL;

	if (access(config_path, F_OK) == 0)
		return;
	int reason = errno;
	if (asprintf(&inner, "%s/checkpoint/config.json", dir) >= 0 && access(inner, R_OK) == 0)
		plumb_fail(err, PLUMB_BAD_INPUT, "%s: no config.json, expected a checkpoint folder, as %s/checkpoint is",
			dir, dir);
	else
		plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot open: %s, expected a checkpoint folder", config_path,
			strerror(reason));
	free(inner);
}

int plumb_checkpoint_open(const char *dir, struct plumb_checkpoint **out, struct plumb_error *err)
{
	int status;
	char *config_path = NULL, *sidecar_path = NULL;
	struct plumb_checkpoint *ck = calloc(1, sizeof *ck);

	if (!ck || asprintf(&config_path, "%s/config.json", dir) < 0)
		config_path = NULL;
	if (asprintf(&sidecar_path, "%s/hf_quant_config.json", dir) < 0)
		sidecar_path = NULL;
	if (!ck || !config_path || !sidecar_path) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory", dir);
		goto done;
	}
	if ((status = plumb_config_read(config_path, &ck->model.cfg, &ck->defaults, err))) {
		explain_folder(dir, config_path, err);
		goto done;
	}
	if ((status = plumb_shards_open(dir, &ck->shards, err)) || (status = bind_model(ck, err)) ||
		(status = plumb_quant_config_check(config_path, ck->shards, is_skipped, err)) ||
		(status = plumb_quant_sidecar_check(sidecar_path, ck->shards, is_skipped, err)))
		goto done;
	*out = ck;
	ck = NULL;
done:
	free(config_path);
	free(sidecar_path);
	plumb_checkpoint_close(ck);
	return status;
}

const struct plumb_model *plumb_checkpoint_model(const struct plumb_checkpoint *checkpoint)
{
	return &checkpoint->model;
}

const char *plumb_checkpoint_defaults(const struct plumb_checkpoint *checkpoint)
{
	return checkpoint->defaults.text;
}

void plumb_checkpoint_close(struct plumb_checkpoint *checkpoint)
{
	if (!checkpoint)
		return;
	plumb_model_free_lists(&checkpoint->model);
	for (size_t i = 0; i < checkpoint->copies; i++)
		free(checkpoint->copy[i]);
	free(checkpoint->copy);
	plumb_shards_close(checkpoint->shards);
	free(checkpoint);
}
