/* SPDX-License-Identifier: Apache-2.0 */
/* site.h: where a rank works: its place among the others, its device, its engine, and its part of a parameter server
 * where there is one. Training, trials, benchmarks, plans and explanations all open it here.
 *
 *   SITE_WORKS   a device that computes; the world is the caller's, NULL: alone
 *   SITE_COUNTS  the null device: rank `rank` of `n` that are not there; a world that counts is made and freed with the
 *                site
 *   SITE_PAPER   the same as far as the engine's paper goes (engine_new_paper): it says who holds what, and cannot step
 *
 * Floor 9. Order: SITE_WORKS Collective(world), the others Local.
 */
#ifndef TUTTI_SITE_SITE_H
#define TUTTI_SITE_SITE_H

#include "decode/rollout.h"
#include "site/param_server.h"

enum site_kind { SITE_WORKS, SITE_COUNTS, SITE_PAPER };
struct site_config {
    const struct config *config; /* resolved */
    enum site_kind kind;
    struct comm *world;             /* SITE_WORKS: borrowed */
    int rank, n;                    /* else: which rank of how many */
    const struct comm_config *link; /* else: of the world that counts; NULL: the usual */
    /* With parallel.servers; its optimizer and learning rates are the config's. NULL: none is made. */
    const struct param_server_config *serve;
};
struct site {
    struct comm *counted; /* the world that was made here */
    struct ranks ranks;
    struct device *dev;
    struct engine *engine;
    struct param_server *serve; /* NULL: none */
    struct rollout *rollout;    /* what writes answers (train.objective: grpo); NULL: nothing does */
    size_t kept;                /* of checkpoints in memory, on dev's ledger */
    double tier_put, tier_get;  /* bytes a second, measured when its space was reserved; 0: there is none */
};

/* All of it, or an error on every rank of the world and nothing to close. */
int site_open(struct site *s, const struct site_config *x, struct err *e);
/* Takes what there is, whole or opened in part. */
void site_close(struct site *s);

/* Its steps, one after the other, for who has something to do between them and agrees itself; after an error of one
 * site_close. */
int site_join(struct site *s, const struct site_config *x, struct err *e);  /* ranks */
int site_build(struct site *s, const struct site_config *x, struct err *e); /* device and engine */
int site_serve(struct site *s, const struct site_config *x, struct err *e);

#endif
