/* SPDX-License-Identifier: Apache-2.0 */
/* ATTENTION and ATTENTION_PART, forward and backward (kernel/ref/attention.c has the formulas), tile by tile: no matrix
 * of scores is ever in memory (Dao et al. 2022, "FlashAttention"; Dao 2023, "FlashAttention-2").
 *
 * A warp has 16 rows of its block's outer tile and multiplies them by an inner tile: 16 x n of scores lie in its lanes
 * as mma.m16n8k16 leaves them, lane l having of every 8 columns rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the
 * next. So what comes out of one product is the left side of the next without leaving the registers. 16-bit types are
 * multiplied by the tensor cores; f32 by fp32 multiply-adds, with the same lanes having the same elements.
 *
 * Forward a block has queries and walks keys. Backward delta = o . grad is made first; then a block of keys walks
 * queries, of one query head after the other, and makes dk and dv, and a block of queries walks keys and makes dq. So
 * every number is summed by one thread in a fixed order. Scores are in units of ln 2: exp2 is what the hardware has.
 * Tiles of which no row sees a row of the other are left out: bounds of tiles are made first (attention_tiles). */
#include "base/philox.h"
#include "kernel/cuda/gpu.h"
#include "kernel/cuda/gpu_attention_args.h"

#define LOG2E 1.4426950408889634f
#define LN2 0.6931471805599453f

/* ---- tiles in shared memory ----
 * Rows of `wide` elements, in pieces of 16 bytes. Piece p of row r lies where p ^ r % 8 would: eight rows' same pieces
 * are in different banks. */
template <class T> struct pieces {
    static const int n = 16 / (int)sizeof(T); /* elements of one */
};
template <class T, int wide> GPU_FN T *piece(T *tile, int row, int p)
{
    return tile + row * wide + (p ^ (row & 7)) * pieces<T>::n;
}
template <class T, int wide> GPU_FN T *piece_of(T *tile, int row, int col)
{
    return piece<T, wide>(tile, row, col / pieces<T>::n);
}

/* Piece p of row `row` where it cannot be copied: some of it is not there, or it lies anywhere. */
template <class T> GPU_FN void load_piece(T *to, const T *from, int left)
{
    T some[16 / sizeof(T)];
    gpu_16 raw;
    for (int k = 0; k < pieces<T>::n; k++)
        if (k < left) some[k] = from[k];
        else memset(&some[k], 0, sizeof(T));
    memcpy(&raw, some, sizeof raw);
    gpu_store(to, raw);
}
/* Rows [0, n) of `rows`, head_dim columns each, padded by zeros to a multiple of 16 columns; rows behind n are zeros.
 * Whole pieces that lie on 16 bytes are copied beside what else is done. A thread has the same piece of every row that
 * it loads. */
template <class T, int wide, int rows, int threads>
GPU_FN void load_tile(T *tile, const T *from, int64_t step, int64_t n, int cols)
{
    const int e = pieces<T>::n, per_row = wide / e, at_once = threads / per_row;
    int p = gpu_thread() % per_row;
    if (p * e >= (cols + 15) / 16 * 16) return;
    const T *x = from + gpu_thread() / per_row * step + p * e;
    GPU_ROLLED
    for (int row = gpu_thread() / per_row; row < rows; row += at_once, x += at_once * step) {
        int left = row < n ? cols - p * e : 0;
        T *to = piece<T, wide>(tile, row, p);
        if (left >= e && (uintptr_t)x % 16 == 0) gpu_copy16(to, x);
        else load_piece(to, x, left);
    }
}

/* ---- products ---- */
GPU_FN void multiply(float d[4], const uint32_t a[4], const uint32_t b[2], bf16_t) { gpu_mma_bf16(d, a, b); }
GPU_FN void multiply(float d[4], const uint32_t a[4], const uint32_t b[2], f16_t) { gpu_mma_f16(d, a, b); }

/* d + a b': rows `row` to row + 15 of a by all 8 n rows of b, summed over columns. */
template <class T, int wide, int n> struct by_rows {
    GPU_FN void add(float d[n][4], T *a, int row, T *b, int cols)
    {
        int lane = gpu_lane();
        GPU_ROLLED
        for (int at = 0; at < cols; at += 64) /* 64 columns on, pieces lie as they do here: few addresses are kept */
            GPU_UNROLL
            for (int k = at; k < at + 64; k += 16) {
                if (k >= cols) continue;
                uint32_t x[4];
                gpu_ldmatrix(x, piece_of<T, wide>(a, row + lane % 16, k + lane / 16 * 8));
                GPU_UNROLL
                for (int j = 0; j < n; j += 2) {
                    uint32_t y[4];
                    gpu_ldmatrix(y, piece_of<T, wide>(b, j * 8 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8));
                    multiply(d[j], x, y, T());
                    multiply(d[j + 1], x, y + 2, T());
                }
            }
    }
};
struct alignas(16) four {
    float v[4];
};
struct alignas(8) two {
    float v[2];
};
template <int wide, int n> struct by_rows<float, wide, n> {
    GPU_FN void add(float d[n][4], float *a, int row, float *b, int cols)
    {
        int lane = gpu_lane();
        GPU_ROLLED
        for (int k = 0; k < cols; k += 4) {
            four x[2] = {gpu_load<four>(piece_of<float, wide>(a, row + lane / 4, k)),
                         gpu_load<four>(piece_of<float, wide>(a, row + lane / 4 + 8, k))};
            GPU_UNROLL
            for (int j = 0; j < n; j++)
                GPU_UNROLL
                for (int c = 0; c < 2; c++) {
                    four y = gpu_load<four>(piece_of<float, wide>(b, j * 8 + lane % 4 * 2 + c, k));
                    GPU_UNROLL
                    for (int r = 0; r < 2; r++)
                        GPU_UNROLL
                        for (int i = 0; i < 4; i++) d[j][r * 2 + c] = gpu_fma(x[r].v[i], y.v[i], d[j][r * 2 + c]);
                }
        }
    }
};

