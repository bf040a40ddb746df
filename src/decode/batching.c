/* SPDX-License-Identifier: Apache-2.0 */
/* A list of answers in the order in which they came; the first ones have sequences. Per step: begin who fits, lay out
 * rows, feed, choose a token for each that has logits. */
#include "decode/batching.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

struct answer {
    int64_t id, n_ids, n_prompt, told; /* tokens: all, given, of the prompt told already */
    int32_t *ids;
    int32_t *read; /* of encoder and decoder: the prompt, and ids begins with the decoder's first token */
    int64_t n_read;
    struct answer_spec s;
    char *stop[ANSWER_STOPS];
    size_t stop_n[ANSWER_STOPS];
    int32_t *stop_id;
    struct answer_bias *bias;
    int sequence; /* -1: waits */
    int64_t reused;
    bool prompt_fed, gone;
    struct decoder decoder;
    struct str held; /* text that may begin a stop string */
    struct answer *next;
};

struct batching {
    struct decoding *d;
    const struct tokenizer *t;
    struct sampler *sampler;
    struct answer *first, **last;
    struct decoding_part *part;
    struct answer **of_part;
    float *logits_V; /* changed by what a spec says */
    int32_t *end;    /* tokens that end a text, [n_ends] */
    int n_ends;
    int64_t ids, writing, waiting;
};

const char *answer_end_name(enum answer_end why)
{
    static const char *const name[ANSWER_N] = {"stop string", "end of text", "length", "cache full", "failed"};
    return name[why];
}

struct batching *batching_new(struct decoding *d, const struct tokenizer *t)
{
    struct batching *a = xcalloc(1, sizeof *a);
    size_t n = to_size(decoding_sequences(d));
    a->d = d;
    a->t = t;
    a->sampler = sampler_new(decoding_model(d)->vocab);
    a->last = &a->first;
    a->part = xcalloc(n, sizeof *a->part);
    a->of_part = xcalloc(n, sizeof(struct answer *));
    a->logits_V = xcalloc(to_size(decoding_model(d)->vocab), sizeof *a->logits_V);
    a->end = xcalloc(to_size(decoding_n_ends(d)), sizeof *a->end);
    for (int64_t id = 0; id < decoding_model(d)->vocab; id++)
        if (decoding_is_end(d, t, id)) a->end[a->n_ends++] = (int32_t)id;
    return a;
}

static void answer_free(struct batching *a, struct answer *x)
{
    struct str rest = {0};
    if (x->sequence >= 0) {
        decoding_close(a->d, x->sequence);
        a->writing--;
    } else {
        a->waiting--;
    }
    decoder_end(&x->decoder, &rest);
    str_free(&rest);
    str_free(&x->held);
    for (int i = 0; i < x->s.n_stop; i++) xfree(x->stop[i]);
    xfree(x->stop_id);
    xfree(x->bias);
    xfree(x->ids);
    xfree(x->read);
    xfree(x);
}

void batching_free(struct batching *a)
{
    if (!a) return;
    for (struct answer *x = a->first, *next; x; x = next) {
        next = x->next;
        answer_free(a, x);
    }
    sampler_free(a->sampler);
    xfree(a->part);
    xfree(a->of_part);
    xfree(a->logits_V);
    xfree(a->end);
    xfree(a);
}

int64_t batching_writing(const struct batching *a) { return a->writing; }
int64_t batching_waiting(const struct batching *a) { return a->waiting; }

/* Those of stop_id and bias. */
static int check_tokens(const struct answer_spec *s, int64_t vocab, struct err *e)
{
    if (s->min_tokens < 0 || s->min_tokens > s->max_tokens)
        return err_set(e, ERR_REQUEST, "min_tokens %lld: wanted 0 to max_tokens, %lld", (long long)s->min_tokens,
                       (long long)s->max_tokens);
    if (s->n_stop_ids > ANSWER_STOP_IDS || s->n_bias > ANSWER_BIASES)
        return err_set(e, ERR_REQUEST, "%d tokens that end an answer, %d with a bias: at most %d and %d", s->n_stop_ids,
                       s->n_bias, ANSWER_STOP_IDS, ANSWER_BIASES);
    for (int i = 0; i < s->n_stop_ids; i++)
        if (s->stop_id[i] < 0 || s->stop_id[i] >= vocab)
            return err_set(e, ERR_REQUEST, "stop_token_ids: token %d is not below the model's vocabulary of %lld",
                           s->stop_id[i], (long long)vocab);
    for (int i = 0; i < s->n_bias; i++)
        if (s->bias[i].id < 0 || s->bias[i].id >= vocab || !isfinite(s->bias[i].by))
            return err_set(e, ERR_REQUEST,
                           "logit_bias: token %d by %g: wanted one below the model's vocabulary of %lld and a number",
                           s->bias[i].id, (double)s->bias[i].by, (long long)vocab);
    return OK;
}

