/* SPDX-License-Identifier: Apache-2.0 */
/* The exact loss: every rank writes its microbatches into a list of all, zeros elsewhere; adding the lists up adds
 * zeros only, so the transport's order means nothing, and everybody sums the list from the front. */
#include "engine/tally.h"

#include <math.h>
#include <string.h>

#include "engine/feed.h"
#include "kernel/flat.h"
#include "kernel/words.h"

/* Tokens of a microbatch here whose nats are told one by one. */
static int64_t each(const struct engine *g) { return g->cfg.model.by_token ? g->cfg.micro * engine_seq_here(g) : 0; }

/* Numbers of a microbatch that are sums: nats, trained tokens; of classes, how many were told right; both again for
 * each module that predicts further tokens. */
static int64_t sums(const struct engine *g) { return model_tells(&g->cfg.model) ? 3 : 2 + 2 * g->cfg.model.mtp.depth; }

/* And behind them the nats of each token. */
static size_t width(const struct engine *g) { return to_size(sums(g) + each(g)); }

/* Each microbatch's numbers are kept apart. */
static bool apart(const struct engine *g) { return g->cfg.exact_order || g->cfg.by_sequence || g->cfg.model.by_token; }

static int at_least_1(int n) { return n > 1 ? n : 1; }

/* Of what the sum of squares is made: f64, or with exact_order i64. A word behind them counts losses that are not
 * finite. */
static int64_t squares_words(const struct engine *g)
{
    return g->cfg.training && g->cfg.exact_order ? FLAT_SQUARES_WORDS : 1;
}

int tally_buffers(struct engine *g, struct err *e)
{
    bool runs = !(g->cfg.n_servers && g->cfg.server >= 0); /* a server has gradients only */
    size_t sets = runs ? (apart(g) ? to_size(g->cfg.n_microbatches) : 1) : 0;
    size_t norm = to_size(squares_words(g) + 1) * sizeof(double);
    size_t words = g->cfg.training ? STEP_WORDS * sizeof(double) : 0;
    int rc = buffer_new(&g->stat, g->dev, MEM_DATA, sets * width(g) * sizeof(double), e);
    if (!rc) rc = buffer_new(&g->norm, g->dev, MEM_DATA, norm, e);
    if (!rc) rc = buffer_new(&g->words, g->dev, MEM_DATA, words, e);
    if (!rc) rc = buffer_new_host(&g->known, g->dev, MEM_DATA, words, e);
    return rc ? rc : buffer_new_host(&g->told, g->dev, MEM_DATA, g->stat.bytes + g->balance.bytes + norm + words, e);
}

/* Where told has what these buffers held; NULL on the null device. */
static void *told(const struct engine *g, const struct buffer *b)
{
    const struct buffer *const order[] = {&g->stat, &g->balance, &g->norm, &g->words};
    size_t at = 0;
    for (int i = 0; order[i] != b; i++) at += order[i]->bytes;
    return g->told.p ? (char *)g->told.p + at : NULL;
}

static void fetch(const struct engine *g, struct stream *st, const struct buffer *b)
{
    if (b->bytes && g->told.p) device_to_host(st, told(g, b), b, 0, b->bytes);
}

/* The words that the host does not know: those that it writes for the update are others. */
static void fetch_decided(const struct engine *g, struct stream *st)
{
    double *to = g->words.bytes ? told(g, &g->words) : NULL;
    size_t from = WORD_NORM * sizeof *to;
    if (to) device_to_host(st, to + WORD_NORM, &g->words, from, STEP_WORDS * sizeof *to - from);
}

/* What the host knows goes from a place of its own for each word, which lasts until the next step's. */
static void put_word(struct engine *g, enum step_word i, double value)
{
    double *known = g->known.p;
    if (known) known[i] = value;
    if (known) device_from_host(g->stream, &g->words, (size_t)i * sizeof value, &known[i], sizeof value);
}

void tally_update_words(struct engine *g, double lr, int64_t made)
{
    put_word(g, WORD_LR, lr);
    put_word(g, WORD_MADE, (double)made);
}

