/* SPDX-License-Identifier: MIT */
/* plumb bisect: from "it diverges" to the op, the element and a case that replays. */
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "golden/h5_write.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tools/bisect.h"
#include "tools/bisect_report.h"
#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/html.h"
#include "tools/origin.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/session.h"
#include "tools/text.h"
#include "tools/tolerances.h"

#ifndef PLUMB_VERSION
#define PLUMB_VERSION "unknown"
#endif

enum { DEFAULT_STEPS = 8, MAX_SETS = 8, MARGIN_STEPS = 4096 };

struct bisect_command {
	struct set_options set;
	const char *golden, *tokens, *truth, *case_path, *json, *html, *tolerances, *date, *call;
	struct origin origin;
	int64_t steps, from, rows;
	bool exact, no_search;
	char command[1024]; /* the command line, for the case */
	/* after a crash */
	int64_t stop;
	bool stop_in_context;
	bool only_context; /* find out in which call the whole run dies */
	char died[512];    /* of what */
	struct bisect_mark *mark;
};

/* Whether the story goes to standard output, and no report does. */
static bool is_loud(const struct bisect_command *c)
{
	return (!c->json || strcmp(c->json, "-") != 0) && (!c->html || strcmp(c->html, "-") != 0);
}

/* Interrupted: no half file stays behind. */
static void interrupted(int number)
{
	/* NOLINTNEXTLINE(bugprone-signal-handler,cert-sig30-c): it calls nothing but unlink */
	plumb_h5_abandon();
	signal(number, SIG_DFL);
	raise(number);
}

/* ---- what is run ---- */

static int truth_of(const struct bisect_command *c, struct plumb_binding *out, struct plumb_error *err)
{
	const char *truth = c->truth ? c->truth : "twin";

	*out = (struct plumb_binding){.set = strcmp(truth, "oracle") == 0 ? &plumb_ref_oracle : &plumb_ref_twin};
	if (strcmp(truth, "twin") != 0 && strcmp(truth, "oracle") != 0 && strcmp(truth, "golden") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--truth is '%s', expected twin, oracle or golden", truth);
	if (strcmp(truth, "golden") == 0 && !c->golden)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--truth golden needs a golden file");
	return PLUMB_OK;
}

/* Ops that run from the reference are the truth's, in whatever mode the session has it. */
static void settle_reference(struct session *s, struct plumb_binding truth)
{
	size_t n = (size_t)(s->cfg->layers + 1) * PLUMB_OP_COUNT;
	for (size_t i = 0; i < n; i++)
		if (s->plan.binding[i].set == &plumb_ref_oracle || s->plan.binding[i].set == &plumb_ref_twin)
			s->plan.binding[i] = truth;
}

/* Tokens of the golden file or of --tokens. */
static int read_tokens(const struct bisect_command *c, const struct plumb_golden *golden, int32_t **out, int64_t *count,
	struct plumb_error *err)
{
	if (c->tokens)
		return options_tokens(c->tokens, out, count, err);
	*count = plumb_golden_tokens(golden);
	*out = malloc((size_t)*count * sizeof **out);
	if (!*out)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)*count);
	for (int64_t i = 0; i < *count; i++) {
		int64_t id = plumb_golden_input_ids(golden)[i];
		(*out)[i] =
			id < 0 || id > INT32_MAX ? -1 : (int32_t)id; /* the decoder names what is outside the vocabulary */
	}
	return PLUMB_OK;
}

static int check_lengths(const struct bisect_command *c, const struct session *s, int64_t tokens, struct plumb_error *err)
{
	if (c->from >= tokens)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--from is %lld, expected 0..%lld (the prompt has %lld tokens)",
			(long long)c->from, (long long)tokens - 1, (long long)tokens);
	if (c->rows < 1 || c->rows > 4096)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--rows is %lld, expected 1..4096", (long long)c->rows);
	if (tokens > s->cfg->max_positions || c->steps > s->cfg->max_positions - tokens)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%lld tokens and %lld steps, expected at most %lld positions "
			"(max_position_embeddings)",
			(long long)tokens, (long long)c->steps, (long long)s->cfg->max_positions);
	return PLUMB_OK;
}

/* Where *text begins with the mark, the number behind it; false: none is there. One that is too large is the largest. */
static bool number_behind(char mark, const char **text, long long *out)
{
	const char *number = *text + 1;
	char *end;

	if (**text != mark)
		return true;
	*out = strtoll(number, &end, 10);
	*text = end;
	return *number >= '0' && *number <= '9';
}

