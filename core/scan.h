/* SPDX-License-Identifier: MIT */
/* Every weight of a model, looked at once: codes that are no number, which loading does not read (core/bind.h, LIMIT). */
#ifndef PLUMB_CORE_SCAN_H
#define PLUMB_CORE_SCAN_H

#include "core/model.h"
#include "core/panels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Decode every value of every matrix and vector; each must be finite: no NaN code of E4M3 in data or block scales, no NaN
 * or Inf in plain formats, no product of a code and its scales that overflows. Reads the whole model once.
 * *values: how many there are. watch: NULL, or told of progress.
 * Errors: PLUMB_BAD_INPUT naming the first tensor in the order of the model, row, column, the code or scale at fault, and
 * how many values in how many tensors are none; memory. */
int plumb_model_scan(const struct plumb_model *model, struct plumb_watch *watch, int64_t *values, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
