/* SPDX-License-Identifier: Apache-2.0 */
/* device.h: where bytes live and work is enqueued.
 *
 * A device hands out buffers (each says what its bytes are for), copies between them, and runs streams. Work is
 * enqueued on a stream, which knows its device, the kernels that run on it (kernel/kernel.h) and the threads they run
 * on; the host waits in stream_sync only. A cpu stream runs inline on the rank's team of threads; the null device hands
 * out numbers instead of bytes, runs nothing, and keeps the same ledger: what it counts is what a real run allocates.
 * The contract of every device, with CUDA's rules beside it, is docs/device.md.
 *
 * Host and device are two places, also where they are one memory. An untouchable device (for tests) is a cpu device
 * that proves it: what its buffers show is an address that faults, and copies, kernels and communicators find the bytes
 * at another one (device_here). Whoever touches device bytes from the host ends with a segmentation fault on a laptop;
 * so does, in a CHECK, who gives host memory to a kernel.
 *
 * Invariants
 *   1. ledger.now[c] = sum of the bytes of live buffers of category c; ledger.peak_total = max over time of the sum
 *      over categories but MEM_HOST, MEM_DISK, MEM_KEPT. The null device and a real one given the same calls have equal
 *      ledgers.
 *   2. Buffers of the null device have p = NULL: host code never dereferences a buffer, only kernels and
 *      device_copy do.
 * Floors 0-1 only. Order: Local to the owning rank.
 */
#ifndef TUTTI_DEVICE_DEVICE_H
#define TUTTI_DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/thread.h"
#include "device/tier.h"

enum mem_cat {
    MEM_PARAM,      /* parameters in the compute dtype */
    MEM_MASTER,     /* fp32 master copy where the compute dtype is narrower */
    MEM_GRAD,       /* accumulated parameter gradients */
    MEM_OPTIMIZER,  /* moments */
    MEM_ACTIVATION, /* slabs: what forward keeps for backward, one per live (stage, microbatch) */
    MEM_WGRAD,      /* what backward keeps for deferred weight gradients */
    MEM_COMM,       /* communication buckets */
    MEM_DATA,       /* tokens, targets, positions, constant tables; what the tier needs of memory */
    MEM_SCRATCH,    /* lives within one action */
    MEM_HOST,       /* put away in the host's memory, which only copies touch: not the device's, and in none of its
                       totals */
    MEM_DISK,       /* the same on files (tier.h) */
    MEM_KEPT,       /* checkpoints in memory (keep/memckpt.h), of what this rank writes: here and at its partner */
    MEM_N
};
const char *mem_cat_name(enum mem_cat c); /* the names of INTERFACE: "param", "master", ... */

struct ledger {
    size_t now[MEM_N];
    size_t peak[MEM_N];    /* each category's own maximum */
    size_t now_total;      /* of the device: all but MEM_HOST, MEM_DISK, MEM_KEPT */
    size_t peak_total;     /* the maximum of the sum: not the sum of the maxima */
    size_t at_peak[MEM_N]; /* categories at the moment of peak_total */
};

struct device;
struct buffer {
    struct device *dev;
    void *p; /* NULL on the null device */
    size_t bytes;
    enum mem_cat cat;
    bool host; /* buffer_new_host */
};

struct stream;
struct event;
struct byte_span; /* order.h */

/* A piece of work as the device sees it. */
enum work_kind {
    WORK_KERNEL,
    WORK_COPY,
    WORK_TO_HOST, /* also what is put away and brought back */
    WORK_FROM_HOST,
    WORK_ZERO,
    WORK_COLLECTIVE
};
enum { WORK_SPANS = 40 };
/* Work that somebody else carries out beside a stream (stream_fork). */
struct side_work {
    void (*begin)(void *arg); /* what the stream held is done: it may touch its bytes */
    bool (*done)(void *arg);  /* moves it on where nobody else does */
    void (*wait)(void *arg);  /* the host waits until it is done; it was begun */
    const void *queue;        /* sides of one queue begin in the order of their forks */
};

struct stream_work {
    enum work_kind kind;
    const char *name;   /* of the operation; a text of the program's */
    const char *tensor; /* what it is about, or NULL; copied */
    size_t bytes;       /* that are moved; WORK_KERNEL: 0, the call says more */
    const void *call;   /* WORK_KERNEL: struct kernel_call */
    void (*run)(struct stream *s, void *arg);
    const void *arg; /* copied */
    size_t arg_bytes;
    const struct byte_span *span; /* what it reads and writes; copied */
    int n_span;
    const struct side_work *side; /* of a fork: copied, arg is its argument; NULL: who forks begins it at once */
};

