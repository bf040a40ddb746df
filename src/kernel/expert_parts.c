/* SPDX-License-Identifier: Apache-2.0 */
/* One walk over the parts of a buffer: of each its first row, how many rows, whose they are. How many is known only
 * when it runs. */
#include "kernel/expert_parts.h"

#include <string.h>

/* ---- which parts ---- */
struct part {
    int64_t index, expert, batch, first, rows; /* rows [first, first + rows) of the buffer */
    int64_t blocks;                            /* of the parts before it */
};

static int64_t experts_of(const struct parts_attrs *at, const struct view *rows, int64_t x_rows)
{
    return at->each ? x_rows / at->each : view_cols(rows);
}

/* Microbatches that an expert's rows are from. */
static int64_t batches_of(const struct parts_attrs *at)
{
    return at->sources ? at->sources / (at->together ? at->together : 1) : 1;
}

int64_t parts_count(const struct parts_attrs *at, const struct view *rows, int64_t x_rows)
{
    return experts_of(at, rows, x_rows) * batches_of(at);
}

int64_t parts_blocks(const struct parts_attrs *at, const struct view *rows, int64_t x_rows, int block_rows)
{
    if (block_rows == 1) return x_rows;
    if (at->each) return x_rows / at->each * ((at->each + block_rows - 1) / block_rows);
    return x_rows / block_rows + parts_count(at, rows, x_rows);
}

static int64_t rows_of(const struct parts_attrs *at, const struct view *rows, const struct part *p)
{
    const int64_t n = at->sources && at->together ? at->together : 1;
    int64_t all = 0;
    if (at->each) return at->each;
    for (int64_t k = 0; k < n; k++) all += ((const int32_t *)rows->p)[(p->batch * n + k) * rows->stride + p->expert];
    return all;
}

/* The first part, then the next one; false: there is none. */
static bool part_at(struct part *p, const struct parts_attrs *at, const struct view *rows, int64_t x_rows,
                    int block_rows)
{
    const int64_t n = batches_of(at);
    if (p->index >= parts_count(at, rows, x_rows)) return false;
    p->expert = p->index / n;
    p->batch = p->index % n;
    if (p->index) p->first += p->rows;
    if (p->index && block_rows) p->blocks += (p->rows + block_rows - 1) / block_rows;
    p->rows = rows_of(at, rows, p);
    CHECK(p->rows >= 0 && p->first + p->rows <= x_rows, "part %lld has rows %lld+%lld of %lld", (long long)p->index,
          (long long)p->first, (long long)p->rows, (long long)x_rows);
    return true;
}

/* ---- views ---- */
static struct view rows_from(const struct view *v, int64_t first, int64_t n)
{
    struct view part = *v;
    if (!v->nd) return part;
    if (v->p) part.p = (char *)v->p + first * v->stride * (int64_t)dtype_bytes(v->dtype);
    part.n[0] = n;
    return part;
}

static struct view number(const struct view *v, int64_t i)
{
    struct view one = rows_from(v, i, 1);
    one.nd = one.nd ? 1 : 0;
    one.n[1] = 0;
    one.stride = one.nd;
    return one;
}

/* ---- rounding ---- */
static const struct parts_attrs *parts_of(const struct kernel_call *c)
{
    return c->op == OP_AMAX_PARTS ? &at_amax_parts(&c->at)->parts : &at_quantise_parts(&c->at)->parts;
}

/* Rows are counted from a multiple of 16, where groups begin, and 2^31 rows of tokens and experts are few. */
static int64_t counted_from(const struct kernel_call *c, const struct part *p)
{
    const struct parts_attrs *at = parts_of(c);
    int64_t token = (int64_t)c->step->first_token + (at->sources ? p->batch - at->source : 0) * at->apart;
    return (token / at->tokens * at->experts + at->expert + p->expert) * ((at->tokens + 15) / 16 * 16);
}

static struct kernel_call rounding(const struct kernel_call *c, const struct part *p)
{
    struct kernel_call one = *c;
    bool amax = c->op == OP_AMAX_PARTS;
    one.kernel = NULL;
    one.op = amax ? OP_AMAX : OP_QUANTISE;
    one.n_in = amax ? 1 : c->in[1].nd ? 2 : 1;
    for (int i = 1; i < KERNEL_MAX_IN; i++) one.in[i] = (struct view){0};
    one.in[0] = rows_from(&c->in[0], p->first, p->rows);
    if (amax) {
        one.at = attrs_amax(at_amax_parts(&c->at)->amax);
        one.out[0] = number(&c->out[0], p->index);
        return one;
    }
    struct quantise_attrs at = at_quantise_parts(&c->at)->quantise;
    if (at.chance && c->step) at.first_row = counted_from(c, p);
    at.tokens = false;
    one.at = attrs_quantise(at);
    if (c->in[1].nd) one.in[1] = number(&c->in[1], p->index);
    one.out[0] = rows_from(&c->out[0], p->first, p->rows);
    bool blocks = at.scaling == SCALING_BLOCK;
    if (!blocks) one.out[1] = number(&c->out[1], p->index);
    else one.out[1] = rows_from(&c->out[1], p->blocks, (p->rows + at.rows - 1) / at.rows);
    return one;
}

void parts_visit(const struct kernel_call *c, parts_visit_fn *fn, void *arg)
{
    const bool amax = c->op == OP_AMAX_PARTS;
    const struct view *rows = &c->in[amax ? 1 : 2];
    const int block = amax ? 0 : at_quantise_parts(&c->at)->quantise.rows;
    for (struct part p = {0}; part_at(&p, parts_of(c), rows, c->in[0].n[0], block); p.index++) {
        struct kernel_call one = rounding(c, &p);
        if (p.rows) fn(&one, p.expert, arg);
        else if (amax && !at_amax_parts(&c->at)->amax.more) *(float *)one.out[0].p = 0;
    }
}

