/* SPDX-License-Identifier: Apache-2.0 */
/* jinja_format.c: Python's two ways to put values into a text: "%s" % v, and "{}".format(v). What is not known here
 * (conversions of "{}", other kinds of "%") is refused. */
#include <stdio.h>
#include <string.h>

#include "jinja/jinja_run.h"

enum { WIDTH_MAX = 1000, DIGITS_MAX = 60 };

/* -- % -------------------------------------------------------------------------------------------------------- */

struct spec {
    char flags[8], kind;
    int width, precision; /* precision -1: none */
};

static bool digits(struct jtext t, size_t *i, int *out, int most)
{
    for (*out = 0; *i < t.n && t.p[*i] >= '0' && t.p[*i] <= '9'; ++*i) {
        *out = *out * 10 + (t.p[*i] - '0');
        if (*out > most) return false;
    }
    return true;
}

/* Behind "%", with the kind. */
static bool read_spec(struct jrun *r, const struct jnode *at, struct jtext t, size_t *i, struct spec *s)
{
    size_t n = 0;
    *s = (struct spec){.precision = -1};
    while (*i < t.n && n < sizeof s->flags - 1 && t.p[*i] && strchr("-+ 0", t.p[*i])) s->flags[n++] = t.p[(*i)++];
    bool good = digits(t, i, &s->width, WIDTH_MAX);
    if (good && *i < t.n && t.p[*i] == '.') {
        ++*i;
        good = digits(t, i, &s->precision, DIGITS_MAX);
    }
    if (good && *i < t.n && t.p[*i] && strchr("srdifx%", t.p[*i])) {
        s->kind = t.p[(*i)++];
        return true;
    }
    jfail(r, at, "formatting by %%: %%s, %%r, %%d, %%i, %%f, %%x and %%%% are known here");
    return false;
}

static void put_padded(struct jbuild *b, struct jtext t, const struct spec *s)
{
    int64_t have = 0;
    for (size_t i = 0; i < t.n; i++) have += ((unsigned char)t.p[i] & 0xC0) != 0x80;
    bool left = strchr(s->flags, '-') != NULL;
    for (int64_t i = have; !left && i < s->width; i++) jbuild_puts(b, " ");
    jbuild_add(b, t);
    for (int64_t i = have; left && i < s->width; i++) jbuild_puts(b, " ");
}

static void put_number(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct spec *s,
                       const struct jv *v)
{
    char format[40], text[WIDTH_MAX + 400];
    if (!jv_is_number(v) || (s->kind == 'x' && v->kind == JV_REAL)) {
        jfail(r, at, "%%%c of a %s", s->kind, jv_type(v));
        return;
    }
    bool whole = s->kind != 'f';
    if (whole && v->kind == JV_REAL && !(v->r > -9e18 && v->r < 9e18)) {
        jfail(r, at, "a number beyond 64 bits");
        return;
    }
    if (whole && s->precision >= 0) {
        jfail(r, at, "%%%c with a precision is not known here", s->kind);
        return;
    }
    int64_t i = !whole ? 0 : v->kind == JV_REAL ? (int64_t)v->r : jv_as_int(v);
    if (s->kind == 'x' && i < 0) {
        jfail(r, at, "%%x of a number below 0 is not known here");
        return;
    }
    snprintf(format, sizeof format, "%%%s*%s", s->flags, whole ? s->kind == 'x' ? "llx" : "lld" : ".*f");
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    if (whole) snprintf(text, sizeof text, format, s->width, (long long)i);
    else snprintf(text, sizeof text, format, s->width, s->precision < 0 ? 6 : s->precision, jv_as_real(v));
#pragma GCC diagnostic pop
    jbuild_puts(b, text);
}

static void put_one(struct jrun *r, const struct jnode *at, struct jbuild *b, const struct spec *s, const struct jv *v)
{
    if (s->kind != 's' && s->kind != 'r') {
        put_number(r, at, b, s, v);
        return;
    }
    struct jbuild own = {0};
    if (s->kind == 'r') jprint_repr(r, at, &own, v);
    else jprint(r, at, &own, v);
    struct jv text = jdone(r, at, &own);
    if (text.kind != JV_TEXT) return;
    if (s->precision >= 0) text.text = jtext_part(text.text, 0, jtext_at(&r->work, text.text, s->precision));
    put_padded(b, text.text, s);
}

