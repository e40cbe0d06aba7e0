/* SPDX-License-Identifier: MIT */
/* A model held as a profile asks, made from one that is held otherwise. */
#ifndef PLUMB_CORE_REQUANTISE_H
#define PLUMB_CORE_REQUANTISE_H

#include "core/model.h"
#include "core/panels.h"
#include "core/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What changed in one group. */
struct plumb_requantised_group {
	int64_t matrices, changed;     /* of the model; of them those that are held anew */
	int64_t before, after;         /* bytes of data and scales of the changed ones */
	bool from[PLUMB_FORMAT_COUNT]; /* formats that they had */
	enum plumb_format to;
};

/* Computes     every matrix whose group the profile gives another format: its values as core/weight.h defines them
 *              (plumb_weight_row), quantised as core/quantise.h says. All others, and all vectors, are the source's.
 * Shapes       those of the source.
 * Layout       data and scales of a changed matrix in memory of the result, aligned to 16 bytes; unchanged ones point
 *              into the source, which must outlive the result.
 * Units        bytes.
 * Numerics     values of the source are exact in binary32; rounded once, into the new format. Scales of fp8 have
 *              plumb_profile_scale_format; all parts of an n-gram table share one scale, from the largest of all of them.
 *              Experts of a group in which some are stored in another format all end in one, with one format of scales
 *              (banks of both sets must be uniform).
 * Determinism  bit-exact, whatever the number of threads (OpenMP).
 * Errors       PLUMB_BAD_INPUT: NaN or Inf in a source, or a value beyond the largest of f16 or bf16, naming matrix and
 *              element; memory.
 * Source       model-spec 3.6 (formulas), 3.3 (block scales in bf16).
 * watch: NULL, or told of progress. */
struct plumb_requantised;
int plumb_profile_apply(const struct plumb_model *source, const struct plumb_profile *profile, struct plumb_watch *watch,
	struct plumb_requantised **out, struct plumb_error *err);
void plumb_requantised_free(struct plumb_requantised *requantised);

const struct plumb_model *plumb_requantised_model(const struct plumb_requantised *requantised);
const struct plumb_requantised_group *plumb_requantised_groups(const struct plumb_requantised *requantised);
const char *plumb_requantised_profile(const struct plumb_requantised *requantised); /* its name */

/* "served: experts bf16 -> nvfp4 (192 matrices), ...; 3.1 -> 0.9 MB", or "served: all is held so". Returns text. */
const char *plumb_requantised_show(const struct plumb_requantised *requantised, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
