/* SPDX-License-Identifier: Apache-2.0 */
/* Updates, to the bit what kernel/ref/update.c and ref/flat.c write out: every product that is added to something is a
 * fused multiply-add there, and nothing else is. One pass over the arrays, bound by memory. What a step's words make of
 * the factors the first thread of each block makes; where they say that a step is left out nothing is written. */
#include "kernel/cuda/gpu_update_args.h"

#include "base/philox.h"
#include "kernel/cuda/gpu_array.h"

GPU_FN change_shared *shared_here() { return gpu_shared<change_shared>(); }

/* ---- factors ---- */
/* What a kind makes of its factors once, in `own`. */
GPU_FN void adamw_own(const float *f, float *own)
{
    struct adamw_step s = adamw_step_of(f[ADAMW_LR], f[ADAMW_DECAY], f[ADAMW_BIAS1], f[ADAMW_BIAS2]);
    own[0] = s.decay;
    own[1] = s.root_scale;
    own[2] = s.step;
}
GPU_FN void unit_own(const change_args &a, const float *f, float *own)
{
    own[0] = (float)gpu_div(1.0, gpu_add(sqrt(*(const double *)a.p[UNIT_SUM]), (double)f[UNIT_EPS]));
}
GPU_FN void factor_apply_own(const change_args &a, const float *f, float *own)
{
    const double *size = (const double *)a.p[FACTOR_APPLY_SIZE];
    double n = (double)a.whole, lr = (double)f[FACTOR_APPLY_LR];
    double over = sqrt(size[0] / n) / (double)f[FACTOR_APPLY_CLIP];
    if (a.flag) lr = gpu_mul(lr, fmax((double)f[FACTOR_APPLY_LEAST], sqrt(size[1] / n)));
    own[0] = (float)(-lr / fmax(1.0, over));
    own[1] = (float)gpu_mul(-lr, (double)f[FACTOR_APPLY_DECAY]);
}

/* False in all threads of the block: nothing changes. Needs a block without ended threads. */
template <int kind> GPU_FN bool begins(const change_args &a)
{
    change_shared *s = shared_here();
    if (gpu_thread() == 0) {
        s->goes = !a.words || a.words[WORD_GOES] != 0;
        s->stream = a.stream;
        for (int i = 0; i < 8; i++) s->f[i] = a.f[i];
        if (a.words && s->goes) {
            update_factors_by(kind, a.flag != 0, a.scale_at, a.whole, s->f, a.g, a.words);
            if (kind == UPDATE_ROUND) s->stream = philox_stream_at(a.stream, (uint64_t)a.words[WORD_MADE]);
        }
        if (kind == UPDATE_ADAMW) adamw_own(s->f, s->own);
        if (kind == UPDATE_UNIT && s->goes) unit_own(a, s->f, s->own);
        if (kind == UPDATE_FACTOR_APPLY && s->goes) factor_apply_own(a, s->f, s->own);
    }
    gpu_sync();
    return s->goes != 0;
}

/* ---- operands: f32 or bf16 ---- */
GPU_FN gpu_eight get(const change_args &a, int k, int64_t i)
{
    if (a.t[k] == FLAT_BF16) return gpu_get8((const bf16_t *)a.p[k] + i, a.n - i);
    return gpu_get8((const float *)a.p[k] + i, a.n - i);
}
GPU_FN void put(const change_args &a, int k, int64_t i, const gpu_eight &x)
{
    if (a.t[k] == FLAT_BF16) gpu_put8((bf16_t *)a.p[k] + i, x, a.n - i);
    else gpu_put8((float *)a.p[k] + i, x, a.n - i);
}
/* The master, and its compute copy. */
GPU_FN void put_master(const change_args &a, int64_t i, const gpu_eight &x)
{
    put(a, 0, i, x);
    if (a.copy == FLAT_F32) gpu_put8((float *)a.p[a.copy_at] + i, x, a.n - i);
    if (a.copy == FLAT_BF16) gpu_put8((bf16_t *)a.p[a.copy_at] + i, x, a.n - i);
    if (a.copy == FLAT_F16) gpu_put8((f16_t *)a.p[a.copy_at] + i, x, a.n - i);
}

