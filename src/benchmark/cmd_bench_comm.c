/* SPDX-License-Identifier: Apache-2.0 */
/* tutti bench comm: how fast ranks exchange data, by every algorithm, beside what the machine could do.
 *
 * Each row is one operation of one size: the mean time over a batch of operations one after the other, the best of
 * three batches. Columns as in nccl-tests: algorithm bandwidth is bytes / time; bus bandwidth multiplies that by what
 * an ideal algorithm must move per byte, so it can be compared with the hardware for any number of ranks. Bytes are
 * those of the vector; of the whole, for gathers and scatters. In place where the operation can. Buffers come from
 * comm_pages_new, as those of a training run do: processes of one host see them in each other. The library gets
 * ordinary ones, in huge pages where the system has them.
 *
 * Two more rows for ranks as threads: `one_pass`, a loop written by hand that does what an all_reduce must (each rank
 * reads its slice of every buffer, adds, writes it into every buffer; two barriers), and `memory`, in which every rank
 * copies as many bytes as an all_reduce reads and writes per rank.
 */
#include <math.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/crowd.h"
#include "base/thread.h"
#include "benchmark/bench_comm.h"
#include "cli/cli.h"
#include "comm/comm.h"

enum { MAX_SIZES = 32, MAX_ROWS = 4096, BATCHES = 3, MAX_THREADS = 256 };

struct options {
    bool op[COMM_OP_N], json, table, checksum, crowd;
    int64_t ranks, ranks_per_host, sizes[MAX_SIZES];
    int n_sizes;
    const char *algorithms; /* comma-separated, NULL: all */
    const char *dtype_name, *progress;
    enum dtype dtype;
    double seconds;
};

/* What the rows by hand share between threads. */
struct meeting {
    atomic_int here, round;
};

struct bench {
    const struct options *o;
    struct bench_comm r; /* rank 0 writes */
    struct meeting meeting;
    float *buffer[MAX_THREADS]; /* by rank, for the rows by hand */
};

/* ---- options ------------------------------------------------------------------------------------------------ */

static bool parse_size(const char *text, int64_t *out)
{
    char *end;
    double v = strtod(text, &end);
    double unit = *end == 'K' ? 1024 : *end == 'M' ? 1048576 : *end == 'G' ? 1073741824.0 : 1;
    if (unit != 1) end++;
    *out = (int64_t)(v * unit);
    return end != text && (*end == 0 || *end == ',') && v > 0 && v * unit <= 64.0 * 1073741824.0;
}

static const char *read_sizes(void *into, const char *text)
{
    struct options *o = into;
    o->n_sizes = 0;
    for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        if (o->n_sizes == MAX_SIZES || !parse_size(p, &o->sizes[o->n_sizes++]))
            return "a list of up to 32 sizes such as 4K,64M";
    }
    return NULL;
}
_Static_assert(MAX_SIZES == 32, "said above");

/* The word at p up to a comma equals `name`. */
static bool word_is(const char *p, const char *name)
{
    size_t n = strcspn(p, ",");
    return strlen(name) == n && !strncmp(p, name, n);
}

static const char *read_ops(void *into, const char *text)
{
    struct options *o = into;
    memset(o->op, 0, sizeof o->op);
    for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        bool known = false;
        for (int op = 0; op < COMM_OP_N; op++) {
            bool timed = op != COMM_EXCHANGE && op != COMM_BARRIER;
            if (timed && (word_is(p, "all") || word_is(p, comm_op_name((enum comm_op)op)))) known = o->op[op] = true;
        }
        if (!known) return "all, or a list of broadcast, reduce, all_reduce, reduce_scatter, all_gather and all_to_all";
    }
    return NULL;
}

static const char *read_algorithms(void *into, const char *text)
{
    for (const char *p = text; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        bool known = false;
        for (const char *const *a = comm_algorithms(); *a; a++) known |= word_is(p, *a);
        if (!known) return "a list of algorithms (docs/communicators.md)";
    }
    ((struct options *)into)->algorithms = text;
    return NULL;
}

