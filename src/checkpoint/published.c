/* SPDX-License-Identifier: Apache-2.0 */
/* published.c: which checkpoints are there, giving them their names, and getting rid of the oldest.
 *
 * "Newest" (newest.c chooses it) is the one with the highest publication number, a counter kept in the manifests. Step
 * numbers would do until a run is rewound to an earlier step and goes on from there; file times would do until a clock
 * is wrong or a directory is copied. The link `latest` is for people and scripts: after a crash between the rename and
 * the link it names the last but one, so searching does not rely on it. Removal goes through a rename to
 * .trash-*: a crash in the middle never leaves half a checkpoint under a published name.
 * Cost: one read of every manifest below a root, at each save and at each start.
 */
#include "checkpoint/published.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"

#define STEP "step-"
#define TEMPORARY ".tmp-"
#define OLD ".old"
#define TRASH ".trash-"
#define LATEST "latest"
#define LATEST_TEMPORARY ".tmp-latest"
#define BEST "best"
#define BEST_TEMPORARY ".tmp-best"

/* -- names -------------------------------------------------------------------------------------------------- */

static char *step_path(const char *root, const char *prefix, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "%sstep-%08" PRId64, prefix, step);
    return fs_join(root, name);
}

char *published_dir(const char *root, int64_t step) { return step_path(root, "", step); }

char *published_temporary(const char *root, int64_t step) { return step_path(root, TEMPORARY, step); }

char *published_boxes(const char *dir, int rank, const char *suffix)
{
    char name[64];
    snprintf(name, sizeof name, "boxes-%05d.%s", rank, suffix);
    return fs_join(dir, name);
}

