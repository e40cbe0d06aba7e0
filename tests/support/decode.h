/* SPDX-License-Identifier: MIT */
/* Decoders of golden/tiny, and digests of what they leave behind. */
#ifndef PLUMB_TESTS_SUPPORT_DECODE_H
#define PLUMB_TESTS_SUPPORT_DECODE_H

#include "core/checkpoint.h"
#include "core/decoder.h"

/* The checkpoint of golden/tiny; fails the test when it cannot be opened. */
struct plumb_checkpoint *decode_tiny(void);

/* A decoder with everything bound to one set and device. options: NULL for defaults. */
struct plumb_decoder *decode_create(const struct plumb_model *model, const struct plumb_set *set, void *device,
	const struct plumb_decoder_options *options);

/* Token t of a fixed sequence in which every id of the vocabulary and the end token come up. */
int32_t decode_token(const struct plumb_config *cfg, int t);

/* Digest of count elements of 4 bytes; and of all state a decoder holds (rows below its position). */
uint64_t decode_digest(uint64_t h, const void *data, size_t bytes);
uint64_t decode_state(struct plumb_decoder *decoder);

/* Digest of the logits of the last pass. */
uint64_t decode_logits(const struct plumb_decoder *decoder);

/* One step, which must succeed. */
void decode_step(struct plumb_decoder *decoder, const int32_t *token, int64_t T);

#endif
