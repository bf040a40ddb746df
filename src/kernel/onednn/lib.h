/* SPDX-License-Identifier: Apache-2.0 */
/* lib.h: the few calls of oneDNN that tutti makes, in one spelling for its C interfaces 2.x (a memory descriptor is a
 * struct, an operation has a descriptor of its own) and 3.x (descriptors are handles, operations are created
 * directly). The version is chosen here, once, by the header found at build time.
 *
 *   lib_md_init / lib_md_fini       a matrix: rows x cols with two strides
 *   lib_matmul_new                  a matrix product, attributes applied
 *   lib_scratch_bytes               what the product asks of the caller
 *   lib_scratch_memory              the caller's bytes as the library's memory
 *   lib_memory_new                  a matrix's bytes as the library's memory
 * All return the library's status. Order: Local; any thread.
 */
#ifndef TUTTI_KERNEL_ONEDNN_LIB_H
#define TUTTI_KERNEL_ONEDNN_LIB_H

#include <dnnl.h>
#include <stddef.h>
#include <stdint.h>

struct lib_md {
    dnnl_memory_desc_t d;
};

#if DNNL_VERSION_MAJOR >= 3

static inline dnnl_status_t lib_md_init(struct lib_md *m, dnnl_data_type_t t, int64_t rows, int64_t cols, int64_t rs,
                                        int64_t cs)
{
    return dnnl_memory_desc_create_with_strides(&m->d, 2, (dnnl_dims_t){rows, cols}, t, (dnnl_dims_t){rs, cs});
}
static inline void lib_md_fini(struct lib_md *m)
{
    if (m->d) dnnl_memory_desc_destroy(m->d);
}
static inline dnnl_status_t lib_matmul_new(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const struct lib_md *a,
                                           const struct lib_md *b, const struct lib_md *bias, const struct lib_md *c,
                                           dnnl_primitive_attr_t attr)
{
    return dnnl_matmul_primitive_desc_create(pd, e, a->d, b->d, bias ? bias->d : NULL, c->d, attr);
}
static inline dnnl_status_t lib_append_sum(dnnl_post_ops_t ops)
{
    return dnnl_post_ops_append_sum(ops, 1.0f, 0, dnnl_data_type_undef);
}
static inline size_t lib_scratch_bytes(dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}
static inline dnnl_status_t lib_memory_new(dnnl_memory_t *m, const struct lib_md *md, dnnl_engine_t e, void *p)
{
    return dnnl_memory_create(m, md->d, e, p);
}

#else

static inline dnnl_status_t lib_md_init(struct lib_md *m, dnnl_data_type_t t, int64_t rows, int64_t cols, int64_t rs,
                                        int64_t cs)
{
    return dnnl_memory_desc_init_by_strides(&m->d, 2, (dnnl_dims_t){rows, cols}, t, (dnnl_dims_t){rs, cs});
}
static inline void lib_md_fini(struct lib_md *m) { (void)m; }
static inline dnnl_status_t lib_matmul_new(dnnl_primitive_desc_t *pd, dnnl_engine_t e, const struct lib_md *a,
                                           const struct lib_md *b, const struct lib_md *bias, const struct lib_md *c,
                                           dnnl_primitive_attr_t attr)
{
    dnnl_matmul_desc_t d;
    dnnl_status_t s = dnnl_matmul_desc_init(&d, &a->d, &b->d, bias ? &bias->d : NULL, &c->d);
    return s == dnnl_success ? dnnl_primitive_desc_create(pd, &d, attr, e, NULL) : s;
}
static inline dnnl_status_t lib_append_sum(dnnl_post_ops_t ops) { return dnnl_post_ops_append_sum(ops, 1.0f); }
static inline size_t lib_scratch_bytes(dnnl_primitive_desc_t pd)
{
    return dnnl_memory_desc_get_size(dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0));
}
static inline dnnl_status_t lib_memory_new(dnnl_memory_t *m, const struct lib_md *md, dnnl_engine_t e, void *p)
{
    return dnnl_memory_create(m, &md->d, e, p);
}

#endif

/* The scratchpad's own descriptor comes from the product in both versions. */
static inline dnnl_status_t lib_scratch_memory(dnnl_memory_t *m, dnnl_primitive_desc_t pd, dnnl_engine_t e, void *p)
{
    return dnnl_memory_create(m, dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0), e, p);
}

#endif
