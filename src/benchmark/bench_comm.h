/* SPDX-License-Identifier: Apache-2.0 */
/* bench_comm.h: what tutti bench comm measured, and its three forms on stdout. */
#ifndef TUTTI_BENCHMARK_BENCH_COMM_H
#define TUTTI_BENCHMARK_BENCH_COMM_H

#include "comm/comm.h"

struct bench_comm_row {
    enum comm_op op;
    char algorithm[24];
    bool chosen;     /* by the table */
    bool rank_order; /* float sums too come out as in every other algorithm with this mark */
    int64_t bytes;
    double time_s;
};

struct bench_comm {
    struct bench_comm_row *rows; /* by operation, then by size */
    int n_rows, ranks;
    bool hosts; /* the ranks sit on several */
    char transport[16];
    enum dtype dtype;
};

void bench_comm_print(const struct bench_comm *b); /* a table to read */
void bench_comm_json(const struct bench_comm *b);
void bench_comm_rules(const struct bench_comm *b); /* for comm.table: comm/table.h */

#endif
