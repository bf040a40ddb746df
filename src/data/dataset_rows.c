/* SPDX-License-Identifier: Apache-2.0 */
/* dataset_rows.c: samples as rows of a batch: tokens and their targets, where documents are, pictures. */
#include <string.h>

#include "base/mem.h"
#include "data/dataset_impl.h"
#include "data/prompt_cut.h"

/* What tokens of a file and their masks are read into. */
struct row_work {
    struct fim_work *fim; /* NULL: nothing of it is done */
    int64_t order;        /* of the part, for it; of the sample, where tokens are hidden */
    int32_t *ids;         /* [seq_len + 1] */
    unsigned char *mask;  /* [seq_len + 1] */
};

struct row_work *row_work_new(const struct dataset *d, bool trains)
{
    struct row_work *w = xmalloc(sizeof *w);
    *w = (struct row_work){.ids = xmalloc(to_size(d->seq_len + 1) * sizeof *w->ids),
                           .mask = xmalloc(to_size(d->seq_len + 1))};
    if (trains && d->fim.rate > 0) w->fim = fim_work_new(&d->fim);
    return w;
}

void row_work_free(struct row_work *w)
{
    fim_work_free(w->fim);
    xfree(w->ids);
    xfree(w->mask);
    xfree(w);
}

static int read_tokens(const struct tokenfile *f, int64_t at, int64_t n, struct row_work *w, struct err *e)
{
    int code = tokenfile_read(f, at, n, w->ids, e);
    return code ? code : tokenfile_mask(f, at, n, w->mask, e);
}

/* Fill-in-the-middle of the first n tokens read; what has a loss mask was arranged on purpose, and stays. */
static int rearrange(const struct tokenfile *f, int64_t document, int64_t n, struct row_work *w, struct err *e)
{
    return w->fim && !tokenfile_masked(f) ? fim_apply(w->fim, w->order, document, w->ids, n, e) : OK;
}

/* Where a row is filled on. */
struct place {
    int64_t row, at; /* at: tokens of the row that are there */
    int32_t document;
    int64_t pictures; /* of the row that are there */
};

/* Pictures of texts: none yet. */
static void no_pictures(const struct dataset *d, struct batch *b, int64_t row)
{
    if (!d->pictures.patches) return;
    memset(b->pixels + row * b->n_pixels, 0, to_size(b->n_pixels) * sizeof *b->pixels);
    for (int64_t i = 0; i < b->seq_len; i++) b->patches[row * b->seq_len + i] = -1;
}

/* Those of a document, whose n inputs are at `at` in the batch: tokens of pictures are rows of them, in order. */
static int fill_pictures(const struct dataset *d, const struct sample_stream *s, struct batch *b, struct place *to,
                         int64_t at, int64_t n, int64_t document, int64_t order, struct err *e)
{
    const struct text_pictures_rule *p = &d->pictures;
    int64_t tokens = 0, each = image_rule_pixels(&d->images);
    for (int64_t i = at; i < at + n; i++) {
        if (b->tokens[i] != p->token) continue;
        b->patches[i] = (int32_t)((to->pictures + tokens / p->patches) * p->places + p->lead + tokens % p->patches);
        tokens++;
    }
    int64_t pictures = tokens / p->patches;
    if (tokens % p->patches || to->pictures + pictures > p->most)
        return err_set(e, ERR_CORRUPT,
                       "%s: document %lld: %lld tokens of pictures, with those before it more than %lld pictures, or a "
                       "part of one",
                       s->file.path, (long long)document, (long long)tokens, (long long)p->most);
    int code = text_pictures_fill(&s->file, document, pictures, s->image, &d->images, d->seed, (uint64_t)order,
                                  b->pixels + to->row * b->n_pixels + to->pictures * each, e);
    to->pictures += pictures;
    return code;
}

/* One of those that stand around a text. */
static bool stands_around(const struct dataset *d, int32_t id)
{
    bool around = id == d->eos;
    for (int64_t i = 0; i < d->lead.n; i++) around |= id == d->lead.ids[i];
    return around;
}

