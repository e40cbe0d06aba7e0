/* SPDX-License-Identifier: MIT */
/* Launchers of the mixture-of-experts stage, one token a launch. Contracts: core/ops/moe.h. Router and gate_up let their
 * successor begin when what came before them has ended (kernels/device.h, overlap). */
#ifndef PLUMB_KERNELS_MOE_H
#define PLUMB_KERNELS_MOE_H

#include <stdint.h>

#include "kernels/launcher.h"
#include "kernels/matrix.h"

enum {
	PLUMB_MOE_SHARED_EXPERTS = 8192, /* ranked in shared memory: 64 KiB; more need scratch */
	PLUMB_MOE_MAX_EXPERTS = 1 << 30, /* LIMIT: rounded up to a power of two it must be an int */
};

struct plumb_moe_router_launch {
	const float *x;                        /* (D) */
	struct plumb_matrix gate, shared_gate; /* (E, D), (1, D) */
	float *logits;                         /* (E) */
	int32_t *expert;                       /* (A) */
	float *weight;                         /* (A) */
	float *shared_weight;                  /* (1) */
	uint64_t *rank;    /* scratch (E rounded up to a power of two) above PLUMB_MOE_SHARED_EXPERTS, else NULL */
	uint32_t *arrived; /* zero between launches */
	int64_t cols;      /* D */
	int32_t experts;   /* E */
	int32_t chosen;    /* A */
	int pieces;        /* plumb_split_count(E + 1, D) */
	int norm_topk;
	int bf16; /* policy bf16: round what is stored */
};

struct plumb_moe_gate_up_launch {
	const float *x;                             /* (D) */
	const int32_t *expert;                      /* (A) */
	struct plumb_matrix_bank gate, up;          /* (E) of (F, D) */
	struct plumb_matrix shared_gate, shared_up; /* (Fs, D) */
	float *hidden;                              /* (A, F) */
	float *shared_hidden;                       /* (Fs) */
	int64_t cols;                               /* D */
	int64_t inner;                              /* F */
	int64_t shared_inner;                       /* Fs */
	int32_t experts;                            /* E */
	int32_t chosen;                             /* A */
	int pieces;                                 /* plumb_split_count(2*(A*F + Fs), D) */
	int bf16;
	int early; /* the launch before is moe_router: x is older, and is read before that has ended */
};

struct plumb_moe_down_launch {
	const float *hidden;             /* (A, F) */
	const float *shared_hidden;      /* (Fs) */
	const int32_t *expert;           /* (A) */
	const float *weight;             /* (A) */
	const float *shared_weight;      /* (1) */
	struct plumb_matrix_bank down;   /* (E) of (D, F) */
	struct plumb_matrix shared_down; /* (D, Fs) */
	float *y;                        /* (D) */
	float *routed;                   /* (D) or NULL */
	float *shared;                   /* (D) or NULL */
	int64_t rows;                    /* D */
	int64_t inner;                   /* F */
	int64_t shared_inner;            /* Fs */
	int32_t experts;                 /* E */
	int32_t chosen;                  /* A */
	int pieces;                      /* plumb_split_count(D*(A+1), F) */
	int shared_pieces;               /* plumb_split_count(D*(A+1), Fs) */
	int bf16;
	int early; /* the launch before is moe_gate_up: expert, weight and shared_weight are older, and are read before that
	              has ended, as are the weights that they name */
};

PLUMB_DECLARE_LAUNCHER(moe_router, const struct plumb_moe_router_launch *launch, void *stream);
PLUMB_DECLARE_LAUNCHER(moe_gate_up, const struct plumb_moe_gate_up_launch *launch, void *stream);
PLUMB_DECLARE_LAUNCHER(moe_down, const struct plumb_moe_down_launch *launch, void *stream);

#endif
