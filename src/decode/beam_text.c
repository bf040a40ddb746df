/* SPDX-License-Identifier: Apache-2.0 */
/* The prompt in pieces through one sequence, then a step of all hypotheses at a time, one row each. Cost of a step: the
 * weights once, and a page's copy for each hypothesis that shares its parent with another one; with stop strings also
 * the decoding of prompt and text of each candidate, since what a token looks like may hang on those before it. */
#include "decode/beam_text.h"

#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "decode/beam.h"
#include "decode/prompts.h"

struct search {
    struct decoding *d;
    const struct tokenizer *t;
    const struct beam_options *o;
    const int32_t *prompt;
    int64_t n;
    struct beams *beams;
    int sequence[BEAM_MOST], n_sequences; /* of each hypothesis that goes on */
    double prompt_s, tokens_s;
};

/* What the tokens look like behind the prompt; rest: with the bytes of a character that is not whole. */
static void text_of(const struct search *s, const int32_t *ids, int64_t n, bool rest, struct str *out)
{
    struct decoder dec = {.t = s->t};
    struct str nobody = {0};
    if (!decoding_reads(s->d)) decoder_pass(&dec, s->prompt, s->n);
    for (int64_t i = 0; i < n; i++) decoder_push(&dec, ids[i], out);
    decoder_end(&dec, rest ? out : &nobody);
    str_free(&nobody);
}

/* Where the first stop string begins; the text's length where there is none. */
static size_t stops_at(const struct search *s, const struct str *text)
{
    size_t at = text->n;
    for (int i = 0; i < s->o->n_stop; i++) {
        size_t n = strlen(s->o->stop[i]);
        const char *hit = text->n ? memmem(text->p, text->n, s->o->stop[i], n) : NULL;
        if (hit && (size_t)(hit - text->p) < at) at = (size_t)(hit - text->p);
    }
    return at;
}

static enum beam_end end_of(void *ctx, const int32_t *ids, int64_t n)
{
    const struct search *s = ctx;
    if (decoding_is_end(s->d, s->t, ids[n - 1])) return BEAM_END_OF_TEXT;
    if (!s->o->n_stop) return BEAM_GOES_ON;
    struct str text = {0};
    text_of(s, ids, n, false, &text);
    bool stops = stops_at(s, &text) < text.n;
    str_free(&text);
    return stops ? BEAM_STOP : BEAM_GOES_ON;
}

/* ---- sequences ---- */

static void close_all(struct search *s)
{
    for (int i = 0; i < s->n_sequences; i++)
        if (s->sequence[i] >= 0) decoding_close(s->d, s->sequence[i]);
    s->n_sequences = 0;
}

/* After a step: who is nobody's parent goes first, so that there are never more sequences than hypotheses; the first
 * child of a parent has its sequence, the others forks of it. */
static int inherit(struct search *s, struct err *e)
{
    int live = beams_live(s->beams), next[BEAM_MOST], heir[BEAM_MOST];
    for (int p = 0; p < s->n_sequences; p++) heir[p] = -1;
    for (int i = live - 1; i >= 0; i--) heir[beams_parent(s->beams, i)] = i;
    for (int p = 0; p < s->n_sequences; p++)
        if (heir[p] < 0) {
            decoding_close(s->d, s->sequence[p]);
            s->sequence[p] = -1;
        }
    bool full = false;
    for (int i = 0; i < live; i++) { /* the parents' own are as they were until all forks are made */
        int p = beams_parent(s->beams, i);
        next[i] = heir[p] == i ? s->sequence[p] : full ? -1 : decoding_fork(s->d, s->sequence[p]);
        full = full || next[i] < 0;
    }
    memcpy(s->sequence, next, (size_t)live * sizeof *next);
    s->n_sequences = live;
    return full ? err_set(e, ERR_REQUEST, "no page of the cache is left for %d beams: fewer of them, or shorter texts",
                          s->o->beams)
                : OK;
}

static int feed_prompt(struct search *s, const float **logits, struct err *e)
{
    int64_t most = decoding_rows(s->d), now;
    int rc = OK;
    s->sequence[0] = decoding_open(s->d);
    if (s->sequence[0] < 0) return err_set(e, ERR_REQUEST, "all sequences are in use");
    s->n_sequences = 1;
    if (decoding_reads(s->d)) {
        int32_t start = decoding_start(s->d);
        struct decoding_part first = {s->sequence[0], &start, 1, 1};
        rc = decoding_read(s->d, s->sequence[0], s->t, s->prompt, s->n, e);
        return rc ? rc : decoding_step(s->d, &first, 1, logits, e);
    }
    int64_t fed = decoding_reuse(s->d, s->sequence[0], s->prompt, s->n);
    if (!fed) decoding_prompt(s->d, s->sequence[0], s->n);
    do {
        now = s->n - fed < most ? s->n - fed : most;
        struct decoding_part p = {s->sequence[0], s->prompt + fed, now, 1};
        rc = decoding_step(s->d, &p, 1, logits, e);
        fed += now;
    } while (!rc && fed < s->n);
    return rc;
}

static int feed_tokens(struct search *s, const float **logits, struct err *e)
{
    struct decoding_part part[BEAM_MOST];
    int32_t token[BEAM_MOST];
    for (int i = 0; i < s->n_sequences; i++) {
        token[i] = beams_token(s->beams, i);
        part[i] = (struct decoding_part){s->sequence[i], &token[i], 1, 1};
    }
    return decoding_step(s->d, part, s->n_sequences, logits, e);
}

