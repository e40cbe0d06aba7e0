/* SPDX-License-Identifier: MIT */
#include "tools/ddmin.h"

#include <stdlib.h>
#include <string.h>

struct answer {
	bool *on;
	bool fails;
};

struct ddmin {
	int n, tests, answers, room;
	const int *group;
	ddmin_test *test;
	void *self;
	struct answer *answer;
	struct plumb_error *err;
};

int ddmin_create(int n, const int *group, ddmin_test *test, void *self, struct ddmin **out, struct plumb_error *err)
{
	struct ddmin *d = calloc(1, sizeof *d);

	*out = d;
	if (!d || n < 1 || n > DDMIN_MAX)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			d ? "%d choices to search, expected 1..65536" : "out of memory for %d choices", n);
	*d = (struct ddmin){.n = n, .group = group, .test = test, .self = self, .err = err};
	return PLUMB_OK;
}

void ddmin_free(struct ddmin *d)
{
	if (!d)
		return;
	for (int i = 0; i < d->answers; i++)
		free(d->answer[i].on);
	free(d->answer);
	free(d);
}

int ddmin_tests(const struct ddmin *d)
{
	return d->tests;
}

int ddmin_ask(struct ddmin *d, const bool *on, bool *fails)
{
	size_t bytes = (size_t)d->n * sizeof *on;
	int status;

	for (int i = 0; i < d->answers; i++)
		if (memcmp(d->answer[i].on, on, bytes) == 0) {
			*fails = d->answer[i].fails;
			return PLUMB_OK;
		}
	if (d->answers == d->room) {
		int room = d->room ? 2 * d->room : 64;
		struct answer *more = realloc(d->answer, (size_t)room * sizeof *more);
		if (!more)
			return plumb_fail(d->err, PLUMB_BAD_INPUT, "out of memory for %d answers", room);
		d->answer = more;
		d->room = room;
	}
	d->tests++;
	status = d->test(d->self, on, fails);
	if (status != PLUMB_OK)
		return status;
	struct answer *a = &d->answer[d->answers];
	a->on = malloc(bytes);
	if (!a->on)
		return plumb_fail(d->err, PLUMB_BAD_INPUT, "out of memory for %d answers", d->answers);
	memcpy(a->on, on, bytes);
	a->fails = *fails;
	d->answers++;
	return PLUMB_OK;
}

/* The parts of a set: unit[i] of choice i, -1: not in it. part[]: choices of the k-th of `parts` pieces of the units.
 */
static void piece(const struct ddmin *d, const int *unit, int units, int parts, int k, bool inside, bool *out)
{
	int first = (int)((long long)units * k / parts), last = (int)((long long)units * (k + 1) / parts);
	for (int i = 0; i < d->n; i++)
		out[i] = unit[i] >= 0 && (unit[i] >= first && unit[i] < last) == inside;
}

/* Number the units of a set: its groups, or its single choices. Returns how many. */
static int number(const struct ddmin *d, const bool *set, bool by_group, int *unit)
{
	int units = 0, last = -1;
	for (int i = 0; i < d->n; i++) {
		unit[i] = -1;
		if (!set[i])
			continue;
		if (by_group && last >= 0 && d->group[i] == d->group[last])
			unit[i] = units - 1;
		else
			unit[i] = units++;
		last = i;
	}
	return units;
}

/* One sweep of pieces, then of complements. *cut: set was reduced; *fine: it was to a piece. */
static int sweep(struct ddmin *d, bool *set, const int *unit, int units, int parts, bool *trial, bool *cut, bool *fine)
{
	for (int inside = 1; inside >= 0; inside--) {
		if (!inside && parts == 2) /* the complement of one half is the other */
			break;
		for (int k = 0; k < parts; k++) {
			bool fails;
			piece(d, unit, units, parts, k, inside, trial);
			int status = ddmin_ask(d, trial, &fails);
			if (status != PLUMB_OK)
				return status;
			if (fails) {
				memcpy(set, trial, (size_t)d->n * sizeof *set);
				*cut = true;
				*fine = inside;
				return PLUMB_OK;
			}
		}
	}
	return PLUMB_OK;
}

