/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 0's choice travels as a path and three numbers; the others open that path and compare. What they hold open is
 * what they load: nobody looks again. Each rank that looked for itself would be one network file system away from
 * another step, and checkpoints of mixed steps look whole. Cost: a broadcast of some hundred bytes, a manifest read per
 * rank. */
#include "keep/resume.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"

static const char key[] = "checkpoint.resume";

static int together(struct comm *world, int rc, struct err *e) { return world ? comm_agree(world, rc, e) : rc; }

static const char *last_part(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

/* Whether path lies directly below root. */
static int lies_in(const char *path, const char *root, bool *yes, struct err *e)
{
    struct stat a, b;
    char *above = fs_join(path, "..");
    int rc = stat(above, &a) ? err_errno(e, ERR_IO, errno, "%s: cannot be looked at", above) : OK;
    bool there = stat(root, &b) == 0;
    if (!rc && !there && errno != ENOENT && errno != ENOTDIR)
        rc = err_errno(e, ERR_IO, errno, "%s: cannot be looked at", root);
    *yes = !rc && there && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
    xfree(above);
    return rc;
}

/* ---- what rank 0 finds ---- */
/* own: it is one of this run's, which its name is enough for. */
static void add_nearest(const char *nearest, bool own, struct err *e)
{
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, "; the nearest that can be used is %s: choose it with %s=%s", nearest,
             key, own ? last_part(nearest) : nearest);
}

static void add_advice(const char *nearest, bool own, struct err *e)
{
    if (nearest) add_nearest(nearest, own, e);
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n, "%s start afresh with %s=never, which moves all of them aside",
             nearest ? ", or" : ";", key);
}

/* The newest usable one of root, but for `than` and what has its damaged file; xfree it. NULL: there is none. */
static char *nearest_in(const char *root, const char *than, const char *file)
{
    struct ckpt_listing *list;
    int n;
    char *nearest = NULL;
    if (ckpt_list(root, &list, &n, NULL) < 0) return NULL;
    for (int i = n - 1; i >= 0 && !nearest; i--)
        if (list[i].code == OK && (!than || strcmp(last_part(list[i].path), last_part(than))) &&
            !(file && than && ckpt_shared(than, list[i].path, file)))
            nearest = xstrdup(list[i].path);
    ckpt_list_free(list, n);
    return nearest;
}

void resume_advise(const char *root, const char *than, const char *file, struct err *e)
{
    bool own = true;
    if (than && (lies_in(than, root, &own, NULL) || own)) own = true;
    const char *slash = than ? strrchr(than, '/') : NULL;
    char *above = own ? xstrdup(root) : slash ? xstrndup(than, (size_t)(slash - than)) : xstrdup(".");
    char *nearest = nearest_in(above, than, file);
    if (!nearest && !own) {
        nearest = nearest_in(root, NULL, NULL);
        own = true;
    }
    add_advice(nearest, own, e);
    xfree(nearest);
    xfree(above);
}

/* The checkpoint that a link below root (latest, best) names; what is no link stays what it is. */
static void follow(const char *root, char **path)
{
    char name[64];
    ssize_t n = readlink(*path, name, sizeof name - 1);
    if (n <= 0) return;
    name[n] = 0;
    if (ckpt_step_of(name) < 0) return;
    xfree(*path);
    *path = fs_join(root, name);
}

/* A word without a slash is the name of one below root when it is there. */
static int named(const char *how, const char *root, char **path, struct err *e)
{
    int64_t there = -1;
    char *own = fs_join(root, how);
    int rc = strchr(how, '/') ? OK : fs_look(own, &there, e);
    if (!rc && there >= 0) follow(root, &own);
    if (!rc && there >= 0) *path = xstrdup(own);
    if (!rc && there < 0) rc = ckpt_resolve(how, path, e);
    xfree(own);
    return rc;
}

/* *path: NULL for a fresh start. */
static int find(const char *how, const char *root, char **path, struct err *e)
{
    char *nearest = NULL;
    int rc = OK;
    *path = NULL;
    if (!strcmp(how, "never")) return OK;
    if (strcmp(how, "auto")) {
        rc = named(how, root, path, e);
        if (rc && !strstr(e->text, "the nearest that can be used") && (nearest = nearest_in(root, NULL, NULL)))
            add_nearest(nearest, true, e);
        xfree(nearest);
        return rc;
    }
    rc = ckpt_recover(root, e);
    if (!rc) rc = ckpt_newest(root, path, &nearest, e);
    if (rc) {
        add_advice(nearest, true, e);
        err_prefix(e, "cannot resume");
    }
    xfree(nearest);
    return rc;
}

