/* SPDX-License-Identifier: MIT */
/* One safetensors file: what is found in it, and the ways a file can be wrong. */
#include <check.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/safetensors.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"
#include "tests/support/write_safetensors.h"

static char dir[SCRATCH_PATH], path[SCRATCH_PATH];

static void make_dir(void)
{
	scratch_make(dir);
	scratch_path(path, dir, "x.safetensors");
}

static void remove_dir(void)
{
	scratch_remove(dir);
}

/* Write header length, header and count bytes of data as the test's file. length < 0: that of the header. */
static void write_raw(int64_t length, const char *header, size_t header_bytes, size_t data_bytes)
{
	static unsigned char bytes[1 << 16];
	uint64_t n = length < 0 ? header_bytes : (uint64_t)length;
	for (int i = 0; i < 8; i++)
		bytes[i] = (unsigned char)(n >> (8 * i));
	ck_assert_uint_le(8 + header_bytes + data_bytes, sizeof bytes);
	memcpy(bytes + 8, header, header_bytes);
	for (size_t i = 0; i < data_bytes; i++)
		bytes[8 + header_bytes + i] = (unsigned char)(i * 7 + 1);
	scratch_write(dir, "x.safetensors", bytes, 8 + header_bytes + data_bytes);
}

static void write_header(const char *header, size_t data_bytes)
{
	write_raw(-1, header, strlen(header), data_bytes);
}

static struct plumb_safetensors *opened(void)
{
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	int status = plumb_safetensors_open(path, &file, &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	return file;
}

static void refused(const char *contains, const char *what)
{
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	int status = plumb_safetensors_open(path, &file, &err);
	ck_assert_msg(status == PLUMB_BAD_INPUT, "%s: accepted", what);
	ck_assert_msg(file == NULL, "%s: result set", what);
	ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0 && strstr(err.text, contains),
		"%s: message \"%s\" does not name the file and \"%s\"", what, err.text, contains);
	ck_assert_msg(strchr(err.text, '\n') == NULL, "%s: more than a line", what);
}

static const struct plumb_tensor *find(const struct plumb_safetensors *file, const char *name)
{
	for (size_t i = 0; i < file->tensors; i++)
		if (strcmp(file->tensor[i].name, name) == 0)
			return &file->tensor[i];
	ck_abort_msg("no tensor %s", name);
	return NULL;
}

START_TEST(written_and_read)
{
	static const unsigned char bytes[64] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
	for (int shift = 0; shift < 8; shift++) {
		struct safetensors_writer *w = safetensors_begin(path);
		safetensors_add(w, "a.weight", "BF16", 2, (int64_t[]){2, 3}, bytes, 12);
		safetensors_add(w, "scalar", "F32", 0, NULL, bytes + 1, 4);
		safetensors_add(w, "none", "I64", 2, (int64_t[]){0, 1000000000000}, bytes, 0);
		safetensors_add(w, "odd", "U8", 1, (int64_t[]){3}, bytes + 2, 3);
		safetensors_add(w, "eight", "F64", 8, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1}, bytes + 3, 8);
		safetensors_finish(w, shift);

		struct plumb_safetensors *file = opened();
		ck_assert_uint_eq(file->tensors, 5);
		const struct plumb_tensor *a = find(file, "a.weight");
		ck_assert_str_eq(a->file, path);
		ck_assert_int_eq(a->dtype, PLUMB_DTYPE_BF16);
		ck_assert_int_eq(a->rank, 2);
		ck_assert_int_eq(a->dim[0], 2);
		ck_assert_int_eq(a->dim[1], 3);
		ck_assert_uint_eq(a->bytes, 12);
		ck_assert(memcmp(a->data, bytes, 12) == 0);
		ck_assert_uint_eq((uintptr_t)a->data % 8, (unsigned)shift);
		char text[192];
		ck_assert_str_eq(plumb_tensor_shape(a, text), "[2, 3]");
		ck_assert_str_eq(plumb_dtype_name(a->dtype), "BF16");
		const struct plumb_tensor *scalar = find(file, "scalar");
		ck_assert_int_eq(scalar->rank, 0);
		ck_assert_uint_eq(scalar->bytes, 4);
		ck_assert_str_eq(plumb_tensor_shape(scalar, text), "[]");
		ck_assert_uint_eq(find(file, "none")->bytes, 0);
		ck_assert(memcmp(find(file, "odd")->data, bytes + 2, 3) == 0);
		ck_assert_int_eq(find(file, "eight")->rank, 8);
		plumb_safetensors_close(file);
	}
}
END_TEST