/* --call NAME[@LAYER][:POSITION]: a call whose case is written, right or wrong. */
static int parse_call(const struct bisect_command *c, struct bisect_options *o, struct plumb_error *err)
{
	char name[64];
	size_t length = strcspn(c->call, "@:");
	const char *rest = c->call + length;
	long long layer = -1, position = -1;

	snprintf(name, sizeof name, "%.*s", (int)length, c->call);
	if (text_op("--call", name, &o->wanted_op, err) != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	if (!number_behind('@', &rest, &layer) || !number_behind(':', &rest, &position) || *rest != '\0')
		return plumb_fail(err, PLUMB_BAD_INPUT, "--call is '%.80s', expected NAME[@LAYER][:POSITION]", c->call);
	o->wanted = true;
	o->wanted_layer = layer > INT_MAX ? INT_MAX : (int)layer;
	o->wanted_position = position;
	if (!c->case_path)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--call needs --case FILE.h5");
	return PLUMB_OK;
}

/* Whether a pass over the tokens begins there: passes of `rows` tokens over the prompt, then one for each decoded token. */
static bool is_call_position(const struct bisect_options *o, int64_t position)
{
	if (position < o->tokens)
		return position >= o->from && (position - o->from) % o->decoder.max_rows == 0;
	return position < o->tokens + o->steps;
}

/* Before anything runs: a call of --call that no suspect makes, and those that there are. */
static int check_call(const struct bisect_command *c, const struct bisect *b, struct plumb_error *err)
{
	const struct bisect_options *o = b->options;
	const char *name = plumb_ops[o->wanted_op].name;
	char prompt[96], decoded[64] = "", layers[200] = "";
	int64_t rows = o->decoder.max_rows, last = o->from + (o->tokens - 1 - o->from) / rows * rows;
	size_t n = 0;
	bool anywhere = false, here = false, fused = false;

	for (int l = 0; l <= o->model->cfg.layers; l++) {
		const int choice = bisect_choice_of(b, l, o->wanted_op);
		if (choice < 0)
			continue;
		if (b->choice[choice].ops > 1) {
			fused = true;
			continue;
		}
		if (n < sizeof layers)
			n += (size_t)snprintf(layers + n, sizeof layers - n, anywhere ? ", %d" : "%d", l);
		anywhere = true;
		here = here || o->wanted_layer < 0 || o->wanted_layer == l;
	}
	if (!anywhere && fused)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--call %.80s: %s runs as part of a fused entry, which has no case",
			c->call, name);
	if (!anywhere)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--call %.80s: no suspect makes that call, expected an op that --op or --set puts in place",
			c->call);
	if (!here)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--call %.80s: no suspect makes that call, expected %s in layer %s",
			c->call, name, layers);
	if (o->wanted_position < 0 || is_call_position(o, o->wanted_position))
		return PLUMB_OK;
	if (last == o->from)
		snprintf(prompt, sizeof prompt, "%lld", (long long)o->from);
	else
		snprintf(prompt, sizeof prompt, "%lld..%lld in steps of %lld (--rows)", (long long)o->from, (long long)last,
			(long long)rows);
	if (o->steps)
		snprintf(decoded, sizeof decoded, " or %lld..%lld", (long long)o->tokens,
			(long long)(o->tokens + o->steps - 1));
	return plumb_fail(err, PLUMB_BAD_INPUT, "--call %.80s: no suspect makes that call, expected position %s%s", c->call,
		prompt, decoded);
}

/* ---- the stages ---- */

/* The words that run one op as it was run here. */
static void replay_words(const struct bisect_command *c, const struct bisect *b, char *text, size_t size)
{
	const struct bisect_finding *f = b->findings ? &b->finding[0] : NULL;
	size_t n = (size_t)snprintf(text, size, "plumb replay %s", c->case_path);
	const char *name = f ? plumb_ops[f->op].name : NULL, *file = NULL;

	for (int i = 0; i < c->set.op.count && name; i++) {
		const char *item = c->set.op.item[i], *equals = strchr(item, '=');
		bool other = !equals || strcmp(equals + 1, "opt") == 0 || strcmp(equals + 1, "ref") == 0;
		if (!other && (strncmp(item, "all=", 4) == 0 || strncmp(item, "all@", 4) == 0 ||
				      (strncmp(item, name, strlen(name)) == 0 && strchr("@=", item[strlen(name)]))))
			file = equals + 1;
	}
	if (file)
		n += (size_t)snprintf(text + n, size - n, " --op %s=%s", name, file);
	else
		n += (size_t)snprintf(text + n, size - n, " --set opt");
	if (c->set.device && n < size)
		n += (size_t)snprintf(text + n, size - n, " --device %s", c->set.device);
	if (c->set.seed && n < size)
		snprintf(text + n, size - n, " --seed %lld", (long long)c->set.seed);
}

