/* SPDX-License-Identifier: MIT */
/* config.json: the released one, every spelling and default, the hash constants that follow from it, and what is
 * refused.
 *
 * A case is a small valid config with one field replaced, added or left out. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/config.h"
#include "core/ops/ple.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

enum { TEXT_BYTES = 8192 };

static const char *const base[][2] = {
	{"model_type", "\"qwen4_exp_text\""},
	{"vocab_size", "320"},
	{"hidden_size", "64"},
	{"num_hidden_layers", "4"},
	{"num_attention_heads", "12"},
	{"num_key_value_heads", "2"},
	{"head_dim", "32"},
	{"hc_lowrank", "16"},
	{"linear_num_key_heads", "2"},
	{"linear_num_value_heads", "6"},
	{"linear_key_head_dim", "16"},
	{"linear_value_head_dim", "16"},
	{"num_experts", "16"},
	{"num_experts_per_tok", "4"},
	{"moe_intermediate_size", "32"},
	{"shared_expert_intermediate_size", "48"},
	{"indexer_n_heads", "4"},
	{"indexer_kv_heads", "1"},
	{"indexer_head_dim", "16"},
	{"indexer_budget", "16"},
	{"indexer_compress_ratio", "4"},
	{"ple_layer_ids", "[2]"},
	{"eos_token_id", "3"},
	{"rope_parameters", "{\"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25}"},
};
enum { BASE = sizeof base / sizeof base[0] };

/* The base with key set to value (NULL: left out), added when it is none of the base. Nested: inside text_config. */
static const char *config_text(char text[TEXT_BYTES], const char *key, const char *value, bool nested)
{
	size_t n = (size_t)snprintf(text, TEXT_BYTES, nested ? "{\"model_type\":\"qwen4_exp\",\"text_config\":{" : "{");
	bool found = false, first = true;
	for (int i = 0; i < BASE; i++) {
		const char *v = base[i][1];
		if (key && strcmp(key, base[i][0]) == 0) {
			found = true;
			v = value;
		}
		if (!v)
			continue;
		n += (size_t)snprintf(text + n, TEXT_BYTES - n, "%s\"%s\": %s", first ? "" : ",\n", base[i][0], v);
		first = false;
	}
	if (key && !found && value)
		n += (size_t)snprintf(text + n, TEXT_BYTES - n, ",\n\"%s\": %s", key, value);
	snprintf(text + n, TEXT_BYTES - n, nested ? "}}\n" : "}\n");
	return text;
}

static int parse(const char *text, struct plumb_config *c, struct plumb_error *err)
{
	return plumb_config_parse(text, strlen(text), "dir/config.json", c, err);
}

/* Parse the base with a change, which must work. */
static struct plumb_config accepted(const char *key, const char *value)
{
	char text[TEXT_BYTES];
	struct plumb_config c;
	struct plumb_error err = {""};
	int status = parse(config_text(text, key, value, false), &c, &err);
	ck_assert_msg(status == PLUMB_OK, "%s = %s: %s", key, value ? value : "(absent)", err.text);
	return c;
}

/* The config as text, read again, is the same config. */
static void check_text(const struct plumb_config *c)
{
	struct plumb_config again;
	struct plumb_error err = {""};
	char *text = plumb_config_text(c);
	memset(&again, 0x5a, sizeof again);
	ck_assert_msg(parse(text, &again, &err) == PLUMB_OK, "%s: %s", text, err.text);
	ck_assert_msg(memcmp(&again, c, sizeof again) == 0, "%s", text);
	free(text);
}

/* A message is one line that begins with the file. */
static void check_message(const struct plumb_error *err, const char *file, const char *contains, const char *what)
{
	ck_assert_msg(strncmp(err->text, file, strlen(file)) == 0, "%s: message \"%s\" does not begin with %s", what,
		err->text, file);
	ck_assert_msg(
		strstr(err->text, contains) != NULL, "%s: message \"%s\" does not name %s", what, err->text, contains);
	ck_assert_msg(strchr(err->text, '\n') == NULL, "%s: more than a line", what);
}

static void refused(const char *key, const char *value, const char *contains)
{
	char text[TEXT_BYTES], what[512];
	struct plumb_config c;
	for (int nested = 0; nested < 2; nested++) {
		struct plumb_error err = {""};
		snprintf(what, sizeof what, "%s = %.200s", key, value ? value : "(absent)");
		int status = parse(config_text(text, key, value, nested), &c, &err);
		ck_assert_msg(status == PLUMB_BAD_INPUT, "%s: status %d, expected it refused", what, status);
		check_message(&err, "dir/config.json: ", contains, what);
		ck_assert_msg(
			strstr(err.text, "expected") != NULL, "%s: \"%s\" does not say what was expected", what, err.text);
	}
}

