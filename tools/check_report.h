/* SPDX-License-Identifier: MIT */
/* The result of a check for people, machines and CI. */
#ifndef PLUMB_TOOLS_CHECK_REPORT_H
#define PLUMB_TOOLS_CHECK_REPORT_H

#include <cJSON.h>

#include "core/requantise.h"
#include "tools/check.h"
#include "tools/check_shard.h"
#include "tools/origin.h"

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
	const struct origin *origin;                 /* what made the report */
};

int check_report_status(const struct check_report *report);
void check_report_print(const struct check_report *report);
/* The whole report as a tree ("plumb check 1"): the caller deletes it. */
cJSON *check_report_tree(const struct check_report *report);
int check_report_json(const struct check_report *report, const char *path, struct plumb_error *err);
int check_report_junit(const struct check_report *report, const char *path, struct plumb_error *err);

/* Coordinates of an element of a tensor: "3,17". */
void check_item_coordinates(const struct check_item *item, int64_t index, char *text, size_t size);
/* The element to look at first: a class mismatch, else the largest error. */
const struct plumb_at *check_item_worst(const struct check_item *item);
/* The expected items in the order of a forward pass: malloc'ed, *count of them; NULL when memory is out. */
const struct check_item **check_items_in_order(const struct check_view *view, int layers, int *count);
/* Of all views together. */
const char *check_report_digest(const struct check_report *report, char text[33]);

#endif
