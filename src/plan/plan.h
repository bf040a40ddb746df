/* SPDX-License-Identifier: Apache-2.0 */
/* plan.h: what a config will cost, from the program that trains: the engine is built and stepped on the null device,
 * and its ledger, its FLOPs and its schedule are read off. Nothing is estimated twice: predicted bytes are the bytes
 * that training allocates, exactly.
 *
 * Ranks that play one role allocate the same bytes and compute the same; one of them is planned for all. Which they are
 * is found on paper (roles.c), printed by show.c.
 * Floor 11; may use run/. Order: Local.
 */
#ifndef TUTTI_PLAN_PLAN_H
#define TUTTI_PLAN_PLAN_H

#include "config/config.h"
#include "config/ranks.h"
#include "site/choose.h"

enum { PLAN_WHAT = 160 };

/* What a rank of the pipeline holds of the model. */
struct plan_stages {
    int n_layers, *layer; /* ascending, in the cuts' arena */
    bool embeds, heads;
};

struct plan_rank {
    int rank;            /* the one that was planned, the first of those that play this role */
    int n_alike, *alike; /* how many play it; which, ascending */
    bool server;         /* of a parameter server: it has no place on the mesh */
    bool about;          /* the others of `alike` differ from it by a few rows */
    int rows_more;       /* so many of its parameters have a row more than those of the last rank along the data axes */
    char what[PLAN_WHAT];   /* what makes it unlike others: "stage 1: layers 2-3, head; tp 0" */
    struct par at;          /* its place on the mesh */
    double flops;           /* of one step */
    double waits;           /* work that its offloaded bytes are waited for (site/choose.h) */
    double moved;           /* bytes that it puts away and brings back */
    double sent;            /* bytes of gradients and weights to ranks of dp_shard, by their table (site/choose.h) */
    double optimizer_flops; /* of products in an update (optim/muon.h), beside flops */
    double flops_token;     /* without recomputation, over the tokens that one pipeline takes in a step */
    int64_t serve_bytes; /* sent in one step between workers and a parameter server; asynchronous: in one update of each
                            worker */
    size_t bytes[MEM_N]; /* at the peak */
    size_t peak_bytes;
    int64_t act_bytes_microbatch;     /* what one microbatch keeps from forward to backward */
    struct comm_traffic comm[AXIS_N]; /* sent in one step */
};

struct plan {
    int64_t params;
    double flops_per_step;                 /* what is computed, over all ranks: recomputation counts, and passes before
                                              the step; documents are data: each sequence is one */
    double flops_per_token;                /* without recomputation */
    int64_t tokens_per_step, microbatches; /* of the global batch; of one rank */
    int n_ranks;
    struct plan_rank *role; /* each distinct role, the one that needs most first */
    int n_roles, room;
    struct schedule_stage_cost *stage; /* [n_stages] the most work of any rank on it (site/choose.h) */
    int n_stages;
};

/* Roles: every stage of the pipeline; along tp and cp every rank where its shares are uneven, else one; along the data
 * axes those whose pieces have a row more or less; servers whose shards differ. Within a role traffic may differ by
 * what position in a group decides (up to 1 %): it is that of the rank planned. */
int plan_make(struct plan *p, const struct config *c, struct err *e);
/* The same; says before each place in the pipeline, share of tp and server how many of how many are done. */
struct plan_watch {
    void (*say)(void *ctx, int done, int of);
    void *ctx;
};
int plan_make_watched(struct plan *p, const struct config *c, const struct plan_watch *w, struct err *e);
/* memory.recompute: auto (site/choose.h), by planning each candidate; else does nothing. */
int plan_choose(struct config *c, struct chosen *out, const struct plan_watch *w,
                struct err *e); /* out, w may be NULL */
void plan_print_chosen(const struct chosen *x, const struct config *c, struct str *out);
void plan_free(struct plan *p);
/* Lines of at most 100 columns. */
void plan_print(const struct plan *p, const struct config *c, struct str *out);
void plan_json(const struct plan *p, const struct config *c, const struct chosen *x, struct str *out);
/* "0-3, 8-11", "0-14:2" (every second); cut with how many there are when longer than `most` characters (0: never). */
/* Bytes that the rank sends in a step, to all. */
double plan_sent_bytes(const struct plan_rank *r);
void plan_ranks_text(const int *ranks, int n, int most, struct str *out);

/* ---- for roles.c ---- */

/* Rows that are shared out over n ranks leave a remainder: that many ranks, the first, have a row more. `at` lists the
 * distinct remainders of a rank's parameters, ascending, without 0; `count` how many parameters leave each. */
struct plan_bounds {
    int *at, *count, n;
};
struct plan_cuts {
    struct plan_bounds dense, expert; /* over shard and edp ranks */
    struct arena *arena;              /* the caller's */
    struct plan_stages stages;
};
/* Steps rank `rank` on the null device and reads its books into *r (and the counts of the whole into *p); cuts may be
 * NULL. */
int plan_rank(struct plan_rank *r, struct plan *p, const struct config *c, int rank, struct plan_cuts *cuts,
              struct err *e);

#endif