/* The target of place i of what was read, which is place `at` of the batch: the next token, or what may be hidden. */
static void aim(const struct dataset *d, struct batch *b, int64_t at, bool trained, const struct row_work *w, int64_t i)
{
    bool hides = d->mlm.rate > 0;
    if (hides) trained = !stands_around(d, w->ids[i]) && w->mask[i];
    if (d->spans.seq) trained = hides = true; /* what is there: taken_spans.h */
    b->targets[at] = !trained ? -1 : w->ids[hides ? i : i + 1];
    b->segments[at] = 0;
    b->n_trained += !hides && trained;
}

/* n places of a row from n + 1 tokens: documents end with the end-of-text id, and the last of a part with it. */
static void fill_joined(const struct dataset *d, struct batch *b, struct place *p, int64_t n, const struct row_work *w)
{
    int64_t at = p->row * b->seq_len + p->at;
    int32_t document = p->document, position = 0;
    memcpy(b->tokens + at, w->ids, to_size(n) * sizeof *w->ids);
    for (int64_t i = 0; i < n; i++) {
        bool ends = w->ids[i] == d->eos;
        bool trained = !(ends && d->mask_boundaries) && w->mask[i + 1];
        aim(d, b, at + i, trained, w, i);
        b->positions[at + i] = d->reset_positions ? position : (int32_t)(p->at + i);
        b->documents[at + i] = document;
        position = ends ? 0 : position + 1;
        document += ends;
    }
    p->at += n;
    p->document = document + (w->ids[n - 1] != d->eos);
}

static void aim_score(struct batch *b, int64_t at, bool last)
{
    b->targets[at] = last ? 0 : -1;
    b->segments[at] = 0;
    b->n_trained += last;
}

/* One side of a pair: document i of a file, whole. */
static int fill_side(const struct dataset *d, const struct tokenfile *f, int64_t i, struct batch *b, struct place *to,
                     struct row_work *w, struct err *e)
{
    int64_t ends[2] = {0}, at = to->row * b->seq_len;
    int code = i ? tokenfile_ends(f, i - 1, 2, ends, e) : tokenfile_ends(f, 0, 1, &ends[1], e);
    int64_t n = ends[1] - ends[0] - 1;
    if (!code) code = read_tokens(f, ends[0], n + 1, w, e);
    if (code) return code;
    bool own = d->scores && !d->end_unread && w->mask[n]; /* the end of text is the answer's, and read */
    n += own;
    memcpy(b->tokens + at, w->ids, to_size(n) * sizeof *w->ids);
    for (int64_t k = 0; k < n; k++) {
        if (!d->scores) aim(d, b, at + k, w->mask[k + 1], w, k);
        else aim_score(b, at + k, k == n - 1);
        b->positions[at + k] = (int32_t)k;
        b->documents[at + k] = 0;
    }
    to->at = n;
    to->document = 1;
    return OK;
}

/* One side of a pair of a source. */
static int fill_pair(const struct dataset *d, int source, int64_t document, bool rejected, struct batch *b,
                     struct place *to, struct row_work *w, struct err *e)
{
    const struct sample_stream *s = &d->streams[source];
    return fill_side(d, rejected ? &s->rejected : &s->file, document, b, to, w, e);
}

/* Both texts of record i. */
static int fill_sides(const struct dataset *d, int source, int64_t i, struct batch *b, int64_t row, struct err *e)
{
    const struct sample_stream *s = &d->streams[source];
    int64_t at = row * b->seq_len, read = 0;
    int64_t n = sides_fill(&s->file, &s->written, &d->sides, i, b->seq_len, b->tokens + at, b->targets + at,
                           b->positions + at, e);
    if (n < 0) return (int)n;
    for (int64_t k = 0; k < b->seq_len; k++) {
        b->documents[at + k] = b->segments[at + k] = 0;
        read += k < d->sides.encoder && b->positions[at + k] >= 0;
    }
    b->n_trained += n;
    b->n_padded += b->seq_len - read - n;
    return OK;
}

/* What is left of a row: places each a document of its own, so that attention has one pair for it. */
static void pad_row(const struct dataset *d, struct batch *b, const struct place *p)
{
    int32_t document = p->document;
    for (int64_t i = p->at, at = p->row * b->seq_len; i < b->seq_len; i++) {
        b->tokens[at + i] = d->eos >= 0 ? d->eos : 0;
        b->targets[at + i] = -1;
        b->positions[at + i] = 0;
        b->documents[at + i] = document++;
        b->segments[at + i] = 0;
    }
    b->n_padded += b->seq_len - p->at;
}

