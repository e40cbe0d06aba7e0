/* SPDX-License-Identifier: MIT */
#include "tools/trial_spec.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Sizes by letter. P, T and Hg are no members of the config. */
static const struct letter {
	const char *name;
	size_t offset; /* of the member */
	bool wide;     /* int64_t, else int */
	int64_t most;
} letters[TRIAL_LETTERS] = {
#define WIDE(letter, member)                                                                                               \
	{                                                                                                                  \
		letter, offsetof(struct plumb_config, member), true, INT32_MAX                                             \
	}
#define NARROW(letter, member, most)                                                                                       \
	{                                                                                                                  \
		letter, offsetof(struct plumb_config, member), false, most                                                 \
	}
	{"T", 0, false, 4096},
	{"P", 0, false, 1 << 24},
	WIDE("D", hidden),
	NARROW("S", streams, PLUMB_MAX_STREAMS),
	WIDE("R", low_rank),
	WIDE("V", vocab),
	NARROW("Hq", q_heads, 65536),
	NARROW("Hkv", kv_heads, 65536),
	WIDE("Dh", head_dim),
	WIDE("Dr", rotary_dim),
	NARROW("Hk", gdn_key_heads, 65536),
	NARROW("Hv", gdn_value_heads, 65536),
	WIDE("Dk", gdn_key_dim),
	WIDE("Dv", gdn_value_dim),
	NARROW("Kc", gdn_conv_taps, 4096),
	WIDE("E", experts),
	NARROW("A", experts_per_token, 65536),
	WIDE("F", expert_inner),
	WIDE("Fs", shared_inner),
	NARROW("Hi", index_heads, 65536),
	WIDE("Di", index_dim),
	NARROW("B", block_tokens, 65536),
	WIDE("N", block_budget),
	NARROW("G", ngram, PLUMB_MAX_NGRAM),
	{"Hg", 0, false, PLUMB_MAX_NGRAM_HEADS},
	WIDE("De", ple_dim),
	NARROW("Kp", ple_conv_taps, 4096),
};
enum { T_, P_, D_, S_, R_, V_, HQ, HKV, DH, DR, HK, HV, DK, DV, KC, E_, A_, F_, FS, HI, DI, B_, N_, G_, HG, DE, KP };

/* Words of a key, in the order of their values. */
static const char *const policies[] = {"f32", "bf16", NULL}, *const gates[] = {"sigmoid", "silu", NULL},
			 *const flags[] = {"0", "1", NULL}, *const devices[] = {"simt", "cuda", NULL};

/* Keys whose values are formats. */
enum { ALL_PLAIN = (1u << PLUMB_PLAIN_FORMATS) - 1, ALL_FORMATS = (1u << PLUMB_FORMAT_COUNT) - 1 };
static const struct {
	const char *key;
	unsigned all;
} format_keys[TRIAL_FORMATS] = {
	[TRIAL_OF_MATRICES] = {"format", ALL_FORMATS},
	[TRIAL_OF_KV] = {"kv", 1u << PLUMB_F32 | 1u << PLUMB_BF16 | 1u << PLUMB_CACHE_FP8},
	[TRIAL_OF_STATE] = {"state", ALL_PLAIN},
};

struct trial_spec trial_spec_of(enum plumb_op op)
{
	return (struct trial_spec){.op = op, .position = -1, .policy = -1, .gate = -1, .renorm = -1, .traces = -1};
}

/* ---- which keys an op looks at ---- */

static bool shape_has(const char *shape, const char *letter)
{
	size_t n = strlen(letter);
	for (const char *p = shape; *p;) {
		size_t length = 0;
		while (isalnum((unsigned char)p[length]))
			length++;
		if (length == n && strncmp(p, letter, n) == 0)
			return true;
		p += length ? length : 1;
	}
	return false;
}

static bool op_has(enum plumb_op op, const char *letter)
{
	for (int i = 0; i < plumb_ops[op].operands; i++)
		if (shape_has(plumb_ops[op].operand[i].shape, letter))
			return true;
	return false;
}

