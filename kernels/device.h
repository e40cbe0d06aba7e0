/* SPDX-License-Identifier: MIT */
/* clang-format off */
/* What a kernel file may use. Every kernels/NAME.cu includes this header and nothing of CUDA by itself; nvcc then
 * builds it for the GPU (device `cuda`), and g++ or clang++ builds the very same text for the CPU (device `simt`,
 * kernels/simt/), where it gives the same bits, under schedules chosen by a seed, and where misuse is reported instead
 * of undefined.
 *
 * An example, complete:
 *
 *	#include "kernels/device.h"
 *	#include "kernels/sum.h"	// PLUMB_DECLARE_LAUNCHER(sum, const float *x, float *y, int n, void *stream);
 *
 *	static __device__ float warp_sum(float v)		// always static: see Specifiers
 *	{
 *		for (int offset = 16; offset; offset /= 2)
 *			v += __shfl_xor_sync(0xffffffffu, v, offset);
 *		return v;
 *	}
 *
 *	template <int Threads>
 *	static __global__ void __launch_bounds__(Threads) sum_kernel(const float *x, float *y, int n)
 *	{
 *		PLUMB_SHARED(float, part, Threads / 32);	// __shared__ float part[Threads / 32], checked in simt
 *		float v = 0.0f;
 *		for (int i = threadIdx.x; i < n; i += Threads)
 *			v += x[blockIdx.x * (size_t)n + i];
 *		v = warp_sum(v);
 *		if (threadIdx.x % 32 == 0)
 *			part[threadIdx.x / 32] = v;
 *		__syncthreads();
 *		if (threadIdx.x == 0) {
 *			for (int w = 1; w < Threads / 32; w++)
 *				v += part[w];
 *			y[blockIdx.x] = v;
 *		}
 *	}
 *
 *	extern "C" int PLUMB_LAUNCHER(sum)(const float *x, float *y, int n, void *stream)
 *	{
 *		return PLUMB_LAUNCH(sum_kernel<128>, 8, 128, 0, stream, x, y, n);
 *	}
 *
 * Launching
 *	PLUMB_LAUNCHER(name): plumb_cuda_name, plumb_simt_name or plumb_race_name; declare it with launcher.h.
 *	PLUMB_LAUNCH(kernel, grid, block, shared_bytes, stream, args...): 0 or a status; arguments are converted
 *	to the kernel's parameter types. A kernel with a comma in its name goes in parentheses: (k<4, 128>).
 *	More than 48 KiB of dynamic shared memory is asked for by itself. simt refuses more than 99 KiB (GB10)
 *	unless told.
 *	PLUMB_LAUNCH_COOPERATIVE(...): the same; every block is resident, so plumb_grid_sync may be used.
 *	PLUMB_LAUNCH_DEPENDENT(...): the same; see Overlap.
 *	PLUMB_LAUNCH_CLUSTER(...): the same as PLUMB_LAUNCH_DEPENDENT, and the grid, up to 8 blocks of x, is one cluster.
 * Specifiers
 *	static __global__, static __device__, static __constant__ const: every build of a file is linked into
 *	one program, so nothing but the launchers may be visible outside it. __forceinline__ __launch_bounds__
 *	__restrict__ __host__
 * Indices
 *	threadIdx blockIdx blockDim gridDim (x, y, z), warpSize, dim3
 * Shared memory
 *	PLUMB_SHARED(type, name, count), PLUMB_SHARED_2D(type, name, rows, columns), PLUMB_DYNAMIC_SHARED(type,
 *	name): then name[i], name + i, &name[i]; 16-byte aligned; never initialised (poison in simt).
 *	PLUMB_SHARED_PTR(type) is the type of a parameter that takes one. PLUMB_AS(float4, pointer) views shared
 *	or global memory as another type; simt checks its alignment. LIMIT: raw pointers (&name[i], kernel
 *	parameters) are not checked for range.
 * Block
 *	__syncthreads __syncthreads_or __syncthreads_and __syncthreads_count
 * Warp
 *	__syncwarp(mask), __shfl_sync __shfl_up_sync __shfl_down_sync __shfl_xor_sync (int, unsigned, float,
 *	double, 64-bit; width), __ballot_sync __any_sync __all_sync, __reduce_max_sync __reduce_min_sync (unsigned
 *	only). Not offered: __activemask, __match_any_sync, legacy forms without mask.
 *	plumb_warp_sum(v): the 32 values of a full warp, added by xor shuffles 1, 2, 4, 8, 16; every lane gets the sum
 * Grid
 *	plumb_grid_sync(counter): counter is one unsigned in global memory, zero before its first use ever.
 * Cluster
 *	plumb_cluster_sync(): a barrier of all threads of the cluster; orders shared and global memory. No block of it
 *	may end before the others have read its shared memory. plumb_cluster_shared(name, block): the same array, in
 *	another block of the cluster, which must have passed a plumb_cluster_sync since it wrote it.
 * Atomics
 *	atomicAdd Max Min CAS Exch Or And Xor on int, unsigned, unsigned long long; also Max Min on long long,
 *	Sub on int and unsigned, Inc on unsigned. None on floats, on purpose: a sum must not depend on arrival.
 *	On shared memory: atomicAdd(&name[i], 1).
 * Fences
 *	__threadfence __threadfence_block. Who waits in a loop puts an atomic or __nanosleep in it, never a bare
 *	volatile load, so that simt can run the others meanwhile. "The last block to arrive adds up" is: all
 *	threads store, __syncthreads, and in one thread __threadfence, atomicAdd, __threadfence; then
 *	__syncthreads, load.
 * Loads and stores
 *	__ldg __ldcs __ldcg __stcs on any scalar or vector type; plumb_load_stream(p) for uint4 uint2 uint32_t
 *	float4 float2: read once, no L1 allocation, 256-byte L2 sectors; for what the host alone writes, since the
 *	compiler may put it before a wait. plumb_load_once(p) for uint4 uint2: the same for what an earlier launch wrote.
 *	plumb_prefetch(p): the line of global memory at p is brought near (L2); nothing is read, so nothing can
 *	be stale: allowed before plumb_grid_dependency_wait.
 * Copies
 *	plumb_copy_async(to, from): the uint4, uint2 or uint32_t at from, in global memory, goes to `to`, in shared memory,
 *	without a register. plumb_copy_commit() ends a group of the thread's copies; plumb_copy_wait<N>() waits until all its
 *	groups but the N youngest have come, and who waited may read them; another thread may after a barrier behind that.
 *	What does not change until the copy has come may be its source, nothing else. Before the wait simt has poison in
 *	`to`; it reports a thread that ends before its copies have come, and its race check takes both the request and the
 *	wait for a store.
 * Bits
 *	__popc __popcll __clz __clzll __ffs __ffsll __brev __byte_perm __float_as_uint __uint_as_float
 *	__float_as_int __int_as_float __double_as_longlong __longlong_as_double
 * Arithmetic
 *	+ - * / sqrtf fmaf fabsf (IEEE, no contraction, the same bits everywhere), __fmaf_rn __fadd_rn __fsub_rn
 *	__fmul_rn __fdiv_rn __fsqrt_rn, min and max on integers. Bits differ between devices: expf and all other
 *	library functions; fminf and fmaxf on NaN or on -0 against +0; a float to int conversion out of range or
 *	of NaN; the payload of a NaN.
 * Types
 *	float2 float4 int2 int4 uint2 uint4 and make_*
 * Overlap
 *	The kernel of PLUMB_LAUNCH_DEPENDENT may start before its predecessor, the launch before it on the stream, has
 *	ended: as soon as all blocks of that have called plumb_grid_launch_dependents() or ended. Every thread of it calls
 *	plumb_grid_dependency_wait() on every path, returns too (simt reports the one that does not): then the
 *	predecessor, and all before it, have ended. Until then it may read what the host alone writes (weights, tables,
 *	page tables, *position) and prefetch anything, and it writes nothing in global memory. One exception: where a
 *	launcher's header fixes the predecessor, and some block of that one calls plumb_grid_launch_dependents() only after
 *	its own wait, the launches before the predecessor have ended, so what it does not write itself may be read too.
 *	In simt launches never overlap; its race check reports what is too early (kernels/simt/race.h).
 *	plumb_grid_dependency_wait_plain(): the same wait where no load into registers has to stay before it, a
 *	register or two cheaper. */
