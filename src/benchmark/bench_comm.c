/* SPDX-License-Identifier: Apache-2.0 */
/* Rows of tutti bench comm as people, programs and comm.table read them. */
#include "benchmark/bench_comm.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"

static double bus_factor(enum comm_op op, int ranks)
{
    double k = ranks;
    return op == COMM_ALL_REDUCE ? 2 * (k - 1) / k : op == COMM_BROADCAST || op == COMM_REDUCE ? 1 : (k - 1) / k;
}

void bench_comm_print(const struct bench_comm *b)
{
    const char *mpi = comm_mpi_name();
    printf("%d ranks over %s%s%s, %s; * is what the table chooses\n\n", b->ranks, b->transport,
           strcmp(b->transport, "mpi") ? "" : ", ", strcmp(b->transport, "mpi") || !mpi ? "" : mpi,
           dtype_name(b->dtype));
    printf("%-15s %-11s %12s %12s %12s %12s\n", "op", "algorithm", "bytes", "time (us)", "algbw (GB/s)",
           "busbw (GB/s)");
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_comm_row *r = &b->rows[i];
        double rate = (double)r->bytes / r->time_s / 1e9;
        printf("%-15s %-10s%s %12lld %12.1f %12.3f %12.3f\n", comm_op_name(r->op), r->algorithm, r->chosen ? "*" : " ",
               (long long)r->bytes, r->time_s * 1e6, rate, rate * bus_factor(r->op, b->ranks));
    }
}

/* An algorithm goes before direct only where it is faster by more than noise. */
#define WORTH 1.05

static bool before(const struct bench_comm_row *a, const struct bench_comm_row *b)
{
    double wa = strcmp(a->algorithm, "direct") ? WORTH : 1, wb = strcmp(b->algorithm, "direct") ? WORTH : 1;
    return a->time_s * wa < b->time_s * wb;
}

static bool by_hand(const struct bench_comm_row *r)
{
    return !strcmp(r->algorithm, "one_pass") || !strcmp(r->algorithm, "memory");
}

/* The algorithms of rows [at, end), fastest first, up to the first that may always be taken. */
static void print_choices(const struct bench_comm_row *at, const struct bench_comm_row *end, struct str *out)
{
    const struct bench_comm_row *last = NULL;
    for (;;) {
        const struct bench_comm_row *best = NULL;
        for (const struct bench_comm_row *r = at; r < end; r++)
            if (!by_hand(r) && (!last || before(last, r)) && (!best || before(r, best))) best = r;
        if (!best) return;
        str_printf(out, "%s%s", last ? "," : "", best->algorithm);
        if (best->rank_order) return;
        last = best;
    }
}

static const struct bench_comm_row *same_size(const struct bench_comm *b, const struct bench_comm_row *r)
{
    const struct bench_comm_row *end = r;
    while (end < b->rows + b->n_rows && end->op == r->op && end->bytes == r->bytes) end++;
    return end;
}

static void print_rule(const struct bench_comm *b, const struct bench_comm_row *r, const char *choices, bool last)
{
    char bytes[24] = "any";
    if (!last) snprintf(bytes, sizeof bytes, "%lld", (long long)r->bytes);
    if (*choices && (strcmp(choices, "direct") || !last))
        printf("%-14s %-5s %3d %10s %s\n", comm_op_name(r->op), b->hosts ? "hosts" : "host", b->ranks, bytes, choices);
}

/* Rules of comm/table.h, sizes of an operation that agree in one. */
void bench_comm_rules(const struct bench_comm *b)
{
    const char *mpi = strcmp(b->transport, "mpi") ? NULL : comm_mpi_name();
    printf("# %d ranks over %s%s%s, %s\n# op           where ranks    bytes algorithms\n", b->ranks, b->transport,
           mpi ? ", " : "", mpi ? mpi : "", dtype_name(b->dtype));
    const struct bench_comm_row *all = b->rows + b->n_rows;
    for (const struct bench_comm_row *r = b->rows, *end; r < all; r = end) {
        struct str now = {0};
        end = same_size(b, r);
        print_choices(r, end, &now);
        bool last = end == all || end->op != r->op;
        struct str next = {0};
        if (!last) print_choices(end, same_size(b, end), &next);
        if (last || strcmp(str_text(&now), str_text(&next))) print_rule(b, r, str_text(&now), last);
        str_free(&now);
        str_free(&next);
    }
}

void bench_comm_json(const struct bench_comm *b)
{
    struct str s = {0};
    struct json_out j = {.s = &s, .pretty = true};
    json_begin_document(&j, "bench-comm", 1);
    if (!strcmp(b->transport, "mpi")) json_put_string(&j, "library", comm_mpi_name());
    json_put_string(&j, "dtype", dtype_name(b->dtype));
    json_begin_array(&j, "results");
    for (int i = 0; i < b->n_rows; i++) {
        const struct bench_comm_row *r = &b->rows[i];
        double rate = (double)r->bytes / r->time_s / 1e9;
        json_begin_object(&j, NULL);
        json_put_string(&j, "op", comm_op_name(r->op));
        json_put_string(&j, "algorithm", r->algorithm);
        json_put_string(&j, "transport", b->transport);
        json_put_int(&j, "ranks", b->ranks);
        json_put_int(&j, "bytes", r->bytes);
        json_put_real_digits(&j, "time_s", r->time_s, 6);
        json_put_real_digits(&j, "algbw_GBps", rate, 6);
        json_put_real_digits(&j, "busbw_GBps", rate * bus_factor(r->op, b->ranks), 6);
        json_put_bool(&j, "chosen", r->chosen);
        json_end_object(&j);
    }
    json_end_array(&j);
    json_end_object(&j);
    puts(str_text(&s));
    str_free(&s);
}
