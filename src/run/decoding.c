/* SPDX-License-Identifier: Apache-2.0 */
/* A step: the rows of all parts one after the other, a table of whose they are and where their pages lie, one program.
 * Cost: every weight once per step, and each sequence's cache. Over ranks two small broadcasts more, what the layers
 * say to each other, the stream from stage to stage, and the logits of tp's parts of the vocabulary to the leader. */
#include "run/decoding_impl.h"

#include <string.h>

#include "base/mem.h"
#include "config/start_weights.h"
#include "kernel/cache_runs.h"
#include "state/packed.h"

enum { ROWS_DEFAULT = 128, PAIR_ROOM = 1024 };

static int size_up(int64_t n) /* the power of 2 */
{
    int k = 0;
    while ((int64_t)1 << k < n) k++;
    return k;
}

static int program_for(struct decoding *d, int rows, int wanted, struct program **out, struct err *e);

/* ---- create ---- */

/* The encoder's layers keep nothing: it runs over a whole text at once. */
bool decoding_keeps(const struct decoding *d, int64_t layer)
{
    return model_layer_attends(&d->model, layer) && !(model_pairs(&d->model) && layer < d->model.encoder_layers);
}

static size_t layer_bytes(const struct decoding *d) /* of keys, or of values */
{
    return to_size(d->cache.page * d->cache.pages * model_cache_cols(&d->model, &d->par)) * dtype_bytes(d->dtype);
}

/* What a layer keeps of one sequence where it has no keys and values: the rows that its convolution saw last, then the
 * state, whatever the sequence's length. */
static size_t kept_bytes(const struct decoding *d, bool state)
{
    const struct ssm_config *s = &d->model.ssm;
    int64_t inner = s->heads * s->head_dim;
    if (state) return to_size(inner * s->state) * sizeof(float);
    return to_size((s->conv - 1) * (inner + 2 * s->groups * s->state)) * dtype_bytes(d->dtype);
}

/* A layer's first or second table: keys or values of all pages; rows or states of all sequences, a multiple of 64; a
 * feed-forward layer has none. */
static size_t table_bytes(const struct decoding *d, int64_t layer, bool second)
{
    if (decoding_keeps(d, layer)) return layer_bytes(d);
    if (!model_layer_scans(&d->model, layer)) return 0;
    return (to_size(d->cache.sequences) * kept_bytes(d, second) + 63) / 64 * 64;
}

/* Of layers [first, end). */
static size_t states_bytes(const struct decoding *d, int64_t first, int64_t end)
{
    size_t n = 0;
    for (int64_t l = first; l < end; l++)
        if (model_layer_scans(&d->model, l)) n += table_bytes(d, l, false) + table_bytes(d, l, true);
    return n;
}

static size_t cache_bytes(const struct decoding *d, int64_t first, int64_t end)
{
    size_t n = 0;
    for (int64_t l = first; l < end; l++) n += table_bytes(d, l, false) + table_bytes(d, l, true);
    return n;
}

/* Where a layer's first or second table begins. */
size_t decoding_table_at(const struct decoding *d, int64_t layer, bool second)
{
    return cache_bytes(d, d->part.first, layer) + (second ? table_bytes(d, layer, false) : 0);
}

/* Of a page in all layers of a stage, on the rank that has most. */
static size_t page_bytes(const struct decoding *d, const struct model_stage *stage)
{
    struct par at = d->par;
    int64_t cols = 0, layers = 0;
    for (at.rank[AXIS_TP] = 0; at.rank[AXIS_TP] < at.size[AXIS_TP]; at.rank[AXIS_TP]++)
        if (model_cache_cols(&d->model, &at) > cols) cols = model_cache_cols(&d->model, &at);
    for (int64_t l = stage->first; l < stage->end; l++) layers += decoding_keeps(d, l);
    return 2 * to_size(d->cache.page * cols * layers) * dtype_bytes(d->dtype);
}

/* Of the table of runs, and of that of what was read. */
static int64_t run_words(const struct decoding *d)
{
    return d->cache.sequences * (RUN_PAGES + d->cache.most) * (model_pairs(&d->model) ? 2 : 1);
}

/* Where in the data that table begins. */
static int64_t reads_at(const struct decoding *d)
{
    return 3 * d->room_rows + d->cache.sequences * (RUN_PAGES + d->cache.most);
}

/* Pages that one sequence may have: with those of what was read, where there is an encoder. */
static int64_t most_of_one(const struct decoding *d) { return d->cache.most * (model_pairs(&d->model) ? 2 : 1); }

/* As many pages as fit into so many bytes beside the states of each stage; all ranks have as many. Where no layer of a
 * stage has keys, pages are numbers only. */
