/* SPDX-License-Identifier: Apache-2.0 */
/* board.c: the flight recorder and the first cause. A row costs about 50 KB; recording an operation is a copy of 160
 * bytes under an uncontended spin lock, twice more a store for its start and end. A pthread mutex would do within a
 * process, but must be made robust between processes; a lock that is held for a copy never needs it. A reader that
 * finds a row locked for long (its owner was killed inside the copy) reads it anyway.
 */
#include "comm/board.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"

static void lock(atomic_int *l)
{
    for (int tries = 0; atomic_exchange_explicit(l, 1, memory_order_acquire); tries++) {
        if (tries > 100000) return; /* its owner is dead */
        if (tries > 100) sched_yield();
    }
}

static void unlock(atomic_int *l) { atomic_store_explicit(l, 0, memory_order_release); }

/* "64 bytes to rank 3"; nothing where there is nobody. */
static void print_way(char *out, size_t n, int64_t bytes, const char *way, int32_t peer)
{
    out[0] = 0;
    if (peer == DESC_SEVERAL) snprintf(out, n, "%lld bytes %s several ranks", (long long)bytes, way);
    else if (peer != DESC_NOBODY) snprintf(out, n, "%lld bytes %s rank %d", (long long)bytes, way, peer);
}

static char *exchange_print(char out[DESC_TEXT], const struct desc *d)
{
    char to[56], from[56];
    print_way(to, sizeof to, d->sent, "to", d->to);
    print_way(from, sizeof from, d->received, "from", d->from);
    snprintf(out, DESC_TEXT, "exchange #%lld '%s' (%s%s%s) on %s", (long long)d->seq, d->what, to,
             *to && *from ? ", " : "", from, d->group);
    return out;
}

char *desc_print(char out[DESC_TEXT], const struct desc *d)
{
    if (d->op == COMM_EXCHANGE) return exchange_print(out, d);
    char root[24] = "";
    bool reduces = d->op == COMM_REDUCE || d->op == COMM_ALL_REDUCE || d->op == COMM_REDUCE_SCATTER;
    if (d->op == COMM_REDUCE || d->op == COMM_BROADCAST) snprintf(root, sizeof root, ", root %d", d->root);
    if (d->op == COMM_BARRIER)
        snprintf(out, DESC_TEXT, "barrier #%lld '%s' on %s", (long long)d->seq, d->what, d->group);
    else
        snprintf(out, DESC_TEXT, "%s #%lld '%s' (%s%s%lld %s%s) on %s", comm_op_name((enum comm_op)d->op),
                 (long long)d->seq, d->what, reduces ? comm_red_name((enum comm_red)d->red) : "", reduces ? " " : "",
                 (long long)d->n, dtype_name((enum dtype)d->dtype), root, d->group);
    return out;
}

const char *desc_differ(const struct desc *a, const struct desc *b)
{
    if (a->op != b->op) return "operation";
    if (a->dtype != b->dtype) return "dtype";
    if (a->n != b->n) return "count";
    if (a->red != b->red) return "reduction";
    if (a->root != b->root) return "root";
    if (a->counts != b->counts) return "counts of the pieces";
    if (a->algorithm != b->algorithm) return "algorithm (config differs between ranks)";
    return NULL;
}

int desc_compare(const struct desc *a, int rank_a, const struct desc *b, int rank_b, struct err *e)
{
    const char *differs = desc_differ(a, b);
    char text[2][DESC_TEXT];
    if (!differs) return OK;
    return err_set(e, ERR_IO,
                   "ranks of %s called different operations: rank %d: %s; rank %d: %s; the %s differs. Every rank must "
                   "call the same operations in the same order",
                   a->group, rank_a, desc_print(text[0], a), rank_b, desc_print(text[1], b), differs);
}

size_t board_bytes(int n_rows) { return sizeof(struct board) + (size_t)n_rows * sizeof(struct board_row); }

void board_init(struct board *b, int n_rows)
{
    memset(b, 0, board_bytes(n_rows));
    b->n_rows = n_rows;
    for (int i = 0; i < n_rows; i++) b->row[i].rank = i;
}

