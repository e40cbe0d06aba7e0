/* SPDX-License-Identifier: MIT */
/* plumb golden make: options, prompt, plan. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tools/golden.h"
#include "tools/golden_maker.h"
#include "tools/golden_scratch.h"
#include "tools/output.h"
#include "tools/progress.h"

struct make_command {
	struct set_options set;
	const char *tokens, *prompt_from, *tensors, *date;
	const char *steps, *prefill; /* texts: not given differs from 0 */
	int64_t save_seconds;
	bool resume;
};

/* Everything that lives as long as the make. */
struct making {
	const struct make_command *c;
	struct plumb_golden *from; /* --prompt-from, or NULL */
	struct session session;
	struct golden_origin origin;
	struct golden_plan plan;
	struct golden_choice choice;
	int32_t *token;
	char *globs; /* --tensors, cut at its commas */
	enum plumb_ties ties;
	struct plumb_decoder_options formats;
};

/* Ids of the prompt, inside the vocabulary. */
static int find_prompt(struct making *m, struct plumb_error *err)
{
	const struct plumb_config *cfg = &m->session.model->cfg;
	int status = PLUMB_OK;

	if (!m->from) {
		status = options_tokens(m->c->tokens, &m->token, &m->plan.T, err);
	} else {
		m->plan.T = plumb_golden_tokens(m->from);
		m->token = malloc((size_t)m->plan.T * sizeof *m->token);
		if (!m->token)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld tokens", (long long)m->plan.T);
	}
	for (int64_t t = 0; t < m->plan.T && status == PLUMB_OK; t++) {
		int64_t id = m->from ? plumb_golden_input_ids(m->from)[t] : m->token[t];
		if (id < 0 || id >= cfg->vocab)
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s%s[%lld] is %lld, expected 0..%lld by the checkpoint's vocab_size",
				m->from ? plumb_golden_path(m->from) : "", m->from ? ": input_ids" : "--tokens",
				(long long)t, (long long)id, (long long)cfg->vocab - 1);
		m->token[t] = (int32_t)id;
	}
	if (status == PLUMB_OK && m->plan.T > cfg->max_positions)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%lld tokens, expected at most %lld (max_position_embeddings)",
			(long long)m->plan.T, (long long)cfg->max_positions);
	m->plan.token = m->token;
	return status;
}

static int add_run(struct making *m, enum plumb_policy policy, struct plumb_error *err)
{
	struct golden_run *run = &m->plan.run[m->plan.runs++];
	const struct plumb_config *cfg = &m->session.model->cfg;
	int64_t T = m->plan.T;
	int status = PLUMB_OK;

	run->policy = policy;
	run->steps = m->from ? golden_plan_greedy_of(m->from, policy) : 16;
	run->prefill = m->from ? golden_plan_prefill_of(m->from, policy) : 2 * T / 3;
	if (m->c->steps)
		status = options_count("--steps", m->c->steps, cfg->max_positions, &run->steps, err);
	if (status == PLUMB_OK && m->c->prefill)
		status = options_count("--prefill", m->c->prefill, T, &run->prefill, err);
	if (status == PLUMB_OK && run->steps > cfg->max_positions - T) {
		if (m->c->steps || m->from)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%lld steps after %lld tokens, expected at most %lld positions in all "
				"(max_position_embeddings)",
				(long long)run->steps, (long long)T, (long long)cfg->max_positions);
		run->steps = cfg->max_positions - T;
	}
	return status;
}

static int find_runs(struct making *m, struct plumb_error *err)
{
	const char *policy = m->c->set.policy;
	bool both = !policy || strcmp(policy, "both") == 0, f32 = both || strcmp(policy, "f32") == 0;
	bool bf16 = both || strcmp(policy, "bf16") == 0;
	int status = PLUMB_OK;

	if (!f32 && !bf16)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--policy is '%s', expected f32, bf16 or both", policy);
	if (!policy && m->from) {
		f32 = plumb_golden_has_run(m->from, PLUMB_POLICY_F32);
		bf16 = plumb_golden_has_run(m->from, PLUMB_POLICY_BF16);
	}
	if (f32)
		status = add_run(m, PLUMB_POLICY_F32, err);
	if (bf16 && status == PLUMB_OK)
		status = add_run(m, PLUMB_POLICY_BF16, err);
	return status;
}