static int fit_cache(struct decoding *d, size_t bytes, const struct model_stage *stage, struct err *e)
{
    for (int s = 0; s < (d->ranks ? d->ranks->n_stages : 1); s++) {
        size_t states = states_bytes(d, stage[s].first, stage[s].end), page = page_bytes(d, &stage[s]);
        if (bytes < states)
            return err_set(e, ERR_REQUEST,
                           "a cache of %zu bytes: %lld sequences keep %zu bytes; give it more, or fewer sequences",
                           bytes, (long long)d->cache.sequences, states);
        if (page && (bytes - states) / page < to_size(d->cache.pages))
            d->cache.pages = (int64_t)((bytes - states) / page);
        if (d->cache.pages < most_of_one(d))
            return err_set(e, ERR_REQUEST,
                           "a cache of %zu bytes holds %lld pages of %d positions (%zu bytes each), and one sequence "
                           "of %lld positions needs %lld; give it more, or fewer positions",
                           bytes, (long long)d->cache.pages, CACHE_PAGE, page, (long long)d->room,
                           (long long)most_of_one(d));
    }
    return OK;
}

static int size_cache(struct decoding *d, const struct decoding_options *o, const struct model_stage *stage,
                      struct err *e)
{
    bool pairs = model_pairs(&d->model);
    int64_t most = pairs ? PAIR_ROOM : d->model.max_positions;
    d->room = o->positions > 0 && (pairs || o->positions < most) ? o->positions : most;
    d->rows = o->rows ? o->rows : ROWS_DEFAULT;
    int64_t largest = 1 << (SIZES - 1), whole = d->room < largest ? d->room : largest;
    if (model_prefixes(&d->model) && d->rows < whole) d->rows = whole; /* a prompt is fed at once */
    d->room_rows = 1;
    while (d->room_rows < d->rows) d->room_rows *= 2;
    CHECK(d->rows > 0 && d->rows <= 1 << (SIZES - 1), "%lld rows of a step", (long long)d->rows);
    d->cache.page = CACHE_PAGE;
    d->cache.sequences = o->sequences ? o->sequences : 1;
    d->cache.most = (d->room + d->cache.page - 1) / d->cache.page;
    d->cache.pages = most_of_one(d) * d->cache.sequences;
    return o->cache_bytes ? fit_cache(d, o->cache_bytes, stage, e) : OK;
}

static void *place_of(const struct buffer *b, size_t at) { return b->p ? (char *)b->p + at : NULL; }

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

static int allocate(struct decoding *d, struct err *e)
{
    const struct model_config *m = &d->model;
    int64_t rope = model_rope_rows(m) * model_rope_cols(m), host = 3 * d->room_rows + run_words(d);
    int64_t read = d->room + d->cache.most; /* words that a text to be read is told in */
    size_t stream = to_size(d->room_rows * m->hidden) * dtype_bytes(d->dtype);
    int rc = buffer_new(&d->keys, d->dev, MEM_ACTIVATION, cache_bytes(d, d->part.first, d->part.end), e);
    if (!rc && !d->part.embeds) rc = buffer_new(&d->stage_in, d->dev, MEM_COMM, stream, e);
    if (!rc && !d->part.heads) rc = buffer_new(&d->stage_out, d->dev, MEM_COMM, stream, e);
    if (!rc) rc = buffer_new(&d->data, d->dev, MEM_DATA, to_size(host) * sizeof(int32_t), e);
    if (!rc && rope) rc = buffer_new(&d->rope, d->dev, MEM_DATA, to_size(rope) * sizeof(float), e);
    if (rc) return rc;
    int n_slots = slot_groups(d->params.n, to_int(m->layers), d->params.n);
    d->slot = xcalloc((size_t)n_slots, sizeof *d->slot);
    static const int of_data[] = {SLOT_TOKENS, SLOT_POSITIONS, SLOT_WANTED, SLOT_RUNS};
    for (int i = 0; i < 4; i++) d->slot[of_data[i]] = place_of(&d->data, to_size(i * d->room_rows) * sizeof(int32_t));
    if (model_pairs(m)) d->slot[SLOT_READS] = place_of(&d->data, to_size(reads_at(d)) * sizeof(int32_t));
    d->slot[SLOT_ROPE] = d->rope.p;
    d->slot[SLOT_STAGE_IN] = d->stage_in.p;
    d->slot[SLOT_STAGE_OUT] = d->stage_out.p;
    for (int i = 0; i < d->params.n; i++) bind_param(d, i);
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; second < 2; second++)
            d->slot[slot_cache(d->params.n, l) + second] = place_of(&d->keys, decoding_table_at(d, l, second));
    if (rope) {
        float *table = xmalloc(d->rope.bytes);
        model_rope_table(m, table);
        device_from_host(d->stream, &d->rope, 0, table, d->rope.bytes);
        stream_sync(d->stream);
        xfree(table);
    }
    d->host = xcalloc(to_size(host), sizeof *d->host);
    if (d->ranks) d->packed = xcalloc(to_size(host > read ? host : read), sizeof *d->packed);
    d->seq = xcalloc(to_size(d->cache.sequences), sizeof *d->seq);
    for (int64_t s = 0; s < d->cache.sequences; s++) {
        d->seq[s].page = xcalloc(to_size(d->cache.most), sizeof(int32_t));
        if (model_pairs(m)) d->seq[s].read = xcalloc(to_size(d->cache.most), sizeof(int32_t));
        d->seq[s].ids = xcalloc(to_size(d->cache.most * d->cache.page), sizeof(int32_t));
    }
    d->pages = cache_pages_new(d->cache.pages, d->cache.page);
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

