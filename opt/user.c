/* SPDX-License-Identifier: MIT */
/* Loading libraries and binding what they offer. Calls are opt/user_call.c's business. */
#include "opt/user.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/flow.h"
#include "core/text.h"
#include "opt/device_private.h"
#include "opt/user_private.h"

const char *plumb_user_mark_show(const struct plumb_user_mark *m, char *text, size_t size)
{
	char where[64] = "", position[48] = "";

	if (!m->ops[0]) {
		snprintf(text, size, "%s while %s", m->path, m->phase);
		return text;
	}
	if (m->layer >= 0 && m->layer < m->layers)
		snprintf(where, sizeof where, " layer %d", m->layer);
	else if (m->layer >= 0)
		snprintf(where, sizeof where, " outside the layers");
	if (m->position >= 0)
		snprintf(position, sizeof position, " position %lld", (long long)m->position);
	snprintf(text, size, "op %s%s%s: %s%s%s", m->ops, where, position, m->path,
		strcmp(m->phase, "run") == 0 ? "" : " in ", strcmp(m->phase, "run") == 0 ? "" : m->phase);
	return text;
}

int plumb_user_create(struct plumb_user_mark *mark, struct plumb_user **out, struct plumb_error *err)
{
	struct plumb_user *u = calloc(1, sizeof *u);
	if (!u)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for user kernels");
	u->mark = mark ? mark : &u->own_mark;
	user_world_begin(&u->world, u->mark);
	*out = u;
	return PLUMB_OK;
}

/* A user's code runs outside of calls: constructors and destructors. */
static void enter_file(struct plumb_user *u, const char *path, const char *phase, const fenv_t *mode)
{
	struct plumb_user_mark *m = u->mark;

	m->under_way = 0;
	m->ops[0] = '\0';
	snprintf(m->path, sizeof m->path, "%s", path);
	snprintf(m->phase, sizeof m->phase, "%s", phase);
	m->layer = -1;
	m->position = -1;
	m->calls++;
	m->under_way = 1;
	user_world_enter(&u->world, mode, true, false, 0);
}

static const char *leave_file(struct plumb_user *u, fenv_t *mode)
{
	const char *said = user_world_leave(&u->world, u->mark, mode);
	u->mark->under_way = 0;
	return said;
}

static void library_free(struct plumb_user *u, struct user_library *l)
{
	if (!l)
		return;
	if (l->handle) {
		enter_file(u, l->path, "unloading", &l->mode);
		dlclose(l->handle);
		leave_file(u, NULL); /* whatever it says: nothing is judged any more */
	}
	free(l->path);
	free(l->name);
	free(l->version);
	for (int i = 0; i < l->kernels; i++)
		free((char *)(uintptr_t)l->kernel[i].ops);
	free(l->kernel);
	free(l);
}

static void unit_free(struct user_unit *unit)
{
	for (int i = 0; i < unit->prepared_count; i++) {
		if (unit->kernel->release) {
			user_enter(unit, "release", NULL);
			unit->kernel->release(unit->prepared[i].result);
			user_leave(unit->user);
		}
		free(unit->prepared[i].key);
	}
	for (int i = 0; i < unit->tables; i++) {
		if (unit->table[i].device)
			unit->device->backend->give(unit->device, unit->table[i].device);
		free(unit->table[i].last);
	}
	free(unit->table);
	free(unit->prepared);
	free(unit->seat);
	free((char *)(uintptr_t)unit->info.name);
	free(unit);
}

void plumb_user_destroy(struct plumb_user *u)
{
	if (!u)
		return;
	for (int i = 0; i < u->units; i++)
		unit_free(u->unit[i]);
	for (int i = 0; i < u->libraries; i++)
		library_free(u, u->library[i]);
	free(u->unit);
	free(u->library);
	user_workspace_free(u);
	user_world_end(&u->world);
	free(u);
}

/* ---- loading ---- */

