/* SPDX-License-Identifier: Apache-2.0 */
/* EMBED. Forward: rows of the table, by token; a token that has none of the vocabulary's ids becomes NaN.
 *
 * The gradient: a block makes that of EMBED_BIN rows of the table in EMBED_COLS columns. Of all tokens, a window at a
 * time, it lists those whose ids are among its rows, in order; then each warp goes through the list for one row after
 * the other and adds that row's tokens to it. So a row's tokens are added in their order, by one thread a column, and
 * no memory is needed beside the gradient. */
#include "kernel/cuda/gpu_embed_args.h"
#include "kernel/cuda/gpu_walk.h"

template <class T> GPU_FN void forward(const embed_args &a)
{
    GPU_WALK(at, a.walk) {
        int64_t id = a.ids[at.row], row = id - a.first;
        gpu_eight x = {};
        if (row >= 0 && row < a.rows) x = gpu_get_eight<T>(a.w, row, at.col, at.left);
        for (int i = 0; i < WALK_COLS; i++) x.v[i] = id < 0 || id >= a.whole ? NAN : x.v[i] * a.scale;
        gpu_put_eight<T>(a.y, at.row, at.col, at.left, x);
    }
}

/* Lists the window's tokens whose rows are in the bin that begins at row `bin`. Returns how many. */
GPU_FN int list_tokens(const embed_weights_args &a, embed_shared *s, int64_t bin, int64_t window)
{
    const int each = EMBED_WINDOW / EMBED_THREADS;
    int64_t end = bin + EMBED_BIN < a.rows ? bin + EMBED_BIN : a.rows;
    uint32_t entry[each], here[each];
    int mine = 0, before = 0, all = 0;
    for (int i = 0; i < each; i++) { /* a warp's tokens lie together */
        int at = (gpu_warp() * each + i) * GPU_WARP + gpu_lane();
        int64_t row = window + at < a.tokens ? a.ids[window + at] - a.first : -1;
        bool found = row >= bin && row < end;
        entry[i] = found ? (uint32_t)(row - bin) << 16 | (uint32_t)at : 0;
        here[i] = gpu_ballot(found);
        mine += gpu_count_bits(here[i]);
    }
    if (gpu_lane() == 0) s->count[gpu_warp()] = mine;
    gpu_sync(); /* and whoever reads the list before has done so */
    for (int w = 0; w < EMBED_WARPS; w++) {
        if (w < gpu_warp()) before += s->count[w];
        all += s->count[w];
    }
    for (int i = 0; i < each; i++) {
        uint32_t lower = here[i] & ((1u << gpu_lane()) - 1);
        if (here[i] >> gpu_lane() & 1) s->list[before + gpu_count_bits(lower)] = entry[i];
        before += gpu_count_bits(here[i]);
    }
    gpu_sync();
    return all;
}

/* A warp's row of the bin: what the list's tokens add to it in the lanes' columns. */
template <class T>
GPU_FN void add_tokens(const embed_weights_args &a, const embed_shared *s, int n, int64_t window, int64_t bin, int row)
{
    const int together = 4; /* tokens that are read before the first of them is added */
    int64_t col = gpu_block_y() * EMBED_COLS + gpu_lane() * WALK_COLS, left = a.cols - col, to = bin + row;
    const gpu_rows &from = window ? a.dw : a.acc;
    bool changes = from.p != a.dw.p; /* if not, only where there is something to be added */
    gpu_eight sum = {};
    if (changes) sum = gpu_get_eight_or_0<float>(from, to, col, left);
    GPU_ROLLED for (int at = 0; at < n; at += GPU_WARP) {
        bool is = at + gpu_lane() < n && s->list[at + gpu_lane()] >> 16 == (uint32_t)row;
        uint32_t found = gpu_ballot(is);
        if (found && !changes) sum = gpu_get_eight<float>(a.dw, to, col, left), changes = true;
        GPU_ROLLED while (found) {
            gpu_eight dy[together];
            bool some[together];
            for (int i = 0; i < together; i++) {
                some[i] = found != 0;
                if (!some[i]) continue;
                int64_t token = window + (s->list[at + gpu_lowest_bit(found)] & 0xffff);
                found &= found - 1;
                dy[i] = gpu_get_eight<T>(a.dy, token, col, left);
            }
            for (int i = 0; i < together; i++)
                for (int k = 0; some[i] && k < WALK_COLS; k++) sum.v[k] = gpu_fma(dy[i].v[k], a.scale, sum.v[k]);
        }
    }
    if (changes) gpu_put_eight<float>(a.dw, to, col, left, sum);
}

template <class T> GPU_FN void weights(const embed_weights_args &a)
{
    embed_shared *s = gpu_shared<embed_shared>();
    int64_t bin = gpu_block() * EMBED_BIN;
    int rows = a.rows - bin < EMBED_BIN ? (int)(a.rows - bin) : (int)EMBED_BIN;
    for (int64_t window = 0; window == 0 || window < a.tokens; window += EMBED_WINDOW) {
        int n = list_tokens(a, s, bin, window);
        for (int row = gpu_warp(); row < rows; row += EMBED_WARPS) add_tokens<T>(a, s, n, window, bin, row);
    }
}

#define TYPED(type, T)                                                                                                 \
    GPU_KERNEL(embed_fwd_##type, embed_args, WALK_THREADS) { forward<T>(a); }                                          \
    GPU_KERNEL(embed_bwd_w_##type, embed_weights_args, EMBED_THREADS) { weights<T>(a); }
TYPED(f32, float)
TYPED(bf16, bf16_t)
TYPED(f16, f16_t)
