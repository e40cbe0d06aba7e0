/* SPDX-License-Identifier: MIT */
#include "opt/graph.h"

#include <stdlib.h>

#include "opt/device_private.h"
#include "opt/mirror.h"

/* What crosses between host and device in a replay. */
struct cells {
	int32_t token, position, next;
};

struct plumb_graph {
	struct plumb_decoder *decoder;
	struct plumb_device *device;
	struct cells *pinned;
	void *exec;
	uint64_t generation; /* of the device, when exec was recorded, or when the last step ran without one */
	bool warm;           /* a step has run in that generation: all memory exists */
	int32_t logits_at;   /* position after the last resident step: the device has its logits */
	int64_t captures, replays;
	int64_t launches; /* kernels of exec */
	int64_t overlaps;
	int fusions;
};

static bool is_resident(const struct plumb_graph *g)
{
	return g->device->own_memory && g->device->poison == PLUMB_POISON_OFF && !plumb_decoder_is_watched(g->decoder);
}

int plumb_graph_create(
	struct plumb_decoder *decoder, struct plumb_device *device, struct plumb_graph **out, struct plumb_error *err)
{
	const struct plumb_config *cfg = plumb_decoder_env(decoder)->cfg;
	struct plumb_graph *g;

	for (int l = 0; l <= cfg->layers; l++)
		for (int op = 0; op < PLUMB_OP_COUNT; op++) {
			const struct plumb_binding *b = plumb_decoder_binding(decoder, l, (enum plumb_op)op);
			if (b->device != device || b->set != plumb_device_set(device))
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"%s of row %d of the plan is not bound to the opt set on "
					"%s: a graph needs the whole plan there",
					plumb_ops[op].name, l, plumb_device_name(device));
		}
	g = calloc(1, sizeof *g);
	if (!g)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a graph");
	g->decoder = decoder;
	g->device = device;
	g->logits_at = -1;
	g->fusions = PLUMB_FUSE_ALL;
	if (device->backend->pinned_take) {
		g->pinned = device->backend->pinned_take(device, sizeof *g->pinned, err);
		if (!g->pinned) {
			free(g);
			return PLUMB_BAD_INPUT;
		}
	}
	*out = g;
	return PLUMB_OK;
}

static void drop(struct plumb_graph *g)
{
	if (g->exec)
		g->device->backend->graph_free(g->exec);
	g->exec = NULL;
	g->warm = false;
}

void plumb_graph_destroy(struct plumb_graph *g)
{
	if (!g)
		return;
	(void)plumb_device_sync(g->device, NULL);
	drop(g);
	if (g->pinned)
		g->device->backend->pinned_give(g->pinned);
	if (g->device->own_memory)
		plumb_mirror_release(g->device);
	free(g);
}

int plumb_graph_fuse(struct plumb_graph *g, const char *fusions, struct plumb_error *err)
{
	int chosen = 0, status = plumb_fuse_parse(fusions, &chosen, err);

	if (status != PLUMB_OK)
		return status;
	g->fusions = chosen;
	drop(g);
	return PLUMB_OK;
}

/* A step's calls, neighbours fused. */
static int step_calls(struct plumb_graph *g, int32_t token, struct plumb_error *err)
{
	const struct plumb_env env = {.device = g->device, .err = err};
	int status;

	plumb_fuse_begin(g->device, g->fusions);
	status = plumb_decoder_step(g->decoder, &token, 1, err);
	return plumb_fuse_end(&env, status);
}

/* Device address of a decoder's buffer, which a step has used. */
static void *place(struct plumb_graph *g, const void *host, void **writable, const char *what, struct plumb_error *err)
{
	void *device = plumb_mirror_find(g->device, host, writable);
	if (!device)
		plumb_fail(err, PLUMB_BAD_INPUT, "the %s on %s: no step has run there", what, plumb_device_name(g->device));
	return device;
}

/* Kernels one by one; their memory stays on the device. */
static int step_eagerly(struct plumb_graph *g, int32_t token, struct plumb_error *err)
{
	void *host = NULL, *next;
	int status;

	plumb_mirror_host_wrote(g->device, plumb_decoder_token_cell(g->decoder));
	plumb_mirror_host_wrote(g->device, plumb_decoder_position_cell(g->decoder));
	status = step_calls(g, token, err);
	if (status == PLUMB_OK)
		status = plumb_device_sync(g->device, err);
	if (status != PLUMB_OK)
		return status;
	next = place(g, plumb_decoder_tokens(g->decoder), &host, "next token", err);
	if (!next)
		return PLUMB_BAD_INPUT;
	status = g->device->backend->download(g->device, host, next, sizeof(int32_t), err);
	g->warm = true;
	g->generation = g->device->generation;
	return status;
}

