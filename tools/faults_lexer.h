/* SPDX-License-Identifier: MIT */
/* C and CUDA source as tokens, for mutation. Comments, white space and preprocessor lines are no tokens. */
#ifndef PLUMB_TOOLS_FAULTS_LEXER_H
#define PLUMB_TOOLS_FAULTS_LEXER_H

#include <stdbool.h>
#include <stddef.h>

enum token_kind { TOKEN_NAME, TOKEN_NUMBER, TOKEN_TEXT, TOKEN_PUNCTUATION };

struct token {
	enum token_kind kind;
	size_t at, length; /* bytes of the text */
	int line, column;  /* from 1; a tab is one column */
	bool spaced;       /* white space on both sides, as clang-format sets binary operators */
	size_t pair;       /* of a bracket: index of the other; of anything else, or without one: its own */
};

struct tokens {
	const char *text;
	struct token *token;
	size_t count;
};

/* Cut a text. out->token is to be freed. False: out of memory. Text that is no C gives tokens all the same. */
bool tokens_cut(const char *text, size_t size, struct tokens *out);

/* Whether token i is this text; false for i beyond the last. */
bool token_is(const struct tokens *t, size_t i, const char *text);

#endif
