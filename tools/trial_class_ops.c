/* SPDX-License-Identifier: MIT */
/* Classes that know what an op's operands mean. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/numeric.h"
#include "tools/trial_class.h"

#define COUNT(array) ((int64_t)(sizeof(array) / sizeof((array)[0])))

/* Of one matrix of a bank, the bytes. */
static unsigned char *bytes_of(struct trial_operand *o, const struct plumb_weight *w)
{
	return o->memory.data + ((const unsigned char *)w->data - o->memory.data);
}
static unsigned char *scales_of(struct trial_operand *o, const struct plumb_weight *w)
{
	return w->scale ? o->scale.data + ((const unsigned char *)w->scale - o->scale.data) : NULL;
}

/* ---- selections ---- */

/* Where two candidates meet: in a lane, between lanes, warps, halves of a block, blocks, pieces. */
static const int64_t distances[] = {
	1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, 512, 1023, 1024};

void trial_shape_ties(struct trial *c)
{
	static const int64_t sizes[] = {33, 65, 257, 300, 513, 1025, 1500, 2049};

	if (c->op == PLUMB_ARGMAX) {
		c->cfg.vocab = trial_pick(c, sizes, COUNT(sizes));
	} else if (c->op == PLUMB_QSA_SELECT) {
		c->cfg.block_tokens = 1 + (int)trial_random_below(&c->random, 4);
		c->cfg.block_budget = 1 + trial_random_below(&c->random, trial_random_below(&c->random, 2) ? 8 : 520);
		c->page_tokens = c->cfg.block_tokens;
		c->env.capacity = trial_pick(c, sizes, COUNT(sizes)) * c->page_tokens;
		c->position = c->env.capacity - c->T - trial_random_below(&c->random, c->page_tokens);
	} else {
		c->cfg.hidden = 1 + trial_random_below(&c->random, 64);
		c->cfg.experts = 2 + trial_random_below(&c->random, 511);
		c->cfg.experts_per_token =
			1 + (int)trial_random_below(&c->random, c->cfg.experts < 16 ? c->cfg.experts : 16);
	}
}

/* Rows of scores: `many` of them share the largest value, d apart; another group shares a lower one. */
static void tie_row(struct trial *c, float *row, int64_t n, int64_t many)
{
	int64_t d = trial_pick(c, distances, COUNT(distances)), at;
	float top = trial_random_below(&c->random, 3) ? 2.0f : -0.25f,
	      below = trial_random_below(&c->random, 2) ? top / 2 : top * 2;

	if (below > top) {
		float swap = below;
		below = top;
		top = swap;
	}
	for (int64_t i = 0; i < n; i++)
		row[i] = trial_rounded(c, below - trial_random_float(&c->random, 0.5f, 4.0f));
	at = trial_random_below(&c->random, n);
	for (int64_t i = 0; i < many; i++, at = (at + d) % n)
		row[at] = below;
	at = trial_random_below(&c->random, n);
	for (int64_t i = 0; i < many; i++, at = (at + d) % n)
		row[at] = top;
	if (trial_random_below(&c->random, 4) == 0) /* two zeros of either sign are one value */
		for (int64_t i = 0; i < n; i++)
			row[i] = row[i] == top ? (trial_random_below(&c->random, 2) ? 0.0f : -0.0f) : row[i] - 8.0f;
}

/* Copies of a row of a matrix, scales too, elsewhere: equal logits. */
static void tie_experts(struct trial *c, struct trial_operand *o)
{
	struct plumb_weight *w = &o->weight[0];
	size_t bytes = plumb_format_row_bytes(w->format, w->cols), scale_bytes = 0;
	unsigned char *data = bytes_of(o, w), *scale = scales_of(o, w);
	int64_t d = trial_pick(c, distances, COUNT(distances)), many = c->cfg.experts_per_token + 3;

	if (w->format == PLUMB_FP8_BLOCK) { /* scales are shared by rows: equal rows need equal ones */
		trial_unscale(o);
		scale = NULL;
	} else if (w->format == PLUMB_FP8_ROW) {
		scale_bytes = plumb_format_row_bytes(w->scale_format, 1);
	} else if (w->format == PLUMB_NVFP4) {
		scale_bytes = (size_t)(w->cols + PLUMB_NVFP4_GROUP - 1) / PLUMB_NVFP4_GROUP;
	}
	for (int group = 0; group < 3; group++) {
		int64_t from = trial_random_below(&c->random, w->rows), to = from;
		for (int64_t i = 0; i < many; i++) {
			to = (to + d) % w->rows;
			memmove(data + (size_t)to * bytes, data + (size_t)from * bytes, bytes);
			if (scale && scale_bytes)
				memmove(scale + (size_t)to * scale_bytes, scale + (size_t)from * scale_bytes, scale_bytes);
		}
	}
}

