/* SPDX-License-Identifier: MIT */
/* Cases: every op of the table, written, read again and run, gives the bits that were expected; files made to do harm
 * are refused before a kernel sees them. PLUMB_CASE_SEEDS: how many calls an op gets. */
#include <check.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "golden/case.h"
#include "golden/h5_write.h"
#include "ref/twin/twin.h"
#include "tools/trial.h"
#include "tests/support/scratch.h"
#include "tests/support/suite.h"

#ifdef __SANITIZE_ADDRESS__
enum { SEEDS = 3, HARMED = 100 };
#else
enum { SEEDS = 8, HARMED = 400 };
#endif

static char folder[SCRATCH_PATH], path[SCRATCH_PATH], other[SCRATCH_PATH];
static struct plumb_error err;

static void set_up(void)
{
	scratch_make(folder);
	scratch_path(path, folder, "case.h5");
	scratch_path(other, folder, "other.h5");
}

static void tear_down(void)
{
	scratch_remove(folder);
}

/* A random call of an op, with what the twin makes of it as the expected values. */
struct made {
	struct trial *c;
	struct plumb_call call;
	struct trial_result twin;
	struct plumb_case_expected expected[PLUMB_CASE_OPERANDS];
	void *rows[PLUMB_CASE_OPERANDS];
};

static bool ids_in_range(struct trial *c)
{
	for (int i = 0; i < c->operands; i++) {
		const struct trial_operand *o = &c->operand[i];
		const int32_t *id = (const int32_t *)(const void *)o->memory.data;
		if (strcmp(o->info->name, "expert") == 0 && o->info->role == PLUMB_IN)
			for (int64_t k = 0; k < o->count; k++)
				if (id[k] < 0 || id[k] >= c->cfg.experts)
					return false;
	}
	return true;
}

/* NULL c: not a call that a decoder could make (the config, or ids that no router gives). */
static struct made make(enum plumb_op op, uint64_t seed)
{
	struct made m = {.c = trial_new(op, seed, NULL)};
	struct trial *c = m.c;
	bool attention = strcmp(plumb_ops[op].stage, "attention") == 0 || strcmp(plumb_ops[op].stage, "qsa") == 0;
	bool hyper = strcmp(plumb_ops[op].stage, "hyper_connection") == 0, lacks = false;
	struct plumb_config parsed;
	char text[TRIAL_TEXT], *config;

	c->cfg.kind[0] = attention ? PLUMB_LAYER_ATTENTION : PLUMB_LAYER_GDN;
	for (int i = 0; i < c->operands; i++)
		lacks = lacks || (c->operand[i].absent && !c->operand[i].info->trace);
	m.call = (struct plumb_call){.op = op, .position = c->position, .T = c->T, .env = &c->env, .args = c->args};
	while (m.call.layer < c->cfg.layers && (lacks || !plumb_op_runs(&c->cfg, op, m.call.layer)))
		m.call.layer++;
	if (hyper)
		m.call.site = m.call.layer == c->cfg.layers ? PLUMB_SITE_FINAL
		              : seed % 2                    ? PLUMB_SITE_ATTN
		                                            : PLUMB_SITE_MLP;
	config = plumb_config_text(&c->cfg);
	if (!plumb_op_runs(&c->cfg, op, m.call.layer) || !ids_in_range(c) ||
		plumb_config_parse(config, strlen(config), "config", &parsed, &err) != PLUMB_OK ||
		parsed.rotary_dim != c->cfg.rotary_dim) {
		trial_free(c);
		m.c = NULL;
	}
	free(config);
	if (!m.c)
		return m;
	ck_assert_msg(trial_run(c, "twin", plumb_ref_twin.op[op], NULL, PLUMB_POISON_NAN, &m.twin, text), "%s", text);
	for (int i = 0; i < c->operands; i++) {
		struct trial_operand *o = &c->operand[i];
		int64_t last;
		if (o->absent || (o->info->role != PLUMB_OUT && o->info->role != PLUMB_STATE))
			continue;
		m.expected[i].data = m.twin.bytes[i];
		if (o->info->kind != PLUMB_KIND_CACHE)
			continue;
		size_t bytes = plumb_format_row_bytes(o->cache.format, o->cache.width);
		plumb_case_written_rows(&m.call, o->info, &m.expected[i].first, &last);
		m.expected[i].rows = last - m.expected[i].first;
		m.rows[i] = malloc((size_t)m.expected[i].rows * bytes + 1);
		for (int64_t r = 0; r < m.expected[i].rows; r++)
			memcpy((char *)m.rows[i] + (size_t)r * bytes, plumb_cache_row(&o->cache, m.expected[i].first + r),
				bytes);
		m.expected[i].data = m.rows[i];
	}
	for (int i = 0; i < c->operands; i++) /* the state as it was */
		if (c->operand[i].before && !c->operand[i].absent)
			memcpy(c->operand[i].memory.data, c->operand[i].before, c->operand[i].memory.bytes);
	return m;
}

