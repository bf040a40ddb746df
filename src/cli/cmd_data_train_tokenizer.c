/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_train_tokenizer.c: `tutti data train-tokenizer`: a vocabulary from text. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "data/bad_list.h"
#include "data/bpe_train.h"
#include "data/source.h"

struct request {
    const char *out, *style, *column;
    int64_t vocab_size, min_count;
    bool json, skip_bad;
    struct cli_words inputs;
};

static const struct cli_option option_rows[] = {
    {"--vocab-size", "N", CLI_INT, offsetof(struct request, vocab_size), .lo = BPE_TRAIN_VOCAB_MIN,
     .hi = BPE_TRAIN_VOCAB_MAX, .needed = true,
     .help = "how many tokens: 256 bytes, the merged ones, <|endoftext|>; 257 to 16777216"},
    {"--out", "FILE", CLI_TEXT, offsetof(struct request, out), .needed = true, .help = "the tokenizer.json to write"},
    {"--style", "S", CLI_CHOICE, offsetof(struct request, style), .choices = "gpt2|llama3",
     .help = "how text is cut before merging"},
    {"--min-count", "N", CLI_INT, offsetof(struct request, min_count), .lo = 1, .hi = INT32_MAX,
     .help = "merge only pairs that occur at least N times"},
    DATA_COLUMN(struct request, column),
    DATA_SKIP_BAD(struct request, skip_bad),
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "INPUT", .at = offsetof(struct request, inputs), .many = true}};
static const struct cli_table table = {
    .command = "data train-tokenizer",
    .usage = "--vocab-size N --out TOKENIZER.json INPUT... [options]",
    .about = "Learns a byte-level BPE vocabulary and writes it in Hugging Face's format.\n" DATA_INPUT,
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

static int count_text(struct bpe_trainer *t, struct source *s, struct err *e)
{
    int code, got;
    double shown = clock_now_s();
    while ((code = source_next(s, e)) > 0) {
        const char *p;
        size_t n;
        while ((got = source_read(s, &p, &n, e)) > 0) {
            code = bpe_trainer_feed(t, p, n, e);
            if (code) return code;
            if (!log_is_terminal() || clock_now_s() - shown < 0.2) continue;
            shown = clock_now_s();
            char done[32], all[32];
            log_status("counting: %s of %s", str_bytes(done, (double)source_bytes_done(s)),
                       str_bytes(all, (double)source_bytes(s)));
        }
        if (got < 0) return got;
        code = bpe_trainer_end(t, e);
        if (code) return code;
    }
    return code;
}

static int write_trained(const struct request *o, struct bpe_trainer *t, const struct source *s, double start,
                         struct err *e)
{
    struct str json = {0};
    struct bpe_train_result r;
    int code = bpe_trainer_finish(t, (int32_t)o->vocab_size, o->min_count, &json, &r, e);
    if (!code) code = fs_write_atomic(o->out, str_text(&json), json.n, e);
    str_free(&json);
    if (code) return code;
    double seconds = clock_now_s() - start;
    if (r.vocab < o->vocab_size)
        log_warn("data: the text has enough repeated pairs for %d tokens, not for %lld; use more text or --min-count 1",
                 r.vocab, (long long)o->vocab_size);
    if (o->json) {
        struct str text = {0};
        struct json_out j = {.s = &text};
        json_begin_document(&j, "data-train-tokenizer", 1);
        json_put_string(&j, "path", o->out);
        json_put_int(&j, "vocab", r.vocab);
        json_put_int(&j, "bytes", source_bytes_done(s));
        json_put_int(&j, "pieces", r.n_pieces);
        json_put_int(&j, "distinct_pieces", r.n_distinct);
        json_put_real_digits(&j, "seconds", seconds, 6);
        json_end_object(&j);
        data_print_json(&text);
        return OK;
    }
    char bytes[32], time[32], rate[32];
    printf("%s: %d tokens from %s of text (%lld distinct pieces), %s, %s/s\n", o->out, r.vocab,
           str_bytes(bytes, (double)source_bytes_done(s)), (long long)r.n_distinct, str_duration(time, seconds),
           str_bytes(rate, data_per_second(source_bytes_done(s), seconds)));
    return OK;
}

/* Asked before the text is counted, which may take an hour. */
static int can_write(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash && slash > path ? xstrndup(path, (size_t)(slash - path)) : xstrdup(slash ? "/" : ".");
    int code = fs_is_dir(path)  ? err_set(e, ERR_REQUEST, "--out: %s is a directory; a file was wanted", path)
               : fs_is_dir(dir) ? OK
                                : err_set(e, ERR_REQUEST, "--out: %s: there is no folder %s", path, dir);
    xfree(dir);
    return code;
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    int code = can_write(o->out, e);
    if (code) return code;
    double start = clock_now_s();
    struct bpe_trainer *t;
    struct source *s = NULL;
    struct bad_list bad;
    bad_list_init(&bad, o->out);
    bad_list_clear(&bad);
    struct source_options how = {.column = o->column,
                                 .skip_bad = o->skip_bad,
                                 .tell_bad = bad_list_add,
                                 .tell_ctx = &bad};
    code = bpe_trainer_new(&t, o->style, e);
    if (!code) code = source_open_with(&s, o->inputs.p, o->inputs.n, &how, e);
    if (!code) code = count_text(t, s, e);
    if (!code) code = bad_list_end(&bad, e);
    if (!code && source_n_skipped(s)) {
        log_info("data: %lld of %lld files are no text and were passed over: %s", (long long)source_n_skipped(s),
                 (long long)source_n_files(s), source_skipped(s));
        if (source_n_skipped(s) == source_n_files(s))
            code = err_set(e, ERR_REQUEST, "%s: holds no text (%lld files: %s)", o->inputs.p[0],
                           (long long)source_n_files(s), source_skipped(s));
    }
    if (!code) code = write_trained(o, t, s, start, e);
    source_close(s);
    bad_list_fini(&bad);
    bpe_trainer_free(t);
    return code;
}

static const struct request usual = {.style = "gpt2", .min_count = 2};
const struct data_command data_train_tokenizer = {"train-tokenizer", &table, &usual, sizeof usual, run};