/* The file transformers wrote: a tensor found by hand, and every byte covered. */
START_TEST(tiny_file)
{
	struct plumb_safetensors *file = NULL;
	struct plumb_error err = {""};
	int status = plumb_safetensors_open(PLUMB_GOLDEN_DIR "/tiny/checkpoint/model.safetensors", &file, &err);
	ck_assert_msg(status == PLUMB_OK, "%s", err.text);
	const struct plumb_tensor *t = find(file, "model.layers.1.ple.ple_embedding.ngram_heads_vocab_sizes");
	static const int64_t primes[4] = {97, 101, 103, 107};
	ck_assert_int_eq(t->dtype, PLUMB_DTYPE_I64);
	ck_assert_int_eq(t->dim[0], 16);
	ck_assert(memcmp(t->data, primes, sizeof primes) == 0);
	size_t total = 0;
	for (size_t i = 0; i < file->tensors; i++)
		total += file->tensor[i].bytes;
	ck_assert_uint_eq(total, 1508296 - 8 - 33728);
	plumb_safetensors_close(file);
}
END_TEST

START_TEST(every_dtype)
{
	static const struct {
		const char *name;
		int bits;
	} dtypes[] = {{"BOOL", 8}, {"F4", 4}, {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"U8", 8}, {"I8", 8}, {"F8_E5M2", 8},
		{"F8_E4M3", 8}, {"F8_E8M0", 8}, {"I16", 16}, {"U16", 16}, {"F16", 16}, {"BF16", 16}, {"I32", 32},
		{"U32", 32}, {"F32", 32}, {"C64", 64}, {"F64", 64}, {"I64", 64}, {"U64", 64}};
	for (size_t i = 0; i < sizeof dtypes / sizeof dtypes[0]; i++) {
		char header[256];
		size_t bytes = (size_t)dtypes[i].bits; /* of 8 values */
		snprintf(header, sizeof header, "{\"t\":{\"dtype\":\"%s\",\"shape\":[2,4],\"data_offsets\":[0,%zu]}}",
			dtypes[i].name, bytes);
		write_header(header, bytes);
		struct plumb_safetensors *file = opened();
		ck_assert_str_eq(plumb_dtype_name(file->tensor[0].dtype), dtypes[i].name);
		ck_assert_uint_eq(file->tensor[0].bytes, bytes);
		plumb_safetensors_close(file);
	}
}
END_TEST

START_TEST(accepted_headers)
{
	static const struct {
		const char *header;
		size_t data, tensors;
	} cases[] = {
		{"{}", 0, 0}, {"{}      ", 0, 0}, {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
		{"{\"b\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]},\"a\":{\"dtype\":\"U8\",\"shape\":[2],"
		 "\"data_offsets\":[0,2]}}",
			4, 2}, /* in any order */
		{"{\"a\":{\"data_offsets\":[0,2],\"shape\":[2],\"dtype\":\"U8\",\"extra\":[null]}}", 2, 1},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]},\"b\":{\"dtype\":\"U8\",\"shape\":[1],"
		 "\"data_offsets\":[0,1]},\"c\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[1,1]}}",
			1, 3},
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[2.0],\"data_offsets\":[0,2e0]}}", 2, 1},
		{"{\"\":{\"dtype\":\"U8\",\"shape\":[],\"data_offsets\":[0,1]}}", 1,
			1}, /* ugly, but the format allows it */
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		write_header(cases[i].header, cases[i].data);
		struct plumb_safetensors *file = opened();
		ck_assert_msg(file->tensors == cases[i].tensors, "%s: %zu tensors", cases[i].header, file->tensors);
		plumb_safetensors_close(file);
	}
}
END_TEST

#define T(dtype, shape, offsets) "{\"dtype\":" dtype ",\"shape\":" shape ",\"data_offsets\":" offsets "}"

