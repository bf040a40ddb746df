/* SPDX-License-Identifier: Apache-2.0 */
/* conf_print.c: the table read backwards: a struct becomes YAML again, and the rows become --help.
 *
 * Sections are printed where their first row stands in the table, whether or not the rest follows at once, so
 * that no section opens twice. Every value is printed in a form that reads back equal: the fewest digits that
 * give the same double, quotes and escapes for all text that YAML could take for something else.
 */
#include "base/conf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/conf_yaml.h"

/* May stand in a double-quoted scalar as it is: printable, and no kind of line break. */
static bool is_printable(uint32_t c)
{
    if (c < 0xA0) return c >= 0x20 && c < 0x7F;
    return c != 0x2028 && c != 0x2029 && c != 0xFEFF && c != 0xFFFE && c != 0xFFFF;
}

static void print_quoted(struct str *out, const char *text)
{
    str_putc(out, '"');
    for (const char *p = text; *p;) {
        uint32_t c;
        int n = str_utf8(p, &c);
        CHECK(n, "text that is not UTF-8 in a configuration");
        if (c == '"' || c == '\\') str_printf(out, "\\%c", (int)c);
        else if (c == '\n') str_puts(out, "\\n");
        else if (is_printable(c)) str_add(out, p, (size_t)n);
        else str_printf(out, c < 0x100 ? "\\x%02X" : "\\u%04X", c);
        p += n;
    }
    str_putc(out, '"');
}

static void print_text(struct str *out, const char *text)
{
    static const char safe[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-";
    static const char *const words[] = {"null", "true", "false", "yes", "no", "on", "off"};
    char *end;
    strtod(text, &end);
    bool plain = *text && !text[strspn(text, safe)] && *text != '-' && *end; /* and no number */
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) plain = plain && strcmp(text, words[i]) != 0;
    if (plain) str_puts(out, text);
    else print_quoted(out, text);
}

/* YAML 1.1 takes 3e-05 for text: a number with an exponent needs a point. */
static void print_real(struct str *out, double x)
{
    char text[40];
    for (int digits = 1; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x) break;
    }
    const char *exponent = strchr(text, 'e');
    if (!exponent || strchr(text, '.')) str_puts(out, text);
    else str_printf(out, "%.*s.0%s", (int)(exponent - text), text, exponent);
}

static void print_choice(struct str *out, const char *choices, int index)
{
    for (; index > 0; index--) choices += strcspn(choices, "|") + 1;
    str_add(out, choices, strcspn(choices, "|"));
}

static bool null_by_default(const struct conf_row *row)
{
    return row->otherwise && (!strcmp(row->otherwise, "null") || !strcmp(row->otherwise, "~") || !*row->otherwise);
}

static void print_points(struct str *out, const struct conf_row *row, const struct conf_points *v)
{
    const char *dot = strrchr(row->path, '.');
    if (!v->n) print_real(out, v->value);
    for (int i = 0; i < v->n; i++) {
        str_printf(out, "%s{step: %lld, %s: ", i ? ", " : "[", (long long)v->p[i].step, dot ? dot + 1 : row->path);
        print_real(out, v->p[i].value);
        str_puts(out, i + 1 < v->n ? "}" : "}]");
    }
}

static void print_numbers(struct str *out, const double *v, int64_t n)
{
    str_putc(out, '[');
    for (int64_t i = 0; i < n; i++) {
        if (i) str_puts(out, ", ");
        print_real(out, v[i]);
    }
    str_putc(out, ']');
}

static void print_scalar(struct str *out, const struct conf_row *row, const char *at)
{
    switch (row->type) {
    case CONF_BOOL: str_puts(out, *(const bool *)(const void *)at ? "true" : "false"); break;
    case CONF_INT: {
        long long n = *(const int64_t *)(const void *)at;
        if (n == 0 && null_by_default(row)) str_puts(out, "null");
        else str_printf(out, "%lld", n);
        break;
    }
    case CONF_REAL: {
        double x = *(const double *)(const void *)at;
        if (x == 0 && null_by_default(row)) str_puts(out, "null");
        else print_real(out, x);
        break;
    }
    case CONF_STRING: {
        const char *text = *(const char *const *)(const void *)at;
        if (text) print_text(out, text);
        else str_puts(out, "null");
        break;
    }
    case CONF_WORD: print_text(out, at); break;
    case CONF_CHOICE: print_choice(out, row->choices, *(const int *)(const void *)at); break;
    case CONF_REALS: print_numbers(out, (const double *)(const void *)at, row->n); break;
    case CONF_NUMBERS: {
        const struct conf_numbers *v = (const struct conf_numbers *)(const void *)at;
        print_numbers(out, v->v, v->n);
        break;
    }
    case CONF_POINTS: print_points(out, row, (const struct conf_points *)(const void *)at); break;
    case CONF_LIST: break; /* print_list: it is not one line */
    }
}

static void print_rows(const struct conf_row *rows, const char *target, const char *prefix, size_t n_prefix, int indent,
                       struct str *out);

