/* SPDX-License-Identifier: MIT */
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "opt/graph.h"
#include "opt/timing.h"
#include "tools/bench.h"
#include "tools/progress.h"

enum {
	WARM_STEPS = 3,      /* kernels one by one, recorded, replayed */
	CALLS_AT_LEAST = 32, /* of an op in one graph: what begins and ends a graph is small beside them */
	SPARE = 1,           /* positions behind the context: the token that is timed */
	READS = 10,          /* of a card's memory */
	CPU_READS = 2,       /* of a CPU's, at each run: what else the machine does then slows both */
	TOKEN = 42,          /* any id that every preset has */
};
static const int64_t CPU_READ = INT64_C(256) << 20; /* bytes at least: beyond what one machine's share of a cache holds */

int64_t bench_total(const struct plumb_traffic *t)
{
	return t->weights + t->read + t->written;
}

static int ascending(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double median(double *v, int64_t n)
{
	qsort(v, (size_t)n, sizeof *v, ascending);
	return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* ---- the ceiling ---- */

/* The same question to a CPU: words added up by all threads. */
struct cpu_reader {
	uint64_t *word;
	int64_t words;
};

static int reader_open(struct cpu_reader *r, int64_t bytes, struct plumb_error *err)
{
	void *m = mmap(NULL, (size_t)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (m == MAP_FAILED)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "out of memory for a buffer of %lld bytes to read", (long long)bytes);
	(void)madvise(m, (size_t)bytes, MADV_HUGEPAGE); /* a wish, as weights have it */
	r->word = m;
	r->words = bytes / (int64_t)sizeof *r->word;
#pragma omp parallel for schedule(static)
	for (int64_t i = 0; i < r->words; i++)
		r->word[i] = (uint64_t)i;
	return PLUMB_OK;
}

static void reader_close(struct cpu_reader *r)
{
	if (r->word)
		munmap(r->word, (size_t)r->words * sizeof *r->word);
}

/* Raise *speed to what CPU_READS readings reach, in bytes a second. */
static int reader_run(const struct cpu_reader *r, double *speed, struct plumb_error *err)
{
	const uint64_t n = (uint64_t)r->words;
	uint64_t sum = 0;

	for (int i = 0; i < CPU_READS; i++) {
		const double start = progress_now();
#pragma omp parallel for simd schedule(static) reduction(+ : sum)
		for (int64_t k = 0; k < r->words; k++)
			sum += r->word[k];
		const double seconds = progress_now() - start;
		if (seconds > 0.0)
			*speed = fmax(*speed, (double)(n * sizeof sum) / seconds);
	}
	if (sum != CPU_READS * (n * (n - 1) / 2))
		return plumb_fail(err, PLUMB_MISMATCH, "the buffer that measures reading adds up to another sum");
	return PLUMB_OK;
}

/* Bytes of the last cache; 0: not known. */
static int64_t cpu_cache_bytes(void)
{
	const long bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
	return bytes > 0 ? bytes : 0;
}

/* ---- one step that is watched: which calls there are, and what they move ---- */

struct watch {
	struct bench_run *run;
	struct progress *progress;
	int layers;
};

static int look(void *self, const struct plumb_call *call)
{
	struct watch *w = self;
	struct bench_op *o = &w->run->op[call->op];
	char where[48];

	snprintf(where, sizeof where, "layer %d of %d", call->layer < w->layers ? call->layer + 1 : w->layers, w->layers);
	progress_within(
		w->progress, 0, (double)(call->op == PLUMB_EMBED ? 0 : call->layer) / (w->layers + 1), 1, "token", where);
	o->runs = true;
	o->calls++;
	return plumb_traffic(call->env, call->op, call->args, &o->bytes);
}

static int count_bytes(struct plumb_decoder *d, struct bench_run *run, struct plumb_error *err)
{
	static const int32_t token = TOKEN;
	struct progress progress;
	struct watch w = {run, &progress, plumb_decoder_env(d)->cfg->layers};
	const struct plumb_observer observer = {look, NULL, &w};
	int status;

	progress_begin(&progress, true, "counting bytes");
	plumb_decoder_observe(d, &observer);
	status = plumb_decoder_step(d, &token, 1, err);
	plumb_decoder_observe(d, NULL);
	progress_end(&progress);
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		run->bytes.weights += run->op[i].bytes.weights;
		run->bytes.read += run->op[i].bytes.read;
		run->bytes.written += run->op[i].bytes.written;
	}
	return status;
}

/* ---- on cuda ---- */

static int time_graph(struct bench *b, struct session *s, struct plumb_graph *g, struct bench_run *run, double *us,
	struct plumb_error *err)
{
	const struct bench_options *o = b->options;
	struct plumb_graph_timing t = {.repeat = o->repeat, .microseconds = us};
	struct progress progress;
	bool chosen[PLUMB_OP_COUNT];
	int status;

	if (o->nvtx)
		plumb_device_range(s->device, "token");
	status = plumb_graph_time(g, &t, err);
	if (o->nvtx)
		plumb_device_range(s->device, NULL);
	if (status != PLUMB_OK)
		return status;
	run->token_us = median(us, o->repeat);
	run->launches = t.launches;
	progress_begin(&progress, true, "timing");
	for (int i = 0; i < PLUMB_OP_COUNT && status == PLUMB_OK; i++) {
		struct bench_op *op = &run->op[i];
		if (!op->runs || !o->op[i] || b->wrong[i])
			continue;
		memset(chosen, 0, sizeof chosen);
		chosen[i] = true;
		t.op = chosen;
		t.passes = (int)((CALLS_AT_LEAST + op->calls - 1) / op->calls);
		if (o->nvtx)
			plumb_device_range(s->device, plumb_ops[i].name);
		status = plumb_graph_time(g, &t, err);
		if (o->nvtx)
			plumb_device_range(s->device, NULL);
		if (status != PLUMB_OK)
			break;
		op->us = median(us, o->repeat) / (double)t.calls;
		op->launches = t.launches / t.passes;
		op->timed = true;
		progress_step(&progress, i + 1, PLUMB_OP_COUNT, "op");
	}
	progress_end(&progress);
	return status;
}

/* The steps before anything is timed; host_us: of one that is replayed, as its caller sees it. */
static int warm_up(struct plumb_graph *g, int64_t repeat, double *us, double *host_us, struct plumb_error *err)
{
	int32_t next = TOKEN;
	int status = PLUMB_OK;

	for (int i = 0; i < WARM_STEPS && status == PLUMB_OK; i++)
		status = plumb_graph_step(g, next < 0 ? TOKEN : next, &next, err);
	for (int64_t i = 0; i < repeat && status == PLUMB_OK; i++) {
		const double start = progress_now();
		status = plumb_graph_step(g, next < 0 ? TOKEN : next, &next, err);
		us[i] = 1e6 * (progress_now() - start);
	}
	*host_us = status == PLUMB_OK ? median(us, repeat) : 0.0;
	return status;
}

static int measure_cuda(struct bench *b, struct session *s, struct plumb_decoder *d, struct bench_run *run, double *us,
	struct plumb_error *err)
{
	struct plumb_graph *g = NULL;
	int status = plumb_graph_create(d, s->device, &g, err);

	if (status == PLUMB_OK && b->options->fuse)
		status = plumb_graph_fuse(g, b->options->fuse, err);
	if (status == PLUMB_OK)
		status = warm_up(g, b->options->repeat, us, &run->host_us, err);
	if (status == PLUMB_OK)
		status = time_graph(b, s, g, run, us, err);
	plumb_graph_destroy(g);
	return status;
}

/* ---- on a CPU ---- */

struct clock {
	const struct session *session;
	double us[PLUMB_OP_COUNT];
	int64_t launches[PLUMB_OP_COUNT];
};

static int timed_call(void *self, const struct plumb_call *call)
{
	struct clock *c = self;
	const struct plumb_device *device = c->session->all_opt ? c->session->device : NULL;
	const int64_t before = device ? plumb_device_launches(device) : 0;
	const double start = progress_now();
	const int status = call->binding->set->op[call->op](call->env, call->args);

	c->us[call->op] += 1e6 * (progress_now() - start);
	c->launches[call->op] += device ? plumb_device_launches(device) - before : 0;
	return status;
}

/* Bytes of a synthetic model's weights made so far; a checkpoint's are there. */
static int64_t made_so_far(const struct session *s)
{
	return s->synthetic ? plumb_synthetic_usage(s->synthetic).made : 0;
}

/* Each run is the step that was watched before: the state is filled anew, so the router chooses the same experts, whose
 * weights that step has made or read already. */
static int measure_cpu(struct bench *b, struct session *s, struct plumb_decoder *d, struct bench_run *run, double *us,
	struct plumb_error *err)
{
	static const int32_t token = TOKEN;
	const int64_t n = b->options->repeat, position = plumb_decoder_position(d);
	const bool small = bench_total(&run->bytes) < 2 * b->cache_bytes; /* from the cache whatever the ceiling is */
	double *of = calloc((size_t)n * PLUMB_OP_COUNT, sizeof *of);      /* (ops, n) */
	struct clock c = {.session = s};
	const struct plumb_runner runner = {timed_call, &c};
	struct cpu_reader reader = {0};
	struct progress progress;
	int status = of ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld times", (long long)n);

	if (status == PLUMB_OK)
		status = reader_open(&reader, small || 2 * b->cache_bytes < CPU_READ ? CPU_READ : 2 * b->cache_bytes, err);
	plumb_decoder_run_through(d, &runner);
	progress_begin(&progress, true, "timing");
	for (int64_t r = 0; r < n && status == PLUMB_OK; r++) {
		memset(c.us, 0, sizeof c.us);
		memset(c.launches, 0, sizeof c.launches);
		status = plumb_synthetic_context(d, position, (uint64_t)b->options->set.weight_seed, err);
		if (status == PLUMB_OK)
			status = reader_run(&reader, &b->ceiling, err);
		const int64_t made = made_so_far(s);
		const double start = progress_now();
		if (status == PLUMB_OK)
			status = plumb_decoder_step(d, &token, 1, err);
		us[r] = 1e6 * (progress_now() - start);
		run->made += made_so_far(s) - made;
		for (int i = 0; i < PLUMB_OP_COUNT; i++)
			of[i * n + r] = c.us[i];
		progress_step(&progress, r + 1, n, "token");
	}
	plumb_decoder_run_through(d, NULL);
	progress_end(&progress);
	reader_close(&reader);
	run->token_us = status == PLUMB_OK ? median(us, n) : 0.0;
	run->least_us = us[0]; /* median has sorted them */
	run->launches = s->all_opt ? 0 : -1;
	for (int i = 0; i < PLUMB_OP_COUNT && status == PLUMB_OK; i++) {
		struct bench_op *op = &run->op[i];
		op->launches = s->all_opt ? c.launches[i] : -1;
		run->launches += s->all_opt ? c.launches[i] : 0;
		op->timed = op->runs && b->options->op[i] && !b->wrong[i];
		op->us = op->timed ? median(of + i * n, n) / (double)op->calls : 0.0;
		op->least_us = op->timed ? of[i * n] / (double)op->calls : 0.0;
		op->warm = small;
	}
	free(of);
	return status;
}

/* ---- a context ---- */

static int measure_context(struct bench *b, struct session *s, struct bench_run *run, double *us, struct plumb_error *err)
{
	const struct bench_options *o = b->options;
	const uint64_t seed = (uint64_t)o->set.weight_seed;
	/* what is decoded before the timing begins at the context itself */
	const int64_t steps = b->cuda ? WARM_STEPS + o->repeat : 0, start = run->context > steps ? run->context - steps : 0;
	struct plumb_decoder_options options = o->decoder;
	struct plumb_decoder *d = NULL;
	int status;

	options.capacity = start + steps + SPARE;
	options.page_seed = (uint64_t)o->set.page_seed;
	if (options.capacity > s->model->cfg.max_positions)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--context is %lld, expected at most %lld (max_position_embeddings, and %d more)",
			(long long)run->context, (long long)s->model->cfg.max_positions - SPARE, SPARE);
	status = plumb_decoder_create(s->model, &s->plan, &options, &d, err);
	if (status == PLUMB_OK)
		status = plumb_synthetic_context(d, start + steps, seed, err);
	if (status == PLUMB_OK)
		status = count_bytes(d, run, err);
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		run->op[i].warm = bench_total(&run->op[i].bytes) < 2 * b->cache_bytes;
	if (status == PLUMB_OK)
		status = plumb_synthetic_context(d, start, seed, err);
	if (status == PLUMB_OK)
		status = b->cuda ? measure_cuda(b, s, d, run, us, err) : measure_cpu(b, s, d, run, us, err);
	plumb_decoder_destroy(d);
	return status;
}

int bench_measure(struct bench *b, struct session *s, struct plumb_error *err)
{
	const struct bench_options *o = b->options;
	const int64_t read = INT64_C(1) << 30;
	double *us = calloc((size_t)o->repeat + 1, sizeof *us);
	int status = us ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld times", (long long)o->repeat);

	if (status == PLUMB_OK && b->cuda)
		status = plumb_device_read_speed(s->device, read, READS, &b->ceiling, err);
	b->cache_bytes = b->cuda ? (int64_t)plumb_device_cache_bytes(s->device) : cpu_cache_bytes();
	for (int i = 0; i < o->contexts && status == PLUMB_OK; i++) {
		b->run[i].context = o->context[i];
		status = measure_context(b, s, &b->run[i], us, err);
	}
	free(us);
	return status;
}
