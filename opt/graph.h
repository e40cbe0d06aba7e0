/* SPDX-License-Identifier: MIT */
/* One token a step with everything left on the device: the kernels of a step are recorded once as a CUDA graph, then
 * each token is one launch that takes 8 bytes (id, position) and gives 4 (the argmax).
 *
 * The first step runs its kernels one by one, so that all memory exists; the second is recorded; from then on the
 * record is replayed, and recorded anew when an address in it has changed. On simt, with an observer or runner, and on
 * a guarded device nothing is recorded: the step runs as plumb_decoder_step does, and callers need no branches.
 *
 * Who has the state: the host before the first step, the device after it, the host again after
 * plumb_graph_download_state, or when a copied call (plumb_decoder_step with the same decoder) comes in between. A
 * decoder that was reset has new state on the host, which goes over at the next step. What nobody sees is state read or
 * written through plumb_decoder_state without a download before; and weights and constants must stay as they are while
 * a graph lives. */
#ifndef PLUMB_OPT_GRAPH_H
#define PLUMB_OPT_GRAPH_H

#include "core/decoder.h"
#include "opt/device.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plumb_graph;

/* Both borrowed; one graph a device at a time; to be destroyed before either.
 * Errors: PLUMB_BAD_INPUT when an op of the plan is bound elsewhere than to the device and its set. */
int plumb_graph_create(
	struct plumb_decoder *decoder, struct plumb_device *device, struct plumb_graph **out, struct plumb_error *err);
/* Which neighbours are one launch (opt/fuse.h), from the next step on; "on", as at first: all that can be.
 * Errors: PLUMB_BAD_INPUT naming the word, nothing is changed then. */
int plumb_graph_fuse(struct plumb_graph *graph, const char *fusions, struct plumb_error *err);
/* State that was not downloaded is lost. */
void plumb_graph_destroy(struct plumb_graph *graph);

/* Run one token. *next: the argmax, which is also in plumb_decoder_tokens; -1 when every logit is NaN.
 * Errors as plumb_decoder_step; after an error the state is undefined. */
int plumb_graph_step(struct plumb_graph *graph, int32_t token, int32_t *next, struct plumb_error *err);

/* Logits of the last step (V), brought to plumb_decoder_logits. */
int plumb_graph_logits(struct plumb_graph *graph, const float **logits, struct plumb_error *err);

/* Bring the state to the host, which has it from then on. */
int plumb_graph_download_state(struct plumb_graph *graph, struct plumb_error *err);

/* How long a part of a step takes on the device: the calls of some ops alone, in the order of the step, recorded `passes`
 * times in a row as one graph, which runs back to back. Weights of all layers take turns, as in a step; activations are
 * those that the last step left. */
struct plumb_graph_timing {
	const bool *op;       /* in: (PLUMB_OP_COUNT) which ops; NULL: the whole step as it is recorded, passes 1 */
	int passes;           /* in */
	int64_t repeat;       /* in: how many runs are timed, after one that is not */
	double *microseconds; /* out: (repeat) of a run; owned by the caller */
	int64_t calls;        /* out: of ops, in a run; 0 for the whole step */
	int64_t launches;     /* out: of kernels, in a run */
};
/* After at least two steps, of which the last one's position was not the end of the caches. The position is kept, but the
 * state (recurrent state, the caches' next row) is what the runs left, and there are no logits: reset the decoder, or fill
 * its state and resume, before the next step that matters.
 * Errors: PLUMB_BAD_INPUT where nothing is recorded (simt, a watched decoder, a guarded device), or no step has been. */
int plumb_graph_time(struct plumb_graph *graph, struct plumb_graph_timing *timing, struct plumb_error *err);

/* For tests and reports: how often a step was recorded, and how many replays there were. */
int64_t plumb_graph_captures(const struct plumb_graph *graph);
int64_t plumb_graph_replays(const struct plumb_graph *graph);
/* Of the last recorded step: its kernels; those that may begin before their predecessor has ended. */
int64_t plumb_graph_launches(const struct plumb_graph *graph);
int64_t plumb_graph_overlaps(const struct plumb_graph *graph);

#ifdef __cplusplus
}
#endif
#endif
