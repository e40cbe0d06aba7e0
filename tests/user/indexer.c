/* SPDX-License-Identifier: MIT */
/* A fused entry with caches as state: index queries and keys, block scores and the choice of blocks in one. Neither
 * queries nor scores are operands. INDEXER_FAULT plants: key (a block key that is not written), choice (the worst block
 * for the best one), row (a raw key row of another position). */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

enum { MAX_HEAD = 512 };

static int is_fault(const char *name)
{
	const char *fault = getenv("INDEXER_FAULT");
	return fault && strcmp(fault, name) == 0;
}

static void store_row(const struct plumb_kernel_operand *cache, int64_t r, const float *value)
{
	void *row = plumb_row(cache, r);
	for (int64_t i = 0; i < cache->dim[1]; i++) {
		uint16_t half = plumb_to_bf16(value[i]);
		if (cache->format == PLUMB_KERNEL_F32)
			((float *)row)[i] = value[i];
		else
			memcpy((char *)row + 2 * i, &half, sizeof half);
	}
}

/* rope(Norm(x; w)) at a position, in place. */
static void norm_rope(const struct plumb_kernel_call *call, float *x, const char *norm, int64_t position)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, norm);
	const int64_t Di = plumb_dim(call, "Di"), half = plumb_dim(call, "Dr") / 2;
	const float *rope = plumb_f32(call, "rope") + position * 2 * half;
	double squares = 0.0;
	const int32_t b = call->bf16;

	for (int64_t i = 0; i < Di; i++)
		squares += (double)x[i] * (double)x[i];
	float r = (float)(1.0 / sqrt(squares / (double)Di + (double)call->eps));
	for (int64_t i = 0; i < Di; i++)
		x[i] = plumb_rne(b, x[i] * r * (1.0f + plumb_value(w, 0, i)));
	for (int64_t i = 0; i < half; i++) {
		float u = x[i], v = x[i + half];
		x[i] = plumb_rne(b, plumb_rne(b, u * rope[i]) + plumb_rne(b, -v * rope[half + i]));
		x[i + half] = plumb_rne(b, plumb_rne(b, v * rope[i]) + plumb_rne(b, u * rope[half + i]));
	}
}

static void complete_block(const struct plumb_kernel_call *call, int64_t block)
{
	const struct plumb_kernel_operand *raw = plumb_operand(call, "raw_keys");
	const int64_t Di = plumb_dim(call, "Di"), B = plumb_dim(call, "B");
	float key[MAX_HEAD];

	for (int64_t i = 0; i < Di; i++) {
		double sum = 0.0;
		for (int64_t j = 0; j < B; j++)
			sum += (double)plumb_stored(raw->format, plumb_row(raw, block * B + j), i);
		key[i] = plumb_rne(call->bf16, (float)(sum / (double)B));
	}
	norm_rope(call, key, "k_norm", block * B);
	if (!is_fault("key"))
		store_row(plumb_operand(call, "qsa_project.block_keys"), block, key);
}

static size_t workspace(const struct plumb_kernel_call *call)
{
	return (size_t)((plumb_dim(call, "Hi") + 1) * plumb_dim(call, "Di") + plumb_dim(call, "NB")) * sizeof(float);
}

static void choose(const struct plumb_kernel_call *call, const float *score, int64_t complete, int64_t t)
{
	const int64_t N = plumb_dim(call, "N"), count = complete < N ? complete : N;
	int32_t *block = plumb_i32(call, "block") + t * N;
	int64_t n = 0;

	for (int64_t b = 0; b < complete; b++) {
		int64_t better = 0;
		for (int64_t c = 0; c < complete; c++)
			better += score[c] > score[b] || (score[c] == score[b] && c < b);
		if (is_fault("choice") && count < complete ? better > 0 && better <= count : better < count)
			block[n++] = (int32_t)b;
	}
	while (n < N)
		block[n++] = -1;
	plumb_i32(call, "count")[t] = (int32_t)count;
}

static int indexer(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_matrix *w = plumb_weight_of(call, "w");
	const struct plumb_kernel_operand *raw = plumb_operand(call, "raw_keys"),
					  *keys = plumb_operand(call, "qsa_score.block_keys");
	const int64_t Hi = plumb_dim(call, "Hi"), Di = plumb_dim(call, "Di"), B = plumb_dim(call, "B");
	float *row = (float *)call->workspace, *score = row + (Hi + 1) * Di;

	if (plumb_operand(call, "query") || plumb_operand(call, "score") || Di > MAX_HEAD)
		return plumb_say(call, "an inner result is an operand, or a head is too large");
	for (int64_t t = 0; t < call->T; t++) {
		const int64_t p = call->position + t, complete = (p + 1) / B;
		const float *x = plumb_f32(call, "x") + t * w->cols;
		for (int64_t n = 0; n < w->rows; n++) {
			double sum = 0.0;
			for (int64_t k = 0; k < w->cols; k++)
				sum += (double)plumb_value(w, n, k) * (double)x[k];
			row[n] = plumb_rne(call->bf16, (float)sum);
		}
		for (int64_t h = 0; h < Hi; h++)
			norm_rope(call, row + h * Di, "q_norm", p);
		store_row(raw, is_fault("row") && p > 0 ? p - 1 : p, row + Hi * Di);
		if ((p + 1) % B == 0)
			complete_block(call, p / B);
		for (int64_t b = 0; b < complete; b++) {
			score[b] = 0.0f;
			for (int64_t h = 0; h < Hi; h++) {
				double dot = 0.0;
				for (int64_t i = 0; i < Di; i++)
					dot += (double)row[h * Di + i] *
					       (double)plumb_stored(keys->format, plumb_row(keys, b), i);
				score[b] += dot > 0.0 ? (float)dot : 0.0f;
			}
		}
		choose(call, score, complete, t);
	}
	return 0;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "qsa_project+qsa_score+qsa_select", .run = indexer, .workspace = workspace}};
PLUMB_KERNELS("indexer", "1.0", kernels)
