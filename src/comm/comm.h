/* SPDX-License-Identifier: Apache-2.0 */
/* comm.h: ranks that work together. A communicator is a rank's membership in a group: transport x algorithm.
 *
 *   world       comm_world_local (ranks are threads of this process), comm_world_mpi (ranks come from a launcher),
 *               comm_world_null (one rank that only counts)
 *   group       comm_split: the ranks that differ along some axes of the mesh
 *   operation   enqueued, returns a ticket; comm_wait(c, ticket) orders what follows behind it
 *
 * Invariants
 *   1. Every rank of a communicator calls the same operations in the same order, with the same count, dtype, root.
 *      Collective operations of one communicator run in that order; different communicators run independently.
 *      comm_exchange starts in order and finishes in any order: a send that waits for its receiver holds up nobody.
 *   2. The buffers belong to the operation from the call until its ticket is done: nobody else writes them, or reads
 *      what it writes. comm_on says in whose memory they lie. Work that c's stream held at the time of the call comes
 *      before the operation; comm_wait puts later work of the stream after it. A cpu stream is the host itself, so
 *      there comm_wait blocks; on a device that begins operations itself (device.h, stream_begins) it does not: the
 *      host sees a result after stream_sync.
 *   3. The same bits on every run. Sums of floats run in fp32 (f64: in f64) in rank order with one rounding at the
 *      end, so they do not depend on the transport either; only an algorithm asked for by name, or
 *      config.any_order, may add in another order (and then rounds 16-bit types at every hop).
 *   4. Errors stick: after the first one operations do nothing, waits return at once, and comm_status says what
 *      happened, first cause first. Ask once a step. An error on one rank reaches all ranks of the world.
 *   5. Every byte and message that a rank sends to another is counted when the operation is enqueued, by algorithm,
 *      whatever the transport: a null communicator counts exactly what a real one does.
 *
 * A world and its groups belong to one thread (the rank). Floors 0-1 and device. Order: as stated; Collective(c) means
 * that every rank of c calls.
 */
#ifndef TUTTI_COMM_COMM_H
#define TUTTI_COMM_COMM_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "layout/dtype.h"
#include "layout/mesh.h"

enum comm_op {
    COMM_BROADCAST,
    COMM_REDUCE,
    COMM_ALL_REDUCE,
    COMM_REDUCE_SCATTER,
    COMM_ALL_GATHER,
    COMM_ALL_TO_ALL,
    COMM_EXCHANGE,
    COMM_BARRIER,
    COMM_OP_N
};
const char *comm_op_name(enum comm_op op); /* "all_reduce" */

enum comm_red { COMM_SUM, COMM_MAX, COMM_MIN, COMM_AVG, COMM_RED_N };
const char *comm_red_name(enum comm_red r);

/* Who moves the data: the calling rank whenever it is inside comm (fewest threads; a rank that waits does the share of
 * those that do not), or a thread of its own (backward goes on meanwhile, where cores allow). */
enum comm_progress { COMM_INLINE, COMM_THREAD };

