/* SPDX-License-Identifier: MIT */
#include "tools/trial_judge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/plumb_kernel.h"
#include "opt/guard.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tools/inside.h"
#include "tools/judge.h"

/* The race check costs a factor of 10 to 50: one small case in RACE_SHARE. */
enum { RACE_SHARE = 8, RACE_WORK = 8000, REPEATS_ON_GPU = 3 };

/* ---- devices ---- */

static int opened(struct plumb_device **device, enum plumb_device_kind kind, struct plumb_device_options options,
	struct plumb_error *err)
{
	options.poison = PLUMB_POISON_NAN;
	options.traps = true;
	return *device ? PLUMB_OK : plumb_device_open(kind, &options, device, err);
}

/* The next case has other data, perhaps at the same address. */
static int forget(struct trial_devices *d, struct plumb_error *err)
{
	struct plumb_device *all[] = {d->natural, d->scheduled, d->own, d->race, d->cuda};
	int status = PLUMB_OK;
	for (size_t i = 0; i < sizeof all / sizeof all[0] && status == PLUMB_OK; i++)
		if (all[i])
			status = plumb_device_forget(all[i], err);
	return status;
}

void trial_devices_close(struct trial_devices *d)
{
	plumb_device_close(d->natural);
	plumb_device_close(d->scheduled);
	plumb_device_close(d->own);
	plumb_device_close(d->race);
	plumb_device_close(d->cuda);
	*d = (struct trial_devices){.natural = NULL};
}

/* ---- what is under way ---- */

static void mark(const struct trial *c, const struct trial_candidate *candidate, const char *who)
{
	struct plumb_user_mark *m = candidate->mark;

	snprintf(m->phase, sizeof m->phase, "run");
	snprintf(m->ops, sizeof m->ops, "%s", plumb_ops[c->op].name);
	snprintf(m->path, sizeof m->path, "%s", who);
	m->layer = -1;
	m->position = c->position;
	m->T = c->T;
	m->calls++;
	m->under_way = 1;
}

static void unmark(const struct trial_candidate *candidate)
{
	candidate->mark->under_way = 0;
	candidate->mark->path[0] = '\0'; /* what happens now is nobody else's fault */
	candidate->mark->ops[0] = '\0';
}

/* ---- how it went wrong ---- */

/* The first operand with elements beyond their bound, and which those are; -1: none. The result is in its place. */
static int first_beyond(struct trial *c, const struct plumb_call *call, const void *args, const struct trial_result *got,
	unsigned char **wrong)
{
	for (int i = 0; i < c->operands; i++) {
		const struct plumb_operand *o = c->operand[i].info;
		double *x = NULL;
		int64_t count = 0;
		size_t bytes;
		if (!got->bytes[i])
			continue;
		void *copy = judge_copy(call, o, &bytes);
		x = copy && bytes ? judge_values(call, o, copy, &count) : NULL;
		*wrong = x ? judge_beyond(call, args, i, count) : NULL;
		free(copy);
		free(x);
		if (*wrong)
			return i;
	}
	return -1;
}

/* What a result was held to: every bit; kinds of floats (number, NaN, Inf) and every integer; bounds of floats, and choices. */
enum rule { RULE_BITS, RULE_KINDS, RULE_BOUND };

/* What the wrong elements of the first wrong operand have in common. */
static void look_inside(struct trial *c, const struct trial_result *got, const struct trial_result *want, enum rule rule,
	struct trial_report *report)
{
	struct plumb_call call = trial_call(c);
	double *x = NULL, *y = NULL;
	unsigned char *wrong = NULL;
	struct inside inside;
	int64_t count = 0;
	size_t bytes;
	void *args = trial_take(plumb_ops[c->op].args_size), *copy;

	trial_restore(c, got);
	trial_arguments_before(c, args);
	/* other bits of a float are a fault only where bits were asked for: else what is beyond its bound counts, and choices */
	int at = rule == RULE_BOUND ? first_beyond(c, &call, args, got, &wrong) : -1;
	if (at < 0 && rule != RULE_BITS)
		at = trial_differs(c, got, want, true);
	if (at < 0 && rule != RULE_BOUND)
		at = trial_differs(c, got, want, false);
	if (at < 0) {
		free(args);
		return;
	}
	const struct plumb_operand *o = c->operand[at].info;
	copy = judge_copy(&call, o, &bytes);
	x = copy && bytes ? judge_values(&call, o, copy, &count) : NULL;
	free(copy);
	trial_restore(c, want);
	copy = judge_copy(&call, o, &bytes);
	y = copy && bytes ? judge_values(&call, o, copy, &count) : NULL;
	free(copy);
	if (x && y && count > 0) {
		inside_look(&call, o, x, NULL, y, wrong, count, &inside);
		snprintf(report->how, sizeof report->how, "%s", inside.text);
	}
	free(wrong);
	free(x);
	free(y);
	free(args);
}

