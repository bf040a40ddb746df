/* select.c: the table of algorithms, and which one an operation takes. One algorithm so far: direct moves the least bytes
 * and keeps rank order. A name asked for wins wherever that algorithm has the operation. */
#include <string.h>

#include "comm/impl.h"

const struct algorithm algorithms[ALGORITHM_N] = {
    [ALGORITHM_DIRECT] = {.name = "direct", .write = direct_write, .rank_order = true, .shared = true},
};

const struct algorithm *select_named(const char *name)
{
    for (int i = 0; i < ALGORITHM_N; i++)
        if (!strcmp(algorithms[i].name, name)) return &algorithms[i];
    return NULL;
}

const struct algorithm *select_algorithm(const struct comm *c, const struct coll *k)
{
    (void)k;
    return c->asked ? c->asked : &algorithms[ALGORITHM_DIRECT];
}

int comm_config_check(const struct comm_config *cfg, struct err *e)
{
    if (!cfg || !cfg->algorithm || select_named(cfg->algorithm)) return OK;
    return err_set(e, ERR_REQUEST, "comm.algorithm: there is no '%s'; there is: direct", cfg->algorithm);
}

const char *const *comm_algorithms(void)
{
    static const char *const names[] = {"direct", NULL};
    return names;
}

bool comm_has(const char *algorithm, enum comm_op op, const char *transport, int size)
{
    (void)transport;
    (void)size;
    return select_named(algorithm) && op != COMM_EXCHANGE && op != COMM_BARRIER;
}
