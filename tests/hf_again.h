/* SPDX-License-Identifier: Apache-2.0 */
/* hf_again.h: weights of a published model written in their library's form and read again, for tests of families. */
#ifndef TUTTI_TESTS_HF_AGAIN_H
#define TUTTI_TESTS_HF_AGAIN_H

#include "toy.h"

#include "hub/hf.h"

static inline int hf_again_get(void *ctx, const char *name, const struct region *box, enum dtype as, void *dst,
                               struct err *e)
{
    struct weights *w = ctx;
    return weights_read(w, weights_find(w, "param", name), box, as, dst, e);
}

/* To the folder out; the same names and numbers come back. */
static inline struct weights *hf_again(struct weights *w, const struct hf_model *h, const char *out)
{
    struct err e = {0};
    struct weights *again;
    struct hf_export x = {.model = h, .dtype = DT_F32, .get = hf_again_get, .ctx = w};
    if (hf_export(out, &x, &e)) fail_msg("%s", e.text);
    if (weights_open(&again, out, &e)) fail_msg("%s", e.text);
    assert_int_equal(weights_count(again), weights_count(w));
    for (int64_t i = 0; i < weights_count(again); i++) {
        struct ckpt_entry t = weights_at(again, i);
        struct region whole = region_whole(&t.shape);
        size_t bytes = (size_t)region_volume(&whole) * sizeof(float);
        float *p = xmalloc(bytes), *q = xmalloc(bytes);
        assert_int_equal(weights_read(again, i, &whole, DT_F32, p, &e), OK);
        assert_int_equal(hf_again_get(w, t.name, &whole, DT_F32, q, &e), OK);
        assert_memory_equal(p, q, bytes);
        xfree(p);
        xfree(q);
    }
    return again;
}

#endif
