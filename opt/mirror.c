/* SPDX-License-Identifier: MIT */
#include "opt/mirror.h"

#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/ops/ple.h"
#include "opt/opt.h"
#include "opt/stored.h"

/* One operand of the call under way. */
struct place {
	const struct plumb_operand *operand;
	void *host;
	size_t bytes;
	unsigned char *device;
	struct plumb_copy *copy;  /* resident */
	struct plumb_cache cache; /* kind CACHE: the host's */
	int64_t written, limit;   /* kind CACHE: rows written, rows written .. limit - 1; rows read, below limit */
	int64_t unit;
};

/* The arguments of the call under way, as the device's functions want them. */
struct frame {
	union {
		int64_t T;
		void *align;
		unsigned char byte[PLUMB_MAX_ARGS];
	} args;
	struct plumb_weight weight[PLUMB_MAX_OPERANDS];
	struct plumb_cache cache[PLUMB_MAX_OPERANDS];
	struct place place[PLUMB_MAX_OPERANDS];
	int places;
};

struct plumb_mirror {
	struct plumb_stored stored;                      /* weights and constants */
	struct plumb_copy_table resident;                /* everything else, while resident, by address */
	struct plumb_buffer operand[PLUMB_MAX_OPERANDS]; /* copied calls: operand i */
	struct plumb_buffer page[PLUMB_MAX_OPERANDS];    /* and the page table of cache i */
	struct frame frame;
	bool is_resident;        /* calls are, at the moment */
	bool owns;               /* resident copies are newer than the host's memory */
	const int32_t *position; /* the host's */
	int32_t owned_position;  /* of the copies */
};

/* ---- caches ---- */

enum direction {
	UP,
	DOWN,
	COMPARE, /* PLUMB_MISMATCH, without a message, when the device holds other bytes */
};

/* Move bytes of one operand between the host and the device. */
static int move(struct plumb_device *d, enum direction direction, unsigned char *host, unsigned char *device, size_t bytes,
	struct plumb_error *err)
{
	unsigned char *seen;
	int status;

	if (direction == UP)
		return d->backend->upload(d, device, host, bytes, err);
	if (direction == DOWN)
		return d->backend->download(d, host, device, bytes, err);
	seen = malloc(bytes + !bytes);
	if (!seen)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %zu bytes", bytes);
	status = d->backend->download(d, seen, device, bytes, err);
	if (status == PLUMB_OK && memcmp(seen, host, bytes) != 0)
		status = PLUMB_MISMATCH;
	free(seen);
	return status;
}

/* Move rows first .. limit - 1, page by page. */
static int cache_copy(struct plumb_device *d, enum direction direction, const struct plumb_cache *host,
	unsigned char *device, int64_t first, int64_t limit, struct plumb_error *err)
{
	size_t row_bytes = plumb_format_row_bytes(host->format, host->width);
	int status = PLUMB_OK;

	for (int64_t r = first, next; r < limit && status == PLUMB_OK; r = next) {
		int64_t page = r / host->page_rows;
		next = (page + 1) * host->page_rows;
		if (next > limit)
			next = limit;
		if (host->page[page] < 0)
			continue; /* not mapped: no row of it may be used */
		size_t offset = (size_t)((int64_t)host->page[page] * host->page_rows + r % host->page_rows) * row_bytes;
		status = move(d, direction, (unsigned char *)host->data + offset, device + offset,
			(size_t)(next - r) * row_bytes, err);
	}
	return status;
}

/* ---- resident copies ---- */

static int copy_upload(struct plumb_device *d, struct plumb_copy *c, int64_t limit, struct plumb_error *err)
{
	if (d->capturing)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s uses memory that the step before the capture did not: not resident", d->op ? d->op : "an op");
	c->current = true;
	if (c->cache.data)
		return cache_copy(d, UP, &c->cache, plumb_buffer_data(&c->buffer), 0, limit, err);
	return d->backend->upload(d, plumb_buffer_data(&c->buffer), c->host, c->bytes, err);
}

