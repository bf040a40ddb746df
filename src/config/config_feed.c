/* SPDX-License-Identifier: Apache-2.0 */
#include "config/config_feed.h"

#include <string.h>

#include "base/mem.h"
#include "base/str.h"

static int check_workers(const struct config *c, const struct conf *f, struct err *e)
{
    if (c->data.workers <= c->data.prefetch) return OK;
    return conf_error(f, e, "data.workers", "%lld threads for %lld batches ahead; choose data.prefetch: %lld, or fewer",
                      (long long)c->data.workers, (long long)c->data.prefetch, (long long)c->data.workers);
}

int config_resolve_feed(struct config *c, const struct conf *f, struct err *e)
{
    int rc = check_workers(c, f, e);
    if (rc) return rc;
    const char *text = c->data.remote.cache_limit;
    struct remote_options o = remote_defaults();
    o.connections = (int)c->data.remote.connections;
    double least = (double)remote_bytes(&o), *bytes = &c->data.remote.cache_bytes;
    char wanted[32];
    *bytes = 0;
    if (!text || !strcmp(text, "0")) return OK;
    if (str_to_bytes(text, bytes) || *bytes > 1e18)
        return conf_error(f, e, "data.remote.cache_limit", "wanted bytes, such as 50GiB, or 0, got '%s'", text);
    if (*bytes >= least) return OK;
    return conf_error(f, e, "data.remote.cache_limit", "%s is less than what is read at once; wanted %s or more, or 0",
                      text, str_bytes(wanted, least));
}

struct remote_options config_remote(const struct config *c)
{
    struct remote_options o = remote_defaults();
    o.connections = (int)c->data.remote.connections;
    o.tries = (int)c->data.remote.tries;
    o.stall_s = c->data.remote.stall_s;
    o.give_up_s = c->data.remote.give_up_s;
    o.cache_dir = c->data.remote.cache_dir;
    o.cache_limit = (int64_t)c->data.remote.cache_bytes;
    return o;
}

/* Its name may have a query behind it, which is not shown. */
static bool is_token_object(const char *path)
{
    char *shown = remote_is(path) ? remote_shown(path) : NULL;
    bool is = shown && str_ends(shown, ".tok");
    xfree(shown);
    return is;
}

/* How many tables of pieces a list's data reads from while it is trained on: one for all its token files, one for each
 * source of pictures. Other texts are tokenized to files here first. */
static int remotes_of(const struct config *c, const struct conf_list *l)
{
    const struct config_source *items = l->items;
    bool sees = model_sees(&c->model);
    int n = 0;
    for (int i = 0; i < l->n; i++) n += sees ? remote_is(items[i].path) : is_token_object(items[i].path);
    return sees ? n : n > 0;
}

int64_t config_remote_bytes(const struct config *c)
{
    struct remote_options o = config_remote(c);
    bool validates = c->run.eval_every > 0;
    return remote_bytes(&o) * (remotes_of(c, &c->data.train) + (validates ? remotes_of(c, &c->data.valid) : 0));
}
