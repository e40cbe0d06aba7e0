/* SPDX-License-Identifier: MIT */
/* The kernel interface: how a shared object offers kernels of its own to Plumb. This header stands alone: C11, C++ or
 * CUDA, no other header of Plumb. Installed as plumb/kernel.h.
 *
 * A kernel is loaded in the seat of an op: plumb check GOLDEN.h5 --checkpoint DIR --op attn_gate=./mine.so
 * What an op computes, in which order and with which shapes stands in its contract; 'plumb list OP' shows the operands.
 * A whole shared object, in C (cc -shared -fPIC -o mine.so mine.c):
 *
 *     #include <math.h>
 *     #include <plumb/kernel.h>
 *     static int attn_gate(const struct plumb_kernel_call *call)
 *     {
 *             const float *o = plumb_f32(call, "o"), *qg = plumb_f32(call, "qg");
 *             float *out = plumb_f32(call, "out");
 *             int64_t n = plumb_dim(call, "Hq"), Dh = plumb_dim(call, "Dh");
 *             for (int64_t h = 0; h < call->T * n; h++)
 *                     for (int64_t i = 0; i < Dh; i++)
 *                             out[h * Dh + i] = o[h * Dh + i] / (1 + exp(-(double)qg[(2 * h + 1) * Dh + i]));
 *             return 0;
 *     }
 *     static const struct plumb_kernel kernels[] = {{.ops = "attn_gate", .run = attn_gate}};
 *     PLUMB_KERNELS("mine", "1.0", kernels)
 *
 * The rules:
 *   written     A kernel writes every element of every OUT operand it is given; of a STATE array whatever the contract
 *               says; of a STATE cache the rows first_row .. end_row - 1 and no other. Nothing else: inputs, weights,
 *               constants and what lies beyond an operand stay as they are. plumb check looks at all of that, on every
 *               call.
 *   alignment   Activations and state: at least 16 bytes on the host, 256 on a device. Weights and scales: of one
 *               value, no more; they are used where the checkpoint file holds them. Rows have no padding, little-
 *               endian.
 *   not there   Of a bank only the matrices that the call's ids choose may be read, and of a table only the chosen
 *               rows: the others may not exist. Their data may be NULL, or memory that must not be touched.
 *   NULL        plumb_operand gives NULL for a name that the call does not have: an optional operand that this call
 *               leaves out (injection at the final mixer), or one that lies inside a fused entry. A call that has it
 *               has its data.
 *   repeatable  The same inputs give the same bits. plumb check runs each call twice and names what changes (--once:
 *               does not).
 *   threads     Calls come one after the other from one thread. A kernel may use threads of its own; they have ended,
 *               or are idle, when run returns.
 *   device      Launches go to call->stream and need not be waited for: Plumb does. The current CUDA device is already
 *               the one to use. cudaDeviceReset, and changing the current device or context, are not allowed.
 *   process     Stays as it was: rounding mode, flush to zero, working directory, open descriptors. A kernel runs in the
 *               floating-point mode in which the constructors of its file left the process (cc -Ofast flushes to zero),
 *               Plumb's own arithmetic does not. What is printed goes to standard error.
 *   failing     run returns 0, or any other value after plumb_say(call, "why"). A kernel that crashes, hangs, calls
 *               exit or leaves a CUDA error behind is reported as the failure of that call.
 *
 * Growth: the size members say how much of a struct the other side knows. New members come at the end; what a side
 * does not know is not there. Structs without a size (matrix, dim, ngram) stay as they are. PLUMB_KERNEL_ABI changes only
 * when old members change their meaning. */
#ifndef PLUMB_KERNEL_H
#define PLUMB_KERNEL_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define PLUMB_KERNEL_ABI 1u

