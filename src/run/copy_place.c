/* SPDX-License-Identifier: Apache-2.0 */
/* Files go one after the other, in pieces; a store's parts are retried by remote/upload.c. Before a manifest is written
 * the store is asked what it has, so that a store that keeps less than it was given is found before anybody relies on
 * it. Removal takes the manifest first: what is half removed is not complete.
 */
#include "run/copy_place.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "checkpoint/manifest.h"

#define PIECE ((int64_t)8 << 20)

int copy_place_open(struct copy_place *p, const char *to, const struct remote_options *o, struct err *e)
{
    *p = (struct copy_place){.to = xstrdup(to), .shown = remote_is(to) ? remote_shown(to) : xstrdup(to)};
    for (size_t n = strlen(p->to); n > 1 && p->to[n - 1] == '/'; n--) p->to[n - 1] = 0;
    if (!remote_is(to)) return OK;
    if (!str_starts(to, "s3://"))
        return err_set(e, ERR_REQUEST,
                       "%s: checkpoints are copied to a folder or to s3://BUCKET/PREFIX; http:// and https:// have no "
                       "agreed way to list and remove",
                       p->shown);
    p->r = remote_new(o);
    return OK;
}

void copy_place_close(struct copy_place *p)
{
    remote_free(p->r);
    xfree(p->to);
    xfree(p->shown);
    *p = (struct copy_place){0};
}

static char *url_of(const struct copy_place *p, int64_t step, const char *name)
{
    struct str s = {0};
    str_printf(&s, "%s/step-%08" PRId64 "/%s", p->to, step, name);
    return s.p;
}

/* -- what a store has ------------------------------------------------------------------------------------------ */

/* "s3://b/p/step-00000500/NAME": the step and the name; -1: something else. */
static int64_t step_in(const struct copy_place *p, const char *url, const char **name)
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

static int64_t bytes_there(const struct copy_place *p, const struct remote_list *l, int64_t step, const char *name)
{
    for (int64_t i = 0; i < l->n; i++) {
        const char *found;
        if (step_in(p, l->entry[i].url, &found) == step && !strcmp(found, name)) return l->entry[i].about.bytes;
    }
    return -1;
}

static bool all_there(const struct copy_place *p, const struct remote_list *l, const struct manifest *m)
{
    for (int i = 0; i < m->n_files; i++) /* lists leave empty objects out */
        if (m->files[i].bytes && bytes_there(p, l, m->step, m->files[i].name) != m->files[i].bytes) return false;
    return true;
}

static int read_manifest(struct copy_place *p, int64_t step, struct manifest *m, struct err *e)
{
    char *url = url_of(p, step, MANIFEST_NAME), *text;
    size_t n;
    int rc = remote_get(p->r, url, MANIFEST_LIMIT, &text, &n, e);
    if (!rc) rc = manifest_parse(m, text, n, url, false, e);
    if (!rc && m->step != step) {
        rc = err_set(e, ERR_CORRUPT, "%s: is of step %" PRId64, url, m->step);
        manifest_fini(m);
    }
    if (text) xfree(text);
    xfree(url);
    return rc;
}

struct stored_copies {
    struct copy_at *at;
    int n, room;
};

/* All complete ones of a bucket. What is damaged is passed over with a warning: another copy may do. */
static int list_store(struct copy_place *p, const struct remote_list *l, struct stored_copies *s, struct err *e)
{
    for (int64_t i = 0; i < l->n; i++) {
        const char *name;
        struct manifest m;
        struct err why;
        int64_t step = step_in(p, l->entry[i].url, &name);
        if (step < 0 || strcmp(name, MANIFEST_NAME)) continue;
        int rc = read_manifest(p, step, &m, &why);
        if (rc == ERR_IO || rc == ERR_SIGNAL) {
            *e = why;
            return rc;
        }
        if (rc) log_warn("a copy that cannot be used: %s", why.text);
        if (rc) continue;
        GROW(s->at, s->n, s->room, 1);
        if (all_there(p, l, &m)) s->at[s->n++] = (struct copy_at){step, m.publication, m.hash};
        manifest_fini(&m);
    }
    return OK;
}

