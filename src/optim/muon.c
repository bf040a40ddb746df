/* SPDX-License-Identifier: Apache-2.0 */
/* Everything is laid out when the engine is made: which matrices this rank has something of, who along tp computes
 * each, routes and buffers. A turn is up to as many matrices of a unit as ranks share one: rank i's is the i-th.
 * Turns of like matrices (those of the next layer) have one pair of routes, since routes go between the turn's
 * buffers and not between parameters. Rejected: momentum on the rank that computes (a checkpoint could not say what a
 * rank holds of it as of all else), and shards orthogonalised by themselves (another optimizer in each layout). */
#include "optim/muon.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/flat.h"
#include "state/own.h"
#include "state/route_run.h"

enum { STEPS = 5 };
/* Jordan's quintic: steepest at 0 of those that stay near 1. */
static const float quintic[3] = {3.4445f, -4.7750f, 2.0315f};
static const float unit_eps = 1e-7f;

struct matrix {
    int param;
    int n, *sharer; /* coordinates of tp between which it is cut, ascending; n 1: whole here */
};

/* Matrices first .. first + n of the list, in one turn. */
struct turn {
    int first, n;
    int routes; /* index, -1: whole on every rank */
};

/* From where the parts of u are to their rank's whole, and from the whole o to parts. */
struct routes {
    int like, n; /* the first matrix of a turn, and how many */
    struct route **gather, **spread;
    struct route_run *to, *back;
};

struct muon {
    struct store *s;
    struct stream *st;
    struct comm *tp;
    int me; /* along tp */
    struct matrix *list;
    int n, room;
    struct turn *turn;
    int n_turns, turns_room;
    struct routes *routes;
    int n_routes, routes_room;
    struct buffer sum;         /* of squares, f64 */
    struct buffer whole;       /* fp32, the largest matrix */
    struct buffer x, y;        /* bf16, the same */
    struct buffer g, h, wide;  /* bf16 k x k; fp32, of tall ones */
    struct buffer part, bpart; /* of a turn: u in fp32, o in bf16 */
    struct buffer scratch;
};

static const struct param *param_of(const struct muon *x, int i) { return &x->s->table->p[x->list[i].param]; }

static bool is_cut(const struct param *p) { return p->held != p->numel; }

/* The same on every rank: nothing of this rank's own is compared. */
static bool same_kind(const struct param *a, const struct param *b) { return layout_equal(&a->layout, &b->layout); }

/* What lies at coordinate `coord` of tp, of a matrix that this rank holds. */
static struct region box_at(const struct muon *x, const struct param *p, int coord)
{
    const struct param_table *t = x->s->table;
    return layout_box(&p->layout, t->rank + (coord - x->me) * t->mesh.stride[AXIS_TP]);
}

/* ---- on paper ---- */
/* Who has a part of it: of the ranks of tp, of an expert's those of etp, which are neighbours among them. A rank of tp
 * may have none (fewer heads than ranks). */
static void find_sharers(const struct muon *x, struct matrix *m)
{
    const struct param *p = &x->s->table->p[m->param];
    const int *size = x->s->table->mesh.size;
    bool of_experts = false;
    for (int i = 0; i < p->layout.n_places; i++) of_experts |= p->layout.place[i].on.axis == AXIS_ETP;
    int block = of_experts ? size[AXIS_ETP] : size[AXIS_TP], first = x->me / block * block;
    m->sharer = xcalloc(to_size(block), sizeof *m->sharer);
    if (!is_cut(p)) m->sharer[m->n++] = x->me;
    for (int k = first; is_cut(p) && k < first + block; k++) {
        struct region box = box_at(x, p, k);
        if (region_volume(&box)) m->sharer[m->n++] = k;
    }
}

static void list_matrices(struct muon *x, const struct optim_config *c)
{
    for (int i = 0; i < x->s->table->n; i++) {
        const struct param *p = &x->s->table->p[i];
        if (!p->stepped || !optim_of(c, p->group)->whole || !store_held(x->s, i, STORE_MASTER).n) continue;
        CHECK(p->nd == 2, "%s is no matrix", p->name);
        GROW(x->list, x->n, x->room, 1);
        x->list[x->n] = (struct matrix){.param = i};
        find_sharers(x, &x->list[x->n++]);
    }
}

