/* SPDX-License-Identifier: Apache-2.0 */
/* trace_rules.h: what must be true of every trace, from the file alone: the rules of Chrome's trace-event format that
 * viewers rely on, and what docs/traces.md promises. It reads JSON by itself and shares no code with what writes it. */
#ifndef TUTTI_TESTS_WATCH_TRACE_RULES_H
#define TUTTI_TESTS_WATCH_TRACE_RULES_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/str.h"

#define RULE(cond, ...)                                                                                                \
    do {                                                                                                               \
        if (!(cond)) fail_msg(__VA_ARGS__);                                                                            \
    } while (0)

struct box { /* a complete event, in ns */
    int pid, row, depth;
    int64_t from, to;
    const char *cat, *name, *id;
    const struct json *args;
    int parent; /* index, -1 none */
};
struct rules {
    struct json *root;
    int ranks, n, arrows, messages, collectives;
    struct box *box;   /* by rank, row, time; parents before children */
    int n_steps;       /* of rank 0 */
    int64_t *first_ns; /* [ranks] the first traced step begins; -1: there is none */
};

static inline const char *rule_text(const struct json *v, const char *key)
{
    return json_string(json_get(v, key), NULL, "");
}
static inline bool rule_is(const struct box *b, const char *cat) { return !strcmp(b->cat, cat); }

static inline int64_t rule_ns(const struct json *v, const char *key)
{
    double us = json_real(json_get(v, key), NAN);
    RULE(isfinite(us), "no number %s", key);
    RULE(fabs(us * 1e3 - round(us * 1e3)) < 1e-2, "%s %.9g us is no whole number of ns", key, us);
    return (int64_t)llround(us * 1e3);
}

static inline int rule_order(const void *a, const void *b)
{
    const struct box *x = a, *y = b;
    if (x->pid != y->pid) return x->pid - y->pid;
    if (x->row != y->row) return x->row - y->row;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    if (x->to != y->to) return x->to > y->to ? -1 : 1;
    return x->parent - y->parent; /* place in the file */
}

/* ---- reading ---- */
static inline void rules_read(struct rules *r, const char *path, int ranks)
{
    struct err e = {0};
    *r = (struct rules){.ranks = ranks};
    if (json_parse_file(&r->root, path, (size_t)1 << 28, &e)) fail_msg("%s", e.text);
    RULE(json_kind(r->root) == JSON_ARRAY, "not a list of events");
    size_t n = json_size(r->root);
    r->first_ns = xcalloc((size_t)ranks, sizeof *r->first_ns);
    for (int i = 0; i < ranks; i++) r->first_ns[i] = -1;
    r->box = xcalloc(n + 1, sizeof *r->box);
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_at(r->root, i);
        const char *ph = rule_text(v, "ph");
        int64_t pid = json_int(json_get(v, "pid"), -1), row = json_int(json_get(v, "tid"), -1);
        RULE(strlen(ph) == 1 && strchr("XMCsf", *ph), "event %zu: ph '%s'", i, ph);
        RULE(pid >= 0 && pid < ranks && row >= 0, "event %zu: pid %lld row %lld", i, (long long)pid, (long long)row);
        RULE(*rule_text(v, "name"), "event %zu has no name", i);
        RULE(*ph == 'M' || json_get(v, "ts"), "event %zu has no ts", i);
        if (*ph != 'X') continue;
        struct box b = {.pid = (int)pid,
                        .row = (int)row,
                        .from = rule_ns(v, "ts"),
                        .cat = rule_text(v, "cat"),
                        .name = rule_text(v, "name"),
                        .args = json_get(v, "args"),
                        .parent = (int)i};
        int64_t dur = rule_ns(v, "dur");
        RULE(dur >= 0, "%s lasts %lld ns", b.name, (long long)dur);
        b.to = b.from + dur;
        b.id = rule_text(b.args, "id");
        r->box[r->n++] = b;
    }
    RULE(!strcmp(rule_text(json_at(r->root, 0), "name"), "tutti.trace"), "the first event is not the trace's");
    RULE(json_int(json_get(json_get(json_at(r->root, 0), "args"), "ranks"), 0) == ranks, "another number of ranks");
    qsort(r->box, (size_t)r->n, sizeof *r->box, rule_order);
}

