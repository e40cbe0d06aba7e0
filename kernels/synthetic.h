/* SPDX-License-Identifier: MIT */
/* Launcher of the generator of synthetic weights: core/synthetic_value.h says what is written. */
#ifndef PLUMB_KERNELS_SYNTHETIC_H
#define PLUMB_KERNELS_SYNTHETIC_H

#include <stdint.h>

#include "core/synthetic_value.h"
#include "core/weight.h"
#include "kernels/launcher.h"

/* One matrix to be written. data and scale are the device's, data aligned to 16 bytes, scale to 16 too. */
struct plumb_synthetic_fill {
	struct plumb_synthetic_tensor tensor;
	void *data, *scale;
	int64_t data_bytes, scales; /* scales: of fp8 their number, of nvfp4 their bytes, else 0 */
	int format, scale_format;   /* enum plumb_format */
};

/* fill: (count) on the device; most: the largest data_bytes among them. One launch for a whole bank. */
PLUMB_DECLARE_LAUNCHER(synthetic, const struct plumb_synthetic_fill *fill, int64_t count, int64_t most, void *stream);

#endif