/* Units in their order; in each those of the same sharers together, the costliest first. */
static int in_turns(const struct muon *x, const struct matrix *a, const struct matrix *b)
{
    const struct param *p = &x->s->table->p[a->param], *q = &x->s->table->p[b->param];
    int u = x->s->units.of_param[a->param], v = x->s->units.of_param[b->param];
    if (u != v) return u - v;
    if (a->n != b->n) return a->n - b->n;
    int who = memcmp(a->sharer, b->sharer, to_size(a->n) * sizeof *a->sharer);
    if (who) return who;
    return own_cost(p) != own_cost(q) ? (own_cost(p) < own_cost(q)) - (own_cost(p) > own_cost(q)) : a->param - b->param;
}

/* Nearly sorted as they come: units in a row. */
static void sort_matrices(struct muon *x)
{
    for (int i = 1; i < x->n; i++) {
        struct matrix m = x->list[i];
        int at = i;
        for (; at > 0 && in_turns(x, &m, &x->list[at - 1]) < 0; at--) x->list[at] = x->list[at - 1];
        x->list[at] = m;
    }
}

/* Element offset of the j-th part of a turn that begins with matrix `first`. */
static int64_t part_at(const struct muon *x, int first, int j)
{
    int64_t at = 0;
    for (int i = 0; i < j; i++) at += param_of(x, first + i)->held;
    return at;
}

static int make_routes(struct muon *x, struct routes *r, struct err *e)
{
    int rc = OK;
    struct route_tensor *to = xcalloc(to_size(r->n), sizeof *to), *back = xcalloc(to_size(r->n), sizeof *back);
    struct holding *parts = xcalloc(to_size(x->list[r->like].n), sizeof *parts);
    r->gather = xcalloc(to_size(r->n), sizeof(struct route *));
    r->spread = xcalloc(to_size(r->n), sizeof(struct route *));
    for (int j = 0; !rc && j < r->n; j++) {
        const struct matrix *m = &x->list[r->like + j];
        const struct param *p = param_of(x, r->like + j);
        struct shape shape = shape_of(p->nd, p->n);
        struct region all = region_whole(&shape), mine = box_at(x, p, x->me);
        int64_t at = part_at(x, r->like, j);
        for (int k = 0; k < m->n; k++)
            parts[k] = (struct holding){.holder = m->sharer[k], .box = box_at(x, p, m->sharer[k])};
        struct holding one = {.holder = m->sharer[j], .box = all};
        rc = route_new_holdings(&r->gather[j], parts, m->n, &one, 1, e);
        if (!rc) rc = route_new_holdings(&r->spread[j], &one, 1, parts, m->n, e);
        bool here = x->me == one.holder;
        struct route_end part = {&x->part, to_size(at) * 4, mine}, narrow = {&x->bpart, to_size(at) * 2, mine},
                         whole = {here ? &x->whole : NULL, 0, all}, result = {here ? &x->x : NULL, 0, all};
        to[j] = (struct route_tensor){r->gather[j], DT_F32, part, whole};
        back[j] = (struct route_tensor){r->spread[j], DT_BF16, result, narrow};
    }
    if (!rc) rc = route_run_new(&r->to, x->tp, x->st, to, r->n, NULL, e);
    if (!rc) rc = route_run_new(&r->back, x->tp, x->st, back, r->n, NULL, e);
    xfree(to);
    xfree(back);
    xfree(parts);
    return rc;
}

static int find_routes(struct muon *x, int first, int n)
{
    for (int i = 0; i < x->n_routes; i++) {
        bool like = x->routes[i].n == n;
        for (int j = 0; like && j < n; j++)
            like = same_kind(param_of(x, x->routes[i].like + j), param_of(x, first + j));
        if (like) return i;
    }
    GROW(x->routes, x->n_routes, x->routes_room, 1);
    x->routes[x->n_routes] = (struct routes){.like = first, .n = n};
    return x->n_routes++;
}

static bool same_turn(const struct muon *x, int a, int b)
{
    const struct matrix *m = &x->list[a], *o = &x->list[b];
    return x->s->units.of_param[m->param] == x->s->units.of_param[o->param] && m->n == o->n &&
           !memcmp(m->sharer, o->sharer, to_size(m->n) * sizeof *m->sharer);
}

static void deal_turns(struct muon *x)
{
    for (int i = 0; i < x->n;) {
        struct turn r = {.first = i, .n = 1, .routes = -1};
        int sharers = x->list[i].n;
        if (sharers > 1) {
            while (r.n < sharers && i + r.n < x->n && same_turn(x, i, i + r.n)) r.n++;
            r.routes = find_routes(x, i, r.n);
        }
        GROW(x->turn, x->n_turns, x->turns_room, 1);
        x->turn[x->n_turns++] = r;
        i += r.n;
    }
}

