/* SPDX-License-Identifier: Apache-2.0 */
/* Where what layers keep lies: in one buffer, two tables of each layer of this rank one after the other: keys and
 * values of all pages, or the rows and states of all sequences. How many pages there are follows from how many bytes
 * that may be. */
#include "base/mem.h"
#include "kernel/cache_runs.h"
#include "decode/decoding_impl.h"

/* The encoder's layers keep nothing: it runs over a whole text at once. */
static bool keeps(const struct decoding *d, int64_t layer)
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
    if (keeps(d, layer)) return layer_bytes(d);
    if (!model_layer_scans(&d->model, layer)) return 0;
    return (to_size(d->cache.sequences) * kept_bytes(d, second) + 63) / 64 * 64;
}

static size_t tables_bytes(const struct decoding *d, int64_t first, int64_t end)
{
    size_t n = 0;
    for (int64_t l = first; l < end; l++) n += table_bytes(d, l, false) + table_bytes(d, l, true);
    return n;
}

size_t decoding_cache_bytes(const struct decoding *d) { return tables_bytes(d, d->part.first, d->part.end); }

size_t decoding_table_at(const struct decoding *d, int64_t layer, bool second)
{
    return tables_bytes(d, d->part.first, layer) + (second ? table_bytes(d, layer, false) : 0);
}

/* ---- how many pages ---- */

static size_t states_bytes(const struct decoding *d, const struct model_stage *stage)
{
    size_t n = 0;
    for (int64_t l = stage->first; l < stage->end; l++)
        if (model_layer_scans(&d->model, l)) n += table_bytes(d, l, false) + table_bytes(d, l, true);
    return n;
}

/* Of a page in all layers of a stage, on the rank that has most. */
static size_t page_bytes(const struct decoding *d, const struct model_stage *stage)
{
    struct par at = d->par;
    int64_t cols = 0, layers = 0;
    for (at.rank[AXIS_TP] = 0; at.rank[AXIS_TP] < at.size[AXIS_TP]; at.rank[AXIS_TP]++)
        if (model_cache_cols(&d->model, &at) > cols) cols = model_cache_cols(&d->model, &at);
    for (int64_t l = stage->first; l < stage->end; l++) layers += keeps(d, l);
    return 2 * to_size(d->cache.page * cols * layers) * dtype_bytes(d->dtype);
}

/* Pages that one sequence may have: with those of what was read, where there is an encoder. */
static int64_t most_of_one(const struct decoding *d) { return d->cache.most * (model_pairs(&d->model) ? 2 : 1); }

/* As many pages as fit into so many bytes beside the states of each stage; all ranks have as many. Where no layer of a
 * stage has keys, pages are numbers only. */
static int fit(struct decoding *d, size_t bytes, const struct model_stage *stage, struct err *e)
{
    for (int s = 0; s < (d->ranks ? d->ranks->n_stages : 1); s++) {
        size_t states = states_bytes(d, &stage[s]), page = page_bytes(d, &stage[s]);
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

int decoding_size_cache(struct decoding *d, const struct decoding_options *o, const struct model_stage *stage,
                        struct err *e)
{
    d->cache.page = CACHE_PAGE;
    d->cache.sequences = o->sequences ? o->sequences : 1;
    d->cache.most = (d->room + d->cache.page - 1) / d->cache.page;
    d->cache.pages = most_of_one(d) * d->cache.sequences;
    return o->cache_bytes ? fit(d, o->cache_bytes, stage, e) : OK;
}

/* ---- copies ---- */

/* The from-th piece of so many bytes of a table, once more as its to-th. */
static void copy_piece(struct decoding *d, int layer, bool second, size_t bytes, int64_t from, int64_t to)
{
    size_t at = decoding_table_at(d, layer, second);
    device_copy(d->stream, &d->keys, at + to_size(to) * bytes, &d->keys, at + to_size(from) * bytes, bytes);
}

void decoding_copy_page(struct decoding *d, int64_t from, int64_t to)
{
    size_t page = layer_bytes(d) / to_size(d->cache.pages);
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; keeps(d, l) && second < 2; second++) copy_piece(d, l, second, page, from, to);
}

void decoding_copy_kept(struct decoding *d, int64_t from, int64_t to)
{
    for (int l = d->part.first; l < d->part.end; l++)
        for (int second = 0; model_layer_scans(&d->model, l) && second < 2; second++)
            copy_piece(d, l, second, kept_bytes(d, second), from, to);
}