/* d + p b: p, 16 x 8 n, as a product left it; b has 8 n rows. Columns `first` and on, 8 m of them. */
template <class T, int wide, int n, int m> struct by_columns {
    GPU_FN void add(float d[m][4], const float p[n][4], T *b, int cols)
    {
        int lane = gpu_lane();
        GPU_UNROLL
        for (int k = 0; k < n; k += 2) {
            uint32_t x[4] = {gpu_two(p[k][0], p[k][1], T()), gpu_two(p[k][2], p[k][3], T()),
                             gpu_two(p[k + 1][0], p[k + 1][1], T()), gpu_two(p[k + 1][2], p[k + 1][3], T())};
            GPU_UNROLL
            for (int j = 0; j < m; j += 2) {
                if (j * 8 >= cols) continue;
                uint32_t y[4];
                gpu_ldmatrix_t(y, piece_of<T, wide>(b, k * 8 + lane % 16, j * 8 + lane / 16 * 8));
                multiply(d[j], x, y, T());
                multiply(d[j + 1], x, y + 2, T());
            }
        }
    }
};
template <int wide, int n, int m> struct by_columns<float, wide, n, m> {
    GPU_FN void add(float d[m][4], const float p[n][4], float *b, int cols)
    {
        int lane = gpu_lane();
        GPU_UNROLL
        for (int k = 0; k < n * 2; k++) /* columns 8 (k / 2) + k % 2, and those 2, 4 and 6 further */
            GPU_ROLLED
            for (int of = 0; of < 4; of++) { /* of four lanes that have the same rows, who has the column */
                int owner = lane / 4 * 4 + of, row = k / 2 * 8 + of * 2 + k % 2;
                float x[2] = {gpu_from(p[k / 2][k % 2], owner), gpu_from(p[k / 2][2 + k % 2], owner)};
                GPU_UNROLL
                for (int j = 0; j < m; j++) {
                    if (j * 8 >= cols) continue;
                    int col = j * 8 + lane % 4 * 2;
                    two y = gpu_load<two>(piece_of<float, wide>(b, row, col) + col % 4);
                    GPU_UNROLL
                    for (int i = 0; i < 4; i++) d[j][i] = gpu_fma(x[i / 2], y.v[i % 2], d[j][i]);
                }
            }
    }
};

/* ---- who sees whom ---- */
GPU_FN attention_row row_of(const attention_args &a, const attention_rows &side, int64_t b, int64_t i)
{
    attention_row r = {-1, 0, -1};
    if (i >= side.rows) return r;
    r.place = side.place ? side.place[i] : (int32_t)i;
    r.doc = a.doc ? a.doc[b * a.seq + r.place] : 0;
    r.token = a.token ? a.token[b * a.seq + r.place] : r.place;
    return r;
}
GPU_FN bool sees(const attention_args &a, const attention_row &q, const attention_row &k)
{
    if (q.place < 0 || k.place < 0) return false;
    if (a.prefix) return q.doc >> 1 == k.doc >> 1 && ((k.doc & 1) || (!(q.doc & 1) && k.place <= q.place));
    if (a.causal && k.place > q.place) return false;
    return q.doc == k.doc && (!a.window || k.token > q.token - a.window);
}
/* No row of q sees one of k, or perhaps some, or each sees all. */
enum sight { NOTHING, SOME, ALL };
GPU_FN sight tiles_see(const attention_args &a, const attention_tile &q, const attention_tile &k)
{
    bool one = q.doc_lo == q.doc_hi && k.doc_lo == k.doc_hi && q.doc_lo == k.doc_lo;
    if (q.doc_hi < k.doc_lo || k.doc_hi < q.doc_lo) return NOTHING;
    if (a.prefix && k.in_prefix) return one && k.in_prefix == k.rows ? ALL : SOME;
    if (a.causal && k.place_lo > q.place_hi) return NOTHING;
    if (a.window && k.token_hi <= q.token_lo - a.window) return NOTHING;
    if (a.prefix) return one && !q.in_prefix && k.place_hi <= q.place_lo ? ALL : SOME;
    return one && (!a.causal || k.place_hi <= q.place_lo) && (!a.window || k.token_lo > q.token_hi - a.window) ? ALL
                                                                                                               : SOME;
}
/* The first of tiles [t, n) that the block's tile sees, or is seen by; n: none. By a whole warp, 32 tiles at a time. */
template <bool of_keys>
GPU_FN int64_t next_tile(const attention_args &a, const attention_tile &mine, const attention_tile *others, int64_t t,
                         int64_t n)
{
    for (; t < n; t += GPU_WARP) {
        int64_t i = t + gpu_lane();
        bool some = i < n && (of_keys ? tiles_see(a, mine, others[i]) : tiles_see(a, others[i], mine)) != NOTHING;
        uint32_t all = gpu_ballot(some);
        if (all) return t + gpu_lowest(all);
    }
    return n;
}

