/* SPDX-License-Identifier: Apache-2.0 */
/* ATTENTION and ATTENTION_PART: launches of gpu_attention.cu. */
#include "kernel/attention_heads.h"
#include "kernel/cuda/cuda.h"
#include "kernel/cuda/gpu_attention_args.h"
#include "kernel/dropout.h"
#include "layout/sequence.h"

enum { Q, K, VALUE };
enum { WIDE_64, WIDE_128, WIDE_256, WIDES };
static const int wide_of[WIDES] = {64, 128, ATTENTION_WIDEST};

/* A kernel for each type and width of a head: a block has more warps where more fit. */
#define DECLARE(name)                                                                                                  \
    GPU_DECLARE_TYPED(attention_##name##_64);                                                                          \
    GPU_DECLARE_TYPED(attention_##name##_128);                                                                         \
    GPU_DECLARE_TYPED(attention_##name##_256)
#define ONE(name, type, bytes, wide) GPU_ONE(name##_##wide##_##type, GPU_WARP *ATTENTION_WARPS(bytes, wide))
#define SIZED(name, wide)                                                                                              \
    {                                                                                                                  \
        [DT_F32] = ONE(name, f32, 4, wide), [DT_BF16] = ONE(name, bf16, 2, wide), [DT_F16] = ONE(name, f16, 2, wide)   \
    }
DECLARE(fwd);
DECLARE(dq);
GPU_DECLARE_TYPED(attention_dkv_64);
GPU_DECLARE_TYPED(attention_dkv_128);
GPU_DECLARE_TYPED(attention_dk_256);
GPU_DECLARE_TYPED(attention_dv_256);
GPU_DECLARE_TYPED(attention_delta);
GPU_DECLARE_TYPED(attention_sink);
GPU_DECLARE(attention_tiles);
GPU_DECLARE(attention_places);
static const struct gpu_kernel fwd[WIDES][GPU_TYPES] = {SIZED(attention_fwd, 64), SIZED(attention_fwd, 128),
                                                        SIZED(attention_fwd, 256)};
static const struct gpu_kernel dq[WIDES][GPU_TYPES] = {SIZED(attention_dq, 64), SIZED(attention_dq, 128),
                                                       SIZED(attention_dq, 256)};
static const struct gpu_kernel dkv[WIDE_256][GPU_TYPES] = {SIZED(attention_dkv, 64), SIZED(attention_dkv, 128)};
static const struct gpu_kernel dk_256[GPU_TYPES] = SIZED(attention_dk, 256);
static const struct gpu_kernel dv_256[GPU_TYPES] = SIZED(attention_dv, 256);
static const struct gpu_kernel delta[GPU_TYPES] = GPU_TYPED(attention_delta, ATTENTION_THREADS);
static const struct gpu_kernel sink[GPU_TYPES] = GPU_TYPED(attention_sink, ATTENTION_THREADS);
static const struct gpu_kernel tiles = GPU_ONE(attention_tiles, ATTENTION_THREADS);
static const struct gpu_kernel places = GPU_ONE(attention_places, ATTENTION_THREADS);

/* How a call is cut, and what lies where in its scratch. */
struct plan {
    int size; /* which of wide_of */
    int outer, inner, stages;
    int64_t q_rows, k_rows; /* of a sequence */
    size_t tiles[4];        /* of q and k, outer and inner */
    size_t places[2];       /* of q and k, where a call has parts of sequences */
    size_t delta, bytes;
    size_t fwd_shared, bwd_shared;
};

static size_t take(size_t *at, int64_t n, size_t each)
{
    size_t here = *at;
    *at = here + ((size_t)n * each + 63) / 64 * 64;
    return here;
}

static int64_t tiles_of(const struct plan *p, int which)
{
    return gpu_parts(which < 2 ? p->q_rows : p->k_rows, which % 2 ? p->inner : p->outer);
}

static struct plan plan_of(const struct kernel_call *c)
{
    const struct attention_attrs *at = at_heads(&c->at);
    struct plan p = {.q_rows = at->seq, .k_rows = at->seq};
    int bytes = (int)dtype_bytes(c->in[Q].dtype);
    if (c->op == OP_ATTENTION_PART) {
        const struct attention_part_attrs *part = at_attention_part(&c->at);
        p.q_rows = context_rows(at->seq, part->parts, part->q_first, part->q_count);
        p.k_rows = context_rows(at->seq, part->parts, part->k_first, part->k_count);
        p.places[0] = take(&p.bytes, p.q_rows, sizeof(int32_t));
        p.places[1] = take(&p.bytes, p.k_rows, sizeof(int32_t));
    }
    while (p.size + 1 < WIDES && wide_of[p.size] < at->head_dim) p.size++;
    int wide = wide_of[p.size];
    p.outer = ATTENTION_OUTER(bytes, wide);
    p.inner = ATTENTION_INNER(bytes, wide, c->phase != KERNEL_FWD);
    p.stages = ATTENTION_STAGES(bytes, wide);
    for (int i = 0; i < 4; i++) p.tiles[i] = take(&p.bytes, at->batch * tiles_of(&p, i), sizeof(struct attention_tile));
    if (c->phase != KERNEL_FWD) p.delta = take(&p.bytes, at->batch * p.q_rows * at->heads, sizeof(float));
    size_t row = (size_t)(wide * bytes);
    p.fwd_shared = row * (size_t)(p.outer + 2 * p.inner) + (size_t)p.inner * sizeof(struct attention_row);
    p.bwd_shared = 2 * row * (size_t)(p.outer + p.stages * p.inner) +
                   (size_t)(p.stages * p.inner) * (sizeof(struct attention_row) + 2 * sizeof(float));
    return p;
}

size_t gpu_attention_scratch(const struct kernel_call *c, int n_threads)
{
    (void)n_threads;
    return plan_of(c).bytes;
}

static void dropout_of(const struct kernel_call *c, struct attention_args *a)
{
    const struct attention_attrs *at = at_heads(&c->at);
    a->drop_scale = 1;
    if (!dropout_active(&at->dropout, c->step) || !at->seq) return;
    a->drops = true;
    a->drop_scale = dropout_scale(at->dropout.p);
    a->drop_below = dropout_threshold(at->dropout.p);
    a->seed = c->step->seed;
    a->stream = rng_stream_at(at->dropout.stream, c->step->step);
    a->drop_heads = attention_drop_row(at, 1, 0) - attention_drop_row(at, 0, 0);
    a->drop_row = attention_drop_row(at, c->step->first_token / (uint64_t)at->seq, 0);
}

static struct attention_args args_of(const struct kernel_call *c, const struct plan *p)
{
    const struct attention_attrs *at = at_heads(&c->at);
    const struct view *sinks = attention_sinks(c);
    struct attention_args a = {.q = c->in[Q].p,
                               .k = c->in[K].p,
                               .v = c->in[VALUE].p,
                               .q_step = c->in[Q].stride,
                               .k_step = c->in[K].stride,
                               .v_step = c->in[VALUE].stride,
                               .lse = c->out[1].p,
                               .lse_step = c->out[1].stride,
                               .sink = sinks ? sinks->p : NULL,
                               .doc = attention_has_docs(c) ? c->in[ATTENTION_DOC].p : NULL,
                               .token = attention_tokens(c),
                               .queries = {.rows = p->q_rows},
                               .keys = {.rows = p->k_rows},
                               .seq = at->seq,
                               .batch = at->batch,
                               .window = at->window,
                               .heads = at->heads,
                               .kv_heads = at->kv_heads,
                               .head_dim = at->head_dim,
                               .head_first = at->head_first,
                               .kv_first = at->kv_first,
                               .group = (int)attention_group(at),
                               .causal = at->causal,
                               .prefix = at->prefix,
                               .scale = at->scale,
                               .cap = at->cap};
    const struct attention_tile **to[4] = {&a.queries.outer, &a.queries.inner, &a.keys.outer, &a.keys.inner};
    for (int i = 0; i < 4; i++)
        *to[i] = (const struct attention_tile *)(const void *)((const char *)c->scratch + p->tiles[i]);
    a.delta = (float *)(void *)((char *)c->scratch + p->delta);
    dropout_of(c, &a);
    return a;
}

/* Where the rows of parts stand in their sequences. */
static void find_places(const struct kernel_call *c, const struct plan *p, struct attention_args *a)
{
    if (c->op != OP_ATTENTION_PART) return;
    const struct attention_part_attrs *part = at_attention_part(&c->at);
    for (int i = 0; i < 2; i++) {
        struct attention_rows *side = i ? &a->keys : &a->queries;
        struct attention_places_args of = {.place = (int32_t *)(void *)((char *)c->scratch + p->places[i]),
                                           .rows = side->rows,
                                           .seq = a->seq,
                                           .parts = part->parts,
                                           .first = i ? part->k_first : part->q_first};
        side->place = of.place;
        gpu_launch(c, &places, gpu_parts(of.rows, ATTENTION_THREADS), 1, 1, 0, &of, sizeof of);
    }
    a->wide_out = true;
}

/* The bounds of one kind of tiles. */
static void bound(const struct kernel_call *c, const struct plan *p, const struct attention_args *a, int which)
{
    const struct attention_rows *side = which < 2 ? &a->queries : &a->keys;
    struct attention_tiles_args t = {.doc = a->doc,
                                     .token = a->token,
                                     .place = side->place,
                                     .tile = (struct attention_tile *)(void *)((char *)c->scratch + p->tiles[which]),
                                     .rows = side->rows,
                                     .seq = a->seq,
                                     .tiles = tiles_of(p, which),
                                     .all = tiles_of(p, which) * a->batch,
                                     .each = which % 2 ? p->inner : p->outer,
                                     .prefix = a->prefix};
    gpu_launch(c, &tiles, gpu_parts(t.all, ATTENTION_THREADS / GPU_WARP), 1, 1, 0, &t, sizeof t);
}

enum { Q_OUTER, Q_INNER, K_OUTER, K_INNER };

static void launch(const struct kernel_call *c, const struct gpu_kernel *k, int64_t outer_tiles, int heads,
                   size_t shared, const struct attention_args *a)
{
    gpu_launch(c, k, outer_tiles * heads * a->batch, 1, 1, shared, a, sizeof *a);
}

void gpu_attention_fwd(const struct kernel_call *c)
{
    struct plan p = plan_of(c);
    struct attention_args a = args_of(c, &p);
    a.to[0] = c->out[0].p;
    a.to_step[0] = c->out[0].stride;
    find_places(c, &p, &a);
    if (c->op == OP_ATTENTION_PART && at_attention_part(&c->at)->more) {
        a.more = true;
        a.from[0] = a.to[0];
        a.from_step[0] = a.to_step[0];
    }
    bound(c, &p, &a, Q_OUTER);
    bound(c, &p, &a, K_INNER);
    launch(c, &fwd[p.size][c->in[Q].dtype], tiles_of(&p, Q_OUTER), a.heads, p.fwd_shared, &a);
}

static void sinks_bwd(const struct kernel_call *c, const struct attention_args *a)
{
    struct attention_sink_args s = {.sink = a->sink,
                                    .lse = a->lse,
                                    .delta = a->delta,
                                    .from = c->acc[ATTENTION_SINK].p,
                                    .to = c->din[ATTENTION_SINK].p,
                                    .lse_step = a->lse_step,
                                    .rows = a->batch * a->queries.rows,
                                    .heads = a->heads};
    gpu_launch(c, &sink[c->in[Q].dtype], a->heads, 1, 1, sizeof(struct attention_sink_shared), &s, sizeof s);
}

void gpu_attention_bwd_in(const struct kernel_call *c)
{
    struct plan p = plan_of(c);
    struct attention_args a = args_of(c, &p);
    enum dtype t = c->in[Q].dtype;
    a.o = c->out[0].p;
    a.o_step = c->out[0].stride;
    a.grad = c->dout[0].p;
    a.grad_step = c->dout[0].stride;
    for (int i = 0; i < 3; i++) {
        a.to[i] = c->din[i].p;
        a.to_step[i] = c->din[i].stride;
        a.from[i] = c->acc[i].p;
        a.from_step[i] = c->acc[i].stride;
    }
    find_places(c, &p, &a);
    int64_t items = a.batch * p.q_rows * a.heads;
    gpu_launch(c, &delta[t], gpu_parts(items, ATTENTION_THREADS / GPU_WARP), 1, 1, 0, &a, sizeof a);
    if (a.to[Q]) {
        bound(c, &p, &a, Q_OUTER);
        bound(c, &p, &a, K_INNER);
        launch(c, &dq[p.size][t], tiles_of(&p, Q_OUTER), a.heads, p.bwd_shared, &a);
    }
    if (a.to[K] || a.to[VALUE]) {
        bound(c, &p, &a, Q_INNER);
        bound(c, &p, &a, K_OUTER);
    }
    int64_t blocks = tiles_of(&p, K_OUTER);
    if (p.size < WIDE_256 && (a.to[K] || a.to[VALUE])) launch(c, &dkv[p.size][t], blocks, a.kv_heads, p.bwd_shared, &a);
    if (p.size == WIDE_256 && a.to[K]) launch(c, &dk_256[t], blocks, a.kv_heads, p.bwd_shared, &a);
    if (p.size == WIDE_256 && a.to[VALUE]) launch(c, &dv_256[t], blocks, a.kv_heads, p.bwd_shared, &a);
    if (attention_sinks(c) && c->din[ATTENTION_SINK].p) sinks_bwd(c, &a);
}

bool gpu_attention_accepts(const struct kernel_call *c)
{
    return gpu_float(c->in[Q].dtype) && at_heads(&c->at)->head_dim <= ATTENTION_WIDEST &&
           at_heads(&c->at)->seq < INT32_MAX &&
           (c->op != OP_ATTENTION_PART || c->phase == KERNEL_FWD || c->out[0].dtype == c->in[Q].dtype);
}