int64_t published_step(const char *name)
{
    if (!str_starts(name, STEP) || !name[5] || strlen(name) > 5 + 18) return -1;
    for (const char *c = name + 5; *c; c++)
        if (*c < '0' || *c > '9') return -1;
    return strtoll(name + 5, NULL, 10);
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

/* What is listed lies in its directory: a link that leads out of it would make a checkpoint of files that change, or
 * are another's, and be copied or removed as its own. A link that leads nowhere is missing (its caller sees). */
static int lies_inside(const char *path, const char *dir, struct err *e)
{
    struct stat st;
    if (lstat(path, &st) || !S_ISLNK(st.st_mode)) return OK;
    char *to = realpath(path, NULL), *home = realpath(dir, NULL);
    size_t n = home ? strlen(home) : 0;
    bool inside = !to || (home && !strncmp(to, home, n) && to[n] == '/');
    int rc = inside ? OK
                    : err_set(e, ERR_CORRUPT,
                              "%s: is a link that leads out of the checkpoint, to %.400s; a checkpoint's files lie in "
                              "its own directory: copy that file there, or use another checkpoint",
                              path, to);
    free(home);
    free(to);
    return rc;
}

int published_manifest(struct manifest *m, const char *dir, struct err *e)
{
    char *path = fs_join(dir, MANIFEST_NAME), *text = NULL;
    int64_t bytes = -1;
    size_t n;
    int rc = lies_inside(path, dir, e);
    if (rc == OK) rc = fs_look(path, &bytes, e);
    if (rc == OK && bytes < 0)
        rc = err_set(e, ERR_CORRUPT, "%s: missing: the checkpoint is not complete; use another one", path);
    if (rc == OK && fs_read_all(path, MANIFEST_LIMIT, &text, &n, e) < 0) rc = e ? (int)(e->code = ERR_IO) : ERR_IO;
    if (rc == OK) rc = manifest_parse(m, text, n, path, false, e);
    xfree(text);
    xfree(path);
    return rc;
}

static int compare_sizes(const struct manifest *m, const char *dir, struct err *e)
{
    int rc = OK;
    for (int i = 0; rc == OK && i < m->n_files; i++) {
        char *path = fs_join(dir, m->files[i].name);
        int64_t bytes = -1;
        rc = lies_inside(path, dir, e);
        if (rc == OK) rc = fs_look(path, &bytes, e);
        if (rc == OK && bytes < 0)
            rc = err_set(e, ERR_CORRUPT, "%s: missing: the checkpoint is not complete; use another one", path);
        if (rc == OK && bytes != m->files[i].bytes)
            rc = err_set(e, ERR_CORRUPT, "%s: has %" PRId64 " bytes, %" PRId64 " were written; use another checkpoint",
                         path, bytes, m->files[i].bytes);
        xfree(path);
    }
    return rc;
}

int published_read(struct manifest *m, const char *dir, struct err *e)
{
    int rc = published_manifest(m, dir, e);
    if (rc < 0) return rc;
    rc = compare_sizes(m, dir, e);
    if (rc < 0) manifest_fini(m);
    return rc;
}

/* Not compared with any file yet: they may say anything. */
static int64_t total_bytes(const struct manifest *m)
{
    int64_t sum = 0;
    for (int i = 0; i < m->n_files; i++)
        if (__builtin_add_overflow(sum, m->files[i].bytes, &sum)) return INT64_MAX;
    return sum;
}

static int by_publication(const void *a, const void *b)
{
    const struct ckpt_listing *x = a, *y = b;
    if (x->publication != y->publication) return x->publication < y->publication ? -1 : 1;
    return strcmp(x->path, y->path);
}

static void describe(struct ckpt_listing *l)
{
    struct manifest m;
    struct err problem = {0};
    l->publication = -1;
    l->code = published_manifest(&m, l->path, &problem);
    if (l->code == OK) {
        l->step = m.step;
        l->tokens = m.tokens;
        l->publication = m.publication;
        l->hash = m.hash;
        l->run = m.run;
        l->bytes = total_bytes(&m);
        l->n_tensors = m.n_tensors;
        l->code = compare_sizes(&m, l->path, &problem);
        manifest_fini(&m);
    }
    if (l->code < 0) snprintf(l->problem, sizeof l->problem, "%s", problem.text);
}

int ckpt_list(const char *root, struct ckpt_listing **out, int *n, struct err *e)
{
    char **names;
    int n_names;
    int64_t there;
    *out = NULL;
    *n = 0;
    int rc = fs_look(root, &there, e);
    if (rc < 0 || there < 0) return rc;
    rc = fs_list(root, &names, &n_names, e);
    if (rc < 0) return rc;
    struct ckpt_listing *list = xcalloc((size_t)n_names + 1, sizeof *list);
    for (int i = 0; i < n_names; i++) {
        int64_t step = published_step(names[i]);
        if (step < 0) continue;
        list[*n] = (struct ckpt_listing){.path = fs_join(root, names[i]), .step = step};
        describe(&list[(*n)++]);
    }
    fs_list_free(names, n_names);
    qsort(list, (size_t)*n, sizeof *list, by_publication);
    *out = list;
    return OK;
}

void ckpt_list_free(struct ckpt_listing *l, int n)
{
    for (int i = 0; i < n; i++) xfree(l[i].path);
    xfree(l);
}

char *published_any(const char *root)
{
    struct ckpt_listing *list;
    int n;
    char *answer = NULL;
    if (ckpt_list(root, &list, &n, NULL) < 0) return NULL;
    for (int i = n - 1; i >= 0 && !answer; i--)
        if (list[i].code == OK) answer = xstrdup(list[i].path);
    ckpt_list_free(list, n);
    return answer;
}

/* Those whose manifest cannot be read may have been the last ones published. */
int published_next(const char *root, int64_t *publication, struct err *e)
{
    struct ckpt_listing *list;
    int n;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc < 0) return rc;
    *publication = n > 0 && list[n - 1].publication > 0 ? list[n - 1].publication : 0;
    for (int i = 0; i < n && list[i].publication < 0; i++) ++*publication;
    ++*publication;
    ckpt_list_free(list, n);
    return OK;
}

int published_latest(const char *root, char **name, struct err *e)
{
    char *link = fs_join(root, LATEST), target[256] = "";
    *name = NULL;
    ssize_t n = readlink(link, target, sizeof target - 1);
    int why = n < 0 ? errno : 0, rc = OK;
    if (n > 0) *name = xstrdup(last_part(target));
    else if (why && why != ENOENT && why != ENOTDIR && why != EINVAL)
        rc = err_errno(e, ERR_IO, why, "%s: cannot be read", link);
    xfree(link);
    return rc;
}

/* -- files that several have ----------------------------------------------------------------------------------- */

bool published_shared(const char *dir, const char *other, const char *file)
{
    struct stat a, b;
    char *here = fs_join(dir, file), *there = fs_join(other, file);
    bool same = !stat(here, &a) && !stat(there, &b) && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    xfree(there);
    xfree(here);
    return same;
}