/* The released text tower (model-spec 1.3), nested, with the fields no text decoder reads. */
static const char release[] =
	"{\"architectures\": [\"Qwen4ExpForConditionalGeneration\"], \"model_type\": \"qwen4_exp\",\n"
	"\"image_token_id\": 248056, \"tie_word_embeddings\": false, \"vision_config\": {\"depth\": 27},\n"
	"\"text_config\": {\"model_type\": \"qwen4_exp_text\", \"dtype\": \"bfloat16\", \"vocab_size\": 248320,\n"
	"\"hidden_size\": 2560, \"num_hidden_layers\": 48, \"hidden_act\": \"silu\", \"rms_norm_eps\": 1e-06,\n"
	"\"max_position_embeddings\": 262144, \"num_attention_heads\": 24, \"num_key_value_heads\": 2, \"head_dim\": "
	"256,\n"
	"\"attention_bias\": false, \"attention_dropout\": 0.0, \"partial_rotary_factor\": 0.25,\n"
	"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 10000000, \"partial_rotary_factor\": 0.25,\n"
	"\"mrope_section\": [11, 11, 10], \"mrope_interleaved\": true}, \"full_attention_interval\": 4,\n"
	"\"linear_num_key_heads\": 16, \"linear_num_value_heads\": 48, \"linear_key_head_dim\": 128,\n"
	"\"linear_value_head_dim\": 128, \"linear_conv_kernel_dim\": 4, \"output_gate_type\": \"sigmoid\",\n"
	"\"mamba_ssm_dtype\": \"float32\", \"eos_token_id\": 248044, \"bos_token_id\": 248044, \"pad_token_id\": "
	"null,\n"
	"\"initializer_range\": 0.02, \"use_cache\": true, \"num_experts\": 512, \"num_experts_per_tok\": 10,\n"
	"\"moe_intermediate_size\": 640, \"shared_expert_intermediate_size\": 640, \"hc_count\": 4, \"hc_lowrank\": "
	"320,\n"
	"\"ple_layer_ids\": [2], \"ple_embed_dim\": 2560, \"ple_conv_kernel_size\": 4, \"ngram_size\": 3,\n"
	"\"heads_per_ngram\": 8, \"ngram_vocab_size_base\": 20000000, \"make_ngram_vocab_size_divisible_by\": 128,\n"
	"\"split_ngram_parts\": 128, \"indexer_n_heads\": 4, \"indexer_kv_heads\": 1, \"indexer_head_dim\": 128,\n"
	"\"indexer_budget\": 2048, \"indexer_compress_ratio\": 4, \"tie_word_embeddings\": false,\n"
	"\"mtp_num_hidden_layers\": 1, \"mtp\": {\"hybrid\": true, \"mtp_use_hidden_state_from_layer\": null}}}";

static struct plumb_config release_config(void)
{
	struct plumb_config c;
	struct plumb_error err = {""};
	ck_assert_msg(parse(release, &c, &err) == PLUMB_OK, "%s", err.text);
	return c;
}

START_TEST(release_values)
{
	struct plumb_config c = release_config();
	ck_assert(c.nested);
	ck_assert_int_eq(c.vocab, 248320);
	ck_assert_int_eq(c.hidden, 2560);
	ck_assert_int_eq(c.layers, 48);
	for (int i = 0; i < 48; i++)
		ck_assert_int_eq(c.kind[i], i % 4 == 3 ? PLUMB_LAYER_ATTENTION : PLUMB_LAYER_GDN);
	ck_assert(c.rms_norm_eps == 1e-6f);
	ck_assert_int_eq(c.streams, 4);
	ck_assert_int_eq(c.low_rank, 320);
	ck_assert_int_eq(c.q_heads, 24);
	ck_assert_int_eq(c.kv_heads, 2);
	ck_assert_int_eq(c.head_dim, 256);
	ck_assert_int_eq(c.rotary_dim, 64);
	ck_assert(c.rope_theta == 1e7);
	ck_assert_int_eq(c.max_positions, 262144);
	ck_assert_int_eq(c.gdn_key_heads, 16);
	ck_assert_int_eq(c.gdn_value_heads, 48);
	ck_assert_int_eq(c.gdn_key_dim, 128);
	ck_assert_int_eq(c.gdn_value_dim, 128);
	ck_assert_int_eq(c.gdn_conv_taps, 4);
	ck_assert_int_eq(c.gdn_gate, PLUMB_GATE_SIGMOID);
	ck_assert_int_eq(c.experts, 512);
	ck_assert_int_eq(c.experts_per_token, 10);
	ck_assert_int_eq(c.expert_inner, 640);
	ck_assert_int_eq(c.shared_inner, 640);
	ck_assert(c.norm_topk);
	ck_assert_int_eq(c.index_heads, 4);
	ck_assert_int_eq(c.index_dim, 128);
	ck_assert_int_eq(c.block_tokens, 4);
	ck_assert_int_eq(c.block_budget, 512);
	ck_assert_int_eq(c.ple_count, 1);
	ck_assert_int_eq(c.ple_layer[0], 1);
	ck_assert_int_eq(c.ple_dim, 2560);
	ck_assert_int_eq(c.ple_conv_taps, 4);
	ck_assert_int_eq(c.ngram, 3);
	ck_assert_int_eq(c.heads_per_ngram, 8);
	ck_assert_int_eq(c.ngram_vocab_base, 20000000);
	ck_assert_int_eq(c.ngram_row_multiple, 128);
	ck_assert_int_eq(c.ngram_parts, 128);
	ck_assert_uint_eq(c.seed, 1234);
	ck_assert_int_eq(c.eos, 248044);
	ck_assert_int_eq(plumb_gdn_channels(&c), 10240);
	ck_assert_int_eq(plumb_ngram_heads(&c), 16);
	ck_assert_int_eq(plumb_ple_history(&c), 9);
}
END_TEST

