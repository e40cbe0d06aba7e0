/* SPDX-License-Identifier: MIT */
/* What a configured build tree knows: how each object is compiled, from which files, and what a program is linked from. */
#include <cJSON.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "tools/faults.h"

enum { COMPILE_SECONDS = 300 };

static bool exists(const char *path)
{
	struct stat s;
	return stat(path, &s) == 0;
}

/* Value of an entry of CMakeCache.txt, to be freed; NULL: it has none. */
static char *cached(const char *text, const char *name)
{
	char *key = faults_format("\n%s:", name);
	const char *at = strstr(text, key), *value = at ? strchr(at + 1, '=') : NULL;

	free(key);
	return value ? strndup(value + 1, strcspn(value + 1, "\n")) : NULL;
}

static int read_cache(struct fault_build *b, const char *source, struct plumb_error *err)
{
	char *path = faults_format("%s/CMakeCache.txt", b->folder), *text = NULL, *home, *sanitize, *cuda;
	size_t size;
	int status = plumb_file_read(path, 1 << 24, &text, &size, err);

	if (status != PLUMB_OK) {
		free(path);
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: no configured build tree (no CMakeCache.txt); --build names one", b->folder);
	}
	home = cached(text, "CMAKE_HOME_DIRECTORY");
	sanitize = cached(text, "PLUMB_SANITIZE");
	cuda = cached(text, "PLUMB_CUDA");
	b->home = realpath(home ? home : "", NULL);
	b->source = realpath(source ? source : home ? home : "", NULL);
	if (!b->source || !b->home)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: source folder '%s': %s", path,
			source ? source
			: home ? home
			       : "",
			strerror(errno));
	else if (sanitize && strcmp(sanitize, "ON") == 0)
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: a tree with sanitizers, in which no shared object can be judged; expected one like preset "
			"release",
			path);
	else if (b->cuda && (!cuda || strcmp(cuda, "ON") != 0))
		status = plumb_fail(
			err, PLUMB_NO_DEVICE, "%s: built without the cuda device; expected one like preset cuda", path);
	free(home);
	free(sanitize);
	free(cuda);
	free(text);
	free(path);
	return status;
}

/* The word behind an option, e.g. "-o ". NULL: it is not there. To be freed. */
static char *word_behind(const char *command, const char *option)
{
	const char *at = strstr(command, option);
	return at ? strndup(at + strlen(option), strcspn(at + strlen(option), " ")) : NULL;
}

static int read_commands(struct fault_build *b, struct plumb_error *err)
{
	static const struct plumb_json_limits limits = {1 << 26, 8, 1 << 16};
	char *path = faults_format("%s/compile_commands.json", b->folder);
	cJSON *tree = NULL;
	const cJSON *item;
	int status = plumb_json_read(path, &limits, &tree, err);

	if (status == PLUMB_OK && !cJSON_IsArray(tree))
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s: expected an array of commands", path);
	if (status == PLUMB_OK)
		b->object = faults_zero((size_t)cJSON_GetArraySize(tree), sizeof *b->object);
	cJSON_ArrayForEach (item, tree) {
		const char *command = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "command"));
		const char *file = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(item, "file"));
		char *name = command ? word_behind(command, " -o ") : NULL;
		if (status != PLUMB_OK || !name || !file) {
			free(name);
			continue;
		}
		b->object[b->objects++] = (struct fault_object){
			.name = name, .source = faults_format("%s", file), .command = faults_format("%s", command)};
	}
	cJSON_Delete(tree);
	free(path);
	return status;
}

/* What a command of the tree prints: to be freed. */
static int ask(const struct fault_build *b, const char *arguments, char **out, struct plumb_error *err)
{
	struct fault_run run;
	char *log = faults_format("%s/ninja-%d.out", b->scratch, (int)getpid()),
	     *command = faults_format("ninja %s", arguments);
	size_t size;

	faults_run(b->folder, command, COMPILE_SECONDS * 4, log, &run);
	int status = run.status == 0 ? plumb_file_read(log, 1 << 26, out, &size, err)
	                             : plumb_fail(err, PLUMB_BAD_INPUT, "%s: 'ninja %.60s' failed: %.300s", b->folder,
					       arguments, run.line);
	unlink(log);
	free(log);
	free(command);
	return status;
}

