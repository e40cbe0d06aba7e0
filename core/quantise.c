/* SPDX-License-Identifier: MIT */
#include "core/quantise.h"

#include <math.h>
#include <string.h>

#include "core/numeric.h"

#define E4M3_MAX 448.0f
#define E4M3_MIN 0x1p-9f /* the smallest above zero */
#define E2M1_MAX 6.0f

/* The largest magnitude in a part of a matrix of cols columns. */
static float largest(const float *in, int64_t cols, int64_t n0, int64_t n1, int64_t k0, int64_t k1)
{
	float max = 0;
	for (int64_t n = n0; n < n1; n++)
		for (int64_t k = k0; k < k1; k++)
			max = fabsf(in[n * cols + k]) > max ? fabsf(in[n * cols + k]) : max;
	return max;
}

static int64_t end_of(int64_t start, int64_t size, int64_t limit)
{
	return limit - start < size ? limit : start + size;
}

/* amax / largest code, as a number that a scale of that format can hold. */
static float scale_for(float amax, float most, enum plumb_format format)
{
	float scale = amax == 0 ? 1.0f : amax / most;
	if (format == PLUMB_BF16)
		scale = plumb_round_bf16(scale);
	if (scale == 0)
		scale = format == PLUMB_BF16 ? 0x1p-133f : 0x1p-149f;
	return scale;
}

static void put_fp8(
	const struct plumb_weight *w, const float *in, int64_t n, int64_t k0, int64_t k1, float scale, unsigned char *data)
{
	for (int64_t i = n * w->cols + k0; i < n * w->cols + k1; i++)
		data[i] = plumb_f32_to_e4m3(in[i] / scale);
}

/* Blocks of height rows and width columns, with a scale each. */
static void quantise_blocks(const struct plumb_weight *w, const float *in, int64_t height, int64_t width,
	unsigned char *data, unsigned char *scales)
{
	for (int64_t n0 = 0, i = 0; n0 < w->rows; n0 += height) {
		for (int64_t k0 = 0; k0 < w->cols; k0 += width, i++) {
			int64_t n1 = end_of(n0, height, w->rows), k1 = end_of(k0, width, w->cols);
			float scale = scale_for(largest(in, w->cols, n0, n1, k0, k1), E4M3_MAX, w->scale_format);
			plumb_encode(w->scale_format, &scale, 1, scales + plumb_format_row_bytes(w->scale_format, i));
			for (int64_t n = n0; n < n1; n++)
				put_fp8(w, in, n, k0, k1, scale, data);
		}
	}
}

static void quantise_groups(const struct plumb_weight *w, const float *in, unsigned char *data, unsigned char *scales)
{
	size_t row_bytes = plumb_format_row_bytes(PLUMB_NVFP4, w->cols);
	memset(data, 0, plumb_weight_data_bytes(w));
	for (int64_t n = 0; n < w->rows; n++, data += row_bytes) {
		for (int64_t k0 = 0; k0 < w->cols; k0 += PLUMB_NVFP4_GROUP) {
			int64_t k1 = end_of(k0, PLUMB_NVFP4_GROUP, w->cols);
			float amax = largest(in, w->cols, n, n + 1, k0, k1);
			float ratio = amax == 0 ? 1.0f : amax / E2M1_MAX / w->global;
			uint8_t code = plumb_f32_to_e4m3(ratio < E4M3_MIN ? E4M3_MIN : ratio);
			float scale = plumb_e4m3_to_f32(code) * w->global;
			*scales++ = code;
			/* the product of two small scales may be zero, and so is every weight then */
			for (int64_t k = k0; k < k1 && scale > 0; k++)
				data[k / 2] |=
					(unsigned char)(plumb_f32_to_e2m1(in[n * w->cols + k] / scale) << 4 * (k % 2));
		}
	}
}

float plumb_quantise_global(enum plumb_format format, float amax)
{
	return scale_for(amax, format == PLUMB_NVFP4 ? E2M1_MAX * E4M3_MAX : E4M3_MAX, PLUMB_F32);
}

int plumb_quantise(const float *in, struct plumb_weight *w, void *data, void *scale, struct plumb_error *err)
{
	for (int64_t i = 0; i < w->rows * w->cols; i++)
		if (!isfinite(in[i]) && (int)w->format >= PLUMB_PLAIN_FORMATS)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"element [%lld, %lld] is %g, expected a finite number to quantise as %s",
				(long long)(i / w->cols), (long long)(i % w->cols), (double)in[i],
				plumb_format_name(w->format));
	w->data = data;
	w->scale = plumb_weight_scale_bytes(w) ? scale : NULL;
	if (w->global == 0 && (w->format == PLUMB_FP8_TABLE || w->format == PLUMB_NVFP4))
		w->global = plumb_quantise_global(w->format, largest(in, w->cols, 0, w->rows, 0, w->cols));
	switch (w->format) {
	case PLUMB_F32:
	case PLUMB_F16:
	case PLUMB_BF16:
		plumb_encode(w->format, in, w->rows * w->cols, data);
		break;
	case PLUMB_FP8_ROW:
		quantise_blocks(w, in, 1, w->cols, data, scale);
		break;
	case PLUMB_FP8_BLOCK:
		quantise_blocks(w, in, PLUMB_FP8_BLOCK_SIZE, PLUMB_FP8_BLOCK_SIZE, data, scale);
		break;
	case PLUMB_FP8_TABLE:
		for (int64_t n = 0; n < w->rows; n++)
			put_fp8(w, in, n, 0, w->cols, w->global, data);
		break;
	case PLUMB_NVFP4:
		quantise_groups(w, in, data, scale);
		break;
	case PLUMB_FORMAT_COUNT:
		break;
	}
	return PLUMB_OK;
}