/* The resident copy of an operand, uploaded when it has to be; NULL with a message. */
static struct plumb_copy *resident(struct plumb_device *d, struct place *p, size_t bytes, struct plumb_error *err)
{
	enum plumb_role role = p->operand->role;
	struct plumb_copy *c = plumb_copy_take(&d->mirror->resident, p->host, 0);

	if (!c) {
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device copy");
		return NULL;
	}
	if (bytes > c->bytes) {
		if (plumb_buffer_reserve(d, &c->buffer, bytes, true, err) != PLUMB_OK)
			return NULL;
		c->bytes = bytes;
		c->current = false;
	}
	c->cache = p->cache;
	c->unit = p->unit;
	c->written |= role == PLUMB_OUT || role == PLUMB_STATE;
	c->state |= role == PLUMB_STATE;
	if (role == PLUMB_OUT)
		c->current = true; /* by the op that is about to run */
	else if (!c->current && copy_upload(d, c, p->limit, err) != PLUMB_OK)
		return NULL;
	return c;
}

/* ---- the frame ---- */

static void frame_set(struct frame *f, const struct plumb_operand *o, const void *pointer)
{
	memcpy(f->args.byte + o->offset, &pointer, sizeof pointer);
}

/* Device memory for p->host; an earlier operand at the same address shares its own, as on the host. */
static int place_take(struct plumb_device *d, struct frame *f, struct place *p, struct plumb_error *err)
{
	struct plumb_mirror *m = d->mirror;

	if (m->is_resident) {
		p->copy = resident(d, p, p->bytes, err);
		p->device = p->copy ? plumb_buffer_data(&p->copy->buffer) : NULL;
		return p->copy ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	for (struct place *q = f->place; q < p; q++)
		if (q->host == p->host && q->bytes >= p->bytes && !q->cache.data) {
			p->device = q->device;
			return PLUMB_OK;
		}
	struct plumb_buffer *b = &m->operand[p - f->place];
	int status = plumb_buffer_reserve(d, b, p->bytes, false, err);
	if (status == PLUMB_OK && d->poison != PLUMB_POISON_OFF)
		status = plumb_buffer_zones(d, b, p->bytes, err);
	if (status == PLUMB_OK)
		p->device = plumb_buffer_data(b);
	return status;
}

static int place_cache(struct plumb_device *d, const struct plumb_env *env, const struct plumb_op_info *info,
	struct frame *f, struct place *p, const void *args)
{
	struct plumb_mirror *m = d->mirror;
	size_t i = (size_t)(p - f->place), page_bytes;
	int status;

	p->cache = *(const struct plumb_cache *)p->host;
	p->host = p->cache.data;
	p->bytes = plumb_cache_bytes(&p->cache);
	p->unit = plumb_operand_row_tokens(env->cfg, p->operand);
	plumb_operand_written_rows(env->cfg, p->operand, p->cache.rows, plumb_op_position(info, args), plumb_op_rows(args),
		&p->written, &p->limit);
	page_bytes = (size_t)plumb_cache_pages(&p->cache) * sizeof *p->cache.page;
	status = place_take(d, f, p, env->err);
	if (status != PLUMB_OK)
		return status;
	f->cache[i] = p->cache;
	f->cache[i].data = p->device;
	frame_set(f, p->operand, &f->cache[i]);
	if (m->is_resident) {
		/* all caches of a decoder share one table: one copy */
		static const struct plumb_operand page = {.name = "page", .role = PLUMB_CONSTANT};
		struct place t = {.operand = &page};
		memcpy(&t.host, &p->cache.page, sizeof t.host);
		struct plumb_copy *c = resident(d, &t, page_bytes, env->err);
		if (!c)
			return PLUMB_BAD_INPUT;
		f->cache[i].page = (const int32_t *)plumb_buffer_data(&c->buffer);
		return PLUMB_OK;
	}
	status = plumb_buffer_reserve(d, &m->page[i], page_bytes, false, env->err);
	if (status == PLUMB_OK)
		status = d->backend->upload(d, plumb_buffer_data(&m->page[i]), p->cache.page, page_bytes, env->err);
	f->cache[i].page = (const int32_t *)plumb_buffer_data(&m->page[i]);
	return status;
}

/* Replace operand i of the frame by what the device wants. */
static int frame_operand(
	const struct plumb_env *env, const struct plumb_op_info *info, struct frame *f, int i, const void *args)
{
	struct plumb_device *d = env->device;
	struct plumb_stored *stored = &d->mirror->stored;
	const struct plumb_operand *o = &info->operand[i];
	struct plumb_extent extent = {f->args.T, env->capacity};
	struct place *p = &f->place[i];
	const void *device;
	int64_t dim[8], count = 1;
	int rank = plumb_shape_eval(o->shape, env->cfg, &extent, dim);

	*p = (struct place){.operand = o, .host = plumb_operand_get(args, o)};
	if (!p->host)
		return o->optional ? PLUMB_OK
		                   : plumb_fail(env->err, PLUMB_BAD_INPUT, "%s: operand %s is NULL", info->name, o->name);
	if (rank < 0)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s: operand %s has the unknown shape '%s'", info->name,
			o->name, o->shape);
	for (int k = 0; k < rank; k++)
		count *= dim[k];

	switch (o->kind) {
	case PLUMB_KIND_WEIGHT:
		f->weight[i] = *(const struct plumb_weight *)p->host;
		if (f->weight[i].data && plumb_stored_weight(d, stored, &f->weight[i], env->err) != PLUMB_OK)
			return PLUMB_BAD_INPUT;
		frame_set(f, o, &f->weight[i]);
		return PLUMB_OK;
	case PLUMB_KIND_BANK:
		device = plumb_stored_bank(d, stored, p->host, plumb_operand_matrices(env->cfg, o, args), env->err);
		frame_set(f, o, device);
		return device ? PLUMB_OK : PLUMB_BAD_INPUT;
	case PLUMB_KIND_NGRAM:
		device = plumb_stored_constant(d, stored, p->host, sizeof(struct plumb_ngram), env->err);
		frame_set(f, o, device);
		return device ? PLUMB_OK : PLUMB_BAD_INPUT;
	case PLUMB_KIND_CACHE:
		return place_cache(d, env, info, f, p, args);
	default:
		break;
	}
	p->bytes = (size_t)count * plumb_operand_element(o, args);
	if (o->role == PLUMB_CONSTANT) {
		device = plumb_stored_constant(d, stored, p->host, p->bytes, env->err);
		frame_set(f, o, device);
		return device ? PLUMB_OK : PLUMB_BAD_INPUT;
	}
	int status = place_take(d, f, p, env->err);
	frame_set(f, o, p->device);
	return status;
}