int faults_outdated(const struct fault_build *b, const char *targets, char **first, struct plumb_error *err)
{
	char *manifest = faults_format("%s/all-%d.ninja", b->scratch, (int)getpid()), *text = NULL,
	     *arguments = faults_format("-n -f '%s'%s", manifest, targets);
	FILE *f = fopen(manifest, "w");
	/* the tree's own, which ninja, asked what it would do, always wants to make anew first */
	bool written = f && fputs("include build.ninja\n", f) >= 0;
	int status;

	written = f && fclose(f) == 0 && written;
	status = written ? ask(b, arguments, &text, err)
	                 : plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot be written: %s", manifest, strerror(errno));
	*first = NULL;
	if (status == PLUMB_OK && !strstr(text, "ninja: no work to do.")) {
		const char *step = strstr(text, "] ");
		step = step ? step + 2 : text;
		*first = strndup(step, strcspn(step, "\n"));
	}
	unlink(manifest);
	free(text);
	free(arguments);
	free(manifest);
	return status;
}

static struct fault_object *find_object(const struct fault_build *b, const char *name, size_t length)
{
	for (size_t i = 0; i < b->objects; i++)
		if (strlen(b->object[i].name) == length && strncmp(b->object[i].name, name, length) == 0)
			return &b->object[i];
	return NULL;
}

/* "OBJECT: #deps N, ..." and then its files, each after four spaces. */
static int read_headers(struct fault_build *b, struct plumb_error *err)
{
	char *text = NULL;
	struct fault_object *o = NULL;
	const size_t below = strlen(b->home) + 1;
	int status = ask(b, "-t deps", &text, err);

	for (char *line = text, *end; status == PLUMB_OK && *line; line = end) {
		size_t length = strcspn(line, "\n");
		end = line + length + (line[length] == '\n');
		line[length] = '\0';
		if (line[0] != ' ') {
			o = find_object(b, line, strcspn(line, ":"));
			if (o && !o->header)
				o->header = faults_zero(
					strtoul(strstr(line, "#deps ") ? strstr(line, "#deps ") + 6 : "0", NULL, 10) + 1,
					sizeof *o->header);
			continue;
		}
		if (!o)
			continue;
		char *path = line[4] == '/' ? faults_format("%s", line + 4) : faults_format("%s/%s", b->folder, line + 4);
		char *real = realpath(path, NULL);
		if (real && strncmp(real, b->home, below - 1) == 0 && real[below - 1] == '/')
			o->header[o->headers++] = faults_format("%s", real + below);
		free(real);
		free(path);
	}
	free(text);
	return status;
}

/* Link command of a program, without the shell around it; to be freed. */
static int link_command(const struct fault_build *b, const char *program, char **out, struct plumb_error *err)
{
	char *arguments = faults_format("-t commands %s", program), *text = NULL;
	int status = ask(b, arguments, &text, err);

	free(arguments);
	if (status != PLUMB_OK)
		return status;
	char *end = text + strlen(text);
	while (end > text && (end[-1] == '\n' || end[-1] == ' '))
		*--end = '\0';
	char *last = strrchr(text, '\n');
	last = last ? last + 1 : text;
	const char *begin = strncmp(last, ": && ", 5) == 0 ? last + 5 : last;
	size_t length = strlen(begin);
	if (length > 5 && strcmp(begin + length - 5, " && :") == 0)
		length -= 5;
	*out = strndup(begin, length);
	free(text);
	if (!*out || !strstr(*out, " libplumbline.a")) {
		free(*out);
		*out = NULL;
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s: no link command of %s with libplumbline.a", b->folder, program);
	}
	return PLUMB_OK;
}

int faults_build_open(const char *source, const char *folder, const char *scratch, bool cuda, struct fault_build *out,
	struct plumb_error *err)
{
	char *command = NULL;
	int status;

