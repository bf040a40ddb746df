/* SPDX-License-Identifier: Apache-2.0 */
/* image_index_make.c: an index is made under a lock and published by renaming. Shards are read one after the other; the
 * pictures of a piece of one are decoded on all cores, where bad ones are skipped. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/image_index_impl.h"
#include "source/bad_list.h"

enum { CHECK_PIECE = 1024, SAY_S = 2 };

struct making {
    const struct image_index_options *o;
    struct image_input *in;
    struct fs_writer *w;
    struct hash64 rows;
    struct image_head head;
    struct bad_list bad;
    struct image_row *piece; /* rows of the shard that wait to be checked */
    char **keys;
    int64_t n, room, keys_n, keys_room;
    int64_t position, lo, hi; /* of samples; those that the subset is: [lo, hi) */
    int64_t n_excluded;
};

static int write_row(struct making *m, struct image_row r, struct err *e)
{
    r.sum = image_row_sum(r, m->head.n_rows++);
    hash64_add(&m->rows, &r, sizeof r);
    return fs_writer_write(m->w, &r, sizeof r, e);
}

static int given_up(const struct image_index_options *o, struct err *e)
{
    if (!o->give_up || !atomic_load(o->give_up)) return OK;
    return err_set(e, ERR_SIGNAL, "stopped while the pictures of %s were listed", o->part ? o->part : "data");
}

/* Bad samples are skipped and listed, or end it. */
static int skip(struct making *m, const struct err *why, struct err *e)
{
    if (!m->o->skip_bad) return *e = *why, why->code;
    m->head.n_bad++;
    bad_list_add(&m->bad, why->text);
    return OK;
}

/* Decodes the pictures of a piece, row by row, on all cores. */
struct checking {
    struct making *m;
    const struct fs_file *shard;
    int64_t number; /* of the shard */
    atomic_int next;
    struct err *why; /* [n]: code OK: it is right */
};

/* The picture's bytes; of a joined folder it lies in another shard than the one that is read. */
static int read_picture(const struct checking *c, const struct image_row *r, void *p, struct err *e)
{
    struct source_list *l = c->m->in->list;
    struct fs_file other = {.fd = -1};
    if (r->shard == c->number) return fs_file_read(c->shard, r->offset, r->bytes, p, e);
    int code = image_shard_file(&other, l, &l->files[r->shard], e);
    if (!code) code = fs_file_read(&other, r->offset, r->bytes, p, e);
    fs_file_close(&other);
    return code;
}

static void *check_pictures(void *ctx)
{
    struct checking *c = ctx;
    for (int i; (i = atomic_fetch_add(&c->next, 1)) < (int)c->m->n;) {
        const struct image_row *r = &c->m->piece[i];
        struct image image;
        char *p = xmalloc(r->bytes + 1);
        int code = read_picture(c, r, p, &c->why[i]);
        if (!code && !(code = media_image(&image, p, r->bytes, 0, &c->m->o->limits, &c->why[i]))) image_free(&image);
        else if (code != ERR_IO)
            err_prefix(&c->why[i], "%s: sample %.200s at byte %lld", c->m->in->list->files[r->shard].path,
                       c->m->keys[i], (long long)r->header);
        c->why[i].code = code;
        xfree(p);
    }
    return NULL;
}

