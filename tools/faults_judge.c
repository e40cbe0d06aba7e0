/* SPDX-License-Identifier: MIT */
/* What is done to a fault: compile, link, and the checks in turn until one fails.
 *
 * A fault in a kernel (or in opt/) goes into a shared object of kernels (tests/faults/seat.c) and is judged by what judges
 * anybody's kernel: `plumb test`, `plumb replay`, `plumb check`. One in other code goes into the programs of the tests that
 * targets.json names for its file. This file has what both need, and the controls. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/json.h"
#include "tools/faults_judge.h"

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

/* A step beyond an array ends the program, as it does in a build with sanitizers. */
#define BOUNDS " -fsanitize=bounds -fsanitize-undefined-trap-on-error"

/* Kernels are compiled fast, not to be fast: they run on small shapes. The race check sees every access, and without
 * optimisation that is every local variable too. */
const char *faults_level(const struct fault_object *o)
{
	if (strstr(o->name, ".race.cpp") || strstr(o->name, ".cu.o"))
		return "-O1";
	return strstr(o->name, ".simt.cpp") ? "-O0" BOUNDS : "-O1" BOUNDS;
}

/* The scratch file of an object: its name with '/' as '+'. */
char *faults_object_path(const char *folder, const struct fault_object *o)
{
	char *path = faults_format("%s/%s", folder, o->name);
	for (char *p = path + strlen(folder) + 1; *p; p++)
		if (*p == '/')
			*p = '+';
	return path;
}

bool faults_same_file(const char *a, const char *b)
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

bool faults_is_library(const struct fault_object *o)
{
	return strncmp(o->name, "CMakeFiles/plumbline.dir/", 25) == 0;
}

static bool is_host_fault(const struct fault_judge *j, const struct fault *f)
{
	const struct fault_target *t = faults_target(j->targets, f->file);
	return t && t->tests && (f->tests || (!t->ops && (f->mutant || f->op == PLUMB_OP_COUNT)));
}

/* Whether what lives in the ops' seats goes into tests too: the seats do not run the other launches of its file. */
static bool has_tests_besides(const struct fault_judge *j, const struct fault *f)
{
	const struct fault_target *t = faults_target(j->targets, f->file);
	return t && t->tests && t->ops && !j->build->cuda;
}

/* Units of kernels that a fault is in: targets with ops whose file, or opt file of the same name, is or reads its file. */
bool faults_unit_has(const struct fault_judge *j, const struct fault_target *t, const struct fault *f)
{
	const struct fault_object *o = faults_kernel_object(j->build, t->unit, false);
	char *host = faults_format("opt/%s.c", t->unit);
	bool has = o && (strcmp(t->file, f->file) == 0 || faults_object_reads(j->build, o, f->file));

	for (size_t i = 0; i < j->build->objects && !has; i++)
		has = faults_is_library(&j->build->object[i]) &&
		      faults_object_reads(j->build, &j->build->object[i], host) &&
		      faults_object_reads(j->build, &j->build->object[i], f->file);
	free(host);
	return has;
}

/* The objects of a unit that are to be compiled anew. */
int faults_unit_objects(const struct fault_judge *j, const struct fault_target *t, const struct fault *f,
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
		if (faults_is_library(o) && strstr(o->name, ".dir/opt/") && faults_object_reads(j->build, o, f->file))
			out[n++] = o;
	}
	return n;
}

void faults_say(struct fault *f, const struct fault_run *run, const char *folder)
{
	const size_t n = strlen(folder);
	const char *line = run->line;
	char *to = f->text, *end = f->text + sizeof f->text - 1;

	while (*line && to < end)
		if (strncmp(line, folder, n) == 0 && line[n] == '/')
			line += n + 1;
		else
			*to++ = *line++;
	*to = '\0';
	if (run->trap[0] && !strstr(run->line, run->trap))
		snprintf(to, (size_t)(end - to) + 1, ": %s", run->trap);
}

bool faults_write_overlay(const struct fault_judge *j, const struct fault *f, const char *overlay, char *text, size_t size)
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

