/* SPDX-License-Identifier: Apache-2.0 */
/* language_train.c: counting the n-grams of each label's lines, keeping the most frequent, and fitting the temperature
 * on the lines that were held out.
 *
 * A key has 24 bits, so a label's counts are a plain array of 16 Mi numbers while it is fed, reduced to its most
 * frequent when the next label comes: memory does not grow with the text. The n-grams with the largest shares of their
 * label's text are kept, by one threshold for all labels: one that a label has not got is rarer in it than that. The
 * weight of an n-gram is log(2 share / threshold). A temperature is found by golden section on the mean log loss.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/language.h"
#include "curate/model_file.h"
#include "curate/document.h"
#include "text/utf8.h"

enum {
    KEYS = 1 << 24,
    HELD_OUT_ONE_IN = 10,
    HELD_OUT_MOST = 20000,
    HELD_OUT_BYTES = 1000,
    SHORTEST = 20,
    KEPT_MOST = 1 << 16
};

struct count {
    uint32_t key;
    uint64_t n;
};
struct line {
    int label;
    char *text;
};
struct label_counts {
    struct count *kept; /* the most frequent, most frequent first */
    int n;
    uint64_t all;
    int64_t held_out;
};
struct language_trainer {
    int n_labels, feeding; /* -1: none yet */
    const char *const *labels;
    uint32_t *count; /* by key, of the label that is fed */
    uint64_t all;
    struct label_counts *label;
    struct line *line; /* held out */
    size_t n_lines, lines_room;
    int64_t fed;
};

struct language_trainer *language_trainer_new(int n_labels, const char *const *labels)
{
    struct language_trainer *t = xcalloc(1, sizeof *t);
    t->n_labels = n_labels;
    t->labels = labels;
    t->feeding = -1;
    t->count = xcalloc(KEYS, sizeof *t->count);
    t->label = xcalloc((size_t)n_labels, sizeof *t->label);
    return t;
}

void language_trainer_free(struct language_trainer *t)
{
    if (!t) return;
    for (int i = 0; i < t->n_labels; i++) xfree(t->label[i].kept);
    for (size_t i = 0; i < t->n_lines; i++) xfree(t->line[i].text);
    xfree(t->line);
    xfree(t->label);
    xfree(t->count);
    xfree(t);
}

static int by_count(const void *a, const void *b)
{
    const struct count *x = a, *y = b;
    if (x->n != y->n) return x->n > y->n ? -1 : 1;
    return x->key < y->key ? -1 : x->key > y->key;
}

/* The label that was fed is reduced to its most frequent n-grams; what it had of them before counts on. */
static void settle(struct language_trainer *t)
{
    if (t->feeding < 0) return;
    struct label_counts *l = &t->label[t->feeding];
    struct count *all = NULL;
    int n = 0, room = 0;
    for (int i = 0; i < l->n; i++)
        t->count[l->kept[i].key] += (uint32_t)(l->kept[i].n < UINT32_MAX / 2 ? l->kept[i].n : UINT32_MAX / 2);
    for (uint32_t k = 0; k < KEYS; k++) {
        if (!t->count[k]) continue;
        GROW(all, n, room, 1);
        all[n++] = (struct count){k, t->count[k]};
    }
    if (n) qsort(all, (size_t)n, sizeof *all, by_count);
    xfree(l->kept);
    l->kept = all;
    l->n = n < KEPT_MOST ? n : KEPT_MOST;
    l->all += t->all;
    t->all = 0;
    memset(t->count, 0, KEYS * sizeof *t->count);
}

static void add_key(void *ctx, uint32_t key)
{
    struct language_trainer *t = ctx;
    if (t->count[key] < UINT32_MAX) t->count[key]++;
    t->all++;
}

static void feed_line(struct language_trainer *t, const char *p, size_t n)
{
    struct label_counts *l = &t->label[t->feeding];
    t->fed++;
    if (hash64(p, n) % HELD_OUT_ONE_IN || count_chars(p, n) < SHORTEST || l->held_out >= HELD_OUT_MOST) {
        language_n_grams(p, n, add_key, t);
        return;
    }
    l->held_out++;
    if (n > HELD_OUT_BYTES) n = utf8_cut((const unsigned char *)p, HELD_OUT_BYTES);
    GROW(t->line, t->n_lines, t->lines_room, 1);
    char *copy = xmalloc(n + 1);
    memcpy(copy, p, n);
    for (size_t i = 0; i < n; i++) copy[i] = copy[i] ? copy[i] : ' ';
    copy[n] = 0;
    t->line[t->n_lines++] = (struct line){t->feeding, copy};
}

void language_trainer_feed(struct language_trainer *t, int label, const char *p, size_t n)
{
    if (label != t->feeding) settle(t);
    t->feeding = label;
    for (size_t at = 0; at < n;) {
        const char *newline = memchr(p + at, '\n', n - at);
        size_t end = newline ? (size_t)(newline - p) : n;
        if (end > at) feed_line(t, p + at, end - at);
        at = end + 1;
    }
}

/* ---- the model's bytes ---- */

struct entry {
    uint32_t key;
    uint8_t label;
    double share;
};

static int by_key(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->key != y->key) return x->key < y->key ? -1 : 1;
    return x->label < y->label ? -1 : x->label > y->label;
}

static int by_share(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    if (x->share < y->share || x->share > y->share) return x->share > y->share ? -1 : 1;
    return by_key(a, b);
}

static void put_varint(struct str *out, uint32_t v)
{
    for (; v > 127; v >>= 7) str_putc(out, (char)(128 | (v & 127)));
    str_putc(out, (char)v);
}

/* Of single characters much rarer ones are kept: that a text has a letter which a language has not says more than any
 * longer n-gram. Only so many, because of ideographs. */
