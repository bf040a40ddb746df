/* SPDX-License-Identifier: Apache-2.0 */
/* A decoding, made and inspected: which model its files have, which part of it this rank has, its weights, and the
 * memory of its steps. What it then does is in the files that decoding_impl.h names. */
#include <string.h>

#include "base/mem.h"
#include "config/start_weights.h"
#include "decode/decoding_impl.h"
#include "state/packed.h"

enum { ROWS_DEFAULT = 128, PAIR_ROOM = 1024 };

int decoding_grow(struct decoding *d, struct buffer *b, enum mem_cat cat, size_t bytes, struct err *e)
{
    if (b->bytes >= bytes) return OK;
    stream_sync(d->stream);
    buffer_free(b);
    return buffer_new(b, d->dev, cat, bytes, e);
}

void *decoding_place(const struct buffer *b, size_t at) { return b->p ? (char *)b->p + at : NULL; }

/* ---- create ---- */

static void size_step(struct decoding *d, const struct decoding_options *o)
{
    bool pairs = model_pairs(&d->model);
    int64_t most = pairs ? PAIR_ROOM : d->model.max_positions;
    d->room = o->positions > 0 && (pairs || o->positions < most) ? o->positions : most;
    d->rows = o->rows ? o->rows : ROWS_DEFAULT;
    int64_t largest = 1 << (SIZES - 1), whole = d->room < largest ? d->room : largest;
    if (model_prefixes(&d->model) && d->rows < whole) d->rows = whole; /* a prompt is fed at once */
    d->room_rows = decoding_filled(d->rows);
    CHECK(d->rows > 0 && d->rows <= largest, "%lld rows of a step", (long long)d->rows);
}

static void bind_param(struct decoding *d, int i)
{
    if (!d->params.p[i].packed) {
        d->slot[slot_param(i)] = store_param_ptr(&d->store, i);
        return;
    }
    void *place[PACKED_ARRAYS];
    packed_places(&d->store, i, place);
    d->slot[slot_param(i)] = place[PACKED_CODES];
    d->slot[slot_grad(i)] = place[PACKED_SCALES];
    d->slot[slot_groups(d->params.n, to_int(d->model.layers), i)] = place[PACKED_GROUPS];
}

static int allocate_rope(struct decoding *d, struct err *e)
{
    int64_t n = model_rope_rows(&d->model) * model_rope_cols(&d->model);
    int rc = n ? buffer_new(&d->rope, d->dev, MEM_DATA, to_size(n) * sizeof(float), e) : OK;
    if (rc || !n) return rc;
    float *table = xmalloc(d->rope.bytes);
    model_rope_table(&d->model, table);
    device_from_host(d->stream, &d->rope, 0, table, d->rope.bytes);
    stream_sync(d->stream);
    xfree(table);
    return OK;
}

static int allocate(struct decoding *d, struct err *e)
{
    const struct model_config *m = &d->model;
    size_t stream = to_size(d->room_rows * m->hidden) * dtype_bytes(d->dtype);
    d->slot = xcalloc(to_size(slot_groups(d->params.n, to_int(m->layers), d->params.n)), sizeof *d->slot);
    int rc = buffer_new(&d->keys, d->dev, MEM_ACTIVATION, decoding_cache_bytes(d), e);
    if (!rc && !d->part.embeds) rc = buffer_new(&d->stage_in, d->dev, MEM_COMM, stream, e);
    if (!rc && !d->part.heads) rc = buffer_new(&d->stage_out, d->dev, MEM_COMM, stream, e);
    if (!rc) rc = decoding_words_new(d, e);
    if (!rc) rc = allocate_rope(d, e);
    if (rc) return rc;
    d->slot[SLOT_ROPE] = d->rope.p;
    d->slot[SLOT_STAGE_IN] = d->stage_in.p;
    d->slot[SLOT_STAGE_OUT] = d->stage_out.p;
    for (int i = 0; i < d->params.n; i++) bind_param(d, i);
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; second < 2; second++)
            d->slot[slot_cache(d->params.n, l) + second] = decoding_place(&d->keys, decoding_table_at(d, l, second));
    decoding_sequences_new(d);
    return OK;
}