/* The case of a bias, which shows in sums over 64 tokens only: prompt and decoded tokens in one pass. Where that does
 * not show it either, the first call's case must be equal in every bit. */
static int capture_biased(struct bisect *b, struct bisect_options *o)
{
	const struct bisect_finding *f = b->findings ? &b->finding[0] : NULL;
	int findings = b->findings, rows = o->decoder.max_rows, status = PLUMB_OK;
	int64_t steps = o->steps, tokens = o->tokens, calls = b->calls;
	const int32_t *prompt = o->token;
	int32_t *all;

	if (!f || f->kind != BISECT_BIASED || f->T > 0)
		return PLUMB_OK;
	all = malloc((size_t)(tokens + steps) * sizeof *all);
	if (!all)
		return plumb_fail(b->err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)(tokens + steps));
	memcpy(all, prompt, (size_t)tokens * sizeof *all);
	memcpy(all + tokens, bisect_decoded(b), (size_t)steps * sizeof *all);
	b->only = bisect_choice_of(b, f->choice.layer, f->op);
	o->token = all;
	o->tokens = tokens + steps;
	o->steps = 0;
	o->decoder.max_rows = o->tokens - o->from < 4096 ? (int)(o->tokens - o->from) : 4096;
	status = bisect_local(b);
	if (status == PLUMB_OK && !b->case_written) {
		o->wanted = true;
		o->wanted_op = b->finding[0].op;
		o->wanted_layer = b->finding[0].choice.layer;
		o->wanted_position = -1;
		o->stop_exact = true;
		o->origin.finding = b->finding[0].text;
		status = bisect_local(b);
		o->wanted = false;
	}
	b->only = -1;
	b->findings = findings;
	b->calls = calls;
	o->token = prompt;
	o->tokens = tokens;
	o->steps = steps;
	o->decoder.max_rows = rows;
	free(all);
	return status;
}

/* A case of one row is the smaller one: once more over the culprit alone, token by token, if it is wrong there too. */
static int narrow_case(struct bisect *b, struct bisect_options *o)
{
	const struct bisect_finding *f = b->findings ? &b->finding[0] : NULL;
	int findings = b->findings, rows = o->decoder.max_rows, status;
	int64_t steps = o->steps, tokens = o->tokens, calls = b->calls;

	if (!b->case_written || !f || f->kind == BISECT_FAILED || f->kind == BISECT_BIASED || f->T == 1)
		return PLUMB_OK;
	b->only = bisect_choice_of(b, f->choice.layer, f->op);
	bool in_context = f->in_context; /* the list of findings may move */
	b->case_written = false;
	o->decoder.max_rows = 1;
	o->tokens = f->position + f->T < o->tokens ? f->position + f->T : o->tokens;
	o->steps = 0;
	status = in_context ? bisect_in_context(b, b->set[0]) : bisect_local(b);
	b->case_written = true; /* this one, or the one before */
	if (b->findings > findings)
		b->finding[0].token = b->finding[findings].token;
	b->findings = findings;
	b->calls = calls;
	b->only = -1;
	o->decoder.max_rows = rows;
	o->tokens = tokens;
	o->steps = steps;
	return status;
}

