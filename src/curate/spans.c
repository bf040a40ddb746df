/* SPDX-License-Identifier: Apache-2.0 */
/* spans.c: cutting is linear in the text. Passages: a hash that rolls (a sum of powers times table entries, so a byte
 * in and a byte out cost two multiplications), and the least of the last so many in a queue that ascends.
 */
#include "curate/spans.h"

#include <string.h>

#include "base/mem.h"
#include "text/utf8.h"

size_t passage_apart(size_t least) { return least / 4 ? least / 4 : 1; }

void spans_fini(struct span_cutter *c)
{
    str_free(&c->form);
    xfree(c->ring);
    c->ring = NULL;
    c->ring_room = 0;
}

/* In its normal form; nothing where that is too short. body: without the line ends behind it. */
static int one(struct span_cutter *c, const char *text, size_t from, size_t body, size_t to, span_fn *each, void *ctx,
               struct err *e)
{
    const char *p = text + from;
    size_t n = body - from;
    if (c->normal != NORMAL_BYTES) {
        str_clear(&c->form);
        normal_add(c->normal, p, n, &c->form);
        p = str_text(&c->form);
        n = c->form.n;
    }
    if (n < c->least || from == to) return OK;
    return each(ctx, hash128(p, n), from, to, e);
}

static bool blank(const char *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        int space = utf8_space((const unsigned char *)p + at, n - at);
        if (!space) return false;
        at += (size_t)space;
    }
    return true;
}

static size_t line_end(const char *text, size_t at, size_t n)
{
    const char *newline = memchr(text + at, '\n', n - at);
    return newline ? (size_t)(newline - text) + 1 : n;
}

static size_t without_end(const char *text, size_t from, size_t to)
{
    if (to > from && text[to - 1] == '\n') to--;
    if (to > from && text[to - 1] == '\r') to--;
    return to;
}

static int cut_lines(struct span_cutter *c, const char *text, size_t n, span_fn *each, void *ctx, struct err *e)
{
    int code = OK;
    for (size_t at = 0, end; at < n && !code; at = end) {
        end = line_end(text, at, n);
        code = one(c, text, at, without_end(text, at, end), end, each, ctx, e);
    }
    return code;
}

static int cut_paragraphs(struct span_cutter *c, const char *text, size_t n, span_fn *each, void *ctx, struct err *e)
{
    size_t from = 0, body = 0; /* the paragraph so far, and where its last line that is not blank ends */
    int code = OK;
    for (size_t at = 0, end; at < n && !code; at = end) {
        end = line_end(text, at, n);
        if (blank(text + at, end - at)) continue;
        if (body > from && body < at) { /* blank lines came between */
            code = one(c, text, from, without_end(text, from, body), at, each, ctx, e);
            from = at;
        }
        body = end;
    }
    if (!code && body > from) code = one(c, text, from, without_end(text, from, body), n, each, ctx, e);
    return code;
}

/* A queue of (value, place) that ascends in value, in a ring of `room` pairs. */
struct queue {
    uint64_t *p;
    size_t head, n, room;
};

static uint64_t *queue_at(struct queue *q, size_t i) { return q->p + 2 * ((q->head + i) % q->room); }

static void queue_push(struct queue *q, uint64_t value, uint64_t place)
{
    while (q->n && queue_at(q, q->n - 1)[0] > value) q->n--;
    uint64_t *p = queue_at(q, q->n++);
    p[0] = value;
    p[1] = place;
}

static uint64_t mix(uint64_t h)
{
    h ^= h >> 29;
    h *= 0xBF58476D1CE4E5B9u;
    return h ^ h >> 32;
}

static int cut_passages(struct span_cutter *c, const char *text, size_t n, span_fn *each, void *ctx, struct err *e)
{
    static const uint64_t base = 0x9E3779B97F4A7C15u;
    size_t length = c->least, apart = passage_apart(length);
    if (n < length) return OK;
    if (c->ring_room < 2 * (apart + 1)) {
        c->ring_room = 2 * (apart + 1);
        c->ring = xrealloc(c->ring, c->ring_room * sizeof *c->ring);
    }
    struct queue q = {.p = c->ring, .room = apart + 1};
    uint64_t sum = 0, leaving = 1, told = UINT64_MAX;
    for (size_t i = 0; i < length; i++) leaving *= base;
    for (size_t i = 0; i < n; i++) {
        sum = sum * base + mix((unsigned char)text[i] + 1u);
        if (i >= length) sum -= leaving * mix((unsigned char)text[i - length] + 1u);
        if (i + 1 < length) continue;
        uint64_t place = i + 1 - length;
        queue_push(&q, mix(sum), place);
        if (queue_at(&q, 0)[1] + apart <= place) {
            q.head = (q.head + 1) % q.room;
            q.n--;
        }
        bool whole = place + 1 >= apart || i + 1 == n; /* so many stretches were seen, or there are no more */
        uint64_t chosen = queue_at(&q, 0)[1];
        if (!whole || chosen == told) continue;
        told = chosen;
        int code = each(ctx, hash128(text + chosen, length), chosen, chosen + length, e);
        if (code) return code;
    }
    return OK;
}

int spans_cut(struct span_cutter *c, const char *text, size_t n, span_fn *each, void *ctx, struct err *e)
{
    switch (c->kind) {
    case SPAN_ALL: return one(c, text, 0, n, n, each, ctx, e);
    case SPAN_LINES: return cut_lines(c, text, n, each, ctx, e);
    case SPAN_PARAGRAPHS: return cut_paragraphs(c, text, n, each, ctx, e);
    case SPAN_PASSAGES: return cut_passages(c, text, n, each, ctx, e);
    }
    return OK;
}
