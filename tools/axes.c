/* SPDX-License-Identifier: MIT */
#include "tools/axes.h"

#include <stdio.h>
#include <string.h>

#include "golden/case.h"

static const char *letter_name(const char *letter)
{
	static const char *const names[][2] = {
		{"T", "token"},
		{"P", "row"},
		{"NB", "block"},
		{"S", "stream"},
		{"Hq", "head"},
		{"Hkv", "head"},
		{"Hk", "head"},
		{"Hv", "head"},
		{"Hi", "head"},
		{"Hg", "hash head"},
		{"Dv", "value row"},
		{"Dk", "key column"},
		{"C", "channel"},
		{"E", "expert"},
		{"A", "slot"},
		{"N", "slot"},
		{"V", "token id"},
		{"Kc", "ring row"},
		{"W", "ring row"},
		{"2", "half"},
		{"G-1", "place"},
	};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i][0], letter) == 0)
			return names[i][1];
	return "column";
}

static void add(struct axes *out, const char *name, int64_t size, int64_t first)
{
	if (out->count < AXES_MAX)
		out->axis[out->count++] = (struct axis){name, size, first};
}

/* One dimension of a shape, "Hq*Dh": an axis a factor, where it is a product of letters. */
static void add_dimension(const struct plumb_call *call, const char *text, size_t length, struct axes *out)
{
	const struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	char part[32];
	int64_t dim[8];
	bool product;

	snprintf(part, sizeof part, "%.*s", (int)length, text);
	product = !strpbrk(part, "+-/");
	for (char *at = part; at;) {
		char *next = product ? strchr(at, '*') : NULL;
		if (next)
			*next++ = '\0';
		if (plumb_shape_eval(at, call->env->cfg, &extent, dim) == 1)
			add(out, letter_name(at), dim[0], strcmp(at, "T") == 0 ? call->position : 0);
		at = next;
	}
}

void axes_make(const struct plumb_call *call, const struct plumb_operand *o, struct axes *out)
{
	out->count = 0;
	for (const char *at = o->shape; *at;) {
		size_t n = strcspn(at, " ");
		add_dimension(call, at, n, out);
		at += n + (at[n] == ' ');
	}
	if (o->kind == PLUMB_KIND_CACHE && out->count > 0) {
		int64_t last;
		plumb_case_written_rows(call, o, &out->axis[0].first, &last);
		out->axis[0].size = last - out->axis[0].first;
	}
	/* "token 3, value row 2" of (T, Hv, Dv): a row is one only in the state */
	for (int i = 0; i < out->count; i++)
		if (strcmp(out->axis[i].name, "value row") == 0 && i == out->count - 1)
			out->axis[i].name = "column";
}

int64_t axes_at(const struct axes *axes, int axis, int64_t element)
{
	for (int i = axes->count - 1; i > axis; i--)
		element /= axes->axis[i].size ? axes->axis[i].size : 1;
	return axis > 0 ? element % (axes->axis[axis].size ? axes->axis[axis].size : 1) : element;
}

const char *axes_show(const struct axes *axes, int64_t element, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (int i = 0; i < axes->count && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s %lld", i ? ", " : "", axes->axis[i].name,
			(long long)(axes->axis[i].first + axes_at(axes, i, element)));
	return text;
}