static int reduce_units(struct ddmin *d, bool *set, bool by_group, int *unit, bool *trial)
{
	int units = number(d, set, by_group, unit), parts = 2, status = PLUMB_OK;

	while (units >= 2 && status == PLUMB_OK) {
		bool cut = false, fine = false;
		status = sweep(d, set, unit, units, parts, trial, &cut, &fine);
		if (cut) {
			units = number(d, set, by_group, unit);
			parts = fine ? 2 : parts > 2 ? parts - 1 : 2;
		} else if (parts >= units) {
			break;
		} else {
			parts = 2 * parts;
		}
		parts = parts < units ? parts : units;
	}
	return status;
}

/* fixed and the first k members of set. */
static void prefix(const struct ddmin *d, const bool *set, const bool *fixed, int k, bool *out)
{
	for (int i = 0, seen = 0; i < d->n; i++) {
		out[i] = fixed[i] || (set[i] && seen < k);
		seen += set[i];
	}
}

/* Binary search, a member at a time: the shortest prefix that fails ends in a member that is needed; with it fixed the
 * rest of that prefix is searched, until the fixed members fail by themselves. Some log2(n) tests a member. */
static int reduce_prefixes(struct ddmin *d, bool *set, bool *fixed, bool *trial)
{
	int status = PLUMB_OK;

	memset(fixed, 0, (size_t)d->n * sizeof *fixed);
	for (;;) {
		int low = 0, high = 0, last = -1;
		bool fails;
		for (int i = 0; i < d->n; i++)
			high += set[i];
		prefix(d, set, fixed, 0, trial);
		status = ddmin_ask(d, trial, &fails);
		if (status != PLUMB_OK || fails || high == 0)
			break;
		while (high - low > 1 && status == PLUMB_OK) { /* low passes, high fails */
			int middle = low + (high - low) / 2;
			prefix(d, set, fixed, middle, trial);
			status = ddmin_ask(d, trial, &fails);
			*(fails ? &high : &low) = middle;
		}
		if (status != PLUMB_OK)
			break;
		prefix(d, set, fixed, high, trial);
		for (int i = 0; i < d->n; i++)
			if (trial[i] && set[i])
				last = i;
		for (int i = last; i < d->n; i++)
			set[i] = false;
		fixed[last] = true;
	}
	return status;
}

/* Whether a set fails, and none of it with a member less. */
static int is_minimal(struct ddmin *d, const bool *set, bool *trial, bool *minimal)
{
	bool fails = false;
	int status = ddmin_ask(d, set, &fails);

	*minimal = fails;
	memcpy(trial, set, (size_t)d->n * sizeof *trial);
	for (int i = 0; i < d->n && *minimal && status == PLUMB_OK; i++) {
		if (!set[i])
			continue;
		trial[i] = false;
		status = ddmin_ask(d, trial, &fails);
		trial[i] = true;
		*minimal = !fails;
	}
	return status;
}

int ddmin_reduce(struct ddmin *d, bool *set, const bool *first)
{
	size_t bytes = (size_t)d->n * sizeof *set;
	bool *trial = malloc(bytes), *fixed = malloc(bytes), *rest = malloc(bytes), fails = false, minimal = false;
	int *unit = calloc((size_t)d->n, sizeof *unit), status = PLUMB_OK, members = 0;

	if (!trial || !unit || !fixed || !rest) {
		status = plumb_fail(d->err, PLUMB_BAD_INPUT, "out of memory for %d choices", d->n);
		goto out;
	}
	for (int i = 0; i < d->n; i++) {
		trial[i] = first && first[i] && set[i];
		members += trial[i];
	}
	if (members > 0)
		status = ddmin_ask(d, trial, &fails);
	if (fails)
		memcpy(set, trial, bytes);
	memcpy(rest, set, bytes);
	if (status == PLUMB_OK)
		status = reduce_prefixes(d, rest, fixed, trial);
	if (status == PLUMB_OK)
		status = is_minimal(d, fixed, trial, &minimal);
	if (minimal) {
		memcpy(set, fixed, bytes);
		goto out;
	}
	/* switching more on heals something: no prefix is to be trusted, pieces of every size are tried */
	for (int by_group = 1; by_group >= 0 && status == PLUMB_OK; by_group--)
		status = reduce_units(d, set, by_group, unit, trial);
out:
	free(trial);
	free(fixed);
	free(rest);
	free(unit);
	return status;
}