#define AT(field) offsetof(struct options, field)
#define SIZES "4K,64K,256K,4M,64M"
static const struct cli_option options[] = {
    {"--op", "LIST", CLI_OWN, .read = read_ops, .help = "several with commas, or all (default all_reduce)"},
    {"--ranks", "N", CLI_INT, AT(ranks), .lo = 1, .hi = MAX_THREADS,
     .help = "ranks as threads; under mpirun it is the launcher's number"},
    CLI_CROWD(struct options, crowd),
    {"--bytes", "LIST", CLI_OWN, .read = read_sizes, .help = "sizes such as 4K,256K,64M (default " SIZES ")"},
    {"--algorithm", "LIST", CLI_OWN, .read = read_algorithms, .help = "default: all, and what the table chooses"},
    {"--dtype", "D", CLI_CHOICE, AT(dtype_name), .choices = "f32|bf16|f16|f64|i32|i64", .help = ""},
    {"--progress", "P", CLI_CHOICE, AT(progress), .choices = "inline|thread", .help = ""},
    {"--checksum", NULL, CLI_FLAG, AT(checksum), .help = "messages between hosts carry checksums (comm.checksum)"},
    {"--seconds", "S", CLI_REAL, AT(seconds), .least = 0.001, .most = 60, .help = "per row"},
    {"--ranks-per-host", "N", CLI_INT, AT(ranks_per_host), .lo = 1, .hi = MAX_THREADS,
     .help = "pretend that so many threads share a host"},
    {"--table", NULL, CLI_FLAG, AT(table),
     .help = "rules for comm.table on stdout: the fastest algorithm for each operation and size"},
    CLI_JSON(struct options, json),
};
static const struct cli_table table = {
    .command = "bench comm",
    .usage = "[options], or mpirun -np N tutti bench comm [options]",
    .about = "Times operations between ranks, by every algorithm that has them.\n",
    CLI_OPTIONS(options),
};

/* As cli_read. */
static bool parse(int argc, char **argv, struct options *o, int *status)
{
    *o = (struct options){.ranks = 2, .seconds = 0.3, .dtype_name = "f32", .progress = "inline"};
    o->op[COMM_ALL_REDUCE] = true;
    read_sizes(o, SIZES);
    if (!cli_read(&table, argc, argv, o, status)) return false;
    o->dtype = cli_dtype(o->dtype_name);
    return true;
}

/* ---- timing ------------------------------------------------------------------------------------------------- */

struct measured {
    struct comm *c;
    struct bench *b;
    enum comm_op op;
    int64_t n; /* elements of the vector, a multiple of the ranks */
    char *in, *out;
    void (*once)(struct measured *m);
};

static void operation(struct measured *m)
{
    struct comm *c = m->c;
    enum dtype t = m->b->o->dtype;
    int64_t each = m->n / comm_size(c), ticket = 0;
    size_t mine = (size_t)(each * comm_rank(c)) * dtype_bytes(t);
    switch (m->op) {
    case COMM_BROADCAST: ticket = comm_broadcast(c, m->in, m->n, t, 0, "bench"); break;
    case COMM_REDUCE: ticket = comm_reduce(c, m->in, m->out, m->n, t, COMM_SUM, 0, "bench"); break;
    case COMM_ALL_REDUCE: ticket = comm_all_reduce(c, m->in, m->in, m->n, t, COMM_SUM, "bench"); break;
    case COMM_REDUCE_SCATTER: ticket = comm_reduce_scatter(c, m->in, m->in + mine, each, t, COMM_SUM, "bench"); break;
    case COMM_ALL_GATHER: ticket = comm_all_gather(c, m->in + mine, m->in, each, t, "bench"); break;
    default: ticket = comm_all_to_all(c, m->in, m->out, each, t, "bench"); break;
    }
    comm_wait(c, ticket);
}

static void meet(struct meeting *m, int n)
{
    int round = atomic_load(&m->round);
    if (atomic_fetch_add(&m->here, 1) + 1 == n) {
        atomic_store(&m->here, 0);
        atomic_store(&m->round, round + 1);
        return;
    }
    for (int i = 0; atomic_load_explicit(&m->round, memory_order_acquire) == round; i++)
        if (i > 2000) sched_yield();
}

