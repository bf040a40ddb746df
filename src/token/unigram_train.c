/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_train.c: expectation, maximisation, pruning.
 *
 * Expectation: for every word, how often each token is expected in its segmentations, by sums forwards and backwards
 * over the lattice of tokens in it. Maximisation: score = digamma(expected) - digamma(all expected) (the Bayesian form
 * that keeps vocabularies sparse); what is expected less than half a time goes. Pruning, after two rounds: what the
 * likelihood loses without a token, when its occurrences are written as its next best segmentation; at most a quarter
 * goes at once. Single characters that cover all but 1 in 2000 of the text always stay; the others are left to the
 * bytes.
 *
 * Sums over words are integers (expected counts in units of 2^-shift), so they do not depend on who added what when.
 * Probabilities are kept as exp(score + TILT * characters): every path through a word has the same characters, so the
 * factor cancels, and products stay within a double; where they do not, the word's best path sets the factor.
 */
#include "token/unigram_train.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/thread.h"
#include "text/utf8.h"
#include "token/tokenizer_write.h"
#include "token/train_style.h"
#include "token/unigram_words.h"

enum { SEEDS = 1000000, ROUNDS = 2, N_BYTES = 256, BEFORE = 1 + N_BYTES, BEHIND = 1, SHIFT_MOST = 40 };
#define TILT 2.0
#define COVERAGE 0.9995
#define SHRINK 0.75
#define META 0x2581

struct raw_word {
    size_t at;
    int64_t count;
    uint32_t n;
};

struct trie_node {
    int32_t first, n; /* children */
    int32_t symbol, token;
};

struct unigram_trainer {
    struct str pool;
    struct raw_word *raw;
    int64_t n_raw, raw_room;

    struct unigram_words w;
    struct unigram_token_draft *tokens; /* in the order of their symbols */
    int64_t n;
    double *weight; /* exp(score + TILT * characters) */
    struct trie_node *trie;
    int64_t n_trie, trie_room;
    int32_t *root; /* [n_chars]: node of a first symbol, -1 */
    int shift;
    struct team *team;
};

struct unigram_trainer *unigram_trainer_new(void) { return xcalloc(1, sizeof(struct unigram_trainer)); }

void unigram_trainer_free(struct unigram_trainer *t)
{
    if (!t) return;
    str_free(&t->pool);
    xfree(t->raw);
    xfree(t->w.text);
    xfree(t->w.words);
    xfree(t->w.chars);
    xfree(t->tokens);
    xfree(t->weight);
    xfree(t->trie);
    xfree(t->root);
    team_free(t->team);
    xfree(t);
}

void unigram_trainer_add(struct unigram_trainer *t, const unsigned char *p, size_t n, int64_t count)
{
    if (utf8_run(p, n) != n || n > UINT32_MAX) return;
    GROW(t->raw, t->n_raw, t->raw_room, 1);
    t->raw[t->n_raw++] = (struct raw_word){t->pool.n, count, (uint32_t)n};
    str_add(&t->pool, p, n);
}

int64_t unigram_trainer_words(const struct unigram_trainer *t) { return t->n_raw; }

/* -- words as symbols --------------------------------------------------------------------------------------- */

struct char_count {
    int64_t n;
    uint32_t code;
};

static int by_count(const void *x, const void *y)
{
    const struct char_count *a = x, *b = y;
    return a->n != b->n ? (a->n > b->n ? -1 : 1) : (a->code > b->code) - (a->code < b->code);
}

/* The code points of a word, with the meta symbol for a space and before a word without one; -1: the end. */
struct reading {
    const unsigned char *p;
    size_t n, at;
    bool begun;
};

static int64_t next_char(struct reading *r)
{
    if (!r->begun) {
        r->begun = true;
        if (r->n && r->p[0] == ' ') r->at = 1;
        return META;
    }
    if (r->at >= r->n) return -1;
    int len;
    uint32_t code = utf8_code(r->p + r->at, &len);
    r->at += (size_t)len;
    return code;
}

static struct reading read_word(const struct unigram_trainer *t, const struct raw_word *raw)
{
    return (struct reading){.p = (const unsigned char *)t->pool.p + raw->at, .n = raw->n};
}