/* ---- candidates ---- */

struct judged {
	struct trial *c;
	const struct trial_candidate *candidate;
	struct trial_result oracle, twin;
	struct plumb_bound_result bounds; /* of the case */
	struct trial_report *report;
};

/* The largest ratio that was measured. */
static double largest(const struct plumb_bound_result *bounds)
{
	double most = 0.0;
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		most = bounds->operand[i].max_ratio > most ? bounds->operand[i].max_ratio : most;
	return most;
}

/* One run of the opt set: every bit of the twin. */
static bool try_opt(struct judged *j, struct plumb_device *device, enum plumb_poison poison)
{
	struct trial_result result = {{NULL}};
	char what[256];

	snprintf(what, sizeof what, "opt on %.200s, poison %s", plumb_device_description(device),
		poison == PLUMB_POISON_LARGE ? "large" : "NaN");
	mark(j->c, j->candidate, what);
	bool ok = trial_run(j->c, what, plumb_device_set(device)->op[j->c->op], device, poison, &result, j->report->text);
	unmark(j->candidate);
	if (ok && !trial_same(j->c, &result, &j->twin, what, j->report->text)) {
		look_inside(j->c, &result, &j->twin, RULE_BITS, j->report);
		ok = false;
	}
	trial_result_free(&result);
	return ok;
}

static bool device_failed(struct judged *j, const struct plumb_error *err, int status)
{
	j->report->status = status;
	snprintf(j->report->text, sizeof j->report->text, "%.1000s", err->text);
	return false;
}

/* About the multiply-adds of a call. */
static int64_t work_of(const struct trial *c)
{
	int64_t work = 0;
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		work += o->absent ? 0 : o->weight ? c->T * o->weight[0].rows * o->weight[0].cols * o->matrices : o->count;
	}
	return work;
}

static bool try_opt_on_simt(struct judged *j, struct trial_devices *d)
{
	struct trial_random r = {j->c->seed};
	uint64_t schedule = trial_random_next(&r) >> 32 | 1;
	bool race = j->candidate->race || (trial_random_below(&r, RACE_SHARE) == 0 && work_of(j->c) < RACE_WORK);
	struct plumb_error err = {""};
	int status = opened(&d->natural, PLUMB_DEVICE_SIMT, (struct plumb_device_options){0}, &err);

	if (status == PLUMB_OK)
		status = opened(&d->scheduled, PLUMB_DEVICE_SIMT, (struct plumb_device_options){.seed = schedule}, &err);
	if (status == PLUMB_OK)
		status = opened(&d->own, PLUMB_DEVICE_SIMT,
			(struct plumb_device_options){.seed = schedule, .own_memory = true}, &err);
#ifdef PLUMB_RACE /* a build with sanitizers has none */
	if (status == PLUMB_OK)
		status = opened(
			&d->race, PLUMB_DEVICE_SIMT, (struct plumb_device_options){.seed = schedule, .race = true}, &err);
#endif
	if (status != PLUMB_OK)
		return device_failed(j, &err, status);
	plumb_device_reschedule(d->scheduled, schedule);
	plumb_device_reschedule(d->own, schedule + 2);
	if (d->race)
		plumb_device_reschedule(d->race, schedule);
	return try_opt(j, d->natural, PLUMB_POISON_NAN) && try_opt(j, d->scheduled, PLUMB_POISON_LARGE) &&
	       /* gigabytes of address space would become memory */
	       (j->c->with.far || try_opt(j, d->own, PLUMB_POISON_NAN)) &&
	       (!race || !d->race || try_opt(j, d->race, PLUMB_POISON_LARGE));
}

static bool try_opt_on_cuda(struct judged *j, struct trial_devices *d)
{
	bool ok = true;
	struct plumb_error err = {""};
	int status = opened(&d->cuda, PLUMB_DEVICE_CUDA, (struct plumb_device_options){.ordinal = j->candidate->gpu}, &err);

	if (status != PLUMB_OK)
		return device_failed(j, &err, status);
	for (int i = 0; ok && i < REPEATS_ON_GPU; i++)
		ok = try_opt(j, d->cuda, i % 2 ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN);
	j->report->sick = !ok && plumb_device_sync(d->cuda, &err) != PLUMB_OK;
	return ok;
}

/* A user's kernel in the seat of the op. */
struct seat {
	struct trial *c;
	struct plumb_runner runner;
	struct plumb_binding binding;
};

