/* published.c: which checkpoints are there, which is the newest, and getting rid of the oldest.
 *
 * "Newest" is the one with the highest publication number, a counter kept in the manifests. Step numbers would do
 * until a run is rewound to an earlier step and goes on from there; file times would do until a clock is wrong
 * or a directory is copied. The link `latest` is for people and scripts: after a crash between the rename and
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
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "checkpoint/ckpt.h"

#define TEMPORARY ".tmp-"
#define TRASH ".trash-"
#define LATEST "latest"
#define LATEST_TEMPORARY ".tmp-latest"

/* -- names -------------------------------------------------------------------------------------------------- */

static char *step_path(const char *root, const char *prefix, int64_t step)
{
    char name[64];
    snprintf(name, sizeof name, "%sstep-%08" PRId64, prefix, step);
    return fs_join(root, name);
}

char *published_dir(const char *root, int64_t step)
{
    return step_path(root, "", step);
}

char *published_temporary(const char *root, int64_t step)
{
    return step_path(root, TEMPORARY, step);
}

static bool is_step_name(const char *name)
{
    if (!str_starts(name, "step-") || !name[5]) return false;
    for (const char *c = name + 5; *c; c++)
        if (*c < '0' || *c > '9') return false;
    return true;
}

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* -- reading ------------------------------------------------------------------------------------------------ */

int published_read(struct manifest *m, const char *dir, struct err *e)
{
    char *path = fs_join(dir, MANIFEST_NAME);
    int rc = manifest_read(m, path, false, e);
    xfree(path);
    for (int i = 0; rc == OK && i < m->n_files; i++) {
        path = fs_join(dir, m->files[i].name);
        int64_t bytes = fs_size(path);
        if (bytes < 0)
            rc = err_set(e, ERR_CORRUPT, "%s: missing: the checkpoint is not complete; use another one", path);
        else if (bytes != m->files[i].bytes)
            rc = err_set(e, ERR_CORRUPT, "%s: has %" PRId64 " bytes, %" PRId64 " were written; use another checkpoint",
                         path, bytes, m->files[i].bytes);
        xfree(path);
        if (rc < 0) manifest_fini(m);
    }
    return rc;
}

static int64_t total_bytes(const struct manifest *m)
{
    int64_t sum = 0;
    for (int i = 0; i < m->n_files; i++) sum += m->files[i].bytes;
    return sum;
}

static int by_publication(const void *a, const void *b)
{
    const struct ckpt_listing *x = a, *y = b;
    if (x->publication != y->publication) return x->publication < y->publication ? -1 : 1;
    return strcmp(x->path, y->path);
}

