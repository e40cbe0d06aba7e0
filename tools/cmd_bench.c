/* SPDX-License-Identifier: MIT */
/* plumb bench: every op and the whole token against their bytes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/fuse.h"
#include "tools/bench.h"
#include "tools/commands.h"
#include "tools/output.h"
#include "tools/text.h"

enum { REPEAT_CUDA = 20, REPEAT_CPU = 5, REPEAT_MOST = 100000, DEFAULT_CONTEXT = 4096 };

struct words {
	const char *contexts, *project, *shard;
	struct option_list op;
	int64_t repeat;
};

static int read_contexts(const char *text, struct bench_options *o, struct plumb_error *err)
{
	const char *p = text;

	do {
		char *end;
		const long long n = strtoll(p, &end, 10);
		if (end == p || *p < '0' || *p > '9' || n > INT32_MAX || (*end && *end != ','))
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "--context is '%.80s', expected positions with commas between", text);
		if (o->contexts == BENCH_CONTEXTS)
			return plumb_fail(err, PLUMB_BAD_INPUT, "--context has more than %d positions", BENCH_CONTEXTS);
		o->context[o->contexts++] = n;
		p = *end ? end + 1 : end;
	} while (*p);
	if (text[strlen(text) - 1] == ',')
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--context is '%.80s', expected positions with commas between", text);
	return PLUMB_OK;
}

static int read_ops(const struct option_list *list, struct bench_options *o, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		o->op[i] = list->count == 0;
	for (int i = 0; i < list->count && status == PLUMB_OK; i++) {
		enum plumb_op op;
		if (strchr(list->item[i], '='))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"--op is '%.100s', expected OP: the opt set is timed, and no shared object; one call of "
				"yours is by plumb replay CASE.h5 --op NAME=FILE.so --repeat N",
				list->item[i]);
		status = text_op("--op", list->item[i], &op, err);
		if (status == PLUMB_OK)
			o->op[op] = true;
	}
	return status;
}

/* What is left open: the optimised set, on a GPU where this build has one, the release's sizes there and small ones on a
 * CPU, held as they are served. */
static void complete(struct set_options *s)
{
#ifdef PLUMB_HAVE_CUDA
	const char *device = "cuda";
#else
	const char *device = "simt";
#endif
	if (!s->set)
		s->set = "opt";
	const bool opt = strcmp(s->set, "opt") == 0;
	if (opt && !s->device)
		s->device = device;
	if (s->checkpoint || s->synthetic)
		return;
	s->synthetic = opt && strcmp(s->device, "cuda") == 0 ? "full" : "small";
	if (!s->profile)
		s->profile = "served";
}

/* Now, not after minutes of other work. */
static int check_fuse(const struct bench_options *o, struct plumb_error *err)
{
	int fusions;

	return o->fuse ? plumb_fuse_parse(o->fuse, &fusions, err) : PLUMB_OK;
}

