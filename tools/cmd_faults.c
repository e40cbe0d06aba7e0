/* SPDX-License-Identifier: MIT */
/* plumb faults: plant faults in the kernels and in what judges them, and count which are found. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/status.h"
#include "tools/commands.h"
#include "tools/faults.h"
#include "tools/output.h"
#include "tools/progress.h"

enum { MAX_JOBS = 256, SAMPLE_FAULTS = 24, SAMPLE_MUTANTS = 20, CASES = 400, TIMEOUT = 10 };

struct faults_command {
	const char *source, *build, *library, *fault_class, *op, *id, *file, *share, *lane, *json;
	struct option_list mutate;
	int64_t mutants, seed, jobs, cases, timeout, least;
	bool sample, list, keep;
};

/* What a child found, for the parent. */
struct result {
	enum fault_outcome outcome;
	char check[96], text[400];
	double seconds;
	int checks;
};

/* ---- choosing ---- */

struct chosen {
	struct fault **fault;
	size_t count;
};

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
	x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
	return x ^ (x >> 31);
}

struct lot {
	uint64_t value;
	size_t index;
};

static int by_value(const void *a, const void *b)
{
	const struct lot *x = a, *y = b;
	if (x->value != y->value)
		return x->value < y->value ? -1 : 1;
	return x->index < y->index ? -1 : x->index > y->index;
}

/* Draw n mutants by the seed: those with the least lots. What is left keeps its order. */
static void draw(struct chosen *c, size_t n, uint64_t seed)
{
	struct lot *lot = faults_zero(c->count, sizeof *lot);
	bool *taken = faults_zero(c->count, sizeof *taken);
	size_t left = 0;

	for (size_t i = 0; i < c->count; i++)
		lot[i] = (struct lot){mix(c->fault[i]->lot ^ mix(seed)), i};
	qsort(lot, c->count, sizeof *lot, by_value);
	for (size_t i = 0; i < n && i < c->count; i++)
		taken[lot[i].index] = true;
	for (size_t i = 0; i < c->count; i++)
		if (taken[i])
			c->fault[left++] = c->fault[i];
	c->count = left;
	free(taken);
	free(lot);
}

/* Every class in turn until there are n; of a class the fault whose file was taken least often until then. Those that are known to
 * live, or cannot show in this lane, say nothing. */
static void sample(struct chosen *c, size_t n)
{
	struct fault **out = faults_zero(c->count, sizeof(void *));
	bool *taken = faults_zero(c->count, sizeof *taken);
	size_t count = 0, round = 0, before;

	do {
		before = round = count;
		for (size_t i = 0; i < c->count && count < n; i++) {
			size_t best = c->count, least = SIZE_MAX;
			bool seen = false;
			for (size_t k = round; k < count && !seen; k++)
				seen = strcmp(out[k]->fault_class, c->fault[i]->fault_class) == 0;
			for (size_t k = i; k < c->count && !seen; k++) {
				size_t used = 0;
				if (taken[k] || c->fault[k]->equivalent || c->fault[k]->lane_why ||
					strcmp(c->fault[k]->fault_class, c->fault[i]->fault_class) != 0)
					continue;
				for (size_t m = 0; m < count; m++)
					used += strcmp(out[m]->file, c->fault[k]->file) == 0;
				if (used < least) {
					least = used;
					best = k;
				}
			}
			if (best < c->count) {
				taken[best] = true;
				out[count++] = c->fault[best];
			}
		}
	} while (count < n && count > before);
	free(taken);
	free(c->fault);
	c->fault = out;
	c->count = count;
}

static bool matches(const struct faults_command *c, const struct fault *f)
{
	if (c->fault_class && strcmp(c->fault_class, f->fault_class) != 0)
		return false;
	if (c->op && (f->op == PLUMB_OP_COUNT || strcmp(c->op, plumb_ops[f->op].name) != 0))
		return false;
	if (c->id && strcmp(c->id, f->id) != 0)
		return false;
	return !c->file || strcmp(c->file, f->file) == 0;
}

/* "2/5": every fifth, from the second on. */
static int take_share(const char *share, struct chosen *c, struct plumb_error *err)
{
	int part, parts, end = 0;
	size_t left = 0;

	if (sscanf(share, "%d/%d%n", &part, &parts, &end) != 2 || share[end] || part < 1 || part > parts)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--share is '%s', expected I/N with 1 <= I <= N, such as 2/5", share);
	for (size_t i = 0; i < c->count; i++)
		if (i % (size_t)parts == (size_t)part - 1)
			c->fault[left++] = c->fault[i];
	c->count = left;
	return PLUMB_OK;
}

