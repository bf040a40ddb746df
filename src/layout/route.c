/* SPDX-License-Identifier: Apache-2.0 */
/* Routes by intersection.
 *
 * Senders with the same box, term and lane are replicas of each other: one class. A receiver starts with its whole
 * box as "wanted"; each class in turn delivers what it has of that and the rest stays wanted. For layouts the classes
 * are the cells of a grid in row-major order, so no cell is ever cut twice (region_subtract); for files that overlap,
 * the order is the caller's preference. One sorted list of messages comes out.
 *
 * Time O(receivers x classes + messages log messages), memory O(messages).
 */
#include "layout/route.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* ---- choosing -------------------------------------------------------------------------------------------- */

/* The senders, sorted so that the members of a class are neighbours. */
struct sender {
    struct holding h;
    int class_order; /* position of its class in the order of delivery */
};

struct chooser {
    struct sender *sender;
    int n;
    int64_t *sent; /* [holders] elements so far */
    const int *blocks;
    int n_blocks; /* sizes of the nested groups of ranks, e.g. tp, tp*cp, ...: nearness */
};

static int compare_class(const struct holding *a, const struct holding *b)
{
    if (a->lane != b->lane) return a->lane < b->lane ? -1 : 1;
    if (a->term != b->term) return a->term < b->term ? -1 : 1;
    return region_compare(&a->box, &b->box);
}

static int compare_by_class(const void *x, const void *y)
{
    const struct sender *a = x, *b = y;
    int c = compare_class(&a->h, &b->h);
    return c ? c : (a->class_order > b->class_order) - (a->class_order < b->class_order);
}

static int compare_by_order(const void *x, const void *y)
{
    const struct sender *a = x, *b = y;
    if (a->class_order != b->class_order) return a->class_order < b->class_order ? -1 : 1;
    return (a->h.holder > b->h.holder) - (a->h.holder < b->h.holder);
}

/* Groups senders into classes: row-major by box, or (in_order) by first appearance. */
static void group_senders(struct chooser *c, const struct holding *from, int n, bool in_order)
{
    c->sender = xcalloc(to_size(n) + 1, sizeof *c->sender);
    for (int i = 0; i < n; i++) {
        if (region_volume(&from[i].box) == 0) continue;
        c->sender[c->n++] = (struct sender){from[i], i};
    }
    qsort(c->sender, to_size(c->n), sizeof *c->sender, compare_by_class);
    for (int i = 0, first = 0, class = -1; i < c->n; i++) {
        if (i == 0 || compare_class(&c->sender[i - 1].h, &c->sender[i].h)) {
            first = c->sender[i].class_order; /* the smallest index of the class */
            class ++;
        }
        c->sender[i].class_order = in_order ? first : class;
    }
    qsort(c->sender, to_size(c->n), sizeof *c->sender, compare_by_order);
}

static int distance(const struct chooser *c, int a, int b)
{
    int d = 0;
    while (d < c->n_blocks && a / c->blocks[d] != b / c->blocks[d]) d++;
    return d;
}

/* The best of the replicas [lo, hi) for this receiver. */
static int choose(const struct chooser *c, int lo, int hi, int receiver)
{
    int best = -1, best_distance = 0;
    for (int i = lo; i < hi; i++) {
        int holder = c->sender[i].h.holder;
        if (holder == receiver) return holder;
        int d = distance(c, holder, receiver);
        if (best < 0 || d < best_distance || (d == best_distance && c->sent[holder] < c->sent[best])) {
            best = holder;
            best_distance = d;
        }
    }
    return best;
}

/* ---- building -------------------------------------------------------------------------------------------- */

struct wanted {
    struct region *box;
    int n, room;
};

static void want(struct wanted *w, const struct region *box)
{
    GROW(w->box, w->n, w->room, 1);
    w->box[w->n++] = *box;
}

struct builder {
    struct route *r;
    int64_t room;
    struct chooser c;
    struct wanted now, next;
};

static void add_msg(struct builder *b, struct route_msg m)
{
    struct route *r = b->r;
    GROW(r->msg, r->n, b->room, 1);
    r->msg[r->n++] = m;
    if (m.src != m.dst) b->c.sent[m.src] += region_volume(&m.box);
}

