/* SPDX-License-Identifier: MIT */
/* The comparison of a decoder with a golden file: what is run, what is compared with what, and what came out. Printing is
 * tools/check_report.c's business. */
#ifndef PLUMB_TOOLS_CHECK_H
#define PLUMB_TOOLS_CHECK_H

#include "core/compare.h"
#include "core/decoder.h"
#include "core/digest.h"
#include "core/tolerance.h"
#include "golden/golden.h"
#include "golden/layout.h"
#include "tools/check_bounds.h"

/* What an item compares. */
enum check_kind {
	CHECK_FLOAT,     /* float tensor */
	CHECK_INT,       /* integer tensor, exact */
	CHECK_SELECTION, /* QSA blocks or router experts, tie-aware */
	CHECK_GREEDY,    /* greedy tokens, exact */
	CHECK_UNKNOWN,   /* a dataset that no op of this model writes */
};

/* Choices of one item, a row being a token. */
struct check_choices {
	int64_t rows, equal, tie, margin, wrong;
	int64_t tied_rows;   /* rows whose cut runs through equal scores */
	int64_t cut_rows;    /* rows in which there is more to choose from than is taken */
	int64_t flat_rows;   /* of these: all scores equal, so that any choice would do */
	double worst_margin; /* of the rows explained by a margin */
	double worst_bound;  /* the bound of that row */
	int64_t first_row;   /* first row that is not equal, -1: none */
	char first_text[256];
};

/* An element that differs and that its last rounding does not explain: what the reference may write there. */
struct check_apart {
	int64_t index;
	float ours, golden;
	float low, high; /* low > high: nothing is known yet */
};

/* bf16, local view: elements that differ, and whether binary32 sums in another order explain it.
 * The producer's arithmetic is accepted in the f32 view when its relative L2 is at most 1e-6: one element is then off by
 * some 1e-6 of the tensor's rms, and by less than `slack` = 8 times that. Two values are explained by the last rounding
 * when either is the bf16 rounding of something within slack of the unrounded reference. A missing or doubled rounding
 * point moves values by 2^-9 of themselves, five hundred times more.
 * What lies behind an earlier rounding point is a whole step off when a value next to a boundary goes the other way there.
 * So for the elements left the reference runs again, perturbed (ref/nudge.h, tools/check_jury.c), and they are explained when
 * both values lie within what it wrote. */
struct check_boundary {
	int64_t differ;    /* elements that are not equal */
	int64_t explained; /* of these, by the last rounding */
	int64_t earlier;   /* by an earlier one */
	double slack;      /* absolute */
	double worst; /* largest distance of the reference from the rounding boundary in question, as a share of slack */
	struct check_apart *apart; /* (aparts) those that are left for perturbed passes */
	int64_t aparts;
	bool crowded;                   /* too many to be kept: no rounding does that */
	int passes;                     /* perturbed ones, until nothing was left to explain */
	struct check_apart unexplained; /* the first element that nothing explains; index -1: none */
	int64_t bf16_ulp;               /* of elements that the last rounding explains: as in struct plumb_compare */
	double beyond[PLUMB_BF16_STEPS];
};

/* f32, local view: what binary32 leaves open in ops whose error depends on the data (tools/check_jury.c). */
struct check_spread {
	float *exact; /* the reference, unperturbed */
	double error2, reference2;
	double relative; /* largest relative L2 of a perturbed pass from it; 0: not asked for */
	int passes;
};

/* Where along the tokens errors lie: squares of errors and of recorded values, tokens in at most CHECK_DRIFT groups. */
enum { CHECK_DRIFT = 64 };
struct check_drift {
	int groups; /* 0: nothing was added */
	double error2[CHECK_DRIFT], reference2[CHECK_DRIFT];
};

