/* SPDX-License-Identifier: MIT */
/* plumb faults: plant faults in the kernels and in what judges them, and count which are found. */
#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/json.h"
#include "core/sha256.h"
#include "core/status.h"
#include "tools/commands.h"
#include "tools/faults_score.h"
#include "tools/html.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/text.h"

enum { MAX_JOBS = 256, SAMPLE_FAULTS = 24, SAMPLE_MUTANTS = 20, CASES = 400, TIMEOUT = 10 };
static const double SAVE_SECONDS = 30.0; /* between two states of --json */
static const char unfinished[] = "stopped before every fault was judged";

struct faults_command {
	const char *source, *build, *library, *fault_class, *op, *id, *file, *shard, *lane, *json, *html;
	struct option_list mutate;
	int64_t mutants, seed, jobs, cases, timeout, least;
	bool sample, list, keep, resume;
	struct origin origin;
	struct fault_score_options score;
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

/* This shard's part; the others are let go. */
static void take_part(const struct shard *part, struct chosen *c)
{
	size_t left = 0;

	for (size_t i = 0; i < c->count; i++)
		if (shard_takes(part, (int64_t)i))
			c->fault[left++] = c->fault[i];
	c->count = left;
}

static int by_text(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* Files that the tree is compiled from, below the source folder, but for those that it made itself; each once. To be freed, the names
 * are the tree's. */
static const char **files_of(const struct fault_build *b, size_t *count)
{
	const size_t below = strlen(b->home) + 1, folder = strlen(b->folder);
	size_t n = 0, room = 0;

	for (size_t i = 0; i < b->objects; i++)
		room += (size_t)b->object[i].headers + 1;
	const char **name = faults_zero(room, sizeof *name);
	for (size_t i = 0; i < b->objects; i++) {
		const struct fault_object *o = &b->object[i];
		if (strncmp(o->source, b->home, below - 1) == 0 && o->source[below - 1] == '/')
			name[n++] = o->source + below;
		for (int h = 0; h < o->headers; h++)
			name[n++] = o->header[h];
	}
	qsort(name, n, sizeof *name, by_text);
	*count = 0;
	for (size_t i = 0; i < n; i++) {
		const bool made = strncmp(b->folder, b->home, below - 1) == 0 && b->folder[below - 1] == '/' &&
		                  strncmp(name[i], b->folder + below, folder - below) == 0 &&
		                  name[i][folder - below] == '/';
		if (!made && (*count == 0 || strcmp(name[*count - 1], name[i]) != 0))
			name[(*count)++] = name[i];
	}
	return name;
}

/* Of all that is chosen, and of what it is planted in: results of other faults or sources are not of one run. */
static char *digest_of(const struct fault_build *b, const struct chosen *c)
{
	struct plumb_sha256 sha;
	char hex[65];
	size_t files, size;
	const char **file = files_of(b, &files);

	plumb_sha256_begin(&sha);
	for (size_t i = 0; i < c->count; i++) {
		const struct fault *f = c->fault[i];
		char *text = faults_format("%s\n%s %zu %zu %d %d\n%s\n", f->id, f->file, f->at, f->length, f->race,
			f->equivalent != NULL, f->replacement);
		plumb_sha256_text(&sha, text);
		free(text);
	}
	for (size_t i = 0; i < files; i++) {
		char *path = faults_format("%s/%s", b->source, file[i]), *text = NULL;
		plumb_sha256_text(&sha, file[i]);
		if (plumb_file_read(path, 1 << 28, &text, &size, NULL) == PLUMB_OK)
			plumb_sha256_add(&sha, text, size);
		free(text);
		free(path);
	}
	free(file);
	return faults_format("sha256:%s", plumb_sha256_end(&sha, hex));
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
	if (!out->count)
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
	if (output_quiet())
		return;
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

/* Write what is known until now. stopped: why it is not all; NULL: it is. *verdict: the exit status that it has. */
static int save(
	struct faults_command *c, const struct chosen *chosen, const char *stopped, int *verdict, struct plumb_error *err)
{
	c->score.stopped = stopped;
	cJSON *tree = faults_score(chosen->fault, chosen->count, &c->score, verdict);
	char *text = c->json ? cJSON_Print(tree) : NULL;
	int status = PLUMB_OK;

	if (c->json)
		status = text ? output_file(c->json, text, strlen(text), err)
		              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", c->json);
	cJSON_free(text);
	cJSON_Delete(tree);
	return status;
}

static void judge_in_child(struct fault_judge *j, struct fault *f, int folder, struct result *r)
{
	faults_judge_one(j, f, folder);
	r->seconds = f->seconds;
	r->checks = f->checks;
	memcpy(r->check, f->check, sizeof r->check);
	memcpy(r->text, f->text, sizeof r->text);
	r->outcome = f->outcome;
	_exit(0);
}

struct turn {
	struct fault *fault;
	int weight;
	size_t index;
};

static int by_weight(const void *a, const void *b)
{
	const struct turn *x = a, *y = b;
	return x->weight != y->weight ? y->weight - x->weight : (x->index > y->index) - (x->index < y->index);
}

/* Those that wait, what takes long first, so that no core is idle at the end. */
static struct turn *turns_of(const struct fault_judge *j, const struct chosen *c, size_t *count)
{
	struct turn *turn = faults_zero(c->count, sizeof *turn);

	*count = 0;
	for (size_t i = 0; i < c->count; i++)
		if (c->fault[i]->outcome == FAULT_WAITING) {
			turn[*count] = (struct turn){c->fault[i], faults_judge_weight(j, c->fault[i]), i};
			++*count;
		}
	qsort(turn, *count, sizeof *turn, by_weight);
	return turn;
}

static int run_all(
	struct faults_command *c, struct fault_judge *j, const struct chosen *chosen, int jobs, struct plumb_error *err)
{
	const struct timespec tick = {.tv_nsec = 20000000};
	size_t count, next = 0, done = 0, of[MAX_JOBS];
	struct turn *turn = turns_of(j, chosen, &count);
	struct result *result =
		mmap(NULL, (count + 1) * sizeof *result, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pid[MAX_JOBS] = {0}, ended = 0;
	double start = progress_now(), saved = start;
	struct progress progress;
	int status = PLUMB_OK, verdict;

	if (result == MAP_FAILED) {
		free(turn);
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu results", count);
	}
	if (count > 0 && count < (size_t)jobs)
		faults_judge_jobs(j, jobs / (int)count);
	progress_begin(&progress, true, "faults");
	while (done < count && ended >= 0 && status == PLUMB_OK) {
		for (int k = 0; k < jobs && next < count && status == PLUMB_OK; k++) {
			if (pid[k])
				continue;
			of[k] = next;
			fflush(NULL);
			pid[k] = fork();
			if (pid[k] == 0) /* what is kept of one fault must not be taken for another's */
				judge_in_child(j, turn[next].fault, c->keep ? (int)next : k, &result[next]);
			if (pid[k] < 0)
				status = plumb_fail(err, PLUMB_BAD_INPUT, "cannot start a process: %s", strerror(errno));
			next++;
		}
		ended = waitpid(-1, NULL, WNOHANG);
		progress_step(&progress, (int64_t)done, (int64_t)count, "fault");
		if (ended == 0)
			nanosleep(&tick, NULL);
		for (int k = 0; k < jobs; k++)
			if (ended > 0 && pid[k] == ended) {
				pid[k] = 0;
				take_result(turn[of[k]].fault, &result[of[k]]);
				progress_end(&progress);
				tell(turn[of[k]].fault, ++done, count, start);
			}
		if (ended > 0 && c->json && strcmp(c->json, "-") != 0 && progress_now() - saved > SAVE_SECONDS) {
			c->score.seconds = progress_now() - start;
			status = save(c, chosen, unfinished, &verdict, err);
			saved = progress_now();
		}
	}
	progress_end(&progress);
	munmap(result, (count + 1) * sizeof *result);
	free(turn);
	return status;
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

/* Judge what waits, and say what came out. */
static int judge(struct faults_command *c, const struct fault_build *build, const struct fault_targets *targets,
	const struct chosen *chosen, struct plumb_error *err)
{
	const struct fault_options options = {c->cases, c->seed, c->timeout, c->keep};
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	int jobs = (int)(c->jobs ? c->jobs : cores > 0 ? cores : 1);
	struct chosen waiting = {faults_zero(chosen->count, sizeof(void *)), 0};
	struct fault_judge *judge = NULL;
	double start = progress_now();
	int status = faults_judge_open(build, targets, &options, &judge, err), verdict;

	jobs = jobs > MAX_JOBS ? MAX_JOBS : jobs;
	for (size_t i = 0; i < chosen->count; i++)
		if (chosen->fault[i]->outcome == FAULT_WAITING)
			waiting.fault[waiting.count++] = chosen->fault[i];
	if (status == PLUMB_OK) {
		if (!output_quiet())
			printf("%zu faults, %d at a time; first the unmutated files through every check\n", waiting.count,
				jobs);
		fflush(stdout);
		status = faults_judge_controls(judge, waiting.fault, waiting.count, jobs, err);
	}
	if (status == PLUMB_MISMATCH && c->json) { /* for plumb merge: this shard has none of its verdicts */
		struct plumb_error other;
		save(c, &waiting, err->text, &verdict, &other);
	}
	if (status == PLUMB_OK && !output_quiet())
		printf("the unmutated files pass every check; %.0f s\n", progress_now() - start);
	if (status == PLUMB_OK)
		status = run_all(c, judge, chosen, jobs, err);
	c->score.seconds = progress_now() - start;
	faults_judge_close(judge);
	free(waiting.fault);
	return status;
}

static int report(struct faults_command *c, const struct chosen *chosen, struct plumb_error *err)
{
	int verdict, status;
	bool any = c->score.part.of > 1; /* of the whole, something has to be scored */

	for (size_t i = 0; i < chosen->count; i++)
		any |= chosen->fault[i]->outcome != FAULT_STILLBORN;
	c->score.stopped = any ? NULL : "nothing was scored";
	cJSON *tree = faults_score(chosen->fault, chosen->count, &c->score, &verdict);
	faults_score_print(tree);
	status = c->html ? html_write(tree, c->html, err) : PLUMB_OK;
	cJSON_Delete(tree);
	if (status == PLUMB_OK && c->json)
		status = save(c, chosen, c->score.stopped, &verdict, err);
	if (status == PLUMB_OK && !any)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "nothing was scored");
	return status == PLUMB_OK ? verdict : status;
}

static int work(struct faults_command *c, const struct fault_build *build, struct plumb_error *err)
{
	char *folder = c->library ? faults_format("%s", c->library) : faults_format("%s/tests/faults", build->source);
	char *digest = NULL;
	struct fault_list library = {NULL, 0, 0}, mutants = {NULL, 0, 0};
	struct fault_targets targets = {NULL, 0};
	struct chosen chosen = {NULL, 0};
	size_t taken = 0;
	int status = faults_read(build->source, folder, &library, err);

	if (status == PLUMB_OK)
		status = faults_targets_read(folder, &targets, err);
	if (status == PLUMB_OK && (c->mutants || c->mutate.count || c->sample))
		status = read_mutants(c, &targets, build->source, folder, &mutants, err);
	if (status == PLUMB_OK)
		status = choose(c, &library, &mutants, &chosen, err);
	if (status == PLUMB_OK) {
		digest = digest_of(build, &chosen);
		c->score.digest = digest;
		c->score.total = (int64_t)chosen.count;
		take_part(&c->score.part, &chosen);
	}
	if (status == PLUMB_OK && c->list) {
		show_list(&chosen);
		goto out;
	}
	c->score.lane = build->cuda ? "cuda" : "simt";
	c->score.source = build->source;
	if (status == PLUMB_OK && c->resume)
		status = faults_score_resume(c->json, chosen.fault, chosen.count, &c->score, &taken, err);
	if (status == PLUMB_OK && taken && !output_quiet())
		printf("%s: %zu of %zu faults were judged before\n", c->json, taken, chosen.count);
	if (status == PLUMB_OK && chosen.count > taken)
		status = judge(c, build, &targets, &chosen, err);
	if (status == PLUMB_OK)
		status = report(c, &chosen, err);
out:
	free(chosen.fault);
	faults_free(&library);
	faults_free(&mutants);
	faults_targets_free(&targets);
	free(digest);
	free(folder);
	return status;
}

/* What can be wrong with the options alone. */
static int check_options(struct faults_command *c, struct plumb_error *err)
{
	const struct output_path out[] = {{"--json", c->json}, {"--html", c->html}};
	enum plumb_op op;
	int status = shard_parse(c->shard, &c->score.part, err);

	if (status == PLUMB_OK && c->lane && strcmp(c->lane, "simt") != 0 && strcmp(c->lane, "cuda") != 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--lane is '%s', expected simt or cuda", c->lane);
	if (status == PLUMB_OK && c->op)
		status = text_op("--op", c->op, &op, err);
	if (status == PLUMB_OK && c->least > 100)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--least is %lld, expected 0..100 percent", (long long)c->least);
	if (status == PLUMB_OK && (c->cases < 1 || c->timeout < 1))
		status = plumb_fail(
			err, PLUMB_BAD_INPUT, "%s is 0, expected 1 or more", c->cases < 1 ? "--cases" : "--timeout");
	if (status == PLUMB_OK && c->resume && (!c->json || strcmp(c->json, "-") == 0))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--resume needs --json FILE, which holds what was judged before");
	if (status == PLUMB_OK)
		status = output_paths(out, 2, &(struct output_inputs){0}, err);
	c->score.seed = c->seed;
	c->score.cases = c->cases;
	c->score.least = c->least;
	c->score.origin = &c->origin;
	c->score.library = c->library;
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
		SHARD_OPTION(&c.shard),
		{"--jobs", "N", OPTION_COUNT, &c.jobs, "how many at a time (default: as many as there are cores)"},
		{"--lane", "simt|cuda", OPTION_TEXT, &c.lane, "where the kernels run (default simt)"},
		{"--cases", "N", OPTION_COUNT, &c.cases, "seeded cases of each op (default 400)"},
		{"--seed", "N", OPTION_COUNT, &c.seed, "of the cases, and of which mutants are drawn (default 1)"},
		{"--timeout", "N", OPTION_COUNT, &c.timeout,
			"seconds of processor that a test program may take beyond ten times the control (default 10)"},
		{"--least", "PERCENT", OPTION_COUNT, &c.least,
			"of the mutants that have to be killed (default 100); planted faults: all of them, always"},
		{"--json", "FILE", OPTION_TEXT, &c.json,
			"write the score to a file ('-': standard output), what is known of it every half minute"},
		{"--html", "FILE", OPTION_TEXT, &c.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
		{"--resume", NULL, OPTION_FLAG, &c.resume, "take over from the --json file what is judged in it"},
		{"--list", NULL, OPTION_FLAG, &c.list, "show what is chosen, and do nothing"},
		{"--keep", NULL, OPTION_FLAG, &c.keep, "leave the objects, programs and logs, and say where"},
	};
	struct plumb_error err = {""};
	struct fault_build build = {.source = NULL};
	char scratch[] = "/tmp/plumb-faults-XXXXXX", *own = NULL;
	int operands, status;
	bool done = false, made = false;

	status = options_parse(
		&command_faults, table, sizeof table / sizeof table[0], argc, argv, NULL, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	origin_begin(&c.origin, argc, argv, NULL);
	if (status == PLUMB_OK)
		status = check_options(&c, &err);
	if (status == PLUMB_OK && !(made = mkdtemp(scratch) != NULL))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "%s: %s", scratch, strerror(errno));
	output_colour((!c.json || strcmp(c.json, "-") != 0) && (!c.html || strcmp(c.html, "-") != 0));
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
	if (made && !c.keep && !faults_remove(scratch))
		fprintf(stderr, "plumb faults: %s is left behind\n", scratch);
	free(own);
	origin_end(&c.origin);
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
		    "  plumb faults --sample --least 90                what CI runs\n"
		    "  plumb faults --json all.json --html all.html    and --resume, when it was stopped\n"
		    "  plumb faults --shard 2/8 --json part2.json      then plumb merge part*.json",
	.verbose = "how far it is, every ten seconds where standard error is no terminal",
	.run = run,
};
