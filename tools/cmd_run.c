/* SPDX-License-Identifier: MIT */
/* plumb run: greedy decode to token ids. */
#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "opt/graph.h"
#include "tools/commands.h"
#include "tools/contain.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/run_digest.h"
#include "tools/session.h"
#include "tools/shard.h"

enum { PASS = 64 }; /* tokens of the prompt that go through in one pass */

struct run_command {
	struct set_options set;
	const char *tokens, *digests, *expect, *json, *shard_text;
	struct option_list expected; /* expect is the one that runs */
	struct shard shard;
	int64_t steps, capacity, context;
	bool stop_at_eos, digest;
};

/* Everything of a run. */
struct run {
	const struct run_command *command;
	struct session session;
	struct plumb_decoder *decoder;
	struct plumb_graph *graph; /* NULL: op by op */
	struct run_expected expected;
	struct run_digests digests;
	struct run_facts facts;
	bool digesting;
	int32_t *prompt, *token;       /* token: decoded so far */
	int64_t prompts, tokens, done; /* done: tokens that went through */
	struct progress progress;
	double prompt_seconds, seconds;
};

/* ---- watching ---- */

static int before_op(void *self, const struct plumb_call *call)
{
	struct run *r = self;
	int layers = r->session.model->cfg.layers;
	char where[48];

	snprintf(where, sizeof where, "layer %d of %d", call->layer < layers ? call->layer + 1 : layers, layers);
	progress_within(&r->progress, r->done, (double)call->T * (call->op == PLUMB_EMBED ? 0 : call->layer) / (layers + 1),
		r->prompts + r->command->steps, "token", where);
	return PLUMB_OK;
}

static int after_op(void *self, const struct plumb_call *call)
{
	struct run *r = self;
	return r->digesting ? run_digests_call(&r->digests, call) : PLUMB_OK;
}

/* ---- decoding ---- */

/* One more token: as a captured graph where everything runs from the opt set, else op by op. */
static int step(struct run *r, int32_t token, int32_t *next, struct plumb_error *err)
{
	int status;

	r->digests.last = plumb_decoder_position(r->decoder);
	status = r->graph ? plumb_graph_step(r->graph, token, next, err) : plumb_decoder_step(r->decoder, &token, 1, err);
	if (status == PLUMB_OK && !r->graph)
		*next = plumb_decoder_tokens(r->decoder)[0];
	return status;
}

/* NaN among the last logits: argmax passes over them, a person should not. */
static int64_t count_nan(struct run *r, struct plumb_error *err)
{
	const float *logits = plumb_decoder_logits(r->decoder);
	int64_t n = 0;
	if (r->graph && plumb_graph_logits(r->graph, &logits, err) != PLUMB_OK)
		return -1;
	for (int64_t i = 0; i < r->session.model->cfg.vocab; i++)
		n += isnan(logits[i]) != 0;
	return n;
}

static int feed_prompt(struct run *r, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int64_t t = 0; t < r->prompts && status == PLUMB_OK; t += PASS) {
		int64_t rows = r->prompts - t < PASS ? r->prompts - t : PASS;
		r->digests.last = plumb_decoder_position(r->decoder) + rows - 1;
		status = plumb_decoder_step(r->decoder, r->prompt + t, rows, err);
		r->done = t + rows;
		progress_step(&r->progress, r->done, r->prompts + r->command->steps, "token");
	}
	return status;
}

/* Whether standard output is for people, and not one of the files. */
static bool is_loud(const struct run_command *c)
{
	return !(c->json && strcmp(c->json, "-") == 0) && !(c->digests && strcmp(c->digests, "-") == 0);
}

/* With --quiet the verdict of a comparison is all that is asked for. */
static bool prints_tokens(const struct run_command *c)
{
	return is_loud(c) && !(output_quiet() && c->expect);
}

