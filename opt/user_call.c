/* SPDX-License-Identifier: MIT */
/* Calling a user's kernel: its operands as core/plumb_kernel.h shows them, its workspace, what it prepared, and what it
 * wrote. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/ops/ple.h"
#include "opt/device_private.h"
#include "opt/mirror.h"
#include "opt/user_private.h"

_Static_assert(sizeof(struct plumb_kernel_ngram) == sizeof(struct plumb_ngram) && PLUMB_MAX_NGRAM == 16 &&
		       PLUMB_MAX_NGRAM_HEADS == 256,
	"plumb_kernel_ngram is plumb_ngram");
_Static_assert(sizeof(struct plumb_kernel_matrix) == 8 + 4 * 8 + 8 + sizeof(void *), "no padding");
_Static_assert((int)PLUMB_KERNEL_IN == (int)PLUMB_IN + 1 && (int)PLUMB_KERNEL_CONSTANT == (int)PLUMB_CONSTANT + 1, "roles");
_Static_assert((int)PLUMB_KERNEL_F32 == (int)PLUMB_F32 + 1 && (int)PLUMB_KERNEL_NVFP4 == (int)PLUMB_NVFP4 + 1, "formats");

enum { SHADOW_STATES = 8 }; /* of one op */

/* The call as the kernel sees it, and what it points to. */
struct view {
	struct plumb_kernel_call call;
	struct plumb_kernel_operand operand[PLUMB_MAX_OPERANDS];
	struct plumb_kernel_dim dim[USER_LETTERS];
	struct plumb_kernel_matrix *matrix; /* of all operands, one after the other */
	char message[512];
};

/* The unit that runs, for the function that a mirror calls back. One thread uses a device at a time, and so it is
 * here. */
static struct user_unit *running;

void user_mark(struct user_unit *unit, const char *phase, const struct plumb_call *call)
{
	struct plumb_user_mark *m = unit->user->mark;

	snprintf(m->phase, sizeof m->phase, "%s", phase);
	snprintf(m->ops, sizeof m->ops, "%s", unit->kernel->ops);
	snprintf(m->path, sizeof m->path, "%s", unit->library->path);
	m->layer = call ? call->layer : -1;
	m->layers = call ? call->env->cfg->layers : 0;
	m->position = call ? call->position : -1;
	m->T = call ? call->T : 0;
}

void user_enter(struct user_unit *unit, const char *phase, const struct plumb_call *call)
{
	struct plumb_user_mark *m = unit->user->mark;

	user_mark(unit, phase, call);
	m->calls++;
	m->under_way = 1;
	unit->entered += unit->entered < USER_THOROUGH;
	user_world_enter(&unit->user->world, &unit->library->mode, unit->entered < USER_THOROUGH, unit->library->pool,
		unit->user->options.threads);
}

const char *user_leave(struct plumb_user *u)
{
	const char *said = user_world_leave(&u->world, u->mark, NULL);
	u->mark->under_way = 0;
	return said;
}

/* ---- the view ---- */

static int64_t matrices_of(const struct plumb_env *env, const struct plumb_operand *o, const void *args)
{
	bool weights = o->kind == PLUMB_KIND_WEIGHT || o->kind == PLUMB_KIND_BANK;
	return weights ? plumb_operand_matrices(env->cfg, o, args) : 0;
}

/* w: where the kernel reads it; host: the model's. */
static struct plumb_kernel_matrix matrix_of(const struct plumb_weight *w, const struct plumb_weight *host)
{
	return (struct plumb_kernel_matrix){
		.format = (int32_t)w->format + 1,
		.scale_format = w->scale ? (int32_t)w->scale_format + 1 : 0,
		.rows = w->rows,
		.cols = w->cols,
		.data = w->data,
		.scale = w->scale,
		.global = w->global,
		.identity = host,
	};
}

