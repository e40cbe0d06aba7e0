/* SPDX-License-Identifier: MIT */
/* A call of any op with all its memory, and the comparison of its implementations: oracle, twin, and opt on a device.
 *
 * Operands come from the op's row of plumb_ops[], so an op that is added to the table is tested without a line here,
 * unless its data must be special to be valid; what is special goes by role and name (tests/support/op_fill.c). All
 * values are a function of the seed. Every buffer lies between guard zones. A helper that runs out of memory ends the
 * program. */
#ifndef PLUMB_TESTS_SUPPORT_OP_CASE_H
#define PLUMB_TESTS_SUPPORT_OP_CASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"
#include "core/op.h"
#include "core/ops/ple.h"
#include "core/weight.h"
#include "opt/device.h"
#include "ref/bound.h"

enum { OP_CASE_OPERANDS = 16, OP_CASE_TEXT = 1024 };

/* splitmix64: the state is the seed. */
struct op_random {
	uint64_t state;
};
uint64_t op_random_next(struct op_random *r);
int64_t op_random_below(struct op_random *r, int64_t n);           /* 0 .. n-1 */
float op_random_float(struct op_random *r, float low, float high); /* uniform */

/* bytes of data between two zones; what lies around data holds NaN in every format that has one (E2M1 has none). */
struct op_memory {
	unsigned char *block, *data;
	size_t block_bytes, bytes;
};

struct op_operand {
	const struct plumb_operand *info;
	bool absent;           /* optional and left out */
	int64_t dim[8], count; /* of the shape; count of elements of an array */
	int rank;
	struct op_memory memory;     /* the array, the cache's rows, the data of all matrices */
	struct op_memory scale;      /* their scales */
	struct op_memory page;       /* of a cache */
	struct plumb_weight *weight; /* (matrices) */
	int64_t matrices;
	struct plumb_cache cache;
	enum plumb_format format; /* of kind STORED; else f32 */
	struct plumb_ngram ngram;
	unsigned char *before;       /* block as it is before a call; NULL for outputs */
	unsigned char *page_before;  /* the page table's block */
	unsigned char *scale_before; /* the scales' */
};

/* What does not come from the seed. */
struct op_case_options {
	const struct plumb_config *cfg; /* NULL: random */
	int policy;                     /* enum plumb_policy, or -1: random */
	int64_t T;                      /* 0: random */
	int format;                     /* enum plumb_format of all matrices, or -1: random for each; vectors are always
	                                   f32, f16 or bf16 */
	bool plain;                     /* keys and values as the policy has them, GDN state f32; else formats are random */
	int traces;                     /* 1: with optional operands, 0: without, -1: random */
};

struct op_case {
	enum plumb_op op;
	uint64_t seed;
	struct op_random random;
	struct plumb_config cfg;
	struct plumb_env env; /* device NULL, err at error */
	struct plumb_error error;
	int64_t T, position;
	void *args;
	struct op_operand operand[OP_CASE_OPERANDS];
	int operands;
	float span;                        /* magnitude of activations */
	float zeros;                       /* part of them that is zero, of either sign */
	struct plumb_bound_result *bounds; /* op_case_near adds its measurements to it; NULL: to nothing */
};

/* Make the case; options NULL: all from the seed. Inputs are filled with valid data. */
struct op_case *op_case_new(enum plumb_op op, uint64_t seed, const struct op_case_options *options);
void op_case_free(struct op_case *c);

/* An operand by name. Ends the program when there is none. */
struct op_operand *op_case_operand(struct op_case *c, const char *name);
void *op_case_data(struct op_case *c, const char *name);

/* To be called after inputs were changed by hand. */
void op_case_seal(struct op_case *c);

/* "moe_down:17": what PLUMB_OP_CASE takes. */
const char *op_case_name(const struct op_case *c, char text[64]);

/* Run fn once, outputs poisoned before. On return result holds what each output and state then holds, one block an
 * operand, to be freed with op_result_free. device: NULL for the reference. what: begins the text, e.g. "twin". False,
 * with text, when fn fails, writes outside of what it is given, or changes an input. */
struct op_result {
	unsigned char *bytes[OP_CASE_OPERANDS];
};
bool op_case_run(struct op_case *c, const char *what, plumb_op_fn *fn, struct plumb_device *device,
	enum plumb_poison poison, struct op_result *result, char text[OP_CASE_TEXT]);
void op_result_free(struct op_result *r);

/* Two results agree in every bit (a NaN with a NaN). False with text. */
bool op_case_same(
	struct op_case *c, const struct op_result *a, const struct op_result *b, const char *what, char text[OP_CASE_TEXT]);

/* Measure what the last run left in the operands by the op's error bound (ref/bound.h) and add it to sum (may be NULL).
 * False, with text, when an element of this call is beyond its bound. */
bool op_case_bounded(struct op_case *c, const char *what, struct plumb_bound_result *sum, char text[OP_CASE_TEXT]);

/* The values of result are within the op's error bound; it chose as the oracle did, or within what rounding explains;
 * other integers are equal. False with text. */
bool op_case_near(struct op_case *c, const struct op_result *oracle, const struct op_result *result, const char *what,
	char text[OP_CASE_TEXT]);

/* The twin twice, under either poison, and opt (NULL: that of plumb_device_set) on every device, with alternating
 * poison, all agree in every bit. False with one line of text. */
bool op_case_agree(
	struct op_case *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[OP_CASE_TEXT]);

/* The same, and the twin is within the error bound and chooses as the oracle does. */
bool op_case_check(
	struct op_case *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[OP_CASE_TEXT]);

/* --- between the parts of this helper --- */

/* A random config whose work is small, with sizes around those where code changes its way. */
void op_config_random(struct op_random *r, enum plumb_op op, struct plumb_config *cfg);

/* Whether the operand is a vector by what it does (norms, taps, decay constants), which nobody quantises. */
bool op_is_vector(const struct plumb_operand *info);

/* Fill the operands that are inputs. */
void op_case_fill(struct op_case *c);

/* Values of an array of reals or a cache as binary32: malloc'ed, count of them. */
float *op_values(const struct op_operand *o, const unsigned char *bytes);

#endif
