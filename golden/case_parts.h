/* SPDX-License-Identifier: MIT */
/* Between the writer and the reader of cases: what they must agree on. */
#ifndef PLUMB_GOLDEN_CASE_PARTS_H
#define PLUMB_GOLDEN_CASE_PARTS_H

#include <stdbool.h>
#include <string.h>

#include "golden/case.h"

/* Whether an array lies in the file as the bytes that it is stored as: reals that are not binary32. */
static inline bool case_is_bytes(const struct plumb_operand *o, const void *args)
{
	return o->kind == PLUMB_KIND_STORED && plumb_operand_format(o, args) != PLUMB_F32;
}

/* Constants that the config gives. */
static inline bool case_is_derived(const struct plumb_operand *o)
{
	return o->kind == PLUMB_KIND_NGRAM || (o->role == PLUMB_CONSTANT && strcmp(o->name, "rope") == 0);
}

/* Rows of scales that a matrix has, and their bytes; rows of the matrix that share one. */
static inline int64_t case_scale_unit(const struct plumb_weight *w)
{
	return w->format == PLUMB_FP8_BLOCK ? PLUMB_FP8_BLOCK_SIZE : 1;
}

static inline int64_t case_scale_rows(const struct plumb_weight *w)
{
	return plumb_weight_scale_bytes(w) ? plumb_parts(w->rows, case_scale_unit(w)) : 0;
}

static inline size_t case_scale_row_bytes(const struct plumb_weight *w)
{
	int64_t rows = case_scale_rows(w);
	return rows ? plumb_weight_scale_bytes(w) / (size_t)rows : 0;
}

/* Which rows of a cache operand the call reads, of the rows before those that it writes or, of an input, up to position
 * + T. mark: (limit) bytes, set to 1; limit: rows that can be meant. LIMIT: of block lists, ids beyond the limit mark
 * nothing. */
int64_t case_row_limit(const struct plumb_call *call, const struct plumb_operand *o);
void case_mark_rows(const struct plumb_call *call, const struct plumb_operand *o, unsigned char *mark, int64_t limit);

/* Whether tokens, experts, blocks and positions of a case are those that its kernels may index by. path: for
 * messages. */
int case_check_values(const struct plumb_case *c, const char *path, struct plumb_error *err);

#endif
