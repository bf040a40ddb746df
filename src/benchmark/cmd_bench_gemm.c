/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench_gemm.c: `tutti bench gemm`: what matrix products reach on a model's shapes, and what they could reach.
 *
 * Every linear layer of the model, in forward, input gradient and weight gradient, runs through the kernel table as
 * training does (packing included) and through oneDNN for comparison; before each run 64 MiB are written, so that
 * operands come from memory as they do in a step. Machines change their clock and share their cores, so the
 * ceilings are measured again around every layer and each layer is held against its own; what is printed of them is
 * the median. Cost: a few seconds for T = 1024.
 *
 * The averages weigh by operations: all products of one step (sum of operations) over the sum of their times; the
 * share of the ceiling is the time that the step's products would take at it over the time they took.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "kernel/cpu/tile/tile_rate.h"
#include "kernel/kernel.h"

/* ---- models: their linear layers ---- */
enum { MAX_LAYERS = 8, MAX_CEILINGS = 2 * MAX_LAYERS + 1, FLUSH_BYTES = 64 << 20, HEAD_ROWS = 1024 };
struct layer {
    const char *name;
    int64_t out, in;
    int count; /* in one model */
    bool head; /* runs in chunks of HEAD_ROWS tokens */
};
struct model {
    const char *name;
    struct layer layers[MAX_LAYERS];
};
/* clang-format off */
static const struct model models[] = {
    {"gpt2-124m", {{"qkv", 2304, 768, 12, false}, {"proj", 768, 768, 12, false}, {"fc", 3072, 768, 12, false},
                   {"fc2", 768, 3072, 12, false}, {"head", 50257, 768, 1, true}}},
    {"gpt2-355m", {{"qkv", 3072, 1024, 24, false}, {"proj", 1024, 1024, 24, false}, {"fc", 4096, 1024, 24, false},
                   {"fc2", 1024, 4096, 24, false}, {"head", 50257, 1024, 1, true}}},
    {"llama3.2-1b", {{"q", 2048, 2048, 16, false}, {"kv", 1024, 2048, 16, false}, {"o", 2048, 2048, 16, false},
                     {"gate-up", 16384, 2048, 16, false}, {"down", 2048, 8192, 16, false},
                     {"head", 128256, 2048, 1, true}}},
    {"tiny", {{"qkv", 192, 64, 2, false}, {"fc", 256, 64, 2, false}, {"fc2", 64, 256, 2, false},
              {"head", 257, 64, 1, true}}},
};
/* clang-format on */

/* ---- the request ---- */
struct options {
    const char *model_name, *dtype;
    const struct model *model;
    int64_t tokens, threads;
    bool json, type[2]; /* bf16, f32 */
    bool library, no_library;
};
static const enum dtype types[2] = {DT_BF16, DT_F32};

#define AT(field) offsetof(struct options, field)
static const struct cli_option options[] = {
    {"--model", "NAME", CLI_CHOICE, AT(model_name), .choices = "gpt2-124m|gpt2-355m|llama3.2-1b|tiny", .help = ""},
    {"--tokens", "T", CLI_INT, AT(tokens), .lo = 1, .hi = 1 << 20, .help = "rows of the activations"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 1024, .help = "default: the cores this process may use"},
    {"--dtype", "T", CLI_CHOICE, AT(dtype), .choices = "bf16|f32|both", .help = ""},
    {"--no-library", NULL, CLI_FLAG, AT(no_library), .help = "leave oneDNN out"},
    CLI_JSON(struct options, json),
};
static const struct cli_table table = {
    .command = "bench gemm",
    .usage = "[options]",
    .about =
        "Measures the model's matrix products in three directions (forward, input_grad, weight_grad) as training runs\n"
        "them, the same through oneDNN where it is built in, and what the CPU could do: multiply-adds on registers "
        "alone,\n"
        "and micro-kernels on panels that lie in L2.\n",
    CLI_OPTIONS(options),
};