/* clang-format on */
#ifndef PLUMB_KERNELS_DEVICE_H
#define PLUMB_KERNELS_DEVICE_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kernels/launcher.h"

#ifdef __CUDACC__

#include <cuda_runtime.h>

#define PLUMB_LAUNCHER(name) plumb_cuda_##name

#define PLUMB_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define PLUMB_SHARED_2D(type, name, rows, columns) __shared__ __align__(16) type name[rows][columns]
#define PLUMB_DYNAMIC_SHARED(type, name)                                                                                   \
	extern __shared__ __align__(16) unsigned char plumb_dynamic_shared[];                                              \
	type *const name = reinterpret_cast<type *>(plumb_dynamic_shared)
#define PLUMB_SHARED_PTR(type) type *
#define PLUMB_AS(type, pointer) plumb_as<type>(pointer)

template <typename To, typename From> static __device__ __forceinline__ To *plumb_as(From *pointer)
{
	return reinterpret_cast<To *>(pointer);
}

template <typename To, typename From> static __device__ __forceinline__ const To *plumb_as(const From *pointer)
{
	return reinterpret_cast<const To *>(pointer);
}

/* A global address is its own generic address. It is not converted: the compiler could then not fold what is added to it
 * into the instruction. */
static __device__ __forceinline__ uint4 plumb_load_stream(const uint4 *p)
{
	uint4 v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p));
	return v;
}

