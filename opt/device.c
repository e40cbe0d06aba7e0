/* SPDX-License-Identifier: MIT */
/* Devices: opening them, and what stage code asks of them (scratch, counters, banks). What differs between kinds is
 * behind struct plumb_backend: here that of simt, in opt/cuda.c that of cuda. */
#include "opt/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "opt/device_private.h"
#include "opt/matrix.h"
#include "opt/mirror.h"
#include "opt/opt.h"

enum { ALIGNMENT = 256, MIN_COUNTERS = 1024, FILL_CHUNK = 4096 };

/* ---- simt ---- */

static void simt_describe(struct plumb_device *d)
{
	d->simt.seed = d->options.seed;
	snprintf(d->description, sizeof d->description, "simt, seed %llu%s%s", (unsigned long long)d->options.seed,
		d->options.race ? ", race check" : "", d->own_memory ? ", own memory" : "");
}

static int simt_open(struct plumb_device *d, struct plumb_error *err)
{
	(void)err;
	d->stream = &d->simt;
#ifndef PLUMB_RACE
	if (d->options.race)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "device simt: this build has no race check (it has sanitizers instead)");
#endif
	simt_describe(d);
	return PLUMB_OK;
}

static void simt_close(struct plumb_device *d)
{
	plumb_simt_free(&d->simt);
}

