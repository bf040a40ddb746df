/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data.c: `tutti data`: tokenize, train-tokenizer, inspect.
 *
 * Options of all three stand in one table per command; results go to stdout (as JSON with --json), everything else to
 * stderr. Exit status: 0 done, 2 the request or an input was wrong, 1 it failed while running.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "data/bpe_train.h"
#include "data/source.h"
#include "data/tokenfile.h"
#include "data/tokenize.h"
#include "data/tokenizer.h"

struct options {
    const char *tokenizer, *out, *style, *prefix, *column;
    int64_t vocab_size, min_count, show;
    bool verify, json;
    struct cli_words inputs;
};

/* -- arguments ---------------------------------------------------------------------------------------------- */

#define AT(field) offsetof(struct options, field)
#define TOKENIZER "byte, a tokenizer.json (GPT-2 and Llama-3 styles), or a directory that holds one"
#define COLUMN                                                                                                         \
    {                                                                                                                  \
        "--column", "NAME", CLI_TEXT, AT(column),                                                                      \
            .help = "the member of .jsonl lines, or the column of .csv or .tsv, that is the text (default text)"       \
    }
static const struct cli_option tokenize_options[] = {
    {"--tokenizer", "T", CLI_TEXT, AT(tokenizer), .needed = true, .help = TOKENIZER},
    {"--out", "PREFIX", CLI_TEXT, AT(out), .needed = true,
     .help = "writes PREFIX.tok, which data.train and data.valid of a config take as PREFIX"},
    COLUMN,
    CLI_JSON(struct options, json),
};
static const struct cli_option train_options[] = {
    {"--vocab-size", "N", CLI_INT, AT(vocab_size), .lo = BPE_TRAIN_VOCAB_MIN, .hi = BPE_TRAIN_VOCAB_MAX, .needed = true,
     .help = "how many tokens: 256 bytes, the merged ones, <|endoftext|>; 257 to 16777216"},
    {"--out", "FILE", CLI_TEXT, AT(out), .needed = true, .help = "the tokenizer.json to write"},
    {"--style", "S", CLI_CHOICE, AT(style), .choices = "gpt2|llama3", .help = "how text is cut before merging"},
    {"--min-count", "N", CLI_INT, AT(min_count), .lo = 1, .hi = INT32_MAX,
     .help = "merge only pairs that occur at least N times"},
    COLUMN,
    CLI_JSON(struct options, json),
};
static const struct cli_option inspect_options[] = {
    {"--verify", NULL, CLI_FLAG, AT(verify), .help = "read everything and compare the checksums"},
    {"--show", "N", CLI_INT, AT(show), .lo = 1, .hi = INT32_MAX, .help = "print the text of the first N tokens"},
    {"--tokenizer", "T", CLI_TEXT, AT(tokenizer), .help = "for --show (default byte): " TOKENIZER},
    CLI_JSON(struct options, json),
};
static const struct cli_word inputs[] = {{.name = "INPUT", .at = AT(inputs), .many = true}};
static const struct cli_word prefix[] = {{.name = "PREFIX", .at = AT(prefix)}};

#define INPUT                                                                                                          \
    "INPUT is a text file, a .jsonl, .csv or .tsv file (one document per line or row), any of them packed by\n"        \
    "gzip or zstd, or a folder (its text files, recursively; hidden, empty and binary ones are passed over).\n"
static const struct cli_table tokenize_table = {
    .command = "data tokenize",
    .usage = "--tokenizer byte|TOKENIZER.json --out PREFIX INPUT... [--column NAME] [--json]",
    .about = "Makes a token file of text.\n" INPUT,
    CLI_OPTIONS(tokenize_options),
    CLI_WORDS(inputs),
};
static const struct cli_table train_table = {
    .command = "data train-tokenizer",
    .usage = "--vocab-size N --out TOKENIZER.json INPUT... [options]",
    .about = "Learns a byte-level BPE vocabulary and writes it in Hugging Face's format.\n" INPUT,
    CLI_OPTIONS(train_options),
    CLI_WORDS(inputs),
};
static const struct cli_table inspect_table = {
    .command = "data inspect",
    .usage = "PREFIX [options]",
    .about = "Says what a token file holds.\n",
    CLI_OPTIONS(inspect_options),
    CLI_WORDS(prefix),
};

static void print_json(struct str *text)
{
    str_putc(text, '\n');
    fwrite(str_text(text), 1, text->n, stdout);
    str_free(text);
}

