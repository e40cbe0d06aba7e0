/* SPDX-License-Identifier: MIT */
#include "opt/poison.h"

#include <string.h>

/* Bits that differ from index to index; Knuth's multiplicative hash is enough for that. */
static uint32_t spread(size_t i)
{
	return (uint32_t)i * 2654435761u >> 8;
}

/* No byte is zero, so that a zero stored over poison changes every byte. */
static uint32_t word(enum plumb_poison poison, size_t i)
{
	uint32_t low = (spread(i) & 0xfefeu) | 0x0101u;

	switch (poison) {
	case PLUMB_POISON_NAN:
		return 0x7fc10000u | low;
	case PLUMB_POISON_SMALL:
		return 0x3f810000u | low;
	default:
		return 0x71490000u | low;
	}
}

static uint16_t half(enum plumb_poison poison, enum plumb_poison_unit unit, size_t i)
{
	uint32_t low = spread(i);

	if (unit == PLUMB_POISON_BF16)
		low = poison == PLUMB_POISON_NAN ? 0x7fc1u | (low & 0x3eu)
			: poison == PLUMB_POISON_SMALL ? 0x3f81u | (low & 0x3eu) : 0x7101u | (low & 0xfeu);
	else
		low = poison == PLUMB_POISON_NAN ? 0x7e01u | (low & 0x1feu)
			: poison == PLUMB_POISON_SMALL ? 0x3c01u | (low & 0xfeu) : 0x7b01u | (low & 0xfeu);
	return (uint16_t)low;
}

size_t plumb_poison_bytes(enum plumb_poison_unit unit)
{
	return unit == PLUMB_POISON_64 ? 8 : unit == PLUMB_POISON_32 ? 4 : 2;
}

void plumb_poison_fill(enum plumb_poison poison, enum plumb_poison_unit unit, void *to, size_t first, size_t count)
{
	unsigned char *p = to;

	for (size_t i = first; i < first + count; i++) {
		uint32_t w = word(poison, i);
		uint64_t d = (uint64_t)w << 32 | word(poison, i + 0x10000);
		uint16_t h = half(poison, unit, i);

		switch (unit) {
		case PLUMB_POISON_32:
			memcpy(p, &w, sizeof w);
			p += sizeof w;
			break;
		case PLUMB_POISON_64:
			memcpy(p, &d, sizeof d);
			p += sizeof d;
			break;
		default:
			memcpy(p, &h, sizeof h);
			p += sizeof h;
			break;
		}
	}
}

size_t plumb_poison_zone_first(enum plumb_poison poison, const unsigned char *zone)
{
	for (size_t i = 0; i < PLUMB_GUARD_ZONE; i++) {
		uint32_t w = word(poison, i / sizeof w);
		unsigned char byte[sizeof w];

		memcpy(byte, &w, sizeof w);
		if (zone[i] != byte[i % sizeof w])
			return i;
	}
	return PLUMB_GUARD_ZONE;
}

size_t plumb_poison_zone_last(enum plumb_poison poison, const unsigned char *zone)
{
	for (size_t i = PLUMB_GUARD_ZONE; i-- > 0;) {
		uint32_t w = word(poison, i / sizeof w);
		unsigned char byte[sizeof w];

		memcpy(byte, &w, sizeof w);
		if (zone[i] != byte[i % sizeof w])
			return i;
	}
	return PLUMB_GUARD_ZONE;
}
