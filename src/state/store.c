/* SPDX-License-Identifier: Apache-2.0 */
/* One table of arrays, one allocation each. Offsets come from the table of parameters and the units; nothing is padded,
 * so that bytes are count times width and fused matrices lie next to each other. */
#include "state/store.h"

#include <string.h>

#include "base/mem.h"
#include "kernel/flat.h"
#include "state/packed.h"

static bool alone(const struct store *s) { return s->units.n_ranks == 1 && s->units.n_expert_ranks == 1; }
static bool lies_whole(const struct store *s, int shared_from) { return alone(s) || s->zero < shared_from; }
bool store_param_is_whole(const struct store *s) { return s->array[STORE_PARAM].whole; }
bool store_param_travels(const struct store *s) { return !store_param_is_whole(s) || s->array[STORE_PARAM].row.away; }
bool store_packs(const struct store *s) { return s->packed > 0; }
bool store_unit_travels(const struct store *s, int unit)
{
    return store_param_travels(s) || s->units.unit[unit].packed;
}
bool store_grad_is_whole(const struct store *s) { return s->array[STORE_GRAD].whole; }
bool store_state_is_whole(const struct store *s) { return s->array[STORE_MASTER].whole; }
bool store_rounds(const struct store *s) { return s->wide_master.dev != NULL; }

bool store_reduces_each(const struct store *s)
{
    return !alone(s) && (!store_grad_is_whole(s) || (s->many && !s->once));
}

bool store_grad_is_temporary(const struct store *s) { return s->grad_dtype != DT_F32 || store_reduces_each(s); }

/* ---- the table ---- */
static int add(struct store *s, const struct array_row *row, bool whole, bool here, struct err *e)
{
    CHECK(s->n_arrays < STORE_MAX_ARRAYS, "no room for the array %s", row->name);
    CHECK(!row->stepped || !row->dev || row->dev == s->dev, "%s is stepped on another device", row->name);
    for (int i = 0; i < s->n_arrays; i++)
        CHECK(strcmp(s->array[i].row.name, row->name), "two arrays are called %s", row->name);
    return array_new(&s->array[s->n_arrays++], row, &s->units, s->dev, whole, here, e);
}

/* Weights, master, gradients, whose place in the table is their name. */
static int add_own(struct store *s, const struct store_config *c, struct err *e)
{
    const struct array_row own[STORE_ROWS] = {
        [STORE_PARAM] = {.name = "weight",
                         .title = "weights",
                         .cat = MEM_PARAM,
                         .away = c->param_away,
                         .dtype = c->dtype,
                         .shared_from = 3,
                         .of_frozen = true,
                         .groups = PARAM_ALL_GROUPS},
        [STORE_MASTER] = {.name = "master",
                          .title = "weights",
                          .cat = MEM_MASTER,
                          .away = c->master_away,
                          .dtype = DT_F32,
                          .shared_from = 1,
                          .saved = true,
                          .stepped = true,
                          .groups = PARAM_ALL_GROUPS},
        [STORE_GRAD] = {.name = "grad",
                        .title = "gradients",
                        .cat = MEM_GRAD,
                        .dtype = c->grad,
                        .shared_from = 2,
                        .groups = PARAM_ALL_GROUPS},
    };
    bool here[STORE_ROWS] = {true, c->training && !c->stateless && !c->no_master && c->dtype != DT_F32, c->training};
    int rc = OK;
    for (int i = 0; !rc && i < STORE_ROWS; i++)
        rc = add(s, &own[i], lies_whole(s, own[i].shared_from) || (i == STORE_GRAD && s->many && s->once), here[i], e);
    return rc;
}

int store_new_shared(struct store *s, const struct param_table *t, struct device *d, const struct store_config *c,
                     struct err *e)
{
    *s = (struct store){.table = t,
                        .dev = d,
                        .dtype = c->dtype,
                        .zero = c->zero,
                        .has_grad = c->training,
                        .grad_dtype = c->grad,
                        .many = c->many,
                        .once = c->once,
                        .grad_times = 1};
    units_init(&s->units, t, c->shared);
    int rc = add_own(s, c, e);
    if (!rc && c->training && c->grad != DT_F32)
        rc = buffer_new(&s->widen, d, MEM_SCRATCH, STORE_WIDEN * sizeof(float), e);
    if (!rc && c->training && c->no_master && c->dtype != DT_F32)
        rc = buffer_new(&s->wide_master, d, MEM_SCRATCH, STORE_WIDEN * sizeof(float), e);
    for (int i = 0; !rc && c->training && i < c->n_rows; i++)
        rc = add(s, &c->rows[i], lies_whole(s, c->rows[i].shared_from), !c->stateless || !c->rows[i].stepped, e);
    struct array_row packed[PACKED_ARRAYS];
    int n_packed = packed_arrays(t->packing, packed);
    if (n_packed) s->packed = s->n_arrays;
    for (int i = 0; !rc && i < n_packed; i++) rc = add(s, &packed[i], lies_whole(s, packed[i].shared_from), true, e);
    if (rc) store_free(s);
    return rc;
}