enum { LETTERS_MOST = 1000 };
static const double letter_least = 2e-6;

static bool is_letter(const struct entry *e) { return e->key >> 22 == 0; }

/* Entries of the n-grams to keep, by key; *least is the share of the rarest that is longer than a character. */
static struct entry *choose(const struct language_trainer *t, int most, size_t *n_out, double *least)
{
    struct entry *e = NULL;
    size_t n = 0, room = 0, kept = 0, longer = 0, all = (size_t)most * (size_t)t->n_labels;
    for (int i = 0; i < t->n_labels; i++) {
        const struct label_counts *l = &t->label[i];
        int letters = 0;
        for (int k = 0; k < l->n; k++) {
            GROW(e, n, room, 1);
            e[n] = (struct entry){l->kept[k].key, (uint8_t)i, (double)l->kept[k].n / (double)(l->all ? l->all : 1)};
            n += !is_letter(&e[n]) || (letters++ < LETTERS_MOST && e[n].share >= letter_least);
        }
    }
    if (n) qsort(e, n, sizeof *e, by_share);
    *least = 1;
    for (size_t i = 0; i < n; i++) {
        if (!is_letter(&e[i]) && longer++ >= all) continue;
        if (!is_letter(&e[i])) *least = e[i].share;
        e[kept++] = e[i];
    }
    if (kept) qsort(e, kept, sizeof *e, by_key);
    *n_out = kept;
    return e;
}

static void write_model(const struct language_trainer *t, int most, float temperature, struct str *out,
                        int64_t *n_grams)
{
    size_t n;
    double least, largest = 0;
    struct entry *e = choose(t, most, &n, &least);
    for (size_t i = 0; i < n; i++) {
        e[i].share = log(2 * e[i].share / (is_letter(&e[i]) ? letter_least : least));
        if (e[i].share > largest) largest = e[i].share;
    }
    float unit = (float)((largest > 0 ? largest : 1) / 255);
    model_put(out, (uint64_t)t->n_labels, 1);
    for (int i = 0; i < t->n_labels; i++) {
        model_put(out, strlen(t->labels[i]), 1);
        str_puts(out, t->labels[i]);
    }
    model_put_real(out, temperature);
    model_put_real(out, unit);
    *n_grams = 0;
    for (size_t i = 0; i < n; i++) *n_grams += !i || e[i].key != e[i - 1].key;
    model_put(out, (uint64_t)*n_grams, 4);
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i; k < n && e[k].key == e[i].key;) k++;
        put_varint(out, i ? e[i].key - e[i - 1].key - 1 : e[i].key);
        model_put(out, k - i, 1);
        for (size_t q = i; q < k; q++) {
            double weight = e[q].share / (double)unit;
            model_put(out, e[q].label, 1);
            model_put(out, (uint64_t)(weight < 1 ? 1 : weight > 255 ? 255 : weight + 0.5), 1);
        }
    }
    xfree(e);
}

/* ---- the lines that were held out ---- */

/* scores[i * n_labels + label] of every line. */
static double mean_loss(const struct language_trainer *t, const float *scores, double temperature)
{
    double loss = 0;
    for (size_t i = 0; i < t->n_lines; i++) {
        const float *s = scores + i * (size_t)t->n_labels;
        double most = 0, sum = 0;
        for (int k = 0; k < t->n_labels; k++) most = s[k] > most ? (double)s[k] : most;
        for (int k = 0; k < t->n_labels; k++) sum += exp(((double)s[k] - most) / temperature);
        loss += log(sum) - ((double)s[t->line[i].label] - most) / temperature;
    }
    return t->n_lines ? loss / (double)t->n_lines : 0;
}

static double best_temperature(const struct language_trainer *t, const float *scores)
{
    const double golden = 0.6180339887498949;
    double lo = log(0.5), hi = log(1000);
    for (int i = 0; i < 40; i++) {
        double a = hi - golden * (hi - lo), b = lo + golden * (hi - lo);
        if (mean_loss(t, scores, exp(a)) < mean_loss(t, scores, exp(b))) hi = b;
        else lo = a;
    }
    return exp((lo + hi) / 2);
}

static float *score_lines(const struct language_trainer *t, const struct language_model *m, struct language_result *r)
{
    float *scores = xcalloc(t->n_lines * (size_t)t->n_labels + 1, sizeof *scores);
    for (size_t i = 0; i < t->n_lines; i++) {
        double score[LANGUAGE_LABELS];
        int best = 0;
        language_scores(m, t->line[i].text, strlen(t->line[i].text), score);
        for (int k = 0; k < t->n_labels; k++) {
            scores[i * (size_t)t->n_labels + (size_t)k] = (float)score[k];
            if (score[k] > score[best]) best = k;
        }
        r->right += best == t->line[i].label && score[best] > 0;
    }
    return scores;
}

int language_trainer_finish(struct language_trainer *t, int most, struct str *out, struct language_result *r,
                            struct err *e)
{
    struct language_model *m;
    settle(t);
    t->feeding = -1;
    *r = (struct language_result){.lines = t->fed, .held_out = (int64_t)t->n_lines, .temperature = 1};
    for (int i = 0; i < t->n_labels; i++)
        if (!t->label[i].n)
            return err_set(e, ERR_REQUEST, "--label %s: its files hold no letters to learn from", t->labels[i]);
    write_model(t, most, 1, out, &r->n_grams);
    int code = language_parse(&m, out->p, out->n, "the new model", e);
    if (code) return code;
    float *scores = score_lines(t, m, r);
    if (t->n_lines) r->temperature = best_temperature(t, scores);
    xfree(scores);
    language_free(m);
    str_clear(out);
    write_model(t, most, (float)r->temperature, out, &r->n_grams);
    return OK;
}