static struct trial_operand *scores(struct trial *c)
{
	return trial_find(c, c->op == PLUMB_ARGMAX ? "logits" : "score");
}

void trial_fill_ties(struct trial *c)
{
	if (c->op == PLUMB_MOE_ROUTER) {
		tie_experts(c, trial_find(c, "gate"));
		return;
	}
	struct trial_operand *o = scores(c);
	for (int64_t t = 0; t < c->T; t++)
		tie_row(c, (float *)(void *)o->memory.data + t * o->dim[1], o->dim[1],
			c->op == PLUMB_ARGMAX ? 1 + trial_random_below(&c->random, 5)
					      : 1 + trial_random_below(&c->random, c->cfg.block_budget + 4));
}

void trial_shape_bin(struct trial *c)
{
	static const int64_t budgets[] = {1, 2, 31, 32, 33, 64, 128, 256, 512};
	int64_t rows[] = {0, 1, 2, 64, 1000};

	if (c->op == PLUMB_ARGMAX) {
		c->cfg.vocab = 1 + trial_random_below(&c->random, 3000);
		return;
	}
	c->cfg.block_tokens = 1 + (int)trial_random_below(&c->random, 4);
	c->cfg.block_budget = trial_pick(c, budgets, COUNT(budgets));
	c->page_tokens = c->cfg.block_tokens;
	int64_t blocks = c->cfg.block_budget - 1 + trial_pick(c, rows, COUNT(rows));
	c->env.capacity = (blocks + c->T + 1) * c->page_tokens;
	c->position = blocks * c->page_tokens - (blocks > 0);
}

/* Equal, ascending, descending, or random within low bits. */
void trial_fill_bin(struct trial *c)
{
	struct trial_operand *o = scores(c);
	int64_t n = o->dim[1];

	for (int64_t t = 0; t < c->T; t++) {
		uint32_t base = plumb_f32_bits(trial_random_float(&c->random, 0.25f, 4.0f)) & 0xFFFFF000u;
		uint32_t sign = trial_random_below(&c->random, 2) ? 0x80000000u : 0;
		int64_t shape = trial_random_below(&c->random, 4), bits = 1 + trial_random_below(&c->random, 11);
		for (int64_t i = 0; i < n; i++) {
			uint32_t low = shape == 0   ? 0
			               : shape == 1 ? (uint32_t)(i * 4096 / n)
			               : shape == 2 ? (uint32_t)((n - 1 - i) * 4096 / n)
			                            : (uint32_t)trial_random_below(&c->random, INT64_C(1) << bits);
			((float *)(void *)o->memory.data)[t * n + i] = plumb_bits_f32((base | (low & 0xFFFu)) | sign);
		}
	}
}

/* ---- gates and decay ---- */

static const float edges[] = {0.0f, -0.0f, 20.0f, 20.000002f, -20.0f, 88.0f, 88.75f, 89.0f, -88.0f, -89.0f, 104.0f, -104.0f,
	-200.0f, 200.0f, 1e-30f, -1e-3f, 0.5f};

static float edge(struct trial *c)
{
	return edges[trial_random_below(&c->random, COUNT(edges))];
}

static void fill_edges(struct trial *c, const char *name)
{
	struct trial_operand *o = trial_find(c, name);
	for (int64_t i = 0; o && i < trial_elements(o); i++)
		trial_put(c, o, i, edge(c));
}

static void fill_one(struct trial *c, const char *name) /* a 1 in column 0 of every row */
{
	struct trial_operand *o = trial_find(c, name);
	for (int64_t i = 0; o && i < trial_elements(o); i++)
		trial_put(c, o, i, i % trial_columns(o) == 0 ? 1.0f : 0.0f);
}

static void fill_last_tap(struct trial *c)
{
	struct trial_operand *o = trial_find(c, "conv");
	for (int64_t i = 0; i < trial_elements(o); i++)
		trial_put(c, o, i, i % trial_columns(o) == trial_columns(o) - 1 ? 1.0f : 0.0f);
}