/* What anybody would write for this many threads. */
static void one_pass(struct measured *m)
{
    int k = comm_size(m->c);
    int64_t lo, hi;
    float **x = m->b->buffer;
    team_split(m->n, comm_rank(m->c), k, &lo, &hi);
    meet(&m->b->meeting, k);
    if (k == 2) {
        float *a = x[0], *b = x[1];
        for (int64_t i = lo; i < hi; i++) a[i] = b[i] = a[i] + b[i];
    } else if (k == 4) {
        float *a = x[0], *b = x[1], *c = x[2], *d = x[3];
        for (int64_t i = lo; i < hi; i++) a[i] = b[i] = c[i] = d[i] = a[i] + b[i] + c[i] + d[i];
    } else {
        for (int64_t i = lo; i < hi; i++) {
            float sum = x[0][i];
            for (int p = 1; p < k; p++) sum += x[p][i];
            for (int p = 0; p < k; p++) x[p][i] = sum;
        }
    }
    meet(&m->b->meeting, k);
}

static void memory(struct measured *m)
{
    meet(&m->b->meeting, comm_size(m->c));
    memcpy(m->out, m->in, (size_t)m->n * 4);
    meet(&m->b->meeting, comm_size(m->c));
}

/* The mean of n runs, all ranks starting together; the slowest rank's. */
static double batch(struct measured *m, int64_t n)
{
    comm_wait(m->c, comm_barrier(m->c, "bench"));
    double from = clock_now_s();
    for (int64_t i = 0; i < n; i++) m->once(m);
    double s = (clock_now_s() - from) / (double)n;
    comm_wait(m->c, comm_all_reduce(m->c, &s, &s, 1, DT_F64, COMM_MAX, "bench"));
    return s;
}

static double measure(struct measured *m)
{
    double s = batch(m, 1), best = INFINITY;
    s = batch(m, s < 0.01 ? 5 : 1);
    int64_t n = 1 + (int64_t)(m->b->o->seconds / BATCHES / (s > 1e-7 ? s : 1e-7));
    for (int i = 0; i < BATCHES; i++) {
        double now = batch(m, n);
        if (now < best) best = now;
    }
    return best;
}

static void add_row(struct measured *m, const char *algorithm, bool chosen)
{
    double s = measure(m);
    struct bench *b = m->b;
    if (comm_rank(m->c) != 0 || b->r.n_rows == MAX_ROWS) return;
    struct bench_comm_row *r = &b->r.rows[b->r.n_rows++];
    *r = (struct bench_comm_row){.op = m->op,
                                 .chosen = chosen,
                                 .time_s = s,
                                 .bytes = m->n * (int64_t)dtype_bytes(b->o->dtype)};
    snprintf(r->algorithm, sizeof r->algorithm, "%s", algorithm);
    r->rank_order = comm_keeps_order(algorithm);
}

static bool wanted(const struct options *o, const char *algorithm)
{
    for (const char *p = o->algorithms; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL)
        if (word_is(p, algorithm)) return true;
    return !o->algorithms;
}

/* Collective(c). */
static int library_row(struct measured *m, bool chosen, struct err *e)
{
    struct measured plain = *m;
    size_t bytes = (size_t)m->n * dtype_bytes(m->b->o->dtype);
    plain.in = mem_pages_new(bytes);
    plain.out = mem_pages_new(bytes);
    int rc = plain.in && plain.out ? OK : err_set(e, ERR_MEMORY, "no memory for buffers of %zu bytes", bytes);
    if (!rc) memset(plain.in, 0, bytes), memset(plain.out, 0, bytes);
    rc = comm_agree(m->c, rc, e);
    if (!rc) add_row(&plain, "native", chosen);
    mem_pages_free(plain.in, bytes);
    mem_pages_free(plain.out, bytes);
    return rc;
}