#ifdef __cplusplus
extern "C" {
#endif

/* role */
enum {
	PLUMB_KERNEL_IN = 1,       /* read only */
	PLUMB_KERNEL_OUT = 2,      /* written in full; holds NaN before */
	PLUMB_KERNEL_STATE = 3,    /* read and written: caches, recurrent state */
	PLUMB_KERNEL_WEIGHT = 4,   /* read only, of the model */
	PLUMB_KERNEL_CONSTANT = 5, /* read only, derived from the config: rope tables, hash constants */
};

/* kind */
enum {
	/* data is dim[0] x ... of format, row-major: f32, i32 or i64; the GDN state also f16, bf16 */
	PLUMB_KERNEL_ARRAY = 1,
	PLUMB_KERNEL_MATRIX = 2, /* a weight: data and scale as format says; dim is (rows, cols), of a vector (1, n) */
	PLUMB_KERNEL_BANK = 3,   /* matrices weights: matrix[i]; dim is (matrices, rows, cols), those of matrix[0] */
	/* rows of format, in pages; dim is (rows, width). f32, f16, bf16, or fp8 row with one scale */
	PLUMB_KERNEL_CACHE = 4,
	PLUMB_KERNEL_NGRAM = 5, /* data is struct plumb_kernel_ngram (n-gram hash constants) */
};

/* format. The value of element (n, k), each product rounded once to binary32:
 *   f32, f16, bf16   as stored
 *   fp8 row          e4m3(code) * scale[n]
 *   fp8 block        e4m3(code) * scale[n / 128][k / 128], scale is (ceil(N/128), ceil(K/128))
 *   fp8 table        bf16(e4m3(code) * global)
 *   nvfp4            e2m1(code) * (e4m3(scale[n][k / 16]) * global); a row is ceil(K/2) bytes, column 2j in the low
 *                    nibble of byte j; scale is (N, ceil(K/16)) bytes */
enum {
	PLUMB_KERNEL_F32 = 1,
	PLUMB_KERNEL_F16 = 2,
	PLUMB_KERNEL_BF16 = 3,
	PLUMB_KERNEL_FP8_ROW = 4,
	PLUMB_KERNEL_FP8_BLOCK = 5,
	PLUMB_KERNEL_FP8_TABLE = 6,
	PLUMB_KERNEL_NVFP4 = 7,
	PLUMB_KERNEL_I32 = 8,
	PLUMB_KERNEL_I64 = 9,
};

/* Where a kernel wants its memory: pointers that it can read and write. */
enum {
	PLUMB_KERNEL_HOST = 0, /* plain memory */
	PLUMB_KERNEL_CUDA = 1, /* memory of the GPU; stream is a cudaStream_t (= CUstream). Needs --device cuda */
	PLUMB_KERNEL_SIMT = 2, /* memory of Plumb's own CPU device: for trying the way of a CUDA kernel without a GPU */
};

/* One weight matrix. */
struct plumb_kernel_matrix {
	int32_t format;
	int32_t scale_format; /* of fp8 row and block: f32 or bf16 */
	int64_t rows, cols;
	const void *data;
	const void *scale; /* NULL where the format has none */
	float global;      /* fp8 table and nvfp4: the scale of the whole matrix */
	int32_t reserved;
	const void *identity; /* the same for this weight in every call, and for nothing else: key of repacked copies */
};

/* One operand of a call. */
struct plumb_kernel_operand {
	const char *name; /* "x"; as in the contract of its op */
	const char *op;   /* "gdn_conv": which op of a fused entry */
	int32_t role, kind, format, rank;
	int64_t dim[8];
	void *data; /* not to be written where the role says read only */
	/* matrix and bank */
	const struct plumb_kernel_matrix *matrix;        /* (matrices), in host memory whatever `where` is */
	const struct plumb_kernel_matrix *device_matrix; /* the same where the data is, for code that has ids there */
	int64_t matrices;                                /* 1 for a matrix */
	/* cache: row r lies in physical page page[r / page_rows], as row r % page_rows of it; a page is page_rows rows */
	const int32_t *page;      /* (ceil(rows / page_rows)), where the data is; -1: not there */
	const int32_t *host_page; /* the same in host memory */
	int64_t page_rows;
	int64_t first_row, end_row; /* STATE: rows that this call writes. IN: rows below end_row may be read */
	float scale;                /* of an fp8 cache: a value is e4m3(code) * scale */
};

/* Hash constants of an n-gram table (ple_embed). Arrays of G, Hg and Hg; in host memory for host kernels, else device. */
struct plumb_kernel_ngram {
	int64_t multiplier[16];
	int64_t prime[256];
	int64_t offset[256];
	int64_t rows;
};

/* A size by its letter, as in the contracts: D hidden size, Hq query heads, ... */
struct plumb_kernel_dim {
	const char *letter;
	int64_t value;
};

/* One call. */
struct plumb_kernel_call {
	uint32_t size;         /* of this struct, as Plumb knows it */
	uint32_t operand_size; /* of struct plumb_kernel_operand, as Plumb knows it: see plumb_operand_at */
	const char *ops;       /* as the entry says it */
	int64_t T;             /* rows: 1 in decode, up to 64 in a prompt */
	int64_t position;      /* of row 0; -1: not known, and the op does not depend on it */
	int64_t capacity;      /* P: positions the caches have room for */
	int32_t layer;         /* 0-based; layers: outside of them (final mixer, embed, lm_head); -1: not known */
	int32_t layers;        /* L */
	int32_t bf16;          /* 1: activations are rounded to bf16 where the contract says rne. Arrays of activations are
	                          f32 all the same, holding such values; caches and the GDN state say their own format */
	int32_t where;         /* as the entry says */
	void *stream;          /* CUDA: launch here; else NULL */
	void *workspace;       /* workspace_bytes of it, 256-byte aligned, on the side of `where`; contents undefined */
	size_t workspace_bytes;
	void *prepared; /* what prepare left for the weights of this call; NULL without */
	/* facts of the model */
	float eps;         /* rms_norm_eps */
	int32_t gdn_gate;  /* 0 sigmoid, 1 silu */
	int32_t norm_topk; /* router weights are divided by their sum */
	int32_t ties;      /* 0: the lower index wins */
	int64_t eos;
	const struct plumb_kernel_dim *dim; /* (dims) */
	int32_t dims;
	int32_t operands;
	const struct plumb_kernel_operand *operand;
	char *message; /* plumb_say writes here: one line */
	size_t message_size;
};

/* One kernel. Members left out are zero. */
struct plumb_kernel {
	const char *ops; /* "attn_gate"; or, fused, neighbours in the order of the decoder: "hc_norm_down+hc_up_mix". A
	                    fused entry is called once, with the operands of all its ops but what only they would see: no
	                    intermediate result, neither as output nor as input. Comparison happens at what is left */
	int (*run)(const struct plumb_kernel_call *call);
	int32_t where;  /* PLUMB_KERNEL_HOST, ... */
	int32_t traces; /* 1: the kernel also writes outputs that only a comparison needs (contract: trace) */
	/* Bytes of workspace that a call needs; NULL: none. Data pointers of call are not set. */
	size_t (*workspace)(const struct plumb_kernel_call *call);
	/* Called once for each set of weights (a layer, or a site of it) before the first run that uses them: repack,
	 * upload, load a module. call has weights and constants only, T = 0. Leaves its result in *prepared. Returns as run does.
	 * NULL: nothing to prepare.
	 * LIMIT: of a bank, matrices that no token has chosen yet may not be there: repack those when they are chosen. */
	int (*prepare)(const struct plumb_kernel_call *call, void **prepared);
	void (*release)(void *prepared); /* at the end; may be NULL */
	const char *note;                /* one line for reports; may be NULL */
};

/* What the shared object offers. */
struct plumb_kernel_library {
	uint32_t size;        /* sizeof(struct plumb_kernel_library) */
	uint32_t abi;         /* PLUMB_KERNEL_ABI */
	uint32_t kernel_size; /* sizeof(struct plumb_kernel) */
	uint32_t kernels;
	const struct plumb_kernel *kernel;
	const char *name, *version; /* for reports; may be NULL */
};

/* The one symbol that Plumb looks up. abi: what Plumb speaks. Returns NULL when the library cannot serve that. */
typedef const struct plumb_kernel_library *plumb_kernels_fn(uint32_t abi);

#ifdef __cplusplus
#define PLUMB_KERNEL_SYMBOL extern "C" __attribute__((visibility("default")))
#else
#define PLUMB_KERNEL_SYMBOL __attribute__((visibility("default")))
#endif

/* Define it for an array of kernels. */
#define PLUMB_KERNELS(name_, version_, array)                                                                              \
	PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi);                                \
	PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi)                                 \
	{                                                                                                                  \
		static const struct plumb_kernel_library library = {(uint32_t)sizeof(struct plumb_kernel_library),         \
			PLUMB_KERNEL_ABI, (uint32_t)sizeof(struct plumb_kernel),                                           \
			(uint32_t)(sizeof(array) / sizeof((array)[0])), array, name_, version_};                           \
		return abi == PLUMB_KERNEL_ABI ? &library : (const struct plumb_kernel_library *)0;                        \
	}

