/* SPDX-License-Identifier: MIT */
/* How near an implementation that keeps its contract must be to exact arithmetic, element by element.
 *
 * A companion pass of the oracle (ref/bound_STAGE.c, one function an op) evaluates the op in binary64 once more and
 * carries with every value the largest error that the declared order allows: gamma_d = d*u / (1 - d*u) of the declared
 * depth d (core/order.h) times the sum of magnitudes, half an ulp for every other rounding, the measured errors of
 * core/math32.h, all of it through softmax, norms and the GDN recurrence; and under policy bf16 what a rounding point
 * does that lies within reach of a rounding boundary. A candidate is judged by three gates:
 *
 *   ratio  |candidate - exact| / bound <= 1 for every element. Proof of a fault when it fails.
 *   RMS    mean of ((candidate - exact) / spread)^2 <= 0.4. spread^2 is the sum of the squared bounds of the single
 *          roundings (for a reduction, depth * (u * sum|a||b|)^2, so spread = bound / sqrt(depth)). Independent
 *          roundings, uniform within their bounds, have a third of it as variance; 0.4 leaves seven standard deviations
 *          of the mean of 1000 squares (each has variance 1/5 - 1/9). Truncation has 4/3. It is TOSA's limit on
 *          sum (err/unit)^2, 1.6*n*T for an n-term sum with half of our unit, and the declared depth in the place of n.
 *          The elements of one token are not independent where they share an error: all weights of a router have the
 *          divisor, a thousand squares that are one. So the excess over 1/3 must also be beyond PLUMB_BOUND_Z of its own
 *          standard errors, taken from token to token: for token t with n_t squares of sum S_t and the mean m,
 *          SE^2 = sum (S_t - m n_t)^2 / (sum n_t)^2, which is right whatever is shared within a token. A fault of every
 *          value, such as truncation, has the same excess in every token, and so a small SE.
 *   bias   an error has no preferred sign. Taken from the exact value as it would be stored, for the last rounding
 *          of a right result can have one (silu(x) of a small bf16 x is x/2 + x^2/4, and all but always rounds down),
 *          and both with and without the drift that the contract has (an implementation may be better than it). The
 *          errors of one token (they share roots and sums), each over its spread, give one mean s_c; for C numbers
 *          with symmetric distributions P(|sum s_c| > z * sqrt(sum s_c^2)) <= 2 exp(-z^2/2), whatever their sizes
 *          (Hoeffding's inequality, given the sizes), so z > 6 does not come by chance (3e-8). Taken twice: of errors
 *          as they are, and of errors times the sign of the value (truncation goes towards zero). A bias far below
 *          the noise is of no consequence, and functions have one: it must also be more than a quarter of the rms,
 *          z > sqrt(C)/4, for C numbers that are not 0.
 *
 * RMS and bias need PLUMB_BOUND_ELEMENTS elements, bias PLUMB_BOUND_CLUSTERS tokens as well, and RMS the weight of
 * PLUMB_BOUND_TOKENS equal ones, (sum n_t)^2 / sum n_t^2; below, they decide nothing. Selections (experts, blocks,
 * tokens) have no bound: they are compared as sets elsewhere. */
#ifndef PLUMB_REF_BOUND_H
#define PLUMB_REF_BOUND_H

#include <stdbool.h>

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLUMB_BOUND_OPERANDS = 16, PLUMB_BOUND_ELEMENTS = 1000, PLUMB_BOUND_CLUSTERS = 64, PLUMB_BOUND_TOKENS = 16 };
/* Of ratios: 0: exactly 0; 1..16: up to that many sixteenths of the bound; 17: up to 2, 18: 4, ... 24: beyond 128. */
enum { PLUMB_BOUND_BUCKETS = 25, PLUMB_BOUND_PARTS = 16 };

#define PLUMB_BOUND_RMS 0.63245553203367588 /* sqrt(0.4) */
#define PLUMB_BOUND_Z 6.0
#define PLUMB_BOUND_BIAS 0.25

/* A value and how far an implementation may be away: at most error; spread: see RMS above; drift: how far, with its
 * sign, the declared operations themselves put it on average (ref/bound_ball.h), which the bias is taken from. */
struct plumb_ball {
	double value, error, spread, drift;
};

/* What a call must have written, for each operand with a bound (NULL: none).
 * Array outputs and states: as the operand. Caches: the rows that the call writes, first .. first + rows - 1. */
