/* SPDX-License-Identifier: Apache-2.0 */
/* The tokens that are taken out, and those that stay, are each cut into as many pieces as there are spans, every way to
 * cut being as likely as another, and the pieces alternate: one that stays comes first. A cut is drawn from left to
 * right, each place by itself with the chance that is left for it (Knuth's selection sampling), so nothing is shuffled
 * and nothing kept but one random number a place. */
#include "data/taken_spans.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"

static struct span_counts counts(double rate, double mean, int64_t text)
{
    struct span_counts s = {.text = text, .taken = llround((double)text * rate)};
    if (s.taken < 1) s.taken = 1;
    if (s.taken > text - 1) s.taken = text - 1;
    s.spans = llround((double)s.taken / mean);
    if (s.spans < 1) s.spans = 1;
    if (s.spans > s.taken) s.spans = s.taken;
    if (s.spans > text - s.taken) s.spans = text - s.taken;
    s.encoder = text - s.taken + s.spans + 1;
    s.decoder = s.taken + s.spans + 1;
    return s;
}

bool span_counts_of(struct span_counts *s, double rate, double mean, int64_t seq, int64_t encoder)
{
    for (int64_t text = seq - 4; text >= 2; text--) { /* a mark and an end on each side */
        *s = counts(rate, mean, text);
        if (encoder && s->encoder != encoder) continue;
        if (s->encoder + s->decoder <= seq) return true;
    }
    return false;
}

/* The first mark by the tokenizer's names; they must count down, as in every published vocabulary. */
static int named_marks(struct taken_spans *p, const struct tokenizer *t, struct err *e)
{
    for (int64_t k = 0; k < p->n.spans; k++) {
        char name[32];
        int n = snprintf(name, sizeof name, "<extra_id_%lld>", (long long)k);
        int32_t id = tokenizer_find(t, name, (size_t)n);
        if (k == 0) p->mark = id;
        if (id >= 0 && id == p->mark - k) continue;
        return err_set(e, ERR_REQUEST,
                       "data.spans.id: the tokenizer has no token %s%s, and a sample has %lld spans to mark; give "
                       "marks numbers that no token has (data.spans.id: %lld, with model.vocab: %lld), or choose a "
                       "longer "
                       "data.spans.mean",
                       name, id >= 0 ? " one below the mark before it" : "", (long long)p->n.spans,
                       (long long)(tokenizer_vocab(t) + p->n.spans - 1), (long long)(tokenizer_vocab(t) + p->n.spans));
    }
    return OK;
}

int spans_init(struct taken_spans *p, const struct span_rule *r, const struct tokenizer *t, struct err *e)
{
    *p = (struct taken_spans){.seq = r->seq, .start = (int32_t)r->start};
    if (!span_counts_of(&p->n, r->rate, r->mean, r->seq, r->encoder))
        return err_set(e, ERR_REQUEST, "model.encoder_len: no text of %lld tokens leaves the encoder %lld",
                       (long long)r->seq, (long long)r->encoder);
    p->eos = tokenizer_eos(t);
    if (p->eos < 0)
        return err_set(e, ERR_REQUEST, "data.tokenizer: it has no end of text, with which both sides of a sample end");
    if (r->id < 0) return named_marks(p, t, e);
    p->mark = (int32_t)r->id;
    if (r->id - p->n.spans + 1 >= tokenizer_vocab(t)) return OK;
    return err_set(e, ERR_REQUEST,
                   "data.spans.id: %lld marks count down from %lld into the tokenizer's %d tokens; choose %lld, with "
                   "model.vocab: %lld",
                   (long long)p->n.spans, (long long)r->id, tokenizer_vocab(t),
                   (long long)(tokenizer_vocab(t) + p->n.spans - 1), (long long)(tokenizer_vocab(t) + p->n.spans));
}

/* Cuts n things into pieces, one after the other: how many the next one has. */
struct cutting {
    uint64_t seed, stream;
    int64_t left, pieces, drawn; /* things and pieces that are left, numbers drawn */
};

static int64_t next_piece(struct cutting *c)
{
    int64_t n = 1;
    for (c->left--, c->pieces--; c->left > 0 && c->pieces > 0; n++, c->left--) {
        uint32_t u[4];
        rng_block(c->seed, c->stream, (uint64_t)c->drawn++, u);
        if ((double)u[0] / 4294967296.0 * (double)c->left < (double)c->pieces) return n; /* a cut before what is left */
    }
    if (!c->pieces) n += c->left, c->left = 0;
    return n;
}

/* What both sides are written by. */
struct writer {
    int32_t *ids, *targets;
    int64_t encoder, decoder; /* the next place of each */
    int32_t before;           /* what the decoder wrote last */
};

static void tell(struct writer *w, int32_t id)
{
    w->ids[w->decoder] = w->before;
    w->targets[w->decoder++] = w->before = id;
}

int64_t spans_apply(const struct taken_spans *p, uint64_t seed, int64_t sample, int32_t *ids, int32_t *targets,
                    int32_t *text)
{
    const struct span_counts *n = &p->n;
    uint64_t stream = rng_stream_at(rng_stream("data/spans"), (uint64_t)sample);
    struct cutting stays = {seed, stream, n->text - n->taken, n->spans, 0},
                   goes = {seed, rng_stream_at(stream, 1), n->taken, n->spans, 0};
    struct writer w = {ids, targets, 0, n->encoder, p->start};
    bool whole = true;
    for (int64_t i = 0; i < n->text; i++) whole = whole && targets[i] >= 0;
    memcpy(text, ids, (size_t)p->seq * sizeof *text);
    for (int64_t i = 0; i < p->seq; i++) {
        ids[i] = p->start;
        targets[i] = -1;
    }
    if (!whole) return 0;
    for (int64_t k = 0, at = 0; k < n->spans; k++) {
        for (int64_t i = next_piece(&stays); i > 0; i--) ids[w.encoder++] = text[at++];
        ids[w.encoder++] = p->mark - (int32_t)k;
        tell(&w, p->mark - (int32_t)k);
        for (int64_t i = next_piece(&goes); i > 0; i--) tell(&w, text[at++]);
    }
    ids[w.encoder++] = p->eos;
    tell(&w, p->eos);
    CHECK(w.encoder == n->encoder && w.decoder == n->encoder + n->decoder, "a sample of %lld and %lld places",
          (long long)w.encoder, (long long)w.decoder);
    return n->decoder;
}