bool trial_spec_has_size(enum plumb_op op, int letter)
{
	bool channels = op_has(op, "C"), blocks = plumb_operand_find(&plumb_ops[op], "position") != NULL;

	switch (letter) {
	case T_:
		return true;
	case P_:
		return op_has(op, "P") || op_has(op, "NB");
	case B_:
		return op_has(op, "P") || op_has(op, "NB") || (blocks && op_has(op, "N"));
	case HK:
	case HV:
	case DK:
	case DV:
		return channels || op_has(op, letters[letter].name);
	case HQ:
	case HKV: /* a query head's kv head */
		return op_has(op, "Hq") || op_has(op, "Hkv");
	case G_:
	case HG:
		return op == PLUMB_PLE_EMBED || (letter == G_ && op == PLUMB_PLE_CONV);
	case V_:
		return op == PLUMB_PLE_EMBED || op_has(op, "V");
	case KP:
		return op == PLUMB_PLE_CONV;
	default:
		return op_has(op, letters[letter].name);
	}
}

unsigned trial_spec_formats(enum plumb_op op, enum trial_formats whose)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	unsigned set = 0;

	if (whose == TRIAL_OF_KV)
		return plumb_operand_find(info, "keys") ? format_keys[whose].all : 0;
	if (whose == TRIAL_OF_STATE)
		return op == PLUMB_GDN_RECURRENCE ? format_keys[whose].all : 0;
	for (int i = 0; i < info->operands; i++)
		if (info->operand[i].role == PLUMB_WEIGHT)
			set |= trial_is_vector(&info->operand[i]) ? ALL_PLAIN : ALL_FORMATS;
	return set;
}

static bool uses_key(enum plumb_op op, const char *key)
{
	const struct plumb_op_info *info = &plumb_ops[op];

	for (int i = 0; i < TRIAL_FORMATS; i++)
		if (strcmp(key, format_keys[i].key) == 0)
			return trial_spec_formats(op, (enum trial_formats)i) != 0;

	if (strcmp(key, "position") == 0)
		return plumb_operand_find(info, "position") != NULL;
	if (strcmp(key, "gate") == 0)
		return op == PLUMB_GDN_NORM_GATE;
	if (strcmp(key, "renorm") == 0)
		return op == PLUMB_MOE_ROUTER;
	for (int i = 0; i < info->operands; i++)
		if (strcmp(key, "traces") == 0 && info->operand[i].optional)
			return true;
	return strcmp(key, "traces") != 0;
}

/* ---- text to spec ---- */

static int parse_number(const char *what, const char *key, const char *value, int64_t least, int64_t most, int64_t *out,
	struct plumb_error *err)
{
	char *end;
	errno = 0;
	long long v = strtoll(value, &end, 10);
	if (errno || end == value || *end || v < least || v > most)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s is '%.40s', expected %" PRId64 " to %" PRId64, what, key,
			value, least, most);
	*out = v;
	return PLUMB_OK;
}

static int parse_word(const char *key, const char *value, const char *const words[], int *out, struct plumb_error *err)
{
	char all[128] = "";
	for (int i = 0; words[i]; i++) {
		if (strcmp(value, words[i]) == 0) {
			*out = i;
			return PLUMB_OK;
		}
		size_t used = strlen(all);
		snprintf(all + used, sizeof all - used, "%s%s", i ? ", " : "", words[i]);
	}
	return plumb_fail(err, PLUMB_BAD_INPUT, "case: %s is '%.40s', expected one of %s", key, value, all);
}

/* "fp8" is what a cache of PLUMB_CACHE_FP8 is called. */
static const char *format_word(enum trial_formats whose, int format)
{
	return whose == TRIAL_OF_KV && format == PLUMB_CACHE_FP8 ? "fp8" : plumb_format_name((enum plumb_format)format);
}

static const char *show_formats(enum trial_formats whose, unsigned set, const char *between, char text[TRIAL_LINE])
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; i < PLUMB_FORMAT_COUNT && used < TRIAL_LINE; i++)
		if (set >> i & 1)
			used += (size_t)snprintf(
				text + used, TRIAL_LINE - used, "%s%s", used ? between : "", format_word(whose, i));
	return text;
}

const char *trial_spec_format_words(enum trial_formats whose, unsigned set, char text[TRIAL_LINE])
{
	return show_formats(whose, set, ", ", text);
}

