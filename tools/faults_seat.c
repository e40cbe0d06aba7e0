/* SPDX-License-Identifier: MIT */
/* Kernels with a fault, in the seats of ops. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/faults_judge.h"

enum {
	LEAST_CASES = 60, /* of an op: three of each class */
	CLASS_CASES = 12,
	CALL_SECONDS = 20, /* of one call, which takes milliseconds: what takes longer hangs */
	RACE_SECONDS = 80,
	LONG_CALL_SECONDS = 240, /* of a prompt, on a busy machine */
	CHECK_SECONDS =
		900, /* of processor, of a whole check: not a hang, whose call ends by its own limit, but no verdict */
};

const struct fault_check faults_checks[SEAT_CHECKS] = {
	{.name = "test, first cases", .part = 16},
	{.name = "replay"},
	{.name = "test", .part = 1},
	{.name = "test, offsets",
		.class = "offsets",
		.ops = " embed ple_embed attn_qk_rope attn_decode qsa_project qsa_score "},
	{.name = "golden f32", .golden = "tiny", .more = "--policy f32"},
	{.name = "golden bf16", .golden = "tiny", .more = "--policy bf16"},
	{.name = "golden nvfp4", .golden = "tiny-nvfp4", .more = ""},
	{.name = "golden fp8", .golden = "tiny-fp8", .more = ""},
	{.name = "race", .race = true, .part = 16},
};

/* ---- commands of the checks ---- */

static char *seats(uint64_t ops, const char *library)
{
	char *list = faults_format("%s", ""), *longer;
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		if (ops >> op & 1) {
			longer = faults_format("%s --op %s=%s", list, plumb_ops[op].name, library);
			free(list);
			list = longer;
		}
	return list;
}

/* The cases that ship of these ops; "" when there is none. */
static char *cases_of(const struct fault_judge *j, uint64_t ops)
{
	char *list = faults_format("%s", ""), *longer;
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		if (ops >> op & 1) {
			char *command = faults_format("%s/golden/cases/%s", j->build->source, plumb_ops[op].name);
			static const char *const endings[] = {".h5", "_bf16.h5", "_fp8.h5", "_nvfp4.h5"};
			for (size_t e = 0; e < sizeof endings / sizeof endings[0]; e++) {
				char *path = faults_format("%s%s", command, endings[e]);
				if (access(path, R_OK) == 0) {
					longer = faults_format("%s %s", list, path);
					free(list);
					list = longer;
				}
				free(path);
			}
			free(command);
		}
	return list;
}

/* Those of the ops that the check is about. */
static char *names_of(const struct fault_check *c, uint64_t ops)
{
	char *list = faults_format("%s", ""), *longer;
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		char *word = faults_format(" %s ", plumb_ops[op].name);
		if (ops >> op & 1 && strstr(c->ops, word)) {
			longer = faults_format("%s %s", list, plumb_ops[op].name);
			free(list);
			list = longer;
		}
		free(word);
	}
	return list;
}

char *faults_seat_command(
	const struct fault_judge *j, const struct fault_check *c, uint64_t ops, const char *library, int64_t each, int jobs)
{
	const char *source = j->build->source, *device = j->build->cuda ? " --device cuda" : "";
	const char *environment = c->race ? "PLUMB_SEAT=race " : "";
	char *seat = seats(ops, library), *command = NULL, *list;
	char *beside =
		faults_format("%.*s/plumb", (int)(strrchr(library, '/') ? strrchr(library, '/') - library : 0), library);
	const char *program = access(beside, X_OK) == 0 ? beside : "tools/plumb";

	if (c->race && j->build->cuda) {
		command = NULL;
	} else if (c->class) {
		list = names_of(c, ops);
		if (list[0])
			command = faults_format("%s test%s --class %s --cases %d --seed %lld --fail-fast --jobs 1%s",
				program, list, c->class, CLASS_CASES, (long long)j->options.seed, device);
		free(list);
	} else if (c->part) {
		const int64_t ops_of = __builtin_popcountll(ops), least = ops_of * LEAST_CASES / c->part;
		/* so many for a fault of one op; the ops of a file share them, but each has its few */
		int64_t cases = each ? each * ops_of : (j->options.cases + c->part - 1) / c->part;
		cases = !each && cases < least ? least : cases;
		command = faults_format(
			"%stools/plumb test%s --cases %lld --seed %lld --exact --fail-fast --jobs %d --timeout %d%s",
			environment, seat, (long long)cases, (long long)j->options.seed, jobs,
			c->race ? RACE_SECONDS : CALL_SECONDS, device);
	} else if (c->golden) {
		command = faults_format(
			"tools/plumb check %s/golden/%s/%s.h5 --checkpoint %s/golden/%s/checkpoint --mode twin --digest "
			"--view local --once --quiet %s --timeout %d%s%s",
			source, c->golden, c->golden, source, c->golden, c->more, LONG_CALL_SECONDS, seat, device);
	} else {
		list = cases_of(j, ops);
		if (list[0])
			command = faults_format(
				"tools/plumb replay%s --exact --timeout %d%s%s", list, CALL_SECONDS, seat, device);
		free(list);
	}
	free(beside);
	free(seat);
	return command;
}

