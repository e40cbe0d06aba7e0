/* SPDX-License-Identifier: MIT */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/ops/ple.h"
#include "core/rope.h"
#include "golden/case_parts.h"

/* Elements of one operand, and bytes of address space of one: both far beyond the released model (its lm_head has 2^29.3
 * weights, its n-gram table 2^37 bytes), far below what overflows. */
#define MAX_ELEMENTS (INT64_C(1) << 36)
#define MAX_BYTES (INT64_C(1) << 40)

enum { NAME = 160, MAX_ROWS = 4096, MAX_MATRICES = 1 << 20, MAX_CAPACITY = 1 << 24 };

/* A case file being read. */
struct reading {
	struct plumb_h5 *file;
	struct plumb_case *c;
	struct plumb_error *err;
	int64_t shards, shard_rows; /* of the n-gram table */
};

#define REFUSE(r, ...) plumb_fail((r)->err, PLUMB_BAD_INPUT, __VA_ARGS__)

static const char *path_of(const struct reading *r)
{
	return plumb_h5_path(r->file);
}

/* ---- memory ---- */

/* Room in the list of what is released with the case. */
static bool list_room(struct plumb_case *c)
{
	if (c->memories == c->room) {
		int room = c->room ? 2 * c->room : 64;
		void **memory = realloc(c->memory, (size_t)room * sizeof *memory);
		size_t *mapped;
		if (memory)
			c->memory = memory;
		mapped = realloc(c->mapped, (size_t)room * sizeof *mapped);
		if (mapped)
			c->mapped = mapped;
		if (!memory || !mapped)
			return false;
		c->room = room;
	}
	return true;
}

static void *keep(struct plumb_case *c, void *memory, size_t mapped)
{
	c->memory[c->memories] = memory;
	c->mapped[c->memories++] = mapped;
	return memory;
}

/* Zeroed memory of the case, aligned for any kernel. Errors name what it was for. */
static void *take(struct reading *r, const char *what, size_t bytes)
{
	void *memory = NULL;

	if (bytes <= (size_t)MAX_BYTES && list_room(r->c) && posix_memalign(&memory, 64, bytes ? bytes : 1) == 0) {
		memset(memory, 0, bytes ? bytes : 1);
		return keep(r->c, memory, 0);
	}
	REFUSE(r, "%s: %s: out of memory for %zu bytes", path_of(r), what, bytes);
	return NULL;
}

/* Address space that reads as zero and costs nothing until it is written. */
static void *take_space(struct reading *r, const char *what, size_t bytes)
{
	void *memory = MAP_FAILED;

	if (bytes <= (size_t)MAX_BYTES && list_room(r->c))
		memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory != MAP_FAILED)
		return keep(r->c, memory, bytes ? bytes : 1);
	REFUSE(r, "%s: %s: out of memory for %zu bytes", path_of(r), what, bytes);
	return NULL;
}

void plumb_case_free(struct plumb_case *c)
{
	if (!c)
		return;
	for (int i = 0; i < c->memories; i++) {
		if (c->mapped[i])
			munmap(c->memory[i], c->mapped[i]);
		else
			free(c->memory[i]);
	}
	free(c->memory);
	free(c->mapped);
	free(c);
}

/* ---- attributes ---- */

/* A text attribute; NULL with a message when it is not there. */
static const char *text_of(struct reading *r, const char *object, const char *name, const char *expected)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, object, name);

	if (a && a->type == PLUMB_H5_TEXT)
		return a->text;
	REFUSE(r, "%s: %s%sno text attribute %s, expected %s", path_of(r), object, object[0] ? ": " : "", name, expected);
	return NULL;
}

static int integer_of(struct reading *r, const char *object, const char *name, int64_t min, int64_t max, int64_t *out)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, object, name);
	const char *colon = object[0] ? ": " : "";

	if (!a || a->type != PLUMB_H5_INTEGER)
		return REFUSE(r, "%s: %s%sno integer attribute %s, expected %" PRId64 "..%" PRId64, path_of(r), object, colon, name,
			min, max);
	if (a->integer < min || a->integer > max)
		return REFUSE(r, "%s: %s%s%s is %" PRId64 ", expected %" PRId64 "..%" PRId64, path_of(r), object, colon, name,
			a->integer, min, max);
	*out = a->integer;
	return PLUMB_OK;
}

