/* SPDX-License-Identifier: MIT */
/* What a terminal shows: help of every command from its table of options, words that were meant, --quiet, --verbose, --color and
 * COLUMNS, which mean the same everywhere; and the text functions behind them. */
#include <cJSON.h>
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/program.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tools/text.h"

#define TINY PLUMB_GOLDEN_DIR "/tiny/tiny.h5"
#define CHECKPOINT PLUMB_GOLDEN_DIR "/tiny/checkpoint"
#define CASE PLUMB_GOLDEN_DIR "/cases/argmax.h5"

#define EXIT_STATUS                                                                                                        \
	"\nexit status:\n  0  within tolerance\n  1  a mismatch\n  2  wrong usage or bad input\n  3  no such device\n"

static char dir[SCRATCH_PATH];
static struct program_result r;

static const char *const commands[] = {"check", "bisect", "replay", "test", "run", "bench", "golden make", "golden verify",
	"golden diff", "drift", "faults", "list", "new-kernel", "merge", "completion", "man"};
enum { COMMANDS = sizeof commands / sizeof commands[0] };

/* ---- text ---- */

static void filled(const char *text, int at, int indent, int width, const char *expected)
{
	char *out = NULL;
	size_t size = 0;
	FILE *f = open_memstream(&out, &size);

	text_fill(f, text, at, indent, width);
	fclose(f);
	ck_assert_str_eq(out, expected);
	free(out);
}

START_TEST(fill)
{
	filled("one two three", 0, 0, 0, "one two three\n");
	filled("one two three", 0, 0, 7, "one two\nthree\n");
	filled("one two three", 0, 0, 8, "one two\nthree\n");
	filled("one two three", 0, 0, 13, "one two three\n");
	filled("one two three", 0, 0, 12, "one two\nthree\n");
	filled("one two", 6, 4, 10, "one\n    two\n"); /* the cursor stands in column 6 */
	filled("one\ntwo\n\nthree", 0, 2, 40, "one two\n\n  three\n");
	filled("  a  b ", 0, 0, 40, "a b\n");
	filled("abcdefghij k", 0, 2, 5, "abcdefghij\n  k\n"); /* a word that fits nowhere stands alone */
	filled("", 0, 0, 5, "\n");
}
END_TEST

static const char *meant(const char *word, const char *const *list)
{
	static char text[TEXT_NEAREST];
	struct text_nearest near = {.word = word};

	for (; *list; list++)
		text_nearest(&near, *list);
	return text_did_you_mean(&near, text);
}

START_TEST(nearest)
{
	static const char *const list[] = {"check", "bench", "bisect", "golden", "list", NULL};
	char text[TEXT_NEAREST], longer[200];

	ck_assert_str_eq(meant("chekc", list), ", did you mean 'check'?"); /* neighbours swapped: one step */
	ck_assert_str_eq(meant("chck", list), ", did you mean 'check'?");
	ck_assert_str_eq(meant("checck", list), ", did you mean 'check'?");
	ck_assert_str_eq(meant("bisekt", list), ", did you mean 'bisect'?");
	ck_assert_str_eq(meant("gloden", list), ", did you mean 'golden'?");
	ck_assert_str_eq(meant("bexyz", list), "");
	ck_assert_str_eq(meant("xyz", list), "");
	ck_assert_str_eq(meant("", list), "");
	memset(longer, 'x', sizeof longer - 1);
	longer[sizeof longer - 1] = '\0';
	ck_assert_str_eq(meant(longer, list), "");
	ck_assert_str_eq(text_op_meant("gdn_cnov", text), ", did you mean 'gdn_conv'?");
	ck_assert_str_eq(text_op_meant("softmax", text), "");
}
END_TEST

/* ---- help ---- */

