/* SPDX-License-Identifier: Apache-2.0 */
/* A pass writes a list: a hash per result of each instruction, in the order in which this rank computed them. The list
 * of whoever computed my part comes to me in one message, and I look for the first entry that differs. Results of
 * messages that travel are left out: their bytes may not be there yet, and whoever reads them puts out another result.
 * Rejected: comparing losses (backward is not in them), comparing summed gradients (the sum takes the ranks in another
 * order), keeping results instead of hashes (as large as all activations of the step). */
#include "train/witness.h"

#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

enum { NOBODY = -1 };

struct result {
    uint64_t hash;
    const struct program *p;
    const struct instr *i;
    int which; /* of its outputs, or of the inputs that it has gradients of */
};

struct list { /* of one pass */
    struct result *of;
    int64_t n, room;
};

struct witness {
    struct engine *g;
    const struct ranks *ranks;
    int n_parts, shift;
    int *holder; /* [n_parts] the rank of the world that has that part and this rank's place on the other axes */
    struct list mine, others;
    struct list *into; /* what a pass writes; NULL: nothing */
    uint64_t *told;    /* what came of the others' lists */
    int64_t told_room;
    /* whoever looked before */
    void (*before)(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i);
    void *before_ctx;
    struct { /* the step that is under way */
        witness_part_fn *part;
        void *ctx;
        int64_t step;
        struct witness_report *found;
        int rc;
        struct err e;
    } now;
};

/* ---- looking ---- */
static uint64_t hash_view(const struct engine *g, const struct view *v)
{
    enum { ROOM = 1 << 14 };
    char room[ROOM];
    struct hash64 sum;
    int64_t rows = view_rows(v), cols = view_cols(v), stride = v->nd > 1 ? v->stride : cols;
    size_t width = dtype_bytes(v->dtype), row = to_size(cols) * width;
    bool shows = device_shows(g->dev, v->p);
    if (shows && stride == cols) return hash64(device_here(v->p), to_size(rows) * row);
    hash64_init(&sum);
    for (int64_t r = 0; r < rows; r++) {
        const char *at = (const char *)v->p + to_size(r * stride) * width;
        for (size_t k = 0, n; k < row; k += n) {
            n = row - k < ROOM ? row - k : ROOM;
            hash64_add(&sum, device_peek(g->stream, at + k, n, room), n);
        }
    }
    return hash64_value(&sum);
}

/* How many rows go to experts is data; behind them lies what was there before. */
static bool counts(const struct engine *g, const struct instr *i, const struct view *v)
{
    if (!v->p || !v->nd) return false;
    if (!g->cfg.model.moe.experts || i->kphase == KERNEL_BWD_W) return true;
    return view_rows(v) == g->cfg.micro * engine_seq_here(g);
}

static void look(void *ctx, const struct program *p, const struct kernel_call *c, const struct instr *i)
{
    struct witness *w = ctx;
    struct engine *g = w->g;
    if (w->before) w->before(w->before_ctx, p, c, i);
    if (!w->into || op_row(i->op)->travels || op_row(i->op)->by != BY_KERNEL) return;
    const struct view *v = i->kphase == KERNEL_FWD ? c->out : c->din;
    int n = i->kphase == KERNEL_FWD ? c->n_out : c->n_in;
    for (int k = 0; k < n; k++) {
        if (!counts(g, i, &v[k])) continue;
        GROW(w->into->of, w->into->n, w->into->room, 1);
        w->into->of[w->into->n++] = (struct result){hash_view(g, &v[k]), p, i, k};
    }
}

/* The gradients of a part that this rank computes for another; its list is w->others. */
static int compute(struct witness *w, int shift, struct err *e)
{
    struct engine_batch b;
    struct engine_report r;
    int part = (w->ranks->part + shift) % w->n_parts;
    int rc = comm_agree(w->ranks->world, w->now.part(w->now.ctx, part, &b, e), e);
    if (rc) return rc;
    w->others.n = 0;
    w->into = &w->others;
    engine_gradients(w->g, &b, w->now.step, &r);
    w->into = NULL;
    return engine_status(w->g, e);
}

