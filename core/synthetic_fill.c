/* SPDX-License-Identifier: MIT */
#include "core/synthetic_fill.h"

#include <string.h>

enum { CHUNK = 1024 }; /* words made at a time: they stay in the first cache */

/* Words j .. j + count - 1; a vector loop between the places where the upper half of the index changes. */
static void make_words(uint64_t key, uint64_t j, int64_t count, uint32_t *restrict out)
{
	while (count > 0) {
		struct plumb_synthetic_lane lane = plumb_synthetic_lane_of(key, j);
		uint32_t low = (uint32_t)j;
		uint64_t left = (UINT64_C(1) << 32) - low;
		int64_t n = (uint64_t)count < left ? count : (int64_t)left;
		for (int64_t i = 0; i < n; i++)
			out[i] = plumb_synthetic_mix(lane, low + (uint32_t)i);
		out += n;
		j += (uint64_t)n;
		count -= n;
	}
}

/* One function a format, so that each is a vector loop of its own. */
static void plain_f32(const uint32_t *restrict word, int64_t n, float step, float centre, unsigned char *restrict out)
{
	for (int64_t i = 0; i < n; i++) {
		float v = plumb_synthetic_plain(word[i], step, centre);
		memcpy(out + 4 * i, &v, sizeof v);
	}
}

static void plain_f16(const uint32_t *restrict word, int64_t n, float step, float centre, unsigned char *restrict out)
{
	for (int64_t i = 0; i < n; i++) {
		uint16_t code = plumb_f32_to_f16(plumb_synthetic_plain(word[i], step, centre));
		memcpy(out + 2 * i, &code, sizeof code);
	}
}

static void plain_bf16(const uint32_t *restrict word, int64_t n, float step, float centre, unsigned char *restrict out)
{
	for (int64_t i = 0; i < n; i++) {
		/* plumb_f32_to_bf16 of a number that is no NaN, without its branch */
		uint32_t u = plumb_f32_bits(plumb_synthetic_plain(word[i], step, centre));
		uint16_t code = (uint16_t)((u + 0x7FFFu + (u >> 16 & 1u)) >> 16);
		memcpy(out + 2 * i, &code, sizeof code);
	}
}

void plumb_synthetic_fill_plain(
	const struct plumb_synthetic_tensor *t, enum plumb_format format, int64_t first, int64_t count, void *out)
{
	uint32_t word[CHUNK];
	unsigned char *to = out;

	for (int64_t i = 0, n; i < count; i += n) {
		n = count - i < CHUNK ? count - i : CHUNK;
		make_words(t->key, (uint64_t)(t->first + first + i), n, word);
		if (format == PLUMB_F32)
			plain_f32(word, n, t->step, t->centre, to);
		else if (format == PLUMB_F16)
			plain_f16(word, n, t->step, t->centre, to);
		else
			plain_bf16(word, n, t->step, t->centre, to);
		to += plumb_format_row_bytes(format, n);
	}
}

enum stream { STREAM_FP8, STREAM_NVFP4, STREAM_GROUP_SCALES };

/* Bytes [first, first + count) of a stream of words that begins at word `from`. */
static void fill_bytes(enum stream stream, uint64_t key, uint64_t from, int64_t first, int64_t count, unsigned char *out)
{
	uint32_t word[CHUNK];
	int64_t lead = first % 4; /* bytes of the first word that are not asked for */

	for (int64_t j = first / 4; count > 0; j += CHUNK) {
		int64_t most = 4 * (int64_t)CHUNK - lead, bytes = most < count ? most : count;
		int64_t words = (lead + bytes + 3) / 4;
		make_words(key, from + (uint64_t)j, words, word);
		if (stream == STREAM_FP8)
			for (int64_t i = 0; i < words; i++)
				word[i] = plumb_synthetic_fp8(word[i]);
		else if (stream == STREAM_GROUP_SCALES)
			for (int64_t i = 0; i < words; i++)
				word[i] = plumb_synthetic_group_scales(word[i]);
		memcpy(out, (const unsigned char *)word + lead, (size_t)bytes);
		out += bytes;
		count -= bytes;
		lead = 0;
	}
}

