/* SPDX-License-Identifier: MIT */
#include "tools/bisect_report.h"

#include <cJSON.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tools/axes.h"
#include "tools/origin.h"
#include "tools/output.h"

enum { SHOWN = 12 }; /* findings printed without --verbose */

static const char *const kinds[] = {"wrong", "changes from run to run", "unwritten", "biased", "failed"};
static const char *const kind_words[] = {"wrong", "changes", "unwritten", "biased", "failed"};

bool bisect_is_wrong(const struct bisect *b)
{
	return b->findings > 0 || b->whole.fails;
}

const struct bisect_finding *bisect_finding_of(const struct bisect *b, int choice)
{
	for (int i = 0; i < b->findings; i++)
		if (bisect_choice_of(b, b->finding[i].choice.layer, b->finding[i].op) == choice)
			return &b->finding[i];
	return NULL;
}

static const char *place_of(const struct bisect *b, int layer, enum plumb_site site, char *text, size_t size)
{
	bool named = site == PLUMB_SITE_ATTN || site == PLUMB_SITE_MLP;
	if (layer == b->options->model->cfg.layers)
		snprintf(text, size, "outside the layers");
	else
		snprintf(text, size, "layer %d%s%s", layer, named ? ", site " : "", named ? plumb_site_name(site) : "");
	return text;
}

static void print_finding(const struct bisect *b, const struct bisect_finding *f)
{
	char place[96];
	bool all =
		f->wrong_calls == f->calls; /* else "on" would say too much: a prompt may be wrong and every token right */
	printf("  %s%-22s%s %s, %s %s position %lld%s", output_bad(), plumb_ops[f->op].name, output_plain(),
		place_of(b, f->choice.layer, f->site, place, sizeof place), kinds[f->kind], all ? "from" : "first at",
		(long long)f->position, all ? " on" : "");
	if (f->calls)
		printf(" (%lld of %lld calls)", (long long)f->wrong_calls, (long long)f->calls);
	printf("\n      %s\n", f->text);
}

void bisect_report_local(const struct bisect *b)
{
	printf("local view: %lld calls of suspects on the truth's inputs, each twice; %.1f s\n", (long long)b->calls,
		b->seconds[0]);
	const int shown = output_verbosity() > 0 || b->findings < SHOWN ? b->findings : SHOWN;
	for (int i = 0; i < shown; i++)
		print_finding(b, &b->finding[i]);
	if (b->findings > shown)
		printf("  and %d more (--verbose shows them)\n", b->findings - shown);
	if (b->findings == 0)
		printf("  %severy call is right by itself%s\n", output_good(), output_plain());
	fflush(stdout);
}

/* What came of the whole run, without a full stop. */
static const char *whole_words(const struct bisect *b, char *text, size_t size)
{
	const struct bisect_outcome *w = &b->whole;
	char place[96];

	if (!w->fails)
		snprintf(text, size, "all suspects together %s",
			b->options->exact ? "give the truth's bits" : "stay within the tolerance");
	else if (w->failed.text[0])
		snprintf(text, size, "fails: %s", w->failed.text);
	else if (w->text[0])
		snprintf(text, size, "fails at %s", w->text);
	else if (b->options->exact)
		snprintf(text, size, "leaves the truth at token %lld: %s of %s, %s", (long long)w->token, w->operand,
			plumb_ops[w->op].name, place_of(b, w->layer, w->site, place, sizeof place));
	else
		snprintf(text, size,
			"leaves the truth at token %lld: its logits are %.3g off (relative L2), more than %.3g",
			(long long)w->token, w->distance, b->options->tolerance);
	return text;
}

void bisect_report_whole(const struct bisect *b)
{
	char text[1024];
	printf("whole run: %s; %.1f s\n", whole_words(b, text, sizeof text), b->seconds[1]);
	fflush(stdout);
}

static int members(const struct bisect *b, int set)
{
	int n = 0;
	for (int i = 0; i < b->choices; i++)
		n += b->set[set][i];
	return n;
}

void bisect_report_sets(const struct bisect *b)
{
	printf("minimal sets: %d decodes, %.1f s%s\n", b->decodes, b->seconds[2],
		b->flaky ? "; calls change from run to run, so each set was asked up to 5 times, and one failure counts"
			 : "");
	for (int s = 0; s < b->sets; s++) {
		bool first = true;
		printf("  %s", output_bad());
		for (int i = 0; i < b->choices; i++) {
			char text[256];
			if (!b->set[s][i])
				continue;
			printf("%s%s", first ? "" : " and ", bisect_choice_show(b, i, text, sizeof text));
			first = false;
		}
		printf("%s: %s\n", output_plain(),
			members(b, s) == 1 ? "fails alone" : "fail only together: without any one of them the run passes");
	}
	if (b->rest_fails)
		printf("  more remain\n");
	fflush(stdout);
}

