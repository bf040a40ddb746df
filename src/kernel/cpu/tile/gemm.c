/* SPDX-License-Identifier: Apache-2.0 */
/* gemm.c: blocking, packing and threads around the micro-kernels of tile.h.
 *
 * After Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (ACM TOMS 2008), and BLIS:
 *
 *     for each block of nc columns                                   (B's packed block lives in L3)
 *       for each chunk of rows                                       (only where C needs an f32 stand-in)
 *         for each slice of kc of depth, in order
 *           the team packs the kc x nc block of B, panel by panel; all meet
 *           each member, for its rows, mc at a time: packs mc x kc of A    (lives in L2)
 *             for each panel of B (in L1), for each panel of A: one tile of C
 *
 * The block of B has two buffers, so the members meet once per slice. Members form a grid of tm x tn over C's rows and
 * columns; members of one grid row pack the same A each for itself.
 *
 * C is touched once per slice of depth. f32 outputs are summed where they lie; narrower outputs that need several
 * slices are summed in an f32 stand-in of at most 1024 rows x 1024 columns per member, tile by tile (contiguous,
 * so that a tile is 28 lines of cache), and cast when the last slice is in. Cost of all packing: M K N/nc + K N
 * M/rows elements at 0.03 to 0.1 ns, against 2 M N K operations: 1 to 3 % from 1024 rows on.
 *
 * With scales per block of depth a slice is some whole blocks: each block's sum is made in a tile of its own and added
 * to C's (or its stand-in) with its scales, 64 vectors of 16 for 256 tile products on AMX: what such recipes cost here.
 * A slice of one block alone went through the stand-in, which is larger than L2, for every block.
 *
 * A Gram matrix (both operands are one) has equal halves: members get rows by the area below the diagonal, tiles above
 * it are passed over, and when all are in, what is above is copied from below. Sums of the same products in the same
 * order.
 *
 * Rejected: packing both operands whole (twice the scratch, and the vocabulary's weights would leave the cache
 * before use); splitting depth among threads (bits would depend on the team).
 */
#include "kernel/cpu/tile/gemm.h"

#include <math.h>

#include "base/err.h"

struct plan {
    int tm, tn;         /* grid of members */
    int64_t kc, mc, nc; /* slice of depth; rows packed at once; columns of a block */
    int64_t first;      /* what the first slice lacks of kc */
    int64_t n_scaled;   /* blocks of depth with scales in a slice */
    int64_t n_slices, n_blocks, n_chunks;
    int64_t chunk;                    /* panels of rows per member and chunk */
    size_t a_bytes, b_bytes, t_bytes; /* one member's A, one buffer of B, one member's stand-in for C */
};

static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
static int64_t min64(int64_t a, int64_t b) { return a < b ? a : b; }

/* The grid with the least work for the busiest member: its tiles, and packing its rows of A, which costs about as
 * much as 32 more columns. Ties go to more rows, which pack less. */
static void plan_grid(struct plan *p, int64_t m_panels, int64_t n_panels, int nr, int n_threads)
{
    int64_t best = INT64_MAX;
    for (int tm = n_threads; tm >= 1; tm--) {
        if (n_threads % tm) continue;
        int64_t cost = ceil_div(m_panels, tm) * (ceil_div(n_panels, n_threads / tm) * nr + 32);
        if (cost >= best) continue;
        best = cost;
        p->tm = tm;
        p->tn = n_threads / tm;
    }
}

/* The panels of rows of a member of the grid's row `part`: all parts alike, or as much below the diagonal in each. */
static void rows_of(const struct gemm *g, int64_t m_panels, int part, int n_parts, int64_t *lo, int64_t *hi)
{
    if (!g->gram) {
        team_split(m_panels, part, n_parts, lo, hi);
        return;
    }
    *lo = (int64_t)((double)m_panels * sqrt((double)part / n_parts));
    *hi = part + 1 == n_parts ? m_panels : (int64_t)((double)m_panels * sqrt((double)(part + 1) / n_parts));
}

