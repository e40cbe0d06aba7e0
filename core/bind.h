/* SPDX-License-Identifier: MIT */
/* From named tensors to one stored weight: its values, and the scales that lie beside them. Internal to the checkpoint
 * reader.
 *
 * The dtype of NAME.weight says what else must be there:
 *   BF16, F16, F32   nothing
 *   F8_E4M3          NAME.weight_scale_inv, one number a 128 x 128 block; or NAME.weight_scale, one a block, one a row
 *                    ([N] or [N, 1]) or one for the whole matrix ([] or [1]); BF16 or F32
 *   U8               nvfp4: NAME.weight_scale F8_E4M3 [N, ceil(K/16)] and NAME.weight_scale_2, one F32
 * Both may have NAME.input_scale, one number for kernels that quantise activations: recognised, not used.
 * Only matrices are stored in the last two ways; vectors, convolutions and stacks of experts are not.
 * Source: model-spec 3.1, 3.3 to 3.6. */
#ifndef PLUMB_CORE_BIND_H
#define PLUMB_CORE_BIND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/shards.h"
#include "core/status.h"
#include "core/weight.h"

/* The longest name has 100 bytes. */
enum { PLUMB_BIND_NAME = 160 };

struct plumb_shape {
	int rank;
	int64_t dim[3];
};

/* The first failure is kept in status; after it nothing is bound any more. */
struct plumb_binder {
	const struct plumb_shards *shards;
	bool *bound; /* (tensors) has a role */
	void **copy; /* (copies) memory that bound weights point to; the caller frees it */
	size_t copies;
	struct plumb_error *err;
	int status;
};

/* Bind w to tensor name of that shape (of the values, not of their storage) and to its scales.
 * Scales that are one number or one a block or row are read and must be finite and not negative, one that stands for the
 * whole matrix positive too: zero there means that nothing was written.
 * LIMIT: the codes themselves and the block scales of nvfp4 are not read here: they are most of a checkpoint (68 GB and
 * 7.5 GB of the released one). A NaN code among them is a NaN weight; it comes out of the op that uses it, and no
 * comparison lets a NaN pass. plumb_model_scan (core/scan.h, `--scan`) reads them all and names the first. */
void plumb_bind_weight(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_shape *shape, const char *name);

/* The same for a part of the n-gram table, all parts of which share one scale, tensor scale_name. */
void plumb_bind_table_part(struct plumb_binder *b, struct plumb_weight *w, const struct plumb_shape *shape,
	const char *name, const char *scale_name);

/* The tensor of that name, marked as bound, or NULL. */
const struct plumb_tensor *plumb_bind_look_up(struct plumb_binder *b, const char *name);

bool plumb_shape_equal(const struct plumb_tensor *t, const struct plumb_shape *shape);
const char *plumb_shape_show(const struct plumb_shape *shape, char text[192]);

#endif
