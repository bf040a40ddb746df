/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG schedule, and memory: what comes when, and what it keeps. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/explain.h"
#include "plan/plan.h"
#include "run/stages.h"

static const char *stage_text(const struct model_stage *s, char out[96])
{
    int n = s->end - s->first, k = snprintf(out, 96, "%s", s->embeds ? "embedding" : "");
    if (n) k += snprintf(out + k, 96 - (size_t)k, "%slayer%s %d", k ? ", " : "", n > 1 ? "s" : "", s->first);
    if (n > 1) k += snprintf(out + k, 96 - (size_t)k, "-%d", s->end - 1);
    if (s->heads) k += snprintf(out + k, 96 - (size_t)k, "%shead", k ? ", " : "");
    if (!k) snprintf(out, 96, "no layers");
    return out;
}

int explain_schedule(const struct explain *x, struct str *out, struct err *e)
{
    char text[96];
    struct str s = {0};
    (void)e;
    for (int i = 0; i < x->g->when->n_stages; i++)
        str_printf(out, "stage %d: %s\n", i, stage_text(&x->g->parts[i], text));
    schedule_print(x->g->when, &s);
    explain_lines_wrap(str_text(&s), x->full ? 0 : EXPLAIN_COLUMNS, 8, out);
    str_free(&s);
    str_puts(out, "(2F0: stage 2, microbatch 0, forward; B backward to inputs, W weight gradients, BW both; S sends, R receives)\n");
    str_printf(out, "live slabs at the worst moment: %" PRId64 "\n", x->g->peak.both);
    if (x->g->when->n_stages > 1) str_puts(out, "\nwhat rank 0 does, and in which buffers:\n");
    if (x->g->when->n_stages > 1) itinerary_print(&x->g->go, out);
    return OK;
}

int explain_schedule_json(const struct explain *x, struct json_out *o, struct err *e)
{
    const struct schedule *s = x->g->when;
    (void)e;
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
        json_end_object(o);
    }
    json_end_array(o);
    json_begin_array(o, "actions");
    for (int r = 0; r < s->n_ranks; r++) {
        struct str t = {0};
        schedule_print_rank(s, r, &t);
        json_put_string(o, NULL, str_text(&t));
        str_free(&t);
    }
    json_end_array(o);
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
        snprintf(line, sizeof line, "  %-32s %-9s %14zu %10s  ", tape_tensor(t->tape, q->of)->name, q->grad ? "gradient" : "", q->bytes,
                 str_bytes(b, (double)q->bytes));
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
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct program *t = x->g->stage[i].train;
        str_puts(out, "\none microbatch");
        if (x->g->n_stages > 1) str_printf(out, " of stage %d", x->g->stage[i].index);
        str_printf(out, " keeps %s from forward to backward; the largest of it:\n", str_bytes(b, (double)t->bytes[HOME_ACT]));
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