/* A text attribute that is one of some words, "f32|bf16"; *out: which. */
static int word_of(struct reading *r, const char *object, const char *name, const char *words, int *out)
{
	const char *text = text_of(r, object, name, words), *at = words;

	if (!text)
		return PLUMB_BAD_INPUT;
	for (int i = 0;; i++) {
		size_t n = strcspn(at, "|");
		if (n == strlen(text) && strncmp(at, text, n) == 0) {
			*out = i;
			return PLUMB_OK;
		}
		if (!at[n])
			break;
		at += n + 1;
	}
	return REFUSE(r, "%s: %s%s%s is '%.60s', expected %s", path_of(r), object, object[0] ? ": " : "", name, text, words);
}

static int format_of(struct reading *r, const char *object, const char *name, bool plain, bool cache, enum plumb_format *out)
{
	const char *text = text_of(r, object, name, "a number format");

	if (!text)
		return PLUMB_BAD_INPUT;
	for (int f = 0; f < (plain ? (int)PLUMB_PLAIN_FORMATS : (int)PLUMB_FORMAT_COUNT); f++)
		if (strcmp(plumb_format_name((enum plumb_format)f), text) == 0) {
			*out = (enum plumb_format)f;
			return PLUMB_OK;
		}
	if (cache && strcmp(plumb_format_name(PLUMB_CACHE_FP8), text) == 0) {
		*out = PLUMB_CACHE_FP8;
		return PLUMB_OK;
	}
	return REFUSE(r, "%s: %s: %s is '%.40s', expected a%s number format", path_of(r), object, name, text,
		plain ? " plain" : "");
}

/* ---- datasets ---- */

/* The entry of a name, with the shape it must have. */
static const struct plumb_h5_entry *entry_of(
	struct reading *r, const char *name, enum plumb_h5_type type, int rank, const int64_t *dim)
{
	const struct plumb_h5_entry *e = plumb_h5_find(r->file, name);
	const char *kind = type == PLUMB_H5_FLOAT ? "floats" : "integers";

	if (!e) {
		REFUSE(r, "%s: no dataset %s, expected %s", path_of(r), name, kind);
		return NULL;
	}
	if (e->type != type || e->rank != rank) {
		REFUSE(r, "%s: %s: rank %d, expected %s of rank %d", path_of(r), name, e->rank, kind, rank);
		return NULL;
	}
	for (int i = 0; i < rank; i++)
		if (e->dim[i] != dim[i]) {
			REFUSE(r, "%s: %s: size %" PRId64 " of axis %d, expected %" PRId64, path_of(r), name, e->dim[i], i, dim[i]);
			return NULL;
		}
	return e;
}

/* Integers of a list of any length up to most, each in min..max. *out is freed by the caller. */
static int read_list(struct reading *r, const char *name, int64_t most, int64_t min, int64_t max, int64_t **out, int64_t *count)
{
	const struct plumb_h5_entry *e = plumb_h5_find(r->file, name);
	struct plumb_golden_tensor t;
	int status;

	*out = NULL;
	if (!e || e->type != PLUMB_H5_INT || e->rank != 1 || e->count > most)
		return REFUSE(r, "%s: %s: no list of integers, expected one of at most %" PRId64, path_of(r), name, most);
	status = plumb_h5_read_i64(r->file, name, &t, r->err);
	for (int64_t i = 0; i < t.count && status == PLUMB_OK; i++)
		if (t.i64[i] < min || t.i64[i] > max)
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected %" PRId64 "..%" PRId64, path_of(r), name, i,
				t.i64[i], min, max);
	if (status != PLUMB_OK) {
		plumb_golden_tensor_free(&t);
		return status;
	}
	*out = t.i64;
	*count = t.count;
	return PLUMB_OK;
}

/* Ascending, each once. */
static int read_rows(struct reading *r, const char *name, int64_t limit, int64_t **out, int64_t *count)
{
	int status = read_list(r, name, limit, 0, limit - 1, out, count);

	for (int64_t i = 1; status == PLUMB_OK && i < *count; i++)
		if ((*out)[i - 1] >= (*out)[i])
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending rows", path_of(r),
				name, i, (*out)[i], (*out)[i - 1]);
	return status;
}

