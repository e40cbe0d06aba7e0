/* SPDX-License-Identifier: MIT */
#include "tools/golden_maker.h"

#include <stdlib.h>
#include <string.h>

#include "tools/progress.h"

/* Rows of one pass over the prompt: the decoder's own, so that a make in pieces calls the ops as one in one go does. */
enum { BLOCK = 64 };

/* Saving takes at most this share of the time. */
#define SAVE_SHARE 0.05

struct maker {
	const struct golden_make *make;
	struct golden_part part;
	struct golden_point point;
	struct plumb_decoder *decoder;
	struct golden_recorder recorder;
	struct progress progress;
	int64_t steps, total; /* of all runs, for the progress line */
	double last_save, save_cost;
	struct plumb_error *err;
};

/* ---- points ---- */

static int save(struct maker *m, bool now)
{
	double start = progress_now(), wait = m->save_cost / SAVE_SHARE;
	int status;

	if (!now && start - m->last_save < (m->make->save_seconds > wait ? m->make->save_seconds : wait))
		return PLUMB_OK;
	m->point.position = m->decoder ? plumb_decoder_position(m->decoder) : 0;
	status = golden_part_save(&m->part, m->point, m->decoder, m->err);
	m->last_save = progress_now();
	m->save_cost = m->make->save_seconds > 0 ? m->last_save - start : 0.0;
	return status;
}

/* A state that its checksum vouches for may still be of a program that counted otherwise. */
static int check_point(const struct maker *m)
{
	const struct golden_point *p = &m->part.point;
	const struct golden_plan *plan = m->make->plan;
	int64_t T = plan->T, position = 0, most = 0;

	if (p->run == plan->runs && !p->saved)
		return PLUMB_OK;
	if (p->run >= 0 && p->run < plan->runs) {
		most = p->phase == GOLDEN_GREEDY ? plan->run[p->run].steps : T;
		position = p->phase == GOLDEN_GREEDY ? T + (p->done > 0 ? p->done - 1 : 0) : p->done;
		if (p->phase >= GOLDEN_PROMPT && p->phase <= GOLDEN_DECODE && p->done >= 0 && p->done <= most &&
			(p->saved ? p->position == position : p->done == 0 && p->phase == GOLDEN_PROMPT))
			return PLUMB_OK;
	}
	return plumb_fail(m->err, PLUMB_BAD_INPUT, "%s: no point of this make (run %d, phase %d, %lld done)", m->part.state,
		p->run, p->phase, (long long)p->done);
}

static int step(struct maker *m, const int32_t *token, int64_t n)
{
	int status = plumb_decoder_step(m->decoder, token, n, m->err);

	m->steps += n;
	progress_step(&m->progress, m->steps, m->total, "token");
	return status;
}

/* The device keeps copies of state that was changed behind its back. */
static int forget(struct maker *m)
{
	return m->make->session->device ? plumb_device_forget(m->make->session->device, m->err) : PLUMB_OK;
}

static int last_argmax(struct maker *m)
{
	m->point.next = plumb_decoder_tokens(m->decoder)[plumb_decoder_rows(m->decoder) - 1];
	return PLUMB_OK;
}

/* ---- phases ---- */

static int prompt(struct maker *m)
{
	const struct golden_plan *plan = m->make->plan;
	struct plumb_observer observer = golden_record_observer(&m->recorder);
	int status = PLUMB_OK;

	plumb_decoder_observe(m->decoder, &observer);
	while (m->point.done < plan->T && status == PLUMB_OK) {
		int64_t n = plan->T - m->point.done < BLOCK ? plan->T - m->point.done : BLOCK;
		status = step(m, plan->token + m->point.done, n);
		m->point.done += n;
		if (status == PLUMB_OK)
			status = last_argmax(m);
		if (status == PLUMB_OK)
			status = save(m, false);
	}
	plumb_decoder_observe(m->decoder, NULL);
	if (status == PLUMB_OK)
		status = golden_record_states(&m->recorder, m->decoder);
	return status;
}

/* The prompt's continuation, from where it ended; it does not stop at EOS. */
static int greedy(struct maker *m)
{
	const struct golden_tensor *t = golden_plan_find(m->recorder.run, "greedy");
	int64_t steps = m->recorder.run->steps;
	int status = PLUMB_OK;

	while (m->point.done < steps && status == PLUMB_OK) {
		int64_t next = m->point.next;
		if (next < 0)
			return plumb_fail(m->err, PLUMB_MISMATCH,
				"every logit after token %lld is NaN: no greedy continuation",
				(long long)(m->make->plan->T + m->point.done - 1));
		if (m->point.done > 0) { /* the token found last is fed before the next is found */
			status = step(m, &m->point.next, 1);
			if (status == PLUMB_OK)
				status = last_argmax(m);
			next = m->point.next;
		}
		if (status == PLUMB_OK && next >= 0)
			status = golden_part_write(
				&m->part, t->offset + m->point.done * t->value_bytes, &next, t->value_bytes, m->err);
		m->point.done += next >= 0;
		if (status == PLUMB_OK)
			status = save(m, false);
	}
	return status;
}

