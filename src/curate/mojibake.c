/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake.c: a run of characters beyond ASCII that all are bytes of Windows-1252 is looked at as those bytes. When
 * they are valid UTF-8 from end to end, the run was UTF-8 once.
 *
 * Rightly written text has such runs by accident: an accented capital before a closing quotation mark is two bytes that
 * make a letter of some other script. So a run that makes one character is taken only when this is a letter or sign of
 * Latin-1 or punctuation, which is what mangled Western text is made of; a longer run when all its characters are of
 * scripts that lie together. What would decode twice is the caller's to bring again.
 */
#include "curate/mojibake.h"

#include "curate/document.h"
#include "text/utf8.h"

static const uint16_t upper[32] = {
    0x20AC, 0x81,   0x201A, 0x192,  0x201E, 0x2026, 0x2020, 0x2021, 0x2C6,  0x2030, 0x160,
    0x2039, 0x152,  0x8D,   0x17D,  0x8F,   0x90,   0x2018, 0x2019, 0x201C, 0x201D, 0x2022,
    0x2013, 0x2014, 0x2DC,  0x2122, 0x161,  0x203A, 0x153,  0x9D,   0x17E,  0x178,
};

uint32_t cp1252_char(unsigned char byte) { return byte >= 0x80 && byte < 0xA0 ? upper[byte - 0x80] : byte; }

int cp1252_byte(uint32_t c)
{
    if (c < 0x100) return (int)c;
    for (int i = 0; c < 0x2123 && i < 32; i++)
        if (upper[i] == c) return 0x80 + i;
    return -1;
}

static bool western(uint32_t c) { return (c >= 0xA0 && c <= 0xFF) || (c >= 0x2010 && c <= 0x22FF && c != 0x2028); }

/* Whether the bytes, which are characters beyond ASCII, are what somebody wrote. */
static bool plausible(const unsigned char *p, size_t n, int64_t *chars)
{
    bool all_western = true;
    uint32_t lo = UINT32_MAX, hi = 0;
    *chars = 0;
    for (size_t i = 0; i < n;) {
        int len = utf8_char(p + i, n - i);
        if (len < 2) return false;
        uint32_t c = utf8_code(p + i, &len);
        i += (size_t)len;
        ++*chars;
        if (c < 0xA0) return false;
        if (western(c)) continue;
        all_western = false;
        if (c < lo) lo = c;
        if (c > hi) hi = c;
    }
    /* Letters of one alphabet lie within some hundred places; ideographs and syllables spread over more. */
    return all_western || (*chars >= 2 && (hi - lo < 0x180 || lo >= 0x3000));
}

int64_t mojibake_mend(const char *p, size_t n, struct str *out)
{
    enum { MOST = 4096 }; /* bytes of a run; longer ones are looked at in parts */
    unsigned char run[MOST];
    int64_t mended = 0;
    for (size_t i = 0; i < n;) {
        size_t from = i, bytes = 0;
        while (i < n && bytes < MOST && (unsigned char)p[i] >= 0x80) {
            int len;
            int byte = cp1252_byte(char_at(p + i, n - i, &len));
            if (byte < 0) break;
            /* A part ends where a character may. */
            if (bytes > MOST - 8 && (byte < 0x80 || byte >= 0xC0)) break;
            run[bytes++] = (unsigned char)byte;
            i += (size_t)len;
        }
        int64_t chars;
        if (bytes > 1 && plausible(run, bytes, &chars)) {
            str_add(out, run, bytes);
            mended += chars;
        } else {
            str_add(out, p + from, i - from);
        }
        from = i;
        while (i < n && ((unsigned char)p[i] < 0x80 || i == from)) {
            int len;
            if ((unsigned char)p[i] >= 0x80 && bytes && cp1252_byte(char_at(p + i, n - i, &len)) >= 0) break;
            (void)char_at(p + i, n - i, &len);
            i += (size_t)len;
        }
        str_add(out, p + from, i - from);
    }
    return mended;
}

int64_t mojibake_bytes(const char *p, size_t n, struct str *out)
{
    const unsigned char *u = (const unsigned char *)p;
    int64_t read = 0;
    for (size_t i = 0; i < n;) {
        size_t good = utf8_run(u + i, n - i);
        unsigned char bytes[4];
        str_add(out, p + i, good);
        i += good;
        if (i == n) break;
        str_add(out, bytes, (size_t)utf8_put(bytes, cp1252_char(u[i++])));
        read++;
    }
    return read;
}
