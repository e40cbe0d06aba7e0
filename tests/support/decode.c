/* SPDX-License-Identifier: MIT */
#include "tests/support/decode.h"

#include <check.h>

struct plumb_checkpoint *decode_tiny(void)
{
	struct plumb_error err = {""};
	struct plumb_checkpoint *c = NULL;

	ck_assert_msg(plumb_checkpoint_open(PLUMB_GOLDEN_DIR "/tiny/checkpoint", &c, &err) == PLUMB_OK, "%s", err.text);
	return c;
}

struct plumb_decoder *decode_create(const struct plumb_model *model, const struct plumb_set *set, void *device,
	const struct plumb_decoder_options *options)
{
	struct plumb_error err = {""};
	struct plumb_plan plan;
	struct plumb_decoder *d = NULL;

	ck_assert_int_eq(plumb_plan_create(&model->cfg, (struct plumb_binding){set, device}, &plan, &err), PLUMB_OK);
	ck_assert_msg(plumb_decoder_create(model, &plan, options, &d, &err) == PLUMB_OK, "%s", err.text);
	plumb_plan_free(&plan);
	return d;
}

int32_t decode_token(const struct plumb_config *cfg, int t)
{
	return t % 13 == 12 ? (int32_t)cfg->eos : (int32_t)((t * 7919 + t * t * 31 + 5) % cfg->vocab);
}

uint64_t decode_digest(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < bytes; i++)
		h = (h ^ p[i]) * 0x100000001B3u;
	return h;
}

static uint64_t cache(uint64_t h, const struct plumb_cache *c, int64_t rows)
{
	for (int64_t r = 0; r < rows; r++)
		h = decode_digest(h, plumb_cache_row(c, r), plumb_format_row_bytes(c->format, c->width));
	return h;
}

uint64_t decode_state(struct plumb_decoder *d)
{
	const struct plumb_config *cfg = plumb_decoder_env(d)->cfg;
	uint64_t h = 0xCBF29CE484222325u;
	int64_t p = plumb_decoder_position(d);

	for (int l = 0; l < cfg->layers; l++) {
		const struct plumb_layer_state *s = plumb_decoder_state(d, l);
		if (cfg->kind[l] == PLUMB_LAYER_GDN) {
			h = decode_digest(
				h, s->gdn.window, (size_t)(cfg->gdn_conv_taps * plumb_gdn_channels(cfg)) * sizeof(float));
			h = decode_digest(h, s->gdn.s,
				plumb_format_row_bytes(
					s->gdn.format, cfg->gdn_value_heads * cfg->gdn_value_dim * cfg->gdn_key_dim));
		} else {
			h = cache(h, &s->attention.keys, p);
			h = cache(h, &s->attention.values, p);
			h = cache(h, &s->attention.raw_keys, p);
			h = cache(h, &s->attention.block_keys, p / cfg->block_tokens);
		}
		if (plumb_ple_of_layer(cfg, l) >= 0) {
			h = decode_digest(h, s->ple.window,
				(size_t)(plumb_ple_history(cfg) * cfg->streams * cfg->hidden) * sizeof(float));
			h = decode_digest(h, s->ple.history, (size_t)(cfg->ngram - 1) * sizeof(int64_t));
		}
	}
	return h;
}

uint64_t decode_logits(const struct plumb_decoder *d)
{
	size_t count = (size_t)(plumb_decoder_rows(d) * plumb_decoder_env(d)->cfg->vocab);
	return decode_digest(0xCBF29CE484222325u, plumb_decoder_logits(d), count * sizeof(float));
}

void decode_step(struct plumb_decoder *d, const int32_t *token, int64_t T)
{
	struct plumb_error err = {""};
	ck_assert_msg(plumb_decoder_step(d, token, T, &err) == PLUMB_OK, "%s", err.text);
}