/* The options of a help text: every one has a line of its own, "  --name" or "  -q, --name". */
START_TEST(help_of)
{
	static const char *const parts[] = {"usage: plumb ", "\nfor every command:\n", "  -q, --quiet ", "  -v, --verbose ",
		"  --color auto|always|never", "  --no-color ", "  -h, --help ", "\nexamples:\n  ", EXIT_STATUS};

	program(&r, dir, "%s --help", commands[_i]);
	program_expect(&r, 0);
	ck_assert_str_eq(r.err, "");
	for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
		ck_assert_msg(strstr(r.out, parts[i]) != NULL, "%s: no '%s' in\n%s", commands[_i], parts[i], r.out);
	for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 80 || strncmp(line, "  plumb ", 8) == 0, "%s: longer than 80: %s",
			commands[_i], line);
	program(&r, dir, "%s -h", commands[_i]);
	ck_assert(strncmp(r.out, "usage: plumb ", 13) == 0);
}
END_TEST

START_TEST(help_of_all)
{
	char line[40];

	program(&r, dir, "--help");
	program_expect(&r, 0);
	for (int i = 0; i < COMMANDS; i++) {
		snprintf(line, sizeof line, "\n  %.*s ", (int)strcspn(commands[i], " "), commands[i]);
		ck_assert_msg(strstr(r.out, line) != NULL, "%s is not in\n%s", line, r.out);
	}
	program(&r, dir, "help check");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "usage: plumb check "));
	ck_assert_ptr_nonnull(strstr(r.out, EXIT_STATUS));
	program(&r, dir, "golden --help");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "golden verify"));
	ck_assert_ptr_nonnull(strstr(r.out, EXIT_STATUS));
	program(&r, dir, "help golden make");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "usage: plumb golden make "));
	program(&r, dir, "help help");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.out, "usage: plumb COMMAND "));
	program(&r, dir, "help chekc");
	program_expect_bad(&r, "chekc", "did you mean 'check'");
}
END_TEST

/* Every command takes the common options: unknown ones are refused, these are not; nothing given may be empty. */
START_TEST(common_options)
{
	program(&r, dir, "%s --quiet --verbose --no-such-thing", commands[_i]);
	program_expect_bad(&r, "--no-such-thing", "lists them");
	program(&r, dir, "%s --quiet --verbose", commands[_i]);
	program_expect_bad(&r, "--quiet", "--verbose");
	program(&r, dir, "%s --color maybe", commands[_i]);
	program_expect_bad(&r, "--color is 'maybe'", "auto, always or never");
	program(&r, dir, "%s --qiuet", commands[_i]);
	program_expect_bad(&r, "--qiuet", "did you mean '--quiet'");
	program(&r, dir, "%s -x", commands[_i]);
	program_expect_bad(&r, "'-x'", "lists them");
	program(&r, dir, "%s --color ''", commands[_i]);
	program_expect_bad(&r, "--color is empty", "expected auto|always|never");
	program(&r, dir, "%s %s''", commands[_i], _i % 2 ? "-- " : "");
	program_expect_bad(&r, "an argument is empty; usage: plumb ", commands[_i]);
}
END_TEST