/* Split "a+b" into ops; their number, or -1 with a message. */
static int parse_ops(const char *text, const char *path, enum plumb_op op[PLUMB_USER_MAX_OPS], struct plumb_error *err)
{
	int n = 0;

	for (const char *p = text;; p++) {
		size_t length = strcspn(p, "+");
		char name[64];
		snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), p);
		enum plumb_op found = plumb_op_find(name);
		if (found == PLUMB_OP_COUNT) {
			plumb_fail(err, PLUMB_BAD_INPUT, "%s offers '%s', which is no op; 'plumb list ops' shows them",
				path, name);
			return -1;
		}
		if (n == PLUMB_USER_MAX_OPS) {
			plumb_fail(err, PLUMB_BAD_INPUT, "%s: entry '%s' covers more than %d ops", path, text,
				PLUMB_USER_MAX_OPS);
			return -1;
		}
		for (int i = 0; i < n; i++)
			if (op[i] == found) {
				plumb_fail(err, PLUMB_BAD_INPUT, "%s: entry '%s' covers %s twice", path, text, name);
				return -1;
			}
		op[n++] = found;
		p += length;
		if (!*p)
			return n;
	}
}

static char *copy_text(const char *text)
{
	return text ? strdup(text) : NULL;
}

/* The entries of a library, each checked. */
static int take_kernels(struct user_library *l, const struct plumb_kernel_library *from, struct plumb_error *err)
{
	enum plumb_op op[PLUMB_USER_MAX_OPS];

	l->kernel = calloc(from->kernels, sizeof *l->kernel);
	l->name = copy_text(from->name);
	l->version = copy_text(from->version);
	if (!l->kernel)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %u entries of %s", from->kernels, l->path);
	for (uint32_t i = 0; i < from->kernels; i++) {
		struct plumb_kernel *k = &l->kernel[i];
		const char *at = (const char *)from->kernel + (size_t)i * from->kernel_size;
		memcpy(k, at, from->kernel_size < sizeof *k ? from->kernel_size : sizeof *k);
		if (!k->ops || !k->run)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: entry %u has no %s", l->path, i,
				k->ops ? "run function" : "ops");
		if (!(k->ops = strdup(k->ops)))
			return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for entry %u of %s", i, l->path);
		l->kernels++;
		if (parse_ops(k->ops, l->path, op, err) < 0)
			return PLUMB_BAD_INPUT;
		if (k->where < PLUMB_KERNEL_HOST || k->where > PLUMB_KERNEL_SIMT)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: entry %s wants memory of kind %d, expected 0 (host), 1 (cuda) or 2 "
				"(simt)",
				l->path, k->ops, k->where);
		for (int j = 0; j + 1 < l->kernels; j++)
			if (strcmp(l->kernel[j].ops, k->ops) == 0)
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"%s offers %s twice (entries %d and %u), expected once", l->path, k->ops, j, i);
	}
	return PLUMB_OK;
}

/* What stands in the file, once it is open. */
static int read_library(struct user_library *l, struct plumb_error *err)
{
	plumb_kernels_fn *fn;
	void *symbol = dlsym(l->handle, "plumb_kernels");

	if (!symbol)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s has no symbol plumb_kernels, expected one (PLUMB_KERNELS in plumb/kernel.h defines it)",
			l->path);
	memcpy(&fn, &symbol, sizeof fn);
	const struct plumb_kernel_library *from = fn(PLUMB_KERNEL_ABI);
	if (!from)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s does not serve kernel ABI %u, which this plumb speaks: build it with this "
			"plumb's plumb/kernel.h",
			l->path, PLUMB_KERNEL_ABI);
	if (from->abi != PLUMB_KERNEL_ABI)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s is of kernel ABI %u, expected %u: build it with this plumb's plumb/kernel.h", l->path,
			from->abi, PLUMB_KERNEL_ABI);
	if (from->size < offsetof(struct plumb_kernel_library, name) ||
		from->kernel_size < offsetof(struct plumb_kernel, where))
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"%s: its structs have %u and %u bytes, expected at least %zu and %zu", l->path, from->size,
			from->kernel_size, offsetof(struct plumb_kernel_library, name),
			offsetof(struct plumb_kernel, where));
	if (from->kernels < 1 || from->kernels > 4096 || !from->kernel)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s offers %u kernels, expected 1..4096", l->path, from->kernels);
	/* members that came after its time are not there */
	struct plumb_kernel_library known = {0};
	memcpy(&known, from, from->size < sizeof known ? from->size : sizeof known);
	return take_kernels(l, &known, err);
}

