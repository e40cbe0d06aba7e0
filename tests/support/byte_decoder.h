/* SPDX-License-Identifier: MIT */
/* A decoder of stored weights that shares no line with core/weight.c or the kernels: a reader and a writer that make
 * the same mistake agree with each other. */
#ifndef PLUMB_TESTS_SUPPORT_BYTE_DECODER_H
#define PLUMB_TESTS_SUPPORT_BYTE_DECODER_H

#include <stdbool.h>
#include <stdint.h>

#include "core/weight.h"

/* Element (n, k). LIMIT: Inf and NaN of f16 are not known. */
float byte_decoder_element(const struct plumb_weight *w, int64_t n, int64_t k);

/* Equal numbers (-0 is +0), or NaN twice. */
bool byte_decoder_same(float a, float b);

#endif
