/* SPDX-License-Identifier: Apache-2.0 */
/* mpi_inside.h: what mpi.c (a world of processes) and mpi_crew.c (worlds that follow each other) have in common. */
#ifndef TUTTI_COMM_MPI_INSIDE_H
#define TUTTI_COMM_MPI_INSIDE_H

#include <mpi.h>

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

extern const struct transport_ops mpi_lasting;

/* 0, or ERR_IO with the library's text. */
int mpi_failed(int rc, struct err *e, const char *what);
int mpi_initialise(const struct comm_config *cfg, bool *one_thread, struct err *e);

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