/* ---- eight elements of each kind ---- */
/* decay, root, step: adamw_step's. Makes the new moments and the new master of one element. */
GPU_FN void adamw_one(float g, float &m, float &v, float &p, float beta1, float beta2, float eps, float decay,
                      float root_scale, float step)
{
    m = gpu_fma(beta1, m, gpu_mul(1 - beta1, g));
    v = gpu_fma(beta2, v, gpu_mul(gpu_mul(1 - beta2, g), g));
    float root = gpu_fma(gpu_sqrt(v), root_scale, eps);
    p = gpu_fma(step, gpu_div(m, root), gpu_fma(decay, p, p));
}
GPU_FN void adamw(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f, *own = shared_here()->own;
    gpu_eight g = get(a, ADAMW_GRAD, i), m = get(a, ADAMW_M, i), v = get(a, ADAMW_V, i), p = get(a, ADAMW_MASTER, i);
    for (int k = 0; k < 8; k++)
        adamw_one(gpu_mul(g.v[k], f[ADAMW_SCALE]), m.v[k], v.v[k], p.v[k], f[ADAMW_BETA1], f[ADAMW_BETA2], f[ADAMW_EPS],
                  own[0], own[1], own[2]);
    put(a, ADAMW_M, i, m);
    put(a, ADAMW_V, i, v);
    put_master(a, i, p);
}
GPU_FN void adamw16(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight g = get(a, ADAMW16_GRAD, i), m = get(a, ADAMW16_M, i), v = get(a, ADAMW16_V, i),
              p = get(a, ADAMW16_MASTER, i);
    for (int k = 0; k < 8; k++)
        adamw_one(gpu_mul(g.v[k], f[ADAMW16_SCALE]), m.v[k], v.v[k], p.v[k], f[ADAMW16_BETA1], f[ADAMW16_BETA2],
                  f[ADAMW16_EPS], f[ADAMW16_DECAY], f[ADAMW16_ROOT], f[ADAMW16_STEP]);
    put(a, ADAMW16_M, i, m);
    put(a, ADAMW16_V, i, v);
    put_master(a, i, p);
}
GPU_FN void sgd(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight g = get(a, SGD_GRAD, i), p = get(a, SGD_MASTER, i);
    for (int k = 0; k < 8; k++) g.v[k] = gpu_fma(f[SGD_DECAY], p.v[k], gpu_mul(g.v[k], f[SGD_SCALE]));
    if (a.p[SGD_M]) {
        gpu_eight m = get(a, SGD_M, i);
        for (int k = 0; k < 8; k++) {
            m.v[k] = gpu_fma(f[SGD_MOMENTUM], m.v[k], g.v[k]);
            g.v[k] = a.flag ? gpu_fma(f[SGD_MOMENTUM], m.v[k], g.v[k]) : m.v[k];
        }
        put(a, SGD_M, i, m);
    }
    for (int k = 0; k < 8; k++) p.v[k] = gpu_fma(-f[SGD_LR], g.v[k], p.v[k]);
    put_master(a, i, p);
}
GPU_FN void lion(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight g = get(a, LION_GRAD, i), m = get(a, LION_M, i), p = get(a, LION_MASTER, i);
    for (int k = 0; k < 8; k++) {
        float x = gpu_mul(g.v[k], f[LION_SCALE]);
        float c = gpu_fma(f[LION_BETA1], m.v[k], gpu_mul(1 - f[LION_BETA1], x));
        m.v[k] = gpu_fma(f[LION_BETA2], m.v[k], gpu_mul(1 - f[LION_BETA2], x));
        p.v[k] = gpu_fma(-f[LION_LR], c > 0 ? 1.0f : c < 0 ? -1.0f : 0.0f, gpu_fma(f[LION_DECAY], p.v[k], p.v[k]));
    }
    put(a, LION_M, i, m);
    put_master(a, i, p);
}
GPU_FN void momentum(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight g = get(a, MOMENTUM_GRAD, i), m = get(a, MOMENTUM_M, i);
    for (int k = 0; k < 8; k++) {
        g.v[k] = gpu_mul(g.v[k], f[MOMENTUM_SCALE]);
        m.v[k] = gpu_fma(f[MOMENTUM_MU], m.v[k], g.v[k]);
        g.v[k] = a.flag ? gpu_fma(f[MOMENTUM_MU], m.v[k], g.v[k]) : m.v[k];
    }
    put(a, MOMENTUM_M, i, m);
    put(a, MOMENTUM_U, i, g);
}
GPU_FN void unit(const change_args &a, int64_t i)
{
    gpu_eight x = get(a, UNIT_FROM, i);
    for (int k = 0; k < 8; k++) x.v[k] = gpu_mul(x.v[k], shared_here()->own[0]);
    put(a, UNIT_TO, i, x);
}
GPU_FN void blend(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight x = get(a, BLEND_X, i), y = get(a, BLEND_Y, i);
    for (int k = 0; k < 8; k++) x.v[k] = gpu_fma(f[BLEND_A], x.v[k], gpu_mul(f[BLEND_B], y.v[k]));
    put(a, BLEND_TO, i, x);
}
GPU_FN void apply(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    gpu_eight o = get(a, APPLY_O, i), p = get(a, APPLY_MASTER, i);
    for (int k = 0; k < 8; k++) p.v[k] = gpu_fma(f[APPLY_STEP], o.v[k], gpu_fma(f[APPLY_DECAY], p.v[k], p.v[k]));
    put_master(a, i, p);
}
GPU_FN void average(const change_args &a, int64_t i)
{
    float keep = shared_here()->f[AVERAGE_KEEP];
    gpu_eight x = get(a, AVERAGE_TO, i), of = get(a, AVERAGE_OF, i);
    for (int k = 0; k < 8; k++) x.v[k] = gpu_fma(keep, x.v[k], gpu_mul(1 - keep, of.v[k]));
    put(a, AVERAGE_TO, i, x);
}

