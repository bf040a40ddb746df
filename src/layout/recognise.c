/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank in turn is taken for a root, and its messages are compared with those of its first peer. Time O(messages x
 * peers) for fans, O(messages) for sums. Rejected: deriving collectives from the letters of two layouts, which says
 * nothing where they are on different meshes, and of all that moves between equals (gathers, scatters) only what the
 * messages do as well. */
#include "layout/recognise.h"

#include <string.h>

#include "base/mem.h"

static const struct route_msg *sent(const struct route *r, int64_t i) { return &r->msg[r->by_src[i]]; }

static bool plain(const struct route *r) { return r->n_terms == 1; }

/* Whether src sends a and b the same boxes of one tensor. */
static bool same_boxes(const struct route *r, int src, int a, int b)
{
    int64_t first, n = route_sends(r, src, &first), i = first, j = first, end = first + n;
    for (;; i++, j++) {
        while (i < end && sent(r, i)->dst != a) i++;
        while (j < end && sent(r, j)->dst != b) j++;
        if (i == end || j == end) return i == end && j == end;
        if (!region_equal(&sent(r, i)->box, &sent(r, j)->box)) return false;
    }
}

static bool is_fan(const struct route *const *r, int n, int root, bool *to, int n_ranks)
{
    int first = -1, others = 0;
    memset(to, 0, sizeof *to * to_size(n_ranks));
    for (int i = 0; i < n; i++) {
        int64_t at, k = route_sends(r[i], root, &at);
        for (int64_t m = at; m < at + k; m++) {
            int dst = sent(r[i], m)->dst;
            if (dst == root) continue;
            if (!plain(r[i])) return false;
            others += !to[dst];
            to[dst] = true;
            if (first < 0) first = dst;
        }
    }
    for (int d = 0; d < n_ranks && others > 1; d++)
        for (int i = 0; i < n && to[d] && d != first; i++)
            if (!same_boxes(r[i], root, first, d)) return false;
    return others > 1;
}

/* Term k of everything comes from src[k]. */
static bool is_sum(const struct route *const *r, int n, int root, bool *from, int n_ranks)
{
    int terms = 0, *src = xcalloc(to_size(n_ranks), sizeof *src);
    bool good = true;
    memset(from, 0, sizeof *from * to_size(n_ranks));
    for (int i = 0; i < n && good; i++) {
        int64_t at, k = route_receives(r[i], root, &at);
        if (!k) continue;
        int t = r[i]->n_terms;
        good = t > 1 && t <= n_ranks && k % t == 0 && (!terms || terms == t);
        terms = t;
        for (int64_t m = 0, each = k / t; m < k && good; m++) {
            const struct route_msg *x = &r[i]->msg[at + m];
            int term = (int)(m / each);
            if (!from[x->src] && m == term * each) src[term] = x->src;
            good = x->term == term && x->src != root && x->src == src[term] &&
                   region_equal(&x->box, &r[i]->msg[at + m % each].box);
            from[x->src] = true;
        }
    }
    for (int t = 1; t < terms; t++) good &= src[t] > src[t - 1];
    xfree(src);
    return good && terms > 1;
}

static void add(struct known_list *k, enum known_kind kind, int root, const bool *with, int n_ranks)
{
    k->p = xrealloc(k->p, to_size(k->n + 1) * sizeof *k->p);
    struct known *x = &k->p[k->n++];
    *x = (struct known){.kind = kind, .root = root, .rank = xcalloc(to_size(n_ranks), sizeof *x->rank)};
    for (int i = 0; i < n_ranks; i++)
        if (with[i]) x->rank[x->n++] = i;
}

void recognise(struct known_list *k, const struct route *const *r, int n, int n_ranks)
{
    bool *with = xcalloc(to_size(n_ranks), sizeof *with);
    *k = (struct known_list){0};
    for (int root = 0; root < n_ranks; root++) {
        if (is_fan(r, n, root, with, n_ranks)) add(k, KNOWN_FAN, root, with, n_ranks);
        if (is_sum(r, n, root, with, n_ranks)) add(k, KNOWN_SUM, root, with, n_ranks);
    }
    xfree(with);
}

void known_free(struct known_list *k)
{
    for (int i = 0; i < k->n; i++) xfree(k->p[i].rank);
    xfree(k->p);
    *k = (struct known_list){0};
}

void known_print(const struct known_list *k, struct str *out)
{
    if (!k->n) str_puts(out, "nothing");
    for (int i = 0; i < k->n; i++) {
        const struct known *x = &k->p[i];
        if (i) str_puts(out, "; ");
        if (x->kind == KNOWN_FAN) str_printf(out, "fan %d to ", x->root);
        else str_puts(out, "sum ");
        for (int j = 0; j < x->n; j++) str_printf(out, "%s%d", j ? ", " : "", x->rank[j]);
        if (x->kind == KNOWN_SUM) str_printf(out, " to %d", x->root);
    }
}