/* ---- look-ups ---- */

/* Operand i, 0 <= i < call->operands. */
static inline const struct plumb_kernel_operand *plumb_operand_at(const struct plumb_kernel_call *call, int32_t i)
{
	return (const struct plumb_kernel_operand *)(const void *)((const char *)(const void *)call->operand +
								   (size_t)i * call->operand_size);
}

/* Operand by name, "window", or by op and name, "gdn_conv.window"; of several of one name the first. NULL: the call has
 * none. */
static inline const struct plumb_kernel_operand *plumb_operand(const struct plumb_kernel_call *call, const char *name)
{
	const char *dot = strchr(name, '.');
	for (int32_t i = 0; i < call->operands; i++) {
		const struct plumb_kernel_operand *o = plumb_operand_at(call, i);
		if (dot && (strlen(o->op) != (size_t)(dot - name) || strncmp(o->op, name, (size_t)(dot - name)) != 0))
			continue;
		if (strcmp(o->name, dot ? dot + 1 : name) == 0)
			return o;
	}
	return (const struct plumb_kernel_operand *)0;
}

/* Data of an operand of that format; NULL: the call has none. */
static inline void *plumb_data(const struct plumb_kernel_call *call, const char *name, int32_t format)
{
	const struct plumb_kernel_operand *o = plumb_operand(call, name);
	return o && o->format == format ? o->data : (void *)0;
}
static inline float *plumb_f32(const struct plumb_kernel_call *call, const char *name)
{
	return (float *)plumb_data(call, name, PLUMB_KERNEL_F32);
}
static inline int32_t *plumb_i32(const struct plumb_kernel_call *call, const char *name)
{
	return (int32_t *)plumb_data(call, name, PLUMB_KERNEL_I32);
}
static inline int64_t *plumb_i64(const struct plumb_kernel_call *call, const char *name)
{
	return (int64_t *)plumb_data(call, name, PLUMB_KERNEL_I64);
}

