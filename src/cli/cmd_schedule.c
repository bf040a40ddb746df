/* SPDX-License-Identifier: Apache-2.0 */
/* tutti schedule: generate, check, simulate and show a pipeline schedule, or do the same for one written by hand.
 *
 * Everything is asked of schedule/; this file reads options and prints. Options come in any order; the first word
 * that is none is the kind. */

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "schedule/parts.h"

#define COMMAND "schedule"

struct options {
    const char *kind, *read, *svg, *cost_text;
    int64_t stages, microbatches, chunks, round; /* 0: not given */
    const char *zero, *stage_cost;
    struct schedule_cost cost;
    bool text, json, split, lower, recompute;
};

static void print_help(void)
{
    printf("usage: tutti schedule KIND --stages P --microbatches M [--chunks V] [--round N] [--cost F,B,W,COMM]\n"
           "                      [--stage-cost W,W,...] [--split] [--lower] [--zero Z] [--recompute] [--text] "
           "[--json] [--svg FILE]\n"
           "       tutti schedule --read FILE [...]\n\n"
           "Which action each pipeline rank issues next, how long that takes and what it holds at worst.\n\nKINDS\n");
    for (int i = 0; schedule_kind_name(i); i++) printf("  %-12s %s\n", schedule_kind_name(i), schedule_kind_doc(i));
    printf(
        "\nOPTIONS\n"
        "  --stages P         pipeline ranks\n"
        "  --microbatches M   per optimizer step\n"
        "  --chunks V         stages per rank (default: the kind's own)\n"
        "  --round N          interleaved: microbatches that go through a chunk before the next chunk (default P); "
        "the\n"
        "                     last round may be shorter\n"
        "  --cost F,B,W,COMM  time of a rank's forward, backward for inputs, backward for weights, and of a message\n"
        "                     (default 1,1,1,0); B and W fused take B + W\n"
        "  --stage-cost W,... how dear each stage is beside the mean one, a number per stage (default: all 1)\n"
        "  --zero Z           add what travels: REDUCE of gradients, with 3 GATHER and RELEASE of parameters; and the\n"
        "                     UPDATE of the parameters, with 1 and 2 their PUBLISH\n"
        "  --recompute        compute forward once more before each backward\n"
        "  --split            issue both halves of every backward apart\n"
        "  --lower            add the sends and receives\n"
        "  --read FILE        a schedule as --text prints it, or CSV with a row per rank (- is standard input):\n"
        "                     check and simulate that\n"
        "  --text             print the schedule itself\n"
        "  --json             print one JSON object\n"
        "  --svg FILE         write the timeline as a picture\n");
}

static int read_cost(const char *value, struct schedule_cost *c)
{
    double *const field[4] = {&c->f, &c->b, &c->w, &c->comm};
    const char *p = value;
    for (int i = 0; i < 4; i++) {
        char *end;
        *field[i] = strtod(p, &end);
        if (end == p || !isfinite(*field[i]) || *field[i] < 0 || *field[i] > 1e12 || *end != (i < 3 ? ',' : '\0'))
            return cli_usage(COMMAND,
                             "--cost: wanted F,B,W,COMM as four times of 0 or more, such as 1,1,1,0.1; got '%s'",
                             value);
        p = end + 1;
    }
    return c->f + c->b + c->w > 0 ? 0 : cli_usage(COMMAND, "--cost: one of F, B, W must be more than 0");
}

/* Takes argv[*i] if it is an option with a value: 1 taken, 0 something else, -1 wrong and said so. */
static int read_valued(int argc, char **argv, int *i, struct options *o)
{
    const struct {
        const char *name;
        int64_t *count;
        const char **text;
    } valued[] = {
        {"--stages", &o->stages, NULL},  {"--microbatches", &o->microbatches, NULL},
        {"--chunks", &o->chunks, NULL},  {"--round", &o->round, NULL},
        {"--zero", NULL, &o->zero},      {"--stage-cost", NULL, &o->stage_cost},
        {"--svg", NULL, &o->svg},        {"--read", NULL, &o->read},
        {"--cost", NULL, &o->cost_text},
    };
    for (size_t k = 0; k < sizeof valued / sizeof valued[0]; k++) {
        const char *value;
        int taken = cli_option(COMMAND, argc, argv, i, valued[k].name, &value);
        if (taken == 0) continue;
        if (taken < 0) return -1;
        if (valued[k].text) *valued[k].text = value;
        else if (cli_int(COMMAND, valued[k].name, value, 1, SCHEDULE_MAX_MICROBATCHES, valued[k].count)) return -1;
        return 1;
    }
    return 0;
}