int trial_spec_parse_formats(
	const char *what, enum trial_formats whose, const char *text, unsigned *set, struct plumb_error *err)
{
	char all[TRIAL_LINE];

	for (const char *at = text;; at++) {
		size_t n = strcspn(at, ",");
		int i = 0;
		while (i < PLUMB_FORMAT_COUNT && !(format_keys[whose].all >> i & 1 && strlen(format_word(whose, i)) == n &&
							 strncmp(at, format_word(whose, i), n) == 0))
			i++;
		if (i == PLUMB_FORMAT_COUNT)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%.40s', expected one of %s, or some with commas",
				what, text, trial_spec_format_words(whose, format_keys[whose].all, all));
		*set |= 1u << i;
		at += n;
		if (!*at)
			return PLUMB_OK;
	}
}

const char *trial_spec_letter(int letter)
{
	return letters[letter].name;
}

int trial_spec_parse_sizes(const char *what, const char *text, int64_t size[TRIAL_LETTERS], struct plumb_error *err)
{
	for (const char *at = text;; at++) {
		char word[64], *equals;
		size_t n = strcspn(at, ",");
		int i = 0;
		snprintf(word, sizeof word, "%.*s", (int)(n < sizeof word ? n : sizeof word - 1), at);
		equals = strchr(word, '=');
		if (equals)
			*equals = '\0';
		while (i < TRIAL_LETTERS && strcmp(letters[i].name, word) != 0)
			i++;
		if (!equals || i == TRIAL_LETTERS)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s is '%.40s', expected sizes by their letters, D=2560,T=1; 'plumb list OP' shows an op's",
				what, text);
		if (size[i])
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s comes twice", what, word);
		int status = parse_number(what, word, equals + 1, 1, letters[i].most, &size[i], err);
		if (status != PLUMB_OK)
			return status;
		at += n;
		if (!*at)
			return PLUMB_OK;
	}
}

static int parse_class(const char *value, struct trial_spec *out, struct plumb_error *err)
{
	out->class = trial_class_find(value);
	if (!out->class)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "case: class is '%.40s'; 'plumb list classes' shows what there is", value);
	if (!trial_class_applies(out->class, out->op))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"case: class %s says nothing about %s; 'plumb list classes' has its ops", value,
			plumb_ops[out->op].name);
	return PLUMB_OK;
}

static int parse_seed(const char *value, uint64_t *out, struct plumb_error *err)
{
	char *end;
	errno = 0;
	unsigned long long v = strtoull(value, &end, 10);
	if (errno || !isdigit((unsigned char)value[0]) || *end)
		return plumb_fail(err, PLUMB_BAD_INPUT, "case: seed is '%.40s', expected a whole number below 2^64", value);
	*out = v;
	return PLUMB_OK;
}

static int parse_pair(const char *key, const char *value, struct trial_spec *s, struct plumb_error *err)
{
	static const char *const derived[] = {"C", "W", "NB", "L", NULL};
	int device = 0, status;

	for (int i = 0; i < TRIAL_LETTERS; i++)
		if (strcmp(key, letters[i].name) == 0) {
			if (!trial_spec_has_size(s->op, i))
				return plumb_fail(
					err, PLUMB_BAD_INPUT, "case: %s has no size %s", plumb_ops[s->op].name, key);
			return parse_number("case", key, value, 1, letters[i].most, &s->size[i], err);
		}
	for (int i = 0; derived[i]; i++)
		if (strcmp(key, derived[i]) == 0)
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "case: size %s follows from others, and is not to be said", key);
	if (!uses_key(s->op, key))
		return plumb_fail(err, PLUMB_BAD_INPUT, "case: %s has no %s", plumb_ops[s->op].name, key);
	if (strcmp(key, "position") == 0)
		return parse_number("case", key, value, 0, INT32_MAX - 4096, &s->position, err);
	if (strcmp(key, "policy") == 0)
		return parse_word(key, value, policies, &s->policy, err);
	for (int i = 0; i < TRIAL_FORMATS; i++)
		if (strcmp(key, format_keys[i].key) == 0) {
			char what[32];
			snprintf(what, sizeof what, "case: %s", key);
			return trial_spec_parse_formats(what, (enum trial_formats)i, value, &s->formats[i], err);
		}
	if (strcmp(key, "gate") == 0)
		return parse_word(key, value, gates, &s->gate, err);
	if (strcmp(key, "renorm") == 0)
		return parse_word(key, value, flags, &s->renorm, err);
	if (strcmp(key, "traces") == 0)
		return parse_word(key, value, flags, &s->traces, err);
	if (strcmp(key, "class") == 0)
		return parse_class(value, s, err);
	if (strcmp(key, "seed") == 0)
		return parse_seed(value, &s->seed, err);
	if (strcmp(key, "device") == 0) {
		status = parse_word(key, value, devices, &device, err);
		s->device = device ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT;
		return status;
	}
	return plumb_fail(err, PLUMB_BAD_INPUT,
		"case: '%.40s' is no key; expected a size by its letter, position, policy, format, kv, state, gate, "
		"renorm, traces, "
		"class, seed or device",
		key);
}