/* A weight; NULL: the call has none. plumb_matrix_of_bank: matrix i of a bank; NULL also for i outside it. */
static inline const struct plumb_kernel_matrix *plumb_weight_of(const struct plumb_kernel_call *call, const char *name)
{
	const struct plumb_kernel_operand *o = plumb_operand(call, name);
	return o && o->kind == PLUMB_KERNEL_MATRIX ? o->matrix : (const struct plumb_kernel_matrix *)0;
}
static inline const struct plumb_kernel_matrix *plumb_matrix_of_bank(
	const struct plumb_kernel_call *call, const char *name, int64_t i)
{
	const struct plumb_kernel_operand *o = plumb_operand(call, name);
	return o && o->kind == PLUMB_KERNEL_BANK && i >= 0 && i < o->matrices ? &o->matrix[i]
	                                                                      : (const struct plumb_kernel_matrix *)0;
}

/* Address of row r of a cache, host kernels: use o->page on a device. */
static inline void *plumb_row(const struct plumb_kernel_operand *cache, int64_t r)
{
	size_t value = cache->format == PLUMB_KERNEL_F32 ? 4 : cache->format == PLUMB_KERNEL_FP8_ROW ? 1 : 2;
	int64_t row = (int64_t)cache->page[r / cache->page_rows] * cache->page_rows + r % cache->page_rows;
	return (char *)cache->data + (size_t)(row * cache->dim[1]) * value;
}

/* A size by its letter, "Hq"; 0: there is none of that name. */
static inline int64_t plumb_dim(const struct plumb_kernel_call *call, const char *letter)
{
	for (int32_t i = 0; i < call->dims; i++)
		if (strcmp(call->dim[i].letter, letter) == 0)
			return call->dim[i].value;
	return 0;
}

/* Say why a call fails; returns 1, so that a kernel can `return plumb_say(call, "unknown format %d", f)`. */
#if defined(__GNUC__)
__attribute__((format(printf, 2, 3), unused))
#endif
static int
plumb_say(const struct plumb_kernel_call *call, const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	if (call->message && call->message_size)
		vsnprintf(call->message, call->message_size, format, ap);
	va_end(ap);
	return 1;
}

/* ---- numbers: on the host, and with nvcc also in device code ---- */

#ifdef __CUDACC__
#define PLUMB_KERNEL_FN static inline __host__ __device__
#else
#define PLUMB_KERNEL_FN static inline
#endif

PLUMB_KERNEL_FN float plumb_of_bits(uint32_t bits)
{
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}
PLUMB_KERNEL_FN float plumb_of_bf16(uint16_t v)
{
	return plumb_of_bits((uint32_t)v << 16);
}

