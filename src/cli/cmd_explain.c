/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG layout|tape|schedule|memory|comm [-n RANKS] [key=value ...]: prints the three plans and what they
 * weigh, as rank 0 has them, on the null device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/explain.h"
#include "cli/layout_picture.h"
#include "plan/plan.h"

static int explain_tape(const struct explain *x, struct str *out, struct err *e)
{
    (void)e;
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct engine_stage *s = &x->g->stage[i];
        if (x->g->when->n_stages > 1) str_printf(out, "stage %d: layers %d to %d\n", s->index, s->part.first, s->part.end);
        tape_print(s->tape, out);
        str_putc(out, '\n');
        program_print(s->train, out);
    }
    return OK;
}

static int explain_schedule(const struct explain *x, struct str *out, struct err *e)
{
    (void)e;
    for (int i = 0; i < x->g->when->n_stages; i++) {
        const struct model_stage *s = &x->g->parts[i];
        str_printf(out, "stage %d: %s%d layers%s\n", i, s->embeds ? "embedding, " : "", s->end - s->first,
                   s->heads ? ", head" : "");
    }
    schedule_print(x->g->when, out);
    str_printf(out, "live slabs at the worst moment: %" PRId64 "\n", x->g->peak.both);
    if (x->g->when->n_stages > 1) str_puts(out, "\nwhat rank 0 does, and in which buffers:\n");
    if (x->g->when->n_stages > 1) itinerary_print(&x->g->go, out);
    return OK;
}

static int explain_memory(const struct explain *x, struct str *out, struct err *e)
{
    struct plan p;
    int rc = plan_make(&p, x->c, e);
    if (rc) return rc;
    plan_print(&p, x->c, out);
    plan_free(&p);
    const struct program *t = x->g->stage[0].train;
    char b[32];
    str_printf(out, "\none microbatch keeps %s from forward to backward; the largest of it:\n",
               str_bytes(b, (double)t->bytes[HOME_ACT]));
    for (int i = 0; i < t->n_places; i++) {
        const struct place *q = &t->places[i];
        if (q->first < 0 || q->home != HOME_ACT || q->bytes * 200 < t->bytes[HOME_ACT]) continue;
        str_printf(out, "  %-32s %s%12zu  %s\n", tape_tensor(t->tape, q->of)->name, q->grad ? "gradient " : "         ",
                   q->bytes, str_bytes(b, (double)q->bytes));
    }
    return OK;
}

static const struct topic {
    const char *name;
    int (*print)(const struct explain *x, struct str *out, struct err *e);
} topics[] = {
    {"layout", explain_layout}, {"tape", explain_tape}, {"schedule", explain_schedule}, {"memory", explain_memory},
    {"comm", explain_comm}};

static int write_picture(const struct config *c, int n, const char *file, struct err *e)
{
    struct str out = {0};
    int rc = layout_picture(c, n, &out, e);
    if (!rc) rc = fs_write_atomic(file, str_text(&out), out.n, e);
    str_free(&out);
    return rc;
}

int cmd_explain(int argc, char **argv)
{
    if (cli_wants_help(argc, argv)) {
        printf("tutti explain CONFIG layout|tape|schedule|memory|comm [-n RANKS] [key=value ...]\n\n"
               "  layout    every parameter, its shape, and where it lies on the mesh\n"
               "  tape      the operations of one microbatch, and the instructions they become, with addresses\n"
               "  schedule  which action comes when\n"
               "  memory    bytes by category, and what a microbatch keeps\n"
               "  comm      what is sent in a step, and when\n"
               "As rank 0 of RANKS (default 1) has it.\n\n"
               "  layout --svg FILE   a picture of all ranks (any number; those alike are folded): who has which tokens, layers and\n                      parts of parameters\n");
        return 0;
    }
    struct cli_args a;
    const char *svg = NULL;
    int rc = cli_take("explain", &argc, argv, "--svg", &svg);
    if (!rc) rc = cli_config_args("explain", argc, argv, &a);
    if (rc) return rc;
    if (a.json) return cli_usage("explain", "there is no option --json: what it prints is for people");
    const struct topic *t = NULL;
    for (size_t i = 0; a.word && i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(a.word, topics[i].name)) t = &topics[i];
    if (!t) return cli_usage("explain", "explain what? layout, tape, schedule, memory or comm%s%s", a.word ? ", not " : "", a.word ? a.word : "");
    if (svg && t->print != explain_layout) return cli_usage("explain", "--svg is a picture of the layout, not of %s", t->name);
    struct err e = {0};
    struct config c;
    struct arena *arena = arena_new();
    struct explain x = {.c = &c};
    struct comm *world = NULL;
    struct str out = {0};
    rc = cli_config(&c, NULL, arena, a.config, a.overrides, a.n_overrides, (int)a.ranks, &e);
    if (!rc && svg) { /* it makes every rank that it draws, and no tape */
        rc = write_picture(&c, (int)a.ranks, svg, &e);
        arena_free(arena);
        return rc ? cli_fail(&e) : 0;
    }
    if (!rc) rc = device_null_new(&x.d, &e);
    struct comm_config link = rc ? (struct comm_config){0} : config_comm(&c);
    if (!rc && a.ranks > 1) rc = comm_world_null(&world, 0, (int)a.ranks, &link, &e);
    if (!rc) rc = ranks_init(&x.ranks, world, &c, &e);
    struct engine_config ec = rc ? (struct engine_config){0} : config_engine(&c);
    if (!rc) ranks_engine(&x.ranks, &ec);
    if (!rc) rc = engine_new(&x.g, &ec, x.d, &e);
    if (!rc) rc = t->print(&x, &out, &e);
    if (!rc) fputs(str_text(&out), stdout);
    engine_free(x.g);
    ranks_fini(&x.ranks);
    comm_free(world);
    if (x.d) device_free(x.d);
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : 0;
}