/* format_encode_random of bf16: what is cut off is the last 16 bits, in subnormals too. */
GPU_FN bf16_t round_up_or_down(float v, uint32_t random)
{
    uint32_t u = float_bits(v);
    if ((u & 0x7fffffff) >= 0x7f800000) return gpu_bf16(v);
    bf16_t b;
    b.bits = (uint16_t)((u >> 16) + (uint32_t)(((uint64_t)(u << 16) + random) >> 32));
    return b;
}
GPU_FN void round_by_chance(const change_args &a, int64_t i)
{
    gpu_eight x = get(a, ROUND_FROM, i);
    gpu_stored<bf16_t, 8> y;
    uint32_t four[4] = {0, 0, 0, 0};
    uint64_t word = 0, have = ~(uint64_t)0;
    int64_t in_a_row = 0;
    for (int k = 0; k < 8; k++) {
        if (in_a_row == 0) in_a_row = chance_words(a.at, a.box_cols, a.first, a.wide, i + k, 8 - k, &word);
        if (word / 4 != have) philox_block(a.seed, shared_here()->stream, have = word / 4, four);
        uint32_t low = word & 1 ? four[1] : four[0], high = word & 1 ? four[3] : four[2];
        y.t[k] = round_up_or_down(x.v[k], word & 2 ? high : low);
        word++;
        in_a_row--;
    }
    gpu_write<bf16_t, 8>((bf16_t *)a.p[ROUND_TO] + i, y, a.n - i);
}

