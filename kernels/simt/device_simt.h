/* SPDX-License-Identifier: MIT */
/* kernels/device.h for a plain C++17 compiler. Included by it only; what it offers is listed there. */
#ifndef PLUMB_KERNELS_SIMT_DEVICE_SIMT_H
#define PLUMB_KERNELS_SIMT_DEVICE_SIMT_H

#include "kernels/simt/runtime.h"

/* Kernels of the simt build, of its race build and of nvcc's build are linked into one program under the same names:
 * hence the author's `static` in front of these. -Wmissing-declarations refuses a function without it,
 * tests/check_symbols.sh a template. */
#define __global__ __attribute__((unused))
#define __device__ __attribute__((unused))
#define __constant__
/* A restricted pointer would let this compiler move loads and stores over the calls that stand for barriers and
 * atomics, since those are not given the pointer; nvcc knows better. */
#define __restrict__
#define __host__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))

#ifdef PLUMB_SIMT_RACE
#define PLUMB_SIMT_STREAM(address, bytes) plumb_simt_race_stream(address, bytes)
#define PLUMB_LAUNCHER(name) plumb_race_##name
#define PLUMB_SIMT_BUILD plumb_simt_race_build
#else
#define PLUMB_SIMT_STREAM(address, bytes) (void)0
#define PLUMB_LAUNCHER(name) plumb_simt_##name
#define PLUMB_SIMT_BUILD plumb_simt_plain_build
#endif

struct dim3 {
	unsigned x, y, z;

	constexpr dim3(unsigned vx = 1, unsigned vy = 1, unsigned vz = 1) : x(vx), y(vy), z(vz)
	{
	}
};

#define threadIdx (plumb_simt_now->index)
#define blockIdx (plumb_simt_now->block->index)
#define blockDim (plumb_simt_now->block->block_dim)
#define gridDim (plumb_simt_now->block->grid_dim)

enum { warpSize = 32 };

/* Vector types, aligned as on the device. */
#define PLUMB_SIMT_VECTOR2(name, type)                                                                                     \
	struct alignas(2 * sizeof(type)) name {                                                                            \
		type x, y;                                                                                                 \
	};                                                                                                                 \
	static inline name make_##name(type x, type y)                                                                     \
	{                                                                                                                  \
		return {x, y};                                                                                             \
	}
#define PLUMB_SIMT_VECTOR4(name, type)                                                                                     \
	struct alignas(4 * sizeof(type)) name {                                                                            \
		type x, y, z, w;                                                                                           \
	};                                                                                                                 \
	static inline name make_##name(type x, type y, type z, type w)                                                     \
	{                                                                                                                  \
		return {x, y, z, w};                                                                                       \
	}
PLUMB_SIMT_VECTOR2(float2, float)
PLUMB_SIMT_VECTOR2(int2, int)
PLUMB_SIMT_VECTOR2(uint2, unsigned)
PLUMB_SIMT_VECTOR4(float4, float)
PLUMB_SIMT_VECTOR4(int4, int)
PLUMB_SIMT_VECTOR4(uint4, unsigned)

/* The bits of one scalar as another of the same size. */
template <typename To, typename From> static inline To plumb_simt_bits(From from)
{
	static_assert(sizeof(To) == sizeof(From), "a change of type, not of size");
	To to;

	memcpy(&to, &from, sizeof(to));
	return to;
}

