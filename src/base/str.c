/* SPDX-License-Identifier: Apache-2.0 */
/* str.c: growing strings, nearest words, numbers for people.
 *
 * A str doubles when it is full, so n bytes cost O(n) copies in all. The edit distance keeps one row of the
 * classical table: |a|*|b| steps, |b| ints; words here are config keys and file names, so nothing cleverer pays.
 */
#include "base/str.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/mem.h"

/* Room for n more bytes and the NUL. */
static void str_reserve(struct str *s, size_t n)
{
    size_t want;
    CHECK(!size_add(s->n, n, &want) && want < SIZE_MAX / 2, "a string of %zu and %zu bytes", s->n, n);
    GROW(s->p, s->n, s->room, n + 1);
}

void str_free(struct str *s)
{
    xfree(s->p);
    *s = (struct str){0};
}

void str_clear(struct str *s)
{
    s->n = 0;
    if (s->p) s->p[0] = 0;
}

void str_add(struct str *s, const void *p, size_t n)
{
    str_reserve(s, n);
    if (n) memcpy(s->p + s->n, p, n);
    s->n += n;
    s->p[s->n] = 0;
}

void str_puts(struct str *s, const char *t) { str_add(s, t, strlen(t)); }

void str_putc(struct str *s, char c) { str_add(s, &c, 1); }

void str_printf(struct str *s, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    CHECK(n >= 0, "bad format '%s'", fmt);
    str_reserve(s, (size_t)n);
    vsnprintf(s->p + s->n, (size_t)n + 1, fmt, again);
    va_end(again);
    s->n += (size_t)n;
}

const char *str_text(const struct str *s) { return s->p ? s->p : ""; }

bool str_ends(const char *s, const char *suffix)
{
    size_t n = strlen(s), k = strlen(suffix);
    return k <= n && memcmp(s + n - k, suffix, k) == 0;
}

bool str_starts(const char *s, const char *prefix) { return strncmp(s, prefix, strlen(prefix)) == 0; }

int str_utf8(const char *p, uint32_t *c)
{
    static const uint32_t smallest[5] = {0, 0, 0x80, 0x800, 0x10000}; /* below it, the form is overlong */
    const unsigned char *b = (const unsigned char *)p;
    int n = b[0] < 0x80 ? 1 : b[0] < 0xC0 ? 0 : b[0] < 0xE0 ? 2 : b[0] < 0xF0 ? 3 : b[0] < 0xF8 ? 4 : 0;
    uint32_t v = n < 2 ? b[0] : b[0] & (0x7Fu >> n);
    for (int i = 1; i < n; i++) {
        if ((b[i] & 0xC0) != 0x80) return 0; /* a NUL stops here, before the end is passed */
        v = v << 6 | (b[i] & 0x3Fu);
    }
    if (n == 0 || v < smallest[n] || (v >= 0xD800 && v < 0xE000) || v > 0x10FFFF) return 0;
    if (c) *c = v;
    return n;
}

static int least(int a, int b) { return a < b ? a : b; }

int str_distance(const char *a, const char *b)
{
    size_t n = strlen(b);
    int *row = xcalloc(n + 1, sizeof *row); /* row[j]: distance of the part of a seen so far to b[0..j) */
    for (size_t j = 0; j <= n; j++) row[j] = (int)j;
    for (; *a; a++) {
        int diagonal = row[0]++;
        for (size_t j = 1; j <= n; j++) {
            int replaced = diagonal + (*a != b[j - 1]);
            diagonal = row[j];
            row[j] = least(replaced, least(row[j], row[j - 1]) + 1);
        }
    }
    int d = row[n];
    xfree(row);
    return d;
}

/* fp16 and fp32, h100 and h200: names that differ in their numbers alone are two things, not one mistyped. */
static bool differ_in_numbers_alone(const char *a, const char *b)
{
    static const char digits[] = "0123456789";
    for (;; a++, b++) {
        a += strspn(a, digits);
        b += strspn(b, digits);
        if (*a != *b) return false;
        if (!*a) return true;
    }
}

const char *str_nearest(const char *word, const char *const *words, int n)
{
    /* Near: one edit for every three letters. More, and the suggestion reads as a non sequitur. */
    int best = ((int)strnlen(word, 1000) + 2) / 3 + 1;
    const char *nearest = NULL;
    for (int i = 0; i < n; i++) {
        int d = str_distance(word, words[i]);
        if (d >= best || (d && differ_in_numbers_alone(word, words[i]))) continue;
        best = d;
        nearest = words[i];
    }
    return nearest;
}

/* v in the largest of n units (each `step` times the one before) that leaves at least 1 before the point, with
 * one decimal below 100 unless it is a whole number of the smallest unit. */
static char *in_units(char out[32], double v, double step, const char *const *units, int n, const char *gap)
{
    int u = 0;
    while (u + 1 < n && fabs(v) >= step) {
        v /= step;
        u++;
    }
    int decimals = fabs(v) < 99.95 && (u > 0 || v != floor(v));
    snprintf(out, 32, "%.*f%s%s", decimals, v, gap, units[u]);
    return out;
}

char *str_bytes(char out[32], double bytes)
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return in_units(out, bytes, 1024, units, 7, " ");
}

int str_to_bytes(const char *text, double *bytes)
{
    static const char prefix[] = "kMGTPE";
    double unit = 1;
    char *end;
    if (text[0] < '0' || text[0] > '9' || !strncmp(text, "0x", 2) || !strncmp(text, "0X", 2)) return -1;
    double n = strtod(text, &end);
    while (*end == ' ') end++;
    char first = *end == 'K' ? 'k' : *end;
    const char *at = first ? strchr(prefix, first) : NULL;
    if (at) {
        bool binary = end[1] == 'i';
        for (const char *p = prefix; p <= at; p++) unit *= binary ? 1024 : 1000;
        end += binary ? 2 : 1;
    }
    if (at ? strcmp(end, "B") != 0 : *end && strcmp(end, "B") != 0) return -1;
    *bytes = n * unit;
    return isfinite(*bytes) && *bytes > 0 ? 0 : -1;
}

char *str_count(char out[32], double v)
{
    static const char *const units[] = {"", "k", "M", "G", "T", "P", "E"};
    return in_units(out, v, 1000, units, 7, "");
}

char *str_flops(char out[32], double v)
{
    static const char *const units[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP", "ZFLOP", "YFLOP"};
    return in_units(out, v, 1000, units, 9, " ");
}

char *str_duration(char out[32], double s)
{
    if (!(s >= 0) || s > 1e10) snprintf(out, 32, "?");
    else if (s < 0.9995) snprintf(out, 32, "%.0fms", s * 1000);
    else if (s < 59.95) snprintf(out, 32, "%.1fs", s);
    else if (s < 3599.5) snprintf(out, 32, "%dm %02ds", (int)(s + 0.5) / 60, (int)(s + 0.5) % 60);
    else if (s < 86400 - 30) snprintf(out, 32, "%dh %02dm", (int)((s + 30) / 3600), (int)((s + 30) / 60) % 60);
    else snprintf(out, 32, "%dd %02dh", (int)((s + 1800) / 86400), (int)fmod((s + 1800) / 3600, 24));
    return out;
}