START_TEST(refused_headers)
{
	static const struct {
		const char *header;
		size_t data;
		const char *contains;
	} cases[] = {
		{"", 0, "expected a value"},
		{"[]", 0, "the header is an array"},
		{"7", 0, "the header is 7"},
		{"{", 0, "expected a string"},
		{"{}x", 0, "expected the end"},
		{"{\"a\":7}", 0, "tensor a: is 7"},
		{"{\"a\":null}", 0, "tensor a: is null"},
		{"{\"a\":{}}", 0, "tensor a: dtype is missing"},
		{"{\"__metadata__\":7}", 0, "__metadata__ is 7"},
		/* dtype */
		{"{\"a\":" T("7", "[2]", "[0,4]") "}", 4, "dtype is 7"},
		{"{\"a\":" T("null", "[2]", "[0,4]") "}", 4, "dtype is null"},
		{"{\"a\":" T("\"bf16\"", "[2]", "[0,4]") "}", 4, "dtype is \"bf16\""},
		{"{\"a\":" T("\"F128\"", "[2]", "[0,4]") "}", 4, "dtype is \"F128\""},
		/* shape */
		{"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is missing"},
		{"{\"a\":" T("\"U8\"", "2", "[0,2]") "}", 2, "shape is 2"},
		{"{\"a\":" T("\"U8\"", "[-2]", "[0,2]") "}", 2, "shape[0] is -2"},
		{"{\"a\":" T("\"U8\"", "[1,2.5]", "[0,2]") "}", 2, "shape[1] is 2.5"},
		{"{\"a\":" T("\"U8\"", "[\"2\"]", "[0,2]") "}", 2, "shape[0] is \"2\""},
		{"{\"a\":" T("\"U8\"", "[1e400]", "[0,2]") "}", 2, "shape[0] is inf"},
		{"{\"a\":" T("\"U8\"", "[18446744073709551618]", "[0,2]") "}", 2, "shape[0]"},
		{"{\"a\":" T("\"U8\"", "[1,1,1,1,1,1,1,1,2]", "[0,2]") "}", 2, "more than 8 dimensions"},
		/* 2^32 * 2^32 and 2^61 + ... values wrap to something small in 64 bits */
		{"{\"a\":" T("\"U8\"", "[4294967296,4294967296]", "[0,0]") "}", 0, "2^64 bits"},
		{"{\"a\":" T("\"BF16\"", "[4611686018427387904,2]", "[0,0]") "}", 0, "shape[0]"},
		{"{\"a\":" T("\"I64\"", "[2147483648,1073741824]", "[0,8]") "}", 8, "2^64 bits"},
		{"{\"a\":" T("\"F4\"", "[3]", "[0,2]") "}", 2, "12 bits, expected whole bytes"},
		/* data_offsets */
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets is missing"},
		{"{\"a\":" T("\"U8\"", "[2]", "2") "}", 2, "data_offsets is 2"},
		{"{\"a\":" T("\"U8\"", "[2]", "[]") "}", 2, "data_offsets is an array of another length"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0]") "}", 2, "data_offsets is an array of another length"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,2,4]") "}", 2, "data_offsets is an array of another length"},
		{"{\"a\":" T("\"U8\"", "[2]", "[-1,1]") "}", 2, "data_offsets[0] is -1"},
		{"{\"a\":" T("\"U8\"", "[2]", "[2,0]") "}", 2, "data_offsets[1] is 0"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,\"2\"]") "}", 2, "data_offsets[1] is \"2\""},
		{"{\"a\":" T("\"U8\"", "[2]", "[0.5,2.5]") "}", 2, "data_offsets[0] is 0.5"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,3]") "}", 2, "data_offsets[1] is 3, expected at most 2"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,9007199254740992]") "}", 2, "data_offsets[1] is 9007199254740992"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,18446744073709551615]") "}", 2, "data_offsets[1]"},
		{"{\"a\":" T("\"U8\"", "[2]", "[18446744073709551615,2]") "}", 2, "data_offsets[0]"},
		{"{\"a\":" T("\"U8\"", "[3]", "[0,2]") "}", 2, "expected 3 for shape [3] of U8"},
		{"{\"a\":" T("\"F32\"", "[2]", "[0,4]") "}", 4, "expected 8 for shape [2] of F32"},
		{"{\"a\":" T("\"U8\"", "[0]", "[0,2]") "}", 2, "expected 0 for shape [0]"},
		/* cover */
		{"{\"a\":" T("\"U8\"", "[2]", "[0,2]") ",\"b\":" T("\"U8\"", "[2]", "[1,3]") "}", 3,
			"tensor b: data_offsets[0] is 1"},
		{"{\"a\":" T("\"U8\"", "[2]", "[0,2]") ",\"b\":" T("\"U8\"", "[2]", "[0,2]") "}", 2, "overlaps tensor a"},
		{"{\"a\":" T("\"U8\"", "[4]", "[0,4]") ",\"b\":" T("\"U8\"", "[2]", "[1,3]") "}", 4, "overlaps tensor a"},
		{"{\"a\":" T("\"U8\"", "[1]", "[0,1]") ",\"b\":" T("\"U8\"", "[1]", "[2,3]") "}", 3, "belong to no tensor"},
		{"{\"a\":" T("\"U8\"", "[1]", "[1,2]") "}", 2, "belong to no tensor"},
		{"{\"a\":" T("\"U8\"", "[1]", "[0,1]") "}", 2, "has 2 bytes of data, expected 1"},
		{"{}", 1, "has 1 bytes of data, expected 0"},
		/* names */
		{"{\"a\":" T("\"U8\"", "[1]", "[0,1]") ",\"a\":" T("\"U8\"", "[1]", "[1,2]") "}", 2,
			"field \"a\" stands twice"},
		{"{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
			"field \"dtype\" stands twice"},
		{"{\"a\xff\":7}", 0, "UTF-8"},
		{"{\"a\\u0000b\":7}", 0, "\\u0000"},
		{"{\"a\n\":7}", 0, "control characters"},
		{"{\"a\":[[[[[[[[[[]]]]]]]]]]}", 0, "no more than 8 arrays"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		write_header(cases[i].header, cases[i].data);
		refused(cases[i].contains, cases[i].header);
	}
	printf("refused headers: %zu\n", sizeof cases / sizeof cases[0]);
}
END_TEST

