/* SPDX-License-Identifier: MIT */
/* plumb completion: scripts for three shells, made from the tables of options that the parser reads. */
#include <stdio.h>
#include <string.h>

#include "tools/commands.h"
#include "tools/help.h"
#include "tools/words.h"

/* Calls fn for each option of a command, its own and the common ones. */
static void each_option(const struct command *c, const struct option *table, int options,
	void (*fn)(const struct command *, const struct option *))
{
	static const struct option help = {"--help", NULL, OPTION_FLAG, NULL, "show the help"};

	for (int i = 0; i < options; i++)
		fn(c, &table[i]);
	for (int i = 0; i < options_common_count; i++)
		if (!help_has(table, options, options_common[i].name))
			fn(c, &options_common[i]);
	fn(c, &help);
}

/* Text between single quotes: what would end them, and what a shell's own quoting inside gives a meaning, escaped. */
static void quoted(const char *text, const char *escape, const char *quote)
{
	for (const char *p = text; *p; p++)
		if (*p == '\'')
			printf("%s", quote);
		else if (strchr(escape, *p))
			printf("\\%c", *p);
		else
			putchar(*p);
}

static const char *part_of(const struct command *c)
{
	const char *blank = strchr(c->name, ' ');
	return blank ? blank + 1 : c->name;
}

/* ---- bash ---- */

static void bash_offer(const struct words *w)
{
	printf("_plumb_offer '%s' '%s' '%s' '%s'", w->list,
		w->files     ? "files"
		: w->folders ? "folders"
			     : "",
		w->ending, w->equals ? "nospace" : "");
}

static void bash_value(const struct command *c, const struct option *o)
{
	struct words w;

	(void)c;
	if (!o->value)
		return;
	words_of(o->value, &w);
	printf("\t\t%s) ", o->name);
	bash_offer(&w);
	printf("; return ;;\n");
}

static void bash_name(const struct command *c, const struct option *o)
{
	(void)c;
	printf(" %s", o->name);
}

static void bash_command(void *self, const struct command *c, const struct option *table, int options)
{
	struct words w;

	(void)self;
	words_of(c->operands, &w);
	printf("\t'%s')\n\t\tcase $prev in\n", c->name);
	each_option(c, table, options, bash_value);
	printf("\t\tesac\n\t\tcase $cur in\n\t\t-*) _plumb_offer '");
	each_option(c, table, options, bash_name);
	printf("' '' '' ''; return ;;\n\t\tesac\n\t\t");
	bash_offer(&w);
	printf(" ;;\n");
}

static void bash(void)
{
	printf("# bash completion of plumb " PLUMB_VERSION "; made by: plumb completion bash\n"
	       "# usage: source <(plumb completion bash), or put it into share/bash-completion/completions/plumb\n\n"
	       "# _plumb_offer WORDS files|folders|'' ENDING nospace|''\n"
	       "_plumb_offer()\n{\n"
	       "\tmapfile -t COMPREPLY < <(compgen -W \"$1\" -- \"$cur\")\n"
	       "\t[ \"$4\" ] && compopt -o nospace 2>/dev/null\n"
	       "\t[ \"$2\" ] || return 0\n"
	       "\tcompopt -o filenames 2>/dev/null\n"
	       "\tlocal -a paths\n"
	       "\tmapfile -t paths < <(compgen -d -- \"$cur\")\n"
	       "\tCOMPREPLY+=(\"${paths[@]}\")\n"
	       "\t[ \"$2\" = files ] || return 0\n"
	       "\tif [ \"$3\" ]; then\n"
	       "\t\tmapfile -t paths < <(compgen -f -X \"!*.$3\" -- \"$cur\")\n"
	       "\telse\n"
	       "\t\tmapfile -t paths < <(compgen -A file -- \"$cur\" | while IFS= read -r p; do [ -d \"$p\" ] || printf "
	       "'%%s\\n' \"$p\"; done)\n"
	       "\tfi\n"
	       "\tCOMPREPLY+=(\"${paths[@]}\")\n"
	       "}\n\n"
	       "_plumb()\n{\n"
	       "\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]} "
	       "at=$COMP_CWORD first=1\n"
	       "\tCOMPREPLY=()\n"
	       "\tif [ \"$cur\" = = ]; then # readline makes a word of its own of each =\n"
	       "\t\tcur=\n"
	       "\telif [ \"$prev\" = = ]; then\n"
	       "\t\tprev=${COMP_WORDS[COMP_CWORD-2]} at=$((COMP_CWORD - 1))\n"
	       "\tfi\n"
	       "\tif [ \"${COMP_WORDS[at]}\" = = ] && [ \"$at\" -ge 3 ]; then # --op NAME=, --op=NAME=\n"
	       "\t\tcase ${COMP_WORDS[at-2]}${COMP_WORDS[at-3]} in\n"
	       "\t\t--op*|=--op) _plumb_offer 'ref opt' files so ''; return ;;\n"
	       "\t\tesac\n"
	       "\tfi\n");
	printf("\tif [ \"$COMP_CWORD\" -eq 1 ]; then\n\t\t_plumb_offer '");
	for (int i = 0; commands[i]; i++)
		printf("%s ", commands[i]->name);
	printf("--help --version' '' '' ''\n\t\treturn\n\tfi\n\tcase $command in\n");
	for (int i = 0; commands[i]; i++) {
		if (!commands[i]->parts)
			continue;
		printf("\t%s)\n\t\tif [ \"$COMP_CWORD\" -eq 2 ]; then\n\t\t\t_plumb_offer '", commands[i]->name);
		for (int j = 0; commands[i]->parts[j]; j++)
			printf("%s ", part_of(commands[i]->parts[j]));
		printf("--help' '' '' ''\n\t\t\treturn\n\t\tfi\n\t\tcommand=\"$command ${COMP_WORDS[2]}\" first=2 ;;\n");
	}
	printf("\tesac\n\t[ \"$COMP_CWORD\" -gt \"$first\" ] || return 0\n\tcase $command in\n");
	for (int i = 0; commands[i]; i++)
		options_describe(commands[i], bash_command, NULL);
	printf("\tesac\n}\n\ncomplete -F _plumb plumb\n");
}

