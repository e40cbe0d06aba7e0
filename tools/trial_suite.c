/* SPDX-License-Identifier: MIT */
#include "tools/trial_suite.h"

#include <errno.h>
#include <omp.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/contain.h"
#include "tools/progress.h"

enum { KERNEL_THREADS = 4 }; /* of OpenMP, where OMP_NUM_THREADS does not say */

/* Between the processes. */
struct slot {
	_Atomic int64_t current; /* the case under way; -1: none */
	uint64_t inputs;
	bool unsent; /* the report of a case that could not be sent: its kernel has closed the pipe */
	struct trial_report report;
	struct plumb_bound_result bounds[PLUMB_OP_COUNT];
};
struct board {
	_Atomic int64_t next; /* the first case that nobody has taken */
	_Atomic int stop;
	struct slot slot[];
};

_Static_assert(sizeof(struct trial_report) <= 4096, "a report goes through a pipe in one piece");

static void *shared(size_t bytes)
{
	void *m = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	return m == MAP_FAILED ? NULL : m;
}

/* ---- a process that runs cases ---- */

struct worker {
	const struct trial_suite *suite;
	struct board *board;
	struct slot *slot;
	int pipe;
};

static bool send_report(const struct worker *w, const struct trial_report *report)
{
	ssize_t n;
	do
		n = write(w->pipe, report, sizeof *report);
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof *report;
}

/* Cases until there are none, or the device is sick. */
static int run_cases(void *self, struct plumb_user_mark *mark)
{
	struct worker *w = self;
	const struct trial_suite *suite = w->suite;
	struct trial_devices devices = {NULL};
	struct trial_report report;
	bool sick = false;

	/* The cases are what runs side by side. A kernel has threads all the same: with one no race of them shows. */
	const int threads = getenv("OMP_NUM_THREADS") ? omp_get_max_threads() : KERNEL_THREADS;
	omp_set_num_threads(1);
	mark->path[0] = '\0';
	while (!sick && !atomic_load(&w->board->stop)) {
		int64_t i = atomic_fetch_add(&w->board->next, 1);
		if (i >= suite->items)
			break;
		const struct trial_item *item = &suite->item[i];
		const struct trial_candidate candidate = {.path = item->path,
			.exact = suite->exact,
			.within = suite->within,
			.race = suite->race,
			.gpu = suite->gpu,
			.threads = threads,
			.mark = mark,
			.inputs = &w->slot->inputs};
		bool plain = item->spec.class == trial_class(0);
		double start = progress_now();
		atomic_store(&w->slot->current, i);
		memset(&report, 0, sizeof report);
		report.index = i;
		trial_judge(&item->spec, &candidate, &devices, plain ? &w->slot->bounds[item->spec.op] : NULL, &report);
		report.seconds = progress_now() - start;
		sick = report.sick;
		if (report.status > PLUMB_MISMATCH || (suite->fail_fast && report.status != PLUMB_OK))
			atomic_store(&w->board->stop, 1);
		if (!send_report(w, &report)) {
			w->slot->report = report;
			w->slot->unsent = sick = true;
		}
		atomic_store(&w->slot->current, -1);
	}
	trial_devices_close(&devices);
	return PLUMB_OK;
}

/* Runs cases in a child, and in another when that one has died of one. */
static _Noreturn void supervise(struct worker *w)
{
	struct plumb_error failure;

	while (!atomic_load(&w->board->stop) && atomic_load(&w->board->next) < w->suite->items) {
		struct trial_report report = {.status = PLUMB_MISMATCH};
		int status = contain(run_cases, w, w->suite->timeout, &failure);
		report.index = atomic_load(&w->slot->current);
		atomic_store(&w->slot->current, -1);
		if (w->slot->unsent)
			send_report(w, &w->slot->report);
		w->slot->unsent = false;
		if (!failure.text[0])
			continue;
		report.inputs = w->slot->inputs;
		if (report.index < 0)
			report.status = status > PLUMB_MISMATCH ? status : PLUMB_BAD_INPUT;
		snprintf(report.text, sizeof report.text, "%s", failure.text);
		if (report.index < 0 || w->suite->fail_fast)
			atomic_store(&w->board->stop, 1);
		send_report(w, &report);
	}
	_exit(0);
}

/* ---- the process that gathers ---- */

struct gather {
	const struct trial_suite *suite;
	struct trial_report **report; /* (items) that came and wait for those before them */
	unsigned char *came;          /* (items) */
	int64_t next, ran;
	int status;
	int started; /* processes that have not ended */
	struct plumb_error *err;
};

static void take_report(struct gather *g, const struct trial_report *r)
{
	if (r->index < 0 || r->status > PLUMB_MISMATCH) { /* no verdict */
		if (g->status <= PLUMB_MISMATCH) {
			g->status = r->status;
			plumb_fail(g->err, (enum plumb_status)r->status, "%.700s", r->text);
		}
		return;
	}
	if (r->status == PLUMB_MISMATCH && g->status == PLUMB_OK)
		g->status = PLUMB_MISMATCH;
	if (g->came[r->index]) { /* its process died after it had told */
		if (r->status != PLUMB_OK && g->report[r->index])
			*g->report[r->index] = *r;
		return;
	}
	g->ran++;
	g->came[r->index] = 1;
	g->report[r->index] = trial_take(sizeof *r);
	*g->report[r->index] = *r;
}

/* Tell what is there up to the first gap; at the end, behind it too. */
static void tell(struct gather *g, bool all)
{
	for (; g->next < g->suite->items && (g->came[g->next] || all); g->next++)
		if (g->came[g->next]) {
			g->suite->done(g->suite->self, g->report[g->next]);
			free(g->report[g->next]);
			g->report[g->next] = NULL;
		}
}

