/* SPDX-License-Identifier: MIT */
/* plumb run: greedy decode to token ids. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "opt/graph.h"
#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/progress.h"
#include "tools/session.h"

struct run_command {
	struct set_options set;
	const char *tokens;
	int64_t steps, capacity;
	bool stop_at_eos;
};

/* One more token: as a captured graph where everything runs from the opt set, else op by op. */
static int step(struct plumb_decoder *d, struct plumb_graph *graph, int32_t token, int32_t *next, struct plumb_error *err)
{
	int status = graph ? plumb_graph_step(graph, token, next, err) : plumb_decoder_step(d, &token, 1, err);
	if (status == PLUMB_OK && !graph)
		*next = plumb_decoder_tokens(d)[0];
	return status;
}

/* NaN among the last logits: argmax passes over them, a person should not. */
static int64_t count_nan(struct plumb_decoder *d, struct plumb_graph *graph, int64_t vocab, struct plumb_error *err)
{
	const float *logits = plumb_decoder_logits(d);
	int64_t n = 0;
	if (graph && plumb_graph_logits(graph, &logits, err) != PLUMB_OK)
		return -1;
	for (int64_t i = 0; i < vocab; i++)
		n += isnan(logits[i]) != 0;
	return n;
}

/* Decode greedily after the prompt and print the ids in one line, with commas between. */
static int decode(const struct run_command *c, const struct session *s, struct plumb_decoder *d, struct plumb_graph *graph,
	const int32_t *prompt, int64_t count, struct plumb_error *err)
{
	int32_t next = 0;
	struct progress progress;
	int status = PLUMB_OK;

	progress_begin(&progress, true, "run");
	for (int64_t t = 0; t < count && status == PLUMB_OK; t += 64) {
		status = plumb_decoder_step(d, prompt + t, count - t < 64 ? count - t : 64, err);
		progress_step(&progress, t + 64 < count ? t + 64 : count, count + c->steps, "token");
	}
	if (status == PLUMB_OK)
		next = plumb_decoder_tokens(d)[plumb_decoder_rows(d) - 1];
	for (int64_t i = 0; i < c->steps && status == PLUMB_OK; i++) {
		if (next < 0)
			status = plumb_fail(err, PLUMB_MISMATCH, "every logit after token %lld is NaN", (long long)(count + i - 1));
		if (status != PLUMB_OK)
			break;
		progress_end(&progress);
		printf("%s%d", i ? "," : "", next);
		fflush(stdout);
		if ((c->stop_at_eos && next == s->model->cfg.eos) || i + 1 == c->steps)
			break;
		status = step(d, graph, next, &next, err);
		int64_t nan = status == PLUMB_OK ? count_nan(d, graph, s->model->cfg.vocab, err) : 0;
		if (nan < 0)
			status = PLUMB_BAD_INPUT;
		else if (nan > 0 && nan < s->model->cfg.vocab)
			fprintf(stderr, "plumb run: %lld of %lld logits after token %lld are NaN\n", (long long)nan,
				(long long)s->model->cfg.vocab, (long long)(count + i));
		progress_step(&progress, count + i + 1, count + c->steps, "token");
	}
	progress_end(&progress);
	if (c->steps > 0)
		printf("\n");
	return status;
}

/* Everything after the options. self: struct run_command. */
static int work(void *self, struct plumb_user_mark *mark)
{
	const struct run_command *c = self;
	struct plumb_error err = {""};
	struct session session = {0};
	struct plumb_decoder *decoder = NULL;
	struct plumb_graph *graph = NULL;
	struct plumb_decoder_options o = {0};
	int32_t *prompt = NULL;
	int64_t count = 0;
	int status = options_tokens(c->tokens, &prompt, &count, &err);
	if (status == PLUMB_OK)
		status = options_policy(&c->set, &o.policy, &err);
	if (status == PLUMB_OK)
		status = options_ties(&c->set, PLUMB_TIES_LOWER, &o.ties, &err);
	if (status == PLUMB_OK) /* a wrong word is said before a checkpoint is opened */
		status = options_formats(&c->set, &o, &err);
	if (status == PLUMB_OK)
		status = session_open_marked(&c->set, mark, &session, &err);
	if (status == PLUMB_OK)
		status = session_formats(&session, &c->set, &o, &err);
	if (status == PLUMB_OK && session.requantised) { /* standard output is for tokens */
		char line[1024];
		fprintf(stderr, "plumb run: requantised %s\n", plumb_requantised_show(session.requantised, line, sizeof line));
	}
	if (status == PLUMB_OK && c->steps > session.model->cfg.max_positions - count)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--steps is %lld after %lld tokens, expected at most %lld positions in all "
			"(max_position_embeddings)", (long long)c->steps, (long long)count,
			(long long)session.model->cfg.max_positions);
	if (status == PLUMB_OK) {
		o.capacity = c->capacity ? c->capacity : count + c->steps;
		o.page_seed = (uint64_t)c->set.page_seed;
		status = plumb_decoder_create(session.model, &session.plan, &o, &decoder, &err);
	}
	if (status == PLUMB_OK)
		plumb_decoder_run_through(decoder, session_runner(&session));
	if (status == PLUMB_OK && session.all_opt && !session.guard)
		status = plumb_graph_create(decoder, session.device, &graph, &err);
	if (status == PLUMB_OK)
		status = decode(c, &session, decoder, graph, prompt, count, &err);
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb run: %s\n", err.text);
	plumb_graph_destroy(graph);
	plumb_decoder_destroy(decoder);
	session_close(&session);
	free(prompt);
	return status;
}

static int run(int argc, char **argv)
{
	struct run_command c = {.steps = 16, .set.timeout = CONTAIN_TIMEOUT};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		{"--tokens", "1,2,3", OPTION_TEXT, &c.tokens, "the prompt, as token ids"},
		{"--steps", "N", OPTION_COUNT, &c.steps, "tokens to decode (default 16)"},
		{"--capacity", "N", OPTION_COUNT, &c.capacity, "positions of the caches (default: prompt and steps)"},
		{"--stop-at-eos", NULL, OPTION_FLAG, &c.stop_at_eos, "end after the config's EOS token"},
	};
	const char *operand[1];
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(&command_run, table, sizeof table / sizeof table[0], argc, argv, operand, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && !c.tokens)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "--tokens is needed; usage: plumb run %s", command_run.usage);
	if (status != PLUMB_OK) {
		fprintf(stderr, "plumb run: %s\n", err.text);
		return status;
	}
	if (!session_wants_user(&c.set))
		return work(&c, NULL);
	status = contain(work, &c, c.set.timeout, &err);
	if (err.text[0])
		fprintf(stderr, "plumb run: %s\n", err.text);
	return status;
}

const struct command command_run = {
	.name = "run",
	.usage = "--checkpoint DIR --tokens 1,2,3 [--steps N] [options]",
	.brief = "decode greedily, token ids in, token ids out",
	.about = "Feeds the prompt, then decodes greedily (largest logit, lowest id among equals) and prints the new token ids.",
	.examples = "  plumb run --checkpoint golden/tiny/checkpoint --tokens 5,17,42 --steps 24\n"
		    "  plumb run --checkpoint DIR --tokens 5,17,42 --policy bf16 --stop-at-eos",
	.run = run,
};
