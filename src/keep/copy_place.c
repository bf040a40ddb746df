/* SPDX-License-Identifier: Apache-2.0 */
/* What a place of copies holds, and whose it is. A folder is read as any root of checkpoints; of a store the list of
 * objects is the directory, and every manifest in it is read. Whatever cannot be read is in the list with its reason,
 * and one rule, that of a run's own disk (checkpoint/newest.c), says whether it stands in the way of knowing which is
 * the newest. One thing is judged otherwise: of copies a damaged one is no reason to stop where another is whole, since
 * nobody else has it whole either.
 * Cost: a list, and a small request for each copy and the owner.
 */
#include "keep/copy_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/address.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "keep/copy_place_impl.h"

/* No cache: what was fetched wrong once must not come again, and a checkpoint comes once. */
int copy_place_open(struct copy_place *p, const char *to, const struct remote_options *o, struct err *e)
{
    struct remote_options options = o ? *o : remote_defaults();
    *p = (struct copy_place){.to = xstrdup(to), .shown = remote_is(to) ? remote_shown(to) : xstrdup(to)};
    int rc = remote_is(to) ? remote_check(to, e) : address_refuse(to, "a folder, or s3://BUCKET/PREFIX", e);
    if (rc) return rc;
    for (size_t n = strlen(p->to); n > 1 && p->to[n - 1] == '/'; n--) p->to[n - 1] = 0;
    if (!remote_is(to)) return OK;
    if (!str_starts(to, "s3://"))
        return err_set(e, ERR_REQUEST,
                       "%s: checkpoints are copied to a folder or to s3://BUCKET/PREFIX; http:// and https:// have no "
                       "agreed way to list and remove",
                       p->shown);
    options.cache_limit = 0;
    options.list_most = 200000;
    options.own_sums = true; /* manifests have them, and what they refuse is looked for elsewhere */
    p->r = remote_new(&options);
    return OK;
}

void copy_place_close(struct copy_place *p)
{
    remote_free(p->r);
    xfree(p->to);
    xfree(p->shown);
    *p = (struct copy_place){0};
}

char *copy_name(const struct copy_place *p, int64_t step, const char *name)
{
    struct str s = {0};
    str_printf(&s, "%s/", p->to);
    if (step >= 0) str_printf(&s, "step-%08" PRId64 "/", step);
    str_puts(&s, name);
    return s.p;
}

int64_t copy_step_in(const struct copy_place *p, const char *url, const char **name)
{
    size_t n = strlen(p->to);
    char dir[64];
    if (strncmp(url, p->to, n) || url[n] != '/') return -1;
    const char *rest = url + n + 1, *slash = strchr(rest, '/');
    if (!slash || (size_t)(slash - rest) >= sizeof dir || strchr(slash + 1, '/')) return -1;
    snprintf(dir, sizeof dir, "%.*s", (int)(slash - rest), rest);
    *name = slash + 1;
    return ckpt_step_of(dir);
}

int64_t copy_bytes(const struct copy_place *p, const struct remote_list *l, int64_t step, const char *name)
{
    for (int64_t i = 0; i < l->n; i++) {
        const char *found;
        if (copy_step_in(p, l->entry[i].url, &found) == step && !strcmp(found, name)) return l->entry[i].about.bytes;
    }
    return -1;
}

/* -- a store's copies ------------------------------------------------------------------------------------------- */

static int read_text(struct copy_place *p, const char *url, struct manifest *m, struct err *e)
{
    char *text;
    size_t n;
    int rc = remote_get(p->r, url, MANIFEST_LIMIT, &text, &n, e);
    if (rc && rc != ERR_SIGNAL && e) rc = (int)(e->code = ERR_IO); /* it is there: whatever the answer was */
    if (!rc) rc = manifest_parse(m, text, n, url, false, e);
    xfree(text);
    return rc;
}

int copy_manifest(struct copy_place *p, int64_t step, struct manifest *m, struct err *e)
{
    char *path = copy_name(p, step, MANIFEST_NAME);
    int rc = p->r ? read_text(p, path, m, e) : manifest_read(m, path, false, e);
    if (!rc && m->step != step) {
        rc = err_set(e, ERR_CORRUPT, "%s: is of step %" PRId64, path, m->step);
        manifest_fini(m);
    }
    xfree(path);
    return rc;
}

static int compare_sizes(const struct copy_place *p, const struct remote_list *l, const struct manifest *m,
                         struct err *e)
{
    for (int i = 0; i < m->n_files; i++) {
        int64_t found = copy_bytes(p, l, m->step, m->files[i].name);
        if (m->files[i].bytes && found != m->files[i].bytes) /* lists leave empty objects out */
            return err_set(e, ERR_CORRUPT,
                           "%s: step %" PRId64 ": %s has %" PRId64 " bytes there, %" PRId64
                           " were written (-1: it is missing); use another checkpoint",
                           p->shown, m->step, m->files[i].name, found, m->files[i].bytes);
    }
    return OK;
}

