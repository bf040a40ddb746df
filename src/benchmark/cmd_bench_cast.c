/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench_cast.c: `tutti bench cast`: how fast arrays are converted to each number format and back, beside a copy.
 *
 * A conversion reads one array and writes another; the copy beside it moves as many bytes (half of them read, half
 * written), by memcpy, each thread its part. The two take turns, because machines change their clock, and each is the
 * best of several runs: what others do to the memory only takes away. Arrays are larger than caches, as in training.
 * The words of the generator that rounding by chance takes are made in the same pass. Then the rows that recipes of
 * fewer bits put around products, on a matrix of bf16; and what messages in fewer bits cost before they are sent and
 * after they came (comm.grad, comm.param).
 */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "cli/cli.h"
#include "kernel/codec_rows.h"
#include "kernel/cpuid.h"
#include "kernel/formats.h"
#include "kernel/kernel.h"

enum { RUNS = 5 };

struct options {
    int64_t elements, threads;
    bool json;
};
#define AT(field) offsetof(struct options, field)
static const struct cli_option options[] = {
    {"--elements", "N", CLI_INT, AT(elements), .lo = 1, .hi = 1 << 30, .help = "of an array"},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 1024, .help = "default: the cores this process may use"},
    CLI_JSON(struct options, json),
};
static const struct cli_table table = {
    .command = "bench cast",
    .usage = "[options]",
    .about =
        "Measures conversions of arrays from fp32 and bf16 to each number format and back: bytes read and written\n"
        "per second, and the share of what a copy of as many bytes reaches in the same run. Likewise rows of recipes "
        "of\n"
        "fewer bits, and codecs of messages (comm.grad, comm.param).\n",
    CLI_OPTIONS(options),
};

/* One conversion; chance and saturation are of encoding only. */
struct cast {
    enum format f;
    enum dtype other;
    bool decodes, chance;
};

struct bench {
    const struct options *o;
    struct team *team;
    char *x, *codes; /* 4 bytes per element each */
};

static void run(const struct bench *b, const struct cast *c)
{
    struct format_random random = {1, 2, 0};
    if (c->decodes) format_ops_cpu.decode(b->team, b->codes, c->other, b->x, c->f, b->o->elements);
    else
        format_ops_cpu.encode(b->team, b->codes, c->f, b->x, c->other, b->o->elements, true,
                              c->chance ? &random : NULL);
}

struct copy {
    char *to;
    const char *from;
    int64_t bytes;
};
static void copy_member(void *arg, int member, int n_members)
{
    const struct copy *c = arg;
    int64_t lo, hi;
    team_split(c->bytes / 64 + 1, member, n_members, &lo, &hi);
    lo *= 64;
    hi = hi * 64 < c->bytes ? hi * 64 : c->bytes;
    if (lo < hi) memcpy(c->to + lo, c->from + lo, to_size(hi - lo));
}

/* Numbers of all sizes around 1, so that every way through a conversion is taken; codes are any bits. */
static void fill(struct bench *b, bool floats)
{
    uint32_t word[4] = {0};
    for (int64_t i = 0; i < b->o->elements; i++) {
        if (i % 4 == 0) rng_block(1, 1, (uint64_t)(i % 4096) / 4, word);
        uint32_t u = floats ? (word[i % 4] & 0x87ffffffu) + 0x3c000000u : word[i % 4];
        memcpy(b->x + 4 * i, &u, 4);
    }
}

/* One of the three: a conversion, a message's codec, or a row of the table of operations. */
struct work {
    const struct cast *cast;
    const struct codec_args *codec;
    bool decodes; /* codec */
    const struct kernel_call *call;
    const struct kernel_table *table;
};

