/* SPDX-License-Identifier: Apache-2.0 */
/* Fields lie one after the other in one buffer, each for all microbatches, so that a microbatch of it is a piece of
 * it. */
#include "engine/feed.h"

#include <string.h>

#include "base/mem.h"
#include "engine/work.h"
#include "layout/document_ids.h"
#include "layout/document_order.h"
#include "layout/sequence.h"

#define IS_NAMED(name, f)                                                                                              \
    _Static_assert(offsetof(struct engine_batch, name) == offsetof(struct engine_batch, field) + (f) * sizeof(void *), \
                   "the names of " #f)
IS_NAMED(tokens, BATCH_TOKENS);
IS_NAMED(targets, BATCH_TARGETS);
IS_NAMED(positions, BATCH_POSITIONS);
IS_NAMED(docs, BATCH_DOCUMENTS);
IS_NAMED(pixels, BATCH_PIXELS);
IS_NAMED(label, BATCH_LABEL);
IS_NAMED(segments, BATCH_SEGMENTS);
IS_NAMED(factor, BATCH_FACTOR);
IS_NAMED(patches, BATCH_PATCHES);

int64_t feed_place(const struct engine *g, int64_t i)
{
    return context_place(g->cfg.seq, g->cfg.par.size[AXIS_CP], g->cfg.par.rank[AXIS_CP], i);
}

int64_t feed_token(const struct engine *g, int64_t sequence, int64_t i)
{
    int64_t place = feed_place(g, i);
    return g->order ? g->order[sequence * g->cfg.seq + place] : place;
}

/* Ids of documents as attention gets them, from sequence s on; NULL: a batch without documents has one in each. */
static const int32_t *ids_of(const struct engine *g, const struct engine_batch *b, int64_t s)
{
    const int32_t *ids = g->marked ? g->marked : b->docs;
    return ids ? ids + s * g->cfg.seq : NULL;
}

/* Marks prefixes, and puts every sequence's documents in an order of even work for the ranks of cp. */
static void arrange(struct engine *g, const struct engine_batch *b)
{
    int64_t seq = g->cfg.seq;
    for (int64_t s = 0; g->marked && s < b->n; s++)
        document_mark(b->docs ? b->docs + s * seq : NULL, b->targets + s * seq, seq, g->marked + s * seq);
    for (int64_t s = 0; g->order && s < b->n; s++)
        document_order(ids_of(g, b, s), g->marked, seq, g->cfg.par.size[AXIS_CP], g->order + s * seq);
}

/* The fields that the model takes, in the table's order. */
struct at {
    int field;
    struct batch_row row;
    int64_t tokens;    /* of a sequence, of this field, on this rank */
    size_t begin, end; /* in the buffer */
};

static bool next(const struct engine *g, struct at *x)
{
    do {
        if (++x->field == BATCH_FIELDS) return false;
    } while (!model_takes(&g->cfg.model, (enum batch_field)x->field));
    x->row = batch_field_row(x->field, model_pixels(&g->cfg.model));
    x->tokens = x->row.whole ? g->cfg.seq : engine_seq_here(g);
    x->begin = batch_begin(&x->row, x->end);
    x->end = x->begin + batch_bytes(&x->row, g->cfg.n_microbatches * g->cfg.micro, x->tokens);
    return true;
}
#define EACH_FIELD(x, g) for (struct at x = {.field = -1}; next(g, &x);)

/* Behind the fields: for each module that predicts further tokens what is ahead of a microbatch's tokens, and after
 * that. */
static size_t ahead_of_one(const struct engine *g)
{
    return to_size(2 * g->cfg.model.mtp.depth * g->cfg.micro * engine_seq_here(g)) * sizeof(int32_t);
}

static size_t ahead_begin(const struct engine *g)
{
    size_t bytes = 0;
    EACH_FIELD(x, g) bytes = x.end;
    return bytes;
}

/* Behind that: which token of its sequence stands at each place. */
static size_t order_of_one(const struct engine *g)
{
    bool wanted = g->cfg.documents_in_order && model_wants_order(&g->cfg.model);
    return wanted ? to_size(g->cfg.micro * g->cfg.seq) * sizeof(int32_t) : 0;
}

static size_t order_begin(const struct engine *g)
{
    return ahead_begin(g) + to_size(g->cfg.n_microbatches) * ahead_of_one(g);
}

size_t feed_bytes(const struct engine *g) { return order_begin(g) + to_size(g->cfg.n_microbatches) * order_of_one(g); }

/* The token `by` places ahead of place i of a sequence, and the one after it; -1: not trained. What is in another
 * document that the token does not see, or behind the end, is not ahead. */
static void look_ahead(const struct engine *g, const struct engine_batch *b, int64_t sequence, int64_t i, int by,
                       int32_t *token, int32_t *target)
{
    int64_t seq = g->cfg.seq, at = sequence * seq + i;
    bool apart = g->cfg.model.document_mask && b->docs;
    *token = 0;
    *target = -1;
    if (i + by >= seq || (apart && b->docs[at + by] != b->docs[at])) return;
    *token = b->tokens[at + by];
    *target = b->targets[at + by];
}

static void stage_ahead(const struct engine *g, const struct engine_batch *b)
{
    int64_t here = engine_seq_here(g), micro = g->cfg.micro, T = micro * here;
    int32_t *to = (int32_t *)((char *)g->staging.p + ahead_begin(g));
    for (int64_t s = 0; s < g->cfg.n_microbatches * micro; s++)
        for (int k = 0; k < g->cfg.model.mtp.depth; k++) {
            int32_t *of = to + (s / micro * g->cfg.model.mtp.depth + k) * 2 * T + s % micro * here;
            for (int64_t i = 0; i < here; i++) {
                of[i] = 0;
                of[T + i] = -1;
                if (s < b->n) look_ahead(g, b, s, feed_token(g, s, i), k + 1, &of[i], &of[T + i]);
            }
        }
}

static void stage_order(const struct engine *g, const struct engine_batch *b)
{
    int64_t seq = g->cfg.seq;
    int32_t *to = (int32_t *)(void *)((char *)g->staging.p + order_begin(g));
    for (int64_t i = 0; i < g->cfg.n_microbatches * g->cfg.micro * seq; i++)
        to[i] = (int32_t)(g->order && i / seq < b->n ? g->order[i] : i % seq);
}

/* Tokens of each sequence as they stand here: this rank's rows, or of a field that is wanted whole all places. */
static void cut(const struct engine *g, const struct at *x, char *to, const char *from, int64_t n)
{
    int64_t here = x->tokens, seq = g->cfg.seq, *token = xmalloc(to_size(here) * sizeof *token + 1);
    for (int64_t s = 0; s < n; s++) {
        for (int64_t i = 0; i < here; i++)
            token[i] = here < seq ? feed_token(g, s, i) : g->order ? g->order[s * seq + i] : i;
        batch_cut(&x->row, to, from, 1, seq, token, here);
        to += batch_bytes(&x->row, 1, here);
        from += batch_bytes(&x->row, 1, seq);
    }
    xfree(token);
}

/* What is given of a field, then blanks for the sequences that are not. */
static void stage(const struct engine *g, const struct at *x, const void *from, int64_t given)
{
    char *to = (char *)g->staging.p + x->begin;
    size_t have = from ? batch_bytes(&x->row, given, x->tokens) : 0;
    if (have && x->tokens == g->cfg.seq && !g->order) memcpy(to, from, have);
    else if (have) cut(g, x, to, from, given);
    memset(to + have, x->row.blank, x->end - x->begin - have);
}

int64_t feed_blank(const struct engine *g, int microbatch)
{
    int64_t there = g->given - microbatch * g->cfg.micro, micro = g->cfg.micro;
    return micro - (there < 0 ? 0 : there > micro ? micro : there);
}

/* The last batch has left the staging: a step ends with a wait (tally_read), and so does an evaluation. */
void feed_batch(struct engine *g, const struct engine_batch *b)
{
    int64_t room = g->cfg.n_microbatches * g->cfg.micro;
    CHECK(b->n <= room, "%lld sequences for room of %lld", (long long)b->n, (long long)room);
    g->given = b->n;
    if (g->staging.p)
        EACH_FIELD(x, g) stage(g, &x, x.field == BATCH_DOCUMENTS ? ids_of(g, b, 0) : b->field[x.field], b->n);
    if (g->staging.p && g->cfg.model.mtp.depth) stage_ahead(g, b);
    if (g->staging.p && order_of_one(g)) stage_order(g, b);
    event_wait(g->feeding, g->used);
    device_from_host(g->feeding, &g->data, 0, g->staging.p, g->data.bytes);
    event_record(g->fed, g->feeding);
    event_wait(g->stream, g->fed);
}

void feed_bind(struct engine *g, int microbatch)
{
    for (int f = 0; f < BATCH_FIELDS; f++) g->slot[SLOT_BATCH + f] = NULL;
    EACH_FIELD(x, g)
    {
        size_t bytes = batch_bytes(&x.row, g->cfg.micro, x.tokens);
        g->slot[SLOT_BATCH + x.field] = g->data.p ? (char *)g->data.p + x.begin + (size_t)microbatch * bytes : NULL;
    }
    g->slot[SLOT_ORDER] = g->data.p ? (char *)g->data.p + order_begin(g) + (size_t)microbatch * order_of_one(g) : NULL;
    g->slot[SLOT_AHEAD] = g->data.p ? (char *)g->data.p + ahead_begin(g) + (size_t)microbatch * ahead_of_one(g) : NULL;
}

static int64_t labels_here(const struct engine *g, const struct engine_batch *b)
{
    int64_t lo, hi, n = 0;
    par_share(&g->cfg.par, AXIS_CP, g->cfg.micro, &lo, &hi);
    for (int64_t s = 0; s < b->n; s++) n += s % g->cfg.micro >= lo && s % g->cfg.micro < hi && b->label[s] >= 0;
    return n;
}

/* Of the rows here; of pictures, of those whose class is read here: ranks of cp share out a microbatch's. */
static int64_t trained_here(const struct engine *g, const struct engine_batch *b)
{
    int64_t here = engine_seq_here(g), n = 0;
    if (g->cfg.par.size[AXIS_CP] == 1) return b->n_trained;
    if (model_sees(&g->cfg.model)) return labels_here(g, b);
    for (int64_t s = 0; s < b->n; s++)
        for (int64_t i = 0; i < here; i++) n += b->targets[s * g->cfg.seq + feed_token(g, s, i)] >= 0;
    return n;
}

/* Whether documents that do not see each other are shared out over ranks of cp, so that one may have more work. */
static bool has_uneven_work(const struct engine *g)
{
    return g->cfg.model.document_mask && g->cfg.par.size[AXIS_CP] > 1;
}

/* Pairs of attention of this rank of cp's queries: as they stand, then by position; [2 * cp], the others' places 0. */
static void count_pairs(const struct engine *g, const struct engine_batch *b, int64_t *pairs)
{
    int cp = g->cfg.par.size[AXIS_CP], here = g->cfg.par.rank[AXIS_CP];
    int64_t seq = g->cfg.seq;
    for (int64_t s = 0; b->docs && s < b->n; s++)
        document_pairs_of(ids_of(g, b, s), g->marked, seq, cp, here, g->order ? g->order + s * seq : NULL, &pairs[here],
                          &pairs[cp + here]);
}

/* The busiest of n over the mean; 0: nobody has work. */
static double busiest(const int64_t *pairs, int n)
{
    double all = 0, most = 0;
    for (int i = 0; i < n; i++) {
        all += (double)pairs[i];
        most = (double)pairs[i] > most ? (double)pairs[i] : most;
    }
    return all > 0 ? most * n / all : 0;
}

struct step_info feed_info(struct engine *g, const struct engine_batch *b, int64_t step, bool training,
                           int64_t *n_trained)
{
    arrange(g, b);
    int cp = has_uneven_work(g) && training ? g->cfg.par.size[AXIS_CP] : 0;
    enum { TRAINED, SEQUENCES, PADDED, SHOWN, PAIRS = SHOWN + PAIRS_N };
    int64_t *counts = xcalloc(PAIRS + 2 * (size_t)cp, sizeof *counts), shown[PAIRS_N];
    work_count(g, b, shown);
    for (int k = 0; k < PAIRS_N; k++) counts[SHOWN + k] = g->cfg.par.rank[AXIS_CP] ? 0 : shown[k];
    counts[TRAINED] = trained_here(g, b);
    counts[SEQUENCES] = g->cfg.par.rank[AXIS_CP] ? 0 : b->n;
    counts[PADDED] = g->cfg.par.rank[AXIS_CP] ? 0 : b->n_padded;
    if (cp) count_pairs(g, b, counts + PAIRS);
    exchange_sum_i64(&g->exchange, counts, PAIRS + 2 * cp);
    *n_trained = counts[TRAINED];
    g->sequences = counts[SEQUENCES];
    g->padded = counts[PADDED];
    memcpy(g->pairs, counts + SHOWN, sizeof g->pairs);
    g->busiest = busiest(counts + PAIRS, cp);
    g->busiest_by_position = busiest(counts + PAIRS + cp, cp);
    xfree(counts);
    return (struct step_info){
        .seed = g->cfg.seed,
        .step = (uint64_t)step,
        .first_token = (uint64_t)(b->first * g->cfg.seq),
        .training = training,
        .loss_scale = *n_trained ? (float)((training ? g->scale.now : 1) / (double)*n_trained) : 0,
    };
}
