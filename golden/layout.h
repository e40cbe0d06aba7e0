/* SPDX-License-Identifier: MIT */
/* Where each tensor of golden format 1 comes from: which operand of which op, at which site, in which arrangement. One
 * table for the comparison and for the writer. Traps of the format: model-spec section 8. */
#ifndef PLUMB_GOLDEN_LAYOUT_H
#define PLUMB_GOLDEN_LAYOUT_H

#include <stdbool.h>
#include <stdint.h>

#include "core/decoder.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_golden_form {
	PLUMB_GOLDEN_ROWS,         /* rows of an output, one (or a group of) row a token */
	PLUMB_GOLDEN_FIRST_STREAM, /* stream 0 of an output (T, S, D) whose streams are equal */
	PLUMB_GOLDEN_CACHE_HEADS,  /* rows that the call appended to a cache (P, H*Dh), recorded as [H, T, Dh] */
	PLUMB_GOLDEN_CACHE_ROWS,   /* rows that the call appended to a cache (P, width), recorded as [T, width] */
	PLUMB_GOLDEN_EXPERTS,      /* router choice, int64 [T, A], slots in rank order */
	PLUMB_GOLDEN_MASK,         /* QSA choice, [1, T, T], 0 where selected */
	PLUMB_GOLDEN_STATE,        /* state after the last token, see plumb_golden_state */
};

/* Which layers have a tensor. */
enum plumb_golden_scope {
	PLUMB_GOLDEN_OUTSIDE, /* not in a layer: "logits" */
	PLUMB_GOLDEN_FIRST,   /* layer 0 only, written by an op outside the layers */
	PLUMB_GOLDEN_EVERY,   /* every layer that runs the op */
	PLUMB_GOLDEN_NEXT,    /* the layer after the one that runs the op */
};

struct plumb_golden_source {
	const char *dataset; /* "logits", or within layerNN: "gdn/recurrence" */
	enum plumb_golden_scope scope;
	enum plumb_golden_form form;
	enum plumb_op op;
	enum plumb_site site;
	const char *operand; /* of the op; NULL for PLUMB_GOLDEN_STATE */
	const char *shape;   /* of the dataset, letters of core/config.h */
	bool integer;
	bool trace; /* taken inside the op: compared, but no input of another op */
};

/* The table, in the order of a forward pass. */
extern const struct plumb_golden_source plumb_golden_sources[];
extern const int plumb_golden_source_count;

/* Name of the dataset within a run: "layer03/gdn/output". layer: that of the call. False when that layer has none (the
 * layer after the last). */
bool plumb_golden_dataset_name(
	const struct plumb_golden_source *source, const struct plumb_config *cfg, int layer, char *name, int size);

/* The source of a dataset given by its name within a run; *layer receives its layer (L outside the layers). NULL when the
 * name is none of this format or of this model. */
const struct plumb_golden_source *plumb_golden_source_find(const struct plumb_config *cfg, const char *name, int *layer);

/* State of a layer in the arrangement of the file. out: elements of the shape, f32, or i64 for integer sources. Rows of
 * positions before 0 are zero, ids before the first are EOS. */
void plumb_golden_state(const struct plumb_golden_source *source, const struct plumb_config *cfg,
	const struct plumb_layer_state *state, int64_t position, float *f32, int64_t *i64);

#ifdef __cplusplus
}
#endif
#endif
