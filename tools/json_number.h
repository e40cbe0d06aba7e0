/* SPDX-License-Identifier: MIT */
/* Numbers in a report. */
#ifndef PLUMB_TOOLS_JSON_NUMBER_H
#define PLUMB_TOOLS_JSON_NUMBER_H

struct cJSON;

/* Add a number to an object. JSON has no NaN and no Inf: those become strings, "nan", "inf", "-inf". */
void json_number(struct cJSON *object, const char *name, double value);

#endif
