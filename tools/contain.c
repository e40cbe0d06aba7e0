/* SPDX-License-Identifier: MIT */
#include "tools/contain.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "opt/trap.h"
#include "tools/output.h"
#include "tools/progress.h"

/* Shared by the two processes. */
struct shared {
	struct plumb_user_mark mark;
	int32_t finished;  /* work has returned */
	int32_t status;    /* what it returned */
	int32_t signal;    /* that killed the child, seen by its handler */
	uintptr_t address; /* of the fault */
	char trap[256];    /* what was touched there, if it is known */
	int32_t line;      /* of output that grows, see output_line */
};

static struct shared *shared; /* for the handler */

static const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};
enum { FAULTS = sizeof faults / sizeof faults[0], STACK = 65536, NEAR_NULL = 65536, COPY_TICKS = 20, CHILDREN = 256 };

/* Note the address, and which operand lies beside it; then the fault happens again, with its default end. */
static void fault(int number, siginfo_t *info, void *context)
{
	if (!shared->signal) {
		shared->signal = number;
		shared->address = (uintptr_t)info->si_addr;
		if (number == SIGSEGV)
			plumb_trap_tell(info->si_addr, plumb_trap_is_write(context), shared->trap, sizeof shared->trap);
	}
	signal(number, SIG_DFL);
	if (info->si_code <= 0) /* sent by somebody: it does not happen again by itself */
		raise(number);
}

/* Descriptor 1 becomes standard error, where what a kernel prints belongs, by whichever way; our own stdout goes on to where
 * it went. Without descriptors for that everything stays as it is. */
static void divert(void)
{
	int ours = fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, 3);
	FILE *f = ours >= 0 ? fdopen(ours, "w") : NULL;

	if (!f || dup2(STDERR_FILENO, STDOUT_FILENO) < 0) {
		if (f)
			fclose(f);
		return;
	}
	plumb_user_output(stdout);
	stdout = f;
}

static _Noreturn void child(int (*work)(void *, struct plumb_user_mark *), void *self, const sigset_t *before, pid_t parent)
{
	static unsigned char stack[STACK]; /* a stack that has overflown is no place for a handler */
	const stack_t other = {.ss_sp = stack, .ss_size = sizeof stack};
	struct sigaction action = {.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK};

	sigprocmask(SIG_SETMASK, before, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent)
		_exit(PLUMB_BAD_INPUT);
	sigemptyset(&action.sa_mask);
	sigaltstack(&other, NULL);
	for (int i = 0; i < FAULTS; i++)
		sigaction(faults[i], &action, NULL);
	divert();
	shared->status = output_end(work(self, &shared->mark));
	shared->finished = 1;
	exit(shared->status);
}

/* Wait for the child's end; kill it when one call takes longer than timeout. Returns whether it was killed. */
static bool watch(pid_t pid, int64_t timeout, int *how)
{
	const struct timespec tick = {.tv_nsec = 200000000};
	sigset_t ended;
	uint64_t calls = 0;
	double since = progress_now();
	bool killed = false;
	pid_t got;

	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	while ((got = waitpid(pid, how, WNOHANG)) == 0 || (got < 0 && errno == EINTR)) {
		const volatile struct plumb_user_mark *m = &shared->mark;
		if (m->calls != calls || !m->under_way) {
			calls = m->calls;
			since = progress_now();
		}
		if (timeout > 0 && !killed && progress_now() - since > (double)timeout) {
			killed = true;
			kill(pid, SIGKILL);
		}
		sigtimedwait(&ended, NULL, &tick);
	}
	return killed;
}

/* Processes whose parent this one is: at most CHILDREN of them. */
static int children(pid_t found[CHILDREN])
{
	DIR *proc = opendir("/proc");
	const struct dirent *entry;
	int count = 0;

	while (proc && count < CHILDREN && (entry = readdir(proc))) {
		char path[64], stat[512];
		const long pid = strtol(entry->d_name, NULL, 10);
		const char *end; /* of the name, which may hold anything */
		snprintf(path, sizeof path, "/proc/%ld/stat", pid);
		FILE *f = pid > 0 ? fopen(path, "re") : NULL;
		size_t n = f ? fread(stat, 1, sizeof stat - 1, f) : 0;
		if (f)
			fclose(f);
		stat[n] = '\0';
		if ((end = strrchr(stat, ')')) && strlen(end) > 4 && strtol(end + 4, NULL, 10) == getpid())
			found[count++] = (pid_t)pid;
	}
	if (proc)
		closedir(proc);
	return count;
}

/* What a kernel has forked and left behind came to this process when its own ended, and ends too: it would hold a
 * processor, or the files that it has open. before: children that were there already. */
static void end_orphans(const pid_t before[CHILDREN], int old)
{
	pid_t now_there[CHILDREN];

	for (int round = 0, ended = old < CHILDREN; ended && round < CHILDREN; round++) {
		int n = children(now_there);
		ended = 0;
		for (int i = 0; i < n; i++) {
			bool known = false;
			for (int k = 0; k < old; k++)
				known = known || before[k] == now_there[i];
			if (known || kill(now_there[i], SIGKILL) != 0)
				continue;
			ended += waitpid(now_there[i], NULL, 0) > 0;
		}
	}
}