static void *simt_take(struct plumb_device *d, size_t bytes, struct plumb_error *err)
{
	size_t whole = (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	void *m = whole >= bytes ? aligned_alloc(ALIGNMENT, whole ? whole : ALIGNMENT) : NULL;

	(void)d;
	if (!m)
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory on simt (one buffer of %zu bytes)", bytes);
	return m;
}

static void simt_give(struct plumb_device *d, void *memory)
{
	plumb_simt_settle(&d->simt);
	free(memory);
}

static int simt_copy(struct plumb_device *d, void *to, const void *from, size_t bytes, struct plumb_error *err)
{
	(void)err;
	plumb_simt_settle(&d->simt);
	memcpy(to, from, bytes);
	return PLUMB_OK;
}

static int simt_sync(struct plumb_device *d, struct plumb_error *err)
{
	(void)err;
	plumb_simt_settle(&d->simt);
	return PLUMB_OK;
}

static double microseconds_now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static int simt_time_begin(struct plumb_device *d, struct plumb_error *err)
{
	(void)err;
	d->time = microseconds_now();
	return PLUMB_OK;
}

static int simt_time_end(struct plumb_device *d, double *microseconds, struct plumb_error *err)
{
	(void)err;
	*microseconds = microseconds_now() - d->time;
	return PLUMB_OK;
}

static enum plumb_status simt_reason(const struct plumb_device *d, int status, const char **text)
{
	*text = d->simt.error[0] ? d->simt.error : "the launcher refused its arguments";
	/* a kernel that does what is undefined is a wrong kernel; a launch that is not possible is wrong usage */
	return status == PLUMB_SIMT_FAULT ? PLUMB_MISMATCH : PLUMB_BAD_INPUT;
}

const struct plumb_backend plumb_backend_simt = {
	.name = "simt",
	.open = simt_open,
	.close = simt_close,
	.take = simt_take,
	.give = simt_give,
	.upload = simt_copy,
	.download = simt_copy,
	.sync = simt_sync,
	.time_begin = simt_time_begin,
	.time_end = simt_time_end,
	.reason = simt_reason,
};

/* ---- open and close ---- */

int plumb_device_open(enum plumb_device_kind kind, const struct plumb_device_options *options, struct plumb_device **out,
	struct plumb_error *err)
{
	const struct plumb_backend *backend = &plumb_backend_simt;
	struct plumb_device *d;
	int status;

	if (kind == PLUMB_DEVICE_CUDA) {
#ifdef PLUMB_HAVE_CUDA
		backend = &plumb_backend_cuda;
#else
		return plumb_fail(err, PLUMB_NO_DEVICE,
			"device cuda: this Plumb was built without cuda (configure with -DPLUMB_CUDA=ON)");
#endif
	} else if (kind != PLUMB_DEVICE_SIMT) {
		return plumb_fail(err, PLUMB_BAD_INPUT, "device kind is %d, expected simt or cuda", (int)kind);
	}
	d = calloc(1, sizeof *d);
	if (!d)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device");
	d->kind = kind;
	if (options)
		d->options = *options;
	d->own_memory = kind == PLUMB_DEVICE_CUDA || d->options.own_memory;
	d->options.traps = kind == PLUMB_DEVICE_SIMT && d->options.traps;
	status = backend->open(d, err);
	if (status != PLUMB_OK) {
		free(d);
		return status;
	}
	d->backend = backend;
	plumb_device_poison(d, d->options.poison, NULL);
	if (d->own_memory)
		status = plumb_mirror_create(d, err);
	if (status != PLUMB_OK) {
		plumb_device_close(d);
		return status;
	}
	*out = d;
	return PLUMB_OK;
}

static void drop_banks(struct plumb_device *d)
{
	for (size_t i = 0; i < d->banks; i++) {
		free(d->bank[i].host);
		d->backend->give(d, d->bank[i].device);
	}
	d->banks = 0;
}

static void drop_retired(struct plumb_device *d)
{
	for (size_t i = 0; i < d->retirees; i++)
		d->backend->give(d, d->retired[i]);
	d->retirees = 0;
}

void plumb_device_close(struct plumb_device *d)
{
	if (!d)
		return;
	(void)d->backend->sync(d, NULL); /* an error of a launch has been told, or nobody asked */
	plumb_mirror_destroy(d);
	drop_banks(d);
	drop_retired(d);
	plumb_scratch_drop(d);
	d->backend->give(d, d->counter);
	d->backend->close(d);
	free(d->bank);
	free(d->retired);
	free(d);
}

int plumb_device_forget(struct plumb_device *d, struct plumb_error *err)
{
	int status = d->own_memory ? plumb_mirror_hand_back(d, err) : PLUMB_OK;

	if (status == PLUMB_OK)
		status = plumb_device_sync(d, err);
	drop_banks(d);
	drop_retired(d);
	d->generation++;
	if (d->own_memory) {
		plumb_mirror_destroy(d);
		if (status == PLUMB_OK)
			status = plumb_mirror_create(d, err);
	}
	return status;
}

void plumb_device_reschedule(struct plumb_device *d, uint64_t seed)
{
	if (plumb_device_is_cuda(d))
		return;
	d->options.seed = seed;
	simt_describe(d);
}

const char *plumb_device_name(const struct plumb_device *d)
{
	return d->backend->name;
}

const char *plumb_device_description(const struct plumb_device *d)
{
	return d->description;
}

const struct plumb_set *plumb_device_set(const struct plumb_device *d)
{
	return d->own_memory ? &plumb_opt_mirrored_set : &plumb_opt_set;
}

int plumb_device_sync(struct plumb_device *d, struct plumb_error *err)
{
	return d->backend->sync(d, err);
}

int plumb_device_time_begin(struct plumb_device *d, struct plumb_error *err)
{
	return d->backend->time_begin(d, err);
}

int plumb_device_time_end(struct plumb_device *d, double *microseconds, struct plumb_error *err)
{
	return d->backend->time_end(d, microseconds, err);
}

/* ---- what stage code asks ---- */

bool plumb_device_is_cuda(const struct plumb_device *d)
{
	return d->kind == PLUMB_DEVICE_CUDA;
}

bool plumb_device_is_race(const struct plumb_device *d)
{
	return d->options.race;
}

void *plumb_device_stream(const struct plumb_device *d)
{
	return d->stream;
}

int plumb_device_status(const struct plumb_env *env, const char *launcher, int status)
{
	const struct plumb_device *d = env->device;
	const char *text = "";
	enum plumb_status result;

	if (status == 0)
		return PLUMB_OK;
	result = d->backend->reason(d, status, &text);
	if (d->op && strcmp(d->op, launcher) != 0)
		return plumb_fail(env->err, result, "%s on %s, launch of %s: %s", d->op, d->backend->name, launcher, text);
	return plumb_fail(env->err, result, "%s on %s: %s", launcher, d->backend->name, text);
}

int plumb_device_retire(struct plumb_device *d, void *memory, struct plumb_error *err)
{
	if (!memory)
		return PLUMB_OK;
	if (d->retirees == d->retired_room) {
		size_t room = d->retired_room ? 2 * d->retired_room : 16;
		void **list = realloc(d->retired, room * sizeof *list);
		if (!list)
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a list of %zu buffers", room);
		d->retired = list;
		d->retired_room = room;
	}
	d->retired[d->retirees++] = memory;
	d->generation++;
	return PLUMB_OK;
}

int plumb_device_fill(struct plumb_device *d, void *to, size_t bytes, struct plumb_error *err)
{
	unsigned char chunk[FILL_CHUNK];
	int status = PLUMB_OK;

	for (size_t at = 0; at < bytes && status == PLUMB_OK; at += sizeof chunk) {
		size_t n = bytes - at < sizeof chunk ? bytes - at : sizeof chunk;
		plumb_poison_fill(d->poison, PLUMB_POISON_32, chunk, at / 4, sizeof chunk / 4);
		status = d->backend->upload(d, (unsigned char *)to + at, chunk, n, err);
	}
	return status;
}

int plumb_device_zones(struct plumb_device *d, const unsigned char *memory, size_t bytes, size_t zone, const char *what,
	struct plumb_error *err)
{
	unsigned char before[PLUMB_GUARD_ZONE], after[PLUMB_GUARD_ZONE];
	const char *op = d->op ? d->op : "an op";
	int status = d->backend->download(d, before, memory - PLUMB_GUARD_ZONE, PLUMB_GUARD_ZONE, err);

	plumb_poison_fill(d->poison, PLUMB_POISON_32, after, 0, PLUMB_GUARD_ZONE / 4);
	if (status == PLUMB_OK && zone > 0)
		status = d->backend->download(d, after, memory + bytes, zone, err);
	if (status != PLUMB_OK)
		return status;
	size_t last = plumb_poison_zone_last(d->poison, before), first = plumb_poison_zone_first(d->poison, after);
	if (last < PLUMB_GUARD_ZONE)
		return plumb_fail(err, PLUMB_MISMATCH, "%s wrote outside %s on %s: %zu bytes before its first byte", op,
			what, d->backend->name, (size_t)PLUMB_GUARD_ZONE - last);
	if (first < PLUMB_GUARD_ZONE)
		return plumb_fail(err, PLUMB_MISMATCH, "%s wrote outside %s on %s: %zu bytes after its last byte (of %zu)",
			op, what, d->backend->name, first + 1, bytes);
	return PLUMB_OK;
}

size_t plumb_device_grown(size_t least, size_t wanted)
{
	while (least < wanted && least <= SIZE_MAX / 4)
		least *= 2;
	return least < wanted ? wanted : least;
}

uint32_t *plumb_device_counters(const struct plumb_env *env, size_t count)
{
	struct plumb_device *d = env->device;

	if (count > d->counters || !d->counter) {
		size_t room = plumb_device_grown(MIN_COUNTERS, count);
		uint32_t *zero = room <= SIZE_MAX / sizeof *zero ? calloc(room, sizeof *zero) : NULL;
		if (!zero) {
			plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for %zu counters", count);
			return NULL;
		}
		uint32_t *counter = d->backend->take(d, room * sizeof *counter, env->err);
		int status =
			counter ? d->backend->upload(d, counter, zero, room * sizeof *zero, env->err) : PLUMB_BAD_INPUT;
		if (status == PLUMB_OK)
			status = plumb_device_retire(d, d->counter, env->err);
		free(zero);
		if (status != PLUMB_OK) {
			d->backend->give(d, counter);
			return NULL;
		}
		d->counter = counter;
		d->counters = room;
	}
	return d->counter;
}

/* The matrices of a bank must be alike, or one kernel cannot take them all. */
static int bank_refused(const struct plumb_env *env, const struct plumb_weight *bank, int64_t count)
{
	struct plumb_error *err = env->err;
	int status;

	if (count < 1)
		return plumb_fail(err, PLUMB_BAD_INPUT, "a bank of %lld matrices, expected at least 1", (long long)count);
	status = plumb_matrix_check(env, "matrix 0 of a bank", &bank[0]);
	if (status != PLUMB_OK)
		return status;
	for (int64_t i = 1; i < count; i++) {
		if (bank[i].format != bank[0].format)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"matrix %lld of a bank is stored as %s, matrix 0 as %s: one "
				"kernel reads them all, so they must be alike",
				(long long)i, plumb_format_name(bank[i].format), plumb_format_name(bank[0].format));
		if (!bank[i].scale && bank[0].scale)
			return plumb_fail(err, PLUMB_BAD_INPUT, "matrix %lld of a bank has no scales, matrix 0 has some",
				(long long)i);
		if (bank[i].scale && bank[i].scale_format != bank[0].scale_format)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"matrix %lld of a bank has scales stored as %s, matrix 0 as %s", (long long)i,
				plumb_format_name(bank[i].scale_format), plumb_format_name(bank[0].scale_format));
		if (bank[i].cols != bank[0].cols)
			return plumb_fail(err, PLUMB_BAD_INPUT, "matrix %lld of a bank has %lld columns, matrix 0 has %lld",
				(long long)i, (long long)bank[i].cols, (long long)bank[0].cols);
		if (bank[i].rows != bank[0].rows && i != count - 1)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"matrix %lld of a bank has %lld rows, matrix 0 has %lld; only "
				"the last of a bank may differ",
				(long long)i, (long long)bank[i].rows, (long long)bank[0].rows);
	}
	return PLUMB_OK;
}

