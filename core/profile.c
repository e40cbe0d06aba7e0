/* SPDX-License-Identifier: MIT */
#include "core/profile.h"

#include <cJSON.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/profile_data.h"
#include "core/text.h"

static const struct plumb_json_limits limits = {.bytes = 1 << 16, .depth = 3, .values = 256};

static const char *const groups[PLUMB_GROUP_COUNT] = {
	[PLUMB_GROUP_EMBED] = "embed",
	[PLUMB_GROUP_NGRAM_TABLE] = "ngram_table",
	[PLUMB_GROUP_PLE] = "ple",
	[PLUMB_GROUP_HC] = "hc",
	[PLUMB_GROUP_GDN] = "gdn",
	[PLUMB_GROUP_GDN_GATES] = "gdn_gates",
	[PLUMB_GROUP_ATTENTION] = "attention",
	[PLUMB_GROUP_INDEX] = "index",
	[PLUMB_GROUP_ROUTER] = "router",
	[PLUMB_GROUP_EXPERTS] = "experts",
	[PLUMB_GROUP_SHARED] = "shared",
	[PLUMB_GROUP_LM_HEAD] = "lm_head",
};

const char *plumb_group_name(enum plumb_group group)
{
	return (unsigned)group < PLUMB_GROUP_COUNT ? groups[group] : "unknown";
}

bool plumb_group_takes(enum plumb_group group, enum plumb_format format)
{
	bool looked_up = group == PLUMB_GROUP_EMBED || group == PLUMB_GROUP_NGRAM_TABLE;
	switch (format) {
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
		return true;
	case PLUMB_FP8_TABLE:
		return looked_up;
	case PLUMB_FP8_ROW:
	case PLUMB_FP8_BLOCK:
	case PLUMB_NVFP4:
		return !looked_up;
	case PLUMB_FORMAT_COUNT:
		break;
	}
	return false;
}

enum plumb_format plumb_profile_scale_format(enum plumb_format format)
{
	return format == PLUMB_FP8_BLOCK ? PLUMB_BF16 : PLUMB_F32;
}

/* ---- the file ---- */

/* Words of a field: what may stand there besides "keep". */
struct words {
	const char *word[PLUMB_FORMAT_COUNT];
	enum plumb_format format[PLUMB_FORMAT_COUNT];
	int count;
};

static void refuse(struct plumb_json_object *o, const char *key, const char *value, const struct words *words)
{
	char list[160];
	struct plumb_text text = {.text = list, .size = sizeof list};
	plumb_text_add(&text, "keep");
	for (int i = 0; i < words->count; i++)
		plumb_text_add(&text, "%s%s", i + 1 < words->count ? ", " : " or ", words->word[i]);
	o->status = plumb_fail(
		o->err, PLUMB_BAD_INPUT, "%s: %s%.64s is \"%.64s\", expected %s", o->file, o->path, key, value, list);
}

/* A field that is absent is kept. */
static void read_word(
	struct plumb_json_object *o, const char *key, const struct words *words, bool *keep, enum plumb_format *format)
{
	const char *value = plumb_json_string(o, key, "keep");
	*keep = true;
	*format = PLUMB_BF16;
	if (o->status || strcmp(value, "keep") == 0)
		return;
	for (int i = 0; i < words->count; i++) {
		if (strcmp(value, words->word[i]) == 0) {
			*keep = false;
			*format = words->format[i];
			return;
		}
	}
	refuse(o, key, value, words);
}

/* No key that is not one of names, and no null, which would read as absent. */
static void check_keys(struct plumb_json_object *o, const char *what, const char *const *names, int count)
{
	const cJSON *field;
	cJSON_ArrayForEach (field, o->object) {
		bool known = false;
		for (int i = 0; i < count; i++)
			known = known || strcmp(field->string, names[i]) == 0;
		if (o->status)
			return;
		if (!known) {
			char list[256] = "";
			struct plumb_text text = {.text = list, .size = sizeof list};
			for (int i = 0; i < count; i++)
				plumb_text_add(&text, "%s%s", i ? ", " : "", names[i]);
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: %s\"%.64s\" is no %s, expected one of %s",
				o->file, o->path, field->string, what, list);
		} else if (cJSON_IsNull(field)) {
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
				"%s: %s%.64s is null, expected a value (leave the field out to keep what is stored)",
				o->file, o->path, field->string);
		}
	}
}

