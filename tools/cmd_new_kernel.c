/* SPDX-License-Identifier: MIT */
/* plumb new-kernel: the beginning of a kernel of one's own, with the operands of its ops in place. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/flow.h"
#include "core/profile_bytes.h"
#include "opt/user.h"
#include "tools/commands.h"
#include "tools/contract.h"
#include "tools/output.h"
#include "tools/text.h"
#include "tools/trial_spec.h"

struct new_kernel {
	const char *ops, *dir;
	bool cuda;
	char symbol[256]; /* ops with '_' for '+' */
};

/* What is being written. */
struct text {
	FILE *f;
	enum plumb_op op[PLUMB_USER_MAX_OPS];
	int ops;
	char letters[40][4]; /* that the shapes name */
	int letter_count;
	char names[PLUMB_USER_MAX_OPS * 16][48]; /* of variables */
	int name_count;
};

static void take_letters(struct text *t, const char *shape)
{
	for (const char *p = shape; *p;) {
		size_t n = strcspn(p, "*/+- ");
		bool is_letter =
			n > 0 && n < 4 && (*p < '0' || *p > '9') && strncmp(p, "n", n) != 0 && strncmp(p, "T", n) != 0;
		for (int i = 0; i < t->letter_count && is_letter; i++)
			is_letter = strlen(t->letters[i]) != n || strncmp(t->letters[i], p, n) != 0;
		if (is_letter && t->letter_count < 40)
			snprintf(t->letters[t->letter_count++], 4, "%.*s", (int)n, p);
		p += n;
		p += *p != '\0';
	}
}

/* A name that no other operand and no C keyword or size has. */
static const char *variable(struct text *t, enum plumb_op op, const char *name)
{
	bool taken = false;
	char *mine = t->names[t->name_count];

	for (int i = 0; i < t->name_count; i++)
		taken = taken || strcmp(t->names[i], name) == 0;
	snprintf(mine, sizeof t->names[0], "%s%s%s", taken ? plumb_ops[op].name : "", taken ? "_" : "", name);
	t->name_count++;
	return mine;
}

static int write_operand(void *self, enum plumb_op op, const struct plumb_operand *o)
{
	static const char *const type[] = {
		[PLUMB_KIND_F32] = "float", [PLUMB_KIND_I32] = "int32_t", [PLUMB_KIND_I64] = "int64_t"};
	static const char *const getter[] = {[PLUMB_KIND_F32] = "f32", [PLUMB_KIND_I32] = "i32", [PLUMB_KIND_I64] = "i64"};
	static const char *const role[] = {"in", "out: every element", "state: read and written", "weight", "constant"};
	struct text *t = self;
	char name[128];
	const char *v = variable(t, op, o->name);

	snprintf(name, sizeof name, "%s%s%s", t->ops > 1 ? plumb_ops[op].name : "", t->ops > 1 ? "." : "", o->name);
	take_letters(t, o->shape);
	switch (o->kind) {
	case PLUMB_KIND_F32:
	case PLUMB_KIND_I32:
	case PLUMB_KIND_I64:
		fprintf(t->f, "\t%s%s *%s = plumb_%s(call, \"%s\");",
			o->role == PLUMB_OUT || o->role == PLUMB_STATE ? "" : "const ", type[o->kind], v, getter[o->kind],
			name);
		break;
	case PLUMB_KIND_WEIGHT:
		fprintf(t->f, "\tconst struct plumb_kernel_matrix *%s = plumb_weight_of(call, \"%s\");", v, name);
		break;
	case PLUMB_KIND_BANK:
		fprintf(t->f,
			"\tconst struct plumb_kernel_operand *%s = plumb_operand(call, \"%s\"); /* matrix i: "
			"%s->matrix[i] */",
			v, name, v);
		break;
	case PLUMB_KIND_CACHE:
		fprintf(t->f, "\tconst struct plumb_kernel_operand *%s = plumb_operand(call, \"%s\"); /* pages%s */", v,
			name, o->role == PLUMB_STATE ? "; rows first_row .. end_row - 1 are to be written" : "");
		break;
	case PLUMB_KIND_STORED:
		fprintf(t->f,
			"\tconst struct plumb_kernel_operand *%s = plumb_operand(call, \"%s\"); /* its format: f32, f16 or "
			"bf16 */",
			v, name);
		break;
	case PLUMB_KIND_NGRAM:
		fprintf(t->f,
			"\tconst struct plumb_kernel_ngram *%s = (const struct plumb_kernel_ngram "
			"*)plumb_operand(call, \"%s\")->data;",
			v, name);
		break;
	}
	fprintf(t->f, " /* %s (%s)%s */\n", role[o->role], o->shape, o->optional ? "; may be NULL" : "");
	return PLUMB_OK;
}