/* 0, or the exit status after saying what is wrong. */
static int read_options(int argc, char **argv, struct options *o)
{
    static const char *const known[] = {"--stages", "--microbatches", "--chunks",    "--round",     "--cost",
                                        "--svg",    "--read",         "--text",      "--json",      "--split",
                                        "--lower",  "--zero",         "--recompute", "--stage-cost"};
    *o = (struct options){.cost = {1, 1, 1, 0, NULL}};
    for (int i = 1; i < argc; i++) {
        const char *a = argv[i];
        int taken = read_valued(argc, argv, &i, o);
        if (taken < 0) return 2;
        if (taken) continue;
        if (!strcmp(a, "--text")) o->text = true;
        else if (!strcmp(a, "--json")) o->json = true;
        else if (!strcmp(a, "--split")) o->split = true;
        else if (!strcmp(a, "--lower")) o->lower = true;
        else if (!strcmp(a, "--recompute")) o->recompute = true;
        else if (a[0] == '-') {
            const char *near = str_nearest(a, known, (int)(sizeof known / sizeof known[0]));
            return cli_usage(COMMAND, "no option '%s'%s%s%s", a, near ? "; did you mean '" : "", near ? near : "",
                             near ? "'?" : "");
        } else if (o->kind) {
            return cli_usage(COMMAND, "'%s': the kind is '%s' already", a, o->kind);
        } else {
            o->kind = a;
        }
    }
    if (o->text && o->json) return cli_usage(COMMAND, "--text and --json: choose one");
    if (o->zero && (o->zero[0] < '0' || o->zero[0] > '3' || o->zero[1]))
        return cli_usage(COMMAND, "--zero: wanted 0, 1, 2 or 3; got '%s'", o->zero);
    if (o->cost_text && read_cost(o->cost_text, &o->cost)) return 2;
    if (o->read && (o->kind || o->stages || o->microbatches || o->chunks || o->round))
        return cli_usage(COMMAND, "--read: the file says kind, stages and microbatches; leave them out");
    if (o->read) return 0;
    if (!o->kind) return cli_usage(COMMAND, "wanted a kind, such as 1f1b");
    if (!o->stages) return cli_usage(COMMAND, "--stages: how many pipeline ranks?");
    if (!o->microbatches) return cli_usage(COMMAND, "--microbatches: how many per optimizer step?");
    return 0;
}

static int read_schedule(const char *path, struct schedule **s, struct err *e)
{
    char *text;
    size_t n;
    int rc = fs_read_all(strcmp(path, "-") ? path : "/dev/stdin", (size_t)64 << 20, &text, &n, e);
    if (rc) return rc;
    rc = schedule_parse(s, text, path, e);
    xfree(text);
    return rc;
}

/* One weight per stage; the caller frees *out. */
static int read_stage_cost(const char *text, int n_stages, double **out, struct err *e)
{
    const char *p = text;
    *out = xcalloc(to_size(n_stages), sizeof **out);
    for (int i = 0; i < n_stages; i++) {
        char *end;
        double v = strtod(p, &end);
        if (end == p || !isfinite(v) || v < 0 || v > 1e12 || *end != (i + 1 < n_stages ? ',' : '\0'))
            return err_set(e, ERR_REQUEST,
                           "--stage-cost: wanted %d numbers of 0 or more, one per stage, with commas between; got '%s'",
                           n_stages, text);
        (*out)[i] = v;
        p = end + 1;
    }
    return OK;
}

