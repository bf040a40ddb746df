/* SPDX-License-Identifier: Apache-2.0 */
/* A trace, line by line: each is an event with a comma behind it. What a reader of times does not need (layers, arrows,
 * counters) is passed over; what is no event is counted, for a run that was killed leaves half a line. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/hash.h"
#include "base/fs.h"
#include "base/json.h"
#include "report/timing_impl.h"
#include "schedule/schedule.h"

enum { BLOCK_BYTES = 1 << 16, LINE_BYTES = 16 << 20 };
#define NS_MOST 9e15

static uint64_t hash_text(const char *text, int64_t number)
{
    struct hash64 h;
    hash64_init(&h);
    hash64_add(&h, text, strlen(text));
    hash64_add(&h, &number, sizeof number);
    return hash64_value(&h) | 1;
}

static bool ns_of(const struct json *v, int64_t *ns)
{
    double us = json_real(v, NAN);
    if (!(fabs(us) < NS_MOST / 1e3)) return false;
    *ns = (int64_t)llround(us * 1e3);
    return true;
}

static const char *text_of(const struct json *v, const char *key) { return json_string(json_get(v, key), NULL, ""); }

static int operation_index(struct timing *t, const char *name)
{
    for (int i = 0; i < t->n_operations; i++)
        if (!strcmp(t->operation[i].name, name)) return i;
    if (t->n_operations == TIMING_OPERATIONS) return -1;
    t->operation[t->n_operations] = (struct timing_operation){.name = arena_strdup(t->arena, name)};
    return t->n_operations++;
}

static int time_action_of(const char *cat, const char *action)
{
    if (!strcmp(cat, "forward")) return TIME_F;
    if (!strcmp(cat, "weights")) return TIME_W;
    return strstr(action, "BW") ? TIME_BW : TIME_B;
}

static void add_span(struct timing_lines *x, struct rank_lines *r, const char *cat, const struct json *args,
                     struct timing_span s)
{
    s.kind = SPAN_OTHER;
    s.what = -1;
    if (!strcmp(cat, "step")) {
        s.kind = SPAN_STEP;
        s.step = json_int(json_get(args, "step"), -1);
        if (s.step < 0 || s.step > (int64_t)1e15) return;
    } else if (!strcmp(cat, "forward") || !strcmp(cat, "backward") || !strcmp(cat, "weights")) {
        s.kind = SPAN_ACTION;
        s.what = time_action_of(cat, text_of(args, "action"));
        int64_t stage = json_int(json_get(args, "stage"), 0);
        s.stage = stage >= 0 && stage < SCHEDULE_MAX_STAGES ? (int32_t)stage : 0;
        if (s.stage >= x->t->n_stages) x->t->n_stages = s.stage + 1;
    } else if (!strcmp(cat, "kernel")) {
        s.kind = SPAN_KERNEL;
        s.what = operation_index(x->t, text_of(args, "operation"));
        double flops = json_real(json_get(args, "flops"), 0);
        if (s.what >= 0 && isfinite(flops)) x->t->operation[s.what].flops += flops;
        if (s.what >= 0) x->t->operation[s.what].calls++;
    } else if (!strcmp(cat, "optimizer")) {
        s.kind = SPAN_KERNEL;
    } else if (!strcmp(cat, "call") || !strcmp(cat, "handover")) {
        s.kind = SPAN_CALL;
        s.waits = !strcmp(text_of(args, "why"), "wait");
        if (s.waits) s.of = hash_text(text_of(args, "group"), json_int(json_get(args, "ticket"), -1));
    } else if (!strcmp(cat, "layer") || !strcmp(cat, "recompute")) {
        return; /* its kernels say it all */
    }
    GROW(r->span, r->n, r->room, 1);
    r->span[r->n++] = s;
}

static void add_part(struct timing_lines *x, const struct json *args, int64_t from, int rank)
{
    GROW(x->part, x->n_parts, x->room_parts, 1);
    x->part[x->n_parts++] =
        (struct timing_part){.id = hash_text(text_of(args, "id"), 0),
                             .from = from,
                             .rank = rank,
                             .of = hash_text(text_of(args, "group"), json_int(json_get(args, "ticket"), -1))};
}

static void clock_error(struct timing *t, const struct json *args)
{
    double us = json_real(json_get(args, "clock_error_us"), 0);
    if (isfinite(us) && us * 1e-6 > t->clock_error_s) t->clock_error_s = us * 1e-6;
}

static void meta(struct timing_lines *x, const char *name, const struct json *args, int rank)
{
    struct timing *t = x->t;
    if (!strcmp(name, "tutti.rank")) {
        int64_t pp = json_int(json_get(args, "pp"), 0);
        t->rank[rank].place = arena_strdup(t->arena, text_of(args, "place"));
        t->rank[rank].pp = pp >= 0 && pp < TIMING_RANKS ? (int)pp : 0;
        x->rank[rank].there = true;
        clock_error(t, args);
    } else if (!strcmp(name, "tutti.collected")) {
        int64_t ns, lost = json_int(json_get(args, "dropped"), 0);
        if (lost > 0 && lost < INT64_MAX - t->dropped) t->dropped += lost;
        if (lost > 0 && ns_of(json_get(args, "complete_from_us"), &ns) && ns > x->rank[rank].whole_from)
            x->rank[rank].whole_from = ns;
        clock_error(t, args);
    } else if (!strcmp(name, "tutti.end")) {
        t->ended = true;
    }
}

