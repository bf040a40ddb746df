/* SPDX-License-Identifier: Apache-2.0 */
/* Plain appends to one file. On resume it is cut behind the step that the checkpoint holds, from its end: what is kept
 * is not read. */
#include "watch/metrics.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/append.h"
#include "watch/expert_load_file.h"
#include "watch/rounding_report.h"
#include "watch/rank_times.h"
#include "learn/policy.h"
#include "learn/preference.h"
#include "keep/file_tail.h"
#include "watch/tensorboard.h"

#define EXPONENTS "exponents.jsonl"

struct metrics {
    struct append to, exponents; /* the second: none before its first line */
    char *path, *dir;
    struct expert_load *loads; /* NULL until a step has any */
    struct str first; /* a line that waits for the first one of this start: a start without a step changes nothing */
    struct tb *tb;
};

static int64_t line_step(const char *line, size_t n)
{
    struct json *v;
    if (json_parse(&v, line, n, "metrics.jsonl", NULL)) return -1;
    int64_t step = json_int(json_get(v, "step"), -1);
    json_free(v);
    return step;
}

static bool is_done(void *after, const char *line, size_t n)
{
    int64_t step = line_step(line, n);
    return step >= 0 && step <= *(int64_t *)after;
}

/* A run that begins writes a file of its own: what is there is of another, and stays. */
static int set_aside(const char *path, struct err *e)
{
    int64_t bytes;
    char *to;
    int rc = fs_look(path, &bytes, e);
    if (rc || bytes <= 0) return rc;
    rc = fs_set_aside(path, &to, e);
    if (!rc) log_warn("%s is of a run that this one does not go on from: it was moved to %s", path, to);
    xfree(to);
    return rc;
}

int metrics_open(struct metrics **out, const char *dir, int64_t after, bool tensorboard, struct err *e)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    *out = NULL;
    m->path = fs_join(dir, "metrics.jsonl");
    m->dir = xstrdup(dir);
    int64_t cut;
    int rc = after > 0 ? file_tail_cut(m->path, is_done, &after, &cut, e) : set_aside(m->path, e);
    char *exponents = fs_join(dir, EXPONENTS); /* beside it, by the same rule */
    if (!rc) rc = after > 0 ? file_tail_cut(exponents, is_done, &after, &cut, e) : set_aside(exponents, e);
    xfree(exponents);
    if (!rc) rc = append_open(&m->to, m->path, e);
    if (!rc && tensorboard) {
        char *tb = fs_join(dir, "tensorboard");
        rc = tb_open(&m->tb, tb, e);
        if (!rc && after > 0) tb_restart(m->tb, after + 1);
        xfree(tb);
    }
    if (rc) {
        (void)metrics_close(m, NULL);
        return rc;
    }
    *out = m;
    return OK;
}

int metrics_close(struct metrics *m, struct err *e)
{
    if (!m) return OK;
    int rc = append_close(&m->to, e);
    int exponents = append_close(&m->exponents, rc ? NULL : e);
    if (!rc) rc = exponents;
    int tb = tb_close(m->tb, rc ? NULL : e);
    if (!rc) rc = tb;
    int loads = expert_load_close(m->loads, rc ? NULL : e);
    str_free(&m->first);
    xfree(m->path);
    xfree(m->dir);
    xfree(m);
    return rc ? rc : loads;
}

int metrics_exponents(struct metrics *m, struct str *line, struct err *e)
{
    int rc = OK;
    if (!m->exponents.path) {
        char *path = fs_join(m->dir, EXPONENTS);
        rc = append_open(&m->exponents, path, e);
        xfree(path);
    }
    str_putc(line, '\n');
    return rc ? rc : append_add(&m->exponents, line->p, line->n, e);
}

static int append(struct metrics *m, struct str *line, struct err *e)
{
    if (m->first.n) {
        int rc = append_add(&m->to, m->first.p, m->first.n, e);
        str_clear(&m->first);
        if (rc) {
            str_free(line);
            return rc;
        }
    }
    str_putc(line, '\n');
    int rc = append_add(&m->to, line->p, line->n, e);
    str_free(line);
    return rc;
}

