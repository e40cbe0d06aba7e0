/* SPDX-License-Identifier: MIT */
#include "tools/session.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "core/plumb_kernel.h"
#include "core/scan.h"
#include "ref/ref.h"
#include "ref/twin/twin.h"
#include "tools/output.h"
#include "tools/progress.h"
#include "tools/text.h"

/* The functions that the words ref and opt stand for. */
struct bindings {
	struct plumb_binding ref, opt;
};

/* Whether the word after '=' is a file: it has a '/' or ends in .so. */
static bool is_file(const char *word)
{
	size_t n = strlen(word);
	return strchr(word, '/') || (n > 3 && strcmp(word + n - 3, ".so") == 0);
}

bool session_wants_user(const struct set_options *o)
{
	bool wanted = false;
	for (int i = 0; i < o->op.count; i++) {
		const char *equals = strchr(o->op.item[i], '=');
		wanted = wanted || (equals && is_file(equals + 1));
	}
	return wanted;
}

/* Load every shared object that the options name: which device to open depends on them. */
static int load_user(const struct set_options *o, struct plumb_user_mark *mark, struct session *s, struct plumb_error *err)
{
	int status = session_wants_user(o) ? plumb_user_create(mark, &s->user, err) : PLUMB_OK;
	for (int i = 0; i < o->op.count && status == PLUMB_OK; i++) {
		const char *equals = strchr(o->op.item[i], '=');
		if (equals && is_file(equals + 1))
			status = plumb_user_load(s->user, equals + 1, err);
	}
	return status;
}

static bool wants_opt(const struct set_options *o)
{
	bool wanted = o->set && strcmp(o->set, "opt") == 0;
	for (int i = 0; i < o->op.count; i++) {
		const char *equals = strchr(o->op.item[i], '=');
		wanted = wanted || (equals && strcmp(equals + 1, "opt") == 0);
	}
	return wanted;
}