/* Seconds that a piece of work takes on s, for the clocks of the null device. */
typedef double stream_cost_fn(void *ctx, const struct stream *s, const struct stream_work *w);

struct device_ops {
    const char *name;
    int (*alloc)(struct device *d, enum mem_cat cat, size_t bytes, void **p, struct err *e);
    int (*host_alloc)(struct device *d, enum mem_cat cat, size_t bytes, void **p,
                      struct err *e); /* of the host; released by release */
    void (*release)(struct device *d, enum mem_cat cat, void *p, size_t bytes);
    void (*copy)(struct stream *s, void *dst, const void *src, size_t bytes); /* device to device, same device */
    void (*to_host)(struct stream *s, void *host, const void *src, size_t bytes);
    void (*from_host)(struct stream *s, void *dst, const void *host, size_t bytes);
    void (*copy_rows)(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                      int64_t n);
    /* Between a buffer of MEM_HOST or MEM_DISK and the device's own bytes, out or back. */
    void (*away)(struct stream *s, void *dst, const void *src, size_t bytes, bool out);
    void (*zero)(struct stream *s, void *dst, size_t bytes);
    void (*sync)(struct stream *s);
    int (*stream_new)(struct stream *s, struct err *e); /* the device's own part of a handle; NULL: it has none */
    void (*stream_free)(struct stream *s);
    int (*event_new)(struct event *ev, struct err *e);
    void (*event_free)(struct event *ev);
    void (*event_record)(struct event *ev, struct stream *s);
    void (*event_wait)(struct stream *s, struct event *ev);
    /* Work that others bring (kernels, collectives): NULL where they run it themselves, at once. */
    void (*enqueue)(struct stream *s, const struct stream_work *w);
    uint64_t (*fork)(struct stream *s, const struct stream_work *w, uint64_t after);
    void (*join)(struct stream *s, uint64_t side, bool host);
    /* Runs something that can run now, never waits; true: it did. NULL: nothing runs by the host's hand. */
    bool (*nudge)(struct device *d);
    /* Until that side was begun. */
    void (*reach)(struct device *d, uint64_t side);
    /* Whether p may be an address of the device's, as far as it can tell. NULL: what the host can touch. */
    bool (*owns)(const struct device *d, const void *p);
    void (*destroy)(struct device *d);
};

/* Where the memory of some categories comes from instead, zeroed and page-aligned: pages that other processes see
 * (comm_pages_new). NULL from take: none left. */
struct device_pages {
    void *(*take)(void *arg, size_t bytes);
    void (*give)(void *arg, void *p, size_t bytes);
    void *arg;
    unsigned cats; /* bit 1u << category */
};

struct device {
    const struct device_ops *ops;
    struct ledger ledger;
    struct team *team;         /* cpu: worker threads of this rank, which its streams run on; NULL otherwise */
    int n_streams, n_events;   /* live handles */
    int n_on_disk;             /* live buffers of MEM_DISK that have bytes */
    bool counts_only;          /* null: nothing is there to compute with */
    struct device_pages pages; /* cpu; all zeros: its own */
    struct tier *tier;         /* cpu: where MEM_DISK is (device_tier_set); NULL: there is none */
    bool any_size;             /* cpu: ask the system even for more than it says it has (memory.check: false) */
    bool begins;               /* it begins sides itself, when it comes to it, and its streams wait for them; else forks
                                  begin at once, and whoever carries them out is waited for by the host */
    bool direct;               /* the host may read and write its bytes in place, when it has nothing under way */
    bool untouchable;          /* its addresses fault (DEVICE_FAULTS) */
    const char
        *kernels; /* which chain of kernels is its own (kernel/kernel.c); null: of the device that it stands for */
    stream_cost_fn *cost; /* null: how its streams' clocks move (device_cost_set) */
    void *cost_ctx;
    void *own; /* the device's part */
};

/* A queue of work on one device: what is enqueued runs in that order. Several streams of a device run side by side, and
 * an event puts what follows on one behind what came before on another. */
