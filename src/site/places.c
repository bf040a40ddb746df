/* SPDX-License-Identifier: Apache-2.0 */
/* A rank brings what it knows of itself, all get it, and rank 0 tells it; the sets of cores travel as wide as the
 * widest of them. Everything after the gathering is a function of the list, so that tests make lists of machines that
 * they do not have. */
#include "site/places.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/thread.h"

enum { SHOWN = 8, WORDS = CORES_MOST / 64 };

/* ---- gather ---- */

/* What the process that started this one may use, where that is a launcher of MPI ranks: what it could have given them.
 * Slurm's daemon is not asked: it may use more than the job. */
static int cores_above(void)
{
    static const char *const launchers[] = {"mpirun",  "mpiexec", "orterun",        "orted",
                                            "prterun", "prted",   "hydra_pmi_proxy"};
    char path[64], name[32] = "";
    struct cores c;
    snprintf(path, sizeof path, "/proc/%d/comm", (int)getppid());
    FILE *f = fopen(path, "r");
    if (!f) return 0;
    if (!fgets(name, sizeof name, f)) name[0] = 0;
    fclose(f);
    name[strcspn(name, ".\n")] = 0; /* mpirun.openmpi */
    for (size_t i = 0; i < sizeof launchers / sizeof *launchers; i++)
        if (!strcmp(name, launchers[i])) return cores_of(getppid(), &c) ? cores_count(&c) : 0;
    return 0;
}

/* Slurm sets it for who asked with --cpus-per-task, also where srun then does not follow it. */
static int cores_asked(void)
{
    const char *s = getenv("SLURM_CPUS_PER_TASK");
    int n = s ? atoi(s) : 0;
    return n > 0 ? n : 0;
}

static struct seat mine(struct comm *world, int threads)
{
    struct seat m = {.threads = threads, .quota = thread_quota_cores(), .above = cores_above(), .asked = cores_asked()};
    if (gethostname(m.host, sizeof m.host - 1)) m.host[0] = 0;
    if (world) m.on = comm_host(world, comm_rank(world));
    cores_of(0, &m.cores);
    return m;
}

static int words_of(const struct cores *c)
{
    int n = WORDS;
    while (n > 1 && !c->word[n - 1]) n--;
    return n;
}

int places_gather(struct places *p, struct comm *world, int threads, struct err *e)
{
    struct seat m = mine(world, threads);
    int n = world ? comm_size(world) : 1;
    int64_t words = words_of(&m.cores), head = (int64_t)offsetof(struct seat, cores);
    *p = (struct places){.n = n, .n_hosts = 1, .one_process = !world || !strcmp(comm_transport(world), "local")};
    p->seat = xcalloc((size_t)p->n + 1, sizeof *p->seat);
    for (int r = 0; p->one_process && r < p->n; r++) p->seat[r] = m;
    if (p->one_process) return OK;
    comm_wait(world, comm_all_reduce(world, &words, &words, 1, DT_I64, COMM_MAX, "numbers of cores"));
    int64_t each = head + words * (int64_t)sizeof *m.cores.word;
    char *all = xcalloc((size_t)n, (size_t)each);
    comm_wait(world, comm_all_gather(world, &m, all, each, DT_U8, "hosts and cores"));
    for (int r = 0; r < p->n; r++) {
        memcpy(&p->seat[r], all + r * each, (size_t)each);
        if (p->seat[r].on >= p->n_hosts) p->n_hosts = p->seat[r].on + 1;
    }
    xfree(all);
    return comm_status(world, e);
}

void places_free(struct places *p)
{
    xfree(p->seat);
    *p = (struct places){0};
}

/* ---- tell ---- */

static bool same_cores(const struct seat *a, const struct seat *b)
{
    return !memcmp(&a->cores, &b->cores, sizeof a->cores);
}

/* After the last of the ranks from `from` on that are on one host, and, with cores, alike in these and in threads. */
static int alike(const struct places *p, int from, bool cores)
{
    const struct seat *a = &p->seat[from];
    int to = from + 1;
    while (to < p->n && p->seat[to].on == a->on &&
           (!cores || (same_cores(a, &p->seat[to]) && a->threads == p->seat[to].threads)))
        to++;
    return to;
}

static void put_ranks(struct str *out, int from, int to)
{
    if (to - from == 1) str_printf(out, "rank %d", from);
    else str_printf(out, "ranks %d-%d", from, to - 1);
}

