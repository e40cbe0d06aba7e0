/* SPDX-License-Identifier: MIT */
/* Trees of reports as --json gives them, made up: of any size, with any names. The caller deletes them. */
#ifndef PLUMB_TESTS_SUPPORT_REPORT_TREE_H
#define PLUMB_TESTS_SUPPORT_REPORT_TREE_H

#include <cJSON.h>
#include <stdbool.h>

struct report_tree {
	int layers, tokens;
	bool fails;       /* one element of layer layers/3, moe_down, is over its bound */
	bool bounds;      /* as with --bounds */
	const char *name; /* put into every text that comes from outside: names, paths, messages */
};

cJSON *report_tree_check(const struct report_tree *t);
cJSON *report_tree_bisect(const struct report_tree *t);
cJSON *report_tree_bench(const struct report_tree *t);
cJSON *report_tree_score(const struct report_tree *t);

#endif