enum { BANK_ENTRY = 2 * sizeof(const void *) + sizeof(float) }; /* bytes of a matrix in the arrays */

/* The arrays of a bank, into BANK_ENTRY * count bytes. */
static void bank_arrays(const struct plumb_weight *bank, int64_t count, unsigned char *out)
{
	size_t n = (size_t)count, pointer = sizeof(const void *);

	for (size_t i = 0; i < n; i++) {
		memcpy(out + i * pointer, &bank[i].data, pointer);
		memcpy(out + (n + i) * pointer, &bank[i].scale, pointer);
		memcpy(out + 2 * n * pointer + i * sizeof(float), &bank[i].global, sizeof(float));
	}
}

/* Make the arrays of *p; host: as bank_arrays fills them, taken over. */
static int bank_make(struct plumb_device *d, struct plumb_bank_pointers *p, const struct plumb_weight *bank, int64_t count,
	unsigned char *host, struct plumb_error *err)
{
	size_t bytes = (size_t)count * BANK_ENTRY;
	unsigned char *device = d->backend->take(d, bytes, err);
	int status = device ? d->backend->upload(d, device, host, bytes, err) : PLUMB_BAD_INPUT;

	if (status == PLUMB_OK)
		status = plumb_device_retire(d, p->device, err);
	if (status != PLUMB_OK) {
		d->backend->give(d, device);
		free(host);
		return status;
	}
	free(p->host);
	*p = (struct plumb_bank_pointers){bank, count, host, device};
	return PLUMB_OK;
}

