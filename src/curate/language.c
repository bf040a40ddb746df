/* SPDX-License-Identifier: Apache-2.0 */
/* language.c: a model in memory is a table by hash of n-grams, each with a short list of (label, weight) pairs.
 *
 * As bytes (model_file.h): how many labels (u8), each as its length (u8) and letters; the temperature (f32) and what a
 * weight of 1 stands for (f32, nats); how many n-grams (u32); for each, in order of their keys, how much larger its key
 * is than the one before (a varint of 7 bits a byte), how many pairs (u8), and the pairs (u8 label, u8 weight).
 */
#include "curate/language.h"

#include <math.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/document.h"
#include "curate/language_table.h"
#include "curate/letters.h"
#include "curate/model_file.h"
#include "text/unicode_legacy.h"

struct pair {
    uint8_t label, weight;
};
struct gram {
    uint32_t key; /* + 1; 0: none */
    uint32_t first, n;
};
struct language_model {
    int n_labels;
    char label[LANGUAGE_LABELS][LANGUAGE_LABEL_BYTES];
    float temperature, unit;
    struct gram *gram;
    size_t mask;
    struct pair *pair;
};

/* ---- n-grams ---- */

enum { LONGEST = 4 };

static uint32_t key_of(const uint32_t *c, int n)
{
    uint64_t h = (uint64_t)n;
    for (int i = 0; i < n; i++) h = (h ^ c[i]) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(n - 1) << 22 | (uint32_t)(h >> 42);
}

/* The n-grams that end with the newest of the last characters, of which there are n. */
static void end_with(const uint32_t last[LONGEST], int n, void (*each)(void *ctx, uint32_t key), void *ctx)
{
    for (int k = 1; k <= n; k++) {
        if (k == 1 && last[LONGEST - 1] == ' ') continue;
        each(ctx, key_of(last + LONGEST - k, k));
    }
}

static void shift_in(uint32_t last[LONGEST], int *n, uint32_t c)
{
    memmove(last, last + 1, (LONGEST - 1) * sizeof *last);
    last[LONGEST - 1] = c;
    if (*n < LONGEST) ++*n;
}

/* Letters and the marks that belong to them are words; all else is the space between, once. */
static bool in_word(uint32_t c)
{
    if (c < 0x80) return letters_is_letter(c);
    return letters_is_word(c) && !letters_is_digit(c);
}

void language_n_grams(const char *p, size_t n, void (*each)(void *ctx, uint32_t key), void *ctx)
{
    uint32_t last[LONGEST] = {0, 0, 0, ' '};
    int have = 1, len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        uint32_t c = char_at(p + i, n - i, &len);
        if (in_word(c)) {
            shift_in(last, &have, unicode_lower_of(c));
            end_with(last, have, each, ctx);
        } else if (last[LONGEST - 1] != ' ') {
            shift_in(last, &have, ' ');
            end_with(last, have, each, ctx);
            have = 1; /* n-grams do not reach over a space */
        }
    }
    if (last[LONGEST - 1] == ' ') return;
    shift_in(last, &have, ' ');
    end_with(last, have, each, ctx);
}

/* ---- a model ---- */

static struct gram *slot_of(const struct language_model *m, uint32_t key)
{
    size_t i = (key * 0x9E3779B1u >> 7) & m->mask;
    while (m->gram[i].key && m->gram[i].key != key + 1) i = (i + 1) & m->mask;
    return &m->gram[i];
}

static uint64_t get_varint(struct model_bytes *b)
{
    uint64_t v = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        uint64_t byte = model_get(b, 1);
        v |= (byte & 127) << shift;
        if (!(byte & 128)) return v;
    }
    b->ended = true;
    return 0;
}

static int parse_labels(struct language_model *m, struct model_bytes *b, const char *what, struct err *e)
{
    m->n_labels = (int)model_get(b, 1);
    for (int i = 0; i < m->n_labels; i++) {
        size_t n = (size_t)model_get(b, 1);
        const unsigned char *p = n < LANGUAGE_LABEL_BYTES ? model_take(b, n) : NULL;
        if (!p || !n || memchr(p, 0, n)) return err_set(e, ERR_CORRUPT, "%s: label %d is none", what, i);
        memcpy(m->label[i], p, n);
    }
    if (m->n_labels < 2) return err_set(e, ERR_CORRUPT, "%s: has %d labels; two are needed", what, m->n_labels);
    return OK;
}