/* What killed the fault, with the unmutated kernels: of `plumb test` the one case. To be freed. */
static char *confirming_command(const struct fault_judge *j, const struct fault_check *c, uint64_t ops, const char *line)
{
	char *control = faults_format("%s/control/control.so", j->build->scratch), *command;
	const char *name = strncmp(line, "FAIL  ", 6) == 0 && strstr(line, " seed=") ? line + 6 : NULL;

	if (c->class && name)
		command = faults_format("tools/plumb test --case '%s'", name);
	else if (c->part && name)
		command = faults_format("%stools/plumb test --case '%s' --op %.*s=%s --exact --timeout %d",
			c->race ? "PLUMB_SEAT=race " : "", name, (int)strcspn(name, " "), name, control,
			c->race ? RACE_SECONDS : CALL_SECONDS);
	else
		command = faults_seat_command(j, c, ops, control, 0, 1);
	free(control);
	return command;
}

/* ---- seats ---- */

/* Whether this check kills it. */
static bool seat_kills(
	struct fault_judge *j, int check, uint64_t ops, const char *library, const char *folder, struct fault *f)
{
	const struct fault_check *c = &faults_checks[check];
	const struct fault_control *control = &j->seat[check];
	char *command = faults_seat_command(j, c, ops, library, 0, j->jobs), *log = faults_format("%s/check.log", folder),
	     *again;
	struct fault_run run, control_run;
	bool killed = false;

	if (command) {
		faults_run(j->build->folder, command, CHECK_SECONDS, log, &run);
		f->seconds += run.seconds;
		f->checks++;
		const bool endless = run.status == -2 || run.processor >= CHECK_SECONDS;
		bool other = c->golden && strcmp(run.digest, control->digest) != 0;
		killed = run.status != 0 || other;
		if (killed && endless) {
			f->outcome = FAULT_ERROR;
			snprintf(f->text, sizeof f->text, "%s: no verdict after %.0f s of processor", c->name,
				run.processor);
			killed = false;
		} else if (run.status == PLUMB_BAD_INPUT || run.status == PLUMB_NO_DEVICE || run.status == 126 ||
			   run.status == 127) {
			/* the command's own words, not a verdict on the kernel */
			f->outcome = FAULT_ERROR;
			snprintf(f->text, sizeof f->text, "%s: exit status %d: %.300s", c->name, run.status, run.line);
			killed = false;
		} else if (killed) {
			f->outcome = FAULT_KILLED;
			snprintf(f->check, sizeof f->check, "%s", c->name);
			if (run.status == 0)
				snprintf(f->text, sizeof f->text, "digest %s, expected %s", run.digest, control->digest);
			else
				faults_say(f, &run, folder);
			again = confirming_command(j, c, ops, run.line);
			faults_run(j->build->folder, again, CHECK_SECONDS, log, &control_run);
			if (control_run.status != 0 || (c->golden && strcmp(control_run.digest, control->digest) != 0)) {
				f->outcome = FAULT_ERROR;
				snprintf(f->text, sizeof f->text, "a false alarm: the unmutated kernels fail too: %.300s",
					control_run.line);
				killed = false;
			}
			free(again);
		}
	}
	free(command);
	free(log);
	return killed;
}

/* Compile what the fault touches in one unit. Returns the number of objects that differ from the control's; -1: a compiler
 * refuses, or no control. */
static int compile_unit(struct fault_judge *j, const struct fault_target *t, struct fault *f, const char *folder,
	const char *overlay, char **objects)
{
	const struct fault_object *list[MAX_SWAPS];
	int n = faults_unit_objects(j, t, f, list), differ = 0;
	char text[300];

	*objects = faults_format("%s", "");
	for (int i = 0; i < n; i++) {
		char *to = faults_object_path(folder, list[i]), *controls = faults_format("%s/control", j->build->scratch);
		char *control = faults_object_path(controls, list[i]), *longer;
		int status =
			access(to, R_OK) == 0 /* of another unit too */
				? PLUMB_OK
				: faults_compile(j->build, list[i], faults_level(list[i]), overlay, to, text, sizeof text);
		if (status != PLUMB_OK) {
			f->outcome = f->mutant ? FAULT_STILLBORN : FAULT_ERROR;
			snprintf(f->text, sizeof f->text, "does not compile: %s", text);
			differ = -1;
		} else if (!faults_same_file(to, control)) {
			longer = faults_format("%s %s", *objects, to);
			free(*objects);
			*objects = longer;
			differ++;
		}
		free(controls);
		free(control);
		free(to);
		if (differ < 0)
			break;
	}
	return differ;
}

/* The program itself with the fault, beside the shared object. */
static bool link_plumb(const struct fault_judge *j, const struct fault_object *const *list, int n, const char *folder)
{
	struct fault_swap swap[MAX_SWAPS];
	char *program = faults_format("%s/plumb", folder), text[300];

	for (int i = 0; i < n; i++)
		swap[i] = (struct fault_swap){list[i], faults_object_path(folder, list[i])};
	bool good = faults_link_program(j->build, "tools/plumb", swap, n, program, text, sizeof text) == PLUMB_OK;
	for (int i = 0; i < n; i++)
		free((char *)(uintptr_t)swap[i].by);
	free(program);
	return good;
}