static int newest_folder(const struct copy_place *p, struct copy_at *newest, struct err *e)
{
    struct ckpt_listing *list;
    int n;
    int rc = ckpt_list(p->to, &list, &n, e);
    for (int i = 0; !rc && i < n; i++) {
        struct ckpt *c;
        if (list[i].code || list[i].publication < newest->publication) continue;
        if (ckpt_open(&c, list[i].path, NULL)) continue;
        *newest = (struct copy_at){list[i].step, list[i].publication, ckpt_hash(c)};
        ckpt_close(c);
    }
    ckpt_list_free(list, n);
    return rc;
}

int copy_place_newest(struct copy_place *p, struct copy_at *newest, struct err *e)
{
    struct remote_list l;
    struct stored_copies s = {0};
    *newest = (struct copy_at){-1, -1, 0};
    if (!p->r) return newest_folder(p, newest, e);
    int rc = remote_list(p->r, p->to, &l, e);
    if (rc) return rc;
    rc = list_store(p, &l, &s, e);
    for (int i = 0; !rc && i < s.n; i++)
        if (s.at[i].publication > newest->publication) *newest = s.at[i];
    xfree(s.at);
    remote_list_free(&l);
    return rc;
}

/* -- files ----------------------------------------------------------------------------------------------------- */

/* Bytes of a file of this host, or of an object. */
struct reader {
    struct fs_file f;
    struct object *o;
};

static int read_file(void *ctx, int64_t at, size_t n, void *out, struct err *e)
{
    const struct reader *r = ctx;
    return r->o ? object_read(r->o, at, n, out, e) : fs_file_read(&r->f, at, n, out, e);
}

static int write_file(const char *path, remote_source_fn *source, void *ctx, int64_t bytes, struct err *e)
{
    struct fs_writer *w;
    int rc = fs_writer_open(&w, path, e);
    if (rc) return rc;
    void *piece = xmalloc(PIECE);
    for (int64_t at = 0; at < bytes && !rc; at += PIECE) {
        size_t n = to_size(bytes - at < PIECE ? bytes - at : PIECE);
        rc = source(ctx, at, n, piece, e);
        if (!rc) rc = fs_writer_write(w, piece, n, e);
    }
    xfree(piece);
    int closed = fs_writer_close(w, true, rc ? NULL : e);
    return rc ? rc : closed;
}

/* One file of this host to where path says. */
static int copy_file(struct copy_place *p, const char *from, const char *path, struct err *e)
{
    struct reader r = {0};
    int rc = fs_file_open(&r.f, from, e);
    if (!rc) {
        rc = p->r ? remote_put(p->r, path, read_file, &r, r.f.bytes, e) : write_file(path, read_file, &r, r.f.bytes, e);
        fs_file_close(&r.f);
    }
    return rc;
}

/* -- making one ------------------------------------------------------------------------------------------------ */

/* What the copy before this one has of it already: boxes that stand still (checkpoint/still.h). */
struct twins {
    bool any;
    struct manifest mine, theirs;
};

static int read_twins(struct copy_place *p, const char *from, int64_t step, struct twins *t, struct err *e)
{
    char name[64];
    *t = (struct twins){0};
    char *path = fs_join(from, MANIFEST_NAME);
    int rc = manifest_read(&t->mine, path, false, e);
    xfree(path);
    if (rc) return rc;
    snprintf(name, sizeof name, "step-%08" PRId64 "/" MANIFEST_NAME, step);
    path = fs_join(p->to, name);
    t->any = step >= 0 &&
             (p->r ? read_manifest(p, step, &t->theirs, NULL) : manifest_read(&t->theirs, path, false, NULL)) == OK;
    xfree(path);
    return OK; /* without it all is copied */
}

static void free_twins(struct twins *t)
{
    manifest_fini(&t->mine);
    if (t->any) manifest_fini(&t->theirs);
}

