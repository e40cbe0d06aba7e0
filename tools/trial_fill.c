/* SPDX-License-Identifier: MIT */
/* Random configs and valid inputs. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "core/ops/ple.h"
#include "core/rope.h"
#include "tools/trial_private.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* One of the sizes around which code changes its way (a lane's 8 values, a warp, 128 and 256 accumulators, the pieces
 * of a split, 16 bytes), at most limit. */
static int64_t size(struct trial_random *r, int64_t limit)
{
	static const int64_t edges[] = {1, 2, 3, 4, 7, 8, 9, 16, 24, 31, 32, 33, 40, 63, 64, 65, 96, 127, 128, 129, 200,
		255, 256, 257, 264, 300, 511, 512, 513, 1023, 1024, 1025, 1032, 2049, 2560, 4099};
	int64_t n = COUNT(edges);
	while (n > 1 && edges[n - 1] > limit)
		n--;
	if (trial_random_below(r, 3) == 0)
		return 1 + trial_random_below(r, limit < 40 ? limit : 40);
	return edges[trial_random_below(r, n)];
}

/* rows so that rows * cols is about `work` at most. */
static int64_t size_for(struct trial_random *r, int64_t limit, int64_t cols, int64_t work)
{
	int64_t most = work / cols;
	return size(r, most < 1 ? 1 : most < limit ? most : limit);
}

static int small(struct trial_random *r, int most)
{
	return 1 + (int)trial_random_below(r, most);
}

/* Work of a case: elements of its largest matrices, so that simt takes a few milliseconds. */
enum { WORK = 40000 };

void trial_config_random(struct trial_random *r, enum plumb_op op, struct plumb_config *c)
{
	bool wide = trial_random_below(r, 4) == 0; /* long rows, which are cut into pieces, and few of them */

	*c = (struct plumb_config){.layers = 1, .ple_count = 1, .rms_norm_eps = 1e-6f, .max_positions = 1 << 20};
	if (strcmp(plumb_ops[op].stage, "attention") == 0 || strcmp(plumb_ops[op].stage, "qsa") == 0)
		c->kind[0] = PLUMB_LAYER_ATTENTION; /* so that the one layer runs the op */
	c->hidden = size(r, wide ? 4099 : 300);
	c->streams = trial_random_below(r, 8) ? small(r, 5) : small(r, 64);
	while (c->streams > 1 && c->streams * c->hidden > (wide ? 8192 : 2000))
		c->streams /= 2;
	c->low_rank = size_for(r, 129, c->streams * c->hidden, WORK);
	c->vocab = op == PLUMB_ARGMAX ? size(r, 4099) : size_for(r, 1025, c->hidden, WORK);

	c->kv_heads = small(r, 3);
	c->q_heads = c->kv_heads * small(r, 4);
	c->head_dim = 1 + size_for(r, 256, c->q_heads * (op == PLUMB_ATTN_IN_PROJ ? c->hidden : 16), WORK);
	c->index_heads = small(r, 5);
	c->index_dim = 1 + size_for(r, 256, c->index_heads * (op == PLUMB_QSA_PROJECT ? c->hidden : 16), WORK);
	int64_t rotary = c->head_dim < c->index_dim ? c->head_dim : c->index_dim;
	c->rotary_dim = 2 * (1 + trial_random_below(r, rotary / 2));
	c->rope_theta = trial_random_below(r, 2) ? 1e4 : 1e7;
	c->block_tokens = small(r, 5);
	c->block_budget = trial_random_below(r, 2) ? small(r, 6) : small(r, 80);

	c->gdn_key_heads = small(r, 3);
	c->gdn_value_heads = c->gdn_key_heads * small(r, 3);
	c->gdn_key_dim = size_for(r, 257, c->gdn_value_heads * (op == PLUMB_GDN_IN_PROJ ? c->hidden : 16), WORK);
	c->gdn_value_dim = size_for(r, 257,
		c->gdn_value_heads * (op == PLUMB_GDN_IN_PROJ || op == PLUMB_GDN_OUT_PROJ ? c->hidden : c->gdn_key_dim),
		WORK);
	c->gdn_conv_taps = small(r, 6);
	c->gdn_gate = trial_random_below(r, 2) ? PLUMB_GATE_SIGMOID : PLUMB_GATE_SILU;

	c->experts = op == PLUMB_MOE_ROUTER ? size_for(r, 2049, c->hidden, WORK) : small(r, 12);
	c->experts_per_token = (int)(trial_random_below(r, 4) ? 1 + trial_random_below(r, c->experts) : c->experts);
	c->expert_inner = size_for(r, wide ? 1032 : 129, c->hidden * c->experts_per_token, WORK);
	c->shared_inner = size_for(r, 1032, c->hidden, WORK);
	c->norm_topk = trial_random_below(r, 3) != 0;

	c->ngram = 2 + (int)trial_random_below(r, trial_random_below(r, 4) ? 3 : PLUMB_MAX_NGRAM - 1);
	c->heads_per_ngram = small(r, 3);
	c->ple_dim = plumb_ngram_heads(c) *
	             size_for(r, 40, (int64_t)plumb_ngram_heads(c) * c->streams * c->hidden, INT64_C(2) * WORK);
	c->ple_conv_taps = small(r, 5);
	c->ngram_vocab_base = 10 + trial_random_below(r, 90);
	c->ngram_row_multiple = small(r, 16);
	c->ngram_parts = 1;
	c->seed = trial_random_next(r) >> 12;
	c->eos = trial_random_below(r, c->vocab);
}

