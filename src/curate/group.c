/* SPDX-License-Identifier: Apache-2.0 */
/* group.c: documents read one after another into one text, and filtered one after another out of it. */
#include "curate/group.h"

#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "curate/rewrite.h"
#include "text/utf8.h"

void group_free(struct group *g)
{
    str_free(&g->text);
    str_free(&g->others);
    str_free(&g->lines);
    str_free(&g->packed);
    xfree(g->item);
    *g = (struct group){0};
}

static void clear(struct group *g)
{
    if (g->text.room + g->others.room > 8 * (size_t)GROUP_BYTES)
        group_free(g); /* after a document that was much larger */
    str_clear(&g->text);
    str_clear(&g->others);
    str_clear(&g->lines);
    str_clear(&g->packed);
    g->n = 0;
    g->ends_part = g->ends_input = false;
    g->counts = (struct group_counts){0};
    *g->too_large = 0;
    g->error = (struct err){.code = OK};
}

/* What a line says itself, and what filters note. */
static const char *const our_members[] = {"text",         "source",   "document", "offset",
                                          "bytes",        "language", "quality",  "language_probability",
                                          "contaminated", NULL};

/* The document that source_next began, or its size alone. */
static int read_document(struct group *g, struct source *s, int64_t index, int64_t most, int64_t *bytes, struct err *e)
{
    size_t from = g->text.n;
    const char *p;
    size_t n;
    int got;
    *bytes = 0;
    while ((got = source_read(s, &p, &n, e)) > 0) {
        *bytes += (int64_t)n;
        if (*bytes <= most) str_add(&g->text, p, n);
    }
    if (got < 0) return got;
    struct source_place from_file;
    source_where(s, &from_file);
    g->counts.documents++;
    g->counts.bytes += *bytes;
    if (*bytes > most) {
        g->text.n = from;
        g->counts.too_large++;
        g->counts.too_large_bytes += *bytes;
        if (!*g->too_large)
            snprintf(g->too_large, sizeof g->too_large, "%.140s, document %lld", from_file.path,
                     (long long)from_file.number);
        return OK;
    }
    struct origin origin = {from_file.path, from_file.number, from_file.offset, index};
    GROW(g->item, g->n, g->room, 1);
    size_t line_n, others = g->others.n;
    const char *line = source_line(s, &line_n);
    if (line && source_members(s) > 1) rewrite_others(&g->others, line, line_n, source_column(s), our_members);
    g->item[g->n++] = (struct group_item){.at = from,
                                          .n = g->text.n - from,
                                          .others_at = others,
                                          .others_n = g->others.n - others,
                                          .origin = origin};
    return OK;
}

int group_read(struct group *g, struct source *s, int64_t *index, int64_t *part, int64_t part_bytes, int64_t most,
               struct err *e)
{
    clear(g);
    while (g->text.n + g->others.n < GROUP_BYTES && g->counts.documents < GROUP_DOCUMENTS && !g->ends_part) {
        int64_t bytes;
        int got = source_next(s, e);
        if (got < 0) return got;
        if (!got) {
            g->ends_part = g->ends_input = true;
            break;
        }
        int code = read_document(g, s, (*index)++, most, &bytes, e);
        if (code) return code;
        *part += bytes;
        if (*part >= part_bytes) g->ends_part = true;
    }
    if (g->ends_part) *part = 0;
    return OK;
}

/* ---- out ---- */

/* Valid text between quotes; *bad when bytes of it were no UTF-8 and are U+FFFD now. */
static void put_text(struct str *out, const char *p, size_t n, bool *bad)
{
    static const char hex[] = "0123456789abcdef";
    const unsigned char *u = (const unsigned char *)p;
    str_putc(out, '"');
    for (size_t from = 0, i = 0; i <= n;) {
        int len = i == n ? 0 : u[i] >= 0x80 ? utf8_char(u + i, n - i) : 1;
        bool plain = len > 0 && !(u[i] < 0x20 || u[i] == '"' || u[i] == '\\' || u[i] == 0x7F);
        if (plain) {
            i += (size_t)len;
            continue;
        }
        str_add(out, p + from, i - from);
        if (i == n) break;
        char escape[] = {'\\', 'u', '0', '0', hex[u[i] >> 4], hex[u[i] & 15]};
        if (len <= 0) {
            str_puts(out, "\xEF\xBF\xBD");
            *bad = true;
        } else if (u[i] == '"' || u[i] == '\\') {
            str_add(out, (char[]){'\\', p[i]}, 2);
        } else if (u[i] == '\n') {
            str_add(out, "\\n", 2);
        } else if (u[i] == '\t') {
            str_add(out, "\\t", 2);
        } else {
            str_add(out, escape, sizeof escape);
        }
        from = ++i;
    }
    str_putc(out, '"');
}

static void put_line(const struct document *d, const char *others, size_t others_n, struct str *out, bool *bad)
{
    bool ignored = false;
    str_puts(out, "{\"text\": ");
    put_text(out, d->text.p, d->text.n, bad);
    str_puts(out, ", \"source\": ");
    put_text(out, d->origin.source, strlen(d->origin.source), &ignored);
    str_printf(out, ", \"document\": %lld, \"offset\": %lld, \"bytes\": %lld", (long long)d->origin.number,
               (long long)d->origin.offset, (long long)d->bytes_read);
    str_add(out, str_text(&d->notes), d->notes.n);
    str_add(out, others, others_n);
    str_puts(out, "}\n");
}

void group_put_line(const struct document *d, struct str *out)
{
    bool ignored;
    put_line(d, "", 0, out, &ignored);
}

void group_filter(struct group *g, struct worker *w)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct group_item *item = &g->item[i];
        bool bad = false;
        document_set(&w->document, g->text.p + item->at, item->n, &item->origin);
        if (rules_judge(w->rules, &w->document, &w->removals) != FILTER_KEEPS) continue;
        if (!w->document.text.n) {
            g->counts.emptied++;
            continue;
        }
        put_line(&w->document, str_text(&g->others) + item->others_at, item->others_n, &g->lines, &bad);
        g->counts.kept++;
        g->counts.kept_bytes += (int64_t)w->document.text.n;
        g->counts.not_utf8 += bad;
    }
    g->counts.file_bytes = (int64_t)g->lines.n;
    if (!g->lines.n) return;
    if (w->compressor) compressor_add(w->compressor, g->lines.p, g->lines.n, &g->packed, &g->error);
}

void group_counts_add(struct group_counts *into, const struct group_counts *from)
{
    into->documents += from->documents;
    into->bytes += from->bytes;
    into->too_large += from->too_large;
    into->too_large_bytes += from->too_large_bytes;
    into->kept += from->kept;
    into->kept_bytes += from->kept_bytes;
    into->file_bytes += from->file_bytes;
    into->emptied += from->emptied;
    into->not_utf8 += from->not_utf8;
}
