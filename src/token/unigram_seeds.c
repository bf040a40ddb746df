/* SPDX-License-Identifier: Apache-2.0 */
/* unigram_seeds.c: substrings that are nodes of the suffix tree of all words: followed by at least two different
 * characters, or by the end of a word.
 *
 * All suffixes are sorted by their first UNIGRAM_TOKEN_MAX symbols; neighbours' common beginnings give the tree's nodes
 * on a stack (Abouelhoda, Kurtz, Ohlebusch 2004). A substring's frequency is the sum of the counts of the words it is
 * in; the seeds are those with the largest frequency times length. Cost: n log n compares of up to 16 symbols, on all
 * threads by first symbol.
 */
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/mem.h"
#include "token/unigram_words.h"

struct suffix {
    int32_t at, word;
};

struct sorting {
    const struct unigram_words *w;
    struct suffix *suffixes;
    int64_t *begin; /* of the suffixes that begin with a symbol */
    atomic_int next;
};

static int by_symbols(const void *x, const void *y, void *arg)
{
    const struct suffix *a = x, *b = y;
    const int32_t *text = ((const struct unigram_words *)arg)->text;
    for (int i = 1; i < UNIGRAM_TOKEN_MAX; i++) {
        int32_t s = text[a->at + i], t = text[b->at + i];
        if (s != t) return s < t ? -1 : 1;
        if (s == END) break;
    }
    return (a->at > b->at) - (a->at < b->at);
}

static void sort_symbols(void *arg, int member, int n_members)
{
    struct sorting *s = arg;
    (void)member;
    (void)n_members;
    for (int c; (c = atomic_fetch_add(&s->next, 1)) < s->w->n_chars;) {
        int64_t n = s->begin[c + 1] - s->begin[c];
        if (n > 1)
            qsort_r(s->suffixes + s->begin[c], (size_t)n, sizeof *s->suffixes, by_symbols,
                    (void *)(uintptr_t)(const void *)s->w);
    }
}

static struct suffix *sorted_suffixes(const struct unigram_words *w, struct team *team)
{
    struct sorting s = {.w = w};
    s.begin = xcalloc((size_t)w->n_chars + 2, sizeof *s.begin);
    s.suffixes = xmalloc((size_t)(w->n + 1) * sizeof *s.suffixes);
    for (int64_t i = 0; i < w->n; i++)
        if (w->text[i] != END) s.begin[w->text[i] + 2]++;
    for (int32_t c = 0; c < w->n_chars; c++) s.begin[c + 2] += s.begin[c + 1];
    for (int64_t k = 0; k < w->n_words; k++)
        for (int32_t i = 0; i < w->words[k].n; i++) {
            int64_t at = w->words[k].at + i;
            s.suffixes[s.begin[w->text[at] + 1]++] = (struct suffix){(int32_t)at, (int32_t)k};
        }
    team_run(team, sort_symbols, &s);
    xfree(s.begin);
    return s.suffixes;
}

/* Symbols that two suffixes begin with alike, up to the longest token. */
static int common(const struct unigram_words *w, int64_t a, int64_t b)
{
    int n = 0;
    while (n < UNIGRAM_TOKEN_MAX && w->text[a + n] != END && w->text[a + n] == w->text[b + n]) n++;
    return n;
}

/* The best so far, the least of them at the top of a heap; equal ones in the order they come. */
struct best {
    struct unigram_token_draft *list;
    int64_t n, most, room;
};

static bool worse(const struct unigram_token_draft *a, const struct unigram_token_draft *b)
{
    return a->score != b->score ? a->score < b->score : a->at > b->at;
}

static void keep(struct best *b, int64_t at, int n, double frequency)
{
    struct unigram_token_draft fresh = {.at = at, .n = n, .score = frequency * n};
    if (n < 2 || frequency < 2) return;
    int64_t i;
    if (b->n < b->most) {
        GROW(b->list, b->n, b->room, 1);
        i = b->n++;
        for (; i > 0 && worse(&fresh, &b->list[(i - 1) / 2]); i = (i - 1) / 2) b->list[i] = b->list[(i - 1) / 2];
        b->list[i] = fresh;
        return;
    }
    if (!worse(&b->list[0], &fresh)) return;
    i = 0;
    for (int64_t child; (child = 2 * i + 1) < b->n; i = child) {
        if (child + 1 < b->n && worse(&b->list[child + 1], &b->list[child])) child++;
        if (!worse(&b->list[child], &fresh)) break;
        b->list[i] = b->list[child];
    }
    b->list[i] = fresh;
}

struct node {
    int n;         /* symbols in common */
    int64_t first; /* suffix */
    double before; /* frequency of all suffixes before it */
};

static int by_text(const void *x, const void *y, void *arg) { return unigram_order(arg, x, y); }

struct unigram_token_draft *unigram_seeds(const struct unigram_words *w, int64_t most, struct team *team, int64_t *n)
{
    struct suffix *s = sorted_suffixes(w, team);
    struct best best = {.most = most};
    struct node stack[UNIGRAM_TOKEN_MAX + 2] = {{.n = 0}};
    int top = 0, left = 0;
    double total = 0;
    int64_t n_suffixes = w->n - w->n_words;
    for (int64_t i = 0; i < n_suffixes; i++) {
        double before = total, count = (double)w->words[s[i].word].count;
        int right = i + 1 < n_suffixes ? common(w, s[i].at, s[i + 1].at) : 0, own = common(w, s[i].at, s[i].at);
        total += count;
        if (own > left && own > right) keep(&best, s[i].at, own, count); /* to the end of its word */
        struct node next = {right, i, before};
        while (stack[top].n > right) {
            keep(&best, s[stack[top].first].at, stack[top].n, total - stack[top].before);
            next = (struct node){right, stack[top].first, stack[top].before};
            top--;
        }
        if (stack[top].n < right) stack[++top] = next;
        left = right;
    }
    xfree(s);
    if (best.n) qsort_r(best.list, (size_t)best.n, sizeof *best.list, by_text, (void *)(uintptr_t)(const void *)w);
    *n = best.n;
    return best.list;
}

int unigram_order(const struct unigram_words *w, const struct unigram_token_draft *a,
                  const struct unigram_token_draft *b)
{
    for (int32_t i = 0; i < a->n && i < b->n; i++) {
        int32_t s = unigram_symbol(w, a, i), t = unigram_symbol(w, b, i);
        if (s != t) return s < t ? -1 : 1;
    }
    return (a->n > b->n) - (a->n < b->n);
}