/* ---- comparing ---- */
/* The list of the rank that is `shift` parts behind, about my part: its hashes in w->told, *n of them. */
static int trade(struct witness *w, int shift, int64_t *n, struct err *e)
{
    struct comm *world = w->ranks->world;
    int to = w->holder[(w->ranks->part + shift) % w->n_parts],
        from = w->holder[(w->ranks->part + w->n_parts - shift) % w->n_parts];
    int64_t have = w->others.n;
    comm_wait(world,
              comm_exchange(world, (struct comm_p2p[]){{true, to, &have, 1, DT_I64}, {false, from, n, 1, DT_I64}}, 2,
                            "how many results were witnessed"));
    int rc = comm_status(world, e);
    if (rc) return rc;
    GROW(w->told, 0, w->told_room, *n);
    int64_t *mine = xcalloc(to_size(have) + 1, sizeof *mine);
    for (int64_t i = 0; i < have; i++) mine[i] = (int64_t)w->others.of[i].hash;
    comm_wait(world,
              comm_exchange(world,
                            (struct comm_p2p[]){{true, to, mine, have, DT_I64}, {false, from, w->told, *n, DT_I64}}, 2,
                            "what was witnessed"));
    xfree(mine);
    return comm_status(world, e);
}

static int64_t first_difference(const struct witness *w, int64_t n)
{
    for (int64_t i = 0; i < n && i < w->mine.n; i++)
        if (w->told[i] != w->mine.of[i].hash) return i;
    return n == w->mine.n ? NOBODY : n < w->mine.n ? n : w->mine.n;
}

/* ---- who it was ---- */
struct vote { /* on the rank whose part it is, about the entry that differs */
    int64_t at;
    int mine, witness;     /* ranks of the world */
    uint64_t first, other; /* what they had */
    int wrong;             /* NOBODY: cannot be told */
    char why[128];
};

/* Two ranks only: each says it once more. */
static int ask_again(struct witness *w, struct vote *v, struct err *e)
{
    int64_t n = 0;
    int rc = compute(w, 0, e);
    uint64_t again = v->at >= 0 && v->at < w->others.n ? w->others.of[v->at].hash : v->first;
    if (!rc) rc = compute(w, w->shift, e);
    if (!rc) rc = trade(w, w->shift, &n, e);
    if (rc || v->at < 0) return rc;
    uint64_t other = v->at < n ? w->told[v->at] : v->other;
    bool changed = again != v->first && again == v->other, witness_changed = other != v->other && other == v->first;
    if (changed != witness_changed) v->wrong = changed ? v->mine : v->witness;
    if (v->wrong != NOBODY) snprintf(v->why, sizeof v->why, "computed once more it has what the other had");
    return OK;
}

static int ask_third(struct witness *w, struct vote *v, struct err *e)
{
    int64_t n = 0;
    int rc = compute(w, 2 * w->shift, e);
    if (!rc) rc = trade(w, 2 * w->shift, &n, e);
    if (rc || v->at < 0 || v->at >= n) return rc;
    int third = w->holder[(w->ranks->part + w->n_parts - 2 * w->shift) % w->n_parts];
    uint64_t says = w->told[v->at];
    if (says == v->first) v->wrong = v->witness;
    else if (says == v->other) v->wrong = v->mine;
    if (v->wrong != NOBODY)
        snprintf(v->why, sizeof v->why, "rank %d, asked as well, has what rank %d has", third,
                 v->wrong == v->mine ? v->witness : v->mine);
    return OK;
}

