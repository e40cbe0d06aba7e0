/* SPDX-License-Identifier: MIT */
#include "tools/output.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tools/options.h"

enum { COLUMNS_LEAST = 40 }; /* a narrower terminal breaks lines by itself */

static bool colour;
static int32_t line_here, *line = &line_here; /* whether a line is growing */
static struct {
	bool quiet;
	int verbosity;
	enum output_when colours;
} level;

static int fail(const char *path, const char *temporary, FILE *f, struct plumb_error *err)
{
	int reason = errno;
	if (f)
		fclose(f);
	if (temporary)
		unlink(temporary);
	return plumb_fail(err, PLUMB_BAD_INPUT, "%s: cannot write: %s", path, strerror(reason));
}

/* Into something that is no regular file (a terminal, /dev/null, a FIFO): written, never replaced. */
static int write_through(const char *path, const char *text, size_t size, struct plumb_error *err)
{
	FILE *f = fopen(path, "wb");
	if (!f)
		return fail(path, NULL, NULL, err);
	if (fwrite(text, 1, size, f) != size || fflush(f) != 0)
		return fail(path, NULL, f, err);
	return fclose(f) == 0 ? PLUMB_OK : fail(path, NULL, NULL, err);
}

enum { TEMPORARY = PATH_MAX + 48, NAMES_TRIED = 100 };

/* The temporary file beside path, which is new: what is there of that name (of a killed process, or of one with the same number
 * in another container) is not touched. NULL: errno says why there is none. */
static FILE *open_beside(const char *path, char temporary[TEMPORARY])
{
	int fd = -1;

	for (int i = 0; i < NAMES_TRIED && fd < 0; i++) {
		if ((size_t)snprintf(temporary, TEMPORARY, "%s.tmp-%ld-%d", path, (long)getpid(), i) >= TEMPORARY) {
			errno = ENAMETOOLONG;
			return NULL;
		}
		fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL, 0666);
		if (fd < 0 && errno != EEXIST)
			return NULL;
	}
	return fd < 0 ? NULL : fdopen(fd, "wb");
}

static int replace(const char *path, const char *text, size_t size, struct plumb_error *err)
{
	char temporary[TEMPORARY];
	FILE *f = open_beside(path, temporary);

	if (!f)
		return fail(path, NULL, NULL, err);
	if (fwrite(text, 1, size, f) != size || fflush(f) != 0 || fsync(fileno(f)) != 0)
		return fail(path, temporary, f, err);
	if (fclose(f) != 0)
		return fail(path, temporary, NULL, err);
	if (rename(temporary, path) != 0)
		return fail(path, temporary, NULL, err);
	return PLUMB_OK;
}

/* No signal between making the temporary file and putting it in place, or away. */
static void hold_signals(sigset_t *before)
{
	sigset_t stops;

	sigemptyset(&stops);
	sigaddset(&stops, SIGINT);
	sigaddset(&stops, SIGTERM);
	sigaddset(&stops, SIGHUP);
	sigprocmask(SIG_BLOCK, &stops, before);
}

/* What is there and is no regular file is written to as it is. */
static bool is_special(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode);
}

/* The file that a path leads to; the path itself when nothing is there yet. */
static void resolve(const char *path, char target[PATH_MAX])
{
	if (!realpath(path, target))
		snprintf(target, PATH_MAX, "%s", path);
}

static int write_file(const char *path, const char *text, size_t size, struct plumb_error *err)
{
	char target[PATH_MAX];
	sigset_t before;
	int status;

	if (strcmp(path, "-") == 0)
		return fwrite(text, 1, size, stdout) == size && fflush(stdout) == 0
		               ? PLUMB_OK
		               : fail("standard output", NULL, NULL, err);
	if (is_special(path))
		return write_through(path, text, size, err);
	if (access(path, F_OK) == 0 && access(path, W_OK) != 0)
		return fail(path, NULL, NULL, err);
	resolve(path, target);
	hold_signals(&before);
	status = replace(target, text, size, err);
	sigprocmask(SIG_SETMASK, &before, NULL);
	return status;
}

