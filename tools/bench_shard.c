/* SPDX-License-Identifier: MIT */
/* plumb bench: its verdict, and what it says of a shard. Times of one context belong together, so contexts are divided, not
 * ops. */
#include <cJSON.h>
#include <stdio.h>
#include <string.h>

#include "tools/bench.h"
#include "tools/output.h"

void bench_share(struct bench_options *o)
{
	int kept = 0;

	memcpy(o->every_context, o->context, sizeof o->every_context);
	o->every_contexts = o->contexts;
	for (int i = 0; i < o->contexts; i++)
		if (shard_takes(&o->shard, i))
			o->context[kept++] = o->context[i];
	o->contexts = kept;
}

/* Names of wrong ops that are asked for, with blanks before them. */
static int wrong_ops(const struct bench *b, char *text, size_t size)
{
	size_t n = 0;
	int wrong = 0;

	text[0] = '\0';
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		if (b->wrong[i] && b->options->op[i]) {
			wrong++;
			if (n < size)
				n += (size_t)snprintf(text + n, size - n, " %s", plumb_ops[i].name);
		}
	return wrong;
}

int bench_status(const struct bench *b)
{
	char text[256];
	return wrong_ops(b, text, sizeof text) ? PLUMB_MISMATCH : PLUMB_OK;
}

void bench_verdict(const struct bench *b)
{
	const struct bench_options *o = b->options;
	char names[256];

	if (!output_quiet())
		printf("\n");
	if (wrong_ops(b, names, sizeof names)) {
		printf("%sFAIL%s  not bit-exact, so not timed:%s\n", output_bad(), output_plain(), names);
		return;
	}
	printf("%spass%s  %s", output_good(), output_plain(), o->contexts ? "a token in " : "no context in this shard");
	for (int i = 0; i < o->contexts; i++)
		printf("%s%.1f us at context %lld", i ? ", " : "", b->run[i].token_us, (long long)b->run[i].context);
	printf("\n");
}

void bench_shard_json(const struct bench *b, struct cJSON *tree)
{
	const struct bench_options *o = b->options;
	cJSON *s = shard_json(tree, "bench", &o->shard, o->every_contexts);
	char text[256], name[48];
	int wrong = wrong_ops(b, text, sizeof text);

	shard_json_input(s, "model", b->model);
	shard_json_input(s, "profile", b->profile);
	shard_json_input(s, "runs_on", b->runs);
	shard_json_input(s, "producer", "plumb " PLUMB_VERSION);
	snprintf(name, sizeof name, "%lld", (long long)o->repeat);
	shard_json_input(s, "repeat", name);
	for (int i = 0; i < o->every_contexts; i++) {
		snprintf(name, sizeof name, "context/%lld", (long long)o->every_context[i]);
		if (shard_takes(&o->shard, i))
			shard_json_unit(s, i, name, wrong ? SHARD_FAIL : SHARD_PASS, wrong ? text : NULL);
	}
	shard_json_status(s, wrong && o->contexts ? PLUMB_MISMATCH : PLUMB_OK);
}