static void unmake(struct made *m)
{
	for (int i = 0; i < PLUMB_CASE_OPERANDS; i++)
		free(m->rows[i]);
	trial_result_free(&m->twin);
	trial_free(m->c);
}

static void write_case(const char *name, const struct made *m)
{
	const struct plumb_case_origin origin = {.suspect = "nobody", .truth = "ref, mode twin", .producer = "test_case"};
	ck_assert_msg(
		plumb_case_write(name, &m->call, m->expected, PLUMB_CASE_BITS, &origin, &err) == PLUMB_OK, "%s", err.text);
}

static const void *pointer_at(const void *args, const struct plumb_operand *o)
{
	const void *p;
	memcpy(&p, (const char *)args + o->offset, sizeof p);
	return p;
}

/* Run the twin on a case; the number of bytes in which it differs from what is expected. */
static int64_t run_case(struct plumb_case *k)
{
	const struct plumb_op_info *info = &plumb_ops[k->call.op];
	const struct plumb_extent extent = {.T = k->call.T, .capacity = k->env.capacity};
	int64_t differ = 0;

	k->env.err = &err;
	ck_assert_msg(plumb_ref_twin.op[k->call.op](&k->env, k->args) == PLUMB_OK, "%s", err.text);
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		const struct plumb_case_expected *e = &k->expected[i];
		const unsigned char *want = e->data, *got = pointer_at(k->args, o);
		if (!want)
			continue;
		if (o->kind == PLUMB_KIND_CACHE) {
			const struct plumb_cache *cache = (const void *)got;
			size_t bytes = plumb_format_row_bytes(cache->format, cache->width);
			for (int64_t r = 0; r < e->rows; r++)
				differ +=
					memcmp(plumb_cache_row(cache, e->first + r), want + (size_t)r * bytes, bytes) != 0;
			continue;
		}
		size_t bytes = (size_t)plumb_shape_count(o->shape, &k->cfg, &extent) * plumb_operand_element(o, k->args);
		for (size_t b = 0; b < bytes; b++)
			differ += got[b] != want[b];
	}
	return differ;
}

START_TEST(test_every_op)
{
	const char *seeds = getenv("PLUMB_CASE_SEEDS");
	uint64_t most = seeds ? strtoull(seeds, NULL, 10) : SEEDS;
	int done = 0;

	for (uint64_t seed = 1; seed <= most; seed++) {
		struct made m = make((enum plumb_op)_i, seed);
		struct plumb_case *k;
		size_t size[2];
		char *data[2];
		int64_t changed = 0;

		if (!m.c)
			continue;
		write_case(path, &m);
		ck_assert_msg(plumb_case_read(path, &k, &err) == PLUMB_OK, "%s:%llu: %s", plumb_ops[_i].name,
			(unsigned long long)seed, err.text);
		ck_assert(k->call.op == m.call.op && k->call.layer == m.call.layer && k->call.site == m.call.site);
		ck_assert(k->call.position == m.call.position && k->call.T == m.call.T && k->env.policy == m.c->env.policy);
		ck_assert_str_eq(k->origin.truth, "ref, mode twin");
		ck_assert_ptr_null(k->origin.golden);
		ck_assert_int_eq(run_case(k), 0);
		/* sensitivity: the comparison sees one bit of one expected value */
		for (int i = 0; i < PLUMB_CASE_OPERANDS && !changed; i++)
			if (k->expected[i].data &&
				(k->expected[i].rows > 0 || plumb_ops[_i].operand[i].kind != PLUMB_KIND_CACHE)) {
				((unsigned char *)(uintptr_t)k->expected[i].data)[0] ^= 1;
				changed = 1;
			}
		ck_assert(changed);
		plumb_case_free(k);
		/* what is read is written again, byte for byte; and what is written twice is the same */
		write_case(other, &m);
		data[0] = scratch_read(path, &size[0]);
		data[1] = scratch_read(other, &size[1]);
		ck_assert(size[0] == size[1] && memcmp(data[0], data[1], size[0]) == 0);
		free(data[0]);
		free(data[1]);
		unmake(&m);
		done++;
	}
	ck_assert_msg(done >= (int)most / 4 && done > 0, "%s: %d of %llu seeds gave a call", plumb_ops[_i].name, done,
		(unsigned long long)most);
}
END_TEST

/* ---- harm ---- */

/* A call of an op that can be made, for changes by hand. */
static struct made first_of(enum plumb_op op)
{
	struct made m = {0};
	for (uint64_t seed = 1; !m.c && seed < 100; seed++)
		m = make(op, seed);
	ck_assert_ptr_nonnull(m.c);
	return m;
}

