/* SPDX-License-Identifier: MIT */
/* The greedy token: many blocks raise one cell by an integer maximum, which knows no order of arrival. */
#include "kernels/lm_head.h"

#include "kernels/reduce.h"

typedef unsigned long long key_cell; /* the 64-bit type of the atomics */

enum {
	ARGMAX_THREADS = 512,
	ARGMAX_WARPS = ARGMAX_THREADS / 32,
	ARGMAX_EACH = 4, /* logits a thread, all loads in flight: 122 blocks at the released vocabulary */
};

static __device__ __forceinline__ key_cell logit_key(float logit, int64_t index)
{
	const uint32_t bits = __float_as_uint(logit);
	const uint32_t magnitude = bits & 0x7fffffffu;

	if (magnitude > 0x7f800000u)
		return 0;
	/* ascending with the value: negatives reversed, below the others; -0 is +0; -Inf is 0x007fffff, above 0 */
	const uint32_t order = bits > 0x80000000u ? ~bits : magnitude | 0x80000000u;
	return static_cast<key_cell>(order) << 32 | ~static_cast<uint32_t>(index);
}

/* The last block to arrive reads the winner and leaves the cell and the counter zero. */
static __global__ void __launch_bounds__(ARGMAX_THREADS)
	argmax_kernel(const float *logits, int64_t vocab, struct plumb_argmax_cell *cell, int32_t *token)
{
	PLUMB_SHARED(key_cell, of_warp, ARGMAX_WARPS);
	const int64_t first = blockIdx.x * static_cast<int64_t>(ARGMAX_THREADS * ARGMAX_EACH) + threadIdx.x;
	key_cell *const key = reinterpret_cast<key_cell *>(&cell->key);
	float logit[ARGMAX_EACH];
	key_cell best = 0;

	plumb_grid_dependency_wait();
	plumb_grid_launch_dependents();
	PLUMB_UNROLL
	for (int j = 0; j < ARGMAX_EACH; j++) {
		const int64_t i = first + j * ARGMAX_THREADS;
		logit[j] = i < vocab ? logits[i] : __uint_as_float(0x7fc00000u);
	}
	PLUMB_UNROLL
	for (int j = 0; j < ARGMAX_EACH; j++)
		best = max(best, logit_key(logit[j], first + j * ARGMAX_THREADS));
	PLUMB_UNROLL
	for (int offset = 1; offset < 32; offset *= 2)
		best = max(best, __shfl_xor_sync(PLUMB_FULL_WARP, best, offset));
	if (threadIdx.x % 32 == 0)
		of_warp[threadIdx.x / 32] = best;
	__syncthreads();
	if (threadIdx.x != 0)
		return;
	for (int w = 1; w < ARGMAX_WARPS; w++)
		best = max(best, of_warp[w]);
	atomicMax(key, best);
	__threadfence();
	if (atomicAdd(&cell->arrived, 1u) + 1 != gridDim.x)
		return;
	__threadfence();
	best = atomicExch(key, static_cast<key_cell>(0));
	*token = best ? static_cast<int32_t>(~static_cast<uint32_t>(best)) : -1;
	cell->arrived = 0;
}

static unsigned blocks_of(int64_t count, int64_t each)
{
	return static_cast<unsigned>((count + each - 1) / each);
}

extern "C" int PLUMB_LAUNCHER(argmax)(
	const float *logits, int64_t vocab, struct plumb_argmax_cell *cell, int32_t *token, void *stream)
{
	return PLUMB_LAUNCH_DEPENDENT(argmax_kernel, blocks_of(vocab, ARGMAX_THREADS * ARGMAX_EACH), ARGMAX_THREADS, 0,
		stream, logits, vocab, cell, token);
}
