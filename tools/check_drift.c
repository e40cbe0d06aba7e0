/* SPDX-License-Identifier: MIT */
/* The error of a tensor along the tokens. */
#include <math.h>

#include "tools/check.h"

void check_drift_add(struct check_drift *drift, int64_t T, int64_t token, const float *ours, const float *golden, int64_t n)
{
	drift->groups = T < CHECK_DRIFT ? (int)T : CHECK_DRIFT;
	int64_t group = token * drift->groups / T;
	double error2 = 0.0, reference2 = 0.0;

	for (int64_t i = 0; i < n; i++) {
		double r = (double)golden[i], e = (double)ours[i] - r;
		if (isfinite(e)) {
			error2 += e * e;
			reference2 += r * r;
		} else if (ours[i] != golden[i] && !(isnan(ours[i]) && isnan(golden[i]))) {
			error2 = HUGE_VAL;
		}
	}
	drift->error2[group] += error2;
	drift->reference2[group] += reference2;
}

double check_drift_at(const struct check_drift *drift, int group)
{
	double e = drift->error2[group], r = drift->reference2[group];
	return e == 0.0 ? 0.0 : r > 0.0 ? sqrt(e / r) : HUGE_VAL;
}