static void sum_over(struct comm *c, void *p, int64_t n, enum dtype t, const char *what)
{
    if (c) comm_wait(c, comm_all_reduce(c, p, p, n, t, COMM_SUM, what));
}

void tally_norm_make(struct engine *g)
{
    const bool exact = g->cfg.exact_order;
    const int64_t n = squares_words(g), each = (int64_t)width(g);
    const enum dtype t = exact ? DT_I64 : DT_F64;
    char *sum = g->norm.p, *count = sum ? sum + to_size(n) * sizeof(double) : NULL;
    const struct view squares = flat_view(sum, t, n), losses = flat_view(count, t, 1);
    put_word(g, WORD_TIMES, g->scale.now);
    if (exact) optim_exact_squares(&g->store, g->stream, g->norm.p);
    else optim_sum_squares(&g->store, g->stream, g->norm.p);
    struct kernel_call look = losses_call(count, t, g->stat.p, (int64_t)(g->stat.bytes / sizeof(double)) / each, each);
    if (g->stat.bytes) kernel_enqueue(g->stream, &look);
    sum_over(g->cfg.replicate, count, 1, t, "losses that are not finite"); /* squares are the same there */
    sum_over(g->cfg.model_group, sum, n + 1, t, "gradient norm");
    struct kernel_call clip = clip_call(g->words.p, g->cfg.optim.clip, &squares, &losses);
    kernel_enqueue(g->stream, &clip);
    event_record(g->decided, g->stream);
    g->knows_words = false;
}

void tally_read(struct engine *g)
{
    fetch(g, g->stream, &g->stat);
    if (g->balance.dev) fetch(g, g->stream, &g->balance);
    if (!g->knows_words) fetch_decided(g, g->stream);
    g->knows_words = true;
    stream_sync(g->stream);
}

const double *tally_balance(const struct engine *g) { return told(g, &g->balance); }

double tally_squares(const struct engine *g)
{
    stream_zero(g->stream, g->norm.p, g->norm.bytes);
    optim_sum_squares(&g->store, g->stream, g->norm.p);
    fetch(g, g->stream, &g->norm);
    stream_sync(g->stream);
    return g->told.p ? *(const double *)told(g, &g->norm) : 0;
}

/* Its first number, as it was enqueued on st. */
static const void *first_of_norm(const struct engine *g, struct stream *st)
{
    if (!g->told.p) return NULL;
    stream_to_host(st, told(g, &g->norm), g->norm.p, sizeof(double));
    stream_sync(st);
    return told(g, &g->norm);
}

double tally_squares_of(const struct engine *g, struct stream *st, const float *x, int64_t n)
{
    stream_zero(st, g->norm.p, sizeof(double));
    flat_sum_squares(st, x, n, g->norm.p);
    const double *sum = first_of_norm(g, st);
    return sum ? *sum : 0;
}

int64_t tally_first_nonfinite(const struct engine *g, struct stream *st, const void *x, enum dtype dtype, int64_t n)
{
    flat_find_nonfinite(st, x, dtype, n, g->norm.p);
    const int64_t *at = first_of_norm(g, st);
    return at ? *at : -1;
}

void *tally_at(const struct engine *g, int microbatch)
{
    size_t one = apart(g) ? width(g) * sizeof(double) : 0;
    return g->stat.p ? (char *)g->stat.p + (size_t)microbatch * one : NULL;
}

/* Over data-parallel ranks, and over the stages: the loss is where the head is. */
static void over_ranks(struct engine *g, double *v, int64_t n)
{
    struct comm *pipe = g->cfg.host.pp;
    exchange_sum_f64(&g->exchange, v, n);
    if (pipe) comm_wait(pipe, comm_all_reduce(pipe, v, v, n, DT_F64, COMM_SUM, "loss over stages"));
}