START_TEST(refused_lengths)
{
	static const char header[] = "{\"a\":" T("\"U8\"", "[2]", "[0,2]") "}";
	static const int64_t lengths[] = {0, 1, 2, sizeof header - 2, sizeof header, sizeof header + 1, 1000, 100000001,
		INT64_C(4294967296), INT64_C(4294967296) + sizeof header - 1, INT64_MAX};
	for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
		char what[64];
		write_raw(lengths[i], header, sizeof header - 1, 2);
		snprintf(what, sizeof what, "header length %lld", (long long)lengths[i]);
		refused(lengths[i] > (int64_t)sizeof header + 2 ? "header length" : "expected", what);
	}
	/* 2^63 and more: all ones, and only the top bit */
	static const unsigned char top[2][8] = {
		{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, {0, 0, 0, 0, 0, 0, 0, 0x80}};
	for (int i = 0; i < 2; i++) {
		scratch_write(dir, "x.safetensors", top[i], 8);
		refused(i ? "header length is 9223372036854775808" : "header length is 18446744073709551615", "top bit");
	}
}
END_TEST

/* A header beyond the limit of the format is refused before it is read, in a file with room for it (a sparse one). */
START_TEST(refused_large_header)
{
	static const unsigned char length[8] = {0x01, 0xe1, 0xf5, 0x05}; /* 100 000 001 */
	scratch_write(dir, "x.safetensors", length, 8);
	ck_assert_int_eq(truncate(path, 200000000), 0);
	refused("header length is 100000001, expected at most 100000000", "large header");
}
END_TEST

/* Every shorter version of a valid file. */
START_TEST(truncated)
{
	size_t size;
	struct safetensors_writer *w = safetensors_begin(path);
	safetensors_add(w, "a", "BF16", 2, (int64_t[]){2, 3}, "123456789012", 12);
	safetensors_add(w, "b", "F32", 1, (int64_t[]){1}, "1234", 4);
	safetensors_finish(w, 0);
	char *whole = scratch_read(path, &size);
	for (size_t n = 0; n < size; n++) {
		char what[64];
		snprintf(what, sizeof what, "%zu of %zu bytes", n, size);
		scratch_write(dir, "x.safetensors", whole, n);
		refused("expected", what);
	}
	scratch_write(dir, "x.safetensors", whole, size);
	plumb_safetensors_close(opened());
	free(whole);
}
END_TEST

