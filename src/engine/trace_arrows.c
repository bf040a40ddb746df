/* SPDX-License-Identifier: Apache-2.0 */
/* Arrows between ranks: from a message's sender to its receiver, and from the rank that came last to a collective to
 * all others, which waited for it. Both ends are found by the id that they agree on without talking; an end whose other
 * one has not been collected yet is kept. Cost: a sort per collection. */
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "engine/trace.h"

void trace_ends_add(struct trace_ends *x, const struct trace_end *e)
{
    GROW(x->end, x->n, x->room, 1);
    x->end[x->n++] = *e;
}

static int by_id(const void *a, const void *b)
{
    const struct trace_end *x = a, *y = b;
    if (x->id != y->id) return x->id < y->id ? -1 : 1;
    return (x->rank > y->rank) - (x->rank < y->rank);
}

static void print_end(const struct trace_end *e, const char *ph, int64_t number, int64_t ns, const char *name,
                      struct str *out)
{
    struct json_out o = {.s = out};
    json_begin_object(&o, NULL);
    json_put_string(&o, "name", name);
    json_put_string(&o, "cat", "arrow");
    json_put_string(&o, "ph", ph);
    if (*ph == 'f') json_put_string(&o, "bp", "e");
    json_put_int(&o, "id", number);
    json_put_int(&o, "pid", e->rank);
    json_put_int(&o, "tid", e->row);
    json_put_real(&o, "ts", (double)ns / 1e3);
    json_end_object(&o);
    str_puts(out, ",\n");
}

/* An arrow begins where a box begins and ends just inside the end of one, for viewers look which box encloses the
 * moment. */
static void print_arrow(const struct trace_end *from, const struct trace_end *to, int64_t *arrows, int64_t *lost,
                        struct str *out)
{
    int64_t at = to->to_ns - 1 > to->from_ns ? to->to_ns - 1 : to->from_ns;
    if (at < from->from_ns) {
        ++*lost;
        return;
    }
    const char *name = from->send < 0 ? "the last one came" : "message";
    print_end(from, "s", ++*arrows, from->from_ns, name, out);
    print_end(to, "f", *arrows, at, name, out);
}

static void print_set(const struct trace_end *e, int64_t n, int64_t *arrows, int64_t *lost, struct str *out)
{
    const struct trace_end *from = &e[0];
    if (e[0].send >= 0) {
        from = e[0].send ? &e[0] : &e[1];
        print_arrow(from, from == &e[0] ? &e[1] : &e[0], arrows, lost, out);
        return;
    }
    for (int64_t i = 1; i < n; i++)
        if (e[i].from_ns > from->from_ns) from = &e[i];
    for (int64_t i = 0; i < n; i++)
        if (&e[i] != from) print_arrow(from, &e[i], arrows, lost, out);
}

static bool complete(const struct trace_end *e, int64_t n)
{
    return n == e->of && (e->send < 0 || e[0].send != e[1].send);
}

void trace_ends_print(struct trace_ends *x, int64_t *arrows, int64_t *lost, struct str *out)
{
    int64_t kept = 0;
    if (x->n) qsort(x->end, to_size(x->n), sizeof *x->end, by_id);
    for (int64_t i = 0, n; i < x->n; i += n) {
        for (n = 1; i + n < x->n && x->end[i + n].id == x->end[i].id;) n++;
        if (complete(&x->end[i], n)) {
            print_set(&x->end[i], n, arrows, lost, out);
        } else {
            memmove(&x->end[kept], &x->end[i], to_size(n) * sizeof *x->end);
            kept += n;
        }
    }
    x->n = kept;
}