/* As cli_read. */
static bool parse(struct options *o, int argc, char **argv, int *status)
{
    *o = (struct options){.model_name = models[0].name, .tokens = 1024, .dtype = "both"};
    if (!cli_read(&table, argc, argv, o, status)) return false;
    for (size_t i = 0; i < sizeof models / sizeof models[0]; i++)
        if (!strcmp(o->model_name, models[i].name)) o->model = &models[i];
    CHECK(o->model, "%s is among the choices and no model", o->model_name);
    o->type[0] = strcmp(o->dtype, "f32");
    o->type[1] = strcmp(o->dtype, "bf16");
    o->library = !o->no_library && kernel_family_onednn.slot[OP_LINEAR][KERNEL_FWD].run;
    if (!o->threads) o->threads = thread_n_cores();
    return true;
}

/* ---- one product ---- */
struct result {
    const struct layer *layer;
    enum kernel_phase phase;
    enum dtype dtype;
    int64_t m, n, k;
    double operations;         /* of one call */
    double times;              /* calls in one step of the model */
    double own_s, library_s;   /* one call, median; 0: not measured */
    double ceiling;            /* measured beside it, operations per second */
    const char *family, *path; /* what the kernel table picks, and how that computes it */
};

/* What the CPU could do with one type, measured again and again during the run. */
struct ceiling {
    double l2[MAX_CEILINGS], registers[MAX_CEILINGS]; /* panels in L2; registers only */
    int n;
};

struct bench {
    struct options o;
    struct kernel_table table;
    struct team *team;
    char *flush;
    struct result results[MAX_LAYERS * KERNEL_N_PHASES * 2];
    int n_results;
    struct ceiling ceilings[2]; /* by type */
};

static struct view matrix(enum dtype t, int64_t rows, int64_t cols)
{
    struct view v = {.dtype = t, .nd = 2, .n = {rows, cols}, .stride = cols};
    v.p = mem_pages_new((size_t)(rows * cols) * dtype_bytes(t));
    CHECK(v.p, "no memory for a matrix of %lld x %lld", (long long)rows, (long long)cols);
    return v;
}
static void matrix_free(struct view *v) { mem_pages_free(v->p, (size_t)(v->n[0] * v->n[1]) * dtype_bytes(v->dtype)); }

/* Values in (-1, 1), the same for every run: random enough that no power is saved on zeros. */
static void fill(struct view *v)
{
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < v->n[0] * v->n[1]; i++) {
        if (i % 4 == 0) rng_block(1, 1, (uint64_t)(i % 4096) / 4, word);
        float f = (float)(int32_t)word[i % 4] * 0x1p-31f;
        if (v->dtype == DT_F32) ((float *)v->p)[i] = f;
        else ((bf16 *)v->p)[i] = bf16_from_f32(f);
    }
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Median seconds of a call on one slot, caches cold: at least three runs, more while they are short. */
static double measure(struct bench *b, const struct kernel_slot *slot, struct kernel_call c)
{
    enum { MOST = 9 };
    double s[MOST], spent = 0;
    c.scratch_bytes = slot->scratch ? slot->scratch(&c, (int)b->o.threads) : 0;
    c.scratch = c.scratch_bytes ? mem_pages_new(c.scratch_bytes) : NULL;
    CHECK(c.scratch || !c.scratch_bytes, "no memory for scratch");
    slot->run(&c); /* touches the pages, fills the library's cache of compiled kernels */
    int n = 0;
    while (n < 3 || (n < MOST && spent < 0.25)) {
        memset(b->flush, n, FLUSH_BYTES);
        double start = clock_now_s();
        slot->run(&c);
        s[n] = clock_now_s() - start;
        spent += s[n++];
    }
    mem_pages_free(c.scratch, c.scratch_bytes);
    qsort(s, (size_t)n, sizeof s[0], by_value);
    return s[n / 2];
}

/* Measures type i's ceilings once more; returns the one its products are held against: panels in L2 for bf16 (what no
 * matmul from memory passes), the multiply-add rate for f32. */
static double ceiling_measure(struct bench *b, int i)
{
    struct ceiling *c = &b->ceilings[i];
    CHECK(c->n < MAX_CEILINGS, "too many ceilings");
    c->l2[c->n] = tile_rate_l2(tile_ops_get(types[i]), b->team);
    c->registers[c->n] = tile_rate_registers(tile_ops_get(types[i]), b->team);
    return types[i] == DT_F32 ? c->registers[c->n++] : c->l2[c->n++];
}
static double median(const double *v, int n)
{
    double sorted[MAX_CEILINGS];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return sorted[n / 2];
}

