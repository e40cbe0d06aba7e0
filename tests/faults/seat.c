/* SPDX-License-Identifier: MIT */
/* The opt set as a shared object of kernels (core/plumb_kernel.h): what `plumb faults` links a planted fault into, so that
 * it is judged by the checks that judge anybody's kernel. Every op is offered; a call is turned back into the op's argument
 * struct by the table of core/op.h, and the opt function runs it on a device of its own.
 *
 * Each call of an op takes another schedule and the other poison than the one before, and calls come in pairs with the same
 * inputs (opt/guard.h): what depends on either differs within a pair, and is told.
 *
 * PLUMB_SEAT=race: every call under the race check (kernels/simt/race.h). PLUMB_SEAT_CUDA (when compiled): the GPU. */
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/cache.h"
#include "core/op.h"
#include "core/ops/ple.h"
#include "core/plumb_kernel.h"
#include "opt/device.h"
#include "opt/trap.h"

enum { SCHEDULES = 4, MAX_ARGS = 512, MAX_CACHES = 4, MAX_BANKS = 8 };

static struct plumb_device *device[SCHEDULES];
static int devices;
static struct sigaction before; /* the program's: it knows nothing of this library's scratch */

/* Say which scratch lies beside the address; then the fault happens again, for the program. */
static void fault(int number, siginfo_t *info, void *context)
{
	char text[256];

	if (plumb_trap_tell(info->si_addr, plumb_trap_is_write(context), text, sizeof text - 1)) {
		strcat(text, "\n");
		const ssize_t told = write(STDERR_FILENO, text, strlen(text));
		(void)told;
	}
	sigaction(number, &before, NULL);
}

__attribute__((constructor)) static void begin(void)
{
	sigaction(SIGSEGV, &(struct sigaction){.sa_sigaction = fault, .sa_flags = SA_SIGINFO | SA_ONSTACK}, &before);
}

static int open_devices(struct plumb_error *err)
{
	const char *how = getenv("PLUMB_SEAT");
	const bool race = how && strcmp(how, "race") == 0;
	int wanted = race ? 1 : SCHEDULES, status = PLUMB_OK;
#ifdef PLUMB_SEAT_CUDA
	const enum plumb_device_kind kind = PLUMB_DEVICE_CUDA;
	wanted = 1;
#else
	const enum plumb_device_kind kind = PLUMB_DEVICE_SIMT;
#endif

	while (devices < wanted && status == PLUMB_OK) {
		const struct plumb_device_options options = {
			.seed = (uint64_t)devices * 1001, .race = race, .poison = PLUMB_POISON_NAN, .traps = true};
		status = plumb_device_open(kind, &options, &device[devices], err);
		devices += status == PLUMB_OK;
	}
	return status;
}

/* A library may be loaded and let go many times in one process. */
__attribute__((destructor)) static void end(void)
{
	sigaction(SIGSEGV, &before, NULL);
	while (devices > 0)
		plumb_device_close(device[--devices]);
}

/* What the opt set reads of a config, from the call's letters. */
static void config_of(const struct plumb_kernel_call *call, struct plumb_config *c)
{
	c->vocab = plumb_dim(call, "V");
	c->hidden = plumb_dim(call, "D");
	c->layers = call->layers;
	c->rms_norm_eps = call->eps;
	c->streams = (int)plumb_dim(call, "S");
	c->low_rank = plumb_dim(call, "R");
	c->q_heads = (int)plumb_dim(call, "Hq");
	c->kv_heads = (int)plumb_dim(call, "Hkv");
	c->head_dim = plumb_dim(call, "Dh");
	c->rotary_dim = plumb_dim(call, "Dr");
	c->gdn_key_heads = (int)plumb_dim(call, "Hk");
	c->gdn_value_heads = (int)plumb_dim(call, "Hv");
	c->gdn_key_dim = plumb_dim(call, "Dk");
	c->gdn_value_dim = plumb_dim(call, "Dv");
	c->gdn_conv_taps = (int)plumb_dim(call, "Kc");
	c->gdn_gate = call->gdn_gate ? PLUMB_GATE_SILU : PLUMB_GATE_SIGMOID;
	c->experts = plumb_dim(call, "E");
	c->experts_per_token = (int)plumb_dim(call, "A");
	c->expert_inner = plumb_dim(call, "F");
	c->shared_inner = plumb_dim(call, "Fs");
	c->norm_topk = call->norm_topk;
	c->index_heads = (int)plumb_dim(call, "Hi");
	c->index_dim = plumb_dim(call, "Di");
	c->block_tokens = (int)plumb_dim(call, "B");
	c->block_budget = plumb_dim(call, "N");
	c->ngram = (int)plumb_dim(call, "G");
	c->heads_per_ngram = c->ngram > 1 ? (int)plumb_dim(call, "Hg") / (c->ngram - 1) : 0;
	c->ple_dim = plumb_dim(call, "De");
	c->ple_conv_taps = (int)plumb_dim(call, "Kp");
	c->eos = call->eos;
}

/* What a call's pointers point to. */
struct made {
	struct plumb_cache cache[MAX_CACHES];
	struct plumb_weight *bank[MAX_BANKS];
	int caches, banks;
};