/* Row i of parts `first` and on is of one of their chunks: of part r chunks r and 2 parts - 1 - r of 2 parts ones, cut
 * as team_split does (layout/sequence.h). */
GPU_KERNEL(attention_places, attention_places_args, ATTENTION_THREADS)
{
    int64_t row = gpu_block() * ATTENTION_THREADS + gpu_thread(), i = row, n = 2 * (int64_t)a.parts;
    if (row >= a.rows) return;
    for (int64_t part = a.first;; part++)
        for (int64_t tail = 0; tail < 2; tail++) {
            int64_t chunk = tail ? n - 1 - part : part, more = a.seq % n, rows = a.seq / n + (chunk < more);
            if (i < rows) {
                a.place[row] = (int32_t)(a.seq / n * chunk + (chunk < more ? chunk : more) + i);
                return;
            }
            i -= rows;
        }
}

GPU_FN int warp_least(int v)
{
    for (int by = GPU_WARP / 2; by; by /= 2) {
        int w = gpu_xor(v, by);
        v = w < v ? w : v;
    }
    return v;
}
/* A warp makes the bounds of a tile. */
GPU_KERNEL(attention_tiles, attention_tiles_args, ATTENTION_THREADS)
{
    int64_t t = gpu_block() * (ATTENTION_THREADS / GPU_WARP) + gpu_warp();
    if (t >= a.all) return;
    int64_t b = t / a.tiles, lo = t % a.tiles * a.each, hi = lo + a.each < a.rows ? lo + a.each : a.rows;
    int low[3] = {INT32_MAX, INT32_MAX, INT32_MAX}, high[3] = {INT32_MAX, INT32_MAX, INT32_MAX}, marked = 0;
    for (int64_t i = lo + gpu_lane(); i < hi; i += GPU_WARP) {
        int place = a.place ? a.place[i] : (int)i, doc = a.doc ? a.doc[b * a.seq + place] : 0;
        int v[3] = {place, a.prefix ? doc >> 1 : doc, a.token ? a.token[b * a.seq + place] : place};
        for (int k = 0; k < 3; k++) { /* ~v: the greatest is the least of these */
            if (v[k] < low[k]) low[k] = v[k];
            if (~v[k] < high[k]) high[k] = ~v[k];
        }
        marked += a.prefix && (doc & 1);
    }
    for (int k = 0; k < 3; k++) {
        low[k] = warp_least(low[k]);
        high[k] = ~warp_least(high[k]);
    }
    for (int by = GPU_WARP / 2; by; by /= 2) marked += gpu_xor(marked, by);
    if (gpu_lane()) return;
    a.tile[t] = {low[0], high[0], low[1], high[1], low[2], high[2], marked, (int32_t)(hi - lo)};
}

/* ---- scores and dropout ---- */
/* Products q.k become scores. */
template <int n> GPU_FN void make_scores(const attention_args &a, float y[n][4])
{
    if (a.cap > 0) {
        float by = a.scale / a.cap, to = a.cap * LOG2E;
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++) y[j][i] = to * tanhf(y[j][i] * by);
    } else {
        float by = a.scale * LOG2E;
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++) y[j][i] *= by;
    }
}

/* Whether dropout keeps pairs (i, j) of a head: words of a counter (kernel/dropout.h). Of four words the last are kept
 * in mind. */
struct dropper {
    uint64_t block, first; /* first: index of pair (0, 0) */
    uint32_t word[4];
};
GPU_FN dropper dropper_of(const attention_args &a, int64_t b, int64_t h)
{
    dropper d;
    uint64_t seq = (uint64_t)a.seq;
    d.block = ~(uint64_t)0;
    d.first = (a.drop_row + (uint64_t)b * a.drop_heads + (uint64_t)h) * seq * seq;
    for (int i = 0; i < 4; i++) d.word[i] = 0;
    return d;
}
GPU_FN bool kept(const attention_args &a, dropper &d, int32_t i, int32_t j)
{
    uint64_t index = d.first + (uint64_t)((int64_t)i * a.seq + j);
    if (index / 4 != d.block) {
        d.block = index / 4;
        philox_block(a.seed, a.stream, d.block, d.word);
    }
    uint32_t w[2] = {index & 1 ? d.word[1] : d.word[0], index & 1 ? d.word[3] : d.word[2]};
    return (index & 2 ? w[1] : w[0]) >= a.drop_below;
}

