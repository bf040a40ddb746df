/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/bench_texts.h"

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
    *state = x;
    return OK;
}

static int filter(void *state, const char *p, size_t n, int64_t *made, struct err *e)
{
    struct filtering *x = state;
    (void)e;
    document_set(&x->document, p, n, &(struct origin){.source = "bench"});
    *made += rules_judge(x->rules, &x->document, &x->removals) == FILTER_KEEPS;
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

const struct bench_text_row bench_text_rows[] = {
    {"tokenize", open_encoding, encode, close_encoding, "tokens"},
    {"clean", open_filtering, filter, close_filtering, "kept_documents"},
};
const int bench_text_n = sizeof bench_text_rows / sizeof *bench_text_rows;
_Static_assert(sizeof bench_text_rows / sizeof *bench_text_rows < BENCH_TEXT_RATES, "room for the rates");

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

static int run_row(const struct bench_text_row *row, void *state, const struct bench_documents *d, double seconds,
                   struct bench_text_rate *rate, struct err *e)
{
    double from = clock_now_s(), now = from;
    int64_t bytes = 0, made = 0;
    for (int64_t i = 0; !bytes || now - from < seconds; i = (i + 1) % d->n) {
        size_t n = d->begin[i + 1] - d->begin[i];
        int code = row->run(state, d->text.p + d->begin[i], n, &made, e);
        if (code) return code;
        bytes += (int64_t)n;
        now = clock_now_s();
    }
    *rate = (struct bench_text_rate){row->name, row->makes, (double)bytes / (now - from), (double)made / (now - from)};
    return OK;
}

int bench_text_measure(const struct bench_texts *b, const char *path, struct bench_text_rate rate[BENCH_TEXT_RATES],
                       struct err *e)
{
    struct bench_documents d = {0};
    double seconds = 0;
    int n = 0, code = read_texts(b, path, &d, &seconds, e);
    if (!code && seconds < 1e-9) seconds = 1e-9;
    if (!code)
        rate[n++] = (struct bench_text_rate){"read", "documents", (double)d.text.n / seconds, (double)d.n / seconds};
    for (int i = 0; i < bench_text_n && !code; i++) {
        void *state = NULL;
        code = bench_text_rows[i].open(b, &state, e);
        if (code || !state) continue;
        code = run_row(&bench_text_rows[i], state, &d, b->seconds, &rate[n++], e);
        bench_text_rows[i].close(state);
    }
    str_free(&d.text);
    xfree(d.begin);
    return code ? code : n;
}