/* ---- a text ---- */

static int search(struct search *s, struct err *e)
{
    const float *logits;
    double from = clock_now_s();
    int rc = feed_prompt(s, &logits, e);
    s->prompt_s = clock_now_s() - from;
    from = clock_now_s();
    while (!rc) {
        rc = beams_step(s->beams, logits, e);
        if (rc || !beams_live(s->beams)) break;
        rc = inherit(s, e);
        if (!rc) rc = feed_tokens(s, &logits, e);
    }
    s->tokens_s = clock_now_s() - from;
    close_all(s);
    return rc;
}

static void tell_best(const struct search *s, bool short_of_room, struct beam_text *out)
{
    static const char *const why[] = {"", "end of text", "stop string", "length"};
    struct beam_found f = beams_best(s->beams, 0);
    out->ids.n = 0;
    for (int64_t i = 0; i < f.n; i++) tokens_push(&out->ids, f.ids[i]);
    out->tokens = f.n - (f.why == BEAM_END_OF_TEXT);
    out->logprob = f.logprob;
    out->score = f.score;
    out->prompt_s = s->prompt_s;
    out->tokens_s = s->tokens_s;
    out->stopped = f.why == BEAM_LENGTH && short_of_room ? "cache full" : why[f.why];
    text_of(s, f.ids, out->tokens, f.why != BEAM_STOP, &out->text);
    if (f.why == BEAM_STOP) out->text.n = stops_at(s, &out->text);
    if (out->text.p) out->text.p[out->text.n] = 0;
}

static int check(const struct decoding *d, int64_t n, const struct beam_options *o, struct err *e)
{
    int64_t room = decoding_room(d);
    int64_t most = decoding_sequences(d) < decoding_rows(d) ? decoding_sequences(d) : decoding_rows(d);
    if (o->beams < 1 || o->beams > BEAM_MOST || o->beams > most)
        return err_set(e, ERR_REQUEST, "beams: %d, and there is room for 1 to %lld", o->beams,
                       (long long)(most < BEAM_MOST ? most : BEAM_MOST));
    if (n < 1 && !decoding_reads(d)) return err_set(e, ERR_REQUEST, "the prompt is empty: give at least one token");
    if (n > room)
        return err_set(e, ERR_REQUEST,
                       "the prompt is %lld tokens long, and there is room for %lld positions; shorten it", (long long)n,
                       (long long)room);
    if (o->max_tokens < 1)
        return err_set(e, ERR_REQUEST, "max_tokens %lld: choose 1 or more", (long long)o->max_tokens);
    for (int i = 0; i < o->n_stop; i++)
        if (!*o->stop[i]) return err_set(e, ERR_REQUEST, "stop: an empty text would end every text at once");
    return OK;
}

int beam_text(struct decoding *d, const struct tokenizer *t, const int32_t *ids, int64_t n,
              const struct beam_options *o, struct beam_text *out, struct err *e)
{
    int rc = check(d, n, o, e);
    if (rc) return rc;
    struct search s = {.d = d, .t = t, .o = o, .prompt = ids, .n = n};
    int64_t fit = decoding_room(d) - (decoding_reads(d) ? 1 : n) + 1; /* the last token is not fed */
    struct beam_config c = {.width = o->beams,
                            .n_ends = decoding_n_ends(d),
                            .vocab = decoding_model(d)->vocab,
                            .most = o->max_tokens < fit ? o->max_tokens : fit,
                            .length_penalty = o->length_penalty,
                            .end = end_of,
                            .ctx = &s};
    s.beams = beams_new(&c);
    rc = search(&s, e);
    str_clear(&out->text);
    if (!rc) tell_best(&s, fit < o->max_tokens, out);
    beams_free(s.beams);
    return rc;
}

void beam_text_free(struct beam_text *x)
{
    str_free(&x->text);
    tokens_free(&x->ids);
}

/* ---- the prompts of a file ---- */

static int next_text(struct decoding *d, const struct tokenizer *t, const struct beam_options *o, struct prompts *p,
                     const char *prompt, many_text_fn *tell, void *ctx, struct err *e)
{
    struct tokens ids = {0};
    struct beam_text x = {0};
    int rc = tokenizer_encode_text(t, prompt, strlen(prompt), &ids, e);
    if (!rc) rc = beam_text(d, t, ids.ids, ids.n, o, &x, e);
    struct many_text told = {prompts_index(p), prompt,    str_text(&x.text),
                             x.text.n,         x.stopped, {.prompt = ids.n, .written = x.tokens}};
    if (!rc) rc = tell(ctx, &told, e);
    tokens_free(&ids);
    beam_text_free(&x);
    return rc;
}

int beam_many(struct decoding *d, const struct tokenizer *t, const char *path, const char *template,
              const struct beam_options *o, many_text_fn *tell, void *ctx, struct err *e)
{
    struct prompts *prompts;
    struct prompts_options p = {.path = path,
                                .template = template,
                                .name = "--template",
                                .tokenizer = t,
                                .most_tokens = decoding_room(d),
                                .vocab = decoding_model(d)->vocab};
    const char *prompt;
    int got = 1, rc = prompts_open(&prompts, &p, e);
    while (!rc && (got = prompts_next(prompts, &prompt, e)) > 0) rc = next_text(d, t, o, prompts, prompt, tell, ctx, e);
    prompts_close(prompts);
    return rc ? rc : got < 0 ? got : OK;
}