static void view_weight(struct plumb_kernel_operand *to, struct plumb_kernel_matrix *matrix, const struct plumb_weight *w,
	const struct plumb_weight *host, int64_t count)
{
	for (int64_t i = 0; i < count; i++)
		matrix[i] = matrix_of(&w[i], &host[i]); /* no padding: tables are compared as bytes */
	to->matrix = matrix;
	to->matrices = count;
	to->format = matrix[0].format;
	to->data = (void *)(uintptr_t)matrix[0].data;
}

static void view_cache(const struct plumb_env *env, struct plumb_kernel_operand *to, const struct plumb_operand *o,
	const struct plumb_cache *c, const struct plumb_cache *host, int64_t position, int64_t T)
{
	to->format = (int32_t)c->format + 1;
	to->data = c->data;
	to->scale = c->scale;
	to->page = c->page;
	to->host_page = host->page;
	to->page_rows = c->page_rows;
	to->rank = 2;
	to->dim[0] = c->rows;
	to->dim[1] = c->width;
	plumb_operand_written_rows(env->cfg, o, c->rows, position, T, &to->first_row, &to->end_row);
}

/* What a view is made of. */
struct scene {
	struct user_unit *unit;
	const struct plumb_env *env;
	const void *args, *host; /* of the unit's block: with pointers that the kernel can use, with the host's */
	struct plumb_extent extent;
	int64_t position;
};

/* Operand i of the unit. matrix: where descriptors of its matrices go. */
static void view_operand(const struct scene *s, int i, struct plumb_kernel_operand *to, struct plumb_kernel_matrix *matrix)
{
	const struct user_unit *unit = s->unit;
	const struct plumb_operand *o = &unit->info.operand[i];
	const void *data = plumb_operand_get(s->args, o), *host = plumb_operand_get(s->host, o);
	const int64_t count = matrices_of(s->env, o, s->args);

	*to = (struct plumb_kernel_operand){.name = o->name,
		.op = plumb_ops[unit->op[unit->op_of[i]]].name,
		.role = (int32_t)o->role + 1,
		.kind = PLUMB_KERNEL_ARRAY,
		.data = (void *)(uintptr_t)data};
	to->rank = plumb_shape_eval(o->shape, s->env->cfg, &s->extent, to->dim);
	switch (o->kind) {
	case PLUMB_KIND_F32:
	case PLUMB_KIND_STORED:
		to->format = (int32_t)plumb_operand_format(o, s->args) + 1;
		break;
	case PLUMB_KIND_I32:
		to->format = PLUMB_KERNEL_I32;
		break;
	case PLUMB_KIND_I64:
		to->format = PLUMB_KERNEL_I64;
		break;
	case PLUMB_KIND_NGRAM:
		to->kind = PLUMB_KERNEL_NGRAM;
		break;
	case PLUMB_KIND_WEIGHT:
	case PLUMB_KIND_BANK:
		to->kind = o->kind == PLUMB_KIND_BANK ? PLUMB_KERNEL_BANK : PLUMB_KERNEL_MATRIX;
		view_weight(to, matrix, data, host, count);
		to->rank = o->kind == PLUMB_KIND_BANK ? 3 : 2;
		to->dim[0] = count;
		to->dim[to->rank - 2] = to->matrix[0].rows;
		to->dim[to->rank - 1] = to->matrix[0].cols;
		break;
	case PLUMB_KIND_CACHE:
		to->kind = PLUMB_KERNEL_CACHE;
		view_cache(s->env, to, o, data, host, s->position, s->extent.T);
		break;
	}
}