/* A document of a class, or a piece of it, is a row. */
static void fill_told(const struct dataset *d, const struct sample_stream *s, struct batch *b, struct place *to,
                      int64_t document, int64_t n, const struct row_work *w)
{
    int64_t at = to->row * b->seq_len, m = 0, leads = d->begin >= 0 && !(n && w->ids[0] == d->begin),
            room = b->seq_len - leads;
    bool ends = n < room; /* else there is no place for an end */
    int32_t segment = 0;
    if (leads) b->tokens[at + m++] = d->begin;
    memcpy(b->tokens + at + m, w->ids, to_size(n < room ? n : room) * sizeof *w->ids);
    m += n < room ? n : room;
    if (ends) b->tokens[at + m++] = d->eos;
    for (int64_t i = 0; i < m; i++) {
        b->targets[at + i] = i ? -1 : s->labels[document];
        b->positions[at + i] = (int32_t)i;
        b->documents[at + i] = 0;
        b->segments[at + i] = segment;
        if (b->tokens[at + i] == d->eos) segment = 1;
    }
    b->n_trained += b->targets[at] >= 0;
    to->at = m;
    to->document = 1;
}

static int fill_packed(const struct dataset *d, const struct sample_stream *s, struct batch *b, struct place *to,
                       const struct cuts_pieces *p, struct row_work *w, struct err *e)
{
    const struct tokenfile *f = &s->file;
    for (int64_t k = 0; k < p->n; to->at += p->p[k++].n, to->document++) {
        int64_t n = p->p[k].n, at = to->row * b->seq_len + to->at;
        int code = read_tokens(f, p->p[k].begin, n + 1, w, e);
        if (!code) code = rearrange(f, k, n + 1, w, e);
        if (code) return code;
        if (d->classes) {
            fill_told(d, s, b, to, p->p[k].document, n, w);
            return OK;
        }
        memcpy(b->tokens + at, w->ids, to_size(n) * sizeof *w->ids);
        for (int64_t i = 0; i < n; i++) {
            aim(d, b, at + i, w->mask[i + 1], w, i);
            b->positions[at + i] = (int32_t)i;
            b->documents[at + i] = to->document;
        }
        if (d->pictures.patches) code = fill_pictures(d, s, b, to, at, n, p->p[k].document, w->order, e);
        if (code) return code;
    }
    return OK;
}

/* Sample i of a source is a part of a row. */
static int fill_part(const struct dataset *d, int source, int64_t i, const uint64_t *shuffle, struct batch *b,
                     struct place *to, struct row_work *w, struct err *e)
{
    const struct sample_stream *s = &d->streams[source];
    struct cuts_pieces p = {0};
    int code = cuts_pieces(&s->cuts, i, shuffle, &p, e);
    if (!code && d->joined) code = read_tokens(&s->file, p.p[0].begin, p.p[0].n + 1, w, e);
    if (!code && d->joined) code = rearrange(&s->file, 0, p.p[0].n + 1, w, e);
    if (!code && d->joined) fill_joined(d, b, to, p.p[0].n, w);
    else if (!code) code = fill_packed(d, s, b, to, &p, w, e);
    xfree(p.p);
    return code;
}

/* Tokens of a row that is filled; what was read is wanted no more. */
static void hide(const struct dataset *d, struct batch *b, int64_t row, uint64_t seed, int64_t sample,
                 struct row_work *w)
{
    int64_t at = row * b->seq_len;
    if (d->mlm.rate > 0) b->n_trained += mlm_apply(&d->mlm, seed, sample, b->tokens + at, b->targets + at, b->seq_len);
    if (d->prefix_rate > 0)
        b->n_trained -= prompt_cut(d->prefix_rate, seed, sample, b->documents + at, b->targets + at, b->seq_len);
    if (!d->spans.seq) return;
    int64_t written = spans_apply(&d->spans, seed, sample, b->tokens + at, b->targets + at, w->ids);
    b->n_trained += written;
    if (written) b->n_padded += spans_padding(&d->spans); /* else the row is empty, and counted */
}

