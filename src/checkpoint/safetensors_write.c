/* SPDX-License-Identifier: Apache-2.0 */
/* safetensors_write.c: writing weight files as a stream.
 *
 * The specs fix every offset before the first byte, so the header goes first and the data follow in pieces of
 * any size: memory is one write buffer, whatever the model. Tensors are laid out by falling alignment of their
 * size (stable within one): what comes before a tensor is a multiple of what divides its own size, so it begins aligned
 * without padding between them, which the format forbids. A running XXH64 per tensor, or one per chunk of it where that
 * is wanted, comes with the bytes, so that nobody reads them twice. A set is planned first (greedy, in the caller's
 * order), because every file's name carries the number of files.
 */
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "checkpoint/safetensors.h"

#define PIECE_BYTES ((size_t)8 << 20)

struct safetensors_writer {
    char *path;
    const struct safetensors_spec *specs;
    int64_t n;
    int64_t *order;   /* file order -> index of spec */
    size_t *bytes;    /* of each spec */
    uint64_t *hashes; /* of each spec */
    uint64_t header_hash;
    int64_t at;         /* position in order of the tensor being written */
    size_t done;        /* its bytes so far */
    int64_t file_bytes; /* header and data */
    struct hash64 hash;
    int64_t chunk;   /* 0: no sums of chunks are wanted */
    uint64_t **sums; /* of each spec: its chunks, when it has more than one */
    struct hash64 chunk_hash;
    struct fs_writer *out;
};

static int spec_bytes(const struct safetensors_spec *t, size_t *bytes, const char *path, struct err *e)
{
    int64_t count, total;
    if (shape_measure(&t->shape, dtype_bytes(t->dtype), &count, &total))
        return err_set(e, ERR_REQUEST, "%s: tensor %.200s: the shape is larger than any file", path, t->name);
    *bytes = to_size(total);
    return OK;
}

/* The largest power of two that divides a tensor's bytes, up to a page. */
static size_t alignment(size_t bytes)
{
    size_t n = SAFETENSORS_ALIGN;
    while (n > 1 && bytes % n) n /= 2;
    return n;
}

/* A counting sort, the largest alignment first. */
static void order_by_alignment(struct safetensors_writer *w)
{
    int64_t at = 0;
    for (size_t n = SAFETENSORS_ALIGN; n; n /= 2)
        for (int64_t i = 0; i < w->n; i++)
            if (alignment(w->bytes[i]) == n) w->order[at++] = i;
}

static int measure(struct safetensors_writer *w, struct err *e)
{
    int rc = OK;
    for (int64_t i = 0; i < w->n && rc == OK; i++) rc = spec_bytes(&w->specs[i], &w->bytes[i], w->path, e);
    return rc;
}

static int build_header(struct safetensors_writer *w, const char *const *metadata, int n_metadata, struct str *out,
                        struct err *e)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    json_begin_object(&o, NULL);
    if (n_metadata > 0) {
        json_begin_object(&o, "__metadata__");
        for (int i = 0; i < n_metadata; i++) json_put_string(&o, metadata[2 * i], metadata[2 * i + 1]);
        json_end_object(&o);
    }
    int64_t at = 0;
    int rc = OK;
    for (int64_t k = 0; k < w->n && rc == OK; k++) {
        const struct safetensors_spec *t = &w->specs[w->order[k]];
        size_t bytes = w->bytes[w->order[k]];
        json_begin_object(&o, t->name);
        json_put_string(&o, "dtype", dtype_info(t->dtype)->safetensors);
        json_begin_array(&o, "shape");
        for (int d = 0; d < t->shape.nd; d++) json_put_int(&o, NULL, t->shape.n[d]);
        json_end_array(&o);
        json_begin_array(&o, "data_offsets");
        json_put_int(&o, NULL, at);
        if (__builtin_add_overflow(at, (int64_t)bytes, &at))
            rc = err_set(e, ERR_REQUEST, "%s: the tensors are larger than any file", w->path);
        json_put_int(&o, NULL, at);
        json_end_array(&o);
        json_end_object(&o);
    }
    json_end_object(&o);
    while ((8 + text.n) % SAFETENSORS_ALIGN) str_putc(&text, ' ');
    if (rc == OK && text.n > SAFETENSORS_HEADER_LIMIT)
        rc = err_set(e, ERR_REQUEST, "%s: %lld tensors need a header above the format's limit of 100 MiB", w->path,
                     (long long)w->n);
    for (int i = 0; i < 8; i++) str_putc(out, (char)((uint64_t)text.n >> (8 * i) & 0xff));
    str_add(out, text.p, text.n);
    w->file_bytes = (int64_t)out->n + at;
    str_free(&text);
    return rc;
}

static void skip_empty(struct safetensors_writer *w)
{
    while (w->at < w->n && w->done == w->bytes[w->order[w->at]]) {
        w->hashes[w->order[w->at]] = hash64_value(&w->hash);
        hash64_init(&w->hash);
        w->at++;
        w->done = 0;
    }
}

