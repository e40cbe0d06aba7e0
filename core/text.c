/* SPDX-License-Identifier: MIT */
#include "core/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void plumb_text_add(struct plumb_text *t, const char *format, ...)
{
	va_list ap;
	int n;

	if (t->used + 1 >= t->size)
		return;
	va_start(ap, format);
	n = vsnprintf(t->text + t->used, t->size - t->used, format, ap);
	va_end(ap);
	if (n > 0)
		t->used += (size_t)n;
	if (t->used >= t->size)
		t->used = t->size - 1;
}

bool plumb_text_ends(const char *text, const char *ending)
{
	size_t n = strlen(text), e = strlen(ending);
	return n > e && strcmp(text + n - e, ending) == 0;
}
