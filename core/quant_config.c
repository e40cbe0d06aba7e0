/* SPDX-License-Identifier: MIT */
#include "core/quant_config.h"

#include <cJSON.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "core/json.h"
#include "core/text.h"
#include "core/weight.h"

static const struct plumb_json_limits limits = {.bytes = 16 << 20, .depth = 64, .values = 1 << 20}; /* as core/config.c */

struct checker {
	const struct plumb_shards *shards;
	bool (*is_skipped)(const char *name);
};

/* quant_algo of ModelOpt: the dtype that its weights have on disk. FP8_PB_WO and FP8_BLOCK_SCALES are two names of one
 * thing. */
static bool known_algorithm(const char *name, enum plumb_dtype *dtype, int64_t *group)
{
	static const struct {
		const char *name;
		enum plumb_dtype dtype;
		int64_t group; /* the group_size that goes with it; 0: none */
	} known[] = {
		{"NVFP4", PLUMB_DTYPE_U8, PLUMB_NVFP4_GROUP},
		{"FP8", PLUMB_DTYPE_F8_E4M3, 0},
		{"FP8_PB_WO", PLUMB_DTYPE_F8_E4M3, PLUMB_FP8_BLOCK_SIZE},
		{"FP8_BLOCK_SCALES", PLUMB_DTYPE_F8_E4M3, PLUMB_FP8_BLOCK_SIZE},
	};
	for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
		if (strcmp(name, known[i].name) == 0) {
			*dtype = known[i].dtype;
			*group = known[i].group;
			return true;
		}
	}
	return false;
}

static bool any_weight(const struct checker *c, enum plumb_dtype dtype)
{
	for (size_t i = 0; i < c->shards->tensors; i++) {
		const struct plumb_tensor *t = c->shards->tensor[i];
		if (t->dtype == dtype && plumb_text_ends(t->name, ".weight") && !c->is_skipped(t->name))
			return true;
	}
	return false;
}

/* The place of the first tensor whose name does not sort before text. */
static size_t first_from(const struct plumb_shards *s, const char *text)
{
	size_t low = 0, high = s->tensors;
	while (low < high) {
		size_t middle = low + (high - low) / 2;
		if (strcmp(s->tensor[middle]->name, text) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* Every weight of a module is stored as the entry for it says. */
static void check_module(const struct checker *c, struct plumb_json_object *o, const char *module, const char *algorithm,
	enum plumb_dtype dtype)
{
	char prefix[256];
	int n = snprintf(prefix, sizeof prefix, "%s.", module);
	if (n >= (int)sizeof prefix) /* no tensor has such a name */
		return;
	for (size_t i = first_from(c->shards, prefix); i < c->shards->tensors && !o->status; i++) {
		const struct plumb_tensor *t = c->shards->tensor[i];
		if (strncmp(t->name, prefix, (size_t)n) != 0)
			break;
		if (plumb_text_ends(t->name, ".weight") && !c->is_skipped(t->name) && t->dtype != dtype)
			o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
				"%s: %squant_algo is %.40s, expected what the tensors are: %.200s has dtype %s", o->file,
				o->path, algorithm, t->name, plumb_dtype_name(t->dtype));
	}
}

static void check_group(struct plumb_json_object *o, int64_t expected)
{
	int64_t group = plumb_json_int(o, "group_size", 0, INT32_MAX, &expected);
	if (!o->status && group != expected)
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT, "%s: %sgroup_size is %lld, expected %lld", o->file, o->path,
			(long long)group, (long long)expected);
}

static void check_layers(const struct checker *c, struct plumb_json_object *o)
{
	const cJSON *entry, *layers = plumb_json_child(o, "quantized_layers", false);
	cJSON_ArrayForEach (entry, layers) {
		char path[192];
		enum plumb_dtype dtype;
		int64_t group;
		snprintf(path, sizeof path, "%squantized_layers[\"%.100s\"].", o->path, entry->string);
		struct plumb_json_object layer = {.object = entry, .file = o->file, .path = path, .err = o->err};
		if (o->status || !cJSON_IsObject(entry))
			return;
		const char *algorithm = plumb_json_string(&layer, "quant_algo", "");
		if (!layer.status && known_algorithm(algorithm, &dtype, &group)) {
			if (group)
				check_group(&layer, group);
			if (!layer.status)
				check_module(c, &layer, entry->string, algorithm, dtype);
		}
		o->status = layer.status;
	}
}

/* config_groups.NAME.weights of 4 bits have groups of 16. */
static void check_groups(struct plumb_json_object *o)
{
	const cJSON *entry, *groups = plumb_json_child(o, "config_groups", false);
	cJSON_ArrayForEach (entry, groups) {
		char path[192];
		static const int64_t none = 0;
		struct plumb_json_object group = {.object = entry, .file = o->file, .path = o->path, .err = o->err};
		if (o->status || !cJSON_IsObject(entry))
			return;
		snprintf(path, sizeof path, "%sconfig_groups.%.60s.weights.", o->path, entry->string);
		const cJSON *weights = plumb_json_child(&group, "weights", false);
		struct plumb_json_object w = {
			.object = weights, .file = o->file, .path = path, .err = o->err, .status = group.status};
		if (weights && plumb_json_int(&w, "num_bits", 0, 64, &none) == 4)
			check_group(&w, PLUMB_NVFP4_GROUP);
		o->status = w.status;
	}
}

static void expect_stored(
	const struct checker *c, struct plumb_json_object *o, const char *key, const char *value, enum plumb_dtype dtype)
{
	if (!o->status && !any_weight(c, dtype))
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
			"%s: %s%s is %.40s, expected what the tensors are: none ending in .weight has dtype %s", o->file,
			o->path, key, value, plumb_dtype_name(dtype));
}

