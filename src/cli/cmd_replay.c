/* SPDX-License-Identifier: Apache-2.0 */
/* tutti replay RUN [--step N]: a step of a run once more, alone (train/rerun.h), beside what the run wrote of it. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "cli/cli.h"
#include "comm/comm.h"
#include "train/rerun.h"

struct request {
    const char *run;
    int64_t step, ranks;
    bool one_rank, json, crowd;
    struct cli_keys keys;
};
static const struct cli_option options[] =
    {{"--step", "N", CLI_INT, offsetof(struct request, step), .lo = 1, .hi = INT64_MAX,
      .help = "which step, from 1; without it: which can be run again, and from where"},
     {"--one-rank", NULL, CLI_FLAG, offsetof(struct request, one_rank), .help = "in one rank, whatever the run had"},
     CLI_RANKS(struct request, ranks, 1 << 20, "ranks as threads of this process (default: as many as the run had)"),
     CLI_CROWD(struct request, crowd),
     CLI_JSON(struct request, json)};
static const struct cli_word words[] = {{.name = "RUN", .at = offsetof(struct request, run)}};
static const struct cli_table table = {
    .command = "replay",
    .usage = "RUN [--step N] [--one-rank] [-n RANKS] [--json] [key=value ...]",
    .about =
        "Makes a step of a run once more, alone, for debugging: loads the newest checkpoint before it, goes on to it, "
        "and\n"
        "prints loss, gradient norm, the norm of each parameter's gradient, and whether metrics.jsonl has the same. "
        "In\n"
        "the run's own layout it has, to the last digit; in another (--one-rank, -n with parallel.* keys) sums round\n"
        "otherwise. RUN is the run's directory (run.dir); nothing in it is changed. Status 1: it is not the same in "
        "the\n"
        "same layout.\n",
    CLI_OPTIONS(options),
    CLI_WORDS(words),
    .takes_keys = true,
    .keys = offsetof(struct request, keys),
};

/* The last step that a span reaches, as far as is known. */
static int64_t until(const struct rerun_result *r, const struct rerun_span *s)
{
    int64_t known = r->recorded > s->first ? r->recorded : s->first;
    return s->last < known ? s->last : known;
}

static void print_spans(const struct rerun_result *r)
{
    for (int i = 0; i < r->n_spans; i++)
        printf("steps %lld to %lld  from %s\n", (long long)r->span[i].first, (long long)until(r, &r->span[i]),
               r->span[i].from[0] ? r->span[i].from : "the first weights");
}

static void put_spans(struct json_out *o, const struct rerun_result *r)
{
    json_begin_array(o, "can");
    for (int i = 0; i < r->n_spans; i++) {
        json_begin_object(o, NULL);
        json_put_int(o, "first", r->span[i].first);
        json_put_int(o, "last", until(r, &r->span[i]));
        json_put_string(o, "from", r->span[i].from);
        json_end_object(o);
    }
    json_end_array(o);
}

static void print_json(const struct rerun_result *r)
{
    struct str s = {0};
    struct json_out o = {.s = &s, .pretty = true};
    json_begin_document(&o, "replay", 1);
    json_put_int(&o, "recorded_steps", r->recorded);
    put_spans(&o, r);
    if (r->step) {
        json_put_int(&o, "step", r->step);
        json_put_string(&o, "from", r->from);
        json_put_int(&o, "ranks", r->ranks);
        json_put_bool(&o, "same_layout", r->same_layout);
        json_put_real(&o, "loss", r->loss);
        json_put_real(&o, "grad_norm", r->grad_norm);
        json_put_real(&o, "lr", r->lr);
        json_put_int(&o, "step_tokens", r->tokens);
        if (r->skip) json_put_string(&o, "skip_cause", r->skip);
        if (r->is_recorded) {
            json_put_real(&o, "recorded_loss", r->recorded_loss);
            json_put_real(&o, "recorded_grad_norm", r->recorded_grad_norm);
            json_put_bool(&o, "same", r->same);
        }
        json_put_int(&o, "compared", r->compared);
        json_put_int(&o, "first_other", r->first_other);
        json_begin_array(&o, "parameters");
        for (int i = 0; i < r->n_params; i++) {
            json_begin_object(&o, NULL);
            json_put_string(&o, "name", r->param[i].name);
            json_put_real(&o, "grad_norm", r->param[i].grad_norm);
            json_end_object(&o);
        }
        json_end_array(&o);
    }
    json_end_object(&o);
    printf("%s\n", str_text(&s));
    str_free(&s);
}

