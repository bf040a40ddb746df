/* SPDX-License-Identifier: Apache-2.0 */
/* quality.c: features of a text, and a model's answer.
 *
 * As bytes (model_file.h): n-grams up to how many words (u8), bits of a bucket (u8), bias, and slope and shift of the
 * calibration (f32 each), how many weights follow (u32), and of each that is not 0 how much larger its bucket is than
 * the one before (u32) and the weight (f32).
 */
#include "curate/quality.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "curate/model_file.h"
#include "text/unicode_legacy.h"
#include "text/utf8.h"

struct quality_model {
    int grams, bits;
    float bias, slope, shift;
    float *weight;
};

static uint64_t hash_lower(const char *p, size_t n)
{
    uint64_t h = 0xCBF29CE484222325u;
    int len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        uint32_t c = char_at(p + i, n - i, &len);
        h = (h ^ unicode_lower_of(c)) * 0x100000001B3u;
        h ^= h >> 29;
    }
    return h;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Runs of equal buckets become one with 1 + log(run). */
static struct features pack(uint64_t *h, size_t n, float *value)
{
    struct features f = {.bucket = h, .value = value};
    double length = 0;
    for (size_t i = 0, k; i < n; i = k) {
        for (k = i + 1; k < n && h[k] == h[i];) k++;
        value[f.n] = 1 + logf((float)(k - i));
        length += (double)value[f.n] * (double)value[f.n];
        f.bucket[f.n++] = h[i];
    }
    float scale = length > 0 ? (float)(1 / sqrt(length)) : 0;
    for (size_t i = 0; i < f.n; i++) value[i] *= scale;
    return f;
}

struct features quality_features(struct document *d, int grams, int bits)
{
    const struct spans *w = document_words(d, WORDS_MARKS);
    size_t words = w->n < QUALITY_WORDS ? w->n : QUALITY_WORDS, n = 0;
    uint64_t *word = document_hashes(d, words * (size_t)(grams + 1) + 1), *h = word + words;
    for (size_t i = 0; i < words; i++) word[i] = hash_lower(span_text(d, &w->p[i]), w->p[i].n);
    for (size_t i = 0; i < words; i++) {
        uint64_t key = 0;
        for (int k = 0; k < grams && i + (size_t)k < words; k++) {
            key = (key + word[i + (size_t)k]) * 0x9E3779B97F4A7C15u;
            h[n++] = (key ^ key >> 31) * 0xD6E8FEB86659FD93u >> (64 - bits);
        }
    }
    if (n) qsort(h, n, sizeof *h, by_number);
    return pack(h, n, document_numbers(d, n + 1));
}

double quality_of(const struct quality_model *m, struct document *d)
{
    struct features f = quality_features(d, m->grams, m->bits);
    double sum = (double)m->bias;
    for (size_t i = 0; i < f.n; i++) sum += (double)m->weight[f.bucket[i]] * (double)f.value[i];
    return 1 / (1 + exp(-((double)m->slope * sum + (double)m->shift)));
}

static int parse(struct quality_model *m, struct model_bytes *b, const char *what, struct err *e)
{
    m->grams = (int)model_get(b, 1);
    m->bits = (int)model_get(b, 1);
    m->bias = model_get_real(b);
    m->slope = model_get_real(b);
    m->shift = model_get_real(b);
    uint64_t n = model_get(b, 4), bucket = 0;
    if (b->ended || m->grams < 1 || m->grams > QUALITY_GRAMS || m->bits < 8 || m->bits > QUALITY_BITS)
        return err_set(e, ERR_CORRUPT, "%s: n-grams of %d words in %d bits", what, m->grams, m->bits);
    if (!isfinite(m->bias) || !isfinite(m->slope) || !isfinite(m->shift))
        return err_set(e, ERR_CORRUPT, "%s: its bias or calibration is no number", what);
    if (n != b->n / 8 || b->n % 8)
        return err_set(e, ERR_CORRUPT, "%s: %zu bytes of weights, wanted %llu of 8", what, b->n, (unsigned long long)n);
    m->weight = xcalloc((size_t)1 << m->bits, sizeof *m->weight);
    for (uint64_t i = 0; i < n; i++) {
        bucket += model_get(b, 4);
        float w = model_get_real(b);
        if (bucket >> m->bits || !isfinite(w))
            return err_set(e, ERR_CORRUPT, "%s: weight %llu is none", what, (unsigned long long)i);
        m->weight[bucket] = w;
    }
    return OK;
}

int quality_parse(struct quality_model **out, const void *p, size_t n, const char *what, struct err *e)
{
    struct model_bytes b = {.p = p, .n = n};
    struct quality_model *m = xcalloc(1, sizeof *m);
    int code = parse(m, &b, what, e);
    *out = NULL;
    if (code) quality_free(m);
    else *out = m;
    return code;
}

int quality_read(struct quality_model **m, const char *path, struct err *e)
{
    char *payload;
    size_t n;
    int code = model_file_read(path, MODEL_QUALITY, QUALITY_VERSION, "a quality model", &payload, &n, e);
    if (code) return code;
    code = quality_parse(m, payload, n, path, e);
    xfree(payload);
    return code;
}

void quality_free(struct quality_model *m)
{
    if (!m) return;
    xfree(m->weight);
    xfree(m);
}