static int run_stages(const struct bisect_command *c, struct bisect *b, struct bisect_options *o, struct plumb_error *err)
{
	bool loud = is_loud(c) && !output_quiet(), *all = malloc((size_t)b->choices * sizeof *all);
	double start = progress_now();
	int status = all ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %d choices", b->choices);

	if (status == PLUMB_OK)
		memset(all, 1, (size_t)b->choices * sizeof *all);
	if (status == PLUMB_OK)
		status = bisect_local(b);
	b->seconds[0] = progress_now() - start;
	if (status == PLUMB_OK && loud)
		bisect_report_local(b);
	start = progress_now();
	if (status == PLUMB_OK && o->golden) { /* the assumption: the truth passes */
		status = bisect_run(b, NULL, &b->whole);
		if (status == PLUMB_OK && b->whole.fails)
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"the truth itself is not within tolerance of the golden file: %s", b->whole.text);
	}
	if (status == PLUMB_OK)
		status = bisect_run(b, all, &b->whole);
	for (int i = 1; i < b->repeats && b->flaky && status == PLUMB_OK && !b->whole.fails; i++)
		status = bisect_run(b, all, &b->whole);
	b->seconds[1] = progress_now() - start;
	if (status == PLUMB_OK && loud)
		bisect_report_whole(b);
	start = progress_now();
	if (status == PLUMB_OK && b->whole.fails && !c->no_search)
		status = bisect_search(b, MAX_SETS);
	b->seconds[2] = progress_now() - start;
	if (status == PLUMB_OK && b->sets && loud)
		bisect_report_sets(b);
	/* a set of which no member is wrong by itself: look at its calls in context */
	for (int s = 0; s < b->sets && status == PLUMB_OK; s++) {
		bool known = false;
		for (int i = 0; i < b->choices; i++)
			known = known || (b->set[s][i] && bisect_finding_of(b, i));
		if (!known)
			status = bisect_in_context(b, b->set[s]);
	}
	if (status == PLUMB_OK && !b->case_written && o->case_path)
		status = capture_biased(b, o);
	if (status == PLUMB_OK && o->case_path)
		status = narrow_case(b, o);
	if (status == PLUMB_OK && loud)
		bisect_report_inside(b);
	free(all);
	return status;
}

/* After a crash: its case, or the call in which the whole run dies. */
static int run_after_crash(const struct bisect_command *c, struct bisect *b, struct plumb_error *err)
{
	bool *all = malloc((size_t)b->choices * sizeof *all);
	int status;

	if (!all)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %d choices", b->choices);
	memset(all, 1, (size_t)b->choices * sizeof *all);
	status = c->stop_in_context || c->only_context ? bisect_in_context(b, all) : bisect_local(b);
	free(all);
	return status;
}

static void print_head(const struct bisect_command *c, const struct session *s, const struct bisect *b)
{
	const struct bisect_options *o = b->options;

	if (c->golden)
		printf("golden      %s (%lld tokens, then %lld decoded)\n", c->golden, (long long)o->tokens,
			(long long)o->steps);
	else
		printf("tokens      %lld, then %lld decoded\n", (long long)o->tokens, (long long)o->steps);
	if (c->set.checkpoint)
		printf("checkpoint  %s (%d layers)\n", c->set.checkpoint, s->cfg->layers);
	if (c->set.synthetic)
		printf("model       synthetic %s (%d layers)\n", c->set.synthetic, s->cfg->layers);
	printf("suspects    %d choices of layer and op: %s\n", b->choices, s->describes);
	printf("truth       %s%s; %s\n\n", o->truth.set == &plumb_ref_oracle ? "reference, oracle" : "reference, twin",
		o->golden ? ", and the golden file for whole runs" : "",
		o->exact ? "every bit must be equal" : "error bounds for calls, a tolerance for whole runs");
	fflush(stdout);
}

static int write_reports(const struct bisect_command *c, const cJSON *tree, struct plumb_error *err)
{
	char *text = c->json ? cJSON_Print(tree) : NULL;
	int status = PLUMB_OK;

	if (c->json)
		status = text ? output_file(c->json, text, strlen(text), err)
		              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", c->json);
	cJSON_free(text);
	if (status == PLUMB_OK && c->html)
		status = html_write(tree, c->html, err);
	return status;
}

/* A run that died: where, of what, and its case. */
static int write_failure(
	const struct bisect_command *c, const char *place, const char *why, const char *replay, struct plumb_error *err)
{
	cJSON *tree = cJSON_CreateObject();

	cJSON_AddStringToObject(tree, "format", "plumb bisect 1");
	origin_add(tree, &c->origin);
	cJSON_AddStringToObject(tree, "verdict", "fail");
	if (c->golden)
		cJSON_AddStringToObject(tree, "golden", c->golden);
	cJSON_AddStringToObject(tree, "place", place);
	cJSON_AddStringToObject(tree, "failure", why);
	if (replay) {
		cJSON_AddStringToObject(tree, "case", c->case_path);
		cJSON_AddStringToObject(tree, "replay", replay);
	}
	int status = write_reports(c, tree, err);
	cJSON_Delete(tree);
	return status;
}