struct comm_config {
    double timeout_s;            /* a rank later than this is named and the job ends; 0: 600 */
    double timeout_p2p_s;        /* the same for comm_exchange; 0: timeout_s */
    enum comm_progress progress; /* default inline */
    bool check;                  /* compare descriptors before data moves where that is not free (mpi across hosts);
                                    within a host it is always done */
    bool checksum;               /* messages between hosts travel with the XXH64 of their bytes, which the receiver
                                    compares; the library's own collectives are not chosen between hosts then */
    bool any_order;              /* allow algorithms that add in another order than the ranks' */
    const char *algorithm;       /* NULL: by the table; a name: wherever that algorithm has the operation */
    const char *table;           /* text of comm/table.h; NULL: the one this program was measured with */
    const char *dump_dir;        /* the flight recorder goes here when something fails; NULL: nowhere */
    /* The first rank of a host that has waited too long asks this again and again before it names who is late. False:
     * something is still being written about it (for five seconds at most; meanwhile the rank goes on to answer others,
     * and a rank that comes after all is forgiven). Must not wait. NULL: nobody asks. Any rank's thread. */
    bool (*late)(void *ctx, const char *what);
    void *late_ctx;
    double link_GBps;      /* pretend that what a rank sends passes a link this fast: an operation is done no
                              earlier, without using a core. For measuring overlap on one machine; 0: none */
    double link_latency_s; /* and that each operation waits so long in it */
    bool staged;           /* processes of a host copy through stages even where they could see each other's
                              buffers. For tests and for measuring */
    /* A drill: shown every message from another host before it is compared, on the rank that received it, and may
     * change it. NULL: nothing is. Called by whoever moves bytes, of several ranks at once. */
    void (*tamper)(void *ctx, int rank, int from, const char *what, void *p, size_t bytes);
    void *tamper_ctx;
    int ranks_per_host; /* null and tests: pretend so many ranks share a host; 0: as it is */
    /* For tests: asked before each operation of a rank; true: the rank dies there and then. A process is killed, a
     * thread takes part in nothing any more. NULL: nobody dies. */
    bool (*dies)(void *ctx, int world_rank, enum comm_op op, const char *what);
    void *dies_ctx;
};

struct comm;
struct device;

/* ERR_REQUEST naming what is unknown in it. Worlds check their config themselves. NULL is fine. Local. */
int comm_config_check(const struct comm_config *cfg, struct err *e);

/* ---- worlds ---------------------------------------------------------------------------------------------- */

/* out[0..n): one communicator per rank, each for one thread. Local. */
int comm_world_local(struct comm **out, int n, const struct comm_config *cfg, struct err *e);
/* Runs fn on n threads, rank i with its own world, waits for all and frees the worlds. fn's negative code takes the
 * others down. Returns the first cause (0: all went well). Local. */
typedef int comm_rank_fn(struct comm *world, void *arg, struct err *e);
int comm_run_local(int n, const struct comm_config *cfg, comm_rank_fn *fn, void *arg, struct err *e);

/* A launcher (mpirun, srun) started this process, by its environment. Cheap: MPI is not touched. Local. */
bool comm_launched(void);
/* Tasks of a batch job whose script started this process without srun, so that it is alone where several were asked
 * for; 0: no such thing. By the environment. Local. */
int comm_tasks_idle(void);
/* Tasks that srun started, of which the world of this process knows none but itself: the library was not told of them.
 * 0: all is well. Local. */
int comm_tasks_apart(const struct comm *world);
const char *comm_mpi_name(void); /* "Open MPI 4.1.4", or NULL: not built in */
/* What the library that was found at run time says of itself, such as "Open MPI v4.1.4"; "" where none is built in. */
void comm_mpi_library(char out[64]);
/* The world of the launcher. Initialises MPI; ERR_REQUEST where no launcher is or MPI is not built in. Freeing the
 * world finalises MPI. Collective(all processes). */
int comm_world_mpi(struct comm **out, const struct comm_config *cfg, struct err *e);

/* Gives a world other settings, as long as no operation on it is open and no group was split from it: a launched
 * program learns from its world how many ranks there are, and reads its config then. ranks_per_host stays as it was.
 * ERR_REQUEST where a name in it is unknown, or the MPI library allows no communication thread. Collective(world): the
 * same settings on all ranks. */
int comm_configure(struct comm *world, const struct comm_config *cfg, struct err *e);

/* Rank `rank` of n that only counts: operations are done at once and touch nothing (pointers may be NULL). Local. */
int comm_world_null(struct comm **out, int rank, int n, const struct comm_config *cfg, struct err *e);

/* The group of the ranks that differ from this one along these axes, in mesh_group's order; named after them
 * ("dp_shard+cp"). Every member calls, in the same order among the groups they share; others need not. */
int comm_split(struct comm **out, struct comm *world, const struct mesh_axis *axes, int n_axes, struct err *e);
/* The same from a list of world ranks that contains this one; all members give the same list and name. Calling it
 * again with the same list gives another communicator with its own order. */