/* What was gathered is checked where bad pictures are skipped, and written. */
static int end_piece(struct making *m, int64_t number, const struct fs_file *shard, struct err *e)
{
    struct checking c = {.m = m, .shard = shard, .number = number, .why = xcalloc((size_t)m->n + 1, sizeof *c.why)};
    int code = OK, n_threads = m->o->skip_bad ? thread_n_cores() : 0, begun = 0;
    pthread_t *thread = xcalloc((size_t)n_threads + 1, sizeof *thread);
    while (begun < n_threads - 1 && !pthread_create(&thread[begun], NULL, check_pictures, &c)) begun++;
    if (n_threads) check_pictures(&c);
    for (int i = 0; i < begun; i++) pthread_join(thread[i], NULL);
    for (int64_t i = 0; i < m->n && !code; i++) {
        if (!c.why[i].code) code = write_row(m, m->piece[i], e);
        else if (c.why[i].code == ERR_IO || c.why[i].code == ERR_SIGNAL) code = (*e = c.why[i], e->code);
        else code = skip(m, &c.why[i], e);
    }
    for (int64_t i = 0; i < m->n; i++) xfree(m->keys[i]);
    m->n = m->keys_n = 0;
    xfree(thread);
    xfree(c.why);
    return code ? code : given_up(m->o, e);
}

/* ---- joining ---- */

/* A sample of a folder that is joined to the first. */
static int gather(struct image_set *set, const struct image_found *f, int64_t shard, const char *path, struct err *e)
{
    if (!sample_keys_add(&set->keys, f->key, set->n))
        return err_set(e, ERR_CORRUPT,
                       "%s: sample %.200s at byte %lld: another one of %s has the same key, by which "
                       "they are joined",
                       path, f->key, (long long)f->header, set->folder);
    GROW(set->found, set->n, set->room, 1);
    set->found[set->n++] = (struct image_partner){f->header, f->offset, (uint32_t)f->bytes, (uint32_t)shard, f->label};
    return OK;
}

/* A sample of the first folder, with its partners': fields of later folders replace those of earlier ones. 1; 0: it is
 * left out; < 0. */
static int join(struct making *m, struct image_row *r, const char *key, struct err *e)
{
    struct image_set *set = m->in->set;
    bool image = !set->scan.no_image, label = !set->scan.no_label;
    const char *path = m->in->list->files[r->shard].path;
    long long at = r->header;
    if (!sample_keys_add(&set->keys, key, 0))
        return err_set(e, ERR_CORRUPT,
                       "%s: sample %.200s at byte %lld: another one of %s has the same key, by which "
                       "they are joined",
                       path, key, at, set->folder);
    for (int i = 1; i < m->in->n_sets; i++) {
        int64_t k = sample_keys_find(&set[i].keys, key);
        if (k < 0 && set[i].nonmatch == NONMATCH_SKIP) return 0;
        if (k < 0 && set[i].nonmatch == NONMATCH_ERROR)
            return err_set(e, ERR_CORRUPT, "%s: sample %.200s at byte %lld: %s has none of that key (nonmatch: error)",
                           path, key, at, set[i].folder);
        if (k < 0) continue;
        const struct image_partner *f = &set[i].found[k];
        if (!set[i].scan.no_image) {
            r->header = f->header;
            r->offset = f->offset;
            r->bytes = f->bytes;
            r->shard = f->shard;
            image = true;
        }
        if (!set[i].scan.no_label) {
            r->label = f->label;
            label = true;
        }
    }
    if (image && label) return 1;
    return err_set(e, ERR_CORRUPT, "%s: sample %.200s at byte %lld: has no %s, nor has a partner of its key", path, key,
                   at, image ? "label" : "picture");
}

/* ---- samples ---- */

/* got: 1, or *e says what is bad about it. */
static int take_sample(struct making *m, int got, const struct image_found *f, int64_t shard, const char *key,
                       bool excluded, struct err *e)
{
    struct image_row r = {0};
    if (image_input_joined(m->in) && excluded) return OK;
    if (got > 0) r = (struct image_row){f->header, f->offset, (uint32_t)f->bytes, (uint32_t)shard, f->label, 0, 0};
    if (got > 0 && image_input_joined(m->in)) got = join(m, &r, key, e);
    if (!got) return OK;
    int64_t at = m->position++;
    if (at < m->lo || at >= m->hi || excluded) return OK;
    if (got < 0) return e->code == ERR_CORRUPT ? skip(m, e, e) : e->code;
    GROW(m->piece, m->n, m->room, 1);
    GROW(m->keys, m->keys_n, m->keys_room, 1);
    m->keys[m->keys_n++] = xstrdup(key);
    m->piece[m->n++] = r;
    return OK;
}

