/* SPDX-License-Identifier: Apache-2.0 */
/* Greedy, in the files' order. A chunk that several ranks hold parts of is one reading and has one reader, which is
 * what keeps its bytes from being read twice: columns of a matrix that tp cuts, pieces of small tensors that ranks of
 * dp_shard step. Rejected: ranks read what they hold (columns are read by all of tp); one rank reads and broadcasts
 * (the others' disks and links wait); whoever is free reads (what nobody else wants would travel); reading first
 * whatever lies on a rank's own disk (a checkpoint is on a file system that all see). */
#include "engine/readers.h"

#include <string.h>

#include "base/mem.h"

/* ---- who holds what ---- */
void boxes_open(struct boxes *h, const struct engine *g)
{
    int n = g->params.mesh.n_ranks ? g->params.mesh.n_ranks : 1;
    *h = (struct boxes){.g = g, .n = n, .which = -1, .param = -1};
    h->box = xcalloc(to_size(n), sizeof *h->box);
}

void boxes_close(struct boxes *h) { xfree(h->box); }

void boxes_look(struct boxes *h, int which, int param)
{
    const struct store *s = &h->g->store;
    const struct array *a = &s->array[which];
    const struct param *p = &h->g->params.p[param];
    if (h->which == which && h->param == param) return;
    h->which = which;
    h->param = param;
    struct layout l = a->whole || !s->units.shared ? p->layout : param_stepped(p);
    for (int r = 0; r < h->n; r++) {
        struct region box = layout_holds(&l, r) ? layout_box(&l, r) : (struct region){.nd = p->nd};
        h->box[r] = array_box(&a->row, p, &box);
    }
    CHECK(region_volume(&h->box[h->g->params.rank]) == store_held(s, param, which).n,
          "%s of %s is not where its layout says", a->row.name, p->name);
}

bool readers_has(const struct engine *g, int which, int param)
{
    const struct store *s = &g->store;
    if (!s->array[which].row.saved || !store_has(s, which) || !store_covers(s, which, param)) return false;
    const struct array *a = store_array_of(s, which, param);
    return a->buf.dev == g->dev && !a->buf.host && !a->row.away;
}

static int64_t width_of(const struct engine *g, int which, int param)
{
    return (int64_t)dtype_bytes(store_array_of(&g->store, which, param)->row.dtype);
}

/* ---- on paper ---- */
struct builder {
    struct readers *r;
    int64_t room, round;
    struct boxes h;
    int64_t *in, *here; /* by holder, in this round: bytes received, read */
    int64_t *wants;     /* of the reading at hand */
};

/* Elements of a reading that each holder wants; returns of how many ranks. */
static int look_for(struct builder *b, const struct region *box, int64_t lo, int64_t n)
{
    struct region part[REGION_STRETCH], common;
    int k = region_stretch(box, lo, n, part), some = 0;
    for (int i = 0; i < b->h.n; i++) {
        b->wants[i] = 0;
        for (int j = 0; j < k; j++)
            if (region_intersect(&part[j], &b->h.box[i], &common)) b->wants[i] += region_volume(&common);
        some += b->wants[i] > 0;
    }
    return some;
}

/* Of those that can read it the ones that hold some of it come first. */
static int choose(const struct builder *b, const struct ckpt *c, const struct reading *x)
{
    int best = -1;
    for (int i = 0; i < b->h.n; i++) {
        if (!ckpt_sees(c, x->tensor, x->box, i)) continue;
        bool wants = b->wants[i] > 0, was = best >= 0 && b->wants[best] > 0;
        if (best < 0 || wants > was || (wants == was && b->r->reads[i] < b->r->reads[best])) best = i;
    }
    CHECK(best >= 0, "nobody can read box %d of tensor %lld", x->box, (long long)x->tensor);
    return best;
}

/* The round at hand has room for a reading: read by one, received by the others. */
static bool fits(const struct builder *b, int reader, int64_t bytes, int64_t width)
{
    for (int i = 0; i < b->h.n; i++)
        if (i != reader && b->wants[i] && b->in[i] + b->wants[i] * width > b->round) return false;
    return b->here[reader] + bytes <= b->round;
}