/* --tensors and --layers. */
static int find_choice(struct making *m, struct plumb_error *err)
{
	struct golden_choice *c = &m->choice;
	int status = options_layers(m->c->set.layers, m->session.model->cfg.layers, &c->first_layer, &c->last_layer, err);

	if (status != PLUMB_OK || !m->c->tensors)
		return status;
	m->globs = strdup(m->c->tensors);
	if (!m->globs)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for --tensors");
	for (char *save = NULL, *g = strtok_r(m->globs, ",", &save); g; g = strtok_r(NULL, ",", &save)) {
		if (c->globs == GOLDEN_GLOBS)
			return plumb_fail(err, PLUMB_BAD_INPUT, "--tensors has more than %d patterns", GOLDEN_GLOBS);
		c->glob[c->globs++] = g;
	}
	if (c->globs == 0)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--tensors is empty, expected names or patterns with commas between");
	return PLUMB_OK;
}

/* Before the work: where the file goes. */
static int check_out(const struct make_command *c, const char *out, struct plumb_error *err)
{
	const struct output_path path = {"OUT", out};
	const char *const input[] = {c->prompt_from, c->set.profile};
	const struct output_inputs in = {input, 2, &c->set.op, c->set.checkpoint};
	int status = output_hdf5(path.option, path.path, err);

	return status == PLUMB_OK ? output_paths(&path, 1, &in, err) : status;
}

static int prepare(struct making *m, struct plumb_error *err)
{
	struct set_options set = m->c->set;
	int status = PLUMB_OK;

	if ((m->c->tokens != NULL) == (m->c->prompt_from != NULL))
		return plumb_fail(err, PLUMB_BAD_INPUT, "expected one of --tokens and --prompt-from");
	if (m->c->prompt_from)
		status = plumb_golden_open(m->c->prompt_from, &m->from, err);
	set.policy = NULL; /* "both" is ours */
	if (status == PLUMB_OK)
		status = session_open(&set, &m->session, err);
	if (status == PLUMB_OK)
		status = options_ties(&set, m->from ? plumb_golden_ties(m->from) : PLUMB_TIES_LOWER, &m->ties, err);
	if (status == PLUMB_OK)
		status = session_formats(&m->session, &set, &m->formats, err);
	if (status == PLUMB_OK)
		status = find_prompt(m, err);
	if (status == PLUMB_OK)
		status = find_runs(m, err);
	if (status == PLUMB_OK)
		status = find_choice(m, err);
	if (status == PLUMB_OK)
		status = golden_origin_make(&set, &m->session, m->ties, m->c->date, &m->origin, err);
	m->plan.cfg = status == PLUMB_OK ? &m->session.model->cfg : NULL;
	m->plan.origin = &m->origin;
	return status == PLUMB_OK ? golden_plan_make(&m->plan, &m->choice, err) : status;
}

static void report(const struct making *m, const char *out, const struct golden_made *made, double seconds)
{
	int tensors = 0;
	struct stat st = {.st_size = 0};

	for (int i = 0; i < m->plan.runs; i++)
		tensors += m->plan.run[i].tensors;
	stat(out, &st);
	if (made->nan)
		fprintf(stderr, "plumb golden make: %lld values are NaN; plumb check accepts none\n", (long long)made->nan);
	printf("%s: %lld tokens, %d run%s, %d tensors, %.1f MB; sha256 %s; %.2f s%s\n", out, (long long)m->plan.T,
		m->plan.runs, m->plan.runs == 1 ? "" : "s", tensors, (double)st.st_size / 1e6, made->sha256, seconds,
		made->resumed ? ", resumed" : "");
}

