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

static const char help[] =
    "tutti generate CHECKPOINT --prompt TEXT [options]\n\n"
    "Continues TEXT with the model of CHECKPOINT: a tutti checkpoint, a run directory, or a Hugging Face directory.\n"
    "The text goes to stdout as it comes.\n\n"
    "  --prompt TEXT      what to continue; --prompt-file FILE reads it from a file (- for standard input)\n"
    "  --max-tokens N     at most N new tokens (default 128)\n"
    "  --temperature T    0 takes the likeliest token always (default 0.8)\n"
    "  --top-k K          only the K likeliest (default 0: all)\n"
    "  --top-p P          only the likeliest that together reach P (default 1)\n"
    "  --seed S           the same seed gives the same text (default 1)\n"
    "  --dtype D          bf16 or f32 (default bf16)\n"
    "  --threads N        default: all cores\n"
    "  --tokenizer FILE   default: the checkpoint's own\n"
    "  --ignore KEY,KEY   keys of a Hugging Face config.json that tutti does not know and that do not matter\n"
    "  --json             one JSON object at the end: the text, why it stopped, tokens, seconds (docs/json.md)\n";

enum { PROMPT_MAX = 1 << 26 };

struct request {
    const char *checkpoint, *prompt, *prompt_file, *tokenizer;
    int64_t max_tokens, threads;
    struct sample_spec spec;
    enum dtype dtype;
};

static int parse(int argc, char **argv, struct request *q)
{
    *q = (struct request){.max_tokens = 128, .spec = {.temperature = 0.8, .top_p = 1, .seed = 1}, .dtype = DT_BF16};
    static const char *const names[] = {"--prompt", "--prompt-file", "--max-tokens", "--temperature", "--top-k",
                                        "--top-p",  "--seed",        "--dtype",      "--threads",     "--tokenizer"};
    int64_t seed = 1;
    for (int i = 1; i < argc; i++) {
        const char *v = NULL;
        int which = -1;
        for (int k = 0; k < 10 && which < 0; k++) {
            int got = cli_option("generate", argc, argv, &i, names[k], &v);
            if (got < 0) return 2;
            if (got) which = k;
        }
        int bad = 0;
        switch (which) {
        case 0: q->prompt = v; break;
        case 1: q->prompt_file = v; break;
        case 2: bad = cli_int("generate", names[2], v, 1, 1 << 30, &q->max_tokens); break;
        case 3: bad = cli_real("generate", names[3], v, 0, 1e6, &q->spec.temperature); break;
        case 4: bad = cli_int("generate", names[4], v, 0, INT32_MAX, &q->spec.top_k); break;
        case 5: bad = cli_real("generate", names[5], v, 1e-9, 1, &q->spec.top_p); break;
        case 6: bad = cli_int("generate", names[6], v, 0, INT64_MAX, &seed); break;
        case 7:
            if (strcmp(v, "bf16") && strcmp(v, "f32")) return cli_usage("generate", "--dtype: bf16 or f32, not %s", v);
            q->dtype = strcmp(v, "f32") ? DT_BF16 : DT_F32;
            break;
        case 8: bad = cli_int("generate", names[8], v, 1, 4096, &q->threads); break;
        case 9: q->tokenizer = v; break;
        default:
            if (argv[i][0] == '-') return cli_usage("generate", "there is no option %s", argv[i]);
            if (q->checkpoint)
                return cli_usage("generate", "one CHECKPOINT, not two: %s and %s", q->checkpoint, argv[i]);
            q->checkpoint = argv[i];
        }
        if (bad) return 2;
    }
    q->spec.seed = (uint64_t)seed;
    if (!q->checkpoint) return cli_usage("generate", "which CHECKPOINT?");
    if (q->prompt && q->prompt_file)
        return cli_usage("generate", "--prompt and --prompt-file are both given; which one?");
    if (!q->prompt && !q->prompt_file) return cli_usage("generate", "--prompt TEXT is needed");
    return 0;
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
    if (cli_wants_help(argc, argv)) {
        fputs(help, stdout);
        return 0;
    }
    struct request q;
    struct cli_ignore ignore;
    bool json = cli_take_flag(&argc, argv, "--json");
    int rc = cli_take_ignore("generate", &argc, argv, &ignore);
    if (!rc) rc = parse(argc, argv, &q);
    if (rc) {
        cli_ignore_fini(&ignore);
        return rc;
    }
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
    if (!rc) rc = q.tokenizer ? tokenizer_open(&t, q.tokenizer, &e) : source_tokenizer(w, &t, &e);
    if (!rc) rc = read_prompt(&q, &prompt, &e);
    if (!rc) rc = device_cpu_new(&d, threads, &e);
    if (!rc) rc = generator_new(&g, w, d, threads, (int64_t)strlen(prompt) + q.max_tokens + 1, q.dtype, &e);
    if (!rc) {
        if (!json) fputs(prompt, stdout);
        rc = generate(g, t, prompt, q.max_tokens, &q.spec, emit, json ? &text : NULL, &r, &e);
        if (!json) fputc('\n', stdout);
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
