/* SPDX-License-Identifier: Apache-2.0 */
/* letters.c: see letters.h. ASCII without the tables. */
#include "curate/letters.h"

#include <string.h>

#include "curate/document.h"
#include "text/unicode.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

static int category(uint32_t c) { return unicode_kind_of(c) & 31; }

bool letters_is_letter(uint32_t c)
{
    if (c < 0x80) return (c | 32) >= 'a' && (c | 32) <= 'z';
    int k = category(c);
    return k >= UNI_LU && k <= UNI_LO;
}

bool letters_is_digit(uint32_t c) { return c < 0x80 ? c >= '0' && c <= '9' : category(c) == UNI_ND; }

bool letters_is_word(uint32_t c)
{
    if (c < 0x80) return letters_is_letter(c) || (c >= '0' && c <= '9') || c == '_';
    int k = category(c);
    return k >= UNI_LU && k <= UNI_PC;
}

/* Punctuation of any script, symbols of ASCII, control characters; but no bullet, as datatrove has it. */
static bool is_mark(uint32_t c)
{
    if (c < 0x80) return !letters_is_letter(c) && !(c >= '0' && c <= '9');
    int k = category(c);
    return ((k >= UNI_PC && k <= UNI_PO) || k == UNI_CC) && c != 0x2022;
}

enum letters letters_of(const char *p, size_t n)
{
    enum letters found = LETTERS_MARKS;
    for (size_t i = 0; i < n;) {
        int len;
        uint32_t c = char_at(p + i, n - i, &len);
        if (letters_is_letter(c)) return LETTERS_SOME;
        if (found == LETTERS_MARKS && !is_mark(c)) found = LETTERS_NONE;
        i += (size_t)len;
    }
    return found;
}

size_t letters_space(const char *p, size_t n)
{
    unsigned char c = (unsigned char)*p;
    if (c < 0x80) return c == ' ' || (c >= '\t' && c <= '\r');
    return (size_t)utf8_space((const unsigned char *)p, n);
}

size_t letters_trim(const char *p, size_t n) { return utf8_space_before((const unsigned char *)p, n); }

int64_t letters_count(const char *p, size_t n, const char *what, size_t n_what)
{
    int64_t count = 0;
    const char *end = p + n, *at;
    while ((at = memchr(p, *what, (size_t)(end - p)))) {
        if ((size_t)(end - at) < n_what) break;
        bool same = !memcmp(at, what, n_what);
        count += same;
        p = at + (same ? n_what : 1);
    }
    return count;
}

bool letters_ends_sentence(uint32_t c)
{
    static const uint32_t others[] = {0x0589, 0x061D, 0x061E, 0x061F, 0x06D4, 0x0700, 0x0701, 0x0702, 0x0964,
                                      0x0965, 0x104A, 0x104B, 0x1362, 0x1367, 0x1368, 0x166E, 0x17D4, 0x17D5,
                                      0x1803, 0x1809, 0x203C, 0x203D, 0x2047, 0x2048, 0x2049, 0x3002, 0xFE52,
                                      0xFE56, 0xFE57, 0xFF01, 0xFF0E, 0xFF1F, 0xFF61};
    if (c < 0x80) return c == '.' || c == '!' || c == '?';
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (others[i] == c) return true;
    return false;
}
