/* SPDX-License-Identifier: Apache-2.0 */
/* removals.c: counting, and the samples: those whose number in the pass has the smallest hash, which is a fair choice
 * that no order of threads changes. */
#include "curate/removals.h"

#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "text/utf8.h"

void removals_init(struct removals *t, const struct use *uses, int n)
{
    *t = (struct removals){.uses = uses, .n = n, .use = xcalloc((size_t)n + 1, sizeof *t->use)};
    for (int i = 0; i < n; i++) t->use[i].rule = xcalloc((size_t)uses[i].filter->n_rules + 1, sizeof *t->use[i].rule);
}

static void sample_fini(struct sample *s)
{
    xfree((void *)(uintptr_t)s->origin.source);
    xfree(s->text);
    *s = (struct sample){0};
}

static void samples_fini(struct samples *l)
{
    for (int i = 0; i < l->n; i++) sample_fini(&l->s[i]);
    l->n = 0;
}

void removals_fini(struct removals *t)
{
    for (int i = 0; i < t->n; i++) {
        samples_fini(&t->use[i].gone);
        samples_fini(&t->use[i].edited);
        xfree(t->use[i].rule);
    }
    xfree(t->use);
    str_free(&t->found.removed);
    str_free(&t->found.why);
    *t = (struct removals){0};
}

void removals_clear(struct removals *t)
{
    for (int i = 0; i < t->n; i++) {
        struct use_removals *u = &t->use[i];
        struct rule_removals *rule = u->rule;
        samples_fini(&u->gone);
        samples_fini(&u->edited);
        memset(rule, 0, (size_t)t->uses[i].filter->n_rules * sizeof *rule);
        *u = (struct use_removals){.rule = rule};
    }
}

struct findings *removals_begin(struct removals *t, int use, const struct document *d)
{
    t->use[use].seen++;
    t->use[use].seen_bytes += (int64_t)d->text.n;
    t->bytes_before = d->text.n;
    for (int i = 0; i < t->uses[use].filter->n_rules; i++) t->found.value[i] = NAN;
    str_clear(&t->found.removed);
    str_clear(&t->found.why);
    t->found.n_removed = 0;
    return &t->found;
}

/* ---- samples ---- */

static uint64_t rank_of(int64_t index) { return rng_u64(0, rng_stream("curate/samples"), (uint64_t)index); }

static bool before(const struct sample *a, const struct sample *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->origin.index < b->origin.index;
}

/* Takes the sample over, or frees it. */
static void samples_put(struct samples *l, struct sample s)
{
    int at = l->n;
    while (at > 0 && before(&s, &l->s[at - 1])) at--;
    if (at == REMOVALS_SAMPLES) {
        sample_fini(&s);
        return;
    }
    if (l->n == REMOVALS_SAMPLES) sample_fini(&l->s[--l->n]);
    memmove(&l->s[at + 1], &l->s[at], (size_t)(l->n - at) * sizeof l->s[0]);
    l->s[at] = s;
    l->n++;
}

static bool would_stay(const struct samples *l, uint64_t rank, int64_t index)
{
    struct sample s = {.rank = rank, .origin.index = index};
    return l->n < REMOVALS_SAMPLES || before(&s, &l->s[l->n - 1]);
}

/* The beginning, whole characters of it; a NUL, which JSON readers dislike, as the sign for it. */
static char *excerpt(const struct str *text)
{
    struct str out = {0};
    size_t n = text->n < REMOVALS_SHOWN ? text->n : utf8_cut((const unsigned char *)text->p, REMOVALS_SHOWN);
    for (size_t i = 0; i < n; i++) {
        if (text->p[i]) str_putc(&out, text->p[i]);
        else str_puts(&out, "\xE2\x90\x80");
    }
    if (n < text->n) str_puts(&out, " \xE2\x80\xA6");
    return out.p ? out.p : xstrdup("");
}

static void take_sample(struct samples *l, const struct document *d, const struct str *text, int rule, double value)
{
    uint64_t rank = rank_of(d->origin.index);
    if (!would_stay(l, rank, d->origin.index)) return;
    struct sample s = {.rank = rank, .origin = d->origin, .bytes = d->bytes_read, .rule = rule, .value = value};
    s.origin.source = xstrdup(d->origin.source);
    s.text = excerpt(text);
    samples_put(l, s);
}

static void samples_add(struct samples *into, const struct samples *from)
{
    for (int i = 0; i < from->n; i++) {
        struct sample s = from->s[i];
        s.origin.source = xstrdup(s.origin.source);
        s.text = xstrdup(s.text);
        samples_put(into, s);
    }
}

/* ---- counting ---- */

int removals_bin(const struct filter_rule *r, double x)
{
    double at = r->log ? log(x / r->lo) / log(r->hi / r->lo) : (x - r->lo) / (r->hi - r->lo);
    if (!(at >= 0)) return 0;
    return at >= 1 ? (x > r->hi ? REMOVALS_BINS + 1 : REMOVALS_BINS) : 1 + (int)(at * REMOVALS_BINS);
}

double removals_edge(const struct filter_rule *r, int bin)
{
    double at = (double)(bin - 1) / REMOVALS_BINS;
    return r->log ? r->lo * pow(r->hi / r->lo, at) : r->lo + (r->hi - r->lo) * at;
}

void removals_end(struct removals *t, int use, const struct document *d, int rule)
{
    const struct filter *f = t->uses[use].filter;
    struct use_removals *u = &t->use[use];
    for (int i = 0; i < f->n_rules; i++) {
        if (isnan(t->found.value[i])) continue;
        struct histogram *h = &u->rule[i].values;
        (i == rule ? h->dropped : h->kept)[removals_bin(&f->rule[i], t->found.value[i])]++;
    }
    if (rule >= 0) {
        u->dropped++;
        u->dropped_bytes += (int64_t)t->bytes_before;
        u->rule[rule].dropped++;
        u->rule[rule].dropped_bytes += (int64_t)t->bytes_before;
        take_sample(&u->gone, d, t->found.why.n ? &t->found.why : &d->text, rule, t->found.value[rule]);
    } else if (t->found.n_removed) {
        u->changed++;
        u->removed_bytes += (int64_t)t->bytes_before - (int64_t)d->text.n;
        u->removed_pieces += t->found.n_removed;
        take_sample(&u->edited, d, &t->found.removed, FILTER_KEEPS, 0);
    }
}

static void add_histogram(struct histogram *into, const struct histogram *from)
{
    for (int i = 0; i < REMOVALS_BINS + 2; i++) {
        into->kept[i] += from->kept[i];
        into->dropped[i] += from->dropped[i];
    }
}

void removals_add(struct removals *into, const struct removals *from)
{
    CHECK(into->uses == from->uses, "removals of different rules");
    for (int i = 0; i < into->n; i++) {
        struct use_removals *a = &into->use[i];
        const struct use_removals *b = &from->use[i];
        a->seen += b->seen;
        a->seen_bytes += b->seen_bytes;
        a->dropped += b->dropped;
        a->dropped_bytes += b->dropped_bytes;
        a->changed += b->changed;
        a->removed_bytes += b->removed_bytes;
        a->removed_pieces += b->removed_pieces;
        for (int k = 0; k < into->uses[i].filter->n_rules; k++) {
            a->rule[k].dropped += b->rule[k].dropped;
            a->rule[k].dropped_bytes += b->rule[k].dropped_bytes;
            add_histogram(&a->rule[k].values, &b->rule[k].values);
        }
        samples_add(&a->gone, &b->gone);
        samples_add(&a->edited, &b->edited);
    }
}