/* ---- zsh ---- */

static const char zsh_special[] = "[]:\\";

static void zsh_action(const struct words *w, const char *message)
{
	printf(":");
	quoted(message, zsh_special, "'\\''");
	printf(":");
	if (w->equals)
		printf("_plumb_op");
	else if (w->list[0] && (w->files || w->folders))
		printf("{ compadd %s; _files%s }", w->list, w->folders ? " -/" : "");
	else if (w->list[0])
		printf("(%s)", w->list);
	else if (w->folders)
		printf("_files -/");
	else if (w->files && w->ending[0])
		printf("_files -g \"*.%s\"", w->ending);
	else if (w->files)
		printf("_files");
	else
		printf(" ");
}

static void zsh_option(const struct command *c, const struct option *o)
{
	const char *brief = help_short(o->name);
	struct words w;

	printf(" \\\n\t\t\t");
	if (brief)
		printf("'*'{%s,%s}'[", brief, o->name);
	else
		printf("'%s%s%s[", o->kind == OPTION_REPEAT ? "*" : "", o->name, o->value ? "=" : "");
	quoted(help_words(c, o), zsh_special, "'\\''");
	printf("]");
	if (o->value) {
		words_of(o->value, &w);
		zsh_action(&w, o->value);
	}
	printf("'");
}

static void zsh_command(void *self, const struct command *c, const struct option *table, int options)
{
	struct words w;

	(void)self;
	words_of(c->operands, &w);
	printf("\t'%s')\n\t\t_arguments -s", c->name);
	each_option(c, table, options, zsh_option);
	printf(" \\\n\t\t\t'*");
	zsh_action(&w, "operand");
	printf("' ;;\n");
}

static void zsh_list(const struct command *const *list)
{
	for (int i = 0; list[i]; i++) {
		printf("\t\t\t'%s:", part_of(list[i]));
		quoted(list[i]->brief, zsh_special, "'\\''");
		printf("'\n");
	}
}

static void zsh(void)
{
	printf("#compdef plumb\n"
	       "# zsh completion of plumb " PLUMB_VERSION "; made by: plumb completion zsh\n"
	       "# usage: put it as _plumb into a folder of $fpath, or: source <(plumb completion zsh)\n\n"
	       "_plumb_op()\n{\n"
	       "\tif compset -P '*='; then\n"
	       "\t\tcompadd ref opt\n\t\t_files -g '*.so'\n"
	       "\telse\n\t\tcompadd -S '' --");
	struct words w;
	words_of("NAME[@A-B]=ref|opt|FILE.so", &w);
	printf(" %s\n\tfi\n}\n\n_plumb()\n{\n\tlocal -a known\n\tlocal command\n"
	       "\tif (( CURRENT == 2 )); then\n\t\tknown=(\n",
		w.list);
	zsh_list(commands);
	printf("\t\t)\n\t\t_describe command known\n\t\treturn\n\tfi\n\tcommand=$words[2]\n\tcase $command in\n");
	for (int i = 0; commands[i]; i++) {
		if (!commands[i]->parts)
			continue;
		printf("\t%s)\n\t\tif (( CURRENT == 3 )); then\n\t\t\tknown=(\n", commands[i]->name);
		zsh_list(commands[i]->parts);
		printf("\t\t\t)\n\t\t\t_describe command known\n\t\t\treturn\n\t\tfi\n"
		       "\t\tcommand=\"$command $words[3]\"\n\t\tshift words\n\t\t(( CURRENT-- )) ;;\n");
	}
	printf("\tesac\n\tshift words\n\t(( CURRENT-- ))\n\tcase $command in\n");
	for (int i = 0; commands[i]; i++)
		options_describe(commands[i], zsh_command, NULL);
	printf("\tesac\n}\n\nif [ \"$funcstack[1]\" = _plumb ]; then\n\t_plumb \"$@\"\nelse\n\tcompdef _plumb plumb\nfi\n");
}

