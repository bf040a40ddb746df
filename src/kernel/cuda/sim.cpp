/* SPDX-License-Identifier: Apache-2.0 */
/* Fibers. A block's threads run one at a time on the thread that launched them. The host's stack is left for a fiber's
 * and come back to where the fiber waits; nothing is preempted, so state needs no locks. Stacks and lanes of a launch
 * are kept for the next one. Rejected: ucontext everywhere (a system call per switch, ten times as slow), threads (a
 * block of 256 is 256 of them). Cost: some 50 instructions a switch. */
#include "kernel/cuda/sim.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define SIM_ASAN 1
extern "C" void __sanitizer_start_switch_fiber(void **fake, const void *bottom, size_t bytes);
extern "C" void __sanitizer_finish_switch_fiber(void *fake, const void **bottom, size_t *bytes);
#else
#define SIM_ASAN 0
#endif
#if defined(__SANITIZE_THREAD__)
#define SIM_TSAN 1
extern "C" void *__tsan_get_current_fiber(void);
extern "C" void *__tsan_create_fiber(unsigned flags);
extern "C" void __tsan_destroy_fiber(void *fiber);
extern "C" void __tsan_switch_to_fiber(void *fiber, unsigned flags);
#else
#define SIM_TSAN 0
#endif

__thread sim_block *sim_block_now; /* the launch's, which is a struct run */
__thread sim_lane *sim_lane_now;

/* ---- a fiber ---- */
enum { STACK = SIM_ASAN || SIM_TSAN ? 256 << 10 : 64 << 10, GUARD = 64 << 10 };
struct fiber {
    void *sp; /* where it goes on */
    char *stack;
    void *fake, *tsan;
};

extern "C" void sim_switch(void **save, void *to);
extern "C" void sim_enter(void);
#if defined(__x86_64__)
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,@function\nsim_switch:\n"
        "push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
        "mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
        "pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n.size sim_switch,.-sim_switch\n");
enum { SAVED = 6 };
static void *first_sp(char *top)
{
    void **p = (void **)top;
    *--p = NULL; /* as if called */
    *--p = (void *)sim_enter;
    for (int i = 0; i < SAVED; i++) *--p = NULL;
    return p;
}
#elif defined(__aarch64__)
__asm__(".text\n.globl sim_switch\n.hidden sim_switch\n.type sim_switch,%function\nsim_switch:\n"
        "sub sp,sp,#176\n"
        "stp x19,x20,[sp,#0]\nstp x21,x22,[sp,#16]\nstp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\n"
        "stp x27,x28,[sp,#64]\nstp x29,x30,[sp,#80]\n"
        "stp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\nstp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
        "mov x2,sp\nstr x2,[x0]\nmov sp,x1\n"
        "ldp x19,x20,[sp,#0]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\nldp x25,x26,[sp,#48]\n"
        "ldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\n"
        "ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\nldp d14,d15,[sp,#144]\n"
        "add sp,sp,#176\nret\n.size sim_switch,.-sim_switch\n");
static void *first_sp(char *top)
{
    void **p = (void **)(top - 176);
    memset((void *)p, 0, 176);
    p[11] = (void *)sim_enter; /* x30 */
    return p;
}
#else
#error "the simulator switches fibers on x86-64 and aarch64"
#endif

/* ---- a launch ---- */
struct run : sim_block {
    const gpu_launch *l;
    sim_order order;
    sim_counts *counts;
    uint64_t drawn;
    fiber fibers[GPU_THREADS_MOST];
    sim_lane lanes[GPU_THREADS_MOST];
    int n_stacks; /* fibers that have one */
    unsigned char *room; /* GPU_SHARED_MOST, and a page behind */
    fiber host;
    const void *host_bottom;
    size_t host_bytes;
    int warp[GPU_THREADS_MOST / GPU_WARP]; /* in the order that they are asked */
    run *next;
};
static inline run *here() { return static_cast<run *>(sim_block_now); }

static void fault(int thread, int line, const char *format, ...)
{
    run *now = here();
    char what[256], text[512];
    va_list args;
    va_start(args, format);
    vsnprintf(what, sizeof what, format, args);
    va_end(args);
    snprintf(text, sizeof text, "simulated kernel %s, block (%u, %u, %u), thread %d, line %d: %s", now->l->kernel->name,
             now->at.x, now->at.y, now->at.z, thread, line, what);
    sim_fault(text);
}