/* Bytes (rows, row_bytes); *out is freed by the caller. */
static int read_bytes(struct reading *r, const char *name, int64_t rows, size_t row_bytes, unsigned char **out)
{
	const int64_t dim[2] = {rows, (int64_t)row_bytes};
	struct plumb_golden_tensor t;
	int status;

	*out = NULL;
	if (!entry_of(r, name, PLUMB_H5_INT, 2, dim))
		return PLUMB_BAD_INPUT;
	status = plumb_h5_read_u8(r->file, name, &t, r->err);
	*out = t.u8;
	return status;
}

static struct plumb_extent extent_of(const struct reading *r)
{
	return (struct plumb_extent){.T = r->c->call.T, .capacity = r->c->env.capacity};
}

/* Shape of an operand; refused when it is larger than anything real. */
static int shape_of(struct reading *r, const struct plumb_operand *o, int64_t dim[8], int *rank, int64_t *count)
{
	const struct plumb_extent extent = extent_of(r);

	*rank = plumb_shape_eval(o->shape, &r->c->cfg, &extent, dim);
	*count = 1;
	for (int i = 0; i < *rank; i++)
		if (dim[i] < 0 || __builtin_mul_overflow(*count, dim[i], count) || *count > MAX_ELEMENTS)
			return REFUSE(r, "%s: %s: more than 2^36 elements by the config", path_of(r), o->name);
	return *rank < 0 ? REFUSE(r, "%s: %s: no shape", path_of(r), o->name) : PLUMB_OK;
}

/* Array of an operand from a folder into memory of the case. */
static int read_array(struct reading *r, const char *folder, const struct plumb_operand *o, void **out)
{
	struct plumb_golden_tensor t = {0};
	bool real = plumb_operand_is_real(o);
	int64_t dim[9], count;
	char name[NAME];
	int rank, status = shape_of(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	snprintf(name, sizeof name, "%s/%s", folder, o->name);
	if (o->kind == PLUMB_KIND_STORED) { /* the first of them, the state before, says how it is stored */
		enum plumb_format format;
		status = format_of(r, name, "format", true, false, &format);
		if (status == PLUMB_OK && o->role == PLUMB_STATE && strcmp(folder, "expected") == 0 &&
			format != plumb_operand_format(o, r->c->args))
			status = REFUSE(r, "%s: %s: format is %s, expected %s", path_of(r), name, plumb_format_name(format),
				plumb_format_name(plumb_operand_format(o, r->c->args)));
		if (status != PLUMB_OK)
			return status;
		memcpy((char *)r->c->args + o->format, &format, sizeof format);
	}
	if (case_is_bytes(o, r->c->args)) {
		dim[rank] = (int64_t)plumb_operand_element(o, r->c->args);
		if (!entry_of(r, name, PLUMB_H5_INT, rank + 1, dim))
			return PLUMB_BAD_INPUT;
		status = plumb_h5_read_u8(r->file, name, &t, r->err);
		*out = status == PLUMB_OK ? take(r, name, (size_t)count * (size_t)dim[rank]) : NULL;
		if (*out)
			memcpy(*out, t.u8, (size_t)count * (size_t)dim[rank]);
		plumb_golden_tensor_free(&t);
		return *out ? status : PLUMB_BAD_INPUT;
	}
	if (!entry_of(r, name, real ? PLUMB_H5_FLOAT : PLUMB_H5_INT, rank, dim))
		return PLUMB_BAD_INPUT;
	status = real ? plumb_h5_read_f32(r->file, name, &t, r->err) : plumb_h5_read_i64(r->file, name, &t, r->err);
	*out = status == PLUMB_OK ? take(r, name, (size_t)count * plumb_operand_element(o, r->c->args)) : NULL;
	for (int64_t i = 0; *out && o->kind == PLUMB_KIND_I32 && i < count; i++) {
		if (t.i64[i] < INT32_MIN || t.i64[i] > INT32_MAX) {
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected an integer of 32 bits", path_of(r), name, i,
				t.i64[i]);
			break;
		}
		((int32_t *)*out)[i] = (int32_t)t.i64[i];
	}
	if (*out && real && count)
		memcpy(*out, t.f32, (size_t)count * sizeof(float));
	if (*out && o->kind == PLUMB_KIND_I64 && count)
		memcpy(*out, t.i64, (size_t)count * sizeof(int64_t));
	plumb_golden_tensor_free(&t);
	return *out ? status : PLUMB_BAD_INPUT;
}

/* ---- caches ---- */

