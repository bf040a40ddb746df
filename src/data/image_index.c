/* SPDX-License-Identifier: Apache-2.0 */
/* image_index.c: the index as a file, made under a lock and published by renaming; and the shards it speaks of, of
 * which a bounded number is open at a time.
 *
 * The file: a head, then a row of 40 bytes a sample. Integers are little-endian. */
#include "data/image_index.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "data/energon_mix.h"
#include "data/image_scan.h"
#include "data/sample_keys.h"
#include "source/bad_list.h"
#include "source/blob_remote.h"
#include "source/sample_field.h"
#include "source/source_buffer.h"
#include "source/source_list.h"
#include "source/tar_members.h"

#define MAGIC "TUTTIIMG"
enum { VERSION = 1, OPEN_MOST = 256, CHECK_PIECE = 1024, SAY_S = 2 };
#define LABELS_USUAL "cls,json[label],txt"

struct head {
    char magic[8];
    uint64_t version, key;
    int64_t n_rows, n_shards, n_bad;
    uint64_t rows_sum; /* of all rows */
    uint64_t sum;      /* of this head before it */
};
struct row {
    int64_t header, offset;
    uint32_t bytes, shard;
    int32_t label;
    uint32_t zero;
    uint64_t sum; /* of the row, with its number here */
};
_Static_assert(sizeof(struct row) == 40 && sizeof(struct head) == 64, "the file's form");

struct shard {
    struct fs_file file;
    int users; /* of threads that read it now */
    uint64_t used;
};

struct image_index {
    struct fs_file file;
    struct head head;
    struct source_list list; /* the shards */
    struct shard *shard;
    pthread_mutex_t lock; /* of shard's users, used, file.fd, and: */
    uint64_t now;
    int n_open;
};

/* ---- the shards ---- */

/* A sample's picture and label, as far as its shard has them. */
struct found {
    int64_t header, offset;
    uint32_t bytes, shard;
    int32_t label;
};
/* Shards that belong together: all there are, or a folder of those that are joined. */
struct image_set {
    struct image_scan_options scan;
    int64_t first;          /* of the list's shards */
    struct energon energon; /* where it is one of Energon's */
    enum energon_nonmatch nonmatch;
    const char *folder;
    struct sample_keys keys; /* of a folder that is joined, or joins: its samples */
    struct found *found;     /* [n] by the keys' values, of those that are joined to the first */
    int64_t n, room;
};
/* What an input is made of, before anything is read. */
struct input {
    struct source_list *list;
    struct image_set *set; /* [n_sets] */
    int n_sets;
    bool has_energon;
    struct energon_subset subset;
};

static bool is_tar(const char *path) { return str_ends(path, ".tar"); }

/* Of a folder, only its .tar files; what is named is one, whatever its name. */
static void keep_shards(struct source_list *l)
{
    int64_t kept = 0;
    for (int64_t i = 0; i < l->n; i++) {
        struct source_file f = l->files[i];
        if (f.named || is_tar(f.path)) {
            l->files[kept++] = f;
            continue;
        }
        if (f.object) xfree(f.object->url);
        xfree(f.object);
        xfree(f.path);
    }
    l->n = kept;
}

static bool joined(const struct input *in) { return in->n_sets > 1; }

static int read_set(struct input *in, struct image_set *set, const struct energon_ref *ref,
                    const struct image_index_options *o, struct err *e)
{
    struct energon *g = &set->energon;
    int code = energon_read(g, ref, e);
    if (code) return code;
    if (!joined(in) && !energon_trains(g->type))
        return err_set(e, ERR_REQUEST,
                       "%s: holds samples of the type %s, and this model trains on pictures with classes (wanted "
                       "ImageClassificationSample)",
                       ref->folder, g->type);
    if (!joined(in) && (!g->image || (!g->label && !o->label)))
        return err_set(e, ERR_REQUEST, "%s: its field_map names no %s; wanted {image: jpg, label: cls}", ref->folder,
                       g->image ? "label" : "image");
    set->folder = ref->folder;
    set->nonmatch = ref->nonmatch;
    set->first = in->list->n;
    set->scan = (struct image_scan_options){.image = g->image,
                                            .label = o->label && (g->label || !joined(in)) ? o->label : g->label,
                                            .classes = o->classes,
                                            .no_image = !g->image};
    set->scan.no_label = !set->scan.label;
    for (int64_t i = 0; i < g->n && !code; i++) code = source_list_add(in->list, g->shards[i].path, e);
    return code;
}

