/* SPDX-License-Identifier: MIT */
/* What a user's code shares with its judge, and leaves as it was: the judge's own arithmetic runs in the same process, so a
 * rounding mode or a flush to zero that a kernel leaves behind would move the truth to where the kernel is. */
#include <fcntl.h>
#include <locale.h>
#include <omp.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "opt/user_private.h"

enum { STANDARD = 3, LOOKED_AT = 64 }; /* descriptors */

static FILE *kernels_output; /* NULL: they have ours */

void plumb_user_output(FILE *for_kernels)
{
	kernels_output = for_kernels;
}

/* Rounding, flushing of subnormals, traps; not the flags, which any operation sets. */
static uint64_t mode_of(const fenv_t *env)
{
#if defined(__x86_64__)
	return (uint64_t)env->__control_word << 32 | (env->__mxcsr & 0xFFC0u);
#elif defined(__aarch64__)
	return env->__fpcr;
#else
#error "the floating-point mode of this machine"
#endif
}

static uint64_t open_ones(int limit)
{
	uint64_t open = 0;
	for (int fd = 0; fd < limit; fd++)
		if (fcntl(fd, F_GETFD) >= 0)
			open |= UINT64_C(1) << fd;
	return open;
}

/* The mark of the calls that are under way, for the handler below. */
static struct plumb_user_mark *watched;

static void forked(void)
{
	if (watched && watched->under_way)
		watched->forks++;
}

void user_world_begin(struct user_world *w, struct plumb_user_mark *mark)
{
	static bool listens;

	watched = mark;
	if (!listens && pthread_atfork(NULL, forked, NULL) == 0)
		listens = true;
	*w = (struct user_world){.pid = getpid(),
		.folder = open(".", O_PATH | O_CLOEXEC | O_DIRECTORY),
		.errors = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, LOOKED_AT)};
	if (w->folder >= 0 && fstat(w->folder, &w->place) != 0) {
		close(w->folder);
		w->folder = -1;
	}
}

void user_world_end(struct user_world *w)
{
	if (w->folder >= 0)
		close(w->folder);
	if (w->errors >= 0)
		close(w->errors);
	w->folder = w->errors = -1;
	watched = NULL;
}

void user_world_enter(struct user_world *w, const fenv_t *mode, bool thorough, bool pool, int threads)
{
	w->pool = pool;
	w->threads = pool && threads ? omp_get_max_threads() : 0;
	if (w->threads)
		omp_set_num_threads(threads);
	w->looked_at = thorough ? LOOKED_AT : STANDARD;
	w->open = open_ones(w->looked_at);
	w->output = stdout;
	if (kernels_output)
		stdout = kernels_output; /* what a kernel prints is none of the report */
	fegetenv(&w->outside);
	if (mode)
		fesetenv(mode);
	fegetenv(&w->inside);
}

const char *user_world_leave(struct user_world *w, struct plumb_user_mark *mark, fenv_t *mode)
{
	fenv_t after;
	struct stat place;
	const char *said = NULL;

	fegetenv(&after);
	fesetenv(&w->outside);
	if (getpid() != w->pid) { /* fork() in a kernel, and both of them came back: there is one verdict */
		mark->copied = 1;
		_exit(0);
	}
	if (w->pool && omp_get_max_threads() > 1) {
		const fenv_t *outside = &w->outside;
#pragma omp parallel
		fesetenv(outside);
	}
	if (w->threads)
		omp_set_num_threads(w->threads);
	if (kernels_output) {
		fflush(kernels_output);
		stdout = w->output;
	}
	if (strcmp(setlocale(LC_ALL, NULL), "C") != 0)
		setlocale(LC_ALL, "C"); /* a decimal comma is no JSON */
	if (mode)
		*mode = after;
	else if (mode_of(&after) != mode_of(&w->inside)) {
		snprintf(w->text, sizeof w->text,
			"left another floating-point mode behind (0x%llx, before 0x%llx): rounding, flush to zero or traps",
			(unsigned long long)mode_of(&after), (unsigned long long)mode_of(&w->inside));
		said = w->text;
	}
	uint64_t closed = w->open & ~open_ones(w->looked_at);
	if (closed && !said) {
		snprintf(w->text, sizeof w->text, "closed descriptor %d, which was open before it was called",
			__builtin_ctzll(closed));
		said = w->text;
	}
	if (closed >> STDERR_FILENO & 1 && w->errors >= 0)
		dup2(w->errors, STDERR_FILENO); /* where it will be said */
	if (w->folder >= 0 &&
		(stat(".", &place) != 0 || place.st_ino != w->place.st_ino || place.st_dev != w->place.st_dev)) {
		if (fchdir(w->folder) != 0)
			w->folder = -1;
		if (!said)
			said = "left another working directory behind";
	}
	if (mark->copied && !said) {
		said = "forked, and both processes returned";
		mark->copied = 0;
	}
	return said;
}
