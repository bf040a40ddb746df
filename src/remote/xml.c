/* SPDX-License-Identifier: Apache-2.0 */
/* xml.c: one pass, no memory of what is open but the last name. */
#include "remote/xml.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static const char *find(const struct xml *x, const char *what)
{
    return memmem(x->p, (size_t)(x->end - x->p), what, strlen(what));
}

/* Behind <? ... ?> and <!-- ... -->; false: neither begins here. */
static bool pass_over(struct xml *x)
{
    size_t left = (size_t)(x->end - x->p);
    bool comment = left >= 4 && !memcmp(x->p, "<!--", 4), declaration = left >= 2 && !memcmp(x->p, "<?", 2);
    if (!comment && !declaration) return false;
    const char *end = find(x, comment ? "-->" : "?>");
    x->bad = !end;
    x->p = end ? end + (comment ? 3 : 2) : x->end;
    return true;
}

static bool tag(struct xml *x)
{
    const char *end = memchr(x->p, '>', (size_t)(x->end - x->p)), *name = x->p + 1;
    if (!end || x->p[1] == '!') {
        x->bad = true;
        return false;
    }
    bool closes = *name == '/';
    name += closes;
    size_t n = 0, most = (size_t)(end - name);
    while (n < most && !strchr(" \t\r\n/", name[n])) n++;
    size_t kept = n < XML_NAME - 1 ? n : XML_NAME - 1;
    memcpy(x->name, name, kept);
    x->name[kept] = 0;
    x->bad = n == 0;
    x->kind = closes ? XML_CLOSE : XML_OPEN;
    x->empty = !closes && end[-1] == '/' && end - 1 >= name + n;
    x->p = end + 1;
    return !x->bad;
}

bool xml_next(struct xml *x)
{
    if (x->empty) {
        x->empty = false;
        x->kind = XML_CLOSE;
        return true;
    }
    while (!x->bad && x->p < x->end && pass_over(x)) continue;
    if (x->bad || x->p == x->end) return false;
    if (*x->p == '<') {
        if (x->end - x->p >= 2) return tag(x);
        x->bad = true;
        return false;
    }
    const char *end = memchr(x->p, '<', (size_t)(x->end - x->p));
    if (x->kind != XML_OPEN) x->name[0] = 0;
    x->kind = XML_TEXT;
    x->text = x->p;
    x->n = (size_t)((end ? end : x->end) - x->p);
    x->p += x->n;
    return true;
}

/* As UTF-8; what is no character becomes nothing. */
static void add_character(struct str *out, unsigned long c)
{
    if (!c || c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) return;
    if (c < 0x80) {
        str_putc(out, (char)c);
    } else if (c < 0x800) {
        str_putc(out, (char)(0xc0 | c >> 6));
        str_putc(out, (char)(0x80 | (c & 63)));
    } else {
        if (c < 0x10000) {
            str_putc(out, (char)(0xe0 | c >> 12));
        } else {
            str_putc(out, (char)(0xf0 | c >> 18));
            str_putc(out, (char)(0x80 | (c >> 12 & 63)));
        }
        str_putc(out, (char)(0x80 | (c >> 6 & 63)));
        str_putc(out, (char)(0x80 | (c & 63)));
    }
}

/* The entity that begins at p, without its '&': its length with the ';', 0 when it is none. */
static size_t entity(const char *p, size_t left, struct str *out)
{
    static const struct {
        const char *name;
        char c;
    } names[] = {{"amp;", '&'}, {"lt;", '<'}, {"gt;", '>'}, {"quot;", '"'}, {"apos;", '\''}};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        size_t n = strlen(names[i].name);
        if (left < n || memcmp(p, names[i].name, n)) continue;
        str_putc(out, names[i].c);
        return n;
    }
    char digits[12];
    const char *end = left ? memchr(p, ';', left < sizeof digits ? left : sizeof digits) : NULL;
    if (!end || *p != '#' || end - p < 2) return 0;
    bool hex = p[1] == 'x';
    size_t n = (size_t)(end - p) - 1 - hex;
    memcpy(digits, p + 1 + hex, n);
    digits[n] = 0;
    if (!n || strspn(digits, hex ? "0123456789abcdefABCDEF" : "0123456789") < n) return 0;
    add_character(out, strtoul(digits, NULL, hex ? 16 : 10));
    return (size_t)(end - p) + 1;
}

void xml_text(const struct xml *x, struct str *out)
{
    str_clear(out);
    for (size_t i = 0; i < x->n;) {
        size_t m = x->text[i] == '&' ? entity(x->text + i + 1, x->n - i - 1, out) : 0;
        if (!m) str_putc(out, x->text[i]);
        i += m + 1;
    }
}
