/* SPDX-License-Identifier: Apache-2.0 */
/* language_table.h: the language model that comes with the program, as language.h writes one; made by
 * scripts/make_languages.py, which says of what text. Includes: libc. */
#ifndef TUTTI_CURATE_LANGUAGE_TABLE_H
#define TUTTI_CURATE_LANGUAGE_TABLE_H

#include <stdint.h>

extern const int language_table_bytes, language_table_words;
extern const uint32_t language_table[]; /* little-endian words, zeros behind the last byte */

#endif
