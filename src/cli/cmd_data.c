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

static const char help[] =
    "usage: tutti data tokenize --tokenizer byte|TOKENIZER.json --out PREFIX INPUT... [--json]\n"
    "       tutti data train-tokenizer --vocab-size N --out TOKENIZER.json INPUT... [--style gpt2|llama3]\n"
    "                                  [--min-count N] [--json]\n"
    "       tutti data inspect PREFIX [--verify] [--tokenizer byte|TOKENIZER.json] [--show N] [--json]\n"
    "\n"
    "tokenize         writes PREFIX.tok, which data.train and data.valid of a config take as PREFIX\n"
    "train-tokenizer  learns a byte-level BPE vocabulary and writes it in Hugging Face's format\n"
    "inspect          says what a token file holds\n"
    "\n"
    "INPUT is a text file, a .jsonl file (one document per line, member \"text\") or a folder (its text files,\n"
    "recursively; hidden, empty and binary ones are passed over).\n"
    "\n"
    "  --tokenizer T    byte, a tokenizer.json (GPT-2 and Llama-3 styles), or a directory that holds one\n"
    "  --out PATH       where to write\n"
    "  --vocab-size N   how many tokens: 256 bytes, the merged ones, <|endoftext|>; 257 to 16777216\n"
    "  --style S        how text is cut before merging: gpt2 (the default) or llama3\n"
    "  --min-count N    merge only pairs that occur at least N times; default 2\n"
    "  --verify         read everything and compare the checksums\n"
    "  --show N         print the text of the first N tokens (with --tokenizer)\n"
    "  --json           print one JSON object on stdout\n";

struct options {
    const char *tokenizer, *out, *style;
    int64_t vocab_size, min_count, show;
    bool verify, json;
    const char **inputs;
    int n_inputs;
};

enum option_kind { TEXT, COUNT, FLAG };
struct option {
    const char *name;
    enum option_kind kind;
    size_t offset;
    const char *commands; /* that take it, by first letter */
};
static const struct option options_table[] = {
    {"--tokenizer", TEXT, offsetof(struct options, tokenizer), "to i"},
    {"--out", TEXT, offsetof(struct options, out), "to tr"},
    {"--style", TEXT, offsetof(struct options, style), "tr"},
    {"--vocab-size", COUNT, offsetof(struct options, vocab_size), "tr"},
    {"--min-count", COUNT, offsetof(struct options, min_count), "tr"},
    {"--show", COUNT, offsetof(struct options, show), "i"},
    {"--verify", FLAG, offsetof(struct options, verify), "i"},
    {"--json", FLAG, offsetof(struct options, json), "to tr i"},
};
enum { N_OPTIONS = sizeof options_table / sizeof *options_table };

struct command {
    const char *name, *letters;
    int (*run)(const struct options *o, struct err *e);
};

/* -- arguments ---------------------------------------------------------------------------------------------- */

static int unknown_option(const char *arg, const struct command *c, struct err *e)
{
    const char *names[N_OPTIONS];
    int n = 0;
    for (int i = 0; i < N_OPTIONS; i++)
        if (strstr(options_table[i].commands, c->letters)) names[n++] = options_table[i].name;
    const char *near = str_nearest(arg, names, n);
    return err_set(e, ERR_REQUEST, "data %s: unknown option %s%s%s%s; `tutti data --help` lists them", c->name, arg,
                   near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
}

static int set_option(struct options *o, const struct option *option, const char *value, struct err *e)
{
    char *at = (char *)o + option->offset;
    if (option->kind == FLAG) {
        *(bool *)(void *)at = true;
        return OK;
    }
    if (option->kind == TEXT) {
        *(const char **)(void *)at = value;
        return OK;
    }
    char *end;
    long long v = strtoll(value, &end, 10);
    if (end == value || *end || v < 1 || v > INT32_MAX)
        return err_set(e, ERR_REQUEST, "%s: wanted a whole number from 1 to %d, got \"%s\"", option->name, INT32_MAX,
                       value);
    *(int64_t *)(void *)at = v;
    return OK;
}

/* `--name value`, `--name=value`, `--` and inputs, in any order. */
static int read_arguments(struct options *o, const struct command *c, int argc, char **argv, struct err *e)
{
    bool only_inputs = false;
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (only_inputs || arg[0] != '-' || !arg[1]) {
            o->inputs[o->n_inputs++] = arg;
            continue;
        }
        if (!strcmp(arg, "--")) {
            only_inputs = true;
            continue;
        }
        size_t n = strcspn(arg, "=");
        const struct option *found = NULL;
        for (int k = 0; k < N_OPTIONS; k++)
            if (strlen(options_table[k].name) == n && !strncmp(options_table[k].name, arg, n) &&
                strstr(options_table[k].commands, c->letters))
                found = &options_table[k];
        if (!found) return unknown_option(arg, c, e);
        const char *value = arg[n] ? arg + n + 1 : NULL;
        if (found->kind == FLAG && value) return err_set(e, ERR_REQUEST, "%s takes no value", found->name);
        if (found->kind != FLAG && !value && ++i < argc) value = argv[i];
        if (found->kind != FLAG && !value) return err_set(e, ERR_REQUEST, "%s wants a value", found->name);
        int code = set_option(o, found, value, e);
        if (code) return code;
    }
    return OK;
}

