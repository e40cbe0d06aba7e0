/* SPDX-License-Identifier: MIT */
#include "core/tolerance.h"

#include <cjson/cJSON.h>
#include <float.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/json.h"
#include "core/text.h"

enum { MAX_RULES = 1024 };

struct plumb_tolerances {
	struct cJSON *json; /* keeps the strings of the rules */
	struct plumb_tolerance_rule *rule;
	int rules;
};

/* The bounds by name: where each lives, and the range in which it can still fail something. */
struct number_bound {
	const char *key, *words;
	unsigned bit;
	size_t offset;
	double min, max;
	bool every; /* looks at every element, so that no single one can be arbitrarily wrong unseen */
};

struct integer_bound {
	const char *key, *words;
	unsigned bit;
	size_t offset;
	int64_t max;
};

#define AT(member) offsetof(struct plumb_tolerance, member)

static const struct number_bound number_bounds[] = {
	{"max_relative_l2", "relative L2 <= ", PLUMB_BOUND_REL_L2, AT(max_rel_l2), DBL_MIN, 0.5, true},
	{"max_error", "error <= ", PLUMB_BOUND_ABS, AT(max_abs), 0.0, DBL_MAX, true},
	{"max_peak", "max error / rms <= ", PLUMB_BOUND_PEAK, AT(max_peak), DBL_MIN, 1.0, true},
	{"min_equal", "equal part >= ", PLUMB_BOUND_EQUAL, AT(min_equal), DBL_MIN, 1.0, false},
	{"min_near", "part near >= ", PLUMB_BOUND_NEAR, AT(min_near), DBL_MIN, 1.0, false},
};

static const struct integer_bound integer_bounds[] = {
	{"max_ulp", "ulp <= ", PLUMB_BOUND_ULP, AT(max_ulp), 1 << 23},
	{"max_bf16_ulp", "bf16 ulp <= ", PLUMB_BOUND_BF16_ULP, AT(max_bf16_ulp), 1 << 7},
};

static const struct {
	const char *key;
	unsigned bit;
} exact_bounds[] = {
	{"exact", PLUMB_BOUND_EXACT},
	{"bits", PLUMB_BOUND_BITS},
};

static const struct {
	const char *key;
	size_t offset;
} allowances[] = {
	{"allow_zero", AT(allow_zero)},
	{"allow_constant", AT(allow_constant)},
	{"allow_nan", AT(allow_nan)},
};

static const char *const other_keys[] = {"view", "policy", "suffix", "reason", "near_ulp_log2", "bf16_noise"};

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

const char *plumb_view_name(enum plumb_view view)
{
	return view == PLUMB_VIEW_PROPAGATED ? "propagated" : "local";
}

const char *plumb_policy_name(enum plumb_policy policy)
{
	return policy == PLUMB_POLICY_BF16 ? "bf16" : "f32";
}

/* Refuse in the voice of the JSON reader, and like it only once. */
static void refuse(struct plumb_json_object *o, const char *key, const char *format, ...)
	__attribute__((format(printf, 3, 4)));

static void refuse(struct plumb_json_object *o, const char *key, const char *format, ...)
{
	char text[256];
	va_list ap;

	if (o->status != PLUMB_OK)
		return;
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	/* The path of an object ends in a dot for its keys; without a key, the object itself is meant. */
	o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: %.*s%s%s%s", o->file,
		(int)(strlen(o->path) - (key[0] == '\0' && o->path[0] != '\0')), o->path, key,
		o->path[0] || key[0] ? ": " : "", text);
}

static bool known_key(const char *key)
{
	for (size_t i = 0; i < COUNT(number_bounds); i++)
		if (strcmp(key, number_bounds[i].key) == 0)
			return true;
	for (size_t i = 0; i < COUNT(integer_bounds); i++)
		if (strcmp(key, integer_bounds[i].key) == 0)
			return true;
	for (size_t i = 0; i < COUNT(exact_bounds); i++)
		if (strcmp(key, exact_bounds[i].key) == 0)
			return true;
	for (size_t i = 0; i < COUNT(allowances); i++)
		if (strcmp(key, allowances[i].key) == 0)
			return true;
	for (size_t i = 0; i < COUNT(other_keys); i++)
		if (strcmp(key, other_keys[i]) == 0)
			return true;
	return false;
}

