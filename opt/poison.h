/* SPDX-License-Identifier: MIT */
/* What memory holds before anybody writes it, in guarded runs: once NaN, once large finite values. An element whose
 * bits follow the poison from one run to the other was not written, or was computed from memory that nobody wrote. */
#ifndef PLUMB_OPT_POISON_H
#define PLUMB_OPT_POISON_H

#include <stddef.h>
#include <stdint.h>

#include "core/weight.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plumb_poison {
	PLUMB_POISON_OFF,
	PLUMB_POISON_NAN,   /* quiet NaN in every format; integers near 2^31 */
	PLUMB_POISON_LARGE, /* about 1e30 (65e3 in f16), which no kernel gives by chance; integers near 1.9e9 */
	PLUMB_POISON_SMALL, /* about 1: an op that adds to its output leaves NaN and 1e30 as they are, but not this */
};

/* How wide an element is and what its bits mean. */
enum plumb_poison_unit {
	PLUMB_POISON_32, /* f32, i32 */
	PLUMB_POISON_64, /* i64 */
	PLUMB_POISON_BF16,
	PLUMB_POISON_F16,
	PLUMB_POISON_E4M3, /* the two NaN codes; 352 to 448; 1 to 1.375 */
};

/* Bytes on each side of a guarded buffer: a multiple of every alignment a kernel asks for. */
enum { PLUMB_GUARD_ZONE = 4096 };

/* Of values of a format that arrays and caches have: f32, f16, bf16, fp8. */
enum plumb_poison_unit plumb_poison_unit(enum plumb_format format);
size_t plumb_poison_bytes(enum plumb_poison_unit unit);

/* Elements first .. first + count - 1 of a poisoned buffer. The low bits depend on the index, so that a value copied
 * from elsewhere in the same buffer is seen too. to: count elements, of any alignment. */
void plumb_poison_fill(enum plumb_poison poison, enum plumb_poison_unit unit, void *to, size_t first, size_t count);

/* The first (or, from the end, the last) byte of a zone of PLUMB_GUARD_ZONE bytes, filled as 32-bit elements from 0 on,
 * that does not hold its poison; PLUMB_GUARD_ZONE when all do. */
size_t plumb_poison_zone_first(enum plumb_poison poison, const unsigned char *zone);
size_t plumb_poison_zone_last(enum plumb_poison poison, const unsigned char *zone);

#ifdef __cplusplus
}
#endif
#endif
