/* SPDX-License-Identifier: MIT */
#include "opt/stored.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/synthetic.h"

enum {
	ALIGN = 256,  /* of a matrix inside a bank: what the device's allocator gives a single one */
	SAMPLES = 64, /* words of a fingerprint that does not read everything */
};

/* A fingerprint reads a whole matrix up to the first size, a whole constant up to the second: 10 us and 1 ms at 6
 * GB/s. */
#define WHOLE_WEIGHT ((size_t)64 << 10)
#define WHOLE_CONSTANT ((size_t)4 << 20)

/* A bank: one device buffer, and the list of its matrices that stays at one address. */
struct plumb_bank {
	const struct plumb_weight *host;
	int64_t count;
	struct plumb_weight *seen;   /* (count) the host's matrices as uploaded */
	struct plumb_weight *device; /* (count) data and scales on the device */
	uint64_t *print;             /* (count) */
	struct plumb_buffer buffer;
};

/* ---- device memory ---- */

int plumb_buffer_reserve(struct plumb_device *d, struct plumb_buffer *b, size_t bytes, bool keep, struct plumb_error *err)
{
	size_t room = keep ? bytes : ALIGN;

	if (b->memory && b->room >= bytes)
		return PLUMB_OK;
	/* what grows from op to op doubles, but not gigabytes */
	while (room < bytes && room <= SIZE_MAX / 4)
		room *= 2;
	if (room < bytes || (bytes > (size_t)64 << 20))
		room = bytes;
	if (room > SIZE_MAX - (size_t)2 * PLUMB_GUARD_ZONE)
		return plumb_fail(err, PLUMB_BAD_INPUT, "a device buffer of %zu bytes is out of range", bytes);
	unsigned char *memory = d->backend->take(d, room + (size_t)2 * PLUMB_GUARD_ZONE, err);
	if (!memory)
		return PLUMB_BAD_INPUT;
	int status = PLUMB_OK;
	if (keep)
		status = plumb_device_retire(d, b->memory, err);
	else
		d->backend->give(d, b->memory);
	if (status != PLUMB_OK) {
		d->backend->give(d, memory);
		return status;
	}
	*b = (struct plumb_buffer){memory, room};
	return PLUMB_OK;
}

unsigned char *plumb_buffer_data(const struct plumb_buffer *b)
{
	return b->memory + PLUMB_GUARD_ZONE;
}

int plumb_buffer_zones(struct plumb_device *d, const struct plumb_buffer *b, size_t bytes, struct plumb_error *err)
{
	int status = plumb_device_fill(d, b->memory, PLUMB_GUARD_ZONE, err);
	if (status == PLUMB_OK)
		status = plumb_device_fill(d, plumb_buffer_data(b) + bytes, PLUMB_GUARD_ZONE, err);
	return status;
}

/* ---- tables ---- */

static uint64_t mix(uint64_t h, uint64_t v)
{
	h = (h ^ v) * 0x9E3779B97F4A7C15u;
	return h ^ h >> 32;
}

static struct plumb_copy **table_slot(const struct plumb_copy_table *t, const void *host, size_t key)
{
	size_t i = (size_t)mix(mix(1, (uintptr_t)host), key) & (t->room - 1);
	while (t->slot[i] && !(t->slot[i]->host == host && t->slot[i]->key == key))
		i = (i + 1) & (t->room - 1);
	return &t->slot[i];
}

struct plumb_copy *plumb_copy_find(const struct plumb_copy_table *t, const void *host, size_t key)
{
	return t->room ? *table_slot(t, host, key) : NULL;
}

struct plumb_copy *plumb_copy_take(struct plumb_copy_table *t, void *host, size_t key)
{
	struct plumb_copy *c = plumb_copy_find(t, host, key);

	if (c)
		return c;
	if (2 * (t->count + 1) > t->room) {
		struct plumb_copy_table bigger = {.room = t->room ? 2 * t->room : 64, .count = t->count};
		bigger.slot = calloc(bigger.room, sizeof(*bigger.slot));
		if (!bigger.slot)
			return NULL;
		for (size_t i = 0; i < t->room; i++)
			if (t->slot[i])
				*table_slot(&bigger, t->slot[i]->host, t->slot[i]->key) = t->slot[i];
		free(t->slot);
		*t = bigger;
	}
	c = calloc(1, sizeof *c);
	if (c) {
		c->host = host;
		c->key = key;
		*table_slot(t, host, key) = c;
		t->count++;
	}
	return c;
}

