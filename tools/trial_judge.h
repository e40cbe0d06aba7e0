/* SPDX-License-Identifier: MIT */
/* One trial from its spec to a verdict: oracle, twin, and the candidate under several schedules, memories and poisons. */
#ifndef PLUMB_TOOLS_TRIAL_JUDGE_H
#define PLUMB_TOOLS_TRIAL_JUDGE_H

#include "opt/user.h"
#include "tools/trial_spec.h"

/* Who is tried. */
struct trial_candidate {
	const char *path; /* a shared object that offers the op; NULL: the opt set */
	bool exact;       /* every bit of the twin; else, of a shared object, the bound is enough */
	double within;    /* of a shared object: how many times the bound an error may be; 0 stands for 1 */
	bool race;        /* simt: every case through the race check too; else a share of them */
	int gpu;
	int threads;                  /* of OpenMP that a shared object's kernel finds; 0: those of the process */
	struct plumb_user_mark *mark; /* says what is under way; never NULL */
	uint64_t *inputs;             /* is told the number of the inputs before the candidate runs; may be NULL */
};

/* The devices of a process, opened at first use. Zero it to start. */
struct trial_devices {
	struct plumb_device *natural, *scheduled, *own, *race, *cuda;
};
void trial_devices_close(struct trial_devices *devices);

/* What came of it. Small enough to go through a pipe in one piece. */
struct trial_report {
	int64_t index;  /* of the case, for who runs many */
	int status;     /* PLUMB_OK; PLUMB_MISMATCH; PLUMB_BAD_INPUT: it could not be made; PLUMB_NO_DEVICE */
	bool reference; /* the oracle or the twin is at fault, not the candidate */
	bool constant;  /* every output is zero, or one value: little is proven */
	bool sick;      /* the device gives errors from now on: another process is needed */
	uint64_t inputs;
	double seconds, ratio; /* ratio: the largest error of the candidate, of the twin where it is exact, of its bound */
	char text[TRIAL_TEXT]; /* what is wrong, with the worst element */
	char how[900];         /* what the wrong elements have in common; empty: nothing to say */
	char full[TRIAL_LINE]; /* all sizes */
};

/* bounds: of the op, to add the candidate's errors to; may be NULL. */
void trial_judge(const struct trial_spec *spec, const struct trial_candidate *candidate, struct trial_devices *devices,
	struct plumb_bound_result *bounds, struct trial_report *report);

#endif
