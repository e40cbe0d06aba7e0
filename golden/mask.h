/* SPDX-License-Identifier: MIT */
/* A recorded choice of QSA, `qsa/selected_mask`, has two spellings: floats that are 0 where selected and the lowest
 * number of the run's type elsewhere (an additive mask, as transformers has it up to 5.22 and Plumb writes it), and
 * integers that are 1 where selected and 0 elsewhere (a boolean mask, as in transformers from 5.23 on and most
 * engines). */
#ifndef PLUMB_GOLDEN_MASK_H
#define PLUMB_GOLDEN_MASK_H

#include <stdbool.h>
#include <stdint.h>

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A name that ends in /qsa/selected_mask. */
bool plumb_golden_is_mask(const char *name);

/* Integers as floats. selected, out: (count). name: of the dataset; in a run "bf16/..." the lowest number is bfloat16's.
 * Errors: PLUMB_BAD_INPUT, a value that is neither 0 nor 1, with its place. */
int plumb_golden_mask_floats(const char *name, const int64_t *selected, int64_t count, float *out, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