/* Shared memory: a pointer that knows its array. */
inline namespace PLUMB_SIMT_BUILD
{
template <typename T> struct plumb_shared {
	T *at;
	T *begin;
	size_t count;
	const char *name;

	inline __attribute__((always_inline)) T &operator[](ptrdiff_t index) const
	{
		const ptrdiff_t place = (at - begin) + index;

		if (__builtin_expect(static_cast<size_t>(place) >= count, 0))
			plumb_simt_fail_index(name, place, count, sizeof(T));
		return begin[place];
	}
	T &operator*() const
	{
		return (*this)[0];
	}
	plumb_shared operator+(ptrdiff_t n) const
	{
		return {at + n, begin, count, name};
	}
	plumb_shared operator-(ptrdiff_t n) const
	{
		return {at - n, begin, count, name};
	}
	ptrdiff_t operator-(const plumb_shared &other) const
	{
		return at - other.at;
	}
	plumb_shared &operator+=(ptrdiff_t n)
	{
		at += n;
		return *this;
	}
	plumb_shared &operator-=(ptrdiff_t n)
	{
		at -= n;
		return *this;
	}
	plumb_shared &operator++()
	{
		++at;
		return *this;
	}
	bool operator==(const plumb_shared &other) const
	{
		return at == other.at;
	}
	bool operator!=(const plumb_shared &other) const
	{
		return at != other.at;
	}
	bool operator<(const plumb_shared &other) const
	{
		return at < other.at;
	}
	operator plumb_shared<const T>() const
	{
		return {at, begin, count, name};
	}
};

template <typename T> struct plumb_shared_2d {
	T *begin;
	size_t rows, columns;
	const char *name;

	inline __attribute__((always_inline)) plumb_shared<T> operator[](ptrdiff_t row) const
	{
		if (__builtin_expect(static_cast<size_t>(row) >= rows, 0))
			plumb_simt_fail_index(name, row, rows, columns * sizeof(T));
		return {begin + row * static_cast<ptrdiff_t>(columns), begin + row * static_cast<ptrdiff_t>(columns),
			columns, name};
	}
};
} // namespace PLUMB_SIMT_BUILD

#define PLUMB_SIMT_SHARED_ARRAY(type, name, count)                                                                         \
	static const struct plumb_simt_shared_array plumb_array_##name = {#name, sizeof(type) * (count), __LINE__};        \
	type *const plumb_begin_##name = static_cast<type *>(plumb_simt_shared(&plumb_array_##name))
#define PLUMB_SHARED(type, name, count)                                                                                    \
	PLUMB_SIMT_SHARED_ARRAY(type, name, count);                                                                        \
	const plumb_shared<type> name = {plumb_begin_##name, plumb_begin_##name, (count), #name}
#define PLUMB_SHARED_2D(type, name, rows, columns)                                                                         \
	PLUMB_SIMT_SHARED_ARRAY(type, name, (rows) * (columns));                                                           \
	const plumb_shared_2d<type> name = {plumb_begin_##name, (rows), (columns), #name}
#define PLUMB_DYNAMIC_SHARED(type, name)                                                                                   \
	type *const plumb_begin_##name = reinterpret_cast<type *>(plumb_simt_now->block->dynamic_shared);                  \
	const plumb_shared<type> name = {                                                                                  \
		plumb_begin_##name, plumb_begin_##name, plumb_simt_now->block->dynamic_bytes / sizeof(type), #name}
#define PLUMB_SHARED_PTR(type) plumb_shared<type>

template <typename T> static inline const T *plumb_simt_aligned(const T *pointer)
{
	if (__builtin_expect(reinterpret_cast<uintptr_t>(pointer) % alignof(T) != 0, 0))
		plumb_simt_fail_aligned(pointer, alignof(T));
	return pointer;
}

template <typename To, typename From> static inline To *plumb_as(From *pointer)
{
	plumb_simt_aligned(reinterpret_cast<const To *>(pointer));
	return reinterpret_cast<To *>(pointer);
}

template <typename To, typename From> static inline const To *plumb_as(const From *pointer)
{
	return plumb_simt_aligned(reinterpret_cast<const To *>(pointer));
}

/* The view starts at the pointer and ends with the last whole element of the array; before it there is nothing to
 * reach. */
template <typename To, typename From> static inline plumb_shared<To> plumb_as(plumb_shared<From> pointer)
{
	const ptrdiff_t place = pointer.at - pointer.begin;

	if (static_cast<size_t>(place) > pointer.count)
		plumb_simt_fail_index(pointer.name, place, pointer.count, sizeof(From));
	To *const at = reinterpret_cast<To *>(pointer.at);

	plumb_simt_aligned(at);
	return {at, at, (pointer.count - static_cast<size_t>(place)) * sizeof(From) / sizeof(To), pointer.name};
}
#define PLUMB_AS(type, pointer) plumb_as<type>(pointer)

/* Barriers and warp collectives. The last argument is never given: it is the caller's line, for the messages. */
static inline void __syncthreads(int line = __builtin_LINE())
{
	plumb_simt_barrier(PLUMB_SIMT_BARRIER, 0, line);
}

static inline int __syncthreads_or(int predicate, int line = __builtin_LINE())
{
	return plumb_simt_barrier(PLUMB_SIMT_BARRIER_OR, predicate, line);
}

static inline int __syncthreads_and(int predicate, int line = __builtin_LINE())
{
	return plumb_simt_barrier(PLUMB_SIMT_BARRIER_AND, predicate, line);
}

static inline int __syncthreads_count(int predicate, int line = __builtin_LINE())
{
	return plumb_simt_barrier(PLUMB_SIMT_BARRIER_COUNT, predicate, line);
}

static inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE())
{
	plumb_simt_collective(PLUMB_SIMT_SYNCWARP, mask, 0, 0, warpSize, line);
}

static inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return static_cast<unsigned>(plumb_simt_collective(PLUMB_SIMT_BALLOT, mask, predicate != 0, 0, warpSize, line));
}

static inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return static_cast<int>(plumb_simt_collective(PLUMB_SIMT_ANY, mask, predicate != 0, 0, warpSize, line));
}

static inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE())
{
	return static_cast<int>(plumb_simt_collective(PLUMB_SIMT_ALL, mask, predicate != 0, 0, warpSize, line));
}

static inline unsigned __reduce_max_sync(unsigned mask, unsigned value, int line = __builtin_LINE())
{
	return static_cast<unsigned>(plumb_simt_collective(PLUMB_SIMT_MAX, mask, value, 0, warpSize, line));
}

static inline unsigned __reduce_min_sync(unsigned mask, unsigned value, int line = __builtin_LINE())
{
	return static_cast<unsigned>(plumb_simt_collective(PLUMB_SIMT_MIN, mask, value, 0, warpSize, line));
}

static inline float plumb_warp_sum(float value, int line = __builtin_LINE())
{
	return plumb_simt_bits<float>(static_cast<uint32_t>(
		plumb_simt_collective(PLUMB_SIMT_SUM, 0xffffffffu, plumb_simt_bits<uint32_t>(value), 0, warpSize, line)));
}

#define PLUMB_SIMT_SHUFFLE(type, carrier, kind, suffix, by_type)                                                           \
	static inline type __shfl##suffix##_sync(                                                                          \
		unsigned mask, type value, by_type by, int width = warpSize, int line = __builtin_LINE())                  \
	{                                                                                                                  \
		return plumb_simt_bits<type>(static_cast<carrier>(plumb_simt_collective(                                   \
			kind, mask, plumb_simt_bits<carrier>(value), static_cast<int>(by), width, line)));                 \
	}