/* Read all mutants that can be asked for. */
static int read_mutants(const struct faults_command *c, const struct fault_targets *targets, const char *source,
	const char *folder, struct fault_list *out, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < c->mutate.count && status == PLUMB_OK; i++)
		status = faults_mutants(source, folder, c->mutate.item[i], out, err);
	for (size_t i = 0; i < targets->count && status == PLUMB_OK && !c->mutate.count; i++)
		status = faults_mutants(source, folder, targets->target[i].file, out, err);
	return status;
}

/* library, mutants: all there are; out: what is asked for. */
static int choose(const struct faults_command *c, struct fault_list *library, struct fault_list *mutants,
	struct chosen *out, struct plumb_error *err)
{
	const bool want_mutants = c->mutants || c->mutate.count || c->sample;
	const bool want_library = c->sample || !want_mutants;
	struct chosen planted = {faults_zero(library->count, sizeof(void *)), 0};
	struct chosen made = {faults_zero(mutants->count, sizeof(void *)), 0};
	int status = PLUMB_OK;

	for (size_t i = 0; i < library->count && want_library; i++)
		if (matches(c, &library->fault[i]))
			planted.fault[planted.count++] = &library->fault[i];
	for (size_t i = 0; i < mutants->count && want_mutants; i++)
		if (matches(c, &mutants->fault[i]))
			made.fault[made.count++] = &mutants->fault[i];
	if (c->sample)
		sample(&planted, SAMPLE_FAULTS);
	if (c->sample && !c->mutants)
		draw(&made, SAMPLE_MUTANTS, (uint64_t)c->seed);
	else if (c->mutants)
		draw(&made, (size_t)c->mutants, (uint64_t)c->seed);
	*out = (struct chosen){faults_zero(planted.count + made.count, sizeof(void *)), 0};
	for (size_t i = 0; i < planted.count; i++)
		out->fault[out->count++] = planted.fault[i];
	for (size_t i = 0; i < made.count; i++)
		out->fault[out->count++] = made.fault[i];
	free(planted.fault);
	free(made.fault);
	if (c->share)
		status = take_share(c->share, out, err);
	if (status == PLUMB_OK && !out->count)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "no fault is chosen: %zu planted ones and %zu mutants there are",
			library->count, mutants->count);
	return status;
}

static void show_list(const struct chosen *c)
{
	for (size_t i = 0; i < c->count; i++) {
		const struct fault *f = c->fault[i];
		printf("%-44s %-10s %-8s %-16s %s:%d%s%s%s\n", f->id, f->fault_class, f->kind,
			f->op == PLUMB_OP_COUNT ? "-" : plumb_ops[f->op].name, f->file, f->line,
			f->lane_why ? "  (only on the GPU)" : "", f->equivalent ? "  equivalent: " : "",
			f->equivalent ? f->equivalent : "");
	}
	printf("%zu faults\n", c->count);
}

/* ---- running ---- */

static void tell(const struct fault *f, size_t done, size_t count, double start)
{
	double spent = progress_now() - start;
	printf("%s%-10s%s %s%s%s%s%s  (%.1f s; %zu of %zu, %.0f s left)\n",
		f->outcome == FAULT_SURVIVED || f->outcome >= FAULT_NOT_EQUIVALENT ? output_bad() : "",
		faults_outcome_name(f->outcome), output_plain(), f->id, f->check[0] ? " by " : "", f->check,
		f->text[0] ? ": " : "", f->text, f->seconds, done, count, spent * (double)(count - done) / (double)done);
	fflush(stdout);
}

static void take_result(struct fault *f, const struct result *r)
{
	f->outcome = r->outcome;
	f->seconds = r->seconds;
	f->checks = r->checks;
	memcpy(f->check, r->check, sizeof f->check);
	memcpy(f->text, r->text, sizeof f->text);
	if (f->outcome == FAULT_WAITING) {
		f->outcome = FAULT_ERROR;
		snprintf(f->text, sizeof f->text, "the process that judged it ended without a word");
	}
}

