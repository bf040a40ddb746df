/* tutti explain CONFIG layout|tape|schedule|memory|comm [-n RANKS] [key=value ...]: prints the three plans and what they
 * weigh, as rank 0 has them, on the null device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "cli/layout_picture.h"
#include "layout/shape.h"
#include "plan/plan.h"
#include "run/serve.h"

struct explain {
    const struct config *c;
    struct engine *g;
    struct device *d;
    struct ranks ranks;
};

static int explain_layout(const struct explain *x, struct str *out, struct err *e)
{
    char type[128];
    (void)e;
    const struct units *u = &x->g->store.units;
    str_printf(out, "%-32s %-18s %12s  %-8s %-26s %12s  %s\n", "parameter", "global shape", "elements", "init",
               "rank 0 computes with", "and steps", "mesh type");
    for (int i = 0; i < x->g->params.n; i++) {
        const struct param *p = &x->g->params.p[i];
        struct shape n = shape_of(p->nd, p->n);
        char shape[128], init[32];
        if (p->init == INIT_NORMAL) snprintf(init, sizeof init, "N %.3g", p->std);
        else snprintf(init, sizeof init, "%s", p->init == INIT_ONES ? "ones" : "zeros");
        struct region held = param_rows(p, 0, p->ln[0]);
        char box[256] = "-", text[256];
        if (p->held) snprintf(box, sizeof box, "%s", region_print(text, &held));
        str_printf(out, "%-32s %-18s %12" PRId64 "  %-8s %-26s %12" PRId64 "  %s%s\n", p->name, shape_print(shape, &n), p->numel,
                   init, box, u->piece[i].n, spmd_print(type, p->type), p->decay ? "" : "  (no decay)");
    }
    str_printf(out, "%d parameters, %" PRId64 " elements; rank 0 computes with %" PRId64 " and steps %" PRId64 "\n", x->g->params.n,
               x->g->params.numel, x->g->params.held, u->shard_numel);
    str_puts(out, "letters per axis: I invariant, R replicated (gradient is a sum over the axis), S sharded along a dim, "
                  "V varying, P partial\n");
    return OK;
}

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

static void explain_group(const struct comm *c, struct str *out)
{
    if (!c) return;
    struct comm_traffic all = comm_traffic(c);
    int n;
    const struct comm_tally *t = comm_tally(c, &n);
    if (!n) return;
    str_printf(out, "%s: %d ranks, this is %d; %" PRId64 " operations, %" PRId64 " messages, %" PRId64 " bytes sent\n",
               comm_name(c), comm_size(c), comm_rank(c), all.operations, all.messages, all.bytes);
    str_printf(out, "  %-14s %-10s %6s %12s %-5s %9s %14s %12s  %s\n", "operation", "algorithm", "times", "elements", "dtype",
               "messages", "bytes sent", "predicted us", "of");
    for (int i = 0; i < n; i++)
        str_printf(out, "  %-14s %-10s %6" PRId64 " %12" PRId64 " %-5s %9" PRId64 " %14" PRId64 " %12.1f  %s\n",
                   comm_op_name(t[i].op), t[i].algorithm, t[i].traffic.operations, t[i].n, dtype_name(t[i].dtype),
                   t[i].traffic.messages, t[i].traffic.bytes, 1e6 * t[i].seconds, t[i].what);
}

/* Of a worker: its groups with the servers. What was sent before the step, once, is part of it. */
static int explain_servers(const struct explain *x, struct str *out, struct err *e)
{
    bool async = x->c->parallel.server_mode == SERVER_ASYNC;
    struct engine_config ec = config_engine(x->c);
    struct serve_config sc = {.async = async, .optim = ec.optim, .lr = config_lr(x->c), .steps = 1};
    struct serve *v = NULL;
    struct comm *c;
    int64_t sent;
    int rc = serve_new(&v, &sc, x->g, &x->ranks, e);
    if (rc) return rc;
    rc = serve_dry_step(v, &sent, e);
    str_printf(out, "rank 0 is a worker: the first pull and one %s; it sends %" PRId64 " bytes to and for servers in each\n\n",
               async ? "update" : "step", sent);
    for (int i = 0; (c = serve_group(v, i)); i++) explain_group(c, out);
    explain_group(x->ranks.workers, out);
    explain_group(x->ranks.world, out);
    serve_free(v);
    return rc;
}

