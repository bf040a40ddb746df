/* SPDX-License-Identifier: Apache-2.0 */
/* A box is read in stretches of rows, of whole blocks, whose numbers are then cut to the box. */
#include "checkpoint/packed_read.h"

#include <string.h>

#include "base/mem.h"
#include "checkpoint/convert.h"
#include "kernel/packed_rows.h"

enum { STRETCH = 1 << 20 /* numbers */ };

struct packed_matrix {
    int64_t codes, scales, groups; /* tensors of the checkpoint; groups -1: none */
    int64_t rows, cols;
};
struct packed_read {
    struct ckpt *c;
    enum packing packing;
    enum dtype dtype;
    struct packed_matrix *m;
    int64_t n;
};

static int wrong(const struct packed_read *r, const char *name, const char *what, struct err *e)
{
    return err_set(e, ERR_CORRUPT, "%s: base_codes/%s: %s", ckpt_path(r->c), name, what);
}

static bool is_shaped(const struct ckpt_entry *t, enum dtype type, int nd, int64_t rows, int64_t cols)
{
    return t->dtype == type && t->shape.nd == nd && t->shape.n[0] == rows && (nd < 2 || t->shape.n[1] == cols);
}

static int add(struct packed_read *r, int64_t i, struct err *e)
{
    struct ckpt_entry t = ckpt_at(r->c, i);
    struct packed_matrix *m = &r->m[r->n];
    const struct packing_row *row = packing_row(r->packing);
    if (t.shape.nd != 2 || t.dtype != DT_U8 || t.shape.n[1] > INT64_MAX / 2)
        return wrong(r, t.name, "its shape is not that of codes", e);
    *m = (struct packed_matrix){i, ckpt_find(r->c, "base_scales", t.name), ckpt_find(r->c, "base_groups", t.name),
                                t.shape.n[0], 2 * t.shape.n[1]};
    if (m->scales < 0 || (m->groups < 0) == row->grouped) return wrong(r, t.name, "its scales are not there", e);
    struct ckpt_entry s = ckpt_at(r->c, m->scales);
    if (!is_shaped(&s, DT_U8, 2, m->rows, packing_row_blocks(r->packing, m->cols)))
        return wrong(r, t.name, "its scales are of another shape", e);
    if (row->grouped) {
        struct ckpt_entry g = ckpt_at(r->c, m->groups);
        if (!is_shaped(&g, DT_F32, 1, packing_groups(r->packing, m->rows, m->cols), 0))
            return wrong(r, t.name, "the scales of its scales are of another shape", e);
    }
    r->n++;
    return OK;
}

int packed_read_open(struct packed_read **out, struct ckpt *c, enum dtype dtype, struct err *e)
{
    int64_t n = 0, all = ckpt_count(c);
    *out = NULL;
    for (int64_t i = 0; i < all; i++) n += !strcmp(ckpt_at(c, i).group, "base_codes");
    if (!n) return OK;
    const struct json *extra = ckpt_extra(c), *a = extra ? json_get(extra, "adapter") : NULL;
    int p = a ? packing_find(json_string(json_get(a, "base"), NULL, "")) : -1;
    if (p <= PACKING_NONE || packing_row((enum packing)p)->per_byte != 2)
        return err_set(e, ERR_CORRUPT, "%s: has matrices in few bits, and extra.adapter.base does not say in which",
                       ckpt_path(c));
    struct packed_read *r = xcalloc(1, sizeof *r);
    *r = (struct packed_read){.c = c, .packing = (enum packing)p, .dtype = dtype};
    r->m = xcalloc(to_size(n), sizeof *r->m);
    int rc = OK;
    for (int64_t i = 0; i < all && !rc; i++)
        if (!strcmp(ckpt_at(c, i).group, "base_codes")) rc = add(r, i, e);
    if (rc) packed_read_close(r);
    else *out = r;
    return rc;
}

void packed_read_close(struct packed_read *r)
{
    if (!r) return;
    xfree(r->m);
    xfree(r);
}

int64_t packed_read_count(const struct packed_read *r) { return r ? r->n : 0; }