/* The prompt's log-probabilities alone are asked for: nothing follows its last token, which is not fed. */
static bool only_scores(const struct answer_spec *s)
{
    return s->tell_prompt && s->top >= 0 && s->max_tokens == 0 && s->n > 1;
}

static int check(const struct batching *a, const struct answer_spec *s, struct err *e)
{
    int64_t vocab = decoding_model(a->d)->vocab, room = decoding_room(a->d);
    bool reads = decoding_reads(a->d); /* the text's end behind it, too */
    int rc = sample_check(&s->sample, e);
    if (!rc) rc = sample_before_check(&s->before, e);
    if (rc) return rc;
    if (s->n < 1) return err_set(e, ERR_REQUEST, "the prompt is empty: give at least one token");
    if (s->n > room - reads + only_scores(s))
        return err_set(e, ERR_REQUEST,
                       "the prompt is %lld tokens long, and there is room for %lld positions; shorten it",
                       (long long)s->n, (long long)(room - reads));
    if (reads && s->tell_prompt)
        return err_set(e, ERR_REQUEST,
                       "log-probabilities of a prompt, or the prompt itself: an encoder reads it (t5), and only what "
                       "it is answered with is told");
    if (model_prefixes(decoding_model(a->d)) && s->n > decoding_rows(a->d))
        return err_set(e, ERR_REQUEST,
                       "the prompt is %lld tokens long and sees itself in both directions (model.attn.prefix), so it "
                       "is fed at once; a step has room for %lld",
                       (long long)s->n, (long long)decoding_rows(a->d));
    if (model_prefixes(decoding_model(a->d)) && s->tell_prompt && s->top >= 0 && s->max_tokens > 0)
        return err_set(e, ERR_REQUEST,
                       "a prompt that sees itself in both directions (model.attn.prefix) does not predict its own "
                       "tokens; ask for its log-probabilities without an answer, or for an answer alone");
    if (s->tell_from < 0 || s->tell_from >= s->n)
        return err_set(e, ERR_REQUEST, "the prompt has %lld tokens, and they are told from %lld on", (long long)s->n,
                       (long long)s->tell_from);
    if (s->max_tokens < 0)
        return err_set(e, ERR_REQUEST, "max_tokens %lld: choose 0 or more", (long long)s->max_tokens);
    if (s->top > ANSWER_TOP)
        return err_set(e, ERR_REQUEST, "logprobs %d: at most %d likeliest tokens are told", s->top, ANSWER_TOP);
    if (s->n_stop > ANSWER_STOPS)
        return err_set(e, ERR_REQUEST, "stop: %d texts, at most %d are looked for", s->n_stop, ANSWER_STOPS);
    for (int i = 0; i < s->n_stop; i++)
        if (!*s->stop[i]) return err_set(e, ERR_REQUEST, "stop: an empty text would end every answer at once");
    for (int64_t i = 0; i < s->n; i++)
        if (s->ids[i] < 0 || s->ids[i] >= vocab)
            return err_set(e, ERR_REQUEST, "token %d is not below the model's vocabulary of %lld: another tokenizer?",
                           s->ids[i], (long long)vocab);
    return check_tokens(s, vocab, e);
}

/* The prompt is what the encoder reads; what is fed, and not told, is what every decoder begins with. */
static void read_instead(struct answer *x)
{
    x->n_read = x->s.n;
    x->read = xmalloc(to_size(x->n_read) * sizeof *x->read);
    memcpy(x->read, x->s.ids, to_size(x->n_read) * sizeof *x->read);
    x->n_ids = x->n_prompt = x->told = 1;
}