static int read_page_table(struct reading *r, const struct plumb_operand *o, struct plumb_cache *cache)
{
	int64_t pages = cache->rows / cache->page_rows, count = 0, *page;
	unsigned char *seen = NULL;
	int32_t *table = NULL;
	char name[NAME];
	int status;

	snprintf(name, sizeof name, "caches/%s/page", o->name);
	status = read_list(r, name, pages, 0, pages - 1, &page, &count);
	if (status == PLUMB_OK && count != pages)
		status = REFUSE(r, "%s: %s: %" PRId64 " pages, expected %" PRId64, path_of(r), name, count, pages);
	if (status == PLUMB_OK) {
		table = take(r, name, (size_t)pages * sizeof *table);
		seen = calloc(1, (size_t)pages + 1);
		status = table && seen ? PLUMB_OK : REFUSE(r, "%s: %s: out of memory", path_of(r), name);
	}
	for (int64_t i = 0; i < pages && status == PLUMB_OK; i++) {
		if (seen[page[i]]++)
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected each page once", path_of(r), name, i, page[i]);
		table[i] = (int32_t)page[i];
	}
	cache->page = table;
	free(seen);
	free(page);
	return status;
}

static int read_cache(struct reading *r, const struct plumb_operand *o, void **out)
{
	struct plumb_cache *cache = take(r, o->name, sizeof *cache);
	int64_t dim[8], count, page_rows, limit = case_row_limit(&r->c->call, o), *row = NULL, rows = 0;
	unsigned char *data = NULL, *mark = NULL;
	char name[NAME];
	size_t bytes;
	int rank, status = shape_of(r, o, dim, &rank, &count);

	if (!cache || status != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	if (rank != 2 || dim[0] < 1 || dim[1] < 1 || dim[1] > INT32_MAX)
		return REFUSE(r, "%s: %s: no rows, expected a cache", path_of(r), o->name);
	snprintf(name, sizeof name, "caches/%s", o->name);
	status = format_of(r, name, "format", true, true, &cache->format);
	if (status == PLUMB_OK && cache->format == PLUMB_CACHE_FP8) {
		const struct plumb_h5_attribute *scale = plumb_h5_attribute(r->file, name, "scale");
		cache->scale = scale && scale->type == PLUMB_H5_REAL ? (float)scale->real : 0.0f;
		if (!(cache->scale > 0.0f && isfinite(448.0f * cache->scale)))
			status = REFUSE(r, "%s: %s: scale is %g, expected above 0 and below 2^119", path_of(r), name, (double)cache->scale);
	}
	if (status == PLUMB_OK)
		status = integer_of(r, name, "page_rows", 1, dim[0], &page_rows);
	if (status != PLUMB_OK)
		return status;
	if (dim[0] % page_rows != 0)
		return REFUSE(r, "%s: %s: page_rows is %" PRId64 ", expected a divisor of its %" PRId64 " rows", path_of(r), name,
			page_rows, dim[0]);
	cache->rows = dim[0];
	cache->page_rows = (int32_t)page_rows;
	cache->width = (int32_t)dim[1];
	bytes = plumb_format_row_bytes(cache->format, cache->width);
	cache->data = take_space(r, name, (size_t)dim[0] * bytes);
	status = cache->data ? read_page_table(r, o, cache) : PLUMB_BAD_INPUT;
	snprintf(name, sizeof name, "caches/%s/row", o->name);
	if (status == PLUMB_OK)
		status = read_rows(r, name, limit, &row, &rows);
	snprintf(name, sizeof name, "caches/%s/data", o->name);
	if (status == PLUMB_OK)
		status = read_bytes(r, name, rows, bytes, &data);
	for (int64_t i = 0; i < rows && status == PLUMB_OK; i++)
		memcpy(plumb_cache_row(cache, row[i]), data + (size_t)i * bytes, bytes);
	free(row);
	free(data);
	free(mark);
	*out = cache;
	return status;
}

/* ---- weights ---- */

/* Kernels take norms, convolutions and decay constants in plain formats only. */
static bool is_vector(const struct plumb_operand *o)
{
	return strstr(o->name, "norm") || strcmp(o->name, "conv") == 0 || strcmp(o->name, "a_log") == 0 ||
	       strcmp(o->name, "dt_bias") == 0;
}

/* Rows of scales that belong to the rows of a matrix that are there. */
static int read_scales(struct reading *r, const char *group, struct plumb_weight *w, const int64_t *row, int64_t rows)
{
	size_t bytes = case_scale_row_bytes(w);
	int64_t unit = case_scale_unit(w), all = case_scale_rows(w), n = all, last = -1, at = -1;
	unsigned char *data = NULL, *scale;
	char name[NAME + 16];
	int status;

	if (!bytes)
		return PLUMB_OK;
	snprintf(name, sizeof name, "%s/scale", group);
	for (int64_t i = n = 0; row && i < rows; i++) {
		n += row[i] / unit != last;
		last = row[i] / unit;
	}
	status = read_bytes(r, name, row ? n : all, bytes, &data);
	scale = status == PLUMB_OK ? take_space(r, name, (size_t)all * bytes) : NULL;
	last = -1;
	for (int64_t i = 0; scale && row && i < rows; i++) {
		at += row[i] / unit != last;
		last = row[i] / unit;
		memcpy(scale + (size_t)last * bytes, data + (size_t)at * bytes, bytes);
	}
	if (scale && !row)
		memcpy(scale, data, (size_t)all * bytes);
	w->scale = scale;
	free(data);
	return scale ? status : PLUMB_BAD_INPUT;
}

/* Matrix m of an operand; w: rows and cols are set. */
static int read_matrix(struct reading *r, const struct plumb_operand *o, int64_t m, struct plumb_weight *w)
{
	const struct plumb_h5_attribute *global;
	unsigned char *data = NULL, *all;
	int64_t *row = NULL, rows = w->rows;
	char group[NAME], name[NAME + 16];
	size_t bytes;
	int status;

	snprintf(group, sizeof group, "weights/%s/m%05lld", o->name, (long long)m);
	status = format_of(r, group, "format", is_vector(o), false, &w->format);
	if (status == PLUMB_OK && (w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK)) {
		status = format_of(r, group, "scale_format", true, false, &w->scale_format);
		if (status == PLUMB_OK && w->scale_format == PLUMB_F16)
			status = REFUSE(r, "%s: %s: scale_format is f16, expected f32 or bf16", path_of(r), group);
	}
	if (status == PLUMB_OK && (w->format == PLUMB_FP8_TABLE || w->format == PLUMB_NVFP4)) {
		global = plumb_h5_attribute(r->file, group, "global");
		if (!global || global->type != PLUMB_H5_REAL)
			status = REFUSE(r, "%s: %s: no attribute global, expected the scale of the matrix", path_of(r), group);
		else
			w->global = (float)global->real;
	}
	bytes = plumb_format_row_bytes(w->format, w->cols);
	snprintf(name, sizeof name, "%s/row", group);
	if (status == PLUMB_OK && plumb_h5_find(r->file, name))
		status = read_rows(r, name, w->rows, &row, &rows);
	snprintf(name, sizeof name, "%s/data", group);
	if (status == PLUMB_OK)
		status = read_bytes(r, name, rows, bytes, &data);
	all = status == PLUMB_OK ? take_space(r, name, (size_t)w->rows * bytes) : NULL;
	for (int64_t i = 0; all && row && i < rows; i++)
		memcpy(all + (size_t)row[i] * bytes, data + (size_t)i * bytes, bytes);
	if (all && !row)
		memcpy(all, data, (size_t)rows * bytes);
	w->data = all;
	if (all)
		status = read_scales(r, group, w, row, rows);
	free(row);
	free(data);
	return all ? status : PLUMB_BAD_INPUT;
}

/* A matrix that the call does not read: like one that it reads, NaN in every format (and of a table, zeros, for it may be
 * larger than memory). */
static int make_absent(struct reading *r, const struct plumb_operand *o, const struct plumb_weight *like, struct plumb_weight *w)
{
	int64_t rows = w->rows;
	*w = *like;
	w->rows = rows;
	size_t data = plumb_weight_data_bytes(w), scale = plumb_weight_scale_bytes(w);
	void *memory = take_space(r, o->name, data), *scales = scale ? take_space(r, o->name, scale) : NULL;

	if (!memory || (scale && !scales))
		return PLUMB_BAD_INPUT;
	if (o->part == PLUMB_PART_MATRICES) {
		memset(memory, 0xff, data);
		if (scale)
			memset(scales, 0xff, scale);
	}
	w->data = memory;
	w->scale = scales;
	return PLUMB_OK;
}

/* Rows of matrix m of an operand. */
static int64_t rows_of(const struct reading *r, const struct plumb_operand *o, int64_t m, const int64_t *dim, int64_t table_rows)
{
	if (!o->count)
		return dim[o->kind == PLUMB_KIND_BANK];
	return m < r->shards - 1 ? r->shard_rows : table_rows - m * r->shard_rows;
}

static int read_weights(struct reading *r, const struct plumb_operand *o, int64_t table_rows, void **out)
{
	bool bank = o->kind == PLUMB_KIND_BANK;
	struct plumb_weight *w, *present = NULL, *absent = NULL;
	int64_t dim[8], count, matrices;
	char name[NAME];
	int rank, status = shape_of(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	matrices = o->count ? r->shards : bank ? dim[0] : 1;
	if (matrices < 1 || matrices > MAX_MATRICES)
		return REFUSE(r, "%s: %s: %" PRId64 " matrices, expected 1..%d", path_of(r), o->name, matrices, MAX_MATRICES);
	w = take(r, o->name, (size_t)matrices * sizeof *w);
	if (!w)
		return PLUMB_BAD_INPUT;
	for (int64_t m = 0; m < matrices && status == PLUMB_OK; m++) {
		w[m].rows = rows_of(r, o, m, dim, table_rows);
		w[m].cols = dim[rank - 1];
		snprintf(name, sizeof name, "weights/%s/m%05lld/data", o->name, (long long)m);
		if (bank && !plumb_h5_find(r->file, name))
			continue;
		status = read_matrix(r, o, m, &w[m]);
		present = &w[m];
	}
	for (int64_t m = 0; m < matrices && status == PLUMB_OK; m++) {
		struct plumb_weight like = {.format = PLUMB_BF16, .cols = dim[rank - 1]};
		if (w[m].data)
			continue;
		if (absent && absent->rows == w[m].rows) {
			w[m] = *absent; /* they share their memory */
			continue;
		}
		status = make_absent(r, o, present ? present : &like, &w[m]);
		absent = &w[m];
	}
	*out = w;
	return status;
}

/* ---- the whole ---- */

static int read_head(struct reading *r)
{
	static const char *const origin[] = {"suspect", "truth", "producer", "command", "golden", "date", "finding"};
	struct plumb_case *c = r->c;
	const char *format = text_of(r, "", "format", "plumb case"), *config, *op;
	const char **place[] = {&c->origin.suspect, &c->origin.truth, &c->origin.producer, &c->origin.command,
		&c->origin.golden, &c->origin.date, &c->origin.finding};
	int64_t version, layer = 0;
	int policy = 0, ties = 0, site = 0, criterion = 0, status;

	if (!format)
		return PLUMB_BAD_INPUT;
	if (strcmp(format, "plumb case") != 0)
		return REFUSE(r, "%s: format is '%.40s', expected 'plumb case'", path_of(r), format);
	status = integer_of(r, "", "version", PLUMB_CASE_VERSION, PLUMB_CASE_VERSION, &version);
	config = status == PLUMB_OK ? text_of(r, "", "config", "the text of a config.json") : NULL;
	op = config ? text_of(r, "", "op", "an op") : NULL;
	if (!op)
		return PLUMB_BAD_INPUT;
	status = plumb_config_parse(config, strlen(config), path_of(r), &c->cfg, r->err);
	c->call.op = plumb_op_find(op);
	if (status == PLUMB_OK && c->call.op == PLUMB_OP_COUNT)
		status = REFUSE(r, "%s: op is '%.60s', which is no op; 'plumb list ops' shows them", path_of(r), op);
	if (status == PLUMB_OK)
		status = integer_of(r, "", "layer", 0, c->cfg.layers, &layer);
	if (status == PLUMB_OK && !plumb_op_runs(&c->cfg, c->call.op, (int)layer))
		status = REFUSE(r, "%s: layer is %" PRId64 ", expected one that runs %s", path_of(r), layer, op);
	if (status == PLUMB_OK)
		status = word_of(r, "", "site", "none|attn|mlp|final", &site);
	if (status == PLUMB_OK)
		status = integer_of(r, "", "rows", 1, MAX_ROWS, &c->call.T);
	if (status == PLUMB_OK)
		status = integer_of(r, "", "capacity", 1, MAX_CAPACITY, &c->env.capacity);
	if (status == PLUMB_OK)
		status = integer_of(r, "", "position", 0, MAX_CAPACITY, &c->call.position);
	if (status == PLUMB_OK && c->call.position > c->env.capacity - c->call.T)
		status = REFUSE(r, "%s: %" PRId64 " rows at position %" PRId64 ", expected them within the capacity of %" PRId64,
			path_of(r), c->call.T, c->call.position, c->env.capacity);
	if (status == PLUMB_OK && c->env.capacity % c->cfg.block_tokens != 0)
		status = REFUSE(r, "%s: capacity is %" PRId64 ", expected a multiple of %d (indexer_compress_ratio)", path_of(r),
			c->env.capacity, c->cfg.block_tokens);
	if (status == PLUMB_OK)
		status = word_of(r, "", "policy", "f32|bf16", &policy);
	if (status == PLUMB_OK)
		status = word_of(r, "", "ties", "lower|torch", &ties);
	if (status == PLUMB_OK)
		status = word_of(r, "", "criterion", "bits|bound", &criterion);
	c->call.layer = (int)layer;
	c->call.site = (enum plumb_site)site;
	c->call.env = &c->env;
	c->env.cfg = &c->cfg;
	c->env.policy = (enum plumb_policy)policy;
	c->env.ties = (enum plumb_ties)ties;
	c->criterion = (enum plumb_case_criterion)criterion;
	for (size_t i = 0; i < sizeof origin / sizeof origin[0] && status == PLUMB_OK; i++) {
		const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, "", origin[i]);
		if (!a || a->type != PLUMB_H5_TEXT)
			continue;
		char *copy = take(r, origin[i], strlen(a->text) + 1);
		if (!copy)
			return PLUMB_BAD_INPUT;
		*place[i] = strcpy(copy, a->text);
	}
	return status;
}

/* Hyper-connection ops say at which of their sites they are; no other op does. */
static int check_site(struct reading *r)
{
	const struct plumb_call *call = &r->c->call;
	bool hyper = strcmp(plumb_ops[call->op].stage, "hyper_connection") == 0, outside = call->layer == r->c->cfg.layers;

	if ((call->site != PLUMB_SITE_NONE) != hyper || (call->site == PLUMB_SITE_FINAL) != (hyper && outside))
		return REFUSE(r, "%s: site is %s, expected %s", path_of(r), plumb_site_name(call->site),
			!hyper ? "none" : outside ? "final" : "attn or mlp");
	return PLUMB_OK;
}

static int read_table_sizes(struct reading *r, const struct plumb_ngram *ngram)
{
	int status = integer_of(r, "", "shards", 1, MAX_MATRICES, &r->shards);

	if (status == PLUMB_OK)
		status = integer_of(r, "", "shard_rows", 1, MAX_BYTES, &r->shard_rows);
	if (status != PLUMB_OK)
		return status;
	if ((r->shards - 1) * r->shard_rows >= ngram->rows || r->shards * r->shard_rows < ngram->rows)
		return REFUSE(r, "%s: %" PRId64 " shards of %" PRId64 " rows, expected that many for %" PRId64 " rows of the table",
			path_of(r), r->shards, r->shard_rows, ngram->rows);
	struct plumb_ple_embed *a = r->c->args;
	a->shards = r->shards;
	a->shard_rows = r->shard_rows;
	return PLUMB_OK;
}

static int derive(struct reading *r, const struct plumb_operand *o, const struct plumb_ngram *ngram, void **out)
{
	int64_t dim[8], count;
	int rank, status = shape_of(r, o, dim, &rank, &count);

	if (status != PLUMB_OK)
		return status;
	if (o->kind == PLUMB_KIND_NGRAM) {
		*out = take(r, o->name, sizeof *ngram);
		if (*out)
			memcpy(*out, ngram, sizeof *ngram);
		return *out ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	if (count > (INT64_C(1) << 30))
		return REFUSE(r, "%s: a rope table of %" PRId64 " values, expected at most 2^30", path_of(r), count);
	*out = take(r, o->name, (size_t)count * sizeof(float));
	if (*out)
		plumb_rope_table(&r->c->cfg, r->c->env.policy, r->c->env.capacity, *out);
	return *out ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* What an output, or a state, must be: the array, or the rows of the cache. */
static int read_expected(struct reading *r, const struct plumb_operand *o, struct plumb_case_expected *out)
{
	char name[NAME];
	int64_t first, last, dim[8], count;
	unsigned char *data, *own;
	int rank, status;

	if (plumb_operand_is_array(o)) {
		void *array;
		status = read_array(r, "expected", o, &array);
		out->data = array;
		return status;
	}
	snprintf(name, sizeof name, "expected/%s", o->name);
	plumb_case_written_rows(&r->c->call, o, &first, &last);
	status = integer_of(r, name, "first_row", first, first, &out->first);
	if (status == PLUMB_OK)
		status = shape_of(r, o, dim, &rank, &count);
	if (status != PLUMB_OK)
		return status;
	const struct plumb_cache *cache = case_pointer(r->c->args, o);
	size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
	out->rows = last - first;
	status = read_bytes(r, name, out->rows, bytes, &data);
	own = status == PLUMB_OK ? take(r, name, (size_t)out->rows * bytes) : NULL;
	if (own)
		memcpy(own, data, (size_t)out->rows * bytes);
	free(data);
	out->data = own;
	return own ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* Whether the file has the operand: all optional ones that are no traces come and go together, by the site. */
static bool is_there(const struct reading *r, const struct plumb_operand *o)
{
	char name[NAME];

	if (!o->optional)
		return true;
	if (!o->trace)
		return r->c->call.site != PLUMB_SITE_FINAL;
	snprintf(name, sizeof name, "expected/%s", o->name);
	return plumb_h5_find(r->file, name) != NULL;
}

static int read_operand(struct reading *r, const struct plumb_operand *o, const struct plumb_ngram *ngram)
{
	void *data = NULL;
	int64_t dim[8], count;
	int rank, status = PLUMB_OK;

	if (case_is_derived(o))
		status = derive(r, o, ngram, &data);
	else if (o->role == PLUMB_WEIGHT)
		status = read_weights(r, o, ngram->rows, &data);
	else if (o->kind == PLUMB_KIND_CACHE)
		status = read_cache(r, o, &data);
	else if (o->role != PLUMB_OUT)
		status = read_array(r, o->role == PLUMB_STATE ? "state" : "in", o, &data);
	if (status == PLUMB_OK)
		case_set(r->c->args, o, data);
	if (status == PLUMB_OK && (o->role == PLUMB_OUT || o->role == PLUMB_STATE))
		status = read_expected(r, o, &r->c->expected[o - plumb_ops[r->c->call.op].operand]);
	if (status == PLUMB_OK && o->role == PLUMB_OUT) {
		status = shape_of(r, o, dim, &rank, &count);
		data = status == PLUMB_OK ? take(r, o->name, (size_t)count * plumb_operand_element(o, r->c->args)) : NULL;
		case_set(r->c->args, o, data);
		status = data ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	return status;
}

static int read_case(struct reading *r)
{
	const struct plumb_op_info *info;
	struct plumb_ngram *ngram = NULL;
	int status = read_head(r);

	if (status == PLUMB_OK)
		status = check_site(r);
	if (status != PLUMB_OK)
		return status;
	info = &plumb_ops[r->c->call.op];
	r->c->args = take(r, info->name, info->args_size);
	ngram = r->c->args ? take(r, "ngram", sizeof *ngram) : NULL;
	if (!ngram)
		return PLUMB_BAD_INPUT;
	memcpy(r->c->args, &r->c->call.T, sizeof r->c->call.T);
	r->c->call.args = r->c->args;
	if (r->c->call.op == PLUMB_PLE_EMBED) {
		int q = plumb_ple_of_layer(&r->c->cfg, r->c->call.layer);
		status = plumb_ngram_constants(&r->c->cfg, q, ngram, r->err);
		if (status == PLUMB_OK)
			status = read_table_sizes(r, ngram);
	}
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++)
		if (is_there(r, &info->operand[i]))
			status = read_operand(r, &info->operand[i], ngram);
	return status == PLUMB_OK ? case_check_values(r->c, path_of(r), r->err) : status;
}

int plumb_case_read(const char *path, struct plumb_case **out, struct plumb_error *err)
{
	struct reading r = {.err = err};
	int status = plumb_h5_open(path, &r.file, err);

	*out = NULL;
	if (status != PLUMB_OK)
		return status;
	plumb_h5_limit(r.file, MAX_ELEMENTS);
	r.c = calloc(1, sizeof *r.c);
	status = r.c ? read_case(&r) : REFUSE(&r, "%s: out of memory", path);
	if (status == PLUMB_OK)
		*out = r.c;
	else
		plumb_case_free(r.c);
	plumb_h5_close(r.file);
	return status;
}