static int read_energon(struct input *in, const struct energon_leaf *leaf, const struct image_index_options *o,
                        struct err *e)
{
    bool image = false, label = false;
    int code = OK;
    in->has_energon = true;
    in->subset = leaf->subset;
    in->n_sets = leaf->n_refs;
    in->set = xcalloc((size_t)leaf->n_refs, sizeof *in->set);
    for (int i = 0; i < in->n_sets && !code; i++) {
        code = read_set(in, &in->set[i], &leaf->ref[i], o, e);
        image |= !in->set[i].scan.no_image;
        label |= !in->set[i].scan.no_label;
    }
    if (code) return code;
    if (!image || !label)
        return err_set(e, ERR_REQUEST, "%s: no field_map of the folders that are joined names a%s", leaf->name,
                       image ? " label" : "n image");
    if (joined(in) && (in->subset.from > 0 || in->subset.to < 1))
        return err_set(e, ERR_REQUEST,
                       "%s: a subset in percent of what is joined: how much that is shows when all is read; wanted "
                       "samples, such as [0, 1000]",
                       leaf->name);
    return OK;
}

static int list_shards(struct input *in, const struct image_index_options *o, struct err *e)
{
    in->list->options = o->remote;
    if (o->energon) return read_energon(in, o->energon, o, e);
    if (!remote_is(o->path) && energon_is(o->path)) {
        struct energon_ref ref = {.folder = o->path, .part = o->part};
        return read_energon(in, &(struct energon_leaf){&ref, 1, ENERGON_ALL, 1, 0, o->path}, o, e);
    }
    in->n_sets = 1;
    in->set = xcalloc(1, sizeof *in->set);
    in->set->scan = (struct image_scan_options){.label = o->label ? o->label : LABELS_USUAL, .classes = o->classes};
    int code = source_list_add(in->list, o->path, e);
    if (code) return code;
    keep_shards(in->list);
    if (in->list->n) return OK;
    char *shown = remote_hidden(o->path);
    code = err_set(e, ERR_REQUEST, "%s: holds no tar shard; pictures are read from .tar files (WebDataset)", shown);
    xfree(shown);
    return code;
}

static void input_fini(struct input *in)
{
    for (int i = 0; i < in->n_sets; i++) {
        if (in->set[i].energon.arena) energon_free(&in->set[i].energon);
        sample_keys_free(&in->set[i].keys);
        xfree(in->set[i].found);
    }
    xfree(in->set);
}

static void hash_text(struct hash64 *h, const char *text)
{
    hash64_add(h, text ? text : "", text ? strlen(text) + 1 : 1);
}

/* Of a folder of Energon's: what it gives, and what is left out. */
static void hash_set(struct hash64 *h, const struct image_set *set)
{
    int64_t about[] = {set->first, set->nonmatch};
    hash64_add(h, about, sizeof about);
    hash_text(h, set->scan.label);
    hash_text(h, set->scan.image);
    for (int64_t i = 0; i < set->energon.n; i++) {
        const struct energon_shard *s = &set->energon.shards[i];
        hash64_add(h, &s->n_excluded, sizeof s->n_excluded);
        for (int64_t k = 0; k < s->n_excluded; k++) hash_text(h, s->excluded[k]);
    }
}

static uint64_t key_of(const struct input *in, const struct image_index_options *o)
{
    const struct source_list *l = in->list;
    struct hash64 h;
    uint64_t about[] = {VERSION, (uint64_t)o->classes, o->skip_bad, o->skip_bad ? (uint64_t)o->limits.max_pixels : 0,
                        (uint64_t)in->n_sets};
    double range[] = {in->subset.from, in->subset.to, (double)in->subset.first, (double)in->subset.last};
    hash64_init(&h);
    hash64_add(&h, about, sizeof about);
    hash64_add(&h, range, sizeof range);
    for (int i = 0; i < in->n_sets; i++) hash_set(&h, &in->set[i]);
    for (int64_t i = 0; i < l->n; i++) {
        const struct source_file *f = &l->files[i];
        char *real = f->object ? NULL : realpath(f->path, NULL);
        hash_text(&h, real ? real : f->path);
        hash64_add(&h, &f->bytes, sizeof f->bytes);
        hash64_add(&h, &f->changed_ns, sizeof f->changed_ns);
        free(real);
    }
    return hash64_value(&h);
}

