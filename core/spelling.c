/* SPDX-License-Identifier: MIT */
#include "core/spelling.h"

#include <string.h>

/* Damerau-Levenshtein, neighbours swapped at most once. */
int plumb_spelling_distance(const char *a, const char *b)
{
	enum { MOST = PLUMB_SPELLING_FAR };
	int d[MOST][MOST], n = (int)strnlen(a, MOST), m = (int)strnlen(b, MOST);

	if (n >= MOST || m >= MOST)
		return MOST;
	for (int i = 0; i <= n; i++)
		for (int j = 0; j <= m; j++) {
			if (i == 0 || j == 0) {
				d[i][j] = i + j;
				continue;
			}
			int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
			if (d[i - 1][j] + 1 < best)
				best = d[i - 1][j] + 1;
			if (d[i][j - 1] + 1 < best)
				best = d[i][j - 1] + 1;
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
				best = d[i - 2][j - 2] + 1;
			d[i][j] = best;
		}
	return d[n][m];
}
