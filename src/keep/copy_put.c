/* SPDX-License-Identifier: Apache-2.0 */
/* Making a copy. Files go one after the other, in pieces; a store's parts are retried by remote/upload.c. Before a
 * manifest is written the store is asked what it has, so that a store that keeps less than it was given is found before
 * anybody relies on it; in a folder a copy is read back before it gets its name. Removal takes the manifest first: what
 * is half removed is not complete.
 *
 * What stood still is there already, in the copy before: it is read there and compared with the file here, byte for
 * byte, before it is linked or copied, so that damage of one copy is not passed on to the next. In a folder all of it
 * is; in a store, where reading costs what writing does, all of a file up to TWIN_READ bytes, and of a larger one as
 * much at each copy, in turns.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "keep/copy_place_impl.h"

#define PIECE ((int64_t)8 << 20)
#define TWIN_READ ((int64_t)256 << 20)

/* -- whose it is ------------------------------------------------------------------------------------------------- */

static int text_source(void *ctx, int64_t at, size_t n, void *out, struct err *e)
{
    (void)e;
    memcpy(out, (const char *)ctx + at, n);
    return OK;
}

/* last: the copy that was made last; NULL: as before. */
static int write_owner(struct copy_place *p, const struct copy_self *me, struct copy_owner *was,
                       const struct ckpt_listing *last, struct err *e)
{
    struct str text = {0};
    char *path = copy_name(p, -1, COPY_OWNER_NAME), *by = copy_owner_me();
    struct copy_owner o = *was;
    o.run = me->run;
    o.session = p->session;
    o.dir = (char *)(uintptr_t)me->dir;
    o.by = by;
    if (last) {
        o.step = last->step;
        o.publication = last->publication;
    }
    copy_owner_print(&o, &text);
    int rc = p->r ? remote_put(p->r, path, text_source, text.p, (int64_t)text.n, e) : fs_mkdirs(p->to, e);
    if (!rc && !p->r) rc = fs_write_atomic(path, text.p, text.n, e);
    str_free(&text);
    xfree(by);
    xfree(path);
    return rc;
}

/* What a process of this run that was killed had begun there and not ended is given up; what cannot be is said. */
static void tidy(struct copy_place *p)
{
    struct err why;
    int64_t n = 0;
    if (!p->r) return; /* ckpt_save_begin of a folder does */
    int rc = remote_tidy(p->r, p->to, &n, &why);
    if (n) log_info("%s: %" PRId64 " objects that a killed process had begun are given up", p->shown, n);
    if (rc && rc != ERR_SIGNAL)
        log_warn("%s: whether a killed process left parts of objects there is unknown: %s", p->shown, why.text);
}

/* The first time, this process says that it is the one that copies there; later, that it still is. */
static int claim(struct copy_place *p, struct copy_held *h, const struct copy_self *me, struct err *e)
{
    if (p->session && h->owned && h->owner.session == p->session) return OK;
    if (p->session && h->owned)
        return err_set(e, ERR_REQUEST,
                       "%s: %s goes on with this run now, from %s, and copies there: this process copies no more",
                       p->shown, h->owner.by, h->owner.dir);
    uint64_t session = p->session;
    if (!session && getrandom(&session, sizeof session, 0) != sizeof session)
        return err_errno(e, ERR_IO, errno, "no random number");
    bool first = !p->session;
    p->session = session;
    int rc = write_owner(p, me, &h->owner, NULL, e);
    if (rc) p->session = first ? 0 : session;
    if (!rc && first) tidy(p);
    return rc;
}

/* -- what is there already --------------------------------------------------------------------------------------- */

/* What the copy before this one has of it already: boxes that stand still (checkpoint/unchanged.h). */
struct twins {
    bool any;
    struct manifest mine, theirs;
};