static void measure(const struct bench *b, const struct work *w, int64_t bytes, double *cast_s, double *copy_s)
{
    struct copy copy = {b->codes, b->x, bytes / 2};
    *cast_s = *copy_s = 1e30;
    for (int r = 0; r <= RUNS; r++) { /* the first one touches the pages */
        double start = clock_now_s();
        if (w->cast) run(b, w->cast);
        else if (w->codec && w->decodes) format_ops_cpu.decode_rows(b->team, w->codec);
        else if (w->codec) format_ops_cpu.encode_rows(b->team, w->codec);
        else kernel_run(w->table, w->call);
        double between = clock_now_s();
        team_run(b->team, copy_member, &copy);
        double end = clock_now_s();
        if (r && between - start < *cast_s) *cast_s = between - start;
        if (r && end - between < *copy_s) *copy_s = end - between;
    }
}

static void one(const struct bench *b, const struct cast *c, struct json_out *out)
{
    struct format_info f = format_info(c->f);
    int64_t bytes = b->o->elements * (f.bytes + (int64_t)dtype_bytes(c->other));
    const char *from = c->decodes ? f.name : dtype_name(c->other), *to = c->decodes ? dtype_name(c->other) : f.name;
    const char *rounding = c->decodes ? "exact" : c->chance ? "stochastic" : "nearest";
    double cast_s, copy_s;
    measure(b, &(struct work){.cast = c}, bytes, &cast_s, &copy_s);
    if (!b->o->json) {
        printf("%-5s %-5s %-11s %9.2f %9.2f %9.2f\n", from, to, rounding, (double)bytes / cast_s * 1e-9,
               (double)bytes / copy_s * 1e-9, copy_s / cast_s);
        return;
    }
    json_begin_object(out, NULL);
    json_put_string(out, "from", from);
    json_put_string(out, "to", to);
    json_put_string(out, "rounding", rounding);
    json_put_real(out, "bytes_per_s", (double)bytes / cast_s);
    json_put_real(out, "copy_bytes_per_s", (double)bytes / copy_s);
    json_put_real(out, "of_copy", copy_s / cast_s);
    json_end_object(out);
}

/* From fp32 all and by chance; from bf16, whose values 8 bits are made of, those; and back. */
static void all(struct bench *b, struct json_out *out)
{
    for (int decodes = 0; decodes < 2; decodes++) {
        fill(b, !decodes);
        for (int f = 0; f < FORMAT_N; f++)
            for (int way = 0; way < 3; way++) {
                struct cast c = {(enum format)f, way == 1 ? DT_BF16 : DT_F32, decodes, way == 2};
                if ((way == 1 && format_info(c.f).bytes > 1) || (way == 2 && decodes)) continue;
                one(b, &c, out);
            }
    }
}

/* ---- rows of fewer bits ---- */
#define BLOCKS(f, kind, r, c) .format = FORMAT_##f, .scaling = SCALING_##kind, .rows = r, .cols = c
static const struct quantised {
    const char *name;
    enum op op;
    struct quantise_attrs at;
} quantised[] = {
    {"amax", OP_AMAX, {0}},
    {"e4m3 by tensor", OP_QUANTISE, {.format = FORMAT_E4M3}},
    {"e5m2 by tensor", OP_QUANTISE, {.format = FORMAT_E5M2}},
    {"e4m3 1x128", OP_QUANTISE, {BLOCKS(E4M3, BLOCK, 1, 128), .power_of_two = true}},
    {"e4m3 128x1", OP_QUANTISE, {BLOCKS(E4M3, BLOCK, 128, 1), .power_of_two = true}},
    {"e4m3 128x128", OP_QUANTISE, {BLOCKS(E4M3, BLOCK, 128, 128), .power_of_two = true}},
    {"mxfp8 1x32", OP_QUANTISE, {BLOCKS(E4M3, MX, 1, 32)}},
    {"mxfp8 32x1", OP_QUANTISE, {BLOCKS(E4M3, MX, 32, 1)}},
    {"nvfp4 1x16", OP_QUANTISE, {BLOCKS(E2M1, NV, 1, 16)}},
    {"nvfp4 16x16", OP_QUANTISE, {BLOCKS(E2M1, NV, 16, 16)}},
    {"nvfp4 16x1 rotated, stochastic",
     OP_QUANTISE,
     {BLOCKS(E2M1, NV, 16, 1), .rotate = {ALONG_ROWS, 1}, .chance = true, .stream = 2}},
};

