/* SPDX-License-Identifier: MIT */
/* The HDF5 writer: what is read back, that bytes repeat, and that no moment of dying, full disk or flipped bit gives a file
 * that opens as valid but is not. */
#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "golden/h5_write.h"
#include "tests/support/golden_files.h"
#include "tests/support/suite.h"

enum { ROWS = 3000, WIDTH = 50 }; /* a stream of three chunks */

static float row_value(int64_t i)
{
	return (float)(i * 7919 % 10007) * 0.125f - 300.0f;
}

#define ck_ok(call) ck_assert_msg((call) == PLUMB_OK, "%s", err.text)

/* One file with everything in it; rows of the stream come in pieces of `step`. seed: added to one value, so that files can
 * be told apart. */
static int fill(struct plumb_h5_writer *w, int64_t step, int32_t seed)
{
	static float rows[ROWS * WIDTH];
	int64_t one[1] = {6}, matrix[2] = {2, 3}, none[2] = {0, 4}, grown[2] = {0, WIDTH};
	double f64[6] = {1.0, -0.0, 0x1p-1074, 1e300, 3.0, 4.0};
	int32_t i32[6] = {INT32_MIN, -1, 0, 1, INT32_MAX, seed};
	int64_t i64[6] = {INT64_MIN, -1, 0, 1, INT64_MAX, 7};
	uint8_t u8[6] = {0, 1, 127, 128, 254, 255};
	struct plumb_h5_stream *s;

	for (int64_t i = 0; i < ROWS * WIDTH; i++)
		rows[i] = row_value(i);
	plumb_h5_put_text(w, "", "producer", "a test, \xc3\xa9", NULL);
	plumb_h5_put_integer(w, "", "version", -3, NULL);
	plumb_h5_put_real(w, "", "scale", 0.1, NULL);
	plumb_h5_put(w, "a/b/f32", PLUMB_H5_STORE_F32, 2, matrix, six, PLUMB_H5_PLAIN, NULL);
	plumb_h5_put(w, "a/b/f64", PLUMB_H5_STORE_F64, 1, one, f64, PLUMB_H5_PACK, NULL);
	plumb_h5_put(w, "a/i32", PLUMB_H5_STORE_I32, 1, one, i32, PLUMB_H5_PACK, NULL);
	plumb_h5_put(w, "i64", PLUMB_H5_STORE_I64, 1, one, i64, PLUMB_H5_PLAIN, NULL);
	plumb_h5_put(w, "u8", PLUMB_H5_STORE_U8, 1, one, u8, PLUMB_H5_PACK, NULL);
	plumb_h5_put(w, "scalar", PLUMB_H5_STORE_F32, 0, NULL, six, PLUMB_H5_PACK, NULL);
	plumb_h5_put(w, "nothing", PLUMB_H5_STORE_F32, 2, none, NULL, PLUMB_H5_PACK, NULL);
	plumb_h5_put(w, "wide", PLUMB_H5_STORE_F32, 2, (int64_t[]){1, ROWS * WIDTH}, rows, PLUMB_H5_PLAIN, NULL);
	plumb_h5_put_group(w, "empty/group", NULL);
	plumb_h5_put_text(w, "a", "note", "", NULL);
	plumb_h5_put_integer(w, "a/b/f32", "layer", 2, NULL);
	if (plumb_h5_stream(w, "rows", PLUMB_H5_STORE_F32, 2, grown, PLUMB_H5_PACK, &s, NULL) != PLUMB_OK)
		return PLUMB_BAD_INPUT;
	for (int64_t r = 0; r < ROWS; r += step)
		plumb_h5_append(s, r + step > ROWS ? ROWS - r : step, rows + r * WIDTH, NULL);
	ck_assert_int_eq(plumb_h5_stream_rows(s), ROWS);
	return PLUMB_OK;
}

static void write_file(const char *name, int64_t step, int32_t seed)
{
	struct plumb_h5_writer *w;

	ck_ok(plumb_h5_create(name, &w, &err));
	fill(w, step, seed);
	ck_ok(plumb_h5_commit(w, &err));
}