static void write_contracts(struct text *t)
{
	for (int j = 0; j < t->ops; j++) {
		char *contract = contract_text(t->op[j]);
		fprintf(t->f, "/* %s: %s.\n *\n", plumb_ops[t->op[j]].name, plumb_ops[t->op[j]].brief);
		for (const char *p = contract; p && *p;) {
			size_t n = strcspn(p, "\n");
			fprintf(t->f, " * %.*s\n", (int)n, p);
			p += n;
			p += *p != '\0';
		}
		fprintf(t->f, " */\n");
		free(contract);
	}
}

static int write_source(const struct new_kernel *c, struct text *t, struct plumb_error *err)
{
	int status;

	write_contracts(t);
	fprintf(t->f, "#include <math.h>\n#include <plumb/kernel.h>\n\n");
	if (c->cuda)
		fprintf(t->f,
			"static __global__ void %s_kernel(void)\n{\n\t/* yours; plumb_rne and plumb_value work here "
			"too */\n}\n\n",
			c->symbol);
	fprintf(t->f, "static int %s(const struct plumb_kernel_call *call)\n{\n", c->symbol);
	status = plumb_user_operands(c->ops, write_operand, t, err);
	fprintf(t->f, "\tconst int64_t T = call->T;\n");
	for (int i = 0; i < t->letter_count; i++)
		fprintf(t->f, "\tconst int64_t %s = plumb_dim(call, \"%s\");\n", t->letters[i], t->letters[i]);
	fprintf(t->f, "\n\t/* yours */\n");
	for (int i = 0; i < t->name_count; i++)
		fprintf(t->f, "\t(void)%s;\n", t->names[i]);
	fprintf(t->f, "\t(void)T;\n");
	for (int i = 0; i < t->letter_count; i++)
		fprintf(t->f, "\t(void)%s;\n", t->letters[i]);
	if (c->cuda)
		fprintf(t->f, "\t%s_kernel<<<1, 1, 0, (cudaStream_t)call->stream>>>();\n", c->symbol);
	fprintf(t->f, "\treturn plumb_say(call, \"%s is not written yet\");\n}\n\n", c->symbol);
	if (c->cuda)
		fprintf(t->f, "static const struct plumb_kernel kernels[] = {{\"%s\", %s, PLUMB_KERNEL_CUDA}};\n", c->ops,
			c->symbol);
	else
		fprintf(t->f, "static const struct plumb_kernel kernels[] = {{.ops = \"%s\", .run = %s}};\n", c->ops,
			c->symbol);
	fprintf(t->f, "PLUMB_KERNELS(\"my %s\", \"0.1\", kernels)\n", c->symbol);
	return status;
}

/* What ctest runs: the program and its recipe come with the package. */
static void write_tests(const struct new_kernel *c, const struct text *t)
{
	const char *device = c->cuda ? " DEVICE cuda" : "", *kernel = c->symbol;
	bool quantised = false;

	for (int j = 0; j < t->ops; j++)
		quantised = quantised || trial_spec_formats(t->op[j], TRIAL_OF_MATRICES) >> PLUMB_NVFP4 & 1;
	fprintf(t->f,
		"\n# ctest --test-dir build: needs Plumb's package%s. The words are at the top of its PlumbTest.cmake.\n"
		"enable_testing()\nif(COMMAND plumb_add_kernel_test)\n",
		c->cuda ? "; without a GPU these are skipped" : "");
	fprintf(t->f, "  # made inputs: odd sizes%s\n  plumb_add_kernel_test(hostile %s %s HOSTILE%s)\n",
		t->ops > 1  ? "; ARGS --profile served: weights of that profile"
		: quantised ? ", ties, NaN, ...; weights of every format, with ARGS --format nvfp4 of this one only"
			    : ", ties, NaN, ...",
		c->ops, kernel, device);
	fprintf(t->f,
		"  # recorded tensors of small models\n"
		"  plumb_add_kernel_test(golden %s %s%s)\n  plumb_add_kernel_test(golden_bf16 %s %s POLICY bf16%s)\n",
		c->ops, kernel, device, c->ops, kernel, device);
	if (quantised)
		fprintf(t->f,
			"  plumb_add_kernel_test(golden_nvfp4 %s %s%s GOLDEN "
			"${plumbline_GOLDEN_DIR}/tiny-nvfp4/tiny-nvfp4.h5\n"
			"    CHECKPOINT ${plumbline_GOLDEN_DIR}/tiny-nvfp4/checkpoint)\n",
			c->ops, kernel, device);
	fprintf(t->f, "endif()\n");
}