/* ---- boxes inside one another, and only where they belong ---- */
static inline void rules_nesting(struct rules *r)
{
    int stack[64], depth = 0;
    for (int i = 0; i < r->n; i++) {
        struct box *b = &r->box[i];
        if (i && (b->pid != b[-1].pid || b->row != b[-1].row)) depth = 0;
        while (depth && r->box[stack[depth - 1]].to <= b->from) depth--;
        b->parent = depth ? stack[depth - 1] : -1;
        b->depth = depth;
        const struct box *p = depth ? &r->box[b->parent] : NULL;
        RULE(!p || b->to <= p->to, "%s (%lld to %lld) crosses the end of %s (%lld to %lld)", b->name,
             (long long)b->from, (long long)b->to, p->name, (long long)p->from, (long long)p->to);
        RULE((b->row == 1) == !rule_is(b, "comm"), "%s of kind %s is on row %d", b->name, b->cat, b->row);
        if (b->row != 1) RULE(!p, "%s lies over %s", b->name, p->name);
        if (rule_is(b, "kernel") || rule_is(b, "handover"))
            RULE(p && rule_is(p, "layer"), "%s is in no layer but in %s", b->name, p ? p->name : "nothing");
        if (rule_is(b, "layer"))
            RULE(p && (rule_is(p, "forward") || rule_is(p, "backward") || rule_is(p, "weights") ||
                       rule_is(p, "recompute")),
                 "%s is in no action", b->name);
        if (rule_is(b, "recompute")) RULE(p && rule_is(p, "backward"), "%s is in no backward", b->name);
        if (rule_is(b, "step")) RULE(!p, "%s lies in %s", b->name, p->name);
        if (rule_is(b, "optimizer")) RULE(p && rule_is(p, "step"), "%s is in no step", b->name);
        if (rule_is(b, "layer")) {
            const char *phase = strrchr(b->name, ',');
            RULE(phase && strstr(p->name, phase + 2), "%s in %s", b->name, p->name);
        }
        if (rule_is(b, "step")) r->n_steps += b->pid == 0;
        if (rule_is(b, "step") && r->first_ns[b->pid] < 0) r->first_ns[b->pid] = b->from;
        RULE(depth < 64, "deep");
        stack[depth++] = i;
    }
}

/* The box of comm around a moment of a row. */
static inline const struct box *rule_around(const struct rules *r, int pid, int row, int64_t ns)
{
    for (int lo = 0, hi = r->n; lo < hi;) {
        int mid = (lo + hi) / 2;
        const struct box *b = &r->box[mid];
        bool before = b->pid != pid ? b->pid < pid : b->row != row ? b->row < row : b->to <= ns && !(b->from == ns);
        if (before) lo = mid + 1;
        else if (b->pid == pid && b->row == row && b->from <= ns) return b;
        else hi = mid;
    }
    return NULL;
}

static inline const struct box *rule_last_to_begin(const struct rules *r, const char *id)
{
    const struct box *last = NULL;
    for (int i = 0; i < r->n; i++)
        if (rule_is(&r->box[i], "comm") && !strcmp(r->box[i].id, id) && (!last || r->box[i].from > last->from))
            last = &r->box[i];
    return last;
}