int64_t board_queue(struct board *b, int row, const struct desc *d)
{
    struct board_row *r = &b->row[row];
    lock(&r->lock);
    int64_t i = r->n++;
    r->record[i % BOARD_RECORDS] =
        (struct flight_record){.desc = *d, .state = RECORD_QUEUED, .queued_s = clock_now_s()};
    unlock(&r->lock);
    return i;
}

void board_mark(struct board *b, int row, int64_t record, enum record_state s)
{
    struct board_row *r = &b->row[row];
    double now = clock_now_s();
    lock(&r->lock);
    if (record > r->n - BOARD_RECORDS - 1) {
        struct flight_record *x = &r->record[record % BOARD_RECORDS];
        x->state = s;
        if (s == RECORD_RUNNING) x->started_s = now;
        if (s == RECORD_DONE) x->done_s = now;
    }
    unlock(&r->lock);
}

static uint64_t pid_space(void)
{
    struct stat s;
    return stat("/proc/self/ns/pid", &s) ? 0 : (uint64_t)s.st_ino;
}

void board_enter(struct board *b, int row, int rank)
{
    struct board_row *r = &b->row[row];
    lock(&r->lock);
    r->rank = rank;
    r->pid = getpid();
    r->pid_space = pid_space();
    unlock(&r->lock);
}

/* Ended, whether its parent has asked for its status or not. */
static bool ended(int64_t pid)
{
    char path[48], text[256] = "";
    if (kill((pid_t)pid, 0) != 0) return errno == ESRCH;
    snprintf(path, sizeof path, "/proc/%lld/stat", (long long)pid);
    FILE *f = fopen(path, "r");
    if (!f) return false;
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = 0;
    const char *name_end = strrchr(text, ')'); /* PID (NAME) STATE ... */
    return name_end && (!strncmp(name_end, ") Z", 3) || !strncmp(name_end, ") X", 3));
}

bool board_died(struct board *b, int row, int64_t *pid)
{
    struct board_row *r = &b->row[row];
    lock(&r->lock);
    *pid = r->pid;
    bool visible = r->pid != 0 && r->pid_space != 0 && r->pid_space == pid_space(), dead = r->state == RANK_DIED;
    unlock(&r->lock);
    return dead || (visible && ended(*pid));
}

int64_t board_process(struct board *b, int row)
{
    struct board_row *r = &b->row[row];
    lock(&r->lock);
    bool visible = r->pid != 0 && r->pid_space != 0 && r->pid_space == pid_space();
    int64_t pid = visible ? r->pid : 0;
    unlock(&r->lock);
    return pid;
}

void board_beat(struct board *b, int row)
{
    atomic_store_explicit(&b->row[row].beat_ns, (long long)(1e9 * clock_now_s()), memory_order_relaxed);
}

bool board_waits(struct board *b, int row, double within_s)
{
    return clock_now_s() - 1e-9 * (double)atomic_load_explicit(&b->row[row].beat_ns, memory_order_relaxed) < within_s;
}

static void set_state(struct board *b, int row, enum rank_state s)
{
    lock(&b->row[row].lock);
    if (b->row[row].state != RANK_DIED) b->row[row].state = s;
    unlock(&b->row[row].lock);
}

void board_leave(struct board *b, int row) { set_state(b, row, RANK_LEFT); }
void board_die(struct board *b, int row) { set_state(b, row, RANK_DIED); }

bool board_left(struct board *b, int row)
{
    lock(&b->row[row].lock);
    bool left = b->row[row].state == RANK_LEFT;
    unlock(&b->row[row].lock);
    return left;
}

/* The newest record in a state, or NULL. Under the row's lock. */
static const struct flight_record *newest(const struct board_row *r, int state)
{
    for (int64_t i = r->n - 1; i >= 0 && i >= r->n - BOARD_RECORDS; i--)
        if (r->record[i % BOARD_RECORDS].state == state) return &r->record[i % BOARD_RECORDS];
    return NULL;
}

