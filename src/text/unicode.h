/* SPDX-License-Identifier: Apache-2.0 */
/* unicode.h: sets of code points by name, the same for every machine: letters, numbers, scripts, word characters, as
 * the `tokenizers` library has them (unicode_table.h), not as the Unicode version of some library here.
 *
 * A set is a list of ranges that are in order and do not touch. Includes: libc only. Order: Local.
 */
#ifndef TUTTI_TEXT_UNICODE_H
#define TUTTI_TEXT_UNICODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define UNICODE_MAX 0x10FFFFu

/* General category and bits of one code point (unicode_table.h). */
uint16_t unicode_kind_of(uint32_t code);

struct range {
    uint32_t lo, hi; /* both included */
};
struct ranges {
    struct range *r;
    int n, room;
};
void ranges_free(struct ranges *s);
void ranges_add(struct ranges *s, uint32_t lo, uint32_t hi); /* in any order; ranges_settle before anything else */
void ranges_settle(struct ranges *s);
void ranges_invert(struct ranges *s);
void ranges_intersect(struct ranges *s, const struct ranges *with);
void ranges_union(struct ranges *s, const struct ranges *with);
bool ranges_has(const struct ranges *s, uint32_t code);

/* The set of a property's name: general categories (L, Lu, Letter is not one), Any, Alpha, Word, scripts ...; letter
 * case, spaces, '-' and '_' in names do not matter. False when the name is not known here. */
bool unicode_property(struct ranges *s, const char *name, size_t n);
/* Adds the code points whose kind has any of these bits. */
void unicode_with(struct ranges *s, uint16_t bits);
void unicode_white_space(struct ranges *s);

#endif
