/* SPDX-License-Identifier: MIT */
/* A golden file in the making: OUT.part takes the tensors as they are computed, each at its place; OUT.part-state says
 * how far that went, with the decoder's state there. Both belong to one make, told by its fingerprint, and are gone
 * when it is done. The golden file itself is written from the part at the end, in one order, so it is the same however
 * often the make was stopped. Neither is a golden file nor looks like one. */
#ifndef PLUMB_TOOLS_GOLDEN_PART_H
#define PLUMB_TOOLS_GOLDEN_PART_H

#include <stdbool.h>
#include <stdint.h>

#include "core/decoder.h"
#include "core/status.h"

enum { GOLDEN_PART_HEADER = 4096 }; /* bytes before the first tensor */

enum golden_phase {
	GOLDEN_PROMPT, /* done: tokens of the prompt */
	GOLDEN_GREEDY, /* done: tokens found */
	GOLDEN_DECODE, /* done: tokens fed again */
};

/* How far a make is. */
struct golden_point {
	int32_t run; /* of the plan; all of them: only the writing is left */
	int32_t phase;
	int64_t done;
	int64_t position; /* of the decoder */
	int32_t next;     /* greedy: the token that follows */
	int32_t saved;    /* a decoder state lies in OUT.part-state */
};

struct golden_part {
	int fd;
	char *path, *state; /* OUT.part, OUT.part-state */
	char fingerprint[65];
	struct golden_point point; /* where to begin */
};

/* Open the part of OUT. Without resume none may be there; with resume a part of the same fingerprint is taken up where
 * its state says, from the beginning when that is missing or damaged (*note says so then). bytes: of the whole part.
 * Errors: PLUMB_BAD_INPUT: a part without resume, of another make, being written by another process; a file that is no
 * part; no room. Released by golden_part_close (which leaves the files) or golden_part_remove also after an error. */
int golden_part_open(const char *out, const char *fingerprint, int64_t bytes, bool resume, struct golden_part *part,
	const char **note, struct plumb_error *err);
void golden_part_close(struct golden_part *part);
void golden_part_remove(struct golden_part *part);

int golden_part_write(struct golden_part *part, int64_t offset, const void *data, int64_t size, struct plumb_error *err);
int golden_part_read(struct golden_part *part, int64_t offset, void *data, int64_t size, struct plumb_error *err);

/* Record a point; decoder NULL: no state is needed there. All writes before it are on the disk first. */
int golden_part_save(
	struct golden_part *part, struct golden_point point, struct plumb_decoder *decoder, struct plumb_error *err);

/* Bring a fresh decoder to part->point, which has a saved state. token: (position) that it has seen, for its count
 * only. */
int golden_part_restore(struct golden_part *part, struct plumb_decoder *decoder, struct plumb_error *err);

#endif
