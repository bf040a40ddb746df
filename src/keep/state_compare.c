/* SPDX-License-Identifier: Apache-2.0 */
/* Each rank sums what it would write, which over all ranks is each value once; one all-reduce adds the sums. Halves of
 * 32 bits travel, whose sums over any number of ranks fit. A tensor that is stored in another type than it is held in,
 * or that nobody holds here, has nothing to be compared with. Cost: one pass over the state, by the rank's team.
 */
#include "keep/state_compare.h"

#include <stdatomic.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "base/str.h"
#include "base/thread.h"
#include "checkpoint/state_sum.h"
#include "keep/run_checkpoint.h"

enum { LOW, HIGH, COUNT, N_SUMS, STRETCH = 1 << 20 }; /* of a tensor; elements that are summed at once */

struct part { /* elements [lo, lo + n) of a box */
    const struct ckpt_tensor *t;
    int64_t k; /* position in the checkpoint */
    int64_t lo, n;
    uint64_t sum;
};
struct summing {
    struct part *part;
    int64_t n;
    atomic_llong next;
    struct err e;
    int rc;
};

static uint64_t sum_at(const struct part *p, const void *memory)
{
    return state_sum(&p->t->shape, &p->t->box, p->t->dtype, p->lo, p->n, memory);
}

/* What the host can reach, by all; the rest has one stream, which is the calling thread's. */
static void sum_parts(void *arg, int member, int n_members)
{
    struct summing *s = arg;
    (void)n_members;
    unsigned char *piece = member ? NULL : xmalloc(8 * STRETCH);
    for (int64_t k = 0; member == 0 && k < s->n && !s->rc; k++) {
        struct part *p = &s->part[k];
        int64_t width = (int64_t)dtype_bytes(p->t->dtype);
        if (!p->t->access) continue;
        s->rc = p->t->access->to_host(p->t->ctx, p->lo * width, to_size(p->n * width), piece, &s->e);
        if (!s->rc) p->sum = sum_at(p, piece);
    }
    for (int64_t k; (k = atomic_fetch_add(&s->next, 1)) < s->n;) {
        struct part *p = &s->part[k];
        if (!p->t->access) p->sum = sum_at(p, (const char *)p->t->p + (size_t)p->lo * dtype_bytes(p->t->dtype));
    }
    xfree(piece);
}

static int64_t cut(const struct ckpt *c, const struct ckpt_tensor *t, int64_t n, struct part **out)
{
    int64_t room = 0, parts = 0;
    for (int64_t i = 0; i < n; i++) room += region_volume(&t[i].box) / STRETCH + 1;
    *out = xcalloc(to_size(room) + 1, sizeof **out);
    for (int64_t i = 0; i < n; i++) {
        int64_t k = ckpt_find(c, t[i].group, t[i].name), all = region_volume(&t[i].box);
        if (k < 0 || ckpt_at(c, k).dtype != t[i].dtype) continue;
        for (int64_t lo = 0; lo < all; lo += STRETCH)
            (*out)[parts++] = (struct part){.t = &t[i], .k = k, .lo = lo, .n = all - lo < STRETCH ? all - lo : STRETCH};
    }
    return parts;
}

/* sums: [tensors][N_SUMS] */
static int sum_own(const struct engine *g, const struct ckpt *c, int64_t *sums, struct err *e)
{
    struct ckpt_tensor *t;
    struct summing s = {0};
    int64_t n = save_describe(g, NULL, &t);
    s.n = cut(c, t, n, &s.part);
    team_run(g->dev->team, sum_parts, &s);
    for (int64_t k = 0; k < s.n; k++) {
        int64_t *to = &sums[s.part[k].k * N_SUMS];
        to[LOW] += (int64_t)(s.part[k].sum & UINT32_MAX);
        to[HIGH] += (int64_t)(s.part[k].sum >> 32);
        to[COUNT] += s.part[k].n;
    }
    if (s.rc && e) *e = s.e;
    xfree(s.part);
    save_forget(t, n);
    return s.rc;
}