/* The finding to look into: the first of the first set, else the first. */
static const struct bisect_finding *main_finding(const struct bisect *b)
{
	for (int i = 0; i < b->findings; i++) {
		int choice = bisect_choice_of(b, b->finding[i].choice.layer, b->finding[i].op);
		if (b->sets == 0 || (choice >= 0 && b->set[0][choice]))
			return &b->finding[i];
	}
	return b->findings ? &b->finding[0] : NULL;
}

void bisect_report_inside(const struct bisect *b)
{
	const struct bisect_finding *f = main_finding(b);
	char place[96];

	if (!f)
		return;
	printf("inside %s, %s, ", plumb_ops[f->op].name, place_of(b, f->choice.layer, f->site, place, sizeof place));
	if (f->token >= 0)
		printf("first at token %lld", (long long)f->token);
	else if (f->T == 0)
		printf("over all its calls");
	else
		printf("in the pass of tokens %lld to %lld", (long long)f->position, (long long)(f->position + f->T - 1));
	printf("%s:\n  %s%s\n", f->in_context ? ", on what the other suspects made" : "",
		f->kind == BISECT_CHANGES ? "The same inputs gave two results. " : "",
		f->inside.text[0] ? f->inside.text : f->text);
	fflush(stdout);
}

void bisect_report_verdict(const struct bisect *b, const char *replay)
{
	const struct bisect_finding *f = main_finding(b);
	char text[256];

	if (!bisect_is_wrong(b)) {
		printf("%spass%s  no suspect is wrong, alone or together\n", output_good(), output_plain());
		return;
	}
	printf("%sFAIL%s  ", output_bad(), output_plain());
	if (b->sets > 0) {
		bool first = true;
		for (int i = 0; i < b->choices; i++)
			if (b->set[0][i]) {
				printf("%s%s", first ? "" : " and ", bisect_choice_show(b, i, text, sizeof text));
				first = false;
			}
		printf("%s\n", b->sets > 1 ? " (first of several)" : "");
	} else if (f) {
		char place[96];
		printf("%s, %s, is %s by itself; the run as a whole stays within its tolerance\n", plumb_ops[f->op].name,
			place_of(b, f->choice.layer, f->site, place, sizeof place), kinds[f->kind]);
	} else {
		printf("the run differs, but no set of suspects explains it\n");
	}
	if (b->case_written)
		printf("case    %s\n", b->options->case_path);
	if (b->case_written && replay)
		printf("replay  %s\n", replay);
}

/* ---- JSON ---- */

static cJSON *json_choice(const struct bisect *b, int choice)
{
	cJSON *o = cJSON_CreateObject(), *ops = cJSON_AddArrayToObject(o, "ops");
	for (int k = 0; k < b->choice[choice].ops; k++)
		cJSON_AddItemToArray(ops, cJSON_CreateString(plumb_ops[b->choice[choice].op[k]].name));
	cJSON_AddNumberToObject(o, "layer", b->choice[choice].layer);
	return o;
}

static cJSON *json_finding(const struct bisect_finding *f)
{
	const struct plumb_op_info *info = &plumb_ops[f->op];
	cJSON *o = cJSON_CreateObject();

	cJSON_AddStringToObject(o, "op", info->name);
	cJSON_AddNumberToObject(o, "layer", f->choice.layer);
	cJSON_AddStringToObject(o, "site", plumb_site_name(f->site));
	cJSON_AddStringToObject(o, "kind", kind_words[f->kind]);
	cJSON_AddBoolToObject(o, "in_context", f->in_context);
	cJSON_AddNumberToObject(o, "position", (double)f->position);
	cJSON_AddNumberToObject(o, "rows", (double)f->T);
	if (f->token >= 0)
		cJSON_AddNumberToObject(o, "token", (double)f->token);
	cJSON_AddNumberToObject(o, "calls", (double)f->calls);
	cJSON_AddNumberToObject(o, "wrong_calls", (double)f->wrong_calls);
	if (f->operand >= 0) {
		const struct judge_operand *at = &f->judge.at[f->operand];
		cJSON_AddStringToObject(o, "operand", info->operand[f->operand].name);
		cJSON_AddNumberToObject(o, "element", (double)f->element);
		cJSON_AddNumberToObject(o, "got", at->got);
		cJSON_AddNumberToObject(o, "expected", at->want);
		cJSON_AddNumberToObject(o, "ratio", at->ratio);
	}
	cJSON_AddStringToObject(o, "text", f->text);
	cJSON_AddStringToObject(o, "pattern", inside_pattern_name(f->inside.pattern));
	cJSON_AddStringToObject(o, "where", f->inside.where);
	cJSON_AddNumberToObject(o, "factor", f->inside.factor);
	cJSON_AddNumberToObject(o, "shift", (double)f->inside.shift);
	cJSON_AddNumberToObject(o, "values", (double)f->inside.count);
	cJSON_AddNumberToObject(o, "differ", (double)f->inside.differ);
	cJSON_AddStringToObject(o, "inside", f->inside.text);
	return o;
}

