/* SPDX-License-Identifier: MIT */
/* plumb drift: the GDN state against binary64, token after token, by its format. */
#include <cJSON.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opt/device.h"
#include "ref/twin/twin.h"
#include "tools/commands.h"
#include "tools/drift.h"
#include "tools/json_number.h"
#include "tools/output.h"
#include "tools/progress.h"

struct drift_command {
	const char *set, *device, *format, *json;
	int64_t steps, seed, gpu, threads;
};

static int bind(
	const struct drift_command *c, struct plumb_device **device, struct plumb_binding *out, struct plumb_error *err)
{
	bool opt = c->set && strcmp(c->set, "opt") == 0;
	bool cuda = c->device && strcmp(c->device, "cuda") == 0;
	int status;

	if (c->set && !opt && strcmp(c->set, "ref") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--set is '%s', expected ref or opt", c->set);
	if (c->device && !cuda && strcmp(c->device, "simt") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--device is '%s', expected simt or cuda", c->device);
	if (c->device && !opt)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--device is for --set opt; the reference runs on the CPU");
	if (c->gpu > 1023)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--gpu is %lld, expected 0..1023", (long long)c->gpu);
	*out = (struct plumb_binding){.set = &plumb_ref_twin};
	if (!opt)
		return PLUMB_OK;
	const struct plumb_device_options options = {.ordinal = (int)c->gpu};
	status = plumb_device_open(cuda ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT, &options, device, err);
	if (status == PLUMB_OK)
		*out = (struct plumb_binding){.set = plumb_device_set(*device), .device = *device};
	return status;
}

static int choose_formats(const char *text, bool without[DRIFT_FORMATS], struct plumb_error *err)
{
	bool found = !text;
	for (int f = 0; f < DRIFT_FORMATS; f++) {
		without[f] = text && strcmp(text, plumb_format_name(drift_formats[f])) != 0;
		found = found || !without[f];
	}
	return found ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "--format is '%s', expected f32, f16 or bf16", text);
}

static void show_progress(void *self, int64_t done, int64_t total)
{
	progress_step(self, done, total, "token");
}

static bool within(const struct drift_figure *x)
{
	return x->state <= x->bound;
}

/* Figures that are beyond their bounds; NaN and Inf are. */
static int beyond(const struct drift *d, const bool without[DRIFT_FORMATS])
{
	int n = 0;
	for (int p = 0; p < d->points; p++)
		for (int f = 0; f < DRIFT_FORMATS; f++)
			for (int h = 0; h < DRIFT_CLASSES && !without[f]; h++)
				n += !within(&d->point[p].figure[f][h]);
	return n;
}

/* The figure that comes nearest to its bound; NaN and Inf are nearer than any. */
static double worst(const struct drift *d, const bool without[DRIFT_FORMATS], int *figures)
{
	double most = 0.0;
	*figures = 0;
	for (int p = 0; p < d->points; p++)
		for (int f = 0; f < DRIFT_FORMATS; f++)
			for (int h = 0; h < DRIFT_CLASSES && !without[f]; h++) {
				double part = d->point[p].figure[f][h].state / d->point[p].figure[f][h].bound;
				most = part <= most ? most : part;
				++*figures;
			}
	return most;
}

static void verdict(const struct drift *d, const bool without[DRIFT_FORMATS])
{
	int figures, bad = beyond(d, without);
	double most = worst(d, without, &figures);

	if (!output_quiet())
		printf("\n");
	printf("%s%s%s  %d states, %d beyond their bounds; worst %.2g of its bound\n", bad ? output_bad() : output_good(),
		bad ? "FAIL" : "pass", output_plain(), figures, bad, most);
}

static void print(const struct drift *d, const bool without[DRIFT_FORMATS], const char *runs, int64_t seed)
{
	printf("GDN state against binary64: one head of 128 x 128 a decay, seed %lld; %s\n"
	       "state, output: error in the 2-norm, relative; largest: of one element, as a part of the largest element;\n"
	       "of bound: the state's error as a part of what the declared arithmetic and the format allow\n",
		(long long)seed, runs);
	for (int h = 0; h < DRIFT_CLASSES; h++) {
		printf("\ndecay 1 - %.2e\n%8s", 1.0 - d->decay[h], "tokens");
		for (int f = 0; f < DRIFT_FORMATS; f++)
			if (!without[f])
				printf("  %4s %7s %8s %8s %8s", plumb_format_name(drift_formats[f]), "state", "output",
					"largest", "of bound");
		printf("\n");
		for (int p = 0; p < d->points; p++) {
			printf("%8lld", (long long)d->point[p].step);
			for (int f = 0; f < DRIFT_FORMATS; f++) {
				const struct drift_figure *x = &d->point[p].figure[f][h];
				if (!without[f])
					printf("  %12.2e %8.2e %8.2e %s%8.2e%s", x->state, x->output, x->largest,
						within(x) ? "" : output_bad(), x->state / x->bound, output_plain());
			}
			printf("\n");
		}
	}
}

static int write_json(const struct drift *d, const bool without[DRIFT_FORMATS], const char *runs, int64_t seed,
	const char *path, struct plumb_error *err)
{
	cJSON *root = cJSON_CreateObject(), *list;

	cJSON_AddStringToObject(root, "runs", runs);
	cJSON_AddNumberToObject(root, "seed", (double)seed);
	cJSON_AddBoolToObject(root, "pass", beyond(d, without) == 0);
	list = cJSON_AddArrayToObject(root, "figures");
	for (int h = 0; h < DRIFT_CLASSES; h++)
		for (int f = 0; f < DRIFT_FORMATS; f++)
			for (int p = 0; p < d->points && !without[f]; p++) {
				const struct drift_figure *x = &d->point[p].figure[f][h];
				cJSON *o = cJSON_CreateObject();
				cJSON_AddItemToArray(list, o);
				json_number(o, "decay", d->decay[h]);
				cJSON_AddStringToObject(o, "format", plumb_format_name(drift_formats[f]));
				json_number(o, "tokens", (double)d->point[p].step);
				json_number(o, "state", x->state);
				json_number(o, "output", x->output);
				json_number(o, "largest", x->largest);
				json_number(o, "bound", x->bound);
			}
	char *json = cJSON_Print(root);
	cJSON_Delete(root);
	int status = json ? output_file(path, json, strlen(json), err)
	                  : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JSON report");
	free(json);
	return status;
}

static int run(int argc, char **argv)
{
	struct drift_command c = {.steps = 65536, .seed = 1};
	const struct option table[] = {
		{"--steps", "N", OPTION_COUNT, &c.steps, "tokens, 1 to 65536 (default); figures after 1, 4, 16, ..."},
		{"--format", "f32|f16|bf16", OPTION_TEXT, &c.format, "one format of the state only (default: all three)"},
		{"--set", "ref|opt", OPTION_TEXT, &c.set, "the reference in its declared order (default) or the kernels"},
		{"--device", "simt|cuda", OPTION_TEXT, &c.device, "where the kernels run (default simt, the CPU)"},
		{"--gpu", "N", OPTION_COUNT, &c.gpu, "which GPU, for --device cuda"},
		{"--seed", "N", OPTION_COUNT, &c.seed, "of keys, queries, values and gates (default 1)"},
		{"--threads", "N", OPTION_COUNT, &c.threads, "threads (the figures do not change)"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write all figures; '-' is standard output"},
	};
	const char *operand[1];
	char runs[160];
	int operands, status;
	bool done;
	struct plumb_error err = {""};
	struct plumb_device *device = NULL;
	struct progress progress;
	struct drift_options o = {.self = &progress, .progress = show_progress};
	struct drift d;

	status = options_parse(
		&command_drift, table, sizeof table / sizeof table[0], argc, argv, operand, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	const struct output_path out = {"--json", c.json};
	o.steps = c.steps;
	o.seed = (uint64_t)c.seed;
	if (status == PLUMB_OK)
		status = choose_formats(c.format, o.without, &err);
	if (status == PLUMB_OK)
		status = output_paths(&out, 1, &(struct output_inputs){0}, &err);
	if (status == PLUMB_OK)
		status = bind(&c, &device, &o.binding, &err);
	if (status == PLUMB_OK && c.threads > 0)
		omp_set_num_threads((int)(c.threads < 1024 ? c.threads : 1024));
	if (status == PLUMB_OK) {
		progress_begin(&progress, true, "drift");
		status = drift_run(&o, &d, &err);
		progress_end(&progress);
	}
	if (status == PLUMB_OK) {
		snprintf(runs, sizeof runs, "%s%.120s", device ? "set opt on " : "set ref, mode twin",
			device ? plumb_device_description(device) : "");
		if (!output_quiet() && (!c.json || strcmp(c.json, "-") != 0))
			print(&d, o.without, runs, c.seed);
		if (!c.json || strcmp(c.json, "-") != 0)
			verdict(&d, o.without);
		if (c.json)
			status = write_json(&d, o.without, runs, c.seed, c.json, &err);
	}
	if (status == PLUMB_OK && beyond(&d, o.without))
		status = PLUMB_MISMATCH;
	if (err.text[0])
		fprintf(stderr, "plumb drift: %s\n", err.text);
	plumb_device_close(device);
	return status;
}

const struct command command_drift = {
	.name = "drift",
	.usage = "[--steps N] [options]",
	.brief = "how far the GDN state drifts from binary64, by its format",
	.about = "Runs the GDN recurrence for up to 65536 tokens, one head a decay class, with the state stored as f32, "
		 "f16 and bf16,\n"
		 "and beside it in binary64. An error is forgotten as fast as the state, so it ends at about u / (1 - "
		 "decay): the\n"
		 "longer the memory, the farther a narrow state goes. Exit status 1 when a state is farther than can be "
		 "derived.",
	.examples = "  plumb drift\n  plumb drift --steps 1024 --format f16\n  plumb drift --set opt --device cuda --json "
		    "drift.json",
	.operands = "",
	.run = run,
};