static void check_fp8(const struct checker *c, struct plumb_json_object *o)
{
	const cJSON *size = plumb_json_array(o, "weight_block_size", false);
	int64_t rows = 0, cols = 0;
	if (size && (cJSON_GetArraySize(size) != 2 || !plumb_json_item_int(size->child, 0, INT32_MAX, &rows) ||
			    !plumb_json_item_int(size->child->next, 0, INT32_MAX, &cols) || rows != PLUMB_FP8_BLOCK_SIZE ||
			    cols != PLUMB_FP8_BLOCK_SIZE))
		o->status = plumb_fail(o->err, PLUMB_BAD_INPUT,
			"%s: %sweight_block_size is [%lld, %lld], expected [%d, %d]", o->file, o->path, (long long)rows,
			(long long)cols, PLUMB_FP8_BLOCK_SIZE, PLUMB_FP8_BLOCK_SIZE);
	expect_stored(c, o, "quant_method", "fp8", PLUMB_DTYPE_F8_E4M3);
}

static void check_modelopt(const struct checker *c, struct plumb_json_object *o)
{
	enum plumb_dtype dtype;
	int64_t group;
	const char *algorithm = plumb_json_string(o, "quant_algo", "");
	if (!o->status && known_algorithm(algorithm, &dtype, &group)) {
		if (group)
			check_group(o, group);
		expect_stored(c, o, "quant_algo", algorithm, dtype);
	}
	check_groups(o);
	check_layers(c, o);
}

/* The object KEY of the file at path, if there is one, handed to check. */
static int check_file(const char *path, const char *key, const struct checker *c,
	void (*check)(const struct checker *c, struct plumb_json_object *o), struct plumb_error *err)
{
	cJSON *tree = NULL;
	char inside[64];
	int status = plumb_json_read(path, &limits, &tree, err);
	if (status)
		return status;
	snprintf(inside, sizeof inside, "%s.", key);
	struct plumb_json_object top = {.object = tree, .file = path, .path = "", .err = err};
	const cJSON *quantisation = plumb_json_child(&top, key, false);
	struct plumb_json_object o = {
		.object = quantisation, .file = path, .path = inside, .err = err, .status = top.status};
	if (quantisation && !o.status)
		check(c, &o);
	cJSON_Delete(tree);
	return o.status;
}

static void check_config(const struct checker *c, struct plumb_json_object *o)
{
	const char *method = plumb_json_string(o, "quant_method", "");
	if (!o->status && strcmp(method, "fp8") == 0)
		check_fp8(c, o);
	else if (!o->status && strcmp(method, "modelopt") == 0)
		check_modelopt(c, o);
}

int plumb_quant_config_check(
	const char *path, const struct plumb_shards *shards, bool (*is_skipped)(const char *name), struct plumb_error *err)
{
	const struct checker c = {.shards = shards, .is_skipped = is_skipped};
	return check_file(path, "quantization_config", &c, check_config, err);
}

int plumb_quant_sidecar_check(
	const char *path, const struct plumb_shards *shards, bool (*is_skipped)(const char *name), struct plumb_error *err)
{
	const struct checker c = {.shards = shards, .is_skipped = is_skipped};
	struct stat st;
	if (lstat(path, &st) != 0 && errno == ENOENT)
		return PLUMB_OK;
	return check_file(path, "quantization", &c, check_modelopt, err);
}