	*out = (struct fault_build){.cuda = cuda, .folder = realpath(folder, NULL), .scratch = realpath(scratch, NULL)};
	if (!out->folder || !out->scratch)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: %s; --build names a build tree",
			out->folder ? scratch : folder, strerror(errno));
	status = read_cache(out, source, err);
	if (status == PLUMB_OK)
		status = read_commands(out, err);
	if (status == PLUMB_OK)
		status = read_headers(out, err);
	if (status == PLUMB_OK)
		status = link_command(out, "tools/plumb", &command, err);
	if (status == PLUMB_OK) {
		out->libraries = faults_format("%s", strstr(command, " libplumbline.a") + strlen(" libplumbline.a"));
		out->linker = faults_format("%.*s", (int)strcspn(command, " "), command);
	}
	free(command);
	return status;
}

void faults_build_close(struct fault_build *b)
{
	for (size_t i = 0; i < b->objects; i++) {
		struct fault_object *o = &b->object[i];
		for (int h = 0; h < o->headers; h++)
			free(o->header[h]);
		free(o->header);
		free(o->name);
		free(o->source);
		free(o->command);
	}
	free(b->object);
	free(b->source);
	free(b->home);
	free(b->folder);
	free(b->scratch);
	free(b->libraries);
	free(b->linker);
}

/* The command without "-o X" and "-c X", and without a compiler cache in front: a thousand mutants would fill it. */
static char *bare_command(const char *command)
{
	char *out = faults_zero(strlen(command) + 1, 1), *to = out;
	const char *at = command;
	size_t first = strcspn(at, " ");

	if (first >= 6 && strncmp(at + first - 6, "ccache", 6) == 0)
		at += first + 1;
	while (*at) {
		size_t n = strcspn(at, " ");
		bool pair = n == 2 && at[0] == '-' && (at[1] == 'o' || at[1] == 'c');
		if (pair) {
			at += n + (at[n] == ' ');
			n = strcspn(at, " ");
		} else {
			memcpy(to, at, n);
			to += n;
			*to++ = ' ';
		}
		at += n;
		at += strspn(at, " ");
	}
	*to = '\0';
	return out;
}

/* What is compiled: the file of the overlay if it is there; a kernel's wrapper includes its file by a name that the overlay
 * is searched for. */
static char *source_of(const struct fault_build *b, const struct fault_object *o, const char *overlay, const char *to,
	struct fault_run *run)
{
	const size_t below = strlen(b->home);
	const char *simt = strstr(o->source, "/simt/"), *base = faults_base(o->source);
	char *path, *unit;

	if (simt && (strstr(base, ".simt.cpp") || strstr(base, ".race.cpp"))) {
		unit = strndup(base, strcspn(base, "."));
		path = faults_format("%.*s/%s", (int)(faults_base(to) - to), to, base);
		FILE *f = fopen(path, "w");
		if (!f || fprintf(f, "#include \"kernels/%s.cu\"\n", unit) < 0 || fclose(f) != 0)
			snprintf(run->line, sizeof run->line, "%.200s: %s", path, strerror(errno));
		free(unit);
		return path;
	}
	if (strncmp(o->source, b->home, below) != 0 || o->source[below] != '/')
		return faults_format("%s", o->source);
	path = faults_format("%s%s", overlay ? overlay : b->source, o->source + below);
	if (exists(path))
		return path;
	free(path);
	return faults_format("%s%s", b->source, o->source + below);
}

int faults_compile(const struct fault_build *b, const struct fault_object *o, const char *level, const char *overlay,
	const char *to, char *text, size_t size)
{
	struct fault_run run = {.line = ""};
	char *bare = bare_command(o->command), *from = source_of(b, o, overlay, to, &run),
	     *log = faults_format("%s.log", to);
	size_t compiler = strcspn(bare, " ");
	/* a mutant may leave a variable unused, but not mistake a pointer for a number */
	const char *warnings =
		strstr(o->source, ".cpp") || b->cuda
			? "-w"
			: "-Wno-error -Werror=incompatible-pointer-types -Werror=int-conversion -Werror=format";
	char *command = faults_format("%.*s %s%s -I%s %s %s -g0 %s -o %s -c %s", (int)compiler, bare, overlay ? "-I" : "",
		overlay ? overlay : "", b->source, bare + compiler, level, warnings, to, from);

	faults_run(b->folder, command, COMPILE_SECONDS, log, &run);
	snprintf(text, size, "%s", run.line);
	unlink(log);
	free(command);
	free(log);
	free(from);
	free(bare);
	return run.status == 0 ? PLUMB_OK : PLUMB_MISMATCH;
}

