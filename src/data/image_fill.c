/* SPDX-License-Identifier: Apache-2.0 */
#include "data/image_fill.h"

/* Decoded, upright; *e names whose it is. */
static int decoded(struct image_index *x, const struct image_rule *r, int64_t i, struct image_place *p, struct image *m,
                   struct image_about *about, struct err *e)
{
    struct str bytes = {0};
    int code = image_index_where(x, i, p, e);
    if (!code) code = image_index_read(x, p, &bytes, e);
    if (code) {
        str_free(&bytes);
        return code;
    }
    code = media_image(m, bytes.p, bytes.n, 0, &r->limits, e);
    if (!code) {
        const struct media_row *row = media_of(bytes.p, bytes.n);
        *about = (struct image_about){m->width, m->height, m->channels, p->bytes, row->name};
    } else {
        struct str key = {0};
        struct err other;
        if (image_index_key(x, p, &key, &other)) str_clear(&key);
        err_prefix(e, "%s: sample %.200s at byte %lld", p->shard, str_text(&key), (long long)p->header);
        str_free(&key);
    }
    str_free(&bytes);
    return code;
}

int image_fill(struct image_index *x, const struct image_rule *r, int64_t i, uint64_t seed, uint64_t order,
               float *pixels, int32_t *label, struct err *e)
{
    struct image_place p;
    struct image_about about;
    struct image m;
    int code = decoded(x, r, i, &p, &m, &about, e);
    if (code) return code;
    view_values(&r->view, &m, seed, order, pixels);
    image_free(&m);
    *label = p.label;
    return OK;
}

int image_view(struct image_index *x, const struct image_rule *r, int64_t i, uint64_t seed, uint64_t order,
               struct image *out, struct image_about *about, struct err *e)
{
    struct image_place p;
    struct image m;
    int code = decoded(x, r, i, &p, &m, about, e);
    if (code) return code;
    view_image(&r->view, &m, seed, order, out);
    image_free(&m);
    return OK;
}
