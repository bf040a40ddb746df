/* SPDX-License-Identifier: Apache-2.0 */
/* A schedule as text and back. The text is complete: placement, ways and every action, so that a schedule can be
 * kept as a golden file, edited by hand and checked again. Lines in a fixed order; the parser accepts blank lines
 * and comments from # to the end of the line. Limits are checked before anything is allocated. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "schedule/csv.h"

void schedule_print_rank(const struct schedule *s, int rank, struct str *out)
{
    const struct action_list *l = &s->rank[rank];
    char name[32];
    for (int64_t i = 0; i < l->n; i++) {
        if (i) str_putc(out, ' ');
        str_puts(out, action_print(name, l->a[i]));
    }
}

void schedule_print(const struct schedule *s, struct str *out)
{
    str_printf(out, "schedule %s ranks %d stages %d microbatches %d", s->kind, s->n_ranks, s->n_stages,
               s->n_microbatches);
    if (s->n_ways == 2) str_printf(out, " way_from %d", s->way_from);
    if (s->forward_only) str_puts(out, " forward_only");
    str_putc(out, '\n');
    for (int w = 0; w < s->n_ways; w++) {
        str_puts(out, "place");
        for (int i = 0; i < s->n_stages; i++) str_printf(out, " %d", s->place[w * s->n_stages + i]);
        str_putc(out, '\n');
    }
    for (int r = 0; r < s->n_ranks; r++) {
        str_printf(out, "rank %d: ", r);
        schedule_print_rank(s, r, out);
        str_putc(out, '\n');
    }
}

/* A cursor over the text; line counts from 1. */
struct reader {
    const char *p;
    const char *what;
    int line;
    struct err *e;
};

static int complain(struct reader *r, const char *wanted)
{
    int n = (int)strcspn(r->p, " \t\r\n");
    return err_set(r->e, ERR_REQUEST, "%s:%d: wanted %s, got '%.*s'", r->what, r->line, wanted, n > 40 ? 40 : n, r->p);
}

static void skip_blanks(struct reader *r)
{
    r->p += strspn(r->p, " \t\r");
    if (*r->p == '#') r->p += strcspn(r->p, "\n");
}

/* To the first word of the next line that has one. */
static void next_line(struct reader *r)
{
    for (skip_blanks(r); *r->p == '\n'; skip_blanks(r)) {
        r->p++;
        r->line++;
    }
}

static bool word(struct reader *r, const char *w)
{
    skip_blanks(r);
    size_t n = strlen(w);
    if (strncmp(r->p, w, n) || isalnum((unsigned char)r->p[n]) || r->p[n] == '_') return false;
    r->p += n;
    return true;
}

static bool number(struct reader *r, int limit, int *out)
{
    skip_blanks(r);
    if (!isdigit((unsigned char)*r->p)) return false;
    char *end;
    long v = strtol(r->p, &end, 10);
    if (v > limit) return false;
    r->p = end;
    *out = (int)v;
    return true;
}

static int read_head(struct reader *r, struct schedule **out)
{
    char kind[24];
    int n_ranks, n_stages, n_microbatches, way_from = 0;
    next_line(r);
    if (!word(r, "schedule")) return complain(r, "'schedule KIND ranks R stages S microbatches M'");
    skip_blanks(r);
    size_t n = strcspn(r->p, " \t\r\n#");
    if (!n || n >= sizeof kind) return complain(r, "a kind of 1 to 23 characters");
    memcpy(kind, r->p, n);
    kind[n] = 0;
    r->p += n;
    if (!word(r, "ranks") || !number(r, SCHEDULE_MAX_RANKS, &n_ranks)) return complain(r, "'ranks R'");
    if (!word(r, "stages") || !number(r, SCHEDULE_MAX_STAGES, &n_stages)) return complain(r, "'stages S'");
    if (!word(r, "microbatches") || !number(r, SCHEDULE_MAX_MICROBATCHES, &n_microbatches))
        return complain(r, "'microbatches M'");
    if (schedule_limits(n_ranks, n_stages, n_microbatches, r->e)) return err_prefix(r->e, "%s:%d", r->what, r->line);
    bool two_ways = word(r, "way_from");
    if (two_ways && (!number(r, n_microbatches - 1, &way_from) || way_from == 0))
        return complain(r, "a microbatch from 1 to the last");
    *out = schedule_new(kind, n_ranks, n_stages, n_microbatches);
    if (two_ways) schedule_add_way(*out, way_from);
    (*out)->forward_only = word(r, "forward_only");
    return OK;
}

static int read_places(struct reader *r, struct schedule *s)
{
    for (int w = 0; w < s->n_ways; w++) {
        next_line(r);
        if (!word(r, "place")) return complain(r, "'place' and a rank for every stage");
        for (int i = 0, rank; i < s->n_stages; i++) {
            if (!number(r, s->n_ranks - 1, &rank)) return complain(r, "a rank for every stage");
            schedule_place(s, w, i, rank);
        }
    }
    return OK;
}

static int read_rank(struct reader *r, struct schedule *s, int want)
{
    int rank;
    next_line(r);
    if (!word(r, "rank") || !number(r, s->n_ranks - 1, &rank) || rank != want || *r->p != ':')
        return complain(r, "'rank I:' for every rank, in order");
    r->p++;
    for (skip_blanks(r); *r->p && *r->p != '\n'; skip_blanks(r)) {
        struct action a;
        int used;
        if (action_parse(r->p, &a, &used, r->e)) return err_prefix(r->e, "%s:%d", r->what, r->line);
        if (a.stage >= s->n_stages || a.microbatch >= s->n_microbatches)
            return complain(r, "a stage and microbatch of this schedule");
        schedule_push(s, rank, a);
        r->p += used;
    }
    return OK;
}

int schedule_parse(struct schedule **out, const char *text, const char *what, struct err *e)
{
    struct reader r = {text, what, 1, e};
    *out = NULL;
    next_line(&r);
    if (isdigit((unsigned char)*r.p) || *r.p == ',' || *r.p == '"') return schedule_parse_csv(out, text, what, e);
    int rc = read_head(&r, out);
    if (!rc) rc = read_places(&r, *out);
    for (int i = 0; !rc && i < (*out)->n_ranks; i++) rc = read_rank(&r, *out, i);
    if (!rc) {
        next_line(&r);
        if (*r.p) rc = complain(&r, "the end");
    }
    if (rc) {
        schedule_free(*out);
        *out = NULL;
    }
    return rc;
}