/* Whether somebody wants the command to end. */
static bool is_stop(int number)
{
	return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGQUIT || number == SIGPIPE;
}

/* What happened to the child. */
static int judge(int how, bool killed, int64_t timeout, struct plumb_error *failure)
{
	struct plumb_user_mark *m = &shared->mark;
	/* a kernel that writes where it likes may have written here */
	shared->trap[sizeof shared->trap - 1] = '\0';
	m->phase[sizeof m->phase - 1] = m->ops[sizeof m->ops - 1] = m->path[sizeof m->path - 1] = '\0';
	const bool loads = m->under_way && !m->ops[0] && strcmp(m->phase, "loading") == 0;
	/* a file that cannot even be loaded is bad input, and nothing of it has been compared */
	const int status = m->path[0] && !loads ? PLUMB_MISMATCH : PLUMB_BAD_INPUT;
	char where[700], last[600], at[48] = "", hint[300] = "";

	if (m->path[0])
		plumb_user_mark_show(m, last, sizeof last);
	if (!m->path[0])
		snprintf(where, sizeof where, "plumb");
	else if (m->under_way)
		snprintf(where, sizeof where, "%s", last);
	else /* memory that the kernel has overwritten, or a defect of plumb */
		snprintf(where, sizeof where, "plumb itself, after %s,", last);
	if (shared->signal && shared->signal != SIGFPE)
		snprintf(at, sizeof at, " at address 0x%llx", (unsigned long long)shared->address);
	if (killed)
		return plumb_fail(
			failure, status, "%s hangs: no result after %lld seconds (--timeout)", where, (long long)timeout);
	if (WIFSIGNALED(how)) {
		const char *name = sigabbrev_np(WTERMSIG(how));
		bool same = WTERMSIG(how) == shared->signal;
		if (same && shared->trap[0])
			snprintf(hint, sizeof hint, ": %s", shared->trap);
		else if (same && shared->signal == SIGSEGV && shared->address < NEAR_NULL && m->under_way && m->ops[0])
			snprintf(hint, sizeof hint,
				": a null pointer, as look-ups give for a name that the call has not; 'plumb list %.*s' "
				"has the names",
				(int)strcspn(m->ops, "+"), m->ops);
		return plumb_fail(
			failure, status, "%s crashed (SIG%s%s)%s", where, name ? name : "?", same ? at : "", hint);
	}
	return plumb_fail(failure, status, "%s called exit(%d)", where, WEXITSTATUS(how));
}

static void release(void)
{
	output_line_at(NULL);
	munmap(shared, sizeof *shared);
	shared = NULL;
}

int contain(int (*work)(void *, struct plumb_user_mark *), void *self, int64_t timeout, struct plumb_error *failure)
{
	sigset_t ended, before;
	pid_t parent = getpid(), pid, before_it[CHILDREN];
	int how = 0;

	failure->text[0] = '\0';
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (shared == MAP_FAILED)
		return plumb_fail(failure, PLUMB_BAD_INPUT, "out of memory for a child process");
	fflush(NULL);
	output_line_at(&shared->line);
	sigemptyset(&ended);
	sigaddset(&ended, SIGCHLD);
	sigprocmask(SIG_BLOCK, &ended, &before);
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	const int old = children(before_it);
	pid = fork();
	if (pid == 0)
		child(work, self, &before, parent);
	if (pid < 0) {
		int reason = errno;
		sigprocmask(SIG_SETMASK, &before, NULL);
		release();
		return plumb_fail(
			failure, PLUMB_BAD_INPUT, "cannot start a process for the users' kernels: %s", strerror(reason));
	}
	bool killed = watch(pid, timeout, &how);
	sigprocmask(SIG_SETMASK, &before, NULL);
	/* as without a child; but who raises it in a call is the kernel: a stop from outside ends this process too */
	if (!killed && WIFSIGNALED(how) && is_stop(WTERMSIG(how)) && !shared->mark.under_way) {
		end_orphans(before_it, old);
		signal(WTERMSIG(how), SIG_DFL);
		raise(WTERMSIG(how));
	}
	bool as_returned = !killed && WIFEXITED(how) && shared->finished && WEXITSTATUS(how) == shared->status;
	int status = as_returned ? shared->status : judge(how, killed, timeout, failure);
	for (int i = 0; as_returned && i < COPY_TICKS && shared->mark.forks && !shared->mark.copied; i++)
		nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); /* a copy comes back a little later */
	if (as_returned && shared->mark.copied)
		status = plumb_fail(failure, PLUMB_MISMATCH, "a kernel of %s forked, and both processes returned",
			shared->mark.path[0] ? shared->mark.path : "a shared object");
	end_orphans(before_it, old);
	output_line_end(); /* of a child that did not come to it */
	release();
	return status;
}