static int build(struct decoding *d, struct weights *w, const struct decoding_options *o, struct err *e)
{
    struct model_stage *stage = xcalloc(d->ranks ? to_size(d->ranks->n_stages) : 1, sizeof *stage);
    stage[0] = (struct model_stage){0, to_int(d->model.layers), true, true};
    int rc = model_check(&d->model, e);
    if (!rc && d->ranks) rc = decoding_ranks_split(d->ranks, &d->model, stage, e);
    if (!rc) rc = stream_new(&d->stream, d->dev, "compute", e);
    if (!rc && d->ranks) join(d);
    if (!rc) rc = size_cache(d, o, stage, e);
    if (!rc) rc = kernel_table_init(&d->kernels, o->kernels ? o->kernels : "auto", o->threads, d->dev->counts_only, e);
    if (!rc) {
        d->part = stage[d->ranks ? d->ranks->stage : 0];
        kernel_on(d->stream, &d->kernels);
        model_declare(&d->model, &d->par, &d->params);
        if (d->ranks) decoding_ranks_hold(d->ranks, &d->model, stage, &d->params);
        if (o->weights != PACKING_NONE) rc = packed_mark_weights(&d->params, o->weights, e);
    }
    if (!rc) {
        rc = store_new(&d->store, &d->params, d->dev, d->dtype, false, NULL, 0, e);
    }
    xfree(stage);
    if (!rc && w) rc = weights_merge(w, e);
    if (!rc && !w) store_init(&d->store, &d->kernels, d->stream, 1);
    if (!rc && w) rc = source_load(&d->store, &d->kernels, d->stream, w, e);
    if (!rc) rc = allocate(d, e);
    struct program *largest;
    return rc || !o->wanted ? rc : program_for(d, size_up(d->rows), size_up(o->wanted), &largest, e);
}

int decoding_new(struct decoding **out, struct weights *w, struct device *dev, const struct decoding_options *o,
                 struct err *e)
{
    struct hf_model h = {0};
    *out = NULL;
    int rc = OK;
    if (o->model) h = (struct hf_model){.model = *o->model};
    else rc = weights_model(w, &h, e);
    if (!rc && model_both_ways(&h.model) && !model_pairs(&h.model))
        rc = err_set(e, ERR_REQUEST, "%s: %s and writes no text; give a model that does",
                     w ? weights_path(w) : "model.family",
                     model_sees(&h.model) ? "sees pictures" : "reads texts both ways (bert)");
    if (!rc && h.model.scores && !o->scores)
        rc = err_set(e, ERR_REQUEST, "%s: is a reward model, and writes no text; ask it with tutti score",
                     weights_path(w));
    if (!rc && !h.model.scores && o->scores)
        rc = err_set(e, ERR_REQUEST,
                     "%s: has no score (score.weight): it is no reward model; train one of it with train.objective: "
                     "reward",
                     weights_path(w));
    bool several = o->ranks && o->ranks->ranks.world;
    if (several) rc = comm_agree(o->ranks->ranks.world, rc, e);
    if (rc) return rc;
    struct decoding *d = xcalloc(1, sizeof *d);
    d->dev = dev;
    d->ranks = several && o->ranks->ranks.model ? o->ranks : NULL;
    d->par = par_single();
    d->model = h.model;
    d->model.dropout = 0;
    d->model.by_length = !o->model; /* a model in training: as it trains */
    d->model.mtp.depth = 0;         /* a token at a time: what would guess further ones is not read */
    if (model_looks(&d->model)) d->model.seq_len = d->model.max_positions; /* a text may have as many pictures as fit */
    if (model_looks(&d->model)) d->model.vision.images = 1;
    d->n_eos = h.n_eos;
    d->start = (int32_t)h.start;
    memcpy(d->eos, h.eos, sizeof d->eos);
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
    for (int i = 0; i < SIZES * SIZES; i++) {
        program_free(d->sized[i / SIZES][i % SIZES].program);
        tape_free(d->sized[i / SIZES][i % SIZES].tape);
    }
    for (int64_t s = 0; d->seq && s < d->cache.sequences; s++) {
        xfree(d->seq[s].page);
        xfree(d->seq[s].read);
        xfree(d->seq[s].ids);
    }
    buffer_free(&d->keys);
    buffer_free(&d->rope);
    buffer_free(&d->data);
    buffer_free(&d->logits);
    buffer_free(&d->scratch);
    buffer_free(&d->stage_in);
    buffer_free(&d->stage_out);
    buffer_free(&d->gathered);
    decoding_pictures_fini(d);
    decoding_reading_fini(d);
    store_free(&d->store);
    param_table_free(&d->params);
    cache_pages_free(d->pages);
    xfree(d->seq);
    xfree(d->slot);
    xfree(d->host);
    xfree(d->packed);
    xfree(d->host_logits);
    stream_free(d->stream);
    xfree(d);
}