/* ---- fish ---- */

static void fish_condition(const struct command *c)
{
	const char *blank = strchr(c->name, ' ');

	if (blank)
		printf("complete -c plumb -n '__fish_seen_subcommand_from %.*s; and __fish_seen_subcommand_from %s'",
			(int)(blank - c->name), c->name, blank + 1);
	else
		printf("complete -c plumb -n '__fish_seen_subcommand_from %s'", c->name);
}

static void fish_words(const struct words *w)
{
	if (w->list[0])
		printf(" -a '%s'", w->list);
	if (w->folders)
		printf(" -a '(__fish_complete_directories)'");
}

static void fish_option(const struct command *c, const struct option *o)
{
	const char *brief = help_short(o->name);
	struct words w;

	fish_condition(c);
	if (brief)
		printf(" -s %s", brief + 1);
	printf(" -l %s", o->name + 2);
	if (o->value) {
		words_of(o->value, &w);
		printf(w.files ? " -r -F" : " -x");
		fish_words(&w);
	}
	printf(" -d '");
	quoted(help_words(c, o), "\\", "\\'");
	printf("'\n");
}

static void fish_command(void *self, const struct command *c, const struct option *table, int options)
{
	struct words w;

	(void)self;
	words_of(c->operands, &w);
	each_option(c, table, options, fish_option);
	if (w.files)
		return; /* as fish does by itself */
	fish_condition(c);
	printf(" -f");
	fish_words(&w);
	printf("\n");
}

static void fish(void)
{
	printf("# fish completion of plumb " PLUMB_VERSION "; made by: plumb completion fish\n"
	       "# usage: plumb completion fish >~/.config/fish/completions/plumb.fish\n\n"
	       "complete -c plumb -n __fish_use_subcommand -f\n");
	for (int i = 0; commands[i]; i++) {
		printf("complete -c plumb -n __fish_use_subcommand -a %s -d '", commands[i]->name);
		quoted(commands[i]->brief, "\\", "\\'");
		printf("'\n");
		for (int j = 0; commands[i]->parts && commands[i]->parts[j]; j++) {
			printf("complete -c plumb -n '__fish_seen_subcommand_from %s; and test (count (commandline -opc)) "
			       "-eq 2' "
			       "-f -a %s -d '",
				commands[i]->name, part_of(commands[i]->parts[j]));
			quoted(commands[i]->parts[j]->brief, "\\", "\\'");
			printf("'\n");
		}
	}
	for (int i = 0; commands[i]; i++)
		options_describe(commands[i], fish_command, NULL);
}

/* ---- the command ---- */

static int run(int argc, char **argv)
{
	const char *shell[1] = {NULL};
	int operands, status;
	bool done;
	struct plumb_error err = {""};

	status = options_parse(&command_completion, NULL, 0, argc, argv, shell, 1, &operands, &done, &err);
	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 1)
		status = plumb_fail(
			&err, PLUMB_BAD_INPUT, "which shell? usage: plumb completion %s", command_completion.usage);
	if (status == PLUMB_OK && strcmp(shell[0], "bash") == 0)
		bash();
	else if (status == PLUMB_OK && strcmp(shell[0], "zsh") == 0)
		zsh();
	else if (status == PLUMB_OK && strcmp(shell[0], "fish") == 0)
		fish();
	else if (status == PLUMB_OK)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "shell is '%.40s', expected bash, zsh or fish", shell[0]);
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb completion: %s\n", err.text);
	return status;
}

const struct command command_completion = {
	.name = "completion",
	.usage = "bash|zsh|fish",
	.brief = "print a script that completes commands, options and values in a shell",
	.about =
		"The script is made from the same tables that the program parses. cmake --install puts all three where the "
		"shells look.",
	.examples = "  source <(plumb completion bash)\n"
		    "  plumb completion zsh >~/.zfunc/_plumb\n"
		    "  plumb completion fish >~/.config/fish/completions/plumb.fish",
	.operands = "bash|zsh|fish",
	.run = run,
};
