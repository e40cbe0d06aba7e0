/* SPDX-License-Identifier: MIT */
/* Other code with a fault, in the programs of its tests. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/faults_judge.h"

/* ---- tests ---- */

const char *faults_program_of(const char *test)
{
	const char *space = strrchr(test, ' ');
	return space ? space + 1 : test;
}

/* Objects of a test program (own) or of the library (not own) that are compiled from the file; kernels only where it is a
 * kernel file. */
static int host_objects(const struct fault_judge *j, const char *test, const char *file, bool own,
	const struct fault_object *out[MAX_SWAPS])
{
	char *folder = faults_format("tests/CMakeFiles/%s.dir/", faults_program_of(test));
	const bool kernels = strncmp(file, "kernels/", 8) == 0;
	int n = 0;

	for (size_t i = 0; i < j->build->objects && n < MAX_SWAPS; i++) {
		const struct fault_object *o = &j->build->object[i];
		bool mine = strncmp(o->name, folder, strlen(folder)) == 0;
		if (mine != own || (!own && !faults_is_library(o)) || (!kernels && strstr(o->name, "/kernels/")))
			continue;
		if (faults_object_reads(j->build, o, file))
			out[n++] = o;
	}
	free(folder);
	return n;
}

/* Compile (if not yet there) and link a test with the objects of file replaced. Returns how many differ from the control's; -1:
 * a compiler or the linker refuses; -2: the tree does not say how to link. */
static int build_test(struct fault_judge *j, const char *test, const char *file, bool library, const char *folder,
	const char *overlay, const char *program, char *text, size_t size)
{
	const struct fault_object *list[MAX_SWAPS];
	struct fault_swap swap[MAX_SWAPS];
	int n = host_objects(j, test, file, true, list), differ = 0, swaps = 0;
	char *controls = faults_format("%s/control", j->build->scratch),
	     *path = faults_format("tests/%s", faults_program_of(test));

	if (library)
		n += host_objects(j, test, file, false, list + n);
	for (int i = 0; i < n && differ >= 0; i++) {
		char *to = faults_object_path(folder, list[i]), *like = faults_object_path(controls, list[i]);
		if (access(to, R_OK) != 0 &&
			faults_compile(j->build, list[i], faults_level(list[i]), overlay, to, text, size) != PLUMB_OK)
			differ = -1;
		else if (!faults_same_file(to, like)) {
			differ++;
			swap[swaps++] = (struct fault_swap){list[i], to};
			to = NULL;
		}
		free(to);
		free(like);
	}
	int linked = differ > 0 ? faults_link_program(j->build, path, swap, swaps, program, text, size) : PLUMB_OK;
	if (linked != PLUMB_OK)
		differ = linked == PLUMB_BAD_INPUT ? -2 : -1;
	for (int i = 0; i < swaps; i++)
		free((char *)(uintptr_t)swap[i].by);
	free(controls);
	free(path);
	return differ;
}

static void run_test(struct fault_judge *j, const char *test, const char *program, double limit, const char *folder,
	struct fault_run *run)
{
	char *log = faults_format("%s/test.log", folder), *scratch = faults_format("%s/tmp", folder);
	char *command = faults_format("TMPDIR=%s %.*s %s", scratch, (int)(faults_program_of(test) - test), test, program);

	mkdir(scratch, 0777);
	faults_run(j->build->folder, command, limit, log, run);
	free(command);
	free(scratch);
	free(log);
}

static bool is_host_identical(
	const struct fault_judge *j, const struct fault_target *t, const char *folder, const char *overlay)
{
	const struct fault_object *list[2 * MAX_SWAPS];
	int n = host_objects(j, "", t->file, false, list);

	for (int i = 0; i < t->tests; i++)
		if (n <= MAX_SWAPS)
			n += host_objects(j, t->test[i], t->file, true, list + n);
	return faults_is_identical(j, list, n, folder, overlay);
}