/* Entries of the folder, "." and ".." left out. */
static int files(void)
{
	DIR *d = opendir(folder);
	int n = -2;

	while (readdir(d))
		n++;
	closedir(d);
	return n;
}

static struct plumb_h5 *open_h5(const char *name)
{
	struct plumb_h5 *file;

	ck_ok(plumb_h5_open(name, &file, &err));
	return file;
}

START_TEST(test_round_trip)
{
	struct plumb_golden_tensor t;
	struct plumb_h5 *file;
	int64_t count;

	write_file(path, 17, 5);
	ck_assert_int_eq(files(), 1);
	file = open_h5(path);
	plumb_h5_entries(file, &count);
	ck_assert_int_eq(count, 9);
	ck_assert_str_eq(plumb_h5_attribute(file, "", "producer")->text, "a test, \xc3\xa9");
	ck_assert_int_eq(plumb_h5_attribute(file, "", "version")->integer, -3);
	ck_assert(plumb_h5_attribute(file, "", "scale")->real == 0.1);
	ck_assert_str_eq(plumb_h5_attribute(file, "a", "note")->text, "");
	ck_assert_int_eq(plumb_h5_attribute(file, "a/b/f32", "layer")->integer, 2);

	ck_ok(plumb_h5_read_f32(file, "a/b/f32", &t, &err));
	ck_assert(t.rank == 2 && t.dim[0] == 2 && t.dim[1] == 3 && memcmp(t.f32, six, sizeof six) == 0);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_f32(file, "a/b/f64", &t, &err));
	ck_assert(t.f32[0] == 1.0f && t.f32[3] > 1e38f && t.f32[5] == 4.0f);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_i64(file, "a/i32", &t, &err));
	ck_assert(t.i64[0] == INT32_MIN && t.i64[4] == INT32_MAX && t.i64[5] == 5);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_i64(file, "i64", &t, &err));
	ck_assert(t.i64[0] == INT64_MIN && t.i64[4] == INT64_MAX && t.i64[5] == 7);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_u8(file, "u8", &t, &err));
	ck_assert(t.count == 6 && t.u8[0] == 0 && t.u8[3] == 128 && t.u8[5] == 255 && !t.i64 && !t.f32);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_f32(file, "scalar", &t, &err));
	ck_assert(t.rank == 0 && t.count == 1 && t.f32[0] == 1.0f);
	plumb_golden_tensor_free(&t);
	ck_ok(plumb_h5_read_f32(file, "nothing", &t, &err));
	ck_assert(t.rank == 2 && t.count == 0 && t.dim[1] == 4);
	plumb_golden_tensor_free(&t);
	for (int k = 0; k < 2; k++) {
		ck_ok(plumb_h5_read_f32(file, k ? "wide" : "rows", &t, &err));
		ck_assert_int_eq(t.count, ROWS * WIDTH);
		for (int64_t i = 0; i < t.count; i++)
			ck_assert(t.f32[i] == row_value(i));
		plumb_golden_tensor_free(&t);
	}
	plumb_h5_close(file);
}
END_TEST

/* Bytes are asked for as bytes: signed ones, wider ones and floats are refused, and the file stays readable. */
START_TEST(test_bytes_only)
{
	int8_t i8[2] = {-1, 1};
	struct plumb_golden_tensor t;
	struct plumb_h5 *file;
	hid_t f = create(path);

	put(f, "signed", H5T_STD_I8LE, H5T_NATIVE_INT8, 1, (hsize_t[]){2}, H5P_DEFAULT, i8);
	put(f, "wide", H5T_STD_U16LE, H5T_NATIVE_INT8, 1, (hsize_t[]){2}, H5P_DEFAULT, i8);
	put(f, "float", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, 1, (hsize_t[]){2}, H5P_DEFAULT, six);
	put(f, "u8", H5T_STD_U8LE, H5T_NATIVE_INT8, 1, (hsize_t[]){2}, H5P_DEFAULT, i8);
	H5Fclose(f);
	file = open_h5(path);
	for (int k = 0; k < 3; k++) {
		static const char *const name[] = {"signed", "wide", "float"};
		ck_assert_int_eq(plumb_h5_read_u8(file, name[k], &t, &err), PLUMB_BAD_INPUT);
		ck_assert_msg(strstr(err.text, name[k]) && strstr(err.text, "expected"), "%s", err.text);
		ck_assert_ptr_null(t.u8);
	}
	plumb_h5_limit(file, 1);
	ck_assert_int_eq(plumb_h5_read_u8(file, "u8", &t, &err), PLUMB_BAD_INPUT);
	plumb_h5_limit(file, 2);
	ck_ok(plumb_h5_read_u8(file, "u8", &t, &err));
	ck_assert(t.u8[0] == 0 && t.u8[1] == 1); /* -1 was clipped when it was written */
	plumb_golden_tensor_free(&t);
	plumb_h5_close(file);
}
END_TEST

