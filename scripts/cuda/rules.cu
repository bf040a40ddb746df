/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's rules of docs/device.md, each tried on the machine at hand. A development-time check: nothing builds it.
 *
 *     nvcc -O2 -o rules scripts/cuda/rules.cu && ./rules
 *
 * A kernel that spins for a fifth of a second keeps a stream busy; what waits for it takes as long, what does not is
 * there at once. */
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>

#define CK(call)                                                                                                       \
    do {                                                                                                               \
        cudaError_t rc_ = (call);                                                                                      \
        if (rc_ != cudaSuccess) {                                                                                      \
            printf("%s: %s\n", #call, cudaGetErrorString(rc_));                                                        \
            exit(2);                                                                                                   \
        }                                                                                                              \
    } while (0)

static const double BUSY_S = 0.2;
static int failed;

__global__ void spin(long long ns)
{
    long long now, end;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    for (end = now + ns; now < end;) asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
}

__global__ void put(int *to, int value) { *to = value; }

static void keep_busy(cudaStream_t s) { spin<<<1, 1, 0, s>>>((long long)(BUSY_S * 1e9)); }

static double now_s()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

static void rule(const char *text, bool holds)
{
    printf("%-7s %s\n", holds ? "holds" : "BROKEN", text);
    failed += !holds;
}

template <class F> static bool waits(F f) /* takes about as long as the busy stream */
{
    double begin = now_s();
    f();
    return now_s() - begin > BUSY_S / 2;
}

static cudaStream_t stream(unsigned flags)
{
    cudaStream_t s;
    CK(cudaStreamCreateWithFlags(&s, flags));
    return s;
}

static void default_stream(int *d)
{
    cudaStream_t blocking = stream(cudaStreamDefault), apart = stream(cudaStreamNonBlocking);
    keep_busy(blocking);
    put<<<1, 1, 0, 0>>>(d, 1);
    rule("the legacy default stream waits for blocking streams", waits([] { CK(cudaStreamSynchronize(0)); }));
    keep_busy(0);
    put<<<1, 1, 0, blocking>>>(d, 1);
    rule("blocking streams wait for it", waits([&] { CK(cudaStreamSynchronize(blocking)); }));
    CK(cudaDeviceSynchronize());
    keep_busy(apart);
    put<<<1, 1, 0, 0>>>(d, 1);
    rule("it does not wait for non-blocking streams", !waits([] { CK(cudaStreamSynchronize(0)); }));
    CK(cudaDeviceSynchronize());
}

static void order(int *d)
{
    cudaStream_t a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
    keep_busy(a);
    put<<<1, 1, 0, b>>>(d, 1);
    rule("two streams have no order", !waits([&] { CK(cudaStreamSynchronize(b)); }));
    rule("one stream runs in order", waits([&] {
             put<<<1, 1, 0, a>>>(d, 1);
             CK(cudaStreamSynchronize(a));
         }));
}

static void events(int *d)
{
    cudaStream_t a = stream(cudaStreamNonBlocking), b = stream(cudaStreamNonBlocking);
    cudaEvent_t e;
    CK(cudaEventCreateWithFlags(&e, cudaEventDisableTiming));
    CK(cudaStreamWaitEvent(b, e, 0));
    rule("an event never recorded has passed",
         !waits([&] { CK(cudaStreamSynchronize(b)); }) && cudaEventQuery(e) == cudaSuccess);
    CK(cudaEventRecord(e, a));
    CK(cudaStreamWaitEvent(b, e, 0));
    keep_busy(a);
    CK(cudaEventRecord(e, a));
    rule("a later record does not move a wait", !waits([&] { CK(cudaStreamSynchronize(b)); }));
    CK(cudaStreamWaitEvent(b, e, 0));
    bool at_once = !waits([&] { CK(cudaEventDestroy(e)); });
    rule("a wait means the last record before it; an event under way is freed at once",
         at_once && waits([&] { CK(cudaStreamSynchronize(b)); }));
    put<<<1, 1, 0, b>>>(d, 1);
    CK(cudaDeviceSynchronize());
}

static void freeing(int *d)
{
    int got = 0;
    void *more;
    cudaStream_t a = stream(cudaStreamNonBlocking);
    CK(cudaMemset(d, 0, sizeof *d));
    keep_busy(a);
    put<<<1, 1, 0, a>>>(d, 7);
    bool at_once = !waits([&] { CK(cudaStreamDestroy(a)); });
    CK(cudaDeviceSynchronize());
    CK(cudaMemcpy(&got, d, sizeof got, cudaMemcpyDeviceToHost));
    rule("a stream under way is freed at once and finishes", at_once && got == 7);
    a = stream(cudaStreamNonBlocking);
    CK(cudaMalloc(&more, 1 << 20));
    keep_busy(a);
    rule("cudaFree waits for the device", waits([&] { CK(cudaFree(more)); }));
    CK(cudaDeviceSynchronize());
    cudaStream_t b = stream(cudaStreamNonBlocking);
    CK(cudaMallocAsync(&more, 1 << 20, b));
    CK(cudaStreamSynchronize(b));
    keep_busy(a);
    rule("cudaFreeAsync does not", !waits([&] {
             CK(cudaFreeAsync(more, b));
             CK(cudaStreamSynchronize(b));
         }));
    CK(cudaDeviceSynchronize());
}

/* What the device gets of host memory that is changed right after the copy was enqueued behind work. */
static bool keeps_first(int *host, int *d, bool *returned_at_once)
{
    enum { N = 1 << 12 };
    cudaStream_t a = stream(cudaStreamNonBlocking);
    int got = 0;
    for (int i = 0; i < N; i++) host[i] = 1;
    keep_busy(a);
    *returned_at_once = !waits([&] { CK(cudaMemcpyAsync(d, host, N * sizeof *d, cudaMemcpyHostToDevice, a)); });
    for (int i = 0; i < N; i++) host[i] = 2;
    CK(cudaStreamSynchronize(a));
    CK(cudaMemcpy(&got, d, sizeof got, cudaMemcpyDeviceToHost));
    return got == 1;
}

static void copies(int *d)
{
    enum { N = 1 << 12 };
    int *pinned, *pageable = (int *)malloc(N * sizeof(int));
    bool at_once;
    CK(cudaMallocHost(&pinned, N * sizeof(int)));
    rule("pinned host memory belongs to the copy until the stream was waited for",
         !keeps_first(pinned, d, &at_once) && at_once);
    rule("pageable host memory is staged before the call returns", keeps_first(pageable, d, &at_once));

    cudaStream_t a = stream(cudaStreamNonBlocking);
    keep_busy(a);
    rule("to pinned memory: the call returns before the bytes are there",
         !waits([&] { CK(cudaMemcpyAsync(pinned, d, N * sizeof(int), cudaMemcpyDeviceToHost, a)); }));
    CK(cudaDeviceSynchronize());
    keep_busy(a);
    rule("to pageable memory: they are there when the call returns",
         waits([&] { CK(cudaMemcpyAsync(pageable, d, N * sizeof(int), cudaMemcpyDeviceToHost, a)); }));
    CK(cudaDeviceSynchronize());

    int got = 0, value = 5;
    keep_busy(a);
    put<<<1, 1, 0, a>>>(d, value);
    value = 6;
    CK(cudaStreamSynchronize(a));
    CK(cudaMemcpy(&got, d, sizeof got, cudaMemcpyDeviceToHost));
    rule("a kernel's arguments are copied at launch", got == 5 && value == 6);
}

int main()
{
    int *d;
    cudaDeviceProp p;
    CK(cudaGetDeviceProperties(&p, 0));
    printf("%s, compute capability %d.%d\n", p.name, p.major, p.minor);
    CK(cudaMalloc(&d, 1 << 16));
    put<<<1, 1>>>(d, 0); /* loads the module: the first launch may wait for the device */
    spin<<<1, 1>>>(1);
    CK(cudaDeviceSynchronize());
    default_stream(d);
    order(d);
    events(d);
    freeing(d);
    copies(d);
    return failed != 0;
}