/* Weights that can hold the edges. */
void trial_shape_gates(struct trial *c)
{
	bool matrix = c->op == PLUMB_HC_UP_MIX || c->op == PLUMB_MOE_GATE_UP || c->op == PLUMB_MOE_ROUTER;
	if (matrix && c->with.format < 0)
		c->with.format = trial_pick_format(c, TRIAL_OF_MATRICES, (const int64_t[]){PLUMB_F32, PLUMB_BF16}, 2) - 1;
}

void trial_fill_gates(struct trial *c)
{
	switch (c->op) {
	case PLUMB_HC_UP_MIX:
		fill_edges(c, "inject_logits");
		fill_one(c, "low");
		fill_edges(c, "up");
		break;
	case PLUMB_GDN_NORM_GATE:
		fill_edges(c, "z");
		break;
	case PLUMB_GDN_RECURRENCE:
		fill_edges(c, "a");
		fill_edges(c, "b");
		break;
	case PLUMB_GDN_CONV:
		fill_last_tap(c);
		fill_edges(c, "qkv");
		break;
	case PLUMB_PLE_CONV:
		fill_last_tap(c);
		fill_edges(c, "conv_in");
		break;
	case PLUMB_ATTN_GATE:
		fill_edges(c, "qg");
		break;
	case PLUMB_MOE_GATE_UP:
		fill_one(c, "x");
		fill_edges(c, "gate");
		fill_edges(c, "shared_gate");
		break;
	default: /* moe_router */
		fill_one(c, "x");
		fill_edges(c, "shared_gate");
		fill_edges(c, "gate");
	}
}

/* ---- rows in which little or nothing has a rank ---- */

enum { ALL_LOWEST, LOWEST_AND_NAN, ALL_NAN, LAST_IS_NUMBER, UNRANKED };

/* Seeds of plumb test are millions, and rounds: four rounds have every kind, and one another in the next run. */
static int64_t kind_of_row(const struct trial *c, int64_t t)
{
	return (int64_t)((c->seed + c->seed / 1000000 + (uint64_t)t) % UNRANKED);
}

/* Every kind of row in one case; of the router, whose tokens share their gate, one kind. */
void trial_shape_unranked(struct trial *c)
{
	if (!c->with.T)
		c->T = UNRANKED;
	trial_shape_ties(c);
	trial_shape_gates(c);
}

static float unranked(struct trial *c, int64_t kind, int64_t i, int64_t n)
{
	static const float numbers[] = {-0x1.FEp127f, -1.0f, -0.0f, 1.0f};

	if (kind == LAST_IS_NUMBER && i == n - 1)
		return numbers[trial_random_below(&c->random, COUNT(numbers))];
	if (kind == LOWEST_AND_NAN) /* NaN first: index 0 is not the answer */
		return i == 0 || (i < n - 1 && trial_random_below(&c->random, 2)) ? NAN : -INFINITY;
	return kind == ALL_NAN ? NAN : -INFINITY;
}

void trial_fill_unranked(struct trial *c)
{
	if (c->op == PLUMB_MOE_ROUTER) {
		struct trial_operand *x = trial_find(c, "x"), *gate = trial_find(c, "gate");
		int64_t D = trial_columns(gate), n = trial_elements(gate) / D;
		for (int64_t t = 0; t < c->T; t++)
			trial_put(c, x, t * D, 1.0f);
		/* e4m3 and e2m1 have no Inf */
		for (int64_t i = 0; i < n && gate->weight[0].format < (enum plumb_format)PLUMB_PLAIN_FORMATS; i++)
			trial_put(c, gate, i * D, unranked(c, kind_of_row(c, 0), i, n));
		return;
	}
	struct trial_operand *o = scores(c);
	for (int64_t t = 0; t < c->T; t++) {
		/* of blocks, those that are complete */
		int64_t n = c->op == PLUMB_ARGMAX ? o->dim[1] : (c->position + t + 1) / c->cfg.block_tokens;
		for (int64_t i = 0; i < n; i++)
			trial_put(c, o, t * o->dim[1] + i, unranked(c, kind_of_row(c, t), i, n));
	}
}