static __device__ __forceinline__ uint2 plumb_load_stream(const uint2 *p)
{
	uint2 v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];" : "=r"(v.x), "=r"(v.y) : "l"(p));
	return v;
}

static __device__ __forceinline__ uint32_t plumb_load_stream(const uint32_t *p)
{
	uint32_t v;
	asm volatile("ld.global.nc.L1::no_allocate.L2::256B.u32 %0, [%1];" : "=r"(v) : "l"(p));
	return v;
}

static __device__ __forceinline__ float4 plumb_load_stream(const float4 *p)
{
	const uint4 v = plumb_load_stream(reinterpret_cast<const uint4 *>(p));
	return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

static __device__ __forceinline__ float2 plumb_load_stream(const float2 *p)
{
	const uint2 v = plumb_load_stream(reinterpret_cast<const uint2 *>(p));
	return make_float2(__uint_as_float(v.x), __uint_as_float(v.y));
}

static __device__ __forceinline__ uint4 plumb_load_once(const uint4 *p)
{
	uint4 v;
	asm volatile("ld.global.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
		     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
		     : "l"(p)
		     : "memory");
	return v;
}

static __device__ __forceinline__ uint2 plumb_load_once(const uint2 *p)
{
	uint2 v;
	asm volatile("ld.global.L1::no_allocate.L2::256B.v2.u32 {%0, %1}, [%2];"
		     : "=r"(v.x), "=r"(v.y)
		     : "l"(p)
		     : "memory");
	return v;
}

static __device__ __forceinline__ void plumb_prefetch(const void *p)
{
	asm volatile("prefetch.global.L2 [%0];" : : "l"(p));
}

/* 16 bytes pass by the L1 cache; fewer cannot. */
static __device__ __forceinline__ void plumb_copy_async(uint4 *to, const uint4 *from)
{
	asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16;"
		     :
		     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
		     : "memory");
}

static __device__ __forceinline__ void plumb_copy_async(uint2 *to, const uint2 *from)
{
	asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 8;"
		     :
		     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
		     : "memory");
}

static __device__ __forceinline__ void plumb_copy_async(uint32_t *to, const uint32_t *from)
{
	asm volatile("cp.async.ca.shared.global.L2::256B [%0], [%1], 4;"
		     :
		     : "r"(static_cast<unsigned>(__cvta_generic_to_shared(to))), "l"(from)
		     : "memory");
}

static __device__ __forceinline__ void plumb_copy_commit(void)
{
	asm volatile("cp.async.commit_group;" : : : "memory");
}

template <int Groups> static __device__ __forceinline__ void plumb_copy_wait(void)
{
	asm volatile("cp.async.wait_group %0;" : : "n"(Groups) : "memory");
}

/* The five shuffles as one name: simt takes one turn for them. */
static __device__ __forceinline__ float plumb_warp_sum(float v)
{
#pragma unroll
	for (int offset = 1; offset < 32; offset *= 2)
		v = v + __shfl_xor_sync(0xffffffffu, v, offset);
	return v;
}

/* A barrier of all threads of all blocks of a cooperative launch. Block 0 adds what makes the top bit of the counter
 * flip once every other block has added 1, so the counter needs no reset between barriers or launches. */