int store_new(struct store *s, const struct param_table *t, struct device *d, enum dtype dtype, bool training,
              const struct array_row *rows, int n_rows, struct err *e)
{
    return store_new_shared(s, t, d,
                            &(struct store_config){.dtype = dtype,
                                                   .training = training,
                                                   .rows = rows,
                                                   .n_rows = n_rows},
                            e);
}

void store_free(struct store *s)
{
    for (int i = 0; i < s->n_arrays; i++) array_free(&s->array[i]);
    buffer_free(&s->widen);
    buffer_free(&s->wide_master);
    units_fini(&s->units);
    memset(s, 0, sizeof *s);
}

const struct array *store_array(const struct store *s, int which)
{
    CHECK(which >= 0 && which < s->n_arrays, "there is no array %d", which);
    return &s->array[which == STORE_MASTER && !array_is_here(&s->array[which]) ? STORE_PARAM : which];
}

const struct array *store_array_of(const struct store *s, int which, int param)
{
    return which == STORE_MASTER && s->table->p[param].frozen ? &s->array[STORE_PARAM] : store_array(s, which);
}

bool store_covers(const struct store *s, int which, int param)
{
    return (which == STORE_MASTER && !s->table->p[param].packed) ||
           array_covers(&s->array[which].row, &s->table->p[param]);
}

struct stream *store_stream(const struct store *s, int which, struct stream *st)
{
    struct stream *own = store_array(s, which)->own;
    return own ? own : st;
}

void store_cast(const struct kernel_table *k, struct team *team, void *to, enum dtype t, const void *from, enum dtype f,
                int64_t n)
{
    flat_cast_here(k, team, to, t, from, f, n);
}

void store_derive(const struct store *s, struct stream *st, int param)
{
    struct array_span from = store_held(s, param, STORE_MASTER), to = store_piece(s, param, STORE_PARAM);
    flat_cast(st, array_at(&s->array[STORE_PARAM], to.at + from.lo - to.lo), s->dtype,
              array_at(store_array(s, STORE_MASTER), from.at), DT_F32, from.n);
}

struct stream *store_stream_of(const struct store *s, int which, int param, struct stream *st)
{
    struct stream *own = store_array_of(s, which, param)->own;
    return own ? own : st;
}

bool store_has(const struct store *s, int which) { return which < s->n_arrays && array_is_here(store_array(s, which)); }

int store_find(const struct store *s, const char *name)
{
    for (int i = 0; i < s->n_arrays; i++)
        if (!strcmp(s->array[i].row.name, name)) return store_has(s, i) ? i : -1;
    return -1;
}

/* ---- where a parameter's values are ---- */
struct array_span store_piece(const struct store *s, int param, int which)
{
    return array_piece(store_array_of(s, which, param), &s->units, param, false);
}

struct array_span store_writes(const struct store *s, int param, int which)
{
    return array_piece(store_array_of(s, which, param), &s->units, param, true);
}

/* Parameters that are their own master, all or frozen ones, lie as parameters do, but are held as masters are. */
struct array_span store_held(const struct store *s, int param, int which)
{
    return s->array[which].whole ? array_held(store_array_of(s, which, param), &s->units, param)
                                 : store_piece(s, param, which);
}

int64_t store_saved_bytes(const struct store *s)
{
    int64_t sum = 0;
    for (int k = 0; k < s->n_arrays; k++)
        for (int i = 0; s->array[k].row.saved && store_has(s, k) && i < s->table->n; i++)
            if (store_covers(s, k, i))
                sum += array_numel(&store_array_of(s, k, i)->row, &s->table->p[i]) *
                       (int64_t)dtype_bytes(store_array_of(s, k, i)->row.dtype);
    return sum;
}

void *store_param_ptr(const struct store *s, int param)
{
    CHECK(store_param_is_whole(s), "the parameters are shared out");
    return array_at(&s->array[STORE_PARAM], s->array[STORE_PARAM].at[param]);
}

void *store_grad_ptr(const struct store *s, int param)
{
    CHECK(store_grad_is_whole(s), "the gradients are shared out");
    if (s->table->p[param].frozen) return NULL;
    return array_at(&s->array[STORE_GRAD], s->array[STORE_GRAD].at[param]);
}

void *store_piece_ptr(const struct store *s, int param, int which)
{
    return array_at(store_array_of(s, which, param), store_piece(s, param, which).at);
}

void *store_piece_param(const struct store *s, int param) { return store_piece_ptr(s, param, STORE_PARAM); }
void *store_piece_grad(const struct store *s, int param)
{
    return s->table->p[param].frozen ? NULL : store_piece_ptr(s, param, STORE_GRAD);
}

/* ---- values ---- */
static size_t byte_of(const struct array *a, int64_t value) { return to_size(value) * dtype_bytes(a->row.dtype); }