int comm_split_list(struct comm **out, struct comm *world, const int *ranks, int n, const char *name, struct err *e);

/* Waits for what is enqueued. Groups first, the world last. Collective(c). NULL is fine. */
void comm_free(struct comm *c);

/* Where the addresses of c's operations are. A communicator begins as the host's: for the few numbers that hosts tell
 * each other (losses, counts, what was agreed), which wait for no device and queue behind nothing large. From this call
 * on it is part of the data plane of d, and so for good: its addresses are d's memory. Both contracts are checked where
 * they can be: an address of an untouchable device faults, one of the null device is NULL, and the host's does neither.
 * Where d only counts and c's world does not, the call changes nothing: an engine on paper still asks real ranks
 * through c. Local; before the first operation. */
void comm_on(struct comm *c, const struct device *d); /* NULL for c is fine */

int comm_rank(const struct comm *c);
int comm_size(const struct comm *c);
int comm_world_rank(const struct comm *c, int rank); /* of a rank of c */
int comm_ranks_here(const struct comm *c);           /* ranks of c on this rank's host, itself included */
int comm_host(const struct comm *c, int rank);       /* of a rank of c: hosts are numbered as they appear */
/* Ranks of this host, this one included, that may use one of the cores that this rank may use: 1 where a launcher gave
 * each rank cores of its own. Of the world. */
int comm_sharers(const struct comm *c);
/* Processes of this host see each other's buffers, and need not copy through stages. */
bool comm_sees_buffers(const struct comm *c);
const char *comm_name(const struct comm *c); /* "world", "dp_shard" */
/* The communicators of a rank: the world is number 0, then groups in the order in which they were made, as long as none
 * is freed; NULL after the last. Local. */
const struct comm *comm_nth(const struct comm *world, int i);
const char *comm_transport(const struct comm *c); /* "local", "mpi", "null" */

/* ---- operations: Collective(c), return a ticket (>= 1) ---------------------------------------------------- */

/* `what` names the tensor or the place in errors and in the flight recorder; the first 47 characters are kept.
 * COMM_AT("wq gradient") puts file and line before the text. dtypes: all but u8 and u16, which may only be moved.
 * Counts are elements; 0 is legal. `in` and `out` are the same or do not overlap, except as stated. */
#define COMM_STR2(x) #x
#define COMM_STR(x) COMM_STR2(x)
#define COMM_AT(text) __FILE__ ":" COMM_STR(__LINE__) " " text

/* buf[n] of root goes to buf of all. */
int64_t comm_broadcast(struct comm *c, void *buf, int64_t n, enum dtype t, int root, const char *what);
/* out[i] on root = fold over ranks of in[i]; out is not touched elsewhere (NULL is fine). */
int64_t comm_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r, int root,
                    const char *what);
/* out[i] on all = fold over ranks of in[i]. */
int64_t comm_all_reduce(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                        const char *what);
/* out[i] = fold over ranks p of in_p[rank*n + i]; in has size*n elements, out may be in + rank*n. */
int64_t comm_reduce_scatter(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, enum comm_red r,
                            const char *what);
/* Pieces of counts[p] elements, one after the other; counts (copied) is the same on all ranks. */
int64_t comm_reduce_scatter_v(struct comm *c, const void *in, void *out, const int64_t *counts, enum dtype t,
                              enum comm_red r, const char *what);
/* out[p*n + i] = in_p[i]; out has size*n elements, in may be out + rank*n. */
int64_t comm_all_gather(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, const char *what);
int64_t comm_all_gather_v(struct comm *c, const void *in, void *out, const int64_t *counts, enum dtype t,
                          const char *what);
/* out[p*n + i] = in_p[rank*n + i]; in and out do not overlap. */
int64_t comm_all_to_all(struct comm *c, const void *in, void *out, int64_t n, enum dtype t, const char *what);
/* Piece p of in (send[p] elements, pieces one after the other) goes to rank p; piece p of out comes from rank p. */
int64_t comm_all_to_all_v(struct comm *c, const void *in, void *out, const int64_t *send, const int64_t *recv,
                          enum dtype t, const char *what);