int ckpt_list(const char *root, struct ckpt_listing **out, int *n, struct err *e)
{
    *out = NULL;
    *n = 0;
    if (!fs_exists(root)) return OK;
    char **names;
    int n_names;
    int rc = fs_list(root, &names, &n_names, e);
    if (rc < 0) return rc;
    struct ckpt_listing *list = xcalloc((size_t)n_names + 1, sizeof *list);
    for (int i = 0; i < n_names; i++) {
        if (!is_step_name(names[i])) continue;
        struct ckpt_listing *l = &list[(*n)++];
        struct manifest m;
        struct err problem = {0};
        l->path = fs_join(root, names[i]);
        l->step = strtoll(names[i] + 5, NULL, 10);
        if (published_read(&m, l->path, &problem) < 0) {
            snprintf(l->problem, sizeof l->problem, "%s", problem.text);
            l->publication = -1;
            continue;
        }
        l->step = m.step;
        l->tokens = m.tokens;
        l->publication = m.publication;
        l->bytes = total_bytes(&m);
        l->n_tensors = m.n_tensors;
        manifest_fini(&m);
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

int ckpt_find_latest(const char *root, char **path, struct err *e)
{
    struct ckpt_listing *list;
    int n;
    *path = NULL;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc < 0) return rc;
    for (int i = 0; i < n; i++)
        if (*list[i].problem) log_warn("skipping %s: %s", list[i].path, list[i].problem);
    if (n > 0 && !*list[n - 1].problem) *path = xstrdup(list[n - 1].path);
    ckpt_list_free(list, n);
    return OK;
}

int ckpt_resolve(const char *path, char **out, struct err *e)
{
    *out = NULL;
    char *manifest = fs_join(path, MANIFEST_NAME);
    bool itself = fs_exists(manifest);
    xfree(manifest);
    if (itself) {
        *out = xstrdup(path);
        return OK;
    }
    if (!fs_exists(path)) return err_set(e, ERR_REQUEST, "%s: no such checkpoint", path);
    if (!fs_is_dir(path)) return err_set(e, ERR_REQUEST, "%s: is a file; a checkpoint is a directory", path);
    char *inner = fs_join(path, "checkpoints");
    int rc = ckpt_find_latest(fs_is_dir(inner) ? inner : path, out, e);
    xfree(inner);
    if (rc == OK && !*out)
        rc = err_set(e, ERR_REQUEST, "%s: holds no complete checkpoint (no step-*/%s)", path, MANIFEST_NAME);
    return rc;
}

char *published_any(const char *root)
{
    char *link = fs_join(root, LATEST), target[256] = "", *answer = NULL;
    bool found = fs_is_dir(link) && readlink(link, target, sizeof target - 1) > 0;
    xfree(link);
    if (found) return fs_join(root, last_part(target));
    char **names;
    int n;
    if (fs_list(root, &names, &n, NULL) < 0) return NULL;
    for (int i = n - 1; i >= 0 && !answer; i--)
        if (is_step_name(names[i])) answer = fs_join(root, names[i]);
    fs_list_free(names, n);
    return answer;
}

int published_next(const char *root, int64_t *publication, struct err *e)
{
    struct ckpt_listing *list;
    int n;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc < 0) return rc;
    *publication = (n > 0 && list[n - 1].publication > 0 ? list[n - 1].publication : 0) + 1;
    ckpt_list_free(list, n);
    return OK;
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

int published_rename(const char *temporary, const char *final, struct err *e)
{
    if (!fs_exists(final)) return fs_rename(temporary, final, e);
    /* The step was saved before (a run was rewound): swap the two, so that there is always a complete one. */
    if (renameat2(AT_FDCWD, temporary, AT_FDCWD, final, RENAME_EXCHANGE)) {
        if (errno != EINVAL && errno != ENOSYS && errno != ENOTSUP)
            return err_errno(e, ERR_IO, errno, "%s: cannot be swapped with %s", temporary, final);
        struct str aside = {0};
        str_printf(&aside, "%s.old", temporary); /* begins with .tmp-: ckpt_clean removes it after a crash */
        int rc = fs_remove_tree(aside.p, e);
        if (rc == OK) rc = fs_rename(final, aside.p, e);
        if (rc == OK) rc = fs_rename(temporary, final, e);
        if (rc == OK) rc = fs_remove_tree(aside.p, e);
        str_free(&aside);
        return rc;
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

int published_set_latest(const char *root, const char *dir, struct err *e)
{
    char *link = fs_join(root, LATEST), *temporary = fs_join(root, LATEST_TEMPORARY);
    int rc = fs_remove_tree(temporary, e);
    if (rc == OK && symlink(last_part(dir), temporary))
        rc = err_errno(e, ERR_IO, errno, "%s: cannot be created", temporary);
    if (rc == OK) rc = fs_rename(temporary, link, e);
    if (rc < 0) unlink(temporary);
    xfree(temporary);
    xfree(link);
    return rc;
}

int published_prune(const char *root, int keep, const char *newest, struct err *e)
{
    if (keep <= 0) return OK;
    struct ckpt_listing *list;
    int n, n_complete = 0;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc < 0) return rc;
    for (int i = 0; i < n; i++) n_complete += !*list[i].problem;
    for (int i = 0; i < n && n_complete > keep && rc == OK; i++) {
        if (*list[i].problem || strcmp(list[i].path, newest) == 0) continue; /* a broken one is for a person */
        rc = remove_via_trash(root, list[i].path, e);
        n_complete--;
    }
    ckpt_list_free(list, n);
    return rc;
}

int ckpt_clean(const char *root, struct err *e)
{
    if (!fs_exists(root)) return OK;
    char **names;
    int n;
    int rc = fs_list(root, &names, &n, e);
    if (rc < 0) return rc;
    for (int i = 0; i < n && rc == OK; i++) {
        if (!str_starts(names[i], TEMPORARY) && !str_starts(names[i], TRASH)) continue;
        char *path = fs_join(root, names[i]);
        log_info("removing %s, left by a save that did not finish", path);
        rc = fs_remove_tree(path, e);
        xfree(path);
    }
    fs_list_free(names, n);
    return rc;
}
