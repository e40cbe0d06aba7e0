/* SPDX-License-Identifier: MIT */
/* plumb bisect: which (layer, op) choices of a mixture make a run wrong, and how. What is run and what came out; the
 * report is tools/bisect_report.c's business. */
#ifndef PLUMB_TOOLS_BISECT_H
#define PLUMB_TOOLS_BISECT_H

#include "core/decoder.h"
#include "golden/case.h"
#include "tools/check.h"
#include "tools/inside.h"
#include "tools/judge.h"

/* One (layer, op) that can run from the suspects or from the truth; of a fused entry the ops that it covers, as one. */
struct bisect_choice {
	int layer; /* L: outside the layers */
	enum plumb_op op[16];
	int ops;
};

/* Why a call is wrong. */
enum bisect_kind {
	BISECT_WRONG,     /* values */
	BISECT_CHANGES,   /* the same inputs gave two results */
	BISECT_UNWRITTEN, /* a result follows what memory held before */
	BISECT_BIASED,    /* every value within its bound, all of them together not */
	BISECT_FAILED,    /* the call returned an error */
};

/* A (layer, op, site) that is wrong by itself. */
struct bisect_finding {
	struct bisect_choice choice;
	enum plumb_op op; /* of a fused entry the one whose output is wrong */
	enum plumb_site site;
	enum bisect_kind kind;
	int64_t position, T;        /* of the first wrong call */
	int64_t token;              /* the first wrong one, where calls of one row show it; -1: unknown */
	int64_t calls, wrong_calls; /* judged; wrong */
	int operand;                /* -1: none */
	int64_t element;            /* the worst */
	bool in_context;            /* seen on what the other suspects made, not on the truth's inputs */
	struct judge judge;
	struct inside inside;
	char text[512]; /* what is wrong, a line */
};

/* Where a whole run leaves the truth. */
struct bisect_outcome {
	bool fails;
	int64_t token; /* position; -1: unknown */
	int layer;     /* -1: unknown */
	enum plumb_op op;
	enum plumb_site site;
	const char *operand;
	double distance; /* of logits, relative L2; criterion tolerance */
	char text[256];
	struct plumb_error failed; /* a call returned an error */
};

struct bisect_options {
	const struct plumb_model *model;
	const struct plumb_plan *suspects; /* the mixture */
	struct plumb_binding truth;
	const struct plumb_runner *runner; /* what suspects run through; NULL: called directly */
	struct plumb_decoder_options decoder;
	const int32_t *token;         /* the prompt */
	int64_t tokens, steps;        /* of it; tokens decoded behind it, greedily by the truth */
	int64_t from;                 /* tokens before this position are run once, by the truth */
	bool exact;                   /* bits; else error bounds a call, and a tolerance for the logits of a whole run */
	double tolerance;             /* relative L2 of a row of logits */
	struct plumb_tolerance fused; /* of what a fused entry writes, unless exact */
	const char *case_path;        /* NULL: none is written */
	struct plumb_case_origin origin;
	struct bisect_mark *mark; /* kept up to date while suspects run; NULL: nobody looks */
	/* Write the case of the judged call of this number, before it is launched, and stop: the call that killed a
	 * former attempt. -1: none. */
	int64_t stop;
	bool stop_exact; /* that case demands bits, whatever the rest does */
	/* Write the case of the first call of a suspect that is meant, and stop; no call is judged. Layer and position -1: any. */
	bool wanted;
	enum plumb_op wanted_op;
	int wanted_layer;
	int64_t wanted_position;
	const struct check_options *golden; /* a whole run fails when this comparison does; NULL: the truth's run decides */
	bool progress;
};

/* Which judged call is under way, in memory that outlives a crash. */
struct bisect_mark {
	int32_t under_way;
	int32_t in_context;
	int64_t number; /* of the call among those that are judged, from 0 on */
	int32_t op, layer, site;
	int64_t position;
};

/* What is known so far. Zero it, then bisect_begin. */
struct bisect {
	const struct bisect_options *options;
	struct bisect_choice *choice;
	int choices;
	int *group; /* (choices) number of the op, for the search */
	struct bisect_finding *finding;
	int findings;
	int only;      /* the local view judges this choice alone, until its first wrong call; -1: all */
	int64_t calls; /* judged in the local view */
	bool flaky;    /* some call changes from run to run */
	bool case_written;
	struct bisect_outcome whole; /* all suspects */
	bool **set;                  /* (sets) of (choices): minimal sets, one after the other */
	int sets;
	bool rest_fails;      /* more sets than were looked for */
	int decodes, repeats; /* whole runs, those of the truth too; times a set is asked when calls change */
	double seconds[4];    /* local, whole, search, inside */
	struct bisect_trace *trace;
	const struct origin *from; /* the command line, for the reports; may be NULL */
	struct plumb_error *err;
};

/* Lists the choices. Errors: PLUMB_BAD_INPUT when nothing is suspected, or for memory. */
int bisect_begin(struct bisect *b, const struct bisect_options *options, struct plumb_error *err);
void bisect_end(struct bisect *b);

/* Whether the suspects bind this op otherwise than the truth. */
bool bisect_is_suspect(const struct bisect_options *o, int layer, enum plumb_op op);
/* The choice an op belongs to; -1: none. */
int bisect_choice_of(const struct bisect *b, int layer, enum plumb_op op);
/* "gdn_recurrence, layer 2". Returns text. */
const char *bisect_choice_show(const struct bisect *b, int choice, char *text, size_t size);

/* (a) Every call of the suspects on the truth's inputs and state: adds findings, first the first. */
int bisect_local(struct bisect *b);

/* The same on what a mixture makes: on (choices) says which choices run from the suspects. */
int bisect_in_context(struct bisect *b, const bool *on);

/* The truth's run: digests and logits that others are compared with. */
int bisect_truth(struct bisect *b);

/* What the truth decoded behind the prompt: (steps), after bisect_truth. */
const int32_t *bisect_decoded(const struct bisect *b);

/* (b) One whole run of a mixture, from position `from` on, ended at the first difference. */
int bisect_run(struct bisect *b, const bool *on, struct bisect_outcome *out);

/* (c) Minimal sets, at most `most` of them. */
int bisect_search(struct bisect *b, int most);

/* A decoder of a mixture that stands at position `from`. on NULL: all truth. */
int bisect_decoder(struct bisect *b, const bool *on, struct plumb_decoder **out);
/* Feed it the tokens from there on: prompt, then what the truth decoded. after_step may be NULL. */
int bisect_feed(struct bisect *b, struct plumb_decoder *decoder,
	int (*after_step)(void *self, struct plumb_decoder *decoder, int64_t first, int64_t rows), void *self);

#endif
