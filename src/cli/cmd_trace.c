/* SPDX-License-Identifier: Apache-2.0 */
/* tutti trace FILE: where the time of a traced run went (report/timing.h), and, for a pipeline, what its schedule
 * promises with the times that were measured. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "cli/cli.h"
#include "report/timing.h"

struct request {
    const char *file;
    bool json;
};
static const struct cli_option options[] = {CLI_JSON(struct request, json)};
static const struct cli_word words[] = {{.name = "FILE", .at = offsetof(struct request, file)}};
static const struct cli_table table = {
    .command = "trace",
    .usage = "FILE [--json]",
    .about =
        "Says where the time of a traced run went. FILE is what run.trace named in training; ui.perfetto.dev shows it\n"
        "as a picture. Every moment of a traced step counts once:\n\n"
        "  compute   kernels and the optimizer\n"
        "  exposed   communication that nothing hid: all ranks were there, bytes travelled, this rank did nothing "
        "else\n"
        "  bubble    waiting for a rank of another pipeline stage to get there\n"
        "  late      waiting for a rank of the same stage\n"
        "  other     between kernels: the batch, starting actions, metrics\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
};

static void sum_of(const struct timing *t, struct timing_rank *all)
{
    *all = (struct timing_rank){0};
    for (int r = 0; r < t->n_ranks; r++) {
        all->steps += t->rank[r].steps;
        all->step_s += t->rank[r].step_s;
        for (int k = 0; k < TIME_N; k++) all->s[k] += t->rank[r].s[k];
    }
}

static void print_row(const char *name, const struct timing_rank *r)
{
    printf("%-28s %10.3f", name, r->steps ? 1e3 * r->step_s / (double)r->steps : 0);
    for (int k = 0; k < TIME_N; k++) printf(" %8.1f %%", r->step_s > 0 ? 100 * r->s[k] / r->step_s : 0);
    printf("\n");
}

enum { OPERATIONS_SHOWN = 8 };
static void print_operations(const struct timing *t, double compute_s)
{
    for (int i = 0; i < t->n_operations && i < OPERATIONS_SHOWN && compute_s > 0; i++) {
        const struct timing_operation *o = &t->operation[i];
        char rate[32] = "";
        if (o->flops > 0 && o->s > 0) snprintf(rate, sizeof rate, "%10.2f GFLOP/s", 1e-9 * o->flops / o->s);
        if (i == 0) printf("\nof the time that all ranks computed\n");
        printf("%-28s %8.1f %% %s\n", o->name, 100 * o->s / compute_s, rate);
    }
}

static void print_notes(const struct timing *t)
{
    char n[32];
    if (!t->ended) printf("\nThe file ends early: the run was stopped, or goes on. What it has is counted.\n");
    if (t->broken) printf("\n%lld lines are no events and were passed over.\n", (long long)t->broken);
    if (t->dropped)
        printf("\n%s events did not fit (run.trace_mib), and %lld steps of ranks that are not whole were left out.\n",
               str_count(n, (double)t->dropped), (long long)t->left_out);
}

/* What was measured of each stage, and what its schedule makes of it. */
static void print_pipeline(const struct timing *t)
{
    static const char *const title[TIME_ACTIONS] = {"forward", "backward", "weights", "both"};
    struct timing_promise p;
    bool has[TIME_ACTIONS] = {false};
    for (int i = 0; i < t->n_stages; i++)
        for (int k = 0; k < TIME_ACTIONS; k++) has[k] |= t->stage[i].actions[k] > 0;
    printf("\n%-28s", "ms of a microbatch");
    for (int k = 0; k < TIME_ACTIONS; k++)
        if (has[k]) printf(" %10s", k == TIME_BW && !has[TIME_B] ? "backward" : title[k]);
    printf("\n");
    for (int i = 0; i < t->n_stages; i++) {
        printf("stage %-22d", i);
        for (int k = 0; k < TIME_ACTIONS; k++)
            if (has[k]) printf(" %10.3f", 1e3 * t->stage[i].mean_s[k]);
        printf("\n");
    }
    printf("\nfrom the first forward to the last backward %.3f ms; in it the ranks run no action %.1f %% of the time\n",
           1e3 * t->window_s, 100 * t->idle_share);
    if (timing_predict(t, &p))
        printf("the schedule says %.3f ms and %.1f %%, if every stage always took these times and messages none\n",
               1e3 * p.makespan_s, 100 * p.idle_share);
}

