/* SPDX-License-Identifier: Apache-2.0 */
/* filter_unicode.c: text as it was meant: bytes that are no UTF-8 are read as Windows-1252, UTF-8 that was read as
 * Windows-1252 or Latin-1 is mended (also where that happened twice), marks of byte order and control characters go,
 * line ends become LF, and the rest is brought into a normal form (text/normal_form.h). Documents with too many U+FFFD,
 * of which the text is lost, are dropped.
 */
#include <string.h>

#include "curate/filter.h"
#include "curate/mojibake.h"
#include "text/normal_form.h"
#include "text/utf8.h"

struct options {
    bool bytes, mojibake, controls, line_ends;
    int form;
    double max_lost;
};

static const struct filter_rule rules[] = {{"replacement_characters", 0, 0.1, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "bytes", .type = CONF_BOOL, AT(bytes), .otherwise = "true", .doc = "read bytes that are no UTF-8 as Windows-1252; false: they become U+FFFD"},
    {.path = "mojibake", .type = CONF_BOOL, AT(mojibake), .otherwise = "true", .doc = "mend UTF-8 that was read as Windows-1252 or Latin-1"},
    {.path = "controls", .type = CONF_BOOL, AT(controls), .otherwise = "true", .doc = "take out control characters (but tab and line end), U+FEFF, places that are no characters"},
    {.path = "line_ends", .type = CONF_BOOL, AT(line_ends), .otherwise = "true", .doc = "CR LF, CR, U+0085, U+2028 and U+2029 become LF"},
    {.path = "form", .type = CONF_CHOICE, AT(form), .otherwise = "nfc", .choices = "nfc|nfd|nfkc|nfkd|none", .doc = "normal form"},
    {.path = "max_replacement", .type = CONF_REAL, AT(max_lost), .otherwise = "0.01", .lo = 0, .hi = 1, .doc = "drop documents of which a larger share of characters is U+FFFD; 1: none"},
    {0},
};
/* clang-format on */
enum { FORM_NONE = NORMAL_NFKD + 1 };

/* Nothing but printable ASCII, tabs and LF: nothing is to be done. */
static bool is_plain(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c >= 0x7F || (c < 0x20 && c != '\n' && c != '\t')) return false;
    }
    return true;
}

static void replace_bytes(const char *p, size_t n, struct str *out, int64_t *lost)
{
    const unsigned char *u = (const unsigned char *)p;
    for (size_t i = 0; i < n;) {
        size_t good = utf8_run(u + i, n - i);
        str_add(out, p + i, good);
        i += good;
        if (i == n) break;
        str_puts(out, "\xEF\xBF\xBD");
        i++;
        ++*lost;
    }
}

static void told(struct findings *f, int64_t n, const char *what)
{
    if (!n) return;
    findings_removed(f, what, strlen(what));
    f->n_removed += n - 1;
}

static void mend_bytes(const struct options *o, struct document *d, struct findings *f)
{
    int64_t n = 0;
    if (utf8_run((const unsigned char *)d->text.p, d->text.n) == d->text.n) return;
    if (o->bytes) n = mojibake_bytes(d->text.p, d->text.n, &d->spare);
    else replace_bytes(d->text.p, d->text.n, &d->spare, &n);
    document_replace(d);
    told(f, n, o->bytes ? "bytes that were no UTF-8 read as Windows-1252" : "bytes that were no UTF-8 made U+FFFD");
}

/* Shows what stood at the first place that the new text, in d->spare, differs at. */
static void tell_difference(struct findings *f, const struct document *d)
{
    enum { AROUND = 60 };
    const struct str *old = &d->text, *new = &d->spare;
    struct str text = {0};
    size_t at = 0, m = new->n < old->n ? new->n : old->n;
    while (at < m && new->p[at] == old->p[at]) at++;
    size_t from = utf8_cut((const unsigned char *)old->p, at > AROUND ? at - AROUND : 0);
    size_t to = old->n - from > 2 * AROUND ? utf8_cut((const unsigned char *)old->p, from + 2 * AROUND) : old->n;
    str_puts(&text, "mended: ");
    str_add(&text, old->p + from, to - from);
    findings_removed(f, text.p, text.n);
    f->n_removed--;
    str_free(&text);
}

static void mend_mojibake(struct document *d, struct findings *f)
{
    for (int again = 0; again < 3; again++) {
        int64_t n = mojibake_mend(d->text.p, d->text.n, &d->spare);
        if (!n) {
            str_clear(&d->spare);
            return;
        }
        tell_difference(f, d);
        document_replace(d);
        f->n_removed += n;
    }
}

enum act { STAYS, GOES, ENDS_LINE };
static enum act act_of(const struct options *o, uint32_t c)
{
    if (c == '\n' || c == '\t') return STAYS;
    if (o->line_ends && (c == '\r' || c == 0x85 || c == 0x2028 || c == 0x2029)) return ENDS_LINE;
    if (!o->controls || c == '\r') return STAYS;
    if (c < 0x20 || (c >= 0x7F && c < 0xA0) || c == 0xFEFF) return GOES;
    return (c & 0xFFFE) == 0xFFFE || (c >= 0xFDD0 && c <= 0xFDEF) ? GOES : STAYS;
}

static void mend_controls(const struct options *o, struct document *d, struct findings *f)
{
    const char *p = d->text.p;
    size_t n = d->text.n, from = 0;
    int64_t gone = 0, ends = 0;
    int len;
    for (size_t i = 0; i < n; i += (size_t)len) {
        enum act act = act_of(o, char_at(p + i, n - i, &len));
        if (act == STAYS) continue;
        str_add(&d->spare, p + from, i - from);
        from = i + (size_t)len;
        bool pair = act == ENDS_LINE && p[i] == '\r' && from < n && p[from] == '\n';
        if (act == ENDS_LINE && !pair) str_putc(&d->spare, '\n');
        gone += act == GOES;
        ends += act == ENDS_LINE;
    }
    if (!gone && !ends) return;
    str_add(&d->spare, p + from, n - from);
    document_replace(d);
    told(f, gone, "control characters taken out");
    told(f, ends, "line ends made LF");
}

static void mend_form(const struct options *o, struct document *d, struct findings *f)
{
    normal_form(&d->spare, (enum normal_form)o->form, (const unsigned char *)d->text.p, d->text.n);
    bool same = d->spare.n == d->text.n && !memcmp(d->spare.p, d->text.p, d->text.n);
    if (same) {
        str_clear(&d->spare);
        return;
    }
    document_replace(d);
    told(f, 1, "brought into the normal form");
}

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    str_clear(&d->spare);
    f->value[0] = 0;
    if (is_plain(d->text.p, d->text.n)) return FILTER_KEEPS;
    mend_bytes(o, d, f);
    if (o->mojibake) mend_mojibake(d, f);
    if (o->controls || o->line_ends) mend_controls(o, d, f);
    if (o->form != FORM_NONE) mend_form(o, d, f);
    int64_t lost = 0, chars = document_chars(d);
    for (const char *p = d->text.p, *end = p + d->text.n; (p = memmem(p, (size_t)(end - p), "\xEF\xBF\xBD", 3)); p += 3)
        lost++;
    f->value[0] = chars ? (double)lost / (double)chars : 0;
    return f->value[0] > o->max_lost ? 0 : FILTER_KEEPS;
}

const struct filter filter_unicode = {
    .kind = {.name = "unicode",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "mends encodings, takes out control characters, brings text into a normal form"},
    .source = "",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