float trial_rounded(const struct trial *c, float x)
{
	return c->env.policy == PLUMB_POLICY_BF16 ? plumb_round_bf16(x) : x;
}

/* Activations: rounded as the op before would have done. */
static void fill_range(struct trial *c, float *v, int64_t n, float low, float high)
{
	for (int64_t i = 0; i < n; i++) {
		bool zero = trial_random_float(&c->random, 0.0f, 1.0f) < c->zeros;
		v[i] = zero ? (i % 2 ? -0.0f : 0.0f) : trial_rounded(c, trial_random_float(&c->random, low, high));
	}
}

/* Few distinct values, so that ties are common and run across the cut; now and then NaN, Inf and zeros of both signs.
 */
static void fill_scores(struct trial *c, float *v, int64_t n, bool below_zero)
{
	struct trial_random *r = &c->random;
	int64_t levels = trial_random_below(r, 3) ? 1 + trial_random_below(r, 8) : 1 << 20;
	bool special = trial_random_below(r, 3) == 0;
	for (int64_t i = 0; i < n; i++) {
		v[i] = trial_rounded(c, (float)trial_random_below(r, levels) * (below_zero ? -0x1p-4f : 0x1p-4f));
		if (special && trial_random_below(r, 6) == 0)
			v[i] = (const float[]){NAN, INFINITY, -INFINITY, -0.0f}[trial_random_below(r, 4)];
	}
	if (trial_random_below(r, 24) == 0)
		for (int64_t i = 0; i < n; i++)
			v[i] = NAN;
}

/* A ring of `rows` rows in which positions before 0 are zero. */
static void fill_window(struct trial *c, float *v, int64_t rows, int64_t width)
{
	fill_range(c, v, rows * width, -c->span, c->span);
	for (int64_t row = c->position < rows ? c->position : rows; row < rows; row++)
		memset(v + row * width, 0, (size_t)width * sizeof *v);
}

static void fill_f32(struct trial *c, struct trial_operand *o)
{
	const char *name = o->info->name;
	float *v = (float *)(void *)o->memory.data;
	int64_t n = o->count;

	if (strcmp(name, "rope") == 0) {
		plumb_rope_table(&c->cfg, c->env.policy, c->env.capacity, v);
	} else if (strcmp(name, "window") == 0) {
		fill_window(c, v, o->dim[0], o->dim[1]);
	} else if (strcmp(name, "score") == 0) {
		fill_scores(c, v, n, false);
	} else if (c->op == PLUMB_ARGMAX) {
		for (int64_t t = 0; t < o->dim[0]; t++)
			fill_scores(c, v + t * o->dim[1], o->dim[1], trial_random_below(&c->random, 2));
	} else if (strcmp(name, "weight") == 0 || strcmp(name, "shared_weight") == 0) {
		fill_range(c, v, n, 0.0f, 1.0f);
	} else if (strcmp(name, "injection") == 0) {
		fill_range(c, v, n, 0.0f, 2.0f);
	} else if (c->op == PLUMB_GDN_RECURRENCE && o->rank == 2 && o->dim[1] == c->cfg.gdn_value_heads) { /* b, a */
		fill_range(c, v, n, -4.0f, 4.0f);
	} else {
		fill_range(c, v, n, -c->span, c->span);
	}
}

