/* SPDX-License-Identifier: MIT */
/* Classes by what their values are, for any op. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/numeric.h"
#include "tools/trial_class.h"

/* ---- placing values ---- */

int64_t trial_columns(const struct trial_operand *o)
{
	return o->weight ? o->weight[0].cols : o->dim[o->rank - 1];
}

int64_t trial_elements(const struct trial_operand *o)
{
	int64_t n = 0;
	for (int64_t m = 0; m < o->matrices; m++)
		n += o->weight[m].rows * o->weight[m].cols;
	return o->weight ? n : trial_count(o);
}

static void put_code(struct trial_operand *o, const struct plumb_weight *w, int64_t row, int64_t column, float v)
{
	unsigned char *data = o->memory.data + ((const unsigned char *)w->data - o->memory.data);
	size_t bytes = plumb_format_row_bytes(w->format, w->cols);

	data += (size_t)row * bytes;
	if (w->format == PLUMB_NVFP4) {
		unsigned code = plumb_f32_to_e2m1(v), shift = column % 2 ? 4 : 0;
		data[column / 2] = (unsigned char)((data[column / 2] & (0xF0u >> shift)) | code << shift);
	} else if (w->format >= (enum plumb_format)PLUMB_PLAIN_FORMATS) {
		data[column] = plumb_f32_to_e4m3(v);
	} else {
		plumb_encode(w->format, &v, 1, data + plumb_format_row_bytes(w->format, column));
	}
}

void trial_put(struct trial *c, struct trial_operand *o, int64_t i, float v)
{
	int64_t width = o->cache.width;

	switch (o->info->kind) {
	case PLUMB_KIND_F32:
		((float *)(void *)o->memory.data)[i] = o->info->role == PLUMB_IN ? trial_rounded(c, v) : v;
		break;
	case PLUMB_KIND_STORED:
		plumb_encode(o->format, &v, 1, o->memory.data + plumb_format_row_bytes(o->format, i));
		break;
	case PLUMB_KIND_CACHE:
		plumb_cache_encode(&o->cache, &v, 1,
			(unsigned char *)plumb_cache_row(&o->cache, i / width) +
				plumb_format_row_bytes(o->cache.format, i % width));
		break;
	default: {
		int64_t each = o->weight[0].rows * o->weight[0].cols, m = each > 0 ? i / each : 0;
		m = m < o->matrices ? m : o->matrices - 1;
		const struct plumb_weight *w = &o->weight[m];
		i -= m * each;
		put_code(o, w, i / w->cols, i % w->cols, v);
	}
	}
}

void trial_unscale(struct trial_operand *o)
{
	float one = 1.0f;

	for (int64_t m = 0; m < o->matrices; m++) {
		struct plumb_weight *w = &o->weight[m];
		if (w->format < (enum plumb_format)PLUMB_PLAIN_FORMATS)
			continue;
		w->global = 1.0f;
		if (!w->scale)
			continue;
		unsigned char *scale = o->scale.data + ((const unsigned char *)w->scale - o->scale.data);
		size_t bytes = plumb_weight_scale_bytes(w);
		if (w->format == PLUMB_NVFP4) {
			memset(scale, plumb_f32_to_e4m3(1.0f), bytes);
			continue;
		}
		size_t unit = plumb_format_row_bytes(w->scale_format, 1);
		for (size_t i = 0; i < bytes / unit; i++)
			plumb_encode(w->scale_format, &one, 1, scale + i * unit);
	}
}

struct trial_operand *trial_find(struct trial *c, const char *name)
{
	for (int i = 0; i < c->operands; i++)
		if (strcmp(c->operand[i].info->name, name) == 0)
			return c->operand[i].absent ? NULL : &c->operand[i];
	return NULL;
}

int64_t trial_pick(struct trial *c, const int64_t *list, int64_t n)
{
	return list[trial_random_below(&c->random, n)];
}

