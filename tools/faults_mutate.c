/* SPDX-License-Identifier: MIT */
#include "tools/faults_mutate.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the finders share. */
struct finder {
	const struct tokens *t;
	struct mutants *out;
	bool failed; /* out of memory */
};

const char *mutation_name(enum mutation mutation)
{
	static const char *const name[MUTATION_COUNT] = {"arithmetic", "relation", "logic", "bits", "constant", "index",
		"drop", "negate", "swap", "round", "sign", "extreme"};
	return name[mutation];
}

/* Replace tokens first..last by a copy of what format gives. */
__attribute__((format(printf, 5, 6))) static struct mutant *add(
	struct finder *f, enum mutation mutation, size_t first, size_t last, const char *format, ...)
{
	struct mutants *m = f->out;
	const struct token *a = &f->t->token[first], *b = &f->t->token[last];
	static struct mutant nowhere;
	va_list ap;

	if (m->count == m->room) {
		size_t room = m->room ? 2 * m->room : 256;
		struct mutant *list = realloc(m->mutant, room * sizeof *list);
		if (!list) {
			f->failed = true;
			return &nowhere;
		}
		m->mutant = list;
		m->room = room;
	}
	struct mutant *k = &m->mutant[m->count];
	*k = (struct mutant){.mutation = mutation,
		.at = a->at,
		.length = b->at + b->length - a->at,
		.line = a->line,
		.column = a->column};
	va_start(ap, format);
	int length = vasprintf(&k->replacement, format, ap);
	va_end(ap);
	if (length < 0) {
		k->replacement = NULL;
		f->failed = true;
		return &nowhere;
	}
	m->count++;
	return k;
}

static const char *text_of(const struct finder *f, size_t i)
{
	return f->t->text + f->t->token[i].at;
}

/* Text of tokens first..last, for "%.*s". */
#define SPAN(f, first, last)                                                                                               \
	(int)((f)->t->token[last].at + (f)->t->token[last].length - (f)->t->token[first].at), text_of(f, first)

static bool is_any(const struct tokens *t, size_t i, const char *const *words)
{
	for (; *words; words++)
		if (token_is(t, i, *words))
			return true;
	return false;
}

/* The word contains that. */
static bool has(const struct tokens *t, size_t i, const char *part)
{
	return t->token[i].kind == TOKEN_NAME && memmem(t->text + t->token[i].at, t->token[i].length, part, strlen(part));
}

static bool ends_operand(const struct tokens *t, size_t i)
{
	return t->token[i].kind == TOKEN_NAME || t->token[i].kind == TOKEN_NUMBER || token_is(t, i, ")") ||
	       token_is(t, i, "]");
}

/* ---- finders: each looks at token i ---- */

static const char *const not_types[] = {"return", "else", "case", "sizeof", NULL};

/* A type stands before the name at i: "float x", "float *x". */
static bool is_typed(const struct tokens *t, size_t i)
{
	if (i < 1)
		return false;
	if (t->token[i - 1].kind == TOKEN_NAME)
		return !is_any(t, i - 1, not_types);
	return token_is(t, i - 1, "*") && t->token[i - 1].at + 1 == t->token[i].at && i >= 2 &&
	       t->token[i - 2].kind == TOKEN_NAME;
}

/* The '[' at i is of a declaration, whose first name is typed: "float x[4], y[4][5]". */
static bool declares_array(const struct tokens *t, size_t i)
{
	while (i > 0 && token_is(t, i - 1, "]")) /* of a further dimension */
		i = t->token[i - 1].pair;
	if (i < 2 || t->token[i - 1].kind != TOKEN_NAME)
		return false;
	if (is_typed(t, i - 1))
		return true;
	if (!token_is(t, i - 2, ","))
		return false;
	size_t k = i - 2; /* to where the statement begins */
	while (k > 0 && !token_is(t, k - 1, ";") && !token_is(t, k - 1, "{") && !token_is(t, k - 1, "}") &&
		!token_is(t, k - 1, "(")) {
		k--;
		if (t->token[k].pair && t->token[k].pair < k)
			k = t->token[k].pair;
	}
	if (k > 0 && token_is(t, k - 1, "("))
		return false; /* arguments */
	while (k < i && (token_is(t, k, "const") || token_is(t, k, "static")))
		k++;
	return t->token[k].kind == TOKEN_NAME && (is_typed(t, k + 1) || (token_is(t, k + 1, "*") && is_typed(t, k + 2)));
}