enum { MOST_ROWS = 1024, MOST_COLS = 1024 }; /* of a member's stand-in for C */

static struct plan plan_make(const struct tile_ops *o, const struct gemm *g, int n_threads)
{
    struct plan p = {.tm = 1, .tn = 1};
    p.kc = min64(depth_slice(gemm_depth(o), g->k_whole > 0 ? g->k_whole : g->k), tile_depth(o, g->k));
    if (g->blocks) {
        const int64_t depth = g->scale_a.depth;
        bool packs = depth % o->step == 0 && g->scale_a.depth_at % o->step == 0; /* several, side by side */
        p.n_scaled = packs && depth < o->kc ? o->kc / depth : 1;
        p.kc = depth * p.n_scaled;
        p.first = g->scale_a.depth_at;
    }
    p.n_slices = ceil_div(p.first + g->k, p.kc);
    const bool stand_in = (g->blocks || g->out.c_dtype != DT_F32) && p.n_slices > 1;

    p.n_blocks = ceil_div(g->n, stand_in ? min64(o->nc, MOST_COLS) : o->nc);
    p.nc = ceil_div(ceil_div(g->n, p.n_blocks), o->nr) * o->nr;
    p.n_blocks = ceil_div(g->n, p.nc);
    const int64_t m_panels = ceil_div(g->m, o->mr), n_panels = p.nc / o->nr;
    plan_grid(&p, m_panels, n_panels, o->nr, n_threads);
    int64_t mine = ceil_div(m_panels, p.tm);
    if (g->gram) {
        p.tm = n_threads;
        p.tn = 1;
        mine = 0;
        for (int i = 0; i < p.tm; i++) {
            int64_t lo, hi;
            rows_of(g, m_panels, i, p.tm, &lo, &hi);
            if (hi - lo > mine) mine = hi - lo;
        }
    }
    p.n_chunks = stand_in ? ceil_div(mine * o->mr, MOST_ROWS) : 1;
    p.chunk = ceil_div(mine, p.n_chunks);
    p.mc = min64(o->mc / o->mr, p.chunk) * o->mr;
    p.a_bytes = tile_a_bytes(o, p.mc, min64(p.kc, g->k));
    p.b_bytes = tile_b_bytes(o, p.nc, min64(p.kc, g->k));
    if (stand_in) p.t_bytes = (size_t)(p.chunk * o->mr * ceil_div(n_panels, p.tn) * o->nr) * sizeof(float);
    return p;
}

static size_t plan_bytes(const struct plan *p, int n_threads)
{
    return 2 * p->b_bytes + (size_t)n_threads * (p->a_bytes + p->t_bytes);
}

size_t gemm_scratch(const struct tile_ops *o, const struct gemm *g, int n_threads)
{
    struct plan p = plan_make(o, g, n_threads);
    return plan_bytes(&p, n_threads);
}

/* Fewer rows: other grids of members, so the stand-in's largest share over all grids. Less depth: one slice is the
 * deepest, unless a stand-in comes with the second. */
size_t gemm_scratch_most(const struct tile_ops *o, const struct gemm *g, int n_threads)
{
    struct gemm one = *g;
    one.k = min64(g->k, o->kc);
    struct plan p = plan_make(o, g, n_threads), flat = plan_make(o, &one, n_threads);
    if (flat.b_bytes > p.b_bytes) p.b_bytes = flat.b_bytes;
    int64_t m_panels = ceil_div(g->m, o->mr), n_panels = p.nc / o->nr;
    p.a_bytes = tile_a_bytes(o, min64(o->mc / o->mr, m_panels) * o->mr, one.k);
    bool stand_in = p.t_bytes > 0;
    for (int tm = 1; stand_in && tm <= n_threads; tm++) {
        int64_t chunk = min64(ceil_div(m_panels, tm), ceil_div(MOST_ROWS, o->mr));
        size_t t = (size_t)(chunk * o->mr * ceil_div(n_panels, n_threads / tm) * o->nr) * sizeof(float);
        if (n_threads % tm == 0 && t > p.t_bytes) p.t_bytes = t;
    }
    return plan_bytes(&p, n_threads);
}

