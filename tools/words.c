/* SPDX-License-Identifier: MIT */
#include "tools/words.h"

#include <ctype.h>
#include <string.h>

#include "core/op.h"
#include "core/profile.h"
#include "core/synthetic.h"
#include "tools/trial_class.h"

static void add(struct words *w, const char *word, size_t n, const char *tail)
{
	size_t used = strlen(w->list);

	if (used + n + strlen(tail) + 2 < sizeof w->list)
		snprintf(w->list + used, sizeof w->list - used, "%s%.*s%s", used ? " " : "", (int)n, word, tail);
}

static void add_ops(struct words *w, const char *tail)
{
	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		add(w, plumb_ops[i].name, strlen(plumb_ops[i].name), tail);
}

static void add_profiles(struct words *w)
{
	const char *name, *text;
	size_t size;

	for (int i = 0; (name = plumb_profile_shipped(i, &text, &size)); i++)
		add(w, name, strlen(name), "");
}

/* One of the alternatives of a pattern. */
static void alternative(struct words *w, const char *p, size_t n)
{
	const char *dot = memchr(p, '.', n);

	if (n >= 2 && strncmp(p, "OP", 2) == 0)
		add_ops(w, "");
	else if (n == 7 && strncmp(p, "PROFILE", n) == 0)
		add_profiles(w);
	else if (n == 6 && strncmp(p, "PRESET", n) == 0)
		for (int i = 0; plumb_preset_name(i); i++)
			add(w, plumb_preset_name(i), strlen(plumb_preset_name(i)), "");
	else if (n == 5 && strncmp(p, "CLASS", n) == 0)
		for (int i = 0; trial_class(i); i++)
			add(w, trial_class(i)->name, strlen(trial_class(i)->name), "");
	else if (n == 3 && strncmp(p, "DIR", n) == 0)
		w->folders = true;
	else if (strncmp(p, "FILE", 4) == 0 ||
		 (isupper((unsigned char)*p) && dot && dot + 1 < p + n && islower((unsigned char)dot[1]))) {
		w->files = true;
		if (dot && dot + 1 < p + n)
			snprintf(w->ending, sizeof w->ending, "%.*s", (int)(n - (size_t)(dot + 1 - p)), dot + 1);
	} else if (n > 1 && islower((unsigned char)*p))
		add(w, p, n, "");
}

void words_of(const char *pattern, struct words *out)
{
	memset(out, 0, sizeof *out);
	if (!pattern) {
		out->files = true;
		return;
	}
	if (strncmp(pattern, "NAME[@", 6) == 0 || strncmp(pattern, "NAME=", 5) == 0) { /* of --op */
		out->equals = strchr(pattern, '=') != NULL;
		add_ops(out, out->equals ? "=" : "");
		return;
	}
	if (strcmp(pattern, "NAME|FILE") == 0) { /* of --profile */
		add_profiles(out);
		out->files = true;
		return;
	}
	for (const char *p = pattern; *p;) {
		size_t n = strcspn(p, "|");
		if (n > 0)
			alternative(out, p, n);
		p += n + (p[n] == '|');
	}
}