/* Everything `to` wants of one term. Leaves what nobody holds in b->now. */
static void serve(struct builder *b, const struct holding *to, int term)
{
    struct chooser *c = &b->c;
    b->now.n = 0;
    if (region_volume(&to->box)) want(&b->now, &to->box);
    for (int lo = 0, hi; lo < c->n && b->now.n; lo = hi) {
        const struct holding *h = &c->sender[lo].h;
        for (hi = lo + 1; hi < c->n && c->sender[hi].class_order == c->sender[lo].class_order;) hi++;
        struct region common;
        if (h->lane != to->lane || h->term != term || !region_intersect(&h->box, &to->box, &common)) continue;
        int src = choose(c, lo, hi, to->holder);
        b->next.n = 0;
        for (int i = 0; i < b->now.n; i++) {
            struct region rest[2 * SHAPE_MAX_DIMS];
            if (region_intersect(&b->now.box[i], &h->box, &common))
                add_msg(b, (struct route_msg){src, to->holder, term, common});
            int n = region_subtract(&b->now.box[i], &h->box, rest);
            for (int k = 0; k < n; k++) want(&b->next, &rest[k]);
        }
        struct wanted swap = b->now;
        b->now = b->next;
        b->next = swap;
    }
}

static int compare_msg(const void *x, const void *y)
{
    const struct route_msg *a = x, *b = y;
    if (a->dst != b->dst) return a->dst < b->dst ? -1 : 1;
    if (a->term != b->term) return a->term < b->term ? -1 : 1;
    int c = region_compare(&a->box, &b->box);
    return c ? c : (a->src > b->src) - (a->src < b->src);
}

/* by_src by counting: messages of one sender keep list order. */
static void index_by_src(struct route *r)
{
    int max = -1;
    for (int64_t i = 0; i < r->n; i++) max = r->msg[i].src > max ? r->msg[i].src : max;
    int64_t *start = xcalloc(to_size(max + 2), sizeof *start);
    for (int64_t i = 0; i < r->n; i++) start[r->msg[i].src + 1]++;
    for (int s = 0; s <= max; s++) start[s + 1] += start[s];
    r->by_src = xmalloc((to_size(r->n) + 1) * sizeof *r->by_src);
    for (int64_t i = 0; i < r->n; i++) r->by_src[start[r->msg[i].src]++] = i;
    xfree(start);
}

static void finish(struct route *r)
{
    if (r->n) qsort(r->msg, to_size(r->n), sizeof *r->msg, compare_msg);
    index_by_src(r);
}

static int build(struct route **out, const struct holding *from, int n_from, const struct holding *to, int n_to,
                 bool in_order, const int *blocks, int n_blocks, struct err *e)
{
    struct builder b = {.r = xcalloc(1, sizeof *b.r), .c = {.blocks = blocks, .n_blocks = n_blocks}};
    int max = 0, rc = OK;
    b.r->n_terms = 1;
    for (int i = 0; i < n_from; i++) {
        max = from[i].holder > max ? from[i].holder : max;
        if (from[i].term >= b.r->n_terms) b.r->n_terms = from[i].term + 1;
    }
    b.c.sent = xcalloc(to_size(max) + 1, sizeof *b.c.sent);
    group_senders(&b.c, from, n_from, in_order);
    for (int i = 0; i < n_to && !rc; i++)
        for (int term = 0; term < b.r->n_terms && !rc; term++) {
            char box[256];
            serve(&b, &to[i], term);
            if (b.now.n)
                rc = err_set(e, ERR_CORRUPT, "nobody holds %s, which %d wants", region_print(box, &b.now.box[0]),
                             to[i].holder);
        }
    xfree(b.c.sender);
    xfree(b.c.sent);
    xfree(b.now.box);
    xfree(b.next.box);
    finish(b.r);
    *out = rc ? NULL : b.r;
    if (rc) route_free(b.r);
    return rc;
}

/* Holdings may come from files: they must be boxes of one tensor before the algebra sees them. */
static int check_holdings(const struct holding *h, int n, int nd, struct err *e)
{
    for (int i = 0; i < n; i++) {
        const struct region *b = &h[i].box;
        bool good = h[i].holder >= 0 && h[i].term >= 0 && b->nd == nd && nd >= 0 && nd <= SHAPE_MAX_DIMS;
        for (int d = 0; good && d < nd; d++) good = b->lo[d] >= 0 && b->lo[d] <= b->hi[d];
        if (!good)
            return err_set(e, ERR_CORRUPT, "box %d of %d (holder %d): wanted a box of %d dims with 0 <= begin <= end",
                           i, n, h[i].holder, nd);
    }
    return OK;
}