static int64_t chunks_of(const struct safetensors_writer *w, int64_t i)
{
    int64_t bytes = (int64_t)w->bytes[i];
    return w->chunk && bytes > w->chunk ? (bytes + w->chunk - 1) / w->chunk : 0;
}

static void writer_free(struct safetensors_writer *w)
{
    for (int64_t i = 0; w->sums && i < w->n; i++) xfree(w->sums[i]);
    xfree(w->sums);
    xfree(w->path);
    xfree(w->order);
    xfree(w->bytes);
    xfree(w->hashes);
    xfree(w);
}

int safetensors_writer_open(struct safetensors_writer **out, const char *path, const struct safetensors_spec *specs,
                            int64_t n, const char *const *metadata, int n_metadata, struct err *e)
{
    struct safetensors_writer *w = xcalloc(1, sizeof *w);
    *w = (struct safetensors_writer){.path = xstrdup(path), .specs = specs, .n = n};
    w->order = xcalloc(to_size(n) + 1, sizeof *w->order);
    w->bytes = xcalloc(to_size(n) + 1, sizeof *w->bytes);
    w->hashes = xcalloc(to_size(n) + 1, sizeof *w->hashes);
    struct str header = {0};
    *out = NULL;
    int rc = measure(w, e);
    if (rc == OK) order_by_alignment(w);
    if (rc == OK) rc = build_header(w, metadata, n_metadata, &header, e);
    if (rc == OK) rc = fs_writer_open(&w->out, path, e);
    if (rc == OK && (rc = fs_writer_write(w->out, header.p, header.n, e)) < 0) fs_writer_close(w->out, false, NULL);
    w->header_hash = hash64(header.p, header.n);
    str_free(&header);
    if (rc < 0) {
        writer_free(w);
        return rc;
    }
    hash64_init(&w->hash);
    skip_empty(w);
    *out = w;
    return OK;
}

int64_t safetensors_writer_next(const struct safetensors_writer *w) { return w->at < w->n ? w->order[w->at] : -1; }

void safetensors_writer_chunks(struct safetensors_writer *w, int64_t chunk)
{
    CHECK(chunk > 0 && !w->done && !w->sums, "%s: chunks of %lld bytes, asked for late", w->path, (long long)chunk);
    w->chunk = chunk;
    w->sums = xcalloc(to_size(w->n) + 1, sizeof *w->sums);
    for (int64_t i = 0; i < w->n; i++)
        if (chunks_of(w, i)) w->sums[i] = xcalloc(to_size(chunks_of(w, i)), sizeof **w->sums);
    hash64_init(&w->chunk_hash);
}

const uint64_t *safetensors_writer_sums(const struct safetensors_writer *w, int64_t i, int64_t *n)
{
    CHECK(i >= 0 && i < w->n, "tensor %lld of %lld", (long long)i, (long long)w->n);
    *n = chunks_of(w, i);
    return *n ? w->sums[i] : NULL;
}

/* Adds bytes of tensor i to the sums of the chunks that they lie in. */
static void sum_chunks(struct safetensors_writer *w, int64_t i, const unsigned char *p, size_t n)
{
    for (size_t at = 0, step; at < n; at += step) {
        size_t place = w->done + at, left = (size_t)w->chunk - place % (size_t)w->chunk;
        step = n - at < left ? n - at : left;
        hash64_add(&w->chunk_hash, p + at, step);
        if (step < left && place + step < w->bytes[i]) return;
        w->sums[i][place / (size_t)w->chunk] = hash64_value(&w->chunk_hash);
        hash64_init(&w->chunk_hash);
    }
}

static int put(struct safetensors_writer *w, const void *p, size_t n, bool sums, struct err *e)
{
    if (n == 0) return OK;
    CHECK(w->at < w->n, "%s: bytes after the last tensor", w->path);
    int64_t i = w->order[w->at];
    CHECK(n <= w->bytes[i] - w->done, "%s: %s: more bytes than its shape", w->path, w->specs[i].name);
    int rc = fs_writer_write(w->out, p, n, e);
    if (rc < 0) return rc;
    if (sums && chunks_of(w, i)) sum_chunks(w, i, p, n);
    else if (sums) hash64_add(&w->hash, p, n);
    w->done += n;
    skip_empty(w);
    return OK;
}

int safetensors_writer_write(struct safetensors_writer *w, const void *p, size_t n, struct err *e)
{
    return put(w, p, n, true, e);
}

int safetensors_writer_put(struct safetensors_writer *w, const void *p, size_t n, struct err *e)
{
    return put(w, p, n, false, e);
}

uint64_t safetensors_writer_hash(const struct safetensors_writer *w, int64_t i)
{
    CHECK(i >= 0 && i < w->n, "tensor %lld of %lld", (long long)i, (long long)w->n);
    return w->hashes[i];
}

