/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what a config will cost, from the program that trains: the engine is built and stepped on the null device,
 * and its ledger, its FLOPs and its schedule are read off. Nothing is estimated twice: predicted bytes are the bytes
 * that training allocates, exactly.
 * Floor 6; may use run/. Order: Local.
 */
#ifndef TUTTI_PLAN_PLAN_H
#define TUTTI_PLAN_PLAN_H

#include "run/config.h"
#include "run/ranks.h"

struct plan_rank {
    int rank;            /* one of those that play this role */
    int n_alike;         /* how many play it */
    struct par at;       /* its place on the mesh */
    double flops;        /* of one step */
    int64_t serve_bytes; /* sent in one step between workers and a parameter server; asynchronous: in one update of each worker */
    size_t bytes[MEM_N]; /* at the peak */
    size_t peak_bytes;
    int64_t act_bytes_microbatch; /* what one microbatch keeps from forward to backward */
    struct comm_traffic comm[AXIS_N]; /* sent in one step */
};

struct plan {
    int64_t params;
    double flops_per_step;  /* what is computed, over all ranks: recomputation counts */
    double flops_per_token; /* without recomputation */
    int64_t tokens_per_step, microbatches; /* of the global batch; of one rank */
    int n_ranks;
    struct plan_rank *role; /* each distinct role, the one that needs most first */
    int n_roles;
};

/* Roles: every stage of the pipeline; the first and the last rank along the data axes, whose pieces differ by a row; along tp
 * every rank where its shares are uneven, else one; servers whose shards differ. */
int plan_make(struct plan *p, const struct config *c, struct err *e);
/* The same; says before each role how many of how many are done. */
struct plan_watch {
    void (*say)(void *ctx, int done, int of);
    void *ctx;
};
int plan_make_watched(struct plan *p, const struct config *c, const struct plan_watch *w, struct err *e);
void plan_free(struct plan *p);
void plan_print(const struct plan *p, const struct config *c, struct str *out);
void plan_json(const struct plan *p, struct str *out);

#endif
