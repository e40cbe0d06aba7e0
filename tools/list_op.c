/* SPDX-License-Identifier: MIT */
#include "tools/list_op.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/profile_bytes.h"
#include "core/tolerance.h"
#include "golden/layout.h"
#include "tools/contract.h"
#include "tools/output.h"
#include "tools/text.h"

enum { POSITIONS = 4096 }; /* of the caches, for sizes that depend on them */

static const char *const roles[] = {"in", "out", "state", "weight", "constant"};
static const char *const kinds[] = {"f32", "i32", "i64", "matrix", "bank", "cache", "ngram", "stored"};

static void print_seats(const struct plumb_config *release, enum plumb_op op)
{
	int layers = 0;

	for (int l = 0; l < release->layers; l++)
		layers += plumb_op_runs(release, op, l);
	printf("runs        ");
	if (layers)
		printf("in %d of %d layers of the release%s\n", layers, release->layers,
			plumb_op_runs(release, op, release->layers) ? ", and once outside them" : "");
	else
		printf("once a token, outside the layers\n");
}

/* "(1, 16480)" of a shape in the release, one token. */
static void show_size(const struct plumb_operand *o, const struct plumb_config *release, char *text, size_t size)
{
	const struct plumb_extent extent = {1, POSITIONS};
	int64_t dim[8];
	int rank = strchr(o->shape, 'n') ? -1 : plumb_shape_eval(o->shape, release, &extent, dim);
	size_t at = 0;

	text[0] = '\0';
	for (int i = 0; i < rank && at < size; i++)
		at += (size_t)snprintf(text + at, size - at, "%s%lld", i ? ", " : "", (long long)dim[i]);
}

static void print_operands(const struct plumb_config *release, const struct plumb_op_info *info)
{
	char sizes[96];

	printf("%-16s %-9s %-7s %-24s %s\n", "operand", "role", "kind", "shape", "in the release, one token");
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		char shape[96];
		snprintf(shape, sizeof shape, "(%s)", o->shape);
		show_size(o, release, sizes, sizeof sizes);
		printf("%-16s %-9s %-7s %-24s %s%s%s\n", o->name, roles[o->role], kinds[o->kind], shape, sizes,
			o->trace ? "; trace" : "", o->optional && !o->trace ? "; may be absent" : "");
	}
}

static void print_demand(
	const struct plumb_tolerances *t, enum plumb_view view, enum plumb_policy policy, const char *dataset)
{
	char text[256];

	printf("  %-10s %-5s ", plumb_view_name(view), plumb_policy_name(policy));
	text_fill(stdout,
		plumb_tolerance_show(&plumb_tolerances_find(t, view, policy, dataset)->tolerance, text, sizeof text), 19,
		19, output_columns());
}

static int print_golden(enum plumb_op op, struct plumb_error *err)
{
	struct plumb_tolerances *t = NULL;
	int found = 0, status = plumb_tolerances_read(NULL, &t, err);

	for (int i = 0; i < plumb_golden_source_count && status == PLUMB_OK; i++) {
		const struct plumb_golden_source *s = &plumb_golden_sources[i];
		if (s->op != op)
			continue;
		printf("%s%s (%s)%s\n", found++ ? "" : "golden tensors that it writes, and what is demanded of them\n",
			s->dataset, s->shape, s->trace ? ", trace" : "");
		if (s->form == PLUMB_GOLDEN_EXPERTS || s->form == PLUMB_GOLDEN_MASK || s->integer) {
			printf("  %s\n", s->integer && s->form != PLUMB_GOLDEN_EXPERTS
						 ? "equal"
						 : "the same choice; another only among scores that are equal, or nearer "
						   "than rounding tells");
			continue;
		}
		print_demand(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_F32, s->dataset);
		print_demand(t, PLUMB_VIEW_LOCAL, PLUMB_POLICY_BF16, s->dataset);
		print_demand(t, PLUMB_VIEW_PROPAGATED, PLUMB_POLICY_F32, s->dataset);
		print_demand(t, PLUMB_VIEW_PROPAGATED, PLUMB_POLICY_BF16, s->dataset);
	}
	if (status == PLUMB_OK && !found)
		printf("no golden tensor: judged by its error bound (--bounds) and by what follows from it\n");
	plumb_tolerances_free(t);
	return status;
}

int list_op(enum plumb_op op, struct plumb_error *err)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	struct plumb_config release;
	char *contract = contract_text(op);
	int status;

	plumb_release_config(&release);
	printf("%s (%s): %s\n\n", info->name, info->stage, info->brief);
	print_seats(&release, op);
	printf("\n");
	print_operands(&release, info);
	if (contract)
		printf("\n%s\n", contract);
	free(contract);
	printf("\n");
	status = print_golden(op, err);
	printf("\nplumb new-kernel %s DIR\nplumb test --op %s=./mine.so\n"
	       "plumb check GOLDEN.h5 --checkpoint DIR --op %s=./mine.so\nplumb bench --op %s\n",
		info->name, info->name, info->name, info->name);
	return status;
}
