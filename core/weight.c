/* SPDX-License-Identifier: MIT */
#include "core/weight.h"

#include <string.h>

#include "core/numeric.h"

/* Stored values are read by memcpy in the machine's byte order: safetensors is little-endian and so are all targets. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "stored values are little-endian");

static const struct {
	const char *name;
	size_t bytes; /* of one value */
} formats[PLUMB_FORMAT_COUNT] = {
	[PLUMB_F32] = {"f32", 4},
	[PLUMB_F16] = {"f16", 2},
	[PLUMB_BF16] = {"bf16", 2},
};

const char *plumb_format_name(enum plumb_format format)
{
	return (unsigned)format < PLUMB_FORMAT_COUNT ? formats[format].name : "unknown";
}

size_t plumb_format_row_bytes(enum plumb_format format, int64_t cols)
{
	return formats[format].bytes * (size_t)cols;
}

size_t plumb_weight_bytes(const struct plumb_weight *w)
{
	return (size_t)w->rows * plumb_format_row_bytes(w->format, w->cols);
}

void plumb_weight_row(const struct plumb_weight *w, int64_t n, int64_t k0, int64_t count, float *out)
{
	const unsigned char *row =
		(const unsigned char *)w->data + (size_t)n * plumb_format_row_bytes(w->format, w->cols);
	plumb_decode(w->format, row + plumb_format_row_bytes(w->format, k0), count, out);
}

/* The loops below copy each value with memcpy, because a tensor may start at any byte; restrict and the absence of
 * branches let the compiler turn the bf16 one into vector code, which is what the decoder spends its time in. */
static void decode_bf16(const unsigned char *restrict in, int64_t count, float *restrict out)
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code;
		memcpy(&code, in + 2 * i, sizeof code);
		out[i] = plumb_bf16_to_f32(code);
	}
}

static void decode_f16(const unsigned char *restrict in, int64_t count, float *restrict out)
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code;
		memcpy(&code, in + 2 * i, sizeof code);
		out[i] = plumb_f16_to_f32(code);
	}
}

static void encode_bf16(const float *restrict in, int64_t count, unsigned char *restrict out)
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code = plumb_f32_to_bf16(in[i]);
		memcpy(out + 2 * i, &code, sizeof code);
	}
}

static void encode_f16(const float *restrict in, int64_t count, unsigned char *restrict out)
{
	for (int64_t i = 0; i < count; i++) {
		uint16_t code = plumb_f32_to_f16(in[i]);
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
		decode_f16(in, count, out);
		break;
	case PLUMB_BF16:
		decode_bf16(in, count, out);
		break;
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
		encode_f16(in, count, out);
		break;
	case PLUMB_BF16:
		encode_bf16(in, count, out);
		break;
	case PLUMB_FORMAT_COUNT:
		break;
	}
}
