/* SPDX-License-Identifier: MIT */
/* How many bytes a call has to move, from its contract: the byte floor of an op, whoever implements it. */
#ifndef PLUMB_CORE_TRAFFIC_H
#define PLUMB_CORE_TRAFFIC_H

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_traffic {
	int64_t weights; /* bytes of what the call reads of its weights (core/reads.h) */
	int64_t read;    /* of inputs, state, caches and constants */
	int64_t written; /* of outputs, state and caches */
};

/* Add what one call moves to *sum. Every operand counts once: arrays whole; of a ring the rows that are read and the
 * one that is written; of a cache the rows that the contract names (blocks chosen, blocks complete, the row appended);
 * of rope tables the rows of the call's positions; queries and gates, which lie in one array, each for the op that
 * reads them. Trace outputs count where they are asked for, constants of the n-gram hash do not.
 * args: with host pointers, inputs as they are before the call.
 * LIMIT: rows of one call that choose the same blocks are not merged (attn_decode with T > 1 counts them once a row).
 * Errors: PLUMB_BAD_INPUT for memory. */
int plumb_traffic(const struct plumb_env *env, enum plumb_op op, const void *args, struct plumb_traffic *sum);

#ifdef __cplusplus
}
#endif
#endif
