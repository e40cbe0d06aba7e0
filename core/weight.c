/* SPDX-License-Identifier: MIT */
#include "core/weight.h"

#include <string.h>

#include "core/numeric.h"

/* Stored values are read by memcpy in the machine's byte order: safetensors is little-endian and so are all targets. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored values are little-endian");

static const struct {
	const char *name;
	int bits; /* of one value */
} formats[PLUMB_FORMAT_COUNT] = {
	[PLUMB_F32] = {"f32", 32},
	[PLUMB_F16] = {"f16", 16},
	[PLUMB_BF16] = {"bf16", 16},
	[PLUMB_FP8_ROW] = {"fp8_row", 8},
	[PLUMB_FP8_BLOCK] = {"fp8_block", 8},
	[PLUMB_FP8_TABLE] = {"fp8_table", 8},
	[PLUMB_NVFP4] = {"nvfp4", 4},
};

const char *plumb_format_name(enum plumb_format format)
{
	return (unsigned)format < PLUMB_FORMAT_COUNT ? formats[format].name : "unknown";
}

size_t plumb_format_row_bytes(enum plumb_format format, int64_t cols)
{
	return ((size_t)cols * (size_t)formats[format].bits + 7) / 8;
}

size_t plumb_weight_data_bytes(const struct plumb_weight *w)
{
	return (size_t)w->rows * plumb_format_row_bytes(w->format, w->cols);
}

size_t plumb_weight_scale_bytes(const struct plumb_weight *w)
{
	switch (w->format) {
	case PLUMB_FP8_ROW:
		return plumb_format_row_bytes(w->scale_format, w->rows);
	case PLUMB_FP8_BLOCK:
		return plumb_format_row_bytes(w->scale_format,
			plumb_parts(w->rows, PLUMB_FP8_BLOCK_SIZE) * plumb_parts(w->cols, PLUMB_FP8_BLOCK_SIZE));
	case PLUMB_NVFP4:
		return (size_t)(w->rows * plumb_parts(w->cols, PLUMB_NVFP4_GROUP));
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
	case PLUMB_FP8_TABLE:
	case PLUMB_FORMAT_COUNT:
		break;
	}
	return 0;
}

size_t plumb_weight_bytes(const struct plumb_weight *w)
{
	return plumb_weight_data_bytes(w) + plumb_weight_scale_bytes(w);
}

/* Scale number i of fp8 row or block. */
static float stored_scale(const struct plumb_weight *w, int64_t i)
{
	float scale = 0.0f; /* always written: scale_format is f32 or bf16 */
	plumb_decode(
		w->scale_format, (const unsigned char *)w->scale + plumb_format_row_bytes(w->scale_format, i), 1, &scale);
	return scale;
}

/* E4M3 codes of the groups of row n of nvfp4. */
static const unsigned char *group_scales(const struct plumb_weight *w, int64_t n)
{
	return (const unsigned char *)w->scale + n * plumb_parts(w->cols, PLUMB_NVFP4_GROUP);
}

static void decode_fp8(const unsigned char *restrict in, int64_t count, float scale, float *restrict out)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = plumb_e4m3_to_f32(in[i]) * scale;
}

/* row: the codes of row n; columns [k0, k0 + count). A piece ends where a block does. */
static void decode_fp8_blocks(
	const struct plumb_weight *w, const unsigned char *row, int64_t n, int64_t k0, int64_t count, float *out)
{
	int64_t across = plumb_parts(w->cols, PLUMB_FP8_BLOCK_SIZE), first = n / PLUMB_FP8_BLOCK_SIZE * across;
	for (int64_t k = k0, end = k0 + count, next; k < end; k = next) {
		int64_t block = k / PLUMB_FP8_BLOCK_SIZE;
		next = (block + 1) * PLUMB_FP8_BLOCK_SIZE < end ? (block + 1) * PLUMB_FP8_BLOCK_SIZE : end;
		decode_fp8(row + k, next - k, stored_scale(w, first + block), out + (k - k0));
	}
}

static void decode_table(const unsigned char *restrict in, int64_t count, float scale, float *restrict out)
{
	for (int64_t i = 0; i < count; i++)
		out[i] = plumb_round_bf16(plumb_e4m3_to_f32(in[i]) * scale);
}

/* The two values of every byte: what plumb_e2m1_to_f32 gives for its nibbles, the lower first (tests/test_weight.c). */
#define PAIR(low, high) low, high
#define PAIRS(high)                                                                                                        \
	PAIR(0.0f, high), PAIR(0.5f, high), PAIR(1.0f, high), PAIR(1.5f, high), PAIR(2.0f, high), PAIR(3.0f, high),        \
		PAIR(4.0f, high), PAIR(6.0f, high), PAIR(-0.0f, high), PAIR(-0.5f, high), PAIR(-1.0f, high),               \
		PAIR(-1.5f, high), PAIR(-2.0f, high), PAIR(-3.0f, high), PAIR(-4.0f, high), PAIR(-6.0f, high)
static const float e2m1_pair[2 * 256] = {PAIRS(0.0f), PAIRS(0.5f), PAIRS(1.0f), PAIRS(1.5f), PAIRS(2.0f), PAIRS(3.0f),
	PAIRS(4.0f), PAIRS(6.0f), PAIRS(-0.0f), PAIRS(-0.5f), PAIRS(-1.0f), PAIRS(-1.5f), PAIRS(-2.0f), PAIRS(-3.0f),
	PAIRS(-4.0f), PAIRS(-6.0f)};
#undef PAIRS
#undef PAIR

