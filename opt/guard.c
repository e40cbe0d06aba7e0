/* SPDX-License-Identifier: MIT */
/* All clones of a call lie in one arena. A run is then a function from an arena before to an arena after, and every
 * check compares arenas: one run's before and after, or two runs'. */
#include "opt/guard.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "core/cache.h"
#include "core/ops/ple.h"
#include "opt/trap.h"
#include "opt/user.h"

enum {
	MAX_DEVICES = 8,
	REPEATS = 4, /* of the first run, to tell a change from run to run from memory that nobody wrote */
	ALIGN = 256, /* without traps clones are misaligned exactly as the originals, so that the same loads are chosen */
	WIDE = 16,   /* with traps modulo this, the widest load's size */
};

/* An operand of the call. */
struct item {
	const struct plumb_operand *operand;
	int index;            /* into the op's operands */
	unsigned char *host;  /* data of the original */
	size_t offset, bytes; /* of the clone's data in the arena */
	int64_t count;        /* elements */
	size_t element;       /* bytes of one */
	enum plumb_poison_unit unit;
	bool written;  /* OUT or STATE */
	bool poisoned; /* every element is the op's to write */
	bool shares;   /* with an earlier item: the same buffer on purpose */
	int64_t dim[8];
	int rank;
	struct plumb_cache cache; /* original; data NULL: not a cache */
	int64_t first, limit;     /* cache rows written: first .. limit - 1; readable: below limit */
};

struct plumb_guard {
	struct plumb_device *device[MAX_DEVICES];
	int devices;
	/* arenas, room bytes each: before and after of the first run and of the one under way */
	unsigned char *before[2], *after[2];
	size_t room;
	struct item item[PLUMB_MAX_OPERANDS];
	int items;
	size_t used;
	bool traps;
	uint64_t turn;
	struct trap {
		struct plumb_trap of; /* of an item that has a place of its own */
		size_t offset;        /* of its clone in the arena */
		size_t low, high; /* from the page that traps before it to behind the one after it, the next one's too */
	} trap[PLUMB_MAX_OPERANDS];
	int trapped;              /* how many of them */
	uint64_t constants;       /* digest of what is read only and not cloned */
	enum plumb_poison poison; /* of the run under way; OFF: none */
	struct plumb_guard_finding finding;
};

const char *plumb_guard_fault_name(enum plumb_guard_fault fault)
{
	static const char *const name[] = {
		[PLUMB_GUARD_NONE] = "none",
		[PLUMB_GUARD_UNWRITTEN] = "unwritten element",
		[PLUMB_GUARD_OUTSIDE] = "write outside an operand",
		[PLUMB_GUARD_INPUT_CHANGED] = "input changed",
		[PLUMB_GUARD_ROW_CHANGED] = "cache row changed",
		[PLUMB_GUARD_DIRTY_READ] = "result from memory that nobody wrote",
		[PLUMB_GUARD_NONDETERMINISTIC] = "not deterministic",
		[PLUMB_GUARD_DEVICE] = "write outside a device buffer",
	};
	return name[fault];
}

int plumb_guard_create(struct plumb_guard **out, struct plumb_error *err)
{
	*out = calloc(1, sizeof **out);
	return *out ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a guard");
}

/* What ops run in is no part of the heap, whose pages must not trap: a checker of leaks reads them all. */
static unsigned char *take_work(size_t room)
{
	void *m = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return m == MAP_FAILED ? NULL : m;
}

static void free_arenas(struct plumb_guard *g)
{
	free(g->before[0]);
	free(g->before[1]);
	free(g->after[0]);
	if (g->after[1])
		munmap(g->after[1], g->room);
	for (int i = 0; i < 2; i++)
		g->before[i] = g->after[i] = NULL;
	g->room = 0;
}

void plumb_guard_destroy(struct plumb_guard *g)
{
	if (!g)
		return;
	free_arenas(g);
	free(g);
}

int plumb_guard_watch(struct plumb_guard *g, struct plumb_device *device, struct plumb_error *err)
{
	if (g->devices == MAX_DEVICES)
		return plumb_fail(err, PLUMB_BAD_INPUT, "a guard watches at most %d devices", MAX_DEVICES);
	g->device[g->devices++] = device;
	return PLUMB_OK;
}