int batching_add(struct batching *a, const struct answer_spec *s, int64_t *id, struct err *e)
{
    *id = 0;
    int rc = check(a, s, e);
    if (rc) return rc;
    struct answer *x = xcalloc(1, sizeof *x);
    *x = (struct answer){.id = ++a->ids, .n_ids = s->n, .n_prompt = s->n, .s = *s, .sequence = -1};
    if (decoding_reads(a->d)) read_instead(x);
    int64_t most = decoding_room(a->d) - x->n_ids, more = s->max_tokens < most ? s->max_tokens : most;
    x->ids = xcalloc(to_size(x->n_ids + more + 1), sizeof *x->ids);
    if (x->read) x->ids[0] = decoding_start(a->d);
    else memcpy(x->ids, s->ids, to_size(s->n) * sizeof *x->ids);
    for (int i = 0; i < s->n_stop; i++) {
        x->stop[i] = xstrdup(s->stop[i]);
        x->stop_n[i] = strlen(s->stop[i]);
    }
    x->stop_id = xcalloc(to_size(s->n_stop_ids) + 1, sizeof *x->stop_id);
    x->bias = xcalloc(to_size(s->n_bias) + 1, sizeof *x->bias);
    if (s->n_stop_ids) memcpy(x->stop_id, s->stop_id, to_size(s->n_stop_ids) * sizeof *x->stop_id);
    if (s->n_bias) memcpy(x->bias, s->bias, to_size(s->n_bias) * sizeof *x->bias);
    x->decoder = (struct decoder){.t = a->t};
    *a->last = x;
    a->last = &x->next;
    a->waiting++;
    *id = x->id;
    return OK;
}

static struct answer *answer_of(const struct batching *a, int64_t id)
{
    struct answer *x = a->first;
    while (x && x->id != id) x = x->next;
    return x;
}

/* Off the list at the end of the step, or now. */
static void sweep(struct batching *a)
{
    for (struct answer **at = &a->first; *at;) {
        struct answer *x = *at;
        if (!x->gone) {
            at = &x->next;
            continue;
        }
        *at = x->next;
        answer_free(a, x);
    }
    a->last = &a->first;
    while (*a->last) a->last = &(*a->last)->next;
}

void batching_cancel(struct batching *a, int64_t id)
{
    struct answer *x = answer_of(a, id);
    if (!x) return;
    x->gone = true;
    sweep(a);
}

/* ---- what it says ---- */

static int64_t written(const struct answer *x) { return x->n_ids - x->n_prompt; }

static void finish(struct batching *a, struct answer *x, enum answer_end why, const struct err *e)
{
    struct answer_counts c = {x->read ? x->n_read : x->n_prompt, x->reused, x->n_ids - x->n_prompt};
    struct str rest = {0};
    (void)a;
    if (why != ANSWER_STOP) str_add(&rest, str_text(&x->held), x->held.n);
    if (why != ANSWER_STOP) decoder_end(&x->decoder, &rest);
    x->gone = true;
    x->s.end(x->s.ctx, why, str_text(&rest), rest.n, &c, e);
    str_free(&rest);
}

/* How much of the held text is certain: up to the first stop string, which ends it, or up to where one may begin. One
 * that is whole before min_tokens are written is text like any. */
static size_t certain(const struct answer *x, bool *stops)
{
    const char *text = str_text(&x->held);
    size_t n = x->held.n, sure = n;
    bool early = written(x) < x->s.min_tokens;
    *stops = false;
    for (size_t at = 0; at < sure; at++)
        for (int i = 0; i < x->s.n_stop; i++) {
            size_t left = n - at, most = left < x->stop_n[i] ? left : x->stop_n[i];
            if (memcmp(text + at, x->stop[i], most) || (early && most == x->stop_n[i])) continue;
            *stops = most == x->stop_n[i];
            if (*stops) return at;
            if (at < sure) sure = at;
        }
    return sure;
}

/* A token of the prompt or of the answer to whoever asked, with the logits that it was chosen from (NULL: none). */
static void tell(struct batching *a, struct answer *x, int32_t id, bool prompt, const float *logits_V)
{
    int32_t top[ANSWER_TOP];
    double logprob[ANSWER_TOP];
    struct answer_token t =
        {.id = id, .prompt = prompt, .logprob = NAN, .top = top, .top_logprob = logprob, .logits_V = logits_V};
    int64_t vocab = decoding_model(a->d)->vocab;
    if (x->s.top >= 0 && logits_V) {
        double sum = sample_log_sum(logits_V, vocab);
        t.logprob = (double)logits_V[id] - sum;
        t.n_top = x->s.top < vocab ? x->s.top : (int)vocab;
        sample_top(logits_V, vocab, t.n_top, top);
        for (int i = 0; i < t.n_top; i++) logprob[i] = (double)logits_V[top[i]] - sum;
    }
    bool stops = false;
    struct str now = {0};
    decoder_push(&x->decoder, id, prompt ? &now : &x->held);
    if (!prompt) {
        size_t n = certain(x, &stops), rest = x->held.n - n;
        str_add(&now, str_text(&x->held), n);
        if (rest && n) memmove(x->held.p, x->held.p + n, rest);
        x->held.n = rest;
        if (x->held.p) x->held.p[rest] = 0;
    }
    t.text = str_text(&now);
    t.n = now.n;
    if (!x->s.token(x->s.ctx, &t)) x->gone = true;
    else if (stops) finish(a, x, ANSWER_STOP, NULL);
    str_free(&now);
}