static int write_cmake(const struct new_kernel *c, struct text *t, struct plumb_error *err)
{
	(void)err;
	fprintf(t->f,
		"# cmake -S . -B build && cmake --build build; without an installed Plumb: -DPLUMB_INCLUDE=DIR, of "
		"DIR/plumb/kernel.h\n"
		"cmake_minimum_required(VERSION 3.22)\nproject(%s LANGUAGES %s)\n",
		c->symbol, c->cuda ? "CXX CUDA" : "C");
	fprintf(t->f, "if(NOT CMAKE_BUILD_TYPE)\n  set(CMAKE_BUILD_TYPE Release)\nendif()\n");
	fprintf(t->f, "add_library(%s MODULE %s.%s)\n", c->symbol, c->symbol, c->cuda ? "cu" : "c");
	fprintf(t->f, "set_target_properties(%s PROPERTIES PREFIX \"\" SUFFIX .so%s)\n", c->symbol,
		c->cuda ? " CUDA_ARCHITECTURES \"90;121\"" : "");
	fprintf(t->f,
		"if(PLUMB_INCLUDE)\n  target_include_directories(%s PRIVATE ${PLUMB_INCLUDE})\nelse()\n"
		"  find_package(plumbline REQUIRED)\n  target_link_libraries(%s PRIVATE plumbline::kernel)\nendif()\n"
		"target_link_libraries(%s PRIVATE m)\n",
		c->symbol, c->symbol, c->symbol);
	write_tests(c, t);
	return PLUMB_OK;
}

static int path_of(const struct new_kernel *c, const char *name, char path[4096], struct plumb_error *err)
{
	if (snprintf(path, 4096, "%s/%s", c->dir, name) >= 4096)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%.200s...: the path is too long", c->dir);
	return PLUMB_OK;
}

/* Before the first file is written: is this one there already? */
static int is_new(const struct new_kernel *c, const char *name, struct plumb_error *err)
{
	char path[4096];
	struct stat st;
	int status = path_of(c, name, path, err);

	if (status == PLUMB_OK && lstat(path, &st) == 0)
		return plumb_fail(err, PLUMB_BAD_INPUT, "%s is there already, and is not written over", path);
	return status;
}

static int write_file(const struct new_kernel *c, const char *name,
	int (*fn)(const struct new_kernel *, struct text *, struct plumb_error *), struct text *t, struct plumb_error *err)
{
	char path[4096], *text = NULL;
	size_t size = 0;
	int status = path_of(c, name, path, err);

	if (status != PLUMB_OK)
		return status;
	t->f = open_memstream(&text, &size);
	if (!t->f)
		return plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s", path);
	status = fn(c, t, err);
	if (fclose(t->f) != 0 && status == PLUMB_OK)
		status = plumb_fail(err, PLUMB_BAD_INPUT, "out of memory for %s", path);
	if (status == PLUMB_OK)
		status = output_file(path, text, size, err);
	if (status == PLUMB_OK && !output_quiet())
		printf("%s\n", path);
	free(text);
	return status;
}

static int count_op(void *self, enum plumb_op op, const struct plumb_operand *operand)
{
	struct text *t = self;
	(void)operand;
	if (t->ops == 0 || t->op[t->ops - 1] != op)
		t->op[t->ops++] = op;
	return PLUMB_OK;
}

/* Names that are no op's, before anything is written. */
static int know_ops(const char *ops, struct plumb_error *err)
{
	char name[64], meant[TEXT_NEAREST];

	for (const char *p = ops;; p++) {
		size_t length = strcspn(p, "+");
		snprintf(name, sizeof name, "%.*s", (int)(length < sizeof name ? length : sizeof name - 1), p);
		if (plumb_op_find(name) == PLUMB_OP_COUNT)
			return plumb_fail(err, PLUMB_BAD_INPUT, "'%s' is no op%s; 'plumb list ops' shows them%s", name,
				text_op_meant(name, meant), strchr(name, ',') ? ", and '+' joins those of one kernel" : "");
		p += length;
		if (!*p)
			return PLUMB_OK;
	}
}

/* Ops that the decoder never runs one behind the other have no seat in common. */
static int know_neighbours(const struct text *t, const char *ops, struct plumb_error *err)
{
	struct plumb_config release;
	char text[700];

	plumb_release_config(&release);
	if (plumb_flow_joins(&release, t->op, t->ops, text, sizeof text))
		return PLUMB_OK;
	return plumb_fail(err, PLUMB_BAD_INPUT, "'%s' cannot be one kernel: %s", ops, text);
}