static void one_layer(struct bench *b, const struct layer *l, int type)
{
    const enum dtype t = types[type];
    const int64_t rows = l->head && b->o.tokens > HEAD_ROWS ? HEAD_ROWS : b->o.tokens;
    struct stream here = kernel_here(b->team);
    struct kernel_call c = {.op = OP_LINEAR, .at = ATTRS(linear, 0), .n_in = 2, .n_out = 1, .stream = &here};
    c.in[0] = matrix(t, rows, l->in);
    c.in[1] = matrix(t, l->out, l->in);
    c.out[0] = c.dout[0] = matrix(t, rows, l->out);
    c.din[0] = matrix(t, rows, l->in);
    c.din[1] = c.acc[1] = matrix(DT_F32, l->out, l->in);
    fill(&c.in[0]);
    fill(&c.in[1]);
    fill(&c.dout[0]);
    const int first = b->n_results;
    const double before = ceiling_measure(b, type);
    for (enum kernel_phase phase = KERNEL_FWD; phase < KERNEL_N_PHASES; phase++) {
        c.phase = phase;
        struct result r = {.layer = l, .phase = phase, .dtype = t, .m = rows, .n = l->out, .k = l->in};
        if (phase == KERNEL_BWD_IN) r.n = l->in, r.k = l->out;
        if (phase == KERNEL_BWD_W) r.m = l->out, r.n = l->in, r.k = rows;
        r.operations = 2.0 * (double)r.m * (double)r.n * (double)r.k;
        r.times = l->count * (double)b->o.tokens / (double)rows;
        const struct kernel_slot *own = kernel_find(&b->table, &c, &r.family);
        r.path = own->way ? own->way : "whole call";
        r.own_s = measure(b, own, c);
        const struct kernel_slot *library = kernel_way(&kernel_family_onednn, &c);
        if (b->o.library && library) r.library_s = measure(b, library, c);
        b->results[b->n_results++] = r;
    }
    const double after = ceiling_measure(b, type);
    for (int i = first; i < b->n_results; i++) b->results[i].ceiling = (before + after) / 2;
    matrix_free(&c.in[0]);
    matrix_free(&c.in[1]);
    matrix_free(&c.out[0]);
    matrix_free(&c.din[0]);
    matrix_free(&c.din[1]);
}

/* ---- averages ---- */
struct average {
    double own, library; /* operations per second over a step's products; 0: none */
    double of_ceiling;   /* the time at the ceiling over the time taken */
};
static struct average average_of(const struct bench *b, int type)
{
    double operations = 0, own_s = 0, library_s = 0, ceiling_s = 0;
    bool all = true;
    for (int i = 0; i < b->n_results; i++) {
        const struct result *r = &b->results[i];
        if (r->dtype != types[type]) continue;
        operations += r->operations * r->times;
        own_s += r->own_s * r->times;
        ceiling_s += r->operations * r->times / r->ceiling;
        library_s += r->library_s * r->times;
        all = all && r->library_s > 0;
    }
    return (struct average){operations / own_s, all ? operations / library_s : 0, ceiling_s / own_s};
}

/* ---- printing ---- */
static const char *const pass_names[KERNEL_N_PHASES] = {"forward", "input_grad", "weight_grad"};