/* What a token looks like may hang on its being the first, so the decoder gets a prompt that is not told, too. */
static void pass_prompt(struct answer *x, int64_t end)
{
    if (end > x->told) decoder_pass(&x->decoder, x->ids + x->told, end - x->told);
    if (end > x->told) x->told = end;
}

static bool is_stop(const struct answer *x, int64_t id)
{
    for (int i = 0; i < x->s.n_stop_ids; i++)
        if (x->stop_id[i] == id) return true;
    return false;
}

/* Whether logits are not sampled from as they are. */
static bool changes(const struct answer *x)
{
    return sample_before_changes(&x->s.before) || x->s.n_bias || written(x) < x->s.min_tokens;
}

static void change(struct batching *a, const struct answer *x, float *logits_V)
{
    bool early = written(x) < x->s.min_tokens;
    for (int i = 0; i < x->s.n_bias; i++) logits_V[x->bias[i].id] += x->bias[i].by;
    for (int i = 0; early && i < a->n_ends; i++) logits_V[a->end[i]] = -INFINITY;
    for (int i = 0; early && i < x->s.n_stop_ids; i++) logits_V[x->stop_id[i]] = -INFINITY;
    if (sample_before_changes(&x->s.before))
        sample_before_apply(a->sampler, &x->s.before, x->s.sample.temperature, x->ids, x->n_ids, x->n_prompt, logits_V);
}

static void choose(struct batching *a, struct answer *x, const float *logits_V)
{
    int64_t id, vocab = decoding_model(a->d)->vocab;
    struct err e = {0};
    const float *from = logits_V;
    if (written(x) >= x->s.max_tokens) { /* of 0 */
        finish(a, x, ANSWER_LENGTH, NULL);
        return;
    }
    if (changes(x)) {
        memcpy(a->logits_V, logits_V, to_size(vocab) * sizeof *logits_V);
        change(a, x, a->logits_V);
        from = a->logits_V;
    }
    if (sample_token(a->sampler, &x->s.sample, from, x->n_ids, &id, &e)) {
        finish(a, x, ANSWER_FAILED, &e);
    } else if ((!x->s.past_end && decoding_is_end(a->d, a->t, id)) || is_stop(x, id)) {
        finish(a, x, ANSWER_END_OF_TEXT, NULL);
    } else {
        x->ids[x->n_ids++] = (int32_t)id;
        tell(a, x, (int32_t)id, false, logits_V);
        if (x->gone) return;
        if (written(x) >= x->s.max_tokens) finish(a, x, ANSWER_LENGTH, NULL);
        else if (decoding_fed(a->d, x->sequence) == decoding_room(a->d)) finish(a, x, ANSWER_CACHE_FULL, NULL);
    }
}

/* ---- a step ---- */

static int64_t to_feed(const struct answer *x) { return x->n_ids - only_scores(&x->s); }

static int64_t longest(const struct batching *a, const struct answer *x)
{
    int64_t n = x->n_prompt + x->s.max_tokens, room = decoding_room(a->d);
    return n < x->n_prompt || n > room ? room : n;
}

/* Pages that answers at work may still ask for. */
static int64_t owed(const struct batching *a)
{
    int64_t n = 0;
    for (const struct answer *x = a->first; x; x = x->next)
        if (x->sequence >= 0)
            n += decoding_pages_for(a->d, longest(a, x)) - decoding_pages_for(a->d, decoding_fed(a->d, x->sequence));
    return n;
}

/* Whether logits of the prompt's tokens are wanted. */
static bool scores(const struct answer *x) { return x->s.tell_prompt && x->s.top >= 0; }

