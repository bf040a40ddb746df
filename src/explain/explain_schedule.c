/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG schedule, and memory: what comes when, and what it keeps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "explain/explain.h"
#include "plan/plan.h"
#include "plan/stage_costs.h"
#include "engine/stages.h"

static const char *stage_text(const struct model_stage *s, char out[96])
{
    int n = s->end - s->first, k = snprintf(out, 96, "%s", s->embeds ? "embedding" : "");
    if (n) k += snprintf(out + k, 96 - (size_t)k, "%slayer%s %d", k ? ", " : "", n > 1 ? "s" : "", s->first);
    if (n > 1) k += snprintf(out + k, 96 - (size_t)k, "-%d", s->end - 1);
    if (s->heads) k += snprintf(out + k, 96 - (size_t)k, "%shead", k ? ", " : "");
    if (!k) snprintf(out, 96, "no layers");
    return out;
}

/* What travels together. */
static void print_units(const struct explain *x, struct str *out)
{
    const struct units *u = &x->g->store.units;
    struct lines l = {0};
    char at[32], line[160];
    for (int i = 0; i < u->n; i++) {
        const struct param *p = &u->table->p[u->unit[i].first];
        snprintf(at, sizeof at, "unit %d: ", i);
        snprintf(line, sizeof line, "%.80s%s", p->name, u->unit[i].n > 1 ? " ..." : "");
        explain_lines_add(&l, explain_line_number(p->name, "layers."), -1, at, line);
    }
    if (!x->full) explain_lines_fold(&l, LINE_LAYER);
    explain_lines_print(&l, x->full ? 0 : EXPLAIN_COLUMNS, 10, out);
    explain_lines_free(&l);
}

/* A phase with all that happens around its parts. */
struct chunk {
    struct action a; /* the whole of it */
    struct str text; /* with * for its microbatch */
};

static bool same_phase(struct action a, struct action b)
{
    bool backward[2] = {a.kind == ACTION_B || a.kind == ACTION_BW || a.kind == ACTION_RECOMPUTE,
                        b.kind == ACTION_B || b.kind == ACTION_BW || b.kind == ACTION_RECOMPUTE};
    return a.stage == b.stage && a.microbatch == b.microbatch && (a.kind == b.kind || (backward[0] && backward[1]));
}

static bool is_update(struct action a) { return a.kind == ACTION_UPDATE || a.kind == ACTION_PUBLISH; }

/* Action i begins another chunk: the update, which is the last, or a phase; what comes before its first part
 * (receiving, gathering) belongs to it. */
static bool begins_chunk(const struct action_list *l, int64_t i, struct action now, bool any)
{
    struct action a = l->a[i];
    if (is_update(a)) return !any || !is_update(now);
    if (a.kind == ACTION_RELEASE || a.kind == ACTION_REDUCE || a.kind == ACTION_SEND_F || a.kind == ACTION_SEND_B)
        return false;
    while (i < l->n && !action_is_compute((enum action_kind)l->a[i].kind)) i++;
    return !any || (i < l->n && !same_phase(now, l->a[i]));
}

static void put_action(struct chunk *c, struct action a)
{
    char name[32], star[16];
    action_print(name, a);
    if (c->text.n) str_putc(&c->text, ' ');
    if (action_has_microbatch((enum action_kind)a.kind) && a.microbatch == c->a.microbatch) {
        int stage = snprintf(star, sizeof star, "%u%s", a.stage, action_name((enum action_kind)a.kind));
        int digits = snprintf(star, sizeof star, "%u", a.microbatch);
        str_printf(&c->text, "%.*s*%s", stage, name, name + stage + digits);
    } else {
        str_puts(&c->text, name);
    }
}

static int64_t next_chunk(const struct action_list *l, int64_t i, struct chunk *c)
{
    int64_t to = i;
    while (to < l->n && !action_is_compute((enum action_kind)l->a[to].kind) && !is_update(l->a[to])) to++;
    *c = (struct chunk){0};
    if (to < l->n) c->a = l->a[to];
    for (to = i; to < l->n && (to == i || !begins_chunk(l, to, c->a, true)); to++) put_action(c, l->a[to]);
    c->a.part = ACTION_WHOLE;
    if (c->a.kind == ACTION_RECOMPUTE) c->a.kind = ACTION_B;
    return to;
}

/* Each kind of phase once; microbatches that are like one before are named. */
static void print_list(const struct action_list *l, int columns, struct str *out)
{
    struct chunk *seen = NULL;
    int n = 0, room = 0, like = 0;
    struct str line = {0};
    char name[32], of[32];
    for (int64_t i = 0; i < l->n;) {
        struct chunk c;
        i = next_chunk(l, i, &c);
        int k = 0;
        while (k < n && strcmp(str_text(&seen[k].text), str_text(&c.text))) k++;
        action_print(name, c.a);
        if (k < n) {
            str_printf(&line, "%s%s like %s", like++ ? ", " : "  ", name, action_print(of, seen[k].a));
            str_free(&c.text);
            continue;
        }
        if (like) explain_lines_wrap(str_text(&line), columns, 4, out);
        like = 0;
        str_clear(&line);
        if (is_update(c.a)) str_printf(&line, "  the update: %s", str_text(&c.text));
        else str_printf(&line, "  %s, with * for %u: %s", name, c.a.microbatch, str_text(&c.text));
        explain_lines_wrap(str_text(&line), columns, 4, out);
        str_clear(&line);
        GROW(seen, n, room, 1);
        seen[n++] = c;
    }
    if (like) explain_lines_wrap(str_text(&line), columns, 4, out);
    for (int k = 0; k < n; k++) str_free(&seen[k].text);
    xfree(seen);
    str_free(&line);
}