/* Sends and receives that belong together. Between two ranks the k-th send of one meets the k-th receive of the other.
 * A message to oneself is legal when both halves are in one list. Only the peers named take part. */
struct comm_p2p {
    bool send;
    int peer;
    void *buf; /* not written when it is sent */
    int64_t n;
    enum dtype dtype;
};
int64_t comm_exchange(struct comm *c, const struct comm_p2p *list, int n, const char *what);
int64_t comm_send(struct comm *c, const void *buf, int64_t n, enum dtype t, int peer, const char *what);
int64_t comm_recv(struct comm *c, void *buf, int64_t n, enum dtype t, int peer, const char *what);

/* Done when every rank has called it. */
int64_t comm_barrier(struct comm *c, const char *what);

/* ---- buffers: Local ---------------------------------------------------------------------------------------- */

/* Memory for the buffers of large operations: zeroed pages. Between processes of one host an operation runs in the
 * buffers themselves, in one pass, where those of all ranks are such memory; others are copied on the way. Elsewhere,
 * and where the system does not let processes see each other's memory, it is like any other (threads always see it).
 * NULL: the system has none. Freed before its world is, when no operation on it is open; a child of fork shares it. */
void *comm_pages_new(struct comm *c, size_t bytes);
void comm_pages_free(struct comm *c, void *p, size_t bytes);
/* Processes of this rank's host see such memory of each other. The same on all ranks of the host. */
bool comm_pages_shared(const struct comm *c);

/* ---- streams: Local ----------------------------------------------------------------------------------------- */

/* This rank computes on s what it sends and receives, in the world and all its groups: an operation on bytes of a
 * device comes after what s held when it was called, and comm_wait puts s behind it. Until comm_stream_off with the
 * same s. */
struct stream;
void comm_stream_on(struct comm *world, struct stream *s);
void comm_stream_off(struct comm *world, const struct stream *s);

/* ---- waiting: Local --------------------------------------------------------------------------------------- */

void comm_wait(struct comm *c, int64_t ticket); /* what follows on c's stream sees the result */
/* Its bytes are there, for the host: the stream still wants comm_wait. Never blocks; moves things on when progress is
 * inline, notices who is late. */
bool comm_done(struct comm *c, int64_t ticket);
/* Operations that this rank submits from now on, on all communicators of the world, may take so long before a rank is
 * named as late; 0: what the settings say for their kind. Making a group goes by it too. Local. */
void comm_patience(struct comm *world, double timeout_s);
void comm_sync(struct comm *c); /* everything enqueued on c so far */

/* ---- errors ------------------------------------------------------------------------------------------------ */

/* 0, or the sticky error of this rank's world. ERR_LOST: a rank is no more, and the text says which one and who waited
 * for it in what. Local. */
int comm_status(struct comm *c, struct err *e);
/* What ranks are doing whose state is visible from here (those of this host): how many there are; and of the i-th its
 * rank and what it waits for, COMM_DOING chars. Returns its process; 0: one of this process's threads, or none that is
 * visible. Local; any thread. */
enum { COMM_DOING = 700 };
int comm_seen(const struct comm *world);
int64_t comm_seen_doing(struct comm *world, int i, int *rank, char *out);
double comm_failed_s(const struct comm *c); /* clock_now_s() when it was found, here; 0: all is well. Local. */
/* This very rank is the one that died (config.dies, threads). Local. */
bool comm_died(const struct comm *c);
/* A decision that all ranks take together: gives OK when every rank brought OK; else every rank gets the error of the
 * lowest rank that failed, with "rank 3: " before its text. Waits. Collective(c). */
int comm_agree(struct comm *c, int code, struct err *e);
/* This rank cannot go on: every rank of the world gets `why` as its first cause; under MPI all processes end with
 * status 1 after the text is printed. Local. */
void comm_abort(struct comm *c, const struct err *why);

/* ---- inspect: Local ---------------------------------------------------------------------------------------- */