/* ---- inspect ---- */

const struct store *decoding_store(const struct decoding *d) { return &d->store; }
const struct model_config *decoding_model(const struct decoding *d) { return &d->model; }
int64_t decoding_room(const struct decoding *d) { return d->room; }
int64_t decoding_rows(const struct decoding *d) { return d->rows; }
int64_t decoding_sequences(const struct decoding *d) { return d->cache.sequences; }
int64_t decoding_pages(const struct decoding *d) { return d->cache.pages; }
int64_t decoding_pages_left(const struct decoding *d) { return cache_pages_left(d->pages); }
int64_t decoding_pages_for(const struct decoding *d, int64_t positions)
{
    return (positions + d->cache.page - 1) / d->cache.page;
}

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

/* ---- sequences ---- */

static struct sequence *sequence_of(const struct decoding *d, int s)
{
    CHECK(s >= 0 && s < d->cache.sequences && d->seq[s].open, "sequence %d is not open", s);
    return &d->seq[s];
}

int decoding_open(struct decoding *d)
{
    for (int s = 0; s < d->cache.sequences; s++) {
        struct sequence *q = &d->seq[s];
        if (q->open) continue;
        q->open = true;
        q->fed = q->n_pages = q->known = q->n_read = q->n_read_pages = q->least = q->prompt = 0;
        q->longer = false;
        return s;
    }
    return -1;
}

void decoding_close(struct decoding *d, int s)
{
    decoding_cut(d, s, 0);
    decoding_unread(d, &d->seq[s]);
    d->seq[s].open = false;
}

int64_t decoding_fed(const struct decoding *d, int s) { return sequence_of(d, s)->fed; }

void decoding_cut(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = sequence_of(d, s);
    CHECK(n <= q->fed, "%lld of %lld tokens", (long long)n, (long long)q->fed);
    CHECK(!model_scans(&d->model) || n == 0 || n == q->fed, "a state of %lld tokens does not go back to %lld",
          (long long)q->fed, (long long)n);
    q->fed = n;
    int64_t keep = decoding_pages_for(d, n);
    while (q->n_pages > keep) cache_page_return(d->pages, q->page[--q->n_pages]);
    if (q->known > n / d->cache.page) q->known = n / d->cache.page;
    CHECK(!n || n >= q->prompt, "a prompt of %lld tokens is cut to %lld", (long long)q->prompt, (long long)n);
    if (!n) q->least = q->prompt = 0, q->longer = false;
}

/* How a text of n tokens turns. */
static bool turns_longer(const struct decoding *d, int64_t n)
{
    return model_turns_by_length(&d->model) && n > d->model.rope_scaling.original_max_position;
}

void decoding_prompt(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = sequence_of(d, s);
    CHECK(!q->fed, "a prompt is said of a sequence of %lld tokens", (long long)q->fed);
    if (model_prefixes(&d->model)) q->prompt = n;
}

int64_t decoding_whole(const struct decoding *d, int s)
{
    const struct sequence *q = sequence_of(d, s);
    return q->fed ? 0 : q->prompt;
}

void decoding_expect(struct decoding *d, int s, int64_t n)
{
    struct sequence *q = sequence_of(d, s);
    if (n > q->least) q->least = n;
}

int64_t decoding_turns_alike(const struct decoding *d, int64_t n)
{
    return model_turns_by_length(&d->model) && !turns_longer(d, n) ? d->model.rope_scaling.original_max_position
                                                                   : INT64_MAX;
}

/* Before a sequence's first page: pages of texts that turn otherwise are others. */
static int32_t before_first(const struct sequence *q) { return q->longer ? CACHE_FIRST_LONGER : -1; }

void decoding_forget(struct decoding *d)
{
    CHECK(cache_pages_left(d->pages) == d->cache.pages, "a sequence is open");
    cache_pages_free(d->pages);
    d->pages = cache_pages_new(d->cache.pages, d->cache.page);
}

int64_t decoding_reuse(struct decoding *d, int s, const int32_t *ids, int64_t n)
{
    struct sequence *q = sequence_of(d, s);
    CHECK(!q->fed, "a sequence of %lld tokens takes over pages", (long long)q->fed);
    decoding_expect(d, s, n);
    q->longer = turns_longer(d, q->least);
    bool stays = q->longer == turns_longer(d, d->room);
    for (int32_t before = before_first(q); stays && d->reuse && q->fed + d->cache.page < n;
         before = q->page[q->n_pages++]) {
        int32_t page = cache_page_find(d->pages, before, ids + q->fed);
        if (page < 0) break;
        q->page[q->n_pages] = page;
        memcpy(q->ids + q->fed, ids + q->fed, to_size(d->cache.page) * sizeof *ids);
        q->fed += d->cache.page;
    }
    q->known = q->n_pages;
    return q->fed;
}

