/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench_experts.c: `tutti bench experts`: the grouped product beside the dense one of the same work.
 *
 * Rows are dealt to experts as a router does: uneven, here by a counter-based random choice. Three directions through
 * the kernel table, median of several runs with cold caches; the two take turns, because machines change their clock.
 * The dense product has the same rows and one expert's matrix, so the operations are the same and the weights E times
 * fewer.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "cli/cli.h"
#include "kernel/kernel.h"

enum { FLUSH_BYTES = 64 << 20, RUNS = 5 };

struct options {
    int64_t rows, hidden, ffn, threads;
    bool json;
};
#define AT(field) offsetof(struct options, field)
static const struct cli_option options[] = {
    {"--rows", "U", CLI_INT, AT(rows), .lo = 1, .hi = 1 << 20,
     .help = "rows of all experts together (tokens times choices)"},
    {"--hidden", "K", CLI_INT, AT(hidden), .lo = 1, .hi = 1 << 16, .help = "in-features"},
    {"--ffn", "N", CLI_INT, AT(ffn), .lo = 1, .hi = 1 << 16, .help = "out-features of an expert"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 1024, .help = "default: the cores this process may use"},
    CLI_JSON(struct options, json),
};
static const struct cli_table table = {
    .command = "bench experts",
    .usage = "[options]",
    .about = "Measures the grouped product of experts (forward, input_grad, weight_grad) for 4 to 64 experts, beside a "
             "dense\n"
             "product of as many rows.\n",
    CLI_OPTIONS(options),
};

static struct view matrix(enum dtype t, int64_t rows, int64_t cols)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    int64_t n = rows * cols;
    v.p = mem_pages_new(to_size(n) * dtype_bytes(t));
    CHECK(v.p, "no memory for a matrix of %lld x %lld", (long long)rows, (long long)cols);
    for (int64_t i = 0; i < n; i++) {
        float x = (float)(i * 2654435761 % 2001) * 0.001f - 1;
        if (t == DT_F32) ((float *)v.p)[i] = x;
        else ((bf16 *)v.p)[i] = bf16_from_f32(x);
    }
    return v;
}

static void matrix_free(struct view *v) { mem_pages_free(v->p, to_size(v->n[0] * v->n[1]) * dtype_bytes(v->dtype)); }

/* One product, dense where rows_E is NULL. */
static struct kernel_call product(const struct options *o, enum dtype t, int64_t experts, int32_t *rows_E)
{
    struct kernel_call c = {.op = rows_E ? OP_GROUPED : OP_LINEAR, .n_in = rows_E ? 3 : 2, .n_out = 1};
    c.at = op_attrs_zero(c.op);
    c.in[0] = matrix(t, o->rows, o->hidden);
    c.in[1] = matrix(t, experts * o->ffn, o->hidden);
    if (rows_E) c.in[2] = (struct view){.p = rows_E, .dtype = DT_I32, .nd = 1, .n = {experts}, .stride = experts};
    c.out[0] = c.dout[0] = matrix(t, o->rows, o->ffn);
    c.din[0] = matrix(t, o->rows, o->hidden);
    c.din[1] = c.acc[1] = matrix(DT_F32, experts * o->ffn, o->hidden);
    return c;
}

