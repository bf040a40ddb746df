/* SPDX-License-Identifier: Apache-2.0 */
/* byte_level.h: the alphabet of byte-level BPE files, in which every byte is written as one printable character.
 *
 * Bytes that print in Latin-1 (33..126, 161..172, 174..255) stand for themselves; the other 68, in order, are
 * U+0100, U+0101, ... So a space is written U+0120. Includes: libc, base/str.h. Order: Local.
 */
#ifndef TUTTI_TOKEN_BYTE_LEVEL_H
#define TUTTI_TOKEN_BYTE_LEVEL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

/* Adds the bytes p[0..n) in the alphabet. */
void byte_level_write(struct str *out, const unsigned char *p, size_t n);

/* Adds the bytes that valid UTF-8 text in the alphabet stands for; false (out unchanged) when some character is
 * not of the alphabet. */
bool byte_level_read(struct str *out, const char *text, size_t n);

/* The same into out, which has room for n bytes: how many there are, or SIZE_MAX. */
size_t byte_level_bytes(unsigned char *out, const char *text, size_t n);

/* The byte of the i-th letter when letters are ordered by code point, 0 <= i < 256: the order in which trained
 * vocabularies number them. */
unsigned char byte_level_letter(int i);

#endif
