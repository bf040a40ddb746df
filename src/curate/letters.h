/* SPDX-License-Identifier: Apache-2.0 */
/* letters.h: what filters ask of the characters of a line or word. Includes: libc. Order: Local. */
#ifndef TUTTI_CURATE_LETTERS_H
#define TUTTI_CURATE_LETTERS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum letters {
    LETTERS_MARKS, /* nothing but punctuation, symbols of ASCII and control characters */
    LETTERS_NONE,  /* something else, but no letter: digits, say */
    LETTERS_SOME   /* a letter among them */
};
enum letters letters_of(const char *p, size_t n);

bool letters_is_letter(uint32_t c); /* general categories L */
bool letters_is_digit(uint32_t c);  /* Nd */
bool letters_is_word(uint32_t c);   /* letters, digits, marks, connectors: \w */

size_t letters_space(const char *p, size_t n); /* bytes of the white space at p; 0: none */
size_t letters_trim(const char *p, size_t n);  /* n without the white space at the end */
int64_t letters_count(const char *p, size_t n, const char *what, size_t n_what); /* how often, without overlap */
/* An end of a sentence in any script: . ! ? and their like. */
bool letters_ends_sentence(uint32_t c);
/* The rows of options that several filters have. */
#define FILTER_WORDS "spaces|marks"
#define FILTER_WORDS_DOC "words are what lies between spaces, or letters and digits with every mark a word of its own"

#endif
