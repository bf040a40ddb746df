/* SPDX-License-Identifier: Apache-2.0 */
/* bench_texts.h: what is measured on texts by tutti bench data: a row of one table each, run over the same documents in
 * memory by one thread. How to add one: its three functions and a line in bench_texts.c. */
#ifndef TUTTI_CLI_BENCH_TEXTS_H
#define TUTTI_CLI_BENCH_TEXTS_H

#include "remote/remote.h"
#include "token/tokenizer.h"

struct bench_texts {
    const struct tokenizer *tokenizer;
    const char *rules; /* RULES.yaml; NULL: nothing is filtered */
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
extern const struct bench_text_row bench_text_rows[];
extern const int bench_text_n;

struct bench_text_rate {
    const char *name, *makes;
    double bytes_per_s, made_per_s;
};
enum { BENCH_TEXT_MOST = 16 << 20, BENCH_TEXT_RATES = 8 };
/* Reads up to BENCH_TEXT_MOST bytes of the input, which is rate 0 (makes documents), then runs every row over them.
 * Returns how many rates, or an error. */
int bench_text_measure(const struct bench_texts *b, const char *path, struct bench_text_rate rate[BENCH_TEXT_RATES],
                       struct err *e);

#endif
