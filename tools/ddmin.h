/* SPDX-License-Identifier: MIT */
/* Delta debugging: of n choices that make something fail together, a smallest set that still does.
 *
 * The set found is 1-minimal: without any one of its members the failure is gone. One, two or three choices that fail
 * only together come out as exactly those, whatever else is switched on, as long as switching on more never heals.
 * Choices come in groups (all layers of an op), which are tried whole first. Answers are kept, so no set is asked for
 * twice. */
#ifndef PLUMB_TOOLS_DDMIN_H
#define PLUMB_TOOLS_DDMIN_H

#include <stdbool.h>

#include "core/status.h"

enum { DDMIN_MAX = 1 << 16 };

/* Whether what is on (n of bool) fails. A status other than PLUMB_OK ends the search and is returned by it. */
typedef int ddmin_test(void *self, const bool *on, bool *fails);

struct ddmin;

/* group: (n) number of each choice's group, ascending. */
int ddmin_create(int n, const int *group, ddmin_test *test, void *self, struct ddmin **out, struct plumb_error *err);
void ddmin_free(struct ddmin *d);

/* Ask (or remember) whether a set fails. */
int ddmin_ask(struct ddmin *d, const bool *on, bool *fails);

/* Reduce set, which fails, in place. first: a subset that is tried before any other cut (suspicion from elsewhere), or
 * NULL. */
int ddmin_reduce(struct ddmin *d, bool *set, const bool *first);

/* Sets asked for so far, remembered answers not counted. */
int ddmin_tests(const struct ddmin *d);

#endif
