/* SPDX-License-Identifier: Apache-2.0 */
/* tutti explain CONFIG comm: takes one step on the null device and prints what every communicator of rank 0 was asked
 * for. The communicators come from the world's own list, so none can be left out. Axes of the expert view fold those of
 * the dense view, and two groups may be alike in size: so each is printed with the dense axes along which its members
 * differ, and with its members. */
#include "explain/explain.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "site/param_server.h"

/* "dp_shard 2 x cp 2 of 4": how many coordinates of each axis the members have. */
static void print_axes(const struct mesh *m, const struct comm *c, struct str *out)
{
    enum axis axes[MESH_VIEW_MAX];
    int n_axes = mesh_view_axes(MESH_DENSE, axes), n = comm_size(c), shown = 0, others = 0;
    int64_t box = 1;
    for (int i = 0; i < n; i++) others += comm_world_rank(c, i) >= m->n_ranks;
    for (int k = 0; k < n_axes; k++) {
        int size = m->size[axes[k]], met = 0;
        bool *seen = xcalloc((size_t)size, sizeof *seen);
        for (int i = 0; i < n; i++)
            if (comm_world_rank(c, i) < m->n_ranks) seen[mesh_coord(m, axes[k], comm_world_rank(c, i))] = true;
        for (int i = 0; i < size; i++) met += seen[i];
        xfree(seen);
        if (met < 2) continue;
        box *= met;
        str_printf(out, "%s%s %d", shown++ ? " x " : "", axis_name(axes[k]), met);
        if (met < size) str_printf(out, " of %d", size);
    }
    if (box > n - others) str_printf(out, ", %d of these %" PRId64, n - others, box);
    if (others) str_printf(out, "%s%d server%s", shown ? " and " : "", others, others > 1 ? "s" : "");
}

static void print_members(const struct comm *c, struct str *out)
{
    enum { MOST = 8 };
    int n = comm_size(c);
    for (int i = 0; i < n && i < (n > MOST ? MOST - 1 : MOST); i++) str_printf(out, " %d", comm_world_rank(c, i));
    if (n > MOST) str_printf(out, " ... %d", comm_world_rank(c, n - 1));
}

