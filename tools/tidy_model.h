/* SPDX-License-Identifier: MIT */
/* Read by tools/tidy.sh before every file, by no compiler: what clang's analyzer cannot see in the file it looks at. Without
 * it most findings are paths on which plumb_fail() returned PLUMB_OK, or cJSON said that nothing is a number. */
#ifndef PLUMB_TOOLS_TIDY_MODEL_H
#define PLUMB_TOOLS_TIDY_MODEL_H

#include <cjson/cJSON.h>

#include "core/status.h"

/* it returns the status it is given, and that is never PLUMB_OK */
#define plumb_fail(err, status, ...)                                                                                       \
	((void)(plumb_fail)(err, status, __VA_ARGS__),                                                                     \
		(status) == PLUMB_OK ? (__builtin_unreachable(), PLUMB_BAD_INPUT) : (int)(status))

/* false for NULL */
#define cJSON_IsNumber(item) ((item) && (cJSON_IsNumber)(item))
#define cJSON_IsString(item) ((item) && (cJSON_IsString)(item))
#define cJSON_IsArray(item) ((item) && (cJSON_IsArray)(item))
#define cJSON_IsObject(item) ((item) && (cJSON_IsObject)(item))
#define cJSON_IsBool(item) ((item) && (cJSON_IsBool)(item))

#endif