static bool all_ended(struct gather *g)
{
	while (g->started > 0 && waitpid(-1, NULL, WNOHANG) > 0)
		g->started--;
	return g->started == 0;
}

/* Until all writers have gone, or all of ours: what a kernel has forked and left behind may keep the pipe open. */
static void listen(struct gather *g, int fd)
{
	struct trial_report report;
	struct pollfd wait = {.fd = fd, .events = POLLIN};

	for (bool ended = false;;) {
		int ready = poll(&wait, 1, ended ? 0 : 200);
		if (ready < 0 && errno != EINTR)
			break;
		if (ready > 0) {
			size_t got = 0;
			ssize_t n = 1;
			while (got < sizeof report && n > 0) {
				n = read(fd, (char *)&report + got, sizeof report - got);
				got += n > 0 ? (size_t)n : 0;
				n = n < 0 && errno == EINTR ? 1 : n;
			}
			if (got < sizeof report)
				break;
			take_report(g, &report);
			tell(g, false);
		} else if (ended) {
			break;
		} else {
			ended = all_ended(g);
		}
		g->suite->step(g->suite->self, g->ran);
	}
	tell(g, true);
}

static int start(const struct trial_suite *suite, struct board *board, int ends[2], int *started, struct plumb_error *err)
{
	pid_t parent = getpid();

	fflush(NULL);
	for (int i = 0; i < suite->jobs && i < suite->items; i++) {
		struct worker w = {suite, board, &board->slot[i], ends[1]};
		atomic_store(&board->slot[i].current, -1);
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			plumb_bound_begin(&board->slot[i].bounds[op], (enum plumb_op)op);
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGTERM);
			if (getppid() != parent)
				_exit(PLUMB_BAD_INPUT);
			close(ends[0]);
			supervise(&w);
		}
		if (pid < 0 && i == 0)
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "cannot start a process for the cases: %s", strerror(errno));
		if (pid < 0)
			break; /* with fewer */
		++*started;
	}
	return PLUMB_OK;
}

int trial_suite_run(const struct trial_suite *suite, struct trial_sums *sums, struct plumb_error *err)
{
	size_t bytes = sizeof(struct board) + (size_t)suite->jobs * sizeof(struct slot);
	struct gather g = {.suite = suite, .status = PLUMB_OK, .err = err};
	struct board *board = shared(bytes);
	int ends[2] = {-1, -1}, status;

	g.report = calloc((size_t)suite->items + 1, sizeof(void *));
	g.came = calloc((size_t)suite->items + 1, 1);
	if (!board || !g.report || !g.came || pipe(ends) != 0) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %lld cases", (long long)suite->items);
	} else {
		status = start(suite, board, ends, &g.started, err);
		close(ends[1]);
		if (status == PLUMB_OK)
			listen(&g, ends[0]);
		close(ends[0]);
		for (; g.started > 0; g.started--)
			while (wait(NULL) < 0 && errno == EINTR)
				;
		status = status == PLUMB_OK ? g.status : status;
		if (status <= PLUMB_MISMATCH && g.ran < suite->items && !atomic_load(&board->stop))
			status = plumb_fail(err, PLUMB_BAD_INPUT,
				"%lld of %lld cases have no verdict: the processes that ran them were ended",
				(long long)(suite->items - g.ran), (long long)suite->items);
	}
	if (sums && board) {
		sums->ran = g.ran;
		for (int op = 0; op < PLUMB_OP_COUNT; op++)
			plumb_bound_begin(&sums->bounds[op], (enum plumb_op)op);
		for (int i = 0; i < suite->jobs && i < suite->items; i++)
			for (int op = 0; op < PLUMB_OP_COUNT; op++)
				for (int k = 0; k < plumb_ops[op].operands; k++)
					plumb_bound_merge(
						&sums->bounds[op].operand[k], &board->slot[i].bounds[op].operand[k]);
	}
	for (int64_t i = 0; g.report && i < suite->items; i++)
		free(g.report[i]);
	free(g.report);
	free(g.came);
	if (board)
		munmap(board, bytes);
	return status;
}

/* ---- what a shared object offers ---- */

struct offers {
	const char *path;
	struct answer {
		bool offered[PLUMB_OP_COUNT];
		struct plumb_error err;
	} * answer;
};

static int ask(void *self, struct plumb_user_mark *mark)
{
	struct offers *o = self;
	struct plumb_user *user = NULL;
	int status = plumb_user_create(mark, &user, &o->answer->err);

	if (status == PLUMB_OK)
		status = plumb_user_load(user, o->path, &o->answer->err);
	for (int op = 0; op < PLUMB_OP_COUNT && status == PLUMB_OK; op++)
		o->answer->offered[op] = plumb_user_offers(user, o->path, plumb_ops[op].name);
	plumb_user_destroy(user);
	return status;
}

int trial_suite_offers(const char *path, bool offered[PLUMB_OP_COUNT], struct plumb_error *err)
{
	struct offers o = {path, shared(sizeof *o.answer)};
	int status;

	if (!o.answer)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory");
	status = contain(ask, &o, CONTAIN_TIMEOUT, err);
	if (err->text[0])
		status = PLUMB_BAD_INPUT;
	else if (status != PLUMB_OK)
		*err = o.answer->err;
	memcpy(offered, o.answer->offered, sizeof o.answer->offered);
	munmap(o.answer, sizeof *o.answer);
	return status;
}