/* Where the report ends: JSON, page and exit status. */
static int finish(const struct bisect_command *c, struct bisect *b, struct plumb_error *err)
{
	char replay[1024];
	int status = PLUMB_OK;

	replay_words(c, b, replay, sizeof replay);
	if (is_loud(c))
		bisect_report_verdict(b, c->case_path ? replay : NULL);
	if (c->json || c->html) {
		cJSON *tree = bisect_report_tree(b, c->case_path ? replay : NULL);
		if (c->set.checkpoint)
			cJSON_AddStringToObject(tree, "checkpoint", c->set.checkpoint);
		status = write_reports(c, tree, err);
		cJSON_Delete(tree);
	}
	return status != PLUMB_OK ? status : bisect_is_wrong(b) ? PLUMB_MISMATCH : PLUMB_OK;
}

/* Everything after the options. self: struct bisect_command. */
static int work(void *self, struct plumb_user_mark *mark)
{
	const struct bisect_command *c = self;
	struct plumb_error err = {""};
	struct plumb_golden *golden = NULL;
	struct plumb_tolerances *tolerances = NULL;
	struct session session = {0};
	struct bisect_options o = {0};
	struct check_options check = {0};
	struct bisect b = {0};
	int32_t *token = NULL;
	bool again = c->died[0] != '\0', user = session_wants_user(&c->set);
	int status = c->golden ? plumb_golden_open(c->golden, &golden, &err) : PLUMB_OK;

	signal(SIGINT, interrupted);
	signal(SIGTERM, interrupted);
	signal(SIGHUP, interrupted);
	if (status == PLUMB_OK)
		status = tolerances_open(c->tolerances, NULL, 0, "bisect", &tolerances, &err);
	if (status == PLUMB_OK)
		status = truth_of(c, &o.truth, &err);
	if (status == PLUMB_OK)
		status = options_policy(&c->set, &o.decoder.policy, &err);
	if (status == PLUMB_OK)
		status = options_ties(&c->set, PLUMB_TIES_LOWER, &o.decoder.ties, &err);
	if (status == PLUMB_OK)
		status = session_open_marked(&c->set, mark, &session, &err);
	if (status == PLUMB_OK)
		status = session_formats(&session, &c->set, &o.decoder, &err);
	if (status == PLUMB_OK)
		status = read_tokens(c, golden, &token, &o.tokens, &err);
	if (status == PLUMB_OK)
		status = check_lengths(c, &session, o.tokens, &err);
	if (status == PLUMB_OK && c->call)
		status = parse_call(c, &o, &err);
	if (status == PLUMB_OK) {
		settle_reference(&session, o.truth);
		o.model = session.model;
		o.suspects = &session.plan;
		o.runner = session_runner(&session);
		o.decoder.capacity = o.tokens + c->steps;
		o.decoder.page_seed = (uint64_t)c->set.page_seed;
		o.decoder.max_rows = (int)c->rows;
		o.decoder.all_logits = true;
		o.token = token;
		o.steps = c->steps;
		o.from = c->from;
		o.exact = c->exact || !user;
		o.tolerance = plumb_tolerances_find(tolerances, PLUMB_VIEW_PROPAGATED, o.decoder.policy, "logits")
		                      ->tolerance.max_rel_l2;
		o.fused = plumb_tolerances_find(tolerances, PLUMB_VIEW_LOCAL, o.decoder.policy, "")->tolerance;
		o.case_path = c->case_path;
		o.progress = !output_quiet();
		o.mark = c->mark;
		o.stop = again && !c->only_context ? c->stop : -1;
		o.origin = (struct plumb_case_origin){.suspect = session.describes,
			.truth = o.truth.set == &plumb_ref_oracle ? "reference, oracle" : "reference, twin",
			.producer = "plumb " PLUMB_VERSION,
			.command = c->command,
			.golden = c->golden,
			.date = c->date,
			.finding = again ? c->died : NULL};
		if (c->truth && strcmp(c->truth, "golden") == 0) {
			check = (struct check_options){.model = session.model,
				.golden = golden,
				.tolerances = tolerances,

				.policy = o.decoder.policy,
				.page_seed = o.decoder.page_seed,
				.formats = o.decoder,
				.last_layer = session.cfg->layers};
			status = options_ties(&c->set, PLUMB_TIES_LOWER, &check.ties, &err);
			check.plan = &session.plan;
			o.golden = &check;
			if (status == PLUMB_OK)
				status = check_fits(&check, &err);
		}
	}
	if (status == PLUMB_OK)
		status = bisect_begin(&b, &o, &err);
	b.from = &c->origin;
	if (status == PLUMB_OK && o.wanted)
		status = check_call(c, &b, &err);
	if (status == PLUMB_OK && again) {
		status = run_after_crash(c, &b, &err);
		status = status == PLUMB_OK ? (b.case_written ? PLUMB_OK : PLUMB_MISMATCH) : status;
	} else if (status == PLUMB_OK && o.wanted) {
		status = bisect_local(&b);
		if (status == PLUMB_OK && !b.case_written)
			status = plumb_fail(&err, PLUMB_BAD_INPUT, "--call %s: no suspect makes that call", c->call);
		else if (status == PLUMB_OK)
			printf("case    %s\n", c->case_path);
	} else if (status == PLUMB_OK) {
		if (is_loud(c) && !output_quiet())
			print_head(c, &session, &b);
		status = run_stages(c, &b, &o, &err);
		if (status == PLUMB_OK)
			status = finish(c, &b, &err);
	}
	if (err.text[0] && status != PLUMB_OK)
		fprintf(stderr, "plumb bisect: %s\n", err.text);
	bisect_end(&b);
	session_close(&session);
	plumb_tolerances_free(tolerances);
	plumb_golden_close(golden);
	free(token);
	return status;
}