/* count distinct values below n, ascending or not. */
void trial_fill_distinct(struct trial_random *r, int32_t *out, int64_t count, int64_t n, bool ascending)
{
	int32_t *all = calloc((size_t)n, sizeof *all);
	if (!all)
		abort();
	for (int32_t i = 0; i < n; i++)
		all[i] = i;
	for (int64_t i = 0; i < count; i++) {
		int64_t j = i + trial_random_below(r, n - i);
		int32_t v = all[j];
		all[j] = all[i];
		all[i] = v;
		int64_t k = i;
		for (; ascending && k > 0 && out[k - 1] > v; k--)
			out[k] = out[k - 1];
		out[k] = v;
	}
	free(all);
}

static int64_t chosen_blocks(const struct trial *c, int64_t t, int64_t *complete)
{
	*complete = (c->position + t + 1) / c->cfg.block_tokens;
	return *complete < c->cfg.block_budget ? *complete : c->cfg.block_budget;
}

static void fill_i32(struct trial *c, struct trial_operand *o)
{
	const char *name = o->info->name;
	int32_t *v = (int32_t *)(void *)o->memory.data;
	int64_t complete;

	if (strcmp(name, "position") == 0)
		v[0] = (int32_t)c->position;
	for (int64_t t = 0; t < c->T; t++) {
		if (strcmp(name, "token") == 0) {
			bool last = c->with.far && t == 0; /* the end of the table */
			bool eos = c->op == PLUMB_PLE_EMBED && trial_random_below(&c->random, 4) == 0;
			v[t] = (int32_t)(last  ? c->cfg.vocab - 1
					 : eos ? c->cfg.eos
					       : trial_random_below(&c->random, c->cfg.vocab));
		} else if (strcmp(name, "expert") == 0) {
			trial_fill_distinct(&c->random, v + t * o->dim[1], o->dim[1], c->cfg.experts, false);
		} else if (strcmp(name, "count") == 0) {
			v[t] = (int32_t)chosen_blocks(c, t, &complete);
		} else if (strcmp(name, "block") == 0) {
			int64_t count = chosen_blocks(c, t, &complete);
			trial_fill_distinct(&c->random, v + t * o->dim[1], count, complete, true);
			for (int64_t i = count; i < o->dim[1]; i++)
				v[t * o->dim[1] + i] = -1;
		}
	}
}

static void fill_i64(struct trial *c, struct trial_operand *o) /* history */
{
	int64_t *v = (int64_t *)(void *)o->memory.data;
	for (int64_t i = 0; i < o->count; i++)
		v[i] = trial_random_below(&c->random, 4) ? trial_random_below(&c->random, c->cfg.vocab) : c->cfg.eos;
}

/* What a trained weight of this name is near, so that nothing degenerates. */
static void weight_range(const struct trial *c, const struct trial_operand *o, float *low, float *high)
{
	const char *name = o->info->name;
	float root = 1.7f / sqrtf((float)o->dim[o->rank - 1]);

	*low = -1.0f;
	*high = 1.0f;
	if (strcmp(name, "a_log") == 0) {
		*low = -3.0f;
	} else if (strcmp(name, "dt_bias") == 0) {
		*low = -4.0f;
		*high = 22.0f;                     /* past the threshold of softplus */
	} else if (c->op == PLUMB_GDN_NORM_GATE) { /* plain, not 1 + w */
		*low = 0.5f;
		*high = 1.5f;
	} else if (strstr(name, "norm")) {
		*low = -0.5f;
		*high = 0.5f;
	} else if (strcmp(name, "table") != 0 && strcmp(name, "conv") != 0) {
		*low = -root;
		*high = root;
	}
}

