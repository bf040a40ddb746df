/* SPDX-License-Identifier: Apache-2.0 */
#include "keep/averaged.h"

#include <stdio.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "hub/remake.h"

static enum held is_there(const char *out, int64_t step, struct err *why)
{
    char name[64];
    snprintf(name, sizeof name, "step-%08lld/manifest.json", (long long)step);
    char *path = fs_join(out, name);
    enum held held = held_path(path, why);
    xfree(path);
    return held;
}

/* The complete ones of a list that is oldest first. */
static int mean_of(const struct ckpt_listing *list, int n, int good, int most, const char *out, struct err *e)
{
    int k = good < most ? good : most, opened = 0, rc = OK;
    struct weights **w = xcalloc(to_size(k), sizeof *w);
    double *share = xcalloc(to_size(k), sizeof *share);
    for (int i = 0; i < n && !rc; i++) {
        if (list[i].code != OK || good-- > k) continue;
        share[opened] = 1.0 / k;
        rc = weights_open(&w[opened], list[i].path, e);
        opened += !rc;
    }
    if (!rc) rc = remake_average(w, share, k, out, e);
    for (int i = 0; i < opened; i++) weights_close(w[i]);
    xfree(share);
    xfree(w);
    if (!rc) log_info("the mean of the %d newest checkpoints is in %s", k, out);
    return rc;
}

int averaged_write(const char *root, const char *out, int most, int64_t step, struct err *e)
{
    struct ckpt_listing *list;
    char *aside = NULL;
    int n, good = 0;
    enum held there = is_there(out, step, e);
    if (there != HELD_NONE) return there == HELD_KNOWN ? OK : (int)e->code;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc) return rc;
    for (int i = 0; i < n; i++) good += list[i].code == OK;
    if (good < most)
        log_warn("checkpoint.average: %d: there %s %d complete checkpoint%s%s", most, good == 1 ? "is" : "are", good,
                 good == 1 ? "" : "s", good < 2 ? ", which has no mean: none was made" : ", whose mean was taken");
    if (good > 1 && fs_exists(out)) rc = fs_set_aside(out, &aside, e);
    if (aside) log_warn("%s is of an earlier end of this run: it was moved to %s", out, aside);
    if (!rc && good > 1) rc = mean_of(list, n, good, most, out, e);
    xfree(aside);
    ckpt_list_free(list, n);
    return rc;
}