/* The operands that the call has. Returns how many; -1: out of memory, with a message. */
static int view_operands(struct view *v, const struct scene *s)
{
	const struct plumb_op_info *info = &s->unit->info;
	int64_t matrices = 0;
	int n = 0;

	for (int i = 0; i < info->operands; i++)
		if (plumb_operand_get(s->args, &info->operand[i]))
			matrices += matrices_of(s->env, &info->operand[i], s->args);
	v->matrix = calloc((size_t)matrices + 1, sizeof *v->matrix);
	if (!v->matrix) {
		plumb_fail(s->env->err, PLUMB_BAD_INPUT, "out of memory for %lld matrices of %s", (long long)matrices,
			info->name);
		return -1;
	}
	struct plumb_kernel_matrix *matrix = v->matrix;
	for (int i = 0; i < info->operands; i++) {
		if (!plumb_operand_get(s->args, &info->operand[i]))
			continue;
		view_operand(s, i, &v->operand[n], matrix);
		matrix += v->operand[n++].matrices;
	}
	return n;
}

/* args: of the unit's block, with pointers that the kernel can use; host: the same with the host's. */
static int view_build(
	struct view *v, struct user_unit *unit, const struct plumb_env *env, const void *args, const void *host)
{
	const struct plumb_call *call = env->call;
	const int64_t told = plumb_op_position(&unit->info, host);
	const struct scene scene = {
		.unit = unit,
		.env = env,
		.args = args,
		.host = host,
		.extent = {.T = plumb_op_rows(args), .capacity = env->capacity},
		.position = told < 0 && call ? call->position : told,
	};
	int n = view_operands(v, &scene);

	if (n < 0)
		return PLUMB_BAD_INPUT;
	v->call = (struct plumb_kernel_call){
		.size = sizeof v->call,
		.operand_size = sizeof v->operand[0],
		.ops = unit->kernel->ops,
		.T = scene.extent.T,
		.position = scene.position,
		.capacity = env->capacity,
		.layer = call ? call->layer : -1,
		.layers = env->cfg->layers,
		.bf16 = env->policy == PLUMB_POLICY_BF16,
		.where = unit->kernel->where,
		.eps = env->cfg->rms_norm_eps,
		.gdn_gate = env->cfg->gdn_gate == PLUMB_GATE_SILU,
		.norm_topk = env->cfg->norm_topk,
		.ties = env->ties == PLUMB_TIES_TORCH,
		.eos = env->cfg->eos,
		.dim = v->dim,
		.operand = v->operand,
		.operands = n,
		.message = v->message,
		.message_size = sizeof v->message,
	};
	if (unit->device && plumb_device_is_cuda(unit->device))
		v->call.stream = plumb_device_stream(unit->device);
	const char *letter;
	for (int i = 0; (letter = plumb_shape_letter(i)) && i < USER_LETTERS; i++) {
		int64_t value[8] = {0};
		plumb_shape_eval(letter, env->cfg, &scene.extent, value);
		v->dim[v->call.dims++] = (struct plumb_kernel_dim){letter, value[0]};
	}
	return PLUMB_OK;
}

/* Descriptors of weights where the kernel's code runs: uploaded once, and again when they are others. */
static int device_tables(struct user_unit *unit, const struct plumb_env *env, struct view *v)
{
	struct plumb_device *d = unit->device;

	for (int32_t i = 0; i < v->call.operands; i++) {
		struct plumb_kernel_operand *o = &v->operand[i];
		size_t bytes = (size_t)o->matrices * sizeof *o->matrix;
		struct user_table *t = unit->table;
		o->device_matrix = o->matrix;
		if (!o->matrix || !d || !d->own_memory)
			continue;
		while (t < unit->table + unit->tables && (t->identity != o->matrix->identity || t->count != o->matrices))
			t++;
		if (t == unit->table + unit->tables) {
			struct user_table *list = realloc(unit->table, (size_t)(unit->tables + 1) * sizeof *list);
			if (!list)
				return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for the weights of %s",
					unit->kernel->ops);
			unit->table = list;
			t = &list[unit->tables++];
			*t = (struct user_table){.identity = o->matrix->identity, .count = o->matrices};
			t->last = calloc(1, bytes);
			t->device = d->backend->take(d, bytes, env->err);
			if (!t->last || !t->device)
				return PLUMB_BAD_INPUT;
		}
		if (memcmp(t->last, o->matrix, bytes) != 0) {
			int status = d->backend->upload(d, t->device, o->matrix, bytes, env->err);
			if (status != PLUMB_OK)
				return status;
			memcpy(t->last, o->matrix, bytes);
		}
		o->device_matrix = t->device;
	}
	return PLUMB_OK;
}

