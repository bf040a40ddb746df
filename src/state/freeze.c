/* SPDX-License-Identifier: Apache-2.0 */
/* Every pattern is held against every name: some dozens against some thousands. */
#include "state/freeze.h"

#include <fnmatch.h>

static bool fits(const char *const *pattern, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!fnmatch(pattern[i], name, 0)) return true;
    return false;
}

static int check(const struct param_table *t, const char *key, const char *const *pattern, int n, struct err *e)
{
    for (int i = 0; i < n; i++) {
        int found = 0;
        for (int k = 0; k < t->n && !found; k++) found = fits(&pattern[i], 1, t->p[k].name);
        if (!found)
            return err_set(e, ERR_REQUEST,
                           "%s: %s fits no parameter (tutti explain CONFIG layout lists them); choose names such as %s",
                           key, pattern[i], t->p[t->n / 2].name);
    }
    return OK;
}

int param_freeze(struct param_table *t, const struct freeze *f, struct err *e)
{
    int rc = check(t, "train.only", f->only, f->n_only, e);
    if (!rc) rc = check(t, "train.freeze", f->not, f->n_not, e);
    bool any = false, adapters = false;
    for (int i = 0; i < t->n; i++) adapters |= t->p[i].adapter;
    if (rc || (!freeze_any(f) && !adapters)) return rc;
    for (int i = 0; i < t->n; i++) {
        struct param *p = &t->p[i];
        bool asked = p->adapter || (f->n_only ? fits(f->only, f->n_only, p->name) : !adapters);
        if (asked && !fits(f->not, f->n_not, p->name)) {
            any |= p->stepped;
            continue;
        }
        p->frozen = true;
        p->stepped = false;
    }
    return any ? OK : err_set(e, ERR_REQUEST, "train.freeze: nothing is left to train; leave it out");
}