void plumb_copy_clear(struct plumb_device *d, struct plumb_copy_table *t)
{
	for (size_t i = 0; i < t->room; i++)
		if (t->slot[i]) {
			d->backend->give(d, t->slot[i]->buffer.memory);
			free(t->slot[i]);
		}
	free(t->slot);
	*t = (struct plumb_copy_table){0};
}

/* ---- weights and constants ---- */

static uint64_t fingerprint(const void *data, size_t bytes, size_t whole)
{
	const unsigned char *p = data;
	size_t step = bytes <= whole ? 8 : bytes / SAMPLES / 8 * 8, at = 0;
	uint64_t h = mix(2, bytes), v;

	for (; at + 8 <= bytes; at += step) {
		memcpy(&v, p + at, sizeof v);
		h = mix(h, v);
	}
	v = 0;
	at = bytes >= 8 ? bytes - 8 : 0; /* the end is in whatever the step */
	memcpy(&v, p + at, bytes - at);
	return mix(h, v);
}

/* Device address of host bytes that do not change; NULL with a message. */
static void *copy_of(
	struct plumb_device *d, struct plumb_stored *s, void *host, size_t bytes, size_t whole, struct plumb_error *err)
{
	struct plumb_copy *c = plumb_copy_take(&s->table, host, bytes);
	uint64_t print;

	if (!c) {
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device copy");
		return NULL;
	}
	if (c->buffer.memory && s->trusted)
		return plumb_buffer_data(&c->buffer);
	print = fingerprint(host, bytes, whole);
	if (c->buffer.memory && c->print == print)
		return plumb_buffer_data(&c->buffer);
	if (plumb_buffer_reserve(d, &c->buffer, bytes, true, err) != PLUMB_OK ||
		plumb_buffer_zones(d, &c->buffer, bytes, err) != PLUMB_OK ||
		d->backend->upload(d, plumb_buffer_data(&c->buffer), host, bytes, err) != PLUMB_OK)
		return NULL;
	c->bytes = bytes;
	c->print = print;
	return plumb_buffer_data(&c->buffer);
}

void *plumb_stored_constant(
	struct plumb_device *d, struct plumb_stored *s, void *host, size_t bytes, struct plumb_error *err)
{
	return copy_of(d, s, host, bytes, WHOLE_CONSTANT, err);
}

/* ---- weights that are made on demand: no byte of them comes from the host ---- */

/* What tells one made matrix from another, in place of a fingerprint of its bytes. */
static uint64_t made_print(const struct plumb_weight *w)
{
	uint32_t step, centre;
	memcpy(&step, &w->made->step, sizeof step);
	memcpy(&centre, &w->made->centre, sizeof centre);
	uint64_t h = mix(mix(3, w->made->key), (uint64_t)w->made->first);
	return mix(
		mix(mix(h, (uint64_t)step << 32 | centre), (uint64_t)w->cols), (uint64_t)w->format << 8 | w->scale_format);
}

/* Have the device write matrices whose data and scales are its own memory. */
static int make_on_device(struct plumb_device *d, const struct plumb_weight *w, int64_t count, struct plumb_error *err)
{
	const struct plumb_env env = {.device = d, .err = err};
	size_t n = (size_t)count, bytes = n * sizeof(struct plumb_synthetic_fill);
	struct plumb_synthetic_fill *fill = calloc(n, sizeof *fill), *there = NULL;
	int64_t most = 0;
	int status = PLUMB_OK;

	if (!fill)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a list of %lld matrices", (long long)count);
	for (size_t i = 0; i < n; i++) {
		void *data, *scale;
		memcpy(&data, &w[i].data, sizeof data); /* const to everyone but the maker */
		memcpy(&scale, &w[i].scale, sizeof scale);
		int64_t scales = (int64_t)plumb_weight_scale_bytes(&w[i]);
		if (w[i].format == PLUMB_FP8_ROW || w[i].format == PLUMB_FP8_BLOCK)
			scales /= (int64_t)plumb_format_row_bytes(w[i].scale_format, 1);
		fill[i] = (struct plumb_synthetic_fill){
			.tensor = *w[i].made,
			.data = data,
			.scale = scale,
			.data_bytes = (int64_t)plumb_weight_data_bytes(&w[i]),
			.scales = scales,
			.format = (int)w[i].format,
			.scale_format = (int)w[i].scale_format,
		};
		most = fill[i].data_bytes > most ? fill[i].data_bytes : most;
	}
	there = d->backend->take(d, bytes, err);
	status = there ? d->backend->upload(d, there, fill, bytes, err) : PLUMB_BAD_INPUT;
	if (status == PLUMB_OK)
		status = PLUMB_RUN(&env, synthetic, there, count, most);
	if (status == PLUMB_OK)
		status = d->backend->sync(d, err);
	d->backend->give(d, there);
	free(fill);
	return status;
}