void row_blank(struct batch *b, int64_t row)
{
    int64_t s = b->seq_len, at = row * s;
    for (int64_t i = 0; i < s; i++) {
        b->tokens[at + i] = 0;
        b->targets[at + i] = -1;
        b->positions[at + i] = (int32_t)i;
        b->documents[at + i] = 0;
        b->segments[at + i] = 0;
    }
    if (!b->n_pixels) return;
    for (int64_t i = 0; i < s; i++) b->patches[at + i] = -1;
    memset(b->pixels + row * b->n_pixels, 0, to_size(b->n_pixels) * sizeof *b->pixels);
    b->label[row] = -1;
}

/* Sample i of a source of pictures. What is of texts says nothing. */
static int fill_image(const struct dataset *d, int source, int64_t i, int64_t order, struct batch *b, int64_t row,
                      struct err *e)
{
    row_blank(b, row);
    int code = image_fill(d->streams[source].images, &d->images, i, d->seed, (uint64_t)order,
                          b->pixels + row * d->n_pixels, &b->label[row], e);
    b->n_trained += !code;
    return code;
}

/* A row is filled as far as there is something. */
static void end_row(const struct dataset *d, struct batch *b, const struct place *to, uint64_t seed, int64_t sample,
                    struct row_work *w)
{
    pad_row(d, b, to);
    hide(d, b, to->row, seed, sample, w);
}

/* The parts of sample k. */
static int fill_parts(const struct dataset *d, int64_t k, struct batch *b, struct place *to, struct row_work *w,
                      struct err *e)
{
    int code = OK;
    for (int64_t j = 0; j < d->parts && !code; j++) {
        int source;
        int64_t epoch, sample;
        uint64_t shuffle;
        w->order = dataset_part(d, k, j);
        dataset_where(d, w->order, &source, &epoch, &sample);
        if (sample >= 0) code = fill_part(d, source, sample, dataset_shuffle(d, source, epoch, &shuffle), b, to, w, e);
    }
    return code;
}

int row_of_order(const struct dataset *d, int64_t k, struct batch *b, int64_t row, struct row_work *w, struct err *e)
{
    struct place to = {.row = row};
    int source = 0;
    int64_t epoch, record = 0;
    if (d->sees || d->sides.encoder || d->pairs) dataset_where(d, k, &source, &epoch, &record);
    if (d->sees) return fill_image(d, source, record, k, b, row, e);
    if (d->sides.encoder) return fill_sides(d, source, record, b, row, e);
    no_pictures(d, b, row);
    int code = d->pairs ? fill_pair(d, source, record, k % 2, b, &to, w, e) : fill_parts(d, k, b, &to, w, e);
    if (!code) end_row(d, b, &to, d->seed, k, w);
    return code;
}

/* Sample k of joined documents, which may be the short one at the end of its source: what lies behind that repeats the
 * last token and is no target. */
static int fill_last(const struct dataset *d, const struct tokenfile *f, int64_t k, struct batch *b, struct place *to,
                     struct row_work *w, struct err *e)
{
    int64_t at = k * d->seq_len, left = f->n_tokens - at, n = left < d->seq_len + 1 ? left : d->seq_len + 1;
    int code = read_tokens(f, at, n, w, e);
    if (code) return code;
    for (int64_t i = n; i <= d->seq_len; i++) {
        w->ids[i] = w->ids[n - 1];
        w->mask[i] = 0;
    }
    fill_joined(d, b, to, d->seq_len, w);
    for (int64_t i = n; d->spans.seq && i < d->seq_len; i++) b->targets[to->row * d->seq_len + i] = -1;
    return OK;
}

int row_of_list(const struct dataset *d, int source, int64_t k, int64_t place, struct batch *b, int64_t row,
                struct row_work *w, struct err *e)
{
    struct place to = {.row = row};
    if (d->sees) return fill_image(d, source, k, k, b, row, e);
    if (d->sides.encoder) return fill_sides(d, source, k, b, row, e);
    no_pictures(d, b, row);
    int code = d->joined  ? fill_last(d, &d->streams[source].file, k, b, &to, w, e)
               : d->pairs ? fill_pair(d, source, k / 2, k % 2, b, &to, w, e)
                          : fill_part(d, source, k, NULL, b, &to, w, e);
    if (!code) end_row(d, b, &to, 0, place, w);
    return code;
}