static const void *weights_of(struct made *m, const struct plumb_kernel_operand *o)
{
	struct plumb_weight *w = calloc((size_t)o->matrices, sizeof *w);

	m->bank[m->banks++] = w;
	for (int64_t i = 0; w && i < o->matrices; i++)
		w[i] = (struct plumb_weight){
			.format = (enum plumb_format)(o->matrix[i].format - 1),
			.rows = o->matrix[i].rows,
			.cols = o->matrix[i].cols,
			.data = o->matrix[i].data,
			.scale = o->matrix[i].scale,
			.scale_format = o->matrix[i].scale ? (enum plumb_format)(o->matrix[i].scale_format - 1) : PLUMB_F32,
			.global = o->matrix[i].global,
		};
	return w;
}

static const void *cache_of(struct made *m, const struct plumb_kernel_operand *o)
{
	struct plumb_cache *c = &m->cache[m->caches++];

	*c = (struct plumb_cache){
		.format = (enum plumb_format)(o->format - 1),
		.data = o->data,
		.page = o->page,
		.page_rows = (int32_t)o->page_rows,
		.width = (int32_t)o->dim[1],
		.rows = o->dim[0],
		.scale = o->scale,
	};
	return c;
}

/* False: out of memory. */
static bool arguments_of(
	const struct plumb_kernel_call *call, const struct plumb_op_info *info, struct made *m, unsigned char *args)
{
	memcpy(args, &call->T, sizeof call->T);
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const struct plumb_kernel_operand *from = plumb_operand(call, o->name);
		const void *pointer;
		int format;
		if (!from)
			continue;
		switch (o->kind) {
		case PLUMB_KIND_WEIGHT:
		case PLUMB_KIND_BANK:
			pointer = weights_of(m, from);
			if (!pointer)
				return false;
			if (o->count)
				memcpy(args + o->count, &from->matrices, sizeof from->matrices);
			break;
		case PLUMB_KIND_CACHE:
			pointer = cache_of(m, from);
			break;
		case PLUMB_KIND_STORED:
			format = from->format - 1;
			memcpy(args + o->format, &format, sizeof format);
			pointer = from->data;
			break;
		default:
			pointer = from->data;
		}
		plumb_operand_set(args, o, pointer);
	}
	if (strcmp(info->name, "ple_embed") == 0) { /* what no operand says */
		struct plumb_ple_embed *a = (void *)args;
		a->shard_rows = a->table[0].rows;
	}
	return true;
}

static int run(const struct plumb_kernel_call *call)
{
	static struct plumb_config cfg;
	static unsigned
		calls; /* begins anew when the library is loaded anew, for the next case: hence T and position below */
	const enum plumb_op op = plumb_op_find(call->ops);
	const struct plumb_op_info *info = &plumb_ops[op];
	_Alignas(16) unsigned char args[MAX_ARGS] = {0};
	struct plumb_error err = {""};
	struct made m = {.caches = 0};
	int status = open_devices(&err);

	if (status == PLUMB_OK && (info->args_size > sizeof args || !arguments_of(call, info, &m, args)))
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "out of memory");
	if (status == PLUMB_OK) {
		struct plumb_device *d = device[(unsigned)(call->T + call->position + calls) % (unsigned)devices];
		config_of(call, &cfg);
		const struct plumb_env env = {
			.cfg = &cfg,
			.policy = call->bf16 ? PLUMB_POLICY_BF16 : PLUMB_POLICY_F32,
			.ties = call->ties ? PLUMB_TIES_TORCH : PLUMB_TIES_LOWER,
			.capacity = call->capacity,
			.err = &err,
			.device = d,
		};
		plumb_device_poison(d, calls % 2 ? PLUMB_POISON_LARGE : PLUMB_POISON_NAN, call->ops);
		calls++;
		status = plumb_device_set(d)->op[op](&env, args);
		if (status == PLUMB_OK)
			status = plumb_device_sync(d, &err);
		if (status == PLUMB_OK)
			status = plumb_device_check(d, &err);
		if (status == PLUMB_OK) /* the next call's weights may lie where this one's did */
			status = plumb_device_forget(d, &err);
	}
	for (int i = 0; i < m.banks; i++)
		free(m.bank[i]);
	return status == PLUMB_OK ? 0 : plumb_say(call, "%s", err.text);
}

PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi);
PLUMB_KERNEL_SYMBOL const struct plumb_kernel_library *plumb_kernels(uint32_t abi)
{
	static struct plumb_kernel kernels[PLUMB_OP_COUNT];
	static struct plumb_kernel_library library = {(uint32_t)sizeof library, PLUMB_KERNEL_ABI,
		(uint32_t)sizeof kernels[0], PLUMB_OP_COUNT, kernels, "the opt set", "1.0"};

	for (int i = 0; i < PLUMB_OP_COUNT; i++)
		kernels[i] = (struct plumb_kernel){
			.ops = plumb_ops[i].name,
			.run = run,
#ifdef PLUMB_SEAT_CUDA
			.where = PLUMB_KERNEL_CUDA,
#endif
			.traces = 1,
		};
	return abi == PLUMB_KERNEL_ABI ? &library : NULL;
}
