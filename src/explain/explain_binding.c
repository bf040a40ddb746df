/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG binding: the ranks of the first host (comm.ranks_per_host of them, or all), as processes that
 * nobody bound, or threads: all may use all of the host's cores. */
#include <string.h>

#include "base/mem.h"
#include "explain/explain.h"
#include "site/binding.h"

static int choose(const struct explain *x, struct binding *b, struct err *e)
{
    struct topology t;
    struct cores all;
    int64_t pretended = x->c->comm.ranks_per_host;
    int n = x->ranks.n, code = topology_read(&t, x->topology, e);
    if (code) return code;
    if (pretended > 0 && pretended < n) n = (int)pretended;
    topology_cores(&t, &all);
    if (!x->topology) cores_of(0, &all);
    int threads = (int)x->c->run.threads, each = cores_count(&all) / n;
    struct places p = {.n = n, .n_hosts = 1, .seat = xcalloc((size_t)n, sizeof *p.seat)};
    for (int r = 0; r < n; r++)
        p.seat[r] = (struct seat){.host = "the host", .threads = threads ? threads : each > 1 ? each : 1, .cores = all};
    code = binding_choose(b, x->c->run.bind, &t, &p, 0, e);
    places_free(&p);
    topology_free(&t);
    return code;
}

int explain_binding(const struct explain *x, struct str *out, struct err *e)
{
    struct binding b;
    int code = choose(x, &b, e);
    if (code) return code;
    if (b.how == BIND_NONE)
        str_puts(out, "run.bind is none: the system moves threads as it likes; run.bind=rank or core would deal the "
                      "cores like this\n");
    binding_map(&b, out);
    binding_free(&b);
    return OK;
}

int explain_binding_json(const struct explain *x, struct json_out *o, struct err *e)
{
    struct binding b;
    int code = choose(x, &b, e);
    if (code) return code;
    binding_put(&b, o);
    binding_free(&b);
    return OK;
}
