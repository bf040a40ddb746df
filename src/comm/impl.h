/* SPDX-License-Identifier: Apache-2.0 */
/* impl.h: inside the communicator. Who owns what:
 *
 *   world     one per rank: transport, board, settings, the engine that moves operations on
 *   comm      one per rank and group: a ring of operations; the rank's thread submits, the engine completes
 *   op        one operation: descriptor, buffers, program, where it stands
 *
 * The rank's thread writes ring slots beyond `submitted`; the engine (the same thread when progress is inline, else the
 * world's own) reads slots up to `submitted` and publishes `done`. Nothing else is shared between the two.
 * Includes: rooms below, this room. Not for other rooms.
 */
#ifndef TUTTI_COMM_IMPL_H
#define TUTTI_COMM_IMPL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/board.h"
#include "comm/fold.h"
#include "comm/meet.h"
#include "comm/moves.h"
#include "comm/table.h"

#define COMM_RING 256 /* operations in flight per communicator; one more makes the caller wait */
#define WORLD_COMMS 128

struct op;
struct comm;
struct world;

/* A rank that waits looks at the clock every fraction of a millisecond. Where it finds that much more time has passed,
 * it was itself kept from running: stopped (Ctrl-Z, a job that the cluster suspends, a machine that stands still),
 * often together with those it waits for. Such time does not count as waiting. */
#define AWAY_S 0.25
struct away {
    double last_s, lost_s; /* the last look, 0: none yet; found so far */
};
static inline void away_look(struct away *a, double now)
{
    if (a->last_s > 0 && now - a->last_s > AWAY_S) a->lost_s += now - a->last_s - AWAY_S;
    a->last_s = now;
}

/* One message on its way. */
struct request {
    bool send, posted, done;
    bool sum; /* the checksum of the request before it */
    int peer; /* rank in the communicator */
    void *p;
    size_t bytes;
    int64_t number;  /* local: of this channel and direction */
    uint64_t handle; /* mpi: the library's */
    enum dtype dtype;
    const struct desc *desc;
};

struct transport_ops {
    const char *name;
    bool counts_only;
    size_t max_message; /* bytes; longer ones are split */
    bool own_collectives;
    /* Sets c->group and c->meet for the world ranks in c->world_rank. Collective(c). */
    int (*join)(struct comm *c, struct err *e);
    void (*leave)(struct comm *c);
    /* Starts what can be started; test says whether it is complete. A failure is reported with world_fail. */
    void (*start)(struct comm *c, struct request *r);
    bool (*test)(struct comm *c, struct request *r);
    /* Runs an operation of an algorithm that is `shared` in the memory of c->meet: true when it is finished. */
    bool (*shared_may)(const struct comm *c);
    bool (*prepare)(struct comm *c, struct op *o); /* before meeting; NULL: nothing to prepare */
    bool (*shared)(struct comm *c, struct op *o);
    bool (*behind)(struct comm *c, int rank); /* a rank of a shared operation holds up this one; NULL: cannot be */
    /* Compares descriptors of a group that shares no memory, where the config asks: true when done. */
    bool (*compare)(struct comm *c, struct op *o);
    /* Where ranks cannot look at each other's row: asks all of c what they are in, waits seconds for answers; and
     * answers such questions, on a rank that waits. NULL: rows are always visible. */
    void (*roll)(struct comm *c, struct desc *of, bool *here);
    void (*answer)(struct world *w);
    /* The transport's own collectives (MOVE_NATIVE). */
    void (*native_start)(struct comm *c, struct op *o);
    bool (*native_test)(struct comm *c, struct op *o);
    void (*abort)(struct world *w, const struct err *why);
    /* After a failure, before buffers are given up: no message of this rank is under way any more. NULL: none is. */
    void (*quiet)(struct world *w);
    void (*die)(struct world *w);   /* config.dies; NULL: a thread, which only stops taking part */
    void (*close)(struct world *w); /* the rank leaves the world */
};