START_TEST(did_you_mean)
{
	static const char *const typed[][3] = {
		{"chekc", "'chekc'", "'check'"},
		{"golden verfy x.h5", "'verfy'", "'verify'"},
		{"check --chekpoint x", "--chekpoint", "'--checkpoint'"},
		{"check --opp=x", "--opp", "'--op'"},
		{"bench --op gdn_cnov", "gdn_cnov", "'gdn_conv'"},
		{"faults --op gdn_cnov", "gdn_cnov", "'gdn_conv'"},
		{"bisect " TINY " --checkpoint " CHECKPOINT " --set opt --call gdn_cnov", "gdn_cnov", "'gdn_conv'"},
		{"list tolerence", "tolerence", "'tolerances'"},
		{"list gdn_recurrense", "gdn_recurrense", "'gdn_recurrence'"},
		{"list servd", "servd", "'served'"},
		{"check " TINY " --checkpoint " CHECKPOINT " --op gdn_cnov=opt", "gdn_cnov", "'gdn_conv'"},
	};
	for (size_t i = 0; i < sizeof typed / sizeof typed[0]; i++) {
		program(&r, dir, "%s", typed[i][0]);
		program_expect_bad(&r, typed[i][1], typed[i][2]);
		ck_assert_ptr_nonnull(strstr(r.err, "did you mean"));
	}
	program(&r, dir, "\"$(printf 'a\\033[31m\\nb')\""); /* a word is shown without what it could do to a terminal */
	program_expect_bad(&r, "unknown command 'a?[31m?b'", "lists them");
	program(&r, dir, "golden \"$(printf 'a\\033[31m\\nb')\"");
	program_expect_bad(&r, "unknown command 'a?[31m?b'", "make, verify or diff");
	program(&r, dir, "check --zzzzzzz");
	program_expect_bad(&r, "--zzzzzzz", "lists them");
	ck_assert_ptr_null(strstr(r.err, "did you mean"));
}
END_TEST

/* ---- levels ---- */

static int lines(const char *text)
{
	int n = 0;
	for (; *text; text++)
		n += *text == '\n';
	return n;
}

/* Quiet is the verdict; what is there beside it without. */
START_TEST(quiet)
{
	static const struct {
		const char *words, *verdict;
		int lines;
	} runs[] = {
		{"check " TINY " --checkpoint " CHECKPOINT " --view local --layers 3", "pass  local", 1},
		{"replay " CASE, "pass  1 of 1 cases", 1},
		{"drift --steps 4 --format f32", "pass  ", 1},
		{"golden diff " TINY " " TINY " --group fp32", "pass  ", 1},
		{"bench --synthetic tiny --set ref --context 10 --repeat 1", "pass  a token in ", 1},
		{"run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 3", "241,156,195\n", 1},
	};
	char first[64];

	for (size_t i = 0; i < sizeof runs / sizeof runs[0]; i++) {
		for (int way = 0; way < 2; way++) {
			program(&r, dir, "%s %s", runs[i].words, way ? "-q" : "--quiet");
			program_expect(&r, 0);
			ck_assert_msg(lines(r.out) == runs[i].lines &&
					      strncmp(r.out, runs[i].verdict, strlen(runs[i].verdict)) == 0,
				"%s: %s", runs[i].words, r.out);
			ck_assert_str_eq(r.err, "");
		}
		snprintf(first, sizeof first, "%.20s", runs[i].verdict);
		program(&r, dir, "%s", runs[i].words);
		program_expect(&r, 0);
		ck_assert_msg(strncmp(runs[i].words, "run", 3) == 0 || lines(r.out) > runs[i].lines ||
				      strncmp(runs[i].words, "replay", 6) == 0,
			"%s says no more without --quiet", runs[i].words);
	}
}
END_TEST

START_TEST(verbose)
{
	int n[4];

	for (int level = 0; level < 4; level++) {
		static const char *const flags[] = {"", "-v", "-vv", "--verbose --verbose"};
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --view local --layers 3 %s", flags[level]);
		program_expect(&r, 0);
		n[level] = lines(r.out);
	}
	ck_assert_msg(n[0] < n[1] && n[1] < n[2] && n[2] == n[3], "%d %d %d %d lines", n[0], n[1], n[2], n[3]);
	ck_assert_ptr_nonnull(strstr(r.out, "bound 1e-06")); /* what was demanded */
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 3 -v");
	program_expect(&r, 0);
	ck_assert_str_eq(r.out, "241,156,195\n");
	ck_assert_ptr_nonnull(strstr(r.err, "runs        set ref, mode oracle"));
	ck_assert_ptr_null(strstr(r.err, "config "));
	program(&r, dir, "run --checkpoint " PLUMB_GOLDEN_DIR "/tiny-fp8/checkpoint --tokens 5 --steps 1 -v");
	program_expect(&r, 0);
	ck_assert_ptr_nonnull(strstr(r.err, "config      absent, so by default: norm_topk_prob true, seed 1234\n"));
}
END_TEST