int plumb_device_bank(
	const struct plumb_env *env, const struct plumb_weight *bank, int64_t count, struct plumb_device_bank *out)
{
	struct plumb_device *d = env->device;
	int status = bank_refused(env, bank, count);
	size_t i = 0, n = (size_t)count;

	if (status != PLUMB_OK)
		return status;
	while (i < d->banks && d->bank[i].bank != bank)
		i++;
	if (i == d->banks) {
		if (d->banks == d->bank_room) {
			size_t room = d->bank_room ? 2 * d->bank_room : 64;
			struct plumb_bank_pointers *list = realloc(d->bank, room * sizeof *list);
			if (!list)
				return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a list of %zu banks", room);
			d->bank = list;
			d->bank_room = room;
		}
		d->bank[i] = (struct plumb_bank_pointers){0};
	}
	/* another bank may live at the address of one that was freed: the arrays tell */
	unsigned char *host = malloc(n * BANK_ENTRY);
	if (!host)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a bank of %lld matrices", (long long)count);
	bank_arrays(bank, count, host);
	struct plumb_bank_pointers *p = &d->bank[i];
	if (i < d->banks && p->count == count && memcmp(p->host, host, n * BANK_ENTRY) == 0) {
		free(host);
	} else {
		status = bank_make(d, p, bank, count, host, env->err);
		if (status != PLUMB_OK)
			return status;
		d->banks += i == d->banks;
	}
	const void *const *pointer = (const void *const *)(const void *)p->device;
	int wide = 1;
	for (int64_t m = 0; m < count; m++)
		wide = wide && plumb_matrix_wide((int)bank[m].format, bank[m].data, bank[m].cols);
	out->matrices = (struct plumb_matrix_bank){
		.wide = wide,
		.data = pointer,
		.scale = pointer + n,
		.global = (const float *)(const void *)(pointer + 2 * n),
		.format = (int)bank[0].format,
		.scale_format = (int)bank[0].scale_format,
	};
	out->rows = bank[0].rows;
	out->cols = bank[0].cols;
	return PLUMB_OK;
}

/* ---- guarded runs ---- */

void plumb_device_poison(struct plumb_device *d, enum plumb_poison poison, const char *op)
{
	d->poison = poison;
	d->op = op;
	for (int i = 0; i < PLUMB_SCRATCH_SLOTS; i++)
		d->scratch[i].asked = 0;
	d->simt.poison = poison == PLUMB_POISON_NAN     ? PLUMB_SIMT_POISON_NAN
	                 : poison == PLUMB_POISON_LARGE ? PLUMB_SIMT_POISON_LARGE
	                                                : PLUMB_SIMT_POISON_BY_SEED;
}

enum plumb_poison plumb_device_poisoned(const struct plumb_device *d)
{
	return d->poison;
}

int plumb_device_check(struct plumb_device *d, struct plumb_error *err)
{
	int status = plumb_device_sync(d, err);

	if (status == PLUMB_OK)
		status = plumb_scratch_check(d, err);
	if (status != PLUMB_OK || !d->counter)
		return status;
	uint32_t *counter = malloc(d->counters * sizeof *counter);
	if (!counter)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu counters", d->counters);
	status = d->backend->download(d, counter, d->counter, d->counters * sizeof *counter, err);
	for (size_t i = 0; i < d->counters && status == PLUMB_OK; i++)
		if (counter[i] != 0)
			status = plumb_fail(err, PLUMB_MISMATCH,
				"%s left counter %zu at %u on %s, expected 0: the next op "
				"counts from there",
				d->op ? d->op : "an op", i, counter[i], d->backend->name);
	free(counter);
	return status;
}
