/* SPDX-License-Identifier: Apache-2.0 */
/* sample_view.c: tokens are shown by the characters that they complete: a character of several tokens stands at the
 * last of them. */
#include "explain/sample_view.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/shown.h"

void sample_view_init(struct sample_view *v, const struct tokenizer *t, const char *title, int64_t n)
{
    *v = (struct sample_view){.t = t, .title = xstrdup(title), .n = n};
    v->ids = xcalloc(to_size(n) + 1, sizeof *v->ids);
    v->positions = xcalloc(to_size(n) + 1, sizeof *v->positions);
    v->documents = xcalloc(to_size(n) + 1, sizeof *v->documents);
    v->places = xcalloc(to_size(n) + 1, sizeof *v->places);
    v->loss = xcalloc(to_size(n) + 1, 1);
    for (int64_t i = 0; i < n; i++) v->places[i] = i;
}

void sample_view_fini(struct sample_view *v)
{
    xfree(v->title);
    xfree(v->ids);
    xfree(v->positions);
    xfree(v->documents);
    xfree(v->places);
    xfree(v->loss);
    *v = (struct sample_view){0};
}

/* Whether what is predicted at place i of the row is not what stands behind it: a packed document ends there, or a part
 * of a sample, or the row. Where documents are joined, one that ends with its end of text goes on in the next. */
static bool ends_apart(const struct tokenizer *t, const struct batch *b, int64_t at, int64_t i)
{
    if (i + 1 == b->seq_len) return true;
    if (b->documents[at + i] == b->documents[at + i + 1]) return false;
    int32_t target = b->targets[at + i];
    return b->tokens[at + i] != tokenizer_eos(t) || (target >= 0 && target != b->tokens[at + i + 1]);
}

static void put(struct sample_view *v, int64_t place, int32_t id, int32_t position, int32_t document, bool loss)
{
    v->ids[v->n] = id;
    v->positions[v->n] = position;
    v->documents[v->n] = document;
    v->places[v->n] = place;
    v->loss[v->n++] = loss;
}

void sample_view_of_row(struct sample_view *v, const struct tokenizer *t, const char *title, const struct batch *b,
                        int64_t row, bool scores)
{
    int64_t s = b->seq_len, at = row * s;
    const int32_t *ids = b->tokens + at, *targets = b->targets + at, *documents = b->documents + at;
    sample_view_init(v, t, title, 2 * s);
    v->n = 0;
    for (int64_t i = 0; i < s && scores; i++) put(v, i, ids[i], b->positions[at + i], documents[i], targets[i] >= 0);
    for (int64_t i = 0; i < s && !scores; i++) {
        put(v, i, ids[i], b->positions[at + i], documents[i], i && !ends_apart(t, b, at, i - 1) && targets[i - 1] >= 0);
        if (ends_apart(t, b, at, i) && targets[i] >= 0)
            put(v, -1, targets[i], b->positions[at + i] + 1, documents[i], true);
    }
}

/* -- in a terminal ------------------------------------------------------------------------------------------- */

static bool begins_document(const struct sample_view *v, int64_t i)
{
    return i == 0 || v->documents[i] != v->documents[i - 1];
}

static int64_t count_loss(const struct sample_view *v)
{
    int64_t n = 0;
    for (int64_t i = 0; i < v->n; i++) n += v->loss[i];
    return n;
}

static void put_heading(const struct sample_view *v, bool colour, struct str *out)
{
    if (colour) str_puts(out, "\033[1m");
    shown_put(out, v->title, strlen(v->title), false); /* names of files, which may be anything */
    str_printf(out, ": %lld tokens, a loss of %lld%s\n", (long long)v->n, (long long)count_loss(v),
               colour ? "\033[0m" : "");
}

/* Text of token i, as far as it completes characters; the decoder goes on from token to token. */
static const char *next_text(struct decoder *d, const struct sample_view *v, int64_t i, struct str *text)
{
    str_clear(text);
    decoder_push(d, v->ids[i], text);
    if (i + 1 == v->n) decoder_end(d, text);
    return str_text(text);
}

static void put_rule(const struct sample_view *v, int64_t i, bool colour, struct str *out)
{
    if (out->n && out->p[out->n - 1] != '\n') str_putc(out, '\n');
    str_printf(out, "%s-- document %d, from position %d --%s\n", colour ? "\033[36m" : "", v->documents[i],
               v->positions[i], colour ? "\033[0m" : "");
}

static void put_flow(const struct sample_view *v, bool colour, struct str *out)
{
    struct decoder d = {.t = v->t, .with_special = true};
    struct str text = {0};
    bool open = false;
    for (int64_t i = 0; i < v->n; i++) {
        bool rule = begins_document(v, i);
        if (open && (!v->loss[i] || rule)) {
            str_puts(out, colour ? "\033[0m" : "⟧");
            open = false;
        }
        if (rule) put_rule(v, i, colour, out);
        if (v->loss[i] && !open) {
            str_puts(out, colour ? "\033[32m" : "⟦");
            open = true;
        }
        next_text(&d, v, i, &text);
        shown_put(out, str_text(&text), text.n, true);
    }
    if (open) str_puts(out, colour ? "\033[0m" : "⟧");
    str_putc(out, '\n');
    str_free(&text);
}

