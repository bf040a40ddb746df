/* SPDX-License-Identifier: Apache-2.0 */
/* tutti generate CHECKPOINT --prompt TEXT [...] */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/magic.h"
#include "base/mem.h"
#include "base/shown.h"
#include "base/str.h"
#include "cli/open_model.h"
#include "cli/screen.h"
#include "media/media.h"
#include "media/view.h"
#include "decode/beam_text.h"
#include "decode/draft.h"
#include "decode/generate.h"
#include "decode/speculative.h"
#include "decode/generate_file.h"

enum { PROMPT_MAX = 1 << 26, IMAGE_MAX = 1 << 28, GUESSES = 3, BEAMS_MOST = 64 };
#define TEMPERATURE 0.8 /* as the help says */

struct request {
    const char *prompt, *prompt_file, *prompts, *template, *stop, *image, *draft;
    int64_t max_tokens, seed, batch, beams, guesses;
    double length_penalty;
    struct sample_spec spec;
    struct sample_before before;
    struct cli_model model;
    bool json, tokens;
    const struct tokenizer *tokenizer; /* of the model, once it is open */
    const struct decoding *decoding;   /* the model */
    char *text;                        /* what is continued; NULL: --prompts */
};
#define AT(field) offsetof(struct request, field)
static const struct cli_option options[] = {
    {"--prompt", "TEXT", CLI_TEXT, AT(prompt), .help = "what to continue"},
    {"--prompt-file", "FILE", CLI_TEXT, AT(prompt_file), .help = "it is in this file (- for standard input)"},
    {"--image", "FILE", CLI_TEXT, AT(image),
     .help = "a picture, where the prompt has <image> (model.family: llava); values as data.image has them by default"},
    {"--prompts", "FILE", CLI_TEXT, AT(prompts),
     .help = "a prompt in each record of a .jsonl file (its member \"prompt\"); one line of JSON for each"},
    {"--template", "T", CLI_TEXT, AT(template), .help = "with --prompts: what is made of a record's members, in Jinja"},
    {"--batch", "N", CLI_INT, AT(batch), .lo = 1, .hi = 1024, .help = "with --prompts: so many at once (default 16)"},
    {"--stop", "TEXT", CLI_TEXT, AT(stop),
     .help = "with --prompts or --beams: a text that ends what is written, and is left out"},
    {"--min-p", "P", CLI_REAL, AT(before.min_p), .most = 1,
     .help = "with --prompts: no token less likely than P times the likeliest"},
    {"--repetition", "R", CLI_REAL, AT(before.repetition), .most = 1e6,
     .help = "with --prompts: what was there is made less likely by this factor of its logit, such as 1.1"},
    {"--presence", "X", CLI_REAL, AT(before.presence), .most = 1e6,
     .help = "with --prompts: taken off the logit of what was written"},
    {"--frequency", "X", CLI_REAL, AT(before.frequency), .most = 1e6, .help = "with --prompts: and as often as it was"},
    {"--max-tokens", "N", CLI_INT, AT(max_tokens), .lo = 1, .hi = 1 << 30, .help = "at most N new tokens"},
    {"--temperature", "T", CLI_REAL, AT(spec.temperature), .most = 1e6,
     .help = "0 takes the likeliest token always (default 0.8)"},
    {"--top-k", "K", CLI_INT, AT(spec.top_k), .hi = INT32_MAX, .help = "only the K likeliest (default 0: all)"},
    {"--top-p", "P", CLI_REAL, AT(spec.top_p), .least = 1e-9, .most = 1,
     .help = "only the likeliest that together reach P"},
    {"--seed", "S", CLI_INT, AT(seed), .hi = INT64_MAX, .help = "the same seed gives the same text"},
    {"--beams", "K", CLI_INT, AT(beams), .lo = 1, .hi = BEAMS_MOST,
     .help = "nothing is drawn: the likeliest text that is found by keeping K of them side by side"},
    {"--length-penalty", "A", CLI_REAL, AT(length_penalty), .least = -100, .most = 100,
     .help = "with --beams: texts are compared by their log-probability over their length to the power A"},
    {"--draft", "MODEL", CLI_TEXT, AT(draft),
     .help = "a smaller model with the same tokenizer guesses, and the model looks at its guesses at once;\n"
             "ngram: they are what followed in the text before. What is written stays the model's"},
    {"--draft-tokens", "K", CLI_INT, AT(guesses), .lo = 1, .hi = SPECULATIVE_MOST,
     .help = "with --draft: guesses of a step (default 3)"},
    CLI_MODEL(struct request, model),
    CLI_ADAPTER(struct request, model.adapter),
    CLI_IGNORE(struct request, model.ignore),
    {"--tokens", NULL, CLI_FLAG, AT(tokens),
     .help = "shows the tokens that the prompt is, with what the tokenizer itself puts before a text, on stderr;\n"
             "with --json or --prompts: as prompt_ids"},
    {"--json", NULL, CLI_FLAG, AT(json),
     .help = "one JSON object at the end: the text, why it stopped, tokens, seconds (docs/json.md)"},
};
static const struct cli_word words[] = {{.name = "CHECKPOINT", .at = AT(model.path)}};
static const struct cli_table table = {
    .command = "generate",
    .usage = "CHECKPOINT --prompt TEXT [options]",
    .about = "Continues TEXT with the model of CHECKPOINT: a tutti checkpoint, a run directory, or a Hugging Face "
             "directory.\n"
             "The text goes to stdout as it comes. An encoder (t5) reads TEXT, and what its decoder writes goes to "
             "stdout.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

/* Beams draw nothing, and drafts guess for one text. 0, or 2 after saying what does not go with what. */
static int check_ways(const struct request *q)
{
    bool draws = q->spec.temperature > 0 || q->spec.top_k || q->spec.top_p < 1;
    if (q->beams && (draws || sample_before_changes(&q->before)))
        return cli_usage("generate", "--beams takes the likeliest text and draws nothing: leave out --temperature, "
                                     "--top-k, --top-p, --min-p, --repetition, --presence and --frequency");
    if (q->beams && (q->image || q->draft || q->batch))
        return cli_usage("generate", "--beams does not go with --image, --draft or --batch");
    if (!q->beams && q->length_penalty != 1) return cli_usage("generate", "--length-penalty goes with --beams K");
    if (!q->draft && q->guesses) return cli_usage("generate", "--draft-tokens goes with --draft MODEL");
    if (q->draft && (q->prompts || q->image))
        return cli_usage("generate", "--draft goes with one text: --prompt or --prompt-file, and no --image");
    return 0;
}

/* As cli_read. */
static bool parse(int argc, char **argv, struct request *q, int *status)
{
    *q = (struct request){.max_tokens = 128,
                          .spec = {.temperature = -1 /* not said */, .top_p = 1},
                          .seed = 1,
                          .length_penalty = 1,
                          .model.dtype = "bf16"};
    if (!cli_read(&table, argc, argv, q, status)) return false;
    if (q->prompt && q->prompt_file)
        *status = cli_usage("generate", "--prompt and --prompt-file are both given; which one?");
    if (!q->prompt && !q->prompt_file && !q->prompts) *status = cli_usage("generate", "--prompt TEXT is needed");
    if (q->prompts && (q->prompt || q->prompt_file))
        *status = cli_usage("generate", "--prompts and --prompt are both given; which one?");
    if (q->prompts && q->json) *status = cli_usage("generate", "--prompts prints JSON anyway; leave --json out");
    if (q->prompts && q->image) *status = cli_usage("generate", "--image goes with --prompt TEXT");
    bool for_many = q->template || (q->stop && !q->beams) || q->batch || sample_before_changes(&q->before);
    if (!q->prompts && for_many)
        *status =
            cli_usage("generate", "--template, --batch, --stop, --min-p, --repetition, --presence and --frequency "
                                  "go with --prompts FILE (--stop with --beams, too)");
    if (!*status) *status = check_ways(q);
    if (q->spec.temperature < 0) q->spec.temperature = TEMPERATURE;
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
    return screen_put_data(text, n);
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

/* -- the tokens of a prompt ------------------------------------------------------------------------------------ */

static void put_ids(struct json_out *o, const struct tokens *ids)
{
    json_begin_array(o, "prompt_ids");
    for (int64_t i = 0; i < ids->n; i++) json_put_int(o, NULL, ids->ids[i]);
    json_end_array(o);
}

static void show_ids(const struct tokenizer *t, const struct tokens *ids)
{
    struct str s = {0};
    for (int64_t i = 0; i < ids->n; i++) {
        size_t n;
        const char *piece = tokenizer_piece(t, ids->ids[i], &n);
        str_printf(&s, "%8d  ", ids->ids[i]);
        shown_put(&s, piece, n, false);
        str_putc(&s, '\n');
    }
    fprintf(stderr, "the prompt is %lld tokens:\n%s", (long long)ids->n, str_text(&s));
    str_free(&s);
}

/* As it is asked with; o: NULL, or where they are put. */
static int tell_tokens(const struct request *q, const char *prompt, struct json_out *o, struct err *e)
{
    struct tokens ids = {0};
    if (!q->tokens) return OK;
    int rc = generate_ids(q->decoding, q->tokenizer, prompt, &ids, e);
    if (!rc && o) put_ids(o, &ids);
    if (!rc && !o) show_ids(q->tokenizer, &ids);
    tokens_free(&ids);
    return rc;
}

/* beam: NULL, or what was found. */
static void print_json(const struct request *q, const char *prompt, const struct str *text,
                       const struct generate_result *r, const struct beam_text *beam)
{
    struct str s = {0};
    struct json_out o = {.s = &s};
    struct err e = {0};
    json_begin_document(&o, "generate", 1);
    json_put_string(&o, "checkpoint", q->model.path);
    json_put_string(&o, "prompt", prompt);
    (void)tell_tokens(q, prompt, &o, &e); /* it was encoded before */
    json_put_string(&o, "text", str_text(text));
    json_put_string(&o, "stopped", r->stopped);
    json_put_int(&o, "prompt_tokens", r->prompt_tokens);
    json_put_int(&o, "new_tokens", r->tokens);
    json_put_real(&o, "prompt_s", r->prompt_s);
    json_put_real(&o, "new_tokens_s", r->tokens_s);
    if (q->draft) json_put_int(&o, "guessed_tokens", r->guessed);
    if (q->draft) json_put_int(&o, "taken_tokens", r->taken);
    if (beam) json_put_real(&o, "logprob", beam->logprob);
    if (beam) json_put_real(&o, "score", beam->score);
    json_end_object(&o);
    printf("%s\n", str_text(&s));
    str_free(&s);
}

static int print_one(void *ctx, const struct many_text *t, struct err *e)
{
    struct str s = {0}, text = {0};
    struct json_out o = {.s = &s};
    const struct request *q = ctx;
    for (size_t i = 0; i < t->n; i++) /* our JSON holds no NUL */
        if (t->text[i]) str_putc(&text, t->text[i]);
        else str_puts(&text, "\xEF\xBF\xBD");
    json_begin_object(&o, NULL);
    json_put_int(&o, "index", t->index);
    json_put_string(&o, "prompt", t->prompt);
    int told = tell_tokens(q, t->prompt, &o, e);
    json_put_string(&o, "text", str_text(&text));
    json_put_string(&o, "stopped", t->stopped);
    json_put_int(&o, "prompt_tokens", t->counts.prompt);
    json_put_int(&o, "new_tokens", t->counts.written);
    json_end_object(&o);
    int rc = told ? told : puts(str_text(&s)) < 0 ? err_set(e, ERR_IO, "standard output cannot be written") : OK;
    str_free(&s);
    str_free(&text);
    return rc;
}

static struct beam_options beam_options_of(const struct request *q)
{
    return (struct beam_options){.beams = (int)q->beams,
                                 .length_penalty = q->length_penalty,
                                 .max_tokens = q->max_tokens,
                                 .stop = (const char *const *)&q->stop,
                                 .n_stop = q->stop != NULL};
}

/* A line of JSON for each prompt of a file. */
static int generate_many(const struct request *q, struct model_at_work *m, struct err *e)
{
    if (q->beams) {
        struct beam_options o = beam_options_of(q);
        return beam_many(m->decoding, m->tokenizer, q->prompts, q->template, &o, print_one, (void *)(uintptr_t)q, e);
    }
    struct generate_file_options many = {.path = q->prompts,
                                         .template = q->template,
                                         .max_tokens = q->max_tokens,
                                         .sample = q->spec,
                                         .before = q->before,
                                         .stop = (const char *const *)&q->stop,
                                         .n_stop = q->stop != NULL};
    return generate_file(m->decoding, m->tokenizer, &many, print_one, (void *)(uintptr_t)q, e);
}

static void say_end(const struct request *q, int64_t room, const struct generate_result *r)
{
    if (log_is_terminal())
        log_info("%lld prompt tokens in %.2f s, %lld new ones at %.1f tokens/s (%s)", (long long)r->prompt_tokens,
                 r->prompt_s, (long long)r->tokens, r->tokens_s > 0 ? (double)r->tokens / r->tokens_s : 0, r->stopped);
    if (log_is_terminal() && q->draft)
        log_info("%lld of %lld guesses were taken", (long long)r->taken, (long long)r->guessed);
    if (!strcmp(r->stopped, "cache full"))
        log_warn("stopped after %lld of %lld new tokens: with the prompt these are the %lld positions that the model "
                 "has",
                 (long long)r->tokens, (long long)q->max_tokens, (long long)room);
}

/* The likeliest text after the prompt. */
static int generate_beams(const struct request *q, struct model_at_work *m, struct err *e)
{
    struct tokens ids = {0};
    struct beam_text x = {0};
    struct beam_options o = beam_options_of(q);
    int rc = generate_ids(m->decoding, m->tokenizer, q->text, &ids, e);
    if (!rc) rc = beam_text(m->decoding, m->tokenizer, ids.ids, ids.n, &o, &x, e);
    struct generate_result r = {.prompt_tokens = ids.n,
                                .tokens = x.tokens,
                                .prompt_s = x.prompt_s,
                                .tokens_s = x.tokens_s,
                                .stopped = x.stopped};
    if (!rc && q->json) print_json(q, q->text, &x.text, &r, &x);
    if (!rc && !q->json) {
        if (!decoding_reads(m->decoding)) screen_put_data(q->text, strlen(q->text));
        (void)emit(NULL, str_text(&x.text), x.text.n);
        fputc('\n', stdout);
    }
    if (!rc) say_end(q, decoding_room(m->decoding), &r);
    tokens_free(&ids);
    beam_text_free(&x);
    return rc;
}

/* As training sees it with data.image as it is by default. */
static int see_picture(const struct request *q, struct generator *g, const struct model_config *m, struct err *e)
{
    const struct vision_config *v = &m->vision;
    struct media_limits limits = media_limits_usual();
    struct view_rule rule = {.size = v->image_size,
                             .channels = (int)v->channels,
                             .crop = CROP_CENTER,
                             .filter = RESIZE_BICUBIC,
                             .resize = v->image_size};
    struct image image;
    char *bytes;
    size_t n;
    for (int i = 0; i < VIEW_CHANNELS; i++) rule.mean[i] = rule.std[i] = 0.5;
    if (!model_looks(m))
        return err_set(e, ERR_REQUEST, "--image: this model sees no pictures (model.family: llava does)");
    if (v->channels != 1 && v->channels != VIEW_CHANNELS)
        return err_set(e, ERR_REQUEST, "--image: the model wants %lld values of a pixel; files have 1 or 3",
                       (long long)v->channels);
    int rc = fs_read_all(q->image, IMAGE_MAX, &bytes, &n, e);
    if (rc) return rc;
    rc = media_image(&image, bytes, n, 0, &limits, e);
    if (rc) err_prefix(e, "%s", q->image);
    xfree(bytes);
    if (rc) return rc;
    float *pixels = xmalloc(to_size(v->channels * v->image_size * v->image_size) * sizeof *pixels);
    view_values(&rule, &image, 0, 0, pixels);
    image_free(&image);
    rc = generator_see(g, pixels, 1, e);
    xfree(pixels);
    return rc;
}

/* The draft is this rank's alone. */
static int speculate(const struct request *q, struct model_at_work *m, struct generator *g, struct draft *draft,
                     struct err *e)
{
    struct cli_ignore ignore;
    struct decoding_options o = {.threads = m->threads,
                                 .dtype = cli_dtype(q->model.dtype),
                                 .positions = decoding_room(m->decoding),
                                 .reuse_not = "one text"};
    int rc = OK;
    cli_ignore_init(&ignore, q->model.ignore);
    if (strcmp(q->draft, "ngram")) rc = draft_open(draft, q->draft, &ignore.list, m, &o, e);
    if (!rc) rc = generator_speculate(g, draft->decoding, q->guesses ? q->guesses : GUESSES, e);
    cli_ignore_fini(&ignore);
    return rc;
}

static int generate_one(const struct request *q, struct model_at_work *m, struct err *e)
{
    struct generator *g;
    struct generate_result r;
    struct draft draft = {0};
    struct str text = {0};
    int rc = generator_on(&g, m->decoding, e);
    if (rc) return rc;
    if (q->image) rc = see_picture(q, g, decoding_model(m->decoding), e);
    if (!rc && q->draft) rc = speculate(q, m, g, &draft, e);
    if (!rc && !q->json && !decoding_reads(m->decoding)) screen_put_data(q->text, strlen(q->text));
    if (!rc) {
        rc = generate(g, m->tokenizer, q->text, q->max_tokens, &q->spec, emit, q->json ? &text : NULL, &r, e);
        if (!q->json) fputc('\n', stdout);
        else if (!rc) print_json(q, q->text, &text, &r, NULL);
    }
    if (!rc) say_end(q, generator_room(g), &r);
    generator_free(g);
    draft_close(&draft);
    str_free(&text);
    return rc;
}

static int write_text(void *ctx, struct model_at_work *m, struct err *e)
{
    struct request *q = ctx;
    model_job_say_wishes(m);
    q->tokenizer = m->tokenizer;
    q->decoding = m->decoding;
    if (q->tokens && q->image) return err_set(e, ERR_REQUEST, "--tokens: the tokens of a picture have no text");
    int rc = q->json || q->prompts ? OK : tell_tokens(q, q->text, NULL, e);
    if (rc) return rc;
    return q->prompts ? generate_many(q, m, e) : q->beams ? generate_beams(q, m, e) : generate_one(q, m, e);
}

/* How many texts, and how long they may come to be. */
static int size(struct request *q, struct decoding_options *o, struct err *e)
{
    if (q->beams) o->sequences = q->beams;
    if (q->prompts && !q->beams) {
        o->sequences = q->batch ? q->batch : 16;
        o->rows = o->sequences > 256 ? o->sequences : 256;
    }
    if (q->prompts) return OK;
    int rc = read_prompt(q, &q->text, e);
    o->reuse_not = "one text";
    if (!rc && !q->image) o->positions = (int64_t)strlen(q->text) + q->max_tokens + 1;
    return rc;
}

int cmd_generate(int argc, char **argv)
{
    struct request q;
    struct err e = {0};
    int rc;
    if (!parse(argc, argv, &q, &rc)) return rc;
    if ((rc = cli_model_check("generate", &q.model, false))) return rc;
    if (q.model.threads > thread_n_cores())
        log_warn("--threads: %lld threads on the %d cores that this process may use take turns, which is slower than "
                 "fewer",
                 (long long)q.model.threads, thread_n_cores());
    struct model_job j = {.lead = write_text, .ctx = &q};
    rc = size(&q, &j.options, &e) ? cli_fail(&e) : cli_model_run(&q.model, &j);
    xfree(q.text);
    return rc;
}