/* Bit 4 j + i: of eight j the lane's pair i, of one of its two rows and one of the tile's. Loops that stay loops: what
 * they do is long. `of_keys`: the lane's rows are keys. */
template <int n, bool of_keys>
GPU_FN uint32_t seen_pairs(const attention_args &a, const attention_row mine[2], const attention_row *others)
{
    uint32_t seen = 0;
    GPU_ROLLED
    for (int k = 0; k < n * 4; k++) {
        attention_row x = k & 2 ? mine[1] : mine[0], y = others[k / 4 * 8 + gpu_lane() % 4 * 2 + k % 2];
        seen |= (uint32_t)(of_keys ? sees(a, y, x) : sees(a, x, y)) << k;
    }
    return seen;
}
template <int n, bool of_keys>
GPU_FN uint32_t kept_pairs(const attention_args &a, dropper d, const attention_row mine[2], const attention_row *others)
{
    uint32_t keep = 0;
    GPU_ROLLED
    for (int k = 0; k < n * 4; k++) {
        int x = k & 2 ? mine[1].place : mine[0].place, y = others[k / 4 * 8 + gpu_lane() % 4 * 2 + k % 2].place;
        keep |= (uint32_t)(of_keys ? kept(a, d, y, x) : kept(a, d, x, y)) << k;
    }
    return keep;
}

GPU_FN float of_four(float v, bool max) /* over the lanes that have the same rows */
{
    for (int by = 1; by <= 2; by *= 2) {
        float w = gpu_xor(v, by);
        v = max ? fmaxf(v, w) : v + w;
    }
    return v;
}

/* ---- results ---- */
/* Two neighbours of a row, of which `left` are there. */
template <class T> GPU_FN void put_two(T *p, float x, float y, int left)
{
    gpu_put(p, x);
    if (left > 1) gpu_put(p + 1, y);
}
/* Rows of d, `by` times as large, plus what was there, to columns of a head: at `to`, n rows of which are there. */
template <class T, int m>
GPU_FN void put_rows(const attention_args &a, int which, const float d[m][4], const float by[2],
                     const float before_by[2], int64_t row, int64_t n, int64_t col)
{
    const T *from = (const T *)a.from[which] + row * a.from_step[which] + col;
    T *to = (T *)a.to[which] + row * a.to_step[which] + col;
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        int64_t i = gpu_warp() * 16 + gpu_lane() / 4 + r * 8;
        if (i >= n) continue;
        GPU_UNROLL
        for (int j = 0; j < m; j++) {
            int c = j * 8 + gpu_lane() % 4 * 2;
            if (c >= a.head_dim) continue;
            float x = d[j][r * 2] * by[r], y = d[j][r * 2 + 1] * by[r];
            if (a.from[which] && before_by[r] != 0) {
                x += gpu_get(from + i * a.from_step[which] + c) * before_by[r];
                if (c + 1 < a.head_dim) y += gpu_get(from + i * a.from_step[which] + c + 1) * before_by[r];
            }
            put_two(to + i * a.to_step[which] + c, x, y, a.head_dim - c);
        }
    }
}
template <class T, int m>
GPU_FN void put_result(const attention_args &a, int which, const float d[m][4], const float by[2],
                       const float before_by[2], int64_t row, int64_t n, int64_t col)
{
    if (a.wide_out) put_rows<float, m>(a, which, d, by, before_by, row, n, col);
    else put_rows<T, m>(a, which, d, by, before_by, row, n, col);
}

/* ---- forward ---- */
template <class T, int wide, bool backward> struct sizes {
    static const int bytes = (int)sizeof(T);
    static const int threads = GPU_WARP * ATTENTION_WARPS(bytes, wide), outer = ATTENTION_OUTER(bytes, wide);
    static const int inner = ATTENTION_INNER(bytes, wide, backward), stages = ATTENTION_STAGES(bytes, wide);
    static const int n = inner / 8, m = wide / 8; /* eights of columns: of scores, of a head */
};
template <class T, int wide> struct forward_shared {
    T q[sizes<T, wide, false>::outer * wide], k[sizes<T, wide, false>::inner * wide],
        v[sizes<T, wide, false>::inner * wide];
    attention_row keys[sizes<T, wide, false>::inner];
};

/* A block's tile, head and sequence. Heads that read the same keys are neighbours. */
struct task {
    int64_t tile, head, b;
};
GPU_FN task task_here(int64_t heads, int64_t batch)
{
    int64_t i = gpu_block(), each = heads * batch;
    return {i / each, i % each % heads, i % each / heads};
}
/* The longest first: under a causal mask the last queries see most keys. */
GPU_FN task queries_here(const attention_args &a, int outer)
{
    task t = task_here(a.heads, a.batch);
    t.tile = (a.queries.rows + outer - 1) / outer - 1 - t.tile;
    return t;
}
GPU_FN int64_t kv_of(const attention_args &a, int64_t h) { return (a.head_first + h) / a.group - a.kv_first; }