START_TEST(colour)
{
	static const char *const plain[] = {"", "--color auto", "--color=never", "--no-color", "--color never"};

	for (size_t i = 0; i < sizeof plain / sizeof plain[0]; i++) { /* standard output is a file */
		program(&r, dir, "replay " CASE " %s", plain[i]);
		ck_assert_msg(strchr(r.out, '\033') == NULL, "%s: colours", plain[i]);
	}
	program(&r, dir, "replay " CASE " --color always");
	ck_assert_ptr_nonnull(strstr(r.out, "\033[32mpass\033[0m"));
	/* a terminal, by script(1): colours, unless NO_COLOR or TERM=dumb */
	if (system("script --version >/dev/null 2>&1") == 0) {
		static const struct {
			const char *before, *flags;
			bool coloured;
		} ways[] = {{"TERM=xterm", "", true}, {"TERM=xterm NO_COLOR=1", "", false}, {"TERM=dumb", "", false},
			{"TERM=xterm NO_COLOR=1", "--color=always", true}, {"TERM=xterm", "--no-color", false},
			{"TERM=xterm NO_COLOR=", "", true}};
		for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
			program(&r, dir,
				"--version >/dev/null; unset NO_COLOR; %s script -qec \"'" PLUMB_PROGRAM "' replay '" CASE
				"' %s\" /dev/null",
				ways[i].before, ways[i].flags);
			ck_assert_msg((strchr(r.out, '\033') != NULL) == ways[i].coloured, "%s %s: %s", ways[i].before,
				ways[i].flags, r.out);
		}
	}
}
END_TEST

START_TEST(columns)
{
	static const int widths[] = {60, 100};

	for (int i = 0; i < 2; i++) {
		program(&r, dir, "--version >/dev/null; COLUMNS=%d '" PLUMB_PROGRAM "' check --help", widths[i]);
		int longest = 0;
		for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n"))
			if (strncmp(line, "  plumb ", 8) != 0 && (int)strlen(line) > longest)
				longest = (int)strlen(line);
		ck_assert_msg(longest <= widths[i] && longest > widths[i] - 20, "%d columns: longest line %d", widths[i],
			longest);
	}
	program(&r, dir, "--version >/dev/null; COLUMNS=70 '" PLUMB_PROGRAM "' list tolerances");
	for (char *line = strtok(r.out, "\n"); line; line = strtok(NULL, "\n"))
		ck_assert_msg(strlen(line) <= 70, "%s", line);
}
END_TEST

/* Every kind of option refuses an empty value by its name, and numbers say what they may be. */
START_TEST(wrong_values)
{
	static const char *const wrong[][3] = {
		{"--checkpoint ''", "--checkpoint is empty", "expected DIR"},
		{"--op ''", "--op is empty", "expected NAME[@A-B]=ref|opt|FILE.so"},
		{"--op all=ref", "--op all is 'ref'", "expected the path of a shared object"},
		{"--json=", "--json is empty", "expected FILE"},
		{"--json", "--json needs a value: FILE", ""},
		{"--json --tap x", "--json needs a value: FILE", ""},
		{"--json --tap=x", "--json needs a value: FILE", ""},
		{"--json --quiet", "--json needs a value: FILE", ""},
		{"--json=--tap --tap --tap", "--tap needs a value: FILE", ""},
		{"--threads ''", "--threads is empty", "expected N"},
		{"--threads -1", "--threads is '-1'", "expected a whole number in 0..9223372036854775807"},
		{"--threads +1", "--threads is '+1'", "0..9223372036854775807"},
		{"--threads ' 1'", "--threads is ' 1'", "0..9223372036854775807"},
		{"--threads 1k", "--threads is '1k'", "0..9223372036854775807"},
		{"--threads 9223372036854775808", "--threads is '9223372036854775808'", "0..9223372036854775807"},
	};
	for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " %s", wrong[i][0]);
		program_expect_bad(&r, wrong[i][1], wrong[i][2]);
	}
}
END_TEST

