/* SPDX-License-Identifier: MIT */
#include "opt/matrix.h"

#include <stdbool.h>

struct plumb_matrix plumb_matrix_of(const struct plumb_weight *w)
{
	if (!w)
		return (struct plumb_matrix){0};
	return (struct plumb_matrix){
		.data = w->data,
		.scale = w->scale,
		.global = w->global,
		.format = (int)w->format,
		.scale_format = (int)w->scale_format,
	};
}

int plumb_matrix_check(const struct plumb_env *env, const char *what, const struct plumb_weight *w)
{
	bool fp8 = w->format == PLUMB_FP8_ROW || w->format == PLUMB_FP8_BLOCK;

	if ((unsigned)w->format >= PLUMB_FORMAT_COUNT)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s has format %d, expected 0..%d", what, (int)w->format,
			PLUMB_FORMAT_COUNT - 1);
	if ((fp8 || w->format == PLUMB_NVFP4) && !w->scale)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s is stored as %s but has no scales", what,
			plumb_format_name(w->format));
	if (fp8 && w->scale_format != PLUMB_F32 && w->scale_format != PLUMB_BF16)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s is stored as %s with scales as %s, expected f32 or bf16",
			what, plumb_format_name(w->format), plumb_format_name(w->scale_format));
	return PLUMB_OK;
}

int plumb_vector_check(const struct plumb_env *env, const char *what, const struct plumb_weight *w)
{
	if (w->format == PLUMB_F32 || w->format == PLUMB_F16 || w->format == PLUMB_BF16)
		return PLUMB_OK;
	return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s is stored as %s, expected f32, f16 or bf16", what,
		plumb_format_name(w->format));
}