static int judge(const struct ckpt *c, const int64_t *sums, struct err *e)
{
    enum { LISTED = 5 };
    struct str names = {0};
    int bad = 0;
    for (int64_t i = 0; i < ckpt_count(c); i++) {
        const int64_t *have = &sums[i * N_SUMS];
        struct ckpt_entry t = ckpt_at(c, i);
        uint64_t saved;
        if (!ckpt_tensor_state(c, i, &saved) || have[COUNT] != shape_numel(&t.shape)) continue;
        if (saved == (uint64_t)have[LOW] + ((uint64_t)have[HIGH] << 32)) continue;
        if (bad++ < LISTED) str_printf(&names, "%s%s/%s", bad > 1 ? ", " : "", t.group, t.name);
    }
    int rc = OK;
    if (bad)
        rc = err_set(e, ERR_CORRUPT,
                     "%s: %d tensors are not what was saved, though every byte that was read had its checksum: %s%s; "
                     "memory or a link between ranks changes bits: start again on other hosts",
                     ckpt_path(c), bad, str_text(&names), bad > LISTED ? ", ..." : "");
    str_free(&names);
    return rc;
}

static void list_pieces(struct summing *s, const struct ckpt_tensor *t, int64_t n, const char *group)
{
    int64_t room = 0;
    for (int64_t i = 0; i < n; i++) room += region_volume(&t[i].box) / STRETCH + 1;
    s->part = xcalloc(to_size(room) + 1, sizeof *s->part);
    for (int64_t i = 0; i < n; i++) {
        int64_t all = region_volume(&t[i].box);
        if (strcmp(t[i].group, group)) continue;
        for (int64_t lo = 0; lo < all; lo += STRETCH)
            s->part[s->n++] = (struct part){.t = &t[i], .k = i, .lo = lo, .n = all - lo < STRETCH ? all - lo : STRETCH};
    }
}

int state_of_weights(const struct engine *g, const struct ranks *r, uint64_t *out, struct err *e)
{
    struct summing s = {0};
    struct ckpt_tensor *t = NULL;
    int64_t n = r->writes ? save_describe(g, NULL, &t) : 0, half[2] = {0};
    uint64_t sum = 0;
    list_pieces(&s, t, n, g->store.array[STORE_MASTER].row.name);
    team_run(g->dev->team, sum_parts, &s);
    for (int64_t i = 0; i < s.n; i++) {
        const char *name = s.part[i].t->name;
        sum += s.part[i].sum * (hash64(name, strlen(name)) | 1);
    }
    if (s.rc) *e = s.e;
    xfree(s.part);
    if (r->writes) save_forget(t, n);
    int rc = r->world ? comm_agree(r->world, s.rc, e) : s.rc;
    half[0] = (int64_t)(sum & UINT32_MAX);
    half[1] = (int64_t)(sum >> 32);
    if (!rc && r->world)
        comm_wait(r->world, comm_all_reduce(r->world, half, half, 2, DT_I64, COMM_SUM, "sum of weights"));
    *out = (uint64_t)half[0] + ((uint64_t)half[1] << 32);
    return !rc && r->world ? comm_status(r->world, e) : rc;
}

int state_compare(const struct engine *g, const struct ranks *r, const struct ckpt *c, struct err *e)
{
    uint64_t state;
    int64_t n = ckpt_count(c) * N_SUMS;
    if (!ckpt_state(c, &state)) return OK;
    int64_t *sums = xcalloc(to_size(n) + 1, sizeof *sums);
    int rc = r->writes ? sum_own(g, c, sums, e) : OK;
    if (r->world) {
        rc = comm_agree(r->world, rc, e);
        if (!rc) comm_wait(r->world, comm_all_reduce(r->world, sums, sums, n, DT_I64, COMM_SUM, "sums of the state"));
        if (!rc) rc = comm_status(r->world, e);
    }
    if (!rc) rc = judge(c, sums, e);
    xfree(sums);
    return rc;
}
