/* SPDX-License-Identifier: MIT */
#include "ref/chunk.h"

#include <stdlib.h>

#include "ref/linear.h"

enum { CHUNK = 64 };

struct chunk {
	int tokens;
	double log_decay;                                    /* G */
	double decay[CHUNK], of_key[CHUNK], of_query[CHUNK]; /* D_j; weights of delta_j^2 in the variance / u^2 */
	double *key, *delta;                                 /* (CHUNK, Dk), (CHUNK, Dv) */
};

struct chunk *chunks_make(const struct plumb_env *env)
{
	int64_t Hv = env->cfg->gdn_value_heads, Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	struct chunk *chunks = scratch_ref(env, Hv, sizeof *chunks);
	double *kept = chunks ? scratch_ref(env, Hv * CHUNK * (Dk + Dv), sizeof *kept) : NULL; /* chunk 0 owns it */

	if (!kept) {
		free(chunks);
		return NULL;
	}
	for (int64_t h = 0; h < Hv; h++, kept += CHUNK * (Dk + Dv))
		chunks[h] = (struct chunk){.key = kept, .delta = kept + CHUNK * Dk};
	return chunks;
}

void chunks_free(struct chunk *chunks)
{
	if (chunks)
		free(chunks[0].key);
	free(chunks);
}

struct chunk *chunk_of(struct chunk *chunks, int64_t head)
{
	return chunks ? chunks + head : NULL;
}

/* What a product of x with the key of token j contributes. */
static double weight_of(const struct chunk *c, int j, const double *x, int64_t Dk)
{
	struct sum dot = {0};
	for (int64_t i = 0; i < Dk; i++)
		add(&dot, x[i] * c->key[j * Dk + i]);
	double square = dot.value * dot.value;
	return c->decay[j] * c->decay[j] *
	       ((double)c->tokens * square / 18.0 + (double)Dk * (square / 9.0 + dot.squares / 18.0));
}

double chunk_decay(const struct plumb_env *env, struct chunk *c, const double *q, const double *k, double g)
{
	int64_t Dk = env->cfg->gdn_key_dim, Dv = env->cfg->gdn_value_dim;
	double decay;

	if (!c)
		return exp(g);
	if (c->tokens == CHUNK) {
		c->tokens = 0;
		c->log_decay = 0.0;
	}
	g = nudge_value(env, g);
	c->log_decay += g;
	decay = exp(g);
	decay = nudge_by(env, decay, NUDGE_ROUNDING * fabs(c->log_decay) * decay);
	for (int j = 0; j < c->tokens; j++)
		c->decay[j] *= decay;
	c->decay[c->tokens] = 1.0;
	for (int64_t i = 0; i < Dk; i++)
		c->key[c->tokens * Dk + i] = k[i];
	for (int64_t i = 0; i < Dv; i++) /* chunk_memory() is asked before chunk_put() */
		c->delta[c->tokens * Dv + i] = 0.0;
	c->tokens++;
	for (int j = 0; j < c->tokens; j++) {
		c->of_key[j] = j + 1 < c->tokens ? weight_of(c, j, k, Dk) : 0.0;
		c->of_query[j] = weight_of(c, j, q, Dk);
	}
	return decay;
}

/* A sum over the state of value row i, and over what the chunk has put there. */
static double moved(
	const struct plumb_env *env, const struct chunk *c, const double *weight, int64_t i, const struct sum *sum)
{
	double terms = (double)c->tokens, square = sum->value * sum->value;
	double variance = (double)env->cfg->gdn_key_dim * (square / 9.0 + sum->squares / 18.0) + terms * square / 9.0;
	for (int j = 0; j < c->tokens; j++) {
		double delta = c->delta[j * env->cfg->gdn_value_dim + i];
		variance += weight[j] * delta * delta;
	}
	return nudge_by(env, sum->value, NUDGE_SIGMAS * 0x1p-24 * sqrt(variance));
}

double chunk_memory(const struct plumb_env *env, const struct chunk *c, int64_t i, const struct sum *memory)
{
	return c ? moved(env, c, c->of_key, i, memory) : memory->value;
}

double chunk_output(const struct plumb_env *env, const struct chunk *c, int64_t i, const struct sum *output)
{
	return c ? moved(env, c, c->of_query, i, output) : output->value;
}

void chunk_put(struct chunk *c, int64_t i, int64_t Dv, double delta)
{
	if (c)
		c->delta[(c->tokens - 1) * Dv + i] = delta;
}
