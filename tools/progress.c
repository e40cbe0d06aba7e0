/* SPDX-License-Identifier: MIT */
#include "tools/progress.h"

#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "tools/output.h"

static const double LINE_SECONDS = 10.0; /* between two lines of a log */

double progress_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

void progress_begin(struct progress *p, bool wanted, const char *label)
{
	p->terminal = isatty(STDERR_FILENO);
	p->on = wanted && !output_quiet() && (p->terminal || output_verbosity() > 0);
	p->shown = false;
	p->start = p->last = progress_now();
	p->label = label;
}

void progress_within(struct progress *p, int64_t done, double within, int64_t total, const char *unit, const char *where)
{
	double now = progress_now(), spent = now - p->start, part = (double)done + within;
	if (!p->on || spent < 2.0 || now - p->last < (p->terminal ? 0.2 : LINE_SECONDS) || part <= 0 ||
		output_line_shared()) /* it would go over the line, which shows the progress */
		return;
	p->last = now;
	p->shown = p->terminal;
	fprintf(stderr, "%s%s: %s %lld of %lld%s%s, %.3g %s/s, %.0f s left%s", p->terminal ? "\r" : "", p->label, unit,
		(long long)done, (long long)total, *where ? ", " : "", where, part / spent, unit,
		spent * ((double)total - part) / part, p->terminal ? " \033[K" : "\n");
	fflush(stderr);
}

void progress_step(struct progress *p, int64_t done, int64_t total, const char *unit)
{
	progress_within(p, done, 0.0, total, unit, "");
}

void progress_end(struct progress *p)
{
	if (p->shown)
		fprintf(stderr, "\r\033[K");
	p->shown = false;
}
