/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's hash of an array is a sum over chunks of 1 MiB, each salted with its place, so that the threads of the team
 * can take chunks in any order. A group finds out whether its ranks agree by one maximum over {h, ~h}: the largest of
 * ~h is ~ of the smallest h. Cost: every byte of the state is read once. Rejected: one hash over gathered values (all
 * of it would travel); gathering every rank's hash of every tensor each time (grows with ranks times tensors, and
 * nearly always says nothing). */
#include "engine/replicas.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/thread.h"

enum { CHUNK = 1 << 20, PARTS = 64 };

/* ---- what is here ---- */
/* Entries are numbered parameter after parameter, each with all arrays of the store's table: the same on every rank. */
static int param_of(const struct engine *g, int64_t entry) { return (int)(entry / g->store.n_arrays); }
static int array_of(const struct engine *g, int64_t entry) { return (int)(entry % g->store.n_arrays); }

struct held {              /* elements [lo, lo + n) of the box held here; n 0: nothing */
    const char *p;         /* on the device */
    struct stream *stream; /* that works on it */
    int64_t lo, n;
    enum dtype dtype;
};

static struct held held_of(const struct engine *g, int param, int array)
{
    const struct store *s = &g->store;
    const struct array *a = &s->array[array];
    if (array == STORE_GRAD || !array_is_here(a) || !array_covers(&a->row, &s->table->p[param]))
        return (struct held){0};
    struct array_span x = store_held(s, param, array);
    return (struct held){array_at(a, x.at), store_stream(s, array, g->stream), x.lo, x.n, a->row.dtype};
}

static bool serves(const struct engine *g)
{
    return g->cfg.n_servers && g->cfg.server >= 0;
} /* a shard that nobody else has */

static bool has(const struct engine *g, int64_t entry)
{
    return !serves(g) && held_of(g, param_of(g, entry), array_of(g, entry)).n > 0;
}

static uint64_t salted(uint64_t v, int64_t place)
{
    v = (v ^ (uint64_t)(place + 1) * 0x9e3779b97f4a7c15u) * 0xd6e8feb86659fd93u;
    return v ^ v >> 32;
}

/* Elements [lo, hi) of what is held. */
static uint64_t hash_range(const struct held *h, int64_t lo, int64_t hi)
{
    enum { ROOM = 1 << 16 };
    size_t width = dtype_bytes(h->dtype), n = to_size(hi - lo) * width;
    struct hash64 sum;
    char room[ROOM];
    if (device_shows(h->stream->dev, h->p)) return hash64(h->p + to_size(lo) * width, n);
    hash64_init(&sum);
    for (size_t at = 0, m; at < n; at += m) {
        m = n - at < ROOM ? n - at : ROOM;
        hash64_add(&sum, device_peek(h->stream, h->p + to_size(lo) * width + at, m, room), m);
    }
    return hash64_value(&sum);
}

struct hashing {
    const struct engine *g;
    uint64_t *sum; /* [members][entries]; numbered as param_of and array_of read them */
    int64_t n;
};

static void hash_member(void *arg, int member, int n_members)
{
    const struct hashing *x = arg;
    int64_t turn = 0;
    for (int64_t i = 0; i < x->n; i++) {
        struct held h = held_of(x->g, param_of(x->g, i), array_of(x->g, i));
        int64_t each = CHUNK / (int64_t)dtype_bytes(h.n ? h.dtype : DT_F32);
        for (int64_t lo = 0, k = 0; lo < h.n; lo += each, k++)
            if (turn++ % n_members == member)
                x->sum[member * x->n + i] += salted(hash_range(&h, lo, lo + each < h.n ? lo + each : h.n), k);
    }
}

/* One number per entry. */
static uint64_t *hash_all(const struct engine *g, int64_t n)
{
    bool shows = true;
    for (int i = 0; i < g->store.n_arrays; i++) shows &= device_shows(g->dev, g->store.array[i].buf.p);
    struct team *team = shows ? g->dev->team : NULL; /* a stream is the rank's own: its team cannot enqueue */
    int members = team_size(team);
    struct hashing x = {.g = g, .n = n, .sum = xcalloc(to_size(n * members) + 1, sizeof *x.sum)};
    team_run(team, hash_member, &x);
    for (int64_t i = n; i < n * members; i++) x.sum[i % n] += x.sum[i];
    return x.sum;
}