static uint32_t draw(void)
{
    run *now = here();
    now->drawn = now->drawn * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(now->drawn >> 33);
}

static void to_host(bool for_good)
{
    run *now = here();
    fiber *mine = &now->fibers[sim_lane_now->thread];
    now->counts->switches++;
#if SIM_ASAN
    __sanitizer_start_switch_fiber(for_good ? NULL : &mine->fake, now->host_bottom, now->host_bytes);
#endif
#if SIM_TSAN
    __tsan_switch_to_fiber(now->host.tsan, 0);
#endif
    (void)for_good;
    sim_switch(&mine->sp, now->host.sp);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(mine->fake, &now->host_bottom, &now->host_bytes);
#endif
}

static void to_lane(int i)
{
    run *now = here();
    fiber *f = &now->fibers[i];
    sim_lane_now = &now->lanes[i];
#if SIM_ASAN
    __sanitizer_start_switch_fiber(&now->host.fake, f->stack, STACK);
#endif
#if SIM_TSAN
    __tsan_switch_to_fiber(f->tsan, 0);
#endif
    sim_switch(&now->host.sp, f->sp);
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(now->host.fake, NULL, NULL);
#endif
}

extern "C" __attribute__((visibility("hidden"), used)) void sim_enter(void)
{
    run *now = here();
#if SIM_ASAN
    __sanitizer_finish_switch_fiber(NULL, &now->host_bottom, &now->host_bytes);
#endif
    now->l->kernel->simulated(now->l->args);
    if (sim_lane_now->n_copies) fault(sim_lane_now->thread, sim_lane_now->line, "it ends with a copy not waited for");
    sim_lane_now->state = SIM_ENDED;
    to_host(true);
    __builtin_unreachable();
}

/* ---- what a thread calls ---- */
static void wait_as(sim_state s, int line)
{
    sim_lane_now->state = s;
    sim_lane_now->line = line;
    to_host(false);
}

void sim_barrier(int line) { wait_as(SIM_AT_BARRIER, line); }

sim_lane *sim_meet(uint32_t mask, const void *mine, size_t bytes, int line)
{
    run *now = here();
    sim_lane *l = sim_lane_now;
    if (bytes > SIM_BOX) fault(l->thread, line, "%zu bytes for a warp", bytes);
    if (!(mask >> l->thread % GPU_WARP & 1)) fault(l->thread, line, "its mask %08x is of others", mask);
    memcpy(l->box[l->turn], mine, bytes);
    l->turn ^= 1;
    l->mask = mask;
    wait_as(SIM_AT_WARP, line);
    return now->lanes + l->thread / GPU_WARP * GPU_WARP;
}

void sim_aligned(const void *p, size_t to, int line)
{
    if ((uintptr_t)p % to) fault(sim_lane_now->thread, line, "%p is no multiple of %zu", p, to);
}

void sim_copy(void *shared, const void *global, int line)
{
    run *now = here();
    sim_lane *l = sim_lane_now;
    unsigned char *to = (unsigned char *)shared;
    sim_aligned(shared, 16, line);
    sim_aligned(global, 16, line);
    if (to < now->shared || to + 16 > now->shared + now->shared_bytes)
        fault(l->thread, line, "a copy to what is not shared memory");
    if (l->n_copies == SIM_COPIES) fault(l->thread, line, "more than %d copies under way", (int)SIM_COPIES);
    memset(shared, 0xff, 16); /* nothing is there before it was waited for */
    l->line = line;
    l->copy[l->n_copies].to = shared;
    l->copy[l->n_copies].from = global;
    l->copy[l->n_copies++].group = l->group;
}

void sim_copies_wait(int newest, int line)
{
    sim_lane *l = sim_lane_now;
    int kept = 0;
    l->line = line;
    for (int i = 0; i < l->n_copies; i++)
        if (l->copy[i].group < l->group - newest) memcpy(l->copy[i].to, l->copy[i].from, 16);
        else l->copy[kept++] = l->copy[i];
    l->n_copies = kept;
}