/* The scores of two rows of a lane become weights beside the largest so far, which grows; what was summed shrinks. */
template <int n, int m> GPU_FN void weigh(float y[n][4], float o[m][4], float most[2], float sum[2])
{
    GPU_UNROLL
    for (int r = 0; r < 2; r++) {
        float top = most[r];
        GPU_UNROLL
        for (int j = 0; j < n; j++) top = fmaxf(top, fmaxf(y[j][r * 2], y[j][r * 2 + 1]));
        top = of_four(top, true);
        float base = top > -INFINITY ? top : 0, shrink = exp2f(most[r] - base);
        most[r] = top;
        sum[r] *= shrink;
        GPU_UNROLL
        for (int j = 0; j < m; j++) {
            o[j][r * 2] *= shrink;
            o[j][r * 2 + 1] *= shrink;
        }
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = r * 2; i < r * 2 + 2; i++) {
                y[j][i] = exp2f(y[j][i] - base);
                sum[r] += y[j][i];
            }
    }
}

template <class T, int wide> GPU_FN void forward(const attention_args &a)
{
    using S = sizes<T, wide, false>;
    const int outer = S::outer, inner = S::inner, n = S::n, m = S::m;
    forward_shared<T, wide> *s = gpu_shared<forward_shared<T, wide>>();
    task at = queries_here(a, outer);
    int64_t tiles = (a.keys.rows + inner - 1) / inner, q_tiles = (a.queries.rows + outer - 1) / outer;
    int64_t first = at.tile * outer, row = at.b * a.queries.rows + first, col = at.head * a.head_dim;
    int64_t kv = kv_of(a, at.head) * a.head_dim;
    const T *k = (const T *)a.k + at.b * a.keys.rows * a.k_step + kv,
            *v = (const T *)a.v + at.b * a.keys.rows * a.v_step + kv;
    const attention_tile mine = a.queries.outer[at.b * q_tiles + at.tile], *others = a.keys.inner + at.b * tiles;
    int lane = gpu_lane(), in_tile = gpu_warp() * 16 + lane / 4;
    attention_row asks[2] = {row_of(a, a.queries, at.b, first + in_tile),
                             row_of(a, a.queries, at.b, first + in_tile + 8)};
    float o[m][4] = {}, most[2] = {-INFINITY, -INFINITY}, sum[2] = {0, 0};
    dropper drop = dropper_of(a, at.b, at.head);

    load_tile<T, wide, outer, S::threads>(s->q, (const T *)a.q + row * a.q_step + col, a.q_step, a.queries.rows - first,
                                          a.head_dim);
    int64_t t = next_tile<true>(a, mine, others, 0, tiles);
    if (t < tiles)
        load_tile<T, wide, inner, S::threads>(s->k, k + t * inner * a.k_step, a.k_step, a.keys.rows - t * inner,
                                              a.head_dim);
    gpu_copies_end();
    while (t < tiles) {
        gpu_copies_wait<0>();
        gpu_sync(); /* the keys are there, and nobody needs the values before them any more */
        load_tile<T, wide, inner, S::threads>(s->v, v + t * inner * a.v_step, a.v_step, a.keys.rows - t * inner,
                                              a.head_dim);
        gpu_copies_end();
        for (int i = gpu_thread(); i < inner; i += gpu_threads()) s->keys[i] = row_of(a, a.keys, at.b, t * inner + i);
        bool whole = tiles_see(a, mine, others[t]) == ALL && (t + 1) * inner <= a.keys.rows;
        float y[n][4] = {};
        by_rows<T, wide, n>::add(y, s->q, gpu_warp() * 16, s->k, a.head_dim);
        gpu_copies_wait<0>();
        gpu_sync(); /* the values are there, and nobody needs the keys */
        t = next_tile<true>(a, mine, others, t + 1, tiles);
        if (t < tiles)
            load_tile<T, wide, inner, S::threads>(s->k, k + t * inner * a.k_step, a.k_step, a.keys.rows - t * inner,
                                                  a.head_dim);
        gpu_copies_end();
        uint32_t seen = whole ? ~0u : seen_pairs<n, false>(a, asks, s->keys), keep = ~0u;
        if (a.drops) keep = kept_pairs<n, false>(a, drop, asks, s->keys);
        make_scores<n>(a, y);
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++) y[j][i] = seen >> (j * 4 + i) & 1 ? y[j][i] : -INFINITY;
        weigh<n, m>(y, o, most, sum);
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++) y[j][i] = keep >> (j * 4 + i) & 1 ? y[j][i] : 0;
        by_columns<T, wide, n, m>::add(o, y, s->v, a.head_dim);
    }
    gpu_copies_wait<0>();

    /* Put together with what other keys left, or with a sink, whose value is 0. */
    float by[2], before_by[2];
    for (int r = 0; r < 2; r++) {
        bool there = asks[r].place >= 0;
        float *lse = a.lse + (row + in_tile + r * 8) * a.lse_step + at.head;
        float before = !there   ? -INFINITY
                       : a.more ? *lse * LOG2E
                       : a.sink ? gpu_get((const T *)a.sink + at.head) * LOG2E
                                : -INFINITY;
        float top = fmaxf(most[r], before), base = top > -INFINITY ? top : 0;
        float here = exp2f(most[r] - base), all = of_four(sum[r], false) * here + exp2f(before - base);
        float part = all > 0 ? 1 / all : 0;
        by[r] = here * part * a.drop_scale;
        before_by[r] = exp2f(before - base) * part;
        if (a.more) gpu_sync_warp(0xffffffffu); /* the lanes of a row have read what is replaced */
        if (there && lane % 4 == 0) *lse = all > 0 ? (base + log2f(all)) * LN2 : -INFINITY;
    }
    put_result<T, m>(a, 0, o, by, before_by, row, a.queries.rows - first, col);
}

