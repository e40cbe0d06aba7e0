/* SPDX-License-Identifier: MIT */
#include "tools/faults_lexer.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static bool is_name(char c)
{
	return isalnum((unsigned char)c) || c == '_';
}

/* Longest first. */
static size_t punctuation(const char *s, size_t left)
{
	static const char *const long_ones[] = {"<<=", ">>=", "...", "->", "++", "--", "<<", ">>",
		"<=", ">=", "==", "!=", "&&", "||", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "::"};
	for (size_t i = 0; i < sizeof long_ones / sizeof long_ones[0]; i++) {
		size_t n = strlen(long_ones[i]);
		if (n <= left && memcmp(s, long_ones[i], n) == 0)
			return n;
	}
	return 1;
}

/* End of what is between quotes from s[i] on. */
static size_t quoted(const char *s, size_t i, size_t size)
{
	const char quote = s[i++];
	while (i < size && s[i] != quote && s[i] != '\n')
		i += s[i] == '\\' ? 2 : 1;
	return i < size ? i + 1 : size;
}

/* 1'000, 0x1.8p-3f, 1e+5: a sign belongs to it behind an exponent. */
static size_t number(const char *s, size_t i, size_t size)
{
	bool hex = s[i] == '0' && i + 1 < size && (s[i + 1] == 'x' || s[i + 1] == 'X');
	for (; i < size && (is_name(s[i]) || s[i] == '.'); i++) {
		char c = (char)tolower((unsigned char)s[i]);
		if (c == (hex ? 'p' : 'e') && i + 1 < size && (s[i + 1] == '+' || s[i + 1] == '-'))
			i++;
	}
	return i;
}

/* End of a comment, a run of white space or a preprocessor line that begins at i; i when none does. */
static size_t skip(const char *s, size_t i, size_t size, bool line_start)
{
	if (isspace((unsigned char)s[i]))
		return i + 1;
	if (s[i] == '/' && i + 1 < size && s[i + 1] == '/') {
		while (i < size && s[i] != '\n')
			i++;
		return i;
	}
	if (s[i] == '/' && i + 1 < size && s[i + 1] == '*') {
		for (i += 2; i + 1 < size && !(s[i] == '*' && s[i + 1] == '/'); i++)
			;
		return i + 2 < size ? i + 2 : size;
	}
	if (s[i] == '#' && line_start) {
		while (i < size && !(s[i] == '\n' && s[i - 1] != '\\'))
			i++;
		return i;
	}
	return i;
}

static void match(struct tokens *t)
{
	size_t *open = malloc((t->count + 1) * sizeof *open), depth = 0;

	for (size_t i = 0; i < t->count; i++)
		t->token[i].pair = i;
	for (size_t i = 0; open && i < t->count; i++) {
		const char c = t->text[t->token[i].at];
		if (t->token[i].kind != TOKEN_PUNCTUATION || t->token[i].length != 1)
			continue;
		if (c == '(' || c == '[' || c == '{')
			open[depth++] = i;
		if ((c == ')' || c == ']' || c == '}') && depth > 0) {
			t->token[i].pair = open[--depth];
			t->token[open[depth]].pair = i;
		}
	}
	free(open);
}

bool tokens_cut(const char *text, size_t size, struct tokens *out)
{
	size_t i = 0, line_at = 0, seen = 0;
	int line = 1;
	bool line_start = true;

	*out = (struct tokens){.text = text, .token = malloc((size + 1) * sizeof *out->token)};
	if (!out->token)
		return false;
	while (i < size) {
		for (; seen < i; seen++)
			if (text[seen] == '\n') {
				line++;
				line_at = seen + 1;
				line_start = true;
			}
		size_t end = skip(text, i, size, line_start);
		if (end > i) {
			i = end;
			continue;
		}
		struct token *k = &out->token[out->count++];
		*k = (struct token){.at = i, .line = line, .column = (int)(i - line_at) + 1};
		if (isdigit((unsigned char)text[i]) ||
			(text[i] == '.' && i + 1 < size && isdigit((unsigned char)text[i + 1]))) {
			k->kind = TOKEN_NUMBER;
			i = number(text, i, size);
		} else if (is_name(text[i])) {
			k->kind = TOKEN_NAME;
			while (i < size && is_name(text[i]))
				i++;
		} else if (text[i] == '"' || text[i] == '\'') {
			k->kind = TOKEN_TEXT;
			i = quoted(text, i, size);
		} else {
			k->kind = TOKEN_PUNCTUATION;
			i += punctuation(text + i, size - i);
		}
		i = i < size ? i : size;
		k->length = i - k->at;
		k->spaced =
			k->at > 0 && isspace((unsigned char)text[k->at - 1]) && i < size && isspace((unsigned char)text[i]);
		line_start = false;
	}
	match(out);
	return true;
}

bool token_is(const struct tokens *t, size_t i, const char *text)
{
	return i < t->count && t->token[i].length == strlen(text) &&
	       memcmp(t->text + t->token[i].at, text, t->token[i].length) == 0;
}