static const struct user_library *find_library(const struct plumb_user *u, const char *path)
{
	const struct user_library *found = NULL;
	for (int i = 0; i < u->libraries; i++)
		if (strcmp(u->library[i]->path, path) == 0)
			found = u->library[i];
	return found;
}

int plumb_user_load(struct plumb_user *u, const char *path, struct plumb_error *err)
{
	struct user_library *l, **list;
	char local[4096];
	int status;

	if (find_library(u, path))
		return PLUMB_OK;
	list = realloc(u->library, (size_t)(u->libraries + 1) * sizeof *list);
	l = list ? calloc(1, sizeof *l) : NULL;
	if (list)
		u->library = list;
	if (!l || !(l->path = strdup(path))) {
		library_free(u, l);
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s", path);
	}
	snprintf(local, sizeof local, "%s%s", strchr(path, '/') ? "" : "./", path);
	if ((status = user_file_check(path, err)) != PLUMB_OK) {
		library_free(u, l);
		return status;
	}
	enter_file(u, path, "loading", NULL);
	l->handle = dlopen(local, RTLD_NOW | RTLD_LOCAL);
	if (l->handle) {
		status = read_library(l, err);
	} else {
		const char *why = dlerror();
		size_t n = strlen(local);
		if (why && strncmp(why, local, n) == 0 && strncmp(why + n, ": ", 2) == 0)
			why += n + 2; /* it begins with the path as well */
		status = plumb_fail(err, PLUMB_BAD_INPUT, "cannot load %s: %s", path, why ? why : "no reason given");
	}
	const char *said = leave_file(u, &l->mode);
	l->pool = l->handle && dlsym(l->handle, "GOMP_parallel");
	if (said && status == PLUMB_OK)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "%s while loading %s", path, said);
	if (status != PLUMB_OK) {
		library_free(u, l);
		return status;
	}
	u->library[u->libraries++] = l;
	return PLUMB_OK;
}

bool plumb_user_wants(const struct plumb_user *u, int32_t where)
{
	bool wants = false;
	for (int i = 0; i < u->libraries; i++)
		for (int k = 0; k < u->library[i]->kernels; k++)
			wants = wants || u->library[i]->kernel[k].where == where;
	return wants;
}

bool plumb_user_offers(const struct plumb_user *u, const char *path, const char *ops)
{
	const struct user_library *l = find_library(u, path);
	for (int k = 0; l && k < l->kernels; k++)
		if (strcmp(l->kernel[k].ops, ops) == 0)
			return true;
	return false;
}

const char *plumb_user_describe(const struct plumb_user *u, char *text, size_t size)
{
	size_t n = 0;

	text[0] = '\0';
	for (int i = 0; i < u->libraries && n < size; i++) {
		const struct user_library *l = u->library[i];
		n += (size_t)snprintf(text + n, size - n, "%s%s%s%s%s%s%s", i ? ", " : "", l->name ? l->name : "",
			l->name && l->version ? " " : "", l->version ? l->version : "", l->name || l->version ? " (" : "",
			l->path, l->name || l->version ? ")" : "");
	}
	for (unsigned char *p = (unsigned char *)text; *p; p++)
		if (*p < 0x20 || *p >= 0x7f)
			*p = '?'; /* somebody else's text: it reaches no terminal and no report raw */
	return text;
}

/* ---- units ---- */