struct jv jformat_percent(struct jrun *r, const struct jnode *at, struct jtext t, const struct jv *v)
{
    struct jbuild b = {0};
    struct jv one = *v;
    struct jlist all = v->kind == JV_TUPLE ? v->list : (struct jlist){.item = &one, .n = 1};
    int64_t used = 0;
    if (t.safe) return jfail(r, at, "formatting of a text that is marked safe is not known here");
    for (size_t i = 0; i < t.n && !r->code && b.text.n <= JINJA_BYTES;) {
        const char *hit = memchr(t.p + i, '%', t.n - i);
        size_t end = hit ? (size_t)(hit - t.p) : t.n;
        struct spec s;
        jbuild_add(&b, jtext_part(t, i, end));
        i = end + 1;
        if (!hit || !jspend(r, at, 16) || !read_spec(r, at, t, &i, &s)) break;
        if (s.kind == '%') jbuild_puts(&b, "%");
        else if (used == all.n) jfail(r, at, "formatting by %%: %lld values are too few", (long long)all.n);
        else put_one(r, at, &b, &s, &all.item[used++]);
    }
    if (used < all.n && (v->kind == JV_TUPLE || v->kind != JV_MAP)) /* Python lets a dict be there for nothing */
        jfail(r, at, "formatting by %%: %lld values are too many", (long long)all.n);
    return jdone(r, at, &b);
}

/* -- {} ------------------------------------------------------------------------------------------------------- */

/* The argument that `name` (the text between the braces) says; automatic ones are counted in *next, -1: by number. */
static const struct jv *argument(struct jrun *r, const struct jnode *at, struct jtext name, const struct jargs *args,
                                 int64_t *next)
{
    int64_t place = 0;
    bool number = true;
    for (size_t i = 0; i < name.n; i++) number = number && name.p[i] >= '0' && name.p[i] <= '9' && i < 6;
    for (size_t i = 0; number && i < name.n; i++) place = place * 10 + (name.p[i] - '0');
    if (number && ((!name.n && *next < 0) || (name.n && *next > 0))) {
        jfail(r, at, "format: {} and {0} do not go together");
        return NULL;
    }
    if (number && !name.n) place = (*next)++;
    else if (number) *next = -1;
    int64_t plain = 0;
    while (plain < args->n && !args->name[plain]) plain++;
    if (!jspend(r, at, plain / 8)) return NULL;
    if (number && place < plain) return &args->value[place];
    for (int64_t i = plain; !number && i < args->n && jspend(r, at, 1); i++)
        if (jtext_same(name, args->name[i])) return &args->value[i];
    bool plain_name = !memchr(name.p, ':', name.n) && !memchr(name.p, '!', name.n) && !memchr(name.p, '.', name.n) &&
                      !memchr(name.p, '[', name.n);
    jfail(r, at,
          plain_name ? "format: there is no argument for {%.*s}" : "format: {%.*s} is not known here, only {name}",
          name.n < 60 ? (int)name.n : 60, name.p);
    return NULL;
}

struct jv jformat_braces(struct jrun *r, const struct jnode *at, struct jtext t, const struct jargs *args)
{
    struct jbuild b = {0};
    int64_t next = 0;
    if (t.safe) return jfail(r, at, "format of a text that is marked safe is not known here");
    for (size_t i = 0, end; i < t.n && !r->code && b.text.n <= JINJA_BYTES; i = end) {
        for (end = i; end < t.n && t.p[end] != '{' && t.p[end] != '}'; end++) {}
        jbuild_add(&b, jtext_part(t, i, end));
        if (end == t.n || !jspend(r, at, 1 + (int64_t)((end - i) / 16))) break;
        if (end + 1 < t.n && t.p[end + 1] == t.p[end]) {
            jbuild_add(&b, jtext_part(t, end, end + 1));
            end += 2;
            continue;
        }
        const char *close = t.p[end] == '{' ? memchr(t.p + end, '}', t.n - end) : NULL;
        if (!close) return jbuild_free(&b), jfail(r, at, "format: a single %c", t.p[end]);
        size_t to = (size_t)(close - t.p);
        const struct jv *v = argument(r, at, jtext_part(t, end + 1, to), args, &next);
        if (v) jprint(r, at, &b, v);
        end = to + 1;
    }
    return jdone(r, at, &b);
}
