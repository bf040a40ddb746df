/* SPDX-License-Identifier: Apache-2.0 */
/* tutti checkpoint inspect: what is in a checkpoint, tensor by tensor; read once, in pieces. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "hub/weights.h"
#include "cli/cmd_checkpoint.h"

struct request {
    const char *path, *tensor;
    bool json, histogram;
};
static const struct cli_option options[] = {
    {"--tensor", "TEXT", CLI_TEXT, offsetof(struct request, tensor), .help = "only those with TEXT in GROUP/NAME"},
    {"--histogram", NULL, CLI_FLAG, offsetof(struct request, histogram),
     .help = "least, largest, zeros, what is not finite, and how many values have which exponent"},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "CHECKPOINT", .at = offsetof(struct request, path)}};
static const struct cli_table table = {.command = "checkpoint inspect",
                                       .usage = "CHECKPOINT [--tensor TEXT] [--histogram] [--json]",
                                       .about = "Step, tokens, and each tensor's shape, type and norm.\n",
                                       CLI_OPTIONS(options),
                                       CLI_WORDS(words)};

/* Exponents of fp32, subnormal ones too: 2^e <= |x| < 2^(e + 1). What is smaller (fp64) counts as the lowest. */
enum { LOWEST = -149, HIGHEST = 127, EXPONENTS = HIGHEST - LOWEST + 1 };

struct numbers {
    double squares, least, largest; /* of what is finite; least > largest: nothing is */
    int64_t zeros, not_finite, of[EXPONENTS];
};

static void add_squares(void *ctx, const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    ((struct numbers *)ctx)->squares += sum;
}

static void add_all(void *ctx, const double *x, int64_t n)
{
    struct numbers *s = ctx;
    add_squares(ctx, x, n);
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(x[i])) {
            s->not_finite++;
            continue;
        }
        s->least = fmin(s->least, x[i]);
        s->largest = fmax(s->largest, x[i]);
        int e;
        if (x[i] == 0) s->zeros++;
        else frexp(x[i], &e), s->of[e - 1 < LOWEST ? 0 : e - 1 > HIGHEST ? EXPONENTS - 1 : e - 1 - LOWEST]++;
    }
}

/* Of tensor i; a norm of NaN for integers, which have none worth printing. */
static int numbers_of(const struct request *q, struct weights *w, int64_t i, struct numbers *s, double *norm,
                      struct err *e)
{
    *s = (struct numbers){.least = INFINITY, .largest = -INFINITY};
    *norm = NAN;
    if (!dtype_info(weights_at(w, i).dtype)->is_float) return OK;
    int rc = weights_scan(w, i, q->histogram ? add_all : add_squares, s, e);
    *norm = sqrt(s->squares);
    return rc;
}

/* The exponents that occur: [*from, *to); none: false. */
static bool range_of(const struct numbers *s, int *from, int *to)
{
    for (*from = 0; *from < EXPONENTS && !s->of[*from]; ++*from) continue;
    for (*to = EXPONENTS; *to > *from && !s->of[*to - 1]; --*to) continue;
    return *from < *to;
}

static bool asked(const struct request *q, struct ckpt_entry t)
{
    if (!q->tensor) return true;
    struct str name = {0};
    str_printf(&name, "%s/%s", t.group, t.name);
    bool found = strstr(str_text(&name), q->tensor) != NULL;
    str_free(&name);
    return found;
}

/* -- for programs -------------------------------------------------------------------------------------------- */

static void put_numbers(struct json_out *o, const struct numbers *s)
{
    int from, to;
    if (s->least <= s->largest) {
        json_put_real(o, "min", s->least);
        json_put_real(o, "max", s->largest);
    }
    json_put_int(o, "zeros", s->zeros);
    json_put_int(o, "not_finite", s->not_finite);
    bool some = range_of(s, &from, &to);
    if (some) json_put_int(o, "first_exponent", from + LOWEST);
    json_begin_array(o, "exponents");
    for (int k = from; some && k < to; k++) json_put_int(o, NULL, s->of[k]);
    json_end_array(o);
}

