/* SPDX-License-Identifier: Apache-2.0 */
/* normal.c: one pass over the text; ASCII by a table, other characters by their Unicode category. */
#include "curate/normal.h"

#include <string.h>

#include "base/mem.h"
#include "text/unicode.h"
#include "text/unicode_table.h"
#include "text/utf8.h"

static const char *const names[N_NORMAL_KINDS] = {"bytes", "space", "words"};

const char *normal_name(enum normal_kind k) { return names[k]; }

int normal_find(const char *name)
{
    for (int i = 0; i < N_NORMAL_KINDS; i++)
        if (!strcmp(name, names[i])) return i;
    return -1;
}

/* Blocks of letters with a pair: either `by` apart, or (by 1) even and odd neighbours, the upper one first at lo's
 * parity. */
struct pairing {
    uint16_t lo, hi;
    int16_t by;
};
static const struct pairing pairings[] = {
    {0x00C0, 0x00D6, 32}, {0x00D8, 0x00DE, 32}, {0x0100, 0x012F, 1},  {0x0132, 0x0137, 1},  {0x0139, 0x0148, 1},
    {0x014A, 0x0177, 1},  {0x0179, 0x017E, 1},  {0x01CD, 0x01DC, 1},  {0x01DE, 0x01EF, 1},  {0x01F8, 0x021F, 1},
    {0x0222, 0x0233, 1},  {0x0386, 0x0386, 38}, {0x0388, 0x038A, 37}, {0x038C, 0x038C, 64}, {0x038E, 0x038F, 63},
    {0x0391, 0x03A1, 32}, {0x03A3, 0x03AB, 32}, {0x0400, 0x040F, 80}, {0x0410, 0x042F, 32}, {0x0460, 0x0481, 1},
    {0x048A, 0x04BF, 1},  {0x04C1, 0x04CE, 1},  {0x04D0, 0x052F, 1},  {0x0531, 0x0556, 48}, {0x1E00, 0x1E95, 1},
    {0x1EA0, 0x1EFF, 1},
};

uint32_t normal_lower(uint32_t c)
{
    if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
    for (size_t i = 0; i < sizeof pairings / sizeof *pairings && c >= pairings[i].lo; i++) {
        const struct pairing *p = &pairings[i];
        if (c > p->hi) continue;
        if (p->by != 1) return c + (uint32_t)p->by;
        return (c - p->lo) % 2 == 0 ? c + 1 : c;
    }
    return c;
}

/* Of scripts that put no spaces between words. */
static bool stands_alone(uint32_t c)
{
    static const uint32_t ranges[][2] = {{0x0E00, 0x0EFF}, {0x1000, 0x109F}, {0x1780, 0x17FF}, {0x2E80, 0x2FDF},
                                         {0x3005, 0x3007}, {0x3021, 0x3029}, {0x3031, 0x312F}, {0x3190, 0x31FF},
                                         {0x3400, 0x4DBF}, {0x4E00, 0x9FFF}, {0xF900, 0xFAFF}, {0x20000, 0x3FFFF}};
    if (c < ranges[0][0]) return false;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1]) return true;
    return false;
}

static bool in_word(uint32_t c)
{
    int category = unicode_kind_of(c) & 31;
    return category >= UNI_LU && category <= UNI_NO;
}

static void add_space(const char *text, size_t n, struct str *out)
{
    size_t from = out->n;
    const unsigned char *p = (const unsigned char *)text;
    for (size_t at = 0; at < n;) {
        int space = utf8_space(p + at, n - at);
        if (space) {
            if (out->n > from && out->p[out->n - 1] != ' ') str_putc(out, ' ');
            at += (size_t)space;
            continue;
        }
        size_t end = at + 1; /* ASCII that is no space: copied as a stretch */
        while (end < n && p[end] > ' ' && p[end] < 0x7F) end++;
        str_add(out, text + at, end - at);
        at = end;
    }
    if (out->n > from && out->p[out->n - 1] == ' ') out->p[--out->n] = 0;
}

