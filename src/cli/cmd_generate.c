/* SPDX-License-Identifier: Apache-2.0 */
/* tutti generate CHECKPOINT --prompt TEXT [...] */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/str.h"
#include "cli/cli.h"
#include "run/generate.h"
#include "config/start_weights.h"

enum { PROMPT_MAX = 1 << 26 };

struct request {
    const char *checkpoint, *prompt, *prompt_file, *tokenizer, *dtype, *ignore;
    int64_t max_tokens, threads, seed;
    struct sample_spec spec;
    bool json, ema;
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--prompt", "TEXT", CLI_TEXT, AT(prompt), .help = "what to continue"},
    {"--prompt-file", "FILE", CLI_TEXT, AT(prompt_file), .help = "it is in this file (- for standard input)"},
    {"--max-tokens", "N", CLI_INT, AT(max_tokens), .lo = 1, .hi = 1 << 30, .help = "at most N new tokens"},
    {"--temperature", "T", CLI_REAL, AT(spec.temperature), .most = 1e6, .help = "0 takes the likeliest token always"},
    {"--top-k", "K", CLI_INT, AT(spec.top_k), .hi = INT32_MAX, .help = "only the K likeliest (default 0: all)"},
    {"--top-p", "P", CLI_REAL, AT(spec.top_p), .least = 1e-9, .most = 1,
     .help = "only the likeliest that together reach P"},
    {"--seed", "S", CLI_INT, AT(seed), .hi = INT64_MAX, .help = "the same seed gives the same text"},
    {"--dtype", "D", CLI_CHOICE, AT(dtype), .choices = "bf16|f32", .help = ""},
    {"--threads", "N", CLI_INT, AT(threads), .lo = 1, .hi = 4096, .help = "default: all cores"},
    {"--tokenizer", "FILE", CLI_TEXT, AT(tokenizer), .help = "default: the checkpoint's own"},
    {"--ema", NULL, CLI_FLAG, AT(ema), .help = "by the average of weights (optimizer.ema), not by the last ones"},
    CLI_IGNORE(struct request, ignore),
    {"--json", NULL, CLI_FLAG, AT(json),
     .help = "one JSON object at the end: the text, why it stopped, tokens, seconds (docs/json.md)"},
};
static const struct cli_word words[] = {{.name = "CHECKPOINT", .at = AT(checkpoint)}};
static const struct cli_table table = {
    .command = "generate",
    .usage = "CHECKPOINT --prompt TEXT [options]",
    .about = "Continues TEXT with the model of CHECKPOINT: a tutti checkpoint, a run directory, or a Hugging Face "
             "directory.\n"
             "The text goes to stdout as it comes.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

/* As cli_read. */
static bool parse(int argc, char **argv, struct request *q, int *status)
{
    *q = (struct request){.max_tokens = 128, .spec = {.temperature = 0.8, .top_p = 1}, .seed = 1, .dtype = "bf16"};
    if (!cli_read(&table, argc, argv, q, status)) return false;
    if (q->prompt && q->prompt_file)
        *status = cli_usage("generate", "--prompt and --prompt-file are both given; which one?");
    if (!q->prompt && !q->prompt_file) *status = cli_usage("generate", "--prompt TEXT is needed");
    q->spec.seed = (uint64_t)q->seed;
    return !*status;
}

/* ctx: NULL, or where the text is kept instead. */
static bool emit(void *ctx, const char *text, size_t n)
{
    if (ctx) {
        str_add(ctx, text, n);
        return true;
    }
    return fwrite(text, 1, n, stdout) == n && fflush(stdout) == 0;
}

/* Also from a pipe, which has no length to ask for. */
static int read_standard_input(char **text, size_t *n, struct err *e)
{
    struct str s = {0};
    char piece[4096];
    size_t got;
    while (s.n <= PROMPT_MAX && (got = fread(piece, 1, sizeof piece, stdin)) > 0) str_add(&s, piece, got);
    int rc = ferror(stdin) ? err_set(e, ERR_IO, "standard input cannot be read") : OK;
    if (!rc && s.n > PROMPT_MAX) rc = err_set(e, ERR_REQUEST, "standard input: more than %d bytes", PROMPT_MAX);
    *text = xmalloc(s.n + 1);
    memcpy(*text, str_text(&s), s.n + 1);
    *n = s.n;
    str_free(&s);
    return rc;
}

static int read_prompt(const struct request *q, char **text, struct err *e)
{
    size_t n;
    if (!q->prompt_file) {
        *text = xstrdup(q->prompt);
        return OK;
    }
    int rc = strcmp(q->prompt_file, "-") ? fs_read_all(q->prompt_file, PROMPT_MAX, text, &n, e)
                                         : read_standard_input(text, &n, e);
    if (rc || strlen(*text) == n) return rc;
    const struct magic *m = magic_of(*text, n);
    return err_set(e, ERR_REQUEST, "%s: %s%s; a text was wanted", q->prompt_file, m ? "is " : "holds NUL bytes",
                   m ? m->name : "");
}

static void print_json(const struct request *q, const char *prompt, const struct str *text,
                       const struct generate_result *r)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    json_begin_document(&o, "generate", 1);
    json_put_string(&o, "checkpoint", q->checkpoint);
    json_put_string(&o, "prompt", prompt);
    json_put_string(&o, "text", str_text(text));
    json_put_string(&o, "stopped", r->stopped);
    json_put_int(&o, "prompt_tokens", r->prompt_tokens);
    json_put_int(&o, "new_tokens", r->tokens);
    json_put_real(&o, "prompt_s", r->prompt_s);
    json_put_real(&o, "new_tokens_s", r->tokens_s);
    json_end_object(&o);
    printf("%s\n", str_text(&s));
    str_free(&s);
}

