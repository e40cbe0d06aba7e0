/* SPDX-License-Identifier: MIT */
/* Work over all rows of many matrices, in parallel, with the values decoded: what requantising and scanning share. */
#ifndef PLUMB_CORE_PANELS_H
#define PLUMB_CORE_PANELS_H

#include <stdint.h>

#include "core/profile.h"
#include "core/status.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Matrices with their names. */
struct plumb_listed {
	int group; /* enum plumb_group, or PLUMB_GROUP_COUNT of a vector */
	char *name;
	struct plumb_weight source; /* what panels are decoded from */
	struct plumb_weight *place; /* where it is in the model */
};
struct plumb_list {
	struct plumb_listed *item;
	int64_t count, room;
};

/* Append a copy of name and *w. Errors: PLUMB_BAD_INPUT for memory. */
int plumb_list_add(struct plumb_list *list, int group, const char *name, struct plumb_weight *w, struct plumb_error *err);
void plumb_list_free(struct plumb_list *list);

/* Told how far a long work is, in elements, from the thread that called. step NULL: nobody asks. */
struct plumb_watch {
	void (*step)(void *self, int64_t done, int64_t total);
	void *self;
	int64_t done, total; /* kept by plumb_panels_run: done grows by the elements of every panel */
};

/* Rows [row, row + rows) of item number i. */
struct plumb_panel {
	const struct plumb_listed *item;
	int64_t i, row, rows;
};

/* values: (rows, cols) f32, the caller's until it returns. Called from several threads at once, each panel once. */
typedef int plumb_panel_fn(void *self, const struct plumb_panel *panel, const float *values, struct plumb_error *err);

/* Run fn over items [first, last) of a list in panels that begin at multiples of 128 rows (so that no two write into one
 * byte of codes or scales). After a failure the rest still runs; returned are status and message of the first panel, in
 * order of items and rows, that failed, whatever the threads. Errors: PLUMB_BAD_INPUT for memory. */
int plumb_panels_run(const struct plumb_list *list, int64_t first, int64_t last, plumb_panel_fn *fn, void *self,
	struct plumb_watch *watch, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
