/* SPDX-License-Identifier: MIT */
/* plumb faults: planted faults and mechanical mutants, what is done to each, and the score. */
#ifndef PLUMB_TOOLS_FAULTS_H
#define PLUMB_TOOLS_FAULTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/op.h"
#include "core/status.h"

/* Text made by a format; ends the program when memory is out. To be freed. */
__attribute__((format(printf, 1, 2))) char *faults_format(const char *format, ...);
/* Memory, zero; ends the program when it is out. */
void *faults_zero(size_t count, size_t size);
/* The name of a file, behind the folders of its path. */
const char *faults_base(const char *path);
/* Remove a folder with everything in it; false: something is left. */
bool faults_remove(const char *folder);

/* ---- faults ---- */

enum fault_outcome {
	FAULT_WAITING,
	FAULT_KILLED,
	FAULT_SURVIVED,
	FAULT_EQUIVALENT,     /* recorded with a reason, and nothing killed it */
	FAULT_IDENTICAL,      /* the compiler made the same object code of it */
	FAULT_STILLBORN,      /* a mutant that no compiler takes: not counted */
	FAULT_ELSEWHERE,      /* cannot show in this lane */
	FAULT_NOT_EQUIVALENT, /* recorded as equivalent, and killed: the record is wrong */
	FAULT_ERROR,          /* of the library or the machinery: nothing is known */
};

struct fault {
	char *id; /* "moe-router-tie"; of a mutant "core/compare.c:33:12:relation>=" */
	char *fault_class, *kind, *why;
	char *equivalent; /* the reason, or NULL */
	char *lane_why;   /* why it can show on the GPU only, or NULL */
	char *file;       /* below the source folder */
	char *replacement;
	size_t at, length; /* what is replaced in the file */
	int line, column;
	enum plumb_op op; /* PLUMB_OP_COUNT: any of the file */
	bool mutant;
	uint64_t lot; /* of a mutant: a hash of its line and of what is done to it, which the draw goes by */
	bool race;    /* has to pass the race check too */
	bool tests;   /* in what the seats of its ops do not run: the tests of its file judge it */

	enum fault_outcome outcome;
	char check[96]; /* that killed it */
	char text[400]; /* what the check said, or what went wrong */
	double seconds; /* of the checks, until then */
	int checks;     /* run */
};

struct fault_list {
	struct fault *fault;
	size_t count, room;
};

/* Room for one more, zero. */
struct fault *faults_add(struct fault_list *list);
void faults_free(struct fault_list *list);

/* ---- the library ---- */

/* A file that can be mutated, and what judges it (tests/faults/targets.json). A header of kernels has neither ops nor tests,
 * or tests where the ops' sizes do not reach it, a kernel file with launches besides those of its ops both. */
struct fault_target {
	char *file;
	char *unit;   /* "moe" of kernels/moe.cu; NULL: no kernel file */
	uint64_t ops; /* of a kernel file: bit an op */
	char **test;  /* of others: programs of the tests, in the order in which they are tried */
	int tests;
};

struct fault_targets {
	struct fault_target *target;
	size_t count;
};

int faults_targets_read(const char *folder, struct fault_targets *out, struct plumb_error *err);
void faults_targets_free(struct fault_targets *t);
const struct fault_target *faults_target(const struct fault_targets *t, const char *file);

/* Read folder/NAME.json, every file of the library, and find the place of every fault in its source file. Drift is reported
 * on standard error, one line a fault; then PLUMB_BAD_INPUT. */
int faults_read(const char *source, const char *folder, struct fault_list *list, struct plumb_error *err);

/* All mutants of a file; those that folder/equivalent.json knows have their reason. */
int faults_mutants(
	const char *source, const char *folder, const char *file, struct fault_list *list, struct plumb_error *err);

/* The text of a file with the fault in it; ends with NUL; to be freed. NULL with err set. */
char *faults_applied(const char *source, const struct fault *fault, size_t *size, struct plumb_error *err);

/* ---- the build tree ---- */

struct fault_object {
	char *name;    /* "CMakeFiles/plumbline.dir/core/compare.c.o", as ninja knows it */
	char *source;  /* the whole path of what is compiled */
	char *command; /* as cmake wrote it */
	char **header; /* files that it was compiled from besides, below the source folder */
	int headers;
};