static void print_all(const struct explain *x, struct str *out)
{
    enum { FEW = 100 };
    const struct action_list *l = &x->g->all.list;
    str_puts(out,
             "\nall that rank 0 does, part by part; 0F0.1 is part 1 of a phase, 0GATHER.1 unit 1 of the parameters:\n");
    print_units(x, out);
    if (x->full) {
        struct str s = {0};
        schedule_print_list(l, &s);
        str_printf(out, "%s\n", str_text(&s));
        str_free(&s);
    } else {
        print_list(l, EXPLAIN_COLUMNS, out);
    }
    if (!x->full && x->g->go.n > FEW) {
        str_printf(out, "in which buffers: --full (%lld steps)\n", (long long)x->g->go.n);
        return;
    }
    str_puts(out, "\nand in which buffers:\n");
    itinerary_print(&x->g->go, out);
}

/* What each stage computes, and how long ranks then wait for each other. */
static int print_costs(const struct explain *x, struct str *out, struct err *e)
{
    const struct schedule *s = x->g->when;
    struct schedule_stage_cost *c;
    struct schedule_timeline t;
    char f[32], b[32], w[32], again[32];
    int rc = stage_costs(&c, x->c, x->g, e);
    if (rc) return rc;
    str_printf(out, "one microbatch computes, by the programs of the stages:\n");
    for (int i = 0; i < s->n_stages; i++) {
        str_printf(out, "  stage %-3d %12s forward, %12s backward", i, str_flops(f, c[i].f), str_flops(b, c[i].b));
        if (c[i].w > 0) str_printf(out, ", %12s weights", str_flops(w, c[i].w));
        if (c[i].again > 0) str_printf(out, ", %12s once more", str_flops(again, c[i].again));
        str_putc(out, '\n');
    }
    schedule_simulate(s, &(struct schedule_cost){.each = c}, &t);
    str_printf(out,
               "if every FLOP took the same time and messages none: bubble %.1f %% (idle time over the work of the "
               "busiest rank); ranks idle %.1f %% of the time:",
               100 * t.bubble_ratio, 100 * t.idle_share);
    for (int r = 0; r < s->n_ranks; r++) str_printf(out, " %.1f", t.makespan > 0 ? 100 * t.idle[r] / t.makespan : 0);
    str_printf(out, " %%\n");
    schedule_timeline_fini(&t);
    xfree(c);
    return OK;
}

int explain_schedule(const struct explain *x, struct str *out, struct err *e)
{
    char text[96];
    struct str s = {0};
    for (int i = 0; i < x->g->when->n_stages; i++)
        str_printf(out, "stage %d: %s\n", i, stage_text(&x->g->parts[i], text));
    schedule_print(x->g->when, &s);
    explain_lines_wrap(str_text(&s), x->full ? 0 : EXPLAIN_COLUMNS, 8, out);
    str_free(&s);
    str_puts(out, "(2F0: stage 2, microbatch 0, forward; B backward to inputs, W weight gradients, BW both; S sends, R "
                  "receives)\n");
    str_printf(out, "live slabs at the worst moment: %" PRId64 "\n", x->g->peak.both);
    int rc = x->g->when->n_ranks > 1 ? print_costs(x, out, e) : OK;
    if (!rc) print_all(x, out);
    return rc;
}

