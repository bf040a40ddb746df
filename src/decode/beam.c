/* SPDX-License-Identifier: Apache-2.0 */
/* Two rows of hypotheses, before and after a step, and a row of those that are found. Each hypothesis has its own copy
 * of its tokens: width x length integers a step, beside which a step of a model is nothing. Cost of a step: each row of
 * logits twice for the sum and once for its likeliest tokens, and a sort of width x likeliest candidates. */
#include "decode/beam.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "decode/sampling.h"

struct hypothesis {
    int32_t *ids; /* [most] */
    int64_t n;
    double sum, score;
    int parent;
    enum beam_end why;
};

struct candidate {
    double sum;
    int parent;
    int32_t token;
};

struct beams {
    struct beam_config c;
    int live, found, each, all; /* each, all: candidates of one hypothesis, of all of them that are looked at */
    struct hypothesis *now, *next, *best; /* [width]; best: [width + 1] */
    struct candidate *candidate;          /* [width, each] */
    int32_t *likely;                      /* [each] */
    int64_t n;                            /* tokens of each that goes on */
};

static struct hypothesis *hypotheses_new(int n, int64_t most)
{
    struct hypothesis *h = xcalloc((size_t)n, sizeof *h);
    for (int i = 0; i < n; i++) h[i].ids = xcalloc(to_size(most), sizeof *h[i].ids);
    return h;
}

static void hypotheses_free(struct hypothesis *h, int n)
{
    for (int i = 0; i < n; i++) xfree(h[i].ids);
    xfree(h);
}

struct beams *beams_new(const struct beam_config *c)
{
    CHECK(c->width >= 1 && c->width <= BEAM_MOST && c->most >= 1 && c->vocab >= 1 && isfinite(c->length_penalty),
          "%d beams of %lld tokens", c->width, (long long)c->most);
    struct beams *b = xcalloc(1, sizeof *b);
    b->c = *c;
    b->live = 1;
    b->all = c->width * (1 + (c->n_ends > 1 ? c->n_ends : 1));
    b->each = b->all < c->vocab ? b->all : (int)c->vocab;
    b->now = hypotheses_new(c->width, c->most);
    b->next = hypotheses_new(c->width, c->most);
    b->best = hypotheses_new(c->width + 1, c->most);
    b->candidate = xcalloc((size_t)c->width * (size_t)b->each, sizeof *b->candidate);
    b->likely = xcalloc((size_t)b->each, sizeof *b->likely);
    return b;
}

void beams_free(struct beams *b)
{
    if (!b) return;
    hypotheses_free(b->now, b->c.width);
    hypotheses_free(b->next, b->c.width);
    hypotheses_free(b->best, b->c.width + 1);
    xfree(b->candidate);
    xfree(b->likely);
    xfree(b);
}

int beams_live(const struct beams *b) { return b->live; }
int beams_parent(const struct beams *b, int i) { return b->now[i].parent; }
int32_t beams_token(const struct beams *b, int i) { return b->now[i].ids[b->n - 1]; }
int beams_found(const struct beams *b) { return b->found; }

struct beam_found beams_best(const struct beams *b, int at)
{
    CHECK(at >= 0 && at < b->found, "text %d of %d that were found", at, b->found);
    const struct hypothesis *h = &b->best[at];
    return (struct beam_found){.ids = h->ids, .n = h->n, .logprob = h->sum, .score = h->score, .why = h->why};
}

/* ---- a step ---- */

static int by_sum(const void *pa, const void *pb)
{
    const struct candidate *a = pa, *b = pb;
    if (a->sum != b->sum) return a->sum < b->sum ? 1 : -1;
    if (a->parent != b->parent) return a->parent < b->parent ? -1 : 1;
    return a->token < b->token ? -1 : a->token > b->token;
}

/* The likeliest tokens after each hypothesis, best first among all. */
static int collect(struct beams *b, const float *logits, int *n, struct err *e)
{
    *n = 0;
    for (int i = 0; i < b->live; i++, logits += b->c.vocab) {
        double sum = sample_log_sum(logits, b->c.vocab);
        if (!isfinite(sum))
            return err_set(e, ERR_NUMERIC,
                           "the logits after token %lld sum up to %g: the weights or activations hold NaN or Inf; use "
                           "an earlier checkpoint or fp32",
                           (long long)b->n, sum);
        sample_top(logits, b->c.vocab, b->each, b->likely);
        for (int k = 0; k < b->each; k++) {
            double p = (double)logits[b->likely[k]] - sum;
            if (p == -INFINITY) break;
            b->candidate[(*n)++] = (struct candidate){b->now[i].sum + p, i, b->likely[k]};
        }
    }
    qsort(b->candidate, (size_t)*n, sizeof *b->candidate, by_sum);
    return OK;
}

static double score(const struct beams *b, double sum, int64_t n) { return sum / pow((double)n, b->c.length_penalty); }

/* Among the best, behind equal ones; what falls off the end is dropped. */
static void keep(struct beams *b, const struct hypothesis *h)
{
    int at = b->found;
    struct hypothesis last = b->best[b->c.width];
    double s = score(b, h->sum, h->n);
    while (at > 0 && b->best[at - 1].score < s) at--;
    memmove(b->best + at + 1, b->best + at, (size_t)(b->c.width - at) * sizeof *b->best);
    memcpy(last.ids, h->ids, to_size(h->n) * sizeof *last.ids);
    b->best[at] = *h;
    b->best[at].ids = last.ids;
    b->best[at].score = s;
    if (b->found < b->c.width) b->found++;
}

/* Whether something that goes on may still beat the worst that was found. */
static bool may_improve(const struct beams *b)
{
    if (b->found < b->c.width) return true;
    int64_t n = b->c.length_penalty > 0 ? b->c.most : b->n + 1;
    return score(b, b->now[0].sum, n) > b->best[b->found - 1].score;
}

int beams_step(struct beams *b, const float *logits, struct err *e)
{
    int n, live = 0, rc = collect(b, logits, &n, e);
    if (rc) return rc;
    bool last = ++b->n == b->c.most;
    for (int i = 0; i < n && i < b->all && live < b->c.width; i++) {
        const struct candidate *c = &b->candidate[i];
        struct hypothesis *h = &b->next[live];
        memcpy(h->ids, b->now[c->parent].ids, to_size(b->n - 1) * sizeof *h->ids);
        h->ids[b->n - 1] = c->token;
        h->n = b->n;
        h->sum = c->sum;
        h->parent = c->parent;
        h->why = b->c.end(b->c.ctx, h->ids, h->n);
        if (last && h->why == BEAM_GOES_ON) h->why = BEAM_LENGTH;
        if (h->why == BEAM_GOES_ON) live++;
        else if (i < b->c.width) keep(b, h);
    }
    struct hypothesis *was = b->now;
    b->now = b->next;
    b->next = was;
    b->live = live;
    if (!live || !may_improve(b)) b->live = 0;
    return OK;
}