int route_new_holdings(struct route **r, const struct holding *from, int n_from, const struct holding *to, int n_to,
                       struct err *e)
{
    int nd = n_to ? to[0].box.nd : n_from ? from[0].box.nd : 0;
    *r = NULL;
    int rc = check_holdings(from, n_from, nd, e);
    if (!rc) rc = check_holdings(to, n_to, nd, e);
    return rc ? rc : build(r, from, n_from, to, n_to, true, NULL, 0, e);
}

/* ---- layouts --------------------------------------------------------------------------------------------- */

/* The place of `in` on the same axis or factor; -1: none. */
static int same_place(const struct layout *in, struct mesh_axis a)
{
    for (int i = 0; i < in->n_places; i++) {
        struct mesh_axis b = in->place[i].on;
        if (a.axis == b.axis && a.size == b.size && a.stride == b.stride) return i;
    }
    return -1;
}

/* For each place of l: whether its letter is P or V and stays so in `other`. */
static void find_kept(const struct layout *l, const struct layout *other, bool kept[LAYOUT_MAX_PLACES])
{
    for (int i = 0; i < l->n_places; i++) {
        enum spmd t = l->place[i].type;
        int j = other ? same_place(other, l->place[i].on) : -1;
        kept[i] = (t == SPMD_P || t == SPMD_V) && j >= 0 && other->place[j].type == t;
    }
}

/* Lanes must be numbered alike on both sides: coordinates are combined in the order of strides. */
static int lane_of(const struct layout *l, const bool kept[LAYOUT_MAX_PLACES], int rank)
{
    int lane = 0;
    for (int i = 0; i < l->n_places; i++)
        if (kept[i]) lane += mesh_axis_coord(l->place[i].on, rank) * l->place[i].on.stride;
    return lane;
}

/* Position among the explicit holders where the axis is pp and restricted, else the coordinate. */
static int term_of(const struct layout *l, const bool kept[LAYOUT_MAX_PLACES], int rank)
{
    int term = 0;
    for (int i = 0; i < l->n_places; i++) {
        if (l->place[i].type != SPMD_P || kept[i]) continue;
        struct mesh_axis a = l->place[i].on;
        int size = a.size, index = mesh_axis_coord(a, rank);
        if (a.axis == AXIS_PP && l->n_only) {
            size = l->n_only;
            for (int k = 0; k < l->n_only; k++)
                if (l->only[k] == mesh_axis_coord(a, rank)) index = k;
        }
        term = term * size + index;
    }
    return term;
}

static int holdings(const struct layout *l, const bool kept[LAYOUT_MAX_PLACES], struct holding *out)
{
    int n = 0;
    for (int r = 0; r < l->n_ranks; r++)
        if (layout_holds(l, r))
            out[n++] = (struct holding){r, term_of(l, kept, r), lane_of(l, kept, r), layout_box(l, r)};
    return n;
}

int layout_holdings(const struct layout *l, struct holding *out)
{
    bool kept[LAYOUT_MAX_PLACES];
    for (int i = 0; i < l->n_places; i++) kept[i] = l->place[i].type == SPMD_V;
    return holdings(l, kept, out);
}

static int check_types(const struct layout *from, const struct layout *to, const bool kept_from[LAYOUT_MAX_PLACES],
                       const bool kept_to[LAYOUT_MAX_PLACES], struct err *e)
{
    char axis[48];
    for (int i = 0; i < from->n_places; i++)
        if (from->place[i].type == SPMD_V && !kept_from[i])
            return err_set(e, ERR_REQUEST, "%s: its ranks hold different things (V); no route joins them",
                           mesh_axis_print(axis, from->place[i].on));
    for (int i = 0; i < to->n_places; i++)
        if ((to->place[i].type == SPMD_P || to->place[i].type == SPMD_V) && !kept_to[i])
            return err_set(e, ERR_REQUEST, "%s: a route can keep %s but not make it",
                           mesh_axis_print(axis, to->place[i].on),
                           to->place[i].type == SPMD_P ? "a sum owed (P)" : "V");
    bool any = false;
    for (int i = 0; i < from->n_places; i++) any |= kept_from[i] && from->place[i].on.axis == AXIS_PP;
    if (any &&
        (from->n_only != to->n_only || memcmp(from->only, to->only, sizeof from->only[0] * (size_t)from->n_only)))
        return err_set(e, ERR_REQUEST, "pp: a sum that stays owed cannot change its holders");
    return OK;
}

static int compare_int(const void *x, const void *y)
{
    const int *a = x, *b = y;
    return (*a > *b) - (*a < *b);
}

