/* SPDX-License-Identifier: MIT */
/* Tolerances: what is demanded of each recorded tensor, in one JSON file with a reason for each figure.
 * golden/tolerances.json is built into the library; another file of the same form can take its place. */
#ifndef PLUMB_CORE_TOLERANCE_H
#define PLUMB_CORE_TOLERANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/compare.h"
#include "core/op.h"
#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What an op was fed with before its output was compared. */
enum plumb_view {
	PLUMB_VIEW_LOCAL,      /* the recorded inputs: errors do not travel */
	PLUMB_VIEW_PROPAGATED, /* its own predecessors, from the tokens on */
};

struct plumb_tolerance_rule {
	enum plumb_view view;
	enum plumb_policy policy;
	const char *suffix; /* datasets that end with these path components; "": all */
	struct plumb_tolerance tolerance;
	const char *reason;
};

struct plumb_tolerances;

/* Read a file, or with path NULL the built-in one.
 * {"version": 1, "rules": [{"view": "local"|"propagated", "policy": "f32"|"bf16", "suffix": "moe/output" (optional),
 *  bounds, "reason": "why these figures"}, ...]}
 * Bounds, at least one that looks at every element (marked *):
 *   max_relative_l2 * 0 < x <= 0.5   ||c - r|| / ||r||; 1 is what an output of zeros has
 *   max_error *     0 <= x           |c - r| of any element
 *   max_peak *      0 < x <= 1       max |c - r| / rms(r); 1 is what one zeroed element of average size has
 *   max_ulp *       0 .. 2^23        binary32 steps of any element; 2^23 is a factor of two
 *   max_bf16_ulp *  0 .. 2^7         bf16 steps of any element
 *   bf16_noise      0 < x <= 1e-3    with max_bf16_ulp <= 7: elements beyond it may be x * rms(r) off
 *   exact *         true             every element equal, -0 == +0
 *   bits *          true             every element the same bits
 *   min_equal       0 < x <= 1       part of the elements that is equal
 *   min_near        0 < x <= 1       part of the elements less than 2^near_ulp_log2 (1 .. 23) binary32 steps away
 * and allow_zero, allow_constant, allow_nan: true where such a reference is legitimate.
 * A rule with a suffix replaces the general one, it adds nothing to it; the longest suffix that fits is taken.
 * Refused: unknown keys, a missing or empty reason, a rule twice, a view and policy without a general rule.
 * Errors: PLUMB_BAD_INPUT, one line naming the file, the rule, the field, its value and what was expected. */
int plumb_tolerances_read(const char *path, struct plumb_tolerances **out, struct plumb_error *err);

/* The same from memory: text of size bytes, name for messages. */
int plumb_tolerances_parse(
	const char *text, size_t size, const char *name, struct plumb_tolerances **out, struct plumb_error *err);

void plumb_tolerances_free(struct plumb_tolerances *tolerances);

/* The rule for a dataset ("fp32/layer00/moe/output", or any shorter name that ends alike). Never NULL. */
const struct plumb_tolerance_rule *plumb_tolerances_find(
	const struct plumb_tolerances *tolerances, enum plumb_view view, enum plumb_policy policy, const char *dataset);

/* Whether a dataset's name ends with the path components of a suffix; with "" it does. */
bool plumb_tolerance_fits(const char *suffix, const char *dataset);

/* All rules in the order of the file. */
const struct plumb_tolerance_rule *plumb_tolerances_rules(const struct plumb_tolerances *tolerances, int *count);

/* The bounds of a tolerance in words: "relative L2 <= 1e-06, ...". Returns text. */
const char *plumb_tolerance_show(const struct plumb_tolerance *tolerance, char *text, size_t size);

const char *plumb_view_name(enum plumb_view view);       /* "local", "propagated" */
const char *plumb_policy_name(enum plumb_policy policy); /* "f32", "bf16" */

/* golden/tolerances.json as it was when the library was built. */
extern const char plumb_tolerances_json[];
extern const size_t plumb_tolerances_json_size;

#ifdef __cplusplus
}
#endif
#endif
