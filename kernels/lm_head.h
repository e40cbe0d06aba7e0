/* SPDX-License-Identifier: MIT */
/* Launchers of argmax. Contract: core/ops/lm_head.h. (lm_head itself is kernels/linear.h.)
 *
 * A row's winner is the largest of 64-bit keys: the logit as an ordered integer above, the complement of its index
 * below, so that the lower of equals has the larger key. The largest is the same in whatever order keys arrive. NaN has
 * key 0, which no number has. */
#ifndef PLUMB_KERNELS_LM_HEAD_H
#define PLUMB_KERNELS_LM_HEAD_H

#include <stdint.h>

#include "kernels/launcher.h"

/* key[t] = 0. key: (rows). */
PLUMB_DECLARE_LAUNCHER(argmax_clear, uint64_t *key, int64_t rows, void *stream);

/* Raise *key to the largest key of one row of logits (V). */
PLUMB_DECLARE_LAUNCHER(argmax, const float *logits, int64_t vocab, uint64_t *key, void *stream);

/* token[t] = the index in key[t], or -1. key, token: (rows). */
PLUMB_DECLARE_LAUNCHER(argmax_token, const uint64_t *key, int64_t rows, int32_t *token, void *stream);

#endif