static int frame_build(const struct plumb_env *env, const struct plumb_op_info *info, const void *args)
{
	struct plumb_device *d = env->device;
	struct frame *f = &d->mirror->frame;
	int status = PLUMB_OK;

	if (info->operands > PLUMB_MAX_OPERANDS || info->args_size > PLUMB_MAX_ARGS)
		return plumb_fail(env->err, PLUMB_BAD_INPUT,
			"%s has %d operands in %zu bytes, at most %d in %d are possible", info->name, info->operands,
			info->args_size, PLUMB_MAX_OPERANDS, PLUMB_MAX_ARGS);
	memcpy(f->args.byte, args, info->args_size);
	f->places = info->operands;
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++)
		status = frame_operand(env, info, f, i, args);
	return status;
}

/* ---- copied calls ---- */

static int frame_upload(struct plumb_device *d, struct frame *f, struct plumb_error *err)
{
	bool guarded = d->poison != PLUMB_POISON_OFF;
	int status = PLUMB_OK;

	for (struct place *p = f->place; p < f->place + f->places && status == PLUMB_OK; p++) {
		enum plumb_role role = p->operand->role;
		if (!p->device)
			continue;
		if (p->cache.data) {
			if (guarded) /* pages that no row is in */
				status = plumb_device_fill(d, p->device, p->bytes, err);
			if (status == PLUMB_OK)
				status =
					cache_copy(d, UP, &p->cache, p->device, 0, guarded ? p->cache.rows : p->limit, err);
		} else if (role != PLUMB_OUT || guarded) { /* a guarded output comes with its poison */
			status = d->backend->upload(d, p->device, p->host, p->bytes, err);
		}
	}
	return status;
}