/* Decode greedily after the prompt and print the ids in one line, with commas between. */
static int decode(struct run *r, struct plumb_error *err)
{
	const struct run_command *c = r->command;
	int64_t vocab = r->session.model->cfg.vocab, eos = r->session.model->cfg.eos;
	int32_t next = 0;
	double start = progress_now();
	int status;

	progress_begin(&r->progress, true, "run");
	status = feed_prompt(r, err);
	r->prompt_seconds = progress_now() - start;
	if (status == PLUMB_OK)
		next = plumb_decoder_tokens(r->decoder)[plumb_decoder_rows(r->decoder) - 1];
	for (int64_t i = 0; i < c->steps && status == PLUMB_OK; i++) {
		if (next < 0)
			status = plumb_fail(err, PLUMB_MISMATCH, "every logit after token %lld is NaN",
				(long long)(r->prompts + i - 1));
		if (status != PLUMB_OK)
			break;
		progress_end(&r->progress);
		if (prints_tokens(c)) {
			printf("%s%d", i ? "," : "", next);
			output_line();
		}
		r->token[r->tokens++] = next;
		if ((c->stop_at_eos && next == eos) || i + 1 == c->steps)
			break;
		status = step(r, next, &next, err);
		r->done++;
		int64_t nan = status == PLUMB_OK ? count_nan(r, err) : 0;
		if (nan < 0)
			status = PLUMB_BAD_INPUT;
		else if (nan > 0 && nan < vocab)
			fprintf(stderr, "%splumb run: %lld of %lld logits after token %lld are NaN\n",
				output_line_shared() ? "\n" : "", (long long)nan, (long long)vocab,
				(long long)(r->prompts + i));
		progress_step(&r->progress, r->done, r->prompts + c->steps, "token");
	}
	progress_end(&r->progress);
	r->seconds = progress_now() - start;
	output_line_end();
	return status;
}

/* ---- results ---- */

static void print_digests(const struct run *r)
{
	struct plumb_digest d;
	char text[33];

	for (int64_t p = 0; p < r->done; p++) {
		d = run_digests_token(&r->digests, r->digests.first + p);
		printf("digest token %lld %s\n", (long long)p, plumb_digest_show(&d, text));
	}
	d = run_digests_total(&r->digests);
	printf("digest total %s\n", plumb_digest_show(&d, text));
}

static cJSON *json_of(const struct run *r)
{
	struct rusage usage = {0};
	struct plumb_digest total = run_digests_total(&r->digests);
	char hex[33];
	cJSON *tree = cJSON_CreateObject();

	(void)getrusage(RUSAGE_SELF, &usage);
	cJSON_AddStringToObject(tree, "model", r->facts.model);
	cJSON_AddStringToObject(tree, "profile", r->facts.profile);
	cJSON_AddStringToObject(tree, "set", r->session.describes);
	cJSON_AddItemToObject(tree, "tokens", cJSON_CreateIntArray(r->token, (int)r->tokens));
	cJSON_AddNumberToObject(tree, "prompt_tokens", (double)r->prompts);
	cJSON_AddNumberToObject(tree, "prompt_seconds", r->prompt_seconds);
	cJSON_AddNumberToObject(tree, "seconds_per_token",
		r->done > r->prompts ? (r->seconds - r->prompt_seconds) / (double)(r->done - r->prompts) : 0.0);
	cJSON_AddNumberToObject(tree, "processor_seconds",
		(double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
			1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec));
	cJSON_AddNumberToObject(tree, "peak_memory_bytes", (double)usage.ru_maxrss * 1024.0); /* Linux: KiB */
	if (r->session.synthetic) {
		struct plumb_synthetic_usage u = plumb_synthetic_usage(r->session.synthetic);
		cJSON *weights = cJSON_AddObjectToObject(tree, "weights");
		cJSON_AddNumberToObject(weights, "address_space_bytes", (double)u.reserved);
		cJSON_AddNumberToObject(weights, "peak_resident_bytes", (double)u.peak);
		cJSON_AddNumberToObject(weights, "made_bytes", (double)u.made);
		cJSON_AddNumberToObject(weights, "dropped_matrices", (double)u.dropped);
	}
	if (r->digesting)
		cJSON_AddStringToObject(tree, "digest", plumb_digest_show(&total, hex));
	return tree;
}