int explain_schedule_json(const struct explain *x, struct json_out *o, struct err *e)
{
    const struct schedule *s = x->g->when;
    struct schedule_stage_cost *c;
    struct schedule_timeline line;
    int rc = stage_costs(&c, x->c, x->g, e);
    if (rc) return rc;
    schedule_simulate(s, &(struct schedule_cost){.each = c}, &line);
    json_put_string(o, "kind", s->kind);
    json_put_int(o, "microbatches", s->n_microbatches);
    json_begin_array(o, "stages");
    for (int i = 0; i < s->n_stages; i++) {
        const struct model_stage *p = &x->g->parts[i];
        json_begin_object(o, NULL);
        json_put_int(o, "stage", i);
        json_begin_array(o, "pp_ranks");
        for (int r = 0; r < s->n_ranks; r++)
            if (schedule_has_stage(s, r, i)) json_put_int(o, NULL, r);
        json_end_array(o);
        json_put_int(o, "first_layer", p->first);
        json_put_int(o, "n_layers", p->end - p->first);
        json_put_bool(o, "embedding", p->embeds);
        json_put_bool(o, "head", p->heads);
        json_put_real(o, "flops_forward", c[i].f);
        json_put_real(o, "flops_backward", c[i].b);
        json_put_real(o, "flops_weights", c[i].w);
        json_put_real(o, "flops_again", c[i].again);
        json_end_object(o);
    }
    json_end_array(o);
    json_put_real(o, "bubble_ratio", line.bubble_ratio);
    json_put_real(o, "idle_share", line.idle_share);
    schedule_timeline_fini(&line);
    xfree(c);
    json_begin_array(o, "actions");
    for (int r = 0; r < s->n_ranks; r++) {
        struct str t = {0};
        schedule_print_rank(s, r, &t);
        json_put_string(o, NULL, str_text(&t));
        str_free(&t);
    }
    json_end_array(o);
    const struct units *u = &x->g->store.units;
    json_begin_array(o, "units");
    for (int i = 0; i < u->n; i++) {
        json_begin_object(o, NULL);
        json_put_int(o, "unit", i);
        json_put_string(o, "first_parameter", u->table->p[u->unit[i].first].name);
        json_put_int(o, "parameters", u->unit[i].n);
        json_end_object(o);
    }
    json_end_array(o);
    struct str all = {0};
    schedule_print_list(&x->g->all.list, &all);
    json_put_string(o, "rank_actions", str_text(&all));
    str_free(&all);
    json_put_int(o, "live_slabs", x->g->peak.both);
    return OK;
}

/* ---- memory ---- */

/* Kept from forward to backward, and not too small to matter. */
static bool tells(const struct program *t, const struct place *q, bool all)
{
    return q->first >= 0 && q->home == HOME_ACT && (all || q->bytes * 200 >= t->bytes[HOME_ACT]);
}

static int layer_of(const struct program *t, const struct place *q)
{
    int producer = q->of >= 0 ? tape_tensor(t->tape, q->of)->producer : -1;
    return producer >= 0 ? t->tape->nodes[producer].layer : -1;
}

static void print_places(const struct program *t, bool full, struct str *out)
{
    struct lines l = {0};
    char line[160], where[32], b[32];
    for (int i = 0; i < t->n_places; i++) {
        const struct place *q = &t->places[i];
        int layer = layer_of(t, q);
        if (!tells(t, q, false)) continue;
        if (layer >= 0) snprintf(where, sizeof where, "layer %d", layer);
        else snprintf(where, sizeof where, "-");
        snprintf(line, sizeof line, "  %-32s %-9s %14zu %10s  ", tape_tensor(t->tape, q->of)->name,
                 q->grad ? "gradient" : "", q->bytes, str_bytes(b, (double)q->bytes));
        size_t n = strlen(line);
        snprintf(line + n, sizeof line - n, "%s", where);
        explain_lines_add(&l, layer, -1, "", line);
    }
    if (!full) explain_lines_fold(&l, LINE_LAYER);
    explain_lines_print(&l, full ? 0 : EXPLAIN_COLUMNS, 10, out);
    explain_lines_free(&l);
}

int explain_memory(const struct explain *x, struct str *out, struct err *e)
{
    struct plan p;
    char b[32];
    int rc = plan_make(&p, x->c, e);
    if (rc) return rc;
    plan_print(&p, x->c, out);
    plan_free(&p);
    explain_arrays(x, out);
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct program *t = x->g->stage[i].train;
        str_puts(out, "\none microbatch");
        if (x->g->n_stages > 1) str_printf(out, " of stage %d", x->g->stage[i].index);
        str_printf(out, " keeps %s from forward to backward; the largest of it:\n",
                   str_bytes(b, (double)t->bytes[HOME_ACT]));
        print_places(t, x->full, out);
    }
    if (!x->g->n_stages) str_puts(out, "\nrank 0 runs no model\n");
    return OK;
}

int explain_memory_json(const struct explain *x, struct json_out *o, struct err *e)
{
    (void)e;
    json_begin_object(o, "bytes");
    for (int i = 0; i < MEM_N; i++) json_put_int(o, mem_cat_name((enum mem_cat)i), (int64_t)x->d->ledger.now[i]);
    json_end_object(o);
    json_put_int(o, "total_bytes", (int64_t)x->d->ledger.now_total);
    explain_arrays_json(x, o);
    json_begin_array(o, "stages");
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct program *t = x->g->stage[i].train;
        json_begin_object(o, NULL);
        json_put_int(o, "stage", x->g->stage[i].index);
        json_put_int(o, "activation_bytes", (int64_t)t->bytes[HOME_ACT]);
        json_begin_array(o, "kept");
        for (int k = 0; k < t->n_places; k++) {
            const struct place *q = &t->places[k];
            if (!tells(t, q, true)) continue;
            json_begin_object(o, NULL);
            json_put_string(o, "name", q->of >= 0 ? tape_tensor(t->tape, q->of)->name : "scratch");
            if (layer_of(t, q) >= 0) json_put_int(o, "layer", layer_of(t, q));
            json_put_bool(o, "gradient", q->grad);
            json_put_int(o, "offset", (int64_t)q->offset);
            json_put_int(o, "bytes", (int64_t)q->bytes);
            json_end_object(o);
        }
        json_end_array(o);
        json_end_object(o);
    }
    json_end_array(o);
    return OK;
}
