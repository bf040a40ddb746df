/* SPDX-License-Identifier: Apache-2.0 */
/* Plain loops that compilers vectorise: memory sets their pace. The tree of a few parts is walked per block of elements
 * with a binary counter, in a stack of partial blocks that stays in the first cache. */
#include "state/sum.h"

#include <string.h>

#include "base/err.h"
#include "device/device.h"

struct into {
    void *to;
    const void *from;
    enum dtype t, f;
    int64_t n;
    bool add;
};

static void into_member(void *arg, int member, int members)
{
    const struct into *a = arg;
    int64_t lo, hi;
    team_split(a->n, member, members, &lo, &hi);
    if (a->t == DT_F32) {
        float *to = a->to;
        const float *from = a->from;
        if (!a->add) memcpy(to + lo, from + lo, (size_t)(hi - lo) * sizeof *to);
        for (int64_t i = lo; a->add && i < hi; i++) to[i] += from[i];
        return;
    }
    bf16 *to = a->to;
    const float *wide = a->from;
    const bf16 *narrow = a->from;
    if (a->f == DT_F32 && !a->add)
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(wide[i]);
    else if (a->f == DT_F32)
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(bf16_to_f32(to[i]) + wide[i]);
    else if (!a->add)
        memcpy(to + lo, narrow + lo, (size_t)(hi - lo) * sizeof *to);
    else
        for (int64_t i = lo; i < hi; i++) to[i] = bf16_from_f32(bf16_to_f32(to[i]) + bf16_to_f32(narrow[i]));
}

void sum_into(struct team *team, void *to, enum dtype t, const void *from, enum dtype f, int64_t n, bool add)
{
    CHECK((t == DT_F32 && f == DT_F32) || (t == DT_BF16 && (f == DT_F32 || f == DT_BF16)), "%s into %s", dtype_name(f),
          dtype_name(t));
    struct into a = {device_here(to), device_here(from), t, f, n, add};
    if (n) team_run(team, into_member, &a);
}

enum { BLOCK = 1024, DEPTH = 16 };
struct tree {
    float *to;
    const float *part;
    int n_parts;
    int64_t n;
};

static void tree_member(void *arg, int member, int members)
{
    const struct tree *t = arg;
    float level[DEPTH][BLOCK];
    int64_t lo, hi;
    team_split(t->n, member, members, &lo, &hi);
    for (int64_t a = lo; a < hi; a += BLOCK) {
        int64_t m = hi - a < BLOCK ? hi - a : BLOCK;
        for (int p = 0; p < t->n_parts; p++) { /* level k waits for the sibling subtree of 2^k parts */
            float sum[BLOCK];
            memcpy(sum, t->part + p * t->n + a, (size_t)m * sizeof *sum);
            int k = 0;
            for (; p >> k & 1; k++)
                for (int64_t i = 0; i < m; i++) sum[i] = level[k][i] + sum[i];
            memcpy(p + 1 < t->n_parts ? level[k] : t->to + a, sum, (size_t)m * sizeof *sum);
        }
    }
}

void sum_tree(struct team *team, float *to, const float *part, int n_parts, int64_t n)
{
    CHECK(n_parts > 0 && n_parts < 1 << DEPTH && !(n_parts & (n_parts - 1)), "a tree of %d", n_parts);
    struct tree t = {device_here(to), device_here(part), n_parts, n};
    if (n) team_run(team, tree_member, &t);
}
