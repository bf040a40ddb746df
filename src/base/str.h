/* SPDX-License-Identifier: Apache-2.0 */
/* str.h: growing strings and small text helpers. Order: Local. */
#ifndef TUTTI_BASE_STR_H
#define TUTTI_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct str {
    char *p; /* NUL-terminated once anything was added, else NULL */
    size_t n, room;
};
void str_free(struct str *s);
void str_clear(struct str *s);
void str_add(struct str *s, const void *p, size_t n);
void str_puts(struct str *s, const char *t);
void str_putc(struct str *s, char c);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
const char *str_text(const struct str *s); /* "" when empty */

bool str_ends(const char *s, const char *suffix);
bool str_starts(const char *s, const char *prefix);
/* The UTF-8 character at p (NUL-terminated text): its length, 1 to 4, and its code point in *c (may be NULL). 0:
 * no valid character begins here (stray byte, overlong form, surrogate, beyond U+10FFFF). */
int str_utf8(const char *p, uint32_t *c);
/* Edit distance (Levenshtein), for "did you mean". */
int str_distance(const char *a, const char *b);
/* The nearest of n words, or NULL when none is near. */
const char *str_nearest(const char *word, const char *const *words, int n);
/* Sizes: "1.5 GiB", "340 MiB", "512 B", always in binary units; out must hold 32 chars. Only rates of links are decimal
 * (GB/s). */
char *str_bytes(char out[32], double bytes);
/* And back: a decimal number, nothing or a unit from B to EiB behind it, or kB, MB ... of thousands; 0, or -1 for what
 * is no size, or no positive finite one. */
int str_to_bytes(const char *text, double *bytes);
/* "12.3k", "1.2M", "3.4G" decimal. */
char *str_count(char out[32], double v);
/* Work: "12.7 PFLOP", decimal, a multiply-add is 2. A rate is this and "/s". */
char *str_flops(char out[32], double v);
/* "1h 02m", "3m 10s", "4.2s". */
char *str_duration(char out[32], double s);

#endif
