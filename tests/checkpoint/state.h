/* SPDX-License-Identifier: Apache-2.0 */
/* state.h: a made-up training state whose every element is known, cut into boxes at random. */
#ifndef TUTTI_TESTS_CHECKPOINT_STATE_H
#define TUTTI_TESTS_CHECKPOINT_STATE_H

#include "said.h"

#include "checkpoint/ckpt.h"
#include "checkpoint/convert.h"

struct known {
    const char *group, *name;
    enum dtype dtype;
    struct shape shape;
};
static const struct known state_all[] = {
    {"param", "embed.token", DT_BF16, {2, {29, 8}}},
    {"param", "layers.0.attn.q.weight", DT_BF16, {2, {8, 8}}},
    {"param", "layers.0.norm1.weight", DT_BF16, {1, {8}}},
    {"master", "embed.token", DT_F32, {2, {29, 8}}},
    {"master", "layers.0.attn.q.weight", DT_F32, {2, {8, 8}}},
    {"m", "experts", DT_F32, {3, {4, 6, 10}}},
    {"m", "scalar", DT_F64, {0, {0}}},
    {"data", "positions", DT_I64, {1, {5}}},
};
#define N_KNOWN (int)(sizeof state_all / sizeof *state_all)

/* Element `at` of tensor k in generation `version` of the state: exact in every type used here. */
static inline double known_value(int k, int version, int64_t at)
{
    return (double)((at * 5 + k * 11 + version * 17) % 120 - 60);
}

static inline void store_known(void *p, enum dtype t, double v)
{
    int64_t i = (int64_t)v;
    if (t == DT_I64) memcpy(p, &i, 8);
    else convert(p, t, &v, DT_F64, 1);
}

/* The elements of a box of tensor k, row-major; xfree it. */
static inline void *known_box(int k, int version, const struct region *box, enum dtype t)
{
    const struct known *s = &state_all[k];
    struct region whole = region_whole(&s->shape);
    size_t n = (size_t)region_volume(box), all = (size_t)region_volume(&whole), width = dtype_bytes(t);
    unsigned char *p = xmalloc(all * width + 1), *out = xmalloc(n * width + 1);
    for (size_t i = 0; i < all; i++) store_known(p + i * width, t, known_value(k, version, (int64_t)i));
    convert_box(out, t, box, p, t, &whole, box);
    xfree(p);
    return out;
}

static inline struct ckpt_tensor known_tensor(int k, int version, struct region box)
{
    const struct known *s = &state_all[k];
    return (struct ckpt_tensor){.group = s->group,
                                .name = s->name,
                                .dtype = s->dtype,
                                .shape = s->shape,
                                .box = box,
                                .p = known_box(k, version, &box, s->dtype)};
}

static inline struct ckpt_tensor known_whole(int k, int version)
{
    return known_tensor(k, version, region_whole(&state_all[k].shape));
}

/* The whole state on one rank. */
static inline struct ckpt_tensor *state_new(int version)
{
    struct ckpt_tensor *t = xcalloc(N_KNOWN, sizeof *t);
    for (int k = 0; k < N_KNOWN; k++) t[k] = known_whole(k, version);
    return t;
}

static inline void state_free(struct ckpt_tensor *t, int64_t n)
{
    for (int64_t i = 0; i < n; i++) xfree(t[i].p);
    xfree(t);
}

static inline int state_save_of(const char *root, uint64_t run, int64_t step, int version, int keep, struct err *e)
{
    static const struct ckpt_attachment config = {.name = "config.yaml", .p = "model: {}\n", .bytes = 10};
    struct ckpt_info info = {.step = step,
                             .tokens = step * 1000,
                             .seed = 7,
                             .run = run,
                             .extra = "{\"note\": \"x\", \"order\": [1, 2.5, null]}",
                             .attachments = &config,
                             .n_attachments = 1,
                             .keep = keep};
    struct ckpt_tensor *t = state_new(version);
    int rc = ckpt_save(root, &info, t, N_KNOWN, e);
    state_free(t, N_KNOWN);
    return rc;
}

static inline int state_save(const char *root, int64_t step, int version, int keep, struct err *e)
{
    return state_save_of(root, 0, step, version, keep, e);
}

/* Loads everything and compares it with generation `version`. */
static inline void state_check(const char *path, int version)
{
    struct err e;
    struct ckpt *c;
    assert_ok(ckpt_open(&c, path, &e));
    assert_int_equal(ckpt_count(c), N_KNOWN);
    for (int k = 0; k < N_KNOWN; k++) {
        struct ckpt_tensor wanted = known_whole(k, version), got = known_whole(k, version + 1);
        assert_ok(ckpt_load(c, &got, 1, &e));
        assert_memory_equal(got.p, wanted.p, (size_t)region_volume(&wanted.box) * dtype_bytes(wanted.dtype));
        xfree(wanted.p);
        xfree(got.p);
    }
    ckpt_close(c);
}

#endif
