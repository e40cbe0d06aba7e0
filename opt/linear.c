/* SPDX-License-Identifier: MIT */
#include "opt/linear.h"

#include "core/order.h"
#include "kernels/linear.h"
#include "opt/device.h"
#include "opt/matrix.h"

int linear_opt(const struct plumb_env *env, const float *x, int64_t T, const struct linear_part *part, int parts)
{
	struct plumb_linear a = {
		.cols = part[0].w->cols,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
		.parts = parts,
	};
	int status = PLUMB_OK;

	for (int p = 0; p < parts && status == PLUMB_OK; p++) {
		a.rows += part[p].w->rows;
		a.part[p].w = plumb_matrix_of(part[p].w);
		a.part[p].rows = part[p].w->rows;
		status = plumb_matrix_check(env, part[p].what, part[p].w);
	}
	a.pieces = plumb_split_count(a.rows, a.cols);
	for (int64_t t = 0; t < T && status == PLUMB_OK; t++) {
		a.x = x + t * a.cols;
		for (int p = 0; p < parts; p++)
			a.part[p].y = part[p].y + t * a.part[p].rows;
		status = PLUMB_RUN(env, linear, &a);
	}
	return status;
}