#define PLUMB_SIMT_SHUFFLES(type, carrier, kind)                                                                           \
	PLUMB_SIMT_SHUFFLE(type, carrier, kind, , int)                                                                     \
	PLUMB_SIMT_SHUFFLE(type, carrier, kind##_UP, _up, unsigned)                                                        \
	PLUMB_SIMT_SHUFFLE(type, carrier, kind##_DOWN, _down, unsigned)                                                    \
	PLUMB_SIMT_SHUFFLE(type, carrier, kind##_XOR, _xor, int)
PLUMB_SIMT_SHUFFLES(int, uint32_t, PLUMB_SIMT_SHFL)
PLUMB_SIMT_SHUFFLES(unsigned, uint32_t, PLUMB_SIMT_SHFL)
PLUMB_SIMT_SHUFFLES(float, uint32_t, PLUMB_SIMT_SHFL)
PLUMB_SIMT_SHUFFLES(double, uint64_t, PLUMB_SIMT_SHFL64)
PLUMB_SIMT_SHUFFLES(long, uint64_t, PLUMB_SIMT_SHFL64)
PLUMB_SIMT_SHUFFLES(unsigned long, uint64_t, PLUMB_SIMT_SHFL64)
PLUMB_SIMT_SHUFFLES(long long, uint64_t, PLUMB_SIMT_SHFL64)
PLUMB_SIMT_SHUFFLES(unsigned long long, uint64_t, PLUMB_SIMT_SHFL64)

static inline void plumb_grid_sync(unsigned *counter, int line = __builtin_LINE())
{
	plumb_simt_grid_barrier(counter, line);
}

static inline void plumb_grid_dependency_wait(void)
{
	plumb_simt_dependency_wait();
}

static inline void plumb_grid_dependency_wait_plain(void)
{
	plumb_simt_dependency_wait();
}

static inline void plumb_prefetch(const void *)
{
}

template <typename T> static inline void plumb_copy_async(plumb_shared<T> to, const T *from, int line = __builtin_LINE())
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "uint32_t, uint2 or uint4");
	const T value = *plumb_simt_aligned(from);

	plumb_simt_copy(&*to, &value, sizeof(T), line);
}

static inline void plumb_copy_commit(void)
{
	plumb_simt_copy_commit();
}

template <int Groups> static inline void plumb_copy_wait(void)
{
	static_assert(Groups >= 0, "a number of groups");
	plumb_simt_copy_wait(Groups);
}

static inline void plumb_grid_launch_dependents(void)
{
#ifdef PLUMB_SIMT_RACE
	plumb_simt_dependents();
#endif
}

static inline void plumb_cluster_sync(int line = __builtin_LINE())
{
	unsigned counter = 0;
	plumb_simt_grid_barrier(&counter, line);
}

template <typename T> static inline plumb_shared<T> plumb_cluster_shared(plumb_shared<T> shared, unsigned block)
{
	T *const begin = static_cast<T *>(plumb_simt_shared_of(shared.begin, block));

	return {begin + (shared.at - shared.begin), begin, shared.count, shared.name};
}

static inline void __threadfence(int line = __builtin_LINE())
{
	plumb_simt_give_way(PLUMB_SIMT_AT_FENCE, line);
}

static inline void __threadfence_block(int line = __builtin_LINE())
{
	plumb_simt_give_way(PLUMB_SIMT_AT_BLOCK_FENCE, line);
}

static inline void __nanosleep(unsigned, int line = __builtin_LINE())
{
	plumb_simt_give_way(PLUMB_SIMT_AT_SLEEP, line);
}

/* Atomics: a plain read and write, since fibers only take turns at calls; others may come in just before. */
#ifdef PLUMB_SIMT_RACE
#define PLUMB_SIMT_ATOMIC_ORDER(address) plumb_simt_race_atomic(address)
#define PLUMB_SIMT_UNSEEN __attribute__((no_sanitize("thread"), noinline)) /* its load and store are no data race */
#else
#define PLUMB_SIMT_ATOMIC_ORDER(address) (void)0
#define PLUMB_SIMT_UNSEEN
#endif
#define PLUMB_SIMT_ATOMIC(name, type, expression)                                                                          \
	PLUMB_SIMT_UNSEEN static inline type name(type *address, type operand, int line = __builtin_LINE())                \
	{                                                                                                                  \
		plumb_simt_give_way(PLUMB_SIMT_AT_ATOMIC, line);                                                           \
		PLUMB_SIMT_ATOMIC_ORDER(address);                                                                          \
		const type old = *address;                                                                                 \
                                                                                                                           \
		*address = (expression);                                                                                   \
		return old;                                                                                                \
	}
#define PLUMB_SIMT_ATOMIC_BITS(type)                                                                                       \
	PLUMB_SIMT_ATOMIC(atomicExch, type, operand)                                                                       \
	PLUMB_SIMT_ATOMIC(atomicOr, type, old | operand)                                                                   \
	PLUMB_SIMT_ATOMIC(atomicAnd, type, old &operand)                                                                   \
	PLUMB_SIMT_ATOMIC(atomicXor, type, old ^ operand)                                                                  \
	PLUMB_SIMT_UNSEEN static inline type atomicCAS(                                                                    \
		type *address, type compare, type value, int line = __builtin_LINE())                                      \
	{                                                                                                                  \
		plumb_simt_give_way(PLUMB_SIMT_AT_ATOMIC, line);                                                           \
		PLUMB_SIMT_ATOMIC_ORDER(address);                                                                          \
		const type old = *address;                                                                                 \
                                                                                                                           \
		if (old == compare)                                                                                        \
			*address = value;                                                                                  \
		return old;                                                                                                \
	}
#define PLUMB_SIMT_ATOMIC_ORDERED(type)                                                                                    \
	PLUMB_SIMT_ATOMIC(atomicMax, type, old > operand ? old : operand)                                                  \
	PLUMB_SIMT_ATOMIC(atomicMin, type, old < operand ? old : operand)
PLUMB_SIMT_ATOMIC_BITS(int)
PLUMB_SIMT_ATOMIC_BITS(unsigned)
PLUMB_SIMT_ATOMIC_BITS(unsigned long long)
PLUMB_SIMT_ATOMIC_ORDERED(int)
PLUMB_SIMT_ATOMIC_ORDERED(unsigned)
PLUMB_SIMT_ATOMIC_ORDERED(long long)
PLUMB_SIMT_ATOMIC_ORDERED(unsigned long long)
/* Sums wrap, as on the device; a signed one is made in unsigned arithmetic, where that is defined. */
PLUMB_SIMT_ATOMIC(atomicAdd, int, static_cast<int>(static_cast<unsigned>(old) + static_cast<unsigned>(operand)))
PLUMB_SIMT_ATOMIC(atomicAdd, unsigned, old + operand)
PLUMB_SIMT_ATOMIC(atomicAdd, unsigned long long, old + operand)
PLUMB_SIMT_ATOMIC(atomicSub, int, static_cast<int>(static_cast<unsigned>(old) - static_cast<unsigned>(operand)))
PLUMB_SIMT_ATOMIC(atomicSub, unsigned, old - operand)
PLUMB_SIMT_ATOMIC(atomicInc, unsigned, old >= operand ? 0u : old + 1u)
float atomicAdd(float *, float) = delete;
double atomicAdd(double *, double) = delete;

/* Loads and stores with a cache hint. */
template <typename T> static inline T __ldg(const T *p)
{
	return *plumb_simt_aligned(p);
}

template <typename T> static inline T __ldcs(const T *p)
{
	return *plumb_simt_aligned(p);
}

template <typename T> static inline T __ldcg(const T *p)
{
	return *plumb_simt_aligned(p);
}

template <typename T> static inline T plumb_load_stream(const T *p)
{
	static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "uint32_t, uint2, uint4, float2 or float4");
	PLUMB_SIMT_STREAM(p, sizeof(T));
	return *plumb_simt_aligned(p);
}