/* Chooses the characters that are tokens: rank[code] or -1. */
static int32_t *choose_chars(struct unigram_trainer *t)
{
    struct char_count *counts = xcalloc(0x110000, sizeof *counts);
    int32_t *rank = xmalloc(0x110000 * sizeof *rank);
    int64_t total = 0, covered = 0, c;
    for (int64_t i = 0; i < t->n_raw; i++) {
        struct reading r = read_word(t, &t->raw[i]);
        while ((c = next_char(&r)) >= 0) {
            counts[c].n += t->raw[i].count;
            total += t->raw[i].count;
        }
    }
    for (uint32_t i = 0; i < 0x110000; i++) {
        counts[i].code = i;
        rank[i] = -1;
    }
    qsort(counts, 0x110000, sizeof *counts, by_count);
    for (; t->w.n_chars < 0x110000 && counts[t->w.n_chars].n > 0; t->w.n_chars++) {
        if ((double)covered >= COVERAGE * (double)total) break;
        covered += counts[t->w.n_chars].n;
        rank[counts[t->w.n_chars].code] = t->w.n_chars;
    }
    t->w.chars = xmalloc((size_t)(t->w.n_chars + 1) * sizeof *t->w.chars);
    for (int32_t i = 0; i < t->w.n_chars; i++) t->w.chars[i] = counts[i].code;
    xfree(counts);
    return rank;
}

static void push_symbol(struct unigram_words *w, int32_t s)
{
    GROW(w->text, w->n, w->room, 1);
    w->text[w->n++] = s;
}

/* Ends the word that began at `from`, if it is one. */
static void end_word(struct unigram_words *w, int64_t from, int64_t count)
{
    if (w->n == from) return;
    GROW(w->words, w->n_words, w->words_room, 1);
    w->words[w->n_words++] = (struct unigram_word){from, count, (int32_t)(w->n - from)};
    push_symbol(w, END);
}

static void make_words(struct unigram_trainer *t, const int32_t *rank)
{
    struct unigram_words *w = &t->w;
    int64_t c;
    for (int64_t i = 0; i < t->n_raw; i++) {
        struct reading r = read_word(t, &t->raw[i]);
        int64_t from = w->n;
        while ((c = next_char(&r)) >= 0) {
            if (rank[c] >= 0) push_symbol(w, rank[c]);
            if (rank[c] < 0 || w->n - from == UNIGRAM_WORD_MAX) {
                end_word(w, from, t->raw[i].count);
                from = w->n;
            }
        }
        end_word(w, from, t->raw[i].count);
    }
    str_free(&t->pool);
    xfree(t->raw);
    t->raw = NULL;
}

/* -- tokens and their trie ---------------------------------------------------------------------------------- */

/* A node's children are the tokens' different next symbols; range: the tokens that go through it. */
static void make_trie(struct unigram_trainer *t)
{
    struct range {
        int64_t lo, hi;
        int32_t depth;
    } *ranges = NULL;
    int64_t ranges_room = 0;
    t->n_trie = 0;
    GROW(t->trie, t->n_trie, t->trie_room, 1);
    GROW(ranges, t->n_trie, ranges_room, 1);
    t->trie[t->n_trie] = (struct trie_node){.token = -1};
    ranges[t->n_trie++] = (struct range){0, t->n, 0};
    for (int64_t i = 0; i < t->n_trie; i++) {
        struct range r = ranges[i];
        if (r.lo < r.hi && t->tokens[r.lo].n == r.depth) t->trie[i].token = (int32_t)r.lo++;
        t->trie[i].first = (int32_t)t->n_trie;
        while (r.lo < r.hi) {
            int32_t symbol = unigram_symbol(&t->w, &t->tokens[r.lo], r.depth);
            int64_t to = r.lo + 1;
            while (to < r.hi && unigram_symbol(&t->w, &t->tokens[to], r.depth) == symbol) to++;
            GROW(t->trie, t->n_trie, t->trie_room, 1);
            GROW(ranges, t->n_trie, ranges_room, 1);
            t->trie[t->n_trie] = (struct trie_node){.symbol = symbol, .token = -1};
            ranges[t->n_trie++] = (struct range){r.lo, to, r.depth + 1};
            t->trie[i].n++;
            r.lo = to;
        }
    }
    xfree(ranges);
    for (int32_t c = 0; c < t->w.n_chars; c++) t->root[c] = -1;
    for (int32_t k = 0; k < t->trie[0].n; k++) t->root[t->trie[t->trie[0].first + k].symbol] = t->trie[0].first + k;
    for (int64_t i = 0; i < t->n; i++) t->weight[i] = exp(t->tokens[i].score + TILT * t->tokens[i].n);
}

