/* SPDX-License-Identifier: Apache-2.0 */
/* matmul.c: oneDNN's matmul primitive with plain formats and a scratchpad of ours.
 *
 * A primitive is made, run and dropped within one call: the library keeps compiled kernels in a cache of its own, so
 * a repeated shape costs some 10 microseconds and no handle outlives the call or is shared between threads. A
 * scratchpad of ours puts those bytes on the ledger and lets any thread run the primitive.
 */
#include "kernel/onednn/matmul.h"

#include <dlfcn.h>
#include <string.h>

#include "base/err.h"
#include "kernel/onednn/lib.h"

struct handles {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t post_ops;
    struct lib_md a, b, c, bias;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t primitive;
    dnnl_memory_t memory[5]; /* A, B, C, bias, scratchpad */
};

static dnnl_data_type_t type_of(enum dtype t)
{
    return t == DT_F32 ? dnnl_f32 : t == DT_BF16 ? dnnl_bf16 : t == DT_F16 ? dnnl_f16 : dnnl_data_type_undef;
}

/* A matrix of one row or one column whose elements do not lie next to each other. oneDNN 3.7.2 (Debian 13; from AVX-512
 * on, all types) takes such a vector for a dense one: a product of one column is then written into the gaps between
 * its rows, and one row of A is read from them. Strides of matrices with a side of one were mended for years, in one
 * kernel after the other, so no version is given any. */
static bool spread_vector(int64_t rows, int64_t cols, int64_t rs, int64_t cs)
{
    return (rows == 1 && cols > 1 && cs != 1) || (cols == 1 && rows > 1 && rs != 1);
}
static bool has_spread_vector(const struct matmul *m)
{
    return spread_vector(m->m, m->k, m->a_rs, m->a_cs) || spread_vector(m->k, m->n, m->b_rs, m->b_cs) ||
           spread_vector(m->m, m->n, m->ldc, 1);
}

/* Up to the primitive's descriptor: enough to know whether the library can, and its scratch. */
static dnnl_status_t describe(struct handles *h, const struct matmul *m)
{
    memset(h, 0, sizeof *h);
    if (has_spread_vector(m)) return dnnl_unimplemented;
    dnnl_status_t s = dnnl_engine_create(&h->engine, dnnl_cpu, 0);
    if (s == dnnl_success) s = dnnl_primitive_attr_create(&h->attr);
    if (s == dnnl_success) s = dnnl_primitive_attr_set_scratchpad_mode(h->attr, dnnl_scratchpad_mode_user);
    if (s == dnnl_success && m->add) {
        s = dnnl_post_ops_create(&h->post_ops);
        if (s == dnnl_success) s = lib_append_sum(h->post_ops);
        if (s == dnnl_success) s = dnnl_primitive_attr_set_post_ops(h->attr, h->post_ops);
    }
    if (s == dnnl_success) s = lib_md_init(&h->a, type_of(m->a_t), m->m, m->k, m->a_rs, m->a_cs);
    if (s == dnnl_success) s = lib_md_init(&h->b, type_of(m->b_t), m->k, m->n, m->b_rs, m->b_cs);
    if (s == dnnl_success) s = lib_md_init(&h->c, type_of(m->c_t), m->m, m->n, m->ldc, 1);
    if (s == dnnl_success && m->has_bias) s = lib_md_init(&h->bias, type_of(m->bias_t), 1, m->n, m->n, 1);
    if (s == dnnl_success)
        s = lib_matmul_new(&h->pd, h->engine, &h->a, &h->b, m->has_bias ? &h->bias : NULL, &h->c, h->attr);
    return s;
}

static void drop(struct handles *h)
{
    for (int i = 0; i < 5; i++)
        if (h->memory[i]) dnnl_memory_destroy(h->memory[i]);
    if (h->primitive) dnnl_primitive_destroy(h->primitive);
    if (h->pd) dnnl_primitive_desc_destroy(h->pd);
    lib_md_fini(&h->a);
    lib_md_fini(&h->b);
    lib_md_fini(&h->c);
    lib_md_fini(&h->bias);
    if (h->post_ops) dnnl_post_ops_destroy(h->post_ops);
    if (h->attr) dnnl_primitive_attr_destroy(h->attr);
    if (h->stream) dnnl_stream_destroy(h->stream);
    if (h->engine) dnnl_engine_destroy(h->engine);
}

/* Asked for with one thread, as it will run: with more the library may choose another kernel, with other needs. */
int64_t matmul_scratch(const struct matmul *m)
{
    struct handles h;
    int before = matmul_alone_begin();
    int64_t bytes = describe(&h, m) == dnnl_success ? (int64_t)lib_scratch_bytes(h.pd) : -1;
    drop(&h);
    matmul_alone_end(before);
    return bytes;
}

static void *not_const(const void *p) { return (void *)(uintptr_t)p; }

void matmul_run(const struct matmul *m, void *scratch)
{
    struct handles h;
    dnnl_status_t s = describe(&h, m);
    if (s == dnnl_success) s = dnnl_primitive_create(&h.primitive, h.pd);
    if (s == dnnl_success) s = dnnl_stream_create(&h.stream, h.engine, dnnl_stream_default_flags);
    if (s == dnnl_success) s = lib_memory_new(&h.memory[0], &h.a, h.engine, not_const(m->a));
    if (s == dnnl_success) s = lib_memory_new(&h.memory[1], &h.b, h.engine, not_const(m->b));
    if (s == dnnl_success) s = lib_memory_new(&h.memory[2], &h.c, h.engine, m->c);
    if (s == dnnl_success && m->has_bias) s = lib_memory_new(&h.memory[3], &h.bias, h.engine, not_const(m->bias));
    if (s == dnnl_success) s = lib_scratch_memory(&h.memory[4], h.pd, h.engine, scratch);
    const dnnl_exec_arg_t args[] = {
        {DNNL_ARG_SRC, h.memory[0]},        {DNNL_ARG_WEIGHTS, h.memory[1]}, {DNNL_ARG_DST, h.memory[2]},
        {DNNL_ARG_SCRATCHPAD, h.memory[4]}, {DNNL_ARG_BIAS, h.memory[3]},
    };
    if (s == dnnl_success) s = dnnl_primitive_execute(h.primitive, h.stream, m->has_bias ? 5 : 4, args);
    if (s == dnnl_success) s = dnnl_stream_wait(h.stream);
    CHECK(s == dnnl_success, "oneDNN matmul %ld x %ld x %ld failed with status %d after it was accepted", (long)m->m,
          (long)m->n, (long)m->k, (int)s);
    drop(&h);
}

/* OpenMP is found at run time, if the library brought one along: we neither link nor include it. */
static void *openmp(const char *name) { return dlsym(RTLD_DEFAULT, name); }

int matmul_alone_begin(void)
{
    int (*get)(void);
    void (*set)(int);
    void *g = openmp("omp_get_max_threads"), *s = openmp("omp_set_num_threads");
    if (!g || !s) return 0;
    memcpy(&get, &g, sizeof get); /* ISO C has no cast from object to function pointers */
    memcpy(&set, &s, sizeof set);
    int before = get();
    set(1);
    return before;
}

void matmul_alone_end(int before)
{
    void (*set)(int);
    void *s = openmp("omp_set_num_threads");
    if (!before || !s) return;
    memcpy(&set, &s, sizeof set);
    set(before);
}
