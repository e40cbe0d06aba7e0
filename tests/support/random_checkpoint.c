/* SPDX-License-Identifier: MIT */
#include "tests/support/random_checkpoint.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/ple.h"
#include "core/quantise.h"
#include "tests/support/scratch.h"
#include "tests/support/write_safetensors.h"

enum { FILES_MAX = 64 };

struct maker {
	const char *dir;
	const struct plumb_config *cfg;
	const struct random_checkpoint *options;
	const char *prefix;
	struct safetensors_writer *file[FILES_MAX];
	int files, next;
	char *index; /* the entries of weight_map */
	size_t index_size;
	FILE *index_stream;
};

enum scale {
	SCALE_MATRIX,   /* 1.2 / sqrt(columns) */
	SCALE_ROUTER,   /* 2 / sqrt(columns): spreads the logits */
	SCALE_EMBED,    /* 1 */
	SCALE_CONV,     /* 0.5 */
	SCALE_NORM,     /* 0.2: of a norm that adds one */
	SCALE_GDN_NORM, /* 1 + 0.2 r: of the norm that does not */
	SCALE_A_LOG,    /* log(4 u + 0.05) */
	SCALE_DT,       /* 1.5 */
};

static uint64_t mix(uint64_t v)
{
	v += UINT64_C(0x9E3779B97F4A7C15);
	v = (v ^ v >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	v = (v ^ v >> 27) * UINT64_C(0x94D049BB133111EB);
	return v ^ v >> 31;
}

/* Where the numbers of a role begin: FNV-1a of its name without the prefix, and the seed. */
static uint64_t stream(uint64_t seed, const char *role)
{
	uint64_t h = UINT64_C(0xCBF29CE484222325);
	for (; *role; role++)
		h = (h ^ (unsigned char)*role) * UINT64_C(0x100000001B3);
	return mix(h ^ mix(seed));
}

/* Number i of a stream: about normal, mean 0, variance 1 (12 uniform numbers of 16 bits, less 6). */
static double normal(uint64_t start, int64_t i)
{
	double sum = -6;
	for (uint64_t k = 0; k < 3; k++) {
		uint64_t bits = mix(start + 3 * (uint64_t)i + k);
		for (int part = 0; part < 4; part++, bits >>= 16)
			sum += ((double)(bits & 0xFFFF) + 0.5) / 65536;
	}
	return sum;
}

static float value(uint64_t start, int64_t i, enum scale scale, int64_t cols)
{
	double r = normal(start, i), v = 0;
	switch (scale) {
	case SCALE_MATRIX:
		v = 1.2 * r / sqrt((double)cols);
		break;
	case SCALE_ROUTER:
		v = 2 * r / sqrt((double)cols);
		break;
	case SCALE_EMBED:
		v = r;
		break;
	case SCALE_CONV:
		v = 0.5 * r;
		break;
	case SCALE_NORM:
		v = 0.2 * r;
		break;
	case SCALE_GDN_NORM:
		v = 1 + 0.2 * r;
		break;
	case SCALE_A_LOG:
		v = log((double)(mix(start + 3 * (uint64_t)i) >> 11) * 0x1p-53 * 4 + 0.05);
		break;
	case SCALE_DT:
		v = 1.5 * r;
		break;
	}
	return plumb_round_bf16((float)v);
}

/* Numbers first .. first + count of a role, stored in the format of the checkpoint at out. */
static void fill(const struct maker *m, const char *role, int64_t first, int64_t count, enum scale scale, int64_t cols,
	unsigned char *out)
{
	uint64_t start = stream(m->options->seed, role);
	for (int64_t i = 0; i < count; i++) {
		float v = value(start, first + i, scale, cols);
		plumb_encode(m->options->format, &v, 1, out + plumb_format_row_bytes(m->options->format, i));
	}
}

static const char *dtype(enum plumb_format format)
{
	return format == PLUMB_F32 ? "F32" : format == PLUMB_F16 ? "F16" : "BF16";
}

/* Add a finished tensor to the next file. */
static void put(
	struct maker *m, const char *name, const char *type, int rank, const int64_t *dims, const void *data, size_t bytes)
{
	int i = m->next++ % m->files;
	safetensors_add(m->file[i], name, type, rank, dims, data, bytes);
	fprintf(m->index_stream, "%s\"%s\": \"", m->next > 1 ? ", " : "", name);
	if (m->files == 1)
		fprintf(m->index_stream, "model.safetensors\"");
	else
		fprintf(m->index_stream, "model-%05d-of-%05d.safetensors\"", i + 1, m->files);
}

static void *room(size_t bytes)
{
	void *p = malloc(bytes + 1);
	if (!p) {
		fprintf(stderr, "test support: no memory for %zu bytes\n", bytes);
		exit(1);
	}
	return p;
}

static bool is_quantised(enum plumb_format format)
{
	return (int)format >= PLUMB_PLAIN_FORMATS;
}

/* w, quantised from the numbers first .. of a role; data and scale are new. w->format, rows, cols and, for a part of a
 * whole, global are set. */
static void quantise(const struct maker *m, struct plumb_weight *w, const char *role, int64_t first, enum scale scale)
{
	uint64_t start = stream(m->options->seed, role);
	struct plumb_error err;
	float *x = room((size_t)(w->rows * w->cols) * sizeof *x);
	w->scale_format = m->options->scale_format;
	for (int64_t i = 0; i < w->rows * w->cols; i++)
		x[i] = value(start, first + i, scale, w->cols);
	size_t scale_bytes = plumb_weight_scale_bytes(w);
	if (plumb_quantise(x, w, room(plumb_weight_data_bytes(w)), scale_bytes ? room(scale_bytes) : NULL, &err)) {
		fprintf(stderr, "test support: %s\n", err.text);
		exit(1);
	}
	free(x);
}

/* The F32 tensor with the values of w. */
static void put_values(struct maker *m, const char *name, const struct plumb_weight *w)
{
	float *x = room((size_t)(w->rows * w->cols) * sizeof *x);
	for (int64_t n = 0; n < w->rows; n++)
		plumb_weight_row(w, n, 0, w->cols, x + n * w->cols);
	put(m, name, "F32", 2, (int64_t[]){w->rows, w->cols}, x, (size_t)(w->rows * w->cols) * sizeof *x);
	free(x);
}

/* An array of scales beside tensor name. */
static void put_scales(struct maker *m, const char *name, const char *ending, const char *type, int rank, int64_t d0,
	int64_t d1, const void *data, size_t bytes)
{
	char full[320];
	snprintf(full, sizeof full, "%s%s", name, ending);
	put(m, full, type, rank, (int64_t[]){d0, d1}, data, bytes);
}

static void put_input_scale(struct maker *m, const char *name)
{
	static const float ignored = 0.0123f;
	char full[320];
	snprintf(full, sizeof full, "%.*sinput_scale", (int)(strlen(name) - strlen("weight")), name);
	put(m, full, "F32", 0, NULL, &ignored, sizeof ignored);
}

/* A matrix in a format with scales, or as the values it stands for. */
static void add_quantised(struct maker *m, enum plumb_format format, enum scale scale, int64_t rows, int64_t cols,
	const char *name, const char *role)
{
	bool single = format == PLUMB_FP8_TABLE;
	struct plumb_weight w = {.format = format, .rows = rows, .cols = cols};
	quantise(m, &w, role, 0, scale);
	size_t scale_bytes = plumb_weight_scale_bytes(&w);
	const char *type = dtype(w.scale_format);
	int64_t down = (rows + PLUMB_FP8_BLOCK_SIZE - 1) / PLUMB_FP8_BLOCK_SIZE;
	int64_t across = (cols + PLUMB_FP8_BLOCK_SIZE - 1) / PLUMB_FP8_BLOCK_SIZE;

	if (m->options->dequantised && single) { /* a matrix with one scale is not rounded to bf16 */
		float *same = room((size_t)rows * sizeof *same);
		for (int64_t n = 0; n < rows; n++)
			same[n] = w.global;
		put_values(m, name,
			&(struct plumb_weight){
				.format = PLUMB_FP8_ROW, .rows = rows, .cols = cols, .data = w.data, .scale = same});
		free(same);
	} else if (m->options->dequantised) {
		put_values(m, name, &w);
	} else {
		put(m, name, format == PLUMB_NVFP4 ? "U8" : "F8_E4M3", 2,
			(int64_t[]){rows, format == PLUMB_NVFP4 ? (cols + 1) / 2 : cols}, w.data,
			plumb_weight_data_bytes(&w));
		if (format == PLUMB_FP8_ROW)
			put_scales(
				m, name, "_scale", type, m->options->column_scales ? 2 : 1, rows, 1, w.scale, scale_bytes);
		if (format == PLUMB_FP8_BLOCK)
			put_scales(m, name, "_scale_inv", type, 2, down, across, w.scale, scale_bytes);
		if (format == PLUMB_NVFP4) {
			put_scales(m, name, "_scale", "F8_E4M3", 2, rows,
				(cols + PLUMB_NVFP4_GROUP - 1) / PLUMB_NVFP4_GROUP, w.scale, scale_bytes);
			put_scales(m, name, "_scale_2", "F32", 0, 0, 0, &w.global, sizeof w.global);
		}
		if (single)
			put_scales(m, name, "_scale", "F32", 0, 0, 0, &w.global, sizeof w.global);
		if (single || format == PLUMB_NVFP4)
			put_input_scale(m, name);
	}
	free((void *)(uintptr_t)w.data);
	free((void *)(uintptr_t)w.scale);
}

/* Rank 1, 2 or 3 (a conv); d0..d2 as needed. */
__attribute__((format(printf, 7, 8))) static void add(
	struct maker *m, enum scale scale, int rank, int64_t d0, int64_t d1, int64_t d2, const char *format, ...)
{
	char name[256];
	int64_t dims[3] = {d0, d1, d2}, count = 1;
	size_t prefix = (size_t)snprintf(name, sizeof name, "%s", m->prefix);
	va_list ap;
	va_start(ap, format);
	vsnprintf(name + prefix, sizeof name - prefix, format, ap);
	va_end(ap);
	for (int i = 0; i < rank; i++)
		count *= dims[i];
	const char *role = name + prefix, *full = strcmp(role, "lm_head.weight") == 0 ? role : name;
	enum plumb_format quantised = strstr(role, ".experts.") ? m->options->experts : m->options->matrices;
	if (rank == 2 && is_quantised(quantised)) {
		add_quantised(m, quantised, scale, d0, d1, full, role);
		return;
	}
	size_t bytes = plumb_format_row_bytes(m->options->format, count);
	unsigned char *data = room(bytes);
	fill(m, role, 0, count, scale, dims[rank - 1], data);
	put(m, full, dtype(m->options->format), rank, dims, data, bytes);
	free(data);
}

#define VECTOR(m, scale, n, ...) add(m, scale, 1, n, 0, 0, __VA_ARGS__)
#define MATRIX(m, scale, rows, cols, ...) add(m, scale, 2, rows, cols, 0, __VA_ARGS__)
#define CONV(m, channels, taps, ...) add(m, SCALE_CONV, 3, channels, 1, taps, __VA_ARGS__)

static void add_hc(struct maker *m, const char *site, bool injects)
{
	const struct plumb_config *c = m->cfg;
	int64_t wide = c->streams * c->hidden;
	VECTOR(m, SCALE_NORM, wide, "%s.hc_norm.weight", site);
	MATRIX(m, SCALE_MATRIX, c->low_rank, wide, "%s.input_mix_weight_down.weight", site);
	MATRIX(m, SCALE_MATRIX, wide, c->low_rank, "%s.input_mix_weight_up.weight", site);
	if (injects)
		MATRIX(m, SCALE_MATRIX, c->streams, wide, "%s.block_inject_weight.weight", site);
}

static void add_gdn(struct maker *m, int l)
{
	const struct plumb_config *c = m->cfg;
	int64_t values = c->gdn_value_heads * c->gdn_value_dim;
	MATRIX(m, SCALE_MATRIX, plumb_gdn_channels(c), c->hidden, "layers.%d.linear_attn.in_proj_qkv.weight", l);
	MATRIX(m, SCALE_MATRIX, values, c->hidden, "layers.%d.linear_attn.in_proj_z.weight", l);
	MATRIX(m, SCALE_MATRIX, c->gdn_value_heads, c->hidden, "layers.%d.linear_attn.in_proj_b.weight", l);
	MATRIX(m, SCALE_MATRIX, c->gdn_value_heads, c->hidden, "layers.%d.linear_attn.in_proj_a.weight", l);
	CONV(m, plumb_gdn_channels(c), c->gdn_conv_taps, "layers.%d.linear_attn.conv1d.weight", l);
	VECTOR(m, SCALE_A_LOG, c->gdn_value_heads, "layers.%d.linear_attn.A_log", l);
	VECTOR(m, SCALE_DT, c->gdn_value_heads, "layers.%d.linear_attn.dt_bias", l);
	VECTOR(m, SCALE_GDN_NORM, c->gdn_value_dim, "layers.%d.linear_attn.norm.weight", l);
	MATRIX(m, SCALE_MATRIX, c->hidden, values, "layers.%d.linear_attn.out_proj.weight", l);
}

static void add_attention(struct maker *m, int l)
{
	const struct plumb_config *c = m->cfg;
	int64_t queries = c->q_heads * c->head_dim, keys = c->kv_heads * c->head_dim;
	MATRIX(m, SCALE_MATRIX, 2 * queries, c->hidden, "layers.%d.self_attn.q_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, keys, c->hidden, "layers.%d.self_attn.k_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, keys, c->hidden, "layers.%d.self_attn.v_proj.weight", l);
	VECTOR(m, SCALE_NORM, c->head_dim, "layers.%d.self_attn.q_norm.weight", l);
	VECTOR(m, SCALE_NORM, c->head_dim, "layers.%d.self_attn.k_norm.weight", l);
	MATRIX(m, SCALE_MATRIX, c->hidden, queries, "layers.%d.self_attn.o_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, (c->index_heads + 1) * c->index_dim, c->hidden,
		"layers.%d.self_attn.indexer.index_qk_proj.weight", l);
	VECTOR(m, SCALE_NORM, c->index_dim, "layers.%d.self_attn.indexer.q_layernorm.weight", l);
	VECTOR(m, SCALE_NORM, c->index_dim, "layers.%d.self_attn.indexer.k_layernorm.weight", l);
}

static void add_stacked_experts(struct maker *m, int l)
{
	const struct plumb_config *c = m->cfg;
	int64_t each = c->expert_inner * c->hidden;
	size_t bytes = plumb_format_row_bytes(m->options->format, each); /* of one matrix of an expert */
	unsigned char *gate_up = room((size_t)c->experts * 2 * bytes), *down = room((size_t)c->experts * bytes);
	char name[256];
	for (int64_t e = 0; e < c->experts; e++) {
		static const char *const roles[3] = {"gate", "up", "down"};
		unsigned char *places[3] = {
			gate_up + 2 * (size_t)e * bytes, gate_up + (2 * (size_t)e + 1) * bytes, down + (size_t)e * bytes};
		for (int k = 0; k < 3; k++) {
			snprintf(name, sizeof name, "layers.%d.mlp.experts.%lld.%s_proj.weight", l, (long long)e, roles[k]);
			fill(m, name, 0, each, SCALE_MATRIX, k < 2 ? c->hidden : c->expert_inner, places[k]);
		}
	}
	int64_t gate_up_dims[3] = {c->experts, 2 * c->expert_inner, c->hidden};
	int64_t down_dims[3] = {c->experts, c->hidden, c->expert_inner};
	snprintf(name, sizeof name, "%slayers.%d.mlp.experts.gate_up_proj", m->prefix, l);
	put(m, name, dtype(m->options->format), 3, gate_up_dims, gate_up, (size_t)c->experts * 2 * bytes);
	snprintf(name, sizeof name, "%slayers.%d.mlp.experts.down_proj", m->prefix, l);
	put(m, name, dtype(m->options->format), 3, down_dims, down, (size_t)c->experts * bytes);
	free(gate_up);
	free(down);
}

static void add_moe(struct maker *m, int l)
{
	const struct plumb_config *c = m->cfg;
	MATRIX(m, SCALE_ROUTER, c->experts, c->hidden, "layers.%d.mlp.gate.weight", l);
	MATRIX(m, SCALE_MATRIX, 1, c->hidden, "layers.%d.mlp.shared_expert_gate.weight", l);
	MATRIX(m, SCALE_MATRIX, c->shared_inner, c->hidden, "layers.%d.mlp.shared_expert.gate_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, c->shared_inner, c->hidden, "layers.%d.mlp.shared_expert.up_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, c->hidden, c->shared_inner, "layers.%d.mlp.shared_expert.down_proj.weight", l);
	if (m->options->stacked_experts) {
		add_stacked_experts(m, l);
		return;
	}
	for (int e = 0; e < c->experts; e++) {
		MATRIX(m, SCALE_MATRIX, c->expert_inner, c->hidden, "layers.%d.mlp.experts.%d.gate_proj.weight", l, e);
		MATRIX(m, SCALE_MATRIX, c->expert_inner, c->hidden, "layers.%d.mlp.experts.%d.up_proj.weight", l, e);
		MATRIX(m, SCALE_MATRIX, c->hidden, c->expert_inner, "layers.%d.mlp.experts.%d.down_proj.weight", l, e);
	}
}

/* The scale of the whole table, and its tensor: as the released checkpoints have it, or as F32 of rank 0. */
static float add_table_scale(struct maker *m, const char *role, int64_t rows, int64_t width)
{
	bool wide = m->options->scale_format == PLUMB_F32;
	struct plumb_weight whole = {.format = PLUMB_FP8_TABLE, .rows = rows, .cols = width};
	char name[256];
	quantise(m, &whole, role, 0, SCALE_EMBED);
	free((void *)(uintptr_t)whole.data);
	float scale = wide ? whole.global : plumb_round_bf16(whole.global);
	uint16_t code = plumb_f32_to_bf16(scale);
	snprintf(name, sizeof name, "%s%s.weight_scale", m->prefix, role);
	if (!m->options->dequantised)
		put(m, name, wide ? "F32" : "BF16", wide ? 0 : 1, (int64_t[]){1}, wide ? (void *)&scale : &code,
			wide ? 4 : 2);
	return scale;
}

static void add_table_part(
	struct maker *m, const char *name, const char *role, int64_t first, int64_t rows, int64_t width, float scale)
{
	struct plumb_weight part = {.format = PLUMB_FP8_TABLE, .rows = rows, .cols = width, .global = scale};
	quantise(m, &part, role, first * width, SCALE_EMBED);
	if (m->options->dequantised)
		put_values(m, name, &part);
	else
		put(m, name, "F8_E4M3", 2, (int64_t[]){rows, width}, part.data, (size_t)(rows * width));
	free((void *)(uintptr_t)part.data);
}

static void add_ple(struct maker *m, int l, int q)
{
	const struct plumb_config *c = m->cfg;
	int64_t wide = c->streams * c->hidden, width = c->ple_dim / plumb_ngram_heads(c);
	struct plumb_ngram ngram;
	struct plumb_error err;
	char name[256], role[128];

	if (plumb_ngram_constants(c, q, &ngram, &err)) {
		fprintf(stderr, "test support: %s\n", err.text);
		exit(1);
	}
	MATRIX(m, SCALE_MATRIX, wide, c->ple_dim, "layers.%d.ple.key_proj.weight", l);
	MATRIX(m, SCALE_MATRIX, c->hidden, c->ple_dim, "layers.%d.ple.value_proj.weight", l);
	VECTOR(m, SCALE_NORM, wide, "layers.%d.ple.norm_key.weight", l);
	VECTOR(m, SCALE_NORM, wide, "layers.%d.ple.norm_query.weight", l);
	VECTOR(m, SCALE_NORM, wide, "layers.%d.ple.norm_conv.weight", l);
	CONV(m, wide, c->ple_conv_taps, "layers.%d.ple.conv1d.weight", l);
	snprintf(role, sizeof role, "layers.%d.ple.ple_embedding.", l);
	if (!m->options->no_constants) {
		int64_t g = c->ngram, heads = plumb_ngram_heads(c);
		snprintf(name, sizeof name, "%s%slayer_multipliers", m->prefix, role);
		put(m, name, "I64", 1, &g, ngram.multiplier, (size_t)g * 8);
		snprintf(name, sizeof name, "%s%sngram_heads_vocab_sizes", m->prefix, role);
		put(m, name, "I64", 1, &heads, ngram.prime, (size_t)heads * 8);
		snprintf(name, sizeof name, "%s%sngram_heads_offsets", m->prefix, role);
		put(m, name, "I64", 1, &heads, ngram.offset, (size_t)heads * 8);
	}
	strcat(role, "ngram_embedding");
	float table_scale = m->options->fp8_table ? add_table_scale(m, role, ngram.rows, width) : 0;
	int64_t parts = m->options->ple_shards > 0 ? m->options->ple_shards : 1, each = (ngram.rows + parts - 1) / parts;
	for (int64_t part = 0, first = 0; first < ngram.rows; part++, first += each) {
		int64_t rows = ngram.rows - first < each ? ngram.rows - first : each;
		int64_t dims[2] = {rows, width};
		if (m->options->ple_shards > 0)
			snprintf(name, sizeof name, "%s%s.shard_%lld.weight", m->prefix, role, (long long)part);
		else
			snprintf(name, sizeof name, "%s%s.weight", m->prefix, role);
		if (m->options->fp8_table) {
			add_table_part(m, name, role, first, rows, width, table_scale);
			continue;
		}
		size_t bytes = (size_t)rows * plumb_format_row_bytes(m->options->format, width);
		unsigned char *data = room(bytes);
		fill(m, role, first * width, rows * width, SCALE_EMBED, width, data);
		put(m, name, dtype(m->options->format), 2, dims, data, bytes);
		free(data);
	}
}

static void add_model(struct maker *m)
{
	const struct plumb_config *c = m->cfg;
	char site[64];
	MATRIX(m, SCALE_MATRIX, c->vocab, c->hidden, "lm_head.weight");
	MATRIX(m, SCALE_EMBED, c->vocab, c->hidden, "embed_tokens.weight");
	add_hc(m, "hyper_connection_mixer", false);
	for (int l = 0; l < c->layers; l++) {
		snprintf(site, sizeof site, "layers.%d.attn_hyper_connection", l);
		add_hc(m, site, true);
		snprintf(site, sizeof site, "layers.%d.mlp_hyper_connection", l);
		add_hc(m, site, true);
		if (c->kind[l] == PLUMB_LAYER_GDN)
			add_gdn(m, l);
		else
			add_attention(m, l);
		add_moe(m, l);
		if (plumb_ple_of_layer(c, l) >= 0)
			add_ple(m, l, plumb_ple_of_layer(c, l));
	}
	if (m->options->extras) {
		static const unsigned char zeros[64];
		put(m, "mtp.layers.0.mlp.experts.0.up_proj.weight", "U8", 2, (int64_t[]){3, 5}, zeros, 15);
		put(m, "mtp.layers.0.mlp.experts.0.up_proj.weight_scale", "F8_E4M3", 2, (int64_t[]){3, 1}, zeros, 3);
		put(m, "mtp.layers.0.mlp.experts.0.up_proj.weight_scale_2", "F32", 0, NULL, zeros, 4);
		put(m, "model.visual.blocks.0.attn.proj.bias", "F64", 1, (int64_t[]){7}, zeros, 56);
		put(m, "model.visual.flags", "BOOL", 1, (int64_t[]){0}, zeros, 0);
	}
}

const char *random_checkpoint_config(const struct plumb_config *c, char *text, size_t size)
{
	FILE *f = fmemopen(text, size, "w");
	if (!f)
		exit(1);
	fprintf(f, "{\"model_type\": \"%s\",\n", c->nested ? "qwen4_exp" : "qwen4_exp_text");
	if (c->nested)
		fprintf(f, "\"vision_config\": {\"depth\": 1},\n\"text_config\": {\"model_type\": \"qwen4_exp_text\",\n");
	fprintf(f, "\"vocab_size\": %lld, \"hidden_size\": %lld, \"num_hidden_layers\": %d, \"rms_norm_eps\": %.9g,\n",
		(long long)c->vocab, (long long)c->hidden, c->layers, (double)c->rms_norm_eps);
	fprintf(f, "\"layer_types\": [");
	for (int i = 0; i < c->layers; i++)
		fprintf(f, "%s\"%s\"", i ? ", " : "",
			c->kind[i] == PLUMB_LAYER_GDN ? "linear_attention" : "full_attention");
	fprintf(f, "],\n\"hc_count\": %d, \"hc_lowrank\": %lld,\n", c->streams, (long long)c->low_rank);
	fprintf(f, "\"num_attention_heads\": %d, \"num_key_value_heads\": %d, \"head_dim\": %lld,\n", c->q_heads,
		c->kv_heads, (long long)c->head_dim);
	/* a quarter more than the ratio: int() must not fall below it */
	double factor = c->rotary_dim == c->head_dim ? 1 : ((double)c->rotary_dim + 0.25) / (double)c->head_dim;
	fprintf(f,
		"\"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": %.17g, \"partial_rotary_factor\": "
		"%.17g},\n",
		c->rope_theta, factor);
	fprintf(f, "\"max_position_embeddings\": %lld,\n", (long long)c->max_positions);
	fprintf(f, "\"linear_num_key_heads\": %d, \"linear_num_value_heads\": %d, \"linear_key_head_dim\": %lld,\n",
		c->gdn_key_heads, c->gdn_value_heads, (long long)c->gdn_key_dim);
	fprintf(f, "\"linear_value_head_dim\": %lld, \"linear_conv_kernel_dim\": %d, \"output_gate_type\": \"%s\",\n",
		(long long)c->gdn_value_dim, c->gdn_conv_taps, c->gdn_gate == PLUMB_GATE_SILU ? "silu" : "sigmoid");
	fprintf(f, "\"num_experts\": %lld, \"num_experts_per_tok\": %d, \"moe_intermediate_size\": %lld,\n",
		(long long)c->experts, c->experts_per_token, (long long)c->expert_inner);
	fprintf(f, "\"shared_expert_intermediate_size\": %lld, \"norm_topk_prob\": %s,\n", (long long)c->shared_inner,
		c->norm_topk ? "true" : "false");
	fprintf(f, "\"indexer_n_heads\": %d, \"indexer_kv_heads\": 1, \"indexer_head_dim\": %lld,\n", c->index_heads,
		(long long)c->index_dim);
	fprintf(f, "\"indexer_budget\": %lld, \"indexer_compress_ratio\": %d,\n",
		(long long)(c->block_budget * c->block_tokens), c->block_tokens);
	fprintf(f, "\"ple_layer_ids\": [");
	for (int q = 0; q < c->ple_count; q++)
		fprintf(f, "%s%d", q ? ", " : "", c->ple_layer[q] + 1);
	fprintf(f,
		"], \"ple_embed_dim\": %lld, \"ple_conv_kernel_size\": %d, \"ngram_size\": %d, \"heads_per_ngram\": "
		"%d,\n",
		(long long)c->ple_dim, c->ple_conv_taps, c->ngram, c->heads_per_ngram);
	fprintf(f,
		"\"ngram_vocab_size_base\": %lld, \"make_ngram_vocab_size_divisible_by\": %lld, \"split_ngram_parts\": "
		"%d,\n",
		(long long)c->ngram_vocab_base, (long long)c->ngram_row_multiple, c->ngram_parts);
	fprintf(f, "\"seed\": %lld, \"eos_token_id\": ", (long long)c->seed);
	if (c->eos >= 0)
		fprintf(f, "%lld", (long long)c->eos);
	else
		fprintf(f, "null");
	fprintf(f, "%s}\n", c->nested ? "}" : "");
	if (ftell(f) >= (long)size - 1) {
		fprintf(stderr, "test support: the config does not fit %zu bytes\n", size);
		exit(1);
	}
	fclose(f);
	return text;
}

void random_checkpoint_write(const char *dir, const struct plumb_config *cfg, const struct random_checkpoint *options)
{
	struct maker m = {
		.dir = dir,
		.cfg = cfg,
		.options = options,
		.prefix = cfg->nested != options->other_prefix ? "model.language_model." : "model.",
		.files = options->files > 1 ? options->files : 1,
	};
	static char text[65536];
	char path[SCRATCH_PATH], name[64];

	if (m.files > FILES_MAX || !(m.index_stream = open_memstream(&m.index, &m.index_size)))
		exit(1);
	for (int i = 0; i < m.files; i++) {
		snprintf(name, sizeof name, "model-%05d-of-%05d.safetensors", i + 1, m.files);
		m.file[i] = safetensors_begin(scratch_path(path, dir, m.files == 1 ? "model.safetensors" : name));
	}
	fprintf(m.index_stream, "{\"metadata\": {\"total_size\": 123456789.0}, \"weight_map\": {");
	add_model(&m);
	fprintf(m.index_stream, "}}\n");
	fclose(m.index_stream);
	for (int i = 0; i < m.files; i++)
		safetensors_finish(m.file[i], options->shift);
	if (options->index)
		scratch_write(dir, "model.safetensors.index.json", m.index, m.index_size);
	free(m.index);
	random_checkpoint_config(cfg, text, sizeof text);
	if (options->quantization_config) {
		static char with[2 * sizeof text];
		snprintf(with, sizeof with, "{\"quantization_config\": %s,%s", options->quantization_config,
			strchr(text, '{') + 1);
		scratch_write(dir, "config.json", with, (size_t)-1);
	} else {
		scratch_write(dir, "config.json", text, (size_t)-1);
	}
}

struct plumb_config random_checkpoint_smallest(void)
{
	return (struct plumb_config){
		.vocab = 50,
		.hidden = 12,
		.layers = 2,
		.kind = {PLUMB_LAYER_GDN, PLUMB_LAYER_ATTENTION},
		.rms_norm_eps = 1e-6f,
		.streams = 2,
		.low_rank = 3,
		.q_heads = 4,
		.kv_heads = 2,
		.head_dim = 8,
		.rotary_dim = 4,
		.rope_theta = 10000,
		.max_positions = 128,
		.gdn_key_heads = 2,
		.gdn_value_heads = 4,
		.gdn_key_dim = 5,
		.gdn_value_dim = 7,
		.gdn_conv_taps = 2,
		.gdn_gate = PLUMB_GATE_SILU,
		.experts = 4,
		.experts_per_token = 2,
		.expert_inner = 9,
		.shared_inner = 10,
		.norm_topk = true,
		.index_heads = 2,
		.index_dim = 6,
		.block_tokens = 2,
		.block_budget = 2,
		.ple_count = 1,
		.ple_layer = {0},
		.ple_dim = 16,
		.ple_conv_taps = 2,
		.ngram = 3,
		.heads_per_ngram = 2,
		.ngram_vocab_base = 31,
		.ngram_row_multiple = 4,
		.ngram_parts = 4,
		.seed = 1234,
		.eos = 2,
	};
}
