/* SPDX-License-Identifier: Apache-2.0 */
/* A matrix is read once: codes are kept as its rows come by, scales when all of them are known (a float for each block
 * is kept meanwhile). Rejected: each rank reads its rows and the ranks tell each other their scales (a start that is
 * Local became Collective; what several ranks of a host read is read from its disk once). */
#include "state/packed.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "kernel/packed_rows.h"

enum { STRETCH = 1 << 20 /* numbers */ };

/* ---- which ---- */
static bool of_layer(const struct param *p)
{
    return p->nd == 2 && p->group == PARAM_MATRICES && p->layer >= 0 && !str_ends(p->name, ".router.weight");
}

/* Who asks, as the user named it, and what else there is to choose. */
struct asker {
    const char *key, *none;
};
static const struct asker base = {"adapter.base:", "adapter.base: none"},
                          weights = {"--weights", "whole weights (without --weights)"};

/* Every rank's columns are whole blocks; numbers of two columns are a byte. */
static int check_columns(const struct asker *who, const struct param *x, const struct mesh *m, enum packing p,
                         struct err *e)
{
    const int64_t block = packing_row(p)->block;
    const char *name = packing_row(p)->name;
    bool cut = false;
    if (x->n[1] % packing_row(p)->per_byte)
        return err_set(e, ERR_REQUEST,
                       "%s %s: two numbers are a byte, and %s has %lld columns, an odd number; choose %s", who->key,
                       name, x->name, (long long)x->n[1], who->none);
    for (int a = 0; a < x->layout.n_places; a++)
        cut |= x->layout.place[a].type == SPMD_S1 && x->layout.place[a].on.size > 1;
    for (int r = 0; cut && r < m->n_ranks; r++) {
        if (!layout_holds(&x->layout, r)) continue;
        struct region box = layout_box(&x->layout, r);
        if (box.lo[1] % block || (box.hi[1] % block && box.hi[1] != x->n[1]))
            return err_set(e, ERR_REQUEST,
                           "%s %s: blocks have %lld columns, and rank %d has columns %lld to %lld of the %lld of %s, "
                           "which are cut over parallel.tp (of experts parallel.etp); choose %s",
                           who->key, name, (long long)block, r, (long long)box.lo[1], (long long)box.hi[1],
                           (long long)x->n[1], x->name, who->none);
    }
    return OK;
}

int packed_mark(struct param_table *t, enum packing p, struct err *e)
{
    int n = 0;
    for (int i = 0; i < t->n && p != PACKING_NONE; i++) {
        struct param *x = &t->p[i];
        if (!x->frozen || !of_layer(x)) continue;
        int rc = check_columns(&base, x, &t->mesh, p, e);
        if (rc) return rc;
        x->packed = true;
        n++;
    }
    t->packing = n ? p : PACKING_NONE;
    if (n || p == PACKING_NONE) return OK;
    return err_set(e, ERR_REQUEST, "adapter.base: %s: no matrix of a layer is frozen; choose none",
                   packing_row(p)->name);
}

int packed_mark_weights(struct param_table *t, enum packing p, struct err *e)
{
    for (int i = 0; i < t->n && p != PACKING_NONE; i++) {
        struct param *x = &t->p[i];
        bool head = p == PACKING_INT8 && !strcmp(x->name, "head.weight");
        if (!head && !of_layer(x)) continue;
        int rc = check_columns(&weights, x, &t->mesh, p, e);
        if (rc) return rc;
        x->packed = x->frozen = true;
        x->stepped = false;
        x->group = PARAM_MATRICES;
    }
    t->packing = p;
    return OK;
}

int64_t packed_bytes(enum packing p, const struct param *x)
{
    int64_t rows = x->n[0], cols = x->n[1];
    return rows * (packing_row_bytes(p, cols) + packing_row_blocks(p, cols)) +
           packing_groups(p, rows, cols) * (int64_t)sizeof(float);
}

int packed_arrays(enum packing p, struct array_row rows[PACKED_ARRAYS])
{
    if (p == PACKING_NONE) return 0;
    const struct packing_row *r = packing_row(p);
    struct array_row row = {.cat = MEM_PARAM,
                            .shared_from = 3,
                            .saved = true,
                            .of_frozen = true,
                            .packed = true,
                            .groups = 1u << PARAM_MATRICES,
                            .dtype = DT_U8,
                            .block = ARRAY_ROW_BLOCK};
    for (int i = 0; i < PACKED_ARRAYS; i++) rows[i] = row;
    rows[PACKED_CODES].name = "base_codes";
    rows[PACKED_CODES].title = "codes of the base";
    rows[PACKED_CODES].each = r->per_byte;
    rows[PACKED_SCALES].name = "base_scales";
    rows[PACKED_SCALES].title = "scales of the base";
    rows[PACKED_SCALES].each = r->block;
    rows[PACKED_GROUPS].name = "base_groups";
    rows[PACKED_GROUPS].title = "scales of the base's scales";
    rows[PACKED_GROUPS].dtype = DT_F32;
    rows[PACKED_GROUPS].block = ARRAY_GROUPS;
    rows[PACKED_GROUPS].each = (int64_t)p;
    rows[PACKED_GROUPS].shared_from = ARRAY_NEVER_SHARED;
    return r->grouped ? PACKED_ARRAYS : PACKED_GROUPS;
}