/* ---- making it ---- */

struct making {
    const struct image_index_options *o;
    struct input *in;
    struct fs_writer *w;
    struct hash64 rows;
    struct head head;
    struct bad_list bad;
    struct row *piece; /* rows of the shard that wait to be checked */
    char **keys;
    int64_t n, room, keys_n, keys_room;
    int64_t position, lo, hi; /* of samples; those that the subset is: [lo, hi) */
    int64_t n_excluded;
};

static uint64_t row_sum(struct row r, int64_t i)
{
    r.sum = (uint64_t)i;
    return hash64(&r, sizeof r);
}

static int write_row(struct making *m, struct row r, struct err *e)
{
    r.sum = row_sum(r, m->head.n_rows++);
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

static int open_shard_file(struct fs_file *f, struct source_list *l, const struct source_file *listed, struct err *e)
{
    if (listed->object) return file_of_object(f, l->remote, listed->object->url, &listed->object->about, e);
    return fs_file_open(f, listed->path, e);
}

static int open_shard_blob(struct blob **b, struct source_list *l, const struct source_file *listed, struct err *e)
{
    if (listed->object) return blob_of_object(b, l->remote, listed->object->url, &listed->object->about, e);
    return blob_open(b, listed->path, e);
}

/* The picture's bytes; of a joined folder it lies in another shard than the one that is read. */
static int read_picture(const struct checking *c, const struct row *r, void *p, struct err *e)
{
    struct source_list *l = c->m->in->list;
    struct fs_file other = {.fd = -1};
    if (r->shard == c->number) return fs_file_read(c->shard, r->offset, r->bytes, p, e);
    int code = open_shard_file(&other, l, &l->files[r->shard], e);
    if (!code) code = fs_file_read(&other, r->offset, r->bytes, p, e);
    fs_file_close(&other);
    return code;
}

static void *check_pictures(void *ctx)
{
    struct checking *c = ctx;
    for (int i; (i = atomic_fetch_add(&c->next, 1)) < (int)c->m->n;) {
        const struct row *r = &c->m->piece[i];
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
    set->found[set->n++] = (struct found){f->header, f->offset, (uint32_t)f->bytes, (uint32_t)shard, f->label};
    return OK;
}

/* A sample of the first folder, with its partners': fields of later folders replace those of earlier ones. 1; 0: it is
 * left out; < 0. */
static int join(struct making *m, struct row *r, const char *key, struct err *e)
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
        const struct found *f = &set[i].found[k];
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
    struct row r = {0};
    if (joined(m->in) && excluded) return OK;
    if (got > 0) r = (struct row){f->header, f->offset, (uint32_t)f->bytes, (uint32_t)shard, f->label, 0, 0};
    if (got > 0 && joined(m->in)) got = join(m, &r, key, e);
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
    int code = open_shard_blob(&blob, l, listed, e);
    if (!code) code = open_shard_file(&file, l, listed, e);
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
    const struct input *in = m->in;
    int64_t n = 0;
    m->hi = INT64_MAX;
    if (!in->has_energon) return OK;
    for (int64_t i = 0; i < in->set->energon.n; i++) n += in->set->energon.shards[i].samples;
    if (!joined(in)) return energon_subset_of(&in->subset, n, m->o->path, &m->lo, &m->hi, e);
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
    if (!joined(m->in)) return OK;
    return energon_subset_of(&m->in->subset, m->position, m->o->path, &lo, &hi, e);
}

/* Folders that are joined first, then the one that they are joined to. */
static int add_set(struct making *m, int set, double *said, struct err *e)
{
    const struct input *in = m->in;
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
    m->head.sum = hash64(&m->head, offsetof(struct head, sum));
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
static int make(struct input *in, const struct image_index_options *o, const char *path, uint64_t key, struct err *e)
{
    struct making m = {.o = o, .in = in};
    char *temporary = xmalloc(strlen(path) + 5);
    double from = clock_now_s();
    sprintf(temporary, "%s.tmp", path);
    memcpy(m.head.magic, MAGIC, 8);
    m.head.version = VERSION;
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

/* ---- opening it ---- */

static int read_head(struct image_index *x, const char *path, uint64_t key, struct err *e)
{
    int code = fs_file_open(&x->file, path, e);
    struct head *h = &x->head;
    if (!code && x->file.bytes < (int64_t)sizeof *h)
        code = err_set(e, ERR_CORRUPT, "%s: ends at byte %lld, in its head; remove it", path, (long long)x->file.bytes);
    if (!code) code = fs_file_read(&x->file, 0, sizeof *h, h, e);
    if (code) return code;
    if (memcmp(h->magic, MAGIC, 8) || h->version != VERSION || h->sum != hash64(h, offsetof(struct head, sum)) ||
        h->key != key || h->n_shards != x->list.n || h->n_rows < 1)
        return err_set(e, ERR_CORRUPT, "%s: byte 0: is no index of these pictures; remove it, and it is made again",
                       path);
    if ((x->file.bytes - (int64_t)sizeof *h) % (int64_t)sizeof(struct row) ||
        (x->file.bytes - (int64_t)sizeof *h) / (int64_t)sizeof(struct row) != h->n_rows)
        return err_set(e, ERR_CORRUPT, "%s: has %lld bytes, its head says %lld rows of %zu; remove it", path,
                       (long long)x->file.bytes, (long long)h->n_rows, sizeof(struct row));
    return OK;
}

static int make_or_wait(struct input *in, const struct image_index_options *o, const char *path, uint64_t key,
                        bool *made, struct err *e)
{
    char *lock_path = xmalloc(strlen(path) + 6);
    int code = OK;
    sprintf(lock_path, "%s.lock", path);
    for (bool said = false; !code && !fs_exists(path); said = true) {
        struct fs_lock lock;
        code = given_up(o, e);
        if (!code) code = fs_lock_take(&lock, lock_path, e);
        if (!code) {
            *made = !fs_exists(path);
            if (*made) code = make(in, o, path, key, e);
            unlink(lock_path);
            fs_lock_release(&lock);
        } else if (lock.busy) {
            if (!said) log_info("data: waiting for another process to list pictures; it holds %s", lock_path);
            code = OK;
            clock_sleep_s(0.2);
        }
    }
    xfree(lock_path);
    return code;
}

int image_index_open(struct image_index **out, const struct image_index_options *o, struct err *e)
{
    struct image_index *x = xcalloc(1, sizeof *x);
    struct input in = {.list = &x->list};
    char name[40], *path = NULL;
    bool made = false;
    *out = NULL;
    x->file.fd = -1;
    pthread_mutex_init(&x->lock, NULL);
    int code = list_shards(&in, o, e);
    if (!code) code = fs_mkdirs(o->cache_dir, e);
    if (!code) {
        uint64_t key = key_of(&in, o);
        snprintf(name, sizeof name, "%016" PRIx64 ".img", key);
        path = fs_join(o->cache_dir, name);
        code = make_or_wait(&in, o, path, key, &made, e);
        if (!code) code = read_head(x, path, key, e);
    }
    if (!code && x->head.n_bad && !made)
        log_warn("data: %s: %lld bad samples are skipped; they are listed in %s.skipped", o->path,
                 (long long)x->head.n_bad, path);
    x->shard = xcalloc((size_t)x->list.n + 1, sizeof *x->shard);
    for (int64_t i = 0; i < x->list.n; i++) x->shard[i].file.fd = -1;
    input_fini(&in);
    xfree(path);
    if (code) image_index_close(x);
    else *out = x;
    return code;
}

void image_index_close(struct image_index *x)
{
    if (!x) return;
    for (int64_t i = 0; x->shard && i < x->list.n; i++) fs_file_close(&x->shard[i].file);
    fs_file_close(&x->file);
    source_list_fini(&x->list);
    pthread_mutex_destroy(&x->lock);
    xfree(x->shard);
    xfree(x);
}

/* ---- reading ---- */

struct remote *image_index_remote(const struct image_index *x) { return x->list.remote; }

int64_t image_index_n(const struct image_index *x) { return x->head.n_rows; }

uint64_t image_index_sum(const struct image_index *x) { return x->head.rows_sum; }

int image_index_where(const struct image_index *x, int64_t i, struct image_place *p, struct err *e)
{
    struct row r;
    CHECK(i >= 0 && i < x->head.n_rows, "sample %lld of %lld", (long long)i, (long long)x->head.n_rows);
    int64_t at = (int64_t)sizeof x->head + i * (int64_t)sizeof r;
    int code = fs_file_read(&x->file, at, sizeof r, &r, e);
    if (code) return code;
    if (r.sum != row_sum(r, i) || r.shard >= (uint64_t)x->list.n)
        return err_set(e, ERR_CORRUPT, "%s: byte %lld: the row of sample %lld is not what was written; remove the file",
                       x->file.path, (long long)at, (long long)i);
    *p = (struct image_place){.shard = x->list.files[r.shard].path,
                              .offset = r.offset,
                              .bytes = r.bytes,
                              .header = r.header,
                              .label = r.label,
                              .shard_number = (int)r.shard};
    return OK;
}

/* Lets the shard rest that was not read for the longest time. The lock is held. */
static void rest_one(struct image_index *x)
{
    int64_t oldest = -1;
    for (int64_t i = 0; i < x->list.n; i++)
        if (x->shard[i].file.fd >= 0 && !x->shard[i].users && (oldest < 0 || x->shard[i].used < x->shard[oldest].used))
            oldest = i;
    if (oldest < 0) return;
    fs_file_rest(&x->shard[oldest].file);
    x->n_open--;
}

/* The lock is held. What is other than it was listed is refused. */
static int wake(struct image_index *x, int number, struct err *e)
{
    struct shard *s = &x->shard[number];
    const struct source_file *listed = &x->list.files[number];
    int code = OK;
    if (s->file.elsewhere || s->file.fd >= 0) return OK;
    if (!listed->object && x->n_open >= OPEN_MOST) rest_one(x);
    if (s->file.path) code = fs_file_reopen(&s->file, e);
    else code = open_shard_file(&s->file, &x->list, listed, e);
    if (!code && s->file.bytes != listed->bytes) {
        code =
            err_set(e, ERR_IO, "%s: has %lld bytes now, %lld when it was listed; start again when nobody writes to it",
                    listed->path, (long long)s->file.bytes, (long long)listed->bytes);
        fs_file_close(&s->file);
        s->file = (struct fs_file){.fd = -1};
    }
    if (!code && s->file.fd >= 0) x->n_open++;
    return code;
}

int image_index_read(struct image_index *x, const struct image_place *p, struct str *out, struct err *e)
{
    struct shard *s = &x->shard[p->shard_number];
    size_t room = out->room;
    pthread_mutex_lock(&x->lock);
    int code = wake(x, p->shard_number, e);
    s->users += !code;
    s->used = ++x->now;
    pthread_mutex_unlock(&x->lock);
    if (code) return code;
    str_clear(out);
    GROW(out->p, out->n, room, (size_t)p->bytes + 1);
    out->room = room;
    code = fs_file_read(&s->file, p->offset, (size_t)p->bytes, out->p, e);
    out->n = code ? 0 : (size_t)p->bytes;
    out->p[out->n] = 0;
    pthread_mutex_lock(&x->lock);
    s->users--;
    pthread_mutex_unlock(&x->lock);
    return code;
}

int image_index_key(struct image_index *x, const struct image_place *p, struct str *out, struct err *e)
{
    struct blob *blob;
    struct tar_member m;
    int code = open_shard_blob(&blob, &x->list, &x->list.files[p->shard_number], e);
    if (code) return code;
    struct source_buffer b;
    source_buffer_init(&b, blob, blob->bytes);
    code = source_buffer_begin(&b, e);
    if (!code) source_buffer_seek(&b, p->header);
    struct tar *t = tar_new(&b);
    int got = code ? code : tar_next(t, &m, e);
    str_clear(out);
    if (got > 0) str_add(out, m.name, sample_key(m.name));
    tar_free(t);
    source_buffer_fini(&b);
    blob_close(blob);
    return got < 0 ? got : OK;
}
