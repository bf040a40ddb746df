/* SPDX-License-Identifier: Apache-2.0 */
/* byte_level.c: the alphabet by arithmetic instead of a table: a byte is printable or it is the k-th of those
 * that are not.
 */
#include "token/byte_level.h"

#include <stdint.h>

#include "text/utf8.h"

enum { FIRST_STAND_IN = 0x100, N_STAND_INS = 68 };

static bool prints(int byte) { return (byte >= 33 && byte <= 126) || (byte >= 161 && byte != 173); }

/* How many bytes below `byte` do not print: 0..32, then 127..160, then 173. */
static int stand_in_index(int byte)
{
    if (byte <= 32) return byte;
    return byte <= 160 ? 33 + byte - 127 : 67;
}

static int stand_in_byte(int index)
{
    if (index <= 32) return index;
    return index < 67 ? index - 33 + 127 : 173;
}

void byte_level_write(struct str *out, const unsigned char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char utf8[4];
        uint32_t code = prints(p[i]) ? p[i] : (uint32_t)(FIRST_STAND_IN + stand_in_index(p[i]));
        str_add(out, utf8, (size_t)utf8_put(utf8, code));
    }
}

/* The letters have one or two bytes of UTF-8: what is longer is none of them. */
size_t byte_level_bytes(unsigned char *out, const char *text, size_t n)
{
    const unsigned char *p = (const unsigned char *)text, *end = p + n;
    unsigned char *to = out;
    while (p < end) {
        int code = *p++;
        if (code < 0x80) {
            if (code < 33 || code > 126) return SIZE_MAX;
        } else {
            if (code < 0xC2 || code > 0xC5 || p == end) return SIZE_MAX;
            code = (code & 0x1F) << 6 | (*p++ & 0x3F);
            if (code >= FIRST_STAND_IN + N_STAND_INS) return SIZE_MAX;
            if (code >= FIRST_STAND_IN) code = stand_in_byte(code - FIRST_STAND_IN);
            else if (!prints(code)) return SIZE_MAX;
        }
        *to++ = (unsigned char)code;
    }
    return (size_t)(to - out);
}

bool byte_level_read(struct str *out, const char *text, size_t n)
{
    str_add(out, text, n); /* as much as it can become */
    size_t before = out->n - n, got = byte_level_bytes((unsigned char *)out->p + before, text, n);
    out->n = before + (got == SIZE_MAX ? 0 : got);
    if (out->p) out->p[out->n] = 0;
    return got != SIZE_MAX;
}

unsigned char byte_level_letter(int i)
{
    int n_printing = 256 - N_STAND_INS;
    if (i >= n_printing) return (unsigned char)stand_in_byte(i - n_printing);
    for (int byte = 0;; byte++)
        if (prints(byte) && i-- == 0) return (unsigned char)byte;
}
