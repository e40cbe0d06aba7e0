/* SPDX-License-Identifier: MIT */
#include "core/bind.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text.h"

const char *plumb_shape_show(const struct plumb_shape *shape, char text[192])
{
	struct plumb_tensor t = {.rank = shape->rank};
	memcpy(t.dim, shape->dim, sizeof shape->dim);
	return plumb_tensor_shape(&t, text);
}

bool plumb_shape_equal(const struct plumb_tensor *t, const struct plumb_shape *shape)
{
	return t->rank == shape->rank && memcmp(t->dim, shape->dim, (size_t)shape->rank * sizeof shape->dim[0]) == 0;
}

const struct plumb_tensor *plumb_bind_look_up(struct plumb_binder *b, const char *name)
{
	size_t place;
	const struct plumb_tensor *t = plumb_shards_find(b->shards, name, &place);
	if (t)
		b->bound[place] = true;
	return t;
}

static bool is_plain(enum plumb_dtype dtype, enum plumb_format *format)
{
	switch (dtype) {
	case PLUMB_DTYPE_F32:
		*format = PLUMB_F32;
		return true;
	case PLUMB_DTYPE_F16:
		*format = PLUMB_F16;
		return true;
	case PLUMB_DTYPE_BF16:
		*format = PLUMB_BF16;
		return true;
	default:
		return false;
	}
}

/* A number of one element: rank 0, or [1]. */
static bool is_single(const struct plumb_tensor *t)
{
	return t->rank == 0 || (t->rank == 1 && t->dim[0] == 1);
}

static void wrong_shape(struct plumb_binder *b, const struct plumb_tensor *t, const char *expected)
{
	char found[192];
	b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: tensor %s has shape %s, expected %s", t->file, t->name,
		plumb_tensor_shape(t, found), expected);
}

static void wrong_dtype(struct plumb_binder *b, const struct plumb_tensor *t, const char *expected)
{
	b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: tensor %s has dtype %s, expected %s", t->file, t->name,
		plumb_dtype_name(t->dtype), expected);
}

/* Memory that lives as long as the checkpoint. */
static void *keep(struct plumb_binder *b, const struct plumb_tensor *t, size_t bytes)
{
	/* the list has room for a power of two entries, so it grows when their number is one */
	bool full = (b->copies & (b->copies - 1)) == 0;
	void **list = full ? realloc(b->copy, (b->copies ? 2 * b->copies : 1) * sizeof *list) : b->copy;
	void *copy;
	if (list)
		b->copy = list;
	copy = list ? malloc(bytes) : NULL;
	if (copy)
		b->copy[b->copies++] = copy;
	else
		b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: out of memory for a copy of tensor %s (%zu bytes)",
			t->file, t->name, bytes);
	return copy;
}

/* The bytes of a tensor at an address that its values can be read from. Writers pad the header so that the mapping
 * serves; the format does not demand it, and a kernel cannot load from an odd address, so such a tensor is copied. */
static const void *aligned(struct plumb_binder *b, const struct plumb_tensor *t, enum plumb_format format)
{
	if ((uintptr_t)t->data % plumb_format_row_bytes(format, 1) == 0)
		return t->data;
	void *copy = keep(b, t, t->bytes);
	return copy ? memcpy(copy, t->data, t->bytes) : NULL;
}

/* The tensor of scales beside t, or NULL, which is a failure unless optional. */
static const struct plumb_tensor *beside(
	struct plumb_binder *b, const struct plumb_tensor *t, const char *ending, const char *expected)
{
	char name[PLUMB_BIND_NAME];
	snprintf(name, sizeof name, "%s%s", t->name, ending);
	const struct plumb_tensor *scale = plumb_bind_look_up(b, name);
	if (!scale && expected)
		b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: tensor %s is missing: %s has dtype %s, which needs %s",
			b->shards->dir, name, t->name, plumb_dtype_name(t->dtype), expected);
	return scale;
}

/* Scale i of t is none. */
static void refuse_scale(struct plumb_binder *b, const struct plumb_tensor *t, int64_t i, float value, const char *expected)
{
	char at[64] = "";
	if (t->rank == 1)
		snprintf(at, sizeof at, "[%lld]", (long long)i);
	else if (t->rank == 2)
		snprintf(at, sizeof at, "[%lld, %lld]", (long long)(i / t->dim[1]), (long long)(i % t->dim[1]));
	b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: scale %s%s is %g, expected %s", t->file, t->name, at,
		(double)value, expected);
}

