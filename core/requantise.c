/* SPDX-License-Identifier: MIT */
#include "core/requantise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/quantise.h"
#include "core/text.h"

/* Elements whose source is read twice (for a scale of the whole matrix, then for the codes) before the next ones are:
 * few enough to be still in memory the second time. */
enum { BATCH = 1 << 26 };

struct plumb_requantised {
	struct plumb_model model;
	struct plumb_profile profile;
	struct plumb_requantised_group group[PLUMB_GROUP_COUNT];
	struct plumb_list list; /* the changed matrices; place: in the result's model */
	float *largest;         /* (list) magnitude */
	void **memory;          /* (list) */
};

/* ---- a copy of the source: its lists are the result's, the bytes they point to are not ---- */

static void *copy_of(const void *source, size_t bytes)
{
	void *copy = source ? malloc(bytes + !bytes) : NULL;
	return copy ? memcpy(copy, source, bytes) : NULL;
}

static bool copy_layer(struct plumb_layer_weights *w, int64_t experts)
{
	size_t bank = (size_t)experts * sizeof *w->moe.gate;
	struct plumb_ple_weights *ple = w->ple;
	w->moe.gate = copy_of(w->moe.gate, bank);
	w->moe.up = copy_of(w->moe.up, bank);
	w->moe.down = copy_of(w->moe.down, bank);
	if (ple) {
		w->ple = copy_of(ple, sizeof *ple);
		if (w->ple)
			w->ple->table = copy_of(ple->table, (size_t)ple->shards * sizeof *ple->table);
	}
	return w->moe.gate && w->moe.up && w->moe.down && (!ple || (w->ple && w->ple->table));
}

static bool copy_model(struct plumb_model *out, const struct plumb_model *source)
{
	bool good = true;
	*out = *source;
	out->layer = calloc((size_t)source->cfg.layers, sizeof *out->layer);
	for (int i = 0; out->layer && i < source->cfg.layers; i++) {
		if (good) {
			out->layer[i] = source->layer[i];
			good = copy_layer(&out->layer[i], source->cfg.experts);
		}
	}
	return out->layer && good;
}

/* ---- what changes ---- */

static bool has_scales(enum plumb_format format)
{
	return format == PLUMB_FP8_ROW || format == PLUMB_FP8_BLOCK;
}

/* Formats of the experts, before it is known which of them change. */
struct survey {
	const struct plumb_profile *profile;
	bool mixed, seen;
	enum plumb_format scale_format;
};

static int look(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct survey *s = self;
	(void)name;
	if (group != PLUMB_GROUP_EXPERTS || s->profile->keep[group])
		return PLUMB_OK;
	if (w->format != s->profile->format[group] || (s->seen && w->scale_format != s->scale_format))
		s->mixed = true;
	s->scale_format = w->scale_format;
	s->seen = true;
	return PLUMB_OK;
}

struct collector {
	struct plumb_requantised *r;
	bool mixed; /* the experts */
	struct plumb_error *err;
};

static int collect(void *self, enum plumb_group group, const char *name, struct plumb_weight *w)
{
	struct collector *c = self;
	struct plumb_requantised_group *sum = &c->r->group[group];
	enum plumb_format to = c->r->profile.format[group];
	bool other_scales = c->mixed && group == PLUMB_GROUP_EXPERTS && has_scales(to) &&
	                    w->scale_format != plumb_profile_scale_format(to);

	sum->matrices++;
	if (c->r->profile.keep[group] || (w->format == to && !other_scales))
		return PLUMB_OK;
	sum->to = to;
	sum->from[w->format] = true;
	sum->before += (int64_t)plumb_weight_bytes(w);
	sum->changed++;
	int status = plumb_list_add(&c->r->list, (int)group, name, w, c->err);
	w->format = to;
	w->scale_format = plumb_profile_scale_format(to);
	w->global = 0;
	sum->after += (int64_t)plumb_weight_bytes(w);
	return status;
}

/* ---- the work ---- */

static bool has_global(const struct plumb_weight *w)
{
	return w->format == PLUMB_NVFP4 || w->format == PLUMB_FP8_TABLE;
}

static int check_finite(const struct plumb_panel *p, const float *values, struct plumb_error *err)
{
	int64_t cols = p->item->source.cols, n = p->rows * cols;
	for (int64_t i = 0; i < n; i++)
		if (!isfinite(values[i]))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: element [%lld, %lld], stored as %s, is %g, expected a finite number to hold as %s",
				p->item->name, (long long)(p->row + i / cols), (long long)(i % cols),
				plumb_format_name(p->item->source.format), (double)values[i],
				plumb_format_name(p->item->place->format));
	return PLUMB_OK;
}