static void put_experts(struct json_out *o, const struct metrics_step *s)
{
    json_put_real_digits(o, "balance_loss", s->balance_loss, 9);
    json_put_real_digits(o, "z_loss", s->z_loss, 9);
    json_put_real_digits(o, "load_worst", s->load_worst, 4);
    if (s->rounds_most) json_put_real_digits(o, "expert_rounds", s->rounds_mean, 4);
    if (s->rounds_most) json_put_int(o, "expert_rounds_most", s->rounds_most);
}

/* What was used of each source, in the config's order. */
static void put_sources(struct json_out *o, const struct metrics_step *s)
{
    json_begin_array(o, "sources");
    for (int i = 0; i < s->n_sources; i++) {
        json_begin_object(o, NULL);
        json_put_int(o, "samples", s->sources[i].samples);
        json_put_int(o, "tokens", s->sources[i].tokens);
        json_put_real_digits(o, "epochs", s->sources[i].epochs, 6);
        json_end_object(o);
    }
    json_end_array(o);
}

/* The least, the median and the most of all ranks, and who computed longest. */
static void put_ranks(struct json_out *o, const struct rank_times_step *s)
{
    json_begin_object(o, "ranks");
    for (int i = 0; i < RANK_TIME_N; i++) {
        json_begin_array(o, rank_times_names[i]);
        json_put_real_digits(o, NULL, s->of[i].least, 4);
        json_put_real_digits(o, NULL, s->of[i].median, 4);
        json_put_real_digits(o, NULL, s->of[i].most, 4);
        json_end_array(o);
    }
    json_begin_array(o, "slowest");
    for (int i = 0; i < s->n_slowest; i++) json_put_int(o, NULL, s->slowest[i]);
    json_end_array(o);
    json_end_object(o);
}

int metrics_straggler(struct metrics *m, int64_t step, const struct rank_times_verdict *v, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    json_begin_object(&o, "straggler");
    json_put_int(&o, "rank", v->rank);
    json_put_string(&o, "cause", v->cause == RANK_TIME_LINK ? "link" : "compute");
    json_put_real_digits(&o, "own_s", v->own_s, 4);
    json_put_real_digits(&o, "others_s", v->others_s, 4);
    if (v->cause == RANK_TIME_COMPUTE) {
        json_put_real_digits(&o, "waited_for_s", v->waits_s, 4);
        json_put_int(&o, "slower_steps", v->steps);
        json_put_int(&o, "window", v->window);
    }
    json_end_object(&o);
    json_end_object(&o);
    return append(m, &line, e);
}

static int add_loads(struct metrics *m, const struct metrics_step *s, struct err *e)
{
    int rc = m->loads ? OK : expert_load_open(&m->loads, m->dir, s->step, s->load, s->layers, s->experts, e);
    return rc ? rc : expert_load_add(m->loads, s->step, s->load, e);
}

int metrics_state(struct metrics *m, int64_t step, const char *what, int64_t of_step, uint64_t state, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    char digits[17];
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step); /* and not the checkpoint's: lines are cut by it (file_tail.h) */
    json_begin_object(&o, what);
    json_put_int(&o, "step", of_step);
    json_put_string(&o, "state", hash64_print(digits, state));
    json_end_object(&o);
    json_end_object(&o);
    if (strcmp(what, "loaded")) return append(m, &line, e);
    str_putc(&line, '\n');
    str_free(&m->first);
    m->first = line;
    return OK;
}

/* Means over the step's pairs. */
static void put_preferred(struct json_out *o, const struct preference_sums *p)
{
    double n = (double)p->pairs;
    json_put_real_digits(o, "rewards_chosen", p->chosen / n, 9);
    json_put_real_digits(o, "rewards_rejected", p->rejected / n, 9);
    json_put_real_digits(o, "rewards_margin", (p->chosen - p->rejected) / n, 9);
    if (p->scored) json_put_real_digits(o, "rewards_mean", (p->chosen + p->rejected) / (2 * n), 9);
    json_put_real_digits(o, "rewards_accuracy", (double)p->right / n, 6);
}

