/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_train_language.c: `tutti data train-language`: a model that tells languages, from text of each. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "curate/language.h"
#include "curate/model_file.h"
#include "source/source.h"

enum { MOST = 1024 };
struct request {
    const char *out, *column;
    int64_t n_grams;
    bool json;
    int n;
    const char *input[MOST]; /* xx=FILE */
};

static const char *read_label(void *into, const char *text)
{
    struct request *o = into;
    const char *equals = strchr(text, '=');
    if (!equals || equals == text || !equals[1] || equals - text >= LANGUAGE_LABEL_BYTES)
        return "a name of at most 15 letters, = and a file, such as en=english.txt";
    for (const char *p = text; p < equals; p++)
        if (!((*p | 32) >= 'a' && (*p | 32) <= 'z') && !(*p >= '0' && *p <= '9') && *p != '-' && *p != '_')
            return "a name of letters, digits, - and _ before =";
    if (o->n == MOST) return "at most 1024 of them";
    o->input[o->n++] = text;
    return NULL;
}

static const struct cli_option option_rows[] = {
    {"--label", "XX=FILE", CLI_OWN, 0, .read = read_label, .needed = true,
     .help = "text of the language XX, once for each file: a text, a .jsonl, a folder ..., as for data tokenize"},
    {"--out", "MODEL", CLI_TEXT, offsetof(struct request, out), .needed = true, .help = "the model to write"},
    {"--n-grams", "N", CLI_INT, offsetof(struct request, n_grams), .lo = 50, .hi = 65536,
     .help = "how many n-grams of a language the model knows, on average"},
    DATA_COLUMN(struct request, column),
    CLI_JSON(struct request, json),
};
static const struct cli_table table = {
    .command = "data train-language",
    .usage = "--label XX=FILE --label YY=FILE ... --out MODEL [options]",
    .about = "Learns to tell languages by their n-grams of characters, for the filter language of data clean.\n"
             "One line in ten is held out, and says how well it does.\n",
    CLI_OPTIONS(option_rows),
};

struct labels {
    char *name[MOST];
    int n;
};

static int label_of(struct labels *l, const char *input)
{
    size_t n = (size_t)(strchr(input, '=') - input);
    for (int i = 0; i < l->n; i++)
        if (strlen(l->name[i]) == n && !memcmp(l->name[i], input, n)) return i;
    l->name[l->n] = xstrndup(input, n);
    return l->n++;
}

static int feed(struct language_trainer *t, int label, const char *path, const char *column, struct err *e)
{
    struct source *s;
    int code = source_open(&s, &path, 1, column, e), got;
    if (code) return code;
    while ((code = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        while ((got = source_read(s, &p, &n, e)) > 0) language_trainer_feed(t, label, p, n);
        if (got < 0) code = got;
        if (got < 0) break;
    }
    source_close(s);
    return code;
}

static void report(const struct request *o, const struct labels *l, const struct language_result *r, size_t bytes,
                   double seconds)
{
    double right = r->held_out ? (double)r->right / (double)r->held_out : 0;
    if (!o->json) {
        char size[32], time[32];
        printf("%s: %d languages, %lld n-grams, %s, %s; of %lld lines held out %.2f %% told rightly\n", o->out, l->n,
               (long long)r->n_grams, str_bytes(size, (double)bytes), str_duration(time, seconds),
               (long long)r->held_out, 100 * right);
        return;
    }
    struct str text = {0};
    struct json_out j = {.s = &text};
    json_begin_document(&j, "data-train-language", 1);
    json_put_string(&j, "path", o->out);
    json_put_int(&j, "labels", l->n);
    json_put_int(&j, "lines", r->lines);
    json_put_int(&j, "held_out", r->held_out);
    json_put_real(&j, "accuracy", right);
    json_put_int(&j, "n_grams", r->n_grams);
    json_put_real_digits(&j, "temperature", r->temperature, 6);
    json_put_real_digits(&j, "seconds", seconds, 6);
    json_end_object(&j);
    data_print_json(&text);
}

static int train(const struct request *o, struct labels *l, struct language_trainer *t, struct err *e)
{
    struct str payload = {0};
    struct language_result r;
    double start = clock_now_s();
    int code = OK;
    for (int i = 0; i < o->n && !code; i++) {
        int label = label_of(l, o->input[i]);
        code = feed(t, label, strchr(o->input[i], '=') + 1, o->column, e);
    }
    if (!code) code = language_trainer_finish(t, (int)o->n_grams, &payload, &r, e);
    if (!code) code = model_file_write(o->out, MODEL_LANGUAGE, LANGUAGE_VERSION, &payload, e);
    if (!code) report(o, l, &r, payload.n, clock_now_s() - start);
    str_free(&payload);
    return code;
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    struct labels l = {.n = 0};
    for (int i = 0; i < o->n; i++) label_of(&l, o->input[i]);
    int code = l.n < 2 || l.n > LANGUAGE_LABELS
                   ? err_set(e, ERR_REQUEST, "--label: %d languages; wanted 2 to %d", l.n, LANGUAGE_LABELS)
                   : OK;
    if (!code) {
        struct language_trainer *t = language_trainer_new(l.n, (const char *const *)l.name);
        code = train(o, &l, t, e);
        language_trainer_free(t);
    }
    for (int i = 0; i < l.n; i++) xfree(l.name[i]);
    return code;
}

static const struct request usual = {.n_grams = 2000};
const struct data_command data_train_language = {"train-language", &table, &usual, sizeof usual, run};
