/* SPDX-License-Identifier: MIT */
/* What the decoder does in a layer: the order of ops, which it follows (core/decoder.c), and which output is whose
 * input, which a fused entry has to know (opt/user.h). tests/test_user.c holds the second against the decoder's buffers. */
#ifndef PLUMB_CORE_FLOW_H
#define PLUMB_CORE_FLOW_H

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The use of a hyper-connection op. */
enum plumb_site {
	PLUMB_SITE_NONE,
	PLUMB_SITE_ATTN,  /* before and after the mixer of a layer */
	PLUMB_SITE_MLP,   /* before and after its MoE */
	PLUMB_SITE_FINAL, /* the final mixer */
};

struct plumb_step {
	enum plumb_op op;
	enum plumb_site site;
};

enum { PLUMB_FLOW_MAX = 32 }; /* steps of a layer, at most */

/* The ops of a layer in order; layer L: embed, which runs before all layers, then the final mixer, lm_head and argmax,
 * which run after them. Returns how many.
 * Source: model-spec 2.2; within the stages 2.3 to 2.10. */
int plumb_flow_order(const struct plumb_config *cfg, int layer, struct plumb_step out[PLUMB_FLOW_MAX]);

/* Whether a layer can run the ops as one: 1, where each of them follows the one before it, wherever it stands; 0, where it
 * does not run them all; -1, where it does, and *stray, a place in its order, is one of them that stands apart. */
int plumb_flow_fits(const struct plumb_config *cfg, int layer, const enum plumb_op *op, int count, int *stray);

/* Whether a layer of the config runs the ops as one, and none runs them otherwise. False: with text, what follows what. */
bool plumb_flow_joins(const struct plumb_config *cfg, const enum plumb_op *op, int count, char *text, size_t size);

/* Whether this output of the op `from` is that input of the op `to`. */
bool plumb_flow_feeds(enum plumb_op from, const char *output, enum plumb_op to, const char *input);

/* Whether something other than the count ops of covered[] reads the output: another op, or whoever runs the decoder
 * (logits, tokens). */
bool plumb_flow_leaves(enum plumb_op from, const char *output, const enum plumb_op *covered, int count);

#ifdef __cplusplus
}
#endif
#endif