void plumb_guard_trap(struct plumb_guard *g, uint64_t turn)
{
	g->traps = true;
	g->turn = turn;
}

bool plumb_guard_traps(const struct plumb_guard *g)
{
	return g->traps;
}

enum plumb_poison plumb_guard_poison(const struct plumb_guard *g)
{
	return g->poison;
}

const struct plumb_guard_finding *plumb_guard_finding(const struct plumb_guard *g)
{
	return &g->finding;
}

/* ---- the items of a call ---- */

/* A place in the arena for `bytes`, misaligned as host is. */
static void place(struct plumb_guard *g, struct item *it)
{
	if (g->traps) {
		const size_t page = plumb_trap_page(), begin = g->used ? g->used : page;
		const size_t room = (it->bytes + PLUMB_GUARD_ZONE + (size_t)2 * WIDE + page - 1) / page * page;
		it->offset = begin +
		             plumb_trap_place(it->bytes, room, WIDE, (uintptr_t)it->host, g->turn + (uint64_t)g->trapped);
		g->used = begin + room + page;
		g->trap[g->trapped++] =
			(struct trap){{.name = it->operand->name, .part = "", .bytes = it->bytes, .element = it->element},
				it->offset, begin - page, g->used};
		return;
	}
	size_t at = (g->used + PLUMB_GUARD_ZONE + ALIGN - 1) / ALIGN * ALIGN + (uintptr_t)it->host % ALIGN;

	it->offset = at;
	g->used = at + it->bytes + PLUMB_GUARD_ZONE;
	/* zones are filled by whole elements */
	g->used = (g->used + 7) / 8 * 8;
}

static const struct plumb_op_info *info_of(const struct plumb_call *call)
{
	return call->info ? call->info : &plumb_ops[call->op];
}

static void cache_item(struct item *it, const struct plumb_config *cfg, int64_t position, int64_t T)
{
	const struct plumb_cache *c = &it->cache;

	it->host = c->data;
	it->bytes = plumb_cache_bytes(c);
	it->unit = plumb_poison_unit(c->format);
	it->element = plumb_poison_bytes(it->unit);
	it->dim[0] = c->rows;
	it->dim[1] = c->width;
	it->rank = 2;
	it->count = c->rows * c->width;
	plumb_operand_written_rows(cfg, it->operand, c->rows, position, T, &it->first, &it->limit);
	it->poisoned = position >= 0 && it->written;
}

static uint64_t digest(uint64_t h, const void *data, size_t bytes)
{
	const unsigned char *p = data;
	uint64_t v;

	for (; bytes >= sizeof v; p += sizeof v, bytes -= sizeof v) {
		memcpy(&v, p, sizeof v);
		h = (h ^ v) * 0x9E3779B97F4A7C15u;
		h ^= h >> 29;
	}
	for (; bytes; bytes--)
		h = (h ^ *p++) * 0x100000001B3u;
	return h;
}

/* Constants stay where they are: a device keeps copies of them by address. */
static uint64_t digest_constants(const struct plumb_call *call)
{
	const struct plumb_op_info *info = info_of(call);
	struct plumb_extent extent = {call->T, call->env->capacity};
	uint64_t h = 1;

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const void *data = plumb_operand_get(call->args, o);
		if (o->role != PLUMB_CONSTANT || !data)
			continue;
		h = digest(h, data,
			o->kind == PLUMB_KIND_NGRAM
				? sizeof(struct plumb_ngram)
				: (size_t)plumb_shape_count(o->shape, call->env->cfg, &extent) * sizeof(float));
	}
	return h;
}

