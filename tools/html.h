/* SPDX-License-Identifier: MIT */
/* Reports as one page: everything in a single file, nothing fetched. A page is made from the tree that --json writes, and
 * from nothing else, so both tell the same. What a reader must know (verdict, worst elements, what to run next) is in the
 * page itself; a script draws the charts from data embedded as JSON.
 *
 * Which report it is says the member "format": "plumb check 1", "plumb bisect 1", "plumb bench 1", "plumb faults score 1",
 * "plumb test 1", "plumb merge 1" or, general, "plumb score 1". A tree is not trusted: members that are missing or of another type are shown as missing, and no text of it is ever markup. */
#ifndef PLUMB_TOOLS_HTML_H
#define PLUMB_TOOLS_HTML_H

#include <cJSON.h>
#include <stddef.h>

#include "core/status.h"

/* "plumb score 1": what a library of planted faults, or of hostile inputs, found out; for plumb faults and plumb test.
 *   title     what was tried, a phrase: "fault library against set opt on simt"
 *   verdict   "pass" or "fail"; summary: one sentence in words
 *   lanes     array of {name, and optionally note}: the columns, in order ("simt", "cuda", "check", "bisect")
 *   classes   array of {name, stage, reason (optional), tried, caught, by: array of {lane, tried, caught, skipped (optional)}}
 *   survivors array of {name, class, stage, lane, text, replay (optional)}: tried and not caught, each with what it is; and, of
 *             code, {before, after: the lines that were changed, advice: what to do}
 *   failures  array of the same: what could not be judged, or is wrong; may be left out
 *   checks    array of {name, caught}: what caught how many; may be left out
 *   tables    array of {title, head, rows: array of {name, caught, and optionally tried, skipped, by}}, in place of the table by stage; by: what caught
 *             those of this row, in words; may be left out
 *   word      what is counted in place of "caught": "passed", where nothing was planted; survivors are then not spoken of
 *   rows      what "stage" names, in place of "stage": "op"
 *   inputs    array of {key, value}: provenance, shown as it is; may be left out
 * beside version, commit, command and date (tools/origin.h). Figures are counts. */

/* The page, malloc'ed and NUL-terminated; *size is its length in bytes. NULL: the format is not known, or memory is out;
 * err says which. The same tree gives the same bytes. */
char *html_page(const cJSON *report, size_t *size, struct plumb_error *err);

/* The page into a file, through output_file. Errors: PLUMB_BAD_INPUT. */
int html_write(const cJSON *report, const char *path, struct plumb_error *err);

#endif