/* How an operation between processes of a host goes: known after the meeting, the same on all ranks. */
enum op_way { WAY_OPEN, WAY_ONE_PASS, WAY_STAGED };

enum op_stage { OP_QUEUED, OP_COMPARE, OP_ENTER, OP_FULL, OP_SHARED, OP_RUN, OP_LINK };
struct op {
    atomic_llong done; /* the last ticket of this slot that is complete */
    struct desc desc;
    struct coll coll;
    const void *in;
    void *out;
    int64_t *pieces; /* in_at, out_at, even: 3 * (size + 1) */
    const struct algorithm *algorithm;
    struct moves moves;
    struct comm_p2p *list; /* exchange */
    int64_t *number;       /* [list_room] exchange: which message between these two ranks */
    int n_list, list_room;
    enum op_stage stage;
    uint64_t seat_in, seat_out; /* what the seat says of the buffers */
    bool named;                 /* host.c: by names */
    enum op_way way;
    int64_t meet;                  /* number among the operations that meet */
    int seen;                      /* meeting: ranks that have arrived, counted from 0 */
    int tries;                     /* shared: how often it was asked to go on */
    int64_t record;                /* on the board */
    double begun_s, begun_away_s;  /* the clock, and the world's away_s then */
    double found_s;                /* how long it had waited when that was found too long; 0: it was not */
    double left_s;                 /* since when a rank that it waits for is known to have left; 0: none has */
    double link_s, met_s, ready_s; /* time on the pretended link, since when it may run, when it is over */
    double through_s;              /* when the bytes were through without it */
    double asked_s, over_s;        /* watched: when the rank called, when it was done; 0: not watched */
    int64_t sent;                  /* watched: bytes that this rank sends for it */
    int pc;                        /* next step */
    struct request *req;
    int n_req, req_room;
    uint64_t *sums; /* [sums_room] checksums on their way, where messages carry any */
    int n_sums, sums_room;
    double timeout_s;
    bool may_block;  /* native: every rank has come, and none has anything else open */
    int64_t at_work; /* shared and native operations: grows as they get on */
    uint64_t native; /* mpi: the library's handle */
    uint64_t side;   /* what the rank's stream calls it (beside.c), of this ticket; 0: nothing */
    int64_t side_ticket;
    uint64_t began; /* the same, kept after it was waited for */
    bool side_exchange;
};

/* What a rank brings to an operation in one pass, as this process sees it. */
struct meeting_part {
    char *in, *out;
    const int64_t *in_at, *out_at; /* all_to_all */
};

/* counting.c: the operations of a rank that only counts, each planned once however often it is asked for. No padding:
 * keys are hashed and compared as bytes. */
struct tally_key {
    int64_t n, in_each, out_each;
    uint64_t in, out; /* hashes of counts or messages, 0: none */
    const struct algorithm *algorithm;
    int32_t op, red, dtype, root;
    char what[DESC_WHAT];
};
struct tally_keys { /* by hash; a key's number is the order of first appearance */
    struct tally_key *key;
    int n, room, *bucket, n_buckets;
};
struct tally_plan { /* of one such operation */
    struct comm_traffic traffic;
    double seconds, link_s;
    int row;
};
struct counted_rows {
    struct tally_keys asked, told; /* operations; rows, which leave out what a reader does not see */
    struct tally_plan *plan;       /* [asked.room] */
    struct comm_tally *row;        /* [told.room] */
};

