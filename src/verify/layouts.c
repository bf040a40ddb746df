/* Degrees are walked from the innermost question outwards: how many ranks, how many of them along tp, how the rest is
 * shared between replicas and shards, what the shards share. */
#include "verify/layouts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static void push(struct layouts *l, struct layout_try t)
{
    if (l->n == l->room) {
        l->room = l->room ? 2 * l->room : 64;
        l->at = xrealloc(l->at, sizeof *l->at * (size_t)l->room);
    }
    l->at[l->n++] = t;
}

static void data_layouts(struct layouts *l, struct layout_try t, int dp)
{
    for (t.dp_replicate = 1; t.dp_replicate <= dp; t.dp_replicate++)
        for (t.zero = 0; t.zero <= 3; t.zero++) {
            if (dp % t.dp_replicate || (t.zero > 0 && dp == t.dp_replicate)) continue;
            t.dp_shard = dp / t.dp_replicate;
            push(l, t);
        }
}

void layouts_enumerate(struct layouts *l, const struct config *c, int max_ranks)
{
    *l = (struct layouts){0};
    for (int n = 1; n <= max_ranks; n++)
        for (int tp = 1; tp <= n; tp++)
            for (int sequence = 0; sequence <= (tp > 1); sequence++)
                if (n % tp == 0 && (tp == 1 || (c->model.dropout == 0 && tp <= c->model.kv_heads))) data_layouts(l, (struct layout_try){.tp = tp, .sequence = sequence}, n / tp);
}

void layouts_free(struct layouts *l)
{
    xfree(l->at);
    *l = (struct layouts){0};
}

void layouts_apply(const struct layout_try *t, struct config *c)
{
    c->parallel.dp_replicate = t->dp_replicate;
    c->parallel.dp_shard = t->dp_shard;
    c->parallel.zero = t->zero;
    c->parallel.tp = t->tp;
    c->parallel.sequence_parallel = t->sequence;
    c->parallel.ranks_here = config_ranks(c);
}

void layout_name(const struct config *c, char *out, size_t n)
{
    size_t k = (size_t)snprintf(out, n, "dp%" PRId64, config_dp(c));
    if (c->parallel.dp_replicate > 1 && k < n) k += (size_t)snprintf(out + k, n - k, " replicate%" PRId64, c->parallel.dp_replicate);
    if (k < n) k += (size_t)snprintf(out + k, n - k, " zero%" PRId64, c->parallel.zero);
    if (c->parallel.tp > 1 && k < n)
        snprintf(out + k, n - k, " tp%" PRId64 "%s", c->parallel.tp, c->parallel.sequence_parallel ? "+seq" : "");
}