static void put_each(const struct sample_view *v, bool colour, struct str *out)
{
    struct decoder d = {.t = v->t, .with_special = true};
    struct str text = {0};
    str_puts(out, "   place  document  position      token  loss  text\n");
    for (int64_t i = 0; i < v->n; i++) {
        if (v->places[i] < 0) str_puts(out, "  target");
        else str_printf(out, "%8lld", (long long)v->places[i]);
        str_printf(out, "  %8d  %8d  %9d  %-4s  %s", v->documents[i], v->positions[i], v->ids[i],
                   v->loss[i] ? "yes" : "-", colour && v->loss[i] ? "\033[32m" : "");
        next_text(&d, v, i, &text);
        shown_put(out, str_text(&text), text.n, false);
        str_puts(out, colour && v->loss[i] ? "\033[0m\n" : "\n");
    }
    str_free(&text);
}

void sample_view_text(const struct sample_view *v, bool colour, bool each, struct str *out)
{
    put_heading(v, colour, out);
    if (each) put_each(v, colour, out);
    else put_flow(v, colour, out);
}

/* -- JSON ---------------------------------------------------------------------------------------------------- */

static void put_list(struct json_out *o, const char *key, const int32_t *p, int64_t n)
{
    json_begin_array(o, key);
    for (int64_t i = 0; i < n; i++) json_put_int(o, NULL, p[i]);
    json_end_array(o);
}

void sample_view_json(const struct sample_view *v, struct json_out *o)
{
    struct str text = {0};
    tokenizer_decode(v->t, v->ids, v->n, true, &text);
    json_begin_object(o, NULL);
    json_put_string(o, "title", v->title);
    json_put_int(o, "trained", count_loss(v));
    put_list(o, "tokens", v->ids, v->n);
    json_begin_array(o, "loss");
    for (int64_t i = 0; i < v->n; i++) json_put_int(o, NULL, v->loss[i]);
    json_end_array(o);
    put_list(o, "positions", v->positions, v->n);
    put_list(o, "documents", v->documents, v->n);
    json_put_string(o, "text", str_text(&text));
    json_end_object(o);
    str_free(&text);
}

/* -- a page -------------------------------------------------------------------------------------------------- */

static void put_html(struct str *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '&') str_puts(out, "&amp;");
        else if (c == '<') str_puts(out, "&lt;");
        else if (c == '>') str_puts(out, "&gt;");
        else if (c == '"') str_puts(out, "&quot;");
        else if (c == '\'') str_puts(out, "&#39;");
        else if (c < 0x20 && c != '\n' && c != '\t') str_printf(out, "\\x%02x", c);
        else str_putc(out, (char)c);
    }
}

void sample_page_begin(struct str *out, const char *title)
{
    str_puts(out, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>");
    put_html(out, title, strlen(title));
    str_puts(out,
             "</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em}"
             "pre{white-space:pre-wrap;overflow-wrap:anywhere;font:14px/1.6 ui-monospace,monospace}"
             "i{font-style:normal;color:#777}b{font-weight:normal;background:#cdebd0;color:#063}"
             "i:hover,b:hover{outline:1px solid #888}hr{border:0;border-top:1px dashed #58a}"
             "small{color:#368}@media(prefers-color-scheme:dark){body{background:#151515;color:#ddd}"
             "i{color:#999}b{background:#143d1e;color:#bfe8c6}small{color:#8bf}}</style></head><body>\n<h1>");
    put_html(out, title, strlen(title));
    str_puts(out, "</h1>\n<p>A loss is taken of what is <b>green</b>, and none of what is <i>grey</i>. Each token "
                  "tells its place, "
                  "position and id under the pointer.</p>\n");
}

void sample_view_html(const struct sample_view *v, struct str *out)
{
    struct decoder d = {.t = v->t, .with_special = true};
    struct str text = {0};
    str_puts(out, "<h2>");
    put_html(out, v->title, strlen(v->title));
    str_printf(out, "</h2>\n<p>%lld tokens, a loss of %lld.</p>\n<pre>", (long long)v->n, (long long)count_loss(v));
    for (int64_t i = 0; i < v->n; i++) {
        char tag = v->loss[i] ? 'b' : 'i';
        if (begins_document(v, i))
            str_printf(out, "%s<small>document %d, from position %d</small>\n", i ? "<hr>" : "", v->documents[i],
                       v->positions[i]);
        str_printf(out, "<%c title=\"%s %lld, position %d, document %d, token %d\">", tag,
                   v->places[i] < 0 ? "target behind place" : "place",
                   (long long)(v->places[i] < 0 ? v->places[i - 1] : v->places[i]), v->positions[i], v->documents[i],
                   v->ids[i]);
        next_text(&d, v, i, &text);
        put_html(out, str_text(&text), text.n);
        str_printf(out, "</%c>", tag);
    }
    str_puts(out, "</pre>\n");
    str_free(&text);
}

void sample_page_end(struct str *out) { str_puts(out, "</body></html>\n"); }