static int describe(struct copy_place *p, const struct remote_list *l, struct ckpt_listing *x)
{
    struct manifest m;
    struct err problem = {0};
    x->publication = -1;
    x->code = copy_manifest(p, x->step, &m, &problem);
    if (x->code == OK) {
        x->tokens = m.tokens;
        x->publication = m.publication;
        x->hash = m.hash;
        x->run = m.run;
        x->n_tensors = m.n_tensors;
        x->code = compare_sizes(p, l, &m, &problem);
        manifest_fini(&m);
    }
    if (x->code) snprintf(x->problem, sizeof x->problem, "%s", problem.text);
    return x->code;
}

static int by_publication(const void *a, const void *b)
{
    const struct ckpt_listing *x = a, *y = b;
    if (x->publication != y->publication) return x->publication < y->publication ? -1 : 1;
    return (x->step > y->step) - (x->step < y->step);
}

/* All that have a manifest. */
static int list_store(struct copy_place *p, struct copy_held *h, struct err *e)
{
    int room = 0, rc = remote_list(p->r, p->to, &h->objects, e);
    for (int64_t i = 0; !rc && i < h->objects.n; i++) {
        const char *name;
        int64_t step = copy_step_in(p, h->objects.entry[i].url, &name);
        if (step < 0 || strcmp(name, MANIFEST_NAME)) continue;
        GROW(h->list, h->n, room, 1);
        struct ckpt_listing *x = &h->list[h->n++];
        *x = (struct ckpt_listing){.path = xstrdup(h->objects.entry[i].url), .step = step};
        if (describe(p, &h->objects, x) == ERR_SIGNAL) rc = err_set(e, ERR_SIGNAL, "%s", x->problem);
    }
    if (h->n) qsort(h->list, to_size(h->n), sizeof *h->list, by_publication);
    return rc;
}

/* -- whose it is ------------------------------------------------------------------------------------------------ */

static enum held owner_text(struct copy_place *p, const char *path, char **text, size_t *n, struct err *e)
{
    *text = NULL;
    if (p->r) return remote_hold(p->r, path, COPY_OWNER_LIMIT, text, n, e);
    enum held held = held_path(path, e);
    if (held == HELD_KNOWN && fs_read_all(path, COPY_OWNER_LIMIT, text, n, e)) held = HELD_UNKNOWN;
    return held;
}

int copy_read_owner(struct copy_place *p, struct copy_held *h, struct err *e)
{
    char *path = copy_name(p, -1, COPY_OWNER_NAME), *text = NULL;
    size_t n = 0;
    enum held held = owner_text(p, path, &text, &n, e);
    int rc = held == HELD_UNKNOWN ? (int)e->code : OK;
    for (int64_t i = 0; held == HELD_NONE && i < h->objects.n; i++)
        if (!strcmp(h->objects.entry[i].url, path))
            rc = err_set(e, ERR_IO, "%s: is in the list of objects, and the store says that there is none", path);
    if (held == HELD_KNOWN) rc = copy_owner_parse(&h->owner, text, n, path, e);
    if (rc == ERR_REQUEST)
        rc = (int)(e->code = ERR_IO); /* forbidden, for example: nothing is wrong with what was asked */
    h->owned = held == HELD_KNOWN && !rc;
    xfree(text);
    xfree(path);
    return rc;
}

/* -- all of it --------------------------------------------------------------------------------------------------- */

/* The record says what was copied last: a list that lacks it, as one that is late does, is no list of what is there. */
static int lacks_last(const struct copy_place *p, const struct copy_held *h, const struct ckpt_listing *best,
                      struct err *e)
{
    if (!h->owned || h->owner.publication < 0 || (best && best->publication >= h->owner.publication)) return OK;
    for (int i = 0; i < h->n; i++)
        if (h->list[i].step == h->owner.step) return OK; /* it is there, and damaged */
    return err_set(e, ERR_IO,
                   "%s: the copy of step %" PRId64 ", which was made last, is not there; a store or a network file "
                   "system may show it later, and if it was removed on purpose, remove " COPY_OWNER_NAME " too",
                   p->shown, h->owner.step);
}

