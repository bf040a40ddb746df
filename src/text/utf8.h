/* SPDX-License-Identifier: Apache-2.0 */
/* utf8.h: finding out where text is valid UTF-8, and where white space is.
 *
 * Valid means RFC 3629: shortest forms only, no surrogates, nothing above U+10FFFF. Includes: libc only.
 * Order: Local.
 */
#ifndef TUTTI_TEXT_UTF8_H
#define TUTTI_TEXT_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of the character at p[0..n), n >= 1: 1 to 4; 0 when it is invalid; -1 when p[0..n) is a proper beginning
 * of a valid character, so that more bytes would decide. */
int utf8_char(const unsigned char *p, size_t n);

/* The longest prefix of p[0..n) that is valid UTF-8 and ends with a whole character, in bytes. */
size_t utf8_run(const unsigned char *p, size_t n);

/* How many bytes of ASCII p[0..n) begins with. */
size_t utf8_ascii(const unsigned char *p, size_t n);

/* Bytes of the white space character (Unicode property White_Space) at p[0..n), 0 when it is none. */
int utf8_space(const unsigned char *p, size_t n);

/* Where the white space that ends at p[n) begins: p[result..n) is white space, as much as there is. */
size_t utf8_space_before(const unsigned char *p, size_t n);

/* Writes the code point as UTF-8, returns 1 to 4. The code point is valid. */
int utf8_put(unsigned char out[4], uint32_t code);

/* Code point of the valid character at p; *len gets its bytes. */
uint32_t utf8_code(const unsigned char *p, int *len);

/* The largest cut <= at that does not fall inside a character of the valid text p[0..). */
static inline size_t utf8_cut(const unsigned char *p, size_t at)
{
    while (at > 0 && (p[at] & 0xC0) == 0x80) at--;
    return at;
}

#endif
