/* SPDX-License-Identifier: MIT */
/* plumb golden verify: checksums, then the file once more by the recorded settings, then what moved. */
#include <cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/seal.h"
#include "tools/check.h"
#include "tools/golden.h"
#include "tools/golden_maker.h"
#include "tools/golden_report.h"
#include "tools/golden_scratch.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/shard.h"
#include "tools/tolerances.h"

struct verify_command {
	struct set_options set;
	const char *json, *keep, *tolerances, *shard_text;
	struct shard shard;
	bool checksums;
};

/* Everything that lives as long as the verification. */
struct verifying {
	const struct verify_command *c;
	const char *path;
	struct plumb_golden *golden;
	struct plumb_tolerances *tolerances;
	struct set_options set; /* as recorded, unless an option says otherwise */
	char *ops;              /* the recorded mixture, cut at its commas */
	bool own;               /* made by this program, with the settings used now: every bit must be equal */
	enum plumb_policy policy[GOLDEN_RUNS];
	int runs;     /* of this shard */
	int all_runs; /* of all of them */
	struct session session;
	struct golden_origin origin;
	struct golden_plan plan;
	int32_t *token;
	char *scratch, *again;
	int64_t summed, unsummed;
};

/* ---- checksums ---- */

/* One dataset, in row blocks. */
static int check_dataset(struct plumb_h5 *file, const struct plumb_h5_entry *entry, struct plumb_error *err)
{
	int64_t width, rows = plumb_h5_rows(entry, &width), step = width < 1 << 18 ? (1 << 18) / width : 1;
	void *values;
	struct plumb_sha256 sha;
	int status = PLUMB_OK;

	if (width > PLUMB_H5_MAX_COUNT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: rows of %lld elements, expected at most %lld",
			plumb_h5_path(file), entry->name, (long long)width, (long long)PLUMB_H5_MAX_COUNT);
	step = step < rows ? step : rows;
	values = malloc((size_t)(step * width) * sizeof(int64_t) + 1);
	if (!values)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s: out of memory for %lld rows", plumb_h5_path(file),
			entry->name, (long long)step);
	plumb_sha256_begin(&sha);
	for (int64_t r = 0; r < rows && status == PLUMB_OK; r += step) {
		int64_t n = rows - r < step ? rows - r : step;
		status = plumb_h5_read_rows(file, entry, r, n, values, err);
		if (status == PLUMB_OK)
			plumb_golden_sum_add(&sha, entry->type, values, n * width);
	}
	if (status == PLUMB_OK)
		status = plumb_golden_sum_check(file, entry->name, &sha, err);
	free(values);
	return status;
}

/* All of them; each that is damaged is named, the first through err. */
static int check_sums(struct verifying *v, struct plumb_error *err)
{
	struct plumb_h5 *file = plumb_golden_file(v->golden);
	int64_t entries, bad = 0;
	const struct plumb_h5_entry *entry = plumb_h5_entries(file, &entries);
	struct progress progress;
	struct plumb_error text;

	progress_begin(&progress, !output_quiet(), "golden verify");
	for (int64_t i = 0; i < entries; i++) {
		if (entry[i].type == PLUMB_H5_OTHER || !shard_takes(&v->c->shard, i))
			continue;
		v->summed += plumb_golden_sum(file, entry[i].name) != NULL;
		v->unsummed += plumb_golden_sum(file, entry[i].name) == NULL;
		if (check_dataset(file, &entry[i], &text) != PLUMB_OK) {
			progress_end(&progress);
			if (bad++ == 0)
				*err = text;
			else
				fprintf(stderr, "plumb golden verify: %s\n", text.text);
		}
		progress_step(&progress, i + 1, entries, "dataset");
	}
	progress_end(&progress);
	return bad ? PLUMB_BAD_INPUT : PLUMB_OK;
}

/* ---- settings ---- */

/* A recorded text, unless an option overrides it; *own becomes false where that says something else. */
static const char *recorded(struct verifying *v, const char *name, const char *option, const char *fallback)
{
	const char *text = plumb_golden_attribute(v->golden, name);

	if (option && !(text && strcmp(text, option) == 0))
		v->own = v->own && strcmp(name, "device") == 0; /* devices of one set give the same bits */
	return option ? option : text ? text : fallback;
}

/* Whether a text is one of the words of "ref or opt". */
static bool one_of(const char *text, const char *words)
{
	size_t n = strlen(text);

	for (const char *at = words; at; at = strstr(at, " or ") ? strstr(at, " or ") + 4 : NULL)
		if (n > 0 && strncmp(at, text, n) == 0 && (at[n] == '\0' || at[n] == ' '))
			return true;
	return false;
}