/* Token i is part of the size of an array that is declared. */
static bool in_array_size(const struct tokens *t, size_t i)
{
	size_t k = i;
	while (k > 0 && !token_is(t, k, ";") && !(token_is(t, k, "[") && t->token[k].pair > i))
		k--;
	return token_is(t, k, "[") && declares_array(t, k);
}

static void find_operator(struct finder *f, size_t i)
{
	static const struct {
		const char *from, *to;
		enum mutation mutation;
	} swaps[] = {
		{"+", "-", MUTATE_ARITHMETIC},
		{"-", "+", MUTATE_ARITHMETIC},
		{"*", "+", MUTATE_ARITHMETIC},
		{"/", "*", MUTATE_ARITHMETIC},
		{"%", "/", MUTATE_ARITHMETIC},
		{"+=", "-=", MUTATE_ARITHMETIC},
		{"-=", "+=", MUTATE_ARITHMETIC},
		{"*=", "+=", MUTATE_ARITHMETIC},
		{"/=", "*=", MUTATE_ARITHMETIC},
		{"<", "<=", MUTATE_RELATION},
		{"<=", "<", MUTATE_RELATION},
		{">", ">=", MUTATE_RELATION},
		{">=", ">", MUTATE_RELATION},
		{"==", "!=", MUTATE_RELATION},
		{"!=", "==", MUTATE_RELATION},
		{"&&", "||", MUTATE_LOGIC},
		{"||", "&&", MUTATE_LOGIC},
		{"&", "|", MUTATE_BITS},
		{"|", "&", MUTATE_BITS},
		{"^", "&", MUTATE_BITS},
		{"<<", ">>", MUTATE_BITS},
		{">>", "<<", MUTATE_BITS},
		{"|=", "&=", MUTATE_BITS},
		{"&=", "|=", MUTATE_BITS},
	};
	if (f->t->token[i].kind != TOKEN_PUNCTUATION || !f->t->token[i].spaced || i == 0 || !ends_operand(f->t, i - 1) ||
		token_is(f->t, i - 1, "template"))
		return;
	const bool enlarges = (token_is(f->t, i, "/") || token_is(f->t, i, "-")) && in_array_size(f->t, i);
	for (size_t s = 0; s < sizeof swaps / sizeof swaps[0] && !enlarges; s++) /* room for more is no fault */
		if (token_is(f->t, i, swaps[s].from))
			add(f, swaps[s].mutation, i, i, "%s", swaps[s].to);
}

static void find_constant(struct finder *f, size_t i)
{
	const struct token *k = &f->t->token[i];
	char word[32], *end;
	const char *suffix;

	if (token_is(f->t, i, "true") || token_is(f->t, i, "false")) {
		add(f, MUTATE_CONSTANT, i, i, "%s", token_is(f->t, i, "true") ? "false" : "true");
		return;
	}
	if (k->kind != TOKEN_NUMBER || k->length >= sizeof word)
		return;
	memcpy(word, text_of(f, i), k->length);
	word[k->length] = '\0';
	const bool hex = word[0] == '0' && (word[1] == 'x' || word[1] == 'X');
	if (strchr(word, '.') || (hex ? strpbrk(word, "pP") : strpbrk(word, "eEfF"))) {
		double value = strtod(word, &end);
		add(f, MUTATE_CONSTANT, i, i, "(%s + 1.0%s)", word, end);
		if (value != 0.0)
			add(f, MUTATE_CONSTANT, i, i, "0.0%s", end);
		return;
	}
	unsigned long long value = strtoull(word, &end, 0);
	suffix = end;
	if (value < ~0ull && !(in_array_size(f->t, i) && token_is(f->t, i - 1, "["))) /* room for one more is no fault */
		add(f, MUTATE_CONSTANT, i, i, hex ? "0x%llx%s" : "%llu%s", value + 1, suffix);
	if (value > 0)
		add(f, MUTATE_CONSTANT, i, i, hex ? "0x%llx%s" : "%llu%s", value - 1, suffix);
}