static void print_summary(const struct schedule *s, const struct schedule_timeline *t, const struct schedule_peak *peak)
{
    struct str picture = {0};
    if (!schedule_draw(s, t, 200, &picture)) printf("%s\n", str_text(&picture));
    str_free(&picture);
    printf("%s: %d ranks, %d stages, %d microbatches\n", s->kind, s->n_ranks, s->n_stages, s->n_microbatches);
    printf("makespan %.6g, ideal %.6g, bubble %.2f %%\n", t->makespan, t->ideal, 100 * t->bubble_ratio);
    printf("idle, of all ranks' time %.2f %%; per rank", 100 * t->idle_share);
    for (int r = 0; r < s->n_ranks; r++) printf(" %.2f %%", t->makespan > 0 ? 100 * t->idle[r] / t->makespan : 0);
    printf("\n");
    printf("longest rank %.6g, bubble %.2f %% when steps follow each other without a meeting\n", t->period,
           100 * t->period_bubble_ratio);
    printf("at worst, per rank: activations");
    for (int r = 0; r < s->n_ranks; r++) printf(" %lld", (long long)peak[r].activations);
    printf("; with weight halves put off");
    for (int r = 0; r < s->n_ranks; r++) printf(" %lld", (long long)peak[r].both);
    printf("\n(in microbatches of a stage: 1/%d of a rank's layers)\n", s->n_chunks);
}

static int show(const struct options *o, const struct schedule *s, const struct schedule_peak *peak, struct err *e)
{
    struct schedule_timeline t;
    struct str out = {0};
    struct schedule_cost cost = o->cost;
    double *stage = NULL;
    int rc = o->stage_cost ? read_stage_cost(o->stage_cost, s->n_stages, &stage, e) : OK;
    cost.stage = stage;
    if (rc) {
        xfree(stage);
        return rc;
    }
    schedule_simulate(s, &cost, &t);
    xfree(stage);
    if (o->svg) {
        schedule_svg(s, &t, &out);
        rc = fs_write_atomic(o->svg, str_text(&out), out.n, e);
        str_clear(&out);
    }
    if (!rc && o->json) schedule_json(s, &t, peak, &out);
    if (!rc && o->text) schedule_print(s, &out);
    if (!rc && !o->json && !o->text) print_summary(s, &t, peak);
    fputs(str_text(&out), stdout);
    str_free(&out);
    schedule_timeline_fini(&t);
    return rc;
}

static int run(const struct options *o, struct err *e)
{
    struct schedule *s = NULL;
    int rc = o->read ? read_schedule(o->read, &s, e)
                     : schedule_generate(&s, o->kind, (int)o->stages, (int)o->microbatches, (int)o->chunks,
                                         (int)o->round, e);
    if (rc) return rc;
    struct schedule_peak *peak = xcalloc(to_size(s->n_ranks), sizeof *peak);
    /* A file may be wrong in every way; the passes want a correct schedule. */
    rc = schedule_check(s, peak, e);
    if (!rc && o->split) schedule_split_backward(s);
    bool moves = schedule_has(s, ACTION_GATHER) || schedule_has(s, ACTION_REDUCE) ||
                 schedule_has(s, ACTION_RECOMPUTE) || schedule_has(s, ACTION_UPDATE) || schedule_has_parts(s);
    if (!rc && (o->zero || o->recompute) && moves)
        rc = err_set(e, ERR_REQUEST,
                     "the schedule says already what is gathered, reduced, computed again or updated: leave out --zero "
                     "and "
                     "--recompute");
    if (!rc && (o->zero || o->recompute))
        schedule_add_moves(s, (struct schedule_moves){.gather = o->zero && *o->zero == '3',
                                                      .reduce = o->zero,
                                                      .recompute = o->recompute,
                                                      .update = o->zero,
                                                      .publish = o->zero && (*o->zero == '1' || *o->zero == '2'),
                                                      .each = o->zero && *o->zero >= '2' && s->n_microbatches > 1});
    if (!rc && o->lower && !schedule_has(s, ACTION_RECV_F)) schedule_add_comm(s);
    if (!rc) rc = schedule_check(s, peak, e);
    if (rc && o->read) err_prefix(e, "%s", o->read);
    if (!rc) rc = show(o, s, peak, e);
    xfree(peak);
    schedule_free(s);
    return rc;
}

int cmd_schedule(int argc, char **argv)
{
    struct options o;
    struct err e = {0};
    if (cli_wants_help(argc, argv)) {
        print_help();
        return 0;
    }
    int status = read_options(argc, argv, &o);
    if (status) return status;
    return run(&o, &e) ? cli_fail(&e) : 0;
}