char *published_sharers(const char *dir, const char *file)
{
    char *root = fs_join(dir, ".."), **names;
    int n;
    struct str text = {0};
    if (fs_list(root, &names, &n, NULL) == OK) {
        for (int i = 0; i < n; i++) {
            char *other = fs_join(root, names[i]);
            if (published_step(names[i]) >= 0 && strcmp(names[i], last_part(dir)) && published_shared(dir, other, file))
                str_printf(&text, "%s%s", text.n ? ", " : "", names[i]);
            xfree(other);
        }
        fs_list_free(names, n);
    }
    xfree(root);
    return text.p;
}

/* -- changing ----------------------------------------------------------------------------------------------- */

static int remove_via_trash(const char *root, const char *path, struct err *e)
{
    struct str name = {0};
    str_printf(&name, TRASH "%s", last_part(path));
    char *trash = fs_join(root, name.p);
    int rc = fs_remove_tree(trash, e);
    if (rc == OK) rc = fs_rename(path, trash, e);
    if (rc == OK) rc = fs_remove_tree(trash, e);
    xfree(trash);
    str_free(&name);
    return rc;
}

/* What cannot be read is not replaced. */
static int make_room(const char *final, struct err *e)
{
    struct manifest m;
    struct err why;
    char *to;
    if (published_read(&m, final, &why) == OK) {
        manifest_fini(&m);
        return OK;
    }
    int rc = fs_set_aside(final, &to, e);
    if (rc == OK) log_warn("%s cannot be used and was moved to %s: %s", final, to, why.text);
    xfree(to);
    return rc;
}

/* Where a file system cannot swap two names: ckpt_recover mends what a crash between the two renames leaves. */
static int rename_by_turns(const char *temporary, const char *final, struct err *e)
{
    struct str old = {0};
    str_printf(&old, "%s" OLD, temporary);
    int rc = fs_remove_tree(old.p, e);
    if (rc == OK) rc = fs_rename(final, old.p, e);
    if (rc == OK && (rc = fs_rename(temporary, final, e)) < 0) {
        struct err trouble;
        if (fs_rename(old.p, final, &trouble) < 0) log_warn("%s", trouble.text);
    }
    if (rc == OK) rc = fs_remove_tree(old.p, e);
    str_free(&old);
    return rc;
}

int published_rename(const char *temporary, const char *final, struct err *e)
{
    enum held held = held_path(final, e); /* where that is unknown, nobody knows what would be replaced */
    int rc = held == HELD_UNKNOWN ? (e ? (int)e->code : ERR_IO) : held == HELD_KNOWN ? make_room(final, e) : OK;
    return rc < 0 ? rc : published_replace(temporary, final, e);
}

int published_replace(const char *temporary, const char *final, struct err *e)
{
    /* Where the step was saved before (a run was rewound) the two are swapped, so that there is always a complete one.
     */
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE)) {
        if (errno == ENOENT) return fs_rename(temporary, final, e); /* it was not */
        if (errno == EINVAL || errno == ENOSYS || errno == ENOTSUP)
            return held_path(final, NULL) == HELD_NONE ? fs_rename(temporary, final, e)
                                                       : rename_by_turns(temporary, final, e);
        return err_errno(e, ERR_IO, errno, "%s: cannot be swapped with %s", temporary, final);
    }
    struct str root = {0};
    str_add(&root, final, (size_t)(last_part(final) - final));
    int rc = fs_sync_dir(root.n ? root.p : ".", e);
    str_free(&root);
    if (rc < 0) return rc;
    struct err ignored;
    if (fs_remove_tree(temporary, &ignored) < 0) log_warn("%s", ignored.text); /* published: that is what counts */
    return OK;
}

/* The link that is called name, of a child of root; always there, the old one or the new one. */
static int set_link(const char *root, const char *name, const char *temporary_name, const char *dir, struct err *e)
{
    char *link = fs_join(root, name), *temporary = fs_join(root, temporary_name);
    int rc = fs_remove_tree(temporary, e);
    if (rc == OK && symlink(last_part(dir), temporary))
        rc = err_errno(e, ERR_IO, errno, "%s: cannot be created", temporary);
    if (rc == OK) rc = fs_rename(temporary, link, e);
    if (rc < 0) unlink(temporary);
    xfree(temporary);
    xfree(link);
    return rc;
}

