/* SPDX-License-Identifier: MIT */
/* The score of faults as a tree, "plumb faults score 1": made of faults that were judged, joined from shards, counted, printed. What
 * --json, --html, the terminal and `plumb merge` show is one tree. */
#ifndef PLUMB_TOOLS_FAULTS_SCORE_H
#define PLUMB_TOOLS_FAULTS_SCORE_H

#include "tools/faults.h"
#include "tools/merge.h"
#include "tools/origin.h"

struct cJSON;

struct fault_score_options {
	const char *lane;             /* "simt" or "cuda" */
	const char *source, *library; /* folders; library NULL: the source's own */
	double seconds;
	int64_t seed, cases;
	int64_t least;       /* percent of the mutants that have to be killed */
	struct shard part;   /* 1/1: the whole */
	int64_t total;       /* faults of the whole */
	const char *digest;  /* of which faults those are, and of the files of the tree: shards of one run agree in it */
	const char *stopped; /* why not all of this shard's were judged; NULL: they were */
	const struct origin *origin;
};

/* The tree of these faults, unit by unit the part of the whole that options name, counted; waiting ones are left out. *status: the
 * exit status. To be deleted. */
struct cJSON *faults_score(
	struct fault *const *fault, size_t count, const struct fault_score_options *options, int *status);

/* Print the tables, the survivors and the verdict. Texts of the tree are not trusted. */
void faults_score_print(const struct cJSON *score);

/* The score of shards. *out: to be deleted, also after an error. Sets m->status, and what merge_json says beside the units: whether
 * enough of all mutants together were killed. Errors: PLUMB_BAD_INPUT, for a file whose faults are not those of its units. */
int faults_score_join(struct merge *m, struct cJSON **out, struct plumb_error *err);

/* Take over from an earlier result of the same run (another digest, seed or share is an error) what is known of these faults.
 * *taken: of how many. No file: none. */
int faults_score_resume(const char *path, struct fault *const *fault, size_t count,
	const struct fault_score_options *options, size_t *taken, struct plumb_error *err);

/* ---- tools/faults_count.c: of a tree that has its faults ---- */

enum { FAULT_TABLES = 6 };

/* Whether a fault with this outcome passes, fails or is skipped, as a unit of a shard. least: a mutant's life is a failure by itself
 * only where all of them have to be killed. */
enum shard_verdict faults_verdict(enum fault_outcome outcome, bool mutant, int64_t least);
/* The outcome of that name; FAULT_WAITING: there is none. */
enum fault_outcome faults_outcome_find(const char *name);
/* Add the tables, the verdict "pass", and mutants{killed, total, least, judged}; part: of a whole that judges the mutants. Returns the
 * exit status. */
int faults_count(struct cJSON *score, int64_t least, bool part);

/* Name and words of the verdict on all mutants, where fewer than all of them do; false: all have to be killed. */
extern const char faults_gate_name[];
bool faults_gate(const struct cJSON *score, char *text, size_t size, bool *passes);

#endif
