/* SPDX-License-Identifier: MIT */
/* A trial: one call of any op with all its memory, and the comparison of its implementations: oracle, twin, and a
 * candidate (opt on a device, or a user's kernel).
 *
 * Operands come from the op's row of plumb_ops[], so an op that is added to the table is tested without a line here,
 * unless its data must be special to be valid; what is special goes by role and name (tools/trial_fill.c). All values are
 * a function of the seed. Every buffer lies between guard zones. A helper that runs out of memory ends the program.
 *
 * What is hostile about the inputs is a class (tools/trial_class.h); a trial written as one line is a spec
 * (tools/trial_spec.h); many of them are a suite (tools/trial_suite.h). */
#ifndef PLUMB_TOOLS_TRIAL_H
#define PLUMB_TOOLS_TRIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/config.h"
#include "core/decoder.h"
#include "core/op.h"
#include "core/ops/ple.h"
#include "core/weight.h"
#include "opt/device.h"
#include "opt/trap.h"
#include "ref/bound.h"

enum { TRIAL_OPERANDS = 16, TRIAL_TEXT = 1024 };

/* splitmix64: the state is the seed. */
struct trial_random {
	uint64_t state;
};
uint64_t trial_random_next(struct trial_random *r);
int64_t trial_random_below(struct trial_random *r, int64_t n);           /* 0 .. n-1 */
float trial_random_float(struct trial_random *r, float low, float high); /* uniform */

/* bytes of data between two zones, of which one (by turn) has next to no bytes before what traps (opt/trap.h); what lies around data
 * holds NaN in every format that has one (E2M1 has none). sparse: address space of which only the ranges are anybody's business; the
 * rest reads as zeros. */
struct trial_range {
	size_t start, bytes; /* of data */
};
struct trial_memory {
	unsigned char *block, *data; /* block: whole pages that may be touched; NULL: nothing is there */
	size_t block_bytes, bytes;
	bool sparse;
	struct plumb_trap trap;
	struct trial_range *range; /* (ranges), sparse only */
	int64_t ranges;
};
struct trial_layout {
	const char *name, *part; /* for who reads what is said of a trap: "keys", "page table of "; borrowed */
	size_t element;          /* bytes; 0: of no one size */
	uint64_t turn;
	size_t align, skew; /* data lies skew bytes behind a multiple of align */
	bool sparse;
};
/* At *m, which stays where it is. */
void trial_memory_make(struct trial_memory *m, size_t bytes, const struct trial_layout *layout);
void trial_memory_free(struct trial_memory *m);
/* Sparse: add a range that a call may read or write. */
void trial_memory_add(struct trial_memory *m, size_t start, size_t bytes);
/* Bytes that count: of all data, or of the ranges. Copied one behind the other, and back. */
size_t trial_memory_live(const struct trial_memory *m);
void trial_memory_gather(const struct trial_memory *m, unsigned char *to);
void trial_memory_scatter(struct trial_memory *m, const unsigned char *from);

struct trial_operand {
	const struct plumb_operand *info;
	bool absent;           /* optional and left out */
	int64_t dim[8], count; /* of the shape; count of elements of an array */
	int rank;
	struct trial_memory memory;  /* the array, the cache's rows, the data of all matrices */
	struct trial_memory scale;   /* their scales */
	struct trial_memory page;    /* of a cache */
	struct plumb_weight *weight; /* (matrices) */
	int64_t matrices;
	struct plumb_cache cache;
	enum plumb_format format; /* of kind STORED; else f32 */
	struct plumb_ngram ngram;
	unsigned char *before;       /* as it is before a call: the data, of sparse memory the ranges; NULL for outputs */
	unsigned char *page_before;  /* the page table */
	unsigned char *scale_before; /* the scales' */
};

/* Whose formats a case can choose among. */
enum trial_formats { TRIAL_OF_MATRICES, TRIAL_OF_KV, TRIAL_OF_STATE, TRIAL_FORMATS };

