/* SPDX-License-Identifier: Apache-2.0 */
/* table.c: rules of table.h: read, checked, looked up. A table has tens of lines and is asked once per operation,
 * between ranks that then move data over a network or through the kernel: a walk over all lines costs less than either.
 *
 * `measured` is what two runs of bench/comm_hosts.sh agreed on, for 2 and 4 hosts of one rank and 2 hosts of two: Open
 * MPI 4.1 over TCP between network namespaces. A network of another kind deserves its own: comm.table.
 */
#include "comm/table.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "comm/impl.h"

static const char measured[] = "broadcast      hosts 2   8K two_level,chain\n"
                               "broadcast      hosts 2   4M direct\n"
                               "broadcast      hosts 2  any two_level,direct\n"
                               "reduce         hosts 2   8K tree,native\n"
                               "reduce         hosts 2  64K native,tree\n"
                               "reduce         hosts 2  any tree,native\n"
                               "all_reduce     hosts 2   8K gather\n"
                               "all_reduce     hosts 2  64K direct\n"
                               "all_reduce     hosts 2 512K native,direct\n"
                               "reduce_scatter hosts 2  64K direct\n"
                               "reduce_scatter hosts 2 512K native,direct\n"
                               "all_gather     hosts 2  64K direct\n"
                               "all_gather     hosts 2   4M native,direct\n"
                               "all_to_all     hosts 2  64K direct\n"
                               "all_to_all     hosts 2   4M native,direct\n"
                               "broadcast      hosts 4   8K chain\n"
                               "broadcast      hosts 4  64K direct\n"
                               "broadcast      hosts 4 512K chain\n"
                               "broadcast      hosts 4  any two_level,native,direct\n"
                               "reduce         hosts 4  any tree,native\n"
                               "all_reduce     hosts 4   8K gather\n"
                               "all_reduce     hosts 4  64K two_level,halving,ring,native,direct\n"
                               "all_reduce     hosts 4  any two_level,ring,halving,direct\n"
                               "reduce_scatter hosts 4   1K ring,native\n"
                               "reduce_scatter hosts 4   8K direct\n"
                               "reduce_scatter hosts 4  any ring,native,direct\n"
                               "all_gather     hosts 4   8K gather\n"
                               "all_gather     hosts 4 512K native,gather\n"
                               "all_gather     hosts 4  any native,ring,direct\n"
                               "all_to_all     hosts 4   1K native,pairwise\n"
                               "all_to_all     hosts 4  any native,direct\n";

/* A word of a line, without blanks around it. */
struct word {
    const char *at;
    int n;
};

static bool word_is(struct word w, const char *name)
{
    return (int)strlen(name) == w.n && !memcmp(name, w.at, (size_t)w.n);
}

/* Up to `most` words; their number, or most + 1. */
static int split(const char *line, size_t n, struct word *words, int most)
{
    int k = 0;
    for (size_t i = 0; i < n && line[i] != '#';) {
        size_t from = i;
        while (i < n && line[i] != '#' && !isspace((unsigned char)line[i])) i++;
        if (i > from && k < most) words[k] = (struct word){line + from, (int)(i - from)};
        k += i > from;
        while (i < n && isspace((unsigned char)line[i])) i++;
    }
    return k > most ? most + 1 : k;
}

static bool read_number(struct word w, int64_t most, int64_t *out)
{
    int64_t v = 0;
    for (int i = 0; i < w.n; i++) {
        if (w.at[i] < '0' || w.at[i] > '9') return false;
        if (v > (most - 9) / 10) return false;
        v = 10 * v + (w.at[i] - '0');
    }
    *out = v;
    return w.n > 0;
}

static bool read_bytes(struct word w, int64_t *out)
{
    static const char units[] = "KMG";
    const char *unit = w.n ? strchr(units, w.at[w.n - 1]) : NULL;
    if (word_is(w, "any")) return *out = INT64_MAX, true;
    if (unit && *unit) w.n--;
    else unit = NULL;
    int shift = unit ? 10 * ((int)(unit - units) + 1) : 0;
    if (!read_number(w, INT64_MAX >> shift, out)) return false;
    *out <<= shift;
    return true;
}

