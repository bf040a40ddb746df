/* SPDX-License-Identifier: Apache-2.0 */
/* What an encoder reads before its decoder writes: one pass over the whole text, whose length the program is recorded
 * for and kept until another length comes; keys and values of every layer of the decoder, made side by side, then go to
 * the pages that the sequence has for them. Recording costs little beside the pass, and nothing is padded. */
#include <string.h>

#include "base/mem.h"
#include "kernel/cache_runs.h"
#include "decode/decoding_impl.h"

bool decoding_reads(const struct decoding *d) { return model_pairs(&d->model); }
int32_t decoding_start(const struct decoding *d) { return d->start; }

void decoding_unread(struct decoding *d, struct sequence *q)
{
    decoding_pages_return(d, &q->read, 0);
    q->n_read = 0;
}

static void forget_program(struct reading *r)
{
    program_free(r->program);
    tape_free(r->tape);
    r->program = NULL;
    r->tape = NULL;
    r->n = 0;
}

void decoding_reading_fini(struct decoding *d)
{
    struct reading *r = &d->reading;
    forget_program(r);
    buffer_free(&r->ids);
    buffer_free(&r->act);
    buffer_free(&r->made);
}

/* Keys, or values, that the program makes for one layer. */
static size_t made_bytes(const struct decoding *d, int64_t n)
{
    return (to_size(n * model_cache_cols(&d->model, &d->par)) * dtype_bytes(d->dtype) + 63) / 64 * 64;
}

static int program_for(struct decoding *d, int64_t n, struct err *e)
{
    struct reading *r = &d->reading;
    const struct model_config *m = &d->model;
    if (r->program && r->n == n) return OK;
    forget_program(r);
    r->tape = tape_new();
    model_record_reading(r->tape, m, &d->params, &d->par, d->dtype, n);
    int rc =
        tape_lower(&r->program, r->tape, &d->kernels, (struct lower_options){.collective_scratch = par_run_scratch}, e);
    if (rc) {
        forget_program(r);
        return rc;
    }
    r->n = n;
    rc = decoding_grow(d, &r->ids, MEM_DATA, to_size(n) * sizeof(int32_t), e);
    if (!rc) rc = decoding_grow(d, &r->act, MEM_ACTIVATION, r->program->bytes[HOME_ACT], e);
    if (!rc) rc = decoding_grow(d, &d->scratch, MEM_SCRATCH, r->program->bytes[HOME_SCRATCH], e);
    size_t made = 2 * to_size(m->layers - m->encoder_layers) * made_bytes(d, n);
    if (!rc) rc = decoding_grow(d, &r->made, MEM_ACTIVATION, made, e);
    if (rc) r->n = 0;
    return rc;
}

/* What was made, into the pages. */
static void keep(struct decoding *d, const int32_t *pages)
{
    struct reading *r = &d->reading;
    const struct model_config *m = &d->model;
    size_t row = to_size(model_cache_cols(m, &d->par)) * dtype_bytes(d->dtype), each = made_bytes(d, r->n);
    for (int64_t l = m->encoder_layers; l < m->layers; l++)
        for (int second = 0; second < 2; second++)
            for (int64_t at = 0; at < r->n; at += CACHE_PAGE) {
                int64_t rows = r->n - at < CACHE_PAGE ? r->n - at : CACHE_PAGE;
                size_t to = decoding_table_at(d, l, second) + to_size(pages[at / CACHE_PAGE] * CACHE_PAGE) * row;
                size_t from = to_size(2 * (l - m->encoder_layers) + second) * each + to_size(at) * row;
                device_copy(d->stream, &d->keys, to, &r->made, from, to_size(rows) * row);
            }
}