static void read_groups(struct plumb_json_object *top, struct plumb_profile *out)
{
	struct plumb_json_object o = {.object = plumb_json_child(top, "groups", true),
		.file = top->file,
		.path = "groups.",
		.err = top->err,
		.status = top->status};
	if (!o.status)
		check_keys(&o, "group of matrices", groups, PLUMB_GROUP_COUNT);
	for (int g = 0; g < PLUMB_GROUP_COUNT && !o.status; g++) {
		struct words words = {.count = 0};
		for (int f = 0; f < PLUMB_FORMAT_COUNT; f++) {
			if (!plumb_group_takes((enum plumb_group)g, (enum plumb_format)f))
				continue;
			words.word[words.count] = plumb_format_name((enum plumb_format)f);
			words.format[words.count++] = (enum plumb_format)f;
		}
		read_word(&o, groups[g], &words, &out->keep[g], &out->format[g]);
	}
	top->status = o.status;
}

static void read_description(struct plumb_json_object *o, struct plumb_profile *out)
{
	const char *text = plumb_json_string(o, "description", "");
	if (o->status)
		return;
	for (const char *p = text; *p; p++)
		if (strlen(text) >= sizeof out->description || (unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e) {
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
				"%s: description is \"%.40s...\" of %zu bytes, expected one line of at most %zu ASCII "
				"characters",
				o->file, text, strlen(text), sizeof out->description - 1);
			return;
		}
	snprintf(out->description, sizeof out->description, "%s", text);
}

/* The name of a file without its folder and .json, fit for a terminal and for JSON. */
static void name_after(const char *file, char *name, size_t size)
{
	const char *slash = strrchr(file, '/');
	snprintf(name, size, "%s", slash ? slash + 1 : file);
	if (plumb_text_ends(name, ".json"))
		name[strlen(name) - strlen(".json")] = '\0';
	for (char *p = name; *p; p++)
		if ((unsigned char)*p < 0x20 || (unsigned char)*p > 0x7e)
			*p = '?';
}

int plumb_profile_parse(const char *text, size_t size, const char *file, struct plumb_profile *out, struct plumb_error *err)
{
	static const char *const keys[] = {"version", "description", "groups", "caches", "state"};
	static const struct words caches = {{"f32", "bf16", "fp8"}, {PLUMB_F32, PLUMB_BF16, PLUMB_FP8_ROW}, 3};
	static const struct words states = {{"f32", "f16"}, {PLUMB_F32, PLUMB_F16}, 2};
	struct plumb_profile p = {.name = ""};
	char shown[64];
	cJSON *tree = NULL;
	int status = plumb_json_parse(text, size, file, &limits, &tree, err);
	if (status)
		return status;
	struct plumb_json_object o = {.object = tree, .file = file, .path = "", .err = err};
	if (!cJSON_IsObject(tree))
		o.status =
			plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s, expected an object", file, plumb_json_show(tree, shown));
	else
		check_keys(&o, "key of a profile", keys, sizeof keys / sizeof keys[0]);
	if (!o.status)
		plumb_json_int(&o, "version", 1, 1, NULL);
	read_description(&o, &p);
	read_groups(&o, &p);
	read_word(&o, "caches", &caches, &p.keep_caches, &p.caches);
	read_word(&o, "state", &states, &p.keep_state, &p.state);
	name_after(file, p.name, sizeof p.name);
	if (!o.status)
		*out = p;
	cJSON_Delete(tree);
	return o.status;
}

const char *plumb_profile_shipped(int number, const char **text, size_t *size)
{
	if (number < 0 || number >= plumb_profile_data_count)
		return NULL;
	*text = plumb_profile_data[number].text;
	*size = *plumb_profile_data[number].size;
	return plumb_profile_data[number].name;
}

static int unknown_name(const char *name, struct plumb_error *err)
{
	char list[512] = "";
	struct plumb_text names = {.text = list, .size = sizeof list};
	const char *shipped, *text;
	size_t size;
	for (int i = 0; (shipped = plumb_profile_shipped(i, &text, &size)); i++)
		plumb_text_add(&names, "%s%s", i ? ", " : "", shipped);
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"profile '%.100s' is unknown, expected the path of a .json file or one of %s", name, list);
}