static int need(const struct options *o, const char *command, const char *option, const void *value, struct err *e)
{
    if (!value) return err_set(e, ERR_REQUEST, "data %s: %s is missing; see `tutti data --help`", command, option);
    if (o->n_inputs < 1) return err_set(e, ERR_REQUEST, "data %s: no input is named; see `tutti data --help`", command);
    return OK;
}

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
    int code = need(o, "tokenize", "--tokenizer", o->tokenizer, e);
    if (!code) code = need(o, "tokenize", "--out", o->out, e);
    if (code) return code;
    struct tokenizer *t;
    code = tokenizer_open(&t, o->tokenizer, e);
    if (code) return code;
    struct str path = {0};
    str_printf(&path, "%s%s", o->out, str_ends(o->out, ".tok") ? "" : ".tok");
    struct tokenize_result r;
    code = tokenize(t, o->inputs, o->n_inputs, path.p, &r, e);
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
    int code = need(o, "train-tokenizer", "--vocab-size", o->vocab_size ? o : NULL, e);
    if (!code) code = need(o, "train-tokenizer", "--out", o->out, e);
    if (!code && (o->vocab_size < BPE_TRAIN_VOCAB_MIN || o->vocab_size > BPE_TRAIN_VOCAB_MAX))
        code = err_set(e, ERR_REQUEST, "--vocab-size: wanted %d (256 bytes and the end of text) to %d, got %lld",
                       BPE_TRAIN_VOCAB_MIN, BPE_TRAIN_VOCAB_MAX, (long long)o->vocab_size);
    if (!code) code = can_write(o->out, e);
    if (code) return code;
    double start = clock_now_s();
    struct bpe_trainer *t;
    struct source *s = NULL;
    code = bpe_trainer_new(&t, o->style, e);
    if (!code) code = source_open(&s, o->inputs, o->n_inputs, e);
    if (!code) code = count_text(t, s, e);
    if (!code && source_n_skipped(s)) {
        log_info("data: %lld of %lld files are no text and were passed over: %s", (long long)source_n_skipped(s),
                 (long long)source_n_files(s), source_skipped(s));
        if (source_n_skipped(s) == source_n_files(s))
            code = err_set(e, ERR_REQUEST, "%s: holds no text (%lld files: %s)", o->inputs[0],
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
    int code = need(o, "inspect", "PREFIX", o, e);
    if (code) return code;
    if (o->n_inputs > 1) return err_set(e, ERR_REQUEST, "data inspect: one PREFIX at a time");
    char *path = tokenfile_find(o->inputs[0]);
    struct tokenfile f;
    code = tokenfile_open(&f, path ? path : o->inputs[0], e);
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

static const struct command commands[] = {
    {"tokenize", "to", run_tokenize},
    {"train-tokenizer", "tr", run_train},
    {"inspect", "i", run_inspect},
};
enum { N_COMMANDS = sizeof commands / sizeof *commands };

static bool asks_for_help(int argc, char **argv)
{
    for (int i = 1; i < argc && strcmp(argv[i], "--"); i++)
        if (!strcmp(argv[i], "--help") || !strcmp(argv[i], "-h")) return true;
    return false;
}

static const struct command *find_command(const char *name, struct err *e)
{
    const char *names[N_COMMANDS];
    for (int i = 0; i < N_COMMANDS; i++) {
        names[i] = commands[i].name;
        if (!strcmp(name, names[i])) return &commands[i];
    }
    const char *near = str_nearest(name, names, N_COMMANDS);
    err_set(e, ERR_REQUEST, "data: unknown command \"%s\"%s%s%s; `tutti data --help` lists them", name,
            near ? " (did you mean " : "", near ? near : "", near ? "?)" : "");
    return NULL;
}

int cmd_data(int argc, char **argv)
{
    if (asks_for_help(argc, argv)) {
        fputs(help, stdout);
        return 0;
    }
    struct err e = {.code = OK};
    if (argc < 2) {
        fputs(help, stderr);
        return 2;
    }
    const struct command *c = find_command(argv[1], &e);
    int code = c ? OK : ERR_REQUEST;
    struct options o = {.style = "gpt2", .min_count = 2, .inputs = xcalloc((size_t)argc, sizeof *o.inputs)};
    if (!code) code = read_arguments(&o, c, argc - 2, argv + 2, &e);
    if (!code) code = c->run(&o, &e);
    xfree(o.inputs);
    if (!code && fflush(stdout)) code = err_set(&e, ERR_IO, "standard output cannot be written");
    if (code) fprintf(stderr, "tutti: %s\n", e.text);
    return err_exit_status(code);
}