/* ---- who must have the same ---- */
enum among { AMONG_REPLICAS, AMONG_SHARD, AMONG_EXPERT, AMONG_TP, AMONG_WORKERS, AMONG_STAGES };

/* Their hosts. */
static struct comm *group_of(const struct engine *g, int i)
{
    const struct host_groups *h = &g->cfg.host;
    struct comm *const fixed[AMONG_STAGES] = {h->replicate, h->shard, h->expert, h->tp, g->cfg.workers};
    return i < AMONG_STAGES ? fixed[i] : g->copies.set[i - AMONG_STAGES].host;
}

static int n_groups(const struct engine *g) { return AMONG_STAGES + g->copies.n; }

static bool is_among(const struct engine *g, int group, int param, int array)
{
    const struct store *s = &g->store;
    const struct param *p = &s->table->p[param];
    const struct array *a = &s->array[array];
    switch (group) {
    case AMONG_REPLICAS: return true;
    case AMONG_SHARD: return a->whole && !p->expert;
    case AMONG_EXPERT: return a->whole && p->expert;
    case AMONG_TP:
        return !p->expert &&
               (array_of_tensors(&a->row) || p->type.on[AXIS_TP] == SPMD_I || p->type.on[AXIS_TP] == SPMD_R);
    case AMONG_WORKERS: return true;
    default: return g->copies.set_of[param] == group - AMONG_STAGES;
    }
}

/* A rank of tp may hold nothing of a parameter: there are fewer heads than ranks. Then it has none of the values per
 * tensor that others must have alike. From the layout, so every rank of the group says the same. */
static bool some_hold_nothing(const struct engine *g, int group, int param)
{
    const struct layout *l = &g->params.p[param].layout;
    const struct mesh *m = &g->params.mesh;
    int n = group == AMONG_TP ? m->size[AXIS_TP] : 0, hold = 0;
    for (int k = 0; k < n; k++) {
        int rank = g->params.rank + (k - g->cfg.par.rank[AXIS_TP]) * m->stride[AXIS_TP];
        if (!layout_holds(l, rank)) continue;
        struct region box = layout_box(l, rank);
        hold += region_volume(&box) > 0;
    }
    return hold > 0 && hold < n;
}

/* A number for a maximum over {h, ~h}; of who has none the least there is, which changes no maximum. */
static void put_number(int64_t v[2], bool has, uint64_t h)
{
    v[0] = has ? (int64_t)h : INT64_MIN;
    v[1] = has ? (int64_t)~h : INT64_MIN;
}

static bool is_one_number(const int64_t v[2]) { return v[0] == ~v[1] || (v[0] == INT64_MIN && v[1] == INT64_MIN); }

/* What a rank tells a group: a number of all that every member has, then one of each entry that only some of them have.
 * Returns how many numbers that is; v NULL: counts. */
static int64_t numbers_for(const struct engine *g, int group, const uint64_t *hash, int64_t n, int64_t *v)
{
    uint64_t sum = 0;
    int64_t k = 1;
    for (int64_t i = 0; i < n; i++) {
        int param = param_of(g, i), array = array_of(g, i);
        if (!is_among(g, group, param, array)) continue;
        if (!some_hold_nothing(g, group, param)) {
            if (hash[i]) sum += salted(hash[i], i);
        } else {
            if (v) put_number(v + 2 * k, has(g, i), hash[i]);
            k++;
        }
    }
    if (v) put_number(v, true, sum);
    return k;
}

/* Ranks of every group have the same numbers: one message each. */
static bool groups_agree(const struct engine *g, const uint64_t *hash, int64_t n)
{
    bool same = true;
    for (int k = 0; k < n_groups(g); k++) {
        struct comm *c = group_of(g, k);
        if (!c) continue;
        int64_t count = numbers_for(g, k, hash, n, NULL), *v = xcalloc(to_size(2 * count), sizeof *v);
        numbers_for(g, k, hash, n, v);
        comm_wait(c, comm_all_reduce(c, v, v, 2 * count, DT_I64, COMM_MAX, "are replicas the same?"));
        for (int64_t i = 0; i < count; i++) same &= is_one_number(v + 2 * i);
        xfree(v);
    }
    return same;
}

