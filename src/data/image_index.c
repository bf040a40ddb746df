/* SPDX-License-Identifier: Apache-2.0 */
/* image_index.c: the index as a file that is read, and the shards it speaks of, of which a bounded number is open at a
 * time. */
#include "data/image_index.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "data/image_index_impl.h"
#include "source/blob_remote.h"
#include "source/sample_field.h"
#include "source/source_buffer.h"
#include "source/tar_members.h"

enum { OPEN_MOST = 256 };

struct shard {
    struct fs_file file;
    int users; /* of threads that read it now */
    uint64_t used;
};

struct image_index {
    struct fs_file file;
    struct image_head head;
    struct source_list list; /* the shards */
    struct shard *shard;
    pthread_mutex_t lock; /* of shard's users, used, file.fd, and: */
    uint64_t now;
    int n_open;
};

uint64_t image_row_sum(struct image_row r, int64_t i)
{
    r.sum = (uint64_t)i;
    return hash64(&r, sizeof r);
}

int image_shard_file(struct fs_file *f, struct source_list *l, const struct source_file *listed, struct err *e)
{
    if (listed->object) return file_of_object(f, l->remote, listed->object->url, &listed->object->about, e);
    return fs_file_open(f, listed->path, e);
}

int image_shard_blob(struct blob **b, struct source_list *l, const struct source_file *listed, struct err *e)
{
    if (listed->object) return blob_of_object(b, l->remote, listed->object->url, &listed->object->about, e);
    return blob_open(b, listed->path, e);
}

static int read_head(struct image_index *x, const char *path, uint64_t key, struct err *e)
{
    int code = fs_file_open(&x->file, path, e);
    struct image_head *h = &x->head;
    if (!code && x->file.bytes < (int64_t)sizeof *h)
        code = err_set(e, ERR_CORRUPT, "%s: ends at byte %lld, in its head; remove it", path, (long long)x->file.bytes);
    if (!code) code = fs_file_read(&x->file, 0, sizeof *h, h, e);
    if (code) return code;
    if (memcmp(h->magic, IMAGE_INDEX_MAGIC, 8) || h->version != IMAGE_INDEX_VERSION ||
        h->sum != hash64(h, offsetof(struct image_head, sum)) || h->key != key || h->n_shards != x->list.n ||
        h->n_rows < 1)
        return err_set(e, ERR_CORRUPT, "%s: byte 0: is no index of these pictures; remove it, and it is made again",
                       path);
    if ((x->file.bytes - (int64_t)sizeof *h) % (int64_t)sizeof(struct image_row) ||
        (x->file.bytes - (int64_t)sizeof *h) / (int64_t)sizeof(struct image_row) != h->n_rows)
        return err_set(e, ERR_CORRUPT, "%s: has %lld bytes, its head says %lld rows of %zu; remove it", path,
                       (long long)x->file.bytes, (long long)h->n_rows, sizeof(struct image_row));
    return OK;
}

int image_index_open(struct image_index **out, const struct image_index_options *o, struct err *e)
{
    struct image_index *x = xcalloc(1, sizeof *x);
    struct image_input in = {.list = &x->list};
    char name[40], *path = NULL;
    bool made = false;
    *out = NULL;
    x->file.fd = -1;
    pthread_mutex_init(&x->lock, NULL);
    int code = image_input_list(&in, o, e);
    if (!code) code = fs_mkdirs(o->cache_dir, e);
    if (!code) {
        uint64_t key = image_input_key(&in, o);
        snprintf(name, sizeof name, "%016" PRIx64 ".img", key);
        path = fs_join(o->cache_dir, name);
        code = image_index_make(&in, o, path, key, &made, e);
        if (!code) code = read_head(x, path, key, e);
    }
    if (!code && x->head.n_bad && !made)
        log_warn("data: %s: %lld bad samples are skipped; they are listed in %s.skipped", o->path,
                 (long long)x->head.n_bad, path);
    x->shard = xcalloc((size_t)x->list.n + 1, sizeof *x->shard);
    for (int64_t i = 0; i < x->list.n; i++) x->shard[i].file.fd = -1;
    image_input_fini(&in);
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

struct remote *image_index_remote(const struct image_index *x) { return x->list.remote; }

int64_t image_index_n(const struct image_index *x) { return x->head.n_rows; }

uint64_t image_index_sum(const struct image_index *x) { return x->head.rows_sum; }

int image_index_where(const struct image_index *x, int64_t i, struct image_place *p, struct err *e)
{
    struct image_row r;
    CHECK(i >= 0 && i < x->head.n_rows, "sample %lld of %lld", (long long)i, (long long)x->head.n_rows);
    int64_t at = (int64_t)sizeof x->head + i * (int64_t)sizeof r;
    int code = fs_file_read(&x->file, at, sizeof r, &r, e);
    if (code) return code;
    if (r.sum != image_row_sum(r, i) || r.shard >= (uint64_t)x->list.n)
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
    else code = image_shard_file(&s->file, &x->list, listed, e);
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
    int code = image_shard_blob(&blob, &x->list, &x->list.files[p->shard_number], e);
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