START_TEST(test_same_bytes)
{
	size_t size[3];
	char *data[3];

	write_file(path, 17, 5);
	data[0] = scratch_read(path, &size[0]);
	nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 100000000}, NULL); /* a stamp in seconds would differ */
	write_file(other, ROWS, 5);
	data[1] = scratch_read(other, &size[1]);
	ck_assert(size[0] == size[1] && memcmp(data[0], data[1], size[0]) == 0);
	write_file(other, 1, 6);
	data[2] = scratch_read(other, &size[2]);
	ck_assert(size[2] != size[0] || memcmp(data[2], data[0], size[0]) != 0);
	for (int k = 0; k < 3; k++)
		free(data[k]);
}
END_TEST

START_TEST(test_refusals)
{
	static const char *const names[] = {"", "/a", "a/", "a//b", ".", "a/../b", "a/."};
	int64_t dim[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1};
	struct plumb_h5_writer *w, *again;
	char inside[SCRATCH_PATH];

	ck_assert_int_eq(plumb_h5_create(folder, &w, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "regular"), "%s", err.text);
	ck_assert_ptr_null(w);
	ck_assert_int_eq(plumb_h5_create(scratch_path(inside, folder, "no/such.h5"), &w, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "No such file"), "%s", err.text);
	ck_assert_int_eq(plumb_h5_create("x.h5.unfinished-12", &w, &err), PLUMB_BAD_INPUT);
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		ck_ok(plumb_h5_create(path, &w, &err));
		ck_assert_int_eq(plumb_h5_put(w, names[i], PLUMB_H5_STORE_F32, 1, dim, six, PLUMB_H5_PLAIN, &err), 2);
		ck_assert_int_eq(plumb_h5_commit(w, &err), PLUMB_BAD_INPUT);
	}
	ck_ok(plumb_h5_create(path, &w, &err));
	ck_assert_int_eq(plumb_h5_create(path, &again, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "already"), "%s", err.text);
	ck_assert_int_eq(plumb_h5_put(w, "a", PLUMB_H5_STORE_F32, 9, dim, six, PLUMB_H5_PLAIN, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "rank 9, expected 0..8"), "%s", err.text);
	ck_assert_int_eq(plumb_h5_put(w, "b", PLUMB_H5_STORE_F32, 1, dim, six, PLUMB_H5_PLAIN, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "rank 9"), "the first message stays: %s", err.text);
	plumb_h5_abort(w);
	ck_ok(plumb_h5_create(path, &w, &err));
	ck_ok(plumb_h5_put(w, "a", PLUMB_H5_STORE_F32, 1, dim, six, PLUMB_H5_PLAIN, &err));
	ck_assert_int_eq(plumb_h5_put(w, "a", PLUMB_H5_STORE_F32, 1, dim, six, PLUMB_H5_PLAIN, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, " a: "), "%s", err.text);
	plumb_h5_abort(w);
	ck_assert_int_eq(files(), 0);
}
END_TEST