struct comm {
    uint64_t last_side; /* of the last collective (beside.c), 0: it was waited for */
    struct world *w;
    int rank, size;
    int *world_rank; /* [size] */
    int *host;       /* [size] numbered from 0 by first appearance */
    char name[DESC_GROUP];
    const struct algorithm *asked;      /* by name, or NULL */
    struct meet *meet;                  /* or NULL */
    void *group;                        /* the transport's */
    const struct device *dev;           /* comm_on, borrowed: whose memory it moves; NULL: the hosts' */
    int64_t called;                     /* the last ticket: the engine has those up to `submitted` */
    int64_t n_collectives, n_exchanges; /* enqueued */
    int64_t *passed;                    /* [2][size] messages enqueued to and from each rank */
    int64_t told;                       /* watched: tickets up to this one are told */
    size_t stage_bytes;                 /* staged.c */
    int64_t rounds;                     /* engine: through the stages so far */
    struct comm_traffic traffic[COMM_OP_N];
    struct comm_times times; /* the rank's own thread */
    atomic_llong link_ns;    /* engine: operations spent so long on nothing but the pretended link */
    atomic_llong submitted;
    int64_t open; /* engine: the first ticket that is not complete */
    char *tmp;    /* engine: TMP of the collective that runs */
    size_t tmp_bytes;
    struct counted_rows tally; /* counts only */
    struct moves sketch;       /* for predictions */
    struct meeting_part *part; /* [size], engine: the operation that runs in one pass */
    int64_t *pieces;           /* [2][size][2][size + 1] that all ranks see: where pieces of all_to_all begin */
    atomic_llong one_pass;     /* operations that ran so */
    const void **src;          /* [size], engine: the sources of a fold */
    void **dst;                /* [size] */
    bool *late;                /* [size of the world], stalls.c */
    bool *fate;                /* [size], stalls.c: answered a roll call */
    struct desc *heard;        /* [size], stalls.c: with this */
    struct op ring[COMM_RING];
};

struct world {
    const struct transport_ops *ops;
    void *shared; /* the transport's */
    struct board *board;
    int row;     /* of this rank on the board */
    int *row_of; /* [size] of every rank, -1: on another host; NULL: rows are ranks */
    int rank, size;
    int *host;             /* [size] */
    struct stream *stream; /* of this rank, that computes on what is sent; NULL: none */
    int sharers;           /* of this rank's cores, itself included */
    struct comm_config cfg;
    char *dump_dir;
    const struct algorithm *asked; /* config.algorithm, or NULL */
    struct table table;            /* of config.table */
    const struct fold_table *folds;
    struct comm_watch watch;
    atomic_bool watched;
    struct blocks *blocks; /* memory that processes of this host see in each other; NULL: of threads, or one process */
    bool one_thread;       /* the transport allows no second thread */
    bool died;             /* config.dies said so: of this rank */
    bool quieted;          /* ops->quiet is done */
    double looked_s;       /* the rank's thread: when it last asked who is late */
    double away_s, back_s, gone_s; /* who asks: not running for so long in all; since when it is back, after how long */
    double patience_s;             /* comm_patience */
    double late_s, late_seen_s;    /* late_may: when this rank asked first, and last */
    bool asks_late;                /* it is the one that asks config.late */
    double waited_s;               /* the rank's own thread, in waits for any communicator */
    double link_free_s;            /* engine: when the pretended link has sent what it was given */
    bool spin;                     /* the ranks that share this one's cores have one each */
    pthread_mutex_t comms_lock;    /* guards comms, n_comms; held during a poll */
    struct comm *comms[WORLD_COMMS];
    int n_comms;
    /* The thread of COMM_THREAD. */
    pthread_t thread;
    pthread_mutex_t lock; /* guards quit, call and the two conditions' sleepers */
    pthread_cond_t wake, woken;
    bool quit;
    void (*call)(void *);
    void *call_arg;
    atomic_int asleep, waiting; /* the thread; the rank */
    atomic_llong pending;       /* operations submitted and not complete */
};

/* world.c; sharers: ranks of this host that may use one of the cores that this one may use, itself included; 0: all of
 * the host. */
struct world *world_new(const struct transport_ops *ops, void *shared, struct board *board, int rank, int size,
                        const int *host, int sharers, const struct comm_config *cfg);
int world_comm(struct comm **out, struct world *w, const int *ranks, int n, const char *name, struct err *e);
void world_free(struct world *w);
/* A failure of this rank or seen by it: the first one of the world becomes the cause; dumps the recorder. */
void world_fail(struct world *w, const struct err *e);
void world_quiet(struct world *w); /* nobody touches other ranks' buffers any more; after a failure only */
/* How long an operation that begins now may wait; messages: an exchange. */
double world_timeout(const struct world *w, bool messages);
/* The board's row of a world rank, or -1: not visible from here. */
int world_row(const struct world *w, int rank);