/* Scales so that products reach about `largest` and mostly stay below: all alike, of several magnitudes with now and
 * then a zero, or every second 64 times the others. code_peak: the largest magnitude of a code. */
static float scale_value(struct trial *c, enum trial_scales pattern, int64_t i, float code_peak, float largest)
{
	float unit = largest / code_peak;

	if (pattern == TRIAL_SCALES_ALIKE)
		return unit;
	if (pattern == TRIAL_SCALES_ALTERNATING)
		return i % 2 ? unit : unit * 0x1p-6f;
	if (trial_random_below(&c->random, 16) == 0)
		return 0.0f;
	return unit * trial_random_float(&c->random, 0.5f, 1.0f) * ldexpf(1.0f, -(int)trial_random_below(&c->random, 7));
}

/* Every code, but most near the largest, as in a trained weight; no NaN. */
static uint8_t random_e4m3(struct trial *c)
{
	uint8_t code = trial_random_below(&c->random, 4)
	                       ? plumb_f32_to_e4m3(trial_random_float(&c->random, -448.0f, 448.0f))
	                       : (uint8_t)trial_random_below(&c->random, 256);
	return (code & 0x7f) == 0x7f ? 0x08 : code;
}

static void fill_quantised(struct trial *c, const struct trial_operand *o, struct plumb_weight *w, float largest)
{
	unsigned char *data = o->memory.data + ((const unsigned char *)w->data - o->memory.data);
	unsigned char *scale = w->scale ? o->scale.data + ((const unsigned char *)w->scale - o->scale.data) : NULL;
	size_t bytes = plumb_weight_data_bytes(w), scales = plumb_weight_scale_bytes(w);
	enum trial_scales pattern = (enum trial_scales)trial_random_below(&c->random, TRIAL_SCALES);
	float code_peak = w->format == PLUMB_NVFP4 ? 6.0f : 448.0f;

	if (c->with.scales)
		pattern = (enum trial_scales)(c->with.scales - 1);
	/* the last half byte of an odd row of nvfp4 too: it must count for nothing */
	for (size_t i = 0; i < bytes; i++)
		data[i] = w->format == PLUMB_NVFP4 ? (uint8_t)trial_random_below(&c->random, 256) : random_e4m3(c);
	/* each matrix its own; the codes of nvfp4's group scales use it: 2^4 .. 2^8 of their 448 */
	w->global = scale_value(c, TRIAL_SCALES_MANY, 0, code_peak, largest);
	if (w->global == 0.0f) /* that would be all of the matrix */
		w->global = largest / code_peak;
	if (w->format == PLUMB_NVFP4 && scale) {
		float spread = ldexpf(1.0f, 4 + (int)trial_random_below(&c->random, 5));
		w->global /= spread;
		for (size_t i = 0; i < scales; i++) {
			scale[i] = plumb_f32_to_e4m3(scale_value(c, pattern, (int64_t)i, 1.0f, spread));
			if (trial_random_below(&c->random, 32) == 0)
				scale[i] |= 0x80; /* nobody writes it, but it has a meaning */
		}
	} else if (scale) {
		size_t unit = plumb_format_row_bytes(w->scale_format, 1);
		for (size_t i = 0; i < scales / unit; i++) {
			float v = scale_value(c, pattern, (int64_t)i, code_peak, largest);
			plumb_encode(w->scale_format, &v, 1, scale + i * unit);
		}
	}
}

/* Of a table in sparse memory the rows that the tokens choose. */
static void fill_row(struct trial *c, struct trial_operand *o, int64_t row)
{
	int64_t rows = o->weight[0].rows;
	struct plumb_weight *w = &o->weight[row / rows];
	size_t bytes = plumb_format_row_bytes(w->format, w->cols);
	size_t start = (size_t)((const unsigned char *)w->data - o->memory.data) + (size_t)(row % rows) * bytes;

	w->global = 0x1.8p-9f;
	for (int64_t k = 0; k < w->cols; k++) {
		float v = trial_random_float(&c->random, -1.0f, 1.0f);
		unsigned char *to = o->memory.data + start + plumb_format_row_bytes(w->format, k);
		if (w->format >= (enum plumb_format)PLUMB_PLAIN_FORMATS)
			*to = random_e4m3(c);
		else
			plumb_encode(w->format, &v, 1, to);
	}
	trial_memory_add(&o->memory, start, bytes);
}

