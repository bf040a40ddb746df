/* SPDX-License-Identifier: Apache-2.0 */
/* Offsets are counted up once, since an array may leave parameters out. */
#include "state/array.h"

#include <string.h>

#include "base/mem.h"

bool array_covers(const struct array_row *row, const struct param *p) { return row->groups >> p->group & 1; }

int64_t array_numel(const struct array_row *row, const struct param *p)
{
    if (!array_covers(row, p)) return 0;
    return row->block == ARRAY_TENSOR ? row->each : p->numel;
}

static int64_t values_here(const struct array *a, const struct units *u, int i)
{
    const struct param *p = &u->table->p[i];
    if (a->row.block == ARRAY_TENSOR) return p->held ? a->row.each : 0;
    return a->whole ? p->held : u->piece[i].n;
}

int array_new(struct array *a, const struct array_row *row, const struct units *u, struct device *d, bool whole,
              bool here, struct err *e)
{
    CHECK(row->block == ARRAY_ELEMENT || row->each > 0, "%s: %lld values for each tensor", row->name,
          (long long)row->each);
    *a = (struct array){.row = *row, .whole = whole || row->block == ARRAY_TENSOR};
    a->at = xcalloc((size_t)u->table->n + 1, sizeof *a->at);
    for (int i = 0; i < u->table->n; i++) {
        bool has = array_covers(row, &u->table->p[i]);
        a->at[i] = has ? a->n : -1;
        if (has) a->n += values_here(a, u, i);
    }
    if (!here) return OK;
    int rc = row->dev && row->dev != d ? stream_new(&a->own, row->dev, row->name, e) : OK;
    return rc ? rc : buffer_new(&a->buf, row->dev ? row->dev : d, row->cat, to_size(a->n) * dtype_bytes(row->dtype), e);
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
    if (a->row.block == ARRAY_TENSOR)
        return (struct array_span){.n = once && !has_first(p, q) ? 0 : values_here(a, u, param), .at = a->at[param]};
    return (struct array_span){q->lo, once && !p->counted ? 0 : q->n, a->at[param] + (a->whole ? q->lo : 0)};
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