/* ---- second moments in factors (kernel/factored.h) ---- */
/* factors[i] = keep * factors[i] + (1 - keep) * (scale * sums[i] + eps) */
GPU_FN void factor_keep(const change_args &a, int64_t i)
{
    const float *f = shared_here()->f;
    const double *sums = (const double *)a.p[FACTOR_KEEP_SUMS] + i;
    gpu_eight x = get(a, FACTOR_KEEP_TO, i);
    float keep = f[FACTOR_KEEP_KEEP];
    for (int k = 0; k < 8; k++) {
        double s = i + k < a.n ? sums[k] : 0;
        s = gpu_add(gpu_mul((double)f[FACTOR_KEEP_SCALE], s), (double)f[FACTOR_KEEP_EPS]);
        x.v[k] = gpu_fma(keep, x.v[k], gpu_mul(1 - keep, (float)s));
    }
    put(a, FACTOR_KEEP_TO, i, x);
}
/* What every element of row i is multiplied by, and then by the inverse root of its column's factor. */
GPU_FN float factor_row(const change_args &a, int rows, int mean, int scale, int64_t i)
{
    double r = (double)((const float *)a.p[rows])[i];
    return gpu_div(shared_here()->f[scale], gpu_sqrt((float)gpu_div(r, *(const double *)a.p[mean])));
}
GPU_FN void factor_apply(const change_args &a, int64_t i)
{
    const float *own = shared_here()->own, *c = (const float *)a.p[FACTOR_APPLY_COLS];
    gpu_eight g = get(a, FACTOR_APPLY_GRAD, i), w = get(a, FACTOR_APPLY_MASTER, i);
    int64_t row = i / a.cols, col = i % a.cols;
    float by = factor_row(a, FACTOR_APPLY_ROWS, FACTOR_APPLY_MEAN, FACTOR_APPLY_SCALE, row);
    for (int k = 0; k < 8 && i + k < a.n; k++) {
        if (col == a.cols) {
            col = 0;
            by = factor_row(a, FACTOR_APPLY_ROWS, FACTOR_APPLY_MEAN, FACTOR_APPLY_SCALE, ++row);
        }
        float u = gpu_div(gpu_mul(g.v[k], by), gpu_sqrt(c[col++]));
        w.v[k] = gpu_fma(own[0], u, gpu_fma(own[1], w.v[k], w.v[k]));
    }
    put_master(a, i, w);
}

#define KIND(name, kind, eight)                                                                                        \
    GPU_KERNEL(change_##name, change_args, CHANGE_THREADS)                                                             \
    {                                                                                                                  \
        if (!begins<kind>(a)) return;                                                                                  \
        for (int64_t i = gpu_block() * CHANGE_SOME + gpu_thread() * 8; i < a.n; i += gpu_blocks() * CHANGE_SOME)       \
            eight(a, i);                                                                                               \
    }
KIND(adamw, UPDATE_ADAMW, adamw)
KIND(sgd, UPDATE_SGD, sgd)
KIND(lion, UPDATE_LION, lion)
KIND(momentum, UPDATE_MOMENTUM, momentum)
KIND(unit, UPDATE_UNIT, unit)
KIND(blend, UPDATE_BLEND, blend)
KIND(adamw16, UPDATE_ADAMW16, adamw16)
KIND(apply, UPDATE_APPLY, apply)
KIND(average, UPDATE_AVERAGE, average)
KIND(round, UPDATE_ROUND, round_by_chance)
KIND(factor_keep, UPDATE_FACTOR_KEEP, factor_keep)
KIND(factor_apply, UPDATE_FACTOR_APPLY, factor_apply)

/* 16 lanes' sum of a row, in all of them: flat_fold. All threads of a warp. */
GPU_FN double fold(double v)
{
    for (int half = FLAT_LANES / 2; half; half /= 2) v = gpu_add(v, gpu_xor(v, half));
    return v;
}
GPU_FN int64_t rows_of(const change_args &a) { return a.n / a.cols; }

GPU_KERNEL(change_factor_row_sums, change_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_FACTOR_SUMS>(a)) return;
    int64_t row = gpu_block() * CHANGE_ROWS + gpu_thread() / FLAT_LANES;
    int lane = gpu_thread() % FLAT_LANES;
    bool here = row < rows_of(a);
    const float *g = (const float *)a.p[FACTOR_SUMS_GRAD] + row * a.cols;
    double sum = 0;
    for (int64_t j = lane; here && j < a.cols; j += FLAT_LANES) sum = gpu_fma((double)g[j], (double)g[j], sum);
    sum = fold(sum);
    if (here && lane == 0) ((double *)a.p[FACTOR_SUMS_ROWS])[row] += sum;
}
/* A column by a thread, since its rows are added in order. */
GPU_KERNEL(change_factor_col_sums, change_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_FACTOR_SUMS>(a)) return;
    int64_t col = gpu_block() * CHANGE_THREADS + gpu_thread(), rows = rows_of(a);
    if (col >= a.cols) return;
    const float *g = (const float *)a.p[FACTOR_SUMS_GRAD] + col;
    double *to = (double *)a.p[FACTOR_SUMS_COLS] + col, sum = *to;
    for (int64_t i = 0; i < rows; i++) sum = gpu_fma((double)g[i * a.cols], (double)g[i * a.cols], sum);
    *to = sum;
}
GPU_KERNEL(change_factor_mean, change_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_FACTOR_MEAN>(a)) return;
    double *room = gpu_shared<change_order_shared>()->room;
    double sum = gpu_sum_in_order(0, (const float *)a.p[FACTOR_MEAN_ROWS], a.n, 1, room);
    if (gpu_thread() == 0) *(double *)a.p[FACTOR_MEAN_TO] = sum / (double)a.n;
}
GPU_KERNEL(change_factor_size, change_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_FACTOR_SIZE>(a)) return;
    int64_t row = gpu_block() * CHANGE_ROWS + gpu_thread() / FLAT_LANES;
    int lane = gpu_thread() % FLAT_LANES;
    bool here = row < rows_of(a);
    const float *c = (const float *)a.p[FACTOR_SIZE_COLS], *g = (const float *)a.p[FACTOR_SIZE_GRAD] + row * a.cols,
                *w = (const float *)a.p[FACTOR_SIZE_MASTER] + row * a.cols;
    float by = here ? factor_row(a, FACTOR_SIZE_ROWS, FACTOR_SIZE_MEAN, FACTOR_SIZE_SCALE, row) : 0;
    double u2 = 0, w2 = 0;
    for (int64_t j = lane; here && j < a.cols; j += FLAT_LANES) {
        double u = (double)gpu_div(gpu_mul(g[j], by), gpu_sqrt(c[j]));
        u2 = gpu_fma(u, u, u2);
        w2 = gpu_fma((double)w[j], (double)w[j], w2);
    }
    u2 = fold(u2);
    w2 = fold(w2);
    if (!here || lane != 0) return;
    double *to = (double *)a.p[FACTOR_SIZE_EACH] + 2 * row;
    to[0] = u2;
    to[1] = w2;
}
GPU_KERNEL(change_factor_size_sum, change_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_FACTOR_SIZE>(a)) return;
    double *room = gpu_shared<change_order_shared>()->room, *to = (double *)a.p[FACTOR_SIZE_TO];
    const double *each = (const double *)a.p[FACTOR_SIZE_EACH];
    double u2 = gpu_sum_in_order(to[0], each, rows_of(a), 2, room);
    double w2 = gpu_sum_in_order(to[1], each + 1, rows_of(a), 2, room);
    if (gpu_thread() != 0) return;
    to[0] = u2;
    to[1] = w2;
}

