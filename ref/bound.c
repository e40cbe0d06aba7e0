/* SPDX-License-Identifier: MIT */
#include "ref/bound.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/cache.h"
#include "core/numeric.h"
#include "ref/bound_parts.h"
#include "ref/linear.h"

#define ENTRY(id, name) [PLUMB_##id] = name##_bound,
plumb_bound_fn *const plumb_bounds[PLUMB_OP_COUNT] = {PLUMB_EACH_OP(ENTRY)};

double plumb_gamma(int64_t depth)
{
	double du = (double)depth * 0x1p-24;
	return du < 1.0 ? du / (1.0 - du) : HUGE_VAL;
}

/* ---- sets ---- */

static bool bounded(const struct plumb_operand *o)
{
	return (o->role == PLUMB_OUT && plumb_operand_is_real(o)) ||
	       (o->role == PLUMB_STATE && (plumb_operand_is_real(o) || o->kind == PLUMB_KIND_CACHE));
}

int plumb_bound_make(const struct plumb_env *env, enum plumb_op op, int64_t position, const void *before, const void *args,
	struct plumb_bound_set *set)
{
	const struct plumb_op_info *info = &plumb_ops[op];
	const int64_t T = plumb_op_rows(args);

	*set = (struct plumb_bound_set){.op = op};
	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		struct plumb_extent extent = {.T = T, .capacity = env->capacity};
		if (!bounded(o) || !plumb_operand_get(args, o))
			continue;
		if (o->kind == PLUMB_KIND_CACHE) { /* rows of tokens, or of the blocks that they complete */
			const struct plumb_cache *cache = plumb_operand_get(args, o);
			int64_t limit;
			plumb_operand_written_rows(env->cfg, o, cache->rows, position, T, &set->first[i], &limit);
			set->count[i] = (limit - set->first[i]) * cache->width;
		} else {
			set->count[i] = plumb_shape_count(o->shape, env->cfg, &extent);
		}
		set->ball[i] = bound_scratch(env, set->count[i]);
		if (!set->ball[i])
			return PLUMB_BAD_INPUT;
	}
	return plumb_bounds[op](env, before, args, set);
}

void plumb_bound_free(struct plumb_bound_set *set)
{
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		free(set->ball[i]);
	*set = (struct plumb_bound_set){.op = set->op};
}

struct plumb_ball *plumb_bound_of(const struct plumb_bound_set *set, const char *operand)
{
	const struct plumb_op_info *info = &plumb_ops[set->op];
	for (int i = 0; i < info->operands; i++)
		if (strcmp(info->operand[i].name, operand) == 0)
			return set->ball[i];
	return NULL;
}

void plumb_bound_wide(struct plumb_bound_set *set, const char *operand)
{
	const struct plumb_op_info *info = &plumb_ops[set->op];
	for (int i = 0; i < info->operands; i++)
		set->wide[i] = set->wide[i] || strcmp(info->operand[i].name, operand) == 0;
}

/* ---- measuring ---- */

void plumb_bound_begin(struct plumb_bound_result *result, enum plumb_op op)
{
	*result = (struct plumb_bound_result){.op = op};
	for (int i = 0; i < PLUMB_BOUND_OPERANDS; i++)
		result->operand[i].index = -1;
}

/* Sums of one token. */
struct cluster {
	double sum[2][2]; /* as struct plumb_bound_stat has them */
	int64_t elements; /* with a spread, and the sum of their (error/spread)^2 */
	double square;
	double last; /* exact value of the element before; NaN: none */
	bool narrow; /* stored as bf16 */
};

static int bucket_of(double ratio)
{
	int bucket = PLUMB_BOUND_PARTS;
	if (!(ratio > 1.0))
		return (int)ceil(ratio * PLUMB_BOUND_PARTS);
	double edge = 1.0;
	while (ratio > edge && bucket < PLUMB_BOUND_BUCKETS - 1) {
		edge *= 2.0;
		bucket++;
	}
	return bucket;
}

static void worst(struct plumb_bound_stat *s, double ratio, int64_t index, float candidate, struct plumb_ball b)
{
	s->bucket[bucket_of(ratio)]++;
	if (s->index >= 0 && !(ratio > s->max_ratio))
		return;
	s->max_ratio = ratio;
	s->index = index;
	s->call = s->calls;
	s->candidate = candidate;
	s->ball = b;
}