struct runs {
    kernel_fn *fn;
};

static void run_one(const struct kernel_call *one, int64_t expert, void *arg)
{
    (void)expert;
    ((const struct runs *)arg)->fn(one);
}

void parts_each(const struct kernel_call *c, kernel_fn *fn)
{
    struct runs r = {fn};
    parts_visit(c, run_one, &r);
}

struct kernel_call parts_whole(const struct kernel_call *c)
{
    const struct part all = {.rows = c->in[0].n[0]};
    struct kernel_call one = rounding(c, &all);
    return one;
}

/* ---- products ---- */
static struct view scale_of(const struct kernel_call *c, int i, const struct scale_blocks *b, int64_t index,
                            int64_t blocks, int64_t rows)
{
    if (i >= c->n_in || !c->in[i].nd) return (struct view){0};
    if (!b->rows) return number(&c->in[i], index);
    return rows_from(&c->in[i], blocks, (rows + b->rows - 1) / b->rows);
}

/* Blocks of x and dy are alike where both are counted: 1 or the depth of a sum. */
static int64_t blocks_before(const struct part *p, const struct scale_blocks *b, int64_t counted)
{
    return b->rows == 1 ? p->first : counted;
}

static struct kernel_call product(const struct kernel_call *c, const struct part *p, int64_t out_features, bool more)
{
    const struct grouped_scaled_attrs *at = at_grouped_scaled(&c->at);
    const bool w = c->phase == KERNEL_BWD_W;
    const int64_t first = p->expert * out_features;
    struct kernel_call one = *c;
    one.kernel = NULL;
    one.op = OP_LINEAR_SCALED;
    one.at = ATTRS(linear_scaled, .x = at->x, .w = at->w, .dy = at->dy);
    one.n_in = KERNEL_MAX_IN;
    one.in[0] = rows_from(&c->in[0], p->first, p->rows);
    one.in[1] = rows_from(&c->in[1], first, out_features);
    one.in[2] = (struct view){0};
    one.in[3] = scale_of(c, 3, &at->x, p->index, blocks_before(p, &at->x, p->blocks), p->rows);
    const int64_t of_expert = at->w.rows ? (out_features + at->w.rows - 1) / at->w.rows : 0;
    one.in[4] = scale_of(c, 4, &at->w, p->expert, p->expert * of_expert, out_features);
    one.in[5] = scale_of(c, 5, &at->dy, p->index, blocks_before(p, &at->dy, p->blocks), p->rows);
    one.out[0] = rows_from(&c->out[0], p->first, p->rows);
    one.dout[0] = rows_from(&c->dout[0], p->first, p->rows);
    one.din[0] = w ? (struct view){0} : rows_from(&c->din[0], p->first, p->rows);
    one.acc[0] = w ? (struct view){0} : rows_from(&c->acc[0], p->first, p->rows);
    one.din[1] = rows_from(&c->din[1], first, out_features);
    one.acc[1] = rows_from(more ? &c->din[1] : &c->acc[1], first, out_features);
    return one;
}

/* Rows [first, end) of a result get nothing: acc, or zeros. */
static void nothing(const struct view *to, const struct view *acc, int64_t first, int64_t end)
{
    size_t bytes = (size_t)view_cols(to) * dtype_bytes(to->dtype);
    for (int64_t r = first; r < end; r++) {
        char *p = rows_from(to, r, 1).p;
        if (!acc || !acc->p) memset(p, 0, bytes);
        else if (acc->p != to->p) memcpy(p, rows_from(acc, r, 1).p, bytes);
    }
}

void parts_products(const struct kernel_call *c, parts_product_fn *fn, const void *arg)
{
    const struct grouped_scaled_attrs *at = at_grouped_scaled(&c->at);
    const bool weights = c->phase == KERNEL_BWD_W;
    const struct view *to = weights ? &c->din[1] : c->phase == KERNEL_FWD ? &c->out[0] : &c->din[0];
    const struct view *acc = weights ? &c->acc[1] : c->phase == KERNEL_FWD ? NULL : &c->acc[0];
    const struct view *rows = &c->in[2];
    const int64_t n = c->in[1].n[0] / view_cols(rows), x_rows = c->in[0].n[0];
    const int block = weights ? at->x.rows > 1 ? at->x.rows : at->dy.rows : 0;
    const bool rounds = !at->parts.sources && rows->nd == 2;
    int64_t end = 0, made = -1; /* the last expert whose dw was begun */
    if (!to->p) return;
    for (struct part p = {0}; part_at(&p, &at->parts, rows, x_rows, block); p.index++) {
        struct kernel_call one = product(c, &p, n, made == p.expert);
        end = p.first + p.rows;
        bool last = p.batch + 1 >= batches_of(&at->parts);
        if (p.rows) {
            fn(&one, rounds ? ((const int32_t *)rows->p)[rows->stride + p.expert] : p.rows, arg);
            made = p.expert;
        } else if (weights && last && made != p.expert) {
            nothing(to, acc, p.expert * n, (p.expert + 1) * n);
        }
    }
    if (!weights) nothing(to, acc, end, x_rows);
}

struct kernel_call parts_product_whole(const struct kernel_call *c)
{
    const struct part all = {.rows = c->in[0].n[0]};
    return product(c, &all, c->in[1].n[0] / view_cols(&c->in[2]), false);
}