/* Whether an optimising compiler makes of these objects what it makes of the unmutated ones: then there is nothing to find. */
bool faults_is_identical(
	const struct fault_judge *j, const struct fault_object *const *list, int n, const char *folder, const char *overlay)
{
	char *mine = faults_format("%s/optimised", folder), *controls = faults_format("%s/optimised", j->build->scratch),
	     text[300];
	bool same = n > 0;

	mkdir(mine, 0777);
	mkdir(controls, 0777);
	for (int i = 0; i < n && same; i++) {
		char *to = faults_object_path(mine, list[i]), *like = faults_object_path(controls, list[i]);
		if (access(like, R_OK) != 0) /* another worker may do the same: a file appears whole */
			same = faults_compile(j->build, list[i], "-O2", NULL, to, text, sizeof text) == PLUMB_OK &&
			       !rename(to, like);
		same = same && faults_compile(j->build, list[i], "-O2", overlay, to, text, sizeof text) == PLUMB_OK &&
		       faults_same_file(to, like);
		free(to);
		free(like);
	}
	free(mine);
	free(controls);
	return same;
}

double faults_limit(const struct fault_judge *j, const struct fault_control *c)
{
	return 10.0 * c->processor + (double)j->options.timeout;
}

void faults_control_fail(struct fault_control *c, const char *what, const char *line)
{
	c->failed = 1;
	snprintf(c->line, sizeof c->line, "%.80s: %.300s", what, line);
}

/* ---- controls ---- */

int faults_judge_open(const struct fault_build *b, const struct fault_targets *targets, const struct fault_options *options,
	struct fault_judge **out, struct plumb_error *err)
{
	struct fault_judge *j = faults_zero(1, sizeof *j);
	char *controls = faults_format("%s/control", b->scratch);

