/* SPDX-License-Identifier: MIT */
#include "core/config.h"

#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"

/* What is read here, and bos_token_id, which is nearly eos_token_id. */
static const char *const names[] = {"model_type", "text_config", "tie_word_embeddings", "vocab_size", "hidden_size",
	"hidden_act", "rms_norm_eps", "attention_bias", "hc_count", "hc_lowrank", "num_hidden_layers", "layer_types",
	"full_attention_interval", "linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
	"linear_value_head_dim", "linear_conv_kernel_dim", "output_gate_type", "num_attention_heads", "num_key_value_heads",
	"head_dim", "max_position_embeddings", "rope_parameters", "rope_scaling", "rope_theta", "partial_rotary_factor",
	"indexer_kv_heads", "indexer_n_heads", "indexer_head_dim", "indexer_budget", "indexer_compress_ratio",
	"num_experts", "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size", "norm_topk_prob",
	"ple_layer_ids", "ple_embed_dim", "ple_conv_kernel_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base",
	"make_ngram_vocab_size_divisible_by", "split_ngram_parts", "seed", "eos_token_id", "bos_token_id", NULL};

/* Released config.json files have 5 to 31 KB and three levels; the largest parts are lists of module names. */
static const struct plumb_json_limits limits = {.bytes = 16 << 20, .depth = 64, .values = 1 << 20};

#define SIZE_LIMIT INT64_C(2147483647) /* of a dimension: indices fit 32 bits, and a product of two 63 */
#define COUNT_LIMIT (INT64_C(1) << 60) /* of the elements of a tensor: its bytes fit 63 bits in every format */

int plumb_ple_of_layer(const struct plumb_config *c, int layer)
{
	for (int q = 0; q < c->ple_count; q++)
		if (c->ple_layer[q] == layer)
			return q;
	return -1;
}

/* A size that has to be there. */
static int64_t size_field(struct plumb_json_object *o, const char *key)
{
	return plumb_json_int(o, key, 1, SIZE_LIMIT, NULL);
}

/* A size the format has a default for. */
static int64_t size_or(struct plumb_json_object *o, const char *key, int64_t max, int64_t fallback)
{
	return plumb_json_int(o, key, 1, max, &fallback);
}

static bool flag_or(struct plumb_json_object *o, const char *key, bool fallback)
{
	return plumb_json_bool(o, key, &fallback);
}

/* Record a broken rule between fields, unless an earlier failure stands. */
#define REFUSE(o, ...)                                                                                                     \
	do {                                                                                                               \
		if (!(o)->status)                                                                                          \
			(o)->status = plumb_fail((o)->err, PLUMB_BAD_INPUT, __VA_ARGS__);                                  \
	} while (0)

static void check_divides(struct plumb_json_object *o, const char *key, int64_t value, const char *by_key, int64_t by)
{
	if (!o->status && value % by != 0)
		REFUSE(o, "%s: %s%s is %lld, expected a multiple of %s = %lld", o->file, o->path, key, (long long)value,
			by_key, (long long)by);
}

/* Fields that must have the one value this model family knows. */
static void read_fixed(struct plumb_json_object *o)
{
	const char *act = plumb_json_string(o, "hidden_act", "silu");
	if (!o->status && strcmp(act, "silu") != 0)
		REFUSE(o, "%s: %shidden_act is \"%.60s\", expected \"silu\"", o->file, o->path, act);
	if (flag_or(o, "attention_bias", false))
		REFUSE(o, "%s: %sattention_bias is true, expected false: the projections have no bias tensors", o->file,
			o->path);
	if (flag_or(o, "tie_word_embeddings", false))
		REFUSE(o, "%s: %stie_word_embeddings is true, expected false: lm_head.weight is a tensor of its own",
			o->file, o->path);
}

static void read_gdn(struct plumb_json_object *o, struct plumb_config *c)
{
	c->gdn_key_heads = (int)size_field(o, "linear_num_key_heads");
	c->gdn_value_heads = (int)size_field(o, "linear_num_value_heads");
	c->gdn_key_dim = size_field(o, "linear_key_head_dim");
	c->gdn_value_dim = size_field(o, "linear_value_head_dim");
	c->gdn_conv_taps = (int)size_or(o, "linear_conv_kernel_dim", SIZE_LIMIT, 4);
	check_divides(o, "linear_num_value_heads", c->gdn_value_heads, "linear_num_key_heads", c->gdn_key_heads);

	/* absent: hidden_act, which is silu or refused */
	const char *gate = plumb_json_string(o, "output_gate_type", "silu");
	if (o->status)
		return;
	if (strcmp(gate, "sigmoid") != 0 && strcmp(gate, "silu") != 0)
		REFUSE(o, "%s: %soutput_gate_type is \"%.60s\", expected \"sigmoid\" or \"silu\"", o->file, o->path, gate);
	c->gdn_gate = strcmp(gate, "sigmoid") == 0 ? PLUMB_GATE_SIGMOID : PLUMB_GATE_SILU;
}

