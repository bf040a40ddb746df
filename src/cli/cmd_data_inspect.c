/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_inspect.c: `tutti data inspect`: what a token file holds. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "data/tokenfile.h"
#include "data/tokenizer.h"

struct request {
    const char *prefix, *tokenizer;
    int64_t show;
    bool verify, json;
};

static const struct cli_option option_rows[] = {
    {"--verify", NULL, CLI_FLAG, offsetof(struct request, verify), .help = "read everything and compare the checksums"},
    {"--show", "N", CLI_INT, offsetof(struct request, show), .lo = 1, .hi = INT32_MAX,
     .help = "print the text of the first N tokens"},
    {"--tokenizer", "T", CLI_TEXT, offsetof(struct request, tokenizer),
     .help = "for --show (default byte): " DATA_TOKENIZER},
    CLI_JSON(struct request, json),
};
static const struct cli_word words[] = {{.name = "PREFIX", .at = offsetof(struct request, prefix)}};
static const struct cli_table table = {
    .command = "data inspect",
    .usage = "PREFIX [options]",
    .about = "Says what a token file holds.\n",
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
};

static int text_of(const struct request *o, const struct tokenfile *f, struct str *text, struct err *e)
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

static void report_inspect(const struct request *o, const struct tokenfile *f, const struct str *shown)
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
        data_print_json(&text);
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

static int run(const void *options, struct err *e)
{
    const struct request *o = options;
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

static const struct request usual = {.json = false};
const struct data_command data_inspect = {"inspect", &table, &usual, sizeof usual, run};
