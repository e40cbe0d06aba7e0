/* SPDX-License-Identifier: MIT */
/* qsa_score as an outsider writes it. SCORE_FAULT=later: the key of a block that is not complete is read and weighted
 * with 0, which changes nothing as long as a number lies there. */
#include <math.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

static float dot(const struct plumb_kernel_operand *keys, int64_t block, const float *query)
{
	const void *row = plumb_row(keys, block);
	double sum = 0.0;

	for (int64_t i = 0; i < keys->dim[1]; i++)
		sum += (double)query[i] * (double)plumb_cached(keys->format, keys->scale, row, i);
	return (float)sum;
}

static int score(const struct plumb_kernel_call *call)
{
	const struct plumb_kernel_operand *keys = plumb_operand(call, "block_keys");
	const float *query = plumb_f32(call, "query");
	float *out = plumb_f32(call, "score");
	const int64_t Hi = plumb_dim(call, "Hi"), Di = plumb_dim(call, "Di"), B = plumb_dim(call, "B"), NB = keys->dim[0];

	for (int64_t t = 0; t < call->T; t++, query += Hi * Di, out += NB) {
		const int64_t complete = (call->position + t + 1) / B;
		for (int64_t b = 0; b < NB; b++) {
			float sum = 0.0f;
			for (int64_t h = 0; h < Hi && b < complete; h++) {
				const float v = dot(keys, b, query + h * Di);
				sum += v > 0.0f || isnan(v) ? v : 0.0f;
			}
			if (getenv("SCORE_FAULT") && b == 0 && complete < NB)
				sum += 0.0f * dot(keys, complete, query);
			out[b] = b < complete ? sum / sqrtf((float)Di) : -INFINITY;
		}
	}
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "qsa_score", .run = score}};
PLUMB_KERNELS("score", "1.0", kernels)