/* ---- backward ---- */
template <class T> GPU_FN void deltas(const attention_args &a)
{
    const int n = gpu_some<T>::n;
    int64_t item = gpu_block() * (ATTENTION_THREADS / GPU_WARP) + gpu_warp();
    if (item >= a.batch * a.queries.rows * a.heads) return;
    int64_t row = item / a.heads, col = item % a.heads * a.head_dim;
    const T *o = (const T *)a.o + row * a.o_step + col, *grad = (const T *)a.grad + row * a.grad_step + col;
    float sum = 0;
    for (int i = gpu_lane() * n; i < a.head_dim; i += GPU_WARP * n) {
        gpu_some<T> x = gpu_get_some(o + i, a.head_dim - i), y = gpu_get_some(grad + i, a.head_dim - i);
        for (int k = 0; k < n; k++) sum = gpu_fma(x.v[k], y.v[k], sum);
    }
    sum = gpu_warp_sum(sum);
    if (gpu_lane() == 0) a.delta[item] = sum;
}

struct sums { /* what backward knows of a query */
    float lse, delta; /* lse in units of ln 2 */
};
GPU_FN sums sums_of(const attention_args &a, const task &at, int64_t i)
{
    if (i >= a.queries.rows) return {0, 0};
    int64_t row = at.b * a.queries.rows + i;
    return {a.lse[row * a.lse_step + at.head] * LOG2E, a.delta[row * a.heads + at.head]};
}

template <class T, int wide> struct backward_shared {
    T mine[2][sizes<T, wide, true>::outer * wide],
        other[sizes<T, wide, true>::stages][2][sizes<T, wide, true>::inner * wide];
    attention_row rows[sizes<T, wide, true>::stages][sizes<T, wide, true>::inner];
    sums known[sizes<T, wide, true>::stages][sizes<T, wide, true>::inner]; /* of queries */
};

/* Of a pair with score y and dp = v.grad: what multiplies grad in dv, and the gradient of the scaled product. flat: 1 /
 * cap in units of ln 2, 0 without: the slope is 1 - tanh squared. */
GPU_FN void pair_backward(float drop_scale, float flat, bool seen, bool keep, const sums &q, float &y, float &dp)
{
    float t = y * flat, p = seen ? exp2f(y - q.lse) : 0, factor = keep ? drop_scale : 0;
    dp = seen ? (1 - t * t) * p * (factor * dp - q.delta) : 0;
    y = p * factor;
}
GPU_FN float flat_of(const attention_args &a) { return a.cap > 0 ? 1 / (a.cap * LOG2E) : 0; }

enum wanted { DK = 1, DV = 2 };

/* The queries of tile t of a head, with their gradients. */
template <class T, int wide>
GPU_FN void load_queries(const attention_args &a, backward_shared<T, wide> *s, int stage, const task &at, int64_t t)
{
    using S = sizes<T, wide, true>;
    const int inner = S::inner;
    int64_t first = t * inner, row = at.b * a.queries.rows + first, col = at.head * a.head_dim,
            left = a.queries.rows - first;
    load_tile<T, wide, inner, S::threads>(s->other[stage][0], (const T *)a.q + row * a.q_step + col, a.q_step, left,
                                          a.head_dim);
    load_tile<T, wide, inner, S::threads>(s->other[stage][1], (const T *)a.grad + row * a.grad_step + col, a.grad_step,
                                          left, a.head_dim);
    for (int i = gpu_thread(); i < inner; i += gpu_threads()) {
        s->rows[stage][i] = row_of(a, a.queries, at.b, first + i);
        s->known[stage][i] = sums_of(a, at, first + i);
    }
    gpu_copies_end();
}

