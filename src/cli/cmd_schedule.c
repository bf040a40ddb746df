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

struct options {
    const char *kind, *read, *svg;
    int64_t stages, microbatches, chunks, round; /* 0: not given */
    const char *zero, *stage_cost;
    struct schedule_cost cost;
    bool text, json, split, lower, recompute;
};

static const char *read_cost(void *into, const char *value)
{
    struct schedule_cost *c = &((struct options *)into)->cost;
    double *const field[4] = {&c->f, &c->b, &c->w, &c->comm};
    const char *p = value;
    for (int i = 0; i < 4; i++) {
        char *end;
        *field[i] = strtod(p, &end);
        if (end == p || !isfinite(*field[i]) || *field[i] < 0 || *field[i] > 1e12 || *end != (i < 3 ? ',' : '\0'))
            return "F,B,W,COMM as four times of 0 or more, such as 1,1,1,0.1";
        p = end + 1;
    }
    return c->f + c->b + c->w > 0 ? NULL : "one of F, B, W to be more than 0";
}

static const char *read_update(void *into, const char *value)
{
    double *update = &((struct options *)into)->cost.update;
    char *end;
    *update = strtod(value, &end);
    bool fits = end != value && !*end && isfinite(*update) && *update >= 0 && *update <= 1e12;
    return fits ? NULL : "a time of 0 or more, such as 0.5";
}

static void tell_kinds(struct str *out)
{
    str_puts(out, "\nKINDS\n");
    for (int i = 0; schedule_kind_name(i); i++)
        str_printf(out, "  %-12s %s\n", schedule_kind_name(i), schedule_kind_doc(i));
}

#define AT(field) offsetof(struct options, field)
#define COUNT CLI_INT, .lo = 1, .hi = SCHEDULE_MAX_MICROBATCHES
static const struct cli_option options[] = {
    {"--stages", "P", COUNT, .at = AT(stages), .help = "pipeline ranks"},
    {"--microbatches", "M", COUNT, .at = AT(microbatches), .help = "per optimizer step"},
    {"--chunks", "V", COUNT, .at = AT(chunks), .help = "stages per rank (default: the kind's own)"},
    {"--round", "N", COUNT, .at = AT(round),
     .help = "interleaved: microbatches that go through a chunk before the next chunk (default P);\n"
             "the last round may be shorter"},
    {"--cost", "F,B,W,COMM", CLI_OWN, .read = read_cost,
     .help = "time of a rank's forward, backward for inputs, backward for weights, and of a message\n"
             "(default 1,1,1,0); B and W fused take B + W"},
    {"--update-cost", "T", CLI_OWN, .read = read_update,
     .help = "time of a rank's UPDATE, once a step, where there is one (--zero; default 0)"},
    {"--stage-cost", "W,W,...", CLI_TEXT, AT(stage_cost),
     .help = "how dear each stage is beside the mean one, a number per stage (default: all 1)"},
    {"--zero", "Z", CLI_CHOICE, AT(zero), .choices = "0|1|2|3",
     .help = "add what travels: REDUCE of gradients, with 3 GATHER and RELEASE of parameters;\n"
             "and the UPDATE of the parameters, with 1 and 2 their PUBLISH"},
    {"--recompute", NULL, CLI_FLAG, AT(recompute), .help = "compute forward once more before each backward"},
    {"--split", NULL, CLI_FLAG, AT(split), .help = "issue both halves of every backward apart"},
    {"--lower", NULL, CLI_FLAG, AT(lower), .help = "add the sends and receives"},
    {"--read", "FILE", CLI_TEXT, AT(read),
     .help = "a schedule as --text prints it, or CSV with a row per rank (- is standard input): check\n"
             "and simulate that"},
    {"--text", NULL, CLI_FLAG, AT(text), .help = "print the schedule itself"},
    CLI_JSON(struct options, json),
    {"--svg", "FILE", CLI_TEXT, AT(svg), .help = "write the timeline as a picture"},
};
static const struct cli_word words[] = {{.name = "KIND", .at = AT(kind), .may_lack = true}};
static const struct cli_table table = {
    .command = "schedule",
    .usage = "KIND --stages P --microbatches M [options], or tutti schedule --read FILE [options]",
    .about = "Which action each pipeline rank issues next, how long that takes and what it holds at worst.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .tell = tell_kinds,
};

/* As cli_read. */
static bool read_options(int argc, char **argv, struct options *o, int *status)
{
    const char *wrong = NULL;
    *o = (struct options){.cost = {1, 1, 1, 0, NULL, NULL, 0}};
    if (!cli_read(&table, argc, argv, o, status)) return false;
    if (o->text && o->json) wrong = "--text and --json: choose one";
    if (o->read && (o->kind || o->stages || o->microbatches || o->chunks || o->round))
        wrong = "--read: the file says kind, stages and microbatches; leave them out";
    else if (!o->read && !o->kind) wrong = "which KIND? such as 1f1b";
    else if (!o->read && !o->stages) wrong = "--stages: how many pipeline ranks?";
    else if (!o->read && !o->microbatches) wrong = "--microbatches: how many per optimizer step?";
    if (wrong) *status = cli_usage(table.command, "%s", wrong);
    return !wrong;
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
    int status;
    if (!read_options(argc, argv, &o, &status)) return status;
    return run(&o, &e) ? cli_fail(&e) : 0;
}