static void copy_here(struct decoding *d, int64_t from, int64_t to)
{
    size_t layer = layer_bytes(d), page = layer / to_size(d->cache.pages);
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; decoding_keeps(d, l) && second < 2; second++) {
            size_t at = decoding_table_at(d, l, second);
            device_copy(d->stream, &d->keys, at + to_size(to) * page, &d->keys, at + to_size(from) * page, page);
        }
}

/* A page of its own with the same bytes. */
static int32_t copy_page(struct decoding *d, int32_t from)
{
    int32_t to = cache_page_take(d->pages);
    if (to < 0) return to;
    struct decoding_call c = {.order = DECODING_COPY, .from = from, .to = to};
    if (d->ranks) (void)decoding_tell(d->ranks, &c, NULL); /* an error stays, and the next step says it */
    copy_here(d, from, to);
    return to;
}

/* What this rank's layers with states keep of one sequence, for another one. */
static void copy_kept_here(struct decoding *d, int64_t from, int64_t to)
{
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; model_layer_scans(&d->model, l) && second < 2; second++) {
            size_t each = kept_bytes(d, second), at = decoding_table_at(d, l, second);
            device_copy(d->stream, &d->keys, at + to_size(to) * each, &d->keys, at + to_size(from) * each, each);
        }
}

static void copy_kept(struct decoding *d, int from, int to)
{
    struct decoding_call c = {.order = DECODING_COPY_KEPT, .from = from, .to = to};
    if (d->ranks) (void)decoding_tell(d->ranks, &c, NULL); /* as copy_page */
    copy_kept_here(d, from, to);
}

int decoding_fork(struct decoding *d, int s)
{
    struct sequence *from = sequence_of(d, s);
    int t = decoding_open(d);
    if (t < 0) return -1;
    struct sequence *to = &d->seq[t];
    int64_t full = from->fed / d->cache.page;
    for (; to->n_pages < full; to->n_pages++) {
        to->page[to->n_pages] = from->page[to->n_pages];
        cache_page_share(d->pages, to->page[to->n_pages]);
    }
    to->fed = full * d->cache.page;
    to->known = full;
    if (from->fed > to->fed) {
        to->page[full] = copy_page(d, from->page[full]);
        if (to->page[full] < 0) {
            decoding_close(d, t);
            return -1;
        }
        to->n_pages++;
    }
    if (model_scans(&d->model)) copy_kept(d, s, t);
    for (; to->n_read_pages < from->n_read_pages; to->n_read_pages++) {
        to->read[to->n_read_pages] = from->read[to->n_read_pages];
        cache_page_share(d->pages, to->read[to->n_read_pages]);
    }
    to->n_read = from->n_read;
    to->fed = from->fed;
    to->least = from->least;
    to->prompt = from->prompt;
    to->longer = from->longer;
    memcpy(to->ids, from->ids, to_size(to->fed) * sizeof *to->ids);
    return t;
}

/* ---- a step ---- */

/* A page that others read, or may find, is copied before it is written; one that is only known, and no page is left for
 * a copy, is forgotten instead. */
static int own_page(struct decoding *d, int32_t *page)
{
    bool shared = cache_page_owners(d->pages, *page) > 1;
    if (!shared && !cache_page_is_known(d->pages, *page)) return 0;
    int32_t own = copy_page(d, *page);
    if (own < 0 && shared) return -1;
    if (own < 0) {
        cache_page_rewrite(d->pages, *page);
        return 0;
    }
    cache_page_return(d->pages, *page);
    *page = own;
    return 0;
}

/* Pages for n more tokens. */
static int make_room(struct decoding *d, struct sequence *q, int64_t n)
{
    int64_t want = decoding_pages_for(d, q->fed + n), at = q->fed / d->cache.page;
    if (q->fed % d->cache.page && own_page(d, &q->page[at])) return -1;
    while (q->n_pages < want) {
        int32_t page = cache_page_take(d->pages);
        if (page < 0) return -1;
        q->page[q->n_pages++] = page;
    }
    return 0;
}

static int check_part(const struct decoding *d, const struct decoding_part *p, struct err *e)
{
    const struct sequence *q = sequence_of(d, p->sequence);
    if (p->n < 1) return err_set(e, ERR_REQUEST, "nothing to continue from: give at least one token");
    if (model_pairs(&d->model) && !q->n_read)
        return err_set(e, ERR_REQUEST, "the decoder writes by what the encoder read: give it a text first");
    if (decoding_whole(d, p->sequence) && p->n != q->prompt)
        return err_set(e, ERR_REQUEST,
                       "a prompt of %lld tokens sees itself in both directions (model.attn.prefix) and is fed at once; "
                       "a "
                       "step has room for %lld",
                       (long long)q->prompt, (long long)d->rows);
    if (q->fed + p->n > d->room)
        return err_set(e, ERR_REQUEST, "%lld tokens do not fit after %lld: there is room for %lld positions",
                       (long long)p->n, (long long)q->fed, (long long)d->room);
    for (int64_t i = 0; i < p->n; i++)
        if (p->ids[i] < 0 || p->ids[i] >= d->model.vocab)
            return err_set(e, ERR_REQUEST, "token %d is not below the model's vocabulary of %lld: another tokenizer?",
                           p->ids[i], (long long)d->model.vocab);
    return OK;
}

