/* SPDX-License-Identifier: MIT */
/* Synthetic weights, made where they are read. A thread writes 16 bytes at a time: four hashes of fp8 and nvfp4, four or
 * eight of the plain formats, so that even those are written about as fast as memory takes them. */
#include "kernels/synthetic.h"

#include "kernels/device.h"

enum { THREADS = 256, UNIT = 16, MOST_BLOCKS = 1024, MOST_MATRICES = 32768 };

/* 16 bytes, of which the first `left` lie in the buffer. */
static __device__ void store_unit(unsigned char *to, const uint32_t word[4], int64_t left)
{
	if (left >= UNIT) {
		*PLUMB_AS(uint4, to) = make_uint4(word[0], word[1], word[2], word[3]);
		return;
	}
	for (int i = 0; i < UNIT; i++) /* a fixed count: the words stay in registers */
		if (i < left)
			to[i] = static_cast<unsigned char>(word[i / 4] >> (8 * (i % 4)));
}

/* Words [first, first + 4) of the plain formats' values: 4 of f32, 8 of two bytes. */
static __device__ void plain_unit(const struct plumb_synthetic_fill *f, int64_t unit, uint32_t word[4])
{
	const struct plumb_synthetic_tensor t = f->tensor;
	const int each = f->format == PLUMB_F32 ? 4 : 8;
	const uint64_t first = static_cast<uint64_t>(t.first + unit * each);

	for (int i = 0; i < 4; i++) {
		if (f->format == PLUMB_F32) {
			word[i] = plumb_f32_bits(
				plumb_synthetic_plain(plumb_synthetic_word(t.key, first + i), t.step, t.centre));
			continue;
		}
		uint32_t pair = 0;
		for (int half = 0; half < 2; half++) {
			const float v =
				plumb_synthetic_plain(plumb_synthetic_word(t.key, first + 2 * i + half), t.step, t.centre);
			const uint32_t code = f->format == PLUMB_F16 ? plumb_f32_to_f16(v) : plumb_f32_to_bf16(v);
			pair |= code << (16 * half);
		}
		word[i] = pair;
	}
}

static __device__ void data_unit(const struct plumb_synthetic_fill *f, int64_t unit, uint32_t word[4])
{
	const uint64_t first = static_cast<uint64_t>(f->tensor.first + unit * UNIT);

	if (f->format == PLUMB_F32 || f->format == PLUMB_F16 || f->format == PLUMB_BF16) {
		plain_unit(f, unit, word);
		return;
	}
	for (int i = 0; i < 4; i++) {
		/* codes are fixed byte by byte, so it may be done on words that begin at any byte */
		word[i] = plumb_synthetic_bytes(f->tensor.key, 0, first + 4 * i);
		if (f->format != PLUMB_NVFP4)
			word[i] = plumb_synthetic_fp8(word[i]);
	}
}

static __device__ void write_scales(const struct plumb_synthetic_fill *f, int64_t first, int64_t stride)
{
	if (f->format == PLUMB_NVFP4) {
		for (int64_t u = first; u * UNIT < f->scales; u += stride) {
			uint32_t word[4];
			for (int i = 0; i < 4; i++)
				word[i] = plumb_synthetic_group_scales(plumb_synthetic_word(
					f->tensor.key, PLUMB_SYNTHETIC_SCALES + static_cast<uint64_t>(4 * u + i)));
			store_unit(static_cast<unsigned char *>(f->scale) + u * UNIT, word, f->scales - u * UNIT);
		}
		return;
	}
	for (int64_t i = first; i < f->scales; i += stride) {
		const float s = plumb_synthetic_scale(f->tensor.key, f->tensor.step, static_cast<uint64_t>(i));
		if (f->scale_format == PLUMB_BF16)
			static_cast<uint16_t *>(f->scale)[i] = plumb_f32_to_bf16(s);
		else
			static_cast<float *>(f->scale)[i] = s;
	}
}

/* Blocks along x share a matrix, y is the matrix. */
static __global__ void __launch_bounds__(THREADS) synthetic_kernel(const struct plumb_synthetic_fill *fill)
{
	const struct plumb_synthetic_fill *f = fill + blockIdx.y;
	const int64_t first = blockIdx.x * static_cast<int64_t>(THREADS) + threadIdx.x;
	const int64_t stride = gridDim.x * static_cast<int64_t>(THREADS);

	for (int64_t u = first; u * UNIT < f->data_bytes; u += stride) {
		uint32_t word[4];
		data_unit(f, u, word);
		store_unit(static_cast<unsigned char *>(f->data) + u * UNIT, word, f->data_bytes - u * UNIT);
	}
	write_scales(f, first, stride);
}

extern "C" int PLUMB_LAUNCHER(synthetic)(const struct plumb_synthetic_fill *fill, int64_t count, int64_t most, void *stream)
{
	int64_t blocks = (most / UNIT + THREADS) / THREADS; /* at least one */
	int status = 0;

	if (blocks > MOST_BLOCKS)
		blocks = MOST_BLOCKS;
	for (int64_t i = 0; i < count && status == 0; i += MOST_MATRICES) {
		int64_t n = count - i;
		if (n > MOST_MATRICES)
			n = MOST_MATRICES;
		const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(n));
		status = PLUMB_LAUNCH(synthetic_kernel, grid, THREADS, 0, stream, fill + i);
	}
	return status;
}