/* name[expression] that is no declaration. */
static void find_index(struct finder *f, size_t i)
{
	const struct tokens *t = f->t;

	if (!token_is(t, i, "[") || i < 2 || t->token[i].pair <= i + 1 || !ends_operand(t, i - 1) || declares_array(t, i))
		return;
	add(f, MUTATE_INDEX, i + 1, t->token[i].pair - 1, "(%.*s) + 1", SPAN(f, i + 1, t->token[i].pair - 1));
}

/* Index of the ';' that ends the statement which begins at i; i when it has none before a brace. */
static size_t statement_end(const struct tokens *t, size_t i)
{
	size_t k = i;
	while (k < t->count && !token_is(t, k, ";")) {
		if (token_is(t, k, "{") || token_is(t, k, "}") || token_is(t, k, ")"))
			return i;
		k = t->token[k].pair > k ? t->token[k].pair + 1 : k + 1;
	}
	return k < t->count ? k : i;
}

static bool begins_statement(const struct tokens *t, size_t i)
{
	static const char *const before[] = {";", "{", "}", "else", "do", NULL};

	if (i == 0 || is_any(t, i - 1, before))
		return i > 0;
	if (!token_is(t, i - 1, ")") || t->token[i - 1].pair == 0)
		return false;
	static const char *const heads[] = {"if", "for", "while", "switch", NULL};
	return is_any(t, t->token[i - 1].pair - 1, heads);
}

static void find_drop(struct finder *f, size_t i)
{
	static const char *const operators[] = {
		"(", "[", ".", "->", "=", "+=", "-=", "*=", "/=", "|=", "&=", "^=", "<<=", ">>=", "++", "--", NULL};
	static const char *const keywords[] = {"if", "for", "while", "switch", "do", "else", "return", "goto", "sizeof",
		"case", "default", "static_assert", "_Static_assert", NULL};
	const struct tokens *t = f->t;
	bool jump = token_is(t, i, "break") || token_is(t, i, "continue") ||
	            (token_is(t, i, "return") && token_is(t, i + 1, ";"));
	bool is_start =
		t->token[i].kind == TOKEN_NAME || token_is(t, i, "*") || token_is(t, i, "++") || token_is(t, i, "--");
	size_t depth_of_function = 0;

	if (!is_start || !begins_statement(t, i))
		return;
	for (size_t k = i; k > 0 && !depth_of_function;
		k--) /* in the head of a for, or in a struct, nothing is a statement */
		if (token_is(t, k - 1, "(") && t->token[k - 1].pair > i)
			return;
		else if (token_is(t, k - 1, "{") && t->token[k - 1].pair > i)
			depth_of_function = k;
	if (!depth_of_function)
		return;
	if (!jump) {
		if (t->token[i].kind == TOKEN_NAME && (is_any(t, i, keywords) || !is_any(t, i + 1, operators)))
			return;
		/* struct member { ... } and enum lists have no '=' or call at their start; a declaration `name (` is a call */
	}
	size_t end = statement_end(t, i);
	if (end == i)
		return;
	struct mutant *m = add(f, MUTATE_DROP, i, end, ";");
	for (size_t k = i; k < end; k++)
		m->orders |= has(t, k, "sync") || has(t, k, "fence") || has(t, k, "atomic") || has(t, k, "dependen");
}

static void find_negate(struct finder *f, size_t i)
{
	const struct tokens *t = f->t;
	size_t open = token_is(t, i + 1, "constexpr") ? i + 2 : i + 1;

	if (token_is(t, i, "if") && token_is(t, open, "(") && t->token[open].pair > open + 1)
		add(f, MUTATE_NEGATE, open + 1, t->token[open].pair - 1, "!(%.*s)",
			SPAN(f, open + 1, t->token[open].pair - 1));
}

/* End of the argument that begins at i, the index of its ',' or ')'. */
static size_t argument_end(const struct tokens *t, size_t i, size_t close)
{
	while (i < close && !token_is(t, i, ","))
		i = t->token[i].pair > i ? t->token[i].pair + 1 : i + 1;
	return i;
}