/* progress.c */
int engine_start(struct world *w, struct err *e); /* the thread, where asked for */
void engine_stop(struct world *w);
/* Runs fn on the thread that may use the transport, and waits. */
void engine_call(struct world *w, void (*fn)(void *), void *arg);
void engine_submit(struct comm *c, int64_t ticket); /* its operation is pending already */
void engine_wait(struct comm *c, int64_t ticket);
bool engine_poll(struct world *w); /* true: something moved */
void engine_past(struct world *w); /* after a failure: the world's thread is in the middle of no operation any more */
/* The rank's thread waits for others: says so on the board and asks who is late, now and then. */
void engine_look(struct world *w);
static inline bool op_done(struct comm *c, int64_t ticket)
{
    return atomic_load_explicit(&c->ring[ticket % COMM_RING].done, memory_order_acquire) >= ticket;
}

/* execute.c: one operation, as far as it can go now; true when it is complete. */
bool op_advance(struct comm *c, struct op *o);

/* watch.c: tells of operations up to ticket `last` that are over; for the rank's thread, where the world is watched. */
void watch_tell(struct comm *c, int64_t last);

/* stalls.c: looks for operations that wait too long, or for a rank that has left; reports with world_fail. `away` is
 * what this rank's wait has seen since it last asked, and is taken. */
void late_look(struct world *w, struct away *away);
/* A rank that has waited too long for `what` may say so (config.late); false: ask again soon. Any thread of the rank.
 */
bool late_may(struct world *w, const char *what);

/* select.c */
/* Writes the program into p. */
const struct algorithm *select_algorithm(const struct comm *c, const struct coll *k, struct moves *p);
const struct algorithm *select_named(const char *name); /* NULL: there is none */

/* What is known of this operation; NULL: it is new, and tally_plan says it. Valid until the next tally_plan. */
const struct tally_plan *tally_find(struct comm *c, const struct tally_key *k);
const struct tally_plan *tally_plan(struct comm *c, const struct tally_key *k, const struct op *o,
                                    struct comm_traffic t, double link_s);
void tally_add(struct comm *c, const struct tally_plan *p); /* once more */
void tally_free(struct counted_rows *t);

/* comm.c: an operation of n elements in even pieces, on paper; *pieces is the caller's to free. */
void comm_sketch(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r, int64_t **pieces,
                 struct coll *k);
/* Bytes and messages of an operation that `a` runs by program p. */
struct comm_traffic comm_count(const struct comm *c, const struct algorithm *a, const struct moves *p,
                               const struct coll *k);
/* Messages between c's rank and that one carry checksums. */
static inline bool comm_checks(const struct comm *c, int peer)
{
    return c->w->cfg.checksum && c->host[peer] != c->host[c->rank];
}

/* meet_work.c: an operation in one pass over the buffers that c->part says. */
bool meet_work(struct comm *c, struct op *o);
/* all_to_all: copies the pieces to where all see them, before the meeting; afterwards fills in those of
 * c->part[rank]. */
size_t meet_pieces_bytes(int size);
void meet_lay_out(struct comm *c, struct op *o);
void meet_laid_out(struct comm *c, const struct op *o, int rank);

/* ---- beside.c: an operation and the rank's stream ---- */
/* True: the stream's device submits it when it comes to it. */
bool beside_begin(struct comm *c, struct op *o, int64_t ticket, const void *in, void *out, const struct comm_p2p *list,
                  int n_list);
/* The stream is put behind operations of c without the host's waiting. */
bool beside_joins(const struct comm *c);
/* Until it is submitted. */
void beside_reach(struct comm *c, int64_t ticket);
void beside_counted(struct comm *c, struct op *o, int64_t ticket, enum comm_op op, const char *what, int64_t bytes);
void beside_end(struct comm *c, struct op *o);
void beside_waited(struct comm *c, int64_t ticket);

#endif