static int read_words(const struct words *w, struct bench_options *o, struct plumb_error *err)
{
	const struct output_path out[] = {{"--json", o->json}, {"--html", o->html}};
	struct set_options *s = &o->set;
	const char *const input[] = {o->compare, s->profile};
	const struct output_inputs in = {input, 2, NULL, s->checkpoint};
	int status;

	complete(s);
	const bool cuda = strcmp(s->set, "opt") == 0 && strcmp(s->device, "cuda") == 0;
	o->repeat = w->repeat >= 0 ? w->repeat : cuda ? REPEAT_CUDA : REPEAT_CPU;
	if (o->repeat < 1 || o->repeat > REPEAT_MOST)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--repeat is %lld, expected 1..%d", (long long)o->repeat, REPEAT_MOST);
	o->project = w->project != NULL;
	if (w->project && strcmp(w->project, "gb10") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--project is '%.40s', expected gb10", w->project);
	if (w->project && strcmp(s->set, "opt") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--project counts launches, which --set %.20s has none of", s->set);
	if (o->fuse && !cuda)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--fuse is part of a recorded token, which cuda alone has");
	status = check_fuse(o, err);
	if (status == PLUMB_OK)
		status = read_ops(&w->op, o, err);
	if (status == PLUMB_OK && w->contexts)
		status = read_contexts(w->contexts, o, err);
	else if (status == PLUMB_OK)
		o->context[o->contexts++] = DEFAULT_CONTEXT;
	if (status == PLUMB_OK)
		status = shard_parse(w->shard, &o->shard, err);
	if (status == PLUMB_OK)
		bench_share(o);
	if (status == PLUMB_OK)
		status = output_paths(out, 2, &in, err);
	if (status == PLUMB_OK)
		status = options_policy(s, &o->decoder.policy, err);
	if (status == PLUMB_OK)
		status = options_ties(s, PLUMB_TIES_LOWER, &o->decoder.ties, err);
	return status;
}

/* Whether an op that was asked for runs in the model at all. */
static int check_ops(
	const struct bench_options *o, const struct plumb_config *cfg, const struct words *w, struct plumb_error *err)
{
	for (int i = 0; i < PLUMB_OP_COUNT; i++) {
		bool runs = false;
		for (int l = 0; l <= cfg->layers; l++)
			runs = runs || plumb_op_runs(cfg, (enum plumb_op)i, l);
		if (w->op.count && o->op[i] && !runs)
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "--op %s: no layer of this model runs it", plumb_ops[i].name);
	}
	return PLUMB_OK;
}

static int bench(
	struct bench *b, struct bench_options *o, const struct words *w, struct bench_old *old, struct plumb_error *err)
{
	struct session s;
	int status;

	b->options = o;
	memset(&s, 0, sizeof s);
	if (o->set.synthetic)
		snprintf(b->model, sizeof b->model, "synthetic %.60s", o->set.synthetic);
	else
		snprintf(b->model, sizeof b->model, "checkpoint");
	status = o->compare ? bench_old_read(o->compare, old, err) : PLUMB_OK;
	if (status == PLUMB_OK)
		status = session_open(&o->set, &s, err);
	if (status == PLUMB_OK)
		status = session_formats(&s, &o->set, &o->decoder, err);
	if (status == PLUMB_OK)
		status = check_ops(o, &s.model->cfg, w, err);
	b->cuda = s.all_opt && s.device && plumb_device_is_cuda(s.device);
	snprintf(b->profile, sizeof b->profile, "%.60s", s.profile.name);
	snprintf(b->runs, sizeof b->runs, "%s", s.describes);
	if (status == PLUMB_OK)
		status = bench_check_ops(b, err);
	if (status == PLUMB_OK && s.all_opt && !o->quick)
		status = bench_check_digests(b, &s, err);
	if (status == PLUMB_OK)
		status = bench_measure(b, &s, err);
	const bool alone = (o->json && strcmp(o->json, "-") == 0) || (o->html && strcmp(o->html, "-") == 0);
	if (status == PLUMB_OK && !alone && !output_quiet()) /* a report on standard output stands alone */
		bench_print(b);
	if (status == PLUMB_OK && o->compare && !alone && !output_quiet())
		bench_compare(b, old);
	if (status == PLUMB_OK && (o->json || o->html))
		status = bench_write(b, o->compare ? old : NULL, err);
	if (status == PLUMB_OK && !alone)
		bench_verdict(b);
	if (status == PLUMB_OK)
		status = bench_status(b);
	session_close(&s);
	return status;
}

static int run(int argc, char **argv)
{
	struct bench_options o = {0};
	struct words w = {.repeat = -1};
	struct set_options *s = &o.set;
	const struct option table[] = {
		{"--checkpoint", "DIR", OPTION_TEXT, &s->checkpoint, "checkpoint folder, instead of a generated model"},
		SYNTHETIC_OPTIONS(s),
		{"--profile", "NAME|FILE", OPTION_TEXT, &s->profile, "its number formats: 'plumb list profiles'"},
		{"--context", "N,N,...", OPTION_TEXT, &w.contexts,
			"positions to measure at, with generated state (default 4096)"},
		{"--set", "ref|opt", OPTION_TEXT, &s->set, "which functions (default opt)"},
		{"--device", "simt|cuda", OPTION_TEXT, &s->device,
			"where opt runs (default cuda, where this build has it)"},
		{"--mode", "oracle|twin", OPTION_TEXT, &s->mode, "of the reference (default oracle)"},
		{"--policy", "f32|bf16", OPTION_TEXT, &s->policy, "where activations are rounded (default f32)"},
		{"--kv-format", "f32|bf16|fp8", OPTION_TEXT, &s->kv_format,
			"how keys and values are stored (default: as the policy)"},
		{"--state-format", "f32|f16", OPTION_TEXT, &s->state_format, "how the GDN state is stored (default f32)"},
		{"--op", "OP", OPTION_REPEAT, &w.op, "time these ops only"},
		{"--repeat", "N", OPTION_COUNT, &w.repeat, "runs of which the median is taken (default 20, on a CPU 5)"},
		{"--threads", "N", OPTION_COUNT, &s->threads, "threads of the reference"},
		{"--gpu", "N", OPTION_COUNT, &s->gpu, "which GPU"},
		{"--quick", NULL, OPTION_FLAG, &o.quick, "check the ops, but not the digests of whole runs that ship"},
		{"--project", "gb10", OPTION_TEXT, &w.project, "another card, computed from bytes and launches"},
		{"--fuse", "on|off|NAME,...", OPTION_TEXT, &o.fuse, "neighbours that are one launch (docs/performance.md)"},
		{"--nvtx", NULL, OPTION_FLAG, &o.nvtx, "name the ops to nsys and ncu"},
		{"--shard", "I/N", OPTION_TEXT, &w.shard,
			"of several contexts, measure part I of N only; 'plumb merge' joins the --json files"},
		{"--json", "FILE", OPTION_TEXT, &o.json, "write all figures"},
		{"--html", "FILE", OPTION_TEXT, &o.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
		{"--compare", "FILE", OPTION_TEXT, &o.compare, "show what changed against such a file"},
		{"--date", "TEXT", OPTION_TEXT, &o.date, "a date for the report, which takes none from the clock"},
	};
	const char *operand[1];
	int operands, status;
	bool done;
	struct plumb_error err = {""};
	struct bench *b = NULL;
	struct origin origin;
	struct bench_old *old = NULL;

	status = options_parse(
		&command_bench, table, sizeof table / sizeof table[0], argc, argv, operand, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK)
		status = read_words(&w, &o, &err);
	if (status == PLUMB_OK && (!(b = calloc(1, sizeof *b)) || !(old = calloc(1, sizeof *old))))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "out of memory for the results");
	origin_begin(&origin, argc, argv, o.date);
	o.origin = &origin;
	if (status == PLUMB_OK)
		status = bench(b, &o, &w, old, &err);
	if (err.text[0])
		fprintf(stderr, "plumb bench: %s\n", err.text);
	origin_end(&origin);
	free(old);
	free(b);
	return status;
}

const struct command command_bench = {
	.name = "bench",
	.usage = "[--synthetic PRESET] [--profile NAME] [--context N,N,...] [options]",
	.brief = "time every op and the whole token against the bytes that they have to move",
	.about = "Checks first, then times. Bytes of an op are what its contract makes it move (core/traffic.h): weights "
		 "that are\n"
		 "read, activations, rows of state and caches. On cuda all calls of one op in a token are recorded as one "
		 "graph\n"
		 "that runs back to back: the layers' weights take turns, so they come from memory unless all of them "
		 "together are\n"
		 "small (marked w). The ceiling is a kernel that only reads, measured in the same run. On a CPU times are "
		 "wall clock\n"
		 "around the calls, weights resident: a run repeats one that was not timed, from its state. A slower op is "
		 "told,\n"
		 "never an exit status: 0 measured, 1 wrong results.",
	.examples = "  plumb bench --synthetic full --profile served --context 4096,32768 --project gb10\n"
		    "  plumb bench --json new.json --html new.html --compare old.json --date 2026-01-31\n"
		    "  plumb bench --op moe_gate_up --op moe_down --repeat 100\n"
		    "  plumb bench --synthetic small --set ref --mode twin --context 1000",
	.operands = "",
	.run = run,
};
