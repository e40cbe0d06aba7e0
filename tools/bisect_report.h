/* SPDX-License-Identifier: MIT */
/* What plumb bisect says: each stage as it ends, and the whole as JSON. */
#ifndef PLUMB_TOOLS_BISECT_REPORT_H
#define PLUMB_TOOLS_BISECT_REPORT_H

#include "tools/bisect.h"

void bisect_report_local(const struct bisect *b);
void bisect_report_whole(const struct bisect *b);
void bisect_report_sets(const struct bisect *b);
void bisect_report_inside(const struct bisect *b);
/* The last lines: culprit, case, replay. replay: the command line, or NULL. */
void bisect_report_verdict(const struct bisect *b, const char *replay);

/* The first finding of a (layer, op), or NULL. */
const struct bisect_finding *bisect_finding_of(const struct bisect *b, int choice);

/* Errors: PLUMB_BAD_INPUT: the file cannot be written. */
int bisect_report_json(const struct bisect *b, const char *replay, const char *path, struct plumb_error *err);

/* Whether anything is wrong. */
bool bisect_is_wrong(const struct bisect *b);

#endif