/* dk and dv, or one of them where a lane has no registers for both, of a tile of keys. at.head: a head of keys. */
template <class T, int wide, int wants> GPU_FN void keys_backward(const attention_args &a)
{
    using S = sizes<T, wide, true>;
    const int outer = S::outer, inner = S::inner, n = S::n, m = S::m;
    backward_shared<T, wide> *s = gpu_shared<backward_shared<T, wide>>();
    task at = task_here(a.kv_heads, a.batch);
    int64_t tiles = (a.queries.rows + inner - 1) / inner, k_tiles = (a.keys.rows + outer - 1) / outer;
    int64_t first = at.tile * outer, row = at.b * a.keys.rows + first, col = at.head * a.head_dim,
            left = a.keys.rows - first;
    const attention_tile mine = a.keys.outer[at.b * k_tiles + at.tile], *others = a.queries.inner + at.b * tiles;
    int lane = gpu_lane(), in_tile = gpu_warp() * 16 + lane / 4;
    attention_row asks[2] = {row_of(a, a.keys, at.b, first + in_tile), row_of(a, a.keys, at.b, first + in_tile + 8)};
    float dk[m][4] = {}, dv[m][4] = {}, flat = flat_of(a);
    /* The query heads that read these keys (kernel/attention_heads.h), one after the other. */
    int64_t lo = (a.kv_first + at.head) * a.group - a.head_first, hi = lo + a.group;
    if (lo < 0) lo = 0;
    if (hi > a.heads) hi = a.heads;

    load_tile<T, wide, outer, S::threads>(s->mine[0], (const T *)a.k + row * a.k_step + col, a.k_step, left,
                                          a.head_dim);
    if (wants & DK)
        load_tile<T, wide, outer, S::threads>(s->mine[1], (const T *)a.v + row * a.v_step + col, a.v_step, left,
                                              a.head_dim);
    gpu_copies_end();
    int64_t begin = next_tile<false>(a, mine, others, 0, tiles), t = begin;
    task q = {0, lo, at.b};
    if (begin == tiles) q.head = hi;
    if (S::stages > 1 && q.head < hi) load_queries<T, wide>(a, s, 0, q, t);
    for (int stage = 0; q.head < hi; stage ^= S::stages - 1) {
        if (S::stages == 1) {
            gpu_sync(); /* nobody needs the tile before any more */
            load_queries<T, wide>(a, s, 0, q, t);
        }
        gpu_copies_wait<0>();
        gpu_sync();
        bool whole = tiles_see(a, others[t], mine) == ALL && (t + 1) * inner <= a.queries.rows;
        dropper drop = dropper_of(a, q.b, q.head);
        t = next_tile<false>(a, mine, others, t + 1, tiles);
        if (t == tiles) {
            t = begin;
            q.head++;
        }
        if (S::stages > 1 && q.head < hi) load_queries<T, wide>(a, s, !stage, q, t);

        float y[n][4] = {}, dp[n][4] = {};
        by_rows<T, wide, n>::add(y, s->mine[0], gpu_warp() * 16, s->other[stage][0], a.head_dim);
        if (wants & DK) by_rows<T, wide, n>::add(dp, s->mine[1], gpu_warp() * 16, s->other[stage][1], a.head_dim);
        uint32_t seen = whole ? ~0u : seen_pairs<n, true>(a, asks, s->rows[stage]), keep = ~0u;
        if (a.drops) keep = kept_pairs<n, true>(a, drop, asks, s->rows[stage]);
        make_scores<n>(a, y);
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++)
                pair_backward(a.drop_scale, flat, seen >> (j * 4 + i) & 1, keep >> (j * 4 + i) & 1,
                              s->known[stage][j * 8 + lane % 4 * 2 + i % 2], y[j][i], dp[j][i]);
        if (wants & DV) by_columns<T, wide, n, m>::add(dv, y, s->other[stage][1], a.head_dim);
        if (wants & DK) by_columns<T, wide, n, m>::add(dk, dp, s->other[stage][0], a.head_dim);
    }
    gpu_copies_wait<0>();
    float by[2] = {a.scale, a.scale}, one[2] = {1, 1};
    if (wants & DK && a.to[1]) put_result<T, m>(a, 1, dk, by, one, row, left, col);
    if (wants & DV && a.to[2]) put_result<T, m>(a, 2, dv, one, one, row, left, col);
}

/* The keys and values of tile t. */
template <class T, int wide>
GPU_FN void load_keys(const attention_args &a, backward_shared<T, wide> *s, int stage, const task &at, int64_t t)
{
    using S = sizes<T, wide, true>;
    const int inner = S::inner;
    int64_t first = t * inner, row = at.b * a.keys.rows + first, col = kv_of(a, at.head) * a.head_dim,
            left = a.keys.rows - first;
    load_tile<T, wide, inner, S::threads>(s->other[stage][0], (const T *)a.k + row * a.k_step + col, a.k_step, left,
                                          a.head_dim);
    load_tile<T, wide, inner, S::threads>(s->other[stage][1], (const T *)a.v + row * a.v_step + col, a.v_step, left,
                                          a.head_dim);
    for (int i = gpu_thread(); i < inner; i += gpu_threads()) s->rows[stage][i] = row_of(a, a.keys, at.b, first + i);
    gpu_copies_end();
}

