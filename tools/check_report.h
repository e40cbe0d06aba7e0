/* SPDX-License-Identifier: MIT */
/* The result of a check for people, machines and CI. */
#ifndef PLUMB_TOOLS_CHECK_REPORT_H
#define PLUMB_TOOLS_CHECK_REPORT_H

#include "core/requantise.h"
#include "tools/check.h"
#include "tools/check_shard.h"

struct check_report {
	const char *golden, *checkpoint, *producer; /* producer may be NULL */
	const char *set;                            /* "set ref (oracle, f32)" */
	enum plumb_ties ties;
	int64_t tokens;
	const struct check_view *view;
	int views;
	int verbose;        /* 1: every tensor, not one line a layer and stage; 2: and its demand */
	bool quiet;         /* the last line only */
	bool other_formats; /* caches or state are stored otherwise than the recorded ones */
	bool digest;        /* print one digest of the whole trace */
	int layers;         /* L */
	int64_t scanned;    /* weights that were read and are numbers; -1: not asked for */
	const struct plumb_requantised *requantised; /* NULL: weights are held as stored */
	const struct check_shard *shard;             /* what the result says of its part of the work */
	const char *failure;                         /* why there are no views, else NULL */
};

int check_report_status(const struct check_report *report);
void check_report_print(const struct check_report *report);
int check_report_json(const struct check_report *report, const char *path, struct plumb_error *err);
int check_report_junit(const struct check_report *report, const char *path, struct plumb_error *err);

#endif