void places_hosts(const struct places *p, struct str *out)
{
    int shown = 0;
    str_printf(out, "%d", p->n_hosts);
    for (int from = 0, to; from < p->n; from = to) {
        to = alike(p, from, false);
        if (shown++ == SHOWN) {
            str_puts(out, ", ...");
            return;
        }
        str_printf(out, ", %s (", p->seat[from].host);
        put_ranks(out, from, to);
        str_putc(out, ')');
    }
}

void places_threads(const struct places *p, struct str *out)
{
    int least = p->seat[0].threads, most = least, cores = cores_count(&p->seat[0].cores);
    for (int r = 1; r < p->n; r++) {
        if (p->seat[r].threads < least) least = p->seat[r].threads;
        if (p->seat[r].threads > most) most = p->seat[r].threads;
    }
    if (least == most) str_printf(out, "%d per rank", least);
    else str_printf(out, "%d to %d per rank", least, most);
    if (cores > p->seat[0].quota) cores = p->seat[0].quota;
    if (p->one_process && least * p->n > cores)
        str_printf(out, ", %d in all take turns on %d core%s", least * p->n, cores, cores > 1 ? "s" : "");
}

enum bound { OWN, SHARED, MIXED, OVERLAP };

/* What a host's ranks do. a, b: the first two that overlap, and differ. */
static enum bound bound_on(const struct places *p, int host, int *a, int *b)
{
    int common = 0, n = 0;
    for (int i = 0; i < p->n; i++) {
        if (p->seat[i].on != host) continue;
        n++;
        for (int k = i + 1; k < p->n; k++) {
            if (p->seat[k].on != host || !cores_common(&p->seat[i].cores, &p->seat[k].cores, NULL)) continue;
            common++;
            if (!same_cores(&p->seat[i], &p->seat[k])) return *a = i, *b = k, OVERLAP;
        }
    }
    return !common ? OWN : common == n * (n - 1) / 2 ? SHARED : MIXED; /* pairs of sockets, say: equal or apart */
}

static enum bound bound_all(const struct places *p, int *a, int *b)
{
    enum bound all = OWN;
    int alone = 0;
    for (int h = 0; h < p->n_hosts; h++) {
        enum bound here = bound_on(p, h, a, b);
        if (here == OVERLAP) return OVERLAP;
        int ranks = 0;
        for (int r = 0; r < p->n; r++) ranks += p->seat[r].on == h;
        if (ranks == 1) alone++; /* both own and shared */
        else all = h == alone ? here : all == here ? all : MIXED;
    }
    return all;
}

const char *places_bound(const struct places *p)
{
    static const char *const words[] = {"own", "shared", "mixed", "overlap"};
    int a, b;
    return words[bound_all(p, &a, &b)];
}

void places_binding(const struct places *p, struct str *out)
{
    int shown = 0;
    str_puts(out, places_bound(p));
    for (int from = 0, to; from < p->n; from = to) {
        to = alike(p, from, true);
        if (shown++ == SHOWN) {
            str_puts(out, ", ...");
            return;
        }
        str_puts(out, ", ");
        put_ranks(out, from, to);
        str_puts(out, ": ");
        cores_print(&p->seat[from].cores, out);
    }
}

void places_put(const struct places *p, struct json_out *o)
{
    json_begin_array(o, "places");
    for (int from = 0, to; from < p->n; from = to) {
        struct str cores = {0};
        to = alike(p, from, true);
        cores_print(&p->seat[from].cores, &cores);
        json_begin_object(o, NULL);
        json_put_int(o, "first", from);
        json_put_int(o, "last", to - 1);
        json_put_string(o, "host", p->seat[from].host);
        json_put_string(o, "cores", str_text(&cores));
        json_put_int(o, "threads", p->seat[from].threads);
        json_end_object(o);
        str_free(&cores);
    }
    json_end_array(o);
}

/* ---- warn: the first host or rank that has it stands for all ---- */

struct on_host {
    int ranks, threads, cores, first, above;
    struct cores all;
};

static struct on_host sum_host(const struct places *p, int host)
{
    struct on_host s = {.first = -1};
    for (int r = 0; r < p->n; r++) {
        const struct seat *q = &p->seat[r];
        if (q->on != host) continue;
        if (s.first < 0) s.first = r;
        if (q->above > s.above) s.above = q->above;
        s.ranks++;
        s.threads += q->threads;
        cores_join(&s.all, &q->cores);
    }
    s.cores = cores_count(&s.all);
    return s;
}