/* An aborted or failed write leaves the old file as it was, and nothing else. */
START_TEST(test_old_file_stays)
{
	struct plumb_h5_writer *w;
	struct rlimit limit = {.rlim_cur = 100000, .rlim_max = RLIM_INFINITY}, before;
	size_t size, now;
	char *old, *after;

	write_file(path, 17, 5);
	old = scratch_read(path, &size);
	ck_ok(plumb_h5_create(path, &w, &err));
	fill(w, 100, 6);
	plumb_h5_abort(w);
	ck_assert_int_eq(files(), 1);

	signal(SIGXFSZ, SIG_IGN); /* as the program does; a full disk looks the same */
	getrlimit(RLIMIT_FSIZE, &before);
	limit.rlim_max = before.rlim_max;
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	ck_ok(plumb_h5_create(path, &w, &err));
	fill(w, 100, 6);
	ck_assert_int_eq(plumb_h5_commit(w, &err), PLUMB_BAD_INPUT);
	ck_assert_msg(strstr(err.text, "cannot write") && strstr(err.text, "File too large"), "%s", err.text);
	setrlimit(RLIMIT_FSIZE, &before);
	ck_assert_int_eq(files(), 1);
	after = scratch_read(path, &now);
	ck_assert(now == size && memcmp(after, old, size) == 0);
	free(old);
	free(after);
	write_file(path, 17, 6); /* and the library still works */
}
END_TEST

/* Every single flipped bit, sampled: the file is refused, or its values are what they were. */
START_TEST(test_flipped_bits)
{
	size_t size;
	char *data;
	int refused = 0, tried = 0;
	struct plumb_h5_writer *w;
	int64_t dim[1] = {6};

	ck_ok(plumb_h5_create(path, &w, &err));
	plumb_h5_put_text(w, "", "producer", "a test", NULL);
	plumb_h5_put(w, "a/values", PLUMB_H5_STORE_F32, 1, dim, six, PLUMB_H5_PLAIN, NULL);
	ck_ok(plumb_h5_commit(w, &err));
	data = scratch_read(path, &size);
	for (size_t i = 0; i < size; i += 3) {
		struct plumb_golden_tensor t = {0};
		struct plumb_h5 *file;
		bool fine;

		tried++;
		data[i] ^= (char)(1 << i % 8);
		scratch_write(folder, "other.h5", data, size);
		data[i] ^= (char)(1 << i % 8);
		fine = plumb_h5_open(other, &file, &err) == PLUMB_OK;
		if (fine) {
			const struct plumb_h5_attribute *a = plumb_h5_attribute(file, "", "producer");
			bool whole = plumb_h5_read_f32(file, "a/values", &t, &err) == PLUMB_OK;

			fine = whole;
			if (whole) {
				ck_assert_msg(a && strcmp(a->text, "a test") == 0, "byte %zu", i);
				ck_assert_msg(memcmp(t.f32, six, sizeof six) == 0, "byte %zu", i);
			}
			plumb_golden_tensor_free(&t);
			plumb_h5_close(file);
		}
		refused += !fine;
	}
	ck_assert_msg(refused > tried / 4, "%d of %d refused", refused, tried);
	free(data);
}
END_TEST

/* Nanoseconds that one file takes here and now. */
static long write_time(void)
{
	struct timespec start, end;

	clock_gettime(CLOCK_MONOTONIC, &start);
	write_file(path, 100, 0);
	clock_gettime(CLOCK_MONOTONIC, &end);
	return (end.tv_sec - start.tv_sec) * 1000000000L + end.tv_nsec - start.tv_nsec;
}

/* Killed at a random moment, 100 times: the target is the old file or the new one, whole; what else is left says of
 * itself that it is unfinished. */
