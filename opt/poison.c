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
		low = poison == PLUMB_POISON_NAN     ? 0x7fc1u | (low & 0x3eu)
		      : poison == PLUMB_POISON_SMALL ? 0x3f81u | (low & 0x3eu)
		                                     : 0x7101u | (low & 0xfeu);
	else
		low = poison == PLUMB_POISON_NAN     ? 0x7e01u | (low & 0x1feu)
		      : poison == PLUMB_POISON_SMALL ? 0x3c01u | (low & 0xfeu)
		                                     : 0x7b01u | (low & 0xfeu);
	return (uint16_t)low;
}

static uint8_t code(enum plumb_poison poison, size_t i)
{
	uint32_t low = spread(i);

	return (uint8_t)(poison == PLUMB_POISON_NAN     ? 0x7fu | (low & 0x80u)
			 : poison == PLUMB_POISON_SMALL ? 0x38u | (low & 0x3u)
							: 0x7cu | low % 3u);
}

enum plumb_poison_unit plumb_poison_unit(enum plumb_format format)
{
	switch (format) {
	case PLUMB_F32:
		return PLUMB_POISON_32;
	case PLUMB_F16:
		return PLUMB_POISON_F16;
	case PLUMB_BF16:
		return PLUMB_POISON_BF16;
	default:
		return PLUMB_POISON_E4M3;
	}
}

size_t plumb_poison_bytes(enum plumb_poison_unit unit)
{
	switch (unit) {
	case PLUMB_POISON_64:
		return 8;
	case PLUMB_POISON_32:
		return 4;
	case PLUMB_POISON_E4M3:
		return 1;
	default:
		return 2;
	}
}

void plumb_poison_fill(enum plumb_poison poison, enum plumb_poison_unit unit, void *to, size_t first, size_t count)
{
	unsigned char *p = to;

	for (size_t i = first; i < first + count; i++) {
		uint32_t w = word(poison, i);
		uint64_t d = (uint64_t)w << 32 | word(poison, i + 0x10000);
		uint16_t h = half(poison, unit, i);
		uint8_t c = code(poison, i);

		switch (unit) {
		case PLUMB_POISON_32:
			memcpy(p, &w, sizeof w);
			p += sizeof w;
			break;
		case PLUMB_POISON_64:
			memcpy(p, &d, sizeof d);
			p += sizeof d;
			break;
		case PLUMB_POISON_E4M3:
			*p++ = c;
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
