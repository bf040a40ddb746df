/* SPDX-License-Identifier: Apache-2.0 */
/* advice.h: what a refusal of a configuration says to do, read as a user would read it, and done.
 *
 *     command line: parallel.cp: KEYS cannot be ...; choose 2 (-n 4), or precision.recipe: bf16 and comm.param: kept
 *     WHERE         KEY          why                 alternatives
 *
 * An alternative is one of
 *
 *     VALUE               of the refused key; also "at most VALUE", "VALUE or more", "the nearest that fits is VALUE",
 *                         "one of these such as VALUE"
 *     KEY: VALUE          of another one
 *     leave it out        the refused key, or "leave KEY out"; of a list a word of it: "leave params out"
 *     start N ranks (-n)
 *
 * joined by "and"; what else there is to say stands in brackets behind it, of which (-n N) is a number of ranks.
 * Whatever cannot be read so is no advice that works for anybody: advice_read says why. */
#ifndef TUTTI_TESTS_ADVICE_H
#define TUTTI_TESTS_ADVICE_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "config/config.h"

enum { ADVICE_MOST = 8, ADVICE_STEPS = 8 };
struct advice_change {
    char key[80], value[200]; /* value "": the key is left out, or `less`, a word of its list */
    char less[40];
};
struct advice_way {
    struct advice_change change[ADVICE_STEPS];
    int n, ranks; /* 0: as many as there were */
};
struct advice {
    char key[80]; /* that is refused */
    struct advice_way way[ADVICE_MOST];
    int n;
};

static inline bool advice_is_key(const char *text)
{
    const struct conf_row *r = config_rows;
    while (r->path && strcmp(r->path, text)) r++;
    return r->path != NULL || !strncmp(text, "precision.layers[", 17);
}

/* Whether a number is one. */
static inline bool advice_fits(const char *key, const char *value)
{
    const struct conf_row *r = config_rows;
    char *end = NULL;
    while (r->path && strcmp(r->path, key)) r++;
    if (!r->path || (r->type != CONF_INT && r->type != CONF_REAL)) return true;
    strtod(value, &end);
    return end != value && !*end;
}

/* Where the next of `words` begins, outside of brackets and quotes; the end of the text: nowhere. */
static inline const char *advice_cut(const char *t, const char *const *words, size_t *n)
{
    int depth = 0;
    bool quoted = false;
    for (; *t; t++) {
        if (*t == '"') quoted = !quoted;
        if (!quoted) depth += (strchr("([{", *t) != NULL) - (strchr(")]}", *t) != NULL);
        for (int i = 0; !depth && !quoted && words[i]; i++)
            if (!strncmp(t, words[i], strlen(words[i]))) {
                *n = strlen(words[i]);
                return t;
            }
    }
    *n = 0;
    return t;
}

static inline bool advice_begins(const char **t, const char *with)
{
    size_t n = strlen(with);
    if (strncmp(*t, with, n)) return false;
    *t += n;
    return true;
}

/* "2 (-n 4)": what stands in brackets behind it is taken off. */
static inline void advice_brackets(char *t, struct advice_way *w)
{
    size_t n = strlen(t);
    while (n && t[n - 1] == ' ') t[--n] = 0;
    char *open = strrchr(t, '(');
    if (!open || open == t || t[n - 1] != ')' || open[-1] != ' ') return;
    sscanf(open, "(-n %d)", &w->ranks);
    open[-1] = 0;
    advice_brackets(t, w);
}

/* One change: "VALUE", "KEY: VALUE", "leave X out". */
static inline bool advice_change(const char *t, const char *refused, struct advice_way *w, char why[200])
{
    static const char *const before[] = {"choose ",
                                         "some of ",
                                         "give these layers ",
                                         "at most ",
                                         "at least ",
                                         "the nearest that fits is ",
                                         "the nearest that does is ",
                                         "that is "};
    struct advice_change *c = &w->change[w->n];
    char word[200];
    int n = 0, at = 0;
    snprintf(c->key, sizeof c->key, "%.79s", refused);
    c->value[0] = c->less[0] = 0;
    for (size_t i = 0; i < sizeof before / sizeof *before; i++)
        if (advice_begins(&t, before[i])) i = (size_t)-1;
    if (sscanf(t, "start %d ranks%n", &n, &at) == 1 && at && !t[at]) {
        w->ranks = n;
        return true;
    }
    if (advice_begins(&t, "leave ")) {
        size_t len = strlen(t);
        if (len < 4 || strcmp(t + len - 4, " out")) return snprintf(why, 200, "'%.150s'", t), false;
        snprintf(word, sizeof word, "%.*s", (int)(len - 4), t);
        w->n++;
        if (!strcmp(word, "it")) return true;
        if (advice_is_key(word)) snprintf(c->key, sizeof c->key, "%.79s", word);
        else if (strchr(word, ' ')) return snprintf(why, 200, "'%.150s' is no key, and no word of a list", word), false;
        else snprintf(c->less, sizeof c->less, "%.39s", word);
        return true;
    }
    const char *colon = strstr(t, ": "), *such = strstr(t, " such as ");
    if (such) t = such + 9;
    if (colon && colon - t < 79) {
        snprintf(word, sizeof word, "%.*s", (int)(colon - t), t);
        if (!advice_is_key(word)) return snprintf(why, 200, "'%.150s' is no key", word), false;
        snprintf(c->key, sizeof c->key, "%.79s", word);
        t = colon + 2;
    }
    snprintf(word, sizeof word, "%.199s", t);
    size_t len = strlen(word);
    if (len > 8 && !strcmp(word + len - 8, " or more")) word[len - 8] = 0;
    char *to = strstr(word, " to ");
    if (to && strspn(word, "0123456789") == (size_t)(to - word)) *to = 0; /* 1 to 4: the first of them */
    if (!*word || (strchr(word, ' ') && !strchr("[{\"", *word)) || !advice_fits(c->key, word))
        return snprintf(why, 200, "'%.150s' is no value", word), false;
    snprintf(c->value, sizeof c->value, "%.199s", word);
    w->n++;
    return true;
}

