/* SPDX-License-Identifier: MIT */
/* plumb check: a decoder against a golden file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/check.h"
#include "tools/check_report.h"
#include "tools/check_shard.h"
#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/html.h"
#include "tools/origin.h"
#include "tools/output.h"
#include "tools/session.h"
#include "tools/tolerances.h"

struct check_command {
	struct set_options set;
	const char *golden;
	const char *view, *json, *junit, *tap, *html, *date, *tolerances, *shard_text;
	struct origin origin;
	struct shard shard;
	bool digest, bounds;
};

static int views_of(const char *text, bool wanted[2], struct plumb_error *err)
{
	bool both = !text || strcmp(text, "both") == 0;
	wanted[PLUMB_VIEW_LOCAL] = both || strcmp(text, "local") == 0;
	wanted[PLUMB_VIEW_PROPAGATED] = both || strcmp(text, "propagated") == 0;
	if (!wanted[0] && !wanted[1])
		return plumb_fail(err, PLUMB_BAD_INPUT, "--view is '%s', expected local, propagated or both", text);
	return PLUMB_OK;
}

static bool on_stdout(const char *path)
{
	return path && strcmp(path, "-") == 0;
}

/* Where the reports go, before anything runs. */
static int report_paths(const struct check_command *c, const char *golden, struct plumb_error *err)
{
	const struct output_path out[] = {
		{"--json", c->json}, {"--junit", c->junit}, {"--tap", c->tap}, {"--html", c->html}};
	const char *const input[] = {golden, c->tolerances, c->set.profile};
	const struct output_inputs in = {input, 3, &c->set.op, c->set.checkpoint};

	return output_paths(out, 4, &in, err);
}

/* Every report that is asked for. */
static int write_reports(const struct check_command *c, const struct check_report *report, struct plumb_error *err)
{
	int status = c->json ? check_report_json(report, c->json, err) : PLUMB_OK;

	if (status == PLUMB_OK && c->junit)
		status = check_report_junit(report, c->junit, err);
	if (status == PLUMB_OK && c->tap)
		status = check_shard_tap(report->shard, report->failure, c->tap, err);
	if (status == PLUMB_OK && c->html) {
		cJSON *tree = check_report_tree(report);
		status = html_write(tree, c->html, err);
		cJSON_Delete(tree);
	}
	return status;
}

/* --layers may leave out every layer that an --op is for. What runs before a layer is seen in it from the tokens on. */
static int see_ops(const struct check_command *c, const struct session *s, const bool wanted[2],
	const struct check_options *o, struct plumb_error *err)
{
	const int outside = s->cfg->layers;
	bool seen = !c->set.layers || c->set.op.count == 0;

	for (int l = 0; l <= outside; l++) {
		const bool compared = l >= o->first_layer && l <= o->last_layer;
		for (int op = 0; op < PLUMB_OP_COUNT && !seen; op++) {
			const bool before = l < o->first_layer || op == PLUMB_EMBED;
			seen = (compared || (before && wanted[PLUMB_VIEW_PROPAGATED])) &&
			       plumb_op_runs(s->cfg, (enum plumb_op)op, l) &&
			       session_is_asked(s, &c->set, (enum plumb_op)op, l);
		}
	}
	if (!seen)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--layers %s: --op %s is for others: nothing of it would be compared", c->set.layers,
			c->set.op.item[0]);
	return PLUMB_OK;
}

static int compare_and_report(const struct check_command *c, const char *path, struct session *session,
	struct plumb_golden *golden, const struct plumb_tolerances *tolerances, struct plumb_error *err)
{
	struct check_view view[2] = {{0}};
	bool wanted[2];
	const char *producer = plumb_golden_attribute(golden, "producer");
	char producer_line[160];
	struct check_options o = {
		.model = session->model,
		.plan = &session->plan,
		.runner = session_runner(session),
		.golden = golden,
		.tolerances = tolerances,
		.page_seed = (uint64_t)c->set.page_seed,
		.progress = !output_quiet(),
		.bounds = c->bounds,
	};
	struct check_report report = {
		.golden = path,
		.checkpoint = c->set.checkpoint,
		.set = session->describes,
		.tokens = plumb_golden_tokens(golden),
		.view = view,
		.verbose = output_verbosity(),
		.quiet = output_quiet(),
		.digest = c->digest,
		.layers = session->model->cfg.layers,
		.scanned = session->scanned,
		.requantised = session->requantised,
		.origin = &c->origin,
	};
	struct check_shard shard = {
		.shard = c->shard,
		.set = &c->set,
		.session = session,
		.golden = path,
		.layers = c->set.layers,
		.tolerances = c->tolerances,
		.bounds = c->bounds,
	};
	struct plumb_error text;
	int status = views_of(c->view, wanted, err);

