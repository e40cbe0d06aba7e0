/* SPDX-License-Identifier: MIT */
/* Between the files of the page: writing markup, reading trees. */
#ifndef PLUMB_TOOLS_HTML_PARTS_H
#define PLUMB_TOOLS_HTML_PARTS_H

#include <cJSON.h>
#include <stdbool.h>
#include <stdio.h>

/* tools/html/page.css and page.js, embedded when the program is built. */
extern const char html_css[], html_js[];
extern const size_t html_css_size, html_js_size;

/* How a page begins. Texts are escaped by the frame. */
struct html_head {
	const char *command; /* "plumb check" */
	char verdict[256];   /* "Does not match: layer 17, moe_down" */
	char detail[768];    /* the sentence below; may be empty */
	enum { HTML_PASS, HTML_FAIL, HTML_NOTE } mood;
};

/* One file a report. head: fill the beginning. body: sections of <main>, and members of data, which the script reads. */
void html_check_head(const cJSON *report, struct html_head *head);
void html_check_body(FILE *f, const cJSON *report, cJSON *data);
void html_bisect_head(const cJSON *report, struct html_head *head);
void html_bisect_body(FILE *f, const cJSON *report, cJSON *data);
void html_bench_head(const cJSON *report, struct html_head *head);
void html_bench_body(FILE *f, const cJSON *report, cJSON *data);
void html_score_head(const cJSON *report, struct html_head *head);
void html_score_body(FILE *f, const cJSON *report, cJSON *data);

/* "plumb faults score 1" and "plumb test 1" as "plumb score 1": the caller deletes it. */
cJSON *html_score_of_faults(const cJSON *report);
cJSON *html_score_of_test(const cJSON *report);
cJSON *html_score_of_merge(const cJSON *report); /* and "plumb merge 1" */

/* Write markup: every %s is a text and comes out escaped, %r is markup of our own, %% a percent sign. */
void html_put(FILE *f, const char *format, ...);

/* A command line with a button that copies it. label: what it is for. */
void html_command(FILE *f, const char *label, const char *command);
/* A table in a box of its own that scrolls; head: columns by '|', numbers marked by a leading '#'. Rows follow. */
void html_table_begin(FILE *f, const char *caption, const char *head);
void html_table_end(FILE *f);
/* A cell; number: aligned right. */
void html_cell(FILE *f, bool number, const char *text);
/* "Passed" or "Failed", with a sign: never by colour alone. */
void html_mark(FILE *f, bool pass, const char *words);

/* Members of a tree, whatever it holds. number: NaN when missing; the strings "inf", "-inf" and "nan" are numbers. */
const char *html_string(const cJSON *object, const char *name, const char *otherwise);
double html_number(const cJSON *object, const char *name);
double html_value(const cJSON *item);
bool html_true(const cJSON *object, const char *name);
const cJSON *html_get(const cJSON *object, const char *name);

/* Numbers as text, "-" for NaN. Each returns one of a few buffers in turn: good until eight more are made. */
const char *html_count(double n);         /* 2,908,696 */
const char *html_short(double v);         /* 3 significant digits: 0.77, 1.2e-06 */
const char *html_exactly(double v);       /* 9 significant digits, enough for binary32 */
const char *html_times(double v);         /* 3.1, 46, 3,600, 360,000, 3.6e+09 */
const char *html_places(double v, int n); /* n digits behind the point; from 10,000 on none */

/* Add a number of few digits to an array, or null. */
void html_data_number(cJSON *array, double v);
/* A text for the script: valid UTF-8, and no character that does not show. Texts from outside come in this way only. */
cJSON *html_data_string(const char *text);

#endif
