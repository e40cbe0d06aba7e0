/* SPDX-License-Identifier: MIT */
/* What `plumb golden diff` and `plumb golden verify` print and write. */
#ifndef PLUMB_TOOLS_GOLDEN_REPORT_H
#define PLUMB_TOOLS_GOLDEN_REPORT_H

#include "tools/golden_diff.h"

struct cJSON;

/* One fact of provenance, of both sides; NULL: not said. */
struct golden_fact {
	const char *name, *a, *b;
};
enum { GOLDEN_FACTS = 16 };

struct golden_report {
	const char *command;         /* "golden diff" */
	const char *name_a, *name_b; /* "A", "B"; "recorded", "now" */
	const char *path_a, *path_b;
	const char *demand; /* "every bit equal" */
	struct golden_fact fact[GOLDEN_FACTS];
	int facts;
	const struct diff *diff;
	bool verbose, quiet;
	double seconds;
	struct cJSON *shard; /* for the JSON file, which takes it over; NULL: nothing */
};

/* The facts of two files that differ; when the files say nothing, nothing. */
void golden_report_facts(struct golden_report *report, const struct plumb_h5 *a, const struct plumb_h5 *b);

void golden_report_print(const struct golden_report *report);
int golden_report_json(const struct golden_report *report, const char *path, struct plumb_error *err);

#endif