int trial_pick_format(struct trial *c, enum trial_formats whose, const int64_t *list, int64_t n)
{
	int64_t may[2 * PLUMB_FORMAT_COUNT], count = 0;

	for (int64_t i = 0; i < n && count < 2 * PLUMB_FORMAT_COUNT; i++)
		if (trial_may(c, whose, (enum plumb_format)list[i]))
			may[count++] = list[i];
	return count ? 1 + (int)trial_pick(c, may, count) : 0;
}

float trial_sign(struct trial *c)
{
	return trial_random_below(&c->random, 2) ? -1.0f : 1.0f;
}

/* Of the case, not of the element. */
static int64_t mode(const struct trial *c, const struct trial_operand *o, int64_t modes)
{
	struct trial_random r = {c->seed ^ (uint64_t)(o - c->operand) * 0x9E3779B97F4A7C15u};
	trial_random_next(&r);
	return trial_random_below(&r, modes);
}

/* ---- values ---- */

float trial_value_heavy(struct trial *c, const struct trial_operand *o, int64_t i)
{
	float t = trial_random_float(&c->random, -1.0f, 1.0f);
	int exponent = (int)(20.0f * t * t * t);
	(void)i;
	if (o->weight && o->weight[0].format == PLUMB_F16 && exponent > 15)
		exponent = 15; /* no Inf */
	return trial_sign(c) * ldexpf(trial_random_float(&c->random, 0.5f, 1.0f), exponent);
}

float trial_value_integer(struct trial *c, const struct trial_operand *o, int64_t i)
{
	(void)o, (void)i;
	return (float)(trial_random_below(&c->random, 17) - 8);
}

float trial_value_power(struct trial *c, const struct trial_operand *o, int64_t i)
{
	(void)o, (void)i;
	return trial_sign(c) * ldexpf(1.0f, (int)trial_random_below(&c->random, 13) - 6);
}

float trial_value_zero(struct trial *c, const struct trial_operand *o, int64_t i)
{
	switch (mode(c, o, 5)) {
	case 0:
		return -0.0f;
	case 1:
		return i % 2 ? -0.0f : 0.0f;
	case 2:
		return 0.0f;
	default:
		if (trial_random_below(&c->random, 8) == 0)
			return trial_random_float(&c->random, -1.0f, 1.0f);
		return 0.0f * trial_sign(c);
	}
}

float trial_value_subnormal(struct trial *c, const struct trial_operand *o, int64_t i)
{
	/* one factor of a product is ordinary at times, else all products are zero; in every other case all are small, else a
	 * sum hides them */
	float small = ldexpf(trial_random_float(&c->random, -1.0f, 1.0f), -126 - (int)trial_random_below(&c->random, 20));
	(void)i;
	return c->seed % 2 && mode(c, o, 3) == 0 ? trial_random_float(&c->random, -1.0f, 1.0f) : small;
}

float trial_value_tiny(struct trial *c, const struct trial_operand *o, int64_t i)
{
	float power = 4.0f + 16.0f * (float)mode(c, o, 8) / 7.0f + trial_random_float(&c->random, -1.0f, 1.0f);
	(void)i;
	return trial_sign(c) * ldexpf(trial_random_float(&c->random, 0.5f, 1.0f), -(int)(3.3219281f * power));
}

float trial_value_huge(struct trial *c, const struct trial_operand *o, int64_t i)
{
	int64_t binades = mode(c, o, 2) ? 12 : 77;
	(void)i;
	return ldexpf(trial_random_float(&c->random, -1.0f, 1.0f), 51 + (int)trial_random_below(&c->random, binades));
}