static int32_t child(const struct unigram_trainer *t, int32_t node, int32_t symbol)
{
    int32_t lo = t->trie[node].first, hi = lo + t->trie[node].n;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (t->trie[mid].symbol < symbol) lo = mid + 1;
        else hi = mid;
    }
    return lo < t->trie[node].first + t->trie[node].n && t->trie[lo].symbol == symbol ? lo : -1;
}

/* -- a word's lattice --------------------------------------------------------------------------------------- */

struct edge {
    int32_t from, to, token;
};
struct lattice {
    struct edge edges[UNIGRAM_WORD_MAX * UNIGRAM_TOKEN_MAX];
    double weight[UNIGRAM_WORD_MAX * UNIGRAM_TOKEN_MAX];
    int n_edges;
    double forward[UNIGRAM_WORD_MAX + 1], backward[UNIGRAM_WORD_MAX + 1];
    int32_t best[UNIGRAM_WORD_MAX + 1]; /* the edge that the best path comes by; -1 */
};

/* Tokens in symbols s[0..n), by where they begin; `without`: a token that is left out. */
static void find_edges(const struct unigram_trainer *t, const int32_t *s, int32_t n, int32_t without, struct lattice *l)
{
    l->n_edges = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t node = t->root[s[i]];
        for (int32_t j = i + 1; node >= 0; j++) {
            int32_t token = t->trie[node].token;
            if (token >= 0 && token != without) l->edges[l->n_edges++] = (struct edge){i, j, token};
            if (j == n) break;
            node = child(t, node, s[j]);
        }
    }
}

/* The best path's score; -INFINITY: there is none. On a tie the edge that was found first. */
static double best_path(const struct unigram_trainer *t, struct lattice *l, int32_t n)
{
    double *score = l->forward;
    for (int32_t i = 0; i <= n; i++) {
        score[i] = i ? -INFINITY : 0;
        l->best[i] = -1;
    }
    for (int k = 0; k < l->n_edges; k++) {
        const struct edge *e = &l->edges[k];
        double s = score[e->from] + t->tokens[e->token].score;
        if (s > score[e->to]) {
            score[e->to] = s;
            l->best[e->to] = k;
        }
    }
    return score[n];
}

/* Sums over all paths forwards and backwards, with edges weighted by weight * exp(extra * characters). The sum. */
static double sum_paths(const struct unigram_trainer *t, struct lattice *l, int32_t n, double extra)
{
    memset(l->forward, 0, (size_t)(n + 1) * sizeof *l->forward);
    memset(l->backward, 0, (size_t)(n + 1) * sizeof *l->backward);
    l->forward[0] = l->backward[n] = 1;
    for (int k = 0; k < l->n_edges; k++) {
        const struct edge *e = &l->edges[k];
        l->weight[k] = t->weight[e->token];
        if (extra != 0) l->weight[k] *= exp(extra * (e->to - e->from));
        l->forward[e->to] += l->forward[e->from] * l->weight[k];
    }
    for (int k = l->n_edges; k-- > 0;) l->backward[l->edges[k].from] += l->backward[l->edges[k].to] * l->weight[k];
    return l->forward[n];
}

/* -- sums over all words ------------------------------------------------------------------------------------ */

struct sums {
    struct unigram_trainer *t;
    bool best;          /* of best paths, instead of expectations */
    int64_t **of;       /* [member][n]: expected, or used in best paths */
    int64_t **words_in; /* [member][n]: counts of the words whose best path has the token */
};