static int rows_of(struct measured *m, struct err *e)
{
    const struct options *o = m->b->o;
    char chosen[24];
    comm_algorithm_set(m->c, NULL, e);
    snprintf(chosen, sizeof chosen, "%s", comm_choice(m->c, m->op, m->n, o->dtype, COMM_SUM));
    m->once = operation;
    for (const char *const *a = comm_algorithms(); *a; a++) {
        if (!wanted(o, *a) || !comm_can(m->c, *a, m->op, m->n, o->dtype, COMM_SUM)) continue;
        comm_algorithm_set(m->c, *a, e);
        bool picked = !strcmp(*a, chosen);
        int rc = OK;
        if (!strcmp(*a, "native") && comm_pages_shared(m->c)) rc = library_row(m, picked, e);
        else add_row(m, *a, picked);
        if (rc) return rc;
        if (comm_status(m->c, e)) return comm_status(m->c, e);
    }
    comm_algorithm_set(m->c, NULL, e);
    if (m->op != COMM_ALL_REDUCE || strcmp(comm_transport(m->c), "local") || o->dtype != DT_F32) return OK;
    m->b->buffer[comm_rank(m->c)] = (float *)(void *)m->in;
    m->once = one_pass;
    add_row(m, "one_pass", false);
    m->once = memory;
    add_row(m, "memory", false);
    return comm_status(m->c, e);
}

static int run_rank(struct comm *c, void *arg, struct err *e)
{
    struct bench *b = arg;
    if (comm_rank(c) == 0) {
        b->r.ranks = comm_size(c);
        b->r.hosts = comm_ranks_here(c) < comm_size(c);
        snprintf(b->r.transport, sizeof b->r.transport, "%s", comm_transport(c));
    }
    for (int op = 0; op < COMM_OP_N; op++)
        for (int s = 0; b->o->op[op] && s < b->o->n_sizes; s++) {
            int64_t unit = 16 * comm_size(c), each = (int64_t)dtype_bytes(b->o->dtype);
            struct measured m = {.c = c,
                                 .b = b,
                                 .op = (enum comm_op)op,
                                 .n = (b->o->sizes[s] / each + unit - 1) / unit * unit};
            size_t bytes = (size_t)(m.n * each);
            m.in = comm_pages_new(c, bytes);
            m.out = comm_pages_new(c, bytes);
            int rc = m.in && m.out ? OK : err_set(e, ERR_MEMORY, "no memory for buffers of %zu bytes", bytes);
            if (!rc) memset(m.in, 0, bytes), memset(m.out, 0, bytes);
            rc = comm_agree(c, rc, e);
            if (!rc) rc = rows_of(&m, e);
            if (m.in) comm_pages_free(c, m.in, bytes);
            if (m.out) comm_pages_free(c, m.out, bytes);
            if (rc) return rc;
        }
    return comm_status(c, e);
}

static int run_launched(struct bench *b, const struct comm_config *cfg, bool *print, struct err *e)
{
    struct comm *world;
    int rc = comm_world_mpi(&world, cfg, e);
    if (rc) return rc;
    rc = run_rank(world, b, e);
    *print = comm_rank(world) == 0;
    if (rc) comm_abort(world, e);
    comm_free(world);
    return rc;
}

int cmd_bench_comm(int argc, char **argv)
{
    struct options o;
    int rc;
    struct err e = {0};
    if (!parse(argc, argv, &o, &rc)) return rc;
    if (!comm_launched() && crowd_check(o.ranks, o.crowd, &e)) return cli_fail(&e);
    struct bench b = {.o = &o, .r.rows = xcalloc(MAX_ROWS, sizeof *b.r.rows), .r.dtype = o.dtype};
    struct comm_config cfg = {.checksum = o.checksum,
                              .progress = strcmp(o.progress, "thread") ? COMM_INLINE : COMM_THREAD,
                              .ranks_per_host = (int)o.ranks_per_host};
    bool print = true;
    rc = comm_launched() ? run_launched(&b, &cfg, &print, &e) : comm_run_local((int)o.ranks, &cfg, run_rank, &b, &e);
    if (!rc && print) (o.json ? bench_comm_json : o.table ? bench_comm_rules : bench_comm_print)(&b.r);
    xfree(b.r.rows);
    return rc ? cli_fail(&e) : 0;
}