START_TEST(refused_files)
{
	refused("cannot open", "no file");
	scratch_write(dir, "x.safetensors", "", 0);
	refused("has 0 bytes", "empty file");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	refused("a directory, expected a regular file", "directory");
	ck_assert_int_eq(rmdir(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	refused("a special file, expected a regular file", "FIFO without a writer");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(symlink("nowhere", path), 0);
	refused("cannot open", "dangling link");
}
END_TEST

/* Nine megabytes of zeros in a shape would become a tree of half a gigabyte: stopped by their count. */
START_TEST(refused_counts)
{
	static const char begin[] = "{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[";
	enum { ZEROS = 4500000 };
	size_t n = 8;
	char *text = malloc(8 + sizeof begin + 2 * ZEROS + 4);
	memcpy(text + n, begin, sizeof begin - 1);
	n += sizeof begin - 1;
	for (int i = 0; i < ZEROS; i++, n += 2)
		memcpy(text + n, "0,", 2);
	memcpy(text + n - 1, "]}}", 3);
	n += 2;
	for (int i = 0; i < 8; i++)
		text[i] = (char)((uint64_t)(n - 8) >> (8 * i));
	scratch_write(dir, "x.safetensors", text, n);
	refused("no more than 4000000 values", "millions of values");
	free(text);
}
END_TEST

/* Seeded damage to a small file: no crash, and a message for all that is refused. What still opens must lie inside. */
START_TEST(mutated)
{
	size_t size;
	uint64_t state = 20260907;
	int good = 0, bad = 0;
	struct safetensors_writer *w = safetensors_begin(path);
	safetensors_add(w, "a.weight", "BF16", 2, (int64_t[]){2, 3}, "123456789012", 12);
	safetensors_add(w, "b", "F32", 1, (int64_t[]){1}, "1234", 4);
	safetensors_add(w, "c", "I64", 0, NULL, "12345678", 8);
	safetensors_finish(w, 0);
	char *whole = scratch_read(path, &size);
	char *work = malloc(size);
	for (int round = 0; round < 4000; round++) {
		size_t n = size;
		memcpy(work, whole, size);
		for (int edits = 1 + round % 4; edits > 0; edits--) {
			state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
			size_t at = (state >> 33) % n;
			unsigned char byte = (unsigned char)(state >> 24);
			if (state >> 61 == 0 && n > 1)
				n = at + 1;
			else if (state >> 61 < 4)
				work[at] = "[]{},:\"0123456789-"[byte % 18];
			else
				work[at] = (char)(work[at] ^ (1 << byte % 8));
		}
		scratch_write(dir, "x.safetensors", work, n);
		struct plumb_safetensors *file = NULL;
		struct plumb_error err = {""};
		int status = plumb_safetensors_open(path, &file, &err);
		ck_assert(status == PLUMB_OK || status == PLUMB_BAD_INPUT);
		if (status) {
			bad++;
			ck_assert(file == NULL && strncmp(err.text, path, strlen(path)) == 0);
			continue;
		}
		good++;
		unsigned sum = 0;
		for (size_t i = 0; i < file->tensors; i++)
			for (size_t k = 0; k < file->tensor[i].bytes; k++)
				sum += file->tensor[i].data[k];
		/* read, so that AddressSanitizer and the kernel had their say */
		ck_assert_uint_le(sum, 255 * (unsigned)size);
		plumb_safetensors_close(file);
	}
	printf("mutated files: %d refused, %d still valid\n", bad, good);
	ck_assert_int_gt(bad, 1000);
	ck_assert_int_gt(good, 100);
	free(work);
	free(whole);
}
END_TEST

/* As many tensors as the largest checkpoints have in all. The time is printed, not judged. */
START_TEST(many_tensors)
{
	enum { COUNT = 300000 };
	struct safetensors_writer *w = safetensors_begin(path);
	for (int i = 0; i < COUNT; i++) {
		char name[128];
		snprintf(name, sizeof name, "model.language_model.layers.%d.mlp.experts.%d.gate_proj.weight_scale_2",
			i / 6144, i % 6144);
		safetensors_add(w, name, i % 3 ? "BF16" : "F32", 2, (int64_t[]){1, i % 3 ? 2 : 1}, &i, 4);
	}
	safetensors_finish(w, 0);
	struct timespec start, end;
	clock_gettime(CLOCK_MONOTONIC, &start);
	struct plumb_safetensors *file = opened();
	clock_gettime(CLOCK_MONOTONIC, &end);
	ck_assert_uint_eq(file->tensors, COUNT);
	for (int i = 0; i < COUNT; i += 997) {
		int stored;
		memcpy(&stored, file->tensor[i].data, sizeof stored);
		ck_assert_int_eq(stored, i);
	}
	printf("%d tensors, header of %zu bytes: %.2f s\n", COUNT, file->map_bytes - 8 - 4 * (size_t)COUNT,
		(double)(end.tv_sec - start.tv_sec) + 1e-9 * (double)(end.tv_nsec - start.tv_nsec));
	plumb_safetensors_close(file);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("safetensors");
	TCase *all = suite_part(suite, "all", 120);
	tcase_add_checked_fixture(all, make_dir, remove_dir);
	tcase_add_test(all, written_and_read);
	tcase_add_test(all, tiny_file);
	tcase_add_test(all, every_dtype);
	tcase_add_test(all, accepted_headers);
	tcase_add_test(all, refused_headers);
	tcase_add_test(all, refused_lengths);
	tcase_add_test(all, refused_large_header);
	tcase_add_test(all, truncated);
	tcase_add_test(all, refused_files);
	tcase_add_test(all, refused_counts);
	tcase_add_test(all, mutated);
	tcase_add_test(all, many_tensors);
	return suite_run(suite);
}