/* A whole group: a look-up a byte, then one vector multiplication. */
static void decode_group(const unsigned char *restrict in, float scale, float *restrict out)
{
	float value[PLUMB_NVFP4_GROUP];

	for (size_t j = 0; j < PLUMB_NVFP4_GROUP / 2; j++)
		memcpy(value + 2 * j, e2m1_pair + 2 * (size_t)in[j], 2 * sizeof *value);
	for (int j = 0; j < PLUMB_NVFP4_GROUP; j++)
		out[j] = value[j] * scale;
}

/* Columns [k, end) of a row. */
static void decode_nibbles(const unsigned char *row, int64_t k, int64_t end, float scale, float *out)
{
	for (; k < end; k++)
		*out++ = plumb_e2m1_to_f32((uint8_t)(row[k / 2] >> 4 * (k % 2))) * scale;
}

/* row: the bytes of row n. The product of the two scales is rounded before a code joins it: once a group. */
static void decode_nvfp4(
	const struct plumb_weight *w, const unsigned char *row, int64_t n, int64_t k0, int64_t count, float *out)
{
	const unsigned char *scales = group_scales(w, n);
	for (int64_t k = k0, end = k0 + count, next; k < end; k = next) {
		int64_t group = k / PLUMB_NVFP4_GROUP;
		float scale = plumb_e4m3_to_f32(scales[group]) * w->global;
		next = (group + 1) * PLUMB_NVFP4_GROUP < end ? (group + 1) * PLUMB_NVFP4_GROUP : end;
		if (next - k == PLUMB_NVFP4_GROUP)
			decode_group(row + k / 2, scale, out + (k - k0));
		else
			decode_nibbles(row, k, next, scale, out + (k - k0));
	}
}

float plumb_weight_scale(const struct plumb_weight *w, int64_t n, int64_t k)
{
	switch (w->format) {
	case PLUMB_FP8_ROW:
		return stored_scale(w, n);
	case PLUMB_FP8_BLOCK:
		return stored_scale(w,
			n / PLUMB_FP8_BLOCK_SIZE * plumb_parts(w->cols, PLUMB_FP8_BLOCK_SIZE) + k / PLUMB_FP8_BLOCK_SIZE);
	case PLUMB_FP8_TABLE:
		return w->global;
	case PLUMB_NVFP4:
		return plumb_e4m3_to_f32(group_scales(w, n)[k / PLUMB_NVFP4_GROUP]) * w->global;
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
	case PLUMB_FORMAT_COUNT:
		break;
	}
	return 1.0f;
}

void plumb_weight_row(const struct plumb_weight *w, int64_t n, int64_t k0, int64_t count, float *out)
{
	if (count <= 0)
		return;
	const unsigned char *row = (const unsigned char *)w->data + (size_t)n * plumb_format_row_bytes(w->format, w->cols);
	switch (w->format) {
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
		plumb_decode(w->format, row + plumb_format_row_bytes(w->format, k0), count, out);
		break;
	case PLUMB_FP8_ROW:
		decode_fp8(row + k0, count, stored_scale(w, n), out);
		break;
	case PLUMB_FP8_BLOCK:
		decode_fp8_blocks(w, row, n, k0, count, out);
		break;
	case PLUMB_FP8_TABLE:
		decode_table(row + k0, count, w->global, out);
		break;
	case PLUMB_NVFP4:
		decode_nvfp4(w, row, n, k0, count, out);
		break;
	case PLUMB_FORMAT_COUNT:
		break;
	}
}

/* Two-byte values are copied with memcpy, because a tensor may start at any byte. restrict, and a conversion that is
 * known where the loop is inlined, let the compiler turn the bf16 loops into vector code, which is what the decoder
 * spends its time in. */
static inline void decode_halves(
	const unsigned char *restrict in, int64_t count, float *restrict out, float (*widen)(uint16_t code))
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code;
		memcpy(&code, in + 2 * i, sizeof code);
		out[i] = widen(code);
	}
}

static inline void encode_halves(
	const float *restrict in, int64_t count, unsigned char *restrict out, uint16_t (*round)(float x))
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code = round(in[i]);
		memcpy(out + 2 * i, &code, sizeof code);
	}
}

void plumb_decode(enum plumb_format format, const void *in, int64_t count, float *out)
{
	if (count <= 0) /* an empty range may come with a null pointer, which memcpy must not see */
		return;
	switch (format) {
	case PLUMB_F32:
		memcpy(out, in, (size_t)count * sizeof *out);
		break;
	case PLUMB_F16:
		decode_halves(in, count, out, plumb_f16_to_f32);
		break;
	case PLUMB_BF16:
		decode_halves(in, count, out, plumb_bf16_to_f32);
		break;
	case PLUMB_FP8_ROW:
	case PLUMB_FP8_BLOCK:
	case PLUMB_FP8_TABLE:
	case PLUMB_NVFP4:
	case PLUMB_FORMAT_COUNT:
		break;
	}
}

void plumb_encode(enum plumb_format format, const float *in, int64_t count, void *out)
{
	if (count <= 0)
		return;
	switch (format) {
	case PLUMB_F32:
		memcpy(out, in, (size_t)count * sizeof *in);
		break;
	case PLUMB_F16:
		encode_halves(in, count, out, plumb_f32_to_f16);
		break;
	case PLUMB_BF16:
		encode_halves(in, count, out, plumb_f32_to_bf16);
		break;
	case PLUMB_FP8_ROW:
	case PLUMB_FP8_BLOCK:
	case PLUMB_FP8_TABLE:
	case PLUMB_NVFP4:
	case PLUMB_FORMAT_COUNT:
		break;
	}
}