/* One of two words. */
static int read_word(struct plumb_json_object *o, const char *key, const char *zero, const char *one)
{
	const char *word = plumb_json_string(o, key, NULL);

	if (o->status != PLUMB_OK || strcmp(word, zero) == 0)
		return 0;
	if (strcmp(word, one) != 0)
		refuse(o, key, "\"%.64s\", expected \"%s\" or \"%s\"", word, zero, one);
	return 1;
}

/* Whether a key is there at all. An explicit null is no bound and no absence either: it is refused by its reader. */
static bool has(const struct plumb_json_object *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o->object, key) != NULL;
}

static void read_bounds(struct plumb_json_object *o, struct plumb_tolerance *t)
{
	char *base = (char *)t;
	bool every = false;

	for (size_t i = 0; i < COUNT(number_bounds); i++) {
		const struct number_bound *bound = &number_bounds[i];
		double value;
		if (!has(o, bound->key))
			continue;
		value = plumb_json_number(o, bound->key, bound->min, bound->max, NULL);
		memcpy(base + bound->offset, &value, sizeof value);
		t->set |= bound->bit;
		every = every || bound->every;
	}
	for (size_t i = 0; i < COUNT(integer_bounds); i++) {
		const struct integer_bound *bound = &integer_bounds[i];
		int64_t value;
		if (!has(o, bound->key))
			continue;
		value = plumb_json_int(o, bound->key, 0, bound->max, NULL);
		memcpy(base + bound->offset, &value, sizeof value);
		t->set |= bound->bit;
		every = true;
	}
	for (size_t i = 0; i < COUNT(exact_bounds); i++) {
		if (!has(o, exact_bounds[i].key))
			continue;
		if (!plumb_json_bool(o, exact_bounds[i].key, NULL))
			refuse(o, exact_bounds[i].key, "false, expected true (leave it out where it is not demanded)");
		t->set |= exact_bounds[i].bit;
		every = true;
	}
	if (has(o, "near_ulp_log2"))
		t->near_ulp_log2 = (int)plumb_json_int(o, "near_ulp_log2", 1, 23, NULL);
	if (has(o, "near_ulp_log2") != ((t->set & PLUMB_BOUND_NEAR) != 0))
		refuse(o, "min_near", "min_near and near_ulp_log2 need one another, one is missing");
	if (has(o, "bf16_noise")) {
		t->bf16_noise = plumb_json_number(o, "bf16_noise", DBL_MIN, 1e-3, NULL);
		if (!(t->set & PLUMB_BOUND_BF16_ULP) || t->max_bf16_ulp >= PLUMB_BF16_STEPS)
			refuse(o, "bf16_noise", "needs a max_bf16_ulp of 0..%d", PLUMB_BF16_STEPS - 1);
	}
	if (!every)
		refuse(o, "",
			"no bound that looks at every element, expected one of max_relative_l2, max_error, max_peak, "
			"max_ulp, max_bf16_ulp, exact, bits");
}

/* Path components only: no slash at either end, so that matching by components cannot go wrong. */
static bool good_suffix(const char *suffix)
{
	size_t length = strlen(suffix);

	return length > 0 && suffix[0] != '/' && suffix[length - 1] != '/';
}

