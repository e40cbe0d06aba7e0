/* SPDX-License-Identifier: MIT */
#include "core/digest.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ops/attention.h"
#include "core/ops/gdn.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"
#include "core/splitmix.h"

/* Another odd number, for the second half of a digest. */
#define OTHER_STEP UINT64_C(0xD1B54A32D192ED03)

struct row_hash {
	uint64_t lane[2];
};

static void start(struct row_hash *h, uint64_t a, uint64_t b)
{
	h->lane[0] = plumb_mix64(a * PLUMB_SPLITMIX_STEP + b + 1);
	h->lane[1] = plumb_mix64(b * OTHER_STEP + a + 2);
}

static void feed(struct row_hash *h, uint64_t value)
{
	h->lane[0] = (h->lane[0] ^ value) * PLUMB_SPLITMIX_STEP;
	h->lane[0] ^= h->lane[0] >> 32;
	h->lane[1] = (h->lane[1] + value) * OTHER_STEP;
	h->lane[1] ^= h->lane[1] >> 29;
}

static void finish(struct plumb_digest *d, const struct row_hash *h, int64_t values)
{
	d->sum[0] += plumb_mix64(h->lane[0]);
	d->sum[1] += plumb_mix64(h->lane[1]);
	d->values += values;
}

static void feed_f32(struct row_hash *h, const float *x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t bits;
		memcpy(&bits, &x[i], sizeof bits);
		feed(h, isnan(x[i]) ? 0x7fc00000u : bits);
	}
}

static void feed_operand(struct row_hash *h, enum plumb_kind kind, const void *data, int64_t first, int64_t n)
{
	switch (kind) {
	case PLUMB_KIND_F32:
		feed_f32(h, (const float *)data + first, n);
		break;
	case PLUMB_KIND_I32:
		for (int64_t i = first; i < first + n; i++)
			feed(h, (uint64_t)(int64_t)((const int32_t *)data)[i]);
		break;
	default: /* i64; outputs have no other kind */
		for (int64_t i = first; i < first + n; i++)
			feed(h, (uint64_t)((const int64_t *)data)[i]);
		break;
	}
}

void plumb_digest_call_row(struct plumb_digest *d, const struct plumb_call *call, int64_t t)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		struct row_hash h;
		const void *data = plumb_operand_get(call->args, o);
		if (o->role != PLUMB_OUT || !data)
			continue;
		int64_t width = plumb_shape_count(o->shape, call->env->cfg, &extent) / call->T; /* outputs are (T, ...) */
		start(&h, (uint64_t)call->op << 32 | (uint64_t)i << 16 | (uint64_t)call->site << 8,
			(uint64_t)call->layer << 32 | (uint64_t)(call->position + t));
		feed_operand(&h, o->kind, data, t * width, width);
		finish(d, &h, width);
	}
}

void plumb_digest_call(struct plumb_digest *d, const struct plumb_call *call)
{
	for (int64_t t = 0; t < call->T; t++)
		plumb_digest_call_row(d, call, t);
}

/* Parts of the state. A digest counts them behind the ops, so their numbers are part of every digest. */
enum part {
	GDN_WINDOW,
	GDN_STATE,
	KEYS,
	VALUES,
	RAW_KEYS,
	BLOCK_KEYS,
	PLE_WINDOW,
	PLE_HISTORY,
};

static void start_part(struct row_hash *h, enum part part, int layer, int64_t row)
{
	start(h, (uint64_t)(PLUMB_OP_COUNT + (int)part) << 32, (uint64_t)layer << 40 | (uint64_t)row);
}

static void add_state(
	struct plumb_digest *d, enum part part, int layer, int64_t row, enum plumb_kind kind, const void *data, int64_t n)
{
	struct row_hash h;
	start_part(&h, part, layer, row);
	feed_operand(&h, kind, data, 0, n);
	finish(d, &h, n);
}

/* As binary32, whatever the format: equal values are equal. */
static void add_stored(struct plumb_digest *d, enum part part, int layer, int64_t row, enum plumb_format format,
	const void *data, int64_t n)
{
	struct row_hash h;
	float piece[64];
	start_part(&h, part, layer, row);
	for (int64_t i = 0, count; i < n; i += count) {
		count = n - i < 64 ? n - i : 64;
		plumb_decode(format, (const char *)data + plumb_format_row_bytes(format, i), count, piece);
		feed_f32(&h, piece, count);
	}
	finish(d, &h, n);
}

static void add_cache(
	struct plumb_digest *d, enum part part, int layer, const struct plumb_cache *c, int64_t rows, float *row)
{
	for (int64_t r = 0; r < rows; r++) {
		plumb_cache_get(c, r, row);
		add_state(d, part, layer, r, PLUMB_KIND_F32, row, c->width);
	}
}

/* Rings go in by position, so the digest says nothing of how they are laid out. */
static void add_ring(
	struct plumb_digest *d, enum part part, int layer, const float *ring, int64_t rows, int64_t width, int64_t position)
{
	for (int64_t p = position > rows ? position - rows : 0; p < position; p++)
		add_state(d, part, layer, p, PLUMB_KIND_F32, ring + p % rows * width, width);
}

