/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets are counted up once, since an array may leave parameters out. */
#include "state/array.h"

#include <string.h>

#include "base/mem.h"
#include "state/param_group.h"

bool array_covers(const struct array_row *row, const struct param *p)
{
    return (row->groups >> p->group & 1) && (!p->frozen || row->of_frozen) && p->packed == row->packed;
}

static int64_t blocks_of(const struct array_row *row, int64_t cols) { return (cols + row->each - 1) / row->each; }

struct shape array_shape(const struct array_row *row, const struct param *p)
{
    struct shape s = shape_of(p->nd, p->n);
    const int64_t factors = p->n[0] + p->n[1];
    CHECK(row->block != ARRAY_FACTORS || param_group_is_matrices(p->group), "%s of %s, which is no matrix", row->name,
          p->name);
    if (row->block == ARRAY_TENSOR) return shape_of(1, &row->each);
    if (row->block == ARRAY_FACTORS) return shape_of(1, &factors);
    if (row->block == ARRAY_GROUPS) {
        const int64_t groups = packing_groups((enum packing)row->each, p->n[0], p->n[1]);
        return shape_of(1, &groups);
    }
    if (row->block == ARRAY_ROW_BLOCK) s.n[p->nd - 1] = blocks_of(row, p->n[p->nd - 1]);
    return s;
}

struct region array_box(const struct array_row *row, const struct param *p, const struct region *box)
{
    struct region r = *box;
    int d = p->nd - 1;
    bool some = region_volume(box) > 0;
    if (array_of_tensors(row)) return (struct region){.nd = 1, .hi = {some ? array_shape(row, p).n[0] : 0}};
    if (row->block != ARRAY_ROW_BLOCK) return r;
    CHECK(!some || (box->lo[d] % row->each == 0 && (box->hi[d] % row->each == 0 || box->hi[d] == p->n[d])),
          "%s of %s: columns %lld to %lld are no whole blocks of %lld", row->name, p->name, (long long)box->lo[d],
          (long long)box->hi[d], (long long)row->each);
    r.lo[d] = box->lo[d] / row->each;
    r.hi[d] = some ? blocks_of(row, box->hi[d]) : r.lo[d];
    return r;
}

int64_t array_numel(const struct array_row *row, const struct param *p)
{
    if (!array_covers(row, p)) return 0;
    struct shape s = array_shape(row, p);
    return shape_numel(&s);
}

/* Values of n elements of what is held here, whole rows or any where there is a value for each. */
static int64_t values_of(const struct array_row *row, const struct param *p, int64_t n)
{
    if (row->block != ARRAY_ROW_BLOCK) return n;
    CHECK(p->nd == 2, "%s of %s, which is no matrix", row->name, p->name);
    return n ? n / p->ln[1] * blocks_of(row, p->ln[1]) : 0;
}

static int64_t values_here(const struct array *a, const struct units *u, int i)
{
    const struct param *p = &u->table->p[i];
    if (array_of_tensors(&a->row)) return p->held ? array_shape(&a->row, p).n[0] : 0;
    return values_of(&a->row, p, a->whole ? p->held : u->piece[i].n);
}

int array_new(struct array *a, const struct array_row *row, const struct units *u, struct device *d, bool whole,
              bool here, struct err *e)
{
    CHECK(row->block == ARRAY_ELEMENT || row->block == ARRAY_FACTORS || row->each > 0,
          "%s: %lld values for each tensor", row->name, (long long)row->each);
    *a = (struct array){.row = *row, .whole = whole || array_of_tensors(row)};
    a->at = xcalloc((size_t)u->table->n + 1, sizeof *a->at);
    for (int i = 0; i < u->table->n; i++) {
        bool has = array_covers(row, &u->table->p[i]);
        a->at[i] = has ? a->n : -1;
        if (has) a->n += values_here(a, u, i);
    }
    if (!here) return OK;
    struct device *on = row->dev ? row->dev : d;
    int rc = on != d || row->away ? stream_new(&a->own, on, row->name, e) : OK;
    return rc ? rc
              : buffer_new(&a->buf, on, row->away ? row->away : row->cat, to_size(a->n) * dtype_bytes(row->dtype), e);
}

void array_free(struct array *a)
{
    stream_free(a->own);
    buffer_free(&a->buf);
    xfree(a->at);
    memset(a, 0, sizeof *a);
}

/* The first element of the whole parameter is in this rank's piece of this rank's box. */
static bool has_first(const struct param *p, const struct piece *q)
{
    bool first = p->counted && q->n > 0 && q->lo == 0;
    for (int d = 0; d < p->nd; d++) first &= p->lo[d] == 0;
    return first;
}

struct array_span array_piece(const struct array *a, const struct units *u, int param, bool once)
{
    const struct param *p = &u->table->p[param];
    const struct piece *q = &u->piece[param];
    if (a->at[param] < 0) return (struct array_span){0};
    if (array_of_tensors(&a->row))
        return (struct array_span){.n = once && !has_first(p, q) ? 0 : values_here(a, u, param), .at = a->at[param]};
    int64_t lo = values_of(&a->row, p, q->lo), n = values_of(&a->row, p, q->n);
    return (struct array_span){lo, once && !p->counted ? 0 : n, a->at[param] + (a->whole ? lo : 0)};
}

struct array_span array_held(const struct array *a, const struct units *u, int param)
{
    if (!a->whole || a->at[param] < 0) return array_piece(a, u, param, false);
    return (struct array_span){0, values_here(a, u, param), a->at[param]};
}

void *array_at(const struct array *a, int64_t value)
{
    return a->buf.p ? (char *)a->buf.p + to_size(value) * dtype_bytes(a->row.dtype) : NULL;
}