template <typename T> static inline T plumb_load_once(const T *p)
{
	static_assert(sizeof(T) == 8 || sizeof(T) == 16, "uint2 or uint4");
	return *plumb_simt_aligned(p);
}

template <typename T> static inline void __stcs(T *p, T value)
{
	plumb_simt_aligned(p);
	*p = value;
}

/* Bits. */
static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}

static inline int __popcll(unsigned long long v)
{
	return __builtin_popcountll(v);
}

static inline int __clz(int v)
{
	return v ? __builtin_clz(static_cast<unsigned>(v)) : 32;
}

static inline int __clzll(long long v)
{
	return v ? __builtin_clzll(static_cast<unsigned long long>(v)) : 64;
}

static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}

static inline int __ffsll(long long v)
{
	return __builtin_ffsll(v);
}

static inline unsigned __brev(unsigned v)
{
	v = (v >> 1 & 0x55555555u) | (v & 0x55555555u) << 1;
	v = (v >> 2 & 0x33333333u) | (v & 0x33333333u) << 2;
	v = (v >> 4 & 0x0f0f0f0fu) | (v & 0x0f0f0f0fu) << 4;
	return __builtin_bswap32(v);
}

/* Byte i of the result is that byte of y:x which the low three bits of the selector's nibble i say. */
static inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector)
{
	const uint64_t bytes = static_cast<uint64_t>(y) << 32 | x;
	unsigned result = 0;

	for (unsigned i = 0; i < 4; i++)
		result |= (static_cast<unsigned>(bytes >> (8 * (selector >> (4 * i) & 7u))) & 0xffu) << (8 * i);
	return result;
}

static inline unsigned __float_as_uint(float v)
{
	return plumb_simt_bits<unsigned>(v);
}

static inline float __uint_as_float(unsigned v)
{
	return plumb_simt_bits<float>(v);
}