/* What an ASCII character becomes; 0: it separates. */
static const unsigned char ascii_word[128] =
    {['0'] = '0', ['1'] = '1', ['2'] = '2', ['3'] = '3', ['4'] = '4', ['5'] = '5', ['6'] = '6', ['7'] = '7',
     ['8'] = '8', ['9'] = '9', ['A'] = 'a', ['B'] = 'b', ['C'] = 'c', ['D'] = 'd', ['E'] = 'e', ['F'] = 'f',
     ['G'] = 'g', ['H'] = 'h', ['I'] = 'i', ['J'] = 'j', ['K'] = 'k', ['L'] = 'l', ['M'] = 'm', ['N'] = 'n',
     ['O'] = 'o', ['P'] = 'p', ['Q'] = 'q', ['R'] = 'r', ['S'] = 's', ['T'] = 't', ['U'] = 'u', ['V'] = 'v',
     ['W'] = 'w', ['X'] = 'x', ['Y'] = 'y', ['Z'] = 'z', ['a'] = 'a', ['b'] = 'b', ['c'] = 'c', ['d'] = 'd',
     ['e'] = 'e', ['f'] = 'f', ['g'] = 'g', ['h'] = 'h', ['i'] = 'i', ['j'] = 'j', ['k'] = 'k', ['l'] = 'l',
     ['m'] = 'm', ['n'] = 'n', ['o'] = 'o', ['p'] = 'p', ['q'] = 'q', ['r'] = 'r', ['s'] = 's', ['t'] = 't',
     ['u'] = 'u', ['v'] = 'v', ['w'] = 'w', ['x'] = 'x', ['y'] = 'y', ['z'] = 'z'};

enum normal_letter normal_letter(const char *text, size_t n, size_t *length)
{
    const unsigned char *p = (const unsigned char *)text;
    *length = 1;
    if (*p < 0x80) return ascii_word[*p] ? LETTER_IN_WORD : LETTER_NONE;
    int len = utf8_char(p, n);
    if (len <= 0) return LETTER_NONE;
    uint32_t c = utf8_code(p, &len);
    *length = (size_t)len;
    return !in_word(c) ? LETTER_NONE : stands_alone(c) ? LETTER_ALONE : LETTER_IN_WORD;
}

/* out has room for 2 n + 1 bytes: a character of two bytes or more may get a space before and behind it. */
static size_t words_to(const char *text, size_t n, unsigned char *out)
{
    const unsigned char *p = (const unsigned char *)text;
    size_t k = 0;
    bool apart = false; /* a separator came since the last word's character */
    for (size_t at = 0; at < n;) {
        if (p[at] < 0x80) {
            unsigned char c = ascii_word[p[at++]];
            if (!c) {
                apart = true;
                continue;
            }
            if (apart && k) out[k++] = ' ';
            apart = false;
            out[k++] = c;
            continue;
        }
        int len = utf8_char(p + at, n - at);
        uint32_t c = len > 0 ? utf8_code(p + at, &len) : 0;
        at += len > 0 ? (size_t)len : 1;
        if (!c || !in_word(c)) {
            apart = true;
            continue;
        }
        bool alone = stands_alone(c);
        if ((apart || alone) && k && out[k - 1] != ' ') out[k++] = ' ';
        apart = alone;
        k += (size_t)utf8_put(out + k, normal_lower(c));
    }
    return k;
}

void normal_add(enum normal_kind k, const char *text, size_t n, struct str *out)
{
    if (k == NORMAL_BYTES) str_add(out, text, n);
    if (k == NORMAL_SPACE) add_space(text, n, out);
    if (k != NORMAL_WORDS || !n) return;
    size_t from = out->n;
    GROW(out->p, out->n, out->room, 2 * n + 2);
    out->n += words_to(text, n, (unsigned char *)out->p + from);
    out->p[out->n] = 0;
}
