/* SPDX-License-Identifier: MIT */
/* Named classes of inputs: what a kernel may meet beside ordinary numbers, each with an aim. */
#ifndef PLUMB_TOOLS_TRIAL_CLASS_H
#define PLUMB_TOOLS_TRIAL_CLASS_H

#include "tools/trial.h"

/* What a class puts its values into. */
enum {
	TRIAL_ON_ACTIVATION = 1, /* inputs that are f32 arrays */
	TRIAL_ON_STATE = 2,      /* recurrent state, windows */
	TRIAL_ON_CACHE = 4,
	TRIAL_ON_MATRIX = 8,
	TRIAL_ON_VECTOR = 16, /* norms and taps; decay constants have a class of their own */
};

struct trial_class {
	const char *name;               /* "ties" */
	const char *aim;                /* one line: what it is to find */
	const char *faults;             /* classes of faults that it is for, "F02 F27" (docs/testing.md) */
	const char *ops;                /* names with spaces between; NULL: every op with an operand in `on` */
	unsigned on;                    /* TRIAL_ON_...: where value goes; or where fill chooses from */
	void (*shape)(struct trial *c); /* changes a drafted case before it has memory; may be NULL */
	float (*value)(struct trial *c, const struct trial_operand *o, int64_t i); /* element i; may be NULL */
	bool any_format;               /* value goes into matrices with scales too, all scales 1 */
	void (*fill)(struct trial *c); /* after value; may be NULL */
	bool bits;  /* the derived bound ends here (binary64 neither overflows nor underflows where binary32 does): the
	                   bits of the twin are all there is, of a shared object where it is NaN, Inf, or a number */
	bool named; /* never drawn for a line without a class: added since, and such lines stay the cases that they were */
	bool overflows; /* where that happens is the order's own: not for shared objects, unless exact */
};

/* Class i of the table; NULL past the last. The first one is "plain". */
const struct trial_class *trial_class(int i);
/* By name; NULL: there is none. */
const struct trial_class *trial_class_find(const char *name);
/* Whether it says anything about the op. */
bool trial_class_applies(const struct trial_class *class, enum plumb_op op);

/* Whether its cases can have the op's matrices in one of the formats (a set of 1 << enum plumb_format; 0: any). */
bool trial_class_takes(const struct trial_class *class, enum plumb_op op, unsigned formats);

/* Where an operand belongs: one of TRIAL_ON_..., or 0. */
unsigned trial_class_role(const struct trial_operand *o);

/* Fill a case, whose operands hold ordinary values, as its class says. */
void trial_class_fill(struct trial *c);

/* ---- between the files of the classes ---- */

/* One value into element i of an operand: as the policy rounds activations, as a format stores the rest. Matrices: of
 * plain formats; else with the scales as they are set to 1 by trial_class_fill. i counts logical rows of caches. */
void trial_put(struct trial *c, struct trial_operand *o, int64_t i, float v);
int64_t trial_elements(const struct trial_operand *o); /* that trial_put takes */
int64_t trial_columns(const struct trial_operand *o);  /* of a row */
/* All scales of quantised matrices 1. */
void trial_unscale(struct trial_operand *o);
/* The operand, or NULL when this op has none of that name, or leaves it out. */
struct trial_operand *trial_find(struct trial *c, const char *name);
int64_t trial_pick(struct trial *c, const int64_t *list, int64_t n);
/* 1 + a format of the list that the case may have, as trial_options has them; 0: it may have none of them. */
int trial_pick_format(struct trial *c, enum trial_formats whose, const int64_t *list, int64_t n);
float trial_sign(struct trial *c);

float trial_value_heavy(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_integer(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_power(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_zero(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_subnormal(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_tiny(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_huge(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_coordinate(struct trial *c, const struct trial_operand *o, int64_t i);
float trial_value_midpoint(struct trial *c, const struct trial_operand *o, int64_t i);

void trial_fill_onehot(struct trial *c);
void trial_fill_cancel(struct trial *c);
void trial_fill_nan(struct trial *c);
void trial_fill_inf(struct trial *c);
void trial_fill_branch(struct trial *c);
void trial_fill_unit(struct trial *c);
void trial_fill_midpoint(struct trial *c);
void trial_fill_powers_of_two(struct trial *c);

void trial_fill_ties(struct trial *c);
void trial_fill_bin(struct trial *c);
void trial_fill_unranked(struct trial *c);
void trial_fill_gates(struct trial *c);
void trial_fill_decay(struct trial *c);
void trial_fill_experts(struct trial *c);
void trial_fill_bad_ids(struct trial *c);
void trial_fill_rope(struct trial *c);
void trial_fill_ngram(struct trial *c);
void trial_fill_padding(struct trial *c);

void trial_shape_bin(struct trial *c);
void trial_shape_ties(struct trial *c);
void trial_shape_unranked(struct trial *c);
void trial_shape_bf16(struct trial *c);
void trial_shape_scales(struct trial *c);
void trial_shape_gates(struct trial *c);
void trial_shape_small(struct trial *c);
void trial_shape_rows(struct trial *c);
void trial_shape_pages(struct trial *c);
void trial_shape_positions(struct trial *c);
void trial_shape_far(struct trial *c);
void trial_shape_offsets(struct trial *c);
void trial_shape_wide(struct trial *c);
void trial_shape_ragged(struct trial *c);
void trial_shape_bad_ids(struct trial *c);
void trial_shape_pieces(struct trial *c);
void trial_shape_heads(struct trial *c);
void trial_shape_long(struct trial *c);
void trial_fill_long(struct trial *c);
void trial_shape_caches(struct trial *c);
void trial_shape_skewed(struct trial *c);
void trial_shape_tiles(struct trial *c);
void trial_shape_staged(struct trial *c);
void trial_shape_vanishing(struct trial *c);
float trial_value_vanishing(struct trial *c, const struct trial_operand *o, int64_t i);
void trial_fill_tiles(struct trial *c);
void trial_shape_ngram(struct trial *c);

#endif