static bool read_op(struct word w, enum comm_op *out)
{
    for (int op = 0; op < COMM_OP_N; op++) {
        bool vector = op != COMM_EXCHANGE && op != COMM_BARRIER;
        if (vector && word_is(w, comm_op_name((enum comm_op)op))) return *out = (enum comm_op)op, true;
    }
    return false;
}

static bool read_choices(struct word w, struct rule *r)
{
    const char *p = w.at, *end = w.at + w.n;
    for (r->n_choices = 0; p <= end; r->n_choices++) {
        const char *comma = p < end ? memchr(p, ',', (size_t)(end - p)) : NULL;
        struct word name = {p, (int)((comma ? comma : end) - p)};
        int a = 0;
        while (a < ALGORITHM_N && !word_is(name, algorithms[a].name)) a++;
        if (a == ALGORITHM_N || r->n_choices == TABLE_CHOICES) return false;
        r->choice[r->n_choices] = (int8_t)a;
        p += name.n + 1;
    }
    return true;
}

/* What is wrong with it, or NULL. */
static const char *read_rule(const struct word *w, int n, struct rule *r)
{
    int64_t ranks;
    if (n != 5) return "wanted 'op where ranks bytes algorithms'";
    if (!read_op(w[0], &r->op))
        return "the operation: wanted broadcast, reduce, all_reduce, reduce_scatter, all_gather or all_to_all";
    if (!word_is(w[1], "host") && !word_is(w[1], "hosts")) return "where: wanted host or hosts";
    r->hosts = word_is(w[1], "hosts");
    if (!read_number(w[2], 1 << 24, &ranks) || ranks < 2) return "ranks: wanted a number from 2";
    r->ranks = (int)ranks;
    if (!read_bytes(w[3], &r->bytes)) return "bytes: wanted a size such as 4096, 64K, 16M, or any";
    if (!read_choices(w[4], r))
        return "algorithms: wanted up to 8 of direct, ring, halving, tree, chain, pairwise, gather, two_level, native, "
               "with commas";
    return NULL;
}

int table_parse(struct table *out, const char *text, struct err *e)
{
    *out = (struct table){.rules = xcalloc(TABLE_RULES, sizeof *out->rules)};
    if (!text) text = measured;
    for (int line = 1; *text; line++) {
        struct word words[5];
        size_t n = strcspn(text, "\n");
        int k = split(text, n, words, 5);
        const char *wrong = k && out->n == TABLE_RULES ? "more than 4096 rules"
                            : k                        ? read_rule(words, k, &out->rules[out->n])
                                                       : NULL;
        if (wrong) {
            table_fini(out);
            return err_set(e, ERR_REQUEST, "line %d: %s, got '%.*s'", line, wrong, (int)(n < 80 ? n : 80), text);
        }
        out->n += k > 0;
        text += n + (text[n] == '\n');
    }
    out->rules = xrealloc(out->rules, (size_t)(out->n ? out->n : 1) * sizeof *out->rules);
    return OK;
}

void table_fini(struct table *t)
{
    xfree(t->rules);
    *t = (struct table){0};
}

static bool concerns(const struct rule *r, enum comm_op op, bool hosts) { return r->op == op && r->hosts == hosts; }

const struct rule *table_find(const struct table *t, enum comm_op op, bool hosts, int ranks, int64_t bytes)
{
    const struct rule *best = NULL, *end = t->rules + t->n;
    int nearest = 0;
    for (const struct rule *r = t->rules; r < end; r++)
        if (concerns(r, op, hosts) && r->ranks <= ranks && r->ranks > nearest) nearest = r->ranks;
    for (const struct rule *r = t->rules; r < end; r++)
        if (concerns(r, op, hosts) && r->ranks == nearest && bytes <= r->bytes && (!best || r->bytes < best->bytes))
            best = r;
    return best;
}