static int parse_grams(struct language_model *m, struct model_bytes *b, const char *what, struct err *e)
{
    uint64_t n = model_get(b, 4), key = 0;
    size_t room = 16, used = 0, pairs = 0;
    if (n > b->n / 4) return err_set(e, ERR_CORRUPT, "%s: says it has %llu n-grams", what, (unsigned long long)n);
    while (room < 2 * n) room *= 2;
    m->gram = xcalloc(room, sizeof *m->gram);
    m->mask = room - 1;
    for (uint64_t i = 0; i < n; i++) {
        key += get_varint(b) + (i > 0);
        size_t k = (size_t)model_get(b, 1);
        const unsigned char *p = model_take(b, 2 * k);
        if (!p || !k || key >> 24)
            return err_set(e, ERR_CORRUPT, "%s: n-gram %llu is none", what, (unsigned long long)i);
        *slot_of(m, (uint32_t)key) = (struct gram){.key = (uint32_t)key + 1, .first = (uint32_t)used, .n = (uint32_t)k};
        GROW(m->pair, used, pairs, k);
        for (size_t q = 0; q < k; q++) {
            m->pair[used++] = (struct pair){p[2 * q], p[2 * q + 1]};
            if (p[2 * q] >= m->n_labels) return err_set(e, ERR_CORRUPT, "%s: a label beyond the last", what);
        }
    }
    return b->ended || b->n ? err_set(e, ERR_CORRUPT, "%s: ends in the middle, or later than it should", what) : OK;
}

int language_parse(struct language_model **out, const void *p, size_t n, const char *what, struct err *e)
{
    struct model_bytes b = {.p = p, .n = n};
    struct language_model *m = xcalloc(1, sizeof *m);
    *out = NULL;
    int code = parse_labels(m, &b, what, e);
    if (!code) {
        m->temperature = model_get_real(&b);
        m->unit = model_get_real(&b);
        if (!(m->temperature > 0) || !(m->unit > 0) || isinf(m->temperature) || isinf(m->unit))
            code = err_set(e, ERR_CORRUPT, "%s: its temperature is none", what);
    }
    if (!code) code = parse_grams(m, &b, what, e);
    if (code) language_free(m);
    else *out = m;
    return code;
}

int language_read(struct language_model **m, const char *path, struct err *e)
{
    char *payload;
    size_t n;
    int code = model_file_read(path, MODEL_LANGUAGE, LANGUAGE_VERSION, "a language model", &payload, &n, e);
    if (code) return code;
    code = language_parse(m, payload, n, path, e);
    xfree(payload);
    return code;
}

struct language_model *language_shipped(void)
{
    struct language_model *m;
    struct err e;
    struct str bytes = {0};
    for (int i = 0; i < language_table_words; i++) model_put(&bytes, language_table[i], 4);
    int code = language_parse(&m, str_text(&bytes), (size_t)language_table_bytes, "the shipped model", &e);
    CHECK(!code, "%s", e.text);
    str_free(&bytes);
    return m;
}

void language_free(struct language_model *m)
{
    if (!m) return;
    xfree(m->gram);
    xfree(m->pair);
    xfree(m);
}

int language_n_labels(const struct language_model *m) { return m->n_labels; }
const char *language_label(const struct language_model *m, int label) { return m->label[label]; }

int language_find(const struct language_model *m, const char *label)
{
    for (int i = 0; i < m->n_labels; i++)
        if (!strcmp(m->label[i], label)) return i;
    return -1;
}

struct scoring {
    const struct language_model *m;
    int64_t known;
    uint64_t sum[LANGUAGE_LABELS];
};

static void add_gram(void *ctx, uint32_t key)
{
    struct scoring *s = ctx;
    const struct gram *g = slot_of(s->m, key);
    if (!g->key) return;
    s->known++;
    for (uint32_t i = 0; i < g->n; i++) s->sum[s->m->pair[g->first + i].label] += s->m->pair[g->first + i].weight;
}

int64_t language_scores(const struct language_model *m, const char *p, size_t n, double *score)
{
    struct scoring s = {.m = m};
    language_n_grams(p, n, add_gram, &s);
    for (int i = 0; i < m->n_labels; i++) score[i] = (double)s.sum[i] * (double)m->unit;
    return s.known;
}

struct language_guess language_of(const struct language_model *m, const char *p, size_t n)
{
    double score[LANGUAGE_LABELS], sum = 0;
    struct language_guess g = {.label = -1};
    g.known = language_scores(m, p, n < LANGUAGE_LOOKS ? n : LANGUAGE_LOOKS, score);
    if (!g.known) return g;
    g.label = 0;
    for (int i = 1; i < m->n_labels; i++)
        if (score[i] > score[g.label]) g.label = i;
    for (int i = 0; i < m->n_labels; i++) sum += exp((score[i] - score[g.label]) / (double)m->temperature);
    g.probability = 1 / sum;
    return g;
}
