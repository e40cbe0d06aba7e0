/* SPDX-License-Identifier: MIT */
/* One call of an op with random operands, made from the table of ops, run by several implementations and compared bit
 * for bit. For the suites of the stages; a helper that finds something wrong fails the running Check test. */
#ifndef PLUMB_TESTS_SUPPORT_OP_CALL_H
#define PLUMB_TESTS_SUPPORT_OP_CALL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/op.h"
#include "core/ops/attention.h"
#include "core/ops/embed.h"
#include "core/ops/gdn.h"
#include "core/ops/hc.h"
#include "core/ops/lm_head.h"
#include "core/ops/moe.h"
#include "core/ops/ple.h"
#include "core/ops/qsa.h"
#include "opt/device.h"

/* ---- values ---- */

extern uint64_t op_call_seed; /* state of the generator: a test sets it first */

uint64_t draw(void);
int64_t below(int64_t n); /* 0 .. n-1 */
float uniform(void);      /* -1 .. 1 */

#define PICK(list) ((list)[below((int64_t)(sizeof(list) / sizeof((list)[0])))])

/* Memory until release(). */
void *take(size_t bytes);
void release(void);

/* Input classes: what a kernel may meet beside ordinary numbers. PLACED: at the first, middle and last element. */
enum input { ORDINARY, ZEROS, SUBNORMAL, TINY, HUGE_VALUES, NAN_PLACED, INF_PLACED, INPUTS };

/* n values of a class, bf16 values under policy bf16. */
float *values(int64_t n, enum input input, enum plumb_policy policy);

/* A random matrix of rows of about unit length; its first byte lies offset elements behind a 16-byte boundary. */
struct plumb_weight *matrix(enum plumb_format format, int64_t rows, int64_t cols, int offset);

/* The matrix as binary64, (rows, cols). */
double *dense(const struct plumb_weight *w);

/* ---- calls ---- */

struct call {
	struct plumb_config cfg;
	enum plumb_op op;
	enum plumb_policy policy;
	enum input input;
	enum plumb_format format; /* of weights */
	int offset;               /* of weights, in elements */
	int32_t position;
	union {
		int64_t T;
		struct plumb_ple_embed ple_embed;
		struct plumb_ple_gate ple_gate;
		struct plumb_ple_conv ple_conv;
		struct plumb_gdn_in_proj gdn_in_proj;
		struct plumb_gdn_conv gdn_conv;
		struct plumb_gdn_recurrence gdn_recurrence;
		struct plumb_gdn_norm_gate gdn_norm_gate;
		struct plumb_gdn_out_proj gdn_out_proj;
		struct plumb_attn_qk_rope largest;
	} arguments;
};

/* Random operands of the kinds f32, position and matrix; T, position and the members above are set before. */
void fill(struct call *c);

/* What a call wrote: outputs and state, one entry an operand, in the order of the table; NULL: an input. */
enum { OPERANDS = 16 };
struct result {
	unsigned char *data[OPERANDS];
};

/* Run an implementation on copies of the state and on poisoned outputs, between guard zones. device: NULL for ref. */
struct result run(const struct call *c, plumb_op_fn *fn, enum plumb_poison poison, struct plumb_device *device);

/* The operand of that name. */
float *floats(const struct call *c, const struct result *r, const char *name);

/* The first element in which two results differ, in words, or NULL. NaN equals NaN of any payload. */
const char *difference(const struct call *c, const struct result *a, const struct result *b);

/* simt devices of several schedules; the first has natural order. Fixture of a test case: setup and teardown. */
void open_devices(void);
void close_devices(void);
struct plumb_device *any_device(void);

/* The twin and the kernels under two schedules, over two poisons: one result, or the test fails. Returns it. */
struct result agree(const struct call *c);

/* A wrong op must not pass the comparison that the right one passes. */
void caught(const struct call *c, plumb_op_fn *wrong, const char *name);

/* gamma_d of binary32: d*u / (1 - d*u). */
double gamma_of(double d);

/* |error| <= bound, or the test fails. Keeps the largest ratio in *ratio. */
void bounded(double *ratio, const char *what, int64_t i, double error, double bound);

#endif
