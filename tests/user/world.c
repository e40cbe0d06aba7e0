/* SPDX-License-Identifier: MIT */
/* hc_inject with the right values, and everything else that one can do to the process that judges it, or keep from one call to
 * the next: WORLD_FAULT says what. */
#include <dlfcn.h>
#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "core/plumb_kernel.h"

static const char here = 0;

static int is_fault(const char *name)
{
	const char *fault = getenv("WORLD_FAULT");
	return fault && strcmp(fault, name) == 0;
}

/* As constructors of files built with -Ofast do. */
static void flush_subnormals(void)
{
#if defined(__SSE__)
	_mm_setcsr(_mm_getcsr() | 0x8040);
#endif
}

static void end_at_once(void)
{
	_exit(0);
}

__attribute__((constructor)) static void loaded(void)
{
	Dl_info self;

	if (is_fault("fast"))
		flush_subnormals();
	/* stays loaded to the end, as many libraries of C++ do, and what it has registered runs then */
	if (is_fault("end") && dladdr(&here, &self) && dlopen(self.dli_fname, RTLD_NOW | RTLD_NODELETE))
		atexit(end_at_once);
}

static void compute(const struct plumb_kernel_call *call, float *out)
{
	const float *residual = plumb_f32(call, "residual"), *branch = plumb_f32(call, "branch");
	const float *injection = plumb_f32(call, "injection");
	const int64_t S = plumb_dim(call, "S"), D = plumb_dim(call, "D");

	for (int64_t i = 0; i < call->T * S * D; i++) {
		int64_t t = i / (S * D), s = i / D % S;
		float product = plumb_rne(call->bf16, branch[t * D + i % D] * injection[t * S + s]);
		out[i] = plumb_rne(call->bf16, residual[i] + product);
	}
}

/* The result of the first call of a size is that of all of them. */
static void compute_once(const struct plumb_kernel_call *call, float *out)
{
	static float kept[1 << 18];
	static size_t room;
	size_t bytes = (size_t)(call->T * plumb_dim(call, "S") * plumb_dim(call, "D")) * sizeof *kept;

	if (bytes > sizeof kept) {
		compute(call, out);
		return;
	}
	if (bytes != room) {
		compute(call, kept);
		room = bytes;
	}
	memcpy(out, kept, bytes);
}

static int inject(const struct plumb_kernel_call *call)
{
	static int calls;
	float *out = plumb_f32(call, "residual_out");

	calls++;
	if (is_fault("flush"))
		flush_subnormals();
	if (is_fault("kept"))
		compute_once(call, out);
	else
		compute(call, out);
	if (is_fault("round"))
		fesetround(FE_UPWARD);
	if (is_fault("folder") && chdir("/") != 0)
		return plumb_say(call, "no folder /");
	if (is_fault("close"))
		for (int fd = 3; fd < 64; fd++)
			close(fd);
	if (is_fault("stderr"))
		close(STDERR_FILENO);
	if (is_fault("stdout"))
		close(STDOUT_FILENO);
	if (is_fault("fork"))
		fork();
	if (is_fault("pipe"))
		raise(SIGPIPE);
	if (is_fault("stop") && calls == 3)
		kill(getppid(), SIGKILL);
	if (is_fault("daemon") && fork() == 0) {
		sleep(20);
		_exit(0);
	}
	if (is_fault("print")) {
		printf("pass\n");
		fflush(stdout);
		if (write(STDOUT_FILENO, "pass\n", 5) != 5)
			return plumb_say(call, "cannot write");
	}
	if (is_fault("bytes"))
		return plumb_say(call, "not \xff\xc0 UTF-8");
	if (is_fault("end"))
		out[0] += 1.0f;
	return 0;
}

static const struct plumb_kernel kernels[] = {{.ops = "hc_inject", .run = inject}};
PLUMB_KERNELS("world", "1.0", kernels)