/* Which entries differ, over all ranks: [n], not 0 where they do. */
static int32_t *differing(const struct engine *g, const uint64_t *hash, int64_t n)
{
    int32_t *differ = xcalloc(to_size(n) + 1, sizeof *differ);
    int64_t *v = xcalloc(to_size(2 * n) + 1, sizeof *v);
    for (int k = 0; k < n_groups(g); k++) {
        struct comm *c = group_of(g, k);
        if (!c) continue;
        for (int64_t i = 0; i < n; i++) {
            put_number(v + 2 * i, is_among(g, k, param_of(g, i), array_of(g, i)) && has(g, i), hash[i]);
        }
        comm_wait(c, comm_all_reduce(c, v, v, 2 * n, DT_I64, COMM_MAX, "which tensors differ"));
        for (int64_t i = 0; i < n; i++) differ[i] |= !is_one_number(v + 2 * i);
    }
    comm_wait(g->cfg.world, comm_all_reduce(g->cfg.world, differ, differ, n, DT_I32, COMM_MAX, "which tensors differ"));
    xfree(v);
    return differ;
}

/* ---- a closer look at one entry ---- */
/* Ranks that hold the same elements of a tensor must have the same values: what is gathered of every rank. */
struct holder {
    uint64_t hash;
    int64_t n, lo, box_lo[PARAM_MAX_DIM], box_n[PARAM_MAX_DIM];
};
enum { HOLDER = (int)(sizeof(struct holder) / sizeof(int64_t)) };

struct look {
    const struct engine *g;
    struct comm *world;
    int param, array, n_ranks;
    struct held here;
    struct holder *of; /* [n_ranks] */
    bool *in;          /* [n_ranks] whether a rank is one of those that are compared */
    bool *minority;    /* [n_ranks] */
    bool decided;
    int64_t lo, hi; /* elements of what they hold that are under suspicion */
};

static bool same_elements(const struct holder *a, const struct holder *b)
{
    return a->n && a->n == b->n && a->lo == b->lo && !memcmp(a->box_lo, b->box_lo, sizeof a->box_lo) &&
           !memcmp(a->box_n, b->box_n, sizeof a->box_n);
}

/* Dims of what is compared: values per tensor have one, however the tensor is cut. */
static int n_dims(const struct look *x)
{
    return array_of_tensors(&x->g->store.array[x->array].row) ? 1 : x->g->store.table->p[x->param].nd;
}

static void gather_holders(struct look *x, uint64_t hash)
{
    const struct param *p = &x->g->store.table->p[x->param];
    bool tensor = array_of_tensors(&x->g->store.array[x->array].row);
    struct holder mine = {.hash = hash, .n = x->here.n, .lo = x->here.lo, .box_n = {x->here.n}};
    struct region box = param_rows(p, 0, p->ln[0]);
    box = array_box(&x->g->store.array[x->array].row, p, &box);
    for (int d = 0; !tensor && d < p->nd; d++) {
        mine.box_lo[d] = box.lo[d];
        mine.box_n[d] = box.hi[d] - box.lo[d];
    }
    comm_wait(x->world, comm_all_gather(x->world, &mine, x->of, HOLDER, DT_I64, "who holds what"));
}

/* The first ranks that hold the same elements and differ, and those of them that most do not agree with. */
static bool find_minority(struct look *x)
{
    int first = -1, most = 0, votes = 0, seconds = 0;
    for (int a = 0; first < 0 && a < x->n_ranks; a++)
        for (int b = a + 1; b < x->n_ranks; b++)
            if (same_elements(&x->of[a], &x->of[b]) && x->of[a].hash != x->of[b].hash) first = a;
    for (int r = 0; first >= 0 && r < x->n_ranks; r++) {
        int n = 0;
        x->in[r] = same_elements(&x->of[first], &x->of[r]);
        for (int k = 0; x->in[r] && k < x->n_ranks; k++)
            n += same_elements(&x->of[first], &x->of[k]) && x->of[k].hash == x->of[r].hash;
        if (n > votes) votes = n, most = r;
    }
    for (int r = 0; first >= 0 && r < x->n_ranks; r++) {
        int n = 0;
        x->minority[r] = x->in[r] && x->of[r].hash != x->of[most].hash;
        for (int k = 0; x->minority[r] && k < x->n_ranks; k++) n += x->in[k] && x->of[k].hash == x->of[r].hash;
        if (n > seconds) seconds = n;
    }
    x->decided = first >= 0 && seconds < votes;
    return first >= 0;
}

