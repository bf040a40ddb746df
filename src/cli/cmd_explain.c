/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG layout|tape|schedule|memory|comm|binding [-n RANKS] [--full] [--json] [key=value ...]: prints
 * the three plans and what they weigh, as rank 0 has them, on the null device. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "cli/cli.h"
#include "explain/explain.h"
#include "explain/layout_picture.h"
#include "plan/plan.h"

unsigned explain_axes(const struct explain *x)
{
    unsigned bits = 0;
    for (int a = 0; a < AXIS_N; a++) bits |= (unsigned)(x->ranks.mesh.size[a] > 1) << a;
    if (x->c->model.moe.experts) return bits;
    return bits & ~(1u << AXIS_EDP | 1u << AXIS_EP | 1u << AXIS_ETP); /* there, and about nothing */
}

const char *explain_short_name(const char *name, int layer)
{
    char head[32];
    int n = snprintf(head, sizeof head, "layers.%d.", layer);
    return layer >= 0 && !strncmp(name, head, (size_t)n) ? name + n : name;
}

void explain_type_json(struct json_out *o, const char *key, struct spmd_type t)
{
    json_begin_object(o, key);
    for (int a = 0; a < AXIS_N; a++)
        if (t.on[a] != SPMD_I) json_put_string(o, axis_name((enum axis)a), spmd_name((enum spmd)t.on[a]));
    json_end_object(o);
}

/* A line for each, so that the names of schemas stand in the source as they are printed. */
static void begin_layout(struct json_out *o) { json_begin_document(o, "explain-layout", 1); }
static void begin_tape(struct json_out *o) { json_begin_document(o, "explain-tape", 1); }
static void begin_schedule(struct json_out *o) { json_begin_document(o, "explain-schedule", 1); }
static void begin_memory(struct json_out *o) { json_begin_document(o, "explain-memory", 1); }
static void begin_comm(struct json_out *o) { json_begin_document(o, "explain-comm", 2); }
static void begin_binding(struct json_out *o) { json_begin_document(o, "explain-binding", 1); }

static const struct topic {
    const char *name;
    int (*print)(const struct explain *x, struct str *out, struct err *e);
    int (*json)(const struct explain *x, struct json_out *o, struct err *e);
    void (*begin)(struct json_out *o);
} topics[] = {{"layout", explain_layout, explain_layout_json, begin_layout},
              {"tape", explain_tape, explain_tape_json, begin_tape},
              {"schedule", explain_schedule, explain_schedule_json, begin_schedule},
              {"memory", explain_memory, explain_memory_json, begin_memory},
              {"comm", explain_comm, explain_comm_json, begin_comm},
              {"binding", explain_binding, explain_binding_json, begin_binding}};

/* What can be wrong after the document was opened (no memory for the step) leaves nothing on stdout. */
static int tell(const struct topic *t, const struct explain *x, bool json, struct str *out, struct err *e)
{
    if (json) {
        struct json_out o = {.s = out};
        t->begin(&o);
        json_put_int(&o, "rank", 0);
        json_put_int(&o, "ranks", config_ranks(x->c));
        json_begin_object(&o, "axes");
        for (int a = 0; a < AXIS_N; a++) json_put_int(&o, axis_name((enum axis)a), x->ranks.mesh.size[a]);
        json_end_object(&o);
        int rc = t->json(x, &o, e);
        json_end_object(&o);
        str_putc(out, '\n');
        return rc;
    }
    struct str text = {0};
    int rc = t->print(x, &text, e);
    explain_lines_wrap(str_text(&text), x->full ? 0 : EXPLAIN_COLUMNS, 10, out);
    str_free(&text);
    return rc;
}

static int write_picture(const struct config *c, int n, const char *file, struct err *e)
{
    struct str out = {0};
    int rc = layout_picture(c, n, &out, e);
    if (!rc) rc = fs_write_atomic(file, str_text(&out), out.n, e);
    str_free(&out);
    return rc;
}

