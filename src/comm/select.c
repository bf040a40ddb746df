/* SPDX-License-Identifier: Apache-2.0 */
/* select.c: the algorithms, and which one an operation takes.
 *
 * First choice: the algorithm asked for by name, where it has the operation. Else the rule of the table (table.h) for
 * operation, place, ranks and bytes: the first of its algorithms that has the operation and keeps its bits. Sums of
 * floats pass over algorithms that add in another order than the ranks' unless config.any_order allows them, so that
 * the choice never changes bits; two ranks have one order only. direct has everything and comes last: between ranks
 * that share memory it moves the data in one pass.
 */
#include <string.h>

#include "base/mem.h"
#include "comm/impl.h"

const struct algorithm algorithms[ALGORITHM_N] = {
    [ALGORITHM_DIRECT] = {.name = "direct", .write = direct_write, .rank_order = true, .shared = true},
    [ALGORITHM_RING] = {.name = "ring", .write = ring_write},
    [ALGORITHM_HALVING] = {.name = "halving", .write = halving_write},
    [ALGORITHM_TREE] = {.name = "tree", .write = tree_write},
    [ALGORITHM_CHAIN] = {.name = "chain", .write = chain_write, .rank_order = true},
    [ALGORITHM_PAIRWISE] = {.name = "pairwise", .write = pairwise_write, .rank_order = true},
    [ALGORITHM_GATHER] = {.name = "gather", .write = gather_write, .rank_order = true},
    [ALGORITHM_TWO_LEVEL] = {.name = "two_level", .write = two_level_write},
    [ALGORITHM_NATIVE] = {.name = "native", .write = native_write, .native = true},
};

const struct algorithm *select_named(const char *name)
{
    for (int i = 0; name && i < ALGORITHM_N; i++)
        if (!strcmp(algorithms[i].name, name)) return &algorithms[i];
    return NULL;
}

static bool several_hosts(const struct comm *c)
{
    for (int i = 1; i < c->size; i++)
        if (c->host[i] != c->host[0]) return true;
    return false;
}

/* A rank that only counts stands for one of a transport that spans hosts where there are several. */
static bool has_native(const struct comm *c)
{
    return c->w->ops->native_start || (c->w->ops->counts_only && several_hosts(c));
}

/* Writes the program if the algorithm has the operation for this group. */
static bool take(struct moves *p, const struct comm *c, const struct coll *k, const struct algorithm *a)
{
    comm_moves_clear(p);
    if (a->native && (!has_native(c) || (c->w->cfg.checksum && several_hosts(c)))) return false;
    return a->write(p, k);
}

static bool order_matters(const struct comm *c, const struct coll *k)
{
    bool reduces = k->op == COMM_REDUCE || k->op == COMM_ALL_REDUCE || k->op == COMM_REDUCE_SCATTER;
    bool adds = k->red == COMM_SUM || k->red == COMM_AVG;
    return k->size > 2 && reduces && adds && dtype_info(k->dtype)->is_float && !c->w->cfg.any_order;
}

/* A rank that only counts assumes that ranks of one host share memory, which is what all transports do. */
static bool shares_memory(const struct comm *c)
{
    return !several_hosts(c) && (c->w->ops->counts_only || (c->w->ops->shared && c->w->ops->shared_may(c)));
}

const struct algorithm *select_algorithm(const struct comm *c, const struct coll *k, struct moves *p)
{
    if (c->asked && take(p, c, k, c->asked)) return c->asked;
    int64_t bytes = k->n * (int64_t)dtype_bytes(k->dtype);
    const struct rule *r = table_find(&c->w->table, k->op, !shares_memory(c), k->size, bytes);
    bool ordered = order_matters(c, k);
    for (int i = 0; r && i < r->n_choices; i++) {
        const struct algorithm *a = &algorithms[r->choice[i]];
        if ((a->rank_order || !ordered) && take(p, c, k, a)) return a;
    }
    bool written = take(p, c, k, &algorithms[ALGORITHM_DIRECT]);
    CHECK(written, "direct has no %s", comm_op_name(k->op));
    return &algorithms[ALGORITHM_DIRECT];
}

static int check_name(const char *name, struct err *e)
{
    if (!name || select_named(name)) return OK;
    const char *near = str_nearest(name, comm_algorithms(), ALGORITHM_N);
    return err_set(e, ERR_REQUEST,
                   "comm.algorithm: there is no '%s'%s%s%s; there are direct, ring, halving, tree, chain, pairwise, "
                   "gather, two_level, native",
                   name, near ? " (did you mean '" : "", near ? near : "", near ? "'?)" : "");
}

int comm_config_check(const struct comm_config *cfg, struct err *e)
{
    struct table t;
    int rc = cfg ? check_name(cfg->algorithm, e) : OK;
    if (!rc && cfg && cfg->checksum && cfg->algorithm && !strcmp(cfg->algorithm, "native"))
        rc = err_set(e, ERR_REQUEST,
                     "comm.checksum: what the MPI library's own collectives send cannot be checked; leave "
                     "comm.algorithm: native out, or comm.checksum");
    if (rc || !cfg || !cfg->table) return rc;
    rc = table_parse(&t, cfg->table, e);
    if (rc) return err_prefix(e, "comm.table");
    table_fini(&t);
    return OK;
}

const char *const *comm_algorithms(void)
{
    static const char *const names[ALGORITHM_N + 1] = {"direct",   "ring",   "halving",   "tree",   "chain",
                                                       "pairwise", "gather", "two_level", "native", NULL};
    return names;
}

bool comm_can(const struct comm *c, const char *algorithm, enum comm_op op, int64_t n, enum dtype t, enum comm_red r)
{
    const struct algorithm *a = select_named(algorithm);
    struct moves p = {0};
    int64_t *pieces;
    struct coll k;
    if (!a || op == COMM_EXCHANGE) return false;
    comm_sketch(c, op, n, t, r, &pieces, &k);
    bool can = take(&p, c, &k, a);
    comm_moves_free(&p);
    xfree(pieces);
    return can;
}

bool comm_keeps_order(const char *algorithm)
{
    const struct algorithm *a = select_named(algorithm);
    return a && a->rank_order;
}