/* rope_parameters (rope_scaling in older files) with copies of its fields at the level of the other fields. */
static void read_rope(struct plumb_json_object *o, struct plumb_config *c)
{
	const char *key = plumb_json_field(o, "rope_parameters") ? "rope_parameters" : "rope_scaling";
	const cJSON *child = plumb_json_child(o, key, false);
	char path[64];
	snprintf(path, sizeof path, "%s%s.", o->path, key);
	struct plumb_json_object rope = {
		.object = child, .file = o->file, .path = path, .err = o->err, .status = o->status};

	const char *type = plumb_json_string(&rope, "rope_type", "default");
	const char *old_type = plumb_json_string(&rope, "type", "default");
	if (!rope.status && (strcmp(type, "default") != 0 || strcmp(old_type, "default") != 0))
		REFUSE(&rope, "%s: %srope_type is \"%.60s\", expected \"default\"", o->file, path,
			strcmp(type, "default") != 0 ? type : old_type);

	/* The nested copy counts; the factor's default is that of transformers: all dimensions turn. */
	static const double whole = 1;
	struct plumb_json_object *theta = plumb_json_field(&rope, "rope_theta") ? &rope : o;
	struct plumb_json_object *factor = plumb_json_field(&rope, "partial_rotary_factor") ? &rope : o;
	c->rope_theta = plumb_json_number(theta, "rope_theta", 1, 1e30, NULL);
	double partial = plumb_json_number(factor, "partial_rotary_factor", 1e-9, 1, &whole);
	if (!o->status)
		o->status = rope.status;
	if (o->status)
		return;

	c->rotary_dim = (int64_t)((double)c->head_dim * partial);
	if (c->rotary_dim < 2 || c->rotary_dim % 2 != 0 || c->rotary_dim > c->index_dim)
		REFUSE(o,
			"%s: %spartial_rotary_factor is %g: int(head_dim %lld * factor) = %lld rotary dimensions, "
			"expected an even number in 2..%lld (head_dim, indexer_head_dim)",
			o->file, factor->path, partial, (long long)c->head_dim, (long long)c->rotary_dim,
			(long long)(c->index_dim < c->head_dim ? c->index_dim : c->head_dim));
}

static void read_attention(struct plumb_json_object *o, struct plumb_config *c)
{
	c->q_heads = (int)size_field(o, "num_attention_heads");
	c->kv_heads = (int)size_field(o, "num_key_value_heads");
	c->head_dim = size_field(o, "head_dim");
	c->max_positions = size_or(o, "max_position_embeddings", SIZE_LIMIT, 32768);
	check_divides(o, "num_attention_heads", c->q_heads, "num_key_value_heads", c->kv_heads);

	int64_t index_kv_heads = size_field(o, "indexer_kv_heads");
	c->index_heads = (int)size_field(o, "indexer_n_heads");
	c->index_dim = size_field(o, "indexer_head_dim");
	int64_t budget = size_field(o, "indexer_budget");
	c->block_tokens = (int)size_field(o, "indexer_compress_ratio");
	if (!o->status && index_kv_heads != 1)
		REFUSE(o, "%s: %sindexer_kv_heads is %lld, expected 1", o->file, o->path, (long long)index_kv_heads);
	check_divides(o, "indexer_budget", budget, "indexer_compress_ratio", c->block_tokens);
	if (!o->status)
		c->block_budget = budget / c->block_tokens;
	read_rope(o, c);
}

static void read_moe(struct plumb_json_object *o, struct plumb_config *c)
{
	c->experts = size_field(o, "num_experts");
	c->experts_per_token = (int)size_field(o, "num_experts_per_tok");
	c->expert_inner = size_field(o, "moe_intermediate_size");
	c->shared_inner = size_field(o, "shared_expert_intermediate_size");
	c->norm_topk = flag_or(o, "norm_topk_prob", true);
	if (!o->status && c->experts_per_token > c->experts)
		REFUSE(o, "%s: %snum_experts_per_tok is %d, expected at most num_experts = %lld", o->file, o->path,
			c->experts_per_token, (long long)c->experts);
}

/* The spellings of transformers 5.16 to 5.19 and of its main branch. hybrid_indexed says besides that the layer carries
 * PLE, which ple_layer_ids decides in every version. */