/* ---- one run ---- */

/* A value other than 0 that a kernel's function returned, or 0: an error of the device. */
static int kernel_failed(
	const struct user_unit *unit, const struct plumb_env *env, const char *phase, int value, struct view *v)
{
	char text[768];

	v->message[sizeof v->message - 1] = '\0';
	user_mark((struct user_unit *)(uintptr_t)unit, phase, env->call);
	plumb_user_mark_show(unit->user->mark, text, sizeof text);
	if (!value) /* found after it had returned */
		return plumb_fail(env->err, PLUMB_MISMATCH, "%s failed: %s", text, v->message);
	return plumb_fail(env->err, PLUMB_MISMATCH, "%s failed%s%s (returned %d)", text, v->message[0] ? ": " : "",
		v->message, value);
}

/* What prepare left for the weights of this call; calls it when there is nothing yet. */
static int prepared(struct user_unit *unit, const struct plumb_env *env, struct view *v)
{
	const void *key[PLUMB_MAX_OPERANDS] = {0};
	struct plumb_kernel_operand all[PLUMB_MAX_OPERANDS];
	int n = 0, of_weights = 0;

	if (!unit->kernel->prepare)
		return PLUMB_OK;
	memcpy(all, v->operand, sizeof all);
	for (int32_t i = 0; i < v->call.operands; i++) {
		if (all[i].matrix)
			key[n++] = all[i].matrix[0].identity;
		if (all[i].role == PLUMB_KERNEL_WEIGHT || all[i].role == PLUMB_KERNEL_CONSTANT)
			v->operand[of_weights++] = all[i];
	}
	struct user_prepared *p = NULL;
	for (int i = 0; i < unit->prepared_count && !p; i++)
		if (memcmp(unit->prepared[i].key, key, sizeof key) == 0)
			p = &unit->prepared[i];
	if (!p) {
		struct plumb_kernel_call whole = v->call;
		struct user_prepared *list = realloc(unit->prepared, (size_t)(unit->prepared_count + 1) * sizeof *list);
		if (list)
			unit->prepared = list;
		const void **kept = malloc(sizeof key);
		if (!list || !kept) {
			free(kept);
			return plumb_fail(
				env->err, PLUMB_BAD_INPUT, "out of memory for what %s prepares", unit->library->path);
		}
		memcpy(kept, key, sizeof key);
		p = &unit->prepared[unit->prepared_count];
		*p = (struct user_prepared){.key = kept};
		v->call.operands = of_weights;
		v->call.T = 0;
		user_enter(unit, "prepare", env->call);
		int value = unit->kernel->prepare(&v->call, &p->result);
		const char *said = user_leave(unit->user);
		v->call = whole;
		if (said && !value)
			snprintf(v->message, sizeof v->message, "%s", said);
		if (value || said) {
			free(kept);
			return kernel_failed(unit, env, "prepare", value, v);
		}
		unit->prepared_count++;
	}
	v->call.prepared = p->result;
	memcpy(v->operand, all, sizeof all);
	return PLUMB_OK;
}

/* Bytes of the zone behind the workspace: none where a trap is. Its size, a multiple of 256, leaves no gap before that. */
static size_t zone_after(const struct plumb_user *u)
{
	return u->options.guard && plumb_guard_traps(u->options.guard) ? 0 : PLUMB_GUARD_ZONE;
}

