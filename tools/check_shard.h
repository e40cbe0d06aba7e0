/* SPDX-License-Identifier: MIT */
/* `plumb check --shard I/N`. The local view divides by layers: each begins from recorded tensors, so the others need not run
 * (where the tensor between two is not recorded, the earlier one runs too and is not compared). The propagated view is one
 * chain from the tokens on and goes to one shard whole. Units of the result are tensors. */
#ifndef PLUMB_TOOLS_CHECK_SHARD_H
#define PLUMB_TOOLS_CHECK_SHARD_H

#include "tools/check.h"
#include "tools/session.h"
#include "tools/shard.h"

struct cJSON;

struct check_shard {
	struct shard shard;
	bool view[2];                    /* whether the shard runs anything of it */
	bool *layer;                     /* (L+1) of the local view; NULL: all, there is one shard */
	struct check_view rest[2];       /* items of views that another shard runs */
	const struct check_view *all[2]; /* every view that is asked for, in order: run here, or in rest */
	int views;
	const struct set_options *set; /* what all shards must agree in, with the rest of these */
	const struct session *session;
	enum plumb_policy policy;
	enum plumb_ties ties;
	const char *golden, *layers, *tolerances;
	bool bounds;
};

/* Share the work out. wanted: views that are asked for; options: layers that are. Released by check_shard_free, also after an
 * error. Errors: PLUMB_BAD_INPUT, no memory. */
int check_shard_make(
	struct check_shard *s, const bool wanted[2], const struct check_options *options, struct plumb_error *err);
void check_shard_free(struct check_shard *s);

/* The field "shard" of a report. status: of what this shard ran. failure: of a run that did not get to its comparison (s then
 * says which shard, and no more), or NULL. */
int check_shard_json(
	const struct check_shard *s, struct cJSON *root, int status, const char *failure, struct plumb_error *err);

/* The units as TAP, for --tap. */
int check_shard_tap(const struct check_shard *s, const char *failure, const char *path, struct plumb_error *err);

#endif