/* The run died: say so, find the call if it is not known yet, and write its case before it is launched. */
static int after_crash(struct bisect_command *c, int status, const struct plumb_error *failure)
{
	const bool loud = is_loud(c);
	struct plumb_error again = {""}, err = {""};
	char place[64] = "", replay[1024] = "";

	if (!c->mark->under_way) { /* in a whole run: judge its calls one by one until it dies again */
		snprintf(c->died, sizeof c->died, "%.500s", failure->text);
		c->only_context = true;
		contain(work, c, c->set.timeout, &again);
		c->only_context = false;
	}
	if (c->mark->under_way) {
		const struct plumb_op_info *info = &plumb_ops[c->mark->op];
		snprintf(place, sizeof place, "%s, layer %d, position %lld", info->name, c->mark->layer,
			(long long)c->mark->position);
		snprintf(c->died, sizeof c->died, "%.500s", failure->text);
		c->stop = c->mark->number;
		c->stop_in_context = c->mark->in_context;
		if (loud)
			printf("%sFAIL%s  %s: %s\n", output_bad(), output_plain(), place, failure->text);
		if (c->case_path && contain(work, c, c->set.timeout, &again) == PLUMB_OK && !again.text[0])
			snprintf(replay, sizeof replay, "plumb replay %.800s --op %s=...", c->case_path, info->name);
		if (*replay && loud)
			printf("case    %s, written before the call\nreplay  %s\n", c->case_path, replay);
	} else if (loud) {
		printf("%sFAIL%s  %s\n", output_bad(), output_plain(), failure->text);
	}
	fflush(stdout);
	if ((c->json || c->html) && write_failure(c, place, failure->text, *replay ? replay : NULL, &err) != PLUMB_OK) {
		fprintf(stderr, "plumb bisect: %s\n", err.text);
		return PLUMB_BAD_INPUT;
	}
	return c->mark->op < PLUMB_OP_COUNT && place[0] ? PLUMB_MISMATCH : status;
}

static void keep_command(struct bisect_command *c, int argc, char **argv)
{
	size_t n = (size_t)snprintf(c->command, sizeof c->command, "plumb");
	for (int i = 0; i < argc && n < sizeof c->command; i++)
		n += (size_t)snprintf(c->command + n, sizeof c->command - n, " %s", argv[i]);
}

