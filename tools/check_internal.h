/* SPDX-License-Identifier: MIT */
/* Between the files of the check: the state of a running view. */
#ifndef PLUMB_TOOLS_CHECK_INTERNAL_H
#define PLUMB_TOOLS_CHECK_INTERNAL_H

#include "tools/check.h"
#include "tools/check_second.h"
#include "tools/progress.h"

/* A buffer that holds what a user's kernel made of it. */
struct check_work {
	const void *buffer;
	const char *kernel, *library;
	int64_t call; /* the latest is told */
};
enum { CHECK_WORKS = 64 };

struct check_blame {
	struct check_work work[CHECK_WORKS];
	int works;
	int64_t calls;
	const char *kernel, *library; /* user's kernel whose work is in what the running call writes; or NULL */
};

struct check_run {
	const struct check_options *options;
	struct check_view *view;
	struct plumb_decoder *decoder;
	struct plumb_error *err;
	struct progress *progress;
	float *score; /* (T, NB) of the running qsa_score call, by the oracle from the same query and keys */
	bool *skip; /* (L+1) local view of a shard: layers that need not run, since what enters the next is recorded; or NULL */
	struct check_blame blame;
	bool fused;                 /* the call is one of a fused entry: what lies between its ops is not known */
	struct check_second second; /* the reference's second evaluation of the running call */
	uint64_t nudge;             /* of a perturbed pass */
};

/* The item of a source at a layer, or NULL when the golden has no such dataset. */
struct check_item *check_find(struct check_run *run, const struct plumb_golden_source *source, int layer);

/* The item of a dataset by its name within the run, or NULL. */
struct check_item *check_find_name(struct check_run *run, const char *name);

/* Load the golden tensor of an item if it is not there yet; check_load: and start its comparison. */
int check_read(struct check_run *run, struct check_item *item);
int check_load(struct check_run *run, struct check_item *item);

/* Whether a call writes the rows of a source; whether its layer need not run; what stands in its place then. */
bool check_writes(const struct plumb_golden_source *s, const struct plumb_call *call);
bool check_skipped(const struct check_run *run, const struct plumb_call *call);
int check_put_in_place(struct check_run *run, const struct plumb_call *call);

/* The layer whose op writes an item; and run->skip from options->mine. */
int check_home(const struct check_options *o, const struct check_item *it);
int check_choose_layers(struct check_run *run);

/* Decoder options of a view's run. */
struct plumb_decoder_options check_decoder_options(const struct check_options *o);

/* Called when an item has all its rows. */
void check_finish(struct check_run *run, struct check_item *item);

/* Value of a pointer member of a call's arguments. NULL when the operand is not there. */
void *check_operand(const struct plumb_call *call, const char *name);

/* tools/check_selection.c: compare and, where a difference is explained (or in the local view always), go on with the
 * golden's choice. */
int check_experts(struct check_run *run, const struct plumb_call *call, struct check_item *item);
int check_scores(struct check_run *run, const struct plumb_call *call); /* after qsa_score: fills run->score */
int check_mask(struct check_run *run, const struct plumb_call *call, struct check_item *item);

/* Whether the layer after this one can begin from recorded tensors (layer -1: layer 0, which begins from the embedding). */
bool check_residual_recorded(struct check_run *run, int layer);

/* tools/check_fed.c: whether the recorded tensors feed the op that an item comes from; and, after a call that chooses, rows
 * with equal scores at the cut whose choice is not recorded. */
bool check_fed(struct check_run *run, const struct check_item *item);
int check_untold(struct check_run *run, const struct plumb_call *call);

/* tools/check_local.c: in the local view, put the recorded tensors in place of what the op wrote, and what follows from
 * them inside the op's outputs. */
int check_force(struct check_run *run, const struct plumb_call *call);

/* tools/check_blame.c: whose work is in what a call wrote, known from begin on; end: what was recorded is put right. In
 * the propagated view nothing is, and all the same a kernel is named up to the next recorded tensor only. */
void check_blame_begin(struct check_run *run, const struct plumb_call *call);
void check_blame_end(struct check_run *run, const struct plumb_call *call);

/* tools/check_boundary.c: under policy bf16, why elements differ. before() takes copies of the state. */
int check_boundary_before(struct check_run *run, const struct plumb_call *call);
void check_boundary_begin(const struct check_run *run, struct check_item *item); /* its golden tensor is loaded */
int check_boundary_rows(struct check_run *run, const struct plumb_call *call, struct check_item *item, const float *ours,
	const float *golden, int64_t first, int64_t count);
int check_boundary_shown(struct check_run *run, struct check_item *item, const float *ours, const float *golden,
	int64_t first, int64_t count); /* of caches and states, whose unrounded values nobody has */
/* Values that a perturbed pass wrote: count from element first of the tensor on. */
void check_boundary_span(struct check_item *item, const float *values, int64_t first, int64_t count);
void check_boundary_end(struct check_item *item); /* after the passes: which are explained */

/* tools/check_jury.c: the verdict of a float item; and, after the local view, what perturbed passes of the reference say about
 * those that their last rounding does not explain. */
void check_judge(const struct check_run *run, struct check_item *item);
int check_jury(struct check_run *run, const int32_t *token);

#endif
