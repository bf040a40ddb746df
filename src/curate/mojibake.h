/* SPDX-License-Identifier: Apache-2.0 */
/* mojibake.h: text whose bytes were read in the wrong encoding: UTF-8 that somebody took for Windows-1252 or Latin-1
 * ("caf\u00C3\u00A9" for "caf\u00E9"), and bytes of Windows-1252 among UTF-8. Includes: base. Order: Local. */
#ifndef TUTTI_CURATE_MOJIBAKE_H
#define TUTTI_CURATE_MOJIBAKE_H

#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

/* The character of a byte in Windows-1252; the five bytes that have none are those of Latin-1. */
uint32_t cp1252_char(unsigned char byte);
/* And back; -1: none. Takes the control characters U+0080 to U+009F of Latin-1, too. */
int cp1252_byte(uint32_t c);

/* Adds the valid UTF-8 p[0..n) to out with what was read wrongly mended; how many characters were made. */
int64_t mojibake_mend(const char *p, size_t n, struct str *out);
/* Adds p[0..n) with bytes that are no UTF-8 read as Windows-1252; how many there were. */
int64_t mojibake_bytes(const char *p, size_t n, struct str *out);

#endif