int decoding_grow(struct decoding *d, struct buffer *b, enum mem_cat cat, size_t bytes, struct err *e)
{
    if (b->bytes >= bytes) return OK;
    stream_sync(d->stream);
    buffer_free(b);
    return buffer_new(b, d->dev, cat, bytes, e);
}

static bool leads(const struct decoding *d) { return !d->ranks || d->ranks->leads; }

/* Each rank of tp has a part of the vocabulary; a score they all have. */
static bool splits_logits(const struct decoding *d) { return d->par.size[AXIS_TP] > 1 && !d->model.scores; }

/* The program for so many rows and wanted ones, both powers of 2; recorded at its first use. */
static int program_for(struct decoding *d, int rows, int wanted, struct program **out, struct err *e)
{
    struct sized *z = &d->sized[rows][wanted];
    if (!z->program) {
        z->tape = tape_new();
        model_record_decode(z->tape, &d->model, &d->params, &d->par,
                            &(struct decode_shape){.dtype = d->dtype,
                                                   .tokens = (int64_t)1 << rows,
                                                   .wanted = (int64_t)1 << wanted,
                                                   .stage = &d->part,
                                                   .cache_rows = d->cache.page * d->cache.pages,
                                                   .sequences = d->cache.sequences,
                                                   .most = d->cache.most,
                                                   .pictures = d->pictures.rows});
        int rc = program_new(&z->program, z->tape, &d->kernels,
                             (struct lower_options){.collective_scratch = par_run_scratch}, e);
        if (rc) {
            tape_free(z->tape);
            *z = (struct sized){0};
            return rc;
        }
    }
    *out = z->program;
    size_t logits = ((size_t)1 << wanted) * to_size(model_outputs(&d->model)) * sizeof(float), had = d->logits.bytes;
    int rc = decoding_grow(d, &d->scratch, MEM_SCRATCH, z->program->bytes[HOME_SCRATCH], e);
    if (!rc && d->part.heads) rc = decoding_grow(d, &d->logits, MEM_DATA, logits, e);
    if (!rc && d->part.heads && splits_logits(d) && leads(d)) rc = decoding_grow(d, &d->gathered, MEM_COMM, logits, e);
    if (rc || !d->part.heads) return rc;
    d->slot[SLOT_LOGITS] = d->logits.p;
    if (had >= logits) return OK;
    xfree(d->host_logits);
    d->host_logits = xmalloc(logits);
    return OK;
}

/* The same on all ranks: all have it, or none goes on. */
static int program_of_all(struct decoding *d, int rows, int wanted, struct program **out, struct err *e)
{
    int rc = program_for(d, rows, wanted, out, e);
    if (!d->ranks || d->sized[rows][wanted].agreed) return rc;
    rc = comm_agree(d->ranks->ranks.model, rc, e);
    d->sized[rows][wanted].agreed = !rc;
    return rc;
}

/* Writes what the step reads. */
static void lay_out(struct decoding *d, const struct decoding_part *part, int n_parts)
{
    int32_t *token = d->host, *place = token + d->room_rows, *want = place + d->room_rows, *run = want + d->room_rows;
    int32_t *read = d->host + reads_at(d);
    int64_t at = 0, wanted = 0, each = RUN_PAGES + d->cache.most;
    memset(d->host, 0, to_size(3 * d->room_rows + run_words(d)) * sizeof *d->host);
    for (int i = 0; i < n_parts; i++, run += each, read += each) {
        const struct decoding_part *p = &part[i];
        const struct sequence *q = &d->seq[p->sequence];
        run[RUN_FIRST] = (int32_t)at;
        run[RUN_ROWS] = (int32_t)p->n;
        run[RUN_PAST] = (int32_t)q->fed;
        run[RUN_STATE] = p->sequence;
        run[RUN_BOTH] = decoding_whole(d, p->sequence) > 0;
        memcpy(run + RUN_PAGES, q->page, to_size(q->n_pages) * sizeof *run);
        if (q->n_read) {
            memcpy(read, run, RUN_PAGES * sizeof *run);
            read[RUN_PAST] = (int32_t)q->n_read;
            memcpy(read + RUN_PAGES, q->read, to_size(q->n_read_pages) * sizeof *run);
        }
        for (int64_t k = 0; k < p->n; k++, at++) {
            token[at] = p->ids[k];
            place[at] = (int32_t)(q->fed + k + (q->longer ? d->model.max_positions : 0));
            if (p->n - k <= p->wanted) want[wanted++] = (int32_t)at;
        }
    }
}