/* Room for bytes that belong to a host address that is never read; NULL with a message. */
static struct plumb_copy *made_copy(
	struct plumb_device *d, struct plumb_stored *s, const void *address, size_t bytes, struct plumb_error *err)
{
	void *host;
	memcpy(&host, &address, sizeof host); /* a key */
	struct plumb_copy *c = plumb_copy_take(&s->table, host, bytes);

	if (!c) {
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device copy");
		return NULL;
	}
	if (!c->buffer.memory && (plumb_buffer_reserve(d, &c->buffer, bytes, true, err) != PLUMB_OK ||
					 plumb_buffer_zones(d, &c->buffer, bytes, err) != PLUMB_OK))
		return NULL;
	c->bytes = bytes;
	return c;
}

static int made_weight(struct plumb_device *d, struct plumb_stored *s, struct plumb_weight *w, struct plumb_error *err)
{
	size_t scale_bytes = plumb_weight_scale_bytes(w);
	struct plumb_copy *data = made_copy(d, s, w->data, plumb_weight_data_bytes(w), err);
	struct plumb_copy *scale = data && scale_bytes > 0 ? made_copy(d, s, w->scale, scale_bytes, err) : NULL;
	uint64_t print = made_print(w);
	int status = PLUMB_OK;

	if (!data || (scale_bytes > 0 && !scale))
		return PLUMB_BAD_INPUT;
	w->data = plumb_buffer_data(&data->buffer);
	w->scale = scale ? plumb_buffer_data(&scale->buffer) : NULL;
	if (data->print == print)
		return PLUMB_OK;
	status = make_on_device(d, w, 1, err);
	if (status == PLUMB_OK)
		data->print = print;
	return status;
}

/* The same of a part of a matrix. */
static const void *part_of(
	struct plumb_device *d, struct plumb_stored *s, const void *part, size_t bytes, struct plumb_error *err)
{
	void *host;

	memcpy(&host, &part, sizeof host); /* a copy's host address is also where state goes back: not const */
	return copy_of(d, s, host, bytes, WHOLE_WEIGHT, err);
}

int plumb_stored_weight(struct plumb_device *d, struct plumb_stored *s, struct plumb_weight *w, struct plumb_error *err)
{
	const void *data, *scale = NULL;
	size_t scale_bytes = plumb_weight_scale_bytes(w);

	if (w->made)
		return made_weight(d, s, w, err);
	data = part_of(d, s, w->data, plumb_weight_data_bytes(w), err);
	if (!data)
		return PLUMB_BAD_INPUT;
	if (w->scale && scale_bytes > 0) {
		scale = part_of(d, s, w->scale, scale_bytes, err);
		if (!scale)
			return PLUMB_BAD_INPUT;
	}
	w->data = data;
	w->scale = scale;
	return PLUMB_OK;
}

static bool matrix_same(const struct plumb_weight *a, const struct plumb_weight *b)
{
	return a->made == b->made && a->format == b->format && a->rows == b->rows && a->cols == b->cols &&
	       a->data == b->data && a->scale == b->scale && a->scale_format == b->scale_format &&
	       plumb_f32_bits(a->global) == plumb_f32_bits(b->global);
}

/* Bytes of the scales that a matrix of a bank has. */
static size_t scale_bytes_of(const struct plumb_weight *w)
{
	return w->scale ? plumb_weight_scale_bytes(w) : 0;
}

static uint64_t matrix_print(const struct plumb_weight *w)
{
	if (w->made)
		return made_print(w);
	uint64_t h = fingerprint(w->data, plumb_weight_data_bytes(w), WHOLE_WEIGHT);
	size_t bytes = scale_bytes_of(w);
	return bytes ? mix(h, fingerprint(w->scale, bytes, WHOLE_WEIGHT)) : h;
}

