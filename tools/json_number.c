/* SPDX-License-Identifier: MIT */
#include "tools/json_number.h"

#include <cJSON.h>
#include <math.h>
#include <stdio.h>

void json_number(cJSON *object, const char *name, double value)
{
	char text[32];

	if (isfinite(value)) {
		cJSON_AddNumberToObject(object, name, value);
		return;
	}
	snprintf(text, sizeof text, "%g", value);
	cJSON_AddStringToObject(object, name, text);
}
