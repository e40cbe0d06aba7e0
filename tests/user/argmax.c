/* SPDX-License-Identifier: MIT */
/* argmax as an outsider writes it; with ARGMAX_FAULT set, from a start value that a row of -Inf never exceeds. */
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/plumb_kernel.h"

static int argmax(const struct plumb_kernel_call *call)
{
	const float *logits = plumb_f32(call, "logits");
	int32_t *token = plumb_i32(call, "token");
	int64_t V = plumb_dim(call, "V");
	bool start = getenv("ARGMAX_FAULT") != NULL;

	for (int64_t t = 0; t < call->T; t++, logits += V) {
		float largest = -INFINITY;
		token[t] = -1;
		for (int64_t i = 0; i < V; i++)
			if (logits[i] > largest || (!start && token[t] < 0 && logits[i] == largest)) {
				largest = logits[i];
				token[t] = (int32_t)i;
			}
	}
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "argmax", .run = argmax, .note = "plain C"}};
PLUMB_KERNELS("argmax", "1.0", kernels)