/* ---- who goes on ---- */
/* Warp operations at which all have arrived. */
static void settle(int warp)
{
    run *now = here();
    sim_lane *w = now->lanes + warp * GPU_WARP;
    for (int i = 0; i < GPU_WARP; i++) {
        if (w[i].state != SIM_AT_WARP) continue;
        bool all = true;
        for (int k = 0; k < GPU_WARP && all; k++)
            if (w[i].mask >> k & 1) all = w[k].state == SIM_AT_WARP && w[k].mask == w[i].mask && w[k].line == w[i].line;
        for (int k = 0, mask = all ? (int)w[i].mask : 0; k < GPU_WARP; k++)
            if ((unsigned)mask >> k & 1) w[k].state = SIM_RUNS;
    }
}

static bool can_run(int warp)
{
    run *now = here();
    for (int i = 0; i < GPU_WARP; i++)
        if (now->lanes[warp * GPU_WARP + i].state == SIM_RUNS) return true;
    return false;
}

/* Each lane that can, once. */
static void turn(int warp)
{
    run *now = here();
    int by = now->order.way >= SIM_RANDOM ? (int)(draw() % GPU_WARP) : 0;
    for (int k = 0; k < GPU_WARP; k++) {
        int i = warp * GPU_WARP + (now->order.way == SIM_BACKWARD ? GPU_WARP - 1 - k : (k + by) % GPU_WARP);
        if (now->lanes[i].state == SIM_RUNS) to_lane(i);
    }
    settle(warp);
}

static void shuffle(int *v, int n)
{
    for (int i = n - 1; i > 0; i--) {
        int k = (int)(draw() % (unsigned)(i + 1)), x = v[i];
        v[i] = v[k];
        v[k] = x;
    }
}

/* Until all wait for each other, or have ended. */
static void run_warps(int warps)
{
    run *now = here();
    bool any = true;
    while (any) {
        any = false;
        if (now->order.way >= SIM_RANDOM) shuffle(now->warp, warps);
        for (int k = 0; k < warps; k++) {
            int w = now->warp[k];
            if (!can_run(w)) continue;
            any = true;
            do turn(w);
            while (now->order.way == SIM_GREEDY && can_run(w));
            if (now->order.way == SIM_RANDOM) break;
        }
    }
}

/* Opens the barrier. False: all have ended. */
static bool open_barrier(int n)
{
    run *now = here();
    const sim_lane *first = NULL, *ended = NULL;
    for (int i = 0; i < n; i++) {
        const sim_lane *l = &now->lanes[i];
        if (l->state == SIM_AT_WARP) {
            const sim_lane *w = l - l->thread % GPU_WARP;
            for (int k = 0; k < GPU_WARP; k++)
                if (l->mask >> k & 1 && (w[k].state != SIM_AT_WARP || w[k].line != l->line || w[k].mask != l->mask))
                    fault(l->thread, l->line, "its warp waits for thread %d, which %s line %d", w[k].thread,
                          w[k].state == SIM_ENDED ? "has ended, last seen in" : "waits in", w[k].line);
        }
        if (l->state == SIM_ENDED) ended = l;
        else if (!first) first = l;
        if (l->state == SIM_AT_BARRIER && l->line != first->line)
            fault(l->thread, l->line, "it waits at this barrier, thread %d at that of line %d", first->thread,
                  first->line);
    }
    if (first && ended)
        fault(first->thread, first->line, "it waits at a barrier, and thread %d has ended", ended->thread);
    for (int i = 0; i < n; i++)
        if (now->lanes[i].state == SIM_AT_BARRIER) now->lanes[i].state = SIM_RUNS;
    return first != NULL;
}

enum { BEHIND = 4096, MARK = 0xa5 };

static void run_block(void)
{
    run *now = here();
    int n = now->l->kernel->threads, warps = n / GPU_WARP;
    memset(now->shared, 0xff, now->shared_bytes);
    memset(now->shared + now->shared_bytes, MARK, BEHIND);
    for (int i = 0; i < n; i++) {
        fiber *f = &now->fibers[i];
        sim_lane *l = &now->lanes[i];
        f->sp = first_sp(f->stack + STACK);
        l->state = SIM_RUNS;
        l->thread = i;
        l->line = l->turn = l->n_copies = l->group = 0;
    }
    for (int w = 0; w < warps; w++) now->warp[w] = now->order.way == SIM_BACKWARD ? warps - 1 - w : w;
    do run_warps(warps);
    while (open_barrier(n));
    for (int i = 0; i < BEHIND; i++)
        if (now->shared[now->shared_bytes + (size_t)i] != MARK)
            fault(0, 0, "byte %d behind its %zu bytes of shared memory was written", i, now->shared_bytes);
    now->counts->blocks++;
}

