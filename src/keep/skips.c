/* SPDX-License-Identifier: Apache-2.0 */
#include "keep/skips.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/append.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"
#include "keep/file_tail.h"

#define FILE_LIMIT ((size_t)16 << 20)
#define MOST_STEPS 100000
#define LEAST_DEVIATION 1e-3 /* of the mean: where losses hardly differ, rounding is no jump */

/* ---- the list ---- */
bool skips_has(const struct skips *s, int64_t step)
{
    for (int64_t i = 0; i < s->n; i++)
        if (s->step[i] == step) return true;
    return false;
}

void skips_add(struct skips *s, int64_t step)
{
    int64_t at = s->n;
    if (skips_has(s, step)) return;
    s->step = xrealloc(s->step, (size_t)(s->n + 1) * sizeof *s->step);
    for (; at && s->step[at - 1] > step; at--) s->step[at] = s->step[at - 1];
    s->step[at] = step;
    s->n++;
}

void skips_free(struct skips *s)
{
    xfree(s->step);
    *s = (struct skips){0};
}

/* ---- jumps ---- */
double skips_deviation(const struct skips *s)
{
    double least = LEAST_DEVIATION * fabs(s->mean), is = sqrt(s->var);
    return is > least ? is : least;
}

bool skips_jumped(const struct skips *s, double loss, double deviations, int64_t window)
{
    if (window < 1 || s->seen < window) return false;
    return loss - s->mean > deviations * skips_deviation(s);
}

/* The first of a window count alike, as in a mean; then each by 2 / (window + 1). */
void skips_learn(struct skips *s, double loss, int64_t window)
{
    if (window < 1 || !isfinite(loss)) return;
    double share = 2.0 / (double)(window + 1), even = 1.0 / (double)(s->seen + 1), a = even > share ? even : share;
    double apart = loss - s->mean;
    s->var = (1 - a) * (s->var + a * apart * apart);
    s->mean += a * apart;
    s->seen++;
}

/* ---- in a manifest ---- */
void skips_put(const struct skips *s, struct json_out *o)
{
    if (s->n) {
        json_begin_array(o, "skipped_steps");
        for (int64_t i = 0; i < s->n; i++) json_put_int(o, NULL, s->step[i]);
        json_end_array(o);
    }
    if (!s->seen) return;
    json_begin_object(o, "loss_average");
    json_put_int(o, "seen", s->seen);
    json_put_real_digits(o, "mean", s->mean, 17);
    json_put_real_digits(o, "variance", s->var, 17);
    json_end_object(o);
}

int skips_take(struct skips *s, const struct json *extra, const char *what, struct err *e)
{
    const struct json *list = json_get(extra, "skipped_steps"), *average = json_get(extra, "loss_average");
    int64_t n = (int64_t)json_size(list);
    if (list && json_kind(list) != JSON_ARRAY)
        return err_set(e, ERR_CORRUPT, "%s: skipped_steps: wanted a list of steps", what);
    if (n > MOST_STEPS) return err_set(e, ERR_CORRUPT, "%s: skipped_steps: %lld steps", what, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        int64_t step = json_int(json_at(list, (size_t)i), -1);
        if (step < 1) return err_set(e, ERR_CORRUPT, "%s: skipped_steps: wanted steps from 1 on", what);
        skips_add(s, step);
    }
    if (!average) return OK;
    s->seen = json_int(json_get(average, "seen"), -1);
    s->mean = json_real(json_get(average, "mean"), NAN);
    s->var = json_real(json_get(average, "variance"), NAN);
    if (s->seen < 1 || !isfinite(s->mean) || !isfinite(s->var) || s->var < 0)
        return err_set(e, ERR_CORRUPT, "%s: loss_average: wanted seen, mean and variance", what);
    return OK;
}

/* ---- in the run's directory ---- */
static void put_figure(struct json_out *o, const char *key, double v)
{
    if (isfinite(v)) json_put_real_digits(o, key, v, 9);
    else json_put_null(o, key);
}

static int sync_file(const char *path, const char *dir, struct err *e)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    int rc = fd < 0 || fsync(fd) ? err_errno(e, ERR_IO, errno, "%s: cannot be synced", path) : OK;
    if (fd >= 0) close(fd);
    return rc ? rc : fs_sync_dir(dir, e); /* the file may be new */
}

static bool stays(void *ctx, const char *line, size_t n)
{
    (void)ctx, (void)line, (void)n;
    return true;
}

int skips_write(const char *dir, const struct skips_note *n, struct err *e)
{
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_int(&o, "step", n->step);
    json_put_string(&o, "cause", n->cause);
    put_figure(&o, "loss", n->loss);
    put_figure(&o, "mean", n->mean);
    put_figure(&o, "deviation", n->deviation);
    json_put_int(&o, "back_to", n->back_to);
    json_end_object(&o);
    char *path = fs_join(dir, SKIPS_NAME);
    int64_t cut;
    int rc = file_tail_cut(path, stays, NULL, &cut, e); /* half a line (parse) would make one with this */
    if (!rc) rc = append_line(dir, SKIPS_NAME, &line, e);
    if (!rc) rc = sync_file(path, dir, e);
    xfree(path);
    str_free(&line);
    return rc;
}

/* A last line without an end was being written when the run was killed: nothing followed from it. */
static int parse(struct skips *s, const char *path, const char *text, struct err *e)
{
    int line = 0;
    for (const char *p = text, *end; (end = strchr(p, '\n')); p = end + 1) {
        struct json *v;
        char what[300];
        snprintf(what, sizeof what, "%.250s:%d", path, ++line);
        int rc = json_parse(&v, p, (size_t)(end - p), what, e);
        if (rc) return rc;
        int64_t step = json_int(json_get(v, "step"), -1);
        json_free(v);
        if (step < 1 || s->n >= MOST_STEPS)
            return err_set(e, ERR_CORRUPT, "%s: wanted a line with a step from 1 on, as the trainer writes it", what);
        skips_add(s, step);
    }
    return OK;
}

static int read_file(struct skips *s, const char *dir, struct err *e)
{
    char *path = fs_join(dir, SKIPS_NAME), *text = NULL;
    int64_t there;
    size_t n;
    int rc = fs_look(path, &there, e);
    if (!rc && there >= 0) rc = fs_read_all(path, FILE_LIMIT, &text, &n, e);
    if (!rc && text && strlen(text) != n) rc = err_set(e, ERR_CORRUPT, "%s: has a byte 0 in it: it is damaged", path);
    if (!rc && text) rc = parse(s, path, text, e);
    xfree(text);
    xfree(path);
    return rc;
}

int skips_read(struct skips *s, const char *dir, struct comm *world, struct err *e)
{
    bool reads = !world || comm_rank(world) == 0;
    int rc = reads ? read_file(s, dir, e) : OK;
    if (!world) return rc;
    rc = comm_agree(world, rc, e);
    int64_t n = s->n;
    if (rc) return rc;
    comm_wait(world, comm_broadcast(world, &n, 1, DT_I64, 0, "steps that are left out"));
    if ((rc = comm_status(world, e)) || !n) return rc;
    int64_t *list = xcalloc((size_t)n, sizeof *list);
    if (reads) memcpy(list, s->step, (size_t)n * sizeof *list);
    comm_wait(world, comm_broadcast(world, list, n, DT_I64, 0, "which steps are left out"));
    rc = comm_status(world, e);
    for (int64_t i = 0; !rc && i < n; i++) skips_add(s, list[i]);
    xfree(list);
    return rc;
}