/* ---- moments in blocks (kernel/moments.h) ---- */
GPU_FN float e4m3_value(uint8_t code)
{
    uint32_t size = code & 0x7f;
    float v = size == 0x7f ? NAN : size < 8 ? (float)size * 0x1p-9f : float_of((size << 20) + (120u << 23));
    return code & 0x80 ? -v : v;
}
GPU_FN uint8_t e4m3_code(float v) /* saturated */
{
    uint32_t u = float_bits(v), sign = u >> 24 & 0x80, size = u & 0x7fffffff;
    if (size > 0x7f800000) return (uint8_t)(sign | 0x7f);
    if (size < 121u << 23) return (uint8_t)(sign | (uint32_t)rintf(fabsf(v) * 512)); /* in units of 2^-9 */
    uint32_t code = ((size + 0x7ffff + (size >> 20 & 1)) >> 20) - (120 << 3);
    return (uint8_t)(sign | (code < 0x7e ? code : 0x7e));
}
GPU_FN float first_moment(const moments_args &a, int64_t i)
{
    uint8_t code = ((const uint8_t *)a.a.p[ADAMW8_M])[i];
    return a.a.flag ? e4m3_value(code) : moment_decode_signed(&a.m, code);
}
GPU_FN float second_moment(const moments_args &a, int64_t i)
{
    if (a.a.flag) return gpu_widen(((const f16_t *)a.a.p[ADAMW8_V])[i]);
    return moment_decode_unsigned(&a.v, ((const uint8_t *)a.a.p[ADAMW8_V])[i]);
}
GPU_FN void keep_first(const moments_args &a, int64_t i, float y)
{
    ((uint8_t *)a.a.p[ADAMW8_M])[i] = a.a.flag ? e4m3_code(y) : moment_encode_signed(&a.m, y);
}
GPU_FN void keep_second(const moments_args &a, int64_t i, float y)
{
    float least = a.a.flag ? MOMENT_LEAST_F16 : moment_least(&a.v);
    if (y > 0 && y < least) y = least;
    if (a.a.flag) gpu_round((f16_t *)a.a.p[ADAMW8_V] + i, y);
    else ((uint8_t *)a.a.p[ADAMW8_V])[i] = moment_encode_unsigned(&a.v, y);
}
GPU_FN void put_one_master(const change_args &a, int64_t i, float p)
{
    ((float *)a.p[ADAMW8_MASTER])[i] = p;
    if (a.copy == FLAT_F32) ((float *)a.p[a.copy_at])[i] = p;
    if (a.copy == FLAT_BF16) gpu_round((bf16_t *)a.p[a.copy_at] + i, p);
    if (a.copy == FLAT_F16) gpu_round((f16_t *)a.p[a.copy_at] + i, p);
}