static void fill_scales(const struct plumb_weight *w, int64_t first, int64_t count, unsigned char *scale)
{
	const struct plumb_synthetic_tensor *t = w->made;
	for (int64_t i = first; i < first + count; i++) {
		float s = plumb_synthetic_scale(t->key, t->step, (uint64_t)i);
		plumb_encode(w->scale_format, &s, 1, scale + plumb_format_row_bytes(w->scale_format, i));
	}
}

void plumb_synthetic_fill(const struct plumb_weight *w, int64_t row, int64_t rows)
{
	const struct plumb_synthetic_tensor *t = w->made;
	int64_t row_bytes = (int64_t)plumb_format_row_bytes(w->format, w->cols), groups;
	unsigned char *data, *scale;

	if (rows < 1)
		return;
	memcpy(&data, &w->data, sizeof data); /* const to everyone but the maker */
	memcpy(&scale, &w->scale, sizeof scale);
	data += row * row_bytes;
	switch (w->format) {
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
		plumb_synthetic_fill_plain(t, w->format, row * w->cols, rows * w->cols, data);
		break;
	case PLUMB_FP8_ROW:
		fill_bytes(STREAM_FP8, t->key, 0, t->first + row * row_bytes, rows * row_bytes, data);
		fill_scales(w, row, rows, scale);
		break;
	case PLUMB_FP8_BLOCK: {
		int64_t across = plumb_parts(w->cols, PLUMB_FP8_BLOCK_SIZE);
		int64_t from = row / PLUMB_FP8_BLOCK_SIZE, to = plumb_parts(row + rows, PLUMB_FP8_BLOCK_SIZE);
		fill_bytes(STREAM_FP8, t->key, 0, t->first + row * row_bytes, rows * row_bytes, data);
		fill_scales(w, from * across, (to - from) * across, scale);
		break;
	}
	case PLUMB_FP8_TABLE:
		fill_bytes(STREAM_FP8, t->key, 0, t->first + row * row_bytes, rows * row_bytes, data);
		break;
	case PLUMB_NVFP4:
		groups = plumb_parts(w->cols, PLUMB_NVFP4_GROUP);
		fill_bytes(STREAM_NVFP4, t->key, 0, t->first + row * row_bytes, rows * row_bytes, data);
		fill_bytes(STREAM_GROUP_SCALES, t->key, PLUMB_SYNTHETIC_SCALES, row * groups, rows * groups,
			scale + row * groups);
		break;
	case PLUMB_FORMAT_COUNT:
		break;
	}
}

float plumb_synthetic_step(enum plumb_format format, double rms)
{
	/* rms of what the step is multiplied with, over all words: the bell; fp8 codes (107.24) by the factors of scales
	 * (1.039) or of a global scale (1.008); nvfp4 codes (2.926) by group scales (1.689) and that factor */
	static const double unit[PLUMB_FORMAT_COUNT] = {
		[PLUMB_F32] = 147.8,
		[PLUMB_F16] = 147.8,
		[PLUMB_BF16] = 147.8,
		[PLUMB_FP8_ROW] = 111.42,
		[PLUMB_FP8_BLOCK] = 111.42,
		[PLUMB_FP8_TABLE] = 108.15,
		[PLUMB_NVFP4] = 4.9846,
	};
	return (float)(rms / unit[format]);
}

float plumb_synthetic_global_of(enum plumb_format format, uint64_t key, float step)
{
	if (format == PLUMB_NVFP4)
		return plumb_synthetic_global(key, step);
	return format == PLUMB_FP8_TABLE ? plumb_round_bf16(plumb_synthetic_global(key, step)) : 0.0f;
}
