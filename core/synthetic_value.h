/* SPDX-License-Identifier: MIT */
/* Values of synthetic tensors: every stored byte is a function of the tensor's key and of the place of the byte, in
 * integer code that C11, C++17 and nvcc (host and device) turn into the same bits, so a tensor can be made anywhere, in
 * any part and order. docs/synthetic.md says all of this in formulas; tools/synthetic.py is a second implementation.
 *
 *   key      64 bits: of the tensor's name and the model's seed (plumb_synthetic_key)
 *   word j   32 bits, j = 0 .. 2^64 - 1: plumb_synthetic_word. Data takes words from 0 on, scales those from 2^62 on, the
 *            global scale word 2^63.
 *   f32 f16 bf16  element i: bell(word i) * step + centre, two binary32 roundings, then one to the format. bell: the sum
 *            of the four bytes less 510: -510 .. 510, standard deviation sqrt(21845), about 147.8.
 *   fp8      the code of element i is byte i mod 4 (from the lowest) of word i / 4; a NaN code (0x7F, 0xFF) becomes the
 *            one below it. All other codes are equally likely.
 *   nvfp4    byte i of the data (two codes, rows of ceil(K/2) bytes) is byte i mod 4 of word i / 4, in an odd row the
 *            unused half too.
 *   scales   fp8 row and block, number i: step * ((128 + top byte of word 2^62 + i) / 256), then to bf16 if stored so.
 *            nvfp4, byte i of the scales: 0x28 + (byte i mod 4 of word 2^62 + i / 4) mod 32, which is 0.25 .. 3.75.
 *   global   step * ((192 + top seven bits of word 2^63) / 256); of an fp8 table this is rounded to bf16.
 * No two scales of a matrix are alike by rule, so that a scale taken from the wrong place shows. */
#ifndef PLUMB_CORE_SYNTHETIC_VALUE_H
#define PLUMB_CORE_SYNTHETIC_VALUE_H

#include <stddef.h>

#include "core/numeric.h"
#include "core/splitmix.h"

/* A tensor, apart from its format and shape. */
struct plumb_synthetic_tensor {
	uint64_t key;
	int64_t first; /* number of its first element (fp8, nvfp4: byte): a shard of a table begins where the last ended */
	float step;    /* f32, f16, bf16: of the bell; else: of the scales */
	float centre;  /* f32, f16, bf16 */
};

#define PLUMB_SYNTHETIC_SCALES (UINT64_C(1) << 62) /* first word of the scales */
#define PLUMB_SYNTHETIC_GLOBAL (UINT64_C(1) << 63) /* word of the global scale */

/* Key of the tensor of that name: FNV-1a of its bytes, then mixed with the seed. */
static inline uint64_t plumb_synthetic_key(const char *name, uint64_t seed)
{
	uint64_t h = UINT64_C(0xCBF29CE484222325);
	for (; *name; name++)
		h = (h ^ (unsigned char)*name) * UINT64_C(0x100000001B3);
	return plumb_splitmix64(h ^ plumb_splitmix64(seed));
}

/* What 2^32 words have in common: those whose index has the same upper half. */
struct plumb_synthetic_lane {
	uint32_t a, b;
};
PLUMB_FN struct plumb_synthetic_lane plumb_synthetic_lane_of(uint64_t key, uint64_t j)
{
	uint64_t s = plumb_splitmix64(key + (j >> 32));
	struct plumb_synthetic_lane lane = {(uint32_t)s, (uint32_t)(s >> 32)};
	return lane;
}

/* A word of the lane, by the lower half of its index: two multiplications between shifts (constants of Wellons' search
 * for 32-bit hashes of low bias, 2018), with half of the lane before each. */
PLUMB_FN uint32_t plumb_synthetic_mix(struct plumb_synthetic_lane lane, uint32_t low)
{
	uint32_t x = low + lane.a;
	x ^= x >> 16;
	x *= 0x7FEB352Du;
	x ^= x >> 15;
	x += lane.b;
	x *= 0x846CA68Bu;
	return x ^ x >> 16;
}

PLUMB_FN uint32_t plumb_synthetic_word(uint64_t key, uint64_t j)
{
	return plumb_synthetic_mix(plumb_synthetic_lane_of(key, j), (uint32_t)j);
}

PLUMB_FN int32_t plumb_synthetic_bell(uint32_t word)
{
	uint32_t pairs = (word & 0x00FF00FFu) + (word >> 8 & 0x00FF00FFu);
	return (int32_t)((pairs & 0xFFFFu) + (pairs >> 16)) - 510;
}

/* f32, f16 and bf16: the value of a word before it is rounded to the format. */
PLUMB_FN float plumb_synthetic_plain(uint32_t word, float step, float centre)
{
	float product = (float)plumb_synthetic_bell(word) * step;
	return product + centre;
}

/* Four fp8 codes without NaN: where the lower seven bits of a byte are all set, one is taken off. */
PLUMB_FN uint32_t plumb_synthetic_fp8(uint32_t word)
{
	return word - (((word & 0x7F7F7F7Fu) + 0x01010101u) >> 7 & 0x01010101u);
}

/* Four scales of nvfp4. */
PLUMB_FN uint32_t plumb_synthetic_group_scales(uint32_t word)
{
	return (word & 0x1F1F1F1Fu) + 0x28282828u;
}

/* Four bytes of a stream of words, from byte i on. */
PLUMB_FN uint32_t plumb_synthetic_bytes(uint64_t key, uint64_t first_word, uint64_t i)
{
	uint64_t j = first_word + i / 4;
	unsigned shift = (unsigned)(i % 4) * 8;
	uint32_t word = plumb_synthetic_word(key, j);
	return shift ? word >> shift | plumb_synthetic_word(key, j + 1) << (32 - shift) : word;
}

/* Scale i of fp8 rows or blocks. */
PLUMB_FN float plumb_synthetic_scale(uint64_t key, float step, uint64_t i)
{
	uint32_t word = plumb_synthetic_word(key, PLUMB_SYNTHETIC_SCALES + i);
	return step * ((float)(128u + (word >> 24)) * 0x1p-8f);
}

/* The scale of a whole matrix: nvfp4; of an fp8 table, still to be rounded to bf16. */
PLUMB_FN float plumb_synthetic_global(uint64_t key, float step)
{
	uint32_t word = plumb_synthetic_word(key, PLUMB_SYNTHETIC_GLOBAL);
	return step * ((float)(192u + (word >> 25)) * 0x1p-8f);
}

#endif