struct job {
    const struct tile_ops *o;
    const struct gemm *g;
    struct plan p;
    char *scratch;
    struct team *team;
};

/* Brings the tile's lines of C while its product is under way: 1 to 4 % on outputs larger than the caches. */
static inline void prefetch_c(const struct tile_out *out, int64_t row, int64_t col, int rows, int cols)
{
    const size_t each = dtype_bytes(out->c_dtype);
    const char *c = (const char *)out->c + (size_t)(row * out->ldc + col) * each;
    for (int i = 0; i < rows; i++, c += (size_t)out->ldc * each) {
        __builtin_prefetch(c, 1);
        __builtin_prefetch(c + 64, 1);
        __builtin_prefetch(c + (size_t)cols * each - 1, 1);
    }
}

/* Where slice i begins in depth; that after the last: the end. */
static int64_t slice_begin(const struct job *w, int64_t i)
{
    const int64_t d = i * w->p.kc - w->p.first;
    return d < 0 ? 0 : min64(d, w->g->k);
}

/* Scales of lanes [lane, lane + n) in block i of depth; 0 from `most` on, which is past `lane`. */
static inline void scales_of(float *to, const struct gemm_scales *s, int64_t lane, int n, int64_t most, int64_t i)
{
    const float *p = s->p + i * s->depth_step + (s->lane_at + lane) / s->lanes * s->lane_step;
    const int there = (int)min64(n, most - lane);
    int64_t in_block = (s->lane_at + lane) % s->lanes;
    if (s->lane_step == 0 || in_block + there <= s->lanes) {
        for (int l = 0; l < there; l++) to[l] = *p;
    } else if (s->lanes == 1) {
        for (int l = 0; l < there; l++) to[l] = p[l * s->lane_step];
    } else {
        for (int l = 0; l < there; l++) {
            to[l] = *p;
            if (++in_block < s->lanes) continue;
            in_block = 0;
            p += s->lane_step;
        }
    }
    for (int l = there; l < n; l++) to[l] = 0;
}

