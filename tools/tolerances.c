/* SPDX-License-Identifier: MIT */
#include "tools/tolerances.h"

#include <stdio.h>
#include <string.h>

#include "golden/golden.h"
#include "golden/layout.h"
#include "tools/text.h"

/* Choices are compared as sets, integers for equality: no tolerance is asked for. */
static bool is_float(const struct plumb_golden_source *s)
{
	return !s->integer && s->form != PLUMB_GOLDEN_MASK;
}

/* Whether a rule speaks of some float tensor of the format, in a model of any depth. */
static bool is_of_format(const struct plumb_tolerance_rule *rule)
{
	const char *run = plumb_golden_run_name(rule->policy);
	const int layers = strstr(rule->suffix, "layer") ? PLUMB_MAX_LAYERS : 1; /* else one is as good as another */
	char name[128];

	snprintf(name, sizeof name, "%s/decode_logits", run); /* of the run as a whole: the table of ops does not have it */
	if (plumb_tolerance_fits(rule->suffix, name))
		return true;
	for (int i = 0; i < plumb_golden_source_count; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		for (int l = 0; is_float(s) && l < (s->scope == PLUMB_GOLDEN_OUTSIDE ? 1 : layers); l++) {
			if (s->scope == PLUMB_GOLDEN_OUTSIDE)
				snprintf(name, sizeof name, "%s/%s", run, s->dataset);
			else
				snprintf(name, sizeof name, "%s/layer%02d/%s", run, l, s->dataset);
			if (plumb_tolerance_fits(rule->suffix, name))
				return true;
		}
	}
	return false;
}

static bool is_choice(const char *name)
{
	for (int i = 0; i < plumb_golden_source_count; i++)
		if (!is_float(&plumb_golden_sources[i]) && plumb_tolerance_fits(plumb_golden_sources[i].dataset, name))
			return true;
	return false;
}

/* Whether files have float tensors that a rule speaks of. *any: they have tensors of its policy at all. */
static bool is_of_files(const struct plumb_tolerance_rule *rule, struct plumb_h5 *const *file, int files, bool *any)
{
	bool found = false;

	*any = false;
	for (int f = 0; f < files; f++) {
		int64_t count;
		const struct plumb_h5_entry *e = plumb_h5_entries(file[f], &count);
		for (int64_t i = 0; i < count && !found; i++) {
			if ((strncmp(e[i].name, "bf16/", 5) == 0) != (rule->policy == PLUMB_POLICY_BF16))
				continue;
			*any = true;
			found = e[i].type == PLUMB_H5_FLOAT && plumb_tolerance_fits(rule->suffix, e[i].name) &&
			        !is_choice(e[i].name);
		}
	}
	return found;
}

static int refuse(const char *path, int index, const struct plumb_tolerance_rule *rule, struct plumb_error *err)
{
	struct text_nearest near = {.word = rule->suffix};
	char meant[TEXT_NEAREST];

	text_nearest(&near, "decode_logits");
	for (int i = 0; i < plumb_golden_source_count; i++)
		if (is_float(&plumb_golden_sources[i]))
			text_nearest(&near, plumb_golden_sources[i].dataset);
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"%s: rules[%d].suffix: \"%.64s\", expected the end of the name of a float tensor%s", path, index,
		rule->suffix, text_did_you_mean(&near, meant));
}

int tolerances_open(const char *path, struct plumb_h5 *const *file, int files, const char *label,
	struct plumb_tolerances **out, struct plumb_error *err)
{
	int rules, status = plumb_tolerances_read(path, out, err);
	const struct plumb_tolerance_rule *rule;

	if (status != PLUMB_OK || !path)
		return status;
	rule = plumb_tolerances_rules(*out, &rules);
	for (int i = 0; i < rules && status == PLUMB_OK; i++) {
		bool any, found = is_of_files(&rule[i], file, files, &any);
		if (rule[i].suffix[0] && !found && !is_of_format(&rule[i]))
			status = refuse(path, i, &rule[i], err);
		else if (any && !found)
			fprintf(stderr,
				"plumb %s: %s: rules[%d] is for nothing here: no float tensor of %s ends with \"%s\"\n",
				label, path, i, plumb_h5_path(file[0]), rule[i].suffix);
	}
	if (status != PLUMB_OK) {
		plumb_tolerances_free(*out);
		*out = NULL;
	}
	return status;
}