	*out = j;
	*j = (struct fault_judge){
		.build = b, .targets = targets, .options = *options, .jobs = 1, .shared_count = SEAT_CHECKS};
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
	free(controls);
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

/* The control objects of the units, compiled before. race: those too. */
static char *control_objects(struct fault_judge *j, uint64_t units, bool race)
{
	char *list = faults_format("%s", ""), *longer, *folder = faults_format("%s/control", j->build->scratch);
	for (size_t i = 0; i < j->targets->count; i++)
		for (int r = 0; r < 1 + race && units >> i & 1; r++) {
			const struct fault_object *o = faults_kernel_object(j->build, j->targets->target[i].unit, r);
			char *path = o ? faults_object_path(folder, o) : NULL;
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

/* Checks whose controls are one: the same few cases of `plumb test`. */
static bool is_same_control(const struct fault_check *a, const struct fault_check *b)
{
	return a->part && b->part && a->race == b->race;
}

/* The control of a check, and of those that share it. Every kill is confirmed with the unmutated kernels (tools/faults_seat.c), so a few
 * cases of each op do here; of `plumb check` the digest without seats, which is the twin's. jobs: cases at a time. */
static void control_check(struct fault_judge *j, int check, uint64_t ops, int jobs)
{
	enum { EACH = 8, EACH_RACE = 2 };
	char *folder = faults_format("%s/control", j->build->scratch), *library = faults_format("%s/control.so", folder);
	char *log = faults_format("%s/check-%d.log", folder, check);
	const struct fault_check *k = &faults_checks[check];
	char *command = faults_seat_command(j, k, k->golden ? 0 : ops, library, k->race ? EACH_RACE : EACH, jobs);
	struct fault_control *c = &j->seat[check];
	struct fault_run run;

	if (command) {
		faults_run(j->build->folder, command, 1200.0, log, &run);
		snprintf(c->digest, sizeof c->digest, "%s", run.digest);
		if (run.status != 0)
			faults_control_fail(c, k->name, run.line);
		else if (k->golden && !run.digest[0])
			faults_control_fail(c, k->name, "printed no digest");
	}
	for (int other = 0; other < SEAT_CHECKS; other++)
		if (is_same_control(&faults_checks[other], k))
			j->seat[other] = *c;
	free(command);
	free(log);
	free(library);
	free(folder);
}

/* Compile an object of the control. */
static bool control_object(struct fault_judge *j, const struct fault_object *o, char *text, size_t size)
{
	char *folder = faults_format("%s/control", j->build->scratch), *to = faults_object_path(folder, o);
	bool good = access(to, R_OK) == 0 || faults_compile(j->build, o, faults_level(o), NULL, to, text, size) == PLUMB_OK;

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

/* What the chosen faults need of the controls. */
struct needs {
	const struct fault_object **object; /* to compile */
	size_t objects;
	bool *host;          /* (targets) judged by its tests */
	uint64_t ops, units; /* of kernels: bit an op, bit a target */
	bool race;
};

static void need_objects(struct needs *need, const struct fault_object *const *list, int n)
{
	for (int i = 0; i < n; i++) {
		size_t at = 0;
		while (at < need->objects && need->object[at] != list[i])
			at++;
		need->object[at] = list[i];
		need->objects += at == need->objects;
	}
}

static void find_needs(const struct fault_judge *j, struct fault *const *fault, size_t count, struct needs *need)
{
	const struct fault_object *mine[2 * MAX_SWAPS];

	for (size_t k = 0; k < count; k++) {
		if (is_host_fault(j, fault[k])) {
			need->host[faults_target(j->targets, fault[k]->file) - j->targets->target] = true;
			continue;
		}
		if (has_tests_besides(j, fault[k]))
			need->host[faults_target(j->targets, fault[k]->file) - j->targets->target] = true;
		need->race |= fault[k]->race;
		for (size_t i = 0; i < j->targets->count; i++) {
			const struct fault_target *t = &j->targets->target[i];
			uint64_t of = fault[k]->op == PLUMB_OP_COUNT ? t->ops : t->ops & (uint64_t)1 << fault[k]->op;
			if (!of || !faults_unit_has(j, t, fault[k]))
				continue;
			need->ops |= of;
			need->units |= (uint64_t)1 << i;
			need_objects(need, mine, faults_unit_objects(j, t, fault[k], mine));
		}
	}
	for (size_t i = 0; i < j->targets->count; i++)
		for (int t = 0; need->host[i] && t < j->targets->target[i].tests; t++)
			need_objects(need, mine, faults_host_objects(j, &j->targets->target[i], t, mine));
}

/* Whether no target before this one has this test too. */
static bool is_first_with(const struct fault_judge *j, const bool *host, size_t target, int test)
{
	const char *name = j->targets->target[target].test[test];

	for (size_t i = 0; i < target; i++)
		for (int t = 0; host[i] && t < j->targets->target[i].tests; t++)
			if (strcmp(j->targets->target[i].test[t], name) == 0)
				return false;
	return true;
}

/* All checks of the controls, those that take long first. */
static void control_checks(struct fault_judge *j, const struct needs *need, struct fault_pool *pool)
{
	for (int longest = 1; longest >= 0; longest--)
		for (int c = 0; c < SEAT_CHECKS && need->ops; c++) {
			const struct fault_check *k = &faults_checks[c];
			bool shared = false;
			for (int other = 0; other < c; other++)
				shared |= is_same_control(&faults_checks[other], k);
			if ((k->part != 0) == longest && !shared && (!k->race || need->race) && pool_fork(pool)) {
				control_check(j, c, need->ops, k->race ? 1 : pool->jobs);
				_exit(0);
			}
		}
	for (size_t i = 0; i < j->targets->count; i++)
		for (int t = 0; need->host[i] && t < j->targets->target[i].tests; t++)
			if (is_first_with(j, need->host, i, t) && pool_fork(pool)) {
				faults_control_test(j, need->host, j->targets->target[i].test[t]);
				_exit(0);
			}
	pool_wait(pool, 0);
}

/* Targets, each with a space before it. */
static void add_target(char **list, const char *target)
{
	char *longer = faults_format("%s %s", *list, target);

	free(*list);
	*list = longer;
}

struct targets {
	char *all, *missing; /* what the checks need, and what of it is not in the tree */
};

static void need_target(const struct fault_judge *j, const char *path, const char *target, struct targets *t)
{
	char *whole = faults_format("%s/%s", j->build->folder, path), *word = faults_format(" %s ", target),
	     *padded = faults_format("%s ", t->all);

	if (!strstr(padded, word)) {
		add_target(&t->all, target);
		if (access(whole, R_OK) != 0)
			add_target(&t->missing, target);
	}
	free(whole);
	free(word);
	free(padded);
}

/* What the checks run and link is there, and no older than its sources: a linker's words on what is not help nobody, and old code
 * would be the judge. */
static int check_built(const struct fault_judge *j, const struct needs *need, struct plumb_error *err)
{
	struct targets list = {faults_format("%s", ""), faults_format("%s", "")};
	char *first = NULL;
	int status = PLUMB_OK;

	need_target(j, "tools/plumb", "plumb", &list);
	if (need->ops)
		need_target(j, faults_seat_object(j->build), j->build->cuda ? "faults_seat_cuda" : "faults_seat", &list);
	for (size_t i = 0; i < j->targets->count; i++)
		for (int t = 0; need->host[i] && t < j->targets->target[i].tests; t++) {
			const char *program = faults_program_of(j->targets->target[i].test[t]);
			char *path = faults_format("tests/%s", program);
			need_target(j, path, program, &list);
			free(path);
		}
	if (list.missing[0])
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: not built:%s; 'ninja -C %s%s' builds what is missing",
			j->build->folder, list.missing, j->build->folder, list.missing);
	else
		status = faults_outdated(j->build, list.all, &first, err);
	if (status == PLUMB_OK && first)
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: older than its sources: 'ninja -C %s%s' has work to do, first %s", j->build->folder,
			j->build->folder, list.all, first);
	free(first);
	free(list.all);
	free(list.missing);
	return status;
}

int faults_judge_controls(
	struct fault_judge *j, struct fault *const *fault, size_t count, int jobs, struct plumb_error *err)
{
	struct fault_pool pool = {jobs, 0};
	struct needs need = {.object = faults_zero(j->build->objects + 1, sizeof(void *)),
		.host = faults_zero(j->targets->count + 1, sizeof *need.host)};
	char text[300] = "", *list, *library;

	find_needs(j, fault, count, &need);
	int status = check_built(j, &need, err);
	for (size_t i = 0; i < need.objects && status == PLUMB_OK; i++)
		if (pool_fork(&pool))
			_exit(!control_object(j, need.object[i], text, sizeof text));
	pool_wait(&pool, 0);
	for (size_t i = 0; i < need.objects && status == PLUMB_OK; i++)
		if (!control_object(j, need.object[i], text, sizeof text))
			status = plumb_fail(
				err, PLUMB_MISMATCH, "control: %s does not compile: %.300s", need.object[i]->name, text);
	list = control_objects(j, need.units, need.race);
	library = faults_format("%s/control/control.so", j->build->scratch);
	if (status == PLUMB_OK && need.ops && faults_link_seat(j->build, list, library, text, sizeof text) != PLUMB_OK)
		status = plumb_fail(err, PLUMB_MISMATCH, "control: the kernels do not link: %.300s", text);
	if (status == PLUMB_OK)
		control_checks(j, &need, &pool);
	for (size_t i = 0; i < j->shared_count && status == PLUMB_OK; i++)
		if (j->shared[i].failed)
			status = plumb_fail(err, PLUMB_MISMATCH,
				"the unmutated control fails, so nothing is scored: %.500s", j->shared[i].line);
	free(list);
	free(library);
	free(need.object);
	free(need.host);
	return status;
}

/* ---- one ---- */

void faults_judge_jobs(struct fault_judge *j, int jobs)
{
	j->jobs = jobs < 1 ? 1 : jobs;
}

int faults_judge_weight(const struct fault_judge *j, const struct fault *f)
{
	const struct fault_object *list[MAX_SWAPS];
	int weight = 0;

	if ((f->lane_why && !j->build->cuda) || (f->mutant && f->equivalent))
		return 0;
	if (is_host_fault(j, f))
		return 1;
	for (size_t i = 0; i < j->targets->count; i++) {
		const struct fault_target *t = &j->targets->target[i];
		if (t->ops && (f->op == PLUMB_OP_COUNT || t->ops >> f->op & 1) && faults_unit_has(j, t, f))
			weight += faults_unit_objects(j, t, f, list) + 1;
	}
	return weight;
}

void faults_judge_one(struct fault_judge *j, struct fault *f, int worker)
{
	char *folder = faults_format("%s/%d", j->build->scratch, worker);

	mkdir(folder, 0777);
	if (f->lane_why && !j->build->cuda) {
		f->outcome = FAULT_ELSEWHERE;
		snprintf(f->text, sizeof f->text, "%s", f->lane_why);
	} else if (f->mutant && f->equivalent) {
		f->outcome = FAULT_EQUIVALENT;
	} else if (is_host_fault(j, f)) {
		faults_judge_host(j, f, folder);
	} else {
		faults_judge_seat(j, f, folder);
		if (f->outcome == FAULT_SURVIVED && has_tests_besides(j, f))
			faults_judge_host(j, f, folder);
	}
	if (f->equivalent && f->outcome == FAULT_KILLED)
		f->outcome = FAULT_NOT_EQUIVALENT;
	if (f->equivalent && (f->outcome == FAULT_SURVIVED || f->outcome == FAULT_IDENTICAL))
		f->outcome = FAULT_EQUIVALENT;
	if (!j->options.keep && !faults_remove(folder))
		fprintf(stderr, "plumb faults: %s is left behind\n", folder);
	free(folder);
}