/* ---- rooms for a launch, kept for the next one ---- */
static struct {
    pthread_mutex_t lock;
    run *kept;
} pool = {PTHREAD_MUTEX_INITIALIZER, NULL};

static void *pages(size_t bytes)
{
    void *p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) sim_fault("no memory for the stacks of simulated threads");
    return p;
}

static run *take(void)
{
    pthread_mutex_lock(&pool.lock);
    run *r = pool.kept;
    if (r) pool.kept = r->next;
    pthread_mutex_unlock(&pool.lock);
    if (r) return r;
    r = (run *)pages(sizeof *r); /* zeros */
    r->room = (unsigned char *)pages(GPU_SHARED_MOST + BEHIND);
    return r;
}

static void give(run *r)
{
    pthread_mutex_lock(&pool.lock);
    r->next = pool.kept;
    pool.kept = r;
    pthread_mutex_unlock(&pool.lock);
}

static void need_stacks(run *r, int n)
{
    for (; r->n_stacks < n; r->n_stacks++) {
        char *p = (char *)pages(GUARD + STACK);
        mprotect(p, GUARD, PROT_NONE);
        r->fibers[r->n_stacks].stack = p + GUARD;
#if SIM_TSAN
        r->fibers[r->n_stacks].tsan = __tsan_create_fiber(0);
#endif
    }
}

void sim_fibers(const struct gpu_launch *l, struct sim_order o, struct sim_counts *counts)
{
    sim_lane *outer_lane = sim_lane_now;
    sim_block *outer_block = sim_block_now;
    int n = l->kernel->threads;
    uint64_t blocks = (uint64_t)l->grid[0] * l->grid[1] * l->grid[2];
    run *now = take();
    sim_block_now = now;
    now->l = l;
    now->order = o;
    now->counts = counts;
    now->drawn = o.seed * 2862933555777941757u + 3037000493u;
    if (n < GPU_WARP || n > GPU_THREADS_MOST || n % GPU_WARP) fault(0, 0, "a block of %d threads", n);
    if (l->shared > GPU_SHARED_MOST) fault(0, 0, "%zu bytes of shared memory, of %d", l->shared, (int)GPU_SHARED_MOST);
    if (l->bytes > GPU_ARGS_MOST) fault(0, 0, "arguments of %zu bytes, of %d", l->bytes, (int)GPU_ARGS_MOST);
    need_stacks(now, n);
#if SIM_TSAN
    now->host.tsan = __tsan_get_current_fiber();
#endif
    now->grid.x = l->grid[0];
    now->grid.y = l->grid[1];
    now->grid.z = l->grid[2];
    now->threads = n;
    now->shared_bytes = l->shared;
    now->shared = now->room;
    now->lane = now->lanes;
    uint64_t by = o.way >= SIM_RANDOM && blocks ? draw() % blocks : 0, step = 1;
    if (o.way >= SIM_RANDOM) /* another order of all of them: a step that has no divisor in common */
        for (step = 1 + draw() % (blocks ? blocks : 1);; step++) {
            uint64_t a = step, b = blocks;
            while (b) {
                uint64_t c = a % b;
                a = b;
                b = c;
            }
            if (a == 1 || blocks <= 1) break;
        }
    for (uint64_t k = 0; k < blocks; k++) {
        uint64_t b = o.way == SIM_BACKWARD ? blocks - 1 - k : (by + k * step) % blocks;
        now->at.x = (uint32_t)(b % l->grid[0]);
        now->at.y = (uint32_t)(b / l->grid[0] % l->grid[1]);
        now->at.z = (uint32_t)(b / l->grid[0] / l->grid[1]);
        run_block();
    }
    counts->launches++;
    give(now);
    sim_lane_now = outer_lane;
    sim_block_now = outer_block;
}
