/* SPDX-License-Identifier: Apache-2.0 */
/* clean_page.c: the page from top to bottom: how much is left, which filter took how much (bars), then each filter: its
 * numbers as histograms, what it dropped, what it changed; at the end the rules as they were used. Histograms are SVG
 * of two stacked bars a bin: kept and dropped. */
#include "explain/clean_page.h"

#include <math.h>
#include <stdio.h>

#include "report/page.h"

static const char style[] =
    ":root{--bg:#fff;--fg:#1b1f24;--dim:#667;--line:#e3e6ea;--card:#f6f8fa;--kept:#2563eb;--gone:#d97706}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#12151a;--fg:#e6e8eb;--dim:#9aa3ad;--line:#2a3038;--card:#1a1f26;"
    "--kept:#6ea8fe;--gone:#f6ad55}}\n"
    "body{font:15px/1.5 system-ui,sans-serif;margin:0 auto;max-width:1100px;padding:24px;background:var(--bg);"
    "color:var(--fg)}\n"
    "h1{font-size:24px;margin:0}h2{font-size:17px;margin:32px 0 8px}p{margin:4px 0}.dim{color:var(--dim)}\n"
    "table{border-collapse:collapse}td,th{padding:3px 14px 3px 0;text-align:left;vertical-align:middle}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}\n"
    ".bar{display:inline-block;height:10px;border-radius:2px}.kept{background:var(--kept);fill:var(--kept)}"
    ".gone{background:var(--gone);fill:var(--gone)}\n"
    ".charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(320px,1fr));gap:12px}"
    "svg{width:100%;height:auto;background:var(--card);border:1px solid var(--line);border-radius:8px}"
    "svg text{fill:var(--dim);font:11px system-ui,sans-serif}\n"
    "pre{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:12px;overflow:auto;"
    "white-space:pre-wrap;overflow-wrap:anywhere;max-height:320px}summary{cursor:pointer}\n";

static double share(int64_t part, int64_t of) { return of ? 100.0 * (double)part / (double)of : 0; }

static void overview(struct str *out, const struct pass_result *r)
{
    const struct group_counts *c = &r->counts;
    char kept[32], all[32];
    str_printf(out, "<p>%lld of %lld documents kept (%.1f %%), %s of %s of text (%.1f %%).</p>\n", (long long)c->kept,
               (long long)c->documents, share(c->kept, c->documents), str_bytes(kept, (double)c->kept_bytes),
               str_bytes(all, (double)c->bytes), share(c->kept_bytes, c->bytes));
    if (c->too_large)
        str_printf(out, "<p>%lld documents (%s) were too large and left out.</p>\n", (long long)c->too_large,
                   str_bytes(all, (double)c->too_large_bytes));
    if (c->emptied) str_printf(out, "<p>%lld documents had no text left.</p>\n", (long long)c->emptied);
    if (c->not_utf8)
        str_printf(out, "<p>%lld kept documents had bytes that are no UTF-8, now U+FFFD.</p>\n",
                   (long long)c->not_utf8);
}

static void bars(struct str *out, const struct pass_result *r)
{
    enum { WIDE = 320 };
    str_puts(out, "<h2>What each filter dropped</h2>\n<table><tr><th>filter</th><th>saw</th><th>dropped</th><th></th>"
                  "<th>bytes</th><th>changed</th></tr>\n");
    for (int i = 0; i < r->removals.n; i++) {
        const struct use_removals *u = &r->removals.use[i];
        char bytes[32];
        str_printf(out, "<tr><td><a href=\"#f%d\">", i);
        page_escape(out, r->removals.uses[i].filter->kind.name);
        str_printf(out,
                   "</a></td><td class=\"n\">%lld</td><td class=\"n\">%lld (%.1f %%)</td><td><span class=\"bar "
                   "gone\" style=\"width:%.1fpx\"></span></td><td class=\"n\">%s</td><td class=\"n\">%lld</td></tr>\n",
                   (long long)u->seen, (long long)u->dropped, share(u->dropped, u->seen),
                   WIDE * share(u->dropped, r->counts.documents) / 100, str_bytes(bytes, (double)u->dropped_bytes),
                   (long long)u->changed);
    }
    str_puts(out, "</table>\n");
}

/* ---- a number of a filter ---- */

static int64_t tallest(const struct histogram *h)
{
    int64_t most = 0;
    for (int i = 0; i < REMOVALS_BINS + 2; i++)
        if (h->kept[i] + h->dropped[i] > most) most = h->kept[i] + h->dropped[i];
    return most;
}

static void put_number(struct str *out, double x)
{
    char text[32];
    if (fabs(x) >= 1000) str_puts(out, str_count(text, x));
    else str_printf(out, "%.3g", x);
}