static int array_item(struct item *it, const struct plumb_call *call, const struct plumb_extent *extent)
{
	const struct plumb_operand *o = it->operand;

	it->rank = plumb_shape_eval(o->shape, call->env->cfg, extent, it->dim);
	if (it->rank < 0)
		return plumb_fail(call->env->err, PLUMB_BAD_INPUT, "%s: operand %s has the unknown shape '%s'",
			info_of(call)->name, o->name, o->shape);
	it->count = 1;
	for (int k = 0; k < it->rank; k++)
		it->count *= it->dim[k];
	it->unit = o->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : plumb_poison_unit(plumb_operand_format(o, call->args));
	it->element = plumb_poison_bytes(it->unit);
	it->bytes = (size_t)it->count * it->element;
	return PLUMB_OK;
}

/* A place in the arena: of its own, or that of an earlier item which is the same buffer on purpose. */
static void share_or_place(struct plumb_guard *g, struct item *it)
{
	for (const struct item *q = g->item; q < it && !it->shares; q++)
		if (q->host == it->host && q->bytes == it->bytes) {
			it->shares = true;
			it->offset = q->offset;
		}
	if (!it->shares)
		place(g, it);
}

/* A buffer that is read as well cannot be poisoned, nor checked for being unchanged; but rows that one op of a fused
 * entry has to append to a cache are written before another of its ops reads them. */
static void join_shared(struct plumb_guard *g)
{
	for (struct item *it = g->item; it < g->item + g->items; it++)
		for (struct item *q = it + 1; q < g->item + g->items; q++)
			if (q->offset == it->offset) {
				it->poisoned = q->poisoned =
					it->cache.data && q->cache.data && (it->poisoned || q->poisoned);
				it->written = q->written = it->written || q->written;
			}
}

/* List the operands that are cloned and where. */
static int collect(struct plumb_guard *g, const struct plumb_call *call)
{
	const struct plumb_op_info *info = info_of(call);
	const struct plumb_extent extent = {plumb_op_rows(call->args), call->env->capacity};
	const int64_t position = plumb_op_position(info, call->args);
	int status = PLUMB_OK;

	g->items = 0;
	g->trapped = 0;
	g->used = 0;
	if (info->operands > PLUMB_MAX_OPERANDS || info->args_size > PLUMB_MAX_ARGS)
		return plumb_fail(call->env->err, PLUMB_BAD_INPUT, "%s has %d operands, a guard takes %d", info->name,
			info->operands, PLUMB_MAX_OPERANDS);
	for (int i = 0; i < info->operands && status == PLUMB_OK; i++) {
		const struct plumb_operand *o = &info->operand[i];
		struct item *it = &g->item[g->items];
		void *pointer = plumb_operand_get(call->args, o);

		if (o->role == PLUMB_WEIGHT || o->role == PLUMB_CONSTANT || (!pointer && o->optional))
			continue;
		if (!pointer)
			return plumb_fail(call->env->err, PLUMB_BAD_INPUT, "%s: operand %s is NULL", info->name, o->name);
		*it = (struct item){.operand = o,
			.index = i,
			.host = pointer,
			.written = o->role == PLUMB_OUT || o->role == PLUMB_STATE,
			.poisoned = o->role == PLUMB_OUT};
		if (o->kind == PLUMB_KIND_CACHE) {
			it->cache = *(const struct plumb_cache *)pointer;
			cache_item(it, call->env->cfg, position, extent.T);
		} else {
			status = array_item(it, call, &extent);
		}
		if (status == PLUMB_OK)
			share_or_place(g, it);
		g->items++;
	}
	if (status == PLUMB_OK)
		join_shared(g);
	return status;
}

static int reserve(struct plumb_guard *g, struct plumb_error *err)
{
	const size_t room = (g->used + 2 * (size_t)ALIGN) / ALIGN * ALIGN;

	if (g->room >= room)
		return PLUMB_OK;
	free_arenas(g);
	g->room = room;
	g->before[0] = aligned_alloc(ALIGN, room);
	g->before[1] = aligned_alloc(ALIGN, room);
	g->after[0] = aligned_alloc(ALIGN, room);
	g->after[1] = take_work(room);
	if (g->before[0] && g->before[1] && g->after[0] && g->after[1])
		return PLUMB_OK;
	free_arenas(g);
	return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for a guarded call (four buffers of %zu bytes)", room);
}