static void put_policy(struct json_out *o, const struct policy_sums *p)
{
    double answers = (double)p->answers;
    json_put_real_digits(o, "reward", p->reward, 9);
    json_put_real_digits(o, "reward_std", p->reward_std, 9);
    json_put_real_digits(o, "answer_tokens", (double)p->length / answers, 6);
    json_put_real_digits(o, "answers_ended", (double)p->ended / answers, 6);
    double tokens = (double)(p->tokens ? p->tokens : 1);
    if (p->rules->beta > 0) json_put_real_digits(o, "kl", p->kl / tokens, 9);
    if (p->updates > 1) json_put_real_digits(o, "clip_fraction", (double)p->clipped / tokens, 9);
    if (p->unlike < 0) return;
    json_put_int(o, "logprobs_unlike", p->unlike);
    json_put_real_digits(o, "logprobs_unlike_most", p->unlike_most, 6);
}

int metrics_step(struct metrics *m, const struct metrics_step *s, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    bool has_speed = s->step_s > 0 && !s->left_out;
    const double none = isnan(s->mfu) ? NAN : 0; /* of a run that is simulated nothing is a speed */
    double rate = has_speed ? (double)s->step_tokens / s->step_s + none : none;
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", s->step);
    json_put_real_digits(&o, "loss", s->loss, 9);
    if (s->tells) json_put_real_digits(&o, "accuracy", s->accuracy, 6);
    if (s->ahead_depth) {
        json_begin_array(&o, "mtp_loss");
        for (int k = 0; k < s->ahead_depth; k++) json_put_real_digits(&o, NULL, s->ahead[k], 9);
        json_end_array(&o);
    }
    if (s->preferred) put_preferred(&o, s->preferred);
    if (s->policy) put_policy(&o, s->policy);
    json_put_real_digits(&o, "grad_norm", s->grad_norm, 9);
    json_put_real(&o, "lr", s->lr);
    json_put_int(&o, "tokens", s->tokens);
    json_put_real_digits(&o, "step_s", s->step_s, 6);
    json_put_real_digits(&o, "data_wait_s", s->data_wait_s, 4);
    json_put_real_digits(&o, "tokens_per_s", rate, 6);
    if (s->sees)
        json_put_real_digits(&o, "pictures_per_s", has_speed ? (double)s->pictures / s->step_s + none : none, 6);
    json_put_real_digits(&o, "mfu", s->mfu, 4);
    json_put_int(&o, "peak_bytes", s->peak_bytes);
    json_put_int(&o, "skipped", s->skip != NULL); /* without a loss scale a step that cannot be taken ends the run */
    if (s->skip) json_put_string(&o, "skip_cause", s->skip);
    if (s->scaled) json_put_real(&o, "loss_scale", s->loss_scale);
    if (s->scaled) json_put_int(&o, "skipped_so_far", s->skipped);
    if (s->async) {
        json_put_real(&o, "staleness_mean", s->staleness_mean);
        json_put_int(&o, "staleness_max", s->staleness_max);
    }
    if (s->ranks) put_ranks(&o, s->ranks);
    if (s->packed || s->padded) json_put_int(&o, "padding", s->padded);
    if (s->busiest > 0) {
        json_put_real_digits(&o, "cp_busiest", s->busiest, 6);
        json_put_real_digits(&o, "cp_busiest_by_position", s->busiest_by_position, 6);
    }
    if (s->sources) put_sources(&o, s);
    if (s->load) put_experts(&o, s);
    if (s->rounded) rounding_report_put(s->rounded, &o);
    if (s->fallback) rounding_report_put_fallen(s->fallback, &o);
    if (s->tier) {
        json_put_int(&o, "offload_put_bytes", s->put_bytes);
        json_put_int(&o, "offload_get_bytes", s->got_bytes);
        json_put_real_digits(&o, "offload_wait_s", s->tier_s, 4);
    }
    json_end_object(&o);
    if (m->tb) {
        tb_scalar(m->tb, "train/loss", s->step, s->loss);
        if (s->tells) tb_scalar(m->tb, "train/accuracy", s->step, s->accuracy);
        for (int k = 0; k < s->ahead_depth; k++) {
            char name[32];
            snprintf(name, sizeof name, "train/mtp_loss_%d", k + 1);
            tb_scalar(m->tb, name, s->step, s->ahead[k]);
        }
        if (s->preferred) {
            double n = (double)s->preferred->pairs;
            tb_scalar(m->tb, "train/rewards_margin", s->step, (s->preferred->chosen - s->preferred->rejected) / n);
            tb_scalar(m->tb, "train/rewards_accuracy", s->step, (double)s->preferred->right / n);
        }
        if (s->policy) {
            tb_scalar(m->tb, "train/reward", s->step, s->policy->reward);
            tb_scalar(m->tb, "train/answer_tokens", s->step, (double)s->policy->length / (double)s->policy->answers);
            double tokens = (double)(s->policy->tokens ? s->policy->tokens : 1);
            if (s->policy->rules->beta > 0) tb_scalar(m->tb, "train/kl", s->step, s->policy->kl / tokens);
            if (s->policy->updates > 1)
                tb_scalar(m->tb, "train/clip_fraction", s->step, (double)s->policy->clipped / tokens);
        }
        tb_scalar(m->tb, "train/grad_norm", s->step, s->grad_norm);
        tb_scalar(m->tb, "train/lr", s->step, s->lr);
        tb_scalar(m->tb, "speed/tokens_per_s", s->step, rate);
        tb_scalar(m->tb, "speed/mfu", s->step, s->mfu);
        tb_scalar(m->tb, "speed/data_wait_s", s->step, s->data_wait_s);
        if (s->scaled) tb_scalar(m->tb, "train/loss_scale", s->step, s->loss_scale);
        if (s->async) tb_scalar(m->tb, "async/staleness_mean", s->step, s->staleness_mean);
        if (s->async) tb_scalar(m->tb, "async/staleness_max", s->step, (double)s->staleness_max);
        if (s->load) tb_scalar(m->tb, "experts/balance_loss", s->step, s->balance_loss);
        if (s->load) tb_scalar(m->tb, "experts/load_worst", s->step, s->load_worst);
        if (s->load && s->rounds_most) tb_scalar(m->tb, "experts/rounds", s->step, s->rounds_mean);
        if (s->tier) tb_scalar(m->tb, "speed/offload_wait_s", s->step, s->tier_s);
        struct err why;
        if (tb_flush(m->tb, &why)) { /* a picture of the run, not the run */
            log_warn("%s: no more events for TensorBoard are written", why.text);
            (void)tb_close(m->tb, NULL);
            m->tb = NULL;
        }
    }
    int rc = append(m, &line, e);
    return rc || !s->load ? rc : add_loads(m, s, e);
}