static void add_expected(const struct unigram_trainer *t, const struct unigram_word *w, struct lattice *l,
                         int64_t *sums)
{
    double all = sum_paths(t, l, w->n, 0);
    if (!(all > 1e-200 && all < 1e200)) {
        double best = best_path(t, l, w->n);
        all = sum_paths(t, l, w->n, -best / w->n - TILT);
    }
    double unit = ldexp((double)w->count / all, t->shift);
    for (int k = 0; k < l->n_edges; k++) {
        const struct edge *e = &l->edges[k];
        sums[e->token] += llround(l->forward[e->from] * l->weight[k] * l->backward[e->to] * unit);
    }
}

static void add_best(const struct unigram_trainer *t, const struct unigram_word *w, struct lattice *l, int64_t *sums,
                     int64_t *words_in)
{
    int32_t used[UNIGRAM_WORD_MAX], n = 0;
    best_path(t, l, w->n);
    for (int32_t at = w->n; at > 0 && l->best[at] >= 0; at = l->edges[l->best[at]].from)
        used[n++] = l->edges[l->best[at]].token;
    for (int32_t i = 0; i < n; i++) {
        bool again = false;
        for (int32_t k = 0; k < i && !again; k++) again = used[k] == used[i];
        sums[used[i]] += w->count;
        if (!again) words_in[used[i]] += w->count;
    }
}

static void add_words(void *arg, int member, int n_members)
{
    struct sums *s = arg;
    struct unigram_trainer *t = s->t;
    struct lattice *l = xmalloc(sizeof *l);
    int64_t lo, hi;
    team_split(t->w.n_words, member, n_members, &lo, &hi);
    for (int64_t i = lo; i < hi; i++) {
        const struct unigram_word *w = &t->w.words[i];
        find_edges(t, t->w.text + w->at, w->n, -1, l);
        if (s->best) add_best(t, w, l, s->of[member], s->words_in[member]);
        else add_expected(t, w, l, s->of[member]);
    }
    xfree(l);
}

/* Member 0's arrays are the sums of all; sums_free frees them. */
static struct sums sum_up(struct unigram_trainer *t, bool best)
{
    int n = team_size(t->team);
    struct sums s = {.t = t, .best = best, .of = xmalloc((size_t)n * sizeof *s.of)};
    s.words_in = xmalloc((size_t)n * sizeof *s.words_in);
    for (int i = 0; i < n; i++) {
        s.of[i] = xcalloc((size_t)t->n, sizeof **s.of);
        s.words_in[i] = best ? xcalloc((size_t)t->n, sizeof **s.of) : NULL;
    }
    team_run(t->team, add_words, &s);
    for (int i = 1; i < n; i++) {
        for (int64_t k = 0; k < t->n; k++) s.of[0][k] += s.of[i][k];
        for (int64_t k = 0; best && k < t->n; k++) s.words_in[0][k] += s.words_in[i][k];
        xfree(s.of[i]);
        xfree(s.words_in[i]);
    }
    return s;
}

static void sums_free(struct sums *s)
{
    xfree(s->of[0]);
    xfree(s->words_in[0]);
    xfree(s->of);
    xfree(s->words_in);
}

/* -- rounds ------------------------------------------------------------------------------------------------- */

static bool is_char(const struct unigram_token_draft *d) { return d->n == 1; }

/* Asymptotic series from 7 on, recurrence below (Bernardo 1976). */
static double digamma(double x)
{
    double sum = 0;
    for (; x < 7; x++) sum -= 1 / x;
    double y = 1 / (x * x);
    return sum + log(x) - 0.5 / x - y * (1.0 / 12 - y * (1.0 / 120 - y * (1.0 / 252 - y * (1.0 / 240 - y / 132))));
}

