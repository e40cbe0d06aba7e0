/* SPDX-License-Identifier: MIT */
#include "tools/session.h"

#include <omp.h>
#include <stdio.h>
#include <string.h>

#include "ref/ref.h"

static int base_binding(const struct set_options *o, struct session *s, struct plumb_binding *out, struct plumb_error *err)
{
	const char *set = o->set ? o->set : "ref", *mode = o->mode ? o->mode : "oracle";

	if (strcmp(set, "ref") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--set is '%s', expected ref", set);
	if (strcmp(mode, "oracle") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--mode is '%s', expected oracle", mode);
	*out = (struct plumb_binding){.set = &plumb_ref_oracle};
	snprintf(s->describes, sizeof s->describes, "set ref (%s, %s)", mode, o->policy ? o->policy : "f32");
	return PLUMB_OK;
}

/* One --op NAME[@A-B]=ref. */
static int bind_op(struct session *s, const char *text, struct plumb_binding ref, struct plumb_error *err)
{
	char name[64], layers[32] = "";
	const char *equals = strchr(text, '='), *at = strchr(text, '@');
	int first, last, status;

	if (!equals)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op is '%s', expected NAME[@A-B]=ref", text);
	if (at && at > equals)
		at = NULL;
	snprintf(name, sizeof name, "%.*s", (int)((at ? at : equals) - text), text);
	if (at)
		snprintf(layers, sizeof layers, "%.*s", (int)(equals - at - 1), at + 1);
	enum plumb_op op = plumb_op_find(name);
	if (op == PLUMB_OP_COUNT)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op names '%s', which is no op; 'plumb list ops' shows them", name);
	if (strcmp(equals + 1, "ref") != 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--op %s is '%s', expected ref", name, equals + 1);
	status = options_layers(at ? layers : NULL, s->model->cfg.layers, &first, &last, err);
	if (status == PLUMB_OK)
		plumb_plan_bind(&s->plan, op, first, last, ref);
	return status;
}

int session_open(const struct set_options *o, struct session *s, struct plumb_error *err)
{
	struct plumb_binding base = {0};
	int status;

	memset(s, 0, sizeof *s);
	if (!o->checkpoint)
		return plumb_fail(err, PLUMB_BAD_INPUT, "--checkpoint DIR is needed");
	if (o->threads > 0)
		omp_set_num_threads((int)(o->threads < 1024 ? o->threads : 1024));
	status = base_binding(o, s, &base, err);
	if (status == PLUMB_OK)
		status = plumb_checkpoint_open(o->checkpoint, &s->checkpoint, err);
	if (status != PLUMB_OK)
		return status;
	s->model = plumb_checkpoint_model(s->checkpoint);
	status = plumb_plan_create(&s->model->cfg, base, &s->plan, err);
	for (int i = 0; i < o->op.count && status == PLUMB_OK; i++)
		status = bind_op(s, o->op.item[i], base, err);
	return status;
}

void session_close(struct session *s)
{
	plumb_plan_free(&s->plan);
	plumb_checkpoint_close(s->checkpoint);
	memset(s, 0, sizeof *s);
}