/* After the step: the sequence has its tokens, and pages that became full are known. */
static void went_on(struct decoding *d, const struct decoding_part *p)
{
    struct sequence *q = &d->seq[p->sequence];
    memcpy(q->ids + q->fed, p->ids, to_size(p->n) * sizeof *p->ids);
    q->fed += p->n;
    for (; d->reuse && q->known < q->fed / d->cache.page; q->known++)
        cache_page_know(d->pages, q->page[q->known], q->known ? q->page[q->known - 1] : before_first(q),
                        q->ids + q->known * d->cache.page);
}

/* Of n rows of a table of runs the words that are used, in one piece at `words` (packs), or from there. Returns where
 * they end. */
static int32_t *carry(const struct decoding *d, bool packs, int64_t n, int64_t used, int32_t *table, int32_t *words)
{
    for (int64_t i = 0; i < n; i++, words += used, table += RUN_PAGES + d->cache.most)
        memcpy(packs ? words : table, packs ? table : words, to_size(used) * sizeof *words);
    return words;
}

/* All that the step says, between d->host and d->packed. */
static void carry_all(struct decoding *d, const struct decoding_call *c, bool packs)
{
    int32_t *words = d->packed;
    for (int i = 0; i < 3; i++) {
        int64_t n = i < 2 ? c->rows : c->wanted;
        int32_t *own = d->host + i * d->room_rows;
        memcpy(packs ? words : own, packs ? own : words, to_size(n) * sizeof *words);
        words += n;
    }
    words = carry(d, packs, c->n_parts, RUN_PAGES + c->longest, d->host + 3 * d->room_rows, words);
    if (c->reads) (void)carry(d, packs, c->n_parts, RUN_PAGES + c->reads, d->host + reads_at(d), words);
}

/* What of the step's words is used, to everybody. */
static int tell_step(struct decoding *d, struct decoding_call *c, struct err *e)
{
    int rc = decoding_tell(d->ranks, c, e);
    if (rc) return rc;
    carry_all(d, c, true);
    return decoding_tell_words(d->ranks, d->packed, decoding_call_words(c), e);
}

static void unpack(struct decoding *d, const struct decoding_call *c)
{
    memset(d->host, 0, to_size(3 * d->room_rows + run_words(d)) * sizeof *d->host);
    carry_all(d, c, false);
}

/* Parts of the vocabulary, one rank's after the other, become whole rows on the leader. */
static void gather_logits(struct decoding *d, int64_t rows)
{
    struct comm *tp = d->collectives.axis[AXIS_TP];
    int64_t lo, hi, vocab = d->model.vocab;
    par_share(&d->par, AXIS_TP, vocab, &lo, &hi);
    if (!leads(d)) {
        comm_wait(tp, comm_send(tp, d->logits.p, rows * (hi - lo), DT_F32, 0, COMM_AT("logits")));
        return;
    }
    int n = comm_size(tp);
    struct comm_p2p *from = xcalloc(to_size(n), sizeof *from);
    struct par at = d->par;
    for (int r = 1; r < n; r++) {
        at.rank[AXIS_TP] = r;
        par_share(&at, AXIS_TP, vocab, &lo, &hi);
        from[r - 1] = (struct comm_p2p){.peer = r,
                                        .buf = (float *)d->gathered.p + rows * lo,
                                        .n = rows * (hi - lo),
                                        .dtype = DT_F32};
    }
    comm_wait(tp, comm_exchange(tp, from, n - 1, COMM_AT("logits")));
    float *part = xmalloc(to_size(rows * vocab) * sizeof *part);
    par_share(&d->par, AXIS_TP, vocab, &lo, &hi);
    size_t own = to_size(rows * (hi - lo)) * sizeof *part;
    device_to_host(d->stream, part, &d->logits, 0, own);
    device_to_host(d->stream, part + rows * (hi - lo), &d->gathered, own, to_size(rows * vocab) * sizeof *part - own);
    stream_sync(d->stream);
    for (int r = 0; r < n; r++) {
        at.rank[AXIS_TP] = r;
        par_share(&at, AXIS_TP, vocab, &lo, &hi);
        for (int64_t i = 0; i < rows; i++)
            memcpy(d->host_logits + i * vocab + lo, part + rows * lo + i * (hi - lo), to_size(hi - lo) * sizeof *part);
    }
    xfree(part);
    xfree(from);
}