static void expect_and_maximise(struct unigram_trainer *t)
{
    struct sums s = sum_up(t, false);
    double total = 0;
    int64_t n = 0;
    for (int64_t i = 0; i < t->n; i++) {
        double expected = ldexp((double)s.of[0][i], -t->shift);
        if (expected < 0.5 && !is_char(&t->tokens[i])) continue;
        t->tokens[n] = t->tokens[i];
        t->tokens[n].score = expected < 0.5 ? 0.5 : expected;
        total += t->tokens[n++].score;
    }
    for (int64_t i = 0; i < n; i++) t->tokens[i].score = digamma(t->tokens[i].score) - digamma(total);
    t->n = n;
    make_trie(t);
    sums_free(&s);
}

struct loss {
    double value;
    int64_t token;
};

static int by_loss(const void *x, const void *y)
{
    const struct loss *a = x, *b = y;
    if (a->value != b->value) return a->value > b->value ? -1 : 1;
    return (a->token > b->token) - (a->token < b->token);
}

/* What the log likelihood loses per word without the token; < 0: nothing, another segmentation is as good already. */
static double loss_of(const struct unigram_trainer *t, const struct sums *s, int64_t i, double all, double words,
                      struct lattice *l)
{
    const struct unigram_token_draft *d = &t->tokens[i];
    int32_t symbols[UNIGRAM_TOKEN_MAX];
    for (int32_t k = 0; k < d->n; k++) symbols[k] = unigram_symbol(&t->w, d, k);
    find_edges(t, symbols, d->n, (int32_t)i, l);
    double next = best_path(t, l, d->n), used = (double)s->of[0][i];
    if (next > d->score || used == 0) return -1;
    int parts = 0;
    double alternative = 0;
    for (int32_t at = d->n; at > 0; at = l->edges[l->best[at]].from) parts++;
    double all_then = log(all + used * (parts - 1));
    for (int32_t at = d->n; at > 0; at = l->edges[l->best[at]].from)
        alternative += log((double)s->of[0][l->edges[l->best[at]].token] + used) - all_then;
    return (double)s->words_in[0][i] / words * (log(used) - log(all) - alternative);
}

static void prune(struct unigram_trainer *t, int64_t wanted)
{
    struct sums s = sum_up(t, true);
    struct lattice *l = xmalloc(sizeof *l);
    struct loss *losses = xmalloc((size_t)t->n * sizeof *losses);
    bool *stays = xcalloc((size_t)t->n, sizeof *stays);
    double all = 0, words = 0;
    int64_t n = 0, n_chars = 0, target = (int64_t)(SHRINK * (double)t->n);
    for (int64_t i = 0; i < t->n; i++) all += (double)s.of[0][i];
    for (int64_t i = 0; i < t->w.n_words; i++) words += (double)t->w.words[i].count;
    for (int64_t i = 0; i < t->n; i++) {
        stays[i] = is_char(&t->tokens[i]);
        n_chars += stays[i];
        double value = stays[i] ? -1 : loss_of(t, &s, i, all, words, l);
        if (value >= 0) losses[n++] = (struct loss){value, i};
    }
    if (target < wanted) target = wanted;
    qsort(losses, (size_t)n, sizeof *losses, by_loss);
    for (int64_t k = 0; k < n && n_chars + k < target; k++) stays[losses[k].token] = true;
    int64_t kept = 0;
    for (int64_t i = 0; i < t->n; i++)
        if (stays[i]) t->tokens[kept++] = t->tokens[i];
    t->n = kept;
    make_trie(t);
    xfree(stays);
    xfree(losses);
    xfree(l);
    sums_free(&s);
}

static int by_text(const void *x, const void *y, void *arg) { return unigram_order(arg, x, y); }