static size_t aligned(size_t bytes)
{
	return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static void bank_free(struct plumb_device *d, struct plumb_bank *b)
{
	d->backend->give(d, b->buffer.memory);
	free(b->seen);
	free(b->device);
	free(b->print);
	free(b);
}

/* Lay the matrices out in one device buffer. *out is set on success. */
static int bank_create(struct plumb_device *d, const struct plumb_weight *host, int64_t count, struct plumb_bank **out,
	struct plumb_error *err)
{
	size_t n = (size_t)count, bytes = 0, made = 0;
	struct plumb_bank *b = calloc(1, sizeof *b);
	int status = PLUMB_OK;

	if (b) {
		b->host = host;
		b->count = count;
		b->seen = calloc(n, sizeof *b->seen);
		b->device = calloc(n, sizeof *b->device);
		b->print = calloc(n, sizeof *b->print);
	}
	if (!b || !b->seen || !b->device || !b->print) {
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a bank of %lld matrices", (long long)count);
		goto failed;
	}
	for (size_t i = 0; i < n; i++)
		bytes += aligned(plumb_weight_data_bytes(&host[i])) + aligned(scale_bytes_of(&host[i]));
	status = plumb_buffer_reserve(d, &b->buffer, bytes, true, err);
	if (status == PLUMB_OK)
		status = plumb_buffer_zones(d, &b->buffer, bytes, err);
	bytes = 0;
	for (size_t i = 0; i < n && status == PLUMB_OK; i++) {
		unsigned char *data = plumb_buffer_data(&b->buffer) + bytes;
		size_t own = plumb_weight_data_bytes(&host[i]), scale_bytes = scale_bytes_of(&host[i]);
		unsigned char *scale = data + aligned(own);
		b->seen[i] = b->device[i] = host[i];
		b->device[i].data = data;
		b->device[i].scale = scale_bytes ? scale : NULL;
		b->print[i] = matrix_print(&host[i]);
		made += host[i].made != NULL;
		bytes += aligned(own) + aligned(scale_bytes);
		if (host[i].made)
			continue;
		status = d->backend->upload(d, data, host[i].data, own, err);
		if (status == PLUMB_OK && scale_bytes)
			status = d->backend->upload(d, scale, host[i].scale, scale_bytes, err);
	}
	if (status == PLUMB_OK && made > 0 && made < n)
		status = plumb_fail(err, PLUMB_BAD_INPUT,
			"a bank has %zu matrices made on demand of %zu, expected all or none", made, n);
	if (status == PLUMB_OK && made > 0)
		status = make_on_device(d, b->device, count, err);
	if (status == PLUMB_OK) {
		*out = b;
		return PLUMB_OK;
	}
failed:
	if (b)
		bank_free(d, b);
	return status;
}

/* Whether the device's matrices are still the host's. */
static bool bank_current(const struct plumb_bank *b)
{
	bool same = true;
	for (int64_t i = 0; i < b->count && same; i++)
		same = matrix_same(&b->seen[i], &b->host[i]) && b->print[i] == matrix_print(&b->host[i]);
	return same;
}

const struct plumb_weight *plumb_stored_bank(struct plumb_device *d, struct plumb_stored *s,
	const struct plumb_weight *host, int64_t count, struct plumb_error *err)
{
	struct plumb_bank *made = NULL;
	size_t i = 0;

	if (count < 1) {
		plumb_fail(err, PLUMB_BAD_INPUT, "a bank of %lld matrices, expected at least 1", (long long)count);
		return NULL;
	}
	while (i < s->banks && !(s->bank[i]->host == host && s->bank[i]->count == count))
		i++;
	if (i < s->banks && (s->trusted || bank_current(s->bank[i])))
		return s->bank[i]->device;
	if (i == s->bank_room) {
		size_t room = s->bank_room ? 2 * s->bank_room : 64;
		struct plumb_bank **list = realloc(s->bank, room * sizeof *list);
		if (!list) {
			plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a list of %zu banks", room);
			return NULL;
		}
		s->bank = list;
		s->bank_room = room;
	}
	if (bank_create(d, host, count, &made, err) != PLUMB_OK)
		return NULL;
	if (i < s->banks) {
		/* nothing is in flight in a copied call, so the old one can go; a graph made of it is no longer
		 * valid */
		bank_free(d, s->bank[i]);
		d->generation++;
	} else {
		s->banks++;
	}
	s->bank[i] = made;
	return made->device;
}

void plumb_stored_clear(struct plumb_device *d, struct plumb_stored *s)
{
	plumb_copy_clear(d, &s->table);
	for (size_t i = 0; i < s->banks; i++)
		bank_free(d, s->bank[i]);
	free(s->bank);
	*s = (struct plumb_stored){0};
}
