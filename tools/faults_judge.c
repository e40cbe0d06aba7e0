/* SPDX-License-Identifier: MIT */
/* What is done to a fault: compile, link, and the checks in turn until one fails.
 *
 * A fault in a kernel (or in opt/) goes into a shared object of kernels (tests/faults/seat.c) and is judged by what judges
 * anybody's kernel: `plumb test`, `plumb replay`, `plumb check`. One in other code goes into the programs of the tests that
 * targets.json names for its file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json.h"
#include "tools/faults.h"
#include "tools/output.h"

enum { MAX_CHECKS = 16, MAX_SWAPS = 128, OPS = PLUMB_OP_COUNT, RACE_SLOWER = 4 };

/* A check of kernels in their seats. */
struct seat_check {
	const char *name;
	bool race;                 /* the seats run under the race check */
	int part;                  /* of `plumb test`: 1 in that many of the cases; 0: another command */
	const char *golden, *more; /* of `plumb check`: name of the folder, options. The digest has to be the twin's */
};

static const struct seat_check seat_checks[] = {
	{.name = "test, first cases", .part = 8},
	{.name = "replay"},
	{.name = "test", .part = 1},
	{.name = "golden f32", .golden = "tiny", .more = "--policy f32"},
	{.name = "golden bf16", .golden = "tiny", .more = "--policy bf16"},
	{.name = "golden nvfp4", .golden = "tiny-nvfp4", .more = ""},
	{.name = "golden fp8", .golden = "tiny-fp8", .more = ""},
	{.name = "race", .race = true, .part = 8},
};
enum { SEAT_CHECKS = sizeof seat_checks / sizeof seat_checks[0] };

/* What the unmutated files gave. In memory that all processes share. */
struct control {
	double processor; /* seconds */
	char digest[64];
	int failed;
	char line[400];
};

struct fault_judge {
	const struct fault_build *build;
	const struct fault_targets *targets;
	struct fault_options options;
	struct control *seat;  /* (SEAT_CHECKS) shared */
	struct control **host; /* (targets)(tests of it) shared */
	struct control *shared;
	size_t shared_count;
	bool has_test; /* this plumb has the command `test` */
};

/* ---- paths ---- */

static void make_folders(const char *path)
{
	char *copy = faults_format("%s", path);
	for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		mkdir(copy, 0777);
		*slash = '/';
	}
	free(copy);
}

/* Kernels are compiled fast, not to be fast: they run on small shapes. The race check sees every access, and without
 * optimisation that is every local variable too. */
static const char *level_of(const struct fault_object *o)
{
	return strstr(o->name, ".simt.cpp") ? "-O0" : "-O1";
}

/* The scratch file of an object: its name with '/' as '+'. */
static char *object_path(const char *folder, const struct fault_object *o)
{
	char *path = faults_format("%s/%s", folder, o->name);
	for (char *p = path + strlen(folder) + 1; *p; p++)
		*p = *p == '/' ? '+' : *p;
	return path;
}

static bool same_file(const char *a, const char *b)
{
	char *x = NULL, *y = NULL;
	size_t n, m;
	bool same = plumb_file_read(a, 1 << 28, &x, &n, NULL) == PLUMB_OK &&
	            plumb_file_read(b, 1 << 28, &y, &m, NULL) == PLUMB_OK && n == m && memcmp(x, y, n) == 0;
	free(x);
	free(y);
	return same;
}

/* ---- which objects, which ops ---- */

static bool is_library(const struct fault_object *o)
{
	return strncmp(o->name, "CMakeFiles/plumbline.dir/", 25) == 0;
}

static bool is_host_fault(const struct fault_judge *j, const struct fault *f)
{
	const struct fault_target *t = faults_target(j->targets, f->file);
	return t && t->tests && (f->mutant || f->op == PLUMB_OP_COUNT);
}

/* Units of kernels that a fault is in: targets with ops whose file, or opt file of the same name, is or reads its file. */
static bool unit_has(const struct fault_judge *j, const struct fault_target *t, const struct fault *f)
{
	const struct fault_object *o = faults_kernel_object(j->build, t->unit, false);
	char *host = faults_format("opt/%s.c", t->unit);
	bool has = o && (strcmp(t->file, f->file) == 0 || faults_object_reads(j->build, o, f->file));

	for (size_t i = 0; i < j->build->objects && !has; i++)
		has = is_library(&j->build->object[i]) && faults_object_reads(j->build, &j->build->object[i], host) &&
		      faults_object_reads(j->build, &j->build->object[i], f->file);
	free(host);
	return has;
}