struct fault_build {
	char *source, *folder; /* absolute */
	char *home;            /* the source folder that the tree was configured for; usually `source` */
	char *scratch;         /* absolute */
	struct fault_object *object;
	size_t objects;
	char *linker;    /* the compiler that links */
	char *libraries; /* what a program of this tree is linked with, behind its objects */
	bool cuda;       /* lane */
};

/* Reads compile_commands.json, and asks ninja for dependencies. source NULL: as the tree was configured. */
int faults_build_open(const char *source, const char *folder, const char *scratch, bool cuda, struct fault_build *out,
	struct plumb_error *err);
void faults_build_close(struct fault_build *b);

/* What ninja would do first for targets (" a b"), in its words, "Building C object ..."; NULL: they are no older than
 * their sources. To be freed. Errors: PLUMB_BAD_INPUT naming the tree and what ninja says. */
int faults_outdated(const struct fault_build *b, const char *targets, char **first, struct plumb_error *err);

/* Compile one object of the tree anew, optimised by level ("-O1"), reading files below `overlay` (NULL: none) before those of the
 * source folder.
 * PLUMB_MISMATCH: the compiler refuses; text holds its first line. */
int faults_compile(const struct fault_build *b, const struct fault_object *o, const char *level, const char *overlay,
	const char *to, char *text, size_t size);
/* The object of a kernel file in the simt or race build ("moe"). NULL: there is none. */
const struct fault_object *faults_kernel_object(const struct fault_build *b, const char *unit, bool race);
bool faults_object_reads(const struct fault_build *b, const struct fault_object *o, const char *file);
/* Of the tree: what turns a call of a shared object into one of the opt set. */
const char *faults_seat_object(const struct fault_build *b);
/* The shared object of kernels, with these objects (a list for the shell) in front of the library. */
int faults_link_seat(const struct fault_build *b, const char *objects, const char *to, char *text, size_t size);
/* A program of the tree with objects put in place of its own, or in front of the library. */
struct fault_swap {
	const struct fault_object *object;
	const char *by;
};
int faults_link_program(const struct fault_build *b, const char *program, const struct fault_swap *swap, int swaps,
	const char *to, char *text, size_t size);

/* ---- running ---- */

struct fault_run {
	int status; /* exit status; -1: ended by a signal; -2: took longer than allowed */
	int signal;
	double seconds;
	double processor; /* seconds of it, of the command and what it waited for */
	char line[400];   /* the line that says why it failed, or the last one */
	char trap[200];   /* "read after x: ...", what was touched outside (opt/trap.h, opt/guard.h); else "" */
	char digest[64];  /* of a line "digest ..."; else "" */
};

/* Run a shell command in folder; its output goes to the file log. limit: seconds of processor time, so that a busy machine makes
 * no hang of anything. */
void faults_run(const char *folder, const char *command, double limit, const char *log, struct fault_run *out);

/* ---- judging ---- */

struct fault_options {
	int64_t cases; /* seeded cases of an op */
	int64_t seed;
	int64_t timeout; /* seconds of processor time that a check may take beyond five times what the unmutated file takes */
	bool keep;
};

struct fault_judge;

int faults_judge_open(const struct fault_build *b, const struct fault_targets *targets, const struct fault_options *options,
	struct fault_judge **out, struct plumb_error *err);
void faults_judge_close(struct fault_judge *j);

/* Controls of the chosen faults: everything unmutated passes every check. Records digests and times.
 * PLUMB_MISMATCH: one does not, and nothing may be scored. */
int faults_judge_controls(
	struct fault_judge *j, struct fault *const *fault, size_t count, int jobs, struct plumb_error *err);

/* How long a fault may take, against others: objects to compile, without a unit. */
int faults_judge_weight(const struct fault_judge *j, const struct fault *fault);

/* How many cases a check runs at a time: 1, or more where there are fewer faults than cores. */
void faults_judge_jobs(struct fault_judge *j, int jobs);

/* One fault, in a process of its own or not: sets outcome, check, text, seconds, checks. worker: number of a scratch folder. */
void faults_judge_one(struct fault_judge *j, struct fault *fault, int worker);

/* ---- the score: tools/faults_score.h ---- */

const char *faults_outcome_name(enum fault_outcome outcome);

#endif
