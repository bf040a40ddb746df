/* SPDX-License-Identifier: Apache-2.0 */
/* table.h: which algorithm takes which operation, as measured. Text, one rule per line ('#' begins a comment):
 *
 *     op          where  ranks  bytes  algorithm[,algorithm...]
 *     all_reduce  hosts  4      64K    halving,gather          # up to 64 KiB among 4 ranks or more
 *
 * op          comm_op_name, of operations on vectors
 * where       host: the ranks share memory; hosts: they sit on several
 * ranks       2 or more: the rule stands for groups of at least so many, up to the next number listed for op and where
 * bytes       of the vector (K, M, G: powers of 1024), or `any`: the rule stands for vectors of at most so many
 * algorithm   the first that may be taken is: one may lack the operation, or add in an order that is not allowed
 *
 * What no rule names goes to direct. `tutti bench comm --op all --table` writes such lines.
 */
#ifndef TUTTI_COMM_TABLE_H
#define TUTTI_COMM_TABLE_H

#include "comm/comm.h"

enum { TABLE_RULES = 4096, TABLE_CHOICES = 8 };

struct rule {
    enum comm_op op;
    bool hosts;
    int ranks;
    int64_t bytes;                /* INT64_MAX: any */
    int8_t choice[TABLE_CHOICES]; /* indices into algorithms[] */
    int n_choices;
};

struct table {
    struct rule *rules;
    int n;
};

/* NULL text: the table this program was measured with. ERR_REQUEST names the line and what it wanted; *out is then
 * empty. */
int table_parse(struct table *out, const char *text, struct err *e);
void table_fini(struct table *t);

/* The rule for an operation on `bytes` among `ranks`, or NULL. */
const struct rule *table_find(const struct table *t, enum comm_op op, bool hosts, int ranks, int64_t bytes);

#endif