int trial_spec_parse(const char *text, struct trial_spec *out, struct plumb_error *err)
{
	char line[TRIAL_LINE], *rest = NULL;
	const char *seen[64];
	int words = 0;

	if (strlen(text) >= sizeof line)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "case: %zu characters, expected at most %zu", strlen(text), sizeof line - 1);
	memcpy(line, text, strlen(text) + 1);
	for (char *word = strtok_r(line, " \t\n", &rest); word; word = strtok_r(NULL, " \t\n", &rest)) {
		char *equals = strchr(word, '=');
		if (words == 0) {
			enum plumb_op op = plumb_op_find(word);
			if (op == PLUMB_OP_COUNT)
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"case: '%.60s' is no op, which has to come first; 'plumb list ops' shows them",
					word);
			*out = trial_spec_of(op);
			seen[words++] = "";
			continue;
		}
		if (!equals)
			return plumb_fail(err, PLUMB_BAD_INPUT, "case: '%.60s', expected key=value", word);
		*equals = '\0';
		for (int i = 0; i < words; i++)
			if (strcmp(seen[i], word) == 0)
				return plumb_fail(err, PLUMB_BAD_INPUT, "case: %.40s comes twice", word);
		int status = parse_pair(word, equals + 1, out, err);
		if (status != PLUMB_OK)
			return status;
		if (words < 64)
			seen[words++] = word;
	}
	if (words == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "case: empty, expected an op and key=value words");
	return PLUMB_OK;
}

/* ---- spec to text ---- */

struct writer {
	char *text;
	size_t used, size;
};

__attribute__((format(printf, 2, 3))) static void add(struct writer *w, const char *format, ...)
{
	va_list list;
	va_start(list, format);
	int n = vsnprintf(w->text + w->used, w->size - w->used, format, list);
	va_end(list);
	w->used += n > 0 ? (size_t)n : 0;
	w->used = w->used < w->size ? w->used : w->size - 1;
}

const char *trial_spec_show(const struct trial_spec *s, char text[TRIAL_LINE])
{
	struct writer w = {text, 0, TRIAL_LINE};
	char formats[TRIAL_LINE];

	add(&w, "%s", plumb_ops[s->op].name);
	for (int i = 0; i < TRIAL_LETTERS; i++)
		if (s->size[i] > 0)
			add(&w, " %s=%" PRId64, letters[i].name, s->size[i]);
	if (s->position >= 0)
		add(&w, " position=%" PRId64, s->position);
	if (s->policy >= 0)
		add(&w, " policy=%s", policies[s->policy]);
	for (int i = 0; i < TRIAL_FORMATS; i++)
		if (s->formats[i])
			add(&w, " %s=%s", format_keys[i].key,
				show_formats((enum trial_formats)i, s->formats[i], ",", formats));
	if (s->gate >= 0)
		add(&w, " gate=%s", gates[s->gate]);
	if (s->renorm >= 0)
		add(&w, " renorm=%d", s->renorm);
	if (s->traces >= 0)
		add(&w, " traces=%d", s->traces);
	if (s->class)
		add(&w, " class=%s", s->class->name);
	add(&w, " seed=%" PRIu64 " device=%s", s->seed, devices[s->device == PLUMB_DEVICE_CUDA]);
	return text;
}