/* What does not come from the seed. */
struct trial_options {
	const struct plumb_config *cfg; /* NULL: random */
	int policy;                     /* enum plumb_policy, or -1: random */
	int64_t T;                      /* 0: random */
	int format;                     /* enum plumb_format of all matrices, or -1: random for each; vectors are always
	                                   f32, f16 or bf16 */
	bool plain;                     /* keys and values as the policy has them, GDN state f32; else formats are random */
	int traces;                     /* 1: with optional operands, 0: without, -1: random */
	int kv, state;                  /* 1 + enum plumb_format of keys and values, of the GDN state; 0: random */
	int scales;                     /* 1 + enum trial_scales of every matrix; 0: random for each */
	int shards;                     /* of the n-gram table; 0: random */
	int caches;                     /* 1 + enum plumb_format of every cache; 0: kv, and the policy's in the indexer */
	size_t skew;                    /* bytes by which arrays of reals lie behind a multiple of 16 */
	bool aligned;                   /* every matrix begins at an address where wide loads are possible */
	int formats[3]; /* where format is -1: 1 + enum plumb_format of matrices; of those of the shared expert and GDN's
	                   b and a; of the experts' up, GDN's z, attention's k. 0: random for each */
	bool far;       /* tables and pages of caches lie more than 2^31 elements apart */
	unsigned among[TRIAL_FORMATS]; /* sets of 1 << enum plumb_format: what is random is one of them; 0: any */
};
struct trial;
/* Whether a format is among those that the case may have. */
bool trial_may(const struct trial *c, enum trial_formats whose, enum plumb_format format);

/* Scales of a quantised matrix. */
enum trial_scales { TRIAL_SCALES_ALIKE, TRIAL_SCALES_MANY, TRIAL_SCALES_ALTERNATING, TRIAL_SCALES };

struct trial_class; /* tools/trial_class.h */

struct trial {
	enum plumb_op op;
	uint64_t seed;
	struct trial_random random;
	const struct trial_class *class; /* NULL: plain */
	struct trial_options with;
	struct plumb_config cfg;
	struct plumb_env env; /* device NULL, err at error */
	struct plumb_error error;
	int64_t T, position, page_tokens;
	void *args;
	struct trial_operand operand[TRIAL_OPERANDS];
	int operands;
	float span;                        /* magnitude of activations */
	float zeros;                       /* part of them that is zero, of either sign */
	double within;                     /* the largest error of the bound that passes; 1 */
	struct plumb_bound_result *bounds; /* trial_near adds its measurements to it; NULL: to nothing */
};

/* Make the case; options NULL: all from the seed. Inputs are filled with valid data. */
struct trial *trial_new(enum plumb_op op, uint64_t seed, const struct trial_options *options);
void trial_free(struct trial *c);

/* An operand by name. Ends the program when there is none. */
struct trial_operand *trial_operand(struct trial *c, const char *name);
void *trial_data(struct trial *c, const char *name);

/* To be called after inputs were changed by hand. */
void trial_seal(struct trial *c);

/* "moe_down:17" */
const char *trial_name(const struct trial *c, char text[64]);

/* A number of all bytes that the op reads: equal inputs have equal ones. After trial_seal. */
uint64_t trial_inputs(const struct trial *c);

/* ---- running: tools/trial_run.c ---- */

/* On return of a run it holds what each output and state then holds, one block an operand. */
struct trial_result {
	unsigned char *bytes[TRIAL_OPERANDS];
};
void trial_result_free(struct trial_result *r);

/* Who computes. run gets the env, with device set, and the arguments; a status other than PLUMB_OK, with env->err, is a
 * failure. device: what to poison, wait for and check; NULL: none. */
struct trial_runner {
	const char *what; /* begins a text, e.g. "twin" */
	int (*run)(void *self, const struct plumb_env *env, const void *args);
	void *self;
	struct plumb_device *device;
	void *env_device; /* what the op finds in env->device; NULL: device */
};

