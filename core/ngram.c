/* SPDX-License-Identifier: MIT */
/* Constants of the PLE n-gram hash. They are recomputed, not only read, because a table whose rows were hashed with
 * other constants loads without complaint and gives plausible nonsense. */
#include <stdbool.h>
#include <stdint.h>

#include "core/config.h"
#include "core/ops/ple.h"
#include "core/splitmix.h"

/* Distance of the seeds of successive PLE modules (model-spec 2.4). */
#define MODULE_STEP UINT64_C(10007)

/* Up to here primes and row numbers are taken: sums of a few of them still fit 63 bits. */
#define PRIME_LIMIT (INT64_C(1) << 62)

static uint64_t multiply_mod(uint64_t a, uint64_t b, uint64_t n)
{
	if (n <= UINT32_MAX) /* the table sizes of every known model: no 128-bit division */
		return a * b % n;
	__extension__ typedef unsigned __int128 wide;
	return (uint64_t)((wide)a * b % n);
}

static uint64_t power_mod(uint64_t base, uint64_t exponent, uint64_t n)
{
	uint64_t result = 1;
	for (base %= n; exponent; exponent >>= 1) {
		if (exponent & 1)
			result = multiply_mod(result, base, n);
		base = multiply_mod(base, base, n);
	}
	return result;
}

/* Miller-Rabin. The first 12 primes as bases leave no composite below 3.3e24 undetected (Sorenson, Webster 2015),
 * the first 4 none below 3 215 031 751 (Jaeschke 1993). */
static bool is_prime(uint64_t n)
{
	static const uint64_t bases[12] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
	if (n < 2)
		return false;
	for (int i = 0; i < 12; i++)
		if (n % bases[i] == 0)
			return n == bases[i];
	uint64_t odd = n - 1;
	int twos = 0;
	for (; odd % 2 == 0; odd /= 2)
		twos++;
	for (int i = 0; i < (n < UINT64_C(3215031751) ? 4 : 12); i++) {
		uint64_t x = power_mod(bases[i], odd, n);
		bool passes = x == 1 || x == n - 1;
		for (int k = 1; k < twos && !passes; k++) {
			x = multiply_mod(x, x, n);
			passes = x == n - 1;
		}
		if (!passes)
			return false;
	}
	return true;
}

int plumb_ngram_constants(const struct plumb_config *cfg, int q, struct plumb_ngram *out, struct plumb_error *err)
{
	int heads = plumb_ngram_heads(cfg);
	*out = (struct plumb_ngram){0};

	int64_t half = INT64_MAX / cfg->vocab / 2;
	if (half < 1)
		half = 1;
	uint64_t base = cfg->seed + MODULE_STEP * (uint64_t)q;
	for (int i = 0; i < cfg->ngram; i++)
		out->multiplier[i] =
			(int64_t)(2 * (plumb_splitmix64(base + PLUMB_SPLITMIX_STEP * (uint64_t)(i + 1)) % (uint64_t)half) +
				  1);

	/* Module q goes on where the modules before it stopped; their primes are found again rather than kept. */
	int64_t candidate = cfg->ngram_vocab_base, total = 0;
	int64_t skip = (int64_t)q * heads;
	for (int64_t found = 0; found < skip + heads; candidate++) {
		if (candidate >= PRIME_LIMIT)
			return plumb_fail(err, PLUMB_BAD_INPUT,
				"ngram_vocab_size_base %lld: the primes of PLE module %d pass 2^62, expected a smaller "
				"base",
				(long long)cfg->ngram_vocab_base, q);
		if (!is_prime((uint64_t)candidate))
			continue;
		if (found >= skip) {
			out->prime[found - skip] = candidate;
			out->offset[found - skip] = total;
			if (total > PRIME_LIMIT - candidate)
				return plumb_fail(err, PLUMB_BAD_INPUT,
					"ngram_vocab_size_base %lld: the table of PLE module %d passes 2^62 rows, "
					"expected a smaller base",
					(long long)cfg->ngram_vocab_base, q);
			total += candidate;
		}
		found++;
	}
	/* Below 2^62 + 2^62: no overflow. */
	if (cfg->ngram_row_multiple > PRIME_LIMIT)
		return plumb_fail(err, PLUMB_BAD_INPUT,
			"make_ngram_vocab_size_divisible_by %lld passes 2^62, expected a smaller value",
			(long long)cfg->ngram_row_multiple);
	out->rows = (total + cfg->ngram_row_multiple - 1) / cfg->ngram_row_multiple * cfg->ngram_row_multiple;
	return PLUMB_OK;
}

void plumb_ngram_rows(const struct plumb_config *cfg, const struct plumb_ngram *g, const int64_t *id, int64_t *row)
{
	int64_t u = id[0] * g->multiplier[0];
	int cut = 0; /* an EOS was met on the way back: everything before it counts as EOS */

	for (int n = 2; n <= cfg->ngram; n++) {
		int64_t c = id[n - 1];
		if (cut || c == cfg->eos) {
			cut = 1;
			c = cfg->eos;
		}
		u ^= c * g->multiplier[n - 1];
		for (int j = 0; j < cfg->heads_per_ngram; j++) {
			int h = (n - 2) * cfg->heads_per_ngram + j;
			row[h] = u % g->prime[h] + g->offset[h];
		}
	}
}
