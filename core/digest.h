/* SPDX-License-Identifier: MIT */
/* One number for everything a run wrote: every output of every op, every row of the state left behind.
 *
 * Each row of each output (the part that belongs to one token) is hashed with its op, layer, site, operand and
 * position, and the hashes are added, so the digest does not depend on how many rows a call had. All NaNs count as one,
 * since their payload is nobody's promise; -0 and +0 differ. 128 bits, not cryptographic: it tells runs apart, not
 * enemies. */
#ifndef PLUMB_CORE_DIGEST_H
#define PLUMB_CORE_DIGEST_H

#include "core/decoder.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_digest {
	uint64_t sum[2];
	int64_t values; /* numbers that went in */
};

/* Zero the struct to start. Add the outputs of a call, after it ran. */
void plumb_digest_call(struct plumb_digest *digest, const struct plumb_call *call);

/* The same of one row of the call, 0 <= t < T. */
void plumb_digest_call_row(struct plumb_digest *digest, const struct plumb_call *call, int64_t t);

/* Add what the call wrote into its state for row t: rows of rings and caches, and a block key where one is complete.
 * last: row t is the last of its step; then also what has no rows, the recurrent state and the history of ids.
 * Errors: PLUMB_BAD_INPUT for memory. */
int plumb_digest_call_state(
	struct plumb_digest *digest, const struct plumb_call *call, int64_t t, bool last, struct plumb_error *err);

/* Add the state of all layers of a decoder. */
void plumb_digest_state(struct plumb_digest *digest, struct plumb_decoder *decoder);

/* The same of some layers: layer (L), true for those that are added; NULL: all. */
void plumb_digest_state_layers(struct plumb_digest *digest, struct plumb_decoder *decoder, const bool *layer);

/* 32 hexadecimal digits. text: at least 33 bytes. Returns text. */
const char *plumb_digest_show(const struct plumb_digest *digest, char text[33]);

#ifdef __cplusplus
}
#endif
#endif
