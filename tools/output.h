/* SPDX-License-Identifier: MIT */
/* What commands print and write. */
#ifndef PLUMB_TOOLS_OUTPUT_H
#define PLUMB_TOOLS_OUTPUT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/status.h"

struct option_list;

/* Write a file in one piece: a temporary file beside it, then a rename, so that a reader sees the old file or the new one.
 * A link is followed; what is no regular file (a terminal, /dev/null, a FIFO) is written to, not replaced; "-" is standard
 * output. Errors: PLUMB_BAD_INPUT naming the path and the system's reason; nothing is left behind. */
int output_file(const char *path, const char *text, size_t size, struct plumb_error *err);

/* Before the work: refuse what a command is to write when it cannot be written to (tried, nothing is left behind), is one of the
 * inputs, or lies in the input folder; and no two may be one file. Standard output is a file too. */
struct output_path {
	const char *option, *path; /* path NULL: not asked for */
};
struct output_inputs {
	const char *const *file; /* (files) any of them may be NULL */
	int files;
	const struct option_list *kernels; /* NAME=FILE; NULL: none */
	const char *folder;                /* of the checkpoint; NULL: none */
};
int output_paths(const struct output_path *out, int outs, const struct output_inputs *in, struct plumb_error *err);

/* Before that, of an output that is HDF5 (path NULL: not asked for): neither standard output, nor a terminal, a
 * device, a FIFO. */
int output_hdf5(const char *option, const char *path, struct plumb_error *err);

/* First and last thing of the program. end: the exit status, or PLUMB_BAD_INPUT when standard output could not be written. */
void output_begin(void);
int output_end(int status);

/* A line of standard output that grows, such as tokens as they are decoded. output_line: a piece of it was printed,
 * which goes out at once; output_line_end: end it, if there is one; output_line_shared: there is one, and standard
 * error goes to the same terminal or file, so that what is told now would stand in it. output_line_at: keep what is
 * known of it at place, which two processes may share; NULL: here again. */
void output_line(void);
void output_line_end(void);
bool output_line_shared(void);
void output_line_at(int32_t *place);

/* What --quiet, --verbose and --color say, the same in every command. quiet: the verdict line (or, where there is none, the
 * result) and nothing else; errors are told all the same. verbosity: how often --verbose was given. */
enum output_when {
	OUTPUT_AUTO, /* on a terminal, and not with NO_COLOR or TERM=dumb */
	OUTPUT_ALWAYS,
	OUTPUT_NEVER,
};
void output_level(bool quiet, int verbosity, enum output_when colours);
bool output_quiet(void);
int output_verbosity(void);

/* Columns of a line: COLUMNS, or those of the terminal that standard output is; 0: neither, lines are as long as they are. */
int output_columns(void);

/* Colours of what follows on standard output, as --color says; allowed false: none, since a report goes there. */
void output_colour(bool allowed);
const char *output_good(void); /* escape sequences, or "" */
const char *output_bad(void);
const char *output_dim(void);
const char *output_plain(void);

#endif
