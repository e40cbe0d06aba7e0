/* SPDX-License-Identifier: MIT */
#include "tools/check_bounds.h"

#include <stdlib.h>
#include <string.h>

#include "ref/ref.h"
#include "tools/json_number.h"
#include "tools/output.h"

struct check_bounds *check_bounds_create(int layers, struct plumb_error *err)
{
	struct check_bounds *b = calloc(1, sizeof *b);
	if (!b) {
		plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the bounds of %d ops", (int)PLUMB_OP_COUNT);
		return NULL;
	}
	b->layers = layers;
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		plumb_bound_begin(&b->op[op].result, (enum plumb_op)op);
		b->op[op].cell = calloc((size_t)layers + 1, sizeof *b->op[op].cell);
		if (!b->op[op].cell) {
			plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for the bounds of %d layers", layers);
			check_bounds_free(b);
			return NULL;
		}
		for (int layer = 0; layer <= layers; layer++)
			b->op[op].cell[layer].operand = -1;
	}
	return b;
}

void check_bounds_free(struct check_bounds *b)
{
	for (int op = 0; b && op < PLUMB_OP_COUNT; op++)
		free(b->op[op].cell);
	free(b);
}

/* ---- measuring ---- */

static int measure(const struct plumb_call *call, const void *before, const void *args, struct plumb_bound_result *result,
	struct plumb_error *err)
{
	struct plumb_env env = *call->env;
	struct plumb_bound_set set;
	env.device = NULL;
	env.err = err;
	plumb_bound_begin(result, call->op);
	int status = plumb_bound_make(&env, call->op, call->position, before, args, &set);
	if (status == PLUMB_OK)
		status = plumb_bound_add(result, &env, args, &set);
	plumb_bound_free(&set);
	return status;
}

static void add(struct check_bounds_op *o, const struct plumb_call *call, const struct plumb_bound_result *one)
{
	const struct plumb_op_info *info = &plumb_ops[call->op];
	struct plumb_extent extent = {.T = call->T, .capacity = call->env->capacity};
	struct check_bounds_cell *cell = &o->cell[call->layer];

	o->calls++;
	cell->calls++;
	for (int i = 0; i < info->operands; i++) {
		struct plumb_bound_stat *all = &o->result.operand[i];
		const struct plumb_bound_stat *s = &one->operand[i];
		struct check_bounds_place *place = &o->place[i];
		const struct plumb_bound_signs kept[2] = {all->sign[0], all->sign[1]};
		if (s->index >= 0 && (all->index < 0 || s->max_ratio > all->max_ratio)) {
			*place = (struct check_bounds_place){.layer = call->layer, .position = call->position};
			place->rank = plumb_shape_eval(info->operand[i].shape, call->env->cfg, &extent, place->dim);
		}
		cell->values += s->values;
		if (s->index >= 0 && (cell->operand < 0 || s->max_ratio > cell->ratio)) {
			cell->operand = i;
			cell->index = s->index;
			cell->ratio = s->max_ratio;
			cell->candidate = s->candidate;
			cell->ball = s->ball;
			cell->place = (struct check_bounds_place){.layer = call->layer, .position = call->position};
			cell->place.rank =
				plumb_shape_eval(info->operand[i].shape, call->env->cfg, &extent, cell->place.dim);
		}
		plumb_bound_merge(all, s);
		if (call->binding->set == &plumb_ref_oracle) { /* its signs are not those of the declared order */
			all->sign[0] = kept[0];
			all->sign[1] = kept[1];
		}
	}
}

int check_bounds_call(
	struct check_bounds *b, struct check_second *second, const struct plumb_call *call, struct plumb_error *err)
{
	struct check_bounds_op *o = &b->op[call->op];
	struct plumb_bound_result one, oracle;
	int status = check_second_before(second, call, err);

	if (status == PLUMB_OK)
		status = measure(call, second->args_before, call->args, &one, err);
	if (status == PLUMB_OK)
		status = check_second_run(second, call, false, err);
	if (status != PLUMB_OK)
		return status;
	status = measure(call, second->args_before, second->args, &oracle, err);
	check_second_undo(second, call);
	if (status != PLUMB_OK)
		return status;
	add(o, call, &one);
	for (int i = 0; i < plumb_ops[call->op].operands; i++)
		o->oracle = oracle.operand[i].max_ratio > o->oracle ? oracle.operand[i].max_ratio : o->oracle;
	return PLUMB_OK;
}