static bool is_attention(const char *type)
{
	static const char *const types[] = {"full_attention", "qwen_sparse_attention", "indexed_attention",
		"deepseek_sparse_attention", "hybrid_indexed"};
	for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
		if (strcmp(type, types[i]) == 0)
			return true;
	return false;
}

static void read_layers(struct plumb_json_object *o, struct plumb_config *c)
{
	c->layers = (int)plumb_json_int(o, "num_hidden_layers", 1, PLUMB_MAX_LAYERS, NULL);
	const cJSON *types = plumb_json_array(o, "layer_types", false);
	int64_t interval = 0;
	if (!types || plumb_json_field(o, "full_attention_interval")) /* else nothing asks for it */
		interval = size_or(o, "full_attention_interval", SIZE_LIMIT, 4);
	if (o->status)
		return;
	for (int i = 0; !types && i < c->layers; i++)
		c->kind[i] = (i + 1) % interval == 0 ? PLUMB_LAYER_ATTENTION : PLUMB_LAYER_GDN;
	if (!types)
		return;

	int count = 0;
	const cJSON *item;
	cJSON_ArrayForEach (item, types) {
		char shown[64];
		if (count < c->layers && cJSON_IsString(item) && strcmp(item->valuestring, "linear_attention") == 0)
			c->kind[count] = PLUMB_LAYER_GDN;
		else if (count < c->layers && cJSON_IsString(item) && is_attention(item->valuestring))
			c->kind[count] = PLUMB_LAYER_ATTENTION;
		else if (count < c->layers)
			REFUSE(o,
				"%s: %slayer_types[%d] is %s, expected \"linear_attention\", \"full_attention\", "
				"\"qwen_sparse_attention\", \"indexed_attention\", \"deepseek_sparse_attention\" or "
				"\"hybrid_indexed\"",
				o->file, o->path, count, plumb_json_show(item, shown));
		count++;
	}
	if (count != c->layers)
		REFUSE(o, "%s: %slayer_types has %d entries, expected num_hidden_layers = %d", o->file, o->path, count,
			c->layers);
}

/* One-indexed in the file, in any order, repeats allowed. */
static void read_ple_layers(struct plumb_json_object *o, struct plumb_config *c)
{
	bool carries[PLUMB_MAX_LAYERS] = {false};
	int index = 0;
	const cJSON *item, *ids = plumb_json_array(o, "ple_layer_ids", false);
	if (o->status)
		return;
	cJSON_ArrayForEach (item, ids) {
		char shown[64];
		int64_t id;
		if (plumb_json_item_int(item, 1, c->layers, &id))
			carries[id - 1] = true;
		else
			REFUSE(o,
				"%s: %sple_layer_ids[%d] is %s, expected a whole number in 1..%d (num_hidden_layers; "
				"the first is 1)",
				o->file, o->path, index, plumb_json_show(item, shown), c->layers);
		index++;
	}
	int count = 0;
	for (int i = 0; i < c->layers; i++)
		if (carries[i] && count++ < PLUMB_MAX_PLE)
			c->ple_layer[c->ple_count++] = i;
	if (count > PLUMB_MAX_PLE)
		REFUSE(o, "%s: %sple_layer_ids names %d layers, expected at most %d", o->file, o->path, count,
			PLUMB_MAX_PLE);
}

/* eos_token_id: a number or a list, of which PLE uses element 0. Without PLE nothing uses it; it is then -1 if
 * absent. */
static void read_eos(struct plumb_json_object *o, struct plumb_config *c)
{
	const cJSON *item = plumb_json_field(o, "eos_token_id");
	char shown[64];
	c->eos = -1;
	if (o->status || (!item && c->ple_count == 0))
		return;
	if (cJSON_IsArray(item))
		item = item->child;
	if (!plumb_json_item_int(item, 0, c->vocab - 1, &c->eos))
		REFUSE(o, "%s: %seos_token_id is %s, expected a token id in 0..%lld or a list that begins with one",
			o->file, o->path, plumb_json_show(item, shown), (long long)c->vocab - 1);
}

