/* SPDX-License-Identifier: MIT */
#include "golden/mask.h"

#include <float.h>
#include <string.h>

bool plumb_golden_is_mask(const char *name)
{
	static const char end[] = "/qsa/selected_mask";
	size_t n = strlen(name), m = sizeof end - 1;

	return n >= m && strcmp(name + n - m, end) == 0;
}

int plumb_golden_mask_floats(const char *name, const int64_t *selected, int64_t count, float *out, struct plumb_error *err)
{
	const float lowest = strncmp(name, "bf16/", 5) == 0 ? -0x1.fep+127f : -FLT_MAX;

	for (int64_t i = 0; i < count; i++) {
		if (selected[i] != 0 && selected[i] != 1)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: element %lld of the mask is %lld, expected 0 or 1 of integers", name, (long long)i,
				(long long)selected[i]);
		out[i] = selected[i] ? 0.0f : lowest;
	}
	return PLUMB_OK;
}