static void one_quantised(const struct bench *b, const struct kernel_table *t, const struct quantised *w,
                          struct json_out *out)
{
    int64_t cols = b->o->elements < 1024 ? b->o->elements : 1024, rows = b->o->elements / cols;
    struct step_info step = {.seed = 1};
    float amax = 4;
    struct stream here = kernel_here(b->team);
    struct kernel_call c = {.op = w->op, .at = attrs_quantise(w->at), .step = &step, .n_in = 2, .stream = &here};
    if (w->op == OP_AMAX) c.at = op_attrs_zero(OP_AMAX);
    c.in[0] = (struct view){.p = b->x, .dtype = DT_BF16, .nd = 2, .n = {rows, cols}, .stride = cols};
    c.in[1] = (struct view){.p = &amax, .dtype = DT_F32, .nd = 1, .n = {1}, .stride = 1};
    const char *why = op_row(w->op)->infer(&c.at, w->op == OP_AMAX ? 1 : 2, c.in, c.out);
    CHECK(!why, "%s: %s", w->name, why);
    c.out[0].p = b->codes;
    c.out[1].p = b->codes + 2 * rows * cols;
    c.scratch_bytes = kernel_scratch(t, &c);
    void *scratch = xmalloc(c.scratch_bytes + 64);
    c.scratch = (char *)scratch + (64 - (uintptr_t)scratch % 64);
    int64_t bytes = rows * cols * (w->op == OP_AMAX ? 2 : 4);
    double row_s, copy_s;
    measure(b, &(struct work){.call = &c, .table = t}, bytes, &row_s, &copy_s);
    xfree(scratch);
    if (!b->o->json) {
        printf("%-23s %9.2f %9.2f %9.2f\n", w->name, (double)bytes / row_s * 1e-9, (double)bytes / copy_s * 1e-9,
               copy_s / row_s);
        return;
    }
    json_begin_object(out, NULL);
    json_put_string(out, "what", w->name);
    json_put_real(out, "bytes_per_s", (double)bytes / row_s);
    json_put_real(out, "copy_bytes_per_s", (double)bytes / copy_s);
    json_put_real(out, "of_copy", copy_s / row_s);
    json_end_object(out);
}

static int all_quantised(struct bench *b, struct json_out *out, struct err *e)
{
    struct kernel_table t;
    int rc = kernel_table_init(&t, "auto", (int)b->o->threads, false, e);
    if (rc) return rc;
    fill(b, true); /* as bf16: the upper halves */
    for (int64_t i = 0; i < b->o->elements; i++) memmove(b->x + 2 * i, b->x + 4 * i + 2, 2);
    json_begin_array(out, "quantise");
    if (!b->o->json) printf("\nbf16 to the values of codes   row      copy  of copy\n");
    for (size_t i = 0; i < sizeof quantised / sizeof *quantised; i++) one_quantised(b, &t, &quantised[i], out);
    json_end_array(out);
    return OK;
}

/* ---- messages in fewer bits ---- */
/* What is encoded lies in x and is put into `codes`; what is decoded comes from there, and its numbers take the place
 * of the copy's. parts: how many ranks' numbers are added up. */