void trial_fill_decay(struct trial *c)
{
	/* a + dt_bias and a_log: exp(-exp(a_log) * softplus(a + dt_bias)) is 1, 1 - ulp, near 1, near 0, subnormal, 0 */
	static const float a[] = {-200.0f, -17.0f, -9.0f, 3.0f, 90.0f, 30.0f},
			   a_log[] = {0.0f, 0.0f, -3.0f, 1.0f, 0.0f, 10.0f};
	struct trial_operand *oa = trial_find(c, "a"), *ob = trial_find(c, "b"), *ol = trial_find(c, "a_log"),
			     *od = trial_find(c, "dt_bias");
	int64_t heads = c->cfg.gdn_value_heads, first = trial_random_below(&c->random, COUNT(a));

	for (int64_t i = 0; i < heads; i++) {
		trial_put(c, ol, i, a_log[(first + i) % COUNT(a)]);
		trial_put(c, od, i, 0.0f);
	}
	for (int64_t i = 0; i < c->T * heads; i++) {
		trial_put(c, oa, i, a[(first + i % heads) % COUNT(a)]);
		trial_put(c, ob, i, trial_sign(c) * (trial_random_below(&c->random, 2) ? 110.0f : 12.0f));
	}
}

/* ---- experts ---- */

void trial_fill_experts(struct trial *c)
{
	struct trial_operand *o = trial_find(c, "expert");
	int64_t A = o->dim[1], E = c->cfg.experts, how = trial_random_below(&c->random, 3);
	int32_t *id = (int32_t *)(void *)o->memory.data;

	for (int64_t i = 0; i < c->T * A; i++)
		id[i] = how == 0   ? (int32_t)(i % A)         /* the first */
		        : how == 1 ? (int32_t)(E - 1 - i % A) /* the last */
		                   : id[i % A];               /* those of token 0 */
}

void trial_fill_bad_ids(struct trial *c)
{
	struct trial_operand *o = trial_find(c, "expert");
	const int64_t bad[] = {-1, c->cfg.experts, INT32_MAX, INT32_MIN, c->cfg.experts + 1000};

	for (int64_t i = 0; i < o->count; i++)
		if (i == 0 || trial_random_below(&c->random, 6) == 0)
			((int32_t *)(void *)o->memory.data)[trial_random_below(&c->random, o->count)] =
				(int32_t)trial_pick(c, bad, COUNT(bad));
}

/* ---- positions, ids ---- */

/* As an interleaved table of time, height and width would be: pairs take turns at three positions. */
void trial_fill_rope(struct trial *c)
{
	struct trial_operand *o = trial_find(c, "rope");
	int64_t half = o->dim[2];
	float *v = (float *)(void *)o->memory.data;

	for (int64_t p = 0; p < o->dim[0]; p++) {
		int64_t at[3] = {p, 3 * p + 7, p / 2 + 40};
		for (int64_t i = 0; i < half; i++) {
			double inverse = exp(-2.0 * (double)i / (double)c->cfg.rotary_dim * log(c->cfg.rope_theta));
			double angle = (double)at[i % 3] * inverse + 1e-3 * (double)(i + 1);
			v[p * 2 * half + i] = trial_rounded(c, (float)cos(angle));
			v[p * 2 * half + half + i] = trial_rounded(c, (float)sin(angle));
		}
	}
}

void trial_shape_ngram(struct trial *c)
{
	static const int64_t vocabs[] = {3, 248320, INT64_C(1) << 24, INT32_MAX};
	c->cfg.vocab = trial_pick(c, vocabs, COUNT(vocabs));
	c->cfg.eos = trial_random_below(&c->random, c->cfg.vocab);
}

void trial_fill_ngram(struct trial *c)
{
	struct trial_operand *token = trial_find(c, "token"), *history = trial_find(c, "history"),
			     *table = trial_find(c, "table");
	int32_t *id = (int32_t *)(void *)token->memory.data;
	int64_t *before = (int64_t *)(void *)history->memory.data, n = history->count + c->T;
	int64_t at = trial_random_below(&c->random, n + 1); /* n: nowhere */

	for (int64_t i = 0; i < n; i++) {
		int64_t v = c->cfg.vocab - 1 - trial_random_below(&c->random, c->cfg.vocab < 64 ? c->cfg.vocab : 64);
		v = i == at ? c->cfg.eos : v;
		if (i < history->count)
			before[i] = v;
		else
			id[i - history->count] = (int32_t)v;
	}
	(void)table;
}

/* ---- what must not be read ---- */

/* NaN, or a value that would win. */
static float bait(struct trial *c)
{
	return (const float[]){NAN, INFINITY, 1e30f}[trial_random_below(&c->random, 3)];
}

static void bait_rows(struct trial *c, struct trial_operand *o, const unsigned char *read)
{
	float v = bait(c);
	for (int64_t r = 0; r < o->cache.rows; r++)
		for (int64_t k = 0; !read[r] && k < o->cache.width; k++)
			trial_put(c, o, r * o->cache.width + k, v);
}

