/* SPDX-License-Identifier: MIT */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>

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
	}
	return status;
}
