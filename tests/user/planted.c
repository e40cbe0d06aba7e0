/* SPDX-License-Identifier: MIT */
/* Three ops as an outsider writes them, right, and faults that are planted in them by name, to be found by plumb
 * bisect.
 *
 * PLANTED="OP@LAYER=FAULT[,...]" says where; a layer of -1 is every layer. Faults:
 *   factor   the last column of every row times 1.01
 *   tail     the last 8 terms of each sum are dropped (gdn_out_proj, attn_out_proj)
 *   lane     the terms that are 3 mod 16 are dropped (the same)
 *   late     the result times 1.01 from position 2052 on, that is past 2051
 *   ulp      every value one step up
 *   random   the first value of a row changes from call to call
 *   shift    columns shifted by one
 *   crash    dies at position 5 or in the pass that holds it
 * and some that only show together: in each the value written lies well within what its op may be off.
 *   mark     (gdn_out_proj) the lowest bits of the first 16 columns spell a mark
 *   read     (hc_inject) where the branch has the mark, the result is times 1.01
 *   relay    (hc_inject) where branch or residual has the mark, the residual gets it
 *   reread   (hc_inject) where the residual has the mark, the result is times 1.01 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plumb_kernel.h"

enum { MARK = 0xB5C3, MARK_BITS = 16, CRASH_AT = 5, LATE = 2052 };

/* Whether a fault is planted in this op and layer. */
static int has(const struct plumb_kernel_call *call, const char *fault)
{
	const char *at = getenv("PLANTED");

	while (at && *at) {
		char op[64], name[32];
		int layer;
		if (sscanf(at, "%63[^@]@%d=%31[a-z]", op, &layer, name) == 3 && strcmp(op, call->ops) == 0 &&
			(layer < 0 || layer == call->layer) && strcmp(name, fault) == 0)
			return 1;
		at = strchr(at, ',');
		at += at != NULL;
	}
	return 0;
}

static uint32_t bits_of(float f)
{
	uint32_t b;
	memcpy(&b, &f, sizeof b);
	return b;
}

static float of_bits(uint32_t b)
{
	float f;
	memcpy(&f, &b, sizeof f);
	return f;
}

static int is_marked(const float *row, int64_t columns)
{
	uint32_t seen = 0;
	for (int i = 0; i < MARK_BITS && i < columns; i++)
		seen |= (bits_of(row[i]) & 1u) << i;
	return seen == MARK;
}

static void set_mark(float *row, int64_t columns)
{
	for (int i = 0; i < MARK_BITS && i < columns; i++)
		row[i] = of_bits((bits_of(row[i]) & ~1u) | ((uint32_t)MARK >> i & 1u));
}

/* Faults of any result: rows of columns, the first one at the call's position. */
static void spoil(const struct plumb_kernel_call *call, float *y, int64_t columns)
{
	static unsigned calls;

	calls++;
	for (int64_t t = 0; t < call->T; t++) {
		float *row = y + t * columns;
		int64_t position = call->position + t;
		if (has(call, "factor"))
			row[columns - 1] *= 1.01f;
		if (has(call, "random"))
			row[0] *= 1.0f + 0.01f * (float)(calls % 7);
		if (has(call, "crash") && position == CRASH_AT)
			*(volatile int *)(uintptr_t)16 = 1;
		for (int64_t i = 0; i < columns; i++) {
			if (has(call, "late") && position >= LATE)
				row[i] *= 1.01f;
			if (has(call, "ulp"))
				row[i] = of_bits(bits_of(row[i]) + 1);
		}
		if (has(call, "shift"))
			memmove(row, row + 1, (size_t)(columns - 1) * sizeof *row);
	}
}

/* A projection, in binary64. */
static int project(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	const float *x = plumb_f32(call, "x");
	float *y = plumb_f32(call, "y");
	int tail = has(call, "tail"), lane = has(call, "lane");

	if (w->format != PLUMB_KERNEL_BF16)
		return plumb_say(call, "weights of format %d, expected bf16", w->format);
	for (int64_t t = 0; t < call->T; t++)
		for (int64_t n = 0; n < w->rows; n++) {
			const unsigned char *row = (const unsigned char *)w->data + (size_t)(n * w->cols) * 2;
			double sum = 0.0;
			for (int64_t k = 0; k < w->cols; k++) {
				uint16_t v;
				memcpy(&v, row + 2 * k, sizeof v);
				if ((tail && k >= w->cols - 8) || (lane && k % 16 == 3))
					continue;
				sum += (double)plumb_of_bf16(v) * (double)x[t * w->cols + k];
			}
			y[t * w->rows + n] = plumb_rne(call->bf16, (float)sum);
		}
	spoil(call, y, w->rows);
	for (int64_t t = 0; t < call->T && has(call, "mark"); t++)
		set_mark(y + t * w->rows, w->rows);
	return 0;
}

static int hc_inject(const struct plumb_kernel_call *call)
{
	const float *residual = plumb_f32(call, "residual"), *branch = plumb_f32(call, "branch");
	const float *injection = plumb_f32(call, "injection");
	float *out = plumb_f32(call, "residual_out");
	int64_t S = plumb_dim(call, "S"), D = plumb_dim(call, "D");

	for (int64_t t = 0; t < call->T; t++) {
		/* before anything is written: the two residuals may be one */
		int from_branch = is_marked(branch + t * D, D), from_residual = is_marked(residual + t * S * D, D);
		for (int64_t s = 0; s < S; s++)
			for (int64_t c = 0; c < D; c++) {
				int64_t i = (t * S + s) * D + c;
				volatile float product = plumb_rne(call->bf16, branch[t * D + c] * injection[t * S + s]);
				out[i] = plumb_rne(call->bf16, residual[i] + product);
				if ((has(call, "read") && from_branch) || (has(call, "reread") && from_residual))
					out[i] *= 1.01f;
			}
		if (has(call, "relay") && (from_branch || from_residual))
			set_mark(out + t * S * D, D);
	}
	spoil(call, out, S * D);
	return 0;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "gdn_out_proj", .run = project},
	{.ops = "attn_out_proj", .run = project},
	{.ops = "hc_inject", .run = hc_inject},
};
PLUMB_KERNELS("planted", "1.0", kernels)