struct plumb_bound_set {
	enum plumb_op op;
	struct plumb_ball *ball[PLUMB_BOUND_OPERANDS];
	int64_t count[PLUMB_BOUND_OPERANDS]; /* of balls */
	int64_t first[PLUMB_BOUND_OPERANDS]; /* row of a cache */
	bool wide[PLUMB_BOUND_OPERANDS];     /* not rounded to bf16 last: binary32, or of a format of its own */
};

/* Fill the balls of set. before: the arguments as they were, that is with array states from before the call; args: the
 * same with what the candidate wrote (read only where a choice decides what the rest means: the experts of a router).
 * Inputs, weights and older cache rows are read from args. */
typedef int plumb_bound_fn(const struct plumb_env *env, const void *before, const void *args, struct plumb_bound_set *set);

extern plumb_bound_fn *const plumb_bounds[PLUMB_OP_COUNT];

/* gamma of depth d; HUGE_VAL when d*u reaches 1, where there is no bound: a formula that turns negative there would
 * pass everything (or nothing). */
double plumb_gamma(int64_t depth);

/* Allocate and fill. position: of row 0 of the call, which says what rows of caches it writes. Errors: PLUMB_BAD_INPUT
 * for memory. Freed with plumb_bound_free, also after an error. */
int plumb_bound_make(const struct plumb_env *env, enum plumb_op op, int64_t position, const void *before, const void *args,
	struct plumb_bound_set *set);
void plumb_bound_free(struct plumb_bound_set *set);
struct plumb_ball *plumb_bound_of(const struct plumb_bound_set *set, const char *operand);
void plumb_bound_wide(struct plumb_bound_set *set, const char *operand);

/* Whether errors have a preferred sign. */
struct plumb_bound_signs {
	int64_t clusters;       /* tokens whose s_c is not 0 */
	double sum[2], sum2[2]; /* of s_c and s_c^2: of errors, and of errors times the value's sign */
};

/* Measurements of one operand, over any number of calls. Zero it to start. */
struct plumb_bound_stat {
	int64_t values, finite; /* all; those with numbers on both sides */
	int64_t apart;          /* NaN or Inf on one side only, or of another sign */
	int64_t unbounded;      /* no finite bound could be derived: not judged, and a failure of the gates */
	double max_ratio;       /* HUGE_VAL: apart, or different where no error is allowed */
	int64_t index;          /* of the largest ratio, within its call; -1: none */
	int64_t call;           /* 0-based number of that call */
	float candidate;        /* there */
	struct plumb_ball ball;
	int64_t bucket[PLUMB_BOUND_BUCKETS]; /* judged values by ratio */
	int64_t calls;
	int64_t spread_count;             /* elements with a spread: those below */
	double square;                    /* sum of (error/spread)^2 */
	double square2, cross, count2;    /* over tokens: of S_t^2, S_t n_t, n_t^2 */
	struct plumb_bound_signs sign[2]; /* of errors as they are; less the drift */
};

struct plumb_bound_result {
	enum plumb_op op;
	struct plumb_bound_stat operand[PLUMB_BOUND_OPERANDS];
};

void plumb_bound_begin(struct plumb_bound_result *result, enum plumb_op op);
/* Measure what args holds against set. Errors: PLUMB_BAD_INPUT for memory. */
int plumb_bound_add(struct plumb_bound_result *result, const struct plumb_env *env, const void *args,
	const struct plumb_bound_set *set);
/* Add b to a; calls of b follow those of a. */
void plumb_bound_merge(struct plumb_bound_stat *a, const struct plumb_bound_stat *b);

/* Figures. rms: 0 without elements. bias: the larger z, of errors less the drift or as they are, whichever is smaller.
 * has: whether there are enough for the gate to decide. */
double plumb_bound_rms(const struct plumb_bound_stat *stat);
double plumb_bound_rms_error(const struct plumb_bound_stat *stat); /* the standard error of its square */
double plumb_bound_bias(const struct plumb_bound_stat *stat);
bool plumb_bound_has_rms(const struct plumb_bound_stat *stat);
bool plumb_bound_has_bias(const struct plumb_bound_stat *stat);

/* The gates of one operand; and of all operands of an op, which must have had at least one value when the op has an
 * operand with a bound. text (may be NULL): what failed, or the figures. */
bool plumb_bound_stat_passes(const struct plumb_bound_stat *stat, char *text, size_t size);
bool plumb_bound_passes(const struct plumb_bound_result *result, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
