/* SPDX-License-Identifier: Apache-2.0 */
/* What the CPU can do, asked once. A level counts only when the operating system saves its registers too: the
 * compiler's probe checks that for AVX and AVX-512; tiles need a request to Linux, which grants them per process
 * (and to threads started later as well as before); on Arm, Linux says what it and the CPU support in a word that every
 * process is started with (HWCAP). Rejected: choosing at build time, because one binary must run
 * on the laptop and on the cluster. */
#include "kernel/cpuid.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/isa_built.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

static const char *const names[ISA_N] = {"ref", "avx2", "avx512", "avx512-bf16", "amx"};

enum { ARCH_REQUEST_XCOMP = 0x1023, XCOMP_TILE_DATA = 18 };

static int has_bit(unsigned leaf, unsigned subleaf, int reg, int bit)
{
    unsigned r[4] = {0};
    if (!__get_cpuid_count(leaf, subleaf, &r[0], &r[1], &r[2], &r[3])) return 0;
    return (int)(r[reg] >> bit & 1);
}

static enum isa probe(void)
{
    enum { EAX, EBX, ECX, EDX };
    __builtin_cpu_init();
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") || !has_bit(1, 0, ECX, 29)) return ISA_REF;
#if defined(TUTTI_EMULATE)
    return ISA_AMX; /* tests/emulate/avx512.h */
#endif
    if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
        !__builtin_cpu_supports("avx512dq") || !__builtin_cpu_supports("avx512vl") ||
        !__builtin_cpu_supports("avx512cd"))
        return ISA_AVX2;
    if (!has_bit(7, 1, EAX, 5)) return ISA_AVX512;
    if (!has_bit(7, 0, EDX, 22) || !has_bit(7, 0, EDX, 24)) return ISA_AVX512_BF16;
    return syscall(SYS_arch_prctl, ARCH_REQUEST_XCOMP, XCOMP_TILE_DATA) == 0 ? ISA_AMX : ISA_AVX512_BF16;
}
#elif defined(__aarch64__)
#include <sys/auxv.h>

static const char *const names[ISA_N] = {"ref", "neon", "neon-bf16"};

enum { CAP_ASIMD = 1 << 1, CAP2_BF16 = 1 << 14 }; /* as the kernel numbers them; older headers lack the second */

static enum isa probe(void)
{
    if (!(getauxval(AT_HWCAP) & CAP_ASIMD)) return ISA_REF;
    return getauxval(AT_HWCAP2) & CAP2_BF16 ? ISA_NEON_BF16 : ISA_NEON;
}
#else
static const char *const names[ISA_N] = {"ref"};

static enum isa probe(void) { return ISA_REF; }
#endif

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum isa found; /* written once, under `once` */

enum isa isa_built(void) { return TUTTI_ISA_BUILT < ISA_N ? (enum isa)TUTTI_ISA_BUILT : (enum isa)(ISA_N - 1); }

static void probe_once(void)
{
    found = probe();
    if (found > isa_built()) found = isa_built();
    const char *limit = getenv("TUTTI_ISA");
    for (int i = 0; limit && i < ISA_N; i++)
        if (!strcmp(limit, names[i]) && (enum isa)i < found) found = (enum isa)i;
}

const char *isa_unknown(void)
{
    const char *limit = getenv("TUTTI_ISA");
    for (int i = 0; limit && i < ISA_N; i++)
        if (!strcmp(limit, names[i])) return NULL;
    return limit;
}

enum isa cpu_isa(void)
{
    pthread_once(&once, probe_once);
    return found;
}

const char *isa_name(enum isa isa) { return names[isa]; }
