/* SPDX-License-Identifier: Apache-2.0 */
/* The table of parameters is declared as the engine declares it, and asked what the engine asks: what would be refused
 * there, after ranks have started, is refused here. */
#include "config/config_params.h"

#include <stdio.h>
#include <string.h>

#include "config/ranks.h"
#include "nn/model.h"
#include "parallel/parallel.h"
#include "state/freeze.h"
#include "state/packed.h"

/* The rank stands for all: what they hold unlike parts of is asked of every rank's box. */
static int try_params(const struct config *c, struct err *e)
{
    struct param_table t = {0};
    struct mesh m;
    const struct freeze freeze = {c->train.only.items, c->train.freeze.items, c->train.only.n, c->train.freeze.n};
    int rc = ranks_mesh(&m, c, config_ranks(c) - to_int(c->parallel.servers), e);
    if (rc) return rc;
    struct par par = par_at(&m, 0);
    model_declare(&c->model, &par, &t);
    rc = model_check_adapter(&c->model, &t, e);
    if (!rc) rc = param_freeze(&t, &freeze, e);
    if (!rc && c->model.adapter) rc = packed_mark(&t, c->model.adapter->base, e);
    param_table_free(&t);
    return rc;
}

/* The degree of tp nearest to the one that cuts blocks; 0: none does not. Experts are cut by etp, which is tp then. */
static int64_t whole_blocks(const struct config *c)
{
    struct config with = *c;
    struct err ignored = {0};
    for (int64_t d = c->parallel.tp - 1; d > 0; d--) {
        with.parallel.tp = with.parallel.etp = d;
        with.parallel.dp_shard = c->parallel.dp_shard;
        with.parallel.ep = 1;
        if (c->parallel.tp % d == 0 && !try_params(&with, &ignored)) return d;
    }
    return 0;
}

int config_check_params(const struct config *c, const struct conf *f, struct err *e)
{
    struct err why = {0};
    char key[64] = "", instead[64] = "";
    if (!c->adapter.kind && !c->train.only.n && !c->train.freeze.n) return OK;
    if (!try_params(c, &why)) return OK;
    const char *text = strstr(why.text, ": ");
    if (!text || sscanf(why.text, "%63[a-z_.]", key) != 1) return err_set(e, ERR_REQUEST, "%s", why.text);
    int64_t tp = !strcmp(key, "adapter.base") ? whole_blocks(c) : 0;
    if (tp)
        snprintf(instead, sizeof instead, ", or parallel.tp: %lld (-n %lld)", (long long)tp,
                 (long long)(config_ranks(c) / c->parallel.tp * tp));
    return conf_error(f, e, key, "%s%s", text + 2, instead);
}
