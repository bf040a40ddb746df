/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU's conversion instructions against layout/format.c, over every pattern of an fp32. A development-time check:
 * nothing builds it. Compute capability 8.9 or later.
 *
 *     cc -O2 -std=c11 -Isrc -c src/layout/format.c -o format.o
 *     nvcc -O2 -gencode arch=compute_90,code=sm_90 -o formats scripts/cuda/formats.cu format.o && ./formats
 *
 * NaNs are counted apart: these instructions write one NaN, format.c keeps the sign and the first bits. */
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>
#include <cuda_runtime.h>

enum format { FORMAT_F16, FORMAT_BF16, FORMAT_TF32, FORMAT_E5M2, FORMAT_E4M3 }; /* as formats.def has them */
extern "C" uint32_t format_encode(int f, double x, bool saturate);
extern "C" void bug(void) { abort(); }

enum { KINDS = 4 };
static const uint32_t CHUNK = 1u << 26;

__global__ void convert(uint32_t base, uint16_t *out)
{
    uint32_t i = blockIdx.x * blockDim.x + threadIdx.x;
    float x = __uint_as_float(base + i);
    uint16_t r;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
    out[i] = r & 255;
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(r) : "f"(0.0f), "f"(x));
    out[CHUNK + i] = r & 255;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
    out[2 * CHUNK + i] = r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x));
    out[3 * CHUNK + i] = r;
}

struct count {
    std::atomic<uint64_t> numbers{0}, nans{0};
};

static void compare(uint32_t base, const uint16_t *got, uint32_t first, uint32_t end, struct count *count)
{
    static const enum format format[KINDS] = {FORMAT_E4M3, FORMAT_E5M2, FORMAT_BF16, FORMAT_F16};
    for (uint32_t i = first; i < end; i++) {
        uint32_t bits = base + i;
        float x;
        memcpy(&x, &bits, sizeof x);
        for (int k = 0; k < KINDS; k++)
            if (format_encode(format[k], x, k < 2) != got[k * (size_t)CHUNK + i])
                (x != x ? count[k].nans : count[k].numbers)++;
    }
}

int main()
{
    static const char *const name[KINDS] = {"e4m3", "e5m2", "bf16", "f16"};
    struct count count[KINDS];
    uint16_t *host, *device;
    unsigned threads = std::thread::hardware_concurrency();
    if (cudaMallocHost(&host, KINDS * 2ull * CHUNK) || cudaMalloc(&device, KINDS * 2ull * CHUNK)) return 2;
    for (uint64_t base = 0; base < 1ull << 32; base += CHUNK) {
        convert<<<CHUNK / 256, 256>>>((uint32_t)base, device);
        if (cudaMemcpy(host, device, KINDS * 2ull * CHUNK, cudaMemcpyDeviceToHost)) return 2;
        std::vector<std::thread> list;
        for (unsigned t = 0; t < threads; t++)
            list.emplace_back(compare, (uint32_t)base, host, (uint32_t)((uint64_t)CHUNK * t / threads),
                              (uint32_t)((uint64_t)CHUNK * (t + 1) / threads), count);
        for (auto &t : list) t.join();
    }
    bool same = true;
    for (int k = 0; k < KINDS; k++) {
        printf("%s: of 2^32 patterns %llu numbers differ, and %llu NaNs\n", name[k],
               (unsigned long long)count[k].numbers, (unsigned long long)count[k].nans);
        same &= count[k].numbers == 0;
    }
    return !same;
}
