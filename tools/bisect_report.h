/* SPDX-License-Identifier: MIT */
/* What plumb bisect says: each stage as it ends, and the whole as JSON. */
#ifndef PLUMB_TOOLS_BISECT_REPORT_H
#define PLUMB_TOOLS_BISECT_REPORT_H

#include <cJSON.h>

#include "tools/bisect.h"

void bisect_report_local(const struct bisect *b);
void bisect_report_whole(const struct bisect *b);
void bisect_report_sets(const struct bisect *b);
void bisect_report_inside(const struct bisect *b);
/* The last lines: culprit, case, replay. replay: the command line, or NULL. */
void bisect_report_verdict(const struct bisect *b, const char *replay);

/* The first finding of a (layer, op), or NULL. */
const struct bisect_finding *bisect_finding_of(const struct bisect *b, int choice);

/* All of it as a tree ("plumb bisect 1"): the caller deletes it. */
cJSON *bisect_report_tree(const struct bisect *b, const char *replay);

/* Whether anything is wrong. */
bool bisect_is_wrong(const struct bisect *b);

#endif
