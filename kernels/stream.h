/* SPDX-License-Identifier: MIT */
/* Launcher of a kernel that reads memory once and does nothing else: how fast a card can read at all. */
#ifndef PLUMB_KERNELS_STREAM_H
#define PLUMB_KERNELS_STREAM_H

#include <stdint.h>

#include "kernels/launcher.h"

enum { PLUMB_STREAM_TILE = 65536 }; /* bytes that a block reads */

/* sum[b] = xor of the 32-bit words of tile b, so that every word has to be read. data: (tiles, PLUMB_STREAM_TILE) bytes,
 * 16-byte aligned; sum: (tiles). */
PLUMB_DECLARE_LAUNCHER(stream_read, const void *data, int64_t tiles, uint32_t *sum, void *stream);

#endif