/* Offset of logical row r of a cache inside the arena. */
static size_t row_offset(const struct item *it, int64_t r)
{
	const struct plumb_cache *c = &it->cache;
	size_t row = (size_t)((int64_t)c->page[r / c->page_rows] * c->page_rows + r % c->page_rows);
	return it->offset + row * (size_t)c->width * it->element;
}

static bool row_mapped(const struct item *it, int64_t r)
{
	return it->cache.page[r / it->cache.page_rows] >= 0;
}

/* ---- one run ---- */

/* Make the arena as it is before a run. */
static void fill(struct plumb_guard *g, enum plumb_poison poison, unsigned char *arena)
{
	plumb_poison_fill(poison, PLUMB_POISON_32, arena, 0, g->used / 4);
	for (const struct item *it = g->item; it < g->item + g->items; it++) {
		unsigned char *data = arena + it->offset;

		if (it->cache.data) {
			size_t row_bytes = (size_t)it->cache.width * it->element;
			int64_t known = it->poisoned ? it->first : it->limit;
			plumb_poison_fill(poison, it->unit, data, 0, it->bytes / it->element);
			for (int64_t r = 0; r < known; r++)
				if (row_mapped(it, r))
					memcpy(arena + row_offset(it, r), it->host + (row_offset(it, r) - it->offset),
						row_bytes);
		} else if (it->poisoned) {
			plumb_poison_fill(poison, it->unit, data, 0, (size_t)it->count);
		} else {
			memcpy(data, it->host, it->bytes);
		}
	}
}

static struct plumb_device *device_of(const struct plumb_guard *g, const struct plumb_call *call)
{
	struct plumb_device *device = NULL;
	for (int i = 0; i < g->devices; i++)
		if (g->device[i] == call->binding->device)
			device = g->device[i];
	if (!device)
		device = plumb_user_device(call->binding);
	return device;
}

/* Before the op nobody may touch the pages between the clones (set), after it everybody may. False: the system refuses. */
static bool set_traps(struct plumb_guard *g, bool set)
{
	const size_t page = plumb_trap_page();
	bool ok = true;

	for (struct trap *t = g->trap; t < g->trap + g->trapped; t++) {
		unsigned char *low = g->after[1] + t->low, *last = g->after[1] + t->high - page;
		if (t == g->trap)
			ok = mprotect(low, page, set ? PROT_NONE : PROT_READ | PROT_WRITE) == 0 && ok;
		ok = mprotect(last, page, set ? PROT_NONE : PROT_READ | PROT_WRITE) == 0 && ok;
		t->of.data = g->after[1] + t->offset;
		t->of.low = low;
		t->of.high = last + page;
		if (set)
			plumb_trap_add(&t->of);
		else
			plumb_trap_remove(&t->of);
	}
	return ok;
}

/* Run the op on clones: before[k] becomes after[k]. The op always runs in after[1], so that every run has the same
 * addresses; the caller of run 0 moves it. */
static int run(struct plumb_guard *g, const struct plumb_call *call, enum plumb_poison poison, int k)
{
	union {
		unsigned char byte[PLUMB_MAX_ARGS];
		int64_t T;
		void *align;
	} args;
	struct plumb_cache cache[PLUMB_MAX_OPERANDS];
	struct plumb_device *device = device_of(g, call);
	unsigned char *work = g->after[1];
	int status;

	fill(g, poison, g->before[k]);
	memcpy(work, g->before[k], g->used);
	memcpy(args.byte, call->args, info_of(call)->args_size);
	for (int i = 0; i < g->items; i++) {
		const struct item *it = &g->item[i];
		void *clone = work + it->offset;
		if (it->cache.data) {
			cache[i] = it->cache;
			cache[i].data = clone;
			clone = &cache[i];
		}
		memcpy(args.byte + it->operand->offset, &clone, sizeof clone);
	}
	if (device)
		plumb_device_poison(device, poison, info_of(call)->name);
	g->poison = poison;
	const bool traps = set_traps(g, true);
	status = call->binding->set->op[call->op](call->env, args.byte);
	if (!set_traps(g, false) || !traps)
		status = plumb_fail(call->env->err, PLUMB_BAD_INPUT, "cannot protect the memory around a call's operands");
	g->poison = PLUMB_POISON_OFF;
	if (device && status == PLUMB_OK)
		status = plumb_device_check(device, call->env->err);
	if (device && status == PLUMB_MISMATCH)
		g->finding = (struct plumb_guard_finding){PLUMB_GUARD_DEVICE, call->op, call->layer, -1, 0, 0};
	if (status == PLUMB_OK && k == 0)
		memcpy(g->after[0], work, g->used);
	return status;
}