static double per_second(int64_t n, double seconds) { return (double)n / (seconds > 1e-9 ? seconds : 1e-9); }

/* -- tokenize ----------------------------------------------------------------------------------------------- */

static void report_tokenize(const struct options *o, const char *path, const struct tokenize_result *r)
{
    if (o->json) {
        struct str text = {0};
        struct json_out j = {.s = &text};
        json_begin_document(&j, "data-tokenize", 1);
        json_put_string(&j, "path", path);
        json_put_int(&j, "bytes", r->bytes);
        json_put_int(&j, "tokens", r->tokens);
        json_put_int(&j, "documents", r->documents);
        json_put_int(&j, "skipped", r->skipped);
        json_put_real_digits(&j, "seconds", r->seconds, 6);
        json_put_real_digits(&j, "bytes_per_s", per_second(r->bytes, r->seconds), 6);
        json_put_real_digits(&j, "tokens_per_s", per_second(r->tokens, r->seconds), 6);
        json_end_object(&j);
        print_json(&text);
        return;
    }
    char bytes[32], tokens[32], rate[32], time[32];
    printf("%s: %s of text, %lld documents, %s tokens (%.2f bytes per token), %s, %s/s\n", path,
           str_bytes(bytes, (double)r->bytes), (long long)r->documents, str_count(tokens, (double)r->tokens),
           (double)r->bytes / (double)(r->tokens ? r->tokens : 1), str_duration(time, r->seconds),
           str_bytes(rate, per_second(r->bytes, r->seconds)));
    if (r->skipped) printf("%lld files were passed over: binary or unreadable\n", (long long)r->skipped);
}

static int run_tokenize(const struct options *o, struct err *e)
{
    struct tokenizer *t;
    int code = tokenizer_open(&t, o->tokenizer, e);
    if (code) return code;
    struct str path = {0};
    str_printf(&path, "%s%s", o->out, str_ends(o->out, ".tok") ? "" : ".tok");
    struct tokenize_result r;
    code = tokenize(t, o->inputs.p, o->inputs.n, o->column, path.p, &r, e);
    if (!code) report_tokenize(o, path.p, &r);
    str_free(&path);
    tokenizer_free(t);
    return code;
}

/* -- train-tokenizer ---------------------------------------------------------------------------------------- */

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

static int write_trained(const struct options *o, struct bpe_trainer *t, const struct source *s, double start,
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
        print_json(&text);
        return OK;
    }
    char bytes[32], time[32], rate[32];
    printf("%s: %d tokens from %s of text (%lld distinct pieces), %s, %s/s\n", o->out, r.vocab,
           str_bytes(bytes, (double)source_bytes_done(s)), (long long)r.n_distinct, str_duration(time, seconds),
           str_bytes(rate, per_second(source_bytes_done(s), seconds)));
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

static int run_train(const struct options *o, struct err *e)
{
    int code = can_write(o->out, e);
    if (code) return code;
    double start = clock_now_s();
    struct bpe_trainer *t;
    struct source *s = NULL;
    code = bpe_trainer_new(&t, o->style, e);
    if (!code) code = source_open(&s, o->inputs.p, o->inputs.n, o->column, e);
    if (!code) code = count_text(t, s, e);
    if (!code && source_n_skipped(s)) {
        log_info("data: %lld of %lld files are no text and were passed over: %s", (long long)source_n_skipped(s),
                 (long long)source_n_files(s), source_skipped(s));
        if (source_n_skipped(s) == source_n_files(s))
            code = err_set(e, ERR_REQUEST, "%s: holds no text (%lld files: %s)", o->inputs.p[0],
                           (long long)source_n_files(s), source_skipped(s));
    }
    if (!code) code = write_trained(o, t, s, start, e);
    source_close(s);
    bpe_trainer_free(t);
    return code;
}

/* -- inspect ------------------------------------------------------------------------------------------------ */

static int text_of(const struct options *o, const struct tokenfile *f, struct str *text, struct err *e)
{
    struct tokenizer *t;
    int code = tokenizer_open(&t, o->tokenizer ? o->tokenizer : "byte", e);
    if (code) return code;
    if (tokenizer_fingerprint(t) != f->head.fingerprint)
        code = err_set(e, ERR_REQUEST, "%s: was not made with the tokenizer %s; name the one it was made with", f->path,
                       o->tokenizer ? o->tokenizer : "byte");
    int64_t n = o->show < f->n_tokens ? o->show : f->n_tokens;
    int32_t *ids = xmalloc(to_size(n ? n : 1) * sizeof *ids);
    if (!code) code = tokenfile_read(f, 0, n, ids, e);
    struct decoder d = {.t = t, .with_special = true};
    for (int64_t i = 0; i < n && !code; i++) decoder_push(&d, ids[i], text);
    decoder_end(&d, text);
    xfree(ids);
    tokenizer_free(t);
    return code;
}