/* ---- verdicts ---- */

static bool measured(const struct check_bounds_op *o)
{
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		if (o->result.operand[i].values > 0)
			return true;
	return false;
}

static bool op_passes(const struct check_bounds_op *o, char *text, size_t size)
{
	if (!(o->oracle <= 1.0)) {
		if (text)
			snprintf(text, size, "FAIL: the oracle itself is at %.3g of the bound", o->oracle);
		return false;
	}
	return plumb_bound_passes(&o->result, text, size);
}

int check_bounds_status(const struct check_bounds *b)
{
	bool any = false, pass = true;
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		any = any || measured(&b->op[op]);
		pass = pass && (b->op[op].calls == 0 || op_passes(&b->op[op], NULL, 0));
	}
	return any && pass ? PLUMB_OK : PLUMB_MISMATCH;
}

/* ---- showing ---- */

/* Over the operands of an op. rms and bias count where they decide; -1: nowhere. */
struct summary {
	int64_t values;
	int worst; /* operand, -1: none */
	double ratio, rms, bias;
};

static double larger(double a, double b)
{
	return a > b ? a : b;
}

static struct summary summarise(const struct check_bounds_op *o)
{
	struct summary sum = {.worst = -1, .rms = -1.0, .bias = -1.0};
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++) {
		const struct plumb_bound_stat *s = &o->result.operand[i];
		sum.values += s->values;
		if (s->index >= 0 && (sum.worst < 0 || s->max_ratio > sum.ratio)) {
			sum.worst = i;
			sum.ratio = s->max_ratio;
		}
		if (plumb_bound_has_rms(s))
			sum.rms = larger(sum.rms, plumb_bound_rms(s));
		if (plumb_bound_has_bias(s))
			sum.bias = larger(sum.bias, plumb_bound_bias(s));
	}
	return sum;
}

