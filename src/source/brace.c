/* SPDX-License-Identifier: Apache-2.0 */
/* brace.c: the first braces are expanded, and each of the results again, up to names without any. */
#include "source/brace.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { DIGITS_MAX = 15 };

struct list {
    char **p;
    int64_t n, room;
};

bool brace_has(const char *pattern)
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    return close && (memchr(open, ',', (size_t)(close - open)) || strstr(open, "..") != NULL);
}

void brace_free(char **names, int64_t n)
{
    for (int64_t i = 0; i < n; i++) xfree(names[i]);
    xfree(names);
}

static int wrong(const char *pattern, const char *why, struct err *e)
{
    return err_set(e, ERR_REQUEST, "%s: %s; write shard-{000..099}.tar for a hundred shards, or {a,b} for two", pattern,
                   why);
}

static int expand(struct list *l, const char *pattern, const char *whole, struct err *e);

/* before + middle + after, expanded further. */
static int put(struct list *l, const char *pattern, const char *open, const char *middle, size_t n, const char *after,
               const char *whole, struct err *e)
{
    struct str s = {0};
    str_add(&s, pattern, (size_t)(open - pattern));
    str_add(&s, middle, n);
    str_puts(&s, after);
    int code = expand(l, str_text(&s), whole, e);
    str_free(&s);
    return code;
}

/* Digits only, DIGITS_MAX at most. */
static bool number(const char *p, size_t n, int64_t *v)
{
    *v = 0;
    for (size_t i = 0; i < n; i++) {
        if (p[i] < '0' || p[i] > '9') return false;
        *v = 10 * *v + (p[i] - '0');
    }
    return n > 0 && n <= DIGITS_MAX;
}

static int expand_range(struct list *l, const char *pattern, const char *open, const char *close, const char *whole,
                        struct err *e)
{
    const char *dots = strstr(open, "..");
    int64_t from, to;
    size_t digits = (size_t)(dots - open) - 1;
    if (!number(open + 1, digits, &from) || !number(dots + 2, (size_t)(close - dots) - 2, &to))
        return wrong(whole, "{A..B} wants two whole numbers", e);
    if (llabs(to - from) >= BRACE_NAMES_MAX) return wrong(whole, "stands for more than a million names", e);
    int code = OK;
    for (int64_t i = from, step = from <= to ? 1 : -1; !code; i += step) {
        struct str middle = {0};
        str_printf(&middle, "%0*lld", (int)digits, (long long)i);
        code = put(l, pattern, open, middle.p, middle.n, close + 1, whole, e);
        str_free(&middle);
        if (i == to) break;
    }
    return code;
}

static int expand(struct list *l, const char *pattern, const char *whole, struct err *e)
{
    const char *open = strchr(pattern, '{'), *close = open ? strchr(open, '}') : NULL;
    if (!open) {
        if (l->n == BRACE_NAMES_MAX) return wrong(whole, "stands for more than a million names", e);
        GROW(l->p, l->n, l->room, 1);
        l->p[l->n++] = xstrdup(pattern);
        return OK;
    }
    if (!close) return wrong(whole, "{ is not closed by }", e);
    const char *dots = strstr(open, "..");
    if (dots && dots < close) return expand_range(l, pattern, open, close, whole, e);
    int code = OK;
    for (const char *p = open + 1; p <= close && !code;) {
        size_t n = strcspn(p, ",}");
        code = put(l, pattern, open, p, n, close + 1, whole, e);
        p += n + 1;
    }
    return code;
}

int brace_expand(const char *pattern, char ***names, int64_t *n, struct err *e)
{
    struct list l = {0};
    int code = expand(&l, pattern, pattern, e);
    if (code) {
        brace_free(l.p, l.n);
        l = (struct list){0};
    }
    *names = l.p;
    *n = l.n;
    return code;
}
