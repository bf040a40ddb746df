/* SPDX-License-Identifier: Apache-2.0 */
/* piece_counter.c: parts of the source on a conveyor; every thread has a cutter and a table of its own. What is
 * delivered is nothing: a sum does not depend on who added what.
 */
#include "token/piece_counter.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/conveyor.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "token/cutter.h"
#include "token/seam.h"
#include "token/text_parts.h"

struct member {
    struct piece_counter *counter;
    struct cutter *cutter;
    struct piece_counts *counts;
    int64_t total;
    int code; /* of the first table that could not be written */
    struct err e;
};

struct piece_counter {
    const struct cut_rules *rules;
    int n;
    struct member *members;
    struct piece_counts **tables;
    char *scratch;
    struct parts *parts; /* while a source is read */
    const struct source *source;
    double start_s, shown_s;
};

static void count_piece(void *arg, const unsigned char *p, size_t n)
{
    struct member *m = arg;
    m->total++;
    if (!m->code) m->code = piece_counts_add(m->counts, p, n, 1, &m->e);
}

static void skip_token(void *arg, int32_t id)
{
    (void)arg;
    (void)id;
}

struct piece_counter *piece_counter_new(const struct cut_rules *rules, int n_threads, int64_t memory,
                                        const char *scratch)
{
    struct piece_counter *c = xcalloc(1, sizeof *c);
    c->rules = rules;
    c->n = n_threads;
    c->scratch = xstrdup(scratch);
    c->members = xcalloc((size_t)n_threads, sizeof *c->members);
    c->tables = xcalloc((size_t)n_threads, sizeof(struct piece_counts *));
    for (int i = 0; i < n_threads; i++) {
        struct member *m = &c->members[i];
        char name[32];
        snprintf(name, sizeof name, "run-%d", i);
        char *path = fs_join(scratch, name);
        m->counter = c;
        m->counts = c->tables[i] = piece_counts_new(memory / n_threads, path);
        m->cutter = cutter_new(rules, (struct cutter_sink){.piece = count_piece, .token = skip_token, .arg = m});
        xfree(path);
    }
    return c;
}

void piece_counter_free(struct piece_counter *c)
{
    if (!c) return;
    for (int i = 0; i < c->n; i++) {
        cutter_free(c->members[i].cutter);
        piece_counts_free(c->members[i].counts);
    }
    if (c->scratch && fs_is_dir(c->scratch)) (void)fs_remove_tree(c->scratch, NULL);
    xfree(c->scratch);
    xfree(c->members);
    xfree(c->tables);
    xfree(c);
}

static int read_part(void *arg, void *item, bool *follows, struct err *e)
{
    struct piece_counter *c = arg;
    *follows = false;
    return parts_read(c->parts, item, e);
}

static int count_part(void *arg, int member, void *item, struct err *e)
{
    struct piece_counter *c = arg;
    struct member *m = &c->members[member];
    const struct part *p = item;
    size_t from = 0;
    int code = OK;
    for (int64_t i = 0; i <= p->n_ends && !code; i++) {
        size_t to = i < p->n_ends ? p->ends[i].at : p->n;
        if (to == from) continue;
        code = cutter_feed(m->cutter, p->text + from, to - from, e);
        if (!code) code = cutter_end(m->cutter, e);
        from = to;
    }
    return !code && m->code ? err_set(e, (enum err_code)m->code, "%s", m->e.text) : code;
}

static int show_part(void *arg, void *item, struct err *e)
{
    struct piece_counter *c = arg;
    const struct part *p = item;
    double now = clock_now_s(), took = now - c->start_s;
    (void)e;
    if (now - c->shown_s < (log_is_terminal() ? 0.2 : 10)) return OK;
    c->shown_s = now;
    char done[32], all[32], rate[32], left[32];
    double per_s = (double)p->source_done / (took > 1e-3 ? took : 1e-3);
    log_status("counting: %s of %s, %s/s, %s left", str_bytes(done, (double)p->source_done),
               str_bytes(all, (double)source_bytes(c->source)), str_bytes(rate, per_s),
               str_duration(left, (double)(source_bytes(c->source) - p->source_done) / (per_s > 1 ? per_s : 1)));
    return OK;
}

int piece_counter_read(struct piece_counter *c, struct source *s, struct err *e)
{
    static const struct conveyor_ops ops = {read_part, count_part, show_part};
    int n_items = c->n == 1 ? 1 : 2 * c->n + 2;
    struct part *parts = xcalloc((size_t)n_items, sizeof *parts);
    void **items = xmalloc((size_t)n_items * sizeof *items);
    for (int i = 0; i < n_items; i++) items[i] = &parts[i];
    struct seams seams;
    seams_of_rules(&seams, c->rules);
    c->parts = parts_new(s, &seams, NULL);
    c->source = s;
    c->start_s = c->shown_s = clock_now_s();
    int code = fs_mkdirs(c->scratch, e);
    if (!code) code = conveyor_run(&ops, c, items, n_items, c->n, e);
    if (c->shown_s > c->start_s) log_status_end();
    parts_free(c->parts);
    for (int i = 0; i < n_items; i++) part_fini(&parts[i]);
    for (int i = 0; i < c->n; i++) {
        c->members[i].e = (struct err){0};
        cutter_free(c->members[i].cutter);
        c->members[i].cutter = NULL;
    }
    xfree(items);
    xfree(parts);
    return code;
}

int piece_counter_each(struct piece_counter *c, piece_counts_fn *fn, void *arg, struct err *e)
{
    return piece_counts_merge(c->tables, c->n, fn, arg, e);
}

int64_t piece_counter_total(const struct piece_counter *c)
{
    int64_t total = 0;
    for (int i = 0; i < c->n; i++) total += c->members[i].total;
    return total;
}

int64_t piece_counter_runs(const struct piece_counter *c)
{
    int64_t n = 0;
    for (int i = 0; i < c->n; i++) n += piece_counts_runs(c->tables[i]);
    return n;
}