static int open_device(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	const bool cuda = s->user && plumb_user_wants(s->user, PLUMB_KERNEL_CUDA);
	const char *name = o->device ? o->device : cuda ? "cuda" : "simt";
	if (o->gpu > 1023)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--gpu is %lld, expected 0..1023", (long long)o->gpu);
	const struct plumb_device_options options = {
		.seed = (uint64_t)o->seed,
		.ordinal = (int)o->gpu,
		.poison = o->guard ? PLUMB_POISON_NAN : PLUMB_POISON_OFF,
		.own_memory = s->user && plumb_user_wants(s->user, PLUMB_KERNEL_SIMT) && strcmp(name, "simt") == 0,
	};
	if (strcmp(name, "simt") != 0 && strcmp(name, "cuda") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--device is '%s', expected simt or cuda", name);
	return plumb_device_open(
		strcmp(name, "cuda") == 0 ? PLUMB_DEVICE_CUDA : PLUMB_DEVICE_SIMT, &options, &s->device, err);
}

static int make_bindings(const struct set_options *o, struct session *s, struct bindings *b, struct plumb_error *err)
{
	const char *mode = o->mode ? o->mode : "oracle";
	int status = PLUMB_OK;

	if (strcmp(mode, "oracle") != 0 && strcmp(mode, "twin") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--mode is '%s', expected oracle or twin", mode);
	b->ref = (struct plumb_binding){.set = strcmp(mode, "twin") == 0 ? &plumb_ref_twin : &plumb_ref_oracle};
	b->opt = (struct plumb_binding){0};
	bool user =
		s->user && (plumb_user_wants(s->user, PLUMB_KERNEL_CUDA) || plumb_user_wants(s->user, PLUMB_KERNEL_SIMT));
	if (wants_opt(o) || o->device || user) {
		status = open_device(o, s, err);
		if (status == PLUMB_OK)
			b->opt = (struct plumb_binding){.set = plumb_device_set(s->device), .device = s->device};
	}
	return status;
}

static int make_guard(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	int status = PLUMB_OK;
	if (o->guard || (o->compares && !o->once && s->user))
		status = plumb_guard_create(&s->guard, err);
	if (status == PLUMB_OK && s->guard && s->device)
		status = plumb_guard_watch(s->guard, s->device, err);
	if (status == PLUMB_OK && s->user)
		s->runner = plumb_user_runner(s->user, &(struct plumb_user_options){.guard = s->guard,
							       .guard_all = o->guard,
							       .shadow = o->compares ? &plumb_ref_oracle : NULL});
	else if (status == PLUMB_OK && s->guard)
		s->runner = plumb_guard_runner(s->guard);
	return status;
}

int session_formats(
	const struct session *s, const struct set_options *o, struct plumb_decoder_options *out, struct plumb_error *err)
{
	if (o->profile && !s->profile.keep_caches) {
		out->own_caches = true;
		out->caches = s->profile.caches;
	}
	if (o->profile && !s->profile.keep_state)
		out->state = s->profile.state;
	return options_formats(o, out, err);
}

const struct plumb_runner *session_runner(const struct session *s)
{
	return s->runner.run ? &s->runner : NULL;
}

/* The binding of a word. */
static int choose(
	const char *option, const char *word, const struct bindings *b, struct plumb_binding *out, struct plumb_error *err)
{
	if (strcmp(word, "ref") != 0 && strcmp(word, "opt") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is '%s', expected ref or opt%s", option, word,
			strncmp(option, "--op", 4) == 0 ? ", or the path of a shared object" : "");
	*out = strcmp(word, "opt") == 0 ? b->opt : b->ref;
	return PLUMB_OK;
}

/* Whether any layer of first..last runs the op. */
static bool runs_in(const struct plumb_config *cfg, enum plumb_op op, int first, int last)
{
	bool runs = false;
	for (int l = first; l <= last; l++)
		runs = runs || plumb_op_runs(cfg, op, l);
	return runs;
}

/* An --op NAME[@A-B]=ref|opt|FILE.so in parts. */
struct seat {
	char name[256], layers[32]; /* as given; layers may be empty */
	int first, last;            /* layer; L: outside of them */
	const char *kernel;
};

static int seat_parse(const char *text, int layers, struct seat *out, struct plumb_error *err)
{
	const char *equals = strchr(text, '='), *at = strchr(text, '@');

	if (!equals)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op is '%s', expected NAME[@A-B]=ref|opt|FILE.so", text);
	if (at && at > equals)
		at = NULL;
	snprintf(out->name, sizeof out->name, "%.*s", (int)((at ? at : equals) - text), text);
	if (at && (size_t)(equals - at - 1) >= sizeof out->layers)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op %s: layers of %zu characters, expected A or A-B", out->name,
			(size_t)(equals - at - 1));
	snprintf(out->layers, sizeof out->layers, "%.*s", at ? (int)(equals - at - 1) : 0, at ? at + 1 : "");
	out->kernel = equals + 1;
	return options_layers(at ? out->layers : NULL, layers, &out->first, &out->last, err);
}

static int bind_op(struct session *s, const char *text, const struct bindings *b, struct plumb_error *err)
{
	char option[280];
	enum plumb_op op = PLUMB_OP_COUNT;
	struct plumb_binding binding;
	struct seat seat;
	int status = seat_parse(text, s->cfg->layers, &seat, err);

	if (status == PLUMB_OK && is_file(seat.kernel))
		return plumb_user_bind(
			s->user, &s->plan, s->cfg, seat.kernel, seat.name, seat.first, seat.last, s->device, err);
	if (status == PLUMB_OK && strcmp(seat.name, "all") == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"--op all is '%s', expected the path of a shared object; --set is for a set", seat.kernel);
	if (status == PLUMB_OK)
		status = text_op("--op", seat.name, &op, err);
	if (status != PLUMB_OK)
		return status;
	snprintf(option, sizeof option, "--op %s", seat.name);
	status = choose(option, seat.kernel, b, &binding, err);
	if (status != PLUMB_OK)
		return status;
	if (!runs_in(s->cfg, op, seat.first, seat.last))
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op %s: no layer of '%s' runs %s", text, seat.layers, seat.name);
	plumb_plan_bind(&s->plan, op, seat.first, seat.last, binding);
	return PLUMB_OK;
}

/* A shared object that later --op have left no place would seem to have passed. all=FILE may offer what no layer runs. */
static int refuse_unseated(const struct set_options *o, const struct session *s, struct plumb_error *err)
{
	for (int i = 0; i < o->op.count; i++) {
		const char *path = strchr(o->op.item[i], '=') + 1;
		if (is_file(path) && strncmp(o->op.item[i], "all", 3) != 0 && !plumb_user_seats(s->user, &s->plan, path))
			return plumb_fail(
				err, PLUMB_BAD_INPUT, "--op %.300s: a later --op takes all of its places", o->op.item[i]);
	}
	return PLUMB_OK;
}

/* Whether NAME[+NAME...] has an op among its names. */
static bool names_op(const char *names, enum plumb_op op)
{
	const size_t size = strlen(plumb_ops[op].name);

	for (size_t n; *names; names += n + (names[n] == '+')) {
		n = strcspn(names, "+");
		if (n == size && strncmp(names, plumb_ops[op].name, n) == 0)
			return true;
	}
	return false;
}

bool session_is_asked(const struct session *s, const struct set_options *o, enum plumb_op op, int layer)
{
	bool asked = s->plan.binding[(size_t)layer * PLUMB_OP_COUNT + op].set != s->base.set;
	struct seat seat;

	for (int i = 0; i < o->op.count && !asked; i++)
		asked = seat_parse(o->op.item[i], s->cfg->layers, &seat, NULL) == PLUMB_OK && layer >= seat.first &&
		        layer <= seat.last && names_op(seat.name, op);
	return asked;
}

static void describe(const struct set_options *o, struct session *s)
{
	const char *set = o->set ? o->set : "ref", *policy = o->policy ? o->policy : "f32";
	char mixed[64] = "";

	if (o->op.count)
		snprintf(mixed, sizeof mixed, ", %d --op", o->op.count);
	if (strcmp(set, "opt") == 0)
		snprintf(s->describes, sizeof s->describes, "set opt on %.150s%s; policy %s",
			plumb_device_description(s->device), mixed, policy);
	else
		snprintf(s->describes, sizeof s->describes, "set ref, mode %s%s%s%.100s; policy %s",
			o->mode ? o->mode : "oracle", mixed, s->device ? ", opt on " : "",
			s->device ? plumb_device_description(s->device) : "", policy);
	for (int i = 0; i < 2; i++) {
		const char *format = i ? o->state_format : o->kv_format;
		size_t used = strlen(s->describes);
		if (format)
			snprintf(s->describes + used, sizeof s->describes - used, "; %s %.8s",
				i ? "GDN state" : "keys and values", format);
	}
	if (s->user) {
		char kernels[400];
		size_t n = strlen(s->describes);
		snprintf(s->describes + n, sizeof s->describes - n, "; kernels of %s",
			plumb_user_describe(s->user, kernels, sizeof kernels));
	}
	if (o->guard)
		strncat(s->describes, "; guarded", sizeof s->describes - strlen(s->describes) - 1);
}

static void show_step(void *self, int64_t done, int64_t total)
{
	progress_step(self, done / 1000, total / 1000, "thousand weights");
}

/* All weights are numbers, if asked; then the model as the profile wants it. */
static int prepare_model(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	struct progress progress;
	struct plumb_watch watch = {.step = show_step, .self = &progress};
	struct plumb_error why = {""};
	int status = PLUMB_OK;

	if (o->scan) {
		progress_begin(&progress, true, "scanning");
		status = plumb_model_scan(s->model, &watch, &s->scanned, &why);
		progress_end(&progress);
		if (status != PLUMB_OK)
			return plumb_fail(err, (enum plumb_status)status, "%s: %s", o->checkpoint, why.text);
	}
	if (!o->profile)
		return PLUMB_OK;
	progress_begin(&progress, true, "requantising");
	watch.done = watch.total = 0;
	status = plumb_profile_open(o->profile, &s->profile, err);
	if (status == PLUMB_OK)
		status = plumb_profile_apply(s->model, &s->profile, &watch, &s->requantised, &why);
	progress_end(&progress);
	if (status == PLUMB_OK)
		s->model = plumb_requantised_model(s->requantised);
	else if (why.text[0])
		status = plumb_fail(
			err, (enum plumb_status)status, "%s, for profile %s: %s", o->checkpoint, s->profile.name, why.text);
	return status;
}

static int open_synthetic(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	struct plumb_synthetic_options options = {.seed = (uint64_t)o->weight_seed};
	int status = PLUMB_OK;

	if (o->memory > 1 << 20)
		return plumb_fail(
			err, PLUMB_BAD_INPUT, "--memory is %lld GiB, expected at most %d", (long long)o->memory, 1 << 20);
	options.memory = o->memory << 30;
	if (o->profile) {
		status = plumb_profile_open(o->profile, &s->profile, err);
		options.profile = &s->profile;
	}
	if (status == PLUMB_OK)
		status = plumb_synthetic_open(o->synthetic, &options, &s->synthetic, err);
	if (status == PLUMB_OK)
		s->model = plumb_synthetic_model(s->synthetic);
	return status;
}

static int open_model(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	s->scanned = -1;
	if (o->synthetic && o->scan)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--scan is for --checkpoint: a synthetic model has no NaN");
	if (o->synthetic)
		return open_synthetic(o, s, err);
	int status = plumb_checkpoint_open(o->checkpoint, &s->checkpoint, err);
	if (status != PLUMB_OK)
		return status;
	s->model = plumb_checkpoint_model(s->checkpoint);
	if (output_verbosity() > 0 && *plumb_checkpoint_defaults(s->checkpoint))
		fprintf(stderr, "config      absent, so by default: %s\n", plumb_checkpoint_defaults(s->checkpoint));
	return prepare_model(o, s, err);
}

int session_open(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	return session_open_marked(o, NULL, s, err);
}

int session_open_marked(
	const struct set_options *o, struct plumb_user_mark *mark, struct session *s, struct plumb_error *err)
{
	return session_open_config(o, mark, NULL, s, err);
}

int session_open_config(const struct set_options *o, struct plumb_user_mark *mark, const struct plumb_config *cfg,
	struct session *s, struct plumb_error *err)
{
	struct bindings bindings = {{0}, {0}};
	int status;

	memset(s, 0, sizeof *s);
	if (!o->checkpoint && !o->synthetic && !cfg)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--checkpoint DIR is needed");
	if (o->checkpoint && o->synthetic)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--checkpoint and --synthetic: expected one of them");
	if (o->threads > 0)
		omp_set_num_threads((int)(o->threads < 1024 ? o->threads : 1024));
	status = load_user(o, mark, s, err);
	if (status == PLUMB_OK)
		status = make_bindings(o, s, &bindings, err);
	if (status == PLUMB_OK)
		status = choose("--set", o->set ? o->set : "ref", &bindings, &s->base, err);
	if (status == PLUMB_OK && !cfg)
		status = open_model(o, s, err);
	if (status != PLUMB_OK)
		return status;
	s->cfg = cfg ? cfg : &s->model->cfg;
	if (status == PLUMB_OK)
		status = plumb_plan_create(s->cfg, s->base, &s->plan, err);
	for (int i = 0; i < o->op.count && status == PLUMB_OK; i++)
		status = bind_op(s, o->op.item[i], &bindings, err);
	if (status == PLUMB_OK)
		status = refuse_unseated(o, s, err);
	if (status == PLUMB_OK && s->user)
		status = plumb_user_whole(s->user, &s->plan, err);
	s->all_opt = o->set && strcmp(o->set, "opt") == 0 && o->op.count == 0;
	if (status == PLUMB_OK)
		status = make_guard(o, s, err);
	if (status == PLUMB_OK)
		describe(o, s);
	return status;
}

void session_close(struct session *s)
{
	plumb_plan_free(&s->plan);
	plumb_user_destroy(s->user);
	plumb_guard_destroy(s->guard);
	plumb_device_close(s->device); /* before the model: it holds copies by host address */
	plumb_requantised_free(s->requantised);
	plumb_checkpoint_close(s->checkpoint);
	plumb_synthetic_close(s->synthetic);
	memset(s, 0, sizeof *s);
}