/* A file's word for a setting is one of ours, and names no code to load: that takes an option of the command line. */
static int check_recorded(const struct verifying *v, struct plumb_error *err)
{
	static const struct {
		const char *name, *words;
	} known[] = {
		{"set", "ref or opt"},
		{"device", "simt or cuda"},
		{"mode", "oracle or twin"},
		{"ties", "lower or torch"},
		{"kv_format", "f32 or bf16 or fp8"},
		{"state_format", "f32 or f16"},
	};
	const char *profile = plumb_golden_attribute(v->golden, "profile");
	const char *ops = plumb_golden_attribute(v->golden, "ops");

	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		const char *text = plumb_golden_attribute(v->golden, known[i].name);
		if (text && !one_of(text, known[i].words))
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: attribute %s is '%.60s', expected %s", v->path,
				known[i].name, text, known[i].words);
	}
	if (profile && !v->c->set.profile && strspn(profile, "abcdefghijklmnopqrstuvwxyz0123456789-") != strlen(profile))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: attribute profile is '%.60s', expected one that ships; others are given by --profile", v->path,
			profile);
	for (const char *at = ops; at && *at;) {
		size_t n = strcspn(at, ",");
		const char *equals = memchr(at, '=', n);
		size_t word = equals ? (size_t)(at + n - equals - 1) : 0;
		if (word != 3 || (strncmp(equals + 1, "ref", 3) != 0 && strncmp(equals + 1, "opt", 3) != 0))
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: attribute ops has '%.*s', expected NAME[@A-B]=ref|opt; other functions are "
				"given by --op",
				v->path, n < 80 ? (int)n : 80, at);
		at += n + (at[n] == ',');
	}
	return PLUMB_OK;
}

static int settings(struct verifying *v, struct plumb_error *err)
{
	const char *producer = plumb_golden_attribute(v->golden, "producer");
	const char *ops = plumb_golden_attribute(v->golden, "ops");

	if (!v->c->set.op.count && check_recorded(v, err) != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	v->own = producer && strncmp(producer, "plumb ", 6) == 0;
	v->set = v->c->set;
	v->set.set = recorded(v, "set", v->set.set, NULL);
	v->set.device = recorded(v, "device", v->set.device, NULL);
	v->set.mode = recorded(v, "mode", v->set.mode, NULL);
	v->set.ties =
		recorded(v, "ties", v->set.ties, plumb_golden_ties(v->golden) == PLUMB_TIES_TORCH ? "torch" : "lower");
	v->set.kv_format = recorded(v, "kv_format", v->set.kv_format, NULL);
	v->set.state_format = recorded(v, "state_format", v->set.state_format, NULL);
	v->set.profile = recorded(v, "profile", v->set.profile, NULL);
	v->set.policy = NULL;
	if (v->set.op.count) {
		v->own = false;
	} else if (ops) {
		v->ops = strdup(ops);
		if (!v->ops)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for its mixture", v->path);
		for (char *save = NULL, *o = strtok_r(v->ops, ",", &save); o; o = strtok_r(NULL, ",", &save)) {
			if (v->set.op.count == OPTIONS_MAX_REPEAT)
				return plumb_fail(err, PLUMB_BAD_INPUT, "%s: attribute ops names more than %d", v->path,
					OPTIONS_MAX_REPEAT);
			v->set.op.item[v->set.op.count++] = o;
		}
	}
	return PLUMB_OK;
}

static int find_runs(struct verifying *v, struct plumb_error *err)
{
	enum plumb_policy only = PLUMB_POLICY_F32;
	int status = options_policy(&v->c->set, &only, err);

	for (int p = 0; p < 2 && status == PLUMB_OK; p++)
		if (plumb_golden_has_run(v->golden, (enum plumb_policy)p) &&
			(!v->c->set.policy || only == (enum plumb_policy)p) && shard_takes(&v->c->shard, v->all_runs++))
			v->policy[v->runs++] = (enum plumb_policy)p;
	if (status == PLUMB_OK && v->all_runs == 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: no group /%s, needed for --policy %s", v->path,
			plumb_golden_run_name(only), plumb_policy_name(only));
	return status;
}

/* The number of a run of this shard among all of them. */
static int run_number(const struct verifying *v, int i)
{
	return (int)(v->c->shard.index - 1) + i * (int)v->c->shard.of;
}

/* The same runs and tensors. */
static int make_plan(struct verifying *v, struct plumb_error *err)
{
	const struct plumb_config *cfg = &v->session.model->cfg;
	struct golden_choice choice = {.first_layer = 0, .last_layer = cfg->layers, .like = v->golden};
	int64_t T = plumb_golden_tokens(v->golden), most = cfg->max_positions;
	int status = PLUMB_OK;

	for (int i = 0; i < v->runs && status == PLUMB_OK; i++) {
		struct golden_run *run = &v->plan.run[i];
		struct check_options fits = {.model = v->session.model, .golden = v->golden, .policy = v->policy[i]};
		run->policy = v->policy[i];
		run->steps = golden_plan_greedy_of(v->golden, run->policy);
		run->prefill = golden_plan_prefill_of(v->golden, run->policy);
		status = check_fits(&fits, err);
		if (status == PLUMB_OK && (T > most || run->steps > most - T))
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: %lld tokens and %lld greedy ones, expected at most %lld positions "
				"(max_position_embeddings)",
				v->path, (long long)T, (long long)run->steps, (long long)most);
	}
	if (status != PLUMB_OK)
		return status;
	v->token = malloc((size_t)T * sizeof *v->token);
	if (!v->token)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for its %lld tokens", v->path, (long long)T);
	for (int64_t t = 0; t < T; t++)
		v->token[t] = (int32_t)plumb_golden_input_ids(v->golden)[t]; /* check_fits has seen them */
	v->plan.cfg = cfg;
	v->plan.origin = &v->origin;
	v->plan.token = v->token;
	v->plan.T = T;
	v->plan.runs = v->runs;
	return golden_plan_make(&v->plan, &choice, err);
}