void user_workspace_free(struct plumb_user *u)
{
	if (u->workspace)
		plumb_trap_remove(&u->workspace_trap);
	plumb_trap_unmap(u->workspace, u->workspace_room);
	u->workspace = NULL;
	u->workspace_room = 0;
}

/* Workspace in host memory, between zones, holding poison. Where operands trap it ends at a page that nobody may touch. */
static int host_workspace(
	struct user_unit *unit, const struct plumb_env *env, struct view *v, size_t bytes, enum plumb_poison poison)
{
	struct plumb_user *u = unit->user;
	const size_t page = plumb_trap_page(), zone = zone_after(u);
	const size_t whole = (bytes + 2 * (size_t)PLUMB_GUARD_ZONE + page - 1) / page * page;

	if (u->workspace_room < whole) {
		user_workspace_free(u);
		u->workspace = whole > bytes ? plumb_trap_map(whole) : NULL;
		if (!u->workspace)
			return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for the workspace of %s: %zu bytes",
				unit->library->path, bytes);
		u->workspace_room = whole;
		u->workspace_trap = (struct plumb_trap){.name = "workspace",
			.part = "",
			.low = u->workspace - PLUMB_TRAP_SIDE,
			.high = u->workspace + whole + PLUMB_TRAP_SIDE};
		plumb_trap_add(&u->workspace_trap);
	}
	unsigned char *data = u->workspace + u->workspace_room - zone - bytes;
	u->workspace_trap.data = data;
	u->workspace_trap.bytes = bytes;
	plumb_poison_fill(poison, PLUMB_POISON_32, data - PLUMB_GUARD_ZONE, 0, PLUMB_GUARD_ZONE / 4);
	plumb_poison_fill(poison, PLUMB_POISON_32, data, 0, bytes / 4);
	plumb_poison_fill(poison, PLUMB_POISON_32, data + bytes, 0, zone / 4);
	v->call.workspace = data;
	return PLUMB_OK;
}

static int check_workspace(const struct user_unit *unit, const struct plumb_env *env, const unsigned char *data,
	size_t bytes, enum plumb_poison poison)
{
	size_t before = plumb_poison_zone_last(poison, data - PLUMB_GUARD_ZONE);
	size_t after = zone_after(unit->user) ? plumb_poison_zone_first(poison, data + bytes) : PLUMB_GUARD_ZONE;

	if (before < PLUMB_GUARD_ZONE)
		return plumb_fail(env->err, PLUMB_MISMATCH, "%s wrote before its workspace (%zu bytes before the first)",
			unit->kernel->ops, PLUMB_GUARD_ZONE - before);
	if (after < PLUMB_GUARD_ZONE)
		return plumb_fail(env->err, PLUMB_MISMATCH,
			"%s wrote after its workspace of %zu bytes (%zu bytes after the last)", unit->kernel->ops, bytes,
			after);
	return PLUMB_OK;
}

static int workspace(struct user_unit *unit, const struct plumb_env *env, struct view *v, enum plumb_poison poison)
{
	struct plumb_kernel_operand all[PLUMB_MAX_OPERANDS];

	if (!unit->kernel->workspace)
		return PLUMB_OK;
	memcpy(all, v->operand, sizeof all);
	for (int32_t i = 0; i < v->call.operands; i++)
		v->operand[i].data = NULL;
	user_enter(unit, "workspace", env->call);
	size_t bytes = unit->kernel->workspace(&v->call);
	const char *said = user_leave(unit->user);
	memcpy(v->operand, all, sizeof all);
	if (said) {
		snprintf(v->message, sizeof v->message, "%s", said);
		return kernel_failed(unit, env, "workspace", 0, v);
	}
	bytes = bytes / 256 * 256 + (bytes % 256 ? 256 : 0);
	v->call.workspace_bytes = bytes;
	if (!bytes)
		return PLUMB_OK;
	if (!unit->device)
		return host_workspace(unit, env, v, bytes, poison);
	v->call.workspace = plumb_device_scratch(env, 0, bytes);
	return v->call.workspace ? PLUMB_OK : PLUMB_BAD_INPUT;
}