/* A block of moments by a block of threads, which holds its new ones until the largest is known. */
GPU_FN void adamw8_block(const moments_args &a, int64_t b)
{
    const int each = MOMENTS_BLOCK / CHANGE_THREADS;
    const float *f = shared_here()->f;
    int64_t in_row = (a.a.cols + a.a.block - 1) / a.a.block, col = b % in_row * a.a.block, left = a.a.cols - col;
    int64_t n = left < a.a.block ? left : a.a.block, at = b / in_row * a.a.cols + col;
    float m[each], v[each], most_m = 0, most_v = 0;
    float *m_scale = (float *)a.a.p[ADAMW8_M_SCALE] + b, *v_scale = (float *)a.a.p[ADAMW8_V_SCALE] + b;
    float was_m = *m_scale, was_v = *v_scale;
    GPU_UNROLL
    for (int k = 0; k < each; k++) {
        int64_t i = at + k * CHANGE_THREADS + gpu_thread();
        m[k] = v[k] = 0;
        if (i >= at + n) continue;
        float p = ((const float *)a.a.p[ADAMW8_MASTER])[i], g = ((const float *)a.a.p[ADAMW8_GRAD])[i];
        m[k] = gpu_mul(first_moment(a, i), was_m);
        v[k] = gpu_mul(second_moment(a, i), was_v);
        adamw_one(gpu_mul(g, f[ADAMW16_SCALE]), m[k], v[k], p, f[ADAMW16_BETA1], f[ADAMW16_BETA2], f[ADAMW16_EPS],
                  f[ADAMW16_DECAY], f[ADAMW16_ROOT], f[ADAMW16_STEP]);
        put_one_master(a.a, i, p);
        most_m = fmaxf(most_m, fabsf(m[k]));
        most_v = fmaxf(most_v, fabsf(v[k]));
    }
    moment_scale to_m = moment_scale_of(gpu_block_max(most_m, shared_here()->most),
                                        a.a.flag ? MOMENT_RANGE_E4M3 : MOMENT_RANGE_MAP),
                 to_v = moment_scale_of(gpu_block_max(most_v, shared_here()->most),
                                        a.a.flag ? MOMENT_RANGE_F16 : MOMENT_RANGE_MAP);
    GPU_UNROLL
    for (int k = 0; k < each; k++) {
        int64_t i = at + k * CHANGE_THREADS + gpu_thread();
        if (i >= at + n) continue;
        keep_first(a, i, gpu_mul(m[k], to_m.inverse));
        keep_second(a, i, gpu_mul(v[k], to_v.inverse));
    }
    if (gpu_thread() != 0) return;
    *m_scale = to_m.scale;
    *v_scale = to_v.scale;
}
GPU_KERNEL(change_adamw8, moments_args, CHANGE_THREADS)
{
    if (!begins<UPDATE_ADAMW8>(a.a)) return;
    int64_t blocks = a.a.n / a.a.cols * ((a.a.cols + a.a.block - 1) / a.a.block);
    for (int64_t b = gpu_block(); b < blocks; b += gpu_blocks()) adamw8_block(a, b);
}