/* ---- what is held ---- */
/* A box of rows of what this rank holds, and where its bytes are. */
struct held {
    struct region box;
    int64_t rows, cols, blocks; /* blocks of a row of the box */
    int64_t first, row_blocks;  /* of the whole matrix */
};

static const struct array *array_of(const struct store *s, int which) { return &s->array[s->packed + which]; }

static struct held held_of(const struct store *s, int param)
{
    const struct param *p = &s->table->p[param];
    const enum packing kind = s->table->packing;
    bool whole = array_of(s, PACKED_CODES)->whole;
    int64_t lo = whole ? 0 : s->units.piece[param].lo, n = whole ? p->held : s->units.piece[param].n;
    struct held h = {.row_blocks = packing_row_blocks(kind, p->n[1])};
    if (!n) return h;
    h.box = param_rows(p, lo / p->ln[1], n / p->ln[1]);
    h.rows = h.box.hi[0] - h.box.lo[0];
    h.cols = h.box.hi[1] - h.box.lo[1];
    h.blocks = packing_row_blocks(kind, h.cols);
    h.first = h.box.lo[0] * h.row_blocks + h.box.lo[1] / packing_row(kind)->block;
    return h;
}

static void *held_at(const struct store *s, int which, int param)
{
    const struct array *a = array_of(s, which);
    return array_at(a, array_held(a, &s->units, param).at);
}

void packed_places(const struct store *s, int param, void *out[PACKED_ARRAYS])
{
    bool grouped = packing_row(s->table->packing)->grouped;
    for (int i = 0; i < PACKED_ARRAYS; i++) out[i] = i < PACKED_GROUPS || grouped ? held_at(s, i, param) : NULL;
}

void packed_bring(const struct store *s, struct stream *st, int param, void *to)
{
    const struct held h = held_of(s, param);
    const struct param *p = &s->table->p[param];
    const enum packing kind = s->table->packing;
    struct packed_args a = {.packing = kind,
                            .rows = h.rows,
                            .cols = h.cols,
                            .first = h.first,
                            .row_blocks = h.row_blocks,
                            .codes = held_at(s, PACKED_CODES, param),
                            .scales = held_at(s, PACKED_SCALES, param),
                            .n_groups = packing_groups(kind, p->n[0], p->n[1]),
                            .x = to,
                            .t = s->dtype};
    if (a.n_groups) a.groups = held_at(s, PACKED_GROUPS, param);
    packed_unpack(st, &a);
}

/* ---- packing ---- */
struct filling {
    struct store *s;
    struct stream *st;
    int param;
    packed_read_fn *read;
    void *ctx;
    float *x;       /* some rows, as they are read */
    float *scale;   /* of all blocks */
    uint8_t *codes; /* of those rows: a code each, then two a byte */
};

static int check_finite(const struct param *p, const float *x, int64_t row, int64_t n, struct err *e)
{
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(x[i]))
            return err_set(e, ERR_REQUEST,
                           "adapter.base: %s holds a number that is not finite (row %lld, column %lld): no block of "
                           "few "
                           "bits has it; choose other weights, or adapter.base: none",
                           p->name, (long long)(row + i / p->n[1]), (long long)(i % p->n[1]));
    return OK;
}

/* Of rows [row, row + n), just read. codes: NULL, scales only. */
static void encode_rows(struct filling *f, int64_t row, int64_t n)
{
    const struct param *p = &f->s->table->p[f->param];
    const enum packing kind = f->s->table->packing;
    const int64_t block = packing_row(kind)->block, cols = p->n[1], blocks = packing_row_blocks(kind, cols);
    for (int64_t r = 0; r < n; r++)
        for (int64_t k = 0; k < blocks; k++) {
            int64_t at = k * block, m = cols - at < block ? cols - at : block;
            f->scale[(row + r) * blocks + k] = packing_encode(kind, f->x + r * cols + at, m, f->codes + r * cols + at);
        }
}

