/* SPDX-License-Identifier: Apache-2.0 */
#include "train/starts_file.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/thread.h"
#include "base/append.h"
#include "train/epochs.h"
#include "train/signals.h"

#define STARTS_MOST ((size_t)64 << 20)

/* The first "model name" of /proc/cpuinfo; "" where the system tells none (ARM). */
static void cpu_name(char out[128])
{
    char line[512];
    FILE *f = fopen("/proc/cpuinfo", "r");
    out[0] = 0;
    while (f && !out[0] && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        colon += strspn(colon, ": \t");
        colon[strcspn(colon, "\n")] = 0;
        snprintf(out, 128, "%s", colon);
    }
    if (f) fclose(f);
}

static void utc_now(char out[32])
{
    time_t t = time(NULL);
    struct tm utc;
    out[0] = 0;
    if (gmtime_r(&t, &utc)) strftime(out, 32, "%Y-%m-%dT%H:%M:%SZ", &utc);
}

/* The seconds are those since the first of the others noticed, up to this line: all that a step needs is there. */
static void put_epoch(const struct epoch *p, struct json_out *o)
{
    json_put_int(o, "epoch", p->number);
    json_put_int(o, "spares", p->spares);
    json_begin_array(o, "lost");
    for (int i = 0; i < p->n_lost; i++) json_put_int(o, NULL, p->lost[i]);
    json_end_array(o);
    json_put_string(o, "lost_why", p->why);
    if (p->since_s > 0) json_put_real_digits(o, "going_on_s", clock_now_s() - p->since_s, 6);
    else json_put_null(o, "going_on_s");
}

int starts_write(const char *dir, const struct starts_note *s, struct err *e)
{
    char host[256] = "", cpu[128], now[32];
    if (gethostname(host, sizeof host - 1)) host[0] = 0;
    utc_now(now);
    cpu_name(cpu);
    struct str line = {0};
    struct json_out o = {.s = &line};
    json_begin_object(&o, NULL);
    json_put_string(&o, "time", now);
    json_put_string(&o, "version", TUTTI_VERSION);
    json_put_string(&o, "host", host);
    json_put_string(&o, "cpu", cpu);
    json_put_int(&o, "cores", thread_n_cores());
    json_put_int(&o, "memory_bytes", (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGE_SIZE));
    json_put_int(&o, "ranks", s->ranks);
    json_put_int(&o, "threads", s->threads);
    json_put_string(&o, "device", s->device);
    json_put_string(&o, "kernels", s->kernels);
    json_put_string(&o, "kernel_library", s->kernel_library);
    json_put_string(&o, "transport", s->transport ? s->transport : "");
    json_put_string(&o, "mpi", s->mpi);
    json_put_int(&o, "hosts", s->places->n_hosts);
    json_put_string(&o, "mesh", s->mesh);
    json_put_int(&o, "zero", s->zero);
    if (s->binding->how) {
        json_begin_object(&o, "bound");
        binding_put(s->binding, &o);
        json_end_object(&o);
    }
    json_put_string(&o, "binding", places_bound(s->places));
    places_put(s->places, &o);
    json_put_int(&o, "step", s->step);
    if (s->epoch) put_epoch(s->epoch, &o);
    json_end_object(&o);
    int rc = append_line(dir, "starts.jsonl", &line, e);
    str_free(&line);
    return rc;
}

static void put_figure(struct json_out *o, const char *key, double v)
{
    if (isfinite(v)) json_put_real_digits(o, key, v, 9);
    else json_put_null(o, key);
}

/* Lines of starts.jsonl: which start this is the end of, whatever the clock says (it may jump). -1: not known. */
static int64_t count_starts(const char *dir)
{
    char *path = fs_join(dir, "starts.jsonl"), *text = NULL;
    size_t n = 0;
    int64_t lines = 0;
    if (fs_read_all(path, STARTS_MOST, &text, &n, NULL)) lines = -1;
    for (size_t i = 0; text && i < n; i++) lines += text[i] == '\n';
    xfree(text);
    xfree(path);
    return lines;
}

int ends_write(const char *dir, const struct ends_note *n, struct err *e)
{
    char now[32];
    struct str line = {0};
    struct json_out o = {.s = &line};
    utc_now(now);
    json_begin_object(&o, NULL);
    json_put_string(&o, "time", now);
    json_put_int(&o, "starts", count_starts(dir));
    json_put_bool(&o, "finished", n->step >= n->steps || n->early);
    json_put_bool(&o, "early", n->early);
    json_put_int(&o, "first_step", n->first);
    json_put_int(&o, "step", n->step);
    json_put_int(&o, "steps", n->steps);
    json_put_string(&o, "signal", n->signal ? signals_name(n->signal) : "");
    put_figure(&o, "loss", n->loss);
    put_figure(&o, "valid_loss", n->valid_loss);
    json_put_int(&o, "tokens", n->tokens);
    put_figure(&o, "tokens_per_s", n->tokens_per_s);
    put_figure(&o, "seconds", n->seconds);
    json_put_string(&o, "checkpoint", n->checkpoint);
    json_end_object(&o);
    int rc = append_line(dir, "ends.jsonl", &line, e);
    str_free(&line);
    return rc;
}