/* Elements [lo, lo + n) of a parameter, from fp32 on the host to the master and the compute copy, as far as each is
 * here. */
static void put_values(struct store *s, const struct kernel_table *k, struct stream *st, int param, int64_t lo,
                       int64_t n, const float *in, void *narrow)
{
    struct array *master = &s->array[STORE_MASTER], *copy = &s->array[STORE_PARAM];
    struct array_span own = store_held(s, param, STORE_MASTER), all = array_held(copy, &s->units, param);
    int64_t from = lo > own.lo ? lo : own.lo, to = lo + n < own.lo + own.n ? lo + n : own.lo + own.n;
    if (array_is_here(master) && !s->table->p[param].frozen && from < to)
        device_from_host(store_stream(s, STORE_MASTER, st), &master->buf, byte_of(master, own.at + from - own.lo),
                         in + (from - lo), byte_of(master, to - from));
    for (int i = STORE_ROWS; i < s->n_arrays && from < to; i++)
        if (s->array[i].row.averages && array_is_here(&s->array[i]) && !s->table->p[param].frozen)
            device_from_host(st, &s->array[i].buf, byte_of(&s->array[i], store_held(s, param, i).at + from - own.lo),
                             in + (from - lo), to_size(to - from) * sizeof(float));
    if (s->dtype != DT_F32) store_cast(k, s->dev->team, narrow, s->dtype, in, DT_F32, n);
    device_from_host(store_stream(s, STORE_PARAM, st), &copy->buf, byte_of(copy, all.at + lo - all.lo),
                     s->dtype == DT_F32 ? (const void *)in : narrow, byte_of(copy, n));
}

/* Every rank fills what it holds from the counter: nothing travels. Whole compute copies get all values. */
void store_init(struct store *s, const struct kernel_table *k, struct stream *st, uint64_t seed)
{
    if (s->dev->counts_only) return;
    enum { CHUNK = 1 << 20 };
    float *wide = xmalloc(CHUNK * sizeof *wide);
    void *narrow = xmalloc(CHUNK * 4);
    for (int i = 0; i < s->table->n; i++) {
        struct array_span x = array_held(&s->array[STORE_PARAM], &s->units, i);
        for (int64_t a = x.lo; a < x.lo + x.n; a += CHUNK) {
            int64_t m = x.lo + x.n - a < CHUNK ? x.lo + x.n - a : CHUNK;
            stream_sync(st); /* the staging belongs to the copies before */
            stream_sync(store_stream(s, STORE_MASTER, st));
            stream_sync(store_stream(s, STORE_PARAM, st));
            param_init_fill(&s->table->p[i], seed, a, m, wide, s->dev->team);
            put_values(s, k, st, i, a, m, wide, narrow);
        }
    }
    for (int i = STORE_ROWS; i < s->n_arrays; i++)
        if (array_is_here(&s->array[i]) && !s->array[i].row.averages)
            device_zero(store_stream(s, i, st), &s->array[i].buf, 0, s->array[i].buf.bytes);
    for (int i = 0; i < s->n_arrays; i++) stream_sync(store_stream(s, i, st));
    stream_sync(st);
    packed_init(s, st, seed);
    xfree(wide);
    xfree(narrow);
}

void store_read(const struct store *s, struct stream *st, int param, int which, float *out)
{
    const struct array *a = store_array_of(s, which, param);
    struct array_span x = store_held(s, param, which);
    st = store_stream_of(s, which, param, st);
    void *narrow = a->row.dtype == DT_F32 ? NULL : xmalloc(byte_of(a, x.n) + 1); /* a compute copy without master */
    device_to_host(st, narrow ? narrow : out, &a->buf, byte_of(a, x.at), byte_of(a, x.n));
    stream_sync(st);
    for (int64_t i = 0; narrow && i < x.n; i++)
        out[i] = a->row.dtype == DT_BF16  ? bf16_to_f32(((bf16 *)narrow)[i])
                 : a->row.dtype == DT_F16 ? f16_to_f32(((uint16_t *)narrow)[i])
                                          : ((uint8_t *)narrow)[i]; /* codes */
    xfree(narrow);
}

void store_write(struct store *s, const struct kernel_table *k, struct stream *st, int param, int which,
                 const float *in)
{
    struct array_span x = store_held(s, param, which);
    void *narrow = which == STORE_MASTER ? xmalloc(to_size(x.n) * 4 + 1) : NULL;
    struct array *a = &s->array[which];
    struct stream *own = store_stream(s, which, st);
    if (narrow) {
        put_values(s, k, st, param, x.lo, x.n, in, narrow);
    } else {
        CHECK(a->row.dtype == DT_F32 && array_is_here(a), "%s is not written from fp32", a->row.name);
        device_from_host(own, &a->buf, byte_of(a, x.at), in, byte_of(a, x.n));
    }
    stream_sync(own);
    stream_sync(store_stream(s, STORE_PARAM, st));
    stream_sync(st);
    xfree(narrow);
}