/* ---- arrows: a pair each, from inside a box into a box that belongs to it, forward in time ---- */
static inline void rules_arrows(struct rules *r)
{
    size_t n = json_size(r->root);
    const struct json **begin = xcalloc(n + 1, sizeof *begin), **end = xcalloc(n + 1, sizeof *end);
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_at(r->root, i);
        const char *ph = rule_text(v, "ph");
        if (*ph != 's' && *ph != 'f') continue;
        int64_t id = json_int(json_get(v, "id"), -1);
        RULE(id > 0 && id <= (int64_t)n, "an arrow's id %lld", (long long)id);
        const struct json **at = *ph == 's' ? &begin[id] : &end[id];
        RULE(!*at, "two ends '%s' of arrow %lld", ph, (long long)id);
        *at = v;
        if (*ph == 'f') RULE(!strcmp(rule_text(v, "bp"), "e"), "an arrow that ends at the next box");
    }
    for (size_t i = 1; i <= n; i++) {
        RULE(!begin[i] == !end[i], "arrow %zu has one end", i);
        if (!begin[i]) continue;
        r->arrows++;
        const struct json *v[2] = {begin[i], end[i]};
        const struct box *b[2];
        int64_t ns[2];
        for (int k = 0; k < 2; k++) {
            ns[k] = rule_ns(v[k], "ts");
            b[k] = rule_around(r, (int)json_int(json_get(v[k], "pid"), -1), (int)json_int(json_get(v[k], "tid"), -1),
                               ns[k]);
            RULE(b[k] && rule_is(b[k], "comm"), "end %d of arrow %zu is in no box", k, i);
        }
        RULE(ns[0] <= ns[1], "arrow %zu goes back in time by %lld ns", i, (long long)(ns[0] - ns[1]));
        RULE(!strcmp(b[0]->id, b[1]->id), "an arrow from '%s' to '%s'", b[0]->id, b[1]->id);
        RULE(json_int(json_get(b[0]->args, "bytes"), -1) == json_int(json_get(b[1]->args, "bytes"), -2) ||
                 !strcmp(rule_text(b[0]->args, "operation"), "all_to_all"),
             "'%s': other bytes at its ends", b[0]->id);
        if (!strcmp(rule_text(b[0]->args, "operation"), "exchange")) {
            r->messages++;
            RULE(!strcmp(rule_text(b[0]->args, "direction"), "send") &&
                     !strcmp(rule_text(b[1]->args, "direction"), "receive"),
                 "'%s' runs from its receiver to its sender", b[0]->id);
            RULE(json_int(json_get(b[0]->args, "peer"), -1) == b[1]->pid &&
                     json_int(json_get(b[1]->args, "peer"), -1) == b[0]->pid,
                 "'%s' joins ranks %d and %d, its boxes say others", b[0]->id, b[0]->pid, b[1]->pid);
        } else {
            r->collectives++;
            RULE(rule_last_to_begin(r, b[0]->id)->from == b[0]->from,
                 "'%s': the arrow does not begin at the last rank to come", b[0]->id);
        }
    }
    xfree(begin);
    xfree(end);
}

/* ---- operations between ranks: the same at all of them ---- */
static inline int rule_by_id(const void *a, const void *b)
{
    const struct box *x = *(const struct box *const *)a, *y = *(const struct box *const *)b;
    int by = strcmp(x->id, y->id);
    return by ? by : x->pid - y->pid;
}

static inline void rules_operations(const struct rules *r)
{
    const struct box **c = xcalloc((size_t)r->n + 1, sizeof *c);
    int n = 0;
    for (int i = 0; i < r->n; i++)
        if (rule_is(&r->box[i], "comm")) c[n++] = &r->box[i];
    qsort(c, (size_t)n, sizeof *c, rule_by_id);
    for (int i = 0, k; i < n; i += k) {
        const char *op = rule_text(c[i]->args, "operation");
        bool message = !strcmp(op, "exchange");
        for (k = 1; i + k < n && !strcmp(c[i + k]->id, c[i]->id); k++) {
            RULE(!strcmp(rule_text(c[i + k]->args, "operation"), op), "'%s' is %s and %s", c[i]->id, op,
                 rule_text(c[i + k]->args, "operation"));
            RULE(!strcmp(rule_text(c[i + k]->args, "dtype"), rule_text(c[i]->args, "dtype")), "'%s' has two dtypes",
                 c[i]->id);
            RULE(c[i + k]->pid != c[i]->pid || message, "'%s' is twice on rank %d", c[i]->id, c[i]->pid);
        }
        RULE(strstr(c[i]->id, rule_text(c[i]->args, "group")) == c[i]->id, "'%s' is of group %s", c[i]->id,
             rule_text(c[i]->args, "group"));
        int64_t first = r->first_ns[c[i]->pid];
        if (first < 0 || rule_ns(c[i]->args, "asked_us") < first)
            continue; /* asked for before: some ranks saw its end before */
        RULE(k == (message ? 2 : json_int(json_get(c[i]->args, "ranks"), -1)), "'%s' is on %d ranks", c[i]->id, k);
    }
    for (int i = 0; i < r->n; i++) { /* waits know for what */
        const struct box *b = &r->box[i];
        if (!rule_is(b, "call") || strcmp(rule_text(b->args, "why"), "wait")) continue;
        bool known = false;
        for (int k = 0; k < n && !known; k++)
            known = c[k]->pid == b->pid &&
                    json_int(json_get(c[k]->args, "ticket"), -1) == json_int(json_get(b->args, "ticket"), -2) &&
                    !strcmp(rule_text(c[k]->args, "group"), rule_text(b->args, "group"));
        RULE(known, "rank %d: '%s' is for nothing in the file", b->pid, b->name);
    }
    xfree(c);
}

