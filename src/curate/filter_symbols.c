/* SPDX-License-Identifier: Apache-2.0 */
/* filter_symbols.c: shares of characters by kind: what is no letter, digit, mark or space; digits; capitals of the
 * letters. */
#include "curate/filter.h"
#include "curate/letters.h"
#include "text/unicode.h"
#include "text/unicode_table.h"

struct options {
    double symbols, digits, upper;
};

enum { SYMBOLS, DIGITS, UPPER };
static const struct filter_rule rules[] =
    {[SYMBOLS] = {"symbols", 0, 1, false}, [DIGITS] = {"digits", 0, 1, false}, [UPPER] = {"upper_case", 0, 1, false}};

#define AT(member) .offset = offsetof(struct options, member)
/* clang-format off */
static const struct conf_row rows[] = {
    {.path = "max_symbols", .type = CONF_REAL, AT(symbols), .otherwise = "0.25", .lo = 0, .hi = 1, .doc = "share of characters that are no letter, digit, mark or space, at most"},
    {.path = "max_digits", .type = CONF_REAL, AT(digits), .otherwise = "0.25", .lo = 0, .hi = 1, .doc = "share of digits, at most"},
    {.path = "max_upper_case", .type = CONF_REAL, AT(upper), .otherwise = "0.5", .lo = 0, .hi = 1, .doc = "share of capitals among the letters, at most"},
    {0},
};
/* clang-format on */

struct counts {
    int64_t chars, symbols, digits, letters, upper;
};

static void count(struct counts *c, const char *p, size_t n, int *len)
{
    uint32_t code = char_at(p, n, len);
    int k;
    c->chars++;
    if (code < 0x80) {
        bool letter = letters_is_letter(code), digit = code >= '0' && code <= '9';
        c->letters += letter;
        c->upper += letter && code < 'a';
        c->digits += digit;
        c->symbols += !letter && !digit && !letters_space(p, n);
        return;
    }
    k = unicode_kind_of(code) & 31;
    c->letters += k >= UNI_LU && k <= UNI_LO;
    c->upper += k == UNI_LU;
    c->digits += k == UNI_ND;
    c->symbols += !(k >= UNI_LU && k <= UNI_NO) && !letters_space(p, n);
}

static double share(int64_t part, int64_t of) { return of ? (double)part / (double)of : 0; }

static int judge(const struct use *u, struct document *d, struct findings *f)
{
    const struct options *o = u->options;
    struct counts c = {0};
    int len;
    for (size_t i = 0; i < d->text.n; i += (size_t)len) count(&c, d->text.p + i, d->text.n - i, &len);
    f->value[SYMBOLS] = share(c.symbols, c.chars);
    if (f->value[SYMBOLS] > o->symbols) return SYMBOLS;
    f->value[DIGITS] = share(c.digits, c.chars);
    if (f->value[DIGITS] > o->digits) return DIGITS;
    f->value[UPPER] = share(c.upper, c.letters);
    return f->value[UPPER] > o->upper ? UPPER : FILTER_KEEPS;
}

const struct filter filter_symbols = {
    .kind = {.name = "symbols",
             .rows = rows,
             .bytes = sizeof(struct options),
             .doc = "drops what is made of symbols, digits or capitals"},
    .source = "",
    FILTER_RULES_OF(rules),
    .judge = judge,
};
