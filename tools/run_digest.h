/* SPDX-License-Identifier: MIT */
/* Digests of a run, one a token and layer: to tell in which token and layer two runs part, from a file of a few KB. */
#ifndef PLUMB_TOOLS_RUN_DIGEST_H
#define PLUMB_TOOLS_RUN_DIGEST_H

#include "core/decoder.h"
#include "core/digest.h"

/* What a run was, as its file says. Strings are owned by whoever filled them in. */
struct run_facts {
	const char *model;   /* "synthetic full" or "checkpoint" */
	const char *profile; /* "" without one */
	int64_t weight_seed;
	const char *policy;
	const char *caches; /* format of keys and values; "policy": as that says */
	const char *state;  /* format of the GDN state */
	int64_t context;    /* positions before the prompt */
	int64_t capacity;   /* positions of the caches, as asked for: rows of index scores are as long as it says */
	const int32_t *prompt;
	int64_t prompts;
	const int32_t *token; /* decoded */
	int64_t tokens;
};

/* Digests by position (first .. first + positions - 1) and layer (row L: outside the layers). A cell has every output of
 * every op for that token, and the rows of state that it wrote; the recurrent state and the history of ids go to the last
 * token of each step. */
struct run_digests {
	int layers; /* L */
	int64_t first, positions;
	struct plumb_digest *cell; /* (positions, L + 1) */
	int64_t last;              /* of the running step: its last position */
};
int run_digests_create(int layers, int64_t first, int64_t positions, struct run_digests *out, struct plumb_error *err);
void run_digests_free(struct run_digests *d);
int run_digests_call(struct run_digests *d, const struct plumb_call *call); /* after it has run */

/* Of one position, of everything. */
struct plumb_digest run_digests_token(const struct run_digests *d, int64_t position);
struct plumb_digest run_digests_total(const struct run_digests *d);

/* Write a file: the same bytes from every producer of the same run. positions: of them, how many were run. */
int run_digests_write(const char *path, const struct run_digests *d, int64_t positions, const struct run_facts *facts,
	struct plumb_error *err);

/* A file that was written so. Errors: PLUMB_BAD_INPUT naming file, field, value, expectation. */
struct run_expected {
	struct run_facts facts;
	int layers;
	int64_t positions;
	char (*cell)[9]; /* (positions, L + 1) hexadecimal */
	char total[33];
	void *memory; /* the parsed file, which the strings are part of */
};
int run_expected_read(const char *path, struct run_expected *out, struct plumb_error *err);
/* The same of a text in memory; name: what messages call it. */
int run_expected_parse(const char *text, size_t size, const char *name, struct run_expected *out, struct plumb_error *err);
void run_expected_free(struct run_expected *e);

/* PLUMB_OK when tokens, every digest and the total are the expected ones. PLUMB_MISMATCH naming the first token and layer
 * that are not; PLUMB_BAD_INPUT when it was another run (model, profile, policy, context, prompt). */
int run_expected_compare(const struct run_expected *e, const char *path, const struct run_digests *d, int64_t positions,
	const struct run_facts *facts, struct plumb_error *err);

#endif