/* Rows of the caches of tokens that the call reads: of attention, what is selected, and each token's own tail. */
static void mark_selected(struct trial *c, unsigned char *read)
{
	const int32_t *block = trial_data(c, "block"), *count = trial_data(c, "count");
	int64_t B = c->cfg.block_tokens, N = c->cfg.block_budget;

	for (int64_t t = 0; t < c->T; t++) {
		int64_t p = c->position + t;
		for (int64_t i = 0; i < count[t]; i++)
			memset(read + block[t * N + i] * B, 1, (size_t)B);
		for (int64_t r = (p + 1) / B * B; r <= p; r++)
			read[r] = 1;
	}
}

static void bait_rope(struct trial *c, bool blocks)
{
	struct trial_operand *o = trial_find(c, "rope");
	int64_t width = 2 * o->dim[2], B = c->cfg.block_tokens;

	for (int64_t p = 0; p < o->dim[0]; p++) {
		int64_t end = p + B - 1; /* the token that completes the block of p */
		bool read = p >= c->position && p < c->position + c->T;
		if (blocks && p % B == 0 && end >= c->position && end < c->position + c->T)
			read = true;
		for (int64_t k = 0; !read && k < width; k++)
			((float *)(void *)o->memory.data)[p * width + k] = NAN;
	}
}

/* Matrices of the experts without a token. */
static void bait_experts(struct trial *c, const char *name)
{
	struct trial_operand *o = trial_find(c, name), *e = trial_find(c, "expert");

	for (int64_t m = 0; m < o->matrices; m++) {
		struct plumb_weight *w = &o->weight[m];
		bool used = false;
		for (int64_t i = 0; i < e->count; i++)
			used = used || ((const int32_t *)(const void *)e->memory.data)[i] == m;
		if (used)
			continue;
		memset(bytes_of(o, w), 0xff, plumb_weight_data_bytes(w));
		if (w->scale)
			memset(scales_of(o, w), 0xff, plumb_weight_scale_bytes(w));
		w->global = NAN;
	}
}

static void bait_table(struct trial *c)
{
	struct trial_operand *o = trial_find(c, "table"), *token = trial_find(c, "token");
	struct plumb_weight *w = &o->weight[0];
	size_t bytes = plumb_format_row_bytes(w->format, w->cols);

	for (int64_t r = 0; r < w->rows; r++) {
		bool used = false;
		for (int64_t t = 0; t < c->T; t++)
			used = used || ((const int32_t *)(const void *)token->memory.data)[t] == r;
		if (!used)
			memset(bytes_of(o, w) + (size_t)r * bytes, 0xff, bytes);
	}
}

static void bait_scores(struct trial *c)
{
	struct trial_operand *o = scores(c);
	float v = bait(c);
	for (int64_t t = 0; t < c->T; t++)
		for (int64_t b = (c->position + t + 1) / c->cfg.block_tokens; b < o->dim[1]; b++)
			((float *)(void *)o->memory.data)[t * o->dim[1] + b] = v;
}

void trial_fill_padding(struct trial *c)
{
	int64_t B = c->cfg.block_tokens, last = c->position + c->T - 1;
	unsigned char *read = calloc(1, (size_t)c->env.capacity + 1);

	if (!read)
		abort();
	switch (c->op) {
	case PLUMB_EMBED:
		bait_table(c);
		break;
	case PLUMB_ATTN_QK_ROPE:
		bait_rope(c, false);
		bait_rows(c, trial_find(c, "keys"), read);
		bait_rows(c, trial_find(c, "values"), read);
		break;
	case PLUMB_QSA_PROJECT:
		bait_rope(c, true);
		bait_rows(c, trial_find(c, "block_keys"), read);
		for (int64_t r = c->position / B * B; r <= last; r++) /* of blocks that are completed now */
			read[r] = 1;
		bait_rows(c, trial_find(c, "raw_keys"), read);
		break;
	case PLUMB_QSA_SCORE:
		memset(read, 1, (size_t)((last + 1) / B));
		bait_rows(c, trial_find(c, "block_keys"), read);
		break;
	case PLUMB_QSA_SELECT:
		bait_scores(c);
		break;
	case PLUMB_ATTN_DECODE:
		mark_selected(c, read);
		bait_rows(c, trial_find(c, "keys"), read);
		bait_rows(c, trial_find(c, "values"), read);
		break;
	case PLUMB_MOE_GATE_UP:
		bait_experts(c, "gate");
		bait_experts(c, "up");
		break;
	default: /* moe_down */
		bait_experts(c, "down");
	}
	free(read);
}