static void print_json(const struct bench *b)
{
    struct str s = {0};
    struct json_out o = {.s = &s, .pretty = true};
    json_begin_document(&o, "bench-gemm", 1);
    json_put_string(&o, "model", b->o.model->name);
    json_put_int(&o, "tokens", b->o.tokens);
    json_put_int(&o, "threads", b->o.threads);
    json_put_string(&o, "isa", b->table.isa);
    json_put_real_digits(&o, "tile_rate_flops", median(b->ceilings[0].l2, b->ceilings[0].n), 6);
    json_put_real_digits(&o, "tile_register_rate_flops", median(b->ceilings[0].registers, b->ceilings[0].n), 6);
    json_put_real_digits(&o, "fma_rate_flops", median(b->ceilings[1].registers, b->ceilings[1].n), 6);
    json_put_real_digits(&o, "fma_tile_rate_flops", median(b->ceilings[1].l2, b->ceilings[1].n), 6);
    json_begin_array(&o, "shapes");
    for (int i = 0; i < b->n_results; i++) {
        const struct result *r = &b->results[i];
        json_begin_object(&o, NULL);
        json_put_string(&o, "layer", r->layer->name);
        json_put_int(&o, "m", r->m);
        json_put_int(&o, "n", r->n);
        json_put_int(&o, "k", r->k);
        json_put_string(&o, "pass", pass_names[r->phase]);
        json_put_string(&o, "dtype", dtype_name(r->dtype));
        json_put_real_digits(&o, "flops_per_s", r->operations / r->own_s, 6);
        if (r->library_s > 0) json_put_real_digits(&o, "onednn_flops_per_s", r->operations / r->library_s, 6);
        json_put_string(&o, "path", r->family);
        json_put_string(&o, "how", r->path);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_begin_object(&o, "average");
    for (int t = 0; t < 2; t++) {
        if (!b->o.type[t]) continue;
        struct average a = average_of(b, t);
        json_begin_object(&o, dtype_name(types[t]));
        json_put_real_digits(&o, "flops_per_s", a.own, 6);
        if (a.library > 0) json_put_real_digits(&o, "onednn_flops_per_s", a.library, 6);
        json_put_real_digits(&o, types[t] == DT_F32 ? "of_fma_rate" : "of_tile_rate", a.of_ceiling, 4);
        json_end_object(&o);
    }
    json_end_object(&o);
    json_end_object(&o);
    puts(str_text(&s));
    str_free(&s);
}

static void print_text(const struct bench *b)
{
    printf("%s, %lld tokens, %lld threads, %s; GFLOP/s\n\n", b->o.model->name, (long long)b->o.tokens,
           (long long)b->o.threads, b->table.isa);
    printf("what the CPU could do      registers   panels in L2\n");
    for (int t = 0; t < 2; t++)
        printf("  %-4s (%-12s)      %9.0f      %9.0f\n", dtype_name(types[t]), tile_ops_get(types[t])->name,
               median(b->ceilings[t].registers, b->ceilings[t].n) * 1e-9,
               median(b->ceilings[t].l2, b->ceilings[t].n) * 1e-9);
    printf("\n%-8s %-11s %-4s %6s %6s %6s %8s %8s  path\n", "layer", "pass", "type", "m", "n", "k", "tutti", "oneDNN");
    for (int i = 0; i < b->n_results; i++) {
        const struct result *r = &b->results[i];
        char library[16] = "-";
        if (r->library_s > 0) snprintf(library, sizeof library, "%.0f", r->operations / r->library_s * 1e-9);
        printf("%-8s %-11s %-4s %6lld %6lld %6lld %8.0f %8s  %s %s\n", r->layer->name, pass_names[r->phase],
               dtype_name(r->dtype), (long long)r->m, (long long)r->n, (long long)r->k, r->operations / r->own_s * 1e-9,
               library, r->family, r->path);
    }
    printf("\nall products of one step\n");
    for (int t = 0; t < 2; t++) {
        if (!b->o.type[t]) continue;
        struct average a = average_of(b, t);
        printf("  %-4s %8.0f, %.0f %% of %s", dtype_name(types[t]), a.own * 1e-9, a.of_ceiling * 100,
               types[t] == DT_F32 ? "the multiply-add rate" : "the rate from L2");
        if (a.library > 0) printf("; oneDNN %.0f", a.library * 1e-9);
        printf("\n");
    }
}

int cmd_bench_gemm(int argc, char **argv)
{
    struct bench b = {0};
    struct err e;
    int status;
    if (!parse(&b.o, argc, argv, &status)) return status;
    if (kernel_table_init(&b.table, "auto", (int)b.o.threads, false, &e)) return cli_fail(&e);
    if (team_start(&b.team, (int)b.o.threads, &e)) return cli_fail(&e);
    b.flush = mem_pages_new(FLUSH_BYTES);
    CHECK(b.flush, "no memory");
    for (int t = 0; t < 2; t++) ceiling_measure(&b, t);
    for (int t = 0; t < 2; t++)
        for (int i = 0; b.o.type[t] && i < MAX_LAYERS && b.o.model->layers[i].name; i++)
            one_layer(&b, &b.o.model->layers[i], t);
    if (b.o.json) print_json(&b);
    else print_text(&b);
    mem_pages_free(b.flush, FLUSH_BYTES);
    team_free(b.team);
    return 0;
}