/* Threads of one process with one thread each are what was asked for: as many ranks as the layout needs. */
static bool warn_turns(const struct places *p, const struct on_host *s, struct str *out)
{
    const struct seat *q = &p->seat[s->first];
    int cores = s->cores < q->quota ? s->cores : q->quota;
    if (s->threads <= cores || (p->one_process && q->threads == 1)) return false;
    str_printf(out, "%s: %d rank%s with %d threads on %d core%s%s: they take turns; ", q->host, s->ranks,
               s->ranks > 1 ? "s" : "", s->threads, cores, cores > 1 ? "s" : "",
               cores < s->cores ? " (the cgroup's quota)" : "");
    if (s->threads > s->ranks)
        str_printf(out, "run.threads=%d%s", cores > s->ranks ? cores / s->ranks : 1, p->one_process ? "" : ", or ");
    str_puts(out,
             p->one_process ? "\n" : "more cores for each rank (srun --cpus-per-task, mpirun --map-by slot:PE=N)\n");
    return true;
}

static bool warn_asked(const struct places *p, const struct on_host *s, struct str *out)
{
    for (int r = s->first; r < p->n; r++) {
        const struct seat *q = &p->seat[r];
        int has = cores_count(&q->cores);
        if (q->on != p->seat[s->first].on || p->one_process || q->asked <= has) continue;
        str_printf(out,
                   "%s: rank %d may use %d core%s, the job asked for %d per task: srun does not take that over from "
                   "sbatch; srun --cpus-per-task=%d, or export SRUN_CPUS_PER_TASK=%d\n",
                   q->host, r, has, has > 1 ? "s" : "", q->asked, q->asked, q->asked);
        return true;
    }
    return false;
}

static bool warn_idle(const struct places *p, const struct on_host *s, struct str *out)
{
    if (p->one_process || s->above <= s->cores) return false;
    str_printf(out,
               "%s: the launcher may use %d cores and bound its %d rank%s to %d of them, the others stay idle; mpirun "
               "--bind-to none, or --map-by slot:PE=%d\n",
               p->seat[s->first].host, s->above, s->ranks, s->ranks > 1 ? "s" : "", s->cores,
               s->above / s->ranks > 1 ? s->above / s->ranks : 1);
    return true;
}

/* More threads than a rank has cores, where all of them together would do. */
static bool warn_narrow(const struct places *p, const struct on_host *s, struct str *out)
{
    for (int r = s->first; r < p->n; r++) {
        const struct seat *q = &p->seat[r];
        int has = cores_count(&q->cores);
        if (q->on != p->seat[s->first].on || q->threads <= has || s->threads > s->cores) continue;
        str_printf(out, "%s: rank %d has %d threads on %d core%s (", q->host, r, q->threads, has, has > 1 ? "s" : "");
        cores_print(&q->cores, out);
        str_printf(out,
                   "): they take turns; run.threads=%d, or more cores for each rank (srun --cpus-per-task, mpirun "
                   "--map-by slot:PE=N)\n",
                   has);
        return true;
    }
    return false;
}

static void warn_overlap(const struct places *p, struct str *out)
{
    struct cores both;
    int a, b;
    if (p->one_process || bound_all(p, &a, &b) != OVERLAP) return;
    cores_common(&p->seat[a].cores, &p->seat[b].cores, &both);
    str_printf(out, "%s: ranks %d and %d may both use core%s ", p->seat[a].host, a, b,
               cores_count(&both) > 1 ? "s" : "");
    cores_print(&both, out);
    str_puts(out, ", and each has others: the slower of them makes all wait; bind all alike (srun --cpu-bind=cores, "
                  "mpirun --map-by slot:PE=N --bind-to core) or none (srun --cpu-bind=none, mpirun --bind-to none)\n");
}

void places_warnings(const struct places *p, struct str *out)
{
    typedef bool warn_fn(const struct places *, const struct on_host *, struct str *);
    static warn_fn *const kinds[] = {warn_turns, warn_narrow, warn_asked, warn_idle};
    bool told[sizeof kinds / sizeof *kinds] = {false};
    for (int h = 0; h < p->n_hosts; h++) {
        struct on_host s = sum_host(p, h);
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) told[k] = told[k] || kinds[k](p, &s, out);
    }
    warn_overlap(p, out);
}
