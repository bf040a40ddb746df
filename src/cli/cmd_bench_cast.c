/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_bench_cast.c: `tutti bench cast`: how fast arrays are converted to each number format and back, beside a copy.
 *
 * A conversion reads one array and writes another; the copy beside it moves as many bytes (half of them read, half
 * written), by memcpy, each thread its part. The two take turns, because machines change their clock, and each is the
 * best of several runs: what others do to the memory only takes away. Arrays are larger than caches, as in training.
 * The words of the generator that rounding by chance takes are made in the same pass.
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
#include "kernel/cpuid.h"
#include "kernel/formats.h"

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
        "per second, and the share of what a copy of as many bytes reaches in the same run.\n",
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

static void measure(const struct bench *b, const struct cast *c, int64_t bytes, double *cast_s, double *copy_s)
{
    struct copy copy = {b->codes, b->x, bytes / 2};
    *cast_s = *copy_s = 1e30;
    for (int r = 0; r <= RUNS; r++) { /* the first one touches the pages */
        double start = clock_now_s();
        run(b, c);
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
    measure(b, c, bytes, &cast_s, &copy_s);
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
    json_end_object(&out);
    if (o.json) puts(str_text(&text));
    str_free(&text);
    mem_pages_free(b.x, bytes);
    mem_pages_free(b.codes, bytes);
    team_free(b.team);
    return 0;
}