static int find_largest(void *self, const struct plumb_panel *p, const float *values, struct plumb_error *err)
{
	struct plumb_requantised *r = self;
	int64_t n = p->rows * p->item->source.cols;
	int status = has_global(p->item->place) ? check_finite(p, values, err) : PLUMB_OK;
	float max = 0;

	for (int64_t i = 0; i < n; i++)
		max = fabsf(values[i]) > max ? fabsf(values[i]) : max;
#pragma omp critical(plumb_requantise)
	if (max > r->largest[p->i])
		r->largest[p->i] = max;
	return status;
}

/* Formats without scales end somewhere; f32 holds every value. */
static int check_range(const struct plumb_panel *p, const float *values, struct plumb_error *err)
{
	enum plumb_format to = p->item->place->format;
	int64_t cols = p->item->source.cols, n = p->rows * cols;
	for (int64_t i = 0; (to == PLUMB_F16 || to == PLUMB_BF16) && i < n; i++) {
		unsigned char code[4];
		float back;
		if (fabsf(values[i]) < 65504.0f) /* the largest of f16: most values need no more than this look */
			continue;
		plumb_encode(to, &values[i], 1, code);
		plumb_decode(to, code, 1, &back);
		if (!isfinite(back))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: element [%lld, %lld] is %g, which is beyond the largest number of %s", p->item->name,
				(long long)(p->row + i / cols), (long long)(i % cols), (double)values[i],
				plumb_format_name(to));
	}
	return PLUMB_OK;
}

static int quantise(void *self, const struct plumb_panel *p, const float *values, struct plumb_error *err)
{
	struct plumb_requantised *r = self;
	struct plumb_weight part = *p->item->place, before = part;
	int status = check_finite(p, values, err);

	if (status == PLUMB_OK)
		status = check_range(p, values, err);
	if (status != PLUMB_OK)
		return status;
	before.rows = p->row; /* a multiple of 128: whole blocks */
	part.rows = p->rows;
	unsigned char *data = (unsigned char *)r->memory[p->i] + plumb_weight_data_bytes(&before);
	unsigned char *scale = part.scale ? (unsigned char *)r->memory[p->i] +
	                                            ((const unsigned char *)part.scale - (const unsigned char *)part.data) +
	                                            plumb_weight_scale_bytes(&before)
	                                  : NULL;
	return plumb_quantise(values, &part, data, scale, err);
}

static size_t aligned(size_t bytes)
{
	return (bytes + 15) / 16 * 16;
}

static int allocate(struct plumb_requantised *r, int64_t i, struct plumb_error *err)
{
	struct plumb_weight *w = r->list.item[i].place;
	size_t data = aligned(plumb_weight_data_bytes(w)), scales = plumb_weight_scale_bytes(w);
	unsigned char *memory = r->memory[i] = aligned_alloc(16, data + aligned(scales) + 16);
	if (!memory)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s as %s (%zu bytes)", r->list.item[i].name,
			plumb_format_name(w->format), data + scales);
	w->data = memory;
	w->scale = scales ? memory + data : NULL;
	return PLUMB_OK;
}

/* Whether two of the list are parts of one table: their names differ in what follows the last '.'. */
static bool same_table(const struct plumb_listed *a, const struct plumb_listed *b)
{
	const char *dot = strrchr(a->name, '.');
	return a->group == PLUMB_GROUP_NGRAM_TABLE && b->group == PLUMB_GROUP_NGRAM_TABLE && dot &&
	       strncmp(a->name, b->name, (size_t)(dot - a->name) + 1) == 0;
}

/* The end of the batch that begins at item i. */
static int64_t batch_end(const struct plumb_list *list, int64_t i)
{
	int64_t elements = 0, end = i;
	while (end < list->count && (end == i || elements < BATCH || same_table(&list->item[end - 1], &list->item[end]))) {
		elements += list->item[end].source.rows * list->item[end].source.cols;
		end++;
	}
	return end;
}

static int run_batch(
	struct plumb_requantised *r, int64_t first, int64_t last, struct plumb_watch *watch, struct plumb_error *err)
{
	int status = PLUMB_OK;
	bool globals = false;