static int read_twins(struct copy_place *p, const char *from, int64_t step, struct twins *t, struct err *e)
{
    *t = (struct twins){0};
    char *path = fs_join(from, MANIFEST_NAME);
    int rc = manifest_read(&t->mine, path, false, e);
    xfree(path);
    if (rc) return rc;
    t->any = step >= 0 && copy_manifest(p, step, &t->theirs, NULL) == OK;
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

/* Bytes [at, end) of both. */
static int same_bytes(struct copy_reader *a, struct copy_reader *b, int64_t at, int64_t end, const char *name,
                      struct err *e)
{
    char *x = xmalloc(to_size(PIECE)), *y = xmalloc(to_size(PIECE));
    int rc = OK;
    for (; at < end && !rc; at += PIECE) {
        size_t n = to_size(end - at < PIECE ? end - at : PIECE);
        rc = copy_read(a, at, n, x, e);
        if (!rc) rc = copy_read(b, at, n, y, e);
        if (!rc && memcmp(x, y, n))
            rc = err_set(e, ERR_CORRUPT, "%s differs from the file here, between its bytes %" PRId64 " and %" PRId64,
                         name, at, at + (int64_t)n);
    }
    xfree(x);
    xfree(y);
    return rc;
}

/* there: its name in the copy before. turn: which copy this is. */
static int compare_twin(struct copy_place *p, const char *here, const char *there, int64_t turn, struct err *e)
{
    struct copy_reader a, b = {.f = {.fd = -1}};
    int rc = copy_reader_open(&a, p, here, e);
    if (!rc) rc = copy_reader_open(&b, p, there, e);
    if (!rc && a.bytes != b.bytes) rc = err_set(e, ERR_CORRUPT, "%s has another size than the file here", there);
    int64_t most = p->r ? TWIN_READ : a.bytes, at = most && a.bytes > most ? turn % (a.bytes / most + 1) * most : 0;
    if (!rc) rc = same_bytes(&a, &b, at, at + most < a.bytes ? at + most : a.bytes, there, e);
    copy_reader_close(&a);
    copy_reader_close(&b);
    return rc;
}

/* The place's own file once more: a store copies it, in a folder it is linked. False: it has to be brought. */
static bool take_twin(struct copy_place *p, const struct twins *t, const char *name, const char *here, const char *to)
{
    struct err why;
    if (!has_twin(t, name)) return false;
    char *there = copy_name(p, t->theirs.step, name);
    int rc = compare_twin(p, here, there, t->mine.publication, &why);
    if (rc == ERR_CORRUPT) log_warn("%s: a copy is damaged: %s; it is brought again", p->shown, why.text);
    else if (!rc) rc = p->r ? remote_copy(p->r, there, to, fs_size(here), &why) : fs_link(there, to, &why);
    if (rc && rc != ERR_SIGNAL && rc != ERR_CORRUPT) log_info("%s is brought again: %s", name, why.text);
    xfree(there);
    return !rc;
}

/* -- its files --------------------------------------------------------------------------------------------------- */

/* One file of this host to where path says. */
static int bring(struct copy_place *p, const char *from, const char *path, struct err *e)
{
    struct copy_reader r;
    int rc = copy_reader_open(&r, p, from, e);
    if (!rc) rc = p->r ? remote_put(p->r, path, copy_read, &r, r.bytes, e) : copy_write(path, &r, e);
    copy_reader_close(&r);
    return rc;
}

/* What the store has must be what it was given. */
static int check_store(struct copy_place *p, const struct ckpt *c, struct err *e)
{
    struct remote_list l = {0};
    int rc = remote_list(p->r, p->to, &l, e);
    for (int k = 0; k < ckpt_n_files(c) && !rc; k++) {
        char *file = fs_join(ckpt_path(c), ckpt_file_name(c, k));
        int64_t wanted = fs_size(file), found = copy_bytes(p, &l, ckpt_step(c), ckpt_file_name(c, k));
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
        char *from = fs_join(ckpt_path(c), name), *to = p->r ? copy_name(p, ckpt_step(c), name) : fs_join(dir, name);
        if (last && p->r) rc = check_store(p, c, e);
        if (last || !take_twin(p, t, name, from, to)) {
            if (!rc && !last) rc = ckpt_verify_file(c, i, e);
            if (!rc) rc = bring(p, from, to, e);
        }
        xfree(to);
        xfree(from);
    }
    return rc;
}

/* -- removing, moving aside -------------------------------------------------------------------------------------- */

/* Its objects, the manifest first. Not of a copy that was moved aside: that has another name. */
static int remove_objects(struct copy_place *p, const struct remote_list *l, int64_t step, struct err *e)
{
    int rc = OK;
    for (int manifest = 1; manifest >= 0; manifest--)
        for (int64_t i = 0; i < l->n && !rc; i++) {
            const char *name;
            if (copy_step_in(p, l->entry[i].url, &name) != step ||
                (strcmp(name, MANIFEST_NAME) == 0) != (manifest == 1))
                continue;
            rc = remote_remove(p->r, l->entry[i].url, e);
        }
    return rc;
}

/* The first of step-00000500.aside-1, .aside-2, ... that has no object; xfree it. */
static char *free_name(const struct copy_place *p, const struct remote_list *l, int64_t step)
{
    for (int k = 1;; k++) {
        struct str dir = {0};
        bool taken = false;
        str_printf(&dir, "%s/step-%08" PRId64 ".aside-%d/", p->to, step, k);
        for (int64_t i = 0; i < l->n && !taken; i++) taken = str_starts(l->entry[i].url, dir.p);
        if (!taken) return dir.p;
        str_free(&dir);
    }
}

/* What cannot be used gets another name before anything takes its own. */
static int set_aside(struct copy_place *p, const struct remote_list *l, int64_t step, struct err *e)
{
    int rc = OK;
    char *to = NULL;
    if (p->r) {
        to = free_name(p, l, step);
        for (int64_t i = 0; i < l->n && !rc; i++) {
            const char *name;
            struct str there = {0};
            if (copy_step_in(p, l->entry[i].url, &name) != step) continue;
            str_printf(&there, "%s%s", to, name);
            rc = remote_copy(p->r, l->entry[i].url, there.p, l->entry[i].about.bytes, e);
            str_free(&there);
        }
        if (!rc) rc = remove_objects(p, l, step, e);
    } else {
        char name[40];
        snprintf(name, sizeof name, "step-%08" PRId64, step);
        char *dir = fs_join(p->to, name);
        rc = fs_set_aside(dir, &to, e);
        xfree(dir);
    }
    if (!rc) log_warn("the copy of step %" PRId64 " in %s cannot be used and was moved to %s", step, p->shown, to);
    else err_prefix(e, "%s: the copy of step %" PRId64 " cannot be used, and is to be moved aside", p->shown, step);
    xfree(to);
    return rc;
}

/* Of what was there before step x was copied (h), and is this run's: the oldest but the `keep` newest go, x counted,
 * and the best stays. l: the objects that a store has now. */
static int prune(struct copy_place *p, const struct copy_held *h, const struct remote_list *l,
                 const struct ckpt_listing *x, int keep, int64_t best, struct err *e)
{
    int n = 1, rc = OK;
    for (int i = 0; i < h->n; i++) n += h->list[i].code == OK && h->list[i].step != x->step;
    for (int i = 0; i < h->n && n > keep && !rc; i++) {
        const struct ckpt_listing *old = &h->list[i];
        if (old->code || old->step == x->step || old->publication >= x->publication) continue; /* for a person */
        n--;
        if (old->step != best) rc = p->r ? remove_objects(p, l, old->step, e) : ckpt_remove(p->to, old->step, e);
    }
    return rc;
}

/* -- a copy ------------------------------------------------------------------------------------------------------ */

/* A copy of that step that is there is not complete any more before its files change. */
static int begin_store(struct copy_place *p, int64_t step, struct err *e)
{
    char *manifest = copy_name(p, step, MANIFEST_NAME);
    int rc = remote_remove(p->r, manifest, e);
    xfree(manifest);
    return rc;
}

static bool was_passed(const struct copy_put *q, int64_t step)
{
    for (int i = 0; i < q->n_passed; i++)
        if (q->passed[i] == step) return true;
    return false;
}

/* What of the place stands in the way of x: moved aside where that is right, else a reason not to copy. *twin: the step
 * that may have files of it; -1: none. */
static int make_way(struct copy_place *p, const struct copy_held *h, const struct copy_put *q,
                    const struct ckpt_listing *x, int64_t *twin, struct err *e)
{
    int rc = OK;
    *twin = -1;
    for (int i = 0; i < h->n && !rc; i++) {
        const struct ckpt_listing *there = &h->list[i];
        bool unreadable = there->code && there->publication < 0, later = there->publication >= x->publication;
        if ((unreadable && there->step == x->step) || (later && was_passed(q, there->step)))
            rc = set_aside(p, &h->objects, there->step, e);
        else if (there->code == OK && later)
            rc = err_set(e, ERR_REQUEST,
                         "%s has a copy of step %" PRId64 ", publication %" PRId64
                         ", which this run does not go on from (its own is step %" PRId64 ", publication %" PRId64
                         "): its copies would never be the newest there; give another checkpoint.copy_to, or remove "
                         "that copy and " COPY_OWNER_NAME,
                         p->shown, there->step, there->publication, x->step, x->publication);
        else if (there->code == OK && there->step != x->step) *twin = there->step;
    }
    return rc;
}

/* The copy of that step is made again: until it is there, another one is the last. */
static int forget_last(struct copy_place *p, struct copy_held *h, const struct copy_put *q, int64_t step, struct err *e)
{
    struct ckpt_listing last = {.step = -1, .publication = -1};
    if (h->owner.step != step) return OK;
    for (int i = 0; i < h->n; i++)
        if (h->list[i].code == OK && h->list[i].step != step) last = h->list[i];
    return write_owner(p, &q->me, &h->owner, &last, e);
}

static bool is_there(const struct copy_held *h, const struct ckpt_listing *x)
{
    for (int i = 0; i < h->n; i++)
        if (h->list[i].code == OK && h->list[i].step == x->step && h->list[i].hash == x->hash) return true;
    return false;
}

static int make(struct copy_place *p, struct ckpt *c, int64_t twin, struct err *e)
{
    struct twins t = {0};
    int64_t step = ckpt_step(c);
    char *dir = ckpt_temporary(p->to, step);
    int rc = read_twins(p, ckpt_path(c), twin, &t, e);
    if (!rc) rc = p->r ? begin_store(p, step, e) : ckpt_save_begin(p->to, step, e);
    if (!rc) rc = put_files(p, c, &t, dir, e);
    free_twins(&t);
    if (!p->r && !rc) rc = ckpt_adopt(p->to, step, e);
    if (!p->r && rc) ckpt_save_abort(p->to, step, 0, NULL);
    xfree(dir);
    return rc;
}

/* The copy is there, and nobody else has taken the place over meanwhile: the record says so, and the oldest go. */
static int finish(struct copy_place *p, const struct copy_put *q, const struct copy_held *before,
                  const struct ckpt_listing *x, int64_t best, struct err *e)
{
    struct copy_held now = {.owner = {.step = -1, .publication = -1}};
    int rc = p->r ? remote_list(p->r, p->to, &now.objects, e) : OK;
    if (!rc) rc = copy_read_owner(p, &now, e);
    if (!rc) rc = claim(p, &now, &q->me, e);
    if (!rc && p->r && copy_bytes(p, &now.objects, x->step, MANIFEST_NAME) < 0)
        rc = err_set(e, ERR_IO, "%s: the copy of step %" PRId64 " is not there after it was made", p->shown, x->step);
    if (!rc) rc = write_owner(p, &q->me, &now.owner, x, e);
    if (!rc && q->keep) rc = prune(p, before, &now.objects, x, q->keep, best, e);
    copy_held_free(&now);
    return rc;
}

int copy_place_put(struct copy_place *p, const struct copy_put *q, bool *made, struct err *e)
{
    struct ckpt *c;
    struct copy_held h;
    uint64_t run;
    int64_t twin = -1;
    *made = false;
    int rc = ckpt_open(&c, q->from, e);
    if (rc) return rc;
    struct ckpt_listing x = {.step = ckpt_step(c), .publication = ckpt_publication(c), .hash = ckpt_hash(c)};
    copy_place_look(p, &x, &h);
    if (h.what == HELD_UNKNOWN) rc = err_set(e, h.why.code, "%s; nothing is written beside it", h.why.text);
    if (!rc) rc = copy_held_ours(p, &h, &q->me, &run, e);
    if (!rc) rc = claim(p, &h, &q->me, e);
    bool there = !rc && is_there(&h, &x);
    if (!rc && !there) rc = make_way(p, &h, q, &x, &twin, e);
    if (!rc && !there) rc = forget_last(p, &h, q, x.step, e);
    if (!rc && !there) {
        rc = make(p, c, twin, e);
        *made = !rc;
    }
    if (!rc && (!there || h.owner.publication != x.publication)) rc = finish(p, q, &h, &x, ckpt_best(ckpt_extra(c)), e);
    copy_held_free(&h);
    ckpt_close(c);
    return rc;
}