/* ---- products ---- */
static struct view matrix_of(void *p, enum dtype t, int64_t m, int64_t n)
{
    return (struct view){.p = p, .dtype = t, .nd = 2, .n = {m, n}, .stride = n};
}

enum product { GRAM_WIDE, GRAM_TALL, SQUARE, LEFT, RIGHT, PRODUCTS };

/* Directions of a linear layer: its forward product is a b^T, towards inputs a b, towards weights a^T b. */
static struct kernel_call product_of(const struct muon *x, enum product what, int64_t m, int64_t n)
{
    int64_t k = m < n ? m : n;
    struct view X = matrix_of(x->x.p, DT_BF16, m, n), Y = matrix_of(x->y.p, DT_BF16, m, n),
                G = matrix_of(x->g.p, DT_BF16, k, k), H = matrix_of(x->h.p, DT_BF16, k, k),
                wide = matrix_of(x->wide.p, DT_F32, k, k);
    struct kernel_call c =
        {.op = OP_LINEAR, .phase = KERNEL_FWD, .at = ATTRS(linear, 0), .n_in = 2, .n_out = 1, .what = "newton-schulz"};
    const struct op_attrs gram = ATTRS(linear, .gram = true);
    switch (what) {
    case GRAM_WIDE:
        c.at = gram;
        c.in[0] = c.in[1] = X, c.out[0] = G;
        break;
    case SQUARE: /* G is its own transpose */
        c.at = gram;
        c.in[0] = c.in[1] = G, c.out[0] = H;
        break;
    case RIGHT: c.in[0] = X, c.in[1] = H, c.out[0] = Y; break;
    case LEFT:
        c.phase = KERNEL_BWD_IN;
        c.in[0] = matrix_of(NULL, DT_BF16, m, n), c.in[1] = X, c.out[0] = matrix_of(NULL, DT_BF16, m, k);
        c.dout[0] = H, c.din[0] = Y;
        break;
    case GRAM_TALL:
        c.phase = KERNEL_BWD_W;
        c.at = gram;
        c.in[0] = X, c.in[1] = matrix_of(NULL, DT_BF16, k, k), c.out[0] = matrix_of(NULL, DT_BF16, m, k);
        c.dout[0] = X, c.din[1] = wide;
        break;
    case PRODUCTS: break;
    }
    return c;
}

static void multiply(const struct muon *x, enum product what, int64_t m, int64_t n)
{
    struct kernel_call c = product_of(x, what, m, n);
    c.scratch = x->scratch.p;
    c.scratch_bytes = kernel_scratch(x->st->kernels, &c);
    kernel_enqueue(x->st, &c);
}

static void blend(const struct muon *x, void *to, float a, const void *one, float b, const void *other, int64_t n)
{
    flat_update(x->st, &(struct update_args){.kind = UPDATE_BLEND,
                                             .n = n,
                                             .at = {[BLEND_TO] = {to, DT_BF16},
                                                    [BLEND_X] = {(void *)(uintptr_t)one, DT_BF16},
                                                    [BLEND_Y] = {(void *)(uintptr_t)other, DT_BF16}},
                                             .f = {[BLEND_A] = a, [BLEND_B] = b}});
}

/* x.x becomes the orthogonalised x.whole. */
static void orthogonalise(const struct muon *x, int64_t m, int64_t n)
{
    int64_t all = m * n, k = m < n ? m : n;
    stream_zero(x->st, x->sum.p, x->sum.bytes);
    flat_sum_squares(x->st, x->whole.p, all, x->sum.p);
    flat_update(x->st, &(struct update_args){.kind = UPDATE_UNIT,
                                             .n = all,
                                             .at = {[UNIT_TO] = {x->x.p, DT_BF16},
                                                    [UNIT_FROM] = {x->whole.p, DT_F32},
                                                    [UNIT_SUM] = {x->sum.p, DT_F64}},
                                             .f = {[UNIT_EPS] = unit_eps}});
    for (int i = 0; i < STEPS; i++) {
        multiply(x, m <= n ? GRAM_WIDE : GRAM_TALL, m, n);
        if (m > n) flat_cast(x->st, x->g.p, DT_BF16, x->wide.p, DT_F32, k * k);
        multiply(x, SQUARE, m, n);
        blend(x, x->h.p, quintic[1], x->g.p, quintic[2], x->h.p, k * k);
        multiply(x, m <= n ? LEFT : RIGHT, m, n);
        blend(x, x->x.p, quintic[0], x->x.p, 1, x->y.p, all);
    }
}

/* ---- memory ---- */
static size_t max_size(size_t a, size_t b) { return a > b ? a : b; }