static void fill_table_rows(struct trial *c, struct trial_operand *o)
{
	const int32_t *token = trial_data(c, "token");
	const int64_t *history = c->op == PLUMB_PLE_EMBED ? trial_data(c, "history") : NULL;
	int64_t G = c->cfg.ngram, row[PLUMB_MAX_NGRAM_HEADS], id[PLUMB_MAX_NGRAM];

	for (int64_t i = 0; i < o->matrices; i++)
		o->weight[i].global = 0x1.8p-9f;
	for (int64_t t = 0; t < c->T; t++) {
		for (int64_t j = 0; history && j < G; j++)
			id[j] = t - j >= 0 ? token[t - j] : history[G - 1 + t - j];
		if (history)
			plumb_ngram_rows(&c->cfg, &o->ngram, id, row);
		for (int64_t h = 0; history && h < plumb_ngram_heads(&c->cfg); h++)
			fill_row(c, o, row[h]);
		if (!history)
			fill_row(c, o, token[t]);
	}
}

static void fill_matrices(struct trial *c, struct trial_operand *o)
{
	float low, high;

	weight_range(c, o, &low, &high);
	if (o->memory.sparse) {
		fill_table_rows(c, o);
		return;
	}
	for (int64_t i = 0; i < o->matrices; i++) {
		struct plumb_weight *w = &o->weight[i];
		unsigned char *to = o->memory.data + ((const unsigned char *)w->data - o->memory.data);
		if (w->format >= (enum plumb_format)PLUMB_PLAIN_FORMATS) {
			fill_quantised(c, o, w, high);
			continue;
		}
		w->global = NAN; /* not a scale of this format */
		for (int64_t k = 0; k < w->rows * w->cols; k++) {
			float v = trial_random_float(&c->random, low, high);
			plumb_encode(w->format, &v, 1, to + plumb_format_row_bytes(w->format, k));
		}
	}
}

/* Every row, the ones that no token has reached yet too: they are bait. */
static void fill_cache(struct trial *c, struct trial_operand *o)
{
	for (int64_t r = 0; o->memory.sparse && r < o->cache.rows; r++)
		for (int64_t i = 0; i < o->cache.width; i++) {
			float v = trial_random_float(&c->random, -1.0f, 1.0f);
			unsigned char *row = plumb_cache_row(&o->cache, r);
			plumb_cache_encode(&o->cache, &v, 1, row + plumb_format_row_bytes(o->cache.format, i));
		}
	for (int64_t i = 0; !o->memory.sparse && i < o->count; i++) {
		float v = trial_random_float(&c->random, -1.0f, 1.0f);
		plumb_cache_encode(&o->cache, &v, 1, o->memory.data + plumb_format_row_bytes(o->cache.format, i));
	}
}

/* State: not rounded by the policy. */
static void fill_stored(struct trial *c, struct trial_operand *o)
{
	for (int64_t i = 0; i < o->count; i++) {
		float v = trial_random_float(&c->random, -1.0f, 1.0f);
		plumb_encode(o->format, &v, 1, o->memory.data + plumb_format_row_bytes(o->format, i));
	}
}

void trial_fill(struct trial *c)
{
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (o->absent || o->info->role == PLUMB_OUT)
			continue;
		switch (o->info->kind) {
		case PLUMB_KIND_F32:
			fill_f32(c, o);
			break;
		case PLUMB_KIND_I32:
			fill_i32(c, o);
			break;
		case PLUMB_KIND_I64:
			fill_i64(c, o);
			break;
		case PLUMB_KIND_WEIGHT:
		case PLUMB_KIND_BANK:
			fill_matrices(c, o);
			break;
		case PLUMB_KIND_CACHE:
			fill_cache(c, o);
			break;
		case PLUMB_KIND_STORED:
			fill_stored(c, o);
			break;
		case PLUMB_KIND_NGRAM:
			break;
		}
	}
}