template <class T, int wide> GPU_FN void queries_backward(const attention_args &a)
{
    using S = sizes<T, wide, true>;
    const int outer = S::outer, inner = S::inner, n = S::n, m = S::m;
    backward_shared<T, wide> *s = gpu_shared<backward_shared<T, wide>>();
    task at = queries_here(a, outer);
    int64_t tiles = (a.keys.rows + inner - 1) / inner, q_tiles = (a.queries.rows + outer - 1) / outer;
    int64_t first = at.tile * outer, row = at.b * a.queries.rows + first, col = at.head * a.head_dim,
            left = a.queries.rows - first;
    const attention_tile mine = a.queries.outer[at.b * q_tiles + at.tile], *others = a.keys.inner + at.b * tiles;
    int in_tile = gpu_warp() * 16 + gpu_lane() / 4;
    attention_row asks[2] = {row_of(a, a.queries, at.b, first + in_tile),
                             row_of(a, a.queries, at.b, first + in_tile + 8)};
    sums known[2] = {sums_of(a, at, first + in_tile), sums_of(a, at, first + in_tile + 8)};
    float dq[m][4] = {}, flat = flat_of(a);
    dropper drop = dropper_of(a, at.b, at.head);

    load_tile<T, wide, outer, S::threads>(s->mine[0], (const T *)a.q + row * a.q_step + col, a.q_step, left,
                                          a.head_dim);
    load_tile<T, wide, outer, S::threads>(s->mine[1], (const T *)a.grad + row * a.grad_step + col, a.grad_step, left,
                                          a.head_dim);
    gpu_copies_end();
    int64_t t = next_tile<true>(a, mine, others, 0, tiles);
    if (S::stages > 1 && t < tiles) load_keys<T, wide>(a, s, 0, at, t);
    for (int stage = 0; t < tiles; stage ^= S::stages - 1) {
        if (S::stages == 1) {
            gpu_sync();
            load_keys<T, wide>(a, s, 0, at, t);
        }
        gpu_copies_wait<0>();
        gpu_sync();
        bool whole = tiles_see(a, mine, others[t]) == ALL && (t + 1) * inner <= a.keys.rows;
        t = next_tile<true>(a, mine, others, t + 1, tiles);
        if (S::stages > 1 && t < tiles) load_keys<T, wide>(a, s, !stage, at, t);

        float y[n][4] = {}, dp[n][4] = {};
        by_rows<T, wide, n>::add(y, s->mine[0], gpu_warp() * 16, s->other[stage][0], a.head_dim);
        by_rows<T, wide, n>::add(dp, s->mine[1], gpu_warp() * 16, s->other[stage][1], a.head_dim);
        uint32_t seen = whole ? ~0u : seen_pairs<n, false>(a, asks, s->rows[stage]), keep = ~0u;
        if (a.drops) keep = kept_pairs<n, false>(a, drop, asks, s->rows[stage]);
        make_scores<n>(a, y);
        GPU_UNROLL
        for (int j = 0; j < n; j++)
            GPU_UNROLL
            for (int i = 0; i < 4; i++)
                pair_backward(a.drop_scale, flat, seen >> (j * 4 + i) & 1, keep >> (j * 4 + i) & 1, known[i / 2],
                              y[j][i], dp[j][i]);
        by_columns<T, wide, n, m>::add(dq, dp, s->other[stage][0], a.head_dim);
    }
    gpu_copies_wait<0>();
    float by[2] = {a.scale, a.scale}, one[2] = {1, 1};
    put_result<T, m>(a, 0, dq, by, one, row, left, col);
}

/* dsink_h = - sum over queries of exp(sink_h - lse) delta: a block for each head. */
template <class T> GPU_FN void sinks(const attention_sink_args &a)
{
    int64_t h = gpu_block();
    float sink = gpu_get((const T *)a.sink + h) * LOG2E, sum = 0;
    for (int64_t t = gpu_thread(); t < a.rows; t += gpu_threads())
        sum -= exp2f(sink - a.lse[t * a.lse_step + h] * LOG2E) * a.delta[t * a.heads + h];
    sum = gpu_block_sum(sum, gpu_shared<attention_sink_shared>()->room);
    if (gpu_thread() == 0) a.to[h] = (a.from ? a.from[h] : 0) + sum;
}

#define THREADS(T, wide) (GPU_WARP * ATTENTION_WARPS((int)sizeof(T), wide))
#define SIZED(type, T, wide)                                                                                           \
    GPU_KERNEL(attention_fwd_##wide##_##type, attention_args, THREADS(T, wide)) { forward<T, wide>(a); }               \
    GPU_KERNEL(attention_dq_##wide##_##type, attention_args, THREADS(T, wide)) { queries_backward<T, wide>(a); }
#define BOTH(type, T, wide)                                                                                            \
    GPU_KERNEL(attention_dkv_##wide##_##type, attention_args, THREADS(T, wide)) { keys_backward<T, wide, DK | DV>(a); }
#define TYPED(type, T)                                                                                                 \
    SIZED(type, T, 64)                                                                                                 \
    SIZED(type, T, 128)                                                                                                \
    SIZED(type, T, 256)                                                                                                \
    BOTH(type, T, 64)                                                                                                  \
    BOTH(type, T, 128)                                                                                                 \
    GPU_KERNEL(attention_dk_256_##type, attention_args, THREADS(T, 256)) { keys_backward<T, 256, DK>(a); }             \
    GPU_KERNEL(attention_dv_256_##type, attention_args, THREADS(T, 256)) { keys_backward<T, 256, DV>(a); }             \
    GPU_KERNEL(attention_delta_##type, attention_args, ATTENTION_THREADS) { deltas<T>(a); }                            \
    GPU_KERNEL(attention_sink_##type, attention_sink_args, ATTENTION_THREADS) { sinks<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
