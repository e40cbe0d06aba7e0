/* SPDX-License-Identifier: MIT */
/* Between the files that judge faults. */
#ifndef PLUMB_TOOLS_FAULTS_JUDGE_H
#define PLUMB_TOOLS_FAULTS_JUDGE_H

#include "tools/faults.h"

enum { MAX_SWAPS = 128, SEAT_CHECKS = 9 };

/* A check of kernels in their seats. */
struct fault_check {
	const char *name;
	bool race; /* the seats run under the race check */
	int part;  /* of `plumb test`: 1 in that many of the cases; 0: another command */
	const char *class,
		*ops; /* of `plumb test` in a program that the fault is linked into: a class that no shared object is
	                              given, because its memory is not all there; and the ops that it is about */
	const char *golden, *more; /* of `plumb check`: name of the folder, options. The digest has to be the twin's */
};

/* What the unmutated files gave. In memory that all processes share. */
struct fault_control {
	double processor; /* seconds */
	char digest[64];
	int failed;
	char line[400];
};

struct fault_judge {
	const struct fault_build *build;
	const struct fault_targets *targets;
	struct fault_options options;
	int jobs;                    /* cases at a time, of one check: 1 but where faults are fewer than cores */
	struct fault_control *seat;  /* (SEAT_CHECKS) shared */
	struct fault_control **host; /* (targets)(tests of it) shared */
	struct fault_control *shared;
	size_t shared_count;
};

extern const struct fault_check faults_checks[SEAT_CHECKS];

/* ---- tools/faults_judge.c ---- */

/* The scratch file of an object: its name with '/' as '+'. To be freed. */
char *faults_object_path(const char *folder, const struct fault_object *o);
/* How an object is optimised where it is judged. */
const char *faults_level(const struct fault_object *o);
bool faults_same_file(const char *a, const char *b);
bool faults_is_library(const struct fault_object *o);
/* Whether the file is in a unit of kernels, or in the opt file of the same name, or included there. */
bool faults_unit_has(const struct fault_judge *j, const struct fault_target *t, const struct fault *f);
/* The objects of a unit that are to be compiled anew. Returns their number. */
int faults_unit_objects(const struct fault_judge *j, const struct fault_target *t, const struct fault *f,
	const struct fault_object *out[MAX_SWAPS]);
/* Write the file with the fault below overlay. False with text. */
bool faults_write_overlay(const struct fault_judge *j, const struct fault *f, const char *overlay, char *text, size_t size);
/* Whether an optimising compiler makes of these objects what it makes of the unmutated ones: then there is nothing to find. */
bool faults_is_identical(const struct fault_judge *j, const struct fault_object *const *list, int n, const char *folder,
	const char *overlay);
/* What a check said, without the path of the scratch folder, and what was touched outside, as the text of the fault. */
void faults_say(struct fault *f, const struct fault_run *run, const char *folder);
/* Seconds of processor time that a test program may take. */
double faults_limit(const struct fault_judge *j, const struct fault_control *c);

/* ---- tools/faults_seat.c: kernels ---- */

/* The command of a check for these ops in seats of a library, each: cases of an op, 0: as many as asked for; jobs: of them at a
 * time. NULL: the check has nothing for them. To be freed. */
char *faults_seat_command(const struct fault_judge *j, const struct fault_check *c, uint64_t ops, const char *library,
	int64_t each, int jobs);
void faults_judge_seat(struct fault_judge *j, struct fault *f, const char *folder);

/* ---- tools/faults_tests.c: other code ---- */

/* "PLUMB_BOUND_SEEDS=40 test_bound": the program is the last word, what stands before it its environment. */
const char *faults_program_of(const char *test);
void faults_judge_host(struct fault_judge *j, struct fault *f, const char *folder);
/* What a test of a target is compiled from anew: objects of its own, and of the library. Returns their number. */
int faults_host_objects(
	const struct fault_judge *j, const struct fault_target *t, int test, const struct fault_object *out[2 * MAX_SWAPS]);
/* The unmutated files of all chosen targets (bool a target) that name this test through it, in one program. Their control objects
 * are there. */
void faults_control_test(struct fault_judge *j, const bool *chosen, const char *test);
void faults_control_fail(struct fault_control *c, const char *what, const char *line);

#endif