/* The result's name, as people know it. */
static void name(const struct witness *w, int64_t at, char *tensor, size_t room, struct str *out)
{
    static const char *const phase[KERNEL_N_PHASES] = {"forward", "backward", "weight gradient"};
    snprintf(tensor, room, "the number of results");
    if (at < 0 || at >= w->mine.n) {
        str_puts(out, "the number of results");
        return;
    }
    const struct result *x = &w->mine.of[at];
    const struct node *d = &x->p->tape->nodes[x->i->node];
    bool same = d->op == x->i->op || x->i->op == OP_LINEAR_SCALED || x->i->op == OP_GROUPED_SCALED;
    bool forward = x->i->kphase == KERNEL_FWD;
    int microbatch = 0;
    for (int64_t i = 0; i < at; i++) microbatch += w->mine.of[i].i == x->i && w->mine.of[i].which == x->which;
    const char *text = same ? tape_tensor(x->p->tape, forward ? d->out[x->which] : d->in[x->which])->name
                            : op_row(x->i->op)->name; /* lowering put it in */
    snprintf(tensor, room, "%s%s", forward ? "" : "gradient of ", text);
    str_printf(out, "%s%s (operation %s, %s", forward ? "" : "the gradient of ", text, op_row(x->i->op)->name,
               phase[x->i->kphase]);
    if (d->layer >= 0) str_printf(out, ", layer %d", d->layer);
    str_printf(out, ", microbatch %d of that rank)", microbatch);
}

static void tell(const struct witness *w, const struct vote *v, struct witness_report *f)
{
    struct str text = {0}, what = {0};
    name(w, v->at, f->tensor, sizeof f->tensor, &what);
    if (v->wrong != NOBODY) {
        f->ranks[f->n_ranks++] = v->wrong;
        str_printf(&text,
                   "rank %d computed other bits than rank %d of the same part of the batch (rank %d's), first in %s: "
                   "%s",
                   v->wrong, v->wrong == v->mine ? v->witness : v->mine, v->mine, str_text(&what), v->why);
    } else {
        f->ranks[f->n_ranks++] = v->mine < v->witness ? v->mine : v->witness;
        f->ranks[f->n_ranks++] = v->mine < v->witness ? v->witness : v->mine;
        str_printf(&text,
                   "ranks %d and %d computed other bits of the same part of the batch (rank %d's), first in %s; "
                   "which of them is right cannot be told",
                   f->ranks[0], f->ranks[1], v->mine, str_text(&what));
    }
    snprintf(f->text, sizeof f->text, "%s", str_text(&text));
    str_free(&text);
    str_free(&what);
}

/* Of all that differs, what comes first on the rank with the lowest number is told. */
static int judge(struct witness *w, struct err *e)
{
    struct comm *world = w->ranks->world;
    int64_t n = 0;
    int rc = trade(w, w->shift, &n, e);
    if (rc) return rc;
    int64_t at = first_difference(w, n), none = INT64_MAX,
            key = at < 0 ? none : at * comm_size(world) + comm_rank(world), least = key;
    comm_wait(world, comm_all_reduce(world, &least, &least, 1, DT_I64, COMM_MIN, "does a witness disagree?"));
    if ((rc = comm_status(world, e)) || least == none) return rc;
    int teller = (int)(least % comm_size(world));
    struct vote v = {.at = NOBODY, .wrong = NOBODY};
    if (teller == comm_rank(world)) {
        v.at = at;
        v.mine = teller;
        v.witness = w->holder[(w->ranks->part + w->n_parts - w->shift) % w->n_parts];
        v.first = at < w->mine.n ? w->mine.of[at].hash : 0;
        v.other = at < n ? w->told[at] : 0;
    }
    rc = w->n_parts / w->shift > 2 ? ask_third(w, &v, e) : ask_again(w, &v, e);
    if (rc) return rc;
    struct witness_report f = {.differ = true};
    if (teller == comm_rank(world)) tell(w, &v, &f);
    comm_wait(world, comm_broadcast(world, &f, sizeof f, DT_U8, teller, "what a witness says"));
    *w->now.found = f;
    return comm_status(world, e);
}

/* The step's gradients are made, and parameters are as they were. */
static void before_update(void *ctx)
{
    struct witness *w = ctx;
    w->into = NULL;
    w->now.rc = judge(w, &w->now.e);
}

