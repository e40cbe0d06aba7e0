/* SPDX-License-Identifier: MIT */
/* One line on standard error that says how far a long command is. It shows nothing during the first two seconds, and
 * nothing at all with --quiet or when standard error is no terminal; with --verbose it then is a line every ten seconds, for
 * the log of a CI job. */
#ifndef PLUMB_TOOLS_PROGRESS_H
#define PLUMB_TOOLS_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct progress {
	bool on;
	bool terminal; /* the line is written over; else each is a line of a log */
	bool shown;
	double start, last; /* seconds of the monotonic clock */
	const char *label;
};

double progress_now(void);
void progress_begin(struct progress *p, bool wanted, const char *label);
/* done of total units; unit names them ("token"). Prints at most five times a second. */
void progress_step(struct progress *p, int64_t done, int64_t total, const char *unit);
/* The same inside a unit: within it, 0 to 1 or more; where, e.g. "layer 3 of 48", is shown too. */
void progress_within(struct progress *p, int64_t done, double within, int64_t total, const char *unit, const char *where);
void progress_end(struct progress *p);

#endif