static void read_ple(struct plumb_json_object *o, struct plumb_config *c)
{
	static const int64_t seed = 1234;
	c->ple_dim = size_or(o, "ple_embed_dim", SIZE_LIMIT, c->hidden);
	c->ple_conv_taps = (int)size_or(o, "ple_conv_kernel_size", SIZE_LIMIT, 4);
	static const int64_t trigram = 3;
	c->ngram = (int)plumb_json_int(o, "ngram_size", 2, PLUMB_MAX_NGRAM, &trigram);
	c->heads_per_ngram = (int)size_or(o, "heads_per_ngram", PLUMB_MAX_NGRAM_HEADS, 8);
	c->ngram_vocab_base = size_or(o, "ngram_vocab_size_base", SIZE_LIMIT, 20000000);
	c->ngram_row_multiple = size_or(o, "make_ngram_vocab_size_divisible_by", SIZE_LIMIT, 128);
	c->ngram_parts = (int)size_or(o, "split_ngram_parts", SIZE_LIMIT, 512);
	/* Any number Python would take modulo 2^64. LIMIT: beyond +-2^53 cJSON has lost digits: refused. */
	c->seed = (uint64_t)plumb_json_int(o, "seed", INT64_MIN, INT64_MAX, &seed);
	read_ple_layers(o, c);
	read_eos(o, c);
	if (o->status)
		return;
	if (plumb_ngram_heads(c) > PLUMB_MAX_NGRAM_HEADS)
		REFUSE(o, "%s: %sheads_per_ngram is %d: %d heads with ngram_size %d, expected at most %d", o->file, o->path,
			c->heads_per_ngram, plumb_ngram_heads(c), c->ngram, PLUMB_MAX_NGRAM_HEADS);
	if (c->ple_count > 0)
		check_divides(o, "ple_embed_dim", c->ple_dim, "(ngram_size - 1) * heads_per_ngram", plumb_ngram_heads(c));
}

/* a, b >= 1. */
static void check_product(struct plumb_json_object *o, const char *what, int64_t a, int64_t b, int64_t limit)
{
	if (!o->status && a > limit / b)
		REFUSE(o, "%s: %s is %lld * %lld, expected a product of at most %lld", o->file, what, (long long)a,
			(long long)b, (long long)limit);
}

/* The code that uses a config multiplies its sizes without looking: no product may overflow. */
static void check_sizes(struct plumb_json_object *o, const struct plumb_config *c)
{
	if (o->status)
		return;
	/* Widths first, so that the products of two widths below cannot overflow themselves. */
	check_product(o, "hc_count * hidden_size", c->streams, c->hidden, SIZE_LIMIT);
	check_product(
		o, "the q_proj width 2 * num_attention_heads * head_dim", INT64_C(2) * c->q_heads, c->head_dim, SIZE_LIMIT);
	check_product(o, "num_key_value_heads * head_dim", c->kv_heads, c->head_dim, SIZE_LIMIT);
	check_product(o, "2 * linear_num_key_heads * linear_key_head_dim", INT64_C(2) * c->gdn_key_heads, c->gdn_key_dim,
		SIZE_LIMIT);
	check_product(
		o, "linear_num_value_heads * linear_value_head_dim", c->gdn_value_heads, c->gdn_value_dim, SIZE_LIMIT);
	check_product(o, "(indexer_n_heads + 1) * indexer_head_dim", c->index_heads + INT64_C(1), c->index_dim, SIZE_LIMIT);
	check_product(o, "2 * moe_intermediate_size", 2, c->expert_inner, SIZE_LIMIT);
	check_product(o, "ple_conv_kernel_size * ngram_size", c->ple_conv_taps, c->ngram, SIZE_LIMIT);
	if (o->status)
		return;
	int64_t wide = c->streams * c->hidden;
	int64_t keys = INT64_C(2) * c->gdn_key_heads * c->gdn_key_dim;
	int64_t values = c->gdn_value_heads * c->gdn_value_dim;
	int64_t channels = keys + values;
	int64_t queries = INT64_C(2) * c->q_heads * c->head_dim;
	if (channels > SIZE_LIMIT)
		REFUSE(o, "%s: linear attention has %lld key and %lld value channels, expected at most %lld in all",
			o->file, (long long)keys, (long long)values, (long long)SIZE_LIMIT);

	const struct {
		const char *what;
		int64_t a, b;
	} tensors[] = {
		{"embed_tokens, vocab_size * hidden_size,", c->vocab, c->hidden},
		{"hc_lowrank * (hc_count * hidden_size)", c->low_rank, wide},
		{"hc_count * (hc_count * hidden_size)", c->streams, wide},
		{"in_proj_qkv, channels * hidden_size,", channels, c->hidden},
		{"the linear attention conv, channels * linear_conv_kernel_dim,", channels, c->gdn_conv_taps},
		{"the recurrence state, value channels * linear_key_head_dim,", values, c->gdn_key_dim},
		{"q_proj, rows * hidden_size,", queries, c->hidden},
		{"index_qk_proj, rows * hidden_size,", (c->index_heads + 1) * c->index_dim, c->hidden},
		{"the router, num_experts * hidden_size,", c->experts, c->hidden},
		{"the shared expert, shared_expert_intermediate_size * hidden_size,", c->shared_inner, c->hidden},
		{"an expert, 2 * moe_intermediate_size * hidden_size,", 2 * c->expert_inner, c->hidden},
		{"ple.key_proj, (hc_count * hidden_size) * ple_embed_dim,", wide, c->ple_dim},
		{"the PLE conv history, (ple_conv_kernel_size * ngram_size) * (hc_count * hidden_size),",
			(int64_t)c->ple_conv_taps * c->ngram, wide},
	};
	for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++)
		check_product(o, tensors[i].what, tensors[i].a, tensors[i].b, COUNT_LIMIT);
	if (!o->status) /* one expert has passed, so this product exists */
		check_product(o, "gate_up_proj, num_experts * (2 * moe_intermediate_size * hidden_size),", c->experts,
			2 * c->expert_inner * c->hidden, COUNT_LIMIT);
}