static int inspect_json(const struct request *q, struct weights *w, struct err *e)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    struct numbers numbers;
    const struct ckpt *c = weights_ckpt(w);
    uint64_t state;
    char digits[17];
    int rc = OK;
    json_begin_document(&o, "checkpoint-inspect", 1);
    json_put_string(&o, "path", weights_path(w));
    json_put_int(&o, "step", c ? ckpt_step(c) : 0);
    json_put_int(&o, "tokens", c ? ckpt_tokens(c) : 0);
    if (c) json_put_int(&o, "seed", ckpt_seed(c));
    if (c) json_put_string(&o, "tutti", ckpt_writer(c));
    if (c && ckpt_run(c)) json_put_string(&o, "run", hash64_print(digits, ckpt_run(c)));
    if (c && ckpt_state(c, &state)) json_put_string(&o, "state", hash64_print(digits, state));
    json_begin_array(&o, "tensors");
    for (int64_t i = 0; i < weights_count(w) && rc == OK; i++) {
        struct ckpt_entry t = weights_at(w, i);
        double norm;
        if (!asked(q, t)) continue;
        rc = numbers_of(q, w, i, &numbers, &norm, e);
        json_begin_object(&o, NULL);
        json_put_string(&o, "group", t.group);
        json_put_string(&o, "name", t.name);
        json_begin_array(&o, "shape");
        for (int d = 0; d < t.shape.nd; d++) json_put_int(&o, NULL, t.shape.n[d]);
        json_end_array(&o);
        json_put_string(&o, "dtype", dtype_name(t.dtype));
        json_put_int(&o, "boxes", t.n_boxes);
        if (c && ckpt_tensor_state(c, i, &state)) json_put_string(&o, "state", hash64_print(digits, state));
        json_put_real(&o, "norm", norm);
        if (q->histogram && dtype_info(t.dtype)->is_float) put_numbers(&o, &numbers);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_end_object(&o);
    if (rc == OK) printf("%s\n", str_text(&s));
    str_free(&s);
    return rc;
}

/* -- for people ---------------------------------------------------------------------------------------------- */

/* A bar for each exponent that occurs, as high as its share of the commonest one's: never none where there is one. */
static void print_exponents(const struct numbers *s)
{
    static const char *const bars[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
    int from, to;
    int64_t most = 0;
    if (!range_of(s, &from, &to)) return;
    for (int k = from; k < to; k++) most = s->of[k] > most ? s->of[k] : most;
    printf("         2^%d ", from + LOWEST);
    for (int k = from; k < to; k++)
        fputs(bars[s->of[k] ? 1 + (int)(7 * ((double)s->of[k] / (double)most)) : 0], stdout);
    printf(" 2^%d", to - 1 + LOWEST);
}

static void print_numbers(const struct numbers *s)
{
    print_exponents(s);
    if (s->least <= s->largest) printf("  min %.4g  max %.4g", s->least, s->largest);
    else printf("         ");
    printf("  zeros %" PRId64 "  not finite %" PRId64 "\n", s->zeros, s->not_finite);
}

static int inspect_table(const struct request *q, struct weights *w, struct err *e)
{
    const struct ckpt *c = weights_ckpt(w);
    struct numbers numbers;
    uint64_t state;
    char shape[128], count[32], digits[17];
    double elements = 0;
    int64_t shown = 0;
    int rc = OK;
    printf("%s\n", weights_path(w));
    if (c)
        printf("step %" PRId64 ", %" PRId64 " tokens, seed %" PRId64 ", written by tutti %s\n", ckpt_step(c),
               ckpt_tokens(c), ckpt_seed(c), ckpt_writer(c));
    if (c && ckpt_run(c)) printf("run %s\n", hash64_print(digits, ckpt_run(c)));
    if (c && ckpt_state(c, &state)) printf("state %s\n", hash64_print(digits, state));
    printf("%-8s %-36s %-20s %-5s %s\n", "group", "name", "shape", "type", "norm");
    for (int64_t i = 0; i < weights_count(w) && rc == OK; i++) {
        struct ckpt_entry t = weights_at(w, i);
        double norm;
        if (!asked(q, t)) continue;
        rc = numbers_of(q, w, i, &numbers, &norm, e);
        if (rc) break;
        shown++;
        elements += (double)shape_numel(&t.shape);
        shape_print(shape, &t.shape);
        printf("%-8s %-36s %-20s %-5s %.7g\n", t.group, t.name, shape, dtype_name(t.dtype), norm);
        if (q->histogram && dtype_info(t.dtype)->is_float) print_numbers(&numbers);
    }
    if (rc == OK) printf("%" PRId64 " tensors, %s elements\n", shown, str_count(count, elements));
    return rc;
}

int checkpoint_inspect(int argc, char **argv)
{
    struct request q = {0};
    int status;
    struct err e;
    struct weights *w;
    if (!cli_read(&table, argc, argv, &q, &status)) return status;
    if (weights_open(&w, q.path, &e) < 0) return cli_fail(&e);
    if ((q.json ? inspect_json(&q, w, &e) : inspect_table(&q, w, &e)) < 0) status = cli_fail(&e);
    weights_close(w);
    return status;
}
