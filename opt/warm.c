/* SPDX-License-Identifier: MIT */
#include "opt/warm.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/warm.h"
#include "opt/device_private.h"
#include "opt/mirror.h"

enum {
	RULES = 32,
	MOST_MB = 4096,
	MOST_BLOCKS = 1024,
	BLOCKS = 32,        /* of a launch, unless the rules say otherwise */
	CHUNK = 16 << 10,   /* bytes that a lane asks for at once */
	PERIOD = 128 << 10, /* of an even spread: a few rows of a projection */
	UNIT = 16,          /* what kernels/warm.h asks of addresses and sizes */
	FIRST_ROOM = 1024,  /* calls: a token of the release has 716 */
	TEXT = 64,          /* of a rule */
};

struct rule {
	enum plumb_op after, op;
	int64_t bytes;
	bool even; /* over all of the weights, not from their begin on */
};

/* Weights of a call on the device. */
struct noted {
	enum plumb_op op;
	int ranges;
	struct plumb_warm_range range[PLUMB_WARM_RANGES];
};

struct plumb_warm {
	struct rule rule[RULES];
	int rules, blocks;
	struct noted *call;
	int64_t calls, room, next; /* noted; of the step under way */
	bool launch;
	int64_t launches, bytes;
};

/* ---- rules ---- */

static enum plumb_op op_of(const char *begin, size_t length)
{
	char name[TEXT];

	if (length >= sizeof name)
		return PLUMB_OP_COUNT;
	memcpy(name, begin, length);
	name[length] = '\0';
	return plumb_op_find(name);
}

/* A whole number of 1..most that ends the text; 0: it is none. */
static int64_t number_of(const char *text, int64_t most)
{
	char *end;
	const long long n = strtoll(text, &end, 10);
	return *text >= '0' && *text <= '9' && !*end && n >= 1 && n <= most ? n : 0;
}

static int rule_parse(struct plumb_warm *w, const char *text, struct plumb_error *err)
{
	const size_t arrow = strcspn(text, ">");
	const char *op = text + arrow + (text[arrow] != '\0');
	const size_t sign = strcspn(op, ":~");
	struct rule r = {.after = op_of(text, arrow), .op = op_of(op, sign), .even = op[sign] == '~'};

	if (strncmp(text, "blocks=", 7) == 0) {
		w->blocks = (int)number_of(text + 7, MOST_BLOCKS);
		return w->blocks ? PLUMB_OK
		                 : plumb_fail(err, PLUMB_BAD_INPUT, "warm rule '%s': expected blocks=1..%d", text,
					   MOST_BLOCKS);
	}
	r.bytes = op[sign] ? number_of(op + sign + 1, MOST_MB) * 1000000 : 0;
	if (r.after == PLUMB_OP_COUNT || r.op == PLUMB_OP_COUNT || !r.bytes)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "warm rule '%s': expected OP>OP:MB or OP>OP~MB, MB 1..%d", text, MOST_MB);
	if (w->rules == RULES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "warm rule '%s': more than %d rules", text, RULES);
	w->rule[w->rules++] = r;
	return PLUMB_OK;
}

static int rules_parse(struct plumb_warm *w, const char *rules, struct plumb_error *err)
{
	int status = PLUMB_OK;

	if (strcmp(rules, "off") == 0)
		return PLUMB_OK;
	for (const char *p = rules; *p && status == PLUMB_OK;) {
		const size_t length = strcspn(p, ",");
		char text[TEXT];
		if (length >= sizeof text)
			return plumb_fail(err, PLUMB_BAD_INPUT, "warm rule '%.60s' is no rule", p);
		memcpy(text, p, length);
		text[length] = '\0';
		status = rule_parse(w, text, err);
		p += length + (p[length] == ',');
	}
	return status;
}

int plumb_warm_create(const char *rules, struct plumb_warm **out, struct plumb_error *err)
{
	struct plumb_warm *w = calloc(1, sizeof *w);
	int status;

	if (!w)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the warm branch");
	w->blocks = BLOCKS;
	status = rules_parse(w, rules, err);
	if (status != PLUMB_OK) {
		plumb_warm_destroy(w);
		return status;
	}
	*out = w;
	return PLUMB_OK;
}

void plumb_warm_destroy(struct plumb_warm *w)
{
	if (!w)
		return;
	free(w->call);
	free(w);
}

bool plumb_warm_is_on(const struct plumb_warm *w)
{
	return w->rules > 0;
}

int64_t plumb_warm_launches(const struct plumb_warm *w)
{
	return w->launches;
}

int64_t plumb_warm_bytes(const struct plumb_warm *w)
{
	return w->bytes;
}

/* ---- a step ---- */

void plumb_warm_begin(struct plumb_warm *w, bool launch)
{
	w->launch = launch;
	w->next = 0;
	w->launches = w->bytes = 0;
	if (!launch)
		w->calls = 0;
}