void faults_judge_host(struct fault_judge *j, struct fault *f, const char *folder)
{
	const struct fault_target *t = faults_target(j->targets, f->file);
	const size_t index = (size_t)(t - j->targets->target);
	char *overlay = faults_format("%s/overlay", folder), *program = faults_format("%s/program", folder);
	int differ = 0;
	struct fault_run run;

	if (!faults_write_overlay(j, f, overlay, f->text, sizeof f->text)) {
		f->outcome = FAULT_ERROR;
		goto out;
	}
	for (int pass = 0; pass < 2; pass++) /* first what the tests themselves are compiled from: quick, of headers */
		for (int i = 0; i < t->tests; i++) {
			const struct fault_object *own[MAX_SWAPS];
			if (pass == 0 && !host_objects(j, t->test[i], f->file, true, own))
				continue;
			int n = build_test(
				j, t->test[i], f->file, pass == 1, folder, overlay, program, f->text, sizeof f->text);
			if (n < 0) {
				f->outcome = f->mutant && n == -1 ? FAULT_STILLBORN : FAULT_ERROR;
				goto out;
			}
			differ += n;
			if (n == 0)
				continue;
			run_test(j, t->test[i], program, faults_limit(j, &j->host[index][i]), folder, &run);
			f->seconds += run.seconds;
			f->checks++;
			if (run.status == 126 || run.status == 127 || run.status == 77) {
				f->outcome = FAULT_ERROR;
				snprintf(f->text, sizeof f->text, "%s: exit status %d: %.300s", t->test[i], run.status,
					run.line);
				goto out;
			}
			if (run.status != 0) {
				f->outcome = FAULT_KILLED;
				snprintf(f->check, sizeof f->check, "%s", t->test[i]);
				faults_say(f, &run, folder);
				goto out;
			}
		}
	f->outcome = differ && !is_host_identical(j, t, folder, overlay) ? FAULT_SURVIVED : FAULT_IDENTICAL;
	f->text[0] = '\0';
out:
	free(overlay);
	free(program);
}

int faults_host_objects(
	const struct fault_judge *j, const struct fault_target *t, int test, const struct fault_object *out[2 * MAX_SWAPS])
{
	int n = host_objects(j, t->test[test], t->file, true, out);
	return n + host_objects(j, t->test[test], t->file, false, out + n);
}

void faults_control_test(struct fault_judge *j, const bool *chosen, const char *test)
{
	static struct fault_swap swap[2 * MAX_SWAPS];
	const struct fault_object *list[2 * MAX_SWAPS];
	char *folder = faults_format("%s/control", j->build->scratch),
	     *mine = faults_format("%s/tests-%d", folder, (int)getpid()), *program = faults_format("%s/program", mine),
	     *path = faults_format("tests/%s", faults_program_of(test)), text[300] = "";
	struct fault_control result = {.processor = 0.0};
	struct fault_run run;
	int swaps = 0;

	mkdir(mine, 0777);
	for (size_t i = 0; i < j->targets->count; i++) {
		const struct fault_target *t = &j->targets->target[i];
		bool named = false;
		int n = 0;
		for (int k = 0; k < t->tests && !named; k++) {
			named = chosen[i] && strcmp(t->test[k], test) == 0;
			n = named ? faults_host_objects(j, t, k, list) : 0;
		}
		if (named && n == 0)
			faults_control_fail(
				&result, test, "neither it nor the library is compiled from a file that it is to judge");
		for (int k = 0; k < n; k++) {
			int at = 0;
			while (at < swaps && swap[at].object != list[k])
				at++;
			if (at == swaps && swaps < 2 * MAX_SWAPS)
				swap[swaps++] = (struct fault_swap){list[k], faults_object_path(folder, list[k])};
		}
	}
	if (!result.failed && faults_link_program(j->build, path, swap, swaps, program, text, sizeof text) != PLUMB_OK)
		faults_control_fail(&result, test, text);
	if (!result.failed) {
		run_test(j, test, program, 600.0, mine, &run);
		result.processor = run.processor;
		if (run.status != 0)
			faults_control_fail(&result, test, run.line);
	}
	for (size_t i = 0; i < j->targets->count; i++)
		for (int k = 0; k < j->targets->target[i].tests; k++)
			if (chosen[i] && strcmp(j->targets->target[i].test[k], test) == 0)
				j->host[i][k] = result;
	unlink(program);
	for (int i = 0; i < swaps; i++)
		free((char *)(uintptr_t)swap[i].by);
	free(program);
	free(path);
	free(mine);
	free(folder);
}