static int64_t member(const struct plumb_config *cfg, int letter)
{
	const char *at = (const char *)cfg + letters[letter].offset;
	int64_t wide;
	int narrow;

	memcpy(&wide, at, sizeof wide);
	memcpy(&narrow, at, sizeof narrow);
	return letters[letter].wide ? wide : narrow;
}

static void set_member(struct plumb_config *cfg, int letter, int64_t v)
{
	char *at = (char *)cfg + letters[letter].offset;
	int narrow = (int)v;

	if (letters[letter].wide)
		memcpy(at, &v, sizeof v);
	else
		memcpy(at, &narrow, sizeof narrow);
}

const char *trial_spec_full(const struct trial *c, char text[TRIAL_LINE])
{
	struct writer w = {text, 0, TRIAL_LINE};

	for (int i = 0; i < TRIAL_LETTERS; i++)
		if (trial_spec_has_size(c->op, i))
			add(&w, "%s=%" PRId64 " ", letters[i].name,
				i == T_   ? c->T
				: i == P_ ? c->env.capacity
				: i == HG ? plumb_ngram_heads(&c->cfg)
					  : member(&c->cfg, i));
	if (uses_key(c->op, "position"))
		add(&w, "position=%" PRId64 " ", c->position);
	add(&w, "policy=%s", policies[c->env.policy == PLUMB_POLICY_BF16]);
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		if (o->absent)
			add(&w, ", no %s", o->info->name);
		else if (o->weight)
			add(&w, ", %s %s", o->info->name, plumb_format_name(o->weight[0].format));
		else if (o->info->kind == PLUMB_KIND_CACHE)
			add(&w, ", %s %s", o->info->name,
				o->cache.format == PLUMB_CACHE_FP8 ? "fp8" : plumb_format_name(o->cache.format));
		else if (o->info->kind == PLUMB_KIND_STORED)
			add(&w, ", %s %s", o->info->name, plumb_format_name(o->format));
	}
	return text;
}

/* ---- spec to trial ---- */

static uint64_t hash_text(uint64_t h, const char *text)
{
	for (; *text; text++)
		h = (h ^ (unsigned char)*text) * 0x100000001B3u;
	return h;
}

const struct trial_class *trial_spec_class(const struct trial_spec *s)
{
	struct trial_random r = {s->seed ^ hash_text(7, plumb_ops[s->op].name)};
	const struct trial_class *class = s->class;
	int seen = 0;

	for (int i = 0; !s->class && trial_class(i); i++)
		if (!trial_class(i)->named && trial_class_applies(trial_class(i), s->op) &&
			trial_random_below(&r, ++seen) == 0)
			class = trial_class(i);
	return class;
}

static int clash(struct plumb_error *err, const struct trial *c, const char *what, int64_t a, int64_t b)
{
	return plumb_fail(
		err, PLUMB_BAD_INPUT, "case: %s: %s (%" PRId64 " and %" PRId64 ")", plumb_ops[c->op].name, what, a, b);
}

/* Heads and groups: what was said stays, what was not gives way. */
static int settle_groups(
	struct trial *c, const struct trial_spec *s, int many, int few, int64_t ratio, struct plumb_error *err)
{
	int64_t a = member(&c->cfg, many), b = member(&c->cfg, few);

	if (s->size[few] && !s->size[many])
		a = b * ratio;
	else if (s->size[many] && !s->size[few] && a % b)
		b = 1;
	if (a % b || a > 65536)
		return clash(err, c, many == HQ ? "Hq is no multiple of Hkv" : "Hv is no multiple of Hk", a, b);
	set_member(&c->cfg, many, a);
	set_member(&c->cfg, few, b);
	return PLUMB_OK;
}

static int settle_rotary(struct trial *c, const struct trial_spec *s, struct plumb_error *err)
{
	struct plumb_config *f = &c->cfg;

	if (s->size[DR] && !s->size[DH] && f->head_dim < f->rotary_dim)
		f->head_dim = f->rotary_dim;
	if (s->size[DR] && !s->size[DI] && f->index_dim < f->rotary_dim)
		f->index_dim = f->rotary_dim;
	int64_t most = (f->head_dim < f->index_dim ? f->head_dim : f->index_dim) / 2 * 2;
	if (!s->size[DR] && f->rotary_dim > most)
		f->rotary_dim = most;
	if (f->rotary_dim % 2 || f->rotary_dim < 2 || f->rotary_dim > most)
		return clash(err, c, "Dr is not even and from 2 to Dh and Di", f->rotary_dim, most);
	return PLUMB_OK;
}