/* The samples of one shard. */
static int scan_shard(struct making *m, struct image_set *set, int64_t number, struct image_scan *s,
                      const struct fs_file *file, struct err *e)
{
    const struct energon_shard *known = m->in->has_energon ? &set->energon.shards[number - set->first] : NULL;
    const char *path = m->in->list->files[number].path;
    bool first = set == m->in->set;
    struct image_found f;
    int64_t seen = 0;
    int code = OK, got;
    while (!code && (got = image_scan_next(s, &f, e))) {
        const char *key = image_scan_key(s);
        bool excluded = known && energon_excludes(known, key);
        if (got < 0 && !image_scan_goes_on(s))
            return e->code == ERR_CORRUPT ? skip(m, e, e) : got; /* and what is behind the damage */
        seen++;
        m->n_excluded += excluded;
        if (first) code = take_sample(m, got, &f, number, key, excluded, e);
        else if (!excluded && (got < 0 || gather(set, &f, number, path, e))) code = skip(m, e, e);
        if (m->n == CHECK_PIECE) code = end_piece(m, number, file, e);
    }
    if (!code) code = end_piece(m, number, file, e);
    if (!code && known && seen != known->samples)
        code = err_set(e, ERR_CORRUPT,
                       "%s: has %lld samples, .info says %lld: the folder's .nv-meta is of another version of it; "
                       "prepare it again (energon prepare)",
                       known->path, (long long)seen, (long long)known->samples);
    return code;
}

static int add_shard(struct making *m, struct image_set *set, int64_t number, struct err *e)
{
    struct source_list *l = m->in->list;
    const struct source_file *listed = &l->files[number];
    struct blob *blob = NULL;
    struct image_scan *s = NULL;
    struct fs_file file = {.fd = -1};
    int code = image_shard_blob(&blob, l, listed, e);
    if (!code) code = image_shard_file(&file, l, listed, e);
    if (!code) code = image_scan_open(&s, blob, &set->scan, e);
    if (!code) code = scan_shard(m, set, number, s, &file, e);
    for (int64_t i = 0; i < m->n; i++) xfree(m->keys[i]);
    m->n = m->keys_n = 0;
    image_scan_close(s);
    fs_file_close(&file);
    blob_close(blob);
    return code;
}

/* Which samples are meant: known before where .info counts them. */
static int begin_subset(struct making *m, struct err *e)
{
    const struct image_input *in = m->in;
    int64_t n = 0;
    m->hi = INT64_MAX;
    if (!in->has_energon) return OK;
    for (int64_t i = 0; i < in->set->energon.n; i++) n += in->set->energon.shards[i].samples;
    if (!image_input_joined(in)) return energon_subset_of(&in->subset, n, m->o->path, &m->lo, &m->hi, e);
    m->lo = in->subset.first;
    if (in->subset.last >= 0) m->hi = in->subset.last;
    return OK;
}

static int end_subset(const struct making *m, struct err *e)
{
    int64_t lo, hi, n_excluded = 0;
    for (int i = 0; i < m->in->n_sets; i++)
        for (int64_t k = 0; k < m->in->set[i].energon.n; k++) n_excluded += m->in->set[i].energon.shards[k].n_excluded;
    if (m->n_excluded < n_excluded)
        log_warn("data: %s: %lld samples are excluded that its shards do not have", m->o->path,
                 (long long)(n_excluded - m->n_excluded));
    if (!image_input_joined(m->in)) return OK;
    return energon_subset_of(&m->in->subset, m->position, m->o->path, &lo, &hi, e);
}

