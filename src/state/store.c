/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers of parameters, one allocation per kind. Offsets come from the table and the units; nothing is padded, so that
 * bytes are count times width and fused matrices lie next to each other. */
#include "state/store.h"

#include <string.h>

#include "base/mem.h"

static bool alone(const struct store *s) { return s->units.n_ranks == 1 && s->units.n_expert_ranks == 1; }
bool store_param_is_whole(const struct store *s) { return alone(s) || s->zero < 3; }
bool store_grad_is_whole(const struct store *s) { return alone(s) || s->zero < 2 || (s->many && s->once); }
bool store_state_is_whole(const struct store *s) { return alone(s) || s->zero < 1; }

bool store_reduces_each(const struct store *s)
{
    return !alone(s) && (!store_grad_is_whole(s) || (s->many && !s->once));
}

bool store_grad_is_temporary(const struct store *s)
{
    return s->grad_dtype != DT_F32 || store_reduces_each(s);
}

static size_t bytes_of(const struct store *s, bool whole, size_t width)
{
    return to_size(whole ? s->table->held : s->units.shard_numel) * width;
}

int store_new_shared(struct store *s, const struct param_table *t, struct device *d, const struct store_config *c,
                     struct err *e)
{
    CHECK(c->n_moments >= 0 && c->n_moments <= STORE_MAX_MOMENTS, "%d moments", c->n_moments);
    memset(s, 0, sizeof *s);
    *s = (struct store){.table = t, .dev = d, .dtype = c->dtype, .n_moments = c->training && !c->stateless ? c->n_moments : 0,
                        .zero = c->zero, .has_grad = c->training, .grad_dtype = c->grad, .many = c->many, .once = c->once};
    units_init_experts(&s->units, t, c->shard_rank, c->n_shards, c->expert_rank, c->n_expert_ranks > 0 ? c->n_expert_ranks : 1);
    bool whole = store_state_is_whole(s);
    int rc = buffer_new(&s->param, d, MEM_PARAM, bytes_of(s, store_param_is_whole(s), dtype_bytes(c->dtype)), e);
    if (!rc && c->training && !c->stateless && c->dtype != DT_F32) rc = buffer_new(&s->master, d, MEM_MASTER, bytes_of(s, whole, 4), e);
    if (!rc && c->training) {
        rc = buffer_new(&s->grad, d, MEM_GRAD, bytes_of(s, store_grad_is_whole(s), dtype_bytes(c->grad)), e);
        if (!rc && c->grad != DT_F32) rc = buffer_new(&s->widen, d, MEM_SCRATCH, STORE_WIDEN * sizeof(float), e);
    }
    for (int i = 0; !rc && i < s->n_moments; i++)
        rc = buffer_new(&s->moment[i], d, MEM_OPTIMIZER, bytes_of(s, whole, 4), e);
    if (rc) store_free(s);
    return rc;
}

int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              int n_moments, struct err *e)
{
    return store_new_shared(
        s, t, d, &(struct store_config){.dtype = dtype, .training = training, .n_moments = n_moments, .n_shards = 1}, e);
}

void store_free(struct store *s)
{
    buffer_free(&s->param);
    buffer_free(&s->master);
    buffer_free(&s->grad);
    buffer_free(&s->widen);
    for (int i = 0; i < STORE_MAX_MOMENTS; i++) buffer_free(&s->moment[i]);
    units_fini(&s->units);
    memset(s, 0, sizeof *s);
}

/* ---- addresses ---- */
const struct buffer *store_master(const struct store *s)
{
    return s->master.dev ? &s->master : &s->param;
}

static void *at(const struct buffer *b, int64_t element, size_t width)
{
    return b->p ? (char *)b->p + to_size(element) * width : NULL;
}

/* Where element `lo` of a parameter's piece lies in a buffer that is whole or a shard. */
static int64_t piece_at(const struct store *s, int param, bool whole)
{
    const struct piece *q = &s->units.piece[param];
    return whole ? s->table->p[param].offset + q->lo : q->offset;
}

void *store_param_ptr(const struct store *s, int param)
{
    CHECK(store_param_is_whole(s), "the parameters are shared out");
    return at(&s->param, s->table->p[param].offset, dtype_bytes(s->dtype));
}

void *store_grad_ptr(const struct store *s, int param)
{
    CHECK(store_grad_is_whole(s), "the gradients are shared out");
    return at(&s->grad, s->table->p[param].offset, dtype_bytes(s->grad_dtype));
}

void *store_piece_param(const struct store *s, int param)
{
    return at(&s->param, piece_at(s, param, store_param_is_whole(s)), dtype_bytes(s->dtype));
}

void *store_piece_grad(const struct store *s, int param)
{
    return at(&s->grad, piece_at(s, param, store_grad_is_whole(s)), dtype_bytes(s->grad_dtype));
}

static const struct buffer *state_buffer(const struct store *s, int what)
{
    CHECK(what >= 0 && what <= s->n_moments, "there is no moment %d", what);
    return what ? &s->moment[what - 1] : store_master(s);
}