/* ---- what a run did ---- */

/* "y[0, 17] (1 of 64 elements, shape T C)" */
static void describe(const struct item *it, int64_t element, int64_t count, char *text, size_t size)
{
	int64_t rest = element, index[8];
	size_t n;

	for (int k = it->rank - 1; k >= 0; k--) {
		index[k] = it->dim[k] ? rest % it->dim[k] : 0;
		rest = it->dim[k] ? rest / it->dim[k] : 0;
	}
	n = (size_t)snprintf(text, size, "%s[", it->operand->name);
	for (int k = 0; k < it->rank && n < size; k++)
		n += (size_t)snprintf(text + n, size - n, "%s%" PRId64, k ? ", " : "", index[k]);
	if (n < size)
		snprintf(text + n, size - n, "] (%" PRId64 " of %" PRId64 " elements, shape %s)", count, it->count,
			it->operand->shape);
}

__attribute__((format(printf, 7, 8))) static int found(struct plumb_guard *g, const struct plumb_call *call,
	enum plumb_guard_fault fault, const struct item *it, int64_t element, int64_t count, const char *format, ...)
{
	char where[64] = "", text[400];
	va_list ap;

	g->finding = (struct plumb_guard_finding){fault, call->op, call->layer, it ? it->index : -1, element, count};
	if (call->layer < call->env->cfg->layers)
		snprintf(where, sizeof where, " in layer %d", call->layer);
	va_start(ap, format);
	vsnprintf(text, sizeof text, format, ap);
	va_end(ap);
	return plumb_fail(call->env->err, PLUMB_MISMATCH, "%s%s %s", info_of(call)->name, where, text);
}

/* A run of elements of an item that an op may have written: all of them, or a cache row of this call. */
struct range {
	size_t offset; /* in the arena */
	int64_t first; /* flat index of the first element */
	int64_t count;
};

static int64_t ranges(const struct item *it)
{
	return !it->written ? 0 : !it->cache.data ? 1 : it->limit > it->first ? it->limit - it->first : 0;
}

static struct range range_of(const struct item *it, int64_t i)
{
	if (!it->cache.data)
		return (struct range){it->offset, 0, it->count};
	int64_t r = it->first + i;
	return (struct range){row_offset(it, r), r * it->cache.width, it->cache.width};
}

/* Index of the first byte in which a and b differ; bytes when in none. */
static size_t first_difference(const unsigned char *a, const unsigned char *b, size_t bytes)
{
	size_t i = 0;

	if (memcmp(a, b, bytes) == 0)
		return bytes;
	while (a[i] == b[i])
		i++;
	return i;
}

/* The first zone that changed. Between two items lie one's zone, padding and the other's zone: nearer means its. */
static int check_zones(struct plumb_guard *g, const struct plumb_call *call, int k)
{
	const unsigned char *before = g->before[k], *after = g->after[1];

	for (const struct item *it = g->item; it < g->item + g->items; it++) {
		const size_t begin = it->offset - PLUMB_GUARD_ZONE, end = it->offset + it->bytes;
		size_t at = PLUMB_GUARD_ZONE;

		while (at > 0 && before[begin + at - 1] == after[begin + at - 1])
			at--;
		if (at > 0) {
			int64_t bytes = (int64_t)(PLUMB_GUARD_ZONE - at + 1),
				e = -(bytes + (int64_t)it->element - 1) / (int64_t)it->element;
			return found(g, call, PLUMB_GUARD_OUTSIDE, it, e, 1,
				"wrote before %s: element %" PRId64 " of %" PRId64 " (%" PRId64 " bytes before the first)",
				it->operand->name, e, it->count, bytes);
		}
		at = first_difference(before + end, after + end, PLUMB_GUARD_ZONE);
		if (at < PLUMB_GUARD_ZONE) {
			int64_t e = (int64_t)((it->bytes + at) / it->element);
			return found(g, call, PLUMB_GUARD_OUTSIDE, it, e, 1,
				"wrote after %s: element %" PRId64 " of %" PRId64 " (%zu bytes after the last)",
				it->operand->name, e, (int64_t)(it->bytes / it->element), at);
		}
	}
	return PLUMB_OK;
}