/* "y[3,17]": rows of the call counted from the position it began at. Caches count positions or blocks already. */
static void element_at(
	const struct plumb_operand *info, const struct check_bounds_place *p, int64_t index, char *text, size_t size)
{
	int64_t rest = index, at[8] = {0};
	size_t n;

	for (int i = p->rank - 1; i >= 0; i--) {
		at[i] = i && p->dim[i] ? rest % p->dim[i] : rest;
		rest = i && p->dim[i] ? rest / p->dim[i] : 0;
	}
	if (info->role == PLUMB_OUT && info->shape[0] == 'T')
		at[0] += p->position;
	n = (size_t)snprintf(text, size, "%s[", info->name);
	for (int i = 0; i < p->rank && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%lld", i ? "," : "", (long long)at[i]);
	if (n < size)
		snprintf(text + n, size - n, "]");
}

static void element(const struct check_bounds_op *o, int operand, char *text, size_t size)
{
	element_at(&plumb_ops[o->result.op].operand[operand], &o->place[operand], o->result.operand[operand].index, text,
		size);
}

static void figure(double value, char text[16])
{
	snprintf(text, 16, value < 0.0 ? "-" : "%.3f", value);
}

static void print_op(const struct check_bounds *b, const struct check_bounds_op *o)
{
	struct summary sum = summarise(o);
	char line[256], where[128], ratio[16], rms[16], bias[16], layer[16] = "-";
	bool pass = op_passes(o, line, sizeof line);

	figure(sum.worst < 0 ? -1.0 : sum.ratio, ratio);
	figure(sum.rms, rms);
	figure(sum.bias, bias);
	printf("%-16s %6lld %9lld %8s %8s %8s  %s%-4s%s  ", plumb_ops[o->result.op].name, (long long)o->calls,
		(long long)sum.values, ratio, rms, bias, pass ? output_good() : output_bad(), pass ? "ok" : "FAIL",
		output_plain());
	if (sum.worst < 0) {
		printf("chooses: compared as sets\n");
	} else if (sum.ratio == 0.0) {
		printf("exact\n");
	} else {
		const struct plumb_bound_stat *s = &o->result.operand[sum.worst];
		const struct check_bounds_place *p = &o->place[sum.worst];
		if (p->layer < b->layers)
			snprintf(layer, sizeof layer, "%d", p->layer);
		element(o, sum.worst, where, sizeof where);
		printf("layer %s %s %.9g / %.9g +- %.2g\n", layer, where, (double)s->candidate, s->ball.value,
			s->ball.error);
	}
	if (!pass)
		printf("  %s%s%s: %s\n", output_bad(), plumb_ops[o->result.op].name, output_plain(), line);
}

void check_bounds_print(const struct check_bounds *b)
{
	printf("\nbounds: each call from its own inputs; error / bound <= 1, rms <= %.3f, bias z <= %.0f\n",
		PLUMB_BOUND_RMS, PLUMB_BOUND_Z);
	printf("%s%-16s %6s %9s %8s %8s %8s  %-4s  %s%s\n", output_dim(), "op", "calls", "values", "ratio", "rms", "bias z",
		"", "largest ratio: ours / exact", output_plain());
	for (int op = 0; op < PLUMB_OP_COUNT; op++)
		if (b->op[op].calls > 0)
			print_op(b, &b->op[op]);
}

void check_bounds_print_line(const struct check_bounds *b)
{
	bool good = check_bounds_status(b) == PLUMB_OK;
	int64_t calls = 0, values = 0;
	char names[120] = "";
	size_t used = 0;
	double ratio = 0.0;
	char largest[32];
	int ops = 0, failed = 0;

	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		const struct check_bounds_op *o = &b->op[op];
		struct summary sum = summarise(o);
		calls += o->calls;
		values += sum.values;
		ops += sum.worst >= 0;
		ratio = larger(ratio, sum.ratio);
		if (o->calls == 0 || op_passes(o, NULL, 0))
			continue;
		if (used < sizeof names)
			used += (size_t)snprintf(
				names + used, sizeof names - used, "%s%s", failed ? ", " : ": ", plumb_ops[op].name);
		failed++;
	}
	snprintf(largest, sizeof largest, ratio < 1e6 ? "%.4f" : "%.3g", ratio);
	printf("%s%s%s  bounds      %d ops, %lld calls, %lld values; %d failed%s; largest ratio %s\n",
		good ? output_good() : output_bad(), good ? "pass" : "FAIL", output_plain(), ops, (long long)calls,
		(long long)values, failed, names, largest);
}

static void add_operand(cJSON *array, const struct check_bounds *b, const struct check_bounds_op *o, int i)
{
	const struct plumb_bound_stat *s = &o->result.operand[i];
	char line[256], where[128];
	cJSON *x = cJSON_CreateObject();

	cJSON_AddItemToArray(array, x);
	cJSON_AddStringToObject(x, "operand", plumb_ops[o->result.op].operand[i].name);
	cJSON_AddBoolToObject(x, "pass", plumb_bound_stat_passes(s, line, sizeof line));
	cJSON_AddStringToObject(x, "verdict", line);
	json_number(x, "values", (double)s->values);
	json_number(x, "max_ratio", s->max_ratio);
	json_number(x, "rms", plumb_bound_rms(s));
	cJSON_AddBoolToObject(x, "rms_decides", plumb_bound_has_rms(s));
	json_number(x, "bias_z", plumb_bound_bias(s));
	json_number(x, "tokens", (double)s->sign[0].clusters);
	cJSON_AddBoolToObject(x, "bias_decides", plumb_bound_has_bias(s));
	if (s->index < 0)
		return;
	cJSON *worst = cJSON_AddObjectToObject(x, "worst");
	element(o, i, where, sizeof where);
	if (o->place[i].layer < b->layers)
		cJSON_AddNumberToObject(worst, "layer", o->place[i].layer);
	else
		cJSON_AddNullToObject(worst, "layer");
	cJSON_AddStringToObject(worst, "at", where);
	json_number(worst, "ours", (double)s->candidate);
	json_number(worst, "exact", s->ball.value);
	json_number(worst, "bound", s->ball.error);
}