/* Nearest even; NaN stays NaN. */
PLUMB_KERNEL_FN uint16_t plumb_to_bf16(float f)
{
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	if (f != f)
		return (uint16_t)(bits >> 16 | 0x40);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* The contracts' rne: rounds where the policy rounds. bf16: call->bf16. */
PLUMB_KERNEL_FN float plumb_rne(int32_t bf16, float f)
{
	return bf16 ? plumb_of_bf16(plumb_to_bf16(f)) : f;
}

/* A number of sign, `exponent` and `mantissa` bits, bias 2^(exponent-1) - 1, without infinities; NaN is the caller's. */
PLUMB_KERNEL_FN float plumb_of_small(uint32_t code, int exponent, int mantissa)
{
	uint32_t m = code & ((1u << mantissa) - 1), e = code >> mantissa & ((1u << exponent) - 1);
	int power = (int)(e ? e : 1) - ((1 << (exponent - 1)) - 1) - mantissa;
	float value = (float)(e ? m + (1u << mantissa) : m) * plumb_of_bits((uint32_t)(power + 127) << 23);
	return code >> (exponent + mantissa) & 1 ? -value : value;
}
PLUMB_KERNEL_FN float plumb_of_e4m3(uint8_t code)
{
	return (code & 0x7f) == 0x7f ? plumb_of_bits(0x7fc00000u) : plumb_of_small(code, 4, 3);
}
PLUMB_KERNEL_FN float plumb_of_e2m1(uint8_t code)
{
	return plumb_of_small(code & 15, 2, 1);
}
PLUMB_KERNEL_FN float plumb_of_f16(uint16_t v)
{
	if ((v & 0x7c00) != 0x7c00)
		return plumb_of_small(v, 5, 10);
	return plumb_of_bits(((uint32_t)v & 0x8000) << 16 | 0x7f800000u | ((uint32_t)v & 0x3ff) << 13);
}

/* Stored value i of format f32, f16 or bf16, of any alignment. */
PLUMB_KERNEL_FN float plumb_stored(int32_t format, const void *data, int64_t i)
{
	uint16_t half;
	float f;
	if (format == PLUMB_KERNEL_F32) {
		memcpy(&f, (const char *)data + 4 * i, sizeof f);
		return f;
	}
	memcpy(&half, (const char *)data + 2 * i, sizeof half);
	return format == PLUMB_KERNEL_F16 ? plumb_of_f16(half) : plumb_of_bf16(half);
}

/* Stored value i of a row of a cache, of any of its formats. scale: of the cache. */
PLUMB_KERNEL_FN float plumb_cached(int32_t format, float scale, const void *row, int64_t i)
{
	return format == PLUMB_KERNEL_FP8_ROW ? plumb_of_e4m3(((const uint8_t *)row)[i]) * scale
	                                      : plumb_stored(format, row, i);
}

/* Element (n, k) of a weight, as its format defines it: simple, not fast. */
PLUMB_KERNEL_FN float plumb_value(const struct plumb_kernel_matrix *w, int64_t n, int64_t k)
{
	const uint8_t *code = (const uint8_t *)w->data, *scale = (const uint8_t *)w->scale;
	int64_t at = n * w->cols + k;
	uint8_t pair;

	switch (w->format) {
	case PLUMB_KERNEL_FP8_ROW:
		return plumb_of_e4m3(code[at]) * plumb_stored(w->scale_format, w->scale, n);
	case PLUMB_KERNEL_FP8_BLOCK:
		at = n / 128 * ((w->cols + 127) / 128) + k / 128;
		return plumb_of_e4m3(code[n * w->cols + k]) * plumb_stored(w->scale_format, w->scale, at);
	case PLUMB_KERNEL_FP8_TABLE:
		return plumb_of_bf16(plumb_to_bf16(plumb_of_e4m3(code[at]) * w->global));
	case PLUMB_KERNEL_NVFP4:
		pair = code[n * ((w->cols + 1) / 2) + k / 2];
		return plumb_of_e2m1(k % 2 ? pair >> 4 : pair & 15) *
		       (plumb_of_e4m3(scale[n * ((w->cols + 15) / 16) + k / 16]) * w->global);
	default:
		return plumb_stored(w->format, w->data, at);
	}
}

#ifdef __cplusplus
}
#endif
#endif