/* args are what the kernel can use; the unit's host arguments are in unit->host. */
static int run_kernel(const struct plumb_env *env, const void *args)
{
	struct user_unit *unit = running;
	const struct plumb_guard *guard = unit->user->options.guard;
	enum plumb_poison poison = guard ? plumb_guard_poison(guard) : PLUMB_POISON_OFF;
	struct view *v = calloc(1, sizeof *v);
	int status, value = 0;

	if (poison == PLUMB_POISON_OFF)
		poison = PLUMB_POISON_NAN;
	if (!v)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a call of %s", unit->kernel->ops);
	status = view_build(v, unit, env, args, unit->host);
	if (status == PLUMB_OK)
		status = device_tables(unit, env, v);
	if (status == PLUMB_OK)
		status = prepared(unit, env, v);
	if (status == PLUMB_OK)
		status = workspace(unit, env, v, poison);
	if (status == PLUMB_OK) {
		user_enter(unit, "run", env->call);
		value = unit->kernel->run(&v->call);
		if (unit->device && value == 0) /* errors of the launch are the kernel's, and a hang stays under the mark */
			status = plumb_device_sync(unit->device, env->err);
		const char *said = user_leave(unit->user);
		if (status != PLUMB_OK) {
			snprintf(v->message, sizeof v->message, "%.*s", (int)sizeof v->message - 1, env->err->text);
			status = kernel_failed(unit, env, "run", value, v);
		} else if (said && !value) {
			snprintf(v->message, sizeof v->message, "%s", said);
			status = kernel_failed(unit, env, "run", 0, v);
		}
	}
	if (value)
		status = kernel_failed(unit, env, "run", value, v);
	if (status == PLUMB_OK && v->call.workspace_bytes && !unit->device)
		status = check_workspace(unit, env, v->call.workspace, v->call.workspace_bytes, poison);
	free(v->matrix);
	free(v);
	return status;
}

int user_whole_op(const struct plumb_env *env, const void *args)
{
	const struct user_seat *seat = env->device;
	struct user_unit *unit = seat->unit;
	struct plumb_env mine = *env;

	running = unit;
	unit->host = args;
	mine.device = unit->device;
	if (unit->device && unit->device->own_memory)
		return plumb_mirror_run_as(&mine, &unit->info, run_kernel, args);
	return run_kernel(&mine, args);
}

/* ---- units from the calls of their ops ---- */

/* What observers of the op see. */
static void show(struct user_unit *unit, int j, const struct plumb_env *env, const void *args)
{
	const struct plumb_op_info *info = &plumb_ops[unit->op[j]];
	unsigned char *shown = unit->shown.byte + unit->args_offset[j],
		      *decoders = unit->decoders.byte + unit->args_offset[j];

	memcpy(decoders, args, info->args_size);
	memcpy(shown, args, info->args_size);
	for (int k = 0; k < info->operands; k++)
		if (info->operand[k].role == PLUMB_OUT && !user_gives(unit, j, &info->operand[k]))
			plumb_operand_set(shown, &info->operand[k], NULL);
	if (!env->call)
		return;
	unit->part[j] = unit->full[j] = *env->call;
	unit->env[j].call = &unit->full[j];
	unit->part[j].env = unit->full[j].env = &unit->env[j];
	unit->part[j].args = shown;
	unit->full[j].args = decoders;
}

static size_t array_bytes(const struct plumb_env *env, const struct plumb_operand *o, const void *args)
{
	struct plumb_extent extent = {plumb_op_rows(args), env->capacity};
	return (size_t)plumb_shape_count(o->shape, env->cfg, &extent) * plumb_operand_element(o, args);
}

/* An inner op, by the shadow: outputs into the decoder's buffers, state arrays left as they are. Rows of caches that
 * the unit has to write are written here first, and poisoned again before the kernel runs. */