static int open_session(struct verifying *v, enum plumb_ties *ties, struct plumb_error *err)
{
	int status = options_ties(&v->set, PLUMB_TIES_LOWER, ties, err);

	if (status == PLUMB_OK)
		status = session_open(&v->set, &v->session, err);
	return status == PLUMB_OK ? golden_origin_make(&v->set, &v->session, *ties,
					    plumb_golden_attribute(v->golden, "date"), &v->origin, err)
	                          : status;
}

static int regenerate(struct verifying *v, struct plumb_error *err)
{
	struct golden_make make = {
		.plan = &v->plan,
		.session = &v->session,
		.page_seed = (uint64_t)v->c->set.page_seed,
		.progress = !output_quiet(),
		.save_seconds = 1e9,
		.label = "golden verify",
	};
	struct golden_made made;
	int status = open_session(v, &make.ties, err);

	if (status == PLUMB_OK)
		status = session_formats(&v->session, &v->set, &make.formats, err);
	if (status == PLUMB_OK)
		status = make_plan(v, err);
	if (status == PLUMB_OK && !v->c->keep) {
		status = golden_scratch_make(&v->scratch, err);
		if (status == PLUMB_OK && asprintf(&v->again, "%s/again.h5", v->scratch) < 0)
			status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a path");
	}
	if (status != PLUMB_OK)
		return status;
	golden_catch_signals();
	make.out = v->c->keep ? v->c->keep : v->again;
	return golden_make(&make, &made, err);
}

/* ---- what plumb merge joins ---- */

/* The first tensor of a run that is not as demanded, or NULL. */
static const struct diff_item *fault_of(const struct diff *diff, const char *group)
{
	const size_t n = strlen(group);

	for (int64_t i = 0; diff && i < diff->items; i++) {
		const struct diff_item *it = &diff->item[i];
		if (it->state > DIFF_WITHIN && strncmp(it->name, group, n) == 0 && it->name[n] == '/')
			return it;
	}
	return NULL;
}

