/* SPDX-License-Identifier: MIT */
/* How many bytes of weights a model of some config has in a profile, and how many a decoded token reads: from the table of
 * ops and the config alone, without a model. */
#ifndef PLUMB_CORE_PROFILE_BYTES_H
#define PLUMB_CORE_PROFILE_BYTES_H

#include <stddef.h>
#include <stdint.h>

#include "core/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_bytes {
	int64_t matrices;
	int64_t resident; /* data and scales of all of them; global scales are not counted */
	int64_t token;    /* of these, what one token reads: one row of the embedding, Hg of each n-gram table, A experts of
	                     each layer, all of everything else */
};

/* group[PLUMB_GROUP_COUNT] is what belongs to no group: vectors, counted as bf16. Groups that the profile keeps are counted
 * as bf16 too. The n-gram table is one matrix. A row of a table in 128 x 128 blocks would read its blocks' scales: no table
 * is held so. */
struct plumb_profile_bytes {
	struct plumb_bytes group[PLUMB_GROUP_COUNT + 1], all;
};

/* Errors: PLUMB_BAD_INPUT for a config whose n-gram constants do not exist. */
int plumb_profile_bytes(const struct plumb_config *cfg, const struct plumb_profile *profile,
	struct plumb_profile_bytes *out, struct plumb_error *err);

/* The config of the released model, golden/release.json: its text_config, model-spec 1.3. */
void plumb_release_config(struct plumb_config *out);
extern const char plumb_release_json[];
extern const size_t plumb_release_json_size;

#ifdef __cplusplus
}
#endif
#endif