static int run_seat(void *self, const struct plumb_env *env, const void *args)
{
	struct seat *seat = self;
	struct plumb_call call = trial_call(seat->c);
	struct plumb_env mine = *env;

	mine.device = seat->binding.device;
	mine.call = &call;
	call.env = &mine;
	call.args = args;
	call.binding = &seat->binding;
	return seat->runner.run(seat->runner.self, &call);
}

static bool judge_user(struct judged *j, struct seat *seat, const char *what)
{
	struct trial_runner runner = {.what = what, .run = run_seat, .self = seat};
	struct trial_result result = {{NULL}};
	struct trial *c = j->c;
	const enum rule rule = j->candidate->exact ? RULE_BITS : c->class && c->class->bits ? RULE_KINDS : RULE_BOUND;
	bool ok;

	ok = trial_run_by(c, &runner, PLUMB_POISON_NAN, &result, j->report->text);
	for (int i = 0; ok && i < c->operands; i++) /* traces that it need not write */
		if (result.bytes[i] && plumb_user_hides(&seat->binding, c->operand[i].info->name))
			memcpy(result.bytes[i], j->twin.bytes[i], trial_memory_live(&c->operand[i].memory));
	if (ok && rule == RULE_BITS) {
		ok = trial_same(c, &result, &j->twin, what, j->report->text);
	} else if (ok && rule == RULE_KINDS) {
		ok = trial_same_kinds(c, &result, &j->twin, what, j->report->text);
	} else if (ok) {
		plumb_bound_begin(&j->bounds, c->op);
		c->bounds = &j->bounds;
		c->within = j->candidate->within > 0.0 ? j->candidate->within : 1.0;
		ok = trial_near(c, &j->oracle, &result, what, j->report->text);
		c->within = 1.0;
		j->report->ratio = largest(&j->bounds);
	}
	bool ran = false;
	for (int i = 0; i < c->operands; i++)
		ran = ran || result.bytes[i];
	if (!ok && ran)
		look_inside(c, &result, &j->twin, rule, j->report);
	trial_result_free(&result);
	return ok;
}

/* The same call with other values, at the same addresses of the guard, before the one that counts: results, launches or
 * copies of operands that a kernel keeps from one call to the next then show. */
static bool call_before(struct judged *j, const struct trial_spec *spec, const struct seat *seat)
{
	struct trial_runner runner = {.what = "a call before, with other values", .run = run_seat};
	struct trial_result result = {{NULL}};
	struct plumb_error err = {""};
	struct seat mine = *seat;
	struct trial *c = NULL;

	if (j->c->with.far) /* gigabytes of address space, twice */
		return true;
	int status = trial_spec_other(spec, &c, &err);
	if (status != PLUMB_OK)
		return device_failed(j, &err, status);
	mine.c = c;
	runner.self = &mine;
	bool ok = trial_run_by(c, &runner, PLUMB_POISON_NAN, &result, j->report->text);
	trial_result_free(&result);
	trial_free(c);
	return ok;
}

/* The device that the kernels of a shared object want, if any. One that is asked for has to be there all the same. */
static int device_of(const struct plumb_user *user, const struct trial_spec *spec, const struct trial_candidate *candidate,
	struct trial_devices *d, struct plumb_device **device, struct plumb_error *err)
{
	int status = PLUMB_OK;

	*device = NULL;
	if (spec->device == PLUMB_DEVICE_CUDA)
		status = opened(&d->cuda, PLUMB_DEVICE_CUDA, (struct plumb_device_options){.ordinal = candidate->gpu}, err);
	if (status != PLUMB_OK)
		return status;
	if (plumb_user_wants(user, PLUMB_KERNEL_CUDA)) {
		status = opened(&d->cuda, PLUMB_DEVICE_CUDA, (struct plumb_device_options){.ordinal = candidate->gpu}, err);
		*device = d->cuda;
	} else if (plumb_user_wants(user, PLUMB_KERNEL_SIMT)) {
		status = opened(&d->own, PLUMB_DEVICE_SIMT, (struct plumb_device_options){.own_memory = true}, err);
		*device = d->own;
	}
	return status;
}