/* Cached decode: the prompt again, its last tokens one by one. */
static int decode(struct maker *m)
{
	const struct golden_plan *plan = m->make->plan;
	const struct golden_tensor *t = golden_plan_find(m->recorder.run, "decode_logits");
	int64_t prefill = m->recorder.run->prefill, V = plan->cfg->vocab;
	int status = PLUMB_OK;

	while (m->point.done < plan->T && status == PLUMB_OK) {
		int64_t left = prefill - m->point.done, n = left > BLOCK ? BLOCK : left > 0 ? left : 1;
		status = step(m, plan->token + m->point.done, n);
		if (status == PLUMB_OK && left <= 0)
			status = golden_part_write(&m->part, t->offset + (m->point.done - prefill) * V * t->value_bytes,
				plumb_decoder_logits(m->decoder), V * t->value_bytes, m->err);
		m->point.done += n;
		if (status == PLUMB_OK)
			status = save(m, false);
	}
	return status;
}

/* ---- runs ---- */

static void next_phase(struct maker *m, enum golden_phase phase)
{
	m->point.phase = phase;
	m->point.done = 0;
}

static int make_run(struct maker *m)
{
	const struct golden_make *make = m->make;
	const struct golden_run *run = &make->plan->run[m->point.run];
	struct plumb_decoder_options options = {
		.policy = run->policy,
		.ties = make->ties,
		.capacity = make->plan->T + run->steps,
		.page_seed = make->page_seed,
		.own_caches = make->formats.own_caches,
		.caches = make->formats.caches,
		.state = make->formats.state,
		.max_rows = BLOCK,
		.all_logits = true,
		.traces = true,
	};
	int status = plumb_decoder_create(make->session->model, &make->session->plan, &options, &m->decoder, m->err);

	m->recorder.run = run;
	if (status == PLUMB_OK) {
		plumb_decoder_run_through(m->decoder, session_runner(make->session));
		if (m->part.point.saved && m->part.point.run == m->point.run)
			status = golden_part_restore(&m->part, m->decoder, m->err);
	}
	if (status == PLUMB_OK)
		status = forget(m);
	if (status == PLUMB_OK && m->point.phase == GOLDEN_PROMPT) {
		status = prompt(m);
		next_phase(m, GOLDEN_GREEDY);
	}
	if (status == PLUMB_OK && m->point.phase == GOLDEN_GREEDY) {
		status = greedy(m);
		next_phase(m, GOLDEN_DECODE);
		if (status == PLUMB_OK && run->prefill >= 0) {
			plumb_decoder_reset(m->decoder);
			status = forget(m);
		}
	}
	if (status == PLUMB_OK && run->prefill >= 0)
		status = decode(m);
	plumb_decoder_destroy(m->decoder);
	m->decoder = NULL;
	if (status == PLUMB_OK)
		status = forget(m);
	next_phase(m, GOLDEN_PROMPT);
	m->point.run++;
	m->part.point.saved = 0;
	return status == PLUMB_OK ? save(m, true) : status;
}

/* Tokens that are fed in all, and those fed before the point. */
static void count_steps(struct maker *m)
{
	const struct golden_plan *plan = m->make->plan;

	for (int i = 0; i < plan->runs; i++) {
		const struct golden_run *run = &plan->run[i];
		int64_t all = plan->T + (run->steps > 0 ? run->steps - 1 : 0) + (run->prefill >= 0 ? plan->T : 0);
		m->total += all;
		if (i < m->point.run)
			m->steps += all;
		else if (i == m->point.run)
			m->steps += m->point.done + (m->point.phase > GOLDEN_PROMPT ? plan->T : 0);
	}
}

int golden_make(const struct golden_make *make, struct golden_made *made, struct plumb_error *err)
{
	struct maker m = {.make = make, .err = err};
	char fingerprint[65];
	int status = golden_part_open(make->out, golden_plan_fingerprint(make->plan, fingerprint), make->plan->bytes,
		make->resume, &m.part, &made->note, err);

	if (status == PLUMB_OK)
		status = check_point(&m);
	m.point = m.part.point;
	made->resumed = m.point.run > 0 || m.part.point.saved;
	m.recorder = (struct golden_recorder){.plan = make->plan, .part = &m.part, .err = err};
	progress_begin(&m.progress, make->progress, make->label);
	count_steps(&m);
	m.last_save = progress_now();
	while (status == PLUMB_OK && m.point.run < make->plan->runs)
		status = make_run(&m);
	progress_end(&m.progress);
	made->nan = m.recorder.nan;
	golden_record_free(&m.recorder);
	if (status == PLUMB_OK)
		status = golden_build(make, &m.part, made->sha256, err);
	if (status == PLUMB_OK)
		golden_part_remove(&m.part);
	else
		golden_part_close(&m.part);
	return status;
}
