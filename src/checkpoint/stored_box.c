/* SPDX-License-Identifier: Apache-2.0 */
/* stored_box.c: the one place where bytes of tensors come from disk.
 *
 * What is wanted is a box inside a box. It is cut into slabs: all of the inner dims, some rows of one dim, one index of
 * the dims before it, so that a slab is one stretch of the file, of a few MiB. A slab is read with what belongs to the
 * chunks at its two ends if those were not compared before, so every byte is compared when it is first read, and a rank
 * that holds an eighth of a tensor's rows reads an eighth of its bytes. Cost: reading, a checksum at about 10 GB/s, and
 * the caller's copy, all from cache. Rejected: reading single runs of a narrow part (columns): the chunks must be read
 * whole once anyway.
 */
#include "checkpoint/stored_box.h"

#include <inttypes.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"

#define SLAB_BYTES ((int64_t)4 << 20)
#define PIECE_BYTES ((int64_t)1 << 20)

static int differs(const struct stored_box *f, const char *what, int64_t at, int64_t n, uint64_t found,
                   uint64_t written, struct err *e)
{
    return err_set(e, ERR_CORRUPT,
                   "%s: tensor %.200s: %s %" PRId64 " to %" PRId64 " of the file have checksum %016" PRIx64
                   ", %016" PRIx64 " was written: the file is damaged; use another checkpoint",
                   safetensors_file(f->file, f->t->file), f->t->name, what, f->t->at + at, f->t->at + at + n, found,
                   written);
}

static int64_t chunk_end(const struct stored_box *f, int64_t c)
{
    int64_t end = (c + 1) * f->chunk;
    return end < (int64_t)f->t->bytes ? end : (int64_t)f->t->bytes;
}

static int compare_sum(const struct stored_box *f, int64_t c, uint64_t found, struct err *e)
{
    int64_t at = c * f->chunk, n = chunk_end(f, c) - at;
    if (found != f->sums[c]) return differs(f, "bytes", at, n, found, f->sums[c], e);
    f->seen[c] = true;
    return OK;
}

static int compare_chunk(const struct stored_box *f, int64_t c, const unsigned char *p, struct err *e)
{
    return compare_sum(f, c, hash64(p, to_size(chunk_end(f, c) - c * f->chunk)), e);
}

/* A chunk to where it stays: each piece is summed while it is in the nearest cache. */
static int read_chunk(const struct stored_box *f, int64_t c, unsigned char *to, struct err *e)
{
    struct hash64 h;
    int rc = OK;
    hash64_init(&h);
    for (int64_t at = c * f->chunk, end = chunk_end(f, c), n; at < end && rc == OK; at += n, to += n) {
        n = end - at < PIECE_BYTES ? end - at : PIECE_BYTES;
        rc = safetensors_read(f->file, f->t, at, to_size(n), to, e);
        if (rc == OK) hash64_add(&h, to, to_size(n));
    }
    return rc == OK ? compare_sum(f, c, hash64_value(&h), e) : rc;
}

/* Bytes [lo, hi) of the tensor are at *p, somewhere in the buffer, which has room for two chunks more. */
static int read_range(const struct stored_box *f, int64_t lo, int64_t hi, unsigned char *buffer,
                      const unsigned char **p, struct err *e)
{
    int64_t from = lo, to = hi;
    if (f->sums && !f->seen[lo / f->chunk]) from = lo / f->chunk * f->chunk;
    if (f->sums && !f->seen[(hi - 1) / f->chunk]) to = chunk_end(f, (hi - 1) / f->chunk);
    int rc = safetensors_read(f->file, f->t, from, to_size(to - from), buffer, e);
    for (int64_t c = from / (f->sums ? f->chunk : 1); f->sums && c * f->chunk < to && rc == OK; c++)
        if (!f->seen[c]) rc = compare_chunk(f, c, buffer + (c * f->chunk - from), e);
    *p = buffer + (lo - from);
    return rc;
}

/* Elements of the box from one index of dim d to the next. */
static int64_t stride_of(const struct region *box, int d)
{
    int64_t n = 1;
    for (int k = d + 1; k < box->nd; k++) n *= box->hi[k] - box->lo[k];
    return n;
}

