/* SPDX-License-Identifier: Apache-2.0 */
/* Folding: at each line, the next lines with the same key and another number are where the block might begin again; the
 * first at which it does is taken, and repeated as far as it goes. Cost: linear for text that repeats; a line that
 * never comes again is looked for among the next LOOK. */
#include "explain/explain_lines.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

enum { LOOK = 4096, TRIES = 8 };

int explain_line_number(const char *name, const char *word)
{
    const char *p = strstr(name, word);
    if (!p) return -1;
    p += strlen(word);
    return isdigit((unsigned char)*p) ? atoi(p) : -1;
}

/* What is left of a line without the numbers that may differ. */
static uint64_t key_of(const char *body)
{
    static const char *const words[] = {"layers.", "layer ", "experts."};
    struct str s = {0};
    for (const char *p = body; *p;) {
        size_t n = 0;
        for (size_t i = 0; !n && i < sizeof words / sizeof *words; i++)
            if (!strncmp(p, words[i], strlen(words[i]))) n = strlen(words[i]);
        str_printf(&s, "%.*s", (int)(n ? n : 1), p);
        p += n ? n : 1;
        while (n && isdigit((unsigned char)*p)) p++;
        while (p[-1] == ' ' && *p == ' ') p++; /* columns move with the width of a number */
    }
    uint64_t key = hash64(str_text(&s), s.n);
    str_free(&s);
    return key;
}

static struct line *push(struct line **p, int *n, int *room)
{
    GROW(*p, *n, *room, 1);
    return &(*p)[(*n)++];
}

void explain_lines_add(struct lines *l, int layer, int expert, const char *prefix, const char *body)
{
    struct line *x = push(&l->p, &l->n, &l->room);
    *x = (struct line){.at = l->text.n, .key = key_of(body), .number = {layer, expert}};
    str_puts(&l->text, prefix);
    str_puts(&l->text, body);
    x->n = l->text.n - x->at;
}

/* Lines a and b are one line about another thing: their numbers along `along` differ by d (both have none: by
 * nothing). */
static bool alike(const struct line *a, const struct line *b, enum line_of along, int d)
{
    enum line_of other = along == LINE_LAYER ? LINE_EXPERT : LINE_LAYER;
    bool none = a->number[along] < 0 && b->number[along] < 0;
    bool moved = none || (a->number[along] >= 0 && b->number[along] - a->number[along] == d);
    return a->key == b->key && a->number[other] == b->number[other] && moved;
}

static int repeats(const struct lines *l, int i, int period, enum line_of along)
{
    int d = l->p[i + period].number[along] - l->p[i].number[along], n = 0;
    for (int at = i; at + 2 * period <= l->n; at += period, n++)
        for (int q = 0; q < period; q++)
            if (!alike(&l->p[at + q], &l->p[at + period + q], along, d)) return n;
    return n;
}

/* How often, and every how many lines, the block that begins at i comes again; 0: it does not. A block begins where a
 * layer does. */
static int find(const struct lines *l, int i, enum line_of along, int *period)
{
    if (l->p[i].number[along] < 0 || (i && l->p[i - 1].number[along] == l->p[i].number[along])) return 0;
    for (int j = i + 1, tries = 0; j < l->n && j < i + LOOK && tries < TRIES; j++) {
        if (l->p[j].key != l->p[i].key || l->p[j].number[along] < 0 || l->p[j].number[along] == l->p[i].number[along])
            continue;
        int n = repeats(l, i, j - i, along);
        tries++;
        *period = j - i;
        if (n && n * *period > 1) return n;
    }
    return 0;
}

/* "... the same for layers 2 to 31". */
static void add_note(struct lines *l, int from, int to, enum line_of along, struct line *note)
{
    int lo = l->p[from].number[along], hi = lo;
    uint64_t key = 1;
    for (int i = from; i < to; i++) {
        int k = l->p[i].number[along];
        if (k >= 0) hi = k;
        key = 31 * key + l->p[i].key;
    }
    *note = (struct line){.at = l->text.n, .number = {l->p[from].number[0], l->p[from].number[1]}, .note = true};
    note->number[along] = along == LINE_LAYER ? l->p[from].number[along] : -1;
    const char *noun = along == LINE_LAYER ? "layer" : "expert";
    str_printf(&l->text, "     ... the same for %s%s %d", noun, lo == hi ? "" : "s", lo);
    if (lo != hi) str_printf(&l->text, " to %d", hi);
    note->n = l->text.n - note->at;
    note->key = key + (uint64_t)hi * 1000003u * (along == LINE_EXPERT) + (uint64_t)lo * (along == LINE_EXPERT);
}

void explain_lines_fold(struct lines *l, enum line_of along)
{
    struct line *out = NULL;
    int n = 0, room = 0, period = 0;
    for (int i = 0; i < l->n;) {
        int again = find(l, i, along, &period);
        for (int q = 0; q < (again ? period : 1); q++) {
            struct line x = l->p[i + q];
            *push(&out, &n, &room) = x;
        }
        if (again) {
            struct line note;
            add_note(l, i + period, i + period * (again + 1), along, &note);
            *push(&out, &n, &room) = note;
        }
        i += again ? period * (again + 1) : 1;
    }
    xfree(l->p);
    l->p = out;
    l->n = n;
    l->room = room;
}

static void put_indent(int indent, struct str *out)
{
    for (int i = 0; i < indent; i++) str_putc(out, ' ');
}

/* Where to break text of n bytes so that at most `columns` come first: at the last blank that is not its indentation;
 * if there is none, in the middle of a word. */
static size_t break_at(const char *p, size_t n, size_t columns)
{
    if (n <= columns) return n;
    size_t first = strspn(p, " ");
    for (size_t k = columns; k > first; k--)
        if (p[k] == ' ') return k;
    return columns;
}

static void wrap_line(const char *p, size_t n, int columns, int indent, struct str *out)
{
    size_t room = (size_t)columns;
    for (bool first = true; first || n; first = false) {
        if (!first) put_indent(indent, out);
        size_t k = columns ? break_at(p, n, room) : n, end = k;
        while (end && p[end - 1] == ' ') end--;
        str_printf(out, "%.*s\n", (int)end, p);
        p += k;
        n -= k;
        while (n && *p == ' ') p++, n--;
        room = (size_t)(columns - indent);
    }
}

void explain_lines_print(struct lines *l, int columns, int indent, struct str *out)
{
    for (int i = 0; i < l->n; i++) wrap_line(str_text(&l->text) + l->p[i].at, l->p[i].n, columns, indent, out);
    l->n = 0;
    l->text.n = 0;
}

void explain_lines_free(struct lines *l)
{
    str_free(&l->text);
    xfree(l->p);
    *l = (struct lines){0};
}

void explain_lines_wrap(const char *text, int columns, int indent, struct str *out)
{
    while (*text) {
        size_t n = strcspn(text, "\n");
        wrap_line(text, n, columns, indent, out);
        text += n + (text[n] == '\n');
    }
}
