/* SPDX-License-Identifier: Apache-2.0 */
/* Small kernels, each right once and wrong in as many ways as people get them wrong (test_simulated.c). */
#include "faults.h"
#include "kernel/cuda/gpu.h"

/* ---- sums of rows over tiles of shared memory ---- */
struct tile_shared {
    float tile[TILE], room[THREADS / GPU_WARP];
};
template <int fault> GPU_FN void rows(const fault_args &a)
{
    tile_shared *s = gpu_shared<tile_shared>();
    float sum = 0;
    for (int at = 0; at < a.n; at += TILE) {
        if (fault != NO_BARRIER_BEFORE_WRITE) gpu_sync();
        for (int i = gpu_thread(); i < TILE; i += THREADS) s->tile[i] = at + i < a.n ? a.x[gpu_block() * a.n + at + i] : 0;
        if (fault == BARRIER_IN_A_BRANCH) {
            if (gpu_warp() == 0) gpu_sync();
            else gpu_sync();
        } else if (fault != NO_BARRIER_BEFORE_READ) gpu_sync();
        if (fault == ENDS_EARLY && gpu_thread() == THREADS - 1) return;
        for (int i = 0; i < TILE; i += THREADS) sum += s->tile[TILE - 1 - i - gpu_thread()]; /* what others wrote */
    }
    if (fault == BEHIND_SHARED) s->room[THREADS / GPU_WARP + gpu_thread() % 2] = 0;
    if (fault == NEVER_WRITTEN) sum += s->room[gpu_warp()];
    sum = gpu_block_sum(sum, s->room);
    if (gpu_thread() == 0) a.y[gpu_block()] = sum;
}

/* ---- a sum by a warp's lanes ---- */
template <int fault> GPU_FN void lanes(const fault_args &a)
{
    float v = a.x[gpu_block() * GPU_WARP + gpu_lane()];
    if (fault == HALF_A_WARP && gpu_lane() >= 16) return;
    for (int by = 16; by; by /= 2) v += gpu_xor(v, fault == WRONG_LANE && by == 4 ? 2 : by);
    if (fault == NOT_IN_ITS_MASK) gpu_sync_warp(0x0000ffffu);
    if (fault == MASK_OF_MORE) {
        if (gpu_lane() < 16) gpu_sync_warp(0x0001ffffu);
        else gpu_sync_warp(0xffff0000u);
    }
    if (gpu_lane() == 0) a.y[gpu_block()] = v;
}

/* ---- copies that run beside the work ---- */
struct copy_shared {
    alignas(16) float two[2][TILE];
};
template <int fault> GPU_FN void bring(const fault_args &a, float *to, int at)
{
    for (int i = gpu_thread() * 4; i < TILE; i += THREADS * 4)
        gpu_copy16(to + i, a.x + gpu_block() * a.n + at + i + (fault == NOT_ALIGNED ? 1 : 0));
    if (fault != NO_COMMIT) gpu_copies_end();
}
template <int fault> GPU_FN void copies(const fault_args &a)
{
    copy_shared *s = gpu_shared<copy_shared>();
    float sum = 0;
    bring<fault>(a, s->two[0], 0);
    for (int k = 0; k * TILE < a.n; k++) {
        if ((k + 1) * TILE < a.n) {
            bring<fault>(a, s->two[(k + 1) % 2], (k + 1) * TILE);
            if (fault == WAITS_FOR_OLDER) gpu_copies_wait<2>();
            else if (fault != NO_WAIT) gpu_copies_wait<1>();
        } else if (fault != NO_WAIT && fault != LAST_NOT_WAITED) gpu_copies_wait<0>();
        gpu_sync();
        for (int i = 0; i < TILE; i += THREADS) sum += s->two[k % 2][TILE - 1 - i - gpu_thread()];
        if (fault != NO_BARRIER_BEFORE_COPY) gpu_sync();
    }
    if (fault == LAST_NOT_WAITED) sum = 0;
    a.y[gpu_block() * THREADS + gpu_thread()] = sum;
}

/* ---- 16 x 8 of a product, 16 deep: x is A, then B row by row ---- */
struct product_shared {
    alignas(16) bf16_t a[16 * 16], b[16 * 8];
};
template <int fault> GPU_FN void product(const fault_args &a)
{
    product_shared *s = gpu_shared<product_shared>();
    const int lane = gpu_lane();
    for (int i = gpu_thread(); i < 256; i += THREADS) s->a[i] = gpu_bf16(a.x[i]);
    for (int i = gpu_thread(); i < 128; i += THREADS) s->b[i] = gpu_bf16(a.x[256 + i]);
    if (fault != NO_BARRIER_BEFORE_LDMATRIX) gpu_sync();
    if (gpu_warp()) return; /* it filled its half */
    uint32_t fa[4], fb[4];
    float d[4] = {0, 0, 0, 0};
    gpu_ldmatrix(fa, &s->a[(fault == WRONG_ROW ? lane / 2 : lane % 16) * 16 + lane / 16 * 8]);
    const bf16_t *row = &s->b[lane % 16 * 8];
    if (fault == NOT_TRANSPOSED) gpu_ldmatrix(fb, row);
    else gpu_ldmatrix_t(fb, row);
    if (fault == FRAGMENTS_SWAPPED) {
        uint32_t x = fa[1];
        fa[1] = fa[2];
        fa[2] = x;
    }
    if (fault == AS_FP16) gpu_mma_f16(d, fa, fb);
    else gpu_mma_bf16(d, fa, fb);
    for (int i = 0; i < 4; i++) {
        int r = lane / 4 + i / 2 * (fault == RESULT_ROWS ? 4 : 8), c = lane % 4 * 2 + i % 2;
        a.y[r * 8 + c] = d[i];
    }
}

/* ---- 16 bytes at once ---- */
template <int fault> GPU_FN void move(const fault_args &a)
{
    int64_t i = (gpu_block() * THREADS + gpu_thread()) * 4;
    if (i >= a.n) return;
    gpu_store(a.y + i, gpu_load<gpu_16>(a.x + i + (fault == LOAD_NOT_ALIGNED ? 1 : 0)));
}

#define KERNEL_OF(frame, fault)                                                                                        \
    GPU_KERNEL(frame##_##fault, fault_args, FAULT_THREADS_##frame) { frame<fault>(a); }
FAULTS_EACH(KERNEL_OF)
