/* SPDX-License-Identifier: MIT */
/* What made a report: the command line, this program's version and commit, and a date only if one is given, so that the
 * same command gives the same bytes. */
#ifndef PLUMB_TOOLS_ORIGIN_H
#define PLUMB_TOOLS_ORIGIN_H

#include <cJSON.h>

/* Each text may be NULL. Words are quoted for a shell where they need it. */
struct origin {
	char *command; /* as it was given: "plumb check tiny.h5 --checkpoint DIR --html out.html" */
	char *check;   /* of plumb check and plumb bisect, else NULL: the same run for either, without reports, views and
	                * layers; bisect is NULL where nothing runs that could be suspected */
	char *bisect;
	const char *date;
};

/* argv[0] is the name of the subcommand. Zeroed and filled; released by origin_end. */
void origin_begin(struct origin *origin, int argc, char **argv, const char *date);
void origin_end(struct origin *origin);

/* The commit this program was built from, "-dirty" behind it when files had changed; "unknown" outside of git. */
const char *origin_commit(void);

/* Members version, commit, command, date, and again.check, again.bisect where they are known. origin NULL: version and
 * commit alone. */
void origin_add(cJSON *report, const struct origin *origin);

#endif