uint64_t safetensors_writer_header_hash(const struct safetensors_writer *w) { return w->header_hash; }

int64_t safetensors_writer_bytes(const struct safetensors_writer *w) { return w->file_bytes; }

int safetensors_writer_close(struct safetensors_writer *w, bool sync, struct err *e)
{
    int rc = fs_writer_close(w->out, sync, e);
    writer_free(w);
    return rc;
}

/* -- sets --------------------------------------------------------------------------------------------------- */

/* Bands of rows of the tensor that is due. */
static int write_rows(struct safetensors_writer *w, int64_t i, int64_t first, safetensors_source_fn *source, void *ctx,
                      struct err *e)
{
    int64_t rows = w->specs[i].shape.nd ? w->specs[i].shape.n[0] : 1;
    size_t row_bytes = w->bytes[i] / to_size(rows);
    int64_t band = row_bytes < PIECE_BYTES ? (int64_t)(PIECE_BYTES / row_bytes) : 1;
    if (band > rows) band = rows;
    unsigned char *buffer = xmalloc(to_size(band) * row_bytes);
    int rc = OK;
    for (int64_t row = 0; row < rows && rc == OK; row += band) {
        int64_t n = rows - row < band ? rows - row : band;
        rc = source(ctx, first + i, row, n, buffer, e);
        if (rc == OK) rc = safetensors_writer_write(w, buffer, to_size(n) * row_bytes, e);
    }
    xfree(buffer);
    return rc;
}

static int write_one(const char *path, const struct safetensors_spec *specs, int64_t n, int64_t first,
                     safetensors_source_fn *source, void *ctx, struct err *e)
{
    static const char *const metadata[] = {"format", "pt"}; /* readers of the ecosystem ask for it */
    struct safetensors_writer *w;
    int rc = safetensors_writer_open(&w, path, specs, n, metadata, 1, e);
    if (rc < 0) return rc;
    for (int64_t i; rc == OK && (i = safetensors_writer_next(w)) >= 0;) rc = write_rows(w, i, first, source, ctx, e);
    int closed = safetensors_writer_close(w, true, rc == OK ? e : NULL);
    return rc < 0 ? rc : closed;
}

static char *shard_name(const char *stem, int64_t shard, int64_t n_shards)
{
    struct str s = {0};
    if (n_shards == 1) str_printf(&s, "%s.safetensors", stem);
    else str_printf(&s, "%s-%05lld-of-%05lld.safetensors", stem, (long long)shard + 1, (long long)n_shards);
    return s.p;
}

static int write_index(const char *dir, const char *stem, const struct safetensors_spec *specs, int64_t n,
                       const int64_t *shard_of, int64_t n_shards, int64_t total, struct err *e)
{
    struct str text = {0}, name = {0};
    struct json_out o = {.s = &text, .pretty = true};
    json_begin_object(&o, NULL);
    json_begin_object(&o, "metadata");
    json_put_int(&o, "total_size", total);
    json_end_object(&o);
    json_begin_object(&o, "weight_map");
    for (int64_t i = 0; i < n; i++) {
        char *file = shard_name(stem, shard_of[i], n_shards);
        json_put_string(&o, specs[i].name, file);
        xfree(file);
    }
    json_end_object(&o);
    json_end_object(&o);
    str_putc(&text, '\n');
    str_printf(&name, "%s.safetensors.index.json", stem);
    char *path = fs_join(dir, name.p);
    int rc = fs_write_atomic(path, text.p, text.n, e);
    xfree(path);
    str_free(&name);
    str_free(&text);
    return rc;
}

int safetensors_write_set(const char *dir, const char *stem, const struct safetensors_spec *specs, int64_t n,
                          int64_t shard_bytes, safetensors_source_fn *source, void *ctx, struct err *e)
{
    int64_t *shard_of = xcalloc(to_size(n) + 1, sizeof *shard_of);
    int64_t shard = 0, in_shard = 0, total = 0;
    int rc = OK;
    for (int64_t i = 0; i < n && rc == OK; i++) {
        size_t bytes;
        rc = spec_bytes(&specs[i], &bytes, dir, e);
        if (rc < 0) break;
        if (in_shard > 0 && in_shard + (int64_t)bytes > shard_bytes) {
            shard++;
            in_shard = 0;
        }
        shard_of[i] = shard;
        in_shard += (int64_t)bytes;
        total += (int64_t)bytes;
    }
    for (int64_t k = 0, first = 0; k <= shard && rc == OK; k++) {
        int64_t last = first;
        while (last < n && shard_of[last] == k) last++;
        char *name = shard_name(stem, k, shard + 1), *path = fs_join(dir, name);
        rc = write_one(path, specs + first, last - first, first, source, ctx, e);
        xfree(name);
        xfree(path);
        first = last;
    }
    if (rc == OK && shard > 0) rc = write_index(dir, stem, specs, n, shard_of, shard + 1, total, e);
    xfree(shard_of);
    return rc;
}