/* Inputs, and cache rows that are not this call's. */
static int check_unchanged(struct plumb_guard *g, const struct plumb_call *call, int k)
{
	const unsigned char *before = g->before[k], *after = g->after[1];
	char text[200];

	for (const struct item *it = g->item; it < g->item + g->items; it++) {
		if (it->cache.data) {
			size_t row_bytes = (size_t)it->cache.width * it->element;
			for (int64_t r = 0; r < it->cache.rows; r++) {
				if (!row_mapped(it, r) || (it->written && r >= it->first && r < it->limit))
					continue;
				size_t at = row_offset(it, r), d = first_difference(before + at, after + at, row_bytes);
				if (d == row_bytes)
					continue;
				int64_t e = r * it->cache.width + (int64_t)(d / it->element);
				describe(it, e, 1, text, sizeof text);
				if (!it->written)
					return found(
						g, call, PLUMB_GUARD_INPUT_CHANGED, it, e, 1, "changed its input %s", text);
				return found(g, call, PLUMB_GUARD_ROW_CHANGED, it, e, 1,
					"changed cache row %" PRId64 ": %s; its rows are %" PRId64 "..%" PRId64, r, text,
					it->first, it->limit - 1);
			}
		} else if (!it->written) {
			size_t d = first_difference(before + it->offset, after + it->offset, it->bytes);
			if (d == it->bytes)
				continue;
			describe(it, (int64_t)(d / it->element), 1, text, sizeof text);
			return found(g, call, PLUMB_GUARD_INPUT_CHANGED, it, (int64_t)(d / it->element), 1,
				"changed its input %s", text);
		}
	}
	if (digest_constants(call) != g->constants)
		return found(g, call, PLUMB_GUARD_INPUT_CHANGED, NULL, 0, 0, "changed one of its constants");
	return PLUMB_OK;
}

/* The bits of element e of an item in an arena. */
static uint64_t bits(const struct item *it, const unsigned char *arena, int64_t e)
{
	uint64_t v = 0;
	size_t at = it->cache.data ? row_offset(it, e / it->cache.width) + (size_t)(e % it->cache.width) * it->element
	                           : it->offset + (size_t)e * it->element;
	memcpy(&v, arena + at, it->element);
	return v;
}

/* Elements that hold their poison after both runs. */
static int check_written(struct plumb_guard *g, const struct plumb_call *call)
{
	char text[200];
	int status;

	for (const struct item *it = g->item; it < g->item + g->items; it++) {
		int64_t first = -1, count = 0;
		for (int64_t i = 0; i < ranges(it) && it->poisoned; i++) {
			struct range r = range_of(it, i);
			for (int64_t e = 0; e < r.count; e++) {
				size_t at = r.offset + (size_t)e * it->element;
				if (memcmp(g->before[0] + at, g->after[0] + at, it->element) != 0 ||
					memcmp(g->before[1] + at, g->after[1] + at, it->element) != 0)
					continue;
				if (count++ == 0)
					first = r.first + e;
			}
		}
		if (!count)
			continue;
		/* NaN and 1e30 outlive an addition too; a value near 1 does not */
		status = run(g, call, PLUMB_POISON_SMALL, 1);
		if (status != PLUMB_OK)
			return status;
		describe(it, first, count, text, sizeof text);
		if (bits(it, g->before[1], first) == bits(it, g->after[1], first))
			return found(g, call, PLUMB_GUARD_UNWRITTEN, it, first, count, "did not write %s", text);
		return found(g, call, PLUMB_GUARD_DIRTY_READ, it, first, count,
			"computed with what its output held before instead of storing: %s", text);
	}
	return PLUMB_OK;
}