static int make_buffers(struct muon *x, struct err *e)
{
    size_t whole = 0, square = 0, tall = 0, part = 0, scratch = 0;
    for (int r = 0; r < x->n_turns; r++)
        if (x->turn[r].routes >= 0) part = max_size(part, to_size(part_at(x, x->turn[r].first, x->turn[r].n)));
    for (int i = 0; i < x->n; i++) {
        const struct param *p = param_of(x, i);
        int64_t m = p->n[0], n = p->n[1], k = m < n ? m : n;
        whole = max_size(whole, to_size(m * n));
        square = max_size(square, to_size(k * k));
        if (m > n) tall = max_size(tall, to_size(k * k));
        for (int what = 0; what < PRODUCTS; what++) {
            bool used =
                what == SQUARE || (m <= n ? what == GRAM_WIDE || what == LEFT : what == GRAM_TALL || what == RIGHT);
            struct kernel_call c = product_of(x, (enum product)what, m, n);
            if (used) scratch = max_size(scratch, kernel_scratch(x->st->kernels, &c));
        }
    }
    const struct {
        struct buffer *b;
        enum mem_cat cat;
        size_t bytes;
    } all[] = {{&x->sum, MEM_SCRATCH, sizeof(double)}, {&x->whole, MEM_SCRATCH, 4 * whole},
               {&x->x, MEM_SCRATCH, 2 * whole},        {&x->y, MEM_SCRATCH, 2 * whole},
               {&x->g, MEM_SCRATCH, 2 * square},       {&x->h, MEM_SCRATCH, 2 * square},
               {&x->wide, MEM_SCRATCH, 4 * tall},      {&x->part, MEM_COMM, 4 * part},
               {&x->bpart, MEM_COMM, 2 * part},        {&x->scratch, MEM_SCRATCH, scratch}};
    int rc = OK;
    for (size_t i = 0; !rc && i < sizeof all / sizeof *all; i++)
        rc = buffer_new(all[i].b, x->st->dev, all[i].cat, all[i].bytes, e);
    return rc;
}

int muon_new(struct muon **out, struct store *s, const struct optim_config *c, struct stream *st, struct comm *tp,
             struct err *e)
{
    bool any = false;
    *out = NULL;
    for (int g = 0; g < PARAM_GROUPS; g++) any |= optim_of(c, (enum param_group)g)->whole;
    if (!any) return OK;
    struct muon *x = *out = xcalloc(1, sizeof *x);
    *x = (struct muon){.s = s, .st = st, .tp = tp, .me = tp ? comm_rank(tp) : 0};
    list_matrices(x, c);
    sort_matrices(x);
    deal_turns(x);
    int rc = make_buffers(x, e);
    for (int i = 0; !rc && i < x->n_routes; i++) rc = make_routes(x, &x->routes[i], e);
    if (rc) muon_free(x);
    if (rc) *out = NULL;
    return rc;
}

void muon_free(struct muon *x)
{
    if (!x) return;
    for (int i = 0; i < x->n_routes; i++) {
        route_run_free(x->routes[i].to);
        route_run_free(x->routes[i].back);
        for (int j = 0; x->routes[i].spread && j < x->routes[i].n; j++) {
            route_free(x->routes[i].gather[j]);
            route_free(x->routes[i].spread[j]);
        }
        xfree(x->routes[i].gather);
        xfree(x->routes[i].spread);
    }
    struct buffer *const all[] = {&x->sum, &x->whole, &x->x,    &x->y,     &x->g,
                                  &x->h,   &x->wide,  &x->part, &x->bpart, &x->scratch};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) buffer_free(all[i]);
    for (int i = 0; i < x->n; i++) xfree(x->list[i].sharer);
    xfree(x->list);
    xfree(x->turn);
    xfree(x->routes);
    xfree(x);
}

/* ---- a step ---- */
static float *u_of(const struct muon *x, const struct turn *r, int j)
{
    if (r->routes < 0) return x->whole.p;
    return x->part.p ? (float *)x->part.p + part_at(x, r->first, j) : NULL;
}

static const bf16 *o_of(const struct muon *x, const struct turn *r, int j)
{
    if (r->routes < 0) return x->x.p;
    return x->bpart.p ? (const bf16 *)x->bpart.p + part_at(x, r->first, j) : NULL;
}

