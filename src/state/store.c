/* Buffers of parameters, one allocation per kind. Offsets come from the table; nothing is padded, so that bytes are
 * count times width and fused matrices lie next to each other. */
#include "state/store.h"

#include <string.h>

#include "base/mem.h"

static size_t all(const struct store *s, size_t width)
{
    return to_size(s->table->numel) * width;
}

int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              int n_moments, struct err *e)
{
    CHECK(n_moments >= 0 && n_moments <= STORE_MAX_MOMENTS, "%d moments", n_moments);
    memset(s, 0, sizeof *s);
    *s = (struct store){.table = t, .dev = d, .dtype = dtype, .n_moments = training ? n_moments : 0,
                        .has_grad = training};
    int rc = buffer_new(&s->param, d, MEM_PARAM, all(s, dtype_bytes(dtype)), e);
    if (!rc && training && dtype != DT_F32) rc = buffer_new(&s->master, d, MEM_MASTER, all(s, 4), e);
    if (!rc && training) rc = buffer_new(&s->grad, d, MEM_GRAD, all(s, 4), e);
    for (int i = 0; !rc && i < s->n_moments; i++) rc = buffer_new(&s->moment[i], d, MEM_OPTIMIZER, all(s, 4), e);
    if (rc) store_free(s);
    return rc;
}

void store_free(struct store *s)
{
    buffer_free(&s->param);
    buffer_free(&s->master);
    buffer_free(&s->grad);
    for (int i = 0; i < STORE_MAX_MOMENTS; i++) buffer_free(&s->moment[i]);
    memset(s, 0, sizeof *s);
}

const struct buffer *store_master(const struct store *s)
{
    return s->master.dev ? &s->master : &s->param;
}

static void *at(const struct buffer *b, int64_t element, size_t width)
{
    return b->p ? (char *)b->p + to_size(element) * width : NULL;
}

void *store_param_ptr(const struct store *s, int param)
{
    return at(&s->param, s->table->p[param].offset, dtype_bytes(s->dtype));
}

void *store_grad_ptr(const struct store *s, int param)
{
    return at(&s->grad, s->table->p[param].offset, 4);
}

/* Elements [lo, lo + n) of a parameter from fp32 on the host to the compute copy, and the master where there is one. */
static void write_values(struct store *s, const struct kernel_table *k, struct stream *st, int param, int64_t lo,
                         int64_t n, const float *in, void *narrow)
{
    int64_t off = s->table->p[param].offset + lo;
    if (s->master.dev) device_from_host(st, &s->master, to_size(off) * 4, in, to_size(n) * 4);
    if (s->dtype == DT_F32) {
        device_from_host(st, &s->param, to_size(off) * 4, in, to_size(n) * 4);
        return;
    }
    size_t width = dtype_bytes(s->dtype);
    k->flat->cast(s->dev->team, narrow, s->dtype, in, DT_F32, n);
    device_from_host(st, &s->param, to_size(off) * width, narrow, to_size(n) * width);
}

void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed)
{
    if (s->dev->counts_only) return;
    enum { CHUNK = 1 << 20 };
    float *wide = xmalloc(CHUNK * sizeof *wide);
    void *narrow = xmalloc(CHUNK * 4);
    for (int i = 0; i < s->table->n; i++)
        for (int64_t lo = 0; lo < s->table->p[i].numel; lo += CHUNK) {
            int64_t left = s->table->p[i].numel - lo, n = left < CHUNK ? left : CHUNK;
            param_init_fill(&s->table->p[i], seed, lo, n, wide, s->dev->team);
            write_values(s, k, st, i, lo, n, wide, narrow);
        }
    for (int i = 0; i < s->n_moments; i++) device_zero(st, &s->moment[i], 0, s->moment[i].bytes);
    stream_sync(st);
    xfree(wide);
    xfree(narrow);
}

void store_read(const struct store *s, struct stream *st, int param, int what, float *out)
{
    const struct param *p = &s->table->p[param];
    CHECK(what == 0 || what <= s->n_moments, "there is no moment %d", what);
    const struct buffer *b = what ? &s->moment[what - 1] : store_master(s);
    if (what == 0 && !s->master.dev && s->dtype != DT_F32) {
        size_t width = dtype_bytes(s->dtype);
        void *narrow = xmalloc(to_size(p->numel) * width);
        device_to_host(st, narrow, b, to_size(p->offset) * width, to_size(p->numel) * width);
        stream_sync(st);
        for (int64_t i = 0; i < p->numel; i++)
            out[i] = s->dtype == DT_BF16 ? bf16_to_f32(((bf16 *)narrow)[i]) : f16_to_f32(((uint16_t *)narrow)[i]);
        xfree(narrow);
        return;
    }
    device_to_host(st, out, b, to_size(p->offset) * 4, to_size(p->numel) * 4);
    stream_sync(st);
}

void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int what,
                 const float *in)
{
    const struct param *p = &s->table->p[param];
    CHECK(what == 0 || what <= s->n_moments, "there is no moment %d", what);
    if (what) {
        device_from_host(st, &s->moment[what - 1], to_size(p->offset) * 4, in, to_size(p->numel) * 4);
    } else {
        void *narrow = xmalloc(to_size(p->numel) * 4);
        write_values(s, k, st, param, 0, p->numel, in, narrow);
        stream_sync(st);
        xfree(narrow);
    }
    stream_sync(st);
}