/* Folders that are joined first, then the one that they are joined to. */
static int add_set(struct making *m, int set, double *said, struct err *e)
{
    const struct image_input *in = m->in;
    int64_t n = in->list->n, end = set + 1 < in->n_sets ? in->set[set + 1].first : n;
    int code = OK;
    for (int64_t i = in->set[set].first; i < end && !code; i++) {
        code = add_shard(m, &in->set[set], i, e);
        if (!code && clock_now_s() - *said > SAY_S) {
            *said = clock_now_s();
            log_status("data: shard %lld of %lld, %lld pictures", (long long)i + 1, (long long)n,
                       (long long)m->head.n_rows);
        }
    }
    return code;
}

static int write_index(struct making *m, const char *temporary, const char *path, struct err *e)
{
    double said = clock_now_s();
    int code = begin_subset(m, e);
    if (!code) code = fs_writer_open(&m->w, temporary, e);
    if (code) return code;
    code = fs_writer_write(m->w, &m->head, sizeof m->head, e);
    hash64_init(&m->rows);
    for (int i = m->in->n_sets - 1; i >= 0 && !code; i--) code = add_set(m, i, &said, e);
    if (!code) code = end_subset(m, e);
    log_status_end();
    if (!code && !m->head.n_rows)
        code = err_set(e, ERR_REQUEST, "%s: holds no picture with a label%s", m->in->list->files[0].path,
                       m->head.n_bad ? "; all samples are bad" : "");
    int closed = fs_writer_close(m->w, true, code ? NULL : e);
    if (!code) code = closed;
    m->head.rows_sum = hash64_value(&m->rows);
    m->head.sum = hash64(&m->head, offsetof(struct image_head, sum));
    FILE *f = code ? NULL : fopen(temporary, "r+b");
    if (!code && (!f || fwrite(&m->head, sizeof m->head, 1, f) != 1 || fflush(f) || fsync(fileno(f))))
        code = err_set(e, ERR_IO, "%s: cannot be written", temporary);
    if (f && fclose(f) && !code) code = err_set(e, ERR_IO, "%s: cannot be written", temporary);
    if (!code) code = bad_list_end(&m->bad, e);
    if (!code) code = fs_rename(temporary, path, e);
    if (code) unlink(temporary);
    return code;
}

/* Under the lock. */
static int make(struct image_input *in, const struct image_index_options *o, const char *path, uint64_t key,
                struct err *e)
{
    struct making m = {.o = o, .in = in};
    char *temporary = xmalloc(strlen(path) + 5);
    double from = clock_now_s();
    sprintf(temporary, "%s.tmp", path);
    memcpy(m.head.magic, IMAGE_INDEX_MAGIC, 8);
    m.head.version = IMAGE_INDEX_VERSION;
    m.head.key = key;
    m.head.n_shards = in->list->n;
    bad_list_init(&m.bad, path);
    bad_list_clear(&m.bad);
    int code = write_index(&m, temporary, path, e);
    if (!code)
        log_info("data: %lld pictures in %lld shards were found in %.1f s", (long long)m.head.n_rows,
                 (long long)m.head.n_shards, clock_now_s() - from);
    bad_list_fini(&m.bad);
    xfree(m.piece);
    xfree(m.keys);
    xfree(temporary);
    return code;
}

int image_index_make(struct image_input *in, const struct image_index_options *o, const char *path, uint64_t key,
                     bool *made, struct err *e)
{
    char *lock_path = xmalloc(strlen(path) + 6);
    int code = OK;
    sprintf(lock_path, "%s.lock", path);
    for (bool said = false; !code && fs_absent(path); said = true) {
        struct fs_lock lock;
        code = given_up(o, e);
        if (!code) code = fs_lock_take(&lock, lock_path, e);
        if (!code) {
            *made = fs_absent(path);
            if (*made) code = make(in, o, path, key, e);
            fs_lock_remove(&lock, lock_path);
        } else if (lock.busy) {
            if (!said) log_info("data: waiting for another process to list pictures; it holds %s", lock_path);
            code = OK;
            clock_sleep_s(0.2);
        }
    }
    xfree(lock_path);
    return code;
}
