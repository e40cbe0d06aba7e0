/* SPDX-License-Identifier: MIT */
/* A config as text: the inverse of plumb_config_parse. */
#include <cJSON.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"

/* A whole factor: the largest below the next dimension, so that int(head_dim * factor) is rotary_dim however the
 * product rounds. */
static double rotary_factor(const struct plumb_config *c)
{
	return c->rotary_dim == c->head_dim ? 1.0 : ((double)c->rotary_dim + 0.5) / (double)c->head_dim;
}

static bool add_numbers(cJSON *o, const struct plumb_config *c)
{
	const struct {
		const char *key;
		double value;
	} fields[] = {
		{"vocab_size", (double)c->vocab},
		{"hidden_size", (double)c->hidden},
		{"num_hidden_layers", c->layers},
		{"rms_norm_eps", (double)c->rms_norm_eps},
		{"hc_count", c->streams},
		{"hc_lowrank", (double)c->low_rank},
		{"num_attention_heads", c->q_heads},
		{"num_key_value_heads", c->kv_heads},
		{"head_dim", (double)c->head_dim},
		{"partial_rotary_factor", rotary_factor(c)},
		{"rope_theta", c->rope_theta},
		{"max_position_embeddings", (double)c->max_positions},
		{"linear_num_key_heads", c->gdn_key_heads},
		{"linear_num_value_heads", c->gdn_value_heads},
		{"linear_key_head_dim", (double)c->gdn_key_dim},
		{"linear_value_head_dim", (double)c->gdn_value_dim},
		{"linear_conv_kernel_dim", c->gdn_conv_taps},
		{"num_experts", (double)c->experts},
		{"num_experts_per_tok", c->experts_per_token},
		{"moe_intermediate_size", (double)c->expert_inner},
		{"shared_expert_intermediate_size", (double)c->shared_inner},
		{"indexer_n_heads", c->index_heads},
		{"indexer_kv_heads", 1},
		{"indexer_head_dim", (double)c->index_dim},
		{"indexer_compress_ratio", c->block_tokens},
		{"indexer_budget", (double)(c->block_budget * c->block_tokens)},
		{"ple_embed_dim", (double)c->ple_dim},
		{"ple_conv_kernel_size", c->ple_conv_taps},
		{"ngram_size", c->ngram},
		{"heads_per_ngram", c->heads_per_ngram},
		{"ngram_vocab_size_base", (double)c->ngram_vocab_base},
		{"make_ngram_vocab_size_divisible_by", (double)c->ngram_row_multiple},
		{"split_ngram_parts", c->ngram_parts},
		{"seed", (double)(int64_t)c->seed},
	};
	bool done = true;

	for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
		done = done && cJSON_AddNumberToObject(o, fields[i].key, fields[i].value);
	if (c->eos >= 0)
		done = done && cJSON_AddNumberToObject(o, "eos_token_id", (double)c->eos);
	return done;
}

static bool add_lists(cJSON *o, const struct plumb_config *c)
{
	cJSON *kinds = cJSON_AddArrayToObject(o, "layer_types"), *ple = cJSON_AddArrayToObject(o, "ple_layer_ids");
	bool done = kinds && ple;

	for (int l = 0; done && l < c->layers; l++)
		done = cJSON_AddItemToArray(
			kinds, cJSON_CreateString(c->kind[l] == PLUMB_LAYER_GDN ? "linear_attention" : "full_attention"));
	for (int q = 0; done && q < c->ple_count; q++)
		done = cJSON_AddItemToArray(ple, cJSON_CreateNumber(c->ple_layer[q] + 1));
	return done;
}

char *plumb_config_text(const struct plumb_config *c)
{
	cJSON *top = cJSON_CreateObject(), *o = top;
	char *text = NULL;
	bool done = top && cJSON_AddStringToObject(top, "model_type", c->nested ? "qwen4_exp" : "qwen4_exp_text");

	if (done && c->nested) {
		o = cJSON_AddObjectToObject(top, "text_config");
		done = o && cJSON_AddStringToObject(o, "model_type", "qwen4_exp_text");
	}
	done = done && add_numbers(o, c) && add_lists(o, c) &&
	       cJSON_AddStringToObject(o, "output_gate_type", c->gdn_gate == PLUMB_GATE_SIGMOID ? "sigmoid" : "silu") &&
	       cJSON_AddBoolToObject(o, "norm_topk_prob", c->norm_topk);
	if (done)
		text = cJSON_PrintUnformatted(top);
	cJSON_Delete(top);
	return text;
}