START_TEST(test_killed)
{
	unsigned random = 12345;
	int kept = 0, replaced = 0, left = 0;
	long span = 4 * write_time(); /* of the moments: some files' time */

	if (span > 900000000L)
		span = 900000000L;
	for (int round = 1; round <= 100; round++) {
		pid_t pid = fork();
		struct plumb_golden_tensor t;
		struct plumb_h5 *file;
		struct dirent *e;
		int64_t last;
		DIR *d;

		if (pid == 0) {
			for (int32_t n = 1; n <= 1000; n++) {
				struct plumb_h5_writer *w;
				if (plumb_h5_create(path, &w, NULL) != PLUMB_OK)
					_exit(1);
				fill(w, 100, round * 1000 + n);
				plumb_h5_commit(w, NULL);
			}
			_exit(0);
		}
		random = random * 1664525u + 1013904223u;
		nanosleep(&(struct timespec){.tv_nsec = (long)(random >> 8) % 1000 * (span / 1000)}, NULL);
		kill(pid, SIGKILL);
		waitpid(pid, NULL, 0);
		file = open_h5(path);
		ck_ok(plumb_h5_read_i64(file, "a/i32", &t, &err));
		last = t.i64[5];
		plumb_golden_tensor_free(&t);
		ck_ok(plumb_h5_read_f32(file, "rows", &t, &err));
		ck_assert(t.count == ROWS * WIDTH && t.f32[t.count - 1] == row_value(t.count - 1));
		plumb_golden_tensor_free(&t);
		plumb_h5_close(file);
		kept += last / 1000 != round;
		replaced += last / 1000 == round;
		d = opendir(folder);
		while ((e = readdir(d))) {
			if (e->d_name[0] == '.' || strcmp(e->d_name, "golden.h5") == 0)
				continue;
			ck_assert_msg(plumb_h5_is_unfinished(e->d_name), "%s", e->d_name);
			scratch_path(other, folder, e->d_name);
			ck_refused(other, "unfinished");
			unlink(other);
			left++;
		}
		closedir(d);
	}
	ck_assert_msg(left > 5, "%d left-overs in 100 kills: the test does not hit the writing", left);
	ck_assert_msg(replaced > 5, "%d replaced, %d kept", replaced, kept);
}
END_TEST

/* A left-over under another name: the library sees that it was never closed. */
START_TEST(test_renamed_left_over)
{
	pid_t pid = fork();
	char left[SCRATCH_PATH + 32];

	if (pid == 0) {
		struct plumb_h5_writer *w;
		if (plumb_h5_create(path, &w, NULL) != PLUMB_OK)
			_exit(1);
		fill(w, 100, 1);
		kill(getpid(), SIGKILL);
	}
	waitpid(pid, NULL, 0);
	snprintf(left, sizeof left, "%s.unfinished-%ld", path, (long)pid);
	ck_assert_int_eq(rename(left, path), 0);
	ck_refused(path, "");
}
END_TEST

static void abandon(int signal_number)
{
	plumb_h5_abandon();
	_exit(signal_number);
}

START_TEST(test_interrupted)
{
	int ready[2], status;
	char byte;
	pid_t pid;

	ck_assert_int_eq(pipe(ready), 0);
	pid = fork();
	if (pid == 0) {
		struct plumb_h5_writer *w;
		signal(SIGINT, abandon);
		plumb_h5_create(path, &w, NULL);
		fill(w, 100, 1);
		if (write(ready[1], "x", 1) == 1)
			pause();
		_exit(99);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	ck_assert_int_eq(files(), 1);
	kill(pid, SIGINT);
	waitpid(pid, &status, 0);
	ck_assert_int_eq(WEXITSTATUS(status), SIGINT);
	ck_assert_int_eq(files(), 0);
	close(ready[0]);
	close(ready[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("h5_write");
	TCase *tc = suite_part(suite, "h5_write", 120);

	H5dont_atexit(); /* before the library's first use; the program's writer does it in time */
	tcase_add_checked_fixture(tc, golden_files_set_up, golden_files_tear_down);
	tcase_add_test(tc, test_round_trip);
	tcase_add_test(tc, test_bytes_only);
	tcase_add_test(tc, test_same_bytes);
	tcase_add_test(tc, test_refusals);
	tcase_add_test(tc, test_old_file_stays);
	tcase_add_test(tc, test_flipped_bits);
	tcase_add_test(tc, test_killed);
	tcase_add_test(tc, test_renamed_left_over);
	tcase_add_test(tc, test_interrupted);
	return suite_run(suite);
}
