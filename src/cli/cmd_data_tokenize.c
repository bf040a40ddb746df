/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_tokenize.c: `tutti data tokenize`: text to a token file. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/str.h"
#include "base/thread.h"
#include "cli/cmd_data.h"
#include "data/tokenize.h"
#include "token/tokenizer.h"

struct request {
    const char *tokenizer, *out, *column, *chat, *train_on, *date;
    int64_t threads;
    bool json, skip_bad;
    struct cli_words inputs;
};

static const struct cli_option option_rows[] = {
    {"--tokenizer", "T", CLI_TEXT, offsetof(struct request, tokenizer), .needed = true, .help = DATA_TOKENIZER},
    {"--out", "PREFIX", CLI_TEXT, offsetof(struct request, out), .needed = true,
     .help = "writes PREFIX.tok, which data.train and data.valid of a config take as PREFIX"},
    DATA_COLUMN(struct request, column),
    DATA_SKIP_BAD(struct request, skip_bad),
    {"--chat", "NAME", CLI_TEXT, offsetof(struct request, chat),
     .help = "INPUT is .jsonl of conversations or instructions, written by this template: a name such as\nchatml "
             "(docs/chat.md "
             "has all), tokenizer: its own, or a file"},
    {"--train-on", "WHAT", CLI_CHOICE, offsetof(struct request, train_on), .choices = CHAT_TRAIN_ON,
     .help = "of conversations: what a loss is taken of"},
    {"--date", "DAY", CLI_TEXT, offsetof(struct request, date),
     .help = "of conversations: the day, as YYYY-MM-DD, for a template that asks for it (strftime_now)"},
    {"--threads", "N", CLI_INT, offsetof(struct request, threads), .lo = 1, .hi = 4096,
     .help = "the same file for any number of them (default: all cores)"},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "INPUT", .at = offsetof(struct request, inputs), .many = true}};
static const struct cli_table table = {
    .command = "data tokenize",
    .usage = "--tokenizer byte|TOKENIZER.json --out PREFIX INPUT... [options]",
    .about = "Makes a token file of text. Stopped or killed, and started again with the same inputs and tokenizer, it "
             "goes on\n"
             "where it was, from PREFIX.tok.work.\n" DATA_INPUT,
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

/* Of what was tokenized now. */
static double rate_of(const struct tokenize_result *r, int64_t n)
{
    double part = r->bytes ? (double)(r->bytes - r->bytes_before) / (double)r->bytes : 1;
    return part * data_per_second(n, r->seconds);
}

static void report_tokenize(const struct request *o, const char *path, const struct tokenize_result *r)
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
        json_put_int(&j, "bad_records", r->bad);
        json_put_int(&j, "bytes_before", r->bytes_before);
        json_put_real_digits(&j, "seconds", r->seconds, 6);
        json_put_real_digits(&j, "bytes_per_s", rate_of(r, r->bytes), 6);
        json_put_real_digits(&j, "tokens_per_s", rate_of(r, r->tokens), 6);
        json_end_object(&j);
        data_print_json(&text);
        return;
    }
    char bytes[32], tokens[32], rate[32], time[32];
    printf("%s: %s of text, %lld documents, %s tokens (%.2f bytes per token), %s, %s/s\n", path,
           str_bytes(bytes, (double)r->bytes), (long long)r->documents, str_count(tokens, (double)r->tokens),
           (double)r->bytes / (double)(r->tokens ? r->tokens : 1), str_duration(time, r->seconds),
           str_bytes(rate, rate_of(r, r->bytes)));
    if (r->bad) printf("%lld bad records were skipped: %s.skipped lists them\n", (long long)r->bad, path);
    if (r->skipped) printf("%lld files were passed over: binary or unreadable\n", (long long)r->skipped);
}

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
    struct tokenizer *t;
    if (o->date && !o->chat)
        return err_set(e, ERR_REQUEST, "--date is what a template of conversations tells; name one with --chat");
    int code = tokenizer_open(&t, o->tokenizer, e);
    if (code) return code;
    struct str path = {0};
    str_printf(&path, "%s%s", o->out, str_ends(o->out, ".tok") ? "" : ".tok");
    struct tokenize_result r;
    struct tokenize_input how = {.column = o->column,
                                 .skip_bad = o->skip_bad,
                                 .chat = {.template_name = o->chat,
                                          .tokenizer_path = o->tokenizer,
                                          .train_on = !strcmp(o->train_on, "all")    ? CHAT_ALL
                                                      : !strcmp(o->train_on, "last") ? CHAT_LAST
                                                                                     : CHAT_ANSWERS,
                                          .day = o->date}};
    code = tokenize(t, o->inputs.p, o->inputs.n, &how, path.p, o->threads ? (int)o->threads : thread_n_cores(), &r, e);
    if (!code) report_tokenize(o, path.p, &r);
    str_free(&path);
    tokenizer_free(t);
    return code;
}

static const struct request usual = {.train_on = "answers"};
const struct data_command data_tokenize = {"tokenize", &table, &usual, sizeof usual, run};