/* Whether write_file would come to its first byte. */
static bool is_writable(const char *path)
{
	char target[PATH_MAX], temporary[TEMPORARY];
	sigset_t before;
	struct stat st;
	FILE *f;

	if (access(path, F_OK) != 0 && lstat(path, &st) == 0) /* a link to nothing */
		return false;
	if (access(path, F_OK) == 0 && (access(path, W_OK) != 0 || is_special(path)))
		return access(path, W_OK) == 0;
	resolve(path, target);
	hold_signals(&before);
	f = open_beside(target, temporary);
	if (f) {
		fclose(f);
		unlink(temporary);
	}
	sigprocmask(SIG_SETMASK, &before, NULL);
	return f != NULL;
}

int output_file(const char *path, const char *text, size_t size, struct plumb_error *err)
{
	char *clean = malloc(size + 2);
	int status;

	if (!clean)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s: out of memory for %zu bytes", path, size);
	memcpy(clean, text, size);
	if (size == 0 || clean[size - 1] != '\n') /* as a line ends, and cJSON's text does not */
		clean[size++] = '\n';
	clean[size] = '\0';
	plumb_utf8(clean);
	status = write_file(path, clean, size, err);
	free(clean);
	return status;
}

/* The folder that a path lies in, resolved; false when it is not there. */
static bool folder_of(const char *path, char out[PATH_MAX])
{
	char copy[PATH_MAX];
	if ((size_t)snprintf(copy, sizeof copy, "%s", path) >= sizeof copy)
		return false;
	return realpath(dirname(copy), out) != NULL;
}

static bool is_one_inode(const char *path, const char *other)
{
	struct stat x, y;

	return stat(path, &x) == 0 && stat(other, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* The input that a path leads to, or NULL. */
static const char *input_at(const char *path, const struct output_inputs *in)
{
	for (int i = 0; i < in->files; i++)
		if (in->file[i] && is_one_inode(path, in->file[i]))
			return in->file[i];
	for (int i = 0; in->kernels && i < in->kernels->count; i++) {
		const char *equals = strchr(in->kernels->item[i], '=');
		if (equals && is_one_inode(path, equals + 1))
			return equals + 1;
	}
	return NULL;
}

static int refuse(const struct output_path *o, const struct output_inputs *in, struct plumb_error *err)
{
	char target[PATH_MAX], a[PATH_MAX], b[PATH_MAX];
	const char *input = input_at(o->path, in);
	struct stat st;

	resolve(o->path, target); /* a link is followed */
	if (stat(o->path, &st) == 0 && S_ISDIR(st.st_mode))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s %s: cannot write: it is a folder", o->option, o->path);
	if (!folder_of(target, a))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s %s: cannot write: no such folder", o->option, o->path);
	if (input)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s %s would overwrite the input %s", o->option, o->path, input);
	if (in->folder && realpath(in->folder, b) && strcmp(a, b) == 0)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s %s would write into the checkpoint %s", o->option, o->path, in->folder);
	if (!is_writable(o->path))
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s %s: cannot write: %s", o->option, o->path, strerror(errno));
	return PLUMB_OK;
}

/* Whether two paths lead to one file, be it there already or not. */
static bool is_same_file(const char *path, const char *other)
{
	char a[PATH_MAX], b[PATH_MAX];
	struct stat x, y;

	if (strcmp(path, other) == 0)
		return true;
	if (stat(path, &x) == 0 && stat(other, &y) == 0)
		return x.st_dev == y.st_dev && x.st_ino == y.st_ino && S_ISREG(x.st_mode);
	const char *name = strrchr(path, '/'), *other_name = strrchr(other, '/');
	return strcmp(name ? name + 1 : path, other_name ? other_name + 1 : other) == 0 && folder_of(path, a) &&
	       folder_of(other, b) && strcmp(a, b) == 0;
}

int output_paths(const struct output_path *out, int outs, const struct output_inputs *in, struct plumb_error *err)
{
	int status = PLUMB_OK;

	for (int i = 0; i < outs && status == PLUMB_OK; i++) {
		if (!out[i].path)
			continue;
		if (strcmp(out[i].path, "-") != 0)
			status = refuse(&out[i], in, err);
		for (int j = 0; j < i && status == PLUMB_OK; j++)
			if (out[j].path && is_same_file(out[j].path, out[i].path))
				status = plumb_fail(err, PLUMB_BAD_INPUT, "%s and %s both name %s, expected two files",
					out[j].option, out[i].option, out[j].path);
	}
	return status;
}

int output_hdf5(const char *option, const char *path, struct plumb_error *err)
{
	if (path && (strcmp(path, "-") == 0 || is_special(path)))
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "%s is '%s', expected a regular file, which HDF5 needs", option, path);
	return PLUMB_OK;
}

void output_begin(void)
{
	/* descriptors 0 to 2 must be taken, or a file opened later gets one and messages land in it. Reading only: writing
	 * to a closed standard output stays an error */
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDONLY) != fd)
			_exit(PLUMB_BAD_INPUT);
	signal(SIGXFSZ, SIG_IGN); /* a file size limit is then an error of write(), with its cleaning up */
}