/* The one number of t, a scale of a whole matrix or table. */
static float single_scale(struct plumb_binder *b, const struct plumb_tensor *t, enum plumb_format format)
{
	float value;
	plumb_decode(format, t->data, 1, &value);
	if (!(value > 0) || isinf(value))
		refuse_scale(b, t, 0, value, "a finite number above 0");
	return value;
}

/* Scales of blocks or rows: zero is what some writers give a block of zeros. */
static void check_scales(struct plumb_binder *b, const struct plumb_tensor *t, enum plumb_format format)
{
	int64_t count = (int64_t)(t->bytes / plumb_format_row_bytes(format, 1));
	for (int64_t i = 0; i < count; i++) {
		float value;
		plumb_decode(format, t->data + plumb_format_row_bytes(format, i), 1, &value);
		if (!(value >= 0) || signbit(value) || isinf(value)) {
			refuse_scale(b, t, i, value, "a finite number from 0");
			return;
		}
	}
}

/* The activation scale of static quantisation: no part of the weight. */
static void pass_input_scale(struct plumb_binder *b, const struct plumb_tensor *t)
{
	char name[PLUMB_BIND_NAME];
	enum plumb_format format;
	size_t stem = strlen(t->name) - strlen("weight");
	snprintf(name, sizeof name, "%.*sinput_scale", (int)stem, t->name);
	const struct plumb_tensor *scale = plumb_bind_look_up(b, name);
	if (scale && !is_plain(scale->dtype, &format))
		wrong_dtype(b, scale, "F32, BF16 or F16");
	else if (scale && !is_single(scale))
		wrong_shape(b, scale, "[] or [1]");
}

/* Codes of t are in place; find their scales. */
static void bind_fp8(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_tensor *t)
{
	struct plumb_shape blocks = {
		2, {plumb_parts(w->rows, PLUMB_FP8_BLOCK_SIZE), plumb_parts(w->cols, PLUMB_FP8_BLOCK_SIZE)}};
	char expected[400], shape[192];
	const struct plumb_tensor *scale = beside(b, t, "_scale_inv", NULL);
	bool inverse = scale != NULL; /* by name only: it multiplies as well */
	if (!scale && !(scale = beside(b, t, "_scale", "this or weight_scale_inv, its scales")))
		return;
	if (!is_plain(scale->dtype, &w->scale_format) || w->scale_format == PLUMB_F16) {
		wrong_dtype(b, scale, "BF16 or F32");
		return;
	}
	if (!inverse && is_single(scale)) { /* one for all rows */
		float value = single_scale(b, scale, w->scale_format);
		float *rows = b->status ? NULL : keep(b, scale, (size_t)w->rows * sizeof *rows);
		for (int64_t n = 0; rows && n < w->rows; n++)
			rows[n] = value;
		w->format = PLUMB_FP8_ROW;
		w->scale_format = PLUMB_F32;
		w->scale = rows;
		return;
	}
	bool by_row = !inverse && (plumb_shape_equal(scale, &(struct plumb_shape){1, {w->rows}}) ||
					  plumb_shape_equal(scale, &(struct plumb_shape){2, {w->rows, 1}}));
	if (!by_row && !plumb_shape_equal(scale, &blocks)) {
		snprintf(expected, sizeof expected, "%s (a block)", plumb_shape_show(&blocks, shape));
		if (!inverse)
			snprintf(expected, sizeof expected, "%s (a block), [%lld] or [%lld, 1] (a row), [] or [1]",
				plumb_shape_show(&blocks, shape), (long long)w->rows, (long long)w->rows);
		wrong_shape(b, scale, expected);
		return;
	}
	w->format = by_row ? PLUMB_FP8_ROW : PLUMB_FP8_BLOCK;
	check_scales(b, scale, w->scale_format);
	if (!b->status)
		w->scale = aligned(b, scale, w->scale_format);
}