/* Arguments of a call whose name is token i; 0: it is no call. */
static int arguments(const struct tokens *t, size_t i, size_t first[], size_t last[], int room)
{
	static const char *const keywords[] = {
		"if", "for", "while", "switch", "return", "sizeof", "defined", "static_assert", NULL};
	size_t open = i + 1, at = i + 2, close;
	int n = 0;

	if (t->token[i].kind != TOKEN_NAME || is_any(t, i, keywords) || !token_is(t, open, "("))
		return 0;
	/* "float f(float a, float b)" is a declaration: the name follows a type, its parameters are typed */
	if (i > 0 && t->token[i - 1].kind == TOKEN_NAME && !token_is(t, i - 1, "return") && !token_is(t, i - 1, "else"))
		return 0;
	close = t->token[open].pair;
	while (at < close && n < room) {
		size_t end = argument_end(t, at, close);
		if (end == at)
			return 0;
		first[n] = at;
		last[n++] = end - 1;
		at = end + 1;
	}
	return n;
}

static void find_call(struct finder *f, size_t i)
{
	enum { ROOM = 12 };
	size_t first[ROOM], last[ROOM];
	const struct tokens *t = f->t;
	const int n = arguments(t, i, first, last, ROOM);

	if (n == 0)
		return;
	const size_t close = t->token[i + 1].pair;
	if (token_is(t, i, "fmaf") && n == 3)
		add(f, MUTATE_ROUND, i, close, "((%.*s) * (%.*s) + (%.*s))", SPAN(f, first[0], last[0]),
			SPAN(f, first[1], last[1]), SPAN(f, first[2], last[2]));
	if (has(t, i, "rne") || has(t, i, "round"))
		add(f, MUTATE_ROUND, i, close, "(%.*s)", SPAN(f, first[n - 1], last[n - 1]));
	if ((token_is(t, i, "fabsf") || token_is(t, i, "fabs")) && n == 1)
		add(f, MUTATE_SIGN, i, close, "(%.*s)", SPAN(f, first[0], last[0]));
	static const char *const extremes[][2] = {{"max", "min"}, {"min", "max"}, {"fmaxf", "fminf"}, {"fminf", "fmaxf"},
		{"fmax", "fmin"}, {"fmin", "fmax"}, {"atomicMax", "atomicMin"}};
	for (size_t e = 0; e < sizeof extremes / sizeof extremes[0]; e++)
		if (token_is(t, i, extremes[e][0]))
			add(f, MUTATE_EXTREME, i, i, "%s", extremes[e][1]);
	for (int k = 0; k + 1 < n; k++) {
		size_t a = t->token[last[k]].at + t->token[last[k]].length - t->token[first[k]].at;
		size_t b = t->token[last[k + 1]].at + t->token[last[k + 1]].length - t->token[first[k + 1]].at;
		if (a != b || memcmp(text_of(f, first[k]), text_of(f, first[k + 1]), a) != 0)
			add(f, MUTATE_SWAP, first[k], last[k + 1], "%.*s, %.*s", SPAN(f, first[k + 1], last[k + 1]),
				SPAN(f, first[k], last[k]));
	}
}

static void find_sign(struct finder *f, size_t i)
{
	const struct tokens *t = f->t;
	bool is_unary = token_is(t, i, "!") || token_is(t, i, "~") ||
	                (token_is(t, i, "-") && !t->token[i].spaced && i > 0 &&
				!(ends_operand(t, i - 1) && !token_is(t, i - 1, "return")));

	if (is_unary && i + 1 < t->count)
		add(f, MUTATE_SIGN, i, i, " ");
}

bool mutants_find(const char *text, size_t size, struct mutants *out)
{
	struct tokens t;
	struct finder f = {.t = &t, .out = out};
	static const char *const says[] = {
		"plumb_fail", "say", "snprintf", "fprintf", "printf", "PLUMB_DECLARE_LAUNCHER", NULL};

	*out = (struct mutants){NULL, 0, 0};
	if (!tokens_cut(text, size, &t))
		return false;
	for (size_t i = 0; i < t.count && !f.failed; i++) {
		if (is_any(&t, i, says) && token_is(&t, i + 1, "(")) { /* what a message reads like is no arithmetic */
			i = t.token[i + 1].pair;
			continue;
		}
		find_operator(&f, i);
		find_constant(&f, i);
		find_index(&f, i);
		find_drop(&f, i);
		find_negate(&f, i);
		find_call(&f, i);
		find_sign(&f, i);
	}
	free(t.token);
	return !f.failed;
}

void mutants_free(struct mutants *m)
{
	for (size_t i = 0; i < m->count; i++)
		free(m->mutant[i].replacement);
	free(m->mutant);
	*m = (struct mutants){NULL, 0, 0};
}
