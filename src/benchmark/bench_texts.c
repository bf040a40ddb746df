/* SPDX-License-Identifier: Apache-2.0 */
#include "benchmark/bench_texts.h"

#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "curate/rules.h"
#include "source/source.h"

/* ---- the rows ---- */

struct encoding {
    struct encoder *encoder;
    struct tokens ids;
};

static int open_encoding(const struct bench_texts *b, void **state, struct err *e)
{
    (void)e;
    struct encoding *x = xcalloc(1, sizeof *x);
    x->encoder = encoder_new(b->tokenizer);
    *state = x;
    return OK;
}

static int encode(void *state, const char *p, size_t n, int64_t *made, struct err *e)
{
    struct encoding *x = state;
    x->ids.n = 0;
    int code = encoder_feed(x->encoder, p, n, &x->ids, e);
    if (!code) code = encoder_end(x->encoder, &x->ids, e);
    *made += x->ids.n + 1; /* with the end of text behind it */
    return code;
}

static void close_encoding(void *state)
{
    struct encoding *x = state;
    encoder_free(x->encoder);
    tokens_free(&x->ids);
    xfree(x);
}

struct filtering {
    struct rules *rules;
    struct removals removals;
    struct document document;
    int only; /* this filter; -1: all of them */
};

static int open_filtering(const struct bench_texts *b, void **state, struct err *e)
{
    if (!b->rules) return OK;
    struct filtering *x = xcalloc(1, sizeof *x);
    int code = rules_read(&x->rules, b->rules, e);
    if (code) {
        xfree(x);
        return code;
    }
    removals_init(&x->removals, x->rules->use, x->rules->n);
    x->only = -1;
    *state = x;
    return OK;
}

static int filter(void *state, const char *p, size_t n, int64_t *made, struct err *e)
{
    struct filtering *x = state;
    (void)e;
    document_set(&x->document, p, n, &(struct origin){.source = "bench"});
    int by = x->only < 0 ? rules_judge(x->rules, &x->document, &x->removals)
                         : rules_judge_one(x->rules, x->only, &x->document, &x->removals);
    *made += by == FILTER_KEEPS;
    return OK;
}

static void close_filtering(void *state)
{
    struct filtering *x = state;
    document_free(&x->document);
    removals_fini(&x->removals);
    rules_free(x->rules);
    xfree(x);
}

static const struct bench_text_row tokenize_row = {"tokenize", open_encoding, encode, close_encoding, "tokens"},
                                   clean_row = {"clean", open_filtering, filter, close_filtering, "kept_documents"};
static const struct bench_text_row *const bench_text_rows[] = {&tokenize_row, &clean_row};
static const int bench_text_n = sizeof bench_text_rows / sizeof *bench_text_rows;

/* ---- measuring ---- */

static void begin_document(struct bench_documents *d)
{
    GROW(d->begin, d->n, d->room, 2);
    d->begin[d->n++] = d->text.n;
}

/* A document that is longer than what is read is cut there. */
static int read_texts(const struct bench_texts *b, const char *path, struct bench_documents *d, double *seconds,
                      struct err *e)
{
    struct source *s;
    struct source_options o = {.column = b->column, .remote = b->remote, .skip_bad = true};
    int code = source_open_with(&s, &path, 1, &o, e);
    if (code) return code;
    double from = clock_now_s();
    while (d->text.n < BENCH_TEXT_MOST && (code = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        begin_document(d);
        while (d->text.n < BENCH_TEXT_MOST && (code = source_read(s, &p, &n, e)) > 0) str_add(&d->text, p, n);
        if (code < 0) break;
    }
    *seconds = clock_now_s() - from;
    source_close(s);
    if (code < 0) return code;
    begin_document(d); /* the end */
    d->n--;
    return d->text.n ? OK : err_set(e, ERR_REQUEST, "%s: holds no text to measure", path);
}

static double processor_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void add_rate(struct bench_text_rates *r, enum bench_list list, const char *name, const char *makes,
                     double bytes, double made, double seconds)
{
    if (seconds < 1e-9) seconds = 1e-9;
    GROW(r->p, r->n, r->room, 1);
    r->p[r->n++] = (struct bench_text_rate){list, name, makes, bytes / seconds, made / seconds};
}

/* For as long as is asked for on the clock, and one document at least. */
static int run_row(const struct bench_text_row *row, void *state, const struct bench_documents *d, double seconds,
                   enum bench_list list, const char *name, struct bench_text_rates *r, struct err *e)
{
    double from = clock_now_s(), worked = processor_s();
    int64_t bytes = 0, made = 0;
    for (int64_t i = 0; !bytes || clock_now_s() - from < seconds; i = (i + 1) % d->n) {
        size_t n = d->begin[i + 1] - d->begin[i];
        int code = row->run(state, d->text.p + d->begin[i], n, &made, e);
        if (code) return code;
        bytes += (int64_t)n;
    }
    add_rate(r, list, name, row->makes, (double)bytes, (double)made, processor_s() - worked);
    return OK;
}

/* Every filter by itself, on documents as they were read. */
static int run_filters(const struct bench_texts *b, const struct bench_documents *d, struct bench_text_rates *r,
                       struct err *e)
{
    void *state = NULL;
    int code = open_filtering(b, &state, e);
    struct filtering *x = state;
    for (int i = 0; x && i < x->rules->n && !code; i++) {
        x->only = i;
        code = run_row(&clean_row, x, d, b->seconds, BENCH_FILTERS, x->rules->use[i].filter->kind.name, r, e);
    }
    if (x) close_filtering(x);
    return code;
}

int bench_text_measure(const struct bench_texts *b, const char *path, struct bench_text_rates *r, struct err *e)
{
    struct bench_documents d = {0};
    double seconds = 0;
    int code = read_texts(b, path, &d, &seconds, e);
    *r = (struct bench_text_rates){0};
    if (!code) add_rate(r, BENCH_ROWS, "read", "documents", (double)d.text.n, (double)d.n, seconds);
    for (int i = 0; i < bench_text_n && !code; i++) {
        const struct bench_text_row *row = bench_text_rows[i];
        void *state = NULL;
        code = row->open(b, &state, e);
        if (code || !state) continue;
        code = run_row(row, state, &d, b->seconds, BENCH_ROWS, row->name, r, e);
        row->close(state);
    }
    if (!code) code = run_filters(b, &d, r, e);
    if (!code) code = bench_dedup(b, &d, r, e);
    str_free(&d.text);
    xfree(d.begin);
    if (!code) return OK;
    xfree(r->p);
    *r = (struct bench_text_rates){0};
    return code;
}