/* Halves the range, in 64 parts at a time, down to the first element that differs. */
static void find_element(struct look *x)
{
    int me = comm_rank(x->world);
    uint64_t mine[PARTS], *all = xcalloc((size_t)x->n_ranks * PARTS, sizeof *all);
    x->lo = 0;
    for (int r = 0; r < x->n_ranks; r++)
        if (x->in[r]) x->hi = x->of[r].n;
    for (bool found = true; found && x->hi - x->lo > 1 && comm_status(x->world, NULL) == OK;) {
        int64_t lo, hi, from = x->lo, n = x->hi - x->lo;
        for (int k = 0; k < PARTS; k++) {
            region_split(n, k, PARTS, &lo, &hi);
            mine[k] = x->in[me] && hi > lo ? hash_range(&x->here, from + lo, from + hi) : 0;
        }
        comm_wait(x->world, comm_all_gather(x->world, mine, all, PARTS, DT_I64, "where replicas differ"));
        found = false;
        for (int k = 0; !found && k < PARTS; k++) {
            int first = -1;
            for (int r = 0; r < x->n_ranks; r++) {
                if (!x->in[r]) continue;
                if (first < 0) first = r;
                found |= all[r * PARTS + k] != all[first * PARTS + k];
            }
            region_split(n, k, PARTS, &lo, &hi);
            if (found) x->lo = from + lo, x->hi = from + hi;
        }
    }
    xfree(all);
}

static double value_at(const struct held *h, int64_t i)
{
    float room;
    size_t width = dtype_bytes(h->dtype);
    const void *v = device_peek(h->stream, h->p + to_size(i) * width, width, &room);
    if (h->dtype == DT_F32) return (double)*(const float *)v;
    if (h->dtype == DT_U8) return *(const uint8_t *)v;
    if (h->dtype == DT_BF16) return (double)bf16_to_f32(*(const bf16 *)v);
    return (double)f16_to_f32(*(const uint16_t *)v);
}

/* ---- in words ---- */
/* "rank 2", "ranks 0, 1, 3" of those that are marked. */
static void print_ranks(const struct look *x, bool minority, struct str *out)
{
    int n = 0;
    for (int r = 0; r < x->n_ranks; r++) n += x->in[r] && x->minority[r] == minority;
    str_puts(out, n == 1 ? "rank " : "ranks ");
    for (int r = 0, k = 0; r < x->n_ranks; r++) {
        if (!x->in[r] || x->minority[r] != minority) continue;
        if (k < 8) str_printf(out, "%s%d", k ? ", " : "", r);
        if (k++ == 8) str_printf(out, " and %d more", n - 8);
    }
}

/* "[3, 17]": the element's place in the whole tensor. */
static void print_element(const struct look *x, char *out, size_t n)
{
    int nd = n_dims(x);
    const struct holder *h = x->of;
    int64_t at[PARAM_MAX_DIM], i;
    for (int r = 0; r < x->n_ranks; r++)
        if (x->in[r]) h = &x->of[r];
    i = h->lo + x->lo;
    for (int d = nd; d-- > 0; i /= h->box_n[d]) at[d] = h->box_lo[d] + i % h->box_n[d];
    size_t k = (size_t)snprintf(out, n, "[");
    for (int d = 0; d < nd; d++) k += (size_t)snprintf(out + k, n - k, "%s%lld", d ? ", " : "", (long long)at[d]);
    snprintf(out + k, n - k, "]");
}

