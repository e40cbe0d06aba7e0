/* SPDX-License-Identifier: MIT */
#include "tools/trial_filter.h"

#include <inttypes.h>
#include <stdio.h>

static const char *const options[TRIAL_FORMATS] = {"--format", "--kv-format", "--state-format"};

/* Formats that no op in question has: what the ops have instead, of as many as a line holds. */
static int refuse_format(const bool wanted[], enum trial_formats whose, unsigned set, struct plumb_error *err)
{
	static const char *const what[TRIAL_FORMATS] = {"weights", "cache of keys and values", "GDN state"};
	char words[TRIAL_LINE], has[TRIAL_LINE], text[480] = "";
	size_t used = 0;

	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		const unsigned of = trial_spec_formats((enum plumb_op)op, whose);
		if (!wanted[op] || used >= sizeof text / 2)
			continue;
		used += (size_t)snprintf(text + used, sizeof text - used, "%s%s has %s%s", used ? "; " : "",
			plumb_ops[op].name, of ? "" : "no ", of ? trial_spec_format_words(whose, of, has) : what[whose]);
	}
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%s', which no op here has: %s", options[whose],
		trial_spec_format_words(whose, set, words), text);
}

static int begin_formats(struct trial_filter *f, enum trial_formats whose, const bool wanted[], struct plumb_error *err)
{
	unsigned of_ops = 0;

	for (int i = 0; i < f->formats[whose].count; i++) {
		int status =
			trial_spec_parse_formats(options[whose], whose, f->formats[whose].item[i], &f->among[whose], err);
		if (status != PLUMB_OK)
			return status;
	}
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		of_ops |= wanted[op] ? trial_spec_formats((enum plumb_op)op, whose) : 0;
	return f->among[whose] & ~of_ops ? refuse_format(wanted, whose, f->among[whose] & ~of_ops, err) : PLUMB_OK;
}

static int begin_sizes(struct trial_filter *f, const bool wanted[], struct plumb_error *err)
{
	for (int i = 0; i < f->sizes.count; i++) {
		int status = trial_spec_parse_sizes("--size", f->sizes.item[i], f->size, err);
		if (status != PLUMB_OK)
			return status;
	}
	for (int i = 0; i < TRIAL_LETTERS; i++) {
		bool has = f->size[i] == 0;
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			has = has || (wanted[op] && trial_spec_has_size((enum plumb_op)op, i));
		if (!has)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"--size has %s, a size that no op here has; 'plumb list OP' shows an op's",
				trial_spec_letter(i));
	}
	return PLUMB_OK;
}

int trial_filter_begin(struct trial_filter *f, const bool wanted[], struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int w = 0; w < TRIAL_FORMATS && status == PLUMB_OK; w++)
		status = begin_formats(f, (enum trial_formats)w, wanted, err);
	return status == PLUMB_OK ? begin_sizes(f, wanted, err) : status;
}

void trial_filter_take(const struct trial_filter *f, struct trial_spec *spec)
{
	for (int w = 0; w < TRIAL_FORMATS; w++)
		if (f->among[w])
			spec->formats[w] = f->among[w] & trial_spec_formats(spec->op, (enum trial_formats)w);
	for (int i = 0; i < TRIAL_LETTERS; i++)
		if (f->size[i] && trial_spec_has_size(spec->op, i))
			spec->size[i] = f->size[i];
}

const char *trial_filter_show(const struct trial_filter *f, char text[TRIAL_LINE])
{
	char words[TRIAL_LINE];
	size_t used = 0;

	text[0] = '\0';
	for (int w = 0; w < TRIAL_FORMATS && used < TRIAL_LINE; w++)
		if (f->among[w])
			used += (size_t)snprintf(text + used, TRIAL_LINE - used, "%s%s %s", used ? "; " : "",
				options[w] + 2, trial_spec_format_words((enum trial_formats)w, f->among[w], words));
	for (int i = 0; i < TRIAL_LETTERS && used < TRIAL_LINE; i++)
		if (f->size[i])
			used += (size_t)snprintf(text + used, TRIAL_LINE - used, "%s%s=%" PRId64, used ? "; " : "",
				trial_spec_letter(i), f->size[i]);
	return text;
}