void output_line(void)
{
	fflush(stdout);
	*line = 1;
}

void output_line_end(void)
{
	if (!*line)
		return;
	putchar('\n');
	fflush(stdout);
	*line = 0;
}

bool output_line_shared(void)
{
	struct stat out, err;

	return *line && fstat(fileno(stdout), &out) == 0 && fstat(STDERR_FILENO, &err) == 0 && out.st_dev == err.st_dev &&
	       out.st_ino == err.st_ino;
}

void output_line_at(int32_t *place)
{
	int32_t *other = place ? place : &line_here;

	*other = *line;
	line = other;
}

int output_end(int status)
{
	if ((fflush(stdout) != 0 || ferror(stdout)) && status != PLUMB_BAD_INPUT) {
		fprintf(stderr, "plumb: standard output: cannot write: %s\n", strerror(errno));
		return PLUMB_BAD_INPUT;
	}
	return status;
}

void output_level(bool quiet, int verbosity, enum output_when colours)
{
	level.quiet = quiet;
	level.verbosity = verbosity;
	level.colours = colours;
}

bool output_quiet(void)
{
	return level.quiet;
}

int output_verbosity(void)
{
	return level.verbosity;
}

int output_columns(void)
{
	const char *text = getenv("COLUMNS");
	struct winsize w = {0};
	char *end;

	if (text && *text >= '1' && *text <= '9') {
		long n = strtol(text, &end, 10);
		if (!*end && n <= 10000)
			return n < COLUMNS_LEAST ? COLUMNS_LEAST : (int)n;
	}
	if (isatty(fileno(stdout)) && ioctl(fileno(stdout), TIOCGWINSZ, &w) == 0 && w.ws_col > 0)
		return w.ws_col < COLUMNS_LEAST ? COLUMNS_LEAST : w.ws_col;
	return 0;
}

void output_colour(bool allowed)
{
	const char *no = getenv("NO_COLOR"), *term = getenv("TERM");
	bool fits = isatty(fileno(stdout)) && !(no && *no) && !(term && strcmp(term, "dumb") == 0);

	colour = allowed && (level.colours == OUTPUT_ALWAYS || (level.colours == OUTPUT_AUTO && fits));
}

const char *output_good(void)
{
	return colour ? "\033[32m" : "";
}
const char *output_bad(void)
{
	return colour ? "\033[1;31m" : "";
}
const char *output_dim(void)
{
	return colour ? "\033[2m" : "";
}
const char *output_plain(void)
{
	return colour ? "\033[0m" : "";
}
