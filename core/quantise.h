/* SPDX-License-Identifier: MIT */
/* From binary32 to the stored formats of core/weight.h, as the writers of the released checkpoints do it. */
#ifndef PLUMB_CORE_QUANTISE_H
#define PLUMB_CORE_QUANTISE_H

#include "core/status.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The scale of a whole matrix of nvfp4 or fp8 table whose largest magnitude is amax: w->global below. */
float plumb_quantise_global(enum plumb_format format, float amax);

/* Quantise a matrix.
 * in: (N, K) f32. w: format, rows, cols and, for fp8 row and block, scale_format (f32 or bf16) are the caller's; data,
 * scale and global are set. data, scale: plumb_weight_data_bytes(w) and plumb_weight_scale_bytes(w) bytes, any alignment.
 * w->global: 0 takes the scale of the whole matrix from its largest element; another one is kept (parts of a table share
 * one, and so do gate and up of some writers).
 *
 * With amax the largest magnitude of what a scale covers, every operation rounded to binary32:
 *   fp8 row, block   scale = amax / 448, rounded to scale_format; code = e4m3(x / scale)
 *   fp8 table        global = amax / 448; code = e4m3(x / global)
 *   nvfp4            global = amax / (6 * 448); scale = e4m3(amax of the group / 6 / global), from 2^-9 to 448;
 *                    code = e2m1(x / (scale * global))
 *   f32, f16, bf16   plumb_encode
 * Codes and scales round to nearest, ties to even, and saturate: a scale rounded down leaves elements above 448 or 6, and
 * so does a global that is given. A division, never a product with a reciprocal: that would miss ties.
 * Nothing but zeros: the scale is 1. A scale that would round to zero is the smallest its format has, as ModelOpt does
 * for 2^-9; the elements are then small against it, but not lost.
 * -0 keeps its sign. The unused half byte at the end of a row of odd length is 0.
 * Errors: PLUMB_BAD_INPUT for NaN and Inf in in, naming the element (e2m1 has no code for either, and a scale made from
 * one spoils a block); then nothing is written. Source: model-spec 3.6. */
int plumb_quantise(const float *in, struct plumb_weight *w, void *data, void *scale, struct plumb_error *err);

#ifdef __cplusplus
}
#endif
#endif