/* What this shard ran, for plumb merge. list: its runs; whole: the only one there is. */
static int write_json(const struct run_command *c, cJSON *list, int verdict, struct plumb_error *err)
{
	const int files = c->expected.count;
	cJSON *top = files > 1 ? cJSON_CreateObject() : cJSON_DetachItemFromArray(list, 0);
	const cJSON *runs = files > 1 ? cJSON_AddArrayToObject(top, "runs") : NULL;
	cJSON *o = shard_json(top, "run", &c->shard, files > 1 ? files : 1);
	char name[32], *text;
	int status;

	shard_json_input(o, "set", c->set.set ? c->set.set : "ref");
	shard_json_input(o, "mode", c->set.mode ? c->set.mode : "oracle");
	shard_json_input(o, "device", c->set.device ? c->set.device : "");
	for (int i = 0; i < files; i++) {
		snprintf(name, sizeof name, "expected %d", i + 1);
		shard_json_file(o, name, c->expected.item[i]);
	}
	for (cJSON *r = files > 1 ? list->child : top, *next; r; r = next) {
		const cJSON *failure = cJSON_GetObjectItemCaseSensitive(r, "failure");
		const cJSON *unit = cJSON_GetObjectItemCaseSensitive(r, "unit");
		int k = cJSON_IsNumber(unit) ? unit->valueint : 0;
		next = files > 1 ? r->next : NULL;
		shard_json_unit(o, k, files ? c->expected.item[k] : "decode", failure ? SHARD_FAIL : SHARD_PASS,
			failure ? failure->valuestring : NULL);
	}
	while (runs && list->child)
		cJSON_AddItemToArray(cJSON_GetObjectItemCaseSensitive(top, "runs"), cJSON_DetachItemFromArray(list, 0));
	shard_json_status(o, verdict);
	text = cJSON_Print(top);
	status = text ? output_file(c->json, text, strlen(text), err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "%s: no memory for its text", c->json);
	cJSON_free(text);
	cJSON_Delete(top);
	return status;
}

/* list: results for --json, or NULL. */
static int finish(struct run *r, cJSON *list, struct plumb_error *err)
{
	const struct run_command *c = r->command;
	cJSON *json = NULL;
	int status = PLUMB_OK;

	r->facts.token = r->token;
	r->facts.tokens = r->tokens;
	if (c->digest && is_loud(c))
		print_digests(r);
	if (c->digests)
		status = run_digests_write(c->digests, &r->digests, r->done, &r->facts, err);
	if (list && status == PLUMB_OK)
		cJSON_AddItemToArray(list, json = json_of(r));
	if (c->expect && status == PLUMB_OK) {
		status = run_expected_compare(&r->expected, c->expect, &r->digests, r->done, &r->facts, err);
		if (status == PLUMB_OK && is_loud(c))
			printf("%spass%s  as expected: %lld tokens, %d layers, total %s\n", output_good(), output_plain(),
				(long long)r->done, r->digests.layers, r->expected.total);
		else if (status == PLUMB_MISMATCH && json)
			cJSON_AddStringToObject(json, "failure", err->text);
	}
	return status;
}

/* ---- options ---- */

/* What the command line leaves open is as in the file. */
static int take_expected(struct run_command *c, struct run *r, struct plumb_error *err)
{
	static const char synthetic[] = "synthetic ";
	const struct run_facts *f = &r->expected.facts;
	int status = run_expected_read(c->expect, &r->expected, err);

	if (status != PLUMB_OK)
		return status;
	if (!c->set.checkpoint && !c->set.synthetic && strncmp(f->model, synthetic, sizeof synthetic - 1) == 0) {
		c->set.synthetic = f->model + sizeof synthetic - 1;
		c->set.weight_seed = f->weight_seed;
		if (!c->set.profile && *f->profile)
			c->set.profile = f->profile;
	}
	if (!c->set.policy)
		c->set.policy = f->policy;
	if (c->steps < 0)
		c->steps = f->tokens;
	if (c->context < 0)
		c->context = f->context;
	if (c->capacity < 0)
		c->capacity = f->capacity;
	if (!c->set.kv_format && strcmp(f->caches, "policy") != 0)
		c->set.kv_format = f->caches;
	if (!c->set.state_format)
		c->set.state_format = f->state;
	if (c->tokens)
		return PLUMB_OK;
	r->prompts = f->prompts;
	r->prompt = malloc((size_t)f->prompts * sizeof *r->prompt + 1);
	if (!r->prompt)
		return plumb_fail(err, PLUMB_BAD_INPUT, "no memory for a prompt of %lld tokens", (long long)f->prompts);
	memcpy(r->prompt, f->prompt, (size_t)f->prompts * sizeof *r->prompt);
	return PLUMB_OK;
}