bool user_gives(const struct user_unit *unit, int j, const struct plumb_operand *o)
{
	if (o->trace)
		return unit->kernel->traces != 0;
	if (o->role == PLUMB_IN) {
		for (int i = 0; i < j; i++) {
			const struct plumb_op_info *info = &plumb_ops[unit->op[i]];
			for (int k = 0; k < info->operands; k++)
				if (info->operand[k].role == PLUMB_OUT &&
					plumb_flow_feeds(unit->op[i], info->operand[k].name, unit->op[j], o->name))
					return false;
		}
		return true;
	}
	if (o->role != PLUMB_OUT || j == unit->ops - 1)
		return true;
	return plumb_flow_leaves(unit->op[j], o->name, unit->op, unit->ops);
}

/* The table of a unit's operands. */
static int describe(struct user_unit *unit, struct plumb_error *err)
{
	size_t at = 0;

	for (int j = 0; j < unit->ops; j++) {
		const struct plumb_op_info *info = &plumb_ops[unit->op[j]];
		unit->args_offset[j] = at;
		for (int k = 0; k < info->operands; k++) {
			const struct plumb_operand *o = &info->operand[k];
			if (!user_gives(unit, j, o))
				continue;
			if (unit->info.operands == PLUMB_MAX_OPERANDS)
				return plumb_fail(err, PLUMB_BAD_INPUT, "%s: entry %s has more than %d operands",
					unit->library->path, unit->kernel->ops, PLUMB_MAX_OPERANDS);
			unit->op_of[unit->info.operands] = j;
			struct plumb_operand *mine = &unit->operand[unit->info.operands++];
			*mine = *o;
			mine->offset += at;
			if (mine->count)
				mine->count += at;
			if (mine->format)
				mine->format += at;
		}
		at += (info->args_size + 15) / 16 * 16;
		if (at > PLUMB_MAX_ARGS)
			return plumb_fail(err, PLUMB_BAD_INPUT, "%s: entry %s has more than %d bytes of arguments",
				unit->library->path, unit->kernel->ops, PLUMB_MAX_ARGS);
	}
	unit->info.name = strdup(unit->kernel->ops);
	unit->info.stage = plumb_ops[unit->op[0]].stage;
	unit->info.brief = "";
	unit->info.args_size = at;
	unit->info.operand = unit->operand;
	return unit->info.name ? PLUMB_OK : plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s", unit->kernel->ops);
}

int plumb_user_operands(const char *ops, plumb_user_operand_fn *fn, void *self, struct plumb_error *err)
{
	const struct plumb_kernel kernel = {.ops = ops};
	struct user_unit *unit = calloc(1, sizeof *unit);
	int status = PLUMB_OK;

	if (!unit)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the operands of %s", ops);
	unit->kernel = &kernel;
	unit->ops = parse_ops(ops, "a kernel", unit->op, err);
	if (unit->ops < 0)
		status = PLUMB_BAD_INPUT;
	for (int j = 0; j < unit->ops && status == PLUMB_OK; j++)
		for (int k = 0; k < plumb_ops[unit->op[j]].operands && status == PLUMB_OK; k++)
			if (user_gives(unit, j, &plumb_ops[unit->op[j]].operand[k]))
				status = fn(self, unit->op[j], &plumb_ops[unit->op[j]].operand[k]);
	free(unit);
	return status;
}

static int take_device(struct user_unit *unit, struct plumb_device *device, struct plumb_error *err)
{
	const int32_t where = unit->kernel->where;
	bool is_cuda = device && plumb_device_is_cuda(device);

	if (where == PLUMB_KERNEL_HOST)
		return PLUMB_OK;
	if (where == PLUMB_KERNEL_CUDA && !is_cuda)
		return plumb_fail(err, PLUMB_NO_DEVICE,
			"%s: %s wants pointers of a GPU, and the device is %s: --device cuda", unit->library->path,
			unit->kernel->ops, device ? plumb_device_name(device) : "not open");
	if (where == PLUMB_KERNEL_SIMT && (!device || is_cuda))
		return plumb_fail(err, PLUMB_NO_DEVICE,
			"%s: %s wants pointers of the simt device, and the device is %s: --device simt",
			unit->library->path, unit->kernel->ops, device ? plumb_device_name(device) : "not open");
	unit->device = device;
	return PLUMB_OK;
}