static void product_free(struct kernel_call *c)
{
    matrix_free(&c->in[0]);
    matrix_free(&c->in[1]);
    matrix_free(&c->out[0]);
    matrix_free(&c->din[0]);
    matrix_free(&c->din[1]);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double once(const struct kernel_table *k, struct kernel_call *c, char *flush)
{
    memset(flush, 1, FLUSH_BYTES);
    double from = clock_now_s();
    kernel_run(k, c);
    return clock_now_s() - from;
}

static void measure(const struct kernel_table *k, struct kernel_call *c[2], char *flush, double out[2])
{
    double s[2][RUNS + 1];
    for (int i = 0; i < 2; i++) {
        c[i]->scratch_bytes = kernel_scratch(k, c[i]);
        c[i]->scratch = c[i]->scratch_bytes ? mem_pages_new(c[i]->scratch_bytes) : NULL;
    }
    for (int r = 0; r <= RUNS; r++)
        for (int i = 0; i < 2; i++) s[i][r] = once(k, c[i], flush);
    for (int i = 0; i < 2; i++) {
        qsort(s[i] + 1, RUNS, sizeof **s, by_value); /* the first one touches the pages */
        out[i] = s[i][1 + RUNS / 2];
        mem_pages_free(c[i]->scratch, c[i]->scratch_bytes);
    }
}

static void deal(int32_t *rows_E, int64_t experts, int64_t rows)
{
    memset(rows_E, 0, to_size(experts) * sizeof *rows_E);
    for (int64_t i = 0; i < rows; i++) rows_E[rng_u64(7, 3, (uint64_t)i) % (uint64_t)experts]++;
}

static void one(const struct options *o, const struct kernel_table *k, struct team *team, char *flush, enum dtype t,
                int64_t experts, struct json_out *out)
{
    static const char *const phase[KERNEL_N_PHASES] = {"forward", "input_grad", "weight_grad"};
    int32_t *rows_E = xcalloc(to_size(experts), sizeof *rows_E);
    deal(rows_E, experts, o->rows);
    struct kernel_call grouped = product(o, t, experts, rows_E), dense = product(o, t, 1, NULL);
    struct stream here = kernel_here(team);
    grouped.stream = dense.stream = &here;
    double operations = 2.0 * (double)o->rows * (double)o->hidden * (double)o->ffn;
    for (int ph = 0; ph < KERNEL_N_PHASES; ph++) {
        double s[2];
        grouped.phase = dense.phase = (enum kernel_phase)ph;
        measure(k, (struct kernel_call *[]){&grouped, &dense}, flush, s);
        if (out) {
            json_begin_object(out, NULL);
            json_put_string(out, "dtype", dtype_name(t));
            json_put_int(out, "experts", experts);
            json_put_string(out, "pass", phase[ph]);
            json_put_real(out, "grouped_flops_per_s", operations / s[0]);
            json_put_real(out, "dense_flops_per_s", operations / s[1]);
            json_end_object(out);
        } else {
            printf("%-5s %7lld  %-12s %9.1f G %9.1f G %6.0f %%\n", dtype_name(t), (long long)experts, phase[ph],
                   operations / s[0] * 1e-9, operations / s[1] * 1e-9, 100 * s[1] / s[0]);
        }
    }
    product_free(&grouped);
    product_free(&dense);
    xfree(rows_E);
}

int cmd_bench_experts(int argc, char **argv)
{
    struct options o = {.rows = 4096, .hidden = 1024, .ffn = 1024};
    struct err e = {0};
    struct kernel_table k;
    int status;
    if (!cli_read(&table, argc, argv, &o, &status)) return status;
    if (!o.threads) o.threads = thread_n_cores();
    if (kernel_table_init(&k, "auto", (int)o.threads, false, &e)) return cli_fail(&e);
    struct team *team;
    if (team_start(&team, (int)o.threads, &e)) return cli_fail(&e);
    char *flush = mem_pages_new(FLUSH_BYTES);
    struct str text = {0};
    struct json_out out = {.s = &text};
    json_begin_document(&out, "bench-experts", 1);
    json_put_int(&out, "rows", o.rows);
    json_put_int(&out, "in", o.hidden);
    json_put_int(&out, "out", o.ffn);
    json_put_int(&out, "threads", o.threads);
    json_begin_array(&out, "products");
    if (!o.json)
        printf("%lld rows, %lld in-features, %lld out-features, %lld threads (%s)\n\ntype  experts  pass             "
               "grouped       dense\n",
               (long long)o.rows, (long long)o.hidden, (long long)o.ffn, (long long)o.threads, k.isa);
    for (int t = 0; t < 2; t++)
        for (int64_t experts = 4; experts <= 64; experts *= 4)
            one(&o, &k, team, flush, t ? DT_F32 : DT_BF16, experts, o.json ? &out : NULL);
    json_end_array(&out);
    json_end_object(&out);
    if (o.json) puts(str_text(&text));
    str_free(&text);
    mem_pages_free(flush, FLUSH_BYTES);
    team_free(team);
    return 0;
}
