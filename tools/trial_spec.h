/* SPDX-License-Identifier: MIT */
/* A trial as one line of text:
 *
 *     moe_router T=3 E=512 policy=bf16 format=nvfp4 class=ties seed=17 device=simt
 *
 * The op comes first, then what is not left to the seed, in any order; printed in the order of this list:
 *   T, D, E, ...   a size by its letter (core/config.h); C, W, NB and L follow from others
 *   position       of row 0
 *   policy         f32, bf16
 *   format         of all matrices: f32, f16, bf16, fp8_row, fp8_block, fp8_table, nvfp4; or some of them, with commas, of which each
 *                  matrix has one
 *   kv, state      of keys and values: f32, bf16, fp8; of the GDN state: f32, f16, bf16; or some of them
 *   gate           of gdn_norm_gate: sigmoid, silu
 *   renorm         of moe_router, whether the weights of the chosen are divided by their sum: 0, 1
 *   traces         with (1) or without (0) optional operands
 *   class          of inputs (tools/trial_class.h)
 *   seed           0 to 2^64 - 1
 *   device         simt, cuda
 * What is not named comes from the seed, and so do all values: the same line is the same trial, wherever it stands. */
#ifndef PLUMB_TOOLS_TRIAL_SPEC_H
#define PLUMB_TOOLS_TRIAL_SPEC_H

#include "opt/device.h"
#include "tools/trial_class.h"

enum { TRIAL_LETTERS = 27, TRIAL_LINE = 512 };

struct trial_spec {
	enum plumb_op op;
	int64_t size[TRIAL_LETTERS]; /* 0: from the seed */
	int64_t position;            /* -1: from the seed, as all below */
	int policy, gate, renorm, traces;
	unsigned formats[TRIAL_FORMATS]; /* sets of 1 << enum plumb_format: one of them; 0: from the seed */
	const struct trial_class *class; /* NULL: from the seed */
	uint64_t seed;
	enum plumb_device_kind device;
};

/* Nothing said of this op: everything from seed 0, on simt. */
struct trial_spec trial_spec_of(enum plumb_op op);

/* Errors: PLUMB_BAD_INPUT naming the word and what was expected. */
int trial_spec_parse(const char *text, struct trial_spec *out, struct plumb_error *err);
/* The line; parsing it gives the same spec. Returns text. */
const char *trial_spec_show(const struct trial_spec *spec, char text[TRIAL_LINE]);

/* Formats that operands of the op can have: a set; 0: it has no such operand. Words of it: "f32, f16, bf16", which
 * returns text. */
unsigned trial_spec_formats(enum plumb_op op, enum trial_formats whose);
const char *trial_spec_format_words(enum trial_formats whose, unsigned set, char text[TRIAL_LINE]);
/* "nvfp4,fp8_row" added to a set. what: begins the message, "--format". Errors: PLUMB_BAD_INPUT naming what, the word
 * and what there is. */
int trial_spec_parse_formats(
	const char *what, enum trial_formats whose, const char *text, unsigned *set, struct plumb_error *err);

/* Sizes by their letters, in the order of trial_spec.size. "D=2560,T=1" into a list of them, 0 what is not said. what: begins the
 * message, "--size". Errors: PLUMB_BAD_INPUT naming what, the word and what was expected. */
const char *trial_spec_letter(int letter);
bool trial_spec_has_size(enum plumb_op op, int letter);
int trial_spec_parse_sizes(const char *what, const char *text, int64_t size[TRIAL_LETTERS], struct plumb_error *err);

/* The class of a spec: its own, or what its seed chooses. */
const struct trial_class *trial_spec_class(const struct trial_spec *spec);

/* Make the trial. inert: with the random numbers of its class, but nothing special about sizes or values (for tests).
 * Errors: PLUMB_BAD_INPUT naming sizes that do not go together, or a case beyond 8 GiB. Freed with trial_free. */
int trial_spec_make(const struct trial_spec *spec, bool inert, struct trial **out, struct plumb_error *err);
/* The same sizes with other values: what a candidate is called with before the trial itself, which must not show. */
int trial_spec_other(const struct trial_spec *spec, struct trial **out, struct plumb_error *err);

/* What a made trial is in full: all sizes and formats that its op looks at. Returns text. */
const char *trial_spec_full(const struct trial *c, char text[TRIAL_LINE]);

#endif