int plumb_profile_open(const char *name_or_path, struct plumb_profile *out, struct plumb_error *err)
{
	size_t size;
	bool path = strchr(name_or_path, '/') || plumb_text_ends(name_or_path, ".json");
	const char *name, *shipped;
	char *text = NULL;

	for (int i = 0; !path && (name = plumb_profile_shipped(i, &shipped, &size)); i++) {
		if (strcmp(name_or_path, name) == 0) {
			char file[96];
			snprintf(file, sizeof file, "built-in/%s.json", name);
			return plumb_profile_parse(shipped, size, file, out, err);
		}
	}
	if (!path)
		return unknown_name(name_or_path, err);
	int status = plumb_file_read(name_or_path, limits.bytes, &text, &size, err);
	if (status == PLUMB_OK)
		status = plumb_profile_parse(text, size, name_or_path, out, err);
	free(text);
	return status;
}

/* ---- the walk ---- */

struct walk {
	plumb_group_fn *fn;
	void *self;
	bool vectors;  /* only them, else only matrices */
	char site[64]; /* what stands before every name: "layers.3.mlp." */
	int status;
};

__attribute__((format(printf, 4, 5))) static void visit(
	struct walk *walk, enum plumb_group group, struct plumb_weight *w, const char *format, ...)
{
	char name[160];
	va_list ap;
	if (walk->status || (group == PLUMB_GROUP_COUNT) != walk->vectors)
		return;
	int n = snprintf(name, sizeof name, "%s", walk->site);
	va_start(ap, format);
	vsnprintf(name + n, sizeof name - (size_t)n, format, ap);
	va_end(ap);
	walk->status = walk->fn(walk->self, group, name, w);
}

__attribute__((format(printf, 2, 3))) static void enter(struct walk *walk, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vsnprintf(walk->site, sizeof walk->site, format, ap);
	va_end(ap);
}

static void visit_hc(struct walk *walk, struct plumb_hc_weights *w, bool injects)
{
	visit(walk, PLUMB_GROUP_COUNT, &w->norm, "hc_norm");
	visit(walk, PLUMB_GROUP_HC, &w->down, "input_mix_weight_down");
	visit(walk, PLUMB_GROUP_HC, &w->up, "input_mix_weight_up");
	if (injects)
		visit(walk, PLUMB_GROUP_HC, &w->inject, "block_inject_weight");
}

static void visit_gdn(struct walk *walk, struct plumb_gdn_weights *w)
{
	visit(walk, PLUMB_GROUP_GDN, &w->qkv, "in_proj_qkv");
	visit(walk, PLUMB_GROUP_GDN, &w->z, "in_proj_z");
	visit(walk, PLUMB_GROUP_GDN_GATES, &w->b, "in_proj_b");
	visit(walk, PLUMB_GROUP_GDN_GATES, &w->a, "in_proj_a");
	visit(walk, PLUMB_GROUP_COUNT, &w->conv, "conv1d");
	visit(walk, PLUMB_GROUP_COUNT, &w->a_log, "A_log");
	visit(walk, PLUMB_GROUP_COUNT, &w->dt_bias, "dt_bias");
	visit(walk, PLUMB_GROUP_COUNT, &w->norm, "norm");
	visit(walk, PLUMB_GROUP_GDN, &w->out, "out_proj");
}

static void visit_attention(struct walk *walk, struct plumb_attention_weights *w)
{
	visit(walk, PLUMB_GROUP_ATTENTION, &w->q, "q_proj");
	visit(walk, PLUMB_GROUP_ATTENTION, &w->k, "k_proj");
	visit(walk, PLUMB_GROUP_ATTENTION, &w->v, "v_proj");
	visit(walk, PLUMB_GROUP_COUNT, &w->q_norm, "q_norm");
	visit(walk, PLUMB_GROUP_COUNT, &w->k_norm, "k_norm");
	visit(walk, PLUMB_GROUP_ATTENTION, &w->out, "o_proj");
	visit(walk, PLUMB_GROUP_INDEX, &w->index_qk, "indexer.index_qk_proj");
	visit(walk, PLUMB_GROUP_COUNT, &w->index_q_norm, "indexer.q_layernorm");
	visit(walk, PLUMB_GROUP_COUNT, &w->index_k_norm, "indexer.k_layernorm");
}