/* Record a step; the host's position moves on as in a step that runs. */
static int capture(struct plumb_graph *g, int32_t token, struct plumb_error *err)
{
	const struct plumb_backend *backend = g->device->backend;
	void *to_token = place(g, plumb_decoder_token_cell(g->decoder), NULL, "token", err);
	void *to_position = place(g, plumb_decoder_position_cell(g->decoder), NULL, "position", err);
	void *next = place(g, plumb_decoder_tokens(g->decoder), NULL, "next token", err);
	int status;

	if (!to_token || !to_position || !next)
		return PLUMB_BAD_INPUT;
	status = backend->capture_begin(g->device, err);
	if (status != PLUMB_OK)
		return status;
	status = backend->upload(g->device, to_token, &g->pinned->token, sizeof g->pinned->token, err);
	if (status == PLUMB_OK)
		status = backend->upload(g->device, to_position, &g->pinned->position, sizeof g->pinned->position, err);
	if (status == PLUMB_OK)
		status = step_calls(g, token, err);
	if (status == PLUMB_OK)
		status = backend->download(g->device, &g->pinned->next, next, sizeof g->pinned->next, err);
	if (status != PLUMB_OK) {
		backend->capture_drop(g->device);
		return status;
	}
	status = backend->capture_end(g->device, &g->exec, err);
	g->generation = g->device->generation;
	g->launches = g->device->recorded;
	g->overlaps = g->device->overlaps;
	g->captures++;
	return status;
}

static int step_recorded(struct plumb_graph *g, int32_t token, struct plumb_error *err)
{
	const int32_t position = *plumb_decoder_position_cell(g->decoder);
	void *host = NULL;
	int status = PLUMB_OK;

	if (!plumb_mirror_is_owner(g->device))
		status = plumb_mirror_upload_state(g->device, position, err);
	if (status == PLUMB_OK)
		status = g->exec ? plumb_decoder_advance(g->decoder, token, err) : capture(g, token, err);
	if (status != PLUMB_OK)
		return status;
	g->pinned->token = token;
	g->pinned->position = position;
	status = g->device->backend->graph_launch(g->device, g->exec, err);
	g->replays++;
	if (status == PLUMB_OK) {
		plumb_mirror_find(g->device, plumb_decoder_tokens(g->decoder), &host);
		*(int32_t *)host = g->pinned->next;
	}
	return status;
}

int plumb_graph_step(struct plumb_graph *g, int32_t token, int32_t *next, struct plumb_error *err)
{
	struct plumb_device *d = g->device;
	int status;

	if (!is_resident(g)) {
		/* a copied call takes the state back by itself */
		g->logits_at = -1;
		status = plumb_decoder_step(g->decoder, &token, 1, err);
	} else {
		status = plumb_mirror_resident_begin(d, plumb_decoder_position_cell(g->decoder), err);
		if (status != PLUMB_OK)
			return status;
		if (g->generation != d->generation)
			drop(g);
		status = d->backend->capture_begin && g->warm ? step_recorded(g, token, err) : step_eagerly(g, token, err);
		if (status == PLUMB_OK) {
			g->logits_at = *plumb_decoder_position_cell(g->decoder);
			plumb_mirror_owns(d, g->logits_at);
		}
		plumb_mirror_resident_end(d);
	}
	if (status == PLUMB_OK)
		*next = plumb_decoder_tokens(g->decoder)[0];
	return status;
}

/* ---- timing ---- */

static int run_chosen(void *self, const struct plumb_call *call)
{
	struct plumb_graph_timing *t = self;

	if (!t->op[call->op])
		return PLUMB_OK;
	t->calls++;
	return call->binding->set->op[call->op](call->env, call->args);
}

