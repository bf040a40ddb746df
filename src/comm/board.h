/* SPDX-License-Identifier: Apache-2.0 */
/* board.h: what every rank is doing, readable by the others: descriptors, the flight recorder, the first cause.
 *
 * One board per world in memory that its ranks share (one process, or the ranks of one host through a shared window).
 * A rank writes its own row; anybody who reports trouble reads all of them. Memory is plain bytes without pointers, so
 * that processes can share it.
 *
 * Invariants
 *   1. A row is read and written under its lock, a spin lock held for the length of a copy.
 *   2. The cause is set once: the first failure wins.
 * Includes: comm.h. Order: Local; any thread.
 */
#ifndef TUTTI_COMM_BOARD_H
#define TUTTI_COMM_BOARD_H

#include <stdatomic.h>

#include "comm/comm.h"

#define DESC_WHAT 48
#define DESC_GROUP 24
#define DESC_NOBODY (-1)
#define DESC_SEVERAL (-2)
#define BOARD_RECORDS 256

/* What a rank asked for: what ranks compare, and what errors print. */
struct desc {
    int64_t seq;     /* among the collectives of the communicator, or its exchanges, from 1 */
    int64_t n;       /* elements */
    uint64_t counts; /* hash of uneven counts, 0 for even ones */
    int16_t op, red, dtype, algorithm;
    int32_t root;
    int32_t to, from;       /* exchange: world ranks, or one of the two below */
    int64_t sent, received; /* exchange: bytes */
    char group[DESC_GROUP];
    char what[DESC_WHAT];
};
/* "all_reduce #12 'wq gradient' (sum 1024 f32) on dp_shard", "exchange #3 'push' (64 bytes to rank 3) on post"; out
 * holds 256 chars. */
#define DESC_TEXT 256
char *desc_print(char out[DESC_TEXT], const struct desc *d);
/* NULL, or what makes the two different: "operation", "count", "dtype", "root", ... */
const char *desc_differ(const struct desc *a, const struct desc *b);
/* ERR_IO naming both world ranks where they differ. */
int desc_compare(const struct desc *a, int rank_a, const struct desc *b, int rank_b, struct err *e);

enum record_state { RECORD_QUEUED, RECORD_RUNNING, RECORD_DONE };
struct flight_record {
    struct desc desc;
    int32_t state;
    double queued_s, started_s, done_s; /* clock_now_s */
};

enum rank_state { RANK_HERE, RANK_LEFT, RANK_DIED };
struct board_row {
    _Alignas(64) atomic_int lock;
    atomic_int busy;      /* this rank is touching other ranks' buffers */
    int32_t state, rank;  /* of the world */
    int64_t pid;          /* 0: not a process of its own */
    uint64_t pid_space;   /* processes of equal spaces see each other's pids */
    atomic_llong beat_ns; /* when this rank last looked around while it waited for others */
    int64_t n;            /* records ever made */
    struct flight_record record[BOARD_RECORDS];
};

struct board {
    atomic_int failed; /* the cause is there */
    atomic_int told;   /* mpi: somebody prints it, has printed it */
    atomic_int kept;   /* and the recorder is on disk, where that was asked for */
    atomic_int late;   /* config.late is asked by some rank, has answered yes (stalls.c) */
    _Alignas(64) atomic_int lock;
    int32_t n_rows, cause_rank;
    double failed_s; /* clock_now_s() */
    struct err cause;
    struct board_row row[];
};
size_t board_bytes(int n_rows);
void board_init(struct board *b, int n_rows);

int64_t board_queue(struct board *b, int row, const struct desc *d); /* returns the record's number */
void board_mark(struct board *b, int row, int64_t record, enum record_state s);
void board_enter(struct board *b, int row, int rank); /* this process is that rank */
void board_leave(struct board *b, int row);
void board_die(struct board *b, int row); /* a thread that is no rank any more */
bool board_left(struct board *b, int row);
bool board_died(struct board *b, int row, int64_t *pid); /* its process is no more, or it is a dead thread */
int64_t board_process(struct board *b, int row);         /* 0: none that is visible from here */
int board_rank(struct board *b, int row);                /* of the world */
/* The rank waits for others and looks around while it does; a rank that computes, hangs or is stopped has no fresh
 * beat. */
void board_beat(struct board *b, int row);
bool board_waits(struct board *b, int row, double within_s);
/* "last finished all_reduce #11 'x' 0.61 s ago; has begun nothing since"; out holds 700 chars. */
#define BOARD_TEXT COMM_DOING
char *board_doing(struct board *b, int row, char out[BOARD_TEXT]);
/* The newest operation that the row is in, of this group if there is one; desc->seq 0: none. */
void board_running(struct board *b, int row, const char *group, struct desc *out);
/* The recorder for people: what every rank is doing, then the last operations of each. */
void board_print(struct board *b, struct str *out);

/* The first call wins and gives true; e's text becomes everybody's. rank: who failed, -1 for a finding about
 * several. */
bool board_fail(struct board *b, int rank, const struct err *e);
static inline bool board_failed(struct board *b) { return atomic_load(&b->failed) != 0; }
void board_cause(struct board *b, struct err *e, int *rank);

#endif