/* Units are the file's datasets, whose checksums are spread over the shards, and its runs. diff NULL: this shard has none. */
static cJSON *shard_of(const struct verifying *v, const struct diff *diff)
{
	struct plumb_h5 *file = plumb_golden_file(v->golden);
	int64_t entries;
	const struct plumb_h5_entry *entry = plumb_h5_entries(file, &entries);
	cJSON *root = cJSON_CreateObject(), *o = shard_json(root, "golden verify", &v->c->shard, entries + v->all_runs);
	bool beyond = false;
	char name[160], printable[120];

	shard_json_file(o, "golden", v->path);
	shard_json_input(o, "producer", "plumb " PLUMB_VERSION);
	shard_json_input(o, "checkpoint", v->origin.checkpoint ? v->origin.checkpoint : "");
	shard_json_input(o, "set", v->set.set ? v->set.set : "ref");
	shard_json_input(o, "device", v->set.device ? v->set.device : "");
	shard_json_input(o, "mode", v->set.mode ? v->set.mode : "oracle");
	shard_json_input(o, "policy", v->c->set.policy ? v->c->set.policy : "all");
	shard_json_input(o, "checksums", v->c->checksums ? "only" : "and the runs");
	for (int64_t i = 0; i < entries; i++) {
		if (!shard_takes(&v->c->shard, i))
			continue;
		diff_printable(entry[i].name, printable, sizeof printable);
		snprintf(name, sizeof name, "checksum/%s", printable);
		if (entry[i].type != PLUMB_H5_OTHER && plumb_golden_sum(file, entry[i].name))
			shard_json_unit(o, i, name, SHARD_PASS, NULL); /* others have ended the program */
		else
			shard_json_unit(o, i, name, SHARD_SKIP, "no checksum is recorded");
	}
	for (int i = 0; i < v->runs; i++) {
		const char *group = plumb_golden_run_name(v->policy[i]);
		const struct diff_item *fault = fault_of(diff, group);
		char text[400] = "";
		if (fault) {
			diff_printable(fault->name, printable, sizeof printable);
			snprintf(text, sizeof text, "first %s: %.250s", printable, fault->verdict.text);
		}
		snprintf(name, sizeof name, "run/%s", group);
		shard_json_unit(o, entries + run_number(v, i), name, fault ? SHARD_FAIL : SHARD_PASS, text);
		beyond = beyond || fault;
	}
	if (diff && !beyond && diff_status(diff) != PLUMB_OK) {
		shard_json_also(o, "datasets outside the runs", SHARD_FAIL, "the report of this shard says which");
		beyond = true;
	}
	shard_json_status(o, beyond ? PLUMB_MISMATCH : PLUMB_OK);
	o = cJSON_DetachItemFromObject(root, "shard");
	cJSON_Delete(root);
	return o;
}

/* A shard that has checksums to see to and no run. */
static int finish_sums(struct verifying *v, struct plumb_error *err)
{
	enum plumb_ties ties;
	cJSON *root;
	char *text;
	int status;

	if (!v->c->json || strcmp(v->c->json, "-") != 0)
		printf("%s: %lld datasets as recorded, %lld without a checksum%s\n", v->path, (long long)v->summed,
			(long long)v->unsummed, v->summed ? "" : ": nothing was held against one");
	if (!v->c->json)
		return PLUMB_OK;
	status = v->c->checksums ? PLUMB_OK : open_session(v, &ties, err); /* all shards are of one checkpoint */
	if (status != PLUMB_OK)
		return status;
	root = cJSON_CreateObject();
	cJSON_AddStringToObject(root, "format", "plumb golden verify 1");
	cJSON_AddBoolToObject(root, "pass", true);
	cJSON_AddNumberToObject(root, "checksums", (double)v->summed);
	cJSON_AddItemToObject(root, "shard", shard_of(v, NULL));
	text = cJSON_Print(root);
	status = text ? output_file(v->c->json, text, strlen(text), err)
	              : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the JSON report");
	free(text);
	cJSON_Delete(root);
	return status;
}

/* ---- the comparison ---- */

static int compare(struct verifying *v, double start, struct plumb_error *err)
{
	const char *again = v->c->keep ? v->c->keep : v->again;
	struct plumb_h5 *now = NULL;
	struct diff diff = {0};
	struct diff_options o = {
		.group = v->runs == 1 && (v->c->set.policy || v->c->shard.of > 1) ? plumb_golden_run_name(v->policy[0])
	                                                                          : NULL,
		.rule = v->own ? DIFF_BITS : DIFF_TOLERANCES,
		.tolerances = v->tolerances,
		.progress = !output_quiet(),
	};
	struct golden_report report = {
		.command = "golden verify",
		.name_a = "recorded",
		.name_b = "now",
		.path_a = v->path,
		.path_b = v->c->keep ? v->c->keep : v->session.describes,
		.diff = &diff,
		.verbose = output_verbosity() > 0,
		.quiet = output_quiet(),
		.demand = v->own ? "no bit may differ" : "propagated tolerances",
	};
	int status = plumb_h5_open(again, &now, err);

	if (status == PLUMB_OK)
		status = diff_run(plumb_golden_file(v->golden), now, &o, &diff, err);
	report.seconds = progress_now() - start;
	if (status == PLUMB_OK) {
		golden_report_facts(&report, plumb_golden_file(v->golden), now);
		if (!v->c->json || strcmp(v->c->json, "-") != 0) {
			golden_report_print(&report);
			if (!output_quiet())
				printf("checksums  %lld datasets as recorded%s\n", (long long)v->summed,
					v->unsummed ? "; others have none" : "");
		}
		if (v->c->json)
			report.shard = shard_of(v, &diff);
		if (v->c->json)
			status = golden_report_json(&report, v->c->json, err);
		if (status == PLUMB_OK)
			status = diff_status(&diff);
	}
	diff_free(&diff);
	plumb_h5_close(now);
	return status;
}