/* Codes of rows that are held here to where they are kept. */
static void keep_codes(struct filling *f, const struct held *h, int64_t row, int64_t n)
{
    const struct param *p = &f->s->table->p[f->param];
    struct array *a = &f->s->array[f->s->packed + PACKED_CODES];
    int64_t lo = row > h->box.lo[0] ? row : h->box.lo[0], hi = row + n < h->box.hi[0] ? row + n : h->box.hi[0];
    const enum packing kind = f->s->table->packing;
    int64_t bytes = packing_row_bytes(kind, h->cols), at = 0;
    if (lo >= hi) return;
    for (int64_t r = lo; r < hi; r++) {
        const uint8_t *from = f->codes + (r - row) * p->n[1] + h->box.lo[1];
        if (packing_row(kind)->per_byte == 1) {
            memmove(f->codes + at, from, to_size(h->cols));
            at += h->cols;
            continue;
        }
        for (int64_t c = 0; c < h->cols; c += 2) {
            uint8_t first = from[c], second = c + 1 < h->cols ? from[c + 1] : 0;
            f->codes[at++] = (uint8_t)(first << 4 | second);
        }
    }
    device_from_host(f->st, &a->buf, to_size(array_held(a, &f->s->units, f->param).at + (lo - h->box.lo[0]) * bytes),
                     f->codes, to_size((hi - lo) * bytes));
    stream_sync(f->st);
}

static int pass(struct filling *f, const struct held *h, int64_t first, int64_t end, bool codes, struct err *e)
{
    const struct param *p = &f->s->table->p[f->param];
    int64_t step = STRETCH / p->n[1] > 0 ? STRETCH / p->n[1] : 1;
    for (int64_t row = first; row < end; row += step) {
        int64_t n = end - row < step ? end - row : step;
        int rc = f->read(f->ctx, row, n, f->x, e);
        if (!rc) rc = check_finite(p, f->x, row, n * p->n[1], e);
        if (rc) return rc;
        encode_rows(f, row, n);
        if (codes) keep_codes(f, h, row, n);
    }
    return OK;
}

static void keep_scales(struct filling *f, const struct held *h)
{
    const struct param *p = &f->s->table->p[f->param];
    const enum packing kind = f->s->table->packing;
    struct array *a = &f->s->array[f->s->packed + PACKED_SCALES];
    int64_t all = p->n[0] * h->row_blocks, n_groups = packing_groups(kind, p->n[0], p->n[1]), at = 0;
    uint8_t *codes = xmalloc(to_size(all) + 1);
    float *groups = xmalloc(to_size(n_groups + 1) * sizeof *groups);
    packing_encode_scales(kind, f->scale, all, codes, groups);
    for (int64_t r = 0; r < h->rows; r++)
        for (int64_t k = 0; k < h->blocks; k++) codes[at++] = codes[h->first + r * h->row_blocks + k];
    device_from_host(f->st, &a->buf, to_size(array_held(a, &f->s->units, f->param).at), codes, to_size(at));
    if (n_groups) {
        struct array *g = &f->s->array[f->s->packed + PACKED_GROUPS];
        device_from_host(f->st, &g->buf, to_size(array_held(g, &f->s->units, f->param).at) * sizeof *groups, groups,
                         to_size(n_groups) * sizeof *groups);
    }
    stream_sync(f->st);
    xfree(groups);
    xfree(codes);
}

int packed_fill(struct store *s, struct stream *st, int param, packed_read_fn *read, void *ctx, struct err *e)
{
    const struct param *p = &s->table->p[param];
    const struct held h = held_of(s, param);
    if (!p->held || s->dev->counts_only) return OK;
    int64_t room = p->n[1] > STRETCH ? p->n[1] : STRETCH;
    struct filling f = {.s = s, .st = st, .param = param, .read = read, .ctx = ctx};
    f.x = xmalloc(to_size(room) * sizeof *f.x);
    f.codes = xmalloc(to_size(room));
    f.scale = xcalloc(to_size(p->n[0] * h.row_blocks) + 1, sizeof *f.scale);
    bool all = packing_row(s->table->packing)->grouped;
    int rc = pass(&f, &h, all ? 0 : h.box.lo[0], all ? p->n[0] : h.box.hi[0], true, e);
    if (!rc) keep_scales(&f, &h);
    xfree(f.scale);
    xfree(f.codes);
    xfree(f.x);
    return rc;
}

/* ---- initial values ---- */
struct initial {
    struct param whole;
    uint64_t seed;
    struct team *team;
};

static int read_initial(void *ctx, int64_t first, int64_t n, float *out, struct err *e)
{
    const struct initial *x = ctx;
    (void)e;
    param_init_fill(&x->whole, x->seed, first * x->whole.n[1], n * x->whole.n[1], out, x->team);
    return OK;
}

void packed_init(struct store *s, struct stream *st, uint64_t seed)
{
    for (int i = 0; i < s->table->n; i++) {
        struct initial x = {.whole = s->table->p[i], .seed = seed, .team = s->dev->team};
        if (!x.whole.packed) continue;
        memset(x.whole.lo, 0, sizeof x.whole.lo);
        memcpy(x.whole.ln, x.whole.n, sizeof x.whole.ln);
        x.whole.held = x.whole.numel;
        struct err e = {0};
        int rc = packed_fill(s, st, i, read_initial, &x, &e);
        CHECK(!rc, "%s", e.text);
    }
}