/* The next index of the dims before d; false when all were visited. */
static bool advance(struct region *slab, const struct region *part, int d)
{
    for (int k = d - 1; k >= 0; k--) {
        if (++slab->lo[k] < part->hi[k]) {
            slab->hi[k] = slab->lo[k] + 1;
            return true;
        }
        slab->lo[k] = part->lo[k];
        slab->hi[k] = slab->lo[k] + 1;
    }
    return false;
}

int stored_each(struct stored_box *f, const struct region *part, stored_fn *fn, void *ctx, struct err *e)
{
    const struct region *box = &f->box;
    CHECK(region_contains(box, part), "%s: the part is not inside", f->t->name);
    if (region_volume(part) == 0) return OK;
    int d = 0;
    while (d < box->nd - 1 && stride_of(box, d) * (int64_t)f->width > SLAB_BYTES) d++;
    int64_t row = stride_of(box, d) * (int64_t)f->width, rows = box->nd ? part->hi[d] - part->lo[d] : 1;
    int64_t band = SLAB_BYTES / row < 1 ? 1 : SLAB_BYTES / row;
    if (band > rows) band = rows;
    struct region slab = *box;
    for (int k = 0; k < d; k++) {
        slab.lo[k] = part->lo[k];
        slab.hi[k] = slab.lo[k] + 1;
    }
    unsigned char *buffer = xmalloc(to_size(band * row + (f->sums ? 2 * f->chunk : 0)));
    int rc = OK;
    do {
        for (int64_t at = 0, n; at < rows && rc == OK; at += n) {
            n = rows - at < band ? rows - at : band;
            if (box->nd) {
                slab.lo[d] = part->lo[d] + at;
                slab.hi[d] = slab.lo[d] + n;
            }
            int64_t lo = 0;
            for (int k = 0; k < box->nd; k++) lo += (slab.lo[k] - box->lo[k]) * stride_of(box, k) * (int64_t)f->width;
            const unsigned char *p;
            rc = read_range(f, lo, lo + n * row, buffer, &p, e);
            if (rc == OK) fn(ctx, &slab, p);
        }
    } while (rc == OK && advance(&slab, part, d));
    xfree(buffer);
    return rc;
}

int stored_stretch(struct stored_box *f, int64_t lo, int64_t n, void *dst, struct err *e)
{
    CHECK(!f->sums || (lo % f->chunk == 0 && ((lo + n) % f->chunk == 0 || lo + n == (int64_t)f->t->bytes)),
          "%s: bytes %" PRId64 " to %" PRId64 " are not whole chunks", f->t->name, lo, lo + n);
    bool small = !f->sums || f->chunk <= PIECE_BYTES; /* many of them may be in one reading */
    int rc = small ? safetensors_read(f->file, f->t, lo, to_size(n), dst, e) : OK;
    for (int64_t c = f->sums ? lo / f->chunk : 0; f->sums && c * f->chunk < lo + n && rc == OK; c++) {
        unsigned char *p = (unsigned char *)dst + (c * f->chunk - lo);
        rc = small ? compare_chunk(f, c, p, e) : read_chunk(f, c, p, e);
    }
    return rc;
}

int stored_verify(struct stored_box *f, const uint64_t *hash, struct err *e)
{
    int64_t step = f->sums ? f->chunk : SLAB_BYTES, bytes = (int64_t)f->t->bytes;
    unsigned char *buffer = xmalloc(to_size(step < bytes ? step : bytes) + 1);
    struct hash64 all;
    hash64_init(&all);
    int rc = OK;
    for (int64_t at = 0; at < bytes && rc == OK; at += step) {
        size_t n = to_size(bytes - at < step ? bytes - at : step);
        rc = safetensors_read(f->file, f->t, at, n, buffer, e);
        if (rc == OK && f->sums) rc = compare_chunk(f, at / step, buffer, e);
        if (rc == OK && hash) hash64_add(&all, buffer, n);
    }
    xfree(buffer);
    if (rc == OK && hash && hash64_value(&all) != *hash)
        rc = differs(f, "bytes", 0, bytes, hash64_value(&all), *hash, e);
    return rc;
}