/* What this rank sent to others through c. */
struct comm_traffic {
    int64_t bytes, messages, operations;
};
struct comm_traffic comm_traffic(const struct comm *c);

/* How long this rank was blocked in waits for c; how long its messages occupied the pretended link, and for how much of
 * that it waited: waiting for a rank that comes late is not counted there. */
struct comm_times {
    double waited_s, link_s, exposed_s;
};
struct comm_times comm_times(const struct comm *c);

/* How long this rank was blocked in waits for any communicator of its world, since that was made. */
double comm_waited_s(const struct comm *world);

/* Operations on c so far that ran in the buffers of all ranks themselves. */
int64_t comm_one_pass(const struct comm *c);

/* ---- watching: Local -------------------------------------------------------------------------------------- */

/* What one operation did: told once, when it is over, on the rank's own thread (in a later call on the same
 * communicator). A message of an exchange is told by itself. */
struct comm_event {
    const struct comm *c;
    enum comm_op op;
    int64_t ticket;
    int64_t number; /* collectives: which of c's, from 1, the same on all ranks; messages: which between these two ranks
                     * in this direction, from 1, the same at both ends */
    int send, peer; /* messages: 1 sent, 0 received; a rank of c. Else -1 */
    enum dtype dtype;
    int64_t bytes; /* of the message; of a collective: what is summed, moved or gathered, whole. all_to_all: what this
                      rank has */
    int64_t sent;  /* what this rank sends for it: as comm_traffic counts */
    const char *algorithm, *what;
    double asked_s, over_s; /* clock_now_s(): when this rank called; when it was over here */
};
/* The rank's thread was inside comm: it started an operation, or waited for one. */
enum comm_stay { COMM_STARTS, COMM_WAITS, COMM_MOVES /* asked whether it is done, and moved bytes meanwhile */ };
struct comm_watch {
    void (*over)(void *ctx, const struct comm_event *v);
    void (*stayed)(void *ctx, const struct comm *c, int64_t ticket, enum comm_stay why, double from_s, double to_s);
    void *ctx;
};
/* From now on w (copied) is told of all communicators of the world; NULL: nobody is. Operations that are under way now
 * are not told, nor are those of a null communicator. Unwatched, an operation costs one test more. */
void comm_watch(struct comm *world, const struct comm_watch *w);
/* Tells of what is over by now. wait: first waits for everything that this rank has enqueued on any communicator; then
 * Collective(world). */
void comm_watch_tell(struct comm *world, bool wait);

/* What a null communicator was asked for so far: a row per distinct operation, in order of first appearance. The rows
 * are c's, until its next operation. Other transports keep none. */
#define COMM_LINK_LATENCY_S 2e-6 /* what `seconds` assumes where config names no link: docs/benchmarks.md */
#define COMM_LINK_GBPS 10.0
struct comm_tally {
    enum comm_op op;
    enum dtype dtype;
    int64_t n; /* elements of one operation; of an exchange: of its first message */
    const char *algorithm;
    char what[48];
    struct comm_traffic traffic; /* of all of them */
    double seconds;              /* of all of them, by the alpha-beta model, if nothing else were going on */
};
const struct comm_tally *comm_tally(const struct comm *c, int *n);

/* The algorithm that an operation of n elements (in all: size*n for gathers and scatters) would take. */
const char *comm_choice(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r);
/* What one operation would send, without doing it. */
struct comm_traffic comm_predict(const struct comm *c, enum comm_op op, int64_t n, enum dtype t, enum comm_red r);
/* Names of all algorithms, NULL-terminated; comm_can: whether one has this operation for c. */
const char *const *comm_algorithms(void);
bool comm_can(const struct comm *c, const char *algorithm, enum comm_op op, int64_t n, enum dtype t, enum comm_red r);
/* Adds in the order of the ranks, hence to the same bits as every other algorithm that does. */
bool comm_keeps_order(const char *algorithm);
/* Every later operation of c by this algorithm where it has the operation; NULL: by the table again. Collective(c). */
int comm_algorithm_set(struct comm *c, const char *algorithm, struct err *e);

#endif
