/* SPDX-License-Identifier: MIT */
#include "tools/contract.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *header_of(enum plumb_op op)
{
	static const struct {
		const char *stage, *text;
	} headers[] = {
		{"attention", contract_attention},
		{"embed", contract_embed},
		{"gdn", contract_gdn},
		{"hyper_connection", contract_hc},
		{"lm_head", contract_lm_head},
		{"moe", contract_moe},
		{"ple", contract_ple},
		{"qsa", contract_qsa},
	};
	const char *found = NULL;
	for (size_t i = 0; i < sizeof headers / sizeof headers[0]; i++)
		if (strcmp(headers[i].stage, plumb_ops[op].stage) == 0)
			found = headers[i].text;
	return found;
}

char *contract_text(enum plumb_op op)
{
	const char *header = header_of(op), *begin = NULL, *end;
	char name[80], *text;
	size_t n = 0;

	snprintf(name, sizeof name, "\nstruct plumb_%s {", plumb_ops[op].name);
	end = header ? strstr(header, name) : NULL;
	for (const char *p = header; end && (p = strstr(p, "/*")) && p < end; p += 2)
		begin = p + 2;
	if (!begin)
		return NULL;
	text = malloc((size_t)(end - begin) + 1);
	for (const char *p = begin; text && p < end && strncmp(p, "*/", 2) != 0; p++) {
		bool fresh = n == 0 || text[n - 1] == '\n';
		if (fresh && *p == ' ' && p[1] == '*' && (p[2] == ' ' || p[2] == '\n'))
			p += p[2] == ' ' ? 3 : 2;
		else if (n == 0 && *p == ' ')
			continue;
		text[n++] = *p;
	}
	while (n > 0 && (text[n - 1] == ' ' || text[n - 1] == '\n'))
		n--;
	if (text)
		text[n] = '\0';
	return text;
}
