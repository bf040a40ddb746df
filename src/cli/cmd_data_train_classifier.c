/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_train_classifier.c: `tutti data train-classifier`: a model that tells good text from bad, from both. */
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "curate/model_file.h"
#include "curate/quality.h"
#include "source/source.h"

enum { MOST = 1024, LONGEST = 1 << 20 };
struct inputs {
    const char *p[MOST];
    int n;
};
struct request {
    const char *out, *column;
    int64_t grams, bits, epochs, most;
    bool json;
    struct inputs positive, negative;
};

static const char *add(struct inputs *l, const char *text)
{
    if (l->n == MOST) return "at most 1024 of them";
    l->p[l->n++] = text;
    return NULL;
}
static const char *add_positive(void *into, const char *text) { return add(&((struct request *)into)->positive, text); }
static const char *add_negative(void *into, const char *text) { return add(&((struct request *)into)->negative, text); }

static const struct cli_option option_rows[] = {
    {"--positive", "FILE", CLI_OWN, 0, .read = add_positive, .needed = true,
     .help = "documents of the good kind (an INPUT of data tokenize); may be given several times"},
    {"--negative", "FILE", CLI_OWN, 0, .read = add_negative, .needed = true, .help = "documents of the other kind"},
    {"--out", "MODEL", CLI_TEXT, offsetof(struct request, out), .needed = true, .help = "the model to write"},
    {"--n-grams", "N", CLI_INT, offsetof(struct request, grams), .lo = 1, .hi = QUALITY_GRAMS,
     .help = "of up to N words"},
    {"--bits", "N", CLI_INT, offsetof(struct request, bits), .lo = 8, .hi = QUALITY_BITS,
     .help = "n-grams fall into 2^N buckets"},
    {"--epochs", "N", CLI_INT, offsetof(struct request, epochs), .lo = 1, .hi = 1000,
     .help = "how often every text is learnt from"},
    {"--max-documents", "N", CLI_INT, offsetof(struct request, most), .lo = 100, .hi = 100000000,
     .help = "of each kind; of more a fair choice is taken"},
    DATA_COLUMN(struct request, column),
    CLI_JSON(struct request, json),
};
static const struct cli_table table = {
    .command = "data train-classifier",
    .usage = "--positive FILE --negative FILE --out MODEL [options]",
    .about = "Learns to tell good documents from others by n-grams of words, for the filter classifier of data clean.\n"
             "A tenth is held out to calibrate probabilities, another says how well it does. The same files give\n"
             "the same model.\n",
    CLI_OPTIONS(option_rows),
};

/* A document's first MiB. */
static int feed(struct quality_trainer *t, bool positive, struct source *s, struct document *d, struct str *text,
                struct err *e)
{
    int code, got;
    while ((code = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        str_clear(text);
        while ((got = source_read(s, &p, &n, e)) > 0)
            if (text->n < LONGEST) str_add(text, p, n < LONGEST - text->n ? n : LONGEST - text->n);
        if (got < 0) return got;
        document_set(d, text->p, text->n, &(struct origin){.source = ""});
        quality_trainer_feed(t, positive, d);
    }
    return code;
}

static int feed_all(struct quality_trainer *t, bool positive, const struct inputs *l, const char *column, struct err *e)
{
    struct source *s;
    struct document d = {.n_chars = -1};
    struct str text = {0};
    int code = source_open(&s, (const char *const *)l->p, l->n, column, e);
    if (!code) code = feed(t, positive, s, &d, &text, e);
    source_close(s);
    document_free(&d);
    str_free(&text);
    return code;
}

static void report(const struct request *o, const struct quality_result *r, size_t bytes, double seconds)
{
    if (!o->json) {
        char size[32], time[32];
        printf("%s: %lld positive and %lld negative documents, %s, %s\n", o->out, (long long)r->positive,
               (long long)r->negative, str_bytes(size, (double)bytes), str_duration(time, seconds));
        printf("  of %lld held out: accuracy %.4f, precision %.4f, recall %.4f, AUC %.4f, log loss %.4f, calibration "
               "error %.4f\n",
               (long long)r->tested, r->accuracy, r->precision, r->recall, r->area, r->log_loss, r->calibration);
        return;
    }
    struct str text = {0};
    struct json_out j = {.s = &text};
    json_begin_document(&j, "data-train-classifier", 1);
    json_put_string(&j, "path", o->out);
    json_put_int(&j, "positive", r->positive);
    json_put_int(&j, "negative", r->negative);
    json_put_int(&j, "tested", r->tested);
    json_put_real(&j, "accuracy", r->accuracy);
    json_put_real(&j, "precision", r->precision);
    json_put_real(&j, "recall", r->recall);
    json_put_real(&j, "auc", r->area);
    json_put_real(&j, "log_loss", r->log_loss);
    json_put_real(&j, "calibration_error", r->calibration);
    json_put_real_digits(&j, "seconds", seconds, 6);
    json_end_object(&j);
    data_print_json(&text);
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    struct quality_trainer *t = quality_trainer_new((int)o->grams, (int)o->bits, o->most);
    struct quality_result r;
    struct str payload = {0};
    double start = clock_now_s();
    int code = feed_all(t, true, &o->positive, o->column, e);
    if (!code) code = feed_all(t, false, &o->negative, o->column, e);
    if (!code) code = quality_trainer_finish(t, (int)o->epochs, &payload, &r, e);
    if (!code) code = model_file_write(o->out, MODEL_QUALITY, QUALITY_VERSION, &payload, e);
    if (!code) report(o, &r, payload.n, clock_now_s() - start);
    str_free(&payload);
    quality_trainer_free(t);
    return code;
}

static const struct request usual = {.grams = 2, .bits = 20, .epochs = 5, .most = 200000};
const struct data_command data_train_classifier = {"train-classifier", &table, &usual, sizeof usual, run};