/* The objects of a unit that are to be compiled anew. */
static int unit_objects(const struct fault_judge *j, const struct fault_target *t, const struct fault *f,
	const struct fault_object *out[MAX_SWAPS])
{
	const struct fault_object *kernel = faults_kernel_object(j->build, t->unit, false),
				  *race = f && f->race && !j->build->cuda ? faults_kernel_object(j->build, t->unit, true)
	                                                                  : NULL;
	int n = 0;

	if (kernel && (!f || strcmp(t->file, f->file) == 0 || faults_object_reads(j->build, kernel, f->file))) {
		out[n++] = kernel;
		if (race)
			out[n++] = race;
	}
	for (size_t i = 0; f && i < j->build->objects && n < MAX_SWAPS; i++) {
		const struct fault_object *o = &j->build->object[i];
		if (is_library(o) && strstr(o->name, ".dir/opt/") && faults_object_reads(j->build, o, f->file))
			out[n++] = o;
	}
	return n;
}

/* ---- commands of the checks ---- */

static char *seats(uint64_t ops, const char *library)
{
	char *list = faults_format("%s", ""), *longer;
	for (int op = 0; op < OPS; op++)
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
	for (int op = 0; op < OPS; op++)
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

static char *names_of(uint64_t ops)
{
	char *list = faults_format("%s", ""), *longer;
	for (int op = 0; op < OPS; op++)
		if (ops >> op & 1) {
			longer = faults_format("%s %s", list, plumb_ops[op].name);
			free(list);
			list = longer;
		}
	return list;
}

/* NULL: this check has nothing for these ops, or this build has no such check. */
static char *seat_command(const struct fault_judge *j, const struct seat_check *c, uint64_t ops, const char *library)
{
	const char *source = j->build->source, *device = j->build->cuda ? " --device cuda" : "";
	const char *environment = c->race ? "PLUMB_SEAT=race " : "";
	char *seat = seats(ops, library), *command = NULL, *list;
	const long long timeout = 60 * RACE_SLOWER; /* of a call, on a busy machine; what spins ends before: limit_of */

	if (c->race && j->build->cuda) {
		command = NULL;
	} else if (c->part && j->has_test) {
		int64_t cases = (j->options.cases + c->part - 1) / c->part;
		list = names_of(ops);
		command = faults_format("%stools/plumb test%s%s --cases %lld --seed %lld --exact --timeout %lld%s",
			environment, list, seat, (long long)cases, (long long)j->options.seed, timeout, device);
		free(list);
	} else if (c->race) {
		command = faults_format(
			"%stools/plumb check %s/golden/tiny/tiny.h5 --checkpoint %s/golden/tiny/checkpoint --mode twin "
			"--view local --once --quiet --timeout %lld%s%s",
			environment, source, source, timeout, seat, device);
	} else if (c->golden) {
		command = faults_format(
			"tools/plumb check %s/golden/%s/%s.h5 --checkpoint %s/golden/%s/checkpoint --mode twin --digest "
			"--view local --once --quiet %s --timeout %lld%s%s",
			source, c->golden, c->golden, source, c->golden, c->more, timeout, seat, device);
	} else if (!c->part) {
		list = cases_of(j, ops);
		if (list[0])
			command = faults_format(
				"tools/plumb replay%s --exact --timeout %lld%s%s", list, timeout, seat, device);
		free(list);
	}
	free(seat);
	return command;
}

static double limit_of(const struct fault_judge *j, const struct control *c)
{
	return 5.0 * c->processor + (double)j->options.timeout;
}

/* ---- seats ---- */

/* What a check said, without the path of the scratch folder. */
static void say(struct fault *f, const char *line, const char *folder)
{
	const size_t n = strlen(folder);
	char *to = f->text, *end = f->text + sizeof f->text - 1;

	while (*line && to < end)
		if (strncmp(line, folder, n) == 0 && line[n] == '/')
			line += n + 1;
		else
			*to++ = *line++;
	*to = '\0';
}

/* Whether this check kills it. */
static bool seat_kills(
	struct fault_judge *j, int check, uint64_t ops, const char *library, const char *folder, struct fault *f)
{
	const struct seat_check *c = &seat_checks[check];
	const struct control *control = &j->seat[check];
	char *command = seat_command(j, c, ops, library), *log = faults_format("%s/check.log", folder);
	struct fault_run run;
	bool killed = false;

	if (command) {
		faults_run(j->build->folder, command, limit_of(j, control), log, &run);
		f->seconds += run.seconds;
		f->checks++;
		bool other = c->golden && strcmp(run.digest, control->digest) != 0;
		killed = run.status != 0 || other;
		if (run.status == PLUMB_BAD_INPUT || run.status == PLUMB_NO_DEVICE || run.status >= 126) {
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
				say(f, run.line, folder);
		}
	}
	free(command);
	free(log);
	return killed;
}

static bool write_overlay(const struct fault_judge *j, const struct fault *f, const char *overlay, char *text, size_t size)
{
	struct plumb_error err = {""};
	size_t n = 0;
	char *applied = faults_applied(j->build->source, f, &n, &err), *path = faults_format("%s/%s", overlay, f->file);
	FILE *to = NULL;
	bool good = applied != NULL;

	if (good) {
		make_folders(path);
		to = fopen(path, "wb");
		good = to && fwrite(applied, 1, n, to) == n;
		good = to && fclose(to) == 0 && good;
		if (!good)
			plumb_fail(&err, PLUMB_BAD_INPUT, "%s: %s", path, strerror(errno));
	}
	if (!good)
		snprintf(text, size, "%.300s", err.text);
	free(applied);
	free(path);
	return good;
}

/* Compile what the fault touches in one unit. Returns the number of objects that differ from the control's; -1: a compiler
 * refuses, or no control. */
static int compile_unit(struct fault_judge *j, const struct fault_target *t, struct fault *f, const char *folder,
	const char *overlay, char **objects)
{
	const struct fault_object *list[MAX_SWAPS];
	int n = unit_objects(j, t, f, list), differ = 0;
	char text[300];

	*objects = faults_format("%s", "");
	for (int i = 0; i < n; i++) {
		char *to = object_path(folder, list[i]), *controls = faults_format("%s/control", j->build->scratch);
		char *control = object_path(controls, list[i]), *longer;
		int status = faults_compile(j->build, list[i], level_of(list[i]), overlay, to, text, sizeof text);
		if (status != PLUMB_OK) {
			f->outcome = f->mutant ? FAULT_STILLBORN : FAULT_ERROR;
			snprintf(f->text, sizeof f->text, "does not compile: %s", text);
			differ = -1;
		} else if (!same_file(to, control)) {
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

/* Whether an optimising compiler makes of these objects what it makes of the unmutated ones: then there is nothing to find. */
static bool is_identical(
	const struct fault_judge *j, const struct fault_object *const *list, int n, const char *folder, const char *overlay)
{
	char *mine = faults_format("%s/optimised", folder), *controls = faults_format("%s/optimised", j->build->scratch),
	     text[300];
	bool same = n > 0;

	mkdir(mine, 0777);
	mkdir(controls, 0777);
	for (int i = 0; i < n && same; i++) {
		char *to = object_path(mine, list[i]), *like = object_path(controls, list[i]);
		if (access(like, R_OK) != 0) /* another worker may do the same: a file appears whole */
			same = faults_compile(j->build, list[i], "-O2", NULL, to, text, sizeof text) == PLUMB_OK &&
			       !rename(to, like);
		same = same && faults_compile(j->build, list[i], "-O2", overlay, to, text, sizeof text) == PLUMB_OK &&
		       same_file(to, like);
		free(to);
		free(like);
	}
	free(mine);
	free(controls);
	return same;
}

static bool is_seat_identical(const struct fault_judge *j, const struct fault *f, const char *folder, const char *overlay)
{
	const struct fault_object *list[MAX_SWAPS];

	for (size_t i = 0; i < j->targets->count; i++) {
		const struct fault_target *t = &j->targets->target[i];
		if (t->ops && unit_has(j, t, f) && !is_identical(j, list, unit_objects(j, t, f, list), folder, overlay))
			return false;
	}
	return true;
}

static void judge_seat(struct fault_judge *j, struct fault *f, const char *folder)
{
	char *overlay = faults_format("%s/overlay", folder), *library = faults_format("%s/fault.so", folder);
	bool killed = false;
	int touched = 0, differ = 0;

	if (!write_overlay(j, f, overlay, f->text, sizeof f->text)) {
		f->outcome = FAULT_ERROR;
		goto out;
	}
	for (size_t i = 0; i < j->targets->count && !killed; i++) {
		const struct fault_target *t = &j->targets->target[i];
		char *objects;
		uint64_t ops = f->op == PLUMB_OP_COUNT ? t->ops : t->ops & (uint64_t)1 << f->op;
		if (!ops || !unit_has(j, t, f))
			continue;
		touched++;
		int n = compile_unit(j, t, f, folder, overlay, &objects);
		differ += n > 0 ? n : 0;
		if (n > 0 && faults_link_seat(j->build, objects, library, f->text, sizeof f->text) != PLUMB_OK) {
			f->outcome = f->mutant ? FAULT_STILLBORN : FAULT_ERROR;
			n = -1;
		}
		free(objects);
		if (n < 0)
			goto out;
		for (int pass = 0; pass < 2 && n > 0 && !killed; pass++) /* what needs the race check begins with it */
			for (int c = 0; c < SEAT_CHECKS && !killed && f->outcome != FAULT_ERROR; c++)
				if (seat_checks[c].race == (pass == 0) && (!seat_checks[c].race || f->race))
					killed = seat_kills(j, c, ops, library, folder, f);
		if (f->outcome == FAULT_ERROR)
			goto out;
	}
	if (killed)
		goto out;
	if (!touched) {
		f->outcome = FAULT_ERROR;
		snprintf(f->text, sizeof f->text, "no kernel file that targets.json gives ops%s%s is compiled from %s",
			f->op == PLUMB_OP_COUNT ? "" : " like ", f->op == PLUMB_OP_COUNT ? "" : plumb_ops[f->op].name,
			f->file);
	} else {
		f->outcome = differ && !is_seat_identical(j, f, folder, overlay) ? FAULT_SURVIVED : FAULT_IDENTICAL;
	}
out:
	free(overlay);
	free(library);
}

/* ---- tests ---- */

/* "PLUMB_BOUND_SEEDS=40 test_bound": the program is the last word, what stands before it its environment. */
static const char *program_of(const char *test)
{
	const char *space = strrchr(test, ' ');
	return space ? space + 1 : test;
}

/* Objects of a test program (own) or of the library (not own) that are compiled from the file, but no kernels. */
static int host_objects(const struct fault_judge *j, const char *test, const char *file, bool own,
	const struct fault_object *out[MAX_SWAPS])
{
	char *folder = faults_format("tests/CMakeFiles/%s.dir/", program_of(test));
	int n = 0;

	for (size_t i = 0; i < j->build->objects && n < MAX_SWAPS; i++) {
		const struct fault_object *o = &j->build->object[i];
		bool mine = strncmp(o->name, folder, strlen(folder)) == 0;
		if (mine != own || (!own && !is_library(o)) || strstr(o->name, "/kernels/"))
			continue;
		if (faults_object_reads(j->build, o, file))
			out[n++] = o;
	}
	free(folder);
	return n;
}

/* Compile (if not yet there) and link a test with the objects of file replaced. Returns how many differ from the control's; -1:
 * a compiler refuses. control: these are the control's. */
static int build_test(struct fault_judge *j, const char *test, const char *file, bool library, const char *folder,
	const char *overlay, const char *program, bool control, char *text, size_t size)
{
	const struct fault_object *list[MAX_SWAPS];
	struct fault_swap swap[MAX_SWAPS];
	int n = host_objects(j, test, file, true, list), differ = 0, swaps = 0;
	char *controls = faults_format("%s/control", j->build->scratch),
	     *path = faults_format("tests/%s", program_of(test));

	if (library)
		n += host_objects(j, test, file, false, list + n);
	for (int i = 0; i < n && differ >= 0; i++) {
		char *to = object_path(folder, list[i]), *like = object_path(controls, list[i]);
		if (access(to, R_OK) != 0 &&
			faults_compile(j->build, list[i], level_of(list[i]), overlay, to, text, size) != PLUMB_OK)
			differ = -1;
		else if (control || !same_file(to, like)) {
			differ++;
			swap[swaps++] = (struct fault_swap){list[i], to};
			to = NULL;
		}
		free(to);
		free(like);
	}
	if (differ > 0 && faults_link_program(j->build, path, swap, swaps, program, text, size) != PLUMB_OK)
		differ = -1;
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
	char *command = faults_format("TMPDIR=%s %.*s %s", scratch, (int)(program_of(test) - test), test, program);

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
	return is_identical(j, list, n, folder, overlay);
}

static void judge_host(struct fault_judge *j, struct fault *f, const char *folder)
{
	const struct fault_target *t = faults_target(j->targets, f->file);
	const size_t index = (size_t)(t - j->targets->target);
	char *overlay = faults_format("%s/overlay", folder), *program = faults_format("%s/program", folder);
	int differ = 0;
	struct fault_run run;

	if (!write_overlay(j, f, overlay, f->text, sizeof f->text)) {
		f->outcome = FAULT_ERROR;
		goto out;
	}
	for (int pass = 0; pass < 2; pass++) /* first what the tests themselves are compiled from: quick, of headers */
		for (int i = 0; i < t->tests; i++) {
			const struct fault_object *own[MAX_SWAPS];
			if (pass == 0 && !host_objects(j, t->test[i], f->file, true, own))
				continue;
			int n = build_test(j, t->test[i], f->file, pass == 1, folder, overlay, program, false, f->text,
				sizeof f->text);
			if (n < 0) {
				f->outcome = f->mutant ? FAULT_STILLBORN : FAULT_ERROR;
				goto out;
			}
			differ += n;
			if (n == 0)
				continue;
			run_test(j, t->test[i], program, limit_of(j, &j->host[index][i]), folder, &run);
			f->seconds += run.seconds;
			f->checks++;
			if (run.status >= 126 || run.status == 77) {
				f->outcome = FAULT_ERROR;
				snprintf(f->text, sizeof f->text, "%s: exit status %d: %.300s", t->test[i], run.status,
					run.line);
				goto out;
			}
			if (run.status != 0) {
				f->outcome = FAULT_KILLED;
				snprintf(f->check, sizeof f->check, "%s", t->test[i]);
				say(f, run.line, folder);
				goto out;
			}
		}
	f->outcome = differ && !is_host_identical(j, t, folder, overlay) ? FAULT_SURVIVED : FAULT_IDENTICAL;
	f->text[0] = '\0';
out:
	free(overlay);
	free(program);
}

/* ---- controls ---- */

int faults_judge_open(const struct fault_build *b, const struct fault_targets *targets, const struct fault_options *options,
	struct fault_judge **out, struct plumb_error *err)
{
	struct fault_judge *j = faults_zero(1, sizeof *j);
	struct fault_run run;
	char *log = faults_format("%s/help.log", b->scratch), *controls = faults_format("%s/control", b->scratch);

	*out = j;
	*j = (struct fault_judge){.build = b, .targets = targets, .options = *options, .shared_count = SEAT_CHECKS};
	for (size_t i = 0; i < targets->count; i++)
		j->shared_count += (size_t)targets->target[i].tests;
	j->shared =
		mmap(NULL, j->shared_count * sizeof *j->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	j->host = faults_zero(targets->count, sizeof *j->host);
	if (j->shared == MAP_FAILED) {
		j->shared = NULL;
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu controls", j->shared_count);
	}
	j->seat = j->shared;
	for (size_t i = 0, at = SEAT_CHECKS; i < targets->count; at += (size_t)targets->target[i++].tests)
		j->host[i] = j->shared + at;
	mkdir(controls, 0777);
	faults_run(b->folder, "tools/plumb test --help", 20.0, log, &run);
	j->has_test = run.status == 0;
	free(controls);
	free(log);
	return PLUMB_OK;
}

void faults_judge_close(struct fault_judge *j)
{
	if (!j)
		return;
	if (j->shared)
		munmap(j->shared, j->shared_count * sizeof *j->shared);
	free(j->host);
	free(j);
}

/* One part of the controls: objects of a unit, a check of all seats, or a file with its tests. */
struct control_job {
	enum { CONTROL_UNIT, CONTROL_CHECK, CONTROL_HOST } what;
	const struct fault_target *target;
	int check;
};

static void fail_control(struct control *c, const char *what, const char *line)
{
	c->failed = 1;
	snprintf(c->line, sizeof c->line, "%.80s: %.300s", what, line);
}

static void control_host(struct fault_judge *j, const struct fault_target *t)
{
	char *folder = faults_format("%s/control", j->build->scratch), text[300] = "";
	const size_t index = (size_t)(t - j->targets->target);

	for (int i = 0; i < t->tests; i++) {
		struct control *c = &j->host[index][i];
		char *program = faults_format("%s/program-%zu", folder, index),
		     *mine = faults_format("%s/host-%zu", folder, index);
		struct fault_run run;
		mkdir(mine, 0777);
		int n = build_test(j, t->test[i], t->file, true, folder, NULL, program, true, text, sizeof text);
		if (n <= 0) {
			fail_control(c, t->test[i], n ? text : "is not compiled from the file, nor is the library");
		} else {
			run_test(j, t->test[i], program, 600.0, mine, &run);
			c->processor = run.processor;
			if (run.status != 0)
				fail_control(c, t->test[i], run.line);
		}
		unlink(program);
		free(program);
		free(mine);
	}
	free(folder);
}

/* The control objects of the units, compiled before. race: those too. */
static char *control_objects(struct fault_judge *j, uint64_t units, bool race)
{
	char *list = faults_format("%s", ""), *longer, *folder = faults_format("%s/control", j->build->scratch);
	for (size_t i = 0; i < j->targets->count; i++)
		for (int r = 0; r < 1 + race && units >> i & 1; r++) {
			const struct fault_object *o = faults_kernel_object(j->build, j->targets->target[i].unit, r);
			char *path = o ? object_path(folder, o) : NULL;
			if (path && access(path, R_OK) == 0) {
				longer = faults_format("%s %s", list, path);
				free(list);
				list = longer;
			}
			free(path);
		}
	free(folder);
	return list;
}

/* Whether the digest is that of the same run without seats. */
static bool is_twins(struct fault_judge *j, const struct seat_check *check, const struct control *c, const char *log)
{
	char *command = seat_command(j, check, 0, "");
	struct fault_run run;

	faults_run(j->build->folder, command, 600.0, log, &run);
	free(command);
	return run.status == 0 && run.digest[0] && strcmp(run.digest, c->digest) == 0;
}

static void control_check(struct fault_judge *j, int check, uint64_t ops)
{
	char *folder = faults_format("%s/control", j->build->scratch), *library = faults_format("%s/control.so", folder);
	char *log = faults_format("%s/check-%d.log", folder, check);
	char *command = seat_command(j, &seat_checks[check], ops, library);
	struct control *c = &j->seat[check];
	struct fault_run run;

	if (command) {
		faults_run(j->build->folder, command, 1200.0, log, &run);
		c->processor = run.processor;
		snprintf(c->digest, sizeof c->digest, "%s", run.digest);
		if (run.status != 0)
			fail_control(c, seat_checks[check].name, run.line);
		else if (seat_checks[check].golden && !is_twins(j, &seat_checks[check], c, log))
			fail_control(c, seat_checks[check].name, "its digest is not the twin's");
	}
	free(command);
	free(log);
	free(library);
	free(folder);
}

/* Compile an object of the control. */
static bool control_object(struct fault_judge *j, const struct fault_object *o, char *text, size_t size)
{
	char *folder = faults_format("%s/control", j->build->scratch), *to = object_path(folder, o);
	bool good = access(to, R_OK) == 0 || faults_compile(j->build, o, level_of(o), NULL, to, text, size) == PLUMB_OK;

	free(folder);
	free(to);
	return good;
}

struct fault_pool {
	int jobs, running;
};

/* Wait until fewer than `most` children run. */
static void pool_wait(struct fault_pool *p, int most)
{
	while (p->running > most && wait(NULL) > 0)
		p->running--;
}

static bool pool_fork(struct fault_pool *p)
{
	pool_wait(p, p->jobs - 1);
	fflush(NULL);
	pid_t pid = fork();
	p->running += pid > 0;
	return pid == 0;
}

int faults_judge_controls(
	struct fault_judge *j, struct fault *const *fault, size_t count, int jobs, struct plumb_error *err)
{
	struct fault_pool pool = {jobs, 0};
	const struct fault_object **object = faults_zero(j->build->objects + 1, sizeof(void *));
	bool *host = faults_zero(j->targets->count + 1, sizeof *host);
	size_t objects = 0;
	uint64_t ops = 0, units = 0;
	bool race = false;
	char text[300] = "", *list, *library;
	int status = PLUMB_OK;

	for (size_t k = 0; k < count; k++) {
		if (is_host_fault(j, fault[k])) {
			host[faults_target(j->targets, fault[k]->file) - j->targets->target] = true;
			continue;
		}
		race |= fault[k]->race;
		for (size_t i = 0; i < j->targets->count; i++) {
			const struct fault_target *t = &j->targets->target[i];
			const struct fault_object *mine[MAX_SWAPS];
			uint64_t of = fault[k]->op == PLUMB_OP_COUNT ? t->ops : t->ops & (uint64_t)1 << fault[k]->op;
			if (!of || !unit_has(j, t, fault[k]))
				continue;
			ops |= of;
			units |= (uint64_t)1 << i;
			int n = unit_objects(j, t, fault[k], mine);
			for (int m = 0; m < n; m++) {
				size_t at = 0;
				while (at < objects && object[at] != mine[m])
					at++;
				object[at] = mine[m];
				objects += at == objects;
			}
		}
	}
	for (size_t i = 0; i < objects; i++)
		if (pool_fork(&pool))
			_exit(!control_object(j, object[i], text, sizeof text));
	for (size_t i = 0; i < j->targets->count; i++)
		if (host[i] && pool_fork(&pool)) {
			control_host(j, &j->targets->target[i]);
			_exit(0);
		}
	pool_wait(&pool, 0);
	for (size_t i = 0; i < objects && status == PLUMB_OK; i++)
		if (!control_object(j, object[i], text, sizeof text))
			status = plumb_fail(
				err, PLUMB_MISMATCH, "control: %s does not compile: %.300s", object[i]->name, text);
	list = control_objects(j, units, race);
	library = faults_format("%s/control/control.so", j->build->scratch);
	if (status == PLUMB_OK && ops && faults_link_seat(j->build, list, library, text, sizeof text) != PLUMB_OK)
		status = plumb_fail(err, PLUMB_MISMATCH, "control: the kernels do not link: %.300s", text);
	for (int c = 0; c < SEAT_CHECKS && status == PLUMB_OK && ops; c++)
		if ((!seat_checks[c].race || race) && pool_fork(&pool)) {
			control_check(j, c, ops);
			_exit(0);
		}
	pool_wait(&pool, 0);
	for (size_t i = 0; i < j->shared_count && status == PLUMB_OK; i++)
		if (j->shared[i].failed)
			status = plumb_fail(err, PLUMB_MISMATCH,
				"the unmutated control fails, so nothing is scored: %.500s", j->shared[i].line);
	free(list);
	free(library);
	free(object);
	free(host);
	return status;
}

/* ---- one ---- */

void faults_judge_one(struct fault_judge *j, struct fault *f, int worker)
{
	char *folder = faults_format("%s/%d", j->build->scratch, worker);
	char *remove = faults_format("rm -rf '%s'", folder);

	mkdir(folder, 0777);
	if (f->lane_why && !j->build->cuda) {
		f->outcome = FAULT_ELSEWHERE;
		snprintf(f->text, sizeof f->text, "%s", f->lane_why);
	} else if (f->mutant && f->equivalent) {
		f->outcome = FAULT_EQUIVALENT;
	} else if (is_host_fault(j, f)) {
		judge_host(j, f, folder);
	} else {
		judge_seat(j, f, folder);
	}
	if (f->equivalent && f->outcome == FAULT_KILLED)
		f->outcome = FAULT_NOT_EQUIVALENT;
	if (f->equivalent && (f->outcome == FAULT_SURVIVED || f->outcome == FAULT_IDENTICAL))
		f->outcome = FAULT_EQUIVALENT;
	if (!j->options.keep && system(remove) != 0)
		fprintf(stderr, "plumb faults: %s is left behind\n", folder);
	free(remove);
	free(folder);
}
