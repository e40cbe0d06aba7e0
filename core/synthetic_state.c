/* SPDX-License-Identifier: MIT */
/* The state of a decoder as if a long text had been: for decoding at a position without a prefill. */
#include <stdio.h>
#include <stdlib.h>

#include "core/synthetic.h"
#include "core/synthetic_fill.h"

/* A part of the state: values of about this rms, each a bf16 value. */
struct part {
	struct plumb_synthetic_tensor tensor;
	int64_t width;
};

static struct part part_of(int layer, const char *name, int64_t width, double rms, uint64_t seed)
{
	char key[64];
	snprintf(key, sizeof key, "state.layers.%d.%s", layer, name);
	return (struct part){
		.tensor = {.key = plumb_synthetic_key(key, seed), .step = plumb_synthetic_step(PLUMB_BF16, rms)},
		.width = width,
	};
}

/* Row r: elements r * width on. */
static void fill_row(const struct part *p, int64_t r, float *out)
{
	plumb_synthetic_fill_plain(&p->tensor, PLUMB_F32, r * p->width, p->width, out);
	for (int64_t i = 0; i < p->width; i++)
		out[i] = plumb_round_bf16(out[i]);
}

/* Rows 0 .. rows - 1 of a cache, in its format. */
static int fill_cache(const struct part *p, const struct plumb_cache *c, int64_t rows)
{
	int failed = 0;
#pragma omp parallel if (rows * p->width > 65536)
	{
		float *row = malloc((size_t)p->width * sizeof *row);
		if (!row) {
#pragma omp atomic write
			failed = 1;
		}
#pragma omp for schedule(static)
		for (int64_t r = 0; r < rows; r++)
			if (row) {
				fill_row(p, r, row);
				plumb_cache_put(c, r, row);
			}
		free(row);
	}
	return failed;
}

/* A ring of `rows` rows, the row of position q at q mod rows. */
static void fill_ring(const struct part *p, float *ring, int64_t rows, int64_t position)
{
	for (int64_t q = position > rows ? position - rows : 0; q < position; q++)
		fill_row(p, q, ring + q % rows * p->width);
}

static int fill_attention(
	const struct plumb_config *cfg, const struct plumb_attention_state *s, int layer, int64_t position, uint64_t seed)
{
	int64_t kv = cfg->kv_heads * cfg->head_dim;
	/* keys and block keys are normed; the weights of the key norm are near 1.5 */
	struct part keys = part_of(layer, "keys", kv, 1.5, seed), values = part_of(layer, "values", kv, 1.0, seed);
	struct part raw = part_of(layer, "raw_keys", cfg->index_dim, 1.0, seed);
	struct part blocks = part_of(layer, "block_keys", cfg->index_dim, 1.0, seed);

	return fill_cache(&keys, &s->keys, position) || fill_cache(&values, &s->values, position) ||
	       fill_cache(&raw, &s->raw_keys, position) ||
	       fill_cache(&blocks, &s->block_keys, position / cfg->block_tokens);
}

static int fill_gdn(
	const struct plumb_config *cfg, const struct plumb_gdn_state *s, int layer, int64_t position, uint64_t seed)
{
	float *row = malloc((size_t)cfg->gdn_key_dim * sizeof *row);
	int64_t rows = cfg->gdn_value_heads * cfg->gdn_value_dim;
	struct part window = part_of(layer, "window", plumb_gdn_channels(cfg), 1.0, seed);
	/* about what sums of k v^T settle at: unit keys, values of 0.3, a decay of a few tens of tokens */
	struct part state = part_of(layer, "recurrent", cfg->gdn_key_dim, 0.1, seed);

	if (!row)
		return 1;
	fill_ring(&window, s->window, cfg->gdn_conv_taps, position);
	for (int64_t r = 0; r < rows; r++) {
		fill_row(&state, r, row);
		plumb_encode(s->format, row, cfg->gdn_key_dim,
			(unsigned char *)s->s + plumb_format_row_bytes(s->format, r * cfg->gdn_key_dim));
	}
	free(row);
	return 0;
}

static void fill_ple(
	const struct plumb_config *cfg, const struct plumb_ple_state *s, int layer, int64_t position, uint64_t seed)
{
	struct part window = part_of(layer, "ple_window", cfg->streams * cfg->hidden, 1.0, seed);
	uint64_t ids = plumb_synthetic_key("state.tokens", seed); /* one text for every module */
	int before = cfg->ngram - 1;                              /* ids kept */

	if (plumb_ple_history(cfg) > 0)
		fill_ring(&window, s->window, plumb_ple_history(cfg), position);
	for (int i = 0; i < before; i++) {
		int64_t q = position - before + i;
		if (q >= 0) /* before the text: EOS, as after a reset */
			s->history[i] = plumb_synthetic_word(ids, (uint64_t)q) % cfg->vocab;
	}
}

int plumb_synthetic_context(struct plumb_decoder *d, int64_t position, uint64_t seed, struct plumb_error *err)
{
	const struct plumb_config *cfg = plumb_decoder_env(d)->cfg;
	int status;

	plumb_decoder_reset(d);
	status = plumb_decoder_resume(d, position, err);
	if (status != PLUMB_OK || position == 0)
		return status;
	for (int l = 0; l < cfg->layers; l++) {
		const struct plumb_layer_state *s = plumb_decoder_state(d, l);
		int failed = cfg->kind[l] == PLUMB_LAYER_GDN ? fill_gdn(cfg, &s->gdn, l, position, seed)
		                                             : fill_attention(cfg, &s->attention, l, position, seed);
		if (failed)
			return plumb_fail(err, PLUMB_BAD_INPUT, "synthetic context: out of memory for a row of state");
		if (plumb_ple_of_layer(cfg, l) >= 0)
			fill_ple(cfg, &s->ple, l, position, seed);
	}
	return PLUMB_OK;
}