static int run(int argc, char **argv)
{
	static struct bisect_command c = {.set = {.mode = "twin", .timeout = CONTAIN_TIMEOUT, .once = true},
		.steps = DEFAULT_STEPS,
		.rows = 64,
		.stop = -1};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		SYNTHETIC_OPTIONS(&c.set),
		{"--truth", "twin|oracle|golden", OPTION_TEXT, &c.truth,
			"what suspects are held against (default twin); golden: the file decides whether a whole run "
			"fails"},
		{"--exact", NULL, OPTION_FLAG, &c.exact,
			"demand every bit of kernels from shared objects too (the opt set always must)"},
		{"--case", "FILE.h5", OPTION_TEXT, &c.case_path, "write the case of the first wrong call"},
		{"--call", "NAME[@LAYER][:POSITION]", OPTION_TEXT, &c.call,
			"only write the case of this call of a suspect, right or wrong"},
		{"--tokens", "1,2,3", OPTION_TEXT, &c.tokens, "the prompt, in place of the golden file's"},
		{"--steps", "N", OPTION_COUNT, &c.steps, "tokens decoded behind the prompt (default 8)"},
		{"--from", "N", OPTION_COUNT, &c.from, "tokens before position N are run once, by the truth"},
		{"--rows", "N", OPTION_COUNT, &c.rows, "rows of a pass over the prompt (default 64)"},
		{"--tolerances", "FILE", OPTION_TEXT, &c.tolerances, "other tolerances than the built-in ones"},
		{"--date", "TEXT", OPTION_TEXT, &c.date,
			"written into the case; without, cases are the same bytes every day"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write the findings to a file ('-': standard output)"},
		{"--html", "FILE", OPTION_TEXT, &c.html,
			"write a page to look at: one file, no network (docs/reading-a-report.md)"},
		{"--no-search", NULL, OPTION_FLAG, &c.no_search, "leave out the search for minimal sets"},
	};
	const char *operand[1];
	int operands = 0, status;
	struct plumb_error err = {""};
	bool done = false;

	status = options_parse(
		&command_bisect, table, sizeof table / sizeof table[0], argc, argv, operand, 1, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	output_colour(is_loud(&c));
	c.golden = operands ? operand[0] : NULL;
	if (status == PLUMB_OK && !c.golden && !c.tokens)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "a golden file, or --tokens, is needed; usage: plumb bisect %s",
			command_bisect.usage);
	const struct output_path out[] = {{"--json", c.json}, {"--html", c.html}, {"--case", c.case_path}};
	const char *const input[] = {c.golden, c.tolerances, c.set.profile};
	const struct output_inputs in = {input, 3, &c.set.op, c.set.checkpoint};
	if (status == PLUMB_OK)
		status = output_hdf5("--case", c.case_path, &err);
	if (status == PLUMB_OK)
		status = output_paths(out, 3, &in, &err);
	keep_command(&c, argc, argv);
	origin_begin(&c.origin, argc, argv, c.date);
	c.mark = mmap(NULL, sizeof *c.mark, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (status == PLUMB_OK && c.mark == MAP_FAILED)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "out of memory for a child process");
	if (status == PLUMB_OK) {
		status = contain(work, &c, c.set.timeout, &err);
		if (err.text[0])
			status = after_crash(&c, status, &err);
		err.text[0] = '\0';
	}
	if (err.text[0])
		fprintf(stderr, "plumb bisect: %s\n", err.text);
	origin_end(&c.origin);
	return status;
}

const struct command command_bisect = {
	.name = "bisect",
	.usage = "GOLDEN.h5|--tokens 1,2,3 --checkpoint DIR|--synthetic PRESET --set opt|--op NAME=opt|FILE.so... [--case "
		 "FILE.h5] "
		 "[options]",
	.brief = "find the layer, op and element that is wrong, and the smallest set that fails",
	.about = "Suspects are what --set opt and --op put in the place of the reference. Each of their calls is "
		 "judged on the reference's\n"
		 "inputs (local view); then the run as a whole; then, by switching suspects on and off, the smallest "
		 "set of (layer, op)\n"
		 "choices that makes it fail; and what is wrong inside the op. --case keeps the first wrong call for "
		 "plumb replay.\n"
		 "The opt set must give the bits of the reference's twin. Kernels from shared objects are held to the "
		 "error bounds of\n"
		 "their op, and whole runs to the tolerance of the logits, unless --exact says otherwise.",
	.examples = "  plumb bisect golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint --set opt --case wrong.h5\n"
		    "  plumb bisect golden/tiny/tiny.h5 --checkpoint DIR --op gdn_out_proj=./mine.so --case wrong.h5\n"
		    "  plumb bisect golden/tiny/tiny.h5 --checkpoint DIR --op all=./mine.so --exact --json found.json "
		    "--html found.html\n"
		    "  plumb bisect --synthetic full --profile served --tokens 1,2,3 --set opt --device cuda",
	.operands = "FILE.h5",
	.verbose = "all findings, not the first twelve",
	.run = run,
};