/* Every output of every command. */
static const struct output {
	const char *words, *option;
} outputs[] = {
	{"check " TINY " --checkpoint " CHECKPOINT, "--json"},
	{"check " TINY " --checkpoint " CHECKPOINT, "--junit"},
	{"check " TINY " --checkpoint " CHECKPOINT, "--tap"},
	{"check " TINY " --checkpoint " CHECKPOINT, "--html"},
	{"bisect " TINY " --checkpoint " CHECKPOINT " --set opt", "--json"},
	{"bisect " TINY " --checkpoint " CHECKPOINT " --set opt", "--html"},
	{"bisect " TINY " --checkpoint " CHECKPOINT " --set opt", "--case"},
	{"replay " CASE, "--json"},
	{"test", "--json"},
	{"test", "--html"},
	{"run --checkpoint " CHECKPOINT " --tokens 1 --steps 4000", "--json"},
	{"run --checkpoint " CHECKPOINT " --tokens 1 --steps 4000", "--digests"},
	{"bench", "--json"},
	{"bench", "--html"},
	{"golden make --checkpoint " CHECKPOINT " --tokens 1 --steps 4000 --", "OUT"},
	{"golden verify " TINY " --checkpoint " CHECKPOINT, "--json"},
	{"golden verify " TINY " --checkpoint " CHECKPOINT, "--keep"},
	{"golden diff " TINY " " TINY, "--json"},
	{"drift", "--json"},
	{"faults", "--json"},
	{"faults", "--html"},
	{"merge x.json", "--json"},
	{"merge x.json", "--junit"},
	{"merge x.json", "--tap"},
	{"merge x.json", "--html"},
};
enum { OUTPUTS = sizeof outputs / sizeof outputs[0] };

/* What cannot be written is refused before the work, which would take minutes in some of these, and nothing is left behind. */
START_TEST(outputs_are_tried)
{
	const struct output *o = &outputs[_i];
	const bool operand = o->option[0] != '-';
	const char *option = operand ? "" : o->option;
	char said[64];

	snprintf(said, sizeof said, "%s ", o->option);
	program(&r, dir, "%s %s /proc/x", o->words, option); /* a folder that nobody makes files in, root neither */
	program_expect_bad(&r, said, "/proc/x: cannot write: ");
	if (operand || strcmp(o->option, "--case") == 0 || strcmp(o->option, "--keep") == 0) { /* HDF5 */
		program(&r, dir, "%s %s /dev/null", o->words, option);
		program_expect_bad(&r, said, "expected a regular file");
		program(&r, dir, "%s %s -", o->words, option);
		program_expect_bad(&r, said, "expected a regular file");
	}
}
END_TEST

/* What else cannot be written: all commands ask the same function. */
START_TEST(paths_that_are_none)
{
	char name[300];

	memset(name, 'n', sizeof name);
	name[sizeof name - 1] = '\0';
	program(&r, dir, "replay " CASE " --json '%s/%s'", dir, name);
	program_expect_bad(&r, "--json ", ": cannot write: File name too long");
	program(&r, dir, "replay " CASE " --json '%s/none/x'", dir);
	program_expect_bad(&r, "--json ", "none/x: cannot write: no such folder");
	program(&r, dir, "replay " CASE " --json '%s'", dir);
	program_expect_bad(&r, "--json ", "cannot write: it is a folder");
	program(&r, dir, "replay " CASE " --json " CASE "/x");
	program_expect_bad(&r, "--json ", "argmax.h5/x: cannot write: Not a directory");
}
END_TEST