static void next_round(struct builder *b)
{
    size_t bytes = to_size(b->h.n) * sizeof *b->in;
    memset(b->in, 0, bytes);
    memset(b->here, 0, bytes);
    b->r->n_rounds++;
}

static void add(struct builder *b, struct reading x, int64_t width)
{
    struct readers *r = b->r;
    int64_t bytes = x.n * width;
    if (!r->n || !fits(b, x.reader, bytes, width)) next_round(b);
    x.round = r->n_rounds - 1;
    x.at = to_size(b->here[x.reader]);
    b->here[x.reader] += (bytes + 63) / 64 * 64;
    for (int i = 0; i < b->h.n; i++) {
        if (i == x.reader) continue;
        b->in[i] += b->wants[i] * width;
        r->sent += b->wants[i] * width;
    }
    r->reads[x.reader] += bytes;
    r->bytes += bytes;
    if (r->n == b->room) {
        b->room = b->room ? 2 * b->room : 256;
        r->p = xrealloc(r->p, to_size(b->room) * sizeof *r->p);
    }
    r->p[r->n++] = x;
}

static void add_box(struct builder *b, const struct ckpt *c, struct reading x)
{
    struct region box = ckpt_box(c, x.tensor, x.box);
    int64_t all = region_volume(&box), width = width_of(b->h.g, x.which, x.param);
    bool alone;
    int64_t step = ckpt_stretch(c, x.tensor, x.box, &alone);
    x.reader = -1;
    if (alone && look_for(b, &box, 0, all)) x.reader = choose(b, c, &x);
    for (x.lo = 0; x.lo < all; x.lo += x.n) {
        x.n = all - x.lo < step ? all - x.lo : step;
        if (!look_for(b, &box, x.lo, x.n) && !alone) continue;
        if (!alone) x.reader = choose(b, c, &x);
        if (x.reader >= 0) add(b, x, width);
    }
}

void readers_plan(struct readers *r, const struct engine *g, const struct ckpt *c, int64_t round)
{
    struct builder b = {.r = r, .round = round};
    boxes_open(&b.h, g);
    *r = (struct readers){.n_holders = b.h.n, .reads = xcalloc(to_size(b.h.n), sizeof *r->reads)};
    int64_t **list[] = {&b.in, &b.here, &b.wants};
    for (int i = 0; i < 3; i++) *list[i] = xcalloc(to_size(b.h.n), sizeof **list[i]);
    for (int which = 0; which < g->store.n_arrays; which++) {
        const struct array_row *row = &g->store.array[which].row;
        for (int i = 0; i < g->params.n; i++) {
            if (!readers_has(g, which, i)) continue;
            struct reading x = {.which = which, .param = i, .tensor = ckpt_find(c, row->name, g->params.p[i].name)};
            CHECK(x.tensor >= 0, "%s/%s is not in a checkpoint that was checked", row->name, g->params.p[i].name);
            boxes_look(&b.h, which, i);
            for (int n = ckpt_at(c, x.tensor).n_boxes; x.box < n; x.box++) add_box(&b, c, x);
        }
    }
    for (int i = 0; i < 3; i++) xfree(*list[i]);
    boxes_close(&b.h);
}

void readers_free(struct readers *r)
{
    xfree(r->p);
    xfree(r->reads);
    *r = (struct readers){0};
}

void readers_print(const struct readers *r, struct str *out)
{
    char all[32], most[32], sent[32];
    int64_t max = 0;
    for (int i = 0; i < r->n_holders; i++) max = r->reads[i] > max ? r->reads[i] : max;
    str_printf(out, "%s, each byte once", str_bytes(all, (double)r->bytes));
    if (r->n_holders > 1)
        str_printf(out, ", at most %s by one of %d ranks; %s sent in %d round%s", str_bytes(most, (double)max),
                   r->n_holders, str_bytes(sent, (double)r->sent), r->n_rounds, r->n_rounds == 1 ? "" : "s");
}