static int read_options(struct run_command *c, struct run *r, struct plumb_decoder_options *o, struct plumb_error *err)
{
	const struct output_path out[] = {{"--digests", c->digests}, {"--json", c->json}};
	const char *const input[] = {c->expect, c->set.profile};
	const struct output_inputs in = {input, 2, &c->set.op, c->set.checkpoint};
	int status = PLUMB_OK;

	if (c->expect)
		status = take_expected(c, r, err);
	if (c->steps < 0)
		c->steps = 16;
	if (c->context < 0)
		c->context = 0;
	if (status == PLUMB_OK && !c->tokens && !r->prompt)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "--tokens is needed; usage: plumb run %s", command_run.usage);
	if (status == PLUMB_OK && c->tokens)
		status = options_tokens(c->tokens, &r->prompt, &r->prompts, err);
	if (status == PLUMB_OK && r->prompts < 1)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "the prompt is empty, expected at least one token");
	if (status == PLUMB_OK)
		status = output_paths(out, 2, &in, err);
	if (status == PLUMB_OK)
		status = options_policy(&c->set, &o->policy, err);
	if (status == PLUMB_OK)
		status = options_ties(&c->set, PLUMB_TIES_LOWER, &o->ties, err);
	if (status == PLUMB_OK) /* a wrong word is said before a model is opened; its profile's formats come later */
		status = options_formats(&c->set, o, err);
	return status;
}

/* Room for everything that is asked for. */
static int check_length(const struct run_command *c, const struct run *r, struct plumb_error *err)
{
	int64_t most = r->session.model->cfg.max_positions, needed;

	if (r->prompts > most)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%lld tokens, expected at most %lld (max_position_embeddings)",
			(long long)r->prompts, (long long)most);
	if (c->context > most - r->prompts)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--context is %lld before %lld tokens, expected at most %lld positions in all "
			"(max_position_embeddings)",
			(long long)c->context, (long long)r->prompts, (long long)most);
	if (c->steps > most - r->prompts - c->context)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--steps is %lld after %lld tokens, expected at most %lld positions in all "
			"(max_position_embeddings)",
			(long long)c->steps, (long long)(c->context + r->prompts), (long long)most);
	needed = c->context + r->prompts + (c->steps > 0 ? c->steps - 1 : 0); /* the last token is not fed again */
	/* that of an expected file goes with its length; where the command line changes the length, the comparison says so */
	if (c->capacity >= 0 && c->capacity < needed && !(c->expect && c->capacity == r->expected.facts.capacity))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--capacity is %lld, expected at least %lld positions: %lld tokens and %lld steps, the last of "
			"which "
			"needs none",
			(long long)c->capacity, (long long)needed, (long long)(c->context + r->prompts),
			(long long)c->steps);
	return PLUMB_OK;
}

static int open_run(struct run_command *c, struct run *r, struct plumb_decoder_options *o, char model[80],
	struct plumb_user_mark *mark, struct plumb_error *err)
{
	struct session *s = &r->session;
	struct plumb_observer observer = {before_op, after_op, r};
	int status = session_open_marked(&c->set, mark, s, err);