static void histogram(struct str *out, const struct filter_rule *rule, const struct rule_removals *t)
{
    enum { WIDE = 320, HIGH = 110, LEFT = 8, STEP = 7, BASE = 92, ROOM = 66 };
    int64_t most = tallest(&t->values);
    if (!most) return;
    str_printf(out, "<svg viewBox=\"0 0 %d %d\" role=\"img\"><text x=\"%d\" y=\"15\">", WIDE, HIGH, LEFT);
    page_escape(out, rule->name);
    str_printf(out, ": dropped %lld</text>\n", (long long)t->dropped);
    for (int i = 0; i < REMOVALS_BINS + 2; i++) {
        double kept = (double)t->values.kept[i] / (double)most * ROOM;
        double gone = (double)t->values.dropped[i] / (double)most * ROOM;
        if (!(kept + gone > 0)) continue;
        str_puts(out, "<g><title>");
        if (i == 0) str_puts(out, "below ");
        put_number(out, removals_edge(rule, i ? i : 1));
        if (i > REMOVALS_BINS) str_puts(out, " and more");
        str_printf(out, ": kept %lld, dropped %lld</title>", (long long)t->values.kept[i],
                   (long long)t->values.dropped[i]);
        str_printf(out, "<rect class=\"kept\" x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\"/>", LEFT + i * STEP,
                   BASE - kept, STEP - 1, kept);
        str_printf(out, "<rect class=\"gone\" x=\"%d\" y=\"%.2f\" width=\"%d\" height=\"%.2f\"/></g>\n",
                   LEFT + i * STEP, BASE - kept - gone, STEP - 1, gone);
    }
    str_printf(out, "<text x=\"%d\" y=\"106\">", LEFT + STEP);
    put_number(out, rule->lo);
    str_printf(out, "</text><text x=\"%d\" y=\"106\" text-anchor=\"end\">", LEFT + (REMOVALS_BINS + 1) * STEP);
    put_number(out, rule->hi);
    str_printf(out, "%s</text></svg>\n", rule->log ? " (by factors)" : "");
}

static void samples(struct str *out, const char *title, const struct filter *f, const struct samples *l)
{
    if (l->n) str_printf(out, "<p class=\"dim\">%s</p>\n", title);
    for (int i = 0; i < l->n; i++) {
        const struct sample *s = &l->s[i];
        char bytes[32];
        str_puts(out, "<details><summary>");
        if (s->rule >= 0) {
            page_escape(out, f->rule[s->rule].name);
            str_puts(out, " = ");
            put_number(out, s->value);
            str_puts(out, " ");
        }
        str_puts(out, "<span class=\"dim\">");
        page_escape(out, s->origin.source);
        str_printf(out, ", document %lld, %s</span></summary><pre>", (long long)s->origin.number,
                   str_bytes(bytes, (double)s->bytes));
        page_escape(out, s->text);
        str_puts(out, "</pre></details>\n");
    }
}

static void one_filter(struct str *out, int i, const struct use *use, const struct use_removals *u)
{
    const struct filter *f = use->filter;
    char bytes[32];
    str_printf(out, "<h2 id=\"f%d\">", i);
    page_escape(out, f->kind.name);
    str_puts(out, "</h2>\n<p>");
    page_escape(out, f->kind.doc);
    str_puts(out, *f->source ? " <span class=\"dim\">(" : " <span class=\"dim\">");
    page_escape(out, f->source);
    str_puts(out, *f->source ? "; " : "");
    page_escape(out, use->where);
    str_puts(out, *f->source ? ")</span></p>\n" : "</span></p>\n");
    str_printf(out, "<p>Saw %lld documents, dropped %lld (%s)", (long long)u->seen, (long long)u->dropped,
               str_bytes(bytes, (double)u->dropped_bytes));
    if (u->changed)
        str_printf(out, ", changed %lld (%lld pieces, %s%s)", (long long)u->changed, (long long)u->removed_pieces,
                   u->removed_bytes < 0 ? "+" : "\xE2\x88\x92", str_bytes(bytes, fabs((double)u->removed_bytes)));
    str_puts(out, ".</p>\n<div class=\"charts\">\n");
    for (int k = 0; k < f->n_rules; k++) histogram(out, &f->rule[k], &u->rule[k]);
    str_puts(out, "</div>\n");
    samples(out, "Some of the documents it dropped:", f, &u->gone);
    samples(out, "Some of what it took out of documents:", f, &u->edited);
}

void clean_page(const char *title, const char *rules, const struct pass_result *r, struct str *out)
{
    str_puts(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<title>");
    page_escape(out, title);
    str_printf(out, "</title>\n<style>\n%s</style></head><body>\n<h1>", style);
    page_escape(out, title);
    str_puts(out, "</h1>\n");
    overview(out, r);
    str_puts(out,
             "<p class=\"dim\"><span class=\"bar kept\" style=\"width:10px\"></span> kept, <span class=\"bar gone\" "
             "style=\"width:10px\"></span> dropped by this number</p>\n");
    bars(out, r);
    for (int i = 0; i < r->removals.n; i++) one_filter(out, i, &r->removals.uses[i], &r->removals.use[i]);
    str_puts(out, "<h2>Rules</h2>\n<pre>");
    page_escape(out, rules);
    str_puts(out, "</pre>\n</body></html>\n");
}
