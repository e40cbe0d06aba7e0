/* SPDX-License-Identifier: MIT */
/* The simt device against the real one: every right kernel of simt_kernels.cu gives the same bits on both. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

#include "kernels/simt/simt.h"
#include "tests/simt_kernels.h"
#include "tests/support/suite.h"

enum { REPEATS = 20 };

static const struct {
	const char *name;
	int (*simt)(SIMT_ARGUMENTS), (*cuda)(SIMT_ARGUMENTS);
} kernels[] = {
#define ROW(name) {#name, plumb_simt_test_##name, plumb_cuda_test_##name},
	SIMT_RIGHT(ROW)};

static uint32_t in[SIMT_WORDS], want[SIMT_WORDS], got[SIMT_WORDS], scratch[SIMT_WORDS];

#define OK(call) ck_assert_msg((call) == cudaSuccess, "%s: %s", #call, cudaGetErrorString(cudaGetLastError()))

START_TEST(same_bits)
{
	struct plumb_simt simt = {.seed = 3};
	uint32_t *d_in, *d_out, *d_scratch;
	uint64_t x = 0x9e3779b97f4a7c15u;

	for (int i = 0; i < SIMT_WORDS; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		in[i] = (uint32_t)(x >> 63) << 31 | (119u + (uint32_t)(x >> 44) % 16u) << 23 |
		        ((uint32_t)(x >> 20) & 0x7fffffu);
	}
	memset(want, 0xcd, sizeof(want));
	memset(scratch, 0, sizeof(scratch));
	ck_assert_msg(kernels[_i].simt(in, want, scratch, &simt) == 0, "%s", simt.error);
	OK(cudaMalloc((void **)&d_in, sizeof(in)));
	OK(cudaMalloc((void **)&d_out, sizeof(got)));
	OK(cudaMalloc((void **)&d_scratch, sizeof(scratch)));
	OK(cudaMemcpy(d_in, in, sizeof(in), cudaMemcpyHostToDevice));
	for (int repeat = 0; repeat < REPEATS; repeat++) {
		OK(cudaMemset(d_out, 0xcd, sizeof(got)));
		OK(cudaMemset(d_scratch, 0, sizeof(scratch)));
		ck_assert_int_eq(kernels[_i].cuda(d_in, d_out, d_scratch, NULL), 0);
		OK(cudaDeviceSynchronize());
		OK(cudaMemcpy(got, d_out, sizeof(got), cudaMemcpyDeviceToHost));
		for (int i = 0; i < SIMT_WORDS; i++)
			ck_assert_msg(want[i] == got[i], "%s, word %d: simt 0x%08x, cuda 0x%08x", kernels[_i].name, i,
				want[i], got[i]);
	}
	cudaFree(d_in);
	cudaFree(d_out);
	cudaFree(d_scratch);
	plumb_simt_free(&simt);
}
END_TEST

/* A launch that cannot be made says so by its status, and leaves no error behind for the next one. */
START_TEST(launch_status)
{
	ck_assert_int_ne(plumb_cuda_test_block_too_large(NULL, NULL, NULL, NULL), 0);
	ck_assert_int_eq(cudaGetLastError(), cudaSuccess);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simt_cuda");
	TCase *tests = suite_part(suite, "simt_cuda", 300);
	const int rows = (int)(sizeof(kernels) / sizeof(kernels[0]));
	int devices = 0;

	if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {
		puts("skipped: no CUDA device");
		return SUITE_SKIPPED;
	}
	tcase_add_loop_test(tests, same_bits, 0, rows);
	tcase_add_test(tests, launch_status);
	printf("  %d kernels\n", rows);
	return suite_run_here(suite);
}
