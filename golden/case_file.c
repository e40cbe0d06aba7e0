/* SPDX-License-Identifier: MIT */
/* Reading a case: memory, attributes, datasets. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "golden/case_reading.h"

const char *case_path(const struct reading *r)
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
void *case_take(struct reading *r, const char *what, size_t bytes)
{
	void *memory = NULL;

	if (bytes <= (size_t)MAX_BYTES && list_room(r->c) && posix_memalign(&memory, 64, bytes ? bytes : 1) == 0) {
		memset(memory, 0, bytes ? bytes : 1);
		return keep(r->c, memory, 0);
	}
	REFUSE(r, "%s: %s: out of memory for %zu bytes", case_path(r), what, bytes);
	return NULL;
}

/* Address space that reads as zero and costs nothing until it is written. */
void *case_take_space(struct reading *r, const char *what, size_t bytes)
{
	void *memory = MAP_FAILED;

	if (bytes <= (size_t)MAX_BYTES && list_room(r->c))
		memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
			-1, 0);
	if (memory != MAP_FAILED)
		return keep(r->c, memory, bytes ? bytes : 1);
	REFUSE(r, "%s: %s: out of memory for %zu bytes", case_path(r), what, bytes);
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
const char *case_text(struct reading *r, const char *object, const char *name, const char *expected)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, object, name);

	if (a && a->type == PLUMB_H5_TEXT)
		return a->text;
	REFUSE(r, "%s: %s%sno text attribute %s, expected %s", case_path(r), object, object[0] ? ": " : "", name, expected);
	return NULL;
}

int case_integer(struct reading *r, const char *object, const char *name, int64_t min, int64_t max, int64_t *out)
{
	const struct plumb_h5_attribute *a = plumb_h5_attribute(r->file, object, name);
	const char *colon = object[0] ? ": " : "";

	if (!a || a->type != PLUMB_H5_INTEGER)
		return REFUSE(r, "%s: %s%sno integer attribute %s, expected %" PRId64 "..%" PRId64, case_path(r), object,
			colon, name, min, max);
	if (a->integer < min || a->integer > max)
		return REFUSE(r, "%s: %s%s%s is %" PRId64 ", expected %" PRId64 "..%" PRId64, case_path(r), object, colon,
			name, a->integer, min, max);
	*out = a->integer;
	return PLUMB_OK;
}

/* A text attribute that is one of some words, "f32|bf16"; *out: which. */
int case_word(struct reading *r, const char *object, const char *name, const char *words, int *out)
{
	const char *text = case_text(r, object, name, words), *at = words;

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
	return REFUSE(
		r, "%s: %s%s%s is '%.60s', expected %s", case_path(r), object, object[0] ? ": " : "", name, text, words);
}

int case_format(struct reading *r, const char *object, const char *name, bool plain, bool cache, enum plumb_format *out)
{
	const char *text = case_text(r, object, name, "a number format");

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
	return REFUSE(r, "%s: %s: %s is '%.40s', expected a%s number format", case_path(r), object, name, text,
		plain ? " plain" : "");
}

/* ---- datasets ---- */

/* The entry of a name, with the shape it must have. */
const struct plumb_h5_entry *case_entry(
	struct reading *r, const char *name, enum plumb_h5_type type, int rank, const int64_t *dim)
{
	const struct plumb_h5_entry *e = plumb_h5_find(r->file, name);
	const char *kind = type == PLUMB_H5_FLOAT ? "floats" : "integers";

	if (!e) {
		REFUSE(r, "%s: no dataset %s, expected %s", case_path(r), name, kind);
		return NULL;
	}
	if (e->type != type || e->rank != rank) {
		REFUSE(r, "%s: %s: rank %d, expected %s of rank %d", case_path(r), name, e->rank, kind, rank);
		return NULL;
	}
	for (int i = 0; i < rank; i++)
		if (e->dim[i] != dim[i]) {
			REFUSE(r, "%s: %s: size %" PRId64 " of axis %d, expected %" PRId64, case_path(r), name, e->dim[i],
				i, dim[i]);
			return NULL;
		}
	return e;
}

/* Integers of a list of any length up to most, each in min..max. *out is freed by the caller. */
int case_list(struct reading *r, const char *name, int64_t most, int64_t min, int64_t max, int64_t **out, int64_t *count)
{
	const struct plumb_h5_entry *e = plumb_h5_find(r->file, name);
	struct plumb_golden_tensor t;
	int status;

	*out = NULL;
	if (!e || e->type != PLUMB_H5_INT || e->rank != 1 || e->count > most)
		return REFUSE(r, "%s: %s: no list of integers, expected one of at most %" PRId64, case_path(r), name, most);
	status = plumb_h5_read_i64(r->file, name, &t, r->err);
	for (int64_t i = 0; i < t.count && status == PLUMB_OK; i++)
		if (t.i64[i] < min || t.i64[i] > max)
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 ", expected %" PRId64 "..%" PRId64,
				case_path(r), name, i, t.i64[i], min, max);
	if (status != PLUMB_OK) {
		plumb_golden_tensor_free(&t);
		return status;
	}
	*out = t.i64;
	*count = t.count;
	return PLUMB_OK;
}

/* Ascending, each once. */
int case_ascending(struct reading *r, const char *name, int64_t limit, int64_t **out, int64_t *count)
{
	int status = case_list(r, name, limit, 0, limit - 1, out, count);

	for (int64_t i = 1; status == PLUMB_OK && i < *count; i++)
		if ((*out)[i - 1] >= (*out)[i])
			status = REFUSE(r, "%s: %s[%" PRId64 "] is %" PRId64 " after %" PRId64 ", expected ascending rows",
				case_path(r), name, i, (*out)[i], (*out)[i - 1]);
	return status;
}

/* Bytes (rows, row_bytes); *out is freed by the caller. */
int case_bytes(struct reading *r, const char *name, int64_t rows, size_t row_bytes, unsigned char **out)
{
	const int64_t dim[2] = {rows, (int64_t)row_bytes};
	struct plumb_golden_tensor t;
	int status;

	*out = NULL;
	if (!case_entry(r, name, PLUMB_H5_INT, 2, dim))
		return PLUMB_BAD_INPUT;
	status = plumb_h5_read_u8(r->file, name, &t, r->err);
	*out = t.u8;
	return status;
}

struct plumb_extent case_extent(const struct reading *r)
{
	return (struct plumb_extent){.T = r->c->call.T, .capacity = r->c->env.capacity};
}

/* Shape of an operand; refused when it is larger than anything real. */
int case_shape(struct reading *r, const struct plumb_operand *o, int64_t dim[8], int *rank, int64_t *count)
{
	const struct plumb_extent extent = case_extent(r);

	*rank = plumb_shape_eval(o->shape, &r->c->cfg, &extent, dim);
	*count = 1;
	for (int i = 0; i < *rank; i++)
		if (dim[i] < 0 || __builtin_mul_overflow(*count, dim[i], count) || *count > MAX_ELEMENTS)
			return REFUSE(r, "%s: %s: more than 2^36 elements by the config", case_path(r), o->name);
	return *rank < 0 ? REFUSE(r, "%s: %s: no shape", case_path(r), o->name) : PLUMB_OK;
}