/* Where a finding is: "layer 2, site attn". */
static void add_place(cJSON *o, const struct bisect *b, const struct bisect_finding *f)
{
	char place[96];
	cJSON_AddStringToObject(o, "place", place_of(b, f->choice.layer, f->site, place, sizeof place));
}

cJSON *bisect_report_tree(const struct bisect *b, const char *replay)
{
	cJSON *top = cJSON_CreateObject(), *list, *whole;
	const struct bisect_options *o = b->options;
	const struct bisect_finding *chief = main_finding(b);
	char words[1024];

	cJSON_AddStringToObject(top, "format", "plumb bisect 1");
	origin_add(top, b->from);
	cJSON_AddStringToObject(top, "verdict", bisect_is_wrong(b) ? "fail" : "pass");
	cJSON_AddStringToObject(top, "criterion", o->exact ? "bits" : "bound");
	if (o->origin.golden)
		cJSON_AddStringToObject(top, "golden", o->origin.golden);
	if (o->origin.suspect)
		cJSON_AddStringToObject(top, "suspects", o->origin.suspect);
	if (o->origin.truth)
		cJSON_AddStringToObject(top, "truth", o->origin.truth);
	cJSON_AddNumberToObject(top, "tokens", (double)o->tokens);
	cJSON_AddNumberToObject(top, "steps", (double)o->steps);
	cJSON_AddNumberToObject(top, "layers", o->model->cfg.layers);
	cJSON_AddNumberToObject(top, "choices", b->choices);
	cJSON_AddNumberToObject(top, "decodes", b->decodes);
	cJSON_AddNumberToObject(top, "calls", (double)b->calls);
	cJSON_AddBoolToObject(top, "flaky", b->flaky);
	list = cJSON_AddArrayToObject(top, "findings");
	for (int i = 0; i < b->findings; i++) {
		cJSON *one = json_finding(&b->finding[i]);
		add_place(one, b, &b->finding[i]);
		cJSON_AddBoolToObject(one, "chief", &b->finding[i] == chief);
		cJSON_AddItemToArray(list, one);
	}
	whole = cJSON_AddObjectToObject(top, "whole");
	cJSON_AddBoolToObject(whole, "fails", b->whole.fails);
	cJSON_AddStringToObject(whole, "words", whole_words(b, words, sizeof words));
	if (b->whole.fails && b->whole.token >= 0)
		cJSON_AddNumberToObject(whole, "token", (double)b->whole.token);
	if (b->whole.fails && b->whole.layer >= 0) {
		cJSON_AddNumberToObject(whole, "layer", b->whole.layer);
		cJSON_AddStringToObject(whole, "op", plumb_ops[b->whole.op].name);
	}
	if (b->whole.operand)
		cJSON_AddStringToObject(whole, "operand", b->whole.operand);
	list = cJSON_AddArrayToObject(top, "sets");
	for (int s = 0; s < b->sets; s++) {
		cJSON *set = cJSON_CreateArray();
		cJSON_AddItemToArray(list, set);
		for (int i = 0; i < b->choices; i++)
			if (b->set[s][i])
				cJSON_AddItemToArray(set, json_choice(b, i));
	}
	cJSON_AddBoolToObject(top, "more_sets", b->rest_fails);
	if (b->case_written)
		cJSON_AddStringToObject(top, "case", o->case_path);
	if (b->case_written && replay)
		cJSON_AddStringToObject(top, "replay", replay);
	return top;
}
