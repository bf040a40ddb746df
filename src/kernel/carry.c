/* SPDX-License-Identifier: Apache-2.0 */
/* Rows that a device has no kernel for, carried to the host: what the call touches is copied there, computed by a chain
 * of the cpu's, and what it writes is copied back. A family like any other, the last of its chain, so that lowering,
 * plans and printed tapes name these rows; it has no way for what nobody computes.
 *
 * Views may share memory (in place, a sum on top of itself), so not views are copied but the ranges of bytes that they
 * lie in, merged where they overlap: on the host they share it just so. Back go rows that are written, and nothing
 * between them. Cost: the bytes twice over the link, and two waits of the host. */
#include "base/mem.h"
#include "kernel/kernel.h"

enum { VIEWS = 3 * KERNEL_MAX_IN + 2 * KERNEL_MAX_OUT, ALIGNED = 64 };

struct range {
    const char *p;
    size_t bytes;
    char *room, *here; /* room: what was allocated; here: the bytes, as far into a line as they are there */
};
struct carried {
    struct range list[VIEWS];
    int n;
};

static size_t extent(const struct view *v)
{
    int64_t rows = view_rows(v), cols = view_cols(v);
    if (!v->p || !v->nd || rows <= 0 || cols <= 0) return 0;
    return to_size((rows - 1) * (v->nd > 1 ? v->stride : cols) + cols) * dtype_bytes(v->dtype);
}

static void add(struct carried *x, const char *p, size_t bytes)
{
    for (int i = 0; i < x->n; i++) {
        const struct range r = x->list[i];
        if (p >= r.p + r.bytes || r.p >= p + bytes) continue;
        const char *lo = p < r.p ? p : r.p, *hi = p + bytes > r.p + r.bytes ? p + bytes : r.p + r.bytes;
        x->list[i] = x->list[--x->n];
        add(x, lo, (size_t)(hi - lo)); /* it may reach others now */
        return;
    }
    x->list[x->n++] = (struct range){.p = p, .bytes = bytes};
}

static void add_views(struct carried *x, const struct view *v, int n)
{
    for (int i = 0; i < n; i++) {
        size_t bytes = extent(&v[i]);
        if (bytes) add(x, v[i].p, bytes);
    }
}

static void to_here(const struct carried *x, struct view *v, int n)
{
    for (int i = 0; i < n; i++) {
        const char *p = v[i].p;
        for (int k = 0; p && k < x->n; k++)
            if (p >= x->list[k].p && p < x->list[k].p + x->list[k].bytes) v[i].p = x->list[k].here + (p - x->list[k].p);
    }
}

static void bring(struct carried *x, struct stream *s)
{
    for (int i = 0; i < x->n; i++) {
        struct range *r = &x->list[i];
        r->room = xmalloc(r->bytes + 2 * ALIGNED);
        r->here = r->room + ALIGNED - (uintptr_t)r->room % ALIGNED + (uintptr_t)r->p % ALIGNED;
        stream_to_host(s, r->here, r->p, r->bytes);
    }
    stream_sync(s);
}

static void put_back(struct stream *s, const struct view *there, const struct view *here)
{
    int64_t rows = view_rows(there), cols = view_cols(there), step = there->nd > 1 ? there->stride : cols;
    size_t width = dtype_bytes(there->dtype);
    if (!extent(there)) return;
    if (step == cols) cols *= rows, rows = 1;
    for (int64_t r = 0; r < rows; r++)
        stream_from_host(s, (char *)there->p + to_size(r * step) * width, (char *)here->p + to_size(r * step) * width,
                         to_size(cols) * width);
}

static void put_all_back(const struct kernel_call *c, const struct kernel_call *here)
{
    if (c->phase == KERNEL_FWD) {
        for (int i = 0; i < c->n_in; i++)
            if (op_row(c->op)->changes_in >> i & 1) put_back(c->stream, &c->in[i], &here->in[i]);
        for (int i = 0; i < c->n_out; i++) put_back(c->stream, &c->out[i], &here->out[i]);
    } else {
        for (int i = 0; i < KERNEL_MAX_IN; i++) put_back(c->stream, &c->din[i], &here->din[i]);
    }
    stream_sync(c->stream);
}

static void carry(const struct kernel_table *host, const struct kernel_call *c)
{
    struct carried x = {.n = 0};
    struct stream threads = kernel_here(c->stream->dev->team);
    struct kernel_call here = *c;
    add_views(&x, c->in, KERNEL_MAX_IN);
    add_views(&x, c->out, KERNEL_MAX_OUT);
    add_views(&x, c->dout, KERNEL_MAX_OUT);
    add_views(&x, c->din, KERNEL_MAX_IN);
    add_views(&x, c->acc, KERNEL_MAX_IN);
    bring(&x, c->stream);
    to_here(&x, here.in, KERNEL_MAX_IN);
    to_here(&x, here.out, KERNEL_MAX_OUT);
    to_here(&x, here.dout, KERNEL_MAX_OUT);
    to_here(&x, here.din, KERNEL_MAX_IN);
    to_here(&x, here.acc, KERNEL_MAX_IN);
    here.stream = &threads;
    here.kernel = NULL;
    here.scratch_bytes = kernel_scratch(host, &here);
    char *scratch = xmalloc(here.scratch_bytes + ALIGNED);
    here.scratch = scratch + ALIGNED - (uintptr_t)scratch % ALIGNED;
    kernel_run(host, &here);
    put_all_back(c, &here);
    for (int i = 0; i < x.n; i++) xfree(x.list[i].room);
    xfree(scratch);
}

/* ---- the families: by which chain of the host's ---- */
static struct kernel_table host_table(const char *name, const struct kernel_call *c)
{
    struct kernel_table t;
    int n = c->stream && c->stream->dev && c->stream->dev->team ? team_size(c->stream->dev->team) : 1;
    int rc = kernel_table_init(&t, name, n, false, NULL);
    CHECK(!rc, "the host has no kernels %s", name);
    return t;
}

static struct depth_rule depth_of(const char *name, const struct kernel_call *c)
{
    struct kernel_table t = host_table(name, c);
    const struct kernel_slot *s = kernel_find(&t, c, NULL);
    return s && s->depth ? s->depth(c) : (struct depth_rule){0};
}

#define FAMILY(chain)                                                                                                  \
    static void carry_##chain(const struct kernel_call *c)                                                             \
    {                                                                                                                  \
        struct kernel_table t = host_table(#chain, c);                                                                 \
        carry(&t, c);                                                                                                  \
    }                                                                                                                  \
    static struct depth_rule depth_##chain(const struct kernel_call *c) { return depth_of(#chain, c); }                \
    static const struct kernel_slot slot_##chain = {.run = carry_##chain,                                              \
                                                    .way = "on the host: " #chain,                                     \
                                                    .depth = depth_##chain};                                           \
    static const struct kernel_slot *choose_##chain(const struct kernel_call *c)                                       \
    {                                                                                                                  \
        return kernel_computes(c) ? &slot_##chain : NULL;                                                              \
    }                                                                                                                  \
    const struct kernel_family kernel_family_carried_##chain =                                                         \
        {.name = "carried", .slot = {[0 ... OP_N - 1] = {[0 ... KERNEL_N_PHASES - 1] = {.choose = choose_##chain}}}};
FAMILY(ref)
FAMILY(auto)

bool kernel_is_carried(const struct kernel_slot *s) { return s == &slot_ref || s == &slot_auto; }
