/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_megatron.c: `tutti data import-megatron` and `tutti data export-megatron`: token files of Megatron-LM. */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "data/megatron.h"
#include "token/tokenizer.h"

struct request {
    const char *tokenizer, *out, *prefix, *type;
    bool no_eod, json;
};

#define OUT(text)                                                                                                      \
    {                                                                                                                  \
        "--out", "PREFIX", CLI_TEXT, offsetof(struct request, out), .needed = true, .help = text                       \
    }

static const struct cli_option import_options[] = {
    {"--tokenizer", "T", CLI_TEXT, offsetof(struct request, tokenizer), .needed = true, .help = DATA_TOKENIZER},
    OUT("writes PREFIX.tok, which data.train and data.valid of a config take as PREFIX"),
    CLI_JSON(struct request, json),
};
static const struct cli_option export_options[] = {
    OUT("writes PREFIX.bin and PREFIX.idx"),
    {"--type", "T", CLI_CHOICE, offsetof(struct request, type), .choices = "auto|" MEGATRON_TYPES,
     .help = "of a token; auto, as Megatron chooses: uint16 for a vocabulary below 65500, else int32"},
    {"--no-eod", NULL, CLI_FLAG, offsetof(struct request, no_eod),
     .help = "leave out the end of text at each document's end"},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "PREFIX", .at = offsetof(struct request, prefix)}};

static const struct cli_table import_table = {
    .command = "data import-megatron",
    .usage = "PREFIX --tokenizer byte|TOKENIZER.json --out PREFIX [--json]",
    .about = "Makes a token file of Megatron's PREFIX.bin and PREFIX.idx (data.train takes them as they are, too).\n"
             "Every document ends with one end of text then, whether it had one or not; ids are compared with the\n"
             "tokenizer, which has to be the one that made them.\n",
    CLI_OPTIONS(import_options),
    CLI_WORDS(words),
};
static const struct cli_table export_table = {
    .command = "data export-megatron",
    .usage = "PREFIX --out PREFIX [options]",
    .about = "Writes a token file as Megatron's PREFIX.bin and PREFIX.idx, a sequence for each document.\n",
    CLI_OPTIONS(export_options),
    CLI_WORDS(words),
};

static void report(const struct request *o, bool import, const char *path, const char *type,
                   const struct megatron_result *r)
{
    if (o->json) {
        struct str text = {0};
        struct json_out j = {.s = &text};
        if (import) json_begin_document(&j, "data-import-megatron", 1);
        else json_begin_document(&j, "data-export-megatron", 1);
        json_put_string(&j, "path", path);
        json_put_string(&j, "type", type);
        json_put_int(&j, "documents", r->documents);
        json_put_int(&j, "tokens", r->tokens);
        json_put_int(&j, "ended", r->ended);
        json_put_int(&j, "empty", r->empty);
        json_end_object(&j);
        data_print_json(&text);
        return;
    }
    char tokens[32];
    printf("%s: %lld documents, %s tokens of %s; %lld had an end of text, %lld were without a token\n", path,
           (long long)r->documents, str_count(tokens, (double)r->tokens), type, (long long)r->ended,
           (long long)r->empty);
}

static int run_import(const void *options, struct err *e)
{
    const struct request *o = options;
    char *prefix = megatron_find(o->prefix);
    if (!prefix) return err_set(e, ERR_REQUEST, "%s: there are no %s.bin and %s.idx", o->prefix, o->prefix, o->prefix);
    struct tokenizer *t = NULL;
    struct megatron m;
    struct megatron_result r;
    struct str path = {0};
    const char *type = "";
    str_printf(&path, "%s%s", o->out, str_ends(o->out, ".tok") ? "" : ".tok");
    int code = tokenizer_open(&t, o->tokenizer, e);
    if (!code) code = megatron_open(&m, prefix, e);
    if (!code) {
        type = megatron_type(&m);
        megatron_close(&m);
        code = megatron_import(t, prefix, path.p, NULL, &r, e);
    }
    if (!code) report(o, true, path.p, type, &r);
    tokenizer_free(t);
    str_free(&path);
    xfree(prefix);
    return code;
}

static int run_export(const void *options, struct err *e)
{
    const struct request *o = options;
    char *path = tokenfile_find(o->prefix);
    struct tokenfile f;
    struct megatron_result r;
    const char *type = "";
    struct megatron_export how = {strcmp(o->type, "auto") ? o->type : NULL, o->no_eod};
    int code = tokenfile_open(&f, path ? path : o->prefix, e);
    xfree(path);
    if (code) return code;
    code = megatron_write(&f, o->out, &how, &r, &type, e);
    tokenfile_close(&f);
    struct str name = {0};
    str_printf(&name, "%s.bin", o->out);
    if (!code) report(o, false, name.p, type, &r);
    str_free(&name);
    return code;
}

static const struct request usual = {.type = "auto"};
const struct data_command data_import_megatron = {"import-megatron", &import_table, &usual, sizeof usual, run_import};
const struct data_command data_export_megatron = {"export-megatron", &export_table, &usual, sizeof usual, run_export};
