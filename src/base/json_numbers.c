/* SPDX-License-Identifier: Apache-2.0 */
/* json_numbers.c: Python's json module writes integers of any length, and NaN, Infinity and -Infinity; published models
 * have "model_max_length": 1000000000000000019884624838656, and lines of text carry hashes of 64 bits without a sign.
 * The library behind json.c refuses all of these, wherever they stand.
 *
 * An integer beyond 64 bits becomes the fraction it is nearest to, so that it is never taken for another integer; a
 * number that has no finite value becomes a mark that json_real reads as NaN, so that it is in no range. Only what is a
 * number by the grammar is touched: everything else is left for the library to refuse. Rejected: the library's own "all
 * integers are fractions", which rounds the ids beyond 2^53 that are used.
 */
#include "base/json_numbers.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST = 330 }; /* an integer with more digits is beyond a double */

static bool digit(char c) { return c >= '0' && c <= '9'; }

static bool word_char(char c)
{
    return digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '+' || c == '-' || c == '.' || c == '_';
}

static size_t digits(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && digit(p[i])) i++;
    return i;
}

/* Is the word a number of JSON's grammar? *integer: without a point or exponent. */
static bool is_number(const char *p, size_t n, bool *integer)
{
    size_t at = n && p[0] == '-', k = digits(p + at, n - at);
    *integer = true;
    if (!k || (k > 1 && p[at] == '0')) return false;
    at += k;
    if (at < n && p[at] == '.') {
        *integer = false;
        k = digits(p + at + 1, n - at - 1);
        if (!k) return false;
        at += 1 + k;
    }
    if (at < n && (p[at] == 'e' || p[at] == 'E')) {
        *integer = false;
        at++;
        at += at < n && (p[at] == '+' || p[at] == '-');
        k = digits(p + at, n - at);
        if (!k) return false;
        at += k;
    }
    return at == n;
}

static bool is_word(const char *p, size_t n, const char *word) { return n == strlen(word) && !memcmp(p, word, n); }

/* Writes the word's other spelling; false when it needs none. */
static bool spell(struct str *out, const char *p, size_t n)
{
    bool integer, not_finite = is_word(p, n, "NaN") || is_word(p, n, "Infinity") || is_word(p, n, "-Infinity");
    if (!not_finite) {
        char text[LONGEST + 2];
        if (!is_number(p, n, &integer)) return false;
        if (n > LONGEST && !integer) return false; /* many digits after the point: the library's business */
        not_finite = n > LONGEST;
        if (!not_finite) {
            memcpy(text, p, n);
            text[n] = 0;
            errno = 0;
            if (integer) (void)strtoll(text, NULL, 10);
            if (integer && errno != ERANGE) return false;
            not_finite = isinf(strtod(text, NULL));
            if (!integer && !not_finite) return false;
        }
    }
    if (not_finite) {
        str_printf(out, "%.17g", JSON_NOT_FINITE);
    } else {
        str_add(out, p, n);
        str_puts(out, ".0");
    }
    return true;
}

/* The end of the string that begins after the quote at p, its closing quote included. */
static const char *string_end(const char *p, const char *end)
{
    while (p < end && *p != '"') p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

bool json_numbers_spell(struct str *out, const char *text, size_t n)
{
    const char *end = text + n, *done = text;
    struct str word = {0};
    bool any = false;
    for (const char *p = text; p < end;) {
        if (*p == '"') {
            p = string_end(p + 1, end);
        } else if (word_char(*p)) {
            const char *from = p;
            while (p < end && word_char(*p)) p++;
            str_clear(&word);
            if (!spell(&word, from, (size_t)(p - from))) continue;
            str_add(out, done, (size_t)(from - done));
            str_add(out, word.p, word.n);
            done = p;
            any = true;
        } else {
            p++;
        }
    }
    if (any) str_add(out, done, (size_t)(end - done));
    str_free(&word);
    return any;
}