static int add_cache_row(
	struct plumb_digest *d, enum part part, int layer, const struct plumb_cache *c, int64_t r, struct plumb_error *err)
{
	float *row = malloc((size_t)c->width * sizeof *row);
	if (!row)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a cache row of %d values", c->width);
	plumb_cache_get(c, r, row);
	add_state(d, part, layer, r, PLUMB_KIND_F32, row, c->width);
	free(row);
	return PLUMB_OK;
}

int plumb_digest_call_state(
	struct plumb_digest *d, const struct plumb_call *call, int64_t t, bool last, struct plumb_error *err)
{
	const struct plumb_config *cfg = call->env->cfg;
	int64_t p = call->position + t;
	int l = call->layer, status = PLUMB_OK;

	switch (call->op) {
	case PLUMB_GDN_CONV: {
		const struct plumb_gdn_conv *a = call->args;
		int64_t C = plumb_gdn_channels(cfg);
		if (call->T - t <= cfg->gdn_conv_taps) /* later rows of the call have not taken its place */
			add_state(d, GDN_WINDOW, l, p, PLUMB_KIND_F32, a->window + p % cfg->gdn_conv_taps * C, C);
		break;
	}
	case PLUMB_GDN_RECURRENCE: {
		const struct plumb_gdn_recurrence *a = call->args;
		if (last)
			add_stored(d, GDN_STATE, l, p, a->state_format, a->state,
				cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim);
		break;
	}
	case PLUMB_ATTN_QK_ROPE: {
		const struct plumb_attn_qk_rope *a = call->args;
		status = add_cache_row(d, KEYS, l, a->keys, p, err);
		if (status == PLUMB_OK)
			status = add_cache_row(d, VALUES, l, a->values, p, err);
		break;
	}
	case PLUMB_QSA_PROJECT: {
		const struct plumb_qsa_project *a = call->args;
		status = add_cache_row(d, RAW_KEYS, l, a->raw_keys, p, err);
		if (status == PLUMB_OK && (p + 1) % cfg->block_tokens == 0)
			status = add_cache_row(d, BLOCK_KEYS, l, a->block_keys, p / cfg->block_tokens, err);
		break;
	}
	case PLUMB_PLE_CONV: {
		const struct plumb_ple_conv *a = call->args;
		int64_t W = plumb_ple_history(cfg), wide = cfg->streams * cfg->hidden;
		if (call->T - t <= W)
			add_state(d, PLE_WINDOW, l, p, PLUMB_KIND_F32, a->window + p % W * wide, wide);
		break;
	}
	case PLUMB_PLE_EMBED: {
		const struct plumb_ple_embed *a = call->args;
		if (last)
			add_state(d, PLE_HISTORY, l, p, PLUMB_KIND_I64, a->history, cfg->ngram - 1);
		break;
	}
	default: /* the other ops have no state */
		break;
	}
	return status;
}

void plumb_digest_state(struct plumb_digest *d, struct plumb_decoder *decoder)
{
	plumb_digest_state_layers(d, decoder, NULL);
}

void plumb_digest_state_layers(struct plumb_digest *d, struct plumb_decoder *decoder, const bool *layer)
{
	const struct plumb_config *cfg = plumb_decoder_env(decoder)->cfg;
	int64_t position = plumb_decoder_position(decoder);
	int64_t widest = cfg->kv_heads * cfg->head_dim > cfg->index_dim ? cfg->kv_heads * cfg->head_dim : cfg->index_dim;
	float *row = malloc((size_t)widest * sizeof *row);

	for (int l = 0; l < cfg->layers && row; l++) {
		const struct plumb_layer_state *s = plumb_decoder_state(decoder, l);
		if (layer && !layer[l])
			continue;
		if (cfg->kind[l] == PLUMB_LAYER_GDN) {
			add_ring(d, GDN_WINDOW, l, s->gdn.window, cfg->gdn_conv_taps, plumb_gdn_channels(cfg), position);
			add_stored(d, GDN_STATE, l, 0, s->gdn.format, s->gdn.s,
				cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim);
		} else {
			add_cache(d, KEYS, l, &s->attention.keys, position, row);
			add_cache(d, VALUES, l, &s->attention.values, position, row);
			add_cache(d, RAW_KEYS, l, &s->attention.raw_keys, position, row);
			add_cache(d, BLOCK_KEYS, l, &s->attention.block_keys, position / cfg->block_tokens, row);
		}
		if (plumb_ple_of_layer(cfg, l) >= 0) {
			if (plumb_ple_history(cfg) > 0)
				add_ring(d, PLE_WINDOW, l, s->ple.window, plumb_ple_history(cfg),
					cfg->streams * cfg->hidden, position);
			add_state(d, PLE_HISTORY, l, 0, PLUMB_KIND_I64, s->ple.history, cfg->ngram - 1);
		}
	}
	if (!row) /* a digest without the state must not look like one with it */
		d->sum[0] = d->sum[1] = UINT64_MAX;
	free(row);
}

const char *plumb_digest_show(const struct plumb_digest *d, char text[33])
{
	snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, d->sum[0], d->sum[1]);
	return text;
}