const struct fault_object *faults_kernel_object(const struct fault_build *b, const char *unit, bool race)
{
	char *ending = b->cuda ? faults_format("plumb_cuda_kernels.dir/%s.cu.o", unit)
	                       : faults_format("/simt/%s.%s.cpp.o", unit, race ? "race" : "simt");
	const struct fault_object *found = NULL;

	for (size_t i = 0; i < b->objects && !found; i++) {
		const char *name = b->object[i].name;
		size_t n = strlen(name), m = strlen(ending);
		if (n >= m && strcmp(name + n - m, ending) == 0 && !strstr(name, "tests/"))
			found = &b->object[i];
	}
	free(ending);
	return found;
}

bool faults_object_reads(const struct fault_build *b, const struct fault_object *o, const char *file)
{
	const size_t below = strlen(b->home);

	if (strncmp(o->source, b->home, below) == 0 && o->source[below] == '/' && strcmp(o->source + below + 1, file) == 0)
		return true;
	for (int h = 0; h < o->headers; h++)
		if (strcmp(o->header[h], file) == 0)
			return true;
	return false;
}

static int run_linker(const struct fault_build *b, const char *command, const char *to, char *text, size_t size)
{
	struct fault_run run;
	char *log = faults_format("%s.log", to);

	faults_run(b->folder, command, COMPILE_SECONDS, log, &run);
	snprintf(text, size, "%s", run.line);
	unlink(log);
	free(log);
	return run.status == 0 ? PLUMB_OK : PLUMB_MISMATCH;
}

const char *faults_seat_object(const struct fault_build *b)
{
	return b->cuda ? "tests/CMakeFiles/faults_seat_cuda.dir/faults/seat.c.o"
	               : "tests/CMakeFiles/faults_seat.dir/faults/seat.c.o";
}

int faults_link_seat(const struct fault_build *b, const char *objects, const char *to, char *text, size_t size)
{
	/* --exclude-libs and -Bsymbolic: the program that loads it has functions of the same names */
	char *command = faults_format("%s -shared -o %s %s %s -Wl,--exclude-libs,ALL -Wl,-Bsymbolic libplumbline.a %s",
		b->linker, to, faults_seat_object(b), objects, b->libraries);
	int status = run_linker(b, command, to, text, size);

	free(command);
	return status;
}

int faults_link_program(const struct fault_build *b, const char *program, const struct fault_swap *swap, int swaps,
	const char *to, char *text, size_t size)
{
	struct plumb_error err = {""};
	char *command = NULL, *line;
	int status = link_command(b, program, &command, &err);

	if (status != PLUMB_OK) {
		snprintf(text, size, "%s", err.text);
		return PLUMB_BAD_INPUT;
	}
	line = faults_zero(strlen(command) + (size_t)(swaps + 2) * (PATH_MAX + 2), 1);
	char *end = line;
	bool is_output = false;
	for (const char *at = command; *at; at += strspn(at, " ")) {
		size_t n = strcspn(at, " ");
		const char *word = at;
		size_t length = n;
		if (is_output) {
			word = to;
			length = strlen(to);
		}
		if (n == strlen("libplumbline.a") && strncmp(at, "libplumbline.a", n) == 0)
			for (int i = 0; i < swaps; i++)
				if (strstr(swap[i].object->name, "plumbline.dir/"))
					end += sprintf(end, "%s ", swap[i].by);
		for (int i = 0; i < swaps; i++)
			if (strlen(swap[i].object->name) == n && strncmp(swap[i].object->name, at, n) == 0) {
				word = swap[i].by;
				length = strlen(word);
			}
		is_output = n == 2 && strncmp(at, "-o", 2) == 0;
		memcpy(end, word, length);
		end += length;
		*end++ = ' ';
		at += n;
	}
	*end = '\0';
	status = run_linker(b, line, to, text, size);
	free(line);
	free(command);
	return status;
}