struct request {
    struct cli_args a;
    const char *topic, *svg, *topology;
    bool full;
};
static const struct cli_option options[] = {
    CLI_RANKS(struct request, a.ranks, 1 << 20, "how many ranks train"),
    {"--full", NULL, CLI_FLAG, offsetof(struct request, full),
     .help = "nothing left out: axes of size 1, layers and experts that are like others, operations\n"
             "that do nothing here, and every address"},
    {"--topology", "T", CLI_TEXT, offsetof(struct request, topology),
     .help = "binding: of the machine that lstopo wrote to file T, or 'synthetic:package:2 core:8 pu:2'"},
    CLI_JSON(struct request, a.json),
    {"--svg", "FILE", CLI_TEXT, offsetof(struct request, svg),
     .help = "layout: a picture of all ranks (any number; those alike are folded): who has which\n"
             "tokens, layers and parts of parameters"},
};
static const struct cli_word words[] = {{.name = "CONFIG", .at = offsetof(struct request, a.config)},
                                        {.name = "of layout, tape, schedule, memory, comm or binding",
                                         .at = offsetof(struct request, topic)}};
static const struct cli_table table = {
    .command = "explain",
    .usage = "CONFIG layout|tape|schedule|memory|comm|binding [-n RANKS] [--full] [--json] [key=value ...]",
    .about =
        "  layout    every parameter, its shape, and where it lies on the mesh\n"
        "  tape      the operations of one microbatch, and the instructions they become: work (FLOP) and bytes\n"
        "  schedule  which action comes when, on every rank of the pipeline, and all that rank 0 does in its stages\n"
        "  memory    bytes by category, the arrays of parameters, and what a microbatch keeps\n"
        "  comm      what is sent in a step, by group, and when\n"
        "  binding   which cores each rank of a host and its threads get (run.bind), here or on another machine\n"
        "As rank 0 of RANKS has it, in lines of at most 100 columns.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct request, a.keys),
};

int cmd_explain(int argc, char **argv)
{
    struct request q = {.a.ranks = 1};
    const struct cli_args *a = &q.a;
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    if (a->json && (q.full || q.svg))
        return cli_usage("explain", "--json is complete, and no picture: leave out %s", q.full ? "--full" : "--svg");
    const struct topic *t = NULL;
    for (size_t i = 0; i < sizeof topics / sizeof *topics; i++)
        if (!strcmp(q.topic, topics[i].name)) t = &topics[i];
    if (!t)
        return cli_usage("explain", "explain what? layout, tape, schedule, memory, comm or binding, not %s", q.topic);
    if (q.svg && t->print != explain_layout)
        return cli_usage("explain", "--svg is a picture of the layout, not of %s", t->name);
    if (q.topology && t->print != explain_binding)
        return cli_usage("explain", "--topology is of binding, not of %s", t->name);
    struct err e = {0};
    struct config c;
    struct arena *arena = arena_new();
    struct explain x = {.c = &c, .full = q.full, .topology = q.topology};
    struct str out = {0};
    rc = cli_config(&c, NULL, arena, a->config, a->keys.p, a->keys.n, (int)a->ranks, &e);
    if (!rc) rc = plan_choose(&c, NULL, NULL, &e);
    if (!rc && q.svg) { /* it makes every rank that it draws, and no tape */
        rc = write_picture(&c, (int)a->ranks, q.svg, &e);
        arena_free(arena);
        return rc ? cli_fail(&e) : 0;
    }
    struct comm_config link = rc ? (struct comm_config){0} : config_comm(&c);
    struct site site = {0};
    if (!rc)
        rc = site_open(&site,
                       &(struct site_config){.config = &c, .kind = SITE_COUNTS, .n = (int)a->ranks, .link = &link}, &e);
    x.g = site.engine;
    x.d = site.dev;
    x.ranks = site.ranks;
    if (!rc) rc = tell(t, &x, a->json, &out, &e);
    if (!rc) fputs(str_text(&out), stdout);
    site_close(&site);
    str_free(&out);
    arena_free(arena);
    return rc ? cli_fail(&e) : 0;
}