int64_t packed_read_find(const struct packed_read *r, const char *name)
{
    for (int64_t i = 0; i < packed_read_count(r); i++)
        if (!strcmp(ckpt_at(r->c, r->m[i].codes).name, name)) return i;
    return -1;
}

struct ckpt_entry packed_read_at(const struct packed_read *r, int64_t i)
{
    const struct packed_matrix *m = &r->m[i];
    struct ckpt_entry t = ckpt_at(r->c, m->codes);
    t.group = "master";
    t.dtype = r->dtype;
    t.shape = shape_of(2, (int64_t[]){m->rows, m->cols});
    return t;
}

/* Rows and columns of box, whose columns are whole blocks, to x. groups: of the whole matrix. */
static int unpack(struct packed_read *r, const struct packed_matrix *m, const struct region *box, float *groups,
                  void *x, struct err *e)
{
    const int64_t block = packing_row(r->packing)->block, rows = box->hi[0] - box->lo[0],
                  cols = box->hi[1] - box->lo[1], blocks = packing_row_blocks(r->packing, cols);
    struct region codes = *box, scales = *box;
    uint8_t *v = xmalloc(to_size(rows * (cols / 2 + blocks)) + 1);
    codes.lo[1] /= 2;
    codes.hi[1] /= 2;
    scales.lo[1] /= block;
    scales.hi[1] = scales.lo[1] + blocks;
    int rc = ckpt_read(r->c, m->codes, &codes, DT_U8, v, e);
    if (!rc) rc = ckpt_read(r->c, m->scales, &scales, DT_U8, v + rows * (cols / 2), e);
    struct packed_args a = {.packing = r->packing,
                            .rows = rows,
                            .cols = cols,
                            .row_blocks = packing_row_blocks(r->packing, m->cols),
                            .codes = v,
                            .scales = v + rows * (cols / 2),
                            .groups = groups,
                            .n_groups = packing_groups(r->packing, m->rows, m->cols),
                            .x = x,
                            .t = r->dtype};
    a.first = box->lo[0] * a.row_blocks + box->lo[1] / block;
    if (!rc) packed_unpack_ref(NULL, &a);
    xfree(v);
    return rc;
}

int packed_read_box(struct packed_read *r, int64_t i, const struct region *box, enum dtype as, void *dst, struct err *e)
{
    const struct packed_matrix *m = &r->m[i];
    const int64_t block = packing_row(r->packing)->block, n_groups = packing_groups(r->packing, m->rows, m->cols),
                  cols = box->hi[1] - box->lo[1];
    const size_t width = dtype_bytes(r->dtype), to = dtype_bytes(as);
    struct region part = *box;
    part.lo[1] -= part.lo[1] % block;
    part.hi[1] =
        (part.hi[1] + block - 1) / block * block < m->cols ? (part.hi[1] + block - 1) / block * block : m->cols;
    const int64_t wide = part.hi[1] - part.lo[1], step = wide < STRETCH ? STRETCH / (wide ? wide : 1) : 1;
    if (!region_volume(box)) return OK;
    float *groups = n_groups ? xmalloc(to_size(n_groups) * sizeof *groups) : NULL;
    char *x = xmalloc(to_size(step * wide) * width);
    struct region all = {.nd = 1, .hi = {n_groups}};
    int rc = groups ? ckpt_read(r->c, m->groups, &all, DT_F32, groups, e) : OK;
    for (int64_t row = box->lo[0]; row < box->hi[0] && !rc; row += step) {
        part.lo[0] = row;
        part.hi[0] = row + step < box->hi[0] ? row + step : box->hi[0];
        rc = unpack(r, m, &part, groups, x, e);
        for (int64_t k = part.lo[0]; k < part.hi[0] && !rc; k++)
            convert((char *)dst + to_size((k - box->lo[0]) * cols) * to, as,
                    x + to_size((k - part.lo[0]) * wide + box->lo[1] - part.lo[1]) * width, r->dtype, cols);
    }
    xfree(x);
    xfree(groups);
    return rc;
}
