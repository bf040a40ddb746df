/* SPDX-License-Identifier: Apache-2.0 */
/* unicode_table.h: what kind of character each code point is, as the `tokenizers` library has it. The table is made by
 * scripts/make_unicode.py, which puts every code point through that library; unicode.h is the way to ask it.
 *
 * A run i holds the code points unicode_from[i] .. unicode_from[i + 1] - 1. Surrogates count as not assigned.
 * Includes: libc only.
 */
#ifndef TUTTI_TEXT_UNICODE_TABLE_H
#define TUTTI_TEXT_UNICODE_TABLE_H

#include <stdint.h>

/* Low five bits of a run's kind: its general category. */
enum unicode_category {
    UNI_CN,
    UNI_LU,
    UNI_LL,
    UNI_LT,
    UNI_LM,
    UNI_LO,
    UNI_MN,
    UNI_MC,
    UNI_ME,
    UNI_ND,
    UNI_NL,
    UNI_NO,
    UNI_PC,
    UNI_PD,
    UNI_PS,
    UNI_PE,
    UNI_PI,
    UNI_PF,
    UNI_PO,
    UNI_SM,
    UNI_SC,
    UNI_SK,
    UNI_SO,
    UNI_ZS,
    UNI_ZL,
    UNI_ZP,
    UNI_CC,
    UNI_CF,
    UNI_CO
};
/* The bits above. Oniguruma's \w and Rust's differ (joiners, circled letters); added tokens ask Rust's. */
enum {
    UNI_WORD = 1 << 5,
    UNI_ALPHA = 1 << 6,
    UNI_UPPER = 1 << 7,
    UNI_LOWER = 1 << 8,
    UNI_PUNCT = 1 << 9,
    UNI_RUST_WORD = 1 << 10,
    UNI_RUST_NUMERIC = 1 << 11
};

extern const char unicode_made_from[]; /* name and version of the library that was measured */
extern const int unicode_n_runs;
extern const uint32_t unicode_from[];
extern const uint16_t unicode_kind[];
extern const uint8_t unicode_script[]; /* 0: a script without a name here; else index + 1 */
extern const char *const unicode_scripts[];
extern const int unicode_n_scripts;

#endif