int metrics_valid(struct metrics *m, const struct metrics_valid *v, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", v->step);
    json_put_real_digits(&o, "valid_loss", v->loss, 9);
    if (!isnan(v->accuracy)) json_put_real_digits(&o, "valid_accuracy", v->accuracy, 6);
    json_put_int(&o, "valid_tokens", v->valid_tokens);
    json_put_int(&o, "tokens", v->tokens);
    if (v->judged) json_put_bool(&o, "best", v->best);
    json_end_object(&o);
    if (m->tb) tb_scalar(m->tb, "valid/loss", v->step, v->loss);
    if (m->tb && !isnan(v->accuracy)) tb_scalar(m->tb, "valid/accuracy", v->step, v->accuracy);
    return append(m, &line, e);
}

/* A line of what ranks have that should be equal and is not; element NULL: it is not known which. */
static int put_difference(struct metrics *m, int64_t step, const char *what, const char *tensor, const char *element,
                          const int *ranks, int n_ranks, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    json_begin_object(&o, what);
    json_put_string(&o, "tensor", tensor);
    if (element) json_put_string(&o, "element", element);
    json_begin_array(&o, "ranks");
    for (int i = 0; i < n_ranks; i++) json_put_int(&o, NULL, ranks[i]);
    json_end_array(&o);
    json_end_object(&o);
    json_end_object(&o);
    return append(m, &line, e);
}

