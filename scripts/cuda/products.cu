/* SPDX-License-Identifier: Apache-2.0 */
/* What one product instruction of a Hopper GPU gives, written down as text: the numbers that numerics.accumulate is
 * compared with. A development-time program: nothing builds it. Compute capability 9.0 (an H100 or H200).
 *
 *     nvcc -O2 -gencode arch=compute_90a,code=sm_90a -o products scripts/cuda/products.cu && ./products > products.txt
 *
 * A line is KIND, the codes of a row of a and of b (hexadecimal, element 0 first), c, and d = c + sum a b (both as bits
 * of an fp32). Operands are of eight kinds: near each other, spread over 2^2 .. 2^12, mostly zeros, any codes; and
 * subnormal ones. */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cmath>
#include <cuda_runtime.h>
#include <cuda_bf16.h>
#include <cuda_fp8.h>

#define CK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t rc_ = (call);                                                                                      \
        if (rc_ != cudaSuccess) {                                                                                      \
            fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(rc_));                                               \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Where an operand lies in shared memory: address, and the bytes from a core matrix to the next along K and along
 * rows. */
__device__ inline uint64_t desc(const void *p, uint32_t lbo, uint32_t sbo)
{
    uint32_t a = (uint32_t)__cvta_generic_to_shared(p);
    return (uint64_t)((a & 0x3FFFF) >> 4) | (uint64_t)(lbo >> 4) << 16 | (uint64_t)(sbo >> 4) << 32;
}
/* d += a b. The types of 16 bits say in two more words that neither operand is transposed. */
#define WGMMA(type, more)                                                                                              \
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, 1, 0;\nwgmma.mma_async.sync.aligned." type                          \
                 " {%0, %1, %2, %3}, %4, %5, p, 1, 1" more ";\n}\n"                                                    \
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])                                                      \
                 : "l"(da), "l"(db))