int route_may(const struct layout *from, const struct layout *to, struct err *e)
{
    char a[128], b[128];
    bool kept_from[LAYOUT_MAX_PLACES], kept_to[LAYOUT_MAX_PLACES];
    if (!shape_equal(&from->shape, &to->shape))
        return err_set(e, ERR_REQUEST, "a route from %s to %s: the global shapes differ", shape_print(a, &from->shape),
                       shape_print(b, &to->shape));
    if (from->n_ranks != to->n_ranks)
        return err_set(e, ERR_REQUEST, "a route from %d to %d ranks needs a common numbering: use route_new_holdings",
                       from->n_ranks, to->n_ranks);
    find_kept(from, to, kept_from);
    find_kept(to, from, kept_to);
    return check_types(from, to, kept_from, kept_to, e);
}

int route_new(struct route **r, const struct layout *from, const struct layout *to, struct err *e)
{
    bool kept_from[LAYOUT_MAX_PLACES], kept_to[LAYOUT_MAX_PLACES];
    *r = NULL;
    int rc = route_may(from, to, e);
    if (rc) return rc;
    find_kept(from, to, kept_from);
    find_kept(to, from, kept_to);
    struct holding *senders = xmalloc(to_size(from->n_ranks) * sizeof *senders);
    struct holding *receivers = xmalloc(to_size(to->n_ranks) * sizeof *receivers);
    int n_from = holdings(from, kept_from, senders), n_to = holdings(to, kept_to, receivers);
    int blocks[LAYOUT_MAX_PLACES];
    for (int i = 0; i < from->n_places; i++) blocks[i] = from->place[i].on.stride * from->place[i].on.size;
    qsort(blocks, to_size(from->n_places), sizeof blocks[0], compare_int);
    rc = build(r, senders, n_from, receivers, n_to, false, blocks, from->n_places, e);
    CHECK(rc == OK, "a layout that leaves a hole: %s", e ? e->text : "");
    xfree(senders);
    xfree(receivers);
    return OK;
}

void route_free(struct route *r)
{
    if (!r) return;
    xfree(r->msg);
    xfree(r->by_src);
    xfree(r);
}

/* ---- reading --------------------------------------------------------------------------------------------- */

int64_t route_receives(const struct route *r, int rank, int64_t *first)
{
    int64_t lo[2];
    for (int i = 0; i < 2; i++) { /* the first message of rank, then of whoever comes after it */
        int64_t a = 0, b = r->n;
        while (a < b) {
            int64_t mid = a + (b - a) / 2;
            if (r->msg[mid].dst < rank + i) a = mid + 1;
            else b = mid;
        }
        lo[i] = a;
    }
    *first = lo[0];
    return lo[1] - lo[0];
}

int64_t route_sends(const struct route *r, int rank, int64_t *first)
{
    int64_t lo[2];
    for (int i = 0; i < 2; i++) {
        int64_t a = 0, b = r->n;
        while (a < b) {
            int64_t mid = a + (b - a) / 2;
            if (r->msg[r->by_src[mid]].src < rank + i) a = mid + 1;
            else b = mid;
        }
        lo[i] = a;
    }
    *first = lo[0];
    return lo[1] - lo[0];
}

void route_traffic(const struct route *r, int rank, int64_t *sent, int64_t *received)
{
    int64_t first, n = route_receives(r, rank, &first);
    *sent = *received = 0;
    for (int64_t i = first; i < first + n; i++)
        if (r->msg[i].src != rank) *received += region_volume(&r->msg[i].box);
    n = route_sends(r, rank, &first);
    for (int64_t i = first; i < first + n; i++)
        if (r->msg[r->by_src[i]].dst != rank) *sent += region_volume(&r->msg[r->by_src[i]].box);
}

int64_t route_traffic_total(const struct route *r)
{
    int64_t total = 0;
    for (int64_t i = 0; i < r->n; i++)
        if (r->msg[i].src != r->msg[i].dst) total += region_volume(&r->msg[i].box);
    return total;
}

void route_print(const struct route *r, struct str *out)
{
    char box[256];
    for (int64_t i = 0; i < r->n; i++) {
        const struct route_msg *m = &r->msg[i];
        str_printf(out, "%d -> %d %s%s", m->src, m->dst, region_print(box, &m->box),
                   m->src == m->dst ? " (stays)" : "");
        if (m->term) str_printf(out, " +%d", m->term);
        str_putc(out, '\n');
    }
}