static void tell(const struct look *x, const double *value, struct replicas_report *r)
{
    struct str text = {0};
    int one = 0, other = 0;
    for (int i = 0; i < x->n_ranks; i++) {
        if (x->in[i] && x->minority[i]) one = i;
        if (x->in[i] && !x->minority[i]) other = i;
    }
    r->decided = x->decided;
    for (int i = 0; i < x->n_ranks; i++)
        if (x->in[i] && (x->minority[i] || !x->decided) && r->n_ranks < (int)(sizeof r->ranks / sizeof *r->ranks))
            r->ranks[r->n_ranks++] = i;
    print_ranks(x, true, &text);
    str_printf(&text, " %s %.9g in %s%s%s of %s, ", strncmp(str_text(&text), "ranks", 5) ? "has" : "have", value[one],
               r->element, x->array == STORE_PARAM ? "" : " of ", x->array == STORE_PARAM ? "" : r->array, r->tensor);
    print_ranks(x, false, &text);
    str_printf(&text, " %.9g%s", value[other], x->decided ? "" : "; which of them is right cannot be told");
    if (r->n_arrays > 1) str_printf(&text, "; %d more arrays differ", r->n_arrays - 1);
    snprintf(r->text, sizeof r->text, "%s", str_text(&text));
    str_free(&text);
}

static void look_closer(const struct engine *g, const uint64_t *hash, int64_t n, struct replicas_report *r)
{
    int32_t *differ = differing(g, hash, n);
    int64_t first = -1;
    for (int64_t i = n; i-- > 0;) {
        if (differ[i]) first = i;
        r->n_arrays += differ[i] != 0;
    }
    xfree(differ);
    if (first < 0) return; /* an error between the ranks, which the caller finds */
    struct look x = {.g = g,
                     .world = g->cfg.world,
                     .param = param_of(g, first),
                     .array = array_of(g, first),
                     .n_ranks = comm_size(g->cfg.world)};
    if (!serves(g)) x.here = held_of(g, x.param, x.array);
    x.of = xcalloc((size_t)x.n_ranks, sizeof *x.of);
    x.in = xcalloc((size_t)x.n_ranks, sizeof *x.in);
    x.minority = xcalloc((size_t)x.n_ranks, sizeof *x.minority);
    gather_holders(&x, hash[first]);
    if (comm_status(x.world, NULL) == OK && find_minority(&x)) {
        double *value = xcalloc((size_t)x.n_ranks, sizeof *value), mine;
        find_element(&x);
        mine = x.in[comm_rank(x.world)] ? value_at(&x.here, x.lo) : 0;
        comm_wait(x.world, comm_all_gather(x.world, &mine, value, 1, DT_F64, "what replicas hold"));
        r->array = g->store.array[x.array].row.name;
        snprintf(r->tensor, sizeof r->tensor, "%s", g->params.p[x.param].name);
        print_element(&x, r->element, sizeof r->element);
        tell(&x, value, r);
        xfree(value);
    }
    xfree(x.of);
    xfree(x.in);
    xfree(x.minority);
}

int replicas_compare(struct engine *g, struct replicas_report *r, struct err *e)
{
    *r = (struct replicas_report){0};
    if (!g->cfg.world || g->dev->counts_only) return OK;
    int64_t n = (int64_t)g->params.n * g->store.n_arrays;
    for (int u = 0; !serves(g) && u < g->store.units.n; u++)
        exchange_gather_wait(&g->exchange, u); /* what was published is here */
    stream_sync(g->stream);
    uint64_t *hash = serves(g) ? xcalloc(to_size(n) + 1, sizeof *hash) : hash_all(g, n);
    int64_t differ = !groups_agree(g, hash, n);
    comm_wait(g->cfg.world,
              comm_all_reduce(g->cfg.world, &differ, &differ, 1, DT_I64, COMM_MAX, "do replicas differ?"));
    r->differ = differ != 0;
    int rc = comm_status(g->cfg.world, e);
    if (!rc && r->differ) {
        look_closer(g, hash, n, r);
        rc = comm_status(g->cfg.world, e);
        CHECK(rc || r->text[0], "ranks do not agree, and no two of them hold the same elements of anything");
    }
    xfree(hash);
    return rc;
}
