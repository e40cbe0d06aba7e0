/* SPDX-License-Identifier: MIT */
/* Commands with a limit, and what they said. */
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/json.h"
#include "tools/faults.h"
#include "tools/progress.h"

enum {
	MEMORY = 64, /* GiB of address space: cases with offsets past 2^31 have that much, all but empty */
	SLOWER = 20, /* a machine may be that busy: limits are of processor time, and this only ends what sleeps */
	IDLE = 60,   /* seconds */
};

char *faults_format(const char *format, ...)
{
	char *text = NULL;
	va_list ap;

	va_start(ap, format);
	if (vasprintf(&text, format, ap) < 0) {
		fprintf(stderr, "plumb faults: out of memory\n");
		exit(PLUMB_BAD_INPUT);
	}
	va_end(ap);
	return text;
}

void *faults_zero(size_t count, size_t size)
{
	void *memory = calloc(count + !count, size);

	if (!memory) {
		fprintf(stderr, "plumb faults: out of memory\n");
		exit(PLUMB_BAD_INPUT);
	}
	return memory;
}

const char *faults_base(const char *path)
{
	const char *slash = strrchr(path, '/');
	return slash ? slash + 1 : path;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *where)
{
	(void)st, (void)type, (void)where;
	return remove(path);
}

bool faults_remove(const char *folder)
{
	return nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0;
}

static _Noreturn void child(const char *folder, const char *command, double limit, const char *log)
{
	const struct rlimit processor = {(rlim_t)limit + 1, (rlim_t)limit + 3};
	const struct rlimit memory = {(rlim_t)MEMORY << 30, (rlim_t)MEMORY << 30}, output = {1 << 26, 1 << 26},
			    none = {0, 0};
	int out = open(log, O_WRONLY | O_CREAT | O_TRUNC, 0666), in = open("/dev/null", O_RDONLY);

	setpgid(0, 0);
	if (out < 0 || in < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0 || chdir(folder) != 0)
		_exit(126);
	setrlimit(RLIMIT_AS, &memory);
	setrlimit(RLIMIT_FSIZE, &output);
	setrlimit(RLIMIT_CORE, &none);
	setrlimit(RLIMIT_CPU, &processor);
	setenv("OMP_NUM_THREADS", "1", 1); /* faults run side by side */
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	setenv("NO_COLOR", "1", 1);
	unsetenv("CK_RUN_SUITE"); /* what is left out of a test must not be by somebody's environment */
	unsetenv("CK_RUN_CASE");
	execl("/bin/sh", "sh", "-c", command, (char *)NULL);
	_exit(127);
}

static void one_line(char *out, size_t size, const char *line, size_t length)
{
	length = length < size - 1 ? length : size - 1;
	memcpy(out, line, length);
	out[length] = '\0';
	for (char *p = out; *p; p++)
		if ((unsigned char)*p < 0x20 || *p == 0x7f)
			*p = ' ';
}

/* What plumb_trap_tell or a guard says, in whichever line it stands. */
static void find_trap(struct fault_run *out, const char *line, size_t length)
{
	static const char *const ends[] = {" bytes after the last", " bytes before the first"};
	static const char *const begins[] = {
		"read after ", "read before ", "wrote after ", "wrote before ", "touched memory "};

	for (size_t e = 0; e < sizeof ends / sizeof ends[0]; e++)
		for (size_t b = 0; b < sizeof begins / sizeof begins[0] && !out->trap[0]; b++) {
			const char *at = memmem(line, length, begins[b], strlen(begins[b])), *end = line + length;
			const char *last = at ? memmem(at, (size_t)(end - at), ends[e], strlen(ends[e])) : NULL;
			if (last) {
				last += strlen(ends[e]);
				last += last < end && *last == ')';
				one_line(out->trap, sizeof out->trap, at, (size_t)(last - at));
			}
		}
}

/* The line that says most: the first with FAIL or ":E:" (Check's failure) or "error", else the last one. */
static void read_log(const char *log, struct fault_run *out)
{
	static const char *const marks[] = {"FAIL", ":F:", ":E:", "error:", NULL};
	char *text = NULL;
	size_t size = 0, best_rank = 9;

	if (plumb_file_read(log, 1 << 26, &text, &size, NULL) != PLUMB_OK)
		return;
	for (const char *line = text, *end; line < text + size; line = end + 1) {
		end = memchr(line, '\n', (size_t)(text + size - line));
		end = end ? end : text + size;
		size_t length = (size_t)(end - line), rank = 4;
		if (length == 0)
			continue;
		find_trap(out, line, length);
		if (length > 7 && memcmp(line, "digest ", 7) == 0) {
			const char *value = line + 7;
			while (value < end && *value == ' ')
				value++;
			one_line(out->digest, sizeof out->digest, value, (size_t)(end - value));
		}
		for (size_t m = 0; marks[m]; m++)
			if (memmem(line, length, marks[m], strlen(marks[m])) && rank > m)
				rank = m;
		if (rank < best_rank || rank == 4) {
			if (rank == 4 && best_rank < 4)
				continue;
			best_rank = rank;
			one_line(out->line, sizeof out->line, line, length);
		}
	}
	free(text);
}

void faults_run(const char *folder, const char *command, double limit, const char *log, struct fault_run *out)
{
	const struct timespec tick = {.tv_nsec = 3000000};
	double start = progress_now();
	struct rusage used = {.ru_maxrss = 0};
	int how = 0;
	pid_t got, pid;

	*out = (struct fault_run){.status = -1};
	fflush(NULL);
	pid = fork();
	if (pid == 0)
		child(folder, command, limit, log);
	if (pid < 0) {
		out->status = 126;
		snprintf(out->line, sizeof out->line, "cannot start a process: %s", strerror(errno));
		return;
	}
	setpgid(pid, pid);
	while ((got = wait4(pid, &how, WNOHANG, &used)) == 0 || (got < 0 && errno == EINTR)) {
		if (progress_now() - start > IDLE + SLOWER * limit) {
			kill(-pid, SIGKILL);
			wait4(pid, &how, 0, &used);
			out->status = -2;
			break;
		}
		nanosleep(&tick, NULL);
	}
	kill(-pid, SIGKILL); /* what it may have left running */
	out->seconds = progress_now() - start;
	out->processor = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
	                 1e-6 * (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec);
	if (out->status != -2)
		out->status = WIFEXITED(how) ? WEXITSTATUS(how) : -1;
	out->signal = WIFSIGNALED(how) ? WTERMSIG(how) : 0;
	read_log(log, out);
	if (out->status == -2)
		snprintf(out->line, sizeof out->line, "hangs: no end after %.0f s", out->seconds);
	if (out->status == -1) {
		const char *name = sigabbrev_np(out->signal);
		snprintf(out->line, sizeof out->line, "crashed (SIG%s)", name ? name : "?");
	}
}
