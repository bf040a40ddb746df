/* SPDX-License-Identifier: Apache-2.0 */
/* count_calls.c: calls whose executed instructions are counted under emulation, by the reference and by the cpu family;
 * a program for scripts/arm.sh --count, not a test. Every call stands between two calls of count_mark, which the
 * emulator's log of executed instructions shows by name; stdout gets one line per pair of marks, in order: what was
 * called, by whom, in which type. */
#include <stdio.h>

#include "base/err.h"
#include "base/mem.h"
#include "comm/fold.h"
#include "kernel/flat_ops.h"
#include "kernel/kernel.h"

static struct team *team;
static const struct step_info step = {.seed = 1, .training = true, .loss_scale = 1e-3f};

void count_mark(void);
__attribute__((noinline)) void count_mark(void) { __asm__ volatile(""); }

static struct view tensor(enum dtype t, int64_t rows, int64_t cols, double size)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    if (cols == 0) v = (struct view){.dtype = t, .nd = 1, .n = {rows}, .stride = rows};
    int64_t n = view_rows(&v) * v.stride;
    v.p = mem_pages_new((size_t)n * dtype_bytes(t));
    for (int64_t i = 0; i < n; i++) {
        double x = size * ((double)(i * 7919 % 1009) / 504.0 - 1);
        if (t == DT_I32) ((int32_t *)v.p)[i] = (int32_t)(i * 7 % (int64_t)size);
        else if (t == DT_BF16) ((bf16 *)v.p)[i] = bf16_from_f32((float)x);
        else if (t == DT_F32) ((float *)v.p)[i] = (float)x;
    }
    return v;
}
static struct view like(const struct view *v, enum dtype t) { return tensor(t, v->n[0], v->nd > 1 ? v->n[1] : 0, 1); }

static void label(const char *what, const char *detail, const char *family, enum dtype t)
{
    printf("%s%s%s %s %s\n", what, *detail ? "," : "", detail, dtype_name(t), family);
}

/* One call by each family. The program is linked with its symbols bound (-z now), so a first call counts like any. */
static void both(struct kernel_call *c, const char *detail)
{
    static const char *const phases[] = {"forward", "backward", "weight gradient"};
    const struct kernel_family *const families[] = {&kernel_family_ref, &kernel_family_cpu};
    char what[80];
    for (int f = 0; f < 2; f++) {
        const struct kernel_slot *s = kernel_way(families[f], c);
        struct stream here = kernel_here(team);
        c->stream = &here;
        c->step = &step;
        CHECK(s, "%s does not take %s", families[f]->name, op_row(c->op)->name);
        c->scratch_bytes = s->scratch ? s->scratch(c, 1) : 0;
        c->scratch = mem_pages_new(c->scratch_bytes + 64);
        snprintf(what, sizeof what, "%s%s%s %s", op_row(c->op)->name, *detail ? " " : "", detail, phases[c->phase]);
        count_mark();
        s->run(c);
        count_mark();
        c->stream = NULL;
        label(what, "", families[f]->name, c->in[c->op == OP_EMBED].dtype);
        mem_pages_free(c->scratch, c->scratch_bytes + 64);
    }
}

/* Forward, then each backward phase; weight gradients add in place. */
static void all_phases(struct kernel_call c, const char *detail)
{
    const struct op_row *row = op_row(c.op);
    c.n_out = row->n_out;
    const char *why = row->infer(&c.at, c.n_in, c.in, c.out);
    CHECK(!why, "%s: %s", row->name, why);
    for (int i = 0; i < c.n_out; i++) c.out[i] = like(&c.out[i], c.out[i].dtype);
    both(&c, detail);
    if (c.op != OP_XENT) c.dout[0] = like(&c.out[0], c.out[0].dtype);
    for (int p = KERNEL_BWD_IN; p <= KERNEL_BWD_W; p++) {
        int wanted = p == KERNEL_BWD_IN ? row->grad_in : row->weight_in;
        if (!wanted) continue;
        struct kernel_call b = c;
        b.phase = (enum kernel_phase)p;
        for (int i = 0; i < c.n_in; i++)
            if (wanted >> i & 1) {
                b.din[i] = like(&c.in[i], p == KERNEL_BWD_W ? DT_F32 : c.in[i].dtype);
                if (p == KERNEL_BWD_W) b.acc[i] = b.din[i];
            }
        both(&b, detail);
    }
}

static void products(enum dtype t)
{
    struct kernel_call c = {.op = OP_LINEAR,
                            .at = ATTRS(linear, 0),
                            .n_in = 2,
                            .in = {tensor(t, 36, 64, 1), tensor(t, 48, 64, 1)}};
    all_phases(c, "");
}

static void attention(enum dtype t)
{
    const int64_t n = 96;
    const int heads = 1, kv_heads = 1, a = 32;
    struct kernel_call c = {.op = OP_ATTENTION,
                            .n_in = 3,
                            .at = ATTRS(attention, .heads = heads, .kv_heads = kv_heads, .head_dim = a, .batch = 1,
                                        .seq = (int)n, .scale = 0.18f, .causal = true)};
    for (int i = 0; i < 3; i++) c.in[i] = tensor(t, n, (int64_t)(i ? kv_heads : heads) * a, 2);
    all_phases(c, "");
}