/* A unit whose objects differ from the control's, or all such units together. */
struct touched {
	uint64_t ops;
	const struct fault_object *list[MAX_SWAPS];
	int n;
	char *objects; /* those that differ, for the linker */
};

/* An object of opt/ may be of several units. */
static void touched_add(struct touched *all, const struct touched *one)
{
	for (const char *at = one->objects + strspn(one->objects, " "); *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");
		char *word = faults_format(" %.*s ", (int)n, at), *padded = faults_format("%s ", all->objects);
		if (!strstr(padded, word)) {
			char *longer = faults_format("%s %.*s", all->objects, (int)n, at);
			free(all->objects);
			all->objects = longer;
		}
		free(padded);
		free(word);
		at += n;
	}
	all->ops |= one->ops;
	for (int i = 0; i < one->n && all->n < MAX_SWAPS; i++) {
		int at = 0;
		while (at < all->n && all->list[at] != one->list[i])
			at++;
		all->list[at] = one->list[i];
		all->n += at == all->n;
	}
}

/* The checks of a unit, until one of them kills; the race check first where the fault is of its kind. Not those on golden files. */
static void check_unit(
	struct fault_judge *j, const struct touched *t, struct fault *f, const char *folder, const char *library)
{
	f->outcome = FAULT_SURVIVED;
	for (int pass = 0; pass < 2; pass++)
		for (int c = 0; c < SEAT_CHECKS; c++) {
			const struct fault_check *k = &faults_checks[c];
			if (k->golden || k->race != (pass == 0) || (k->race && !f->race))
				continue;
			if (k->class && !link_plumb(j, t->list, t->n, folder)) {
				f->outcome = FAULT_ERROR;
				snprintf(f->text, sizeof f->text, "the program does not link");
				return;
			}
			if (seat_kills(j, c, t->ops, library, folder, f) || f->outcome == FAULT_ERROR)
				return;
		}
}

/* What no unit's checks have found: a look at optimised object code, then the golden files, with all units in their seats at once, as
 * they would be in a program. */
static void check_golden(struct fault_judge *j, const struct touched *all, struct fault *f, const char *folder,
	const char *overlay, const char *library)
{
	if (faults_is_identical(j, all->list, all->n, folder, overlay)) {
		f->outcome = FAULT_IDENTICAL;
		return;
	}
	if (faults_link_seat(j->build, all->objects, library, f->text, sizeof f->text) != PLUMB_OK) {
		f->outcome = FAULT_ERROR;
		return;
	}
	for (int c = 0; c < SEAT_CHECKS; c++)
		if (faults_checks[c].golden &&
			(seat_kills(j, c, all->ops, library, folder, f) || f->outcome == FAULT_ERROR))
			return;
}

void faults_judge_seat(struct fault_judge *j, struct fault *f, const char *folder)
{
	char *overlay = faults_format("%s/overlay", folder), *library = faults_format("%s/fault.so", folder);
	struct touched all = {.objects = faults_format("%s", "")};
	int touched = 0;

	f->outcome = FAULT_ERROR;
	if (!faults_write_overlay(j, f, overlay, f->text, sizeof f->text))
		goto out;
	f->outcome = FAULT_IDENTICAL;
	for (size_t i = 0; i < j->targets->count && (f->outcome == FAULT_IDENTICAL || f->outcome == FAULT_SURVIVED); i++) {
		const struct fault_target *t = &j->targets->target[i];
		if (!t->ops || (f->op != PLUMB_OP_COUNT && !(t->ops >> f->op & 1)) || !faults_unit_has(j, t, f))
			continue;
		struct touched one = {.ops = f->op == PLUMB_OP_COUNT ? t->ops : (uint64_t)1 << f->op};
		touched++;
		one.n = faults_unit_objects(j, t, f, one.list);
		int n = compile_unit(j, t, f, folder, overlay, &one.objects);
		if (n > 0 && faults_link_seat(j->build, one.objects, library, f->text, sizeof f->text) != PLUMB_OK)
			f->outcome = f->mutant ? FAULT_STILLBORN : FAULT_ERROR;
		else if (n > 0)
			check_unit(j, &one, f, folder, library);
		if (n > 0)
			touched_add(&all, &one);
		free(one.objects);
	}
	if (!touched) {
		f->outcome = FAULT_ERROR;
		snprintf(f->text, sizeof f->text, "no kernel file that targets.json gives ops%s%s is compiled from %s",
			f->op == PLUMB_OP_COUNT ? "" : " like ", f->op == PLUMB_OP_COUNT ? "" : plumb_ops[f->op].name,
			f->file);
	} else if (f->outcome == FAULT_SURVIVED) {
		check_golden(j, &all, f, folder, overlay, library);
	}
out:
	free(all.objects);
	free(overlay);
	free(library);
}