/* This rank's place among those that have the model; its groups work on its device and its stream. */
static void join(struct decoding *d)
{
    const struct ranks *r = &d->ranks->ranks;
    d->par = r->par;
    memcpy(d->collectives.axis, r->axis, sizeof d->collectives.axis);
    for (int a = 0; a < AXIS_N; a++) comm_on(r->axis[a], d->dev);
    comm_stream_on(r->world, d->stream);
}

/* The parameters of this rank's stage, where they will lie. */
static int declare(struct decoding *d, const struct decoding_options *o, const struct model_stage *stage, struct err *e)
{
    d->part = stage[d->ranks ? d->ranks->stage : 0];
    kernel_on(d->stream, &d->kernels);
    model_declare(&d->model, &d->par, &d->params);
    if (d->ranks) decoding_ranks_hold(d->ranks, &d->model, stage, &d->params);
    int rc = o->weights != PACKING_NONE ? packed_mark_weights(&d->params, o->weights, e) : OK;
    return rc ? rc : store_new(&d->store, &d->params, d->dev, d->dtype, false, NULL, 0, e);
}

static int build(struct decoding *d, struct weights *w, const struct decoding_options *o, struct err *e)
{
    struct model_stage *stage = xcalloc(d->ranks ? to_size(d->ranks->n_stages) : 1, sizeof *stage);
    stage[0] = (struct model_stage){0, to_int(d->model.layers), true, true};
    int rc = model_check(&d->model, e);
    if (!rc && d->ranks) rc = decoding_ranks_split(d->ranks, &d->model, stage, e);
    if (!rc) rc = stream_new(&d->stream, d->dev, "compute", e);
    if (!rc && d->ranks) join(d);
    if (!rc) size_step(d, o);
    if (!rc) rc = decoding_size_cache(d, o, stage, e);
    if (!rc) rc = kernel_table_of(&d->kernels, d->dev, o->kernels ? o->kernels : "auto", o->threads, e);
    if (!rc) rc = declare(d, o, stage, e);
    xfree(stage);
    if (!rc && w) rc = weights_merge(w, e);
    if (!rc && !w) store_init(&d->store, &d->kernels, d->stream, 1);
    if (!rc && w) rc = source_load(&d->store, &d->kernels, d->stream, w, e);
    if (!rc) rc = allocate(d, e);
    struct program *largest;
    return rc || !o->wanted ? rc : decoding_program(d, d->rows, o->wanted, &largest, e);
}

/* Whether a model writes, or scores where scores are asked for. w NULL: it is the caller's. */
static int check_purpose(const struct model_config *m, const struct weights *w, bool scores, struct err *e)
{
    if (model_both_ways(m) && !model_pairs(m))
        return err_set(e, ERR_REQUEST, "%s: %s and writes no text; give a model that does",
                       w ? weights_path(w) : "model.family",
                       model_sees(m) ? "sees pictures" : "reads texts both ways (bert)");
    if (m->scores && !scores)
        return err_set(e, ERR_REQUEST, "%s: is a reward model, and writes no text; ask it with tutti score",
                       weights_path(w));
    if (!m->scores && scores)
        return err_set(e, ERR_REQUEST,
                       "%s: has no score (score.weight): it is no reward model; train one of it with train.objective: "
                       "reward",
                       weights_path(w));
    return OK;
}

/* As it is decoded: a token at a time, with no dropout. */
static void take_model(struct decoding *d, const struct hf_model *h, bool in_training)
{
    d->model = h->model;
    d->model.dropout = 0;
    d->model.by_length = !in_training; /* a model in training: as it trains */
    d->model.mtp.depth = 0;            /* a token at a time: what would guess further ones is not read */
    if (model_looks(&d->model)) d->model.seq_len = d->model.max_positions; /* a text may have as many pictures as fit */
    if (model_looks(&d->model)) d->model.vision.images = 1;
    d->n_eos = h->n_eos;
    d->start = (int32_t)h->start;
    memcpy(d->eos, h->eos, sizeof d->eos);
}