/* Whether another operand is written in the same memory. */
static bool place_shared(const struct frame *f, const struct place *p)
{
	bool shared = false;
	for (const struct place *q = f->place; q < f->place + f->places; q++)
		shared |= q != p && q->device == p->device &&
		          (q->operand->role == PLUMB_OUT || q->operand->role == PLUMB_STATE);
	return shared;
}

static int frame_download(struct plumb_device *d, struct frame *f, struct plumb_error *err)
{
	bool guarded = d->poison != PLUMB_POISON_OFF;
	int status = PLUMB_OK;

	for (struct place *p = f->place; p < f->place + f->places && status == PLUMB_OK; p++) {
		bool out = p->operand->role == PLUMB_OUT || p->operand->role == PLUMB_STATE;
		if (!p->device || !(out || guarded))
			continue;
		if (guarded)
			status = plumb_device_zones(d, p->device, p->bytes, PLUMB_GUARD_ZONE, p->operand->name, err);
		if (status != PLUMB_OK || (!out && place_shared(f, p)))
			continue;
		if (p->cache.data)
			status = cache_copy(d, out ? DOWN : COMPARE, &p->cache, p->device, guarded ? 0 : p->written,
				guarded ? p->cache.rows : p->limit, err);
		else
			status = move(d, out ? DOWN : COMPARE, p->host, p->device, p->bytes, err);
		if (status == PLUMB_MISMATCH && !out)
			plumb_fail(err, PLUMB_MISMATCH, "%s changed its input %s on %s", d->op, p->operand->name,
				d->backend->name);
	}
	return status;
}

static int prepare(const struct plumb_env *env, const struct plumb_op_info *info, const void *args)
{
	struct plumb_device *d = env->device;
	int status = plumb_mirror_hand_back(d, env->err);

	d->op = info->name;
	if (status == PLUMB_OK)
		status = frame_build(env, info, args);
	if (status == PLUMB_OK)
		status = frame_upload(d, &d->mirror->frame, env->err);
	return status;
}

int plumb_mirror_prepare(const struct plumb_env *env, enum plumb_op op, const void *args, const void **device_args)
{
	struct plumb_device *d = env->device;

	*device_args = args;
	if (!d->own_memory)
		return PLUMB_OK;
	*device_args = d->mirror->frame.args.byte;
	return prepare(env, &plumb_ops[op], args);
}

int plumb_mirror_run_as(const struct plumb_env *env, const struct plumb_op_info *info, plumb_op_fn *fn, const void *args)
{
	struct plumb_device *d = env->device;
	struct frame *f = &d->mirror->frame;
	int status;

	if (d->mirror->is_resident) {
		d->op = info->name;
		status = frame_build(env, info, args);
		if (status == PLUMB_OK)
			status = plumb_fuse_before(env, info);
		if (status == PLUMB_OK)
			status = fn(env, f->args.byte);
		return status;
	}
	status = prepare(env, info, args);
	if (status == PLUMB_OK)
		status = fn(env, f->args.byte);
	if (status == PLUMB_OK)
		status = plumb_device_sync(d, env->err);
	if (status == PLUMB_OK)
		status = frame_download(d, f, env->err);
	return status;
}

int plumb_mirror_run(const struct plumb_env *env, enum plumb_op op, plumb_op_fn *fn, const void *args)
{
	return plumb_mirror_run_as(env, &plumb_ops[op], fn, args);
}

/* ---- state that stays on the device ---- */

int plumb_mirror_create(struct plumb_device *d, struct plumb_error *err)
{
	d->mirror = calloc(1, sizeof *d->mirror);
	return d->mirror ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a device's tables");
}

void plumb_mirror_destroy(struct plumb_device *d)
{
	struct plumb_mirror *m = d->mirror;

	if (!m)
		return;
	plumb_stored_clear(d, &m->stored);
	plumb_copy_clear(d, &m->resident);
	for (int i = 0; i < PLUMB_MAX_OPERANDS; i++) {
		d->backend->give(d, m->operand[i].memory);
		d->backend->give(d, m->page[i].memory);
	}
	free(m);
	d->mirror = NULL;
}

