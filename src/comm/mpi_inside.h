/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_inside.h: what the files that know MPI have in common: mpi.c (a world of processes), mpi_groups.c, mpi_native.c,
 * and mpi_crew.c (worlds that follow each other). */
#ifndef TUTTI_COMM_MPI_INSIDE_H
#define TUTTI_COMM_MPI_INSIDE_H

#include <mpi.h>
#include <string.h>

#include "comm/impl.h"

/* What the world holds. */
struct launch {
    MPI_Comm world, host; /* all; the ranks of this host */
    MPI_Win board;
    /* Of a crew. Then there is no library's communicator but `world`, over which all groups' messages go, so that one
     * call revokes all that anybody waits for; no window, for the library's do not outlive a rank; no collective of the
     * library's once the world is there. */
    bool lasting;
    int led; /* groups of which this rank is the first */
    void *memory;
    size_t memory_bytes; /* of the board and the blocks' tables */
};

/* What a group holds. */
struct mpi_ranks {
    MPI_Comm comm;
    MPI_Win window; /* MPI_WIN_NULL: no common memory, or that of a crew: */
    void *memory;
    size_t memory_bytes;
    int memory_fd;      /* of who made it; -1 */
    int id;             /* of its messages among all of the world's; a crew's */
    int *counts;        /* [4 * size] of the collective that runs */
    struct desc *descs; /* [size] compared by request */
    bool copy_back;     /* the result is in c->tmp */
};

/* Of messages: no two kinds ever meet. */
enum {
    TAG = 7,
    TAG_ROLL,
    TAG_ANSWER,
    TAG_CARD,
    TAG_GO,
    TAG_COLLECTIVE = 16,
    TAG_TURNS = 1024, /* below 32767, MPI's least bound */
    /* Of a crew's world, whose library has more: the messages of each of its groups. */
    GROUP_TURNS = 128,
    TAGS_OF_GROUP = TAG_COLLECTIVE + GROUP_TURNS * COMM_OP_N,
    TAG_GROUPS = TAG_COLLECTIVE + TAG_TURNS * COMM_OP_N
};

_Static_assert(sizeof(MPI_Request) <= sizeof(uint64_t), "a request fits in the handle of struct request");

static inline uint64_t handle_of(MPI_Request r)
{
    uint64_t h = 0;
    memcpy(&h, &r, sizeof r);
    return h;
}

static inline MPI_Request request_of(uint64_t h)
{
    MPI_Request r;
    memcpy(&r, &h, sizeof r);
    return r;
}

extern const struct transport_ops mpi_lasting;

/* 0, or ERR_IO with the library's text. */
int mpi_failed(int rc, struct err *e, const char *what);
int mpi_initialise(const struct comm_config *cfg, bool *one_thread, struct err *e);
void mpi_stay(void); /* mpi_stay.c: once, when MPI has begun */

/* A failure inside an operation: the world's. */
void mpi_fail(struct comm *c, int rc, const struct desc *d, const char *what);
/* Ranks that wait for something answer whoever asks for their group: with what they are in there, or elsewhere. */
void mpi_answer(struct world *w);

/* mpi_native.c */
void mpi_native_start(struct comm *c, struct op *o);
bool mpi_native_test(struct comm *c, struct op *o);

/* mpi_groups.c */
int mpi_join(struct comm *c, struct err *e);
void mpi_leave(struct comm *c);
int mpi_lasting_join(struct comm *c, struct err *e); /* of a crew's world */
void mpi_lasting_leave(struct comm *c);
/* Memory that the ranks of a communicator of one host see, page-aligned. Collective(comm). */
int mpi_window_new(MPI_Comm comm, size_t bytes, MPI_Win *win, void **p, struct err *e);

/* mpi_crew.c, also where the library does not go on without its dead (then nothing is ever lost). */
/* rc says that a rank is gone, or that others found one gone: ERR_LOST, else OK. world_rank: of the peer, -1: nobody
 * knows. */
int mpi_lost(const struct comm *c, int rc, int world_rank, const char *doing, struct err *e);
/* The same without a call that failed: somebody has revoked the world, or the library knows of a dead rank of it. */
int mpi_broken(const struct world *w, struct err *e);
bool mpi_revoked(const struct world *w);
/* Whoever waits for messages of this world comes back. */
void mpi_revoke(struct world *w);

#endif