static int settle_ngram(struct trial *c, const struct trial_spec *s, int64_t each, struct plumb_error *err)
{
	struct plumb_config *f = &c->cfg;

	if (f->ngram < 2)
		return clash(err, c, "G is below 2", f->ngram, 2);
	if (s->size[HG] && !s->size[G_] && s->size[HG] % (f->ngram - 1))
		f->ngram = 2;
	if (s->size[HG] && s->size[HG] % (f->ngram - 1))
		return clash(err, c, "Hg is no multiple of G - 1", s->size[HG], f->ngram - 1);
	if (s->size[HG])
		f->heads_per_ngram = (int)s->size[HG] / (f->ngram - 1);
	if (!s->size[DE])
		f->ple_dim = each * plumb_ngram_heads(f);
	else if (c->op == PLUMB_PLE_EMBED && f->ple_dim % plumb_ngram_heads(f))
		return clash(err, c, "De is no multiple of Hg", f->ple_dim, plumb_ngram_heads(f));
	return PLUMB_OK;
}

/* Pages, room and position. */
static int settle_room(struct trial *c, const struct trial_spec *s, int64_t page_blocks, struct plumb_error *err)
{
	int64_t B = c->cfg.block_tokens, page = B * page_blocks;

	c->T = s->size[T_] ? s->size[T_] : c->T;
	c->position = s->position >= 0 ? s->position : c->position;
	if (s->size[P_]) {
		if (s->size[P_] % B && !s->size[B_])
			B = c->cfg.block_tokens = 1;
		if (s->size[P_] % B)
			return clash(err, c, "P is no multiple of B", s->size[P_], B);
		page = s->size[P_] % page ? B : page;
		if (!s->size[T_] && c->T > s->size[P_])
			c->T = s->size[P_];
		c->env.capacity = s->size[P_];
		if (s->position < 0 && c->position + c->T > c->env.capacity)
			c->position = c->env.capacity > c->T ? c->env.capacity - c->T : 0;
		if (c->position + c->T > c->env.capacity)
			return clash(err, c, "position + T is beyond P", c->position + c->T, c->env.capacity);
	} else {
		int64_t least = c->position + c->T;
		if (c->env.capacity < least)
			c->env.capacity = least;
		c->env.capacity = (c->env.capacity + page - 1) / page * page;
	}
	c->page_tokens = page;
	return PLUMB_OK;
}

/* What the spec says, over what the seed and the class said. */
static int settle(struct trial *c, const struct trial_spec *s, struct plumb_error *err)
{
	struct plumb_config *f = &c->cfg;
	int64_t queries = f->q_heads / f->kv_heads, values = f->gdn_value_heads / f->gdn_key_heads;
	int64_t each = f->ple_dim / plumb_ngram_heads(f), page_blocks = c->page_tokens / f->block_tokens;
	int status;

	each = each > 0 ? each : 1;
	page_blocks = page_blocks > 0 ? page_blocks : 1;
	for (int i = 0; i < TRIAL_LETTERS; i++)
		if (s->size[i] && i != T_ && i != P_ && i != HG)
			set_member(f, i, s->size[i]);
	if (s->gate >= 0)
		f->gdn_gate = (enum plumb_gate)s->gate;
	if (s->renorm >= 0)
		f->norm_topk = s->renorm;
	if (s->policy >= 0)
		c->env.policy = (enum plumb_policy)s->policy;
	f->eos %= f->vocab;
	status = settle_groups(c, s, HQ, HKV, queries, err);
	if (status == PLUMB_OK)
		status = settle_groups(c, s, HV, HK, values, err);
	if (status == PLUMB_OK)
		status = settle_rotary(c, s, err);
	if (status == PLUMB_OK)
		status = settle_ngram(c, s, each, err);
	if (!s->size[A_] && f->experts_per_token > f->experts)
		f->experts_per_token = (int)f->experts;
	if (!s->size[E_] && f->experts_per_token > f->experts)
		f->experts = f->experts_per_token;
	if (status == PLUMB_OK && f->experts_per_token > f->experts)
		status = clash(err, c, "A is beyond E", f->experts_per_token, f->experts);
	if (status == PLUMB_OK)
		status = settle_room(c, s, page_blocks, err);
	return status;
}