static bool has_twin(const struct twins *t, const char *name)
{
    int a = 0, b = 0;
    if (!t->any) return false;
    while (a < t->mine.n_files && strcmp(t->mine.files[a].name, name)) a++;
    while (b < t->theirs.n_files && strcmp(t->theirs.files[b].name, name)) b++;
    return a < t->mine.n_files && b < t->theirs.n_files && manifest_same_file(&t->mine, a, &t->theirs, b);
}

/* The place's own file once more: a store copies it, in a folder it is linked. False: it has to be brought. */
static bool take_twin(struct copy_place *p, const struct twins *t, const char *name, int64_t bytes, const char *to)
{
    struct err why;
    if (!has_twin(t, name)) return false;
    char *from, *dir = NULL;
    if (p->r) {
        from = url_of(p, t->theirs.step, name);
    } else {
        char step[40];
        snprintf(step, sizeof step, "step-%08" PRId64, t->theirs.step);
        dir = fs_join(p->to, step);
        from = fs_join(dir, name);
    }
    int rc = p->r ? remote_copy(p->r, from, to, bytes, &why) : fs_link(from, to, &why);
    if (rc && rc != ERR_SIGNAL) log_info("%s is brought again: %s", name, why.text);
    xfree(from);
    xfree(dir);
    return !rc;
}

/* What the store has must be what it was given. */
static int check_store(struct copy_place *p, const struct ckpt *c, struct err *e)
{
    struct remote_list l = {0};
    int rc = remote_list(p->r, p->to, &l, e);
    for (int k = 0; k < ckpt_n_files(c) && !rc; k++) {
        char *file = fs_join(ckpt_path(c), ckpt_file_name(c, k));
        int64_t wanted = fs_size(file), found = bytes_there(p, &l, ckpt_step(c), ckpt_file_name(c, k));
        if (wanted && found != wanted)
            rc = err_set(e, ERR_IO,
                         "%s: the store has %" PRId64 " bytes of step %" PRId64 "'s %s, it was given %" PRId64,
                         p->shown, found, ckpt_step(c), ckpt_file_name(c, k), wanted);
        xfree(file);
    }
    remote_list_free(&l);
    return rc;
}

/* Each file, compared before its bytes leave; the manifest last. */
static int put_files(struct copy_place *p, struct ckpt *c, const struct twins *t, const char *dir, struct err *e)
{
    int rc = OK;
    for (int i = 0; i <= ckpt_n_files(c) && !rc; i++) {
        bool last = i == ckpt_n_files(c);
        const char *name = last ? MANIFEST_NAME : ckpt_file_name(c, i);
        char *from = fs_join(ckpt_path(c), name), *to = p->r ? url_of(p, ckpt_step(c), name) : fs_join(dir, name);
        if (last && p->r) rc = check_store(p, c, e);
        if (last || !take_twin(p, t, name, fs_size(from), to)) {
            if (!rc && !last) rc = ckpt_verify_file(c, i, e);
            if (!rc) rc = copy_file(p, from, to, e);
        }
        xfree(to);
        xfree(from);
    }
    return rc;
}

static int remove_step(struct copy_place *p, const struct remote_list *l, int64_t step, struct err *e)
{
    int rc = OK;
    for (int manifest = 1; manifest >= 0; manifest--)
        for (int64_t i = 0; i < l->n && !rc; i++) {
            const char *name;
            if (step_in(p, l->entry[i].url, &name) != step || (strcmp(name, MANIFEST_NAME) == 0) != (manifest == 1))
                continue;
            rc = remote_remove(p->r, l->entry[i].url, e);
        }
    return rc;
}

/* best: a step that stays. */
static int prune_store(struct copy_place *p, int keep, int64_t best, struct err *e)
{
    struct remote_list l;
    struct stored_copies s = {0};
    int rc = remote_list(p->r, p->to, &l, e);
    if (rc) return rc;
    rc = list_store(p, &l, &s, e);
    while (!rc && s.n > keep) {
        int oldest = 0;
        for (int i = 1; i < s.n; i++)
            if (s.at[i].publication < s.at[oldest].publication) oldest = i;
        if (s.at[oldest].step != best) rc = remove_step(p, &l, s.at[oldest].step, e);
        s.at[oldest] = s.at[--s.n];
    }
    xfree(s.at);
    remote_list_free(&l);
    return rc;
}