/* Where a weight lies on the device, in whole units; the scales of NVFP4, an eighth of it, are left out. */
static int note_weight(struct noted *n, const struct plumb_env *env, const struct plumb_weight *weight)
{
	struct plumb_device *d = env->device;
	struct plumb_weight on_device = *weight;
	int status = d->own_memory ? plumb_mirror_weight(d, &on_device, env->err) : PLUMB_OK;

	if (status != PLUMB_OK || n->ranges == PLUMB_WARM_RANGES)
		return status;
	const unsigned char *data = on_device.data;
	const size_t before = (UNIT - (uintptr_t)data % UNIT) % UNIT, bytes = plumb_weight_data_bytes(weight);
	if (bytes >= before + UNIT)
		n->range[n->ranges++] = (struct plumb_warm_range){
			.data = data + before, .bytes = (int64_t)((bytes - before) / UNIT * UNIT)};
	return PLUMB_OK;
}

static int note(struct plumb_warm *w, const struct plumb_call *call)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	int status = PLUMB_OK;

	if (w->calls == w->room) {
		const int64_t room = w->room ? 2 * w->room : FIRST_ROOM;
		struct noted *list = realloc(w->call, (size_t)room * sizeof *list);
		if (!list)
			return plumb_fail(
				call->env->err, PLUMB_BAD_INPUT, "out of memory for a list of %lld calls", (long long)room);
		w->call = list;
		w->room = room;
	}
	struct noted *n = &w->call[w->calls++];
	*n = (struct noted){.op = call->op};
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const struct plumb_weight *weight = plumb_operand_get(call->args, o);
		if (o->kind == PLUMB_KIND_WEIGHT && o->part == PLUMB_PART_ALL && weight && weight->data)
			status = note_weight(n, call->env, weight);
	}
	return status;
}

/* The call that the rule warms after call i: the next of its op, unless another after comes before it. NULL: none. */
static const struct noted *target(const struct plumb_warm *w, const struct rule *r, int64_t i)
{
	for (int64_t k = i + 1; k < w->calls; k++) {
		if (w->call[k].op == r->op)
			return &w->call[k];
		if (w->call[k].op == r->after)
			return NULL;
	}
	return NULL;
}

static int64_t all_bytes(const struct noted *n)
{
	int64_t sum = 0;
	for (int i = 0; i < n->ranges; i++)
		sum += n->range[i].bytes;
	return sum;
}

/* The part of a call's weights that a rule warms. Returns its bytes. */
static int64_t choose(const struct rule *r, const struct noted *n, struct plumb_warm_launch *out)
{
	const int64_t all = all_bytes(n);
	const bool even = r->even && r->bytes < all;
	int64_t left = even ? all : r->bytes, sum = 0;

	for (int i = 0; i < n->ranges && left >= UNIT; i++) {
		struct plumb_warm_range *range = &out->range[out->ranges++];
		*range = n->range[i];
		if (range->bytes > left)
			range->bytes = left / UNIT * UNIT;
		left -= range->bytes;
		range->period = even ? PERIOD : CHUNK;
		range->chunk = even ? (int64_t)((double)PERIOD * (double)r->bytes / (double)all) / UNIT * UNIT : CHUNK;
		if (range->chunk < UNIT)
			range->chunk = UNIT;
		const int64_t rest = range->bytes % range->period;
		sum += range->bytes / range->period * range->chunk + (rest < range->chunk ? rest : range->chunk);
	}
	return sum;
}

static int launch(struct plumb_warm *w, const struct plumb_env *env, const struct plumb_warm_launch *a)
{
	struct plumb_device *d = env->device;
	const struct plumb_backend *backend = d->backend;
	int status = backend->branch_begin ? backend->branch_begin(d, env->err) : PLUMB_OK;

	if (status != PLUMB_OK)
		return status;
	status = PLUMB_RUN(env, warm, a);
	if (backend->branch_end)
		backend->branch_end(d);
	w->launches += status == PLUMB_OK;
	return status;
}

int plumb_warm_after(struct plumb_warm *w, const struct plumb_call *call)
{
	int status = PLUMB_OK;

	if (!w->launch)
		return note(w, call);
	if (w->next == w->calls || w->call[w->next].op != call->op)
		return plumb_fail(call->env->err, PLUMB_BAD_INPUT,
			"%s is call %lld of a step that was noted with another there", plumb_ops[call->op].name,
			(long long)w->next);
	for (int i = 0; i < w->rules && status == PLUMB_OK; i++) {
		const struct noted *n = w->rule[i].after == call->op ? target(w, &w->rule[i], w->next) : NULL;
		struct plumb_warm_launch a = {.blocks = w->blocks};
		const int64_t bytes = n ? choose(&w->rule[i], n, &a) : 0;
		if (a.ranges > 0)
			status = launch(w, call->env, &a);
		w->bytes += bytes;
	}
	w->next++;
	return status;
}