/* Record the chosen calls; the position is moved back after each pass. */
static int capture_chosen(struct plumb_graph *g, struct plumb_graph_timing *t, void **exec, struct plumb_error *err)
{
	const struct plumb_backend *backend = g->device->backend;
	const struct plumb_runner runner = {run_chosen, t};
	const int32_t position = *plumb_decoder_position_cell(g->decoder);
	const int32_t token = *plumb_decoder_token_cell(g->decoder);
	int status = backend->capture_begin(g->device, err);

	if (status != PLUMB_OK)
		return status;
	plumb_decoder_run_through(g->decoder, &runner);
	for (int i = 0; i < t->passes && status == PLUMB_OK; i++) {
		status = plumb_decoder_step(g->decoder, &token, 1, err);
		if (status == PLUMB_OK)
			status = plumb_decoder_resume(g->decoder, position, err);
	}
	plumb_decoder_run_through(g->decoder, NULL);
	if (status != PLUMB_OK) {
		(void)plumb_decoder_resume(g->decoder, position, NULL);
		backend->capture_drop(g->device);
		return status;
	}
	return backend->capture_end(g->device, exec, err);
}

/* Resident: what the calls find on the device belongs to the next position. */
static int time_resident(struct plumb_graph *g, struct plumb_graph_timing *t, struct plumb_error *err)
{
	const struct plumb_backend *backend = g->device->backend;
	const int32_t *cell = plumb_decoder_position_cell(g->decoder);
	void *position = place(g, cell, NULL, "position", err), *exec = g->exec;
	int status = position ? PLUMB_OK : PLUMB_BAD_INPUT;

	t->calls = 0;
	t->launches = g->launches;
	if (status == PLUMB_OK)
		status = backend->upload(g->device, position, cell, sizeof *cell, err);
	if (status == PLUMB_OK && t->op) {
		exec = NULL;
		status = capture_chosen(g, t, &exec, err);
		t->launches = g->device->recorded;
	}
	if (status == PLUMB_OK && t->op && t->launches == 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "no chosen op runs in a step: there is nothing to time");
	if (status == PLUMB_OK) {
		g->pinned->token = *plumb_decoder_token_cell(g->decoder);
		g->pinned->position = *cell;
		status = backend->graph_time(g->device, exec, t->repeat, t->microseconds, err);
	}
	if (t->op && exec)
		backend->graph_free(exec);
	return status;
}

int plumb_graph_time(struct plumb_graph *g, struct plumb_graph_timing *t, struct plumb_error *err)
{
	int status;

	if (!is_resident(g) || !g->device->backend->graph_time)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"a step of this decoder on %s is not recorded: there is nothing to time",
			plumb_device_name(g->device));
	if (!g->exec || g->generation != g->device->generation || !plumb_mirror_is_owner(g->device))
		return plumb_fail(err, PLUMB_BAD_INPUT, "no step is recorded: two have to run before one is timed");
	status = plumb_mirror_resident_begin(g->device, plumb_decoder_position_cell(g->decoder), err);
	if (status != PLUMB_OK)
		return status;
	status = time_resident(g, t, err);
	plumb_mirror_resident_end(g->device);
	(void)plumb_decoder_resume(g->decoder, *plumb_decoder_position_cell(g->decoder), NULL); /* no logits */
	g->logits_at = -1;
	return status;
}

int plumb_graph_logits(struct plumb_graph *g, const float **logits, struct plumb_error *err)
{
	const struct plumb_config *cfg = plumb_decoder_env(g->decoder)->cfg;
	int status = PLUMB_OK;

	if (plumb_decoder_rows(g->decoder) < 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "no step has run: there are no logits");
	if (g->logits_at == *plumb_decoder_position_cell(g->decoder)) {
		void *host = NULL, *device = place(g, plumb_decoder_logits(g->decoder), &host, "logits", err);
		if (!device)
			return PLUMB_BAD_INPUT;
		status = g->device->backend->download(g->device, host, device, (size_t)cfg->vocab * sizeof(float), err);
	}
	*logits = plumb_decoder_logits(g->decoder);
	return status;
}

int plumb_graph_download_state(struct plumb_graph *g, struct plumb_error *err)
{
	return g->device->own_memory ? plumb_mirror_hand_back(g->device, err) : PLUMB_OK;
}

int64_t plumb_graph_captures(const struct plumb_graph *g)
{
	return g->captures;
}

int64_t plumb_graph_replays(const struct plumb_graph *g)
{
	return g->replays;
}

int64_t plumb_graph_launches(const struct plumb_graph *g)
{
	return g->launches;
}

int64_t plumb_graph_overlaps(const struct plumb_graph *g)
{
	return g->overlaps;
}
