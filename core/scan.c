/* SPDX-License-Identifier: MIT */
#include "core/scan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/numeric.h"

struct scan {
	struct plumb_list list;
	int64_t *bad;   /* (list) values that are not finite */
	int64_t *first; /* (list) of them the lowest, counted through the rows; -1: none */
	struct plumb_error *err;
};

static int collect(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct scan *s = self;
	return plumb_list_add(&s->list, (int)group, name, w, s->err);
}

static int look(void *self, const struct plumb_panel *p, const float *values, struct plumb_error *err)
{
	struct scan *s = self;
	int64_t cols = p->item->source.cols, n = p->rows * cols, bad = 0, first = -1;
	(void)err;
	for (int64_t i = 0; i < n; i++) {
		if (!isfinite(values[i])) {
			first = bad ? first : p->row * cols + i;
			bad++;
		}
	}
	if (!bad)
		return PLUMB_OK;
#pragma omp critical(plumb_scan)
	{
		s->bad[p->i] += bad;
		if (s->first[p->i] < 0 || first < s->first[p->i])
			s->first[p->i] = first;
	}
	return PLUMB_OK;
}

/* What makes element (n, k) no number: its code, or the scale of its group. */
static void explain(const struct plumb_weight *w, int64_t n, int64_t k, char *text, size_t size)
{
	const unsigned char *data = (const unsigned char *)w->data + (size_t)n * plumb_format_row_bytes(w->format, w->cols);
	float value;
	plumb_weight_row(w, n, k, 1, &value);
	if (w->format == PLUMB_NVFP4) {
		int64_t groups = plumb_parts(w->cols, PLUMB_NVFP4_GROUP), group = k / PLUMB_NVFP4_GROUP;
		unsigned code = ((const unsigned char *)w->scale)[n * groups + group];
		bool nan = isnan(plumb_e4m3_to_f32((uint8_t)code));
		snprintf(text, size, "the scale of columns %lld on has code 0x%02x%s",
			(long long)(group * PLUMB_NVFP4_GROUP), code,
			nan ? ", which is NaN" : " and overflows with the scale of the matrix");
		return;
	}
	if (w->format < (enum plumb_format)PLUMB_PLAIN_FORMATS) {
		snprintf(text, size, "it is %g", (double)value);
		return;
	}
	if (isnan(plumb_e4m3_to_f32(data[k])))
		snprintf(text, size, "its code is 0x%02x, which is NaN", (unsigned)data[k]);
	else
		snprintf(text, size, "its code 0x%02x overflows with scale %g", (unsigned)data[k],
			(double)plumb_weight_scale(w, n, k));
}

static int report(struct scan *s)
{
	int64_t all = 0, tensors = 0, which = -1;
	for (int64_t i = s->list.count - 1; i >= 0; i--) {
		if (s->bad[i]) {
			which = i;
			all += s->bad[i];
			tensors++;
		}
	}
	if (which < 0)
		return PLUMB_OK;
	const struct plumb_listed *item = &s->list.item[which];
	int64_t n = s->first[which] / item->source.cols, k = s->first[which] % item->source.cols;
	char why[160];
	explain(&item->source, n, k, why, sizeof why);
	return plumb_fail(s->err, PLUMB_BAD_INPUT,
		"tensor %s (%s): row %lld, column %lld is no finite number: %s; %lld such value%s in %lld tensor%s, "
		"expected none",
		item->name, plumb_format_name(item->source.format), (long long)n, (long long)k, why, (long long)all,
		all == 1 ? "" : "s", (long long)tensors, tensors == 1 ? "" : "s");
}

int plumb_model_scan(const struct plumb_model *model, struct plumb_watch *watch, int64_t *values, struct plumb_error *err)
{
	struct plumb_model m = *model; /* the walk is made for whoever changes weights; this one does not */
	struct scan s = {.err = err};
	int status = plumb_groups_walk(&m, collect, &s);

	if (status == PLUMB_OK)
		status = plumb_vectors_walk(&m, collect, &s);
	*values = 0;
	if (status == PLUMB_OK) {
		s.bad = calloc((size_t)s.list.count + 1, sizeof *s.bad);
		s.first = calloc((size_t)s.list.count + 1, sizeof *s.first);
		if (!s.bad || !s.first)
			status = plumb_fail(
				err, PLUMB_BAD_INPUT, "out of memory for a list of %lld tensors", (long long)s.list.count);
	}
	for (int64_t i = 0; i < s.list.count && status == PLUMB_OK; i++) {
		s.first[i] = -1;
		*values += s.list.item[i].source.rows * s.list.item[i].source.cols;
	}
	if (watch)
		watch->total += *values;
	if (status == PLUMB_OK)
		status = plumb_panels_run(&s.list, 0, s.list.count, look, &s, watch, err);
	if (status == PLUMB_OK)
		status = report(&s);
	free(s.bad);
	free(s.first);
	plumb_list_free(&s.list);
	return status;
}
