/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the rows of all parts one after the other, words that say whose they are and where their pages lie, one
 * program. Cost: every weight once per step, and each sequence's cache. Over ranks two small broadcasts more, what the
 * layers say to each other, the stream from stage to stage, and the logits of tp's parts of the vocabulary to the
 * leader. */
#include "decode/decoding_impl.h"

int decoding_check_ids(const struct decoding *d, const int32_t *ids, int64_t n, struct err *e)
{
    for (int64_t i = 0; i < n; i++)
        if (ids[i] < 0 || ids[i] >= d->model.vocab)
            return err_set(e, ERR_REQUEST, "token %d is not below the model's vocabulary of %lld: another tokenizer?",
                           ids[i], (long long)d->model.vocab);
    return OK;
}

static int check_part(const struct decoding *d, const struct decoding_part *p, struct err *e)
{
    const struct sequence *q = decoding_sequence(d, p->sequence);
    if (p->n < 1) return err_set(e, ERR_REQUEST, "nothing to continue from: give at least one token");
    if (model_pairs(&d->model) && !q->n_read)
        return err_set(e, ERR_REQUEST, "the decoder writes by what the encoder read: give it a text first");
    if (decoding_whole(d, p->sequence) && p->n != q->prompt)
        return err_set(e, ERR_REQUEST,
                       "a prompt of %lld tokens sees itself in both directions (model.attn.prefix) and is fed at once; "
                       "a step has room for %lld",
                       (long long)q->prompt, (long long)d->rows);
    if (q->fed + p->n > d->room)
        return err_set(e, ERR_REQUEST, "%lld tokens do not fit after %lld: there is room for %lld positions",
                       (long long)p->n, (long long)q->fed, (long long)d->room);
    return decoding_check_ids(d, p->ids, p->n, e);
}

/* What lies in d->host, on every rank: rows from the stage before, this one's layers, rows for the stage after. */
static int run(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    struct program *program;
    int rc = decoding_program_of_all(d, c->rows, c->wanted, &program, e);
    if (rc) return rc;
    struct comm *pp = d->collectives.axis[AXIS_PP];
    int64_t stream = decoding_filled(c->rows) * d->model.hidden; /* rows that fill up, too: as one rank has them */
    struct step_info info = {0};
    device_from_host(d->stream, &d->data, 0, d->host, d->data.bytes);
    if (!d->part.embeds)
        comm_wait(pp, comm_recv(pp, d->stage_in.p, stream, d->dtype, comm_rank(pp) + 1, COMM_AT("rows")));
    program_run(program, PHASE_F,
                &(struct program_args){.stream = d->stream,
                                       .step = &info,
                                       .slot = d->slot,
                                       .scratch = d->scratch.p,
                                       .ranks = par_run_carrier(&d->collectives)});
    if (!d->part.heads)
        comm_wait(pp, comm_send(pp, d->stage_out.p, stream, d->dtype, comm_rank(pp) - 1, COMM_AT("rows")));
    else decoding_logits_bring(d, c->wanted);
    stream_sync(d->stream);
    return d->ranks ? comm_status(d->ranks->ranks.model, e) : OK;
}

static struct decoding_call call_of(const struct decoding *d, const struct decoding_part *part, int n_parts)
{
    struct decoding_call c = {DECODING_STEP, .n_parts = n_parts};
    for (int i = 0; i < n_parts; i++) {
        const struct sequence *q = &d->seq[part[i].sequence];
        c.rows += part[i].n;
        c.wanted += part[i].wanted < part[i].n ? part[i].wanted : part[i].n;
        if (q->text.n > c.longest) c.longest = q->text.n;
        if (q->read.n > c.reads) c.reads = q->read.n;
    }
    return c;
}

/* Pages beyond what the sequences have are nobody's again. */
static void give_back(struct decoding *d, const struct decoding_part *part, int n_parts)
{
    for (int i = 0; i < n_parts; i++) decoding_cut(d, part[i].sequence, d->seq[part[i].sequence].fed);
}

int decoding_feed(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                  struct err *e)
{
    int64_t rows = 0;
    int rc = OK;
    for (int i = 0; i < n_parts; i++) rows += part[i].n;
    CHECK(rows <= d->rows && n_parts > 0 && n_parts <= d->cache.sequences, "%lld rows of %d sequences", (long long)rows,
          n_parts);
    for (int i = 0; i < n_parts; i++)
        if ((rc = decoding_make_room(d, &d->seq[part[i].sequence], part[i].n, e))) {
            give_back(d, part, i + 1);
            return rc;
        }
    decoding_lay_words(d, part, n_parts);
    if (d->pictures.rows) decoding_lay_patches(d, part, n_parts);
    struct decoding_call c = call_of(d, part, n_parts);
    if (d->ranks) rc = decoding_tell_step(d, &c, e);
    if (!rc) rc = run(d, &c, e);
    if (rc && d->ranks) d->open = false; /* the others have left */
    if (rc) give_back(d, part, n_parts);
    for (int i = 0; !rc && i < n_parts; i++) decoding_went_on(d, &part[i]);
    *logits_RV = d->host_logits;
    return rc;
}

int decoding_step(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                  struct err *e)
{
    if (!d->open) return err_set(e, ERR_LOST, "the ranks that have the model have stopped");
    int rc = OK;
    for (int i = 0; !rc && i < n_parts; i++) rc = check_part(d, &part[i], e);
    for (int i = 0; !rc && i < n_parts; i++) rc = decoding_turn(d, &part[i], e);
    return rc ? rc : decoding_feed(d, part, n_parts, logits_RV, e);
}

/* ---- the others ---- */

static int follow_step(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    int rc = decoding_hear_step(d, c, e);
    return rc ? rc : run(d, c, e);
}

int decoding_follow(struct decoding *d, struct err *e)
{
    int rc = OK;
    while (!rc && d->ranks) {
        struct decoding_call c;
        rc = decoding_tell(d->ranks, &c, e);
        if (rc || c.order == DECODING_END) break;
        if (c.order == DECODING_COPY) decoding_copy_page(d, c.from, c.to);
        else if (c.order == DECODING_COPY_KEPT) decoding_copy_kept(d, c.from, c.to);
        else if (c.order == DECODING_READ) rc = decoding_follow_read(d, &c, e);
        else rc = follow_step(d, &c, e);
    }
    return rc;
}