	if (producer) { /* through plumb_fail, which makes control characters visible */
		plumb_fail(&text, PLUMB_OK, "%.140s", producer);
		for (unsigned char *p = (unsigned char *)text.text; *p; p++)
			if (*p >= 0x7f)
				*p = '?'; /* JSON wants UTF-8, a file promises nothing */
		snprintf(producer_line, sizeof producer_line, "%.150s", text.text);
		report.producer = producer_line;
	}
	if (status == PLUMB_OK)
		status = options_policy(&c->set, &o.policy, err);
	if (status == PLUMB_OK)
		status = options_ties(&c->set, plumb_golden_ties(golden), &o.ties, err);
	if (status == PLUMB_OK)
		status = session_formats(session, &c->set, &o.formats, err);
	report.other_formats =
		o.formats.state != PLUMB_F32 ||
		(o.formats.own_caches && o.formats.caches != (o.policy == PLUMB_POLICY_BF16 ? PLUMB_BF16 : PLUMB_F32));
	if (status == PLUMB_OK)
		status = options_layers(c->set.layers, session->model->cfg.layers, &o.first_layer, &o.last_layer, err);
	if (status == PLUMB_OK)
		status = see_ops(c, session, wanted, &o, err);
	if (status == PLUMB_OK)
		status = check_fits(&o, err);
	report.shard = &shard;
	report.ties = shard.ties = o.ties;
	shard.policy = o.policy;
	if (status == PLUMB_OK)
		status = check_shard_make(&shard, wanted, &o, err);
	for (int v = 0; v < 2 && status == PLUMB_OK; v++) {
		if (!wanted[v])
			continue;
		o.label = plumb_view_name((enum plumb_view)v);
		o.mine = v == PLUMB_VIEW_LOCAL ? shard.layer : NULL;
		if (!shard.view[v]) {
			shard.all[shard.views++] = &shard.rest[v];
			status = check_view_list(&o, (enum plumb_view)v, &shard.rest[v], err);
			continue;
		}
		shard.all[shard.views++] = &view[report.views];
		status = check_view_run(&o, (enum plumb_view)v, &view[report.views++], err);
	}
	if (status == PLUMB_OK) {
		if (!on_stdout(c->json) && !on_stdout(c->junit) && !on_stdout(c->html) &&
			!on_stdout(c->tap)) /* a report there stands alone */
			check_report_print(&report);
		status = write_reports(c, &report, err);
		if (status == PLUMB_OK)
			status = check_report_status(&report);
	}
	for (int v = 0; v < report.views; v++)
		check_view_free(&view[v]);
	check_shard_free(&shard);
	return status;
}

/* A run that did not get to its comparison: say why, and, when something compared was wrong, leave reports that say it too. */
static int failed(const struct check_command *c, int status, const struct plumb_error *why)
{
	const struct check_shard shard = {.shard = c->shard};
	const struct check_report report = {.golden = c->golden,
		.checkpoint = c->set.checkpoint,
		.failure = why->text,
		.shard = &shard,
		.origin = &c->origin};
	struct plumb_error err = {""};
	int written = PLUMB_OK;

	fprintf(stderr, "plumb check: %s\n", why->text);
	if (status == PLUMB_MISMATCH)
		written = write_reports(c, &report, &err);
	if (written != PLUMB_OK)
		fprintf(stderr, "plumb check: %s\n", err.text);
	return written == PLUMB_OK ? status : written;
}

/* Everything after the options. self: struct check_command. */
static int work(void *self, struct plumb_user_mark *mark)
{
	struct check_command *c = self;
	struct plumb_error err = {""};
	struct plumb_golden *golden = NULL;
	struct plumb_tolerances *tolerances = NULL;
	struct session session = {0};
	int status = plumb_golden_open(c->golden, &golden, &err);

	if (status == PLUMB_OK && !c->set.policy && !plumb_golden_has_run(golden, PLUMB_POLICY_F32))
		c->set.policy = "bf16"; /* the only run there is */
	if (status == PLUMB_OK) {
		struct plumb_h5 *const file = plumb_golden_file(golden);
		status = tolerances_open(c->tolerances, &file, 1, "check", &tolerances, &err);
	}
	if (status == PLUMB_OK)
		status = session_open_marked(&c->set, mark, &session, &err);
	if (status == PLUMB_OK)
		status = compare_and_report(c, c->golden, &session, golden, tolerances, &err);
	if (status != PLUMB_OK && err.text[0])
		status = failed(c, status, &err);
	session_close(&session);
	plumb_tolerances_free(tolerances);
	plumb_golden_close(golden);
	return status;
}

