/* SPDX-License-Identifier: MIT */
#include "opt/poison.h"

#include <string.h>

/* Bits that differ from index to index; Knuth's multiplicative hash is enough for that. */
static uint32_t spread(size_t i)
{
	return (uint32_t)i * 2654435761u >> 8;
}

static uint32_t word(enum plumb_poison poison, size_t i)
{
	return poison == PLUMB_POISON_NAN ? 0x7fc00000u | (spread(i) & 0x3fffffu) : 0x71490000u | (spread(i) & 0xffffu);
}

static uint16_t half(enum plumb_poison poison, enum plumb_poison_unit unit, size_t i)
{
	if (unit == PLUMB_POISON_BF16)
		return (uint16_t)(poison == PLUMB_POISON_NAN ? 0x7fc0u | (spread(i) & 0x3fu) : 0x7100u | (spread(i) & 0xffu));
	return (uint16_t)(poison == PLUMB_POISON_NAN ? 0x7e00u | (spread(i) & 0x1ffu) : 0x7b00u | (spread(i) & 0xffu));
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