static void rows(enum dtype t)
{
    const int64_t T = 4, D = 256, V = 400;
    struct kernel_call ln = {.op = OP_LAYERNORM,
                             .at = ATTRS(norm, .eps = 1e-5f),
                             .n_in = 3,
                             .in = {tensor(t, T, D, 1), tensor(t, D, 0, 1), tensor(t, D, 0, 1)}};
    all_phases(ln, "");
    struct kernel_call rms = {.op = OP_RMSNORM, .at = ATTRS(norm, .eps = 1e-5f), .n_in = 2, .in = {ln.in[0], ln.in[1]}};
    all_phases(rms, "");
    struct kernel_call act = {.op = OP_ACT, .at = ATTRS(act, ACT_GELU), .n_in = 1, .in = {tensor(t, T, D, 3)}};
    all_phases(act, "gelu");
    edit_act(&act.at)->kind = ACT_SWIGLU;
    all_phases(act, "swiglu");
    struct kernel_call add = {.op = OP_ADD, .at = ATTRS(dropout, 0), .n_in = 2, .in = {ln.in[0], tensor(t, T, D, 1)}};
    all_phases(add, "");
    edit_dropout(&add.at)->p = 0.1f;
    all_phases(add, "dropout");
    struct kernel_call rot = {.op = OP_ROTARY,
                              .at = ATTRS(rotary, .heads = 4, .head_dim = 64),
                              .n_in = 3,
                              .in = {tensor(t, T, D, 1), tensor(DT_I32, T, 0, 100), tensor(DT_F32, 100, 64, 1)}};
    all_phases(rot, "");
    struct kernel_call emb = {.op = OP_EMBED,
                              .at = ATTRS(vocab, 0),
                              .n_in = 2,
                              .in = {tensor(DT_I32, T, 0, 20), tensor(t, 20, D, 1)}};
    all_phases(emb, "");
    struct kernel_call xent = {.op = OP_XENT,
                               .at = ATTRS(vocab, 0),
                               .n_in = 2,
                               .in = {tensor(t, T, V, 5), tensor(DT_I32, T, 0, (double)V)}};
    all_phases(xent, "");
}

static void flat_one(const struct flat_ops *f, int which, int64_t n, float *x[4], bf16 *narrow, enum dtype t)
{
    struct adamw_args adamw = {n, x[0],  x[1], x[2],  x[3],  t == DT_BF16 ? (void *)narrow : x[0],
                               t, 1e-3f, 0.9f, 0.99f, 1e-8f, 0.1f,
                               1, 0.1f,  0.01f};
    struct sgd_args sgd = {.n = n,
                           .master = x[0],
                           .m = x[1],
                           .grad = x[3],
                           .param = t == DT_BF16 ? (void *)narrow : x[0],
                           .param_dtype = t,
                           .lr = 1e-3f,
                           .momentum = 0.9f,
                           .grad_scale = 1};
    if (which == 0) f->adamw(team, &adamw);
    if (which == 1) f->sgd(team, &sgd);
    if (which == 2) f->sum_squares(team, x[3], n, &(double){0});
    if (which == 3) f->find_nonfinite(team, t == DT_BF16 ? (void *)narrow : x[3], t, n);
    if (which == 4) f->cast(team, narrow, DT_BF16, x[3], DT_F32, n);
    if (which == 5) f->cast(team, x[3], DT_F32, narrow, DT_BF16, n);
    if (which == 6) f->cast(team, narrow, DT_F16, x[3], DT_F32, n);
    if (which == 7) f->cast(team, x[3], DT_F32, narrow, DT_F16, n);
}
static void flat(void)
{
    static const char *const names[] = {"adamw",          "sgd",          "sum of squares",
                                        "find nonfinite", "cast to bf16", "cast from bf16",
                                        "cast to f16",    "cast from f16"};
    static const struct flat_ops *const families[] = {&flat_ops_ref, &flat_ops_cpu};
    enum { N = 1024 };
    float *x[4];
    for (int i = 0; i < 4; i++) x[i] = tensor(DT_F32, N, 0, 0.5).p;
    for (int i = 0; i < N; i++) x[2][i] *= x[2][i];
    bf16 *narrow = tensor(DT_BF16, N, 0, 1).p;
    for (int which = 0; which < 8; which++)
        for (int t = DT_F32; t <= (which == 0 || which == 1 || which == 3 ? DT_BF16 : DT_F32); t++)
            for (int f = 0; f < 2; f++) {
                count_mark();
                flat_one(families[f], which, N, x, narrow, (enum dtype)t);
                count_mark();
                label(names[which], "", f ? "cpu" : "ref", (enum dtype)t);
            }
}

/* Sums of collectives: the portable loop is the reference there. */
static void folds(void)
{
    static const enum dtype types[] = {DT_F32, DT_BF16, DT_F16};
    enum { N = 1024 };
    for (int t = 0; t < 3; t++) {
        void *src[2] = {tensor(DT_F32, N, 0, 1).p, tensor(DT_F32, N, 0, 1).p}, *dst[1] = {tensor(DT_F32, N, 0, 1).p};
        struct fold f = {.dst = dst, .src = (const void *const *)src, .n_dst = 1, .n_src = 2, .n = N, .divisor = 1};
        for (int k = 0; k < 2; k++) {
            const struct fold_table *table = k ? fold_best() : &fold_portable;
            count_mark();
            fold_run(table, types[t], COMM_SUM, &f);
            count_mark();
            label("sum of two ranks", "", k ? "cpu" : "ref", types[t]);
        }
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IONBF, 0);
    team = team_new(1);
    for (int t = DT_F32; t <= DT_BF16; t++) {
        products((enum dtype)t);
        attention((enum dtype)t);
        rows((enum dtype)t);
    }
    flat();
    folds();
    team_free(team);
    return 0;
}