static void add_element(struct plumb_bound_stat *s, struct cluster *c, int64_t index, float candidate, struct plumb_ball b)
{
	float rounded = (float)b.value; /* beyond binary32: an Inf is what must come */
	s->values++;
	if (!isfinite(rounded) || !isfinite(candidate)) {
		bool same = isnan(rounded) ? isnan(candidate) : rounded == candidate;
		/* near the end of the range either is a rounding of the other */
		if (!same && !(fabs(b.value) + b.error >= 0x1p128 && !isnan(candidate) && isfinite(b.value))) {
			s->apart++;
			worst(s, HUGE_VAL, index, candidate, b);
		}
		return;
	}
	s->finite++;
	if (!isfinite(b.error)) {
		s->unbounded++;
		return;
	}
	/* binary64 has its own roundings: see ref/bound_ball.h */
	double error = (double)candidate - b.value, allowed = b.error * (1.0 + 0x1p-20) + 0x1p-48 * fabs(b.value);
	double ratio = fabs(error) <= allowed && b.error == 0.0 ? 0.0 : b.error > 0.0 ? fabs(error) / allowed : HUGE_VAL;
	worst(s, ratio, index, candidate, b);
	/* a value that repeats the one before it (equal weights of tied experts) rounds the same way: no new evidence */
	bool repeats = b.value == c->last;
	c->last = b.value;
	if (b.spread > 0.0 && !repeats) {
		double r = error / b.spread, stored = (double)(c->narrow ? plumb_round_bf16(rounded) : rounded);
		/* stored as bf16, a drift of parts of a binary32 ulp moves one value in thousands, by a whole step:
		 * noise */
		double drift = c->narrow ? 0.0 : b.drift;
		s->spread_count++;
		c->elements++;
		s->square += r * r;
		c->square += r * r;
		for (int k = 0; k < 2; k++) {
			double from_stored = ((double)candidate - stored - (k ? drift : 0.0)) / b.spread;
			c->sum[k][0] += from_stored;
			c->sum[k][1] += b.value < 0.0 ? -from_stored : from_stored;
		}
	}
}

static void add_cluster(struct plumb_bound_stat *s, struct cluster *c)
{
	for (int k = 0; k < 2; k++) {
		struct plumb_bound_signs *sign = &s->sign[k];
		sign->clusters += c->sum[k][0] != 0.0 || c->sum[k][1] != 0.0;
		for (int i = 0; i < 2; i++) {
			double mean = c->elements ? c->sum[k][i] / (double)c->elements : 0.0;
			sign->sum[i] += mean;
			sign->sum2[i] += mean * mean;
			c->sum[k][i] = 0.0;
		}
	}
	const double n = (double)c->elements;
	s->square2 += c->square * c->square;
	s->cross += c->square * n;
	s->count2 += n * n;
	c->elements = 0;
	c->square = 0.0;
}

/* Elements that share a cluster: a token's of an output, a row's of a cache, all of a state. */
static int64_t cluster_size(const struct plumb_operand *o, const void *args, int64_t count)
{
	if (o->kind == PLUMB_KIND_CACHE)
		return ((const struct plumb_cache *)plumb_operand_get(args, o))->width;
	return o->role == PLUMB_OUT ? count / plumb_op_rows(args) : count;
}

/* Element j of an operand, as binary32. row: scratch for the rows of a cache, read once each. */
static float candidate_at(const struct plumb_operand *o, const void *args, const struct plumb_bound_set *set, int i,
	int64_t j, float *row, int64_t size)
{
	float value;
	if (row) {
		if (j % size == 0)
			plumb_cache_get(plumb_operand_get(args, o), set->first[i] + j / size, row);
		return row[j % size];
	}
	plumb_decode(plumb_operand_format(o, args),
		(const char *)plumb_operand_get(args, o) + (size_t)j * plumb_operand_element(o, args), 1, &value);
	return value;
}

int plumb_bound_add(
	struct plumb_bound_result *result, const struct plumb_env *env, const void *args, const struct plumb_bound_set *set)
{
	const struct plumb_op_info *info = &plumb_ops[set->op];

	for (int i = 0; i < info->operands; i++) {
		const struct plumb_operand *o = &info->operand[i];
		struct plumb_bound_stat *s = &result->operand[i];
		struct cluster cluster = {.last = (double)NAN, .narrow = env->policy == PLUMB_POLICY_BF16 && !set->wide[i]};
		float *row = NULL;
		if (!set->ball[i])
			continue;
		int64_t size = cluster_size(o, args, set->count[i]);
		if (o->kind == PLUMB_KIND_CACHE && !(row = scratch_ref(env, size, sizeof *row)))
			return PLUMB_BAD_INPUT;
		for (int64_t j = 0; j < set->count[i]; j++) {
			float candidate = candidate_at(o, args, set, i, j, row, size);
			add_element(s, &cluster, row ? set->first[i] * size + j : j, candidate, set->ball[i][j]);
			if (j % size == size - 1)
				add_cluster(s, &cluster);
		}
		s->calls++;
		free(row);
	}
	return PLUMB_OK;
}

