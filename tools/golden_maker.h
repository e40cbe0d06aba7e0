/* SPDX-License-Identifier: MIT */
/* Making a golden file: runs the decoder as planned, takes down what its ops write, and writes the file. */
#ifndef PLUMB_TOOLS_GOLDEN_MAKER_H
#define PLUMB_TOOLS_GOLDEN_MAKER_H

#include "tools/golden_part.h"
#include "tools/golden_plan.h"
#include "tools/session.h"

struct golden_make {
	const char *out;
	const struct golden_plan *plan;
	const struct session *session;
	enum plumb_ties ties;
	struct plumb_decoder_options formats; /* of caches and state; the rest is not looked at */
	uint64_t page_seed;
	bool resume, progress;
	double save_seconds; /* between two points to go on from; 0: after every step */
	const char *label;   /* of messages and of the progress line: "golden make" */
};

struct golden_made {
	char sha256[65]; /* the seal: equal seals are equal contents */
	int64_t nan;     /* NaN among the float values of this process's part of the work */
	bool resumed;
	const char *note; /* NULL, or what became of the resuming */
};

/* Make it. Nothing is at `out` before all of it is. Stopped in between, OUT.part and OUT.part-state are left to go on
 * from; after an error too. Errors: PLUMB_BAD_INPUT and what ops return; PLUMB_MISMATCH: every logit of a step is NaN.
 */
int golden_make(const struct golden_make *make, struct golden_made *made, struct plumb_error *err);

/* tools/golden_record.c: what ops write, into the part. */
struct golden_recorder {
	const struct golden_plan *plan;
	const struct golden_run *run;
	struct golden_part *part;
	struct plumb_error *err;
	void *row; /* scratch */
	size_t row_bytes;
	int64_t nan;
};
struct plumb_observer golden_record_observer(struct golden_recorder *recorder);
int golden_record_states(struct golden_recorder *recorder, struct plumb_decoder *decoder);
void golden_record_free(struct golden_recorder *recorder);

/* tools/golden_build.c: the golden file from a complete part. */
int golden_build(const struct golden_make *make, struct golden_part *part, char sha256[65], struct plumb_error *err);

#endif
