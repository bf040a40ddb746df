/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.c: validation by the ranges of the second byte.
 *
 * Text is mostly ASCII, so a run is walked 32 bytes at a time while no byte has its top bit set; the rest is
 * decided by one table row per lead byte: length and the legal range of the second byte (RFC 3629, section 4).
 * A vectorised validator was not needed: this is already far faster than what comes after it.
 */
#include "text/utf8.h"

#include <string.h>

/* Length of the character that a lead byte starts, and the range of its second byte; 0: no lead byte. */
static int lead(unsigned char c, unsigned char *lo, unsigned char *hi)
{
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80) return 1;
    if (c < 0xC2) return 0;
    if (c < 0xE0) return 2;
    if (c < 0xF0) {
        if (c == 0xE0) *lo = 0xA0; /* shortest form */
        if (c == 0xED) *hi = 0x9F; /* no surrogates */
        return 3;
    }
    if (c > 0xF4) return 0;
    if (c == 0xF0) *lo = 0x90;
    if (c == 0xF4) *hi = 0x8F; /* up to U+10FFFF */
    return 4;
}

int utf8_char(const unsigned char *p, size_t n)
{
    unsigned char lo, hi;
    int len = lead(p[0], &lo, &hi);
    if (len <= 1) return len;
    for (int i = 1; i < len; i++) {
        if ((size_t)i >= n) return -1;
        if (p[i] < lo || p[i] > hi) return 0;
        lo = 0x80;
        hi = 0xBF;
    }
    return len;
}

size_t utf8_ascii(const unsigned char *p, size_t n)
{
    size_t at = 0;
    uint64_t w[4];
    while (at + 32 <= n && (memcpy(w, p + at, 32), ((w[0] | w[1] | w[2] | w[3]) & 0x8080808080808080u) == 0)) at += 32;
    while (at + 8 <= n && (memcpy(w, p + at, 8), (w[0] & 0x8080808080808080u) == 0)) at += 8;
    while (at < n && p[at] < 0x80) at++;
    return at;
}

size_t utf8_run(const unsigned char *p, size_t n)
{
    size_t at = 0;
    while (at < n) {
        if (p[at] < 0x80) {
            at += utf8_ascii(p + at, n - at);
            continue;
        }
        int len = utf8_char(p + at, n - at);
        if (len <= 0) break;
        at += (size_t)len;
    }
    return at;
}

int utf8_space(const unsigned char *p, size_t n)
{
    if (n == 0) return 0;
    if (p[0] == ' ' || (p[0] >= '\t' && p[0] <= '\r')) return 1;
    if (n >= 2 && p[0] == 0xC2 && (p[1] == 0x85 || p[1] == 0xA0)) return 2; /* U+0085, U+00A0 */
    if (n < 3) return 0;
    uint32_t c = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
    bool space = c == 0xE19A80                       /* U+1680 */
                 || (c >= 0xE28080 && c <= 0xE2808A) /* U+2000 to U+200A */
                 || c == 0xE280A8 || c == 0xE280A9   /* U+2028, U+2029 */
                 || c == 0xE280AF || c == 0xE2819F   /* U+202F, U+205F */
                 || c == 0xE38080;                   /* U+3000 */
    return space ? 3 : 0;
}

size_t utf8_space_before(const unsigned char *p, size_t n)
{
    for (;;) {
        if (n >= 1 && utf8_space(p + n - 1, 1) == 1) n -= 1;
        else if (n >= 2 && utf8_space(p + n - 2, 2) == 2) n -= 2;
        else if (n >= 3 && utf8_space(p + n - 3, 3) == 3) n -= 3;
        else return n;
    }
}

int utf8_put(unsigned char out[4], uint32_t code)
{
    if (code < 0x80) {
        out[0] = (unsigned char)code;
        return 1;
    }
    if (code < 0x800) {
        out[0] = (unsigned char)(0xC0 | code >> 6);
        out[1] = (unsigned char)(0x80 | (code & 0x3F));
        return 2;
    }
    if (code < 0x10000) {
        out[0] = (unsigned char)(0xE0 | code >> 12);
        out[1] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
        out[2] = (unsigned char)(0x80 | (code & 0x3F));
        return 3;
    }
    out[0] = (unsigned char)(0xF0 | code >> 18);
    out[1] = (unsigned char)(0x80 | (code >> 12 & 0x3F));
    out[2] = (unsigned char)(0x80 | (code >> 6 & 0x3F));
    out[3] = (unsigned char)(0x80 | (code & 0x3F));
    return 4;
}

uint32_t utf8_code(const unsigned char *p, int *len)
{
    if (p[0] < 0x80) {
        *len = 1;
        return p[0];
    }
    if (p[0] < 0xE0) {
        *len = 2;
        return (uint32_t)(p[0] & 0x1F) << 6 | (p[1] & 0x3Fu);
    }
    if (p[0] < 0xF0) {
        *len = 3;
        return (uint32_t)(p[0] & 0x0F) << 12 | (uint32_t)(p[1] & 0x3F) << 6 | (p[2] & 0x3Fu);
    }
    *len = 4;
    return (uint32_t)(p[0] & 0x07) << 18 | (uint32_t)(p[1] & 0x3F) << 12 | (uint32_t)(p[2] & 0x3F) << 6 |
           (p[3] & 0x3Fu);
}
