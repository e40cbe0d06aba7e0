/* SPDX-License-Identifier: MIT */
/* Which weights a call reads: all of a projection, but only the rows of a table that tokens choose and only the experts
 * that the router chose. Whoever makes weights on demand, writes a case, or counts the bytes of a call asks here. */
#ifndef PLUMB_CORE_READS_H
#define PLUMB_CORE_READS_H

#include "core/op.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows [row, row + rows) of one matrix. */
struct plumb_read {
	const struct plumb_operand *operand;
	const struct plumb_weight *weight;
	int64_t matrix; /* index in its bank; 0 outside banks */
	int64_t row, rows;
};

/* Called for each part. A status other than PLUMB_OK ends the walk and is returned by it. */
typedef int plumb_read_fn(void *self, const struct plumb_read *read);

/* Walk over what the call reads of its weights, operand by operand; every part once, in ascending order of matrix and row,
 * whatever tokens repeat it. args: the op's argument struct with host pointers; inputs and state as before the call.
 * Ids outside the bank or table are left out (ops read nothing for them).
 * Errors: PLUMB_BAD_INPUT for memory. */
int plumb_reads(const struct plumb_env *env, enum plumb_op op, const void *args, plumb_read_fn *fn, void *self);

/* Bytes of what is read: data, and the scales that belong to it (of a 128 x 128 block: one, however few of its rows). */
size_t plumb_read_bytes(const struct plumb_read *read);

#ifdef __cplusplus
}
#endif
#endif