	if (status == PLUMB_OK && s->requantised) { /* standard output is for tokens */
		char line[1024];
		fprintf(stderr, "plumb run: requantised %s\n", plumb_requantised_show(s->requantised, line, sizeof line));
	}
	if (status == PLUMB_OK)
		status = session_formats(s, &c->set, o, err);
	if (status == PLUMB_OK)
		status = check_length(c, r, err);
	if (status != PLUMB_OK)
		return status;
	int64_t asked = c->capacity >= 0 ? c->capacity : c->context + r->prompts + c->steps;
	o->capacity = asked;
	o->page_seed = (uint64_t)c->set.page_seed;
	status = plumb_decoder_create(s->model, &s->plan, o, &r->decoder, err);
	r->token = calloc((size_t)c->steps + 1, sizeof *r->token);
	if (status == PLUMB_OK && !r->token)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "no memory for %lld tokens", (long long)c->steps);
	if (status == PLUMB_OK && c->context > 0)
		status = plumb_synthetic_context(r->decoder, c->context, (uint64_t)c->set.weight_seed, err);
	if (status == PLUMB_OK && r->digesting)
		status = run_digests_create(s->model->cfg.layers, c->context, r->prompts + c->steps, &r->digests, err);
	if (status != PLUMB_OK)
		return status;
	snprintf(model, 80, c->set.synthetic ? "synthetic %.60s" : "checkpoint", c->set.synthetic);
	r->facts = (struct run_facts){
		.model = model,
		.profile = s->profile.name,
		.weight_seed = c->set.weight_seed,
		.policy = o->policy == PLUMB_POLICY_BF16 ? "bf16" : "f32",
		.context = c->context,
		.prompt = r->prompt,
		.prompts = r->prompts,
		.capacity = asked,
		.caches = !o->own_caches                 ? "policy"
	                  : o->caches == PLUMB_CACHE_FP8 ? "fp8"
	                                                 : plumb_format_name(o->caches),
		.state = plumb_format_name(o->state),
	};
	plumb_decoder_run_through(r->decoder, session_runner(s));
	if (s->all_opt && !s->guard)
		status = plumb_graph_create(r->decoder, s->device, &r->graph, err);
	/* a watched decoder runs op by op; a graph is quick enough to go without */
	if (r->digesting || !r->graph || !plumb_device_is_cuda(s->device))
		plumb_decoder_observe(r->decoder, &observer);
	return status;
}

/* --verbose: on standard error, since standard output is for tokens. */
static void tell(const struct run *r)
{
	const int64_t decoded = r->done - r->prompts;

	if (output_verbosity() == 0)
		return;
	fprintf(stderr, "model       %s%s%s\nruns        %s\ntime        prompt of %lld tokens %.2f s", r->facts.model,
		*r->facts.profile ? ", profile " : "", r->facts.profile, r->session.describes, (long long)r->prompts,
		r->prompt_seconds);
	if (decoded > 0)
		fprintf(stderr, ", then %.4g s a token", (r->seconds - r->prompt_seconds) / (double)decoded);
	fprintf(stderr, "\n");
}

/* One run: a copy of the options is completed by what is expected of it. */
static int work_one(const struct run_command *c, const char *expect, struct plumb_user_mark *mark, cJSON *list)
{
	struct run_command one = *c;
	struct plumb_decoder_options o = {0};
	struct run r = {.command = &one};
	struct plumb_error err = {""};
	char model[80];
	int status;

	one.expect = expect;
	r.digesting = one.digest || one.digests || one.expect;
	status = read_options(&one, &r, &o, &err);
	if (status == PLUMB_OK)
		status = open_run(&one, &r, &o, model, mark, &err);
	if (status == PLUMB_OK)
		status = decode(&r, &err);
	if (status == PLUMB_OK)
		tell(&r);
	if (status == PLUMB_OK)
		status = finish(&r, list, &err);
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb run: %s\n", err.text);
	plumb_graph_destroy(r.graph);
	plumb_decoder_destroy(r.decoder);
	session_close(&r.session);
	run_digests_free(&r.digests);
	run_expected_free(&r.expected);
	free(r.token);
	free(r.prompt);
	return status;
}

/* Everything after the options. self: struct run_command. */
static int work(void *self, struct plumb_user_mark *mark)
{
	const struct run_command *c = self;
	const int files = c->expected.count, runs = files ? files : 1;
	cJSON *list = c->json ? cJSON_CreateArray() : NULL;
	struct plumb_error err = {""};
	int worst = PLUMB_OK;

	for (int i = 0; i < runs && worst <= PLUMB_MISMATCH; i++) {
		int before = list ? cJSON_GetArraySize(list) : 0, status;
		if (!shard_takes(&c->shard, i))
			continue;
		status = work_one(c, files ? c->expected.item[i] : NULL, mark, list);
		worst = status > worst ? status : worst;
		if (list && files && cJSON_GetArraySize(list) > before)
			cJSON_AddNumberToObject(cJSON_GetArrayItem(list, before), "unit", i);
		else if (list && status == PLUMB_MISMATCH) /* no result to write */
			worst = files > 1 ? PLUMB_BAD_INPUT : worst;
	}
	if (list && worst <= PLUMB_MISMATCH && (files > 1 || cJSON_GetArraySize(list) > 0) &&
		write_json(c, list, worst, &err) != PLUMB_OK) {
		fprintf(stderr, "plumb run: %s\n", err.text);
		worst = PLUMB_BAD_INPUT;
	}
	cJSON_Delete(list);
	return worst;
}