int decoding_new(struct decoding **out, struct weights *w, struct device *dev, const struct decoding_options *o,
                 struct err *e)
{
    struct hf_model h = {0};
    *out = NULL;
    int rc = OK;
    if (o->model) h = (struct hf_model){.model = *o->model};
    else rc = weights_model(w, &h, e);
    if (!rc) rc = check_purpose(&h.model, w, o->scores, e);
    bool several = o->ranks && o->ranks->ranks.world;
    if (several) rc = comm_agree(o->ranks->ranks.world, rc, e);
    if (rc) return rc;
    struct decoding *d = xcalloc(1, sizeof *d);
    d->dev = dev;
    d->ranks = several && o->ranks->ranks.model ? o->ranks : NULL;
    d->par = par_single();
    take_model(d, &h, o->model != NULL);
    d->dtype = o->dtype == DT_N ? DT_BF16 : o->dtype;
    d->reuse = !o->reuse_not &&
               !model_prefixes(&d->model) && /* keys of a prompt are of all of it, and so is a state: no page */
               !model_scans(&d->model) &&    /* holds what another text with the same first tokens has */
               !model_pairs(&d->model);      /* keys hang on what was read, too */
    rc = build(d, w, o, e);
    if (several) rc = comm_agree(o->ranks->ranks.world, rc, e);
    d->open = !rc;
    if (rc) decoding_free(d);
    else *out = d;
    return rc;
}

void decoding_free(struct decoding *d)
{
    if (!d) return;
    if (d->ranks && d->ranks->leads && d->open)
        (void)decoding_tell(d->ranks, &(struct decoding_call){.order = DECODING_END}, NULL);
    if (d->ranks && d->stream) comm_stream_off(d->ranks->ranks.world, d->stream);
    decoding_programs_free(d);
    decoding_sequences_free(d);
    buffer_free(&d->keys);
    buffer_free(&d->rope);
    buffer_free(&d->scratch);
    buffer_free(&d->stage_in);
    buffer_free(&d->stage_out);
    decoding_words_free(d);
    decoding_logits_free(d);
    decoding_pictures_fini(d);
    decoding_reading_fini(d);
    store_free(&d->store);
    param_table_free(&d->params);
    xfree(d->slot);
    stream_free(d->stream);
    xfree(d);
}

/* ---- inspect ---- */

const struct store *decoding_store(const struct decoding *d) { return &d->store; }
const struct model_config *decoding_model(const struct decoding *d) { return &d->model; }
int64_t decoding_room(const struct decoding *d) { return d->room; }
int64_t decoding_rows(const struct decoding *d) { return d->rows; }
int64_t decoding_sequences(const struct decoding *d) { return d->cache.sequences; }

double decoding_weight_bytes(const struct decoding *d)
{
    double bytes = 0;
    for (int i = 0; i < d->params.n; i++) {
        const struct param *p = &d->params.p[i];
        bool looked_up =
            !strncmp(p->name, "embed.", 6) && !(d->model.tie_embeddings && !strcmp(p->name, "embed.token"));
        if (looked_up) continue;
        bytes +=
            p->packed ? (double)packed_bytes(d->params.packing, p) : (double)p->numel * (double)dtype_bytes(d->dtype);
    }
    return bytes;
}

void decoding_held_bytes(const struct decoding *d, size_t *coded, size_t *whole)
{
    *coded = 0;
    *whole = d->store.array[STORE_PARAM].buf.bytes;
    for (int i = 0; store_packs(&d->store) && i < PACKED_ARRAYS; i++)
        if (d->store.packed + i < d->store.n_arrays) *coded += d->store.array[d->store.packed + i].buf.bytes;
}

bool decoding_is_end(const struct decoding *d, const struct tokenizer *t, int64_t id)
{
    for (int i = 0; i < d->n_eos; i++)
        if (d->eos[i] == id) return true;
    return t && id == tokenizer_eos(t);
}

int decoding_n_ends(const struct decoding *d) { return d->n_eos + 1; }