static void one_message(const struct bench *b, enum codec c, enum dtype t, int parts, char *codes, struct json_out *out)
{
    const int64_t cols = b->o->elements < 1024 ? b->o->elements : 1024, rows = b->o->elements / cols;
    struct codec_args a = {.codec = c, .shape = {rows, cols, 0}, .x = b->x, .t = t, .codes = codes, .parts = parts};
    char what[64];
    double row_s, copy_s;
    a.stride = codec_bytes(c, &a.shape, t);
    if (parts) {
        for (int i = 0; i < parts; i++, a.codes = codes + (size_t)i * a.stride) format_ops_cpu.encode_rows(b->team, &a);
        a.codes = codes;
        a.x = b->codes;
    }
    snprintf(what, sizeof what, "%s %s%s", parts ? codec_row(c)->name : dtype_name(t),
             parts > 1 ? "of two ranks, summed to " : "to ", parts ? dtype_name(t) : codec_row(c)->name);
    int64_t bytes = rows * cols * (int64_t)dtype_bytes(t) + (parts ? parts : 1) * (int64_t)a.stride;
    measure(b, &(struct work){.codec = &a, .decodes = parts > 0}, bytes, &row_s, &copy_s);
    if (!b->o->json) {
        printf("%-34s %9.2f %9.2f %9.2f\n", what, (double)bytes / row_s * 1e-9, (double)bytes / copy_s * 1e-9,
               copy_s / row_s);
        return;
    }
    json_begin_object(out, NULL);
    json_put_string(out, "what", what);
    json_put_real(out, "bytes_per_s", (double)bytes / row_s);
    json_put_real(out, "copy_bytes_per_s", (double)bytes / copy_s);
    json_put_real(out, "of_copy", copy_s / row_s);
    json_end_object(out);
}

/* Gradients are fp32 and summed, parameters bf16 and only read. */
static void all_messages(struct bench *b, struct json_out *out)
{
    const size_t bytes =
        4 * to_size(b->o->elements) + 64; /* two parts of the widest codec, or a part with its scales */
    char *codes = mem_pages_new(bytes);
    CHECK(codes, "no memory for codes of %lld numbers", (long long)b->o->elements);
    json_begin_array(out, "messages");
    if (!b->o->json) printf("\nmessages                                 codec      copy  of copy\n");
    fill(b, true);
    for (int c = CODEC_BF16; c < CODEC_N; c++)
        for (int parts = 0; parts <= 2; parts += 2) one_message(b, (enum codec)c, DT_F32, parts, codes, out);
    for (int64_t i = 0; i < b->o->elements; i++) memmove(b->x + 2 * i, b->x + 4 * i + 2, 2);
    for (int c = CODEC_FP8; c < CODEC_N; c++)
        for (int parts = 0; parts <= 1; parts++) one_message(b, (enum codec)c, DT_BF16, parts, codes, out);
    json_end_array(out);
    mem_pages_free(codes, bytes);
}

int cmd_bench_cast(int argc, char **argv)
{
    struct options o = {.elements = 1 << 24};
    struct err e = {0};
    int status;
    if (!cli_read(&table, argc, argv, &o, &status)) return status;
    if (!o.threads) o.threads = thread_n_cores();
    struct bench b = {.o = &o};
    if (team_start(&b.team, (int)o.threads, &e)) return cli_fail(&e);
    size_t bytes = 4 * to_size(o.elements);
    b.x = mem_pages_new(bytes);
    b.codes = mem_pages_new(bytes);
    CHECK(b.x && b.codes, "no memory for two arrays of %lld floats", (long long)o.elements);
    struct str text = {0};
    struct json_out out = {.s = &text};
    json_begin_document(&out, "bench-cast", 1);
    json_put_int(&out, "elements", o.elements);
    json_put_int(&out, "threads", o.threads);
    json_put_string(&out, "isa", isa_name(cpu_isa()));
    json_begin_array(&out, "casts");
    if (!o.json)
        printf("%lld elements, %lld threads, %s; GB/s read and written\n\nfrom  to    rounding         cast      copy  "
               "of copy\n",
               (long long)o.elements, (long long)o.threads, isa_name(cpu_isa()));
    all(&b, &out);
    json_end_array(&out);
    int rc = all_quantised(&b, &out, &e);
    if (!rc) all_messages(&b, &out);
    json_end_object(&out);
    if (o.json && !rc) puts(str_text(&text));
    str_free(&text);
    mem_pages_free(b.x, bytes);
    mem_pages_free(b.codes, bytes);
    team_free(b.team);
    return rc ? cli_fail(&e) : 0;
}