/* ---- counters go on in time, never below zero ---- */
static inline void rules_counters(const struct rules *r)
{
    enum { NAMES = 4 };
    const char *name[NAMES] = {0};
    double *at = xcalloc((size_t)r->ranks * NAMES, sizeof *at);
    for (int i = 0; i < r->ranks * NAMES; i++) at[i] = -1e300;
    for (size_t i = 0; i < json_size(r->root); i++) {
        const struct json *v = json_at(r->root, i);
        if (strcmp(rule_text(v, "ph"), "C")) continue;
        int k = 0;
        while (k < NAMES && name[k] && strcmp(name[k], rule_text(v, "name"))) k++;
        RULE(k < NAMES, "too many counters");
        name[k] = rule_text(v, "name");
        double *last = &at[json_int(json_get(v, "pid"), 0) * NAMES + k], ts = json_real(json_get(v, "ts"), NAN);
        RULE(ts >= *last, "counter %s goes back from %.3f to %.3f", name[k], *last, ts);
        *last = ts;
        const struct json *args = json_get(v, "args");
        RULE(json_size(args) > 0, "counter %s has no value", name[k]);
        for (void *it = json_iter(args); it; it = json_iter_next(args, it))
            RULE(json_int(json_iter_value(it), -1) >= 0, "counter %s: %s is below zero", name[k], json_iter_key(it));
    }
    xfree(at);
}

/* ---- every row and rank has a name, and says its clock ---- */
static inline void rules_names(const struct rules *r)
{
    for (int i = 0; i < r->n; i++) {
        const struct box *b = &r->box[i];
        if (i && b->pid == b[-1].pid && b->row == b[-1].row) continue;
        bool process = false, thread = false, clock = false;
        for (size_t k = 0; k < json_size(r->root); k++) {
            const struct json *v = json_at(r->root, k);
            const char *name = rule_text(v, "name");
            if (strcmp(rule_text(v, "ph"), "M") || json_int(json_get(v, "pid"), -1) != b->pid) continue;
            process |= !strcmp(name, "process_name");
            thread |= !strcmp(name, "thread_name") && json_int(json_get(v, "tid"), -1) == b->row;
            clock |= !strcmp(name, "tutti.rank") && json_get(json_get(v, "args"), "clock_offset_us") &&
                     json_get(json_get(v, "args"), "clock_error_us");
        }
        RULE(process && thread && clock, "rank %d, row %d has no name or clock", b->pid, b->row);
    }
}

static inline void rules_check(struct rules *r, const char *path, int ranks)
{
    rules_read(r, path, ranks);
    rules_nesting(r);
    rules_arrows(r);
    rules_operations(r);
    rules_counters(r);
    rules_names(r);
}

static inline void rules_free(struct rules *r)
{
    json_free(r->root);
    xfree(r->box);
    xfree(r->first_ns);
}

#endif