static int shadow(const struct user_unit *unit, const struct plumb_env *env, enum plumb_op op, const void *args)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	struct plumb_env mine = *env;
	void *copy[SHADOW_STATES] = {0};
	unsigned char own[PLUMB_MAX_ARGS];
	int n = 0, status = PLUMB_OK;

	memcpy(own, args, info->args_size);
	for (int k = 0; k < info->operands && status == PLUMB_OK; k++) {
		const struct plumb_operand *o = &info->operand[k];
		const void *state = plumb_operand_get(args, o);
		if (o->role != PLUMB_STATE || o->kind == PLUMB_KIND_CACHE || !state || n == SHADOW_STATES)
			continue;
		size_t bytes = array_bytes(env, o, args);
		copy[n] = malloc(bytes + !bytes);
		if (!copy[n])
			status = plumb_fail(env->err, PLUMB_BAD_INPUT, "out of memory for a copy of %s", o->name);
		else
			plumb_operand_set(own, o, memcpy(copy[n], state, bytes));
		n++;
	}
	mine.device = NULL;
	if (status == PLUMB_OK)
		status = unit->user->options.shadow->op[op](&mine, own);
	for (int k = 0; k < n; k++)
		free(copy[k]);
	return status;
}

/* Puts one op's arguments into the block. */
static int collect(const struct user_seat *seat, const struct plumb_env *env, const void *args)
{
	struct user_unit *unit = seat->unit;
	const int j = seat->index;
	const enum plumb_op op = unit->op[j];

	if (j != unit->next && j != 0)
		return plumb_fail(env->err, PLUMB_BAD_INPUT, "%s of %s is called for %s without the ops before it",
			unit->kernel->ops, unit->library->path, plumb_ops[op].name);
	unit->next = j + 1 < unit->ops ? j + 1 : 0;
	memcpy(unit->block.byte + unit->args_offset[j], args, plumb_ops[op].args_size);
	for (int k = 0; k < plumb_ops[op].operands; k++)
		if (!user_gives(unit, j, &plumb_ops[op].operand[k])) {
			struct plumb_operand o = plumb_ops[op].operand[k];
			o.offset += unit->args_offset[j];
			plumb_operand_set(unit->block.byte, &o, NULL);
		}
	unit->env[j] = *env;
	show(unit, j, env, args);
	if (unit->user->options.shadow && unit->next)
		return shadow(unit, env, op, args);
	return PLUMB_OK;
}

/* The rows of a cache that the call has to write. */
static void poison_rows(const struct plumb_env *env, const struct plumb_operand *o, const struct plumb_cache *cache,
	int64_t position, int64_t T)
{
	struct plumb_kernel_operand rows = {0};

	if (position < 0)
		return;
	view_cache(env, &rows, o, cache, cache, position, T);
	for (int64_t r = rows.first_row; r < rows.end_row; r++)
		plumb_poison_fill(PLUMB_POISON_NAN, plumb_poison_unit(cache->format), plumb_cache_row(cache, r), 0,
			(size_t)cache->width);
}

/* Outputs hold NaN before: an element that the kernel leaves shows. */
static void poison_outputs(const struct user_unit *unit, const struct plumb_env *env)
{
	struct plumb_extent extent = {unit->block.T, env->capacity};

	for (int i = 0; i < unit->info.operands; i++) {
		const struct plumb_operand *o = &unit->info.operand[i];
		void *data = (void *)(uintptr_t)plumb_operand_get(unit->block.byte, o);
		bool shared = false;
		if (o->kind == PLUMB_KIND_CACHE && o->role == PLUMB_STATE && data)
			poison_rows(env, o, data, plumb_op_position(&unit->info, unit->block.byte), unit->block.T);
		for (int k = 0; k < unit->info.operands; k++)
			shared = shared || (k != i && plumb_operand_get(unit->block.byte, &unit->info.operand[k]) == data);
		if (o->role != PLUMB_OUT || !data || shared)
			continue;
		plumb_poison_fill(PLUMB_POISON_NAN, o->kind == PLUMB_KIND_I64 ? PLUMB_POISON_64 : PLUMB_POISON_32, data, 0,
			(size_t)plumb_shape_count(o->shape, env->cfg, &extent));
	}
}