char *board_doing(struct board *b, int row, char out[BOARD_TEXT])
{
    struct board_row *r = &b->row[row];
    char text[DESC_TEXT];
    double now = clock_now_s();
    size_t n = 0;
    out[0] = 0;
    lock(&r->lock);
    const struct flight_record *running = newest(r, RECORD_RUNNING), *done = newest(r, RECORD_DONE);
    if (r->state == RANK_LEFT) n += (size_t)snprintf(out + n, BOARD_TEXT - n, "has left; ");
    if (running)
        n += (size_t)snprintf(out + n, BOARD_TEXT - n, "is in %s since %.2f s; ", desc_print(text, &running->desc),
                              now - running->started_s);
    if (done)
        n += (size_t)snprintf(out + n, BOARD_TEXT - n, "last finished %s %.2f s ago", desc_print(text, &done->desc),
                              now - done->done_s);
    else n += (size_t)snprintf(out + n, BOARD_TEXT - n, "has finished no operation yet");
    if (!running && r->state != RANK_LEFT) snprintf(out + n, BOARD_TEXT - n, " and is in none now");
    unlock(&r->lock);
    return out;
}

void board_running(struct board *b, int row, const char *group, struct desc *out)
{
    struct board_row *r = &b->row[row];
    *out = (struct desc){0};
    lock(&r->lock);
    for (int64_t i = r->n - 1; i >= 0 && i >= r->n - BOARD_RECORDS; i--) {
        const struct flight_record *x = &r->record[i % BOARD_RECORDS];
        bool here = !strcmp(x->desc.group, group);
        if (x->state != RECORD_RUNNING || (out->seq && !here)) continue;
        *out = x->desc;
        if (here) break;
    }
    unlock(&r->lock);
}

#define PRINT_WITHIN_S 1.0 /* stalls.c; a rank that computes, hangs or was stopped does not say that it waits */

static void print_record(const struct flight_record *x, double now, struct str *out)
{
    char text[DESC_TEXT];
    str_printf(out, "  %10.4f", now - x->queued_s);
    if (x->state == RECORD_QUEUED) str_printf(out, "  %10s", "");
    else str_printf(out, "  %10.4f", now - x->started_s);
    if (x->state == RECORD_DONE) str_printf(out, "  %10.6f", x->done_s - x->started_s);
    else str_printf(out, "  %10s", x->state == RECORD_QUEUED ? "queued" : "RUNNING");
    str_printf(out, "  %s\n", desc_print(text, &x->desc));
}

/* Its last records as they are at one moment: its rank goes on while the others are printed. */
static void print_row(struct board *b, int row, double now, struct str *out)
{
    struct board_row *r = &b->row[row];
    struct flight_record *x = xcalloc(BOARD_RECORDS, sizeof *x);
    lock(&r->lock);
    int64_t all = r->n, n = all < BOARD_RECORDS ? all : BOARD_RECORDS;
    int rank = r->rank;
    for (int64_t i = 0; i < n; i++) x[i] = r->record[(all - n + i) % BOARD_RECORDS];
    unlock(&r->lock);
    str_printf(out, "\nrank %d, the last %lld of %lld operations (seconds)\n", rank, (long long)n, (long long)all);
    str_printf(out, "  %10s  %10s  %10s\n", "queued ago", "began ago", "took");
    for (int64_t i = 0; i < n; i++) print_record(&x[i], now, out);
    xfree(x);
}

int board_rank(struct board *b, int row)
{
    lock(&b->row[row].lock);
    int rank = b->row[row].rank;
    unlock(&b->row[row].lock);
    return rank;
}

void board_print(struct board *b, struct str *out)
{
    double now = clock_now_s();
    for (int i = 0; i < b->n_rows; i++) {
        char text[BOARD_TEXT];
        board_doing(b, i, text);
        bool waits = !strncmp(text, "is in ", 6) && board_waits(b, i, PRINT_WITHIN_S);
        str_printf(out, "rank %d %s%s\n", board_rank(b, i), waits ? "waits: " : "", text);
    }
    for (int i = 0; i < b->n_rows; i++) print_row(b, i, now, out);
}

bool board_fail(struct board *b, int rank, const struct err *e)
{
    lock(&b->lock);
    bool first = !board_failed(b);
    if (first) {
        b->cause = *e;
        b->cause_rank = rank;
        b->failed_s = clock_now_s();
        atomic_store(&b->failed, 1);
    }
    unlock(&b->lock);
    return first;
}

void board_cause(struct board *b, struct err *e, int *rank)
{
    lock(&b->lock);
    *e = b->cause;
    *rank = b->cause_rank;
    unlock(&b->lock);
}