int published_set_latest(const char *root, const char *dir, struct err *e)
{
    return set_link(root, LATEST, LATEST_TEMPORARY, dir, e);
}

int ckpt_set_best(const char *root, int64_t step, struct err *e)
{
    char *dir = step < 0 ? fs_join(root, BEST) : published_dir(root, step);
    int rc = step < 0 ? fs_remove_tree(dir, e) : set_link(root, BEST, BEST_TEMPORARY, dir, e);
    xfree(dir);
    return rc;
}

int64_t ckpt_best(const struct json *extra) { return json_int(json_get(json_get(extra, "best"), "step"), -1); }

int ckpt_remove(const char *root, int64_t step, struct err *e)
{
    char *dir = published_dir(root, step);
    int rc = remove_via_trash(root, dir, e);
    xfree(dir);
    return rc;
}

/* What the checkpoint of that directory says that the best one was when it was saved (-1: nothing), and whose it is. */
static int best_by(const char *dir, int64_t *step, uint64_t *run, struct err *e)
{
    struct manifest m;
    int rc = published_manifest(&m, dir, e);
    if (rc < 0) return rc;
    *step = ckpt_best(m.extra);
    *run = m.run;
    manifest_fini(&m);
    return OK;
}

/* A broken one is for a person, and another run's for that run. */
static bool counts(const struct ckpt_listing *l, uint64_t run)
{
    return l->code == OK && (!run || !l->run || l->run == run);
}

int published_prune(const char *root, int keep, int64_t keep_every, const char *newest, int64_t in_use, struct err *e)
{
    if (keep <= 0) return OK;
    struct ckpt_listing *list;
    int n, n_complete = 0;
    int64_t best = -1;
    uint64_t run = 0;
    int rc = best_by(newest, &best, &run, e);
    if (rc == OK) rc = ckpt_list(root, &list, &n, e);
    if (rc < 0) return rc;
    for (int i = 0; i < n; i++) n_complete += counts(&list[i], run);
    for (int i = 0; i < n && n_complete > keep && rc == OK; i++) {
        if (!counts(&list[i], run) || strcmp(list[i].path, newest) == 0) continue;
        n_complete--;
        if (list[i].step != in_use && list[i].step != best && (!keep_every || list[i].step % keep_every))
            rc = remove_via_trash(root, list[i].path, e);
    }
    ckpt_list_free(list, n);
    return rc;
}

/* Calls what(root, name) for each name below root; a root that is not there has none. */
static int for_names(const char *root, int (*what)(const char *root, const char *name, struct err *e), struct err *e)
{
    char **names;
    int n;
    int64_t there;
    int rc = fs_look(root, &there, e);
    if (rc < 0 || there < 0) return rc;
    rc = fs_list(root, &names, &n, e);
    if (rc < 0) return rc;
    for (int i = 0; i < n && rc == OK; i++) rc = what(root, names[i], e);
    fs_list_free(names, n);
    return rc;
}

static int recover(const char *root, const char *name, struct err *e)
{
    if (!str_starts(name, TEMPORARY STEP) || !str_ends(name, OLD)) return OK;
    struct str published = {0};
    int64_t there;
    str_add(&published, name + sizeof TEMPORARY - 1, strlen(name) - (sizeof TEMPORARY - 1) - (sizeof OLD - 1));
    char *from = fs_join(root, name), *to = fs_join(root, str_text(&published));
    int rc = fs_look(to, &there, e);
    if (rc == OK && there < 0) {
        log_warn("%s gets its name back: a save was interrupted while it was replaced", to);
        rc = fs_rename(from, to, e);
    }
    xfree(from);
    xfree(to);
    str_free(&published);
    return rc;
}

static int remove_leftover(const char *root, const char *name, struct err *e)
{
    if (!str_starts(name, TEMPORARY) && !str_starts(name, TRASH)) return OK;
    char *path = fs_join(root, name);
    log_info("removing %s, left by a save that did not finish", path);
    int rc = fs_remove_tree(path, e);
    xfree(path);
    return rc;
}

int ckpt_recover(const char *root, struct err *e) { return for_names(root, recover, e); }

int ckpt_clean(const char *root, struct err *e)
{
    int rc = ckpt_recover(root, e);
    return rc < 0 ? rc : for_names(root, remove_leftover, e);
}
