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

/* Where the blocks of a launch meet: zero before the first launch, and left zero. */
struct plumb_argmax_cell {
	uint64_t key;
	uint32_t arrived, unused;
};

/* *token = the index of the winner of one row of logits (V), or -1. */
PLUMB_DECLARE_LAUNCHER(
	argmax, const float *logits, int64_t vocab, struct plumb_argmax_cell *cell, int32_t *token, void *stream);

#endif