static void bind_nvfp4(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_tensor *t)
{
	struct plumb_shape groups = {2, {w->rows, plumb_parts(w->cols, PLUMB_NVFP4_GROUP)}};
	char shape[192];
	const struct plumb_tensor *scale = beside(b, t, "_scale", "it: nvfp4 has a scale for 16 columns");
	const struct plumb_tensor *global = scale ? beside(b, t, "_scale_2", "it: nvfp4 has a scale of the matrix") : NULL;
	if (!global)
		return;
	if (scale->dtype != PLUMB_DTYPE_F8_E4M3)
		wrong_dtype(b, scale, "F8_E4M3");
	else if (!plumb_shape_equal(scale, &groups))
		wrong_shape(b, scale, plumb_shape_show(&groups, shape));
	else if (global->dtype != PLUMB_DTYPE_F32)
		wrong_dtype(b, global, "F32");
	else if (!is_single(global))
		wrong_shape(b, global, "[] or [1]");
	else
		w->global = single_scale(b, global, PLUMB_F32);
	w->scale = scale->data;
}

/* Codes of t are in place; the scale of the whole table. */
static void bind_table_scale(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_tensor *t, const char *name)
{
	enum plumb_format format;
	const struct plumb_tensor *scale = plumb_bind_look_up(b, name);
	if (!scale)
		b->status = plumb_fail(b->err, PLUMB_BAD_INPUT,
			"%s: tensor %s is missing: %s has dtype F8_E4M3, which needs it, the scale of the table",
			b->shards->dir, name, t->name);
	else if (!is_plain(scale->dtype, &format) || format == PLUMB_F16)
		wrong_dtype(b, scale, "BF16 or F32");
	else if (!is_single(scale))
		wrong_shape(b, scale, "[] or [1]");
	else
		w->global = single_scale(b, scale, format);
	w->format = PLUMB_FP8_TABLE;
}

/* table_scale: NULL, or the name of the scale if this is a part of the table. */
static void bind(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_shape *shape, const char *name,
	const char *table_scale)
{
	char text[192];
	const struct plumb_tensor *t = b->status ? NULL : plumb_bind_look_up(b, name);
	bool matrix = shape->rank == 2 && plumb_text_ends(name, ".weight");
	bool fp8 = t && matrix && t->dtype == PLUMB_DTYPE_F8_E4M3;
	bool nvfp4 = t && matrix && !table_scale && t->dtype == PLUMB_DTYPE_U8;
	struct plumb_shape stored = *shape;

	if (b->status)
		return;
	if (!t) {
		b->status = plumb_fail(b->err, PLUMB_BAD_INPUT, "%s: tensor %s is missing, expected it with shape %s",
			b->shards->dir, name, plumb_shape_show(shape, text));
		return;
	}
	w->format = PLUMB_NVFP4;
	if (!fp8 && !nvfp4 && !is_plain(t->dtype, &w->format)) { /* before the shape: packed formats have another one */
		wrong_dtype(b, t,
			table_scale ? "BF16, F16 or F32, or F8_E4M3 with a scale"
			: matrix    ? "BF16, F16 or F32, or F8_E4M3 or U8 (nvfp4) with scales"
				    : "BF16, F16 or F32");
		return;
	}
	if (nvfp4)
		stored.dim[1] = (shape->dim[1] + 1) / 2;
	if (!plumb_shape_equal(t, &stored)) {
		wrong_shape(b, t, plumb_shape_show(&stored, text));
		return;
	}
	w->rows = shape->rank == 1 ? 1 : shape->dim[0];
	w->cols = shape->dim[shape->rank - 1];
	w->data = fp8 || nvfp4 ? t->data : aligned(b, t, w->format);
	if (fp8 && table_scale)
		bind_table_scale(b, w, t, table_scale);
	else if (fp8)
		bind_fp8(b, w, t);
	else if (nvfp4)
		bind_nvfp4(b, w, t);
	if (!b->status && !table_scale && (fp8 || nvfp4))
		pass_input_scale(b, t);
}

void plumb_bind_weight(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_shape *shape, const char *name)
{
	bind(b, w, shape, name, NULL);
}

void plumb_bind_table_part(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_shape *shape,
	const char *name, const char *scale_name)
{
	bind(b, w, shape, name, scale_name);
}
