/* SPDX-License-Identifier: MIT */
/* Per-head norm and rope, shared by attention and the QSA indexer (model-spec 2.1, 2.5). */
#ifndef PLUMB_REF_ROTATE_H
#define PLUMB_REF_ROTATE_H

#include "core/op.h"

/* Rotate one head in place: x (n) f64, already rounded; rope: row of the position, (2, Dr/2) f32.
 * The results are not rounded: store() or rne() is the caller's. Both products are. */
void rope_ref(const struct plumb_env *env, double *x, const float *rope);

/* rne(Norm(x; w)) of one head: x, w, y (n) f64; y may be x. */
void head_norm_ref(const struct plumb_env *env, const double *x, const double *w, int64_t n, double *y);

#endif
