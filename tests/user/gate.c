/* SPDX-License-Identifier: MIT */
/* attn_gate as an outsider writes it, and everything that one can do wrong there: GATE_FAULT says what, GATE_FROM from
 * which position on (default 0). */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/plumb_kernel.h"

static int is_fault(const struct plumb_kernel_call *call, const char *name)
{
	const char *fault = getenv("GATE_FAULT"), *from = getenv("GATE_FROM");
	return fault && strcmp(fault, name) == 0 && call->position + call->T > (from ? atoll(from) : 0);
}

/* Deeper than any stack; the array keeps it from becoming a loop. */
static int recurse(int depth)
{
	volatile char room[4096];
	room[depth % 4096] = (char)depth;
	return depth < 0 ? 0 : recurse(depth + 1) + room[depth % 4096];
}

static int misbehave(const struct plumb_kernel_call *call, float *out, int64_t n)
{
	static unsigned calls;
	const struct plumb_kernel_operand *qg = plumb_operand(call, "qg");
	const volatile float *in = qg->data;
	volatile int zero = 0, seven = 7;
	int *volatile nowhere = (int *)(uintptr_t)16;

	if (is_fault(call, "wrong"))
		out[n - 1] *= 1.01f;
	if (is_fault(call, "ulp")) {
		uint32_t bits;
		memcpy(&bits, &out[n - 1], sizeof bits);
		bits++;
		memcpy(&out[n - 1], &bits, sizeof bits);
	}
	if (is_fault(call, "step")) { /* of bf16 */
		uint32_t bits;
		memcpy(&bits, &out[n - 1], sizeof bits);
		bits += 0x10000;
		memcpy(&out[n - 1], &bits, sizeof bits);
	}
	if (is_fault(call, "crash"))
		*nowhere = 1;
	if (is_fault(call, "divide"))
		return seven / zero;
	if (is_fault(call, "abort"))
		abort();
	if (is_fault(call, "exit"))
		exit(0);
	if (is_fault(call, "hang"))
		for (;;)
			pause();
	if (is_fault(call, "stack"))
		return recurse(1);
	if (is_fault(call, "says"))
		return plumb_say(call, "no kernel for %lld heads", (long long)plumb_dim(call, "Hq"));
	if (is_fault(call, "outside"))
		out[n] = 1.0f;
	if (is_fault(call, "before"))
		out[-2] = 1.0f;
	/* reads outside, of which no result follows */
	if (is_fault(call, "readafter"))
		(void)in[2 * n];
	if (is_fault(call, "readbefore"))
		(void)in[-1];
	if (is_fault(call, "readfar"))
		(void)in[2 * n + 500];
	if (is_fault(call, "readwork"))
		(void)((const volatile char *)call->workspace)[call->workspace_bytes];
	if (is_fault(call, "workafter"))
		((char *)call->workspace)[call->workspace_bytes] ^= 1;
	if (is_fault(call, "workbefore"))
		((char *)call->workspace)[-1] ^= 1;
	if (is_fault(call, "input"))
		((float *)qg->data)[1] = 0.0f;
	if (is_fault(call, "random") && calls++ % 3 == 2)
		out[0] += 1.0f;
	return 0;
}

static int attn_gate(const struct plumb_kernel_call *call)
{
	const float *o = plumb_f32(call, "o"), *qg = plumb_f32(call, "qg");
	float *out = plumb_f32(call, "out");
	int64_t heads = call->T * plumb_dim(call, "Hq"), Dh = plumb_dim(call, "Dh");
	int rounds = call->bf16 && !is_fault(call, "unrounded");
	int64_t left = is_fault(call, "unwritten") ? 1 : 0;

	for (int64_t h = 0; h < heads; h++)
		for (int64_t i = 0; i < Dh - (h == heads - 1 ? left : 0); i++) {
			float gate = 1.0f / (1.0f + expf(-qg[(2 * h + 1) * Dh + i]));
			out[h * Dh + i] = plumb_rne(call->bf16, o[h * Dh + i] * plumb_rne(rounds, gate));
		}
	return misbehave(call, out, heads * Dh);
}

/* For faults alone. */
static size_t workspace(const struct plumb_kernel_call *call)
{
	return 8 * (size_t)call->T;
}

static const struct plumb_kernel kernels[] = {
	{.ops = "attn_gate", .run = attn_gate, .workspace = workspace, .note = "plain C"}};
PLUMB_KERNELS("gate", "1.0", kernels)