static int judge(const struct copy_place *p, const struct copy_held *h, const struct ckpt_listing *beside,
                 struct err *e)
{
    const struct ckpt_listing *best = h->newest;
    if (beside && (!best || beside->publication > best->publication)) best = beside;
    for (int i = h->n - 1; i >= 0; i--) {
        const struct ckpt_listing *x = &h->list[i];
        if (!ckpt_in_the_way(x, best, NULL) || (best && x->code == ERR_CORRUPT)) continue;
        return err_set(e, (enum err_code)x->code, "the copy of step %" PRId64 " in %s cannot be used and %s: %.500s",
                       x->step, p->shown,
                       !best               ? "there is no other"
                       : x->code == ERR_IO ? "whether it is the newest is unknown"
                                           : "may be the newest",
                       x->problem);
    }
    return lacks_last(p, h, best, e);
}

static void look_once(struct copy_place *p, const struct ckpt_listing *beside, struct copy_held *h)
{
    *h = (struct copy_held){.what = HELD_UNKNOWN, .owner = {.step = -1, .publication = -1}};
    int rc = p->r ? list_store(p, h, &h->why) : ckpt_list(p->to, &h->list, &h->n, &h->why);
    for (int i = 0; !rc && i < h->n; i++)
        if (h->list[i].code == OK) h->newest = &h->list[i];
    if (!rc) rc = copy_read_owner(p, h, &h->why);
    if (!rc) rc = judge(p, h, beside, &h->why);
    if (!rc) h->what = h->newest ? HELD_KNOWN : HELD_NONE;
}

/* An answer that is wrong once, or names that a file system shows late, are no damage: that is there the second time,
 * too. */
void copy_place_look(struct copy_place *p, const struct ckpt_listing *beside, struct copy_held *h)
{
    bool damaged = false;
    look_once(p, beside, h);
    for (int i = 0; i < h->n; i++) damaged |= h->list[i].code == ERR_CORRUPT;
    if (!damaged && h->why.code != ERR_CORRUPT) return;
    copy_held_free(h);
    look_once(p, beside, h);
}

void copy_held_free(struct copy_held *h)
{
    ckpt_list_free(h->list, h->n);
    copy_owner_free(&h->owner);
    remote_list_free(&h->objects);
    *h = (struct copy_held){.what = HELD_UNKNOWN};
}

/* -- ours? ------------------------------------------------------------------------------------------------------- */

static int refuse(const struct copy_place *p, const struct copy_held *h, const struct copy_self *me, uint64_t theirs,
                  struct err *e)
{
    char mine[64] = "this run, which has none of its own", dir[400] = "";
    if (me->run) snprintf(mine, sizeof mine, "this run, %016" PRIx64, me->run);
    if (h->owned) snprintf(dir, sizeof dir, " of %.300s", h->owner.dir);
    return err_set(e, ERR_REQUEST,
                   "%s holds copies of another run, %016" PRIx64 "%s, and not of %s (in %.300s): nothing of it is "
                   "fetched, written over or removed; give another checkpoint.copy_to%s",
                   p->shown, theirs, dir, mine, me->dir,
                   me->n_own ? ""
                             : ", or, if this run is to go on from that one in another directory, "
                               "checkpoint.resume=copy");
}

static bool same_here(const struct copy_held *h, const struct copy_self *me)
{
    for (int i = 0; h->newest && i < me->n_own; i++)
        if (me->own[i].code == OK && me->own[i].hash == h->newest->hash) return true;
    return false;
}

int copy_held_ours(const struct copy_place *p, const struct copy_held *h, const struct copy_self *me, uint64_t *run,
                   struct err *e)
{
    uint64_t theirs = h->owned ? h->owner.run : 0;
    *run = 0;
    for (int i = h->n - 1; i >= 0; i--) {
        if (!theirs) theirs = h->list[i].run;
        if (h->list[i].run && h->list[i].run != theirs)
            return err_set(e, ERR_REQUEST,
                           "%s holds copies of several runs (step %" PRId64 " is of run %016" PRIx64
                           ", and others are of run %016" PRIx64 "): give another checkpoint.copy_to",
                           p->shown, h->list[i].step, h->list[i].run, theirs);
    }
    *run = theirs;
    if (!theirs) { /* nothing, or what an older tutti left */
        if (!h->newest || !me->n_own || same_here(h, me)) return OK;
        return err_set(e, ERR_REQUEST,
                       "%s holds copies that name no run (an older tutti made them), and the newest, of step %" PRId64
                       ", is none of those of this run: copies of another run are not written over; give another "
                       "checkpoint.copy_to, or remove them",
                       p->shown, h->newest->step);
    }
    if (theirs == me->run) return OK;
    bool lost = !me->run && !me->n_own && h->owned && !strcmp(h->owner.dir, me->dir);
    return lost || (me->takes && !me->n_own) ? OK : refuse(p, h, me, theirs, e);
}
