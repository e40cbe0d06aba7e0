/* SPDX-License-Identifier: MIT */
/* Weights as kernels take them, and what the optimised set refuses to take. */
#ifndef PLUMB_OPT_MATRIX_H
#define PLUMB_OPT_MATRIX_H

#include "core/op.h"
#include "core/weight.h"
#include "kernels/matrix.h"

/* A matrix of any format. w: NULL gives none. */
struct plumb_matrix plumb_matrix_of(const struct plumb_weight *w);

/* Whether the format, and the scales that it needs, are there. what: "hc_down: up", for the message. */
int plumb_matrix_check(const struct plumb_env *env, const char *what, const struct plumb_weight *w);

/* Vectors (norms, conv taps, decay constants) are read value by value as f32, f16 or bf16: no producer quantises them.
 * Errors: PLUMB_BAD_INPUT, naming op, operand and format. */
int plumb_vector_check(const struct plumb_env *env, const char *what, const struct plumb_weight *w);

#endif