	for (int64_t i = first; i < last && status == PLUMB_OK; i++) {
		status = allocate(r, i, err);
		globals = globals || has_global(r->list.item[i].place);
	}
	if (status == PLUMB_OK && globals)
		status = plumb_panels_run(&r->list, first, last, find_largest, r, NULL, err);
	for (int64_t i = first + 1; i < last; i++) /* of all parts of a table, into the last ... */
		if (same_table(&r->list.item[i - 1], &r->list.item[i]) && r->largest[i - 1] > r->largest[i])
			r->largest[i] = r->largest[i - 1];
	for (int64_t i = last - 2; i >= first; i--) /* ... and back */
		if (same_table(&r->list.item[i], &r->list.item[i + 1]))
			r->largest[i] = r->largest[i + 1];
	for (int64_t i = first; i < last; i++)
		if (has_global(r->list.item[i].place))
			r->list.item[i].place->global = plumb_quantise_global(r->list.item[i].place->format, r->largest[i]);
	if (status == PLUMB_OK)
		status = plumb_panels_run(&r->list, first, last, quantise, r, watch, err);
	return status;
}

int plumb_profile_apply(const struct plumb_model *source, const struct plumb_profile *profile, struct plumb_watch *watch,
	struct plumb_requantised **out, struct plumb_error *err)
{
	struct plumb_requantised *r = calloc(1, sizeof *r);
	struct survey survey = {.profile = profile};
	struct collector collector = {.r = r, .err = err};
	int status = PLUMB_OK;

	if (!r || !copy_model(&r->model, source)) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a copy of the model's lists");
		goto done;
	}
	r->profile = *profile;
	plumb_groups_walk(&r->model, look, &survey);
	collector.mixed = survey.mixed;
	status = plumb_groups_walk(&r->model, collect, &collector);
	if (status != PLUMB_OK)
		goto done;
	r->largest = calloc((size_t)r->list.count + 1, sizeof *r->largest);
	r->memory = calloc((size_t)r->list.count + 1, sizeof *r->memory);
	if (!r->largest || !r->memory) {
		status = plumb_fail(
			err, PLUMB_BAD_INPUT, "out of memory for a list of %lld matrices", (long long)r->list.count);
		goto done;
	}
	for (int64_t i = 0; watch && i < r->list.count; i++)
		watch->total += r->list.item[i].source.rows * r->list.item[i].source.cols;
	for (int64_t i = 0, end; i < r->list.count && status == PLUMB_OK; i = end) {
		end = batch_end(&r->list, i);
		status = run_batch(r, i, end, watch, err);
	}
	if (status == PLUMB_OK) {
		*out = r;
		r = NULL;
	}
done:
	plumb_requantised_free(r);
	return status;
}

void plumb_requantised_free(struct plumb_requantised *r)
{
	if (!r)
		return;
	for (int64_t i = 0; r->memory && i < r->list.count; i++)
		free(r->memory[i]);
	free(r->memory);
	free(r->largest);
	plumb_list_free(&r->list);
	plumb_model_free_lists(&r->model);
	free(r);
}

const struct plumb_model *plumb_requantised_model(const struct plumb_requantised *r)
{
	return &r->model;
}

const struct plumb_requantised_group *plumb_requantised_groups(const struct plumb_requantised *r)
{
	return r->group;
}

const char *plumb_requantised_profile(const struct plumb_requantised *r)
{
	return r->profile.name;
}

const char *plumb_requantised_show(const struct plumb_requantised *r, char *text, size_t size)
{
	struct plumb_text line = {.text = text, .size = size};
	int64_t before = 0, after = 0;
	const char *between = "";

	plumb_text_add(&line, "%s: ", r->profile.name);
	for (int g = 0; g < PLUMB_GROUP_COUNT; g++) {
		const struct plumb_requantised_group *group = &r->group[g];
		const char *and = "";
		if (!group->changed)
			continue;
		plumb_text_add(&line, "%s%s ", between, plumb_group_name((enum plumb_group)g));
		for (int f = 0; f < PLUMB_FORMAT_COUNT; f++) {
			if (group->from[f]) {
				plumb_text_add(&line, "%s%s", and, plumb_format_name((enum plumb_format)f));
				and = "+";
			}
		}
		plumb_text_add(&line, " -> %s, %lld %s", plumb_format_name(group->to), (long long)group->changed,
			group->changed == 1 ? "matrix" : "matrices");
		between = "; ";
		before += group->before;
		after += group->after;
	}
	if (*between)
		plumb_text_add(&line, "; %.4g MB -> %.4g MB", (double)before / 1e6, (double)after / 1e6);
	else
		plumb_text_add(&line, "all is held so");
	return text;
}