/* Distinct for 251 neighbours (a prime, so that rows do not repeat each other), exact in bf16; up to 16 in codes. */
float trial_value_coordinate(struct trial *c, const struct trial_operand *o, int64_t i)
{
	int64_t row = i / trial_columns(o);
	bool codes = o->weight && o->weight[0].format >= (enum plumb_format)PLUMB_PLAIN_FORMATS;
	(void)c;
	if (codes)
		return (float)((i + 3 * row) % 13 - 6);
	return (float)(i % 251 + 1) * (row % 3 == 1 ? -0x1p-7f : 0x1p-7f);
}

/* Integers whose sums reach 256 to 1024, where every second one is halfway between two of bf16. */
float trial_value_midpoint(struct trial *c, const struct trial_operand *o, int64_t i)
{
	(void)i;
	if (trial_class_role(o) == TRIAL_ON_STATE) /* 11 bits of fraction: halfway in f16, and in bf16 */
		return (float)(2049 + 2 * trial_random_below(&c->random, 1000)) * 0x1p-11f * trial_sign(c);
	return (float)(1 + trial_random_below(&c->random, 16)) * (trial_random_below(&c->random, 8) ? 1.0f : -1.0f);
}

/* ---- arrangements ---- */

void trial_fill_onehot(struct trial *c)
{
	for (int k = 0; k < c->operands; k++) {
		struct trial_operand *o = &c->operand[k];
		if (o->absent || !(trial_class_role(o) & (TRIAL_ON_ACTIVATION | TRIAL_ON_STATE)))
			continue;
		int64_t n = trial_elements(o), columns = trial_columns(o), hot = 0;
		for (int64_t i = 0; i < n; i++) {
			if (i % columns == 0)
				hot = trial_random_below(&c->random, columns);
			trial_put(c, o, i, i % columns == hot ? 1.0f : 0.0f);
		}
	}
}

/* Pairs of columns whose products cancel, far apart, and a small rest. */
void trial_fill_cancel(struct trial *c)
{
	for (int k = 0; k < c->operands; k++) {
		struct trial_operand *o = &c->operand[k];
		unsigned role = o->absent || o->memory.sparse ? 0 : trial_class_role(o);
		if (!(role & (TRIAL_ON_ACTIVATION | TRIAL_ON_MATRIX | TRIAL_ON_CACHE)) ||
			(o->weight && o->weight[0].format >= (enum plumb_format)PLUMB_PLAIN_FORMATS))
			continue;
		int64_t n = trial_elements(o), columns = trial_columns(o), half = columns / 2;
		for (int64_t row = 0; row < n / columns; row++)
			for (int64_t i = 0; i < half; i++) {
				float v = trial_random_float(&c->random, 0.5f, 1.0f) * trial_sign(c);
				if (role == TRIAL_ON_ACTIVATION)
					v *= 4096.0f;
				trial_put(c, o, row * columns + i, v);
				trial_put(c, o, row * columns + half + i, role == TRIAL_ON_ACTIVATION ? -v : v);
			}
	}
}

/* Whether a special value has a place in the operand. */
static bool takes(const struct trial_operand *o, float v)
{
	if (o->absent || !trial_class_role(o) || o->memory.sparse || trial_elements(o) == 0)
		return false;
	enum plumb_format format = o->weight                           ? o->weight[0].format
	                           : o->info->kind == PLUMB_KIND_CACHE ? o->cache.format
	                                                               : PLUMB_F32;
	if (format == PLUMB_NVFP4)
		return false;                                               /* its codes have neither */
	return isnan(v) || format < (enum plumb_format)PLUMB_PLAIN_FORMATS; /* e4m3 has no Inf */
}

static void place_special(struct trial *c, float v)
{
	struct trial_operand *o = NULL;
	int seen = 0;

	for (int i = 0; i < c->operands; i++)
		if (takes(&c->operand[i], v) && trial_random_below(&c->random, ++seen) == 0)
			o = &c->operand[i];
	if (!o)
		return;
	int64_t n = trial_elements(o);
	switch (trial_random_below(&c->random, 5)) {
	case 0:
		trial_put(c, o, 0, v);
		break;
	case 1:
		trial_put(c, o, n / 2, v);
		break;
	case 2:
		trial_put(c, o, n - 1, v);
		break;
	case 3: /* here and there */
		for (int64_t i = 0; i <= n / 64; i++)
			trial_put(c, o, trial_random_below(&c->random, n), v);
		break;
	default:
		for (int64_t i = 0; i < n; i++)
			trial_put(c, o, i, v);
	}
}