void plumb_bound_merge(struct plumb_bound_stat *a, const struct plumb_bound_stat *b)
{
	if (b->index >= 0 && (a->index < 0 || b->max_ratio > a->max_ratio)) {
		a->max_ratio = b->max_ratio;
		a->index = b->index;
		a->call = a->calls + b->call;
		a->candidate = b->candidate;
		a->ball = b->ball;
	}
	a->values += b->values;
	a->finite += b->finite;
	a->apart += b->apart;
	a->unbounded += b->unbounded;
	a->calls += b->calls;
	for (int i = 0; i < PLUMB_BOUND_BUCKETS; i++)
		a->bucket[i] += b->bucket[i];
	a->spread_count += b->spread_count;
	a->square += b->square;
	a->square2 += b->square2;
	a->cross += b->cross;
	a->count2 += b->count2;
	for (int k = 0; k < 2; k++) {
		a->sign[k].clusters += b->sign[k].clusters;
		for (int i = 0; i < 2; i++) {
			a->sign[k].sum[i] += b->sign[k].sum[i];
			a->sign[k].sum2[i] += b->sign[k].sum2[i];
		}
	}
}

/* ---- gates ---- */

double plumb_bound_rms(const struct plumb_bound_stat *s)
{
	return s->spread_count ? sqrt(s->square / (double)s->spread_count) : 0.0;
}

double plumb_bound_rms_error(const struct plumb_bound_stat *s)
{
	if (!s->spread_count)
		return 0.0;
	const double n = (double)s->spread_count, m = s->square / n;
	const double sum = s->square2 - 2.0 * m * s->cross + m * m * s->count2;
	return sum > 0.0 ? sqrt(sum) / n : 0.0;
}

static double z_of(const struct plumb_bound_signs *sign)
{
	double z = 0.0;
	for (int i = 0; i < 2; i++) {
		double zi = sign->sum2[i] > 0.0 ? fabs(sign->sum[i]) / sqrt(sign->sum2[i]) : 0.0;
		z = zi > z ? zi : z;
	}
	return z;
}

double plumb_bound_bias(const struct plumb_bound_stat *s)
{
	double raw = z_of(&s->sign[0]), less = z_of(&s->sign[1]);
	return raw < less ? raw : less;
}

bool plumb_bound_has_rms(const struct plumb_bound_stat *s)
{
	const double n = (double)s->spread_count;
	return s->spread_count >= PLUMB_BOUND_ELEMENTS && n * n >= PLUMB_BOUND_TOKENS * s->count2;
}

bool plumb_bound_has_bias(const struct plumb_bound_stat *s)
{
	return s->spread_count >= PLUMB_BOUND_ELEMENTS && s->sign[0].clusters >= PLUMB_BOUND_CLUSTERS &&
	       s->sign[1].clusters >= PLUMB_BOUND_CLUSTERS;
}

static bool biased(const struct plumb_bound_signs *sign)
{
	double most = PLUMB_BOUND_BIAS * sqrt((double)sign->clusters);
	return !(z_of(sign) <= (most > PLUMB_BOUND_Z ? most : PLUMB_BOUND_Z));
}

bool plumb_bound_stat_passes(const struct plumb_bound_stat *s, char *text, size_t size)
{
	double rms = plumb_bound_rms(s), z = plumb_bound_bias(s);
	bool ratio_ok = s->max_ratio <= 1.0 && s->apart == 0 && s->unbounded == 0;
	bool rms_ok = !plumb_bound_has_rms(s) || rms <= PLUMB_BOUND_RMS ||
	              rms * rms - 1.0 / 3.0 <= PLUMB_BOUND_Z * plumb_bound_rms_error(s);
	bool bias_ok = !plumb_bound_has_bias(s) || !biased(&s->sign[0]) || !biased(&s->sign[1]);

	if (text)
		snprintf(text, size, "%sratio %.3g%s, rms %.3g%s, bias z %.3g%s%s%s",
			ratio_ok && rms_ok && bias_ok ? "" : "FAIL: ", s->max_ratio, ratio_ok ? "" : " > 1", rms,
			rms_ok ? "" : " > 0.632", z, bias_ok ? "" : " (biased)", s->apart ? ", NaN or Inf on one side" : "",
			s->unbounded ? ", elements without a bound" : "");
	return ratio_ok && rms_ok && bias_ok;
}

bool plumb_bound_passes(const struct plumb_bound_result *result, char *text, size_t size)
{
	const struct plumb_op_info *info = &plumb_ops[result->op];
	bool any = false, wanted = false;

	for (int i = 0; i < info->operands; i++) {
		char line[256];
		const struct plumb_bound_stat *s = &result->operand[i];
		wanted = wanted || bounded(&info->operand[i]);
		any = any || s->values > 0;
		if (!plumb_bound_stat_passes(s, line, sizeof line)) {
			if (text)
				snprintf(text, size, "%s: %s", info->operand[i].name, line);
			return false;
		}
	}
	if (text)
		snprintf(text, size, "%s", any || !wanted ? "pass" : "FAIL: nothing was measured");
	return any || !wanted;
}