/* What rank 0 sends in one step, by group and operation, and when: one step is taken on the null device. */
static int explain_comm(const struct explain *x, struct str *out, struct err *e)
{
    const struct ranks *r = &x->ranks;
    struct comm *const group[] = {r->shard, r->small, r->replicate, r->model, r->axis[AXIS_TP], r->axis[AXIS_CP],
                                  r->cp_inner, r->cp_outer, r->axis[AXIS_PP], r->axis[AXIS_EP], r->axis[AXIS_ETP], r->axis[AXIS_EDP], r->world};
    const int n = (int)(sizeof group / sizeof *group);
    struct engine_batch nothing = {0};
    struct engine_report report;
    engine_init(x->g);
    if (r->n_servers) return explain_servers(x, out, e);
    engine_step(x->g, &nothing, 0, 0, &report);
    if (!r->world) str_puts(out, "one rank: nothing is sent (-n RANKS)\n");
    else str_puts(out, "one step of rank 0; times are those of the model for a link of comm.link_GBps and link_latency_us, or of\n"
                       "10 GB/s and 2 us, if nothing else were going on\n\n");
    for (int i = 0; i < n; i++) {
        bool again = false;
        for (int k = 0; k < i; k++) again |= group[k] == group[i];
        if (!again) explain_group(group[i], out);
    }
    for (int i = 0; i < x->g->n_stages; i++) {
        const struct engine_stage *s = &x->g->stage[i];
        str_printf(out, "\nstage %d, of each microbatch: before or after which instruction (explain tape) a unit is gathered,\n"
                        "needed, released; its gradient gets a temporary, and is complete\n", s->index);
        flow_print(&s->flow, &x->g->store.units, out);
    }
    return OK;
}

static const struct topic {
    const char *name;
    int (*print)(const struct explain *x, struct str *out, struct err *e);
} topics[] = {
    {"layout", explain_layout}, {"tape", explain_tape}, {"schedule", explain_schedule}, {"memory", explain_memory},
    {"comm", explain_comm}};

/* Takes --svg FILE out of the arguments; 0, or 2 after a word about what is wrong. */
static int take_svg(int *argc, char **argv, const char **file)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        int got = cli_option("explain", *argc, argv, &i, "--svg", file);
        if (got < 0) return 2;
        if (!got) argv[kept++] = argv[i];
    }
    *argc = kept;
    return 0;
}

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
               "  layout --svg FILE   a picture of all ranks: who has which tokens, layers and parts of parameters\n");
        return 0;
    }
    struct cli_args a;
    const char *svg = NULL;
    int rc = take_svg(&argc, argv, &svg);
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
    if (!rc) rc = device_null_new(&x.d, &e);
    struct comm_config link = rc ? (struct comm_config){0} : config_comm(&c);
    if (!rc && a.ranks > 1) rc = comm_world_null(&world, 0, (int)a.ranks, &link, &e);
    if (!rc) rc = ranks_init(&x.ranks, world, &c, &e);
    struct engine_config ec = rc ? (struct engine_config){0} : config_engine(&c);
    if (!rc) ranks_engine(&x.ranks, &ec);
    if (!rc) rc = engine_new(&x.g, &ec, x.d, &e);
    if (!rc && svg) rc = write_picture(&c, (int)a.ranks, svg, &e);
    else if (!rc) rc = t->print(&x, &out, &e);
    if (!rc) fputs(str_text(&out), stdout);
    engine_free(x.g);
    ranks_fini(&x.ranks);
    comm_free(world);
    if (x.d) device_free(x.d);
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : 0;
}