/* Parameters that are their own master lie as parameters do, moments and masters as state does. */
static bool state_lies_whole(const struct store *s, int what)
{
    return what == STORE_MASTER && !s->master.dev ? store_param_is_whole(s) : store_state_is_whole(s);
}

static size_t state_width(const struct store *s, int what)
{
    return what == STORE_MASTER && !s->master.dev ? dtype_bytes(s->dtype) : 4;
}

float *store_piece_state(const struct store *s, int param, int what)
{
    return at(state_buffer(s, what), piece_at(s, param, state_lies_whole(s, what)), 4);
}

int64_t store_held(const struct store *s, int param, int64_t *lo)
{
    const struct piece *q = &s->units.piece[param];
    bool whole = store_state_is_whole(s);
    if (lo) *lo = whole ? 0 : q->lo;
    return whole ? s->table->p[param].held : q->n;
}

static size_t held_at(const struct store *s, int param, int what)
{
    int64_t i = store_state_is_whole(s) ? s->table->p[param].offset : piece_at(s, param, state_lies_whole(s, what));
    return to_size(i) * state_width(s, what);
}

/* ---- values ---- */
/* Elements [lo, lo + n) of a parameter, which this rank holds, from fp32 on the host to master and compute copy. */
static void write_values(struct store *s, const struct kernel_table *k, struct stream *st, int param, int64_t lo,
                         int64_t n, const float *in, void *narrow)
{
    int64_t held_lo;
    store_held(s, param, &held_lo);
    size_t width = dtype_bytes(s->dtype);
    if (s->master.dev)
        device_from_host(st, &s->master, held_at(s, param, STORE_MASTER) + to_size(lo - held_lo) * 4, in, to_size(n) * 4);
    size_t to = to_size(piece_at(s, param, store_param_is_whole(s)) + lo - s->units.piece[param].lo) * width;
    if (s->dtype == DT_F32) {
        device_from_host(st, &s->param, to, in, to_size(n) * 4);
        return;
    }
    k->host->cast(s->dev->team, narrow, s->dtype, in, DT_F32, n);
    device_from_host(st, &s->param, to, narrow, to_size(n) * width);
}

/* Every rank fills what it holds from the counter: nothing travels. Whole compute copies get all values. */
void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed)
{
    if (s->dev->counts_only) return;
    enum { CHUNK = 1 << 20 };
    float *wide = xmalloc(CHUNK * sizeof *wide);
    void *narrow = xmalloc(CHUNK * 4);
    for (int i = 0; i < s->table->n; i++) {
        int64_t lo, n = store_held(s, i, &lo), first = lo, end = lo + n;
        if (store_param_is_whole(s)) first = 0, end = s->table->p[i].held;
        for (int64_t a = first; a < end; a += CHUNK) {
            int64_t m = end - a < CHUNK ? end - a : CHUNK;
            param_init_fill(&s->table->p[i], seed, a, m, wide, s->dev->team);
            int64_t from = a > lo ? a : lo, to = a + m < lo + n ? a + m : lo + n;
            if (s->master.dev && from < to)
                device_from_host(st, &s->master, held_at(s, i, STORE_MASTER) + to_size(from - lo) * 4, wide + (from - a),
                                 to_size(to - from) * 4);
            size_t width = dtype_bytes(s->dtype);
            size_t place = to_size(piece_at(s, i, store_param_is_whole(s)) + a - s->units.piece[i].lo) * width;
            if (s->dtype != DT_F32) k->host->cast(s->dev->team, narrow, s->dtype, wide, DT_F32, m);
            device_from_host(st, &s->param, place, s->dtype == DT_F32 ? (void *)wide : narrow, to_size(m) * width);
        }
    }
    for (int i = 0; i < s->n_moments; i++) device_zero(st, &s->moment[i], 0, s->moment[i].bytes);
    stream_sync(st);
    xfree(wide);
    xfree(narrow);
}

void store_read(const struct store *s, struct stream *st, int param, int what, float *out)
{
    int64_t n = store_held(s, param, NULL);
    size_t width = state_width(s, what);
    const struct buffer *b = state_buffer(s, what);
    if (width == 4) {
        device_to_host(st, out, b, held_at(s, param, what), to_size(n) * 4);
        stream_sync(st);
        return;
    }
    void *narrow = xmalloc(to_size(n) * width); /* a compute copy without master */
    device_to_host(st, narrow, b, held_at(s, param, what), to_size(n) * width);
    stream_sync(st);
    for (int64_t i = 0; i < n; i++)
        out[i] = s->dtype == DT_BF16 ? bf16_to_f32(((bf16 *)narrow)[i]) : f16_to_f32(((uint16_t *)narrow)[i]);
    xfree(narrow);
}

void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int what,
                 const float *in)
{
    int64_t lo, n = store_held(s, param, &lo);
    CHECK(what >= 0 && what <= s->n_moments, "there is no moment %d", what);
    if (what != STORE_MASTER) {
        device_from_host(st, &s->moment[what - 1], held_at(s, param, what), in, to_size(n) * 4);
    } else {
        void *narrow = xmalloc(to_size(n) * 4 + 1);
        write_values(s, k, st, param, lo, n, in, narrow);
        stream_sync(st);
        xfree(narrow);
    }
    stream_sync(st);
}