/* What was tried is not there afterwards, or as it was. */
START_TEST(nothing_is_left_behind)
{
	char *text;
	size_t size;

	for (int there = 0; there < 2; there++) {
		char path[SCRATCH_PATH];
		if (there)
			scratch_write(dir, "x.json", "old", 3);
		scratch_path(path, dir, "x.json");
		program(&r, dir, "check " TINY " --checkpoint " CHECKPOINT " --json '%s' --html /proc/x", path);
		program_expect_bad(&r, "--html", "cannot write");
		program(&r, dir, "--version >/dev/null; ls '%s'", dir);
		ck_assert_str_eq(r.out, there ? "err\nout\nx.json\n" : "err\nout\n");
		if (there) {
			text = scratch_read(path, &size);
			ck_assert_str_eq(text, "old");
			free(text);
		}
	}
}
END_TEST

/* A link is what it leads to: into a checkpoint, here a folder, nothing is written through it either. */
START_TEST(link_into_checkpoint)
{
	char folder[SCRATCH_PATH], link[SCRATCH_PATH];
	char *text;
	size_t size;

	ck_assert_int_eq(mkdir(scratch_path(folder, dir, "model"), 0777), 0);
	scratch_write(dir, "model/x.json", "old", 3);
	ck_assert_int_eq(symlink("model/x.json", scratch_path(link, dir, "link.json")), 0);
	program(&r, dir, "run --checkpoint '%s' --tokens 1 --json '%s'", folder, link);
	program_expect_bad(&r, "link.json would write into the checkpoint ", folder);
	text = scratch_read(link, &size);
	ck_assert_str_eq(text, "old");
	free(text);
	unlink(scratch_path(folder, dir, "model/x.json"));
	rmdir(scratch_path(folder, dir, "model"));
}
END_TEST

/* A file that has the temporary one's name, be it of a process of the same number in another container, is not touched. */
START_TEST(temporary_names)
{
	char environment[SCRATCH_PATH + 80];

	snprintf(environment, sizeof environment, "sh -c 'printf old >%s/x.json.tmp-$$-0; exec \"$0\" \"$@\"'", dir);
	program_with(&r, dir, environment, "replay " CASE " --json '%s/x.json'", dir);
	program_expect(&r, 0);
	program(&r, dir, "--version >/dev/null; cat '%s'/x.json.tmp-*", dir);
	ck_assert_str_eq(r.out, "old");
}
END_TEST

/* Both files of a new kernel, or none. */
START_TEST(new_kernel_is_whole)
{
	scratch_write(dir, "CMakeLists.txt", "mine", 4);
	program(&r, dir, "new-kernel embed '%s'", dir);
	program_expect_bad(&r, "CMakeLists.txt is there already", "not written over");
	program(&r, dir, "--version >/dev/null; ls '%s'", dir);
	ck_assert_str_eq(r.out, "CMakeLists.txt\nerr\nout\n");
}
END_TEST

/* A report on standard output stands there alone. */
START_TEST(run_reports_on_standard_output)
{
	static const char *const reports[] = {"--json -", "--digests -", "--digest --json -"};

	for (size_t i = 0; i < sizeof reports / sizeof reports[0]; i++) {
		program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,17,42 --steps 3 %s", reports[i]);
		program_expect(&r, 0);
		cJSON *tree = cJSON_ParseWithOpts(r.out, NULL, true);
		ck_assert_msg(cJSON_GetArraySize(cJSON_GetObjectItem(tree, "tokens")) == 3, "%s: %s", reports[i], r.out);
		cJSON_Delete(tree);
	}
}
END_TEST

/* A run that fails leaves nothing on standard output, not even an empty line. */
START_TEST(failed_run_prints_nothing)
{
	program(&r, dir, "run --synthetic tiny --tokens \"$(yes 1 | head -n 2000 | paste -sd,)\"");
	program_expect_bad(&r, "plumb run: 2000 tokens, expected at most 1024", "max_position_embeddings");
	program(&r, dir, "run --checkpoint " CHECKPOINT " --tokens 5,99999 --steps 3");
	program_expect_bad(&r, "99999", "vocab_size");
}
END_TEST