static void refused(const char *what)
{
	struct plumb_case *k;
	err.text[0] = '\0';
	ck_assert_msg(plumb_case_read(path, &k, &err) == PLUMB_BAD_INPUT, "not refused: %s", what);
	ck_assert_ptr_null(k);
	ck_assert_msg(strncmp(err.text, path, strlen(path)) == 0 && strstr(err.text, what) && !strchr(err.text, '\n'),
		"%s\nexpected: %s", err.text, what);
}

/* Change the file in place by the library. */
static hid_t reopen(void)
{
	hid_t f = H5Fopen(path, H5F_ACC_RDWR, H5P_DEFAULT);
	ck_assert_int_ge(f, 0);
	return f;
}

static void set_integer(const char *name, int64_t value)
{
	hid_t f = reopen(), a = H5Aopen(f, name, H5P_DEFAULT);
	ck_assert(a >= 0 && H5Awrite(a, H5T_NATIVE_INT64, &value) >= 0);
	H5Aclose(a);
	H5Fclose(f);
}

static void set_text(const char *name, const char *value)
{
	hid_t f = reopen(), type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR), a;
	H5Tset_size(type, strlen(value) + 1);
	H5Adelete(f, name);
	a = H5Acreate2(f, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
	ck_assert(a >= 0 && H5Awrite(a, type, value) >= 0);
	H5Aclose(a);
	H5Sclose(space);
	H5Tclose(type);
	H5Fclose(f);
}

/* One value of a dataset. */
static void set_value(const char *name, hsize_t at, int64_t value)
{
	hid_t f = reopen(), d = H5Dopen2(f, name, H5P_DEFAULT), space = H5Dget_space(d), one = H5Screate(H5S_SCALAR);
	hsize_t dim[8], start[8];
	int rank = H5Sget_simple_extent_dims(space, dim, NULL);
	for (int i = rank - 1; i >= 0; i--) {
		start[i] = at % dim[i];
		at /= dim[i];
	}
	ck_assert(d >= 0 && H5Sselect_elements(space, H5S_SELECT_SET, 1, start) >= 0);
	ck_assert(H5Dwrite(d, H5T_NATIVE_INT64, one, space, H5P_DEFAULT, &value) >= 0);
	H5Sclose(one);
	H5Sclose(space);
	H5Dclose(d);
	H5Fclose(f);
}

static void drop(const char *name)
{
	hid_t f = reopen();
	ck_assert_int_ge(H5Ldelete(f, name, H5P_DEFAULT), 0);
	H5Fclose(f);
}

START_TEST(test_refused_heads)
{
	struct made m = first_of(PLUMB_ATTN_DECODE);
	static const struct {
		const char *name;
		int64_t value;
		const char *what;
	} numbers[] = {
		{"version", 2, "version is 2, expected 1..1"},
		{"layer", -1, "layer is -1"},
		{"layer", 1, "runs attn_decode"},
		{"layer", INT64_MAX, "layer is"},
		{"position", -1, "position is -1"},
		{"position", 1 << 20, "position"},
		{"rows", 0, "rows is 0"},
		{"rows", 5000, "rows is 5000"},
		{"capacity", 0, "capacity is 0"},
		{"capacity", INT64_MAX, "capacity"},
	};
	static const char *const texts[][3] = {
		{"format", "golden", "expected 'plumb case'"},
		{"op", "attn_encode", "no op"},
		{"op", "", "no op"},
		{"op", "gdn_conv", "layer is 0"},
		{"site", "mlp", "site is mlp, expected none"},
		{"site", "x", "site is 'x'"},
		{"policy", "f64", "policy is 'f64', expected f32|bf16"},
		{"ties", "", "ties is ''"},
		{"criterion", "bit", "criterion is 'bit'"},
		{"config", "{}", "model_type"},
		{"config", "[", ""},
	};

	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		write_case(path, &m);
		set_integer(numbers[i].name, numbers[i].value);
		refused(numbers[i].what);
	}
	for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
		write_case(path, &m);
		set_text(texts[i][0], texts[i][1]);
		refused(texts[i][2]);
	}
	unmake(&m);
}
END_TEST

