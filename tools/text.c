/* SPDX-License-Identifier: MIT */
#include "tools/text.h"

#include <string.h>

#include "core/spelling.h"

void text_fill(FILE *f, const char *text, int at, int indent, int width)
{
	const char *p = text;
	bool fresh = true; /* nothing on this line yet */

	while (*p) {
		size_t blank = strspn(p, " \n"), word;
		int newlines = 0;
		for (size_t i = 0; i < blank; i++)
			newlines += p[i] == '\n';
		p += blank;
		word = strcspn(p, " \n");
		if (!word)
			break;
		if (newlines > 1 && !fresh) {
			fprintf(f, "\n\n%*s", indent, "");
			at = indent;
			fresh = true;
		} else if (!fresh && width > 0 && at + 1 + (int)word > width) {
			fprintf(f, "\n%*s", indent, "");
			at = indent;
			fresh = true;
		}
		fprintf(f, "%s%.*s", fresh ? "" : " ", (int)word, p);
		at += (int)word + !fresh;
		fresh = false;
		p += word;
	}
	fputc('\n', f);
}

/* Letters of an option's name, without the dashes in front, which everybody types. */
static const char *letters(const char *word)
{
	return word + strspn(word, "-");
}

void text_nearest(struct text_nearest *n, const char *candidate)
{
	int d = plumb_spelling_distance(n->word, candidate), most = (int)strlen(letters(n->word)) / 3;

	if (d <= (most > 1 ? most : 1) && d < (int)strlen(letters(candidate)) && (!n->best[0] || d < n->distance)) {
		snprintf(n->best, sizeof n->best, "%s", candidate);
		n->distance = d;
	}
}

const char *text_did_you_mean(const struct text_nearest *n, char text[TEXT_NEAREST])
{
	text[0] = '\0';
	if (n->best[0])
		snprintf(text, TEXT_NEAREST, ", did you mean '%s'?", n->best);
	return text;
}

const char *text_op_meant(const char *word, char text[TEXT_NEAREST])
{
	struct text_nearest near = {.word = word};

	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		text_nearest(&near, plumb_ops[i].name);
	return text_did_you_mean(&near, text);
}

int text_op(const char *option, const char *name, enum plumb_op *out, struct plumb_error *err)
{
	char meant[TEXT_NEAREST];

	*out = plumb_op_find(name);
	if (*out == PLUMB_OP_COUNT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s names '%.80s', which is no op%s; 'plumb list ops' shows them",
			option, name, text_op_meant(name, meant));
	return PLUMB_OK;
}