/* Characters and seeds, their scores the logarithms of their shares. */
static void seed(struct unigram_trainer *t)
{
    int64_t n;
    struct unigram_token_draft *seeds = unigram_seeds(&t->w, SEEDS, t->team, &n);
    double *frequency = xcalloc((size_t)t->w.n_chars + 1, sizeof *frequency), total = 0, weighted = 0;
    for (int64_t i = 0; i < t->w.n_words; i++) {
        weighted += (double)t->w.words[i].count * t->w.words[i].n;
        for (int32_t k = 0; k < t->w.words[i].n; k++)
            frequency[t->w.text[t->w.words[i].at + k]] += (double)t->w.words[i].count;
    }
    t->n = n + t->w.n_chars;
    t->tokens = xmalloc((size_t)(t->n + 1) * sizeof *t->tokens);
    if (n) memcpy(t->tokens, seeds, (size_t)n * sizeof *seeds);
    for (int32_t c = 0; c < t->w.n_chars; c++)
        t->tokens[n + c] = (struct unigram_token_draft){.at = ~(int64_t)c, .n = 1, .score = frequency[c]};
    qsort_r(t->tokens, (size_t)t->n, sizeof *t->tokens, by_text, &t->w);
    for (int64_t i = 0; i < t->n; i++) total += t->tokens[i].score;
    for (int64_t i = 0; i < t->n; i++) t->tokens[i].score = log(t->tokens[i].score / total);
    for (t->shift = SHIFT_MOST; t->shift > 0 && ldexp(weighted + 1, t->shift) >= 0x1p62;) t->shift--;
    xfree(seeds);
    xfree(frequency);
    t->root = xmalloc((size_t)(t->w.n_chars + 1) * sizeof *t->root);
    t->weight = xmalloc((size_t)(t->n + 1) * sizeof *t->weight);
    make_trie(t);
}

static int by_score(const void *x, const void *y, void *arg)
{
    const struct unigram_token_draft *a = x, *b = y;
    if (a->score != b->score) return a->score > b->score ? -1 : 1;
    return unigram_order(arg, a, b);
}

/* All characters, and the best of the others: `wanted` in all, the best first. */
static void choose(struct unigram_trainer *t, int64_t wanted)
{
    int64_t kept = 0, others = wanted - t->w.n_chars;
    qsort_r(t->tokens, (size_t)t->n, sizeof *t->tokens, by_score, &t->w);
    for (int64_t i = 0; i < t->n; i++)
        if (is_char(&t->tokens[i]) || others-- > 0) t->tokens[kept++] = t->tokens[i];
    t->n = kept;
}

int unigram_trainer_finish(struct unigram_trainer *t, int32_t vocab, int n_threads, struct str *json, int32_t *reached,
                           struct err *e)
{
    if (t->n_raw == 0) return err_set(e, ERR_REQUEST, "there is no text to learn a vocabulary from");
    int code = team_start(&t->team, n_threads, e);
    if (code) return code;
    int32_t *rank = choose_chars(t);
    make_words(t, rank);
    xfree(rank);
    int64_t wanted = (int64_t)vocab - BEFORE - BEHIND;
    if (wanted < t->w.n_chars)
        return err_set(e, ERR_REQUEST,
                       "a vocabulary of %d: this text has %d characters that are tokens, and with <unk>, 256 bytes and "
                       "the end of text %d are the least",
                       vocab, t->w.n_chars, t->w.n_chars + BEFORE + BEHIND);
    if (t->w.n > INT32_MAX)
        return err_set(e, ERR_REQUEST, "%lld characters in different words; at most %d are learnt from: use less text",
                       (long long)t->w.n, INT32_MAX);
    seed(t);
    int64_t enough = wanted + wanted / 10;
    for (;;) {
        for (int i = 0; i < ROUNDS; i++) expect_and_maximise(t);
        if (t->n <= enough) break;
        int64_t before = t->n;
        prune(t, enough);
        if (t->n == before) break; /* all that is left are characters */
    }
    choose(t, wanted);
    *reached = (int32_t)(t->n + BEFORE + BEHIND);
    struct tokenizer_scored *list = xmalloc((size_t)(t->n + 1) * sizeof *list);
    struct str text = {0};
    for (int64_t i = 0; i < t->n; i++) {
        list[i] = (struct tokenizer_scored){.at = text.n, .score = t->tokens[i].score};
        for (int32_t k = 0; k < t->tokens[i].n; k++) {
            unsigned char utf8[4];
            str_add(&text, utf8, (size_t)utf8_put(utf8, t->w.chars[unigram_symbol(&t->w, &t->tokens[i], k)]));
        }
        str_putc(&text, 0);
    }
    tokenizer_write_unigram(json, str_text(&text), list, t->n, TRAIN_EOS);
    xfree(list);
    str_free(&text);
    return OK;
}