/* ---- list ---- */

START_TEST(list_shows_everything)
{
	static const char *const lists[] = {
		"ops", "orders", "tolerances", "formats", "profiles", "presets", "classes", "devices"};
	char names[64][64];
	int n = 0;

	program(&r, dir, "list");
	program_expect(&r, 0);
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
		ck_assert_ptr_nonnull(strstr(r.out, lists[i]));
	for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
		program(&r, dir, "list %s", lists[i]);
		program_expect(&r, 0);
		ck_assert_msg(lines(r.out) >= 2, "%s: %s", lists[i], r.out);
	}
	program(&r, dir, "list formats");
	ck_assert_ptr_nonnull(strstr(r.out, "nvfp4              4.5"));
	program(&r, dir, "list ops");
	for (char *line = strtok(r.out, "\n"); line && n < 64; line = strtok(NULL, "\n"))
		if (line[0] >= 'a' && line[0] <= 'z' && strncmp(line, "op ", 3) != 0)
			sscanf(line, "%63s", names[n++]);
	ck_assert_int_ge(n, 25);
	for (int i = 0; i < n; i++) { /* every op has where it runs, operands, a contract, and what is demanded of it */
		static const char *const parts[] = {
			"runs        ", "operand  ", "\nComputes ", "\nNumerics ", "\nSource ", "plumb check GOLDEN.h5"};
		program(&r, dir, "list %s", names[i]);
		program_expect(&r, 0);
		for (size_t p = 0; p < sizeof parts / sizeof parts[0]; p++)
			ck_assert_msg(strstr(r.out, parts[p]) != NULL, "list %s: no '%s'", names[i], parts[p]);
		ck_assert_msg(strstr(r.out, "propagated bf16 ") || strstr(r.out, "the same choice; ") ||
				      strstr(r.out, "no golden tensor"),
			"list %s: no tolerance", names[i]);
	}
	program(&r, dir, "list gdn_recurrence");
	ck_assert_ptr_nonnull(strstr(r.out, "in 36 of 48 layers"));
	ck_assert_ptr_nonnull(strstr(r.out, "(Hv Dv Dk)"));
	ck_assert_ptr_nonnull(strstr(r.out, "gdn/recurrence"));
}
END_TEST

static void setup(void)
{
	scratch_make(dir);
}

static void teardown(void)
{
	scratch_remove(dir);
}

int main(void)
{
	Suite *s = suite_create("terminal");
	TCase *t = suite_part(s, "terminal", 120);
	unsetenv("COLUMNS");
	unsetenv("NO_COLOR");
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, fill);
	tcase_add_test(t, nearest);
	tcase_add_loop_test(t, help_of, 0, COMMANDS);
	tcase_add_test(t, help_of_all);
	tcase_add_loop_test(t, common_options, 0, COMMANDS);
	tcase_add_test(t, did_you_mean);
	tcase_add_test(t, wrong_values);
	tcase_add_loop_test(t, outputs_are_tried, 0, OUTPUTS);
	tcase_add_test(t, paths_that_are_none);
	tcase_add_test(t, nothing_is_left_behind);
	tcase_add_test(t, link_into_checkpoint);
	tcase_add_test(t, temporary_names);
	tcase_add_test(t, quiet);
	tcase_add_test(t, verbose);
	tcase_add_test(t, colour);
	tcase_add_test(t, columns);
	tcase_add_test(t, new_kernel_is_whole);
	tcase_add_test(t, run_reports_on_standard_output);
	tcase_add_test(t, failed_run_prints_nothing);
	tcase_add_test(t, list_shows_everything);
	return suite_run(s);
}