/* This rank's numbers in their place among all data-parallel ranks', and how many places there are. */
static int64_t part_among(const struct engine *g, int64_t *part)
{
    const struct par *p = &g->cfg.par;
    *part = (int64_t)p->rank[AXIS_DP_REPLICATE] * at_least_1(p->size[AXIS_DP_SHARD]) + p->rank[AXIS_DP_SHARD];
    return (int64_t)at_least_1(p->size[AXIS_DP_REPLICATE]) * at_least_1(p->size[AXIS_DP_SHARD]);
}

/* All ranks' first n numbers of microbatches; xfree them. */
static double *collect(struct engine *g, int64_t n, int64_t here, int64_t parts, int64_t part)
{
    double *all = xcalloc(to_size(n * here * parts), sizeof *all);
    const double *mine = g->told.p ? told(g, &g->stat) : NULL;
    for (int64_t i = 0; mine && i < here; i++)
        memcpy(all + n * (here * part + i), mine + i * (int64_t)width(g), to_size(n) * sizeof *all);
    over_ranks(g, all, n * here * parts);
    return all;
}

struct tally tally_loss(struct engine *g)
{
    int64_t n = sums(g), here = (int64_t)(g->stat.bytes / (width(g) * sizeof(double))), parts = 1, part = 0;
    if (apart(g)) parts = part_among(g, &part);
    double *all = collect(g, n, here, parts, part);
    struct tally sum = {0};
    for (int64_t i = 0; i < here * parts; i++) {
        sum.nats += all[n * i];
        sum.tokens += all[n * i + 1];
        if (model_tells(&g->cfg.model)) sum.right += all[n * i + 2];
        for (int k = 0; k < g->cfg.model.mtp.depth; k++) {
            sum.ahead[k].nats += all[n * i + 2 + 2 * k];
            sum.ahead[k].tokens += all[n * i + 3 + 2 * k];
        }
    }
    xfree(all);
    return sum;
}

void tally_sequences(struct engine *g, double *nats)
{
    int64_t n = (int64_t)width(g), here = g->cfg.n_microbatches, part, parts = part_among(g, &part);
    CHECK(g->cfg.by_sequence && g->cfg.micro == 1, "losses of sequences are not kept apart");
    double *all = collect(g, n, here, parts, part);
    for (int64_t i = 0; i < here * parts; i++) nats[i] = all[n * i];
    xfree(all);
}

void tally_tokens(struct engine *g, double *nats)
{
    int64_t part, parts = part_among(g, &part), seq = g->cfg.seq, rows = engine_seq_here(g), micro = g->cfg.micro,
                  here = g->cfg.n_microbatches;
    CHECK(g->cfg.model.by_token, "losses of tokens are not kept apart");
    memset(nats, 0, to_size(parts * here * micro * seq) * sizeof *nats);
    const double *stat = g->told.p ? told(g, &g->stat) : NULL;
    double *mine = nats + part * here * micro * seq;
    for (int64_t s = 0; stat && s < here * micro; s++) {
        const double *of = stat + s / micro * (int64_t)width(g) + 2 + s % micro * rows;
        for (int64_t i = 0; i < rows; i++) mine[s * seq + feed_token(g, s, i)] = of[i];
    }
    over_ranks(g, nats, parts * here * micro * seq);
}

/* They come on the stream of copies, while updates go on. */
static void know_words(struct engine *g)
{
    if (g->knows_words) return;
    event_wait(g->feeding, g->decided);
    fetch_decided(g, g->feeding);
    stream_sync(g->feeding);
    g->knows_words = true;
}

double tally_norm(const struct engine *g) { return g->told.p ? ((double *)told(g, &g->words))[WORD_NORM] : 0; }

bool tally_goes(struct engine *g)
{
    know_words(g);
    return !g->told.p || ((double *)told(g, &g->words))[WORD_GOES] != 0;
}

void tally_zero(struct engine *g)
{
    device_zero(g->stream, &g->stat, 0, g->stat.bytes);
    device_zero(g->stream, &g->norm, 0, g->norm.bytes);
    if (g->balance.bytes) device_zero(g->stream, &g->balance, 0, g->balance.bytes);
}
