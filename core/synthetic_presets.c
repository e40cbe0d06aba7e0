/* SPDX-License-Identifier: MIT */
/* The configs of the synthetic models, as config.json of the release spells them. Source: model-spec 1.3. */
#include <string.h>

#include "core/profile_bytes.h"
#include "core/synthetic.h"
#include "core/text.h"

/* What layer4 and widths have in common with golden/release.json: all widths. */
#define RELEASE_WIDTHS                                                                                                     \
	"\"hidden_size\": 2560, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06, \"max_position_embeddings\": 262144,"   \
	" \"num_attention_heads\": 24, \"num_key_value_heads\": 2, \"head_dim\": 256, \"attention_bias\": false,"          \
	" \"full_attention_interval\": 4, \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000,"     \
	" \"partial_rotary_factor\": 0.25, \"mrope_section\": [11, 11, 10], \"mrope_interleaved\": true},"                 \
	" \"linear_num_key_heads\": 16, \"linear_num_value_heads\": 48, \"linear_key_head_dim\": 128,"                     \
	" \"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, \"output_gate_type\": \"sigmoid\","               \
	" \"num_experts_per_tok\": 10, \"moe_intermediate_size\": 640, \"shared_expert_intermediate_size\": 640,"          \
	" \"hc_count\": 4, \"hc_lowrank\": 320, \"ple_layer_ids\": [2], \"ple_embed_dim\": 2560,"                          \
	" \"ple_conv_kernel_size\": 4, \"ngram_size\": 3, \"heads_per_ngram\": 8,"                                         \
	" \"make_ngram_vocab_size_divisible_by\": 128, \"split_ngram_parts\": 128, \"indexer_n_heads\": 4,"                \
	" \"indexer_kv_heads\": 1, \"indexer_head_dim\": 128, \"indexer_budget\": 2048,"                                   \
	" \"indexer_compress_ratio\": 4, \"tie_word_embeddings\": false"