static int make(const struct make_command *c, const char *out, struct plumb_error *err)
{
	struct making m = {.c = c};
	struct golden_made made = {.sha256 = ""};
	double start = progress_now();
	int status = check_out(c, out, err);

	if (status == PLUMB_OK)
		status = prepare(&m, err);
	if (status == PLUMB_OK) {
		const struct golden_make make = {
			.out = out,
			.plan = &m.plan,
			.session = &m.session,
			.ties = m.ties,
			.formats = m.formats,
			.page_seed = (uint64_t)c->set.page_seed,
			.resume = c->resume,
			.progress = !output_quiet(),
			.save_seconds = (double)c->save_seconds,
			.label = "golden make",
		};
		golden_catch_signals();
		status = golden_make(&make, &made, err);
		if (made.note)
			fprintf(stderr, "plumb golden make: %s\n", made.note);
	}
	if (status == PLUMB_OK && !output_quiet())
		report(&m, out, &made, progress_now() - start);
	golden_plan_free(&m.plan);
	golden_origin_free(&m.origin);
	session_close(&m.session);
	plumb_golden_close(m.from);
	free(m.globs);
	free(m.token);
	return status;
}

static int run(int argc, char **argv)
{
	struct make_command c = {.save_seconds = 10};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		SYNTHETIC_OPTIONS(&c.set),
		{"--tokens", "1,2,3", OPTION_TEXT, &c.tokens, "the prompt, as token ids"},
		{"--prompt-from", "GOLDEN.h5", OPTION_TEXT, &c.prompt_from,
			"prompt, runs, steps, prefill and tie rule of that file, where no option says otherwise"},
		{"--steps", "N", OPTION_TEXT, &c.steps, "greedy tokens after the prompt (default 16; 0: none)"},
		{"--prefill", "N", OPTION_TEXT, &c.prefill,
			"decode_logits: N tokens at once, the rest one by one (default 2/3 of the prompt; all: none)"},
		{"--layers", "A-B", OPTION_TEXT, &c.set.layers,
			"tensors of these layers only; 'out': what lies outside the layers"},
		{"--tensors", "GLOB,...", OPTION_TEXT, &c.tensors,
			"tensors of these names only, such as 'layer*/output,logits' or 'layer03/**'"},
		{"--date", "TEXT", OPTION_TEXT, &c.date, "a date to record; the clock's is never taken"},
		{"--resume", NULL, OPTION_FLAG, &c.resume, "go on with what an earlier make left in OUT.part"},
		{"--save-seconds", "N", OPTION_COUNT, &c.save_seconds,
			"time between two points to go on from (default 10; 0: every step)"},
	};
	const char *operand[1] = {NULL};
	struct plumb_error err = {""};
	int operands, status;
	bool done;

	status = options_parse(&command_golden_make, table, sizeof table / sizeof table[0], argc, argv, operand, 1,
		&operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 1)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "a file to write is needed; usage: plumb golden make %s",
			command_golden_make.usage);
	if (status == PLUMB_OK)
		status = make(&c, operand[0], &err);
	if (status != PLUMB_OK && err.text[0])
		fprintf(stderr, "plumb golden make: %s\n", err.text);
	return status;
}

const struct command command_golden_make = {
	.name = "golden make",
	.usage = "OUT.h5 --checkpoint DIR|--synthetic PRESET --tokens 1,2,3|--prompt-from GOLDEN.h5 [options]",
	.brief = "record the tensors of a run",
	.about = "Runs the prompt, both policies unless --policy names one, and records every tensor of the golden "
		 "format with what\n"
		 "made it and checksums. The same command gives the same bytes. Rows go to OUT.h5.part as they are "
		 "computed; OUT.h5\n"
		 "appears when it is complete. A make that was stopped goes on with --resume.",
	.examples = "  plumb golden make tiny.h5 --checkpoint golden/tiny/checkpoint --prompt-from golden/tiny/tiny.h5\n"
		    "  plumb golden make layers.h5 --checkpoint DIR --tokens 5,17,42 --policy f32 --tensors "
		    "'layer*/output,logits'\n"
		    "  plumb golden make long.h5 --checkpoint DIR --prompt-from prompt.h5 --set opt --device cuda --resume",
	.operands = "FILE.h5",
	.run = run,
};