/* Run once, outputs poisoned before. False, with text, when it fails, writes outside of what it is given, or changes an
 * input. */
bool trial_run_by(struct trial *c, const struct trial_runner *runner, enum plumb_poison poison, struct trial_result *result,
	char text[TRIAL_TEXT]);
/* The same by a function of a set. device: NULL for the reference. */
bool trial_run(struct trial *c, const char *what, plumb_op_fn *fn, struct plumb_device *device, enum plumb_poison poison,
	struct trial_result *result, char text[TRIAL_TEXT]);

/* Two results agree in every bit (a NaN with a NaN). False with text. */
bool trial_same(struct trial *c, const struct trial_result *a, const struct trial_result *b, const char *what,
	char text[TRIAL_TEXT]);

/* The same elements are NaN, +Inf, -Inf and numbers; integers are equal. False with text. */
bool trial_same_kinds(struct trial *c, const struct trial_result *a, const struct trial_result *b, const char *what,
	char text[TRIAL_TEXT]);

/* The first operand in which two results differ; -1: none. integers: of the operands that hold integers. */
int trial_differs(const struct trial *c, const struct trial_result *a, const struct trial_result *b, bool integers);

/* The call as observers of a decoder see it. */
struct plumb_call trial_call(const struct trial *c);

/* The twin twice, under either poison, and opt (NULL: that of plumb_device_set) on every device, with alternating
 * poison, all agree in every bit. False with one line of text. */
bool trial_agree(struct trial *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[TRIAL_TEXT]);

/* The same, and the twin is within the error bound and chooses as the oracle does. */
bool trial_check(struct trial *c, plumb_op_fn *opt, struct plumb_device *const *device, int devices, char text[TRIAL_TEXT]);

/* ---- nearness: tools/trial_bound.c ---- */

/* Measure what the last run left in the operands by the op's error bound (ref/bound.h) and add it to sum (may be NULL).
 * False, with text, when an element of this call is beyond its bound. */
bool trial_bounded(struct trial *c, const char *what, struct plumb_bound_result *sum, char text[TRIAL_TEXT]);

/* The values of result are within the op's error bound; it chose as the oracle did, or within what rounding explains;
 * other integers are equal. False with text. */
bool trial_near(struct trial *c, const struct trial_result *oracle, const struct trial_result *result, const char *what,
	char text[TRIAL_TEXT]);

/* Put a result back to where calls and bounds look. */
void trial_restore(struct trial *c, const struct trial_result *result);

/* The argument struct with array states as they were before the call; args: of the op's size. */
void trial_arguments_before(const struct trial *c, void *args);

/* --- between the parts of this helper --- */

/* Memory; ends the program when there is none. */
void *trial_take(size_t bytes);

/* The sizes of a case from its random numbers, in c->cfg, T, position and so on, as options have it. */
void trial_draft(struct trial *c, const struct trial_options *options);
/* The operands of a drafted case, filled and sealed. fill: what puts special values over the ordinary ones; may be NULL. */
void trial_build(struct trial *c, void (*fill)(struct trial *c));

/* A random config whose work is small, with sizes around those where code changes its way. */
void trial_config_random(struct trial_random *r, enum plumb_op op, struct plumb_config *cfg);

/* Whether the operand is a vector by what it does (norms, taps, decay constants), which nobody quantises. */
bool trial_is_vector(const struct plumb_operand *info);

/* Fill the operands that are inputs. */
void trial_fill(struct trial *c);

/* x as the op before would have left it under the policy. */
float trial_rounded(const struct trial *c, float x);

/* count distinct values below n, ascending or not. */
void trial_fill_distinct(struct trial_random *r, int32_t *out, int64_t count, int64_t n, bool ascending);

/* Values of an array of reals or a cache, as a result holds them, as binary32: malloc'ed, *count of them. */
float *trial_values(const struct trial_operand *o, const unsigned char *bytes);
int64_t trial_count(const struct trial_operand *o);

#endif