/* Block style; an item's first line trades the last two spaces of its indent for "- ". */
static void print_list(const struct conf_row *row, const struct conf_list *list, int indent, struct str *out)
{
    for (int i = 0; i < list->n; i++) {
        size_t start = out->n;
        if (row->kinds) {
            const struct conf_of_kind *item = (const struct conf_of_kind *)list->items + i;
            bool any = item->kind->rows->path;
            str_printf(out, "%*s- %s%s\n", indent, "", item->kind->name, any ? ":" : "");
            print_rows(item->kind->rows, item->value, "", 0, indent + 4, out);
            continue;
        }
        print_rows(row->item, (const char *)list->items + (size_t)i * row->item_bytes, "", 0, indent + 2, out);
        out->p[start + (size_t)indent] = '-';
    }
}

/* Is rows[i] the first row of the section that ends at path[n)? */
static bool opens_section(const struct conf_row *rows, int i, size_t n)
{
    for (int j = 0; j < i; j++)
        if (!strncmp(rows[j].path, rows[i].path, n) && rows[j].path[n] == '.') return false;
    return true;
}

static void print_rows(const struct conf_row *rows, const char *target, const char *prefix, size_t n_prefix, int indent,
                       struct str *out)
{
    for (int i = 0; rows[i].path; i++) {
        const struct conf_row *row = &rows[i];
        if (strncmp(row->path, prefix, n_prefix) != 0) continue;
        const char *key = row->path + n_prefix;
        size_t n_key = strcspn(key, ".");
        if (key[n_key]) {
            if (!opens_section(rows, i, n_prefix + n_key)) continue;
            str_printf(out, "%*s%.*s:\n", indent, "", (int)n_key, key);
            print_rows(rows, target, row->path, n_prefix + n_key + 1, indent + 2, out);
            continue;
        }
        const char *at = target + row->offset;
        str_printf(out, "%*s%s:", indent, "", key);
        const struct conf_list *list = (const struct conf_list *)(const void *)at;
        if (row->type == CONF_LIST && list->n == 1 && row->plain_one) {
            str_putc(out, ' ');
            print_scalar(out, row->item, list->items);
            str_putc(out, '\n');
            continue;
        }
        if (row->type == CONF_LIST && list->n) {
            str_putc(out, '\n');
            print_list(row, list, indent + 2, out);
            continue;
        }
        str_putc(out, ' ');
        if (row->type == CONF_LIST) str_puts(out, "[]");
        else print_scalar(out, row, at);
        str_putc(out, '\n');
    }
}

void conf_print(const struct conf_row *rows, const void *target, struct str *out)
{
    print_rows(rows, target, "", 0, 0, out);
}

static void help_type(const struct conf_row *row, struct str *out)
{
    static const char *const names[] = {
        [CONF_BOOL] = "true|false", [CONF_INT] = "integer",
        [CONF_REAL] = "number",     [CONF_STRING] = "text",
        [CONF_CHOICE] = "",         [CONF_WORD] = "text",
        [CONF_REALS] = "numbers",   [CONF_POINTS] = "number, or points",
        [CONF_LIST] = "list",       [CONF_NUMBERS] = "numbers",
    };
    str_puts(out, row->type == CONF_CHOICE ? row->choices : names[row->type]);
    if (row->lo == 0 && row->hi == 0) return;
    if (row->hi >= 1e15) str_printf(out, " >= %.10g", row->lo);
    else if (row->lo <= -1e15) str_printf(out, " <= %.10g", row->hi);
    else str_printf(out, " %.10g..%.10g", row->lo, row->hi);
}

static void help_rows(const struct conf_row *rows, const char *prefix, struct str *out)
{
    for (const struct conf_row *row = rows; row->path; row++) {
        struct str key = {0}, type = {0};
        str_printf(&key, "%s%s", prefix, row->path);
        help_type(row, &type);
        str_printf(out, "  %-28s %s; ", str_text(&key), str_text(&type));
        if (row->otherwise) str_printf(out, "default %s\n", *row->otherwise ? row->otherwise : "null");
        else str_puts(out, "required\n");
        str_printf(out, "  %-28s   %s\n", "", row->doc ? row->doc : "");
        for (int i = 0; row->kinds && row->kinds[i]; i++) {
            const struct conf_kind *kind = row->kinds[i];
            struct str inner = {0};
            str_printf(&inner, "%s[].%s", str_text(&key), kind->name);
            str_printf(out, "  %-28s %s\n", str_text(&inner), kind->doc);
            str_puts(&inner, ".");
            help_rows(kind->rows, str_text(&inner), out);
            str_free(&inner);
        }
        if (row->type == CONF_LIST && !row->kinds) {
            str_puts(&key, "[].");
            help_rows(row->item, str_text(&key), out);
        }
        str_free(&key);
        str_free(&type);
    }
}

void conf_print_help(const struct conf_row *rows, struct str *out) { help_rows(rows, "", out); }