struct kernel_table;
struct stream {
    struct device *dev;
    const char *name;                   /* "compute": for messages */
    const struct kernel_table *kernels; /* what runs here (kernel_on, kernel/kernel.h); NULL: copies only. Borrowed */
    struct team *team;                  /* whose threads run it: the device's */
    void *room;                         /* scratch of kernels that are given none (flat.h); the device's bytes */
    size_t room_bytes;
    double clock_s;   /* null: the virtual time at which all that was enqueued is done */
    uint64_t on_disk; /* cpu: its last request to the tier, which may be under way; 0: none */
    void *own;        /* the device's part */
};
/* A point in a stream: what was enqueued there before the last event_record. One that was never recorded has passed. */
struct event {
    struct device *dev;
    double at_s;      /* cpu: when it passed; null: in virtual time */
    uint64_t on_disk; /* cpu: the stream's, then */
    void *own;
};

/* The devices that there are (open.c). */
enum device_kind {
    DEVICE_CPU,
    DEVICE_NULL,
    DEVICE_UNTOUCHABLE,
    DEVICE_LATE,
    DEVICE_RUNNING,
    DEVICE_BARE,
    DEVICE_CUDA_SIM, /* a cpu whose kernels are a GPU's, simulated (kernel/cuda/): for looking, not for speed */
    DEVICE_KINDS
};
const char *device_kind_name(enum device_kind k);
/* What a user's word names: auto (the best of what can be used), cpu, cuda or cuda:N, cuda-sim, null. ERR_REQUEST, and
 * why, for what this program or this machine does not have: nothing else is taken in its place. */
int device_asked(enum device_kind *k, const char *word, struct err *e);
/* Whether what is computed there is simulated, so that no time of it is a speed. */
bool device_simulates(const struct device *d);
/* Which chain of kernels a kind has (device.kernels): for the null device, which stands for it in plans. */
const char *device_kernels(enum device_kind k);
/* Opens one: where whoever computes, counts or serves begins. n_threads counts the rank's own thread. TUTTI_DEVICE in
 * the environment (untouchable, late, running, bare; for running tests again) takes the place of cpu, and of the one
 * that cuda-sim computes on. */
int device_open(struct device **d, enum device_kind k, int n_threads, struct err *e);

/* One of a kind. */
int device_cpu_new(struct device **d, int n_threads, struct err *e);
int device_untouchable_new(struct device **d, int n_threads, struct err *e);
int device_null_new(struct device **d, struct err *e);
/* The device that is late on purpose (late.c), untouchable too: what is enqueued runs when something waits for it, in
 * an order drawn from `seed` among those that are allowed. Two operations on overlapping bytes without an order between
 * them, and host memory that did not last, are reported in words; report NULL: the program ends. device_open takes
 * TUTTI_DEVICE_SEED. */
typedef void late_report_fn(void *ctx, const char *text);
int device_late_new(struct device **d, int n_threads, uint64_t seed, late_report_fn *report, void *ctx, struct err *e);
/* The same, but a thread of its own runs what it can while the host goes on; n_threads counts that one. */
int device_running_new(struct device **d, int n_threads, uint64_t seed, late_report_fn *report, void *ctx,
                       struct err *e);
/* Before the first buffer; the ledger stays what it is. The null device takes none. */
void device_pages_set(struct device *d, const struct device_pages *pages);
/* Where buffers of MEM_DISK are, before the first of them; the device's own from then on. Their addresses go through
 * copies of all kinds; on a stream without kernels these are under way until something waits for the stream. Once all
 * buffers are there, tier_reserve. The null device needs none. */
void device_tier_set(struct device *d, struct tier *t);
/* What went wrong on the tier; OK where there is none. */
int device_status(const struct device *d, struct err *e);
/* The null device: from now on work takes time on its stream's clock: fn(ctx, ...) seconds of it. Nothing moves
 * without. */
void device_cost_set(struct device *d, stream_cost_fn *fn, void *ctx);
void device_free(struct device *d); /* CHECKs that no buffer is left */

/* Buffers. Zero bytes is legal (p may be NULL). On failure the error says category, size and what was free. */
int buffer_new(struct buffer *b, struct device *d, enum mem_cat cat, size_t bytes, struct err *e);
/* A buffer in the host's memory, which copies to and from d need not be waited for to use (what CUDA calls pinned):
 * through such the host hands over a batch and learns a step's few numbers. On d's ledger like any other, its address
 * is the host's also where d cannot be touched, and NULL on the null device. Who refills it has waited for what was
 * enqueued before. */
int buffer_new_host(struct buffer *b, struct device *d, enum mem_cat cat, size_t bytes, struct err *e);
void buffer_free(struct buffer *b); /* also of a zeroed struct */
/* Bytes that are no buffer's: files in memory. On the ledger until they are given back. */
void device_hold(struct device *d, enum mem_cat cat, size_t bytes);
void device_let_go(struct device *d, enum mem_cat cat, size_t bytes);

