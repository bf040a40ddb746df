/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shown.h"

#include <string.h>

bool shown_spelt(uint32_t c)
{
    return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

/* The character at p, of which n bytes are there; 0: none that is whole and valid. */
static int character(const char *p, size_t n, uint32_t *c)
{
    char own[5] = {0};
    memcpy(own, p, n < 4 ? n : 4);
    *c = 0;
    return *own ? str_utf8(own, c) : 1;
}

void shown_put(struct str *out, const char *p, size_t n, bool newlines)
{
    for (size_t i = 0; i < n;) {
        uint32_t c;
        int len = character(p + i, n - i, &c);
        if (!len) str_printf(out, "\\x%02x", (unsigned)(unsigned char)p[i]);
        else if (c == '\n') str_puts(out, newlines ? "\n" : "\\n");
        else if (c == '\t' && newlines) str_putc(out, '\t');
        else if (shown_spelt(c)) str_printf(out, c < 0x100 ? "\\x%02x" : "\\u%04x", (unsigned)c);
        else str_add(out, p + i, (size_t)len);
        i += len ? (size_t)len : 1;
    }
}

size_t shown_rest(const char *p, size_t n)
{
    for (size_t k = 1; k <= 3 && k <= n; k++) {
        unsigned char c = (unsigned char)p[n - k];
        if (c >= 0xF0 && c < 0xF5) return k < 4 ? k : 0;
        if (c >= 0xE0 && c < 0xF0) return k < 3 ? k : 0;
        if (c >= 0xC2 && c < 0xE0) return k < 2 ? k : 0;
        if ((c & 0xC0) != 0x80) return 0;
    }
    return 0;
}
