/* SPDX-License-Identifier: MIT */
/* Contracts of the PLE n-gram stage. Letters: core/config.h. Orders: core/order.h. rne: the policy's rounding. */
#ifndef PLUMB_CORE_OPS_PLE_H
#define PLUMB_CORE_OPS_PLE_H

#include "core/cache.h"
#include "core/op.h"

/* Hash constants of one PLE module: equal to the I64 tensors of the checkpoint. */
struct plumb_ngram {
	int64_t multiplier[PLUMB_MAX_NGRAM];   /* (G) odd, so small that no product reaches 2^63 */
	int64_t prime[PLUMB_MAX_NGRAM_HEADS];  /* (Hg) modulus of each head */
	int64_t offset[PLUMB_MAX_NGRAM_HEADS]; /* (Hg) first row of each head in the table */
	int64_t rows;                          /* sum of the primes, rounded up to ngram_row_multiple */
};

/* Constants of PLE module q (0-based position in the sorted ple_layer_ids), computed from the config.
 * Errors: PLUMB_BAD_INPUT when the primes would pass 2^62. Source: model-spec 2.4. */
int plumb_ngram_constants(const struct plumb_config *cfg, int q, struct plumb_ngram *out, struct plumb_error *err);

/* Table rows of one token. id: (G) raw ids, id[0] the token, id[j] the one j tokens back; row: (Hg).
 * Source: model-spec 2.4 (context rule, hash). */
void plumb_ngram_rows(const struct plumb_config *cfg, const struct plumb_ngram *ngram, const int64_t *id, int64_t *row);

/* Computes     c_j = EOS if any of the j tokens before t, counted back to it, is EOS, else the token j back (tokens
 *              before the first count as EOS); u_1 = id*m_0, u_n = u_(n-1) xor c_(n-1)*m_(n-1); row of head h =
 *              u_n mod prime[h] + offset[h] with n = 2 + h / heads_per_ngram; embedding = the Hg rows, head-major.
 * Shapes       token (T), history (G-1), row (T, Hg), embedding (T, De); table: shards of (rows, De/Hg), in order.
 * Layout       row-major. history: the last G-1 raw token ids, oldest first; EOS before the first token.
 * Units        ids and rows; 64-bit arithmetic, modulo of non-negative numbers.
 * Numerics     exact. bf16 table: widened. No reduction. Bound: 0.
 * Determinism  bit-exact on every device. history is replaced by the last G-1 ids of history|token.
 * Errors       none: every row lies inside the table by construction of the constants.
 * Source       model-spec 2.4 (context rule, hash, injection line 1). */
struct plumb_ple_embed {
	int64_t T;
	const int32_t *token;             /* in    (T) */
	int64_t *history;                 /* state (G-1) */
	const struct plumb_ngram *ngram;  /* constant */
	const struct plumb_weight *table; /* bank  (shards) of (rows, De/Hg) */
	int64_t shards;
	int64_t shard_rows; /* rows of every shard but the last */
	int64_t *row;       /* out   (T, Hg) */
	float *embedding;   /* out   (T, De) */
};

/* Computes     k = GNorm(lin(key_proj, e); norm_key), v = lin(value_proj, e), q = GNorm(R; norm_query);
 *              s = rne(rne(sum_c rne(k[s,c]*q[s,c])) / sqrt(D)); g = rne(sqrt(max(|s|, bf16(1e-6)))) * sign(s);
 *              w = rne(sigmoid(g)); gated = rne(w*v) for each stream; conv_in = GNorm(gated; norm_conv).
 * Shapes       embedding (T, De), residual (T, S, D), key_proj (S*D, De), value_proj (D, De), norms (S*D),
 *              gated (T, S, D), conv_in (T, S, D).
 * Layout       row-major; streams contiguous.
 * Units        none; eps is rms_norm_eps; the clamp is bf16(1e-6) = 0x3586 under policy bf16 and 1e-6f under f32.
 * Numerics     binary32. Projections split(pieces, 256) with rows S*D + D. GNorm: (x*r)*(1 + w), r = 1/sqrt(mean + eps),
 *              mean = strided(256) sum of squares over D, divided by D. Gate sum strided(256) of rounded products, by
 *              plain addition, divided by sqrt(D) rounded to binary32; sign(0) = 0, so a zero gate gives g = 0,
 *              w = 0.5. Every other operation rounds once, in the order written. NaN carried.
 * Determinism  bit-exact on every device.
 * Errors       none.
 * Source       model-spec 2.1, 2.4 (injection lines k to c). */
struct plumb_ple_gate {
	int64_t T;
	const float *embedding;                /* in  (T, De) */
	const float *residual;                 /* in  (T, S, D) */
	const struct plumb_weight *key_proj;   /* w   (S*D, De) */
	const struct plumb_weight *value_proj; /* w   (D, De) */
	const struct plumb_weight *norm_key;   /* w   (1, S*D) */
	const struct plumb_weight *norm_query; /* w   (1, S*D) */
	const struct plumb_weight *norm_conv;  /* w   (1, S*D) */
	float *gated;                          /* out (T, S, D) */
	float *conv_in;                        /* out (T, S, D) */
};

/* Computes     z = rne(silu(rne(sum_j conv[ch, j] * c_{p - (Kp-1-j)*G}[ch]))); output = rne(gated + z);
 *              residual_out = rne(residual + output).
 * Shapes       gated, conv_in, residual, output, residual_out (T, S, D); conv (S*D, Kp); window (W, S*D); position (1).
 * Layout       window is a ring: the row of position p is p mod W; rows of positions before 0 are zero.
 * Units        position: 0-based position of row 0 of the call.
 * Numerics     binary32. Taps serial by fmaf, oldest first; those before position 0 are left out. NaN carried.
 * Determinism  bit-exact on every device. window then holds the last W rows of conv_in.
 * Errors       none.
 * Source       model-spec 2.4 (last two lines), 2.2 step 2, 2.11. */
struct plumb_ple_conv {
	int64_t T;
	const int32_t *position;         /* in    (1) */
	const float *gated;              /* in    (T, S, D) */
	const float *conv_in;            /* in    (T, S, D) */
	const float *residual;           /* in    (T, S, D) */
	const struct plumb_weight *conv; /* w     (S*D, Kp) */
	float *window;                   /* state (W, S*D) */
	float *output;                   /* out   (T, S, D) */
	float *residual_out;             /* out   (T, S, D) */
};

#endif
