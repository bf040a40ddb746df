/* SPDX-License-Identifier: Apache-2.0 */
/* A step: guesses, one after the other, with the law that each was drawn by; one step of the model over the last token
 * and all guesses; then down the row until one is not taken. Cost: a step of the model for 1 to guesses + 1 tokens, the
 * draft's steps, and two laws of the vocabulary for each guess. Rejected: trees of guesses, which want attention that
 * masks siblings. */
#include "decode/speculative.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "decode/speculative_rule.h"

struct speculative {
    struct decoding *d, *draft;
    int sequence, drafts; /* of the model, of the draft */
    int64_t guesses, vocab;
    struct sample_spec sample;
    struct sampler *sampler;
    double *p_V, *q_GV; /* the model's law; the draft's, for each guess */
    struct tokens row;  /* what is fed: the last token and the guesses */
    struct speculative_counts counts;
};

static int check(const struct decoding *d, const char *which, struct err *e)
{
    if (decoding_reads(d))
        return err_set(e, ERR_REQUEST,
                       "draft: %s is an encoder with a decoder (t5), whose text is not its prompt's; generate "
                       "without a draft",
                       which);
    if (!model_scans(decoding_model(d))) return OK;
    return err_set(e, ERR_REQUEST,
                   "draft: %s keeps a state of its whole text (mamba2), which does not go back where a guess was "
                   "wrong; generate without a draft",
                   which);
}

int speculative_new(struct speculative **out, struct decoding *d, int sequence, const struct speculative_options *o,
                    struct err *e)
{
    int64_t vocab = decoding_model(d)->vocab;
    *out = NULL;
    CHECK(o->guesses >= 1 && o->guesses <= SPECULATIVE_MOST, "%lld guesses", (long long)o->guesses);
    int rc = check(d, "the model", e);
    if (!rc && o->draft) rc = check(o->draft, "the draft", e);
    if (!rc && o->draft && decoding_model(o->draft)->vocab != vocab)
        rc = err_set(e, ERR_REQUEST,
                     "draft: it has %lld rows of tokens, and the model %lld (perhaps of the same tokenizer, filled up "
                     "otherwise); give a draft with as many, or ngram",
                     (long long)decoding_model(o->draft)->vocab, (long long)vocab);
    int drafts = !rc && o->draft ? decoding_open(o->draft) : -1;
    if (!rc && o->draft && drafts < 0) rc = err_set(e, ERR_REQUEST, "draft: all its sequences are in use");
    if (rc) return rc;
    struct speculative *s = xcalloc(1, sizeof *s);
    *s = (struct speculative){.d = d,
                              .draft = o->draft,
                              .sequence = sequence,
                              .drafts = drafts,
                              .guesses = o->guesses,
                              .vocab = vocab,
                              .sample = o->sample};
    if (s->guesses > decoding_rows(d) - 1) s->guesses = decoding_rows(d) - 1;
    s->sampler = sampler_new(vocab);
    s->p_V = xcalloc(to_size(vocab), sizeof *s->p_V);
    if (o->draft) s->q_GV = xcalloc(to_size(o->guesses * vocab), sizeof *s->q_GV);
    *out = s;
    return OK;
}

void speculative_free(struct speculative *s)
{
    if (!s) return;
    if (s->draft) decoding_close(s->draft, s->drafts);
    sampler_free(s->sampler);
    tokens_free(&s->row);
    xfree(s->p_V);
    xfree(s->q_GV);
    xfree(s);
}

struct speculative_counts speculative_counts(const struct speculative *s) { return s->counts; }

/* A number in [0, 1) for the token at a place, another one for each purpose. */
static double uniform(const struct speculative *s, const char *what, int64_t place)
{
    return rng_uniform(s->sample.seed, rng_stream(what), (uint64_t)place);
}

/* How many guesses make sense: what is wanted, what the model's positions hold, and the draft's; and none with which
 * the text would turn otherwise than it does without them. */
static int64_t guesses_of(const struct speculative *s, int64_t n, int64_t most)
{
    int64_t k = s->guesses;
    if (k > most - 1) k = most - 1;
    if (k > decoding_room(s->d) - n) k = decoding_room(s->d) - n;
    if (k > decoding_turns_alike(s->d, n) - n) k = decoding_turns_alike(s->d, n) - n;
    if (s->draft && k > decoding_room(s->draft) + 1 - n) k = decoding_room(s->draft) + 1 - n;
    return k > 0 ? k : 0;
}