/* Handles. name is borrowed (a text of the program's). stream_free waits for what the stream holds; event_free leaves
 * what was enqueued behind the event as it is. NULL is fine. */
int stream_new(struct stream **s, struct device *d, const char *name, struct err *e);
void stream_free(struct stream *s);
int event_new(struct event **ev, struct device *d, struct err *e);
void event_free(struct event *ev);

/* Enqueue on s. The null device does nothing (to_host leaves zeros). */
void device_copy(struct stream *s, struct buffer *dst, size_t dst_off, const struct buffer *src, size_t src_off,
                 size_t bytes);
void device_to_host(struct stream *s, void *host, const struct buffer *src, size_t off, size_t bytes);
void device_from_host(struct stream *s, struct buffer *dst, size_t off, const void *host, size_t bytes);
void device_zero(struct stream *s, struct buffer *dst, size_t off, size_t bytes);
/* The same for who has an address on s's device and no buffer (a parameter's gradient, a kernel's operand). */
void stream_copy(struct stream *s, void *dst, const void *src, size_t bytes);
/* n rows of so many bytes, which begin dst_step and src_step bytes apart. */
void stream_copy_rows(struct stream *s, void *dst, size_t dst_step, const void *src, size_t src_step, size_t bytes,
                      int64_t n);
/* Between the device's bytes and those of a buffer of MEM_HOST or MEM_DISK. Both belong to the copy until it is done,
 * and streams order it as they order any other: what is brought back comes after what was put away on the same stream.
 */
void stream_put_away(struct stream *s, void *away, const void *src, size_t bytes);
void stream_bring_back(struct stream *s, void *dst, const void *away, size_t bytes);
void stream_to_host(struct stream *s, void *host, const void *src, size_t bytes);
void stream_from_host(struct stream *s, void *dst, const void *host, size_t bytes);
void stream_zero(struct stream *s, void *dst, size_t bytes);
void stream_sync(struct stream *s);
void event_record(struct event *ev, struct stream *s);
void event_wait(struct stream *s, struct event *ev);

/* For who brings work of his own: kernels (kernel/entry.c) and communicators. */
/* The device wants to be told: else run it at once on s->team (null: do nothing), which is the same. */
bool stream_takes_work(const struct stream *s);
void stream_enqueue(struct stream *s, const struct stream_work *w);
/* Sides are begun by s's device when it comes to it, and what s gets after a join waits for them by itself: the host
 * need not. It has to let the device get on while it waits for somebody else (stream_nudge: false, nothing runs by the
 * host's hand, or nothing can). */
bool stream_begins(const struct stream *s);
bool stream_nudge(struct stream *s);
void stream_reach(struct stream *s, uint64_t side); /* until that side was begun */
/* Work beside s that somebody else carries out: it comes after all that s holds, and after what `after`
 * names (0: nothing). Returns its name, or 0 where the device keeps none. */
uint64_t stream_fork(struct stream *s, const struct stream_work *w, uint64_t after);
/* It is done: what s gets from now on comes after it; host: and what the host enqueues anywhere. */
void stream_join(struct stream *s, uint64_t side, bool host);

/* ---- addresses ---- */
/* Bytes on s's device, or its tier, for the host to read: themselves where the host can, else copied into room (of as
 * many bytes); waits. NULL on the null device. */
const void *device_peek(struct stream *s, const void *p, size_t bytes, void *room);
/* Whether p may be an address of d's, as far as d can tell: of a device whose memory is the host's, any that the host
 * can touch. For checks of whose memory somebody was handed. */
bool device_owns(const struct device *d, const void *p);
/* The host may read and write d's bytes in place, when d has nothing under way. */
bool device_is_direct(const struct device *d);
bool device_shows(const struct device *d, const void *p); /* and p is not on its tier: these bytes */

/* No processor maps this: user addresses of x86-64 end below 2^47 (2^56 where asked for), of AArch64 below 2^48, and
 * its top byte, which AArch64 may ignore, is left alone. */
#define DEVICE_FAULTS ((uintptr_t)1 << 54)
/* The address at which the bytes can be touched. For copies, kernels and communicators, at their entry, and nobody
 * else; any other address is itself. */
static inline void *device_here(const void *p) { return (void *)((uintptr_t)p & ~DEVICE_FAULTS); }
/* p is on an untouchable device. */
static inline bool device_faults(const void *p) { return ((uintptr_t)p & DEVICE_FAULTS) != 0; }

#endif
