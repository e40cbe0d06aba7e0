/* SPDX-License-Identifier: MIT */
/* plumb bench: what is measured (bench_measure.c), after what check (bench_check.c), and how it is told (bench_report.c). */
#ifndef PLUMB_TOOLS_BENCH_H
#define PLUMB_TOOLS_BENCH_H

#include <cJSON.h>

#include "core/op.h"
#include "core/traffic.h"
#include "tools/origin.h"
#include "tools/session.h"
#include "tools/shard.h"

struct cJSON;

#define BENCH_FORMAT "plumb bench 1" /* of the JSON file */

enum { BENCH_CONTEXTS = 16 };

/* What the command line asks for. */
struct bench_options {
	struct set_options set;
	struct plumb_decoder_options decoder; /* policy, ties, formats */
	bool op[PLUMB_OP_COUNT];              /* which are timed */
	int64_t context[BENCH_CONTEXTS];
	int contexts;
	struct shard shard;                    /* contexts are divided */
	int64_t every_context[BENCH_CONTEXTS]; /* of all shards */
	int every_contexts;
	int64_t repeat;
	bool quick; /* do not run the digests that ship */
	bool nvtx;
	bool project;     /* onto GB10 */
	const char *fuse; /* of opt/fuse.h; NULL: as a graph has them */
	const char *json, *html, *compare, *date;
	const struct origin *origin; /* the command line */
};

/* How an op does in one token. */
struct bench_op {
	bool runs, timed;
	bool warm; /* it may come from the cache, twice which would hold all that is read between two reads of it: on cuda what
	              the op's calls move, on a CPU the whole token */
	int64_t calls;
	int64_t launches;           /* of kernels, for all calls; -1: not known (reference) */
	struct plumb_traffic bytes; /* of all calls */
	double us;                  /* median of a call */
	double least_us;            /* on a CPU, which others may use too: of the quickest run */
};

/* One context. */
struct bench_run {
	int64_t context;
	struct bench_op op[PLUMB_OP_COUNT];
	struct plumb_traffic bytes; /* of a token: every op that runs, timed or not */
	double token_us;            /* median; on cuda of the recorded graph, on the device's clock */
	double host_us;             /* the same as the caller sees it; 0: that is token_us */
	double least_us;            /* as of an op */
	int64_t made;               /* bytes of weights that were made while the clock of a CPU's tokens ran */
	int64_t launches;
};

/* Everything measured. */
struct bench {
	const struct bench_options *options;
	char model[80], profile[64], runs[768];
	char checked[400];          /* what the check found, one line */
	bool wrong[PLUMB_OP_COUNT]; /* not bit-exact: not timed */
	bool cuda;
	double ceiling;      /* streaming read, bytes a second */
	int64_t cache_bytes; /* 0: not known */
	struct bench_run run[BENCH_CONTEXTS];
};

int64_t bench_total(const struct plumb_traffic *t);

/* Every op of the set against the twin on preset small, in the formats that are asked for; wrong ones are marked. Then, on
 * the session's model, the digests that ship for it. Nothing for the reference, which is what others are held to.
 * Errors: PLUMB_MISMATCH when a shipped digest differs (which op it is shows plumb check), PLUMB_BAD_INPUT. */
int bench_check_ops(struct bench *b, struct plumb_error *err);
int bench_check_digests(struct bench *b, struct session *s, struct plumb_error *err);

/* Ceiling, then every context. Errors: PLUMB_BAD_INPUT, and what ops fail with. */
int bench_measure(struct bench *b, struct session *s, struct plumb_error *err);

/* Leave the contexts that are this shard's. */
void bench_share(struct bench_options *o);
/* PLUMB_OK when no op is wrong. bench_verdict prints that, as the last line. */
int bench_status(const struct bench *b);
void bench_verdict(const struct bench *b);
/* The field "shard" of the JSON file: contexts are units. */
void bench_shard_json(const struct bench *b, struct cJSON *tree);

/* A table on standard output, and the JSON file. */
void bench_print(const struct bench *b);
/* The same as a tree ("plumb bench 1"), and the reports that are asked for; old: what --compare read, or NULL. */
struct bench_old;
cJSON *bench_tree(const struct bench *b, const struct bench_old *old);
int bench_write(const struct bench *b, const struct bench_old *old, struct plumb_error *err);

/* An older JSON file: read before the work, compared with after it.
 * Errors: PLUMB_BAD_INPUT naming file, field, value, expectation. */
enum { BENCH_OLD_TIMES = BENCH_CONTEXTS * (PLUMB_OP_COUNT + 1) };
struct bench_old {
	char model[80], profile[64], runs[768], commit[64];
	struct bench_time {
		int64_t context;
		enum plumb_op op; /* PLUMB_OP_COUNT: the whole token */
		double us;        /* of a call */
	} time[BENCH_OLD_TIMES];
	int times;
};
int bench_old_read(const char *path, struct bench_old *out, struct plumb_error *err);
void bench_compare(const struct bench *b, const struct bench_old *old);
/* Whether the older file is of the same model, profile, set and card. */
bool bench_alike(const struct bench *b, const struct bench_old *old);

/* GB10, projected, in microseconds: 230 GB/s, of 273 in the data sheet, and 2.2 us a launch in a graph. */
double bench_project(double bytes, double launches);

#endif