/* false: it is none that could be followed, *why says of what. */
static inline bool advice_read(const char *text, struct advice *a, char why[200])
{
    static const char *const begins[] = {"; choose ", "; leave ", "; the nearest that ", "; give these layers ",
                                         "; start ",  NULL},
                             *const parts[] = {", or ", " or ", ", ", NULL}, *const joins[] = {" and ", NULL};
    char key[80] = "", rest[600], one[300], two[300];
    size_t n;
    *a = (struct advice){0};
    const char *colon = strstr(text, ": ");
    if (!colon) return snprintf(why, 200, "no place"), false;
    colon += 2;
    snprintf(key, sizeof key, "%.*s", (int)strcspn(colon, ": "), colon);
    if (!advice_is_key(key)) return snprintf(why, 200, "'%.79s' is no key", key), false;
    memcpy(a->key, key, sizeof key);
    const char *from = advice_cut(colon, begins, &n);
    if (!*from) return snprintf(why, 200, "no '; choose', no '; leave'"), false;
    snprintf(rest, sizeof rest, "%.599s", from + 2);
    for (const char *t = rest; *t;) {
        const char *end = advice_cut(t, parts, &n);
        if (!strncmp(end, " or more", 8)) end = advice_cut(end + 8, parts, &n);
        snprintf(one, sizeof one, "%.*s", (int)(end - t), t);
        t = end + n;
        if (a->n == ADVICE_MOST) return snprintf(why, 200, "more than %d ways", ADVICE_MOST), false;
        struct advice_way *w = &a->way[a->n++];
        advice_brackets(one, w);
        for (const char *s = one; *s;) {
            const char *stop = advice_cut(s, joins, &n);
            snprintf(two, sizeof two, "%.*s", (int)(stop - s), s);
            s = stop + n;
            if (w->n == ADVICE_STEPS) return snprintf(why, 200, "more than %d changes", ADVICE_STEPS), false;
            if (!advice_change(two, key, w, why)) return false;
        }
    }
    return a->n > 0;
}

/* Of "[a, b]" the word is taken out. */
static inline const char *advice_less(struct arena *a, const char *list, const char *word)
{
    char *out = arena_alloc(a, strlen(list) + 3);
    strcpy(out, "[");
    for (const char *t = list + strspn(list, "[ "); *t && *t != ']';) {
        size_t n = strcspn(t, ",] ");
        if (n != strlen(word) || strncmp(t, word, n)) {
            if (out[1]) strcat(out, ",");
            strncat(out, t, n);
        }
        t += n;
        t += strspn(t, ", ");
    }
    return strcat(out, "]");
}

/* Of precision.layers={PATTERN: RECIPE}, one item, another recipe. */
static inline const char *advice_item(struct arena *a, const char *map, const char *value)
{
    const char *colon = strrchr(map, ':');
    return colon ? arena_printf(a, "%.*s: %s}", (int)(colon - map), map, value) : value;
}

/* Words "key=value" with a way gone; returns how many there are then. `most`: room. */
static inline int advice_follow(const struct advice_way *w, struct arena *a, char **words, int n, int most, int *ranks)
{
    for (int i = 0; i < w->n; i++) {
        const struct advice_change *c = &w->change[i];
        const bool item = !strncmp(c->key, "precision.layers[", 17);
        const char *key = item ? "precision.layers" : c->key, *was = "";
        size_t len = strlen(key);
        int k = 0;
        for (int at = 0; at < n; at++) {
            bool is = !strncmp(words[at], key, len) && words[at][len] == '=';
            if (is) was = words[at] + len + 1;
            else words[k++] = words[at];
        }
        n = k;
        const char *to = *c->less ? advice_less(a, was, c->less) : item ? advice_item(a, was, c->value) : c->value;
        CHECK(n < most, "more than %d words", most);
        if (*to) words[n++] = arena_printf(a, "%s=%s", key, to);
    }
    if (w->ranks) *ranks = w->ranks;
    return n;
}

#endif
