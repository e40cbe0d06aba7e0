/* SPDX-License-Identifier: MIT */
/* Between the parts of the reader of cases: what a file holds, asked for with the checks that belong to it. */
#ifndef PLUMB_GOLDEN_CASE_READING_H
#define PLUMB_GOLDEN_CASE_READING_H

#include "golden/case_parts.h"

/* Elements of one operand, and bytes of address space of one: both far beyond the released model (its lm_head has
 * 2^29.3 weights, its n-gram table 2^37 bytes), far below what overflows. */
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

/* Contracts of these: golden/case_file.c. */
const char *case_path(const struct reading *r);
void *case_take(struct reading *r, const char *what, size_t bytes);
void *case_take_space(struct reading *r, const char *what, size_t bytes);
const char *case_text(struct reading *r, const char *object, const char *name, const char *expected);
int case_integer(struct reading *r, const char *object, const char *name, int64_t min, int64_t max, int64_t *out);
int case_word(struct reading *r, const char *object, const char *name, const char *words, int *out);
int case_format(struct reading *r, const char *object, const char *name, bool plain, bool cache, enum plumb_format *out);
const struct plumb_h5_entry *case_entry(
	struct reading *r, const char *name, enum plumb_h5_type type, int rank, const int64_t *dim);
int case_list(struct reading *r, const char *name, int64_t most, int64_t min, int64_t max, int64_t **out, int64_t *count);
int case_ascending(struct reading *r, const char *name, int64_t limit, int64_t **out, int64_t *count);
int case_bytes(struct reading *r, const char *name, int64_t rows, size_t row_bytes, unsigned char **out);
struct plumb_extent case_extent(const struct reading *r);
int case_shape(struct reading *r, const struct plumb_operand *o, int64_t dim[8], int *rank, int64_t *count);

#endif
