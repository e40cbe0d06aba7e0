/* SPDX-License-Identifier: MIT */
/* Launcher of embed. Contract: core/ops/embed.h. */
#ifndef PLUMB_KERNELS_EMBED_H
#define PLUMB_KERNELS_EMBED_H

#include <stdint.h>

#include "kernels/launcher.h"
#include "kernels/matrix.h"

/* One token: token (1), on the device; table (V, D), on the host; residual (S, D). */
PLUMB_DECLARE_LAUNCHER(embed, const int32_t *token, const struct plumb_matrix *table, int streams, int64_t hidden,
	float *residual, void *stream);

#endif