/* A copy of that step that is there is not complete any more before its files change. */
static int begin_store(struct copy_place *p, int64_t step, struct err *e)
{
    char *manifest = url_of(p, step, MANIFEST_NAME);
    int rc = remote_remove(p->r, manifest, e);
    xfree(manifest);
    return rc;
}

int copy_place_put(struct copy_place *p, const char *from, int keep, bool *made, struct err *e)
{
    struct ckpt *c;
    struct copy_at newest;
    int rc = ckpt_open(&c, from, e);
    *made = false;
    if (rc) return rc;
    int64_t step = ckpt_step(c);
    rc = copy_place_newest(p, &newest, e);
    if (rc || (newest.step == step && newest.hash == ckpt_hash(c))) {
        ckpt_close(c);
        return rc;
    }
    struct twins t = {0};
    char *dir = ckpt_temporary(p->to, step);
    rc = read_twins(p, ckpt_path(c), newest.step == step ? -1 : newest.step, &t, e);
    if (!rc) rc = p->r ? begin_store(p, step, e) : ckpt_save_begin(p->to, step, e);
    if (!rc) rc = put_files(p, c, &t, dir, e);
    *made = !rc;
    free_twins(&t);
    if (!p->r && !rc) rc = ckpt_adopt(p->to, step, keep, e);
    if (!p->r && rc) ckpt_save_abort(p->to, step, 0, NULL);
    if (p->r && !rc && keep) rc = prune_store(p, keep, ckpt_best(ckpt_extra(c)), e);
    xfree(dir);
    ckpt_close(c);
    return rc;
}

void copy_place_tidy(struct copy_place *p)
{
    struct err why;
    int64_t n = 0;
    if (!p->r) return; /* ckpt_save_begin of a folder does */
    int rc = remote_tidy(p->r, p->to, &n, &why);
    if (n) log_info("%s: %" PRId64 " objects that a killed process had begun are given up", p->shown, n);
    if (rc && rc != ERR_SIGNAL)
        log_warn("%s: whether a killed process left parts of objects there is unknown: %s", p->shown, why.text);
}

/* -- taking one back ------------------------------------------------------------------------------------------- */

static int take_file(struct copy_place *p, int64_t step, const char *name, const char *dir, struct err *e)
{
    char *to = fs_join(dir, name), *from;
    struct reader r = {0};
    struct remote_about about;
    int rc;
    if (p->r) {
        from = url_of(p, step, name);
        rc = remote_look(p->r, from, &about, e);
        if (!rc) rc = object_open(&r.o, p->r, from, &about, e);
        if (!rc) rc = write_file(to, read_file, &r, object_bytes(r.o), e);
        object_close(r.o);
    } else {
        char one[40];
        snprintf(one, sizeof one, "step-%08" PRId64, step);
        char *there = fs_join(p->to, one);
        from = fs_join(there, name);
        rc = copy_file(p, from, to, e);
        xfree(there);
    }
    xfree(from);
    xfree(to);
    return rc;
}

int copy_place_take(struct copy_place *p, int64_t step, const char *root, struct err *e)
{
    struct manifest m;
    char *dir = ckpt_temporary(root, step), *path = fs_join(dir, MANIFEST_NAME);
    int rc = ckpt_save_begin(root, step, e);
    if (!rc) rc = take_file(p, step, MANIFEST_NAME, dir, e);
    if (!rc) rc = manifest_read(&m, path, false, e);
    if (!rc) {
        for (int i = 0; i < m.n_files && !rc; i++) rc = take_file(p, step, m.files[i].name, dir, e);
        manifest_fini(&m);
    }
    if (!rc) rc = ckpt_adopt(root, step, 0, e);
    if (rc) ckpt_save_abort(root, step, 0, NULL);
    xfree(path);
    xfree(dir);
    return rc;
}
