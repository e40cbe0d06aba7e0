/* SPDX-License-Identifier: MIT */
/* Perturbed evaluation of the GDN recurrence: as far off as its chunked form may be. Without perturbation (a chunk of
 * NULL) every function here is the plain recurrence.
 *
 * Implementations that take a prompt at once solve for CHUNK tokens together: what the state holds is then written as a sum
 * over the chunk's tokens j, (k . k_j) D_j delta_j, D_j = exp(G - G_j), G the running sum of the log decays g. In binary32
 *   G is rounded at every token, and each decay is off by up to u |G|, variance (u G)^2 / 3: the forms differ most here,
 *   since G of 64 tokens is often far below -50;
 *   the sum has n terms for which ref/nudge.h holds, and each product k . k_j is itself such a sum of Dk terms.
 * Together with what comes from before the chunk, a sum of Dk terms of the state. */
#ifndef PLUMB_REF_CHUNK_H
#define PLUMB_REF_CHUNK_H

#include "ref/nudge.h"

struct chunk; /* of one value head */

/* One for each value head, empty; or NULL with env->err set. */
struct chunk *chunks_make(const struct plumb_env *env);
void chunks_free(struct chunk *chunks);
struct chunk *chunk_of(struct chunk *chunks, int64_t head); /* NULL of NULL */

/* exp(g) of the next token, whose normed query and key are q, k: (Dk). */
double chunk_decay(const struct plumb_env *env, struct chunk *chunk, const double *q, const double *k, double g);

/* State row i times the token's key, and times its query: totals of Dk terms. */
double chunk_memory(const struct plumb_env *env, const struct chunk *chunk, int64_t i, const struct sum *memory);
double chunk_output(const struct plumb_env *env, const struct chunk *chunk, int64_t i, const struct sum *output);

/* What the token adds to row i of Dv: k times delta. */
void chunk_put(struct chunk *chunk, int64_t i, int64_t Dv, double delta);

/* An updated element of the state: one more rounded partial sum. */
static inline double chunk_updated(const struct plumb_env *env, double updated)
{
	return nudge_by(env, updated, NUDGE_ROUNDING * fabs(updated));
}

#endif
