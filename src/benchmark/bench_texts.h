/* SPDX-License-Identifier: Apache-2.0 */
/* bench_texts.h: what is measured on texts by tutti bench data, over the same documents in memory by one thread: a row
 * of one table each (how to add one: its three functions and a line in bench_texts.c), every filter of the rules by
 * itself, and steps of tutti data dedup (bench_dedup.c). Rates are per second of processor time, but for reading, which
 * waits for disks and servers too. Order: Local. */
#ifndef TUTTI_BENCHMARK_BENCH_TEXTS_H
#define TUTTI_BENCHMARK_BENCH_TEXTS_H

#include "base/str.h"
#include "remote/remote.h"
#include "token/tokenizer.h"

struct bench_texts {
    const struct tokenizer *tokenizer;
    const char *rules; /* RULES.yaml; NULL: nothing is filtered */
    const char *dedup; /* "exact,near": steps of tutti data dedup; NULL: none */
    const char *column;
    const struct remote_options *remote;
    double seconds; /* of each measurement */
};
/* Documents, one behind the other: document i is text[begin[i] .. begin[i + 1]). */
struct bench_documents {
    struct str text;
    size_t *begin;
    int64_t n, room;
};
struct bench_text_row {
    const char *name; /* "tokenize" */
    /* NULL in *state: it is not asked for, and there will be no row. */
    int (*open)(const struct bench_texts *b, void **state, struct err *e);
    int (*run)(void *state, const char *p, size_t n, int64_t *made, struct err *e); /* made: what counts beside bytes */
    void (*close)(void *state);
    const char *makes; /* "tokens" */
};

enum bench_list { BENCH_ROWS, BENCH_FILTERS, BENCH_DEDUP, BENCH_LISTS };
struct bench_text_rate {
    enum bench_list list;
    const char *name, *makes; /* of rows and tables: they stay */
    double bytes_per_s, made_per_s;
};
struct bench_text_rates {
    struct bench_text_rate *p; /* by lists in their order; xfree it */
    int64_t n, room;
};
enum { BENCH_TEXT_MOST = 16 << 20 };
/* Reads up to BENCH_TEXT_MOST bytes of the input, whose rate is the first (makes documents), then runs every row,
 * filter and step over them. */
int bench_text_measure(const struct bench_texts *b, const char *path, struct bench_text_rates *r, struct err *e);
/* The steps that b->dedup names, each by itself; writes the documents to a folder for temporary files, and removes it.
 */
int bench_dedup(const struct bench_texts *b, const struct bench_documents *d, struct bench_text_rates *r,
                struct err *e);

#endif