/* What an encoder reads goes to pages of its own, at once. What is wrong with it fails its answer alone. */
static int begin_reading(struct batching *a, struct answer *x, struct err *e)
{
    struct err own = {0};
    int rc = decoding_read(a->d, x->sequence, a->t, x->read, x->n_read, &own);
    if (!rc) return OK;
    if (rc != ERR_REQUEST) return *e = own, rc;
    finish(a, x, ANSWER_FAILED, &own);
    return OK;
}
/* Tokens that are given, before those that are written or scored. */
static int64_t prompt_of(const struct answer *x) { return scores(x) ? x->s.tell_from : x->n_prompt; }

/* In their order, so that a long prompt is not overtaken for ever. */
static int begin(struct batching *a, struct err *e)
{
    for (struct answer *x = a->first; x; x = x->next) {
        if (x->sequence >= 0 || x->gone) continue;
        const struct answer *after = x->s.after ? answer_of(a, x->s.after) : NULL;
        if (after && !after->prompt_fed && !after->gone) continue;
        int s = decoding_open(a->d);
        if (s < 0) return OK;
        int64_t debt = owed(a);
        decoding_expect(a->d, s, to_feed(x));
        x->reused = decoding_reuse(a->d, s, x->ids, prompt_of(x));
        int64_t needs = decoding_pages_for(a->d, longest(a, x)) - decoding_pages_for(a->d, x->reused);
        if (x->read) needs += decoding_pages_for(a->d, x->n_read + 1);
        if (decoding_pages_left(a->d) - debt < needs) {
            x->reused = 0;
            decoding_close(a->d, s);
            return OK;
        }
        if (!x->reused) decoding_prompt(a->d, s, prompt_of(x));
        x->sequence = s;
        a->writing++;
        a->waiting--;
        int rc = x->read ? begin_reading(a, x, e) : OK;
        if (rc) return rc;
    }
    return OK;
}

/* The rows of this step: one of each answer that is being written, then prompts. */
static int lay_out(struct batching *a)
{
    int64_t left = decoding_rows(a->d);
    int n = 0;
    for (int prompts = 0; prompts < 2; prompts++)
        for (struct answer *x = a->first; x && left > 0; x = x->next) {
            if (x->sequence < 0 || x->gone || x->prompt_fed == (prompts == 1)) continue;
            int64_t fed = decoding_fed(a->d, x->sequence), rows = to_feed(x) - fed;
            int64_t whole = decoding_whole(a->d, x->sequence);
            if (whole > left) return n; /* nor do those behind it overtake it */
            if (rows > left) rows = left;
            if (whole) rows = whole;
            int64_t wanted = fed + rows == to_feed(x);
            if (prompts && scores(x) && fed + rows >= x->s.tell_from) /* row i says what token i + 1 is */
                wanted = fed + rows - (x->s.tell_from > fed ? x->s.tell_from - 1 : fed);
            if (wanted > rows) wanted = rows;
            a->part[n] = (struct decoding_part){x->sequence, x->ids + fed, rows, wanted};
            a->of_part[n++] = x;
            left -= rows;
        }
    return n;
}

/* Its rows were fed; the logits of the wanted ones begin at logits. */
static void went_on(struct batching *a, struct answer *x, const struct decoding_part *p, const float *logits)
{
    int64_t vocab = decoding_model(a->d)->vocab, fed = decoding_fed(a->d, x->sequence);
    if (!x->prompt_fed && x->s.tell_prompt) { /* wanted row k has token fed - wanted + k and says what follows it */
        int64_t end = fed < x->n_prompt ? fed + 1 : x->n_prompt, from = fed - p->wanted + 1;
        if (!x->told) pass_prompt(x, x->s.tell_from);
        for (; x->told < end && !x->gone; x->told++)
            tell(a, x, x->ids[x->told], true,
                 scores(x) && x->told >= from && x->told ? logits + (x->told - from) * vocab : NULL);
    }
    if (fed < to_feed(x) || x->gone) return;
    x->prompt_fed = true;
    pass_prompt(x, x->n_prompt);
    choose(a, x, logits + (p->wanted - 1) * vocab);
}

int batching_step(struct batching *a, struct err *e)
{
    const float *logits;
    int rc = begin(a, e), n = rc ? 0 : lay_out(a);
    if (!n) {
        sweep(a);
        return rc;
    }
    rc = decoding_step(a->d, a->part, n, &logits, e);
    if (rc) return rc;
    for (int i = 0; i < n; i++) {
        went_on(a, a->of_part[i], &a->part[i], logits);
        logits += a->part[i].wanted * decoding_model(a->d)->vocab;
    }
    sweep(a);
    return OK;
}