/* ---- what all agree on ---- */
static int share(struct comm *world, char **path, bool *own, struct err *e)
{
    int64_t head[] = {*path ? (int64_t)strlen(*path) : -1, *own};
    comm_wait(world, comm_broadcast(world, head, 2, DT_I64, 0, "length of the checkpoint's path"));
    int rc = comm_status(world, e);
    if (rc || head[0] < 0) return rc;
    char *text = xcalloc((size_t)head[0] + 1, 1);
    if (comm_rank(world) == 0) memcpy(text, *path, (size_t)head[0]);
    comm_wait(world, comm_broadcast(world, text, head[0], DT_U8, 0, "path of the checkpoint"));
    xfree(*path);
    *path = text;
    *own = head[1];
    return comm_status(world, e);
}

static int compare_first(struct comm *world, const struct ckpt *c, int rc, struct err *e)
{
    enum { STEP, PUBLICATION, TOKENS, HASH, N };
    int64_t mine[N] = {0}, first[N];
    if (c)
        memcpy(mine, (int64_t[N]){ckpt_step(c), ckpt_publication(c), ckpt_tokens(c), (int64_t)ckpt_hash(c)},
               sizeof mine);
    memcpy(first, mine, sizeof first);
    comm_wait(world, comm_broadcast(world, first, N, DT_I64, 0, "which checkpoint"));
    int broken = comm_status(world, e);
    if (broken || (rc && comm_rank(world) == 0)) return broken ? broken : rc;
    if (!rc && memcmp(mine, first, sizeof mine))
        rc = err_set(e, ERR_IO, "%s: here it is step %" PRId64 ", publication %" PRId64 ", manifest %016" PRIx64,
                     ckpt_path(c), mine[STEP], mine[PUBLICATION], (uint64_t)mine[HASH]);
    if (!rc) return OK;
    size_t n = strlen(e->text);
    snprintf(e->text + n, sizeof e->text - n,
             "; rank 0 goes on from step %" PRId64 ", publication %" PRId64 ", manifest %016" PRIx64
             ": every process must see the same files; wait until the file system shows them everywhere, and start "
             "again",
             first[STEP], first[PUBLICATION], (uint64_t)first[HASH]);
    return rc;
}

static int open_same(struct resume *r, struct comm *world, const char *root, const char *path, struct err *e)
{
    int rc = ckpt_open(&r->ckpt, path, e);
    if (rc) err_prefix(e, "cannot resume");
    if (world) rc = compare_first(world, r->ckpt, rc, e);
    bool looks = !world || comm_rank(world) == 0;
    if (rc && looks) resume_advise(root, path, NULL, e);
    return together(world, rc, e);
}

int resume_choose(struct resume *r, struct comm *world, const struct config *c, const struct conf *f, const char *root,
                  struct err *e)
{
    const char *how = c->checkpoint.resume;
    char *path = NULL;
    bool looks = !world || comm_rank(world) == 0;
    *r = (struct resume){.chosen = strcmp(how, "auto") != 0};
    int rc = looks ? find(how, root, &path, e) : OK;
    if (!rc && path) rc = lies_in(path, root, &r->own, e);
    if (rc && r->chosen) err_prefix(e, "%s: %s", conf_where(f, key), key);
    rc = together(world, rc, e);
    if (!rc && world) rc = share(world, &path, &r->own, e);
    if (!rc && path) rc = open_same(r, world, root, path, e);
    if (rc) resume_free(r);
    xfree(path);
    return rc;
}

void resume_free(struct resume *r)
{
    ckpt_close(r->ckpt);
    r->ckpt = NULL;
}

/* ---- afterwards ---- */
int resume_done(const struct resume *r, const char *root, struct err *e)
{
    struct ckpt_listing *list;
    int n;
    char *to;
    int rc = ckpt_list(root, &list, &n, e);
    if (rc) return rc;
    ckpt_list_free(list, n);
    if (n && r->chosen && !r->own) {
        rc = fs_set_aside(root, &to, e);
        if (!rc) log_warn("this run does not go on from the checkpoints in %s: they were moved to %s", root, to);
        xfree(to);
        return rc;
    }
    if (n && r->chosen) rc = ckpt_set_aside(root, ckpt_path(r->ckpt), e);
    return rc ? rc : ckpt_clean(root, e);
}
