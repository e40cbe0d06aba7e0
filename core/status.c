/* SPDX-License-Identifier: MIT */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

size_t plumb_utf8_length(const char *text)
{
	const unsigned char *p = (const unsigned char *)text;
	size_t n = p[0] < 0x80                   ? 1
	           : p[0] >= 0xC2 && p[0] < 0xE0 ? 2
	           : (p[0] & 0xF0) == 0xE0       ? 3
	           : p[0] >= 0xF0 && p[0] < 0xF5 ? 4
	                                         : 0;

	for (size_t i = 1; i < n; i++)
		if ((p[i] & 0xC0) != 0x80) /* the end, too */
			return 0;
	if ((p[0] == 0xE0 && p[1] < 0xA0) || (p[0] == 0xED && p[1] > 0x9F) || (p[0] == 0xF0 && p[1] < 0x90) ||
		(p[0] == 0xF4 && p[1] > 0x8F))
		return 0;
	return n;
}

void plumb_utf8(char *text)
{
	for (char *p = text; *p;) {
		size_t n = plumb_utf8_length(p);
		if (n == 0)
			*p = '?';
		p += n ? n : 1;
	}
}

int plumb_fail(struct plumb_error *err, enum plumb_status status, const char *format, ...)
{
	if (err) {
		va_list ap;
		va_start(ap, format);
		vsnprintf(err->text, sizeof err->text, format, ap);
		va_end(ap);
		for (unsigned char *p = (unsigned char *)err->text; *p; p++)
			if (*p < 0x20 || *p == 0x7f)
				*p = '?';
		plumb_utf8(err->text); /* it goes into reports */
	}
	return status;
}
