/* SPDX-License-Identifier: MIT */
/* The rope table, made on the host for both sets. */
#ifndef PLUMB_CORE_ROPE_H
#define PLUMB_CORE_ROPE_H

#include "core/op.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Fill table with positions 0..positions-1.
 * table: (positions, 2, Dr/2) f32: Dr/2 cosines, then Dr/2 sines.
 * inv_freq_i = 1 / fp32(theta^(2i/Dr)) in binary32; angle = position * inv_freq_i, one binary32 product; cosine and sine
 * of that binary32 angle, rounded once to binary32 and, under policy bf16, to bf16.
 * Source: model-spec 2.5. */
void plumb_rope_table(const struct plumb_config *cfg, enum plumb_policy policy, int64_t positions, float *table);

#ifdef __cplusplus
}
#endif
#endif