/* One tile of C in the blocks of one slice of depth, [d0, d1). */
static void tile_run_blocks(const struct job *w, const char *a, const char *b, float *tile, int64_t row, int64_t col,
                            int64_t d0, int64_t d1, int64_t slice)
{
    const struct tile_ops *o = w->o;
    const struct gemm *g = w->g;
    const size_t each = dtype_bytes(o->panel);
    const int rows = (int)min64(o->mr, g->m - row), cols = (int)min64(o->nr, g->n - col);
    float part[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
    float local[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
    float scale_a[TILE_MAX_MR], scale_b[TILE_MAX_NR], *sum = tile ? tile : local;
    int64_t i = slice * w->p.n_scaled;
    for (int64_t d = d0, end; d < d1; d = end, i++) { /* a block begins at a multiple of step from d0 */
        end = min64((i + 1) * g->scale_a.depth - w->p.first, d1);
        const size_t at = (size_t)(d - d0) * each;
        scales_of(scale_a, &g->scale_a, row, rows, g->m, i);
        scales_of(scale_b, &g->scale_b, col, o->nr, g->n, i);
        o->mul(part, o->nr, a + at * (size_t)o->mr, b + at * (size_t)o->nr, tile_depth(o, end - d), rows, false);
        o->promote(sum, part, scale_a, scale_b, rows, i == 0);
    }
    if (slice + 1 < w->p.n_slices) return;
    struct tile_out to = g->out;
    to.c = (char *)to.c + (size_t)(row * to.ldc + col) * dtype_bytes(to.c_dtype);
    if (to.bias) to.bias = (const char *)to.bias + (size_t)col * dtype_bytes(to.bias_dtype);
    if (to.acc) to.acc = (const char *)to.acc + (size_t)(row * to.ldacc + col) * dtype_bytes(to.acc_dtype);
    o->finish(sum, o->nr, rows, cols, &to);
}

/* One tile of C in one slice of depth. `tile` is C's stand-in, or NULL. */
static void tile_run(const struct job *w, const char *a, const char *b, float *tile, int64_t row, int64_t col,
                     int64_t depth, bool first, bool last)
{
    const struct tile_ops *o = w->o;
    const struct tile_out *out = &w->g->out;
    const int rows = (int)min64(o->mr, w->g->m - row), cols = (int)min64(o->nr, w->g->n - col);
    const bool f32 = out->c_dtype == DT_F32;
    const bool in_place = out->acc == out->c;

    if (f32 || last) prefetch_c(out, row, col, rows, cols);
    if (f32 && !out->scaled && cols == o->nr && !(first && (out->bias || (out->acc && !in_place)))) {
        o->mul((float *)out->c + row * out->ldc + col, out->ldc, a, b, depth, rows, !first || in_place);
        return;
    }
    float local[TILE_MAX_MR * TILE_MAX_NR] __attribute__((aligned(64)));
    float *sum = tile ? tile : local;
    if (tile)
        for (int i = 0; i < o->mr * o->nr; i += 16) __builtin_prefetch(tile + i, 1);
    o->mul(sum, o->nr, a, b, depth, rows, tile && !first);
    if (!f32 && !last) return;

    struct tile_out to = *out;
    to.c = (char *)out->c + (size_t)(row * out->ldc + col) * dtype_bytes(out->c_dtype);
    if (out->bias) to.bias = (const char *)out->bias + (size_t)col * dtype_bytes(out->bias_dtype);
    if (out->acc) to.acc = (const char *)out->acc + (size_t)(row * out->ldacc + col) * dtype_bytes(out->acc_dtype);
    if (f32 && !first) { /* bias and acc are in already */
        to.bias = NULL;
        to.acc = to.c;
        to.acc_dtype = DT_F32;
        to.ldacc = to.ldc;
    }
    o->finish(sum, o->nr, rows, cols, &to);
}

/* This member's part of one slice: rows [row0, row1), panels of columns [q0, q1) of the block at column jc. */
static void slice_run(const struct job *w, int64_t row0, int64_t row1, int64_t jc, int64_t q0, int64_t q1,
                      int64_t slice, char *a, const char *b, float *t)
{
    const struct tile_ops *o = w->o;
    const int64_t d0 = slice_begin(w, slice), depth = slice_begin(w, slice + 1) - d0, pad = tile_depth(o, depth);
    const size_t a_step = tile_a_step(o, depth), b_step = tile_b_step(o, depth);
    const bool first = slice == 0, last = slice + 1 == w->p.n_slices;
    for (int64_t ic = row0; ic < row1; ic += w->p.mc) {
        const int64_t mc = min64(w->p.mc, row1 - ic);
        o->pack_a(a, tile_at(w->g->a, ic, d0), mc, depth);
        for (int64_t q = q0; q < q1; q++) {
            const char *ai = a;
            for (int64_t i = ic; i < ic + mc; i += o->mr, ai += a_step) {
                if (w->g->gram && jc + q * o->nr >= i + o->mr) continue; /* above the diagonal */
                float *tile = t ? t + ((q - q0) * w->p.chunk + (i - row0) / o->mr) * o->mr * o->nr : NULL;
                if (w->g->blocks) {
                    tile_run_blocks(w, ai, b + (size_t)q * b_step, tile, i, jc + q * o->nr, d0, d0 + depth, slice);
                    continue;
                }
                tile_run(w, ai, b + (size_t)q * b_step, tile, i, jc + q * o->nr, pad, first, last);
            }
        }
    }
}

static void member_run(void *arg, int member, int n_members)
{
    const struct job *w = arg;
    const struct tile_ops *o = w->o;
    const struct gemm *g = w->g;
    const struct plan *p = &w->p;
    char *const b_buffer = w->scratch;
    char *const a = w->scratch + 2 * p->b_bytes + (size_t)member * (p->a_bytes + p->t_bytes);
    float *const t = p->t_bytes ? (float *)(void *)(a + p->a_bytes) : NULL;
    int64_t panel0, panel1;
    rows_of(g, ceil_div(g->m, o->mr), member / p->tn, p->tm, &panel0, &panel1);

    o->begin();
    int turn = 0;
    for (int64_t jc = 0; jc < g->n; jc += p->nc) {
        const int64_t cols = min64(p->nc, g->n - jc), panels = ceil_div(cols, o->nr);
        int64_t q0, q1, pack0, pack1;
        team_split(panels, member % p->tn, p->tn, &q0, &q1);
        team_split(panels, member, n_members, &pack0, &pack1);
        for (int64_t chunk = 0; chunk < p->n_chunks; chunk++) {
            const int64_t row0 = min64(panel0 + chunk * p->chunk, panel1) * o->mr;
            const int64_t row1 = min64(min64(panel0 + (chunk + 1) * p->chunk, panel1) * o->mr, g->m);
            for (int64_t slice = 0; slice < p->n_slices; slice++, turn ^= 1) {
                char *b = b_buffer + (size_t)turn * p->b_bytes;
                const int64_t d0 = slice_begin(w, slice), depth = slice_begin(w, slice + 1) - d0;
                if (pack0 < pack1)
                    o->pack_b(b + (size_t)pack0 * tile_b_step(o, depth), tile_at(g->b, jc + pack0 * o->nr, d0),
                              min64(pack1 * o->nr, cols) - pack0 * o->nr, depth);
                if (n_members > 1) team_barrier(w->team);
                slice_run(w, row0, row1, jc, q0, q1, slice, a, b, t);
            }
        }
    }
    o->end();
}

/* ---- Gram matrices ---- */
enum { MIRROR = 32 }; /* rows and columns that stay in the cache */

#define MIRROR_BLOCK(T)                                                                                                \
    for (int64_t i = i0; i < i1; i++)                                                                                  \
        for (int64_t j = j0 > i ? j0 : i + 1; j < j1; j++) ((T *)c)[i * ld + j] = ((const T *)c)[j * ld + i];

/* What lies above the diagonal, from below it: blocks of rows in turn. */
static void mirror_member(void *arg, int member, int n_members)
{
    const struct gemm *g = ((const struct job *)arg)->g;
    void *c = g->out.c;
    const int64_t ld = g->out.ldc;
    for (int64_t i0 = (int64_t)member * MIRROR; i0 < g->m; i0 += (int64_t)n_members * MIRROR)
        for (int64_t i1 = min64(i0 + MIRROR, g->m), j0 = i0; j0 < g->n; j0 += MIRROR) {
            const int64_t j1 = min64(j0 + MIRROR, g->n);
            if (dtype_bytes(g->out.c_dtype) == 4) {
                MIRROR_BLOCK(float)
            } else {
                MIRROR_BLOCK(uint16_t)
            }
        }
}

void gemm_run(const struct tile_ops *o, const struct gemm *g, void *scratch, struct team *team)
{
    CHECK(!g->gram || (g->m == g->n && !g->blocks && !g->out.bias && !g->out.acc), "no Gram matrix of %ld x %ld",
          (long)g->m, (long)g->n);
    CHECK(g->m > 0 && g->n > 0 && g->k > 0, "empty product %ld x %ld x %ld", (long)g->m, (long)g->n, (long)g->k);
    struct job w = {.o = o, .g = g, .p = plan_make(o, g, team_size(team)), .scratch = scratch, .team = team};
    team_run(team, member_run, &w);
    if (g->gram) team_run(team, mirror_member, &w);
}
