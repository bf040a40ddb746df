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
#include "base/thread.h"
#include "cli/cmd_data.h"
#include "remote/remote.h"
#include "source/bad_list.h"
#include "source/source.h"
#include "token/bpe_train.h"
#include "token/piece_counter.h"
#include "token/train_style.h"
#include "token/unigram_train.h"

#define MEMORY_LEAST (16.0 * (1 << 20))

struct request {
    const char *out, *model, *style, *column;
    int64_t vocab_size, min_count, threads;
    double memory;
    bool json, skip_bad;
    struct cli_words inputs;
};

static const char *read_memory(void *into, const char *text)
{
    struct request *o = into;
    bool good = !str_to_bytes(text, &o->memory) && o->memory >= MEMORY_LEAST && o->memory < 1e15;
    return good ? NULL : "a size of at least 16MiB such as 4GiB";
}

static const struct cli_option option_rows[] = {
    {"--vocab-size", "N", CLI_INT, offsetof(struct request, vocab_size), .lo = BPE_TRAIN_VOCAB_MIN,
     .hi = BPE_TRAIN_VOCAB_MAX, .needed = true,
     .help = "how many tokens: 256 bytes, the merged ones, <|endoftext|>; 257 to 16777216"},
    {"--out", "FILE", CLI_TEXT, offsetof(struct request, out), .needed = true, .help = "the tokenizer.json to write"},
    {"--model", "M", CLI_CHOICE, offsetof(struct request, model), .choices = "bpe|unigram",
     .help = "byte-level BPE, or Unigram over words with a token per byte for what is rare"},
    {"--style", "S", CLI_CHOICE, offsetof(struct request, style), .choices = TRAIN_STYLES,
     .help = "how text is cut before merging (bpe)"},
    {"--min-count", "N", CLI_INT, offsetof(struct request, min_count), .lo = 1, .hi = INT32_MAX,
     .help = "merge only pairs that occur at least N times"},
    {"--threads", "N", CLI_INT, offsetof(struct request, threads), .lo = 1, .hi = 4096,
     .help = "the same file for any number of them (default: all cores)"},
    {"--memory", "SIZE", CLI_OWN, offsetof(struct request, memory), .read = read_memory,
     .help = "for counting, such as 4GiB (default 1GiB); what does not fit waits in a folder beside FILE"},
    DATA_COLUMN(struct request, column),
    DATA_SKIP_BAD(struct request, skip_bad),
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "INPUT", .at = offsetof(struct request, inputs), .many = true}};
static const struct cli_table table = {
    .command = "data train-tokenizer",
    .usage = "--vocab-size N --out TOKENIZER.json INPUT... [options]",
    .about = "Learns a vocabulary, byte-level BPE or Unigram, and writes it in Hugging Face's format.\n" DATA_INPUT,
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

/* What was counted and learnt. */
struct learnt {
    int32_t vocab;
    int64_t n_pieces, n_distinct, runs;
};

static int add_piece(void *arg, const unsigned char *p, size_t n, int64_t count, struct err *e)
{
    (void)e;
    bpe_trainer_add(arg, p, n, count);
    return OK;
}

static int learn_bpe(const struct request *o, struct piece_counter *c, const struct train_style *style,
                     struct str *json, struct learnt *l, struct err *e)
{
    struct bpe_trainer *t = bpe_trainer_new();
    int code = piece_counter_each(c, add_piece, t, e);
    l->n_distinct = bpe_trainer_pieces(t);
    if (!code) code = bpe_trainer_finish(t, style, (int32_t)o->vocab_size, o->min_count, json, &l->vocab, e);
    bpe_trainer_free(t);
    return code;
}

static int add_word(void *arg, const unsigned char *p, size_t n, int64_t count, struct err *e)
{
    (void)e;
    unigram_trainer_add(arg, p, n, count);
    return OK;
}

static int n_threads(const struct request *o) { return o->threads ? (int)o->threads : thread_n_cores(); }

static int learn_unigram(const struct request *o, struct piece_counter *c, struct str *json, struct learnt *l,
                         struct err *e)
{
    struct unigram_trainer *t = unigram_trainer_new();
    int code = piece_counter_each(c, add_word, t, e);
    l->n_distinct = unigram_trainer_words(t);
    if (!code) code = unigram_trainer_finish(t, (int32_t)o->vocab_size, n_threads(o), json, &l->vocab, e);
    unigram_trainer_free(t);
    return code;
}

static bool is_unigram(const struct request *o) { return !strcmp(o->model, "unigram"); }

static void report(const struct request *o, const struct learnt *l, const struct source *s, double start)
{
    double seconds = clock_now_s() - start;
    if (l->vocab < o->vocab_size)
        log_warn("data: the text has enough repeated %s for %d tokens, not for %lld; use more text%s",
                 is_unigram(o) ? "substrings" : "pairs", l->vocab, (long long)o->vocab_size,
                 is_unigram(o) ? "" : " or --min-count 1");
    if (o->json) {
        struct str text = {0};
        struct json_out j = {.s = &text};
        json_begin_document(&j, "data-train-tokenizer", 1);
        json_put_string(&j, "path", o->out);
        json_put_int(&j, "vocab", l->vocab);
        json_put_int(&j, "bytes", source_bytes_done(s));
        json_put_int(&j, "pieces", l->n_pieces);
        json_put_int(&j, "distinct_pieces", l->n_distinct);
        json_put_int(&j, "runs", l->runs);
        json_put_real_digits(&j, "seconds", seconds, 6);
        json_end_object(&j);
        data_print_json(&text);
        return;
    }
    char bytes[32], time[32], rate[32];
    printf("%s: %d tokens from %s of text (%lld distinct pieces), %s, %s/s\n", o->out, l->vocab,
           str_bytes(bytes, (double)source_bytes_done(s)), (long long)l->n_distinct, str_duration(time, seconds),
           str_bytes(rate, data_per_second(source_bytes_done(s), seconds)));
}

static int learn(const struct request *o, struct piece_counter *c, const struct train_style *style, struct source *s,
                 struct learnt *l, struct err *e)
{
    struct str json = {0};
    int code = piece_counter_read(c, s, e);
    *l = (struct learnt){.n_pieces = piece_counter_total(c), .runs = piece_counter_runs(c)};
    if (!code && source_n_skipped(s)) {
        log_info("data: %lld of %lld files are no text and were passed over: %s", (long long)source_n_skipped(s),
                 (long long)source_n_files(s), source_skipped(s));
        if (source_n_skipped(s) == source_n_files(s)) {
            char *input = remote_hidden(o->inputs.p[0]);
            code = err_set(e, ERR_REQUEST, "%s: holds no text (%lld files: %s)", input, (long long)source_n_files(s),
                           source_skipped(s));
            xfree(input);
        }
    }
    if (!code) code = is_unigram(o) ? learn_unigram(o, c, &json, l, e) : learn_bpe(o, c, style, &json, l, e);
    if (!code) code = fs_write_atomic(o->out, str_text(&json), json.n, e);
    str_free(&json);
    return code;
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
    const struct train_style *style;
    struct source *s = NULL;
    struct bad_list bad;
    bad_list_init(&bad, o->out);
    bad_list_clear(&bad);
    struct source_options how = {.column = o->column,
                                 .skip_bad = o->skip_bad,
                                 .tell_bad = bad_list_add,
                                 .tell_ctx = &bad};
    struct learnt l;
    struct piece_counter *c = NULL;
    struct cut_rules rules = {0};
    struct str scratch = {0};
    str_printf(&scratch, "%s.counting", o->out);
    code = train_style_find(&style, o->style, e);
    if (!code) code = source_open_with(&s, o->inputs.p, o->inputs.n, &how, e);
    if (!code) {
        const char *splits[TRAIN_SPLITS];
        int n = is_unigram(o) ? 1 : train_style_splits(style, splits);
        if (is_unigram(o)) splits[0] = UNIGRAM_SPLIT;
        train_rules_init(&rules, splits, n);
        c = piece_counter_new(&rules, n_threads(o), (int64_t)o->memory, scratch.p);
        code = learn(o, c, style, s, &l, e);
    }
    if (!code) code = bad_list_end(&bad, e);
    if (!code) report(o, &l, s, start);
    piece_counter_free(c);
    train_rules_fini(&rules);
    str_free(&scratch);
    source_close(s);
    bad_list_fini(&bad);
    return code;
}

static const struct request usual = {.model = "bpe", .style = "gpt2", .min_count = 2, .memory = 1 << 30};
const struct data_command data_train_tokenizer = {"train-tokenizer", &table, &usual, sizeof usual, run};
