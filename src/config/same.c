/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's config travels as the text that config.yaml gets; every rank walks both texts key by key. The text is a few
 * KB, once a run. Rejected: a hash of it, which cannot say what differs. */
#include "config/same.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"
#include "config/config_lines.h"

/* What is read by path may lie elsewhere on each host; the ranks compare what they read. Weights are read nowhere. */
static const char *const free_keys[] = {"model.from",
                                        "data.tokenizer",
                                        "data.train.path",
                                        "data.train.column",
                                        "data.train.chat",
                                        "data.train.label",
                                        "data.train.target",
                                        "data.valid",
                                        "data.cache_dir",
                                        "run.threads",
                                        "data.remote.cache_dir",
                                        "run.kernels",
                                        "run.device",
                                        NULL};

static bool is_free(const char *key)
{
    for (int i = 0; free_keys[i]; i++) {
        size_t n = strlen(free_keys[i]);
        if (!strncmp(key, free_keys[i], n) && (key[n] == 0 || key[n] == '.')) return true;
    }
    return false;
}

/* The next key that must be the same. */
static bool read_key(struct config_lines *r)
{
    while (config_lines_next(r))
        if (!is_free(r->key)) return true;
    return false;
}

/* The first key that somebody wrote down differently here; else the first that differs, which may follow from another
 * one. */
static int compare(const char *mine, const char *first, const struct conf *f, struct err *e)
{
    struct config_lines a = {.at = mine}, b = {.at = first};
    bool found = false, written = false, aligned = true;
    while (aligned && !written) {
        bool more = read_key(&a), more_there = read_key(&b);
        if (!more && !more_there) break;
        aligned = more && more_there && !strcmp(a.key, b.key); /* else lists of unlike lengths */
        if (aligned && a.whole_n == b.whole_n && !memcmp(a.whole, b.whole, a.whole_n)) continue;
        const char *key = more ? a.key : b.key, *where = conf_where(f, key);
        written = strcmp(where, "default") != 0;
        if (!found || written)
            err_set(e, ERR_REQUEST,
                    "%s: %s: '%s' here, '%s' on rank 0; start every process with the same config and keys", where, key,
                    more ? a.value : "nothing", aligned ? b.value : "another list");
        found = true;
    }
    return found ? ERR_REQUEST : OK;
}

int same_config(struct comm *world, const struct config *c, const struct conf *f, struct err *e)
{
    struct str mine = {0};
    config_print(c, &mine);
    int64_t n = (int64_t)mine.n;
    comm_wait(world, comm_broadcast(world, &n, 1, DT_I64, 0, "length of the config"));
    char *first = xcalloc((size_t)n + 1, 1);
    if (comm_rank(world) == 0) memcpy(first, str_text(&mine), (size_t)n);
    comm_wait(world, comm_broadcast(world, first, n, DT_U8, 0, "config"));
    int rc = comm_status(world, e);
    if (!rc) rc = compare(str_text(&mine), first, f, e);
    rc = comm_agree(world, rc, e);
    xfree(first);
    str_free(&mine);
    return rc;
}
