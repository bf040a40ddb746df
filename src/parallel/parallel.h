/* SPDX-License-Identifier: Apache-2.0 */
/* parallel.h: collectives as operations on the tape. A layer says where the type of a tensor changes on an axis; the
 * change tells the collective, its conjugate in backward, and, on an axis of size 1, that the memory is the same.
 *
 *   call           forward      collective        backward     (conjugate)
 *   par_enter      I -> R       none              P -> I       all-reduce       ("f" of Megatron-LM)
 *   par_reduce     P -> I       all-reduce        I -> R       none             ("g" of Megatron-LM)
 *   par_gather     S0 -> R      all-gather        P -> S0      reduce-scatter   ("g" of sequence parallelism)
 *   par_scatter    P -> S0      reduce-scatter    S0 -> R      all-gather       ("g-bar" of sequence parallelism)
 *   par_spread     I -> S0      none (a slice)    S0 -> I      all-gather
 *   par_collect    S0 -> I      all-gather        I -> S0      none (a slice)
 *
 * Rows are cut by region_split (tokens over cp by layout/sequence.h), so any number of rows over any number of ranks is
 * legal. Layers call these in every layout: the types are checked also where the axis has size 1, so a forgotten one is
 * an error on a single rank.
 * Sources: Shoeybi et al. 2019, section 3 (tensor parallelism); Korthikanti et al. 2022, section 4.2 (sequence
 * parallelism). Floors 0-3. Order: Collective over the axis when the program runs.
 */
#ifndef TUTTI_PARALLEL_PARALLEL_H
#define TUTTI_PARALLEL_PARALLEL_H

#include "layout/mesh.h"
#include "tape/tape.h"

/* Ranks along tp, cp or ep; ranks of cp that exchange heads. */
enum { PAR_MAX_RANKS = 4096, PAR_MAX_INNER = 1024 };

/* Ranks along each axis; this rank's coordinate. */
struct par {
    int size[AXIS_N];
    int rank[AXIS_N];
    int forget; /* 0, or the number (from 1) of a change of type to leave out: what tests of the type rules break */
    int context_inner;   /* cp: ranks that exchange heads, 0 or 1 none (context.h) */
    bool context_gather; /* cp: keys and values all at once instead of around a ring */
    bool sequence;       /* tokens are sharded over tp between the regions that tp splits (sequence parallelism) */
};
struct par par_single(void); /* one rank */
struct par par_at(const struct mesh *m, int rank);
/* The mesh of these sizes, and the rank on it; CHECKs that coordinates on both views are one rank's. */
struct mesh par_mesh(const struct par *p, int *rank);

tid par_enter(struct tape *t, const struct par *p, tid x, enum axis a);
tid par_reduce(struct tape *t, const struct par *p, tid x, enum axis a);
/* rows: of all ranks together. */
tid par_gather(struct tape *t, const struct par *p, tid x, enum axis a, int64_t rows);
tid par_scatter(struct tape *t, const struct par *p, tid x, enum axis a);
tid par_spread(struct tape *t, const struct par *p, tid x, enum axis a);
tid par_collect(struct tape *t, const struct par *p, tid x, enum axis a, int64_t rows);
/* par_collect over cp, of rows that are tokens: those of rank 0, then those of rank 1, ..., as layout/sequence.h shares
 * out `batch` sequences of `seq`. */
tid par_collect_tokens(struct tape *t, const struct par *p, tid x, int64_t batch, int64_t seq);

/* This rank's rows of integers that every rank has (ids, positions): a view, I or R -> S0. */
tid par_rows(struct tape *t, const struct par *p, tid x, enum axis a);

/* The rows of the stream that this rank has of pictures of `seq` places: its own along cp, and along tp where tokens
 * are sharded there. */
struct picture_rows par_picture_rows(const struct par *p, int64_t batch, int64_t seq);
/* Patches of pictures that every rank of the axes has (type I; R on cp without over_cp), of these rows (a.at): S0 where
 * an axis shares rows out. out: the patches in dtype `to`, the places, the kinds. */
void par_patches(struct tape *t, const struct par *p, tid pixels, struct patches_attrs a, enum dtype to, bool over_cp,
                 const char *name, tid out[3]);

/* Experts are cut over fewer ranks than tp has, or whole: so tp shares out the tokens that they see. */
static inline bool par_experts_apart(const struct par *p) { return p->size[AXIS_ETP] < p->size[AXIS_TP]; }
/* How many ranks are each sent a copy of an expert's tokens, because they share its columns. 1 where all of tp shares
 * them: its ranks have the same tokens already. */
static inline int par_expert_copies(const struct par *p) { return par_experts_apart(p) ? p->size[AXIS_ETP] : 1; }

/* This rank's share [*lo, *hi) of n things along an axis. */
struct axis_ranks par_ranks(const struct par *p, enum axis a); /* as a collective's attributes name them */
void par_share(const struct par *p, enum axis a, int64_t n, int64_t *lo, int64_t *hi);

#endif
