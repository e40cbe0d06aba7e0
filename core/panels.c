/* SPDX-License-Identifier: MIT */
#include "core/panels.h"

#include <omp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* Values of a panel: 4 MiB, inside a core's share of the last cache; a wide matrix takes the 128 rows that it must. */
enum { PANEL_VALUES = 1 << 20, PANEL_ROWS = PLUMB_FP8_BLOCK_SIZE };

int plumb_list_add(struct plumb_list *list, int group, const char *name, struct plumb_weight *w, struct plumb_error *err)
{
	if (list->count == list->room) {
		int64_t room = list->room ? 2 * list->room : 64;
		struct plumb_listed *item = realloc(list->item, (size_t)room * sizeof *item);
		if (!item)
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "out of memory for a list of %lld matrices", (long long)room);
		list->item = item;
		list->room = room;
	}
	char *copy = strdup(name);
	if (!copy)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the name of %s", name);
	list->item[list->count++] = (struct plumb_listed){.group = group, .name = copy, .source = *w, .place = w};
	return PLUMB_OK;
}

void plumb_list_free(struct plumb_list *list)
{
	for (int64_t i = 0; i < list->count; i++)
		free(list->item[i].name);
	free(list->item);
	*list = (struct plumb_list){0};
}

static int64_t panel_rows(const struct plumb_weight *w)
{
	int64_t rows = PANEL_VALUES / w->cols / PANEL_ROWS * PANEL_ROWS;
	return rows < PANEL_ROWS ? PANEL_ROWS : rows;
}

static int64_t panels_of(const struct plumb_weight *w)
{
	return (w->rows + panel_rows(w) - 1) / panel_rows(w);
}

/* Panels before each item, and after the last: start[last - first]. NULL: no memory. */
static int64_t *count_panels(const struct plumb_list *list, int64_t first, int64_t last, size_t *values)
{
	int64_t *start = malloc((size_t)(last - first + 1) * sizeof *start), sum = 0;
	*values = 1;
	for (int64_t i = first; start && i < last; i++) {
		const struct plumb_weight *w = &list->item[i].source;
		int64_t rows = panel_rows(w) < w->rows ? panel_rows(w) : w->rows;
		start[i - first] = sum;
		sum += panels_of(w);
		if ((size_t)(rows * w->cols) > *values)
			*values = (size_t)(rows * w->cols);
	}
	if (start)
		start[last - first] = sum;
	return start;
}

static struct plumb_panel panel_at(
	const struct plumb_list *list, int64_t first, int64_t last, const int64_t *start, int64_t p)
{
	int64_t low = 0, high = last - first;
	while (high - low > 1) {
		int64_t middle = low + (high - low) / 2;
		if (start[middle] <= p)
			low = middle;
		else
			high = middle;
	}
	const struct plumb_listed *item = &list->item[first + low];
	int64_t rows = panel_rows(&item->source), row = (p - start[low]) * rows;
	return (struct plumb_panel){.item = item,
		.i = first + low,
		.row = row,
		.rows = item->source.rows - row < rows ? item->source.rows - row : rows};
}

int plumb_panels_run(const struct plumb_list *list, int64_t first, int64_t last, plumb_panel_fn *fn, void *self,
	struct plumb_watch *watch, struct plumb_error *err)
{
	size_t values;
	int64_t *start = count_panels(list, first, last, &values), failed_at = INT64_MAX, done = watch ? watch->done : 0;
	int status = PLUMB_OK;
	bool memory = false;

	if (!start)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld matrices", (long long)(last - first));
#pragma omp parallel
	{
		float *buffer = malloc(values * sizeof *buffer);
		struct plumb_error mine = {""};
#pragma omp for schedule(dynamic)
		for (int64_t p = 0; p < start[last - first]; p++) {
			struct plumb_panel panel = panel_at(list, first, last, start, p);
			int64_t now, cols = panel.item->source.cols;
			if (!buffer) {
#pragma omp atomic write
				memory = true;
				continue;
			}
			for (int64_t n = 0; n < panel.rows; n++)
				plumb_weight_row(&panel.item->source, panel.row + n, 0, cols, buffer + n * cols);
			int one = fn(self, &panel, buffer, &mine);
#pragma omp critical(plumb_panels)
			if (one != PLUMB_OK && p < failed_at) {
				failed_at = p;
				status = one;
				if (err)
					*err = mine;
			}
#pragma omp atomic capture
			now = done += panel.rows * cols;
			if (watch && watch->step && omp_get_thread_num() == 0)
				watch->step(watch->self, now, watch->total);
		}
		free(buffer);
	}
	free(start);
	if (watch)
		watch->done = done;
	if (memory)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu values of a matrix", values);
	return status;
}
