/* SPDX-License-Identifier: Apache-2.0 */
/* newest.c: which checkpoint a run, a root or a path means, and when that must not be guessed.
 *
 * To take an older checkpoint because the newest cannot be read is to throw steps away, and a run that then goes on
 * publishes over them. So the newest is chosen only when it is known. A checkpoint that cannot be used stands in the
 * way
 *   - when its manifest is readable and its publication is later than that of every usable one;
 *   - when its manifest is not, and its step is later than the newest usable one's, or `latest` names it;
 *   - always, when it could not be looked at at all: a disk or a permission that fails says nothing about what is
 *     there.
 * `latest` naming a later step that is not there stands in the way too: a network file system may show a directory
 * late. Damaged checkpoints that are certainly older are no reason to stop.
 * Cost: one read of every manifest below a root.
 */
#include <stdio.h>
#include <string.h>

#include "base/address.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/ckpt.h"
#include "checkpoint/foreign.h"
#include "checkpoint/published.h"

struct view { /* what is below a root */
    struct ckpt_listing *list;
    int n;
    int best;     /* newest usable one, -1 none */
    char *latest; /* the name that the link carries, NULL none */
};

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int look(struct view *v, const char *root, struct err *e)
{
    *v = (struct view){.best = -1};
    int rc = ckpt_list(root, &v->list, &v->n, e);
    for (int i = 0; i < v->n; i++)
        if (v->list[i].code == OK) v->best = i;
    return rc < 0 ? rc : published_latest(root, &v->latest, e);
}

static void view_free(struct view *v)
{
    ckpt_list_free(v->list, v->n);
    xfree(v->latest);
}

static bool means(const char *latest, const struct ckpt_listing *l)
{
    return latest && strcmp(latest, last_part(l->path)) == 0;
}

static bool is_latest(const struct view *v, const struct ckpt_listing *l) { return means(v->latest, l); }

bool ckpt_in_the_way(const struct ckpt_listing *l, const struct ckpt_listing *best, const char *latest)
{
    if (l->code == OK) return false;
    if (!best || l->code == ERR_IO) return true;
    if (l->publication >= 0) return l->publication > best->publication;
    return l->step > best->step || means(latest, l);
}

static bool in_the_way(const struct view *v, const struct ckpt_listing *l)
{
    return ckpt_in_the_way(l, v->best < 0 ? NULL : &v->list[v->best], v->latest);
}

/* The last of those in the way, NULL none. */
static const struct ckpt_listing *first_obstacle(const struct view *v)
{
    const struct ckpt_listing *found = NULL;
    for (int i = 0; i < v->n; i++)
        if (in_the_way(v, &v->list[i]) && (!found || v->list[i].step > found->step)) found = &v->list[i];
    return found;
}

/* latest names a later step than any that is there. */
static bool latest_is_gone(const struct view *v)
{
    if (!v->latest) return false;
    int64_t step = published_step(v->latest);
    for (int i = 0; i < v->n; i++)
        if (is_latest(v, &v->list[i])) return false;
    return step >= 0 && (v->best < 0 || step > v->list[v->best].step);
}

/* Why it is not known which is the newest; OK: it is. */
static int judge(const struct view *v, const char *root, struct err *e)
{
    const struct ckpt_listing *bad = first_obstacle(v);
    if (bad)
        return err_set(e, (enum err_code)bad->code, "%s cannot be used and %s: %.600s", bad->path,
                       v->best < 0           ? "there is no other"
                       : bad->code == ERR_IO ? "whether it is the newest is unknown"
                                             : "may be the newest",
                       bad->problem);
    if (!latest_is_gone(v)) return OK;
    return err_set(e, ERR_CORRUPT,
                   "%s/latest names %s, which is not there; a network file system may show it later, and if it was "
                   "removed on purpose, remove the link too",
                   root, v->latest);
}

void ckpt_hold(struct ckpt_held *h, const char *root)
{
    struct view v;
    *h = (struct ckpt_held){.what = HELD_UNKNOWN};
    int rc = look(&v, root, &h->why);
    if (rc == OK) rc = judge(&v, root, &h->why);
    for (int i = 0; rc == OK && i < v.n; i++)
        if (v.list[i].code < 0) log_warn("skipping %s, an older one: %s", v.list[i].path, v.list[i].problem);
    if (rc == OK) h->what = v.best < 0 ? HELD_NONE : HELD_KNOWN;
    if (v.best >= 0) {
        h->newest = v.list[v.best];
        h->newest.path = xstrdup(v.list[v.best].path);
    }
    view_free(&v);
}

void ckpt_held_free(struct ckpt_held *h)
{
    xfree(h->newest.path);
    *h = (struct ckpt_held){.what = HELD_UNKNOWN};
}

int ckpt_newest(const char *root, char **path, char **nearest, struct err *e)
{
    struct ckpt_held h;
    *path = NULL;
    if (nearest) *nearest = NULL;
    ckpt_hold(&h, root);
    char **out = h.what == HELD_UNKNOWN ? nearest : path;
    if (h.newest.path && out) *out = xstrdup(h.newest.path);
    int rc = h.what == HELD_UNKNOWN ? err_set(e, h.why.code, "%s", h.why.text) : OK;
    ckpt_held_free(&h);
    return rc;
}

int ckpt_find_latest(const char *root, char **path, struct err *e)
{
    char *nearest;
    int rc = ckpt_newest(root, path, &nearest, e);
    if (rc < 0 && nearest && e) {
        size_t n = strlen(e->text);
        snprintf(e->text + n, sizeof e->text - n, "; the nearest that can be used is %s: name it", nearest);
    }
    xfree(nearest);
    return rc;
}

int ckpt_resolve(const char *path, char **out, struct err *e)
{
    int64_t manifest_bytes, bytes;
    *out = NULL;
    char *manifest = fs_join(path, MANIFEST_NAME);
    int rc = fs_look(manifest, &manifest_bytes, e);
    xfree(manifest);
    if (rc == OK) rc = fs_look(path, &bytes, e);
    if (rc < 0) return rc;
    if (manifest_bytes >= 0) {
        *out = xstrdup(path);
        return OK;
    }
    if (bytes < 0 && address_is(path)) return address_refuse(path, "a checkpoint on this host", e);
    if (bytes < 0) return err_set(e, ERR_REQUEST, "%s: no such checkpoint", path);
    if (!fs_is_dir(path)) return foreign_refuse(path, e);
    char *inner = fs_join(path, "checkpoints");
    rc = fs_look(inner, &bytes, e);
    if (rc == OK) rc = ckpt_find_latest(bytes >= 0 ? inner : path, out, e);
    xfree(inner);
    if (rc == OK && !*out) rc = foreign_refuse(path, e);
    return rc;
}

int ckpt_set_aside(const char *root, const char *chosen, struct err *e)
{
    struct view v;
    int rc = look(&v, root, e);
    bool relink = rc == OK && latest_is_gone(&v);
    for (int i = 0; rc == OK && i < v.n; i++) {
        char *to;
        if (!in_the_way(&v, &v.list[i])) continue;
        rc = fs_set_aside(v.list[i].path, &to, e);
        if (rc == OK) log_warn("%s cannot be used and was moved to %s", v.list[i].path, to);
        relink = relink || is_latest(&v, &v.list[i]);
        xfree(to);
    }
    if (rc == OK && relink) rc = published_set_latest(root, chosen, e);
    view_free(&v);
    return rc;
}