/* Of what has no loss, or no norm, nothing. */
static const char *figure(char out[32], double v)
{
    snprintf(out, 32, isnan(v) ? "-" : "%.9g", v);
    return out;
}

static void print_record(const struct rerun_result *r)
{
    char loss[32], norm[32];
    if (!r->is_recorded) printf("metrics.jsonl has no line of it\n");
    else if (r->same) printf("metrics.jsonl has the same, to the last digit\n");
    else {
        double loss_by = fabs(r->loss / r->recorded_loss - 1), norm_by = fabs(r->grad_norm / r->recorded_grad_norm - 1);
        printf("metrics.jsonl has loss %s, grad norm %s", figure(loss, r->recorded_loss),
               figure(norm, r->recorded_grad_norm));
        if (isfinite(loss_by) && isfinite(norm_by)) printf(": other by %.3g and %.3g of them", loss_by, norm_by);
        else printf(": other");
        printf("%s\n", r->same_layout ? "" : "; sums round otherwise in another layout");
    }
    if (r->compared > 1)
        printf("%lld steps on the way compared, %s%.0lld\n", (long long)r->compared,
               r->first_other ? "the first that is other: " : "all the same", (long long)r->first_other);
}

static void print(const struct rerun_result *r)
{
    char loss[32], norm[32];
    if (!r->step) {
        print_spans(r);
        return;
    }
    printf("step %lld, from %s, %d rank%s\n", (long long)r->step, r->from[0] ? r->from : "the first weights", r->ranks,
           r->ranks == 1 ? "" : "s");
    printf("loss       %s\ngrad norm  %s\nlr         %.9g\ntokens     %lld\n", figure(loss, r->loss),
           figure(norm, r->grad_norm), r->lr, (long long)r->tokens);
    bool passed = r->skip && !strcmp(r->skip, "batch"), untrained = r->skip && !strcmp(r->skip, "untrained");
    if (passed) printf("left out   its batch (skips.jsonl, run.skip): nothing was computed\n");
    else if (untrained) printf("left out   no token of its batch is trained\n");
    else if (r->skip) printf("left out   %s not finite\n", r->skip);
    print_record(r);
    if (!r->n_params) return;
    printf("\ngradient norm  parameter\n");
    for (int i = 0; i < r->n_params; i++) printf("%13.6g  %s\n", r->param[i].grad_norm, r->param[i].name);
}

int cmd_replay(int argc, char **argv)
{
    struct request q = {0};
    struct rerun_result r;
    struct err e = {0};
    int rc;
    if (!cli_read(&table, argc, argv, &q, &rc)) return rc;
    if (comm_launched()) return cli_usage("replay", "it starts its ranks as threads: run it without mpirun or srun");
    if (q.one_rank && q.ranks > 1) return cli_usage("replay", "--one-rank and -n say different things");
    struct rerun_request ask = {.dir = q.run,
                                .step = q.step,
                                .ranks = (int)q.ranks,
                                .one_rank = q.one_rank,
                                .crowd = q.crowd,
                                .override = q.keys.p,
                                .n_override = q.keys.n};
    rc = rerun(&ask, &r, &e);
    if (!rc) (q.json ? print_json : print)(&r);
    bool other = !rc && r.is_recorded && !r.same && r.same_layout;
    rerun_free(&r);
    return rc ? cli_fail(&e) : other;
}