static int run_all(struct fault_judge *j, const struct chosen *c, int jobs, struct plumb_error *err)
{
	struct result *result =
		mmap(NULL, (c->count + 1) * sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[MAX_JOBS] = {0};
	size_t of[MAX_JOBS], next = 0, done = 0;
	double start = progress_now();

	if (result == MAP_FAILED)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu results", c->count);
	while (done < c->count) {
		for (int k = 0; k < jobs && next < c->count; k++) {
			if (pid[k])
				continue;
			of[k] = next;
			fflush(NULL);
			pid[k] = fork();
			if (pid[k] == 0) {
				struct fault *f = c->fault[next];
				faults_judge_one(j, f, k);
				struct result *r = &result[next];
				r->seconds = f->seconds;
				r->checks = f->checks;
				memcpy(r->check, f->check, sizeof r->check);
				memcpy(r->text, f->text, sizeof r->text);
				r->outcome = f->outcome;
				_exit(0);
			}
			if (pid[k] < 0)
				return plumb_fail(err, PLUMB_BAD_INPUT, "cannot start a process: %s", strerror(errno));
			next++;
		}
		pid_t ended = wait(NULL);
		for (int k = 0; k < jobs; k++)
			if (ended > 0 && pid[k] == ended) {
				pid[k] = 0;
				take_result(c->fault[of[k]], &result[of[k]]);
				tell(c->fault[of[k]], ++done, c->count, start);
			}
		if (ended < 0)
			break;
	}
	munmap(result, (c->count + 1) * sizeof *result);
	return PLUMB_OK;
}

/* The build tree next to which this program lies: BUILD/tools/plumb. To be freed; NULL: unknown. */
static char *own_build(void)
{
	char path[4096];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

	if (n <= 0)
		return NULL;
	path[n] = '\0';
	for (int i = 0; i < 2; i++) {
		char *slash = strrchr(path, '/');
		if (!slash)
			return NULL;
		*slash = '\0';
	}
	return faults_format("%s", path);
}

static int work(const struct faults_command *c, const struct fault_build *build, struct plumb_error *err)
{
	char *folder = c->library ? faults_format("%s", c->library) : faults_format("%s/tests/faults", build->source);
	const struct fault_options options = {c->cases, c->seed, c->timeout, c->keep};
	struct fault_list library = {NULL, 0, 0}, mutants = {NULL, 0, 0};
	struct fault_targets targets = {NULL, 0};
	struct fault_judge *judge = NULL;
	struct chosen chosen = {NULL, 0};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int jobs = (int)(c->jobs ? c->jobs : cores > 0 ? cores : 1);
	double start = progress_now();
	int status = faults_read(build->source, folder, &library, err);

	jobs = jobs > MAX_JOBS ? MAX_JOBS : jobs;
	if (status == PLUMB_OK)
		status = faults_targets_read(folder, &targets, err);
	if (status == PLUMB_OK && (c->mutants || c->mutate.count || c->sample))
		status = read_mutants(c, &targets, build->source, folder, &mutants, err);
	if (status == PLUMB_OK)
		status = choose(c, &library, &mutants, &chosen, err);
	if (status == PLUMB_OK && c->list) {
		show_list(&chosen);
		goto out;
	}
	if (status == PLUMB_OK)
		status = faults_judge_open(build, &targets, &options, &judge, err);
	if (status == PLUMB_OK) {
		printf("%zu faults, %d at a time; first the unmutated files through every check\n", chosen.count, jobs);
		status = faults_judge_controls(judge, chosen.fault, chosen.count, jobs, err);
	}
	if (status == PLUMB_OK) {
		printf("the unmutated files pass every check; %.0f s\n", progress_now() - start);
		status = run_all(judge, &chosen, jobs, err);
	}
	if (status == PLUMB_OK) {
		const struct fault_score_options score = {.json = c->json,
			.lane = build->cuda ? "cuda" : "simt",
			.seconds = progress_now() - start,
			.seed = c->seed,
			.least = c->least,
			.source = build->source};
		status = faults_score(chosen.fault, chosen.count, &score, err);
	}
out:
	free(chosen.fault);
	faults_judge_close(judge);
	faults_free(&library);
	faults_free(&mutants);
	faults_targets_free(&targets);
	free(folder);
	return status;
}

static int run(int argc, char **argv)
{
	static struct faults_command c = {.cases = CASES, .timeout = TIMEOUT, .seed = 1, .least = 100};
	const struct option table[] = {
		{"--source", "DIR", OPTION_TEXT, &c.source, "source folder (default: that of the build tree)"},
		{"--build", "DIR", OPTION_TEXT, &c.build,
			"build tree, made by ninja (default: the one this program lies in)"},
		{"--library", "DIR", OPTION_TEXT, &c.library,
			"folder of planted faults (default: tests/faults of the source)"},
		{"--class", "F..", OPTION_TEXT, &c.fault_class, "only faults of this class; of mutants: of this operator"},
		{"--op", "NAME", OPTION_TEXT, &c.op, "only faults of this op"},
		{"--id", "ID", OPTION_TEXT, &c.id, "only this fault"},
		{"--file", "FILE", OPTION_TEXT, &c.file, "only faults in this file"},
		{"--mutate", "FILE", OPTION_REPEAT, &c.mutate, "mechanical mutants of this file, in place of the library"},
		{"--mutants", "N", OPTION_COUNT, &c.mutants,
			"so many, drawn by the seed from those files (default: from all targets)"},
		{"--sample", NULL, OPTION_FLAG, &c.sample,
			"the share that CI runs: 24 planted faults of all classes, 20 mutants"},
		{"--share", "I/N", OPTION_TEXT, &c.share, "every Nth of what is chosen, from the Ith on"},
		{"--jobs", "N", OPTION_COUNT, &c.jobs, "how many at a time (default: as many as there are cores)"},
		{"--lane", "simt|cuda", OPTION_TEXT, &c.lane, "where the kernels run (default simt)"},
		{"--cases", "N", OPTION_COUNT, &c.cases, "seeded cases of each op (default 400)"},
		{"--seed", "N", OPTION_COUNT, &c.seed, "of the cases, and of which mutants are drawn (default 1)"},
		{"--timeout", "N", OPTION_COUNT, &c.timeout,
			"seconds of processor that a check may take beyond ten times the control (default 10)"},
		{"--least", "PERCENT", OPTION_COUNT, &c.least,
			"of the mutants that have to be killed (default 100); planted faults: all of them, always"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write the score to a file ('-': standard output)"},
		{"--list", NULL, OPTION_FLAG, &c.list, "show what is chosen, and do nothing"},
		{"--keep", NULL, OPTION_FLAG, &c.keep, "leave the objects, programs and logs, and say where"},
	};
	struct plumb_error err = {""};
	struct fault_build build = {.source = NULL};
	char scratch[] = "/tmp/plumb-faults-XXXXXX", *own = NULL, *remove = NULL;
	int operands, status;
	bool done = false, made = false;

	status = options_parse(
		&command_faults, table, sizeof table / sizeof table[0], argc, argv, NULL, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && c.lane && strcmp(c.lane, "simt") != 0 && strcmp(c.lane, "cuda") != 0)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--lane is '%s', expected simt or cuda", c.lane);
	if (status == PLUMB_OK && c.least > 100)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--least is %lld, expected 0..100 percent", (long long)c.least);
	if (status == PLUMB_OK && (c.cases < 1 || c.timeout < 1))
		status = plumb_fail(
			&err, PLUMB_BAD_INPUT, "%s is 0, expected 1 or more", c.cases < 1 ? "--cases" : "--timeout");
	if (status == PLUMB_OK)
		status = output_refuse("--json", c.json, c.source, NULL, &err);
	if (status == PLUMB_OK && !(made = mkdtemp(scratch) != NULL))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "%s: %s", scratch, strerror(errno));
	output_colour(!c.json || strcmp(c.json, "-") != 0);
	own = own_build();
	if (status == PLUMB_OK)
		status = faults_build_open(c.source,
			c.build ? c.build
			: own   ? own
				: ".",
			scratch, c.lane && c.lane[0] == 'c', &build, &err);
	if (status == PLUMB_OK)
		status = work(&c, &build, &err);
	if (err.text[0])
		fprintf(stderr, "plumb faults: %s\n", err.text);
	if (made && c.keep && !c.list)
		printf("kept: %s\n", scratch);
	remove = faults_format("rm -rf %s", scratch);
	if (made && !c.keep && system(remove) != 0)
		fprintf(stderr, "plumb faults: %s is left behind\n", scratch);
	free(remove);
	free(own);
	faults_build_close(&build);
	return status;
}

const struct command command_faults = {
	.name = "faults",
	.usage = "[--class F..|--op NAME|--id ID|--file FILE] [--mutate FILE... --mutants N] [--sample] [options]",
	.brief = "plant faults in kernels, comparators, formats and bound: which are found, and by what",
	.about = "Each planted fault (tests/faults/*.json) or mechanical mutant is compiled and judged by the ordinary "
		 "checks, until one "
		 "fails: a\n"
		 "kernel's in a shared object on simt, other code's in the programs of its tests. The unmutated files go "
		 "first. A "
		 "fault that does\n"
		 "not apply or compile is an error of the library, and nothing is scored. docs/faults.md says how to read "
		 "and to add.",
	.examples = "  plumb faults                                    the whole library\n"
		    "  plumb faults --class F02 --jobs 4\n"
		    "  plumb faults --mutate kernels/moe.cu --mutants 50 --seed 3\n"
		    "  plumb faults --sample                           what CI runs",
	.run = run,
};