static int unit_take(struct plumb_user *u, const struct user_library *l, const struct plumb_kernel *k,
	struct plumb_device *device, struct user_unit **out, struct plumb_error *err)
{
	struct user_unit *unit, **list;
	int status;

	for (int i = 0; i < u->units; i++)
		if (u->unit[i]->kernel == k) {
			*out = u->unit[i];
			return PLUMB_OK;
		}
	list = realloc(u->unit, (size_t)(u->units + 1) * sizeof *list);
	unit = list ? calloc(1, sizeof *unit) : NULL;
	if (list)
		u->unit = list;
	if (unit)
		unit->seat = calloc(PLUMB_USER_MAX_OPS, sizeof *unit->seat);
	if (!unit || !unit->seat) {
		free(unit);
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s of %s", k->ops, l->path);
	}
	unit->user = u;
	unit->library = l;
	unit->kernel = k;
	unit->ops = parse_ops(k->ops, l->path, unit->op, err);
	unit->seat_set.name = unit->whole_set.name = l->path;
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		unit->seat_set.op[op] = user_seat_op;
		unit->whole_set.op[op] = user_whole_op;
	}
	for (int j = 0; j < unit->ops; j++)
		unit->seat[j] = (struct user_seat){unit, j};
	unit->whole = (struct plumb_binding){&unit->whole_set, &unit->seat[unit->ops - 1]};
	status = describe(unit, err);
	if (status == PLUMB_OK)
		status = take_device(unit, device, err);
	if (status != PLUMB_OK) {
		unit_free(unit);
		return status;
	}
	u->unit[u->units++] = *out = unit;
	return PLUMB_OK;
}

/* ---- binding ---- */

/* *layers grows by those that run the unit. */
static int bind_unit(const struct user_unit *unit, struct plumb_plan *plan, const struct plumb_config *cfg, int first,
	int last, int *layers, struct plumb_error *err)
{
	for (int l = first; l <= last && l <= cfg->layers; l++) {
		int stray, fits = plumb_flow_fits(cfg, l, unit->op, unit->ops, &stray);
		if (fits < 0) {
			struct plumb_step order[PLUMB_FLOW_MAX];
			char where[32] = "after the layers";
			if (l < cfg->layers)
				snprintf(where, sizeof where, "in layer %d", l);
			plumb_flow_order(cfg, l, order);
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"%s: %s the ops of '%s' do not always follow each other (%s stands apart), expected "
				"neighbours",
				unit->library->path, where, unit->kernel->ops, plumb_ops[order[stray].op].name);
		}
		for (int j = 0; j < unit->ops && fits; j++)
			plumb_plan_bind(plan, unit->op[j], l, l, (struct plumb_binding){&unit->seat_set, &unit->seat[j]});
		*layers += fits;
	}
	return PLUMB_OK;
}

/* The entry for these ops: of exactly that name, else the only fused one that covers the op. */
static const struct plumb_kernel *find_kernel(const struct user_library *l, const char *ops, struct plumb_error *err)
{
	const struct plumb_kernel *found = NULL;
	char offered[256] = "";
	struct plumb_text list = {.text = offered, .size = sizeof offered};

	for (int i = 0; i < l->kernels && !found; i++)
		if (strcmp(l->kernel[i].ops, ops) == 0)
			found = &l->kernel[i];
	if (found)
		return found;
	for (int i = 0; i < l->kernels; i++) {
		enum plumb_op op[PLUMB_USER_MAX_OPS];
		int n = parse_ops(l->kernel[i].ops, l->path, op, err);
		for (int j = 0; j < n; j++)
			if (strcmp(plumb_ops[op[j]].name, ops) == 0) {
				if (found) {
					plumb_fail(err, PLUMB_BAD_INPUT,
						"%s offers %s in '%s' and in '%s': name one of them", l->path, ops,
						found->ops, l->kernel[i].ops);
					return NULL;
				}
				found = &l->kernel[i];
			}
		plumb_text_add(&list, "%s%s", i ? ", " : "", l->kernel[i].ops);
	}
	if (!found)
		plumb_fail(err, PLUMB_BAD_INPUT, "%s offers no %s; it has %s", l->path, ops, offered);
	return found;
}