/* Where find_package finds Plumb: " -DCMAKE_PREFIX_PATH='DIR'" of the program that runs, be it installed or just built; empty
 * where cmake looks anyway, or where there is no package. */
static const char *prefix_option(char *text, size_t size)
{
	char path[3072], header[3200];
	ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);

	text[0] = '\0';
	path[n > 0 ? n : 0] = '\0';
	for (int up = 0; up < 2; up++) {
		char *slash = strrchr(path, '/');
		if (slash)
			*slash = '\0';
	}
	snprintf(header, sizeof header, "%s/include/plumb/kernel.h", path);
	if (path[0] && access(header, R_OK) == 0 && strcmp(path, "/usr") != 0 && strcmp(path, "/usr/local") != 0 &&
		!strchr(path, '\''))
		snprintf(text, size, " -DCMAKE_PREFIX_PATH='%s'", path);
	return text;
}

/* What to do with it. */
static void say_next(const struct new_kernel *c)
{
	const char *device = c->cuda ? " --device cuda" : "";
	char prefix[3200];

	printf("\nbuild it:  cmake -S %s -B %s/build%s && cmake --build %s/build\n", c->dir, c->dir,
		prefix_option(prefix, sizeof prefix), c->dir);
	printf("test it:   plumb %s --op %s=%s/build/%s.so%s\n",
		strchr(c->ops, '+') ? "bisect --synthetic small --tokens 5,17,42,3,99,7,23" : "test", c->ops, c->dir,
		c->symbol, device);
	printf("judge it:  plumb check GOLDEN.h5 --checkpoint DIR --op %s=%s/build/%s.so%s\n", c->ops, c->dir, c->symbol,
		device);
	printf("or, after every edit:  ctest --test-dir %s/build --output-on-failure\n", c->dir);
}

static int run(int argc, char **argv)
{
	struct new_kernel c = {0};
	const struct option table[] = {
		{"--cuda", NULL, OPTION_FLAG, &c.cuda, "a CUDA file for a GPU instead of plain C"},
	};
	static struct text t;
	const char *operand[2];
	int operands;
	bool done;
	struct plumb_error err = {""};
	char source[300];
	int status = options_parse(&command_new_kernel, table, 1, argc, argv, operand, 2, &operands, &done, &err);

	if (status == PLUMB_OK && done)
		return PLUMB_OK;
	if (status == PLUMB_OK && operands != 2)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "an op and a folder are needed; usage: plumb new-kernel %s",
			command_new_kernel.usage);
	if (status == PLUMB_OK) {
		c.ops = operand[0];
		c.dir = operand[1];
		snprintf(c.symbol, sizeof c.symbol, "%s", c.ops);
		for (char *p = c.symbol; *p; p++)
			if (*p == '+')
				*p = '_';
		status = know_ops(c.ops, &err);
	}
	if (status == PLUMB_OK)
		status = plumb_user_operands(c.ops, count_op, &t, &err);
	if (status == PLUMB_OK)
		status = know_neighbours(&t, c.ops, &err);
	if (status == PLUMB_OK && mkdir(c.dir, 0777) != 0 && errno != EEXIST)
		status = plumb_fail(&err, PLUMB_BAD_INPUT, "%s: cannot make the folder: %s", c.dir, strerror(errno));
	snprintf(source, sizeof source, "%s.%s", c.symbol, c.cuda ? "cu" : "c");
	if (status == PLUMB_OK)
		status = is_new(&c, source, &err);
	if (status == PLUMB_OK)
		status = is_new(&c, "CMakeLists.txt", &err);
	if (status == PLUMB_OK)
		status = write_file(&c, source, write_source, &t, &err);
	if (status == PLUMB_OK)
		status = write_file(&c, "CMakeLists.txt", write_cmake, &t, &err);
	if (status != PLUMB_OK)
		fprintf(stderr, "plumb new-kernel: %s\n", err.text);
	else if (!output_quiet())
		say_next(&c);
	return status;
}

const struct command command_new_kernel = {
	.name = "new-kernel",
	.usage = "OP[+OP...] DIR [--cuda]",
	.brief = "begin a kernel of your own: source, CMakeLists.txt, tests",
	.about = "Writes a project for a kernel in the seat of an op, or of several that follow each other: the "
		 "contract as a comment, every\n"
		 "operand looked up and described. It builds, and says that it is not written yet; ctest runs plumb test "
		 "(of several\nops plumb bisect on a model of odd sizes) and plumb check on it.",
	.examples = "  plumb new-kernel attn_gate my_gate\n"
		    "  plumb new-kernel hc_norm_down+hc_up_mix my_mixer --cuda",
	.operands = "OP|DIR",
	.run = run,
};
