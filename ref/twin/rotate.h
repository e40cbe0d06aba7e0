/* SPDX-License-Identifier: MIT */
/* Norm and rope of one head, shared by attention and the QSA indexer (model-spec 2.1, 2.5). */
#ifndef PLUMB_REF_TWIN_ROTATE_H
#define PLUMB_REF_TWIN_ROTATE_H

#include "core/op.h"

/* out = rope(Norm(x; w)).
 * x, w, out: (n) f32; rope: row of the position, (2, Dr/2); normed: (n), not out. out may be x. */
void twin_rotate(const struct plumb_env *env, const float *x, const float *w, const float *rope, int64_t n, float *normed,
	float *out);

#endif
