/* SPDX-License-Identifier: MIT */
/* Units with their verdicts (the field "shard" of a result, or what plumb merge joined) as JUnit and TAP. */
#ifndef PLUMB_TOOLS_UNIT_REPORT_H
#define PLUMB_TOOLS_UNIT_REPORT_H

#include "core/status.h"

struct cJSON;

/* object: command, units (name, verdict, text), and where they are there, also and failure. Errors: PLUMB_BAD_INPUT for a
 * file that cannot be written. */
int unit_report_junit(const struct cJSON *object, const char *path, struct plumb_error *err);
int unit_report_tap(const struct cJSON *object, const char *path, struct plumb_error *err);

#endif