static int run(int argc, char **argv)
{
	struct check_command c = {.set.timeout = CONTAIN_TIMEOUT};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		{"--view", "local|propagated|both", OPTION_TEXT, &c.view,
			"recorded inputs for each op, or from the tokens on (default both)"},
		{"--layers", "A-B", OPTION_TEXT, &c.set.layers,
			"compare these layers only; 'out': what lies outside the layers"},
		{"--tolerances", "FILE", OPTION_TEXT, &c.tolerances,
			"other tolerances than the built-in ones ('plumb list tolerances')"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write everything that was measured; '-' is standard output"},
		{"--junit", "FILE", OPTION_TEXT, &c.junit, "write a JUnit report, one test case a tensor"},
		{"--tap", "FILE", OPTION_TEXT, &c.tap, "write a TAP report, one line a tensor"},
		SHARD_OPTION(&c.shard_text),
		{"--html", "FILE", OPTION_TEXT, &c.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
		{"--date", "TEXT", OPTION_TEXT, &c.date, "a date for the reports, which take none from the clock"},
		{"--digest", NULL, OPTION_FLAG, &c.digest,
			"print one digest of everything the set wrote; equal digests are equal bits"},
		{"--bounds", NULL, OPTION_FLAG, &c.bounds,
			"judge every op of the run by its derived error bound as well: ratio, rms, bias"},
		{"--once", NULL, OPTION_FLAG, &c.set.once,
			"run kernels of shared objects once, without guard zones; else each call runs twice"},
	};
	const char *operand[1] = {NULL};
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(
		&command_check, table, sizeof table / sizeof table[0], argc, argv, operand, 1, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 1)
		status = plumb_fail(
			&err, PLUMB_BAD_INPUT, "a golden file is needed; usage: plumb check %s", command_check.usage);
	if (status == PLUMB_OK)
		status = shard_parse(c.shard_text, &c.shard, &err);
	if (status == PLUMB_OK)
		status = report_paths(&c, operand[0], &err);
	if (status != PLUMB_OK) {
		fprintf(stderr, "plumb check: %s\n", err.text);
		return status;
	}
	c.golden = operand[0];
	c.set.compares = true;
	origin_begin(&c.origin, argc, argv, c.date);
	if (session_wants_user(&c.set))
		status = contain(work, &c, c.set.timeout, &err);
	else
		status = work(&c, NULL);
	if (err.text[0])
		status = failed(&c, status, &err);
	origin_end(&c.origin);
	return status;
}

const struct command command_check = {
	.name = "check",
	.usage = "GOLDEN.h5 --checkpoint DIR [options]",
	.brief = "compare a decoder, layer by layer, with golden tensors",
	.about = "Runs the decoder over the golden file's tokens and compares every recorded tensor.\n"
		 "In the local view each op is fed the recorded inputs, so an error shows where it is made; in the "
		 "propagated\n"
		 "view everything follows from the tokens, with cached decode and the greedy continuation at the end.",
	.examples =
		"  plumb check golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint\n"
		"  plumb check tiny.h5 --checkpoint DIR --policy bf16 --view local --verbose\n"
		"  plumb check tiny.h5 --checkpoint DIR --set opt --digest\n"
		"  plumb check tiny.h5 --checkpoint DIR --set opt --bounds\n"
		"  plumb check tiny.h5 --checkpoint DIR --set opt --kv-format fp8 --state-format f16 --bounds --digest\n"
		"  plumb check tiny.h5 --checkpoint DIR --op gdn_recurrence@0-2=opt --guard\n"
		"  plumb check tiny.h5 --checkpoint DIR --op attn_gate=./mine.so\n"
		"  plumb check tiny.h5 --checkpoint DIR --profile served --set opt --digest\n"
		"  plumb check tiny.h5 --checkpoint DIR --layers 3 --json report.json --junit report.xml\n"
		"  plumb check tiny.h5 --checkpoint DIR --op attn_gate=./mine.so --bounds --html report.html\n"
		"  plumb check tiny.h5 --checkpoint DIR --set opt --shard 2/4 --json shard2.json",
	.operands = "FILE.h5",
	.verbose = "one line a tensor instead of one a layer and stage; twice: what was demanded of each as well",
	.run = run,
};