static int verify(const struct verify_command *c, const char *path, struct plumb_error *err)
{
	struct verifying v = {.c = c, .path = path};
	double start = progress_now();
	const struct output_path out[] = {{"--json", c->json}, {"--keep", c->keep}};
	const char *const input[] = {path, c->tolerances, c->set.profile};
	const struct output_inputs in = {input, 3, &c->set.op, c->set.checkpoint};
	int status = output_hdf5("--keep", c->keep, err);

	if (status == PLUMB_OK)
		status = output_paths(out, 2, &in, err);
	if (status == PLUMB_OK)
		status = plumb_golden_open(path, &v.golden, err);
	if (status == PLUMB_OK) {
		struct plumb_h5 *const file = plumb_golden_file(v.golden);
		status = tolerances_open(c->tolerances, &file, 1, "golden verify", &v.tolerances, err);
	}
	if (status == PLUMB_OK)
		status = check_sums(&v, err);
	if (status == PLUMB_OK && !c->checksums)
		status = settings(&v, err);
	if (status == PLUMB_OK && !c->checksums)
		status = find_runs(&v, err);
	if (status == PLUMB_OK && v.runs == 0)
		status = finish_sums(&v, err);
	if (status == PLUMB_OK && v.runs > 0)
		status = regenerate(&v, err);
	if (status == PLUMB_OK && v.runs > 0)
		status = compare(&v, start, err);
	golden_scratch_remove(v.scratch);
	golden_plan_free(&v.plan);
	golden_origin_free(&v.origin);
	session_close(&v.session);
	plumb_tolerances_free(v.tolerances);
	plumb_golden_close(v.golden);
	free(v.again);
	free(v.token);
	free(v.ops);
	return status;
}

static int run(int argc, char **argv)
{
	struct verify_command c = {0};
	const struct option table[] = {
		SET_OPTIONS(&c.set),
		SYNTHETIC_OPTIONS(&c.set),
		{"--checksums", NULL, OPTION_FLAG, &c.checksums, "check the checksums only; needs no checkpoint"},
		{"--tolerances", "FILE", OPTION_TEXT, &c.tolerances,
			"other tolerances than the built-in ones, for files made elsewhere"},
		SHARD_OPTION(&c.shard_text),
		{"--keep", "FILE", OPTION_TEXT, &c.keep, "keep what was regenerated"},
		{"--json", "FILE", OPTION_TEXT, &c.json, "write everything that was measured; '-' is standard output"},
	};
	const char *operand[1] = {NULL};
	struct plumb_error err = {""};
	int operands, status;
	bool done;

	status = options_parse(&command_golden_verify, table, sizeof table / sizeof table[0], argc, argv, operand, 1,
		&operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK)
		status = shard_parse(c.shard_text, &c.shard, &err);
	if (status == PLUMB_OK && operands != 1)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "a golden file is needed; usage: plumb golden verify %s",
			command_golden_verify.usage);
	if (status == PLUMB_OK)
		status = verify(&c, operand[0], &err);
	if (status != PLUMB_OK && err.text[0])
		fprintf(stderr, "plumb golden verify: %s\n", err.text);
	return status;
}

const struct command command_golden_verify = {
	.name = "golden verify",
	.usage = "FILE.h5 --checkpoint DIR|--synthetic PRESET [options]",
	.brief = "make a golden file once more and say what moved",
	.about = "Checks all checksums, makes the file once more with the settings it records (a file made elsewhere: "
		 "by the oracle),\n"
		 "and says which tensors moved, by how much, and what of its provenance is different now. Our own "
		 "files must be\n"
		 "equal in every bit; a file made elsewhere, or other settings than the recorded ones, are held to the "
		 "tolerances.",
	.examples = "  plumb golden verify golden/tiny/tiny.h5 --checkpoint golden/tiny/checkpoint\n"
		    "  plumb golden verify mine.h5 --checkpoint DIR --json report.json\n"
		    "  plumb golden verify mine.h5 --checkpoint DIR --set opt --device cuda\n"
		    "  plumb golden verify mine.h5 --checksums",
	.operands = "FILE.h5",
	.verbose = "show tensors that are equal as well",
	.run = run,
};