static const struct {
	const char *name, *brief, *json;
} presets[] = {
	{"tiny", "2 layers, the smallest with every mechanism",
		"{\"model_type\": \"qwen4_exp_text\", \"num_hidden_layers\": 2, \"layer_types\": [\"linear_attention\","
		" \"full_attention\"], \"vocab_size\": 128, \"hidden_size\": 48, \"rms_norm_eps\": 1e-06,"
		" \"max_position_embeddings\": 1024, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,"
		" \"head_dim\": 16, \"rope_parameters\": {\"rope_theta\": 10000, \"partial_rotary_factor\": 0.5},"
		" \"linear_num_key_heads\": 1, \"linear_num_value_heads\": 2, \"linear_key_head_dim\": 16,"
		" \"linear_value_head_dim\": 16, \"linear_conv_kernel_dim\": 4, \"output_gate_type\": \"sigmoid\","
		" \"eos_token_id\": 3, \"num_experts\": 8, \"num_experts_per_tok\": 2, \"moe_intermediate_size\": 32,"
		" \"shared_expert_intermediate_size\": 32, \"hc_count\": 2, \"hc_lowrank\": 16, \"ple_layer_ids\": [1],"
		" \"ple_embed_dim\": 48, \"ple_conv_kernel_size\": 4, \"ngram_size\": 3, \"heads_per_ngram\": 4,"
		" \"ngram_vocab_size_base\": 97, \"make_ngram_vocab_size_divisible_by\": 8, \"split_ngram_parts\": 4,"
		" \"indexer_n_heads\": 2, \"indexer_kv_heads\": 1, \"indexer_head_dim\": 16, \"indexer_budget\": 16,"
		" \"indexer_compress_ratio\": 4}"},
	{"small", "8 layers, odd widths and tails everywhere",
		"{\"model_type\": \"qwen4_exp_text\", \"num_hidden_layers\": 8, \"full_attention_interval\": 4,"
		" \"vocab_size\": 1003, \"hidden_size\": 203, \"rms_norm_eps\": 1e-06,"
		" \"max_position_embeddings\": 16384, \"num_attention_heads\": 6, \"num_key_value_heads\": 2,"
		" \"head_dim\": 44, \"rope_parameters\": {\"rope_theta\": 1000000, \"partial_rotary_factor\": 0.5},"
		" \"linear_num_key_heads\": 2, \"linear_num_value_heads\": 6, \"linear_key_head_dim\": 40,"
		" \"linear_value_head_dim\": 36, \"linear_conv_kernel_dim\": 4, \"output_gate_type\": \"silu\","
		" \"eos_token_id\": 7, \"num_experts\": 37, \"num_experts_per_tok\": 5, \"moe_intermediate_size\": 75,"
		" \"shared_expert_intermediate_size\": 131, \"hc_count\": 4, \"hc_lowrank\": 53, \"ple_layer_ids\": [2, 5],"
		" \"ple_embed_dim\": 152, \"ple_conv_kernel_size\": 3, \"ngram_size\": 3, \"heads_per_ngram\": 4,"
		" \"ngram_vocab_size_base\": 499, \"make_ngram_vocab_size_divisible_by\": 10, \"split_ngram_parts\": 7,"
		" \"indexer_n_heads\": 3, \"indexer_kv_heads\": 1, \"indexer_head_dim\": 28, \"indexer_budget\": 32,"
		" \"indexer_compress_ratio\": 4}"},
	{"deep", "48 layers at an eighth of the release's widths",
		"{\"model_type\": \"qwen4_exp_text\", \"num_hidden_layers\": 48, \"full_attention_interval\": 4,"
		" \"vocab_size\": 8192, \"hidden_size\": 320, \"rms_norm_eps\": 1e-06,"
		" \"max_position_embeddings\": 16384, \"num_attention_heads\": 12, \"num_key_value_heads\": 2,"
		" \"head_dim\": 64, \"rope_parameters\": {\"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25},"
		" \"linear_num_key_heads\": 4, \"linear_num_value_heads\": 12, \"linear_key_head_dim\": 64,"
		" \"linear_value_head_dim\": 64, \"linear_conv_kernel_dim\": 4, \"output_gate_type\": \"sigmoid\","
		" \"eos_token_id\": 8100, \"num_experts\": 64, \"num_experts_per_tok\": 8, \"moe_intermediate_size\": 80,"
		" \"shared_expert_intermediate_size\": 80, \"hc_count\": 4, \"hc_lowrank\": 40, \"ple_layer_ids\": [2],"
		" \"ple_embed_dim\": 320, \"ple_conv_kernel_size\": 4, \"ngram_size\": 3, \"heads_per_ngram\": 8,"
		" \"ngram_vocab_size_base\": 10007, \"make_ngram_vocab_size_divisible_by\": 128,"
		" \"split_ngram_parts\": 8, \"indexer_n_heads\": 4, \"indexer_kv_heads\": 1, \"indexer_head_dim\": 32,"
		" \"indexer_budget\": 256, \"indexer_compress_ratio\": 4}"},
	{"widths", "the release's widths, 4 layers, 16 experts, 2,048 tokens: what a sanitizer can run",
		"{\"model_type\": \"qwen4_exp_text\", \"num_hidden_layers\": 4, \"ngram_vocab_size_base\": 1000,"
		" \"vocab_size\": 2048, \"eos_token_id\": 2044, \"num_experts\": 16, " RELEASE_WIDTHS "}"},
	{"layer4", "the release's widths and vocabulary, 4 layers, a smaller n-gram table",
		"{\"model_type\": \"qwen4_exp_text\", \"num_hidden_layers\": 4, \"ngram_vocab_size_base\": 100000,"
		" \"vocab_size\": 248320, \"eos_token_id\": 248044, \"num_experts\": 512, " RELEASE_WIDTHS "}"},
	{"full", "the release's config: 48 layers, 512 experts, 248,320 tokens", plumb_release_json},
};

enum { PRESETS = sizeof presets / sizeof presets[0] };

const char *plumb_preset_name(int index)
{
	return index >= 0 && index < PRESETS ? presets[index].name : NULL;
}
const char *plumb_preset_brief(int index)
{
	return index >= 0 && index < PRESETS ? presets[index].brief : NULL;
}
const char *plumb_preset_json(int index)
{
	return index >= 0 && index < PRESETS ? presets[index].json : NULL;
}

int plumb_preset_config(const char *name, struct plumb_config *out, struct plumb_error *err)
{
	char list[128] = "";
	struct plumb_text text = {.text = list, .size = sizeof list};
	int i = 0;

	while (i < PRESETS && strcmp(presets[i].name, name) != 0)
		i++;
	if (i < PRESETS)
		return plumb_config_parse(presets[i].json, strlen(presets[i].json), presets[i].name, out, err);
	for (i = 0; i < PRESETS; i++)
		plumb_text_add(&text, "%s%s", i ? ", " : "", presets[i].name);
	return plumb_fail(
		err, PLUMB_BAD_INPUT, "'%.100s' is no preset of a synthetic model, expected one of %s", name, list);
}
