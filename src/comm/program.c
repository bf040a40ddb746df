/* SPDX-License-Identifier: Apache-2.0 */
/* program.c: building, counting and printing lists of steps. Empty steps are not written, so an algorithm need not
 * care about pieces without elements; both ends of a message know its size and leave it out together. */
#include "comm/program.h"

#include "base/mem.h"

void comm_program_clear(struct program *p)
{
    p->n = 0;
    p->tmp = 0;
}

void comm_program_free(struct program *p)
{
    xfree(p->step);
    *p = (struct program){0};
}

static void add(struct program *p, struct step s)
{
    if (p->n == p->room) {
        p->room = p->room ? 2 * p->room : 16;
        p->step = xrealloc(p->step, (size_t)p->room * sizeof *p->step);
    }
    p->step[p->n++] = s;
}

/* TMP is as large as the last thing written to it. */
static void needs(struct program *p, enum place where, int64_t end)
{
    if (where == PLACE_TMP && end > p->tmp) p->tmp = end;
}

void comm_program_send(struct program *p, int peer, enum place from, int64_t at, int64_t n)
{
    if (n > 0) add(p, (struct step){.kind = STEP_SEND, .from_place = from, .peer = peer, .from = at, .n = n});
}

void comm_program_recv(struct program *p, int peer, enum place to, int64_t at, int64_t n)
{
    needs(p, to, at + n);
    if (n > 0) add(p, (struct step){.kind = STEP_RECV, .to_place = to, .peer = peer, .to = at, .n = n});
}

void comm_program_fence(struct program *p)
{
    if (p->n && p->step[p->n - 1].kind != STEP_FENCE) add(p, (struct step){.kind = STEP_FENCE});
}

void comm_program_copy(struct program *p, enum place from, int64_t from_at, enum place to, int64_t to_at, int64_t n)
{
    needs(p, to, to_at + n);
    if (n > 0)
        add(p, (struct step){.kind = STEP_COPY, .from_place = from, .to_place = to, .from = from_at, .to = to_at,
                             .n = n});
}

void comm_program_add(struct program *p, enum place from, int64_t from_at, enum place to, int64_t to_at, int64_t n)
{
    needs(p, to, to_at + n);
    if (n > 0)
        add(p, (struct step){.kind = STEP_ADD, .from_place = from, .to_place = to, .from = from_at, .to = to_at,
                             .n = n});
}

void comm_program_scale(struct program *p, enum place at, int64_t to, int64_t n)
{
    if (n > 0) add(p, (struct step){.kind = STEP_SCALE, .to_place = at, .to = to, .n = n});
}

void comm_program_fold(struct program *p, struct step s)
{
    s.kind = STEP_FOLD;
    needs(p, s.to_place, s.to + s.n);
    if (s.n > 0) add(p, s);
}

void comm_program_native(struct program *p)
{
    add(p, (struct step){.kind = STEP_NATIVE});
}

struct comm_traffic comm_program_traffic(const struct program *p, int rank, enum dtype t)
{
    struct comm_traffic sum = {.operations = 1};
    for (int i = 0; i < p->n; i++) {
        if (p->step[i].kind != STEP_SEND || p->step[i].peer == rank) continue;
        sum.messages++;
        sum.bytes += p->step[i].n * (int64_t)dtype_bytes(t);
    }
    return sum;
}

double comm_program_cost(const struct program *p, int rank, enum dtype t, double latency_s, double bytes_per_s)
{
    double total = 0, sent = 0, received = 0;
    int messages = 0;
    for (int i = 0; i <= p->n; i++) {
        const struct step *s = i < p->n ? &p->step[i] : NULL;
        if (!s || s->kind == STEP_FENCE) {
            double more = sent > received ? sent : received;
            total += messages * latency_s + more / bytes_per_s;
            sent = received = messages = 0;
        } else if (s->kind == STEP_SEND && s->peer != rank) {
            sent += (double)s->n * (double)dtype_bytes(t);
            messages++;
        } else if (s->kind == STEP_RECV && s->peer != rank) {
            received += (double)s->n * (double)dtype_bytes(t);
            if (!messages) messages = 1;
        }
    }
    return total;
}

static const char *place_name(enum place p)
{
    static const char *const names[] = {"in", "out", "tmp"};
    return names[p];
}

static void print_range(struct str *out, enum place p, int64_t at, int64_t n)
{
    str_printf(out, "%s[%lld:%lld]", place_name(p), (long long)at, (long long)(at + n));
}

void comm_program_print(const struct program *p, struct str *out)
{
    static const char *const words[] = {
        [STEP_SEND] = "send", [STEP_RECV] = "receive", [STEP_FENCE] = "fence", [STEP_COPY] = "copy",
        [STEP_ADD] = "add", [STEP_SCALE] = "scale", [STEP_FOLD] = "fold", [STEP_NATIVE] = "native"};
    for (int i = 0; i < p->n; i++) {
        const struct step *s = &p->step[i];
        str_puts(out, words[s->kind]);
        if (s->kind == STEP_SEND || s->kind == STEP_RECV) str_printf(out, " %d", s->peer);
        if (s->kind == STEP_SEND || s->kind == STEP_COPY || s->kind == STEP_ADD) {
            str_putc(out, ' ');
            print_range(out, s->from_place, s->from, s->n);
        }
        if (s->kind == STEP_COPY || s->kind == STEP_ADD) str_puts(out, " to");
        if (s->kind != STEP_SEND && s->kind != STEP_FENCE && s->kind != STEP_NATIVE) {
            str_putc(out, ' ');
            print_range(out, s->to_place, s->to, s->n);
        }
        if (s->kind == STEP_FOLD)
            str_printf(out, " of %d at %s[%lld] + %lldp", s->n_src, place_name(s->from_place), (long long)s->from,
                       (long long)s->stride);
        str_putc(out, '\n');
    }
}