/* Bytes of everything, at most: refused before there is any. */
static int fits(const struct trial *c, struct plumb_error *err)
{
	const double most = 8.0 * (double)(1 << 30);
	double bytes = 0.0;
	int64_t dim[8];
	struct plumb_extent extent = {c->T, c->env.capacity};

	for (int i = 0; i < plumb_ops[c->op].operands && !c->with.far; i++) {
		double count = 8.0;
		int rank = plumb_shape_eval(plumb_ops[c->op].operand[i].shape, &c->cfg, &extent, dim);
		for (int d = 0; d < rank; d++)
			count *= (double)dim[d];
		bytes += count;
	}
	if (bytes > most)
		return plumb_fail(err, PLUMB_BAD_INPUT, "case: %s of these sizes takes %.1f GiB, at most 8 are possible",
			plumb_ops[c->op].name, bytes / (double)(1 << 30));
	return PLUMB_OK;
}

/* Of a set: of one format the format, else the set. *format is left alone where there is no set. */
static void settle_formats(unsigned set, int add, int *format, unsigned *among)
{
	if (set & (set - 1)) {
		*among = set;
		return;
	}
	for (int i = 0; i < PLUMB_FORMAT_COUNT; i++)
		if (set >> i & 1)
			*format = add + i;
}

/* other: 0, or what makes the values others, sizes and all else that the seed decides being the same. */
static int make(const struct trial_spec *s, bool inert, uint64_t other, struct trial **out, struct plumb_error *err)
{
	const struct trial_class *class = trial_spec_class(s);
	struct trial_options options = {.policy = s->policy, .T = s->size[T_], .format = -1, .traces = s->traces};
	char text[TRIAL_LINE];
	int status;

	if (!trial_class_takes(class, s->op, s->formats[TRIAL_OF_MATRICES]))
		return plumb_fail(err, PLUMB_BAD_INPUT, "case: class %s has no matrices of %s for %s", class->name,
			trial_spec_format_words(TRIAL_OF_MATRICES, s->formats[TRIAL_OF_MATRICES], text),
			plumb_ops[s->op].name);
	settle_formats(s->formats[TRIAL_OF_MATRICES], 0, &options.format, &options.among[TRIAL_OF_MATRICES]);
	settle_formats(s->formats[TRIAL_OF_KV], 1, &options.kv, &options.among[TRIAL_OF_KV]);
	settle_formats(s->formats[TRIAL_OF_STATE], 1, &options.state, &options.among[TRIAL_OF_STATE]);
	struct trial *c = trial_take(sizeof *c);
	*c = (struct trial){.op = s->op, .seed = s->seed, .class = inert || class == trial_class(0) ? NULL : class};
	c->random.state = hash_text(hash_text(s->seed * 0x9E3779B97F4A7C15u, plumb_ops[s->op].name), class->name);
	uint64_t values = c->random.state + 0x5851F42D4C957F2Du;
	trial_draft(c, &options);
	/* rows that a call computes: each is a warp, and simt takes its time for one, however short */
	while (c->op == PLUMB_MOE_DOWN && c->cfg.hidden > 1 &&
		c->cfg.hidden * (c->cfg.experts_per_token + 1) * c->T > 20000)
		c->cfg.hidden /= 2;
	c->with.T = s->size[T_];
	if (c->class && c->class->shape)
		c->class->shape(c);
	status = settle(c, s, err);
	if (status == PLUMB_OK)
		status = fits(c, err);
	if (status != PLUMB_OK) {
		trial_free(c);
		return status;
	}
	c->random.state = values + other; /* whatever the sizes took */
	trial_build(c, c->class ? trial_class_fill : NULL);
	*out = c;
	return PLUMB_OK;
}

int trial_spec_make(const struct trial_spec *s, bool inert, struct trial **out, struct plumb_error *err)
{
	return make(s, inert, 0, out, err);
}

int trial_spec_other(const struct trial_spec *s, struct trial **out, struct plumb_error *err)
{
	return make(s, false, 0x9E3779B97F4A7C15u, out, err);
}