static __device__ __forceinline__ void plumb_grid_sync(unsigned *counter)
{
	__syncthreads();
	if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
		const unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
		const bool first = blockIdx.x == 0 && blockIdx.y == 0 && blockIdx.z == 0;
		__threadfence();
		const unsigned old = atomicAdd(counter, first ? 0x80000000u - (blocks - 1) : 1u);
		while (((old ^ *reinterpret_cast<volatile unsigned *>(counter)) & 0x80000000u) == 0)
			;
		__threadfence();
	}
	__syncthreads();
}

static __device__ __forceinline__ void plumb_grid_dependency_wait_plain(void)
{
	cudaGridDependencySynchronize();
}

/* Every thread takes the branch, as blocks have no depth; the compiler does not know that. Without one it moves loads
 * from before the wait to behind it, where they no longer overlap the launch before but wait for its end. */
static __device__ __forceinline__ void plumb_grid_dependency_wait(void)
{
	if (threadIdx.z == 0)
		plumb_grid_dependency_wait_plain();
}

static __device__ __forceinline__ void plumb_grid_launch_dependents(void)
{
	cudaTriggerProgrammaticLaunchCompletion();
}

template <typename T> struct plumb_same {
	typedef T type;
};

static __device__ __forceinline__ void plumb_cluster_sync(void)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	__cluster_barrier_arrive();
	__cluster_barrier_wait();
#endif
}

template <typename T> static __device__ __forceinline__ T *plumb_cluster_shared(T *shared, unsigned block)
{
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
	return static_cast<T *>(__cluster_map_shared_rank(shared, block));
#else
	return shared;
#endif
}

enum plumb_cuda_how { PLUMB_CUDA_PLAIN, PLUMB_CUDA_COOPERATIVE, PLUMB_CUDA_DEPENDENT, PLUMB_CUDA_CLUSTER };

/* The launch returns its own status, so an older error of another launch is neither lost nor taken for this one's. */
template <typename... Parameters>
static int plumb_cuda_launch(enum plumb_cuda_how how, void (*kernel)(Parameters...), dim3 grid, dim3 block,
	size_t shared_bytes, void *stream, typename plumb_same<Parameters>::type... arguments)
{
	void *pointers[sizeof...(arguments) + 1] = {const_cast<void *>(static_cast<const void *>(&arguments))..., nullptr};
	const void *function = reinterpret_cast<const void *>(kernel);
	cudaLaunchAttribute attribute[2] = {};
	cudaLaunchConfig_t config = {};
	cudaError_t status = cudaSuccess;

	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared_bytes;
	config.stream = static_cast<cudaStream_t>(stream);
	config.attrs = attribute;
	config.numAttrs = how == PLUMB_CUDA_PLAIN ? 0 : how == PLUMB_CUDA_CLUSTER ? 2 : 1;
	if (how == PLUMB_CUDA_COOPERATIVE) {
		attribute[0].id = cudaLaunchAttributeCooperative;
		attribute[0].val.cooperative = 1;
	} else {
		attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
		attribute[0].val.programmaticStreamSerializationAllowed = 1;
		attribute[1].id = cudaLaunchAttributeClusterDimension;
		attribute[1].val.clusterDim.x = grid.x;
		attribute[1].val.clusterDim.y = 1;
		attribute[1].val.clusterDim.z = 1;
	}
	if (shared_bytes > 16 * 1024) /* 48 KiB need no leave; a kernel's own arrays count, and have up to 32 */
		status = cudaFuncSetAttribute(
			function, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes));
	if (status == cudaSuccess)
		status = cudaLaunchKernelExC(&config, function, pointers);
	if (status != cudaSuccess)
		(void)cudaGetLastError(); /* returned here, so not left behind for an unrelated call */
	return static_cast<int>(status);
}

/* The rest of the arguments is: stream, kernel arguments. */
#define PLUMB_LAUNCH(kernel, grid, block, shared_bytes, ...)                                                               \
	plumb_cuda_launch(PLUMB_CUDA_PLAIN, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_COOPERATIVE(kernel, grid, block, shared_bytes, ...)                                                   \
	plumb_cuda_launch(PLUMB_CUDA_COOPERATIVE, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_DEPENDENT(kernel, grid, block, shared_bytes, ...)                                                     \
	plumb_cuda_launch(PLUMB_CUDA_DEPENDENT, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_CLUSTER(kernel, grid, block, shared_bytes, ...)                                                       \
	plumb_cuda_launch(PLUMB_CUDA_CLUSTER, kernel, grid, block, shared_bytes, __VA_ARGS__)

#else

#include "kernels/simt/device_simt.h"

#endif
#endif