/* Gradients of bf16 come widened, a stretch at a time. */
static void blend_momentum(const struct optim_call *call, struct optim_stretch r, float *u)
{
    const struct store *s = call->s;
    for (int64_t left = r.n, m; left > 0; left -= m) {
        const float *grad = optim_widen(call, r.param, r.grad, left, &m);
        optim_update(call, r.param,
                     (struct update_args){.kind = UPDATE_MOMENTUM,
                                          .n = m,
                                          .at = {[MOMENTUM_M] = {r.array[0], DT_F32},
                                                 [MOMENTUM_GRAD] = {(void *)(uintptr_t)grad, DT_F32},
                                                 [MOMENTUM_U] = {u, DT_F32}},
                                          .f = {[MOMENTUM_MU] = (float)call->c->muon_momentum},
                                          .flag = call->c->muon_nesterov});
        r.array[0] += to_size(m) * sizeof(float);
        r.grad += to_size(m) * dtype_bytes(s->grad_dtype);
        u += m;
    }
}

static void apply_some(const struct optim_call *call, const struct optim_stretch *r, const struct param *p,
                       const bf16 *o)
{
    double size = 0.2 * sqrt((double)(p->n[0] > p->n[1] ? p->n[0] : p->n[1]));
    optim_update(call, r->param,
                 (struct update_args){.kind = UPDATE_APPLY,
                                      .n = r->n,
                                      .at = {[APPLY_MASTER] = {r->master, DT_F32},
                                             [APPLY_O] = {(void *)(uintptr_t)o, DT_BF16},
                                             [APPLY_PARAM] = {r->copy, call->s->dtype}},
                                      .g = {[BY_RATE] = optim_rate(call, r->group),
                                            [BY_SIZE] = size,
                                            [BY_DECAY] = call->c->weight_decay},
                                      .flag = r->decay});
}

static void apply(const struct optim_call *call, struct optim_stretch r, const struct param *p, const bf16 *o)
{
    for (int64_t left = r.n; left > 0; left -= r.n) {
        r.n = r.weights && left > STORE_WIDEN ? STORE_WIDEN : left;
        optim_master_begin(call, &r);
        apply_some(call, &r, p, o);
        optim_master_end(call, &r);
        optim_advance(call, &r, r.n);
        o += r.n;
    }
}

/* Of the turn's matrices the one that this rank computes; NULL: none. */
static const struct param *mine_of(const struct muon *x, const struct turn *r)
{
    for (int j = 0; j < r->n; j++)
        if (x->list[r->first].sharer[j] == x->me) return param_of(x, r->first + j);
    return NULL;
}

static void run_turn(struct muon *x, const struct turn *r, const struct optim_call *call)
{
    bool runs = !x->st->dev->counts_only;
    const struct param *mine = mine_of(x, r);
    struct routes *way = r->routes < 0 ? NULL : &x->routes[r->routes];
    for (int j = 0; runs && j < r->n; j++)
        blend_momentum(call, optim_stretch_of(call, x->list[r->first + j].param), u_of(x, r, j));
    if (way) {
        route_run_begin(way->to, "matrices of muon");
        route_run_end(way->to);
    }
    if (runs && mine) orthogonalise(x, mine->n[0], mine->n[1]);
    if (way) {
        route_run_begin(way->back, "updates of muon");
        route_run_end(way->back);
    }
    for (int j = 0; runs && j < r->n; j++) {
        struct optim_stretch s = optim_stretch_of(call, x->list[r->first + j].param);
        apply(call, s, param_of(x, r->first + j), o_of(x, r, j));
    }
}

double muon_flops(const struct muon *x)
{
    double sum = 0;
    for (int i = 0; x && i < x->n_turns; i++) {
        const struct param *p = mine_of(x, &x->turn[i]);
        if (!p) continue;
        double k = (double)(p->n[0] < p->n[1] ? p->n[0] : p->n[1]), l = (double)p->numel / k;
        sum += STEPS * (4 * k * k * l + 2 * k * k * k);
    }
    return sum;
}

static int unit_of(const struct muon *x, int turn) { return x->s->units.of_param[x->list[x->turn[turn].first].param]; }

/* Turns stand in the order of units. */
static int first_turn(const struct muon *x, int unit)
{
    int lo = 0, hi = x->n_turns;
    while (lo < hi) {
        int mid = lo + (hi - lo) / 2;
        if (unit_of(x, mid) < unit) lo = mid + 1;
        else hi = mid;
    }
    return lo;
}

void muon_step(struct muon *x, const struct optim_call *call, int first, int n)
{
    if (n <= 0) return;
    const int *unit = x->s->units.of_param;
    for (int i = first_turn(x, unit[first]); i < x->n_turns && unit_of(x, i) <= unit[first + n - 1]; i++) {
        int param = x->list[x->turn[i].first].param;
        if (param >= first && param < first + n) run_turn(x, &x->turn[i], call);
    }
}
