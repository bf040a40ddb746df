/* SPDX-License-Identifier: Apache-2.0 */
/* One group per distinct set of holders, found in the table's order, so that every rank makes its groups in the same
 * order. Neighbours in memory with the same holders travel as one message. */
#include "state/copies.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

static int set_find(const struct copies *x, const int *ranks, int n)
{
    for (int i = 0; i < x->n; i++)
        if (x->set[i].n == n && !memcmp(x->set[i].ranks, ranks, (size_t)n * sizeof *ranks)) return i;
    return -1;
}

static int set_new(struct copies *x, struct comm *along, const int *ranks, int n, struct err *e)
{
    int *world = xcalloc((size_t)n, sizeof *world);
    GROW(x->set, x->n, x->room, 1);
    struct copies_set *s = &x->set[x->n];
    *s = (struct copies_set){.ranks = xcalloc((size_t)n, sizeof *ranks), .n = n};
    memcpy(s->ranks, ranks, (size_t)n * sizeof *ranks);
    for (int i = 0; i < n; i++) world[i] = comm_world_rank(along, ranks[i]);
    char name[48];
    snprintf(name, sizeof name, "%s holders %d", comm_name(along), x->n);
    int rc = comm_split_list(&s->group, along, world, n, name, e);
    if (!rc) comm_on(s->group, x->s->dev);
    snprintf(name, sizeof name, "%s hosts of holders %d", comm_name(along), x->n);
    if (!rc) rc = comm_split_list(&s->host, along, world, n, name, e);
    x->n++;
    xfree(world);
    return rc;
}

int copies_init(struct copies *x, struct store *s, struct comm *along, copies_holders_fn *holders, void *ctx,
                struct err *e)
{
    *x = (struct copies){.s = s};
    x->set_of = xcalloc((size_t)s->table->n + 1, sizeof *x->set_of);
    int *ranks = xcalloc((size_t)(along ? comm_size(along) : 1), sizeof *ranks), rc = OK;
    for (int i = 0; i < s->table->n; i++) {
        x->set_of[i] = -1;
        if (!along || rc) continue;
        int n = holders(ctx, i, ranks);
        bool here = false;
        for (int k = 0; k < n; k++) here |= ranks[k] == comm_rank(along);
        if (!here || n < 2) continue;
        x->set_of[i] = set_find(x, ranks, n);
        if (x->set_of[i] >= 0) continue;
        x->set_of[i] = x->n;
        rc = set_new(x, along, ranks, n, e);
    }
    xfree(ranks);
    if (rc) copies_fini(x);
    return rc;
}

void copies_fini(struct copies *x)
{
    for (int i = x->n - 1; i >= 0; i--) {
        comm_free(x->set[i].host);
        comm_free(x->set[i].group);
        xfree(x->set[i].ranks);
    }
    xfree(x->set);
    xfree(x->set_of);
    memset(x, 0, sizeof *x);
}

static char *stepped(const struct store *s, int param, int64_t *n)
{
    *n = store_held(s, param, STORE_MASTER).n;
    return store_state_is_whole(s) ? store_grad_ptr(s, param) : store_piece_grad(s, param);
}

void copies_sum(struct copies *x)
{
    for (int i = 0; x->n && i < x->s->table->n;) {
        int set = x->set_of[i];
        int64_t n, more;
        char *g = stepped(x->s, i, &n);
        const char *name = x->s->table->p[i++].name;
        if (set < 0 || x->s->table->p[i - 1].frozen) continue;
        for (; i < x->s->table->n && x->set_of[i] == set && !x->s->table->p[i].frozen; i++, n += more) {
            char *next = stepped(x->s, i, &more);
            if (next != (g ? g + to_size(n) * dtype_bytes(x->s->grad_dtype) : NULL)) break;
        }
        comm_all_reduce(x->set[set].group, g, g, n, x->s->grad_dtype, COMM_SUM, name);
    }
    for (int i = 0; i < x->n; i++) comm_sync(x->set[i].group);
}

struct comm_traffic copies_traffic(const struct copies *x)
{
    struct comm_traffic sum = {0};
    for (int i = 0; i < 2 * x->n; i++) {
        const struct copies_set *set = &x->set[i / 2];
        struct comm_traffic t = comm_traffic(i % 2 ? set->host : set->group);
        sum.bytes += t.bytes;
        sum.messages += t.messages;
        sum.operations += t.operations;
    }
    return sum;
}