static bool try_user(struct judged *j, const struct trial_spec *spec, struct trial_devices *d)
{
	const struct trial_candidate *candidate = j->candidate;
	struct seat seat = {.c = j->c};
	struct plumb_user *user = NULL;
	struct plumb_guard *guard = NULL;
	struct plumb_device *device = NULL;
	struct plumb_plan plan = {0};
	struct plumb_error err = {""};
	const char *op = plumb_ops[j->c->op].name;
	bool ok = false;

	int status = plumb_user_create(candidate->mark, &user, &err);
	if (status == PLUMB_OK)
		status = plumb_user_load(user, candidate->path, &err);
	if (status == PLUMB_OK)
		status = device_of(user, spec, candidate, d, &device, &err);
	if (status == PLUMB_OK)
		status = plumb_plan_create(&j->c->cfg, (struct plumb_binding){.set = &plumb_ref_twin}, &plan, &err);
	if (status == PLUMB_OK)
		status = plumb_user_bind(user, &plan, &j->c->cfg, candidate->path, op, 0, j->c->cfg.layers, device, &err);
	if (status == PLUMB_OK)
		status = plumb_user_whole(user, &plan, &err);
	if (status == PLUMB_OK)
		status = plumb_guard_create(&guard, &err);
	if (status == PLUMB_OK)
		plumb_guard_trap(guard, j->c->seed);
	if (status == PLUMB_OK && device)
		status = plumb_guard_watch(guard, device, &err);
	if (status != PLUMB_OK) {
		device_failed(j, &err, status);
	} else {
		struct plumb_call call = trial_call(j->c);
		seat.binding = plan.binding[(size_t)call.layer * PLUMB_OP_COUNT + call.op];
		seat.runner = plumb_user_runner(
			user, &(struct plumb_user_options){.guard = guard, .threads = candidate->threads});
		ok = call_before(j, spec, &seat) && judge_user(j, &seat, candidate->path);
		if (!ok && device && plumb_device_is_cuda(device))
			j->report->sick = plumb_device_sync(device, &err) != PLUMB_OK;
	}
	plumb_plan_free(&plan);
	plumb_user_destroy(user);
	plumb_guard_destroy(guard);
	unmark(candidate);
	return ok;
}

/* ---- the whole ---- */

/* Whether every number that is written is one number. */
static bool is_constant(const struct trial *c, const struct trial_result *r)
{
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		if (!r->bytes[i] || o->info->kind == PLUMB_KIND_I64)
			continue;
		size_t n = trial_memory_live(&o->memory), unit = 4;
		for (size_t at = unit; at + unit <= n; at += unit)
			if (memcmp(r->bytes[i], r->bytes[i] + at, unit) != 0)
				return false;
	}
	return true;
}

/* The twin: repeatable, and as near to the oracle as its order allows. */
static bool reference(struct judged *j)
{
	struct trial *c = j->c;
	struct trial_result again = {{NULL}};
	char *text = j->report->text;
	bool ok = trial_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_LARGE, &j->twin, text) &&
	          trial_run(c, "twin", plumb_ref_twin.op[c->op], NULL, PLUMB_POISON_NAN, &again, text) &&
	          trial_same(c, &again, &j->twin, "twin, other poison", text);

	trial_result_free(&again);
	if (ok && !(c->class && c->class->bits)) {
		plumb_bound_begin(&j->bounds, c->op);
		c->bounds = &j->bounds;
		ok = trial_run(c, "oracle", plumb_ref_oracle.op[c->op], NULL, PLUMB_POISON_LARGE, &j->oracle, text) &&
		     trial_near(c, &j->oracle, &j->twin, "twin against oracle", text);
		j->report->ratio = largest(&j->bounds);
	}
	j->report->reference = !ok;
	return ok;
}

void trial_judge(const struct trial_spec *spec, const struct trial_candidate *candidate, struct trial_devices *devices,
	struct plumb_bound_result *bounds, struct trial_report *report)
{
	struct judged j = {.candidate = candidate, .report = report};
	struct plumb_error err = {""};
	bool ok;

	report->status = trial_spec_make(spec, false, &j.c, &err);
	if (report->status != PLUMB_OK) {
		snprintf(report->text, sizeof report->text, "%.1000s", err.text);
		return;
	}
	report->inputs = trial_inputs(j.c);
	if (candidate->inputs)
		*candidate->inputs = report->inputs;
	trial_spec_full(j.c, report->full);
	ok = reference(&j);
	if (ok) {
		report->constant = is_constant(j.c, &j.twin);
		ok = candidate->path                     ? try_user(&j, spec, devices)
		     : spec->device == PLUMB_DEVICE_CUDA ? try_opt_on_cuda(&j, devices)
		                                         : try_opt_on_simt(&j, devices);
	}
	if (!ok && report->status == PLUMB_OK)
		report->status = PLUMB_MISMATCH;
	for (int i = 0; bounds && ok && i < j.c->operands; i++)
		plumb_bound_merge(&bounds->operand[i], &j.bounds.operand[i]);
	if (!report->sick && forget(devices, &err) != PLUMB_OK)
		report->sick = true;
	trial_result_free(&j.oracle);
	trial_result_free(&j.twin);
	trial_free(j.c);
}