int plumb_user_bind(struct plumb_user *u, struct plumb_plan *plan, const struct plumb_config *cfg, const char *path,
	const char *ops, int first, int last, struct plumb_device *device, struct plumb_error *err)
{
	bool all = strcmp(ops, "all") == 0;
	struct user_unit *unit = NULL;
	int layers = 0, status = plumb_user_load(u, path, err);
	const struct user_library *l = status == PLUMB_OK ? find_library(u, path) : NULL;

	if (status != PLUMB_OK)
		return status;
	for (int i = 0; i < l->kernels && all && status == PLUMB_OK; i++) {
		status = unit_take(u, l, &l->kernel[i], device, &unit, err);
		if (status == PLUMB_OK)
			status = bind_unit(unit, plan, cfg, first, last, &layers, err);
	}
	if (!all) {
		const struct plumb_kernel *k = find_kernel(l, ops, err);
		status = k ? unit_take(u, l, k, device, &unit, err) : PLUMB_BAD_INPUT;
		if (status == PLUMB_OK)
			status = bind_unit(unit, plan, cfg, first, last, &layers, err);
	}
	if (status == PLUMB_OK && !layers)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op: no layer of %d..%d runs %s%s", first, last,
			all ? "anything of " : unit->kernel->ops, all ? path : "");
	return status;
}

bool plumb_user_is(const struct plumb_binding *b)
{
	return b->set && (b->set->op[0] == user_seat_op || b->set->op[0] == user_whole_op);
}

static const struct user_seat *seat_of(const struct plumb_binding *b)
{
	return plumb_user_is(b) ? b->device : NULL;
}

const char *plumb_user_ops(const struct plumb_binding *b)
{
	const struct user_seat *seat = seat_of(b);
	return seat ? seat->unit->kernel->ops : NULL;
}

struct plumb_device *plumb_user_device(const struct plumb_binding *b)
{
	const struct user_seat *seat = seat_of(b);
	return seat ? seat->unit->device : NULL;
}

int plumb_user_seats(const struct plumb_user *u, const struct plumb_plan *plan, const char *path)
{
	const struct user_library *l = find_library(u, path);
	int seats = 0;

	for (int i = 0; i < (plan->layers + 1) * PLUMB_OP_COUNT; i++) {
		const struct user_seat *seat = seat_of(&plan->binding[i]);
		seats += seat && seat->unit->library == l;
	}
	return seats;
}

int plumb_user_whole(const struct plumb_user *u, const struct plumb_plan *plan, struct plumb_error *err)
{
	(void)u;
	for (int l = 0; l <= plan->layers; l++)
		for (int op = 0; op < PLUMB_OP_COUNT; op++) {
			const struct user_seat *seat = seat_of(&plan->binding[(size_t)l * PLUMB_OP_COUNT + op]);
			for (int j = 0; seat && j < seat->unit->ops; j++) {
				const struct user_unit *unit = seat->unit;
				const struct plumb_binding *b = &plan->binding[(size_t)l * PLUMB_OP_COUNT + unit->op[j]];
				const struct user_seat *other = seat_of(b);
				if (other && other->unit == unit)
					continue;
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"layer %d: %s runs from %s, and %s of %s covers it too: a fused entry runs as "
					"a whole or not at all",
					l, plumb_ops[unit->op[j]].name, b->set ? b->set->name : "nothing",
					unit->kernel->ops, unit->library->path);
			}
		}
	return PLUMB_OK;
}