/* One recorded tensor in one view. */
struct check_item {
	char name[96]; /* within the run: "layer03/gdn/output" */
	enum check_kind kind;
	const struct plumb_golden_source *source; /* NULL for decode_logits, greedy and unknown ones */
	const char *stage;                        /* "gdn", "state", "lm_head" */
	int layer;                                /* L outside the layers */
	struct plumb_golden_tensor golden;        /* while its rows come in */
	int rank;                                 /* of the golden tensor, kept for the report */
	int64_t dim[PLUMB_H5_RANK];
	struct plumb_compare cmp;
	struct plumb_compare_int ints;
	struct check_choices choices;
	struct check_boundary boundary;
	struct check_spread spread;
	struct check_drift drift;
	bool compared;       /* all of it */
	bool expected;       /* this view and layer range compare it */
	bool listed;         /* this view and layer range compare it, in this shard or in another */
	bool fed;            /* local view: by recorded inputs, so one op's rules hold; else propagated ones */
	bool hidden;         /* not compared: inside a fused entry of a user, or a trace it does not write */
	const char *kernel;  /* of a user, that had a hand in it: ops, as in "attn_gate"; else NULL */
	const char *library; /* its shared object */
	struct plumb_verdict verdict;
};

struct check_options {
	const struct plumb_model *model;
	const struct plumb_plan *plan;
	const struct plumb_runner *runner; /* NULL: ops are called directly */
	struct plumb_golden *golden;
	const struct plumb_tolerances *tolerances;
	enum plumb_policy policy;
	enum plumb_ties ties;
	uint64_t page_seed;
	struct plumb_decoder_options formats; /* own_caches, caches, state; the rest is not looked at */
	int first_layer, last_layer;          /* of the items compared; L includes the outside */
	const bool *mine;                     /* (L+1) local view of a shard: whose ops are compared; NULL: all */
	bool bounds;                          /* judge every call by its error bound too */
	bool progress;                        /* on standard error, after two seconds */
	const char *label;                    /* for the progress line */
};

struct check_view {
	enum plumb_view view;
	struct check_item *item;
	int items;
	bool part;            /* of a shard: there may be nothing to compare */
	int compared, failed; /* of the expected items */
	int floats;           /* float tensors compared */
	int64_t elements;     /* numbers compared */
	int64_t tied_rows, explained_rows;
	int passes;                  /* perturbed ones */
	int hidden;                  /* items that are */
	int missing;                 /* tensors of the format that the golden does not hold */
	char missing_names[160];     /* the first of them */
	int64_t untold;              /* rows whose choice runs through a tie and is not recorded */
	char untold_first[96];       /* "layer03/qsa/selected_mask row 23" */
	struct plumb_digest digest;  /* of all that the set wrote, before anything was put in its place */
	struct check_bounds *bounds; /* NULL: not asked for */
	double seconds;
};

/* Slack of a bf16 comparison as a share of the tensor's rms: see struct check_boundary. */
#define CHECK_SLACK 8e-6

/* Perturbed passes at most: a value that takes two that went the other way is not found in one of 1000 cases. */
enum { CHECK_PASSES = 32 };
/* Of a tensor, one element in CHECK_APART_SHARE may be left to them (more fails by the share of equal ones), and one token's row:
 * a single value inside an op that went the other way may move all of a row behind it. */
enum { CHECK_APART_SHARE = 100 };

/* Before anything runs: that golden and model belong together. Every known dataset has the shape that the config gives
 * it, every token is inside the vocabulary. Errors: PLUMB_BAD_INPUT naming dataset, shape and the expected one. */
int check_fits(const struct check_options *options, struct plumb_error *err);

/* Run one view. *out is released by check_view_free. Returns PLUMB_OK when it could be run (whatever the verdicts say),
 * else the status of what failed. */
int check_view_run(
	const struct check_options *options, enum plumb_view view, struct check_view *out, struct plumb_error *err);
/* Only the items: what another shard runs. */
int check_view_list(
	const struct check_options *options, enum plumb_view view, struct check_view *out, struct plumb_error *err);
void check_view_free(struct check_view *view);

/* "12 elements differ: 9 by their last rounding ..."; false where none does. */
bool check_view_rounding(const struct check_view *view, char *text, size_t size);

/* tools/check_drift.c: n values of a token of T. */
void check_drift_add(
	struct check_drift *drift, int64_t T, int64_t token, const float *ours, const float *golden, int64_t n);
/* Relative L2 of a group; Inf where only one side is a number, or only the recorded side is zero. */
double check_drift_at(const struct check_drift *drift, int group);

/* PLUMB_OK when the view compared at least one tensor (a part of it may have none), all expected items passed, and so did the bounds, if asked for. */
int check_view_status(const struct check_view *view);

#endif