static void print_table(const struct timing *t)
{
    struct timing_rank all;
    char name[64];
    sum_of(t, &all);
    if (t->last_step)
        printf("%d rank%s, steps %lld to %lld\n\n", t->n_ranks, t->n_ranks == 1 ? "" : "s", (long long)t->first_step,
               (long long)t->last_step);
    printf("%-28s %10s %10s %10s %10s %10s %10s\n", "rank", "ms a step", "compute", "exposed", "bubble", "late",
           "other");
    for (int r = 0; r < t->n_ranks; r++) {
        snprintf(name, sizeof name, "%d%s%.40s", r, *t->rank[r].place ? " " : "", t->rank[r].place);
        print_row(name, &t->rank[r]);
    }
    if (t->n_ranks > 1) print_row("all", &all);
    if (t->window_s > 0 && *t->schedule) print_pipeline(t);
    print_operations(t, all.s[TIME_COMPUTE]);
    print_notes(t);
}

static void json_rank(struct json_out *o, const struct timing_rank *r, int rank)
{
    json_begin_object(o, NULL);
    json_put_int(o, "rank", rank);
    json_put_string(o, "place", r->place);
    json_put_int(o, "steps", r->steps);
    json_put_real(o, "step_s", r->step_s);
    for (int k = 0; k < TIME_N; k++) json_put_real(o, time_kind_name((enum time_kind)k), r->s[k]);
    json_end_object(o);
}

static void print_json(const struct timing *t)
{
    struct str text = {0};
    struct json_out o = {.s = &text};
    struct timing_promise promise;
    json_begin_document(&o, "trace", 1);
    json_put_int(&o, "first_step", t->first_step);
    json_put_int(&o, "last_step", t->last_step);
    json_begin_array(&o, "ranks");
    for (int r = 0; r < t->n_ranks; r++) json_rank(&o, &t->rank[r], r);
    json_end_array(&o);
    json_put_real(&o, "window_s", t->window_s);
    json_put_real(&o, "idle_share", t->idle_share);
    if (t->window_s > 0 && timing_predict(t, &promise)) {
        json_put_real(&o, "predicted_window_s", promise.makespan_s);
        json_put_real(&o, "predicted_idle_share", promise.idle_share);
        json_put_real(&o, "predicted_bubble_ratio", promise.bubble_ratio);
    }
    json_begin_array(&o, "stages");
    for (int i = 0; i < t->n_stages; i++) {
        static const char *const key[TIME_ACTIONS] = {"forward_s", "backward_s", "weights_s", "backward_weights_s"};
        json_begin_object(&o, NULL);
        json_put_int(&o, "stage", i);
        for (int k = 0; k < TIME_ACTIONS; k++)
            if (t->stage[i].actions[k]) json_put_real(&o, key[k], t->stage[i].mean_s[k]);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_begin_array(&o, "operations");
    for (int i = 0; i < t->n_operations; i++) {
        const struct timing_operation *p = &t->operation[i];
        json_begin_object(&o, NULL);
        json_put_string(&o, "operation", p->name);
        json_put_real(&o, "seconds", p->s);
        json_put_real(&o, "flops", p->flops);
        json_put_int(&o, "calls", p->calls);
        json_end_object(&o);
    }
    json_end_array(&o);
    json_put_bool(&o, "ended", t->ended);
    json_put_int(&o, "dropped", t->dropped);
    json_put_int(&o, "left_out", t->left_out);
    json_put_int(&o, "broken", t->broken);
    json_put_real(&o, "clock_error_s", t->clock_error_s);
    json_end_object(&o);
    printf("%s\n", str_text(&text));
    str_free(&text);
}

int cmd_trace(int argc, char **argv)
{
    struct request q = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    struct err e = {0};
    struct timing t;
    rc = fs_is_dir(q.file) ? err_set(&e, ERR_REQUEST, "%s: a directory; give the file that run.trace named", q.file)
                           : timing_read(&t, q.file, &e);
    if (rc) return cli_fail(&e);
    if (q.json) print_json(&t);
    else print_table(&t);
    timing_free(&t);
    return 0;
}
