/* SPDX-License-Identifier: MIT */
#include "tests/support/byte_decoder.h"

#include <math.h>
#include <string.h>

static float other_e4m3(unsigned code)
{
	int exponent = code >> 3 & 15, mantissa = code & 7;
	float v = exponent == 0 ? ldexpf((float)mantissa, -9) : ldexpf((float)(8 + mantissa), exponent - 10);
	if (exponent == 15 && mantissa == 7)
		return NAN;
	return code & 0x80 ? -v : v;
}

static float other_e2m1(unsigned code)
{
	static const float magnitude[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
	return code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
}

static float other_stored(enum plumb_format format, const void *data, int64_t i)
{
	const unsigned char *p = (const unsigned char *)data + (format == PLUMB_F32 ? 4 : 2) * i;
	uint32_t bits = format == PLUMB_F32
	                        ? (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24
	                        : (uint32_t)p[0] << 16 | (uint32_t)p[1] << 24;
	float v;
	if (format == PLUMB_F16) {
		int exponent = p[1] >> 2 & 31, mantissa = (p[1] & 3) << 8 | p[0];
		v = exponent ? ldexpf((float)(1024 + mantissa), exponent - 25) : ldexpf((float)mantissa, -24);
		return p[1] & 0x80 ? -v : v; /* no Inf or NaN in these tests */
	}
	memcpy(&v, &bits, sizeof v);
	return v;
}

/* To bf16, nearest, ties to even, by division and remainder. */
static float other_bf16(float x)
{
	uint32_t bits, rest;
	memcpy(&bits, &x, sizeof bits);
	if (isnan(x))
		return x;
	rest = bits % 65536;
	bits -= rest;
	if (rest > 32768 || (rest == 32768 && bits / 65536 % 2))
		bits += 65536;
	memcpy(&x, &bits, sizeof x);
	return x;
}

float byte_decoder_element(const struct plumb_weight *w, int64_t n, int64_t k)
{
	const unsigned char *code = w->data, *scale = w->scale;
	int64_t groups = w->cols / 16 + (w->cols % 16 != 0), blocks = w->cols / 128 + (w->cols % 128 != 0), row_bytes;

	switch (w->format) {
	case PLUMB_FP8_ROW:
		return other_e4m3(code[n * w->cols + k]) * other_stored(w->scale_format, scale, n);
	case PLUMB_FP8_BLOCK:
		return other_e4m3(code[n * w->cols + k]) * other_stored(w->scale_format, scale, n / 128 * blocks + k / 128);
	case PLUMB_FP8_TABLE:
		return other_bf16(other_e4m3(code[n * w->cols + k]) * w->global);
	case PLUMB_NVFP4:
		row_bytes = w->cols / 2 + w->cols % 2;
		return other_e2m1(k % 2 ? code[n * row_bytes + k / 2] / 16u : code[n * row_bytes + k / 2] % 16u) *
		       (other_e4m3(scale[n * groups + k / 16]) * w->global);
	default:
		return other_stored(w->format, w->data, n * w->cols + k);
	}
}

bool byte_decoder_same(float a, float b)
{
	return a == b || (isnan(a) && isnan(b));
}