void trial_fill_nan(struct trial *c)
{
	place_special(c, NAN);
}

void trial_fill_inf(struct trial *c)
{
	place_special(c, INFINITY * trial_sign(c));
	if (trial_random_below(&c->random, 3) == 0)
		place_special(c, -INFINITY);
}

/* One input zero, or all but one. */
void trial_fill_branch(struct trial *c)
{
	bool alone = trial_random_below(&c->random, 2);
	int inputs = 0, chosen = -1;

	for (int i = 0; i < c->operands; i++)
		if (!c->operand[i].absent && trial_class_role(&c->operand[i]) == TRIAL_ON_ACTIVATION &&
			trial_random_below(&c->random, ++inputs) == 0)
			chosen = i;
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (!o->absent && trial_class_role(o) == TRIAL_ON_ACTIVATION && (i == chosen) != alone)
			memset(o->memory.data, 0, o->memory.bytes);
	}
}

void trial_fill_unit(struct trial *c)
{
	static const float values[] = {0.0f, 1.0f, -1.0f};

	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		if (o->absent || trial_class_role(o) != TRIAL_ON_VECTOR)
			continue;
		float v = values[trial_random_below(&c->random, 3)];
		for (int64_t k = 0; k < trial_elements(o); k++)
			trial_put(c, o, k, v);
	}
}

/* Caches of e4m3: what is appended lies halfway between two codes. */
void trial_fill_midpoint(struct trial *c)
{
	struct trial_operand *v = trial_find(c, "v"), *values = trial_find(c, "values");

	if (!v || !values || values->cache.format != PLUMB_CACHE_FP8)
		return;
	values->cache.scale = 0x1p-3f;
	for (int64_t i = 0; i < v->count; i++) /* 4 bits of fraction where a code has 3 */
		trial_put(c, v, i,
			trial_sign(c) * (float)(17 + 2 * trial_random_below(&c->random, 8)) *
				ldexpf(0x1p-7f, (int)trial_random_below(&c->random, 12) - 4));
}

/* Half of the cases of class scales: every scale a power of two, no two neighbours alike. */
void trial_fill_powers_of_two(struct trial *c)
{
	if (trial_random_below(&c->random, 2))
		return;
	for (int k = 0; k < c->operands; k++) {
		struct trial_operand *o = &c->operand[k];
		for (int64_t m = 0; m < o->matrices; m++) {
			struct plumb_weight *w = &o->weight[m];
			if (w->format < (enum plumb_format)PLUMB_PLAIN_FORMATS)
				continue;
			w->global = ldexpf(1.0f, -6 - (int)(m % 5));
			if (!w->scale)
				continue;
			unsigned char *scale = o->scale.data + ((const unsigned char *)w->scale - o->scale.data);
			size_t unit = w->format == PLUMB_NVFP4 ? 1 : plumb_format_row_bytes(w->scale_format, 1);
			for (size_t i = 0; i < plumb_weight_scale_bytes(w) / unit; i++) {
				float v = ldexpf(1.0f, (int)(i * 5 % 7) - 3);
				if (unit == 1)
					scale[i] = plumb_f32_to_e4m3(v);
				else
					plumb_encode(w->scale_format, &v, 1, scale + i * unit);
			}
		}
		if (!o->absent && o->info->kind == PLUMB_KIND_CACHE && o->cache.format == PLUMB_CACHE_FP8)
			o->cache.scale = ldexpf(1.0f, -3 - k % 4);
	}
}
