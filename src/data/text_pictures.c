/* SPDX-License-Identifier: Apache-2.0 */
#include "data/text_pictures.h"

#include <string.h>

#include "base/mem.h"
#include "data/image_scan.h"
#include "media/media.h"
#include "source/sample_field.h"
#include "source/source_buffer.h"
#include "source/tar_members.h"

/* Where the sample lies, for errors. */
struct sample_place {
    const char *shard;
    const struct str *key;
    int64_t byte;
};

static int bad(const struct sample_place *p, const char *member, struct err *e)
{
    return err_prefix(e, "%s: sample %.200s at byte %lld%s%.200s", p->shard, str_text(p->key), (long long)p->byte,
                      member[0] ? ": " : "", member);
}

static int fill_one(struct tar *t, const struct tar_member *m, const struct sample_place *p, const struct image_rule *r,
                    uint64_t seed, uint64_t order, float *pixels, struct err *e)
{
    struct str bytes = {0};
    struct image image;
    int code = m->bytes > SOURCE_RECORD_MAX ? err_set(e, ERR_CORRUPT, "a picture of more than 256 MiB") : OK;
    if (!code) code = tar_read(t, m, &bytes, e);
    if (!code) code = media_image(&image, bytes.p, bytes.n, 0, &r->limits, e);
    if (code) bad(p, m->name + p->key->n + 1, e);
    else {
        view_values(&r->view, &image, seed, order, pixels);
        image_free(&image);
    }
    str_free(&bytes);
    return code;
}

/* The members of one key, from the archive's next one on. */
static int fill_sample(struct tar *t, struct sample_place *p, struct str *key, int64_t n, const char *image,
                       const struct image_rule *r, uint64_t seed, uint64_t order, float *pixels, struct err *e)
{
    struct tar_member m;
    int64_t found = 0;
    int got, code = OK;
    while (!code && (got = tar_next(t, &m, e)) != 0) {
        if (got < 0) return bad(p, "", e), got;
        size_t length = sample_key(m.name);
        if (!length) continue;
        if (!key->n) str_add(key, m.name, length);
        if (length != key->n || memcmp(m.name, key->p, length) != 0) break;
        const struct media_row *row = media_of_name(m.name + length + 1);
        bool is = image ? field_names(image, m.name + length + 1) : row && row->kind == MEDIA_IMAGE;
        if (!is) continue;
        if (found < n)
            code =
                fill_one(t, &m, p, r, seed, order * 4096 + (uint64_t)found, pixels + found * image_rule_pixels(r), e);
        found++;
    }
    if (code || found == n) return code;
    err_set(e, ERR_CORRUPT, "has %lld pictures, and had %lld when its text was tokenized; remove the cache",
            (long long)found, (long long)n);
    return bad(p, "", e), ERR_CORRUPT;
}

int text_pictures_fill(const struct tokenfile *f, int64_t document, int64_t n, const char *image,
                       const struct image_rule *r, uint64_t seed, uint64_t order, float *pixels, struct err *e)
{
    char *shard = NULL;
    int64_t byte = -1;
    struct blob *blob = NULL;
    struct source_buffer b;
    struct str key = {0};
    if (!n) return OK;
    int code = tokenfile_origin(f, document, &shard, &byte, e);
    if (!code && (!shard || byte < 0))
        code = err_set(e, ERR_CORRUPT, "%s: document %lld: does not say which sample its pictures are of", f->path,
                       (long long)document);
    if (!code) code = blob_open(&blob, shard, e);
    if (!code) {
        source_buffer_init(&b, blob, blob->bytes);
        code = source_buffer_begin(&b, e);
        if (!code && source_buffer_packed(&b))
            code = err_set(e, ERR_REQUEST,
                           "%s: is packed by %s, and samples with pictures are read from the middle of a shard; unpack "
                           "it",
                           shard, unpack_format(b.unpack));
        if (!code) {
            struct sample_place p = {shard, &key, byte};
            source_buffer_seek(&b, byte);
            struct tar *t = tar_new(&b);
            code = fill_sample(t, &p, &key, n, image, r, seed, order, pixels, e);
            tar_free(t);
        }
        source_buffer_fini(&b);
    }
    blob_close(blob);
    str_free(&key);
    xfree(shard);
    return code;
}
