/* SPDX-License-Identifier: Apache-2.0 */
/* crew_impl.h: inside a crew, for crew.c (seats), crew_local.c (threads) and mpi_crew.c (processes). */
#ifndef TUTTI_COMM_CREW_IMPL_H
#define TUTTI_COMM_CREW_IMPL_H

#include "base/cores.h"
#include "comm/crew.h"
#include "comm/impl.h"

#define CREW_HOST 128
#define CREW_CAUSE sizeof(((struct err *)0)->text)

/* What is known of a member from the beginning; plain bytes, which processes send each other. */
struct crew_card {
    char host[CREW_HOST];
    uint64_t machine; /* equal: processes that see each other's pids, hence memory */
    int64_t pid;
    uint64_t core[CORES_MOST / 64];
};

struct crew_ops {
    int (*world)(struct crew *c, const struct comm_config *cfg, struct err *e); /* c->world, for the first at_work */
    void (*wait)(struct crew *c);
    /* All that are alive come. *flags: what every one of them brought (and). gone[member]: is no more. c->cause: what
     * this one knows ("" nothing); then what the first of all knows that knows anything. */
    int (*over)(struct crew *c, int *flags, bool *gone, struct err *e);
    void (*drop)(struct crew *c);
};

struct crew {
    const struct crew_ops *ops;
    void *shared;
    int self, began;        /* this member; members in all */
    struct crew_card *card; /* [began] */
    int n, *seat;           /* [began]: members by seat, of which n are alive */
    int at_work, epoch;
    struct comm *world; /* of this epoch; NULL: a spare */
    bool *gone;         /* [began] */
    int *lost, n_lost;  /* [began] in the last epoch */
    char cause[CREW_CAUSE];
};

struct crew *crew_new(const struct crew_ops *ops, void *shared, int self, int n);
void crew_free(struct crew *c);
void crew_card_fill(struct crew_card *card);
/* Members that are gone give up their seats (crew.h). */
void crew_reseat(struct crew *c);

#endif