int user_seat_op(const struct plumb_env *env, const void *args)
{
	const struct user_seat *seat = env->device;
	int status = collect(seat, env, args);

	if (status != PLUMB_OK || seat->index + 1 < seat->unit->ops)
		return status;
	poison_outputs(seat->unit, env);
	return user_whole_op(env, seat->unit->block.byte);
}

/* What a guard says begins with op and layer, which stand before it already. */
static const char *without_name(const struct plumb_call *call, const char *said)
{
	char name[192];
	int n = snprintf(name, sizeof name, "%s in layer %d ", call->info->name, call->layer);

	if (n > 0 && strncmp(said, name, (size_t)n) == 0)
		return said + n;
	n = snprintf(name, sizeof name, "%s ", call->info->name);
	return n > 0 && strncmp(said, name, (size_t)n) == 0 ? said + n : said;
}

static int run(void *self, const struct plumb_call *call)
{
	struct plumb_user *u = self;
	struct plumb_guard *guard = u->options.guard;
	const struct user_seat *seat = call->binding->device;
	int status;

	if (!plumb_user_is(call->binding))
		return guard && u->options.guard_all ? plumb_guard_call(guard, call)
		                                     : call->binding->set->op[call->op](call->env, call->args);
	if (!guard)
		return user_seat_op(call->env, call->args);
	status = collect(seat, call->env, call->args);
	if (status != PLUMB_OK || seat->index + 1 < seat->unit->ops)
		return status;
	struct plumb_call whole = *call;
	whole.args = seat->unit->block.byte;
	whole.info = &seat->unit->info;
	whole.binding = &seat->unit->whole;
	poison_outputs(seat->unit, call->env); /* what a shadow wrote is nothing to start from */
	status = plumb_guard_call(guard, &whole);
	if (status == PLUMB_MISMATCH && strncmp(call->env->err->text, "op ", 3) != 0) { /* not by kernel_failed */
		struct plumb_error said = *call->env->err;
		char text[768];
		user_mark(seat->unit, "run", call);
		plumb_user_mark_show(u->mark, text, sizeof text);
		return plumb_fail(call->env->err, PLUMB_MISMATCH, "%.300s: %.440s", text, without_name(&whole, said.text));
	}
	return status;
}

struct plumb_runner plumb_user_runner(struct plumb_user *u, const struct plumb_user_options *options)
{
	u->options = *options;
	return (struct plumb_runner){run, u};
}

/* ---- for those who look at calls ---- */

int plumb_user_done(const struct plumb_call *call, struct plumb_call wrote[PLUMB_USER_MAX_OPS],
	struct plumb_call full[PLUMB_USER_MAX_OPS])
{
	const struct user_seat *seat = call->binding->device;

	wrote[0] = full[0] = *call;
	if (!plumb_user_is(call->binding))
		return 1;
	if (seat->index + 1 < seat->unit->ops)
		return 0;
	for (int j = 0; j < seat->unit->ops; j++) {
		wrote[j] = seat->unit->part[j];
		full[j] = seat->unit->full[j];
	}
	return seat->unit->ops;
}

bool plumb_user_hides(const struct plumb_binding *binding, const char *operand)
{
	const struct user_seat *seat = plumb_user_is(binding) ? binding->device : NULL;
	const struct plumb_operand *o = seat ? plumb_operand_find(&plumb_ops[seat->unit->op[seat->index]], operand) : NULL;

	return o && !user_gives(seat->unit, seat->index, o);
}