static const char *purpose(const struct explain *x, const struct comm *c)
{
    const struct ranks *r = &x->ranks;
    const struct {
        const struct comm *c;
        const char *text;
    } of[] = {
        {r->shard, "parameters, gradients and state, shared out or summed"},
        {r->host.shard, "losses, counts and other small sums"},
        {r->host.replicate, "the same, of the replicas"},
        {r->host.expert, "whether replicas of experts are the same"},
        {r->host.tp, "the routers' load, where tp shares out tokens; whether replicas are the same"},
        {r->host.pp, "the loss, over the stages"},
        {r->replicate, "gradients of the replicas"},
        {r->model, "all ranks of one copy of the model: the gradient norm"},
        {r->expert, "parameters, gradients and state of experts"},
        {r->axis[AXIS_TP], "what a layer's columns and heads have in common"},
        {r->axis[AXIS_CP], "the tokens of a sequence"},
        {r->cp_inner, "heads for rows"},
        {r->cp_outer, "keys and values of the other groups of cp"},
        {r->axis[AXIS_PP], "activations from stage to stage"},
        {r->axis[AXIS_EP], "tokens' copies to their experts and back"},
        {r->workers, "losses and counts of the workers"},
        {r->world, "all ranks"},
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (of[i].c == c) return of[i].text;
    if (r->n_servers && str_starts(comm_name(c), "pull")) return "parameters from a server to all workers";
    return r->n_servers ? "gradients of the workers to a server" : "gradients of parameters that several stages hold";
}

/* All columns, with the group's name in each line. */
static void print_rows(const struct comm *c, struct str *out)
{
    int n, width = (int)strlen(comm_name(c)) > 4 ? (int)strlen(comm_name(c)) : 4;
    const struct comm_tally *t = comm_tally(c, &n);
    str_printf(out, "  %-*s %-14s %-10s %6s %12s %-5s %9s %14s %12s  %s\n", width, "over", "operation", "algorithm",
               "times", "elements", "dtype", "messages", "bytes a step", "predicted us", "of");
    for (int i = 0; i < n; i++)
        str_printf(out, "  %-*s %-14s %-10s %6" PRId64 " %12" PRId64 " %-5s %9" PRId64 " %14" PRId64 " %12.1f  %s\n",
                   width, comm_name(c), comm_op_name(t[i].op), t[i].algorithm, t[i].traffic.operations, t[i].n,
                   dtype_name(t[i].dtype), t[i].traffic.messages, t[i].traffic.bytes, 1e6 * t[i].seconds, t[i].what);
}

static const char *time_text(char out[32], double s)
{
    if (s < 1e-3) snprintf(out, 32, "%.1f us", 1e6 * s);
    else if (s < 1) snprintf(out, 32, "%.1f ms", 1e3 * s);
    else snprintf(out, 32, "%.1f s", s);
    return out;
}

/* What fits a terminal, layers folded. */
static void print_rows_short(const struct comm *c, struct str *out)
{
    struct lines l = {0};
    char line[256], bytes[32], time[32];
    int n;
    const struct comm_tally *t = comm_tally(c, &n);
    str_printf(out, "  %-14s %-9s %5s %10s %-4s %9s %8s  %s\n", "operation", "algorithm", "times", "elements", "type",
               "sent", "takes", "of");
    for (int i = 0; i < n; i++) {
        snprintf(line, sizeof line, "  %-14s %-9s %5" PRId64 " %10" PRId64 " %-4s %9s %8s  %s", comm_op_name(t[i].op),
                 t[i].algorithm, t[i].traffic.operations, t[i].n, dtype_name(t[i].dtype),
                 str_bytes(bytes, (double)t[i].traffic.bytes), time_text(time, t[i].seconds), t[i].what);
        explain_lines_add(&l, explain_line_number(t[i].what, "layers."), explain_line_number(t[i].what, "experts."), "",
                          line);
    }
    explain_lines_fold(&l, LINE_EXPERT);
    explain_lines_fold(&l, LINE_LAYER);
    explain_lines_print(&l, EXPLAIN_COLUMNS, 70, out);
    explain_lines_free(&l);
}

static const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static int64_t print_group(const struct explain *x, const struct comm *c, struct str *out)
{
    struct comm_traffic all = comm_traffic(c);
    char bytes[32];
    int n;
    comm_tally(c, &n);
    if (!n) return 0;
    str_printf(out, "%s: %d ranks along ", comm_name(c), comm_size(c));
    print_axes(&x->ranks.mesh, c, out);
    str_puts(out, "; rank 0's are");
    print_members(c, out);
    str_printf(out, "\n  %s;%s%" PRId64 " operation%s, %" PRId64 " message%s, %" PRId64 " bytes a step", purpose(x, c),
               x->full ? " " : "\n  ", all.operations, plural(all.operations), all.messages, plural(all.messages),
               all.bytes);
    if (x->full) str_putc(out, '\n');
    else str_printf(out, " (%s)\n", str_bytes(bytes, (double)all.bytes));
    if (x->full) print_rows(c, out);
    else print_rows_short(c, out);
    str_putc(out, '\n');
    return all.bytes;
}

static void print_groups(const struct explain *x, struct str *out)
{
    int64_t bytes = 0;
    const struct comm *c;
    if (!x->ranks.world) {
        str_puts(out, "one rank: nothing is sent\n-n RANKS shows what ranks send in a step, by group, operation and "
                      "tensor\n");
        return;
    }
    str_puts(out,
             "what rank 0 sends in a step, by group; times are those of the model for a link of comm.link_GBps and\n"
             "link_latency_us, or of 10 GB/s and 2 us, if nothing else were going on\n\n");
    for (int i = 0; (c = comm_nth(x->ranks.world, i)); i++) bytes += print_group(x, c, out);
    str_printf(out, "%" PRId64 " bytes in all\n", bytes);
}

/* Of a worker. What was sent before the step, once, is part of it. */
static int serve_step_dry(const struct explain *x, struct param_server **v, struct str *out, struct err *e)
{
    bool async = x->c->parallel.server_mode == SERVER_ASYNC;
    struct engine_config ec = config_engine(x->c);
    struct param_server_config sc = {.async = async, .optim = ec.optim, .lr = config_lr(x->c), .steps = 1};
    int64_t sent;
    int rc = param_server_new(v, &sc, x->g, &x->ranks, e);
    if (!rc) rc = param_server_dry_step(*v, &sent, e);
    if (!rc)
        str_printf(out,
                   "rank 0 is a worker: the first pull and one %s; it sends %" PRId64
                   " bytes to and for servers in each\n\n",
                   async ? "update" : "step", sent);
    return rc;
}

/* Takes the step that is told of; *v lives as long as its groups are looked at. */
static int step_dry(const struct explain *x, struct param_server **v, struct str *out, struct err *e)
{
    struct engine_batch nothing = {0};
    struct engine_report report;
    engine_init(x->g);
    if (x->ranks.n_servers) return serve_step_dry(x, v, out, e);
    engine_step(x->g, &nothing, 0, 0, &report);
    return OK;
}

int explain_comm(const struct explain *x, struct str *out, struct err *e)
{
    struct param_server *v = NULL;
    int rc = step_dry(x, &v, out, e);
    if (!rc) print_groups(x, out);
    if (!rc) str_puts(out, "when a unit is gathered, released and reduced: tutti explain CONFIG schedule\n");
    param_server_free(v);
    return rc;
}

/* ---- JSON ---- */

static void traffic_json(const struct comm_traffic *t, struct json_out *o)
{
    json_put_int(o, "operations", t->operations);
    json_put_int(o, "messages", t->messages);
    json_put_int(o, "bytes", t->bytes);
}

static void group_json(const struct explain *x, const struct comm *c, struct json_out *o)
{
    struct comm_traffic all = comm_traffic(c);
    struct str axes = {0};
    int n;
    const struct comm_tally *t = comm_tally(c, &n);
    if (!n) return;
    print_axes(&x->ranks.mesh, c, &axes);
    json_begin_object(o, NULL);
    json_put_string(o, "group", comm_name(c));
    json_put_string(o, "along", str_text(&axes));
    json_put_string(o, "purpose", purpose(x, c));
    json_begin_array(o, "ranks");
    for (int i = 0; i < comm_size(c); i++) json_put_int(o, NULL, comm_world_rank(c, i));
    json_end_array(o);
    traffic_json(&all, o);
    json_begin_array(o, "rows");
    for (int i = 0; i < n; i++) {
        json_begin_object(o, NULL);
        json_put_string(o, "op", comm_op_name(t[i].op));
        json_put_string(o, "algorithm", t[i].algorithm);
        json_put_int(o, "elements", t[i].n);
        json_put_string(o, "dtype", dtype_name(t[i].dtype));
        json_put_string(o, "of", t[i].what);
        traffic_json(&t[i].traffic, o);
        json_put_real(o, "predicted_s", t[i].seconds);
        json_end_object(o);
    }
    json_end_array(o);
    json_end_object(o);
    str_free(&axes);
}

int explain_comm_json(const struct explain *x, struct json_out *o, struct err *e)
{
    struct param_server *v = NULL;
    struct str said = {0};
    const struct comm *c;
    int64_t bytes = 0;
    int rc = step_dry(x, &v, &said, e);
    json_begin_array(o, "groups");
    for (int i = 0; !rc && x->ranks.world && (c = comm_nth(x->ranks.world, i)); i++) {
        group_json(x, c, o);
        bytes += comm_traffic(c).bytes;
    }
    json_end_array(o);
    json_put_int(o, "bytes", bytes);
    param_server_free(v);
    str_free(&said);
    return rc;
}