/* What lies in d->host, on every rank: rows from the stage before, this one's layers, rows for the stage after. */
static int run_step(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    struct program *program;
    int rc = program_of_all(d, size_up(c->rows), size_up(c->wanted), &program, e);
    if (rc) return rc;
    struct comm *pp = d->collectives.axis[AXIS_PP];
    int64_t stream =
        ((int64_t)1 << size_up(c->rows)) * d->model.hidden; /* rows that fill up, too: as one rank has them */
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
    else if (c->wanted && splits_logits(d)) gather_logits(d, c->wanted);
    else if (c->wanted)
        device_to_host(d->stream, d->host_logits, &d->logits, 0,
                       to_size(c->wanted * model_outputs(&d->model)) * sizeof *d->host_logits);
    stream_sync(d->stream);
    return d->ranks ? comm_status(d->ranks->ranks.model, e) : OK;
}

static int step(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                struct err *e)
{
    int64_t rows = 0, wanted = 0;
    for (int i = 0; i < n_parts; i++) {
        rows += part[i].n;
        wanted += part[i].wanted < part[i].n ? part[i].wanted : part[i].n;
    }
    CHECK(rows <= d->rows && n_parts > 0 && n_parts <= d->cache.sequences, "%lld rows of %d sequences", (long long)rows,
          n_parts);
    int rc = OK;
    for (int i = 0; i < n_parts; i++)
        if (make_room(d, &d->seq[part[i].sequence], part[i].n)) {
            for (int k = 0; k <= i; k++) decoding_cut(d, part[k].sequence, d->seq[part[k].sequence].fed);
            return err_set(e, ERR_REQUEST, "no page of the cache is left: fewer sequences, or shorter ones");
        }
    lay_out(d, part, n_parts);
    if (d->pictures.rows) decoding_lay_patches(d, part, n_parts);
    struct decoding_call c = {DECODING_STEP, .rows = rows, .wanted = wanted, .n_parts = n_parts};
    for (int i = 0; i < n_parts; i++) {
        const struct sequence *q = &d->seq[part[i].sequence];
        if (q->n_pages > c.longest) c.longest = q->n_pages;
        if (q->n_read_pages > c.reads) c.reads = q->n_read_pages;
    }
    if (d->ranks) rc = tell_step(d, &c, e);
    if (!rc) rc = run_step(d, &c, e);
    if (rc && d->ranks) d->open = false; /* the others have left */
    for (int i = 0; i < n_parts; i++) {
        if (!rc) went_on(d, &part[i]);
        else decoding_cut(d, part[i].sequence, d->seq[part[i].sequence].fed);
    }
    *logits_RV = d->host_logits;
    return rc;
}

/* All that a sequence has, turned as `longer` says. */
static int feed_again(struct decoding *d, int s, bool longer, struct err *e)
{
    struct sequence *q = sequence_of(d, s);
    int64_t n = q->fed, least = q->least, prompt = q->prompt;
    int32_t *ids = xmalloc(to_size(n) * sizeof *ids);
    const float *none;
    int rc = OK;
    memcpy(ids, q->ids, to_size(n) * sizeof *ids);
    decoding_cut(d, s, 0);
    q->least = least;
    q->prompt = prompt;
    q->longer = longer;
    for (int64_t now; !rc && q->fed < n;) {
        now = n - q->fed < d->rows ? n - q->fed : d->rows;
        if (decoding_whole(d, s)) now = prompt;
        rc = step(d, &(struct decoding_part){s, ids + q->fed, now, 0}, 1, &none, e);
    }
    xfree(ids);
    return rc;
}

int decoding_step(struct decoding *d, const struct decoding_part *part, int n_parts, const float **logits_RV,
                  struct err *e)
{
    if (!d->open) return err_set(e, ERR_LOST, "the ranks that have the model have stopped");
    for (int i = 0; i < n_parts; i++) {
        int rc = check_part(d, &part[i], e);
        if (rc) return rc;
    }
    for (int i = 0; i < n_parts; i++) {
        struct sequence *q = &d->seq[part[i].sequence];
        int64_t n = q->fed + part[i].n > q->least ? q->fed + part[i].n : q->least;
        bool longer = turns_longer(d, n);
        int rc = longer != q->longer && q->fed ? feed_again(d, part[i].sequence, longer, e) : OK;
        if (rc) return rc;
        q->longer = longer;
    }
    return step(d, part, n_parts, logits_RV, e);
}

/* ---- the others ---- */

static int follow_step(struct decoding *d, const struct decoding_call *c, struct err *e)
{
    int rc = decoding_tell_words(d->ranks, d->packed, decoding_call_words(c), e);
    if (rc) return rc;
    unpack(d, c);
    return run_step(d, c, e);
}

int decoding_follow(struct decoding *d, struct err *e)
{
    int rc = OK;
    while (!rc && d->ranks) {
        struct decoding_call c;
        rc = decoding_tell(d->ranks, &c, e);
        if (rc || c.order == DECODING_END) break;
        if (c.order == DECODING_COPY) copy_here(d, c.from, c.to);
        else if (c.order == DECODING_COPY_KEPT) copy_kept_here(d, c.from, c.to);
        else if (c.order == DECODING_READ) rc = decoding_follow_read(d, &c, e);
        else rc = follow_step(d, &c, e);
    }
    return rc;
}