/* 0: bf16, 1: e4m3, 2: e5m2 by e4m3, 3: f16 */
template <int KIND> __device__ inline void wg(float d[4], uint64_t da, uint64_t db)
{
    asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
    if constexpr (KIND == 0) WGMMA("m64n8k16.f32.bf16.bf16", ", 0, 0");
    if constexpr (KIND == 1) WGMMA("m64n8k32.f32.e4m3.e4m3", "");
    if constexpr (KIND == 2) WGMMA("m64n8k32.f32.e5m2.e4m3", "");
    if constexpr (KIND == 3) WGMMA("m64n8k16.f32.f16.f16", ", 0, 0");
    asm volatile("wgmma.commit_group.sync.aligned;\n" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
}
/* Rows are 32 bytes: two core matrices of 8 rows by 16 bytes beside each other. */
template <int KIND> __global__ void run_wgmma(const uint8_t *A, const uint8_t *B, const float *C, float *D)
{
    __shared__ __align__(1024) uint8_t sa[64 * 32], sb[8 * 32];
    int n = blockIdx.x, t = threadIdx.x;
    A += (size_t)n * 64 * 32, B += (size_t)n * 8 * 32, C += (size_t)n * 512, D += (size_t)n * 512;
    for (int i = t; i < 64 * 32; i += 128) {
        int r = i / 32, b = i % 32;
        sa[((r / 8) * 2 + b / 16) * 128 + (r % 8) * 16 + b % 16] = A[i];
    }
    for (int i = t; i < 8 * 32; i += 128) {
        int r = i / 32, b = i % 32;
        sb[(b / 16) * 128 + (r % 8) * 16 + b % 16] = B[i];
    }
    asm volatile("fence.proxy.async;\n" ::: "memory");
    __syncthreads();
    int w = t / 32, l = t % 32, r = w * 16 + l / 4, c = (l % 4) * 2;
    float d[4] = {C[r * 8 + c], C[r * 8 + c + 1], C[(r + 8) * 8 + c], C[(r + 8) * 8 + c + 1]};
    wg<KIND>(d, desc(sa, 128, 256), desc(sb, 128, 256));
    D[r * 8 + c] = d[0], D[r * 8 + c + 1] = d[1], D[(r + 8) * 8 + c] = d[2], D[(r + 8) * 8 + c + 1] = d[3];
}
static uint64_t s = 88172645463325252ull;
static uint32_t rnd()
{
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return (uint32_t)(s >> 16);
}
static double uni() { return rnd() / 4294967296.0; }
static double normal()
{
    double a = uni() + 1e-12, b = uni();
    return sqrt(-2 * log(a)) * cos(6.283185307179586 * b);
}
static void put(uint8_t *p, int kind, bool is_a, double v)
{
    if (kind == 0) {
        __nv_bfloat16 h = __float2bfloat16((float)v);
        memcpy(p, &h, 2);
    } else if (kind == 3) {
        __half h = __float2half((float)v);
        memcpy(p, &h, 2);
    } else if (kind == 2 && is_a) {
        __nv_fp8_e5m2 h((float)v);
        memcpy(p, &h, 1);
    } else {
        __nv_fp8_e4m3 h((float)v);
        memcpy(p, &h, 1);
    }
}
enum { CASES = 256, ROWS = 64, COLS = 8, ROW_BYTES = 32, WRITTEN = 96, SUBNORMAL = 32 };

static int element_bytes(int kind) { return kind == 0 || kind == 3 ? 2 : 1; }

/* Codes below the smallest normal one: they keep the exponent of that. */
static void subnormal(uint8_t *p, int kind, int rows)
{
    static const uint16_t kept[] = {0x807f, 0x87, 0x83, 0x83ff}; /* sign and fraction */
    int size = element_bytes(kind);
    for (int i = 0; i < rows * ROW_BYTES / size; i++) {
        uint16_t code = (uint16_t)rnd() & kept[kind];
        memcpy(p + i * size, &code, size);
    }
}

static void fill(uint8_t *p, int kind, bool is_a, int rows, int style)
{
    static const double spread[8] = {0, 2, 4, 6, 1, 3, 5, 5};
    int size = element_bytes(kind);
    for (int i = 0; i < rows * ROW_BYTES / size; i++) {
        double v = normal() * exp2((uni() * 2 - 1) * spread[style]);
        if (style == 6 && is_a && rnd() % 4) v = 0;
        if (style < 7) {
            put(p + i * size, kind, is_a, v);
            continue;
        }
        uint16_t code = (uint16_t)rnd(); /* any; bf16 mostly of middling exponents */
        if (kind == 0 && rnd() % 64) code = (uint16_t)((code & 0x807f) | ((110 + rnd() % 30) << 7));
        memcpy(p + i * size, &code, size);
    }
}

static void start(float *c, int n)
{
    for (int i = 0; i < ROWS * COLS; i++) {
        c[i] = n % 5 ? (float)(normal() * exp2((uni() * 2 - 1) * (n % 8 < 2 ? 3 : 14))) : 0;
        uint32_t any = rnd();
        if (n % 8 == 7 && rnd() % 8 == 0) memcpy(&c[i], &any, 4);
    }
}

static void write(const char *name, int kind, const uint8_t *a, const uint8_t *b, const float *c, const float *d)
{
    int size = element_bytes(kind);
    printf("%s ", name);
    for (int side = 0; side < 2; side++) {
        for (int i = 0; i < ROW_BYTES; i += size)
            for (int k = size - 1; k >= 0; k--) printf("%02x", (side ? b : a)[i + k]);
        printf(" ");
    }
    uint32_t bits[2];
    memcpy(&bits[0], c, 4);
    memcpy(&bits[1], d, 4);
    printf("%08x %08x\n", bits[0], bits[1]);
}

int main()
{
    static const char *const name[] = {"wgmma-bf16", "wgmma-e4m3", "wgmma-e5m2e4m3", "wgmma-f16"};
    uint8_t *a, *b;
    float *c, *d;
    CK(cudaMallocHost(&a, CASES * ROWS * ROW_BYTES));
    CK(cudaMallocHost(&b, CASES * COLS * ROW_BYTES));
    CK(cudaMallocHost(&c, CASES * ROWS * COLS * sizeof *c));
    CK(cudaMallocHost(&d, CASES * ROWS * COLS * sizeof *d));
    for (int kind = 0; kind < 4; kind++) {
        for (int n = 0; n < CASES; n++) {
            fill(a + n * ROWS * ROW_BYTES, kind, true, ROWS, n % 8);
            fill(b + n * COLS * ROW_BYTES, kind, false, COLS, n % 8);
            start(c + n * ROWS * COLS, n);
            if (n < CASES - SUBNORMAL) continue;
            subnormal(a + n * ROWS * ROW_BYTES, kind, ROWS);
            if (kind == 1 || kind == 3) subnormal(b + n * COLS * ROW_BYTES, kind, COLS); /* of b's format, too */
            memset(c + n * ROWS * COLS, 0, ROWS * COLS * sizeof *c);
        }
        if (kind == 0) run_wgmma<0><<<CASES, 128>>>(a, b, c, d);
        if (kind == 1) run_wgmma<1><<<CASES, 128>>>(a, b, c, d);
        if (kind == 2) run_wgmma<2><<<CASES, 128>>>(a, b, c, d);
        if (kind == 3) run_wgmma<3><<<CASES, 128>>>(a, b, c, d);
        CK(cudaGetLastError());
        CK(cudaDeviceSynchronize());
        for (int i = 0; i < WRITTEN; i++) {
            int n = i * CASES / WRITTEN, r = rnd() % ROWS, k = rnd() % COLS;
            write(name[kind], kind, a + (n * ROWS + r) * ROW_BYTES, b + (n * COLS + k) * ROW_BYTES,
                  c + (n * ROWS + r) * COLS + k, d + (n * ROWS + r) * COLS + k);
        }
    }
    return 0;
}