static int read_text_config(struct plumb_json_object *o, struct plumb_config *c)
{
	static const double eps = 1e-6;
	read_fixed(o);
	c->vocab = size_field(o, "vocab_size");
	c->hidden = size_field(o, "hidden_size");
	c->rms_norm_eps = (float)plumb_json_number(o, "rms_norm_eps", 1e-30, 1, &eps);
	static const int64_t streams = 4;
	c->streams = (int)plumb_json_int(o, "hc_count", 2, PLUMB_MAX_STREAMS, &streams);
	c->low_rank = size_field(o, "hc_lowrank");
	read_layers(o, c);
	read_gdn(o, c);
	read_attention(o, c);
	read_moe(o, c);
	read_ple(o, c);
	check_sizes(o, c);
	return o->status;
}

static void keep_defaults(struct plumb_json_object *o, struct plumb_config_defaults *defaults)
{
	o->absent = defaults ? defaults->text : NULL;
	o->absent_size = defaults ? sizeof defaults->text : 0;
}

static int read_tree(const cJSON *tree, const char *name, struct plumb_config *out, struct plumb_config_defaults *defaults,
	struct plumb_error *err)
{
	struct plumb_json_object top = {.object = tree, .file = name, .path = "", .err = err, .names = names};
	if (!cJSON_IsObject(tree)) {
		char shown[64];
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: is %s, expected an object", name, plumb_json_show(tree, shown));
	}
	const char *type = plumb_json_string(&top, "model_type", "");
	if (top.status)
		return top.status;
	struct plumb_config *c = calloc(1, sizeof *c);
	if (!c)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for a config", name);
	int status;
	if (defaults)
		defaults->text[0] = '\0';
	if (strcmp(type, "qwen4_exp_text") == 0) {
		keep_defaults(&top, defaults);
		status = read_text_config(&top, c);
	} else if (strcmp(type, "qwen4_exp") == 0) {
		struct plumb_json_object text = {.file = name, .path = "text_config.", .err = err, .names = names};
		c->nested = true;
		if (flag_or(&top, "tie_word_embeddings", false))
			REFUSE(&top,
				"%s: tie_word_embeddings is true, expected false: lm_head.weight is a tensor of its "
				"own",
				name);
		text.object = plumb_json_child(&top, "text_config", true);
		text.status = top.status;
		keep_defaults(&text, defaults);
		const char *inner = plumb_json_string(&text, "model_type", "qwen4_exp_text");
		if (!text.status && strcmp(inner, "qwen4_exp_text") != 0)
			REFUSE(&text, "%s: text_config.model_type is \"%.60s\", expected \"qwen4_exp_text\"", name, inner);
		status = text.status ? text.status : read_text_config(&text, c);
	} else {
		char shown[64];
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: model_type is %s, expected \"qwen4_exp\" or \"qwen4_exp_text\"", name,
			plumb_json_show(plumb_json_field(&top, "model_type"), shown));
	}
	if (!status)
		*out = *c;
	free(c);
	return status;
}

int plumb_config_parse(const char *text, size_t size, const char *name, struct plumb_config *out, struct plumb_error *err)
{
	cJSON *tree;
	int status = plumb_json_parse(text, size, name, &limits, &tree, err);
	if (status)
		return status;
	status = read_tree(tree, name, out, NULL, err);
	cJSON_Delete(tree);
	return status;
}

int plumb_config_read(
	const char *path, struct plumb_config *out, struct plumb_config_defaults *defaults, struct plumb_error *err)
{
	cJSON *tree;
	int status = plumb_json_read(path, &limits, &tree, err);
	if (status)
		return status;
	status = read_tree(tree, path, out, defaults, err);
	cJSON_Delete(tree);
	return status;
}
