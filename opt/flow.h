/* SPDX-License-Identifier: MIT */
/* The order of ops within a layer and which output is whose input: what a fused entry has to know. The decoder
 * (core/decoder.c) is what it has to agree with; tests/test_user.c holds it to that. */
#ifndef PLUMB_OPT_FLOW_H
#define PLUMB_OPT_FLOW_H

#include "core/op.h"

enum { PLUMB_FLOW_MAX = 32 };

/* The ops of a layer in order; layer L: embed, then, after all layers, the final mixer, lm_head and argmax.
 * Returns how many. */
int plumb_flow_order(const struct plumb_config *cfg, int layer, enum plumb_op out[PLUMB_FLOW_MAX]);

/* Whether a layer can run the ops as one: 1, where each of them follows the one before it, wherever it stands; 0, where it does not
 * run them all; -1, where it does, and *stray, a place in its order, is one of them that stands apart. */
int plumb_flow_fits(const struct plumb_config *cfg, int layer, const enum plumb_op *op, int count, int *stray);

/* Whether a layer of the config runs the ops as one, and none runs them otherwise. False: with text, what follows what. */
bool plumb_flow_joins(const struct plumb_config *cfg, const enum plumb_op *op, int count, char *text, size_t size);

/* Whether the output feeds an input of the op `to`. */
bool plumb_flow_feeds(enum plumb_op from, const char *output, enum plumb_op to, const char *input);

/* Whether something other than the count ops of covered[] reads the output (or nobody in particular does, as of
 * tokens). */
bool plumb_flow_leaves(enum plumb_op from, const char *output, const enum plumb_op *covered, int count);

#endif