static void visit_moe(struct walk *walk, struct plumb_moe_weights *w, int64_t experts)
{
	visit(walk, PLUMB_GROUP_ROUTER, &w->router, "gate");
	visit(walk, PLUMB_GROUP_ROUTER, &w->shared_router, "shared_expert_gate");
	for (int64_t e = 0; e < experts && !walk->status; e++) {
		visit(walk, PLUMB_GROUP_EXPERTS, &w->gate[e], "experts.%lld.gate_proj", (long long)e);
		visit(walk, PLUMB_GROUP_EXPERTS, &w->up[e], "experts.%lld.up_proj", (long long)e);
		visit(walk, PLUMB_GROUP_EXPERTS, &w->down[e], "experts.%lld.down_proj", (long long)e);
	}
	visit(walk, PLUMB_GROUP_SHARED, &w->shared_gate, "shared_expert.gate_proj");
	visit(walk, PLUMB_GROUP_SHARED, &w->shared_up, "shared_expert.up_proj");
	visit(walk, PLUMB_GROUP_SHARED, &w->shared_down, "shared_expert.down_proj");
}

static void visit_ple(struct walk *walk, struct plumb_ple_weights *w)
{
	for (int64_t i = 0; i < w->shards && !walk->status; i++) {
		if (w->shards == 1)
			visit(walk, PLUMB_GROUP_NGRAM_TABLE, w->table, "ple_embedding.ngram_embedding");
		else
			visit(walk, PLUMB_GROUP_NGRAM_TABLE, &w->table[i], "ple_embedding.ngram_embedding.shard_%lld",
				(long long)i);
	}
	visit(walk, PLUMB_GROUP_PLE, &w->key_proj, "key_proj");
	visit(walk, PLUMB_GROUP_PLE, &w->value_proj, "value_proj");
	visit(walk, PLUMB_GROUP_COUNT, &w->norm_key, "norm_key");
	visit(walk, PLUMB_GROUP_COUNT, &w->norm_query, "norm_query");
	visit(walk, PLUMB_GROUP_COUNT, &w->norm_conv, "norm_conv");
	visit(walk, PLUMB_GROUP_COUNT, &w->conv, "conv1d");
}

static int walk_model(struct plumb_model *model, bool vectors, plumb_group_fn *fn, void *self)
{
	const struct plumb_config *c = &model->cfg;
	struct walk walk = {.fn = fn, .self = self, .vectors = vectors};

	visit(&walk, PLUMB_GROUP_EMBED, &model->embed, "embed_tokens");
	visit(&walk, PLUMB_GROUP_LM_HEAD, &model->lm_head, "lm_head");
	enter(&walk, "hyper_connection_mixer.");
	visit_hc(&walk, &model->mixer, false);
	for (int i = 0; i < c->layers && !walk.status; i++) {
		struct plumb_layer_weights *w = &model->layer[i];
		enter(&walk, "layers.%d.attn_hyper_connection.", i);
		visit_hc(&walk, &w->attn_hc, true);
		enter(&walk, "layers.%d.mlp_hyper_connection.", i);
		visit_hc(&walk, &w->mlp_hc, true);
		if (c->kind[i] == PLUMB_LAYER_GDN) {
			enter(&walk, "layers.%d.linear_attn.", i);
			visit_gdn(&walk, &w->gdn);
		} else {
			enter(&walk, "layers.%d.self_attn.", i);
			visit_attention(&walk, &w->attention);
		}
		enter(&walk, "layers.%d.mlp.", i);
		visit_moe(&walk, &w->moe, c->experts);
		enter(&walk, "layers.%d.ple.", i);
		if (w->ple)
			visit_ple(&walk, w->ple);
	}
	return walk.status;
}

int plumb_groups_walk(struct plumb_model *model, plumb_group_fn *fn, void *self)
{
	return walk_model(model, false, fn, self);
}

int plumb_vectors_walk(struct plumb_model *model, plumb_group_fn *fn, void *self)
{
	return walk_model(model, true, fn, self);
}