static int read_rule(
	const struct cJSON *item, int index, const char *name, struct plumb_tolerance_rule *rule, struct plumb_error *err)
{
	char path[64], shown[64];
	struct plumb_json_object o = {.object = item, .file = name, .path = path, .err = err};

	snprintf(path, sizeof path, "rules[%d]", index);
	if (!cJSON_IsObject(item))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: %s: %s, expected an object", name, path, plumb_json_show(item, shown));
	snprintf(path, sizeof path, "rules[%d].", index);
	for (const struct cJSON *field = item->child; field; field = field->next)
		if (!known_key(field->string))
			refuse(&o, "", "\"%.64s\" is no key of a rule (plumb list tolerances shows them)", field->string);
	rule->view = read_word(&o, "view", "local", "propagated") ? PLUMB_VIEW_PROPAGATED : PLUMB_VIEW_LOCAL;
	rule->policy = read_word(&o, "policy", "f32", "bf16") ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32;
	rule->suffix = has(&o, "suffix") ? plumb_json_string(&o, "suffix", NULL) : "";
	if (o.status == PLUMB_OK && has(&o, "suffix") && !good_suffix(rule->suffix))
		refuse(&o, "suffix", "\"%.64s\", expected path components such as \"moe/output\"", rule->suffix);
	rule->reason = plumb_json_string(&o, "reason", NULL);
	if (o.status == PLUMB_OK && rule->reason[strspn(rule->reason, " \t\r\n")] == '\0')
		refuse(&o, "reason", "empty, expected why these figures");
	read_bounds(&o, &rule->tolerance);
	for (size_t i = 0; i < COUNT(allowances); i++) {
		bool value;
		if (!has(&o, allowances[i].key))
			continue;
		value = plumb_json_bool(&o, allowances[i].key, NULL);
		memcpy((char *)&rule->tolerance + allowances[i].offset, &value, sizeof value);
	}
	return o.status;
}

static bool same_place(const struct plumb_tolerance_rule *a, const struct plumb_tolerance_rule *b)
{
	return a->view == b->view && a->policy == b->policy && strcmp(a->suffix, b->suffix) == 0;
}

/* Every view and policy has a general rule, none twice. */
static int check_rules(const struct plumb_tolerances *t, const char *name, struct plumb_error *err)
{
	int general[2][2] = {{0}};

	for (int i = 0; i < t->rules; i++) {
		/* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): every rule has a suffix, maybe an empty one */
		general[t->rule[i].view][t->rule[i].policy] += t->rule[i].suffix[0] == '\0';
		for (int j = 0; j < i; j++)
			if (same_place(&t->rule[i], &t->rule[j]))
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"%s: rules[%d] and rules[%d] both speak of %s, %s, suffix \"%.64s\", expected "
					"one",
					name, j, i, plumb_view_name(t->rule[i].view), plumb_policy_name(t->rule[i].policy),
					t->rule[i].suffix);
	}
	for (int view = 0; view < 2; view++)
		for (int policy = 0; policy < 2; policy++)
			if (general[view][policy] != 1)
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"%s: no rule without a suffix for view %s and policy %s, expected one", name,
					plumb_view_name((enum plumb_view)view),
					plumb_policy_name((enum plumb_policy)policy));
	return PLUMB_OK;
}

static int read_rules(struct plumb_tolerances *t, const char *name, struct plumb_error *err)
{
	struct plumb_json_object root = {.object = t->json, .file = name, .path = "", .err = err};
	const struct cJSON *rules, *item;
	char shown[64];

	if (!cJSON_IsObject(t->json))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: %s, expected an object", name, plumb_json_show(t->json, shown));
	for (const struct cJSON *field = t->json->child; field; field = field->next)
		if (strcmp(field->string, "version") != 0 && strcmp(field->string, "rules") != 0)
			refuse(&root, "", "\"%.64s\" is no key of a tolerance file, expected version and rules",
				field->string);
	plumb_json_int(&root, "version", 1, 1, NULL);
	rules = plumb_json_array(&root, "rules", true);
	if (root.status != PLUMB_OK)
		return root.status;
	if (cJSON_GetArraySize(rules) > MAX_RULES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: rules: %d of them, expected at most %d", name,
			cJSON_GetArraySize(rules), MAX_RULES);
	t->rule = calloc((size_t)cJSON_GetArraySize(rules) + 1, sizeof *t->rule);
	if (!t->rule)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", name);
	for (item = rules->child; item; item = item->next) {
		int status = read_rule(item, t->rules, name, &t->rule[t->rules], err);
		if (status != PLUMB_OK)
			return status;
		t->rules++;
	}
	return check_rules(t, name, err);
}

int plumb_tolerances_parse(
	const char *text, size_t size, const char *name, struct plumb_tolerances **out, struct plumb_error *err)
{
	/* A rule is about 100 bytes of bounds and a reason of a few lines. */
	static const struct plumb_json_limits limits = {.bytes = 1 << 20, .depth = 4, .values = 1 << 15};
	struct plumb_tolerances *t = calloc(1, sizeof *t);
	int status;

	*out = NULL;
	if (!t)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory", name);
	status = plumb_json_parse(text, size, name, &limits, &t->json, err);
	if (status == PLUMB_OK)
		status = read_rules(t, name, err);
	if (status == PLUMB_OK)
		*out = t;
	else
		plumb_tolerances_free(t);
	return status;
}