/* The same in a process of its own, where a user's kernel may crash. */
static int contained(struct run_command *c)
{
	struct plumb_error err = {""};
	int status = contain(work, c, c->set.timeout, &err);

	if (err.text[0])
		fprintf(stderr, "plumb run: %s\n", err.text);
	return status;
}

static int run(int argc, char **argv)
{
	struct run_command c = {.steps = -1, .context = -1, .capacity = -1, .set.timeout = CONTAIN_TIMEOUT};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		SYNTHETIC_OPTIONS(&c.set),
		{"--tokens", "1,2,3", OPTION_TEXT, &c.tokens, "the prompt, as token ids"},
		{"--steps", "N", OPTION_COUNT, &c.steps, "tokens to decode (default 16)"},
		{"--context", "N", OPTION_COUNT, &c.context, "begin at position N, with generated state and caches"},
		{"--capacity", "N", OPTION_COUNT, &c.capacity, "positions of the caches (default: what is needed)"},
		{"--stop-at-eos", NULL, OPTION_FLAG, &c.stop_at_eos, "end after the config's EOS token"},
		{"--digest", NULL, OPTION_FLAG, &c.digest, "print a digest of every token and of the run"},
		{"--digests", "FILE", OPTION_TEXT, &c.digests, "write digests by token and layer"},
		{"--expect", "FILE", OPTION_REPEAT, &c.expected,
			"compare with such a file; model, prompt and so on come from it. Several: one run after the other"},
		{"--shard", "I/N", OPTION_TEXT, &c.shard_text,
			"of several --expect files, run part I of N only; 'plumb merge' joins the --json files"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write tokens, times and peak memory"},
	};
	const char *operand[1];
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(
		&command_run, table, sizeof table / sizeof table[0], argc, argv, operand, 0, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK)
		status = shard_parse(c.shard_text, &c.shard, &err);
	if (status == PLUMB_OK && c.shard_text && c.expected.count < 2)
		status = plumb_fail(&err, PLUMB_BAD_INPUT,
			"--shard divides runs, not one run, which is a chain of tokens: expected several --expect files");
	if (status == PLUMB_OK && c.expected.count > 1 && (c.digests || c.tokens))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "%s is for one run, expected at most one --expect file",
			c.digests ? "--digests" : "--tokens");
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb run: %s\n", err.text);
	else if (!session_wants_user(&c.set))
		status = work(&c, NULL);
	else
		status = contained(&c);
	return status;
}

const struct command command_run = {
	.name = "run",
	.usage = "--checkpoint DIR|--synthetic PRESET --tokens 1,2,3 [--steps N] [options]",
	.brief = "decode greedily, token ids in, token ids out",
	.about = "Feeds the prompt, then decodes greedily (largest logit, lowest id among equals) and prints the new token "
		 "ids.\n"
		 "A synthetic model needs no files: its weights come from a generator that gives the same bytes "
		 "everywhere, so\n"
		 "digests of a run can be compared between machines (--digests on one, --expect on the other).",
	.examples = "  plumb run --checkpoint golden/tiny/checkpoint --tokens 5,17,42 --steps 24\n"
		    "  plumb run --checkpoint DIR --tokens 5,17,42 --policy bf16 --stop-at-eos\n"
		    "  plumb run --synthetic full --profile served --mode twin --tokens 5,17,42 --steps 8 --digest\n"
		    "  plumb run --expect golden/synthetic/full-served.json --set opt --device cuda\n"
		    "  plumb run --expect a.json --expect b.json --set opt --shard 1/2 --json shard1.json",
	.operands = "",
	.verbose = "model, set and times on standard error",
	.run = run,
};