static int begin(struct timing_lines *x, const struct json *v, const char *what, struct err *e)
{
    const struct json *args = json_get(v, "args");
    int64_t ranks = json_int(json_get(args, "ranks"), 0), version = json_int(json_get(args, "version"), 0);
    if (strcmp(text_of(v, "name"), "tutti.trace") || ranks < 1 || ranks > TIMING_RANKS)
        return err_set(e, ERR_REQUEST, "%s: not a trace of tutti (train with run.trace=FILE makes one)", what);
    if (version != 1)
        return err_set(e, ERR_REQUEST, "%s: a trace of version %lld; this program reads version 1", what,
                       (long long)version);
    x->t->n_ranks = (int)ranks;
    x->t->rank = xcalloc(to_size(ranks), sizeof *x->t->rank);
    x->rank = xcalloc(to_size(ranks), sizeof *x->rank);
    for (int r = 0; r < ranks; r++) {
        x->t->rank[r].place = "";
        x->rank[r].whole_from = INT64_MIN;
    }
    x->t->schedule = arena_strdup(x->t->arena, text_of(args, "schedule"));
    x->begun = true;
    return OK;
}

static bool event(struct timing_lines *x, const struct json *v)
{
    const char *ph = text_of(v, "ph"), *cat = text_of(v, "cat");
    const struct json *args = json_get(v, "args");
    int64_t rank = json_int(json_get(v, "pid"), -1), from, dur;
    if (rank < 0 || rank >= x->t->n_ranks) return false;
    if (*ph == 'M') meta(x, text_of(v, "name"), args, (int)rank);
    if (*ph != 'X') return *ph != 0;
    if (!ns_of(json_get(v, "ts"), &from) || !ns_of(json_get(v, "dur"), &dur) || dur < 0) return false;
    if (!strcmp(cat, "comm")) add_part(x, args, from, (int)rank);
    else add_span(x, &x->rank[rank], cat, args, (struct timing_span){.from = from, .to = from + dur});
    return true;
}

static int one_line(struct timing_lines *x, const char *text, size_t n, const char *what, struct err *e)
{
    struct json *v;
    while (n && (text[n - 1] == ',' || text[n - 1] == '\r' || text[n - 1] == ' ')) n--;
    if (!n || (n == 1 && (*text == '[' || *text == ']'))) return OK;
    if (json_parse(&v, text, n, "line", NULL)) {
        if (!x->begun)
            return err_set(e, ERR_REQUEST, "%s: not a trace of tutti (train with run.trace=FILE makes one)", what);
        x->t->broken++;
        return OK;
    }
    int rc = x->begun ? OK : begin(x, v, what, e);
    if (!rc && event(x, v)) x->t->events++;
    else if (!rc) x->t->broken++;
    json_free(v);
    return rc;
}

int lines_read_text(struct timing_lines *x, const char *text, size_t n, const char *what, struct err *e)
{
    int rc = OK;
    for (const char *p = text, *end; !rc && p < text + n; p = end + 1) {
        end = memchr(p, '\n', (size_t)(text + n - p));
        if (!end) end = text + n;
        rc = one_line(x, p, (size_t)(end - p), what, e);
    }
    if (!rc && !x->begun) rc = err_set(e, ERR_REQUEST, "%s: an empty file, not a trace", what);
    return rc;
}

int lines_read_file(struct timing_lines *x, const char *path, struct err *e)
{
    FILE *f;
    int rc = fs_stream_open(&f, path, FS_LINES_MOST, e);
    if (rc) return rc;
    char *block = xmalloc(BLOCK_BYTES);
    struct str rest = {0};
    for (size_t n; !rc && (n = fread(block, 1, BLOCK_BYTES, f)) > 0;) {
        const char *last = memrchr(block, '\n', n);
        size_t whole = last ? (size_t)(last - block) + 1 : 0;
        str_add(&rest, block, last ? whole : n);
        if (rest.n > LINE_BYTES + BLOCK_BYTES)
            rc = err_set(e, ERR_REQUEST, "%s: a line of more than 16 MiB: not a trace of tutti", path);
        if (!last || rc) continue;
        rc = lines_read_text(x, rest.p, rest.n, path, e);
        str_clear(&rest);
        str_add(&rest, block + whole, n - whole);
    }
    if (!rc && ferror(f)) rc = err_errno(e, ERR_IO, errno, "cannot read %s", path);
    if (!rc && (rest.n || !x->begun)) rc = lines_read_text(x, str_text(&rest), rest.n, path, e);
    fclose(f);
    str_free(&rest);
    xfree(block);
    return rc;
}

void lines_free(struct timing_lines *x)
{
    for (int r = 0; x->rank && r < x->t->n_ranks; r++) xfree(x->rank[r].span);
    xfree(x->rank);
    xfree(x->part);
    *x = (struct timing_lines){0};
}