/* One object a layer in which the op was judged. */
static void add_cells(cJSON *op, const struct check_bounds *b, const struct check_bounds_op *o)
{
	cJSON *layers = cJSON_AddArrayToObject(op, "layers");
	char where[128];

	for (int l = 0; l <= b->layers; l++) {
		const struct check_bounds_cell *c = &o->cell[l];
		if (c->operand < 0)
			continue;
		cJSON *x = cJSON_CreateObject();
		cJSON_AddItemToArray(layers, x);
		if (l < b->layers)
			cJSON_AddNumberToObject(x, "layer", l);
		else
			cJSON_AddNullToObject(x, "layer");
		element_at(&plumb_ops[o->result.op].operand[c->operand], &c->place, c->index, where, sizeof where);
		json_number(x, "calls", (double)c->calls);
		json_number(x, "values", (double)c->values);
		json_number(x, "max_ratio", c->ratio);
		cJSON_AddStringToObject(x, "at", where);
		json_number(x, "ours", (double)c->candidate);
		json_number(x, "exact", c->ball.value);
		json_number(x, "bound", c->ball.error);
	}
}

/* Values by ratio, all operands together: see PLUMB_BOUND_BUCKETS. */
static void add_buckets(cJSON *op, const struct check_bounds_op *o)
{
	cJSON *counts = cJSON_AddArrayToObject(op, "ratio_histogram");
	for (int k = 0; k < PLUMB_BOUND_BUCKETS; k++) {
		int64_t n = 0;
		for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
			n += o->result.operand[i].bucket[k];
		cJSON_AddItemToArray(counts, cJSON_CreateNumber((double)n));
	}
}

void check_bounds_json(const struct check_bounds *b, cJSON *view)
{
	cJSON *bounds = cJSON_AddObjectToObject(view, "bounds"), *ops;

	cJSON_AddBoolToObject(bounds, "pass", check_bounds_status(b) == PLUMB_OK);
	ops = cJSON_AddArrayToObject(bounds, "ops");
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		const struct check_bounds_op *o = &b->op[op];
		struct summary sum = summarise(o);
		char line[256];
		if (o->calls == 0)
			continue;
		cJSON *x = cJSON_CreateObject();
		cJSON_AddItemToArray(ops, x);
		cJSON_AddStringToObject(x, "op", plumb_ops[op].name);
		cJSON_AddBoolToObject(x, "pass", op_passes(o, line, sizeof line));
		cJSON_AddStringToObject(x, "verdict", line);
		json_number(x, "calls", (double)o->calls);
		json_number(x, "values", (double)sum.values);
		json_number(x, "max_ratio", sum.ratio);
		json_number(x, "oracle_max_ratio", o->oracle);
		cJSON *operands = cJSON_AddArrayToObject(x, "operands");
		for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
			if (o->result.operand[i].values > 0)
				add_operand(operands, b, o, i);
		add_cells(x, b, o);
		add_buckets(x, o);
	}
}

void check_bounds_junit(const struct check_bounds *b, const char *view, FILE *f)
{
	int tests = 0, failed = 0;

	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		tests += b->op[op].calls > 0;
		failed += b->op[op].calls > 0 && !op_passes(&b->op[op], NULL, 0);
	}
	const int nothing = tests == 0; /* a failure, as check_bounds_pass has it */
	fprintf(f, " <testsuite name=\"%s.bounds\" tests=\"%d\" failures=\"%d\">\n", view, tests + nothing,
		failed + nothing);
	if (nothing) {
		fprintf(f, "  <testcase classname=\"plumb.%s.bounds\" name=\"judged\">", view);
		fprintf(f, "<failure message=\"nothing was judged\"/></testcase>\n");
	}
	for (int op = 0; op < PLUMB_OP_COUNT; op++) {
		char line[256];
		if (b->op[op].calls == 0)
			continue;
		bool pass = op_passes(&b->op[op], line, sizeof line);
		fprintf(f, "  <testcase classname=\"plumb.%s.bounds\" name=\"%s\"", view, plumb_ops[op].name);
		if (pass)
			fprintf(f, "/>\n");
		else /* our own words and numbers: nothing to escape but '>', which may stand */
			fprintf(f, "><failure message=\"%s\"/></testcase>\n", line);
	}
	fprintf(f, " </testsuite>\n");
}