int plumb_mirror_resident_begin(struct plumb_device *d, const int32_t *position, struct plumb_error *err)
{
	struct plumb_mirror *m = d->mirror;

	if (m->position && m->position != position)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"device %s already holds the state of another decoder: destroy its "
			"graph first",
			d->backend->name);
	if (!plumb_mirror_is_owner(d)) { /* the host's state is the newer one */
		for (size_t i = 0; i < m->resident.room; i++)
			if (m->resident.slot[i])
				m->resident.slot[i]->current = false;
		m->owns = false;
	}
	m->position = position;
	m->is_resident = m->stored.trusted = true;
	return PLUMB_OK;
}

void plumb_mirror_resident_end(struct plumb_device *d)
{
	d->mirror->is_resident = d->mirror->stored.trusted = false;
}

void plumb_mirror_owns(struct plumb_device *d, int32_t position)
{
	d->mirror->owns = true;
	d->mirror->owned_position = position;
}

bool plumb_mirror_is_owner(const struct plumb_device *d)
{
	/* a host at another position has been reset, or has gone on by itself: its state is another one */
	return d->mirror->owns && d->mirror->position && *d->mirror->position == d->mirror->owned_position;
}

int plumb_mirror_hand_back(struct plumb_device *d, struct plumb_error *err)
{
	struct plumb_mirror *m = d->mirror;
	int status = PLUMB_OK;

	if (plumb_mirror_is_owner(d))
		for (size_t i = 0; i < m->resident.room && status == PLUMB_OK; i++) {
			struct plumb_copy *c = m->resident.slot[i];
			if (!c || !c->state || !c->current)
				continue;
			if (c->cache.data)
				status = cache_copy(d, DOWN, &c->cache, plumb_buffer_data(&c->buffer), 0,
					m->owned_position / c->unit, err);
			else
				status = d->backend->download(d, c->host, plumb_buffer_data(&c->buffer), c->bytes, err);
		}
	m->owns = false;
	return status;
}

void plumb_mirror_release(struct plumb_device *d)
{
	plumb_copy_clear(d, &d->mirror->resident);
	d->mirror->owns = d->mirror->is_resident = d->mirror->stored.trusted = false;
	d->mirror->position = NULL;
	d->generation++;
}

int plumb_mirror_upload_state(struct plumb_device *d, int32_t position, struct plumb_error *err)
{
	struct plumb_mirror *m = d->mirror;
	int status = PLUMB_OK;

	for (size_t i = 0; i < m->resident.room && status == PLUMB_OK; i++) {
		struct plumb_copy *c = m->resident.slot[i];
		if (c && (c->state || !c->written) && !c->current)
			status = copy_upload(d, c, c->unit ? position / c->unit : 0, err);
	}
	return status;
}

void plumb_mirror_host_wrote(struct plumb_device *d, const void *host)
{
	struct plumb_copy *c = plumb_copy_find(&d->mirror->resident, host, 0);
	if (c)
		c->current = false;
}

void *plumb_mirror_find(struct plumb_device *d, const void *host, void **writable)
{
	struct plumb_copy *c = plumb_copy_find(&d->mirror->resident, host, 0);
	if (c && writable)
		*writable = c->host;
	return c ? plumb_buffer_data(&c->buffer) : NULL;
}

/* ---- the set ---- */

#define MIRRORED_FUNCTION(id, op)                                                                                          \
	static int op##_mirrored(const struct plumb_env *env, const void *args)                                            \
	{                                                                                                                  \
		return plumb_mirror_run(env, PLUMB_##id, op##_opt, args);                                                  \
	}
PLUMB_EACH_OP(MIRRORED_FUNCTION)

#define MIRRORED_ENTRY(id, op) [PLUMB_##id] = op##_mirrored,
const struct plumb_set plumb_opt_mirrored_set = {
	.name = "opt", .op = {PLUMB_EACH_OP(MIRRORED_ENTRY)}, .makes_weights = true};
