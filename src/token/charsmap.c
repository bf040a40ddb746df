/* SPDX-License-Identifier: Apache-2.0 */
/* charsmap.c: a walk over the double array of Yata's darts-clone, every index checked: the file may hold anything. */
#include "token/charsmap.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"
#include "token/token_bounds.h"

struct charsmap {
    uint32_t *units;
    size_t n_units;
    char *texts; /* NUL-terminated as a whole */
    size_t texts_n;
};

static int digit(char c)
{
    if (c >= 'A' && c <= 'Z') return c - 'A';
    if (c >= 'a' && c <= 'z') return c - 'a' + 26;
    if (c >= '0' && c <= '9') return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes into out, which has room for n / 4 * 3; the bytes, or -1. */
static int64_t from_base64(unsigned char *out, const char *text, size_t n)
{
    size_t at = 0;
    if (n % 4) return -1;
    for (size_t i = 0; i < n; i += 4) {
        size_t pad = i + 4 == n ? (size_t)(text[i + 3] == '=') + (text[i + 2] == '=' && text[i + 3] == '=') : 0;
        uint32_t bits = 0;
        for (size_t k = 0; k < 4; k++) {
            int d = k >= 4 - pad ? 0 : digit(text[i + k]);
            if (d < 0) return -1;
            bits = bits << 6 | (uint32_t)d;
        }
        for (size_t k = 0; k < 3 - pad; k++) out[at++] = (unsigned char)(bits >> (16 - 8 * k));
    }
    return (int64_t)at;
}

static uint32_t le32(const unsigned char *p)
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* The length of the longest of the texts, each of which ends with a NUL. */
static size_t longest(const unsigned char *p, size_t n)
{
    size_t most = 0;
    for (size_t at = 0, one; at < n; at += one + 1) {
        one = strnlen((const char *)p + at, n - at);
        if (one > most) most = one;
    }
    return most;
}

int charsmap_new(struct charsmap **m, const char *base64, size_t n, const char *what, struct err *e)
{
    unsigned char *raw = xmalloc(n / 4 * 3 + 1);
    int64_t bytes = from_base64(raw, base64, n);
    uint32_t trie = bytes >= 4 ? le32(raw) : 0;
    size_t rest = bytes >= 4 ? (size_t)bytes - 4 : 0;
    *m = NULL;
    int code = OK;
    if (bytes < 0) code = err_set(e, ERR_CORRUPT, "%s: precompiled_charsmap: not base64", what);
    else if (bytes < 4 || trie > rest || trie % 4 || trie == 0)
        code = err_set(e, ERR_CORRUPT, "%s: precompiled_charsmap: a trie of %u bytes in %lld", what, (unsigned)trie,
                       (long long)bytes);
    else if (utf8_run(raw + 4 + trie, rest - trie) < rest - trie)
        code = err_set(e, ERR_CORRUPT, "%s: precompiled_charsmap: its texts are not UTF-8", what);
    else if (longest(raw + 4 + trie, rest - trie) > NEEDLE_MAX)
        code = err_set(e, ERR_CORRUPT, "%s: precompiled_charsmap: a text of more than %d bytes", what, NEEDLE_MAX);
    if (!code) {
        struct charsmap *x = *m = xcalloc(1, sizeof *x);
        x->n_units = trie / 4;
        x->units = xmalloc(trie);
        for (size_t i = 0; i < x->n_units; i++) x->units[i] = le32(raw + 4 + 4 * i);
        x->texts_n = rest - trie;
        x->texts = xmalloc(x->texts_n + 1);
        memcpy(x->texts, raw + 4 + trie, x->texts_n);
        x->texts[x->texts_n] = 0;
    }
    xfree(raw);
    return code;
}

void charsmap_free(struct charsmap *m)
{
    if (!m) return;
    xfree(m->units);
    xfree(m->texts);
    xfree(m);
}

/* A unit: bits 0..7 and 31 its label, 8: a value follows, 9 and 10..: how far its children are. */
static uint64_t offset_of(uint32_t unit) { return (uint64_t)(unit >> 10) << ((unit & 1u << 9) >> 6); }

const char *charsmap_find(const struct charsmap *m, const unsigned char *p, size_t n, size_t *out_n)
{
    uint64_t at = offset_of(m->units[0]);
    for (size_t i = 0; i < n && p[i]; i++) {
        at ^= p[i];
        if (at >= m->n_units) return NULL;
        uint32_t unit = m->units[at];
        if ((unit & (1u << 31 | 0xFF)) != p[i]) return NULL;
        at ^= offset_of(unit);
        if (!(unit >> 8 & 1)) continue;
        uint32_t value = at < m->n_units ? m->units[at] & ~(1u << 31) : UINT32_MAX;
        if (value > m->texts_n) return NULL;
        const char *text = m->texts + value;
        if (value && (*text & 0xC0) == 0x80) return NULL; /* inside a character */
        *out_n = strlen(text);
        return text;
    }
    return NULL;
}
