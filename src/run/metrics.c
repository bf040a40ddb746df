/* Plain appends to one file; on resume the file is rewritten up to the step that the checkpoint holds. */
#include "run/metrics.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/mem.h"
#include "run/tensorboard.h"

struct metrics {
    FILE *f;
    char *path;
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

/* Keeps whole lines of steps up to `after`. */
static int keep_until(const char *path, int64_t after, struct err *e)
{
    char *text;
    size_t n;
    if (!fs_exists(path)) return OK;
    int rc = fs_read_all(path, (size_t)1 << 32, &text, &n, e);
    if (rc) return rc;
    struct str keep = {0};
    for (char *p = text, *end; p < text + n; p = end + 1) {
        end = memchr(p, '\n', (size_t)(text + n - p));
        if (!end) break;
        int64_t step = line_step(p, (size_t)(end - p));
        if (step >= 0 && step <= after) str_add(&keep, p, (size_t)(end - p) + 1);
    }
    if (keep.n != n) rc = fs_write_atomic(path, str_text(&keep), keep.n, e);
    str_free(&keep);
    xfree(text);
    return rc;
}

int metrics_open(struct metrics **out, const char *dir, int64_t after, bool tensorboard, struct err *e)
{
    struct metrics *m = xcalloc(1, sizeof *m);
    *out = NULL;
    m->path = fs_join(dir, "metrics.jsonl");
    int rc = keep_until(m->path, after, e);
    if (!rc) {
        m->f = fopen(m->path, "a");
        if (!m->f) rc = err_errno(e, ERR_IO, errno, "cannot write %s", m->path);
    }
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
    int rc = OK;
    if (m->f && fclose(m->f)) rc = err_errno(e, ERR_IO, errno, "cannot write %s", m->path);
    int tb = tb_close(m->tb, rc ? NULL : e);
    xfree(m->path);
    xfree(m);
    return rc ? rc : tb;
}

static int append(struct metrics *m, struct str *line, struct err *e)
{
    str_putc(line, '\n');
    int rc = OK;
    if (fwrite(line->p, 1, line->n, m->f) != line->n || fflush(m->f))
        rc = err_errno(e, ERR_IO, errno, "cannot write %s", m->path);
    str_free(line);
    return rc;
}

static void put_experts(struct json_out *o, const struct metrics_step *s)
{
    json_put_real_digits(o, "balance_loss", s->balance_loss, 9);
    json_put_real_digits(o, "z_loss", s->z_loss, 9);
    json_put_real_digits(o, "load_worst", s->load_worst, 4);
    json_begin_object(o, "expert_load");
    for (int l = 0; l < s->layers; l++) {
        char key[16];
        if (!s->load[l]) continue;
        snprintf(key, sizeof key, "%d", l);
        json_begin_array(o, key);
        for (int e = 0; e < s->experts; e++) json_put_int(o, NULL, (int64_t)s->load[l][e]);
        json_end_array(o);
    }
    json_end_object(o);
}

int metrics_step(struct metrics *m, const struct metrics_step *s, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    double rate = s->step_s > 0 ? (double)s->step_tokens / s->step_s : 0;
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", s->step);
    json_put_real_digits(&o, "loss", s->loss, 9);
    json_put_real_digits(&o, "grad_norm", s->grad_norm, 9);
    json_put_real(&o, "lr", s->lr);
    json_put_int(&o, "tokens", s->tokens);
    json_put_real_digits(&o, "step_s", s->step_s, 6);
    json_put_real_digits(&o, "tokens_per_s", rate, 6);
    json_put_real_digits(&o, "mfu", s->mfu, 4);
    json_put_int(&o, "peak_bytes", s->peak_bytes);
    json_put_int(&o, "skipped", s->skipped);
    if (s->async) {
        json_put_real(&o, "staleness_mean", s->staleness_mean);
        json_put_int(&o, "staleness_max", s->staleness_max);
    }
    if (s->load) put_experts(&o, s);
    json_end_object(&o);
    if (m->tb) {
        tb_scalar(m->tb, "train/loss", s->step, s->loss);
        tb_scalar(m->tb, "train/grad_norm", s->step, s->grad_norm);
        tb_scalar(m->tb, "train/lr", s->step, s->lr);
        tb_scalar(m->tb, "speed/tokens_per_s", s->step, rate);
        tb_scalar(m->tb, "speed/mfu", s->step, s->mfu);
        if (s->async) tb_scalar(m->tb, "async/staleness_mean", s->step, s->staleness_mean);
        if (s->async) tb_scalar(m->tb, "async/staleness_max", s->step, (double)s->staleness_max);
        if (s->load) tb_scalar(m->tb, "experts/balance_loss", s->step, s->balance_loss);
        if (s->load) tb_scalar(m->tb, "experts/load_worst", s->step, s->load_worst);
        int rc = tb_flush(m->tb, e);
        if (rc) return rc;
    }
    return append(m, &line, e);
}

int metrics_valid(struct metrics *m, int64_t step, int64_t tokens, double loss, int64_t valid_tokens, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    json_put_real_digits(&o, "valid_loss", loss, 9);
    json_put_int(&o, "valid_tokens", valid_tokens);
    json_put_int(&o, "tokens", tokens);
    json_end_object(&o);
    if (m->tb) tb_scalar(m->tb, "valid/loss", step, loss);
    return append(m, &line, e);
}

int metrics_differ(struct metrics *m, int64_t step, const char *tensor, const char *element, const int *ranks, int n_ranks, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", step);
    json_begin_object(&o, "replicas_differ");
    json_put_string(&o, "tensor", tensor);
    json_put_string(&o, "element", element);
    json_begin_array(&o, "ranks");
    for (int i = 0; i < n_ranks; i++) json_put_int(&o, NULL, ranks[i]);
    json_end_array(&o);
    json_end_object(&o);
    json_end_object(&o);
    return append(m, &line, e);
}

void metrics_progress(const struct metrics *m, const struct metrics_step *s, int64_t steps, double eta_s)
{
    (void)m;
    char rate[32], eta[32], load[48] = "", stale[64] = "";
    if (s->load && s->progress_load) snprintf(load, sizeof load, "  busiest expert %.2fx", s->load_worst);
    if (s->async)
        snprintf(stale, sizeof stale, "  stale %.1f, at most %lld", s->staleness_mean, (long long)s->staleness_max);
    str_count(rate, s->step_s > 0 ? (double)s->step_tokens / s->step_s : 0);
    log_status("step %lld/%lld  loss %.4f  grad norm %.3g  lr %.2e  %s tok/s  MFU %.0f %%%s%s  ETA %s", (long long)s->step,
               (long long)steps, s->loss, s->grad_norm, s->lr, rate, 100 * s->mfu, load, stale, str_duration(eta, eta_s));
}