START_TEST(test_refused_ids)
{
	struct made m = first_of(PLUMB_ATTN_DECODE);
	int64_t page = m.c->env.capacity; /* beyond any */

	write_case(path, &m);
	set_value("in/position", 0, 1 << 30);
	refused("in/position is");
	write_case(path, &m);
	set_value("caches/keys/page", 0, page);
	refused("caches/keys/page[0]");
	write_case(path, &m);
	set_value("caches/keys/page", 0, -1);
	refused("caches/keys/page[0]");
	write_case(path, &m);
	set_value("in/count", 0, 1 << 20);
	refused("in/count[0]");
	write_case(path, &m);
	set_value("in/count", 0, -1);
	refused("in/count[0]");
	write_case(path, &m);
	set_value("in/block", 0, 1 << 20);
	refused("in/block[0]");
	write_case(path, &m);
	set_value("caches/values/row", 0, page);
	refused("caches/values/row[0]");
	write_case(path, &m);
	drop("expected/o");
	refused("no dataset expected/o");
	write_case(path, &m);
	drop("in/q");
	refused("no dataset in/q");
	write_case(path, &m);
	drop("caches/keys");
	refused("caches/keys");
	unmake(&m);

	m = first_of(PLUMB_EMBED);
	write_case(path, &m);
	set_value("in/token", 0, m.c->cfg.vocab);
	refused("in/token[0]");
	write_case(path, &m);
	set_value("in/token", 0, -1);
	refused("in/token[0]");
	unmake(&m);

	m = first_of(PLUMB_MOE_GATE_UP);
	write_case(path, &m);
	set_value("in/expert", 0, m.c->cfg.experts);
	refused("in/expert[0]");
	unmake(&m);

	m = first_of(PLUMB_PLE_EMBED);
	write_case(path, &m);
	set_value("state/history", 0, -1);
	refused("state/history[0]");
	write_case(path, &m);
	set_integer("shards", 1 << 19);
	refused("shards");
	write_case(path, &m);
	set_integer("shard_rows", 1);
	refused("shards");
	unmake(&m);
}
END_TEST

/* Names of all datasets and attributes of a file, and one of them changed at random. */
static herr_t collect(hid_t group, const char *name, const H5O_info_t *info, void *context)
{
	char(*names)[128] = context;
	(void)group;
	if (info->type != H5O_TYPE_DATASET)
		return 0;
	for (int i = 0; i < 64; i++)
		if (!names[i][0]) {
			snprintf(names[i], sizeof names[i], "%s", name);
			break;
		}
	return 0;
}

/* Whatever one value, one attribute or one missing dataset of a file becomes: it is refused, or it runs. */
START_TEST(test_harmed)
{
	static const int64_t extremes[] = {0, -1, 1, 255, 256, 65536, INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, 7, 1000};
	struct trial_random random = {99};
	int good = 0, bad = 0;

	for (int round = 0; round < HARMED; round++) {
		struct made m = {0};
		struct plumb_case *k;
		char names[64][128] = {{0}};
		int n = 0;
		while (!m.c)
			m = make((enum plumb_op)trial_random_below(&random, PLUMB_OP_COUNT),
				trial_random_below(&random, 1000));
		write_case(path, &m);
		hid_t f = reopen();
		H5Ovisit2(f, H5_INDEX_NAME, H5_ITER_INC, collect, names, H5O_INFO_BASIC);
		H5Fclose(f);
		while (n < 64 && names[n][0])
			n++;
		const char *name = names[trial_random_below(&random, n)];
		int64_t value = trial_random_below(&random, 3) ? extremes[trial_random_below(&random, 12)]
		                                               : (int64_t)trial_random_next(&random);
		switch (trial_random_below(&random, 6)) {
		case 0:
			drop(name);
			break;
		case 1: {
			static const char *const integers[] = {"layer", "position", "rows", "capacity"};
			set_integer(integers[trial_random_below(&random, 4)], value);
			break;
		}
		default: {
			f = reopen();
			hid_t d = H5Dopen2(f, name, H5P_DEFAULT), space = H5Dget_space(d);
			hssize_t count = H5Sget_simple_extent_npoints(space);
			H5Sclose(space);
			H5Dclose(d);
			H5Fclose(f);
			if (count > 0)
				set_value(name, (hsize_t)trial_random_below(&random, count), value);
		}
		}
		if (plumb_case_read(path, &k, &err) == PLUMB_OK) {
			run_case(k);
			plumb_case_free(k);
			good++;
		} else {
			ck_assert_msg(
				strncmp(err.text, path, strlen(path)) == 0 && !strchr(err.text, '\n'), "%s", err.text);
			bad++;
		}
		unmake(&m);
	}
	printf("harmed cases: %d refused, %d still valid\n", bad, good);
	ck_assert_int_gt(bad, HARMED / 10);
	ck_assert_int_gt(good, HARMED / 10);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("case");
	TCase *tc = suite_part(suite, "case", 300);

	H5dont_atexit();
	H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
	tcase_add_checked_fixture(tc, set_up, tear_down);
	tcase_add_loop_test(tc, test_every_op, 0, PLUMB_OP_COUNT);
	tcase_add_test(tc, test_refused_heads);
	tcase_add_test(tc, test_refused_ids);
	tcase_add_test(tc, test_harmed);
	return suite_run(suite);
}
