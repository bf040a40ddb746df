/* SPDX-License-Identifier: Apache-2.0 */
/* cmd_data_inspect.c: `tutti data inspect`: what a token file holds, and what is asked of it; what samples look like is
 * inspect_samples.c's. */
#include <inttypes.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cmd_data.h"
#include "cli/inspect_media.h"
#include "cli/inspect_samples.h"
#include "explain/sample_view.h"
#include "data/tokenfile.h"
#include "token/tokenizer.h"

#define AT(field) offsetof(struct inspect_request, field)
static const struct cli_option option_rows[] = {
    {"--step", "N", CLI_INT, AT(step), .lo = 1, .hi = INT64_MAX >> 32,
     .help = "of a CONFIG: the step whose samples are shown, counted from 1 as in metrics.jsonl (default 1)"},
    {"--sample", "K", CLI_INT, AT(sample), .lo = 0, .hi = INT64_MAX >> 32,
     .help = "of a step: its sample K alone, from 0; of a token file: its document K"},
    {"--tokens", NULL, CLI_FLAG, AT(tokens), .help = "a line per token: place, document, position, id, loss, text"},
    {"--html", "FILE", CLI_TEXT, AT(html), .help = "write them as a page that needs nothing else"},
    {"--verify", NULL, CLI_FLAG, AT(verify), .help = "of a token file: read everything and compare the checksums"},
    {"--show", "N", CLI_INT, AT(show), .lo = 1, .hi = INT32_MAX,
     .help = "of a token file: print the text of the first N tokens"},
    {"--tokenizer", "T", CLI_TEXT, AT(tokenizer),
     .help = "of a token file, for --show and --sample (default byte): " DATA_TOKENIZER},
    CLI_JSON(struct inspect_request, json),
};
static const struct cli_word words[] = {{.name = "PREFIX|CONFIG|FILE", .at = AT(what)}};
static const struct cli_table table = {
    .command = "data inspect",
    .usage = "PREFIX|CONFIG|FILE [--step N] [--sample K] [options] [key=value ...]",
    .about =
        "Says what a token file holds (PREFIX), or a picture, sound or video (FILE), or shows the samples of a "
        "training step (a CONFIG, .yaml): their text, "
        "of\n"
        "which tokens a loss is taken, where documents begin and which positions they have; of a model that sees, "
        "each\n"
        "picture's shard, key, size and class, and with --html what the model sees of it. In colour on a terminal\n"
        "(not with NO_COLOR); else what a loss is taken of stands between â¦ and â§.\n",
    CLI_OPTIONS(option_rows),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = AT(keys),
};

static int text_of(const struct inspect_request *o, const struct tokenfile *f, struct str *text, struct err *e)
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

static void report_inspect(const struct inspect_request *o, const struct tokenfile *f, const struct str *shown)
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
    if (o->show) {
        fwrite(str_text(shown), 1, shown->n, stdout);
        printf("\n");
    }
}

static bool is_config(const char *path) { return str_ends(path, ".yaml") || str_ends(path, ".yml"); }

static int only_for_configs(const struct inspect_request *o, struct err *e)
{
    if (o->step || o->keys.n)
        return err_set(e, ERR_REQUEST, "%s: is no CONFIG (.yaml), and %s means nothing for a token file", o->what,
                       o->step ? "--step" : o->keys.p[0]);
    if ((o->html || o->tokens) && o->sample < 0)
        return err_set(e, ERR_REQUEST, "%s: say which document of the token file is to be shown (--sample K)", o->what);
    return OK;
}

static int run(const void *options, struct err *e)
{
    const struct inspect_request *o = options;
    if (is_config(o->what)) return inspect_step(o, e);
    if (inspect_is_media(o->what)) return inspect_media(o, e);
    int wrong = only_for_configs(o, e);
    if (wrong) return wrong;
    char *path = tokenfile_find(o->what);
    struct tokenfile f;
    int code = tokenfile_open(&f, path ? path : o->what, e);
    xfree(path);
    if (code) return code;
    struct str shown = {0};
    if (o->sample >= 0) {
        code = inspect_document(o, &f, e);
        tokenfile_close(&f);
        return code;
    }
    if (o->verify) code = tokenfile_verify(&f, e);
    if (!code && o->show) code = text_of(o, &f, &shown, e);
    if (!code) report_inspect(o, &f, &shown);
    str_free(&shown);
    tokenfile_close(&f);
    return code;
}

static const struct inspect_request usual = {.sample = -1};
const struct data_command data_inspect = {"inspect", &table, &usual, sizeof usual, run};