int witness_step(struct witness *w, witness_part_fn *part, void *ctx, const struct engine_batch *own, int64_t step,
                 double lr, struct engine_report *r, bool *finite, struct witness_report *found, struct err *e)
{
    struct engine *g = w->g;
    *found = (struct witness_report){0};
    *finite = true;
    w->now.part = part;
    w->now.ctx = ctx;
    w->now.step = step;
    w->now.found = found;
    w->now.rc = OK;
    w->before = g->watch;
    w->before_ctx = g->watch_ctx;
    g->watch = look;
    g->watch_ctx = w;
    int rc = compute(w, w->shift, e);
    if (!rc) {
        w->mine.n = 0;
        w->into = &w->mine;
        g->before_update = before_update;
        g->before_update_ctx = w;
        *finite = engine_step(g, own, step, lr, r);
        rc = w->now.rc;
        if (rc) *e = w->now.e;
    }
    w->into = NULL;
    g->before_update = NULL;
    g->watch = w->before;
    g->watch_ctx = w->before_ctx;
    return rc;
}

/* ---- made once ---- */
enum { PART, TP, CP, PP, EP, ETP, KERNELS, PLACE };

static bool same_place(const int64_t *a, const int64_t *b)
{
    for (int i = TP; i <= ETP; i++)
        if (a[i] != b[i]) return false;
    return true;
}

static int find_holder(const int64_t *all, int n, int part, const int64_t *place)
{
    for (int r = 0; r < n; r++)
        if (all[r * PLACE + PART] == part && same_place(all + r * PLACE, place)) return r;
    return NOBODY;
}

/* Every rank finds a rank of its place that many parts away. */
static bool fits(const int64_t *all, int n, int n_parts, int shift)
{
    for (int r = 0; r < n; r++) {
        const int64_t *mine = all + r * PLACE;
        if (find_holder(all, n, (int)(mine[PART] + shift) % n_parts, mine) == NOBODY) return false;
    }
    return true;
}

int witness_new(struct witness **out, struct engine *g, const struct ranks *r, struct err *e)
{
    *out = NULL;
    if (!r->world || r->n_servers)
        return err_set(e, ERR_REQUEST,
                       "run.replay_every: %s; set it to 0, or train on several data-parallel ranks without servers",
                       r->n_servers ? "workers of a parameter server have no witness"
                                    : "one rank has nobody who computes the same");
    int n = comm_size(r->world), me = comm_rank(r->world), parts = 0, shift = 0;
    const struct par *p = &g->cfg.par;
    int64_t *all = xcalloc((size_t)n * PLACE, sizeof *all),
            mine[PLACE] = {r->part,
                           p->rank[AXIS_TP],
                           p->rank[AXIS_CP],
                           p->rank[AXIS_PP],
                           p->rank[AXIS_EP],
                           p->rank[AXIS_ETP],
                           (int64_t)hash64(g->kernels.isa, strlen(g->kernels.isa))};
    comm_wait(r->world, comm_all_gather(r->world, mine, all, PLACE, DT_I64, "who can be whose witness"));
    int rc = comm_status(r->world, e);
    for (int i = 0; i < n; i++)
        if (all[i * PLACE + PART] >= parts) parts = (int)all[i * PLACE + PART] + 1;
    for (int s = 1; s < parts && !shift; s++)
        if (fits(all, n, parts, s)) shift = s;
    for (int i = 0; !rc && i < n; i++)
        if (all[i * PLACE + KERNELS] != all[KERNELS])
            rc = err_set(e, ERR_REQUEST,
                         "run.replay_every: rank %d computes with other kernels than rank 0 (another CPU), so its bits "
                         "differ by right; set run.kernels: ref, use machines of one kind, or set run.replay_every: 0",
                         i);
    if (!rc && !shift)
        rc =
            err_set(e, ERR_REQUEST,
                    "run.replay_every: no two ranks (with ep: groups of ranks) compute the same; it needs two replicas "
                    "of the data: raise parallel.dp_replicate or dp_shard, or set run.replay_every: 0");
    if (!rc) {
        struct witness *w = xcalloc(1, sizeof *w);
        *w = (struct witness){.g = g, .ranks = r, .n_parts = parts, .shift = shift};
        w->holder = xcalloc((size_t)parts, sizeof *w->holder);
        for (int i = 0; i < parts; i++) w->holder[i] = find_holder(all, n, i, all + me * PLACE);
        *out = w;
    }
    xfree(all);
    return rc;
}

void witness_free(struct witness *w)
{
    if (!w) return;
    xfree(w->holder);
    xfree(w->mine.of);
    xfree(w->others.of);
    xfree(w->told);
    xfree(w);
}