/* On every rank. */
static int read_here(struct decoding *d, const int32_t *ids, int64_t n, const int32_t *pages, struct err *e)
{
    struct reading *r = &d->reading;
    const struct model_config *m = &d->model;
    int n_slots = slot_groups(d->params.n, to_int(m->layers), d->params.n), rc = program_for(d, n, e);
    if (d->ranks) rc = comm_agree(d->ranks->ranks.model, rc, e);
    if (rc) return rc;
    void **slot = xcalloc(to_size(n_slots), sizeof *slot);
    struct step_info info = {0};
    memcpy(slot, d->slot, to_size(n_slots) * sizeof *slot);
    slot[SLOT_TOKENS] = r->ids.p;
    for (int64_t l = m->encoder_layers; l < m->layers; l++)
        for (int second = 0; second < 2; second++) {
            size_t at = to_size(2 * (l - m->encoder_layers) + second) * made_bytes(d, n);
            slot[slot_cache(d->params.n, to_int(l)) + second] = decoding_place(&r->made, at);
        }
    device_from_host(d->stream, &r->ids, 0, ids, to_size(n) * sizeof *ids);
    program_run(r->program, PHASE_F,
                &(struct program_args){.stream = d->stream,
                                       .step = &info,
                                       .slot = slot,
                                       .act = r->act.p,
                                       .scratch = d->scratch.p,
                                       .ranks = par_run_carrier(&d->collectives)});
    keep(d, pages);
    stream_sync(d->stream);
    xfree(slot);
    return d->ranks ? comm_status(d->ranks->ranks.model, e) : OK;
}

static int check(const struct decoding *d, const int32_t *ids, int64_t n, struct err *e)
{
    if (n < 1) return err_set(e, ERR_REQUEST, "nothing to read: give at least one token");
    if (n > d->room)
        return err_set(e, ERR_REQUEST,
                       "the text to be read is %lld tokens long, and there is room for %lld positions; shorten it",
                       (long long)n, (long long)d->room);
    return decoding_check_ids(d, ids, n, e);
}

/* Its pages, then the pass, told to everybody. */
static int read_text(struct decoding *d, struct sequence *q, const int32_t *ids, int64_t n, struct err *e)
{
    int64_t pages = decoding_pages_for(d, n);
    int rc = decoding_pages_take(d, &q->read, pages, e);
    if (rc) {
        decoding_unread(d, q);
        return rc;
    }
    if (d->ranks) {
        struct decoding_call c = {.order = DECODING_READ, .rows = n, .longest = pages};
        rc = decoding_tell(d->ranks, &c, e);
        memcpy(d->packed, ids, to_size(n) * sizeof *ids);
        memcpy(d->packed + n, q->read.page, to_size(pages) * sizeof *ids);
        if (!rc) rc = decoding_tell_words(d->ranks, d->packed, decoding_call_words(&c), e);
    }
    if (!rc) rc = read_here(d, ids, n, q->read.page, e);
    if (rc && d->ranks) d->open = false; /* the others have left */
    if (rc) decoding_unread(d, q);
    else q->n_read = n;
    return rc;
}

int decoding_read(struct decoding *d, int s, const struct tokenizer *t, const int32_t *ids, int64_t n, struct err *e)
{
    struct sequence *q = &d->seq[s];
    CHECK(decoding_reads(d), "a model without an encoder reads nothing");
    CHECK(s >= 0 && s < d->cache.sequences && q->open && !q->fed, "sequence %d has tokens, or is not open", s);
    if (!d->open) return err_set(e, ERR_LOST, "the ranks that have the model have stopped");
    int32_t end = t ? tokenizer_eos(t) : -1;
    bool ends = end < 0 || (n > 0 && ids[n - 1] == end);
    int64_t whole = ends ? n : n + 1;
    int32_t *text = xmalloc(to_size(whole + 1) * sizeof *text);
    if (n) memcpy(text, ids, to_size(n) * sizeof *text);
    if (!ends) text[n] = end;
    decoding_unread(d, q);
    int rc = check(d, text, whole, e);
    if (!rc) rc = read_text(d, q, text, whole, e);
    xfree(text);
    return rc;
}

int decoding_follow_read(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    int rc = decoding_tell_words(d->ranks, d->packed, decoding_call_words(c), e);
    return rc ? rc : read_here(d, d->packed, c->rows, d->packed + c->rows, e);
}