int metrics_differ(struct metrics *m, int64_t step, const char *tensor, const char *element, const int *ranks,
                   int n_ranks, struct err *e)
{
    return put_difference(m, step, "replicas_differ", tensor, element, ranks, n_ranks, e);
}

int metrics_witness(struct metrics *m, int64_t step, const char *tensor, const int *ranks, int n_ranks, struct err *e)
{
    return put_difference(m, step, "replay_differs", tensor, NULL, ranks, n_ranks, e);
}

/* Of a step that made none: nothing. */
static const char *figure(char out[32], const char *format, double v)
{
    if (isnan(v)) snprintf(out, 32, "-");
    else snprintf(out, 32, format, v);
    return out;
}

void metrics_progress(const struct metrics *m, const struct metrics_step *s, int64_t steps, double eta_s)
{
    (void)m;
    char rate[32], eta[32], load[48] = "", rounds[48] = "", stale[64] = "", scale[64] = "", disk[64] = "", moved[32],
                            rounded[192] = "";
    if (s->load && s->progress_load) snprintf(load, sizeof load, "  busiest expert %.2fx", s->load_worst);
    if (s->rounds_most > 1)
        snprintf(rounds, sizeof rounds, "  experts in up to %d rounds, mean %.2f", s->rounds_most, s->rounds_mean);
    if (s->async)
        snprintf(stale, sizeof stale, "  stale %.1f, at most %lld", s->staleness_mean, (long long)s->staleness_max);
    if (s->scaled) snprintf(scale, sizeof scale, "  scale %.10g, %lld left out", s->loss_scale, (long long)s->skipped);
    if (s->tier)
        snprintf(disk, sizeof disk, "  disk %s, waited %.2g s", str_bytes(moved, (double)(s->put_bytes + s->got_bytes)),
                 s->tier_s);
    if (s->rounded) rounding_report_progress(s->rounded, rounded, sizeof rounded);
    char right[128] = "", one[32], loss[32], norm[32];
    bool of_pictures = s->sees && s->step_tokens;
    double each = of_pictures ? (double)s->step_tokens / (double)s->pictures : 1; /* places of a picture */
    if (s->preferred)
        snprintf(right, sizeof right, "  preferred %.1f %%",
                 100.0 * (double)s->preferred->right / (double)s->preferred->pairs);
    if (s->policy) snprintf(right, sizeof right, "  reward %.4g", s->policy->reward);
    size_t used = 0; /* the loss of each depth: "mtp 5.012 5.233" */
    for (int k = 0; k < s->ahead_depth; k++)
        used += (size_t)snprintf(right + used, sizeof right - used, "%s %s", k ? "" : "  mtp",
                                 figure(one, "%.4f", s->ahead[k]));
    if (s->tells) snprintf(right, sizeof right, "  accuracy %s", figure(one, "%.1f %%", 100 * s->accuracy));
    char speed[64] = "simulated";
    if (!isnan(s->mean_mfu))
        snprintf(speed, sizeof speed, "%s %s/s  MFU %.0f %%", str_count(rate, s->mean_tokens_per_s / each),
                 s->sees ? "pictures" : "tok", 100 * s->mean_mfu);
    log_status("step %lld/%lld  loss %s%s  grad norm %s  lr %.2e  %s%s%s%s%s%s%s  ETA %s", (long long)s->step,
               (long long)steps, figure(loss, "%.4f", s->loss), right, figure(norm, "%.3g", s->grad_norm), s->lr, speed,
               load, rounds, stale, scale, disk, rounded, str_duration(eta, eta_s));
}