START_TEST(tiny_file)
{
	struct plumb_config c;
	struct plumb_error err = {""};
	int status = plumb_config_read(PLUMB_GOLDEN_DIR "/tiny/checkpoint/config.json", &c, NULL, &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	ck_assert(!c.nested);
	ck_assert_int_eq(c.hidden, 64);
	ck_assert_int_eq(c.kind[2], PLUMB_LAYER_GDN);
	ck_assert_int_eq(c.kind[3], PLUMB_LAYER_ATTENTION);
	ck_assert_int_eq(c.rotary_dim, 8);
	ck_assert_int_eq(c.ngram_vocab_base, 97);
	ck_assert_int_eq(c.ngram_parts, 4);
	ck_assert_int_eq(c.eos, 3);
}
END_TEST

/* A file of the release leaves two fields out. */
START_TEST(defaults_are_told)
{
	struct plumb_config c;
	struct plumb_config_defaults d;
	ck_assert_int_eq(plumb_config_read(PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint/config.json", &c, &d, NULL), PLUMB_OK);
	ck_assert_str_eq(d.text, "norm_topk_prob true, seed 1234");
}
END_TEST

/* A field left out, and the same field null, give the default. */
START_TEST(defaults)
{
	static const char *const optional[] = {"rms_norm_eps", "norm_topk_prob", "seed", "hidden_act", "output_gate_type",
		"attention_bias", "tie_word_embeddings", "full_attention_interval", "layer_types", "ple_embed_dim",
		"ple_conv_kernel_size", "ngram_size", "heads_per_ngram", "ngram_vocab_size_base",
		"make_ngram_vocab_size_divisible_by", "split_ngram_parts", "linear_conv_kernel_dim", "hc_count",
		"max_position_embeddings", "dtype", "bos_token_id", "rope_scaling", "rope_theta", "partial_rotary_factor"};
	struct plumb_config absent = accepted(NULL, NULL);
	ck_assert(absent.rms_norm_eps == 1e-6f);
	ck_assert(absent.norm_topk);
	ck_assert_uint_eq(absent.seed, 1234);
	ck_assert_int_eq(absent.gdn_gate, PLUMB_GATE_SILU);
	ck_assert_int_eq(absent.kind[2], PLUMB_LAYER_GDN);
	ck_assert_int_eq(absent.kind[3], PLUMB_LAYER_ATTENTION);
	ck_assert_int_eq(absent.ple_dim, absent.hidden);
	ck_assert_int_eq(absent.ple_conv_taps, 4);
	ck_assert_int_eq(absent.ngram, 3);
	ck_assert_int_eq(absent.heads_per_ngram, 8);
	ck_assert_int_eq(absent.ngram_vocab_base, 20000000);
	ck_assert_int_eq(absent.ngram_row_multiple, 128);
	ck_assert_int_eq(absent.ngram_parts, 512);
	ck_assert_int_eq(absent.gdn_conv_taps, 4);
	ck_assert_int_eq(absent.streams, 4);
	ck_assert_int_eq(absent.max_positions, 32768);
	for (size_t i = 0; i < sizeof optional / sizeof optional[0]; i++) {
		struct plumb_config null = accepted(optional[i], "null");
		ck_assert_msg(memcmp(&null, &absent, sizeof null) == 0, "%s: null differs from absent", optional[i]);
	}
}
END_TEST

START_TEST(spellings)
{
	static const char *const attention[] = {"full_attention", "qwen_sparse_attention", "indexed_attention",
		"deepseek_sparse_attention", "hybrid_indexed"};
	struct plumb_config c;
	for (int i = 0; i < 5; i++) {
		char types[256];
		snprintf(types, sizeof types, "[\"%s\", \"linear_attention\", \"linear_attention\", \"%s\"]", attention[i],
			attention[i]);
		c = accepted("layer_types", types);
		ck_assert_int_eq(c.kind[0], PLUMB_LAYER_ATTENTION);
		ck_assert_int_eq(c.kind[1], PLUMB_LAYER_GDN);
		ck_assert_int_eq(c.kind[3], PLUMB_LAYER_ATTENTION);
		ck_assert_int_eq(c.ple_count, 1); /* by ple_layer_ids alone */
	}
	c = accepted("full_attention_interval", "2");
	ck_assert_int_eq(c.kind[0], PLUMB_LAYER_GDN);
	ck_assert_int_eq(c.kind[1], PLUMB_LAYER_ATTENTION);
	c = accepted("full_attention_interval", "1000");
	ck_assert_int_eq(c.kind[3], PLUMB_LAYER_GDN);

	ck_assert_int_eq(accepted("output_gate_type", "\"sigmoid\"").gdn_gate, PLUMB_GATE_SIGMOID);
	ck_assert_int_eq(accepted("output_gate_type", "\"silu\"").gdn_gate, PLUMB_GATE_SILU);
	ck_assert(!accepted("norm_topk_prob", "false").norm_topk);

	ck_assert_int_eq(accepted("eos_token_id", "[7, 3]").eos, 7);
	ck_assert_int_eq(accepted("eos_token_id", "0").eos, 0);
	ck_assert_int_eq(accepted("eos_token_id", "319").eos, 319);

	c = accepted("ple_layer_ids", "[4, 1, 4, 2, 1]");
	ck_assert_int_eq(c.ple_count, 3);
	ck_assert_int_eq(c.ple_layer[0], 0);
	ck_assert_int_eq(c.ple_layer[1], 1);
	ck_assert_int_eq(c.ple_layer[2], 3);
	ck_assert_int_eq(plumb_ple_of_layer(&c, 3), 2);
	ck_assert_int_eq(plumb_ple_of_layer(&c, 2), -1);
	ck_assert_int_eq(accepted("ple_layer_ids", "null").ple_count, 0);
	ck_assert_int_eq(accepted("ple_layer_ids", "[]").ple_count, 0);
	ck_assert_int_eq(accepted("ple_embed_dim", "160").ple_dim, 160);

	/* a whole number is one with or without a fraction of zero */
	ck_assert_int_eq(accepted("hidden_size", "64.0").hidden, 64);
	ck_assert_int_eq(accepted("hidden_size", "6.4e1").hidden, 64);

	ck_assert_uint_eq(accepted("seed", "0").seed, 0);
	ck_assert_uint_eq(accepted("seed", "9007199254740992").seed, UINT64_C(9007199254740992));
	ck_assert_uint_eq(accepted("seed", "-1").seed, UINT64_MAX); /* Python: modulo 2^64 */

	c = accepted("unknown_key", "{\"deep\": [[[1, 2]]]}");
	ck_assert_int_eq(c.layers, 4);
}
END_TEST

START_TEST(without_ple)
{
	char text[TEXT_BYTES];
	struct plumb_config c;
	struct plumb_error err = {""};
	/* eos and a ple_embed_dim that no heads divide are then nobody's business */
	const char *p = config_text(text, "ple_layer_ids", "null", false);
	char *eos = strstr(text, "\"eos_token_id\": 3");
	memcpy(eos, "\"ple_embed_dim\":9", 17);
	ck_assert_msg(parse(p, &c, &err) == PLUMB_OK, "%s", err.text);
	ck_assert_int_eq(c.eos, -1);
}
END_TEST

START_TEST(rope)
{
	struct plumb_config c = accepted("rope_parameters", "{\"rope_theta\": 5000.5, \"partial_rotary_factor\": 0.125}");
	ck_assert(c.rope_theta == 5000.5);
	ck_assert_int_eq(c.rotary_dim, 4);
	ck_assert_int_eq(accepted("rope_parameters",
				 "{\"rope_type\": \"default\", \"rope_theta\": 1e7, \"partial_rotary_factor\": 0.5}")
				 .rotary_dim,
		16);
	/* int() cuts: 32 * 0.3 = 9.6, an odd number; 32 * 0.26 = 8.32 */
	ck_assert_int_eq(
		accepted("rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.26}").rotary_dim, 8);
	refused("rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.3}", "partial_rotary_factor");

	/* older layouts: rope_scaling, and fields at the level of the others; the nested copy counts */
	char text[TEXT_BYTES];
	struct plumb_error err = {""};
	static const struct {
		const char *text;
		double theta;
		int rotary;
	} older[] = {
		{"null, \"rope_theta\": 3e6, \"partial_rotary_factor\": 0.25", 3e6, 8},
		{"{}, \"rope_theta\": 3e6, \"partial_rotary_factor\": 0.25", 3e6, 8},
		{"null, \"rope_scaling\": {\"type\": \"default\", \"rope_theta\": 4e6, \"partial_rotary_factor\": "
		 "0.25}",
			4e6, 8},
		{"{\"rope_theta\": 2e6, \"partial_rotary_factor\": 0.5}, \"rope_theta\": 9, \"partial_rotary_factor\": "
		 "0.25",
			2e6, 16},
	};
	for (size_t i = 0; i < sizeof older / sizeof older[0]; i++) {
		int status = parse(config_text(text, "rope_parameters", older[i].text, i % 2), &c, &err);
		ck_assert_msg(status == PLUMB_OK, "%s: %s", older[i].text, err.text);
		ck_assert(c.rope_theta == older[i].theta);
		ck_assert_int_eq(c.rotary_dim, older[i].rotary);
	}
}
END_TEST

/* Model-spec 1.4: the constants stored in the released checkpoints. */
START_TEST(release_constants)
{
	static const int64_t multipliers[3] = {23703573157769, 20109073645365, 8052911324071};
	static const int64_t primes[16] = {20000003, 20000023, 20000033, 20000047, 20000059, 20000063, 20000069, 20000077,
		20000081, 20000093, 20000107, 20000147, 20000153, 20000159, 20000161, 20000171};
	static const int64_t offsets[16] = {0, 20000003, 40000026, 60000059, 80000106, 100000165, 120000228, 140000297,
		160000374, 180000455, 200000548, 220000655, 240000802, 260000955, 280001114, 300001275};
	struct plumb_config c = release_config();
	struct plumb_ngram n;
	struct plumb_error err = {""};
	ck_assert_msg(plumb_ngram_constants(&c, 0, &n, &err) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(n.multiplier[i], multipliers[i]);
	for (int i = 0; i < 16; i++) {
		ck_assert_int_eq(n.prime[i], primes[i]);
		ck_assert_int_eq(n.offset[i], offsets[i]);
	}
	ck_assert_int_eq(n.rows, 320001536);

	/* Rows of the table of model-spec 2.4, heads 0 1 7 8 15. E is the end-of-text token. */
	enum { E = 248044 };
	static const int64_t ids[9] = {11, 42, 7, E, 300, 5, E, E, 9};
	static const int64_t context[9][2] = {
		{E, E}, {11, E}, {42, 11}, {7, 42}, {E, E}, {300, E}, {5, 300}, {E, E}, {E, E}};
	static const int heads[5] = {0, 1, 7, 8, 15};
	static const int64_t rows[9][5] = {{13555483, 24877159, 157274238, 173487882, 312653920},
		{3435145, 28245246, 157241980, 176668936, 301570007}, {5399879, 35172535, 147569051, 176378916, 315071866},
		{10204458, 27984170, 158727320, 173462142, 316209228}, {4401500, 35569074, 157487094, 164417016, 310576508},
		{693105, 23747596, 148054133, 164895014, 301388764}, {18392917, 34857659, 142048315, 160502964, 317686492},
		{9663979, 26558231, 151022725, 170054832, 300986548},
		{18043673, 37626835, 144330141, 176817901, 307951937}};
	for (int t = 0; t < 9; t++) {
		int64_t u2 = (ids[t] * n.multiplier[0]) ^ (context[t][0] * n.multiplier[1]);
		int64_t u3 = u2 ^ (context[t][1] * n.multiplier[2]);
		for (int k = 0; k < 5; k++) {
			int h = heads[k];
			ck_assert_int_eq((h < 8 ? u2 : u3) % n.prime[h] + n.offset[h], rows[t][k]);
		}
	}
}
END_TEST

/* Primes of several modules against a sieve; a base that is prime counts itself. */
START_TEST(later_modules)
{
	enum { LIMIT = 4000 };
	static bool composite[LIMIT];
	for (int i = 2; i < LIMIT; i++)
		for (int k = 2 * i; k < LIMIT; k += i)
			composite[k] = true;
	static const int64_t bases[] = {1, 2, 31, 97, 98, 1000};
	for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
		struct plumb_config c = accepted("ple_layer_ids", "[1, 2, 3]");
		c.ngram_vocab_base = bases[b];
		c.ngram_row_multiple = 8;
		int64_t p = bases[b] - 1;
		for (int q = 0; q < 3; q++) {
			struct plumb_ngram n;
			int64_t total = 0;
			ck_assert_int_eq(plumb_ngram_constants(&c, q, &n, NULL), PLUMB_OK);
			for (int h = 0; h < 16; h++) {
				do
					p++;
				while (p < 2 || composite[p]);
				ck_assert_int_eq(n.prime[h], p);
				ck_assert_int_eq(n.offset[h], total);
				total += p;
			}
			ck_assert(n.rows >= total && n.rows < total + 8 && n.rows % 8 == 0);
			for (int i = 0; i < 3; i++) {
				ck_assert(n.multiplier[i] % 2 == 1 && n.multiplier[i] > 0);
				ck_assert(n.multiplier[i] <= INT64_MAX / c.vocab); /* so no product overflows */
			}
		}
	}
	/* each module, seed and vocabulary has multipliers of its own */
	struct plumb_config c = accepted("ple_layer_ids", "[1, 2]");
	struct plumb_ngram first, other;
	plumb_ngram_constants(&c, 0, &first, NULL);
	plumb_ngram_constants(&c, 1, &other, NULL);
	ck_assert_int_ne(first.multiplier[0], other.multiplier[0]);
	c.seed = 1234 + 10007; /* module 1 of seed 1234 is module 0 of this one */
	struct plumb_ngram moved;
	plumb_ngram_constants(&c, 0, &moved, NULL);
	ck_assert_int_eq(moved.multiplier[2], other.multiplier[2]);
	c.seed = 1234;
	c.vocab = 2 * c.vocab;
	plumb_ngram_constants(&c, 0, &other, NULL);
	ck_assert_int_ne(first.multiplier[0], other.multiplier[0]);
}
END_TEST

/* Large primes, strong pseudoprimes to few bases, and the end of the range. */
START_TEST(large_primes)
{
	static const struct {
		int64_t base, first;
	} cases[] = {
		{2147483647, 2147483647},                   /* 2^31 - 1 */
		{3215031751, 3215031767},                   /* strong pseudoprime to bases 2 3 5 7 */
		{4294967291, 4294967291},                   /* the last prime below 2^32 */
		{4294967292, 4294967311},                   /* the first above */
		{4759123141, 4759123151},                   /* to 2 7 61 */
		{3825123056546413051, 3825123056546413057}, /* to the first 9 primes */
	};
	struct plumb_config c = accepted(NULL, NULL);
	struct plumb_ngram n;
	struct plumb_error err = {""};
	c.heads_per_ngram = 1;
	c.ngram = 2; /* one head */
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		c.ngram_vocab_base = cases[i].base;
		ck_assert_msg(plumb_ngram_constants(&c, 0, &n, &err) == PLUMB_OK, "%s", err.text);
		ck_assert_int_eq(n.prime[0], cases[i].first);
	}
	c.ngram_vocab_base = (INT64_C(1) << 62) - 2; /* 2^62 - 57 is the last prime below 2^62 */
	ck_assert_int_eq(plumb_ngram_constants(&c, 0, &n, &err), PLUMB_BAD_INPUT);
	ck_assert(strstr(err.text, "ngram_vocab_size_base") != NULL);
	c.ngram = 4; /* three heads: the rows pass the limit before the primes do */
	c.ngram_vocab_base = INT64_C(1) << 61;
	ck_assert_int_eq(plumb_ngram_constants(&c, 0, &n, &err), PLUMB_BAD_INPUT);
	ck_assert(strstr(err.text, "ngram_vocab_size_base") != NULL);
}
END_TEST

/* Fields without a default. */
START_TEST(required_fields)
{
	for (int i = 0; i < BASE; i++) {
		if (strcmp(base[i][0], "model_type") == 0 || strcmp(base[i][0], "ple_layer_ids") == 0)
			continue;
		const char *named = strcmp(base[i][0], "rope_parameters") == 0 ? "rope_theta" : base[i][0];
		refused(base[i][0], NULL, named);
		refused(base[i][0], "null", named);
	}
}
END_TEST

START_TEST(refused_values)
{
	static const char *const cases[][3] = {
		/* sizes: outside the range, of another type, beyond exact numbers, no numbers at all */
		{"hidden_size", "0", "hidden_size is 0"},
		{"hidden_size", "-64", "hidden_size is -64"},
		{"hidden_size", "64.5", "hidden_size is 64.5"},
		{"hidden_size", "2147483648", "hidden_size is 2147483648"},
		{"hidden_size", "9223372036854775808", "hidden_size"},
		{"hidden_size", "18446744073709551616", "hidden_size"},
		{"hidden_size", "1e400", "hidden_size is inf"},
		{"hidden_size", "-1e400", "hidden_size is -inf"},
		{"hidden_size", "1e-400", "hidden_size is 0"},
		{"hidden_size", "\"64\"", "hidden_size is \"64\""},
		{"hidden_size", "true", "hidden_size is true"},
		{"hidden_size", "[64]", "hidden_size is an array"},
		{"hidden_size", "{}", "hidden_size is an object"},
		{"vocab_size", "0", "vocab_size"},
		{"num_hidden_layers", "0", "num_hidden_layers"},
		{"num_hidden_layers", "1025", "num_hidden_layers is 1025"},
		{"num_attention_heads", "2147483647", "num_attention_heads"},
		{"seed", "9007199254740993.5e3", "seed"},
		{"seed", "18446744073709551615", "in -9007199254740992..9007199254740992"},
		{"seed", "1.5", "seed is 1.5"},
		{"rms_norm_eps", "0", "rms_norm_eps is 0"},
		{"rms_norm_eps", "-1e-6", "rms_norm_eps"},
		{"rms_norm_eps", "1e400", "rms_norm_eps"},
		{"rms_norm_eps", "\"1e-6\"", "rms_norm_eps"},
		{"norm_topk_prob", "1", "norm_topk_prob is 1"},
		{"norm_topk_prob", "\"true\"", "norm_topk_prob"},
		{"norm_topk_porb", "true", "norm_topk_porb is no field here, expected norm_topk_prob"},
		/* rules between fields */
		{"num_key_value_heads", "5", "num_attention_heads is 12"},
		{"linear_num_key_heads", "4", "linear_num_value_heads is 6"},
		{"indexer_budget", "18", "indexer_budget is 18"},
		{"indexer_compress_ratio", "32", "indexer_budget is 16"},
		{"indexer_kv_heads", "2", "indexer_kv_heads is 2"},
		{"num_experts_per_tok", "17", "num_experts_per_tok is 17"},
		{"hc_count", "1", "hc_count is 1"},
		{"hc_count", "65", "hc_count is 65"},
		{"indexer_head_dim", "6", "partial_rotary_factor"},
		{"head_dim", "3", "partial_rotary_factor"},
		{"ple_embed_dim", "72", "ple_embed_dim is 72"},
		{"ngram_size", "1", "ngram_size is 1"},
		{"ngram_size", "17", "ngram_size is 17"},
		{"heads_per_ngram", "129", "heads_per_ngram is 129"},
		{"heads_per_ngram", "257", "heads_per_ngram is 257"},
		{"eos_token_id", "320", "eos_token_id is 320"},
		{"eos_token_id", "-1", "eos_token_id is -1"},
		{"eos_token_id", "[]", "eos_token_id is missing"},
		{"eos_token_id", "[null]", "eos_token_id is null"},
		{"eos_token_id", "\"3\"", "eos_token_id"},
		{"ple_layer_ids", "[0]", "ple_layer_ids[0] is 0"},
		{"ple_layer_ids", "[2, 5]", "ple_layer_ids[1] is 5"},
		{"ple_layer_ids", "[1.5]", "ple_layer_ids[0] is 1.5"},
		{"ple_layer_ids", "2", "ple_layer_ids is 2"},
		/* names */
		{"hidden_act", "\"gelu\"", "hidden_act is \"gelu\""},
		{"hidden_act", "7", "hidden_act is 7"},
		{"attention_bias", "true", "attention_bias is true"},
		{"tie_word_embeddings", "true", "tie_word_embeddings is true"},
		{"output_gate_type", "\"relu\"", "output_gate_type is \"relu\""},
		{"output_gate_type", "\"\"", "output_gate_type"},
		{"layer_types", "[]", "layer_types has 0 entries"},
		{"layer_types", "\"linear_attention\"", "layer_types is"},
		{"layer_types", "[\"linear_attention\"]", "layer_types has 1 entries"},
		{"layer_types", "[\"linear_attention\",\"linear_attention\",\"sliding_attention\",\"full_attention\"]",
			"layer_types[2] is \"sliding_attention\""},
		{"layer_types", "[\"linear_attention\",null,\"linear_attention\",\"full_attention\"]",
			"layer_types[1] is null"},
		{"layer_types",
			"[\"linear_attention\",\"linear_attention\",\"linear_attention\",\"full_attention\",\"full_"
			"attention\"]",
			"layer_types has 5 entries"},
		/* rope */
		{"rope_parameters", "{}", "rope_theta is missing"},
		{"rope_parameters", "7", "rope_parameters is 7"},
		{"rope_parameters", "{\"rope_theta\": 1e400}", "rope_theta"},
		{"rope_parameters", "{\"rope_theta\": 0}", "rope_theta is 0"},
		{"rope_parameters", "{\"rope_theta\": \"1e7\"}", "rope_parameters.rope_theta"},
		{"rope_parameters", "{\"rope_theta\": 1e7, \"rope_type\": \"yarn\"}",
			"rope_parameters.rope_type is \"yarn\""},
		{"rope_parameters", "{\"rope_theta\": 1e7, \"type\": \"linear\"}", "rope_type is \"linear\""},
		{"rope_parameters", "{\"rope_theta\": 1e7}", "partial_rotary_factor is 1"}, /* 32 > indexer_head_dim */
		{"rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 0}", "partial_rotary_factor is 0"},
		{"rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 1.5}",
			"partial_rotary_factor is 1.5"},
		{"rope_parameters", "{\"rope_theta\": 1e7, \"partial_rotary_factor\": 0.01}", "partial_rotary_factor"},
		/* products */
		{"linear_value_head_dim", "2147483647", "linear_value_head_dim"},
		{"linear_key_head_dim", "1073741823", "linear_key_head_dim"},
		{"head_dim", "2147483647", "rotary"},
		{"moe_intermediate_size", "2147483647", "moe_intermediate_size"},
		{"hidden_size", "2147483632", "hc_count * hidden_size is 4 * 2147483632"},
		{"ple_conv_kernel_size", "2147483647", "ple_conv_kernel_size"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
		refused(cases[i][0], cases[i][1], cases[i][2]);
}
END_TEST

/* Sizes that are each allowed, with a product that is not. */
START_TEST(refused_products)
{
	static const char *const cases[][3] = {
		{"vocab_size", "2147483647", "embed_tokens"},
		{"hc_lowrank", "2147483647", "hc_lowrank * (hc_count * hidden_size)"},
		{"num_experts", "2147483647", "the router"},
		{"num_experts", "1000000000", "gate_up_proj"},
		{"linear_conv_kernel_dim", "2147483647", NULL}, /* 2^31 * 160 channels is fine */
		{"linear_key_head_dim", "536870911", "2147483644 key and 96 value channels"},
		{"shared_expert_intermediate_size", "2147483647", "the shared expert"},
		{"ple_conv_kernel_size", "700000000", "the PLE conv history"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		char text[TEXT_BYTES], wide[TEXT_BYTES + 256];
		struct plumb_config c;
		struct plumb_error err = {""};
		config_text(text, cases[i][0], cases[i][1], false);
		char *at = strstr(text, "\"hidden_size\": 64");
		snprintf(wide, sizeof wide, "%.*s\"hidden_size\": 1073741808, \"hc_count\": 2, \"ple_embed_dim\": 64%s",
			(int)(at - text), text, at + strlen("\"hidden_size\": 64"));
		int status = parse(wide, &c, &err);
		ck_assert_msg(status == (cases[i][2] ? PLUMB_BAD_INPUT : PLUMB_OK), "%s: status %d %s", cases[i][0], status,
			err.text);
		if (status)
			check_message(&err, "dir/config.json: ", cases[i][2], cases[i][0]);
	}
}
END_TEST

START_TEST(refused_top_level)
{
	static const char *const cases[][2] = {
		{"[]", "an array, expected an object"},
		{"7", "7, expected an object"},
		{"null", "null, expected an object"},
		{"{}", "model_type is missing"},
		{"{\"model_type\": null}", "model_type is missing"},
		{"{\"model_type\": 7}", "model_type is 7"},
		{"{\"model_type\": \"qwen3_next\"}", "model_type is \"qwen3_next\""},
		{"{\"model_type\": \"qwen4_exp\"}", "text_config is missing"},
		{"{\"model_type\": \"qwen4_exp\", \"text_config\": []}", "text_config is an array"},
		{"{\"model_type\": \"qwen4_exp\", \"text_config\": {}}", "text_config.vocab_size is missing"},
		{"{\"model_type\": \"qwen4_exp\", \"text_config\": {\"model_type\": \"llama\"}}",
			"text_config.model_type is \"llama\""},
		{"{\"model_type\": \"qwen4_exp\", \"tie_word_embeddings\": true, \"text_config\": {}}",
			"tie_word_embeddings is true"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct plumb_config c;
		struct plumb_error err = {""};
		ck_assert_msg(parse(cases[i][0], &c, &err) == PLUMB_BAD_INPUT, "%s: accepted", cases[i][0]);
		check_message(&err, "dir/config.json: ", cases[i][1], cases[i][0]);
	}
}
END_TEST

START_TEST(refused_files)
{
	char dir[SCRATCH_PATH], path[SCRATCH_PATH];
	struct plumb_config c;
	struct plumb_error err = {""};
	scratch_make(dir);
	ck_assert_int_eq(plumb_config_read(scratch_path(path, dir, "none.json"), &c, NULL, &err), PLUMB_BAD_INPUT);
	check_message(&err, path, "cannot open", "no file");
	ck_assert_int_eq(plumb_config_read(dir, &c, NULL, &err), PLUMB_BAD_INPUT);
	check_message(&err, dir, "a directory, expected a regular file", "directory");
	ck_assert_int_eq(plumb_config_read("/dev/zero", &c, NULL, &err), PLUMB_BAD_INPUT);
	check_message(&err, "/dev/zero", "a special file", "device");
	scratch_write(dir, "empty.json", "", 0);
	ck_assert_int_eq(plumb_config_read(scratch_path(path, dir, "empty.json"), &c, NULL, &err), PLUMB_BAD_INPUT);
	check_message(&err, path, "expected a value", "empty");
	scratch_remove(dir);
}
END_TEST

/* Every prefix of a valid file, in exactly sized memory. */
START_TEST(truncated)
{
	char text[TEXT_BYTES];
	size_t size = strlen(config_text(text, NULL, NULL, true)) - 1; /* without the newline: the last byte counts */
	for (size_t n = 0; n < size; n++) {
		struct plumb_config c;
		struct plumb_error err = {""};
		char *copy = malloc(n + !n);
		memcpy(copy, text, n);
		ck_assert_msg(plumb_config_parse(copy, n, "dir/config.json", &c, &err) == PLUMB_BAD_INPUT,
			"%zu bytes accepted", n);
		check_message(&err, "dir/config.json: byte ", "expected", "truncated");
		free(copy);
	}
}
END_TEST

/* Flip, insert, remove and repeat bytes: whatever comes out, no crash, and a status with a message. */
START_TEST(mutated)
{
	char text[TEXT_BYTES], work[TEXT_BYTES + 64];
	uint64_t state = 20260906;
	int good = 0, bad = 0;
	size_t size = strlen(config_text(text, NULL, NULL, false));
	for (int round = 0; round < 4000; round++) {
		size_t n = size;
		memcpy(work, text, size);
		for (int edits = 1 + round % 3; edits > 0; edits--) {
			state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
			size_t at = (state >> 33) % n;
			unsigned char byte = (unsigned char)(state >> 24);
			switch (state >> 61) {
			case 0:
				memmove(work + at, work + at + 1, n - at - 1);
				n--;
				break;
			case 1:
				memmove(work + at + 1, work + at, n - at);
				work[at] = "[]{},:\"0-9eE.\\tn"[byte % 16];
				n++;
				break;
			case 2:
				work[at] = "[]{},:\"0-9eE.\\tn"[byte % 16];
				break;
			default:
				work[at] = (char)(work[at] ^ (1 << byte % 8));
				break;
			}
		}
		struct plumb_config c;
		struct plumb_error err = {""};
		char *copy = malloc(n);
		memcpy(copy, work, n);
		int status = plumb_config_parse(copy, n, "dir/config.json", &c, &err);
		free(copy);
		ck_assert(status == PLUMB_OK || status == PLUMB_BAD_INPUT);
		if (status)
			check_message(&err, "dir/config.json: ", "expected", "mutated");
		else
			check_text(&c);
		status ? bad++ : good++;
	}
	printf("mutated configs: %d refused, %d still valid\n", bad, good);
	ck_assert_int_gt(bad, 1000);
}
END_TEST

/* Every rotary size that a head can have survives being written as a factor. */
START_TEST(text_again)
{
	struct plumb_config c = release_config();
	check_text(&c);
	for (c.head_dim = 2; c.head_dim <= 512; c.head_dim += 2)
		for (c.rotary_dim = 2; c.rotary_dim <= c.head_dim && c.rotary_dim <= c.index_dim; c.rotary_dim += 2)
			check_text(&c);
	c = accepted("ple_layer_ids", "[]");
	check_text(&c);
	c = accepted("bos_token_id", "1"); /* nearly eos_token_id, but a field of its own */
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("config");
	TCase *values = suite_part(suite, "values", 120);
	tcase_add_test(values, release_values);
	tcase_add_test(values, tiny_file);
	tcase_add_test(values, defaults_are_told);
	tcase_add_test(values, defaults);
	tcase_add_test(values, spellings);
	tcase_add_test(values, without_ple);
	tcase_add_test(values, rope);
	tcase_add_test(values, text_again);
	TCase *constants = suite_part(suite, "hash constants", 60);
	tcase_add_test(constants, release_constants);
	tcase_add_test(constants, later_modules);
	tcase_add_test(constants, large_primes);
	TCase *refusals = suite_part(suite, "refusals", 60);
	tcase_add_test(refusals, required_fields);
	tcase_add_test(refusals, refused_values);
	tcase_add_test(refusals, refused_products);
	tcase_add_test(refusals, refused_top_level);
	tcase_add_test(refusals, refused_files);
	tcase_add_test(refusals, truncated);
	tcase_add_test(refusals, mutated);
	return suite_run(suite);
}