static inline int __float_as_int(float v)
{
	return plumb_simt_bits<int>(v);
}

static inline float __int_as_float(int v)
{
	return plumb_simt_bits<float>(v);
}

static inline long long __double_as_longlong(double v)
{
	return plumb_simt_bits<long long>(v);
}

static inline double __longlong_as_double(long long v)
{
	return plumb_simt_bits<double>(v);
}

/* Arithmetic, rounded to nearest even. */
static inline float __fmaf_rn(float a, float b, float c)
{
	return __builtin_fmaf(a, b, c);
}

static inline float __fadd_rn(float a, float b)
{
	return a + b;
}

static inline float __fsub_rn(float a, float b)
{
	return a - b;
}

static inline float __fmul_rn(float a, float b)
{
	return a * b;
}

static inline float __fdiv_rn(float a, float b)
{
	return a / b;
}

static inline float __fsqrt_rn(float a)
{
	return __builtin_sqrtf(a);
}

#define PLUMB_SIMT_EXTREMES(type)                                                                                          \
	static inline type min(type a, type b)                                                                             \
	{                                                                                                                  \
		return b < a ? b : a;                                                                                      \
	}                                                                                                                  \
	static inline type max(type a, type b)                                                                             \
	{                                                                                                                  \
		return a < b ? b : a;                                                                                      \
	}
PLUMB_SIMT_EXTREMES(int)
PLUMB_SIMT_EXTREMES(unsigned)
PLUMB_SIMT_EXTREMES(long)
PLUMB_SIMT_EXTREMES(unsigned long)
PLUMB_SIMT_EXTREMES(long long)
PLUMB_SIMT_EXTREMES(unsigned long long)

/* Launch. */
enum plumb_simt_how { PLUMB_SIMT_PLAIN, PLUMB_SIMT_COOPERATIVE, PLUMB_SIMT_DEPENDENT, PLUMB_SIMT_CLUSTER };

template <typename T> struct plumb_same {
	typedef T type;
};

template <typename... Parameters>
static int plumb_simt_start(enum plumb_simt_how how, const char *name, void (*kernel)(Parameters...), dim3 grid, dim3 block,
	size_t shared_bytes, void *stream, typename plumb_same<Parameters>::type... arguments)
{
	auto call = [&]() {
		kernel(arguments...);
		plumb_simt_dependency_end();
		plumb_simt_copy_end();
	};
	struct plumb_simt_launch launch = {};

	launch.kernel = name;
	launch.grid = {grid.x, grid.y, grid.z};
	launch.block = {block.x, block.y, block.z};
	launch.shared_bytes = shared_bytes;
	launch.cooperative = how == PLUMB_SIMT_COOPERATIVE || how == PLUMB_SIMT_CLUSTER;
	launch.cluster = how == PLUMB_SIMT_CLUSTER;
	launch.dependent = how == PLUMB_SIMT_DEPENDENT || how == PLUMB_SIMT_CLUSTER;
#ifdef PLUMB_SIMT_RACE
	launch.race = 1;
#endif
	launch.thread = [](void *argument) { (*static_cast<decltype(call) *>(argument))(); };
	launch.argument = &call;
	return plumb_simt_run(static_cast<struct plumb_simt *>(stream), &launch);
}

#define PLUMB_LAUNCH(kernel, grid, block, shared_bytes, ...)                                                               \
	plumb_simt_start(PLUMB_SIMT_PLAIN, #kernel, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_COOPERATIVE(kernel, grid, block, shared_bytes, ...)                                                   \
	plumb_simt_start(PLUMB_SIMT_COOPERATIVE, #kernel, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_DEPENDENT(kernel, grid, block, shared_bytes, ...)                                                     \
	plumb_simt_start(PLUMB_SIMT_DEPENDENT, #kernel, kernel, grid, block, shared_bytes, __VA_ARGS__)
#define PLUMB_LAUNCH_CLUSTER(kernel, grid, block, shared_bytes, ...)                                                       \
	plumb_simt_start(PLUMB_SIMT_CLUSTER, #kernel, kernel, grid, block, shared_bytes, __VA_ARGS__)

#endif