int cmd_generate(int argc, char **argv)
{
    struct request q;
    struct cli_ignore ignore;
    int rc;
    if (!parse(argc, argv, &q, &rc)) return rc;
    cli_ignore_init(&ignore, q.ignore);
    struct err e = {0};
    struct weights *w = NULL;
    struct tokenizer *t = NULL;
    struct device *d = NULL;
    struct generator *g = NULL;
    struct generate_result r;
    struct str text = {0};
    char *prompt = NULL;
    if (q.threads > thread_n_cores())
        log_warn("--threads: %lld threads on the %d cores that this process may use take turns, which is slower than "
                 "fewer",
                 (long long)q.threads, thread_n_cores());
    int threads = q.threads ? (int)q.threads : thread_n_cores();
    rc = weights_open_ignoring(&w, q.checkpoint, &ignore.list, &e);
    if (!rc && q.ema) rc = weights_average(w, &e);
    if (!rc) rc = q.tokenizer ? tokenizer_open(&t, q.tokenizer, &e) : source_tokenizer(w, &t, &e);
    if (!rc) rc = read_prompt(&q, &prompt, &e);
    if (!rc) rc = device_cpu_new(&d, threads, &e);
    if (!rc) rc = generator_new(&g, w, d, threads, (int64_t)strlen(prompt) + q.max_tokens + 1, cli_dtype(q.dtype), &e);
    if (!rc) {
        if (!q.json) fputs(prompt, stdout);
        rc = generate(g, t, prompt, q.max_tokens, &q.spec, emit, q.json ? &text : NULL, &r, &e);
        if (!q.json) fputc('\n', stdout);
        else if (!rc) print_json(&q, prompt, &text, &r);
    }
    if (!rc && log_is_terminal())
        log_info("%lld prompt tokens in %.2f s, %lld new ones at %.1f tokens/s (%s)", (long long)r.prompt_tokens,
                 r.prompt_s, (long long)r.tokens, r.tokens_s > 0 ? (double)r.tokens / r.tokens_s : 0, r.stopped);
    if (!rc && !strcmp(r.stopped, "cache full"))
        log_warn("stopped after %lld of %lld new tokens: with the prompt these are the %lld positions that the model "
                 "has",
                 (long long)r.tokens, (long long)q.max_tokens, (long long)generator_room(g));
    generator_free(g);
    if (d) device_free(d);
    tokenizer_free(t);
    weights_close(w);
    cli_ignore_fini(&ignore);
    str_free(&text);
    xfree(prompt);
    return rc ? cli_fail(&e) : 0;
}
