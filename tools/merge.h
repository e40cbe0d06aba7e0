/* SPDX-License-Identifier: MIT */
/* Joining the results of N shards (tools/shard.h) into the verdict of the whole. */
#ifndef PLUMB_TOOLS_MERGE_H
#define PLUMB_TOOLS_MERGE_H

#include "core/digest.h"
#include "tools/shard.h"

struct cJSON;

/* One file, read and found to be a result of a shard. */
struct merge_part {
	const char *path;
	struct cJSON *root;
	const struct cJSON *shard; /* its field "shard" */
	const char *command;
	int64_t index, of, total;
	int status;          /* PLUMB_OK or PLUMB_MISMATCH */
	const char *failure; /* why it has no verdicts, or NULL */
};

/* The whole. */
struct merge {
	struct merge_part *part; /* (parts), by index */
	int parts;
	const struct cJSON **unit;    /* (total) by position; NULL: of a shard that failed */
	const struct merge_part **by; /* (total) the part that ran it */
	int64_t total, passed, failed, skipped, missing;
	bool has_digest; /* every shard has one */
	struct plumb_digest digest;
	int status; /* PLUMB_OK: every unit was run once, none failed, and one passed at least */

	/* What a command's own results say together (tools/faults_score.h): a verdict over all units, which no shard has. */
	const char *gate_name; /* NULL: none */
	enum shard_verdict gate;
	char gate_text[200];
	const struct cJSON *whole; /* the joined result in the command's own format, for merge_json to copy; NULL: none */
};

/* Read and join. Errors: PLUMB_BAD_INPUT for a file that is no result of a shard (naming file, field, value and expectation),
 * for shards of different runs (naming the field, both files and both values), for one that is there twice or missing, for a
 * unit that two shards have or none, and for a file whose status contradicts its verdicts. Released by merge_free, also after
 * an error. */
int merge_make(const char *const *path, int paths, struct merge *out, struct plumb_error *err);
void merge_free(struct merge *m);

/* The joined result: the field "shard" of a whole (I = N = 1), so that it can be merged again and reported on. */
struct cJSON *merge_json(const struct merge *m);

#endif
