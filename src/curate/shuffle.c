/* SPDX-License-Identifier: Apache-2.0 */
/* shuffle.c: a round is two operations that every rank takes part in: how many records each pair of ranks has,
 * then the records. */
#include "curate/shuffle.h"

#include <string.h>

#include "base/mem.h"

struct shuffle {
    struct comm *world;
    struct sorter *sorter;
    int words, n, rank;
    int64_t room;   /* records in a box */
    int64_t *count; /* by rank: records in its box; and what is told in a round */
    int64_t *told, *heard, *send, *recv;
    uint64_t *boxes, *packed, *got; /* each n boxes: as they fill; one behind the other; received */
};

struct shuffle *shuffle_new(struct comm *world, const struct sorter_config *c)
{
    struct shuffle *s = xcalloc(1, sizeof *s);
    struct sorter_config half = *c;
    s->world = world;
    s->n = comm_size(world);
    s->rank = comm_rank(world);
    s->words = c->words;
    if (s->n > 1) half.memory = c->memory / 2;
    s->sorter = sorter_new(&half);
    if (s->n == 1) return s;
    size_t n = (size_t)s->n, each = (size_t)c->words * 8;
    s->room = (int64_t)(c->memory / 6 / n / each);
    if (s->room < 1) s->room = 1;
    s->count = xcalloc(5 * n, sizeof *s->count);
    s->told = s->count + n;
    s->heard = s->told + n;
    s->send = s->heard + n;
    s->recv = s->send + n;
    s->boxes = xmalloc(n * to_size(s->room) * each);
    s->packed = xmalloc(n * to_size(s->room) * each);
    s->got = xmalloc(n * to_size(s->room) * each);
    return s;
}

/* What goes to p, counted in words so that no all_to_all has an element of another size. The lowest bit of a count says
 * whether this rank has no more. *over: nobody has. */
static int do_round(struct shuffle *s, bool last, bool *over, struct err *e)
{
    int64_t n_sent = 0, n_got = 0;
    for (int p = 0; p < s->n; p++) {
        s->told[p] = 2 * s->count[p] + last;
        s->send[p] = s->count[p] * s->words;
        memcpy(s->packed + n_sent, s->boxes + p * s->room * s->words, to_size(s->send[p]) * 8);
        n_sent += s->send[p];
        s->count[p] = 0;
    }
    comm_wait(s->world, comm_all_to_all(s->world, s->told, s->heard, 1, DT_I64, COMM_AT("records to come")));
    int code = comm_status(s->world, e);
    if (code) return code;
    *over = true;
    for (int p = 0; p < s->n; p++) {
        s->recv[p] = s->heard[p] / 2 * s->words;
        *over = *over && (s->heard[p] & 1);
        CHECK(s->heard[p] >= 0 && s->heard[p] / 2 <= s->room, "rank %d sends %lld records", p,
              (long long)s->heard[p] / 2);
        n_got += s->recv[p];
    }
    comm_wait(s->world, comm_all_to_all_v(s->world, s->packed, s->got, s->send, s->recv, DT_I64, COMM_AT("records")));
    code = comm_status(s->world, e);
    return code ? code : sorter_add(s->sorter, s->got, n_got / s->words, e);
}

int shuffle_put(struct shuffle *s, const uint64_t *record, int to, struct err *e)
{
    CHECK(to >= 0 && to < s->n, "a record for rank %d of %d", to, s->n);
    if (s->n == 1) return sorter_add(s->sorter, record, 1, e);
    memcpy(s->boxes + (to * s->room + s->count[to]) * s->words, record, (size_t)s->words * 8);
    bool over;
    return ++s->count[to] == s->room ? do_round(s, false, &over, e) : OK;
}

int shuffle_finish(struct shuffle *s, struct err *e)
{
    for (bool over = s->n == 1; !over;) {
        int code = do_round(s, true, &over, e);
        if (code) return code;
    }
    /* Boxes are for what comes: merging has their memory. */
    xfree(s->boxes);
    xfree(s->packed);
    xfree(s->got);
    s->boxes = s->packed = s->got = NULL;
    return sorter_finish(s->sorter, e);
}

int shuffle_next(struct shuffle *s, const uint64_t **record, struct err *e)
{
    return sorter_next(s->sorter, record, e);
}

void shuffle_free(struct shuffle *s)
{
    if (!s) return;
    sorter_free(s->sorter);
    xfree(s->count);
    xfree(s->boxes);
    xfree(s->packed);
    xfree(s->got);
    xfree(s);
}
