/* SPDX-License-Identifier: MIT */
/* Making the bytes of synthetic weights on the host. */
#ifndef PLUMB_CORE_SYNTHETIC_FILL_H
#define PLUMB_CORE_SYNTHETIC_FILL_H

#include "core/synthetic_value.h"
#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Rows that a call of plumb_synthetic_fill may begin at when several make one matrix side by side: no two then write the
 * same byte (scales of fp8 blocks belong to 128 rows). */
enum { PLUMB_SYNTHETIC_ROWS = PLUMB_FP8_BLOCK_SIZE };

/* Write rows [row, row + rows) of w (data, and the scales that belong to them; of fp8 blocks every block that has one of
 * the rows) as w->made says. w->global is the maker's to set. The caller keeps 0 <= row and row + rows <= w->rows. */
void plumb_synthetic_fill(const struct plumb_weight *w, int64_t row, int64_t rows);

/* Elements [first, first + count) of a tensor of plain format, as bytes. */
void plumb_synthetic_fill_plain(
	const struct plumb_synthetic_tensor *t, enum plumb_format format, int64_t first, int64_t count, void *out);

/* The step that gives values of the wanted rms (of f32, f16, bf16: around the centre), and the global scale that goes
 * with it: 0 in formats without one. */
float plumb_synthetic_step(enum plumb_format format, double rms);
float plumb_synthetic_global_of(enum plumb_format format, uint64_t key, float step);

#ifdef __cplusplus
}
#endif
#endif