static void report_inspect(const struct options *o, const struct tokenfile *f, const struct str *shown)
{
    char fingerprint[32];
    snprintf(fingerprint, sizeof fingerprint, "%016" PRIx64, f->head.fingerprint);
    if (o->json) {
        struct str text = {0};
        struct json_out j = {.s = &text};
        json_begin_document(&j, "data-inspect", 1);
        json_put_string(&j, "path", f->path);
        json_put_int(&j, "tokens", f->n_tokens);
        json_put_int(&j, "documents", f->n_documents);
        json_put_int(&j, "vocab", f->head.vocab);
        json_put_int(&j, "eos", f->head.eos);
        json_put_int(&j, "bytes_per_token", f->width);
        json_put_int(&j, "file_bytes", f->file.bytes);
        json_put_string(&j, "tokenizer_fingerprint", fingerprint);
        if (o->verify) json_put_bool(&j, "verified", true);
        if (o->show) json_put_string(&j, "text", str_text(shown));
        json_end_object(&j);
        print_json(&text);
        return;
    }
    char bytes[32];
    printf("%s\n  tokens      %lld (%d bytes each, %s on disk)\n  documents   %lld\n  vocabulary  %d, end of text %d\n"
           "  tokenizer   %s\n",
           f->path, (long long)f->n_tokens, f->width, str_bytes(bytes, (double)f->file.bytes),
           (long long)f->n_documents, f->head.vocab, f->head.eos, fingerprint);
    if (o->verify) printf("  checksums   all right\n");
    if (o->show) printf("%s\n", str_text(shown));
}

static int run_inspect(const struct options *o, struct err *e)
{
    char *path = tokenfile_find(o->prefix);
    struct tokenfile f;
    int code = tokenfile_open(&f, path ? path : o->prefix, e);
    xfree(path);
    if (code) return code;
    struct str shown = {0};
    if (o->verify) code = tokenfile_verify(&f, e);
    if (!code && o->show) code = text_of(o, &f, &shown, e);
    if (!code) report_inspect(o, &f, &shown);
    str_free(&shown);
    tokenfile_close(&f);
    return code;
}

/* -- the command -------------------------------------------------------------------------------------------- */

static int run_with(const struct cli_table *t, int (*run)(const struct options *o, struct err *e), int argc,
                    char **argv)
{
    struct options o = {.style = "gpt2", .min_count = 2};
    struct err e = {.code = OK};
    int status;
    if (!cli_read(t, argc, argv, &o, &status)) return status;
    int code = run(&o, &e);
    if (!code && fflush(stdout)) code = err_set(&e, ERR_IO, "standard output cannot be written");
    return code ? cli_fail(&e) : 0;
}

static int data_tokenize(int argc, char **argv) { return run_with(&tokenize_table, run_tokenize, argc, argv); }
static int data_train(int argc, char **argv) { return run_with(&train_table, run_train, argc, argv); }
static int data_inspect(int argc, char **argv) { return run_with(&inspect_table, run_inspect, argc, argv); }

static const struct cli_command commands[] = {{"tokenize", data_tokenize, "", ""},
                                              {"train-tokenizer", data_train, "", ""},
                                              {"inspect", data_inspect, "", ""}};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

int cmd_data(int argc, char **argv)
{
    if (argc > 1 && argv[1][0] != '-') {
        const struct cli_command *c = cli_choose("data", commands, N_COMMANDS, argv[1]);
        return c ? c->run(argc - 1, argv + 1) : 2;
    }
    const struct cli_table *const tables[N_COMMANDS] = {&tokenize_table, &train_table, &inspect_table};
    const struct options defaults = {.style = "gpt2", .min_count = 2};
    struct str s = {0};
    bool help = cli_lists(argc, argv);
    for (int i = 0; i < N_COMMANDS; i++) {
        if (i) str_puts(&s, "\n");
        cli_help(tables[i], &defaults, &s);
    }
    fputs(str_text(&s), help ? stdout : stderr);
    str_free(&s);
    return help ? 0 : 2;
}
