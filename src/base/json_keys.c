/* SPDX-License-Identifier: Apache-2.0 */
/* json_keys.c: in keys, NUL becomes M0 and the mark M itself becomes M1, where M is U+10FFFF, a code point that is no
 * character and never will be. So no two keys become one, and every key can be read back. Documents with neither in
 * them, which is all but a few, are only searched.
 *
 * A string is a key when a colon follows. Where a document is not valid JSON this may take something else for one,
 * which changes nothing: the library then finds the mistake.
 */
#include "base/json_keys.h"

#include <string.h>
#include <strings.h>

static const char mark[] = "\xF4\x8F\xBF\xBF";
#define MARK_ESCAPED "\\udbff\\udfff"
#define NUL_ESCAPED "\\u0000"

/* Bytes of the spelling of NUL (which = '0') or of the mark ('1') at p; 0: something else. */
static size_t special(const char *p, const char *end, char *which)
{
    size_t n = (size_t)(end - p);
    *which = '0';
    if (n >= sizeof NUL_ESCAPED - 1 && !memcmp(p, NUL_ESCAPED, sizeof NUL_ESCAPED - 1)) return sizeof NUL_ESCAPED - 1;
    *which = '1';
    if (n >= sizeof MARK_ESCAPED - 1 && !strncasecmp(p, MARK_ESCAPED, sizeof MARK_ESCAPED - 1))
        return sizeof MARK_ESCAPED - 1;
    return n >= 4 && !memcmp(p, mark, 4) ? 4 : 0;
}

/* The end of the string that begins after the quote at p, its closing quote included. */
static const char *string_end(const char *p, const char *end)
{
    while (p < end && *p != '"') p += *p == '\\' && p + 1 < end ? 2 : 1;
    return p < end ? p + 1 : end;
}

static bool is_key(const char *after, const char *end)
{
    while (after < end && strchr(" \t\r\n", *after) && *after) after++;
    return after < end && *after == ':';
}

static void spell(struct str *out, const char *p, const char *end)
{
    while (p < end) {
        char which;
        size_t n = special(p, end, &which);
        if (n) {
            str_puts(out, mark);
            str_putc(out, which);
            p += n;
        } else {
            n = *p == '\\' && p + 1 < end ? 2 : 1;
            str_add(out, p, n);
            p += n;
        }
    }
}

bool json_keys_spell(struct str *out, const char *text, size_t n)
{
    const char *end = text + n, *p = text;
    char which;
    bool any = false;
    for (const char *q = text; q < end && !any; q++) {
        if (*q == '\\' || *q == mark[0]) any = special(q, end, &which) > 0;
    }
    if (!any) return false;
    while (p < end) {
        const char *quote = memchr(p, '"', (size_t)(end - p));
        if (!quote) quote = end - 1;
        str_add(out, p, (size_t)(quote + 1 - p));
        p = quote + 1;
        if (p >= end) break;
        const char *stop = string_end(p, end);
        if (is_key(stop, end)) spell(out, p, stop);
        else str_add(out, p, (size_t)(stop - p));
        p = stop;
    }
    return true;
}

void json_keys_read(struct str *out, const char *spelt)
{
    for (const char *p = spelt;;) {
        const char *m = strstr(p, mark);
        str_add(out, p, m ? (size_t)(m - p) : strlen(p));
        if (!m) return;
        if (m[4] == '0') str_putc(out, 0);
        else str_puts(out, mark);
        p = m[4] ? m + 5 : m + 4;
    }
}