/* The first element that differs between after[0] and after[1], and how many do; NULL when none. */
static const struct item *compare_runs(const struct plumb_guard *g, int64_t *first, int64_t *count)
{
	for (const struct item *it = g->item; it < g->item + g->items; it++) {
		*count = 0;
		for (int64_t i = 0; i < ranges(it); i++) {
			struct range r = range_of(it, i);
			for (int64_t e = 0; e < r.count; e++) {
				size_t at = r.offset + (size_t)e * it->element;
				if (memcmp(g->after[0] + at, g->after[1] + at, it->element) == 0)
					continue;
				if ((*count)++ == 0)
					*first = r.first + e;
			}
		}
		if (*count)
			return it;
	}
	return NULL;
}

static int check_runs(struct plumb_guard *g, const struct plumb_call *call)
{
	int64_t first = 0, count = 0, again = 0, different = 0;
	const struct item *it = compare_runs(g, &first, &count), *other = NULL;
	char text[200];
	int status;

	if (!it)
		return PLUMB_OK;
	uint64_t a = bits(it, g->after[0], first), b = bits(it, g->after[1], first);
	/* a kernel that changes now and then only may give the same bits once more */
	for (int i = 0; i < REPEATS && !other; i++) {
		status = run(g, call, PLUMB_POISON_NAN, 1);
		if (status != PLUMB_OK)
			return status;
		other = compare_runs(g, &again, &different);
	}
	if (other) {
		describe(other, again, different, text, sizeof text);
		return found(g, call, PLUMB_GUARD_NONDETERMINISTIC, other, again, different,
			"is not deterministic (run-to-run change): the same "
			"inputs and memory gave %s = 0x%" PRIx64 ", then 0x%" PRIx64,
			text, bits(other, g->after[0], again), bits(other, g->after[1], again));
	}
	describe(it, first, count, text, sizeof text);
	return found(g, call, PLUMB_GUARD_DIRTY_READ, it, first, count,
		"used memory that nobody wrote (an output's old contents, "
		"scratch, a cache row not yet written, or beyond an operand): %s is 0x%" PRIx64 " over NaN, 0x%" PRIx64
		" over large values",
		text, a, b);
}

/* Results go to the real buffers. */
static void deliver(const struct plumb_guard *g)
{
	for (const struct item *it = g->item; it < g->item + g->items; it++)
		for (int64_t i = 0; i < ranges(it); i++) {
			struct range r = range_of(it, i);
			memcpy(it->host + (r.offset - it->offset), g->after[1] + r.offset, (size_t)r.count * it->element);
		}
}

int plumb_guard_call(struct plumb_guard *g, const struct plumb_call *call)
{
	static const enum plumb_poison poison[2] = {PLUMB_POISON_NAN, PLUMB_POISON_LARGE};
	struct plumb_device *device = device_of(g, call);
	enum plumb_poison outside = device ? plumb_device_poisoned(device) : PLUMB_POISON_OFF;
	int status = collect(g, call);

	g->finding = (struct plumb_guard_finding){.fault = PLUMB_GUARD_NONE};
	if (status == PLUMB_OK)
		status = reserve(g, call->env->err);
	g->constants = digest_constants(call);
	for (int k = 0; k < 2 && status == PLUMB_OK; k++) {
		status = run(g, call, poison[k], k);
		if (status == PLUMB_OK)
			status = check_zones(g, call, k);
		if (status == PLUMB_OK)
			status = check_unchanged(g, call, k);
	}
	if (status == PLUMB_OK)
		status = check_written(g, call);
	if (status == PLUMB_OK)
		status = check_runs(g, call);
	if (status == PLUMB_OK)
		deliver(g);
	if (device)
		plumb_device_poison(device, outside, NULL);
	return status;
}

static int guard_run(void *self, const struct plumb_call *call)
{
	return plumb_guard_call(self, call);
}

struct plumb_runner plumb_guard_runner(struct plumb_guard *g)
{
	return (struct plumb_runner){guard_run, g};
}