int plumb_tolerances_read(const char *path, struct plumb_tolerances **out, struct plumb_error *err)
{
	char *text = NULL;
	size_t size = 0;
	int status;

	*out = NULL;
	if (!path)
		return plumb_tolerances_parse(
			plumb_tolerances_json, plumb_tolerances_json_size, "built-in tolerances.json", out, err);
	status = plumb_file_read(path, 1 << 20, &text, &size, err);
	if (status == PLUMB_OK)
		status = plumb_tolerances_parse(text, size, path, out, err);
	free(text);
	return status;
}

void plumb_tolerances_free(struct plumb_tolerances *tolerances)
{
	if (!tolerances)
		return;
	cJSON_Delete(tolerances->json);
	free(tolerances->rule);
	free(tolerances);
}

bool plumb_tolerance_fits(const char *suffix, const char *dataset)
{
	size_t length = strlen(dataset), tail = strlen(suffix);

	if (tail == 0)
		return true;
	return tail <= length && strcmp(dataset + length - tail, suffix) == 0 &&
	       (tail == length || dataset[length - tail - 1] == '/');
}

const struct plumb_tolerance_rule *plumb_tolerances_find(
	const struct plumb_tolerances *tolerances, enum plumb_view view, enum plumb_policy policy, const char *dataset)
{
	const struct plumb_tolerance_rule *best = NULL;

	for (int i = 0; i < tolerances->rules; i++) {
		const struct plumb_tolerance_rule *rule = &tolerances->rule[i];
		if (rule->view == view && rule->policy == policy && plumb_tolerance_fits(rule->suffix, dataset) &&
			(!best || strlen(rule->suffix) > strlen(best->suffix)))
			best = rule;
	}
	return best; /* check_rules saw to a general one */
}

const struct plumb_tolerance_rule *plumb_tolerances_rules(const struct plumb_tolerances *tolerances, int *count)
{
	*count = tolerances->rules;
	return tolerances->rule;
}

const char *plumb_tolerance_show(const struct plumb_tolerance *tolerance, char *text, size_t size)
{
	struct plumb_text line = {.text = text, .size = size};
	const char *base = (const char *)tolerance;

	if (size > 0)
		text[0] = '\0';
	for (size_t i = 0; i < COUNT(number_bounds); i++) {
		double value;
		if (!(tolerance->set & number_bounds[i].bit))
			continue;
		memcpy(&value, base + number_bounds[i].offset, sizeof value);
		plumb_text_add(&line, "%s%s%g", line.used ? ", " : "", number_bounds[i].words, value);
		if (number_bounds[i].bit == PLUMB_BOUND_NEAR)
			plumb_text_add(&line, " (below 2^%d ulp)", tolerance->near_ulp_log2);
	}
	for (size_t i = 0; i < COUNT(integer_bounds); i++) {
		int64_t value;
		if (!(tolerance->set & integer_bounds[i].bit))
			continue;
		memcpy(&value, base + integer_bounds[i].offset, sizeof value);
		plumb_text_add(&line, "%s%s%" PRId64, line.used ? ", " : "", integer_bounds[i].words, value);
		if (integer_bounds[i].bit == PLUMB_BOUND_BF16_ULP && tolerance->bf16_noise > 0.0)
			plumb_text_add(&line, " (or error <= %g rms)", tolerance->bf16_noise);
	}
	for (size_t i = 0; i < COUNT(exact_bounds); i++)
		if (tolerance->set & exact_bounds[i].bit)
			plumb_text_add(&line, "%s%s", line.used ? ", " : "", exact_bounds[i].key);
	for (size_t i = 0; i < COUNT(allowances); i++) {
		bool value;
		memcpy(&value, base + allowances[i].offset, sizeof value);
		if (value)
			plumb_text_add(&line, "%s%s", line.used ? ", " : "", allowances[i].key);
	}
	return text;
}
