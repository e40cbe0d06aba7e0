/* SPDX-License-Identifier: MIT */
/* plumb golden diff: two traces. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/golden.h"
#include "tools/golden_report.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/tolerances.h"

struct diff_command {
	const char *group, *rel_l2, *tolerances, *json, *ulp;
};

enum { MAX_ULP = 1 << 23 }; /* a factor of two, as in a tolerance file */

static int read_rel_l2(const char *text, double *out, struct plumb_error *err)
{
	char *end;
	errno = 0;
	*out = strtod(text, &end);
	if (errno || end == text || *end || !(*out >= 0.0 && *out <= 0.5))
		return plumb_fail(err, PLUMB_BAD_INPUT, "--rel-l2 is '%s', expected a number in 0..0.5", text);
	return PLUMB_OK;
}

static bool is_builtin(const struct diff_command *c)
{
	return strcmp(c->tolerances, "builtin") == 0;
}

/* One rule: what the options ask for. */
static int rule_of(const struct diff_command *c, struct diff_options *o, char demand[128], struct plumb_error *err)
{
	int status = PLUMB_OK;

	if ((c->ulp != NULL) + (c->rel_l2 != NULL) + (c->tolerances != NULL) > 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--ulp, --rel-l2 and --tolerances: expected one of them");
	o->rule = c->ulp ? DIFF_ULP : c->rel_l2 ? DIFF_REL_L2 : c->tolerances ? DIFF_TOLERANCES : DIFF_BITS;
	snprintf(demand, 128, "no bit may differ");
	if (c->ulp) {
		status = options_count("--ulp", c->ulp, MAX_ULP, &o->ulp, err);
		snprintf(demand, 128, "%lld ulp", (long long)o->ulp);
	} else if (c->rel_l2) {
		status = read_rel_l2(c->rel_l2, &o->rel_l2, err);
		snprintf(demand, 128, "relative L2 %g", o->rel_l2);
	} else if (c->tolerances) {
		snprintf(demand, 128, "propagated tolerances%s", is_builtin(c) ? "" : " of the file");
	}
	return status;
}

static int compare(const struct diff_command *c, const char *const path[2], struct plumb_error *err)
{
	struct plumb_h5 *file[2] = {NULL, NULL};
	struct plumb_tolerances *tolerances = NULL;
	struct diff diff = {0};
	struct diff_options o = {.group = c->group, .progress = !output_quiet()};
	char demand[128];
	struct golden_report report = {
		.command = "golden diff",
		.name_a = "A",
		.name_b = "B",
		.path_a = path[0],
		.path_b = path[1],
		.demand = demand,
		.diff = &diff,
		.verbose = output_verbosity() > 0,
		.quiet = output_quiet(),
	};
	const struct output_path out = {"--json", c->json};
	const char *const input[] = {path[0], path[1], c->tolerances};
	const struct output_inputs in = {.file = input, .files = 3};
	double start = progress_now();
	int status = rule_of(c, &o, demand, err);

	if (status == PLUMB_OK)
		status = output_paths(&out, 1, &in, err);
	for (int i = 0; i < 2 && status == PLUMB_OK; i++)
		status = plumb_h5_open(path[i], &file[i], err);
	if (status == PLUMB_OK && c->tolerances)
		status = tolerances_open(is_builtin(c) ? NULL : c->tolerances, file, 2, "golden diff", &tolerances, err);
	o.tolerances = tolerances;
	if (status == PLUMB_OK)
		status = diff_run(file[0], file[1], &o, &diff, err);
	report.seconds = progress_now() - start;
	if (status == PLUMB_OK) {
		golden_report_facts(&report, file[0], file[1]);
		if (!c->json || strcmp(c->json, "-") != 0)
			golden_report_print(&report);
		if (c->json)
			status = golden_report_json(&report, c->json, err);
		if (status == PLUMB_OK)
			status = diff_status(&diff);
	}
	diff_free(&diff);
	plumb_tolerances_free(tolerances);
	plumb_h5_close(file[1]);
	plumb_h5_close(file[0]);
	return status;
}

static int run(int argc, char **argv)
{
	struct diff_command c = {0};
	const struct option table[] = {
		{"--group", "fp32|bf16", OPTION_TEXT, &c.group, "tensors of this group only"},
		{"--ulp", "N", OPTION_TEXT, &c.ulp,
			"floats may be N steps of binary32 apart, choices equal as sets (default: no bit may differ)"},
		{"--rel-l2", "X", OPTION_TEXT, &c.rel_l2, "floats may differ by this relative L2, choices equal as sets"},
		{"--tolerances", "FILE", OPTION_TEXT, &c.tolerances,
			"the propagated rules of a tolerance file; 'builtin': those of plumb check"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write everything that was measured; '-' is standard output"},
	};
	const char *operand[2] = {NULL, NULL};
	struct plumb_error err = {""};
	int operands, status;
	bool done;

	status = options_parse(&command_golden_diff, table, sizeof table / sizeof table[0], argc, argv, operand, 2,
		&operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 2)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "two files are needed; usage: plumb golden diff %s",
			command_golden_diff.usage);
	if (status == PLUMB_OK)
		status = compare(&c, operand, &err);
	if (status != PLUMB_OK && err.text[0])
		fprintf(stderr, "plumb golden diff: %s\n", err.text);
	return status;
}

const struct command command_golden_diff = {
	.name = "golden diff",
	.usage = "A.h5 B.h5 [options]",
	.brief = "compare two traces, tensor by tensor",
	.about = "Compares every tensor of two traces in the order of a forward pass, so that the first divergence is "
		 "at the top.\n"
		 "Figures are of A against B. Tensors that are equal in every bit are not shown. Files of any size: "
		 "rows are streamed.",
	.examples = "  plumb golden diff before.h5 after.h5\n"
		    "  plumb golden diff a.h5 b.h5 --group fp32 --ulp 4\n"
		    "  plumb golden diff mine.h5 golden/tiny/tiny.h5 --tolerances builtin --json report.json",
	.operands = "FILE.h5",
	.verbose = "show tensors that are equal as well",
	.run = run,
};
