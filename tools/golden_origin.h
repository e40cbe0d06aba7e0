/* SPDX-License-Identifier: MIT */
/* Where a golden file comes from: what is written into it and what `plumb golden verify` holds against now. */
#ifndef PLUMB_TOOLS_GOLDEN_ORIGIN_H
#define PLUMB_TOOLS_GOLDEN_ORIGIN_H

#include "golden/golden.h"
#include "tools/session.h"

/* Texts of the root's attributes; NULL: not there. Owned. */
struct golden_origin {
	char *producer;   /* "plumb 0.1.0" */
	char *date;       /* as the user said; never the clock's */
	char *checkpoint; /* see golden_origin_make */
	char *config;     /* text of config.json; NULL where there is none or it is too long for an attribute */
	char *set, *device, *mode, *ops, *ties;
	char *profile; /* its name; "file NAME" where it came from a file */
	char *kv_format, *state_format;
};

/* Of a session. The checkpoint is told by a digest:
 *   sha256:HEX                 of config.json and every *.safetensors of the folder by name: a line `NAME SIZE` and the bytes
 *                              of each
 *   sha256-sampled:HEX         the same with the first 64 KiB and then the first 4 KiB of every MiB, for folders above 1 GiB
 *   synthetic PRESET, seed N   a generated model
 * Errors: PLUMB_BAD_INPUT naming the file. Released by golden_origin_free also after an error. */
int golden_origin_make(const struct set_options *options, const struct session *session, enum plumb_ties ties,
	const char *date, struct golden_origin *out, struct plumb_error *err);
void golden_origin_free(struct golden_origin *origin);

/* The text of an attribute of the root by its name, or NULL. */
const char *golden_origin_text(const struct golden_origin *origin, const char *name);

#endif
