/* SPDX-License-Identifier: MIT */
/* Between opt/mirror.c and opt/stored.c: device buffers, tables of copies, and what does not change. */
#ifndef PLUMB_OPT_STORED_H
#define PLUMB_OPT_STORED_H

#include "core/cache.h"
#include "opt/device_private.h"

/* Device memory: zone | room | zone. */
struct plumb_buffer {
	unsigned char *memory;
	size_t room;
};

/* A host buffer on the device. */
struct plumb_copy {
	void *host;
	size_t key; /* bytes; 0 where the address alone is the key */
	size_t bytes;
	struct plumb_buffer buffer;
	uint64_t print;           /* weights and constants: of the host bytes that were uploaded */
	bool current;             /* resident: the device holds what an op may read */
	bool written;             /* resident: some op writes it */
	bool state;               /* resident: some op has it as state */
	struct plumb_cache cache; /* resident caches: host struct; data NULL for others */
	int64_t unit;             /* tokens a row of it */
};

/* Copies by address and key: open addressing. */
struct plumb_copy_table {
	struct plumb_copy **slot;
	size_t room, count;
};

/* Room for bytes. keep: exactly so much, and an outgrown buffer lives on until the device closes (a graph may name
 * it). */
int plumb_buffer_reserve(
	struct plumb_device *device, struct plumb_buffer *buffer, size_t bytes, bool keep, struct plumb_error *err);
unsigned char *plumb_buffer_data(const struct plumb_buffer *buffer);
/* Write the zones around `bytes` of a buffer. */
int plumb_buffer_zones(
	struct plumb_device *device, const struct plumb_buffer *buffer, size_t bytes, struct plumb_error *err);

struct plumb_copy *plumb_copy_find(const struct plumb_copy_table *table, const void *host, size_t key);
/* Find or add; NULL: out of memory. */
struct plumb_copy *plumb_copy_take(struct plumb_copy_table *table, void *host, size_t key);
void plumb_copy_clear(struct plumb_device *device, struct plumb_copy_table *table);

/* Weights and constants, by address and size. A copy is renewed when the fingerprint of the host's bytes changes;
 * trusted: do not look (opt/graph.h: they stay as they are while a graph lives). */
struct plumb_bank;
struct plumb_stored {
	struct plumb_copy_table table;
	struct plumb_bank **bank;
	size_t banks, bank_room;
	bool trusted;
};
void plumb_stored_clear(struct plumb_device *device, struct plumb_stored *stored);

/* Device address of host bytes, and of a bank, whose list is host memory that stays where it is: NULL with a message. A
 * matrix: its data and scales replaced by the device's. */
void *plumb_stored_constant(
	struct plumb_device *device, struct plumb_stored *stored, void *host, size_t bytes, struct plumb_error *err);
int plumb_stored_weight(
	struct plumb_device *device, struct plumb_stored *stored, struct plumb_weight *weight, struct plumb_error *err);
const struct plumb_weight *plumb_stored_bank(struct plumb_device *device, struct plumb_stored *stored,
	const struct plumb_weight *host, int64_t count, struct plumb_error *err);

#endif