/* The draft is fed what it has not seen of the text, and then each of its own guesses but the last. */
static int guess_by_draft(struct speculative *s, const struct tokens *text, int64_t k, struct err *e)
{
    const float *logits_V = NULL;
    int64_t fed = decoding_fed(s->draft, s->drafts), most = decoding_rows(s->draft), id;
    int rc = OK;
    for (int64_t now; !rc && fed < text->n; fed += now) {
        now = text->n - fed < most ? text->n - fed : most;
        struct decoding_part p = {s->drafts, text->ids + fed, now, 1};
        rc = decoding_step(s->draft, &p, 1, &logits_V, e);
    }
    for (int64_t i = 0; !rc && i < k; i++) {
        rc = sample_law(s->sampler, &s->sample, logits_V, s->q_GV + i * s->vocab, e);
        if (!rc) rc = sample_token(s->sampler, &s->sample, logits_V, text->n + i, &id, e);
        if (rc) break;
        tokens_push(&s->row, (int32_t)id);
        struct decoding_part p = {s->drafts, s->row.ids + i + 1, 1, 1};
        if (i + 1 < k) rc = decoding_step(s->draft, &p, 1, &logits_V, e);
    }
    return rc ? err_prefix(e, "draft") : OK;
}

static int guess(struct speculative *s, const struct tokens *text, int64_t k, struct err *e)
{
    int32_t found[SPECULATIVE_MOST];
    s->row.n = 0;
    tokens_push(&s->row, text->ids[text->n - 1]);
    if (!k) return OK;
    if (s->draft) return guess_by_draft(s, text, k, e);
    k = speculate_lookup(text->ids, text->n, found, k);
    for (int64_t i = 0; i < k; i++) tokens_push(&s->row, found[i]);
    return OK;
}

/* Takes guesses as long as they are right, and says one token after them. */
static int look(struct speculative *s, int64_t before, const float *logits_GV, int32_t *next, int64_t *n, struct err *e)
{
    int64_t k = s->row.n - 1, id;
    for (*n = 0; *n < k; ++*n) {
        int32_t x = s->row.ids[*n + 1];
        const double *q_V = s->q_GV ? s->q_GV + *n * s->vocab : NULL;
        int rc = sample_law(s->sampler, &s->sample, logits_GV + *n * s->vocab, s->p_V, e);
        if (rc) return rc;
        if (!speculate_takes(s->p_V[x], q_V ? q_V[x] : 1, uniform(s, "speculate: take", before + *n))) {
            double u = uniform(s, "speculate: instead", before + *n);
            next[(*n)++] = (int32_t)speculate_instead(s->p_V, q_V, s->vocab, x, u);
            return OK;
        }
        next[*n] = x;
        s->counts.taken++;
    }
    int rc = sample_token(s->sampler, &s->sample, logits_GV + k * s->vocab, before + k, &id, e);
    if (!rc) next[(*n)++] = (int32_t)id;
    return rc;
}

int speculative_next(struct speculative *s, const struct tokens *text, int64_t most, int32_t *next, int64_t *n,
                     struct err *e)
{
    const float *logits_GV;
    CHECK(decoding_fed(s->d, s->sequence) == text->n - 1 && most > 0, "%lld tokens were fed of %lld",
          (long long)decoding_fed(s->d, s->sequence), (long long)text->n);
    int rc = guess(s, text, guesses_of(s, text->n, most), e);
    if (rc) return rc;
    struct decoding_part p = {s->sequence, s->row.ids, s->row.n, s->row.n};
    rc = decoding_step(s->d, &p, 1, &logits_GV, e);
    if (rc) return rc;
    s->counts.guessed += s->row.n - 1;
    rc = look(s, text->n, logits_GV, next, n, e);
    if (rc) return rc;
    int64_t right = text->n + *n - 1; /* tokens of the text that were fed: all but the one just said */
    decoding_cut(s->d, s->sequence, right);
    if (s->draft && decoding_fed(s->draft, s->drafts) > right) decoding_cut(s->draft, s->drafts, right);
    return OK;
}
